// Package crawltest is what the tests of Trawl stand on: a Redis of each kind, a
// scripted site, a process to kill, and a check that nothing is left running.
// Nothing in the product imports it; a site that a benchmark can use as well is
// in package gensite.
//
// Tests that share a Redis are kept apart by random tenant names, not by
// flushing, so that all of them run at the same time.
package crawltest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/trawl/pkg/redisconn"
)

// Main runs the tests of a package, ends what they shared, and fails when a
// goroutine is left. Call it from TestMain:
//
//	func TestMain(m *testing.M) { crawltest.Main(m) }
func Main(m *testing.M) {
	// Servers are killed and restarted here on purpose; what the client writes
	// about it to standard error would bury the failure that matters.
	redisconn.SetLogger(slog.New(slog.DiscardHandler))
	code := m.Run()
	for _, err := range closeShared() {
		fmt.Fprintln(os.Stderr, "crawltest:", err)
		code = max(code, 1)
	}
	http.DefaultClient.CloseIdleConnections() // those of tests that use the default client
	if err := leaks(5 * time.Second); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "crawltest: goroutines are left:", err)
		code = 1
	}
	os.Exit(code)
}

// leaks looks until nothing is left or the time is over: connections that were
// just closed need a moment on a busy machine, longer than goleak waits. Nothing is
// ignored: whoever adds an option here says which goroutine and why nothing can stop it.
func leaks(within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// shared holds what lives until the test binary ends; closers run in reverse.
var shared struct {
	sync.Mutex
	closers []func() error
	dir     string
}

func onClose(f func() error) {
	shared.Lock()
	defer shared.Unlock()
	shared.closers = append(shared.closers, f)
}

// sharedDir returns a directory that is removed when the test binary ends.
func sharedDir() (string, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.dir != "" {
		return shared.dir, nil
	}
	dir, err := os.MkdirTemp("", "trawltest-")
	if err != nil {
		return "", fmt.Errorf("make a directory for the shared servers: %w", err)
	}
	shared.dir = dir
	return dir, nil
}

func closeShared() []error {
	shared.Lock()
	closers, dir := shared.closers, shared.dir
	shared.closers, shared.dir = nil, ""
	shared.Unlock()
	var errs []error
	for i := len(closers) - 1; i >= 0; i-- {
		if err := closers[i](); err != nil {
			errs = append(errs, err)
		}
	}
	if dir != "" {
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Tenant returns a tenant name that no other test has. All keys of a tenant
// carry it, so that it is the isolation of tests that share a Redis.
func Tenant(t testing.TB) string {
	t.Helper()
	return "t" + Random()
}

// Random returns 16 random characters of 0-9 and a-f.
func Random() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return hex.EncodeToString(b[:])
}

// Eventually waits until cond holds and fails the test when it does not within
// the given time. what completes the sentence "after 5s still not: …"; cond is
// called from the test's own goroutine, at once and then every 5 ms.
//
// It is for what sends no signal. Where a channel can say it, wait on the channel.
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for !cond() {
		if time.Since(begin) > within {
			t.Fatalf("after %v still not: %s", within, what)
		}
		<-tick.C
	}
}

// Receive returns the next value of ch and fails the test when none comes
// within the given time or ch is closed. what completes "after 5s no …".
func Receive[T any](t testing.TB, within time.Duration, what string, ch <-chan T) T {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case v, ok := <-ch:
		if !ok {
			t.Fatalf("closed instead of a value: %s", what)
		}
		return v
	case <-timer.C:
		t.Fatalf("after %v no %s", within, what)
	}
	panic("unreachable: Fatalf ends the goroutine")
}
