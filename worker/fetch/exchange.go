package fetch

import (
	"context"
	"errors"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/worker/robots"
)

const (
	// Bodies of redirects and errors are not wanted, but reading a small one to
	// its end keeps the connection. Beyond these it is cheaper to dial again.
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// errStop ends the fetch at a redirect to another origin.
var errStop = errors.New("fetch: redirect to another origin")

// exchange is one fetch: the state that colly's callbacks, the redirect handler
// and the transport share. It is used by one goroutine at a time.
type exchange struct {
	progress
	fetcher *Fetcher
	req     Request
	// ownHeader is the whole header of a request.
	ownHeader http.Header
	start     time.Time
	took      time.Duration   // to the end of the last answer
	queued    time.Duration   // of that, for one of slots
	gone      <-chan struct{} // closed when the caller wants it no more

	at     crawl.URL // the URL being requested
	next   crawl.URL // where the last answer redirects to
	trail  trail
	hopErr error

	header     http.Header // of the last answer
	compressed bool
	body       *body
	hash       hash.Hash // of a body that is not kept
	digest     Digest
	media      string // content type as recorded
	label      string // charset parameter of the header
	html       bool
	xhtml      bool
	text       bool // other text, which Request.Text asked for
	asked      bool // with validators
	unchanged  bool // 304 to them
	decoded    []byte

	page      parser
	seenArray [4]crawl.Key
}

// run does the exchange through a driver that no other uses meanwhile.
func (x *exchange) run(ctx context.Context) error {
	d := x.fetcher.drivers.Get().(*driver)
	d.x, d.collector.Context = x, ctx
	err := d.collector.Request(http.MethodGet, nowhere, nil, d.context, x.ownHeader)
	d.x, d.collector.Context = nil, nil
	x.fetcher.drivers.Put(d) // after a panic it is not
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err // without nowhere, which is in the text
	}
	return err
}

// RoundTrip implements http.RoundTripper around the shared transport. It sends
// what x.at names, with the header of the fetch and whatever req says, keeps to itself where a
// redirect leads, and takes the body, decoded and within the limit, so that colly finds nothing
// left to misread.
func (x *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	x.status, x.inBody, x.header, x.queued = 0, false, nil, 0
	out, err := x.outgoing(req)
	if err != nil {
		return nil, err
	}
	res, err := x.fetcher.transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	x.status = res.StatusCode
	if err := checkFields(res); err != nil {
		return nil, err
	}
	x.inBody, x.header = true, res.Header
	if x.req.Jar != nil && keepCookies(x.req.Jar, urlOf(x.at), res) {
		// A page that sets a cookie and redirects to itself has not answered yet;
		// the limit of redirects ends those that do so again and again.
		x.trail.seen = x.trail.seen[:0]
	}
	err = x.answered(res)
	x.took = time.Since(x.start) - x.queued
	if err != nil {
		return nil, err
	}
	if redirects(res.StatusCode) {
		// Where it leads is in x.next. net/http would read it by net/url, which refuses some of those.
		res.Header = http.Header{"Location": {nowhere}}
	}
	res.Body = http.NoBody
	res.Uncompressed = true // else colly would gunzip by the URL's suffix
	return res, nil
}

// outgoing makes the request of net/http the one that is sent.
func (x *exchange) outgoing(req *http.Request) (*http.Request, error) {
	r := *req
	r.URL, r.Host, r.Header = urlOf(x.at), "", x.ownHeader
	out, err := exact(&r, x.at)
	if err != nil {
		return nil, err
	}
	x.asked = false
	if x.trail.hops == x.req.Hops && x.req.Validators != (Validators{}) {
		out, x.asked = x.req.Validators.asking(out)
	}
	if x.req.Jar != nil {
		out = withCookies(out, r.URL, x.req.Jar)
	}
	return out, nil
}

// answered takes the body of an answer, or says why it is no page.
func (x *exchange) answered(res *http.Response) (err error) {
	switch {
	case res.StatusCode == http.StatusPartialContent && !isWhole(res.Header["Content-Range"]):
		drain(res.Body)
		return partFault(x.what, res.StatusCode)
	case res.StatusCode >= 200 && res.StatusCode <= 299:
		err = x.readBody(res)
		_ = res.Body.Close()
		return err
	case redirects(res.StatusCode):
		drain(res.Body)
		x.next, err = location(x.what, x.at, res.Header["Location"])
		if err == nil {
			res.Header["Location"] = []string{x.next.String()}
		}
		return err
	case res.StatusCode == http.StatusNotModified && x.asked:
		drain(res.Body)
		x.unchanged = true
		return nil
	case res.StatusCode >= 200:
		drain(res.Body)
	default:
		_ = res.Body.Close() // 101: the connection itself
	}
	return statusFault(res)
}

// redirect is colly's redirect handler; it replaces the limit of net/http too.
// An error of it ends the fetch.
func (x *exchange) redirect() error {
	if err := x.trail.add(x.status, x.at, x.next); err != nil {
		return err
	}
	if x.next.Origin() != x.at.Origin() {
		return errStop
	}
	if x.req.Hop != nil {
		if x.hopErr = x.req.Hop(x.next); x.hopErr != nil {
			return x.hopErr
		}
	}
	x.at, x.next = x.next, crawl.URL{}
	return nil
}

// parse is colly's OnResponse.
func (x *exchange) parse() {
	p := &x.page
	if !x.html {
		if p.plain = x.text; x.text && len(x.body.buf) > 0 {
			x.decoded = p.decode(x.body.buf, x.label)
		}
		return
	}
	p.document, p.links, p.maxLinks, p.xhtml = x.at, x.req.Links, x.req.MaxLinks, x.xhtml
	p.product = strings.TrimSpace(x.req.Product)
	if p.maxLinks <= 0 {
		p.maxLinks = DefaultMaxLinks
	}
	if p.links {
		for _, v := range x.header["Refresh"] {
			p.refresh([]byte(v))
		}
	}
	if len(x.body.buf) == 0 {
		p.resolve()
		return
	}
	x.decoded = p.decode(x.body.buf, x.label)
	x.fetcher.parse(p, x.decoded)
}

// result is the page of an exchange that ended well.
func (x *exchange) result() Result {
	res := x.outcome()
	res.Page.Title = x.page.title
	res.Page.Bytes = x.body.n
	res.Page.ContentType = x.media
	res.Page.Charset = x.page.charset
	res.Page.Language = x.page.language
	res.Page.Canonical = x.page.canonical
	res.Page.DecodingErrors = x.page.decodingErrors
	res.CharsetFrom = x.page.charsetFrom
	res.Digest = x.digest
	res.Links = x.page.found
	res.BadLinks = x.page.bad
	res.NotModified = x.unchanged
	if x.req.Product != "" {
		res.Robots = robots.ParseHeader(x.header["X-Robots-Tag"], x.req.Product).Merge(x.page.robots)
	}
	return res
}

// outcome is what is known of an exchange however it ended.
func (x *exchange) outcome() Result {
	took := x.took
	if x.status == 0 {
		took = time.Since(x.start)
	}
	return Result{
		Page: crawl.Page{
			URL: x.at.String(), Status: x.status, FetchedAt: x.start.UTC(), DurationMS: took.Milliseconds(),
		},
		Final:  x.at,
		Header: x.header,
		Hops:   x.trail.hops,
	}
}

// drain reads an unwanted body within bounds of size and time, and closes it.
func drain(b io.ReadCloser) {
	t := time.AfterFunc(drainTime, func() { _ = b.Close() })
	defer t.Stop()
	_, _ = io.CopyN(io.Discard, b, drainBytes)
	_ = b.Close()
}
