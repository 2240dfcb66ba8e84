package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// sleeper is a process that is healthy once its shell has written a file. What the shell calls is where every
// system has it; PATH may name Go alone.
func sleeper(t *testing.T, script string, lost func(*process, *os.ProcessState)) *process {
	t.Helper()
	dir := t.TempDir()
	if lost == nil {
		lost = func(p *process, s *os.ProcessState) { t.Errorf("%s ended by itself: %v", p.name, s) }
	}
	p := &process{
		name: "sleeper", path: "/bin/sh", args: []string{"-c", "PATH=/usr/bin:/bin; " + script}, env: environment(), log: filepath.Join(dir, "log"), lost: lost,
		healthy: func(context.Context) error {
			_, err := os.Stat(filepath.Join(dir, "up"))
			return err
		},
	}
	t.Cleanup(func() {
		if err := p.kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestProcessLives: a process is started, stopped, killed and started again, and nobody is told that it was lost.
func TestProcessLives(t *testing.T) {
	t.Parallel()
	p := sleeper(t, "touch up; exec sleep 600", nil)
	if _, err := p.signal(syscall.SIGSTOP); !errors.Is(err, errEnded) {
		t.Errorf("a process that was never started was signalled: %v", err)
	}
	for range 2 {
		if err := p.revive(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, err := p.signal(syscall.SIGSTOP)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := p.revive(t.Context()); err != nil || p.life != l {
			t.Errorf("a process that runs was started again: %v", err)
		}
		if err := p.kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.running(); !errors.Is(err, errEnded) {
			t.Errorf("it was killed: %v", err)
		}
		if err := l.signal(syscall.SIGCONT); err != nil {
			t.Errorf("a signal to who has ended: %v", err)
		}
	}
}

// TestProcessIsLost: who ends by itself after it was healthy is lost, and who is stopped in time is not.
func TestProcessIsLost(t *testing.T) {
	t.Parallel()
	told := make(chan *os.ProcessState, 1)
	p := sleeper(t, "touch up; exec sleep 600", func(_ *process, s *os.ProcessState) { told <- s })
	if err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.life.cmd.Process.Kill(); err != nil { // by somebody else
		t.Fatal(err)
	}
	if s := <-told; s.Success() {
		t.Errorf("told %v", s)
	}
}

// TestProcessThatEndsAtOnce: it is no life, and is tried again while there is time.
func TestProcessThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := sleeper(t, "exit 3", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := p.revive(ctx); err == nil {
		t.Error("it was started")
	}
	again := sleeper(t, "test -e second && touch up && exec sleep 600; touch second", nil)
	if err := again.revive(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestProcessEndsInTime: who does not end when asked is an error, and can be killed.
func TestProcessEndsInTime(t *testing.T) {
	t.Parallel()
	p := sleeper(t, "trap '' TERM; touch up; while :; do sleep 1; done", nil)
	if err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := p.end(ctx, syscall.SIGTERM); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended: %v", err)
	}
	polite := sleeper(t, "trap 'exit 0' TERM; touch up; while :; do sleep 0.1; done", nil)
	if err := polite.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if state, err := polite.end(t.Context(), syscall.SIGTERM); err != nil || !state.Success() {
		t.Errorf("%v, %v", state, err)
	}
}
