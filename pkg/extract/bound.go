package extract

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Bounds of the tree of a page. A node takes some 130 bytes and an attribute some 70; a page of two
// megabytes has some 100,000 nodes.
const (
	MaxNodes     = 300_000
	MaxTreeBytes = 64 << 20
	nodeBytes    = 128
	attrBytes    = 96
	// maxAttrs bounds the attributes of one tag. A tokenizer clears its table of them at each tag,
	// so that after one tag of a hundred thousand every other takes as long.
	maxAttrs = 1000
)

// formatting are the elements that a parser opens anew in every block behind one in which they
// were left open (HTML section 13.2.4.3). A short page of some hundred of them and some thousand
// blocks is a tree of millions of nodes. Of a and nobr one at a time is open.
var formatting = map[atom.Atom]bool{
	atom.A: true, atom.B: true, atom.Big: true, atom.Code: true, atom.Em: true, atom.Font: true, atom.I: true,
	atom.Nobr: true, atom.S: true, atom.Small: true, atom.Strike: true, atom.Strong: true, atom.Tt: true, atom.U: true,
}

// walls are elements behind which an end tag does not reach what was opened before them: it is
// not taken for its end here, where a parser may not take it either.
var walls = map[atom.Atom]bool{
	atom.Table: true, atom.Td: true, atom.Th: true, atom.Caption: true, atom.Select: true, atom.Svg: true,
	atom.Math: true, atom.Template: true, atom.Object: true, atom.Applet: true, atom.Marquee: true,
	atom.Frameset: true, atom.Button: true, atom.Colgroup: true, atom.Html: true,
}

// tooMuch reports whether the tree of a page may be larger than the bounds.
func tooMuch(page []byte) bool {
	nodes, size := estimate(page)
	return nodes > MaxNodes || size > MaxTreeBytes
}

// estimate answers how many nodes the tree of a page has at most, and about how many bytes. The
// nodes are never fewer than those of the tree, unless they are more than the bound.
func estimate(page []byte) (nodes, size int) {
	e := estimator{z: html.NewTokenizer(bytes.NewReader(page)), page: page, count: 4}
	for e.count <= MaxNodes && e.size <= MaxTreeBytes && e.next() {
	}
	return e.count, e.size + e.count*nodeBytes
}

// estimator is one reading of a page. It has every formatting element that a parser may have as
// active, and perhaps more.
type estimator struct {
	z       *html.Tokenizer
	page    []byte
	at      int // of what is not read yet
	count   int // nodes
	size    int // bytes of texts and attributes
	left    []active
	same    map[string]int // how many of left are written the same
	stack   []atom.Atom    // blocks and walls that may be open
	walls   int            // of stack
	foreign int            // svg and math elements that may be open
	// mixed says that HTML may be in the middle of what is foreign, so that the end tag of svg may
	// not be one.
	mixed bool
	// kinds are the elements that a parser opens anew at most, three of each kind, and attrs their
	// attributes.
	kinds, attrs int
}

// active is a formatting element that may be open.
type active struct {
	tag   string // as it stands in the page
	name  atom.Atom
	attrs int
	depth int // of the stack
	walls int // how many of it were walls
}

// next reads a token. It reports false behind the last.
func (e *estimator) next() bool {
	kind := e.z.Next()
	raw := e.z.Raw()
	e.at += len(raw)
	e.size += len(raw)
	switch kind {
	case html.ErrorToken:
		if !errors.Is(e.z.Err(), io.EOF) {
			e.giveUp()
		}
		return false
	case html.CommentToken:
		if (e.foreign > 0 || e.mixed) && bytes.HasPrefix(raw, []byte("<![CDATA[")) {
			e.cdata(raw)
		}
		e.count++
	case html.TextToken:
		e.count++
	case html.StartTagToken, html.SelfClosingTagToken:
		e.start(raw, nameOfTag(raw[len("<"):]), kind == html.SelfClosingTagToken)
	case html.EndTagToken:
		e.end(nameOfTag(raw[len("</"):]))
	}
	return true
}

// giveUp makes the page one that is too large: it cannot be told what a parser makes of it.
func (e *estimator) giveUp() { e.count = MaxNodes + 1 }

func (e *estimator) start(raw []byte, name atom.Atom, closed bool) {
	e.count += 1 + implied[name]
	attrs := e.attributes()
	e.size += attrBytes * attrs
	if attrs > maxAttrs {
		e.giveUp()
		return
	}
	switch {
	case name == atom.Noscript:
		e.z.NextIsNotRawText() // it is markup where scripts do not run
	case e.foreign > 0 || e.mixed:
		e.startForeign(raw)
	}
	switch {
	case formatting[name]:
		e.open(active{tag: string(raw), name: name, attrs: attrs, depth: len(e.stack), walls: e.walls})
	case (name == atom.Svg || name == atom.Math) && closed, inline[name]:
	default:
		e.stack = append(e.stack, name)
		if walls[name] {
			e.walls++
		}
		if name == atom.Svg || name == atom.Math {
			e.foreign++
		}
	}
	if !inline[name] && !formatting[name] || name == atom.A || name == atom.Nobr || e.foreign > 0 || e.mixed {
		e.reopen(1)
	}
}

// attributes returns how many attributes the tag has that was just read.
func (e *estimator) attributes() int {
	for n := 0; ; n++ {
		if key, _, _ := e.z.TagAttr(); len(key) == 0 {
			return n
		}
	}
}

// reopen counts what a parser opens anew, as it may do once behind each tag that ends elements.
func (e *estimator) reopen(times int) {
	e.count += times * e.kinds
	e.size += times * e.attrs * attrBytes
}

// implied is how many elements a tag has around it that are not written.
var implied = map[atom.Atom]int{atom.Td: 2, atom.Th: 2, atom.Tr: 1, atom.Col: 1}

// startForeign sees to elements that are raw text in HTML and markup in SVG, or that have HTML in
// SVG or MathML. Where nothing but text is in them, it makes no difference.
func (e *estimator) startForeign(raw []byte) {
	name := string(bytes.ToLower(tagBytes(raw[len("<"):])))
	if !rawText[name] && !integration[name] {
		return
	}
	rest := e.page[e.at:]
	if i := bytes.IndexByte(rest, '<'); i >= 0 {
		rest = rest[i:]
		if data, ok := bytes.CutPrefix(rest, []byte("<![CDATA[")); ok {
			i := bytes.IndexByte(data, '<')
			if i < 0 {
				return
			}
			rest = data[i:]
		}
	}
	if len(rest) > len(name)+2 && rest[1] == '/' && bytes.EqualFold(rest[2:2+len(name)], []byte(name)) {
		return
	}
	if rawText[name] {
		e.giveUp()
	}
	e.mixed = true
}

// cdata sees to a CDATA section, which ends elsewhere in HTML than in SVG.
func (e *estimator) cdata(raw []byte) {
	data := e.page[e.at-len(raw)+len("<![CDATA["):]
	if end := bytes.Index(data, []byte("]]>")); end < 0 || bytes.IndexByte(data[:end], '<') >= 0 {
		e.giveUp()
	}
}

func (e *estimator) end(name atom.Atom) {
	if name == atom.P || name == atom.Br {
		e.count++ // without a start it makes an element
	}
	defer e.reopen(1)
	switch {
	case formatting[name]:
		e.close(name)
	case name == atom.Svg || name == atom.Math:
		if !e.mixed {
			e.popForeign(name)
		}
	case !inline[name]:
		e.pop(name)
	}
}

// pop takes a block off the stack where only elements whose end tag may be left out are above it.
func (e *estimator) pop(name atom.Atom) {
	for i := len(e.stack) - 1; i >= 0; i-- {
		if e.stack[i] == name {
			e.cut(i)
			return
		}
		if !optional[e.stack[i]] || partial[name] {
			return
		}
	}
}

func (e *estimator) popForeign(name atom.Atom) {
	for i := len(e.stack) - 1; i >= 0; i-- {
		if e.stack[i] == name {
			e.cut(i)
			return
		}
		if e.stack[i] != 0 { // an element that HTML knows may have ended what is foreign
			return
		}
	}
}

func (e *estimator) cut(to int) {
	for _, name := range e.stack[to:] {
		if walls[name] {
			e.walls--
		}
		if name == atom.Svg || name == atom.Math {
			e.foreign--
		}
	}
	e.stack = e.stack[:to]
}

// open adds a formatting element.
func (e *estimator) open(o active) {
	if o.name == atom.A || o.name == atom.Nobr {
		e.close(o.name) // one ends the one before
	}
	e.left = append(e.left, o)
	if e.same == nil {
		e.same = map[string]int{}
	}
	// A parser keeps three of the same, the "Noah's Ark clause".
	if e.same[o.tag]++; e.same[o.tag] <= 3 {
		e.kinds++
		e.attrs += o.attrs
	}
}

// deepest is through how many blocks the end tag of a formatting element surely reaches: the
// adoption agency algorithm runs eight times.
const deepest = 7

// close takes the last element of a name away, if a parser surely does.
func (e *estimator) close(name atom.Atom) {
	for i := len(e.left) - 1; i >= 0; i-- {
		o := e.left[i]
		if o.name != name {
			continue
		}
		inside := len(e.stack) - o.depth
		if inside > 0 {
			// The algorithm copies at most four elements each time that it runs.
			e.count += 4 * min(inside+1, 8)
			e.size += e.attrs * attrBytes * min(inside+1, 8)
		}
		if inside < 0 || inside > deepest || e.walls != o.walls {
			return
		}
		e.left = append(e.left[:i], e.left[i+1:]...)
		if e.same[o.tag]--; e.same[o.tag] < 3 {
			e.kinds--
			e.attrs -= o.attrs
		}
		return
	}
}

// inline are elements that are no block for the adoption agency algorithm, or empty ones.
var inline = atomsOf("abbr bdi bdo cite data del dfn ins kbd label mark q rb rp rt rtc ruby samp span strike sub " +
	"sup time tt var area base br col embed hr img input link meta param source track wbr")

// optional are the blocks whose end tag may be left out.
var optional = atomsOf("p li dt dd")

// partial are elements whose start tag a parser leaves out where it does not expect one.
var partial = atomsOf("html head body frameset form table caption colgroup thead tbody tfoot tr td th option optgroup select")

// rawText are the elements whose content is no markup in HTML.
var rawText = namesOf("script style title textarea iframe noembed noframes xmp plaintext noscript")

// integration are the elements of SVG and MathML that have HTML inside.
var integration = namesOf("title desc foreignobject mi mo mn ms mtext annotation-xml")

func atomsOf(names string) map[atom.Atom]bool {
	m := map[atom.Atom]bool{}
	for name := range strings.FieldsSeq(names) {
		m[atom.Lookup([]byte(name))] = true
	}
	return m
}

func namesOf(names string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		m[name] = true
	}
	return m
}

func tagBytes(tag []byte) []byte {
	if end := bytes.IndexAny(tag, " \t\n\f\r/>"); end >= 0 {
		return tag[:end]
	}
	return tag
}

// nameOfTag returns the name of a tag, 0 where HTML does not know it.
func nameOfTag(tag []byte) atom.Atom {
	name := tagBytes(tag)
	if len(name) > len("annotation-xml") {
		return 0
	}
	return atom.Lookup(bytes.ToLower(name))
}
