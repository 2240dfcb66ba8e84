// Package robots tells what a site lets a crawler do. It reads robots.txt (RFC
// 9309) and answers whether a path may be fetched and by which rule, and it reads
// the directives of a page: <meta name="robots"> and X-Robots-Tag. It does no I/O
// and knows no clock: fetching robots.txt, keeping it and what a status code or a
// redirect of it means are the caller's.
//
// # Decisions
//
// Where the RFC is silent or the web does not keep to it, the reading that fetches
// less is taken, if it is one that an owner of a site can have meant:
//
//   - Only Allow and Disallow end a list of User-agent lines. In "User-agent: *",
//     "Crawl-delay: 1", "User-agent: badbot", "Disallow: /" the last line holds for
//     everyone: RFC 9309 s2.2.4 says that other records must not end a group. This is
//     contested (google/robotstxt#51); crawler-commons reads it so as well. A later
//     "User-agent: *" with an empty Disallow does not lift it, since an empty rule
//     matches nothing. A Crawl-delay holds for the agents named above it in its group.
//   - Common misspellings of Disallow and User-agent count, and so does a line of two
//     words without a colon. They are those that Google's parser takes.
//   - A rule that begins with neither "/" nor "*" is read with a "/" in front of it.
//   - A character that no URL holds as it is ("{", a space) is compared as its
//     percent-encoding, and a "%" that begins no encoding as "%25".
//   - Behind a "?", the characters : / ? @ and their encodings are the same, as the
//     table in RFC 9309 s2.2.2 wants; in a path "%2F" is no "/".
//   - A UTF-16 file with a byte order mark is decoded, s2.2.2 allows it.
//   - Google's parser lets "Allow: /index.html" allow "/" as well; here it does not.
package robots

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
)

const (
	// MaxBytes is how much of a robots.txt is read: 500 KiB, which RFC 9309 s2.5
	// demands at least. A line that the bound cuts is dropped whole, since the half
	// of a rule is another rule.
	MaxBytes = 500 << 10

	// MaxSitemaps is how many different sitemaps of one file are kept; later ones
	// are dropped.
	MaxSitemaps = 1000

	// MaxCrawlDelay is the longest delay that [Rules.CrawlDelay] returns. It only
	// keeps the number finite: what a crawler is willing to wait is the caller's.
	MaxCrawlDelay = 365 * 24 * time.Hour

	// MaxRuleBytes bounds a rule as it is shown; a longer one ends in "…".
	MaxRuleBytes = 256
)

// Rules are what one robots.txt says to one crawler: the rules and the delay of
// the group that applies to it, and the sitemaps, which belong to no group. Rules
// do not change and may be used by many goroutines. The zero Rules allow
// everything.
type Rules struct {
	// text is a robots.txt of one group with the lines that matter. All strings
	// below are parts of it, where nothing had to be normalised.
	text     string
	rules    []rule // the one that wins first
	delay    time.Duration
	hasDelay bool
	sitemaps []string
}

// rule is an Allow or Disallow line.
type rule struct {
	line   string // as shown
	allow  bool
	octets int // of the pattern: what "most specific" is measured in
	path   pattern
	// query is path with its query folded, see foldQuery; it differs where folds.
	query pattern
	folds bool
}

// Parse reads a robots.txt for the crawler with the given product token, such as
// "TrawlBot"; of "TrawlBot/1.0" it takes the token. It never fails: lines that it
// cannot read are ignored, and what is no robots.txt at all allows everything. Of
// a file longer than [MaxBytes] hand in at least one byte more than that, or the
// last line is not known to be cut.
//
// The group is that of RFC 9309 s2.2.1: all groups that name the token, in any
// case, together; only when there is none, those that name "*". The token must be
// the same, not begin the same.
func Parse(body []byte, product string) *Rules {
	s := selection{product: leadingToken(strings.TrimSpace(product))}
	for rest := decode(body); rest != ""; {
		var raw string
		raw, rest = cutLine(rest)
		if l, ok := parseLine(raw); ok {
			s.add(l)
		}
	}
	return compile(s.text())
}

// Allowed reports whether a URL may be fetched, given its path and query as they
// are sent, such as "/a?b=c" (crawl.URL.RequestURI); an empty path means "/". The
// rule is the line that decided, as written but for its comment, with what is not
// printable percent-encoded and within [MaxRuleBytes]; it is "" when no line
// matches, which allows. /robots.txt is always allowed.
//
// The matching rule with the most octets in its pattern wins, Allow before
// Disallow among equals (RFC 9309 s2.2.2). Time is linear in the length of the
// path for each rule, whatever the patterns are, and plain ASCII paths cost no
// allocation.
func (r *Rules) Allowed(pathAndQuery string) (ok bool, rule string) {
	if len(r.rules) == 0 {
		return true, ""
	}
	if !strings.HasPrefix(pathAndQuery, "/") {
		pathAndQuery = "/" + pathAndQuery
	}
	path := normalPath(pathAndQuery)
	if path == "/robots.txt" {
		return true, ""
	}
	query := foldQuery(path)
	folds := len(query) != len(path)
	for i := range r.rules {
		d := &r.rules[i]
		if d.path.match(path) || (folds || d.folds) && d.query.match(query) {
			return d.allow, d.line
		}
	}
	return true, ""
}

// CrawlDelay returns the Crawl-delay of the group that applies: the time from one
// request to the next, at most [MaxCrawlDelay], the longest when there are
// several. It reports false when there is none; what is no decimal number of
// seconds ("ten", "-1", "1e3") is none. The record is not part of RFC 9309.
func (r *Rules) CrawlDelay() (time.Duration, bool) { return r.delay, r.hasDelay }

// Sitemaps returns the sitemaps that the file names, whatever group they stand in,
// in order, as written and each once, at most [MaxSitemaps]. They may be relative
// or no URLs at all.
func (r *Rules) Sitemaps() []string { return slices.Clone(r.sitemaps) }

// storedHeader begins the stored form.
const storedHeader = "User-agent: *\n"

// MarshalText returns the form to store: a robots.txt in valid UTF-8 of one group
// for everyone, with the lines that matter as they were written, and the sitemaps.
// It is hardly ever longer than the file; a hostile one, every byte of which is
// percent-encoded, makes it three times as long. It never fails.
func (r *Rules) MarshalText() ([]byte, error) {
	if r.text == "" {
		return []byte(storedHeader), nil
	}
	return []byte(r.text), nil
}

// UnmarshalText reads what [Rules.MarshalText] wrote. It refuses anything else, so
// that a damaged entry is not taken for a site that allows everything.
func (r *Rules) UnmarshalText(text []byte) error {
	if !strings.HasPrefix(string(text[:min(len(text), len(storedHeader))]), storedHeader) {
		return errors.New("these are no stored robots rules: drop the entry and fetch robots.txt again")
	}
	*r = *compile(string(text))
	return nil
}

// compile makes the rules of a stored text. Fresh rules are made of the text as
// well, so that stored ones cannot differ from them.
func compile(text string) *Rules {
	r := &Rules{text: text}
	for rest := text; rest != ""; {
		var raw string
		raw, rest = cutLine(rest)
		l, ok := parseLine(raw)
		if !ok {
			continue
		}
		switch l.field {
		case fieldAllow, fieldDisallow:
			r.rules = append(r.rules, newRule(raw, l))
		case fieldCrawlDelay:
			r.delay, r.hasDelay = parseDelay(l.value)
		case fieldSitemap:
			r.sitemaps = append(r.sitemaps, l.value)
		case fieldUserAgent: // the header
		}
	}
	slices.SortFunc(r.rules, func(a, b rule) int {
		if c := cmp.Compare(b.octets, a.octets); c != 0 {
			return c
		}
		if a.allow != b.allow {
			if a.allow {
				return -1
			}
			return 1
		}
		// Nothing is left to decide but which line is shown: not the order in the file.
		return strings.Compare(a.line, b.line)
	})
	return r
}

func newRule(raw string, l line) rule {
	r := rule{line: shorten(raw), allow: l.field == fieldAllow}
	r.path, r.octets = newPattern(l.value)
	r.query = r.path.foldQuery()
	r.folds = r.query != r.path
	return r
}

// shorten cuts a line for showing, between characters.
func shorten(s string) string {
	const ellipsis = "…"
	if len(s) <= MaxRuleBytes {
		return s
	}
	return strings.ToValidUTF8(s[:MaxRuleBytes-len(ellipsis)], "") + ellipsis
}
