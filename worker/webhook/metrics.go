package webhook

import "github.com/prometheus/client_golang/prometheus"

// What a try can come to, as trawl_webhook_deliveries_total counts it.
const (
	outcomeDelivered = "delivered"
	outcomeRetry     = "retry"    // failed, and is tried again
	outcomeFailed    = "failed"   // failed, and the event was given up
	outcomeReleased  = "released" // given back, because this worker stops
	// outcomeStale is of a try that took longer than its claim: another worker has the event.
	outcomeStale = "stale"
	// outcomeExpired is of an event, not of a try: the retention of its job was over first.
	outcomeExpired = "expired"
)

// Metrics counts deliveries. Labels are outcomes and nothing that grows.
type Metrics struct {
	deliveries *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them; a nil registerer registers nothing.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trawl_webhook_deliveries_total",
		Help: "Tries to deliver an event of a webhook by outcome: delivered, retry, failed, released, stale; " +
			"and expired, events whose job was removed before they were delivered.",
	}, []string{"outcome"})}
	for _, o := range []string{
		outcomeDelivered, outcomeRetry, outcomeFailed, outcomeReleased, outcomeStale, outcomeExpired,
	} {
		m.deliveries.WithLabelValues(o) // so that what did not happen yet is 0 and not absent
	}
	if reg != nil {
		reg.MustRegister(m.deliveries)
	}
	return m
}
