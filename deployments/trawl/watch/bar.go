package watch

import (
	"io"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// redrawEvery is quick enough for an eye to see steady movement and slow enough for a
// terminal behind ssh.
const redrawEvery = 100 * time.Millisecond

// unbounded is the width and height that mpb is told where it cannot ask: each row is cut
// to the width of the options before mpb sees it.
const unbounded = 1 << 14

// bar draws a model on a terminal until it is closed.
type bar struct {
	progress *mpb.Progress
	bar      *mpb.Bar
}

// newBar begins to draw m.
func newBar(o Options, m *model) *bar {
	b := &bar{progress: mpb.New(mpb.WithConsoleWriter(&console{out: o.Out}), mpb.WithRefreshRate(redrawEvery))}
	r := &painter{o: o, model: m}
	// A total of 0 never completes by itself: the end is what close says.
	added, err := b.progress.Add(0, mpb.BarFillerFunc(r.first), mpb.BarFillerTrim(),
		mpb.BarBtmExtender(mpb.BarFillerFunc(r.second)))
	if err != nil { // only of a container that was waited for
		return b
	}
	b.bar = added
	return b
}

// above hands whole lines to the goroutine that draws, which writes them in front of the
// bar with the next frame. It reports false when that goroutine has ended, as it does after
// the terminal went away.
func (b *bar) above(lines []byte) bool {
	_, err := b.progress.Write(lines)
	return err == nil
}

// close draws the last frame and ends all goroutines.
func (b *bar) close() {
	if b.bar != nil {
		b.bar.SetTotal(-1, true)
	}
	b.progress.Wait()
}

// painter makes the rows of a frame. mpb asks for them one by one, in order and from one
// goroutine; both must be of the same moment and width.
type painter struct {
	o     Options
	model *model
	rows  []string
}

// first fills the first row of a new frame; mpb ends the line.
func (p *painter) first(w io.Writer, s decor.Statistics) error {
	p.rows = rows(p.model.snapshot(time.Now()), min(p.o.columns(), s.AvailableWidth), p.o.Color)
	_, err := io.WriteString(w, p.rows[0])
	return err
}

// second fills the row below it, where there is one.
func (p *painter) second(w io.Writer, _ decor.Statistics) error {
	if len(p.rows) < 2 {
		return nil // a row without a byte is no line
	}
	_, err := io.WriteString(w, p.rows[1]+"\n")
	return err
}
