package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
)

// TestRedisOutage: Redis is away for five seconds in the middle of a job and comes back
// with what it had. Nobody restarts anything.
func TestRedisOutage(t *testing.T) {
	t.Parallel()
	const pages = 800
	gen := gensite.New(pages, 12, 2000, 50*time.Millisecond)
	site := crawltest.NewHandlerSite(t, gen)
	d := deploy(t, 2)
	job := d.submit(alpha, fields{
		"seed_url": site.URL + "/p/0", "max_pages": pages, "max_depth": 100, "concurrency": 16,
	}).ID
	w := d.startWatch(&watch{tenant: alpha, job: job, outage: true})
	d.processed(alpha, job, pages/8)

	d.redis.Stop()
	spec := fields{"urls": []string{site.URL + "/p/1"}}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	refused := 0
	for away := time.Now(); time.Since(away) < 5*time.Second; refused++ {
		begun := time.Now()
		res, body := d.post(alpha, spec, "Idempotency-Key", "outage")
		problem(t, res, body, http.StatusServiceUnavailable, crawl.CodeUnavailable)
		if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || s < 1 {
			t.Errorf("Retry-After is %q", res.Header.Get("Retry-After"))
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("the refusal took %v", took)
		}
		<-tick.C
	}
	d.redis.Start()

	// Nothing is half-stored: the key is free, for any input. The first answers may still
	// be 503, since the client of Redis waits a second after many failed dials; a caller
	// that heeds Retry-After does not see it.
	spec["urls"] = []string{site.URL + "/p/2"}
	back := time.Now()
	var res *http.Response
	var body []byte
	crawltest.Eventually(t, 10*time.Second, "an answer other than 503", func() bool {
		res, body = d.post(alpha, spec, "Idempotency-Key", "outage")
		return res.StatusCode != http.StatusServiceUnavailable
	})
	t.Logf("submissions are taken %v after Redis answers", time.Since(back))
	if res.StatusCode != http.StatusAccepted || res.Header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("after the outage a submission answers %d %v %s", res.StatusCode, res.Header, body)
	}
	next := decode[crawl.Job](t, body).ID
	if j := d.watch(alpha, next).end(long); j.State != crawl.Completed || j.Accepted != 1 {
		t.Errorf("the job submitted after the outage ends as %+v", j)
	}
	res, body = d.exchange(http.MethodGet, d.url+"/v1/jobs", d.as(alpha), "")
	jobs := decode[struct{ Items []crawl.Job }](t, body).Items
	if res.StatusCode != http.StatusOK || len(jobs) != 2 {
		t.Errorf("%d refused submissions left a trace: %d jobs, want 2", refused, len(jobs))
	}

	if j := w.end(long); j.State != crawl.Completed || j.Total != pages || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}
	var want []string
	for i := range pages {
		want = append(want, fmt.Sprintf("%s/p/%d", site.URL, i))
	}
	again := int64(0)
	for _, p := range d.recordedOnce(alpha, job, want) {
		again += int64(p.Attempts) - 1
	}
	// One more for the job submitted later. Leases outlast the outage, and what was
	// fetched meanwhile is kept; only a page whose lease was lost all the same, on a slow
	// machine, may be fetched twice.
	if twice := gen.Total() - pages - 1; gen.Distinct() != pages || twice > again {
		t.Errorf("%d pages were served, %d requests more; %d leases were lost", gen.Distinct(), twice, again)
	}
	t.Logf("%d submissions refused, %d leases lost, longest gap %v", refused, again, w.gap)
}

// TestRedisEmptied: JOB-18. Redis comes back without its data.
func TestRedisEmptied(t *testing.T) {
	t.Parallel()
	site := slowSite(t, 200*time.Millisecond)
	d := deploy(t, 1)
	var old []string
	for range 3 {
		old = append(old, d.submit(alpha, fields{"urls": numbered(site, 200), "concurrency": 2}).ID)
	}
	d.processed(alpha, old[0], 2)
	d.redis.Stop()
	d.redis.Wipe()
	d.redis.Start()

	job := d.submit(alpha, fields{"urls": numbered(site, 3)}).ID
	w := d.watch(alpha, job)
	for _, id := range old {
		for _, what := range []string{"", "/records", "/errors", "/result"} {
			res, body := d.get(alpha, id, what)
			problem(t, res, body, http.StatusNotFound, crawl.CodeNotFound)
		}
		res, body := d.exchange(http.MethodPost, d.url+"/v1/jobs/"+id+"/cancel", d.as(alpha), "")
		problem(t, res, body, http.StatusNotFound, crawl.CodeNotFound)
	}
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != 3 {
		t.Errorf("JOB-18: the new job ends as %+v", j)
	}
	more := d.submit(alpha, fields{"urls": numbered(site, 200), "concurrency": 2}).ID
	w = d.watch(alpha, more)
	d.processed(alpha, more, 1)
	if j := d.cancel(alpha, more); j.State != crawl.Cancelled {
		t.Errorf("JOB-18: a new job is cancelled as %+v", j)
	}
	w.end(long)
	// What the worker still held of the lost jobs must not have brought them back.
	for _, id := range old {
		res, body := d.get(alpha, id, "")
		problem(t, res, body, http.StatusNotFound, crawl.CodeNotFound)
	}
	for _, key := range d.redis.Keys("*") {
		for _, id := range old {
			if strings.Contains(key, id) {
				t.Errorf("JOB-18: the lost job %s is in Redis again as %s", id, key)
			}
		}
	}
}
