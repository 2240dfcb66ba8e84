package fields

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
)

func parse(t testing.TB, s string) *html.Node {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func specOf(t testing.TB, s string) Spec {
	t.Helper()
	var spec Spec
	if err := json.Unmarshal([]byte(s), &spec); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return spec
}

func compile(t testing.TB, s string) *Program {
	t.Helper()
	p, faults := Compile(specOf(t, s))
	if len(faults) > 0 {
		t.Fatalf("faults: %+v", faults)
	}
	return p
}

var pageURL = func() crawl.URL {
	u, err := crawl.ParseURL("https://site.test/a/page.html")
	if err != nil {
		panic(err)
	}
	return u
}()

// record runs fields on a page and returns the record as JSON, and the whole result.
func record(t testing.TB, fields, page string) (string, Result) {
	t.Helper()
	result, err := compile(t, `{"fields":`+fields+`}`).Run(parse(t, page), pageURL)
	if err != nil {
		t.Fatal(err)
	}
	return asJSON(t, result.Record), result
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

func TestRecords(t *testing.T) {
	t.Parallel()
	const shop = `<base href="/d/"><h1> A <b>big</b>  page </h1>
		<p class=price>€ 1.234,50</p><p class=old></p><time datetime="2024-03-03T10:30:00+01:00">yesterday</time>
		<ul><li>Go<li>SQL<li></ul><a href="x?a=1#f" checked>link</a><a href="mailto:a@b.test">mail</a>
		<img src="//site.test/i.png"><script type="application/ld+json">{"a":1}</script>
		<div id=raw>a <b>c</b></div><dl><dt>Size<dd>12 m<dt>Weight<dd>3 kg</dl>`
	for _, tt := range []struct{ name, fields, want string }{
		{"order of the spec", `{"z":{"selector":"h1"},"a":{"selector":"li"}}`, `{"z":"A big page","a":"Go"}`},
		{"many", `{"s":{"selector":"li","many":true}}`, `{"s":["Go","SQL",""]}`},
		{"nothing matches", `{"s":{"selector":".none"},"m":{"selector":".none","many":true}}`, `{"s":null,"m":[]}`},
		{"empty element", `{"s":{"selector":".old"}}`, `{"s":""}`},
		{
			"default", `{"s":{"selector":".none","default":"?"},"n":{"selector":".none","type":"number","default":1.50}}`,
			`{"s":"?","n":1.5}`,
		},
		{"default of many", `{"s":{"selector":".none","many":true,"default":["a"]}}`, `{"s":["a"]}`},
		{"default is for what matches nothing only", `{"s":{"selector":"h1","type":"number","default":1}}`, `{"s":null}`},
		{"number", `{"n":{"selector":".price","type":"number","locale":"de"}}`, `{"n":1234.5}`},
		{"date of a time element", `{"d":{"selector":"time","type":"date"}}`, `{"d":"2024-03-03T10:30:00+01:00"}`},
		{"text of a time element", `{"d":{"selector":"time"}}`, `{"d":"yesterday"}`},
		{"regex", `{"n":{"selector":"dd","regex":"(\\d+) kg","type":"integer"}}`, `{"n":3}`},
		{"regex without group", `{"n":{"selector":"dd","regex":"\\d+ kg"}}`, `{"n":"3 kg"}`},
		{"regex by name", `{"n":{"selector":"dd","regex":"(\\d)(\\d) (?P<unit>\\w+)","group":"unit"}}`, `{"n":"m"}`},
		{"regex by number", `{"n":{"selector":"dd","regex":"(\\d)(\\d)","group":2}}`, `{"n":"2"}`},
		{"group 0", `{"n":{"selector":"dd","regex":"(\\d)(\\d)","group":0}}`, `{"n":"12"}`},
		{"bool of an attribute", `{"b":{"selector":"a","attr":"checked","type":"bool"}}`, `{"b":true}`},
		{"html", `{"h":{"selector":"#raw","type":"html"}}`, `{"h":"a <b>c</b>"}`},
		{"script that is selected", `{"j":{"selector":"script"}}`, `{"j":"{\"a\":1}"}`},
		{"links", `{"u":{"selector":"a","type":"url","many":true}}`, `{"u":["https://site.test/d/x?a=1"]}`},
		{"raw link", `{"u":{"selector":"a","attr":"href","type":"text"}}`, `{"u":"x?a=1#f"}`},
		{"xpath", `{"x":{"selector":"xpath://dt[.='Weight']/following-sibling::dd[1]"}}`, `{"x":"3 kg"}`},
		{"xpath attribute", `{"x":{"selector":"xpath://a/@href","many":true}}`, `{"x":["x?a=1#f","mailto:a@b.test"]}`},
		{"xpath function", `{"n":{"selector":"xpath:count(//li)","type":"integer"}}`, `{"n":3}`},
		{"xpath string of nothing", `{"n":{"selector":"xpath:string(//none)"}}`, `{"n":null}`},
		{"xpath with attr", `{"n":{"selector":"xpath://a","attr":"HREF"}}`, `{"n":"https://site.test/d/x?a=1"}`},
		{"trim", `{"n":{"selector":"xpath://h1","trim":false}}`, `{"n":" A big page "}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got, _ := record(t, tt.fields, shop); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Case HTM-06.
func TestTextHTM06(t *testing.T) {
	t.Parallel()
	const page = `<div id=x>Hello<script>var a=1</script><style>p{}</style>&nbsp;World<br>next<p>para</p></div>` +
		"<table><tr><td id=t> \n\t a \n b </td><td>c</table><pre id=p>  keep\n  this</pre>" +
		"<p id=s>a&#8195;b&#173;c&#8203;d</p><p id=i>a<b>b</b><span>c</span></p>" +
		"<p id=n><noscript>no</noscript>yes<template>x</template></p>"
	for selector, want := range map[string]string{
		"#x":    "Hello World next para",
		"#t":    "a b",
		"#p":    "keep\n  this",
		"#s":    "a bcd",
		"#i":    "abc",
		"#n":    "yes",
		"table": "a b c",
		"tr":    "a b c",
	} {
		got, _ := record(t, `{"f":{"selector":"`+selector+`"}}`, page)
		if got != asJSON(t, map[string]string{"f": want}) {
			t.Errorf("%s: %s, want %q", selector, got, want)
		}
	}
	if got, _ := record(t, `{"f":{"selector":"#p","trim":false}}`, page); got != `{"f":"  keep\n  this"}` {
		t.Errorf("trim false: %s", got)
	}
}

// Case SEL-05.
func TestAttributesSEL05(t *testing.T) {
	t.Parallel()
	const page = `<base href="/d/"><a href="x" title=""></a><a href=""></a><a></a>` +
		`<img src="//site.test/i.png"><p class=e></p>`
	got, _ := record(t, `{
		"links":{"selector":"a","attr":"href","many":true},
		"first":{"selector":"a","attr":"href"},
		"img":{"selector":"img","attr":"src"},
		"miss":{"selector":".none"}, "misses":{"selector":".none","many":true},
		"empty":{"selector":"p.e"},
		"title":{"selector":"a","attr":"title"}, "absent":{"selector":"img","attr":"title"}}`, page)
	const want = `{"links":["https://site.test/d/x","https://site.test/d/"],"first":"https://site.test/d/x",` +
		`"img":"https://site.test/i.png","miss":null,"misses":[],"empty":"","title":"","absent":null}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRequired(t *testing.T) {
	t.Parallel()
	p := compile(t, `{"fields":{"title":{"selector":"h1","required":true},
		"tags":{"selector":"li","many":true,"required":true},
		"body":{"selector":"p","required":true}}}`)
	result, err := p.Run(parse(t, `<h1> </h1><p>x`), pageURL)
	var fault *crawl.Fault
	if !errors.As(err, &fault) || fault.Code != crawl.CodeMissingField {
		t.Fatalf("error %v", err)
	}
	var paths []string
	for _, f := range fault.Fields {
		paths = append(paths, f.Field)
	}
	if diff := cmp.Diff([]string{"fields.title", "fields.tags"}, paths); diff != "" {
		t.Error(diff)
	}
	if got := asJSON(t, result.Record); got != `{"title":"","tags":[],"body":"x"}` {
		t.Error(got)
	}
}

func TestItems(t *testing.T) {
	t.Parallel()
	const page = `<div class=c><a class=t href=/1>One</a><b>1</b></div><div class=c><b>2</b></div>
		<div class=c><a class=t href=/3>Three</a><i><a class=t>no</a></i></div><a class=t>outside</a>`
	const fields = `{"t":{"selector":".t","required":true},"u":{"selector":".t","type":"url"},
		"n":{"selector":":scope > b","type":"integer"},
		"class":{"selector":":scope","attr":"class"},"all":{"selector":".t","many":true},"x":{"selector":"xpath:.//a[1]"},
		"both":{"selector":"i a, :scope > b","many":true}}`
	const want = `[{"t":"One","u":"https://site.test/1","n":1,"class":"c","all":["One"],"x":"One","both":["1"]},` +
		`{"t":"Three","u":"https://site.test/3","n":null,"class":"c","all":["Three","no"],"x":"Three","both":["no"]}]`
	for _, selector := range []string{"div.c", "body > .c", "xpath://div[@class='c']"} {
		p := compile(t, `{"items":{"selector":"`+selector+`","fields":`+fields+`}}`)
		result, err := p.Run(parse(t, page), pageURL)
		if err != nil {
			t.Fatal(err)
		}
		if got := asJSON(t, result.Items); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", selector, got, want)
		}
		if result.ItemsFound != 3 || result.Incomplete["items.fields.t"] != 1 || result.Record != nil {
			t.Errorf("%+v", result)
		}
	}
}

func TestItemsAllIncomplete(t *testing.T) {
	t.Parallel()
	p := compile(t, `{"items":{"selector":"li","fields":{"t":{"selector":"b","required":true}}}}`)
	if _, err := p.Run(parse(t, `<li>a<li>b`), pageURL); crawl.CodeOf(err) != crawl.CodeMissingField {
		t.Errorf("error %v", err)
	}
	if _, err := p.Run(parse(t, `<p>the last list page is empty`), pageURL); err != nil {
		t.Errorf("a page without items is no fault: %v", err)
	}
}

func TestBoundsOfResult(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", MaxValueBytes)
	_, result := record(t, `{"a":{"selector":"p"},"b":{"selector":"p"},"c":{"selector":"p"},"d":{"selector":"p"},
		"h":{"selector":"p","type":"html"},"x":{"selector":"xpath:string(//p)"}}`, "<p>"+long)
	total := 0
	for _, name := range result.Record.Names() {
		v, _ := result.Record.Get(name)
		s, _ := v.(string)
		total += len(s)
		if len(s) > MaxValueBytes || !strings.HasPrefix(long, s) {
			t.Errorf("%s has %d bytes", name, len(s))
		}
		if result.Cut["fields."+name] == 0 && name != "x" {
			t.Errorf("the cut of %s is not told", name)
		}
	}
	if total > MaxRecordBytes {
		t.Errorf("the record has %d bytes", total)
	}
	_, result = record(t, `{"a":{"selector":"p","many":true}}`, strings.Repeat("<p>x", MaxValues+5))
	if v, _ := result.Record.Get("a"); len(v.([]any)) != MaxValues || result.Cut["fields.a"] != 5 {
		t.Errorf("cut %v", result.Cut)
	}
	p := compile(t, `{"items":{"selector":"li","fields":{"t":{"selector":":scope"}}}}`)
	result, err := p.Run(parse(t, strings.Repeat("<li>x", MaxItems+7)), pageURL)
	if err != nil || len(result.Items) != MaxItems || result.ItemsFound != MaxItems+7 || result.Cut["items"] != 7 {
		t.Errorf("%d of %d items, cut %v, error %v", len(result.Items), result.ItemsFound, result.Cut, err)
	}
	result, err = p.Run(parse(t, strings.Repeat("<li>"+strings.Repeat("x", MaxValueBytes), 100)), pageURL)
	if err != nil || len(result.Items) > MaxResultBytes/MaxValueBytes+1 || result.Cut["items"] == 0 {
		t.Errorf("%d items, cut %v, error %v", len(result.Items), result.Cut, err)
	}
}

func TestUnparsed(t *testing.T) {
	t.Parallel()
	got, result := record(t, `{"n":{"selector":"p","type":"number","many":true},"d":{"selector":"p","type":"date"}}`,
		`<p>1<p>one<p>2<p>1-2`)
	if got != `{"n":[1,2],"d":null}` || result.Unparsed["fields.n"] != 2 || result.Unparsed["fields.d"] != 1 {
		t.Errorf("%s %v", got, result.Unparsed)
	}
}

func TestConcurrentAndDeterministic(t *testing.T) {
	t.Parallel()
	p := compile(t, `{"fields":{"a":{"selector":"ul li:first-child"},"n":{"selector":"xpath:count(//li)","type":"integer"},
		"x":{"selector":"xpath://li[position()=2]"},"t":{"expr":"n * 2"},"s":{"expr":"a + x"}}}`)
	doc := parse(t, `<ul><li>1<li>2<li>3</ul>`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				result, err := p.Run(doc, pageURL)
				if got := asJSON(t, result.Record); err != nil || got != `{"a":"1","n":3,"x":"2","t":6,"s":"12"}` {
					t.Errorf("%s %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}
