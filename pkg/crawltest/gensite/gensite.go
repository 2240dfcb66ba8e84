// Package gensite makes a web site of any size that costs almost nothing to
// serve: tests, benchmarks and demonstrations crawl it. Page i is /p/i, and the
// same four numbers always give the same bytes.
package gensite

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Site is a generated site; it is an [http.Handler]. All counts are of requests
// for pages that exist; the front page / and /robots.txt, which allows
// everything, do not count.
type Site struct {
	pages, links, bytes, fanout int
	latency                     time.Duration

	hits            []atomic.Uint32
	total, distinct atomic.Int64
}

// New returns a site of the given number of pages, each with the given number
// of links and about the given number of bytes, answered after the given
// latency. Every page can be reached from /p/0. Numbers below one count as one;
// a page is never shorter than its links.
//
// The site is a tree with a quarter of the links of a page as its branches; the
// other links lead anywhere. So a crawl finds many links to pages it knows, as
// it does in real sites, and the frontier grows over several levels.
func New(pages, links, bytes int, latency time.Duration) *Site {
	pages, links = max(pages, 1), max(links, 1)
	return &Site{
		pages: pages, links: links, bytes: bytes, latency: latency,
		fanout: max(links/4, 1),
		hits:   make([]atomic.Uint32, pages),
	}
}

// Pages returns the number of pages.
func (s *Site) Pages() int { return s.pages }

// Total returns how many pages were served.
func (s *Site) Total() int64 { return s.total.Load() }

// Distinct returns how many different pages were served.
func (s *Site) Distinct() int64 { return s.distinct.Load() }

// Hits returns how often page i was served.
func (s *Site) Hits(i int) int64 {
	if i < 0 || i >= s.pages {
		return 0
	}
	return int64(s.hits[i].Load())
}

// Reset sets all counts to zero. It must not be called while pages are served.
func (s *Site) Reset() {
	for i := range s.hits {
		s.hits[i].Store(0)
	}
	s.total.Store(0)
	s.distinct.Store(0)
}

// Links returns the pages that page i links to, in order. A page can link to
// another twice, and to itself.
func (s *Site) Links(i int) []int { return s.appendLinks(make([]int, 0, s.links), i) }

func (s *Site) appendLinks(out []int, i int) []int {
	for k := 1; k <= s.fanout; k++ {
		if child := i*s.fanout + k; child < s.pages {
			out = append(out, child)
		}
	}
	// A linear congruence spreads the others; only that it is the same each
	// time matters.
	for x := uint64(i) + 1; len(out) < s.links; {
		x = x*6364136223846793005 + 1442695040888963407
		out = append(out, int((x>>33)%uint64(s.pages)))
	}
	return out
}

var filler = strings.Repeat("The trawl is set at dusk, and hauled before the tide has turned again. ", 64)

type scratch struct {
	page  []byte
	links []int
}

// scratches keep the serving side from allocating 6 KB a page, which would be
// measured as the crawler's.
var scratches = sync.Pool{New: func() any { return new(scratch) }}

// ServeHTTP implements [http.Handler].
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/robots.txt":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("User-agent: *\nAllow: /\n")) // the client may be gone
		return
	case "/":
		http.Redirect(w, r, "/p/0", http.StatusMovedPermanently)
		return
	}
	num, ok := strings.CutPrefix(r.URL.Path, "/p/")
	i, err := strconv.Atoi(num)
	// One spelling a page: /p/07 would be a page of its own to a crawler.
	if !ok || err != nil || i < 0 || i >= s.pages || strconv.Itoa(i) != num {
		http.NotFound(w, r)
		return
	}
	if s.latency > 0 {
		timer := time.NewTimer(s.latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	s.total.Add(1)
	if s.hits[i].Add(1) == 1 {
		s.distinct.Add(1)
	}
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	sc.links = s.appendLinks(sc.links[:0], i)
	sc.page = s.appendPage(sc.page[:0], i, sc.links)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(sc.page)))
	_, _ = w.Write(sc.page) // the client may be gone
}

func (s *Site) appendPage(b []byte, i int, links []int) []byte {
	b = append(b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Page "...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, "</title></head><body>\n<h1>Page "...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, "</h1>\n<ul>\n"...)
	for _, l := range links {
		b = append(b, `<li><a href="/p/`...)
		b = strconv.AppendInt(b, int64(l), 10)
		b = append(b, `">Page `...)
		b = strconv.AppendInt(b, int64(l), 10)
		b = append(b, "</a></li>\n"...)
	}
	b = append(b, "</ul>\n"...)
	const end = "</body></html>\n"
	for left := s.bytes - len(b) - len(end); left > 0; left = s.bytes - len(b) - len(end) {
		b = append(b, "<p>"...)
		b = append(b, filler[:min(max(left-len("<p></p>\n"), 1), 600)]...)
		b = append(b, "</p>\n"...)
	}
	return append(b, end...)
}
