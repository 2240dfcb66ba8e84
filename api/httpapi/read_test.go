package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

func TestList(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var first, second page[status]
	b.call("GET", "/v1/jobs?state=running&tag=x&created_after=2024-01-02T03:04:05%2B01:00&limit=2&cursor=", "").decode(t, 200, &first)
	if len(first.Items) != 2 || !first.HasMore || first.NextCursor == nil {
		t.Fatalf("got %+v", first)
	}
	b.call("GET", "/v1/jobs?cursor="+*first.NextCursor, "").decode(t, 200, &second)
	if second.HasMore || second.NextCursor != nil || len(second.Items) != 50 {
		t.Errorf("got %d items, more %v, cursor %v", len(second.Items), second.HasMore, second.NextCursor)
	}
	want := []store.ListQuery{
		{Tenant: "a", State: crawl.Running, Tag: "x", CreatedAfter: time.Date(2024, 1, 2, 2, 4, 5, 0, time.UTC), Limit: 2},
		{Tenant: "a", Before: 2, Limit: 50},
	}
	if d := cmp.Diff(want, b.listed); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if body := b.call("GET", "/v1/jobs?limit=1", "").body; strings.Contains(body, `"spec"`) {
		t.Errorf("a list shows specs: %s", body)
	}
}

// All faults of a query at once, each with parameter and rule.
func TestQueryFaults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.add("a", crawl.Completed).ID
	record := encodeCursor(cursorRecords, 1)
	for _, tt := range []struct {
		target string
		status int
		want   []string
	}{
		{
			"/v1/jobs?state=done&created_after=yesterday&limit=201&status=x", 422,
			[]string{"status:unknown", "state:enum", "created_after:format", "limit:range"},
		},
		{"/v1/jobs?limit=99999999999999999999", 422, []string{"limit:range"}},
		{"/v1/jobs?limit=0", 422, []string{"limit:range"}},
		{"/v1/jobs?limit=ten", 422, []string{"limit:type"}},
		{"/v1/jobs?limit=1&limit=2", 422, []string{"limit:duplicate"}},
		{"/v1/jobs?a=%zz", 422, []string{"query:format"}},
		{"/v1/jobs?cursor=" + record, 400, []string{"cursor:format"}},
		{"/v1/jobs?cursor=x&limit=-1", 400, []string{"cursor:format", "limit:range"}},
		{"/v1/jobs/" + id + "/records?limit=1001", 422, []string{"limit:range"}},
		{"/v1/jobs/" + id + "/errors?cursor=" + record, 400, []string{"cursor:format"}},
		{"/v1/jobs/" + id + "/result?format=xml", 422, []string{"format:enum"}},
		{"/v1/jobs/" + id + "?verbose=1", 422, []string{"verbose:unknown"}},
	} {
		code := crawl.CodeInvalid
		if tt.status == 400 {
			code = crawl.CodeMalformed
		}
		p := b.call("GET", tt.target, "").wantProblem(t, tt.status, code)
		if d := cmp.Diff(tt.want, fieldRules(p)); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.target, d)
		}
	}
}

// A query of a thousand mistakes does not come back whole.
func TestManyQueryFaults(t *testing.T) {
	t.Parallel()
	var query strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&query, "p%d=1&", i)
	}
	p := newBench(t).call("GET", "/v1/jobs?"+query.String()+"limit=x", "").wantProblem(t, 422, crawl.CodeInvalid)
	if len(p.Errors) != maxFaults+2 || p.Errors[maxFaults].Rule != crawl.RuleMoreFaults ||
		!strings.HasPrefix(p.Errors[maxFaults].Message, "900 ") || p.Errors[maxFaults+1].Field != "limit" {
		t.Errorf("%d faults, the last %+v", len(p.Errors), p.Errors[len(p.Errors)-2:])
	}
}

// A store that does not answer costs a client a few seconds and gets it a problem.
func TestHungStore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method, suffix, body string
		took                 time.Duration
	}{
		{"GET", "", "", storeWait},
		{"GET", "/{id}", "", storeWait},
		{"GET", "/{id}/records", "", storeWait},
		{"GET", "/{id}/errors", "", storeWait},
		{"GET", "/{id}/urls", "", storeWait},
		{"GET", "/{id}/result", "", storeWait},
		{"DELETE", "/{id}", "", storeWait},
		{"POST", "", oneURL, storeWait},
		{"POST", "/{id}/cancel", "", cancelWait},
		{"POST", "/{id}/pause", "", pauseWait},
		{"POST", "/{id}/resume", "", storeWait},
		{"POST", "/{id}/retry-failed", "", storeWait},
	} {
		t.Run(tt.method+tt.suffix, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.hangs = true
				ref := b.add("a", crawl.Completed)
				begin := time.Now()
				a := b.call(tt.method, "/v1/jobs"+strings.ReplaceAll(tt.suffix, "{id}", ref.ID), tt.body)
				if took := time.Since(begin); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				a.wantProblem(t, 503, crawl.CodeUnavailable)
			})
		})
	}
}

// HEAD is answered as GET is, without a body.
func TestHead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref, running := b.add("a", crawl.Completed), b.add("a", crawl.Running)
	b.records[ref] = make([]crawl.Page, 3*exportPage)
	var method atomic.Value
	b.page = func(after int64) error {
		if after > 0 && method.Load() == "HEAD" {
			t.Error("a whole job is read for an answer without a body")
		}
		return nil
	}
	start(t, b)
	job := "/v1/jobs/" + ref.ID
	for _, path := range []string{
		"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/docs/swagger-ui.css", "/docs/nope.js", "/nowhere", "/v1/jobs", job,
		job + "/records", job + "/errors", job + "/urls", job + "/result", job + "/result?format=ndjson", job + "/result?format=csv",
		"/v1/jobs/" + running.ID + "/result",
	} {
		got := map[string]string{}
		for _, m := range readMethods {
			method.Store(m)
			res, err := send(t, b, m, path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || m == "HEAD" && len(body) > 0 || m == "GET" && len(body) == 0 {
				t.Errorf("%s %s: %d bytes, %v", m, path, len(body), err)
			}
			got[m] = fmt.Sprint(res.StatusCode, res.Header["Content-Type"], res.Header["Content-Disposition"])
		}
		if got["HEAD"] != got["GET"] {
			t.Errorf("%s: %s, of GET %s", path, got["HEAD"], got["GET"])
		}
	}
	for _, line := range strings.Split(b.logs.String(), "\n") {
		if strings.Contains(line, `"level":"ERROR"`) {
			t.Errorf("logged: %s", line)
		}
	}
}

func TestRecordsAndErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Running)
	for i := range int64(3) {
		b.records[ref] = append(b.records[ref], crawl.Page{Seq: i + 1, SourceURL: fmt.Sprint("s", i), DiscoveredOn: strings.Repeat("d", int(i))})
		b.failures[ref] = append(b.failures[ref], crawl.Failure{SourceURL: fmt.Sprint("s", i), Status: 404 * int(i)})
	}
	for _, list := range []string{"/records", "/errors"} {
		at := "/v1/jobs/" + ref.ID + list
		var got page[map[string]any]
		b.call("GET", at+"?limit=2", "").decode(t, 200, &got)
		if len(got.Items) != 2 || !got.HasMore || got.NextCursor == nil {
			t.Fatalf("%s: %+v", list, got)
		}
		if got.Items[0]["discovered_on"] != nil {
			t.Errorf("%s: an input was discovered on %v", list, got.Items[0]["discovered_on"])
		}
		cursor := *got.NextCursor
		got = page[map[string]any]{}
		b.call("GET", at+"?cursor="+cursor, "").decode(t, 200, &got)
		if len(got.Items) != 1 || got.HasMore || got.NextCursor == nil || got.Items[0]["source_url"] != "s2" {
			t.Errorf("%s: while the job runs there is a way to go on: %+v", list, got)
		}
		end := *got.NextCursor
		got = page[map[string]any]{}
		b.call("GET", at+"?cursor="+end, "").decode(t, 200, &got)
		if len(got.Items) != 0 || got.NextCursor == nil || *got.NextCursor != end {
			t.Errorf("%s: at the end of what is there: %+v", list, got)
		}
		if first, again := b.call("GET", at+"?limit=2", "").body, b.call("GET", at+"?limit=2", "").body; first != again {
			t.Errorf("%s: a repeated read differs", list)
		}
	}
	b.jobs[ref] = crawl.Job{ID: ref.ID, State: crawl.Completed}
	var got page[failure]
	b.call("GET", "/v1/jobs/"+ref.ID+"/errors", "").decode(t, 200, &got)
	if got.NextCursor != nil || got.HasMore || got.Items[0].Status != nil || *got.Items[1].Status != 404 {
		t.Errorf("after the end: %+v", got)
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.CompletedWithErrors)
	const n = 2*exportPage + 1
	for i := range int64(n) {
		b.records[ref] = append(b.records[ref], crawl.Page{Seq: i + 1, Title: "<a&b>\u2028"})
		b.failures[ref] = append(b.failures[ref], crawl.Failure{SourceURL: fmt.Sprint(i)})
	}
	a := b.call("GET", "/v1/jobs/"+ref.ID+"/result", "")
	var doc struct {
		JobID   string    `json:"job_id"`
		State   string    `json:"state"`
		Records []record  `json:"records"`
		Errors  []failure `json:"errors"`
	}
	a.decode(t, 200, &doc)
	if doc.JobID != ref.ID || doc.State != "completed_with_errors" || len(doc.Records) != n || len(doc.Errors) != n ||
		doc.Records[n-1].Seq != n || doc.Records[0].Title != "<a&b>\u2028" || doc.Errors[n-1].SourceURL != fmt.Sprint(n-1) {
		t.Errorf("the document is not whole: %d records, %d errors", len(doc.Records), len(doc.Errors))
	}
	if err := decodeStrict([]byte(a.body), &struct {
		Records any `json:"records"`
	}{}); strings.Contains(fmt.Sprint(err), "more than once") {
		t.Error("the document has a name twice")
	}
	if got := a.header.Get("Content-Disposition"); got != `attachment; filename="`+ref.ID+`.json"` {
		t.Errorf("Content-Disposition %s", got)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %s", got)
	}

	a = b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=ndjson", "")
	lines := strings.Split(strings.TrimSuffix(a.body, "\n"), "\n")
	if len(lines) != n || a.header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d lines, %v", len(lines), a.header)
	}
	for i, line := range lines {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Seq != int64(i+1) {
			t.Fatalf("line %d: %v in %q", i, err, line)
		}
	}

	empty := b.add("a", crawl.Cancelled)
	if a := b.call("GET", "/v1/jobs/"+empty.ID+"/result", ""); !strings.HasSuffix(a.body, "\"records\":[],\"errors\":[]}\n") {
		t.Errorf("without records: %s", a.body)
	}
	running := b.add("a", crawl.Cancelling)
	if p := b.call("GET", "/v1/jobs/"+running.ID+"/result", "").wantProblem(t, 409, crawl.CodeJobNotTerminal); p.JobID != running.ID {
		t.Errorf("the problem names %q", p.JobID)
	}
}

// A download that fails on the way breaks off: what its reader has is no document.
func TestResultBreaksOff(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	b.records[ref] = make([]crawl.Page, 2*exportPage)
	b.page = func(after int64) error {
		if after > 0 {
			return errBroken
		}
		return nil
	}
	start(t, b)
	res, err := get(t, b, "/v1/jobs/"+ref.ID+"/result")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if body, err := io.ReadAll(res.Body); err == nil || json.Valid(body) || bytes.Contains(body, []byte("secret")) {
		t.Errorf("read %d bytes, error %v", len(body), err)
	}
	// The entry is written before the connection breaks.
	if logs := b.logs.String(); !strings.Contains(logs, "secret detail") || !strings.Contains(logs, `"aborted":true`) {
		t.Errorf("the cause is not logged: %s", logs)
	}
}

// A client that hangs up in a download is no error of the service.
func TestClientHangsUpInADownload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	b.records[ref] = make([]crawl.Page, 2*exportPage)
	ctx, hangUp := context.WithCancel(t.Context())
	b.page = func(after int64) error {
		if after > 0 {
			hangUp()
			return ctx.Err()
		}
		return nil
	}
	func() {
		defer func() {
			if r := recover(); r != http.ErrAbortHandler { //nolint:errorlint // what net/http looks for
				t.Errorf("panic %v", r)
			}
		}()
		b.call("GET", "/v1/jobs/"+ref.ID+"/result", "", func(r *http.Request) { *r = *r.WithContext(ctx) })
	}()
	logs := b.logs.String()
	if !strings.Contains(logs, `"level":"INFO"`) || !strings.Contains(logs, `"status":499`) ||
		strings.Contains(logs, `"code"`) || strings.Contains(logs, "ERROR") {
		t.Errorf("logged: %s", logs)
	}
	if !b.counts(`trawl_http_requests_total{method="GET",route="/v1/jobs/:id/result",status="499"} 1`) {
		t.Error("it is not counted")
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ended, running := b.add("a", crawl.Failed), b.add("a", crawl.Running)
	if a := b.call("DELETE", "/v1/jobs/"+ended.ID, ""); a.status != 204 || a.body != "" {
		t.Errorf("%d %q", a.status, a.body)
	}
	b.call("DELETE", "/v1/jobs/"+ended.ID, "").wantProblem(t, 404, crawl.CodeNotFound)
	b.call("DELETE", "/v1/jobs/"+running.ID, "").wantProblem(t, 409, crawl.CodeJobNotTerminal)
}

// Cancel waits for the end, asks again when the grace is over, and answers the
// state that the job really has.
func TestCancel(t *testing.T) {
	t.Parallel()
	next := crawl.Ring{JobRef: crawl.JobRef{Tenant: "a", ID: crawl.NewJobID("a", "next")}}
	for _, tt := range []struct {
		name    string
		state   crawl.State
		endsAt  time.Duration // by a worker; 0 for never
		want    crawl.State
		took    time.Duration
		cancels int
		rings   int
	}{
		{"queued", crawl.Queued, -1, crawl.Cancelled, 0, 1, 1},
		{"ended before", crawl.Completed, -2, crawl.Completed, 0, 1, 0},
		{"given back", crawl.Running, 250 * time.Millisecond, crawl.Cancelled, 300 * time.Millisecond, 1, 0},
		{"revoked", crawl.Running, 0, crawl.Cancelled, 4 * time.Second, 2, 1},
		{"store says now for ever", crawl.Paused, -3, crawl.Cancelling, 10 * time.Second, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				ref := b.add("a", tt.state)
				begin := time.Now()
				set := func(s crawl.State) { b.jobs[ref] = crawl.Job{ID: ref.ID, State: s} }
				b.cancel = func(_ crawl.JobRef, n int) (store.CancelResult, error) {
					switch {
					case tt.endsAt == -2:
						return store.CancelResult{State: tt.state}, nil
					case tt.endsAt == -1 || n > 1 && tt.endsAt == 0:
						set(crawl.Cancelled)
						return store.CancelResult{State: crawl.Cancelled, Rings: []crawl.Ring{next}}, nil
					case tt.endsAt == -3:
						set(crawl.Cancelling)
						return store.CancelResult{State: crawl.Cancelling}, nil
					}
					set(crawl.Cancelling)
					return store.CancelResult{State: crawl.Cancelling, GraceLeft: 4 * time.Second}, nil
				}
				b.read = func(_ crawl.JobRef, j *crawl.Job) {
					if tt.endsAt > 0 && time.Since(begin) >= tt.endsAt {
						j.State = crawl.Cancelled
					}
				}
				var got status
				b.call("POST", "/v1/jobs/"+ref.ID+"/cancel", "").decode(t, 200, &got)
				if got.State != tt.want {
					t.Errorf("state %s, want %s", got.State, tt.want)
				}
				if took := time.Since(begin).Round(cancelPoll); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if tt.cancels > 0 && b.cancels != tt.cancels || b.cancels > int(cancelWait/cancelPoll)+1 || len(b.rings) != tt.rings {
					t.Errorf("asked %d times, rang %d times; want %d and %d", b.cancels, len(b.rings), tt.cancels, tt.rings)
				}
			})
		})
	}
}

func TestCancelEndsWithItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := b.add("a", crawl.Cancelling)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		b.call("POST", "/v1/jobs/"+ref.ID+"/cancel", "", func(r *http.Request) { *r = *r.WithContext(ctx) })
		if took := time.Since(begin); took != time.Second {
			t.Errorf("it went on for %v", took)
		}
	})
}

// The limit on reading a request does not cut what is written after it.
func TestDownloadOutlivesTheReadTimeout(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	b.records[ref] = make([]crawl.Page, 3*exportPage)
	b.server.http.ReadTimeout = 500 * time.Millisecond
	timer := time.NewTimer(1200 * time.Millisecond)
	b.page = func(after int64) error {
		if after > 0 {
			<-timer.C
			b.page = nil // the other pages come at once
		}
		return nil
	}
	start(t, b)
	res, err := get(t, b, "/v1/jobs/"+ref.ID+"/result?format=ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil || bytes.Count(body, []byte("\n")) != 3*exportPage {
		t.Errorf("read %d records, error %v", bytes.Count(body, []byte("\n")), err)
	}
}
