package fetch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/netguard"
)

// hosts makes a fetcher that reaches each of these sites by its name.
func hosts(t *testing.T, sites map[string]*site) *Fetcher {
	t.Helper()
	return newFetcher(t, Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		s, ok := sites[addr]
		if !ok {
			t.Errorf("%s was dialled", addr)
			return nil, &net.DNSError{IsNotFound: true}
		}
		return new(net.Dialer).DialContext(ctx, network, s.ln.Addr().String())
	}})
}

func TestRaw(t *testing.T) {
	t.Parallel()
	const rules = "User-agent: *\nDisallow: /private\n"
	file := gzipped("<urlset/>")
	tests := []struct {
		name string
		h    handler
		want Raw
	}{
		{
			"plain",
			answer("200 OK", "Content-Type: Text/Plain; charset=utf-8", rules),
			Raw{Status: 200, ContentType: "text/plain", Body: []byte(rules)},
		},
		{"gzip", encoded("gzip", gzipped(rules)), Raw{Status: 200, ContentType: "text/html", Body: []byte(rules)}},
		{"br", encoded("br", brotlied(rules)), Raw{Status: 200, ContentType: "text/html", Body: []byte(rules)}},
		{
			"SM-03 a file that is a gzip stays one",
			answer("200 OK", "Content-Type: application/gzip", string(file)),
			Raw{Status: 200, ContentType: "application/gzip", Body: file},
		},
		{
			"SM-03 that file, compressed once more",
			answer("200 OK", "Content-Type: application/gzip\r\nContent-Encoding: gzip", string(gzipped(string(file)))),
			Raw{Status: 200, ContentType: "application/gzip", Body: file},
		},
		{"no type", answer("200 OK", "", rules), Raw{Status: 200, Body: []byte(rules)}},
		{"empty", answer("200 OK", "", ""), Raw{Status: 200, Body: []byte{}}},
		{"no content", raw("HTTP/1.1 204 No Content\r\n\r\n"), Raw{Status: 204, Body: []byte{}}},
		{"404", answer("404 No", "Content-Type: text/html", "<p>"), Raw{Status: 404}},
		{
			"ROB-01 b the body of an error is nobody's rules",
			answer("500 Oh", "Content-Type: text/plain\r\nRetry-After: 7", rules),
			Raw{Status: 500, RetryAfter: 7 * time.Second},
		},
		{"ROB-01 a", answer("503 Busy", "Retry-After: 99999", ""), Raw{Status: 503, RetryAfter: time.Hour}},
		{"ROB-01 c", answer("502 x", "Content-Type: text/html", "<p>"), Raw{Status: 502}},
		{"not for a 404", answer("404 No", "Retry-After: 7", ""), Raw{Status: 404}},
		{"ROB-11 e", raw("HTTP/1.1 304 Not Modified\r\n\r\n"), Raw{Status: 304}},
		{"300", answer("300 x", "Location: /y", "x"), Raw{Status: 300}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.h)
			at := s.url(t, "/robots.txt")
			got, err := newFetcher(t, Options{}).Raw(t.Context(), RawRequest{URL: at})
			tt.want.Final, tt.want.Bytes = at, int64(len(tt.want.Body))
			if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b crawl.URL) bool { return a == b })); diff != "" ||
				err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestRawRequestLine(t *testing.T) {
	t.Parallel()
	s := serve(t, answer("200 OK", "Set-Cookie: a=b", ""))
	f := newFetcher(t, Options{UserAgent: "TestBot/1.0"})
	for _, agent := range []string{"", "JobBot/2.0"} {
		if _, err := f.Raw(t.Context(), RawRequest{URL: s.url(t, "/a%2fb|c?x"), UserAgent: agent}); err != nil {
			t.Fatal(err)
		}
	}
	head := func(agent string) string {
		return "GET /a%2fb|c?x HTTP/1.1\r\nHost: " + s.ln.Addr().String() + "\r\nUser-Agent: " + agent +
			"\r\nAccept: " + acceptRaw + "\r\nAccept-Encoding: gzip\r\n\r\n"
	}
	if diff := cmp.Diff([]string{head("TestBot/1.0"), head("JobBot/2.0")}, s.requests()); diff != "" {
		t.Errorf("requests, which carry no cookie (-want +got):\n%s", diff)
	}
	_, err := f.Raw(t.Context(), RawRequest{URL: s.url(t, "/"), UserAgent: "a\r\nb"})
	if crawl.CodeOf(err) != crawl.CodeInvalid {
		t.Errorf("SEC-07: %v", err)
	}
	if _, err := f.Raw(t.Context(), RawRequest{}); faultOf(t, err).Code != crawl.CodeInvalidURL {
		t.Errorf("zero URL: %v", err)
	}
}

// TestRawRedirects is ROB-03: redirects are followed to other hosts too, five of
// them, each asked about.
func TestRawRedirects(t *testing.T) {
	t.Parallel()
	const rules = "User-agent: *\nDisallow: /private\n"
	chain := func(c net.Conn, target string) bool {
		if target == "/5" {
			return answer("200 OK", "Content-Type: text/plain", rules)(c, target)
		}
		return redirectTo("/"+itoa(int(target[1]-'0')+1))(c, target)
	}
	f := hosts(t, map[string]*site{
		"site.test:80": serve(t, routes{
			"/a": redirectTo("http://www.other.test/robots.txt"), "/b": redirectTo("http://b.test/robots.txt"),
			"/loop": redirectTo("/loop"), "/there": redirectTo("http://www.other.test/back"),
			"/nowhere": redirectTo("ftp://other.test/"), "/nothing": answer("302 Found", "", ""),
		}.serve),
		"www.other.test:80": serve(t, routes{
			"/robots.txt": answer("200 OK", "Content-Type: text/plain", rules),
			"/back":       redirectTo("http://site.test/there"),
		}.serve),
		"b.test:80":     serve(t, routes{"/robots.txt": redirectTo("http://www.other.test/robots.txt")}.serve),
		"chain.test:80": serve(t, chain),
	})
	refused := errors.New("not a source")
	tests := []struct {
		name, from string
		most       int
		refuse     string // a host that Hop refuses
		final      string
		code       crawl.Code
		asked      int
	}{
		{name: "ROB-03 a", from: "http://site.test/a", final: "http://www.other.test/robots.txt", asked: 1},
		{name: "ROB-03 b", from: "http://site.test/b", final: "http://www.other.test/robots.txt", asked: 2},
		{name: "ROB-03 b", from: "http://b.test/robots.txt", final: "http://www.other.test/robots.txt", asked: 1},
		{name: "ROB-03 c", from: "http://chain.test/0", final: "http://chain.test/5", asked: 5},
		{
			name: "ROB-03 c one more than asked for", from: "http://chain.test/0", most: 4, final: "http://chain.test/4",
			code: crawl.CodeTooManyRedirects, asked: 4,
		},
		{
			name: "none is followed", from: "http://site.test/a", most: -1, final: "http://site.test/a",
			code: crawl.CodeTooManyRedirects,
		},
		{
			name: "ROB-03 d", from: "http://site.test/loop", final: "http://site.test/loop",
			code: crawl.CodeRedirectLoop,
		},
		{
			name: "ROB-03 d over two hosts", from: "http://site.test/there", final: "http://www.other.test/back",
			code: crawl.CodeRedirectLoop, asked: 1,
		},
		{
			name: "refused", from: "http://site.test/b", refuse: "www.other.test", final: "http://b.test/robots.txt",
			asked: 2,
		},
		{
			name: "to no http URL", from: "http://site.test/nowhere", final: "http://site.test/nowhere",
			code: crawl.CodeBadRedirect,
		},
		{
			name: "to nothing", from: "http://site.test/nothing", final: "http://site.test/nothing",
			code: crawl.CodeBadRedirect,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			got, err := f.Raw(t.Context(), RawRequest{
				URL: must(crawl.ParseURL(tt.from)), MaxHops: tt.most, Hop: func(to crawl.URL) error {
					asked++
					if to.Hostname() == tt.refuse {
						return refused
					}
					return nil
				},
			})
			switch {
			case tt.refuse != "":
				if err != refused { //nolint:errorlint // documented: returned as it is
					t.Errorf("got %v, want the error of Hop itself", err)
				}
			case tt.code != "":
				if fault := faultOf(t, err); fault.Code != tt.code || fault.Temporary || fault.Status != 302 {
					t.Errorf("got %v, want %s", err, tt.code)
				}
			case err != nil || string(got.Body) != rules:
				t.Errorf("%q, %v", got.Body, err)
			}
			if got.Final.String() != tt.final || asked != tt.asked {
				t.Errorf("ended at %s after %d questions, want %s after %d", got.Final, asked, tt.final, tt.asked)
			}
		})
	}
}

// TestRawGuard is ROB-03 e: a redirect cannot lead where the guard does not let.
func TestRawGuard(t *testing.T) {
	t.Parallel()
	canary := serve(t, answer("200 OK", "", "secret"))
	s := serve(t, redirectTo("http://"+canary.ln.Addr().String()+"/"))
	guard := netguard.New(netguard.Policy{})
	f := newFetcher(t, Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr == "site.test:80" {
			return new(net.Dialer).DialContext(ctx, network, s.ln.Addr().String())
		}
		return guard.DialContext(ctx, network, addr)
	}})
	_, err := f.Raw(t.Context(), RawRequest{URL: siteURL("/robots.txt")})
	if faultOf(t, err).Code != crawl.CodePrivateAddress || canary.connections() != 0 {
		t.Errorf("ROB-03 e: %v, %d connections to the canary", err, canary.connections())
	}
}

// TestRawFaults: they have the codes of those of a page.
func TestRawFaults(t *testing.T) {
	t.Parallel()
	const head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	tests := []struct {
		name      string
		h         handler
		code      crawl.Code
		temporary bool
	}{
		{"ROB-11 b", raw(""), crawl.CodeBadResponse, true},
		{"ROB-11 c", raw(head + "Content-Length: 40\r\n\r\nUser-agent: *\nDisall"), crawl.CodeTruncated, true},
		{"gzip cut", encoded("gzip", cut(gzipped("User-agent: *"))), crawl.CodeTruncated, true},
		{"not gzip", encoded("gzip", []byte("User-agent: *")), crawl.CodeContentEncoding, false},
		{"unknown coding", encoded("x-new", []byte("x")), crawl.CodeContentEncoding, false},
		{"reset", reset(""), crawl.CodeConnection, true},
		{"no HTTP", raw("User-agent: *"), crawl.CodeBadResponse, false},
		{"101", raw("HTTP/1.1 101 x\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), crawl.CodeBadResponse, false},
		{"206", answer("206 x", "Content-Range: bytes 0-1/9", "ab"), crawl.CodeTruncated, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.h)
			got, err := newFetcher(t, Options{}).Raw(t.Context(), RawRequest{URL: s.url(t, "/robots.txt")})
			f := faultOf(t, err)
			if f.Code != tt.code || f.Temporary != tt.temporary || strings.Contains(f.Message, "page") {
				t.Errorf("got %v, temporary %t, want %s, %t", err, f.Temporary, tt.code, tt.temporary)
			}
			if got.Final != s.url(t, "/robots.txt") || got.Status != f.Status {
				t.Errorf("ended at %q with status %d", got.Final, got.Status)
			}
		})
	}
}

// TestRawTimeout is ROB-11 a and d, in the bubble's time.
func TestRawTimeout(t *testing.T) {
	t.Parallel()
	drip := func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for range tick.C {
			if _, err := io.WriteString(c, "D"); err != nil {
				return
			}
		}
	}
	tests := []struct {
		name string
		h    func(net.Conn)
		ask  time.Duration
		took time.Duration
	}{
		{"ROB-11 a", func(net.Conn) {}, 0, headerTimeout},
		{"ROB-11 a, shorter", func(net.Conn) {}, 4 * time.Second, 4 * time.Second},
		{"ROB-11 d, dripping", drip, 5 * time.Second, 5 * time.Second},
		{"no longer than the fetcher's", drip, time.Hour, DefaultTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFetcher(t, Options{Dial: pipe(t, tt.h)})
				start := time.Now()
				_, err := f.Raw(t.Context(), RawRequest{URL: siteURL("/robots.txt"), Timeout: tt.ask})
				if fault := faultOf(t, err); fault.Code != crawl.CodeTimeout || !fault.Temporary {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
	t.Run("the caller's end is no fault", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			f := newFetcher(t, Options{Dial: pipe(t, func(net.Conn) {})})
			_, err := f.Raw(ctx, RawRequest{URL: siteURL("/")})
			if _, isFault := errors.AsType[*crawl.Fault](err); isFault || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	})
}

// TestRawCut is ROB-12: reading stops at the limit, which is no error.
func TestRawCut(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("Disallow: /x\n", 1000) // 13,000 bytes
	tests := []struct {
		name string
		h    handler
		most int64
		read int64
		cut  bool
	}{
		{"at the limit", answer("200 OK", "", text), 13_000, 13_000, false},
		{"one byte more", answer("200 OK", "", text), 12_999, 12_999, true},
		{"at the limit, gzip", encoded("gzip", gzipped(text)), 13_000, 13_000, false},
		{"one byte more, gzip", encoded("gzip", gzipped(text)), 12_999, 12_999, true},
		{"one byte more, gzip twice", encoded("gzip, gzip", gzipped(string(gzipped(text)))), 12_999, 12_999, true},
		{"broken behind the limit", raw("HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + text), 12_000, 12_000, true},
		{"ROB-12 a", answer("200 OK", "", strings.Repeat("a", 500<<10)), 0, 500 << 10, false},
		{"ROB-12 b endless", func(c net.Conn, _ string) bool {
			_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			for err == nil {
				_, err = io.WriteString(c, text)
			}
			return false
		}, 0, DefaultRawBytes, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.h)
			f := newFetcher(t, Options{})
			got, err := f.Raw(t.Context(), RawRequest{URL: s.url(t, "/"), MaxBytes: tt.most})
			if err != nil || int64(len(got.Body)) != tt.read || got.Bytes != tt.read || got.Truncated != tt.cut {
				t.Errorf("%d bytes (%d), truncated %t, %v, want %d, %t",
					len(got.Body), got.Bytes, got.Truncated, err, tt.read, tt.cut)
			}
		})
	}
}

// TestRawBomb is ROB-12 c. It measures memory: not parallel.
func TestRawBomb(t *testing.T) {
	s := serve(t, encoded("gzip", bomb(304)))
	f := newFetcher(t, Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := f.Raw(t.Context(), RawRequest{URL: s.url(t, "/robots.txt")})
	runtime.ReadMemStats(&after)
	if err != nil || !got.Truncated || len(got.Body) != DefaultRawBytes {
		t.Errorf("ROB-12 c: %d bytes, truncated %t, %v", len(got.Body), got.Truncated, err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("ROB-12 c: %d MiB allocated", n>>20)
	}
}

// TestRawRead: a large file is handed over while it arrives.
func TestRawRead(t *testing.T) {
	t.Parallel()
	const size = 20 << 20
	line := []byte(strings.Repeat("http://site.test/p\n", 1<<10))
	large := func(c net.Conn, _ string) bool {
		_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
		for n := 0; err == nil && n < size; n += len(line) {
			_, err = c.Write(line)
		}
		return false
	}
	s := serve(t, routes{
		"/large": large, "/small": answer("200 OK", "", "abc"),
		"/cut": raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"),
	}.serve)
	f := newFetcher(t, Options{})
	var head Raw
	n := 0
	got, err := f.Raw(t.Context(), RawRequest{
		URL: s.url(t, "/large"), MaxBytes: 1 << 30, Read: func(h Raw, body io.Reader) error {
			head = h
			m, err := io.Copy(io.Discard, body)
			n = int(m)
			return err
		},
	})
	if err != nil || n < size || got.Bytes != int64(n) || got.Body != nil || head.ContentType != "text/plain" ||
		head.Status != http.StatusOK {
		t.Errorf("%d of %d bytes, %+v, %v", n, got.Bytes, head, err)
	}

	stop := errors.New("enough")
	tests := []struct {
		name, target string
		read         func(io.Reader) error
		want         error
		code         crawl.Code
	}{
		{"the reader's own error", "/large", func(io.Reader) error { return stop }, stop, ""},
		{"stops early", "/large", func(io.Reader) error { return nil }, nil, ""},
		{
			"the body's fault goes before the error that it caused", "/cut",
			func(r io.Reader) error { _, _ = io.ReadAll(r); return stop }, nil, crawl.CodeTruncated,
		},
		{
			"and is not lost when the reader says nothing", "/cut",
			func(r io.Reader) error { _, _ = io.Copy(io.Discard, r); return nil }, nil, crawl.CodeTruncated,
		},
		{"a panic", "/small", func(io.Reader) error { panic("parser") }, nil, crawl.CodeInternal},
		{"not of an error page", "/none", func(io.Reader) error { return stop }, nil, ""},
		{"to the end, again and again", "/small", func(r io.Reader) error {
			b, _ := io.ReadAll(r)
			if m, err := r.Read(make([]byte, 1)); !bytes.Equal(b, []byte("abc")) || m != 0 || !errors.Is(err, io.EOF) {
				return stop
			}
			return nil
		}, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := f.Raw(t.Context(), RawRequest{
				URL: s.url(t, tt.target), Read: func(_ Raw, body io.Reader) error { return tt.read(body) },
			})
			if tt.code != "" && faultOf(t, err).Code != tt.code || tt.code == "" && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v %s", err, tt.want, tt.code)
			}
		})
	}
}
