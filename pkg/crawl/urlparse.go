package crawl

import (
	"strings"

	whatwgerrors "github.com/nlnwa/whatwg-url/errors"
	whatwg "github.com/nlnwa/whatwg-url/url"
)

// The structure of a link (scheme, slashes, segments, query) is taken apart here,
// byte by byte and with one allocation; hosts that are not plain ASCII names or
// canonical IPv4 addresses go to whatwg-url, which does IDNA and the many
// spellings of IP addresses. A whole link through that library costs 6 to 8 µs and
// 120 allocations, and its time grows with the square of some lengths: 8 KB of "@"
// take 400 ms. TestParserAgrees and FuzzParserAgrees hold both to the same result.

// Bounds of a host name in the DNS, RFC 1035 s2.3.4. The URL standard lets longer
// names pass, but nothing can resolve them: such a link is no page that failed.
const (
	maxHostBytes  = 253
	maxLabelBytes = 63
)

// maxAuthorityBytes bounds what is given to the library. 253 bytes of host can be
// written as 253 percent-encoded characters of 12 bytes; with a port that is 3 KB.
const maxAuthorityBytes = 4096

// Classes of bytes.
const (
	alpha       = 1 << iota
	schemeChar  // may stand in a scheme behind its first letter
	hostChar    // stands for itself in a host name, letters apart from their case
	pathPlain   // is copied in a path
	queryPlain  // is copied in a query of an http URL
	unreserved  // RFC 3986 s2.3
	pathSpecial // ends a segment, or begins an encoding: / \ %
)

// class is a table, since comparing every byte with each set would be most of the
// time of a link.
var class = func() (t [256]uint8) {
	for c := range 256 {
		b := byte(c)
		isAlpha := 'a' <= b|0x20 && b|0x20 <= 'z'
		if isAlpha {
			t[c] |= alpha
		}
		if isAlpha || ('0' <= b && b <= '9') {
			t[c] |= schemeChar | hostChar | unreserved
		}
		if strings.IndexByte("+-.", b) >= 0 {
			t[c] |= schemeChar
		}
		if strings.IndexByte("-_.", b) >= 0 {
			t[c] |= hostChar
		}
		if strings.IndexByte("-._~", b) >= 0 {
			t[c] |= unreserved
		}
		// The percent-encode sets of the standard: C0 controls, space, everything
		// above 0x7E and these.
		if b > ' ' && b <= '~' {
			if strings.IndexByte("\"#<>?`{}/\\%", b) < 0 {
				t[c] |= pathPlain
			}
			if strings.IndexByte("\"#<>'", b) < 0 {
				t[c] |= queryPlain
			}
		}
		if isSlash(b) || b == '%' {
			t[c] |= pathSpecial
		}
	}
	return t
}()

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// parse is the one parser behind links, Location headers and submitted URLs, so
// that no rule can be evaded by another spelling. userinfo reports that s carried
// some. The order is that of the standard: trim, remove tabs and newlines, then
// everything else. The fragment goes first: no "#" can stand before it, and a long
// one must not count for the length.
func parse(base URL, s string) (u URL, userinfo bool, err error) {
	s = trimControl(s)
	if strings.IndexByte(s, '\n') >= 0 || strings.IndexByte(s, '\t') >= 0 || strings.IndexByte(s, '\r') >= 0 {
		s = tabsAndNewlines.Replace(s)
	}
	if i := strings.IndexByte(s, '#'); i >= 0 {
		s = s[:i]
	}
	scheme, rest := cutScheme(s)
	switch {
	case scheme == schemeOther:
		// Before the length: a data: link of a megabyte is not too long, it is no link.
		return URL{}, false, refuse(RefusedScheme, "only http and https URLs can be fetched")
	case scheme == schemeNone && base.IsZero():
		return URL{}, false, refuse(RefusedInvalid,
			"the URL is not absolute: begin it with https:// or http:// and a host")
	case len(s) > MaxURLBytes:
		return URL{}, false, refuseTooLong()
	case s == "":
		return base, false, nil
	}

	// What is longer moves to the heap and still works.
	var buf [320]byte
	b := buf[:0]
	hostEnd, pathStart := int(base.hostEnd), int(base.path)
	authority, rest, found := cutAuthority(base, scheme, rest)
	switch {
	case found:
		if i := strings.LastIndexByte(authority, '@'); i >= 0 {
			userinfo = strings.Trim(authority[:i], ":@") != ""
			authority = authority[i+1:]
		}
		https := scheme == schemeHTTPS || (scheme == schemeNone && base.https())
		if b, hostEnd, err = appendOrigin(b, base, https, authority); err != nil {
			return URL{}, userinfo, err
		}
		pathStart = len(b)
		b = append(b, '/')
	case rest == "" || rest[0] == '?':
		b = append(b, base.s[:base.pathEnd]...)
		query := rest
		if rest == "" { // "http:" on an http page means that page
			query = base.s[base.pathEnd:]
		}
		b = appendQuery(b, query)
		return finish(b, hostEnd, pathStart, int(base.pathEnd), userinfo)
	case isSlash(rest[0]):
		b = append(b, base.s[:pathStart+1]...)
	default:
		b = append(b, base.s[:pathStart+strings.LastIndexByte(base.Path(), '/')+1]...)
	}
	if rest != "" && isSlash(rest[0]) {
		rest = rest[1:] // b ends with it
	}
	path, query := rest, ""
	if i := strings.IndexByte(rest, '?'); i >= 0 {
		path, query = rest[:i], rest[i:]
	}
	b = appendPath(b, pathStart, path)
	pathEnd := len(b)
	return finish(appendQuery(b, query), hostEnd, pathStart, pathEnd, userinfo)
}

func finish(b []byte, hostEnd, pathStart, pathEnd int, userinfo bool) (URL, bool, error) {
	if len(b) > MaxURLBytes {
		return URL{}, userinfo, refuseTooLong()
	}
	u := URL{s: string(b), hostEnd: uint16(hostEnd), path: uint16(pathStart), pathEnd: uint16(pathEnd)}
	return u, userinfo, nil
}

var tabsAndNewlines = strings.NewReplacer("\t", "", "\n", "", "\r", "")

// trimControl removes C0 controls and spaces around s.
func trimControl(s string) string {
	for s != "" && s[0] <= ' ' {
		s = s[1:]
	}
	for s != "" && s[len(s)-1] <= ' ' {
		s = s[:len(s)-1]
	}
	return s
}

type schemeKind byte

const (
	schemeNone schemeKind = iota // relative
	schemeHTTP
	schemeHTTPS
	schemeOther
)

// cutScheme tells the scheme of s, in any case, from what follows its colon.
func cutScheme(s string) (schemeKind, string) {
	if s == "" || class[s[0]]&alpha == 0 {
		return schemeNone, s
	}
	i := 1
	for i < len(s) && class[s[i]]&schemeChar != 0 {
		i++
	}
	if i == len(s) || s[i] != ':' {
		return schemeNone, s
	}
	switch {
	case i == 4 && strings.EqualFold(s[:4], "http"):
		return schemeHTTP, s[5:]
	case i == 5 && strings.EqualFold(s[:5], "https"):
		return schemeHTTPS, s[6:]
	}
	return schemeOther, ""
}

// cutAuthority cuts s, which follows the scheme if there is one, before path or
// query, and reports whether it has an authority at all. Any number of slashes
// and backslashes may stand before it; fewer than two mean a path on the same
// site if no scheme was named, or that of the base.
func cutAuthority(base URL, scheme schemeKind, s string) (authority, rest string, found bool) {
	slashes := 0
	for slashes < len(s) && isSlash(s[slashes]) {
		slashes++
	}
	sameScheme := scheme == schemeNone || (!base.IsZero() && base.https() == (scheme == schemeHTTPS))
	if slashes < 2 && sameScheme {
		return "", s, false
	}
	s = s[slashes:]
	for i := range len(s) {
		if s[i] == '?' || isSlash(s[i]) {
			return s[:i], s[i:], true
		}
	}
	return s, "", true
}

// appendOrigin appends scheme, host and port of an authority without userinfo.
func appendOrigin(b []byte, base URL, https bool, authority string) (out []byte, hostEnd int, err error) {
	// Most absolute links stay on the site, whose host is known to be good.
	if !base.IsZero() && base.https() == https && authority == base.Host() {
		return append(b, base.Origin()...), int(base.hostEnd), nil
	}
	scheme, defaultPort := "http://", "80"
	if https {
		scheme, defaultPort = "https://", "443"
	}
	b = append(b, scheme...)
	host, port, hasPort := strings.Cut(authority, ":")
	if out, ok := appendPlainHost(b, host); ok && (!hasPort || plainPort(port)) {
		b = out
	} else {
		host, port, err = parseHost(scheme, authority)
		if err != nil {
			return nil, 0, err
		}
		b = append(b, host...)
	}
	hostEnd = len(b)
	if port != "" && port != defaultPort {
		b = append(append(b, ':'), port...)
	}
	return b, hostEnd, nil
}

// appendPlainHost appends a host that means itself but for the case of its
// letters; ok is false for one that only the library can judge.
func appendPlainHost(b []byte, host string) (out []byte, ok bool) {
	start := len(b)
	label := start
	for i := range len(host) {
		c := host[i]
		if class[c]&hostChar == 0 {
			return nil, false
		}
		if class[c]&alpha != 0 {
			c |= 0x20
		}
		b = append(b, c)
		if c == '.' {
			if !plainLabel(b[label : len(b)-1]) {
				return nil, false
			}
			label = len(b)
		}
	}
	if !plainLabel(b[label:]) || len(host) > maxHostBytes {
		return nil, false
	}
	// A last label that begins with a digit or a sign may make an IPv4 address of the host.
	return b, class[b[label]]&alpha != 0 || dottedQuad(host)
}

// plainLabel reports whether a lower-case label means itself: neither empty nor
// over-long nor punycode, which has to be checked.
func plainLabel(label []byte) bool {
	return len(label) > 0 && len(label) <= maxLabelBytes &&
		(len(label) < 4 || string(label[:4]) != "xn--")
}

// plainPort reports whether port is a port in its one spelling. Strings of digits
// of one length compare like numbers.
func plainPort(port string) bool {
	if port == "" || len(port) > 5 || port[0] == '0' || (len(port) == 5 && port > "65535") {
		return false
	}
	return allDigits(port)
}

// dottedQuad reports whether host is an IPv4 address in its canonical spelling.
func dottedQuad(host string) bool {
	for i := range 4 {
		part, rest, found := strings.Cut(host, ".")
		if found != (i < 3) || part == "" || len(part) > 3 || (part[0] == '0' && len(part) > 1) ||
			!allDigits(part) || (len(part) == 3 && part > "255") {
			return false
		}
		host = rest
	}
	return true
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// parseHost parses an authority by the host parser of the standard. The port is
// empty where it is the default of scheme.
func parseHost(scheme, authority string) (host, port string, err error) {
	if authority == "" {
		return "", "", refuse(RefusedInvalid, "the URL names no host")
	}
	if len(authority) > maxAuthorityBytes {
		return "", "", refuse(RefusedInvalid, hostTooLong)
	}
	p, err := whatwg.Parse(scheme + authority + "/") // the slash keeps a space at the end inside
	if err != nil {
		// Not wrapped: the library's error repeats the URL.
		return "", "", refuse(RefusedInvalid, hostMessage(whatwgerrors.Type(err)))
	}
	host, port = p.Hostname(), p.Port()
	if message := unreachable(host, port); message != "" {
		return "", "", refuse(RefusedInvalid, message)
	}
	if strings.Contains(host, "xn--") {
		// The library lets through a few characters (U+2260 is one) whose punycode it
		// then refuses: such a URL, stored as text, could not be read back.
		if p, err := whatwg.Parse(scheme + host); err != nil || p.Hostname() != host {
			return "", "", refuse(RefusedInvalid, hostMessage(whatwgerrors.DomainToASCII))
		}
	}
	return host, port, nil
}

const hostTooLong = "the host name is longer than 253 bytes"

// unreachable says for a person why a host that the standard accepts cannot be
// connected to; "" if it can.
func unreachable(host, port string) string {
	if port == "0" {
		return "port 0 cannot be connected to: name one from 1 to 65535"
	}
	if strings.HasPrefix(host, "[") {
		return ""
	}
	host = strings.TrimSuffix(host, ".")
	if len(host) > maxHostBytes {
		return hostTooLong
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" {
			return "the host name has an empty label: two dots in a row, or one at its beginning"
		}
		if len(label) > maxLabelBytes {
			return "a label of the host name is longer than 63 bytes"
		}
	}
	return ""
}

// hostMessage says for a person what the library found wrong.
func hostMessage(t whatwgerrors.ErrorType) string {
	switch t {
	case whatwgerrors.HostMissing:
		return "the URL names no host"
	case whatwgerrors.PortInvalid, whatwgerrors.PortOutOfRange:
		return "the port is no number from 1 to 65535"
	case whatwgerrors.DomainToASCII, whatwgerrors.DomainInvalidCodePoint:
		return "the host name holds characters that no host name can have"
	}
	return "the host is no valid IP address"
}

// appendPath appends the segments of path to b, whose own path begins at
// pathStart and which ends with the slash before the first of them.
func appendPath(b []byte, pathStart int, path string) []byte {
	segment := len(b)
	for i := range len(path) {
		c := path[i]
		switch {
		case class[c]&pathPlain != 0 || c == '%':
			b = append(b, c)
		case class[c]&pathSpecial == 0:
			b = appendPercent(b, c)
		default:
			var dot bool
			if b, dot = closeSegment(b, pathStart, segment); !dot {
				b = append(b, '/')
			}
			segment = len(b)
		}
	}
	b, _ = closeSegment(b, pathStart, segment)
	return b
}

// closeSegment applies the segment that begins at segment and ends b, and reports
// whether it was a dot segment. b then ends with the slash before the next one.
func closeSegment(b []byte, pathStart, segment int) ([]byte, bool) {
	switch dots(b[segment:]) {
	case 1:
		return b[:segment], true
	case 2:
		b = b[:segment]
		for len(b) > pathStart+1 {
			b = b[:len(b)-1]
			if b[len(b)-1] == '/' {
				break
			}
		}
		return b, true
	}
	return b, false
}

// dots returns 1 or 2 for a segment of so many dots, each plain or
// percent-encoded, and 0 for any other.
func dots(segment []byte) int {
	const longest = len("%2e%2e")
	if len(segment) == 0 || len(segment) > longest || (segment[0] != '.' && segment[0] != '%') {
		return 0
	}
	n := 0
	for len(segment) > 0 {
		switch {
		case segment[0] == '.':
			segment = segment[1:]
		case len(segment) >= 3 && segment[0] == '%' && segment[1] == '2' && segment[2]|0x20 == 'e':
			segment = segment[3:]
		default:
			return 0
		}
		n++
	}
	if n > 2 {
		return 0
	}
	return n
}

// appendQuery appends query, which is empty or begins with "?".
func appendQuery(b []byte, query string) []byte {
	for i := range len(query) {
		if c := query[i]; class[c]&queryPlain != 0 {
			b = append(b, c)
		} else {
			b = appendPercent(b, c)
		}
	}
	return b
}
