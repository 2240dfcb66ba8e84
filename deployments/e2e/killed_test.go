package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
)

// TestKilledWorkers: promise 5, and promises 1 and 2 meanwhile.
func TestKilledWorkers(t *testing.T) {
	t.Parallel()
	const pages = 5000
	gen := gensite.New(pages, 20, 6<<10, 20*time.Millisecond)
	site := crawltest.NewHandlerSite(t, gen)
	d := deploy(t, 0)
	alive := []*worker{d.startWorker(), d.startWorker(), d.startWorker()}
	job := d.submit(alpha, fields{
		"seed_url": site.URL + "/p/0", "max_pages": pages, "max_depth": 100, "concurrency": 32,
	}).ID
	w := d.watch(alpha, job)

	var kills []time.Time
	for _, at := range []int64{pages / 6, pages / 2} {
		d.processed(alpha, job, at)
		victim := -1
		crawltest.Eventually(t, long, "a worker with requests in flight", func() bool {
			victim = slices.IndexFunc(alive, func(w *worker) bool { return w.metric("trawl_fetches_in_flight") > 0 })
			return victim >= 0
		})
		alive[victim].Kill()
		kills = append(kills, time.Now())
		alive[victim] = d.startWorker()
	}

	j := w.end(long)
	if j.State != crawl.Completed || j.StopReason != crawl.StopFrontierEmpty ||
		j.Total != pages || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}
	if w.gap > heal {
		t.Errorf("for %v no page was processed, want at most %v", w.gap, heal)
	}
	back, buried := healed(t, d)
	for i, killed := range kills {
		if i >= len(buried) {
			t.Fatalf("%d slices were found dead, want one of each of the %d workers killed", len(buried), len(kills))
		}
		took := buried[i].Sub(killed)
		if took > heal {
			t.Errorf("the leases of killed worker %d were back after %v, want at most %v", i+1, took, heal)
		}
		t.Logf("the leases of killed worker %d were back after %v", i+1, took)
	}
	var want []string
	for i := range pages {
		want = append(want, fmt.Sprintf("%s/p/%d", site.URL, i))
	}
	again := 0
	for _, p := range d.recordedOnce(alpha, job, want) {
		again += p.Attempts - 1
	}
	// Each lease that was lost cost its page an attempt, and only those pages may
	// have been fetched twice.
	if again == 0 || again != back {
		t.Errorf("the records count %d lost leases, the workers %v; want the same, and some", again, back)
	}
	if twice := gen.Total() - gen.Distinct(); gen.Distinct() != pages || twice > int64(again) {
		t.Errorf("%d pages were served, with %d requests more; want %d pages and at most %d more",
			gen.Distinct(), twice, pages, again)
	}
	t.Logf("%d reads, longest gap %v, %d leases lost, took %v", w.reads, w.gap, again, j.EndedAt.Sub(j.StartedAt))
}

// healed reads from the log of all workers how many URLs their sweeps have brought back,
// and when each dead slice was found.
func healed(t *testing.T, d *deployment) (back int, buried []time.Time) {
	t.Helper()
	for _, p := range d.procs {
		for _, entry := range logged(t, p, "healed") {
			at, err := time.Parse(time.RFC3339Nano, entry["time"].(string))
			if err != nil {
				t.Fatal(err)
			}
			back += int(entry["urls_back"].(float64))
			for range int(entry["dead_slices"].(float64)) {
				buried = append(buried, at)
			}
		}
	}
	slices.SortFunc(buried, time.Time.Compare)
	return back, buried
}
