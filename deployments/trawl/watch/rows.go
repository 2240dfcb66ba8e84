package watch

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"example.com/trawl/pkg/client"
)

// From these widths on, in columns, there is room for two rows, for whole words, and for
// the time that is left.
const (
	narrowFrom = 40
	wideFrom   = 80
	leftFrom   = 100
)

// Bounds of the bar itself, in columns.
const (
	barLeast = 10
	barMost  = 50
)

// maxLeft is the longest time left that is shown: beyond it the guess is worth nothing.
const maxLeft = 100 * time.Hour

// rows draws a snapshot: one row, or two where there is room. No row is wider than width.
func rows(s snapshot, width int, color bool) []string {
	width = max(width, 1)
	state := s.words.state
	if s.silent > 0 {
		state = "no answer"
	}
	lines := []line{plainText(strings.TrimSpace(fraction(s)) + " " + state)}
	if width >= narrowFrom {
		lines = []line{barRow(s, width), statusRow(s, width)}
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.cut(width).paint(color)
	}
	return out
}

// fraction is the truth about the progress, whatever the bar guesses. It is padded, so
// that the bar does not change its length with each digit.
func fraction(s snapshot) string {
	total := strconv.FormatInt(s.total, 10)
	return fmt.Sprintf("%*d/%s", len(total), s.processed, total)
}

// barRow is the name of the job, the bar, and what is measured.
func barRow(s snapshot, width int) line {
	figures := "  " + strings.Join(barFigures(s, width), "  ")
	room := width - columns(figures)
	name := ""
	if width >= wideFrom && s.name != "" {
		name = cut(s.name, width/3) + "  "
	}
	if room-columns(name) < barLeast {
		name = ""
	}
	room -= columns(name)
	if room < barLeast {
		return plainText(strings.TrimSpace(figures))
	}
	l := append(plainText(name), barOf(s, min(room, barMost), glyphsOf(runewidth.RuneWidth))...)
	return append(l, span{text: figures})
}

// barFigures are the numbers behind the bar.
func barFigures(s snapshot, width int) []string {
	if s.silent > 0 {
		return []string{fraction(s), silenceText(s.silent, width)}
	}
	unit := " pages/s"
	if width < wideFrom {
		unit = "/s"
	}
	rate := "–"
	if s.rated {
		rate = rateText(s.rate)
	}
	parts := []string{fraction(s), fmt.Sprintf("%4s", rate) + unit}
	if s.begun {
		parts = append(parts, clock(s.elapsed))
	}
	if left, ok := timeLeft(s); ok && width >= leftFrom {
		parts = append(parts, "~"+leftText(left)+" left")
	}
	return parts
}

// silenceText says that what is shown is as it was, and not how it goes.
func silenceText(d time.Duration, width int) string {
	from := ""
	if width >= wideFrom {
		from = " from the server"
	}
	since := longDuration(d.Round(time.Second))
	if d < time.Minute {
		since = strconv.Itoa(int(d/time.Second)) + " s"
	}
	return "no answer" + from + " for " + since
}

// timeLeft guesses when the job will have ended, where that can be guessed: no more links
// are admitted, and pages come.
func timeLeft(s snapshot) (time.Duration, bool) {
	if s.state != client.Running || s.grows || !s.rated || s.rate <= 0 || s.elapsed < rateOver/2 {
		return 0, false
	}
	left := float64(s.total-s.processed) / s.rate
	if left < 0 || left > maxLeft.Seconds() {
		return 0, false
	}
	return time.Duration(math.Ceil(left)) * time.Second, true
}

// leftText is exact about minutes only: a guess of hours changes by more than a second.
func leftText(d time.Duration) string {
	if d < time.Hour {
		return clock(d)
	}
	return longDuration(d)
}

// glyphs are what a bar is drawn with, each one column wide.
type glyphs struct{ full, half, rest string }

// glyphsOf returns lines of the box drawing block, or ASCII where a locale of East Asia
// draws those twice as wide; width is that of a rune.
func glyphsOf(width func(rune) int) glyphs {
	if width('━') == 1 && width('╸') == 1 && width('─') == 1 {
		return glyphs{"━", "╸", "─"}
	}
	return glyphs{"=", ">", "-"}
}

// barOf draws the bar in exactly width columns. It is full only when all is processed.
func barOf(s snapshot, width int, g glyphs) line {
	halves := 2 * width
	n := int(math.Round(float64(halves) * done(s)))
	if done(s) < 1 {
		n = min(n, halves-1)
	}
	full, half := n/2, n%2
	return line{
		{text: strings.Repeat(g.full, full) + strings.Repeat(g.half, half), style: s.words.style},
		{text: strings.Repeat(g.rest, width-full-half)},
	}
}

// done returns the part of the job that is processed, from 0 to 1.
func done(s snapshot) float64 {
	if s.total <= 0 || !(s.expected >= 1) { // also of what is not a number
		return 0
	}
	return min(float64(s.processed)/s.expected, 1)
}

// piece is one thing that a status row says. Where there is no room the piece with the
// greatest drop is left out first, one with 0 never.
type piece struct {
	text string
	look style
	drop int
}

// hintLeast is the least of a long hint that says enough to be cut, in columns.
const hintLeast = 40

// statusRow says the state, the counts, and why nothing moves: as much of it as fits, in
// the longest words that fit. No number in it is ever cut.
func statusRow(s snapshot, width int) line {
	var pieces []piece
	for _, form := range statusForms(s, width) {
		pieces = statusPieces(s, form)
		l := joinPieces(pieces)
		if over := l.columns() - width; over <= 0 || form.cut && columns(form.hint)-over >= hintLeast {
			return l
		}
	}
	for len(pieces) > 1 && joinPieces(pieces).columns() > width {
		pieces = dropOne(pieces)
	}
	return joinPieces(pieces)
}

// statusForm is one way to word a status row.
type statusForm struct {
	hint  string
	zeros bool // counts that are zero are told, too
	cut   bool // the hint, which comes last, may be cut to [hintLeast]
}

// statusForms lists the ways to word a status row, the best first. A wait that comes and
// goes must not make the counts come and go with it.
func statusForms(s snapshot, width int) []statusForm {
	long, short := s.wait.long, s.wait.short
	wide := width >= wideFrom
	var forms []statusForm
	if wide {
		forms = append(forms, statusForm{hint: long, zeros: true})
	}
	if !s.wait.brief {
		forms = append(forms, statusForm{hint: long}, statusForm{hint: long, cut: true})
	}
	if wide {
		forms = append(forms, statusForm{hint: short, zeros: true})
	}
	return append(forms, statusForm{hint: short})
}

// statusPieces lists what a row says in the given form, in the order of reading.
func statusPieces(s snapshot, f statusForm) []piece {
	var out []piece
	if s.state != client.Running {
		out = append(out, piece{text: s.words.state, look: s.words.style})
	}
	if s.state != client.Queued {
		out = append(out, countPieces(s, f.zeros)...)
	}
	if f.hint != "" {
		drop := 2 // what stands still is more than how much of it there is
		if s.wait.brief {
			drop = 5
		}
		out = append(out, piece{text: f.hint, look: magenta, drop: drop})
	}
	return out
}

// countPieces lists the counts of a job that has begun.
func countPieces(s snapshot, zeros bool) []piece {
	failed := unstyled
	if s.failed > 0 {
		failed = red
	}
	waiting := zeros && !s.state.Terminal()
	var out []piece
	for _, c := range []struct {
		n    int64
		word string
		show bool // though it is 0
		look style
		drop int
	}{
		{s.accepted, "accepted", true, unstyled, 1},
		{s.failed, "failed", zeros, failed, 3},
		{s.skipped, "skipped", zeros, unstyled, 6},
		{s.queued, "queued", waiting, unstyled, 7},
		{s.active, inProgress, waiting, unstyled, 9},
		{s.deferred, "deferred", false, unstyled, 8},
		{s.cancelled, "cancelled", false, unstyled, 4},
	} {
		if c.n > 0 || c.show {
			out = append(out, piece{strconv.FormatInt(c.n, 10) + " " + c.word, c.look, c.drop})
		}
	}
	return out
}

// dropOne leaves out the piece that is missed least.
func dropOne(pieces []piece) []piece {
	least := len(pieces) - 1
	for i, p := range pieces {
		if p.drop > pieces[least].drop {
			least = i
		}
	}
	return append(append([]piece(nil), pieces[:least]...), pieces[least+1:]...)
}

// joinPieces writes pieces as one line.
func joinPieces(pieces []piece) line {
	var l line
	for i, p := range pieces {
		if i > 0 {
			l = append(l, span{text: " · "})
		}
		l = append(l, span{text: p.text, style: p.look})
	}
	return l
}
