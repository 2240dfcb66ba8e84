package demosite

import (
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
)

// TestBrokenFiles: whoever edits the site learns which file is wrong, and how.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	const layout = "<title>{{.Title}}</title>{{.Body}}"
	for _, tc := range []struct{ name, layout, file, content, want string }{
		{"no header", layout, "site/a.html", "<p>text</p>\n", "site/a.html: a page begins with a header"},
		{"no title", layout, "site/a.html", "lang: de\n\ntext", "site/a.html: the header has no title"},
		{"two titles", layout, "site/a.html", "title: A\ntitle: B\n\ntext", `site/a.html: header "Title" is there twice`},
		{"unknown header", layout, "site/a.html", "title: A\nlanguage: de\n\ntext", `site/a.html: header "Language"`},
		{"unknown charset", layout, "site/a.html", "title: A\ncharset: koi8-r\n\ntext", `site/a.html: header "Charset"`},
		{"not Latin-1", layout, "site/a.html", "title: A\ncharset: iso-8859-1\n\n5 €", `site/a.html: '€' is not in Latin-1`},
		{"unknown type", layout, "site/sub/a.webp", "", `site/sub/a.webp: the extension ".webp" has no content type`},
		{"layout", "{{.Title", "site/a.html", "title: A\n\ntext", "layout.html"},
		{"layout's field", "{{.Nothing}}", "site/a.html", "title: A\n\ntext", "site/a.html: template"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := handler(fstest.MapFS{
				"layout.html": {Data: []byte(tc.layout)}, tc.file: {Data: []byte(tc.content)},
			})
			r := ask(t, h, http.MethodGet, "/")
			got := string(body(t, r))
			if r.StatusCode != http.StatusInternalServerError || !strings.Contains(got, tc.want) {
				t.Errorf("answers %s: %s, want %q", r.Status, got, tc.want)
			}
		})
	}
}

// TestEscaping: a title is text; a body is markup.
func TestEscaping(t *testing.T) {
	t.Parallel()
	h := handler(fstest.MapFS{
		"layout.html":     {Data: []byte("<title>{{.Title}}</title>{{.Body}}")},
		"site/index.html": {Data: []byte("title: Fish & <chips>\n\n<p>a &amp; b</p>\n")},
	})
	const want = "<title>Fish &amp; &lt;chips&gt;</title><p>a &amp; b</p>\n"
	if got := string(body(t, ask(t, h, http.MethodGet, "/"))); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
