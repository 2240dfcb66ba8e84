package obs

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ReadyTimeout bounds all checks of one probe together. Orchestrators give a
// probe a second or more and count a late answer as a failure without a reason.
const ReadyTimeout = 900 * time.Millisecond

// Check is one condition of health.
type Check struct {
	Name string // what a person calls it, for example redis; shown in the answer
	// Ready returns nil when the condition holds. It heeds its context. The text of its
	// error is logged, never answered.
	Ready func(context.Context) error
}

// Health is the whole HTTP side of a process that has no API. It serves /healthz (the process
// lives), /readyz (it can do its work) and /metrics. Each of the first two answers 503 with
// the names of the checks that fail. Make it with [NewHandler].
type Health struct {
	mux    *http.ServeMux
	logger *slog.Logger
	ready  []Check
	live   []Check
}

// NewHandler returns the health of a process whose readiness has the given checks.
func NewHandler(g prometheus.Gatherer, logger *slog.Logger, checks ...Check) *Health {
	h := &Health{mux: http.NewServeMux(), logger: logger, ready: checks}
	h.mux.Handle("GET /metrics", MetricsHandler(g))
	h.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		h.answer(w, r, "ok", "stuck", h.live)
	})
	h.mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		h.answer(w, r, "ready", "not ready", h.ready)
	})
	return h
}

// AddReady adds conditions of readiness. Call it before the health is served.
func (h *Health) AddReady(checks ...Check) { h.ready = append(h.ready, checks...) }

// AddLive adds conditions without which the process is to be restarted: none may depend on
// another process, whose failure no restart of this one mends. Call it before the health is
// served.
func (h *Health) AddLive(checks ...Check) { h.live = append(h.live, checks...) }

// ServeHTTP implements [http.Handler].
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Live returns the first error of the conditions of /healthz, for a [Notifier].
func (h *Health) Live(ctx context.Context) error {
	for _, c := range h.live {
		if err := c.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// healthAnswer is the body of an answer.
type healthAnswer struct {
	Status  string   `json:"status"`
	Failing []string `json:"failing,omitempty"`
}

func (h *Health) answer(w http.ResponseWriter, r *http.Request, good, bad string, checks []Check) {
	ctx, cancel := context.WithTimeout(r.Context(), ReadyTimeout)
	defer cancel()
	a, status := healthAnswer{Status: good}, http.StatusOK
	for _, c := range checks {
		if err := c.Ready(ctx); err != nil {
			a.Status, status = bad, http.StatusServiceUnavailable
			a.Failing = append(a.Failing, c.Name)
			h.logger.WarnContext(ctx, "a probe fails", slog.String("answer", bad), slog.String("check", c.Name), slog.Any("err", err))
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // a probe that hung up needs no answer
}
