package fetch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gocolly/colly/v2"

	"example.com/trawl/pkg/crawl"
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
	fetcher *Fetcher
	req     Request
	start   time.Time

	at     crawl.URL // the URL being requested
	next   crawl.URL // where the last answer redirects to
	hops   int
	chain  []hop
	seen   []crawl.Key
	hopErr error

	status     int // of the last answer, 0 before it
	inBody     bool
	compressed bool
	body       *body
	media      string // content type as recorded
	label      string // charset parameter of the header
	html       bool
	xhtml      bool

	page      parser
	seenArray [4]crawl.Key
}

// hop is one redirect that was answered.
type hop struct {
	status int
	from   crawl.URL
}

// run does the exchange through a collector of its own: colly's dedupe,
// callbacks and limits live in the collector, so nothing of one fetch can leak
// into another. The fields are set after NewCollector, for it reads the
// environment last.
func (x *exchange) run(ctx context.Context) error {
	c := colly.NewCollector()
	c.Context = ctx
	c.UserAgent = x.fetcher.opts.UserAgent
	c.AllowURLRevisit = true
	c.IgnoreRobotsTxt = true // decided before the fetch, by package robots
	c.ParseHTTPErrorResponse = true
	c.MaxBodySize = 0 // counts compressed bytes; see readBody for ours
	c.SetRequestTimeout(0)
	c.DisableCookies()
	c.WithTransport(x)
	c.SetRedirectHandler(x.redirect)
	c.OnResponse(x.parse)
	header := make(http.Header, len(x.fetcher.header)+1)
	for k, v := range x.fetcher.header {
		header[k] = v
	}
	return c.Request(http.MethodGet, x.at.String(), nil, nil, header)
}

// RoundTrip implements http.RoundTripper around the shared transport. It sends
// what x.at names, makes a Location what [crawl.URL.Resolve] makes of it before
// net/http reads it, and takes the body, decoded and within the limit, so that
// colly finds nothing left to misread.
func (x *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	// Colly and net/url parse the URL again. Whatever they make of it, nothing
	// but the origin that was checked is contacted, and the target is sent as
	// the frontier knows it.
	if req.URL.Host != x.at.Host() || req.URL.Scheme != x.at.Scheme() {
		return nil, &crawl.Fault{
			Code:    crawl.CodeInvalidURL,
			Message: "The URL is read differently by different parsers; it was not requested.",
		}
	}
	if target := x.at.RequestURI(); target != req.URL.RequestURI() && !strings.HasPrefix(target, "//") {
		exact := *req
		exact.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Opaque: target}
		req = &exact
	}
	x.status, x.inBody = 0, false
	res, err := x.fetcher.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	x.status, x.inBody = res.StatusCode, true
	switch {
	case res.StatusCode >= 200 && res.StatusCode <= 299:
		err = x.readBody(res)
		_ = res.Body.Close()
	case redirects(res.StatusCode):
		drain(res.Body)
		x.next, err = location(x.at, res.Header["Location"])
		if err == nil {
			res.Header["Location"] = []string{x.next.String()}
		}
	default:
		if res.StatusCode >= 200 {
			drain(res.Body)
		} else {
			_ = res.Body.Close() // 101: the connection itself
		}
		err = statusFault(res)
	}
	if err != nil {
		return nil, err
	}
	res.Body = http.NoBody
	res.Uncompressed = true // else colly would gunzip by the URL's suffix
	return res, nil
}

// redirects reports whether a status is a redirect status of the Fetch standard;
// these are also what net/http follows.
func redirects(status int) bool {
	switch status {
	case 301, 302, 303, 307, 308:
		return true
	}
	return false
}

// location returns where the Location lines of an answer of base lead. Several
// that differ are refused, as browsers do: each party would follow another one.
func location(base crawl.URL, lines []string) (crawl.URL, error) {
	lines = slices.Compact(slices.Clone(lines))
	if len(lines) == 1 && strings.TrimSpace(lines[0]) != "" {
		to, err := base.Resolve(lines[0])
		if err == nil {
			return to, nil
		}
		return crawl.URL{}, &crawl.Fault{
			Code: crawl.CodeBadRedirect, Message: "The page redirects to what is no http or https URL.", Err: err,
		}
	}
	if len(lines) > 1 {
		return crawl.URL{}, crawl.Faultf(crawl.CodeBadRedirect, "The page redirects to several places at once.")
	}
	return crawl.URL{}, crawl.Faultf(crawl.CodeBadRedirect, "The page redirects without saying where to.")
}

// redirect is colly's redirect handler; it replaces the limit of net/http too.
// An error of it ends the fetch.
func (x *exchange) redirect(req *http.Request, _ []*http.Request) error {
	x.chain = append(x.chain, hop{x.status, x.at})
	x.hops++
	key := x.next.Key()
	if slices.Contains(x.seen, key) {
		return x.redirectFault(crawl.CodeRedirectLoop, "The page redirects in a loop")
	}
	if x.hops > x.fetcher.opts.MaxRedirects {
		return x.redirectFault(crawl.CodeTooManyRedirects, "The page redirects too often")
	}
	if x.next.Origin() != x.at.Origin() {
		return errStop
	}
	if x.req.Hop != nil {
		if x.hopErr = x.req.Hop(x.next); x.hopErr != nil {
			return x.hopErr
		}
	}
	x.seen = append(x.seen, key)
	x.at, x.next = x.next, crawl.URL{}
	req.Header.Del("Referer") // a fetch does not tell where it was
	return nil
}

// redirectFault names the hops and their statuses, without queries: those may
// carry a secret.
func (x *exchange) redirectFault(code crawl.Code, what string) error {
	var b strings.Builder
	b.WriteString(what)
	for i, h := range x.chain {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + itoa(h.status) + " " + clip(h.from.Path(), 60))
	}
	b.WriteString(" → " + clip(x.next.Path(), 60) + " (" + plural(x.hops, "redirect") + ").")
	return &crawl.Fault{Code: code, Message: b.String(), Status: x.status}
}

// parse is colly's OnResponse.
func (x *exchange) parse(*colly.Response) {
	if !x.html || len(x.body.buf) == 0 {
		return
	}
	x.page.links, x.page.maxLinks, x.page.xhtml = x.req.Links, x.req.MaxLinks, x.xhtml
	if x.page.maxLinks <= 0 {
		x.page.maxLinks = DefaultMaxLinks
	}
	x.page.document = x.at
	text := x.page.decode(x.body.buf, x.label)
	x.fetcher.parse(&x.page, text)
}

// result is the page of an exchange that ended well.
func (x *exchange) result() Result {
	return Result{
		Page: crawl.Page{
			URL:            x.at.String(),
			Status:         x.status,
			Title:          x.page.title,
			FetchedAt:      x.start.UTC(),
			DurationMS:     time.Since(x.start).Milliseconds(),
			Bytes:          x.body.n,
			ContentType:    x.media,
			Charset:        x.page.charset,
			Language:       x.page.language,
			Canonical:      x.page.canonical,
			DecodingErrors: x.page.decodingErrors,
		},
		Final:    x.at,
		Hops:     x.hops,
		Links:    x.page.found,
		BadLinks: x.page.bad,
	}
}

// drain reads an unwanted body within bounds of size and time, and closes it.
func drain(b io.ReadCloser) {
	t := time.AfterFunc(drainTime, func() { _ = b.Close() })
	defer t.Stop()
	_, _ = io.CopyN(io.Discard, b, drainBytes)
	_ = b.Close()
}
