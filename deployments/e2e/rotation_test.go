package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// opens reports whether a request is let in.
func (d *deployment) opens(base, path string, header http.Header) bool {
	d.t.Helper()
	res, body := d.exchange(http.MethodGet, base+path, header, "")
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusUnauthorized {
		d.t.Fatalf("%s answered %d: %s", path, res.StatusCode, body)
	}
	return res.StatusCode == http.StatusOK
}

func bearer(key string) http.Header { return http.Header{"Authorization": {"Bearer " + key}} }

// rotatedKeys rotates a tenant's key, then the keys that the API has in its settings by restarting it.
func rotatedKeys(t *testing.T, b *runbook) {
	d := deploy(t, 1, "TRAWL_ADMIN_KEY="+adminKey)
	o := b.operator(d, nil)
	site := slowSite(t, 50*time.Millisecond)
	job := d.submit(alpha, fields{"urls": numbered(site, 300), "concurrency": 4}).ID

	admin := http.Header{"Authorization": {"Bearer " + adminKey}, "Content-Type": {"application/json"}}
	var made fields
	for _, call := range [][2]string{{"", `{"name":"gamma"}`}, {"/gamma/keys", `{"label":"a"}`}} {
		res, body := d.exchange(http.MethodPost, d.url+"/v1/admin/tenants"+call[0], admin, call[1])
		if res.StatusCode != http.StatusCreated {
			t.Fatalf("not made: %d %s", res.StatusCode, body)
		}
		made = decode[fields](t, body)
	}
	old := made["key"].(string)
	out := o.doThen("key-rotation", 1, "\nprintf '\\n%s' \"$NEW\"", "TENANT=gamma", "KEY_ID="+made["key_id"].(string))
	next := out[strings.LastIndexByte(out, '\n')+1:]
	d.secrets = append(d.secrets, old, next)
	for _, key := range []string{old, next} {
		if len(key) < 16 || !d.opens(d.url, "/v1/jobs", bearer(key)) {
			t.Errorf("during the overlap a key opens nothing")
		}
	}

	// Another API with another admin key and one more key of the tenant; then the old one stops.
	fresh, further := crawltest.Random()+crawltest.Random(), crawltest.Random()+crawltest.Random()
	d.secrets = append(d.secrets, fresh, further)
	second := d.run("example.com/trawl/api", "TRAWL_ADMIN_KEY="+fresh,
		fmt.Sprintf("TRAWL_API_KEYS=%s:%s,%[1]s:%[3]s", alpha, d.keys[alpha], further))
	url := "http://" + second.WaitFor(ready, `"msg":"listening".*"addr":"([^"]+)"`)[1]
	if !d.opens(d.url, "/v1/admin/tenants", bearer(adminKey)) || !d.opens(url, "/v1/admin/tenants", bearer(fresh)) ||
		d.opens(url, "/v1/admin/tenants", bearer(adminKey)) {
		t.Error("the admin key of one API opens the other, or not its own")
	}
	for _, key := range []string{d.keys[alpha], further} {
		if !d.opens(url, "/v1/jobs/"+job, bearer(key)) {
			t.Error("of two keys of a tenant one opens nothing")
		}
	}
	if code := d.api.Terminate(long); code != 0 {
		t.Errorf("the API ended with %d", code)
	}
	d.url = url
	if j := d.watch(alpha, job).end(long); j.State != crawl.Completed || j.Accepted != 300 {
		t.Errorf("the job that ran meanwhile ends as %+v", j)
	}
	third := d.run("example.com/trawl/api", fmt.Sprintf("TRAWL_API_KEYS=%s:%s", alpha, further))
	url = "http://" + third.WaitFor(ready, `"msg":"listening".*"addr":"([^"]+)"`)[1]
	if d.opens(url, "/v1/jobs", bearer(d.keys[alpha])) || !d.opens(url, "/v1/jobs", bearer(further)) {
		t.Error("the old key still opens, or the new one does not")
	}
}

// rotatedPasswords gives both users of Redis other passwords while a job runs and submissions come in.
func rotatedPasswords(t *testing.T, b *runbook) {
	const pages = 400
	d := deploy(t, 0, "TRAWL_ADMIN_KEY="+adminKey)
	w := d.startWorker()
	o := b.operator(d, w)
	site := slowSite(t, 100*time.Millisecond)
	spec := fields{"urls": numbered(site, pages), "concurrency": 4}
	_, body := d.post(alpha, spec, "Idempotency-Key", "before")
	job := decode[crawl.Job](t, body).ID
	d.processed(alpha, job, 5)

	old := map[string]string{apiUser: d.redis.passwords[apiUser], workerUser: d.redis.passwords[workerUser]}
	for user := range old {
		d.redis.newPassword(user)
		o.onEach("key-rotation", 2, "ACL_USER="+user, "NEW_PASSWORD="+d.redis.passwords[user])
	}
	d.secrets = append(d.secrets, d.redis.secrets()...)
	d.startWorker()
	if code := w.Terminate(long); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	next := d.run("example.com/trawl/api")
	url := "http://" + next.WaitFor(ready, `"msg":"listening".*"addr":"([^"]+)"`)[1]
	if res, body := d.exchange(http.MethodGet, url+"/readyz", nil, ""); res.StatusCode != http.StatusOK {
		t.Fatalf("with the new password the API is not ready: %s", body)
	}
	for user, password := range old {
		o.says(o.onEach("key-rotation", 3, "ACL_USER="+user, "OLD_PASSWORD="+password), "OK", "passwords")
	}
	d.submit(beta, fields{"urls": numbered(site, 1)}) // the old API works on with the connections that it has
	if code := d.api.Terminate(long); code != 0 {
		t.Errorf("the API ended with %d", code)
	}
	d.url = url
	if res, body := d.post(alpha, spec, "Idempotency-Key", "before"); res.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the new API does not know the submission: %d %s", res.StatusCode, body)
	}
	if j := d.watch(alpha, job).end(long); j.State != crawl.Completed || j.Accepted != pages {
		t.Errorf("the job that ran meanwhile ends as %+v", j)
	}
	for _, p := range d.recordedOnce(alpha, job, numbered(site, pages)) {
		if p.Attempts != 1 {
			t.Errorf("%s has %d attempts", p.URL, p.Attempts)
		}
	}
	file, err := d.redis.Nodes()[0].Client.ConfigGet(t.Context(), "aclfile").Result()
	if err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(file["aclfile"])
	if err != nil {
		t.Fatal(err)
	}
	for user, password := range old {
		if opensRedis(t, d.redis, user, password) || !opensRedis(t, d.redis, user, d.redis.passwords[user]) {
			t.Errorf("the old password of %s is good, or the new one is not", user)
		}
		if strings.Contains(string(saved), hexDigest(password)) ||
			!strings.Contains(string(saved), hexDigest(d.redis.passwords[user])) {
			t.Errorf("after a restart the old password of %s would be good, or the new one would not", user)
		}
	}
	d.redis.each(t, "ACL", "LOG", "RESET") // the old passwords were tried on purpose
}

// opensRedis reports whether Redis takes a password.
func opensRedis(t *testing.T, r *guardedRedis, user, password string) bool {
	t.Helper()
	c, err := redisconn.Open(r.urlWith(user, password), redisconn.Options{MaxRetries: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	return c.Ping(t.Context()).Err() == nil
}

func hexDigest(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// rotatedGateway has two APIs with a secret each, one after the other behind a gateway.
func rotatedGateway(t *testing.T, _ *runbook) {
	secrets := []string{crawltest.Random() + crawltest.Random(), crawltest.Random() + crawltest.Random()}
	d := deploy(t, 0, "TRAWL_GATEWAY_SECRET="+secrets[0])
	d.secrets = append(d.secrets, secrets...)
	next := d.run("example.com/trawl/api", "TRAWL_GATEWAY_SECRET="+secrets[1])
	urls := []string{d.url, "http://" + next.WaitFor(ready, `"msg":"listening".*"addr":"([^"]+)"`)[1]}
	for i, url := range urls {
		for k, secret := range secrets {
			named := http.Header{"X-Gateway-Secret": {secret}, "X-Tenant-Id": {alpha}}
			if d.opens(url, "/v1/jobs", named) != (i == k) {
				t.Errorf("secret %d at API %d: opens is not %v", k+1, i+1, i == k)
			}
		}
	}
}

// rotatedWebhooks has a receiver that changes its secret: jobs keep that which they were given.
func rotatedWebhooks(t *testing.T, _ *runbook) {
	d := deploy(t, 1)
	site := slowSite(t, 0)
	var boxes []*inbox
	for range 2 {
		key := crawltest.Random() + crawltest.Random()
		in := &inbox{
			secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte(key)),
			seen:   make(chan *client.Event, 10), hold: make(chan struct{}),
		}
		close(in.hold)
		d.secrets = append(d.secrets, in.secret, key)
		boxes = append(boxes, in)
	}
	for _, in := range boxes {
		addr := crawltest.FreeAddr(t)
		in.open(t, addr)
		job := d.submit(alpha, fields{
			"urls": numbered(site, 1), "webhook": fields{"url": "http://" + addr + "/", "secret": in.secret},
		}).ID
		if e := crawltest.Receive(t, long, "event signed with its own secret", in.seen); e.Data.JobID != job {
			t.Errorf("told of %+v", e)
		}
	}
	for _, in := range boxes {
		in.mu.Lock()
		if len(in.bad) > 0 {
			t.Errorf("events that are not signed with the job's secret: %v", in.bad)
		}
		in.mu.Unlock()
	}
}
