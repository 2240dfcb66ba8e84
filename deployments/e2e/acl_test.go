package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// everything is a site that has one of each: what robots.txt and a sitemap say, links,
// redirects, aliases, duplicates, faults, retries.
const everything = `
-- robots.txt --
User-agent: *
Disallow: /private
Sitemap: {{site}}/sitemap.xml
-- sitemap.xml --
header: Content-Type: application/xml

<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>{{site}}/mapped</loc><lastmod>2026-01-02</lastmod></url></urlset>
-- index.html --
<title>Index</title>
<a href="/a">a</a> <a href="/same">same</a> <a href="/moved">moved</a> <a href="/missing">missing</a>
<a href="/private">private</a> <a href="/noindex">noindex</a>
<a href="ftp://127.0.0.1/">ftp</a> <a href="/flaky">flaky</a>
-- a --
<title>A</title> <a href="/">index</a>
-- same --
<title>A</title> <a href="/">index</a>
-- tagged --
header: ETag: "1"

<title>Tagged</title>
-- mapped --
<title>Mapped</title>
-- noindex --
<meta name="robots" content="noindex">
-- moved --
status: 301
header: Location: /a
`

// TestRights: what usersFile grants is what is needed. One life of a deployment uses every
// command that is granted, but for those that have a reason here; that nothing more is
// needed is held by every test of this package, which all run under it.
func TestRights(t *testing.T) {
	t.Parallel()
	const (
		cluster     = "a Redis Cluster: TestClusterMasterKilled"
		onlyMonitor = "the monitor of a Redis Cluster: TestMonitorShows under TRAWL_E2E_REDIS=cluster"
		moving      = "a Redis Cluster that moves a slot: TestClusterReshard"
		database    = "a database other than 0 in the URL"
		asynqs      = "asynq, of a ring that failed, or that a stopped worker gives back"
		resent      = "what was sent again because its answer was lost"
		expired     = "the sweep of a job whose retention is over"
		monitors    = "the monitor: TestMonitorRights"
		alone       = "the sweep of a job that no slice serves"
	)
	excused := map[string]map[string]string{
		apiUser: {
			"wait": "TRAWL_REDIS_WAIT: TestSentinelFailover", "select": database, "cluster|slots": cluster, "command": cluster,
			"asking": moving, "cluster|info": onlyMonitor, "cluster|keyslot": onlyMonitor, "cluster|nodes": onlyMonitor,
			"sismember": resent,
			"hvals":     monitors, "lrem": monitors, "memory|usage": monitors, "publish": monitors, "zrangebyscore": monitors,
			"zremrangebyrank": monitors, "zrevrange": monitors,
		},
		workerUser: {
			"select": database, "cluster|slots": cluster, "command": cluster, "asking": moving, "rpush": asynqs,
			"getbit": resent, "sismember": alone, "hkeys": expired, "pttl": expired,
		},
	}
	redis := guard(t)
	commands := watchCommands(t, redis)
	live(t, deployOn(t, redis, 1, "TRAWL_ADMIN_KEY="+adminKey, "TRAWL_HOST_DELAY=1ms",
		"TRAWL_MAX_RUNNING=1", "TRAWL_PAGES_PER_DAY=100000", "TRAWL_SUBMISSIONS_PER_SECOND=1000"))
	for user, reasons := range excused {
		used := commands.used(user)
		granted := grants(t, user)
		for _, command := range granted {
			if !used[command] && reasons[command] == "" {
				t.Errorf("%s may %s and never does: take it from %s, or say here why", user, command, usersFile)
			}
		}
		for command := range reasons {
			if !slices.Contains(granted, command) {
				t.Errorf("%s may not %s, but that is excused", user, command)
			}
		}
	}
}

// grants returns the commands that usersFile grants to a user.
func grants(t *testing.T, user string) []string {
	t.Helper()
	shipped, err := os.ReadFile(usersFile)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(shipped)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[1] != user {
			continue
		}
		for _, w := range words {
			w = strings.Trim(w, "()") // of a selector
			if command, ok := strings.CutPrefix(w, "+"); ok {
				if strings.HasPrefix(command, "@") {
					t.Errorf("%s has the category %s: name the commands", user, command)
				}
				if !slices.Contains(all, command) {
					all = append(all, command)
				}
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s grants %s nothing", usersFile, user)
	}
	return all
}

const adminKey = "an-admin-key-0123456789"

// live does with a deployment all that can be done with one.
func live(t *testing.T, d *deployment) {
	t.Helper()
	d.secrets = append(d.secrets, adminKey)
	site := crawltest.NewSite(t, []byte(everything))
	for _, url := range []string{d.url, "http://" + logged(t, d.procs[1], "worker started")[0]["health"].(string)} {
		if res, body := d.exchange(http.MethodGet, url+"/readyz", nil, ""); res.StatusCode != http.StatusOK {
			t.Fatalf("%s is not ready: %s", url, body)
		}
	}
	administer(t, d)
	d.scraped(d.url)

	spec := fields{"seed_url": site.URL + "/", "tags": []string{"t"}}
	res, body := d.exchange(http.MethodPost, d.url+"/v1/jobs/preview", d.as(alpha), `{"seed_url":"`+site.URL+`/"}`)
	if res.StatusCode != http.StatusOK {
		t.Errorf("preview: %d %s", res.StatusCode, body)
	}
	if res, body = d.post(alpha, spec, "Idempotency-Key", "once"); res.StatusCode != http.StatusAccepted {
		t.Fatalf("not accepted: %d %s", res.StatusCode, body)
	}
	job := decode[crawl.Job](t, body)
	w := d.watch(alpha, job.ID)
	slow := d.submit(alpha, fields{"urls": numbered(slowSite(t, 200*time.Millisecond), 300)}) // waits at the gate
	w2 := d.watch(alpha, slow.ID)
	waiting := d.submit(alpha, fields{"urls": []string{site.URL + "/a"}})
	d.cancel(alpha, waiting.ID)
	limited := d.submit(beta, fields{"urls": numbered(slowSite(t, 200*time.Millisecond), 300), "time_limit": "1s"})
	w3 := d.watch(beta, limited.ID)
	w.end(long)
	if res, body = d.post(alpha, spec, "Idempotency-Key", "once"); res.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("not replayed: %s", body)
	}
	for _, what := range []string{
		"/records", "/errors", "/urls", "/urls?state=skipped", "/urls?state=accepted&limit=1", "/result?format=ndjson",
		"/urls?url=" + site.URL + "/private",
	} {
		if res, body := d.get(alpha, job.ID, what); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d %s", what, res.StatusCode, body)
		}
	}
	collect(t, d, site.URL)
	for _, query := range []string{"", "?state=completed", "?tag=t", "?limit=1"} {
		if res, body := d.exchange(http.MethodGet, d.url+"/v1/jobs"+query, d.as(alpha), ""); res.StatusCode != http.StatusOK {
			t.Errorf("the list %s: %d %s", query, res.StatusCode, body)
		}
	}
	d.processed(alpha, slow.ID, 5)
	d.procs[1].Kill()
	d.startWorker()
	d.processed(alpha, slow.ID, 40) // what was leased is swept back
	d.cancel(alpha, slow.ID)
	w2.end(long)
	w3.end(long)
	for _, id := range []string{job.ID, slow.ID} {
		if res, body := d.exchange(http.MethodDelete, d.url+"/v1/jobs/"+id, d.as(alpha), ""); res.StatusCode >= 300 {
			t.Errorf("delete: %d %s", res.StatusCode, body)
		}
	}
	for _, p := range []*crawltest.Proc{d.procs[0], d.procs[2]} {
		if code := p.Terminate(long); code != 0 {
			t.Errorf("a process ended with %d", code)
		}
	}
}

// collect fills a collection from two sides, reads it and removes it.
func collect(t *testing.T, d *deployment, site string) {
	t.Helper()
	for _, urls := range [][]string{{site + "/tagged"}, {site + "/tagged", site + "/a"}} {
		d.watch(beta, d.submit(beta, fields{
			"urls": urls, "formats": []string{"markdown"}, "fields": fields{"title": fields{"selector": "title"}},
			"collection": fields{"name": "c", "facets": []string{"title"}},
		}).ID).end(long)
	}
	for _, what := range []string{"", "/c", "/c/items", "/c/items?title=A", "/c/items?missing=true", "/c/analytics", "/c/export?format=csv"} {
		if res, body := d.exchange(http.MethodGet, d.url+"/v1/collections"+what, d.as(beta), ""); res.StatusCode != http.StatusOK {
			t.Errorf("collections%s: %d %s", what, res.StatusCode, body)
		}
	}
	for _, what := range []string{"/items?key=" + url.QueryEscape(site+"/a"), ""} {
		res, body := d.exchange(http.MethodDelete, d.url+"/v1/collections/c"+what, d.as(beta), "")
		if res.StatusCode != http.StatusNoContent {
			t.Errorf("delete%s: %d %s", what, res.StatusCode, body)
		}
	}
}

// administer makes a tenant and its keys.
func administer(t *testing.T, d *deployment) {
	t.Helper()
	admin := http.Header{"Authorization": {"Bearer " + adminKey}, "Content-Type": {"application/json"}}
	const tenants, gamma = "/v1/admin/tenants", "/v1/admin/tenants/gamma"
	ask := func(method, path, body string, status int) fields {
		res, got := d.exchange(method, d.url+path, admin, body)
		if res.StatusCode != status {
			t.Fatalf("%s %s answered %d: %s", method, path, res.StatusCode, got)
		}
		answer := fields{}
		if len(got) > 0 {
			answer = decode[fields](t, got)
		}
		return answer
	}
	ask(http.MethodPost, tenants, `{"name":"gamma","quota":{"max_running":2}}`, http.StatusCreated)
	ask(http.MethodPatch, gamma, `{"quota":{"max_running":3}}`, http.StatusOK)
	ask(http.MethodGet, gamma, "", http.StatusOK)
	ask(http.MethodGet, tenants+"?limit=1", "", http.StatusOK)
	first := ask(http.MethodPost, gamma+"/keys", `{"label":"a"}`, http.StatusCreated)
	second := ask(http.MethodPost, gamma+"/keys/"+first["key_id"].(string)+"/rotate", `{"overlap":"1h"}`,
		http.StatusCreated)
	ask(http.MethodGet, gamma+"/keys", "", http.StatusOK)
	for _, made := range []fields{first, second} {
		d.secrets = append(d.secrets, made["key"].(string))
		d.keys["gamma"] = made["key"].(string)
		if res, body := d.exchange(http.MethodGet, d.url+"/v1/jobs", d.as("gamma"), ""); res.StatusCode != http.StatusOK {
			t.Errorf("a key that was made opens nothing: %d %s", res.StatusCode, body)
		}
	}
	ask(http.MethodDelete, gamma+"/keys/"+second["key_id"].(string), "", http.StatusNoContent)
}

// TestRefused: what neither user may do, and what only the other may.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := guard(t)
	both := []string{
		// What would show, change or end everything of everybody.
		"KEYS *", "SCAN 0", "RANDOMKEY", "DBSIZE", "FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "SORT {t:a}", "MIGRATE h 1 k 0 1",
		"DUMP {t:a}", "RESTORE {t:a} 0 x", "OBJECT ENCODING {t:a}", "COPY {t:a} {t:b}", "MOVE {t:a} 1",
		// The server itself.
		"CONFIG GET requirepass", "CONFIG SET dir /tmp", "CONFIG REWRITE", "DEBUG SLEEP 1", "SHUTDOWN", "SAVE", "BGSAVE",
		"BGREWRITEAOF", "REPLICAOF h 1", "PSYNC ? -1", "MODULE LOAD /tmp/x.so", "FAILOVER", "CLUSTER RESET",
		"ACL LIST", "ACL WHOAMI", "ACL SETUSER x", "ACL LOAD", "MONITOR", "SLOWLOG GET",
		"LATENCY DOCTOR",
		"CLIENT LIST", "CLIENT KILL 127.0.0.1:1", "CLIENT PAUSE 1000", "CLIENT NO-EVICT on",
		// Other people's scripts.
		"SCRIPT FLUSH", "SCRIPT KILL", "SCRIPT LOAD x", "FUNCTION LOAD x", "FUNCTION FLUSH", "FCALL f 0",
		// Keys that are not Trawl's, and its own with another name.
		"GET k", "SET k v", "DEL session:1", "HGETALL t:a", "GET {b}:k", "GET asynq", "DEL trawl:tenants",
		"SUBSCRIBE other", "PSUBSCRIBE *", "MULTI",
	}
	for user, only := range map[string][]string{
		// The API crawls nothing.
		apiUser: {
			"GET {h:example.com:80}:next", "ZADD {h:example.com:80}:slots 1 a", "HGETALL asynq:workers:{h:1:a}",
			"SUBSCRIBE asynq:cancel", "SREM trawl:tenants x", "ZPOPMIN asynq:servers", "PUBLISH other x",
		},
		// A worker knows no key of a tenant and makes no tenant.
		workerUser: {
			"HGETALL {a}:key:0", "HGET {a}:key:0 tenant", "ZRANGE {a}:tenants 0 -1", "HSET {a}:t:b quota x",
			"DEL {a}:keys:b", "EXISTS {a}", "SADD trawl:tenants x", "SREM trawl:tenants x", "WAIT 1 1",
			"INFO", "INFO server", "CLUSTER NODES", "CLUSTER INFO", "PUBLISH asynq:cancel x", "SET trawl:log debug", "DEL trawl:log",
		},
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			if got := dryRun(t, r, user, "PING"); got != "OK" {
				t.Fatalf("PING: %s", got)
			}
			for _, command := range append(only, both...) {
				if got := dryRun(t, r, user, command); !strings.Contains(got, "no permissions") {
					t.Errorf("%s may %s: %s", user, command, got)
				}
			}
		})
	}

	// A script has the rights of who sends it, for keys that it does not declare as well.
	worker := r.as(t, workerUser)
	for _, body := range []string{
		"return redis.call('HGETALL', '{a}:key:0')", "return redis.call('KEYS', '*')", "return redis.call('FLUSHALL')",
	} {
		if err := worker.Eval(t.Context(), body, []string{"{t:a}"}).Err(); err == nil || errors.Is(err, redis.Nil) {
			t.Errorf("the worker's script %s: %v", body, err)
		}
	}
	r.each(t, "ACL", "LOG", "RESET") // those were on purpose
}

func dryRun(t *testing.T, r *guardedRedis, user, command string) string {
	t.Helper()
	args := []any{"ACL", "DRYRUN", user}
	for _, w := range strings.Fields(command) {
		args = append(args, w)
	}
	got, err := r.Client.Do(t.Context(), args...).Text()
	if err != nil {
		return err.Error()
	}
	return got
}

// TestDefaultUserOff: the default user is off and has every right all the same. Redis (7.0,
// mended at the end of 2025) replays the transactions of its append-only file, which all
// scripts are, with the rights of that user, and drops in silence what it may not do:
// https://github.com/redis/redis/issues/14541, https://github.com/valkey-io/valkey/issues/3983
func TestDefaultUserOff(t *testing.T) {
	t.Parallel()
	r := guard(t)
	const script = `redis.call('HSET', KEYS[1], 'a', '1') redis.call('SADD', KEYS[2], 'b') return 1`
	if err := r.as(t, workerUser).Eval(t.Context(), script, []string{"{t:a}", "{t:a}:running"}).Err(); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r.Start()
	if n, err := r.Client.Exists(t.Context(), "{t:a}", "{t:a}:running").Result(); err != nil || n != 2 {
		t.Errorf("after a restart %d of 2 keys are there, %v", n, err)
	}
	nobody := redis.NewClient(&redis.Options{Addr: r.Addr})
	t.Cleanup(func() { _ = nobody.Close() })
	if err := nobody.Ping(t.Context()).Err(); !redis.HasErrorPrefix(err, "NOAUTH") {
		t.Errorf("the default user: %v", err)
	}
}

// crawlOnce crawls a few pages.
func crawlOnce(t *testing.T, d *deployment) {
	t.Helper()
	site := slowSite(t, 0)
	var urls []string
	for i := range 20 {
		urls = append(urls, fmt.Sprintf("%s/%d", site.URL, i))
	}
	job := d.submit(alpha, fields{"urls": urls})
	if j := d.watch(alpha, job.ID).end(long); j.State != crawl.Completed || j.Accepted != 20 {
		t.Errorf("the job ends as %+v", j)
	}
	d.recordedOnce(alpha, job.ID, urls)
}
