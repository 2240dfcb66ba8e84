package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// owned says whose some keys are.
type owned struct {
	key   *regexp.Regexp
	owner string
}

// owners are the keys that may be there for ever, and who they belong to. What is not here
// and does not expire has been forgotten by everybody.
var owners = []owned{
	{regexp.MustCompile(`^trawl:tenants$`), "the sweep: which tenants it visits"},
	{regexp.MustCompile(`^\{t:[a-z0-9_-]+\}$`), "the tenant: what it is granted, and its counts"},
	{regexp.MustCompile(`^\{t:[a-z0-9_-]+\}:day:\d+$`), "the tenant: pages of the day, until the first page of another"},
	{regexp.MustCompile(`^\{t:[a-z0-9_-]+\}:collections$`), "the tenant: its collections"},
	{regexp.MustCompile(`^\{t:[a-z0-9_-]+\}:c:`), "a collection, until it is deleted"},
	{regexp.MustCompile(`^\{t:[a-z0-9_-]+\}:d:\d+:`), "the items of a collection, until it is deleted"},
	{regexp.MustCompile(`^asynq:(queues|servers|workers)$`), "asynq: the names of its queues, servers and workers"},
	{regexp.MustCompile(`^asynq:\{crawl\}:(processed|failed)$`), "asynq: the counts of the queue"},
	{regexp.MustCompile(`^\{a\}:`), "the admin: tenants and keys, until they are deleted"},
}

// mixedSite has something of every kind that a crawl can meet.
func mixedSite(t *testing.T) *crawltest.Site {
	t.Helper()
	return crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := func(body string) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprintf(w, "<title>%s</title><h1>%s</h1>%s", r.URL.Path, r.URL.Path, body)
		}
		switch p := r.URL.Path; {
		case p == "/robots.txt":
			_, _ = fmt.Fprintf(w, "User-agent: *\nDisallow: /secret\nSitemap: http://%s/sitemap.xml\n", r.Host)
		case p == "/sitemap.xml":
			w.Header().Set("Content-Type", "application/xml")
			_, _ = fmt.Fprintf(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`+
				`<url><loc>http://%[1]s/mapped/1</loc><lastmod>2026-01-02</lastmod></url></urlset>`, r.Host)
		case p == "/broken":
			http.Error(w, "broken", http.StatusNotFound)
		case p == "/moved":
			http.Redirect(w, r, "/a", http.StatusMovedPermanently)
		case p == "/noindex":
			page(`<meta name="robots" content="noindex">`)
		case p == "/busy":
			w.Header().Set("Retry-After", "1")
			http.Error(w, "busy", http.StatusServiceUnavailable)
		case strings.HasPrefix(p, "/hang"):
			<-r.Context().Done()
		default:
			page(`<p class="card"><b>one</b></p><p class="card"><b>two</b></p><a href="/a">a</a> <a href="/b">b</a> ` +
				`<a href="/same?x=1">s</a> <a href="/same?x=2">s</a> <a href="/broken">x</a> ` +
				`<a href="/moved">m</a> <a href="/secret">s</a> <a href="/noindex">n</a> <a href="mailto:x@example.com">m</a>` +
				`<a href="http://127.0.0.2:1/other">o</a> <a href="/excluded/1">e</a> <a rel="nofollow" href="/nofollow">f</a>`)
		}
	}))
}

// everyKind submits and ends jobs of every kind and returns them; those that were deleted
// are under the name that begins with -.
func (d *deployment) everyKind() map[string]string {
	d.t.Helper()
	t, site := d.t, mixedSite(d.t)
	received := crawltest.NewHandlerSite(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	closed := "http://" + crawltest.FreeAddr(t) + "/hook"
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	every := []string{"job.running", "job.completed", "job.completed_with_errors", "job.failed", "job.cancelled"}
	jobs := map[string]string{}
	submit := func(name string, spec fields, more ...string) string {
		spec["retention"] = "1m" // the least
		res, body := d.post(alpha, spec, more...)
		if res.StatusCode != http.StatusAccepted {
			t.Fatalf("%s: %d %s", name, res.StatusCode, body)
		}
		jobs[name] = decode[crawl.Job](t, body).ID
		return jobs[name]
	}
	everything := fields{
		"seed_url": site.URL + "/", "max_pages": 30, "max_depth": 3, "exclude": []string{"/excluded/*"}, "sitemap": "include",
		"formats": []string{"markdown", "text", "html", "links", "metadata"},
		"fields":  fields{"title": fields{"selector": "h1"}},
		"items":   fields{"selector": ".card", "fields": fields{"name": fields{"selector": "b"}}},
		"tags":    []string{"a", "b"}, "webhook": fields{"url": received.URL + "/hook", "secret": secret, "events": every},
	}
	submit("site", everything, "Idempotency-Key", "site")
	submit("collected", fields{
		"seed_url": site.URL + "/", "max_pages": 30, "fields": fields{"title": fields{"selector": "h1", "required": true}},
		"collection": fields{"name": "pages", "facets": []string{"title"}},
	})
	submit("page limit", fields{"seed_url": site.URL + "/", "max_pages": 2})
	submit("list", fields{
		"urls": []string{site.URL + "/a", site.URL + "/broken", site.URL + "/secret", site.URL + "/moved"},
	})
	submit("seed failed", fields{"seed_url": site.URL + "/broken"})
	submit("busy host", fields{"urls": []string{site.URL + "/busy"}, "time_limit": "2s"})
	submit("time limit", fields{"urls": []string{site.URL + "/hang/1", site.URL + "/a"}, "time_limit": "1s"})
	submit("deaf receiver", fields{
		"urls": []string{site.URL + "/a"}, "webhook": fields{"url": closed, "events": every},
	})
	submit("byte limit", fields{"urls": numbered(heavySite(t), 12), "formats": []string{"html"}})
	for name, id := range jobs {
		if j := d.watchItems(alpha, id); !j.State.Terminal() {
			t.Errorf("%s: ended as %+v", name, j)
		}
	}
	submit("retried", fields{"urls": []string{site.URL + "/broken"}})
	d.watch(alpha, jobs["retried"]).end(long)
	res, body := d.order(alpha, jobs["list"], "retry-failed")
	if res.StatusCode != http.StatusAccepted {
		t.Errorf("retry-failed answered %d: %s", res.StatusCode, body)
	} else {
		jobs["retry"] = decode[crawl.Job](t, body).ID
		d.watch(alpha, jobs["retry"]).end(long)
	}
	one := `{"url": "` + site.URL + `/a", "formats": ["text"]}`
	res, body = d.exchange(http.MethodPost, d.url+"/v1/extract", d.as(alpha), one)
	if res.StatusCode != http.StatusOK {
		t.Errorf("extract answered %d: %s", res.StatusCode, body)
	}

	cancelled := submit("cancelled", fields{
		"urls": numbered(hangingSite(t).Site, 20), "concurrency": 4,
	}, "Idempotency-Key", "c")
	crawltest.Eventually(t, long, "it runs", func() bool { return d.status(alpha, cancelled).Active > 0 })
	d.cancel(alpha, cancelled)
	slow := numbered(slowSite(t, 100*time.Millisecond), 40)
	paused := submit("paused and cancelled", fields{"urls": slow, "concurrency": 2})
	d.processed(alpha, paused, 2)
	d.pause(alpha, paused)
	d.settled(alpha, paused)
	d.ringByHand(alpha, paused)
	d.cancel(alpha, paused)
	resumed := submit("paused and resumed", fields{"urls": slow, "concurrency": 2})
	d.processed(alpha, resumed, 2)
	d.pause(alpha, resumed)
	d.resume(alpha, resumed)
	d.watch(alpha, resumed).end(long)
	deleted := submit("-deleted", fields{
		"urls": []string{site.URL + "/a"}, "formats": []string{"text"},
	}, "Idempotency-Key", "d")
	d.watch(alpha, deleted).end(long)
	res, body = d.exchange(http.MethodDelete, d.url+"/v1/jobs/"+deleted, d.as(alpha), "")
	if res.StatusCode != http.StatusNoContent {
		t.Errorf("delete answered %d: %s", res.StatusCode, body)
	}
	d.ringByHand(alpha, deleted)
	return jobs
}

// watchItems waits for the end of a job whose records are more than its pages.
func (d *deployment) watchItems(tenant, id string) crawl.Job {
	d.t.Helper()
	var j crawl.Job
	crawltest.Eventually(d.t, long, "the job ends", func() bool {
		j = d.status(tenant, id)
		return j.State.Terminal()
	})
	return j
}

// unowned lists the keys that neither expire nor belong to anybody, and every key of the
// hosts that does not expire: hosts have no owner.
func (d *deployment) unowned(keys []string) []string {
	d.t.Helper()
	var odd []string
	for _, key := range keys {
		life, err := d.redis.Client.PTTL(d.t.Context(), key).Result()
		if err != nil {
			d.t.Fatal(err)
		}
		if life != -1 { // it has a time to live, or is gone by now
			continue
		}
		if !slices.ContainsFunc(owners, func(o owned) bool { return o.key.MatchString(key) }) {
			odd = append(odd, key)
		}
	}
	slices.Sort(odd)
	return odd
}

// TestNothingIsLeft: no key without an expiry or an owner. Jobs of every kind run, end and
// expire; what is in Redis then either has a time to live or is in [owners], and of a job
// whose tombstone is gone there is nothing at all.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	awayFromMidnight(t)
	d := deploy(t, 2, "TRAWL_MAX_KEPT_BYTES=3000000", "TRAWL_SUBMISSIONS_PER_SECOND=1000")
	jobs := d.everyKind()
	d.queueEmpties()

	// Every job of the tenant, that of extract as well.
	res, body := d.exchange(http.MethodGet, d.url+"/v1/jobs?limit=100", d.as(alpha), "")
	listed := decode[struct{ Items []crawl.Job }](t, body).Items
	if res.StatusCode != http.StatusOK || len(listed) < len(jobs)-1 {
		t.Fatalf("%d jobs are listed: %d %s", len(listed), res.StatusCode, body)
	}
	states := map[string]int{}
	all := []string{jobs["-deleted"]}
	for _, j := range listed {
		states[string(j.State)+" "+string(j.StopReason)]++
		all = append(all, j.ID)
		ctx := t.Context()
		pipe := d.redis.Client.TxPipeline() // a minute is the shortest retention; here it is over
		pipe.HSet(ctx, jobKey(alpha, j.ID), "expires", 1)
		pipe.ZAdd(ctx, "{t:"+alpha+"}:due", redis.Z{Score: 1, Member: j.ID})
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d jobs ended as %v", len(all), states)
	for _, want := range []crawl.StopReason{
		crawl.StopFrontierEmpty, crawl.StopPageLimit, crawl.StopTimeLimit, crawl.StopByteLimit, crawl.StopCancelled,
		crawl.StopSeedFailed,
	} {
		if !slices.ContainsFunc(listed, func(j crawl.Job) bool { return j.StopReason == want }) {
			t.Errorf("no job has ended for %s: this kind is not tried", want)
		}
	}
	for _, id := range all {
		crawltest.Eventually(t, long, "job "+id+" is expired", func() bool {
			res, _ := d.get(alpha, id, "")
			return res.StatusCode == http.StatusGone
		})
	}

	// Rings that come now find a tombstone.
	for _, id := range all[:3] {
		d.ringByHand(alpha, id)
	}
	d.queueEmpties()
	var odd []string
	settle := time.Now()
	for odd = d.unowned(d.redis.Keys("*")); len(odd) > 0 && time.Since(settle) < heal; odd = d.unowned(d.redis.Keys("*")) {
		timer := time.NewTimer(200 * time.Millisecond) // a worker reports the events that nobody was told of
		<-timer.C
	}
	for _, key := range odd {
		t.Errorf("%s (%s) neither expires nor belongs to anybody", key, d.holds(key))
	}

	// The tombstones go, and nothing of the jobs is left.
	for _, key := range d.redis.Keys("{t:*") {
		if strings.Contains(key, ":j:") || strings.Contains(key, ":idem:") {
			if err := d.redis.Client.PExpire(t.Context(), key, time.Millisecond).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, id := range all {
		crawltest.Eventually(t, long, "the tombstone of "+id+" is gone", func() bool {
			res, _ := d.get(alpha, id, "")
			return res.StatusCode == http.StatusNotFound
		})
	}
	// Anything that still speaks of a job, by its name or by what it holds.
	for _, key := range d.redis.Keys("*") {
		life, held := d.redis.Client.PTTL(t.Context(), key).Val(), ""
		if life == -1 && !strings.Contains(key, "}:d:") { // an item says which job found it
			held = d.holds(key)
		}
		for _, id := range all {
			if strings.Contains(key, id) || strings.Contains(held, id) {
				t.Errorf("job %s is forgotten, and %s (%.300s) speaks of it", id, key, held)
			}
		}
		if strings.HasPrefix(key, "{h:") && life == -1 {
			t.Errorf("%s does not expire: a host has no owner", key)
		}
	}

	// Even the tenant's collection goes, when it is deleted.
	res, body = d.exchange(http.MethodDelete, d.url+"/v1/collections/pages", d.as(alpha), "")
	if res.StatusCode != http.StatusNoContent {
		t.Errorf("the collection was deleted with %d: %s", res.StatusCode, body)
	}
	crawltest.Eventually(t, long, "what the collection held is freed", func() bool {
		return len(d.redis.Keys("{t:*}:d:*"))+len(d.redis.Keys("{t:*}:c:*"))+len(d.redis.Keys("{t:*}:dropped")) == 0
	})
}

// holds says what a key holds, for the message of a test.
func (d *deployment) holds(key string) string {
	d.t.Helper()
	ctx, c := d.t.Context(), d.redis.Client
	kind := c.Type(ctx, key).Val()
	var v any
	switch kind {
	case "string":
		v = c.Get(ctx, key).Val()
	case "hash":
		v = c.HGetAll(ctx, key).Val()
	case "list":
		v = c.LRange(ctx, key, 0, 20).Val()
	case "set":
		v = c.SMembers(ctx, key).Val()
	case "zset":
		v = c.ZRangeWithScores(ctx, key, 0, 20).Val()
	}
	text, err := json.Marshal(v)
	if err != nil {
		d.t.Fatal(err)
	}
	return kind + " " + string(text)
}
