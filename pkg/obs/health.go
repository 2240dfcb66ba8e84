package obs

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// readyTimeout bounds all checks of one probe together. Orchestrators give a
// probe a second or more and count a late answer as a failure without a reason.
const readyTimeout = 900 * time.Millisecond

// Check is one condition of readiness.
type Check struct {
	Name string // what a person calls it, for example redis; shown in the answer
	// Ready returns nil when the condition holds. The text of its error is
	// logged, never answered.
	Ready func(context.Context) error
}

// NewHandler serves /healthz (the process lives), /readyz (every check holds,
// otherwise 503 with the names of those that do not) and /metrics. It is the
// whole HTTP side of a process that has no API.
func NewHandler(g prometheus.Gatherer, logger *slog.Logger, checks ...Check) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", MetricsHandler(g))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, health{Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		state, status := health{Status: "ready"}, http.StatusOK
		for _, c := range checks {
			if err := c.Ready(ctx); err != nil {
				state.Status, status = "not ready", http.StatusServiceUnavailable
				state.Failing = append(state.Failing, c.Name)
				logger.WarnContext(ctx, "not ready", slog.String("check", c.Name), slog.Any("err", err))
			}
		}
		answer(w, status, state)
	})
	return mux
}

type health struct {
	Status  string   `json:"status"`
	Failing []string `json:"failing,omitempty"`
}

func answer(w http.ResponseWriter, status int, h health) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(h) // a probe that hung up needs no answer
}
