package config

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

const (
	// gcRoom is how much a small heap may grow between two collections. By Go's own rule, as much again as is live, a
	// worker with 7 MiB live collects thirty times a second, which is a tenth of its CPU.
	gcRoom = 32 << 20
	// gcMost bounds that, in percent of what is live: with 400 a worker was 20 MiB larger, and no faster.
	gcMost = 200
	// gcLeast is Go's own rule, and holds for every heap of gcRoom and more: the worst case is what it always was.
	gcLeast = 100
)

// gcPercent answers how far a heap may grow, in percent of what is live in it, in bytes.
func gcPercent(live uint64) int {
	return int(min(gcMost, max(gcLeast, 100*gcRoom/max(live, 1))))
}

// tuneGC has the garbage collector leave a small heap more room to grow than a large one: 32 MiB, but no more than twice
// and no less than once what is live, looked up after each collection. It starts no goroutine. GOGC, where getenv
// has it, is an operator's word, and nothing is done; GOMEMLIMIT bounds the whole in any case. stop gives back what was
// set.
func tuneGC(getenv func(string) string) (stop func()) {
	if getenv("GOGC") != "" {
		return func() {}
	}
	t := &gcTuner{now: gcMost}
	before := debug.SetGCPercent(t.now)
	t.watch()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.stopped = true
		debug.SetGCPercent(before)
	}
}

// gcTuner sets the percentage after each collection.
type gcTuner struct {
	mu      sync.Mutex
	stopped bool
	now     int
}

// watch has tune called by the runtime after the next collection, in which the canary is found to be nobody's.
func (t *gcTuner) watch() {
	canary := new([32]byte) // large enough to be an object of its own
	runtime.AddCleanup(canary, (*gcTuner).tune, t)
}

func (t *gcTuner) tune() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	// To set it stops the world for some microseconds, so that it is not done for every small change.
	if want := gcPercent(live[0].Value.Uint64()); want != t.now && (want == gcLeast || 8*max(want-t.now, t.now-want) > t.now) {
		debug.SetGCPercent(want)
		t.now = want
	}
	t.watch()
}
