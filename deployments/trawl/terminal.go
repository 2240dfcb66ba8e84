package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
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

// gap stands between two columns of a table.
const gap = 2

// lastLeast is the least of the last column of a table that is worth a place in a line, in
// columns: it is the one of any length, a URL as a rule.
const lastLeast = 20

// table writes rows in columns to w. On a terminal where they do not fit side by side the
// columns that are too many go on a line below, indented; the last is cut where a line ends.
func (s *session) table(w io.Writer, rows [][]string) error {
	bound := 0
	if s.isTerminal(w) {
		bound = width(w)
	}
	cells := make([][]string, len(rows))
	for i, row := range rows {
		for _, cell := range row {
			cells[i] = append(cells[i], watch.Clean(cell))
		}
	}
	widths, breaks := layout(cells, bound)
	for _, row := range cells {
		if _, err := io.WriteString(w, tableRow(row, widths, breaks, bound)); err != nil {
			return err
		}
	}
	return nil
}

// layout returns the widths of columns, and before which of them a new line begins so that
// none is longer than bound; 0 is no bound.
func layout(rows [][]string, bound int) (widths []int, breaks []bool) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	breaks = make([]bool, len(widths))
	at := 0
	for i, w := range widths {
		if i == len(widths)-1 {
			w = min(w, lastLeast)
		}
		if breaks[i] = bound > 0 && i > 0 && at+w > bound; breaks[i] {
			at = gap
		}
		at += w + gap
	}
	return widths, breaks
}

// tableRow is one row of a table, of one line or more.
func tableRow(row []string, widths []int, breaks []bool, bound int) string {
	var out strings.Builder
	line := ""
	end := func() {
		line = strings.TrimRight(line, " ")
		if bound > 0 {
			line = runewidth.Truncate(line, bound, "…")
		}
		out.WriteString(line + "\n")
	}
	for i, cell := range row {
		if breaks[i] {
			end()
			line = strings.Repeat(" ", gap)
		}
		line += runewidth.FillRight(cell, widths[i]+gap)
	}
	end()
	return out.String()
}

// facts writes rows of a name and a value. On a terminal a value is broken between words
// where it does not fit, and never cut.
func (s *session) facts(w io.Writer, rows [][]string) error {
	names := 0
	for _, row := range rows {
		names = max(names, len(row[0])+gap)
	}
	margin := strings.Repeat(" ", names)
	for _, row := range rows {
		value := watch.Clean(row[1])
		if s.isTerminal(w) {
			value = strings.TrimLeft(wrap(margin+value, width(w)), " ")
		}
		if _, err := fmt.Fprintln(w, runewidth.FillRight(row[0], names)+value); err != nil {
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

// cleanTable returns the text of a table for people, without what a terminal might obey.
func cleanTable(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		line, end := strings.CutSuffix(line, "\n")
		if lines[i] = watch.Clean(strings.TrimSuffix(line, "\r")); end {
			lines[i] += "\n"
		}
	}
	return strings.Join(lines, "")
}

// unprintable reports whether r can only stand in a string of a JSON text, and is not to be shown.
func unprintable(r rune) bool {
	space := r == '\n' || r == '\r' || r == '\t' // between tokens; in strings they are escaped
	return !space && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
}
