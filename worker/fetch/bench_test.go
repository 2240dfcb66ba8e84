package fetch

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
)

// benchPage is the page of the bench job: 6 KB, 20 links.
func benchPage() string {
	var b strings.Builder
	b.WriteString(
		`<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Page 17 of the bench site</title>` +
			`<link rel="stylesheet" href="/style.css"></head><body><nav class="top"><ul>`,
	)
	for i := range 20 {
		fmt.Fprintf(
			&b,
			`<li class="item"><a class="link" href="/section-%d/page-%d.html">Page number %d</a></li>`,
			i%4,
			i*37,
			i,
		)
	}
	b.WriteString("</ul></nav><main>")
	for i := 0; b.Len() < 6000; i++ {
		fmt.Fprintf(
			&b,
			`<p id="p%d">Some words of text that say nothing, but <b>take</b> room &amp; time to read.</p>`,
			i,
		)
	}
	b.WriteString("</main></body></html>")
	return b.String()
}

// reportCPU adds the CPU time of the whole process an operation, the server of
// the test included.
func reportCPU(b *testing.B) func() {
	b.Helper()
	before := cpu()
	return func() { b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N), "cpu-µs/op") }
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkParse(b *testing.B) {
	page := []byte(benchPage())
	at := must(crawl.ParseURL("http://127.0.0.1/section-1/page-17.html"))
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		p := parser{document: at, links: true, maxLinks: DefaultMaxLinks, product: "TestBot"}
		p.parseHTML(p.decode(page, "utf-8"))
		if len(p.found) != 20 {
			b.Fatalf("%d links", len(p.found))
		}
	}
}

func BenchmarkFetch(b *testing.B) {
	s := serve(b, page(benchPage()))
	f := newFetcher(b, Options{})
	u := s.url(b, "/section-1/page-17.html")
	b.ReportAllocs()
	report := reportCPU(b)
	for b.Loop() {
		res, err := f.Fetch(b.Context(), Request{URL: u, Links: true, Product: "TestBot"})
		if err != nil || len(res.Links) != 20 {
			b.Fatalf("%d links, %v", len(res.Links), err)
		}
	}
	report()
}

// BenchmarkDrive is what a fetch costs without a page: colly, net/http, loopback.
func BenchmarkDrive(b *testing.B) {
	s := serve(b, answer("200 OK", "Content-Type: text/html", ""))
	f := newFetcher(b, Options{})
	u := s.url(b, "/")
	b.ReportAllocs()
	report := reportCPU(b)
	for b.Loop() {
		if _, err := f.Fetch(b.Context(), Request{URL: u}); err != nil {
			b.Fatal(err)
		}
	}
	report()
}

// BenchmarkDigest is what the digest costs of a page of the bench job.
func BenchmarkDigest(b *testing.B) {
	page := []byte(benchPage())
	b.SetBytes(int64(len(page)))
	report := reportCPU(b)
	defer report()
	for b.Loop() {
		if digestOf(page) == (Digest{}) {
			b.Fatal("no digest")
		}
	}
}
