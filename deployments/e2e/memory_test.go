package e2e

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// TestRedisMemory (JOB-17): Redis is full while a job runs, for longer than a lease, a ring and
// asynq's own lease live. Nothing new is taken, nothing that was taken fails, people can read and
// cancel, and with memory again all goes on without anybody's help.
func TestRedisMemory(t *testing.T) {
	t.Parallel()
	const pages, full = 200, 35 * time.Second
	site := slowSite(t, 200*time.Millisecond)
	d := deploy(t, 2)
	health := "http://" + logged(t, d.procs[1], "worker started")[0]["health"].(string)
	begun := time.Now()
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "concurrency": 8}).ID
	w := d.watch(alpha, job)
	unwanted := d.submit(beta, fields{"urls": numbered(site, pages), "concurrency": 2}).ID
	d.processed(alpha, job, 8)
	d.processed(beta, unwanted, 1)
	limit := func(bytes string) {
		t.Helper()
		for _, node := range d.redis.Nodes() {
			if err := node.Client.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	limit("1mb") // which an empty Redis has already

	late := fields{"urls": numbered(site, 3)}
	for since := time.Now(); time.Since(since) < full; {
		res, body := d.post(alpha, late, "Idempotency-Key", "late")
		problem(t, res, body, http.StatusServiceUnavailable, crawl.CodeOverloaded)
		if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || s < 1 {
			t.Errorf("Retry-After is %q", res.Header.Get("Retry-After"))
		}
		if r := d.ready(d.url); r.status != http.StatusServiceUnavailable ||
			!slices.Contains(r.Failing, "redis_memory") || !strings.Contains(r.Detail, "full") {
			t.Fatalf("the API is ready: %+v", r)
		}
		if r := d.ready(health); r.status != http.StatusServiceUnavailable || !slices.Contains(r.Failing, "redis") {
			t.Fatalf("a worker is ready: %+v", r)
		}
		if res, _ := d.exchange(http.MethodGet, health+"/healthz", nil, ""); res.StatusCode != http.StatusOK {
			t.Fatalf("the worker would be restarted: %d", res.StatusCode)
		}
		if j := d.status(alpha, job); j.State.Terminal() || j.Failed > 0 {
			t.Fatalf("the job does not wait: %+v", j)
		}
		if unwanted != "" {
			asked := time.Now()
			if j := d.cancel(beta, unwanted); j.State != crawl.Cancelled || j.Failed > 0 {
				t.Errorf("the other job is cancelled as %+v", j)
			}
			t.Logf("cancelled in %v", time.Since(asked))
			unwanted = ""
		}
		next := time.NewTimer(time.Second)
		<-next.C
	}
	j := d.status(alpha, job)
	if j.Active != 0 || j.WaitingFor != crawl.WaitingMemory {
		t.Errorf("the job does not say that it waits for memory: %+v", j)
	}

	again := time.Now()
	limit("1gb")
	crawltest.Eventually(t, long, "the API to be ready", func() bool { return d.ready(d.url).status == http.StatusOK })
	d.processed(alpha, job, j.Processed+1)
	t.Logf("the job went on %v after there was memory again", time.Since(again))
	res, body := d.post(alpha, late, "Idempotency-Key", "late")
	if res.StatusCode != http.StatusAccepted || res.Header.Get("Idempotent-Replayed") != "" {
		t.Fatalf("the refused submission is answered %d %v %s", res.StatusCode, res.Header, body)
	}
	once := decode[crawl.Job](t, body).ID
	if res, body = d.post(alpha, late, "Idempotency-Key", "late"); decode[crawl.Job](t, body).ID != once ||
		res.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same key again: %d %s", res.StatusCode, body)
	}
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}
	t.Logf("the job took %v in all", time.Since(begun))
	if j := d.watch(alpha, once).end(long); j.State != crawl.Completed || j.Accepted != 3 {
		t.Errorf("the late job ends as %+v", j)
	}
	for _, p := range d.recordedOnce(alpha, job, numbered(site, pages)) {
		if p.Attempts != 1 {
			t.Errorf("%s took %d attempts", p.URL, p.Attempts)
		}
	}
	if n := d.redis.Client.ZCard(t.Context(), "asynq:{crawl}:archived").Val(); n != 0 {
		t.Errorf("%d rings were dropped", n)
	}
	crawltest.Eventually(t, long, "the worker to be ready", func() bool { return d.ready(health).status == http.StatusOK })
}
