package client

import (
	"encoding/json"
	"time"
)

// Spec says what to crawl: URLs, or a site by SeedURL or Seeds, one of the three. The
// zero value of every other field means the service's default; /docs on the service has
// the bounds of each.
type Spec struct {
	URLs     []string `json:"urls,omitempty"`      // just these pages; no link is followed
	SeedURL  string   `json:"seed_url,omitempty"`  // where the crawl of a site begins
	Seeds    []string `json:"seeds,omitempty"`     // the same, for several places
	MaxPages int64    `json:"max_pages,omitempty"` // URLs admitted at most; of a site
	MaxDepth *int     `json:"max_depth,omitempty"` // links away from a seed; new(0) is the seeds alone

	TimeLimit time.Duration `json:"time_limit,omitempty"`
	Scope     Scope         `json:"scope,omitempty"`
	Include   []string      `json:"include,omitempty"` // a glob, or re: and an RE2 expression; a link must match one
	Exclude   []string      `json:"exclude,omitempty"` // and none of these

	Formats     []ContentFormat `json:"formats,omitempty"`      // what is kept of the content of each page
	MainContent bool            `json:"main_content,omitempty"` // markdown and text without navigation and the like
	Fields      Fields          `json:"fields,omitempty"`       // values to take out of each page
	Items       *Items          `json:"items,omitempty"`        // several records a page, behind that of the page itself
	ListPages   []string        `json:"list_pages,omitempty"`   // patterns of pages that are there for their links
	Collection  *Collection     `json:"collection,omitempty"`   // where the records enter that outlive the job

	Concurrency int           `json:"concurrency,omitempty"` // pages of the job in flight at once
	Delay       time.Duration `json:"delay,omitempty"`       // between two requests to one host

	RespectRobots *bool   `json:"respect_robots,omitempty"` // new(false) crawls what robots.txt and its kin ask not to
	Sitemap       Sitemap `json:"sitemap,omitempty"`
	// Headers go with requests to the origins of the inputs, and to no other. They may hold
	// credentials: a status shows "***" for each value.
	Headers    map[string]string `json:"headers,omitempty"`
	UserAgent  string            `json:"user_agent,omitempty"`
	DropParams []string          `json:"drop_params,omitempty"` // query parameters to leave out: names, "utm_*", "tracking"
	SortParams bool              `json:"sort_params,omitempty"` // query parameters are sorted by name

	Tags      []string      `json:"tags,omitempty"`
	Retention time.Duration `json:"retention,omitempty"` // how long the ended job is kept
	Webhook   *Webhook      `json:"webhook,omitempty"`   // where events of the job are posted to

	// URLsOmitted is only read: a status shows the first of a long list of URLs, and
	// here how many more there were.
	URLsOmitted int `json:"urls_omitted,omitempty"`
}

// Scope bounds the links of a site crawl that are followed.
type Scope string

// The scopes: below the directory of a seed, on its host, on its registrable domain,
// anywhere that the service allows.
const (
	ScopePrefix Scope = "prefix"
	ScopeHost   Scope = "host"
	ScopeDomain Scope = "domain"
	ScopeAny    Scope = "any"
)

// Sitemap says what a site crawl does with sitemaps.
type Sitemap string

// What is done with the sitemaps of the seeds' hosts: what they list is crawled as well as
// what is linked, nothing else is, or they are not read.
const (
	SitemapInclude Sitemap = "include"
	SitemapOnly    Sitemap = "only"
	SitemapSkip    Sitemap = "skip"
)

// State is that of a job.
type State string

// The states of a job. Those from Completed on are terminal: see [State.Terminal].
const (
	Queued              State = "queued"
	Running             State = "running"
	Paused              State = "paused"
	Cancelling          State = "cancelling"
	Completed           State = "completed"
	CompletedWithErrors State = "completed_with_errors"
	Failed              State = "failed"
	Cancelled           State = "cancelled"
)

// Terminal reports whether a job in this state has ended. An ended job never changes.
func (s State) Terminal() bool {
	switch s {
	case Completed, CompletedWithErrors, Failed, Cancelled:
		return true
	default:
		return false
	}
}

// Job is the status of a job. Its counts add up at every read:
// Total = Queued + Active + Deferred + Accepted + Failed + Skipped + Cancelled, and
// Processed = Accepted + Failed + Skipped.
type Job struct {
	ID          string `json:"job_id"`
	QueueTaskID string `json:"queue_task_id"`
	State       State  `json:"state"`
	StopReason  string `json:"stop_reason"` // why it ended; empty while it has not
	WaitingFor  string `json:"waiting_for"` // why it makes no progress; empty when it does
	Position    int64  `json:"position"`    // in the tenant's line, from 1; 0 when it is not in it
	Error       string `json:"error"`       // why it failed, or does not start
	RetryOf     string `json:"retry_of"`    // the job whose failed URLs it tries again

	Total     int64 `json:"total"`
	Processed int64 `json:"processed"`
	Accepted  int64 `json:"accepted"`
	Failed    int64 `json:"failed"`
	Queued    int64 `json:"queued"`
	Active    int64 `json:"active"`
	Deferred  int64 `json:"deferred"` // wait for their host or for a retry
	Skipped   int64 `json:"skipped"`
	Cancelled int64 `json:"cancelled"`
	Records   int64 `json:"records"`

	SkippedByReason map[string]int64 `json:"skipped_by_reason"`
	FailedByType    map[string]int64 `json:"failed_by_type"`
	RefusedByReason map[string]int64 `json:"refused_by_reason"` // links never admitted; not in Total
	Report          Report           `json:"report"`

	Bytes     int64     `json:"bytes"`      // decoded, of the pages that were read: accepted, noindex and aliases
	KeptBytes int64     `json:"kept_bytes"` // that the content of its pages takes in the store
	CreatedAt time.Time `json:"created_at"`
	StartedAt time.Time `json:"started_at"` // zero until then, as the next two
	EndedAt   time.Time `json:"ended_at"`
	ExpiresAt time.Time `json:"expires_at"` // when the ended job is forgotten

	Spec *Spec    `json:"spec,omitempty"` // what was submitted, before defaults; nil in lists
	Tags []string `json:"tags"`

	// Raw is the whole as the service sent it, with what this version does not know.
	Raw json.RawMessage `json:"-"`
}

// PageError is one page that failed for good.
type PageError struct {
	SourceURL    string            `json:"source_url"`
	URL          string            `json:"url"` // where it failed
	ErrorType    string            `json:"error_type"`
	Status       int               `json:"status"`  // of the HTTP answer; 0 without one
	Headers      map[string]string `json:"headers"` // of the answer that help to find out why, by lower-case name
	Message      string            `json:"message"`
	Attempts     int               `json:"attempts"`
	DiscoveredOn string            `json:"discovered_on"`
	Depth        int               `json:"depth"`
	At           time.Time         `json:"at"`

	// Raw is the whole as the service sent it, with what this version does not know.
	Raw json.RawMessage `json:"-"`
}

// Page is one page of a list.
type Page[T any] struct {
	Items []T `json:"items"`
	// NextCursor goes on behind this page; empty at the end of the list. While a job runs
	// it is always there, since more may come.
	NextCursor string `json:"next_cursor"`
	HasMore    bool   `json:"has_more"` // whether there is more now
}
