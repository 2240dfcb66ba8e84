package crawl

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds of drop_params.
const (
	MaxDropParams     = 100
	MaxDropParamBytes = 100
)

// TrackingWord in drop_params stands for all of [TrackingParams].
const TrackingWord = "tracking"

// trackingParams are added to links by campaigns, mailings and advertisers, and are of no
// interest to the page. Names that sites also use for what they show (ref, source, id,
// campaign) are not among them.
var trackingParams = []string{
	"utm_*", "mtm_*", "piwik_*", "pk_campaign", "pk_cid", "pk_content", "pk_keyword", "pk_kwd", "pk_medium", "pk_source",
	"_ga", "_gl", "dclid", "gbraid", "gclid", "gclsrc", "srsltid", "wbraid", // Google
	"fbclid", "igshid", "li_fat_id", "msclkid", "rdt_cid", "ttclid", "twclid", "epik", "ScCid", // other networks
	"_openstat", "yclid", "ysclid", // Yandex
	"__hsfp", "__hssc", "__hstc", "_hsenc", "_hsmi", "hsCtaTracking", "mc_cid", "mc_eid", "mkt_tok", "oly_anon_id",
	"oly_enc_id", "vero_conv", "vero_id", // mailings
}

// TrackingParams returns the names and globs that [TrackingWord] stands for.
func TrackingParams() []string { return slices.Clone(trackingParams) }

// Names of query and path parameters that carry a session, in lower case. Those of the
// first list have no other use; the second list's are also names of other things, so
// only a digest of 128 bits or more, in hexadecimal, is taken for a session.
var (
	sessionParams = []string{"jsessionid", "phpsessid", "oscsid", "zenid", "xtcsid"}
	digestParams  = []string{"sid", "s", "session", "sessionid", "session_id", "sessid"}
)

const (
	// aspSession begins the name of ASP's session cookie, which some servers put into
	// links; the rest of it is random.
	aspSession = "aspsessionid"
	// sessionDigits is the length of an MD5 digest: PHP's, phpBB's and vBulletin's sessions.
	sessionDigits = 32
)

// isSession reports whether a parameter names a session of the reader and nothing of the
// page.
func isSession(name, value string) bool {
	if value == "" {
		return false
	}
	for _, s := range sessionParams {
		if len(name) == len(s) && strings.EqualFold(name, s) {
			return true
		}
	}
	if len(name) > len(aspSession) && strings.EqualFold(name[:len(aspSession)], aspSession) {
		return true
	}
	return len(value) >= sessionDigits && slices.ContainsFunc(digestParams, func(s string) bool {
		return strings.EqualFold(name, s)
	}) && allHex(value)
}

func allHex(s string) bool {
	for i := range len(s) {
		if unhex(s[i]) < 0 {
			return false
		}
	}
	return true
}

// paramRules say which parameters of a query are dropped, and whether the rest is sorted.
type paramRules struct {
	names map[string]struct{} // without a wildcard
	globs []glob
	sort  bool
}

// compileParams compiles drop_params and appends a fault for every entry that could
// match no parameter.
func compileParams(names []string, sort bool, faults []FieldFault) (paramRules, []FieldFault) {
	p := paramRules{sort: sort}
	if len(names) > MaxDropParams {
		return p, append(faults, FieldFault{
			Field: "drop_params", Rule: "max",
			Message: fmt.Sprintf("Give at most %d names, not %d.", MaxDropParams, len(names)),
		})
	}
	for i, name := range names {
		if message := paramMessage(name); message != "" {
			faults = append(faults, FieldFault{
				Field: fmt.Sprintf("drop_params[%d]", i), Rule: "pattern", Message: message,
			})
			continue
		}
		if slices.Contains(names[:i], name) {
			continue // a list of one word would match each link a hundred times over
		}
		if name != TrackingWord {
			p.drop(name)
			continue
		}
		for _, tracking := range trackingParams {
			p.drop(tracking)
		}
	}
	return p, faults
}

// paramMessage says for a person what is wrong with an entry of drop_params.
func paramMessage(name string) string {
	switch {
	case name == "":
		return "The name is empty. Leave it out."
	case len(name) > MaxDropParamBytes:
		return fmt.Sprintf("A name has at most %d bytes, this one has %d.", MaxDropParamBytes, len(name))
	case strings.ContainsFunc(name, isControl):
		return "A name holds no control characters. Remove them."
	case strings.ContainsAny(name, "&=#?"):
		return "Give the name alone, without ?, = and value; several names are several entries."
	}
	return ""
}

func (p *paramRules) drop(name string) {
	name = normalName(string(appendQuery(nil, name)))
	if !strings.Contains(name, "*") {
		if p.names == nil {
			p.names = map[string]struct{}{}
		}
		p.names[name] = struct{}{}
		return
	}
	// In the name of a parameter a slash is a character like any other. Such globs take no
	// steps, so that all that is to go goes, whatever the length of list and query.
	p.globs = append(p.globs, compileGlob(strings.ReplaceAll(name, "*", "**")))
}

func (p *paramRules) drops(name string) bool {
	if len(p.names) == 0 && len(p.globs) == 0 {
		return false
	}
	name = normalName(name)
	if _, ok := p.names[name]; ok {
		return true
	}
	var none steps // see drop
	for i := range p.globs {
		if matched, _ := p.globs[i].match(name, &none); matched {
			return true
		}
	}
	return false
}

// normalName brings the name of a parameter into the form of [URL.Key].
func normalName(name string) string {
	if strings.IndexByte(name, '%') < 0 {
		return name
	}
	return string(appendNormalPercent(nil, name))
}

// Canonical returns the URL that stands for u in this job: without the parameters of
// drop_params, with the others in order if sort_params says so, and without session ids.
// It is what links are fetched and known as, since a site that is asked for
// /p?utm_source=a and /p?utm_source=b answers one page. Parameters are sorted by their
// name; those of one name keep their order, since it may mean something.
//
// Session ids go always: ";jsessionid=" in a path, and the parameters PHPSESSID,
// JSESSIONID, osCsid, zenid, XTCsid and ASPSESSIONID…, in any letter case; sid, s,
// session, sessionid, session_id and sessid only with 32 or more hexadecimal digits,
// since they name other things, too. Each request may get another one, so every page
// would be found without end.
//
// Inputs are fetched as [Rules.CanonicalInput] says. The
// target of a redirect is to be fetched as the site gave it, or a site that adds a
// parameter would send the crawler round in circles; what it is recorded and
// deduplicated as is its canonical form. Host and scheme never change, and a URL that
// is canonical is returned as it is, without an allocation.
func (r *Rules) Canonical(u URL) URL { return r.params.canonical(u, true) }

// CanonicalInput is [Rules.Canonical] for a URL that a submission names: session ids stay,
// since whoever names a URL means it.
func (r *Rules) CanonicalInput(u URL) URL { return r.params.canonical(u, false) }

func (p *paramRules) canonical(u URL, sessions bool) URL {
	path, query := u.Path(), u.Query()
	if sessions && strings.IndexByte(path, ';') >= 0 {
		path = withoutSessions(path)
	}
	samePath := len(path) == len(u.Path())
	if query == "" || !p.changes(query, sessions) {
		if samePath {
			return u
		}
		return u.with(path, u.s[u.pathEnd:])
	}
	return u.with(path, p.rewrite(query, sessions))
}

// with returns u with another path and query, the latter with its "?" or empty.
func (u URL) with(path, query string) URL {
	return URL{
		s: u.s[:u.path] + path + query, hostEnd: u.hostEnd, path: u.path, pathEnd: u.path + uint16(len(path)),
	}
}

// changes reports whether rewrite would make another query of q. Nearly all links are
// decided here.
func (p *paramRules) changes(q string, sessions bool) bool {
	last := ""
	for piece := range strings.SplitSeq(q, "&") {
		name, value, _ := strings.Cut(piece, "=")
		if p.drops(name) || (sessions && isSession(name, value)) {
			return true
		}
		if p.sort {
			name = normalName(name)
			if piece == "" || name < last {
				return true
			}
			last = name
		}
	}
	return false
}

// rewrite returns "?" and what is left of a query, or "".
func (p *paramRules) rewrite(q string, sessions bool) string {
	kept := make([]string, 0, strings.Count(q, "&")+1)
	for piece := range strings.SplitSeq(q, "&") {
		name, value, _ := strings.Cut(piece, "=")
		if p.drops(name) || (sessions && isSession(name, value)) || (p.sort && piece == "") {
			continue
		}
		kept = append(kept, piece)
	}
	if p.sort {
		slices.SortStableFunc(kept, func(a, b string) int { return strings.Compare(pieceName(a), pieceName(b)) })
	}
	if q = strings.Join(kept, "&"); q == "" {
		return ""
	}
	return "?" + q
}

func pieceName(piece string) string {
	name, _, _ := strings.Cut(piece, "=")
	return normalName(name)
}

// withoutSessions returns path without the session ids in its segments. One behind
// dots stays: without it they would mean another directory.
func withoutSessions(path string) string {
	b := make([]byte, 0, len(path))
	for i, segment := range strings.Split(path, "/") {
		if i > 0 {
			b = append(b, '/')
		}
		start := len(b)
		for j, piece := range strings.Split(segment, ";") {
			name, value, _ := strings.Cut(piece, "=")
			if j > 0 && isSession(name, value) {
				continue
			}
			if j > 0 {
				b = append(b, ';')
			}
			b = append(b, piece...)
		}
		if dots(b[start:]) > 0 {
			b = append(b[:start], segment...)
		}
	}
	return string(b)
}
