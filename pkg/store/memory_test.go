package store

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

func TestParseMemory(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text  string
		share float64
		evict bool
	}{
		"as Redis says it": {"# Memory\r\nused_memory:960\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n", 0.96, false},
		"no limit":         {"used_memory:960\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", 0, false},
		"nothing":          {"", 0, false},
		"buffers apart":    {"used_memory:960\nmaxmemory:1000\nmem_not_counted_for_evict:60\n", 0.9, false},
		"it throws away":   {"used_memory:1\nmaxmemory:1000\nmaxmemory_policy:allkeys-lru\n", 0.001, true},
		"no number":        {"used_memory:x\nmaxmemory:1000\n", 0, false},
		"above the limit":  {"used_memory:1500\nmaxmemory:1000\n", 1.5, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := parseMemory(tc.text)
			if u.share() != tc.share || (u.evicts() != nil) != tc.evict {
				t.Errorf("%+v: share %v, %v", u, u.share(), u.evicts())
			}
		})
	}
}

// told is a Redis that says what a test gives it, after a while.
type told struct {
	asked atomic.Int32
	mu    sync.Mutex
	share float64 // negative: it refuses
	takes time.Duration
}

func (n *told) set(share float64, takes time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.share, n.takes = share, takes
}

func (n *told) Info(ctx context.Context, _ ...string) *redis.StringCmd {
	n.asked.Add(1)
	n.mu.Lock()
	share, takes := n.share, n.takes
	n.mu.Unlock()
	wait := time.NewTimer(takes)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return redis.NewStringResult("", ctx.Err())
	}
	if share < 0 {
		return redis.NewStringResult("", errors.New("ERR unknown command"))
	}
	return redis.NewStringResult("maxmemory:1000\nused_memory:"+strconv.Itoa(int(1000*share)), nil)
}

func newGauge(log *bytes.Buffer) *gauge {
	return &gauge{log: slog.New(slog.NewTextHandler(log, nil)), name: "here"}
}

// after waits, in the time of a bubble.
func after(d time.Duration) { <-time.NewTimer(d).C }

// One question a second is on its way, whoever wants to know; a full Redis is asked each time.
func TestPressureIsAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g, n := newGauge(&log), &told{share: 0.5, takes: time.Millisecond}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if got := g.share(t.Context(), n); got != 0.5 {
					t.Errorf("share %v", got)
				}
			})
		}
		all.Wait()
		if n.asked.Load() != 1 {
			t.Errorf("asked %d times", n.asked.Load())
		}
		n.set(0.97, 0)
		if got := g.share(t.Context(), n); got != 0.5 {
			t.Errorf("within the second %v", got)
		}
		after(memoryAge)
		if got := g.share(t.Context(), n); got != 0.97 {
			t.Errorf("a second later %v", got)
		}
		n.set(0.2, 0)
		if got := g.share(t.Context(), n); got != 0.2 {
			t.Errorf("it says full although it has room: %v", got)
		}
	})
}

// A Redis that does not say how full it is holds nobody up: not more than once, and for a moment.
func TestPressureDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g, n := newGauge(&log), &told{share: 0.96, takes: time.Hour}
		took := func() (float64, time.Duration) {
			begun := time.Now()
			share := g.share(t.Context(), n)
			return share, time.Since(begun)
		}
		if share, waited := took(); share != 0 || waited != memoryPatience {
			t.Errorf("the first call: %v after %v", share, waited)
		}
		for range 20 {
			if share, waited := took(); share != 0 || waited != 0 {
				t.Fatalf("a later call: %v after %v", share, waited)
			}
			after(time.Second)
		}
		n.set(0.96, 0)
		after(memoryTimeout + memoryAge)
		took() // asks, and does not wait
		synctest.Wait()
		if share, waited := took(); share != 0.96 || waited != 0 {
			t.Errorf("once it says so again: %v after %v", share, waited)
		}
		n.set(-1, 0)
		if share, _ := took(); share != 0.96 {
			t.Errorf("the last answer does not hold: %v", share)
		}
		after(memoryTrust)
		if share, _ := took(); share != 0 {
			t.Errorf("an old answer holds: %v", share)
		}
		synctest.Wait()
	})
}

// The log has each change once, and not what stands at a mark.
func TestPressureIsTold(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g := newGauge(&log)
	for _, per := range []int64{500, 960, 949, 951, 945, 985, 975, 985, 930, 900, 990} {
		g.keep(t.Context(), memoryUse{used: per, limit: 1000}, nil)
	}
	var says []string
	for line := range strings.Lines(log.String()) {
		for _, word := range []string{"lease less", "lease nothing", "memory again"} {
			if strings.Contains(line, word+" ") || strings.Contains(line, word+"\"") || strings.Contains(line, word+":") {
				says = append(says, word)
				break
			}
		}
	}
	// "until it has memory again" is part of the second.
	if want := []string{"lease less", "lease nothing", "memory again", "lease nothing"}; !slices.Equal(says, want) {
		t.Errorf("it says %q, want %q:\n%s", says, want, &log)
	}
}

// fillTo has a Redis be full to the given share of a limit that is set for it.
func (f *fixture) fillTo(t *testing.T, r *crawltest.Server, share float64) {
	t.Helper()
	u, err := askMemory(t.Context(), r.Client)
	if err != nil {
		t.Fatal(err)
	}
	limit := strconv.FormatInt(int64(float64(u.used)/share), 10)
	if err := r.Client.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
		t.Fatal(err)
	}
	_ = f.Ready(t.Context()) // which asks anew
}

// Above the mark nothing new is stored, long before Redis refuses; what was stored before is
// answered to the same key, and no other; and all is well again when there is room (JOB-17).
func TestFullMark(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	kept := f.job(t, "kept", 2)
	kept.Quota.SubmissionsPerSecond = 100
	f.create(t, kept)
	gone := f.job(t, "gone", 1)
	f.create(t, gone)
	f.finish(t, gone.Job)
	if err := f.Delete(t.Context(), gone.Job); err != nil {
		t.Fatal(err)
	}
	for _, share := range []float64{0.965, 1.5} {
		f.fillTo(t, r, share)
		before := r.Client.DBSize(t.Context()).Val()
		late := f.job(t, "late", 2)
		_, err := f.Create(t.Context(), late)
		fault := wantCode(t, err, crawl.CodeOverloaded)
		if fault.RetryAfter <= 0 || !strings.Contains(fault.Message, "Nothing was stored") {
			t.Errorf("at %v: %+v", share, fault)
		}
		if err := f.Ready(t.Context()); faultOf(err) == nil || faultOf(err).Message[:20] != fault.Message[:20] {
			t.Errorf("at %v it is ready, or says why otherwise: %v", share, err)
		}
		if c, err := f.Create(t.Context(), kept); err != nil || !c.Replayed || c.Job.ID != kept.Job.ID || c.Job.Total != 2 {
			t.Errorf("at %v the key of a stored job: %+v, %v", share, c, err)
		}
		other := kept
		other.Digest = [32]byte{2}
		if _, err := f.Create(t.Context(), other); wantCode(t, err, crawl.CodeKeyReused).JobID != kept.Job.ID {
			t.Errorf("at %v another input: %v", share, err)
		}
		if _, err := f.Create(t.Context(), gone); crawl.CodeOf(err) != crawl.CodeExpired {
			t.Errorf("at %v the key of a job that is gone: %v", share, err)
		}
		if after := r.Client.DBSize(t.Context()).Val(); after != before {
			t.Errorf("at %v: %d keys, %d before", share, after, before)
		}
	}
	f.fillTo(t, r, 0.5)
	if err := f.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if c := f.create(t, f.job(t, "late", 2)); c.Replayed {
		t.Error("the refused submission left its key behind")
	}
}

// Where nobody can say how full Redis is nothing is refused: miniredis and a user without the right.
func TestPressureIsOptional(t *testing.T) {
	t.Parallel()
	f := newFixture(t, crawltest.Mini(t))
	if p := f.Pressure(t.Context(), f.tenant); p != 0 {
		t.Errorf("pressure %v", p)
	}
	f.create(t, f.job(t, "", 1))
	if err := f.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// A Cluster is asked at the master of the tenant.
func TestPressureOnCluster(t *testing.T) {
	t.Parallel()
	f := newFixture(t, crawltest.Cluster(t))
	if p := f.Pressure(t.Context(), f.tenant); p != 0 {
		t.Errorf("pressure %v without a limit", p)
	}
	n, err := f.nodeOf(t.Context(), f.tenant)
	if _, ok := n.(*redis.Client); err != nil || !ok {
		t.Fatalf("node %T, %v", n, err)
	}
	f.memory.of(n).keep(t.Context(), memoryUse{used: 99, limit: 100}, nil)
	if err := f.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whatever a slice does with what it holds works in a Redis that refuses all else, and nothing of
// it costs an attempt.
func TestFullKeepsSlices(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	n := f.job(t, "kept", 8)
	n.Plan.Site, n.Plan.Sitemap, n.Plan.Concurrency = true, crawl.SitemapInclude, 16
	hook(&n, "https://hooks.test/x")
	f.create(t, n)
	fresh := f.job(t, "fresh", 1)
	f.create(t, fresh)
	sl := f.begin(t, n.Job)
	reserve := HostReserve{Host: "site.test:80", First: 1, N: 2, Concurrency: 4}
	sitemap := f.leaseMap(t, sl)
	items := f.exchange(t, sl, Exchange{Lease: 6, Holding: 1, Reserves: []HostReserve{reserve}}).Items
	if len(items) < 4 {
		t.Fatalf("leased %+v", items)
	}
	f.fillTo(t, r, 2)
	u, err := crawl.ParseURL("http://site.test/")
	if err != nil {
		t.Fatal(err)
	}
	slots := HostSlots{Host: "site.test:80", Slots: []int64{1, 2}}
	for range 10 { // 30 s of leases
		f.pass(RenewEvery)
		if got, err := f.Renew(t.Context(), sl, slots); err != nil || got.Lost || got.State != crawl.Running {
			t.Fatalf("renewed %+v, %v", got, err)
		}
		if s, err := f.Sweep(t.Context()); err != nil || s.Dead != 0 {
			t.Fatalf("swept %+v, %v", s, err)
		}
	}
	if n := r.Client.ZCard(t.Context(), hostKey("site.test:80", "slots")).Val(); n != 2 {
		t.Errorf("%d slots are left", n)
	}
	for name, do := range map[string]func() error{
		"another slot": func() error {
			reserve.First, reserve.N = 3, 1
			out, err := f.Exchange(t.Context(), sl, Exchange{Reserves: []HostReserve{reserve}})
			if err == nil && len(out.Grants[0].Starts) != 1 {
				err = errors.New("no slot")
			}
			return err
		},
		"a Retry-After": func() error {
			_, err := f.Exchange(t.Context(), sl, Exchange{Slow: []HostDelay{{Host: "slow.test:80", Wait: time.Minute}}})
			if r.Client.Exists(t.Context(), hostKey("slow.test:80", "next")).Val() != 1 {
				err = errors.New("it is forgotten")
			}
			return err
		},
		"a part of a sitemap": func() error {
			_, err := f.Exchange(t.Context(), sl, Exchange{Maps: []MapCommit{{Item: sitemap, Outcome: MapPart, Part: 1}}})
			return err
		},
		"robots": func() error {
			got, err := f.ClaimRobots(t.Context(), u, "bot")
			if err != nil || got.Standing != RobotsToFetch {
				return errors.Join(err, errors.New("no claim: "+string(got.Standing)))
			}
			_, err = f.LearnRobots(t.Context(), u, "bot", got.Claim, RobotsFetch{Rules: "x"})
			return err
		},
		"a webhook": func() error {
			got, err := f.ClaimDeliveries(t.Context(), Claim{Tenant: f.tenant, Most: 1, PerReceiver: 1})
			if err != nil || len(got.Deliveries) != 1 {
				return errors.Join(err, errors.New("nothing claimed"))
			}
			_, err = f.SettleDelivery(t.Context(), &got.Deliveries[0], Result{Outcome: OutcomeDelivered, Status: 200})
			return err
		},
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.exchange(t, sl, Exchange{
		Commits: []Commit{accept(t, items[0]), {Item: items[1], Retry: time.Second}},
		Maps:    []MapCommit{{Item: sitemap, Outcome: MapRead, Part: 2}}, Returns: []Return{{Item: items[2]}},
	})
	if out := f.exchange(t, sl, Exchange{Retire: true}); len(out.Rings) == 0 {
		t.Error("a slice that retires rings nobody")
	}
	// No slice begins: the ring is not lost, see Swept.Rings.
	if _, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: fresh.Job}); crawl.CodeOf(err) != crawl.CodeOverloaded {
		t.Errorf("a slice begins: %v", err)
	}
	if _, err := f.EndWaiting(t.Context(), sl, time.Second, crawl.WaitingMemory); err != nil {
		t.Fatal(err)
	}
	j := f.read(t, n.Job)
	if !j.Consistent() || j.Accepted != 1 || j.Active != 0 || j.Failed != 0 || j.WaitingFor != crawl.WaitingMemory {
		t.Errorf("the job is %+v", j)
	}
	if j := f.read(t, fresh.Job); j.WaitingFor != crawl.WaitingMemory {
		t.Errorf("a job that nobody can begin waits for %q", j.WaitingFor)
	}
	f.pass(20 * time.Second)
	if s, err := f.Sweep(t.Context()); err != nil || len(s.Rings) < 2 {
		t.Errorf("the sweep rings for %+v, %v", s.Rings, err)
	}
	f.fillTo(t, r, 0.5)
	f.finish(t, fresh.Job)
	f.finish(t, n.Job)
	for _, want := range []NewJob{n, fresh} {
		j := f.read(t, want.Job)
		if j.State != crawl.Completed || j.Accepted != j.Total || j.WaitingFor != "" {
			t.Errorf("ended as %+v", j)
		}
	}
	// The one retry above is all that an attempt was counted for.
	var again int
	page, err := f.Records(t.Context(), n.Job, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range page.Records {
		again += max(0, p.Attempts-1)
	}
	if again > 1 {
		t.Errorf("%d attempts too many", again)
	}
}

// A cancel, a pause, an expiry and a deletion work in a Redis that refuses all else.
func TestFullObeys(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	stopped, paused, ended, over := f.job(t, "stopped", 4), f.job(t, "paused", 2), f.job(t, "ended", 1), f.job(t, "over", 1)
	over.Plan.Retention = 2 * time.Minute
	for _, n := range []NewJob{ended, over} {
		f.create(t, n)
		f.finish(t, n.Job)
	}
	f.create(t, stopped)
	f.create(t, paused)
	sl := f.begin(t, stopped.Job)
	f.exchange(t, sl, Exchange{Lease: 1})
	f.fillTo(t, r, 2)
	if got, err := f.Cancel(t.Context(), stopped.Job); err != nil || got.State != crawl.Cancelling {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	if state, _, err := f.Pause(t.Context(), paused.Job); err != nil || state != crawl.Paused {
		t.Errorf("paused: %s, %v", state, err)
	}
	if state, _, err := f.Resume(t.Context(), paused.Job); err != nil || state.Terminal() || state == crawl.Paused {
		t.Errorf("resumed: %s, %v", state, err)
	}
	if err := f.Delete(t.Context(), ended.Job); err != nil {
		t.Errorf("deleted: %v", err)
	}
	f.pass(3 * time.Minute)
	if _, err := f.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j := f.read(t, stopped.Job); j.State != crawl.Cancelled || j.Cancelled != 4 {
		t.Errorf("after the grace it is %+v", j)
	}
	if _, err := f.Job(t.Context(), over.Job); crawl.CodeOf(err) != crawl.CodeExpired {
		t.Errorf("the job whose retention is over: %v", err)
	}
}
