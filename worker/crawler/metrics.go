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
	lease     *prometheus.HistogramVec
	recorded  prometheus.Observer // of lease, as is returned: no page looks them up
	returned  prometheus.Observer
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
	outcomeAsked    = "asked"
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
	forAsked  = "asked"
	forRetry  = "retry"
	forRobots = "robots"
)

// How the lease of a URL ends.
const (
	leaseRecorded = "recorded"
	leaseReturned = "returned"
)

// fetchBuckets are the bounds of the seconds of a fetch: five to each factor of ten, in steps of
// about 1.6 (the series R5 of ISO 3), to beyond what the slowest page may take. Between wider ones
// a quantile says little: a site that takes 2 s would seem to take 3.
func fetchBuckets() []float64 {
	return []float64{
		.001, .0016, .0025, .004, .0063, .01, .016, .025, .04, .063, .1, .16, .25, .4, .63, 1, 1.6, 2.5, 4, 6.3,
		10, 16, 25, 40, 63,
	}
}

// NewMetrics makes the metrics and registers them; a nil registerer registers nothing.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	seconds := prometheus.ExponentialBuckets(0.0005, 2, 17) // to half a minute
	// A lease can last as long as its host keeps it waiting, and half a minute more.
	long := prometheus.ExponentialBuckets(0.001, 2, 19)
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
			"What became of pages that were leased, each time. Recorded: accepted, failed, skipped, alias (skipped, "+
				"since another URL ended at the same page). Sent on: retry, redirect. Sent back with no attempt burnt: "+
				"asked (the site answered 429 or 503 with Retry-After), released (broken off, since the worker stops or "+
				"the job pauses or is cancelled). stale: too late, so that nothing changed; the lease was lost and "+
				"another worker has the page. What goes back before its start is not counted here. The counts of a "+
				"worker that is killed go with it: what the status of a job says is exact.",
			string(crawl.PageAccepted), string(crawl.PageFailed), string(crawl.PageSkipped), string(store.Alias),
			outcomeRetry, outcomeRedirect, outcomeAsked, outcomeReleased, string(store.Stale), other),
		failures: newCounters("trawl_page_failures_total", "error_type",
			"Pages that this worker recorded as failed, by error_type; a status without a name is other. worker_lost "+
				"is counted by the worker whose sweep gave the page up, not by those that were lost. Their sum is that "+
				"of trawl_pages_total with outcome failed.", errorTypes()...),
		skips: newCounters("trawl_page_skips_total", "reason",
			"Pages that this worker recorded as skipped, by reason. Their sum is that of trawl_pages_total with "+
				"outcome skipped or alias.", skipReasons()...),
		sitemaps: newCounters("trawl_sitemaps_total", "outcome",
			"Outcomes of sitemaps: read, none, listed, failed, retry; released and stale as those of pages; and part for "+
				"each part of a large one.",
			string(store.MapRead), string(store.MapNone), string(store.MapListed), string(store.MapFailed),
			string(store.MapRetry), string(store.MapPart), outcomeReleased, string(store.Stale), other),
		deferrals: newCounters("trawl_deferrals_total", "for",
			"URLs that were sent back to wait. host: for a place at their host. asked: the site answered 429 or 503 with "+
				"Retry-After. retry: for another try after a failure. robots: for a robots.txt that could not be read "+
				"yet. other: Redis did not answer.", forHost, forAsked, forRetry, forRobots, other),
		rings: newCounters("trawl_rings_total", "result",
			"Tasks that this worker put into the queue. Of those that failed some may be there; the jobs are rung "+
				"again by a sweep.", "ok", "failed"),
		bytes: counter("trawl_fetched_bytes_total",
			"Bytes of pages that were read, after decompression; robots.txt files and sitemaps not among them."),
		fetch: histogram("trawl_fetch_seconds", "Seconds to fetch and read one URL, a page's or a sitemap's.", fetchBuckets()),
		hostWait: histogram("trawl_host_wait_seconds",
			"Seconds from the lease of a URL to the start that its host granted: what politeness costs. Only of URLs "+
				"that were started; those that were sent back to wait for their host are counted by "+
				"trawl_deferrals_total with for=\"host\".", long),
		commit: histogram("trawl_commit_seconds",
			"Seconds from the end of a fetch until its outcome was recorded, with what the worker does in between: it "+
				"takes content and fields from the page, judges its links and waits for others to send with it. A slow "+
				"Redis, a busy worker or a large page make it long.",
			seconds),
		lease: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trawl_lease_seconds",
			Help: "Seconds from the lease of a URL until its outcome was recorded (also in vain, which is stale), " +
				"or until it was returned without one.",
			Buckets: long,
		}, []string{"outcome"}),
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
	m.recorded, m.returned = m.lease.WithLabelValues(leaseRecorded), m.lease.WithLabelValues(leaseReturned)
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

// sentBack counts an item that was started and has no outcome. When its lease was lost it does not
// go back: whoever has it now began anew, and the work was in vain.
func (m *Metrics) sentBack(p *page, lost bool) {
	outcome := outcomeReleased
	switch {
	case lost:
		outcome = string(store.Stale)
	case p.deferred == forAsked:
		outcome = outcomeAsked
	}
	if p.item.Kind == crawl.ItemSitemap {
		m.sitemaps.add(outcome, 1)
		return
	}
	m.pages.add(outcome, 1)
}

// leaves observes the lease of an item that the slice has no more, with no outcome recorded.
func (m *Metrics) leaves(p *page) { m.since(m.returned, p.since) }

// defers counts an item that is given back and due only later: it waits for what it says, or for
// its host.
func (m *Metrics) defers(p *page, delay time.Duration) {
	switch {
	case delay <= 0:
	case p.deferred != "":
		m.deferrals.add(p.deferred, 1)
	case p.waits == "":
		m.deferrals.add(forHost, 1)
	case p.waits == crawl.WaitingRetry:
		m.deferrals.add(forRetry, 1)
	case p.waits == crawl.WaitingRobots:
		m.deferrals.add(forRobots, 1)
	default:
		m.deferrals.add(other, 1)
	}
}

// settled observes the times of a page whose outcome was recorded now.
func (m *Metrics) settled(p *page, now time.Time) {
	m.recorded.Observe(now.Sub(p.since).Seconds())
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

func (m *Metrics) since(h prometheus.Observer, start time.Time) {
	h.Observe(time.Since(start).Seconds())
}
