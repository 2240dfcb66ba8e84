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
	"sync"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/worker/robots"
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
	// therefore required: without it a page could name any address. A connection that
	// is kept is used again without it, so each network policy needs a Fetcher of its own.
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
// between fetches except open connections: no cache, and cookies only in the
// [Request.Jar] that a caller brings.
type Fetcher struct {
	opts      Options
	transport *http.Transport
	header    http.Header
	// drivers are kept, since each takes 2 KB and looks at the whole environment.
	drivers sync.Pool
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
	// Product is the product token that robots directives of the page may address,
	// see [robots.ProductToken]. Without it they are not read.
	Product string
	// UserAgent is sent in place of that of the Fetcher; visible ASCII and spaces.
	// Empty means the Fetcher's.
	UserAgent string
	// Header has further header fields. They are sent to the origin of URL and to no
	// other, because no other is contacted; whether they are meant for that origin is
	// for the caller to know. They replace fields of the Fetcher of the same name
	// (Accept). Fields of the connection, conditions and ranges, Host, User-Agent and
	// Accept-Encoding are a fault of code [crawl.CodeInvalid]; Cookie and
	// Authorization may be sent.
	Header http.Header
	// Jar keeps the cookies of the job: those of every answer of this fetch, errors
	// and redirects included. Nil keeps and sends none. It must be safe for
	// concurrent use and belong to one job.
	Jar http.CookieJar
	// Read is called once, with a page that is HTML and with what there is of the result,
	// which is all, while the body is held; nil reads nothing. A page above 64 KB holds one
	// of the process's places for work at pages meanwhile. Its error ends the fetch and is
	// returned as it is. It must keep neither body nor result.
	Read func(res *Result, c Content) error
	// Text has other text read and handed to Read, too: text/*, JSON and XML. Their
	// charset is that of the byte order mark, the header, or an XML declaration, and
	// else found out.
	Text bool
	// Validators ask for the page only if it has changed: see Result.NotModified. They go to
	// URL and not to where it redirects.
	Validators Validators
}

// Link is one distinct link of a page.
type Link struct {
	URL crawl.URL
	// Key is that of URL.
	Key crawl.Key
	// NoFollow reports that every link of the page to URL says rel=nofollow. The
	// tokens ugc and sponsored say where a link comes from, not that it is not to
	// be followed: sites that mean both write both. The wish of a whole page is
	// Result.Robots.NoFollow.
	NoFollow bool
}

// Digest is the first 128 bits of the SHA-256 of a body: two pages with the same
// one have the same bytes, whoever wrote them. Its zero value stands for none.
type Digest [16]byte

// Result is the outcome of a fetch: a page or a redirect. With an error it has
// what is known of the failure: Page with URL, Status, FetchedAt and DurationMS,
// Final, Header and Hops.
type Result struct {
	// Page has URL, Status, Title, FetchedAt (when the fetch began), DurationMS (to
	// the last byte), Bytes, ContentType, Charset, Language, Canonical and
	// DecodingErrors; the other fields are the caller's. Of a redirect it has
	// only Status.
	Page crawl.Page
	// CharsetFrom is how Page.Charset was found; empty where that is.
	CharsetFrom CharsetFrom
	// Digest is of the decoded body before its charset was; zero for an empty body
	// and for one that was not read to its end.
	Digest Digest
	// Robots is what X-Robots-Tag of the answer and the meta elements of the page
	// ask together of Request.Product and of everyone.
	Robots robots.Directives
	// Header is that of the last answer, nil without one. It may hold secrets
	// (Set-Cookie).
	Header http.Header
	// Final is the URL that answered, or failed to.
	Final crawl.URL
	// Redirect is where the page went when that is another origin; nothing was
	// requested there. It is zero for a page.
	Redirect crawl.URL
	// Hops is Request.Hops and the redirects of this fetch, the one to Redirect
	// included.
	Hops int
	// NotModified reports that the site answered 304 to Request.Validators: the page is
	// as it was. Page.Status is 304, and there is no body.
	NotModified bool
	// Links are the distinct links in the order of the page, when asked for. The
	// target of a refresh is one of them, whatever its delay: as a link it meets
	// scope, robots and limits like any other, and cannot loop.
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
	if ff, ok := checkUserAgent("UserAgent", o.UserAgent); !ok {
		faults = append(faults, ff)
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
			ForceAttemptHTTP2: true,
			// What a server may send ahead of the reader. The standard library's 4 MiB a stream would be
			// 256 MiB in a worker of the usual size, beside the bodies.
			HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 20},
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
		drivers: sync.Pool{New: func() any { return newDriver() }},
		parse:   (*parser).parseHTML,
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
		return Result{}, errNoURL()
	}
	header, err := requestHeader(f.header, req.UserAgent, req.Header)
	if err != nil {
		return Result{Final: req.URL, Hops: req.Hops}, err
	}
	limited, cancel := context.WithTimeout(ctx, f.opts.Timeout)
	defer cancel()
	x := &exchange{
		progress:  progress{what: "page", timeout: f.opts.Timeout},
		trail:     trail{what: "page", most: f.opts.MaxRedirects, hops: req.Hops},
		fetcher:   f,
		req:       req,
		ownHeader: header,
		at:        req.URL,
		start:     time.Now(),
		gone:      ctx.Done(),
		body:      newBody(),
	}
	x.trail.seen = append(x.seenArray[:0], req.URL.Key())
	defer x.body.release()

	switch err := x.run(limited); {
	case err == nil:
		if req.Read == nil || !x.html && !x.text {
			return x.result(), nil
		}
		return x.read()
	case errors.Is(err, errStop):
		return Result{
			Page: crawl.Page{Status: x.status}, Header: x.header, Final: x.at, Redirect: x.next, Hops: x.trail.hops,
		}, nil
	case x.hopErr != nil:
		return x.outcome(), x.hopErr
	case ctx.Err() != nil:
		return x.outcome(), fmt.Errorf("fetch: %w", context.Cause(ctx))
	default:
		return x.outcome(), x.fault(limited, err)
	}
}

func errNoURL() error { return crawl.Faultf(crawl.CodeInvalidURL, "The URL is empty.") }
