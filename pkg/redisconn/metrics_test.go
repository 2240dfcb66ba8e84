package redisconn_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// observed is a client of r whose calls are counted.
func observed(t *testing.T, r *crawltest.Redis) (redis.UniversalClient, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	rdb := r.Open(t, redisconn.Options{Observe: redisconn.NewMetrics(reg).Observe, MaxRetries: -1})
	// What a connection begins with is observed, too, and go-redis has others for pipelines.
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Ping(t.Context()); return nil })
	if err := errors.Join(err, rdb.Ping(t.Context()).Err()); err != nil {
		t.Fatal(err)
	}
	return rdb, reg
}

// values answers every series with its value, of a histogram its count.
func values(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			switch {
			case m.GetCounter() != nil:
				out[name] = m.GetCounter().GetValue()
			case m.GetHistogram() != nil:
				out[name] = float64(m.GetHistogram().GetSampleCount())
			default:
				out[name] = m.GetGauge().GetValue()
			}
		}
	}
	return out
}

// Commands and pipelines are told apart, an absent value is no error, and a script that Redis
// lacks is one of its own kind.
func TestObserve(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		rdb, reg := observed(t, r)
		ctx, key := t.Context(), "{"+crawltest.Random()+"}:k"
		before := values(t, reg)
		rdb.Get(ctx, key)
		rdb.Set(ctx, key, "v", time.Minute)
		rdb.HGet(ctx, key, "f") // WRONGTYPE
		rdb.EvalSha(ctx, strings.Repeat("0", 40), []string{key})
		_, _ = rdb.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, key+"2"); p.Get(ctx, key); return nil })
		_, _ = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Get(ctx, key+"2")
			p.EvalSha(ctx, strings.Repeat("0", 40), []string{key})
			p.HGet(ctx, key, "f")
			return nil
		})
		gone, cancel := context.WithCancel(ctx)
		cancel()
		rdb.Get(gone, key)
		got := values(t, reg)
		for name := range got {
			got[name] -= before[name]
		}
		want := map[string]float64{
			"trawl_redis_seconds command": 4, "trawl_redis_seconds pipeline": 2,
			"trawl_redis_errors_total timeout": 0, "trawl_redis_errors_total refused": 0,
			"trawl_redis_errors_total noscript": 1, "trawl_redis_errors_total oom": 0,
			"trawl_redis_errors_total noperm": 0, "trawl_redis_errors_total other": 2,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	})
}

// Why a call failed is known by its kind, also behind what package redisconn says about it.
func TestObserveKinds(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	rdb, reg := observed(t, &r.Redis)
	ctx := t.Context()
	errorsOf := func(kind string) float64 { return values(t, reg)["trawl_redis_errors_total "+kind] }
	expect := func(kind string, call func()) {
		t.Helper()
		before, answered := values(t, reg), 0.0
		call()
		after := values(t, reg)
		for name := range after {
			switch d := after[name] - before[name]; {
			case strings.HasPrefix(name, "trawl_redis_seconds"):
				answered += d
			case strings.HasSuffix(name, " "+kind) && d != 1, !strings.HasSuffix(name, " "+kind) && d != 0:
				t.Errorf("an error of kind %s: %s by %v", kind, name, d)
			}
		}
		want := 1.0
		if kind == "timeout" || kind == "refused" {
			want = 0 // nobody answered
		}
		if answered != want {
			t.Errorf("an error of kind %s: the time of %v calls is that of an answer, want %v", kind, answered, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	other := r.Open(t, redisconn.Options{})
	must(other.ConfigSet(ctx, "maxmemory", "1").Err())
	expect("oom", func() { rdb.Set(ctx, "k", "v", 0) })
	expect("oom", func() {
		_, _ = rdb.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "none"); p.Set(ctx, "k", "v", 0); return nil })
	})
	must(other.ConfigSet(ctx, "maxmemory", "0").Err())
	must(other.Do(ctx, "ACL", "SETUSER", "default", "-get").Err())
	expect("noperm", func() { rdb.Get(ctx, "k") })
	expect("noperm", func() { rdb.Eval(ctx, "return redis.call('GET', KEYS[1])", []string{"k"}) })
	r.Freeze()
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	expect("timeout", func() { rdb.Ping(brief) })
	r.Thaw()
	r.Stop()
	// A connection that was open ends first, which is an error of its own.
	crawltest.Eventually(t, 20*time.Second, "a connection to be refused", func() bool {
		rdb.Ping(ctx)
		return errorsOf("refused") > 0
	})
	expect("refused", func() { rdb.Ping(ctx) })
}

// An error of any make has a kind; what the caller gave up is none.
func TestKindOfErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		kind string
	}{
		{errors.New("what"), "other"},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), "timeout"},
		{fmt.Errorf("x: %w", context.Canceled), ""},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, "refused"},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, "timeout"},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, "other"},
	} {
		reg := prometheus.NewPedanticRegistry()
		redisconn.NewMetrics(reg).Observe(redisconn.CallCommand, time.Second, tc.err)
		for name, v := range values(t, reg) {
			want := 0.0
			if tc.kind != "" && name == "trawl_redis_errors_total "+tc.kind {
				want = 1
			}
			if v != want {
				t.Errorf("%v: %s %v, want %v", tc.err, name, v, want)
			}
		}
	}
}

// Where calls get slow, no bucket spans more than two and a half times its start.
func TestBuckets(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	redisconn.NewMetrics(reg)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			buckets := m.GetHistogram().GetBucket()
			for i := 1; i < len(buckets)-1; i++ { // the last is for what gives up
				if from, to := buckets[i-1].GetUpperBound(), buckets[i].GetUpperBound(); to > 2.51*from {
					t.Errorf("%s: %v follows %v", f.GetName(), to, from)
				}
			}
		}
	}
}

// TestObserveIsFree: what is observed costs no allocation.
func TestObserveIsFree(t *testing.T) { // counts what others allocate, too: not parallel
	m := redisconn.NewMetrics(nil)
	if n := testing.AllocsPerRun(1000, func() { m.Observe(redisconn.CallPipeline, time.Millisecond, nil) }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
	plain, observing := hooked(t, redisconn.Options{}), hooked(t, redisconn.Options{Observe: m.Observe})
	if n := observing() - plain(); n >= 1 {
		t.Errorf("the hook allocates %v times a call", n)
	}
}

// hooked answers how many allocations a call costs.
func hooked(t *testing.T, o redisconn.Options) func() float64 {
	t.Helper()
	rdb := crawltest.Any(t).Open(t, o)
	return func() float64 {
		ctx := t.Context()
		rdb.Ping(ctx)
		return testing.AllocsPerRun(200, func() { rdb.Ping(ctx) })
	}
}

func TestCollector(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(redisconn.NewCollector(r.Client))
		got := values(t, reg)
		_, node, _ := strings.Cut(r.URL, "://")
		for _, tc := range []struct {
			name        string
			mini        bool
			least, most float64
		}{
			{"up", true, 1, 1},
			{"ping_seconds", true, 1e-9, 1e3},
			{"connected_clients", true, 1, 1e3},
			{"memory_used_bytes", false, 1e5, 1e12},
			{"memory_max_bytes", false, 0, 0},
			{"evicted_keys_total", false, 0, 0},
			{"aof_enabled", false, 0, 0},
			{"persistence_ok", false, 1, 1},
			{"replicas", false, 0, 0},
		} {
			v, there := got["trawl_redis_"+tc.name+" "+node]
			delete(got, "trawl_redis_"+tc.name+" "+node)
			if there != (tc.mini || r.Name != "miniredis") {
				t.Errorf("%s is told: %v", tc.name, there)
			} else if there && (v < tc.least || v > tc.most) {
				t.Errorf("%s is %v", tc.name, v)
			}
		}
		if len(got) > 0 {
			t.Errorf("unknown: %v", got)
		}
		if faults, err := testutil.GatherAndLint(reg); err != nil || len(faults) > 0 {
			t.Errorf("%v, %v", faults, err)
		}
	})
}

// What a server says of itself is what is told.
func TestCollectorOfAFullServer(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru", "--maxmemory-samples", "10")
	value := strings.Repeat("x", 100_000)
	for i := range 100 {
		if err := r.Client.Set(t.Context(), fmt.Sprint(i), value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(redisconn.NewCollector(r.Client))
	got := values(t, reg)
	if got["trawl_redis_memory_max_bytes "+r.Addr] != 3<<20 || got["trawl_redis_aof_enabled "+r.Addr] != 1 ||
		got["trawl_redis_evicted_keys_total "+r.Addr] < 50 {
		t.Errorf("%v", got)
	}
}

// A server that is gone, or hangs, is told of as down, and in time for a scrape; it comes back.
func TestCollectorOfAnOutage(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(redisconn.NewCollector(r.Open(t, redisconn.Options{})))
	up := "trawl_redis_up " + r.Addr
	if got := values(t, reg); got[up] != 1 {
		t.Fatalf("%v", got)
	}
	for _, outage := range []struct{ begin, end func() }{{r.Freeze, r.Thaw}, {r.Stop, r.Start}} {
		outage.begin()
		if d := cmp.Diff(map[string]float64{up: 0}, values(t, reg)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		outage.end()
		crawltest.Eventually(t, 20*time.Second, "the server to be up again", func() bool { return values(t, reg)[up] == 1 })
	}
}

// Of a Cluster out of reach the addresses of the URL are down.
func TestCollectorOfALostCluster(t *testing.T) {
	t.Parallel()
	addr := fmt.Sprintf("127.0.0.1:%d", crawltest.FreePort(t))
	rdb, err := redisconn.Open("redis-cluster://"+addr, redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(redisconn.NewCollector(rdb))
	if d := cmp.Diff(map[string]float64{"trawl_redis_up " + addr: 0}, values(t, reg)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A user who may ask for no more than the memory is told that, and that the server is up.
func TestCollectorWithFewRights(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	if err := r.Client.Do(t.Context(), "ACL", "SETUSER", "default", "-@all", "+ping", "+info|memory", "+acl").Err(); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(redisconn.NewCollector(r.Open(t, redisconn.Options{})))
	got := values(t, reg)
	_, memory := got["trawl_redis_memory_used_bytes "+r.Addr]
	_, clients := got["trawl_redis_connected_clients "+r.Addr]
	if got["trawl_redis_up "+r.Addr] != 1 || !memory || clients {
		t.Errorf("%v", got)
	}
}

func BenchmarkObserve(b *testing.B) {
	m := redisconn.NewMetrics(nil)
	b.ReportAllocs()
	for b.Loop() {
		begun := time.Now()
		m.Observe(redisconn.CallPipeline, time.Since(begun), nil)
	}
}
