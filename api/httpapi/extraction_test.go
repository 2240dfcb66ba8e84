package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// extracting is a submission with everything that says what to take out of a page.
const extracting = `{"seed_url":"https://site.test/","formats":["links","markdown"],"main_content":true,"list_pages":["/list/**"],` +
	`"fields":{"title":{"selector":"h1","required":true},"price":{"selector":".p","type":"number","locale":"de","regex":"([0-9,]+)(?P<unit>.*)",` +
	`"group":"unit","default":1.50},"alt":{"selector":"xpath://img","attr":"alt","many":true,"trim":false,"default":["x","y"]},` +
	`"twice":{"expr":"price * 2"}},` +
	`"items":{"selector":".card","fields":{"id":{"selector":".id"},"n":{"selector":".n","type":"integer","regex":"(.)(.)","group":2}}},` +
	`"collection":{"name":"jobs","key":"id","facets":["id"],"numbers":["n"]}}`

// What a submission says of what to take reaches the worker as it was written, is shown as it
// was decoded, in the order of the caller, and fits the document; so does what is shown.
func TestExtractionReachesThePlan(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, func(o *Options) { o.Quota.MaxKeptBytes, o.Quota.MaxItems = 7, 8 })
	doc := openAPI(t, b)
	if err := doc.check(extracting, "components", "schemas", "Submission"); err != nil {
		t.Error(err)
	}
	var got struct {
		Spec json.RawMessage `json:"spec"`
	}
	b.call("POST", "/v1/jobs", extracting).decode(t, 202, &got)
	p := b.created[0].Plan
	var want submission
	if err := json.Unmarshal([]byte(extracting), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.Fields, p.Fields); d != "" {
		t.Errorf("fields -want +got:\n%s", d)
	}
	if d := cmp.Diff(want.Items, p.Items); d != "" {
		t.Errorf("items -want +got:\n%s", d)
	}
	if d := cmp.Diff(want.Collection, p.Collection); d != "" {
		t.Errorf("collection -want +got:\n%s", d)
	}
	if !slices.Equal(p.Formats, []string{"markdown", "links"}) || !p.MainContent || !slices.Equal(p.ListPages, []string{"/list/**"}) {
		t.Errorf("plan %+v", p)
	}
	if p.MaxKeptBytes != 7 || p.MaxItems != 8 {
		t.Errorf("bounds of %d bytes and %d items, of a quota of 7 and 8", p.MaxKeptBytes, p.MaxItems)
	}
	written, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Spec) != string(written) {
		t.Errorf("shown\n%s\nof\n%s", got.Spec, written)
	}
	if err := doc.check(string(got.Spec), "components", "schemas", "ShownSpec"); err != nil {
		t.Error(err)
	}
}

// The document takes what the decoder takes, and refuses the kinds that it refuses.
func TestExtractionInTheDocument(t *testing.T) {
	t.Parallel()
	doc := openAPI(t, newBench(t))
	for _, tt := range []struct {
		with string
		fits bool
	}{
		{`"collection":"jobs"`, true},
		{`"collection":{"name":"jobs"}`, true},
		{`"collection":{"key":"source_url"}`, false},
		{`"collection":{"name":"jobs","x":1}`, false},
		{`"collection":1`, false},
		{`"collection":["jobs"]`, false},
		{`"fields":{}`, true},
		{`"fields":[]`, false},
		{`"fields":{"a":"h1"}`, false},
		{`"fields":{"a":{"selector":"a","x":1}}`, false},
		{`"fields":{"a":{"selector":["a"]}}`, false},
		{`"fields":{"a":{"selector":"a","group":1,"regex":"(a)"}}`, true},
		{`"fields":{"a":{"selector":"a","group":"g","regex":"(?P<g>a)"}}`, true},
		{`"fields":{"a":{"selector":"a","group":1.5,"regex":"(a)"}}`, false},
		{`"fields":{"a":{"selector":"a","group":true,"regex":"(a)"}}`, false},
		{`"fields":{"a":{"selector":"a","default":"x"}}`, true},
		{`"fields":{"a":{"selector":"a","type":"number","default":-1.5}}`, true},
		{`"fields":{"a":{"selector":"a","type":"bool","default":false}}`, true},
		{`"fields":{"a":{"selector":"a","many":true,"default":["x",""]}}`, true},
		{`"fields":{"a":{"selector":"a","default":{"x":1}}}`, false},
		{`"fields":{"a":{"selector":"a","many":true,"default":[[1]]}}`, false},
		{`"fields":{"a":{"selector":"a","type":"colour"}}`, false},
		{`"fields":{"a":{"selector":"a","type":"number","locale":"tlh"}}`, false},
		{`"fields":{"a":{"selector":"a","type":"number","locale":"de"}}`, true},
		{`"items":{"selector":"a","fields":{"a":{"selector":"b"}}}`, true},
		{`"items":{"selector":"a"}`, false},
		{`"items":"a"`, false},
		{`"formats":["markdown","text","html","links","metadata"]`, true},
	} {
		body := `{"urls":["https://site.test/"],` + tt.with + "}"
		if err := doc.check(body, "components", "schemas", "Submission"); (err == nil) != tt.fits {
			t.Errorf("%s: the document says %v", tt.with, err)
		}
		b := newBench(t)
		if a := b.call("POST", "/v1/jobs", body); (a.status == 202) != tt.fits || !tt.fits && a.status != 422 {
			t.Errorf("%s: %d %s", tt.with, a.status, a.body)
		}
	}
	for _, tt := range []struct {
		schema, field, bound string
		want                 int
	}{
		{"FieldSpec", "selector", "maxLength", crawl.MaxSelectorBytes},
		{"FieldSpec", "attr", "maxLength", crawl.MaxAttrBytes},
		{"FieldSpec", "regex", "maxLength", crawl.MaxRegexBytes},
		{"FieldSpec", "expr", "maxLength", crawl.MaxExprBytes},
		{"ItemsSpec", "selector", "maxLength", crawl.MaxSelectorBytes},
		{"ItemsSpec", "fields", "maxProperties", crawl.MaxFields},
		{"Submission", "fields", "maxProperties", crawl.MaxFields},
		{"Submission", "formats", "maxItems", len(crawl.Formats)},
		{"CollectionSpec", "facets", "maxItems", crawl.MaxFacets},
		{"CollectionSpec", "numbers", "maxItems", crawl.MaxNumbers},
	} {
		got, _ := doc.at("components", "schemas", tt.schema, "properties", tt.field, tt.bound).(json.Number)
		if got.String() != fmt.Sprint(tt.want) {
			t.Errorf("%s.%s: %s is %s, want %d", tt.schema, tt.field, tt.bound, got, tt.want)
		}
	}
	for _, schema := range []string{"FieldSpec", "ItemsSpec", "CollectionSpec", "Note", "Link"} {
		properties, _ := doc.at("components", "schemas", schema, "properties").(map[string]any)
		if len(properties) == 0 {
			t.Errorf("there is no schema %s", schema)
		}
		for name := range properties {
			if text, _ := doc.at("components", "schemas", schema, "properties", name, "description").(string); text == "" {
				t.Errorf("%s.%s is not described", schema, name)
			}
		}
	}
}

// All that is wrong is told at once, by the names that the caller wrote: what stands in a field
// and what no field is, what does not compile, and what else the job has.
func TestFaultsOfExtraction(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		want       []string
	}{
		{
			"everything at once", `{"seed_url":"https://site.test/","max_pages":0,"nope":1,"collection":{"name":"UP","keys":1},` +
				`"fields":{"title":{"selector":"h1:::[","selectr":1},"b c":{"selector":"b","regex":"("},"x":{"selector":"xpath://["}},` +
				`"items":{"selector":"","fields":{"p":{"selector":"p","type":"colour","Many":true}}}}`,
			[]string{
				"nope:unknown", "collection.keys:unknown", "fields.title.selectr:unknown", "items.fields.p.Many:unknown", "max_pages:min",
				"collection.name:pattern", "collection.key:required", "fields.title.selector:selector", "fields.b c:name", "fields.b c.regex:regex",
				"fields.x.selector:xpath", "items.selector:required", "items.fields.p.type:enum",
			},
		},
		{
			"types", `{"seed_url":"https://site.test/","fields":{"a":{"selector":1,"many":"x","group":{},"trim":0},"b":"h1"},"collection":5,"items":[]}`,
			[]string{
				"fields.a.selector:type", "fields.a.many:type", "fields.a.group:type", "fields.a.trim:type", "fields.b:type", "collection:type", "items:type",
			},
		},
		{
			"JOB-04 letter case", `{"seed_url":"https://site.test/","fields":{"a":{"selector":"a","SELECTOR":"b"},"A":{"selector":"a"}},` +
				`"collection":{"name":"x","Name":"y"}}`,
			[]string{"fields.a.SELECTOR:duplicate", "fields.A:duplicate", "collection.Name:duplicate"},
		},
		{"unknown alone hides nothing", `{"fields":{"a":{"x":1}}}`, []string{"fields.a.x:unknown", "urls:required", "fields.a.selector:required"}},
		{"an empty field", `{"urls":["https://site.test/"],"fields":{"a":null}}`, []string{"fields.a.selector:required"}},
		{
			"the collection", `{"urls":["https://site.test/"],"fields":{"a":{"selector":"a"}},"collection":{"name":"x","key":"b","facets":["c"],"numbers":["a"]}}`,
			[]string{"collection.key:unknown", "collection.facets[0]:unknown", "collection.numbers[0]:type"},
		},
	} {
		b := newBench(t)
		for _, path := range []string{"/v1/jobs", "/v1/jobs/preview"} {
			p := b.call("POST", path, tt.body).wantProblem(t, 422, crawl.CodeInvalid)
			if d := cmp.Diff(tt.want, fieldRules(p)); d != "" {
				t.Errorf("%s %s -want +got:\n%s", path, tt.name, d)
			}
			for _, f := range p.Errors {
				if r := []rune(f.Message); !unicode.IsUpper(r[0]) && r[0] != '"' || !strings.HasSuffix(f.Message, ".") {
					t.Errorf("%s: %q is no sentence", f.Field, f.Message)
				}
			}
		}
		if len(b.created) != 0 {
			t.Error("it was stored")
		}
	}
}

// What is not allowed does not take the place of what is not valid.
func TestFaultsOfExtractionWithSources(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, func(o *Options) { o.Sources = sourcesOf(t, "site.test") })
	p := b.call("POST", "/v1/jobs", `{"urls":["https://alien.test/"],"fields":{"a":{}}}`).wantProblem(t, 422, crawl.CodeInvalid)
	if d := cmp.Diff([]string{"urls[0]:source_not_allowed", "fields.a.selector:required"}, fieldRules(p)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A null is not given, also where the type of a field would take one for a value.
func TestNullsOfExtraction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, body := range []string{
		`{"urls":["https://site.test/"],"fields":{"a":{"selector":"a","regex":"(a)"}}}`,
		`{"sitemap":null,"urls":["https://site.test/"],"items":null,"collection":null,"fields":{"a":{"attr":null,"many":null,"selector":"a","required":null,` +
			`"type":null,"regex":"(a)","group":null,"default":null,"trim":null,"locale":null,"expr":null}},"formats":null}`,
		`{"urls":["https://site.test/"],"fields":{"a":{"group":null,"default":null,"selector":"a","regex":"(a)","trim":null}},"items":null}`,
	} {
		if a := b.call("POST", "/v1/jobs", body, header("Idempotency-Key", "k")); a.status != 202 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if len(b.created) != 1 {
		t.Errorf("%d inputs", len(b.created))
	}
}

// JOB-03: the order of the names of fields makes no other input, nor do spellings of one group;
// what is taken does.
func TestFieldsAreInputJOB03(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, tt := range []struct {
		with   string
		status int
	}{
		{`"fields":{"a":{"selector":"a","regex":"(x)","group":1},"b":{"selector":"b"}},"collection":"c"`, 202},
		{`"collection":{"name":"c"},"fields":{"b":{"selector":"b"},"a":{"group":"1","regex":"(x)","selector":"a","many":false}}`, 202},
		{`"fields":{"a":{"selector":"a","regex":"(x)","group":0},"b":{"selector":"b"}},"collection":"c"`, 409},
		{`"fields":{"a":{"selector":"a","regex":"(x)","group":1},"b":{"selector":"b"}},"collection":"d"`, 409},
		{`"fields":{"a":{"selector":"a","regex":"(x)","group":1}},"collection":"c"`, 409},
	} {
		body := `{"urls":["https://site.test/"],` + tt.with + `}`
		if a := b.call("POST", "/v1/jobs", body, header("Idempotency-Key", "k")); a.status != tt.status {
			t.Errorf("%s: %d %s", tt.with, a.status, a.body)
		}
	}
	// The order is the caller's all the same.
	if got := b.created[0].Plan.Fields; got[0].Name != "a" {
		t.Errorf("fields %+v", got)
	}
}

// SEC-09: what does not compile, or takes too long to, is refused by its name at once, and
// nothing is stored.
func TestHostileExtraction(t *testing.T) {
	t.Parallel()
	many := func(n int, entry string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"f%d":%s`, i, entry)
		}
		return b.String()[1:]
	}
	quoted := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	one := func(of string) string { return `"fields":{"a":` + of + "}" }
	for _, tt := range []struct {
		name, with string
		want       []string // the first of them
	}{
		{"a selector that cannot compile", one(`{"selector":"h1:::[("}`), []string{"fields.a.selector:selector"}},
		{"SEL-06 nested repetition", one(`{"selector":"a","regex":"((a{100}){100}){100}"}`), []string{"fields.a.regex:regex"}},
		{"SEL-06 a long repetition of a class", one(`{"selector":"a","regex":"\\pL{1000}"}`), []string{"fields.a.regex:regex"}},
		{"look-ahead", one(`{"selector":"a","regex":"(?!x)"}`), []string{"fields.a.regex:regex"}},
		{"a loop", one(`{"expr":"map(1..1000000000, # * 2)"}`), []string{"fields.a.expr:expr"}},
		{"a field of itself", one(`{"expr":"a + 1"}`), []string{"fields.a.expr:cycle"}},
		{"a long expression", one(`{"expr":"1` + strings.Repeat("+1", 10_000) + `"}`), []string{"fields.a.expr:max"}},
		{"a deep expression", one(`{"expr":"` + strings.Repeat("!", 1000) + "true" + `"}`), nil},
		{"a deep selector", one(`{"selector":"` + strings.Repeat(":not(", 200) + "a" + strings.Repeat(")", 200) + `"}`), []string{"fields.a.selector:max"}},
		{"a nested selector", one(`{"selector":"` + strings.Repeat(":not(", 150) + "a" + strings.Repeat(")", 150) + `"}`), nil},
		{"a deep XPath", one(`{"selector":"xpath:` + strings.Repeat("(", 500) + "a" + strings.Repeat(")", 500) + `"}`), nil},
		{"a long selector", one(`{"selector":"` + strings.Repeat("a ", 100_000) + `"}`), []string{"fields.a.selector:max"}},
		{"a long default", one(`{"selector":"a","default":"` + strings.Repeat("x", 4096) + `"}`), []string{"fields.a.default:max"}},
		{"a deep default", one(`{"selector":"a","default":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`), []string{"fields.a.default:default"}},
		{"10,000 fields", `"fields":{` + many(10_000, `{"selector":"a"}`) + "}", []string{"fields:max"}},
		{"1,000 fields", `"fields":{` + many(1000, `{"selector":"a"}`) + "}", []string{"fields:max"}},
		{"100 costly selectors", `"fields":{` + many(100, `{"selector":"`+strings.Repeat(":has(a,", 90)+`"}`) + "}", []string{"fields.f0.selector:selector"}},
		{"100 costly expressions", `"fields":{` + many(100, `{"selector":"a","regex":"((a{50}){50}){50}","type":"x","group":9,"locale":"x"}`) + "}", nil},
		{"a name of quotes", `"fields":{"\"'<>":{"selector":"a"}}`, []string{"fields.\"'<>:name"}},
		{"a name of control characters", `"fields":{"a\r\n\u001b[31m":{"selector":"a"}}`, []string{"fields.a\r\n\x1b[31m:name"}},
		{"a name that is a path", `"fields":{"a.b":{"selector":"a"},"__proto__":{"selector":"a"},"":{"selector":"a"}}`, nil},
		{"a long name", `"fields":{"` + strings.Repeat("n", 100_000) + `":{"selector":"a"}}`, nil},
		{"SEC-10 a collection that is a path", `"collection":"../x"`, []string{"collection.name:pattern"}},
		{"a collection of another key", `"collection":"{b}:x\r\n"`, []string{"collection.name:pattern"}},
		{"a collection without a name", `"collection":""`, []string{"collection.name:required"}},
		{"a long collection", `"collection":"` + strings.Repeat("c", 100_000) + `"`, []string{"collection.name:pattern"}},
		{"facets that are none", `"collection":{"name":"c","facets":[` + quoted("a\r\nEvil") + `]}`, []string{"collection.facets[0]:unknown"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			begin := time.Now()
			a := b.call("POST", "/v1/jobs", `{"seed_url":"http://site.test/",`+tt.with+"}")
			took := time.Since(begin)
			p := a.wantProblem(t, 422, crawl.CodeInvalid)
			rules := fieldRules(p)
			if len(rules) < len(tt.want) || !slices.Equal(rules[:len(tt.want)], tt.want) {
				t.Errorf("%q, want %q", rules, tt.want)
			}
			if len(rules) == 0 || len(rules) > 2*maxFaults+2 || len(a.body) > 64<<10 {
				t.Errorf("%d faults, an answer of %d bytes", len(rules), len(a.body))
			}
			for _, f := range p.Errors {
				if strings.ContainsFunc(f.Message, unicode.IsControl) || len(f.Field) > 4*maxName {
					t.Errorf("%q: %q", f.Field, f.Message)
				}
			}
			if len(b.created) != 0 {
				t.Error("it was stored")
			}
			// Not a measure of speed: what has no bound takes minutes.
			if took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A submission to a collection that is there takes over what it leaves open of its definition,
// may repeat it in any order, and is refused with what the collection has where it says otherwise.
func TestDefinitionIsAdopted(t *testing.T) {
	t.Parallel()
	existing := crawl.Collection{Name: "jobs", Key: "id", Facets: []string{"city"}, Numbers: []string{"n"}}
	const taken = `"fields":{"id":{"selector":"a"},"city":{"selector":"b"},"n":{"selector":"c","type":"number"}}`
	for _, tt := range []struct {
		name, with string
		want       []string // faults; nil for none
	}{
		{"the name alone", taken + `,"collection":"jobs"`, nil},
		{"a part", taken + `,"collection":{"name":"jobs","facets":["city"]}`, nil},
		{"all of it", taken + `,"collection":{"name":"jobs","key":"id","facets":["city"],"numbers":["n"]}`, nil},
		{"another key", taken + `,"collection":{"name":"jobs","key":"city"}`, []string{"collection.key:collection"}},
		{
			"all other", taken + `,"collection":{"name":"jobs","key":"source_url","facets":[],"numbers":[]}`,
			[]string{"collection.key:collection", "collection.facets:collection", "collection.numbers:collection"},
		},
		{"no such field", `"fields":{"n":{"selector":"c","type":"number"},"city":{"selector":"b"}},"collection":"jobs"`, []string{"collection.key:collection"}},
		{"a field of another type", `"fields":{"id":{"selector":"a"},"city":{"selector":"b"},"n":{"selector":"c"}},"collection":"jobs"`, []string{"collection.numbers[0]:collection"}},
	} {
		b := newBench(t)
		b.define = func(c crawl.Collection) error {
			if differs := c.Adopt(existing); len(differs) > 0 || c.Key != existing.Key {
				return &store.OtherDefinitionError{Existing: existing}
			}
			return nil
		}
		a := b.call("POST", "/v1/jobs", `{"urls":["https://site.test/"],`+tt.with+"}")
		if tt.want == nil {
			if a.status != 202 || len(b.created) != 1 {
				t.Errorf("%s: %d %s", tt.name, a.status, a.body)
				continue
			}
			if d := cmp.Diff(&existing, b.created[0].Plan.Collection); d != "" {
				t.Errorf("%s: -want +got:\n%s", tt.name, d)
			}
			// What is shown, and what a replay is compared with, is what was sent.
			if spec := string(b.created[0].Spec); tt.name == "the name alone" && !strings.Contains(spec, `"collection":{"name":"jobs"}`) {
				t.Errorf("stored as %s", spec)
			}
			continue
		}
		p := a.wantProblem(t, 422, crawl.CodeInvalid)
		if d := cmp.Diff(tt.want, fieldRules(p)); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
		for _, f := range p.Errors {
			if !strings.Contains(f.Message, "jobs") {
				t.Errorf("%s: it says %q", tt.name, f.Message)
			}
		}
		if len(b.created) != 0 {
			t.Error("it was stored")
		}
	}
}

// A collection that is defined anew between two tries is adopted again, but not for ever, and
// what else the store says is passed on.
func TestDefinitionThatChanges(t *testing.T) {
	t.Parallel()
	const body = `{"urls":["https://site.test/"],"fields":{"a":{"selector":"a"},"b":{"selector":"b"}},"collection":"jobs"}`
	b := newBench(t)
	asked := 0
	b.define = func(crawl.Collection) error {
		asked++
		return &store.OtherDefinitionError{Existing: crawl.Collection{Name: "jobs", Key: []string{"a", "b"}[asked%2]}}
	}
	b.call("POST", "/v1/jobs", body).wantProblem(t, 503, crawl.CodeUnavailable)
	if asked != adoptions {
		t.Errorf("asked %d times, want %d", asked, adoptions)
	}
	asked = 0
	b.define = func(crawl.Collection) error {
		if asked++; asked > 1 {
			return nil
		}
		return &store.OtherDefinitionError{Existing: crawl.Collection{Name: "jobs", Key: "b"}}
	}
	if a := b.call("POST", "/v1/jobs", body); a.status != 202 || b.created[0].Plan.Collection.Key != "b" {
		t.Errorf("%d %s", a.status, a.body)
	}
	b.define = func(crawl.Collection) error {
		return &crawl.Fault{Code: crawl.CodeInvalid, Message: "Too many.", Fields: []crawl.FieldFault{
			{Field: "collection.name", Rule: "max", Message: "Delete one."},
		}}
	}
	p := b.call("POST", "/v1/jobs", body).wantProblem(t, 422, crawl.CodeInvalid)
	if d := cmp.Diff([]string{"collection.name:max"}, fieldRules(p)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	b.define = func(crawl.Collection) error { return errors.New("a secret of the store") }
	if a := b.call("POST", "/v1/jobs", body); a.status != 500 || strings.Contains(a.body, "secret") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
