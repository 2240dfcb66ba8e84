//go:build unix

package watch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"golang.org/x/term"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawltest"
)

// realTerminal is a pseudo-terminal of the system, and the screen behind it.
type realTerminal struct {
	tty *os.File // what a program has as its standard error
	ptm *os.File
	vt  vt10x.Terminal

	mu    sync.Mutex
	raw   bytes.Buffer
	piece []byte // of a character whose rest has not come
}

// newRealTerminal opens a pseudo-terminal and shows on a screen what is written to it.
func newRealTerminal(t *testing.T, columns, lines int) *realTerminal {
	t.Helper()
	ptm, tty, err := pty.Open()
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	r := &realTerminal{tty: tty, ptm: ptm, vt: vt10x.New(vt10x.WithSize(max(columns, 1), max(lines, 1)))}
	r.resize(t, columns, lines)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(r, ptm) // ends with an error when the other side is closed
	}()
	t.Cleanup(func() {
		tty.Close()
		<-read
		ptm.Close()
	})
	return r
}

// Write takes what the terminal is sent. A character may come in two pieces.
func (r *realTerminal) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw.Write(b)
	r.piece = append(r.piece, b...)
	whole := len(r.piece)
	for i := 1; i <= min(utf8.UTFMax, len(r.piece)); i++ {
		if last := r.piece[len(r.piece)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				whole -= i
			}
			break
		}
	}
	_, _ = r.vt.Write(r.piece[:whole])
	r.piece = append([]byte(nil), r.piece[whole:]...)
	return len(b), nil
}

// written returns all bytes so far.
func (r *realTerminal) written() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raw.String()
}

// resize changes the size of the terminal, as its window does.
func (r *realTerminal) resize(t *testing.T, columns, lines int) {
	t.Helper()
	if err := pty.Setsize(r.ptm, &pty.Winsize{Cols: uint16(columns), Rows: uint16(lines)}); err != nil {
		t.Fatal(err)
	}
	if columns > 0 {
		r.vt.Resize(columns, lines)
	}
}

// options are those that a command makes for this terminal.
func (r *realTerminal) options(color bool) Options {
	return Options{Out: r.tty, Terminal: true, Color: color, Width: func() int {
		w, _, _ := term.GetSize(int(r.tty.Fd()))
		return w
	}}
}

// within is how long a busy machine may take to draw a frame.
const within = 20 * time.Second

// waitFor waits until the screen shows exactly this. What a clock decides is written as #.
func (r *realTerminal) waitFor(t *testing.T, want string) {
	t.Helper()
	got := ""
	defer func() {
		if t.Failed() {
			t.Logf("the screen shows\n%s", got)
		}
	}()
	crawltest.Eventually(t, within, "on the screen:\n"+want, func() bool {
		got = measured.ReplaceAllString(shownOn(r.vt), "#")
		return got == want
	})
}

// measured is what a clock decides.
var measured = regexp.MustCompile(` *[0-9.–<]+ ?(pages)?/s  [0-9:]+| *– pages/s`)

// A whole job on a terminal of the system: its states, lines above the bar, a window that
// changes its size, the end.
func TestOnARealTerminal(t *testing.T) {
	t.Parallel()
	for _, color := range []bool{true, false} {
		t.Run(fmt.Sprintf("colours %t", color), func(t *testing.T) {
			t.Parallel()
			r := newRealTerminal(t, 100, 12)
			v := New(r.options(color))
			defer v.Close()
			lines := v.Writer(r.tty) // as standard output on the same terminal
			j := client.Job{State: client.Queued, Total: 1, Queued: 1, WaitingFor: "worker", Spec: siteSpec()}
			v.Update(&j)
			r.waitFor(t, `docs.python.org  `+strings.Repeat("─", 50)+`  0/1#
queued · waits for a worker: none is running or all are busy`)

			j = running("")
			j.StartedAt = time.Now()
			v.Update(&j)
			fmt.Fprint(lines, "https://docs.python.org/3/a\nhttps://docs.python")
			fmt.Fprint(lines, ".org/3/b\n")
			r.waitFor(t, `https://docs.python.org/3/a
https://docs.python.org/3/b
docs.python.org  `+strings.Repeat("━", 21)+strings.Repeat("─", 29)+`   42/100#
40 accepted · 1 failed · 1 skipped · 56 queued · 2 in progress`)

			r.resize(t, 40, 12)
			v.Note("narrower")
			r.waitFor(t, `https://docs.python.org/3/a
https://docs.python.org/3/b
narrower
━━━━━━━──────────   42/100#
40 accepted · 1 failed · 1 skipped`)

			r.resize(t, 100, 12)
			j.State, j.Queued, j.Active, j.Cancelled = client.Cancelled, 0, 0, 58
			j.EndedAt = j.StartedAt.Add(10 * time.Second)
			v.Update(&j)
			v.Close()
			r.waitFor(t, `https://docs.python.org/3/a
https://docs.python.org/3/b
narrower
docs.python.org  `+strings.Repeat("━", 21)+strings.Repeat("─", 29)+`   42/100#
cancelled · 40 accepted · 1 failed · 1 skipped · 58 cancelled`)
			if c := r.vt.Cursor(); c.X != 0 || c.Y != 5 || !r.vt.CursorVisible() {
				t.Errorf("the cursor is at %d, %d, visible %t; wanted below the bar", c.X, c.Y, r.vt.CursorVisible())
			}
			Summary(r.tty, &j, nil, color)
			crawltest.Eventually(t, within, "a summary below the bar", func() bool {
				return strings.HasSuffix(shownOn(r.vt), "58 cancelled\ncancelled after 10.0 s: "+
					"40 accepted, 1 failed, 1 skipped, 58 cancelled of 100 URLs")
			})
			if got := sgr.MatchString(r.written()); got != color {
				t.Errorf("colours in the output: %t, wanted %t", got, color)
			}
		})
	}
}

// A terminal shows what is typed where the cursor is, which is below the bar. The bar is
// drawn over it, from the first column on.
func TestEchoIsDrawnOver(t *testing.T) {
	t.Parallel()
	for columns, bar := range map[int]string{
		80: "docs.python.org  ━━━━━━━━━━━━━━╸──────────────────   42/100#\n" +
			"40 accepted · 1 failed · 1 skipped · 56 queued · 2 in progress",
		40: "━━━━━━━──────────   42/100#\n40 accepted · 1 failed · 1 skipped",
	} {
		t.Run(fmt.Sprintf("%d columns", columns), func(t *testing.T) {
			t.Parallel()
			r := newRealTerminal(t, columns, 12)
			v := New(r.options(false))
			defer v.Close()
			j := running("")
			j.StartedAt = time.Now()
			v.Update(&j)
			v.Note("above")
			waitForBar := func(text string) {
				crawltest.Eventually(t, within, "the bar alone, below "+text, func() bool {
					return bars.ReplaceAllString(measured.ReplaceAllString(shownOn(r.vt), "#"), "━") ==
						bars.ReplaceAllString(text+"\n"+bar, "━")
				})
			}
			waitForBar("above")
			// ^B is shown as ^C is, but the terminal does not throw away for it what was written.
			for keys, last := range map[string]string{"\x02": "B", "typed keys, Z": "Z"} {
				if _, err := r.ptm.WriteString(keys); err != nil {
					t.Fatal(err)
				}
				crawltest.Eventually(t, within, "the echo of keys", func() bool {
					return strings.Contains(r.written(), last)
				})
				waitForBar("above")
			}
			v.Note("after")
			waitForBar("above\nafter")
		})
	}
}

// bars is a bar, whose length depends on how many columns the measured figures have.
var bars = regexp.MustCompile(`[━╸─]+`)

// A terminal that does not know its size, as in a container, gets a bar for 80 columns.
func TestOnARealTerminalWithoutASize(t *testing.T) {
	t.Parallel()
	r := newRealTerminal(t, 0, 0)
	r.vt.Resize(80, 12)
	v := New(r.options(false))
	j := running("")
	v.Update(&j)
	v.Close()
	crawltest.Eventually(t, within, "a bar", func() bool {
		return strings.HasSuffix(shownOn(r.vt), "\n40 accepted · 1 failed · 1 skipped · 56 queued · 2 in progress")
	})
}
