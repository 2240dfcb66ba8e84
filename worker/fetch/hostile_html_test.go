package fetch

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"example.com/trawl/pkg/crawl"
)

// hostilePage is a page that is valid HTTP, made to hurt whoever parses it. Each ends in
// <title>ok</title><a href=/last>, unless cut says that this is part of something else.
type hostilePage struct {
	name  string
	head  string // header fields in place of Content-Type
	body  func(size int) string
	cut   bool
	links int // beside /last
	bad   map[crawl.Reason]int
	title string // in place of ok
	large bool   // as large as a page may be
	count bool   // links and bad grow with the page: they are not compared
}

// filled repeats again behind head up to size bytes.
func filled(head, again string) func(int) string {
	return func(size int) string { return head + strings.Repeat(again, max(0, size-len(head))/len(again)) }
}

func times(n int, head, again, tail string) func(int) string {
	return func(int) string { return head + strings.Repeat(again, n) + tail }
}

// manyAttributes is a tag of name with attributes of different names.
func manyAttributes(name, last string) func(int) string {
	return func(size int) string {
		var b strings.Builder
		b.Grow(size + 32)
		b.WriteString("<" + name)
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, " %x", i)
		}
		return b.String() + " " + last + ">"
	}
}

func hostilePages() []hostilePage {
	long := map[crawl.Reason]int{crawl.RefusedTooLong: 1}
	pages := []hostilePage{
		{name: "512 nested elements", body: times(600, "", "<div>", "")},
		{name: "100,000 nested elements", body: times(100_000, "", "<div>", "")},
		{name: "100,000 nested formats", body: times(100_000, "", "<b><i><font color=x>", "")},
		{name: "100,000 nested tables", body: times(100_000, "", "<table><tr><td>", "")},
		{name: "100,000 nested links", body: times(100_000, "", "<a>", "")},
		{name: "100,000 end tags", body: times(100_000, "", "</p></div></template></svg>", "")},
		{name: "deep templates", body: times(100_000, "", "<template>", strings.Repeat("</template>", 100_000))},
		{name: "deep svg", body: times(100_000, "", "<svg>", "<div>")},
		{name: "deep math", body: times(100_000, "", "<math><mi>", "<p>"), cut: true},
		{name: "deep svg and template", body: times(50_000, "", "<svg><desc><template>", ""), cut: true},

		{
			name: "an attribute of 5 MB", large: true,
			body: func(n int) string { return `<p title="` + strings.Repeat("x", n) + `">` },
		},
		{
			name: "an address of 5 MB", large: true,
			body: func(n int) string { return `<a href="/` + strings.Repeat("x", n) + `">` }, bad: long,
		},
		{name: "an address of entities", body: func(n int) string {
			return `<a href="/` + strings.Repeat("&amp;", n/5) + `">`
		}, bad: long},
		{
			name:  "a rel of 512 KB",
			body:  func(n int) string { return `<a href=/x rel="` + strings.Repeat("no ", n/3) + `">` },
			links: 1,
		},
		{name: "a lang of 512 KB", body: func(n int) string { return `<html lang="` + strings.Repeat("x", n) + `">` }},
		{
			name: "a base of 512 KB",
			body: func(n int) string { return `<base href="/` + strings.Repeat("x", n) + `/">` },
		},
		{name: "a canonical of 512 KB", body: func(n int) string {
			return `<link rel=canonical href="/` + strings.Repeat("x", n) + `">`
		}},
		{name: "a refresh of 512 KB", body: func(n int) string {
			return `<meta http-equiv=refresh content="0;url=/` + strings.Repeat("x", n) + `">`
		}, bad: long},
		{name: "a robots meta of 512 KB", body: func(n int) string {
			return `<meta name=robots content="` + strings.Repeat("noindex,", n/8) + `">`
		}},
		{name: "a name of 512 KB", body: func(n int) string { return "<" + strings.Repeat("x", n) + ">" }},
		{name: "an attribute name of 512 KB", body: func(n int) string { return "<p " + strings.Repeat("x", n) + ">" }},
		{name: "a million attributes", large: true, body: manyAttributes("p", "x")},
		{name: "a million attributes of a link", large: true, body: manyAttributes("a", "href=/x"), links: 1},
		{name: "a million attributes of a script", body: manyAttributes("script", "src=/x"), cut: true},
		{name: "500,000 equal attributes", body: filled("<p", " a=b"), cut: true},
		{name: "1,000,000 slashes", body: filled("<p", "/"), cut: true},
		{name: "tags of 1,000 attributes", body: filled("", "<p "+strings.Repeat("a ", 1000)+">")},

		{name: "null bytes", body: filled("<!-- "+strings.Repeat("x", sniffBytes)+" -->", "\x00")},
		{
			name: "null bytes in tags",
			body: filled("<!-- "+strings.Repeat("x", sniffBytes)+" -->", "<a\x00 hr\x00ef=\x00>"),
		},
		{
			name: "null bytes in addresses", body: filled("<!-- "+strings.Repeat("x", sniffBytes)+" -->", "<a href='/\x00'>"),
			links: 1,
		},
		{name: "null bytes at once", body: filled("", "\x00"), cut: true},
		{name: "no byte of UTF-8", large: true, body: filled("<p>", "\xe9\xff\x80")},

		{name: "100,000 links", body: filled("", "<a href=x>"), links: 1},
		{name: "500,000 other links", large: true, count: true, body: func(n int) string {
			var b strings.Builder
			for i := 0; b.Len() < n; i++ {
				fmt.Fprintf(&b, "<a href=%d>", i)
			}
			return b.String()
		}},
		{name: "100,000 links of other schemes", body: filled("", "<a href=x:y>"), count: true},
		{name: "100,000 refreshes", body: filled("", "<meta http-equiv=refresh content=0;url=x>"), links: 1},
		{name: "100,000 bases", body: filled("", "<base href=/a/>")},
		{name: "100,000 titles", body: filled("<title>ok</title>", "<title>x</title>")},
		{name: "100,000 entities", body: filled("<p>", "&notit;")},
		{name: "100,000 entities that are none", body: filled("<p>", "&#x110000;&#0;&zzz;&")},
		{name: "a long base and short links", count: true, body: func(int) string {
			var b strings.Builder
			b.WriteString("<base href=/" + strings.Repeat("x", 8000) + "/>")
			for i := range 3000 {
				fmt.Fprintf(&b, "<a href=%d>", i)
			}
			return b.String()
		}},
		{name: "less-thans", body: filled("", "<")},
		{
			name: "a title of entities", body: filled("<title>", "&amp;"), cut: true,
			title: strings.Repeat("&", maxTitleBytes-1),
		},
		{name: "a title of blanks", body: filled("<title>", "\n\t "), title: "<title>ok"},
		{
			name: "a title of bidi controls", body: filled("<title>", "\u202e"), cut: true,
			title: strings.Repeat("\u202e", (maxTitleBytes-1)/3),
		},
	}
	for _, open := range []string{
		"<!--", "<!-->x<!--", "<script>", "<script><!--<script>", "<style>", "<textarea>", "<xmp>",
		"<plaintext>", "<iframe>", "<title>", "<svg><![CDATA[", "<a href=", `<a href="`, "<a ", "<a href='/x' ", "<template>",
	} {
		p := hostilePage{name: "open " + open, body: filled(open, "x"), cut: true}
		if open == "<title>" {
			p.title = strings.Repeat("x", maxTitleBytes-1)
		}
		pages = append(pages, p)
	}
	for _, open := range []string{"<!doctype ", "<![CDATA[", "<?", "</", "</p ", "&"} {
		long := filled(open, "x")
		pages = append(pages, hostilePage{name: "long " + open, body: func(n int) string { return long(n-1) + ">" }})
	}
	for _, label := range []string{"utf-16le", "utf-16be", "iso-2022-jp", "gb18030", "euc-kr", "big5", "shift_jis", "replacement", "utf-7", "x-user-defined"} {
		for _, fill := range []string{"\x80", "\x1b$\x81\x30", "\xff\xd8"} {
			pages = append(pages, hostilePage{
				name: fmt.Sprintf("%s of %q", label, fill), head: "Content-Type: text/html; charset=" + label, body: filled("<p>", fill),
				cut: true, count: true,
			})
		}
	}
	return pages
}

// TestHostilePages: a page that is made to be slow or large is read like any other, its
// links are bounded and counted, and what that takes is bounded by its size. It is not
// parallel: memory belongs to all.
func TestHostilePages(t *testing.T) {
	const (
		large = DefaultMaxBodyBytes - 4<<10
		usual = 512 << 10
		tail  = "<title>ok</title><a href=/last>"
		// What may be allocated for a byte of a page, beside the body itself and all its
		// growing: decoding makes up to three bytes of one, and growing doubles them; the
		// tokenizer's buffer doubles as well; the rest are links.
		perByte = 24
		fixed   = 8 << 20
	)
	for _, tt := range hostilePages() {
		size := usual
		if tt.large {
			size = large
		}
		body := tt.body(size)
		if !tt.cut {
			body += tail
		}
		head := tt.head
		if head == "" {
			head = "Content-Type: text/html; charset=utf-8"
		}
		s := serve(t, answer("200 OK", head, body))
		f := newFetcher(t, Options{})
		req := Request{URL: s.url(t, "/"), Links: true, Product: "TestBot"}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		res, err := f.Fetch(t.Context(), req)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(perByte*len(body)+fixed) {
			t.Errorf("%s: %d MiB were allocated for a page of %d", tt.name, n>>20, len(body)>>20)
		}
		tt.hold(t, s, &res, len(body))
	}
}

// hold compares what was found on the page.
func (tt *hostilePage) hold(t *testing.T, s *site, res *Result, size int) {
	t.Helper()
	title := tt.title
	if title == "" && !tt.cut {
		title = "ok"
	}
	if res.Page.ContentType != "text/html" || res.Page.Bytes != int64(size) {
		t.Errorf("%s: %s of %d bytes", tt.name, res.Page.ContentType, res.Page.Bytes)
	}
	if res.Page.Title != title && !tt.count || len(res.Page.Title) > maxTitleBytes || !utf8.ValidString(res.Page.Title) {
		t.Errorf("%s: title %.60q, want %.60q", tt.name, res.Page.Title, title)
	}
	if len(res.Page.Language) > maxLanguageBytes || len(res.Page.Canonical) > crawl.MaxURLBytes {
		t.Errorf("%s: language of %d bytes, canonical of %d", tt.name, len(res.Page.Language), len(res.Page.Canonical))
	}
	total := 0
	for _, l := range res.Links {
		total += len(l.URL.String())
	}
	if len(res.Links) > DefaultMaxLinks || total > maxLinkBytes+crawl.MaxURLBytes {
		t.Errorf("%s: %d links of %d bytes", tt.name, len(res.Links), total)
	}
	if tt.count {
		return
	}
	want := tt.links
	if !tt.cut {
		want++
	}
	if got := paths(s, *res); len(got) != want || !tt.cut && got[len(got)-1] != "/last" {
		t.Errorf("%s: %d links, want %d: %.200q", tt.name, len(got), want, got)
	}
	if fmt.Sprint(res.BadLinks) != fmt.Sprint(tt.bad) {
		t.Errorf("%s: bad links %v, want %v", tt.name, res.BadLinks, tt.bad)
	}
}

// TestTooManyLinks: 10 MB of links are counted to the last one, those beyond the limit as
// too_many_links, and so are those that a long base makes too large together.
func TestTooManyLinks(t *testing.T) {
	t.Parallel()
	var many, large strings.Builder
	n := 0
	for ; many.Len() < 10<<20; n++ {
		fmt.Fprintf(&many, "<a href=/%d>", n)
	}
	large.WriteString("<base href=/" + strings.Repeat("x", 8000) + "/>")
	for i := range 1500 {
		fmt.Fprintf(&large, "<a href=%d>", i)
	}
	f := newFetcher(t, Options{MaxBodyBytes: 16 << 20})
	for _, tt := range []struct {
		name, body    string
		links, counts int
	}{
		{"10 MB", many.String(), DefaultMaxLinks, n},
		{"long base", large.String(), maxLinkBytes/8000 + 1, 1500},
	} {
		res, err := f.Fetch(t.Context(), Request{URL: serve(t, page(tt.body)).url(t, "/"), Links: true})
		if err != nil {
			t.Fatal(err)
		}
		if d := len(res.Links) - tt.links; d < -2 || d > 2 || len(res.Links)+res.BadLinks[crawl.RefusedLinkLimit] != tt.counts {
			t.Errorf("%s: %d links, %v, want %d of %d", tt.name, len(res.Links), res.BadLinks, tt.links, tt.counts)
		}
	}
}
