package crawl

import (
	"encoding/json"
	"time"
)

// ItemKind says what a frontier item is. Only pages count in Job.Total.
type ItemKind byte

// The kinds of items.
const (
	ItemPage    ItemKind = 'p' // a page to fetch
	ItemSitemap ItemKind = 's' // a sitemap to read; numbered apart from pages
)

// Item is one entry of a job's frontier: a URL to fetch, and how it got there.
type Item struct {
	Kind    ItemKind
	N       int64  // number of the admission within the job, from 1
	Depth   int    // links followed from a seed
	Parent  int64  // Seq of the record that linked here, or a number of package store for a sitemap; 0 for an input
	Attempt int    // tries that failed or were lost with their worker
	Hops    int    // redirects followed so far
	URL     string // as linked
	// FetchURL is where a redirect led, when it left the origin of URL; it is
	// fetched in place of URL. Empty otherwise.
	FetchURL string
}

// Target returns the URL to fetch.
func (it Item) Target() string {
	if it.FetchURL != "" {
		return it.FetchURL
	}
	return it.URL
}

// Page is the record of an accepted page.
type Page struct {
	Seq          int64     `json:"seq,omitempty"`           // position in the job's records, from 1
	SourceURL    string    `json:"source_url"`              // as linked
	URL          string    `json:"url"`                     // where it ended
	Status       int       `json:"status"`                  // of the last answer
	Depth        int       `json:"depth,omitempty"`         // links followed from an input
	DiscoveredOn string    `json:"discovered_on,omitempty"` // source_url of what linked here first; empty for an input
	LastMod      time.Time `json:"lastmod,omitzero"`        // last changed, as the sitemap says that named it first; often zero
	Title        string    `json:"title,omitempty"`
	FetchedAt    time.Time `json:"fetched_at"`
	DurationMS   int64     `json:"duration_ms,omitempty"` // from the request to the last byte, redirects included
	Bytes        int64     `json:"bytes,omitempty"`       // of the decoded body
	ContentType  string    `json:"content_type,omitempty"`
	Charset      string    `json:"charset,omitempty"`
	CharsetFrom  string    `json:"charset_from,omitempty"` // how it was found: bom, header, meta, …
	Language     string    `json:"language,omitempty"`
	Canonical    string    `json:"canonical,omitempty"`
	LinkCount    int       `json:"link_count,omitempty"` // distinct links of the page, admitted or not
	Attempts     int       `json:"attempts,omitempty"`   // tries, this one included
	// DuplicateOf is the source_url of the record that had the same bytes first; empty
	// for most.
	DuplicateOf string `json:"duplicate_of,omitempty"`
	// Item is the place of the record among the items of its page, from 1; 0 for the record of
	// the page itself.
	Item int `json:"item,omitempty"`
	// Change is what the record did to the collection of the job; empty for nothing.
	Change Change `json:"change,omitempty"`
	// Fields are the values of the record by name, a JSON object in the order of the spec; nil
	// where none were asked for.
	Fields json.RawMessage `json:"fields,omitempty"`
	// Notes say what of the record is not whole, or not as it was asked for; nil for most.
	Notes []Note `json:"notes,omitempty"`
	// Content is what the job keeps of the page; nil for none. A page whose bytes another record
	// had first has none: that is DuplicateOf.
	Content *Content `json:"-"`
	// DecodingErrors reports that bytes did not fit the charset and became U+FFFD.
	DecodingErrors bool `json:"decoding_errors,omitempty"`
}

// Failure is the record of a page that failed.
type Failure struct {
	SourceURL string `json:"source_url"`
	URL       string `json:"url"` // where it failed
	ErrorType Code   `json:"error_type"`
	Status    int    `json:"status,omitempty"` // 0 without an answer
	// Headers are those of the answer that help to find out why; no secrets are among them.
	Headers      map[string]string `json:"headers,omitempty"`
	Message      string            `json:"message"`
	Attempts     int               `json:"attempts"`
	DiscoveredOn string            `json:"discovered_on,omitempty"`
	Depth        int               `json:"depth,omitempty"`
	At           time.Time         `json:"at,omitzero"`
}

// Link is one link of a page, with the verdict of the job's rules: Refused is
// empty for one that may be admitted.
type Link struct {
	URL     URL
	Key     Key // of URL, computed once by who found the link
	Refused Reason
	// Pattern is that of URL, see [Rules.Pattern]; empty for nearly all, and for those
	// that are refused already.
	Pattern string
}
