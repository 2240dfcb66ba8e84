package watch

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/client"
)

// timed notes each line with the time since it was made.
type timed struct {
	begin time.Time
	lines []string
}

func (w *timed) Write(b []byte) (int, error) {
	w.lines = append(w.lines, fmt.Sprintf("%v %s", time.Since(w.begin), b))
	return len(b), nil
}

// pass lets time go by inside a bubble.
func pass(d time.Duration) { <-time.After(d) }

// watchFor shows a job ten times a second.
func watchFor(v *View, j *client.Job, d time.Duration, each func()) {
	for range d / (100 * time.Millisecond) {
		each()
		v.Update(j)
		pass(100 * time.Millisecond)
	}
}

// Where there is no terminal a line comes when there is something to say, and when there
// was nothing for a while: exactly these, at exactly these times.
func TestPlainLinesComeWhenTheyShould(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &timed{begin: time.Now()}
		v := New(Options{Out: out, Color: true}) // a colour is for terminals
		j := &client.Job{State: client.Queued, Total: 1, Queued: 1, WaitingFor: "worker", Spec: siteSpec()}
		nothing := func() {}
		watchFor(v, j, 35*time.Second, nothing)

		j.State, j.WaitingFor, j.Total = client.Running, "", 100
		accept := func() { j.Processed++; j.Accepted++ }
		watchFor(v, j, 6*time.Second, accept)

		j.WaitingFor = "host_delay"
		i := 0
		watchFor(v, j, 4*time.Second, func() { // it flickers
			i++
			j.WaitingFor = []string{"", "host_delay"}[i%2]
		})
		j.WaitingFor = "host_delay"
		watchFor(v, j, 32*time.Second, nothing)

		j.State, j.WaitingFor, j.StopReason = client.Cancelled, "", "cancelled"
		watchFor(v, j, time.Second, nothing)
		v.Close()
		v.Close()
		v.Update(j)

		want := []string{
			"0s trawl: queued, 0 of 1 pages, 0 accepted, 0 failed, 0 skipped\n",
			"2s trawl: queued, 0 of 1 pages, 0 accepted, 0 failed, 0 skipped, " +
				"waits for a worker: none is running or all are busy\n",
			"32s trawl: still queued, 0 of 1 pages, 0 accepted, 0 failed, 0 skipped, " +
				"waits for a worker: none is running or all are busy\n",
			"35s trawl: running, 1 of 100 pages, 1 accepted, 0 failed, 0 skipped\n",
			"40s trawl: running, 51 of 100 pages, 51 accepted, 0 failed, 0 skipped, 10 pages/s\n",
			"41s trawl: running, 60 of 100 pages, 60 accepted, 0 failed, 0 skipped, 9.8 pages/s, " +
				"waits for its host (500ms between requests)\n",
			"1m11s trawl: still running, 60 of 100 pages, 60 accepted, 0 failed, 0 skipped, 0 pages/s, " +
				"waits for its host (500ms between requests)\n",
			"1m17s trawl: cancelled, 60 of 100 pages, 60 accepted, 0 failed, 0 skipped\n",
		}
		if diff := cmp.Diff(want, out.lines); diff != "" {
			t.Error(diff)
		}
	})
}

// What was not told yet when the view ends is told then.
func TestPlainViewEndsWithTheLastCounts(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := New(Options{Out: &out})
	v.Update(&client.Job{State: client.Running, Total: 2})
	v.Update(&client.Job{State: client.Running, Total: 2, Processed: 1, Accepted: 1})
	v.Close()
	want := "trawl: running, 0 of 2 pages, 0 accepted, 0 failed, 0 skipped\n" +
		"trawl: running, 1 of 2 pages, 1 accepted, 0 failed, 0 skipped\n"
	if got := out.String(); got != want {
		t.Errorf("%q, wanted %q", got, want)
	}
}

// A summary says how the job ended: no line says it before, and none while records still come.
func TestPlainViewLeavesTheEndToTheSummary(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := New(Options{Out: &out, Summary: true})
	w := v.Writer(&out)
	v.Update(&client.Job{State: client.Running, Total: 1})
	v.Update(&client.Job{State: client.Completed, Total: 1, Processed: 1, Accepted: 1})
	fmt.Fprintln(w, "a record")
	v.Close()
	if got, want := out.String(), "trawl: running, 0 of 1 pages, 0 accepted, 0 failed, 0 skipped\na record\n"; got != want {
		t.Errorf("%q, wanted %q", got, want)
	}
}

// What every job waits for when it begins is said only when it lasts, of each wait anew.
func TestFirstWaitsAreSaidWhenTheyLast(t *testing.T) {
	t.Parallel()
	m := &model{}
	for _, c := range []struct {
		at   time.Duration
		wait string
		want string
	}{
		{0, "worker", ""},
		{1900 * time.Millisecond, "robots", ""},
		{3 * time.Second, "robots", ""},
		{4 * time.Second, "robots", "waits for robots.txt of its site"},
		{5 * time.Second, "", ""},
		{6 * time.Second, "robots", ""},
	} {
		j := running(c.wait)
		m.update(&j, begin.Add(c.at))
		if got := m.snapshot(begin.Add(c.at)).wait.long; got != c.want {
			t.Errorf("after %v: %q, wanted %q", c.at, got, c.want)
		}
	}
}

func TestPlainViewPassesEverythingElseOn(t *testing.T) {
	t.Parallel()
	var out, other bytes.Buffer
	v := New(Options{Out: &out})
	same := v.Writer(&out)
	if v.Writer(&other) != &other {
		t.Error("another writer is wrapped")
	}
	fmt.Fprint(same, "half")
	fmt.Fprint(same, " a \x1b[1mline\n")
	v.Note("a note\nof \x1b]0;x\x07two lines")
	v.Close()
	fmt.Fprint(same, "late")
	v.Note("later")
	want := "half a \x1b[1mline\na note of �]0;x�two lines\nlatelater\n"
	if got := out.String(); got != want {
		t.Errorf("%q, wanted %q", got, want)
	}
}

// A host may be called anything; the log of a program that greps it must not be.
func TestPlainLinesHoldNoEscape(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	v := New(Options{Out: &out, Color: true})
	evil := strings.Repeat("\x1b]0;owned\x07\n", 100)
	v.Update(&client.Job{ID: evil, State: "\x1b[31mrunning", WaitingFor: "dispatch", Error: evil})
	v.Close()
	got := out.String()
	if strings.ContainsAny(got, "\x1b\x07") || strings.Count(got, "\n") != 1 || columns(got) > plainMost {
		t.Errorf("%q", got)
	}
}
