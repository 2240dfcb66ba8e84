package crawl

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustSources(t testing.TB, s string) Sources {
	t.Helper()
	src, err := ParseSources(s)
	if err != nil {
		t.Fatalf("ParseSources(%q): %v", s, err)
	}
	return src
}

func TestSourcesAllow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		sources    string
		allowed    []string
		notAllowed []string
	}{
		{"", nil, []string{"http://a.test/"}},
		{" , ", nil, []string{"http://a.test/"}},
		{"*", []string{"http://a.test/", "https://127.0.0.1:9/x", "http://[::1]/"}, nil},
		{
			"docs.example.org",
			[]string{"http://docs.example.org/x", "https://DOCS.example.org./", "https://docs.example.org:443/"},
			[]string{
				"http://docs.example.org:8080/", "http://docs.example.org:443/", "https://docs.example.org:80/",
				"http://example.org/", "http://a.docs.example.org/", "http://xdocs.example.org/",
				"http://docs.example.org.evil.test/", "http://docs.example.org@evil.test/",
			},
		},
		{
			"docs.example.org:8080",
			[]string{"http://docs.example.org:8080/", "https://docs.example.org:8080/"},
			[]string{"http://docs.example.org/", "http://docs.example.org:808/"},
		},
		{
			"docs.example.org:80",
			[]string{"http://docs.example.org/", "https://docs.example.org:80/"},
			[]string{"https://docs.example.org/"},
		},
		{
			"*.example.org",
			[]string{"http://a.example.org/", "https://a.b.example.org/", "https://a.example.org./"},
			[]string{"http://example.org/", "http://aexample.org/", "http://a.example.org:81/", "http://example.org.test/"},
		},
		{
			"https://*.example.org:8443/docs/",
			[]string{"https://a.example.org:8443/docs/x", "https://a.b.example.org:8443/docs/"},
			[]string{
				"https://example.org:8443/docs/", "http://a.example.org:8443/docs/", "https://a.example.org/docs/",
				"https://a.example.org:8443/docs", "https://a.example.org:8443/docs/..%2Fx",
			},
		},
		{"*.example.org:81", []string{"https://a.example.org:81/"}, []string{"http://a.example.org/"}},
		{
			"https://docs.example.org/3/",
			[]string{
				"https://docs.example.org/3/", "https://docs.example.org/%33/x", "https://docs.example.org:443/3/a/../b?q",
				"https://docs.example.org/2/../3/", "https://docs.example.org/3/a%2Fb",
				"https://docs.example.org/3/a;v=1/b", "https://docs.example.org/3/..a;x/b", "https://docs.example.org/3/a..%2Fb",
			},
			[]string{
				"http://docs.example.org/3/", "https://docs.example.org/3", "https://docs.example.org/33/",
				"https://docs.example.org/", "https://docs.example.org/3/../x", "https://docs.example.org/3/%2e%2e/x",
				"https://docs.example.org/3%2Fx", "https://docs.example.org:8443/3/", "https://docs.example.org/3/..%2f..%2fx",
				"https://docs.example.org/3/x%5c..%5cx",
				"https://docs.example.org/3/..;/x", "https://docs.example.org/3/.%2e;v=1/x", "https://docs.example.org/3/%2e%2e;%2fx",
				"https://docs.example.org/3/x/..;a=b", `https://docs.example.org\3\..\x`, "https://docs.example.org/?/3/",
			},
		},
		{
			"https://docs.example.org/3",
			[]string{"https://docs.example.org/3", "https://docs.example.org/3/x", "https://docs.example.org/3?q"},
			[]string{"https://docs.example.org/33", "https://docs.example.org/3%2F"},
		},
		{"https://docs.example.org", []string{"https://docs.example.org/x"}, []string{"http://docs.example.org/x"}},
		{"http://h.test:8080/%7Ea/", []string{"http://h.test:8080/~a/x"}, []string{"http://h.test/~a/x"}},
		{"bücher.test", []string{"http://BÜCHER.test/", "http://xn--bcher-kva.test./"}, []string{"http://bucher.test/"}},
		{"0x7f.1", []string{"http://127.0.0.1/", "http://2130706433/"}, []string{"http://127.0.0.2/"}},
		{"[::FFFF:1.2.3.4]:81", []string{"http://[::ffff:102:304]:81/"}, []string{"http://[::ffff:102:304]/"}},
		{"[::1]", []string{"http://[0:0::1]/"}, []string{"http://[::1]:81/"}},
		{"a.test,b.test", []string{"http://a.test/", "http://b.test/"}, []string{"http://c.test/"}},
	} {
		src := mustSources(t, tt.sources)
		for _, s := range tt.allowed {
			if !src.Allows(mustParse(t, s)) {
				t.Errorf("%q refuses %s", tt.sources, s)
			}
		}
		for _, s := range tt.notAllowed {
			if src.Allows(mustParse(t, s)) {
				t.Errorf("%q allows %s", tt.sources, s)
			}
		}
		if src.Allows(URL{}) {
			t.Errorf("%q allows the zero URL", tt.sources)
		}
		again := mustSources(t, strings.Join(src.Strings(), ","))
		if diff := cmp.Diff(src.Strings(), again.Strings()); diff != "" {
			t.Errorf("%q does not round-trip: %s", tt.sources, diff)
		}
	}
}

func TestParseSourcesReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := ParseSources("ok.test,ftp://h/,h/path,a*b.test,https://*.*.test/,u:p@h,https://u:p@h/," +
		"https://h/?q,*.1.2.3.4,h:,h:x,::1,*.*.x,a b,*.")
	var f *Fault
	if !errors.As(err, &f) || f.Code != CodeInvalid {
		t.Fatalf("got %v, want a fault", err)
	}
	if len(f.Fields) != 14 {
		t.Errorf("%d faults, want 14: %v", len(f.Fields), err)
	}
	if f.Fields[0].Field != "sources[1]" {
		t.Errorf("the first fault names %q, want sources[1]", f.Fields[0].Field)
	}
	if strings.Contains(err.Error(), "u:p") {
		t.Errorf("a password is repeated: %v", err)
	}
}

func FuzzParseSources(f *testing.F) {
	for _, s := range []string{
		"", "*", "*.a.test:81,b.test", "https://*.a.test/x", "https://docs.example.org/3/", "[::1]:80", "0x7f.1:443", "http://h/%41,%2C", "bücher.test.",
	} {
		f.Add(s, "https://docs.example.org/3/x")
	}
	f.Fuzz(func(t *testing.T, s, link string) {
		src, err := ParseSources(s)
		if err != nil {
			if CodeOf(err) != CodeInvalid {
				t.Fatalf("code %q", CodeOf(err))
			}
			return
		}
		again, err := ParseSources(strings.Join(src.Strings(), ","))
		if err != nil {
			t.Fatalf("%q became %q, which is refused: %v", s, src.Strings(), err)
		}
		if diff := cmp.Diff(src.Strings(), again.Strings()); diff != "" {
			t.Fatalf("%q does not round-trip: %s", s, diff)
		}
		if u, err := ParseURL(link); err == nil && src.Allows(u) != again.Allows(u) {
			t.Fatalf("%q and %q differ on %s", s, src.Strings(), u.String())
		}
	})
}
