// Package watch shows a person what becomes of a job: a bar that moves while it runs, and
// a summary when it has ended.
//
// On a terminal the bar is drawn over and over at the bottom, and lines of text go above
// it. Anywhere else there is one plain line from time to time. What a site can choose (the
// names of hosts, URLs, messages) never reaches a terminal with control characters in it.
package watch

import (
	"io"
	"sync"
	"time"

	"example.com/trawl/pkg/client"
)

// Options say where a job is shown and how.
type Options struct {
	Out io.Writer // standard error, or in a test what stands for it

	// Terminal says that Out is a terminal, which gets a bar that is drawn over and over;
	// anything else gets a plain line from time to time.
	Terminal bool
	Color    bool       // whether colours may be used; only on a terminal
	Width    func() int // columns of the terminal now; nil or below 1 means 80

	// Silence is how long no status may come until the bar says so in place of what it
	// measures; 0 says nothing.
	Silence time.Duration
	// Summary says that a summary of the ended job follows, to which plain lines leave its end.
	Summary bool
}

// defaultWidth is that of a terminal that does not tell its own, in columns.
const defaultWidth = 80

// columns returns the width to draw for.
func (o Options) columns() int {
	if o.Width != nil {
		if w := o.Width(); w > 0 {
			return w
		}
	}
	return defaultWidth
}

// View shows one job. Its methods may be called from several goroutines.
type View struct {
	o     Options
	model model

	// mu orders what is written. The bar is drawn by a goroutine of its own that takes only
	// the lock of the model: one that holds mu may wait for that goroutine.
	mu      sync.Mutex
	bar     *bar // nil until the first status, and where Out is no terminal
	plain   plain
	writers []*lineWriter
	closed  bool
}

// New begins to show a job. Nothing is written before the first status of it.
func New(o Options) *View {
	if o.Out == nil {
		o.Out = io.Discard
	}
	return &View{o: o, model: model{silence: o.Silence}}
}

// Update shows the status of the job as it is now. A status for nil, and one that comes
// after Close, are ignored.
func (v *View) Update(job *client.Job) {
	if job == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	now := time.Now()
	v.model.update(job, now)
	switch {
	case !v.o.Terminal && v.o.Summary && job.State.Terminal():
	case !v.o.Terminal:
		v.plainLine(v.plain.next(v.model.snapshot(now), now))
	case v.bar == nil:
		v.bar = newBar(v.o, &v.model)
	}
}

// Note shows one line of text: above the bar, and never into it.
func (v *View) Note(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(Clean(line))
}

// Close ends the view: what was shown last stays on the terminal, and the cursor is below it. A second
// call is harmless.
func (v *View) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	for _, w := range v.writers {
		w.finish()
	}
	v.closed = true
	if v.bar != nil {
		v.bar.close()
		return
	}
	if v.o.Terminal || !v.model.seen() {
		return
	}
	if s := v.model.snapshot(time.Now()); !v.o.Summary || !s.state.Terminal() {
		v.plainLine(v.plain.last(s))
	}
}

// note writes one line that is clean; v.mu is held.
func (v *View) note(line string) { _ = v.above(v.o.Out, []byte(line+"\n")) }

// plainLine writes a line of plain mode, if there is one.
func (v *View) plainLine(line string) {
	if line != "" {
		v.note(line)
	}
}

// above writes whole lines: above the bar while there is one, else to w. v.mu is held.
func (v *View) above(w io.Writer, lines []byte) error {
	if v.bar != nil && !v.closed && v.bar.above(lines) {
		return nil
	}
	_, err := w.Write(lines)
	return err
}
