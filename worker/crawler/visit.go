package crawler

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
)

const (
	// maxAttempts is the number of tries of a page whose failure may pass.
	maxAttempts = 3
	// retryBase is doubled with each try and jittered.
	retryBase = time.Second
	// retryMost bounds what a Retry-After can ask for.
	retryMost = 5 * time.Minute
)

// hopRefusedError is a redirect that the job's rules do not let through.
type hopRefusedError struct {
	reason crawl.Reason
	to     crawl.URL
}

func (h hopRefusedError) Error() string { return "redirect refused: " + string(h.reason) }

// visit fetches one page and says what is to be recorded. It runs in a goroutine of
// its own: parsing, hashing and rules use every core.
func (t *turn) visit(p *page) (r result) {
	r = result{page: p, commit: store.Commit{Item: p.item}}
	defer func() {
		if v := recover(); v != nil {
			t.log.ErrorContext(t.io, "panic while a page was visited",
				slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
			f := t.failure(p, crawl.Faultf(crawl.CodeInternal, "This page could not be processed."))
			r.commit = store.Commit{Item: p.item, Failed: f} // whatever stood in it is half of something
		}
	}()
	target, err := crawl.ParseURL(p.item.Target())
	if err != nil {
		r.commit.Failed = t.failure(p, err)
		return r
	}
	if !t.c.o.Sources.Allows(target) {
		r.commit.Failed = t.failure(p, crawl.Faultf(crawl.CodeSourceNotAllowed,
			"The workers may not fetch this address; see their TRAWL_ALLOWED_SOURCES."))
		return r
	}
	m := t.c.o.Metrics
	m.inFlight.Inc()
	defer m.inFlight.Dec()
	begun := time.Now()
	res, err := t.c.o.Fetcher.Fetch(t.fetches, fetch.Request{
		URL: target, Hops: p.item.Hops, Links: true, MaxLinks: store.MaxLinks,
		Hop: func(to crawl.URL) error { return t.mayFollow(p, to) },
	})
	m.since(m.fetch, begun)
	var hop hopRefusedError
	switch {
	case errors.As(err, &hop):
		t.skipped(p, hop, &r.commit)
	case err != nil && t.fetches.Err() != nil:
		r.back = true
	case err != nil:
		r.slow = t.failed(p, err, &r.commit)
	case !res.Redirect.IsZero():
		if errors.As(t.mayFollow(p, res.Redirect), &hop) {
			t.skipped(p, hop, &r.commit)
		} else {
			r.commit.Redirect = &store.Redirect{URL: res.Redirect.String(), Hops: res.Hops}
		}
	default:
		t.accepted(p, &res, &r.commit)
	}
	return r
}

// mayFollow asks the job's rules about a redirect.
func (t *turn) mayFollow(p *page, to crawl.URL) error {
	if !t.c.o.Sources.Allows(to) {
		return hopRefusedError{crawl.SkipRedirectNotAllowed, to}
	}
	switch t.rules.Check(to, p.item.Depth) {
	case "":
		return nil
	case crawl.RefusedSource:
		return hopRefusedError{crawl.SkipRedirectNotAllowed, to}
	default:
		return hopRefusedError{crawl.SkipRedirectOutOfScope, to}
	}
}

// skipped records a redirect that is not followed. Of a seed it says where that led: a
// job that ends with no page must say why.
func (t *turn) skipped(p *page, hop hopRefusedError, c *store.Commit) {
	c.Skipped, c.SkippedTo = hop.reason, hop.to.String()
	if p.item.Depth == 0 {
		what := "which the scope of the job leaves out"
		if hop.reason == crawl.SkipRedirectNotAllowed {
			what = "which may not be crawled"
		}
		c.Why = fmt.Sprintf("%s redirects to %s, %s.", p.item.URL, hop.to, what)
	}
}

func (t *turn) accepted(p *page, res *fetch.Result, c *store.Commit) {
	a := &store.Accepted{Page: res.Page, Final: res.Final.Key()}
	a.Page.SourceURL, a.Page.Attempts = p.item.URL, p.item.Attempt+1
	a.Page.LinkCount = len(res.Links)
	c.Accepted = a
	if !t.sl.Plan.Site {
		return // just these URLs: links are counted and not followed
	}
	a.BadLinks = res.BadLinks
	a.Links = make([]crawl.Link, 0, len(res.Links))
	for _, l := range res.Links {
		refused := t.rules.Check(l.URL, p.item.Depth+1)
		if refused == "" && !t.c.o.Sources.Allows(l.URL) {
			refused = crawl.RefusedSource
		}
		a.Links = append(a.Links, crawl.Link{URL: l.URL, Key: l.Key, Refused: refused})
	}
}

// failed decides between another try and the end of a page, and answers for how long its
// host wants to be left alone.
func (t *turn) failed(p *page, err error, c *store.Commit) (slow time.Duration) {
	var f *crawl.Fault
	if errors.As(err, &f) {
		slow = min(f.RetryAfter, retryMost)
	}
	if errors.As(err, &f) && f.Temporary && p.item.Attempt+1 < maxAttempts {
		wait := retryBase << p.item.Attempt
		wait += rand.N(wait) // jitter
		c.Retry = min(max(wait, f.RetryAfter), retryMost)
		return slow
	}
	c.Failed = t.failure(p, err)
	if p.item.Depth == 0 {
		c.Why = p.item.URL + ": " + c.Failed.Message
	}
	return slow
}

// failure is the record of a page that failed. What is no fault is a defect of
// ours: its text goes to the log and not to the reader.
func (t *turn) failure(p *page, err error) *crawl.Failure {
	var f *crawl.Fault
	if !errors.As(err, &f) {
		t.log.ErrorContext(t.io, "a page failed in a way that has no name", slog.Any("err", err))
		f = crawl.Faultf(crawl.CodeInternal, "This page could not be processed.")
	}
	return &crawl.Failure{
		SourceURL: p.item.URL, URL: p.item.Target(), ErrorType: f.Code, Status: f.Status, Message: f.Message,
		Attempts: p.item.Attempt + 1, Depth: p.item.Depth, At: time.Now().UTC(),
	}
}
