package fields

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// unseen are the elements whose content a reader does not see as text of the page.
var unseen = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Template: true, atom.Noscript: true, atom.Noembed: true,
	atom.Noframes: true, atom.Iframe: true, atom.Object: true, atom.Audio: true, atom.Video: true,
	atom.Canvas: true, atom.Datalist: true,
}

// blocks are the elements that begin and end a line, after the style sheet of the HTML standard.
// The cells of a table and the options of a list are separate words as well.
var blocks = map[atom.Atom]bool{
	atom.Address: true, atom.Article: true, atom.Aside: true, atom.Blockquote: true, atom.Body: true,
	atom.Br: true, atom.Button: true, atom.Caption: true, atom.Center: true, atom.Dd: true,
	atom.Details: true, atom.Dialog: true, atom.Dir: true, atom.Div: true, atom.Dl: true, atom.Dt: true,
	atom.Fieldset: true, atom.Figcaption: true, atom.Figure: true, atom.Footer: true, atom.Form: true,
	atom.Frameset: true, atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true,
	atom.H6: true, atom.Head: true, atom.Header: true, atom.Hgroup: true, atom.Hr: true, atom.Html: true,
	atom.Legend: true, atom.Li: true, atom.Listing: true, atom.Main: true, atom.Menu: true, atom.Nav: true,
	atom.Ol: true, atom.Optgroup: true, atom.Option: true, atom.P: true, atom.Plaintext: true,
	atom.Pre: true, atom.Search: true, atom.Section: true, atom.Select: true, atom.Summary: true,
	atom.Table: true, atom.Tbody: true, atom.Td: true, atom.Textarea: true, atom.Tfoot: true,
	atom.Th: true, atom.Thead: true, atom.Title: true, atom.Tr: true, atom.Ul: true, atom.Xmp: true,
}

// kept are the elements whose line breaks and blanks stay.
var kept = map[atom.Atom]bool{
	atom.Pre: true, atom.Textarea: true, atom.Listing: true, atom.Plaintext: true, atom.Xmp: true,
}

// textWriter builds the text of an element.
type textWriter struct {
	b     []byte
	blank bool // one stands before what comes next
	pre   int  // elements of kept around
	cut   bool // there was more than most bytes
	most  int
}

// textOf returns the text of n, at most so many bytes of it. See the package about what it is.
func textOf(n *html.Node, trim bool, most int, left *budget) (text string, cut bool, err error) {
	w := textWriter{most: most}
	if n.Type == html.TextNode {
		w.text(n.Data)
		return w.done(trim), w.cut, nil
	}
	if kept[n.DataAtom] {
		w.pre++
	}
	for at := n.FirstChild; at != nil && !w.cut; {
		if !left.spend(1 + len(at.Data)/bytesPerStep) {
			return "", false, errSteps
		}
		if at.Type == html.TextNode || at.Type == html.RawNode {
			w.text(at.Data)
		}
		enter := at.Type == html.ElementNode && !unseen[at.DataAtom]
		if enter {
			w.boundary(at)
		}
		if enter && at.FirstChild != nil {
			if kept[at.DataAtom] {
				w.pre++
			}
			at = at.FirstChild
			continue
		}
		for at != n && at.NextSibling == nil {
			at = at.Parent
			if at != n {
				w.leave(at)
			}
		}
		if at == n {
			break
		}
		at = at.NextSibling
	}
	return w.done(trim), w.cut, nil
}

func (w *textWriter) boundary(n *html.Node) {
	switch {
	case n.DataAtom == atom.Br && w.pre > 0:
		w.write("\n")
	case blocks[n.DataAtom]:
		w.blank = true
	}
}

func (w *textWriter) leave(n *html.Node) {
	if kept[n.DataAtom] {
		w.pre--
	}
	if blocks[n.DataAtom] {
		w.blank = true
	}
}

// text appends the data of a text node.
func (w *textWriter) text(s string) {
	if w.pre > 0 {
		w.preformatted(s)
		return
	}
	for s != "" && !w.cut {
		plain := 0
		for plain < len(s) && s[plain] > ' ' && s[plain] < utf8.RuneSelf {
			plain++
		}
		if plain > 0 {
			w.write(s[:plain])
			s = s[plain:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case unicode.IsSpace(r):
			w.blank = true
		case !isWidthless(r):
			w.write(validRune(s[:n], r))
		}
		s = s[n:]
	}
}

func (w *textWriter) preformatted(s string) {
	for _, r := range s {
		switch {
		case isWidthless(r) || r == '\r':
		case r != '\n' && r != '\t' && unicode.IsSpace(r):
			w.write(" ")
		default:
			w.write(string(r))
		}
		if w.cut {
			return
		}
	}
}

// validRune is what a byte that is not UTF-8 becomes as well.
func validRune(s string, r rune) string {
	if r == utf8.RuneError {
		return "\uFFFD"
	}
	return s
}

// isWidthless reports whether r is an invisible sign for breaking words.
func isWidthless(r rune) bool {
	return r == '\u00AD' || r == '\u200B' || r == '\u2060' || r == '\uFEFF'
}

func (w *textWriter) write(s string) {
	if w.blank {
		w.blank = false
		if n := len(w.b); n == 0 || w.b[n-1] != '\n' {
			w.b = append(w.b, ' ')
		}
	}
	w.b = append(w.b, s...)
	if len(w.b) > w.most+1 { // a blank at the beginning may go
		w.cut = true
	}
}

func (w *textWriter) done(trim bool) string {
	if !trim {
		if w.blank {
			w.b = append(w.b, ' ')
		}
		text, cut := cutTo(string(w.b), w.most)
		w.cut = w.cut || cut
		return text
	}
	text, cut := cutTo(trimBlanks(string(w.b)), w.most)
	w.cut = w.cut || cut
	return trimBlanks(text)
}

// trimBlanks removes what the text rule calls blanks at both ends.
func trimBlanks(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || isWidthless(r) })
}

// cutTo returns at most so many bytes of s, of whole characters.
func cutTo(s string, most int) (string, bool) {
	if len(s) <= most {
		return s, false
	}
	most = max(most, 0)
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most], true
}

// attrOf returns an attribute of n, and whether there is one.
func attrOf(n *html.Node, name string) (string, bool) {
	for i := range n.Attr {
		if n.Attr[i].Key == name && n.Attr[i].Namespace == "" {
			return n.Attr[i].Val, true
		}
	}
	return "", false
}

// limited takes so many bytes and then says that it is full, which ends a rendering.
type limited struct {
	b    []byte
	most int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	room := l.most - len(l.b)
	if len(p) > room {
		l.b = append(l.b, p[:room]...)
		return room, errFull
	}
	l.b = append(l.b, p...)
	return len(p), nil
}

// htmlOf returns what is inside of n, at most so many bytes of it.
func htmlOf(n *html.Node, most int, left *budget) (text string, cut bool, err error) {
	w := &limited{most: most + utf8.UTFMax}
	if n.Type != html.ElementNode {
		err = html.Render(w, n)
	}
	for at := n.FirstChild; at != nil && err == nil; at = at.NextSibling {
		err = html.Render(w, at)
	}
	if !left.spend(1 + len(w.b)/4) {
		return "", false, errSteps
	}
	text, cut = cutTo(string(w.b), most)
	return strings.ToValidUTF8(text, "\uFFFD"), cut || err != nil, nil
}
