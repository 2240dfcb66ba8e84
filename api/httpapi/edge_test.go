package httpapi

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// Without a valid key nothing is read, stored or told apart.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, edit := range map[string]func(*http.Request){
		"none":      header("Authorization"),
		"wrong":     header("Authorization", "Bearer "+keyA+"x"),
		"prefix":    header("Authorization", "Bearer "+keyA[:len(keyA)-1]),
		"empty":     header("Authorization", "Bearer "),
		"basic":     header("Authorization", "Basic "+keyA),
		"two":       header("X-API-Key", keyB),
		"tenant id": func(r *http.Request) { r.Header = http.Header{"X-Tenant-Id": {"a"}} },
	} {
		for _, route := range [][2]string{{"POST", "/v1/jobs"}, {"GET", "/v1/jobs"}, {"GET", "/v1/jobs/x"}, {"DELETE", "/v1/jobs/x"}} {
			a := b.call(route[0], route[1], "", edit)
			a.wantProblem(t, 401, crawl.CodeUnauthenticated)
			if a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no WWW-Authenticate", name)
			}
		}
	}
	if a := b.call("GET", "/v1/jobs", "", header("Authorization"), header("X-API-Key", keyB)); a.status != 200 || b.listed[0].Tenant != "b" {
		t.Errorf("X-API-Key: %d %s, listed %+v", a.status, a.body, b.listed)
	}
	if strings.Contains(b.logs.String(), "key-of-tenant") {
		t.Error("a key is logged")
	}
}

// SEC-10: whatever stands where an id is expected, and another tenant's id, get
// the same body, and only ids reach the store, under the caller's tenant.
func TestIdsSEC10(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	others := b.add("b", crawl.Completed)
	bodies := map[string][]string{}
	for _, id := range []string{
		others.ID, "../../etc/passwd", "..%2f..%2f", "../", "%2e%2e/", others.ID + "\x00", others.ID + "/../other", "*", "b:" + others.ID,
		"{b}:" + others.ID, strings.Repeat("a", 10000), strings.ToUpper(others.ID), "{" + others.ID + "}",
		"6BA7B810-9DAD-11D1-80B4-00C04FD430C8", " " + others.ID, others.ID + " ", others.ID + "\n", "j", "\u202e" + others.ID, "..",
	} {
		for _, route := range []struct{ method, suffix string }{
			{"GET", ""},
			{"GET", "/records"},
			{"GET", "/errors"},
			{"GET", "/result"},
			{"POST", "/cancel"},
			{"DELETE", ""},
			{"POST", "/pause"},
			{"POST", "/resume"},
			{"POST", "/retry-failed"},
		} {
			a := b.call(route.method, "/v1/jobs/"+id+route.suffix, "")
			if a.status == 405 {
				continue // the id was a path to another route, which has not this method
			}
			p := a.wantProblem(t, 404, crawl.CodeNotFound)
			bodies[strings.ReplaceAll(a.body, p.RequestID, "")] = append(bodies[id], id)
		}
	}
	if len(bodies) != 1 {
		t.Errorf("different bodies: %q", sorted(bodies))
	}
	for _, ref := range b.asked {
		if ref.Tenant != "a" || !crawl.ValidJobID(ref.ID) {
			t.Errorf("the store was asked for %q", ref)
		}
	}
	if len(b.asked) == 0 {
		t.Error("the store was not asked for the other tenant's id")
	}
	for _, cursor := range []string{"../../x", "*", "%00", "{b}:x", strings.Repeat("A", 10000)} {
		b.call("GET", "/v1/jobs?cursor="+cursor, "").wantProblem(t, 400, crawl.CodeMalformed)
	}
	if a := b.call("GET", "/v1/jobs/"+others.ID, "", header("X-Tenant-ID", "b")); a.status != 404 {
		t.Errorf("a header names the tenant: %d", a.status)
	}
}

// SEC-07: nothing that a client sends makes a log entry of its own, or puts a
// control character or a credential into one.
func TestLogsSEC07(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := crawl.NewJobID("a", "k")
	for _, edit := range []func(*http.Request){
		header("X-Request-ID", "a\r\nlevel=error"), header("X-Request-ID", "\x1b[31m"), header("X-Request-ID", strings.Repeat("x", 129)),
		header("User-Agent", "Bot\r\nX-Evil: 1"), header("X-Tenant-ID", `"a"`), header("Idempotency-Key", "k\tlevel=error"),
		func(r *http.Request) { r.Method = "EVIL\u2028" },
		func(r *http.Request) { r.URL.Path = "/v1/jobs/\x1b[31m" },
		func(r *http.Request) { r.URL.Path = "/x\r\nSet-Cookie:a=b" },
		func(r *http.Request) { r.URL.RawQuery = "state=\x1b[31m&%0d%0a=1" },
		func(r *http.Request) { r.URL.Path = "/v1/jobs/" + id },
	} {
		a := b.call("GET", "/v1/jobs", "", edit)
		for name, values := range a.header {
			for _, v := range values {
				if strings.ContainsFunc(v, unicode.IsControl) {
					t.Errorf("header %s: %q", name, v)
				}
			}
		}
	}
	for _, body := range []string{
		`{"urls":["http://me:sekret@site.test/"]}`, `{"urls":["http://site.test/\r\nHost: other.test"]}`, `{"\u001b[31m":1}`,
		`{"tags":["\u2028level=error"],"seed_url":"http://site.test/"}`,
	} {
		b.call("POST", "/v1/jobs", body)
	}
	b.err = fmt.Errorf("get http://me:sekret@site.test/\r\nlevel=error \x1b[31m\u009b")
	b.call("GET", "/v1/jobs", "").wantProblem(t, 500, crawl.CodeInternal)

	lines := strings.Split(strings.TrimSuffix(b.logs.String(), "\n"), "\n")
	if len(lines) < 16 {
		t.Fatalf("only %d log entries", len(lines))
	}
	var named bool
	for _, line := range lines {
		var entry struct {
			Msg       string
			RequestID string `json:"request_id"`
			JobID     string `json:"job_id"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg != "request" || entry.RequestID == "" {
			t.Errorf("no entry of ours: %q: %v", line, err)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' }) ||
			strings.Contains(line, "sekret") || strings.Contains(line, "Evil") {
			t.Errorf("forged or careless: %q", line)
		}
		named = named || entry.JobID == id
	}
	if !named {
		t.Error("a valid job id is not logged")
	}
	if a := b.call("GET", "/healthz", "", header("X-Request-ID", "trace-1.a_B")); a.header.Get("X-Request-ID") != "trace-1.a_B" {
		t.Errorf("a sane request id is replaced by %q", a.header.Get("X-Request-ID"))
	}
}

// Every code is answered with its status, and no cause leaves the service.
func TestFaultsBecomeProblems(t *testing.T) {
	t.Parallel()
	expired := time.Date(2024, 5, 6, 9, 8, 9, 999, time.FixedZone("", 7200))
	for _, tt := range []struct {
		name   string
		err    error
		status int
		code   crawl.Code
		retry  string
	}{
		{"unavailable", &crawl.Fault{Code: crawl.CodeUnavailable, Message: "m", Err: errBroken}, 503, crawl.CodeUnavailable, "2"},
		{"overloaded", &crawl.Fault{Code: crawl.CodeOverloaded, Message: "m", RetryAfter: 1500 * time.Millisecond}, 503, crawl.CodeOverloaded, "2"},
		{"quota", &crawl.Fault{Code: crawl.CodeQuotaExceeded, Message: "m", RetryAfter: time.Minute}, 429, crawl.CodeQuotaExceeded, "60"},
		{"expired", &crawl.Fault{Code: crawl.CodeExpired, Message: "m", At: expired}, 410, crawl.CodeExpired, ""},
		{"wrapped", fmt.Errorf("internal: %w", crawl.Faultf(crawl.CodeWrongState, "m")), 409, crawl.CodeWrongState, ""},
		{"not a fault", errBroken, 500, crawl.CodeInternal, ""},
		{"internal", &crawl.Fault{Code: crawl.CodeInternal, Message: "secret detail"}, 500, crawl.CodeInternal, ""},
		{"of a page", &crawl.Fault{Code: crawl.CodeDNS, Message: "secret detail"}, 500, crawl.CodeInternal, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.err = tt.err
			a := b.call("POST", "/v1/jobs", oneURL)
			p := a.wantProblem(t, tt.status, tt.code)
			if got := a.header.Get("Retry-After"); got != tt.retry {
				t.Errorf("Retry-After %q, want %q", got, tt.retry)
			}
			if strings.Contains(a.body, "secret") || strings.Contains(a.body, "10.1.2.3") {
				t.Errorf("internal text: %s", a.body)
			}
			if (tt.code == crawl.CodeExpired) != (p.ExpiredAt != nil && *p.ExpiredAt == "2024-05-06T07:08:09.000Z") {
				t.Errorf("expired_at in %s", a.body)
			}
			if tt.status >= 500 && !strings.Contains(b.logs.String(), `"err":"`) {
				t.Errorf("the cause is not logged: %s", b.logs)
			}
			if !b.counts(fmt.Sprintf(`trawl_submissions_total{code="%s",outcome="refused"} 1`, crawl.CodeOf(tt.err))) {
				t.Error("the refusal is not counted")
			}
		})
	}
}

// Every code that pkg/crawl declares for the HTTP contract has its status here.
func TestEveryContractCodeHasAStatus(t *testing.T) {
	t.Parallel()
	contract := map[crawl.Code]int{
		"malformed": 400, "unauthenticated": 401, "not_found": 404, "idempotency_key_reused": 409, "job_not_terminal": 409,
		"wrong_state": 409, "expired": 410, "body_too_large": 413, "invalid": 422, "source_not_allowed": 422, "rate_limited": 429,
		"quota_exceeded": 429, "unavailable": 503, "overloaded": 503, "internal": 500, "method_not_allowed": 405, "unsupported_media_type": 415,
		"tenant_exists": 409, "cross_origin": 403,
	}
	if d := cmp.Diff(contract, statuses); d != "" {
		t.Errorf("-contract +table:\n%s", d)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "pkg", "crawl", "fault.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, decl := range file.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST || !strings.Contains(g.Doc.Text(), "HTTP contract") {
			continue
		}
		for _, s := range g.Specs {
			for _, v := range s.(*ast.ValueSpec).Values {
				code := crawl.Code(strings.Trim(v.(*ast.BasicLit).Value, `"`))
				found++
				if statuses[code] == 0 {
					t.Errorf("%s is of the contract and has no status", code)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d codes found: the file has changed", found)
	}
}

func TestRoutesOutsideTheAPI(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	none := header("Authorization")
	b.call("GET", "/nowhere", "", none).wantProblem(t, 404, crawl.CodeNotFound)
	b.call("GET", "/v1/jobs/", "", none).wantProblem(t, 404, crawl.CodeNotFound)
	b.call("GET", "/v1/jobs/preview", "").wantProblem(t, 404, crawl.CodeNotFound)
	for _, path := range []string{"/v1/jobs/nothing", "/v1/jobs/preview/records"} { // no job has such an id
		for _, method := range []string{"GET", "POST", "PUT"} {
			if a := b.call(method, path, ""); a.header.Get("Allow") != "" {
				t.Errorf("%s %s: Allow: %s", method, path, a.header.Get("Allow"))
			} else {
				a.wantProblem(t, 404, crawl.CodeNotFound)
			}
		}
	}
	b.call("POST", "/v1/jobs/"+crawl.NewJobID("a", "k"), "", none).wantProblem(t, 405, codeMethodNotAllowed)
	a := b.call("PUT", "/v1/jobs", "", none)
	a.wantProblem(t, 405, codeMethodNotAllowed)
	if allow := a.header.Get("Allow"); !strings.Contains(allow, "GET") || !strings.Contains(allow, "POST") {
		t.Errorf("Allow: %q", allow)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		for _, method := range []string{"GET", "HEAD"} {
			if a := b.call(method, path, "", none); a.status != 200 || a.header.Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s %s: %d %v", method, path, a.status, a.header)
			}
		}
	}
	b.call("POST", "/v1/jobs", oneURL, header("Idempotency-Key", "k"))
	b.call("POST", "/v1/jobs", oneURL, header("Idempotency-Key", "k"))
	b.call("POST", "/v1/jobs", "{")
	metrics := b.call("GET", "/metrics", "", none).body
	for _, want := range []string{
		`trawl_http_requests_total{method="POST",route="/v1/jobs",status="202"} 2`,
		`trawl_http_requests_total{method="GET",route="unmatched",status="404"} 2`,
		`trawl_submissions_total{code="",outcome="created"} 1`, `trawl_submissions_total{code="",outcome="replayed"} 1`,
		`trawl_submissions_total{code="malformed",outcome="refused"} 1`, "go_goroutines ", "trawl_http_requests_in_flight 1",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics have no %s", want)
		}
	}

	b.err = &crawl.Fault{Code: crawl.CodeOverloaded, Message: "Redis has no memory left."}
	p := b.call("GET", "/readyz", "", none).wantProblem(t, 503, crawl.CodeOverloaded)
	if p.Detail != "Redis has no memory left." || !slices.Equal(p.Failing, []string{"redis_memory"}) {
		t.Errorf("readiness says %q of %q", p.Detail, p.Failing)
	}
	b.err = errBroken
	if a := b.call("GET", "/readyz", "", none); strings.Contains(a.body, "secret") {
		t.Errorf("readiness says %s", a.body)
	} else if p := a.wantProblem(t, 503, crawl.CodeUnavailable); !slices.Equal(p.Failing, []string{"redis"}) {
		t.Errorf("readiness says %s", a.body)
	}
	if a := b.call("GET", "/healthz", "", none); a.status != 200 {
		t.Error("an unready process is not alive")
	}
}

func TestPanicBecomesAProblem(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.read = func(crawl.JobRef, *crawl.Job) { panic("secret detail") }
	ref := b.add("a", crawl.Running)
	a := b.call("GET", "/v1/jobs/"+ref.ID, "")
	a.wantProblem(t, 500, crawl.CodeInternal)
	if strings.Contains(a.body, "secret") || !strings.Contains(b.logs.String(), "fake_test.go") {
		t.Errorf("body %s, log %s", a.body, b.logs)
	}
}
