package crawler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/webhook"
)

// Metrics counts what the crawler does. Labels are outcomes and nothing that grows.
type Metrics struct {
	pages    *prometheus.CounterVec
	sitemaps *prometheus.CounterVec
	fetch    prometheus.Histogram
	exchange prometheus.Histogram
	leased   prometheus.Histogram
	inFlight prometheus.Gauge
	slices   prometheus.Gauge
	dead     prometheus.Counter
	back     prometheus.Counter
	sweeps   *prometheus.CounterVec
	webhooks *webhook.Metrics
}

// NewMetrics makes the metrics and registers them; a nil registerer registers nothing.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	seconds := prometheus.ExponentialBuckets(0.0005, 2.5, 13)
	m := &Metrics{
		pages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trawl_pages_total",
			Help: "Outcomes of fetched URLs: accepted, failed, skipped, alias, retry, redirect, released, stale.",
		}, []string{"outcome"}),
		sitemaps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trawl_sitemaps_total",
			Help: "Outcomes of sitemaps: read, none, listed, failed, retry, stale; and part for each part of a large one.",
		}, []string{"outcome"}),
		fetch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "trawl_fetch_seconds", Help: "Time to fetch and read one URL.", Buckets: seconds,
		}),
		exchange: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "trawl_exchange_seconds", Help: "One round trip of a slice: commits, leases, host slots.",
			Buckets: seconds,
		}),
		leased: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "trawl_leased_urls", Help: "URLs granted by one lease.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "trawl_fetches_in_flight", Help: "Requests under way in this process.",
		}),
		slices: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "trawl_slices", Help: "Slices that this process serves.",
		}),
		dead: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trawl_dead_slices_total", Help: "Slices of lost workers that a sweep of this process buried.",
		}),
		back: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trawl_urls_given_back_total", Help: "URLs that those slices held.",
		}),
		sweeps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trawl_sweeps_total", Help: "Sweeps by result.",
		}, []string{"result"}),
		webhooks: webhook.NewMetrics(reg),
	}
	if reg != nil {
		reg.MustRegister(m.pages, m.sitemaps, m.fetch, m.exchange, m.leased, m.inFlight, m.slices, m.dead, m.back, m.sweeps)
	}
	return m
}

func (m *Metrics) swept(s store.Swept, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.sweeps.WithLabelValues(result).Inc()
	m.dead.Add(float64(s.Dead))
	m.back.Add(float64(s.Back))
}

func (m *Metrics) page(c *store.Commit, v store.Verdict) {
	outcome := "retry"
	switch {
	case v != store.Done:
		outcome = string(v)
	case c.Accepted != nil:
		outcome = string(crawl.PageAccepted)
	case c.Failed != nil:
		outcome = string(crawl.PageFailed)
	case c.Skipped != "":
		outcome = string(crawl.PageSkipped)
	case c.Redirect != nil:
		outcome = "redirect"
	}
	m.pages.WithLabelValues(outcome).Inc()
}

func (m *Metrics) sitemap(c *store.MapCommit, v store.Verdict) {
	outcome := string(c.Outcome)
	if v != store.Done {
		outcome = string(v)
	}
	m.sitemaps.WithLabelValues(outcome).Inc()
}

func (m *Metrics) since(h prometheus.Histogram, start time.Time) {
	h.Observe(time.Since(start).Seconds())
}
