package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
)

// progressFlags say how it is shown how a job goes on.
type progressFlags struct {
	Progress string `enum:"auto,bar,plain,none" default:"auto" help:"How to show what goes on: a bar, plain lines, or none; auto is a bar on a terminal."`
	NoColor  bool   `name:"no-color" help:"No colours (NO_COLOR)."`
}

// display shows on stderr how a job goes on.
type display struct {
	view  *watch.View
	color bool // of the summary, too
	// note shows a sentence.
	note func(text string)
}

// newDisplay begins a display; it shows nothing yet. summary says that one follows.
func newDisplay(s *session, f *progressFlags, summary bool) *display {
	o := watch.Options{
		Out: s.stderr, Terminal: s.isTerminal(s.stderr), Width: func() int { return width(s.stderr) },
		Silence: s.silence, Summary: summary,
	}
	switch f.Progress {
	case "bar":
		o.Terminal = true
	case "plain":
		o.Terminal = false
	case "none":
		o.Out, o.Terminal = io.Discard, false
	}
	d := &display{color: s.mayColour(s.stderr, f.NoColor)}
	o.Color = d.color
	d.view = watch.New(o)
	d.note = func(text string) {
		for line := range strings.Lines(s.fit(watch.Clean(text))) {
			d.view.Note(strings.TrimSuffix(line, "\n"))
		}
	}
	if f.Progress == "none" {
		d.note = func(text string) { s.sayf("%s", watch.Clean(text)) }
	}
	return d
}

// writer returns the writer for what else goes to w, which may be the terminal of the bar.
func (d *display) writer(w io.Writer) io.Writer { return d.view.Writer(w) }

// close ends what moves. Calling it twice is harmless.
func (d *display) close() { d.view.Close() }

// follower hands the statuses of a job to a display, and says when none come any more.
type follower struct {
	show    *display
	silence time.Duration // without a status until it is said

	mu    sync.Mutex
	timer *time.Timer
	lost  bool
	ended bool
}

// follow begins to expect statuses; stop ends that.
func follow(show *display, silence time.Duration) *follower {
	f := &follower{show: show, silence: silence}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = time.AfterFunc(silence, f.silent)
	return f
}

// seen takes a status.
func (f *follower) seen(job *client.Job) {
	f.mu.Lock()
	back := f.lost
	f.lost = false
	if !f.ended {
		f.timer.Reset(f.silence)
	}
	f.mu.Unlock()
	if back {
		f.show.note("The server answers again.")
	}
	f.show.view.Update(job)
}

func (f *follower) silent() {
	f.mu.Lock()
	tell := !f.lost && !f.ended
	f.lost = true
	f.mu.Unlock()
	if tell {
		f.show.note(fmt.Sprintf("The server has not answered for %s. Trying on; Ctrl-C ends that.", f.silence))
	}
}

func (f *follower) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	f.timer.Stop()
}
