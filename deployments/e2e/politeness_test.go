package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// lateness measures how late this machine wakes who waits for a time, until the test
// ends: on a busy one a request can leave long after its turn and the next one in time,
// and both were polite. The function it returns tells the most between two times.
func lateness(t *testing.T) func(from, to time.Time) time.Duration {
	t.Helper()
	type sample struct {
		at   time.Time
		late time.Duration
	}
	var (
		mu      sync.Mutex
		samples []sample
	)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			due := time.Now().Add(5 * time.Millisecond)
			timer := time.NewTimer(5 * time.Millisecond)
			select {
			case <-stop:
				timer.Stop()
				return
			case <-timer.C:
			}
			mu.Lock()
			samples = append(samples, sample{at: due, late: time.Since(due)})
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return func(from, to time.Time) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		var most time.Duration
		for _, s := range samples {
			if s.at.Before(to) && s.at.Add(s.late).After(from) {
				most = max(most, s.late)
			}
		}
		return most
	}
}

// TestPoliteness: promise 8. Two tenants and three workers share one host's slots for 15
// seconds, and one of them its robots.txt, which is a request like any other. It does not run beside other tests, since it measures time.
func TestPoliteness(t *testing.T) {
	const delay, tolerance, most, slow, jobs = 200 * time.Millisecond, 30 * time.Millisecond, 2, 12, 25
	var inFlight, highest, served atomic.Int64
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		for {
			if seen := highest.Load(); n <= seen || highest.CompareAndSwap(seen, n) {
				break
			}
		}
		// The first pages hold their slots for three times the delay, the others for next
		// to nothing: so that each bound is once the one that holds requests back.
		latency := 10 * time.Millisecond
		if served.Add(1) <= slow {
			latency = 3 * delay
		}
		timer := time.NewTimer(latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
	}))
	d := deploy(t, 0, "TRAWL_HOST_DELAY=200ms", "TRAWL_HOST_CONCURRENCY=2")
	for i := range 3 {
		d.startWorker(fmt.Sprintf("TRAWL_USER_AGENT=worker-%d", i))
	}
	late := lateness(t)
	// A worker serves eight jobs at once, so that one alone cannot serve all of these.
	var watches []*watch
	for i := range 2 * jobs {
		tenant := []string{alpha, beta}[i%2]
		job := fmt.Sprintf("%s/%s/%d", site.URL, tenant, i)
		urls := []string{job + "/1", job + "/2"}[:1+i%2]
		watches = append(watches, d.watch(tenant, d.submit(tenant, fields{"urls": urls}).ID))
	}
	for i, w := range watches {
		if j := w.end(long); j.State != crawl.Completed || j.Accepted != int64(1+i%2) {
			t.Errorf("ended as %+v", j)
		}
	}

	requests := site.Requests()
	slices.SortFunc(requests, func(a, b crawltest.Request) int { return a.At.Compare(b.At) })
	by := map[string]int{} // requests of each worker
	for i, r := range requests {
		by[r.Header.Get("User-Agent")]++
		if i == 0 {
			continue
		}
		before := requests[i-1].At
		// Only the lateness of the one before makes a gap smaller.
		excuse := tolerance + late(before.Add(-delay), r.At)
		gap := r.At.Sub(before)
		// The workers of those before may have stalled, which only they could know: their
		// requests came late, and the gap before them is as much longer.
		stalled := false
		for back := 2; back <= min(i, 4); back++ {
			stalled = stalled || r.At.Sub(requests[i-back].At) >= time.Duration(back)*delay-excuse
		}
		if gap < delay-excuse && stalled {
			continue
		}
		if gap < delay-excuse {
			t.Errorf("requests %d and %d came %v apart, want %v less %v", i, i+1, gap, delay, excuse)
		}
	}
	if n := highest.Load(); n != most {
		t.Errorf("%d requests at once at the most, want %d: neither more nor, on this site, less", n, most)
	}
	// Which worker takes a ring is chance; one alone would show nothing.
	if len(requests) != 3*jobs+1 || site.Hits("/robots.txt") != 1 || len(by) < 2 {
		t.Errorf("%d requests by %v, want %d and robots.txt, by several workers", len(requests), by, 3*jobs)
	}
	first, last := requests[0].At, requests[len(requests)-1].At
	if took, least := last.Sub(first), time.Duration(len(requests)-1)*delay; took < least-tolerance-late(first, last) {
		t.Errorf("all of them came in %v, want %v at least", took, least)
	}
	t.Logf("%d requests in %v, by %v; the machine was up to %v late",
		len(requests), last.Sub(first), by, late(first, last))
}
