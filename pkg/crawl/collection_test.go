package crawl

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// content is the part of a spec that asks for something, behind an input.
func contentSpec(t *testing.T, content string) *Spec {
	t.Helper()
	return decodeSpec(t, `{"seed_url":"http://a.test/",`+content+`}`)
}

func TestValidateContent(t *testing.T) {
	t.Parallel()
	const two = `"fields":{"title":{"selector":"h1"},"price":{"selector":".p","type":"number"},"tags":{"selector":"li","many":true},
		"sum":{"expr":"price * 2"},"page":{"selector":"b"},"body":{"selector":"p","type":"html"},"long":{"expr":"title","type":"text"}},`
	const items = `"items":{"selector":".card","fields":{"id":{"selector":"a"},"n":{"selector":"i","type":"integer","many":true}}},`
	for _, tt := range []struct {
		name, spec string
		want       []string
	}{
		{"formats", `"formats":["html","markdown","text","links","metadata"]`, nil},
		{"formats twice", `"formats":["html","Markdown","html"]`, []string{"formats[1] enum", "formats[2] duplicate"}},
		{"main content", `"formats":["text"],"main_content":true`, nil},
		{"main content of nothing", `"formats":["links"],"main_content":true`, []string{"main_content exclusive"}},
		{"list pages", `"list_pages":["/list/**","re:page=\\d+"]`, nil},
		{"bad list page", `"list_pages":["list","/a","re:("]`, []string{"list_pages[0] pattern", "list_pages[2] pattern"}},
		{"collection by name", `"collection":"jobs"`, nil},
		{"collection without a name", `"collection":{}`, []string{"collection.name required"}},
		{"names of collections", `"collection":"Jobs"`, []string{"collection.name pattern"}},
		{"long name", `"collection":"` + strings.Repeat("a", 64) + `"`, []string{"collection.name pattern"}},
		{"everything", two + `"collection":{"name":"j","key":"title","facets":["tags","title","price"],"numbers":["price","sum"]}`, nil},
		{"key is no field", two + `"collection":{"name":"j","key":"nope"}`, []string{"collection.key unknown"}},
		{"key of many values", two + `"collection":{"name":"j","key":"tags"}`, []string{"collection.key type"}},
		{"source_url is always there", two + `"collection":{"name":"j","key":"source_url"}`, nil},
		{"items need a key", items + `"collection":"j"`, []string{"collection.key required"}},
		{"items share their page", items + `"collection":{"name":"j","key":"source_url"}`, []string{"collection.key required"}},
		{"a key of items", two + items + `"collection":{"name":"j","key":"id"}`, nil},
		{"the page's field is none of the items", two + items + `"collection":{"name":"j","key":"title"}`, []string{"collection.key unknown"}},
		{
			"facets", two + `"collection":{"name":"j","facets":["title","title","nope","page","body"]}`,
			[]string{"collection.facets[1] duplicate", "collection.facets[2] unknown", "collection.facets[3] type", "collection.facets[4] type"},
		},
		{
			"numbers", two + `"collection":{"name":"j","numbers":["title","tags","long","price"]}`,
			[]string{"collection.numbers[0] type", "collection.numbers[1] type", "collection.numbers[2] type"},
		},
		{"many numbers", items + `"collection":{"name":"j","key":"id","numbers":["n"]}`, []string{"collection.numbers[0] type"}},
		{
			"too many", two + `"collection":{"name":"j","facets":` + quoted(11, "f%d") + `,"numbers":` + quoted(11, "n%d") + `}`,
			[]string{"collection.facets max", "collection.numbers max"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			faults := contentSpec(t, tt.spec).Validate(DefaultLimits())
			if d := cmp.Diff(tt.want, rules(faults), cmp.Transformer("nil", func(s []string) string { return fmt.Sprint(s) })); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			for _, f := range faults {
				if !isSentence(f.Message) {
					t.Errorf("%s: bad message %q", f.Field, f.Message)
				}
			}
		})
	}
	list := decodeSpec(t, `{"urls":["http://a.test/"],"list_pages":["/a"]}`)
	if got := rules(list.Validate(DefaultLimits())); len(got) != 1 || got[0] != "list_pages site_only" {
		t.Errorf("list_pages of a list: %q", got)
	}
}

func TestContentPlan(t *testing.T) {
	t.Parallel()
	src, err := ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	plan := func(spec string) Plan {
		t.Helper()
		p, _, err := decodeSpec(t, spec).Plan(Limits{MaxKeptBytes: 5, MaxItems: 6}, src)
		if err != nil {
			t.Fatal(err)
		}
		// As a worker sees it.
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var stored Plan
		if err := json.Unmarshal(b, &stored); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p, stored, cmp.AllowUnexported(Plan{})); d != "" {
			t.Fatalf("a plan does not come back as it was stored: %s", d)
		}
		return stored
	}
	p := plan(`{"seed_url":"http://a.test/","formats":["links","markdown"],"main_content":true,"list_pages":["/l/*"],
		"fields":{"z":{"selector":"b","group":1,"regex":"(a)"},"a":{"selector":"i","default":[1,2]}},"collection":"jobs"}`)
	if d := cmp.Diff([]string{"markdown", "links"}, p.Formats); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(&Collection{Name: "jobs", Key: KeySourceURL}, p.Collection); d != "" {
		t.Error(d)
	}
	if p.Fields[0].Name != "z" || p.MaxKeptBytes != 5 || p.MaxItems != 6 || len(p.Series) != 22 {
		t.Errorf("plan %+v", p)
	}
	rules, err := p.Rules()
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]bool{"http://a.test/l/1": true, "http://a.test/l/1/2": false, "http://a.test/": false} {
		u, err := ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		if got := rules.ListPage(u); got != want {
			t.Errorf("%s: list page %v", url, got)
		}
	}
	if p := plan(`{"seed_url":"http://a.test/"}`); p.Series != "" || p.Collection != nil {
		t.Errorf("without a collection: %+v", p)
	}
	series := map[string]string{}
	for _, tt := range []struct {
		spec, same string
	}{
		{`"seeds":["http://a.test/","http://b.test/"]`, "first"},
		{`"seeds":["http://b.test","http://a.test/#x","http://a.test/"],"max_pages":7,"tags":["x"],"formats":["text"]`, "first"},
		{`"seeds":["http://b.test"]`, "second"},
		{`"seed_url":"http://b.test"`, "second"},
		{`"urls":["http://b.test"]`, "list"},
		{`"seed_url":"http://b.test","max_depth":1`, "depth"},
		{`"seed_url":"http://b.test","scope":"prefix"`, "scope"},
		{`"seed_url":"http://b.test","exclude":["/x"]`, "exclude"},
		{`"seed_url":"http://b.test","include":["/x"]`, "include"},
		{`"seed_url":"http://b.test","sitemap":"skip"`, "sitemap"},
	} {
		got := plan(`{"collection":"c",` + tt.spec + `}`).Series
		if known, ok := series[tt.same]; ok && known != got {
			t.Errorf("%s is another series than %s", tt.spec, tt.same)
		}
		series[tt.same] = got
	}
	all := map[string]bool{}
	for _, s := range series {
		all[s] = true
	}
	if len(all) != len(series) {
		t.Errorf("series that are not told apart: %v", series)
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	existing := Collection{Name: "j", Key: "id", Facets: []string{"city", "skill"}, Numbers: []string{"n"}}
	for _, tt := range []struct {
		name    string
		given   Collection
		differs []string
	}{
		{"nothing said", Collection{Name: "j"}, nil},
		{"the same", Collection{Name: "j", Key: "id", Facets: []string{"skill", "city"}, Numbers: []string{"n"}}, nil},
		{"part of it", Collection{Name: "j", Numbers: []string{"n"}}, nil},
		{"another key", Collection{Name: "j", Key: KeySourceURL}, []string{"key"}},
		{"fewer", Collection{Name: "j", Facets: []string{"city"}}, []string{"facets"}},
		{"all others", Collection{Name: "j", Key: "k", Facets: []string{}, Numbers: []string{"n", "m"}}, []string{"key", "facets", "numbers"}},
	} {
		c := tt.given
		if d := cmp.Diff(tt.differs, c.Adopt(existing)); d != "" {
			t.Errorf("%s: %s", tt.name, d)
		}
		if tt.differs == nil && c.Key != existing.Key {
			t.Errorf("%s: adopted %+v", tt.name, c)
		}
	}
}

func TestFacetValue(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxFacetBytes-1)
	for in, want := range map[string]string{
		"": "", " \x00 ": "", " a\x00b\u00a0": "ab", long + "é": long, long + " y": long, strings.Repeat("x", MaxFacetBytes): long + "x",
	} {
		got, cut := FacetValue(in)
		if got != want || cut != (len(strings.Trim(in, " \x00\u00a0")) > MaxFacetBytes) {
			t.Errorf("%q: %q, cut %v", in, got, cut)
		}
		if again, _ := FacetValue(got); again != got {
			t.Errorf("%q is counted as %q, and that as %q", in, got, again)
		}
	}
}

func TestCollectionJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]*Collection{
		`"jobs"`:                       {Name: "jobs"},
		` {"name":"jobs","key":"id"} `: {Name: "jobs", Key: "id"},
		`{"name":"jobs","keys":"id"}`:  nil,
		`["jobs"]`:                     nil,
		`7`:                            nil,
	} {
		var got Collection
		err := json.Unmarshal([]byte(in), &got)
		if (err == nil) != (want != nil) {
			t.Errorf("%s: error %v", in, err)
			continue
		}
		if want != nil {
			if d := cmp.Diff(*want, got); d != "" {
				t.Errorf("%s: %s", in, d)
			}
		}
	}
}

// JOB-03: the order of the members of an object has no meaning (RFC 8259 section 4), so it
// makes no other submission; what is asked for does.
func TestDigestOfFields(t *testing.T) {
	t.Parallel()
	base := contentSpec(t, `"fields":{"a":{"selector":"b","default":[1,2]},"c":{"selector":"d"}},"items":{"selector":"x","fields":{"e":{"selector":"f"},"g":{"selector":"h"}}},"collection":"j"`)
	order := fmt.Sprint(base.Fields)
	for spec, same := range map[string]bool{
		`"items":{"fields":{"g":{"selector":"h"},"e":{"selector":"f"}},"selector":"x"},"fields":{"c":{"selector":"d"},"a":{"default":[1, 2],"selector":"b"}},"collection":{"name":"j"}`: true,
		`"fields":{"a":{"selector":"b","default":[2,1]},"c":{"selector":"d"}},"items":{"selector":"x","fields":{"e":{"selector":"f"},"g":{"selector":"h"}}},"collection":"j"`:           false,
		`"fields":{"a":{"selector":"d","default":[1,2]},"c":{"selector":"b"}},"items":{"selector":"x","fields":{"e":{"selector":"f"},"g":{"selector":"h"}}},"collection":"j"`:           false,
		`"fields":{"a":{"selector":"b","default":[1,2]},"c":{"selector":"d"}},"items":{"selector":"x","fields":{"e":{"selector":"f"},"g":{"selector":"h"}}},"collection":"k"`:           false,
	} {
		if got := contentSpec(t, spec).Digest() == base.Digest(); got != same {
			t.Errorf("%s: same %v, want %v", spec, got, same)
		}
	}
	if fmt.Sprint(base.Fields) != order {
		t.Error("a digest changes the order of the fields")
	}
}
