package obs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/trawl/pkg/obs"
)

// systemd listens as it does, and returns what it hears.
func systemd(t *testing.T) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	heard, done := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			select {
			case heard <- string(buf[:n]):
			default: // a test that listens no more
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	t.Setenv("NOTIFY_SOCKET", path)
	return heard
}

func hear(t *testing.T, heard <-chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Errorf("systemd heard %q, want %q", got, want)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("systemd did not hear %q", want)
	}
}

// The tests of this file set the environment and so run one by one.

func TestNotify(t *testing.T) { //nolint:paralleltest // see above
	heard := systemd(t)
	t.Setenv("WATCHDOG_USEC", "")
	stopping := obs.NewNotifier(slog.New(slog.DiscardHandler)).Serving(t.Context(), "listening on\nREADY=0", nil)
	hear(t, heard, "READY=1\nSTATUS=listening on\\u000aREADY=0")
	stopping()
	hear(t, heard, "STOPPING=1\nSTATUS=stopping")
	if len(heard) > 0 {
		t.Errorf("it heard %q, too", <-heard)
	}
}

// The watchdog is fed while the process lives, and only then.
func TestNotifyWatchdog(t *testing.T) { //nolint:paralleltest // see above
	heard := systemd(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "")
	var stuck atomic.Bool
	asked := make(chan bool, 1000)
	live := func(context.Context) error {
		defer func() { asked <- true }()
		if stuck.Load() {
			return errors.New("stuck")
		}
		return nil
	}
	var logs bytes.Buffer
	stopping := obs.NewNotifier(slog.New(slog.NewTextHandler(&logs, nil))).Serving(t.Context(), "crawling", live)
	hear(t, heard, "READY=1\nSTATUS=crawling")
	for range 3 {
		hear(t, heard, "WATCHDOG=1")
	}
	stuck.Store(true)
	for len(asked) > 0 {
		<-asked
	}
	for range 4 { // the first may have begun before
		<-asked
	}
	for len(heard) > 0 {
		hear(t, heard, "WATCHDOG=1") // of before
	}
	for range 3 {
		<-asked
	}
	stopping()
	hear(t, heard, "STOPPING=1\nSTATUS=stopping")
	if !strings.Contains(logs.String(), "level=ERROR") || !strings.Contains(logs.String(), "err=stuck") {
		t.Errorf("why systemd restarts the process is not in the log: %s", &logs)
	}
}

// Without systemd nothing is said or told, and what is wrong with the environment stops nobody.
func TestNotifyNobody(t *testing.T) { //nolint:paralleltest // see above
	for _, tt := range []struct {
		name, socket, watchdog string
		told                   int
	}{
		{"nothing set", "", "", 0},
		{"nobody listens", filepath.Join(t.TempDir(), "nobody"), "", 2},
		{"no number", "", "soon", 1},
		{"less than nothing", "", "-1", 1},
	} {
		t.Run(tt.name, func(t *testing.T) { //nolint:paralleltest // see above
			t.Setenv("NOTIFY_SOCKET", tt.socket)
			t.Setenv("WATCHDOG_USEC", tt.watchdog)
			t.Setenv("WATCHDOG_PID", "")
			var logs bytes.Buffer
			n := obs.NewNotifier(slog.New(slog.NewTextHandler(&logs, nil)))
			n.Serving(t.Context(), "x", nil)()
			if got := strings.Count(logs.String(), "level=WARN"); got != tt.told {
				t.Errorf("told %d times, want %d: %s", got, tt.told, &logs)
			}
		})
	}
	var none *obs.Notifier
	none.Serving(t.Context(), "x", nil)()
}
