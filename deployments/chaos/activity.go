package main

import (
	"sync"
	"time"
)

// part is what a fault disturbs.
type part int

const (
	partWorker    part = iota
	partRedis          // the process itself
	partAPI            // a process
	partRedisLink      // of a worker or an API
	partAPILink        // of the callers
	partSite
	parts
)

// settle is how long after a fault its effects may still show: connections are made again with pauses of up to a
// second, and the queue looks every second.
const settle = 2 * time.Second

// activity knows which faults are on, and which were the last.
type activity struct {
	mu    sync.Mutex
	on    [parts]int
	ended [parts]time.Time // when the last ended
	last  []string         // faults that began last
}

// lastKept is how many faults a violation is told with.
const lastKept = 6

// begin says that a fault begins, and answers what is to be called when it is over.
func (a *activity) begin(p part, what string) func() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.on[p]++
	a.note(what)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.on[p]--
		a.ended[p] = time.Now()
	}
}

// note keeps what was done last.
func (a *activity) note(what string) {
	if a.last = append(a.last, what); len(a.last) > lastKept {
		a.last = a.last[1:]
	}
}

// mention notes a fault that has no duration.
func (a *activity) mention(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note(what)
}

// recent answers the faults that began last, the oldest first.
func (a *activity) recent() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.last...)
}

// latest answers the fault that began last.
func (a *activity) latest() string {
	if all := a.recent(); len(all) > 0 {
		return all[len(all)-1]
	}
	return "none"
}

// since reports whether a fault of one of the parts was on, or still settling, at or after t.
func (a *activity) since(t time.Time, of ...part) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range of {
		if a.on[p] > 0 || a.ended[p].Add(settle).After(t) {
			return true
		}
	}
	return false
}

// quiet reports whether Redis, the API and their links are well, and have been for a moment.
func (a *activity) quiet() bool {
	return !a.since(time.Now(), partRedis, partAPI, partRedisLink, partAPILink)
}
