package e2e

import (
	"fmt"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// TestJobSpreads: all workers that are idle serve a big job soon, whoever of them takes its rings;
// and when all do, its rings die out and the job goes on as before.
func TestJobSpreads(t *testing.T) {
	t.Parallel()
	const workers, pages, runs = 4, 1000, 3
	site := slowSite(t, 200*time.Millisecond)
	d := deploy(t, workers, "TRAWL_CONCURRENCY=8")
	for run := range runs {
		urls := make([]string, pages)
		for i := range urls {
			urls[i] = fmt.Sprintf("%s/%d/%d", site.URL, run, i)
		}
		begun := time.Now()
		job := d.submit(alpha, fields{"urls": urls, "concurrency": 64}).ID
		w := d.watch(alpha, job)
		slices := jobKey(alpha, job) + ":slices"
		crawltest.Eventually(t, long, "all workers to serve the job", func() bool {
			return d.redis.Client.ZCard(t.Context(), slices).Val() == workers
		})
		took := time.Since(begun)
		done := d.status(alpha, job).Processed
		rings := d.redis.Client.HGet(t.Context(), jobKey(alpha, job), "rings").Val()
		t.Logf("run %d: all serve it after %v, %d pages and %s rings", run, took.Round(time.Millisecond), done, rings)
		if done >= pages/2 {
			t.Errorf("run %d: all serve it only after %d of %d pages", run, done, pages)
		}
		if j := w.end(long); j.State != crawl.Completed || j.Accepted != pages {
			t.Errorf("ended as %+v", j)
		}
		t.Logf("run %d: %s rings in all", run, d.redis.Client.HGet(t.Context(), jobKey(alpha, job), "rings").Val())
		d.recordedOnce(alpha, job, urls)
	}
	d.queueEmpties()
}
