package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/trawl/pkg/crawl"
)

// Outcomes of a submission.
const (
	outcomeCreated  = "created"
	outcomeReplayed = "replayed"
	outcomeRefused  = "refused"
)

type metrics struct {
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	inFlight    prometheus.Gauge
	submissions *prometheus.CounterVec
	ringsFailed prometheus.Counter
}

// newMetrics registers the metrics of one server. Their labels come from fixed
// sets (route patterns, known methods, statuses, codes), never from a request.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trawl_http_requests_total", Help: "Requests that were answered, by route pattern and status.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "trawl_http_request_duration_seconds",
			Help: "Time from the header of a request to the end of its answer.",
			// A submission takes under 1 ms, a cancel up to 10 s.
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 2.5, 10, 30},
		}, []string{"method", "route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "trawl_http_requests_in_flight", Help: "Requests that are being answered.",
		}),
		submissions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "trawl_submissions_total",
			Help: "Submissions of jobs: created, replayed, or refused with the code of the fault.",
		}, []string{"outcome", "code"}),
		ringsFailed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "trawl_api_rings_failed_total",
			Help: "Rings that the queue refused; the jobs are rung again by a sweep.",
		}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.inFlight, m.submissions, m.ringsFailed} {
		errs = append(errs, r.Register(c))
	}
	m.begin()
	return m, errors.Join(errs...)
}

// submitCodes are what a submission can be refused with, once it is known whose it is.
var submitCodes = []crawl.Code{
	crawl.CodeMalformed, crawl.CodeKeyReused, crawl.CodeExpired, crawl.CodeBodyTooLarge, codeUnsupportedMediaType,
	crawl.CodeSourceNotAllowed, crawl.CodeQuotaExceeded, crawl.CodeRateLimited, crawl.CodeOverloaded,
}

// retryCodes are what another try of failed URLs can be refused with.
var retryCodes = []crawl.Code{
	crawl.CodeMalformed, crawl.CodeNotFound, crawl.CodeKeyReused, crawl.CodeJobNotTerminal, crawl.CodeWrongState,
	crawl.CodeExpired, crawl.CodeSourceNotAllowed, crawl.CodeQuotaExceeded, crawl.CodeRateLimited, crawl.CodeOverloaded,
}

// begin makes the series of submissions that alerts look at, at 0: increase() and rate() do not see
// the first event of a series that begins with it.
func (m *metrics) begin() {
	const method, route = http.MethodPost, pathJobs
	for _, status := range []int{
		http.StatusAccepted, http.StatusUnprocessableEntity, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusServiceUnavailable,
	} {
		m.requests.WithLabelValues(method, route, strconv.Itoa(status))
	}
	m.duration.WithLabelValues(method, route)
	for _, outcome := range []string{outcomeCreated, outcomeReplayed} {
		m.submissions.WithLabelValues(outcome, "")
	}
	for _, code := range slices.Concat(submitCodes, retryCodes, everyCode) {
		if code != crawl.CodeUnauthenticated {
			m.submissions.WithLabelValues(outcomeRefused, string(code))
		}
	}
}

// submitOperations are the routes that make jobs.
var submitOperations = []string{"submit-job", "extract", "retry-failed"}

// refusedUnread counts what an operation that submits refuses before it looks at the body. Who is
// not known submits nothing; nor, as far as anybody knows, does who hung up.
func (m *metrics) refusedUnread(operation string, x *exchange, err error) {
	code := crawl.CodeOf(err)
	if !slices.Contains(submitOperations, operation) || code == crawl.CodeUnauthenticated ||
		x.c.Request.Context().Err() != nil {
		return
	}
	m.submitted(outcomeRefused, code)
}

func (m *metrics) answered(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(method, route).Observe(took.Seconds())
}

func (m *metrics) submitted(outcome string, code crawl.Code) {
	m.submissions.WithLabelValues(outcome, string(code)).Inc()
}
