package check

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
)

// serve serves the site of a seed on a host of its own.
func serve(t *testing.T, seed int64) *Site {
	t.Helper()
	s := NewSite(seed)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	s.SetHosts(strings.TrimPrefix(srv.URL, "http://"))
	return s
}

var (
	hrefForm = regexp.MustCompile(`href="([^"]+)"`)
	locForm  = regexp.MustCompile(`<loc>([^<]+)</loc>`)
)

// plainCrawl is a crawl as simple as can be, which knows nothing of the model: it asks again what
// fails for now, and answers the class of each URL.
func plainCrawl(t *testing.T, seed string, site, sitemap bool, inputs ...string) map[string]Class {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport}
	get := func(u string) (*http.Response, string, int) {
		for asked := 1; ; asked++ {
			res, err := c.Get(u)
			if err != nil {
				if asked > 5 {
					t.Fatal(err)
				}
				continue
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode < 500 || asked > 5 {
				return res, string(body), asked
			}
		}
	}
	out, finals := map[string]Class{}, map[string]string{}
	todo := slices.Clone(inputs)
	if sitemap {
		u, _ := url.Parse(seed)
		_, body, _ := get("http://" + u.Host + "/sitemap.xml")
		for _, m := range locForm.FindAllStringSubmatch(body, -1) {
			if strings.HasPrefix(m[1], seed) {
				todo = append(todo, m[1])
			}
		}
	}
	for ; len(todo) > 0; todo = todo[1:] {
		u := todo[0]
		if _, ok := out[u]; ok {
			continue
		}
		if strings.Contains(u, "/private/") {
			out[u] = MustSkip
			continue
		}
		res, body, asked := get(u)
		final := res.Request.URL.String()
		switch {
		case res.StatusCode == http.StatusNotFound:
			out[u] = MustFail
			continue
		case site && !strings.HasPrefix(final, seed):
			out[u] = MustSkip
			continue
		case strings.Contains(body, "noindex"):
			out[u] = MustSkip
		case asked > 1:
			out[u] = MayFailAtFault
		default:
			out[u] = MustAccept
		}
		if finals[final] == "" {
			finals[final] = u
		}
		for _, m := range hrefForm.FindAllStringSubmatch(body, -1) {
			if to, err := res.Request.URL.Parse(m[1]); site && err == nil {
				todo = append(todo, to.String())
			}
		}
	}
	return out
}

// What the model says of a site is what a crawl of it finds.
func TestModelIsTheSite(t *testing.T) {
	t.Parallel()
	met := map[kind]bool{}
	for seed := range int64(3) {
		s := serve(t, seed)
		for _, n := range []int{0, 1, 20, 21, 22, 23} {
			v := s.virtual(n)
			if len(v.pages) > 150 {
				continue // enough of the small ones, since pages take their time
			}
			for _, p := range v.pages {
				p.latency = 0
				met[p.kind] = true
			}
			start, sitemap := s.url(v.pages[0]), n < mapped
			got := plainCrawl(t, start, true, sitemap, start)
			want := s.Expect(true, sitemap, start)
			// A connection that was kept is tried again by net/http itself, unseen.
			for u, class := range got {
				if class == MustAccept && want[u] == MayFailAtFault && s.find(u).kind == kindDrops {
					got[u] = MayFailAtFault
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("seed %d, site %d, -model +crawl:\n%s", seed, n, d)
			}
			reached := 0
			for _, p := range v.pages {
				if _, ok := want[s.url(p)]; ok {
					reached++
				}
			}
			if reached != len(v.pages) {
				t.Errorf("seed %d, site %d: %d of %d pages can be found", seed, n, reached, len(v.pages))
			}
		}
	}
	for _, k := range kinds {
		if !met[k.kind] {
			t.Errorf("no page is %s", k.kind)
		}
	}
}

// The same seed makes the same site, another seed another.
func TestSiteFollowsFromSeed(t *testing.T) {
	t.Parallel()
	one, again, other := NewSite(1), NewSite(1), NewSite(2)
	for _, s := range []*Site{one, again, other} {
		s.SetHosts("127.0.0.1:1", "127.0.0.1:2")
	}
	again.virtual(9) // in another order
	text := func(s *Site, n int) string {
		var b strings.Builder
		for _, p := range s.virtual(n).pages {
			b.WriteString(s.url(p) + string(p.kind) + p.latency.String() + s.body(p))
		}
		return b.String()
	}
	for n := range 10 {
		if text(one, n) != text(again, n) {
			t.Errorf("site %d is another the second time", n)
		}
		if text(one, n) == text(other, n) {
			t.Errorf("site %d is the same of two seeds", n)
		}
		if size := len(one.virtual(n).pages); size < smallest || size > largest+orphans {
			t.Errorf("site %d has %d pages", n, size)
		}
	}
}

// What is no page of the site is none.
func TestFind(t *testing.T) {
	t.Parallel()
	s := NewSite(1)
	s.SetHosts("127.0.0.1:1", "127.0.0.1:2")
	for _, u := range []string{
		"http://127.0.0.1:1/", "http://127.0.0.1:1/s1/", "http://127.0.0.1:2/s0/", "http://127.0.0.1:1/s0",
		"http://127.0.0.1:1/s0/p0", "http://127.0.0.1:1/s0/p9999", "http://127.0.0.1:1/s0/?a", "http://127.0.0.1:1/sx/",
		"http://127.0.0.1:1/s1000000/", "%", "http://127.0.0.1:1/s0/private/p0", "http://127.0.0.1:1/s-1/",
	} {
		if p := s.find(u); p != nil {
			t.Errorf("%s is page %d of %d", u, p.n, p.site)
		}
	}
	for n := range 4 {
		for _, p := range s.virtual(n).pages {
			if s.find(s.url(p)) != p {
				t.Errorf("%s is not found", s.url(p))
			}
		}
	}
}

// truth is what an honest service answers about the URLs of a crawl.
func truth(s *Site, site bool, inputs ...string) []client.URLInfo {
	var out []client.URLInfo
	finals := map[string]string{}
	for _, u := range slices.Sorted(maps.Keys(s.Expect(site, site, inputs...))) {
		p := s.find(u)
		w := s.want(p, site)
		info := client.URLInfo{URL: u, State: client.URLState(w.state), Reason: w.reason, Depth: 1}
		if w.state == wantAccepted {
			info.FinalURL = s.url(s.final(p))
			if first := finals[info.FinalURL]; first != "" {
				info.State, info.Reason, info.AliasOf = client.URLSkipped, string(crawl.SkipAlias), first
			} else {
				finals[info.FinalURL] = u
			}
		}
		out = append(out, info)
	}
	return out
}

// Judged by the model, the truth is clean, and each lie is found.
func TestJudge(t *testing.T) {
	t.Parallel()
	s := NewSite(4)
	s.SetHosts("127.0.0.1:1")
	n := 0 // a site that has all kinds, and pages for a sitemap
	for ; n < mapped; n++ {
		have := map[kind]bool{}
		for _, p := range s.virtual(n).pages {
			have[p.kind] = true
		}
		if len(have) == len(kinds)+1 {
			break
		}
	}
	if n == mapped {
		t.Fatal("no site has all kinds; take another seed")
	}
	seed := s.url(s.virtual(n).pages[0])
	first := func(c *crawlOf, fits func(*page, *client.URLInfo) bool) int {
		return slices.IndexFunc(c.urls, func(u client.URLInfo) bool { return fits(s.find(u.URL), &u) })
	}
	of := func(k kind) func(*page, *client.URLInfo) bool {
		return func(p *page, u *client.URLInfo) bool {
			return p.kind == k && p.n != 0 && u.Reason != string(crawl.SkipAlias)
		}
	}
	drop := func(c *crawlOf, i int) { c.urls = slices.Delete(c.urls, i, i+1) }
	for _, tt := range []struct {
		name                 string
		lie                  func(*crawlOf)
		lost, double, faults int // at least, none where it is 0, any where it is below
	}{
		{"the truth", func(*crawlOf) {}, 0, 0, 0},
		{"a leaf is lost", func(c *crawlOf) { drop(c, first(c, of(kindGone))) }, 1, 0, 0},
		{"a page of the sitemap is lost", func(c *crawlOf) {
			drop(c, first(c, func(p *page, _ *client.URLInfo) bool { return p.orphan }))
		}, 1, 0, 0},
		{"the same, and the sitemap failed", func(c *crawlOf) {
			c.sitemap = false
			drop(c, first(c, func(p *page, _ *client.URLInfo) bool { return p.orphan }))
		}, 0, 0, 0},
		{"what was cut short loses nothing", func(c *crawlOf) {
			c.complete = false
			drop(c, first(c, of(kindGone)))
		}, 0, 0, 0},
		{"nor does what is full", func(c *crawlOf) {
			c.full = true
			drop(c, first(c, of(kindGone)))
		}, 0, 0, 0},
		{"nor what is too deep", func(c *crawlOf) {
			c.maxDepth = 1
			drop(c, first(c, of(kindGone)))
		}, 0, 0, 0},
		{"an input is lost", func(c *crawlOf) {
			drop(c, first(c, func(p *page, _ *client.URLInfo) bool { return p.n == 0 }))
		}, 1, 0, -1},
		{"in two outcomes", func(c *crawlOf) { c.urls = append(c.urls, c.urls[0]) }, 0, 1, 0},
		{"two records of one page", func(c *crawlOf) {
			i := first(c, func(_ *page, u *client.URLInfo) bool { return u.Reason == string(crawl.SkipAlias) })
			c.urls[i].State, c.urls[i].Reason = client.URLAccepted, ""
		}, 0, 1, 0},
		{"an alias of nothing", func(c *crawlOf) {
			i := first(c, func(_ *page, u *client.URLInfo) bool { return u.Reason == string(crawl.SkipAlias) })
			c.urls[i].FinalURL += "x"
		}, 0, 0, 1},
		{"a page that is gone is accepted", func(c *crawlOf) {
			i := first(c, of(kindGone))
			c.urls[i].State, c.urls[i].Reason, c.urls[i].FinalURL = client.URLAccepted, "", c.urls[i].URL
		}, 0, 0, 1},
		{"a plain page fails for a reason of its own", func(c *crawlOf) {
			i := first(c, of(kindDuplicate))
			c.urls[i].State, c.urls[i].Reason = client.URLFailed, "http_500"
		}, 0, 0, 1},
		{"a plain page fails by the network", func(c *crawlOf) {
			i := first(c, of(kindDuplicate))
			c.urls[i].State, c.urls[i].Reason = client.URLFailed, string(crawl.CodeTimeout)
		}, 0, 0, 0},
		{"a flaky page fails by its own error", func(c *crawlOf) {
			i := first(c, of(kindFlaky))
			c.complete = false // its links are not known then
			c.urls[i].State, c.urls[i].Reason = client.URLFailed, string(crawl.HTTPCode(s.find(c.urls[i].URL).status))
		}, 0, 0, -1},
		{"what robots.txt forbids is fetched", func(c *crawlOf) {
			i := first(c, of(kindForbidden))
			c.urls[i].State, c.urls[i].Reason = client.URLFailed, string(crawl.CodeTimeout)
		}, 0, 0, 1},
		{"a wrong end of a redirect", func(c *crawlOf) {
			i := first(c, of(kindDuplicate))
			c.urls[i].FinalURL = seed + "elsewhere"
		}, 0, 0, 1},
		{"a page of nowhere", func(c *crawlOf) {
			c.urls = append(c.urls, client.URLInfo{URL: "http://127.0.0.1:9/x", State: client.URLAccepted})
		}, 0, 0, 1},
		{"a page of another site", func(c *crawlOf) {
			u := s.url(s.virtual(n + 5).pages[0])
			c.urls = append(c.urls, client.URLInfo{URL: u, State: client.URLFailed, Reason: string(crawl.CodeTimeout)})
		}, 0, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &crawlOf{
				site: true, sitemap: true, complete: true, maxDepth: 100, inputs: []string{seed}, urls: truth(s, true, seed),
			}
			tt.lie(c)
			lost, double, faults := s.judge(c)
			for what, x := range map[string]struct {
				got  []string
				want int
			}{"lost": {lost, tt.lost}, "double": {double, tt.double}, "faults": {faults, tt.faults}} {
				if x.want == 0 && len(x.got) > 0 || len(x.got) < x.want {
					t.Errorf("%s: %q, want %d", what, x.got, x.want)
				}
			}
		})
	}
}
