package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// ended puts a job of tenant a into the fake that ended with n failed URLs, and returns its path.
func (b *bench) ended(n int, plan crawl.Plan) (ref crawl.JobRef, path string) {
	ref = b.add("a", crawl.CompletedWithErrors)
	for i := range n {
		b.failures[ref] = append(b.failures[ref], crawl.Failure{SourceURL: fmt.Sprintf("https://site.test/%d", i)})
	}
	j := b.jobs[ref]
	j.Total, j.Failed, j.Processed = int64(n), int64(n), int64(n)
	b.jobs[ref], b.plans[ref] = j, plan
	return ref, "/v1/jobs/" + ref.ID + "/retry-failed"
}

func inputsOf(n *store.NewJob) []string {
	urls := make([]string, len(n.Inputs))
	for i, in := range n.Inputs {
		urls[i] = in.URL.String()
	}
	return urls
}

// All that failed is tried again, in order and once, in as many jobs as that takes: one job has no
// more URLs than a submission may, and no more bytes of them.
func TestRetryFailed(t *testing.T) {
	t.Parallel()
	long := func(i int) string { return fmt.Sprintf("https://site.test/%d/%s", i, strings.Repeat("x", 8000)) }
	for _, tt := range []struct {
		name string
		n    int
		most int64 // URLs of a job; 0 for the default
		url  func(int) string
		jobs []int
	}{
		{"one", 1, 0, nil, []int{1}},
		{"a page of errors", 1000, 0, nil, []int{1000}},
		{"more than a page", 1001, 0, nil, []int{1001}},
		{"as many as a job may have", 10_000, 0, nil, []int{10_000}},
		{"one more", 10_001, 0, nil, []int{10_000, 1}},
		{"of a tenant with less", 7, 3, nil, []int{3, 3, 1}},
		{"more bytes than a body may have", 300, 0, long, []int{261, 39}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.server.o.Limits.MaxURLs = tt.most
			ref, path := b.ended(tt.n, crawl.Plan{})
			var want, got []string
			for i := range b.failures[ref] {
				if tt.url != nil {
					b.failures[ref][i].SourceURL = tt.url(i)
				}
				want = append(want, b.failures[ref][i].SourceURL)
			}
			before := b.jobs[ref]
			cursor := ""
			for i, size := range tt.jobs {
				var s retried
				a := b.call("POST", path+cursor, "")
				a.decode(t, 202, &s)
				n := b.created[i]
				if len(n.Inputs) != size || s.Total != int64(size) || n.Plan.MaxPages != int64(size) || n.Plan.Site {
					t.Errorf("job %d has %d URLs, total %d, %+v; want %d", i, len(n.Inputs), s.Total, n.Plan, size)
				}
				if s.RetryOf == nil || *s.RetryOf != ref.ID || n.RetryOf != ref.ID || s.JobID == ref.ID || a.header.Get("Location") != "/v1/jobs/"+s.JobID {
					t.Errorf("job %d: retry of %v, at %s", i, s.RetryOf, a.header.Get("Location"))
				}
				if last := i == len(tt.jobs)-1; (s.RetryNextCursor == nil) != last {
					t.Fatalf("job %d: the next begins at %v", i, s.RetryNextCursor)
				} else if !last {
					cursor = "?cursor=" + *s.RetryNextCursor
				}
				got = append(got, inputsOf(&n)...)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-failed +tried:\n%.1000s", d)
			}
			if d := cmp.Diff(before, b.jobs[ref]); d != "" {
				t.Errorf("the old job changed: %s", d)
			}
			if len(b.rings) != len(tt.jobs) || !b.counts(fmt.Sprintf(`trawl_submissions_total{code="",outcome="created"} %d`, len(tt.jobs))) {
				t.Errorf("rung %d times for %d jobs, or these are not counted", len(b.rings), len(tt.jobs))
			}
			if logs := b.logs.String(); strings.Count(logs, `"route":"/v1/jobs/:id/retry-failed","status":202`) != len(tt.jobs) ||
				!strings.Contains(logs, `"job_id":"`+b.created[0].Job.ID+`"`) {
				t.Errorf("logged: %.1000s", logs)
			}
		})
	}
}

const askedOfSite = `{"seed_url":"https://site.test/","scope":"any","max_pages":50,"formats":["text"],"list_pages":["/list/*"],
	"fields":{"title":{"selector":"h1","required":true}},"collection":"pages","headers":{"Authorization":"Bearer hush"},"tags":["nightly"],
	"time_limit":"2h","concurrency":3,"webhook":{"url":"https://hook.test/x","secret":"` + whsec + `"}}`

// submitted submits a job, ends it with the given failures, and returns its path.
func (b *bench) submitted(t *testing.T, body string, urls ...string) (ref crawl.JobRef, path string) {
	t.Helper()
	var s status
	b.call("POST", "/v1/jobs", body).decode(t, 202, &s)
	n := b.created[len(b.created)-1]
	stored, err := json.Marshal(n.Plan)
	if err != nil {
		t.Fatal(err)
	}
	var plan crawl.Plan
	if err := json.Unmarshal(stored, &plan); err != nil {
		t.Fatal(err)
	}
	plan.Webhook = n.Plan.Webhook
	j := b.jobs[n.Job]
	j.State, j.Failed = crawl.CompletedWithErrors, int64(len(urls))
	b.jobs[n.Job], b.plans[n.Job] = j, plan
	for _, u := range urls {
		b.failures[n.Job] = append(b.failures[n.Job], crawl.Failure{SourceURL: u})
	}
	return n.Job, "/v1/jobs/" + s.JobID + "/retry-failed"
}

// The new job has what the old one asked for, secrets too, and shows none of them.
func TestRetryOfASite(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref, path := b.submitted(t, askedOfSite, "https://site.test/x", "https://other.test/")
	a := b.call("POST", path, "")
	var got struct {
		status
		Spec map[string]any `json:"spec"`
	}
	a.decode(t, 202, &got)
	n, old := b.created[1], b.plans[ref]
	if d := cmp.Diff(old.Webhook, n.Plan.Webhook); d != "" || n.Plan.Webhook.Secret != whsec {
		t.Errorf("webhook -old +new:\n%s", d)
	}
	if n.Plan.Headers["Authorization"] != "Bearer hush" || len(n.Plan.HeaderOrigins) != 1 || n.Plan.HeaderOrigins[0] != "https://site.test" {
		t.Errorf("headers for %q", n.Plan.HeaderOrigins)
	}
	if n.Plan.Site || n.Plan.Sitemap != crawl.SitemapSkip || len(n.Plan.ListPages) != 1 || n.Plan.TimeLimit != 2*time.Hour ||
		n.Plan.Collection == nil || n.Plan.Series != old.Series || len(n.Tags) != 1 || n.Quota != b.server.o.Quota {
		t.Errorf("%+v", n)
	}
	want := map[string]any{
		"urls": []any{"https://site.test/x", "https://other.test/"}, "formats": []any{"text"}, "list_pages": []any{"/list/*"},
		"fields": got.Spec["fields"], "collection": map[string]any{"name": "pages", "key": "source_url"},
		"headers": map[string]any{"Authorization": "***"}, "tags": []any{"nightly"}, "time_limit": "2h0m0s", "retention": "72h0m0s",
		"concurrency": 3.0, "delay": "500ms", "scope": "any", // of the old job: where a redirect may lead
		"webhook": map[string]any{
			"url": "https://hook.test/x", "secret": "***",
			"events": []any{"job.completed", "job.completed_with_errors", "job.failed", "job.cancelled"},
		},
	}
	if d := cmp.Diff(want, got.Spec); d != "" || got.Spec["fields"] == nil {
		t.Errorf("spec -want +got:\n%s", d)
	}
	all := a.body + string(n.Spec) + b.call("GET", "/v1/jobs/"+got.JobID, "").body + b.logs.String()
	for _, secret := range []string{"hush", "aHVzaGh1"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s is shown: %s", secret, all)
		}
	}
	if doc := openAPI(t, b); doc.check(a.body, "components", "schemas", "RetriedJob") != nil {
		t.Errorf("the document does not describe %s", a.body)
	}
	if other := b.call("GET", "/v1/jobs/"+got.JobID, ""); strings.Contains(other.body, "retry_next_cursor") {
		t.Errorf("a status says where another call goes on: %s", other.body)
	}
}

// What holds today binds another try: sources, limits, and what a collection has become.
func TestRetryByTheRulesOfToday(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, path := b.submitted(t, askedOfSite, "https://site.test/x", "https://other.test/")
	b.server.o.Limits = crawl.Limits{TimeLimit: time.Minute, Concurrency: 2, MaxBytes: 10, HostDelay: time.Second}
	if a := b.call("POST", path, ""); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if p := b.created[1].Plan; p.TimeLimit != time.Minute || p.Concurrency != 2 || p.MaxBytes != 10 || p.Delay != time.Second {
		t.Errorf("%+v", p)
	}
	calls := 0
	b.define = func(c crawl.Collection) error {
		if calls++; len(c.Facets) == 0 {
			return &store.OtherDefinitionError{Existing: crawl.Collection{Name: "pages", Key: "source_url", Facets: []string{"title"}}}
		}
		return nil
	}
	if a := b.call("POST", path, ""); a.status != 202 || calls != 2 {
		t.Errorf("%d %s after %d calls", a.status, a.body, calls)
	} else if p := b.created[2].Plan; len(p.Collection.Facets) != 1 || p.Headers == nil || p.Webhook == nil {
		t.Errorf("with the definition taken over: %+v", p)
	}
	b.define = func(crawl.Collection) error {
		return &store.OtherDefinitionError{Existing: crawl.Collection{Name: "pages", Key: "id"}}
	}
	b.call("POST", path, "").wantProblem(t, 422, crawl.CodeInvalid)
	b.define = nil
	b.server.o.Sources, _ = crawl.ParseSources("site.test")
	p := b.call("POST", path, "").wantProblem(t, 422, crawl.CodeSourceNotAllowed)
	if got := fieldRules(p); len(got) != 1 || got[0] != "urls[1]:source_not_allowed" || !strings.Contains(p.Detail, "any more") {
		t.Errorf("%q: %s", got, p.Detail)
	}
	if len(b.created) != 3 {
		t.Errorf("%d jobs", len(b.created))
	}
}

// The key of a call names the new job, as that of a submission does.
func TestRetryOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.server.o.Limits.MaxURLs = 3
	_, path := b.ended(10, crawl.Plan{})
	_, other := b.ended(10, crawl.Plan{})
	key := header("Idempotency-Key", "again")
	var first retried
	b.call("POST", path, "", key).decode(t, 202, &first)
	// By other limits the job is what it was, and so is what is left.
	for _, most := range []int64{3, 2, 9, 10_000} {
		b.server.o.Limits.MaxURLs = most
		var replayed retried
		a := b.call("POST", path, "", key)
		a.decode(t, 202, &replayed)
		if d := cmp.Diff(first, replayed, cmp.AllowUnexported(retried{})); d != "" || a.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("at most %d URLs: -first +replayed:\n%s", most, d)
		}
	}
	for what, target := range map[string]string{
		"another cursor": path + "?cursor=" + *first.RetryNextCursor, "another job": other,
	} {
		p := b.call("POST", target, "", key).wantProblem(t, 409, crawl.CodeKeyReused)
		if p.JobID != first.JobID {
			t.Errorf("%s: the conflict is about %s", what, p.JobID)
		}
	}
	b.call("POST", "/v1/jobs", oneURL, key).wantProblem(t, 409, crawl.CodeKeyReused)
	submitted := header("Idempotency-Key", "submitted")
	if a := b.call("POST", "/v1/jobs", oneURL, submitted); a.status != 202 {
		t.Fatal(a.body)
	}
	b.call("POST", path, "", submitted).wantProblem(t, 409, crawl.CodeKeyReused)
	for _, line := range []string{
		`{code="",outcome="created"} 2`, `{code="",outcome="replayed"} 4`, `{code="idempotency_key_reused",outcome="refused"} 4`,
	} {
		if !b.counts("trawl_submissions_total" + line) {
			t.Errorf("not counted: %s", line)
		}
	}
	var ids sync.Map
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			var s retried
			if err := json.Unmarshal([]byte(b.call("POST", path, "", header("Idempotency-Key", "at-once")).body), &s); err == nil {
				ids.Store(s.JobID, true)
			}
		})
	}
	all.Wait()
	n := 0
	ids.Range(func(any, any) bool { n++; return true })
	if n != 1 || len(b.created) != 3 {
		t.Errorf("%d ids, %d jobs", n, len(b.created))
	}
}

func TestRetryRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, path := b.ended(2, crawl.Plan{})
	_, whole := b.ended(0, crawl.Plan{})
	running := b.add("a", crawl.Running)
	lost, lostPath := b.ended(1, crawl.Plan{})
	delete(b.plans, lost)
	_, badPath := b.ended(1, crawl.Plan{Fields: crawl.Fields{{Name: "f", Field: crawl.Field{Selector: "["}}}})
	for _, tt := range []struct {
		name, target string
		key          string
		status       int
		code         crawl.Code
		says         string
	}{
		{"runs", "/v1/jobs/" + running.ID + "/retry-failed", "", 409, crawl.CodeJobNotTerminal, "Cancel it first"},
		{"nothing failed", whole, "", 409, crawl.CodeWrongState, "Nothing failed"},
		{"nothing failed behind", path + "?cursor=" + encodeCursor(cursorErrors, 2), "", 409, crawl.CodeWrongState, "behind this cursor"},
		{"far behind", path + "?cursor=" + encodeCursor(cursorErrors, 1<<62), "", 409, crawl.CodeWrongState, "behind this cursor"},
		{"no cursor", path + "?cursor=x", "", 400, crawl.CodeMalformed, "cursor"},
		{"another list's", path + "?cursor=" + encodeCursor(cursorRecords, 1), "", 400, crawl.CodeMalformed, "cursor"},
		{"a parameter", path + "?limit=1", "", 422, crawl.CodeInvalid, ""},
		{"a bad key", path, "a b", 400, crawl.CodeMalformed, "Idempotency-Key"},
		{"no such job", "/v1/jobs/" + crawl.NewJobID("a", "") + "/retry-failed", "", 404, crawl.CodeNotFound, ""},
		{"gone meanwhile", lostPath, "", 404, crawl.CodeNotFound, ""},
		{"fields of before", badPath, "", 422, crawl.CodeInvalid, "not taken any more"},
	} {
		p := b.call("POST", tt.target, "", func(r *http.Request) {
			if tt.key != "" {
				r.Header.Set("Idempotency-Key", tt.key)
			}
		}).wantProblem(t, tt.status, tt.code)
		if !strings.Contains(p.Detail, tt.says) {
			t.Errorf("%s: %s", tt.name, p.Detail)
		}
	}
	for code, status := range map[crawl.Code]int{crawl.CodeExpired: 410, crawl.CodeUnavailable: 503, crawl.CodeOverloaded: 503} {
		b.err = &crawl.Fault{Code: code, Message: "The store's words."}
		b.call("POST", path, "").wantProblem(t, status, code)
		if !b.counts(fmt.Sprintf(`trawl_submissions_total{code=%q,outcome="refused"} 1`, code)) {
			t.Errorf("%s is not counted", code)
		}
	}
	b.err = nil
	if len(b.created) != 0 || len(b.rings) != 0 {
		t.Errorf("stored %d, rung %d", len(b.created), len(b.rings))
	}
	if a := b.call("POST", path+"?cursor="+encodeCursor(cursorErrors, 1), ""); a.status != 202 || len(b.created[0].Inputs) != 1 {
		t.Errorf("behind the first: %d %s", a.status, a.body)
	}
}

// Many URLs wait for room as a large submission does; a few need none.
func TestRetryTakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		_, few := b.ended(10, crawl.Plan{})
		_, many := b.ended(10_000, crawl.Plan{})
		if err := b.server.bodies.Acquire(t.Context(), bodyRoom); err != nil {
			t.Fatal(err)
		}
		b.call("POST", many, "").wantProblem(t, 503, crawl.CodeOverloaded)
		if a := b.call("POST", few, ""); a.status != 202 {
			t.Errorf("%d %s", a.status, a.body)
		}
		b.server.bodies.Release(bodyRoom)
		if a := b.call("POST", many, ""); a.status != 202 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if !b.server.bodies.TryAcquire(bodyRoom) {
			t.Error("the room was not given back")
		}
	})
}
