package demosite

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"golang.org/x/text/encoding/charmap"
)

// root is where the tests pretend to serve the site. Nothing listens there: all goes through a recorder.
const root = "http://merrowby.test/"

// ask sends one request with the given header lines to a handler.
func ask(t *testing.T, h http.Handler, method, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// document is one answer of the walk.
type document struct {
	at    *url.URL
	typ   string
	raw   []byte
	tree  *html.Node // nil when it is not HTML
	links []*url.URL // as a browser resolves them, fragments included
	ids   map[string]bool
}

// walked is what following every link from / found.
type walked struct {
	pages     map[string]document // by decoded path
	redirects map[string]string   // of the paths that redirect
	spellings map[string][]string // of each path as it was linked, sorted, each once
	elsewhere map[string]bool     // links to other hosts
	schemes   map[string]int      // links of other schemes
}

// walk follows the links as a browser does. A path is one page however it is spelled.
func walk(t *testing.T) walked {
	t.Helper()
	h, w := Handler(), walked{
		pages: map[string]document{}, redirects: map[string]string{}, spellings: map[string][]string{},
		elsewhere: map[string]bool{}, schemes: map[string]int{},
	}
	first, err := url.Parse(root)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"/": true}
	for next := []*url.URL{first}; len(next) > 0; next = next[1:] {
		at := next[0]
		d, to := open(t, h, at)
		if to != nil {
			w.redirects[at.Path] = to.Path
			d.links = []*url.URL{to}
		} else {
			w.pages[at.Path] = d
		}
		for _, l := range d.links {
			switch {
			case l.Scheme != "http" && l.Scheme != "https":
				w.schemes[l.Scheme]++
			case l.Host != first.Host:
				w.elsewhere[l.String()] = true
			default:
				w.spellings[l.Path] = append(w.spellings[l.Path], l.EscapedPath())
				if !seen[l.Path] {
					seen[l.Path] = true
					next = append(next, l)
				}
			}
		}
	}
	for p, s := range w.spellings {
		slices.Sort(s)
		w.spellings[p] = slices.Compact(s)
	}
	return w
}

// open asks for one URL and returns the document there, or where it redirects to.
func open(t *testing.T, h http.Handler, at *url.URL) (document, *url.URL) {
	t.Helper()
	r := ask(t, h, http.MethodGet, at.String())
	d := document{at: at, typ: r.Header.Get("Content-Type"), raw: body(t, r), ids: map[string]bool{}}
	switch r.StatusCode {
	case http.StatusOK:
	case http.StatusMovedPermanently:
		to, err := at.Parse(r.Header.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		return d, to
	default:
		t.Fatalf("%s is linked, and answers %s", at, r.Status)
	}
	if !strings.HasPrefix(d.typ, "text/html") {
		return d, nil
	}
	text := d.raw
	if d.typ == latin1Type {
		var err error
		if text, err = charmap.ISO8859_1.NewDecoder().Bytes(text); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if d.tree, err = html.Parse(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	for n := range d.tree.Descendants() {
		if id := attr(n, "id"); id != "" {
			d.ids[id] = true
		}
		if href := attr(n, "href"); n.Data == "a" {
			l, err := at.Parse(href)
			if err != nil {
				t.Fatalf("%s links to %q: %v", at, href, err)
			}
			d.links = append(d.links, l)
		}
	}
	return d, nil
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// elements returns the elements of that name.
func (d document) elements(name string) (found []*html.Node) {
	for n := range d.tree.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			found = append(found, n)
		}
	}
	return found
}

// text returns the text of the only element of that name.
func (d document) text(t *testing.T, name string) string {
	t.Helper()
	found := d.elements(name)
	if len(found) != 1 {
		t.Fatalf("%s has %d elements %s, want 1", d.at.Path, len(found), name)
	}
	var b strings.Builder
	for n := range found[0].Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}

// TestWalk: the links lead to every page, each linked URL is there, and what a crawl is to meet is met.
func TestWalk(t *testing.T) {
	t.Parallel()
	s, err := load(embedded)
	if err != nil {
		t.Fatal(err)
	}
	w := walk(t)
	if len(w.pages) != Pages {
		t.Errorf("%d pages can be reached, Pages is %d", len(w.pages), Pages)
	}
	served := slices.Sorted(maps.Keys(s.files))
	served = slices.DeleteFunc(served, func(p string) bool { return p == "/robots.txt" || p == "/style.css" })
	if d := cmp.Diff(served, slices.Sorted(maps.Keys(w.pages))); d != "" {
		t.Errorf("served (-) and reached (+):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"/boats": "/boats/"}, w.redirects); d != "" {
		t.Errorf("redirects:\n%s", d)
	}
	several := maps.Clone(w.spellings)
	maps.DeleteFunc(several, func(_ string, s []string) bool { return len(s) == 1 })
	if d := cmp.Diff(map[string][]string{"/~ada/": {"/%7Eada/", "/%7eada/", "/~ada/"}}, several); d != "" {
		t.Errorf("pages in several spellings:\n%s", d)
	}
	elsewhere := []string{
		"https://harbour.example/", "https://rooms.harbour.example/stay",
		"https://weather.example/coast?at=merrowby",
	}
	if d := cmp.Diff(elsewhere, slices.Sorted(maps.Keys(w.elsewhere))); d != "" {
		t.Errorf("links elsewhere:\n%s", d)
	}
	if d := cmp.Diff(map[string]int{"mailto": 1, "tel": 1}, w.schemes); d != "" {
		t.Errorf("links of other schemes:\n%s", d)
	}
	for p, d := range w.pages {
		for _, l := range d.links {
			if to, ok := w.pages[l.Path]; ok && l.Host == d.at.Host && l.Fragment != "" && !to.ids[l.Fragment] {
				t.Errorf("%s links to %s, which has no such id", p, l)
			}
		}
	}
}

// TestDepth: in whatever order pages are fetched, no link is deeper than five, the default max_depth of a crawl. Else
// a crawl would sometimes refuse one. The pages that / links to have depth 1 for certain.
func TestDepth(t *testing.T) {
	t.Parallel()
	w := walk(t)
	near := map[string]bool{"/": true}
	for _, l := range w.pages["/"].links {
		near[l.Path] = true
	}
	shortest := map[string]int{}
	deepest := 0
	var follow func(at string, depth int, way []string)
	follow = func(at string, depth int, way []string) {
		deepest = max(deepest, depth)
		if d, ok := shortest[at]; !ok || depth < d {
			shortest[at] = depth
		}
		if depth > 5 {
			t.Errorf("%s can get depth %d, by %v", at, depth, way)
		}
		for _, l := range w.pages[at].links {
			if l.Host == w.pages["/"].at.Host && !near[l.Path] && !slices.Contains(way, l.Path) {
				follow(l.Path, depth+1, append(slices.Clone(way), l.Path))
			}
		}
	}
	for p := range near {
		if p != "/" {
			follow(p, 1, []string{p})
		}
	}
	if p := "/museum/last-entry.html"; shortest[p] != 5 || deepest != 5 {
		t.Errorf("%s is %d links from /, and the longest way is %d; want 5 and 5", p, shortest[p], deepest)
	}
}

// TestPages: each page is whole, and by itself.
func TestPages(t *testing.T) {
	t.Parallel()
	titles := map[string]string{}
	for p, d := range walk(t).pages {
		if d.tree == nil {
			continue
		}
		title, h1 := d.text(t, "title"), d.text(t, "h1")
		if other, ok := titles[title]; ok {
			t.Errorf("%s and %s have the same title %q", p, other, title)
		}
		titles[title] = p
		if title != h1+" · Merrowby" || len(h1) < 4 {
			t.Errorf("%s has the title %q and the heading %q", p, title, h1)
		}
		if n := len(strings.Fields(d.text(t, "main"))); n < 60 || n > 150 {
			t.Errorf("%s has %d words, want 60 to 150", p, n)
		}
		if len(d.elements("nav")) != 1 || !bytes.HasPrefix(d.raw, []byte("<!doctype html>\n<html lang=")) {
			t.Errorf("%s does not have the layout of the others", p)
		}
		wellFormed(t, d)
		selfContained(t, d)
	}
}

// wellFormed checks that each element is one the site uses, is closed where it may be, and closed in order. A parser
// would repair it silently.
func wellFormed(t *testing.T, d document) {
	t.Helper()
	const elements = " html head meta title link body header nav main footer a h1 h2 p ul ol li table tr th td " +
		"blockquote span i "
	var open []string
	z := html.NewTokenizer(bytes.NewReader(d.raw))
	for tt := z.Next(); tt != html.ErrorToken; tt = z.Next() {
		name, _ := z.TagName()
		switch tag := string(name); {
		case tt == html.StartTagToken && !strings.Contains(elements, " "+tag+" "):
			t.Errorf("%s has an element %q", d.at.Path, tag)
		case tt == html.StartTagToken && tag != "meta" && tag != "link":
			open = append(open, tag)
		case tt == html.EndTagToken && (len(open) == 0 || open[len(open)-1] != tag):
			t.Fatalf("%s closes %q in %v", d.at.Path, tag, open)
		case tt == html.EndTagToken:
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("%s leaves %v open", d.at.Path, open)
	}
}

// selfContained checks that a browser asks for nothing but the site's own stylesheet, and that no page knows where
// the site is served.
func selfContained(t *testing.T, d document) {
	t.Helper()
	for n := range d.tree.Descendants() {
		if attr(n, "src")+attr(n, "srcset")+attr(n, "style") != "" {
			t.Errorf("%s has %q with a source or a style", d.at.Path, n.Data)
		}
	}
	for _, l := range d.elements("link") {
		href := attr(l, "href")
		if rel := attr(l, "rel"); rel == "stylesheet" && href != "/style.css" || strings.Contains(href, ":") {
			t.Errorf("%s has the %s %s", d.at.Path, rel, href)
		}
	}
	if bytes.Contains(d.raw, []byte("http://")) || bytes.Contains(d.raw, []byte("merrowby.test")) {
		t.Errorf("%s has an absolute URL of the site", d.at.Path)
	}
}

// TestStylesheet: it loads nothing and stays a page long.
func TestStylesheet(t *testing.T) {
	t.Parallel()
	r := ask(t, Handler(), http.MethodGet, "/style.css")
	css := body(t, r)
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/css; charset=utf-8" {
		t.Errorf("answers %s, %s", r.Status, r.Header.Get("Content-Type"))
	}
	for _, no := range []string{"url(", "@import", "://"} {
		if bytes.Contains(css, []byte(no)) {
			t.Errorf("the stylesheet has %q", no)
		}
	}
}

// TestKinds: charsets, languages, types and the canonical URL are what the package comment says.
func TestKinds(t *testing.T) {
	t.Parallel()
	w := walk(t)
	for p, d := range w.pages {
		typ, lang, charset := htmlType, "en", true
		switch p {
		case "/cafe.html":
			typ, charset = latin1Type, false
		case "/willkommen.html":
			lang = "de"
		case "/tides/table.txt":
			if d.typ != "text/plain; charset=utf-8" || !bytes.HasPrefix(d.raw, []byte("MERROWBY HARBOUR")) {
				t.Errorf("%s is %s: %.40s", p, d.typ, d.raw)
			}
			continue
		}
		if d.typ != typ || attr(d.elements("html")[0], "lang") != lang || utf8.Valid(d.raw) != charset ||
			bytes.Contains(d.raw, []byte("<meta charset=")) != charset {
			t.Errorf("%s is %s, valid UTF-8: %t, wants %s in %s", p, d.typ, utf8.Valid(d.raw), typ, lang)
		}
		canonical := ""
		for _, l := range d.elements("link") {
			if attr(l, "rel") == "canonical" {
				canonical = attr(l, "href")
			}
		}
		if (canonical != "") != (p == "/recipes/chowder-print.html") {
			t.Errorf("%s has the canonical URL %q", p, canonical)
		}
	}
	// Written in bytes: the very ones of ISO 8859-1.
	const title = "<title>Caf\xe9 Sj\xf6bris: cr\xeapes, r\xf8dgr\xf8d and pi\xf1\xf3n \xb7 Merrowby</title>"
	if !bytes.Contains(w.pages["/cafe.html"].raw, []byte(title)) {
		t.Errorf("the page in Latin-1 lacks %q", title)
	}
}

// TestConditional: answers can be checked again cheaply, asked for by HEAD, and are the same each time.
func TestConditional(t *testing.T) {
	t.Parallel()
	h, again := Handler(), Handler()
	tags := map[string]string{}
	targets := append(slices.Collect(maps.Keys(walk(t).pages)), "/robots.txt", "/style.css")
	for _, p := range targets {
		r := ask(t, h, http.MethodGet, p)
		text, tag, date := body(t, r), r.Header.Get("ETag"), r.Header.Get("Last-Modified")
		if other, ok := tags[tag]; ok || len(tag) < 10 {
			t.Errorf("%s and %s have the tag %q", p, other, tag)
		}
		tags[tag] = p
		if at, err := http.ParseTime(date); err != nil || at.After(time.Now()) {
			t.Errorf("%s was modified at %q, which is no time in the past: %v", p, date, err)
		}
		if second := ask(t, again, http.MethodGet, p); !bytes.Equal(body(t, second), text) ||
			!cmp.Equal(second.Header, r.Header) {
			t.Errorf("%s is not the same each time", p)
		}
		head := ask(t, h, http.MethodHead, p)
		if head.StatusCode != http.StatusOK || len(body(t, head)) > 0 || !cmp.Equal(head.Header, r.Header) {
			t.Errorf("HEAD %s answers %s, %v", p, head.Status, head.Header)
		}
		for _, tc := range []struct {
			name, value string
			status      int
		}{
			{"If-None-Match", tag, http.StatusNotModified},
			{"If-None-Match", `"another"`, http.StatusOK},
			{"If-Modified-Since", date, http.StatusNotModified},
			{"If-Modified-Since", edition.AddDate(0, 0, -1).Format(http.TimeFormat), http.StatusOK},
		} {
			if got := ask(t, h, http.MethodGet, p, tc.name, tc.value); got.StatusCode != tc.status {
				t.Errorf("%s with %s: %s answers %s, want %d", p, tc.name, tc.value, got.Status, tc.status)
			}
		}
	}
}

// TestAnswers: what is no page says so, and what is one has few names.
func TestAnswers(t *testing.T) {
	t.Parallel()
	h := Handler()
	for _, tc := range []struct {
		method, target string
		status         int
		header, value  string
	}{
		{"GET", "/robots.txt", 200, "Content-Type", "text/plain; charset=utf-8"},
		{"GET", "/?from=a+friend", 200, "", ""},
		{"GET", "/%7Eada/", 200, "", ""},
		{"GET", "/boats", 301, "Location", "/boats/"},
		{"HEAD", "/museum", 301, "Location", "/museum/"},
		{"GET", "/favicon.ico", 404, "", ""},
		{"GET", "/sitemap.xml", 404, "", ""},
		{"GET", "/index.html", 404, "", ""},
		{"GET", "/layout.html", 404, "", ""},
		{"GET", "/site/index.html", 404, "", ""},
		{"GET", "/../layout.html", 404, "", ""},
		{"GET", "/boats/../layout.html", 404, "", ""},
		{"GET", "//", 404, "", ""},
		{"GET", "/BOATS/", 404, "", ""},
		{"GET", "/boats/ida", 404, "", ""},
		{"GET", "/boats%2Fida.html", 404, "", ""},
		{"GET", "/boats%2fida.html", 404, "", ""},
		{"GET", "/visit.html/", 404, "", ""},
		{"HEAD", "/nothing", 404, "", ""},
		{"POST", "/", 405, "Allow", "GET, HEAD"},
		{"DELETE", "/boats", 405, "Allow", "GET, HEAD"},
	} {
		r := ask(t, h, tc.method, tc.target)
		if r.StatusCode != tc.status || r.Header.Get(tc.header) != tc.value {
			t.Errorf("%s %s answers %s, %v", tc.method, tc.target, r.Status, r.Header)
		}
	}
	if got := string(body(t, ask(t, h, "GET", "/robots.txt"))); got != "User-agent: *\nAllow: /\n" {
		t.Errorf("robots.txt is %q", got)
	}
}

// FuzzHandler: no request target gets anything but the embedded files, a redirect to one, or 404.
func FuzzHandler(f *testing.F) {
	for _, s := range []string{
		"/", "/boats", "/boats/ida.html", "/%7eada/", "/../../etc/passwd", "/%2e%2e/layout.html", "//boats/", "*",
		"/boats%2f", "/%00", "/\xff", "/a?b#c", "http://other.example/boats/",
	} {
		f.Add(s)
	}
	h := Handler()
	s, err := load(embedded)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			t.Skip("net/http answers 400 itself")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).WithContext(t.Context()))
		switch want, ok := s.files[u.Path]; w.Code {
		case http.StatusOK:
			if !ok || !bytes.Equal(w.Body.Bytes(), want.body) {
				t.Errorf("%q is served and is no file of the site", target)
			}
		case http.StatusMovedPermanently:
			if to := w.Header().Get("Location"); s.files[to].body == nil || to != u.Path+"/" {
				t.Errorf("%q redirects to %q", target, to)
			}
		case http.StatusNotFound:
			if ok && !strings.Contains(strings.ToUpper(u.EscapedPath()), "%2F") {
				t.Errorf("%q is not found and is a file of the site", target)
			}
		default:
			t.Errorf("%q answers %d", target, w.Code)
		}
	})
}
