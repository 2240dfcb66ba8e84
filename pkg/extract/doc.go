// Package extract turns a page into what a job keeps of it: markdown, text, links and metadata,
// all from one tree.
//
// # Text
//
// The text of a page is what a reader sees of it, by the rules of package fields, with a line for
// each block: paragraphs stand apart by an empty line, the items of lists and the rows of tables
// are lines, the cells of a row stand apart by a tab. Blanks, U+00A0 too, collapse to one; inside
// pre they stay.
//
// # Markdown
//
// Markdown is CommonMark with the tables and the strikethrough of GitHub. It has no raw HTML. Links
// and images are absolute; what leads nowhere, such as a javascript: link, is text alone. A table
// that lays out a page, one with headings or other tables inside, becomes its content, block by
// block.
//
// # Bounds
//
// Pages are chosen by others. All work is bounded by counts, never by time, so that the same page
// always gives the same result: [Parse] refuses a page whose tree would take more than [MaxNodes]
// nodes or [MaxTreeBytes], a text ends at [MaxTextBytes], and each list has its own bound. What was
// cut is said in a note.
package extract

import (
	"golang.org/x/net/html"
	"golang.org/x/text/encoding"

	"example.com/trawl/pkg/crawl"
)

// Bounds of what is taken of a page.
const (
	// MaxTextBytes bounds the markdown and the text of a page, each on its own.
	MaxTextBytes = 4 << 20
	// MaxLinks bounds the links of a page.
	MaxLinks = 2000
	// MaxLinkText bounds the text of a link in bytes.
	MaxLinkText = 300
)

// Wants is what is asked for of a page.
type Wants struct {
	Formats     []string // of [crawl.Formats]
	MainContent bool     // markdown and text are of the main content alone
	// InScope reports whether a link would be admitted; nil says so of none.
	InScope func(crawl.URL) bool
}

// Document is a parsed page. It is not safe for concurrent use.
type Document struct {
	root *html.Node
	at   crawl.URL
	base crawl.URL // what links are relative to
	enc  encoding.Encoding
	// nodes is how many nodes the tree has.
	nodes int
}

// Root returns the tree. Do not change it.
func (d *Document) Root() *html.Node { return d.root }

// SetEncoding says in which encoding the page was, for the queries of its links; nil, as at first,
// is UTF-8. See [crawl.URL.ResolveEncoded].
func (d *Document) SetEncoding(e encoding.Encoding) {
	d.enc = e
	d.base = baseOf(d.root, d.at, e)
}

// resolve returns the URL that an address on the page means, as an http or https URL.
func (d *Document) resolve(href string) (crawl.URL, bool) {
	u, err := d.base.ResolveEncoded(href, d.enc)
	return u, err == nil
}

// Content takes the formats out of the page; the HTML is left to who has the bytes. The same page
// gives the same content. It is nil where no format is asked for.
func (d *Document) Content(w Wants) (*crawl.Content, []crawl.Note) {
	t := &taking{document: d, wants: w, content: &crawl.Content{}}
	t.take()
	if t.content.IsZero() {
		return nil, t.notes
	}
	return t.content, t.notes
}
