package crawl

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func mustRules(t testing.TB, p Plan) *Rules {
	t.Helper()
	if p.Sources == nil {
		p.Sources = []string{"*"}
	}
	r, err := p.Rules()
	if err != nil {
		t.Fatalf("rules of %+v: %v", p, err)
	}
	return r
}

func TestScope(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scope, seed string
		in, out     []string
	}{
		{
			ScopePrefix, "https://site.test/docs/index.html?q=/a/",
			[]string{"https://site.test/docs/", "http://site.test/docs/a/b", "https://site.test./%64ocs/x"},
			[]string{
				"https://site.test/docs", "https://site.test/", "https://site.test/docs2/", "https://www.site.test/docs/",
				"https://site.test:8443/docs/", "https://site.test/docs/../x", "https://site.test/?/docs/",
			},
		},
		{ScopePrefix, "https://site.test", []string{"http://site.test/x"}, []string{"http://site.test:81/x"}},
		{
			ScopeHost, "http://bücher.test/a/b",
			[]string{"http://xn--bcher-kva.test/", "https://BÜCHER.test/x"}, // URL-09
			[]string{"http://www.bücher.test/", "http://bücher.test:81/", "http://bucher.test/"},
		},
		{ScopeHost, "http://127.0.0.1:8080/", []string{"https://127.1:8080/"}, []string{"http://127.0.0.1/"}},
		{
			ScopeDomain, "https://www.example.co.uk/",
			[]string{"http://example.co.uk/", "https://a.b.example.co.uk:81/", "https://example.co.uk./"},
			[]string{"https://other.co.uk/", "https://co.uk/", "https://notexample.co.uk/"},
		},
		{
			ScopeDomain, "https://www.amazonaws.com/",
			[]string{"https://amazonaws.com/"},
			// A public suffix below the seed's domain begins another one.
			[]string{"https://bucket.s3.amazonaws.com/"},
		},
		{ScopeDomain, "https://github.io/", []string{"https://github.io/x"}, []string{"https://user.github.io/"}},
		{ScopeDomain, "http://10.0.0.1/", []string{"http://10.0.0.1:81/"}, []string{"http://1.10.0.0/", "http://10.0.0.2/"}},
		{ScopeDomain, "http://[::1]/", []string{"http://[::1]:81/"}, []string{"http://[::2]/"}},
		{ScopeDomain, "http://localhost/", []string{"http://localhost:81/"}, []string{"http://a.localhost/"}},
		{ScopeAny, "http://site.test/", []string{"https://other.test:1/"}, nil},
	} {
		r := mustRules(t, Plan{Site: true, Seeds: []string{"http://unrelated.test:9/", tt.seed}, Scope: tt.scope, MaxDepth: 1})
		check := func(links []string, want Reason) {
			for _, s := range links {
				if got := r.Check(mustParse(t, s), 1); got != want {
					t.Errorf("scope %s of %s: %s is %q, want %q", tt.scope, tt.seed, s, got, want)
				}
			}
		}
		check(tt.in, "")
		check(tt.out, RefusedOutOfScope)
	}
}

// TestCheckOrder pins which reason is told when several apply.
func TestCheckOrder(t *testing.T) {
	t.Parallel()
	r := mustRules(t, Plan{
		Site: true, Seeds: []string{"http://site.test/"}, Scope: ScopeHost, MaxDepth: 2,
		Sources: []string{"site.test", "other.test"}, Include: []string{"/a/**"}, Exclude: []string{"/a/no/**", "re:secret"},
	})
	for _, tt := range []struct {
		url   string
		depth int
		want  Reason
		rule  string
	}{
		{"http://third.test/a/no/x", 9, RefusedSource, "allowed sources: site.test, other.test"},
		{"http://other.test/a/no/x", 9, RefusedOutOfScope, "scope"},
		{"http://site.test/a/no/x", 9, RefusedExcluded, "/a/no/**"},
		{"http://site.test/a/secret", 9, RefusedExcluded, "re:secret"},
		{"http://site.test/b", 9, RefusedExcluded, "no include pattern matches"},
		{"http://site.test/a/no/b/b/b/b", 9, RefusedExcluded, "/a/no/**"},
		{"http://site.test/a/b/b/b/b", 9, RefusedTrap, `path segment "b" repeats`},
		{"http://site.test/a/x", 3, RefusedDepth, "max_depth 2"},
		{"http://site.test/a/x", 2, "", "/a/**"},
	} {
		u := mustParse(t, tt.url)
		reason, rule := r.Explain(u, tt.depth)
		if reason != tt.want || rule != tt.rule || r.Check(u, tt.depth) != reason {
			t.Errorf("%s at %d: %q by %q, want %q by %q", tt.url, tt.depth, reason, rule, tt.want, tt.rule)
		}
	}
	if got := r.Check(URL{}, 0); got != RefusedSource {
		t.Errorf("the zero URL: %q", got)
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern  string
		match    []string
		mismatch []string
	}{
		{"/blog/*", []string{"/blog/", "/blog/a", "/blog/a?b"}, []string{"/blog", "/blog/a/b", "/x/blog/a", "/blog/a?b=/c"}},
		{"/blog/**", []string{"/blog/", "/blog/a/b?c"}, []string{"/blog", "/Blog/a"}},
		{"/a?b=c", []string{"/a?b=c"}, []string{"/ab=c", "/axb=c", "/a?b=cd"}}, // "?" is no wildcard
		{"/a?", []string{"/a", "/a?"}, []string{"/a?b"}},
		{"**add-to-cart=**", []string{"/p?add-to-cart=1", "/p?x&add-to-cart="}, []string{"/add-to-cart"}}, // peers 47
		{"http://site.test/a/*/c", []string{"/a/b/c", "/a//c"}, []string{"/a/b/b/c", "/a/c"}},
		{"HTTP://SITE.test:80/A", []string{"/A"}, []string{"/a"}},
		{"http*://*.test/x", []string{"/x"}, []string{"/y/x"}},
		{"/~user/**", []string{"/%7Euser/x", "/%7euser/"}, nil},
		{"/%7euser/**", []string{"/~user/x"}, nil},
		{"/путь/*", []string{"/%d0%bf%D1%83ть/x", "/путь/"}, nil},
		{"/x/{id}?{}'", []string{"/x/{id}?{}'"}, nil},
		{"/**/print/*/**.html", []string{"/a/print/b/c.html", "/print/print//.html"}, []string{"/a/print/b.html"}},
		{"re:/print$", []string{"/a/print"}, []string{"/print?x", "/prints"}},
		{"re:^http://site\\.test/a", []string{"/a", "/ab"}, []string{"/b/a"}},
		{"re:\\?.*add-to-cart=", []string{"/p?add-to-cart=1"}, []string{"/add-to-cart=1"}},
	} {
		r := mustRules(t, Plan{Site: true, Seeds: []string{"http://site.test/"}, Scope: ScopeAny, Exclude: []string{tt.pattern}})
		check := func(links []string, want Reason) {
			for _, s := range links {
				if got := r.Check(mustParse(t, "http://site.test"+s), 0); got != want {
					t.Errorf("exclude %q: %s is %q, want %q", tt.pattern, s, got, want)
				}
			}
		}
		check(tt.match, RefusedExcluded)
		check(tt.mismatch, "")
	}
}

// SEL-06: what cannot be compiled, or can never match, is refused with its index.
func TestBadPatterns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, pattern, wants string }{
		{"SEL-06 look-ahead as glob", `^/blog/(?!draft)`, "re:"},
		{"SEL-06 look-ahead", `re:^/blog/(?!draft)`, "(?!"},
		{"SEL-06 back reference", `re:(\d+)\1`, `\\1`},
		{"SEL-06 bracket as glob", `[`, "re:"},
		{"SEL-06 bracket", `re:[`, "Missing closing ]"},
		{"SEL-06 relative glob", `blog/*`, "begin it with /"},
		{"SEL-06 expression as glob", `.*add-to-cart=.*`, "re:"},
		{"SEL-06 group as glob", `spell-check(?:/.*)?$`, "re:"},
		{"SEL-06 nested parentheses", "re:" + strings.Repeat("(", 1200) + strings.Repeat(")", 1200), "512"},
		{"SEL-06 big repetition", `re:(((.{10}){10}){10}){10}`, "repeat"},
		{"SEL-06 big program", `re:` + strings.Repeat(`.{1000}`, 6), "complex"},
		{"empty", "", "empty"},
		{"too long", "/" + strings.Repeat("a", 512), "512"},
		{"control character", "/a\nb", "control"},
		{"fragment", "/a#b", "fragment"},
		{"host only", "https://site.test", "path"},
		{"bad host", "https://a b/", "characters"},
		{"IDN with a wildcard", "https://*.bücher.test/", "punycode"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := Plan{Scope: ScopeAny, Sources: []string{"*"}, Exclude: []string{"/ok", tt.pattern}}
			_, err := p.Rules()
			var f *Fault
			if !errors.As(err, &f) || len(f.Fields) != 1 {
				t.Fatalf("got %v, want one field fault", err)
			}
			if !isSentence(f.Fields[0].Message) {
				t.Errorf("no sentence: %q", f.Fields[0].Message)
			}
			if f.Fields[0].Field != "exclude[1]" || !strings.Contains(f.Fields[0].Message, tt.wants) {
				t.Errorf("got %+v, want exclude[1] and %q", f.Fields[0], tt.wants)
			}
		})
	}
	many := Plan{Scope: "x", Sources: []string{"a b"}, Seeds: []string{"x"}, Include: make([]string, 5000), Exclude: []string{"x"}}
	_, err := many.Rules()
	var f *Fault
	if !errors.As(err, &f) || len(f.Fields) != 5 {
		t.Errorf("got %v, want five field faults", err)
	}
}

// SEL-06: a list of expressions that write out to millions of instructions is refused
// at its first, with one fault, and none of it is compiled. Not parallel: it looks at
// what the whole process allocates.
func TestBigPatternsAreNotCompiled(t *testing.T) {
	texts := make([]string, MaxPatterns)
	for i := range texts {
		texts[i] = "re:" + strings.Repeat(`.{1000}`, 70)
	}
	texts[50], texts[51] = "re:[", "/ok"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, faults := compilePatterns("include", texts, nil)
	runtime.ReadMemStats(&after)
	if want := []string{"include[0] pattern", "include[50] pattern"}; !slices.Equal(rules(faults), want) {
		t.Errorf("got %q, want %q", rules(faults), want)
	}
	// Compiled, each of them takes over 5 MB.
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 8<<20 {
		t.Errorf("%d bytes were spent on patterns that are refused", spent)
	}
}

// SEL-06: matching takes time in proportion to the URL, whatever the pattern. The
// test would take minutes with a matcher that backtracks.
func TestMatchingIsLinear(t *testing.T) {
	t.Parallel()
	long := mustParse(t, "http://h.test/"+strings.Repeat("a", MaxURLBytes-14))
	var exclude []string
	for i := range MaxPatterns {
		exclude = append(exclude, "**"+strings.Repeat("a*", i%60)+"a**a*b")
	}
	exclude[0] = "re:(a+)+$x"
	r := mustRules(t, Plan{Scope: ScopeAny, Exclude: exclude})
	for range 10 {
		if got := r.Check(long, 0); got != "" {
			t.Fatalf("got %q", got)
		}
	}
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"/a/**", "https://*.h.test/*", "re:a+", "**x**", "re:(a?|b*){9}(?i:x)$", "re:(?:){9}|^(?:\\b$){99}", "http*", "/" + strings.Repeat("*a", 80), "**" + strings.Repeat("é*", 30), "/é?ü", "/%4", "//*?"} {
		f.Add(s, "http://h.test/a/b?c")
	}
	f.Fuzz(func(t *testing.T, text, link string) {
		ps, faults := compilePatterns("include", []string{text}, nil)
		if len(faults) > 0 {
			return
		}
		p := ps[0]
		u, err := ParseURL(link)
		if err != nil {
			return
		}
		n := u.normal()
		got, decided := p.matches(n, &steps{safe: safeSteps, counted: countedSteps})
		if p.re != nil {
			checkMachine(t, p.re, n.s)
			expr, err := syntax.Parse(strings.TrimPrefix(text, "re:"), syntax.Perl)
			if err != nil {
				t.Fatal(err)
			}
			prog, err := syntax.Compile(expr.Simplify())
			if err != nil {
				t.Fatal(err)
			}
			// Beginning and end of every program are two instructions more.
			if said := programSize(expr); len(prog.Inst) > 2*said+2 {
				t.Fatalf("%q has %d instructions, said to be %d", text, len(prog.Inst), said)
			}
			return
		}
		normal, _ := normalGlob(text)
		target := n.String()
		if normal[0] == '/' {
			target = n.RequestURI()
		}
		if want := globOracle(normal).MatchString(target); got != want || !decided {
			t.Fatalf("%q on %q: %v, want %v", text, target, got, want)
		}
	})
}

func benchRules(b testing.TB) *Rules {
	b.Helper()
	return mustRules(b, Plan{
		Site: true, Seeds: []string{"https://docs.site.test/en/"}, Scope: ScopePrefix, MaxDepth: 5,
		Sources: []string{"https://docs.site.test/en/", "*.example.org"},
		Include: []string{"/en/**"}, Exclude: []string{"/en/print/**", "**?share=*", "/**/edit/*/**", "https://docs.site.test/en/*.pdf"},
	})
}

func TestCheckAllocations(t *testing.T) {
	r := benchRules(t)
	for _, link := range []string{
		"https://docs.site.test/en/guide/install.html?lang=en",
		"https://docs.site.test/en/a/b/c/d/e/a/b/c/f?a=1&b=2&id=4",
	} {
		u := mustParse(t, link)
		if n := testing.AllocsPerRun(100, func() {
			if reason := r.Check(u, 1); reason != "" || r.Pattern(u) != "" || r.Canonical(u) != u {
				t.Fatal(reason)
			}
		}); n > 0 {
			t.Errorf("%v allocations for %s, want none", n, link)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	seeds := []string{"https://docs.site.test/en/"}
	for _, bm := range []struct {
		name, url string
		rules     *Rules
	}{
		{"Patterns", "https://docs.site.test/en/guide/install.html?lang=en", benchRules(b)},
		{"Host", "https://docs.site.test/en/guide/install.html", mustRules(b, Plan{Site: true, Seeds: seeds, Scope: ScopeHost})},
		{
			"DeepQuery", "https://docs.site.test/en/latest/library/reference/net/http/client.html?a=1&b=2&id=3",
			mustRules(b, Plan{Site: true, Seeds: seeds, Scope: ScopeHost}),
		},
		{"OtherDomain", "https://www.example.org/x", mustRules(b, Plan{Seeds: seeds, Scope: ScopeDomain})},
		{"Subdomain", "https://www.site.test/x", mustRules(b, Plan{Seeds: seeds, Scope: ScopeDomain})},
	} {
		b.Run(bm.name, func(b *testing.B) {
			u := mustParse(b, bm.url)
			b.ReportAllocs()
			for b.Loop() {
				_ = bm.rules.Check(u, 0)
			}
		})
	}
}

func ExampleRules_Explain() {
	p := Plan{
		Seeds: []string{"https://docs.example.org/"}, Scope: ScopeHost, MaxDepth: 5,
		Sources: []string{"*"}, Exclude: []string{"/print/**"},
	}
	rules, err := p.Rules()
	if err != nil {
		fmt.Println(err)
		return
	}
	u, err := ParseURL("https://docs.example.org/print/a")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(rules.Explain(u, 1))
	// Output: excluded /print/**
}
