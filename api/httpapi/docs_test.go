package httpapi

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// The document is OpenAPI 3.1, names every route and no other, and describes
// what the decoder takes.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.call("GET", "/openapi.json", "", header("Authorization"))
	var doc struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			RequestBody struct{ Content map[string]any }
			Responses   map[string]struct{ Content map[string]any }
			Parameters  []struct {
				Name, In string
				Schema   map[string]any
			}
		} `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties           map[string]map[string]any
				AdditionalProperties any
			}
		} `json:"components"`
	}
	a.decode(t, 200, &doc)
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("version %q", doc.OpenAPI)
	}
	var documented, routed []string
	for path, ops := range doc.Paths {
		for method, op := range ops {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			if op.Responses["401"].Content[problemType] == nil || op.Responses["503"].Content[problemType] == nil {
				t.Errorf("%s %s does not document its problems: %v", method, path, op.Responses)
			}
			for _, p := range op.Parameters {
				if p.Name == "limit" && p.Schema["type"] != "integer" {
					t.Errorf("%s %s: limit is %v", method, path, p.Schema)
				}
			}
		}
	}
	for _, r := range b.server.engine.Routes() {
		if strings.HasPrefix(r.Path, "/v1/") && r.Method != http.MethodHead { // HEAD goes without saying
			routed = append(routed, r.Method+" "+strings.NewReplacer(":id", "{id}", ":name", "{name}").Replace(r.Path))
		}
	}
	slices.Sort(documented)
	slices.Sort(routed)
	if d := cmp.Diff(routed, documented); d != "" {
		t.Errorf("-routed +documented:\n%s", d)
	}
	if doc.Paths["/v1/jobs"]["post"].RequestBody.Content["application/json"] == nil {
		t.Error("the body of a submission is not documented")
	}
	known := shapes[typeOfSubmission].fields
	sub := doc.Components.Schemas["Submission"]
	if d := cmp.Diff(sorted(known), sorted(sub.Properties)); d != "" || sub.AdditionalProperties != false {
		t.Errorf("submission: -decoder +document:\n%s(additional: %v)", d, sub.AdditionalProperties)
	}
	for name, p := range sub.Properties {
		if p["description"] == nil {
			t.Errorf("%s has no description", name)
		}
	}
	if got := sub.Properties["time_limit"]["type"]; got != "string" {
		t.Errorf("a duration is documented as %v", got)
	}
	if doc.Components.Schemas["Problem"].Properties["code"] == nil || doc.Components.Schemas["Status"].Properties["stop_reason"] == nil {
		t.Errorf("schemas %q", sorted(doc.Components.Schemas))
	}
	if strings.Contains(a.body, "ErrorModel") {
		t.Error("the document has huma's own errors")
	}
}

// The page of the documentation needs nothing from elsewhere, and its policy
// lets nothing else in.
func TestDocs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.call("GET", "/docs", "", header("Authorization"))
	csp := a.header.Get("Content-Security-Policy")
	if a.status != 200 || !strings.Contains(a.body, "swagger-ui") || !strings.Contains(csp, "default-src 'none'") {
		t.Fatalf("%d, policy %q", a.status, csp)
	}
	for _, directive := range strings.Split(csp, "; ") {
		if strings.HasPrefix(directive, "script-src") && (strings.Contains(directive, "unsafe") || !strings.Contains(directive, "'sha256-")) {
			t.Errorf("scripts: %s", directive)
		}
	}
	for _, asset := range []string{"swagger-ui-bundle.js", "swagger-ui-standalone-preset.js", "swagger-ui.css"} {
		if !strings.Contains(a.body, `"/docs/`+asset+`"`) {
			t.Errorf("the page does not load %s from here", asset)
		}
		if res := b.call("GET", "/docs/"+asset, "", header("Authorization")); res.status != 200 || len(res.body) < 1000 {
			t.Errorf("%s: %d, %d bytes", asset, res.status, len(res.body))
		}
	}
	for _, none := range []string{"/docs/nope.js", "/docs/", "/docs/swagger-ui.css.gz", "/docs/../x"} {
		a := b.call("GET", none, "", header("Authorization"))
		if none == "/docs/" && a.status == 301 {
			continue // to the page
		}
		if a.wantProblem(t, 404, crawl.CodeNotFound); a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s may be kept: %s", none, a.header.Get("Cache-Control"))
		}
	}
	for _, elsewhere := range []string{`src="http`, `href="http`, `src="//`} {
		if strings.Contains(a.body, elsewhere) {
			t.Errorf("the page has %s", elsewhere)
		}
	}
}
