package crawler

import (
	"testing"
	"time"

	"example.com/trawl/pkg/store"
)

// Between the marks less is leased the fuller Redis is, and after longer pauses; above the last
// one nothing.
func TestThrottle(t *testing.T) {
	t.Parallel()
	lastN, lastPause := 64, time.Duration(0)
	for full := 0.0; full < 1.2; full += 0.001 {
		n, pause := throttle(64, full)
		switch {
		case full <= store.FullMark:
			if n != 64 || pause != 0 {
				t.Fatalf("at %v: %d, %v", full, n, pause)
			}
		case full > store.StopMark:
			if n != 0 || pause <= 0 {
				t.Fatalf("at %v: %d, %v", full, n, pause)
			}
		case n < 1 || n > lastN || pause < lastPause || pause > slowest:
			t.Fatalf("at %v: %d after %d, %v after %v", full, n, lastN, pause, lastPause)
		}
		lastN, lastPause = n, pause
	}
	if n, _ := throttle(1, 0.979); n != 1 {
		t.Errorf("of one URL %d are leased", n)
	}
}
