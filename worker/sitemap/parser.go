package sitemap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// Sitemaps have three levels, feeds with markup in them a dozen.
	maxDepth = 256
	// So many elements may stand before the root of a sitemap: a warning that the
	// server's script printed first.
	maxBeforeRoot = 100
	// The first line of a text sitemap with something on it begins within these.
	sniffBytes = 4 << 10
)

// role is what an open element means.
type role uint8

const (
	roleOther   role = iota
	roleRoot         // holds entries: the root, and the channel of RSS
	roleEntry        // an entry
	roleLoc          // the text is the address
	roleLink         // the attribute href is the address
	roleGUID         // the text is the address of an RSS item without a link
	roleLastMod      // the text is the time of the last change
	roleCreated      // the text is the time that counts when there is no other
)

func (r role) hasText() bool { return r >= roleLoc && r != roleLink }

// format is the vocabulary of one kind of document, in local names.
type format struct {
	kind    Kind
	channel string          // an element that holds entries, besides the root
	entries map[string]bool // the elements that are entries; true: of another sitemap
	values  map[string]role // the elements in an entry that matter
	// Sitemaps of which an entry has several addresses, or an address no entry
	// around it, exist; each is an entry then. In a feed the first link counts.
	loose bool
}

var (
	sitemapValues = map[string]role{"loc": roleLoc, "lastmod": roleLastMod}
	rssValues     = map[string]role{"link": roleLoc, "guid": roleGUID, "pubdate": roleLastMod}

	// formats are known by the name of the root.
	formats = map[string]*format{
		"urlset": {
			kind: KindURLSet, loose: true, values: sitemapValues,
			entries: map[string]bool{"url": false, "sitemap": true},
		},
		// Who calls the entries of an index <url> still means sitemaps: taken for
		// pages, all that they name would be lost.
		"sitemapindex": {
			kind: KindIndex, loose: true, values: sitemapValues,
			entries: map[string]bool{"url": true, "sitemap": true},
		},
		"rss": {kind: KindRSS, channel: "channel", entries: map[string]bool{"item": false}, values: rssValues},
		"rdf": {kind: KindRSS, entries: map[string]bool{"item": false}, values: rssValues},
		"feed": {
			kind: KindAtom, entries: map[string]bool{"entry": false},
			values: map[string]role{
				"link": roleLink, "updated": roleLastMod, "modified": roleLastMod,
				"published": roleCreated, "issued": roleCreated,
			},
		},
	}
)

// frame is an open element. Its name is in parser.names from start on.
type frame struct {
	start, prefix int // prefix is the length of it, with the colon
	role          role
}

// found is what was read of the entry at hand.
type found struct {
	open      bool // there is something to hand out, or to skip
	index     bool
	loc, guid string
	lastMod   time.Time
	created   time.Time
}

// parser finds the entries of one document.
type parser struct {
	scan  scanner
	max   int
	yield func(Entry) bool
	res   Result

	format *format // nil before the root
	before int     // elements before the root
	first  string  // the name of the first of them
	frames []frame
	names  []byte // of the open elements
	cur    found
}

// document reads all of it. An io.EOF says that its root was not closed.
func (p *parser) document() error {
	if p.isText() {
		p.res.Kind = KindText
		return p.lines()
	}
	err := p.markup()
	switch {
	case err == nil, errors.Is(err, errStopped), errors.Is(err, errFull):
		return err
	case p.format == nil && errors.Is(err, io.EOF):
		return p.notSitemap()
	case p.cur.loc != "":
		// Its address is complete, or it would not be there; what the error cut off
		// is said by the error, which counts for more than what this returns.
		_ = p.flush()
	}
	return err
}

func (p *parser) notSitemap() error {
	what := "it has no elements"
	if p.before > 0 {
		what = fmt.Sprintf("it begins with an element %q", p.first)
	}
	return fmt.Errorf("%w: %s and is no list of URLs; it should be a urlset, a sitemapindex, RSS, Atom or text",
		ErrNotSitemap, what)
}

// markup reads tags until the root is closed.
func (p *parser) markup() error {
	for {
		tok, err := p.scan.next()
		if err != nil {
			return err
		}
		switch {
		case p.format == nil:
			if tok == startTag {
				err = p.root()
			}
		case tok == startTag:
			err = p.start()
		default:
			err = p.end()
		}
		if err != nil {
			return err
		}
		if p.format != nil && len(p.frames) == 0 {
			return nil
		}
	}
}

// root takes the start tag for that of the root, if it is one.
func (p *parser) root() error {
	local := p.scan.name[prefixLen(p.scan.name):]
	f := formats[string(local)]
	if f == nil {
		if p.before++; p.before == 1 {
			p.first = string(p.scan.name)
		}
		switch string(local) {
		case "html", "head", "body":
			return fmt.Errorf("%w: it is an HTML page", ErrNotSitemap)
		}
		if p.before > maxBeforeRoot {
			return p.notSitemap()
		}
		return nil
	}
	p.format, p.res.Kind = f, f.kind
	return p.push(roleRoot)
}

// start enters an element.
func (p *parser) start() error {
	// A value holds text only. One with an element in it lacks its end tag, and
	// what follows is not part of it.
	if top := len(p.frames) - 1; p.frames[top].role.hasText() {
		if err := p.pop(top); err != nil {
			return err
		}
	}
	role, index := p.classify()
	if role == roleEntry {
		// The end tag of the entry before may be missing.
		for n := len(p.frames); p.frames[n-1].role != roleRoot; n = len(p.frames) {
			if err := p.pop(n - 1); err != nil {
				return err
			}
		}
		// So may be the entry around an address.
		if err := p.flush(); err != nil {
			return err
		}
		p.cur = found{open: true, index: index}
	}
	switch {
	case role == roleLink && p.cur.loc == "":
		p.cur.loc = p.alternate()
	case role == roleGUID && p.noPermaLink():
		role = roleOther
	}
	return p.push(role)
}

// classify returns what the element of the start tag means where it stands.
func (p *parser) classify() (r role, index bool) {
	parent := p.frames[len(p.frames)-1]
	n := prefixLen(p.scan.name)
	local := p.scan.name[n:]
	holds := parent.role == roleRoot || parent.role == roleEntry
	if !holds {
		return roleOther, false
	}
	if index, ok := p.format.entries[string(local)]; ok {
		return roleEntry, index
	}
	if parent.role == roleRoot && string(local) == p.format.channel {
		return roleRoot, false
	}
	r, ok := p.format.values[string(local)]
	if !ok || parent.role == roleRoot && !p.format.loose || !p.hasPrefix(parent) && !p.hasPrefix(p.frames[0]) {
		return roleOther, false
	}
	return r, false
}

// hasPrefix reports whether the tag has the prefix of f.
func (p *parser) hasPrefix(f frame) bool {
	n := prefixLen(p.scan.name)
	return bytes.Equal(p.scan.name[:n], p.names[f.start:f.start+f.prefix])
}

// prefixLen returns the length of the prefix with its colon; 0 when there is none.
func prefixLen(name []byte) int {
	return bytes.IndexByte(name, ':') + 1
}

// alternate returns the address of an Atom link, "" if it is not that of the page.
func (p *parser) alternate() string {
	rel, ok := p.scan.attr("rel")
	if ok && !strings.EqualFold(rel, "alternate") && rel != "http://www.iana.org/assignments/relation/alternate" {
		return ""
	}
	href, _ := p.scan.attr("href")
	return href
}

func (p *parser) noPermaLink() bool {
	v, _ := p.scan.attr("ispermalink")
	return strings.EqualFold(v, "false")
}

// push opens the element of the start tag, and closes it when it is empty.
func (p *parser) push(r role) error {
	if len(p.frames) == maxDepth {
		return fmt.Errorf("%w: its elements are nested deeper than %d", ErrMalformed, maxDepth)
	}
	p.frames = append(p.frames, frame{len(p.names), prefixLen(p.scan.name), r})
	p.names = append(p.names, p.scan.name...)
	if r.hasText() {
		p.scan.begin()
	}
	if p.scan.empty {
		return p.pop(len(p.frames) - 1)
	}
	return nil
}

// end closes the innermost element of that name and all in it; an end tag that
// closes none is ignored.
func (p *parser) end() error {
	stop := len(p.names)
	for i := len(p.frames) - 1; i >= 0; i-- {
		start := p.frames[i].start
		if bytes.Equal(p.names[start:stop], p.scan.name) {
			return p.pop(i)
		}
		stop = start
	}
	return nil
}

// pop closes all elements but the outer n.
func (p *parser) pop(n int) error {
	for len(p.frames) > n {
		top := p.frames[len(p.frames)-1]
		p.frames = p.frames[:len(p.frames)-1]
		p.names = p.names[:top.start]
		if err := p.close(top.role); err != nil {
			return err
		}
	}
	return nil
}

// close takes what an element has brought.
func (p *parser) close(r role) error {
	switch r {
	case roleLoc:
		return p.address(p.scan.value())
	case roleGUID:
		// Without the attribute a guid is an address, which most are not.
		if v := p.scan.value(); isURL(v) && p.cur.guid == "" {
			p.cur.guid = v
		}
	case roleLastMod:
		p.cur.lastMod = parseTime(p.scan.value())
	case roleCreated:
		p.cur.created = parseTime(p.scan.value())
	case roleEntry, roleRoot:
		return p.flush()
	case roleOther, roleLink:
	}
	return nil
}

// address takes that of the entry at hand.
func (p *parser) address(loc string) error {
	if p.cur.loc != "" {
		if !p.format.loose {
			return nil
		}
		index := p.cur.index
		if err := p.flush(); err != nil {
			return err
		}
		p.cur.index = index
	}
	if !p.cur.open {
		p.cur.open, p.cur.index = true, p.cur.index || p.format.kind == KindIndex
	}
	p.cur.loc = loc
	return nil
}

// flush hands out the entry at hand.
func (p *parser) flush() error {
	cur := p.cur
	p.cur = found{}
	if !cur.open {
		return nil
	}
	e := Entry{Loc: cur.loc, LastMod: cur.lastMod, Index: cur.index}
	if e.Loc == "" {
		e.Loc = cur.guid
	}
	if e.LastMod.IsZero() {
		e.LastMod = cur.created
	}
	return p.emit(e)
}

func (p *parser) emit(e Entry) error {
	switch {
	case e.Loc == "", len(e.Loc) > maxValueBytes:
		p.res.Skipped++
		return nil
	case p.res.Entries == p.max:
		return errFull
	}
	p.res.Entries++
	if !p.yield(e) {
		return errStopped
	}
	return nil
}

// isText reports whether the document is a list of URLs: its first line with
// something on it is one.
func (p *parser) isText() bool {
	head, _ := p.scan.in.Peek(sniffBytes) // an error comes again
	for len(head) > 0 {
		var line []byte
		i := bytes.IndexAny(head, "\r\n")
		if i < 0 {
			i = len(head) - 1
		}
		line, head = head[:i+1], head[i+1:]
		if s := clean(line); s != "" && s[0] != '#' {
			return isURL(s)
		}
	}
	return false
}

// lines reads a text sitemap.
func (p *parser) lines() error {
	p.scan.begin()
	for {
		b, err := p.scan.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return p.line()
		case err != nil:
			return err // what there is of a line may be half a URL
		case b != '\r' && b != '\n':
			p.scan.keep([]byte{b})
			continue
		}
		if err := p.line(); err != nil {
			return err
		}
		p.scan.begin()
	}
}

// line takes a line of a text sitemap. Empty ones and comments mean nothing; the
// rest are URLs, whole ones.
func (p *parser) line() error {
	s := clean(p.scan.text)
	switch {
	case p.scan.over, s != "" && s[0] != '#' && !isURL(s):
		p.res.Skipped++
		return nil
	case s == "" || s[0] == '#':
		return nil
	}
	return p.emit(Entry{Loc: s})
}

// isURL reports whether s begins as a URL of the web.
func isURL(s string) bool {
	scheme, rest, ok := strings.Cut(s, "://")
	return ok && rest != "" && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}
