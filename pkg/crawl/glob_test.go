package crawl

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// globOracle is the regular expression that means the same as a glob.
func globOracle(text string) *regexp.Regexp {
	quoted := regexp.MustCompile(`\*+|[^*]+`).ReplaceAllStringFunc(text, func(piece string) string {
		switch {
		case piece == "*":
			return `[^/]*`
		case piece[0] == '*':
			return `.*`
		}
		return regexp.QuoteMeta(piece)
	})
	return regexp.MustCompile(`^(?s:` + quoted + `)$`)
}

// plenty are more steps than any test takes.
func plenty() *steps { return &steps{safe: 1 << 40, counted: 1 << 40} }

// TestGlobAgrees holds the matcher to the regular expression that means the same; one that
// has few steps says the same or nothing.
func TestGlobAgrees(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{
		"*", "**", "***", "/", "a", "b", "ab", "?", ".", "a/b", strings.Repeat("ab", 40), strings.Repeat("*a", 70), strings.Repeat("b**", 65),
		strings.Repeat("/", 63), strings.Repeat("a", 64),
	})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(piece, 1, 12).Draw(t, "pattern"), "")
		// A text that is made from the pattern matches often, another one seldom.
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab/?.")), 0, 20, -1).Draw(t, "text")
		if rapid.Bool().Draw(t, "related") {
			fill := rapid.SampledFrom([]string{"", "", "", "a", "b/", "ab", "/"})
			text = ""
			for _, part := range strings.Split(pattern, "*") {
				text += part + fill.Draw(t, "fill")
			}
		}
		g := compileGlob(pattern)
		want := globOracle(pattern).MatchString(text)
		if got, decided := g.match(text, plenty()); got != want || !decided {
			t.Fatalf("glob %q on %q: %v, decided %v, want %v", pattern, text, got, decided, want)
		}
		few := steps{counted: rapid.IntRange(0, 300).Draw(t, "steps")}
		if got, decided := g.match(text, &few); decided && got != want || !decided && got {
			t.Fatalf("glob %q on %q with few steps: %v, decided %v, want %v", pattern, text, got, decided, want)
		}
	})
}

// The bounds of a word: the number of literals decides which matcher it is.
func TestGlobsAtTheBoundsOfWords(t *testing.T) {
	t.Parallel()
	for n := 1; n < 260; n++ {
		for _, wildcard := range []string{"*", "**"} {
			g := compileGlob(wildcard + strings.Repeat("a", n) + "*")
			for _, tt := range []struct {
				text string
				want bool
			}{
				{strings.Repeat("a", n), true},
				{strings.Repeat("a", n-1), false},
				{"b" + strings.Repeat("a", n+1) + "b", true},
				{strings.Repeat("a", n-1) + "b" + strings.Repeat("a", n-1), false},
				{"/" + strings.Repeat("a", n), wildcard == "**"},
				{strings.Repeat("a", n) + "/", false},
			} {
				if got, decided := g.match(tt.text, plenty()); got != tt.want || !decided {
					t.Fatalf("%s, %d literals, on %q: %v, decided %v", wildcard, n, tt.text, got, decided)
				}
			}
		}
	}
}

// hostileGlob keeps all of its states alive on a run of "a".
func hostileGlob(i int) string {
	return "/a*" + strings.Repeat("*a", 240) + fmt.Sprintf("b%03d**", i)
}

// SEL-06: a list of globs of many literals takes a bounded number of steps on the longest
// URL; what cannot be decided within them is refused by the rule that says so.
func TestStepsOfGlobsAreBounded(t *testing.T) {
	t.Parallel()
	long := "http://h.test/" + strings.Repeat("a", MaxURLBytes-14)
	hostile := make([]string, MaxPatterns)
	for i := range hostile {
		hostile[i] = hostileGlob(i)
	}
	ps, faults := compilePatterns("include", hostile, nil)
	if faults != nil {
		t.Fatal(faults)
	}
	left, n := steps{safeSteps, countedSteps}, mustParse(t, long)
	runs, decided := 0, true
	for i := 0; i < len(ps) && decided; i++ {
		if _, decided = ps[i].matches(n, &left); decided {
			runs++
		}
	}
	if decided || runs == 0 || runs > countedSteps/(3*MaxURLBytes/2) || left.counted < -wideWords {
		t.Errorf("%d globs ran, decided %v, %+v is left", runs, decided, left)
	}
	// Words of Cyrillic have many literals and few states alive: they are usual.
	usual := make([]string, MaxPatterns)
	for i := range usual {
		usual[i] = fmt.Sprintf("**/очень-длинный-раздел-%d/*/печать/**", i)
	}
	for _, tt := range []struct {
		name             string
		include, exclude []string
		url              string
		want             Reason
		rule             string
	}{
		{"excluded", nil, hostile, long, RefusedExcluded, RuleSteps},
		{"included", hostile, nil, long, RefusedExcluded, RuleSteps},
		{"included before it", append([]string{"/a**"}, hostile[1:]...), nil, long, "", "/a**"},
		{"on a short URL", nil, hostile, long[:100], "", ""},
		{"usual", nil, usual, long, "", ""},
		{"usual, matched", nil, usual, long[:6000] + "/очень-длинный-раздел-99/x/печать/", RefusedExcluded, usual[99]},
	} {
		r := mustRules(t, Plan{Scope: ScopeAny, Include: tt.include, Exclude: tt.exclude})
		if reason, rule := r.Explain(mustParse(t, tt.url), 0); reason != tt.want || rule != tt.rule {
			t.Errorf("%s: %q by %q, want %q by %q", tt.name, reason, rule, tt.want, tt.rule)
		}
	}
}

// drop_params drops all that it names, however long the list and the query are: its globs
// are searched for, without an automaton and without steps.
func TestDropParamsTakeNoSteps(t *testing.T) {
	t.Parallel()
	names := make([]string, MaxDropParams)
	for i := range names {
		names[i] = strings.Repeat("*a", 40) + fmt.Sprintf("b%02d*", i)
	}
	names[0] = strings.Repeat("*é", 33) + "*" // many words of literals
	r := mustRules(t, Plan{Scope: ScopeAny, DropParams: names})
	for _, g := range r.params.globs {
		if g.mid != nil || g.wide != nil || len(g.parts) == 0 {
			t.Fatalf("%+v is matched by an automaton", g)
		}
	}
	run := strings.Repeat("a", 3800)
	u := mustParse(t, "http://h.test/?"+run+"=1&"+run+"b99=2&"+strings.Repeat("xé", 33)+"=3")
	if got, want := r.Canonical(u).String(), "http://h.test/?"+run+"=1"; got != want {
		t.Errorf("got %s", clip(got[len(got)-50:]))
	}
	r = mustRules(t, Plan{Scope: ScopeAny, DropParams: slices.Repeat([]string{TrackingWord, "*x*"}, MaxDropParams/2)})
	if n := len(r.params.globs); n > 10 {
		t.Errorf("a list that repeats itself has %d globs", n)
	}
}

// Globs are matched with each link: no kind of them allocates.
func TestGlobAllocations(t *testing.T) {
	g, s := compileGlob("/"+strings.Repeat("*a", 3*MaxPatternBytes)), "/"+strings.Repeat("a", 3*MaxPatternBytes-1)
	left := steps{}
	if n := testing.AllocsPerRun(20, func() {
		left.counted = 1 << 30
		if matched, decided := g.match(s, &left); matched || !decided {
			t.Fatal("it matches")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkHostileGlobs(b *testing.B) {
	hostile, drop, near := make([]string, MaxPatterns), make([]string, MaxPatterns), make([]string, MaxPatterns)
	for i := range hostile {
		hostile[i] = hostileGlob(i)
		drop[i] = fmt.Sprintf("*%c%c*", 'b'+rune(i%10), 'b'+rune(i/10))
		near[i] = fmt.Sprintf("*%s%02d*", strings.Repeat("a", 60), i)
	}
	r := mustRules(b, Plan{Scope: ScopeAny, Exclude: hostile})
	b.Run("Check", func(b *testing.B) {
		u := mustParse(b, "http://h.test/"+strings.Repeat("a", MaxURLBytes-14))
		for b.Loop() {
			_ = r.Check(u, 0)
		}
	})
	// Each of these globs is as costly as can be on one of these queries.
	for name, query := range map[string]string{"Long": strings.Repeat("a", MaxURLBytes-20), "Many": strings.Repeat("aa&", MaxURLBytes/3-10)} {
		for kind, list := range map[string][]string{"Drop": drop, "Near": near} {
			r := mustRules(b, Plan{Scope: ScopeAny, DropParams: list})
			b.Run(kind+name, func(b *testing.B) {
				u := mustParse(b, "http://h.test/?"+query)
				for b.Loop() {
					_ = r.Canonical(u)
				}
			})
		}
	}
}
