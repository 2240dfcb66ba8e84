package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// polite is a submission with every field that says how a site is asked.
const polite = `{"seed_url":"https://site.test/?utm_source=x&b=1&a=2","respect_robots":false,"sitemap":"only",` +
	`"headers":{"Authorization":"Bearer hush-hush","Cookie":"session=hush-hush"},"user_agent":"ExampleBot/1.0",` +
	`"drop_params":["tracking"],"sort_params":true}`

// What a submission says of how a site is asked reaches the worker, and fits the document.
func TestFieldsReachThePlan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := openAPI(t, b).check(polite, "components", "schemas", "Submission"); err != nil {
		t.Error(err)
	}
	if a := b.call("POST", "/v1/jobs", polite); a.status != 202 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	got := b.created[0].Plan
	want := got
	want.Seeds, want.IgnoreRobots, want.Sitemap = []string{"https://site.test/?a=2&b=1"}, true, crawl.SitemapOnly
	want.Headers = crawl.Headers{"Authorization": "Bearer hush-hush", "Cookie": "session=hush-hush"}
	want.HeaderOrigins, want.UserAgent = []string{"https://site.test"}, "ExampleBot/1.0"
	want.DropParams, want.SortParams = []string{"tracking"}, true
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// The values of headers are credentials: they are in the plan, which no answer shows, and
// in no answer, log or stored spec, whether the submission is accepted or not.
func TestHeaderValuesAreNotShown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var got struct {
		ID   string `json:"job_id"`
		Spec struct {
			Headers map[string]string `json:"headers"`
		} `json:"spec"`
	}
	a := b.call("POST", "/v1/jobs", polite)
	a.decode(t, 202, &got)
	if d := cmp.Diff(map[string]string{"Authorization": "***", "Cookie": "***"}, got.Spec.Headers); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	all := a.body + string(b.created[0].Spec)
	for _, path := range []string{"/v1/jobs/" + got.ID, "/v1/jobs"} {
		all += b.call("GET", path, "").body
	}
	for _, headers := range []string{
		`{"Host":"hush-hush"}`, `{"A":" hush-hush"}`, `{"A":"hush-hush\n"}`, `{"A":["hush-hush"]}`, `{"A":"hush-hush","a":"hush-hush"}`,
		`{"A":"` + strings.Repeat("hush-hush", 1000) + `"}`, `"hush-hush"`,
	} {
		refused := b.call("POST", "/v1/jobs", `{"urls":["https://site.test/"],"headers":`+headers+`}`)
		refused.wantProblem(t, 422, crawl.CodeInvalid)
		all += refused.body
	}
	if all += b.logs.String(); strings.Contains(all, "hush") {
		t.Errorf("a value is shown: %s", all)
	}
	// What was shown is not what was submitted.
	p := b.call("POST", "/v1/jobs", `{"urls":["https://site.test/"],"headers":{"Cookie":"***"}}`).wantProblem(t, 422, crawl.CodeInvalid)
	if d := cmp.Diff([]string{"headers.Cookie:masked"}, fieldRules(p)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Headers that differ in a value only are other input: promise 3.
func TestHeaderValuesAreInput(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	key := header("Idempotency-Key", "k")
	for _, tt := range []struct {
		headers string
		status  int
	}{{`{"A":"1","B":"2"}`, 202}, {`{"B":"2","A":"1"}`, 202}, {`{"A":"1","B":"3"}`, 409}, {`{}`, 409}} {
		body := `{"urls":["https://site.test/"],"headers":` + tt.headers + `}`
		if a := b.call("POST", "/v1/jobs", body, key); a.status != tt.status {
			t.Errorf("%s: %d %s", tt.headers, a.status, a.body)
		}
	}
}

// The document gives the bounds of the rules.
func TestBoundsInTheDocument(t *testing.T) {
	t.Parallel()
	doc := openAPI(t, newBench(t))
	for _, tt := range []struct {
		field, bound string
		want         int
	}{
		{"headers", "maxProperties", crawl.MaxHeaders},
		{"user_agent", "maxLength", crawl.MaxUserAgentBytes},
		{"drop_params", "maxItems", crawl.MaxDropParams},
		{"include", "maxItems", crawl.MaxPatterns},
		{"seeds", "maxItems", crawl.MaxSeeds},
		{"tags", "maxItems", crawl.MaxTags},
		{"max_depth", "maximum", crawl.MaxDepthBound},
	} {
		got, _ := doc.at("components", "schemas", "Submission", "properties", tt.field, tt.bound).(json.Number)
		if got.String() != fmt.Sprint(tt.want) {
			t.Errorf("%s: %s is %s, want %d", tt.field, tt.bound, got, tt.want)
		}
	}
}
