package crawl

import (
	"crypto/sha256"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
)

// MaxURLBytes bounds a URL, both as written (without its fragment) and as
// fetched. RFC 9110 s4.1 asks for at least 8000 octets. What is longer is
// refused as [RefusedTooLong] and never cut: a cut URL is another page.
const MaxURLBytes = 8192

// URL is an absolute http or https URL in the form in which it is fetched: as the
// WHATWG URL standard serialises it, without fragment and userinfo. The scheme is
// lower-case, the host lower-case ASCII (punycode; IP addresses in their one
// canonical spelling), a default port is dropped and dot segments are resolved.
// Nothing else is touched: a trailing slash, the order of a query, the case of a
// percent-encoding and an empty query stay as they were linked, because changing
// them makes another request. [URL.Key] is where such spellings meet.
//
// A URL is an immutable value: copy it, compare it with ==, use it as a map key.
// The zero URL is no URL, see [URL.IsZero].
type URL struct {
	s string
	// Offsets into s. MaxURLBytes fits 16 bits.
	hostEnd uint16 // behind the host name, at ":port" or the path
	path    uint16 // start of the path, which is never empty
	pathEnd uint16 // at "?" or at the end
}

// Key is the dedupe key of a URL: two URLs of one job with the same key are one
// page. 96 bits keep the chance of a collision among 10⁹ URLs under 10⁻¹¹ at a
// third of the memory of the whole digest.
type Key [12]byte

// ParseURL parses an absolute URL by the WHATWG URL standard. Spaces and control
// characters around it and tabs and newlines in it are ignored; a fragment and
// userinfo are dropped. The error is a [*Fault] with [CodeInvalidURL] whose text
// never repeats the input, which may hold a password; [RefusedReasonOf] tells
// what kind of refusal it is. Beyond the standard it refuses what no DNS can
// resolve (an empty or over-long label) and port 0.
func ParseURL(s string) (URL, error) {
	u, _, err := parse(URL{}, s)
	return u, err
}

// Resolve returns the URL that href, found on a page or in a Location header,
// means relative to u. It takes what browsers take: surrounding white space, tabs
// and newlines inside, backslashes, "//host", "?q", "#fragment" and the empty
// string, which both mean u itself. Bytes that are not UTF-8 are
// percent-encoded as they are. Errors are those of [ParseURL]. The zero URL
// resolves absolute hrefs only.
func (u URL) Resolve(href string) (URL, error) {
	r, _, err := parse(u, href)
	return r, err
}

// ResolveEncoded is [URL.Resolve] for a link of a page in a legacy character
// encoding: the query is percent-encoded in enc, as a form of that page would
// send it, and characters that enc lacks become %26%23NNN%3B; everything else is
// UTF-8 as always. href is UTF-8, that is, decoded already. Source: WHATWG URL,
// query state, and HTML, "encoding-parse a URL". Nil and encodings that do not
// keep ASCII (UTF-16) mean UTF-8, as "get an output encoding" demands.
func (u URL) ResolveEncoded(href string, enc encoding.Encoding) (URL, error) {
	if enc == nil {
		return u.Resolve(href)
	}
	end := len(href)
	if i := strings.IndexByte(href, '#'); i >= 0 {
		end = i
	}
	q := strings.IndexByte(href[:end], '?')
	if q < 0 || isASCII(href[q:end]) || len(href) > MaxURLBytes {
		return u.Resolve(href)
	}
	return u.Resolve(href[:q+1] + encodeQuery(href[q+1:end], enc) + href[end:])
}

// RefusedReasonOf returns why ParseURL or Resolve refused a URL: [RefusedScheme],
// [RefusedTooLong] or [RefusedInvalid]; "" for nil and RefusedInvalid for any
// other error.
func RefusedReasonOf(err error) Reason {
	if err == nil {
		return ""
	}
	var r refusal
	if errors.As(err, &r) {
		return Reason(r)
	}
	return RefusedInvalid
}

// IsZero reports whether u is the zero URL, which no parse returns.
func (u URL) IsZero() bool { return u.s == "" }

// String returns the URL to fetch, in ASCII; "" for the zero URL.
func (u URL) String() string { return u.s }

// Scheme returns "http" or "https".
func (u URL) Scheme() string {
	switch {
	case u.IsZero():
		return ""
	case u.https():
		return "https"
	}
	return "http"
}

// Host returns host or host:port, without the port when it is the scheme's
// default: the value of a Host header. An IPv6 address keeps its brackets.
func (u URL) Host() string { return u.s[u.hostStart():u.path] }

// Hostname returns the host without port, and an IPv6 address without brackets.
// A dot at the end of a name stays.
func (u URL) Hostname() string {
	h := u.bracketed()
	if strings.HasPrefix(h, "[") {
		return h[1 : len(h)-1]
	}
	return h
}

// Port returns the port to connect to, in decimal: "80" or "443" where the URL
// names none.
func (u URL) Port() string {
	switch {
	case u.hostEnd < u.path:
		return u.s[u.hostEnd+1 : u.path]
	case u.IsZero():
		return ""
	case u.https():
		return "443"
	}
	return "80"
}

// Path returns the path as fetched, percent-encoded. It begins with "/".
func (u URL) Path() string { return u.s[u.path:u.pathEnd] }

// Query returns the query as fetched, without "?". An empty query and none are
// told apart only by [URL.RequestURI].
func (u URL) Query() string {
	if int(u.pathEnd) == len(u.s) {
		return ""
	}
	return u.s[u.pathEnd+1:]
}

// RequestURI returns path and query: the target of a request line, and what
// robots rules match.
func (u URL) RequestURI() string { return u.s[u.path:] }

// Origin returns scheme://host[:port], the origin of RFC 6454.
func (u URL) Origin() string { return u.s[:u.path] }

// PolitenessHost returns the unit of politeness: the host name, with ":port" only
// when the port is not the default of the scheme. So http and https of one host,
// and its name with and without the final dot, share one budget, while another
// port is another server.
func (u URL) PolitenessHost() string {
	name := u.bracketed()
	if !strings.HasSuffix(name, ".") {
		return u.Host()
	}
	return name[:len(name)-1] + u.s[u.hostEnd:u.path]
}

// Key returns the dedupe key of u: the first 96 bits of the SHA-256 of its normal
// form. That form differs from [URL.String] in what servers do not tell apart:
// percent-encodings are upper-case and unreserved characters (RFC 3986 s2.3)
// decoded, an empty query and the final dot of the host are dropped. It is only
// compared, never fetched. A trailing slash, the scheme, "www." and the order of
// a query do make a difference.
func (u URL) Key() Key {
	// Nearly all URLs fit; longer ones cost an allocation, not a failure.
	var buf [512]byte
	sum := sha256.Sum256(u.appendNormal(buf[:0]))
	return Key(sum[:len(Key{})])
}

func (u URL) https() bool { return len(u.s) > 4 && u.s[4] == 's' }

func (u URL) hostStart() int {
	switch {
	case u.IsZero():
		return 0
	case u.https():
		return len("https://")
	}
	return len("http://")
}

// bracketed returns the host name as it stands in the URL.
func (u URL) bracketed() string { return u.s[u.hostStart():u.hostEnd] }

// isNormal reports whether u is its own normal form.
func (u URL) isNormal() bool {
	return !u.IsZero() && u.s[u.hostEnd-1] != '.' && u.s[len(u.s)-1] != '?' &&
		strings.IndexByte(u.s[u.path:], '%') < 0
}

// normal returns the URL that is the normal form of u. It is for comparisons: a
// server may answer it differently.
func (u URL) normal() URL {
	if u.IsZero() || u.isNormal() {
		return u
	}
	n := URL{s: string(u.appendNormal(make([]byte, 0, len(u.s)))), hostEnd: u.hostEnd, path: u.path}
	if u.s[u.hostEnd-1] == '.' {
		n.hostEnd--
		n.path--
	}
	n.pathEnd = uint16(len(n.s))
	if i := strings.IndexByte(n.s, '?'); i >= 0 {
		n.pathEnd = uint16(i)
	}
	return n
}

// appendNormal appends the normal form of u, see [URL.Key].
func (u URL) appendNormal(b []byte) []byte {
	if u.isNormal() || u.IsZero() {
		return append(b, u.s...)
	}
	b = append(b, u.s[:u.hostEnd]...)
	if b[len(b)-1] == '.' {
		b = b[:len(b)-1]
	}
	b = append(b, u.s[u.hostEnd:u.path]...)
	rest := u.RequestURI()
	if int(u.pathEnd) == len(u.s)-1 {
		rest = u.Path()
	}
	return appendNormalPercent(b, rest)
}

// appendNormalPercent appends s with its percent-encodings normalised: RFC 3986
// s6.2.2. What is no valid percent-encoding stays.
func appendNormalPercent(b []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			return append(b, s...)
		}
		b = append(b, s[:i]...)
		s = s[i:]
		if len(s) < 3 || unhex(s[1]) < 0 || unhex(s[2]) < 0 {
			b, s = append(b, '%'), s[1:]
			continue
		}
		c := byte(unhex(s[1])<<4 | unhex(s[2]))
		if class[c]&unreserved != 0 && !completesPercent(b, c) {
			b = append(b, c)
		} else {
			b = appendPercent(b, c)
		}
		s = s[3:]
	}
}

// completesPercent reports whether c behind b would make a percent-encoding of a
// stray "%": then the normal form would not be its own normal form.
func completesPercent(b []byte, c byte) bool {
	n := len(b)
	return unhex(c) >= 0 && (n > 0 && b[n-1] == '%' || n > 1 && b[n-2] == '%')
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

// refusal is the cause of the Fault of a URL that does not parse.
type refusal Reason

func (r refusal) Error() string { return string(r) }

func refuse(r Reason, message string) error {
	return &Fault{Code: CodeInvalidURL, Message: message, Err: refusal(r)}
}

func refuseTooLong() error {
	return refuse(RefusedTooLong, "the URL is longer than "+strconv.Itoa(MaxURLBytes)+" bytes")
}

// encodeQuery percent-encodes what in a query is not ASCII, in enc. ASCII is left
// to the parser.
func encodeQuery(q string, enc encoding.Encoding) string {
	e := enc.NewEncoder()
	if a, err := e.String("a"); err != nil || a != "a" {
		return q
	}
	b := make([]byte, 0, 3*len(q))
	if s, err := e.String(q); err == nil {
		return string(appendEncoded(b, s))
	}
	// Runs of what enc has are encoded in one piece: a stateful encoding
	// (ISO-2022-JP) shifts once a run, not once a character.
	run := 0
	for i, r := range q {
		if _, err := e.String(string(r)); err == nil {
			continue
		}
		s, _ := e.String(q[run:i]) // each of its characters was accepted before
		b = appendEncoded(b, s)
		b = append(b, "%26%23"...)
		b = strconv.AppendInt(b, int64(r), 10)
		b = append(b, "%3B"...)
		_, n := utf8.DecodeRuneInString(q[i:])
		run = i + n
	}
	s, _ := e.String(q[run:])
	return string(appendEncoded(b, s))
}

// appendEncoded appends s with the bytes percent-encoded that the parser would
// take for something else: non-ASCII for UTF-8, and "#" and ESC, which a
// multi-byte encoding can produce and the source, cut at its "#", no longer holds.
func appendEncoded(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || c == '#' || c == '\x1b' {
			b = appendPercent(b, c)
		} else {
			b = append(b, c)
		}
	}
	return b
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
