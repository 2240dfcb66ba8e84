package crawl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds of what a spec may have sent with its requests.
const (
	MaxHeaders     = 20
	MaxHeaderBytes = 8 << 10 // names and values together: what servers commonly take of one request
	// MaxHeaderOrigins bounds the origins that get the headers of one job; a plan, which is
	// read with every lease, holds them.
	MaxHeaderOrigins  = 1000
	MaxUserAgentBytes = 256
)

// MaskedHeader stands for the value of a header where a spec is shown.
const MaskedHeader = "***"

// Headers are request headers by their name, any letter case. Their values are
// secrets: [Headers.String] and [Headers.GoString] mask them, so that a log line that
// formats a spec or a plan does not give them away. JSON, in which a plan is stored,
// has them.
type Headers map[string]string

// Masked returns a copy of h with [MaskedHeader] for every value; nil for no headers.
func (h Headers) Masked() Headers {
	if len(h) == 0 {
		return nil
	}
	masked := make(Headers, len(h))
	for name := range h {
		masked[name] = MaskedHeader
	}
	return masked
}

// String implements [fmt.Stringer] without the values.
func (h Headers) String() string { return fmt.Sprint(map[string]string(h.Masked())) }

// GoString implements [fmt.GoStringer] without the values.
func (h Headers) GoString() string { return h.String() }

// ownHeaders are the headers that a spec may not set, by their lower-case name, with
// what a person is told. "" stands for those that are the transport's.
var ownHeaders = map[string]string{
	"accept-encoding": "It is set to what can be decoded here.",
	"user-agent":      "Set user_agent instead.",
	"cookie2":         "It is obsolete; use Cookie.",
	"host":            "It is that of each URL.",
	// A connection and its framing (RFC 9110 s7.6.1, RFC 9112 s6).
	"connection": "", "content-encoding": "", "content-length": "", "expect": "", "http2-settings": "", "keep-alive": "",
	"te": "", "trailer": "", "transfer-encoding": "", "upgrade": "",
	// Parts and conditions (RFC 9110 s13 and s14): a page would come back cut, or empty.
	"if-match": partOfPage, "if-modified-since": partOfPage, "if-none-match": partOfPage, "if-range": partOfPage,
	"if-unmodified-since": partOfPage, "range": partOfPage,
	// Who asks, and through whom (RFC 7239, RFC 9110 s7.6.3). A server believes it of a proxy
	// in front of it, so that a caller could come from an address that he does not have.
	"forwarded": onTheWay, "via": onTheWay, "x-real-ip": onTheWay, "x-client-ip": onTheWay, "true-client-ip": onTheWay,
	"cf-connecting-ip": onTheWay, "x-original-url": onTheWay, "x-rewrite-url": onTheWay,
	// Another method or another page than the one that was checked.
	"x-http-method": onlyGet, "x-http-method-override": onlyGet, "x-method-override": onlyGet,
}

const (
	partOfPage = "Whole pages are fetched, unconditionally."
	onTheWay   = "It says where a request comes from or goes to, which only a proxy of the site may say."
	onlyGet    = "Pages are read, with GET."
)

// ownPrefixes begin the names of whole families of headers that a spec may not set.
var ownPrefixes = []struct{ prefix, message string }{
	{"proxy-", ""},
	{"x-forwarded-", onTheWay},
	// Reserved to what a browser says of itself and its page (Fetch s2.2.2): a server takes
	// it for true since no page can set it.
	{"sec-", "It is what a browser says of itself, and this is none."},
}

// refusedHeader says why a spec may not set the header of that name.
func refusedHeader(name string) (message string, refused bool) {
	lower := strings.ToLower(name)
	message, refused = ownHeaders[lower]
	for _, own := range ownPrefixes {
		if !refused && strings.HasPrefix(lower, own.prefix) {
			message, refused = own.message, true
		}
	}
	if refused && message == "" {
		message = "It belongs to the connection, which is managed here."
	}
	return message, refused
}

// checkHeaders checks the headers of a spec, in the order of their names. No message
// repeats a value.
func (c *checked) checkHeaders(h Headers) {
	if len(h) > MaxHeaders {
		c.fault("headers", "max", "Give at most %d headers, not %d.", MaxHeaders, len(h))
		return
	}
	size := 0
	seen := make(map[string]bool, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		value := h[name]
		size += len(name) + len(value)
		field := "headers." + clip(name)
		lower := strings.ToLower(name)
		message, refused := refusedHeader(name)
		switch {
		case !isToken(name):
			c.fault(field, "pattern",
				"The name of a header has letters, digits and !#$%%&'*+-.^_`|~ only, and at least one of them.")
		case refused:
			c.fault(field, "forbidden", "The header %s cannot be set. %s", name, message)
		case seen[lower]:
			c.fault(field, "duplicate", "The header %s is given twice, in different letter case. Give it once.", clip(name))
		case value == MaskedHeader:
			c.fault(field, "masked",
				"%s stands for a value that is not shown, as in the status of a job. Give the value itself.", MaskedHeader)
		case !isFieldValue(value):
			c.fault(field, "pattern",
				"The value of a header has no control characters, and no space at its beginning or end. Remove them.")
		}
		seen[lower] = true
	}
	if size > MaxHeaderBytes {
		c.fault("headers", "max", "Headers have at most %d bytes together, names and values, not %d.", MaxHeaderBytes, size)
	}
	if len(h) > 0 {
		c.plan.Headers = h
	}
}

// headerOrigins sets which origins get the headers: those that the inputs name, and
// nobody else, since headers hold credentials.
func (p *Plan) headerOrigins(inputs []Input) (message string) {
	if len(p.Headers) == 0 {
		return ""
	}
	seen := make(map[string]struct{}, min(len(inputs), MaxHeaderOrigins+1))
	for _, in := range inputs {
		origin := in.URL.Origin()
		if _, ok := seen[origin]; ok {
			continue
		}
		if len(seen) == MaxHeaderOrigins {
			return fmt.Sprintf("Headers are sent to at most %d origins, and the URLs have more. Submit several jobs.",
				MaxHeaderOrigins)
		}
		seen[origin] = struct{}{}
		p.HeaderOrigins = append(p.HeaderOrigins, origin)
	}
	return ""
}

// Headers returns the headers of the spec that go with a request of u: all of them to an
// origin (scheme, host and port) that an input of the job has, none to any other. It
// is asked for each request, each hop of a redirect included.
func (r *Rules) Headers(u URL) Headers {
	if _, ok := r.headerOrigins[u.Origin()]; !ok {
		return nil
	}
	return r.headers
}

// checkUserAgent checks what a spec calls itself. It must begin with what a robots.txt
// can address, the product token of RFC 9309 s2.2.1, which begins the first product of
// RFC 9110 s10.1.5.
func (c *checked) checkUserAgent(s string) {
	c.plan.UserAgent = s
	switch {
	case s == "":
	case len(s) > MaxUserAgentBytes:
		c.fault("user_agent", "max", "Give at most %d characters, not %d.", MaxUserAgentBytes, len(s))
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) || strings.TrimSpace(s) != s:
		c.fault("user_agent", "pattern", "Give visible ASCII characters, and spaces only between them.")
	case class[s[0]]&alpha == 0 && s[0] != '-' && s[0] != '_':
		c.fault("user_agent", "product_token",
			"Begin with a name that a robots.txt can address, of letters, - and _: such as ExampleBot/1.0 (+https://example.org/bot).")
	}
}

// isToken reports whether s is a token, RFC 9110 s5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if class[c]&alpha == 0 && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isFieldValue reports whether s is the value of a header, RFC 9110 s5.5: visible
// characters, with spaces and tabs between them. Bytes above ASCII are obs-text, which
// may be sent.
func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return strings.Trim(s, " \t") == s
}
