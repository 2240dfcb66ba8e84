package httpapi

import (
	"encoding/json"
	"maps"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
)

// submission is the body of POST /v1/jobs: crawl.Spec field by field, since the
// conversion between the two compiles only while they are the same, and with what
// the OpenAPI document says of each. The rules themselves are crawl.Spec's.
type submission struct {
	URLs        []string          `json:"urls,omitempty" maxItems:"10000" doc:"Just these pages, deduplicated in order; links are not followed. One of urls, seed_url and seeds is required, and they exclude each other."`
	SeedURL     string            `json:"seed_url,omitempty" maxLength:"8192" doc:"Where a crawl of a site begins."`
	Seeds       []string          `json:"seeds,omitempty" maxItems:"1000" doc:"Where a crawl begins, when it begins in several places."`
	MaxPages    *int64            `json:"max_pages,omitempty" minimum:"1" maximum:"1000000" default:"100" doc:"How many URLs are admitted at most; failed and skipped ones count, redirect hops do not. Default 100. With seeds only."`
	MaxDepth    *int              `json:"max_depth,omitempty" minimum:"0" maximum:"100" default:"5" doc:"How many links away from a seed a page may be; 0 is the seeds alone. Default 5. With seeds only."`
	TimeLimit   *crawl.Duration   `json:"time_limit,omitempty" durationDefault:"1h" example:"1h" doc:"How long the job may take, as 90s or 1h30m: from 1s to 168h. Default 1h."`
	Scope       string            `json:"scope,omitempty" enum:"prefix,host,domain,any" default:"host" doc:"Which links belong to the crawl: below the directory of a seed, on its host, on its registrable domain, or any. Default host. With seeds only."`
	Include     []string          `json:"include,omitempty" maxItems:"100" doc:"Patterns of which a link must match one, when there are any: a glob (* stops at /, ** does not) against the URL, or against path and query when it begins with /; or re: and an RE2 expression. At most 512 bytes each. Seeds are always admitted."`
	Exclude     []string          `json:"exclude,omitempty" maxItems:"100" doc:"Patterns, as in include, of which a link may match none."`
	Formats     []string          `json:"formats,omitempty" maxItems:"5" default:"[]" doc:"What is kept of the content of each page: any of markdown, text, html (as received, decoded), links and metadata. Default none: URL, title and the number of links."`
	MainContent bool              `json:"main_content,omitempty" default:"false" doc:"Takes markdown and text of the main content alone, without navigation, banners and the like, where that can be told. Default false."`
	Fields      crawl.Fields      `json:"fields,omitempty" maxProperties:"100" doc:"Values taken out of each page, by name: 1 to 64 letters, digits and _, not a digit first. At most 100 fields, those of items counted as well. They are in the record in this order. Default none."`
	Items       *crawl.Items      `json:"items,omitempty" doc:"Several records a page: one for each element that the selector matches, behind the record of the page itself. Default none."`
	ListPages   []string          `json:"list_pages,omitempty" maxItems:"100" doc:"Patterns, as in include, of pages that are there for their links: no fields are taken out of them, and they enter no collection. With seeds only."`
	Collection  *crawl.Collection `json:"collection,omitempty" doc:"Where the records enter that outlive the job, one item a key: a name, or an object. Default nowhere."`
	Concurrency *int              `json:"concurrency,omitempty" minimum:"1" maximum:"256" default:"8" doc:"How many pages of the job are in flight at once, over all workers. Default 8."`
	Delay       *crawl.Duration   `json:"delay,omitempty" example:"2s" doc:"Time between two requests to one host, as 500ms or 2s: not less than the service's own (its default) and at most 60s."`

	RespectRobots *bool         `json:"respect_robots,omitempty" default:"true" doc:"false crawls what a robots.txt, a robots meta element, an X-Robots-Tag header or rel=nofollow asks not to. Default true."`
	Sitemap       string        `json:"sitemap,omitempty" enum:"include,only,skip" default:"include" doc:"What is done with the sitemaps of the seeds' hosts: include crawls what they list besides what is linked, only crawls that and follows no link of a page, skip does not read them. Default include. With seeds only."`
	Headers       crawl.Headers `json:"headers,omitempty" maxProperties:"20" doc:"Request headers for the origins (scheme, host and port) of the inputs, and for no other: at most 20, of at most 8 KiB together. Not those of the connection, of content coding, of ranges and conditions, of proxies (X-Forwarded-For, Via, …), of browsers (Sec-…) and of other methods, nor Host and User-Agent. Values are kept secret: a status shows *** for each."`
	UserAgent     string        `json:"user_agent,omitempty" maxLength:"256" doc:"What requests call themselves, in visible ASCII, beginning with a name that a robots.txt can address: ExampleBot/1.0 (+https://example.org/bot). Default: the worker's own."`
	DropParams    []string      `json:"drop_params,omitempty" maxItems:"100" doc:"Query parameters that make no other page, by name, with * for any run of characters: utm_*. tracking stands for a list of those that campaigns, mailings and advertisers add. They are dropped from inputs and links before those are compared and fetched. At most 100 bytes each; default none."`
	SortParams    bool          `json:"sort_params,omitempty" default:"false" doc:"Sorts the query parameters of inputs and links by name, before those are compared and fetched. Default false."`

	Tags      []string        `json:"tags,omitempty" maxItems:"20" doc:"Labels to find the job by: 1 to 64 visible characters each."`
	Retention *crawl.Duration `json:"retention,omitempty" durationDefault:"72h" example:"72h" doc:"How long the ended job is kept, as 72h: from 1m to 720h. Default 72h."`
	Webhook   *crawl.Webhook  `json:"webhook,omitempty" doc:"Where events of the job are posted to; see webhooks in this document. Default: nowhere."`
}

// TransformSchema spells durations as the strings that they are on the wire,
// and refuses unknown names as the decoder does.
func (submission) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[submission]()) {
		if f.Type == reflect.TypeFor[*crawl.Duration]() {
			d := &huma.Schema{
				Type: huma.TypeString, Description: f.Tag.Get("doc"),
				Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`,
				// Without one, pages that show the document make one up from the pattern.
				Examples: []any{f.Tag.Get("example")},
			}
			// Not "default", which huma would read as the integer that the type is.
			if def := f.Tag.Get("durationDefault"); def != "" {
				d.Default = def
			}
			s.Properties[jsonName(f)] = d
		}
	}
	describeWebhook(r)
	s.AdditionalProperties = false
	return s
}

// TransformSchema adds the fields of a submission, which huma does not see since their
// type is not exported.
func (shownSpec) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	ref := r.Schema(reflect.TypeFor[submission](), true, "").Ref
	maps.Copy(s.Properties, r.SchemaFromRef(ref).Properties)
	s.AdditionalProperties = false
	return s
}

// status is what every read of a job answers: crawl.Job, with null where there
// is nothing yet.
type status struct {
	JobID       string            `json:"job_id" doc:"Identity of the job."`
	QueueTaskID string            `json:"queue_task_id" doc:"Identity of its first task in the queue."`
	State       crawl.State       `json:"state" enum:"queued,running,paused,cancelling,completed,completed_with_errors,failed,cancelled"`
	StopReason  *crawl.StopReason `json:"stop_reason" enum:"frontier_empty,page_limit,time_limit,byte_limit,cancelled,seed_failed,internal" doc:"Why the job ended; null while it has not."`
	WaitingFor  *string           `json:"waiting_for" doc:"Why the job makes no progress now: tenant_quota, dispatch, worker, host_delay, robots (a robots.txt cannot be read yet), retry, or memory (Redis is full); null when it does, or has ended."`
	Position    *int64            `json:"position" doc:"Place in the tenant's list, from 1, while the job waits for its turn; null while it waits for anything else, also for the pages of a new day."`
	Error       *string           `json:"error" doc:"What keeps the job from starting, or why it failed."`
	RetryOf     *string           `json:"retry_of" doc:"The job whose failed URLs this one tries again."`

	Total     int64 `json:"total" doc:"URLs admitted: queued + active + deferred + accepted + failed + skipped + cancelled."`
	Processed int64 `json:"processed" doc:"accepted + failed + skipped."`
	Accepted  int64 `json:"accepted"`
	Failed    int64 `json:"failed"`
	Queued    int64 `json:"queued"`
	Active    int64 `json:"active"`
	Deferred  int64 `json:"deferred" doc:"Pages that wait for their host or for a retry."`
	Skipped   int64 `json:"skipped"`
	Cancelled int64 `json:"cancelled"`
	Records   int64 `json:"records"`

	SkippedByReason map[crawl.Reason]int64 `json:"skipped_by_reason"`
	FailedByType    map[crawl.Code]int64   `json:"failed_by_type"`
	RefusedByReason map[crawl.Reason]int64 `json:"refused_by_reason" doc:"Links that were never admitted; they are not in total."`
	Report          report                 `json:"report"`

	KeptBytes int64   `json:"kept_bytes" doc:"Bytes that the content of the pages (formats) takes in the store, most of it compressed."`
	Bytes     int64   `json:"bytes" doc:"Decoded bytes of the pages that were read: of accepted ones, and of those skipped as noindex or alias."`
	CreatedAt string  `json:"created_at" format:"date-time"`
	StartedAt *string `json:"started_at" format:"date-time"`
	EndedAt   *string `json:"ended_at" format:"date-time"`
	ExpiresAt *string `json:"expires_at" format:"date-time" doc:"When the ended job is forgotten."`

	Spec spec     `json:"spec,omitempty" doc:"What was submitted, before defaults; not in lists."`
	Tags []string `json:"tags" nullable:"false"`
}

// report sums a job up for the services that the collections of a tenant feed.
type report struct {
	ListPages      int64 `json:"list_pages" doc:"Accepted pages that match list_pages, or that gave items."`
	Discovered     int64 `json:"discovered" doc:"As total."`
	Created        int64 `json:"created" doc:"Items of the collection whose key was new."`
	Updated        int64 `json:"updated" doc:"Items that had another content than before."`
	Unchanged      int64 `json:"unchanged" doc:"Items that were seen again as they were."`
	NotCollected   int64 `json:"not_collected" doc:"Records that did not enter the collection: without a key, with one that the page gave before, or for want of room; notes of each say which."`
	Missing        int64 `json:"missing" doc:"Items that an earlier crawl of the same inputs saw last and this one, which was complete, did not."`
	Sitemaps       int64 `json:"sitemaps" doc:"Sitemaps that were read; they are no pages and not in total."`
	SitemapsFailed int64 `json:"sitemaps_failed" doc:"Sitemaps that could not be read, or not to their end."`
}

// spec is a stored submission, passed through as it is.
type spec json.RawMessage

// MarshalJSON writes s as it is.
func (s spec) MarshalJSON() ([]byte, error) { return s, nil }

// Schema says that a spec is what was submitted, a long list of URLs cut.
func (spec) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[shownSpec](), true, "")
}

func statusOf(j *crawl.Job) status {
	return status{
		JobID: j.ID, QueueTaskID: j.QueueTaskID, State: j.State, StopReason: unlessZero(j.StopReason),
		WaitingFor: unlessZero(j.WaitingFor), Position: unlessZero(j.Position),
		Error: unlessZero(j.Error), RetryOf: unlessZero(j.RetryOf),
		Total: j.Total, Processed: j.Processed, Accepted: j.Accepted, Failed: j.Failed,
		Queued: j.Queued, Active: j.Active, Deferred: j.Deferred, Skipped: j.Skipped, Cancelled: j.Cancelled,
		Records: j.Records, SkippedByReason: orEmpty(j.SkippedByReason), FailedByType: orEmpty(j.FailedByType),
		RefusedByReason: orEmpty(j.RefusedByReason),
		Report:          reportOf(j),
		KeptBytes:       j.KeptBytes, Bytes: j.Bytes, CreatedAt: timestamp(j.CreatedAt),
		StartedAt: timeUnlessZero(j.StartedAt), EndedAt: timeUnlessZero(j.EndedAt),
		ExpiresAt: timeUnlessZero(j.ExpiresAt), Spec: spec(j.Spec), Tags: append([]string{}, j.Tags...),
	}
}

func reportOf(j *crawl.Job) report {
	r := &j.Report
	return report{
		ListPages: r.ListPages, Discovered: j.Total, Created: r.Created, Updated: r.Updated, Unchanged: r.Unchanged,
		NotCollected: r.NotCollected, Missing: r.Missing, Sitemaps: j.Sitemaps, SitemapsFailed: j.SitemapsFailed,
	}
}

// record is one accepted page, or one item of it.
type record struct {
	Seq            int64   `json:"seq" doc:"Place in the records of the job, from 1."`
	SourceURL      string  `json:"source_url" doc:"The URL as it was linked."`
	URL            string  `json:"url" doc:"Where it ended, after redirects."`
	Status         int     `json:"status"`
	Depth          int     `json:"depth"`
	DiscoveredOn   *string `json:"discovered_on" doc:"source_url of the page that linked here first; null for an input."`
	Title          string  `json:"title"`
	FetchedAt      string  `json:"fetched_at" format:"date-time"`
	DurationMS     int64   `json:"duration_ms"`
	Bytes          int64   `json:"bytes" doc:"Of the decoded body."`
	ContentType    string  `json:"content_type"`
	Charset        string  `json:"charset"`
	CharsetFrom    string  `json:"charset_from" doc:"How the charset was found: bom, header, meta, xml, utf8 (the bytes are), detected or default."`
	Language       string  `json:"language"`
	Canonical      string  `json:"canonical"`
	LinkCount      int     `json:"link_count" doc:"Distinct links of the page, admitted or not."`
	Attempts       int     `json:"attempts"`
	LastMod        *string `json:"lastmod" format:"date-time" doc:"When the page was last changed, as the sitemap says that named it; null for most."`
	DuplicateOf    *string `json:"duplicate_of" doc:"source_url of the record that had the same bytes first; null for most."`
	DecodingErrors bool    `json:"decoding_errors" doc:"Whether bytes did not fit the charset and became U+FFFD."`

	Item     *int          `json:"item" doc:"Place of the record among the items of its page, from 1; null for the record of the page itself."`
	Change   *crawl.Change `json:"change" enum:"created,updated,unchanged" doc:"What the record did to the collection of the job; null when it did not enter one."`
	Fields   values        `json:"fields" doc:"The values of the record by name, in the order of the job's fields; null when none were asked for."`
	Notes    []note        `json:"notes" nullable:"false" doc:"What of the record is not whole, or not as it was asked for; empty for most."`
	Markdown *string       `json:"markdown" csv:"asked" doc:"Null unless formats has it, as the other forms of the content."`
	Text     *string       `json:"text" csv:"asked" doc:"What a reader sees, a line for each block."`
	HTML     *string       `json:"html" csv:"asked" doc:"As received, decoded. It is not made safe to show."`
	Links    []link        `json:"links" nullable:"true" doc:"Every link, in the order of the page."`
	Metadata *metadata     `json:"metadata" doc:"What the page says of itself."`
}

// TransformSchema says that a record may have no metadata.
func (record) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	orNull(s, "metadata")
	return s
}

func recordOf(p *crawl.Page) record {
	r := record{
		Seq: p.Seq, SourceURL: p.SourceURL, URL: p.URL, Status: p.Status, Depth: p.Depth,
		DiscoveredOn: unlessZero(p.DiscoveredOn), Title: p.Title, FetchedAt: timestamp(p.FetchedAt),
		DurationMS: p.DurationMS, Bytes: p.Bytes, ContentType: p.ContentType,
		Charset: p.Charset, Language: p.Language, Canonical: p.Canonical, LinkCount: p.LinkCount, Attempts: p.Attempts,
		DecodingErrors: p.DecodingErrors, CharsetFrom: p.CharsetFrom, DuplicateOf: unlessZero(p.DuplicateOf),
		LastMod: timeUnlessZero(p.LastMod),
		Item:    unlessZero(p.Item), Change: unlessZero(p.Change), Fields: values(p.Fields), Notes: notesOf(p.Notes),
	}
	if c := p.Content; c != nil {
		r.Markdown, r.Text, r.HTML, r.Metadata = c.Markdown, c.Text, c.HTML, (*metadata)(c.Metadata)
		r.Links = linksOf(c.Links)
	}
	return r
}

// failure is one page that failed.
type failure struct {
	SourceURL    string            `json:"source_url"`
	URL          string            `json:"url" doc:"Where it failed."`
	ErrorType    crawl.Code        `json:"error_type"`
	Status       *int              `json:"status" doc:"The HTTP status; null without an answer."`
	Headers      map[string]string `json:"headers" doc:"Of the answer: those that help to find out why, by lower-case name."`
	Message      string            `json:"message"`
	Attempts     int               `json:"attempts"`
	DiscoveredOn *string           `json:"discovered_on"`
	Depth        int               `json:"depth"`
	At           string            `json:"at" format:"date-time"`
}

func failureOf(f *crawl.Failure) failure {
	return failure{
		SourceURL: f.SourceURL, URL: f.URL, ErrorType: f.ErrorType, Status: unlessZero(f.Status), Message: f.Message,
		Headers:  orEmpty(f.Headers),
		Attempts: f.Attempts, DiscoveredOn: unlessZero(f.DiscoveredOn), Depth: f.Depth, At: timestamp(f.At),
	}
}

// page is one page of a list.
type page[T any] struct {
	Items      []T     `json:"items" nullable:"false"`
	NextCursor *string `json:"next_cursor" doc:"Pass as cursor to go on; null at the end. While a job runs it is always given, since more may come."`
	HasMore    bool    `json:"has_more" doc:"Whether there is more now. A list with a filter may answer no items and yet has_more: go on with next_cursor."`
}

func unlessZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// timestamp writes a time as all of this API are: RFC 3339, in UTC, with milliseconds,
// so that they also sort as text.
func timestamp(t time.Time) string { return crawl.Timestamp(t) }

func timeUnlessZero(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := timestamp(t)
	return &s
}

func orEmpty[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return m
}
