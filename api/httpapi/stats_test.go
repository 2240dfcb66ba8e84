package httpapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"example.com/trawl/api/httpapi"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
)

// statsFunc is a source as a function.
type statsFunc func(ctx context.Context) (store.Stats, error)

func (f statsFunc) Stats(ctx context.Context) (store.Stats, error) { return f(ctx) }

// quiet discards what is logged.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestStatsCollector(t *testing.T) {
	t.Parallel()
	c := httpapi.NewStatsCollector(statsFunc(func(context.Context) (store.Stats, error) {
		return store.Stats{
			Tenants: 2, Jobs: map[crawl.State]int64{crawl.Queued: 3, crawl.Running: 4, crawl.Cancelling: 1},
			OldestWaiting: 1500 * time.Millisecond,
			Ended:         map[crawl.State]int64{crawl.Completed: 5, crawl.Cancelled: 6},
			URLs:          map[crawl.PageState]int64{crawl.PageQueued: 7, crawl.PageDeferred: 8},
			Due:           9, WebhookJobs: 10, Skipped: 11,
		}, nil
	}), quiet())
	want := `
# TYPE trawl_frontier_due_urls gauge
trawl_frontier_due_urls 9
# TYPE trawl_frontier_urls gauge
trawl_frontier_urls{state="active"} 0
trawl_frontier_urls{state="deferred"} 8
trawl_frontier_urls{state="queued"} 7
# TYPE trawl_jobs gauge
trawl_jobs{state="cancelling"} 1
trawl_jobs{state="paused"} 0
trawl_jobs{state="queued"} 3
trawl_jobs{state="running"} 4
# TYPE trawl_jobs_ended_total counter
trawl_jobs_ended_total{state="cancelled"} 6
trawl_jobs_ended_total{state="completed"} 5
trawl_jobs_ended_total{state="completed_with_errors"} 0
trawl_jobs_ended_total{state="failed"} 0
# TYPE trawl_jobs_oldest_queued_seconds gauge
trawl_jobs_oldest_queued_seconds 1.5
# TYPE trawl_stats_jobs_skipped gauge
trawl_stats_jobs_skipped 11
# TYPE trawl_stats_tenants_broken gauge
trawl_stats_tenants_broken 0
# TYPE trawl_tenants gauge
trawl_tenants 2
# TYPE trawl_webhook_jobs_due gauge
trawl_webhook_jobs_due 10
`
	var got strings.Builder
	for line := range strings.Lines(exposed(t, c)) {
		if !strings.HasPrefix(line, "# HELP") && !strings.Contains(line, "trawl_stats_seconds") {
			got.WriteString(line)
		}
	}
	if got.String() != strings.TrimPrefix(want, "\n") {
		t.Errorf("exposed:\n%s\nwant:%s", got.String(), want)
	}
	if faults, err := testutil.CollectAndLint(c); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
}

// What ended is a counter: it is not told at all while a tenant is missing from it.
func TestStatsOfABrokenTenant(t *testing.T) {
	t.Parallel()
	got := exposed(t, httpapi.NewStatsCollector(statsFunc(func(context.Context) (store.Stats, error) {
		return store.Stats{Broken: 1, Due: 9, Ended: map[crawl.State]int64{crawl.Completed: 5}}, nil
	}), quiet()))
	if !strings.Contains(got, "trawl_stats_tenants_broken 1\n") || !strings.Contains(got, "trawl_frontier_due_urls 9\n") ||
		strings.Contains(got, "trawl_jobs_ended_total") {
		t.Errorf("exposed:\n%s", got)
	}
}

// exposed answers what a scrape of the collectors gets.
func exposed(t *testing.T, collectors ...prometheus.Collector) string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(collectors...)
	w := httptest.NewRecorder()
	obs.MetricsHandler(reg).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("a scrape answers %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// A look stands for five seconds, a failed one too; then there is another.
func TestStatsAreFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		c := httpapi.NewStatsCollector(statsFunc(func(context.Context) (store.Stats, error) {
			looks++
			if looks == 2 {
				return store.Stats{}, errors.New("down")
			}
			return store.Stats{Tenants: int64(looks)}, nil
		}), quiet())
		for _, step := range []struct {
			after  time.Duration
			looks  int
			series int
		}{
			{0, 1, 18},
			{4999 * time.Millisecond, 1, 18},
			{time.Millisecond, 2, 1}, // the gauges vanish
			{4 * time.Second, 2, 1},
			{2 * time.Second, 3, 18},
		} {
			<-time.After(step.after)
			if n := testutil.CollectAndCount(c); looks != step.looks || n != step.series {
				t.Errorf("after %v more: %d looks and %d series, want %d and %d", step.after, looks, n, step.looks, step.series)
			}
		}
	})
}

// Scrapes at once share one look.
func TestStatsAreShared(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	begun, proceed := make(chan struct{}), make(chan struct{})
	c := httpapi.NewStatsCollector(statsFunc(func(context.Context) (store.Stats, error) {
		if looks.Add(1) == 1 {
			close(begun)
		}
		<-proceed
		return store.Stats{}, nil
	}), quiet())
	var scrapes sync.WaitGroup
	for range 20 {
		scrapes.Go(func() {
			if n := testutil.CollectAndCount(c); n != 18 {
				t.Errorf("%d series", n)
			}
		})
	}
	crawltest.Receive(t, 10*time.Second, "look", signalled(begun))
	close(proceed)
	scrapes.Wait()
	if n := looks.Load(); n != 1 {
		t.Errorf("%d looks", n)
	}
}

// signalled turns the end of a channel into a value.
func signalled(ch <-chan struct{}) <-chan bool {
	out := make(chan bool, 1)
	go func() { <-ch; out <- true }()
	return out
}

// A store that hangs, or is gone, leaves the scrape what it does not know, and answers it.
func TestStatsOfAnOutage(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	rdb := r.Open(t, redisconn.Options{})
	for _, outage := range []struct{ begin, end func() }{{r.Freeze, r.Thaw}, {r.Stop, r.Start}} {
		outage.begin()
		body := exposed(t, httpapi.NewStatsCollector(store.New(rdb, store.Options{}), quiet()), redisconn.NewCollector(rdb))
		if !strings.Contains(body, "trawl_stats_seconds") || strings.Contains(body, "trawl_jobs") ||
			!strings.Contains(body, `trawl_redis_up{node="`+r.Addr+`"} 0`) {
			t.Errorf("a scrape shows:\n%s", body)
		}
		outage.end()
		crawltest.Eventually(t, 20*time.Second, "the store to answer", func() bool {
			body := exposed(t, httpapi.NewStatsCollector(store.New(rdb, store.Options{}), quiet()))
			return strings.Contains(body, "trawl_jobs")
		})
	}
}
