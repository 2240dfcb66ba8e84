package fields

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
)

// deep is a page whose elements are nested as deep as the parser lets them be, with many times as
// many elements.
func deep(levels, wide int) string {
	return strings.Repeat("<div class=a>", levels) + strings.Repeat("<p class=b>x</p>", wide)
}

// tree builds nesting that the parser would not.
func tree(levels int) *html.Node {
	doc := &html.Node{Type: html.DocumentNode}
	at := doc
	for range levels {
		next := &html.Node{Type: html.ElementNode, Data: "div"}
		at.AppendChild(next)
		at = next
	}
	at.AppendChild(&html.Node{Type: html.TextNode, Data: "x"})
	return doc
}

// Each of these would take from minutes to forever without a bound. They end, having taken no more
// steps than there are, and the field behind them still has its value.
func TestWorkIsBounded(t *testing.T) {
	t.Parallel()
	wide := parse(t, "<h1>t</h1>"+strings.Repeat("<p class=b>x y</p>", 10_000))
	nested := parse(t, "<h1>t</h1>"+deep(300, 3000))
	for name, doc := range map[string]*html.Node{"wide": wide, "nested": nested} {
		for _, selector := range []string{
			"xpath://*//*//*", "xpath://*[count(.//*) > 1]", "xpath://p[position() = last()]",
			"xpath://*[contains(., 'z')]//*[contains(., 'q')]",
			"xpath:count(//*//*//*//*//*)", "xpath://p[. = //p]", "xpath://p[preceding::p[preceding::p[preceding::p]]]",
			"xpath://p | //p[//p] | //*",
			"xpath:concat(//p[//p[//p]], //p)", "q div div div div div div div p", "x div div div div div div div > p",
			"x ~ p ~ p ~ p ~ p ~ p ~ p",
			":has(z)", ":contains('zz'):contains('yy')", "p:nth-child(2):nth-last-child(3)", ":not(q p):not(r p)",
			"p:only-of-type ~ p:only-of-type",
			strings.Repeat(":has(z),", 100) + "z",
		} {
			p, faults := Compile(Spec{Fields: Fields{
				{Name: "hard", Field: Field{Selector: selector, Many: true}}, {Name: "title", Field: Field{Selector: "h1"}},
			}})
			if len(faults) > 0 {
				t.Errorf("%s: %+v", selector, faults)
				continue
			}
			p.steps /= 4
			result, err := p.Run(doc, pageURL)
			if err != nil {
				t.Fatal(err)
			}
			if title, _ := result.Record.Get("title"); title != "t" && result.Cut["fields.title"] == 0 {
				t.Errorf("%s, %s: title %v, stopped %v", name, selector, title, result.Stopped)
			}
		}
	}
}

func TestDeepTrees(t *testing.T) {
	t.Parallel()
	doc := tree(50_000)
	p := compile(t, `{"fields":{"a":{"selector":"div"},"b":{"selector":"div div > div","many":true},
		"c":{"selector":"xpath://div"},"h":{"selector":"div","type":"html"}},
		"items":{"selector":"div","fields":{"x":{"selector":":scope > div"}}}}`)
	first, err := p.Run(doc, pageURL)
	if err != nil {
		t.Fatal(err)
	}
	again, err := p.Run(doc, pageURL)
	if err != nil || asJSON(t, first) != asJSON(t, again) {
		t.Error("two runs of one page differ")
	}
	if len(first.Items) > MaxItems {
		t.Errorf("%d items", len(first.Items))
	}
}

// The steps that are left are the same for each run.
func TestStoppedIsDeterministic(t *testing.T) {
	t.Parallel()
	doc := parse(t, strings.Repeat("<p>x</p>", 10_000))
	p := compile(t, `{"fields":{"a":{"selector":"xpath://*[count(//p) > 20000]","many":true},
		"r":{"selector":"xpath:count(//p[count(//p) > 1])","required":true},"b":{"selector":"p"}}}`)
	p.steps /= 16
	first, err := p.Run(doc, pageURL)
	if crawl.CodeOf(err) != crawl.CodeMissingField || len(first.Stopped) == 0 {
		t.Fatalf("stopped %v, error %v", first.Stopped, err)
	}
	second, _ := p.Run(doc, pageURL)
	if asJSON(t, first) != asJSON(t, second) {
		t.Errorf("%s\n%s", asJSON(t, first), asJSON(t, second))
	}
}

func FuzzSelector(f *testing.F) {
	for _, s := range []string{
		"a[", "div > p", "p:has(> b)", ":not(a, b)", "a\\", `[x="]"]`, ":scope > a", "xpath://a[1]", "xpath:count(//p)",
		"*|*", "a,b", "xpath:string-join(//p, '-')",
		"xpath:substring(//p, 0, -1)", "xpath://@*", "xpath:sum(//p)", "xpath:reverse(//p)",
		"xpath://p[last()-1]/ancestor::*", "p:nth-last-of-type(-n+3)",
	} {
		f.Add(s)
	}
	doc := parse(f, `<div class=a id=b><p lang=en>1<p>2<b x="]">3</b></div><!-- c --><ul><li>4<li>5</ul>`)
	f.Fuzz(func(t *testing.T, selector string) {
		for _, inItem := range []bool{false, true} {
			list := Fields{{Name: "f", Field: Field{Selector: selector, Many: true}}}
			spec := Spec{Fields: list}
			if inItem {
				spec = Spec{Items: &Items{Selector: "div, li", Fields: list}}
			}
			p, faults := Compile(spec)
			if len(faults) > 0 {
				continue
			}
			result, err := p.Run(doc, pageURL)
			if err != nil {
				t.Fatal(err)
			}
			asJSON(t, result)
		}
	})
}

func FuzzRegex(f *testing.F) {
	f.Add(`(\d+)k`, "1", "15k")
	f.Add(`(?P<n>a)|b`, "n", "b")
	f.Add(`((a{10}){10})+$`, "0", strings.Repeat("a", 500))
	f.Fuzz(func(t *testing.T, regex, group, text string) {
		p, faults := Compile(Spec{Fields: Fields{
			{Name: "f", Field: Field{Selector: "p", Attr: "title", Regex: regex, Group: Group(group)}},
		}})
		if len(faults) > 0 {
			return
		}
		doc := &html.Node{Type: html.ElementNode, Data: "p", Attr: []html.Attribute{{Key: "title", Val: text}}}
		if _, err := p.Run(doc, pageURL); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzRun(f *testing.F) {
	f.Add("<h1>a</h1><p>b<script>c</script><pre>\n d</pre><base href=x><a href=y>z</a><table><td>1<td>2")
	f.Add("<svg><foreignObject><p>x</svg><template><li>y</template><li><time datetime=2024>1</time>")
	f.Add("<plaintext>x<pre></pre>")
	p := compile(f, `{"fields":{"t":{"selector":"h1, p"},"all":{"selector":"*","many":true},
		"h":{"selector":"body","type":"html"},
		"u":{"selector":"*","type":"url","many":true},"n":{"selector":"td","type":"number","many":true},
		"d":{"selector":"time","type":"date"},
		"x":{"selector":"xpath://node()","many":true},"a":{"selector":"xpath://@*","many":true},
		"s":{"selector":"xpath:normalize-space(//body)"},
		"f":{"selector":":first-child:not(:empty) ~ *","many":true},"e":{"expr":"len(all) + len(n)"}},
		"items":{"selector":"li, td","fields":{"x":{"selector":":scope"},"y":{"selector":"xpath:.//*"},
		"z":{"selector":"* > *","trim":false}}}}`)
	f.Fuzz(func(t *testing.T, page string) {
		doc, err := html.Parse(strings.NewReader(page))
		if err != nil {
			return
		}
		before := rendered(doc)
		result, err := p.Run(doc, pageURL)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := p.Run(doc, pageURL)
		b, err := json.Marshal(result)
		c, _ := json.Marshal(again)
		if err != nil || string(b) != string(c) {
			t.Errorf("two runs differ, or %v\n%s\n%s", err, b, c)
		}
		if rendered(doc) != before {
			t.Error("the page was changed")
		}
	})
}

func rendered(doc *html.Node) string {
	var b strings.Builder
	if err := html.Render(&b, doc); err != nil {
		return err.Error()
	}
	return b.String()
}

// article is a page of 60 KB.
func article() string {
	var b strings.Builder
	b.WriteString(`<html lang=en><head><title>News</title><meta name=description content="All about it"></head>
		<body><header><h1>The title</h1>
		<time datetime="2024-03-03T10:00:00Z">3 March</time><span class=author>A. Writer</span></header><article>`)
	for i := range 180 {
		fmt.Fprintf(&b, `<section id=s%d><h2>Part %d</h2><p class="text lead">%s <a href="/part/%d">more</a></p>
			<ul><li>one</li><li>two</li></ul></section>`,
			i, i, strings.Repeat("Some words of text. ", 10), i)
	}
	b.WriteString(`</article><footer><p class=price>EUR 1,234.50</p></footer></body></html>`)
	return b.String()
}

func BenchmarkTenFields(b *testing.B) {
	page := article()
	doc := parse(b, page)
	p := compile(b, `{"fields":{"title":{"selector":"h1","required":true},
		"description":{"selector":"meta[name=description]","attr":"content"},
		"published":{"selector":"header time","type":"date"},"author":{"selector":".author"},
		"price":{"selector":"footer .price","type":"number","locale":"en"},
		"lead":{"selector":"article p.lead"},"links":{"selector":"section a","attr":"href","many":true},
		"parts":{"selector":"h2","many":true},
		"first":{"selector":"xpath://section[1]/h2"},"total":{"expr":"price * 2"}}}`)
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Run(doc, pageURL); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkItems(b *testing.B) {
	doc := parse(b, article())
	p := compile(b, `{"items":{"selector":"section","fields":{"title":{"selector":"h2"},"text":{"selector":"p"},
		"url":{"selector":"a","type":"url"},"items":{"selector":"li","many":true},
		"n":{"selector":"h2","regex":"(\\d+)","type":"integer"}}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Run(doc, pageURL); err != nil {
			b.Fatal(err)
		}
	}
}
