package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/fields"
	"example.com/trawl/pkg/store"
)

const shop = `<html><head><title> The
 shop </title></head><body><h1>Chairs</h1><p class=old></p>` +
	`<ul><li><b>Red</b><i>1.234,50 €</i><a href="/red">x</a></li><li><b>Blue</b><i>soon</i></li><li><i>3,-</i></li></ul></body></html>`

// of writes a body of an extraction.
func of(t testing.TB, members map[string]any) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // or a page would be several times as large
	if err := e.Encode(members); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (b *bench) extract(t testing.TB, members map[string]any, edit ...func(*http.Request)) answer {
	t.Helper()
	return b.call("POST", "/v1/extract", of(t, members), edit...)
}

var shopItems = map[string]any{
	"selector": "li", "fields": map[string]any{
		"name": map[string]any{"selector": "b", "required": true}, "price": map[string]any{"selector": "i", "type": "number", "locale": "de"},
		"link": map[string]any{"selector": "a", "attr": "href"},
	},
}

// A page that is given is worked on at once, and leaves no trace.
func TestExtractHTML(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doc := openAPI(t, b)
	for name, tt := range map[string]struct {
		in   map[string]any
		want string // the members of the answer that are not empty
	}{
		"nothing asked": {map[string]any{"html": shop}, `{"title":"The shop"}`},
		"an empty page": {map[string]any{"html": ""}, `{}`},
		"fields and items, with a base": {
			map[string]any{
				"html": shop, "base_url": "HTTPS://Shop.test/a/b", "items": shopItems,
				"fields": map[string]any{"h": map[string]any{"selector": "h1", "required": true}},
			},
			`{"source_url":"https://shop.test/a/b","url":"https://shop.test/a/b","title":"The shop","fields":{"h":"Chairs"},"items":[` +
				`{"link":"https://shop.test/red","name":"Red","price":1234.5},{"link":null,"name":"Blue","price":null}],"items_found":3,` +
				`"notes":[{"about":"items.fields.name","what":"incomplete","count":1},{"about":"items.fields.price","what":"unparsed","count":1}]}`,
		},
		"without a base no link": {
			map[string]any{"html": shop, "fields": map[string]any{"l": map[string]any{"selector": "a", "attr": "href"}}},
			`{"title":"The shop","fields":{"l":null},"notes":[{"about":"fields.l","what":"unparsed","count":1}]}`,
		},
		"what is missing is no error": {
			map[string]any{
				"html": shop, "items": map[string]any{"selector": "li", "fields": map[string]any{
					"x": map[string]any{"selector": "u", "required": true}, "b": map[string]any{"selector": "b"},
				}},
				"fields": map[string]any{
					"z": map[string]any{"selector": ".old", "required": true}, "h": map[string]any{"selector": "h1", "required": true},
					"a": map[string]any{"selector": ".none", "required": true, "many": true},
				},
			},
			`{"title":"The shop","fields":{"a":[],"h":"Chairs","z":""},"items_found":3,"missing":["fields.a","fields.z","items.fields.x"],` +
				`"notes":[{"about":"items.fields.x","what":"incomplete","count":3}]}`,
		},
	} {
		a := b.extract(t, tt.in)
		if a.status != 200 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
			continue
		}
		if err := doc.check(a.body, "paths", "/v1/extract", "post", "responses", "200", "content", "application/json", "schema"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got, want extraction
		a.decode(t, 200, &got)
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, sortedMissing(got), emptyIsNil); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
		for _, list := range []string{`"items":[`, `"notes":[`, `"missing":[`} {
			if !strings.Contains(a.body, list) {
				t.Errorf("%s: no %s in %s", name, list, a.body)
			}
		}
	}
	var got extraction
	b.extract(t, map[string]any{"html": shop, "base_url": "https://shop.test/", "formats": []string{
		"metadata", "links", "html", "text", "markdown",
	}}).decode(t, 200, &got)
	if got.HTML == nil || *got.HTML != shop || got.Markdown == nil || !strings.Contains(*got.Markdown, "# Chairs") ||
		got.Text == nil || !strings.Contains(*got.Text, "Chairs") || len(got.Links) != 1 || got.Links[0].URL != "https://shop.test/red" ||
		got.Links[0].InScope || got.Metadata == nil || got.Metadata.Title != "The shop" {
		t.Errorf("all formats: %+v", got)
	}
	b.extract(t, map[string]any{"html": shop, "formats": []string{"text"}}).decode(t, 200, &got)
	if len(b.created)+len(b.rings)+len(b.asked) > 0 || b.counts(`trawl_submissions_total{code="",outcome="created"} 1`) {
		t.Errorf("a job was made: %+v", b.created)
	}
}

// What is wrong is told at once, and by the names that the caller knows.
func TestExtractFaults(t *testing.T) {
	t.Parallel()
	sources, err := crawl.ParseSources("shop.test")
	if err != nil {
		t.Fatal(err)
	}
	b := newBenchWith(t, func(o *Options) { o.Sources = sources })
	bad := map[string]any{"x": map[string]any{"selector": "p[", "regex": "("}, "y": map[string]any{}}
	for name, tt := range map[string]struct {
		in   map[string]any
		code crawl.Code
		want string
	}{
		"nothing":  {map[string]any{}, crawl.CodeInvalid, "[url:required]"},
		"null":     {map[string]any{"html": nil, "formats": []string{"text"}}, crawl.CodeInvalid, "[url:required]"},
		"both":     {map[string]any{"html": "x", "url": "https://shop.test/"}, crawl.CodeInvalid, "[url:exclusive]"},
		"base":     {map[string]any{"html": "x", "base_url": "ftp://shop.test/"}, crawl.CodeInvalid, "[base_url:url]"},
		"no base":  {map[string]any{"url": "https://shop.test/", "base_url": "https://shop.test/"}, crawl.CodeInvalid, "[base_url:exclusive]"},
		"relative": {map[string]any{"html": "x", "base_url": "/a"}, crawl.CodeInvalid, "[base_url:url]"},
		"fetching": {
			map[string]any{"html": "x", "headers": map[string]any{"X-A": "b"}, "user_agent": "bot", "respect_robots": false},
			crawl.CodeInvalid,
			"[headers:exclusive user_agent:exclusive respect_robots:exclusive]",
		},
		"all of it": {
			map[string]any{"html": "x", "base_url": "x", "fields": bad, "formats": []string{"pdf"}, "main_content": true, "tags": []string{"x"}},
			crawl.CodeInvalid,
			"[tags:unknown base_url:url fields.x.selector:selector fields.x.regex:regex fields.y.selector:required formats[0]:enum main_content:exclusive]",
		},
		"a url":         {map[string]any{"url": "https://shop.test:0/", "user_agent": "a\nb"}, crawl.CodeInvalid, "[url:invalid_url user_agent:pattern]"},
		"other sources": {map[string]any{"url": "https://other.test/"}, crawl.CodeSourceNotAllowed, "[url:source_not_allowed]"},
		"metadata":      {map[string]any{"url": "http://169.254.169.254/latest/"}, crawl.CodeSourceNotAllowed, "[url:source_not_allowed]"},
		"file":          {map[string]any{"url": "file:///etc/passwd"}, crawl.CodeInvalid, "[url:scheme]"},
		"items": {
			map[string]any{"html": "x", "items": map[string]any{"selector": "", "fields": map[string]any{}}},
			crawl.CodeInvalid,
			"[items.selector:required items.fields:required]",
		},
	} {
		p := b.extract(t, tt.in).wantProblem(t, 422, tt.code)
		if got := fmt.Sprint(fieldRules(p)); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	b.call("POST", "/v1/extract", `[]`).wantProblem(t, 400, crawl.CodeMalformed)
	b.call("POST", "/v1/extract?wait=1", `{"html":"x"}`).wantProblem(t, 422, crawl.CodeInvalid)
	b.call("POST", "/v1/extract", `{"html":"x"}`, header("Content-Type", "text/html")).wantProblem(t, 415, codeUnsupportedMediaType)
	b.extract(t, map[string]any{"html": strings.Repeat("x", MaxBody)}).wantProblem(t, 413, crawl.CodeBodyTooLarge)
	b.call("POST", "/v1/extract", `{"html":"x"}`, header("Authorization")).wantProblem(t, 401, crawl.CodeUnauthenticated)
	b.call("GET", "/v1/extract", "").wantProblem(t, 405, codeMethodNotAllowed)
	if len(b.created) > 0 {
		t.Errorf("a job was made: %+v", b.created)
	}
}

// SEC-09: what a page or a selector costs is bounded, whatever they are.
func TestHostileExtractionsSEC09(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	many := map[string]any{}
	for i := range 100 {
		many[fmt.Sprintf("f%d", i)] = map[string]any{"selector": fmt.Sprintf("* ~ p:has(i%d) ~ * ~ * ~ p", i), "many": true}
	}
	for name, in := range map[string]map[string]any{
		"deep":      {"html": strings.Repeat("<div>", 300_000)},
		"deep, <b>": {"html": strings.Repeat("<b><p>", 100_000), "formats": []string{"markdown", "text", "links", "metadata"}},
		"tables":    {"html": strings.Repeat("<table><tr><td>", 60_000), "formats": []string{"markdown", "text"}},
		"selectors": {"html": strings.Repeat("<p>x", 200_000), "fields": many},
		"an expression": {
			"html": strings.Repeat("<a>x", 1000), "fields": map[string]any{"x": map[string]any{"selector": "xpath://*[count(//*[count(//*) > 1]) > 1]"}},
		},
	} {
		a := b.extract(t, in)
		switch a.status {
		case 200:
		case 422:
			if p := a.problem(t); len(p.Errors) != 1 || p.Errors[0].Field != "html" || p.Errors[0].Rule != "too_complex" {
				t.Errorf("%s: %s", name, a.body)
			}
		default:
			t.Errorf("%s: %d %.300s", name, a.status, a.body)
		}
	}
	b.extract(t, map[string]any{"html": strings.Repeat("<div>", 300_000)}).wantProblem(t, 422, crawl.CodeInvalid)
}

// As many pages are worked on as there are cores, and of one tenant half as many: who does
// not get a turn is told to come again.
func TestExtractionsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		page := map[string]any{"html": "x"}
		leave, err := b.server.extractShares.acquire(t.Context(), "a", b.server.extractShares.most)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if a := b.extract(t, page); a.status != 503 || a.problem(t).Code != crawl.CodeOverloaded || a.header.Get("Retry-After") == "" || time.Since(start) != time.Second {
			t.Errorf("after %v: %d %s", time.Since(start), a.status, a.body)
		}
		if a := b.extract(t, page, with(keyB)); a.status != 200 {
			t.Errorf("another tenant: %d %s", a.status, a.body)
		}
		leave()
		all := make([]func(), 0, 64)
		for b.server.extracts.TryAcquire(1) {
			all = append(all, func() { b.server.extracts.Release(1) })
		}
		b.extract(t, page, with(keyB)).wantProblem(t, 503, crawl.CodeOverloaded)
		time.AfterFunc(time.Second/2, all[0])
		if a := b.extract(t, page); a.status != 200 {
			t.Errorf("with a core that came free: %d %s", a.status, a.body)
		}
		for _, free := range all[1:] {
			free()
		}
	})
}

// ends makes the next job of the fake end when it is looked at, with these records.
func (b *bench) ends(state crawl.State, records ...crawl.Page) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = func(ref crawl.JobRef, j *crawl.Job) {
		j.State, b.records[ref] = state, records
		for i := range records {
			records[i].Seq = int64(i + 1)
		}
	}
}

// A URL is fetched by a job of one page, of which nothing is required.
func TestExtractURL(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doc := openAPI(t, b)
	md := "# Chairs"
	b.ends(crawl.Completed,
		crawl.Page{
			SourceURL: "https://shop.test/", URL: "https://shop.test/de/", Title: "The shop", Fields: []byte(`{"h":"Chairs","z":[]}`),
			Notes:   []crawl.Note{{About: "items", What: crawl.NoteCut, Count: 5}, {About: "fields.h", What: crawl.NoteCut, Count: 1}},
			Content: &crawl.Content{Markdown: &md},
		},
		crawl.Page{Item: 1, Fields: []byte(`{"name":"Red","price":1234.50,"link":null}`)},
		crawl.Page{Item: 2, Fields: []byte(`{"name":"","price":null,"link":null}`)},
	)
	in := map[string]any{
		"url": "HTTPS://Shop.test", "items": shopItems, "formats": []string{"markdown"}, "user_agent": "bot", "respect_robots": false,
		"headers": map[string]any{"Authorization": "Bearer sekret"},
		"fields": map[string]any{
			"h": map[string]any{"selector": "h1", "required": true}, "z": map[string]any{"selector": "u", "required": true, "many": true},
		},
	}
	a := b.extract(t, in)
	var got extraction
	a.decode(t, 200, &got)
	if err := doc.check(a.body, "paths", "/v1/extract", "post", "responses", "200", "content", "application/json", "schema"); err != nil {
		t.Error(err)
	}
	job := b.created[0]
	var want extraction
	if err := json.Unmarshal(fmt.Appendf(nil, `{"source_url":"https://shop.test/","url":"https://shop.test/de/","title":"The shop","markdown":"# Chairs",
		"fields":{"h":"Chairs","z":[]},"items":[{"name":"Red","price":1234.50,"link":null}],"items_found":7,"missing":["fields.z"],"job_id":%q,
		"notes":[{"about":"items","what":"cut","count":5},{"about":"fields.h","what":"cut","count":1},
		{"about":"items.fields.name","what":"incomplete","count":1}]}`, job.Job.ID), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, emptyIsNil); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if job.IdempotencyKey != "" || job.Job.Tenant != "a" || fmt.Sprint(job.Tags) != "[extract]" || job.Plan.Retention != 10*time.Minute ||
		len(job.Inputs) != 1 || job.Plan.MaxPages != 1 || job.Plan.UserAgent != "bot" || len(b.rings) != 1 {
		t.Errorf("the job is %+v", job)
	}
	if _, faults := compileAgain(job); len(faults) > 0 || strings.Contains(string(job.Spec), "required") || strings.Contains(string(job.Spec), "sekret") {
		t.Errorf("its spec is %s", job.Spec)
	}
	b.extract(t, in)
	if len(b.created) != 2 {
		t.Errorf("the same again made %d jobs", len(b.created))
	}
	if !b.counts(`trawl_submissions_total{code="",outcome="created"} 2`) {
		t.Error("the jobs are not counted")
	}
	// As in html: what each item lacks is missing.
	b.ends(crawl.Completed, crawl.Page{Fields: []byte(`{"h":"x","z":["x"]}`)}, crawl.Page{Item: 1, Fields: []byte(`{"name":null}`)})
	b.extract(t, in).decode(t, 200, &got)
	if fmt.Sprint(got.Missing) != "[items.fields.name]" || got.Found != 1 {
		t.Errorf("%+v", got)
	}
}

// A page that gave nothing is an answer, too, that says why.
func TestExtractURLThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, tt := range []struct {
		state crawl.State
		urls  []store.URLEntry
		want  pageError
	}{
		{
			crawl.CompletedWithErrors,
			[]store.URLEntry{{State: "failed", Reason: "http_404", Status: 404, Message: "The server has no such page.", FinalURL: "https://shop.test/x"}},
			pageError{"http_404", unlessZero(404), "The server has no such page."},
		},
		{crawl.Failed, []store.URLEntry{{State: "failed", Reason: "dns", Message: "no such host"}}, pageError{"dns", nil, "no such host"}},
		{
			crawl.Completed,
			[]store.URLEntry{{State: "skipped", Reason: "robots", Rule: "Disallow: /"}},
			pageError{"robots", nil, "The page was not taken: skipped, robots, Disallow: /."},
		},
		{crawl.Cancelled, []store.URLEntry{{State: "cancelled"}}, pageError{"cancelled", nil, "The page was not taken: cancelled."}},
		{crawl.Failed, nil, pageError{"internal", nil, "The job ended without the page. Try again."}},
	} {
		b.read = func(ref crawl.JobRef, j *crawl.Job) { j.State, b.urls[ref] = tt.state, tt.urls }
		a := b.extract(t, map[string]any{"url": "https://shop.test/"})
		var got extraction
		a.decode(t, 200, &got)
		if err := openAPI(t, b).check(a.body, "components", "schemas", "Extraction"); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(&tt.want, got.Error); d != "" || got.JobID == nil || len(got.Missing) > 0 {
			t.Errorf("%s, -want +got\n%s", a.body, d)
		}
	}
	for code, status := range map[crawl.Code]int{crawl.CodeQuotaExceeded: 429, crawl.CodeRateLimited: 429, crawl.CodeOverloaded: 503} {
		b.err = crawl.Faultf(code, "The store says so.")
		b.extract(t, map[string]any{"url": "https://shop.test/"}).wantProblem(t, status, code)
	}
}

// Who waits is told after 30 s where the job is; who hangs up changes nothing.
func TestExtractURLTakesLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		looks := 0
		b.read = func(crawl.JobRef, *crawl.Job) { looks++ }
		start := time.Now()
		a := b.extract(t, map[string]any{"url": "https://shop.test/"})
		var got extraction
		a.decode(t, 202, &got)
		if err := openAPI(t, b).check(a.body, "paths", "/v1/extract", "post", "responses", "202", "content", "application/json", "schema"); err != nil {
			t.Error(err)
		}
		if id := b.created[0].Job.ID; got.JobID == nil || *got.JobID != id || a.header.Get("Location") != "/v1/jobs/"+id || got.Error != nil {
			t.Errorf("%v %s", a.header, a.body)
		}
		if took := time.Since(start); took != 30*time.Second || looks > 60 {
			t.Errorf("answered after %v and %d looks", took, looks)
		}
		// It ends while somebody looks.
		b.read = func(ref crawl.JobRef, j *crawl.Job) {
			if time.Since(start) > 40*time.Second {
				j.State, b.records[ref] = crawl.Completed, []crawl.Page{{Title: "late"}}
			}
		}
		b.extract(t, map[string]any{"url": "https://shop.test/"}).decode(t, 200, &got)
		if took := time.Since(start); got.Title != "late" || took > 42*time.Second {
			t.Errorf("after %v: %+v", took, got)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		b.read = func(crawl.JobRef, *crawl.Job) { hangUp() }
		b.extract(t, map[string]any{"url": "https://shop.test/"}, func(r *http.Request) { *r = *r.WithContext(ctx) })
		if len(b.created) != 3 || len(b.rings) != 3 || b.cancels > 0 || len(b.jobs) != 3 {
			t.Errorf("%d jobs, %d rings, %d cancels", len(b.created), len(b.rings), b.cancels)
		}
	})
}

// The examples of the document are taken as they stand.
func TestExtractExamples(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ends(crawl.Completed, crawl.Page{})
	doc := openAPI(t, b)
	body := []string{"paths", "/v1/extract", "post", "requestBody", "content", "application/json"}
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
		if a := b.call("POST", "/v1/extract", string(text)); a.status != 200 {
			t.Errorf("example %s: %d %s", name, a.status, a.body)
		}
	}
	answer := []string{"paths", "/v1/extract", "post", "responses", "200", "content", "application/json"}
	text, err := json.Marshal(doc.at(append(answer, "example")...))
	if err != nil {
		t.Fatal(err)
	}
	var want extraction
	if err := doc.check(string(text), append(answer, "schema")...); err != nil || json.Unmarshal(text, &want) != nil {
		t.Errorf("the answer: %v", err)
	}
	var got extraction
	b.extract(t, extractExamples["html"].Value.(map[string]any)).decode(t, 200, &got)
	if d := cmp.Diff(want, got, emptyIsNil); d != "" {
		t.Errorf("the answer of the document and the answer to its example: -want +got\n%s", d)
	}
	properties, _ := doc.at("components", "schemas", "ExtractRequest", "properties").(map[string]any)
	if d := cmp.Diff(sorted(shapes[typeOfExtract].fields), sorted(properties)); d != "" {
		t.Errorf("-decoder +document:\n%s", d)
	}
}

var typeOfExtract = reflect.TypeFor[extractRequest]()

// emptyIsNil takes an empty list for none, and values by what they say.
var emptyIsNil = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Transformer("values", func(v values) string { return strings.TrimPrefix(string(v), "null") }),
}

// sortedMissing is for requests that were made of maps, which have no order.
func sortedMissing(e extraction) extraction {
	slices.Sort(e.Missing)
	return e
}

func compileAgain(job store.NewJob) (*fields.Program, []crawl.FieldFault) {
	return fields.Compile(fields.Spec{Fields: job.Plan.Fields, Items: job.Plan.Items})
}
