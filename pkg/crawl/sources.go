package crawl

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Sources is a policy of what may be crawled, for a tenant or a worker. The zero
// value allows nothing. It is immutable.
//
// A list names any of
//
//	https://docs.example.org/3/   this scheme, host and port, and this path and below
//	docs.example.org              this host, http and https on their default ports
//	docs.example.org:8080         this host on this port, http and https
//	*.example.org                 every host below example.org, but not example.org
//	                              itself; with or without a port, like a host
//	https://*.example.org/docs/   the same with a scheme, a port and a path
//	*                             every host and port
//
// Hosts and paths are read by [ParseURL], so that spellings of one thing (upper
// case, IDN, a final dot, forms of an IP address) are one thing. A path is a
// prefix on the boundary of a segment, as written: /3 allows /3 and /3/x but not
// /33; /3/ allows /3/ and /3/x. Percent-encodings are normalised on both sides.
type Sources struct{ entries []source }

// source is one entry of Sources.
type source struct {
	any        bool
	subdomains bool   // of host
	scheme     string // empty for http and https
	host       string // without final dot
	port       string // empty for the default of the scheme
	path       string // in normal form; empty for every path
}

// ParseSources reads a comma-separated list of sources, see [Sources]. Space
// around an entry and empty entries are ignored; the empty list allows nothing.
// The error is a [*Fault] with one field fault, sources[i], for every entry that
// is no source.
func ParseSources(s string) (Sources, error) {
	var (
		out    Sources
		faults []FieldFault
	)
	i := -1
	for entry := range strings.SplitSeq(s, ",") {
		i++
		entry = trimControl(entry)
		if entry == "" {
			continue
		}
		src, message := parseSource(entry)
		if message != "" {
			faults = append(faults, FieldFault{
				Field: fmt.Sprintf("sources[%d]", i), Rule: "source",
				Message: message + "; write https://host/path/, host, host:port, *.host or *",
			})
			continue
		}
		out.entries = append(out.entries, src)
	}
	if faults != nil {
		return Sources{}, &Fault{
			Code: CodeInvalid, Message: "the list of allowed sources has faults", Fields: faults,
		}
	}
	return out, nil
}

// parseSource reads one entry; message says for a person why it is none.
func parseSource(entry string) (src source, message string) {
	if entry == "*" {
		return source{any: true}, ""
	}
	full, isURL := entry, strings.Contains(entry, "://")
	if scheme, rest, _ := strings.Cut(entry, "://"); isURL && strings.HasPrefix(rest, "*.") {
		src.subdomains, full = true, scheme+"://"+rest[2:]
	}
	if !isURL {
		if rest, ok := strings.CutPrefix(entry, "*."); ok {
			src.subdomains, full = true, rest
		}
		if strings.ContainsAny(full, `/\?#@`) {
			return source{}, "a source with a path needs its scheme"
		}
		full = "http://" + full
	}
	u, userinfo, err := parse(URL{}, full)
	switch {
	case err != nil:
		return source{}, messageOf(err)
	case userinfo:
		return source{}, "a source holds no user name or password"
	case strings.Contains(u.Host(), "*"):
		return source{}, "a * stands only at the beginning and only for whole labels of a host"
	case strings.Contains(u.Host(), ","):
		return source{}, "a host holds no comma" // it would end the entry in Strings
	case strings.ContainsAny(full, "?#"):
		return source{}, "a source holds no query and no fragment"
	}
	u = u.normal()
	src.host = u.bracketed()
	if src.subdomains && isAddress(src.host) {
		return source{}, "an IP address has no subdomains"
	}
	if isURL {
		src.scheme = u.Scheme()
		src.path = u.Path()
		src.port = strings.TrimPrefix(u.s[u.hostEnd:u.path], ":")
		return src, ""
	}
	if strings.HasSuffix(entry, ":") {
		return source{}, "the port is missing behind the colon"
	}
	// The parser drops :80, which here says more than no port at all.
	if !strings.HasSuffix(entry, "]") && strings.Contains(entry, ":") {
		src.port = u.Port()
	}
	return src, ""
}

// messageOf returns what a fault of ours says to a person.
func messageOf(err error) string {
	var f *Fault
	if errors.As(err, &f) {
		return f.Message
	}
	return "the URL cannot be read"
}

// isAddress reports whether a canonical host is an IP address.
func isAddress(host string) bool { return strings.HasPrefix(host, "[") || dottedQuad(host) }

// Strings returns the entries in their canonical spelling. Joined with commas
// they parse to the same Sources.
func (s Sources) Strings() []string {
	out := make([]string, 0, len(s.entries))
	for _, e := range s.entries {
		out = append(out, e.String())
	}
	return out
}

func (e source) String() string {
	if e.any {
		return "*"
	}
	text := e.host
	if e.subdomains {
		text = "*." + text
	}
	if e.port != "" {
		text += ":" + e.port
	}
	if e.scheme != "" {
		text = e.scheme + "://" + text + e.path
	}
	return text
}

// Within returns the sources that both s and other allow, and no more: what a tenant may
// crawl of what the service allows.
func (s Sources) Within(other Sources) Sources {
	var out Sources
	seen := map[source]bool{}
	for _, a := range s.entries {
		for _, b := range other.entries {
			if both, ok := a.and(b); ok && !seen[both] {
				seen[both] = true
				out.entries = append(out.entries, both)
			}
		}
	}
	return out
}

// and returns the entry that allows what both e and b do; false when that is nothing.
func (e source) and(b source) (source, bool) {
	switch {
	case e.any:
		return b, true
	case b.any:
		return e, true
	case e.scheme == "":
		e, b = b, e // e has the scheme, if there is one
	}
	out := e
	switch {
	case e.host == b.host:
		// What is below a host is not the host itself.
		if e.subdomains != b.subdomains {
			return source{}, false
		}
	case b.subdomains && isBelow(e.host, b.host):
	case e.subdomains && isBelow(b.host, e.host):
		out.host, out.subdomains = b.host, b.subdomains
	default:
		return source{}, false
	}
	var ok bool
	if out.scheme, out.port, ok = e.sockets(b); !ok {
		return source{}, false
	}
	switch {
	case hasPathPrefix(b.path, e.path):
		out.path = b.path
	case !hasPathPrefix(e.path, b.path):
		return source{}, false
	}
	if out.scheme != "" && out.path == "" {
		out.path = "/"
	}
	return out, true
}

// sockets returns the scheme and the port that both entries allow. b has a scheme only if
// e has one. An entry with neither stands for http on 80 and https on 443.
func (e source) sockets(b source) (scheme, port string, ok bool) {
	switch {
	case e.scheme != "":
		if b.scheme != "" && b.scheme != e.scheme {
			return "", "", false
		}
		standard := map[string]string{"http": "80", "https": "443"}[e.scheme]
		return e.scheme, e.port, cmp.Or(e.port, standard) == cmp.Or(b.port, standard)
	case e.port == b.port:
		return "", e.port, true
	case e.port != "" && b.port != "":
		return "", "", false
	}
	switch e.port + b.port {
	case "80":
		return "http", "", true
	case "443":
		return "https", "", true
	}
	return "", "", false
}

// Allows reports whether u may be crawled. The zero URL may not.
func (s Sources) Allows(u URL) bool {
	return !u.IsZero() && s.allowNormal(u.normal())
}

func (s Sources) allowNormal(u URL) bool {
	for i := range s.entries {
		if s.entries[i].allows(u) {
			return true
		}
	}
	return false
}

// allows is given URLs in normal form.
func (e *source) allows(u URL) bool {
	if e.any {
		return true
	}
	host := u.bracketed()
	if e.subdomains {
		if !isBelow(host, e.host) {
			return false
		}
	} else if host != e.host {
		return false
	}
	if e.scheme != "" && e.scheme != u.Scheme() {
		return false
	}
	switch {
	case e.port == "" && u.hostEnd < u.path: // not on its default port
		return false
	case e.port != "" && e.port != u.Port():
		return false
	}
	path := u.Path()
	return len(e.path) <= 1 || (hasPathPrefix(path, e.path) && !climbs(path))
}

// isBelow reports whether host is a subdomain of parent.
func isBelow(host, parent string) bool {
	n := len(host) - len(parent)
	return n > 1 && host[n-1] == '.' && host[n:] == parent
}

// hasPathPrefix reports whether path is dir or below it.
func hasPathPrefix(path, dir string) bool {
	if !strings.HasPrefix(path, dir) {
		return false
	}
	return dir == "" || len(path) == len(dir) || dir[len(dir)-1] == '/' || path[len(dir)] == '/'
}

// climbs reports whether a path in normal form could leave its prefix. The parser resolved
// every dot segment, but some servers decode %2F and %5C before they look for them, and
// servlet containers drop what is behind a ";" in each segment.
func climbs(path string) bool {
	if !strings.ContainsAny(path, "%;") {
		return false
	}
	path = encodedSlashes.Replace(path)
	for segment := range strings.SplitSeq(path, "/") {
		if name, _, _ := strings.Cut(segment, ";"); name == ".." {
			return true
		}
	}
	return false
}

// encodedSlashes reads what some servers take for a slash as one; a path in normal form
// has encodings in upper case.
var encodedSlashes = strings.NewReplacer("%2F", "/", "%5C", "/")
