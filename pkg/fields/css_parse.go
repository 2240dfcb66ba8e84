package fields

import (
	"errors"
	"fmt"
	"strings"

	"github.com/andybalholm/cascadia"
)

// A selector is taken apart here at its commas and combinators, and cascadia is given single
// compounds (a.x[href]) only. cascadia itself walks back from an element: "a b c d e" on a page
// with 500 levels tries all ways to choose four ancestors of 500, which ends in years. Matching
// compound after compound forward is one pass over the page for each, whatever the selector.

// maxNesting bounds parentheses inside of parentheses.
const maxNesting = 4

// cssSelector is a compiled selector: alternatives, each a chain of compounds.
type cssSelector struct {
	id     int     // its place among the selectors of the program
	free   []chain // what they match does not depend on the item
	scoped []chain // they begin with :scope
}

type chain []link

// link is a compound and the combinator before it: ' ', '>', '+' or '~'; 0 before the first one.
type link struct {
	combinator byte
	scope      bool             // :scope, and no other condition
	light      cascadia.Matcher // nil for any element
	conditions int              // in light
	heavy      []heavy
}

// heavy is a simple selector that looks at more than one element.
type heavy struct {
	match      cascadia.Matcher
	looks      looks
	conditions int
}

// looks says what a simple selector looks at, beside the element itself.
type looks byte

const (
	looksAtAncestors looks = iota + 1
	looksAtSiblings
	looksAtChildren
	looksInside // at all elements inside
	looksAtText // at all text inside
)

// heavyPseudo are the pseudo-classes that cascadia has and that look around.
var heavyPseudo = map[string]looks{
	"not": looksAtAncestors, "has": looksInside, "haschild": looksAtChildren,
	"contains": looksAtText, "containsown": looksAtText,
	"nth-child": looksAtSiblings, "nth-last-child": looksAtSiblings, "nth-of-type": looksAtSiblings,
	"nth-last-of-type": looksAtSiblings, "first-child": looksAtSiblings, "last-child": looksAtSiblings,
	"first-of-type": looksAtSiblings, "last-of-type": looksAtSiblings, "only-child": looksAtSiblings,
	"only-of-type": looksAtSiblings, "empty": looksAtChildren, "lang": looksAtAncestors,
	"enabled": looksAtAncestors, "disabled": looksAtAncestors,
}

// refusedPseudo says what to do in place of what is not offered.
var refusedPseudo = map[string]string{
	"is":         "Write the alternatives as selectors of their own, separated by commas.",
	"where":      "Write the alternatives as selectors of their own, separated by commas.",
	"matches":    "Match the element without it and give the expression as regex.",
	"matchesown": "Match the element without it and give the expression as regex.",
	"text":       "The text is taken by itself: leave it out.",
	"attr":       "Name the attribute in attr.",
}

// syntaxError is what is wrong with a selector, and where.
type syntaxError struct {
	at      int // byte
	message string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("At character %d: %s", e.at+1, e.message)
}

// withoutPlace is the text of an error whose place counts from elsewhere.
func withoutPlace(err error) string {
	var syntax *syntaxError
	if errors.As(err, &syntax) {
		return syntax.message
	}
	return err.Error()
}

func syntaxErrorf(at int, format string, args ...any) error {
	return &syntaxError{at: at, message: fmt.Sprintf(format, args...)}
}

// parseCSS compiles a selector. Its errors say for a person what to do.
func parseCSS(s string) (*cssSelector, error) {
	p := cssParser{s: s}
	out := &cssSelector{}
	for {
		c, err := p.chain()
		if err != nil {
			return nil, err
		}
		if c[0].scope {
			out.scoped = append(out.scoped, c)
		} else {
			out.free = append(out.free, c)
		}
		if p.i == len(s) {
			return out, nil
		}
		p.i++ // the comma
	}
}

type cssParser struct {
	s string
	i int
}

func isCSSBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' }

func (p *cssParser) blanks() (any bool) {
	for p.i < len(p.s) && isCSSBlank(p.s[p.i]) {
		p.i++
		any = true
	}
	return any
}

// chain reads up to a comma or the end.
func (p *cssParser) chain() (chain, error) {
	var c chain
	p.blanks()
	if p.i < len(p.s) && strings.IndexByte(">+~", p.s[p.i]) >= 0 {
		return nil, syntaxErrorf(p.i,
			"a selector cannot begin with %q. Write :scope before it to mean what the field is taken from.",
			p.s[p.i:p.i+1])
	}
	combinator := byte(0)
	for {
		l, err := p.compound()
		if err != nil {
			return nil, err
		}
		l.combinator = combinator
		if l.scope && len(c) > 0 {
			return nil, syntaxErrorf(p.i-len(":scope"), ":scope can only be the first of a selector.")
		}
		c = append(c, l)
		blank := p.blanks()
		if p.i == len(p.s) || p.s[p.i] == ',' {
			return c, nil
		}
		switch at := p.s[p.i]; {
		case at == '>' || at == '+' || at == '~':
			combinator = at
			p.i++
			p.blanks()
		case blank:
			combinator = ' '
		default:
			return nil, syntaxErrorf(p.i, "%q does not belong here.%s", p.rune(), hintFor(p.s))
		}
		if len(c) == 1 && c[0].scope && (combinator == '+' || combinator == '~') {
			return nil, syntaxErrorf(p.i, "what stands beside :scope is not part of it. Use \" \" or \">\" behind :scope.")
		}
	}
}

func (p *cssParser) rune() string {
	for _, r := range p.s[p.i:] {
		return string(r)
	}
	return ""
}

func hintFor(s string) string {
	switch {
	case strings.HasPrefix(s, "/") || strings.HasPrefix(s, "(") || strings.HasPrefix(s, "./"):
		return " Write xpath: before an XPath expression."
	case strings.Contains(s, "@"):
		return " Name the attribute in attr, and not behind @."
	}
	return ""
}

// compound reads one compound: what stands between combinators.
func (p *cssParser) compound() (link, error) {
	start := p.i
	var l link
	var light strings.Builder
	for p.i < len(p.s) {
		from := p.i
		c := p.s[p.i]
		if isCSSBlank(c) || strings.IndexByte(">+~,", c) >= 0 {
			break
		}
		if c != ':' {
			if err := p.simple(); err != nil {
				return l, err
			}
			light.WriteString(p.s[from:p.i])
			continue
		}
		name, argument, err := p.pseudo()
		if err != nil {
			return l, err
		}
		if name == "scope" {
			l.scope = true
			continue
		}
		weight, err := weigh(from, name, argument)
		if err != nil {
			return l, err
		}
		if weight == 0 {
			light.WriteString(p.s[from:p.i])
			continue
		}
		match, err := cascadia.Parse(p.s[from:p.i])
		if err != nil {
			hint := ""
			if weight == looksAtText {
				hint = " Put the text between quotes."
			}
			return l, syntaxErrorf(from, "%s.%s", plain(err), hint)
		}
		l.heavy = append(l.heavy, heavy{match: match, looks: weight, conditions: 1 + strings.Count(argument, ",")})
	}
	if p.i == start {
		if p.i < len(p.s) {
			return l, syntaxErrorf(p.i, "an element is expected before %q.", p.rune())
		}
		return l, syntaxErrorf(p.i, "an element is expected here, for example div, .name or [attribute].")
	}
	if l.scope {
		if light.Len() > 0 || len(l.heavy) > 0 {
			return l, syntaxErrorf(start, ":scope stands alone. Leave out the other conditions on it.")
		}
		return l, nil
	}
	return l, l.compile(start, light.String(), p.s)
}

// compile compiles the conditions that look at the element alone.
func (l *link) compile(start int, light, whole string) error {
	if light == "" {
		light = "*"
	}
	match, err := cascadia.Parse(light)
	if err != nil {
		return syntaxErrorf(start, "%s.%s", plain(err), hintFor(whole))
	}
	if light != "*" {
		l.light = match
		l.conditions = 1
		for i := range len(light) {
			if strings.IndexByte(".#[", light[i]) >= 0 {
				l.conditions++
			}
		}
	}
	return nil
}

// plain is an error of cascadia without what a person cannot use.
func plain(err error) string {
	s := strings.TrimSuffix(err.Error(), " instead")
	return strings.NewReplacer("EOF", "the end", "parsing error: ", "").Replace(s)
}

// simple moves behind one simple selector that is no pseudo-class.
func (p *cssParser) simple() error {
	if p.s[p.i] == '[' {
		start := p.i
		if !p.until(']') {
			return syntaxErrorf(start, "the [ has no ]. Close it.")
		}
		if strings.Contains(p.s[start:p.i], "#=") {
			return syntaxErrorf(start, "#= is no operator of CSS. Take the attribute by attr and give the expression as regex.")
		}
		return nil
	}
	p.i++ // the name, or what introduces it
	for p.i < len(p.s) {
		c := p.s[p.i]
		if isCSSBlank(c) || strings.IndexByte(">+~,:.#[", c) >= 0 {
			return nil
		}
		if strings.IndexByte("()]{}@\"'", c) >= 0 {
			return syntaxErrorf(p.i, "%q does not belong here.%s", string(c), hintFor(p.s))
		}
		p.skip()
	}
	return nil
}

// skip moves over a byte, or over a backslash and what it escapes.
func (p *cssParser) skip() {
	if p.s[p.i] == '\\' && p.i+1 < len(p.s) {
		p.i++
	}
	p.i++
}

// until moves behind the bracket that closes the one at p, and reports whether there is one.
func (p *cssParser) until(closing byte) bool {
	p.i++
	for p.i < len(p.s) {
		switch c := p.s[p.i]; c {
		case closing:
			p.i++
			return true
		case '"', '\'':
			if !p.until(c) {
				return false
			}
		case '[', '(':
			if closing == '"' || closing == '\'' {
				p.i++
			} else if !p.until(map[byte]byte{'[': ']', '(': ')'}[c]) {
				return false
			}
		default:
			p.skip()
		}
	}
	return false
}

// pseudo reads a pseudo-class, its name in lower case.
func (p *cssParser) pseudo() (name, argument string, err error) {
	start := p.i
	p.i++
	element := p.i < len(p.s) && p.s[p.i] == ':'
	if element {
		p.i++
	}
	from := p.i
	for p.i < len(p.s) && (isLetter(p.s[p.i]) || p.s[p.i] == '-') {
		p.i++
	}
	name = strings.ToLower(p.s[from:p.i])
	if name == "" {
		return "", "", syntaxErrorf(start, "the name of a pseudo-class is expected behind the colon.")
	}
	if element {
		hint := "Only elements can be selected: leave it out."
		if refusedPseudo[name] != "" {
			hint = refusedPseudo[name]
		}
		return "", "", syntaxErrorf(start, "a page has no ::%s. %s", name, hint)
	}
	if p.i < len(p.s) && p.s[p.i] == '(' {
		from = p.i + 1
		if !nestsIn(p.s[p.i:], maxNesting) {
			return "", "", syntaxErrorf(start,
				"parentheses are nested in more than %d levels. Write a simpler selector.", maxNesting)
		}
		if !p.until(')') {
			return "", "", syntaxErrorf(from-1, "the ( has no ). Close it.")
		}
		argument = p.s[from : p.i-1]
	}
	return name, argument, nil
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// nestsIn reports whether s opens at most so many levels of parentheses.
func nestsIn(s string, most int) bool {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			if depth++; depth > most {
				return false
			}
		case ')':
			depth--
		}
	}
	return true
}

// weigh says what a pseudo-class looks at, 0 for nothing but the element, and refuses those that
// are not offered and those whose work has no bound.
func weigh(at int, name, argument string) (looks, error) {
	if hint := refusedPseudo[name]; hint != "" {
		return 0, syntaxErrorf(at, ":%s is not offered. %s", name, hint)
	}
	weight := heavyPseudo[name]
	if name != "not" && name != "has" && name != "haschild" {
		return weight, nil
	}
	inner := cssParser{s: argument}
	for {
		inner.blanks()
		if inner.i < len(argument) && strings.IndexByte(">+~", argument[inner.i]) >= 0 {
			return 0, syntaxErrorf(at, ":%s(%s …) is valid CSS, but not offered. Leave out the %s, or use XPath: xpath:.//a[b].",
				name, argument[inner.i:inner.i+1], argument[inner.i:inner.i+1])
		}
		c, err := inner.chain()
		if err != nil {
			return 0, syntaxErrorf(at, "inside of :%s(): %s", name, withoutPlace(err))
		}
		if err := weighInner(at, name, c); err != nil {
			return 0, err
		}
		if inner.i == len(argument) {
			return weight, nil
		}
		inner.i++
	}
}

// weighInner bounds what stands in parentheses, which cascadia does alone: one element is given,
// and all that it looks at is looked at by the outer one as well.
func weighInner(at int, name string, c chain) error {
	if len(c) > 2 || (len(c) == 2 && name != "not") {
		return syntaxErrorf(at, "no blanks, \">\", \"+\" or \"~\" are offered inside of :%s(). Name one element there.", name)
	}
	for _, l := range c {
		if l.scope {
			return syntaxErrorf(at, ":scope is not offered inside of :%s(). Leave it out.", name)
		}
		for _, h := range l.heavy {
			if name != "not" || len(c) > 1 || h.looks == looksInside || h.looks == looksAtText {
				return syntaxErrorf(at,
					"inside of :%s() an element is named by its name, classes, identity and attributes only.", name)
			}
		}
	}
	return nil
}
