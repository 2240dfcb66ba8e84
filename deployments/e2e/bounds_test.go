package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// cancelled bounds a cancel: 5 s of promise 6, and what a busy machine needs to look.
const cancelled = 6 * time.Second

// hangs is a site whose pages hang until their client is gone.
type hangs struct {
	*crawltest.Site
	aborted atomic.Int64
}

func hangingSite(t *testing.T) *hangs {
	t.Helper()
	h := &hangs{}
	h.Site = crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/robots") {
			<-r.Context().Done()
			h.aborted.Add(1)
		}
	}))
	return h
}

// hang submits a job whose pages hang, and waits until so many do.
func (d *deployment) hang(tenant string, site *hangs, known, inFlight int) string {
	d.t.Helper()
	id := d.submit(tenant, fields{"urls": numbered(site.Site, known), "concurrency": inFlight}).ID
	crawltest.Eventually(d.t, long, "every place of the job is taken by a request", func() bool {
		return d.status(tenant, id).Active == int64(inFlight) && asked(site.Site, "/")-asked(site.Site, "/robots") >= inFlight
	})
	return id
}

// measured checks how a job was cancelled, and when after the call began.
func measured(t *testing.T, what string, j crawl.Job, known int64, begun time.Time) {
	t.Helper()
	if j.State != crawl.Cancelled || j.StopReason != crawl.StopCancelled || j.Cancelled != known || j.Active != 0 {
		t.Errorf("%s: cancelled as %+v", what, j)
	}
	took := j.EndedAt.Sub(begun)
	t.Logf("%s: cancelled %v after it was asked for", what, took.Round(time.Millisecond))
	if took > cancelled {
		t.Errorf("%s: the cancel took %v, want at most 5s", what, took)
	}
}

// TestCancelBounds: promise 6, with all that can hold a cancel up.
func TestCancelBounds(t *testing.T) {
	t.Parallel()
	const known, inFlight = 50, 4

	t.Run("killed at the same moment", func(t *testing.T) {
		t.Parallel()
		d, site := deploy(t, 2), hangingSite(t)
		job := d.hang(alpha, site, known, inFlight)
		w := d.watch(alpha, job)
		killed := make(chan struct{})
		begun := time.Now()
		go func() { // both workers at once: nobody is left to give anything back
			defer close(killed)
			d.procs[1].Signal(syscall.SIGKILL)
			d.procs[2].Signal(syscall.SIGKILL)
		}()
		measured(t, "workers killed", d.cancel(alpha, job), known, begun)
		<-killed
		w.end(long)
	})

	t.Run("one killed, one to sweep", func(t *testing.T) {
		t.Parallel()
		d, site := deploy(t, 1), hangingSite(t)
		job := d.hang(alpha, site, known, inFlight)
		w := d.watch(alpha, job)
		d.startWorker()
		begun := time.Now()
		d.procs[1].Signal(syscall.SIGKILL)
		measured(t, "one worker killed", d.cancel(alpha, job), known, begun)
		w.end(long)
		crawltest.Eventually(t, long, "the requests are aborted", func() bool { return site.aborted.Load() >= inFlight })
	})

	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		d, site := deploy(t, 0), hangingSite(t)
		stalled := d.startWorker()
		job := d.hang(alpha, site, known, inFlight)
		w := d.watch(alpha, job)
		stalled.Signal(syscall.SIGSTOP)
		t.Cleanup(func() { stalled.Signal(syscall.SIGCONT) })
		begun := time.Now()
		measured(t, "worker stopped", d.cancel(alpha, job), known, begun)
		// It comes back, finds that nothing of it counts, and serves others.
		stalled.Signal(syscall.SIGCONT)
		crawltest.Eventually(t, long, "its requests are aborted", func() bool { return site.aborted.Load() >= inFlight })
		w.end(long)
		next := d.submit(alpha, fields{"urls": numbered(slowSite(t, 0), 3)}).ID
		if j := d.watch(alpha, next).end(long); j.State != crawl.Completed {
			t.Errorf("the next job ended as %+v", j)
		}
		if n := asked(site.Site, "/") - asked(site.Site, "/robots"); n != inFlight {
			t.Errorf("%d requests, want the %d that hung", n, inFlight)
		}
	})

	t.Run("the API is killed", func(t *testing.T) {
		t.Parallel()
		d, site := deploy(t, 0), hangingSite(t)
		stalled := d.startWorker()
		job := d.hang(alpha, site, known, inFlight)
		w := d.watch(alpha, job)
		d.startWorker() // its sweep is all that is left
		stalled.Signal(syscall.SIGSTOP)
		t.Cleanup(func() { stalled.Signal(syscall.SIGCONT) })
		api := d.startAPI()
		begun := time.Now()
		answered := make(chan error, 1)
		go func() {
			_, _, err := d.try(t.Context(), http.MethodPost, api.url+"/v1/jobs/"+job+"/cancel", d.as(alpha), "")
			answered <- err
		}()
		crawltest.Eventually(t, long, "the job is cancelling", func() bool {
			return d.status(alpha, job).State == crawl.Cancelling
		})
		api.Kill()
		if err := crawltest.Receive(t, long, "end of the call", answered); err == nil {
			t.Error("the cancel was answered before the API was killed")
		}
		measured(t, "the API that was asked is killed", w.end(long), known, begun)
	})

	t.Run("no worker", func(t *testing.T) {
		t.Parallel()
		d, site := deploy(t, 0), slowSite(t, 0)
		job := d.submit(alpha, fields{"urls": numbered(site, known)}).ID
		w := d.watch(alpha, job)
		begun := time.Now()
		measured(t, "no worker", d.cancel(alpha, job), known, begun)
		w.end(long)
		// Its ring is in the queue still, and dies out.
		d.startWorker()
		d.queueEmpties()
		if n := len(site.Requests()); n > 0 {
			t.Errorf("%d requests for a job that was cancelled before there was a worker", n)
		}
	})
}

// TestCancelSlowRedis: the same where each answer of Redis takes its time.
func TestCancelSlowRedis(t *testing.T) {
	t.Parallel()
	single(t, "a client of a Cluster learns the addresses of its nodes, and goes around the proxy")
	const known, inFlight, latency = 50, 4, 150 * time.Millisecond
	d := deploy(t, 0)
	near, far := newWire(d), newWire(d)
	d.startWorker(far.setting(d, workerUser))
	slow := d.startAPI(near.setting(d, apiUser))
	pages := slowSite(t, 300*time.Millisecond)
	hanging := hangingSite(t)
	held := d.hang(alpha, hanging, known, inFlight)
	busy := d.submit(alpha, fields{"urls": numbered(pages, 200), "concurrency": 4}).ID
	d.processed(alpha, busy, 4)
	watches := []*watch{d.watch(alpha, held), d.watch(alpha, busy)}
	near.slow(latency)
	far.slow(latency)
	for i, id := range []string{held, busy} {
		begun := time.Now()
		res, body := d.exchange(http.MethodPost, slow.url+"/v1/jobs/"+id+"/cancel", d.as(alpha), "")
		if res.StatusCode != http.StatusOK {
			t.Fatalf("cancel answered %d: %s", res.StatusCode, body)
		}
		j := decode[crawl.Job](t, body)
		measured(t, fmt.Sprintf("Redis slow, job %d", i), j, j.Total-j.Processed, begun)
		t.Logf("answered in %v", time.Since(begun).Round(time.Millisecond))
	}
	for _, w := range watches {
		w.end(long)
	}
	crawltest.Eventually(t, long, "the requests are aborted", func() bool { return hanging.aborted.Load() >= inFlight })
	near.slow(0)
	far.slow(0)
}

// TestStalledWorker: promise 2. A worker stands still for longer than its leases live, and
// comes back with what others have done meanwhile: none of it counts a second time.
func TestStalledWorker(t *testing.T) {
	t.Parallel()
	const pages = 120
	d := deploy(t, 0)
	site := slowSite(t, 300*time.Millisecond)
	stalled := d.startWorker()
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "concurrency": 6}).ID
	w := d.watch(alpha, job)
	d.processed(alpha, job, 12)
	stalled.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { stalled.Signal(syscall.SIGCONT) })
	begun := time.Now()
	held := d.status(alpha, job)
	d.startWorker()
	d.processed(alpha, job, held.Processed+12)
	back := time.Since(begun)
	t.Logf("another worker went on within %v", back.Round(time.Millisecond))
	if back > heal+5*time.Second {
		t.Errorf("another worker went on only %v after the first stood still", back)
	}
	stalled.Signal(syscall.SIGCONT)
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}
	again := 0
	for _, p := range d.recordedOnce(alpha, job, numbered(site, pages)) {
		again += p.Attempts - 1
	}
	if again == 0 || int64(again) > held.Active {
		t.Errorf("%d leases were lost, want some of the %d that the worker held", again, held.Active)
	}
	if n := asked(site, "/") - asked(site, "/robots"); n > pages+again {
		t.Errorf("%d requests for %d pages, of which %d lost a lease", n, pages, again)
	}
	d.queueEmpties()
}
