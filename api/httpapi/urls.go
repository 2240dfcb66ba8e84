package httpapi

import (
	"context"
	"encoding/binary"
	"strings"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// knownURL is one URL that a job knows.
type knownURL struct {
	URL          string          `json:"url" doc:"The URL as it was linked."`
	State        crawl.PageState `json:"state" enum:"queued,active,deferred,accepted,failed,skipped,cancelled,refused" doc:"Each URL that was admitted is in one of the first seven, and counts in total. A refused one was linked and never admitted."`
	Reason       *crawl.Reason   `json:"reason" doc:"Why it was skipped or refused, or the error_type with which it failed; null in other states."`
	Rule         *string         `json:"rule" doc:"What decided, where a rule did: a line of robots.txt, a pattern, a bound of the job."`
	Depth        int             `json:"depth" doc:"Links followed from an input."`
	DiscoveredOn *string         `json:"discovered_on" doc:"source_url of the page that linked here first; null for an input."`
	Attempts     int             `json:"attempts" doc:"Tries that failed or were lost with their worker; of accepted and failed pages all tries, the last included."`
	NextAt       *string         `json:"next_at" format:"date-time" doc:"When a deferred URL is due; null in other states."`
	FetchURL     *string         `json:"fetch_url" doc:"What is fetched in its place, since a redirect led to another origin."`
	FinalURL     *string         `json:"final_url" doc:"Where an accepted or failed page ended, or where a skipped one led."`
	AliasOf      *string         `json:"alias_of" doc:"Of a page skipped as alias: source_url of the record that has final_url, because it was there first."`
	Seq          *int64          `json:"seq" doc:"Place in the records of the job: of an accepted page, or of that of which it is an alias."`
	Status       *int            `json:"status" doc:"The HTTP status of an accepted or failed page; null without an answer."`
	Message      *string         `json:"message" doc:"For a person: why a page failed."`
}

func knownURLOf(u *store.URLEntry) knownURL {
	return knownURL{
		URL: u.URL, State: u.State, Reason: unlessZero(u.Reason), Rule: unlessZero(u.Rule), Depth: u.Depth,
		DiscoveredOn: unlessZero(u.DiscoveredOn), Attempts: u.Attempts, NextAt: timeUnlessZero(u.NextAt),
		FetchURL: unlessZero(u.FetchURL), FinalURL: unlessZero(u.FinalURL), AliasOf: unlessZero(u.AliasOf),
		Seq: unlessZero(u.Seq), Status: unlessZero(u.Status), Message: unlessZero(u.Message),
	}
}

type urlsInput struct {
	ID     string    `path:"id" doc:"Identity of the job."`
	State  string    `query:"state" enum:"queued,active,deferred,accepted,failed,skipped,cancelled,refused" doc:"Only URLs in this state. Of refused ones the first 10,000 of the job are remembered. Without it all, in this order of states."`
	Reason string    `query:"reason" pattern:"^[a-z0-9_]{1,64}$" doc:"Only URLs skipped or refused for this reason, or failed with this error_type: a name of skipped_by_reason, refused_by_reason or failed_by_type in the status. A page may be empty and yet has_more: go on with next_cursor."`
	URL    string    `query:"url" maxLength:"8192" doc:"Only this URL, however it is spelled: why a page is missing, in one call. No items and no has_more means that the job never met it. Of a job of more than 100,000 URLs go on with next_cursor while has_more."`
	Limit  pageLimit `query:"limit"`
	Cursor string    `query:"cursor" doc:"The next_cursor of the page before, of the same state, reason and url. Of an ended job the pages together have each URL exactly once. While a job runs URLs move from state to state, so that one may be met twice or missed between two pages."`
}

// urlCalls bounds how many pages of [pageLimitMax] URLs are looked through for one URL in
// one request: 100,000 take the store some 200 ms in all, in steps of two.
const urlCalls = 100

type urlsOutput struct {
	Body page[knownURL]
}

func (s *Server) urls(ctx context.Context, x *exchange, in *urlsInput) (*urlsOutput, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return nil, err
	}
	p := params{faults: x.query}
	// Empty is a mistake of who asks about one URL, and not a wish for all.
	q := p.urlQuery(in, x.c.Request.URL.Query().Has("url"))
	if err := p.err(); err != nil {
		return nil, err
	}
	found, err := s.jobs.URLs(ctx, ref, q)
	// One URL is looked for page by page, since nothing leads to its place.
	for calls := 1; err == nil && !q.URL.IsZero() && len(found.URLs) == 0 && found.More && calls < urlCalls; calls++ {
		q.From = found.Next
		found, err = s.jobs.URLs(ctx, ref, q)
	}
	if err != nil {
		return nil, err
	}
	out := &urlsOutput{Body: page[knownURL]{Items: make([]knownURL, len(found.URLs)), HasMore: found.More}}
	for i := range found.URLs {
		out.Body.Items[i] = knownURLOf(&found.URLs[i])
	}
	if found.More || !found.Ended {
		next := encodePlace(found.Next)
		out.Body.NextCursor = &next
	}
	return out, nil
}

func (p *params) urlQuery(in *urlsInput, given bool) store.URLQuery {
	q := store.URLQuery{
		State: p.pageState(in.State), Reason: crawl.Reason(in.Reason),
		Limit: p.limit(string(in.Limit), pageLimitDefault, pageLimitMax),
	}
	if in.URL != "" || given {
		u, err := crawl.ParseURL(in.URL)
		if err != nil {
			p.add("url", "url", "This is no URL. Give it whole, as https://host/path, with escapes where it needs any.")
		}
		q.URL, q.Limit = u, pageLimitMax
	}
	switch {
	case in.Reason == "":
	case !store.ValidReason(in.Reason):
		p.add("reason", ruleFormat, "Give a name as it stands in the status, such as robots or http_404.")
	case q.State != "" && !store.HasReason(q.State):
		p.add("reason", "exclusive",
			"Only failed, skipped and refused URLs have a reason. Give one of these as state, or none.")
	}
	if in.Cursor == "" {
		return q
	}
	place, ok := decodePlace(in.Cursor)
	if !ok || !q.Covers(place) {
		p.badCursor = true
		p.add("cursor", ruleFormat,
			"This is not a next_cursor of this list with this state and reason. Begin again without one.")
	}
	q.From = place
	return q
}

func (p *params) pageState(s string) crawl.PageState {
	names := make([]string, len(store.URLStates))
	for i, known := range store.URLStates {
		if s == string(known) {
			return known
		}
		names[i] = string(known)
	}
	if s != "" {
		p.add("state", "enum", "Give one of %s.", strings.Join(names, ", "))
	}
	return ""
}

// cursorURLs is the kind of cursor of the list of URLs: one with a place, which has the
// name of a container behind its position.
const cursorURLs = 'u'

// maxContainer bounds the name of a container, in bytes: that of a list of skipped URLs has
// a reason in it.
const maxContainer = 80

func encodePlace(p store.URLPlace) string {
	b := binary.BigEndian.AppendUint64([]byte{cursorURLs}, uint64(p.Offset))
	return cursorEncoding.EncodeToString(append(b, p.Container...))
}

// decodePlace reads what encodePlace returned. Whether the list has such a place is for the
// caller to say.
func decodePlace(s string) (store.URLPlace, bool) {
	if len(s) > cursorEncoding.EncodedLen(cursorBytes+maxContainer) {
		return store.URLPlace{}, false
	}
	b, err := cursorEncoding.DecodeString(s)
	// The decoder skips line breaks: length again.
	if err != nil || len(b) < cursorBytes || b[0] != cursorURLs || len(s) != cursorEncoding.EncodedLen(len(b)) {
		return store.URLPlace{}, false
	}
	p := store.URLPlace{
		Container: string(b[cursorBytes:]), Offset: int64(binary.BigEndian.Uint64(b[1:cursorBytes])),
	}
	return p, p.Offset >= 0
}

// URLs bounds the call of the store, see [promptJobs].
func (p promptJobs) URLs(ctx context.Context, job crawl.JobRef, q store.URLQuery) (store.URLPage, error) {
	return prompt(ctx, func(ctx context.Context) (store.URLPage, error) { return p.Jobs.URLs(ctx, job, q) })
}
