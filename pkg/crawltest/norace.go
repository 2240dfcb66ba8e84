//go:build !race

package crawltest

// raceEnabled reports whether this test binary has the race detector, so that
// the processes it builds have it too.
const raceEnabled = false
