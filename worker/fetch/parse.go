package fetch

import (
	"bytes"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/text/encoding"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/worker/robots"
)

const (
	// What a record keeps of a title. Longer ones are not titles but mistakes of
	// a template, and every record holds one.
	maxTitleBytes = 1024
	// RFC 5646 section 4.4.1 asks for at least 35 characters.
	maxLanguageBytes = 35
	// Nested templates and foreign elements that are told apart; browsers stop
	// nesting at 512.
	maxNesting = 512
	// A tag longer than this gets the rest of the page a new tokenizer: the old
	// one clears its table of attribute names at every tag, and the table of one
	// tag with a million attributes would make every later tag cost milliseconds.
	longTag = 1 << 10

	// What the links of a page may take, all together. Two thousand of the longest, made
	// by one long base, would be 16 MB of a page of 20 KB; real ones have 100 bytes each.
	maxLinkBytes = 1 << 20
	// Links that are none, one of which costs more than a good one. Scripts of real pages
	// have hundreds.
	maxBadLinks = 10 * DefaultMaxLinks

	htmlSpace = "\t\n\f\r "
)

// parser holds what one pass over a page finds.
type parser struct {
	document crawl.URL // what relative links are relative to, unless a base says otherwise
	links    bool
	maxLinks int
	xhtml    bool
	plain    bool // the page is no HTML, so that a meta element says nothing

	product string // of the robots directives that count; "" for none

	encoding       encoding.Encoding // nil for UTF-8
	charset        string
	charsetFrom    CharsetFrom
	decodingErrors bool

	title     string
	language  string
	canonical string
	robots    robots.Directives
	found     []Link
	bad       map[crawl.Reason]int

	hasTitle, hasBase, hasHTML, hasCanonical bool
	base, canonicalRef                       string
	hrefs                                    []byte // the hrefs of refs, one after the other
	refs                                     []ref
	seen                                     map[crawl.Key]int // of found; nil, or empty until they are resolved
	directives                               int               // bytes of them
	nesting                                  []element
	markup                                   bool // what follows the start tag at hand is markup, whatever its name
}

// ref is one link element: the end of its href in parser.hrefs, where it begins
// at the end of the one before.
type ref struct {
	end      int
	nofollow bool
}

// element is what an open element means for those in it.
type element byte

const (
	template    element = iota // its content is not part of the page
	svg                        // foreign content
	math                       // foreign content
	integration                // HTML again, within foreign content
)

// parseHTML reads a page, valid UTF-8, in one pass of the tokenizer, without a
// tree. Links are resolved after it: a base counts for those before it too.
func (p *parser) parseHTML(page []byte) {
	room := newScratch(page)
	room.lend(p)
	p.pass(room)
	p.resolve()
	room.takeBack(p)
	room.release()
}

// pass notes what is in a page.
func (p *parser) pass(room *scratch) {
	src, z, page := &room.source, &room.tokenizer, room.source.page
	read, inTitle := 0, false
	var nameBuf [maxTagName]byte
	for {
		tt := z.Next()
		raw := len(z.Raw())
		room.spoilt = room.spoilt || raw > longTag && tt != html.TextToken && tt != html.CommentToken
		if tt == html.ErrorToken && errors.Is(z.Err(), errGiantTag) {
			room.spoilt = true
			var tag []byte
			if tag, raw = shortened(page[read:]); raw > 0 {
				z = src.tokenizer(tag, read+raw)
				tt = z.Next()
			}
		}
		read += raw
		src.token, src.raw = read, false
		switch tt {
		case html.ErrorToken:
			// The end. A tag that it cuts off is no element.
			room.spoilt = room.spoilt || len(page)-read > longTag
			return
		case html.TextToken:
			if inTitle {
				p.title = title(z.Text())
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			name := tagName(&nameBuf, z.Raw()[len("<"):])
			inTitle = p.start(z, name, tt == html.SelfClosingTagToken)
			src.raw = !p.markup && rawElements[string(name)]
			if raw > longTag {
				z = p.anew(src, name)
			}
			z.AllowCDATA(p.foreign())
			continue
		case html.EndTagToken:
			if len(p.nesting) > 0 {
				p.end(tagName(&nameBuf, z.Raw()[len("</"):]))
				z.AllowCDATA(p.foreign())
			}
		}
		inTitle = false
	}
}

// anew returns a new tokenizer for what follows a start tag. A short tag of the same
// name in front of it makes the tokenizer take the text of a script or a title for what
// it is.
func (p *parser) anew(src *source, name []byte) *html.Tokenizer {
	if !src.raw {
		name = []byte("p")
	}
	z := src.tokenizer([]byte("<"+string(name)+">"), src.token)
	z.Next()
	return z
}

// maxTagName is longer than any name that matters here.
const maxTagName = 16

// tagName returns the lower-case name at the start of a tag, "" for one that is
// longer than any that matters. Unlike Tokenizer.TagName it allocates nothing,
// and most tags of a page are of no interest.
func tagName(buf *[maxTagName]byte, tag []byte) []byte {
	for i, c := range tag {
		switch {
		case c == '>' || c == '/' || isSpace(c):
			return buf[:i]
		case i == len(buf):
			return nil
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		}
		buf[i] = c
	}
	return nil
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' }

// start handles a start tag and reports whether the text behind it is the
// title's.
func (p *parser) start(z *html.Tokenizer, name []byte, selfClosing bool) (isTitle bool) {
	if len(p.nesting) > 0 && p.foreign() && breaksOut[string(name)] {
		p.leaveForeign()
	}
	foreign := p.foreign()
	// Only HTML elements have raw text; and an empty XHTML element has none. What is for
	// readers without scripts is for us.
	if p.markup = foreign || selfClosing && p.xhtml || string(name) == "noscript"; p.markup {
		z.NextIsNotRawText()
	}
	switch string(name) {
	case "a", "area":
		if p.links && !foreign && !p.inert() {
			p.link(z, "href")
		}
	case "frame":
		if p.links && !foreign && !p.inert() {
			p.link(z, "src")
		}
	case "base":
		if !p.hasBase && len(p.nesting) == 0 {
			p.base, p.hasBase = attribute(z, "href")
		}
	case "html":
		if !p.hasHTML && len(p.nesting) == 0 {
			p.hasHTML = true
			if lang, ok := attribute(z, "lang", "xml:lang"); ok {
				p.language = language(lang)
			}
		}
	case "link":
		if !p.hasCanonical && len(p.nesting) == 0 {
			p.canonicalLink(z)
		}
	case "meta":
		if !foreign && !p.inert() {
			p.meta(z)
		}
	case "title":
		switch {
		case foreign:
			if !selfClosing && p.nesting[len(p.nesting)-1] == svg {
				p.push(integration)
			}
		case !p.hasTitle && len(p.nesting) == 0:
			p.hasTitle = true
			return !selfClosing || !p.xhtml
		}
	case "template":
		// In foreign content it is an element like any other.
		if !foreign {
			p.push(template)
		}
	case "svg":
		if !selfClosing {
			p.push(svg)
		}
	case "math":
		if !selfClosing {
			p.push(math)
		}
	case "foreignobject", "desc":
		if !selfClosing && foreign && p.nesting[len(p.nesting)-1] == svg {
			p.push(integration)
		}
	case "mi", "mo", "mn", "ms", "mtext":
		if !selfClosing && foreign && p.nesting[len(p.nesting)-1] == math {
			p.push(integration)
		}
	}
	return false
}

// end handles an end tag within a template or foreign content.
func (p *parser) end(name []byte) {
	switch string(name) {
	case "template":
		p.pop(template)
	case "svg":
		p.pop(svg)
	case "math":
		p.pop(math)
	case "foreignobject", "desc", "title", "mi", "mo", "mn", "ms", "mtext":
		if p.nesting[len(p.nesting)-1] == integration {
			p.nesting = p.nesting[:len(p.nesting)-1]
		}
	default:
		// The end of an HTML element around it ends foreign content that was left open.
		if p.foreign() && (breaksOut[string(name)] || aroundForeign[string(name)]) {
			p.leaveForeign()
		}
	}
}

func (p *parser) push(e element) {
	if len(p.nesting) < maxNesting {
		p.nesting = append(p.nesting, e)
	}
}

// pop closes the innermost e and everything in it, but no template around it:
// an end tag in a template cannot close what is outside.
func (p *parser) pop(e element) {
	for i := len(p.nesting) - 1; i >= 0; i-- {
		if p.nesting[i] == e {
			p.nesting = p.nesting[:i]
			return
		}
		if p.nesting[i] == template {
			return
		}
	}
}

// foreign reports whether elements are SVG's or MathML's here, not HTML's.
func (p *parser) foreign() bool {
	if len(p.nesting) == 0 {
		return false
	}
	e := p.nesting[len(p.nesting)-1]
	return e == svg || e == math
}

// inert reports whether the parser is in a template.
func (p *parser) inert() bool {
	for _, e := range p.nesting {
		if e == template {
			return true
		}
	}
	return false
}

func (p *parser) leaveForeign() {
	for p.foreign() {
		p.nesting = p.nesting[:len(p.nesting)-1]
	}
}

// breaksOut has the elements whose start tag ends foreign content (HTML section
// 13.2.6.5); font does so by its attributes only and is left out.
var breaksOut = set(
	"b",
	"big",
	"blockquote",
	"body",
	"br",
	"center",
	"code",
	"dd",
	"div",
	"dl",
	"dt",
	"em",
	"embed",
	"h1",
	"h2",
	"h3",
	"h4",
	"h5",
	"h6",
	"head",
	"hr",
	"i",
	"img",
	"li",
	"listing",
	"menu",
	"meta",
	"nobr",
	"ol",
	"p",
	"pre",
	"ruby",
	"s",
	"small",
	"span",
	"strong",
	"strike",
	"sub",
	"sup",
	"table",
	"tt",
	"u",
	"ul",
	"var",
)

// aroundForeign has further elements that neither SVG nor MathML has, so that
// their end tag in foreign content belongs to an element around it.
var aroundForeign = set(
	"article",
	"aside",
	"button",
	"caption",
	"fieldset",
	"figure",
	"footer",
	"form",
	"header",
	"html",
	"label",
	"main",
	"nav",
	"section",
	"tbody",
	"td",
	"tfoot",
	"th",
	"thead",
	"tr",
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// attribute returns the first of the named attributes that the tag has.
func attribute(z *html.Tokenizer, names ...string) (val string, ok bool) {
	best := len(names)
	for more := true; more; {
		var k, v []byte
		k, v, more = z.TagAttr()
		for i, n := range names[:best] {
			if string(k) == n {
				val, ok, best = string(v), true, i
				break
			}
		}
	}
	return val, ok
}

// link notes a link element whose address is in the named attribute.
func (p *parser) link(z *html.Tokenizer, address string) {
	start, has, nofollow := len(p.hrefs), false, false
	for more := true; more; {
		var k, v []byte
		k, v, more = z.TagAttr()
		switch string(k) {
		case address:
			p.hrefs, has = append(p.hrefs, v...), true
		case "rel":
			nofollow = hasToken(v, "nofollow")
		}
	}
	if has {
		p.refs = append(p.refs, ref{end: len(p.hrefs), nofollow: nofollow})
	} else {
		p.hrefs = p.hrefs[:start]
	}
}

func (p *parser) canonicalLink(z *html.Tokenizer) {
	var href string
	canonical := false
	for more := true; more; {
		var k, v []byte
		k, v, more = z.TagAttr()
		switch string(k) {
		case "href":
			href = strings.Trim(string(v), htmlSpace)
		case "rel":
			canonical = hasToken(v, "canonical")
		}
	}
	if canonical && href != "" {
		p.canonicalRef, p.hasCanonical = href, true
	}
}

// hasToken reports whether the space-separated list v has the token, which is
// lower-case ASCII, in any case.
func hasToken(v []byte, token string) bool {
	for len(v) > 0 {
		i := bytes.IndexFunc(v, func(r rune) bool { return r < utf8.RuneSelf && isSpace(byte(r)) })
		if i < 0 {
			i = len(v)
		}
		if i == len(token) && strings.EqualFold(string(v[:i]), token) {
			return true
		}
		v = v[min(i+1, len(v)):]
	}
	return false
}

// resolve turns what the pass noted into URLs.
func (p *parser) resolve() {
	base := p.document
	if p.hasBase {
		// A base that is no http URL (javascript:, data:, about:) does not count, and
		// neither does any after it: HTML section 4.2.3.
		if u, err := p.document.ResolveEncoded(p.base, p.encoding); err == nil {
			base = u
		}
	}
	if p.hasCanonical {
		if u, err := base.ResolveEncoded(p.canonicalRef, p.encoding); err == nil {
			p.canonical = u.String()
		}
	}
	if len(p.refs) == 0 {
		return
	}
	hrefs := string(p.hrefs)
	p.found = make([]Link, 0, min(len(p.refs), p.maxLinks))
	seen := p.seen
	if seen == nil {
		seen = make(map[crawl.Key]int, min(len(p.refs), p.maxLinks))
	}
	start, size, bad := 0, 0, 0
	for i, r := range p.refs {
		href := hrefs[start:r.end]
		start = r.end
		if len(p.found) == p.maxLinks || size > maxLinkBytes || bad == maxBadLinks {
			// Not even parsed: the limits bound the work, too.
			p.refuse(crawl.RefusedLinkLimit, len(p.refs)-i)
			return
		}
		u, err := base.ResolveEncoded(href, p.encoding)
		if err != nil {
			p.refuse(crawl.RefusedReasonOf(err), 1)
			bad++
			continue
		}
		key := u.Key()
		if j, dup := seen[key]; dup {
			// One link that may be followed is enough.
			p.found[j].NoFollow = p.found[j].NoFollow && r.nofollow
			continue
		}
		seen[key] = len(p.found)
		size += len(u.String())
		p.found = append(p.found, Link{URL: u, Key: key, NoFollow: r.nofollow})
	}
}

func (p *parser) refuse(r crawl.Reason, n int) {
	if p.bad == nil {
		p.bad = map[crawl.Reason]int{}
	}
	p.bad[r] += n
}

// title returns the text of a title element as one line: white space collapsed
// as document.title does, control characters dropped, cut at maxTitleBytes.
func title(text []byte) string {
	b := make([]byte, 0, min(len(text), maxTitleBytes))
	space := false
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		c := text[:n]
		text = text[n:]
		switch {
		case strings.ContainsRune(htmlSpace, r):
			space = len(b) > 0
			continue
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', r == '\ufeff':
			continue
		}
		if r == utf8.RuneError {
			c = replacementChar
		}
		if len(b)+len(c)+1 > maxTitleBytes {
			break
		}
		if space {
			b, space = append(b, ' '), false
		}
		b = append(b, c...)
	}
	return string(b)
}

// language returns the value of a lang attribute when it can be a language tag.
func language(s string) string {
	s = strings.Trim(s, htmlSpace)
	if len(s) > maxLanguageBytes {
		return ""
	}
	for _, c := range []byte(s) {
		if !isLetter(c) && (c < '0' || c > '9') && c != '-' {
			return ""
		}
	}
	return s
}
