package fetch

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// What a reader is given, or why it is not asked.
func TestRead(t *testing.T) {
	t.Parallel()
	const (
		html = "Content-Type: text/html"
		text = "Content-Type: text/plain"
		utf8 = "; charset=utf-8"
	)
	large := strings.Repeat("words ", 20_000)
	pdf := "%PDF-1.4\n\x00\x01<a href=/pdf2>"
	for name, tt := range map[string]struct {
		headers, body string
		text          bool
		want          string // of the body; "-" where the reader is not asked
		html          bool
		charset       string
		from          CharsetFrom
	}{
		"page":                    {html + utf8, "<p>café", false, "<p>café", true, "utf-8", CharsetHeader},
		"page, whatever of text":  {html + utf8, "<p>café", true, "<p>café", true, "utf-8", CharsetHeader},
		"large page":              {html, "<p>" + large, false, "<p>" + large, true, "utf-8", CharsetUTF8},
		"CHR-04 mark":             {html + "; charset=windows-1251", "\xef\xbb\xbf<p>ю", false, "<p>ю", true, "utf-8", CharsetBOM},
		"page of another charset": {html + "; charset=windows-1251", "<p>\xfe", false, "<p>ю", true, "windows-1251", CharsetHeader},
		"page of no UTF-8":        {html + utf8, "<p>\xff", false, "<p>\uFFFD", true, "utf-8", CharsetHeader},
		"empty page":              {html, "", false, "", true, "", ""},
		"XHTML":                   {"Content-Type: application/xhtml+xml", "<p/>", false, "<p/>", true, "utf-8", CharsetUTF8},
		"unlabelled page":         {"", "<!doctype html><p>x", false, "<!doctype html><p>x", true, "utf-8", CharsetUTF8},
		"HTM-08 PDF":              {html, pdf, true, "-", false, "", ""},
		"HTM-08 ZIP":              {html, "PK\x03\x04\x14\x00\x00\x00<a href=/zip>", true, "-", false, "", ""},

		"text, not asked for":        {text, "hello", false, "-", false, "", ""},
		"HTM-09 text":                {text + utf8, "<p>hello", true, "<p>hello", false, "utf-8", CharsetHeader},
		"large text":                 {text, large, true, large, false, "utf-8", CharsetUTF8},
		"text with a mark":           {text, "\xef\xbb\xbfhello", true, "hello", false, "utf-8", CharsetBOM},
		"text in UTF-16":             {text, "\xff\xfeh\x00i\x00", true, "hi", false, "utf-16le", CharsetBOM},
		"text in UTF-16, by header":  {text + "; charset=utf-16le", "h\x00i\x00", true, "hi", false, "utf-16le", CharsetHeader},
		"meta elements say nothing":  {text, "<meta charset=windows-1251>ю", true, "<meta charset=windows-1251>ю", false, "utf-8", CharsetUTF8},
		"text of no charset":         {text, "caf\xe9 " + strings.Repeat("plain ", 20), true, "café " + strings.Repeat("plain ", 20), false, "windows-1252", ""},
		"unlabelled text":            {"", "hello there", true, "hello there", false, "utf-8", CharsetUTF8},
		"unlabelled text, not asked": {"", "hello there", false, "-", false, "", ""},
		"JSON":                       {"Content-Type: application/json", `{"a":1}`, true, `{"a":1}`, false, "utf-8", CharsetUTF8},
		"JSON of a kind":             {"Content-Type: application/ld+json", `{}`, true, `{}`, false, "utf-8", CharsetUTF8},
		"XML":                        {"Content-Type: application/xml", "<?xml version='1.0' encoding='windows-1251'?><a>\xfe</a>", true, "<?xml version='1.0' encoding='windows-1251'?><a>ю</a>", false, "windows-1251", CharsetXML},
		"feed":                       {"Content-Type: application/rss+xml", "<rss/>", true, "<rss/>", false, "utf-8", CharsetUTF8},
		"no text at all":             {text, "\x00\x01\x02" + large, true, "-", false, "", ""},
		"image":                      {"Content-Type: image/png", "\x89PNG\r\n\x1a\n", true, "-", false, "", ""},
		"script":                     {"Content-Type: application/javascript", "x()", true, "-", false, "", ""},
		"empty text":                 {text, "", true, "", false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, coding := range []string{"", "gzip", "br"} {
				h := answer("200 OK", tt.headers, tt.body)
				switch {
				case coding == "" || tt.body == "":
				case coding == "gzip":
					h = answer("200 OK", strings.TrimPrefix(tt.headers+"\r\nContent-Encoding: gzip", "\r\n"), string(gzipped(tt.body)))
				default:
					h = answer("200 OK", strings.TrimPrefix(tt.headers+"\r\nContent-Encoding: br", "\r\n"), string(brotlied(tt.body)))
				}
				got, calls := "-", 0
				var during Result
				res, err := newFetcher(t, Options{}).Fetch(t.Context(), Request{
					URL: serve(t, h).url(t, "/"), Links: true, Text: tt.text, Read: func(res *Result, c Content) error {
						calls++
						got, during = string(c.Body), *res
						if c.HTML != tt.html {
							t.Errorf("HTML: %t", c.HTML)
						}
						return nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				if got != tt.want || calls > 1 {
					t.Errorf("%s: read %.80q in %d calls, want %.80q", coding, got, calls, tt.want)
				}
				if res.Page.Charset != tt.charset || tt.from != "" && res.CharsetFrom != tt.from {
					t.Errorf("charset %q from %q, want %q from %q", res.Page.Charset, res.CharsetFrom, tt.charset, tt.from)
				}
				if calls > 0 && !cmp.Equal(during.Page, res.Page) {
					t.Errorf("the reader was shown %+v, and the result is %+v", during.Page, res.Page)
				}
				if n := int64(len(tt.body)); tt.want != "-" && res.Page.Bytes != n {
					t.Errorf("%d bytes, want %d", res.Page.Bytes, n)
				}
				if !tt.html && len(res.Links) > 0 {
					t.Errorf("links %v", res.Links)
				}
			}
		})
	}
}

// What is read is the same with a reader as without one.
func TestReadChangesNothing(t *testing.T) {
	t.Parallel()
	const body = `<html lang=de><title>x</title><meta name=robots content=noindex><a href=/a>a</a><a href="ftp://x">b</a>`
	for name, h := range map[string]handler{
		"page":  page(body),
		"text":  answer("200 OK", "Content-Type: text/plain", body),
		"error": answer("404 No", "Content-Type: text/html", body),
		"moved": redirectTo("http://other.test/"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := serve(t, h).url(t, "/")
			f := newFetcher(t, Options{})
			fetched := func(read func(*Result, Content) error) Result {
				res, _ := f.Fetch(t.Context(), Request{URL: u, Links: true, Product: "TestBot", Read: read})
				res.Page.FetchedAt, res.Page.DurationMS = time.Time{}, 0
				return res
			}
			read := fetched(func(*Result, Content) error { return nil })
			if d := cmp.Diff(fetched(nil), read, cmp.AllowUnexported(crawl.URL{})); d != "" {
				t.Errorf("(-without +with):\n%s", d)
			}
		})
	}
}

// The error of a reader is the caller's own, with what is known of a failure.
func TestReadFails(t *testing.T) {
	t.Parallel()
	want := errors.New("no")
	s := serve(t, page("<title>x</title><a href=/a>"))
	res, err := newFetcher(t, Options{}).Fetch(t.Context(), Request{
		URL: s.url(t, "/"), Links: true, Read: func(*Result, Content) error { return want },
	})
	if err != want { //nolint:errorlint // as it is, says the doc
		t.Errorf("error %v", err)
	}
	if res.Page.Status != 200 || res.Final.IsZero() || res.Header == nil || res.Links != nil || res.Page.Title != "" {
		t.Errorf("result %+v", res)
	}
}

// A panic of a reader is the page's, and the buffers and places are free again.
func TestReadPanics(t *testing.T) {
	t.Parallel()
	s := serve(t, page(strings.Repeat("<p>words", 20_000)))
	f := newFetcher(t, Options{})
	for range 4 * cap(slots) {
		_, err := f.Fetch(t.Context(), Request{URL: s.url(t, "/"), Read: func(*Result, Content) error { panic("x") }})
		if crawl.CodeOf(err) != crawl.CodeInternal {
			t.Fatalf("error %v", err)
		}
	}
}

// A large page holds its place for as long as it is read.
func TestReadHoldsItsPlace(t *testing.T) { //nolint:paralleltest // slots are those of the process
	s := serve(t, page(strings.Repeat("<p>words", 20_000)))
	f := newFetcher(t, Options{})
	var now, most atomic.Int32
	done := make(chan error)
	const pages = 16
	for range pages {
		go func() {
			_, err := f.Fetch(context.Background(), Request{URL: s.url(t, "/"), Read: func(*Result, Content) error {
				defer now.Add(-1)
				for n := now.Add(1); ; {
					if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				s.url(t, "/again")
				return nil
			}})
			done <- err
		}()
	}
	for range pages {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if int(most.Load()) > cap(slots) {
		t.Errorf("%d pages at a time, want at most %d", most.Load(), cap(slots))
	}
}

// conditional is a site whose /page is as it was, and whose other targets lead there.
func conditional(c net.Conn, target string) bool {
	h := answer("304 Not Modified", `ETag: "2"`, "")
	switch target {
	case "/moved":
		h = redirectTo("/page")
	case "/cookie":
		h = answer("302 Found", "Location: /cookie\r\nSet-Cookie: a=b", "")
	case "/new":
		h = page("<title>New</title>")
	}
	if strings.HasPrefix(target, "/304") {
		// A 304 has no body, whatever its header says (RFC 9112 section 6.3).
		h = raw("HTTP/1.1 304 Not Modified\r\nContent-Type: text/html\r\nContent-Length: 500\r\n\r\n")
	}
	return h(c, target)
}

// Validators ask for a page if it has changed: the page itself and no other.
func TestValidators(t *testing.T) {
	t.Parallel()
	const date = "Sun, 06 Nov 1994 08:49:37 GMT"
	for name, tt := range map[string]struct {
		target   string
		v        Validators
		sent     []string // by request: If-None-Match and If-Modified-Since
		same     bool
		code     crawl.Code
		redirect bool
	}{
		"none":                      {"/page", Validators{}, []string{"|"}, false, crawl.CodeBadResponse, false},
		"etag":                      {"/page", Validators{ETag: `"1"`}, []string{`"1"|`}, true, "", false},
		"weak":                      {"/page", Validators{ETag: `W/"1"`}, []string{`W/"1"|`}, true, "", false},
		"date":                      {"/page", Validators{LastModified: date}, []string{"|" + date}, true, "", false},
		"both":                      {"/page", Validators{`"1"`, date}, []string{`"1"|` + date}, true, "", false},
		"304 with a length":         {"/304", Validators{ETag: `"1"`}, []string{`"1"|`}, true, "", false},
		"changed":                   {"/new", Validators{ETag: `"1"`}, []string{`"1"|`}, false, "", false},
		"not on a redirect":         {"/moved", Validators{ETag: `"1"`}, []string{`"1"|`, "|"}, false, crawl.CodeBadResponse, false},
		"no line breaks":            {"/page", Validators{ETag: "\"1\"\r\nX: y"}, []string{"|"}, false, "", false},
		"no date":                   {"/page", Validators{LastModified: "yesterday"}, []string{"|"}, false, "", false},
		"neither a redirect's 304s": {"/cookie", Validators{ETag: `"1"`}, nil, false, crawl.CodeRedirectLoop, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, conditional)
			res, err := newFetcher(t, Options{}).Fetch(t.Context(), Request{
				URL: s.url(t, tt.target), Links: true, Validators: tt.v, Text: true,
				Read: func(res *Result, _ Content) error {
					if res.Page.Title != "New" {
						t.Error("there is no body to be read")
					}
					return nil
				},
			})
			if tt.code != "" && crawl.CodeOf(err) != tt.code {
				t.Errorf("error %v, want %s", err, tt.code)
			}
			if res.NotModified != tt.same || tt.same && (err != nil || res.Page.Status != 304 || res.Page.Bytes != 0 || res.Digest != Digest{}) {
				t.Errorf("not modified: %t, %+v, %v", res.NotModified, res.Page, err)
			}
			var sent []string
			for _, head := range s.requests() {
				r := must(http.ReadRequest(bufio.NewReader(strings.NewReader(head))))
				sent = append(sent, r.Header.Get("If-None-Match")+"|"+r.Header.Get("If-Modified-Since"))
			}
			if tt.sent != nil && !cmp.Equal(tt.sent, sent) {
				t.Errorf("sent %q, want %q", sent, tt.sent)
			}
		})
	}
}

// What of an answer is kept to be sent another time.
func TestValidatorsOf(t *testing.T) {
	t.Parallel()
	const (
		now    = "Sun, 06 Nov 1994 08:49:37 GMT"
		before = "Sun, 06 Nov 1994 08:49:35 GMT"
		just   = "Sun, 06 Nov 1994 08:49:36 GMT"
	)
	etag := func(s string) http.Header { return http.Header{"Etag": {s}} }
	dated := func(s string) http.Header { return http.Header{"Last-Modified": {s}, "Date": {now}} }
	for name, tt := range map[string]struct {
		h    http.Header
		want Validators
	}{
		"none":                  {nil, Validators{}},
		"strong":                {etag(`"a-1"`), Validators{ETag: `"a-1"`}},
		"weak":                  {etag(`W/"a"`), Validators{ETag: `W/"a"`}},
		"empty":                 {etag(`""`), Validators{ETag: `""`}},
		"bytes above ASCII":     {etag("\"\xe9\""), Validators{ETag: "\"\xe9\""}},
		"without quotes":        {etag("abc"), Validators{}},
		"half a quote":          {etag(`"`), Validators{}},
		"open":                  {etag(`"abc`), Validators{}},
		"w":                     {etag(`w/"abc"`), Validators{}},
		"blank in it":           {etag(`"a b"`), Validators{}},
		"quote in it":           {etag(`"a"b"`), Validators{}},
		"control in it":         {etag("\"a\x00b\""), Validators{}},
		"1 KiB":                 {etag(`"` + strings.Repeat("x", 1022) + `"`), Validators{ETag: `"` + strings.Repeat("x", 1022) + `"`}},
		"more than 1 KiB":       {etag(`"` + strings.Repeat("x", 1023) + `"`), Validators{}},
		"two":                   {http.Header{"Etag": {`"a"`, `"b"`}}, Validators{}},
		"date":                  {dated(before), Validators{LastModified: before}},
		"date of this second":   {dated(now), Validators{}},
		"date of the last one":  {dated(just), Validators{}},
		"no date":               {dated("1994"), Validators{}},
		"a date without a Date": {http.Header{"Last-Modified": {before}}, Validators{LastModified: before}},
		"a future date":         {dated("Sun, 06 Nov 2094 08:49:37 GMT"), Validators{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ValidatorsOf(tt.h); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// BenchmarkRead is a fetch with a reader that does nothing.
func BenchmarkRead(b *testing.B) {
	s := serve(b, page(benchPage()))
	f := newFetcher(b, Options{})
	u := s.url(b, "/section-1/page-17.html")
	b.ReportAllocs()
	for b.Loop() {
		res, err := f.Fetch(b.Context(), Request{
			URL: u, Links: true, Product: "TestBot", Read: func(*Result, Content) error { return nil },
		})
		if err != nil || len(res.Links) != 20 {
			b.Fatalf("%d links, %v", len(res.Links), err)
		}
	}
}
