package fetch

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// TestScratch: whatever a page leaves behind, the next one is read as if it were the first; and a page that has left
// large tables behind leaves them to nobody.
func TestScratch(t *testing.T) {
	t.Parallel()
	var attributes strings.Builder
	for i := range 500 {
		attributes.WriteString(" a" + strconv.Itoa(i))
	}
	many := attributes.String()
	parse := func(page string) *parser {
		p := &parser{document: must(crawl.ParseURL("http://site.test/dir/p")), links: true, maxLinks: 5000}
		p.parseHTML([]byte(page))
		p.nesting = nil
		return p
	}
	alike := func(a, b *parser) bool {
		return a.title == b.title && a.language == b.language && cmp.Equal(a.found, b.found, cmp.AllowUnexported(crawl.URL{}))
	}
	want := parse(benchPage())
	if len(want.found) != 20 || want.title == "" {
		t.Fatalf("%d links, title %q", len(want.found), want.title)
	}
	for _, tt := range []struct {
		name, page string
		spoilt     bool
	}{
		{"usual", benchPage(), false},
		{"empty", "", false},
		{"open script", "<script>if (a<b", false},
		{"open title", "<title>a", false},
		{"plaintext", "<plaintext><a href=/x>", false},
		{"open foreign content", "<svg><title><![CDATA[", false},
		{"open template", "<template><a href=/x>", false},
		{"long text", strings.Repeat("words ", 1000), false},
		{"long comment", "<!--" + strings.Repeat("words ", 1000) + "-->", false},
		{"long tag", "<a" + many + "><a href=/x>", true},
		{"giant tag", "<a" + strings.Repeat(many, 30) + " href=/y><a href=/x>", true},
		{"long tag that is cut off", "<a href=/x><a" + many, true},
		{"giant tag that is cut off", "<a href=/x><a" + strings.Repeat(many, 30), true},
		{"links to nowhere", strings.Repeat("<a href>", 5000), false},
		{"links of a thousand", strings.Repeat("<a href=/x>", 10) + links(1000), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			room := newScratch([]byte(tt.page))
			p := &parser{document: want.document, links: true, maxLinks: 5000}
			room.lend(p)
			p.pass(room)
			if room.spoilt != tt.spoilt {
				t.Errorf("spoilt %v", room.spoilt)
			}
			room.takeBack(p)
			room.release()
			first := parse(tt.page)
			if got := newScratch(nil); cap(got.hrefs) > pooledHrefs || cap(got.refs) > pooledRefs {
				t.Errorf("a scratch with room for %d bytes and %d links was kept", cap(got.hrefs), cap(got.refs))
			}
			for range 3 {
				if got := parse(benchPage()); !alike(got, want) {
					t.Errorf("read as %+v", got)
				}
			}
			if got := parse(tt.page); !alike(got, first) {
				t.Errorf("read the second time as %+v, before as %+v", got, first)
			}
		})
	}
}

// links are n links, each to another page.
func links(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("<a href=/" + strconv.Itoa(i) + ">")
	}
	return b.String()
}

// TestURLIsSentAsItIs: what net/http is told of a URL names its host, and is sent to it byte by byte.
func TestURLIsSentAsItIs(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"http://site.test/", "http://site.test:8080/a/b?c=d", "https://[::1]:8443/x", "http://site.test/a%zz",
		"http://site.test/%",
		"http://site.test/a%2Fb;c=d", "http://site.test/a?", "http://site.test/?a=%zz&b=?", "http://site.test/%C3%A9/é",
		"http://site.test/a|b\"c", "http://site.test//double//slash", "http://site.test/a:b", "http://site.test/*",
	} {
		at := must(crawl.ParseURL(raw))
		req, err := exact(&http.Request{URL: urlOf(at)}, at)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if req.URL.RequestURI() != at.RequestURI() || req.URL.Host != at.Host() || req.URL.Scheme != at.Scheme() {
			t.Errorf("%s: sent to %s://%s as %s", at, req.URL.Scheme, req.URL.Host, req.URL.RequestURI())
		}
	}
}
