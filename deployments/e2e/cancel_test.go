package e2e

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// slowSite answers every path with an empty page after the given time, or not at
// all when the client is gone before.
func slowSite(t *testing.T, latency time.Duration) *crawltest.Site {
	t.Helper()
	return crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, "<title>%s</title>", r.URL.Path) // the client may be gone
	}))
}

// numbered returns the URLs /1 to /n of a site.
func numbered(site *crawltest.Site, n int) []string {
	urls := make([]string, n)
	for i := range urls {
		urls[i] = fmt.Sprintf("%s/%d", site.URL, i+1)
	}
	return urls
}

// quietSince checks that the site was not asked for anything since a cancel was
// answered, but for what was under way at that moment.
func quietSince(t *testing.T, site *crawltest.Site, answered time.Time) {
	t.Helper()
	for _, r := range site.Requests() {
		if late := r.At.Sub(answered); late > 500*time.Millisecond {
			t.Errorf("%s was requested %v after the cancel was answered", r.URI, late)
		}
	}
}

// TestCancel: promise 6. One job of a tenant runs at a time, so that the second waits.
func TestCancel(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, "TRAWL_MAX_RUNNING=1")
	running, waiting := slowSite(t, 300*time.Millisecond), slowSite(t, 0)
	const known = 500
	// JOB-11: 500 known links, cancelled after 20 pages. JOB-09: on a slow site.
	first := d.submit(alpha, fields{"urls": numbered(running, known), "concurrency": 8}).ID
	w := d.watch(alpha, first)
	second := d.submit(alpha, fields{"urls": numbered(waiting, 3)})
	if second.State != crawl.Queued || second.WaitingFor != "tenant_quota" || second.Position != 1 {
		t.Errorf("behind the running limit a submission answers %+v", second)
	}
	w2 := d.watch(alpha, second.ID)
	d.processed(alpha, first, 20)

	// A queued job ends at once.
	if j := d.cancel(alpha, second.ID); j.State != crawl.Cancelled || j.Cancelled != 3 || !j.StartedAt.IsZero() {
		t.Errorf("a queued job is cancelled as %+v", j)
	}
	w2.end(long)

	begun := time.Now()
	j := d.cancel(alpha, first)
	answered := time.Now()
	t.Logf("JOB-09: a running job was cancelled in %v", answered.Sub(begun))
	if took := answered.Sub(begun); took > 5*time.Second {
		t.Errorf("JOB-09: the cancel took %v, want at most 5s", took)
	}
	if j.State != crawl.Cancelled || j.StopReason != crawl.StopCancelled || j.Accepted < 20 || j.Failed != 0 ||
		j.Skipped != 0 || j.Accepted+j.Cancelled != known {
		t.Errorf("JOB-11: cancelled as %+v", j)
	}
	w.end(long)
	if failed := d.failures(alpha, first); len(failed) != 0 {
		t.Errorf("JOB-11: pages that were never tried are listed as failed: %+v", failed)
	}
	if records := d.records(alpha, first); int64(len(records)) != j.Accepted {
		t.Errorf("JOB-09: %d records are readable, %d were accepted", len(records), j.Accepted)
	}

	if asked := waiting.Requests(); len(asked) > 0 {
		t.Errorf("the job that was cancelled while it waited has asked for %v", uris(asked))
	}

	// Cancelling twice changes nothing, neither does it to a job that ended before.
	third := d.submit(alpha, fields{"urls": numbered(waiting, 5)}).ID
	if j := d.watch(alpha, third).end(long); j.State != crawl.Completed || j.Accepted != 5 {
		t.Errorf("after the cancel the next job ends as %+v", j)
	}
	for _, id := range []string{first, second.ID, third} {
		_, before := d.get(alpha, id, "")
		d.cancel(alpha, id)
		if _, after := d.get(alpha, id, ""); string(after) != string(before) {
			t.Errorf("cancelling an ended job has changed it:\n%s\n%s", before, after)
		}
	}

	// Restarted workers do not revive it: they serve the next job, and not the first.
	restarted(t, d)
	fourth := d.submit(alpha, fields{"urls": numbered(waiting, 5)}).ID
	d.watch(alpha, fourth).end(long)
	if j := d.status(alpha, first); j.State != crawl.Cancelled {
		t.Errorf("JOB-09: after a restart the job is %s", j.State)
	}
	quietSince(t, running, answered)
}

// TestCancelHanging: JOB-09. Nothing but the renewal of its lease speaks to a slice whose
// pages all hang, and its requests are aborted all the same.
func TestCancelHanging(t *testing.T) {
	t.Parallel()
	const pages = 4
	var aborted atomic.Int64
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		aborted.Add(1)
	}))
	d := deploy(t, 1)
	job := d.submit(alpha, fields{"urls": numbered(site, 2*pages), "concurrency": pages}).ID
	w := d.watch(alpha, job)
	crawltest.Eventually(t, long, "every place of the job is taken by a request", func() bool {
		return len(site.Requests()) == pages
	})
	begun := time.Now()
	j := d.cancel(alpha, job)
	took := time.Since(begun)
	if took > 6*time.Second { // as in TestCancelAfterKill
		t.Errorf("the cancel took %v, want at most 6s", took)
	}
	if j.State != crawl.Cancelled || j.Cancelled != 2*pages {
		t.Errorf("cancelled as %+v", j)
	}
	crawltest.Eventually(t, 6*time.Second-took, "the requests in flight are aborted", func() bool {
		return aborted.Load() == pages
	})
	t.Logf("JOB-09: cancelled in %v, the requests aborted in %v", took, time.Since(begun))
	w.end(long)
	if n := len(site.Requests()); n != pages {
		t.Errorf("%d requests, want %d", n, pages)
	}
}

// restarted puts a new worker in the place of all others, and waits until it has
// looked for work in its own right.
func restarted(t *testing.T, d *deployment) *worker {
	t.Helper()
	for _, p := range d.procs[1:] {
		select {
		case <-p.Done():
		default:
			if code := p.Terminate(long); code != 0 {
				t.Errorf("a worker ended with %d", code)
			}
		}
	}
	return d.startWorker()
}

// TestCancelAfterKill: promise 6 where no worker is left to give anything back.
func TestCancelAfterKill(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	site := slowSite(t, time.Second) // JOB-09: a page a second
	const known = 100
	job := d.submit(alpha, fields{"urls": numbered(site, known), "concurrency": 2}).ID
	w := d.watch(alpha, job)
	d.processed(alpha, job, 3)
	d.procs[1].Kill()
	if j := d.status(alpha, job); j.Active == 0 {
		t.Fatalf("nothing is leased although the worker was killed in the middle: %+v", j)
	}
	begun := time.Now()
	j := d.cancel(alpha, job)
	answered := time.Now()
	t.Logf("JOB-09: cancelled %v after the kill", answered.Sub(begun))
	if took := answered.Sub(begun); took > 6*time.Second { // 5 s, and the poll of the API on a busy machine
		t.Errorf("the cancel took %v, want at most 6s", took)
	}
	if j.State != crawl.Cancelled || j.Accepted < 3 || j.Failed != 0 || j.Accepted+j.Cancelled != known {
		t.Errorf("cancelled as %+v", j)
	}
	w.end(long)

	restarted(t, d)
	again := d.submit(alpha, fields{"urls": numbered(slowSite(t, 0), 5)}).ID
	if j := d.watch(alpha, again).end(long); j.State != crawl.Completed {
		t.Errorf("the next job ends as %+v", j)
	}
	if n := int64(len(d.records(alpha, job))); n != j.Accepted {
		t.Errorf("%d records are readable, %d were accepted", n, j.Accepted)
	}
	quietSince(t, site, answered)
}
