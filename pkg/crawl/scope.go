package crawl

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// The scopes of a site crawl: how far from its seeds links are followed. With
// several seeds a link is in scope when it is in that of any one.
const (
	// ScopePrefix: the seed's host and port, and paths that begin with the seed's
	// directory, the part of its path up to and including the last slash.
	ScopePrefix = "prefix"
	// ScopeHost: the seed's host and port; http and https on their default ports
	// are the same host, www.example.org and example.org are not.
	ScopeHost = "host"
	// ScopeDomain: the seed's registrable domain (example.co.uk) by the Public
	// Suffix List and all below it, on any port. An IP address, or a host that is
	// itself a public suffix or has one label only, is a domain of its own.
	ScopeDomain = "domain"
	// ScopeAny: whatever the sources allow.
	ScopeAny = "any"
)

// Bounds of include and exclude, each list on its own.
const (
	MaxPatterns     = 100
	MaxPatternBytes = 512
	// maxProgram bounds what the regular expressions of one list compile to, in
	// RE2 instructions as programSize counts them: "(.{1000}){1}" is short to write. 100
	// usual patterns take about 3,000. For the time that matching takes see countedSteps.
	maxProgram = 5000
)

// Rules are a [Plan]'s decisions about links, compiled. They are immutable and
// safe for use by several goroutines.
type Rules struct {
	sources          Sources
	include, exclude patterns
	listPages        patterns
	maxDepth         int
	site             bool // links are followed, so that there can be traps
	params           paramRules
	headers          Headers
	headerOrigins    map[string]struct{}

	any      bool
	hosts    map[string][]string // politeness host → path prefixes in normal form
	domains  []string            // registrable domains, and hosts that have none
	allPaths bool                // the prefixes of hosts do not count
}

// Rules compiles the rules of p. The error is a [*Fault] with a field fault for
// everything that does not compile; a plan that [Spec.Plan] made always does.
func (p *Plan) Rules() (*Rules, error) {
	var faults []FieldFault
	r := &Rules{maxDepth: p.MaxDepth, site: p.Site, headers: p.Headers}
	sources, err := ParseSources(strings.Join(p.Sources, ","))
	if err != nil {
		faults = append(faults, FieldFault{Field: "sources", Rule: "source", Message: sentence(messageOf(err))})
	}
	r.sources = sources
	r.include, faults = compilePatterns("include", p.Include, faults)
	r.exclude, faults = compilePatterns("exclude", p.Exclude, faults)
	r.listPages, faults = compilePatterns("list_pages", p.ListPages, faults)
	r.params, faults = compileParams(p.DropParams, p.SortParams, faults)
	r.headerOrigins = make(map[string]struct{}, len(p.HeaderOrigins))
	for _, origin := range p.HeaderOrigins {
		r.headerOrigins[origin] = struct{}{}
	}

	seeds := make([]URL, 0, len(p.Seeds))
	for i, s := range p.Seeds {
		u, err := ParseURL(s)
		if err != nil {
			faults = append(faults, FieldFault{
				Field: fmt.Sprintf("seeds[%d]", i), Rule: string(RefusedReasonOf(err)), Message: sentence(messageOf(err)),
			})
			continue
		}
		seeds = append(seeds, u.normal())
	}
	switch p.Scope {
	case ScopeAny:
		r.any = true
	case ScopeDomain:
		for _, u := range seeds {
			r.domains = append(r.domains, registrable(u.bracketed()))
		}
	case ScopeHost, ScopePrefix:
		r.allPaths = p.Scope == ScopeHost
		r.hosts = make(map[string][]string, len(seeds))
		for _, u := range seeds {
			dir := u.Path()[:strings.LastIndexByte(u.Path(), '/')+1]
			r.hosts[u.PolitenessHost()] = append(r.hosts[u.PolitenessHost()], dir)
		}
	default:
		faults = append(faults, scopeFault(p.Scope))
	}
	if faults != nil {
		return nil, &Fault{Code: CodeInvalid, Message: "The rules of the job do not compile. Mend each of the fields named.", Fields: faults}
	}
	return r, nil
}

func scopeFault(scope string) FieldFault {
	return FieldFault{
		Field: "scope", Rule: "enum",
		Message: fmt.Sprintf("Give one of prefix, host, domain and any, not %q.", clip(scope)),
	}
}

// Check returns why a link to u at the given depth (links from a seed) is
// refused, or "" if it may be admitted. The first of these that does not hold is
// the answer: [RefusedSource], [RefusedOutOfScope], [RefusedExcluded],
// [RefusedTrap], [RefusedDepth]. The order goes from what the operator decides to what
// the job decides, and what depends on the URL alone comes before what depends on the
// way to it. Seeds are admitted whatever the rules say, their source excepted: rules
// are for links. A trap is a URL beyond [MaxPathSegments] and its neighbours, in a site
// crawl. u is a [Rules.Canonical] one, if it is a link.
func (r *Rules) Check(u URL, depth int) Reason {
	reason, _ := r.check(u, depth)
	return reason
}

// Explain is [Rules.Check] with the rule that decided, for a person: the pattern,
// the scope, or the bound. It is empty for a link that is admitted by no rule in
// particular.
func (r *Rules) Explain(u URL, depth int) (Reason, string) {
	reason, p := r.check(u, depth)
	switch {
	case p != nil:
		return reason, p.text
	case reason == RefusedExcluded:
		return reason, "no include pattern matches"
	case reason == RefusedTrap:
		return reason, trapOf(u.normal()).String()
	case reason == RefusedDepth:
		return reason, fmt.Sprintf("max_depth %d", r.maxDepth)
	case reason == RefusedOutOfScope:
		return reason, "scope"
	case reason == RefusedSource:
		return reason, "allowed sources: " + strings.Join(r.sources.Strings(), ", ")
	}
	return reason, ""
}

func (r *Rules) check(u URL, depth int) (Reason, *pattern) {
	if u.IsZero() {
		return RefusedSource, nil
	}
	n := u.normal()
	if !r.sources.allowNormal(n) {
		return RefusedSource, nil
	}
	if !r.inScope(n) {
		return RefusedOutOfScope, nil
	}
	if p := r.exclude.match(n); p != nil {
		return RefusedExcluded, p
	}
	var included *pattern
	if len(r.include) > 0 {
		if included = r.include.match(n); included == nil || included == &costly {
			return RefusedExcluded, included
		}
	}
	if r.site && trapOf(n).kind != trapNone {
		return RefusedTrap, nil
	}
	if depth > r.maxDepth {
		return RefusedDepth, nil
	}
	return "", included
}

// ListPage reports whether a page is there for its links alone: whether a pattern of
// [Spec.ListPages] matches its URL. One that cannot be decided within the steps that a URL may
// take is none.
func (r *Rules) ListPage(u URL) bool {
	p := r.listPages.match(u.normal())
	return p != nil && p != &costly
}

func (r *Rules) inScope(n URL) bool {
	if r.any {
		return true
	}
	if r.hosts != nil {
		dirs, ok := r.hosts[n.PolitenessHost()]
		if !ok || r.allPaths {
			return ok
		}
		for _, dir := range dirs {
			if strings.HasPrefix(n.Path(), dir) {
				return true
			}
		}
		return false
	}
	host := n.bracketed()
	for _, d := range r.domains {
		// The suffix decides nearly every link without the list.
		if host == d || (isBelow(host, d) && registrable(host) == d) {
			return true
		}
	}
	return false
}

// registrable returns the registrable domain of a canonical host, or the host
// itself if it has none.
func registrable(host string) string {
	if isAddress(host) {
		return host
	}
	d, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host
	}
	return d
}

// pattern is one include or exclude rule, compiled.
//
// A glob matches the whole of the URL as fetched, or the whole of path and query
// if it begins with "/". "*" stands for any run of characters without "/", "**"
// for any run; every other character, "?" too, stands for itself. "re:" and an
// RE2 expression matches anywhere in the URL unless it is anchored. Both see the
// URL in its normal form (see [URL.Key]), and a glob is brought into that form, so
// that /~user/*, /%7euser/* and a glob of non-ASCII letters match what they mean.
type pattern struct {
	text string
	re   *expression // or a glob:
	path bool        // matches path and query
	glob glob
}

type patterns []pattern

// match returns the first pattern that matches, nil for none, and [costly] when that cannot
// be decided within the steps that one URL may take.
func (ps patterns) match(n URL) *pattern {
	left := steps{safe: safeSteps, counted: countedSteps}
	for i := range ps {
		matched, decided := ps[i].matches(n, &left)
		switch {
		case !decided:
			return &costly
		case matched:
			return &ps[i]
		}
	}
	return nil
}

func (p *pattern) matches(n URL, left *steps) (matched, decided bool) {
	switch {
	case p.re != nil:
		return p.re.match(n.s, left)
	case p.path:
		return p.glob.match(n.RequestURI(), left)
	}
	return p.glob.match(n.s, left)
}

// compilePatterns compiles the patterns of one field and appends a fault for
// every one that is none or could never match, and one for the first that is over
// the budget of the list. Nothing is compiled from there on, so that a list that is
// made to hurt costs no more than one that is within the budget.
func compilePatterns(field string, texts []string, faults []FieldFault) (patterns, []FieldFault) {
	if len(texts) > MaxPatterns {
		return nil, append(faults, FieldFault{
			Field: field, Rule: "max",
			Message: fmt.Sprintf("Give at most %d patterns, not %d.", MaxPatterns, len(texts)),
		})
	}
	ps := make(patterns, 0, len(texts))
	budget := maxProgram
	for i, text := range texts {
		p, expr, message := parsePattern(text)
		if message == "" && expr != nil && budget >= 0 {
			if budget -= programSize(expr); budget < 0 {
				message = "The regular expressions up to here are too complex together. Use fewer or smaller repetitions."
			} else {
				p.re, message = compileExpression(strings.TrimPrefix(text, expressionPrefix), expr)
			}
		}
		if message != "" {
			faults = append(faults, FieldFault{
				Field: fmt.Sprintf("%s[%d]", field, i), Rule: "pattern", Message: message,
			})
			continue
		}
		ps = append(ps, p)
	}
	return ps, faults
}

// parsePattern reads one pattern. expr is what has still to be compiled, nil for a
// glob; message says for a person what is wrong.
func parsePattern(text string) (p pattern, expr *syntax.Regexp, message string) {
	switch {
	case text == "":
		return p, nil, "The pattern is empty. Leave it out."
	case len(text) > MaxPatternBytes:
		return p, nil, fmt.Sprintf("A pattern has at most %d bytes, this one has %d.", MaxPatternBytes, len(text))
	case strings.ContainsFunc(text, isControl):
		return p, nil, "A pattern holds no control characters. Remove them."
	}
	if source, ok := strings.CutPrefix(text, expressionPrefix); ok {
		expr, err := syntax.Parse(source, syntax.Perl)
		if err != nil {
			return p, nil, expressionMessage(err)
		}
		return pattern{text: text}, expr, ""
	}
	normal, message := normalGlob(text)
	if message != "" {
		return p, nil, message
	}
	return pattern{text: text, path: normal[0] == '/', glob: compileGlob(normal)}, nil, ""
}

const expressionPrefix = "re:"

// programSize returns how many instructions of RE2 an expression takes, within a
// factor of two, without writing out its repetitions: what "(.{1000}){1}" compiles to
// takes a thousand times the memory of its syntax tree. The tree is small, since a
// pattern is, and the parser refuses counts that multiply to over 1,000. A class counts by
// its ranges: the letters of all alphabets take as much memory as 40 instructions.
func programSize(e *syntax.Regexp) int {
	size := 0
	for _, sub := range e.Sub {
		size += programSize(sub)
	}
	switch e.Op { //nolint:exhaustive // the others are the sum of their parts, and one instruction at least
	case syntax.OpLiteral:
		return max(len(e.Rune), 1)
	case syntax.OpCharClass:
		return 1 + len(e.Rune)/32
	case syntax.OpCapture:
		return size + 2
	case syntax.OpAlternate:
		return size + len(e.Sub) - 1
	case syntax.OpRepeat:
		return size * max(e.Min, e.Max, 1) // Max is -1 for none
	}
	return max(size, 1)
}

func expressionMessage(err error) string {
	what := "It cannot be read"
	var se *syntax.Error
	if errors.As(err, &se) {
		what = fmt.Sprintf("%s at %q", strings.TrimSuffix(sentence(string(se.Code)), "."), clip(se.Expr))
	}
	return "This is no RE2 expression. " + what + ". Look-around and back references do not exist in RE2."
}

// normalGlob brings a glob into the form of what it is matched with, and says
// what is wrong with one that could never match.
func normalGlob(text string) (normal, message string) {
	if strings.Contains(text, "#") {
		return "", "A URL has no fragment when it is matched. Leave out # and what follows."
	}
	if text[0] != '/' {
		if literal, _, _ := strings.Cut(strings.ToLower(text), "*"); !compatible(literal, "http://") &&
			!compatible(literal, "https://") {
			return "", "The pattern can match no URL; begin it with / for the path, with https:// or ** for the " +
				"whole URL, or with re: for a regular expression."
		}
	}
	host := ""
	if i := strings.Index(text, "://"); i >= 0 && !strings.ContainsAny(text[:i], "*/") {
		end := strings.IndexByte(text[i+3:], '/')
		switch {
		case end < 0 && !strings.Contains(text[i+3:], "*"):
			return "", "The pattern names a host only, and every URL has a path. End it with / or /**."
		case end >= 0:
			host, text = text[:i+3+end], text[i+3+end:]
		}
		if host != "" && !strings.Contains(host, "*") {
			u, err := ParseURL(host)
			if err != nil {
				return "", sentence(messageOf(err))
			}
			host = u.normal().Origin()
		}
		host = strings.ToLower(host)
		if !isASCII(host) {
			return "", "A host with a * is written in ASCII (punycode)."
		}
	}
	// A query has fewer characters encoded than a path.
	path, query, _ := strings.Cut(text, "?")
	b := make([]byte, 0, len(text)+16)
	for i := range len(path) {
		if c := path[i]; class[c]&(pathPlain|pathSpecial) != 0 {
			b = append(b, c)
		} else {
			b = appendPercent(b, c)
		}
	}
	if query != "" { // an empty one is not in the normal form
		b = appendQuery(b, "?"+query)
	}
	return host + string(appendNormalPercent(nil, string(b))), ""
}

// compatible reports whether something can begin with both a and b.
func compatible(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

func isControl(r rune) bool { return r < ' ' || (r >= 0x7f && r < 0xa0) }

// clip shortens what a message repeats of the input.
func clip(s string) string {
	const longest = 60
	runes := 0
	for i := range s { // a text of the caller's may be a body long
		if runes == longest {
			return s[:i] + "…"
		}
		runes++
	}
	return s
}
