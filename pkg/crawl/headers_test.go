package crawl

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// specOf decodes a spec of one URL with the given fields.
func specOf(t testing.TB, fields string) *Spec {
	t.Helper()
	return decodeSpec(t, `{"urls":["http://a.test/"],`+fields+`}`)
}

func TestHeaderFaults(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"X-%d":"v"`, i)
		}
		return strings.Join(all, ",")
	}
	for _, tt := range []struct {
		name, headers string
		want          []string
	}{
		{"none", ``, nil},
		{"credentials", `"Authorization":"Bearer x","Cookie":"a=b; c=d","X-Api-Key":"k"`, nil},
		{"other", `"Accept":"text/html","Accept-Language":"de, en;q=0.5","Referer":"https://a.test/","DNT":"1","X-Forward":"a","Secret":"b","X-Proxy-A":"c","!#$%&'*+-.^_` + "`" + `|~09":""`, nil},
		{"inner space, tab, obs-text", `"A":"a b\tc","B":"é"`, nil},
		{"most", many(20), nil},
		{"too many", many(21), []string{"headers max"}},
		{"largest", `"A":"` + strings.Repeat("x", MaxHeaderBytes-1) + `"`, nil},
		{"too large", `"A":"` + strings.Repeat("x", MaxHeaderBytes) + `"`, []string{"headers max"}},
		{"letter case", `"a":"1","A":"2"`, []string{"headers.a duplicate"}},
		{
			"names", `"":"v","A B":"v","A:":"v","é":"v","A\r\nB":"v"`,
			[]string{"headers. pattern", "headers.A\r\nB pattern", "headers.A B pattern", "headers.A: pattern", "headers.é pattern"},
		},
		{
			"values", `"A":"x\r\nEvil: 1","B":" x","C":"x\t","D":"\u0000","E":"x\u007f","F":"x\ny"`,
			[]string{"headers.A pattern", "headers.B pattern", "headers.C pattern", "headers.D pattern", "headers.E pattern", "headers.F pattern"},
		},
		{"a shown spec sent again", `"Cookie":"***"`, []string{"headers.Cookie masked"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			faults := specOf(t, `"headers":{`+tt.headers+`}`).Validate(DefaultLimits())
			if !slices.Equal(rules(faults), tt.want) {
				t.Errorf("got %q\nwant %q", rules(faults), tt.want)
			}
			for _, f := range faults {
				if !isSentence(f.Message) && !strings.HasPrefix(f.Message, MaskedHeader) || strings.Contains(f.Message, "Evil") {
					t.Errorf("%s: bad message %q", f.Field, f.Message)
				}
			}
		})
	}
}

func TestForbiddenHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Host", "hOST", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect",
		"Accept-Encoding", "Content-Encoding", "Cookie2", "Proxy-Authorization", "PROXY-CONNECTION", "Proxy-", "Range", "If-Range",
		"If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since", "HTTP2-Settings", "User-Agent",
		"Forwarded", "Via", "X-Forwarded-For", "x-forwarded-host", "X-Forwarded-", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP",
		"X-Client-IP", "X-Original-URL", "X-Rewrite-URL", "X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override",
		"Sec-Fetch-Site", "sec-ch-ua", "Sec-WebSocket-Key",
	} {
		faults := specOf(t, fmt.Sprintf(`"headers":{%q:"x"}`, name)).Validate(DefaultLimits())
		if !slices.Equal(rules(faults), []string{"headers." + name + " forbidden"}) {
			t.Errorf("%s: %q", name, rules(faults))
			continue
		}
		if m := faults[0].Message; !isSentence(m) || !strings.Contains(m, name) || strings.HasSuffix(m, "set. ") {
			t.Errorf("%s: %q", name, m)
		}
	}
}

func TestUserAgent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", MaxUserAgentBytes)
	for ua, rule := range map[string]string{
		"": "", "Bot": "", "Bot/1.0 (+https://a.test/)": "", "-x": "", "_x": "", long: "",
		"Mozilla/5.0 (compatible; Bot/1.0; +https://a.test/)": "",
		long + "a": "max", "Bot\r\nX: 1": "pattern", "Bot\x00": "pattern", "Böt": "pattern", " Bot": "pattern", "Bot ": "pattern",
		"1Bot": "product_token", "(Bot)": "product_token", "/1.0": "product_token", "*": "product_token",
	} {
		s := Spec{URLs: []string{"http://a.test/"}, UserAgent: ua}
		var want []string
		if rule != "" {
			want = []string{"user_agent " + rule}
		}
		faults := s.Validate(DefaultLimits())
		if !slices.Equal(rules(faults), want) {
			t.Errorf("%.20q: got %q, want %q", ua, rules(faults), want)
		}
		for _, f := range faults {
			if !isSentence(f.Message) {
				t.Errorf("%q", f.Message)
			}
		}
	}
}

func TestSitemap(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"": SitemapInclude, SitemapInclude: SitemapInclude, SitemapOnly: SitemapOnly, SitemapSkip: SitemapSkip, "Only": "", "x": "",
	} {
		s := Spec{SeedURL: "http://a.test/", Sitemap: value}
		p, _, err := s.Plan(DefaultLimits(), mustSources(t, "*"))
		if p.Sitemap != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q (%v), want %q", value, p.Sitemap, err, want)
		}
		var f *Fault
		if want == "" && (!errors.As(err, &f) || !slices.Equal(rules(f.Fields), []string{"sitemap enum"})) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// Headers hold credentials: they go to the origins that the caller named and to no
// other, not even to the other scheme of a host.
func TestHeadersStayAtTheirOrigins(t *testing.T) {
	t.Parallel()
	s := decodeSpec(t, `{"seeds":["https://a.test/x","https://a.test/y","http://b.test:8080/"],"headers":{"Authorization":"Bearer x"}}`)
	p, _, err := s.Plan(DefaultLimits(), mustSources(t, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"https://a.test", "http://b.test:8080"}, p.HeaderOrigins); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	r := mustRules(t, p)
	for link, want := range map[string]bool{
		"https://a.test/other?x": true, "https://A.test:443/": true, "http://b.test:8080/x": true,
		"http://a.test/": false, "https://a.test:8443/": false, "http://b.test/": false, "https://b.test:8080/": false,
		"https://www.a.test/": false, "https://a.test.evil.test/": false, "https://a.test./": false,
	} {
		if got := r.Headers(mustParse(t, link))["Authorization"] == "Bearer x"; got != want {
			t.Errorf("%s gets them: %v", link, got)
		}
	}
	if r.Headers(URL{}) != nil {
		t.Error("the zero URL gets them")
	}
	urls := make([]string, MaxHeaderOrigins+1)
	for i := range urls {
		urls[i] = fmt.Sprintf("http://h%d.test/", i)
	}
	for n, want := range map[int][]string{MaxHeaderOrigins: nil, MaxHeaderOrigins + 1: {"headers max"}} {
		s := Spec{URLs: urls[:n], Headers: Headers{"A": "b"}}
		_, _, err := s.Plan(DefaultLimits(), mustSources(t, "*"))
		var f *Fault
		if errors.As(err, &f) != (want != nil) || (f != nil && !slices.Equal(rules(f.Fields), want)) {
			t.Errorf("%d origins: %v", n, err)
		}
	}
}

// However a spec or a plan is formatted, no value of a header comes out; where it is
// stored, all do.
func TestHeadersAreSecret(t *testing.T) {
	t.Parallel()
	s := specOf(t, `"headers":{"Authorization":"Bearer hush","Cookie":"hush"}`)
	p, _, err := s.Plan(DefaultLimits(), mustSources(t, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{s, *s, p, &p, s.Headers, s.Headers.Masked()} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if got := fmt.Sprintf(verb, v); strings.Contains(got, "hush") || !strings.Contains(got, "Authorization") {
				t.Errorf("%s: %s", verb, got)
			}
		}
	}
	b, err := json.Marshal(p)
	var stored Plan
	if err != nil || json.Unmarshal(b, &stored) != nil || stored.Headers["Cookie"] != "hush" {
		t.Errorf("stored as %s (%v)", b, err)
	}
	if Headers(nil).Masked() != nil {
		t.Error("no headers are masked as some")
	}
}

// Whatever is accepted can be sent as one header line.
func FuzzHeader(f *testing.F) {
	f.Add("Authorization", "Bearer x", "Bot/1.0")
	f.Add("A\r\nB", "x\r\nEvil: 1", "a\nb")
	f.Add("Proxy-X", "", "")
	f.Fuzz(func(t *testing.T, name, value, ua string) {
		s := Spec{URLs: []string{"http://a.test/"}, Headers: Headers{name: value}, UserAgent: ua}
		if s.Validate(DefaultLimits()) != nil {
			return
		}
		line := name + ": " + value + "\nUser-Agent: " + ua
		if strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\r\x00") || strings.ContainsAny(name, " :\t") || name == "" {
			t.Errorf("%q: %q and %q are accepted", name, value, ua)
		}
	})
}
