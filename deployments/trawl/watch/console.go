package watch

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// console writes the frames of a bar to a terminal, each over the one before. That of mpb
// moves the cursor up and leaves it in its column, which the echo of a key has changed.
type console struct {
	bytes.Buffer // the frame that is being made

	out   io.Writer
	lines int // of the bar that was drawn last
}

// IsTerminal implements mpb.ConsoleWriter.
func (*console) IsTerminal() bool { return true }

// GetTermSize implements mpb.ConsoleWriter. A terminal that has no size to tell, as a
// container's may, would be given a bar of no lines; it is drawn for as well, and so is a
// writer that stands for a terminal in a test.
func (c *console) GetTermSize() (width, height int, err error) {
	if f, ok := c.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h, nil
		}
	}
	return unbounded, unbounded, nil
}

// Flush implements mpb.ConsoleWriter: it draws the frame, whose last lines are the bar. All
// of it is one write, so that nobody sees half a frame.
func (c *console) Flush(lines int) error {
	frame := []byte("\r")
	if c.lines > 0 {
		frame = fmt.Appendf(frame, "\x1b[%dA", c.lines)
	}
	frame = append(frame, "\x1b[J"...)
	frame = append(frame, c.Bytes()...)
	c.Reset()
	c.lines = lines
	_, err := c.out.Write(frame)
	return err
}
