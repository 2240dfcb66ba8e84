package config

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 200, 1 << 20: 200, 16 << 20: 200, 24 << 20: 133, 32 << 20: 100, 1 << 40: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d MiB live: %d, want %d", live>>20, got, want)
		}
	}
}

// TestTuneGC: a heap that grows is collected as ever, one that is small again less often, and an operator's word counts.
// It does not run in parallel with others, whose heap it would be.
//
//nolint:paralleltest // see above
func TestTuneGC(t *testing.T) {
	before := gcNow()
	stop := tuneGC(func(string) string { return "" })
	if got := gcNow(); got != gcMost {
		t.Errorf("at the start %d", got)
	}
	large := make([]byte, 2*gcRoom)
	gcBecomes(t, gcLeast)
	runtime.KeepAlive(large)
	large = nil //nolint:ineffassign,wastedassign // for the collector
	gcBecomes(t, gcMost)
	stop()
	runtime.GC()
	if got := gcNow(); got != before {
		t.Errorf("after the stop %d, before the start %d", got, before)
	}
	tuneGC(func(string) string { return "300" })()
	if got := gcNow(); got != before {
		t.Errorf("an operator's GOGC was set over: %d", got)
	}
}

func gcNow() int {
	percent := debug.SetGCPercent(gcLeast)
	debug.SetGCPercent(percent)
	return percent
}

// gcBecomes waits, through collections, until the percentage is what it should be.
func gcBecomes(t *testing.T, want int) {
	t.Helper()
	for late := time.Now().Add(10 * time.Second); gcNow() != want; runtime.GC() {
		if time.Now().After(late) {
			t.Fatalf("%d, want %d", gcNow(), want)
		}
	}
}
