package crawler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"
	"golang.org/x/sync/singleflight"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
	"example.com/trawl/worker/robots"
)

const (
	// robotsHold is how long this process goes by what the store told it: a change by
	// another worker is seen within that time.
	robotsHold = time.Minute
	// robotsMost bounds the origins that are remembered here, robotsBytes the text of their
	// rules together: compiled they take some twenty times as much.
	robotsMost  = 10_000
	robotsBytes = 4 << 20
	// robotsHops is how many redirects of a robots.txt are followed, RFC 9309 section 2.3.1.2.
	robotsHops = 5
	// robotsTimeout bounds one fetch, below the claim on it.
	robotsTimeout = store.RobotsClaim * 3 / 4
	// robotsPoll is the pause before the store is asked again about what another worker
	// fetches.
	robotsPoll = 200 * time.Millisecond
	// maxCrawlDelay bounds the Crawl-delay that is honoured. Sites ask for hours, and a job
	// that fetches a page an hour helps neither side.
	maxCrawlDelay = 60 * time.Second
)

// agent is how a job presents itself to sites.
type agent struct {
	name    string // its User-Agent; empty for that of the worker
	product string // the token by which robots rules address it
}

// agentOf returns the agent of a job: its own, or the worker's.
func agentOf(p *crawl.Plan, o *Options) agent {
	if p.UserAgent == "" {
		return agent{product: o.Product}
	}
	return agent{name: p.UserAgent, product: robots.ProductToken(p.UserAgent)}
}

// at names what a robots.txt says to the agent.
func (a agent) at(u crawl.URL) string { return a.key() + " " + u.Origin() }

// key names the agent where robots.txt files are kept. What a server answers may depend on
// all of the User-Agent, which a caller chooses: nobody is to choose it for others who
// share the product token.
func (a agent) key() string {
	if a.name == "" {
		return a.product
	}
	sum := sha256.Sum256([]byte(a.name))
	return a.product + ":" + hex.EncodeToString(sum[:8])
}

// standing is how an origin stands with its robots.txt, as this process knows it.
type standing struct {
	rules   *robots.Rules // nil while nothing may be fetched
	until   time.Time     // it is to be asked for again then
	fault   *crawl.Fault  // without rules: why
	givenUp bool          // without rules: the origin was tried often enough
	size    int           // of the text of the rules, in bytes
}

// robotsBook is what this process knows of robots.txt files. The store has it for all.
type robotsBook struct {
	store   Store
	fetcher Fetcher
	sources crawl.Sources // of this worker
	log     *slog.Logger

	asking singleflight.Group

	mu    sync.Mutex
	known map[string]standing // by agent.at
	bytes int                 // of the texts of known
}

func newRobotsBook(o *Options) *robotsBook {
	return &robotsBook{
		store: o.Store, fetcher: o.Fetcher, sources: o.Sources, log: o.Logger,
		known: map[string]standing{},
	}
}

// look answers what is known without asking anybody.
func (b *robotsBook) look(a agent, u crawl.URL) (standing, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	st, ok := b.known[a.at(u)]
	return st, ok && time.Now().Before(st.until)
}

func (b *robotsBook) remember(a agent, u crawl.URL, st standing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes += st.size - b.known[a.at(u)].size
	if len(b.known) >= robotsMost || b.bytes > robotsBytes {
		clear(b.known) // the store has them all
		b.bytes = st.size
	}
	b.known[a.at(u)] = st
}

// ask finds out how the origin of u stands: from the store, or by a request to it, which
// one caller of the whole cluster makes. It fails when the store does, or ctx ends.
func (b *robotsBook) ask(ctx context.Context, a agent, u crawl.URL) (standing, error) {
	v, err, _ := b.asking.Do(a.at(u), func() (any, error) {
		if st, ok := b.look(a, u); ok {
			return st, nil
		}
		st, err := b.settle(ctx, a, u)
		if err == nil {
			b.remember(a, u, st)
		}
		return st, err
	})
	st, _ := v.(standing)
	return st, err
}

func (b *robotsBook) settle(ctx context.Context, a agent, u crawl.URL) (standing, error) {
	for {
		r, err := b.store.ClaimRobots(ctx, u, a.key())
		if err != nil {
			return standing{}, err
		}
		if r.Standing == store.RobotsBusy {
			if err := sleep(ctx, min(r.Wait, robotsPoll)); err != nil {
				return standing{}, err
			}
			continue
		}
		if r.Standing == store.RobotsToFetch {
			got := b.fetch(ctx, a, u)
			if ctx.Err() != nil {
				return standing{}, ctx.Err() // the claim runs out by itself
			}
			if r, err = b.store.LearnRobots(ctx, u, a.key(), r.Claim, got); err != nil {
				return standing{}, err
			}
		}
		return b.standing(ctx, u, &r), nil
	}
}

func (b *robotsBook) standing(ctx context.Context, u crawl.URL, r *store.Robots) standing {
	st := standing{until: time.Now().Add(r.Wait), givenUp: r.Standing == store.RobotsGivenUp}
	if r.Standing != store.RobotsKnown {
		var why unreached
		if err := json.Unmarshal([]byte(r.Why), &why); err != nil {
			why.Code, why.Message = crawl.CodeConnection, "The server could not be reached."
		}
		st.fault = &crawl.Fault{Code: why.Code, Status: why.Status, Message: why.Message}
		return st
	}
	st.size = len(r.Rules)
	st.rules, st.until = &robots.Rules{}, time.Now().Add(min(r.Wait, robotsHold))
	if err := st.rules.UnmarshalText([]byte(r.Rules)); err != nil {
		// Nobody but a worker wrote it: one of another version, perhaps. It ages.
		b.log.WarnContext(ctx, "stored robots rules cannot be read", slog.String("origin", u.Origin()), slog.Any("err", err))
		return standing{until: st.until}
	}
	return st
}

// unreached is why a robots.txt could not be reached, as all workers are told it.
type unreached struct {
	Code    crawl.Code `json:"code"`
	Status  int        `json:"status,omitempty"`
	Message string     `json:"message"`
}

// fetch fetches the robots.txt of an origin. What the status means is RFC 9309 section
// 2.3.1: a file that is not there forbids nothing, a server that fails forbids all.
func (b *robotsBook) fetch(ctx context.Context, a agent, u crawl.URL) store.RobotsFetch {
	raw, err := b.get(ctx, a, u)
	if ctx.Err() != nil {
		return store.RobotsFetch{} // nobody waits for it any more
	}
	// What is neither a file nor the answer that there is none (a 304, which nobody asked
	// for) tells as little as a failure.
	absent := raw.Status == 0 || raw.Status >= 400 && raw.Status < 500 && raw.Status != http.StatusTooManyRequests
	found := raw.Status >= 200 && raw.Status < 300
	if err == nil && !absent && !found {
		err = &crawl.Fault{
			Code: crawl.HTTPCode(raw.Status), Status: raw.Status, RetryAfter: raw.RetryAfter,
			Message: fmt.Sprintf("The server answered %d %s.", raw.Status, http.StatusText(raw.Status)),
		}
	}
	if err == nil {
		if absent {
			raw.Body = nil
		}
		var text []byte
		if text, err = robots.Parse(raw.Body, a.product).MarshalText(); err == nil {
			return store.RobotsFetch{Rules: string(text)}
		}
	}
	var f *crawl.Fault
	if !errors.As(err, &f) {
		b.log.ErrorContext(ctx, "robots.txt failed in a way that has no name",
			slog.String("origin", u.Origin()), slog.String("err", withoutPaths(err.Error())))
		f = crawl.Faultf(crawl.CodeInternal, "robots.txt could not be processed.")
	}
	why, err := json.Marshal(unreached{f.Code, f.Status, f.Message})
	if err != nil { // of strings and a number
		why = nil
	}
	// A refused address answers as little as one where nobody is.
	nobody := f.Code == crawl.CodeDNS || f.Code == crawl.CodeConnection || f.Code == crawl.CodePrivateAddress
	return store.RobotsFetch{Why: string(why), Wish: f.RetryAfter, Nobody: nobody}
}

// get requests the robots.txt of an origin; one that leads nowhere is as good as none.
func (b *robotsBook) get(ctx context.Context, a agent, u crawl.URL) (fetch.Raw, error) {
	at, err := u.Resolve("/robots.txt")
	if err != nil {
		return fetch.Raw{}, err // an origin that was parsed has such a path
	}
	raw, err := b.fetcher.Raw(ctx, fetch.RawRequest{
		// One byte more than is used, or a line that the bound cuts would look whole.
		URL: at, MaxBytes: robots.MaxBytes + 1, MaxHops: robotsHops, Timeout: robotsTimeout, UserAgent: a.name,
		Hop: func(to crawl.URL) error { return b.mayHop(u, to) },
	})
	var f *crawl.Fault
	if errors.As(err, &f) && allowsAll(f.Code, raw.Final == at) {
		return fetch.Raw{}, nil
	}
	return raw, err
}

// mayHop asks where the robots.txt of an origin may lead: within the origin to what this
// worker may fetch, or else to what can be nothing but such a file (it is asked for all
// tenants, whose own lists may be narrower), where this worker may fetch it, or within the
// domain of the origin and on the usual port (to https, to www), whose pages it stands for.
// Anywhere else a site could have us ask what the operator did not mean to be asked, or
// find out what listens.
func (b *robotsBook) mayHop(origin, to crawl.URL) error {
	if to.Origin() == origin.Origin() && b.sources.Allows(to) {
		return nil
	}
	if to.RequestURI() != "/robots.txt" {
		return crawl.Faultf(crawl.CodeSourceNotAllowed,
			"It redirects to %s, where only /robots.txt may be fetched for it.", to)
	}
	usual := to.Port() == map[string]string{"http": "80", "https": "443"}[to.Scheme()]
	if b.sources.Allows(to) || usual && to.Hostname() == origin.Hostname() {
		return nil
	}
	if !usual {
		return crawl.Faultf(crawl.CodeSourceNotAllowed, "It redirects to %s, which the workers may not fetch.", to)
	}
	own, err := publicsuffix.EffectiveTLDPlusOne(strings.TrimSuffix(origin.Hostname(), "."))
	if its, errTo := publicsuffix.EffectiveTLDPlusOne(strings.TrimSuffix(to.Hostname(), ".")); err == nil && errTo == nil && own == its {
		return nil
	}
	return crawl.Faultf(crawl.CodeSourceNotAllowed, "It redirects to %s, which the workers may not fetch.", to)
}

// allowsAll reports whether a robots.txt that fails like this forbids nothing: what it
// leads to is no file of that origin. One that leads to a private address was not looked
// at, and may forbid all; of an origin that is private itself the guard refuses the
// pages anyway, and says so.
func allowsAll(code crawl.Code, own bool) bool {
	switch code {
	case crawl.CodeTooManyRedirects, crawl.CodeRedirectLoop, crawl.CodeBadRedirect:
		return true
	case crawl.CodePrivateAddress:
		return own
	default:
		return false
	}
}

// permit decides about a page by what this process knows of its robots.txt: whether it
// may ask its host for a start. One about whose site nothing is known may, and asks then.
// Whoever may not is given back, or settled without a request.
func (t *turn) permit(p *page) bool {
	if t.sl.Plan.IgnoreRobots && !isGuess(p.item) {
		return true
	}
	st, ok := t.c.robots.look(t.agent, p.url)
	if !ok {
		return true
	}
	r := result{page: p, commit: store.Commit{Item: p.item}}
	switch {
	case isGuess(p.item) && st.names():
		r.sitemap = t.listed(p, st.rules)
	case t.sl.Plan.IgnoreRobots:
		return true
	case st.rules != nil:
		if d, _ := st.rules.CrawlDelay(); d > maxCrawlDelay && p.host.delay < maxCrawlDelay {
			t.log.WarnContext(t.io, "the Crawl-delay of a site is longer than what is honoured",
				slog.String("origin", p.url.Origin()), slog.String("asked", d.String()), slog.String("honoured", maxCrawlDelay.String()))
		}
		p.host.delay = max(p.host.delay, st.delay())
		ok, rule := st.rules.Allowed(p.url.RequestURI())
		if ok {
			return true
		}
		t.forbidden(p, rule, &r)
	case st.givenUp:
		t.unreached(p, st.fault, &r)
	default:
		t.waitForRobots(p, st.until)
		return false
	}
	t.worked = true
	t.take(r)
	return false
}

// waitForRobots gives a page back until its robots.txt is asked for again.
func (t *turn) waitForRobots(p *page, until time.Time) {
	wait := time.Until(until)
	p.waits = crawl.WaitingRobots
	t.giveBack(p, max(wait, 0)+rand.N(time.Second/4)) // jitter, or all come back at once
	t.barren++
	t.shuts++
	if t.restUntil.IsZero() || until.Before(t.restUntil) {
		t.restUntil = until
	}
}

// heedRobots returns the rules for a page whose start has come, nil when the job heeds
// none. When they were not known its start is used to ask for them, and it needs another
// one; so it does when it was started earlier than they allow.
func (t *turn) heedRobots(p *page, r *result) (rules *robots.Rules, ready bool) {
	if t.sl.Plan.IgnoreRobots && !isGuess(p.item) {
		return nil, true
	}
	st, ok := t.c.robots.look(t.agent, p.url)
	if !ok {
		_, err := t.c.robots.ask(t.fetches, t.agent, p.url)
		switch {
		case err == nil:
			r.again = true
		case t.fetches.Err() != nil:
			r.back = true
		case errors.Is(err, context.Canceled):
			r.again = true // another job asked for both, and was cancelled
		default:
			t.log.WarnContext(t.io, "robots.txt: the store does not answer", slog.Any("err", err))
			r.back, r.wait = true, time.Second
			p.deferred = other // not for its host
		}
		return nil, false
	}
	heeds := !t.sl.Plan.IgnoreRobots
	if heeds && (st.rules == nil || st.delay() > p.delay) || isGuess(p.item) && st.names() {
		r.again = true
		return nil, false
	}
	if !heeds {
		return nil, true
	}
	if ok, rule := st.rules.Allowed(p.url.RequestURI()); !ok {
		t.forbidden(p, rule, r)
		return nil, false
	}
	return st.rules, true
}

// forbidden records what robots.txt forbids, with the rule.
func (t *turn) forbidden(p *page, rule string, r *result) {
	if p.item.Kind == crawl.ItemSitemap {
		r.sitemap = t.mapLost(p, isGuess(p.item), "robots.txt forbids it: "+rule)
		return
	}
	t.skippedByRobots(p, rule, &r.commit)
}

func (t *turn) skippedByRobots(p *page, rule string, c *store.Commit) {
	c.Skipped, c.SkippedTo = crawl.SkipRobots, rule
	if p.item.Depth == 0 {
		c.Why = fmt.Sprintf("%s is forbidden by robots.txt: %s", p.item.URL, rule)
	}
}

// unreached records a page of a site whose robots.txt could not be fetched: as failed for
// the same reason when nothing could be reached there, and as skipped when the server
// answers, but not this.
func (t *turn) unreached(p *page, why *crawl.Fault, r *result) {
	if p.item.Kind == crawl.ItemSitemap {
		r.sitemap = t.mapLost(p, false, "robots.txt of its site could not be fetched: "+why.Message)
		return
	}
	c := &r.commit
	message := "The robots.txt of its site could not be fetched, so nothing there may be. " + why.Message
	if why.Status == 0 {
		t.failed(p, &crawl.Fault{Code: why.Code, Message: message}, c)
		return
	}
	c.Skipped, c.SkippedTo = crawl.SkipRobotsUnreachable, why.Message
	if p.item.Depth == 0 {
		c.Why = p.item.URL + ": " + message
	}
}

// names reports whether the site names its sitemaps.
func (st standing) names() bool { return st.rules != nil && len(st.rules.Sitemaps()) > 0 }

// delay answers the least time between two requests that the site asks for, capped.
func (st standing) delay() time.Duration {
	if st.rules == nil {
		return 0
	}
	d, _ := st.rules.CrawlDelay()
	return min(d, maxCrawlDelay)
}

// sleep waits for d, or for the end of ctx, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
