package crawl

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
)

// Matching takes time in proportion to the URL and to the program of an expression, and
// both are chosen by others: 5,000 instructions on 8 KiB are 200 ms, for each of the
// thousands of links that a page can have. Usual expressions have a few states alive at
// once, whatever their size, so that the steps that are really taken are bounded, and not
// the sizes. Each list has both of these for one URL; together they are a few milliseconds.
const (
	// safeSteps is what package regexp may take by the worst estimate, which is all that it
	// needs for usual lists and URLs.
	safeSteps = 1 << 17
	// countedSteps is what the others may take in fact, and the globs of many literals: of
	// 100 expressions that begin with a class, on a URL of 1,500 bytes.
	countedSteps = 1 << 19
)

// RuleSteps is what [Rules.Explain] names for a link that is refused since the patterns of
// the job take too many steps on it: it is as if none of them admitted it. Regular
// expressions do, and globs with a "*" among very many other characters.
const RuleSteps = "the patterns take too many steps on this URL"

// costly stands for the pattern that refuses what cannot be matched in time.
var costly = pattern{text: RuleSteps}

// expression is a compiled regular expression.
type expression struct {
	re       *regexp.Regexp
	program  *syntax.Prog
	prefix   string // what every match begins with
	anchored bool   // a match begins at the beginning of the text only
}

// compileExpression compiles what was parsed; source is what it was parsed from.
func compileExpression(source string, tree *syntax.Regexp) (*expression, string) {
	re, err := regexp.Compile(source)
	if err != nil {
		return nil, expressionMessage(err)
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, expressionMessage(err)
	}
	e := &expression{re: re, program: program, anchored: program.StartCond()&syntax.EmptyBeginText != 0}
	e.prefix, _ = re.LiteralPrefix()
	return e, ""
}

// steps are what is left of the bounds for one URL.
type steps struct{ safe, counted int }

// match reports whether e matches anywhere in s, which is ASCII. It is not decided when
// there are no steps left.
func (e *expression) match(s string, left *steps) (matched, decided bool) {
	if worst := 2 * len(e.program.Inst) * (len(s) + 1); worst <= left.safe {
		left.safe -= worst
		return e.re.MatchString(s), true
	}
	m, _ := machines.Get().(*machine) // nothing else is put in
	defer machines.Put(m)
	return m.run(e, s, &left.counted)
}

// machine runs a program with all of its states side by side, as RE2 does, and counts its
// steps.
type machine struct {
	program    *syntax.Prog
	now, after stateSet // the states before this byte and behind it
	stack      []uint32
	left       int // steps
}

var machines = sync.Pool{New: func() any { return &machine{} }}

func (m *machine) run(e *expression, s string, left *int) (matched, decided bool) {
	m.program, m.left = e.program, *left
	m.now.reset(len(e.program.Inst))
	m.after.reset(len(e.program.Inst))
	defer func() { m.program, *left = nil, m.left }()
	before := rune(-1)
	for i := 0; i <= len(s); i++ {
		if len(m.now.states) == 0 {
			if e.anchored && i > 0 {
				return false, true
			}
			skip := strings.Index(s[i:], e.prefix)
			if skip < 0 {
				return false, true
			}
			if skip > 0 {
				i += skip
				before = rune(s[i-1])
			}
		}
		here := rune(-1)
		if i < len(s) {
			here = rune(s[i])
		}
		if !e.anchored || i == 0 {
			matched = m.enter(&m.now, uint32(e.program.Start), syntax.EmptyOpContext(before, here))
		}
		if matched || m.left < 0 || i == len(s) {
			break
		}
		next := rune(-1)
		if i+1 < len(s) {
			next = rune(s[i+1])
		}
		if matched = m.step(here, syntax.EmptyOpContext(here, next)); matched || m.left < 0 {
			break
		}
		m.now, m.after = m.after, m.now
		m.after.states = m.after.states[:0]
		before = here
	}
	return matched, matched || m.left >= 0
}

// step follows all states over one byte, and reports whether the program has matched.
func (m *machine) step(c rune, flags syntax.EmptyOp) bool {
	for _, state := range m.now.states {
		m.left--
		if i := &m.program.Inst[state]; i.MatchRune(c) && m.enter(&m.after, i.Out, flags) {
			return true
		}
	}
	return false
}

// enter adds the states that can be reached from one without reading a byte, and reports
// whether the end is among them.
func (m *machine) enter(set *stateSet, state uint32, flags syntax.EmptyOp) bool {
	m.stack = append(m.stack[:0], state)
	for len(m.stack) > 0 {
		state = m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		if m.left--; m.left < 0 {
			return false
		}
		if !set.add(state) {
			continue
		}
		switch i := &m.program.Inst[state]; i.Op {
		case syntax.InstMatch:
			return true
		case syntax.InstAlt, syntax.InstAltMatch:
			m.stack = append(m.stack, i.Arg, i.Out)
		case syntax.InstCapture, syntax.InstNop:
			m.stack = append(m.stack, i.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(i.Arg)&^flags == 0 {
				m.stack = append(m.stack, i.Out)
			}
		case syntax.InstFail, syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		}
	}
	return false
}

// stateSet is a set that is emptied in one step (Briggs and Torczon, 1993).
type stateSet struct {
	states []uint32 // those in it
	place  []uint32 // of each state in states, if it is in it
}

func (s *stateSet) reset(n int) {
	if cap(s.place) < n {
		s.place, s.states = make([]uint32, n), make([]uint32, 0, n)
	}
	s.place, s.states = s.place[:n], s.states[:0]
}

// add reports whether the state is new.
func (s *stateSet) add(state uint32) bool {
	if at := s.place[state]; int(at) < len(s.states) && s.states[at] == state {
		return false
	}
	s.place[state] = uint32(len(s.states))
	s.states = append(s.states, state)
	return true
}
