package fetch

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"example.com/trawl/pkg/crawl"
)

// TestNotHTML holds the bodies that are recorded by their metadata only.
func TestNotHTML(t *testing.T) {
	t.Parallel()
	const link = "<title>x</title><a href=/n>n</a>"
	tests := []struct {
		name  string
		h     handler
		kind  string
		bytes int64
	}{
		{
			"HTM-08 a",
			answer("200 OK", "Content-Type: text/html; charset=utf-8", "%PDF-1.4\n\x00"+link),
			"application/pdf",
			42,
		},
		{
			"HTM-08 b",
			answer("200 OK", "Content-Type: text/html", "PK\x03\x04\x00\x00\x00\x00"+link),
			"application/zip",
			40,
		},
		{"HTM-08 c", answer("200 OK", "Content-Type: text/html", pngHead+link), "image/png", 52},
		{
			"HTTP-02 c gzip twice, one named",
			encoded("gzip", gzipped(string(gzipped(link)))),
			"application/gzip",
			int64(len(gzipped(link))),
		},
		{
			"HTTP-02 d gzip, none named", answer("200 OK", "Content-Type: text/html", string(gzipped(link))), "application/gzip",
			int64(len(gzipped(link))),
		},
		{
			"HTM-09 text/plain",
			answer("200 OK", "Content-Type: text/plain\r\nX-Content-Type-Options: nosniff", link),
			"text/plain",
			32,
		},
		{
			"declared",
			answer("200 OK", "Content-Type: application/json; charset=utf-8", link),
			"application/json",
			32,
		},
		{"no content", raw("HTTP/1.1 204 No Content\r\n\r\n"), "", 0},
		{"reset content", raw("HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n"), "", 0},
		{"empty body with a coding", encoded("gzip", nil), "text/html", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res, err := one(t, tt.h)
			if err != nil {
				t.Fatal(err)
			}
			p := res.Page
			if p.ContentType != tt.kind || p.Bytes != tt.bytes || p.Charset != "" {
				t.Errorf(
					"type %q, charset %q, %d bytes, want %q, none, %d",
					p.ContentType,
					p.Charset,
					p.Bytes,
					tt.kind,
					tt.bytes,
				)
			}
			if len(res.Links) != 0 || p.Title != "" {
				t.Errorf("links %v, title %q of what is not HTML", res.Links, p.Title)
			}
		})
	}
}

// TestUnlabelledBinaryIsNotTransferred is the last of HTM-09: 50 MB of random
// bytes without Content-Type.
func TestUnlabelledBinaryIsNotTransferred(t *testing.T) {
	t.Parallel()
	const size = 50 << 20
	sent := make(chan int, 1)
	res, err := one(t, func(c net.Conn, _ string) bool {
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n\x00\x01", size)
		n := 2
		chunk := make([]byte, 64<<10)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(chunk)
		for n < size {
			m, err := c.Write(chunk)
			n += m
			if err != nil {
				break
			}
		}
		sent <- n
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Page.ContentType != "application/octet-stream" || res.Page.Bytes > 2*sniffedBytes {
		t.Errorf("HTM-09: type %q, %d bytes read", res.Page.ContentType, res.Page.Bytes)
	}
	if n := <-sent; n >= size {
		t.Errorf("HTM-09: all %d bytes were transferred", n)
	}
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("<p>x", 25_000) // 100,000 bytes
	chunked := fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	tests := []struct {
		name  string
		limit int64
		h     handler
		code  crawl.Code
	}{
		{"at the limit", 100_000, page(body), ""},
		{"over it, announced", 99_999, page(body), crawl.CodeBodyTooLarge},
		{"at the limit, chunked", 100_000, raw("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + chunked), ""},
		{
			"over it, chunked",
			99_999,
			raw("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + chunked),
			crawl.CodeBodyTooLarge,
		},
		{"at the limit, gzip", 100_000, encoded("gzip", gzipped(body)), ""},
		{"over it, gzip", 99_999, encoded("gzip", gzipped(body)), crawl.CodeBodyTooLarge},
		{"over it, brotli", 99_999, encoded("br", brotlied(body)), crawl.CodeBodyTooLarge},
		{"over it, zstd", 99_999, encoded("zstd", zstded(body)), crawl.CodeBodyTooLarge},
		{
			"over it, other type",
			99_999,
			answer("200 OK", "Content-Type: text/css", body),
			crawl.CodeBodyTooLarge,
		},
		{
			"over it, other type, chunked",
			99_999,
			raw("HTTP/1.1 200 OK\r\nContent-Type: text/css\r\n" + chunked),
			crawl.CodeBodyTooLarge,
		},
		{"below what is sniffed", 100, page(body), crawl.CodeBodyTooLarge},
		{"below what is sniffed, at the limit", 104, page(body[:104]), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.h)
			res, err := newFetcher(
				t,
				Options{MaxBodyBytes: tt.limit},
			).Fetch(t.Context(), Request{URL: s.url(t, "/")})
			if tt.code == "" && (err != nil || res.Page.Bytes != tt.limit) {
				t.Errorf("%d bytes, %v", res.Page.Bytes, err)
			}
			if tt.code != "" && faultOf(t, err).Code != tt.code {
				t.Errorf("got %v, want %s", err, tt.code)
			}
		})
	}
}

// TestBombs is the part of SM-03 that belongs to fetching. It measures memory:
// not parallel.
func TestBombs(t *testing.T) {
	single := bomb(304)
	nested := gzipped(string(single))
	f := newFetcher(t, Options{})
	tests := []struct {
		name, target, header string
		body                 []byte
		code                 crawl.Code
	}{
		{
			"SM-03 html",
			"/",
			"Content-Type: text/html\r\nContent-Encoding: gzip",
			single,
			crawl.CodeBodyTooLarge,
		},
		{
			"SM-03 nested twice",
			"/",
			"Content-Type: text/html\r\nContent-Encoding: gzip, gzip",
			nested,
			crawl.CodeBodyTooLarge,
		},
		{
			"SM-03 other type",
			"/robots.txt",
			"Content-Type: text/plain\r\nContent-Encoding: gzip",
			single,
			crawl.CodeBodyTooLarge,
		},
		{"SM-03 a file that is a gzip", "/s.xml.gz", "Content-Type: application/x-gzip", single, ""},
	}
	for _, tt := range tests {
		s := serve(t, answer("200 OK", tt.header, string(tt.body)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		res, err := f.Fetch(t.Context(), Request{URL: s.url(t, tt.target)})
		runtime.ReadMemStats(&after)
		if tt.code == "" && (err != nil || res.Page.Bytes != int64(len(tt.body))) {
			t.Errorf("%s: %d bytes, %v, want the %d of the file", tt.name, res.Page.Bytes, err, len(tt.body))
		}
		if tt.code != "" && crawl.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.code)
		}
		// The buffer doubles up to the limit, so all of its sizes are three times the limit.
		if got := after.TotalAlloc - before.TotalAlloc; got > 4*DefaultMaxBodyBytes {
			t.Errorf("%s: %d MiB allocated", tt.name, got>>20)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	const ok = "<title>ok</title>"
	f.Add("gzip", gzipped(ok))
	f.Add("br, x-gzip", gzipped(string(brotlied(ok))))
	f.Add("zstd", zstded(ok))
	f.Add("deflate", zlibbed(ok))
	f.Add("deflate", deflated(ok))
	f.Fuzz(func(t *testing.T, line string, body []byte) {
		const limit = 1 << 20
		r, release, err := decoder([]string{line}, bytes.NewReader(body), limit)
		if err != nil {
			faultOf(t, err)
			return
		}
		defer release()
		_, coded := r.(*limitReader)
		if n, err := io.Copy(io.Discard, r); coded && n > limit && !errors.Is(err, errDecodedLimit) {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}

// encoded is a HTML page under the Content-Encoding.
func encoded(coding string, body []byte) handler {
	return answer("200 OK", "Content-Type: text/html\r\nContent-Encoding: "+coding, string(body))
}

func cut(b []byte) []byte { return b[:len(b)-len(b)/3] }

func flipped(b []byte, i int) []byte {
	b[len(b)+i] ^= 0xff
	return b
}

func compressed(text string, open func(io.Writer) io.WriteCloser) []byte {
	var b bytes.Buffer
	w := open(&b)
	_, err := io.WriteString(w, text)
	if err := errors.Join(err, w.Close()); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func gzipped(text string) []byte {
	return compressed(text, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
}

func zlibbed(text string) []byte {
	return compressed(text, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
}

func deflated(text string) []byte {
	return compressed(text, func(w io.Writer) io.WriteCloser { return must(flate.NewWriter(w, 9)) })
}

func brotlied(text string) []byte {
	return compressed(text, func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) })
}

func zstded(text string) []byte {
	return compressed(text, func(w io.Writer) io.WriteCloser {
		return must(zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)))
	})
}

// bomb is a gzip of n MiB of "a": members of 16 MiB, which cost the test little.
func bomb(n int) []byte {
	return bytes.Repeat(gzipped(strings.Repeat("a", 16<<20)), n/16)
}
