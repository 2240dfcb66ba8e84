package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
)

// order posts to what a job can be told to do.
func (d *deployment) order(tenant, id, how string, more ...string) (*http.Response, []byte) {
	d.t.Helper()
	return d.exchange(http.MethodPost, d.url+"/v1/jobs/"+id+"/"+how, d.as(tenant, more...), "")
}

// turn pauses or resumes a job and returns the state that the call answered.
func (d *deployment) turn(tenant, id, how string) crawl.Job {
	d.t.Helper()
	res, body := d.order(tenant, id, how)
	if res.StatusCode != http.StatusOK {
		d.t.Fatalf("%s answered %d: %s", how, res.StatusCode, body)
	}
	return decode[crawl.Job](d.t, body)
}

// pause pauses a job that has not ended.
func (d *deployment) pause(tenant, id string) crawl.Job {
	d.t.Helper()
	j := d.turn(tenant, id, "pause")
	if j.State != crawl.Paused {
		d.t.Errorf("paused as %+v", j)
	}
	return j
}

// resume has a paused job go on.
func (d *deployment) resume(tenant, id string) crawl.Job {
	d.t.Helper()
	j := d.turn(tenant, id, "resume")
	if j.State != crawl.Running && j.State != crawl.Queued && !j.State.Terminal() {
		d.t.Errorf("resumed as %+v", j)
	}
	return j
}

// settled waits until nothing of a paused job is in flight.
func (d *deployment) settled(tenant, id string) crawl.Job {
	d.t.Helper()
	var j crawl.Job
	crawltest.Eventually(d.t, long, "nothing of the paused job is in flight", func() bool {
		j = d.status(tenant, id)
		return j.Active == 0 || j.State != crawl.Paused
	})
	if j.State != crawl.Paused {
		d.t.Fatalf("the job is %s instead of paused", j.State)
	}
	return j
}

// still checks that a paused job stands still for a time in which it would have done a lot.
func (d *deployment) still(tenant, id string, site *crawltest.Site, for_ time.Duration) {
	d.t.Helper()
	before := d.settled(tenant, id)
	requests := len(site.Requests())
	timer := time.NewTimer(for_)
	defer timer.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-tick.C:
		}
		j := d.status(tenant, id)
		if j.State != crawl.Paused || j.Processed != before.Processed || j.Total != before.Total || j.Active > 0 ||
			j.Queued+j.Deferred != before.Queued+before.Deferred {
			d.t.Fatalf("the paused job has moved from %+v to %+v", before, j)
		}
		if n := len(site.Requests()); n > requests {
			d.t.Fatalf("the site was asked %d times for a paused job", n-requests)
		}
	}
}

// TestPause: a pause is answered within 5 s, stops all requests, outlives a killed worker
// and a restarted Redis, and the job goes on where it stood.
func TestPause(t *testing.T) {
	t.Parallel()
	const pages = 150
	d := deploy(t, 1)
	site := slowSite(t, 150*time.Millisecond)
	second := d.startWorker()
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "concurrency": 8}).ID
	w := d.startWatch(&watch{tenant: alpha, job: job, outage: true})
	d.processed(alpha, job, 30)

	begun := time.Now()
	d.pause(alpha, job)
	took := time.Since(begun)
	t.Logf("paused in %v", took.Round(time.Millisecond))
	if took > 5*time.Second {
		t.Errorf("the pause took %v, want at most 5s", took)
	}
	d.settled(alpha, job)
	t.Logf("nothing was in flight %v after the pause began", time.Since(begun).Round(time.Millisecond))
	d.pause(alpha, job) // twice is harmless
	d.still(alpha, job, site, 2*time.Second)

	second.Kill()
	d.still(alpha, job, site, time.Second)
	d.redis.Kill()
	d.redis.Start()
	crawltest.Eventually(t, long, "an answer", func() bool {
		res, _ := d.get(alpha, job, "")
		return res.StatusCode == http.StatusOK
	})
	d.still(alpha, job, site, 2*time.Second)
	kept := d.status(alpha, job)
	counted := map[string]bool{}
	for _, p := range list[crawl.Page](d, alpha, job, "/records") {
		counted[p.URL] = true
	}
	requests := len(site.Requests())
	d.resume(alpha, job)
	d.resume(alpha, job) // twice is harmless
	j := w.end(long)
	if j.State != crawl.Completed || j.Total != pages || j.Accepted != pages || j.Accepted <= kept.Accepted {
		t.Errorf("paused with %d pages it ended as %+v", kept.Accepted, j)
	}
	d.recordedOnce(alpha, job, numbered(site, pages))
	for _, r := range site.Requests()[requests:] {
		if counted[site.URL+r.URI] {
			t.Errorf("%s was counted before the pause, and is fetched again", r.URI)
		}
	}
	if n := asked(site, "/") - asked(site, "/robots.txt"); n != pages {
		t.Errorf("%d requests for %d pages", n, pages)
	}
	// What has ended can be neither.
	for _, how := range []string{"pause", "resume"} {
		res, body := d.order(alpha, job, how)
		problem(t, res, body, http.StatusConflict, crawl.CodeWrongState)
		res, body = d.order(beta, job, how)
		problem(t, res, body, http.StatusNotFound, crawl.CodeNotFound)
	}
	d.queueEmpties()
}

// TestPauseHanging: requests of a paused job hang. The pause is answered all the same, and when
// their worker dies they go back, to be fetched once the job goes on; only they are fetched twice.
func TestPauseHanging(t *testing.T) {
	t.Parallel()
	const pages, hanging = 40, 4
	var mended atomic.Bool
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/hang/") && !mended.Load() {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, "<title>%s</title>", r.URL.Path)
	}))
	urls := numbered(site, pages)
	for i := range hanging {
		urls = slices.Insert(urls, 0, fmt.Sprintf("%s/hang/%d", site.URL, i))
	}
	d := deploy(t, 0)
	victim := d.startWorker()
	job := d.submit(alpha, fields{"urls": urls, "concurrency": hanging}).ID
	w := d.watch(alpha, job)
	crawltest.Eventually(t, long, "all that can hang hangs", func() bool { return asked(site, "/hang/") == hanging })
	begun := time.Now()
	paused := d.pause(alpha, job)
	took := time.Since(begun)
	t.Logf("with requests that hang it was paused in %v", took.Round(time.Millisecond))
	if took > 6*time.Second { // 5 s, and what a busy machine needs
		t.Errorf("the pause took %v, want at most 5s", took)
	}
	if paused.Active != hanging || paused.Processed != 0 {
		t.Errorf("paused as %+v", paused)
	}
	killed := time.Now()
	victim.Kill()
	d.startWorker()
	d.settled(alpha, job)
	late := time.Since(killed)
	t.Logf("the leases were back %v after the kill", late.Round(time.Millisecond))
	if late > heal {
		t.Errorf("the leases of the killed worker were back after %v", late)
	}
	d.still(alpha, job, site, 2*time.Second)
	mended.Store(true)
	d.resume(alpha, job)
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != pages+hanging {
		t.Errorf("ended as %+v", j)
	}
	for _, p := range d.recordedOnce(alpha, job, urls) {
		want := 1
		if strings.Contains(p.URL, "/hang/") {
			want = 2
		}
		if p.Attempts != want {
			t.Errorf("%s has %d attempts, want %d", p.URL, p.Attempts, want)
		}
	}
	if n := asked(site, "/") - asked(site, "/robots.txt"); n != pages+2*hanging {
		t.Errorf("%d requests, want one for each of %d pages and two for %d that hung", n, pages, hanging)
	}
}

// TestPauseGivesPlace: a paused job has no place at the run gate; resumed, it waits for one.
// It can be cancelled meanwhile, and so can one that was paused before it ever began.
func TestPauseGivesPlace(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, "TRAWL_MAX_RUNNING=1")
	site := slowSite(t, 100*time.Millisecond)
	spec := func(path string, n int) fields {
		urls := make([]string, n)
		for i := range urls {
			urls[i] = fmt.Sprintf("%s/%s/%d", site.URL, path, i)
		}
		return fields{"urls": urls, "concurrency": 2}
	}
	first := d.submit(alpha, spec("first", 60)).ID
	w1 := d.watch(alpha, first)
	second := d.submit(alpha, spec("second", 60)).ID
	w2 := d.watch(alpha, second)
	third := d.submit(alpha, spec("third", 5)).ID
	w3 := d.watch(alpha, third)
	d.processed(alpha, first, 5)
	if j := d.status(alpha, second); j.WaitingFor != crawl.WaitingTenantQuota {
		t.Errorf("behind a running job the next is %+v", j)
	}
	d.pause(alpha, third) // it waits: it loses its place in the line, and is not let in
	d.pause(alpha, first)
	d.processed(alpha, second, 5)
	if j := d.status(alpha, first); j.State != crawl.Paused || j.WaitingFor == crawl.WaitingTenantQuota {
		t.Errorf("the paused job is %+v", j)
	}
	if j := d.resume(alpha, first); j.State != crawl.Queued || j.WaitingFor != crawl.WaitingTenantQuota || j.Position < 1 {
		t.Errorf("resumed behind a running job it is %+v", j)
	}
	if j := d.cancel(alpha, second); j.State != crawl.Cancelled {
		t.Errorf("cancelled as %+v", j)
	}
	w2.end(long)
	if j := w1.end(long); j.State != crawl.Completed || j.Accepted != 60 {
		t.Errorf("the resumed job ended as %+v", j)
	}
	if j := d.settled(alpha, third); j.Processed != 0 || asked(site, "/third/") != 0 {
		t.Errorf("the job that was paused before it began is %+v", j)
	}
	begun := time.Now()
	if j := d.cancel(alpha, third); j.State != crawl.Cancelled || j.Cancelled != 5 || j.StopReason != crawl.StopCancelled {
		t.Errorf("paused and cancelled it is %+v", j)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the cancel of a paused job took %v", took)
	}
	w3.end(long)
	d.queueEmpties()
}

// TestPauseAtRandom: fifty pauses, each at a random moment, while two workers crawl a site
// whose frontier grows. The job is complete, and has nothing twice.
func TestPauseAtRandom(t *testing.T) {
	t.Parallel()
	const pages, pauses = 1500, 50
	d := deploy(t, 2)
	gen := gensite.New(pages, 12, 1000, 20*time.Millisecond)
	site := crawltest.NewHandlerSite(t, gen)
	job := d.submit(alpha, fields{
		"seed_url": site.URL + "/p/0", "max_pages": pages, "max_depth": 100, "concurrency": 8,
	}).ID
	w := d.watch(alpha, job)
	seed := [2]uint64{uint64(time.Now().UnixNano()), 8}
	t.Logf("seed %v", seed)
	random := rand.New(rand.NewPCG(seed[0], seed[1]))
	done := 0
	for range pauses {
		for _, how := range []string{"pause", "resume"} {
			timer := time.NewTimer(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
			<-timer.C
			begun := time.Now()
			res, body := d.order(alpha, job, how)
			if res.StatusCode == http.StatusConflict { // it has ended
				continue
			}
			if res.StatusCode != http.StatusOK {
				t.Fatalf("%s answered %d: %s", how, res.StatusCode, body)
			}
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("%s took %v", how, took)
			}
			done++
		}
	}
	j := w.end(long)
	if j.State != crawl.Completed || j.Total != pages || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}
	if done < pauses {
		t.Errorf("only %d calls came before the end", done)
	}
	var want []string
	for i := range pages {
		want = append(want, fmt.Sprintf("%s/p/%d", site.URL, i))
	}
	again := 0
	for _, p := range d.recordedOnce(alpha, job, want) {
		again += p.Attempts - 1
	}
	if twice := gen.Total() - gen.Distinct(); again != 0 || twice != 0 {
		t.Errorf("%d pages lost a lease, %d were fetched twice; nothing was killed", again, twice)
	}
	t.Logf("%d calls before the end, longest gap %v", done, w.gap)
	d.queueEmpties()
}

// TestRetryFailed: the site is broken at first. A job over what failed finds it whole, and
// the first job stays as it ended.
func TestRetryFailed(t *testing.T) {
	t.Parallel()
	const pages = 12
	d := deploy(t, 1)
	var whole atomic.Bool
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d", &n); err == nil && n%2 == 0 && !whole.Load() {
			http.Error(w, "broken", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, "<title>%s</title>", r.URL.Path)
	}))
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "tags": []string{"nightly"}}).ID
	if j := d.watch(alpha, job).end(long); j.State != crawl.CompletedWithErrors || j.Failed != pages/2 {
		t.Fatalf("ended as %+v", j)
	}
	_, before := d.get(alpha, job, "")
	whole.Store(true)
	requests := len(site.Requests())
	res, body := d.order(alpha, job, "retry-failed", "Idempotency-Key", "again")
	if res.StatusCode != http.StatusAccepted {
		t.Fatalf("retry-failed answered %d: %s", res.StatusCode, body)
	}
	next := decode[crawl.Job](t, body)
	where := res.Header.Get("Location")
	if next.ID == job || next.RetryOf != job || where != "/v1/jobs/"+next.ID || next.Total != pages/2 {
		t.Errorf("retried as %+v, Location %q", next, where)
	}
	j := d.watch(alpha, next.ID).end(long)
	if j.State != crawl.Completed || j.Accepted != pages/2 || j.RetryOf != job {
		t.Errorf("the retry ended as %+v", j)
	}
	var want []string
	for i := 2; i <= pages; i += 2 {
		want = append(want, fmt.Sprintf("%s/%d", site.URL, i))
	}
	d.recordedOnce(alpha, next.ID, want)
	if n := len(site.Requests()) - requests; n > pages/2+1 { // and its robots.txt
		t.Errorf("%d requests for the %d pages that failed", n, pages/2)
	}
	if _, after := d.get(alpha, job, ""); string(after) != string(before) {
		t.Errorf("the first job has changed:\n%s\n%s", before, after)
	}
	res, body = d.order(alpha, job, "retry-failed", "Idempotency-Key", "again")
	if replayed := decode[crawl.Job](t, body); res.StatusCode != http.StatusAccepted || replayed.ID != next.ID {
		t.Errorf("the same retry again answers %d: %s", res.StatusCode, body)
	}
	// Nothing of the second failed, and what is another's does not exist.
	res, body = d.order(alpha, next.ID, "retry-failed")
	if res.StatusCode < 400 || res.StatusCode >= 500 {
		t.Errorf("a retry of nothing answers %d: %s", res.StatusCode, body)
	}
	res, body = d.order(beta, job, "retry-failed")
	problem(t, res, body, http.StatusNotFound, crawl.CodeNotFound)
}
