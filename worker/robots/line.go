package robots

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// decode returns as much of a robots.txt as is read, in UTF-8 or what is meant to
// be.
func decode(body []byte) string {
	var order binary.ByteOrder
	switch {
	case len(body) < 2:
	case body[0] == 0xFF && body[1] == 0xFE:
		order = binary.LittleEndian
	case body[0] == 0xFE && body[1] == 0xFF:
		order = binary.BigEndian
	}
	if order == nil {
		return cutToLimit(string(body[:min(len(body), MaxBytes+1)]))
	}
	// Two units more than fit, for the mark and to see that something is cut.
	body = body[2:min(len(body), 2*(MaxBytes+2))]
	units := make([]uint16, len(body)/2)
	for i := range units {
		units[i] = order.Uint16(body[2*i:])
	}
	return cutToLimit(string(utf16.Decode(units)))
}

// cutToLimit cuts s to MaxBytes, behind its last complete line.
func cutToLimit(s string) string {
	switch {
	case len(s) <= MaxBytes:
		return s
	case s[MaxBytes] == '\n' || s[MaxBytes] == '\r':
		return s[:MaxBytes]
	}
	return s[:strings.LastIndexAny(s[:MaxBytes], "\r\n")+1]
}

// cutLine cuts the first line of s, which ends in CR, LF or both.
func cutLine(s string) (line, rest string) {
	if i := strings.IndexAny(s, "\r\n"); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// field is the kind of a line.
type field byte

const (
	fieldUserAgent field = iota + 1
	fieldAllow
	fieldDisallow
	fieldCrawlDelay
	fieldSitemap
)

// fieldNames are the names that count, in lower case.
var fieldNames = []struct {
	name  string
	field field
}{
	{"disallow", fieldDisallow},
	{"allow", fieldAllow},
	{"user-agent", fieldUserAgent},
	{"crawl-delay", fieldCrawlDelay},
	{"sitemap", fieldSitemap},
	// Frequent misspellings, those of Google's parser. Allow has none: to allow by
	// mistake is worse than to forbid by mistake.
	{"useragent", fieldUserAgent},
	{"user agent", fieldUserAgent},
	{"dissallow", fieldDisallow},
	{"dissalow", fieldDisallow},
	{"disalow", fieldDisallow},
	{"diasllow", fieldDisallow},
	{"disallaw", fieldDisallow},
	{"site-map", fieldSitemap},
}

func fieldOf(name string) (field, bool) {
	for _, f := range fieldNames {
		if len(f.name) == len(name) && strings.EqualFold(f.name, name) {
			return f.field, true
		}
	}
	return 0, false
}

// line is a line with a field that counts.
type line struct {
	field field
	head  string // as written, up to the value
	value string // trimmed
}

// parseLine takes a line apart. It reports false for one that says nothing here.
func parseLine(raw string) (line, bool) {
	raw, _, _ = strings.Cut(raw, "#")
	raw = trim(raw)
	sep := strings.IndexByte(raw, ':')
	if sep < 0 {
		if sep = missingColon(raw); sep < 0 {
			return line{}, false
		}
	}
	f, ok := fieldOf(trim(raw[:sep]))
	if !ok {
		return line{}, false
	}
	value := trim(raw[sep+1:])
	return line{field: f, head: raw[:len(raw)-len(value)], value: value}, true
}

// missingColon returns where a colon is missing in a line of two words, or -1.
func missingColon(s string) int {
	i := strings.IndexAny(s, " \t")
	if i < 0 || strings.ContainsAny(strings.TrimLeft(s[i:], " \t"), " \t") {
		return -1
	}
	return i
}

// trim removes white space, and byte order marks, which files glued together have
// at the beginning of any line.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == '\uFEFF' })
}

// appendStored appends l in valid printable UTF-8. Its meaning is the same: what
// is encoded here in a value would be encoded before it is compared.
func (l line) appendStored(b []byte) []byte {
	for _, r := range l.head {
		if !unicode.IsPrint(r) {
			r = ' ' // a tab or another white space around the colon
		}
		b = utf8.AppendRune(b, r)
	}
	for i, n := 0, 0; i < len(l.value); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(l.value[i:])
		if unicode.IsPrint(r) && (r != utf8.RuneError || n > 1) {
			b = append(b, l.value[i:i+n]...)
			continue
		}
		for _, c := range []byte(l.value[i : i+n]) {
			b = appendPercent(b, c)
		}
	}
	return append(b, '\n')
}

// group is what the groups of one name say.
type group struct {
	rules []line
	delay line // the line of the longest
	wait  time.Duration
}

func (g *group) addDelay(l line) {
	if d, ok := parseDelay(l.value); ok && (g.delay.field == 0 || d > g.wait) {
		g.delay, g.wait = l, d
	}
}

// selection picks the lines that matter to one product token.
type selection struct {
	product string // "" is named by no line

	named  bool  // a line names product
	ours   group // of the groups that name product
	others group // of those that name "*"

	sitemaps []line
	known    map[string]bool // values of sitemaps

	// The group that is read:
	inAgents         bool // no rule followed its User-agent lines so far
	isOurs, isOthers bool
}

func (s *selection) add(l line) {
	switch l.field {
	case fieldUserAgent:
		s.addAgent(l.value)
	case fieldAllow, fieldDisallow:
		s.inAgents = false
		if l.value != "" { // an empty rule matches nothing
			s.each(func(g *group) { g.rules = append(g.rules, l) })
		}
	case fieldCrawlDelay:
		s.each(func(g *group) { g.addDelay(l) })
	case fieldSitemap:
		s.addSitemap(l)
	}
}

func (s *selection) each(f func(*group)) {
	if s.isOurs {
		f(&s.ours)
	}
	if s.isOthers {
		f(&s.others)
	}
}

func (s *selection) addAgent(value string) {
	if !s.inAgents {
		s.inAgents, s.isOurs, s.isOthers = true, false, false
	}
	// As in Google's parser, "*" followed by a space and something is "*", and of
	// "TrawlBot/1.0" only the token counts.
	if value == "*" || strings.HasPrefix(value, "* ") || strings.HasPrefix(value, "*\t") {
		s.isOthers = true
	} else if token := leadingToken(value); token != "" && strings.EqualFold(token, s.product) {
		s.named, s.isOurs = true, true
	}
}

func (s *selection) addSitemap(l line) {
	if l.value == "" || len(s.sitemaps) == MaxSitemaps || s.known[l.value] {
		return
	}
	if s.known == nil {
		s.known = map[string]bool{}
	}
	s.known[l.value] = true
	s.sitemaps = append(s.sitemaps, l)
}

// text returns the stored form of what was picked.
func (s *selection) text() string {
	g := &s.others
	if s.named {
		g = &s.ours
	}
	b := []byte(storedHeader)
	for _, l := range g.rules {
		b = l.appendStored(b)
	}
	if g.delay.field != 0 {
		b = g.delay.appendStored(b)
	}
	for _, l := range s.sitemaps {
		b = l.appendStored(b)
	}
	return string(b)
}

// parseDelay reads a decimal number of seconds.
func parseDelay(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789.") != "" {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(s, 64)
	switch {
	case seconds >= MaxCrawlDelay.Seconds(): // with an error for what no float64 holds
		return MaxCrawlDelay, true
	case err != nil:
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}
