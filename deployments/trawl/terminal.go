package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"example.com/trawl/deployments/trawl/watch"
)

// defaultWidth is that of a terminal that does not tell its own, in columns.
const defaultWidth = 80

// isTerminal reports whether w is a terminal that can do more than lines of text.
func (s *session) isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && s.environ["TERM"] != "dumb"
}

// mayColour reports whether colours may go to w: see no-color.org.
func (s *session) mayColour(w io.Writer, refused bool) bool {
	return !refused && s.environ["NO_COLOR"] == "" && s.isTerminal(w)
}

// width returns the columns of the terminal w now.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return defaultWidth
}

// wrap breaks the lines of text that have more than the given columns, between words. What
// follows is indented as its line is. A word that is too long stays whole: it is a URL.
func wrap(text string, columns int) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		line, end := strings.CutSuffix(line, "\n")
		if runewidth.StringWidth(line) > columns {
			line = wrapLine(line, columns)
		}
		out.WriteString(line)
		if end {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

func wrapLine(line string, columns int) string {
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	var out strings.Builder
	at := 0
	for _, word := range strings.Fields(line) {
		w := runewidth.StringWidth(word)
		switch {
		case at == 0:
			out.WriteString(indent)
			at = len(indent)
		case at+1+w > columns:
			out.WriteString("\n" + indent)
			at = len(indent)
		default:
			out.WriteByte(' ')
			at++
		}
		out.WriteString(word)
		at += w
	}
	return out.String()
}

// table writes rows in columns to w. On a terminal a row is cut where the line ends.
func (s *session) table(w io.Writer, rows [][]string) error {
	var text bytes.Buffer
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = watch.Clean(cell)
		}
		_, _ = fmt.Fprintln(columns, strings.Join(cells, "\t")) // to memory
	}
	_ = columns.Flush()
	terminal := s.isTerminal(w)
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, " \n")
		if terminal {
			line = runewidth.Truncate(line, width(w), "…")
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// cleanLines makes text safe for a terminal line by line: see [watch.Clean].
func cleanLines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = watch.Clean(line)
	}
	return strings.Join(lines, "\n")
}

// cleanJSON returns a JSON text that means the same and holds no character that a terminal
// might obey: JSON alone escapes only the first 32.
func cleanJSON(raw []byte) []byte {
	if bytes.IndexFunc(raw, unprintable) < 0 {
		return raw
	}
	clean := make([]byte, 0, len(raw)+16)
	for _, r := range string(raw) {
		if !unprintable(r) {
			clean = fmt.Appendf(clean, "%c", r)
			continue
		}
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			clean = fmt.Appendf(clean, `\u%04x\u%04x`, high, low)
			continue
		}
		clean = fmt.Appendf(clean, `\u%04x`, r)
	}
	return clean
}

// unprintable reports whether r can only stand in a string of a JSON text, and is not to be shown.
func unprintable(r rune) bool {
	space := r == '\n' || r == '\r' || r == '\t' // between tokens; in strings they are escaped
	return !space && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
}
