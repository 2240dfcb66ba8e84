package check

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// traffic is what was asked of one host.
type traffic struct {
	now, most int       // requests at a time
	last      time.Time // when one began
	least     time.Duration
}

// ServeHTTP serves the site. What it waits ends with the request.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/robots.txt":
		_, _ = fmt.Fprintf(w, "User-agent: *\nDisallow: /*/private/\nSitemap: http://%s/sitemap.xml\n", r.Host)
		return
	case "/sitemap.xml":
		s.serveSitemap(w, r)
		return
	}
	p := s.at(r.URL.Path)
	if p == nil {
		http.NotFound(w, r)
		return
	}
	ask := s.enter(r.Host, r.URL.Path)
	defer s.leave(r.Host)
	if !wait(r.Context(), p.latency) {
		return
	}
	s.servePage(w, r, p, ask)
}

// servePage answers a page that is asked for the ask-th time.
func (s *Site) servePage(w http.ResponseWriter, r *http.Request, p *page, ask int) {
	switch {
	case p.kind == kindGone:
		http.NotFound(w, r)
	case p.kind == kindFlaky && ask <= p.fails:
		if p.asks {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, "not now", p.status)
	case p.kind == kindDrops && ask == 1:
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	case p.kind == kindAlias:
		http.Redirect(w, r, p.target.path(), http.StatusFound)
	case p.kind == kindAcross:
		http.Redirect(w, r, s.url(s.across(p)), http.StatusMovedPermanently)
	default:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, s.body(p))
	}
}

// body is the HTML of a page.
func (s *Site) body(p *page) string {
	if p.kind == kindDuplicate {
		p = p.target
	}
	var b strings.Builder
	robots := ""
	if p.kind == kindNoIndex {
		robots = `<meta name="robots" content="noindex">`
	}
	fmt.Fprintf(&b, "<!doctype html><html lang=en><head>%s<title>Page %d of site %d</title></head>"+
		"<body><h1>Page %d</h1>\n", robots, p.n, p.site, p.n)
	for _, to := range s.linksOf(p) {
		fmt.Fprintf(&b, "<p>See <a href=\"%s\">page %d</a> for more about it.</p>\n", to.path(), to.n)
	}
	b.WriteString("</body></html>\n")
	return b.String()
}

func (s *Site) serveSitemap(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?>`+
		`<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
	for _, p := range s.listed(r.Host) {
		_, _ = fmt.Fprintf(w, "<url><loc>http://%s%s</loc></url>\n", r.Host, p.path())
	}
	_, _ = io.WriteString(w, "</urlset>")
}

// enter counts a request and answers how often its path was asked for, this one included.
func (s *Site) enter(host, path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.seen[host]
	if t == nil {
		t = &traffic{}
		s.seen[host] = t
	}
	now := time.Now()
	if distance := now.Sub(t.last); !t.last.IsZero() && (t.least == 0 || distance < t.least) {
		t.least = distance
	}
	t.last = now
	t.now++
	t.most = max(t.most, t.now)
	s.requests++
	s.asks[path]++
	return s.asks[path]
}

func (s *Site) leave(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[host].now--
}

// Traffic answers how many pages were asked for, the most requests of one host at a time, and the
// shortest time between the beginnings of two; 0 for fewer than two.
func (s *Site) Traffic() (requests int64, most int, least time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.seen {
		most = max(most, t.most)
		if t.least > 0 && (least == 0 || t.least < least) {
			least = t.least
		}
	}
	return s.requests, most, least
}

// wait waits for d; it answers false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
