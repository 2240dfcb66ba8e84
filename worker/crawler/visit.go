package crawler

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
	"example.com/trawl/worker/robots"
)

const (
	// maxAttempts is the number of tries of a page whose failure may pass.
	maxAttempts = 3
	// retryBase is doubled with each try and jittered.
	retryBase = time.Second
	// retryMost bounds what a Retry-After can ask for.
	retryMost = 5 * time.Minute
	// askedMost is for how long a page may be answered with Retry-After and nothing else.
	askedMost = 15 * time.Minute
)

// hopRefusedError is a redirect that the job's rules, or the site's, do not let through.
type hopRefusedError struct {
	reason crawl.Reason
	to     crawl.URL
	rule   string // of robots.txt
}

func (h hopRefusedError) Error() string { return "redirect refused: " + string(h.reason) }

// visit fetches one page and says what is to be recorded. It runs in a goroutine of
// its own: parsing, hashing and rules use every core.
func (t *turn) visit(p *page) (r result) {
	r = result{page: p, commit: store.Commit{Item: p.item}}
	defer func() {
		if v := recover(); v != nil {
			t.log.ErrorContext(t.io, "panic while a page was visited",
				slog.String("panic", withoutPaths(fmt.Sprint(v))), slog.String("stack", string(debug.Stack())))
			f := t.failure(p, crawl.Faultf(crawl.CodeInternal, "This page could not be processed."))
			r.commit = store.Commit{Item: p.item, Failed: f} // whatever stood in it is half of something
		}
	}()
	target := p.url
	if target.IsZero() {
		_, err := crawl.ParseURL(p.item.Target())
		r.commit.Failed = t.failure(p, err)
		return r
	}
	if !t.c.o.Sources.Allows(target) {
		r.commit.Failed = t.failure(p, crawl.Faultf(crawl.CodeSourceNotAllowed,
			"The workers may not fetch this address; see their TRAWL_ALLOWED_SOURCES."))
		return r
	}
	rules, ready := t.heedRobots(p, &r)
	if !ready {
		return r
	}
	m := t.c.o.Metrics
	m.inFlight.Inc()
	defer m.inFlight.Dec()
	take := t.taking(p)
	req := fetch.Request{
		URL: target, Hops: p.item.Hops, Links: true, MaxLinks: store.MaxLinks,
		Product: t.agent.product, UserAgent: t.agent.name, Header: headerOf(t.rules.Headers(target)), Jar: t.jar,
		Hop: func(to crawl.URL) error { return t.mayHop(p, to, rules) },
	}
	take.ask(t.fetches, &req)
	m.starts(p)
	begun := time.Now()
	res, err := t.c.o.Fetcher.Fetch(t.fetches, req)
	p.fetched = time.Now()
	m.fetch.Observe((p.fetched.Sub(begun) - take.spent()).Seconds())
	m.bytes.Add(float64(res.Page.Bytes))
	r.weight = take.holds()
	if err == nil {
		err = take.finish(&res)
	}
	var hop hopRefusedError
	switch {
	case errors.As(err, &hop):
		t.skipped(p, hop, &r.commit)
	case err != nil && t.fetches.Err() != nil:
		r.back = true
	case err != nil:
		r.slow = t.c.trouble.failed(p.host.name, crawl.CodeOf(err), begun)
		if wait := t.askedToWait(p, err); wait > 0 {
			r.back, r.wait, r.slow = true, wait, max(wait, r.slow)
			p.waits, p.deferred = crawl.WaitingRetry, forAsked
			break
		}
		r.slow = max(r.slow, t.failed(p, err, &r.commit))
		if r.commit.Failed != nil && !res.Final.IsZero() {
			r.commit.Failed.URL, r.commit.Failed.Headers = res.Final.String(), telling(res.Header)
		}
	case !res.Redirect.IsZero():
		t.c.trouble.worked(p.host.name)
		if errors.As(t.mayFollow(p, res.Redirect), &hop) {
			t.skipped(p, hop, &r.commit)
		} else {
			r.commit.Redirect = &store.Redirect{URL: res.Redirect.String(), Hops: res.Hops}
		}
	default:
		t.c.trouble.worked(p.host.name)
		take.unchanged(&res)
		if !t.accepted(p, &res, &r.commit) {
			r.commit, r.back = store.Commit{Item: p.item}, true // half of its links are not the page
			break
		}
		take.enter(&res, &r.commit)
	}
	return r
}

// mayFollow asks the job's rules about a redirect.
func (t *turn) mayFollow(p *page, to crawl.URL) error {
	if !t.c.o.Sources.Allows(to) {
		return hopRefusedError{reason: crawl.SkipRedirectNotAllowed, to: to}
	}
	switch t.rules.Check(to, p.item.Depth) {
	case "":
		return nil
	case crawl.RefusedTrap:
		return hopRefusedError{reason: crawl.SkipRedirectTrap, to: to}
	case crawl.RefusedSource:
		return hopRefusedError{reason: crawl.SkipRedirectNotAllowed, to: to}
	default:
		return hopRefusedError{reason: crawl.SkipRedirectOutOfScope, to: to}
	}
}

// mayHop asks the rules of the job and those of the site about a redirect within its origin.
func (t *turn) mayHop(p *page, to crawl.URL, rules *robots.Rules) error {
	if err := t.mayFollow(p, to); err != nil || rules == nil {
		return err
	}
	if ok, rule := rules.Allowed(to.RequestURI()); !ok {
		return hopRefusedError{reason: crawl.SkipRobots, to: to, rule: rule}
	}
	return nil
}

// skipped records a redirect that is not followed. Of a seed it says where that led: a
// job that ends with no page must say why.
func (t *turn) skipped(p *page, hop hopRefusedError, c *store.Commit) {
	if hop.reason == crawl.SkipRobots {
		t.skippedByRobots(p, hop.rule+" (it redirects to "+hop.to.String()+")", c)
		return
	}
	c.Skipped, c.SkippedTo = hop.reason, hop.to.String()
	if p.item.Depth == 0 {
		what := "which the scope of the job leaves out"
		if hop.reason == crawl.SkipRedirectNotAllowed {
			what = "which may not be crawled"
		}
		c.Why = fmt.Sprintf("%s redirects to %s, %s.", p.item.URL, hop.to, what)
	}
}

// accepted records a page and judges its links. It reports false if it was broken off
// before the last of them: thousands of links take seconds with the slowest of rules.
func (t *turn) accepted(p *page, res *fetch.Result, c *store.Commit) bool {
	a := &store.Accepted{Page: res.Page, Final: t.rules.Canonical(res.Final).Key()}
	a.Page.SourceURL, a.Page.Attempts = p.item.URL, p.item.Attempt+1
	a.Page.FetchedAt = a.Page.FetchedAt.Add(t.sl.Ahead)
	a.Page.LinkCount, a.Page.CharsetFrom = len(res.Links), string(res.CharsetFrom)
	if res.Digest != (fetch.Digest{}) {
		a.Digest = string(res.Digest[:])
	}
	obey := !t.sl.Plan.IgnoreRobots
	c.Accepted, c.NoIndex = a, t.unwanted(res)
	if !t.sl.Plan.Site || t.sl.Plan.Sitemap == crawl.SitemapOnly {
		return true // just these URLs, or those of the sitemaps: links are counted and not followed
	}
	a.BadLinks = res.BadLinks
	a.Links = make([]crawl.Link, 0, len(res.Links))
	rewritten := false
	for _, l := range res.Links {
		if t.fetches.Err() != nil {
			return false
		}
		link := t.link(l.URL, l.Key, p.item.Depth+1)
		rewritten = rewritten || link.URL != l.URL
		if link.Refused == "" && obey && (l.NoFollow || res.Robots.NoFollow) {
			link.Refused, link.Pattern = crawl.RefusedNoFollow, ""
		}
		a.Links = append(a.Links, link)
	}
	if rewritten {
		a.Links = distinct(a.Links)
	}
	return true
}

// unwanted reports whether the site asks for its page not to be kept, and the job heeds that.
func (t *turn) unwanted(res *fetch.Result) bool {
	return !t.sl.Plan.IgnoreRobots && !res.Robots.IndexableAt(time.Now())
}

// link asks the rules of the job, and those of this worker, about a URL that was found.
func (t *turn) link(found crawl.URL, key crawl.Key, depth int) crawl.Link {
	l := crawl.Link{URL: t.rules.Canonical(found), Key: key}
	if l.URL != found {
		l.Key = l.URL.Key()
	}
	switch l.Refused = t.rules.Check(l.URL, depth); {
	case l.Refused != "":
	case !t.c.o.Sources.Allows(l.URL):
		l.Refused = crawl.RefusedSource
	default:
		l.Pattern = t.rules.Pattern(l.URL)
	}
	return l
}

// headerOf returns the headers that a job sends as a request has them.
func headerOf(headers crawl.Headers) http.Header {
	if len(headers) == 0 {
		return nil
	}
	h := make(http.Header, len(headers))
	for name, value := range headers {
		h.Set(name, value)
	}
	return h
}

// distinct leaves out the links that became the same: parameters that the job drops made
// them different before.
func distinct(links []crawl.Link) []crawl.Link {
	seen := make(map[crawl.Key]struct{}, len(links))
	return slices.DeleteFunc(links, func(l crawl.Link) bool {
		_, again := seen[l.Key]
		seen[l.Key] = struct{}{}
		return again
	})
}

// tellingHeaders are those of an answer by which a person finds out why it was no page:
// who answered, what it is, where it points and when to come again. Set-Cookie and the
// like may hold secrets.
var tellingHeaders = []string{
	"Server", "Via", "Content-Type", "Location", "Retry-After", "WWW-Authenticate", "X-Cache", "Cf-Ray",
}

// tellingMost bounds the value of one, in bytes.
const tellingMost = 200

// telling returns the telling headers of an answer, by lower-case name; nil for none.
func telling(h http.Header) map[string]string {
	var out map[string]string
	for _, name := range tellingHeaders {
		if value := h.Get(name); value != "" {
			if out == nil {
				out = map[string]string{}
			}
			out[strings.ToLower(name)] = strings.ToValidUTF8(value[:min(len(value), tellingMost)], "\uFFFD")
		}
	}
	return out
}

// askedToWait answers for how long a host that takes no requests now wants to be left
// alone, 0 when it does not say so: that costs the page no try. A page for which it is said
// for longer than [askedMost] is not waited for any more.
func (t *turn) askedToWait(p *page, err error) time.Duration {
	var f *crawl.Fault
	if !errors.As(err, &f) || f.RetryAfter <= 0 ||
		f.Status != http.StatusTooManyRequests && f.Status != http.StatusServiceUnavailable {
		return 0
	}
	if t.c.trouble.asks(fmt.Sprintf("%s %d", t.sl.Job.ID, p.item.N)) > askedMost {
		return 0
	}
	return min(f.RetryAfter, retryMost)
}

// failed decides between another try and the end of a page, and answers for how long its
// host wants to be left alone.
func (t *turn) failed(p *page, err error, c *store.Commit) (slow time.Duration) {
	var f *crawl.Fault
	if errors.As(err, &f) {
		slow = min(f.RetryAfter, retryMost)
	}
	if errors.As(err, &f) && f.Temporary && p.item.Attempt+1 < maxAttempts {
		c.Retry = backoff(p.item.Attempt, f)
		return slow
	}
	c.Failed = t.failure(p, err)
	if p.item.Depth == 0 {
		c.Why = p.item.URL + ": " + c.Failed.Message
	}
	return slow
}

// backoff answers how long to wait before another try.
func backoff(attempt int, f *crawl.Fault) time.Duration {
	wait := retryBase << attempt
	wait += rand.N(wait) // jitter
	return min(max(wait, f.RetryAfter), retryMost)
}

// failure is the record of a page that failed. What is no fault is a defect of
// ours: its text goes to the log and not to the reader.
func (t *turn) failure(p *page, err error) *crawl.Failure {
	var f *crawl.Fault
	switch {
	case !errors.As(err, &f):
		t.log.ErrorContext(t.io, "a page failed in a way that has no name", slog.String("err", withoutPaths(err.Error())))
		f = crawl.Faultf(crawl.CodeInternal, "This page could not be processed.")
	case f.Code == crawl.CodeInternal && f.Err != nil:
		t.log.ErrorContext(t.io, "a page failed by a defect", slog.String("err", withoutPaths(f.Err.Error())))
	}
	return &crawl.Failure{
		SourceURL: p.item.URL, URL: p.item.Target(), ErrorType: f.Code, Status: f.Status, Message: f.Message,
		Attempts: p.item.Attempt + 1, Depth: p.item.Depth, At: time.Now().Add(t.sl.Ahead).UTC(),
	}
}
