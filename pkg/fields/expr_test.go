package fields

import (
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
)

func TestDerived(t *testing.T) {
	t.Parallel()
	const page = `<b>15k-25k·13薪</b><i>Go</i><i>SQL</i><u>3</u><u>4</u><s>9007199254740993</s><q>1.50</q>`
	const base = `"min":{"selector":"b","regex":"(\\d+)k-","type":"integer"},
		"max":{"selector":"b","regex":"-(\\d+)k","type":"integer"},
		"months":{"selector":"b","regex":"·(\\d+)薪","type":"integer","default":12},"skills":{"selector":"i","many":true},
		"n":{"selector":"u","many":true,"type":"integer"},"none":{"selector":".x","type":"integer"},
		"nothing":{"selector":".x"},
		"big":{"selector":"s","type":"integer"},"price":{"selector":"q","type":"number"},
		"bad":{"selector":"b","type":"integer"}`
	for _, tt := range []struct{ field, want string }{
		{`{"expr":"(min + max) / 2 * months * 1000"}`, `260000`},
		{`{"expr":"min * months * 1000"}`, `195000`},
		{`{"expr":"int(price)","type":"integer"}`, `1`},
		{`{"expr":"price * 2","type":"integer"}`, `3`},
		{`{"expr":"price * 3","type":"integer"}`, `null`},
		{`{"expr":"\"Go\" in skills"}`, `true`},
		{`{"expr":"skills"}`, `["Go","SQL"]`},
		{`{"expr":"join(skills, \", \")"}`, `"Go, SQL"`},
		{`{"expr":"upper(skills[0])"}`, `"GO"`},
		{`{"expr":"len(skills) + sum(n)"}`, `9`},
		{`{"expr":"none * 2"}`, `null`},
		{`{"expr":"none ?? 7"}`, `7`},
		{`{"expr":"none * 2","default":5}`, `5`},
		{`{"expr":"nothing + \"x\""}`, `null`},
		{`{"expr":"min > 10 ? \"high\" : \"low\""}`, `"high"`},
		{`{"expr":"min / 0"}`, `null`},
		{`{"expr":"min % 0"}`, `null`},
		{`{"expr":"big + 1"}`, `9007199254740994`},
		{`{"expr":"big * big"}`, `null`},
		{`{"expr":"big * 2.0","type":"integer"}`, `null`},
		{`{"expr":"skills[5]"}`, `null`},
		{`{"expr":"skills[0] matches \"^G\""}`, `true`},
		{`{"expr":"replace(skills[0], \"o\", \"0\")"}`, `"G0"`},
		{`{"expr":"\"/x/\" + lower(skills[0])","type":"url"}`, `"https://site.test/x/go"`},
		{`{"expr":"\"3 March \" + string(2000 + min)","type":"date"}`, `"2015-03-03"`},
		{`{"expr":"bad + 1"}`, `null`},
		{`{"expr":"[min, max]","many":true,"type":"integer"}`, `[15,25]`},
	} {
		_, result := record(t, `{`+base+`,"f":`+tt.field+`}`, page)
		v, _ := result.Record.Get("f")
		if got := asJSON(t, v); got != tt.want {
			t.Errorf("%s gives %s, want %s", tt.field, got, tt.want)
		}
	}
	_, result := record(t, `{`+base+`,"a":{"expr":"min / 0"},"b":{"expr":"none * 2"}}`, page)
	if result.Unparsed["fields.a"] != 1 || result.Unparsed["fields.b"] != 0 || result.Unparsed["fields.bad"] != 1 {
		t.Errorf("unparsed %v", result.Unparsed)
	}
	// A field may use another derived one, whatever their order.
	got, _ := record(t, `{"c":{"expr":"b + 1"},"b":{"expr":"a + 1"},"a":{"selector":"u","type":"integer"}}`, page)
	if got != `{"c":5,"b":4,"a":3}` {
		t.Error(got)
	}
}

// What has no bound is refused when it is compiled.
func TestExpressionsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		"map(1..1000000, #)", "1..10", "filter(s, true)", "all(s, # == \"\")", "sum(n, # * 2)", "let x = s; x",
		"repeat(t, 1000)", "t; t",
		"{a: 1}", "t matches t", "t matches \"((a{50}){50})\"", "t matches \"(?=x)\"", "now()", "$env", "fromJSON(t)",
		"split(t, \"\")",
		strings.Repeat("t + ", 300) + "t", strings.Repeat("t", 3000), "reduce(n, #acc + #)",
		"t | map(#)", "len", "t.foo()", "n * t", "#", "toJSON(t)", "duration(t)", "keys(t)", "t not matches t", "count(n)",
		strings.Repeat("!", 1000) + "true", strings.Repeat("[", 900),
	} {
		_, faults := Compile(Spec{Fields: Fields{
			{Name: "t", Field: Field{Selector: "p"}},
			{Name: "s", Field: Field{Selector: "p", Many: true}},
			{Name: "n", Field: Field{Selector: "p", Many: true, Type: Integer}},
			{Name: "f", Field: Field{Expr: source}},
		}})
		if len(faults) == 0 || faults[0].Field != "fields.f.expr" && faults[0].Field != "fields.f.type" {
			t.Errorf("%.40s: %+v", source, faults)
		}
	}
}

// Texts do not grow beyond a value, whatever the expression.
func TestTextsOfExpressionsAreBounded(t *testing.T) {
	t.Parallel()
	long := "<p>" + strings.Repeat("a", MaxValueBytes)
	for _, source := range []string{
		strings.TrimSuffix(strings.Repeat("t + ", 90), "+ "), `replace(t, "", t)`, `replace(t, "a", t)`, `join([t, t, t], t)`,
	} {
		_, result := record(t, `{"t":{"selector":"p"},"f":{"type":"text","expr":`+asJSON(t, source)+`}}`, long)
		if v, _ := result.Record.Get("f"); v != nil || result.Unparsed["fields.f"]+len(result.Stopped) == 0 {
			t.Errorf("%.30s gives %.20v", source, v)
		}
	}
}

func FuzzExpr(f *testing.F) {
	for _, s := range []string{
		"t + t", "n * 2 ?? 1", "sum(m)", "join(s, t)", "t matches '^a'", "s[n]", "len(s) > 1 ? t : nil", "1..n",
		"int(t)", "s[1:n]",
	} {
		f.Add(s)
	}
	doc := parse(f, "<p>12<p>b")
	f.Fuzz(func(t *testing.T, source string) {
		p, faults := Compile(Spec{Fields: Fields{
			{Name: "t", Field: Field{Selector: "p"}},
			{Name: "s", Field: Field{Selector: "p", Many: true}},
			{Name: "n", Field: Field{Selector: "p", Type: Integer}},
			{Name: "m", Field: Field{Selector: "p", Type: Number, Many: true}},
			{Name: "f", Field: Field{Expr: source + " "}},
		}})
		if len(faults) > 0 {
			return
		}
		result, err := p.Run(doc, crawl.URL{})
		if err != nil {
			t.Fatal(err)
		}
		asJSON(t, result.Record)
	})
}
