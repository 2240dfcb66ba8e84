package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawl"
)

// The limits of these tests; what holds for them holds for larger ones.
const (
	hostileBody = 1 << 20
	// What a fetch may read beyond a limit: buffers of the connection and of decoders.
	hostileSlack = 256 << 10
)

const htmlHead = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"

// metered dials with a connection that counts what is read of it.
type metered struct {
	net.Conn
	n *atomic.Int64
}

func (m metered) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	m.n.Add(int64(n))
	return n, err
}

// meter returns a dialer whose connections count what is read into n.
func meter(n *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return metered{c, n}, err
	}
}

// endless answers with head and then again, again and again, until the client hangs up.
func endless(head, again string) handler {
	block := []byte(strings.Repeat(again, max(1, 32<<10/len(again))))
	return func(c net.Conn, _ string) bool {
		_, err := io.WriteString(c, head)
		for err == nil {
			_, err = c.Write(block)
		}
		return false
	}
}

// endlessGzip is a page whose gzip never ends.
func endlessGzip(c net.Conn, _ string) bool {
	if _, err := io.WriteString(c, htmlHead+"Content-Encoding: gzip\r\n\r\n"); err != nil {
		return false
	}
	z, block := gzip.NewWriter(c), make([]byte, 256<<10)
	for err := error(nil); err == nil; {
		_, err = z.Write(block)
	}
	return false
}

// hostileAnswer is an answer that breaks the rules, or uses them to hurt.
type hostileAnswer struct {
	name string
	h    handler
	page crawl.Code // of Fetch; empty: a page with the title ok
	file crawl.Code // of Raw; empty: a file
	cut  bool       // the file is cut at its limit
	most int64      // bytes read; 0: little more than the limit of a body
}

func hostileAnswers() []hostileAnswer {
	const (
		ok       = "<title>ok</title>"
		tooLarge = crawl.CodeBodyTooLarge
		bad      = crawl.CodeBadResponse
		short    = crawl.CodeTruncated
		chunked  = htmlHead + "Transfer-Encoding: chunked\r\n\r\n"
		head     = maxHeaderBytes + hostileSlack
	)
	zeros := string(make([]byte, 16<<20))
	all := []hostileAnswer{
		{name: "endless body", h: endless(htmlHead+"\r\n", "<p>x"), page: tooLarge, cut: true},
		{name: "endless chunks", h: endless(chunked, "4\r\n<p>x\r\n"), page: tooLarge, cut: true, most: 4 << 20},
		{name: "endless gzip", h: endlessGzip, page: tooLarge, cut: true},
		{
			name: "endless body of an error", h: endless("HTTP/1.1 404 No\r\n\r\n", "x"), page: "http_404",
			most: 512 << 10,
		},
		{
			name: "endless body of a redirect", h: endless("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "x"),
			page: crawl.CodeRedirectLoop, file: crawl.CodeRedirectLoop, most: 512 << 10,
		},
		{name: "SM-03 gzip bomb", h: encoded("gzip", gzipped(zeros)), page: tooLarge, cut: true},
		{name: "SM-03 br bomb", h: encoded("br", brotlied(zeros)), page: tooLarge, cut: true},
		{name: "SM-03 zstd bomb", h: encoded("zstd", zstded(zeros)), page: tooLarge, cut: true},
		{name: "SM-03 deflate bomb", h: encoded("deflate", zlibbed(zeros)), page: tooLarge, cut: true},
		{
			name: "SM-03 gzip in gzip", h: encoded("gzip, gzip", gzipped(string(gzipped(zeros)))),
			page: tooLarge, cut: true,
		},
		{name: "SM-03 gzip in br", h: encoded("gzip, br", brotlied(string(gzipped(zeros)))), page: tooLarge, cut: true},
		{name: "SM-03 br in br", h: encoded("br, br", brotlied(string(brotlied(zeros)))), page: tooLarge, cut: true},
		{
			name: "three codings", h: encoded("br, br, br", brotlied(ok)),
			page: crawl.CodeContentEncoding, file: crawl.CodeContentEncoding,
		},
		{
			name: "endless br", h: endless(htmlHead+"Content-Encoding: br\r\n\r\n", "\x0b\x00\x80"),
			page: tooLarge, file: crawl.CodeContentEncoding, most: 2 * hostileBody,
		},
		{
			name: "empty members of gzip",
			h:    endless(htmlHead+"Content-Encoding: gzip\r\n\r\n", string(gzipped(""))), page: tooLarge,
			cut: true,
		},

		{name: "header without an end", h: endless(htmlHead, "X-A: b\r\n"), page: bad, file: bad, most: head},
		{name: "header line without an end", h: endless(htmlHead+"X-A: ", "b"), page: bad, file: bad, most: head},
		{name: "status line without an end", h: endless("HTTP/1.1 200 ", "O"), page: bad, file: bad, most: head},
		{
			name: "100,000 header fields", h: raw(htmlHead + strings.Repeat("X-A: b\r\n", 100_000) + "\r\n" + ok),
			page: bad, file: bad, most: head,
		},
		{
			name: "50,000 short header fields", h: raw(htmlHead + strings.Repeat("a:\r\n", 50_000) + "\r\n" + ok),
			page: bad, file: bad, most: head,
		},
		{
			name: "a header of 10 MB", h: raw(htmlHead + "X-A: " + strings.Repeat("b", 10<<20) + "\r\n\r\n" + ok),
			page: bad, file: bad, most: head,
		},
		{name: "many header fields", h: raw(htmlHead + strings.Repeat("X-A: b\r\n", 4000) + "\r\n" + ok)},
		{name: "folded for ever", h: endless(htmlHead+"X-A: b\r\n", " b\r\n"), page: bad, file: bad, most: head},

		{name: "length, negative", h: raw(htmlHead + "Content-Length: -1\r\n\r\n" + ok), page: bad, file: bad},
		{name: "length, signed", h: raw(htmlHead + "Content-Length: +17\r\n\r\n" + ok), page: bad, file: bad},
		{name: "length, no number", h: raw(htmlHead + "Content-Length: 0x11\r\n\r\n" + ok), page: bad, file: bad},
		{
			name: "length, beyond all numbers", page: bad, file: bad,
			h: raw(htmlHead + "Content-Length: 99999999999999999999\r\n\r\n" + ok),
		},
		{
			name: "length, huge", page: short, file: short,
			h: raw(htmlHead + "Content-Length: 9223372036854775807\r\n\r\n" + ok),
		},
		{name: "length, list", h: raw(htmlHead + "Content-Length: 17, 18\r\n\r\n" + ok), page: bad, file: bad},
		{name: "length twice, the same", h: raw(htmlHead + "Content-Length: 17\r\nContent-Length: 17\r\n\r\n" + ok)},
		{
			name: "length beside chunks",
			h:    raw(htmlHead + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n" + ok + "\r\n0\r\n\r\n"),
		},
		{
			name: "a coding of the transfer", h: raw(htmlHead + "Transfer-Encoding: gzip\r\n\r\n" + ok),
			page: bad, file: bad,
		},

		{name: "chunk size, negative", h: raw(chunked + "-1\r\n" + ok), page: short, file: short},
		{
			name: "chunk size, beyond all numbers", h: raw(chunked + "11111111111111111\r\n" + ok),
			page: short, file: short,
		},
		{name: "chunk size, huge", h: raw(chunked + "7fffffffffffffff\r\n" + ok), page: short, file: short},
		{name: "chunk size, prefixed", h: raw(chunked + "0x11\r\n" + ok + "\r\n0\r\n\r\n"), page: short, file: short},
		{name: "chunk size without an end", h: endless(chunked, "0"), page: short, file: short, most: hostileSlack},
		{
			name: "chunk extension without an end", h: endless(chunked+"11;", "x"), page: short, file: short,
			most: hostileSlack,
		},
		{
			name: "chunk extensions for ever", h: endless(chunked, "1;"+strings.Repeat("x", 2000)+"\r\nx\r\n"),
			page: short, file: short, most: 2 << 20,
		},
		{name: "chunk longer than it says", h: raw(chunked + "5\r\n" + ok + "\r\n0\r\n\r\n"), page: short, file: short},
		{name: "chunk cut", h: raw(chunked + "1000\r\n" + ok), page: short, file: short},
		{
			name: "trailers for ever", h: endless(chunked+"11\r\n"+ok+"\r\n0\r\n", "X-A: b\r\n"),
			page: short, file: short, most: hostileSlack,
		},
		{
			name: "trailer without an end", h: endless(chunked+"11\r\n"+ok+"\r\n0\r\nX-A: ", "b"),
			page: short, file: short, most: hostileSlack,
		},

		{
			name: "interim answers for ever", h: endless("", "HTTP/1.1 100 Continue\r\n\r\n"), page: bad,
			file: bad, most: head,
		},
		{
			name: "early hints for ever", h: endless("", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
			page: bad, file: bad, most: head,
		},
		{name: "nothing but zeros", h: endless("", "\x00"), page: bad, file: bad, most: head},
		{name: "nothing but line ends", h: endless("", "\r\n"), page: bad, file: bad, most: head},
		{name: "answers behind the answer", h: func(c net.Conn, _ string) bool {
			again := answer("200 OK", "Content-Type: text/html", ok)
			for again(c, "") {
			}
			return false
		}},
	}
	for _, line := range []string{
		"SSH-2.0-OpenSSH_9.6", "ICY 200 OK", "HTTP/1.1200 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 20 OK", "HTTP/1.1 -20 OK",
		"HTTP/1.1 2x0 OK", "HTTP/1.1 000 OK", "HTTP/9 200 OK", "HTTP/1.1", "HTTP/1.1\t200\tOK", "\xff\xfe\x00 200 OK", "200 OK",
	} {
		all = append(all, hostileAnswer{
			name: "HTTP-07 status line " + line, h: raw(line + "\r\nContent-Type: text/html\r\n\r\n" + ok), page: bad, file: bad,
		})
	}
	return all
}

// TestHostileAnswers: whatever a server sends, the fetch of a page and that of a file
// say what is wrong with it, and have read no more than they needed to know.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range hostileAnswers() {
		most := tt.most
		if most == 0 {
			most = hostileBody + hostileSlack
		}
		bounded := func(t *testing.T, read *atomic.Int64) {
			t.Helper()
			if n := read.Load(); n > most {
				t.Errorf("%d bytes were read, want at most %d", n, most)
			}
		}
		t.Run("page/"+tt.name, func(t *testing.T) {
			t.Parallel()
			var read atomic.Int64
			f := newFetcher(t, Options{MaxBodyBytes: hostileBody, Dial: meter(&read)})
			res, err := f.Fetch(t.Context(), Request{URL: serve(t, tt.h).url(t, "/"), Links: true})
			bounded(t, &read)
			if tt.page == "" && (err != nil || res.Page.Title != "ok") {
				t.Errorf("title %q, %v", res.Page.Title, err)
			}
			if tt.page != "" && faultOf(t, err).Code != tt.page {
				t.Errorf("got %s (%v), want %s", crawl.CodeOf(err), err, tt.page)
			}
		})
		t.Run("file/"+tt.name, func(t *testing.T) {
			t.Parallel()
			var read atomic.Int64
			f := newFetcher(t, Options{Dial: meter(&read)})
			res, err := f.Raw(t.Context(), RawRequest{URL: serve(t, tt.h).url(t, "/robots.txt"), MaxBytes: hostileBody})
			bounded(t, &read)
			if tt.file == "" && (err != nil || res.Truncated != tt.cut || int64(len(res.Body)) > hostileBody) {
				t.Errorf("%d bytes, cut %t, %v, want cut %t", len(res.Body), res.Truncated, err, tt.cut)
			}
			if tt.file != "" && faultOf(t, err).Code != tt.file {
				t.Errorf("got %s (%v), want %s", crawl.CodeOf(err), err, tt.file)
			}
		})
	}
}

// TestClosedAtEachByte: an answer that breaks off is never taken for a whole one,
// wherever it breaks off, and neither is what is left of it.
func TestClosedAtEachByte(t *testing.T) {
	t.Parallel()
	const ok = "<title>ok</title>"
	packed := gzipped(ok)
	for name, whole := range map[string]string{
		"length":  fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", htmlHead, len(ok), ok),
		"chunked": htmlHead + "Transfer-Encoding: chunked\r\n\r\n8\r\n" + ok[:8] + "\r\n9;x=y\r\n" + ok[8:] + "\r\n0\r\nX-A: b\r\n\r\n",
		"gzip":    fmt.Sprintf("%sContent-Encoding: gzip\r\n\r\n%s", htmlHead, packed[:len(packed)-1]) + string(packed[len(packed)-1:]),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c net.Conn, target string) bool {
				var n int
				_, _ = fmt.Sscanf(target, "/%d", &n)
				_, _ = io.WriteString(c, whole[:n])
				return false
			})
			f := newFetcher(t, Options{})
			for n := range len(whole) + 1 {
				u := s.url(t, "/"+itoa(n))
				res, err := f.Fetch(t.Context(), Request{URL: u})
				file, fileErr := f.Raw(t.Context(), RawRequest{URL: u})
				if n == len(whole) {
					if err != nil || res.Page.Title != "ok" || fileErr != nil || string(file.Body) != ok {
						t.Errorf("the whole: title %q, %v; file %q, %v", res.Page.Title, err, file.Body, fileErr)
					}
					continue
				}
				// A body without length ends where the connection does, and before the first
				// byte of a gzip it is empty.
				if name == "gzip" && n == len(whole)-len(packed) {
					continue
				}
				for _, err := range []error{err, fileErr} {
					f := faultOf(t, err)
					if want := map[bool]crawl.Code{true: crawl.CodeTruncated, false: crawl.CodeBadResponse}[f.Status > 0]; f.Code != want {
						t.Errorf("after %d bytes of %d: %v, want %s", n, len(whole), err, want)
					}
				}
			}
		})
	}
}

// TestAnswerBeforeRequest: what a server sends before it is asked is no answer to
// anything, or that to the first request; none is a page of another request.
func TestAnswerBeforeRequest(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, strings.Repeat(htmlHead+"Content-Length: 18\r\n\r\n<title>you</title>", 3))
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, io.LimitReader(c, 16<<10))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-served })
	f := newFetcher(t, Options{Timeout: 20 * time.Second})
	for i := range 20 {
		u := must(crawl.ParseURL(fmt.Sprintf("http://%s/%d", ln.Addr(), i)))
		res, err := f.Fetch(t.Context(), Request{URL: u})
		if err == nil {
			if res.Page.Title != "you" {
				t.Errorf("title %q", res.Page.Title)
			}
			continue
		}
		if f := faultOf(t, err); f.Code != crawl.CodeBadResponse && f.Code != crawl.CodeConnection && f.Code != crawl.CodeTruncated {
			t.Errorf("got %v", err)
		}
	}
}

// TestWrongProtocol: TLS where none is expected, its absence where it is, and garbage in
// its place.
func TestWrongProtocol(t *testing.T) {
	t.Parallel()
	// ask dials a server that begins with what it says and reads until it is told the end.
	speak := func(text string, again bool) *site {
		return greet(t, func(c net.Conn) {
			for err := error(nil); err == nil && again; {
				_, err = io.WriteString(c, text)
			}
			_, _ = io.WriteString(c, text)
		})
	}
	tlsServer := greet(t, func(c net.Conn) {
		_ = tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS12}).Handshake() // it has no certificate
	})
	alert := "\x15\x03\x01\x00\x02\x02\x28"
	tests := []struct {
		name, scheme string
		s            *site
		codes        []crawl.Code // a connection may be reset before what was sent is read
	}{
		{"http to TLS", "http", tlsServer, []crawl.Code{crawl.CodeBadResponse, crawl.CodeConnection}},
		{"http to a TLS alert", "http", speak(alert, false), []crawl.Code{crawl.CodeBadResponse, crawl.CodeConnection}},
		{"TLS without a certificate", "https", tlsServer, []crawl.Code{crawl.CodeTLS}},
		{
			"TLS to plain", "https", speak("HTTP/1.1 400 Bad\r\n\r\n", false),
			[]crawl.Code{crawl.CodeTLS, crawl.CodeConnection},
		},
		{
			"TLS to garbage", "https", speak("\x00\x01\x02garbage", true),
			[]crawl.Code{crawl.CodeTLS, crawl.CodeConnection},
		},
		{
			"TLS to a record of 64 KiB", "https",
			speak("\x16\x03\x03\xff\xff"+strings.Repeat("x", 1<<16), true),
			[]crawl.Code{crawl.CodeTLS, crawl.CodeConnection},
		},
		{
			"TLS to empty records", "https", speak("\x16\x03\x03\x00\x00", true),
			[]crawl.Code{crawl.CodeTLS, crawl.CodeConnection},
		},
		{
			"TLS to warnings for ever", "https", speak("\x15\x03\x03\x00\x02\x01\x5a", true),
			[]crawl.Code{crawl.CodeTLS, crawl.CodeConnection},
		},
		{
			"TLS that closes", "https", speak("", false),
			[]crawl.Code{crawl.CodeTLS, crawl.CodeConnection, crawl.CodeBadResponse},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var read atomic.Int64
			f := newFetcher(t, Options{Dial: meter(&read)})
			u := must(crawl.ParseURL(tt.scheme + "://" + tt.s.ln.Addr().String() + "/"))
			_, err := f.Fetch(t.Context(), Request{URL: u})
			_, fileErr := f.Raw(t.Context(), RawRequest{URL: u})
			for _, err := range []error{err, fileErr} {
				if code := faultOf(t, err).Code; !containsCode(tt.codes, code) {
					t.Errorf("got %s (%v), want one of %v", code, err, tt.codes)
				}
			}
			if n := read.Load(); n > hostileSlack {
				t.Errorf("%d bytes were read", n)
			}
		})
	}
}

func containsCode(codes []crawl.Code, code crawl.Code) bool {
	for _, c := range codes {
		if c == code {
			return true
		}
	}
	return false
}

// greet starts a site that speaks first.
func greet(t *testing.T, h func(net.Conn)) *site {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{ln: ln}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			h(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-served })
	return s
}

// TestSlowFiles is HTTP-09 for robots.txt and sitemaps, in the bubble's time: one byte
// now and then ends within the time of the whole, with a coding of large window as well.
func TestSlowFiles(t *testing.T) {
	t.Parallel()
	drip := func(head string, body []byte) func(net.Conn) {
		return func(c net.Conn) {
			_, err := io.WriteString(c, head)
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for i := 0; err == nil; i++ {
				<-tick.C
				_, err = c.Write(body[i%len(body) : i%len(body)+1])
			}
		}
	}
	tests := []struct {
		name    string
		h       func(net.Conn)
		timeout time.Duration
		took    time.Duration
	}{
		{"HTTP-09 header", drip("HTTP/1.1 200 OK\r\nX-A: ", []byte("a")), 15 * time.Second, headerTimeout},
		{"HTTP-09 body", drip("HTTP/1.1 200 OK\r\n\r\n", []byte("a\n")), 15 * time.Second, 15 * time.Second},
		{"HTTP-09 time of the fetcher", drip("HTTP/1.1 200 OK\r\n\r\n", []byte("a\n")), time.Hour, DefaultTimeout},
		{"HTTP-09 interim answers", drip("", []byte("HTTP/1.1 100 Continue\r\n\r\n")), 15 * time.Second, headerTimeout},
		{
			"HTTP-09 gzip", drip("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", gzipped(strings.Repeat("Disallow: /\n", 1e5))),
			15 * time.Second, 15 * time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFetcher(t, Options{Dial: pipe(t, tt.h)})
				start := time.Now()
				_, err := f.Raw(t.Context(), RawRequest{
					URL: siteURL("/s.xml"), MaxBytes: 50 << 20, Timeout: tt.timeout,
					Read: func(_ Raw, body io.Reader) error { _, err := io.Copy(io.Discard, body); return err },
				})
				if f := faultOf(t, err); f.Code != crawl.CodeTimeout || !f.Temporary {
					t.Errorf("got %v, want %s", err, crawl.CodeTimeout)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// TestSlots: what is decoded with a large window, and what is large, waits for a slot and
// not for ever, and gives it back.
func TestSlots(t *testing.T) { // takes all slots: not parallel
	large := brotlied("<title>ok</title>" + strings.Repeat("<p>words", smallPage/8))
	s := serve(t, routes{
		"/br":    encoded("br", large),
		"/large": page("<title>ok</title>" + strings.Repeat("<p>words", smallPage/8)),
		"/small": page("<title>ok</title>"),
		"/bad":   encoded("br", []byte("no brotli")),
	}.serve)
	f := newFetcher(t, Options{})
	for range cap(slots) {
		slots <- struct{}{}
	}
	if _, err := f.Fetch(t.Context(), Request{URL: s.url(t, "/small")}); err != nil {
		t.Errorf("a small page: %v", err)
	}
	for _, target := range []string{"/br", "/large"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := f.Fetch(ctx, Request{URL: s.url(t, target)})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s with no slot free: %v", target, err)
		}
	}
	// A page that finds none free is read once there is one.
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		close(begun)
		_, err := f.Fetch(t.Context(), Request{URL: s.url(t, "/large")})
		ended <- err
	}()
	<-begun
	for range cap(slots) {
		<-slots
	}
	if err := <-ended; err != nil {
		t.Errorf("/large, with a slot later: %v", err)
	}
	for range 2*cap(slots) + 1 {
		for _, target := range []string{"/br", "/large"} {
			if res, err := f.Fetch(t.Context(), Request{URL: s.url(t, target)}); err != nil || res.Page.Title != "ok" {
				t.Errorf("%s: title %q, %v", target, res.Page.Title, err)
			}
		}
		if _, err := f.Fetch(t.Context(), Request{URL: s.url(t, "/bad")}); faultOf(t, err).Code != crawl.CodeContentEncoding {
			t.Errorf("/bad: %v", err)
		}
	}
	if n := len(slots) + len(windows); n != 0 {
		t.Errorf("%d slots were not given back", n)
	}
}

// TestRedirectsAcross: a chain over other origins ends, for a file as for a page, whose
// next fetch is told of the hops so far.
func TestRedirectsAcross(t *testing.T) {
	t.Parallel()
	var a, b *site
	bounce := func(to **site) handler {
		return func(c net.Conn, target string) bool {
			var n int
			_, _ = fmt.Sscanf(target, "/%d", &n)
			return redirectTo(fmt.Sprintf("http://%s/%d", (*to).ln.Addr(), n+1))(c, target)
		}
	}
	a, b = serve(t, bounce(&b)), serve(t, bounce(&a))
	loop := serve(t, func(c net.Conn, target string) bool {
		return redirectTo("http://"+a.ln.Addr().String()+"/0")(c, target)
	})
	f := newFetcher(t, Options{})
	if _, err := f.Raw(t.Context(), RawRequest{URL: a.url(t, "/0")}); faultOf(t, err).Code != crawl.CodeTooManyRedirects {
		t.Errorf("a file: %v", err)
	}
	if n := len(a.targets()) + len(b.targets()); n != DefaultMaxHops+1 {
		t.Errorf("%d requests for a file", n)
	}
	at, hops := loop.url(t, "/"), 0
	for range DefaultMaxRedirects + 2 {
		res, err := f.Fetch(t.Context(), Request{URL: at, Hops: hops})
		if err != nil {
			if faultOf(t, err).Code != crawl.CodeTooManyRedirects || hops != DefaultMaxRedirects {
				t.Errorf("after %d hops: %v", hops, err)
			}
			return
		}
		at, hops = res.Redirect, res.Hops
	}
	t.Error("the chain has no end")
}

// TestBombsHoldNothing: of a bomb nothing is kept but what was sent.
func TestBombsHoldNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, encoded("gzip, br", brotlied(string(gzipped(string(make([]byte, 32<<20)))))))
	f := newFetcher(t, Options{})
	var got bytes.Buffer
	head, err := f.Raw(t.Context(), RawRequest{
		URL: s.url(t, "/sitemap.xml"), MaxBytes: 64 << 10,
		Read: func(_ Raw, body io.Reader) error { _, err := got.ReadFrom(body); return err },
	})
	if err != nil || !head.Truncated || got.Len() != 64<<10 || head.Bytes != 64<<10 || head.Body != nil {
		t.Errorf("%d bytes, %+v, %v", got.Len(), head, err)
	}
}
