package fetch

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// read parses a page of http://site.test/dir/p as [Fetcher.Fetch] does.
func read(page, label string) *parser {
	p := &parser{document: must(crawl.ParseURL("http://site.test/dir/p")), links: true, maxLinks: 10}
	p.parseHTML(p.decode([]byte(page), label))
	return p
}

// linked returns the links of p, those of its own site as paths.
func linked(p *parser) []string {
	var ls []string
	for _, l := range p.found {
		ls = append(ls, strings.TrimPrefix(l.URL.String(), "http://site.test"))
	}
	return ls
}

func TestLinks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, page string
		want       []string
	}{
		{"BASE-01 javascript base", `<base href="javascript:alert(1)"><a href=ok>1</a>`, []string{"/dir/ok"}},
		{"BASE-01 data base", `<base href="data:text/plain,x"><a href=ok>1</a>`, []string{"/dir/ok"}},
		{
			"BASE-01 the first base counts, even when useless",
			`<base href="about:blank"><base href="/x/"><a href=ok>1</a>`,
			[]string{"/dir/ok"},
		},
		{"BASE-02 comment", `<!-- <base href="http://other.test/"> --><a href=ok>1</a>`, []string{"/dir/ok"}},
		{
			"BASE-02 script",
			`<script>var t="<base href='http://other.test/'>"</script><a href=ok>1</a>`,
			[]string{"/dir/ok"},
		},
		{"BASE-02 template", `<template><base href="/tpl/"></template><a href=ok>1</a>`, []string{"/dir/ok"}},
		{"BASE-02 svg", `<svg><base href="/svg/"></base></svg><a href=ok>1</a>`, []string{"/dir/ok"}},
		{
			"BASE-04", `<base href="http://cdn.other.test/"><a href="rel">1</a><a href="/abs">2</a>` +
				`<a href="http://site.test/full">3</a><a href="#x">4</a><a href="">5</a>`,
			[]string{
				"http://cdn.other.test/rel",
				"http://cdn.other.test/abs",
				"/full",
				"http://cdn.other.test/",
			},
		},
		{
			"a base counts for the links before it",
			`<a href=one>1</a><base href=/b/><a href=two>2</a>`,
			[]string{"/b/one", "/b/two"},
		},
		{"a base without href is none", `<base target=_top><base href=/b/><a href=a>1</a>`, []string{"/b/a"}},
		{
			"HTM-05", `<a href=/one>one <a href=/two>two</a> tail</a> <a href="/first" href="/second">x</a> ` +
				`<A HREF=/upper>u</A> <a href>e</a> <a name=x>n</a> <a href=/q3`,
			[]string{"/one", "/two", "/first", "/upper", "/dir/p"},
		},
		{"unterminated at the end, quoted", `<a href=/1></a><a href="/q`, []string{"/1"}},
		{"area and frame", `<area href=/a><frameset><frame src=/f><frame></frameset>`, []string{"/a", "/f"}},
		{"not iframe, not link, not img", `<iframe src=/i></iframe><link href=/l><img src=/m>`, nil},
		{
			"not in a template",
			`<template><a href=/t>t</a><svg></template></svg><a href=/o>o</a>`,
			[]string{"/o"},
		},
		{
			"template in template",
			`<template><template></template><a href=/t>t</a></template><a href=/o>o</a>`,
			[]string{"/o"},
		},
		{
			"not in svg",
			`<svg><a href=/s>s</a><style><a href=/s2></style><a href=/s3></svg><a href=/o>o</a>`,
			[]string{"/o"},
		},
		{
			"HTML in svg",
			`<svg><foreignObject><a href=/h>h</a></foreignObject><a href=/s>s</a></svg>`,
			[]string{"/h"},
		},
		{"svg left open, ended by a start tag", `<svg><path d=x><p><a href=/o>o</a>`, []string{"/o"}},
		{
			"svg left open, ended by the end around it",
			`<td><svg><path d=x></td><a href=/o>o</a>`,
			[]string{"/o"},
		},
		{"empty svg", `<svg/><a href=/o>o</a>`, []string{"/o"}},
		{
			"CDATA is text in svg only",
			`<svg><![CDATA[<p><a href=/s>]]></svg><![CDATA[>]]<a href=/o>`,
			[]string{"/o"},
		},
		{"noscript is read", `<noscript><a href=/n>n</a></noscript>`, []string{"/n"}},
		{"raw text is not", `<textarea><a href=/1></textarea><xmp><a href=/2></xmp><style><a href=/3></style>` +
			`<noframes><a href=/4></noframes><title><a href=/5></title>`, nil},
		{"entities", `<a href="/?a=1&amp;b=2&copy=3">x</a>`, []string{"/?a=1&b=2&copy=3"}},
		{"white space and line breaks", "<a href=\" \t/a\nb \">x</a>", []string{"/ab"}},
		{
			"duplicates",
			`<a href=/a>1</a><a href=/a#x>2</a><a href=http://SITE.test:80/a>3</a><a href=/%61>4</a>`,
			[]string{"/a"},
		},
		{"a long tag, then a script", `<a ` + strings.Repeat(" x=yy", 5000) + ` href=/long>` +
			`<script ` + strings.Repeat(" x=yy", 5000) + `><a href=/script></script><a href=/after>`, []string{"/long", "/after"}},
		{
			"a long title tag",
			`<title ` + strings.Repeat(" x=yy", 5000) + `><a href=/t></title><a href=/o>`,
			[]string{"/o"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := read(tt.page, "utf-8")
			if diff := cmp.Diff(tt.want, linked(p)); diff != "" {
				t.Errorf("links of %.200q (-want +got):\n%s", tt.page, diff)
			}
			if len(p.bad) > 0 {
				t.Errorf("bad links: %v", p.bad)
			}
		})
	}
}

func TestLinksOfXHTML(t *testing.T) {
	t.Parallel()
	p := &parser{document: must(crawl.ParseURL("http://site.test/")), links: true, maxLinks: 10, xhtml: true}
	p.parseHTML(
		[]byte(`<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml" xml:lang="de"><title/>` +
			`<script src="x.js"/><a href="/after">a</a></html>`),
	)
	if diff := cmp.Diff([]string{"/after"}, linked(p)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	if p.language != "de" || p.title != "" {
		t.Errorf("language %q, title %q", p.language, p.title)
	}
}

func TestBadLinks(t *testing.T) {
	t.Parallel()
	page := `<a href="mailto:a@b.test">m</a><a href=" JavaScript:void(0)">j</a><a href=tel:1>t</a><a href="data:,x">d</a>` +
		`<a href="http://[::1">i</a><a href="/` + strings.Repeat(
		"x",
		crawl.MaxURLBytes,
	) + `">l</a>`
	for i := range 14 {
		page += fmt.Sprintf("<a href=/%d>x</a>", i%12)
	}
	p := read(page, "utf-8")
	want := map[crawl.Reason]int{
		crawl.RefusedScheme: 4, crawl.RefusedInvalid: 1, crawl.RefusedTooLong: 1, crawl.RefusedLinkLimit: 4,
	}
	if diff := cmp.Diff(want, p.bad); diff != "" {
		t.Errorf("bad links (-want +got):\n%s", diff)
	}
	if len(p.found) != 10 {
		t.Errorf("%d links, want the limit of 10", len(p.found))
	}
}

func TestNoFollow(t *testing.T) {
	t.Parallel()
	p := read(`<a href=/1 rel=nofollow>1</a><a rel="x NoFollow y" href=/2>2</a><a href=/3 rel=nofollows>3</a>`+
		`<a href=/4 rel=nofollow>4</a><a href=/4>4</a><a href=/5 rel="" rel=nofollow>5</a>`+
		`<a href=/6 rel="ugc sponsored">6</a><area href=/7 rel="ugc nofollow">`, "utf-8")
	var got []bool
	for _, l := range p.found {
		got = append(got, l.NoFollow)
	}
	if diff := cmp.Diff([]bool{true, true, false, false, false, false, true}, got); diff != "" {
		t.Errorf("NoFollow (-want +got):\n%s", diff)
	}
}

func TestHead(t *testing.T) {
	t.Parallel()
	type head struct{ Title, Language, Canonical string }
	tests := []struct {
		name, page string
		want       head
	}{
		{
			"HTM-02",
			`<head><title>Real</title></head><body><svg><title>Icon</title></svg><svg><title>Icon2</title></svg>` +
				`<title>Second</title>`,
			head{Title: "Real"},
		},
		{"HTM-02 svg first", `<svg><title>Icon</title></svg><title>Real</title>`, head{Title: "Real"}},
		{
			"HTM-02 svg title with markup",
			`<svg><title><p>Icon</p></title></svg><title>Real</title>`,
			head{Title: "Real"},
		},
		{"not of a template", `<template><title>T</title></template><title>Real</title>`, head{Title: "Real"}},
		{"the first counts even when empty", `<title></title><title>Second</title>`, head{}},
		{"white space", "<title>\n a\t b\r\n c </title>", head{Title: "a b c"}},
		{
			"entities and markup are text",
			`<title>a &lt;b&gt; <b>c</b> &amp; d</title>`,
			head{Title: "a <b> <b>c</b> & d"},
		},
		{"control characters", "<title>a\x1b[31m\x00b\u0085\u2028c</title>", head{Title: "a[31m\uFFFDbc"}},
		{
			"too long", "<title>" + strings.Repeat("é", maxTitleBytes) + "</title>",
			head{Title: strings.Repeat("é", (maxTitleBytes-1)/2)},
		},
		{"not closed", "<title>rest <p>of", head{Title: "rest <p>of"}},
		{"language", `<html lang=" de-CH ">`, head{Language: "de-CH"}},
		{"language that is none", `<html lang="<script>">`, head{}},
		{"lang before xml:lang", `<html xml:lang=fr lang=de>`, head{Language: "de"}},
		{"canonical", `<link rel="x CANONICAL" href="../c?x#y">`, head{Canonical: "http://site.test/c?x"}},
		{"the first canonical, against the base", `<link rel=canonical href=""><link href=c rel=canonical>` +
			`<link rel=canonical href=d><base href=/b/>`, head{Canonical: "http://site.test/b/c"}},
		{"canonical that is no http URL", `<link rel=canonical href="data:,x">`, head{}},
		{
			"not of a template or svg",
			`<template><link rel=canonical href=t></template><svg><link rel=canonical href=s></svg>`,
			head{},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := read(tt.page, "utf-8")
			if diff := cmp.Diff(tt.want, head{p.title, p.language, p.canonical}); diff != "" {
				t.Errorf("%.100q (-want +got):\n%s", tt.page, diff)
			}
		})
	}
}

func TestCharset(t *testing.T) {
	t.Parallel()
	const (
		privet1251 = "\xcf\xf0\xe8\xe2\xe5\xf2"
		zhongwen   = "\xd6\xd0\xce\xc4" // GB
	)
	filler := strings.Repeat("<p>plain ascii filler</p>", 60)
	tests := []struct {
		name, label, page string
		charset, title    string
		damaged           bool
	}{
		{
			"CHR-01 a",
			"",
			"<meta charset=windows-1251><title>" + privet1251 + "</title>",
			"windows-1251",
			"Привет",
			false,
		},
		{
			"CHR-01 b", "", `<meta http-equiv=Content-Type content="text/html; charset=gb2312"><title>` + zhongwen + "</title>",
			"gbk", "中文", false,
		},
		{
			"CHR-01 c", "", `<META CONTENT='text/html;CHARSET = "Windows-1251"' HTTP-EQUIV=CONTENT-TYPE><title>` + privet1251 + "</title>",
			"windows-1251", "Привет", false,
		},
		{
			"CHR-01 beyond 1024 bytes",
			"",
			filler + "<meta charset=windows-1251><title>caf\xe9</title>",
			"windows-1252",
			"café",
			false,
		},
		{
			"CHR-01 in a comment",
			"",
			"<!-- <meta charset=windows-1251> --><title>caf\xe9</title>",
			"windows-1252",
			"café",
			false,
		},
		{
			"CHR-01 content without http-equiv",
			"",
			`<meta content="charset=windows-1251"><title>caf` + "\xe9</title>",
			"windows-1252",
			"café",
			false,
		},
		{
			"CHR-01 unknown, then known", "", `<meta charset=x-no><meta charset=windows-1251><title>` + privet1251 + "</title>",
			"windows-1251", "Привет", false,
		},
		{
			"CHR-03 header wins over meta",
			"utf-8",
			"<meta charset=gb2312><title>" + zhongwen + "</title>",
			"utf-8",
			"\uFFFD",
			true,
		},
		{
			"CHR-03 header latin-1, body Shift_JIS",
			"iso-8859-1",
			"<meta charset=Shift_JIS><title>\x93\xfa</title>",
			"windows-1252",
			"“ú",
			false,
		},
		{
			"CHR-03 unknown label",
			"x-nonsense",
			"<meta charset=windows-1251><title>" + privet1251 + "</title>",
			"windows-1251",
			"Привет",
			false,
		},
		{"CHR-03 invalid in its charset", "gbk", "<title>\xff\xff</title>", "gbk", "\uFFFD\uFFFD", true},
		{"CHR-03 an encoding that is a risk", "iso-2022-kr", "<title>x</title>", "replacement", "", true},
		{"CHR-04 a", "windows-1251", "\xef\xbb\xbf<title>Привет</title>", "utf-8", "Привет", false},
		{"CHR-04 b", "utf-8", "\xef\xbb\xbf<head><title>Bom</title></head>", "utf-8", "Bom", false},
		{
			"CHR-04 UTF-16 little endian",
			"utf-8",
			"\xff\xfe<\x00t\x00i\x00t\x00l\x00e\x00>\x00\x3f\x04",
			"utf-16le",
			"п",
			false,
		},
		{
			"CHR-04 UTF-16 big endian",
			"",
			"\xfe\xff\x00<\x00t\x00i\x00t\x00l\x00e\x00>\x04\x3f",
			"utf-16be",
			"п",
			false,
		},
		{
			"UTF-16 by header, lone surrogate",
			"utf-16le",
			"<\x00t\x00i\x00t\x00l\x00e\x00>\x00\x00\xd8x\x00",
			"utf-16le",
			"\uFFFDx",
			true,
		},
		{
			"CHR-06 utf-16",
			"",
			"<!doctype html><meta charset=utf-16><title>plain</title>",
			"utf-8",
			"plain",
			false,
		},
		{
			"CHR-06 unicode",
			"",
			"<!doctype html><meta charset=unicode><title>plain</title>",
			"utf-8",
			"plain",
			false,
		},
		{
			"CHR-06 x-user-defined",
			"",
			"<meta charset=x-user-defined><title>caf\xe9</title>",
			"windows-1252",
			"café",
			false,
		},
		{
			"CHR-01 c unquoted, upper case",
			"",
			"<META CHARSET=WINDOWS-1251><title>" + privet1251 + "</title>",
			"windows-1251",
			"Привет",
			false,
		},
		{
			"CHR-01 beyond 1024 bytes, within the head",
			"",
			"<html><head>" + strings.Repeat("<link rel=x href=y>", 100) + "<script>a<b</script>" +
				"<meta charset=windows-1251><title>" + privet1251 + "</title>",
			"windows-1251",
			"Привет",
			false,
		},
		{
			"CHR-01 across the 1024th byte",
			"",
			"<html><head>" + strings.Repeat(" ", prescanBytes-20) +
				"<meta charset=windows-1251><title>" + privet1251 + "</title>",
			"windows-1251",
			"Привет",
			false,
		},
		{
			"CHR-01 beyond the head",
			"",
			"<html><head>" + strings.Repeat("<link rel=x href=y>", 100) +
				"</head><meta charset=windows-1251><title>caf\xe9</title>",
			"windows-1252",
			"café",
			false,
		},
		{
			"CHR-01 GBK is read as GB18030",
			"gbk",
			"<title>\x95\x32\x82\x36\x80</title>",
			"gbk",
			"\U00020000€",
			false,
		},
		{
			"CHR-03 empty label",
			"",
			"<meta charset=Shift_JIS><title>\x93\xfa</title>",
			"shift_jis",
			"日",
			false,
		},
		{"CHR-08", "", filler + "<title>café €</title>", "utf-8", "café €", false},
		{
			"CHR-08 not UTF-8 after all",
			"",
			filler + "<title>caf\xe9 \x80</title>",
			"windows-1252",
			"café €",
			false,
		},
		{
			"XML declaration",
			"",
			"<?xml version='1.0' encoding='windows-1251'?><title>" + privet1251 + "</title>",
			"windows-1251",
			"Привет",
			false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := read(tt.page, tt.label)
			if !strings.HasPrefix(p.title, tt.title) || p.charset != tt.charset ||
				p.decodingErrors != tt.damaged {
				t.Errorf("title %q, charset %q, decoding errors %t; want %q, %q, %t",
					p.title, p.charset, p.decodingErrors, tt.title, tt.charset, tt.damaged)
			}
			if !utf8.ValidString(p.title) || strings.ContainsRune(p.title, '\ufeff') {
				t.Errorf("title %q is stored", p.title)
			}
		})
	}
}

// TestCharsetFrom: the record says which step found the charset.
func TestCharsetFrom(t *testing.T) {
	t.Parallel()
	const meta = "<meta charset=windows-1251>"
	tests := []struct {
		name, label, page string
		want              CharsetFrom
	}{
		{"CHR-04 mark before header", "windows-1251", "\xef\xbb\xbf" + meta, CharsetBOM},
		{"CHR-04 mark of UTF-16", "", "\xff\xfe<\x00", CharsetBOM},
		{"CHR-03 header before meta", "gbk", meta, CharsetHeader},
		{"CHR-03 unknown header", "x-nonsense", meta, CharsetMeta},
		{"CHR-06 meta", "", "<meta charset=utf-16>", CharsetMeta},
		{"CHR-01 meta before XML", "", "<?xml version='1.0' encoding='gbk'?>" + meta, CharsetMeta},
		{"XML", "", "<?xml version='1.0' encoding='gbk'?>", CharsetXML},
		{"CHR-08 ASCII", "", "<p>x", CharsetUTF8},
		{"CHR-08 UTF-8", "", "<p>é", CharsetUTF8},
		{"CHR-08 letters", "", "<p>\xcf\xf0\xe8\xe2\xe5\xf2", CharsetDetected},
		{"CHR-08 nothing", "", "<p>\xff\xfe", CharsetDefault},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if p := read(tt.page, tt.label); p.charsetFrom != tt.want || p.charset == "" {
				t.Errorf("charset %q from %q, want %q", p.charset, p.charsetFrom, tt.want)
			}
		})
	}
}

// TestEncodedLinks is URL-14: a query is sent in the page's charset.
func TestEncodedLinks(t *testing.T) {
	t.Parallel()
	body := "<a href=\"/s?q=\xf2\xe5\xf1\xf2\">x</a><a href=\"/\xef\xf3\xf2\xfc\">y</a><a href=\"/s?q=&#x4e2d;\">z</a>"
	want := []string{"/s?q=%F2%E5%F1%F2", "/%D0%BF%D1%83%D1%82%D1%8C", "/s?q=%26%2320013%3B"}
	for _, p := range []*parser{read(body, "windows-1251"), read("<meta charset=windows-1251>"+body, "")} {
		if diff := cmp.Diff(want, linked(p)); diff != "" {
			t.Errorf("URL-14 (-want +got):\n%s", diff)
		}
	}
}

// FuzzParse: whatever the bytes, the pass ends, what it stores is valid UTF-8
// and bounded, and each link counts once.
func FuzzParse(f *testing.F) {
	f.Add([]byte(benchPage()), "")
	f.Add([]byte("\xff\xfe<\x00a\x00"), "utf-16")
	f.Add([]byte("<svg><title><template></svg><foreignObject><a href=x>"), "gbk")
	f.Add([]byte("<meta charset=iso-2022-jp><title>\x1b$B</title>"), "")
	f.Add([]byte("<base href=//x><a href=\\\\y><![CDATA[<plaintext>"), "utf-8")
	f.Add([]byte("<html lang=x><link rel=canonical href=?><title>\x00</title>"), "x-user-defined")
	f.Fuzz(func(t *testing.T, page []byte, label string) {
		p := read(string(page), label)
		for _, s := range []string{p.title, p.language, p.canonical, p.charset} {
			if !utf8.ValidString(s) || len(s) > crawl.MaxURLBytes {
				t.Errorf("stored %q", s)
			}
		}
		if len(p.title) > maxTitleBytes || len(p.found) > p.maxLinks {
			t.Errorf("title of %d bytes, %d links", len(p.title), len(p.found))
		}
		seen := map[crawl.Key]bool{}
		for _, l := range p.found {
			if seen[l.URL.Key()] || l.URL.IsZero() {
				t.Errorf("link %q twice or empty", l.URL)
			}
			seen[l.URL.Key()] = true
		}
		n := len(p.found)
		for _, bad := range p.bad {
			n += bad
		}
		if tags := bytes.Count((&parser{}).decode(page, label), []byte("<")); n > tags {
			t.Errorf("%d links made of %d tags", n, tags)
		}
	})
}
