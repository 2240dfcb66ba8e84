package client

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"
)

// URLState is that of one URL that a job knows.
type URLState string

// The states of a URL. Each that was admitted is in one of the first seven, of which
// [Job] has the counts; a refused one was linked and never admitted.
const (
	URLQueued    URLState = "queued"
	URLActive    URLState = "active"   // being fetched
	URLDeferred  URLState = "deferred" // waits for its host or for a retry
	URLAccepted  URLState = "accepted"
	URLFailed    URLState = "failed"
	URLSkipped   URLState = "skipped" // admitted, then not wanted
	URLCancelled URLState = "cancelled"
	URLRefused   URLState = "refused"
)

// URLInfo is one URL that a job knows, and what became of it.
type URLInfo struct {
	URL    string   `json:"url"` // as it was linked
	State  URLState `json:"state"`
	Reason string   `json:"reason"` // why it was skipped or refused, or the error with which it failed
	// Rule is what decided, where a rule did: a line of robots.txt, a pattern, a bound.
	Rule         string `json:"rule"`
	Depth        int    `json:"depth"`         // links away from a seed
	DiscoveredOn string `json:"discovered_on"` // SourceURL of the page that linked here first; empty for an input
	// Attempts are the tries that failed or were lost; of accepted and failed pages all
	// tries, the last included.
	Attempts int       `json:"attempts"`
	NextAt   time.Time `json:"next_at"`   // when a deferred URL is due; zero otherwise
	FetchURL string    `json:"fetch_url"` // fetched in its place, since a redirect led to another origin
	FinalURL string    `json:"final_url"` // where the page ended, or where a skipped one led
	AliasOf  string    `json:"alias_of"`  // of an alias: SourceURL of the record that has FinalURL
	Seq      int64     `json:"seq"`       // of its record, or of that of which it is an alias; 0 for none
	Status   int       `json:"status"`    // of the HTTP answer to an accepted or failed page; 0 without one
	Message  string    `json:"message"`   // why a page failed, for a person

	// Raw is the whole as the service sent it, with what this version does not know.
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the whole in Raw.
func (u *URLInfo) UnmarshalJSON(data []byte) error {
	type plain URLInfo
	p, err := decodeFresh[plain](data)
	*u = URLInfo(p)
	u.Raw = bytes.Clone(data)
	return err
}

// URLsQuery selects URLs of a job. The zero value selects all that it knows.
type URLsQuery struct {
	State URLState
	// Reason is that for which URLs were skipped or refused, or failed: a name of
	// [Job.SkippedByReason], [Job.RefusedByReason] or [Job.FailedByType].
	Reason   string
	URL      string // only this one, however it is spelled
	PageSize int    // how many are read at once, 1 to 1,000; 0 means the service's default
}

// URLs walks the URLs that a job knows, by state, from queued to refused: what answers why
// a page is missing. Of an ended job it yields each URL exactly once; while a job runs URLs
// move on meanwhile, so that one may be met twice, or missed. Of refused URLs the first
// 10,000 are remembered. An error is the last that it yields, with a zero URLInfo. Each
// range over it begins anew.
func (c *Client) URLs(ctx context.Context, id string, q URLsQuery) iter.Seq2[URLInfo, error] {
	r := c.readingOf(urlsOf, id, []ReadOption{PageSize(q.PageSize)})
	return walk(ctx, r, func(cursor string, limit int) (*Page[URLInfo], error) {
		q.PageSize = limit
		return c.URLPage(ctx, id, cursor, q)
	})
}

// URLPage reads one page of the URLs that a job knows: for who keeps the cursor between
// runs. An empty cursor begins at the first; a cursor is of one State, Reason and URL.
func (c *Client) URLPage(ctx context.Context, id, cursor string, q URLsQuery) (*Page[URLInfo], error) {
	r, err := ofJob(urlsOf, http.MethodGet, id, "/urls")
	if err != nil {
		return nil, err
	}
	r.query = paging(cursor, q.PageSize)
	if q.State != "" {
		r.query.Set("state", string(q.State))
	}
	if q.Reason != "" {
		r.query.Set("reason", q.Reason)
	}
	if q.URL != "" {
		r.query.Set("url", q.URL)
	}
	return page[URLInfo](ctx, c, r)
}

// urlsOf names the call in errors.
const urlsOf = "read URLs of"
