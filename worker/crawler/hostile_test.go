package crawler_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/andybalholm/brotli"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/worker/crawler"
)

// rawSite is a server that answers byte for byte what a test says.
type rawSite struct {
	url string

	mu    sync.Mutex
	asked map[string]int
}

// answerRaw starts a server; h writes the answer to a target, and the connection is closed
// behind it.
func answerRaw(t *testing.T, h func(w io.Writer, target string)) *rawSite {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawSite{url: "http://" + ln.Addr().String(), asked: map[string]int{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				s.serve(c, h)
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return s
}

func (s *rawSite) serve(c net.Conn, h func(io.Writer, string)) {
	r := bufio.NewReader(c)
	first, err := r.ReadString('\n')
	for line := first; err == nil && line != "\r\n"; {
		line, err = r.ReadString('\n')
	}
	parts := strings.Fields(first)
	if err != nil || len(parts) < 2 {
		return
	}
	s.mu.Lock()
	s.asked[parts[1]]++
	s.mu.Unlock()
	h(c, parts[1])
}

func (s *rawSite) times(target string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[target]
}

const (
	okHead   = "HTTP/1.1 200 OK\r\n"
	xmlHead  = okHead + "Content-Type: application/xml\r\n"
	notFound = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
)

// says answers with one text.
func says(text string) func(io.Writer) {
	return func(w io.Writer) { _, _ = io.WriteString(w, text) }
}

// forever answers with head and then again, again and again.
func forever(head, again string) func(io.Writer) {
	block := strings.Repeat(again, max(1, 32<<10/len(again)))
	return func(w io.Writer) {
		for _, err := io.WriteString(w, head); err == nil; {
			_, err = io.WriteString(w, block)
		}
	}
}

// packed answers with head and text under codings, each "gzip" or "br".
func packed(t *testing.T, head, text string, codings ...string) func(io.Writer) {
	t.Helper()
	for _, coding := range codings {
		var b bytes.Buffer
		var z io.WriteCloser = gzip.NewWriter(&b)
		if coding == "br" {
			z = brotli.NewWriterLevel(&b, 2)
		}
		if _, err := io.WriteString(z, text); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		text = b.String()
	}
	return says(head + "\r\n" + text)
}

// laughs is a sitemap whose one address is a billion laughs.
func laughs() string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY l0 "lol">`)
	for i := range 9 {
		fmt.Fprintf(&b, `<!ENTITY l%d "%s">`, i+1, strings.Repeat(fmt.Sprintf("&l%d;", i), 10))
	}
	return b.String() + `<!ENTITY x SYSTEM "file:///etc/passwd">]><urlset><url><loc>/&l9;</loc></url>` +
		`<url><loc>/a</loc></url><url><loc>&x;</loc></url></urlset>`
}

// TestHostileRobots: whatever stands where robots.txt should be, the pages of the site are
// fetched when that allows them, and wait, with the reason, when it cannot be known.
func TestHostileRobots(t *testing.T) {
	t.Parallel()
	const (
		rule = "User-agent: *\nDisallow: /private\n"
		text = okHead + "Content-Type: text/plain\r\n"
	)
	lines := func(n int, line string) string { return strings.Repeat(line, n/len(line)) }
	for name, tt := range map[string]struct {
		answer  func(io.Writer)
		private bool // may be fetched
		waits   bool
	}{
		"SM-03 gzip bomb": {
			packed(t, text+"Content-Encoding: gzip\r\n", rule+lines(32<<20, "#\n"), "gzip"), false, false,
		},
		"SM-03 gzip in gzip": {
			packed(t, text+"Content-Encoding: gzip, gzip\r\n", rule+lines(32<<20, "#\n"), "gzip", "gzip"),
			false, false,
		},
		"SM-03 gzip in br": {
			packed(t, text+"Content-Encoding: gzip, br\r\n", rule+lines(32<<20, "#\n"), "gzip", "br"), false,
			false,
		},
		"1,000,000 lines": {
			says(text + "\r\n" + rule + lines(20<<20, "Allow: /p*rivate/"+strings.Repeat("*x", 5)+"\n")),
			false, false,
		},
		"lines for ever": {forever(text+"\r\n"+rule, "Disallow: /x\n"), false, false},
		"chunks for ever": {
			forever(text+"Transfer-Encoding: chunked\r\n\r\n21\r\n"+rule+"\r\n", "2\r\n#\n\r\n"), false, false,
		},
		"sitemaps for ever": {forever(text+"\r\n"+rule, "Sitemap: /s\n"), false, false},
		"a rule of 400 KB": {
			says(text + "\r\n" + rule + "Disallow: /" + lines(400<<10, "*a") + "\n"), false, false,
		},
		"null bytes":           {says(text + "\r\n" + strings.Repeat("\x00", 1<<20)), true, false},
		"an HTML page":         {says(okHead + "Content-Type: text/html\r\n\r\n<html><body>not here"), true, false},
		"redirect loop":        {says("HTTP/1.1 302 Found\r\nLocation: /robots.txt\r\n\r\n"), true, false},
		"404 without an end":   {forever("HTTP/1.1 404 No\r\n\r\n", "x"), true, false},
		"header without end":   {forever(okHead, "X-A: b\r\n"), true, true},
		"garbage":              {forever("", "\x00\x01\x02"), true, true},
		"cut":                  {says(text + "Content-Length: 500\r\n\r\n" + rule), true, true},
		"cut in a chunk":       {says(text + "Transfer-Encoding: chunked\r\n\r\n500\r\n" + rule), true, true},
		"no gzip":              {says(text + "Content-Encoding: gzip\r\n\r\n" + rule), true, true},
		"a coding of nobody's": {says(text + "Content-Encoding: x-y\r\n\r\n" + rule), true, true},
		"nothing":              {says(""), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, crawltest.Any(t))
			s := answerRaw(t, func(w io.Writer, target string) {
				if target == "/robots.txt" {
					tt.answer(w)
					return
				}
				_, _ = io.WriteString(w, okHead+"Content-Type: text/html\r\nContent-Length: 2\r\n\r\nok")
			})
			b.forget(t, s.url)
			b.worker(t, nil)
			job := b.submit(t, obedient(list(2)), s.url+"/a", s.url+"/private")
			if tt.waits {
				crawltest.Eventually(t, 30*time.Second, "the job waits for robots", func() bool {
					j, err := b.store.Job(t.Context(), job)
					return err == nil && j.WaitingFor == crawl.WaitingRobots
				})
				if n := s.times("/a") + s.times("/private"); n > 0 {
					t.Errorf("%d pages were requested", n)
				}
				return
			}
			j := b.ended(t, job, time.Minute)
			want := map[bool]int64{true: 2, false: 1}[tt.private]
			if j.State != crawl.Completed || j.Accepted != want || j.SkippedByReason[crawl.SkipRobots] != 2-want {
				t.Errorf("ended as %+v, want %d pages", j, want)
			}
			if n := s.times("/private"); int64(n) != want-1 {
				t.Errorf("/private was requested %d times", n)
			}
		})
	}
}

// TestHostileSitemaps: whatever a sitemap is, what it named before it went wrong is
// crawled, it is counted as read or as failed, and the job ends.
func TestHostileSitemaps(t *testing.T) {
	t.Parallel()
	const open = "<urlset><url><loc>/a</loc></url>"
	bomb := open + strings.Repeat("\n", 64<<20)
	gz := "Content-Type: application/gzip\r\n"
	for name, tt := range map[string]struct {
		answer       func(io.Writer)
		read, failed int64
		a            bool // the page that it names is found
		limited      bool // the limit of sitemaps cut it
	}{
		"SM-03 gzip bomb": {packed(t, xmlHead+"Content-Encoding: gzip\r\n", bomb, "gzip"), 1, 0, true, true},
		"SM-03 br":        {packed(t, xmlHead+"Content-Encoding: br\r\n", bomb, "br"), 1, 0, true, true},
		"SM-03 a .gz":     {packed(t, okHead+gz, bomb, "gzip"), 1, 0, true, true},
		"SM-03 a .gz of a .gz in br": {
			packed(t, okHead+gz+"Content-Encoding: br\r\n", bomb, "gzip", "gzip", "br"), 1, 0, true, true,
		},
		"billion laughs": {says(xmlHead + "\r\n" + laughs()), 1, 0, true, false},
		"for ever":       {forever(xmlHead+"\r\n"+open, " "), 1, 0, true, true},
		"entries for ever": {
			forever(xmlHead+"\r\n"+open, "<url><loc>http://other.test/</loc></url>"), 1, 0, true, true,
		},
		"a tag for ever":  {forever(xmlHead+"\r\n"+open+"<x ", "a=b "), 1, 0, true, true},
		"nested elements": {forever(xmlHead+"\r\n"+open, "<x>"), 0, 1, true, false},
		"a document type": {
			forever(xmlHead+"\r\n<!DOCTYPE urlset [", "<!ENTITY a 'b'>"), 0, 1, false, false,
		},
		"10,000,000 other maps": {
			forever(xmlHead+"\r\n<sitemapindex>", "<sitemap><loc>/s.xml</loc></sitemap>"), 1, 0, false, true,
		},
		"null bytes": {forever(xmlHead+"\r\n", "\x00"), 0, 1, false, false},
		"chunks that are none": {
			says(xmlHead + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + open), 0, 1, false, false,
		},
		"no sitemap, for ever": {
			forever(okHead+"Content-Type: text/html\r\n\r\n<html>", "x"), 0, 1, false, false,
		},
		"header without an end":   {forever(okHead, "X-A: b\r\n"), 0, 1, false, false},
		"HTTP/0.9":                {says(open + "</urlset>"), 0, 1, false, false},
		"redirects to each other": {says("HTTP/1.1 302 Found\r\nLocation: /s.xml\r\n\r\n"), 0, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, crawltest.Any(t))
			s := answerRaw(t, func(w io.Writer, target string) {
				switch target {
				case "/robots.txt":
					_, _ = io.WriteString(w, okHead+"\r\nSitemap: /s.xml\n")
				case "/s.xml":
					tt.answer(w)
				case "/seed", "/a":
					_, _ = io.WriteString(w, okHead+"Content-Type: text/html\r\nContent-Length: 2\r\n\r\nok")
				default:
					_, _ = io.WriteString(w, notFound)
				}
			})
			b.forget(t, s.url)
			b.worker(t, func(o *crawler.ProcessOptions) { o.Fetch.Timeout = 5 * time.Minute }) // on a busy machine
			j := b.ended(t, b.submit(t, mapped(site(100, 5, 4), crawl.SitemapInclude), s.url+"/seed"), 5*time.Minute)
			if j.Sitemaps != tt.read || j.SitemapsFailed != tt.failed {
				t.Errorf("%d sitemaps read and %d failed, want %d and %d: %+v", j.Sitemaps, j.SitemapsFailed, tt.read, tt.failed, j)
			}
			if got := s.times("/a") == 1; got != tt.a {
				t.Errorf("/a was requested %d times", s.times("/a"))
			}
			if got := j.RefusedByReason[crawl.RefusedSitemapLimit] > 0; got != tt.limited {
				t.Errorf("refused %v, want the limit of sitemaps there: %t", j.RefusedByReason, tt.limited)
			}
			if n := s.times("/s.xml"); n > 6 {
				t.Errorf("the sitemap was requested %d times", n)
			}
		})
	}
}

// forget has the store forget what it was told of the port of a site.
func (b *bench) forget(t *testing.T, site string) {
	t.Helper()
	b.unknown(t, &crawltest.Site{URL: site})
}
