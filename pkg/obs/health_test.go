package obs_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/obs"
)

var errStuck = errors.New("internal detail")

func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
	return w
}

// A process that is not ready lives; one that does not live may be ready; HEAD has the status.
func TestHealthConditions(t *testing.T) {
	t.Parallel()
	var ready, live error
	h := obs.NewHandler(obs.NewRegistry(), slog.New(slog.DiscardHandler))
	h.AddReady(obs.Check{Name: "queue", Ready: func(context.Context) error { return ready }})
	h.AddLive(obs.Check{Name: "sweep", Ready: func(context.Context) error { return live }})
	for _, tt := range []struct {
		path        string
		ready, live error
		status      int
		body        string
	}{
		{"/healthz", nil, nil, 200, `{"status":"ok"}`},
		{"/healthz", errStuck, nil, 200, `{"status":"ok"}`},
		{"/healthz", nil, errStuck, 503, `{"status":"stuck","failing":["sweep"]}`},
		{"/readyz", nil, errStuck, 200, `{"status":"ready"}`},
		{"/readyz", errStuck, nil, 503, `{"status":"not ready","failing":["queue"]}`},
	} {
		ready, live = tt.ready, tt.live
		if w := ask(h, http.MethodGet, tt.path); w.Code != tt.status || strings.TrimSpace(w.Body.String()) != tt.body {
			t.Errorf("GET %s: %d %s, want %d %s", tt.path, w.Code, w.Body, tt.status, tt.body)
		}
		if w := ask(h, http.MethodHead, tt.path); w.Code != tt.status {
			t.Errorf("HEAD %s: %d, want %d", tt.path, w.Code, tt.status)
		}
		if err := h.Live(t.Context()); !errors.Is(err, tt.live) {
			t.Errorf("Live: %v, want %v", err, tt.live)
		}
	}
}

// A probe is answered within a second, whatever its checks wait for.
func TestReadyInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		h := obs.NewHandler(obs.NewRegistry(), slog.New(slog.DiscardHandler),
			obs.Check{Name: "redis", Ready: hangs}, obs.Check{Name: "more", Ready: hangs})
		begun := time.Now()
		w := ask(h, http.MethodGet, "/readyz")
		if took := time.Since(begun); took >= time.Second || w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d after %v", w.Code, took)
		}
	})
}
