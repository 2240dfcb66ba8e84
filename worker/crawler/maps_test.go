package crawler_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// mapped is a plan that reads sitemaps.
func mapped(p crawl.Plan, how string) crawl.Plan {
	p.Sitemap = how
	return p
}

// paths are those of the records, sorted.
func (b *bench) paths(t *testing.T, job crawl.JobRef) []string {
	t.Helper()
	var out []string
	for _, p := range b.records(t, job) {
		u, err := crawl.ParseURL(p.URL)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, u.RequestURI())
	}
	slices.Sort(out)
	return out
}

// urlset is a sitemap of the given addresses.
func urlset(locs ...string) string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
	for _, l := range locs {
		b.WriteString("<url><loc>" + l + "</loc></url>")
	}
	b.WriteString("</urlset>")
	return b.String()
}

func zip(t *testing.T, body string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The sitemaps that robots.txt names are read in place of the usual one, also where a job
// does not heed its rules; those that it does not name are guessed. Pages that nothing
// links to are found, and their records say by which sitemap and when they were changed.
func TestSitemaps(t *testing.T) {
	t.Parallel()
	const archive = `
-- seed --
<a href="/linked">linked</a>
-- linked --
linked
-- deep/a --
a
-- deep/b --
b
-- sitemap.xml --
<urlset><url><loc>{{site}}/deep/a</loc><lastmod>2024-05-06T07:08:09Z</lastmod></url>
<url><loc>{{site}}/linked</loc></url><url><loc>http://elsewhere.test/</loc></url></urlset>
-- other.txt --
{{site}}/deep/b
`
	const named = "-- robots.txt --\nUser-agent: *\nDisallow: /nowhere\nSitemap: {{site}}/other.txt\n"
	for name, c := range map[string]struct {
		robots string
		plan   crawl.Plan
		pages  []string
		maps   []string // that are requested
	}{
		"usual place": {
			plan: mapped(site(100, 5, 4), crawl.SitemapInclude), pages: []string{"/deep/a", "/linked", "/seed"},
			maps: []string{"/sitemap.xml"},
		},
		"named": {
			robots: named, plan: mapped(obedient(site(100, 5, 4)), crawl.SitemapInclude),
			pages: []string{"/deep/b", "/linked", "/seed"}, maps: []string{"/other.txt"},
		},
		"named, rules not heeded": {
			robots: named, plan: mapped(site(100, 5, 4), crawl.SitemapInclude),
			pages: []string{"/deep/b", "/linked", "/seed"}, maps: []string{"/other.txt"},
		},
		"usual place named too": {
			robots: named + "Sitemap: {{site}}/sitemap.xml\n", plan: mapped(obedient(site(100, 5, 4)), crawl.SitemapInclude),
			pages: []string{"/deep/a", "/deep/b", "/linked", "/seed"}, maps: []string{"/other.txt", "/sitemap.xml"},
		},
		"forbidden": {
			robots: "-- robots.txt --\nUser-agent: *\nDisallow: /*.xml\n", plan: mapped(obedient(site(100, 5, 4)), crawl.SitemapInclude),
			pages: []string{"/linked", "/seed"},
		},
		"only": {
			robots: named, plan: mapped(site(100, 5, 4), crawl.SitemapOnly), pages: []string{"/deep/b", "/seed"},
			maps: []string{"/other.txt"},
		},
		"skip":    {plan: mapped(site(100, 5, 4), crawl.SitemapSkip), pages: []string{"/linked", "/seed"}},
		"no site": {plan: mapped(list(1), crawl.SitemapInclude), pages: []string{"/seed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, crawltest.Any(t))
			s := crawltest.NewSite(t, []byte(archive+c.robots))
			b.unknown(t, s)
			b.worker(t, nil)
			job := b.submit(t, c.plan, s.URL+"/seed")
			j := b.ended(t, job, 30*time.Second)
			if j.State != crawl.Completed || j.Sitemaps != int64(len(c.maps)) || j.SitemapsFailed != 0 {
				t.Errorf("ended as %+v", j)
			}
			if d := cmp.Diff(c.pages, b.paths(t, job)); d != "" {
				t.Errorf("recorded (-want +got):\n%s", d)
			}
			n := asked(s)
			delete(n, "/robots.txt")
			for _, uri := range c.pages {
				delete(n, uri)
			}
			if d := cmp.Diff(c.maps, slices.Sorted(maps.Keys(n))); d != "" && len(n)+len(c.maps) > 0 {
				t.Errorf("sitemaps requested (-want +got):\n%s", d)
			}
			if slices.Contains(c.maps, "/sitemap.xml") && j.RefusedByReason[crawl.RefusedOutOfScope] != 1 {
				t.Errorf("refused %v, want one out of scope", j.RefusedByReason)
			}
			for _, p := range b.records(t, job) {
				var from string
				var changed time.Time
				switch strings.TrimPrefix(p.URL, s.URL) {
				case "/deep/a":
					from, changed = "/sitemap.xml", time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
				case "/deep/b":
					from = "/other.txt"
				case "/linked", "/seed":
					continue // whoever came first
				}
				if p.DiscoveredOn != s.URL+from || !p.LastMod.Equal(changed) || p.Depth != 1 {
					t.Errorf("record %+v, want it discovered on %s, changed %v", p, from, changed)
				}
			}
		})
	}
}

// An index leads to a compressed sitemap, and that to pages that nothing links to; two
// workers read each document and fetch each page once. What may not be fetched is
// refused: sitemaps outside the sources of the tenant, or of the worker.
func TestSitemapIndex(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		b := newBench(t, r)
		s := crawltest.NewSite(t, []byte("-- seed --\n-- a --\n-- b --\n-- c --\n"))
		s.Put("robots.txt", []byte("User-agent: *\nSitemap: /index.xml\n"))
		s.Put("index.xml", []byte(`<sitemapindex>
<sitemap><loc>{{site}}/inner.xml</loc></sitemap><sitemap><loc>{{site}}/one.xml.gz</loc></sitemap>
<sitemap><loc>{{site}}/index.xml</loc></sitemap><sitemap><loc>http://evil.test/map.xml</loc></sitemap>
<sitemap><loc>http://evil.test/map.xml</loc></sitemap></sitemapindex>`))
		s.Put("inner.xml", []byte("<sitemapindex><sitemap><loc>two.xml</loc></sitemap><sitemap><loc>gone.xml</loc></sitemap></sitemapindex>"))
		s.Put("two.xml", []byte(urlset("/b", "/b", s.URL+"/a#again", "/c", "http://[/")))
		s.Put("one.xml.gz", []byte(zip(t, urlset(s.URL+"/a"))))
		only := func(o *crawler.ProcessOptions) {
			sources, err := crawl.ParseSources(s.URL + "/")
			if err != nil {
				t.Fatal(err)
			}
			o.Sources = sources
		}
		b.unknown(t, s)
		b.worker(t, only)
		b.worker(t, only)
		job := b.submit(t, mapped(obedient(site(100, 5, 4)), crawl.SitemapInclude), s.URL+"/seed")
		j := b.ended(t, job, 30*time.Second)
		if j.State != crawl.Completed || j.Sitemaps != 4 || j.SitemapsFailed != 1 {
			t.Errorf("ended as %+v", j)
		}
		if d := cmp.Diff([]string{"/a", "/b", "/c", "/seed"}, b.paths(t, job)); d != "" {
			t.Errorf("recorded (-want +got):\n%s", d)
		}
		want := map[crawl.Reason]int64{crawl.RefusedSource: 1, crawl.RefusedInvalid: 1}
		if d := cmp.Diff(want, j.RefusedByReason); d != "" {
			t.Errorf("refused (-want +got):\n%s", d)
		}
		for uri, n := range asked(s) {
			if n != 1 {
				t.Errorf("%s was requested %d times", uri, n)
			}
		}
	})
}

// SM-02, SM-03, SM-04, SM-07, SM-09: what a document is its bytes say, whatever its name,
// type or coding; one that is none, or too large, costs nobody else anything.
func TestSitemapCases(t *testing.T) {
	t.Parallel()
	plain := urlset("/a", "/b")
	bomb := zip(t, strings.Repeat("a", 60<<20))
	type answer struct {
		status       int
		kind, coding string
		body         string
	}
	for id, c := range map[string]struct {
		uri    string
		answer answer
		failed bool
		pages  []string // beside the seed; nil for a and b
	}{
		"SM-02 a": {uri: "/s.xml.gz", answer: answer{kind: "application/x-gzip", body: zip(t, plain)}},
		"SM-02 b": {uri: "/s.xml.gz", answer: answer{kind: "application/octet-stream", body: zip(t, plain)}},
		"SM-02 c": {uri: "/s.xml.gz", answer: answer{kind: "application/xml", coding: "gzip", body: zip(t, plain)}},
		"SM-02 d": {uri: "/s.xml.gz", answer: answer{kind: "application/x-gzip", coding: "gzip", body: zip(t, zip(t, plain))}},
		"SM-02 e": {uri: "/s.xml.gz", answer: answer{kind: "application/x-gzip", body: plain}},
		"SM-02 f": {
			uri: "/s.xml.gz", answer: answer{status: 404, kind: "text/html", body: "<p>not found"}, failed: true, pages: []string{},
		},
		"SM-03 file":   {uri: "/s.xml.gz", answer: answer{kind: "application/x-gzip", body: bomb}, failed: true, pages: []string{}},
		"SM-03 coding": {uri: "/s", answer: answer{kind: "text/html", coding: "gzip", body: bomb}, failed: true, pages: []string{}},
		"SM-03 nested": {uri: "/s.gz", answer: answer{kind: "application/gzip", body: zip(t, bomb)}, failed: true, pages: []string{}},
		"SM-04 query":  {uri: "/sm.xml?from=1&to=9", answer: answer{kind: "application/xml", body: plain}},
		"SM-04 html":   {uri: "/sm", answer: answer{kind: "text/html", body: plain}},
		"SM-04 text":   {uri: "/sm2", answer: answer{kind: "text/plain", body: plain}},
		"SM-04 none":   {uri: "/sm3", answer: answer{body: plain}},
		"SM-07": {uri: "/sm.xml", answer: answer{kind: "text/xml", body: `<sm:urlset
xmlns:sm="http://www.google.com/schemas/sitemap/0.84" xmlns:xhtml="http://www.w3.org/1999/xhtml"><sm:url><sm:loc>/a</sm:loc>
<xhtml:link rel="alternate" href="/never"/></sm:url><sm:url><sm:loc>/b</sm:loc></sm:url></sm:urlset>`}},
		"SM-09": {
			uri: "/sm.xml", answer: answer{kind: "text/xml", body: "<urlset><url><loc>\n  <![CDATA[ /a?x=1&y=2 ]]>\n</loc></url>" +
				"<url><loc> /b </loc></url><url><loc>/a?p=1&amp;q=2</loc></url></urlset>"},
			pages: []string{"/a?p=1&q=2", "/a?x=1&y=2", "/b"},
		},
		"no sitemap": {uri: "/page", answer: answer{kind: "text/html", body: "<p>hello"}, failed: true, pages: []string{}},
		"damaged": {
			uri: "/sm.xml.gz", answer: answer{kind: "application/gzip", body: zip(t, plain)[:40]}, failed: true, pages: []string{},
		},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, crawltest.Any(t))
			s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/robots.txt":
					_, _ = w.Write([]byte("Sitemap: " + c.uri + "\n"))
				case r.RequestURI != c.uri:
				default:
					w.Header()["Content-Type"] = nil
					if c.answer.kind != "" {
						w.Header().Set("Content-Type", c.answer.kind)
					}
					if c.answer.coding != "" {
						w.Header().Set("Content-Encoding", c.answer.coding)
					}
					if c.answer.status != 0 {
						w.WriteHeader(c.answer.status)
					}
					_, _ = w.Write([]byte(c.answer.body))
				}
			}))
			b.unknown(t, s)
			b.worker(t, nil)
			job := b.submit(t, mapped(site(100, 5, 4), crawl.SitemapInclude), s.URL+"/seed")
			j := b.ended(t, job, 60*time.Second)
			read, failed := int64(1), int64(0)
			if c.failed {
				read, failed = 0, 1
			}
			if j.State != crawl.Completed || j.Sitemaps != read || j.SitemapsFailed != failed {
				t.Errorf("ended as %+v", j)
			}
			if c.pages == nil {
				c.pages = []string{"/a", "/b"}
			}
			if d := cmp.Diff(append(slices.Clone(c.pages), "/seed"), b.paths(t, job)); d != "" {
				t.Errorf("recorded (-want +got):\n%s", d)
			}
		})
	}
}

// A server that fails is asked three times; what it then answers is taken, and a sitemap
// that stays away is a count and holds up nothing. Nobody named the usual place: what
// stands there and is none, a page that says "not found", is nothing.
func TestSitemapFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		named        bool
		answers      []int // status of each try; the last goes on
		body         string
		tries        int
		read, failed int64
	}{
		"mended":        {answers: []int{503, 500, 200}, body: urlset("/a"), tries: 3, read: 1},
		"broken":        {answers: []int{500}, tries: 3, failed: 1},
		"gone":          {answers: []int{410}, tries: 1},
		"forbidden":     {answers: []int{403}, tries: 1},
		"named, gone":   {named: true, answers: []int{410}, tries: 1, failed: 1},
		"soft":          {answers: []int{200}, body: "<html><p>not found", tries: 1},
		"named, soft":   {named: true, answers: []int{200}, body: "<html><p>not found", tries: 1, failed: 1},
		"cut, then not": {answers: []int{200, 200}, body: "<urlset><url><loc>/a</loc></url>", tries: 3, failed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var (
				mu    sync.Mutex
				tries int
			)
			b := newBench(t, crawltest.Any(t))
			s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/robots.txt":
					if c.named {
						_, _ = w.Write([]byte("Sitemap: /sitemap.xml\n"))
					}
				case "/sitemap.xml":
					mu.Lock()
					status := c.answers[min(tries, len(c.answers)-1)]
					tries++
					mu.Unlock()
					w.WriteHeader(status)
					if status == http.StatusOK {
						_, _ = w.Write([]byte(c.body))
					}
				}
			}))
			b.unknown(t, s)
			b.worker(t, nil)
			job := b.submit(t, mapped(site(100, 5, 4), crawl.SitemapInclude), s.URL+"/seed")
			j := b.ended(t, job, 60*time.Second)
			if j.State != crawl.Completed || j.Sitemaps != c.read || j.SitemapsFailed != c.failed {
				t.Errorf("ended as %+v", j)
			}
			mu.Lock()
			defer mu.Unlock()
			if tries != c.tries {
				t.Errorf("asked %d times, want %d", tries, c.tries)
			}
			if want := int64(1 + strings.Count(c.body, "<loc>")); j.Accepted != want {
				t.Errorf("%d pages, want %d: what was named before the end stands", j.Accepted, want)
			}
		})
	}
}

// A job that has all the pages it may have reads no more: neither the rest of a sitemap
// nor those that it names. It ends for that reason, in a few requests.
func TestSitemapPageLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/sitemap.xml":
			_, _ = w.Write([]byte("<sitemapindex>"))
			for i := range 50 {
				_, _ = fmt.Fprintf(w, "<sitemap><loc>/map%d.xml</loc></sitemap>", i)
			}
			_, _ = w.Write([]byte("</sitemapindex>"))
		case strings.HasPrefix(r.URL.Path, "/map"):
			_, _ = w.Write([]byte("<urlset>"))
			for i := range 40_000 {
				_, _ = fmt.Fprintf(w, "<url><loc>%s/%d</loc></url>", r.URL.Path, i)
			}
			_, _ = w.Write([]byte("</urlset>"))
		}
	}))
	b.unknown(t, s)
	b.worker(t, nil)
	job := b.submit(t, mapped(site(20, 5, 4), crawl.SitemapInclude), s.URL+"/seed")
	j := b.ended(t, job, 60*time.Second)
	if j.State != crawl.Completed || j.StopReason != crawl.StopPageLimit || j.Total != 20 || j.Accepted != 20 {
		t.Errorf("ended as %+v", j)
	}
	if n := j.RefusedByReason[crawl.RefusedPageLimit]; n == 0 || n > 2000 {
		t.Errorf("%d URLs refused for the limit: the rest was read all the same", n)
	}
	if n := len(asked(s)); n > 30 {
		t.Errorf("%d documents requested", n)
	}
}

// endless is a site whose sitemap names enough for three parts, says so on sent, and ends
// when release is closed.
type endless struct {
	sent    chan struct{} // a value for each reader
	release chan struct{}
}

func newEndless() *endless {
	return &endless{sent: make(chan struct{}, 8), release: make(chan struct{})}
}

func (e *endless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/sitemap.xml" {
		return
	}
	_, _ = w.Write([]byte("<urlset>"))
	for i := range 1600 {
		_, _ = fmt.Fprintf(w, "<url><loc>/p/%d</loc></url>", i)
	}
	_ = http.NewResponseController(w).Flush()
	e.sent <- struct{}{}
	select {
	case <-e.release:
		_, _ = w.Write([]byte("</urlset>"))
	case <-r.Context().Done():
	}
}

// A cancel in the middle of a large sitemap ends the job at once and its request soon;
// what was admitted is accounted for.
func TestSitemapCancelled(t *testing.T) {
	t.Parallel()
	e := newEndless()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewHandlerSite(t, e)
	b.unknown(t, s)
	p := b.worker(t, nil)
	// So slow that nearly all pages are still queued.
	plan := mapped(site(100_000, 5, 2), crawl.SitemapInclude)
	plan.Delay = 200 * time.Millisecond
	job := b.submit(t, plan, s.URL+"/seed")
	crawltest.Receive(t, 20*time.Second, "the sitemap to be requested", e.sent)
	crawltest.Eventually(t, 20*time.Second, "three parts", func() bool {
		j, err := b.store.Job(t.Context(), job)
		return err == nil && j.Total == 1501
	})
	if _, err := b.store.Cancel(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	j := b.ended(t, job, 10*time.Second)
	if j.State != crawl.Cancelled || j.Total != 1501 || j.Cancelled == 0 || j.Sitemaps+j.SitemapsFailed != 0 {
		t.Errorf("ended as %+v", j)
	}
	// The worker is free before the site goes on: a slice that hung would hold this up.
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if after := b.ended(t, job, time.Second); !cmp.Equal(j, after) {
		t.Errorf("an ended job changed:\n%s", cmp.Diff(j, after))
	}
}

// A worker that is lost in the middle of a sitemap loses nothing and doubles nothing:
// another reads it from the start, and what the first still sends changes nothing.
func TestSitemapLostWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	e := newEndless()
	s := crawltest.NewHandlerSite(t, e)
	b.unknown(t, s)
	plan := mapped(site(100_000, 5, 4), crawl.SitemapInclude)
	job := b.submit(t, plan, s.URL+"/seed")

	// The first worker is played: it commits a part and is not heard of again.
	lost, _, err := b.store.Begin(t.Context(), crawl.Ring{JobRef: job})
	if err != nil || lost == nil {
		t.Fatalf("slice %v, %v", lost, err)
	}
	out, err := b.store.Exchange(t.Context(), lost, store.Exchange{Lease: 1})
	if err != nil || len(out.Items) != 1 || out.Items[0].Kind != crawl.ItemSitemap {
		t.Fatalf("leased %+v, %v", out.Items, err)
	}
	part := func(n, from, to int) store.Exchanged {
		t.Helper()
		c := store.MapCommit{Item: out.Items[0], Outcome: store.MapPart, Part: n}
		for i := from; i < to; i++ {
			u, err := crawl.ParseURL(fmt.Sprintf("%s/p/%d", s.URL, i))
			if err != nil {
				t.Fatal(err)
			}
			c.Links = append(c.Links, store.MapLink{Link: crawl.Link{URL: u, Key: u.Key()}})
		}
		x, err := b.store.Exchange(t.Context(), lost, store.Exchange{Maps: []store.MapCommit{c}})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	if got := part(1, 0, 300).Mapped[0]; got.Verdict != store.Done {
		t.Fatalf("first part: %+v", got)
	}
	close(e.release)
	b.worker(t, nil)
	crawltest.Receive(t, 40*time.Second, "another worker to read the sitemap", e.sent)
	if got := part(2, 300, 400).Mapped[0]; got.Verdict != store.Stale {
		t.Errorf("a part of the lost worker: %+v", got)
	}
	j := b.ended(t, job, 60*time.Second)
	if j.State != crawl.Completed || j.Total != 1601 || j.Accepted != 1601 || j.Sitemaps != 1 {
		t.Errorf("ended as %+v", j)
	}
	for uri, n := range asked(s) {
		if n != 1 {
			t.Errorf("%s was requested %d times", uri, n)
		}
	}
}

// A sitemap asks for its host's slots as pages do: five requests are four delays apart. The
// gap of any two would be about the machine that the test runs on.
func TestSitemapPoliteness(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewSite(t, []byte("-- seed --\n-- a --\n-- map.xml --\n<urlset><url><loc>/a</loc></url></urlset>"))
	s.Put("sitemap.xml", []byte("<sitemapindex><sitemap><loc>/map.xml</loc></sitemap></sitemapindex>"))
	b.unknown(t, s)
	b.worker(t, nil)
	b.worker(t, nil)
	plan := mapped(site(100, 5, 8), crawl.SitemapInclude)
	plan.Delay = 500 * time.Millisecond
	if j := b.ended(t, b.submit(t, plan, s.URL+"/seed"), 60*time.Second); j.State != crawl.Completed || j.Sitemaps != 2 {
		t.Errorf("ended as %+v", j)
	}
	log := s.Requests()
	if len(log) != 5 {
		t.Fatalf("%d requests, want robots.txt, two sitemaps and two pages", len(log))
	}
	if took := log[4].At.Sub(log[0].At); took < 4*plan.Delay-plan.Delay*3/4 {
		t.Errorf("five requests within %v", took)
	}
}
