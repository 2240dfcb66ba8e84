package crawler

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
	"example.com/trawl/worker/robots"
	"example.com/trawl/worker/sitemap"
)

const (
	// mapPart is the number of links that make a part: its script takes Redis about a
	// millisecond, and others wait that long.
	mapPart = 500
	// mapNested bounds the sitemaps that one names: no job reads more.
	mapNested = 1000
	// mapNestedBytes bounds their addresses, which are kept until the sitemap is read: each
	// can be 8 KiB, and many sitemaps are read at once.
	mapNestedBytes = 1 << 20
	// mapHops is how many redirects of a sitemap are followed.
	mapHops = 5
	// mapTimeout bounds the reading of one; that of the fetcher may be shorter.
	mapTimeout = 5 * time.Minute
	// mapDepth is the depth of the pages that a sitemap names: it vouches for them as a
	// seed does for its links.
	mapDepth = 1
)

// isGuess reports whether an item is the usual place of a sitemap, which nobody named.
func isGuess(it crawl.Item) bool { return it.Kind == crawl.ItemSitemap && it.Depth == 0 }

// mapVisit reads one sitemap. What it names is sent on in parts while it is read.
type mapVisit struct {
	t      *turn
	page   *page
	base   crawl.URL // where the document is, to which its addresses refer
	commit store.MapCommit
	inPart map[crawl.Key]bool // links of the part, since a script counts what it is given
	bytes  int                // of the addresses of other sitemaps
	res    sitemap.Result
	full   bool  // the job has no room for more pages
	ended  error // why reading ends before the document does, but for full
}

// errTaken: the item is another slice's, or nobody's.
var errTaken = errors.New("the sitemap is not ours any more")

func (t *turn) newMapVisit(p *page) *mapVisit {
	return &mapVisit{
		t: t, page: p, base: p.url, inPart: map[crawl.Key]bool{},
		commit: store.MapCommit{Item: p.item, Outcome: store.MapRead, BadLinks: map[crawl.Reason]int{}},
	}
}

// visitMap fetches one sitemap and says what is to be recorded, once all parts are. It
// runs in a goroutine of its own.
func (t *turn) visitMap(p *page) (r result) {
	r = result{page: p}
	defer func() {
		if v := recover(); v != nil {
			t.log.ErrorContext(t.io, "panic while a sitemap was read",
				slog.String("panic", withoutPaths(fmt.Sprint(v))), slog.String("stack", string(debug.Stack())))
			r = result{page: p, sitemap: t.mapLost(p, false, "it could not be processed")}
		}
	}()
	if p.url.IsZero() {
		r.sitemap = t.mapLost(p, false, "its address is no URL")
		return r
	}
	if t.mayReadMap(p.url) != nil {
		r.sitemap = t.mapLost(p, isGuess(p.item), "its address may not be fetched")
		return r
	}
	if _, ready := t.heedRobots(p, &r); !ready {
		return r
	}
	m := t.c.o.Metrics
	m.inFlight.Inc()
	defer m.inFlight.Dec()
	m.starts(p)
	begun := time.Now()
	v := t.newMapVisit(p)
	raw, err := t.c.o.Fetcher.Raw(t.fetches, fetch.RawRequest{
		// One byte more than is read, so that what cuts a document short is known.
		URL: p.url, MaxBytes: sitemap.DefaultMaxBytes + 1, MaxHops: mapHops, Timeout: mapTimeout,
		UserAgent: t.agent.name, Hop: t.mayHopToMap, Read: v.read,
	})
	p.fetched = time.Now()
	m.fetch.Observe(p.fetched.Sub(begun).Seconds())
	if v.ended != nil || err != nil && t.fetches.Err() != nil {
		r.back = true // if it is not ours any more, the store passes it over
		return r
	}
	r.slow = v.conclude(&raw, err)
	r.sitemap = &v.commit
	return r
}

// mayReadMap asks what this worker and the tenant may fetch. The scope of a job is about
// its pages: a sitemap may be elsewhere.
func (t *turn) mayReadMap(u crawl.URL) error {
	if !t.c.o.Sources.Allows(u) || t.rules.Check(u, 0) == crawl.RefusedSource {
		return hopRefusedError{reason: crawl.RefusedSource, to: u}
	}
	return nil
}

// mayHopToMap asks also the robots.txt of where a sitemap leads.
func (t *turn) mayHopToMap(to crawl.URL) error {
	if err := t.mayReadMap(to); err != nil || t.sl.Plan.IgnoreRobots {
		return err
	}
	st, err := t.c.robots.ask(t.fetches, t.agent, to)
	if err != nil {
		return err
	}
	if st.rules == nil {
		return hopRefusedError{reason: crawl.SkipRobotsUnreachable, to: to}
	}
	if ok, rule := st.rules.Allowed(to.RequestURI()); !ok {
		return hopRefusedError{reason: crawl.SkipRobots, to: to, rule: rule}
	}
	return nil
}

func (v *mapVisit) read(head fetch.Raw, body io.Reader) error {
	if !head.Final.IsZero() {
		v.base = head.Final
	}
	var err error
	v.res, err = sitemap.Read(body, sitemap.Options{}, v.take)
	if v.ended != nil {
		return v.ended
	}
	return err
}

// take takes in one entry; false ends the reading.
func (v *mapVisit) take(e sitemap.Entry) bool {
	if e.Index {
		v.nest(e.Loc)
		return true
	}
	u, err := v.base.Resolve(e.Loc)
	if err != nil {
		v.commit.BadLinks[crawl.RefusedReasonOf(err)]++
		return true
	}
	key := u.Key()
	if v.inPart[key] {
		return true
	}
	v.inPart[key] = true
	v.commit.Links = append(v.commit.Links, store.MapLink{Link: v.t.link(u, key, mapDepth), LastMod: e.LastMod})
	return len(v.commit.Links) < mapPart || v.flush()
}

// flush hands a part to the loop and waits until it is recorded; false ends the reading.
func (v *mapVisit) flush() bool {
	part := store.MapCommit{
		Item: v.page.item, Outcome: store.MapPart, Part: int(v.t.parts.Add(1)), Links: v.commit.Links,
		After: v.commit.After,
	}
	v.commit.Links = nil
	clear(v.inPart)
	v.t.results <- result{page: v.page, sitemap: &part}
	select {
	case a := <-v.page.answers:
		if a.Verdict != store.Done {
			v.ended = errTaken
		}
		v.full = a.Full
		v.commit.After = part.Part
	case <-v.t.fetches.Done():
		v.ended = v.t.fetches.Err()
	}
	return v.ended == nil && !v.full
}

// nest notes a sitemap that another one, or a robots.txt, names.
func (v *mapVisit) nest(loc string) {
	c := &v.commit
	u, err := v.base.Resolve(loc)
	switch {
	case err != nil:
		c.BadLinks[crawl.RefusedReasonOf(err)]++
	case v.inPart[u.Key()]:
	case len(c.Nested)+len(c.Links) >= mapNested, v.bytes+len(loc) > mapNestedBytes:
		c.BadLinks[crawl.RefusedSitemapLimit]++
	case v.t.mayReadMap(u) != nil:
		v.bytes += len(loc)
		l := crawl.Link{URL: u, Key: u.Key(), Refused: crawl.RefusedSource}
		v.inPart[l.Key] = true
		c.Links = append(c.Links, store.MapLink{Link: l})
	default:
		v.bytes += len(loc)
		c.Nested = append(c.Nested, u)
	}
}

// listed is what is recorded of the usual place of a site whose robots.txt names others.
func (t *turn) listed(p *page, rules *robots.Rules) *store.MapCommit {
	v := t.newMapVisit(p)
	v.commit.Outcome = store.MapListed
	for _, loc := range rules.Sitemaps() {
		v.nest(loc)
	}
	return &v.commit
}

// conclude decides what became of a sitemap, and answers for how long its host wants to
// be left alone.
func (v *mapVisit) conclude(raw *fetch.Raw, err error) (slow time.Duration) {
	if err == nil {
		err = mapStatus(raw)
	}
	if err == nil || v.full {
		if v.res.Cut != "" {
			v.commit.BadLinks[crawl.RefusedSitemapLimit]++
		}
		return 0
	}
	var f *crawl.Fault
	if errors.As(err, &f) {
		slow = min(f.RetryAfter, retryMost)
	} else if errors.Is(err, sitemap.ErrTruncated) {
		f = &crawl.Fault{Code: crawl.CodeTruncated, Message: err.Error(), Temporary: true}
	}
	if f != nil && f.Temporary && v.page.item.Attempt+1 < maxAttempts {
		v.commit = store.MapCommit{Item: v.page.item, Outcome: store.MapRetry, Retry: backoff(v.page.item.Attempt, f)}
		return slow
	}
	// What it named before it failed stands.
	v.commit.Outcome = v.t.mapLost(v.page, isGuess(v.page.item) && isNothing(raw, err), err.Error()).Outcome
	return slow
}

// isNothing reports whether a guess was wrong: there is no sitemap, but perhaps a page
// that says so, or a redirect to where nothing may be fetched.
func isNothing(raw *fetch.Raw, err error) bool {
	var hop hopRefusedError
	return errors.Is(err, sitemap.ErrNotSitemap) || errors.As(err, &hop) ||
		raw.Status >= 400 && raw.Status < 500 && !mayPass(raw.Status)
}

// mayPass reports whether the next try may find another status.
func mayPass(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests ||
		status == http.StatusRequestTimeout || status == http.StatusTooEarly
}

// mapStatus is why an answer is no sitemap, as far as its status tells.
func mapStatus(raw *fetch.Raw) error {
	if raw.Status >= 200 && raw.Status < 300 {
		return nil
	}
	return &crawl.Fault{
		Code: crawl.HTTPCode(raw.Status), Status: raw.Status, RetryAfter: raw.RetryAfter,
		Message:   fmt.Sprintf("The server answered %d %s.", raw.Status, http.StatusText(raw.Status)),
		Temporary: mayPass(raw.Status),
	}
}

// mapLost is what is recorded of a sitemap that cannot be read. One that was only guessed
// and is not there is nothing to tell of.
func (t *turn) mapLost(p *page, nothing bool, why string) *store.MapCommit {
	if nothing {
		return &store.MapCommit{Item: p.item, Outcome: store.MapNone}
	}
	t.log.WarnContext(t.io, "sitemap not read", slog.String("origin", p.url.Origin()), slog.String("why", withoutPaths(why)))
	return &store.MapCommit{Item: p.item, Outcome: store.MapFailed}
}

// heard takes in what became of sitemaps and of parts of them, whose visits wait for it.
func (t *turn) heard(sent []store.MapCommit, got []store.MapCommitted) {
	for i, a := range got {
		c := &sent[i]
		t.c.o.Metrics.sitemap(c, a.Verdict)
		if a.Verdict == store.Done {
			for k := range c.Links {
				t.known.know(&c.Links[k].Link)
			}
		}
		if c.Outcome != store.MapPart {
			if a.Verdict == store.Stale && c.After != 0 && !t.lost {
				t.returns = append(t.returns, store.Return{Item: c.Item}) // parts of it are lost: it is read again
			}
			continue
		}
		if p := t.held[idOf(c.Item)]; p != nil {
			p.answers <- a
		}
	}
}
