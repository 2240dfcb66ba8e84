package fetch

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawl"
)

// TestDigest: the digest is of the decoded bytes, whatever carried them.
func TestDigest(t *testing.T) {
	t.Parallel()
	const body = "<meta charset=utf-8><title>caf\xe9</title>"
	large := strings.Repeat("<p>words", 20_000)
	chunked := fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	tests := []struct {
		name string
		h    handler
		of   string // empty: no digest
	}{
		{"page", page(body), body},
		{"gzip", encoded("gzip", gzipped(body)), body},
		{"br", encoded("br", brotlied(body)), body},
		{"chunked", raw("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + chunked), body},
		{"large", page(large), large},
		{"large, no length", raw("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + large), large},
		{"a byte order mark is part of it", page("\xef\xbb\xbf" + body), "\xef\xbb\xbf" + body},
		{"other type", answer("200 OK", "Content-Type: text/css", large), large},
		{
			"other type, gzip",
			answer("200 OK", "Content-Type: text/css\r\nContent-Encoding: gzip", string(gzipped(large))),
			large,
		},
		{"unlabelled binary", answer("200 OK", "", "\x00\x01"+body), "\x00\x01" + body},
		{"unlabelled, but whole", answer("200 OK", "", "\x00"+large[:40<<10]), "\x00" + large[:40<<10]},
		{"not read to its end", answer("200 OK", "", "\x00"+large), ""},
		{"empty", page(""), ""},
		{"no content", raw("HTTP/1.1 204 No Content\r\n\r\n"), ""},
		{"error", answer("404 No", "Content-Type: text/html", body), ""},
		{"redirect", answer("302 Found", "Location: http://other.test/", body), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var want Digest
			if tt.of != "" {
				sum := sha256.Sum256([]byte(tt.of))
				want = Digest(sum[:16])
			}
			s := serve(t, tt.h)
			f := newFetcher(t, Options{})
			for range 2 { // the second one has the buffer of the first
				if res, _ := f.Fetch(t.Context(), Request{URL: s.url(t, "/")}); res.Digest != want {
					t.Errorf("digest %x, want %x", res.Digest, want)
				}
			}
		})
	}
}

// TestTimesAndHeaders: how long it took, the status and the header are known of
// pages and of failures, the time to the last byte.
func TestTimesAndHeaders(t *testing.T) {
	t.Parallel()
	// slowly answers in two parts, each a second late.
	slowly := func(head, body string) func(net.Conn) {
		return func(c net.Conn) {
			for _, part := range []string{head + "\r\nServer: slow\r\nContent-Length: 9\r\n\r\n", body} {
				timer := time.NewTimer(time.Second)
				<-timer.C
				_, _ = io.WriteString(c, part)
			}
		}
	}
	tests := []struct {
		name   string
		h      func(net.Conn)
		code   crawl.Code
		status int
		took   int64
		server string
	}{
		{"page", slowly("HTTP/1.1 200 OK", "<p>123456"), "", 200, 2000, "slow"},
		{"other type", slowly("HTTP/1.1 203 OK\r\nContent-Type: text/css", "123456789"), "", 203, 2000, "slow"},
		{"error", slowly("HTTP/1.1 503 Busy", "123456789"), "http_503", 503, 2000, "slow"},
		{"no answer", func(net.Conn) {}, crawl.CodeTimeout, 0, headerTimeout.Milliseconds(), ""},
		{
			"no end", slowly("HTTP/1.1 200 OK\r\nContent-Type: text/html", "<p>"), crawl.CodeTimeout, 200,
			DefaultTimeout.Milliseconds(), "slow",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFetcher(t, Options{Dial: pipe(t, tt.h)})
				f.parse = func(*parser, []byte) { // takes a while, which is no time of the site
					timer := time.NewTimer(time.Minute)
					<-timer.C
				}
				start := time.Now()
				res, err := f.Fetch(t.Context(), Request{URL: siteURL("/p")})
				if tt.code == "" && err != nil || tt.code != "" && faultOf(t, err).Code != tt.code {
					t.Errorf("got %v, want %q", err, tt.code)
				}
				p := res.Page
				if p.Status != tt.status || p.DurationMS != tt.took || !p.FetchedAt.Equal(start) ||
					p.URL != "http://site.test/p" || res.Final != siteURL("/p") {
					t.Errorf("%+v, final %v, want status %d after %d ms", p, res.Final, tt.status, tt.took)
				}
				if got := res.Header.Get("Server"); got != tt.server {
					t.Errorf("server %q, want %q", got, tt.server)
				}
			})
		})
	}
}

// TestFailureBehindRedirect: what failed is where the redirect led.
func TestFailureBehindRedirect(t *testing.T) {
	t.Parallel()
	s := serve(t, routes{"/a": redirectTo("/gone")}.serve)
	res, err := newFetcher(t, Options{}).Fetch(t.Context(), Request{URL: s.url(t, "/a")})
	if faultOf(t, err).Code != "http_404" || res.Final != s.url(t, "/gone") || res.Page.Status != 404 || res.Hops != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestHTTP2: a server that offers HTTP/2 is spoken to in it, and what goes wrong
// there has the same names.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<title>"+r.Proto+" "+r.Header.Get("X-Own")+"</title>")
	})
	mux.HandleFunc("/go", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/there", http.StatusFound)
	})
	mux.HandleFunc("/gzip", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(gzipped("<title>packed</title>"))
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<title>cut</title>")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // resets the stream
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Length", "500")
		_, _ = io.WriteString(w, "<title>short</title>")
	})
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	f := newFetcher(t, Options{})
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	f.transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	t.Cleanup(f.Close) // before the server's, which waits for its connections

	tests := []struct {
		path, title string
		code        crawl.Code
	}{
		{"/", "HTTP/2.0 x", ""},
		{"/go", "HTTP/2.0 x", ""},
		{"/gzip", "packed", ""},
		{"/cut", "", crawl.CodeTruncated},
		{"/short", "", crawl.CodeTruncated},
		{"/", "HTTP/2.0 x", ""}, // and the connection lives
	}
	for _, tt := range tests {
		u := must(crawl.ParseURL(server.URL + tt.path))
		res, err := f.Fetch(t.Context(), Request{URL: u, Header: http.Header{"X-Own": {"x"}}})
		if tt.code == "" && (err != nil || res.Page.Title != tt.title) {
			t.Errorf("%s: title %q, %v, want %q", tt.path, res.Page.Title, err, tt.title)
		}
		if tt.code != "" {
			if fault := faultOf(t, err); fault.Code != tt.code || !fault.Temporary {
				t.Errorf("HTTP-04 %s: got %v, want %s", tt.path, err, tt.code)
			}
		}
	}
}
