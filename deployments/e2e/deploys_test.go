package e2e

import (
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
)

// TestDeploys: JOB-15. The only worker is replaced three times during one job, by
// order, with a grace shorter than any page takes.
func TestDeploys(t *testing.T) {
	t.Parallel()
	const pages = 20
	site := slowSite(t, 400*time.Millisecond)
	d := deploy(t, 0, "TRAWL_SHUTDOWN_GRACE=100ms")
	w := d.startWorker()
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "concurrency": 2}).ID
	watched := d.watch(alpha, job)
	for _, at := range []int64{5, 9, 13} {
		d.processed(alpha, job, at)
		begun := time.Now()
		if code := w.Terminate(long); code != 0 {
			t.Errorf("JOB-15: the worker ended with %d", code)
		}
		ended := time.Now()
		if j := d.status(alpha, job); j.Active != 0 || j.State != crawl.Running {
			t.Errorf("JOB-15: the worker has left %d leases behind, the job is %s", j.Active, j.State)
		}
		w = d.startWorker()
		d.processed(alpha, job, at+1)
		t.Logf("stopped in %v, the next page %v later", ended.Sub(begun), time.Since(ended))
	}
	j := watched.end(long)
	if j.State != crawl.Completed || j.Accepted != pages {
		t.Errorf("JOB-15: ended as %+v", j)
	}
	for _, p := range d.recordedOnce(alpha, job, numbered(site, pages)) {
		if p.Attempts != 1 {
			t.Errorf("JOB-15: %s has %d attempts: a deploy burnt one", p.URL, p.Attempts)
		}
	}
	// Two pages were in flight at each of three stops, and there is robots.txt.
	if n := len(site.Requests()); n > pages+7 {
		t.Errorf("JOB-15: %d requests for %d pages", n, pages)
	}
	if code := w.Terminate(long); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
}
