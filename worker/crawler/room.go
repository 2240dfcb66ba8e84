package crawler

import "sync"

// room is what this process can have in flight, shared by its turns. A turn may
// use all that is free but one place for each other turn, so that one big job
// cannot keep a small one waiting.
type room struct {
	mu    sync.Mutex
	free  int
	turns int
	freed chan struct{} // closed and replaced whenever a place falls free
}

func newRoom(n int) *room { return &room{free: n, freed: make(chan struct{})} }

func (r *room) join()  { r.mu.Lock(); r.turns++; r.mu.Unlock() }
func (r *room) leave() { r.mu.Lock(); r.turns--; r.mu.Unlock() }

// take grants up to n places to a turn that holds so many already, and a channel that
// is closed when the next place falls free.
func (r *room) take(n, holds int) (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	others := r.turns - 1
	if holds == 0 {
		others = 0 // the first place is what the others leave free for it
	}
	n = max(0, min(n, r.free-others))
	r.free -= n
	return n, r.freed
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
