package obs

import (
	"bytes"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewRegistry returns a registry of its own with the metrics of the Go runtime,
// of the process and of its build in it. A process makes one and passes it on: the global
// one would make two services in one process, as in tests and in the
// all-in-one, count into each other.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildMetric(BuildInfo()))
	return r
}

// MetricsHandler serves what g gathers in the exposition formats of Prometheus.
func MetricsHandler(g prometheus.Gatherer) http.Handler {
	// One scrape at a time is the rule and three the most that make sense; more would let anyone
	// who reaches the endpoint keep both cores busy. They wait for each other rather than being
	// refused, and none is held while its reader reads: who reads slowly must blind nobody.
	places := make(chan struct{}, 3)
	inner := promhttp.HandlerFor(g, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wait := time.NewTimer(placeWait)
		defer wait.Stop()
		select {
		case places <- struct{}{}:
		case <-wait.C:
			http.Error(w, "Too many scrapes at once.", http.StatusServiceUnavailable)
			return
		case <-r.Context().Done():
			return
		}
		whole := &answer{header: w.Header(), status: http.StatusOK}
		func() {
			defer func() { <-places }()
			inner.ServeHTTP(whole, r)
		}()
		w.WriteHeader(whole.status)
		_, _ = w.Write(whole.body.Bytes()) // a scraper that hung up needs none
	})
}

// placeWait bounds the wait for a place: below the usual timeout of a scrape, 10 s.
const placeWait = 5 * time.Second

// answer keeps an answer until it is whole.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
func (a *answer) WriteHeader(status int)      { a.status = status }
