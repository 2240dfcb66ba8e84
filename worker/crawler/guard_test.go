package crawler_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/dnstest"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// fence is a bench whose worker may reach one site, 127.0.0.1 at port, and nothing else.
// Canaries stand at the same port of 127.0.0.2 and of ::1, and at another one of 127.0.0.1.
type fence struct {
	*bench
	dns   *dnstest.Server
	site  *crawltest.Site
	name  string // of the site; no other test has it
	base  string // http://name:port
	port  string
	other string // the port of the canary on 127.0.0.1
}

// newFence makes a fence around a site that h answers for. The handler is given after the
// fence is made, since its answers name the ports.
func newFence(t *testing.T) (f *fence, answer func(http.HandlerFunc)) {
	t.Helper()
	var h atomic.Pointer[http.HandlerFunc]
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := h.Load(); p != nil {
			(*p)(w, r)
		}
	}))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(site.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := netguard.Parse("127.0.0.1:" + port)
	if err != nil {
		t.Fatal(err)
	}
	f = &fence{bench: newBench(t, crawltest.Any(t)), site: site, port: port, other: dnstest.Canary(t, "127.0.0.1:0")}
	f.name = f.named("site")
	f.base = "http://" + f.name + ":" + port
	dnstest.Canary(t, "127.0.0.2:"+port)
	if dnstest.IPv6(t) {
		dnstest.Canary(t, "[::1]:"+port)
	}
	f.dns = dnstest.New(t, dnstest.Zone{f.name: {dnstest.To("127.0.0.1")}})
	f.worker(t, func(o *crawler.ProcessOptions) {
		o.Fetch.Dial = netguard.New(policy, netguard.WithResolver(f.dns.Resolver())).DialContext
	})
	return f, func(with http.HandlerFunc) { h.Store(&with) }
}

// named returns a name that no other test has: what is known of a host is shared by all
// jobs of a Redis.
func (f *fence) named(what string) string { return what + "-" + f.tenant + ".test" }

// inside adds a name to the zone and returns it.
func (f *fence) inside(what string, replies ...dnstest.Reply) string {
	name := f.named(what)
	f.dns.Set(name, replies...)
	return name
}

// targets are URLs to what may not be reached, one for each kind of way there.
func (f *fence) targets() map[string]string {
	to := dnstest.To
	f.dns.Set("localhost", to("127.0.0.1", "::1")) // where no hosts file has it
	hosts := map[string]string{
		// The same port of another address.
		"literal": "127.0.0.2:PORT", "decimal": "2130706434:PORT", "hexadecimal": "0x7f.2:PORT", "octal": "0177.0.0.02:PORT",
		"final dot": "127.0.0.2.:PORT", "ideographic dots": "127。0。0。2:PORT", "loopback of IPv6": "[::1]:PORT",
		"mapped": "[::ffff:127.0.0.2]:PORT", "compatible": "[::127.0.0.2]:PORT", "NAT64": "[64:ff9b::7f00:2]:PORT",
		"local NAT64": "[64:ff9b:1::7f00:2]:PORT", "6to4": "[2002:7f00:2::]:PORT", "Teredo": "[2001:0:7f00:2::]:PORT",
		"ISATAP": "[2600::5efe:7f00:2]:PORT",
		// Another port of the same address.
		"another port": "127.0.0.1:OTHER", "another port of the name": f.name + ":OTHER", "unspecified": "0.0.0.0:OTHER",
		"unspecified IPv6": "[::]:OTHER", "localhost": "localhost:OTHER", "LOCALHOST.": "LOCALHOST.:OTHER",
		// What has no canary here.
		"broadcast": "255.255.255.255", "multicast": "[ff02::1]", "link-local": "[fe80::1]", "AWS": "169.254.169.254",
		"AWS, IPv6": "[fd00:ec2::254]", "Azure": "168.63.129.16", "Alibaba": "100.100.100.200",
	}
	chain := dnstest.Reply{CNAMEs: []string{"b.test", "localhost"}, Addrs: []string{"127.0.0.2"}}
	for name, reply := range map[string]dnstest.Reply{
		"a": to("127.0.0.2"), "aaaa": to("::1"), "both": to("127.0.0.2", "::1"), "mapped": to("::ffff:127.0.0.2"),
		"nat64": to("64:ff9b::7f00:2"), "meta": to("169.254.169.254"), "chain": chain, "127-0-0-2.nip": to("127.0.0.2"),
	} {
		hosts["name "+name] = f.inside(name, reply) + ":PORT"
	}
	hosts["name zero"] = f.inside("zero", to("0.0.0.0")) + ":OTHER"
	hosts["name in upper case"] = strings.ToUpper(f.inside("upper", to("127.0.0.2"))) + ".:PORT"
	idn := f.inside("xn--bcher-kva.idn", to("127.0.0.2"))
	hosts["international name"] = strings.Replace(idn, "xn--bcher-kva", "Bücher", 1) + ":PORT"

	out := map[string]string{}
	for kind, host := range hosts {
		host = strings.NewReplacer("PORT", f.port, "OTHER", f.other).Replace(host)
		out[kind] = "http://" + host + "/" + url.PathEscape(kind) // or spellings of one address would be one page
	}
	return out
}

// insideAddrs are what no message about a name may tell.
var insideAddrs = []string{"127.0.0.", "::1", "169.254.", "7f00", "0.0.0.0"}

// private fails the test when a failure is no refusal of the guard that says what to do, or
// one that tells what a name leads to.
func private(t *testing.T, fail *crawl.Failure) {
	t.Helper()
	if fail.ErrorType != crawl.CodePrivateAddress || fail.Attempts != 1 ||
		!strings.Contains(fail.Message, netguard.Setting) {
		t.Errorf("%+v, want %s in one try, and what to do", fail, crawl.CodePrivateAddress)
	}
	u, err := crawl.ParseURL(fail.URL)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(u.Hostname(), ".test") {
		return // an address, which the site named itself
	}
	for _, a := range insideAddrs {
		if strings.Contains(fail.Message, a) {
			t.Errorf("%s: the message %q tells of %s", fail.SourceURL, fail.Message, a)
		}
	}
}

// failures returns what failed of a job, by the URL that was asked for.
func (f *fence) failures(t *testing.T, job crawl.JobRef) map[string]crawl.Failure {
	t.Helper()
	p, err := f.store.Failures(t.Context(), job, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]crawl.Failure{}
	for _, fail := range p.Failures {
		out[fail.SourceURL] = fail
	}
	return out
}

// canonical is a URL as failures name it.
func canonical(t *testing.T, s string) string {
	t.Helper()
	u, err := crawl.ParseURL(s)
	if err != nil {
		t.Fatal(err)
	}
	return u.String()
}

// redirector answers /to?URL with a redirect there.
func redirector(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/to" {
		return false
	}
	to, err := url.QueryUnescape(r.URL.RawQuery)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return true
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusFound)
	return true
}

// No link and no redirect of a page leads to what is private, whatever it is called
// (SEC-04): each is recorded with a message that says what to do and not what is there, and
// the job goes on with the rest.
func TestNoWayInByPage(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]crawl.Plan{
		"heeding robots": obedient(site(1000, 5, 16)), "not": site(1000, 5, 16),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, answer := newFence(t)
			targets := f.targets()
			answer(func(w http.ResponseWriter, r *http.Request) {
				if redirector(w, r) || r.URL.Path == "/robots.txt" {
					return
				}
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_, _ = fmt.Fprintf(w, "<title>%s</title><a href=/fine>fine</a>", r.URL.Path)
				if r.URL.Path == "/" {
					_, _ = fmt.Fprint(w, "<a href='http://[fe80::1%25lo]/'>a zone is no part of a URL</a>")
					for _, to := range targets {
						_, _ = fmt.Fprintf(w, "<a href='%s'>1</a> <a href='/to?%s'>2</a>", to, url.QueryEscape(to))
					}
				}
			})
			plan.Scope = crawl.ScopeAny
			job := f.submit(t, plan, f.base+"/")
			j := f.ended(t, job, 60*time.Second)
			if j.State != crawl.CompletedWithErrors && j.State != crawl.Completed || j.Accepted != 2 {
				t.Errorf("ended as %+v", j)
			}
			if d := cmp.Diff(map[crawl.Code]int64{crawl.CodePrivateAddress: int64(2 * len(targets))}, j.FailedByType); d != "" {
				t.Errorf("failed (-want +got):\n%s", d)
			}
			if n := j.RefusedByReason[crawl.RefusedInvalid]; n != 1 {
				t.Errorf("%d links refused as invalid, want the one with a zone", n)
			}
			failed := f.failures(t, job)
			for kind, to := range targets {
				for _, from := range []string{canonical(t, to), canonical(t, f.base+"/to?"+url.QueryEscape(to))} {
					fail, ok := failed[from]
					if !ok {
						t.Errorf("%s: %s is not among what failed", kind, from)
						continue
					}
					private(t, &fail)
				}
			}
		})
	}
}

// A name that moves between two look-ups is judged at each (SEC-04): between robots.txt and
// page, two pages, and the hops of a redirect. Over a connection that is kept nothing is
// looked up, and the pages come from where they came before.
func TestNoWayInByRebinding(t *testing.T) {
	t.Parallel()
	const pages = `<a href="/a">a</a> <a href="/hop">hop</a>`
	for name, tt := range map[string]struct {
		keep     bool
		moves    string // the path with whose answer the name moves
		plan     crawl.Plan
		accepted int64
		failed   []string
	}{
		"after robots.txt":        {moves: "/robots.txt", plan: obedient(site(10, 5, 1)), failed: []string{"/"}},
		"after the first page":    {moves: "/", plan: site(10, 5, 1), accepted: 1, failed: []string{"/a", "/hop"}},
		"between hops":            {moves: "/hop", plan: site(10, 5, 1), accepted: 2, failed: []string{"/hop"}},
		"connection that is kept": {keep: true, moves: "/", plan: site(10, 5, 1), accepted: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, answer := newFence(t)
			answer(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == tt.moves {
					f.dns.Set(f.name, dnstest.To("127.0.0.2", "::1"))
				}
				if !tt.keep {
					w.Header().Set("Connection", "close")
				}
				switch r.URL.Path {
				case "/robots.txt":
				case "/hop":
					w.Header().Set("Location", "/hopped")
					w.WriteHeader(http.StatusFound)
				default:
					w.Header().Set("Content-Type", "text/html; charset=utf-8")
					_, _ = fmt.Fprintf(w, "<title>%s</title>%s", r.URL.Path, pages)
				}
			})
			job := f.submit(t, tt.plan, f.base+"/")
			j := f.ended(t, job, 30*time.Second)
			if j.Accepted != tt.accepted || j.Processed != j.Total {
				t.Errorf("ended as %+v", j)
			}
			failed := f.failures(t, job)
			var paths []string
			for _, from := range slices.Sorted(maps.Keys(failed)) {
				fail := failed[from]
				private(t, &fail)
				paths = append(paths, strings.TrimPrefix(from, f.base))
			}
			if d := cmp.Diff(tt.failed, paths); d != "" {
				t.Errorf("failed (-want +got):\n%s", d)
			}
			if n := f.dns.Lookups(f.name); tt.keep && n != 0 {
				t.Errorf("%d look-ups although the connection was kept", n)
			}
		})
	}
}

// almostGivenUp has the store believe that the robots.txt of an origin failed as often as
// it may but once, long ago.
func (f *fence) almostGivenUp(t *testing.T, origin string) {
	t.Helper()
	u, err := crawl.ParseURL(origin + "/")
	if err != nil {
		t.Fatal(err)
	}
	clock := time.Now().Add(-time.Hour)
	past := store.New(f.redis.Client, store.Options{Now: func() int64 { return clock.UnixMilli() }})
	for range store.RobotsTries - 1 {
		r, err := past.ClaimRobots(t.Context(), u, "Trawl")
		if err != nil || r.Standing != store.RobotsToFetch {
			t.Fatalf("%+v, %v", r, err)
		}
		if r, err = past.LearnRobots(t.Context(), u, "Trawl", r.Claim, store.RobotsFetch{Why: `{}`}); err != nil {
			t.Fatal(err)
		}
		clock = clock.Add(r.Wait)
	}
}

// A robots.txt that redirects to what is private is not looked at there and counts as not
// reached: nothing of the site is fetched, and the job ends and says why (ROB-03 e).
func TestNoWayInByRobots(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]func(*fence) string{
		"literal":  func(f *fence) string { return "http://127.0.0.1:" + f.other + "/robots.txt" },
		"metadata": func(*fence) string { return "http://169.254.169.254/robots.txt" },
		"name": func(f *fence) string {
			return "http://" + f.inside("robots", dnstest.To("127.0.0.2")) + ":" + f.port + "/robots.txt"
		},
		"another port": func(f *fence) string { return "http://" + f.name + ":" + f.other + "/robots.txt" },
		"rebinding": func(f *fence) string {
			f.dns.Set(f.name, dnstest.To("127.0.0.1"), dnstest.To("127.0.0.2"))
			return "/robots.txt?again"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, answer := newFence(t)
			location := to(f)
			answer(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Connection", "close")
				w.Header().Set("Location", location)
				w.WriteHeader(http.StatusFound)
			})
			f.almostGivenUp(t, f.base)
			j := f.ended(t, f.submit(t, obedient(site(10, 5, 1)), f.base+"/"), 30*time.Second)
			want := map[crawl.Code]int64{crawl.CodePrivateAddress: 1}
			if d := cmp.Diff(want, j.FailedByType); d != "" || j.State != crawl.Failed {
				t.Errorf("ended as %+v, failed (-want +got):\n%s", j, d)
			}
			if !strings.Contains(j.Error, "robots.txt") || !strings.Contains(j.Error, netguard.Setting) {
				t.Errorf("it says %q, want that robots.txt leads to what is private, and what to do", j.Error)
			}
			if name != "literal" && name != "metadata" {
				for _, a := range insideAddrs {
					if strings.Contains(j.Error, a) {
						t.Errorf("it says %q, which tells of %s", j.Error, a)
					}
				}
			}
			if d := cmp.Diff(map[string]int{"/robots.txt": 1}, asked(f.site)); d != "" {
				t.Errorf("requested (-want +got):\n%s", d)
			}
		})
	}
}

// Sitemaps are no way in: neither those that robots.txt or another sitemap names, nor what
// they redirect to, nor the pages that they name. Each is counted, and the rest is read.
func TestNoWayInBySitemap(t *testing.T) {
	t.Parallel()
	for name, robots := range map[string]string{"heeding robots": "User-agent: *\nDisallow: /nowhere\n", "not": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, answer := newFence(t)
			targets := f.targets()
			locs := slices.Sorted(maps.Values(targets))
			redirects := make([]string, 0, len(locs))
			for _, to := range locs {
				redirects = append(redirects, f.base+"/to?"+url.QueryEscape(to))
			}
			files := map[string]string{
				"/robots.txt": robots + "Sitemap: " + strings.Join(slices.Concat(locs, redirects), "#1\nSitemap: ") +
					"#1\nSitemap: /index.xml\nSitemap: /pages.xml\n",
				"/index.xml": "<sitemapindex>",
				"/pages.xml": urlset(append([]string{"/fine"}, locs...)...),
			}
			for _, loc := range slices.Concat(locs, redirects) {
				nested := strings.Replace(loc, ":"+f.port+"/", ":"+f.port+"/nested/", 1) // another sitemap than robots.txt names
				files["/index.xml"] += "<sitemap><loc>" + nested + "</loc></sitemap>"
			}
			files["/index.xml"] += "<sitemap><loc>/more.xml</loc></sitemap></sitemapindex>"
			files["/more.xml"] = urlset("/more")
			answer(func(w http.ResponseWriter, r *http.Request) {
				r.URL.Path = strings.TrimPrefix(r.URL.Path, "/nested")
				if !redirector(w, r) {
					_, _ = w.Write([]byte(files[r.URL.Path]))
				}
			})
			plan := mapped(site(1000, 5, 16), crawl.SitemapInclude)
			plan.IgnoreRobots, plan.Scope = robots == "", crawl.ScopeAny
			job := f.submit(t, plan, f.base+"/seed")
			j := f.ended(t, job, 60*time.Second)
			if j.Accepted != 3 || j.Sitemaps != 3 {
				t.Errorf("ended as %+v, want the seed and two pages of three sitemaps", j)
			}
			if j.SitemapsFailed < int64(2*len(locs)) {
				t.Errorf("%d sitemaps failed, want at least %d", j.SitemapsFailed, 2*len(locs))
			}
			if d := cmp.Diff(map[crawl.Code]int64{crawl.CodePrivateAddress: int64(len(locs))}, j.FailedByType); d != "" {
				t.Errorf("pages that failed (-want +got):\n%s", d)
			}
			for _, fail := range f.failures(t, job) {
				private(t, &fail)
			}
		})
	}
}
