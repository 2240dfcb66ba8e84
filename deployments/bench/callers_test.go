package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/trawl/pkg/crawltest"
)

// numbered is a server that knows which requests came, by their number and by the connection that they came on.
type numbered struct {
	*httptest.Server
	mu      sync.Mutex
	numbers map[int64]int
	conns   map[string]int
}

// newNumbered answers the number of each request, which stands in its path and in its body. That of number 7 is an
// error, and every third is chunked.
func newNumbered(t *testing.T) *numbered {
	t.Helper()
	s := &numbered{numbers: map[int64]int{}, conns: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		number := strings.TrimPrefix(r.URL.Path, "/")
		n, err := strconv.ParseInt(number, 10, 64)
		body, err2 := io.ReadAll(r.Body)
		if err := errors.Join(err, err2); err != nil || string(body) != number {
			t.Errorf("request %s has the body %q (%v)", r.URL.Path, body, err)
		}
		s.mu.Lock()
		s.numbers[n]++
		s.conns[r.RemoteAddr]++
		s.mu.Unlock()
		if n == 7 {
			w.WriteHeader(http.StatusInternalServerError)
		}
		if _, err := io.WriteString(w, "this is "); err != nil {
			t.Error(err)
		}
		if n%3 == 0 {
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
		if _, err := io.WriteString(w, number); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// seen answers how often each number came, and on how many connections.
func (s *numbered) seen() (numbers map[int64]int, conns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.numbers), len(s.conns)
}

// load asks the server for so many numbers from the first one on.
func (s *numbered) load(first, most int64, connections int) calling {
	address := strings.TrimPrefix(s.URL, "http://")
	return calling{
		Address: address, Connections: connections, Seconds: 60, First: first, Most: most, Status: http.StatusOK,
		Request: "POST /" + numberMark + " HTTP/1.1\r\nHost: " + address + "\r\nContent-Length: 8\r\n\r\n" + numberMark,
		Head:    "\r\ncontent-type: text/plain", Holds: []string{"this is 000"},
	}
}

// Each number is asked for once, each connection is used again, and what is told of the answers is what they were.
func TestCallers(t *testing.T) {
	t.Parallel()
	s := newNumbered(t)
	load := s.load(10, 500, 16)
	found, err := load.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found.Count != 500 || found.Wrong != 0 || found.Bytes != 500*16 || found.CPU <= 0 {
		t.Errorf("500 requests: %+v", found)
	}
	if found.P50 <= 0 || found.P50 > found.P99 || found.P99 > found.Max || found.Max > found.Seconds*1e6 {
		t.Errorf("times are out of order: %+v", found)
	}
	numbers, conns := s.seen()
	for n := range int64(500) {
		if numbers[10+n] != 1 {
			t.Errorf("number %d came %d times", 10+n, numbers[10+n])
		}
	}
	if len(numbers) != 500 || conns > 16 {
		t.Errorf("%d numbers came on %d connections", len(numbers), conns)
	}
}

// An answer that is not as it must be is counted, and one is shown.
func TestCallersSeeWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := newNumbered(t)
	for _, tt := range []struct {
		name  string
		edit  func(*calling)
		wrong int64
	}{
		{"status", func(*calling) {}, 1},
		{"body", func(c *calling) { c.Holds = append(c.Holds, "3") }, 18}, // 3 and 13 have it
		{"head", func(c *calling) { c.Head = "\r\nidempotent-replayed: true" }, 20},
		{"head that must not be", func(c *calling) { c.Lacks = "\r\ntransfer-encoding: chunked" }, 8}, // 0, 3 … 18, and 7
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			load := s.load(0, 20, 2)
			tt.edit(&load)
			found, err := load.run(t.Context())
			if err != nil || found.Count != 20 {
				t.Fatalf("%+v, %v", found, err)
			}
			if found.Wrong != tt.wrong || !strings.Contains(found.Example, "this is 000") {
				t.Errorf("%d are wrong, want %d; the example is %q", found.Wrong, tt.wrong, found.Example)
			}
			if err := found.check(); err == nil || !strings.Contains(err.Error(), found.Example) {
				t.Errorf("the error does not show it: %v", err)
			}
		})
	}
}

func TestNothingCalledIsAnError(t *testing.T) {
	t.Parallel()
	s := newNumbered(t)
	load := s.load(0, 20, 2)
	load.Seconds = 1e-9
	found, err := load.run(t.Context())
	if err != nil || found.Count != 0 || found.Max != 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	if found.check() == nil {
		t.Error("a load without an answer is a figure")
	}
}

// Callers whose server does not answer end with their context.
func TestCallersEnd(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	load := calling{Address: l.Addr().String(), Connections: 1, Seconds: 600, Request: "GET / HTTP/1.1\r\n\r\n"}
	go func() { _, err := load.run(ctx); ended <- err }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "GET / HTTP/1.1\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	if err := crawltest.Receive(t, 10*time.Second, "the end of the callers", ended); err == nil {
		t.Error("a load that was cut short is a figure")
	}
}

// A process of its own finds the same, and a wrong answer fails its measurement.
func TestCallersAsProcess(t *testing.T) {
	t.Parallel()
	s := newNumbered(t)
	r := &rig{dir: t.TempDir()}
	found, err := r.call(t.Context(), s.load(10, 50, 4))
	if numbers, _ := s.seen(); err != nil || found.Count != 50 || found.Bytes != 50*16 || len(numbers) != 50 {
		t.Errorf("%+v, %d numbers came, %v", found, len(numbers), err)
	}
	if _, err := r.call(t.Context(), s.load(5, 10, 1)); err == nil || !strings.Contains(err.Error(), "this is 00000007") {
		t.Errorf("the answer to number 7 is an error, the measurement says %v", err)
	}
}

func TestCallerReads(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, raw, body string
		status          int
		wrong           string
	}{
		{"length", "HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\nhello", "hello", 202, ""},
		{"lower case", "HTTP/1.1 202 Accepted\r\ncontent-length:5\r\n\r\nhello", "hello", 202, ""},
		{"empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", 200, ""},
		{"no reason", "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", "x", 200, ""},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\nA\r\nlo, world.\r\n0\r\n\r\n", "hello, world.", 200, ""},
		{"not HTTP", "SSH-2.0-OpenSSH_9.2 and more\r\n", "", 0, "no answer of HTTP/1.1"},
		{"no status", "HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n", "", 0, "no status"},
		{"no length", "HTTP/1.1 200 OK\r\n\r\nhello", "", 0, "whose length is not told"},
		{"length of letters", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhello", "", 0, "no length"},
		{"below zero", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", "", 0, "whose length is not told"},
		{"cut short", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "", 0, "unexpected EOF"},
		{"chunk cut short", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello", "", 0, "unexpected EOF"},
		{"longer chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", "", 0, "does not end"},
		{"size of letters", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\nhello\r\n0\r\n\r\n", "", 0, "no size"},
		{"size below zero", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nhello\r\n0\r\n\r\n", "", 0, "no size"},
		{"nothing", "", "", 0, "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			const next = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
			c := &caller{in: bufio.NewReader(strings.NewReader(tt.raw + strings.Repeat(next, min(1, tt.status))))}
			status, err := c.read()
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("status %d, %v; want an error that says %q", status, err, tt.wrong)
				}
				return
			}
			if err != nil || status != tt.status || string(c.answer[c.body:]) != tt.body {
				t.Fatalf("status %d, body %q, %v", status, c.answer[c.body:], err)
			}
			if status, err := c.read(); err != nil || status != http.StatusNoContent { // all of the answer was read, and no more
				t.Errorf("the answer behind it: %d, %v", status, err)
			}
		})
	}
}

func TestRank(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i+1) * time.Microsecond
	}
	for _, tt := range []struct {
		of   []time.Duration
		part float64
		want float64
	}{
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100}, {hundred, 0, 1}, {hundred[:1], 0.99, 1}, {hundred[:3], 0.5, 2}, {nil, 0.5, 0},
	} {
		if got := rank(tt.of, tt.part); got != tt.want {
			t.Errorf("the part %v of %d times: %v µs, want %v", tt.part, len(tt.of), got, tt.want)
		}
	}
}
