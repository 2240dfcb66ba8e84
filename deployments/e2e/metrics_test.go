package e2e

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// scrape is what /metrics of a process shows: every series of ours with its value, of a
// histogram its count and, behind "sum", its sum.
type scrape map[string]float64

// scraped asks a process for its metrics and holds them to the conventions of Prometheus.
func (d *deployment) scraped(base string) scrape {
	d.t.Helper()
	res, body := d.exchange(http.MethodGet, base+"/metrics", nil, "")
	if res.StatusCode != http.StatusOK {
		d.t.Fatalf("metrics: %d %s", res.StatusCode, body)
	}
	faults, err := promlint.New(bytes.NewReader(body)).Lint()
	if err != nil || len(faults) > 0 {
		d.t.Errorf("%s/metrics: %v %v", base, faults, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	out := scrape{}
	for name, f := range families {
		if !strings.HasPrefix(name, "trawl_") {
			continue // of the Go runtime and of the process
		}
		for _, m := range f.GetMetric() {
			series := strings.TrimPrefix(name, "trawl_")
			for _, l := range m.GetLabel() {
				series += " " + l.GetValue()
			}
			out[series] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if h := m.GetHistogram(); h != nil {
				out[series+" sum"] = h.GetSampleSum()
			}
		}
	}
	return out
}

// sum adds up the series of a name.
func (s scrape) sum(name string) (total float64) {
	for series, v := range s {
		if strings.HasPrefix(series, name+" ") {
			total += v
		}
	}
	return total
}

// want compares some series with what they must be.
func (s scrape) want(t *testing.T, want scrape) {
	t.Helper()
	got := scrape{}
	for series := range want {
		if v, there := s[series]; there {
			got[series] = v
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("metrics (-want +got):\n%s", d)
	}
}

// gated holds the requests for /held until its gate opens, and answers all else at once: pages, an alias, failures, what is not to be kept or asked for.
func gated(t *testing.T) (site *crawltest.Site, gate chan struct{}) {
	t.Helper()
	gate = make(chan struct{})
	return crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/robots.txt":
			_, _ = io.WriteString(w, "User-agent: *\nDisallow: /private\n")
		case "/":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `<a href="/held">h</a> <a href="/moved">m</a> <a href="/missing">m</a>
				<a href="/private">p</a> <a href="/noindex">n</a> <a href="/teapot">t</a>`)
		case "/held":
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		case "/moved":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/noindex":
			w.Header().Set("X-Robots-Tag", "noindex")
			_, _ = io.WriteString(w, "not to be kept")
		case "/teapot":
			w.WriteHeader(http.StatusTeapot)
		default:
			http.NotFound(w, r)
		}
	})), gate
}

// TestMetrics: what the API and a worker tell is what became of the job, while it runs and
// after; and a second tenant with other jobs on other hosts adds no series.
func TestMetrics(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, "TRAWL_HOST_DELAY=10ms")
	worker := "http://" + logged(t, d.procs[1], "worker started")[0]["health"].(string)

	first := d.measured(alpha, worker, 1)
	second := d.measured(beta, worker, 2)
	for name, pair := range map[string][2]scrape{"API": {first[0], second[0]}, "worker": {first[1], second[1]}} {
		before, after := slices.Sorted(maps.Keys(pair[0])), slices.Sorted(maps.Keys(pair[1]))
		if d := cmp.Diff(before, after); d != "" {
			t.Errorf("series of the %s after other jobs, hosts and tenants (-before +after):\n%s", name, d)
		}
		for _, series := range after {
			if strings.Contains(series, alpha) || strings.Contains(series, beta) {
				t.Errorf("the %s names a tenant: %s", name, series)
			}
		}
	}
}

// measured runs a job, the nth of its deployment, and returns what the API and the worker tell of it at the end.
func (d *deployment) measured(tenant, worker string, nth float64) [2]scrape {
	d.t.Helper()
	site, gate := gated(d.t)
	before := d.scraped(worker)
	job := d.submit(tenant, fields{"seed_url": site.URL + "/", "sitemap": "skip"})
	d.processed(tenant, job.ID, 6) // all but the one that is held
	running := scrape{
		"jobs queued": 0, "jobs running": 1, "jobs paused": 0, "jobs cancelling": 0, "jobs_oldest_queued_seconds": 0,
		"frontier_urls queued": 0, "frontier_urls active": 1, "frontier_urls deferred": 0, "frontier_due_urls": 0,
		"queue_tasks active": 1, "queue_tasks pending": 0, "queue_tasks archived": 0, "queue_paused": 0, "queue_servers": 1,
		"jobs_ended_total completed_with_errors": nth - 1,
	}
	d.eventually(d.url, "the job that runs", running)
	d.scraped(d.url).want(d.t, running)
	close(gate)
	j := d.watch(tenant, job.ID).end(long)

	ended := maps.Clone(running)
	maps.Copy(ended, scrape{
		"jobs running": 0, "frontier_urls active": 0, "queue_tasks active": 0, "jobs_ended_total completed_with_errors": nth,
		"jobs_ended_total completed": 0, "stats_jobs_skipped": 0, "tenants": nth, "webhook_jobs_due": 0,
	})
	positive := []string{
		"redis_seconds command", "redis_seconds pipeline", "queue_processed_total", "stats_seconds",
		"submissions_total  created",
	}
	for _, n := range d.redis.Nodes() {
		ended["redis_up "+n.Addr], ended["redis_aof_enabled "+n.Addr], ended["redis_persistence_ok "+n.Addr] = 1, 1, 1
		positive = append(positive, "redis_memory_used_bytes "+n.Addr, "redis_ping_seconds "+n.Addr)
	}
	d.eventually(d.url, "the job that ended", ended)
	api := d.scraped(d.url)
	api.want(d.t, ended)
	for _, series := range positive {
		if api[series] <= 0 {
			d.t.Errorf("%s is %v", series, api[series])
		}
	}
	return [2]scrape{api, d.told(worker, before, &j)}
}

// eventually waits until a scrape shows what is wanted: the API looks at its jobs every five
// seconds only, and a worker has its last words after the end of a job.
func (d *deployment) eventually(base, what string, want scrape) {
	d.t.Helper()
	crawltest.Eventually(d.t, long, fmt.Sprintf("metrics of %s: %v", what, want), func() bool {
		got := d.scraped(base)
		for series, v := range want {
			if got[series] != v {
				return false
			}
		}
		return true
	})
}

// told compares what a worker counted of its only job with the status of that job, and returns it.
func (d *deployment) told(worker string, before scrape, j *crawl.Job) scrape {
	d.t.Helper()
	d.eventually(worker, "a slice that ended", scrape{"slices": 0, "fetches_in_flight": 0})
	after := d.scraped(worker)
	got := scrape{}
	for series, v := range after {
		got[series] = v - before[series]
	}
	want := scrape{
		"pages_total accepted": float64(j.Accepted), "pages_total failed": float64(j.Failed), "pages_total stale": 0,
		"pages_total retry": 0, "pages_total redirect": 0, "pages_total released": 0, "pages_total asked": 0,
		"page_failures_total other": 0, "deferrals_total asked": 0,
		"page_skips_total other": 0, "fetched_bytes_total": float64(j.Bytes), "rings_total failed": 0, "deferrals_total other": 0,
		"fetch_seconds": 6, "host_wait_seconds": 6, "commit_seconds": 6, // all but the one that robots.txt forbids
		"lease_seconds recorded": 7, "lease_seconds returned": got["leased_urls sum"] - 7,
	}
	for reason, n := range j.SkippedByReason {
		want["page_skips_total "+string(reason)] = float64(n)
	}
	for code, n := range j.FailedByType {
		want["page_failures_total "+string(code)] = float64(n)
	}
	got.want(d.t, want)
	if n := got["pages_total skipped"] + got["pages_total alias"]; n != float64(j.Skipped) || got.sum("page_skips_total") != n {
		d.t.Errorf("%v pages are counted as skipped, for reasons %v, of %+v", n, got.sum("page_skips_total"), j)
	}
	if got.sum("page_failures_total") != float64(j.Failed) || j.Failed != 2 || j.Skipped != 3 || j.Accepted != 2 {
		d.t.Errorf("%v failures are counted, of %+v", got.sum("page_failures_total"), j)
	}
	return after
}
