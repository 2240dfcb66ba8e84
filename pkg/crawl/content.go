package crawl

import (
	"encoding/json"
	"slices"
)

// Formats of the content of a page.
const (
	FormatMarkdown = "markdown" // CommonMark with the tables of GitHub
	FormatText     = "text"     // what a reader sees, a line for each block
	FormatHTML     = "html"     // as received, decoded to UTF-8
	FormatLinks    = "links"    // every link, in the order of the page
	FormatMetadata = "metadata" // what the page says of itself
)

// Formats are all that a job can ask for, in the order in which a plan has them.
var Formats = []string{FormatMarkdown, FormatText, FormatHTML, FormatLinks, FormatMetadata}

// Content is what a job keeps of one page. What it did not ask for is nil; so is what the page
// has not, as the HTML of a text/plain page.
type Content struct {
	Markdown *string    `json:"markdown,omitempty"`
	Text     *string    `json:"text,omitempty"`
	HTML     *string    `json:"html,omitempty"`
	Links    []PageLink `json:"links,omitempty"`
	Metadata *Metadata  `json:"metadata,omitempty"`
}

// IsZero reports whether nothing is kept.
func (c *Content) IsZero() bool {
	return c == nil || c.Markdown == nil && c.Text == nil && c.HTML == nil && c.Links == nil && c.Metadata == nil
}

// PageLink is one link as the page has it.
type PageLink struct {
	URL     string `json:"url"`           // absolute
	Text    string `json:"text"`          // of the element, as one line
	Rel     string `json:"rel,omitempty"` // of the element, as written
	InScope bool   `json:"in_scope"`      // the rules of the job admit it
}

// Metadata is what a page says of itself. URLs are absolute, times are RFC 3339 where they can
// be read as such and left out where not.
type Metadata struct {
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Language    string `json:"language,omitempty"`
	Canonical   string `json:"canonical,omitempty"`
	Author      string `json:"author,omitempty"`
	SiteName    string `json:"site_name,omitempty"`
	Image       string `json:"image,omitempty"`
	Icon        string `json:"icon,omitempty"`
	Published   string `json:"published,omitempty"`
	Modified    string `json:"modified,omitempty"`
	// OpenGraph and Twitter have the values of each property, without og: and twitter:, in
	// the order of the page.
	OpenGraph map[string][]string `json:"open_graph,omitempty"`
	Twitter   map[string][]string `json:"twitter,omitempty"`
	// JSONLD has each JSON-LD script of the page that is valid JSON, compact.
	JSONLD     []json.RawMessage `json:"json_ld,omitempty"`
	Alternates []Alternate       `json:"alternates,omitempty"` // rel=alternate with hreflang
	Feeds      []Feed            `json:"feeds,omitempty"`
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

// Note says of a record what is not whole, or not as it was asked for.
type Note struct {
	// About is the field (fields.price, items.fields.price), the format, or items.
	About string `json:"about"`
	// What is one of [NoteCut] and its neighbours.
	What string `json:"what"`
	// Count is how often; 0 where that says nothing.
	Count int `json:"count,omitempty"`
}

// What a [Note] says.
const (
	NoteCut           = "cut"             // longer than a bound, and cut; or left out for one
	NoteUnparsed      = "unparsed"        // values that are not of the type of the field, left out
	NoteStopped       = "stopped"         // the field took too many steps on this page
	NoteIncomplete    = "incomplete"      // items that lack this required field, left out
	NoteNoMainContent = "no_main_content" // no main content was found: it is of the whole page
	NoteNoKey         = "no_key"          // not in the collection: its key has no value, or too long a one
	NoteDuplicateKey  = "duplicate_key"   // not in the collection: another record of the page had its key first
	NoteCollection    = "collection_full" // not in the collection, which has all items that it may
	NoteByteLimit     = "byte_limit"      // content left out: the job keeps all that it may
	NoteTooComplex    = "too_complex"     // the page would take too much memory or time as a tree
)

// checkContent checks what is asked for of each page.
func (c *checked) checkContent(s *Spec) {
	for i, f := range s.Formats {
		switch {
		case !slices.Contains(Formats, f):
			c.fault(index("formats", i), "enum", "Give one of markdown, text, html, links and metadata, not %q.", clip(f))
		case slices.Contains(s.Formats[:i], f):
			c.fault(index("formats", i), "duplicate", "This format is given more than once. Give it once.")
		}
	}
	for _, f := range Formats {
		if slices.Contains(s.Formats, f) {
			c.plan.Formats = append(c.plan.Formats, f)
		}
	}
	if s.MainContent && !slices.Contains(s.Formats, FormatMarkdown) && !slices.Contains(s.Formats, FormatText) {
		c.fault("main_content", "exclusive", "Only markdown and text are of the main content. Ask for one of these formats, too.")
	}
	c.plan.MainContent = s.MainContent
	c.plan.Fields, c.plan.Items = s.Fields, s.Items
	if c.plan.Site {
		_, c.faults = compilePatterns("list_pages", s.ListPages, c.faults)
		c.plan.ListPages = s.ListPages
	}
	c.checkCollection(s)
}
