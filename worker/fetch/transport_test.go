package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest/dnstest"
	"example.com/trawl/pkg/netguard"
)

// guarded returns a fetcher that dials through a guard of its own, which looks names up at
// dns and lets pass, beside what is public, what private lists.
func guarded(t *testing.T, dns *dnstest.Server, private string) *Fetcher {
	t.Helper()
	policy, err := netguard.Parse(private)
	if err != nil {
		t.Fatal(err)
	}
	return newFetcher(t, Options{Dial: netguard.New(policy, netguard.WithResolver(dns.Resolver())).DialContext})
}

// portOf returns the port of a listener.
func portOf(t *testing.T, ln net.Listener) string {
	t.Helper()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// ways are the two that a Fetcher has of requesting a URL: pages, and what is about a site
// (robots.txt, sitemaps).
var ways = map[string]func(context.Context, *Fetcher, crawl.URL) (redirect crawl.URL, err error){
	"page": func(ctx context.Context, f *Fetcher, u crawl.URL) (crawl.URL, error) {
		res, err := f.Fetch(ctx, Request{URL: u, Links: true})
		return res.Redirect, err
	},
	"file": func(ctx context.Context, f *Fetcher, u crawl.URL) (crawl.URL, error) {
		_, err := f.Raw(ctx, RawRequest{URL: u})
		return crawl.URL{}, err
	},
}

// refusedBy fails the test when err is no refusal of the guard, or tells an address that
// the caller did not name.
func refusedBy(t *testing.T, what string, err error, secret string) {
	t.Helper()
	f, ok := errors.AsType[*crawl.Fault](err)
	if !ok || f.Code != crawl.CodePrivateAddress || f.Temporary || !strings.Contains(f.Message, netguard.Setting) {
		t.Errorf("%s: %v, want %s", what, err, crawl.CodePrivateAddress)
		return
	}
	if secret != "" && strings.Contains(f.Message, secret) {
		t.Errorf("%s: the message %q tells of %s", what, f.Message, secret)
	}
}

// A redirect is no way around the guard, wherever it leads (SEC-04, ROB-03 e). site.test is
// 127.0.0.1, which is allowed on its port; everything else is not, and has canaries.
func TestRedirectsMeetTheGuard(t *testing.T) {
	t.Parallel()
	for way, get := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			// It redirects to what the query says, and keeps no connection, so that the
			// next hop must dial.
			s := serve(t, func(c net.Conn, target string) bool {
				_, query, _ := strings.Cut(target, "?")
				location, _ := url.QueryUnescape(query)
				answer("302 Found", "Connection: close\r\nLocation: "+location, "")(c, target)
				return false
			})
			port := portOf(t, s.ln)
			dnstest.Canary(t, "127.0.0.2:"+port)
			other := dnstest.Canary(t, "127.0.0.1:0")
			if dnstest.IPv6(t) {
				dnstest.Canary(t, "[::1]:"+port)
			}
			to, inside := dnstest.To, dnstest.To("127.0.0.2")
			dns := dnstest.New(t, dnstest.Zone{
				"site.test": {to("127.0.0.1")}, "inside.test": {inside}, "six.test": {to("::1")},
				"chain.test":  {{CNAMEs: []string{"a.test", "localhost"}, Addrs: []string{"127.0.0.2"}}},
				"rebind.test": {to("127.0.0.1"), inside},
			})
			f := guarded(t, dns, "127.0.0.1:"+port)
			for name, tt := range map[string]struct{ from, location, secret string }{
				"another port of the host": {location: "http://site.test:" + other + "/", secret: "127.0.0.1"},
				"literal":                  {location: "http://127.0.0.2:" + port + "/"},
				"disguised literal":        {location: "http://0x7f.2:" + port + "/"},
				"mapped literal":           {location: "http://[::ffff:127.0.0.2]:" + port + "/"},
				"literal of IPv6":          {location: "http://[::1]:" + port + "/"},
				"literal, another port":    {location: "http://127.0.0.1:" + other + "/"},
				"without a scheme":         {location: "//127.0.0.2:" + port + "/"},
				"metadata":                 {location: "http://169.254.169.254/latest/meta-data/"},
				"name":                     {location: "http://inside.test:" + port + "/", secret: "127.0.0.2"},
				"name, upper case and dot": {location: "http://INSIDE.TEST.:" + port + "/", secret: "127.0.0.2"},
				"name of IPv6":             {location: "http://six.test:" + port + "/", secret: "::1"},
				"name with an alias":       {location: "http://chain.test:" + port + "/", secret: "127.0.0.2"},
				"secure":                   {location: "https://inside.test:" + port + "/", secret: "127.0.0.2"},
				"back to a name that moved": {
					from: "http://rebind.test:" + port, location: "http://rebind.test:" + port + "/again", secret: "127.0.0.2",
				},
			} {
				if tt.from == "" {
					tt.from = "http://site.test:" + port
				}
				u := must(crawl.ParseURL(tt.from + "/?" + url.QueryEscape(tt.location)))
				next, err := get(t.Context(), f, u)
				if err == nil && !next.IsZero() { // to another origin: the caller follows
					_, err = get(t.Context(), f, next)
				}
				refusedBy(t, name, err, tt.secret)
			}
		})
	}
}

// A pooled connection still leads to the address that was checked, whatever the name means
// by now; once it is gone, the new address is judged (SEC-04, keep-alive).
func TestKeepAliveAfterRebinding(t *testing.T) {
	t.Parallel()
	for way, get := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := serve(t, routes{
				"/": page("kept"), "/last": answer("200 OK", "Connection: close\r\nContent-Type: text/html", "last"),
			}.serve)
			port := portOf(t, s.ln)
			dnstest.Canary(t, "127.0.0.2:"+port)
			dns := dnstest.New(t, dnstest.Zone{"rebind.test": {dnstest.To("127.0.0.1")}})
			f := guarded(t, dns, "127.0.0.1:"+port)
			fetch := func(target string) error {
				_, err := get(t.Context(), f, must(crawl.ParseURL("http://rebind.test:"+port+target)))
				return err
			}
			if err := fetch("/"); err != nil {
				t.Fatal(err)
			}
			dns.Set("rebind.test", dnstest.To("127.0.0.2"))
			for range 3 {
				if err := fetch("/"); err != nil {
					t.Errorf("over the kept connection: %v", err)
				}
			}
			if n := dns.Lookups("rebind.test"); n != 0 || s.connections() != 1 {
				t.Errorf("%d connections, %d look-ups after the first, want the first connection to be used", s.connections(), n)
			}
			f.Close() // as when the site closes it, but known to have happened
			refusedBy(t, "after the connection", fetch("/"), "127.0.0.2")
			dns.Set("rebind.test", dnstest.To("127.0.0.1"), dnstest.To("127.0.0.2"))
			if err := fetch("/"); err != nil {
				t.Errorf("back at the first address: %v", err)
			}
			if err := fetch("/last"); err != nil {
				t.Errorf("the last answer of a connection: %v", err)
			}
			refusedBy(t, "after the last answer", fetch("/"), "127.0.0.2")
		})
	}
}

// Two fetchers of one process with different policies share no connection, though it is the
// same host.
func TestPoliciesShareNoConnection(t *testing.T) {
	t.Parallel()
	for way, get := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := serve(t, page("inside"))
			u := must(crawl.ParseURL("http://site.test:" + portOf(t, s.ln) + "/"))
			dns := dnstest.New(t, dnstest.Zone{"site.test": {dnstest.To("127.0.0.1")}})
			open, shut := guarded(t, dns, s.ln.Addr().String()), guarded(t, dns, "")
			if open.transport == shut.transport {
				t.Fatal("both have the same transport")
			}
			for range 3 {
				if _, err := get(t.Context(), open, u); err != nil {
					t.Errorf("allowed: %v", err)
				}
				_, err := get(t.Context(), shut, u)
				refusedBy(t, "not allowed", err, "127.0.0.1")
			}
			if n := s.connections(); n != 1 {
				t.Errorf("%d connections, want one that was kept, so that it could have been shared", n)
			}
		})
	}
}

// HTTP/2 lets a client send requests for other hosts of the certificate over a connection
// (RFC 9113 section 9.1.1), and Alt-Svc lets a site name another address for itself (RFC
// 7838). Both would go around the guard, and neither is done.
func TestNoOtherWayByHTTP2(t *testing.T) {
	t.Parallel()
	var canary atomic.Pointer[string]
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", strings.ReplaceAll(
			`h2="127.0.0.1:PORT"; ma=86400, http/1.1=":PORT"; ma=86400, h3=":PORT"`, "PORT", *canary.Load()))
		_, _ = io.WriteString(w, r.Proto+" "+r.Host)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	port := portOf(t, s.Listener)
	away := dnstest.Canary(t, "127.0.0.1:0")
	canary.Store(&away)
	dnstest.Canary(t, "127.0.0.2:"+port)
	// The server's certificate is for both names.
	dns := dnstest.New(t, dnstest.Zone{
		"a.example.com": {dnstest.To("127.0.0.1")},
		"b.example.com": {dnstest.To("127.0.0.2")},
		"c.example.com": {dnstest.To("127.0.0.1")},
	})
	f := guarded(t, dns, "127.0.0.1:"+port+",127.0.0.1:"+away)
	f.transport.TLSClientConfig = &tls.Config{
		RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
	}
	get := func(host string) (string, error) {
		raw, err := f.Raw(t.Context(), RawRequest{URL: must(crawl.ParseURL("https://" + host + ":" + port + "/"))})
		return string(raw.Body), err
	}
	for range 3 {
		if body, err := get("a.example.com"); body != "HTTP/2.0 a.example.com:"+port {
			t.Fatalf("got %q, %v, want an answer by HTTP/2", body, err)
		}
		_, err := get("b.example.com")
		refusedBy(t, "another name of the certificate", err, "127.0.0.2")
	}
	if n := dns.Lookups("a.example.com"); n != 1 {
		t.Errorf("%d look-ups, want that the connection was kept", n)
	}
	if body, err := get("c.example.com"); body != "HTTP/2.0 c.example.com:"+port || dns.Lookups("c.example.com") != 1 {
		t.Errorf("another name of the address: %q, %v, looked up %d times, want a connection of its own",
			body, err, dns.Lookups("c.example.com"))
	}
}

// proxyChild names the process in which TestNoProxy fetches: net/http reads the proxy
// variables once, so that they have to be there from the start.
const proxyChild = "TRAWL_TEST_PROXY_CHILD"

// Proxies of the environment are not used: behind one the guard would judge the address of
// the proxy and nothing else.
func TestNoProxy(t *testing.T) {
	t.Parallel()
	if os.Getenv(proxyChild) != "" {
		fetchPastProxy(t)
		return
	}
	proxy := "127.0.0.1:" + dnstest.Canary(t, "127.0.0.1:0")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoProxy$", "-test.count=1", "-test.v")
	child.Env = append(os.Environ(), proxyChild+"=1", "NO_PROXY=", "no_proxy=", "REQUEST_METHOD=")
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		child.Env = append(child.Env, name+"=http://"+proxy, strings.ToLower(name)+"=http://"+proxy)
	}
	if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestNoProxy") {
		t.Errorf("%v\n%s", err, out)
	}
}

func fetchPastProxy(t *testing.T) {
	t.Helper()
	s := serve(t, page("direct"))
	port := portOf(t, s.ln)
	// By name: net/http never sends what is on loopback to a proxy.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://site.test:"+port+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if u, err := http.ProxyFromEnvironment(req); err != nil || u == nil {
		t.Fatalf("the environment names no proxy: %v, %v", u, err)
	}
	dns := dnstest.New(t, dnstest.Zone{"site.test": {dnstest.To("127.0.0.1")}, "inside.test": {dnstest.To("127.0.0.2")}})
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	f := guarded(t, dns, "127.0.0.1:"+port+","+secure.Listener.Addr().String())
	for way, get := range ways {
		if _, err := get(t.Context(), f, must(crawl.ParseURL("http://site.test:"+port+"/"))); err != nil {
			t.Errorf("%s: %v", way, err)
		}
		// Nobody here knows its certificate: what matters is that it is that one which is met.
		u := must(crawl.ParseURL("https://site.test:" + portOf(t, secure.Listener) + "/"))
		if _, err := get(t.Context(), f, u); crawl.CodeOf(err) != crawl.CodeTLS {
			t.Errorf("%s, secure: %v, want %s", way, err, crawl.CodeTLS)
		}
		_, err := get(t.Context(), f, must(crawl.ParseURL("http://inside.test:"+port+"/")))
		refusedBy(t, way, err, "127.0.0.2")
	}
}
