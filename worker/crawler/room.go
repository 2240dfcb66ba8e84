package crawler

import (
	"slices"
	"sync"
)

// room is what this process can have in flight, shared by its turns. A turn that has
// some may use all that is free but one place for each other turn and a few for those
// to come, so that one big job on a slow site cannot keep a small one waiting. Turns that
// have none are served before all others, in the order in which they came: a place would
// else stay with whoever frees it, since that one is the first to ask again.
type room struct {
	mu    sync.Mutex
	free  int
	spare int // for turns to come
	turns int
	line  []*turn       // have nothing and wait
	freed chan struct{} // closed and replaced whenever a place may be had
}

func newRoom(n int) *room { return &room{free: n, spare: n / 16, freed: make(chan struct{})} }

func (r *room) join() { r.mu.Lock(); r.turns++; r.mu.Unlock() }

func (r *room) leave(t *turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turns--
	r.forget(t)
}

// pass takes a turn out of the line that wants nothing any more.
func (r *room) pass(t *turn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(t)
}

func (r *room) forget(t *turn) {
	if i := slices.Index(r.line, t); i >= 0 {
		r.line = slices.Delete(r.line, i, i+1)
		r.wake()
	}
}

// take grants up to n places to a turn that holds so many already, and a channel that
// is closed when the next place may be had.
func (r *room) take(t *turn, n, holds int) (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.Index(r.line, t)
	keep := len(r.line) // a place for each that has none
	switch {
	case holds > 0:
		keep = max(keep, r.spare, r.turns-1)
	case at >= 0 && r.free > at:
		keep = min(keep, r.free) - 1 // its own, since those before it have theirs
	}
	n = max(0, min(n, r.free-keep))
	r.free -= n
	switch {
	case at >= 0 && n+holds > 0:
		r.line = slices.Delete(r.line, at, at+1)
	case at < 0 && n+holds == 0:
		r.line = append(r.line, t)
	}
	return n, r.freed
}

// settle squares what a lease took with what it got, which can be more: items that the
// store granted before, in an answer that was lost.
func (r *room) settle(took, got int) {
	if took >= got {
		r.give(took - got)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free -= got - took
}

func (r *room) give(n int) {
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
	r.wake()
}

func (r *room) wake() {
	close(r.freed)
	r.freed = make(chan struct{})
}
