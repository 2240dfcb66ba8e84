package crawler

import (
	"math/rand/v2"
	"time"

	"example.com/trawl/pkg/store"
)

const (
	// slowest is the longest pause between two leases of a slice, just below [store.StopMark]; it
	// is also how soon a slice that still has pages in flight looks again whether it may lease.
	slowest = time.Second
	// memoryRest is how long a job rests for which Redis had no memory: it goes on within that
	// time and one sweep. Meanwhile it costs a ring and a slice that does nothing, each time.
	memoryRest = 3 * time.Second
)

// throttle answers how many of so many wanted URLs a slice may lease, and how long it then leases
// no more, by how full Redis is, see [store.Store.Pressure]: from [store.FullMark] on less and
// less, and none above [store.StopMark].
func throttle(want int, full float64) (int, time.Duration) {
	switch {
	case full <= store.FullMark:
		return want, 0
	case full > store.StopMark:
		return 0, slowest
	}
	left := (store.StopMark - full) / (store.StopMark - store.FullMark)
	return max(1, int(float64(want)*left)), time.Duration((1 - left) * float64(slowest))
}

// sparing lowers what is wanted of the next lease where Redis has little memory. A slice that may
// lease nothing and holds nothing is over: its worker serves others meanwhile.
func (t *turn) sparing(want int) int {
	now := time.Now()
	if !now.Before(t.slowUntil) {
		n, pause := throttle(want, t.c.o.Store.Pressure(t.io, t.sl.Job.Tenant))
		t.slowUntil = now.Add(pause)
		if n > 0 {
			return n
		}
		if len(t.held) == 0 {
			t.starved = true
			t.endFor(endedMemory)
			t.windDown(false)
			return 0
		}
	}
	t.nextLease, t.roomFreed = t.slowUntil, nil
	t.c.room.pass(t)
	return 0
}

// restForMemory is jittered: the jobs that stood still together would else all come back together.
func restForMemory() time.Duration { return memoryRest*3/4 + rand.N(memoryRest/4) }
