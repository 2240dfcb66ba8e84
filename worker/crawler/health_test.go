package crawler

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/store"
)

// failing returns the names of the conditions that do not hold; alive is that of /healthz.
func (v *vitals) failing(t *testing.T) (names string, alive bool) {
	t.Helper()
	for _, c := range v.ready() {
		if c.Ready(t.Context()) != nil {
			names += c.Name + " "
		}
	}
	return names, v.live(t.Context()) == nil
}

func wantVitals(t *testing.T, v *vitals, when, failing string, alive bool) {
	t.Helper()
	if names, lives := v.failing(t); names != failing || lives != alive {
		t.Errorf("%s: failing %q, alive %v, want %q, %v", when, names, lives, failing, alive)
	}
}

// pass lets time pass, and has the loop of the sweeps come round each second meanwhile, and the
// queue say each time that it is as given.
func (v *vitals) pass(d time.Duration, sweep, queue error) {
	for range d / time.Second {
		<-time.After(time.Second)
		v.sweep(0, sweep)
		v.queue(queue)
	}
}

// What fails makes a worker unready. Only what a restart mends says that it does not live: an
// outage of Redis restarts no worker, and neither does a long drain.
func TestVitals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("Redis is away")
		var v vitals
		wantVitals(t, &v, "before the start", "process ", true)
		v.begin()
		wantVitals(t, &v, "started", "", true)
		<-time.After(29 * time.Second)
		wantVitals(t, &v, "no sign yet", "", true)
		v.pass(time.Hour, nil, nil)
		wantVitals(t, &v, "an hour later", "", true)
		v.pass(10*time.Second, away, nil)
		wantVitals(t, &v, "some sweeps failed", "", true)
		for range 60 {
			<-time.After(time.Second)
			v.sweep(1, away)
			v.queue(nil)
		}
		wantVitals(t, &v, "one tenant cannot be swept", "", true)
		v.pass(time.Second, nil, away)
		wantVitals(t, &v, "the queue is away", "queue ", true)
		v.pass(time.Hour, away, away)
		wantVitals(t, &v, "Redis is away for an hour", "queue sweep ", true)
		v.pass(time.Second, nil, nil)
		wantVitals(t, &v, "it is back", "", true)
		<-time.After(31 * time.Second)
		wantVitals(t, &v, "no sign of life", "queue sweep ", true)
		<-time.After(2 * time.Minute)
		wantVitals(t, &v, "stuck", "queue sweep ", false)
		v.pass(time.Second, nil, nil)
		wantVitals(t, &v, "it goes on", "", true)
		v.end()
		wantVitals(t, &v, "draining", "process ", true)
		<-time.After(time.Hour)
		wantVitals(t, &v, "draining for long", "process ", true)
	})
}

// hanging is a store whose sweeps do not end before their context does, or not at all.
type hanging struct {
	Store
	deaf chan struct{} // nil: it heeds its context
}

func (h hanging) Sweep(ctx context.Context) (store.Swept, error) {
	done := ctx.Done()
	if h.deaf != nil {
		done = h.deaf
	}
	<-done
	return store.Swept{}, ctx.Err()
}

// The loop of the sweeps comes round in a minute whatever the store does; when it does not, the
// process is stuck.
func TestSweepComesRound(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"hangs": false, "stuck": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := hanging{}
				if deaf {
					h.deaf = make(chan struct{})
				}
				c := New(Options{Store: h, Logger: slog.New(slog.DiscardHandler), Concurrency: 1})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				c.vitals.begin()
				go func() { defer close(done); c.Sweep(ctx) }()
				for range 200 {
					<-time.After(time.Second)
					if err := c.vitals.live(t.Context()); !deaf && err != nil {
						t.Fatal(err)
					}
				}
				if err := c.vitals.live(t.Context()); deaf && err == nil {
					t.Error("it is not noticed")
				}
				if c.vitals.heals(t.Context()) == nil {
					t.Error("no sweep has gone through, and it is ready")
				}
				cancel()
				if deaf {
					close(h.deaf)
				}
				<-done
			})
		})
	}
}

// No path, query or password of a URL comes into the log by way of an error (URL-08).
func TestWithoutPaths(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"no URL at all", "no URL at all"},
		{`Get "https://site.test/a?token=secret": EOF`, `Get "https://site.test/…": EOF`},
		{"http://me:secret@site.test:8080/x", "http://site.test:8080/…"},
		{"http://me:se@cret@site.test", "http://site.test/…"},
		{"to http://a.test/secret and http://b.test?secret.", "to http://a.test/… and http://b.test/…"},
		{"HTTPS://SITE.test#secret", "HTTPS://SITE.test/…"},
		{"http://[::1]:80/secret", "http://[::1]:80/…"},
	} {
		if got := withoutPaths(tt.in); got != tt.want {
			t.Errorf("%q becomes %q, want %q", tt.in, got, tt.want)
		}
	}
}
