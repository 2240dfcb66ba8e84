package httpapi

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/obs"
)

// readiness is what /readyz answers when it is ready.
type readiness struct {
	Status  string `json:"status"`
	Workers *int64 `json:"workers"`
}

// Workers are counted and never make the API unready; nor does the count that fails.
func TestReadyCountsWorkers(t *testing.T) {
	t.Parallel()
	r := crawltest.Mini(t)
	b := newBenchWith(t, func(o *Options) { o.Queue = r.Client })
	counts := func(want int64) {
		t.Helper()
		var got readiness
		b.call("GET", "/readyz", "").decode(t, 200, &got)
		if got.Status != "ready" || got.Workers == nil || *got.Workers != want {
			t.Errorf("%+v, want %d workers", got, want)
		}
	}
	counts(0)
	alive := redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: "asynq:servers:{h:1:a}"}
	if err := r.Client.ZAdd(t.Context(), "asynq:servers", alive).Err(); err != nil {
		t.Fatal(err)
	}
	counts(1)
	if err := r.Client.Set(t.Context(), "asynq:servers", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var got readiness
	if b.call("GET", "/readyz", "").decode(t, 200, &got); got.Workers != nil {
		t.Errorf("a count that failed is %d", *got.Workers)
	}
}

// Each condition that fails is named, with the words of the first; no internal text is answered.
func TestReadyNamesWhatFails(t *testing.T) {
	t.Parallel()
	rights := &crawl.Fault{Code: crawl.CodeUnavailable, Message: "Give it the rights.", Err: errBroken}
	for _, tt := range []struct {
		name          string
		redis, rights error
		more          error
		failing       []string
		detail        string
	}{
		{"rights", nil, rights, nil, []string{"redis_rights"}, "Give it the rights."},
		{"no fault", nil, nil, errBroken, []string{"more"}, "failing"},
		{"all", errBroken, rights, errBroken, []string{"redis", "redis_rights", "more"}, "Look at Redis."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBenchWith(t, func(o *Options) {
				o.Checks = []obs.Check{
					{Name: "redis_rights", Ready: func(context.Context) error { return tt.rights }},
					{Name: "more", Ready: func(context.Context) error { return tt.more }},
				}
			})
			b.err = tt.redis
			p := b.call("GET", "/readyz", "").wantProblem(t, 503, crawl.CodeUnavailable)
			if !slices.Equal(p.Failing, tt.failing) || !strings.Contains(p.Detail, tt.detail) {
				t.Errorf("%q: %s, want %q: %s", p.Failing, p.Detail, tt.failing, tt.detail)
			}
			if strings.Contains(p.Detail, "secret") || !strings.Contains(b.logs.String(), "secret detail") {
				t.Errorf("answered %s, logged %s", p.Detail, b.logs)
			}
		})
	}
}

// A probe is answered within a second, also when the store hangs.
func TestReadyInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBenchWith(t, func(o *Options) {
			o.Checks = []obs.Check{{Name: "hangs", Ready: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}}
		})
		begun := time.Now()
		a := b.call("GET", "/readyz", "")
		if took := time.Since(begun); took >= time.Second || a.status != 503 {
			t.Errorf("%d after %v", a.status, took)
		}
	})
}

// What fails when a server starts is in its log before anybody asks.
func TestStartTellsWhatFails(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, func(o *Options) {
		o.Checks = []obs.Check{{Name: "redis_rights", Ready: func(context.Context) error { return errors.New("no rights") }}}
	})
	start(t, b)
	b.server.greeted.Wait()
	if log := b.logs.String(); !strings.Contains(log, `"failing":["redis_rights"]`) || !strings.Contains(log, "no rights") {
		t.Errorf("%s", log)
	}
}

// Run tells systemd that the API listens and that it stops.
func TestRunNotifies(t *testing.T) { //nolint:paralleltest // it sets the environment
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "")
	b := newBenchWith(t, func(o *Options) { o.Notify = obs.NewNotifier(nopLogger) })
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- b.server.Run(ctx) }()
	hear := func(want string) {
		t.Helper()
		buf := make([]byte, 4096)
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if got := string(buf[:n]); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("systemd heard %q, %v, want %q", got, err, want)
		}
	}
	hear("READY=1\nSTATUS=listening on 127.0.0.1:")
	cancel()
	hear("STOPPING=1")
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
