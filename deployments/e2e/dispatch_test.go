package e2e

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/queue"
)

// notDispatched checks that a job waits for its dispatch and says why.
func notDispatched(t *testing.T, j crawl.Job) {
	t.Helper()
	if j.State != crawl.Queued || j.WaitingFor != "dispatch" || j.Error == "" {
		t.Errorf("the job is %s, waiting for %q with the error %q", j.State, j.WaitingFor, j.Error)
	}
}

// TestDispatchWindow: the queue takes no ring of what the store has. The submission is
// accepted, says what it waits for, and is rung once the queue takes it: promise 4.
func TestDispatchWindow(t *testing.T) {
	t.Parallel()
	single(t, "a client of a Cluster learns the addresses of its nodes, and goes around the proxy")
	d := deploy(t, 0)
	site := slowSite(t, 0)
	first := d.submit(alpha, fields{"urls": numbered(site, 1)}).ID
	w := d.startWorker()
	d.watch(alpha, first).end(long) // the scripts are known from here on
	d.queueEmpties()
	if code := w.Terminate(long); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}

	proxy := newWire(d)
	d.url = d.startAPI(proxy.setting(d, apiUser)).url
	// The connection is lost before the ring, or behind it, each time that it is tried.
	jobs := map[string]string{}
	for name, at := range map[string]half{"lost before": request, "lost behind": reply} {
		refusal := proxy.refuse(at, enqueues)
		j := d.submit(alpha, fields{"urls": []string{site.URL + "/" + name[5:] + "/1", site.URL + "/" + name[5:] + "/2"}})
		if refusal.hits.Load() == 0 {
			t.Errorf("%s: no ring was tried", name)
		}
		proxy.lift(refusal)
		notDispatched(t, j)
		notDispatched(t, d.status(alpha, j.ID))
		jobs[name] = j.ID
	}
	// A key of the queue that is not asynq's.
	pending := d.redis.Client
	if n := pending.LLen(t.Context(), pendingKey).Val(); n != 1 {
		t.Errorf("%d rings are in the queue, want that whose answer was lost", n)
	}
	if err := pending.Rename(t.Context(), pendingKey, pendingKey+":kept").Err(); err != nil {
		t.Fatal(err)
	}
	if err := pending.Set(t.Context(), pendingKey, "no list", 0).Err(); err != nil {
		t.Fatal(err)
	}
	wrong := d.submit(alpha, fields{"urls": []string{site.URL + "/wrong/1", site.URL + "/wrong/2"}})
	notDispatched(t, wrong)
	notDispatched(t, d.status(alpha, wrong.ID))
	jobs["wrong type"] = wrong.ID
	if err := pending.Rename(t.Context(), pendingKey+":kept", pendingKey).Err(); err != nil {
		t.Fatal(err)
	}

	d.startWorker()
	begun := time.Now()
	for name, id := range jobs {
		j := d.watch(alpha, id).end(long)
		if j.State != crawl.Completed || j.Accepted != 2 || j.WaitingFor != "" || j.Error != "" {
			t.Errorf("%s: ended as %+v", name, j)
		}
		late := j.StartedAt.Sub(begun)
		t.Logf("%s: begun %v after there was a worker", name, late.Round(time.Millisecond))
		if late > heal {
			t.Errorf("%s: begun only after %v", name, late)
		}
	}
	for _, r := range []string{"/before/", "/behind/", "/wrong/"} {
		if n := asked(site, r); n != 2 {
			t.Errorf("%d requests for the two pages under %s", n, r)
		}
	}
	// With a worker alive nobody needs to see more of it than the answer.
	refusal := proxy.refuse(request, enqueues)
	j := d.submit(alpha, fields{"urls": []string{site.URL + "/alive/1"}})
	proxy.lift(refusal)
	notDispatched(t, j)
	answered := time.Now()
	if e := d.watch(alpha, j.ID).end(long); e.State != crawl.Completed || e.Error != "" || e.WaitingFor != "" {
		t.Errorf("ended as %+v", e)
	} else {
		t.Logf("rung %v after the answer", e.StartedAt.Sub(answered).Round(time.Millisecond))
	}
	if n := asked(site, "/alive/"); n != 1 {
		t.Errorf("%d requests for one page", n)
	}
	d.queueEmpties()
	if left := d.redis.Keys(taskKey + "*"); len(left) > 0 {
		t.Errorf("the queue is empty, and has the tasks %v, which nobody will ever take", left)
	}
}

// lookAtSlices looks at how many slices take URLs until the job, or the test, ends, and reports the
// most that it saw. Those that retire only end what they have.
func (d *deployment) lookAtSlices(tenant, id string, ended <-chan struct{}) <-chan int64 {
	most := make(chan int64, 1)
	ctx := d.t.Context()
	go func() {
		var seen int64
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			pipe := d.redis.Client.TxPipeline()
			all := pipe.ZCard(ctx, jobKey(tenant, id)+":slices")
			retiring := pipe.SCard(ctx, jobKey(tenant, id)+":retiring")
			if _, err := pipe.Exec(ctx); err == nil {
				seen = max(seen, all.Val()-retiring.Val())
			}
			select {
			case <-ended:
				most <- seen
				return
			case <-ctx.Done():
				most <- seen
				return
			case <-tick.C:
			}
		}
	}()
	return most
}

// ringByHand puts the rings job, job.1, … job.20 into the queue, as somebody would who
// rings twice, or late.
func (d *deployment) ringByHand(tenant, id string) {
	d.t.Helper()
	bell := queue.NewDoorbell(d.redis.Client)
	for n := range int64(21) {
		if err := bell.Ring(d.t.Context(), crawl.Ring{JobRef: crawl.JobRef{Tenant: tenant, ID: id}, N: n}); err != nil {
			d.t.Fatal(err)
		}
	}
}

// TestLateRings: rings that nobody needs die out, whatever the job is by then. They make
// no slices above what the job may have, fetch nothing twice and change nothing.
func TestLateRings(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, "TRAWL_MAX_RUNNING=3")
	const pages = 300
	site := slowSite(t, 100*time.Millisecond)
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "concurrency": 8}).ID
	w := d.watch(alpha, job)
	allowed := d.redis.Client.HGet(t.Context(), jobKey(alpha, job), "parallelism").Val()
	most := d.lookAtSlices(alpha, job, w.ended)
	for _, at := range []int64{5, 100, 200} { // running
		d.processed(alpha, job, at)
		d.ringByHand(alpha, job)
	}
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}
	if n, seen := number(t, allowed), crawltest.Receive(t, long, "look at the slices", most); seen > n || seen < 1 {
		t.Errorf("%d slices took URLs at once, want at most %d and one", seen, n)
	} else {
		t.Logf("at most %d slices of %d", seen, n)
	}
	d.recordedOnce(alpha, job, numbered(site, pages))
	if n := asked(site, "/") - asked(site, "/robots.txt"); n != pages {
		t.Errorf("%d requests for %d pages", n, pages)
	}

	d.unmoved(alpha, job, site) // ended
	d.expireNow(alpha, job)
	d.unmoved(alpha, job, site) // expired
	cancelled := d.submit(alpha, fields{"urls": numbered(slowSite(t, 300*time.Millisecond), 100)}).ID
	d.processed(alpha, cancelled, 1)
	d.cancel(alpha, cancelled)
	d.unmoved(alpha, cancelled, site)
	if d.redis.Client.SCard(t.Context(), "{t:"+alpha+"}:running").Val() != 0 {
		t.Error("a job that ended has a place at the run gate")
	}
}

// TestLateRingsOfPaused: the same of a job that is paused.
func TestLateRingsOfPaused(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2)
	const pages = 60
	site := slowSite(t, 100*time.Millisecond)
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "concurrency": 4}).ID
	w := d.watch(alpha, job)
	d.processed(alpha, job, 10)
	d.pause(alpha, job)
	d.settled(alpha, job)
	d.unmoved(alpha, job, site)
	d.resume(alpha, job)
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}
	if n := asked(site, "/") - asked(site, "/robots.txt"); n != pages {
		t.Errorf("%d requests for %d pages", n, pages)
	}
	d.queueEmpties()
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// unmoved rings for a job that needs no slice, and checks that it is as it was.
func (d *deployment) unmoved(tenant, id string, site *crawltest.Site) {
	d.t.Helper()
	res, before := d.get(tenant, id, "")
	requests := len(site.Requests())
	keys := len(d.redis.Keys(jobKey(tenant, id) + "*"))
	d.ringByHand(tenant, id)
	d.queueEmpties()
	again, after := d.get(tenant, id, "")
	there := res.StatusCode == http.StatusOK // else it is a problem, with the number of its request
	if again.StatusCode != res.StatusCode || there && string(after) != string(before) {
		d.t.Errorf("late rings have changed the job:\n%d %s\n%d %s", res.StatusCode, before, again.StatusCode, after)
	}
	if n := len(site.Requests()) - requests; n > 0 {
		d.t.Errorf("late rings have brought %d requests", n)
	}
	if n := len(d.redis.Keys(jobKey(tenant, id) + "*")); n > keys {
		d.t.Errorf("late rings have made keys: %d were there, %d are", keys, n)
	}
}

// expireNow has the retention of an ended job be over, and waits for a sweep to see it.
func (d *deployment) expireNow(tenant, id string) {
	d.t.Helper()
	ctx := d.t.Context()
	pipe := d.redis.Client.TxPipeline()
	pipe.HSet(ctx, jobKey(tenant, id), "expires", 1)
	pipe.ZAdd(ctx, "{t:"+tenant+"}:due", redis.Z{Score: 1, Member: id})
	if _, err := pipe.Exec(ctx); err != nil {
		d.t.Fatal(err)
	}
	crawltest.Eventually(d.t, long, "the job is expired", func() bool {
		res, _ := d.get(tenant, id, "")
		return res.StatusCode == http.StatusGone
	})
}

// TestRingDeliveredAgain: asynq gives a killed worker's ring to another, minutes after our
// own sweep has. By then it is one ring too many, of a job that runs or of one that ended.
func TestRingDeliveredAgain(t *testing.T) {
	t.Parallel()
	d := deploy(t, 0)
	const pages = 200
	site := slowSite(t, 200*time.Millisecond)
	victim := d.startWorker()
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "concurrency": 4}).ID
	w := d.watch(alpha, job)
	d.processed(alpha, job, 20)
	victim.Kill()
	taken := d.redis.Client.LRange(t.Context(), activeKey, 0, -1).Val()
	if len(taken) == 0 {
		t.Fatal("the killed worker had no ring")
	}
	most := d.lookAtSlices(alpha, job, w.ended)
	d.startWorker()
	before := d.status(alpha, job).Processed
	d.processed(alpha, job, before+20)

	for _, id := range taken { // as asynq's recoverer does it
		d.deliverAgain(id)
	}
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}
	d.queueEmpties()
	if seen := crawltest.Receive(t, long, "look at the slices", most); seen > 4 {
		t.Errorf("%d slices at once", seen)
	}
	again := 0
	for _, p := range d.recordedOnce(alpha, job, numbered(site, pages)) {
		again += p.Attempts - 1
	}
	if n := asked(site, "/") - asked(site, "/robots.txt"); n > pages+again {
		t.Errorf("%d requests for %d pages, of which the kill cost %d another", n, pages, again)
	}
	_, record := d.get(alpha, job, "")
	n := len(site.Requests())
	d.ringByHand(alpha, job)
	d.queueEmpties()
	if _, after := d.get(alpha, job, ""); string(after) != string(record) || len(site.Requests()) != n {
		t.Errorf("rings of an ended job have changed it:\n%s\n%s", record, after)
	}
}

// deliverAgain puts a task that a killed worker had back into the queue.
func (d *deployment) deliverAgain(id string) {
	d.t.Helper()
	ctx := d.t.Context()
	pipe := d.redis.Client.TxPipeline()
	gone := pipe.LRem(ctx, activeKey, 0, id)
	pipe.ZRem(ctx, leaseKey, id)
	pipe.HSet(ctx, taskKey+id, "state", "pending")
	pipe.LPush(ctx, pendingKey, id)
	if _, err := pipe.Exec(ctx); err != nil || gone.Val() != 1 {
		d.t.Fatalf("task %s: %v, taken from %d places", id, err, gone.Val())
	}
}
