package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
)

// The tenants of a Cluster: one on each of three masters with equal parts of the slots.
const (
	gamma = "gamma"
	delta = "delta"
)

// tenantKey is a key of a tenant: all are on one master.
func tenantKey(tenant string) string { return "{t:" + tenant + "}" }

// clusterJob is a job on a Cluster, on a site of its own.
type clusterJob struct {
	tenant, id string
	urls       []string
	watch      *watch
}

// deployMasters starts a deployment on a Cluster, with a key for each tenant.
func deployMasters(t *testing.T, workers int, tenants ...string) *deployment {
	t.Helper()
	var keys []string
	made := map[string]string{}
	for _, tenant := range tenants {
		made[tenant] = crawltest.Random() + crawltest.Random()
		keys = append(keys, tenant+":"+made[tenant])
	}
	d := deployOn(t, guardMasters(t), workers, "TRAWL_API_KEYS="+strings.Join(keys, ","))
	for tenant, key := range made {
		d.keys[tenant] = key
		d.secrets = append(d.secrets, key)
	}
	return d
}

// begin submits a job of so many pages on a site whose host is known to the same master as
// the tenant: of another tenant's master this job needs nothing but the queue.
func (d *deployment) begin(tenant string, pages int, outage bool) *clusterJob {
	d.t.Helper()
	var site *crawltest.Site
	for site == nil || d.redis.Of("{h:"+strings.TrimPrefix(site.URL, "http://")+"}") != d.redis.Of(tenantKey(tenant)) {
		site = crawltest.NewHandlerSite(d.t, gensite.New(pages, 12, 2000, 40*time.Millisecond))
	}
	j := &clusterJob{tenant: tenant}
	for i := range pages {
		j.urls = append(j.urls, fmt.Sprintf("%s/p/%d", site.URL, i))
	}
	j.id = d.submit(tenant, fields{
		"seed_url": j.urls[0], "max_pages": pages, "max_depth": 100, "concurrency": 8, "sitemap": "skip",
	}).ID
	j.watch = d.startWatch(&watch{tenant: tenant, job: j.id, outage: outage})
	return j
}

// moves waits until so many pages more of the job are accepted. It looks into Redis, since the
// API does not answer while it cannot look up who asks.
func (d *deployment) moves(j *clusterJob, more int64) {
	d.t.Helper()
	accepted := func() int64 {
		n, err := d.redis.Client.HGet(d.t.Context(), tenantKey(j.tenant)+":j:"+j.id, "accepted").Int64()
		if err != nil {
			d.t.Fatal(err)
		}
		return n
	}
	first := accepted()
	crawltest.Eventually(d.t, long, fmt.Sprintf("%d more pages of %s", more, j.tenant), func() bool {
		return accepted() >= first+more
	})
}

// whole waits for the end of the job, and that every page was recorded once.
func (d *deployment) whole(j *clusterJob) {
	d.t.Helper()
	got := j.watch.end(long)
	if got.State != crawl.Completed || got.Accepted != int64(len(j.urls)) || got.Total != got.Accepted {
		d.t.Errorf("the job of %s ends as %+v", j.tenant, got)
	}
	d.recordedOnce(j.tenant, j.id, j.urls)
}

// TestClusterMasterKilled: jobs of three tenants run on three masters. One master is killed, which has
// the keys of all tenants ({a}), too, and comes back with its files; then another, which has the
// queue: the jobs of the other tenants go on meanwhile, and all end with every page. What is submitted
// while the queue is away is kept and runs later.
func TestClusterMasterKilled(t *testing.T) {
	t.Parallel()
	const pages = 1500
	d := deployMasters(t, 2, alpha, gamma, delta)
	at := map[*crawltest.Server]string{}
	for _, tenant := range []string{alpha, gamma, delta} {
		at[d.redis.Of(tenantKey(tenant))] = tenant
	}
	if len(at) != masters || d.redis.Of("asynq:{crawl}:pending") != d.redis.Of(tenantKey(delta)) {
		t.Fatalf("the tenants are on %d masters, want %d; and the queue with %s", len(at), masters, delta)
	}
	if d.redis.Of("{a}") != d.redis.Of(tenantKey(alpha)) {
		t.Fatalf("the keys of tenants are not with %s", alpha)
	}
	a, g, e := d.begin(alpha, pages, true), d.begin(gamma, pages, true), d.begin(delta, pages, true)
	later := ""
	for _, j := range []*clusterJob{a, g, e} {
		d.processed(j.tenant, j.id, pages/10)
	}
	for _, round := range []struct {
		victim *clusterJob
		others []*clusterJob
	}{{a, []*clusterJob{g, e}}, {e, []*clusterJob{g, a}}} {
		master := d.redis.Of(tenantKey(round.victim.tenant))
		master.Kill()
		for _, j := range round.others {
			d.moves(j, 50)
		}
		if round.victim == e {
			later = d.submit(gamma, fields{"urls": g.urls[:1]}).ID
		}
		res, body := d.get(round.victim.tenant, round.victim.id, "")
		problem(t, res, body, http.StatusServiceUnavailable, crawl.CodeUnavailable)
		master.Start()
		crawltest.Eventually(t, long, "the killed master's tenant is served", func() bool {
			res, _ := d.get(round.victim.tenant, round.victim.id, "")
			return res.StatusCode == http.StatusOK
		})
	}
	for _, j := range []*clusterJob{a, g, e} {
		d.whole(j)
	}
	if j := d.startWatch(&watch{tenant: gamma, job: later, outage: true}).end(long); j.State != crawl.Completed {
		t.Errorf("a job that was submitted without the queue ends as %+v", j)
	}
}

// TestClusterReshard: the slot of a tenant moves to another master in the middle of a job, key
// by key. While it does, this tenant's calls are refused, since a script that finds but half of
// its keys would count wrong; those of others are not. Afterwards the job goes on where it stood.
func TestClusterReshard(t *testing.T) {
	t.Parallel()
	const pages = 600
	d := deployMasters(t, 2, alpha, beta)
	a, b := d.begin(alpha, pages, true), d.begin(beta, pages, false)
	// Its outcomes come while the slot moves, and each is the first of its kind: a key that
	// is not there, and cannot be made then.
	gate := make(chan struct{})
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-gate:
		case <-r.Context().Done():
		}
		switch r.URL.Path {
		case "/1":
			http.NotFound(w, r)
		case "/3":
			http.Redirect(w, r, "/4", http.StatusFound)
		}
	}))
	firsts := d.submit(alpha, fields{"urls": numbered(site, 4), "respect_robots": false, "concurrency": 4})
	w := d.startWatch(&watch{tenant: alpha, job: firsts.ID, outage: true})
	for _, path := range []string{"/1", "/2", "/3", "/4"} {
		site.Await(long, path, 1)
	}
	d.processed(alpha, a.id, pages/10)
	refused := func() {
		for range 2 {
			crawltest.Eventually(t, long, "a read that is refused", func() bool {
				res, _ := d.get(alpha, a.id, "")
				return res.StatusCode == http.StatusServiceUnavailable
			})
			d.moves(b, 20)
		}
	}
	from := d.redis.Of(tenantKey(alpha))
	to := d.redis.Move(d.redis.access(), tenantKey(alpha), func() {
		close(gate)
		refused()
	}, refused)
	if from == to || d.status(alpha, a.id).State.Terminal() {
		t.Errorf("the slot moved from %s to %s, the job is %+v", from.Addr, to.Addr, d.status(alpha, a.id))
	}
	if j := w.end(long); j.Total != 4 || j.Failed != 1 || j.Skipped != 1 || j.Accepted != 2 {
		t.Errorf("the job whose outcomes came while the slot moved ends as %+v", j)
	}
	d.whole(a)
	d.whole(b)
	if n := len(to.Keys(tenantKey(alpha) + "*")); n == 0 {
		t.Error("the new master has no key of the tenant")
	}
	// What follows is made there at once.
	next := d.submit(alpha, fields{"urls": a.urls[:3]}).ID
	if j := d.watch(alpha, next).end(long); j.State != crawl.Completed || j.Accepted != 3 {
		t.Errorf("the next job ends as %+v", j)
	}
}
