package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
)

func start(t *testing.T, b *bench) {
	t.Helper()
	if err := b.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := b.server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

func get(t *testing.T, b *bench, target string) (*http.Response, error) {
	t.Helper()
	return send(t, b, http.MethodGet, target)
}

func send(t *testing.T, b *bench, method, target string) (*http.Response, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+b.server.Addr()+target, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", keyA)
	return transport.RoundTrip(r)
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if b.server.Addr() != "" {
		t.Error("New binds")
	}
	if err := b.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.server.Start(t.Context()); err == nil {
		t.Error("it starts twice")
	}
	res, err := get(t, b, "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()

	busy := newBench(t)
	busy.server.o.Listen = b.server.Addr()
	if err := busy.server.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") ||
		!strings.Contains(err.Error(), "TRAWL_LISTEN") {
		t.Errorf("a port that is taken: %v", err)
	}

	for range 2 {
		if err := b.server.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
	if err := b.server.Start(t.Context()); err == nil {
		t.Error("it starts after it was stopped")
	}
	b.call("GET", "/readyz", "").wantProblem(t, 503, crawl.CodeUnavailable)
	if err := newBench(t).server.Stop(t.Context()); err != nil {
		t.Errorf("Stop before Start: %v", err)
	}
}

// Run ends with its context, and lets a request in flight end first.
func TestRunDrains(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Running)
	entered, leave := make(chan struct{}), make(chan struct{})
	b.read = func(crawl.JobRef, *crawl.Job) { close(entered); <-leave }
	ctx, cancel := context.WithCancel(t.Context())
	if err := b.server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	got := make(chan int, 1)
	go func() {
		res, err := get(t, b, "/v1/jobs/"+ref.ID)
		if err != nil {
			got <- 0
			return
		}
		_ = res.Body.Close()
		got <- res.StatusCode
	}()
	<-entered
	stopped := make(chan error, 1)
	stopCtx, stopNow := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer stopNow()
	cancel()
	go func() { stopped <- b.server.Stop(stopCtx) }()
	close(leave)
	if status := <-got; status != 200 {
		t.Errorf("the request in flight got %d", status)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func TestStopDropsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Running)
	entered, leave := make(chan struct{}), make(chan struct{})
	b.read = func(crawl.JobRef, *crawl.Job) { close(entered); <-leave }
	if err := b.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		res, err := get(t, b, "/v1/jobs/"+ref.ID)
		if err == nil {
			_ = res.Body.Close()
		}
		got <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.server.Stop(ctx); err == nil {
		t.Error("a dropped request is not told")
	}
	if err := <-got; err == nil {
		t.Error("the request got an answer")
	}
	close(leave)
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := New(Options{Keys: map[string][]string{"NOT A TENANT": {"k"}}})
	for _, want := range []string{"Jobs", "Doorbell", "Logger", "Registry", "Quota.MaxRunning", "NOT A TENANT"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in: %v", want, err)
		}
	}
}
