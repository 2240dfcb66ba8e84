package extract

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

func mustURL(t testing.TB, s string) crawl.URL {
	t.Helper()
	u, err := crawl.ParseURL(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func parse(t testing.TB, page string) *Document {
	t.Helper()
	d, err := Parse([]byte(page), mustURL(t, "https://shop.test/en/p.html"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s: -want +got:\n%s", name, d)
	}
}

// A whole page in each of its forms, as a person would write them down: addresses are those of
// its base, the title is no icon's (HTM-02), nothing of scripts is text, words stay apart (HTM-06).
func TestArticle(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("testdata/article.html")
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, string(page))
	before := d.Fingerprint()
	all := Wants{Formats: crawl.Formats, InScope: func(u crawl.URL) bool { return u.Path() != "/about" }}
	c, notes := d.Content(all)
	if notes != nil || c.HTML != nil {
		t.Errorf("notes %v, HTML %v", notes, c.HTML)
	}
	golden(t, "article.md", *c.Markdown)
	golden(t, "article.txt", *c.Text)
	rest, err := json.MarshalIndent(map[string]any{"links": c.Links, "metadata": c.Metadata}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "article.json", string(rest))

	all.MainContent = true
	c, notes = d.Content(all)
	if notes != nil {
		t.Errorf("notes of the main content: %v", notes)
	}
	golden(t, "article.main.md", *c.Markdown)
	golden(t, "article.main.txt", *c.Text)

	again, _ := d.Content(all)
	if !reflect.DeepEqual(c, again) || d.Fingerprint() != before {
		t.Error("a second look at the page sees another one")
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, page     string
		markdown, text string
	}{
		{"HTM-06 words", `<div id=x>Hello<script>var a=1</script><style>p{}</style>&nbsp;World<br>next<p>para</p></div>`, "Hello World  \nnext\n\npara", "Hello World\nnext\n\npara"},
		{"nothing", ``, "", ""},
		{"blanks", "<p> a \n\t b&nbsp;&nbsp; c </p>", "a b c", "a b c"},
		{"signs that mean something", `<p>1. a*b*c _d_ [e](f) &lt;b&gt; # g</p>`, `1\. a\*b\*c \_d_ \[e](f) &lt;b&gt; # g`, `1. a*b*c _d_ [e](f) <b> # g`},
		{"CHR-04 no mark is text", "<p>\uFEFFa\u200Bb\u00ADc</p>", "abc", "abc"},
		{"SEL-05 an address of another host", `<a href="//b.test/x y">l</a><img src="//b.test/i.png">`, "[l](https://b.test/x%20y)![](https://b.test/i.png)", "l"},
		{"a base that is none", `<base href="javascript:x"><a href="y">l</a>`, "[l](https://shop.test/en/y)", "l"},
		{"an address that is none", `<a href="javascript:x">l</a> <a href="mailto:a@b">m</a>`, "l m", "l m"},
		{"code", "<pre>a\n  b</pre><p>x <code>c d</code></p>", "```\na\n  b\n```\n\nx `c d`", "a\n  b\n\nx c d"},
		{"a line behind code", "<pre>a\n</pre><p>b</p>", "```\na\n```\n\nb", "a\n\nb"},
		{
			"empty cells", `<table><tr><td>a<td>b<td>c<tr><td><td>d<td><tr><td>e<td><td>f</table>`,
			"| a | b | c |\n|---|---|---|\n|  | d |  |\n| e |  | f |", "a\tb\tc\n\td\ne\t\tf",
		},
		{"a layout", `<table><tr><td><h2>A</h2><td><p>b</p></table>`, "## A\n\nb", "A\tb"},
		{"right to left", `<p dir=rtl>שלום <b>עולם</b></p>`, "שלום **עולם**", "שלום עולם"},
		{"a frame for scripts", `<p>a</p><template><p>b</p></template><noscript>c</noscript>`, "a", "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, notes := parse(t, tt.page).Content(Wants{Formats: []string{crawl.FormatMarkdown, crawl.FormatText}})
			got := [2]string{*c.Markdown, *c.Text}
			if d := cmp.Diff([2]string{tt.markdown, tt.text}, got); d != "" || notes != nil {
				t.Errorf("notes %v, -want +got:\n%s", notes, d)
			}
		})
	}
}

// What is not asked for is not there, and no main content is said to be none.
func TestWants(t *testing.T) {
	t.Parallel()
	d := parse(t, `<title>T</title><p>a <a href=x>b</a>`)
	if c, notes := d.Content(Wants{}); c != nil || notes != nil {
		t.Errorf("nothing: %v, %v", c, notes)
	}
	c, notes := d.Content(Wants{Formats: []string{crawl.FormatText}, MainContent: true})
	if want := []crawl.Note{{About: crawl.FormatText, What: crawl.NoteNoMainContent}}; !reflect.DeepEqual(notes, want) || *c.Text != "a b" || c.Links != nil {
		t.Errorf("%v, %v", c, notes)
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	both := Wants{Formats: crawl.Formats}
	for _, tt := range []struct {
		media, in      string
		markdown, text *string
	}{
		{"text/plain", "a\r\nb\x00\uFEFF<c>", new("a\nb<c>"), new("a\nb<c>")},
		{"text/markdown; charset=utf-8", "# a", new("# a"), new("# a")},
		{"application/json", `{"a":1}`, nil, new(`{"a":1}`)},
	} {
		c, notes := Plain([]byte(tt.in), tt.media, both)
		if d := cmp.Diff(&crawl.Content{Markdown: tt.markdown, Text: tt.text}, c); d != "" || notes != nil {
			t.Errorf("%s: notes %v, -want +got:\n%s", tt.media, notes, d)
		}
	}
	long, notes := Plain([]byte(strings.Repeat("word\n", MaxTextBytes/4)), "text/plain", both)
	if len(*long.Text) > MaxTextBytes || len(notes) != 2 || notes[0].What != crawl.NoteCut {
		t.Errorf("%d bytes, notes %v", len(*long.Text), notes)
	}
}

// What a reader sees decides, and not how it is written down.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	base := parse(t, `<title>T</title><p class=a>Hello <b>you</b></p>`).Fingerprint()
	for page, same := range map[string]bool{
		`<title>T</title><p class=b id=c>Hello <i>you</i></p><script>nonce=7</script>`: true,
		`<title>T</title><p>Hello me</p>`:                                              false,
		`<title>U</title><p>Hello you</p>`:                                             false,
	} {
		if got := parse(t, page).Fingerprint() == base; got != same {
			t.Errorf("%s: same %v", page, got)
		}
	}
}

// Hostile pages are bounded in what they make, and never cut in silence.
func TestHostileContent(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]string{
		"links":       sequence(5000, "<a href=/%d>x</a> "),
		"lists":       strings.Repeat("<ul><li>", 250) + strings.Repeat("line<br>", 20_000),
		"quotes":      strings.Repeat("<blockquote>", 400) + strings.Repeat("<p>x", 20_000),
		"signs":       strings.Repeat("*_`[", 200_000),
		"fences":      "<pre>" + strings.Repeat("`", 500_000),
		"spans":       "<table>" + strings.Repeat("<tr>"+strings.Repeat("<td colspan=1000 rowspan=1000>x", 10), 1000) + "</table>",
		"a long cell": "<table><tr><td>" + strings.Repeat("y", 1<<20) + strings.Repeat("<tr><td>z", 2000) + "</table>",
		"text":        "<p>" + strings.Repeat("word ", 1_000_000),
		"properties":  sequence(3000, `<meta property="og:p%d" content="v">`),
		"JSON-LD":     strings.Repeat(`<script type="application/ld+json">{"a":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)+`}</script>`, 30),
		"alternates":  sequence(3000, "<link rel=alternate hreflang=de href=/%d>"),
		"comments":    strings.Repeat("<!---->", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, notes := parse(t, page).Content(Wants{Formats: crawl.Formats, MainContent: true})
			b, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			if most := 2*MaxTextBytes + 2<<20; len(b) > most || len(*c.Markdown) > MaxTextBytes || len(c.Links) > MaxLinks {
				t.Errorf("%d bytes, markdown of %d, %d links", len(b), len(*c.Markdown), len(c.Links))
			}
			if name == "links" && !strings.Contains(cmp.Diff(notes, nil), crawl.NoteCut) {
				t.Errorf("it is not said that links are left out: %v", notes)
			}
		})
	}
}

func FuzzContent(f *testing.F) {
	page, err := os.ReadFile("testdata/article.html")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(page))
	f.Add("<table><tr><td><a href=x><h1>y</a><pre>`")
	f.Fuzz(func(t *testing.T, page string) {
		if len(page) > 8<<10 {
			return
		}
		d, err := Parse([]byte(strings.ToValidUTF8(page, "\uFFFD")), mustURL(t, "https://shop.test/en/p.html"))
		if err != nil {
			return
		}
		for _, main := range []bool{false, true} {
			c, _ := d.Content(Wants{Formats: crawl.Formats, MainContent: main})
			b, err := json.Marshal(c)
			if err != nil || !utf8.Valid(b) || !utf8.ValidString(*c.Markdown) || !utf8.ValidString(*c.Text) {
				t.Fatalf("%v: %q", err, b)
			}
		}
	})
}

// article is a page of some 60 KB, much of it text, as an article with comments has it.
func article(b *testing.B) []byte {
	b.Helper()
	page, err := os.ReadFile("testdata/article.html")
	if err != nil {
		b.Fatal(err)
	}
	body := `<div class="comment"><h3>Somebody</h3><p>Words of <b>some</b> weight, <a href="/c?x=1">a link</a> and <i>more</i> of them, so that there is something to read.</p></div>`
	return []byte(string(page) + strings.Repeat(body, (60<<10-len(page))/len(body)))
}

func BenchmarkContent(b *testing.B) {
	page := article(b)
	at := mustURL(b, "https://shop.test/en/p.html")
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Parse(page, at); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, w := range map[string]Wants{
		"markdown": {Formats: []string{crawl.FormatMarkdown}}, "main": {Formats: []string{crawl.FormatMarkdown}, MainContent: true},
		"text": {Formats: []string{crawl.FormatText}}, "links": {Formats: []string{crawl.FormatLinks}}, "metadata": {Formats: []string{crawl.FormatMetadata}},
	} {
		d, err := Parse(page, at)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d.Content(w)
			}
		})
	}
}

// sequence writes the format n times, with the numbers from 0.
func sequence(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
