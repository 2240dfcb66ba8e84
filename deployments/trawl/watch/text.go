package watch

import (
	"bytes"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// maxMarks is how many combining marks in a row are shown: languages need two, and a name
// with a thousand paints over the lines around it.
const maxMarks = 2

// Clean returns s as one line that is safe to show on a terminal: without control
// characters, bidirectional overrides and other invisible ones. Line ends and tabs become
// spaces, what cannot be shown becomes U+FFFD. Whatever a site can choose goes through it.
func Clean(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	marks := 0
	for _, r := range s {
		if unicode.In(r, unicode.Mn, unicode.Me) {
			marks++
		} else {
			marks = 0
		}
		if r, ok := shown(r); ok && marks <= maxMarks {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// shown returns what stands for r on a terminal, and false where nothing does.
func shown(r rune) (rune, bool) {
	switch {
	case unicode.Is(unicode.Variation_Selector, r): // they change the width of what is before them
		return 0, false
	case unicode.IsPrint(r):
		return r, true
	case unicode.IsSpace(r):
		return ' ', true
	case unicode.Is(unicode.Cf, r):
		return 0, false
	default:
		return utf8.RuneError, true
	}
}

// colour is one SGR sequence, the only escape that a line of text may carry.
var colour = regexp.MustCompile(`^\x1b\[[0-9;]*m`)

// cleanLines is [Clean] for lines of text: line ends and tabs stay, joiners as well, since
// nothing is aligned there, and colours where colours says so.
func cleanLines(text []byte, colours bool) []byte {
	if !bytes.ContainsFunc(text, suspect) {
		return text // most output is plain, and must not wait for the rest of this
	}
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\x1b':
			seq := colour.Find(text)
			size = max(size, len(seq))
			switch {
			case seq == nil:
				out = utf8.AppendRune(out, utf8.RuneError)
			case colours:
				out = append(out, seq...)
			}
		case !suspect(r) || r == '\u200c' || r == '\u200d':
			out = utf8.AppendRune(out, r)
		case r == '\r' && bytes.HasPrefix(text, []byte("\r\n")):
		default:
			if r, ok := shown(r); ok {
				out = utf8.AppendRune(out, r)
			}
		}
		text = text[size:]
	}
	return out
}

// suspect reports whether r needs a closer look before it is written to a terminal.
func suspect(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' && r != '\n' && r != '\t' || r == 0x7f
	}
	return r == utf8.RuneError || !unicode.IsPrint(r)
}

// columns returns how many columns s takes at most. Runes are added up one by one: a
// terminal that does not join what belongs together shows them side by side.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runewidth.RuneWidth(r)
	}
	return n
}

const ellipsis = "…"

// cut returns s in at most width columns, with an ellipsis in place of what is left out.
func cut(s string, width int) string {
	if columns(s) <= width {
		return s
	}
	tail := ellipsis
	if columns(tail) > width {
		tail = ""
	}
	room := width - columns(tail)
	for i, r := range s {
		if room -= runewidth.RuneWidth(r); room < 0 {
			return strings.TrimRight(s[:i], " ") + tail
		}
	}
	return s // not reached: s is wider than the room
}

// style is the parameter of an SGR sequence. Only the eight basic colours are used, and of
// those only the ones that can be read on black and on white.
type style string

const (
	unstyled style = ""
	red      style = "31"
	green    style = "32"
	magenta  style = "35"
	cyan     style = "36"
)

// span is text of one style.
type span struct {
	text  string
	style style
}

// line is one line of text in several styles.
type line []span

// plainText is a line of one style.
func plainText(s string) line { return line{{text: s}} }

// columns returns how many columns l takes.
func (l line) columns() int {
	n := 0
	for _, s := range l {
		n += columns(s.text)
	}
	return n
}

// cut returns l in at most width columns.
func (l line) cut(width int) line {
	if l.columns() <= width {
		return l
	}
	var out line
	for _, s := range l {
		w := columns(s.text)
		// A span that ends just where the room does is cut, too: the ellipsis needs a column.
		if w >= width {
			return append(out, span{cut(s.text+" "+ellipsis, width), s.style})
		}
		out = append(out, s)
		width -= w
	}
	return out
}

// glue is a space at which a line is not broken. [Clean] leaves none, so that each that is
// met is ours.
const glue = '\u00a0'

// glued returns s as one word that is not broken.
func glued(s string) string { return strings.ReplaceAll(s, " ", string(glue)) }

// cell is one character of a line.
type cell struct {
	char  rune
	style style
}

// wrap breaks l between words into lines of at most width columns; what follows the first
// is indented by indent. A word that is wider stays whole. Width below 1 is no bound.
func (l line) wrap(width, indent int) []line {
	var cells []cell
	for _, s := range l {
		for _, r := range s.text {
			cells = append(cells, cell{r, s.style})
		}
	}
	var out []line
	margin := 0
	for {
		n := len(cells)
		if width > 0 {
			n = lineEnd(cells, width-margin)
		}
		out = append(out, lineOf(cells[:n], margin))
		for n < len(cells) && cells[n].char == ' ' {
			n++
		}
		if cells = cells[n:]; len(cells) == 0 {
			return out
		}
		margin = indent
	}
}

// lineEnd returns how many of cells stand on one line of so many columns.
func lineEnd(cells []cell, columns int) int {
	end, at, begun := 0, 0, false
	for i, c := range cells {
		if c.char == ' ' && begun {
			if at > columns && end > 0 {
				return end
			}
			if end = i; at > columns {
				return end
			}
		}
		begun = begun || c.char != ' '
		at += runewidth.RuneWidth(c.char)
	}
	if at > columns && end > 0 {
		return end
	}
	return len(cells)
}

// lineOf returns cells as a line behind a margin.
func lineOf(cells []cell, margin int) line {
	out := line{{text: strings.Repeat(" ", margin)}}
	for i := 0; i < len(cells); {
		from := i
		var text strings.Builder
		for ; i < len(cells) && cells[i].style == cells[from].style; i++ {
			r := cells[i].char
			if r == glue {
				r = ' '
			}
			text.WriteRune(r)
		}
		out = append(out, span{text.String(), cells[from].style})
	}
	return out
}

// paint returns l as it is written; without color there is no escape in it.
func (l line) paint(color bool) string {
	var b strings.Builder
	for _, s := range l {
		if !color || s.style == unstyled || s.text == "" {
			b.WriteString(s.text)
			continue
		}
		b.WriteString("\x1b[" + string(s.style) + "m" + s.text + "\x1b[m")
	}
	return b.String()
}
