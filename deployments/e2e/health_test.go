package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// readiness is what /readyz answers, of either process.
type readiness struct {
	status  int
	Failing []string `json:"failing"`
	Workers *int64   `json:"workers"`
	Detail  string   `json:"detail"`
}

func (d *deployment) ready(url string) readiness {
	d.t.Helper()
	res, body := d.exchange(http.MethodGet, url+"/readyz", nil, "")
	r := decode[readiness](d.t, body)
	r.status = res.StatusCode
	return r
}

// TestHealth: probes of both processes, as an orchestrator makes them, while Redis hangs and
// while it is away.
func TestHealth(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1)
	health := "http://" + logged(t, d.procs[1], "worker started")[0]["health"].(string)
	good := func(url string) bool { return d.ready(url).status == http.StatusOK }
	crawltest.Eventually(t, long, "both are ready, and the worker is seen", func() bool {
		r := d.ready(d.url)
		return r.status == http.StatusOK && r.Workers != nil && *r.Workers == 1 && good(health)
	})
	lives := func(when string) {
		t.Helper()
		for _, url := range []string{d.url, health} {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				if res, _ := d.exchange(method, url+"/healthz", nil, ""); res.StatusCode != http.StatusOK {
					t.Errorf("%s: %s /healthz answers %d", when, method, res.StatusCode)
				}
			}
		}
	}
	lives("all is well")

	d.redis.Freeze()
	t.Cleanup(d.redis.Thaw)
	for name, url := range map[string]string{"api": d.url, "worker": health} {
		// An orchestrator waits for a second. Of several the quickest is taken: this machine may
		// be busy, the bound is the same for each.
		quickest := time.Hour
		for range 5 {
			begun := time.Now()
			r := d.ready(url)
			quickest = min(quickest, time.Since(begun))
			if r.status != http.StatusServiceUnavailable || !slices.Contains(r.Failing, "redis") {
				t.Errorf("%s: while Redis hangs it is ready: %+v", name, r)
			}
		}
		if quickest >= time.Second {
			t.Errorf("%s: while Redis hangs a probe is answered after %v at best", name, quickest)
		}
		if res, _ := d.exchange(http.MethodHead, url+"/readyz", nil, ""); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: HEAD /readyz answers %d", name, res.StatusCode)
		}
	}
	lives("Redis hangs")
	d.redis.Thaw()
	crawltest.Eventually(t, long, "ready after the hang", func() bool { return good(d.url) && good(health) })

	d.redis.Stop()
	for name, url := range map[string]string{"api": d.url, "worker": health} {
		if r := d.ready(url); r.status != http.StatusServiceUnavailable || !slices.Contains(r.Failing, "redis") {
			t.Errorf("%s: without Redis it is ready: %+v", name, r)
		}
	}
	lives("Redis is away")
	d.redis.Start()
	crawltest.Eventually(t, long, "ready after the outage", func() bool { return good(d.url) && good(health) })
	d.procs[1].Kill()
	crawltest.Eventually(t, long, "the killed worker is not seen any more, and the API is ready", func() bool {
		r := d.ready(d.url)
		return r.status == http.StatusOK && r.Workers != nil && *r.Workers == 0
	})
}

// TestSwappedUsers: the API has the worker's user in Redis and the worker the API's. Both answer
// PING, and neither could do its work: that shows in their readiness and not only in their logs.
func TestSwappedUsers(t *testing.T) {
	t.Parallel()
	d := deploy(t, 0)
	api := d.run("example.com/trawl/api", "TRAWL_REDIS_URL="+d.redis.url(workerUser))
	worker := d.run("example.com/trawl/worker", "TRAWL_REDIS_URL="+d.redis.url(apiUser))
	for url, words := range map[string]string{
		"http://" + api.WaitFor(ready, `"msg":"listening".*"addr":"([^"]+)"`)[1]:           "API",
		"http://" + worker.WaitFor(ready, `"msg":"worker started".*"health":"([^"]+)"`)[1]: "",
	} {
		r := d.ready(url)
		if r.status != http.StatusServiceUnavailable || !slices.Contains(r.Failing, "redis_rights") || slices.Contains(r.Failing, "redis") {
			t.Errorf("%+v", r)
		}
		if words != "" && (!strings.Contains(r.Detail, words) || !strings.Contains(r.Detail, "users.acl")) {
			t.Errorf("it does not say what to do: %s", r.Detail)
		}
		if res, _ := d.exchange(http.MethodGet, url+"/healthz", nil, ""); res.StatusCode != http.StatusOK {
			t.Errorf("/healthz answers %d", res.StatusCode)
		}
	}
	api.WaitFor(long, `"msg":"the store is not ready","failing":\["redis_rights"\].*users\.acl`)
	for _, p := range []*crawltest.Proc{api, worker} {
		if code := p.Terminate(long); code != 0 {
			t.Errorf("a process ended with %d", code)
		}
	}
	d.redis.each(t, "ACL", "LOG", "RESET") // those were on purpose
	// The one that has its own user is well.
	if r := d.ready(d.url); r.status != http.StatusOK {
		t.Errorf("%+v", r)
	}
	res, body := d.post(alpha, fields{"urls": []string{"http://127.0.0.1:1/"}})
	if res.StatusCode != http.StatusAccepted {
		t.Errorf("%d %s (%s)", res.StatusCode, body, crawl.CodeUnavailable)
	}
}
