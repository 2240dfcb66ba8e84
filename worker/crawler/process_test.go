package crawler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

// health is what a worker answers to a probe.
type health struct {
	status  int
	Status  string   `json:"status"`
	Failing []string `json:"failing"`
}

func probe(t *testing.T, method, addr, path string) health {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	h := health{status: res.StatusCode}
	if method == http.MethodHead {
		return h
	}
	if err := json.Unmarshal(body, &h); err != nil {
		t.Fatalf("%s: %v in %s", path, err, body)
	}
	return h
}

// A worker is ready while its parts are, says which is not, and lives all the while: when Redis
// hangs and while it drains.
func TestProcessHealth(t *testing.T) {
	t.Parallel()
	srv := crawltest.Private(t)
	b := newBench(t, &srv.Redis)
	s, _ := stuck(t)
	w := b.worker(t, func(o *crawler.ProcessOptions) {
		o.Listen, o.Grace = "127.0.0.1:0", time.Second
		o.Health = obs.NewHandler(obs.NewRegistry(), slog.New(slog.DiscardHandler),
			obs.Check{Name: "redis", Ready: b.store.Ready}, obs.Check{Name: "redis_rights", Ready: b.store.WorkerRights})
	})
	addr := w.Addr()
	becomes := func(status int, failing ...string) {
		t.Helper()
		crawltest.Eventually(t, time.Minute, "ready as it should be", func() bool {
			h := probe(t, http.MethodGet, addr, "/readyz")
			return h.status == status && slices.Equal(h.Failing, failing)
		})
	}
	lives := func(when string) {
		t.Helper()
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			if h := probe(t, method, addr, "/healthz"); h.status != http.StatusOK {
				t.Errorf("%s: /healthz answers %+v", when, h)
			}
		}
	}
	becomes(http.StatusOK)
	lives("at work")
	srv.Freeze()
	t.Cleanup(srv.Thaw)
	crawltest.Eventually(t, time.Minute, "not ready for Redis", func() bool {
		h := probe(t, http.MethodGet, addr, "/readyz")
		return h.status == http.StatusServiceUnavailable && slices.Contains(h.Failing, "redis")
	})
	if h := probe(t, http.MethodHead, addr, "/readyz"); h.status != http.StatusServiceUnavailable {
		t.Errorf("HEAD /readyz: %d", h.status)
	}
	lives("while Redis hangs")
	srv.Thaw()
	becomes(http.StatusOK)

	b.submit(t, list(2), s.URL+"/a")
	s.Await(time.Minute, "/a", 1)
	stopped := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { stopped <- w.Stop(ctx) }()
	for drained := false; !drained; {
		h, err := tryProbe(t, addr)
		if err != nil {
			t.Fatalf("it was never seen to drain: %v", err)
		}
		drained = slices.Equal(h.Failing, []string{"process"})
	}
	lives("draining")
	if err := crawltest.Receive(t, time.Minute, "the stop of the worker", stopped); err != nil {
		t.Error(err)
	}
}

// tryProbe is probe of /readyz for a server that may be gone.
func tryProbe(t *testing.T, addr string) (health, error) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return health{}, err
	}
	_ = conn.Close()
	return probe(t, http.MethodGet, addr, "/readyz"), nil
}

// Without something to serve there an address for health is a mistake.
func TestListenWithoutHealth(t *testing.T) {
	t.Parallel()
	_, err := crawler.NewProcess(crawler.ProcessOptions{
		RedisURL: "redis://127.0.0.1:1", Listen: "127.0.0.1:0", Options: crawler.Options{Logger: slog.New(slog.DiscardHandler), Concurrency: 1},
	})
	if err == nil || !strings.Contains(err.Error(), "Health") {
		t.Errorf("%v", err)
	}
}

// A worker follows the log level that is set for all processes.
func TestProcessFollowsLogLevel(t *testing.T) {
	t.Parallel()
	r := crawltest.Mini(t)
	b := newBench(t, r)
	if err := b.store.SetLogLevel(t.Context(), slog.LevelDebug, time.Hour); err != nil {
		t.Fatal(err)
	}
	level := obs.NewLevel(slog.LevelInfo)
	b.worker(t, func(o *crawler.ProcessOptions) { o.Level, o.Levels = level, b.store.LogLevel })
	crawltest.Eventually(t, time.Minute, "the level of all processes", func() bool { return level.Level() == slog.LevelDebug })
}

// Run tells systemd that the worker serves jobs, that it lives, and that it stops.
func TestRunNotifies(t *testing.T) { //nolint:paralleltest // it sets the environment
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "100000")
	t.Setenv("WATCHDOG_PID", "")
	r := crawltest.Mini(t)
	b := newBench(t, r)
	p, err := crawler.NewProcess(crawler.ProcessOptions{
		Fetch:    fetch.Options{Dial: (&net.Dialer{}).DialContext},
		RedisURL: r.URL, QueueName: b.queue, Notify: obs.NewNotifier(slog.New(slog.DiscardHandler)),
		Options: crawler.Options{
			Store: b.store, Doorbell: b.bell, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Concurrency: 1,
			HostConcurrency: 1, Grace: time.Second,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	buf := make([]byte, 4096)
	hear := func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(bytes.Clone(buf[:n]))
	}
	if got := hear(); got != "READY=1\nSTATUS=crawling" {
		t.Errorf("first it says %q", got)
	}
	for range 3 {
		if got := hear(); got != "WATCHDOG=1" {
			t.Errorf("then it says %q", got)
		}
	}
	cancel()
	got := hear()
	for got == "WATCHDOG=1" {
		got = hear()
	}
	if !strings.HasPrefix(got, "STOPPING=1") {
		t.Errorf("at last it says %q", got)
	}
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
