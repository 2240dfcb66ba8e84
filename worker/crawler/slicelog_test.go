package crawler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

// journal is a log that a test reads while workers write.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// entry is what the log has of a slice.
type entry struct {
	Level, Msg, Tenant, Ended, Panic string
	JobID                            string `json:"job_id"`
	Slice                            int64
	Took                             *int64 `json:"took_ms"`
	Pages, Accepted, Failed, Skipped int64
	Released, Leased                 int64
}

func (j *journal) entries(t *testing.T) (all []entry) {
	t.Helper()
	for line := range strings.Lines(j.String()) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// fate is a desk that does with a slice what a test says.
type fate struct {
	*desk
	renewed store.Renewed
	fails   error // of the second exchange and those after it
	calls   int
}

func (f *fate) Renew(context.Context, *store.Slice, ...store.HostSlots) (store.Renewed, error) {
	return f.renewed, nil
}

func (f *fate) Exchange(ctx context.Context, sl *store.Slice, x store.Exchange) (store.Exchanged, error) {
	if f.calls++; f.fails != nil && f.calls > 1 {
		return store.Exchanged{}, f.fails
	}
	return f.desk.Exchange(ctx, sl, x)
}

// A slice is one event, at its end, with the job that it was about and why it ended.
func TestSliceEvent(t *testing.T) {
	t.Parallel()
	running := store.Renewed{State: crawl.Running}
	for _, tt := range []struct {
		name    string
		pages   int // 0: without end
		fetch   time.Duration
		renewed store.Renewed
		fails   error
		do      func(c *crawler.Crawler, recall func())
		level   string
		plan    func(*crawl.Plan)
	}{
		{name: "no work", pages: 3, fetch: time.Second, renewed: running},
		{name: "budget", fetch: time.Second, renewed: running},
		{name: "cancelled", fetch: time.Minute, renewed: store.Renewed{State: crawl.Cancelling}},
		{name: "paused", fetch: 4 * time.Second, renewed: store.Renewed{State: crawl.Paused}},
		{name: "lost", fetch: time.Minute, renewed: store.Renewed{Lost: true}, level: "WARN"},
		{name: "draining", fetch: time.Second, renewed: running, do: func(c *crawler.Crawler, _ func()) { c.Drain() }},
		{name: "recalled", fetch: time.Minute, renewed: running, do: func(_ *crawler.Crawler, recall func()) { recall() }},
		{name: "error", fetch: time.Second, renewed: running, fails: errors.New("a defect"), level: "WARN"},
		{name: "error", renewed: running, level: "WARN", plan: func(p *crawl.Plan) { p.Include = []string{"re:("} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var leased int
				d := &desk{exchange: func(x store.Exchange) store.Exchanged {
					out := grantAll(x)
					for range x.Lease {
						if tt.pages == 0 || leased < tt.pages {
							leased++
							out.Items = append(out.Items, crawl.Item{Kind: crawl.ItemPage, N: int64(leased), URL: "http://a.test/" + strings.Repeat("x", leased)})
						}
					}
					if tt.pages == 0 {
						out.Queued = 1
					}
					return out
				}}
				d.plan = crawl.Plan{
					IgnoreRobots: true, Scope: "any", MaxPages: 1000, Concurrency: 8, HostConcurrency: 8,
					Sources: []string{"*"}, Retention: time.Hour,
				}
				if tt.plan != nil {
					tt.plan(&d.plan)
				}
				f := &fate{desk: d, renewed: tt.renewed, fails: tt.fails}
				var j journal
				sources, err := crawl.ParseSources("*")
				if err != nil {
					t.Fatal(err)
				}
				reg := prometheus.NewPedanticRegistry()
				c := crawler.New(crawler.Options{
					Metrics: crawler.NewMetrics(reg),
					Store:   f, Doorbell: d, Fetcher: slow(tt.fetch), Logger: j.logger(), Sources: sources, Concurrency: 8, HostConcurrency: 8,
				})
				ctx, recall := context.WithCancel(t.Context())
				defer recall()
				if tt.do != nil {
					defer time.AfterFunc(1500*time.Millisecond, func() { tt.do(c, recall) }).Stop()
				}
				job := crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "")}
				if err := c.Serve(ctx, crawl.Ring{JobRef: job}); (err != nil) != (tt.name == "error") {
					t.Error(err)
				}
				all := j.entries(t)
				if len(all) != 1 {
					t.Fatalf("%d events: %s", len(all), j.String())
				}
				e, level := all[0], "INFO"
				if tt.level != "" {
					level = tt.level
				}
				if e.Msg != "slice" || e.Level != level || e.Ended != tt.name || e.JobID != job.ID || e.Tenant != "t" ||
					e.Slice != 1 || e.Took == nil || e.Leased != int64(leased) {
					t.Errorf("%+v of %d leased: %s", e, leased, j.String())
				}
				if e.Accepted != e.Pages || tt.pages > 0 && e.Pages != int64(tt.pages) || tt.name == "cancelled" && e.Released != e.Leased {
					t.Errorf("counts: %s", j.String())
				}
				// What is broken off goes back, but for what was lost: others have that.
				back, lost := float64(e.Released), 0.0
				if tt.name == "lost" {
					back, lost = 0, back
				}
				if got := series(t, reg); got["pages_total released"] != back || got["pages_total stale"] != lost ||
					tt.fetch == time.Minute && back+lost != float64(leased) {
					t.Errorf("%v released, %v stale; want %v and %v: %s", got["pages_total released"], got["pages_total stale"],
						back, lost, j.String())
				}
			})
		})
	}
}

// The counts of the slices of a job make up those of the job; a panic names it, and no secret of
// its URLs is in the log (URL-08).
func TestSliceEventCounts(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewSite(t, []byte(`
-- ok --
<title>Fine</title>
-- moved --
status: 301
header: Location: /ok

-- gone --
status: 410

-- noindex --
<meta name="robots" content="noindex">
-- boom --
never fetched
`))
	var j journal
	b.worker(t, func(o *crawler.ProcessOptions) {
		f, err := fetch.New(o.Fetch)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		o.Logger, o.Fetcher = j.logger(), tellsAll{f}
	})
	const token = "?token=hunter2hunter2"
	ref := b.submit(t, crawl.Plan{Scope: "any", MaxPages: 100, Concurrency: 4},
		s.URL+"/ok", s.URL+"/moved"+token, s.URL+"/gone"+token, s.URL+"/noindex"+token, s.URL+"/boom"+token, s.URL+"/odd"+token)
	job := b.ended(t, ref, 30*time.Second)
	t.Cleanup(func() { t.Logf("%+v\n%s", job, j.String()) })
	var slices, accepted, failed, skipped int64
	crawltest.Eventually(t, 30*time.Second, "all counts are logged", func() bool {
		slices, accepted, failed, skipped = 0, 0, 0, 0
		for _, e := range j.entries(t) {
			if e.Msg == "slice" {
				slices, accepted, failed, skipped = slices+1, accepted+e.Accepted, failed+e.Failed, skipped+e.Skipped
			}
		}
		return slices > 0 && accepted == job.Accepted && failed == job.Failed && skipped == job.Skipped
	})
	if job.Accepted != 1 || job.Failed != 3 || job.Skipped != 2 {
		t.Errorf("the job ends as %+v", job)
	}
	var panics, nameless int
	for _, e := range j.entries(t) {
		switch e.Msg {
		case "panic while a page was visited":
			panics++
		case "a page failed in a way that has no name":
			nameless++
		case "slice":
		default:
			continue
		}
		if e.JobID != ref.ID || e.Tenant != ref.Tenant || e.Slice == 0 {
			t.Errorf("%+v does not name its job", e)
		}
	}
	if panics != 1 || nameless != 1 {
		t.Errorf("%d panics, %d errors without a name: %s", panics, nameless, j.String())
	}
	if strings.Contains(j.String(), "hunter2hunter2") {
		t.Errorf("a secret is in the log: %s", j.String())
	}
}

// tellsAll panics with the URL that it was to fetch, or fails with it.
type tellsAll struct{ crawler.Fetcher }

func (f tellsAll) Fetch(ctx context.Context, req fetch.Request) (fetch.Result, error) {
	switch req.URL.Path() {
	case "/boom":
		panic("boom at " + req.URL.String())
	case "/odd":
		return fetch.Result{}, errors.New(`Get "` + req.URL.String() + `": ` + http.StatusText(http.StatusTeapot))
	}
	return f.Fetcher.Fetch(ctx, req)
}
