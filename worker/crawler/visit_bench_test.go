package crawler

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
)

// BenchmarkVisit is one page through the worker, from its lease to its commit, without a network and without Redis:
// request, parse, links, scope, keys. The page has 6 KB and 20 links, and is answered from memory.
func BenchmarkVisit(b *testing.B) {
	var body strings.Builder
	body.WriteString("<!doctype html><html lang=en><head><title>A page</title></head><body>")
	for i := range 20 {
		fmt.Fprintf(&body, `<a href="/a/section/of/some/depth/p%d/x">Page %d</a>`, i*37, i)
	}
	body.WriteString("<p>" + strings.Repeat("Some words. ", (6000-body.Len())/12) + "</p></body></html>")
	answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s",
		body.Len(), body.String())
	f, err := fetch.New(fetch.Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go answerAll(server, []byte(answer))
		return client, nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(f.Close)
	sources, err := crawl.ParseSources("*")
	if err != nil {
		b.Fatal(err)
	}
	c := New(Options{
		Fetcher: f, Concurrency: 1, Sources: sources, Logger: slog.New(slog.DiscardHandler), Product: "Bench",
	})
	const seed = "http://site.test/a/section/of/some/depth/p1/x"
	t, err := newTurn(c, &store.Slice{Plan: crawl.Plan{
		Site: true, Scope: "host", Seeds: []string{seed}, Sources: []string{"*"}, MaxDepth: 100, Concurrency: 1,
		IgnoreRobots: true,
	}}, c.o.Logger)
	if err != nil {
		b.Fatal(err)
	}
	t.io, t.fetches = b.Context(), b.Context()
	u, err := crawl.ParseURL(seed)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		it := crawl.Item{Kind: crawl.ItemPage, URL: seed}
		p := &page{item: it, url: u, host: t.host(u.PolitenessHost()), start: time.Now()}
		r := t.visit(p)
		if a := r.commit.Accepted; a == nil || len(a.Links) != 20 || a.Links[0].Refused != "" {
			b.Fatalf("not the page: %+v", r.commit)
		}
	}
}

// answerAll answers every request on a connection with the same bytes.
func answerAll(c net.Conn, answer []byte) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		for line := []byte("-"); len(line) > len("\r\n") || line[0] == '-'; {
			var err error
			if line, err = in.ReadSlice('\n'); err != nil {
				return
			}
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}
