package robots

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// stored returns r from its stored form.
func stored(t rapid.TB, r *Rules) *Rules {
	t.Helper()
	text, err := r.MarshalText()
	if err != nil {
		t.Fatalf("store: %v", err)
	}
	again := new(Rules)
	if err := again.UnmarshalText(text); err != nil {
		t.Fatalf("read %q: %v", text, err)
	}
	return again
}

func requireSame(t rapid.TB, got, want *Rules) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Rules{}, rule{}, pattern{})); diff != "" {
		t.Fatalf("other rules (-want +got):\n%s", diff)
	}
}

// atom is a piece of a path or pattern and its normal form, written down here and
// not computed: the oracle shares no code with what it checks.
type atom struct{ text, normal string }

var pathAtoms = []atom{
	{"/", "/"},
	{"a", "a"},
	{"b", "b"},
	{"%61", "a"},
	{"?", "?"},
	{"=", "="},
	{"&", "&"},
	{"%2F", "%2F"},
	{"%2f", "%2F"},
	{"%3a", "%3A"},
	{":", ":"},
	{"%3F", "%3F"},
	{"%26", "%26"},
	{"ü", "%C3%BC"},
	{"%c3%bc", "%C3%BC"},
	{"%2a", "%2A"},
	{"%24", "%24"},
	{" ", "%20"},
	{"%7E", "~"},
	{"\xff", "%FF"},
}

// inURL are what stands for itself in a URL and is special in a pattern.
var inURL = []atom{{"*", "%2A"}, {"$", "%24"}}

func drawAtoms(t *rapid.T, label string, from []atom) []atom {
	return rapid.SliceOfN(rapid.SampledFrom(from), 0, 12).Draw(t, label)
}

func text(atoms []atom) string {
	var b strings.Builder
	for _, a := range atoms {
		b.WriteString(a.text)
	}
	return b.String()
}

// normal returns the normal form, and that with the query folded.
func normal(atoms []atom) (path, folded string) {
	var p, f strings.Builder
	inQuery := false
	for _, a := range atoms {
		n := a.normal
		p.WriteString(n)
		if inQuery {
			n = map[string]string{"%2F": "/", "%3A": ":", "%3F": "?", "%40": "@"}[n]
			if n == "" {
				n = a.normal
			}
		}
		f.WriteString(n)
		inQuery = inQuery || strings.HasSuffix(a.normal, "?")
	}
	return p.String(), f.String()
}

// oracleRule is a rule drawn, with regular expressions that match what it matches.
type oracleRule struct {
	allow        bool
	text         string
	octets       int
	path, folded *regexp.Regexp
}

func drawRule(t *rapid.T) oracleRule {
	wildcard := atom{"*", "*"}
	atoms := drawAtoms(t, "pattern", append([]atom{wildcard, wildcard, wildcard, wildcard}, pathAtoms...))
	// The last two lack the slash in front, which is added.
	first := rapid.SampledFrom([]atom{{"/", "/"}, wildcard, {"a", "/a"}, {"?", "/?"}}).Draw(t, "first")
	atoms = append([]atom{first}, atoms...)
	for atoms[len(atoms)-1].text == " " { // would be trimmed
		atoms = atoms[:len(atoms)-1]
	}
	anchored := rapid.Bool().Draw(t, "anchored")
	path, folded := normal(atoms)
	r := oracleRule{allow: rapid.Bool().Draw(t, "allow"), text: text(atoms), octets: len(path)}
	end := ""
	if anchored {
		r.text += "$"
		r.octets++
		end = `\z`
	}
	compile := func(s string) *regexp.Regexp {
		parts := strings.Split(s, "*")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		return regexp.MustCompile(`\A(?s:` + strings.Join(parts, ".*") + ")" + end)
	}
	r.path, r.folded = compile(path), compile(folded)
	return r
}

func (r oracleRule) line() string {
	if r.allow {
		return "Allow: " + r.text
	}
	return "Disallow: " + r.text
}

func drawRules(t *rapid.T) []oracleRule {
	return rapid.SliceOfN(rapid.Custom(drawRule), 1, 6).Draw(t, "rules")
}

func file(rules []oracleRule) string {
	var b strings.Builder
	b.WriteString("User-agent: us\n")
	for _, r := range rules {
		b.WriteString(r.line() + "\n")
	}
	return b.String()
}

// oracle answers as RFC 9309 s2.2.2 says, with no thought for speed.
func oracle(rules []oracleRule, atoms []atom) bool {
	path, folded := normal(atoms)
	best, allowed := -1, true
	for _, r := range rules {
		if !r.path.MatchString(path) && !r.folded.MatchString(folded) {
			continue
		}
		if r.octets > best || r.octets == best && r.allow {
			best, allowed = r.octets, r.allow
		}
	}
	return allowed
}

func drawPath(t *rapid.T) []atom {
	return append([]atom{{"/", "/"}}, drawAtoms(t, "path", append(slices.Clone(pathAtoms), inURL...))...)
}

// drawMatching draws a path that has a chance to match one of the rules: the
// wildcards of its pattern are replaced.
func drawMatching(t *rapid.T, rules []oracleRule) []atom {
	pattern := rapid.SampledFrom(rules).Draw(t, "matching").text
	atoms := []atom{}
	for i := 0; i < len(pattern); {
		k := slices.IndexFunc(pathAtoms, func(a atom) bool { return strings.HasPrefix(pattern[i:], a.text) })
		if k < 0 { // "*", or "$" at the end
			atoms = append(atoms, rapid.SliceOfN(rapid.SampledFrom(pathAtoms), 0, 3).Draw(t, "wildcard")...)
			i++
			continue
		}
		atoms = append(atoms, pathAtoms[k])
		i += len(pathAtoms[k].text)
	}
	if len(atoms) == 0 || atoms[0].text != "/" {
		atoms = append([]atom{{"/", "/"}}, atoms...)
	}
	return atoms
}

// TestMatchesOracle: the matcher and a regular expression agree.
func TestMatchesOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t)
		r := Parse([]byte(file(rules)), "us")
		for _, atoms := range [][]atom{drawPath(t), drawMatching(t, rules)} {
			want := oracle(rules, atoms)
			if got, rule := r.Allowed(text(atoms)); got != want {
				t.Fatalf("%q is allowed: %t by %q, want %t; rules:\n%s", text(atoms), got, rule, want, file(rules))
			}
		}
	})
}

// TestOrderOfRules does not matter, neither for the answer nor for the reason.
func TestOrderOfRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t)
		shuffled := rapid.Permutation(rules).Draw(t, "shuffled")
		path := text(drawMatching(t, rules))
		ok, rule := Parse([]byte(file(rules)), "us").Allowed(path)
		okAgain, ruleAgain := Parse([]byte(file(shuffled)), "us").Allowed(path)
		if ok != okAgain || rule != ruleAgain {
			t.Fatalf("%q: %t by %q, and in another order %t by %q", path, ok, rule, okAgain, ruleAgain)
		}
	})
}

// TestUnrelatedGroup changes nothing, wherever it stands, and neither does cutting
// ours in two.
func TestUnrelatedGroup(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ours, others := drawRules(t), drawRules(t)
		agent := rapid.SampledFrom([]string{"u", "usa", "them", "*"}).Draw(t, "agent")
		unrelated := strings.Replace(file(others), "us", agent, 1) + "Crawl-delay: 7\n"
		want := Parse([]byte(file(ours)), "us")
		cut := rapid.IntRange(0, len(ours)).Draw(t, "cut")
		for _, f := range []string{
			unrelated + file(ours),
			file(ours) + "\n" + unrelated,
			file(ours[:cut]) + "Disallow:\n" + unrelated + file(ours[cut:]),
		} {
			requireSame(t, Parse([]byte(f), "us"), want)
		}
	})
}

// TestStoredIsSame: what was stored answers as what was parsed, whatever the file.
func TestStoredIsSame(t *testing.T) {
	t.Parallel()
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			"User-agent: us", "User-agent: *", "Disallow", "Crawl-delay: 1.5\n", "Sitemap: ", "\nAllow: /", "\nDisallow: /",
			"\nDisalow /", "Sitemap http", ":", "/", "*", "$", "\n", "\r\n", "#", "\t", "\u00a0", "\uFEFF", "\xff",
			"\x00", "%", "%41",
		}),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		body := "User-agent: us\n" + strings.Join(rapid.SliceOfN(piece, 0, 40).Draw(t, "file"), "")
		r := Parse([]byte(body), "us")
		requireSame(t, stored(t, r), r)
	})
}
