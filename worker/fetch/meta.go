package fetch

import (
	"bytes"
	"strings"

	"golang.org/x/net/html"

	"example.com/trawl/worker/robots"
)

// maxDirectives bounds the bytes of robots directives that are read of a page. Pages
// have a few dozen; those that are made of dates would take seconds.
const maxDirectives = 16 << 10

// meta takes what a meta element asks of a crawler: robots directives and where a
// refresh leads. It counts wherever it stands, as in a parser: in the head, the
// body, or a noscript, which is for readers without scripts, like this one.
func (p *parser) meta(z *html.Tokenizer) {
	if p.product == "" && !p.links {
		return
	}
	var name, pragma, content []byte
	for more := true; more; {
		var k, v []byte
		k, v, more = z.TagAttr()
		switch string(k) {
		case "name":
			name = v
		case "http-equiv":
			pragma = v
		case "content":
			content = v
		}
	}
	if p.mayBeDirective(bytes.Trim(name, htmlSpace)) && p.directives < maxDirectives {
		content := content[:min(len(content), maxDirectives-p.directives)]
		p.directives += len(content) + 1
		p.robots = p.robots.Merge(robots.ParseMeta(string(name), string(content), p.product))
	}
	if p.links && bytes.EqualFold(pragma, []byte("refresh")) {
		p.refresh(content)
	}
}

// mayBeDirective reports whether robots directives can be under the name. It is
// for speed: most meta elements are about something else.
func (p *parser) mayBeDirective(name []byte) bool {
	if p.product == "" || len(name) == 0 {
		return false
	}
	first := name[0] | 0x20
	return first == 'r' || name[0] == '*' || first == p.product[0]|0x20
}

// refresh notes the target of a refresh as a link of the page, see
// [Result.Links]. A page that only reloads itself names none.
func (p *parser) refresh(content []byte) {
	if target, ok := refreshTarget(string(content)); ok {
		p.hrefs = append(p.hrefs, target...)
		p.refs = append(p.refs, ref{end: len(p.hrefs)})
	}
}

// refreshTarget reads the content of a refresh by the "shared declarative refresh
// steps" of HTML section 4.2.5.3; "5; url=x" and "5,x" are both right there. It
// reports false when that is invalid or names no URL.
func refreshTarget(s string) (string, bool) {
	s = strings.TrimLeft(s, htmlSpace)
	rest := strings.TrimLeft(s, "0123456789")
	if len(rest) == len(s) && !strings.HasPrefix(s, ".") {
		return "", false
	}
	rest = strings.TrimLeft(rest, "0123456789.")
	if rest == "" || !strings.ContainsAny(rest[:1], ";,"+htmlSpace) {
		return "", false
	}
	rest = strings.TrimLeft(rest, htmlSpace)
	if rest != "" && (rest[0] == ';' || rest[0] == ',') {
		rest = strings.TrimLeft(rest[1:], htmlSpace)
	}
	rest = afterURLName(rest)
	if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
		rest, _, _ = strings.Cut(rest[1:], rest[:1])
	}
	return rest, rest != ""
}

// afterURLName skips "url =" in front of a target.
func afterURLName(s string) string {
	const name = "url"
	if len(s) > len(name) && strings.EqualFold(s[:len(name)], name) {
		if v, ok := strings.CutPrefix(strings.TrimLeft(s[len(name):], htmlSpace), "="); ok {
			return strings.TrimLeft(v, htmlSpace)
		}
	}
	return s
}
