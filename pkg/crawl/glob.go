package crawl

import (
	"regexp"
	"strings"
)

// glob is a compiled glob. Nearly every text is decided by prefix and suffix,
// without a look at the middle; the middle is matched by an automaton whose
// states are the bits of a word, in one step a byte whatever the pattern: a
// backtracking matcher takes quadratic time on "**a*b" and a long run of "a".
//
// No library serves: gobwas/glob, path.Match and doublestar give "?", "[" and
// "{" a meaning, and those are plain characters of URLs.
type glob struct {
	prefix, suffix string
	literal        bool // there is no wildcard: prefix is all of it
	// What stands between the first and the last wildcard, both included:
	onlyAny  bool      // one "**"
	onlyRun  bool      // one "*"
	mid      *automata // up to maxLiterals characters
	fallback *regexp.Regexp
}

// automata is the middle of a glob. State i is "the first i literals matched";
// wildcards are loops on a state.
type automata struct {
	next [128]uint64 // byte → states entered from the one before
	loopAll, loopRun,
	accept uint64
}

// maxLiterals is how many literals of a middle fit a word, state 0 apart. Longer
// middles, which nobody writes by hand, go to package regexp, linear as well.
const maxLiterals = 63

// compileGlob compiles an ASCII glob: "*" is a run without "/", "**" any run.
func compileGlob(text string) glob {
	first := strings.IndexByte(text, '*')
	if first < 0 {
		return glob{prefix: text, literal: true}
	}
	last := strings.LastIndexByte(text, '*')
	g := glob{prefix: text[:first], suffix: text[last+1:]}
	mid := text[first : last+1]
	literals := len(mid) - strings.Count(mid, "*")
	switch {
	case mid == "*":
		g.onlyRun = true
	case literals == 0:
		g.onlyAny = true
	case literals > maxLiterals:
		g.fallback = globExpression(mid)
	default:
		g.mid = compileAutomata(mid)
	}
	return g
}

func compileAutomata(mid string) *automata {
	a := &automata{}
	state := 0
	for i := 0; i < len(mid); {
		if mid[i] != '*' {
			state++
			a.next[mid[i]&127] |= 1 << state
			i++
			continue
		}
		stars := 0
		for i < len(mid) && mid[i] == '*' {
			stars++
			i++
		}
		a.loopRun |= 1 << state
		if stars > 1 {
			a.loopAll |= 1 << state
		}
	}
	a.accept = 1 << state
	return a
}

func (a *automata) match(s string) bool {
	states := uint64(1)
	for i := range len(s) {
		c := s[i]
		loop := a.loopRun
		if c == '/' {
			loop = a.loopAll
		}
		states = states<<1&a.next[c&127] | states&loop
		if states == 0 {
			return false
		}
	}
	return states&a.accept != 0
}

// match reports whether g matches all of s, which is ASCII.
func (g *glob) match(s string) bool {
	if g.literal {
		return s == g.prefix
	}
	if len(s) < len(g.prefix)+len(g.suffix) || !strings.HasPrefix(s, g.prefix) || !strings.HasSuffix(s, g.suffix) {
		return false
	}
	s = s[len(g.prefix) : len(s)-len(g.suffix)]
	switch {
	case g.onlyAny:
		return true
	case g.onlyRun:
		return strings.IndexByte(s, '/') < 0
	case g.mid != nil:
		return g.mid.match(s)
	}
	return g.fallback.MatchString(s)
}

// globExpression returns the anchored regular expression of a glob.
func globExpression(text string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`^(?s:`)
	for i := 0; i < len(text); {
		if text[i] != '*' {
			n := strings.IndexByte(text[i:], '*')
			if n < 0 {
				n = len(text) - i
			}
			b.WriteString(regexp.QuoteMeta(text[i : i+n]))
			i += n
			continue
		}
		stars := 0
		for i < len(text) && text[i] == '*' {
			stars++
			i++
		}
		if stars > 1 {
			b.WriteString(`.*`)
		} else {
			b.WriteString(`[^/]*`)
		}
	}
	b.WriteString(`)$`)
	return regexp.MustCompile(b.String()) // of quoted text and two constants: it compiles
}
