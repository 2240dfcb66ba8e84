package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/andybalholm/brotli"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// The bound on what a worker may use at its peak, with all of this test's pages at once.
// It is the sum of what each page in flight may hold and of what each processor works at,
// twice: the garbage collector lets the heap grow to double of what is in use. The bodies
// dominate it; to bound a worker by other numbers, change TRAWL_CONCURRENCY.
const (
	mib = 1 << 20
	// inFlight is the default of TRAWL_CONCURRENCY.
	inFlight = 64
	// A page in flight holds a body of at most 5 MiB, or as much as it was sent;
	// what it came with, 256 KiB of header in 5000 fields; and what it leads to, links of
	// 1 MiB, as they were found and on their way to Redis.
	held = 5*mib + 1*mib + 2*mib
	// processors is GOMAXPROCS of the worker here. Each works at one page: the last buffer of
	// a body that grows (4), what 5 MiB of another charset become (15), the tokenizer's
	// buffer while it doubles (16 + 32) and the addresses in it (15); a brotli window instead
	// of the latter is less (16).
	processors = 2
	worked     = 4*mib + 15*mib + 48*mib + 15*mib
	// Files of large windows: four at a time, two codings deep.
	windows = 4 * 2 * 16 * mib
	// The program, its clients, and what it remembers of links and of robots.txt.
	fixed = 96 * mib

	hostileBound = 2*(inFlight*held+processors*worked+windows) + fixed

	// With fields and all formats each processor holds a tree besides (64), the texts and the HTML of
	// its page (12), a converter's copies of them (24), and the JSON that is packed (24, with its
	// packing). What waits for Redis is bounded for the whole process (64), and is there once more
	// while it is sent.
	taken      = 64*mib + 12*mib + 24*mib + 24*mib
	pending    = 2 * 64 * mib
	takenBound = hostileBound + 2*(processors*taken+pending)
	// raceFactor is what the race detector may multiply memory by; measured, it is two.
	raceFactor = 4

	// The pages that come nearly whole and then not to their end, all the time.
	stalled = 40
	// honest are those that must be recorded as if nothing were wrong.
	honest = 50
	// How often each hostile page is there, and how often those that are the dearest to work
	// at: more than there is room for at a time.
	copies, dear = 2, 24
)

// hostilePage is what a hostile server answers and what must become of it.
type hostilePage struct {
	name   string
	answer func(io.Writer)
	code   crawl.Code // empty: it is recorded
	links  int        // of the record, at least
	copies int        // in place of copies
}

const (
	statusOK = "HTTP/1.1 200 OK\r\n"
	htmlOK   = statusOK + "Content-Type: text/html; charset=utf-8\r\n"
	bodySize = 5*mib - 8<<10 // just below the limit
)

func text(s ...string) func(io.Writer) {
	return func(w io.Writer) {
		for _, part := range s {
			if _, err := io.WriteString(w, part); err != nil {
				return
			}
		}
	}
}

// sized is a page of html, as large as it may be: head and again, again and again.
func sized(head, again string) func(io.Writer) {
	body := head + strings.Repeat(again, (bodySize-len(head))/len(again))
	return text(fmt.Sprintf("%sContent-Length: %d\r\n\r\n", htmlOK, len(body)), body)
}

// unending is head and again until the client hangs up.
func unending(head, again string) func(io.Writer) {
	block := strings.Repeat(again, max(1, 32<<10/len(again)))
	return func(w io.Writer) {
		for _, err := io.WriteString(w, head); err == nil; {
			_, err = io.WriteString(w, block)
		}
	}
}

// zipped compresses text with each of the codings.
func zipped(t *testing.T, text string, codings ...string) string {
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
	return text
}

// counted is n times format with a number in it.
func counted(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// hostileToHTTP are the answers that break off a fetch.
func hostileToHTTP(t *testing.T) []hostilePage {
	t.Helper()
	const (
		large, short, bad = crawl.CodeBodyTooLarge, crawl.CodeTruncated, crawl.CodeBadResponse

		chunked = htmlOK + "Transfer-Encoding: chunked\r\n\r\n"
	)
	zeros := strings.Repeat("\x00", 64*mib)
	bomb := func(codings ...string) func(io.Writer) {
		return text(htmlOK, "Content-Encoding: "+strings.Join(codings, ", ")+"\r\n\r\n", zipped(t, zeros, codings...))
	}
	return []hostilePage{
		{name: "gzip", answer: bomb("gzip"), code: large},
		{name: "br", answer: bomb("br"), code: large},
		{name: "gzip-gzip", answer: bomb("gzip", "gzip"), code: large},
		{name: "gzip-br", answer: bomb("gzip", "br"), code: large},
		{name: "br-br", answer: bomb("br", "br"), code: large},
		{name: "endless", answer: unending(htmlOK+"\r\n", "<p>x"), code: large},
		{name: "endless-chunks", answer: unending(chunked, "1000\r\n"+strings.Repeat("x", 4096)+"\r\n"), code: large},
		{name: "endless-css", answer: unending(statusOK+"Content-Type: text/css\r\n\r\n", "x"), code: large},
		{
			name:   "empty-members",
			answer: unending(htmlOK+"Content-Encoding: gzip\r\n\r\n", zipped(t, "", "gzip")), code: large,
		},
		{name: "endless-404", answer: unending("HTTP/1.1 404 No\r\n\r\n", "x"), code: crawl.HTTPCode(404)},
		{name: "endless-header", answer: unending(statusOK, "X-A: b\r\n"), code: bad},
		{name: "endless-line", answer: unending(statusOK+"X-A: ", "b"), code: bad},
		{name: "endless-hints", answer: unending("", "HTTP/1.1 103 Early Hints\r\n\r\n"), code: bad},
		{name: "fields", answer: text(htmlOK, counted(20_000, "x%d:\r\n"), "\r\n"), code: bad},
		{name: "many-fields", answer: text(htmlOK, counted(100_000, "x%d:\r\n"), "\r\n"), code: bad},
		{name: "big-field", answer: text(htmlOK, "X-A: ", strings.Repeat("b", 10*mib), "\r\n\r\n"), code: bad},
		{name: "zeros", answer: unending("", "\x00"), code: bad},
		{name: "ssh", answer: text("SSH-2.0-OpenSSH_9.6\r\n"), code: bad},
		{name: "http09", answer: text("<html><title>x</title>"), code: bad},
		{name: "two-lengths", answer: text(htmlOK, "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"), code: bad},
		{name: "negative", answer: text(htmlOK, "Content-Length: -1\r\n\r\nxx"), code: bad},
		{name: "huge-length", answer: text(htmlOK, "Content-Length: 9000000000000000000\r\n\r\nxx"), code: short},
		{name: "short", answer: text(htmlOK, "Content-Length: 500\r\n\r\nxx"), code: short},
		{name: "chunk-size", answer: text(chunked, "-5\r\nxx"), code: short},
		{name: "chunk-cut", answer: text(chunked, "500\r\nxx"), code: short},
		{name: "chunk-extension", answer: unending(chunked+"1;", "x"), code: short},
		{name: "trailers", answer: unending(chunked+"1\r\nx\r\n0\r\n", "X-A: b\r\n"), code: short},
		{name: "nothing", answer: text(""), code: bad},
		{
			name: "coding", answer: text(htmlOK, "Content-Encoding: br\r\n\r\nno brotli"),
			code: crawl.CodeContentEncoding,
		},
	}
}

// hostileToParsers are the pages that are hard to parse.
func hostileToParsers() []hostilePage {
	many := counted(500_000, "<a href=%d>")[:bodySize]
	length := fmt.Sprintf("Content-Length: %d\r\n\r\n", bodySize)
	latin := statusOK + "Content-Type: text/html; charset=windows-1252\r\n" + length
	return []hostilePage{
		{name: "nested", answer: sized("", "<div>")},
		{name: "templates", answer: sized("", "<template>")},
		{name: "svg", answer: sized("", "<svg><desc>")},
		{name: "attribute", answer: sized("<p title=", "x")},
		{name: "href", answer: sized("<a href=", "x")},
		{
			name:   "attributes",
			answer: text(htmlOK, length, ("<p " + counted(1_000_000, " %x"))[:bodySize-1], ">"), copies: dear,
		},
		{name: "links", answer: text(htmlOK, length, many), links: 2000},
		{
			name:   "long-links",
			answer: sized("<base href=/"+strings.Repeat("x", 8000)+"/>"+counted(2000, "<a href=%d>"), " "),
			links:  100,
		},
		{name: "entities", answer: sized("<title>", "&notit;")},
		{name: "title", answer: sized("<title>", "x")},
		{name: "comment", answer: sized("<!--", "x")},
		{name: "script", answer: sized("<script>", "</scrip")},
		{name: "nulls", answer: sized("<p>"+strings.Repeat("x", 2000), "\x00")},
		{name: "latin", answer: text(latin, strings.Repeat("\x80", bodySize)), copies: dear},
		{name: "refresh", answer: sized("<meta http-equiv=refresh content='0;url=/", "x")},
	}
}

// hostileServer answers by the first part of the path.
type hostileServer struct {
	url    string
	answer map[string]func(io.Writer)
}

// listen serves until the test ends.
func (s *hostileServer) listen(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + ln.Addr().String()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		conns []net.Conn
	)
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				s.serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

func (s *hostileServer) serve(c net.Conn) {
	r := bufio.NewReader(c)
	first, err := r.ReadString('\n')
	for line := first; err == nil && line != "\r\n"; {
		line, err = r.ReadString('\n')
	}
	target := strings.Split(first, " ")
	if err != nil || len(target) < 2 {
		return
	}
	kind, _, _ := strings.Cut(strings.TrimPrefix(target[1], "/"), "/")
	answer := s.answer[kind]
	if answer == nil {
		answer = text("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
	}
	answer(c)
}

// TestHostileServers: a worker that is given all of them at once ends each page with its
// reason and the honest pages beside them as if they were alone, writes of no defect, and
// its memory stays within the bound.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	hostileServers(t, hostileBound, fields{})
}

// TestHostileContent is [TestHostileServers] for jobs that take all there is out of each page.
func TestHostileContent(t *testing.T) {
	t.Parallel()
	hostileServers(t, takenBound, fields{
		"formats": []string{"markdown", "text", "html", "links", "metadata"},
		"fields": fields{
			"title": fields{"selector": "title"}, "deep": fields{"selector": "div div div p", "many": true},
			"any": fields{"selector": "*", "type": "html"}, "links": fields{"selector": "a", "attr": "href", "many": true},
			"path": fields{"selector": "xpath://div//a[contains(@href,'1')]", "many": true},
		},
	})
}

func hostileServers(t *testing.T, bound int64, taken fields) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the peak of a process's memory is read from /proc, which only Linux has")
	}
	pages := append(hostileToHTTP(t), hostileToParsers()...)
	if raced(t) { // parsing takes ten times as long
		for i := range pages {
			pages[i].copies = 1
		}
	}
	server, want := newHostileServer(t, pages)
	waiting := make(chan struct{}, 4*stalled)
	server.answer["stalled"] = func(w io.Writer) {
		text(htmlOK, fmt.Sprintf("Content-Length: %d\r\n\r\n", bodySize+1), strings.Repeat("x", bodySize))(w)
		waiting <- struct{}{}
		_, _ = io.Copy(io.Discard, w.(net.Conn)) // until the client hangs up
	}
	server.listen(t)
	other := &hostileServer{answer: server.answer} // another host, with slots of its own
	other.listen(t)

	d := deploy(t, 0, "GOMAXPROCS="+strconv.Itoa(processors), "GOMEMLIMIT=off", "GOGC=100")
	w := d.startWorker()
	var still, urls []string
	for i := range stalled {
		still = append(still, fmt.Sprintf("%s/stalled/%d", other.url, i))
	}
	stalling := d.submit(beta, fields{"urls": still, "concurrency": stalled, "respect_robots": false}).ID
	d.watch(beta, stalling)
	for range stalled {
		crawltest.Receive(t, long, "page that comes nearly whole", waiting)
	}
	for _, p := range pages {
		for i := range cmp.Or(p.copies, copies) {
			urls = append(urls, fmt.Sprintf("%s/%s/%d", server.url, p.name, i))
		}
	}
	with := func(spec fields) fields {
		maps.Copy(spec, taken)
		return spec
	}
	attack := d.watch(alpha, d.submit(alpha, with(fields{"urls": urls, "concurrency": inFlight})).ID)
	site := d.watch(alpha, d.submit(alpha, with(fields{"seed_url": server.url + "/ok/0", "concurrency": inFlight})).ID)

	j := site.end(2 * long)
	if j.State != crawl.Completed || j.Accepted != honest || j.Total != honest ||
		j.RefusedByReason[crawl.RefusedSitemapLimit] != 1 {
		t.Errorf("the honest pages ended as %+v", j)
	}
	j = attack.end(2 * long)
	if j.State != crawl.CompletedWithErrors || j.Total != int64(len(urls)) || j.Processed != j.Total {
		t.Errorf("the hostile pages ended as %+v", j)
	}
	d.checkHostile(j.ID, server.url, want)
	if j := d.cancel(beta, stalling); j.Accepted+j.Failed > 0 {
		t.Errorf("of the pages that do not end: %+v", j)
	}
	out := w.Output()
	if i := strings.Index(strings.ToLower(out), "panic"); i >= 0 {
		t.Errorf("the worker wrote of a panic: %.2000s", out[i:])
	}
	w.checkPeak(bound)
}

// newHostileServer returns a server of the pages and of honest ones, and what must become of
// each page by its name. Its robots.txt and its sitemap are bombs with something in them.
func newHostileServer(t *testing.T, pages []hostilePage) (*hostileServer, map[string]hostilePage) {
	t.Helper()
	s, want := &hostileServer{answer: map[string]func(io.Writer){}}, map[string]hostilePage{}
	for _, p := range pages {
		s.answer[p.name], want[p.name] = p.answer, p
	}
	s.answer["ok"] = text(htmlOK, "\r\n<title>ok</title>", counted(honest, "<a href=/ok/%d>x</a>"))
	s.answer["robots.txt"] = text(statusOK, "Content-Encoding: gzip, gzip\r\n\r\n",
		zipped(t, "Sitemap: /map.xml.gz\n"+strings.Repeat("#\n", 32*mib), "gzip", "gzip"))
	s.answer["map.xml.gz"] = text(statusOK, "Content-Type: application/gzip\r\nContent-Encoding: br\r\n\r\n",
		zipped(t, "<urlset><url><loc>/ok/1</loc></url>"+strings.Repeat("\n", 64*mib), "gzip", "br"))
	return s, want
}

// checkHostile compares what became of each hostile page.
func (d *deployment) checkHostile(job, origin string, want map[string]hostilePage) {
	d.t.Helper()
	name := func(url string) string {
		kind, _, _ := strings.Cut(strings.TrimPrefix(url, origin+"/"), "/")
		return kind
	}
	seen := map[string]int{}
	for _, f := range d.failures(alpha, job) {
		p := want[name(f.SourceURL)]
		seen[p.name]++
		if f.ErrorType != p.code || f.Message == "" {
			d.t.Errorf("%s failed as %s (%s), want %q", f.SourceURL, f.ErrorType, f.Message, p.code)
		}
	}
	for _, r := range d.records(alpha, job) {
		p := want[name(r.SourceURL)]
		seen[p.name]++
		if p.code != "" || r.Bytes < bodySize-8<<10 || r.LinkCount < p.links {
			d.t.Errorf("%s is recorded with %d bytes and %d links, want %q, %d links", r.SourceURL, r.Bytes, r.LinkCount, p.code, p.links)
		}
	}
	for kind, p := range want {
		if n := cmp.Or(p.copies, copies); seen[kind] != n {
			d.t.Errorf("%s has an outcome %d times, want %d", kind, seen[kind], n)
		}
	}
}

// checkPeak compares the most memory that the worker had in use with the bound.
func (w *worker) checkPeak(most int64) {
	w.d.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.PID()))
	if err != nil {
		w.d.t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`).FindSubmatch(status)
	if match == nil {
		w.d.t.Fatalf("no peak in %s", status)
	}
	kib, err := strconv.ParseInt(string(match[1]), 10, 64)
	if err != nil {
		w.d.t.Fatal(err)
	}
	if raced(w.d.t) {
		most *= raceFactor
	}
	w.d.t.Logf("the peak of the worker was %d MiB, the bound is %d MiB", kib>>10, most>>20)
	if kib<<10 > most {
		w.d.t.Errorf("the peak of the worker was %d MiB, want at most %d", kib>>10, most>>20)
	}
}

// raced reports whether the worker has the race detector.
func raced(t *testing.T) bool {
	t.Helper()
	built, err := buildinfo.ReadFile(crawltest.Build(t, "example.com/trawl/worker"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Contains(built.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
