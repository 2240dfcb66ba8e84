package crawl

import "strings"

// glob is a compiled glob. Nearly every text is decided by prefix and suffix,
// without a look at the middle. A middle whose wildcards are all "**" is a search for
// its literals, one behind the other. Another one is matched by an automaton whose
// states are the bits of words, in one step a byte and word whatever the pattern: a
// backtracking matcher takes quadratic time on "**a*b" and a long run of "a".
//
// No library serves: gobwas/glob, path.Match and doublestar give "?", "[" and
// "{" a meaning, and those are plain characters of URLs.
type glob struct {
	prefix, suffix string
	literal        bool // there is no wildcard: prefix is all of it
	least          int  // characters of a text that matches: the literals
	// What stands between the first and the last wildcard, both included:
	onlyRun bool          // one "*"
	parts   []string      // the literals, if neither of the others is set: all wildcards are "**"
	mid     *automata     // up to maxLiterals characters
	wide    *wideAutomata // more of them
}

// automata is the middle of a glob. State i is "the first i literals matched";
// wildcards are loops on a state.
type automata struct {
	next [128]uint64 // byte → states entered from the one before
	loopAll, loopRun,
	accept uint64
}

// maxLiterals is how many literals of a middle fit a word, state 0 apart. A dozen
// percent-encoded letters of Cyrillic are more.
const maxLiterals = 63

// compileGlob compiles an ASCII glob: "*" is a run without "/", "**" any run.
func compileGlob(text string) glob {
	first := strings.IndexByte(text, '*')
	if first < 0 {
		return glob{prefix: text, literal: true}
	}
	last := strings.LastIndexByte(text, '*')
	g := glob{prefix: text[:first], suffix: text[last+1:], least: len(text) - strings.Count(text, "*")}
	mid := text[first : last+1]
	literals := len(mid) - strings.Count(mid, "*")
	switch {
	case mid == "*":
		g.onlyRun = true
	case !hasRun(mid):
		g.parts = strings.FieldsFunc(mid, func(r rune) bool { return r == '*' })
	case literals > maxLiterals:
		g.wide = compileWide(mid, literals)
	default:
		g.mid = compileAutomata(mid)
	}
	return g
}

// hasRun reports whether a "*" that is not part of a "**" stands in text.
func hasRun(text string) bool {
	for i := 0; i < len(text); {
		stars := leadingStars(text[i:])
		if stars == 1 {
			return true
		}
		i += max(stars, 1)
	}
	return false
}

func leadingStars(text string) int { return len(text) - len(strings.TrimLeft(text, "*")) }

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
		stars := leadingStars(mid[i:])
		i += stars
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

// wideAutomata is an [automata] of several words.
type wideAutomata struct {
	words            int
	row              [128]uint8 // byte → its words of next; row 0 is of the bytes that stand nowhere in the glob
	next             []uint64   // as in automata, row by row
	loopAll, loopRun []uint64
	accept           int // the state
}

func compileWide(mid string, literals int) *wideAutomata {
	words := literals/64 + 1
	a := &wideAutomata{
		words: words, next: make([]uint64, words), loopAll: make([]uint64, words), loopRun: make([]uint64, words), accept: literals,
	}
	state := 0
	for i := 0; i < len(mid); {
		if c := mid[i] & 127; c != '*' {
			if a.row[c] == 0 {
				a.row[c] = uint8(len(a.next) / words) // at most 128
				a.next = append(a.next, make([]uint64, words)...)
			}
			state++
			a.next[int(a.row[c])*words+state/64] |= 1 << (state % 64)
			i++
			continue
		}
		stars := leadingStars(mid[i:])
		i += stars
		a.loopRun[state/64] |= 1 << (state % 64)
		if stars > 1 {
			a.loopAll[state/64] |= 1 << (state % 64)
		}
	}
	return a
}

// wideWords are enough for the longest pattern, with each of its bytes percent-encoded.
const wideWords = 3*MaxPatternBytes/64 + 1

// match is not decided when there are no steps left. A step is one word for one byte. The
// first word costs none: a list of globs that have no other one takes that time, too, and
// it is bounded by the number of patterns and the length of a URL. So only globs that have
// many states alive at once, far apart, are ever undecided.
func (a *wideAutomata) match(s string, left *int) (matched, decided bool) {
	var room [wideWords]uint64
	states := room[:]
	if a.words > len(states) {
		states = make([]uint64, a.words)
	}
	states[0] = 1
	high := 0 // the last word that is not 0
	for i := range len(s) {
		c := s[i]
		loop := a.loopRun
		if c == '/' {
			loop = a.loopAll
		}
		row := int(a.row[c&127]) * a.words
		next := a.next[row : row+a.words]
		last := min(high+int(states[high]>>63), a.words-1)
		if *left -= last; *left < 0 {
			return false, false
		}
		carry, alive := uint64(0), false
		high = 0
		for j := range last + 1 {
			was := states[j]
			states[j] = (was<<1|carry)&next[j] | was&loop[j]
			carry = was >> 63
			if states[j] != 0 {
				high, alive = j, true
			}
		}
		if !alive {
			return false, true
		}
	}
	return states[a.accept/64]>>(a.accept%64)&1 != 0, true
}

// match reports whether g matches all of s, which is ASCII. It is not decided when there
// are no steps left; a glob without a single "*" takes none.
func (g *glob) match(s string, left *steps) (matched, decided bool) {
	if g.literal {
		return s == g.prefix, true
	}
	if len(s) < g.least || !strings.HasPrefix(s, g.prefix) || !strings.HasSuffix(s, g.suffix) {
		return false, true
	}
	s = s[len(g.prefix) : len(s)-len(g.suffix)]
	switch {
	case g.onlyRun:
		return strings.IndexByte(s, '/') < 0, true
	case g.mid != nil:
		return g.mid.match(s), true
	case g.wide != nil:
		return g.wide.match(s, &left.counted)
	}
	return inOrder(g.parts, s), true
}

// inOrder reports whether s has all parts one behind the other. The first place of each
// leaves the most to the next.
func inOrder(parts []string, s string) bool {
	for _, part := range parts {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return true
}
