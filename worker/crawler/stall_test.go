package crawler_test

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

// desk is a store and a doorbell of one job whose answers a test gives. It does no
// I/O, so that a slice lives in the time of a synctest bubble.
type desk struct {
	plan     crawl.Plan
	exchange func(store.Exchange) store.Exchanged
	renew    func()
	waiting  func(context.Context) (int64, error)
	pressure func() float64
	rests    func(time.Duration, string) // told by EndWaiting
	fails    func(store.Exchange) error
	paused   func() bool
}

func (d *desk) Begin(_ context.Context, r crawl.Ring) (*store.Slice, []crawl.Ring, error) {
	return &store.Slice{Job: r.JobRef, Gen: 1, Plan: d.plan}, nil, nil
}

func (d *desk) Renew(context.Context, *store.Slice, ...store.HostSlots) (store.Renewed, error) {
	if d.renew != nil {
		d.renew()
	}
	return store.Renewed{State: d.state()}, nil
}

func (d *desk) state() crawl.State {
	if d.paused != nil && d.paused() {
		return crawl.Paused
	}
	return crawl.Running
}

func (d *desk) Exchange(_ context.Context, _ *store.Slice, x store.Exchange) (store.Exchanged, error) {
	out := d.exchange(x)
	if d.fails != nil {
		if err := d.fails(x); err != nil {
			return store.Exchanged{}, err
		}
	}
	for range x.Commits {
		out.Committed = append(out.Committed, store.Committed{Verdict: store.Done})
	}
	if x.Lease > 0 {
		out.State = d.state()
	}
	return out, nil
}

func (d *desk) End(context.Context, *store.Slice, time.Duration) ([]crawl.Ring, error) {
	return nil, nil
}

func (d *desk) EndWaiting(_ context.Context, _ *store.Slice, rest time.Duration, what string) ([]crawl.Ring, error) {
	if d.rests != nil {
		d.rests(rest, what)
	}
	return nil, nil
}

func (d *desk) Pressure(context.Context, string) float64 {
	if d.pressure != nil {
		return d.pressure()
	}
	return 0
}

func (d *desk) Visited(context.Context, *store.Slice, crawl.URL) (*store.Visit, error) {
	return nil, nil
}
func (d *desk) Sweep(context.Context) (store.Swept, error) { return store.Swept{}, nil }
func (d *desk) Ring(context.Context, ...crawl.Ring) error  { return nil }
func (d *desk) Waiting(ctx context.Context) (int64, error) {
	if d.waiting != nil {
		return d.waiting(ctx)
	}
	return 0, nil
}

// grantAll answers every reserve in full.
func grantAll(x store.Exchange) (out store.Exchanged) {
	out.NextDue = -1
	for _, r := range x.Reserves {
		out.Grants = append(out.Grants, store.HostGrant{
			Host: r.Host, First: r.First, Starts: make([]time.Duration, r.N),
		})
	}
	return out
}

// slow fetches nothing before the given time has passed.
type slow time.Duration

func (s slow) Fetch(ctx context.Context, req fetch.Request) (fetch.Result, error) {
	wait := time.NewTimer(time.Duration(s))
	defer wait.Stop()
	select {
	case <-wait.C:
		return fetch.Result{Page: crawl.Page{URL: req.URL.String(), Status: http.StatusOK}, Final: req.URL}, nil
	case <-ctx.Done():
		return fetch.Result{}, ctx.Err()
	}
}

// Raw finds nothing: a robots.txt that is not there allows all.
func (slow) Raw(context.Context, fetch.RawRequest) (fetch.Raw, error) {
	return fetch.Raw{Status: http.StatusNotFound}, nil
}

// ClaimRobots knows of no rules.
func (d *desk) ClaimRobots(context.Context, crawl.URL, string) (store.Robots, error) {
	return store.Robots{Standing: store.RobotsToFetch}, nil
}

// LearnRobots keeps nothing.
func (d *desk) LearnRobots(_ context.Context, _ crawl.URL, _, _ string, f store.RobotsFetch) (store.Robots, error) {
	return store.Robots{Standing: store.RobotsKnown, Rules: f.Rules, Wait: store.RobotsAge}, nil
}

// serve has a slice served to its end.
func (d *desk) serve(t *testing.T, f crawler.Fetcher) { t.Helper(); serveOn(t, d, d, f) }

// serveOn is serve by another store than the desk itself.
func serveOn(t *testing.T, d *desk, st crawler.Store, f crawler.Fetcher) {
	t.Helper()
	sources, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	d.plan = crawl.Plan{
		IgnoreRobots: true,
		Scope:        "any", MaxPages: 100, Concurrency: 8, HostConcurrency: 8, Sources: []string{"*"},
		Retention: time.Hour,
	}
	c := crawler.New(crawler.Options{
		Store: st, Doorbell: d, Fetcher: f, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Sources: sources, Concurrency: 8, HostConcurrency: 8,
	})
	job := crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "")}
	if err := c.Serve(t.Context(), crawl.Ring{JobRef: job}); err != nil {
		t.Error(err)
	}
}

func items(urls ...string) []crawl.Item {
	out := make([]crawl.Item, len(urls))
	for i, u := range urls {
		out[i] = crawl.Item{Kind: crawl.ItemPage, N: int64(i + 1), URL: u}
	}
	return out
}

// A slice is renewed as often as its lease was made for, also when Redis takes a
// moment to answer, and when the queue, which lives on another shard, does not answer
// at all: otherwise a hung queue takes the leases of every worker.
func TestRenewalsKeepTheirPace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		waiting func(context.Context) (int64, error)
		most    time.Duration
	}{
		{"slow store", nil, store.RenewEvery + store.RenewEvery/6},
		{"hung queue", func(ctx context.Context) (int64, error) {
			wait := time.NewTimer(20 * time.Second)
			defer wait.Stop()
			select {
			case <-wait.C:
			case <-ctx.Done():
			}
			return 0, crawl.Faultf(crawl.CodeUnavailable, "The queue does not answer.")
		}, store.LeaseTime / 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				last, worst := time.Now(), time.Duration(0)
				d := &desk{waiting: c.waiting, renew: func() {
					mu.Lock()
					worst, last = max(worst, time.Since(last)), time.Now()
					mu.Unlock()
					<-time.After(5 * time.Millisecond) // the round trip
				}}
				leased := false
				d.exchange = func(x store.Exchange) store.Exchanged {
					out := grantAll(x)
					if x.Lease > 0 && !leased {
						leased = true
						out.Items = items("http://a.test/")
					}
					return out
				}
				d.serve(t, slow(25*time.Second))
				if worst = max(worst, time.Since(last)); worst > c.most {
					t.Errorf("%v between two renewals, want at most %v", worst, c.most)
				}
			})
		})
	}
}

// What falls due while a slice waits for a slow page is leased: nobody rings for it as
// long as the slice lives.
func TestDueBehindSlowPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, leases, again := time.Now(), 0, time.Duration(0)
		d := &desk{exchange: func(x store.Exchange) store.Exchanged {
			out := grantAll(x)
			if x.Lease == 0 {
				return out
			}
			switch leases++; leases {
			case 1:
				out.Items, out.NextDue = items("http://a.test/slow"), 1500*time.Millisecond
			case 2:
				again = time.Since(begun)
			}
			return out
		}}
		d.serve(t, slow(25*time.Second))
		if again > 5*time.Second {
			t.Errorf("a URL due after 1.5s was asked for after %v", again)
		}
	})
}

// A slice whose host is shared with others tries again although a slot of its own is in
// use: the slot that it waits for may be another's.
func TestSlotOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, leased, reserves, again := time.Now(), false, 0, time.Duration(0)
		d := &desk{exchange: func(x store.Exchange) store.Exchanged {
			var out store.Exchanged
			out.NextDue = -1
			if x.Lease > 0 && !leased {
				leased = true
				out.Items = items("http://a.test/slow", "http://a.test/other")
			}
			for _, r := range x.Reserves {
				g := store.HostGrant{Host: r.Host, First: r.First, Starts: make([]time.Duration, r.N)}
				switch reserves++; reserves {
				case 1: // one of the host's eight is free, others hold seven
					g.Starts, g.Wait = g.Starts[:1], -1
				case 2:
					again = time.Since(begun)
				}
				out.Grants = append(out.Grants, g)
			}
			return out
		}}
		d.serve(t, slow(25*time.Second))
		if again > 5*time.Second {
			t.Errorf("asked for another slot after %v", again)
		}
	})
}

// impatient says that other rings wait, always.
type impatient struct{ crawler.Doorbell }

func (impatient) Waiting(context.Context) (int64, error) { return 1, nil }

// A slice that makes place for others and cannot leave, because of one slow page, does
// not keep the rest of its job waiting for that page.
func TestStraggler(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := 400 * time.Millisecond // the time that a page takes
		if r.URL.Path == "/slow" {
			d = time.Minute
			_ = http.NewResponseController(w).Flush() // a silent server is given up sooner
		}
		select {
		case <-r.Context().Done():
		case <-time.After(d):
		}
	}))
	for range 2 {
		b.worker(t, func(o *crawler.ProcessOptions) { o.Doorbell = impatient{o.Doorbell} })
	}
	urls := []string{s.URL + "/slow"}
	for i := range 20 {
		urls = append(urls, s.URL+"/"+string(rune('a'+i)))
	}
	job := b.submit(t, list(2), urls...)
	crawltest.Eventually(t, 20*time.Second, "all done but the slow page", func() bool {
		j, err := b.store.Job(t.Context(), job)
		return err == nil && j.Accepted >= 20
	})
	if _, err := b.store.Cancel(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}

// A list over two hosts goes on with the one while the other is shut, however many of
// the other's pages come first.
func TestShutHostBeforeOpenOne(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	shut, open := crawltest.NewHandlerSite(t, h), crawltest.NewHandlerSite(t, h)
	b.worker(t, nil)
	var urls []string
	for i := range 60 {
		urls = append(urls, shut.URL+"/"+string(rune('0'+i/10))+string(rune('0'+i%10)))
	}
	plan := list(8)
	plan.Delay = 50 * time.Second
	job := b.submit(t, plan, append(urls, open.URL+"/open")...)
	open.Await(20*time.Second, "/open", 1)
	if _, err := b.store.Cancel(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}

// A worker stops within its bound although Redis hangs: what it could not say, the
// sweep of another worker finds out.
func TestStopWhileRedisHangs(t *testing.T) {
	t.Parallel()
	srv := crawltest.Private(t)
	b := newBench(t, &srv.Redis)
	s, _ := stuck(t)
	w := b.worker(t, func(o *crawler.ProcessOptions) { o.Grace = 100 * time.Millisecond })
	b.submit(t, list(2), s.URL+"/a", s.URL+"/b")
	s.Await(10*time.Second, "/a", 1)
	srv.Freeze()
	t.Cleanup(srv.Thaw)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	begun := time.Now()
	err := w.Stop(ctx)
	// A call under way is not interrupted before its socket gives it up, after 3 s.
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("stopped after %v (%v), 5s were given", took, err)
	}
}

// A host that asks for a pause gets it from all pages of it, not only from the one that
// it told so (promise 8).
func TestRetryAfterIsTheHosts(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	var asked atomic.Int32
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	b.worker(t, nil)
	job := b.submit(t, list(1), s.URL+"/a", s.URL+"/b")
	if j := b.ended(t, job, 30*time.Second); j.Accepted != 2 {
		t.Errorf("ended as %+v", j)
	}
	if log := s.Requests(); log[1].At.Sub(log[0].At) < 1900*time.Millisecond {
		t.Errorf("%s asked for %v after a 429 with Retry-After: 2", log[1].URI, log[1].At.Sub(log[0].At))
	}
}

// However often a host asks to be left alone, in either form, that costs no page a try.
func TestRetryAfterBurnsNoTry(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	var asked atomic.Int32
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch n := asked.Add(1); {
		case n > 2*3:
		case n%2 == 0:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.Header().Set("Retry-After", time.Now().Add(2*time.Second).UTC().Format(http.TimeFormat))
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	b.worker(t, nil)
	job := b.submit(t, list(1), s.URL+"/a")
	if j := b.ended(t, job, time.Minute); j.Accepted != 1 {
		t.Errorf("ended as %+v", j)
	}
	if p := b.records(t, job); len(p) != 1 || p[0].Attempts != 1 {
		t.Errorf("recorded as %+v, want one attempt after %d requests", p, asked.Load())
	}
}

// Two jobs share the slots of a host: the one that came first cannot keep the other
// from it, however many pages it has (promise 8).
func TestSecondJobOfAHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		first, second int // what each job grants the host
		delay         time.Duration
	}{{"same limit", 2, 2, 0}, {"lower limit", 4, 1, 0}, {"booked ahead", 64, 64, 150 * time.Millisecond}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, crawltest.Any(t))
			s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				select { // the time that a page takes
				case <-r.Context().Done():
				case <-time.After(20 * time.Millisecond):
				}
			}))
			b.worker(t, nil)
			b.worker(t, nil)
			var urls []string
			for i := range 4000 {
				urls = append(urls, s.URL+"/"+strconv.Itoa(i))
			}
			plan := list(128)
			plan.MaxPages, plan.HostConcurrency, plan.Delay = 4000, c.first, c.delay
			big := b.submit(t, plan, urls...)
			s.Await(10*time.Second, "/5", 1)
			plan = list(2)
			plan.HostConcurrency, plan.Delay = c.second, c.delay
			small := b.submit(t, plan, s.URL+"/small")
			b.ended(t, small, 20*time.Second)
			if _, err := b.store.Cancel(t.Context(), big); err != nil {
				t.Fatal(err)
			}
		})
	}
}
