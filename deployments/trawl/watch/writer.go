package watch

import (
	"bytes"
	"io"
	"os"
	"reflect"
)

// Writer returns a writer for lines that go to w, which is (or may be) the same terminal as
// Out: on a terminal they appear above the bar. Half a line is kept until the rest comes, or
// until Close.
//
// Lines for the terminal that Out is lose their control characters, colours only where the
// options have none; tabs stay. Another w gets each byte as it is.
func (v *View) Writer(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	if !sameFile(w, v.o.Out) {
		return w
	}
	lw := &lineWriter{v: v, w: w}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.writers = append(v.writers, lw)
	return lw
}

// sameFile reports whether a and b are the same writer, or files that are the same, as
// standard output and standard error of one terminal are.
func sameFile(a, b io.Writer) bool {
	if x, y := reflect.ValueOf(a), reflect.ValueOf(b); x.Comparable() && y.Comparable() && a == b {
		return true
	}
	f, ok := a.(*os.File)
	g, also := b.(*os.File)
	if !ok || !also {
		return false
	}
	x, errX := f.Stat()
	y, errY := g.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// lineWriter keeps lines whole that share a file with the bar.
type lineWriter struct {
	v    *View
	w    io.Writer
	half []byte // a line whose end has not come; guarded by v.mu
}

// Write implements io.Writer. Where Out is no terminal it passes b on.
func (w *lineWriter) Write(b []byte) (int, error) {
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	if !w.v.o.Terminal {
		return w.w.Write(b)
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	if w.v.closed {
		end = len(b) // nothing is drawn any more that half a line could disturb
	}
	if end == 0 {
		w.half = append(w.half, b...)
		return len(b), nil
	}
	lines := b[:end]
	if len(w.half) > 0 {
		lines = append(w.half, lines...)
	}
	w.half = nil
	if err := w.v.above(w.w, cleanLines(lines, w.v.o.Color)); err != nil {
		return 0, err
	}
	w.half = append(w.half, b[end:]...)
	return len(b), nil
}

// finish writes a last line that has no end, and ends it, so that the bar begins on a line
// of its own. w.v.mu is held.
func (w *lineWriter) finish() {
	if len(w.half) == 0 {
		return
	}
	half := append(w.half, '\n')
	w.half = nil
	_ = w.v.above(w.w, cleanLines(half, w.v.o.Color))
}
