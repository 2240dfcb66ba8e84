package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/api/httpapi"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

// The sizes of what the gate does. They are large beside what goes on by the clock (sweeps, heartbeats, the end of a
// batch that waits no longer), so that a busy machine changes the figures by less than their margins.
const (
	gatePages     = 4000
	gateCrawls    = 3 // of which the least counts: a busy machine only adds
	gateJobs      = 300
	gateURLs      = 20_000
	gateInFlight  = 64
	gateLinks     = 20
	gatePageBytes = 6000
)

// TestGate fails when a page, a submission or a small job costs more than [ceilings] allow. It measures nothing that
// a busy machine changes, so that it holds wherever it runs. It does not run in parallel with others of its binary,
// whose allocations were counted with its own.
//
//nolint:paralleltest // see above
func TestGate(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("takes some seconds, and means nothing with the race detector")
	}
	g := newGate(t)
	found := map[string]float64{}
	g.crawls(t, found)
	g.jobs(t, found)
	g.memory(t, found)
	for _, c := range ceilings {
		value, ok := found[c.figure]
		delete(found, c.figure)
		if !ok {
			t.Errorf("%s: was not measured", c.figure)
			continue
		}
		fault, hint := c.judge(value)
		t.Logf("%-46s %8.5g of %8.5g %s", c.figure, value, c.most(), hint)
		if fault != "" {
			t.Error(fault)
		}
	}
	for figure, value := range found {
		t.Errorf("%s: %.5g, and no ceiling", figure, value)
	}
}

// gate is an API, a store and what a worker needs, in this process, on a Redis of their own.
type gate struct {
	url   string
	rdb   redis.UniversalClient // for looks, which count nowhere
	trips atomic.Int64          // of all clients but rdb
	st    *store.Store          // counted
	quiet *store.Store          // not counted
	bell  *queue.Doorbell
	site  *site
}

func newGate(t *testing.T) *gate {
	t.Helper()
	s := crawltest.Private(t, "--appendonly", "no")
	g := &gate{url: s.URL, rdb: s.Client}
	rdb := s.Open(t, redisconn.Options{Observe: g.observe})
	g.st, g.bell, g.quiet = store.New(rdb, store.Options{}), queue.NewDoorbell(rdb), store.New(s.Client, store.Options{})
	o := options{Pages: gatePages, Links: gateLinks, Bytes: gatePageBytes}
	var err error
	if g.site, err = (&rig{o: o}).newSite(context.WithoutCancel(t.Context()), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.site.stop)
	return g
}

// observe is a [redisconn.Observer]: a call is a round trip.
func (g *gate) observe(string, time.Duration, error) { g.trips.Add(1) }

// gateStore is the store of a worker of the gate. Sweeps, which come by the clock, are not counted.
type gateStore struct {
	*store.Store
	quiet *store.Store
	left  atomic.Int64  // pages to be committed yet
	all   chan struct{} // closed when they are
}

// Sweep implements [crawler.Store].
func (s *gateStore) Sweep(ctx context.Context) (store.Swept, error) { return s.quiet.Sweep(ctx) }

// Exchange implements [crawler.Store].
func (s *gateStore) Exchange(ctx context.Context, sl *store.Slice, x store.Exchange) (store.Exchanged, error) {
	out, err := s.Store.Exchange(ctx, sl, x)
	if n := int64(len(out.Committed)); n > 0 && s.left.Add(-n) == 0 {
		close(s.all)
	}
	return out, err
}

// worker makes a worker process that is not started, and the store that tells when so many pages are committed.
func (g *gate) worker(t *testing.T, pages int64) (*crawler.Process, *gateStore) {
	t.Helper()
	policy, err := netguard.Parse("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	st := &gateStore{Store: g.st, quiet: g.quiet, all: make(chan struct{})}
	st.left.Store(pages)
	p, err := crawler.NewProcess(crawler.ProcessOptions{
		Options: crawler.Options{
			Store: st, Doorbell: g.bell, Logger: slog.New(slog.DiscardHandler), Sources: gateSources(t),
			Metrics: crawler.NewMetrics(obs.NewRegistry()), Concurrency: gateInFlight, HostConcurrency: gateInFlight,
		},
		Fetch:    fetch.Options{Dial: netguard.New(policy).DialContext, MaxConnsPerHost: gateInFlight},
		RedisURL: g.url, RedisObserve: g.observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, st
}

func gateSources(t *testing.T) crawl.Sources {
	t.Helper()
	all, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// gateUsage is what was used up to a moment.
type gateUsage struct {
	redis         gauge
	trips         float64
	allocs, bytes float64
}

func (g *gate) mark(t *testing.T) gateUsage {
	t.Helper()
	m := gateUsage{trips: float64(g.trips.Load())}
	var err error
	if m.redis, err = look(t.Context(), g.rdb); err != nil {
		t.Fatal(err)
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.allocs, m.bytes = float64(mem.Mallocs), float64(mem.TotalAlloc)
	return m
}

// less answers what was used since an earlier mark.
func (m gateUsage) less(e gateUsage) gateUsage {
	return gateUsage{m.redis.less(e.redis), m.trips - e.trips, m.allocs - e.allocs, m.bytes - e.bytes}
}

// enter puts what one of n things used into found, where it is less than what is there.
func (m gateUsage) enter(found map[string]float64, thing string, n float64) {
	for figure, v := range map[string]float64{
		"allocations": m.allocs, "allocated bytes": m.bytes, "round trips": m.trips, "commands": m.redis.commands,
		"bytes to and from Redis": m.redis.received + m.redis.sent,
	} {
		figure += " " + thing
		if before, ok := found[figure]; !ok || v/n < before {
			found[figure] = v / n
		}
	}
}

// crawls measures a page of a large job.
func (g *gate) crawls(t *testing.T, found map[string]float64) {
	t.Helper()
	for range gateCrawls {
		p, st := g.worker(t, gatePages)
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		begun := g.mark(t)
		job := g.crawl(t)
		st.finish(t)
		g.mark(t).less(begun).enter(found, "a page", gatePages)
		gateStop(t, p)
		g.ended(t, job, gatePages)
	}
}

// crawl submits a job for all pages of the site.
func (g *gate) crawl(t *testing.T) crawl.JobRef {
	t.Helper()
	job := crawl.JobRef{Tenant: tenant, ID: crawl.NewJobID(tenant, "")}
	seed, err := crawl.ParseURL(g.site.url(0) + "/p/0")
	if err != nil {
		t.Fatal(err)
	}
	made, err := g.st.Create(t.Context(), store.NewJob{
		Job: job, Spec: []byte(`{}`), Quota: crawl.Quota{MaxRunning: 100}, Inputs: []crawl.Input{{URL: seed}},
		Plan: crawl.Plan{
			Site: true, Scope: "host", Seeds: []string{seed.String()}, Sources: []string{"*"}, MaxPages: 1_000_000,
			MaxDepth: 100, Concurrency: gateInFlight, HostConcurrency: gateInFlight, Retention: time.Hour,
		},
	})
	if err == nil {
		err = g.bell.Ring(t.Context(), made.Rings...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// ended fails the test unless a job ended with so many pages accepted.
func (g *gate) ended(t *testing.T, job crawl.JobRef, pages int64) {
	t.Helper()
	j, err := g.quiet.Job(t.Context(), job)
	if err != nil || j.State != crawl.Completed || j.Accepted != pages {
		t.Fatalf("job %s is %s with %d pages of %d, %v", job.ID, j.State, j.Accepted, pages, err)
	}
}

// jobs measures a submission, and what a job of one page costs from there to its end. All are submitted before the
// worker starts, so that none is waited for.
func (g *gate) jobs(t *testing.T, found map[string]float64) {
	t.Helper()
	api := g.api(t)
	g.submit(t, api) // what the first one has to learn is not the second one's
	p, st := g.worker(t, gateJobs+1)
	begun := g.mark(t)
	jobs := make([]crawl.JobRef, gateJobs)
	for i := range jobs {
		jobs[i] = g.submit(t, api)
	}
	submitted := g.mark(t).less(begun)
	submitted.enter(found, "a submission", gateJobs)
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	st.finish(t)
	gateStop(t, p)
	g.mark(t).less(begun).enter(found, "a job of one page", gateJobs+1)
	for _, job := range jobs {
		g.ended(t, job, 1)
	}
}

// gateKey is the API key of the tenant.
const gateKey = "a-key-of-the-gate-that-opens-no-other"

// api is the handler of an API.
func (g *gate) api(t *testing.T) http.Handler {
	t.Helper()
	limits := crawl.DefaultLimits()
	limits.HostDelay, limits.HostConcurrency = 0, gateInFlight
	s, err := httpapi.New(httpapi.Options{
		Jobs: g.st, Collections: g.st, Tenants: g.st, Doorbell: g.bell, Keys: map[string][]string{tenant: {gateKey}},
		Sources: gateSources(t), Limits: limits, Quota: crawl.Quota{MaxRunning: 10 * gateJobs},
		Logger: slog.New(slog.DiscardHandler), Registry: obs.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// submit submits a job of one page.
func (g *gate) submit(t *testing.T, api http.Handler) crawl.JobRef {
	t.Helper()
	body := `{"urls":["` + g.site.url(0) + `/p/1"]}`
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/jobs", strings.NewReader(body))
	r.Header.Set("X-API-Key", gateKey)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	var answer struct {
		ID string `json:"job_id"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); w.Code != http.StatusAccepted || err != nil || answer.ID == "" {
		t.Fatalf("a submission was answered %d: %s", w.Code, w.Body)
	}
	return crawl.JobRef{Tenant: tenant, ID: answer.ID}
}

// memory measures what a discovered URL and a record take in Redis, in a job a tenth of whose URLs were fetched.
func (g *gate) memory(t *testing.T, found map[string]float64) {
	t.Helper()
	job := crawl.JobRef{Tenant: "memory", ID: crawl.NewJobID("memory", "")}
	_, err := g.quiet.Create(t.Context(), store.NewJob{
		Job: job, Spec: []byte(`{}`), Quota: crawl.Quota{MaxRunning: 1}, Inputs: []crawl.Input{{URL: gateURL(t, 0)}},
		Plan: crawl.Plan{
			Site: true, Scope: "any", Sources: []string{"*"}, MaxPages: gateURLs, MaxDepth: 1 << 20, Concurrency: gateInFlight,
			HostConcurrency: gateInFlight, Retention: time.Hour,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sl, _, err := g.quiet.Begin(t.Context(), crawl.Ring{JobRef: job})
	if err != nil || sl == nil {
		t.Fatalf("no slice began, %v", err)
	}
	pages, known := 0, 1
	for x := (store.Exchange{Lease: batchOfGate}); known < gateURLs; {
		out, err := g.quiet.Exchange(t.Context(), sl, x)
		if err != nil || len(out.Items) == 0 {
			t.Fatalf("%d URLs of %d: no more pages, %v", known, gateURLs, err)
		}
		x = store.Exchange{Lease: batchOfGate}
		for _, it := range out.Items {
			x.Commits = append(x.Commits, g.committed(t, it, known))
			known, pages = known+linksOfGate, pages+1
		}
		if known >= gateURLs {
			x.Lease = 0
			_, err = g.quiet.Exchange(t.Context(), sl, x)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	records, err := memoryOf(t.Context(), g.rdb, "*{t:memory}*:rec:*")
	if err != nil {
		t.Fatal(err)
	}
	all, err := memoryOf(t.Context(), g.rdb, "*{t:memory}*")
	if err != nil {
		t.Fatal(err)
	}
	found["bytes in Redis a record"] = records / float64(pages)
	found["bytes in Redis a URL"] = (all - records) / float64(known)
}

const (
	batchOfGate = 16
	linksOfGate = 10 // new ones a page, so that a tenth is fetched when all are known
)

// gateURL is the n-th URL of a site that is not there, 60 bytes long.
func gateURL(t *testing.T, n int) crawl.URL {
	t.Helper()
	u, err := crawl.ParseURL(fmt.Sprintf("https://docs.example.org/a/section/of/some/depth/p%08d/x", n))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// committed is the outcome of a page with links to URLs that are not known yet, from the first on.
func (g *gate) committed(t *testing.T, it crawl.Item, first int) store.Commit {
	t.Helper()
	u, err := crawl.ParseURL(it.URL)
	if err != nil {
		t.Fatal(err)
	}
	a := &store.Accepted{Final: u.Key(), Page: crawl.Page{
		SourceURL: it.URL, URL: it.URL, Status: 200, Title: "A page of the documentation", FetchedAt: time.Now().UTC(),
		DurationMS: 12, Bytes: 6000, ContentType: "text/html; charset=utf-8", Charset: "utf-8", Language: "en",
	}}
	for n := range linksOfGate {
		link := gateURL(t, first+n)
		a.Links = append(a.Links, crawl.Link{URL: link, Key: link.Key()})
	}
	return store.Commit{Item: it, Accepted: a}
}

// finish waits until all pages are committed.
func (s *gateStore) finish(t *testing.T) {
	t.Helper()
	late := time.NewTimer(2 * time.Minute)
	defer late.Stop()
	select {
	case <-s.all:
	case <-late.C:
		t.Fatalf("%d pages are missing after two minutes", s.left.Load())
	}
}

// gateStop stops a worker.
func gateStop(t *testing.T, p *crawler.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}
