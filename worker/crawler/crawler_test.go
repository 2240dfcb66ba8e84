package crawler_test

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

// bench is a store, a queue of the test's own and any number of workers on them.
type bench struct {
	redis  *crawltest.Redis
	store  *store.Store
	bell   *queue.Doorbell
	queue  string
	tenant string
}

func newBench(t *testing.T, r *crawltest.Redis) *bench {
	t.Helper()
	name := "crawl-" + crawltest.Random()
	b := &bench{redis: r, bell: queue.NewDoorbellOn(r.Client, name), queue: name, tenant: crawltest.Tenant(t)}
	b.store = store.New(r.Client, store.Options{Sweeps: b.own})
	return b
}

// own reports whether a tenant is one of the test: Tenant makes names that none other begins.
func (b *bench) own(tenant string) bool { return strings.HasPrefix(tenant, b.tenant) }

// unknown has the store forget what it was told of a site's port when that was another
// test's: robots.txt is kept for a day.
func (b *bench) unknown(t *testing.T, s *crawltest.Site) {
	t.Helper()
	u, err := crawl.ParseURL(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	key := "{h:" + u.PolitenessHost() + "}:robots:" + u.Scheme()
	keys, err := b.redis.Client.Keys(t.Context(), key+":*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if err := b.redis.Client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// worker starts a worker in this process.
func (b *bench) worker(t *testing.T, change func(*crawler.ProcessOptions)) *crawler.Process {
	t.Helper()
	policy, err := netguard.Parse("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	o := crawler.ProcessOptions{
		Options: crawler.Options{
			Store: b.store, Doorbell: b.bell, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Sources: sources, Concurrency: 32, HostConcurrency: 64, Grace: 5 * time.Second,
		},
		Fetch:    fetch.Options{Dial: netguard.New(policy).DialContext, MaxConnsPerHost: 64},
		RedisURL: b.redis.URL, QueueName: b.queue,
	}
	if change != nil {
		change(&o)
	}
	p, err := crawler.NewProcess(o)
	if err != nil {
		t.Fatal(err)
	}
	if err = p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Errorf("worker did not stop: %v", err)
		}
	})
	return p
}

// submit stores a job and rings.
func (b *bench) submit(t *testing.T, plan crawl.Plan, urls ...string) crawl.JobRef {
	t.Helper()
	n := store.NewJob{
		Job: crawl.JobRef{Tenant: b.tenant, ID: crawl.NewJobID(b.tenant, "")}, Spec: []byte(`{}`), Quota: crawl.Quota{MaxRunning: 10},
	}
	for _, s := range urls {
		u, err := crawl.ParseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		n.Inputs = append(n.Inputs, crawl.Input{URL: u})
		plan.Seeds = append(plan.Seeds, u.String())
	}
	plan.Sources = []string{"*"}
	plan.Retention = cmp.Or(plan.Retention, time.Hour)
	if plan.HostConcurrency == 0 {
		plan.HostConcurrency = 64
	}
	n.Plan = plan
	c, err := b.store.Create(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.bell.Ring(t.Context(), c.Rings...); err != nil {
		t.Fatal(err)
	}
	return n.Job
}

func site(maxPages int64, depth, concurrency int) crawl.Plan {
	return crawl.Plan{
		Site: true, Scope: "host", MaxPages: maxPages, MaxDepth: depth, Concurrency: concurrency, IgnoreRobots: true,
	}
}

// ended waits for the end of a job and checks promise 1 at every look.
func (b *bench) ended(t *testing.T, job crawl.JobRef, within time.Duration) crawl.Job {
	t.Helper()
	var j crawl.Job
	crawltest.Eventually(t, within, "the end of the job", func() bool {
		var err error
		if j, err = b.store.Job(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if !j.Consistent() {
			t.Fatalf("counts do not add up: %+v", j)
		}
		return j.State.Terminal()
	})
	return j
}

func (b *bench) records(t *testing.T, job crawl.JobRef) []crawl.Page {
	t.Helper()
	var out []crawl.Page
	for after := int64(0); ; {
		p, err := b.store.Records(t.Context(), job, after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p.Records...)
		if after = p.Next; !p.More {
			return out
		}
	}
}

// TestSiteCrawl crawls a whole site with two workers: each page is fetched and
// recorded exactly once.
func TestSiteCrawl(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		gen := gensite.New(300, 10, 2000, time.Millisecond)
		s := crawltest.NewHandlerSite(t, gen)
		b := newBench(t, r)
		b.worker(t, nil)
		b.worker(t, nil)
		job := b.submit(t, site(1000, 100, 16), s.URL+"/p/0")
		j := b.ended(t, job, 60*time.Second)
		if j.State != crawl.Completed || j.StopReason != crawl.StopFrontierEmpty || j.Accepted != 300 || j.Total != 300 {
			t.Errorf("ended as %+v", j)
		}
		var urls []string
		for _, p := range b.records(t, job) {
			urls = append(urls, p.URL)
			if p.Title == "" || p.Status != http.StatusOK {
				t.Errorf("record %+v", p)
			}
		}
		slices.Sort(urls)
		if n := len(slices.Compact(urls)); n != 300 || gen.Total() != 300 {
			t.Errorf("%d distinct records, %d requests, want 300 of each", n, gen.Total())
		}
	})
}
