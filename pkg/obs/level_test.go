package obs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/obs"
)

// kept is what a store would keep of the log level.
type kept struct {
	mu    sync.Mutex
	level slog.Level
	until time.Time
	err   error
	delay time.Duration // of an answer
	asked []time.Time
	met   func() // called once, between the look and its answer
}

func (k *kept) set(level slog.Level, keep time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.level, k.until = level, time.Now().Add(keep)
}

func (k *kept) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

func (k *kept) levels(ctx context.Context) (slog.Level, time.Duration, error) {
	k.mu.Lock()
	level, left, err, met := k.level, max(time.Until(k.until), 0), k.err, k.met
	k.met, k.asked = nil, append(k.asked, time.Now())
	delay := k.delay
	k.mu.Unlock()
	if met != nil {
		met()
	}
	if delay > 0 {
		<-ctx.Done()
		return 0, 0, ctx.Err()
	}
	return level, left, err
}

// follower is a process that follows a level, with its log.
type follower struct {
	level *obs.Level
	logs  bytes.Buffer
	log   *slog.Logger
}

func follow(t *testing.T, base slog.Level, k *kept) *follower {
	t.Helper()
	f := &follower{level: obs.NewLevel(base)}
	log, err := obs.NewLogger(&f.logs, obs.FormatJSON, f.level)
	if err != nil {
		t.Fatal(err)
	}
	f.log = log
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.level.Follow(ctx, log, k.levels) }()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return f
}

func (f *follower) holds(t *testing.T, what string, want slog.Level) {
	t.Helper()
	synctest.Wait()
	if got := f.level.Level(); got != want {
		t.Errorf("%s: the level is %v, want %v; %s", what, got, want, f.logs.String())
	}
}

// wait lets time pass; within a bubble it takes none.
func wait(d time.Duration) { <-time.After(d) }

// What is set for all processes reaches each within 5 s, ends by itself, and can be taken back.
func TestLevelFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		f := follow(t, slog.LevelWarn, k)
		f.holds(t, "nothing is set", slog.LevelWarn)
		k.set(slog.LevelDebug, time.Minute)
		wait(5 * time.Second)
		f.holds(t, "set", slog.LevelDebug)
		wait(56 * time.Second)
		f.holds(t, "over", slog.LevelWarn)
		k.set(slog.LevelDebug, time.Hour)
		wait(5 * time.Second)
		f.holds(t, "set again", slog.LevelDebug)
		k.set(slog.LevelError, time.Hour)
		wait(5 * time.Second)
		f.holds(t, "another", slog.LevelError)
		k.set(slog.LevelError, 0)
		wait(5 * time.Second)
		f.holds(t, "taken back", slog.LevelWarn)

		late := follow(t, slog.LevelInfo, &kept{level: slog.LevelDebug, until: time.Now().Add(time.Hour)})
		late.holds(t, "a process that starts later", slog.LevelDebug)

		pauses := map[time.Duration]bool{}
		for i := range k.asked[1:] {
			pause := k.asked[i+1].Sub(k.asked[i])
			pauses[pause] = true
			if pause > 4*time.Second {
				t.Errorf("two looks are %v apart", pause)
			}
		}
		if len(pauses) < 5 {
			t.Errorf("the looks have no jitter: %v", pauses)
		}
	})
}

// While the store does not answer, or hangs, the level that is set stays until its end, and no
// longer.
func TestLevelWithoutStore(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(*kept){
		"away":  func(k *kept) { k.fail(errors.New("away")) },
		"hangs": func(k *kept) { k.mu.Lock(); defer k.mu.Unlock(); k.delay = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := &kept{}
				f := follow(t, slog.LevelInfo, k)
				k.set(slog.LevelDebug, time.Minute)
				wait(5 * time.Second)
				breaks(k)
				wait(50 * time.Second)
				f.holds(t, "before its end", slog.LevelDebug)
				wait(10 * time.Second)
				f.holds(t, "after its end", slog.LevelInfo)
			})
		})
	}
}

// An answer that was on its way when this process was told otherwise does not undo it.
func TestLevelSetDuringLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		f := follow(t, slog.LevelInfo, k)
		k.mu.Lock()
		k.met = func() {
			k.set(slog.LevelDebug, time.Hour)
			f.level.Set(t.Context(), f.log, slog.LevelDebug, time.Hour)
		}
		k.mu.Unlock()
		wait(4 * time.Second)
		f.holds(t, "set here", slog.LevelDebug)
		if n := strings.Count(f.logs.String(), "log level changed"); n != 1 {
			t.Errorf("the level changed %d times: %s", n, f.logs.String())
		}
	})
}

// Each change is in the log, whatever the two levels are, and nothing else is.
func TestLevelTells(t *testing.T) {
	t.Parallel()
	all := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	for _, base := range all {
		for _, to := range all {
			level := obs.NewLevel(base)
			var logs bytes.Buffer
			log, err := obs.NewLogger(&logs, obs.FormatJSON, level)
			if err != nil {
				t.Fatal(err)
			}
			level.Set(t.Context(), log, to, time.Hour)
			level.Set(t.Context(), log, to, 2*time.Hour)
			level.Reset(t.Context(), log)
			level.Reset(t.Context(), log)
			lines := strings.Split(strings.TrimSpace(logs.String()), "\n")
			if base == to {
				if logs.Len() > 0 {
					t.Errorf("%v to itself is told: %s", base, logs.String())
				}
				continue
			}
			if len(lines) != 2 {
				t.Errorf("%v to %v and back: %s", base, to, logs.String())
				continue
			}
			for i, want := range [][2]slog.Level{{base, to}, {to, base}} {
				var got struct{ Level, Msg, From, To, Until string }
				if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
					t.Fatal(err)
				}
				if got.Msg != "log level changed" || got.From != want[0].String() || got.To != want[1].String() ||
					got.Level != max(slog.LevelInfo, min(base, to)).String() || (got.Until == "") != (i == 1) {
					t.Errorf("%v to %v is told as %s", want[0], want[1], lines[i])
				}
			}
		}
	}
}
