// Package sitemap reads what sites publish as a sitemap: the XML of sitemaps.org
// (urlset and sitemapindex), RSS and Atom, and text with a URL a line; plain or
// compressed. One document goes in, its entries come out while it is read. The
// package fetches nothing, resolves nothing and knows no clock.
//
// What a document is, its bytes say: file names and content types are wrong too
// often (SM-02, SM-04). The markup is read leniently, by a scanner of its own,
// because a sitemap that is not quite XML still names the pages of a site:
//
//   - Elements are known by local name in any letter case and namespace. An
//     element whose prefix is neither its parent's nor the root's is an extension:
//     neither <image:loc> nor <xhtml:link> names a page. An alternate of a page
//     has an entry of its own, if the site follows the protocol.
//   - An ampersand that begins none of XML's five references nor one by number
//     is itself. No other entity is ever expanded, and no DTD is read.
//   - Bytes that are no UTF-8, where nothing declares what they are, are taken as
//     windows-1252, value by value.
//   - End tags may be missing. A document without that of its root was cut off.
//
// Memory does not grow with the document: what is kept of it is one value, one
// tag, and the names of the open elements, each bounded.
package sitemap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// The limits of sitemaps.org on one document.
const (
	DefaultMaxURLs  = 50_000
	DefaultMaxBytes = 50 << 20
)

// Options bounds what is read of one document. The zero value has the defaults.
type Options struct {
	// MaxURLs is how many entries are handed out; DefaultMaxURLs if not positive.
	MaxURLs int
	// MaxBytes is how many bytes are read, on the wire and behind each layer of
	// gzip; DefaultMaxBytes if not positive.
	MaxBytes int64
}

// An Entry is one address that a sitemap names.
type Entry struct {
	// Loc is the address as written, with references decoded, blanks around it
	// trimmed, and line breaks taken out together with the indentation next to
	// them. It is not empty, valid UTF-8 and at most 16 KiB; whether it is a URL,
	// and to what a relative one of a feed refers, is the caller's matter.
	Loc string
	// LastMod is when the page was last changed, in UTC; zero when the document
	// does not say or cannot be understood. A time without a zone is UTC.
	LastMod time.Time
	// Index is true when Loc is another sitemap and not a page.
	Index bool
}

// Kind is what a document turned out to be.
type Kind string

// The kinds of document. Of one that is no sitemap the kind is empty.
const (
	KindURLSet Kind = "urlset"
	KindIndex  Kind = "sitemapindex"
	KindText   Kind = "text" // one URL a line
	KindRSS    Kind = "rss"  // RSS 0.9x, 1.0 and 2.0
	KindAtom   Kind = "atom" // Atom 0.3 and 1.0
)

// Limit is what cut a document short.
type Limit string

// The limits; empty when none was met.
const (
	LimitURLs  Limit = "urls"
	LimitBytes Limit = "bytes"
)

// Result says what was read.
type Result struct {
	// Kind is what the document is; empty when that was not found out.
	Kind Kind
	// Entries is how many were handed out.
	Entries int
	// Skipped is how many entries had no address or one over 16 KiB, and how many
	// lines of a text sitemap were no URL.
	Skipped int
	// Bytes is how many decoded bytes were read, up to a buffer more than was
	// looked at.
	Bytes int64
	// Cut is the limit that ended the reading while there was more.
	Cut Limit
}

// Errors that Read wraps. What was handed out before one of them stands.
var (
	// ErrNotSitemap: the document is none of the kinds, and has no entries.
	ErrNotSitemap = errors.New("this is no sitemap")
	// ErrTruncated: the document ends too soon. Fetching it again may help.
	ErrTruncated = errors.New("the sitemap ends too soon")
	// ErrMalformed: the document cannot be read on. Fetching it again will not help.
	ErrMalformed = errors.New("the sitemap is malformed")
)

var (
	errStopped = errors.New("sitemap: no more entries are wanted")
	errFull    = errors.New("sitemap: there are more entries than the limit")
)

// Read hands the entries of the document in r to yield, in their order and while
// it reads, until the document ends or yield returns false; neither is an error,
// nor is a limit: the result says that the document was cut. When the bytes are
// used up before anything of a sitemap was found, that is ErrNotSitemap and the
// result names the limit as well.
//
// The error wraps ErrNotSitemap, ErrTruncated, ErrMalformed or what r failed with.
// The result is valid with every error. Reading ends with the root element, but
// for what a buffer has read ahead; r may have more.
func Read(r io.Reader, o Options, yield func(Entry) bool) (Result, error) {
	if o.MaxURLs <= 0 {
		o.MaxURLs = DefaultMaxURLs
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	raw, meter := gunzip(r, o.MaxBytes)
	in := bufio.NewReaderSize(decode(raw), bufferBytes)
	p := &parser{scan: scanner{in: in}, max: o.MaxURLs, yield: yield}
	err := p.document()
	p.res.Bytes = o.MaxBytes - max(meter.left, 0)
	return p.res, p.verdict(err)
}

// verdict turns what ended the reading into what Read returns.
func (p *parser) verdict(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case err == nil, errors.Is(err, errStopped):
		return nil
	case errors.Is(err, errFull):
		p.res.Cut = LimitURLs
		return nil
	case errors.Is(err, errLimit):
		p.res.Cut = LimitBytes
		if p.res.Kind == "" {
			return fmt.Errorf("%w: nothing of one was found within the limit of bytes", ErrNotSitemap)
		}
		return nil
	case errors.Is(err, ErrNotSitemap), errors.Is(err, ErrMalformed):
		return err
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %w", ErrTruncated, io.ErrUnexpectedEOF)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", ErrTruncated, err)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		return fmt.Errorf("%w: its gzip is damaged: %w", ErrMalformed, err)
	}
	return fmt.Errorf("reading the sitemap: %w", err)
}
