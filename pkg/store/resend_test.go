package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// twice sends each pipeline in which the script is again, and drops the first answer:
// what the client does when a connection breaks behind Redis' back.
type twice struct{ script *script }

func (twice) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (w twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, c := range cmds {
			sc, a := w.script, c.Args()
			if len(a) > 1 && slices.Contains([]any{sc.single.sha, sc.single.text, sc.sliced.sha, sc.sliced.text}, a[1]) {
				_ = next(ctx, cmds)
				break
			}
		}
		return next(ctx, cmds)
	}
}

// through is the store of the fixture over a client that sends the script twice.
func (f *fixture) through(t *testing.T, r *crawltest.Redis, sc *script) *Store {
	t.Helper()
	return New(r.Open(t, redisconn.Options{Hooks: []redis.Hook{twice{sc}}}), f.o)
}

// A call whose answer was lost is sent again by the client itself. What the first
// answer gave must not be out of reach until the slice ends: a lease that nobody works
// at keeps the job's concurrency, a slice that nobody serves keeps it from the next ring.
func TestResent(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		t.Run("begin", func(t *testing.T) {
			f := newFixture(t, r)
			n := f.job(t, "", 1)
			f.create(t, n)
			sl, _, err := f.through(t, r, beginScript).Begin(t.Context(), crawl.Ring{JobRef: n.Job})
			if err != nil || sl == nil {
				t.Errorf("slice %v, %v: the job waits for a slice that nobody serves", sl, err)
			}
		})
		t.Run("lease", func(t *testing.T) {
			f := newFixture(t, r)
			n := f.job(t, "", 10)
			f.create(t, n)
			sl := f.begin(t, n.Job)
			out, err := f.through(t, r, leaseScript).Exchange(t.Context(), sl, Exchange{Lease: 4})
			if err != nil {
				t.Fatal(err)
			}
			if j := f.read(t, n.Job); j.Active != int64(len(out.Items)) {
				t.Errorf("%d URLs are leased, the slice knows of %d", j.Active, len(out.Items))
			}
		})
		t.Run("reserve", func(t *testing.T) {
			f := newFixture(t, r)
			n := f.job(t, "", 2)
			f.create(t, n)
			sl := f.begin(t, n.Job)
			out, err := f.through(t, r, hostReserveScript).Exchange(t.Context(), sl, Exchange{Reserves: []HostReserve{
				{Host: crawltest.Random() + ".test", First: 1, N: 2, Concurrency: 2},
			}})
			if err != nil {
				t.Fatal(err)
			}
			if g := out.Grants[0]; len(g.Starts) != 2 {
				t.Errorf("granted %+v: the host is full of slots that nobody uses", g)
			}
		})
	})
}

// onEachRedis is crawltest.OnEach for tests that make fixtures of their own.
func onEachRedis(t *testing.T, f func(t *testing.T, r *crawltest.Redis)) {
	t.Helper()
	t.Parallel()
	crawltest.OnEach(t, f)
}

// A tenant whose sweep fails (a shard that is down, a key that something else broke)
// does not keep the others from being healed and rung.
func TestSweepPastABrokenTenant(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		broken, f := newFixture(t, r), newFixture(t, r)
		if err := r.Client.Set(t.Context(), rootKey(broken.tenant)+":due", "x", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		n := f.job(t, "", 1)
		f.create(t, n)
		f.begin(t, n.Job)
		f.pass(LeaseTime)
		s, err := f.sweep(t.Context(), []string{broken.tenant, f.tenant})
		if err == nil {
			t.Error("nobody hears of the broken tenant")
		}
		if len(s.Rings) != 1 || s.Dead != 1 {
			t.Errorf("healed the other tenant: %+v", s)
		}
	})
}

// Rings that nobody takes do not pile up: begin asks for the slices that are missing
// when one of them is taken at last.
func TestRingsOfAnIdleQueue(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		n := f.job(t, "", 1000)
		n.Plan.Concurrency = 64
		tasks := map[string]bool{}
		for _, x := range f.create(t, n).Rings {
			tasks[fmt.Sprint(x.ID, x.N)] = true
		}
		for range 1200 { // an hour without a worker
			f.pass(3 * time.Second)
			for _, x := range f.heal(t).Rings {
				tasks[fmt.Sprint(x.ID, x.N)] = true
			}
		}
		if len(tasks) > 100 {
			t.Errorf("%d tasks wait in the queue for one job", len(tasks))
		}
	})
}

// A queue that refused rings for a while does not keep a job waiting after it answers
// again: the next ring is no more than 20 s away (promises 4 and 5).
func TestRingAfterAQueueOutage(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		n := f.job(t, "", 1)
		f.create(t, n)
		last, worst := 0, 0
		for second := 1; second <= 300; second++ {
			f.pass(time.Second)
			if s := f.heal(t); len(s.Rings) > 0 {
				worst, last = max(worst, second-last), second
			}
		}
		if worst > 20 {
			t.Errorf("%d s between two rings of a job that no slice serves", worst)
		}
	})
}

// The last commit of a job, sent again because its answer was lost, is told the same as
// every other one: done (promise 2).
func TestLastCommitTwice(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		n := f.job(t, "", 1)
		f.create(t, n)
		sl := f.begin(t, n.Job)
		it := f.exchange(t, sl, Exchange{Lease: 1}).Items[0]
		for range 2 {
			out := f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, it)}})
			if v := out.Committed[0].Verdict; v != Done {
				t.Errorf("verdict %s", v)
			}
		}
	})
}

// Nothing of a job that ended may be left but what is read, and what is kept expires.
func TestNothingLeftOfAnEndedJob(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		n := f.job(t, "", 3)
		n.Plan.Site, n.Plan.Sitemap = true, crawl.SitemapInclude
		f.create(t, n)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 4}).Items
		sitemap, items := items[0], items[1:]
		if _, err := f.Cancel(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
		f.pass(Grace)
		f.heal(t)
		if err := f.Delete(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
		// A slice that knows nothing of it goes on.
		f.exchange(t, sl, Exchange{
			Commits: []Commit{accept(t, items[0]), {Item: items[1], Retry: time.Second}},
			Maps:    []MapCommit{{Item: sitemap, Outcome: MapPart, Nested: []crawl.URL{mapURL(t, 1)}}},
			Returns: []Return{{Item: items[2], Delay: time.Second}, {Item: sitemap}}, Lease: 4,
		})
		if _, err := f.Renew(t.Context(), sl); err != nil {
			t.Fatal(err)
		}
		if err := f.RingFailed(t.Context(), n.Job, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.End(t.Context(), sl, time.Minute); err != nil {
			t.Fatal(err)
		}
		f.heal(t)
		keys, err := r.Client.Keys(t.Context(), rootKey(f.tenant)+"*").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if k != rootKey(f.tenant) && k != jobKey(n.Job) {
				t.Errorf("left: %s", strings.TrimPrefix(k, rootKey(f.tenant)))
			}
		}
		if ttl, err := r.Client.PTTL(t.Context(), jobKey(n.Job)).Result(); err != nil || ttl <= 0 {
			t.Errorf("the tombstone lives for %v, %v", ttl, err)
		}
	})
}
