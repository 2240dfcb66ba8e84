package fetch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// siteTest makes a fetcher for which http://site.test is s, and which fails the
// test when any other host is dialled.
func siteTest(t *testing.T, s *site, o Options) *Fetcher {
	t.Helper()
	o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != "site.test:80" {
			t.Errorf("%s was dialled", addr)
		}
		return new(net.Dialer).DialContext(ctx, network, s.ln.Addr().String())
	}
	return newFetcher(t, o)
}

func siteURL(target string) crawl.URL { return must(crawl.ParseURL("http://site.test" + target)) }

// TestRedirectLocations is RED-07: a Location is parsed as a link is.
func TestRedirectLocations(t *testing.T) {
	t.Parallel()
	tests := []struct {
		location, target string // a target on another origin is a whole URL
	}{
		{"/ta\tb", "/tab"},
		{"///site.test/three", "/three"},
		{"/caf\xc3\xa9 sp", "/caf%C3%A9%20sp"},
		{"/caf\xe9", "/caf%E9"},
		{"/x/{id}", "/x/{id}"},
		{`\\other.test\x`, "http://other.test/x"},
		{"rel?x=1", "/rel?x=1"},
		{"//site.test/pr", "/pr"},
		{"HTTP://SITE.test:80/up", "/up"},
		{"http://user:secret@site.test/u", "/u"},
		{"https://site.test/tls", "https://site.test/tls"},
		{"http://site.test:8080/port", "http://site.test:8080/port"},
		{"http://other.test/x", "http://other.test/x"},
		{"/p|q^`", "/p|q^`"},
		{"/frag#x", "/frag"},
		// net/url refuses a % that begins no escape.
		{"/50%-off", "/50%-off"},
		{"http://other.test/50%-off", "http://other.test/50%-off"},
	}
	for _, tt := range tests {
		t.Run("RED-07 "+tt.location, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(c net.Conn, target string) bool {
				if target == "/" {
					return redirectTo(tt.location)(c, target)
				}
				return page("<title>there</title>")(c, target)
			})
			res, err := siteTest(t, s, Options{}).Fetch(t.Context(), Request{URL: siteURL("/")})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(tt.target, "/") {
				if res.Redirect.String() != tt.target || res.Page.Status != 302 || res.Hops != 1 {
					t.Errorf(
						"redirect to %q with status %d, %d hops, want %q",
						res.Redirect,
						res.Page.Status,
						res.Hops,
						tt.target,
					)
				}
				if diff := cmp.Diff([]string{"/"}, s.targets()); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				return
			}
			want := siteURL(tt.target)
			if res.Page.Title != "there" || res.Final != want || res.Page.URL != want.String() ||
				res.Hops != 1 {
				t.Errorf("title %q, final %q, %d hops, want %q", res.Page.Title, res.Final, res.Hops, want)
			}
			if diff := cmp.Diff([]string{"/", want.RequestURI()}, s.targets()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRequestLine: what is sent is what the frontier knows, byte for byte; the
// query of URL-14 is in an old charset.
func TestRequestLine(t *testing.T) {
	t.Parallel()
	for _, target := range []string{
		"/s?q=%F2%E5%F1%F2", "/%d0%9F", "/a%2fb", "/a|b", "/{x}", "/?", "/?a=[1]&b='x'", "/a;b=1/c", "/50%-off", "//double//slash/", "/%7Etilde", "/a/%2e",
	} {
		t.Run("URL-14 "+target, func(t *testing.T) {
			t.Parallel()
			s := serve(t, page("x"))
			u := siteURL(target)
			if _, err := siteTest(t, s, Options{}).Fetch(t.Context(), Request{URL: u}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{u.RequestURI()}, s.targets()); diff != "" {
				t.Errorf("request line (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRedirectChains is RED-01 and what belongs to it.
func TestRedirectChains(t *testing.T) {
	t.Parallel()
	endless := func(c net.Conn, target string) bool {
		var n int
		_, _ = fmt.Sscanf(target, "/%d", &n)
		return redirectTo(fmt.Sprintf("/%d?secret=1", n+1))(c, target)
	}
	tests := []struct {
		name, from string
		h          handler
		hops, max  int
		code       crawl.Code
		requests   int
		says       []string
	}{
		{"RED-01 a", "/", redirectTo("/"), 0, 0, crawl.CodeRedirectLoop, 1, []string{"302 /", "1 redirect"}},
		{
			"RED-01 b", "/", routes{"/": redirectTo("/b"), "/b": redirectTo("/c"), "/c": redirectTo("/b")}.serve, 0, 0,
			crawl.CodeRedirectLoop, 3,
			[]string{"302 /, 302 /b, 302 /c → /b", "3 redirects"},
		},
		{
			"RED-01 b by another spelling",
			"/a",
			routes{"/a": redirectTo("/%61")}.serve,
			0,
			0,
			crawl.CodeRedirectLoop,
			1,
			nil,
		},
		{
			"RED-01 c",
			"/0",
			endless,
			0,
			0,
			crawl.CodeTooManyRedirects,
			11,
			[]string{"302 /0", "302 /10", "11 redirects"},
		},
		{"RED-01 c over several fetches", "/0", endless, 8, 0, crawl.CodeTooManyRedirects, 3, nil},
		{"RED-01 c with another limit", "/0", endless, 0, 2, crawl.CodeTooManyRedirects, 3, nil},
		{
			"RED-01 ends at another origin, one too far",
			"/0",
			redirectTo("http://other.test/"),
			10,
			0,
			crawl.CodeTooManyRedirects,
			1,
			nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.h)
			_, err := siteTest(
				t,
				s,
				Options{MaxRedirects: tt.max},
			).Fetch(t.Context(), Request{URL: siteURL(tt.from), Hops: tt.hops})
			f := faultOf(t, err)
			if f.Code != tt.code || f.Temporary || f.Status != 302 {
				t.Errorf("got %v, status %d, want %s", err, f.Status, tt.code)
			}
			if n := len(s.targets()); n != tt.requests {
				t.Errorf("%d requests, want %d", n, tt.requests)
			}
			for _, w := range tt.says {
				if !strings.Contains(f.Message, w) {
					t.Errorf("message %q does not say %q", f.Message, w)
				}
			}
			if strings.Contains(f.Message, "secret") {
				t.Errorf("message %q repeats a query", f.Message)
			}
		})
	}

	t.Run("as many as allowed", func(t *testing.T) {
		t.Parallel()
		s := serve(t, func(c net.Conn, target string) bool {
			if target == "/10?secret=1" {
				return page("<title>end</title>")(c, target)
			}
			return endless(c, target)
		})
		res, err := siteTest(t, s, Options{}).Fetch(t.Context(), Request{URL: siteURL("/0")})
		if err != nil || res.Page.Title != "end" || res.Hops != 10 {
			t.Errorf("title %q, %d hops, %v", res.Page.Title, res.Hops, err)
		}
	})
}

// TestRedirectAway is RED-04, RED-12 and SEC-12: nothing is asked of the other
// origin, and no header or cookie outlives a hop.
func TestRedirectAway(t *testing.T) {
	t.Parallel()
	setCookie := func(to string) handler {
		return answer("302 Found", "Set-Cookie: sess=1; Path=/\r\nLocation: "+to, "")
	}
	s := serve(t, routes{"/start": setCookie("/go"), "/go": setCookie("http://other.test/x")}.serve)
	f := siteTest(t, s, Options{})
	for range 2 {
		res, err := f.Fetch(t.Context(), Request{URL: siteURL("/start"), Hops: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := Result{
			Page: crawl.Page{
				Status: 302,
			}, Final: siteURL("/go"), Redirect: must(crawl.ParseURL("http://other.test/x")), Hops: 3,
		}
		if got := res.Header.Get("Location"); got != "http://other.test/x" {
			t.Errorf("RED-04: Location %q is kept", got)
		}
		res.Header = nil
		if diff := cmp.Diff(want, res, cmp.Comparer(func(a, b crawl.URL) bool { return a == b })); diff != "" {
			t.Errorf("RED-04 (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"/start", "/go", "/start", "/go"}, s.targets()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for _, head := range s.requests() {
		for _, h := range []string{"Cookie:", "Referer:", "Authorization:"} {
			if strings.Contains(head, h) {
				t.Errorf("SEC-12, RED-12: a request carries %s\n%s", h, head)
			}
		}
		if !strings.HasPrefix(head, "GET ") { // HTTP-11
			t.Errorf("HTTP-11: not a GET: %s", head)
		}
	}
}

// TestTrailingSlash is URL-12.
func TestTrailingSlash(t *testing.T) {
	t.Parallel()
	s := serve(t, routes{
		"/dir": page(
			"noslash",
		), "/dir/": answer("500 Oh", "", ""), "/redir": redirectTo("/redir/"), "/redir/": page("<title>r</title>"),
	}.serve)
	f := siteTest(t, s, Options{})
	if _, err := f.Fetch(t.Context(), Request{URL: siteURL("/dir")}); err != nil {
		t.Errorf("/dir: %v", err)
	}
	if _, err := f.Fetch(t.Context(), Request{URL: siteURL("/dir/")}); crawl.CodeOf(err) != "http_500" {
		t.Errorf("/dir/: %v", err)
	}
	res, err := f.Fetch(t.Context(), Request{URL: siteURL("/redir")})
	if err != nil || res.Page.URL != "http://site.test/redir/" || res.Hops != 1 {
		t.Errorf("/redir: %q, %d hops, %v", res.Page.URL, res.Hops, err)
	}
	if diff := cmp.Diff([]string{"/dir", "/dir/", "/redir", "/redir/"}, s.targets()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestHopIsAsked(t *testing.T) {
	t.Parallel()
	s := serve(t, routes{"/a": redirectTo("/b"), "/b": redirectTo("/c"), "/c": page("x")}.serve)
	f := siteTest(t, s, Options{})
	refused := errors.New("robots")
	var asked []string
	res, err := f.Fetch(t.Context(), Request{URL: siteURL("/a"), Hop: func(to crawl.URL) error {
		asked = append(asked, to.Path())
		if to.Path() == "/c" {
			return refused
		}
		return nil
	}})
	if err != refused { //nolint:errorlint // documented: returned as it is
		t.Errorf("got %v, want the error of Hop itself", err)
	}
	if diff := cmp.Diff([]string{"/b", "/c"}, asked); diff != "" || res.Hops != 2 {
		t.Errorf("%d hops, asked (-want +got):\n%s", res.Hops, diff)
	}
	if diff := cmp.Diff([]string{"/a", "/b"}, s.targets()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestConcurrentFetches: nothing of one fetch shows in another.
func TestConcurrentFetches(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c net.Conn, target string) bool {
		if strings.HasPrefix(target, "/go/") {
			return redirectTo(strings.TrimPrefix(target, "/go"))(c, target)
		}
		return page("<title>"+target+"</title><a href="+target+"/n>n</a>")(c, target)
	})
	f := siteTest(t, s, Options{MaxConnsPerHost: 4})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			target := fmt.Sprintf("/%d", i)
			res, err := f.Fetch(t.Context(), Request{URL: siteURL("/go" + target), Links: true})
			if err != nil || res.Page.Title != target || len(res.Links) != 1 ||
				res.Links[0].URL != siteURL(target+"/n") {
				t.Errorf("%s: title %q, links %v, %v", target, res.Page.Title, res.Links, err)
			}
		})
	}
	wg.Wait()
	if n := s.connections(); n > 4 {
		t.Errorf("%d connections, want at most 4", n)
	}
}
