package check

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// kind is what a page of the site does when it is asked for.
type kind string

// The kinds of pages.
const (
	kindPlain     kind = "plain"     // answers
	kindGone      kind = "gone"      // 404, always
	kindFlaky     kind = "flaky"     // 500 or 503 the first times, then answers
	kindDrops     kind = "drops"     // ends the connection without an answer once, then answers
	kindForbidden kind = "forbidden" // the robots.txt forbids it
	kindAlias     kind = "alias"     // redirects to a plain page of its site
	kindAcross    kind = "across"    // redirects to the first page of the next site
	kindDuplicate kind = "duplicate" // has the bytes of another page
	kindNoIndex   kind = "noindex"   // asks not to be kept; its links count
)

// kinds and how many of a thousand pages are of them; the rest is plain.
var kinds = []struct {
	kind kind
	of   int
}{
	{kindGone, 40},
	{kindFlaky, 60},
	{kindDrops, 20},
	{kindForbidden, 25},
	{kindAlias, 30},
	{kindAcross, 15},
	{kindDuplicate, 20},
	{kindNoIndex, 10},
}

const (
	smallest, largest = 5, 400 // pages of a virtual site
	// mapped is how many virtual sites, from 0, have pages that a sitemap alone names: it is one
	// file for all of them, since sitemaps belong to a host. Jobs share these sites.
	mapped  = 16
	orphans = 3 // such pages of each
	// maxSite bounds the numbers of virtual sites, so that no request makes a new one for ever.
	maxSite = 1_000_000
)

// page is one page of a virtual site.
type page struct {
	site, n int
	kind    kind
	orphan  bool  // named by the sitemap alone
	target  *page // of an alias or duplicate
	links   []int // pages of its site, for those that have a body of their own
	status  int   // of a flaky one, while it fails
	fails   int   // how often it does
	asks    bool  // its failures name a Retry-After
	latency time.Duration
}

// path is the page's, and its query if it had one.
func (p *page) path() string {
	switch {
	case p.n == 0:
		return fmt.Sprintf("/s%d/", p.site)
	case p.kind == kindForbidden:
		return fmt.Sprintf("/s%d/private/p%d", p.site, p.n)
	default:
		return fmt.Sprintf("/s%d/p%d", p.site, p.n)
	}
}

// holds reports whether the page has a body of its own with links.
func (p *page) holds() bool {
	switch p.kind {
	case kindPlain, kindFlaky, kindDrops, kindNoIndex:
		return true
	default:
		return false
	}
}

// virtual is one virtual site: a tree with links across, all below /sN/.
type virtual struct {
	n     int
	pages []*page
}

// newVirtual makes virtual site n of a seed.
func newVirtual(seed int64, n int) *virtual {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(n)+1))
	u := r.Float64()
	v := &virtual{n: n}
	size := smallest + int(float64(largest-smallest+1)*u*u*u)
	var bodies, plain []*page // that can link, and that can be led to
	for i := range size {
		p := &page{site: n, n: i, kind: draw(r, i), latency: latency(r)}
		if len(plain) == 0 {
			p.kind = kindPlain
		}
		switch p.kind {
		case kindAlias, kindDuplicate:
			p.target = plain[r.IntN(len(plain))]
		case kindFlaky:
			p.status, p.fails, p.asks = 500, 1+r.IntN(2), false
			if r.IntN(2) == 0 {
				p.status, p.asks = 503, r.IntN(2) == 0
			}
		default:
		}
		v.pages = append(v.pages, p)
		if i > 0 {
			// Of the last twenty, so that sites are deep as well as wide.
			parent := bodies[max(0, len(bodies)-1-r.IntN(20))]
			parent.links = append(parent.links, i)
		}
		if p.holds() {
			bodies = append(bodies, p)
		}
		if p.kind == kindPlain {
			plain = append(plain, p)
		}
	}
	for _, p := range bodies {
		for range r.IntN(4) {
			p.links = append(p.links, r.IntN(size))
		}
	}
	for i := range orphans {
		if n < mapped {
			v.pages = append(v.pages, &page{site: n, n: size + i, kind: kindPlain, orphan: true, latency: latency(r)})
		}
	}
	return v
}

// draw answers the kind of page i. The first is plain: a site whose seed fails is no crawl.
func draw(r *rand.Rand, i int) kind {
	at := r.IntN(1000)
	if i == 0 {
		return kindPlain
	}
	for _, k := range kinds {
		if at < k.of {
			return k.kind
		}
		at -= k.of
	}
	return kindPlain
}

// latency draws that of a page: mostly short, up to 300 ms, and of a few 1 to 3 s.
func latency(r *rand.Rand) time.Duration {
	if r.IntN(100) == 0 {
		return time.Second + time.Duration(r.IntN(2000))*time.Millisecond
	}
	u := r.Float64()
	return time.Duration(300 * u * u * float64(time.Millisecond))
}

// Site is a web site of many virtual sites, /s0/ to /s999999/, whose pages, errors and delays
// follow from a seed. It serves them (it is an [http.Handler]) and says what a crawl of them
// must find. Errors that pass are counted by the asks that this Site got.
type Site struct {
	seed  int64
	hosts atomic.Pointer[[]string] // host:port, the virtual sites in turn

	mu       sync.Mutex
	virtuals map[int]*virtual
	asks     map[string]int // by path
	seen     map[string]*traffic
	requests int64
}

// NewSite returns the site of a seed. It serves relative redirects until SetHosts tells it where
// it is.
func NewSite(seed int64) *Site {
	return &Site{seed: seed, virtuals: map[int]*virtual{}, asks: map[string]int{}, seen: map[string]*traffic{}}
}

// SetHosts says under which host:port the site is reached. Virtual site n belongs to host
// n modulo their number; any of them answers for all. [New] says it to its Server.
func (s *Site) SetHosts(hosts ...string) { s.hosts.Store(new(slices.Clone(hosts))) }

// hostOf is the host:port of virtual site n; empty without hosts.
func (s *Site) hostOf(n int) string {
	hosts := s.hosts.Load()
	if hosts == nil || len(*hosts) == 0 {
		return ""
	}
	return (*hosts)[n%len(*hosts)]
}

// virtual answers virtual site n, which is made when it is first asked for.
func (s *Site) virtual(n int) *virtual {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.virtuals[n]
	if v == nil {
		v = newVirtual(s.seed, n)
		s.virtuals[n] = v
	}
	return v
}

// base is what the URLs of virtual site n begin with; empty without hosts.
func (s *Site) base(n int) string {
	if host := s.hostOf(n); host != "" {
		return "http://" + host
	}
	return ""
}

// url is the URL of a page.
func (s *Site) url(p *page) string { return s.base(p.site) + p.path() }

// across is where a page of kind across leads.
func (s *Site) across(p *page) *page { return s.virtual((p.site + 1) % maxSite).pages[0] }

// final is the page whose bytes a page ends with: itself, or where it redirects to.
func (s *Site) final(p *page) *page {
	switch p.kind {
	case kindAlias:
		return p.target
	case kindAcross:
		return s.across(p)
	default:
		return p
	}
}

// linksOf answers the pages that the bytes of a page link to.
func (s *Site) linksOf(p *page) []*page {
	if p.kind == kindDuplicate {
		p = p.target
	}
	v := s.virtual(p.site)
	out := make([]*page, len(p.links))
	for i, n := range p.links {
		out[i] = v.pages[n]
	}
	return out
}

// find answers the page of a URL; nil for what is none of the site.
func (s *Site) find(raw string) *page {
	u, err := url.Parse(raw)
	if err != nil || u.RawQuery != "" {
		return nil
	}
	p := s.at(u.Path)
	if p == nil || s.url(p) != raw {
		return nil
	}
	return p
}

// at answers the page at a path.
func (s *Site) at(path string) *page {
	rest, ok := strings.CutPrefix(path, "/s")
	if !ok {
		return nil
	}
	first, rest, ok := strings.Cut(rest, "/")
	n, err := strconv.Atoi(first)
	if !ok || err != nil || n < 0 || n >= maxSite {
		return nil
	}
	v := s.virtual(n)
	if rest == "" {
		return v.pages[0]
	}
	i, err := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(rest, "private/"), "p"))
	if err != nil || i < 1 || i >= len(v.pages) || v.pages[i].path() != path {
		return nil
	}
	return v.pages[i]
}

// listed answers the pages that the sitemap of a host names.
func (s *Site) listed(host string) []*page {
	var out []*page
	for n := range mapped {
		if own := s.hostOf(n); own != "" && own != host {
			continue
		}
		v := s.virtual(n)
		out = append(out, v.pages[0])
		for _, p := range v.pages {
			if p.orphan {
				out = append(out, p)
			}
		}
	}
	return out
}
