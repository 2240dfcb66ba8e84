package fetch

import (
	"net/http"
	"net/url"
	"strings"
)

const (
	// A jar must not grow without end, and a server refuses a request whose header
	// is too large. RFC 6265 section 6.1 asks for 50 cookies a domain of 4096 bytes
	// each; 8 KiB in one line is what common servers take.
	maxCookiesKept     = 50
	maxCookieBytes     = 4096
	maxCookieLineBytes = 8 << 10
)

// withCookies returns req with the cookies that the jar has for u. The job's own Cookie field
// stays, but for the names that the jar has too: there the server set a new value.
func withCookies(req *http.Request, u *url.URL, jar http.CookieJar) *http.Request {
	kept := jar.Cookies(u)
	if len(kept) == 0 {
		return req
	}
	own := strings.Join(req.Header["Cookie"], "; ")
	line := make([]string, 0, len(kept)+1)
	size := 0
	add := func(pair string) {
		if pair != "" && size+len(pair)+len("; ") <= maxCookieLineBytes {
			line = append(line, pair)
			size += len(pair) + len("; ")
		}
	}
	for pair := range strings.SplitSeq(own, ";") {
		pair = strings.TrimSpace(pair)
		name, _, _ := strings.Cut(pair, "=")
		if !hasCookie(kept, name) {
			add(pair)
		}
	}
	for _, c := range kept {
		// String drops the characters that a cookie must not have.
		add((&http.Cookie{Name: c.Name, Value: c.Value, Quoted: c.Quoted}).String())
	}
	r := *req
	r.Header = req.Header.Clone()
	r.Header["Cookie"] = []string{strings.Join(line, "; ")}
	return &r
}

func hasCookie(cookies []*http.Cookie, name string) bool {
	for _, c := range cookies {
		if c.Name == name {
			return true
		}
	}
	return false
}

// keepCookies puts what an answer of u set into the jar, whatever its status, and
// reports whether it set any.
func keepCookies(jar http.CookieJar, u *url.URL, res *http.Response) bool {
	var set []*http.Cookie
	for _, c := range res.Cookies() {
		if len(c.Name)+len(c.Value) <= maxCookieBytes && len(set) < maxCookiesKept {
			set = append(set, c)
		}
	}
	if len(set) > 0 {
		jar.SetCookies(u, set)
	}
	return len(set) > 0
}
