package watch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hinshun/vt10x"

	"example.com/trawl/pkg/client"
)

// screen is a terminal in memory that also keeps what was written.
type screen struct {
	mu  sync.Mutex
	vt  vt10x.Terminal
	raw bytes.Buffer
}

func newScreen(columns, lines int) *screen {
	return &screen{vt: vt10x.New(vt10x.WithSize(columns, lines))}
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw.Write(b)
	_, _ = s.vt.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))) // as the driver of a terminal does
	return len(b), nil
}

// written returns all bytes so far.
func (s *screen) written() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.String()
}

// shownOn returns the lines of the screen down to the last that is not empty.
func shownOn(vt vt10x.View) string {
	lines := strings.Split(vt.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// terminalOf is options for a terminal in memory.
func terminalOf(s io.Writer, columns int) Options {
	return Options{Out: s, Terminal: true, Color: true, Width: func() int { return columns }}
}

// Lines go above the bar, the bar moves, and what was last stays.
func TestBarStaysBelowTheLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScreen(80, 10)
		v := New(terminalOf(s, 80))
		w := v.Writer(s)
		fmt.Fprintln(w, "before the first status")
		j := running("")
		j.StartedAt = time.Now()
		j.Total, j.Processed, j.Spec = 2, 0, siteSpec()
		v.Update(&j)
		pass(2 * time.Second)
		fmt.Fprint(w, "first\nsec")
		fmt.Fprint(w, "ond\nhal")
		v.Note("a note")
		j.Processed, j.Accepted = 1, 1
		v.Update(&j)
		pass(time.Second + redrawEvery/2) // between two frames
		want := `before the first status
first
second
a note
docs.python.org  ━━━━━━━━━━━━╸─────────────────────────  1/2   0.3 pages/s  0:03
1 accepted · 1 failed · 1 skipped · 56 queued · 2 in progress`
		if got := shownOn(s.vt); got != want {
			t.Errorf("the screen shows\n%s\nwanted\n%s", got, want)
		}

		j.State, j.Processed, j.Accepted, j.EndedAt = client.CompletedWithErrors, 2, 1, j.StartedAt.Add(4*time.Second)
		j.Skipped, j.Queued, j.Active = 0, 0, 0
		v.Update(&j)
		v.Close()
		v.Close()
		v.Update(&client.Job{State: client.Running})
		fmt.Fprint(w, "after")
		fmt.Fprint(w, " it")
		pass(time.Minute)
		want = `before the first status
first
second
a note
hal
docs.python.org  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━  2/2   0.5 pages/s  0:04
completed with errors · 1 accepted · 1 failed · 0 skipped
after it`
		if got := shownOn(s.vt); got != want {
			t.Errorf("the screen shows\n%s\nwanted\n%s", got, want)
		}
		if c := s.vt.Cursor(); c.X != len("after it") || c.Y != 7 || !s.vt.CursorVisible() {
			t.Errorf("the cursor is at %d, %d, visible %t; wanted behind all", c.X, c.Y, s.vt.CursorVisible())
		}
	})
}

// A window may become so narrow that there is one row, and wide again.
func TestSecondRowComesAndGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScreen(80, 10)
		var width atomic.Int64
		o := terminalOf(s, 80)
		o.Width = func() int { return int(width.Load()) } // below 1, it means 80
		v := New(o)
		j := running("")
		v.Update(&j)
		for _, c := range []struct {
			width int64
			rows  int
		}{{0, 2}, {30, 1}, {60, 2}, {20, 1}} {
			width.Store(c.width)
			pass(time.Second)
			if got := shownOn(s.vt); strings.Count(got, "\n")+1 != c.rows {
				t.Errorf("at width %d, wanted %d rows:\n%s", c.width, c.rows, got)
			}
		}
		v.Close()
		if got := shownOn(s.vt); got != "42/100 running" {
			t.Errorf("the last frame is %q", got)
		}
	})
}

func TestViewWithoutStatusWritesNothing(t *testing.T) {
	t.Parallel()
	for _, terminal := range []bool{true, false} {
		var out bytes.Buffer
		v := New(Options{Out: &out, Terminal: terminal})
		v.Update(nil)
		v.Close()
		v.Close()
		if out.Len() > 0 {
			t.Errorf("terminal %t: %q", terminal, out.String())
		}
	}
	New(Options{Terminal: true}).Close() // without a place to write to
}

var sgr = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// What sites and services choose does not reach the terminal as it is, and without colours
// there is no colour.
func TestTerminalGetsNoEscapeOfOthers(t *testing.T) {
	t.Parallel()
	for _, color := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newScreen(100, 20)
			o := terminalOf(s, 100)
			o.Color = color
			v := New(o)
			evil := "\x1b]0;owned\x07\x1b[2J\u202e\u009b31m\r\n"
			j := running("")
			j.Spec = &client.Spec{SeedURL: evil}
			j.WaitingFor, j.Error, j.ID = evil, evil, evil
			v.Update(&j)
			pass(time.Second)
			v.Note(evil)
			fmt.Fprintln(v.Writer(s), "title "+evil+"\x1b[31mred\x1b[m")
			j.State, j.StopReason = client.Failed, evil
			v.Update(&j)
			v.Close()
			failed := []client.PageError{{SourceURL: evil, ErrorType: evil, Message: evil}}
			Summarize(s, &j, failed, SummaryOptions{Color: color})
			raw := strings.ReplaceAll(s.written(), "\r\x1b[", "\x1b[") // where a frame begins
			for _, bad := range []string{"\x1b]", "\x1b[2J", "\x07", "\u202e", "\u009b", "\r"} {
				if strings.Contains(raw, bad) {
					t.Errorf("colours %t: %q reached the terminal", color, bad)
				}
			}
			if got := sgr.MatchString(raw); got != color {
				t.Errorf("colours %t, but in the output %t", color, got)
			}
		})
	}
}

// However lines come, whole or in pieces, from many goroutines and while the bar moves, each
// reaches the terminal once and whole.
func TestLinesAreWholeUnderConcurrency(t *testing.T) {
	t.Parallel()
	const writers, lines = 8, 200
	s := newScreen(80, 24)
	v := New(terminalOf(s, 80))
	j := running("")
	v.Update(&j)
	var wg sync.WaitGroup
	for g := range writers {
		w := v.Writer(s)
		wg.Go(func() {
			for i := range lines {
				l := fmt.Sprintf("<writer %d line %d>\n", g, i)
				at := (g*31 + i*7) % len(l)
				fmt.Fprint(w, l[:at])
				fmt.Fprint(w, l[at:])
			}
		})
	}
	wg.Go(func() {
		for i := range lines {
			c := j
			c.Processed = int64(i)
			v.Update(&c)
			v.Note(fmt.Sprintf("<note %d>", i))
		}
	})
	wg.Wait()
	v.Close()
	raw := "\n" + strings.ReplaceAll(s.written(), "\x1b[J", "\n")
	for g := range writers {
		for i := range lines {
			if l := fmt.Sprintf("\n<writer %d line %d>\n", g, i); strings.Count(raw, l) != 1 {
				t.Fatalf("%q is there %d times", l, strings.Count(raw, l))
			}
		}
	}
	if n := strings.Count(raw, "\n<note "); n != lines {
		t.Errorf("%d notes, wanted %d", n, lines)
	}
}

// A view may be closed while statuses and lines still come; nothing is left running, which
// TestMain looks for, and no line is lost.
func TestCloseWhileItIsUsed(t *testing.T) {
	t.Parallel()
	for _, terminal := range []bool{true, false} {
		for range 20 {
			s := newScreen(80, 24)
			o := terminalOf(s, 80)
			o.Terminal = terminal
			v := New(o)
			w := v.Writer(s)
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Go(func() {
					for i := range 25 {
						j := running("")
						j.Processed = int64(i)
						v.Update(&j)
						fmt.Fprintf(w, "<%d %d>\n", g, i)
					}
				})
			}
			wg.Go(v.Close)
			wg.Go(v.Close)
			wg.Wait()
			if n := strings.Count(s.written(), "<"); n != 100 {
				t.Fatalf("%d lines, wanted 100", n)
			}
		}
	}
}

// brokenWriter fails from a moment on, as a terminal does that was closed.
type brokenWriter struct {
	left int
	mu   sync.Mutex
}

var errGone = errors.New("the terminal is gone")

func (w *brokenWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left--; w.left < 0 {
		return 0, errGone
	}
	return len(b), nil
}

// When the terminal goes away, nothing hangs, and who writes lines learns of it.
func TestTerminalThatGoesAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &brokenWriter{left: 3}
		v := New(terminalOf(out, 80))
		w := v.Writer(out)
		j := running("")
		v.Update(&j)
		pass(time.Minute)
		if _, err := fmt.Fprintln(w, "a line"); !errors.Is(err, errGone) {
			t.Errorf("%v, wanted %v", err, errGone)
		}
		v.Update(&j)
		v.Note("a note")
		v.Close()
	})
}

func TestSameFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, again, b := open("a"), open("a"), open("b")
	closed := open("c")
	closed.Close()
	var buf, buf2 bytes.Buffer
	type list struct {
		io.Writer
		_ []int // so that == panics
	}
	for _, c := range []struct {
		name string
		a, b io.Writer
		want bool
	}{
		{"one file", a, a, true},
		{"one file opened twice", a, again, true},
		{"two files", a, b, false},
		{"a closed one", closed, a, false},
		{"one buffer", &buf, &buf, true},
		{"two buffers", &buf, &buf2, false},
		{"a file and a buffer", a, &buf, false},
		{"what does not compare", list{}, list{}, false},
	} {
		if got := sameFile(c.a, c.b); got != c.want {
			t.Errorf("%s: %t, wanted %t", c.name, got, c.want)
		}
	}
	if v := New(terminalOf(a, 80)); v.Writer(b) != b || v.Writer(nil) != io.Discard {
		t.Error("what is not the terminal is wrapped")
	}
}

// BenchmarkWriter says what the bar costs long output, a line of 120 bytes at a time.
func BenchmarkWriter(b *testing.B) {
	var out struct{ io.Writer }
	out.Writer = io.Discard
	v := New(terminalOf(&out, 80))
	w := v.Writer(&out)
	j := running("")
	v.Update(&j)
	l := []byte(strings.Repeat("x", 119) + "\n")
	b.SetBytes(int64(len(l)))
	for b.Loop() {
		_, _ = w.Write(l)
	}
	v.Close()
}
