package httpapi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"example.com/trawl/pkg/crawl"
)

// document is the OpenAPI document as those who generate clients read it.
type document struct {
	t     testing.TB
	value any
	json  *jsonschema.Compiler
}

func openAPI(t testing.TB, b *bench) document {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(b.call("GET", openAPIPath, "").body))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020) // as OpenAPI 3.1 says
	c.AssertFormat()
	if err := c.AddResource("api.json", value); err != nil {
		t.Fatal(err)
	}
	return document{t, value, c}
}

// at returns what is at a path in the document, nil for nothing.
func (d document) at(path ...string) any {
	v := d.value
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// check holds a JSON text to the schema at the given path of the document.
func (d document) check(text string, path ...string) error {
	d.t.Helper()
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	pointer := "api.json#"
	for _, name := range path {
		pointer += "/" + escape.Replace(name)
	}
	schema, err := d.json.Compile(pointer)
	if err != nil {
		d.t.Fatalf("%s: %v", pointer, err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		d.t.Fatalf("%v in %s", err, text)
	}
	return schema.Validate(value)
}

// What is answered is what the document says, null and all.
func TestAnswersFitTheDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doc := openAPI(t, b)
	at := time.Date(2026, 5, 6, 7, 8, 9, 123456789, time.FixedZone("", 3600))
	running, ended, full := b.add("a", crawl.Running), b.add("a", crawl.Completed), b.add("a", crawl.CompletedWithErrors)
	b.jobs[full] = crawl.Job{
		ID: full.ID, QueueTaskID: full.ID, State: crawl.CompletedWithErrors, StopReason: crawl.StopPageLimit, WaitingFor: "x",
		Position: 1, Error: "x", RetryOf: running.ID, Total: 3, Processed: 3, Accepted: 1, Failed: 1, Skipped: 1, Records: 1,
		SkippedByReason: map[crawl.Reason]int64{crawl.SkipAlias: 1}, FailedByType: map[crawl.Code]int64{"http_404": 1},
		RefusedByReason: map[crawl.Reason]int64{crawl.RefusedDepth: 1}, CreatedAt: at, StartedAt: at, EndedAt: at, ExpiresAt: at,
		Spec: json.RawMessage(`{"seed_url":"https://site.test/","time_limit":"1h0m0s","tags":["x"]}`), Tags: []string{"x"},
	}
	for _, ref := range []crawl.JobRef{running, full} {
		b.records[ref] = []crawl.Page{{Seq: 1}, {Seq: 2, DiscoveredOn: "https://site.test/", Title: "t", FetchedAt: at}}
		b.failures[ref] = []crawl.Failure{
			{SourceURL: "https://site.test/0"}, {SourceURL: "https://site.test/1", Status: 404, DiscoveredOn: "https://site.test/", At: at},
		}
	}
	b.plans[full] = crawl.Plan{}
	all := ""
	for _, tt := range []struct {
		method, path, body string
		status             string
		media              string
		at                 string // the path in the document, when it has a parameter
	}{
		{"GET", "/v1/jobs/" + running.ID, "", "200", "application/json", "/v1/jobs/{id}"},
		{"GET", "/v1/jobs/" + ended.ID, "", "200", "application/json", "/v1/jobs/{id}"},
		{"GET", "/v1/jobs/" + full.ID, "", "200", "application/json", "/v1/jobs/{id}"},
		{"GET", "/v1/jobs/" + full.ID + "/result", "", "200", "application/json", "/v1/jobs/{id}/result"},
		{"GET", "/v1/jobs/" + running.ID + "/records", "", "200", "application/json", "/v1/jobs/{id}/records"},
		{"GET", "/v1/jobs/" + full.ID + "/records?limit=1", "", "200", "application/json", "/v1/jobs/{id}/records"},
		{"GET", "/v1/jobs/" + full.ID + "/errors", "", "200", "application/json", "/v1/jobs/{id}/errors"},
		{"POST", "/v1/jobs/" + full.ID + "/cancel", "", "200", "application/json", "/v1/jobs/{id}/cancel"},
		{"POST", "/v1/jobs/" + running.ID + "/pause", "", "200", "application/json", "/v1/jobs/{id}/pause"},
		{"POST", "/v1/jobs/" + running.ID + "/resume", "", "200", "application/json", "/v1/jobs/{id}/resume"},
		{"POST", "/v1/jobs/" + ended.ID + "/pause", "", "409", problemType, "/v1/jobs/{id}/pause"},
		{"POST", "/v1/jobs/" + full.ID + "/retry-failed", "", "202", "application/json", "/v1/jobs/{id}/retry-failed"},
		{"POST", "/v1/jobs/" + ended.ID + "/retry-failed", "", "409", problemType, "/v1/jobs/{id}/retry-failed"},
		{"POST", "/v1/jobs/" + full.ID + "/retry-failed?x=1", "", "422", problemType, "/v1/jobs/{id}/retry-failed"},
		{"GET", "/v1/jobs", "", "200", "application/json", "/v1/jobs"},
		{"POST", "/v1/jobs", oneURL, "202", "application/json", "/v1/jobs"},
		{"POST", "/v1/jobs", `{"url":"x"}`, "422", problemType, "/v1/jobs"},
		{"POST", "/v1/jobs", `[]`, "400", problemType, "/v1/jobs"},
		{"GET", "/v1/jobs/x", "", "404", problemType, "/v1/jobs/{id}"},
		{"GET", "/v1/jobs/" + running.ID + "?x=1", "", "422", problemType, "/v1/jobs/{id}"},
		{"POST", "/v1/jobs/" + running.ID + "/cancel?x=1", "", "422", problemType, "/v1/jobs/{id}/cancel"},
		{"DELETE", "/v1/jobs/" + running.ID + "?x=1", "", "422", problemType, "/v1/jobs/{id}"},
		{"DELETE", "/v1/jobs/" + running.ID, "", "409", problemType, "/v1/jobs/{id}"},
	} {
		a := b.call(tt.method, tt.path, tt.body)
		all += a.body
		if got := a.header.Get("Content-Type"); got != tt.media {
			t.Errorf("%s %s: Content-Type %s", tt.method, tt.path, got)
		}
		err := doc.check(a.body,
			"paths", tt.at, strings.ToLower(tt.method), "responses", tt.status, "content", tt.media, "schema")
		if err != nil {
			t.Errorf("%s %s: %v\n%.300s", tt.method, tt.path, err, a.body)
		}
	}
	// Whatever the precision of the clock, there is one of the contract.
	if !strings.Contains(all, `"started_at":"2026-05-06T06:08:09.123Z"`) ||
		!strings.Contains(all, `"fetched_at":"2026-05-06T06:08:09.123Z"`) || strings.Contains(all, "09.1234") {
		t.Errorf("times are not in milliseconds: %s", all)
	}
	b.err = &crawl.Fault{Code: crawl.CodeExpired, Message: "It is gone.", At: at}
	if a := b.call("GET", "/v1/jobs/"+full.ID, ""); !strings.Contains(a.body, `"expired_at":"2026-05-06T06:08:09.123Z"`) {
		t.Errorf("a tombstone says %s", a.body)
	} else if err := doc.check(a.body, "components", "schemas", problemSchema); err != nil {
		t.Errorf("a tombstone: %v", err)
	}
}

// The examples of a submission are accepted as they stand, and the defaults are those
// that a job really gets.
func TestSubmissionsInTheDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doc := openAPI(t, b)
	body := []string{"paths", "/v1/jobs", "post", "requestBody", "content", "application/json"}
	shown, _ := doc.at(append(body, "examples")...).(map[string]any)
	if len(shown) < 2 {
		t.Errorf("examples: %v", shown)
	}
	for name := range shown {
		text, err := json.Marshal(doc.at(append(body, "examples", name, "value")...))
		if err != nil {
			t.Fatal(err)
		}
		if err := doc.check(string(text), append(body, "schema")...); err != nil {
			t.Errorf("example %s: %v", name, err)
		}
		if a := b.call("POST", "/v1/jobs", string(text)); a.status != 202 {
			t.Errorf("example %s: %d %s", name, a.status, a.body)
		}
	}

	properties, _ := doc.at("components", "schemas", "Submission", "properties").(map[string]any)
	defaults := map[string]any{"seed_url": "https://site.test/"}
	for name, of := range properties {
		p, _ := of.(map[string]any)
		if def, ok := p["default"]; ok {
			defaults[name] = def
		}
		if pattern, _ := p["pattern"].(string); pattern != "" && p["examples"] == nil {
			t.Errorf("%s has a pattern and no example", name)
		}
	}
	if want := []string{
		"concurrency", "delay", "formats", "main_content", "max_depth", "max_pages", "respect_robots", "retention", "scope", "seed_url", "sitemap",
		"sort_params", "time_limit",
	}; !slices.Equal(sorted(defaults), want) {
		t.Errorf("defaults of %q, want of %q", sorted(defaults), want)
	}
	text, err := json.Marshal(defaults)
	if err != nil {
		t.Fatal(err)
	}
	b.created = nil
	for _, body := range []string{`{"seed_url":"https://site.test/"}`, string(text)} {
		if a := b.call("POST", "/v1/jobs", body); a.status != 202 {
			t.Fatalf("%s: %d %s", body, a.status, a.body)
		}
	}
	if d := cmp.Diff(b.created[0].Plan, b.created[1].Plan); d != "" {
		t.Errorf("-without +with the documented defaults:\n%s", d)
	}
}

// The document names each problem of an operation once, and nothing that is left over.
func TestProblemsInTheDocument(t *testing.T) {
	t.Parallel()
	doc := openAPI(t, newBench(t))
	for _, tt := range []struct{ path, method, status, want string }{
		{"/v1/jobs", "post", "503", "unavailable, overloaded"},
		{"/v1/jobs", "post", "422", "invalid, source_not_allowed"},
		{"/v1/jobs/{id}", "get", "422", "invalid"},
		{"/v1/jobs/{id}", "delete", "422", "invalid"},
		{"/v1/jobs/{id}/cancel", "post", "422", "invalid"},
		{"/v1/jobs/{id}/cancel", "post", "503", "unavailable, overloaded"},
		{"/v1/jobs/{id}/pause", "post", "409", "wrong_state"},
		{"/v1/jobs/{id}/resume", "post", "410", "expired"},
		{"/v1/jobs/{id}/retry-failed", "post", "409", "idempotency_key_reused, job_not_terminal, wrong_state"},
		{"/v1/jobs/{id}/retry-failed", "post", "422", "invalid, source_not_allowed"},
		{"/v1/jobs/{id}/retry-failed", "post", "429", "quota_exceeded, rate_limited"},
		{"/v1/jobs/{id}/urls", "get", "410", "expired"},
		{"/v1/jobs/preview", "post", "422", "invalid, source_not_allowed"},
		{"/v1/jobs/preview", "post", "413", "body_too_large"},
		{"/v1/jobs/preview", "post", "415", "unsupported_media_type"},
	} {
		if got := doc.at("paths", tt.path, tt.method, "responses", tt.status, "description"); got != tt.want {
			t.Errorf("%s %s: %s is %q, want %q", tt.method, tt.path, tt.status, got, tt.want)
		}
	}
	schemas, _ := doc.at("components", "schemas").(map[string]any)
	want := []string{
		"Alternate", "Analytics", "Collection", "CollectionItem", "CollectionPage", "CollectionSpec", "Deliveries", "Delivery",
		"Event", "EventData", "ExtractRequest", "Extraction", "FacetCount", "Failure", "FailurePage", "Feed", "FieldFault", "FieldSpec",
		"ItemPage", "ItemsSpec", "JobPage", "Judgement", "KnownURL", "Link", "Metadata", "Note", "NumberStats", "PageError",
		"Preview", "PreviewRequest", "Problem", "Record",
		"RecordPage", "Report", "RetriedJob", "ShownSpec", "Status", "Submission", "URLPage", "Webhook",
	}
	if d := cmp.Diff(want, sorted(schemas)); d != "" {
		t.Errorf("schemas -want +got:\n%s", d)
	}
}
