package httpapi

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

const (
	// statsTimeout bounds one look: a scrape must be answered while the store is not.
	statsTimeout = 1500 * time.Millisecond
	// statsFresh is for how long a look, a failed one too, stands for those after it:
	// several scrapers cost the store no more than one.
	statsFresh = 5 * time.Second
)

// StatsSource is what [StatsCollector] needs of package store.
type StatsSource interface {
	Stats(ctx context.Context) (store.Stats, error)
}

// StatsCollector tells of the jobs of all tenants and of their frontier: gauges of what is to
// do, and counters of what ended. It is a [prometheus.Collector] for the API process: the
// numbers are those of the whole service, whichever process tells them, so that a dashboard
// takes the max over the API processes and not the sum. No label of it names a tenant.
type StatsCollector struct {
	source StatsSource
	log    *slog.Logger

	jobs     *prometheus.Desc
	oldest   *prometheus.Desc
	ended    *prometheus.Desc
	urls     *prometheus.Desc
	due      *prometheus.Desc
	webhooks *prometheus.Desc
	tenants  *prometheus.Desc
	skipped  *prometheus.Desc
	broken   *prometheus.Desc
	seconds  *prometheus.Desc

	mu   sync.Mutex // held during a look, so that scrapes at once share it
	at   time.Time  // of the end of the last look; zero before the first
	last store.Stats
	err  error
	took time.Duration
}

// NewStatsCollector returns a collector over source. It does no I/O before the first scrape. A
// scrape is answered from a look that is at most 5 s old, or takes one of 1.5 s at most; after
// one that failed there is trawl_stats_seconds alone, and log says why.
func NewStatsCollector(source StatsSource, log *slog.Logger) *StatsCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("trawl_"+name, help, labels, nil)
	}
	return &StatsCollector{
		source: source, log: log,
		jobs: desc("jobs", "Jobs of all tenants that have not ended, by state. Every API process tells the same: "+
			"take the max, not the sum.", "state"),
		oldest: desc("jobs_oldest_queued_seconds", "Seconds for which the first job in line has waited for its "+
			"tenant's running limit, of the tenant where that is longest; 0 when none waits."),
		ended: desc("jobs_ended_total", "Jobs of all tenants that ended, by their last state; exact over the cluster, "+
			"jobs that were deleted since included.", "state"),
		urls: desc("frontier_urls", "URLs of the jobs that have not ended, by state: queued, active (a worker has "+
			"them), deferred (they wait for their host or another try).", "state"),
		due: desc("frontier_due_urls", "URLs that a worker could take now: queued, and deferred whose time has come. "+
			"More than there are workers for, over minutes, asks for more workers."),
		webhooks: desc("webhook_jobs_due", "Jobs with events of webhooks that are to be delivered now, but for those "+
			"whose receiver is busy. It grows when no worker delivers."),
		tenants: desc("tenants", "Tenants that ever submitted a job."),
		skipped: desc("stats_jobs_skipped", "Jobs that the last look did not look into, since its work is bounded. "+
			"Above 0 the other gauges of jobs and URLs are lower bounds."),
		broken: desc("stats_tenants_broken", "Tenants that the last look could not count, since their keys in Redis are not what "+
			"they should be; the log names them. Above 0 the other gauges leave them out, and what ended is not told."),
		seconds: desc("stats_seconds", "Seconds that the last look at the jobs of all tenants took, a failed one too."),
	}
}

// Describe implements [prometheus.Collector].
func (c *StatsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.jobs, c.oldest, c.ended, c.urls, c.due, c.webhooks, c.tenants, c.skipped, c.broken, c.seconds,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *StatsCollector) Collect(ch chan<- prometheus.Metric) {
	s, took, err := c.look()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.seconds, took.Seconds())
	if err != nil {
		return
	}
	for _, state := range crawl.States {
		if state.Terminal() {
			if s.Broken > 0 {
				continue // a counter that goes down, and up again, would count all of a tenant anew
			}
			n := float64(s.Ended[state])
			ch <- prometheus.MustNewConstMetric(c.ended, prometheus.CounterValue, n, string(state))
		} else {
			gauge(c.jobs, float64(s.Jobs[state]), string(state))
		}
	}
	for _, state := range []crawl.PageState{crawl.PageQueued, crawl.PageActive, crawl.PageDeferred} {
		gauge(c.urls, float64(s.URLs[state]), string(state))
	}
	gauge(c.oldest, s.OldestWaiting.Seconds())
	gauge(c.due, float64(s.Due))
	gauge(c.webhooks, float64(s.WebhookJobs))
	gauge(c.tenants, float64(s.Tenants))
	gauge(c.skipped, float64(s.Skipped))
	gauge(c.broken, float64(s.Broken))
}

// look answers the last look while it is fresh, or takes another.
func (c *StatsCollector) look() (store.Stats, time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || time.Since(c.at) >= statsFresh {
		//nolint:forbidigo // a collector is given no context
		ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
		defer cancel()
		begun := time.Now()
		c.last, c.err = c.source.Stats(ctx)
		c.at = time.Now()
		c.took = c.at.Sub(begun)
		if c.err != nil {
			c.log.WarnContext(ctx, "the jobs were not counted for metrics", slog.Any("err", c.err))
		}
	}
	return c.last, c.took, c.err
}
