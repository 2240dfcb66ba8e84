package extract

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// unseen are the elements whose content a reader does not see as text of the page. It is as in
// package fields, where noscript is unseen as well: it stands in for what scripts make.
var unseen = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Template: true, atom.Noscript: true, atom.Noembed: true,
	atom.Noframes: true, atom.Iframe: true, atom.Object: true, atom.Audio: true, atom.Video: true,
	atom.Canvas: true, atom.Datalist: true, atom.Head: true,
}

// unseenSVG are the elements of SVG that are not drawn.
var unseenSVG = map[string]bool{
	"title": true, "desc": true, "metadata": true, "defs": true, "style": true, "script": true, "symbol": true,
}

// A block begins and ends a line; a paragraph stands apart by an empty line. After the style sheet
// of the HTML standard.
const (
	line      = 1
	paragraph = 2
)

var blocks = map[atom.Atom]int{
	atom.Address: line, atom.Article: paragraph, atom.Aside: paragraph, atom.Blockquote: paragraph,
	atom.Body: line, atom.Button: line, atom.Caption: line, atom.Center: line, atom.Dd: line,
	atom.Details: line, atom.Dialog: line, atom.Dir: paragraph, atom.Div: line, atom.Dl: paragraph,
	atom.Dt: line, atom.Fieldset: line, atom.Figcaption: line, atom.Figure: paragraph, atom.Footer: line,
	atom.Form: line, atom.Frameset: line, atom.H1: paragraph, atom.H2: paragraph, atom.H3: paragraph,
	atom.H4: paragraph, atom.H5: paragraph, atom.H6: paragraph, atom.Header: line, atom.Hgroup: line,
	atom.Hr: paragraph, atom.Html: line, atom.Legend: line, atom.Li: line, atom.Listing: paragraph,
	atom.Main: line, atom.Menu: paragraph, atom.Nav: line, atom.Ol: paragraph, atom.Optgroup: line,
	atom.Option: line, atom.P: paragraph, atom.Plaintext: paragraph, atom.Pre: paragraph,
	atom.Search: line, atom.Section: paragraph, atom.Select: line, atom.Summary: line,
	atom.Table: paragraph, atom.Tbody: line, atom.Textarea: line, atom.Tfoot: line, atom.Thead: line,
	atom.Title: line, atom.Tr: line, atom.Ul: paragraph, atom.Xmp: paragraph,
}

// kept are the elements whose line breaks and blanks stay.
var kept = map[atom.Atom]bool{
	atom.Pre: true, atom.Textarea: true, atom.Listing: true, atom.Plaintext: true, atom.Xmp: true,
}

func isUnseen(n *html.Node) bool {
	if n.Namespace == "svg" {
		return unseenSVG[n.Data]
	}
	return unseen[n.DataAtom]
}

// textWriter builds the text of an element.
type textWriter struct {
	b     []byte
	blank bool // a blank stands before what comes next
	lines int  // so many line breaks do
	tabs  int  // so many tabs do, behind the line breaks
	row   bool // the row at hand has text
	pre   int  // elements of kept around
	lists int  // lists around: their items stand close
	most  int
	cut   bool
	// flat writes blocks as words of one line.
	flat bool
}

// textOf returns the text of n, at most so many bytes of it.
func textOf(n *html.Node, most int) (string, bool) {
	w := textWriter{most: most}
	w.walk(n)
	return w.done()
}

// lineOf returns the text of n as one line, at most so many bytes of it.
func lineOf(n *html.Node, most int) (string, bool) {
	w := textWriter{most: most, flat: true}
	w.walk(n)
	return w.done()
}

// walk writes what is in n, without recursion.
func (w *textWriter) walk(n *html.Node) {
	if kept[n.DataAtom] && !w.flat {
		w.pre++
	}
	for at := n.FirstChild; at != nil && !w.cut; {
		if at.Type == html.TextNode {
			w.text(at.Data)
		}
		enter := at.Type == html.ElementNode && !isUnseen(at)
		if enter {
			w.enter(at)
		}
		if enter && at.FirstChild != nil {
			at = at.FirstChild
			continue
		}
		if enter {
			w.leave(at)
		}
		for at != n && at.NextSibling == nil {
			at = at.Parent
			if at != n {
				w.leave(at)
			}
		}
		if at == n {
			return
		}
		at = at.NextSibling
	}
}

func (w *textWriter) enter(n *html.Node) {
	if n.Namespace != "" {
		return
	}
	switch n.DataAtom {
	case atom.Br:
		w.lineBreak()
		return
	case atom.Td, atom.Th:
		w.cell(n)
		return
	case atom.Ul, atom.Ol, atom.Menu, atom.Dir:
		w.block(w.listBreak())
		w.lists++
		return
	}
	w.block(blocks[n.DataAtom])
	if n.DataAtom == atom.Tr {
		w.row = false
	}
	if kept[n.DataAtom] && !w.flat {
		w.pre++
	}
}

func (w *textWriter) leave(n *html.Node) {
	if n.Namespace != "" {
		return
	}
	switch n.DataAtom {
	case atom.Ul, atom.Ol, atom.Menu, atom.Dir:
		w.lists--
		w.block(w.listBreak())
		return
	case atom.Td, atom.Th:
		w.block(0)
		if w.flat {
			w.blank = true
		}
		return
	}
	if kept[n.DataAtom] && !w.flat {
		w.pre--
	}
	if n.DataAtom == atom.Tr {
		w.tabs = 0 // those of empty cells at the end
	}
	w.block(blocks[n.DataAtom])
}

// listBreak is what sets a list apart: a list within a list stands close.
func (w *textWriter) listBreak() int {
	if w.lists > 0 {
		return line
	}
	return paragraph
}

// cell begins a cell: all but the first of a row have a tab before them.
func (w *textWriter) cell(n *html.Node) {
	if w.flat {
		w.blank = true
		return
	}
	for p := n.PrevSibling; p != nil; p = p.PrevSibling {
		if p.DataAtom == atom.Td || p.DataAtom == atom.Th {
			if w.row { // what ends the cell before ends no line
				w.lines = 0
			}
			w.tabs++
			w.blank = false
			return
		}
	}
	w.block(line)
}

func (w *textWriter) block(breaks int) {
	switch {
	case breaks == 0:
	case w.flat:
		w.blank = true
	case w.tabs > 0:
		// A block that begins a cell begins no line.
	default:
		w.lines = max(w.lines, breaks)
	}
}

func (w *textWriter) lineBreak() {
	switch {
	case w.flat:
		w.blank = true
	case w.pre > 0:
		w.write("\n")
	default:
		w.lines = min(w.lines+1, paragraph)
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
		for plain < len(s) && s[plain] > ' ' && s[plain] < utf8.RuneSelf && s[plain] != 0x7F {
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
		case !isWidthless(r) && !unicode.IsControl(r):
			w.write(validRune(s[:n], r))
		}
		s = s[n:]
	}
}

func (w *textWriter) preformatted(s string) {
	start := 0
	for i, r := range s {
		if r == '\n' || r == '\t' || r != utf8.RuneError && r > ' ' && !unicode.IsControl(r) && !isWidthless(r) && !unicode.IsSpace(r) {
			continue
		}
		w.write(s[start:i])
		if r == utf8.RuneError {
			w.write("\uFFFD")
		} else if unicode.IsSpace(r) && r != '\r' {
			w.write(" ")
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		start = i + n
	}
	w.write(s[start:])
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
	if s == "" {
		return
	}
	switch {
	case w.lines > 0 || w.tabs > 0:
		w.apart()
	case len(w.b) == 0:
	case w.blank && w.b[len(w.b)-1] != '\n' && w.b[len(w.b)-1] != '\t':
		w.b = append(w.b, ' ')
	}
	w.blank, w.tabs, w.lines, w.row = false, 0, 0, true
	room := w.most + 1 - len(w.b)
	if len(s) > room {
		s, w.cut = s[:max(room, 0)], true
	}
	w.b = append(w.b, s...)
}

// maxEmptyCells bounds the tabs that stand for empty cells in a row.
const maxEmptyCells = 64

// apart writes the line breaks and tabs that stand before what comes next.
func (w *textWriter) apart() {
	if w.lines > 0 {
		w.b = bytes.TrimRight(w.b, "\n") // a pre may end with one
	}
	if len(w.b) > 0 {
		w.b = append(w.b, "\n\n"[:min(w.lines, paragraph)]...)
	}
	for range min(w.tabs, maxEmptyCells) {
		w.b = append(w.b, '\t')
	}
}

func (w *textWriter) done() (string, bool) {
	s := strings.Trim(string(w.b), "\n ")
	if w.flat {
		s = cutLine(s, w.most)
		return strings.TrimRight(s, " "), w.cut
	}
	s, cut := cutText(s, w.most)
	return s, cut || w.cut
}
