package crawler

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/webhook"
)

// Metrics counts what the crawler does. Labels are of fixed sets and nothing that grows with
// jobs, hosts or tenants; what can be named before it happens is there from the start, so that
// its first occurrence is an increase.
type Metrics struct {
	pages     counters
	failures  counters
	skips     counters
	sitemaps  counters
	deferrals counters
	rings     counters
	bytes     prometheus.Counter
	fetch     prometheus.Histogram
	hostWait  prometheus.Histogram
	commit    prometheus.Histogram
	lease     prometheus.Histogram
	exchange  prometheus.Histogram
	leased    prometheus.Histogram
	inFlight  prometheus.Gauge
	slices    prometheus.Gauge
	dead      prometheus.Counter
	back      prometheus.Counter
	sweeps    counters
	webhooks  *webhook.Metrics
}

// counters are those of one name, by the value of their label. The set is fixed.
type counters struct {
	vec *prometheus.CounterVec
	of  map[string]prometheus.Counter
}

// newCounters makes a counter for each of values.
func newCounters(name, label, help string, values ...string) counters {
	c := counters{
		vec: prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}),
		of:  make(map[string]prometheus.Counter, len(values)),
	}
	for _, v := range values {
		c.of[v] = c.vec.WithLabelValues(v)
	}
	return c
}

// other stands for every value that is not in the set of a label.
const other = "other"

// add counts n of a value; one that has no counter goes to [other].
func (c counters) add(value string, n int) {
	counter, ok := c.of[value]
	if !ok {
		counter = c.of[other]
	}
	counter.Add(float64(n))
}

// Outcomes of a page beside those that [crawl] and [store] name.
const (
	outcomeRetry    = "retry"
	outcomeRedirect = "redirect"
	outcomeReleased = "released"
)

// errorTypes are those of a page that a worker records. Of the statuses it is those with a
// name: a server can answer any number. worker_lost is what a sweep records.
func errorTypes() []string {
	types := []string{other}
	for _, code := range []crawl.Code{
		crawl.CodeBodyTooLarge, crawl.CodeTimeout, crawl.CodeDNS, crawl.CodeTLS, crawl.CodeConnection, crawl.CodeTruncated,
		crawl.CodeBadResponse, crawl.CodeContentEncoding, crawl.CodePrivateAddress, crawl.CodeRedirectLoop,
		crawl.CodeTooManyRedirects, crawl.CodeBadRedirect, crawl.CodeInvalidURL, crawl.CodeMislabelledNotHTML,
		crawl.CodeMissingField, crawl.CodeTooComplex, crawl.CodeWorkerLost, crawl.CodeSourceNotAllowed, crawl.CodeInternal,
	} {
		types = append(types, string(code))
	}
	for status := http.StatusBadRequest; status < 600; status++ {
		if http.StatusText(status) != "" {
			types = append(types, string(crawl.HTTPCode(status)))
		}
	}
	return types
}

// skipReasons are those for which a page is skipped.
func skipReasons() []string {
	reasons := []string{other}
	for _, r := range []crawl.Reason{
		crawl.SkipAlias, crawl.SkipRedirectOutOfScope, crawl.SkipRedirectNotAllowed, crawl.SkipRedirectTrap,
		crawl.SkipContentTypeExcluded, crawl.SkipRobots, crawl.SkipRobotsUnreachable, crawl.SkipNoIndex,
	} {
		reasons = append(reasons, string(r))
	}
	return reasons
}

// Reasons for which a URL is sent back to wait.
const (
	forHost   = "host"
	forRetry  = "retry"
	forRobots = "robots"
)

// NewMetrics makes the metrics and registers them; a nil registerer registers nothing.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	seconds := prometheus.ExponentialBuckets(0.0005, 2.5, 13)
	// A lease can last as long as its host keeps it waiting, and half a minute more.
	long := prometheus.ExponentialBuckets(0.001, 3, 12)
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{
		pages: newCounters("trawl_pages_total", "outcome",
			"What became of URLs that were leased. Recorded: accepted, failed, skipped, alias (skipped, since another "+
				"URL ended at the same page). Sent back: retry, redirect, released. stale: recorded too late, so that "+
				"nothing changed; another worker has the URL.",
			string(crawl.PageAccepted), string(crawl.PageFailed), string(crawl.PageSkipped), string(store.Alias),
			outcomeRetry, outcomeRedirect, outcomeReleased, string(store.Stale), other),
		failures: newCounters("trawl_page_failures_total", "error_type",
			"Pages that this worker recorded as failed, by error_type; a status without a name is other. Their sum is "+
				"that of trawl_pages_total with outcome failed.", errorTypes()...),
		skips: newCounters("trawl_page_skips_total", "reason",
			"Pages that this worker recorded as skipped, by reason. Their sum is that of trawl_pages_total with "+
				"outcome skipped or alias.", skipReasons()...),
		sitemaps: newCounters("trawl_sitemaps_total", "outcome",
			"Outcomes of sitemaps: read, none, listed, failed, retry, stale; and part for each part of a large one.",
			string(store.MapRead), string(store.MapNone), string(store.MapListed), string(store.MapFailed),
			string(store.MapRetry), string(store.MapPart), string(store.Stale), other),
		deferrals: newCounters("trawl_deferrals_total", "for",
			"URLs that were sent back to wait: for a place at their host, for another try after a failure, for a "+
				"robots.txt that could not be read yet.", forHost, forRetry, forRobots, other),
		rings: newCounters("trawl_rings_total", "result",
			"Tasks that this worker put into the queue. Of those that failed some may be there; the jobs are rung "+
				"again by a sweep.", "ok", "failed"),
		bytes: counter("trawl_fetched_bytes_total",
			"Bytes of pages that were read, after decompression; robots.txt files and sitemaps not among them."),
		fetch: histogram("trawl_fetch_seconds", "Seconds to fetch and read one URL.", seconds),
		hostWait: histogram("trawl_host_wait_seconds",
			"Seconds from the lease of a URL to the start that its host granted: what politeness costs. "+
				"What was sent back to wait counts in trawl_deferrals_total.", long),
		commit: histogram("trawl_commit_seconds",
			"Seconds from the end of a fetch until its outcome was recorded; a slow Redis or a busy worker make it long.",
			seconds),
		lease: histogram("trawl_lease_seconds",
			"Seconds from the lease of a URL until its outcome was recorded or it was given back.", long),
		exchange: histogram("trawl_exchange_seconds",
			"Seconds of one round trip of a slice: commits, leases, host slots.", seconds),
		leased:   histogram("trawl_leased_urls", "URLs granted by one lease.", prometheus.ExponentialBuckets(1, 2, 9)),
		inFlight: gauge("trawl_fetches_in_flight", "Requests under way in this process."),
		slices:   gauge("trawl_slices", "Slices that this process serves."),
		dead:     counter("trawl_dead_slices_total", "Slices of lost workers that a sweep of this process buried."),
		back:     counter("trawl_urls_given_back_total", "URLs that those slices held."),
		sweeps:   newCounters("trawl_sweeps_total", "result", "Sweeps by result; partly: some tenants could not be healed, the log says which.", "ok", "partly", "error"),
		webhooks: webhook.NewMetrics(reg),
	}
	if reg != nil {
		reg.MustRegister(m.pages.vec, m.failures.vec, m.skips.vec, m.sitemaps.vec, m.deferrals.vec, m.rings.vec, m.bytes,
			m.fetch, m.hostWait, m.commit, m.lease, m.exchange, m.leased, m.inFlight, m.slices, m.dead, m.back, m.sweeps.vec)
	}
	return m
}

func (m *Metrics) swept(s store.Swept, err error) {
	result := "ok"
	switch {
	case err != nil && s.Tenants > 0:
		result = "partly"
	case err != nil:
		result = "error"
	}
	m.sweeps.add(result, 1)
	m.dead.Add(float64(s.Dead))
	m.back.Add(float64(s.Back))
	m.pages.add(string(crawl.PageFailed), int(s.Lost))
	m.failures.add(string(crawl.CodeWorkerLost), int(s.Lost))
}

// rang counts rings of one call.
func (m *Metrics) rang(n int, err error) {
	if err != nil {
		m.rings.add("failed", n)
	} else {
		m.rings.add("ok", n)
	}
}

// page counts what became of a commit.
func (m *Metrics) page(c *store.Commit, v store.Verdict) {
	switch {
	case v == store.Alias:
		m.pages.add(string(v), 1)
		m.skips.add(string(crawl.SkipAlias), 1)
	case v != store.Done:
		m.pages.add(string(v), 1)
	case c.NoIndex:
		m.skipped(crawl.SkipNoIndex)
	case c.Accepted != nil:
		m.pages.add(string(crawl.PageAccepted), 1)
	case c.Failed != nil:
		m.pages.add(string(crawl.PageFailed), 1)
		m.failures.add(string(c.Failed.ErrorType), 1)
	case c.Skipped != "":
		m.skipped(c.Skipped)
	case c.Redirect != nil:
		m.pages.add(outcomeRedirect, 1)
	default:
		m.pages.add(outcomeRetry, 1)
		m.deferrals.add(forRetry, 1)
	}
}

func (m *Metrics) skipped(reason crawl.Reason) {
	m.pages.add(string(crawl.PageSkipped), 1)
	m.skips.add(string(reason), 1)
}

// released counts a page that goes back because it was aborted.
func (m *Metrics) released() { m.pages.add(outcomeReleased, 1) }

// returned counts an item that is given back, with its lease. One that is due only later waits
// for what it says, or for its host.
func (m *Metrics) returned(p *page, delay time.Duration) {
	m.since(m.lease, p.since)
	if delay <= 0 {
		return
	}
	switch p.waits {
	case "":
		m.deferrals.add(forHost, 1)
	case crawl.WaitingRetry:
		m.deferrals.add(forRetry, 1)
	case crawl.WaitingRobots:
		m.deferrals.add(forRobots, 1)
	default:
		m.deferrals.add(other, 1)
	}
}

// recorded observes the times of a page whose outcome was recorded now.
func (m *Metrics) recorded(p *page, now time.Time) {
	m.lease.Observe(now.Sub(p.since).Seconds())
	if !p.fetched.IsZero() { // else there was no request
		m.commit.Observe(now.Sub(p.fetched).Seconds())
	}
}

// starts observes what a page waited for the start of its request.
func (m *Metrics) starts(p *page) {
	m.hostWait.Observe(max(0, p.start.Sub(p.since)).Seconds())
}

func (m *Metrics) sitemap(c *store.MapCommit, v store.Verdict) {
	outcome := string(c.Outcome)
	if v != store.Done {
		outcome = string(v)
	}
	m.sitemaps.add(outcome, 1)
	if v == store.Done && c.Outcome == store.MapRetry {
		m.deferrals.add(forRetry, 1)
	}
}

func (m *Metrics) since(h prometheus.Histogram, start time.Time) {
	h.Observe(time.Since(start).Seconds())
}
