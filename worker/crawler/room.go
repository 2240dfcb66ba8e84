package crawler

import "sync"

// room is what this process can have in flight, shared by its turns. A turn that has
// some may use all that is free but one place for each other turn and a few for those
// to come, so that one big job on a slow site cannot keep a small one waiting.
type room struct {
	mu    sync.Mutex
	free  int
	spare int // for turns to come
	turns int
	freed chan struct{} // closed and replaced whenever a place falls free
}

func newRoom(n int) *room { return &room{free: n, spare: n / 16, freed: make(chan struct{})} }

func (r *room) join()  { r.mu.Lock(); r.turns++; r.mu.Unlock() }
func (r *room) leave() { r.mu.Lock(); r.turns--; r.mu.Unlock() }

// take grants up to n places to a turn that holds so many already, and a channel that
// is closed when the next place falls free.
func (r *room) take(n, holds int) (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keep := max(r.spare, r.turns-1)
	if holds == 0 {
		keep = 0 // the first places are what the others leave free for it
	}
	n = max(0, min(n, r.free-keep))
	r.free -= n
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
	close(r.freed)
	r.freed = make(chan struct{})
}
