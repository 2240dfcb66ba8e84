package robots

import "strings"

// pattern is the path of a rule, normalised. "*" in it is the wildcard and nothing
// else, since a literal one is "%2A".
type pattern struct {
	prefix   string // up to the first wildcard
	rest     string // behind it, without a run of wildcards or one at the end
	wild     bool   // there is a wildcard
	anchored bool   // there was a "$" at the end
}

// newPattern compiles the value of a rule, and counts its octets in normal form,
// the wildcards and the "$" included, as Google's parser does.
func newPattern(value string) (p pattern, octets int) {
	if strings.HasSuffix(value, "$") {
		p.anchored = true
		octets++
		value = value[:len(value)-1]
	}
	text := value
	if !isNormal(value) || !strings.HasPrefix(value, "/") {
		text = normalPattern(value)
	}
	octets += len(text)
	p.prefix, p.rest, p.wild = strings.Cut(text, "*")
	p.rest = collapse(p.rest, p.anchored)
	return p, octets
}

// normalPattern normalises the value of a rule without its "$".
func normalPattern(value string) string {
	b := make([]byte, 0, len(value)+16)
	if !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "*") {
		b = append(b, '/')
	}
	for i, part := range strings.Split(value, "*") {
		if i > 0 {
			b = append(b, '*')
		}
		b = appendNormal(b, part)
	}
	return string(b)
}

// collapse takes from s, which follows a wildcard, the wildcards that follow
// another one, and those at the end unless they keep a "$" from its text.
func collapse(s string, anchored bool) string {
	s = strings.TrimLeft(s, "*")
	trimmed := strings.TrimRight(s, "*")
	if anchored && trimmed != s {
		trimmed += "*"
	}
	if !strings.Contains(trimmed, "**") {
		return trimmed
	}
	b := make([]byte, 0, len(trimmed))
	for i := range len(trimmed) {
		if c := trimmed[i]; c != '*' || b[len(b)-1] != '*' { // it does not begin with one
			b = append(b, c)
		}
	}
	return string(b)
}

// match reports whether p matches s, which is normalised. Between two wildcards
// the first place is as good as any other, so nothing is ever tried again, and the
// time is linear.
func (p *pattern) match(s string) bool {
	if !strings.HasPrefix(s, p.prefix) {
		return false
	}
	s = s[len(p.prefix):]
	if !p.wild {
		return !p.anchored || s == ""
	}
	for rest := p.rest; ; {
		literal, behind, more := strings.Cut(rest, "*")
		if !more && p.anchored {
			return strings.HasSuffix(s, literal)
		}
		i := strings.Index(s, literal)
		if i < 0 || !more {
			return i >= 0
		}
		s, rest = s[i+len(literal):], behind
	}
}

// foldQuery returns the pattern for folded paths. Behind a "?" of the pattern
// everything is query, whatever its wildcards match.
func (p *pattern) foldQuery() pattern {
	if !strings.Contains(p.prefix, "%") && !strings.Contains(p.rest, "%") {
		return *p
	}
	text := p.prefix
	if p.wild {
		text += "*" + p.rest
	}
	folded := pattern{anchored: p.anchored}
	folded.prefix, folded.rest, folded.wild = strings.Cut(foldQuery(text), "*")
	return folded
}

// queryFolder decodes what has no meaning of its own in a query: RFC 3986 s3.4.
var queryFolder = strings.NewReplacer("%2F", "/", "%3A", ":", "%3F", "?", "%40", "@")

// foldQuery decodes : / ? and @ in the query of a normalised path or pattern. RFC
// 9309 s2.2.2 has a table in which they are the same, encoded or not. It cannot be
// done before any comparison, as "*" in a rule such as "/*%2Fx" may or may not
// reach into the query.
func foldQuery(s string) string {
	i := strings.IndexByte(s, '?')
	if i < 0 || !strings.Contains(s[i:], "%") {
		return s
	}
	return s[:i] + queryFolder.Replace(s[i:])
}

// Classes of bytes.
const (
	unreserved = 1 << iota // RFC 3986 s2.3: decoded when encoded
	plain                  // stands for itself: unreserved, and reserved but for * and $
	copied                 // plain, and what a pattern needs no new text for
)

var class = func() (t [256]uint8) {
	for c := range 256 {
		b := byte(c)
		if isTokenByte(b) || '0' <= b && b <= '9' || b == '.' || b == '~' {
			t[c] = unreserved | plain | copied
		}
		if strings.IndexByte(":/?#[]@!&'()+,;=", b) >= 0 {
			t[c] = plain | copied
		}
	}
	t['*'] = copied
	return t
}()

// isNormal reports whether the value of a rule without its "$" is its own normal
// form.
func isNormal(s string) bool {
	for i := range len(s) {
		if class[s[i]]&copied == 0 {
			return false
		}
	}
	return true
}

// normalPath normalises path and query of a URL.
func normalPath(s string) string {
	for i := range len(s) {
		if class[s[i]]&plain == 0 {
			return string(appendNormal(append(make([]byte, 0, len(s)+32), s[:i]...), s[i:]))
		}
	}
	return s
}

// appendNormal appends s with one spelling for what RFC 9309 s2.2.2 takes for the
// same: unreserved characters as they are, reserved ones as they came, but "*" and
// "$" always encoded (s2.2.3), and everything else encoded in upper case. "%" begins
// an encoding in the result and nothing else.
func appendNormal(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if class[c]&plain != 0 {
			b = append(b, c)
			continue
		}
		if c == '%' && i+2 < len(s) {
			if hi, lo := unhex(s[i+1]), unhex(s[i+2]); hi >= 0 && lo >= 0 {
				c = byte(hi<<4 | lo)
				i += 2
				if class[c]&unreserved != 0 {
					b = append(b, c)
					continue
				}
			}
		}
		b = appendPercent(b, c)
	}
	return b
}

func appendPercent(b []byte, c byte) []byte {
	const upperHex = "0123456789ABCDEF"
	return append(b, '%', upperHex[c>>4], upperHex[c&15])
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
