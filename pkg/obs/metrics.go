package obs

import (
	"net/http"

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
	// One scrape at a time is the rule and three the most that make sense; more
	// would let anyone who reaches the endpoint keep both cores busy.
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: 3})
}
