package fetch

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

func TestMain(m *testing.M) {
	// net/http logs what servers of these tests send unasked; it would bury a failure.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	crawltest.Main(m)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// site is a server that answers byte for byte what a test says, so that it can
// break every rule of HTTP. It keeps connections only where an answer lets it.
type site struct {
	ln net.Listener

	mu    sync.Mutex
	heads []string // every request head received
	conns []net.Conn
}

// handler writes the answer to one request, given its target; it reports
// whether the connection stays open for another one.
type handler func(c net.Conn, target string) (keep bool)

// serve starts a site on loopback.
func serve(tb testing.TB, h handler) *site {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &site{ln: ln}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				s.answer(c, h)
			})
		}
	})
	tb.Cleanup(func() {
		_ = ln.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			_ = c.Close() // or an idle one would be waited for
		}
		s.mu.Unlock()
		wg.Wait()
	})
	return s
}

func (s *site) answer(c net.Conn, h handler) {
	r := bufio.NewReader(c)
	for {
		var head strings.Builder
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			head.WriteString(line)
			if line == "\r\n" {
				break
			}
		}
		s.mu.Lock()
		s.heads = append(s.heads, head.String())
		s.mu.Unlock()
		target := strings.Fields(head.String())[1]
		if !h(c, target) {
			return
		}
	}
}

// url returns the URL of a target on the site.
func (s *site) url(tb testing.TB, target string) crawl.URL {
	tb.Helper()
	u, err := crawl.ParseURL("http://" + s.ln.Addr().String() + target)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

// targets returns the targets of all requests so far, in order.
func (s *site) targets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ts []string
	for _, h := range s.heads {
		ts = append(ts, strings.Fields(h)[1])
	}
	return ts
}

func (s *site) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.heads...)
}

func (s *site) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// raw answers with these bytes and closes.
func raw(text string) handler {
	return func(c net.Conn, _ string) bool {
		_, _ = c.Write([]byte(text))
		return false
	}
}

// answer is a complete, well-formed answer; headers are lines without line ends.
func answer(status, headers, body string) handler {
	if headers != "" {
		headers += "\r\n"
	}
	text := []byte(
		fmt.Sprintf("HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", status, headers, len(body), body),
	)
	return func(c net.Conn, _ string) bool {
		_, err := c.Write(text)
		return err == nil
	}
}

// page is a HTML page.
func page(body string) handler {
	return answer("200 OK", "Content-Type: text/html; charset=utf-8", body)
}

// redirectTo is a 302 with one Location line.
func redirectTo(location string) handler {
	return answer("302 Found", "Location: "+location, "")
}

// routes answers by target, and 404 for others.
type routes map[string]handler

func (r routes) serve(c net.Conn, target string) bool {
	h, ok := r[target]
	if !ok {
		h = answer(fmt.Sprintf("404 %s", http.StatusText(404)), "", "no")
	}
	return h(c, target)
}

func newFetcher(tb testing.TB, o Options) *Fetcher {
	tb.Helper()
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	f, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.Close)
	return f
}

// one fetches the root of a site that answers everything with h.
func one(t *testing.T, h handler) (Result, error) {
	t.Helper()
	return newFetcher(t, Options{}).Fetch(t.Context(), Request{URL: serve(t, h).url(t, "/"), Links: true})
}

// paths returns the links of a page without their origin when that is the site's.
func paths(s *site, res Result) []string {
	var ps []string
	for _, l := range res.Links {
		ps = append(ps, strings.TrimPrefix(l.URL.String(), "http://"+s.ln.Addr().String()))
	}
	return ps
}
