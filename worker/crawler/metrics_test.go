package crawler_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/worker/crawler"
)

// series answers every series that is not 0 with its value, of a histogram its count, without
// the prefix of its name.
func series(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "trawl_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if v != 0 {
				out[name] = v
			}
			if h := m.GetHistogram(); h != nil {
				out[name+" sum"] = h.GetSampleSum()
			}
		}
	}
	return out
}

// troubled is a site with one of each outcome: /flaky asks to be left alone the first time,
// /boom fails the first time.
func troubled() http.HandlerFunc {
	var flaky, boom atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		say := func(body string) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, body)
		}
		switch r.URL.Path {
		case "/robots.txt":
			_, _ = io.WriteString(w, "User-agent: *\nDisallow: /private\n")
		case "/":
			say(`<a href="/a">a</a> <a href="/moved">m</a> <a href="/missing">m</a> <a href="/private">p</a>
				<a href="/noindex">n</a> <a href="/flaky">f</a> <a href="/boom">b</a>`)
		case "/a":
			say("<title>A</title>")
		case "/moved":
			http.Redirect(w, r, "/a", http.StatusMovedPermanently)
		case "/noindex":
			say(`<meta name="robots" content="noindex">`)
		case "/flaky":
			if flaky.Add(1) == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			say("flaky")
		case "/boom":
			if boom.Add(1) == 1 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			say("boom")
		default:
			http.NotFound(w, r)
		}
	}
}

// What a worker counts is what the job says: each outcome with its reason, every lease with its
// end, every request with what its host made it wait.
func TestMetrics(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		b, s := newBench(t, r), crawltest.NewHandlerSite(t, troubled())
		b.unknown(t, s)
		reg := prometheus.NewPedanticRegistry()
		worker := b.worker(t, func(o *crawler.ProcessOptions) { o.Metrics = crawler.NewMetrics(reg) })
		plan := obedient(site(100, 5, 4))
		plan.Delay = 20 * time.Millisecond
		job := b.submit(t, plan, s.URL+"/")
		j := b.ended(t, job, time.Minute)
		if err := worker.Stop(t.Context()); err != nil { // its last words are counted, too
			t.Fatal(err)
		}
		if j.Accepted != 4 || j.Failed != 1 || j.Skipped != 3 {
			t.Fatalf("ended as %+v", j)
		}
		got := series(t, reg)
		const requests = 9 // of pages: eight, one of them not allowed, two of them twice
		want := map[string]float64{
			"pages_total accepted": 4, "pages_total failed": 1, "pages_total skipped": 2, "pages_total alias": 1,
			"pages_total retry": 1, "pages_total asked": 1,
			"page_failures_total http_404": 1,
			"page_skips_total alias":       1, "page_skips_total robots": 1, "page_skips_total noindex": 1,
			"deferrals_total retry": 1, "deferrals_total asked": 1,
			"fetched_bytes_total": float64(j.Bytes),
			"fetch_seconds":       requests, "host_wait_seconds": requests,
			"commit_seconds":         requests - 1, // what was told to come back later was not recorded
			"lease_seconds recorded": 9,            // of eight pages, and the first try of one
			"lease_seconds returned": got["leased_urls sum"] - 9,
		}
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s is %v, want %v", name, got[name], v)
			}
		}
		for name := range got {
			kind, _, _ := strings.Cut(name, " ")
			_, known := want[name]
			if !known && slices.Contains([]string{"pages_total", "page_failures_total", "page_skips_total"}, kind) {
				t.Errorf("%s is %v, want 0", name, got[name])
			}
		}
		// Nine starts that are 20 ms apart: the pages that were leased together waited.
		if wait := got["host_wait_seconds sum"]; wait < .1 {
			t.Errorf("the host had its pages wait for %v s in all", wait)
		}
		if got["lease_seconds recorded sum"]+got["lease_seconds returned sum"] < got["host_wait_seconds sum"] {
			t.Error("leases are shorter than what they waited for their hosts")
		}
		if got["rings_total failed"] != 0 {
			t.Errorf("rings failed: %v", got)
		}
	})
}

// A host that is shut sends the URLs of a job back to wait, and is named as the reason.
func TestMetricsOfAShutHost(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			_, _ = io.WriteString(w, "User-agent: *\nCrawl-delay: 20\n")
		}
	}))
	b.unknown(t, s)
	reg := prometheus.NewPedanticRegistry()
	b.worker(t, func(o *crawler.ProcessOptions) { o.Metrics = crawler.NewMetrics(reg) })
	b.submit(t, obedient(list(4)), s.URL+"/a", s.URL+"/b", s.URL+"/c")
	crawltest.Eventually(t, 30*time.Second, "URLs that wait for their host", func() bool {
		return series(t, reg)["deferrals_total host"] >= 2
	})
	if got := series(t, reg); got["deferrals_total other"] != 0 || got["deferrals_total robots"] != 0 {
		t.Errorf("%v", got)
	}
}

// The names, the units and the help are as Prometheus wants them, and every value that a label
// can have is there from the start.
func TestMetricsFromTheStart(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	crawler.NewMetrics(reg)
	if faults, err := testutil.GatherAndLint(reg); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "trawl_webhook_") { // those are another package's
			got[f.GetName()] = len(f.GetMetric())
		}
		for _, m := range f.GetMetric() { // each bucket is a series of each worker
			if n := len(m.GetHistogram().GetBucket()); n > 25 {
				t.Errorf("%s has %d buckets", f.GetName(), n)
			}
		}
	}
	want := map[string]int{
		"trawl_pages_total": 10, "trawl_page_skips_total": 9, "trawl_sitemaps_total": 9, "trawl_deferrals_total": 5,
		"trawl_lease_seconds": 2,
		"trawl_rings_total":   2, "trawl_sweeps_total": 3, "trawl_page_failures_total": got["trawl_page_failures_total"],
	}
	for name, n := range got {
		if want[name] == 0 {
			want[name] = 1
		}
		if n > 70 {
			t.Errorf("%s has %d series", name, n)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("series (-want +got):\n%s", d)
	}
}
