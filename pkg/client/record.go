package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// ContentFormat is a form in which the content of a page is kept.
type ContentFormat string

// The formats of content.
const (
	ContentMarkdown ContentFormat = "markdown" // CommonMark with the tables of GitHub
	ContentText     ContentFormat = "text"     // what a reader sees, a line for each block
	ContentHTML     ContentFormat = "html"     // as received, decoded to UTF-8
	ContentLinks    ContentFormat = "links"    // every link, in the order of the page
	ContentMetadata ContentFormat = "metadata" // what the page says of itself
)

// Change is what a record did to the collection of its job.
type Change string

// The changes.
const (
	Created   Change = "created"   // its key is new
	Updated   Change = "updated"   // the item of its key had another content
	Unchanged Change = "unchanged" // the item of its key had the same content, or the site says so
)

// Report sums a job up. What begins with Created is of its collection.
type Report struct {
	Discovered     int64 `json:"discovered"`
	ListPages      int64 `json:"list_pages"`      // accepted pages that match list_pages, or that gave items
	Sitemaps       int64 `json:"sitemaps"`        // that were read; not in Total
	SitemapsFailed int64 `json:"sitemaps_failed"` // that could not be, or not to their end
	Created        int64 `json:"created"`         // items whose key was new
	Updated        int64 `json:"updated"`         // items with another content than before
	Unchanged      int64 `json:"unchanged"`       // items seen again as they were
	NotCollected   int64 `json:"not_collected"`   // records without a key of their own, or without room
	Missing        int64 `json:"missing"`         // items that an earlier crawl of the same inputs saw last, and this one did not
}

// Record is one accepted page, or one item of such a page. Content that was not asked for, or
// that the page has not, is empty; [Record.Raw] tells null from "".
type Record struct {
	Seq            int64     `json:"seq"`           // place in the records of the job, from 1
	SourceURL      string    `json:"source_url"`    // as it was linked
	URL            string    `json:"url"`           // where it ended
	Status         int       `json:"status"`        // of the HTTP answer; 304 for a page that the site says is as it was
	Depth          int       `json:"depth"`         // links away from a seed
	DiscoveredOn   string    `json:"discovered_on"` // SourceURL of the page that linked here first; empty for an input
	Title          string    `json:"title"`
	FetchedAt      time.Time `json:"fetched_at"`
	DurationMS     int64     `json:"duration_ms"`
	Bytes          int64     `json:"bytes"` // of the decoded body
	ContentType    string    `json:"content_type"`
	Charset        string    `json:"charset"`
	CharsetFrom    string    `json:"charset_from"` // how it was found
	Language       string    `json:"language"`
	Canonical      string    `json:"canonical"`
	LinkCount      int       `json:"link_count"`
	Attempts       int       `json:"attempts"`
	LastMod        time.Time `json:"lastmod"`         // last changed, as the sitemap says that named it; often zero
	DuplicateOf    string    `json:"duplicate_of"`    // SourceURL of the record that had the same bytes first, and has their content
	DecodingErrors bool      `json:"decoding_errors"` // bytes that did not fit the charset became U+FFFD

	Item   int             `json:"item"`   // place among the items of its page, from 1; 0 for the page itself
	Change Change          `json:"change"` // to the collection; empty for none
	Fields json.RawMessage `json:"fields"` // an object in the order of the spec, see [Record.Decode]; nil for none
	Notes  []Note          `json:"notes"`  // what is not whole, or not as it was asked for

	Markdown string     `json:"markdown"`
	Text     string     `json:"text"`
	HTML     string     `json:"html"`
	Links    []PageLink `json:"links"`
	Metadata *Metadata  `json:"metadata"`

	// Raw is the whole as the service sent it, with what this version does not know.
	Raw json.RawMessage `json:"-"`
}

// Decode decodes the fields of the record into v, as [json.Unmarshal] does. A record that has
// none is an error.
func (r *Record) Decode(v any) error {
	return decodeFields(fmt.Sprintf("record %d (%s)", r.Seq, printable(r.URL)), r.Fields, v)
}

func decodeFields(what string, fields json.RawMessage, v any) error {
	if fields == nil {
		return fmt.Errorf("%s has no fields", what)
	}
	if err := json.Unmarshal(fields, v); err != nil {
		return fmt.Errorf("fields of %s: %w", what, err)
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the whole in Raw.
func (r *Record) UnmarshalJSON(data []byte) error {
	type plain Record
	p, err := decodeFresh[plain](data)
	*r = Record(p)
	r.Raw = bytes.Clone(data)
	r.Fields = orNil(r.Fields)
	return err
}

// Note says what of a record is not whole, or not as it was asked for.
type Note struct {
	About string `json:"about"` // a field (fields.price, items.fields.price), a format, or items
	What  string `json:"what"`  // such as cut, unparsed or byte_limit; /docs on the service has all
	Count int    `json:"count"` // how often; 0 where that says nothing
}

// PageLink is one link as the page has it.
type PageLink struct {
	URL     string `json:"url"`
	Text    string `json:"text"` // of the element, as one line
	Rel     string `json:"rel"`
	InScope bool   `json:"in_scope"` // the rules of the job admit it
}

// Metadata is what a page says of itself.
type Metadata struct {
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Language    string `json:"language,omitempty"`
	Canonical   string `json:"canonical,omitempty"`
	Author      string `json:"author,omitempty"`
	SiteName    string `json:"site_name,omitempty"`
	Image       string `json:"image,omitempty"`
	Icon        string `json:"icon,omitempty"`
	Published   string `json:"published,omitempty"` // RFC 3339, as the next
	Modified    string `json:"modified,omitempty"`
	// OpenGraph and Twitter have the values of each property, without og: and twitter:.
	OpenGraph  map[string][]string `json:"open_graph,omitempty"`
	Twitter    map[string][]string `json:"twitter,omitempty"`
	JSONLD     []json.RawMessage   `json:"json_ld,omitempty"`    // each script of the page that is JSON
	Alternates []Alternate         `json:"alternates,omitempty"` // the page in other languages
	Feeds      []Feed              `json:"feeds,omitempty"`
}

// Alternate is the page in another language.
type Alternate struct {
	Language string `json:"language"`
	URL      string `json:"url"`
}

// Feed is a feed that a page names.
type Feed struct {
	URL   string `json:"url"`
	Type  string `json:"type"` // media type
	Title string `json:"title,omitempty"`
}
