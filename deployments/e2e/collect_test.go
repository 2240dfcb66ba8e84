package e2e

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
)

// TestKilledWorkersCollectOnce: a worker that is killed in the middle of collecting leaves each
// item once in the collection, and each counted once in the report (promise 3).
func TestKilledWorkersCollectOnce(t *testing.T) {
	t.Parallel()
	const pages = 1000
	site := crawltest.NewHandlerSite(t, gensite.New(pages, 20, 2<<10, 10*time.Millisecond))
	d := deploy(t, 0)
	alive := []*worker{d.startWorker(), d.startWorker()}
	spec := fields{
		"seed_url": site.URL + "/p/0", "max_pages": pages, "max_depth": 100, "concurrency": 32,
		"fields":     fields{"title": fields{"selector": "h1", "required": true}},
		"collection": fields{"name": "pages", "facets": []string{"title"}},
	}
	job := d.submit(alpha, spec).ID
	w := d.watch(alpha, job)
	for _, at := range []int64{pages / 4, pages / 2} {
		d.processed(alpha, job, at)
		victim := -1
		crawltest.Eventually(t, long, "a worker with requests in flight", func() bool {
			victim = slices.IndexFunc(alive, func(w *worker) bool { return w.metric("trawl_fetches_in_flight") > 0 })
			return victim >= 0
		})
		alive[victim].Kill()
		alive[victim] = d.startWorker()
	}
	j := w.end(long)
	if want := (crawl.Report{Created: pages}); j.State != crawl.Completed || j.Accepted != pages || !sameReport(j.Report, want) {
		t.Errorf("ended as %+v", j)
	}
	if total := d.collected("pages"); total != pages {
		t.Errorf("the collection has %d items, want %d", total, pages)
	}
	again := d.watch(alpha, d.submit(alpha, spec).ID).end(long)
	if want := (crawl.Report{Unchanged: pages}); again.Accepted != pages || !sameReport(again.Report, want) {
		t.Errorf("a second crawl ended as %+v", again)
	}
	if total := d.collected("pages"); total != pages {
		t.Errorf("then the collection has %d items, want %d", total, pages)
	}
}

// sameReport compares what two reports say of items.
func sameReport(a, b crawl.Report) bool {
	a.ListPages, b.ListPages = 0, 0
	return a == b
}

// collected answers how many items a collection has.
func (d *deployment) collected(name string) int64 {
	d.t.Helper()
	res, body := d.exchange(http.MethodGet, d.url+"/v1/collections/"+name, d.as(alpha), "")
	if res.StatusCode != http.StatusOK {
		d.t.Fatalf("the collection answered %d: %s", res.StatusCode, body)
	}
	return decode[struct{ Total int64 }](d.t, body).Total
}
