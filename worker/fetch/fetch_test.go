package fetch

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/netguard"
)

// faultOf returns err as a fault with a message that may be shown.
func faultOf(t *testing.T, err error) *crawl.Fault {
	t.Helper()
	f, ok := errors.AsType[*crawl.Fault](err)
	if !ok {
		t.Fatalf("got %v, want a *crawl.Fault", err)
	}
	if f.Message == "" || len(f.Message) > 1200 {
		t.Errorf("message of %d bytes: %q", len(f.Message), f.Message)
	}
	for _, r := range f.Message {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			t.Errorf("control character in message %q", f.Message)
		}
	}
	for _, internal := range []string{"net/http", "colly", "Get \"", "dial tcp", "EOF", "malformed"} {
		if strings.Contains(f.Message, internal) {
			t.Errorf("internal text in message %q", f.Message)
		}
	}
	return f
}

func TestNewReportsEveryFault(t *testing.T) { // sets the environment: not parallel
	t.Setenv("COLLY_MAX_BODY_SIZE", "0")
	_, err := New(Options{
		UserAgent: "Bot\r\nX-Evil: 1", Timeout: -1, MaxBodyBytes: -1, MaxRedirects: -1, MaxConnsPerHost: -1,
	})
	var fields []string
	for _, ff := range faultOf(t, err).Fields {
		fields = append(fields, ff.Field)
	}
	want := []string{
		"Dial",
		"UserAgent",
		"Timeout",
		"MaxBodyBytes",
		"MaxRedirects",
		"MaxConnsPerHost",
		"COLLY_MAX_BODY_SIZE",
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	s := serve(
		t,
		answer(
			"203 Non-Authoritative",
			"Content-Type: Text/HTML; charset=UTF-8\r\nSet-Cookie: sess=1",
			`<html lang=en><link rel=canonical href=/c><title>Hi</title><a href=/n>n</a><a href=mailto:x@y.test>m</a>`,
		),
	)
	before := time.Now()
	res, err := newFetcher(t, Options{UserAgent: "TestBot/1.0 (+http://bot.test/)"}).
		Fetch(t.Context(), Request{URL: s.url(t, "/p?q=1"), Links: true, Hops: 3})
	if err != nil {
		t.Fatal(err)
	}
	if at := res.Page.FetchedAt; at.Before(before.Truncate(0)) || at.After(time.Now()) ||
		at.Location() != time.UTC {
		t.Errorf("fetched at %v", at)
	}
	origin := "http://" + s.ln.Addr().String()
	want := crawl.Page{
		URL: origin + "/p?q=1", Status: 203, Title: "Hi", Bytes: 104, ContentType: "text/html", Charset: "utf-8",
		Language: "en", Canonical: origin + "/c", FetchedAt: res.Page.FetchedAt, DurationMS: res.Page.DurationMS,
	}
	if diff := cmp.Diff(want, res.Page); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	if res.Hops != 3 || res.Final != s.url(t, "/p?q=1") || !res.Redirect.IsZero() {
		t.Errorf("hops %d, final %v, redirect %v", res.Hops, res.Final, res.Redirect)
	}
	if diff := cmp.Diff([]string{"/n"}, paths(s, res)); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[crawl.Reason]int{crawl.RefusedScheme: 1}, res.BadLinks); diff != "" {
		t.Errorf("bad links (-want +got):\n%s", diff)
	}
	wantHead := "GET /p?q=1 HTTP/1.1\r\nHost: " + s.ln.Addr().
		String() +
		"\r\nUser-Agent: TestBot/1.0 (+http://bot.test/)\r\n" +
		"Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Encoding: gzip, br\r\n\r\n"
	if diff := cmp.Diff([]string{wantHead}, s.requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestLinksOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	s := serve(t, page(`<title>Hi</title><a href=/n>n</a>`))
	res, err := newFetcher(t, Options{}).Fetch(t.Context(), Request{URL: s.url(t, "/")})
	if err != nil || len(res.Links) != 0 || res.Page.Title != "Hi" {
		t.Errorf("%d links, title %q, %v", len(res.Links), res.Page.Title, err)
	}
}

// TestAnswers holds what a page becomes of each oddity of HTTP.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const ok = "<title>ok</title><a href=/n>n</a>"
	html := func(rest string) string { return "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + rest }
	tests := []struct {
		name      string
		h         handler
		code      crawl.Code // empty: a page with the title ok
		temporary bool
	}{
		{
			"HTTP-04 a short of Content-Length",
			raw(html("Content-Length: 500\r\n\r\n" + ok)),
			crawl.CodeTruncated,
			true,
		},
		{
			"HTTP-04 b no last chunk",
			raw(html("Transfer-Encoding: chunked\r\n\r\n5\r\n<p>hi\r\n")),
			crawl.CodeTruncated,
			true,
		},
		{
			"HTTP-04 c bad chunk size",
			raw(html("Transfer-Encoding: chunked\r\n\r\nzz\r\n<p>hi\r\n0\r\n\r\n")),
			crawl.CodeTruncated,
			true,
		},
		{"HTTP-04 d gzip cut", encoded("gzip", cut(gzipped(ok))), crawl.CodeTruncated, true},
		{"HTTP-04 d brotli cut", encoded("br", cut(brotlied(ok))), crawl.CodeTruncated, true},
		{"HTTP-04 d zstd cut", encoded("zstd", cut(zstded(ok))), crawl.CodeTruncated, true},
		{"HTTP-04 d deflate cut", encoded("deflate", cut(zlibbed(ok))), crawl.CodeTruncated, true},
		{"HTTP-04 e gzip, garbage behind", encoded("gzip", append(gzipped(ok), "garbage"...)), "", false},
		{
			"HTTP-04 gzip of two members",
			encoded("gzip", append(gzipped(ok[:9]), gzipped(ok[9:])...)),
			"",
			false,
		},
		{
			"HTTP-04 gzip, wrong checksum",
			encoded("gzip", flipped(gzipped(ok), -6)),
			crawl.CodeContentEncoding,
			false,
		},
		{"HTTP-04 f Content-Length too small", raw(html("Content-Length: 17\r\n\r\n" + ok)), "", false},
		{"HTTP-04 g reset in the middle", reset(html("\r\n" + ok)), crawl.CodeTruncated, true},
		{"no length, closed", raw(html("\r\n" + ok)), "", false},

		{"HTTP-07 no colon", raw(html("nonsense\r\n\r\n" + ok)), crawl.CodeBadResponse, false},
		{"HTTP-07 control byte", raw(html("X-N: caf\xe9\x01\r\n\r\n" + ok)), crawl.CodeBadResponse, false},
		{
			"HTTP-07 two status lines",
			raw("HTTP/1.1 200 OK\r\n" + html("\r\n"+ok)),
			crawl.CodeBadResponse,
			false,
		},
		{"HTTP-07 no reason", raw("HTTP/1.1 200\r\nContent-Type: text/html\r\n\r\n" + ok), "", false},
		{"HTTP-07 bare line feeds", raw("HTTP/1.1 200 OK\nContent-Type: text/html\n\n" + ok), "", false},
		{"HTTP-07 no answer", raw(""), crawl.CodeBadResponse, true},
		{"HTTP-07 cut in the header", raw(html("X-A")), crawl.CodeBadResponse, false},
		{"HTTP-07 HTTP/0.9", raw("<html>" + ok), crawl.CodeBadResponse, false},
		{
			"HTTP-07 two lengths",
			raw(html("Content-Length: 17\r\nContent-Length: 18\r\n\r\n" + ok)),
			crawl.CodeBadResponse,
			false,
		},
		{
			"HTTP-07 a few interim answers",
			raw(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 3) + html("\r\n"+ok)),
			"",
			false,
		},
		{"HTTP-07 space before the colon", raw(html("X-A : b\r\n\r\n" + ok)), "", false},
		{
			"HTTP-07 50 interim answers",
			raw(strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 50) + html("\r\n"+ok)),
			"",
			false,
		},
		{
			"HTTP-07 header too large",
			raw(html("X-A: " + strings.Repeat("x", maxHeaderBytes+1) + "\r\n\r\n" + ok)),
			crawl.CodeBadResponse,
			false,
		},
		{
			"switching protocols",
			raw("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
			crawl.CodeBadResponse,
			false,
		},

		{"HTTP-02 a gzip, gzip", encoded("gzip, gzip", gzipped(string(gzipped(ok)))), "", false},
		{
			"HTTP-02 b two lines",
			encoded("gzip\r\nContent-Encoding: gzip", gzipped(string(gzipped(ok)))),
			"",
			false,
		},
		{"HTTP-02 in reverse order", encoded("gzip, br", brotlied(string(gzipped(ok)))), "", false},
		{
			"HTTP-02 three",
			encoded("gzip, gzip, gzip", gzipped(string(gzipped(string(gzipped(ok)))))),
			crawl.CodeContentEncoding,
			false,
		},
		{"HTTP-02 x-gzip", encoded("x-gzip", gzipped(ok)), "", false},
		{"HTTP-02 GZIP", encoded("GZIP", gzipped(ok)), "", false},
		{"HTTP-03 br", encoded("br", brotlied(ok)), "", false},
		{"HTTP-03 zstd", encoded("zstd", zstded(ok)), "", false},
		{"HTTP-03 deflate, zlib", encoded("deflate", zlibbed(ok)), "", false},
		{"HTTP-03 deflate, raw", encoded("deflate", deflated(ok)), "", false},
		{"HTTP-03 compress", encoded("compress", []byte(ok)), crawl.CodeContentEncoding, false},
		{"HTTP-03 identity", encoded("identity", []byte(ok)), "", false},
		{"HTTP-03 a charset for a coding", encoded("UTF-8", []byte(ok)), "", false},
		{"HTTP-03 none", encoded("none", []byte(ok)), "", false},
		{"HTTP-03 not deflate at all", encoded("deflate", []byte(ok)), crawl.CodeContentEncoding, false},
		{"HTTP-03 gzip, called br", encoded("br", gzipped(ok)), crawl.CodeContentEncoding, false},
		{"HTTP-03 br, called gzip", encoded("gzip", brotlied(ok)), crawl.CodeContentEncoding, false},
		{"HTTP-03 unknown", encoded("x-new", []byte(ok)), crawl.CodeContentEncoding, false},
		{"HTTP-03 not gzip at all", encoded("gzip", []byte(ok)), crawl.CodeContentEncoding, false},
		{"HTTP-03 not brotli at all", encoded("br", []byte(ok)), crawl.CodeContentEncoding, false},
		{"HTTP-03 not zstd at all", encoded("zstd", []byte(ok)), crawl.CodeContentEncoding, false},

		{"HTM-09 no type", raw("HTTP/1.1 200 OK\r\n\r\n" + ok), "", false},
		{"HTM-09 empty type", raw("HTTP/1.1 200 OK\r\nContent-Type:\r\n\r\n" + ok), "", false},
		{"HTM-09 list", answer("200 OK", "Content-Type: text/html, text/html; charset=utf-8", ok), "", false},
		{
			"HTM-09 two headers",
			answer("200 OK", "Content-Type: text/plain\r\nContent-Type: text/html", ok),
			"",
			false,
		},
		{"HTM-09 XHTML", answer("200 OK", "Content-Type: application/xhtml+xml", ok), "", false},
		{"203", answer("203 Non-Authoritative", "Content-Type: text/html", ok), "", false},
		{
			"206 whole",
			answer("206 Partial Content", "Content-Type: text/html\r\nContent-Range: bytes 0-32/33", ok),
			"",
			false,
		},
		{
			"206 a part",
			answer("206 Partial Content", "Content-Type: text/html\r\nContent-Range: bytes 0-32/500", ok),
			crawl.CodeTruncated,
			true,
		},
		{
			"206 of unknown size",
			answer("206 Partial Content", "Content-Type: text/html\r\nContent-Range: bytes 0-32/*", ok),
			crawl.CodeTruncated,
			true,
		},
		{
			"206 the end only",
			answer("206 Partial Content", "Content-Type: text/html\r\nContent-Range: bytes 467-499/500", ok),
			crawl.CodeTruncated,
			true,
		},
		{"206 unsaid", answer("206 Partial Content", "Content-Type: text/html", ok), crawl.CodeTruncated, true},

		{"not modified", raw("HTTP/1.1 304 Not Modified\r\n\r\n"), crawl.CodeBadResponse, false},
		{"multiple choices", answer("300 Multiple Choices", "Location: /x", ok), crawl.CodeBadRedirect, false},
		{"redirect to nowhere", answer("302 Found", "", ok), crawl.CodeBadRedirect, false},
		{"redirect to nothing", answer("302 Found", "Location: ", ok), crawl.CodeBadRedirect, false},
		{
			"redirect to a script",
			answer("302 Found", "Location: javascript:alert(1)", ok),
			crawl.CodeBadRedirect,
			false,
		},
		{
			"redirect to two places",
			answer("302 Found", "Location: /x\r\nLocation: /y", ok),
			crawl.CodeBadRedirect,
			false,
		},
		{"400", answer("400 Bad", "", ok), "http_400", false},
		{"404", answer("404 Not Found", "Content-Type: text/html", ok), "http_404", false},
		{"408", answer("408 x", "", ok), "http_408", true},
		{"425", answer("425 x", "", ok), "http_425", true},
		{"429", answer("429 x", "", ok), "http_429", true},
		{"500", answer("500 x", "", ok), "http_500", true},
		{"501", answer("501 x", "", ok), "http_501", false},
		{"502", answer("502 x", "", ok), "http_502", true},
		{"503", answer("503 x", "", ok), "http_503", true},
		{"504", answer("504 x", "", ok), "http_504", true},
		{"999", answer("999 x", "", ok), "http_999", false},
		{
			"an error whose body does not end",
			raw("HTTP/1.1 404 x\r\nContent-Length: 500\r\n\r\nx"),
			"http_404",
			false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.h)
			res, err := newFetcher(t, Options{}).Fetch(t.Context(), Request{URL: s.url(t, "/"), Links: true})
			if n := len(s.targets()); n != 1 {
				t.Errorf("%d requests", n)
			}
			if tt.code != "" {
				if f := faultOf(t, err); f.Code != tt.code || f.Temporary != tt.temporary {
					t.Errorf(
						"got %q, temporary %t (%v), want %q, %t",
						f.Code,
						f.Temporary,
						err,
						tt.code,
						tt.temporary,
					)
				}
				return
			}
			if err != nil || res.Page.Title != "ok" {
				t.Errorf("title %q, %v, want ok", res.Page.Title, err)
			}
			if !strings.Contains(tt.name, "HTTP-04 f") && len(res.Links) != 1 {
				t.Errorf("%d links, want 1", len(res.Links))
			}
		})
	}
}

// TestConnectionsAreKept: neither errors nor redirects nor codings cost a new
// connection for the next page.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	s := serve(t, routes{
		"/page":  page("<title>x</title>"),
		"/gzip":  encoded("gzip", append(gzipped("<title>x</title>"), "padding"...)),
		"/go":    answer("302 Found", "Location: /page", strings.Repeat("moved ", 2000)),
		"/away":  answer("302 Found", "Location: http://other.test/", strings.Repeat("moved ", 2000)),
		"/error": answer("500 Oh", "", strings.Repeat("sorry ", 5000)),
		"/pdf":   answer("200 OK", "Content-Type: text/html", "%PDF-1.4\n"+strings.Repeat("\x00", 30_000)),
		"/css":   answer("200 OK", "Content-Type: text/css", strings.Repeat("a", 300_000)),
	}.serve)
	f := newFetcher(t, Options{})
	for range 2 {
		for _, target := range []string{"/page", "/gzip", "/go", "/away", "/error", "/pdf", "/css", "/none"} {
			_, _ = f.Fetch(t.Context(), Request{URL: s.url(t, target)})
		}
	}
	if n := s.connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	tests := map[string]time.Duration{
		"":                                  0,
		"120":                               2 * time.Minute,
		" 7 ":                               7 * time.Second,
		"-5":                                0,
		"1.5":                               0,
		"soon":                              0,
		"999999":                            maxRetryAfter,
		"99999999999999999999999999999":     maxRetryAfter,
		"Wed, 04 Mar 2026 05:07:07 GMT":     time.Minute,
		"Wed, 04 Mar 2026 05:06:06 GMT":     0,
		"Wed, 04 Mar 2126 05:06:06 GMT":     maxRetryAfter,
		"Wednesday, 04-Mar-26 05:07:07 GMT": time.Minute,
	}
	for v, want := range tests {
		if got := RetryAfter(v, now, maxRetryAfter); got != want {
			t.Errorf("RetryAfter(%q) = %v, want %v", v, got, want)
		}
	}
	_, err := one(t, answer("503 Busy", "Retry-After: 42", ""))
	if f := faultOf(t, err); f.RetryAfter != 42*time.Second || f.Status != 503 {
		t.Errorf("retry after %v, status %d", f.RetryAfter, f.Status)
	}
	_, err = one(t, answer("404 No", "Retry-After: 42", ""))
	if f := faultOf(t, err); f.RetryAfter != 0 {
		t.Errorf("404: retry after %v", f.RetryAfter)
	}
}

// TestConnectionFaults holds what can fail before there is an answer.
func TestConnectionFaults(t *testing.T) {
	t.Parallel()
	closed := must(net.Listen("tcp", "127.0.0.1:0"))
	refused := "http://" + closed.Addr().String() + "/"
	_ = closed.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	fails := func(err error) func(context.Context, string, string) (net.Conn, error) {
		return func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: err}
		}
	}
	tests := []struct {
		name, url string
		dial      func(context.Context, string, string) (net.Conn, error)
		code      crawl.Code
		temporary bool
	}{
		{"no such host", "http://x.test/", fails(&net.DNSError{IsNotFound: true}), crawl.CodeDNS, false},
		{"lookup fails", "http://x.test/", fails(&net.DNSError{IsTemporary: true}), crawl.CodeDNS, true},
		{"lookup takes too long", "http://x.test/", fails(&net.DNSError{IsTimeout: true}), crawl.CodeDNS, true},
		{"refused", refused, nil, crawl.CodeConnection, true},
		{"reset", serve(t, reset("")).url(t, "/").String(), nil, crawl.CodeConnection, true},
		{"certificate of nobody", secure.URL, nil, crawl.CodeTLS, false},
		{"no TLS", "https" + strings.TrimPrefix(plain.URL, "http"), nil, crawl.CodeTLS, false},
		{
			"SEC-04 private",
			refused,
			netguard.New(netguard.Policy{}).DialContext,
			crawl.CodePrivateAddress,
			false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := must(crawl.ParseURL(tt.url))
			_, err := newFetcher(t, Options{Dial: tt.dial}).Fetch(t.Context(), Request{URL: u})
			if f := faultOf(t, err); f.Code != tt.code || f.Temporary != tt.temporary || f.Status != 0 {
				t.Errorf(
					"got %q, temporary %t, status %d (%v), want %q, %t, 0",
					f.Code,
					f.Temporary,
					f.Status,
					err,
					tt.code,
					tt.temporary,
				)
			}
		})
	}
	if _, err := newFetcher(t, Options{}).Fetch(t.Context(), Request{}); faultOf(
		t,
		err,
	).Code != crawl.CodeInvalidURL {
		t.Errorf("zero URL: %v", err)
	}
}

// TestDrips is HTTP-09, in the bubble's time: each of these servers is slow in
// another way, and each fetch ends within the documented total.
func TestDrips(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
	every := func(c net.Conn, d time.Duration, first, again string) {
		if _, err := io.WriteString(c, first); err != nil {
			return
		}
		tick := time.NewTicker(d)
		defer tick.Stop()
		for i := 0; ; i++ {
			<-tick.C
			if _, err := io.WriteString(c, again[i%len(again):i%len(again)+1]); err != nil {
				return
			}
		}
	}
	tests := []struct {
		name string
		h    func(net.Conn)
		took time.Duration
		code crawl.Code
	}{
		{
			"HTTP-09 header",
			func(c net.Conn) { every(c, time.Second, "", head+"X-A: "+strings.Repeat("a", 100)) },
			headerTimeout,
			crawl.CodeTimeout,
		},
		{
			"HTTP-09 body",
			func(c net.Conn) { every(c, 300*time.Millisecond, head+"\r\n", "<p>") },
			DefaultTimeout,
			crawl.CodeTimeout,
		},
		{"HTTP-09 chunks", func(c net.Conn) {
			every(c, 5*time.Second/6, head+"Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n")
		}, DefaultTimeout, crawl.CodeTimeout},
		{"HTTP-09 no answer", func(net.Conn) {}, headerTimeout, crawl.CodeTimeout},
		{
			"other type", func(c net.Conn) { every(c, time.Second, "HTTP/1.1 200 OK\r\nContent-Type: text/css\r\n\r\n", "a") },
			DefaultTimeout, crawl.CodeTimeout,
		},
		{
			"error page",
			func(c net.Conn) { every(c, 300*time.Millisecond, "HTTP/1.1 404 No\r\n\r\n", "x") },
			drainTime,
			"http_404",
		},
		{"redirect in a slow body", func(c net.Conn) {
			every(c, 300*time.Millisecond, "HTTP/1.1 302 Found\r\nLocation: /a\tb\r\n\r\n", "x")
		}, drainTime * 2, crawl.CodeRedirectLoop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFetcher(t, Options{Dial: pipe(t, tt.h)})
				start := time.Now()
				_, err := f.Fetch(t.Context(), Request{URL: must(crawl.ParseURL("http://site.test/"))})
				if f := faultOf(t, err); f.Code != tt.code || tt.code == crawl.CodeTimeout && !f.Temporary {
					t.Errorf("got %v, want %s", err, tt.code)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// pipe dials an in-memory connection whose other end reads the request and is
// then h's; it is closed when the client's end is. The test waits for that.
func pipe(t *testing.T, h func(net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		wg.Go(func() {
			defer func() { _ = server.Close() }()
			if _, err := server.Read(make([]byte, 4096)); err != nil {
				return
			}
			h(server)
			_, _ = io.Copy(io.Discard, server)
		})
		return client, nil
	}
}

func TestConnectTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFetcher(
			t,
			Options{Timeout: 3 * time.Second, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}},
		)
		_, err := f.Fetch(t.Context(), Request{URL: must(crawl.ParseURL("http://site.test/"))})
		if fault := faultOf(t, err); fault.Code != crawl.CodeTimeout || !fault.Temporary {
			t.Errorf("got %v", err)
		}
	})
}

// TestCancel: the caller's context ending is told from every fault.
func TestCancel(t *testing.T) {
	t.Parallel()
	begun, gone := make(chan struct{}), make(chan struct{})
	s := serve(t, func(c net.Conn, _ string) bool {
		_, _ = io.WriteString(
			c,
			"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100000\r\n\r\n<p>",
		)
		close(begun)
		_, _ = c.Read(make([]byte, 1)) // until the client hangs up
		close(gone)
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	_, err := newFetcher(t, Options{}).Fetch(ctx, Request{URL: s.url(t, "/")})
	if _, isFault := errors.AsType[*crawl.Fault](err); isFault || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	<-gone

	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		f := newFetcher(t, Options{Dial: pipe(t, func(net.Conn) {})})
		_, err := f.Fetch(ctx, Request{URL: must(crawl.ParseURL("http://site.test/"))})
		if _, isFault := errors.AsType[*crawl.Fault](err); isFault ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the caller's context.DeadlineExceeded", err)
		}
	})
}

// TestPanic is JOB-24: a defect on one page is that page's fault.
func TestPanic(t *testing.T) {
	t.Parallel()
	s := serve(t, routes{
		"/": page("<title>ok</title>"), "/bad": page("bad"), "/go": redirectTo("/"),
	}.serve)
	f := newFetcher(t, Options{})
	f.parse = func(p *parser, body []byte) {
		if string(body) == "bad" {
			panic("secret of the parser")
		}
		p.parseHTML(body)
	}
	for range 3 {
		_, err := f.Fetch(t.Context(), Request{URL: s.url(t, "/bad")})
		if f := faultOf(t, err); f.Code != crawl.CodeInternal || f.Temporary ||
			strings.Contains(f.Message, "secret") {
			t.Errorf("JOB-24: %v, message %q", err, f.Message)
		}
		_, err = f.Fetch(
			t.Context(),
			Request{URL: s.url(t, "/go"), Hop: func(crawl.URL) error { panic("hop") }},
		)
		if faultOf(t, err).Code != crawl.CodeInternal {
			t.Errorf("JOB-24 in a callback: %v", err)
		}
		if res, err := f.Fetch(t.Context(), Request{URL: s.url(t, "/")}); err != nil || res.Page.Title != "ok" {
			t.Errorf("JOB-24: the next page: %q, %v", res.Page.Title, err)
		}
	}
	if n := s.connections(); n != 1 {
		t.Errorf("%d connections, want 1: a panic must not leak them", n)
	}
}

// reset answers with these bytes and resets the connection.
func reset(text string) handler {
	return func(c net.Conn, _ string) bool {
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).SetLinger(0)
		return false
	}
}
