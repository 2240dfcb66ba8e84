package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
)

// series are those of /metrics that begin with a name, without their values.
func (b *bench) series(name string) []string {
	var all []string
	for line := range strings.Lines(b.call("GET", "/metrics", "").body) {
		if s, _, ok := strings.Cut(line, "} "); ok && strings.HasPrefix(s, name+"{") {
			all = append(all, s+"}")
		}
	}
	return all
}

// The first events are seen as an increase: their series are there before them, and no submission
// makes another.
func TestSubmissionSeriesAreThere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, line := range []string{
		`trawl_submissions_total{code="",outcome="created"} 0`,
		`trawl_submissions_total{code="",outcome="replayed"} 0`,
		`trawl_submissions_total{code="unavailable",outcome="refused"} 0`,
		`trawl_submissions_total{code="overloaded",outcome="refused"} 0`,
		`trawl_submissions_total{code="internal",outcome="refused"} 0`,
		`trawl_submissions_total{code="quota_exceeded",outcome="refused"} 0`,
		`trawl_http_requests_total{method="POST",route="/v1/jobs",status="202"} 0`,
		`trawl_http_requests_total{method="POST",route="/v1/jobs",status="422"} 0`,
		`trawl_http_requests_total{method="POST",route="/v1/jobs",status="429"} 0`,
		`trawl_http_requests_total{method="POST",route="/v1/jobs",status="500"} 0`,
		`trawl_http_requests_total{method="POST",route="/v1/jobs",status="503"} 0`,
		`trawl_http_request_duration_seconds_count{method="POST",route="/v1/jobs"} 0`,
	} {
		if !b.counts(line) {
			t.Errorf("/metrics does not begin with %s", line)
		}
	}
	before := b.series("trawl_submissions_total")
	codes := map[crawl.Code]bool{}
	for _, code := range slices.Concat(submitCodes, retryCodes, everyCode) {
		codes[code] = code != crawl.CodeUnauthenticated
	}
	if want := 2 + len(codes) - 1; len(before) != want {
		t.Errorf("%d series, want %d", len(before), want)
	}
	key := header("Idempotency-Key", "k")
	b.call("POST", pathJobs, oneURL, key)
	b.call("POST", pathJobs, oneURL, key)
	b.call("POST", pathJobs, `{"urls":["http://site.test/other"]}`, key)
	b.call("POST", pathJobs, "{")
	b.call("POST", pathJobs, "{}")
	b.call("POST", pathJobs, oneURL, header("Content-Type", "text/plain"))
	b.call("POST", pathJobs, oneURL, header("Authorization"))
	for code := range statuses {
		if slices.Contains(slices.Concat(submitCodes, everyCode), code) && code != crawl.CodeUnauthenticated {
			b.err = &crawl.Fault{Code: code}
			b.call("POST", pathJobs, oneURL)
		}
	}
	b.err = nil
	if after := b.series("trawl_submissions_total"); !slices.Equal(after, before) {
		t.Errorf("the series are now %q", after)
	}
}

// A submission that is refused before anybody looks at it is one that was refused.
func TestRefusedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	tenants := newFakeTenants()
	b := newBenchWith(t, func(o *Options) { o.Tenants, o.AdminKey = tenants, adminKey })
	refused := func(code crawl.Code) string {
		return `trawl_submissions_total{code="` + string(code) + `",outcome="refused"}`
	}
	tenants.err["Authenticate"] = &crawl.Fault{Code: crawl.CodeUnavailable, Message: "down"}
	for _, path := range []string{pathJobs, "/v1/extract", pathJobs + "/" + crawl.NewJobID("a", "") + "/retry-failed"} {
		b.call("POST", path, oneURL, with("trawl_unknown")).wantProblem(t, 503, crawl.CodeUnavailable)
	}
	b.call("GET", pathJobs, "", with("trawl_unknown")).wantProblem(t, 503, crawl.CodeUnavailable)
	if !b.counts(refused(crawl.CodeUnavailable) + " 3") {
		t.Error("what is refused because nobody can look up who calls is not counted as three submissions")
	}
	tenants.err["Authenticate"] = nil
	b.call("POST", pathJobs, oneURL, with("nobody's")).wantProblem(t, 401, crawl.CodeUnauthenticated)
	if slices.ContainsFunc(b.series("trawl_submissions_total"), func(s string) bool { return strings.Contains(s, "unauth") }) {
		t.Error("what nobody submits is counted")
	}
	b.call("POST", pathJobs+"?x=1", oneURL).wantProblem(t, 422, crawl.CodeInvalid)
	if !b.counts(refused(crawl.CodeInvalid) + " 1") {
		t.Error("a submission with a parameter is not counted")
	}
}

// A defect of the service is an error in its log; what passes by itself is a warning.
func TestLevelOfRequests(t *testing.T) {
	t.Parallel()
	for code, want := range map[crawl.Code]string{
		crawl.CodeUnavailable: "WARN", crawl.CodeOverloaded: "WARN", crawl.CodeInternal: "ERROR",
		crawl.CodeQuotaExceeded: "INFO",
	} {
		b := newBench(t)
		b.err = &crawl.Fault{Code: code}
		if a := b.call("POST", pathJobs, oneURL); a.status == http.StatusAccepted {
			t.Fatalf("%s is taken", code)
		}
		var e struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(b.logs.String()), &e); err != nil || e.Msg != "request" || e.Level != want {
			t.Errorf("%s is logged as %s, want %s: %v", code, b.logs, want, err)
		}
	}
}
