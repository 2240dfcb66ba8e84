package crawler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/trawl/pkg/obs"
)

const (
	// sweepLate is how long no sweep may have gone through before a worker is not ready: what
	// sweeps promise, leases that are back in 20 s, does not hold then.
	sweepLate = 30 * time.Second
	// queueLate is how long the queue's server may have said nothing, which it does every 5 s.
	queueLate = 30 * time.Second
	// sweepMost bounds one sweep, so that a loop which does not come round is stuck and not busy.
	sweepMost = time.Minute
	// stuckAfter is twice what one turn of that loop takes at most, whatever Redis does.
	stuckAfter = 2 * time.Minute
)

// vitals say whether what must never end in a worker goes on.
type vitals struct {
	mu       sync.Mutex
	working  bool      // between Start and Stop
	turned   time.Time // when the loop of the sweeps last came round, whatever became of the sweep
	swept    time.Time // when a sweep last went through
	sweepErr error     // of the last sweep
	asked    time.Time // when the queue's server last said how it is
	queueErr error     // what it said
}

// begin takes the start for the first sign of each.
func (v *vitals) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	v.working, v.turned, v.swept, v.asked = true, now, now, now
}

func (v *vitals) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.working = false
}

// sweep hears of a sweep that is over, for how many tenants it went through. One that failed for a
// single tenant, whose keys somebody broke by hand for example, must not make every worker of the
// cluster unready.
func (v *vitals) sweep(tenants int64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.turned, v.sweepErr = time.Now(), err
	if err == nil || tenants > 0 {
		v.swept = v.turned
	}
}

func (v *vitals) queue(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked, v.queueErr = time.Now(), err
}

// ready are the conditions under which this worker serves jobs.
func (v *vitals) ready() []obs.Check {
	return []obs.Check{{Name: "process", Ready: v.atWork}, {Name: "queue", Ready: v.serves}, {Name: "sweep", Ready: v.heals}}
}

func (v *vitals) atWork(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.working {
		return errors.New("this worker is starting or stopping")
	}
	return nil
}

func (v *vitals) serves(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch silent := time.Since(v.asked); {
	case !v.working:
		return nil // atWork tells
	case v.queueErr != nil:
		return fmt.Errorf("the queue does not answer its server: %w", v.queueErr)
	case silent > queueLate:
		return fmt.Errorf("the server of the queue has said nothing for %s", silent.Round(time.Second))
	}
	return nil
}

func (v *vitals) heals(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	since := time.Since(v.swept)
	if !v.working || since <= sweepLate {
		return nil
	}
	late := fmt.Errorf("no sweep has gone through for %s: look at Redis", since.Round(time.Second))
	return errors.Join(late, v.sweepErr)
}

// live is the condition without which this process is to be restarted. A sweep that fails comes
// round all the same: a Redis that is away, or hangs, restarts no worker.
func (v *vitals) live(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if since := time.Since(v.turned); v.working && since > stuckAfter {
		return fmt.Errorf("the loop of the sweeps has not come round for %s", since.Round(time.Second))
	}
	return nil
}
