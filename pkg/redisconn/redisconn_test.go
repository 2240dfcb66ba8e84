package redisconn

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		url  string
		want target
	}{
		{"redis://localhost", target{addrs: []string{"localhost:6379"}}},
		{"redis://10.0.0.1:7000/3", target{addrs: []string{"10.0.0.1:7000"}, db: 3}},
		{"redis://[::1]/", target{addrs: []string{"[::1]:6379"}}},
		{"redis://[::1]:7000?db=2", target{addrs: []string{"[::1]:7000"}, db: 2}},
		{"redis://:p%40ss%2Fw@h", target{addrs: []string{"h:6379"}, password: "p@ss/w"}},
		{"redis://u:p@ss@h:1", target{addrs: []string{"h:1"}, user: "u", password: "p@ss"}},
		{"rediss://u:p@h", target{addrs: []string{"h:6379"}, user: "u", password: "p", tls: true}},
		{"unix:///run/redis.sock?db=1", target{addrs: []string{"/run/redis.sock"}, db: 1}},
		{"unix://u:p@/run/r%20s", target{addrs: []string{"/run/r s"}, user: "u", password: "p"}},
		{
			"redis-sentinel://u:p@a:26379,b,[::1]:1/main?db=4&sentinel_user=s&sentinel_password=t&tls=true",
			target{
				addrs: []string{"a:26379", "b:26379", "[::1]:1"}, user: "u", password: "p", master: "main",
				db: 4, sentinelUser: "s", sentinelSecret: "t", tls: true,
			},
		},
		{"redis-cluster://:p@a:1,b", target{addrs: []string{"a:1", "b:6379"}, password: "p", cluster: true}},
		{"redis-cluster://a/?tls=1", target{addrs: []string{"a:6379"}, cluster: true, tls: true}},
	} {
		t.Run(tc.url, func(t *testing.T) {
			t.Parallel()
			var p parser
			got := p.parse(tc.url)
			if err := p.err(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(target{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestOpenNamesEveryFault(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		url  string
		want []string // field/rule
	}{
		{"", []string{"scheme/required"}},
		{"localhost:6379", []string{"scheme/required"}},
		{"http://h", []string{"scheme/enum"}},
		{"Redis://h", []string{"scheme/enum"}},
		{"redis://", []string{"host/required"}},
		{"redis://:6379", []string{"host/required"}},
		{"redis://a,b", []string{"host/max"}},
		{"redis://::1:6379", []string{"host/format"}},
		{"redis://[::1", []string{"host/format"}},
		{"redis://a b", []string{"host/format"}},
		{"redis://h:0/x?a=b", []string{"host/port", "path/format", "query/unknown"}},
		{"redis://h:70000", []string{"host/port"}},
		{"redis://h/-1", []string{"path/format"}},
		{"redis://h?db=1&db=2", []string{"query/unknown"}},
		{"redis://user@h", []string{"password/required"}},
		{"redis://u:%zz@h", []string{"password/encoding", "password/required"}},
		{"redis://:sec/ret@h", []string{"password/encoding", "host/required", "path/format"}},
		{"redis://:sec#ret@h", []string{"password/encoding", "fragment/unknown", "host/required"}},
		{"unix://h/run/sock", []string{"host/unknown"}},
		{"unix://", []string{"path/required"}},
		{"redis-sentinel://a,,c:x?db=q", []string{"host[1]/required", "host[2]/port", "path/required", "query.db/format"}},
		{"redis-sentinel://a/m/n", []string{"path/format"}},
		{"redis-cluster://a/1?db=1&tls=perhaps", []string{"path/unknown", "query.tls/format", "query/unknown"}},
	} {
		t.Run(tc.url, func(t *testing.T) {
			t.Parallel()
			_, err := Open(tc.url, Options{})
			var f *crawl.Fault
			if !errors.As(err, &f) || f.Code != crawl.CodeInvalid || f.Message == "" {
				t.Fatalf("Open: %v, want a fault of code invalid", err)
			}
			var got []string
			for _, ff := range f.Fields {
				if ff.Message == "" {
					t.Errorf("%s has no message", ff.Field)
				}
				got = append(got, ff.Field+"/"+ff.Rule)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// FuzzParse holds what a log may hold: whatever is wrong with the URL, no word
// of it is repeated. The marker cannot occur in a message by chance.
func FuzzParse(f *testing.F) {
	const secret = "5Qx7Zk"
	for _, s := range []string{
		"redis://:@@h/0", "redis://u:@/@h", "rediss://@:1", "unix://@/s?db=@", "redis-sentinel://a,@/m?@=1",
		"redis-cluster://:@@a:1,b", "@://h", "redis://[@]:@", "redis://h/@?tls=@#@", "redis://u:%@@h",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := strings.ReplaceAll(s, "@", secret+"@")
		var p parser
		got := p.parse(raw)
		if err := p.err(); err != nil {
			if strings.Contains(err.Error(), secret) {
				t.Fatalf("%q: the error repeats the URL: %v", raw, err)
			}
			return
		}
		if len(got.addrs) == 0 || got.db < 0 || got.cluster && got.master != "" {
			t.Fatalf("%q: accepted as %+v", raw, got)
		}
		c, err := Open(raw, Options{})
		if err != nil {
			t.Fatalf("%q: parsed, but not opened: %v", raw, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOpen(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	m.RequireUserAuth("u", "p@ss")
	var hooked countHook
	c, err := Open("redis://u:p%40ss@"+m.Addr()+"/2", Options{Name: "trawl-test", Hooks: []redis.Hook{&hooked}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := m.DB(2).Get("k"); err != nil || got != "v" {
		t.Errorf("database 2 has %q, %v", got, err)
	}
	if hooked.n == 0 {
		t.Error("the hook was not called")
	}
}

// A dial of one's own opens every connection, in each form of the URL.
func TestDial(t *testing.T) {
	t.Parallel()
	m := miniredis.NewMiniRedis() // it listens nowhere
	t.Cleanup(m.Close)
	for url, want := range map[string]string{
		"redis://memory": "tcp memory:6379", "rediss://memory:1": "tcp memory:1", "unix:///no/such": "unix /no/such",
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			var asked string
			c, err := Open(url, Options{Dial: func(_ context.Context, network, address string) (net.Conn, error) {
				asked = network + " " + address
				return m.Dial()
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Ping(t.Context()).Err(); err != nil || asked != want {
				t.Errorf("%v; dialled %q, want %q", err, asked, want)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	broken := errors.New("no way")
	c, err := Open("redis://memory", Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, broken
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Ping(t.Context()).Err(); !errors.Is(err, broken) {
		t.Errorf("a dial that fails: %v", err)
	}
}

// TestOptions pins what the promises of the store stand on.
func TestOptions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		in                Options
		retries, poolSize int
	}{
		"defaults": {Options{}, 1, 32},
		"chosen":   {Options{MaxRetries: -1, PoolSize: 3}, -1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := target{addrs: []string{"h:1"}}.options(tc.in)
			if got.MaxRetries != tc.retries || got.PoolSize != tc.poolSize || !got.ContextTimeoutEnabled ||
				got.DialTimeout != 2*time.Second || got.ReadTimeout != 3*time.Second ||
				got.WriteTimeout != 3*time.Second || got.DialerRetries != 1 {
				t.Errorf("options: %+v", got)
			}
		})
	}
}

func TestDetach(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	t.Cleanup(cancel)

	for _, tc := range []struct {
		name  string
		hooks []redis.Hook
		ctx   context.Context
		want  error
	}{
		{"cancelled", []redis.Hook{Detach()}, cancelled, nil},
		{"cancelled, no hook", nil, cancelled, context.Canceled},
		{"deadline passed", []redis.Hook{Detach()}, late, context.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, err := Open("redis://"+m.Addr(), Options{Hooks: tc.hooks})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if err := c.Ping(tc.ctx).Err(); !errors.Is(err, tc.want) {
				t.Errorf("command: %v, want %v", err, tc.want)
			}
			p := c.Pipeline()
			p.Ping(tc.ctx)
			if _, err := p.Exec(tc.ctx); !errors.Is(err, tc.want) {
				t.Errorf("pipeline: %v, want %v", err, tc.want)
			}
		})
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	s := slogger{slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	s.Printf(t.Context(), "pool %d", 7)
	if got := b.String(); !strings.Contains(got, `level=DEBUG msg="redis client" text="pool 7"`) {
		t.Errorf("logged %q", got)
	}
	b.Reset()
	quiet := slogger{slog.New(slog.NewTextHandler(&b, nil))}
	quiet.Printf(t.Context(), "pool %d", 7)
	if b.Len() > 0 {
		t.Errorf("logged above debug level: %q", b.String())
	}
}

type countHook struct{ n int }

func (h *countHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *countHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.n++
		return next(ctx, cmd)
	}
}

func (h *countHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A Cluster's client sends again where a slot is now: its nodes send nothing twice, or a master
// that hangs would be noticed in twice the time.
func TestClusterSendsAgainInOnePlace(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{0, -1, 5} {
		c, err := Open("redis-cluster://a,b", Options{MaxRetries: retries})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		o := c.(*redis.ClusterClient).Options()
		if o.MaxRetries != -1 || o.MaxRedirects != maxRedirects || o.RouteByLatency || o.RouteRandomly || o.ReadOnly {
			t.Errorf("%d retries: %d, %d redirects, reads elsewhere %v", retries, o.MaxRetries, o.MaxRedirects, o.ReadOnly)
		}
	}
}
