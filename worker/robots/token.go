package robots

import (
	"slices"
	"strings"
)

// ProductToken returns the name by which a robots.txt addresses a crawler with the
// given User-Agent header: "TrawlBot" for "TrawlBot/1.0 (+https://…)", and
// "FarmBot" for "Mozilla/5.0 (compatible; FarmBot/1.0)". A header that begins as a
// browser's is searched for what follows "compatible;", then for the first product
// that no browser names. A token has letters, "_" and "-" only (RFC 9309 s2.2.1), so
// "Bot2/1.0" is "Bot". It is "" when the header begins with anything else.
func ProductToken(userAgent string) string {
	userAgent = strings.TrimSpace(userAgent)
	token := leadingToken(userAgent)
	if !strings.EqualFold(token, browserProducts[0]) {
		return token
	}
	lower := strings.ToLower(userAgent)
	if len(lower) != len(userAgent) { // a letter whose other case has another length
		return token
	}
	const mark = "compatible;"
	if i := strings.Index(lower, mark); i >= 0 {
		if t := leadingToken(strings.TrimSpace(userAgent[i+len(mark):])); t != "" {
			return t
		}
	}
	for _, product := range strings.Fields(withoutComments(userAgent)) {
		if t := leadingToken(product); t != "" && !slices.ContainsFunc(browserProducts, func(b string) bool {
			return strings.EqualFold(t, b)
		}) {
			return t
		}
	}
	return token
}

// browserProducts are the products in the User-Agent headers of browsers.
var browserProducts = []string{
	"Mozilla", "AppleWebKit", "Chrome", "Chromium", "Edg", "Firefox", "Gecko", "HeadlessChrome", "Mobile", "OPR",
	"Safari", "Version",
}

// withoutComments removes what is in parentheses, RFC 9110 s5.6.5.
func withoutComments(s string) string {
	b := make([]byte, 0, len(s))
	depth := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case depth == 0:
			b = append(b, c)
		}
	}
	return string(b)
}

// leadingToken returns the product token that s begins with, or "".
func leadingToken(s string) string {
	for i := range len(s) {
		if !isTokenByte(s[i]) {
			return s[:i]
		}
	}
	return s
}

func isTokenByte(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '-' || c == '_'
}
