package fields

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// Case SEL-01: what is no selector is refused with its place and what to do, and nothing panics.
func TestSelectorsSEL01(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ selector, rule, message string }{
		{"a[", "selector", "At character 2: the [ has no ]."},
		{"div >", "selector", "At character 6: an element is expected here"},
		{"", "required", "Give a CSS selector"},
		{"   ", "required", "Give a CSS selector"},
		{"p::text", "selector", "At character 2: a page has no ::text. The text is taken by itself"},
		{"p::before", "selector", "Only elements"},
		{":contains(x", "selector", "At character 10: the ( has no )."},
		{"//p", "selector", "xpath:"},
		{"p:has(> b)", "selector", "valid CSS, but not offered"},
		{"p:has(b, + i)", "selector", "valid CSS, but not offered"},
		{"p:nth-child(0n+)", "selector", "At character 2: "},
		{strings.Repeat(":not(", 2000), "max", "at most 1024 bytes"},
		{strings.Repeat(":not(", 20) + "p" + strings.Repeat(")", 20), "selector", "nested"},
		{strings.Repeat("div ", 5000) + "p", "max", "at most 1024 bytes"},
		{"##x", "selector", "At character 1: "},
		{"a@href", "selector", "attr"},
		{"a,", "selector", "At character 3"},
		{"a > > b", "selector", "At character 5"},
		{"> a", "selector", ":scope"},
		{"a :scope", "selector", "first"},
		{":scope + a", "selector", ":scope"},
		{":scope.x", "selector", "alone"},
		{":is(a, b)", "selector", "commas"},
		{"p:unknown", "selector", "unknown"},
		{":matches(x)", "selector", "regex"},
		{"a[href#=x]", "selector", "regex"},
		{":has(a b)", "selector", "Name one element"},
		{"p:contains(2)", "selector", "quotes"},
		{":has(:has(a))", "selector", "inside of :has()"},
		{":not(a b c)", "selector", "inside of :not()"},
		{"a)", "selector", "At character 2"},
		{"a\\", "selector", ""},
		{"a[x='y]", "selector", "no ]"},
		{"xpath:", "xpath", "expected"},
		{"xpath://a[", "xpath", "XPath"},
		{"xpath://a[foo()]", "xpath", "XPath"},
		{"xpath:matches(//a, 'x')", "xpath", "regex"},
		{"xpath:" + strings.Repeat("(", 1000), "xpath", ""},
		{"xpath:" + strings.Repeat("a[", 500), "xpath", ""},
	} {
		_, faults := Compile(Spec{Fields: Fields{{Name: "f", Field: Field{Selector: tt.selector}}}})
		if len(faults) != 1 || faults[0].Field != "fields.f.selector" || faults[0].Rule != tt.rule ||
			!strings.Contains(faults[0].Message, tt.message) {
			t.Errorf("%.40q: %+v, want rule %s and %q", tt.selector, faults, tt.rule, tt.message)
		}
	}
}

// What is valid is accepted, and means what the standard says.
func TestSelectorsThatAreAccepted(t *testing.T) {
	t.Parallel()
	const page = `<div id=a class="x y"><p>1</p><p lang=en>2 <b data-k="v)">b</b></p><span>3</span></div>` +
		`<div id=b><ul><li>4</li></ul></div>`
	for selector, want := range map[string]string{
		"div p":                      "1|2 b",
		"div > span":                 "3",
		"p + p":                      "2 b",
		"p ~ span":                   "3",
		"p,span":                     "1|2 b|3",
		"span , p":                   "1|2 b|3",
		".x.y > p:first-child":       "1",
		"#a p:not(:first-child)":     "2 b",
		"p:has(b)":                   "2 b",
		"div:has(p, q) > span":       "3",
		`[data-k="v)"]`:              "b",
		`b[data-k='v)'], #b`:         "b|4",
		"p:nth-child(2n+1)":          "1",
		"p:contains('2')":            "2 b",
		":root > body > #b li":       "4",
		"*|li":                       "",
		"p:lang(en)":                 "2 b",
		"p:not(div #b)":              "",
		":scope > body > #b":         "4",
		"div div":                    "",
		"body div ul > li":           "4",
		"html body div p ~ span":     "3",
		"body > div + div > ul, b":   "b|4",
		"\tdiv\n>\n\nspan\f":         "3",
		"DIV > SPAN":                 "3",
		"span:last-child:only-child": "",
		`#\61`:                       "1 2 b 3",
	} {
		spec := Spec{Fields: Fields{{Name: "f", Field: Field{Selector: selector, Many: true}}}}
		p, faults := Compile(spec)
		if len(faults) > 0 {
			if want != "" {
				t.Errorf("%s: %+v", selector, faults)
			}
			continue
		}
		result, err := p.Run(parse(t, page), pageURL)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		v, _ := result.Record.Get("f")
		for _, s := range v.([]any) {
			texts = append(texts, s.(string))
		}
		if got := strings.Join(texts, "|"); got != want && want != "" {
			t.Errorf("%s: %q, want %q", selector, got, want)
		}
	}
}

// All faults are told at once, in the order of the spec, each with its path.
func TestFaults(t *testing.T) {
	t.Parallel()
	spec := specOf(t, `{
		"fields": {
			"1x": {"selector":"p"},
			"a": {"selector":"p","type":"money"},
			"a": {"selector":"p"},
			"b": {"selector":"p","regex":"(?=x)","locale":"xx"},
			"c": {"selector":"p","regex":"(a)","group":2},
			"d": {"selector":"p","group":"x"},
			"e": {"selector":"p","attr":"a b"},
			"f": {"selector":"p","type":"number","default":"1"},
			"g": {"selector":"p","required":true,"default":"x"},
			"h": {"selector":"p","type":"html","attr":"x"},
			"i": {"selector":"p","locale":"de"},
			"j": {"selector":"p","many":true,"default":"x"},
			"k": {"selector":"p","type":"date","default":"soon"},
			"l": {"selector":"xpath:count(//p)","attr":"x"},
			"m": {"expr":"1 +"},
			"n": {"expr":"nope + 1"},
			"o": {"expr":"p"}, "p": {"expr":"o"},
			"q": {"expr":"i * 2"},
			"r": {"expr":"1","selector":"p","trim":true},
			"s": {"expr":"i","type":"number"},
			"t": {"expr":"i","many":true},
			"u": {"expr":"[1, \"a\"]"},
			"v": {"expr":"q"}
		},
		"items": {"selector":"li[",
		"fields": {"x":{"selector":"xpath://a"},"y":{"selector":"xpath:(//a)[1]"},"z":{"expr":"i"}}}
	}`)
	p, faults := Compile(spec)
	var got []string
	for _, f := range faults {
		got = append(got, f.Field+" "+f.Rule)
		if len(f.Message) < 20 || !strings.HasSuffix(f.Message, ".") || strings.Contains(f.Message, "\n") {
			t.Errorf("%s: %q is no sentence that helps", f.Field, f.Message)
		}
	}
	want := []string{
		"fields.1x name", "fields.a.type enum", "fields.a duplicate", "fields.b.regex regex", "fields.b.locale enum",
		"fields.c.group group", "fields.d.group group", "fields.e.attr attr", "fields.f.default default",
		"fields.g.default exclusive", "fields.h.type type", "fields.i.locale exclusive", "fields.j.default default",
		"fields.k.default default", "fields.l.attr exclusive", "fields.r.selector exclusive", "fields.r.trim exclusive",
		"fields.m.expr expr", "fields.n.expr unknown", "fields.q.expr expr", "fields.s.type type", "fields.t.many type",
		"fields.u.type required", "fields.o.expr cycle", "fields.p.expr cycle",
		"items.selector selector", "items.fields.x.selector xpath", "items.fields.y.selector xpath",
		"items.fields.z.expr unknown",
	}
	if p != nil {
		t.Error("there is a program")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%+v", diff, faults)
	}
}

// Case SEL-06, for the expressions of fields.
func TestExpressionsSEL06(t *testing.T) {
	t.Parallel()
	for _, regex := range []string{
		"^/blog/(?!draft)", `(\d+)\1`, "[", strings.Repeat("(", 1200), strings.Repeat("a", 600), "(a{100}){100}",
		"((a{50}){50})",
	} {
		_, faults := Compile(Spec{Fields: Fields{{Name: "f", Field: Field{Selector: "p", Regex: regex}}}})
		if len(faults) != 1 || faults[0].Field != "fields.f.regex" || faults[0].Rule != "regex" {
			t.Errorf("%.20s: %+v", regex, faults)
		}
	}
	// Time is bounded: (a+)+$ on 64 KiB.
	got, result := record(t, `{"f":{"selector":"p","regex":"(a+)+$"}}`, "<p>"+strings.Repeat("a", 100_000)+"b")
	if got != `{"f":"a"}` && len(result.Stopped) == 0 && len(got) < 60_000 {
		t.Errorf("%.100s %+v", got, result.Stopped)
	}
}

func TestTooManyFields(t *testing.T) {
	t.Parallel()
	spec := Spec{Items: &Items{Selector: "li"}}
	for i := range MaxFields {
		spec.Fields = append(spec.Fields, NamedField{Name: fmt.Sprintf("f%d", i), Field: Field{Selector: "p"}})
	}
	spec.Items.Fields = Fields{{Name: "x", Field: Field{Selector: "p"}}}
	if _, faults := Compile(spec); len(faults) != 1 || faults[0].Rule != "max" {
		t.Errorf("%+v", faults)
	}
	spec.Items = nil
	if _, faults := Compile(spec); len(faults) > 0 {
		t.Errorf("%+v", faults)
	}
}

func TestSpecJSON(t *testing.T) {
	t.Parallel()
	const text = `{"fields":{"z":{"selector":"p","regex":"(a)(b)","group":2},"a":{"expr":"z"},` +
		`"m":{"selector":"q","group":"n","default":1,"trim":false}},` +
		`"items":{"selector":"li","fields":{"x":{"selector":"a","many":true}}}}`
	if got := asJSON(t, specOf(t, text)); got != text {
		t.Errorf("got  %s\nwant %s", got, text)
	}
	for _, wrong := range []string{
		`{"fields":{"a":{"selektor":"p"}}}`, `{"fields":[]}`, `{"fields":{"a":{"group":[]}}}`, `{"fields":{"a":3}}`,
		`{"fields":{"a":{}`,
	} {
		var spec Spec
		if err := json.Unmarshal([]byte(wrong), &spec); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
	var spec Spec
	err := json.Unmarshal([]byte(`{"fields":null,"items":null}`), &spec)
	if err != nil || spec.Fields != nil || spec.Items != nil {
		t.Errorf("%+v %v", spec, err)
	}
	var nothing crawl.URL
	p, faults := Compile(spec)
	if result, err := p.Run(nil, nothing); len(faults) > 0 || err != nil || result.Record != nil {
		t.Errorf("a spec without fields: %+v %v %v", faults, result, err)
	}
}
