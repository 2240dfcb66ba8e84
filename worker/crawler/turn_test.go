package crawler_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

// list is a plan for a list of URLs.
func list(concurrency int) crawl.Plan {
	return crawl.Plan{Scope: "any", MaxPages: 1000, Concurrency: concurrency, IgnoreRobots: true}
}

// Whatever can become of a page is recorded under its name, with what it took.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	var flaky atomic.Int32
	other := crawltest.NewSite(t, []byte("-- landing --\n<title>Other</title>"))
	s := crawltest.NewSite(t, []byte(strings.ReplaceAll(`
-- ok --
<title>Fine</title>
-- moved --
status: 301
header: Location: /ok

-- away --
status: 302
header: Location: OTHER/landing

-- gone --
status: 410

-- loop --
status: 302
header: Location: /loop

`, "OTHER", other.URL)))
	f := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if flaky.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	b.worker(t, nil)
	job := b.submit(t, list(1), s.URL+"/ok", s.URL+"/moved", s.URL+"/away", s.URL+"/gone", s.URL+"/loop", f.URL+"/")
	j := b.ended(t, job, 30*time.Second)
	if j.State != crawl.CompletedWithErrors {
		t.Errorf("ended as %s", j.State)
	}
	if d := cmp.Diff(map[crawl.Code]int64{"http_410": 1, crawl.CodeRedirectLoop: 1}, j.FailedByType); d != "" {
		t.Errorf("failed (-want +got):\n%s", d)
	}
	// One of /ok and /moved ended at /ok first; the other is its alias.
	if d := cmp.Diff(map[crawl.Reason]int64{crawl.SkipAlias: 1}, j.SkippedByReason); d != "" {
		t.Errorf("skipped (-want +got):\n%s", d)
	}
	got := map[string]int{}
	for _, p := range b.records(t, job) {
		got[p.URL] = p.Attempts
	}
	want := map[string]int{s.URL + "/ok": 1, other.URL + "/landing": 1, f.URL + "/": 3}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("records and attempts (-want +got):\n%s", d)
	}
	failures, err := b.store.Failures(t.Context(), job, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range failures.Failures {
		if x.Message == "" || x.At.IsZero() || x.Attempts != 1 || x.Status != 0 && x.Headers["content-type"] == "" {
			t.Errorf("failure without a word for a person: %+v", x)
		}
	}
}

// stuck is a site whose pages never answer: /fast does.
func stuck(t *testing.T) (site *crawltest.Site, aborted chan string) {
	t.Helper()
	aborted = make(chan string, 100)
	return crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fast" {
			return
		}
		<-r.Context().Done()
		aborted <- r.URL.Path
	})), aborted
}

// A cancel aborts requests in flight and ends the job well within its bound, without
// any revocation (promise 6, JOB-09).
func TestCancelAborts(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s, aborted := stuck(t)
	b.worker(t, nil)
	job := b.submit(t, list(3), s.URL+"/fast", s.URL+"/a", s.URL+"/b", s.URL+"/c", s.URL+"/d", s.URL+"/e")
	s.Await(10*time.Second, "/a", 1)
	s.Await(10*time.Second, "/b", 1)
	begun := time.Now()
	if r, err := b.store.Cancel(t.Context(), job); err != nil || r.State != crawl.Cancelling {
		t.Fatalf("cancel: %+v, %v", r, err)
	}
	j := b.ended(t, job, 5*time.Second)
	t.Logf("cancelled after %v", time.Since(begun))
	if j.State != crawl.Cancelled || j.Accepted != 1 || j.Cancelled != 5 || j.StopReason != crawl.StopCancelled {
		t.Errorf("ended as %+v", j)
	}
	for range len(s.Requests()) - 1 {
		crawltest.Receive(t, 5*time.Second, "the end of a request in flight", aborted)
	}
	if p := b.records(t, job); len(p) != 1 {
		t.Errorf("%d records are readable", len(p))
	}
}

// A stopping worker gives its requests a grace, then gives their URLs back with no
// attempt burnt; another worker goes on with them (JOB-15).
func TestStopGivesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	var open atomic.Bool
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if !open.Load() {
			<-r.Context().Done()
		}
	}))
	first := b.worker(t, func(o *crawler.ProcessOptions) { o.Grace = 50 * time.Millisecond })
	job := b.submit(t, list(4), s.URL+"/a", s.URL+"/b", s.URL+"/c")
	for _, p := range []string{"/a", "/b", "/c"} {
		s.Await(10*time.Second, p, 1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := first.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	j, err := b.store.Job(t.Context(), job)
	if err != nil || j.Queued != 3 || j.Active != 0 || !j.Consistent() {
		t.Fatalf("after the stop: %+v, %v", j, err)
	}
	open.Store(true)
	b.worker(t, nil)
	if j := b.ended(t, job, 30*time.Second); j.State != crawl.Completed || j.Accepted != 3 {
		t.Errorf("ended as %+v", j)
	}
	for _, p := range b.records(t, job) {
		if p.Attempts != 1 {
			t.Errorf("%s took %d attempts", p.URL, p.Attempts)
		}
	}
}

// What a stopping worker has in flight may end within the grace.
func TestStopWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	goOn := make(chan struct{})
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-goOn }))
	w := b.worker(t, func(o *crawler.ProcessOptions) { o.Grace = time.Minute })
	job := b.submit(t, list(1), s.URL+"/a", s.URL+"/b")
	s.Await(10*time.Second, "/a", 1)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Stop(t.Context()) }()
	close(goOn)
	if err := crawltest.Receive(t, 30*time.Second, "the stop of the worker", stopped); err != nil {
		t.Fatal(err)
	}
	j, err := b.store.Job(t.Context(), job)
	// The stop may come before or after /b is leased; what was asked for is never dropped.
	if err != nil || j.Accepted != int64(len(s.Requests())) || j.Accepted+j.Queued != 2 {
		t.Errorf("after the stop: %+v, %v", j, err)
	}
}

// A page whose fetch panics is recorded as failed and takes nothing with it (JOB-24).
func TestPanic(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewHandlerSite(t, gensite.New(10, 3, 500, 0))
	b.worker(t, func(o *crawler.ProcessOptions) {
		f, err := fetch.New(o.Fetch)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		o.Fetcher = panics{f}
	})
	urls := []string{s.URL + "/boom"}
	for i := range 10 {
		urls = append(urls, s.URL+"/p/"+string(rune('0'+i)))
	}
	j := b.ended(t, b.submit(t, list(4), urls...), 30*time.Second)
	if j.State != crawl.CompletedWithErrors || j.Accepted != 10 || j.FailedByType[crawl.CodeInternal] != 1 {
		t.Errorf("ended as %+v", j)
	}
}

type panics struct{ crawler.Fetcher }

func (p panics) Fetch(ctx context.Context, req fetch.Request) (fetch.Result, error) {
	if req.URL.Path() == "/boom" {
		panic("boom")
	}
	return p.Fetcher.Fetch(ctx, req)
}

// The job's own concurrency holds across workers, and the host's across jobs.
func TestConcurrencyHolds(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	var now, most atomic.Int32
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select { // the time that a page takes
		case <-r.Context().Done():
		case <-time.After(20 * time.Millisecond):
		}
	}))
	for range 3 {
		b.worker(t, nil)
	}
	urls := func(kind string) []string {
		var out []string
		for i := range 40 {
			out = append(out, s.URL+"/"+kind+string(rune('0'+i/10))+string(rune('0'+i%10)))
		}
		return out
	}
	plan := list(16)
	plan.HostConcurrency = 3
	one, two := b.submit(t, plan, urls("a")...), b.submit(t, plan, urls("b")...)
	for _, job := range []crawl.JobRef{one, two} {
		if j := b.ended(t, job, 60*time.Second); j.Accepted != 40 {
			t.Errorf("ended as %+v", j)
		}
	}
	if got := most.Load(); got != 3 {
		t.Errorf("%d requests at once on a host of 3", got)
	}
}

// Requests to one host are as far apart as its delay asks, whichever worker makes them.
func TestDelayHolds(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.worker(t, nil)
	b.worker(t, nil)
	plan := list(8)
	plan.Delay = 100 * time.Millisecond
	var urls []string
	for i := range 10 {
		urls = append(urls, s.URL+"/"+string(rune('0'+i)))
	}
	job := b.submit(t, plan, urls...)
	if j := b.ended(t, job, 60*time.Second); j.Accepted != 10 {
		t.Fatalf("ended as %+v", j)
	}
	log := s.Requests()
	// Each gap can be off by a late timer, their sum cannot.
	if took := log[len(log)-1].At.Sub(log[0].At); took < 9*100*time.Millisecond-30*time.Millisecond {
		t.Errorf("10 requests within %v", took)
	}
}

// A slice whose lease was taken from it drops what it has and records nothing.
func TestLostSlice(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s, aborted := stuck(t)
	b.worker(t, func(o *crawler.ProcessOptions) { o.Store = usurped{o.Store} })
	job := b.submit(t, list(1), s.URL+"/a")
	crawltest.Receive(t, 30*time.Second, "the end of a request of a lost slice", aborted)
	j, err := b.store.Job(t.Context(), job)
	if err != nil || j.Processed != 0 || !j.Consistent() {
		t.Errorf("after the loss: %+v, %v", j, err)
	}
}

// usurped tells every slice at its first renewal that it is lost.
type usurped struct{ crawler.Store }

func (usurped) Renew(context.Context, *store.Slice, ...store.HostSlots) (store.Renewed, error) {
	return store.Renewed{Lost: true}, nil
}

// Redirects are checked hop by hop: what the job's rules leave out is never asked for
// (RED-04, RED-06).
func TestRedirectOutOfScope(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	other := crawltest.NewSite(t, []byte("-- x --\n<a href=/y>y</a>"))
	s := crawltest.NewSite(t, []byte(strings.ReplaceAll(`
-- seed --
<a href=/go>1</a><a href=/two>2</a><a href=/fine>3</a>
-- go --
status: 301
header: Location: OTHER/x

-- two --
status: 302
header: Location: /three

-- three --
status: 302
header: Location: OTHER/x

-- fine --
<title>fine</title>
`, "OTHER", other.URL)))
	b.worker(t, nil)
	plan := site(100, 5, 4)
	j := b.ended(t, b.submit(t, plan, s.URL+"/seed"), 30*time.Second)
	if j.State != crawl.Completed || j.Accepted != 2 || j.SkippedByReason[crawl.SkipRedirectOutOfScope] != 2 {
		t.Errorf("ended as %+v", j)
	}
	if n := len(other.Requests()); n != 0 {
		t.Errorf("%d requests went out of scope", n)
	}
	j = b.ended(t, b.submit(t, plan, s.URL+"/go"), 30*time.Second)
	if j.State != crawl.Failed || j.StopReason != crawl.StopSeedFailed || j.Total != 1 {
		t.Errorf("a seed that leads out of scope: %+v", j)
	}
	if want := s.URL + "/go redirects to " + other.URL + "/x, which the scope of the job leaves out."; j.Error != want {
		t.Errorf("it says %q, want %q", j.Error, want)
	}
	j = b.ended(t, b.submit(t, plan, s.URL+"/none"), 30*time.Second)
	if want := s.URL + "/none: The server answered 404 Not Found."; j.State != crawl.Failed || j.Error != want {
		t.Errorf("a seed that is not there: %s, %q, want %q", j.State, j.Error, want)
	}
}

// The page limit is exact however many workers share it, and failed pages count
// (TRP-05, RED-13).
func TestPageLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	gen := gensite.New(2000, 50, 4000, 5*time.Millisecond)
	var asked atomic.Int32
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := asked.Add(1); n > 1 && n%2 == 0 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		gen.ServeHTTP(w, r)
	}))
	b.worker(t, nil)
	b.worker(t, nil)
	j := b.ended(t, b.submit(t, site(20, 100, 16), s.URL+"/p/0"), 30*time.Second)
	if j.Total != 20 || asked.Load() != 20 || j.Accepted+j.Failed != 20 || j.StopReason != crawl.StopPageLimit {
		t.Errorf("%d requests, ended as %+v", asked.Load(), j)
	}
}

// Several jobs share a small worker; a big one does not keep a small one waiting.
func TestRoomIsShared(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s, _ := stuck(t)
	b.worker(t, func(o *crawler.ProcessOptions) { o.Concurrency = 4 })
	var urls []string
	for i := range 30 {
		urls = append(urls, s.URL+"/slow"+string(rune('a'+i)))
	}
	big := b.submit(t, list(30), urls...)
	s.Await(10*time.Second, "/slowa", 1)
	small := b.submit(t, list(1), s.URL+"/fast")
	// The big job holds all four places, and its pages never end: the small one can
	// only have the place that a cancel frees.
	if _, err := b.store.Cancel(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	if j := b.ended(t, small, 20*time.Second); j.Accepted != 1 {
		t.Errorf("ended as %+v", j)
	}
	b.ended(t, big, 20*time.Second)
}

// A job whose only host takes no request for a while holds no slice meanwhile, and is
// not moved through the frontier over and over.
func TestShutHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		for i := range 500 {
			_, _ = io.WriteString(w, "<a href=/"+strconv.Itoa(i)+">x</a>") // the client reads it
		}
	}))
	b.worker(t, nil)
	plan := site(1000, 5, 8)
	plan.Delay = time.Minute
	job := b.submit(t, plan, s.URL+"/0")
	s.Await(10*time.Second, "/0", 1)
	var j crawl.Job
	crawltest.Eventually(t, 10*time.Second, "the job to wait for its host", func() bool {
		var err error
		if j, err = b.store.Job(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		return j.WaitingFor == "host_delay"
	})
	if j.Accepted != 1 || j.Active != 0 || j.Queued < 450 || j.Deferred == 0 || !j.Consistent() {
		t.Errorf("while it waits: %+v", j)
	}
	if r, err := b.store.Cancel(t.Context(), job); err != nil || r.State != crawl.Cancelled {
		t.Errorf("cancel of a waiting job: %+v, %v", r, err)
	}
}

// skewed is a desk whose clock is not this process's.
type skewed struct {
	*desk
	ahead time.Duration
}

func (s *skewed) Begin(_ context.Context, r crawl.Ring) (*store.Slice, []crawl.Ring, error) {
	return &store.Slice{Job: r.JobRef, Gen: 1, Plan: s.plan, Ahead: s.ahead}, nil, nil
}

// half is a fetcher to whom every other page fails.
type half struct{ slow }

func (h half) Fetch(_ context.Context, req fetch.Request) (fetch.Result, error) {
	page := crawl.Page{URL: req.URL.String(), Status: http.StatusOK, FetchedAt: time.Now()}
	if req.URL.Path() == "/fails" {
		return fetch.Result{Page: page}, &crawl.Fault{Code: crawl.CodeTLS, Message: "It fails."}
	}
	return fetch.Result{Page: page, Final: req.URL}, nil
}

// JOB-23: records and failures have the time of the store, whatever this machine's clock says.
func TestRecordsHaveTheStoresTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var commits []store.Commit
		leased := false
		d := &skewed{ahead: -90 * time.Second, desk: &desk{
			exchange: func(x store.Exchange) store.Exchanged {
				out := grantAll(x)
				commits = append(commits, x.Commits...)
				if x.Lease > 0 && !leased {
					leased = true
					out.Items = items("http://a.test/", "http://a.test/fails")
				}
				return out
			},
		}}
		d.plan = crawl.Plan{
			IgnoreRobots: true, Scope: "any", MaxPages: 100, Concurrency: 8, HostConcurrency: 8, Sources: []string{"*"},
			Retention: time.Hour,
		}
		sources, err := crawl.ParseSources("*")
		if err != nil {
			t.Fatal(err)
		}
		c := crawler.New(crawler.Options{
			Store: d, Doorbell: d, Fetcher: half{}, Logger: slog.New(slog.DiscardHandler), Sources: sources,
			Concurrency: 8, HostConcurrency: 8,
		})
		begun := time.Now()
		if err := c.Serve(t.Context(), crawl.Ring{JobRef: crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "")}}); err != nil {
			t.Error(err)
		}
		told := 0
		for _, commit := range commits {
			var at time.Time
			switch {
			case commit.Accepted != nil:
				at = commit.Accepted.Page.FetchedAt
			case commit.Failed != nil:
				at = commit.Failed.At
			default:
				continue
			}
			told++
			if late := at.Sub(begun); late < d.ahead || late > d.ahead+10*time.Second {
				t.Errorf("recorded %v after the beginning, want about %v: %+v", late, d.ahead, commit)
			}
		}
		if told != 2 {
			t.Errorf("%d outcomes of %+v", told, commits)
		}
	})
}
