package extract

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// The converter looks for the end of each bracket. A page on which that would take too long is its
// text, with nothing in it that Markdown takes for HTML.
func TestMarkdownOfManyBrackets(t *testing.T) {
	t.Parallel()
	const words = " some words"
	for name, tt := range map[string]struct {
		page      string
		converted bool
	}{
		"none that ends":      {strings.Repeat("[", 30_000) + strings.Repeat(words, 20_000), false},
		"one end for all":     {strings.Repeat("[a ", 30_000) + "]", false},
		"each in a node":      {strings.Repeat("<i>[</i>x", 10_000) + strings.Repeat(words, 20_000), false},
		"notes of an article": {strings.Repeat("<sup>[1]</sup>"+words, 10_000), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := parse(t, "<h1>Title</h1><p>&lt;script&gt; "+tt.page)
			got, cut := d.markdown(d.Root())
			if strings.HasPrefix(got, "# Title") != tt.converted || cut || strings.Contains(got, "<script>") {
				t.Errorf("cut %v: %.100q", cut, got)
			}
		})
	}
}

// What the converter is given has no two texts side by side, which it would join one by one, and no
// table of which the cells that are filled in are many more than the page has: both are quadratic.
func TestCopyIsLinear(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		page   string
		tables int
	}{
		"comments":        {"<p>" + strings.Repeat("x<!-- -->", 1000), 0},
		"labels":          {"<p>" + strings.Repeat("<label>x</label><font>y</font>", 1000), 0},
		"around an image": {"<p>a<img>b<img src=x>c", 0},
		"one long row":    {"<table><tr>" + strings.Repeat("<td>a", 1000) + strings.Repeat("<tr><td>b", 1000) + "</table>", 0},
		"even rows":       {"<table>" + strings.Repeat("<tr><td>a<td>b<td>c", 1000) + "</table>", 1},
		"some short rows": {"<table><tr><td>1<td>2<td>3<td>4" + strings.Repeat("<tr><td>a", 1000) + "</table>", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := parse(t, tt.page)
			c := copier{d: d, bytes: MaxTextBytes, left: maxMarkdownNodes, signs: maxMarkdownSigns}
			tables := 0
			for n := range c.tree(d.Root()).Descendants() {
				if n.Type == html.TextNode && n.NextSibling != nil && n.NextSibling.Type == html.TextNode {
					t.Fatalf("two texts: %.20q, %.20q", n.Data, n.NextSibling.Data)
				}
				if n.DataAtom == atom.Table {
					tables++
				}
			}
			if tables != tt.tables {
				t.Errorf("%d tables, want %d", tables, tt.tables)
			}
		})
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, page, want string }{
		{"an address is as among the links", `<a href="/s?q=a+b&x=1,2">q</a>`, "[q](https://shop.test/s?q=a+b&x=1,2)"},
		{"a card", `<a href=x><div><h3>T</h3><p>d</p></div></a>`, "[**T** d](https://shop.test/en/x)"},
		{"a link within words", `a<a href=x> b </a>c`, "a [b](https://shop.test/en/x) c"},
		{"a link of nothing", `a<a href=x> </a>b`, "a b"},
		{
			"labels", `<a href=x title='a" <b>'>l</a><img src=y alt='<script>[x]</script>'>`,
			`[l](https://shop.test/en/x "a\" &lt;b>")![&lt;script>\[x\]&lt;/script>](https://shop.test/en/y)`,
		},
		{"an icon", "<p>a \uF002b</p><pre>c\uF002d</pre>", "a b\n\n```\ncd\n```"},
		{"a language", "<pre><code class='hljs language-go'>x</code></pre>", "```go\nx\n```"},
		{"no language", "<pre><code class='language-go\n```\n<script>'>x</code></pre>", "```go\nx\n```"},
		{"a fence for a language", "<pre><code class='language-`<b>'>x</code></pre>", "```\nx\n```"},
		{"a character reference that is read", `<p>&amp;lt;b&amp;gt; R&amp;D; a & b</p>`, `&amp;lt;b&amp;gt; R&amp;D; a & b`},
		{
			"HTM-06 cells of a table", `<table><tr><th>a|b<th><code>x|y</code><tr><td>1<br>2<td><ul><li>p<li>q</ul></table>`,
			"| a\\|b | `x\\|y` |\n|---|---|\n| 1 2 | p q |",
		},
		{"HTM-06 cells of a layout", `<table><tr><td>a<td>b<tr><td><h2>c</h2></table>`, "a\n\nb\n\n## c"},
		{"a caption", `<table><caption>C</caption><tr><td>a<td>b</table>`, "| a | b |\n|---|---|\n\nC"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := parse(t, tt.page)
			if got, cut := d.markdown(d.Root()); got != tt.want || cut {
				t.Errorf("cut %v\n got %q\nwant %q", cut, got, tt.want)
			}
		})
	}
}
