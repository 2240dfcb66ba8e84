package crawl

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// checkMachine holds the machine to package regexp, and its bound to what it says.
func checkMachine(t interface {
	Helper()
	Fatalf(string, ...any)
}, e *expression, s string,
) {
	t.Helper()
	want := e.re.MatchString(s)
	for _, fuel := range []int{1 << 30, 1000, 0} {
		left := fuel
		m := &machine{}
		matched, decided := m.run(e, s, &left)
		if decided && matched != want || !decided && (matched || fuel == 1<<30) {
			t.Fatalf("%q on %q with %d steps: %v, decided %v; want %v", e.re, s, fuel, matched, decided, want)
		}
		if left < -len(e.program.Inst)-1 {
			t.Fatalf("%q on %q took %d steps more than it may", e.re, s, -left)
		}
	}
}

func mustExpression(t interface {
	Helper()
	Fatalf(string, ...any)
}, source string,
) *expression {
	t.Helper()
	tree, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		t.Fatalf("%v", err)
	}
	e, message := compileExpression(source, tree)
	if message != "" {
		t.Fatalf("%s", message)
	}
	return e
}

// The machine that counts its steps matches what package regexp does.
func TestMachineAgrees(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		"", "a", "^a", "a$", "^$", "^", "$", "b+c", "a.c", "(?i)ABC", "[b-d]x?", "(a|bc)*d", `\bb`, `\Bb`, `b\b`, "a{2,3}", "(?m)^b$", "(?s).", `\Aab\z`,
		"x*", "(?:)+", "^abc$", "a|^b|c$", "[^a]", "(^a|b)c", `/p/\d+$`, "(?U)a+?b", "abc.*d",
	} {
		e := mustExpression(t, source)
		for _, s := range []string{"", "a", "b", "ab", "abc", "aabc", "aaab c", "b\nb", "ABC", "xabcxd", "/p/12", "/p/12x", "cab", "abca", "abcabcd"} {
			checkMachine(t, e, s)
		}
	}
	piece := rapid.SampledFrom([]string{
		"a", "b", "/", ".", "[ab]", "[^a]", "(", "(?:", ")", "|", "*", "+", "?", "{2}", "{0,3}", "^", "$", `\b`, `\B`, "(?i)", `\d`, "(?m)", "ab",
	})
	rapid.Check(t, func(t *rapid.T) {
		source := strings.Join(rapid.SliceOfN(piece, 1, 12).Draw(t, "source"), "")
		if _, err := regexp.Compile(source); err != nil {
			t.Skip()
		}
		text := rapid.StringOfN(rapid.SampledFrom([]rune("abA/1\n")), 0, 20, -1)
		checkMachine(t, mustExpression(t, source), text.Draw(t, "text"))
	})
}

// SEL-06: a spec of the largest expressions takes a bounded number of steps on the longest
// URL; what cannot be decided within them is refused by a rule of its own. A usual list
// decides about the same URL.
func TestStepsAreBounded(t *testing.T) {
	t.Parallel()
	dots := func(n int) string { return "re:" + strings.Repeat(".{999}", n) + "x" }
	long := "http://h.test/" + strings.Repeat("a", MaxURLBytes-14)
	usual := []string{`re:[?&]sort=`, `re:\.(jpe?g|png|gif|css|js)$`, `re:^https?://h\.test/\d{4}/\d{2}/`, `re:/(login|logout|cart)(/|$)`, `re:(?i)print`}
	for len(usual) < 25 {
		usual = append(usual, usual...)
	}
	for _, tt := range []struct {
		name             string
		include, exclude []string
		url              string
		want             Reason
		rule             string
	}{
		{"excluded", nil, []string{dots(4)}, long, RefusedExcluded, RuleSteps},
		{"included", []string{dots(4)}, nil, long, RefusedExcluded, RuleSteps},
		{"included before it", []string{"/a**", dots(4)}, nil, long, "", "/a**"},
		{"nested loops", nil, []string{"re:(.*){999}x"}, long, RefusedExcluded, RuleSteps},
		{"written out", nil, []string{"re:" + strings.Repeat("[ab]", 125) + "x", "re:" + strings.Repeat(".", 500) + "x"}, long, RefusedExcluded, RuleSteps},
		{"the same on a short URL", nil, []string{dots(4)}, "http://h.test/a", "", ""},
		{"with a match at its end", nil, []string{dots(4)}, long[:len(long)-2] + "x", RefusedExcluded, RuleSteps},
		{"usual", nil, usual, long, "", ""},
		{"usual, matched", nil, usual, long[:len(long)-4] + ".png", RefusedExcluded, usual[1]},
		{"usual, included", usual, nil, long[:len(long)-4] + ".png", "", usual[1]},
		{"usual, not included", usual, nil, long, RefusedExcluded, "no include pattern matches"},
	} {
		r := mustRules(t, Plan{Scope: ScopeAny, Include: tt.include, Exclude: tt.exclude})
		if reason, rule := r.Explain(mustParse(t, tt.url), 0); reason != tt.want || rule != tt.rule {
			t.Errorf("%s: %q by %q, want %q by %q", tt.name, reason, rule, tt.want, tt.rule)
		}
	}
}

// The bound is one of all expressions of a list, and no expression takes more than is left.
func TestStepsAreShared(t *testing.T) {
	t.Parallel()
	var texts []string
	for range 40 {
		texts = append(texts, "re:"+strings.Repeat("[ab]", 100)+"x")
	}
	ps, faults := compilePatterns("include", texts, nil)
	if faults != nil {
		t.Fatal(faults)
	}
	left, n := steps{safeSteps, countedSteps}, mustParse(t, "http://h.test/"+strings.Repeat("ab", 3000))
	decided := true
	runs := 0
	for i := range ps {
		if _, decided = ps[i].matches(n, &left); !decided {
			break
		}
		runs++
	}
	if decided || runs > 3 || left.counted < -1000 || left.safe < 0 {
		t.Errorf("%d expressions ran, %+v is left", runs, left)
	}
}

// A rule that is matched with each link allocates nothing, once a machine has grown to its
// size. The pool is left out: with the race detector it drops what it is given at random.
func TestMatchAllocations(t *testing.T) {
	e, s := mustExpression(t, "[ab]{300}x"), strings.Repeat("a", 300)
	m, left := &machine{}, 0
	if n := testing.AllocsPerRun(20, func() {
		left = countedSteps
		if matched, decided := m.run(e, s, &left); matched || !decided {
			t.Fatal("it matches")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, bm := range []struct{ name, source string }{{"Usual", `[?&](sort|order)=`}, {"Hostile", strings.Repeat(".{999}", 4) + "x"}} {
		e, s := mustExpression(b, bm.source), "http://h.test/"+strings.Repeat("a", 8000)
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				left := steps{0, countedSteps}
				_, _ = e.match(s, &left)
			}
		})
	}
}
