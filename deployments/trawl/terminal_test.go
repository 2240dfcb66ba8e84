//go:build unix

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"github.com/hinshun/vt10x"
	"golang.org/x/term"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawltest"
)

// The screen is as large as this whatever the terminal says of itself: a line that the
// terminal would wrap is then seen as too long.
const screenColumns, screenLines = 300, 60

var (
	sgr     = regexp.MustCompile("\x1b\\[[0-9;]*m")
	redrawn = regexp.MustCompile("\x1b\\[\\d*A") // the cursor goes up, to where the bar begins
)

// terminalRun is what a run of the program on a terminal left.
type terminalRun struct {
	code   int
	raw    string
	screen []string // the lines that are not empty
}

// terminal is a program that runs on a terminal of its own.
type terminal struct {
	cmd     *exec.Cmd
	ptm     *os.File // what a person has: keyboard and screen
	tty     *os.File // what the program has
	reading sync.WaitGroup

	mu  sync.Mutex
	raw bytes.Buffer
}

// Write takes what the program writes to the terminal.
func (r *terminal) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raw.Write(b)
}

func (r *terminal) written() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raw.String()
}

// startOnTerminal runs the program with a terminal of so many columns as its standard
// error, which also controls it: a ^C there is a signal.
func startOnTerminal(t *testing.T, columns int, env []string, args ...string) *terminal {
	t.Helper()
	r := &terminal{cmd: exec.CommandContext(t.Context(), crawltest.Build(t, command), args...)}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "TRAWL_") && !strings.HasPrefix(kv, "NO_COLOR=") && !strings.HasPrefix(kv, "TERM=") {
			r.cmd.Env = append(r.cmd.Env, kv)
		}
	}
	r.cmd.Env = append(r.cmd.Env, append([]string{"TERM=xterm-256color"}, env...)...)
	var err error
	if r.ptm, r.tty, err = pty.Open(); err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	if err := pty.Setsize(r.ptm, &pty.Winsize{Cols: uint16(columns), Rows: 30}); err != nil {
		t.Fatal(err)
	}
	r.cmd.Stderr = r.tty
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 2}
	r.reading.Go(func() { _, _ = io.Copy(r, r.ptm) }) // an error is how a terminal says that it was closed
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return r
}

// wait waits for the program and returns what it left.
func (r *terminal) wait(t *testing.T) terminalRun {
	t.Helper()
	err := r.cmd.Wait()
	r.tty.Close()
	r.reading.Wait()
	r.ptm.Close()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	run := terminalRun{code: r.cmd.ProcessState.ExitCode(), raw: r.written()}
	vt := vt10x.New(vt10x.WithSize(screenColumns, screenLines))
	_, _ = vt.Write([]byte(run.raw))
	for line := range strings.Lines(vt.String()) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			run.screen = append(run.screen, line)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("exit code %d, the screen shows\n%s", run.code, strings.Join(run.screen, "\n"))
		}
	})
	return run
}

func onTerminal(t *testing.T, columns int, env []string, args ...string) terminalRun {
	t.Helper()
	return startOnTerminal(t, columns, env, args...).wait(t)
}

func TestCrawlOnTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		columns int
		env     []string
		args    []string
		colours bool
	}{
		{"wide", 120, nil, nil, true},
		{"usual", 80, nil, nil, true},
		{"narrow", 40, nil, nil, true},
		{"NO_COLOR", 80, []string{"NO_COLOR=1"}, nil, false},
		{"no-color", 80, nil, []string{"--no-color"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out.ndjson")
			run := onTerminal(t, tt.columns, tt.env, append([]string{"crawl", "-o", out}, tt.args...)...)
			if run.code != exitOK {
				t.Errorf("exit code %d, want 0", run.code)
			}
			if n := wholeRecords(t, out); n != 24 {
				t.Errorf("%d records, want 24", n)
			}
			shown := strings.Join(run.screen, "\n")
			for _, want := range []string{`No URL given`, `25/25`, `(?m)^completed`, `24 accepted`} {
				if !regexp.MustCompile(want).MatchString(shown) {
					t.Errorf("the screen shows nothing like %q", want)
				}
			}
			// The bar was drawn on the way, and over itself.
			if !redrawn.MatchString(run.raw) || strings.Count(shown, "25/25") != 1 {
				t.Errorf("no bar moved, or it left traces: %q", run.raw)
			}
			for _, line := range run.screen {
				if n := len([]rune(line)); n > tt.columns {
					t.Errorf("a line has %d columns: %q", n, line)
				}
			}
			if got := sgr.MatchString(run.raw); got != tt.colours {
				t.Errorf("colours: %v, want %v", got, tt.colours)
			}
		})
	}
}

// A terminal that can do no more than lines gets lines.
func TestDumbTerminal(t *testing.T) {
	t.Parallel()
	run := onTerminal(t, 80, []string{"TERM=dumb"}, "crawl", "-o", os.DevNull)
	if run.code != exitOK || strings.Contains(run.raw, "\x1b") {
		t.Errorf("exit code %d, written %q", run.code, run.raw)
	}
}

// A message that is longer than the terminal is broken between words.
func TestErrorOnTerminal(t *testing.T) {
	t.Parallel()
	run := onTerminal(t, 40, nil, "list")
	want := `trawl: There is no key for the server at
       http://127.0.0.1:8008: set
       TRAWL_KEY, or name a file with
       --key-file.`
	if run.code != exitFailed || strings.Join(run.screen, "\n") != want {
		t.Errorf("exit code %d, want 2 and\n%s", run.code, want)
	}
}

// After Ctrl-C the terminal is as it was, and says what became of the job.
func TestCtrlCOnTerminal(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out.ndjson")
	r := startOnTerminal(t, 80, nil, "crawl", "--delay", "2s", "-o", out)
	before, err := term.GetState(int(r.tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	crawltest.Eventually(t, within, "a bar and a page", func() bool {
		return redrawn.MatchString(r.written()) && len(lines(out)) > 0
	})
	if _, err := r.ptm.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	crawltest.Eventually(t, within, "the summary", func() bool { return strings.Contains(r.written(), " kept in ") })
	after, err := term.GetState(int(r.tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after, cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
		t.Errorf("the terminal was changed: %s", diff)
	}
	run := r.wait(t)
	if run.code != exitInterrupted {
		t.Errorf("exit code %d, want 130", run.code)
	}
	shown := strings.Join(run.screen, "\n")
	for _, want := range []string{"Cancelling; press Ctrl-C again to leave at once.", "\ncancelled after "} {
		if !strings.Contains(shown, want) {
			t.Errorf("the screen shows no %q", want)
		}
	}
	if n := strings.Count(shown, "pages/s"); n != 1 || strings.Contains(shown, "^Ccancelled") {
		t.Errorf("the bar is there %d times, or the echo of ^C with it", n)
	}
	if hidden, shown := strings.LastIndex(run.raw, "\x1b[?25l"), strings.LastIndex(run.raw, "\x1b[?25h"); hidden > shown {
		t.Error("the cursor stays hidden")
	}
	wholeRecords(t, out)
}

// A row of a table is cut where the terminal ends, wide characters counted as such, and is
// whole anywhere else.
func TestTable(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"JOB", "FROM"}, {"j1", "https://docs.example.org/漢字漢字漢字"}, {"j23", "\x1b[31mshort"}}
	s := &session{environ: map[string]string{"TERM": "xterm"}}
	var file strings.Builder
	if err := s.table(&file, rows); err != nil {
		t.Fatal(err)
	}
	const whole = "JOB  FROM\nj1   https://docs.example.org/漢字漢字漢字\nj23  \ufffd[31mshort\n"
	if file.String() != whole {
		t.Errorf("to a file: %q", file.String())
	}

	got := onScreen(t, 36, func(tty *os.File) error { return s.table(tty, rows) })
	if want := "JOB  FROM\r\nj1   https://docs.example.org/漢字…\r\nj23  \ufffd[31mshort\r\n"; got != want {
		t.Errorf("on a terminal: %q, want %q", got, want)
	}
}

// onScreen returns what write writes to a terminal of so many columns.
func onScreen(t *testing.T, columns int, write func(tty *os.File) error) string {
	t.Helper()
	ptm, tty, err := pty.Open()
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	defer ptm.Close()
	if err := pty.Setsize(ptm, &pty.Winsize{Cols: uint16(columns), Rows: 30}); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(ptm) // an error is how a terminal says that it was closed
		shown <- string(text)
	}()
	if err := write(tty); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	return crawltest.Receive(t, within, "what is on the terminal", shown)
}

// The facts of a job are broken between words where the terminal ends, and none is cut.
func TestFacts(t *testing.T) {
	t.Parallel()
	rows := statusRows(&client.Job{
		ID: "j1", State: client.Running, WaitingFor: "robots", Total: 9, Processed: 3, Accepted: 2, Failed: 1, Active: 6,
		FailedByType: map[string]int64{"http_404": 1},
		Spec:         &client.Spec{SeedURL: "https://docs.example.org/3/tutorial/index.html"},
	})
	s := &session{environ: map[string]string{"TERM": "xterm"}}
	got := onScreen(t, 40, func(tty *os.File) error { return s.facts(tty, rows) })
	want := `job     j1
state   running
now     waits for robots.txt of its site
pages   3 of 9 processed: 2 accepted, 1
        failed, 6 in progress
failed  http_404 1
bytes   0
from    https://docs.example.org/3/tutorial/index.html
`
	if got = strings.ReplaceAll(got, "\r", ""); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	var file strings.Builder
	if err := s.facts(&file, rows); err != nil || !strings.Contains(file.String(), "2 accepted, 1 failed, 6 in progress\n") {
		t.Errorf("to a file: %q, %v", file.String(), err)
	}
}
