package fetch

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"pgregory.net/rapid"
)

// seenTag is what a tokenizer says of the first tag of b: its name, the attributes of
// interest, and how long it is; the length is 0 when it does not end.
type seenTag struct {
	name    string
	closing bool
	attrs   map[string]string
	length  int
}

func firstTag(b []byte) seenTag {
	z := html.NewTokenizer(bytes.NewReader(b))
	tt := z.Next()
	if tt != html.StartTagToken && tt != html.SelfClosingTagToken {
		return seenTag{}
	}
	s := seenTag{closing: tt == html.SelfClosingTagToken, attrs: map[string]string{}, length: len(z.Raw())}
	name, more := z.TagName()
	s.name = string(name)
	for more {
		var k, v []byte
		if k, v, more = z.TagAttr(); ofInterest[string(k)] {
			s.attrs[string(k)] = string(v)
		}
	}
	return s
}

// duplicate is a tag that ends in a value without quotes, "x=/>": if the name is one that the
// tag had before, the tokenizer takes its slash for that of an empty element, which HTML
// section 13.2.5.37 does not.
var duplicate = regexp.MustCompile(`=\s*[^\s>]*/>$`)

func sameTag(a, b seenTag) bool {
	if a.name != b.name || a.closing != b.closing || len(a.attrs) != len(b.attrs) {
		return false
	}
	for k, v := range a.attrs {
		if w, ok := b.attrs[k]; !ok || w != v {
			return false
		}
	}
	return true
}

// TestShortened: a tag without what nobody asks for is the same tag to the tokenizer.
func TestShortened(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{
			" ", "\n", "/", "=", `"`, "'", "a", "x1", "href", "HREF", "rel", "content", "name", "xml:lang", "/x", "&amp;", "\x00", "é", "<",
			` href="/a b"`, ` src='x>y'`, " lang=en", " rel = nofollow ", ` q`,
		}), 0, 12).Draw(t, "parts")
		b := []byte("<a" + strings.Join(parts, "") + "> <p>")
		want := firstTag(b)
		tag, n := shortened(b)
		if n != want.length {
			t.Fatalf("%q: %d bytes, want %d", b, n, want.length)
		}
		if n == 0 {
			return
		}
		if duplicate.Match(b[:n]) {
			want.closing = firstTag(tag).closing
		}
		if got := firstTag(tag); !sameTag(got, want) || got.length != len(tag) {
			t.Fatalf("%q became %q: %+v, want %+v", b, tag, got, want)
		}
	})
}

// TestGiantTags: what stands around a giant tag, and in it, is found as without it.
func TestGiantTags(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := 0; b.Len() < 3*giantTag; i++ {
		b.WriteString(" a" + itoa(i) + `='"<a href=/no>'`)
	}
	giant := b.String()
	for name, tt := range map[string]struct{ page, links, title string }{
		"link":               {"<a href=/1><a" + giant + " href=/2 rel=nofollow><a href=/3>", "/1 /2 /3", ""},
		"first of two":       {"<a href=/1" + giant + " href=/2>", "/1", ""},
		"script":             {"<script" + giant + "><a href=/no></script><a href=/1>", "/1", ""},
		"title":              {"<title" + giant + ">x <b> y</title><a href=/1>", "/1", "x <b> y"},
		"within a script":    {"<script><p" + giant + "></script><a href=/1>", "/1", ""},
		"within a title":     {"<title><p" + giant + "</title><a href=/1>", "/1", title([]byte("<p" + giant))},
		"within a comment":   {"<!-- <p" + giant + "--><a href=/1>", "/1", ""},
		"noscript":           {"<noscript" + giant + "><a href=/1></noscript>", "/1", ""},
		"svg":                {"<svg" + giant + "><title><a href=/no></title></svg><title>t</title>", "/no", "t"},
		"title of svg":       {"<svg><title" + giant + "><a href=/1></title></svg><title>t</title>", "/1", "t"},
		"script of svg":      {"<svg><script" + giant + "><p><a href=/1></p></svg>", "/1", ""},
		"self-closing":       {"<svg" + giant + "/><title>t</title><a href=/1>", "/1", "t"},
		"end tag":            {"<a href=/1></p" + giant + "><a href=/2>", "/1 /2", ""},
		"never ends":         {"<a href=/1><a href=/no" + giant, "/1", ""},
		"base":               {"<a href=1><base" + giant + " href=/b/>", "/b/1", ""},
		"again and again":    {strings.Repeat("<a"+giant+" href=/1>", 5) + "<a href=/2>", "/1 /2", ""},
		"behind a long text": {strings.Repeat("x", 4*giantTag) + "<a" + giant + " href=/1>", "/1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := read(tt.page, "utf-8")
			if got := strings.Join(linked(p), " "); got != tt.links || p.title != tt.title {
				t.Errorf("links %q, title %.80q, want %q, %.80q", got, p.title, tt.links, tt.title)
			}
		})
	}
}
