// Package fetch turns one URL into one page, one redirect or one fault. It is
// the home of colly, which is used as a synchronous client of a single request:
// frontier, dedupe, robots, politeness, charsets and content codings are
// decided elsewhere or here, never by colly.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"example.com/trawl/pkg/crawl"
)

// Defaults of [Options] and [Request].
const (
	DefaultUserAgent    = "Trawl/1.0"
	DefaultTimeout      = 30 * time.Second
	DefaultMaxBodyBytes = 5 << 20
	DefaultMaxRedirects = 10
	DefaultConnsPerHost = 64
	DefaultMaxLinks     = 2000
)

const (
	// A response header of more than this is refused. Browsers stop at 256 KiB.
	maxHeaderBytes = 256 << 10
	// Neither the TLS handshake nor the wait for a complete header may take
	// longer; both lie well below DefaultTimeout, so that a silent server is
	// given up while the page still has time for another try.
	tlsTimeout    = 10 * time.Second
	headerTimeout = 10 * time.Second
	// Sites close idle connections after 60 to 75 s; being first avoids the
	// race in which a request meets the closing connection.
	idleTimeout = 55 * time.Second
)

// Options configure a [Fetcher]. The zero value of every field but Dial stands
// for its default.
type Options struct {
	// Dial opens every connection. It is the guard (package netguard) and
	// therefore required: without it a page could name any address.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// UserAgent is sent as it is; visible ASCII and spaces only.
	UserAgent string
	// Timeout bounds a whole fetch: connecting, redirects and body.
	Timeout time.Duration
	// MaxBodyBytes bounds a body after its content codings are undone. A larger
	// one is a fault, never cut.
	MaxBodyBytes int64
	// MaxRedirects bounds the redirects of a page, over all its fetches.
	MaxRedirects int
	// MaxConnsPerHost bounds the connections to one host and port; further
	// requests wait for one. Set it to the number of pages in flight.
	MaxConnsPerHost int
}

// Fetcher fetches pages. It is safe for concurrent use and keeps no state
// between fetches except open connections: no cookies, no cache.
type Fetcher struct {
	opts      Options
	transport *http.Transport
	header    http.Header
	// parse is [parseHTML]; a test puts a panic in its place.
	parse func(*parser, []byte)
}

// Request is one page to fetch.
type Request struct {
	// URL is where the fetch starts.
	URL crawl.URL
	// Hops counts the redirects that led to URL in earlier fetches of the page.
	Hops int
	// Links asks for the links of the page.
	Links bool
	// Hop is asked before a redirect within the origin is followed; nil follows
	// all. Its error ends the fetch and is returned as it is.
	Hop func(to crawl.URL) error
	// MaxLinks bounds the distinct links that are returned; those beyond it are
	// counted in BadLinks. Zero stands for [DefaultMaxLinks].
	MaxLinks int
}

// Link is one distinct link of a page.
type Link struct {
	URL crawl.URL
	// Key is that of URL.
	Key crawl.Key
	// NoFollow reports that every link of the page to URL says rel=nofollow.
	NoFollow bool
}

// Result is the outcome of a fetch that is no fault: a page or a redirect.
type Result struct {
	// Page has URL, Status, Title, FetchedAt (when the fetch began),
	// DurationMS, Bytes, ContentType, Charset, Language, Canonical and
	// DecodingErrors; the other fields are the caller's. Of a redirect it has
	// only Status.
	Page crawl.Page
	// Final is the URL that answered.
	Final crawl.URL
	// Redirect is where the page went when that is another origin; nothing was
	// requested there. It is zero for a page.
	Redirect crawl.URL
	// Hops is Request.Hops and the redirects of this fetch, the one to Redirect
	// included.
	Hops int
	// Links are the distinct links in the order of the page, when asked for.
	Links []Link
	// BadLinks counts the links that cannot be crawled, by reason.
	BadLinks map[crawl.Reason]int
}

// New makes a Fetcher. It fails with a *crawl.Fault of code
// [crawl.CodeInvalid], naming every fault at once, when Dial is missing, a
// value is out of bounds, or the environment holds a COLLY_ variable: colly
// applies those over what is set in code, limits and filters included.
func New(o Options) (*Fetcher, error) {
	var faults []crawl.FieldFault
	fault := func(field, rule, msg string) {
		faults = append(faults, crawl.FieldFault{Field: field, Rule: rule, Message: msg})
	}
	if o.Dial == nil {
		fault("Dial", "required", "must be set: it guards every connection.")
	}
	if o.UserAgent == "" {
		o.UserAgent = DefaultUserAgent
	}
	if strings.ContainsFunc(o.UserAgent, func(r rune) bool { return r < ' ' || r > '~' }) {
		fault("UserAgent", "visible_ascii", "must be visible ASCII characters and spaces.")
	}
	for _, n := range []struct {
		field string
		set   bool
	}{
		{"Timeout", o.Timeout < 0},
		{"MaxBodyBytes", o.MaxBodyBytes < 0},
		{"MaxRedirects", o.MaxRedirects < 0},
		{"MaxConnsPerHost", o.MaxConnsPerHost < 0},
	} {
		if n.set {
			fault(n.field, "min", "must not be negative; 0 stands for the default.")
		}
	}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "COLLY_") {
			fault(name, "forbidden", "must be unset: it would override the limits of the crawler.")
		}
	}
	if len(faults) > 0 {
		return nil, &crawl.Fault{
			Code: crawl.CodeInvalid, Message: "The fetcher cannot start; see the faults of each field.", Fields: faults,
		}
	}
	setDefault(&o.Timeout, DefaultTimeout)
	setDefault(&o.MaxBodyBytes, DefaultMaxBodyBytes)
	setDefault(&o.MaxRedirects, DefaultMaxRedirects)
	setDefault(&o.MaxConnsPerHost, DefaultConnsPerHost)
	return &Fetcher{
		opts: o,
		transport: &http.Transport{
			Proxy:       nil, // behind a proxy the guard would judge the proxy's address only
			DialContext: o.Dial,
			// A transport with its own DialContext speaks HTTP/2 only when told to.
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           0, // bounded by the pages in flight
			MaxIdleConnsPerHost:    o.MaxConnsPerHost,
			MaxConnsPerHost:        o.MaxConnsPerHost,
			IdleConnTimeout:        idleTimeout,
			TLSHandshakeTimeout:    tlsTimeout,
			ResponseHeaderTimeout:  headerTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
			DisableCompression:     true, // exchange decodes, see there
		},
		header: http.Header{
			"User-Agent":      {o.UserAgent},
			"Accept":          {"text/html,application/xhtml+xml,*/*;q=0.8"},
			"Accept-Encoding": {acceptEncoding},
		},
		parse: (*parser).parseHTML,
	}, nil
}

func setDefault[T time.Duration | int64 | int](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Close closes the idle connections. Fetches in flight end as they would.
func (f *Fetcher) Close() { f.transport.CloseIdleConnections() }

// Fetch fetches a page and follows its redirects within the origin (scheme,
// host and port); one to another origin is returned, not followed.
//
// The error is what Request.Hop returned; or wraps ctx's error, when ctx ended
// first; or is a *crawl.Fault that says why the page failed, whether another
// try may succeed (Temporary) and when (RetryAfter).
func (f *Fetcher) Fetch(ctx context.Context, req Request) (res Result, err error) {
	// A fault of a parser on one page is that page's, not the process's.
	defer func() {
		if p := recover(); p != nil {
			res, err = Result{Hops: req.Hops}, panicked(p)
		}
	}()
	if req.URL.IsZero() {
		return Result{}, crawl.Faultf(crawl.CodeInvalidURL, "The URL is empty.")
	}
	limited, cancel := context.WithTimeout(ctx, f.opts.Timeout)
	defer cancel()
	x := &exchange{
		fetcher: f,
		req:     req,
		at:      req.URL,
		hops:    req.Hops,
		start:   time.Now(),
		body:    newBody(),
	}
	x.seen = append(x.seenArray[:0], req.URL.Key())
	defer x.body.release()

	switch err := x.run(limited); {
	case err == nil:
	case errors.Is(err, errStop):
		return Result{Page: crawl.Page{Status: x.status}, Final: x.at, Redirect: x.next, Hops: x.hops}, nil
	case x.hopErr != nil:
		return Result{Hops: x.hops}, x.hopErr
	case ctx.Err() != nil:
		return Result{Hops: x.hops}, fmt.Errorf("fetch: %w", context.Cause(ctx))
	default:
		return Result{Hops: x.hops}, x.fault(limited, err)
	}
	return x.result(), nil
}
