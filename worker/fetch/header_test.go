package fetch

import (
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// field returns the value of a field of a request head, and how often it is there.
func field(head, name string) (value string, n int) {
	for line := range strings.SplitSeq(head, "\r\n") {
		if k, v, ok := strings.Cut(line, ": "); ok && strings.EqualFold(k, name) {
			value = v
			n++
		}
	}
	return value, n
}

// TestHeaders is RED-12: the headers of a job go with every request of its origin,
// redirects included, and nowhere else.
func TestHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t, routes{
		"/a": redirectTo("/b"), "/b": redirectTo("http://other.test/steal"), "/tls": redirectTo("https://site.test/"),
	}.serve)
	f := siteTest(t, s, Options{UserAgent: "TestBot/1.0"}) // fails when another host is dialled
	req := Request{URL: siteURL("/a"), UserAgent: "JobBot/2.0 (+http://bot.test/)", Header: http.Header{
		"x-api-key": {"k"}, "Authorization": {"Basic eDp5"}, "Cookie": {"sess=1"}, "Accept": {"text/plain"},
		"Referer": {"http://from.test/"}, "Accept-Language": {"de", "en"}, "X-Empty": {""},
	}}
	for _, target := range []string{"/a", "/tls"} {
		req.URL = siteURL(target)
		if res, err := f.Fetch(t.Context(), req); err != nil || res.Redirect.IsZero() {
			t.Errorf("RED-12 %s: %+v, %v", target, res, err)
		}
	}
	if diff := cmp.Diff([]string{"/a", "/b", "/tls"}, s.targets()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for _, head := range s.requests() {
		for name, want := range map[string]string{
			"User-Agent": "JobBot/2.0 (+http://bot.test/)", "X-Api-Key": "k", "Authorization": "Basic eDp5",
			"Cookie": "sess=1", "Accept": "text/plain", "Referer": "http://from.test/", "X-Empty": "",
			"Accept-Encoding": acceptEncoding,
		} {
			if got, n := field(head, name); got != want || n != 1 {
				t.Errorf("RED-12: %s is %q, %d times, want %q in\n%s", name, got, n, want, head)
			}
		}
		if _, n := field(head, "Accept-Language"); n != 2 {
			t.Errorf("two values of a field became %d in\n%s", n, head)
		}
	}
	// The next fetch has nothing of it.
	if _, err := f.Fetch(t.Context(), Request{URL: siteURL("/b")}); err != nil {
		t.Fatal(err)
	}
	head := s.requests()[3]
	if _, n := field(head, "X-Api-Key"); n != 0 || !strings.Contains(head, "User-Agent: TestBot/1.0\r\n") {
		t.Errorf("SEC-12: the request of another job is\n%s", head)
	}
}

func TestHeadersThatAreRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, value, rule string }{
		{"Host", "other.test", "forbidden"},
		{"hOsT", "other.test", "forbidden"},
		{"User-Agent", "x", "forbidden"},
		{"Accept-Encoding", "zstd", "forbidden"},
		{"Connection", "close", "forbidden"},
		{"Transfer-Encoding", "chunked", "forbidden"},
		{"Content-Length", "5", "forbidden"},
		{"Range", "bytes=0-1", "forbidden"},
		{"If-None-Match", `"x"`, "forbidden"},
		{"Proxy-Authorization", "x", "forbidden"},
		{"", "x", "pattern"},
		{"X A", "x", "pattern"},
		{"X-A:", "x", "pattern"},
		{"X-A\r\nX-Evil", "x", "pattern"},
		{"X-Ä", "x", "pattern"},
		{"X-A", "SEC-07\r\nX-Evil: 1", "pattern"},
		{"X-A", "\x00", "pattern"},
		{"X-A", "a\tb é", ""},
		{"Cookie", "a=b; c=d", ""},
		{"Authorization", "Bearer x", ""},
	}
	for _, tt := range tests {
		fault, ok := checkHeader(tt.name, tt.value)
		if ok != (tt.rule == "") || fault.Rule != tt.rule {
			t.Errorf("checkHeader(%q, %q) = %+v, %t, want rule %q", tt.name, tt.value, fault, ok, tt.rule)
		}
		if strings.Contains(fault.Message, "Evil") || strings.ContainsAny(fault.Field, "\r\n") {
			t.Errorf("SEC-07: %+v repeats its input", fault)
		}
	}
	s := serve(t, page("x"))
	f := newFetcher(t, Options{})
	for name, req := range map[string]Request{
		"header":     {Header: http.Header{"Host": {"other.test"}, "X-A": {"ok"}}},
		"user agent": {UserAgent: "Bot\r\nX-Evil: 1"},
	} {
		req.URL = s.url(t, "/")
		_, err := f.Fetch(t.Context(), req)
		if fault := faultOf(t, err); fault.Code != crawl.CodeInvalid || len(fault.Fields) != 1 || fault.Temporary {
			t.Errorf("SEC-07 %s: %v", name, err)
		}
	}
	if n := len(s.targets()); n != 0 {
		t.Errorf("SEC-07: %d requests", n)
	}
}

// TestCookies is SEC-12: cookies live in the jar of a job. They are kept of every
// answer and sent with the next request, also within one fetch.
func TestCookies(t *testing.T) {
	t.Parallel()
	set := func(status, cookies, more string) handler {
		return answer(status, "Set-Cookie: "+cookies+"; Path=/"+more, "")
	}
	s := serve(t, routes{
		"/start":  set("302 Found", "sess=new", "\r\nLocation: /page"),
		"/page":   set("200 OK", "seen=1", "\r\nSet-Cookie: big="+strings.Repeat("x", maxCookieBytes)),
		"/error":  set("403 No", "wall=1", ""),
		"/away":   set("302 Found", "left=1", "\r\nLocation: http://other.test/"),
		"/secure": set("404 No", "safe=1; Secure", ""),
	}.serve)
	f := siteTest(t, s, Options{})
	tenant := func() http.CookieJar { return must(cookiejar.New(nil)) }
	a, b := tenant(), tenant()
	get := func(jar http.CookieJar, target string) {
		_, _ = f.Fetch(t.Context(), Request{
			URL: siteURL(target), Jar: jar, Header: http.Header{"Cookie": {"own=1; sess=old"}},
		})
	}
	tests := []struct {
		jar    http.CookieJar
		target string
		want   []string // the Cookie lines of the requests
	}{
		{a, "/start", []string{"own=1; sess=old", "own=1; sess=new"}},
		{b, "/page", []string{"own=1; sess=old"}},
		{a, "/error", []string{"own=1; sess=new; seen=1"}},
		{a, "/away", []string{"own=1; sess=new; seen=1; wall=1"}},
		{a, "/secure", []string{"own=1; sess=new; seen=1; wall=1; left=1"}},
		{a, "/page", []string{"own=1; sess=new; seen=1; wall=1; left=1"}},
		{b, "/page", []string{"own=1; sess=old; seen=1"}},
		{nil, "/page", []string{"own=1; sess=old"}},
	}
	n := 0
	for _, tt := range tests {
		get(tt.jar, tt.target)
		heads := s.requests()[n:]
		n += len(heads)
		var got []string
		for _, head := range heads {
			line, _ := field(head, "Cookie")
			got = append(got, line)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("SEC-12 %s: cookies sent (-want +got):\n%s", tt.target, diff)
		}
	}
}

// TestCookieLimits: a site cannot make requests of a job so large that they are
// refused, nor fill its jar with one answer.
func TestCookieLimits(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for i := range 200 {
		lines.WriteString("Set-Cookie: c" + itoa(i) + "=" + strings.Repeat("x", 1000) + "\r\n")
	}
	s := serve(t, answer("200 OK", strings.TrimSuffix(lines.String(), "\r\n"), ""))
	f, jar := siteTest(t, s, Options{}), must(cookiejar.New(nil))
	for range 2 {
		if _, err := f.Fetch(t.Context(), Request{URL: siteURL("/"), Jar: jar}); err != nil {
			t.Fatal(err)
		}
	}
	line, _ := field(s.requests()[1], "Cookie")
	if len(line) > maxCookieLineBytes || len(line) < 5000 {
		t.Errorf("a Cookie line of %d bytes", len(line))
	}
	u := must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://site.test/", nil)).URL
	if n := len(jar.Cookies(u)); n != maxCookiesKept {
		t.Errorf("%d cookies kept, want %d", n, maxCookiesKept)
	}
}

// TestCookieWall: a page that sets a cookie and redirects to itself answers the
// second time; one that does so for ever ends (RED-01).
func TestCookieWall(t *testing.T) {
	t.Parallel()
	wall := answer("302 Found", "Set-Cookie: seen=1\r\nLocation: /", "")
	s := serve(t, wall)
	_, err := siteTest(t, s, Options{}).Fetch(t.Context(), Request{URL: siteURL("/"), Jar: must(cookiejar.New(nil))})
	if f := faultOf(t, err); f.Code != crawl.CodeTooManyRedirects || len(s.targets()) != DefaultMaxRedirects+1 {
		t.Errorf("RED-01: %v after %d requests", err, len(s.targets()))
	}
	var asked atomic.Int32
	s = serve(t, func(c net.Conn, target string) bool {
		if asked.Add(1) > 1 {
			return page("<title>in</title>")(c, target)
		}
		return wall(c, target)
	})
	f := siteTest(t, s, Options{})
	res, err := f.Fetch(t.Context(), Request{URL: siteURL("/"), Jar: must(cookiejar.New(nil))})
	if err != nil || res.Page.Title != "in" || res.Hops != 1 {
		t.Errorf("title %q, %d hops, %v", res.Page.Title, res.Hops, err)
	}
}
