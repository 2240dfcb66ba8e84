package fetch

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"example.com/trawl/pkg/crawl"
)

// trail holds the redirects that led to where a fetch is.
type trail struct {
	what string // is fetched, for messages: "page" or "file"
	most int    // redirects that are followed
	hops int    // redirects so far, those of earlier fetches included
	last []hop  // those of this fetch
	seen []crawl.Key
}

// hop is one redirect that was answered.
type hop struct {
	status int
	from   crawl.URL
}

// add notes a redirect. It fails when that closes a loop or is one too many.
func (t *trail) add(status int, from, to crawl.URL) error {
	t.last = append(t.last, hop{status, from})
	t.hops++
	key := to.Key()
	if slices.Contains(t.seen, key) {
		return t.fault(crawl.CodeRedirectLoop, "redirects in a loop", to)
	}
	if t.hops > t.most {
		return t.fault(crawl.CodeTooManyRedirects, "redirects too often", to)
	}
	t.seen = append(t.seen, key)
	return nil
}

// fault names the hops and their statuses, without queries: those may carry a
// secret.
func (t *trail) fault(code crawl.Code, does string, to crawl.URL) error {
	var b strings.Builder
	b.WriteString("The " + t.what + " " + does)
	for i, h := range t.last {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + itoa(h.status) + " " + clip(h.from.Path(), 60))
	}
	b.WriteString(" → " + clip(to.Path(), 60) + " (" + plural(t.hops, "redirect") + ").")
	return &crawl.Fault{Code: code, Message: b.String(), Status: t.last[len(t.last)-1].status}
}

// urlOf returns at as net/http takes it, without a parser that could read it in another way.
func urlOf(at crawl.URL) *url.URL {
	u := &url.URL{Scheme: at.Scheme(), Host: at.Host(), Path: at.Path()}
	target := at.RequestURI()
	if _, query, found := strings.Cut(target, "?"); found {
		u.RawQuery, u.ForceQuery = query, query == ""
	}
	if path, err := url.PathUnescape(u.Path); err == nil {
		u.Path, u.RawPath = path, u.Path
	}
	return u
}

// exact returns req as it is to be sent: whatever net/url made of the URL,
// nothing but the origin of at, which was checked, is contacted, and the target
// is sent as the frontier knows it.
func exact(req *http.Request, at crawl.URL) (*http.Request, error) {
	if req.URL.Host != at.Host() || req.URL.Scheme != at.Scheme() {
		return nil, &crawl.Fault{
			Code:    crawl.CodeInvalidURL,
			Message: "The URL is read differently by different parsers; it was not requested.",
		}
	}
	target := at.RequestURI()
	if target == req.URL.RequestURI() || strings.HasPrefix(target, "//") {
		return req, nil
	}
	r := *req
	r.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Opaque: target}
	return &r, nil
}

// redirects reports whether a status is a redirect status of the Fetch standard;
// these are also what net/http follows.
func redirects(status int) bool {
	switch status {
	case 301, 302, 303, 307, 308:
		return true
	}
	return false
}

// location returns where the Location lines of an answer of base lead. Several
// that differ are refused, as browsers do: each party would follow another one.
func location(what string, base crawl.URL, lines []string) (crawl.URL, error) {
	lines = slices.Compact(slices.Clone(lines))
	if len(lines) == 1 && strings.TrimSpace(lines[0]) != "" {
		to, err := base.Resolve(lines[0])
		if err == nil {
			return to, nil
		}
		return crawl.URL{}, &crawl.Fault{
			Code:    crawl.CodeBadRedirect,
			Message: "The " + what + " redirects to what is no http or https URL.",
			Err:     err,
		}
	}
	if len(lines) > 1 {
		return crawl.URL{}, crawl.Faultf(crawl.CodeBadRedirect, "The %s redirects to several places at once.", what)
	}
	return crawl.URL{}, crawl.Faultf(crawl.CodeBadRedirect, "The %s redirects without saying where to.", what)
}
