package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// asked is a preview as its reader sees it: what decides each URL.
func asked(t *testing.T, b *bench, body string) []string {
	t.Helper()
	var got preview
	b.call("POST", "/v1/jobs/preview", body).decode(t, 200, &got)
	var out []string
	for _, v := range got.Items {
		text := func(s *string) string {
			if s == nil {
				return "-"
			}
			return *s
		}
		line := fmt.Sprint(v.Admitted, " ", text((*string)(v.Reason)), " | ", text(v.Rule), " | ", text(v.Canonical))
		if v.Message == "" || v.Admitted != (v.Reason == nil) || (v.Canonical == nil) != (v.Key == nil) {
			t.Errorf("incomplete: %+v", v)
		}
		out = append(out, line)
	}
	return out
}

func sourcesOf(t *testing.T, list string) crawl.Sources {
	t.Helper()
	s, err := crawl.ParseSources(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each URL is told the rule that decides about it, as the crawl would decide.
func TestPreview(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sources, body string
		want                []string
	}{
		{
			"links of a site", "site.test,*.site.test,other.test",
			`{"seed_url":"https://site.test/docs/","scope":"prefix","exclude":["/docs/old/**"],"check":["https://site.test/docs/a",
			"https://SITE.test:443/docs/./b?","https://site.test/docs/old/x","https://site.test/blog","https://other.test/docs/",
			"https://alien.test/","https://site.test/docs/#top","mailto:a@site.test","no url","https://u:p@site.test/docs/c"]}`,
			[]string{
				"true - | - | https://site.test/docs/a",
				"true - | - | https://site.test/docs/b?",
				"false excluded | /docs/old/** | https://site.test/docs/old/x",
				"false out_of_scope | scope prefix | https://site.test/blog",
				"false out_of_scope | scope prefix | https://other.test/docs/",
				"false source | allowed sources: site.test, *.site.test, other.test | https://alien.test/",
				"true - | seed_url | https://site.test/docs/",
				"false scheme | - | -",
				"false invalid_url | - | -",
				"true - | - | https://site.test/docs/c",
			},
		},
		{
			"include", "*", `{"seeds":["https://site.test/"],"include":["/a/*"],"check":["https://site.test/a/b","https://site.test/b"]}`,
			[]string{"true - | /a/* | https://site.test/a/b", "false excluded | no include pattern matches | https://site.test/b"},
		},
		{
			"seeds alone", "*", `{"seeds":["https://site.test/"],"max_depth":0,"check":["https://site.test/a","https://site.test/"]}`,
			[]string{"false depth | max_depth 0 | https://site.test/a", "true - | seeds | https://site.test/"},
		},
		{
			"links of a list", "*", `{"urls":["https://site.test/"],"check":["https://site.test/a","https://site.test/"]}`,
			[]string{"false depth | urls | https://site.test/a", "true - | urls | https://site.test/"},
		},
		{
			"inputs", "site.test", `{"urls":["https://site.test/","https://site.test:443","https://alien.test/","https://site.test/a"]}`,
			[]string{
				"true - | urls | https://site.test/", "true - | urls | https://site.test/",
				"false source | allowed sources: site.test | https://alien.test/", "true - | urls | https://site.test/a",
			},
		},
		{
			"parameters", "*",
			`{"seed_url":"https://site.test/?utm_a=1&x=1","drop_params":["utm_*"],
			"check":["https://site.test/?x=1","https://site.test/a?utm_b=2&y=1&PHPSESSID=4"]}`,
			[]string{"true - | seed_url | https://site.test/?x=1", "true - | - | https://site.test/a?y=1"},
		},
		{
			"inputs with parameters", "*", `{"urls":["https://site.test/?utm_a=1&x=1&PHPSESSID=4"],"drop_params":["utm_*"]}`,
			[]string{"true - | urls | https://site.test/?x=1&PHPSESSID=4"},
		},
		{
			// Rules are for links: a seed is admitted against them.
			"a seed", "*", `{"seed_url":"https://site.test/","exclude":["/**"]}`, []string{"true - | seed_url | https://site.test/"},
		},
		{
			"many sources", "a.test,b.test,c.test,d.test,e.test,f.test,g.test", `{"urls":["https://site.test/"]}`,
			[]string{"false source | allowed sources: a.test, b.test, c.test, d.test, e.test, and 2 more | https://site.test/"},
		},
		{"no sources", "", `{"urls":["https://site.test/"]}`, []string{"false source | no source is allowed | https://site.test/"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.server.o.Sources = sourcesOf(t, tt.sources)
			if d := cmp.Diff(tt.want, asked(t, b, tt.body)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if len(b.created)+len(b.asked)+len(b.rings) != 0 {
				t.Error("a preview reached the store")
			}
		})
	}
}

// Pages that are one are told by their key, and which input is crawled in their place.
func TestPreviewOfDuplicates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var got preview
	b.call("POST", "/v1/jobs/preview", `{"urls":["https://site.test/b","https://site.test/~a","https://site.test/%7Ea"]}`).decode(t, 200, &got)
	if a, again := got.Items[1], got.Items[2]; *a.Key != *again.Key || *a.Key == *got.Items[0].Key || len(*a.Key) != 24 ||
		*again.Canonical != "https://site.test/%7Ea" || !strings.Contains(again.Message, "urls[1]") {
		t.Errorf("got %+v", got.Items)
	}
}

// What looks endless is told as such, and by which bound.
func TestPreviewOfATrap(t *testing.T) {
	t.Parallel()
	trap := "https://site.test" + strings.Repeat("/a", 200)
	got := asked(t, newBench(t), `{"seed_url":"https://site.test/","check":["`+trap+`"]}`)
	if len(got) != 1 || !strings.HasPrefix(got[0], "false trap | ") || strings.Contains(got[0], "| - |") {
		t.Errorf("got %q", got)
	}
}

// A body is refused as it would be as a submission, all faults at once.
func TestPreviewFaults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.server.o.Sources = sourcesOf(t, "site.test")
	tooMany, err := json.Marshal(make([]string, maxChecks+1))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		body   string
		status int
		code   crawl.Code
		want   []string
	}{
		{``, 415, codeUnsupportedMediaType, nil},
		{`[]`, 400, crawl.CodeMalformed, nil},
		{`{}`, 422, crawl.CodeInvalid, []string{"urls:required"}},
		{`{"check":["https://site.test/"]}`, 422, crawl.CodeInvalid, []string{"urls:required"}},
		{`{"urls":["https://site.test/"],"check":[1]}`, 422, crawl.CodeInvalid, []string{"check[0]:type"}},
		{`{"urls":["https://site.test/"],"Check":[]}`, 422, crawl.CodeInvalid, []string{"Check:unknown"}},
		{`{"urls":["https://site.test/"],"items":{},"nope":1}`, 422, crawl.CodeInvalid, []string{
			"nope:unknown", "items.selector:required", "items.fields:required",
		}},
		{`{"urls":["https://site.test/"],"webhook":{}}`, 422, crawl.CodeInvalid, []string{"webhook.url:required"}},
		{`{"urls":["ftp://site.test/"],"max_pages":3}`, 422, crawl.CodeInvalid, []string{"urls[0]:scheme", "max_pages:site_only"}},
		{
			`{"seed_url":"https://site.test/","exclude":["re:("],"check":` + string(tooMany) + `}`, 422, crawl.CodeInvalid,
			[]string{"exclude[0]:pattern", "check:max"},
		},
		{`{"urls":["https://site.test/"],"check":` + string(tooMany) + `}`, 422, crawl.CodeInvalid, []string{"check:max"}},
		// With check the answer says nothing of the inputs, so that their fault must be one.
		{
			`{"urls":["https://alien.test/"],"check":["https://site.test/"]}`, 422, crawl.CodeSourceNotAllowed,
			[]string{"urls[0]:source_not_allowed"},
		},
	} {
		p := b.call("POST", "/v1/jobs/preview", tt.body).wantProblem(t, tt.status, tt.code)
		if d := cmp.Diff(tt.want, fieldRules(p)); d != "" {
			t.Errorf("%s: -want +got:\n%s", clip(tt.body), d)
		}
	}
	large := `{"urls":["https://site.test/"],"tags":["` + strings.Repeat("x", MaxBody) + `"]}`
	b.call("POST", "/v1/jobs/preview", large).wantProblem(t, 413, crawl.CodeBodyTooLarge)
	b.call("POST", "/v1/jobs/preview", oneURL, header("Content-Encoding", "gzip")).wantProblem(t, 415, codeUnsupportedMediaType)
	b.call("POST", "/v1/jobs/preview?x=1", oneURL).wantProblem(t, 422, crawl.CodeInvalid)
	b.call("POST", "/v1/jobs/preview", oneURL, header("Authorization")).wantProblem(t, 401, crawl.CodeUnauthenticated)
}

// A preview takes what a submission takes and one name more, its examples are accepted, and
// its answers are as documented.
func TestPreviewFitsTheDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doc := openAPI(t, b)
	of := func(schema string) map[string]any {
		p, _ := doc.at("components", "schemas", schema, "properties").(map[string]any)
		return p
	}
	want := append(sorted(of("Submission")), "check")
	got := of("PreviewRequest")
	for _, name := range want {
		if got[name] == nil {
			t.Errorf("a preview has no %s", name)
		}
	}
	if len(got) != len(want) || len(want) < 10 {
		t.Errorf("a preview takes %q, want %q", sorted(got), want)
	}
	body := []string{"paths", "/v1/jobs/preview", "post", "requestBody", "content", "application/json"}
	examples, _ := doc.at(append(body, "examples")...).(map[string]any)
	if len(examples) < 2 {
		t.Errorf("examples: %v", examples)
	}
	answer := []string{"paths", "/v1/jobs/preview", "post", "responses", "200", "content", "application/json", "schema"}
	bodies := []string{`{"urls":["https://site.test/"],"check":["no url","https://site.test/x"]}`}
	for name := range examples {
		text, err := json.Marshal(doc.at(append(body, "examples", name, "value")...))
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, string(text))
	}
	for _, text := range bodies {
		if err := doc.check(text, append(body, "schema")...); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		a := b.call("POST", "/v1/jobs/preview", text)
		if err := doc.check(a.body, answer...); err != nil || a.status != 200 {
			t.Errorf("%s: %d %v in %s", text, a.status, err, a.body)
		}
	}
}

// A preview whose reader is gone judges nothing more: rules may take milliseconds for each URL.
func TestPreviewStopsWithItsReader(t *testing.T) {
	t.Parallel()
	acct := &account{sources: sourcesOf(t, "*"), limits: crawl.DefaultLimits()}
	j, err := judgeOf(acct, &previewRequest{submission: submission{URLs: []string{"http://site.test/"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	judge := func() (inputs, links []judgement, errs []error) {
		inputs, inputsErr := j.inputs(ctx)
		links, linksErr := j.links(ctx, []string{"http://site.test/a", "no url"})
		return inputs, links, []error{inputsErr, linksErr}
	}
	if inputs, links, errs := judge(); len(inputs) != 1 || len(links) != 2 || errors.Join(errs...) != nil {
		t.Errorf("%d inputs, %d links, %v", len(inputs), len(links), errs)
	}
	cancel()
	inputs, links, errs := judge()
	for _, err := range errs {
		if !errors.Is(err, context.Canceled) || inputs != nil || links != nil {
			t.Errorf("judged all the same: %v, %v, %v", inputs, links, err)
		}
	}
}
