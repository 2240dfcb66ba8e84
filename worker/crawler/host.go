package crawler

import (
	"math/rand/v2"
	"sync"
	"time"

	"example.com/trawl/pkg/store"
)

// host is what a turn knows of one host.
type host struct {
	name    string
	pending []*page       // leased, without a slot
	inUse   int           // slots of this turn
	most    int           // requests at once that the host allows
	delay   time.Duration // between two starts that its robots.txt asks for
	waits   bool          // the last reserve found every slot taken
	nextTry time.Time
	inLine  time.Time // since when it stands in the host's line; zero when it does not
	opens   time.Time // no request before; set when that is beyond the horizon
	booked  time.Time // when the next page that is deferred for it may come back
}

// blocked reports whether this turn itself uses all that the host allows: the next of
// its slots to fall free tries again, no timer is needed.
func (h *host) blocked() bool { return h.waits && h.inUse >= h.most }

// forgettable reports whether nothing of a host is worth remembering: it has no page of this slice, and takes
// requests. A job of many hosts would else go through all that it had with each call.
func (h *host) forgettable(now time.Time) bool {
	return len(h.pending) == 0 && h.inUse == 0 && h.inLine.IsZero() &&
		!now.Before(h.nextTry) && !now.Before(h.opens) && !now.Before(h.booked)
}

func (t *turn) host(name string) *host {
	h := t.hosts[name]
	if h == nil {
		h = &host{name: name, most: min(t.sl.Plan.HostConcurrency, t.c.o.HostConcurrency)}
		t.hosts[name] = h
	}
	return h
}

// reserves asks for slots for the pages that have none.
func (t *turn) reserves(now time.Time) []store.HostReserve {
	var out []store.HostReserve
	for _, h := range t.hosts {
		if h.forgettable(now) {
			delete(t.hosts, h.name) // what its robots.txt asks for is in the book
			continue
		}
		delay := max(t.sl.Plan.Delay, t.c.o.HostDelay, h.delay)
		if len(h.pending) > 0 && h.opens.Sub(now) > store.HostHorizon {
			t.shut(h, h.opens.Sub(now), delay) // no need to ask
		}
		if len(h.pending) == 0 || h.blocked() || now.Before(h.nextTry) {
			continue
		}
		out = append(out, store.HostReserve{
			Host: h.name, First: t.slots.next(len(h.pending)), N: len(h.pending),
			Delay: delay, Concurrency: h.most,
		})
	}
	return out
}

// granted gives slots to pages in the order in which they were leased.
func (t *turn) granted(g *store.HostGrant, r *store.HostReserve, now time.Time) {
	h := t.host(g.Host)
	// A page can have left since it was asked for; its slot goes back unused.
	for i, wait := range g.Starts {
		slot := r.First + int64(i)
		t.slots.hold(h, slot)
		if len(h.pending) == 0 {
			t.slots.free(h, slot)
			continue
		}
		p := h.pending[0]
		h.pending = h.pending[1:]
		p.slot, p.start, p.delay = slot, now.Add(wait), r.Delay
		t.ready = append(t.ready, p)
	}
	if len(g.Starts) > 0 || g.Wait >= 0 {
		h.inLine = time.Time{} // whoever is served, or sent away, leaves the line
	}
	h.waits = g.Wait < 0
	switch {
	case g.Wait == 0:
		h.nextTry = time.Time{}
		return
	case g.Wait > 0:
		h.nextTry = now.Add(g.Wait)
	default:
		if h.inLine.IsZero() && len(g.Starts) == 0 {
			h.inLine = now
		}
		h.nextTry = now.Add(patience(now.Sub(h.inLine), r.Delay))
	}
	if g.Wait > store.HostHorizon {
		h.opens = h.nextTry
		t.shut(h, g.Wait, r.Delay)
		return
	}
	// Whoever waited for the horizon and has no slot makes place: the host is the
	// bottleneck, and an idle lease keeps the job's concurrency from other hosts.
	if len(h.pending) > 0 && now.Sub(h.pending[0].since) > store.HostHorizon {
		t.deferAll(h)
	}
}

// patience answers when to ask again for a slot that others have; nobody tells when one
// falls free. A slot is kept for whoever stands first in line until that one asks, so
// that a host with short pages is asked often, and seldom by who has waited for long
// already. Where starts are apart anyway, less haste loses nothing.
func patience(waited, delay time.Duration) time.Duration {
	most := min(max(store.HostAsk/2, delay/4), store.HostAsk)
	pause := min(max(waited/4, 20*time.Millisecond), most)
	return pause*3/4 + rand.N(pause/4) // jitter
}

// deferAll gives back the pages of a host that had no slot for long, to come back soon:
// were it later, the host would idle once those who are in line now are served.
func (t *turn) deferAll(h *host) {
	for _, p := range h.pending {
		t.giveBack(p, time.Second+rand.N(time.Second)) // jitter, so that they do not come back together
	}
	h.pending = nil
	t.leaveLine(h)
	t.nextLease = time.Now() // there is room for pages of other hosts
}

// leaveLine takes the slice out of the line of a host of which it wants no slot any
// more; a slot kept for it would be idle.
func (t *turn) leaveLine(h *host) {
	if !h.inLine.IsZero() {
		h.inLine = time.Time{}
		t.leaves = append(t.leaves, store.HostLeave{Host: h.name, Concurrency: h.most})
	}
}

// shut defers the pages of a host that takes no request for a while, each to the time
// at which its turn may come: all at once they would only be deferred again.
func (t *turn) shut(h *host, wait, delay time.Duration) {
	now := time.Now()
	open := now.Add(wait)
	if h.booked.Before(open) {
		h.booked = open
	}
	for _, p := range h.pending {
		t.giveBack(p, h.booked.Sub(now))
		h.booked = h.booked.Add(delay)
	}
	t.barren += len(h.pending)
	t.shuts++
	h.pending = nil
	t.leaveLine(h)
	t.nextLease = now // there is room for pages of other hosts
	if t.restUntil.IsZero() || open.Before(t.restUntil) {
		t.restUntil = open
	}
}

// oneHost reports whether the job cannot have pages of any other host.
func (t *turn) oneHost() bool {
	p := &t.sl.Plan
	return p.Site && len(p.Seeds) == 1 && (p.Scope == "host" || p.Scope == "prefix")
}

// fruitless reports whether the slice has leased so many pages of hosts that are shut,
// and none that it could start, that the next lease is not worth it. A job of one host
// has nothing else; another may, further down.
func (t *turn) fruitless() bool {
	if t.oneHost() {
		return t.barren >= 16
	}
	return t.barren >= 256 || t.shuts >= 64
}

// restMost bounds the rest of a job that may have pages of an open host further down.
const restMost = time.Second

// rest answers how long the job may rest after this slice. Of several hosts another
// may be open: such a job is looked at again soon.
func (t *turn) rest() time.Duration {
	switch {
	case t.starved:
		return restForMemory()
	case t.barren > 0 && t.fruitless():
		wait := max(0, time.Until(t.restUntil))
		if !t.oneHost() {
			wait = min(wait, restMost)
		}
		return wait
	case t.worked:
		return store.NoRest
	default:
		return 0
	}
}

// slotBook numbers the host slots of a turn and knows which are in use. The renewal
// reads it from its own goroutine.
type slotBook struct {
	mu    sync.Mutex
	last  int64
	used  map[*host]map[int64]bool
	freed map[*host][]int64
}

func newSlotBook() *slotBook {
	return &slotBook{used: map[*host]map[int64]bool{}, freed: map[*host][]int64{}}
}

// next answers the first of n fresh numbers, from 1.
func (b *slotBook) next(n int) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.last + 1
	b.last += int64(n)
	return first
}

func (b *slotBook) hold(h *host, slot int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used[h] == nil {
		b.used[h] = map[int64]bool{}
	}
	b.used[h][slot] = true
	h.inUse++
}

func (b *slotBook) free(h *host, slot int64) {
	if slot == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.used[h][slot] {
		return
	}
	if delete(b.used[h], slot); len(b.used[h]) == 0 {
		delete(b.used, h)
	}
	b.freed[h] = append(b.freed[h], slot)
	h.inUse--
	h.waits = false // a place fell free: the next reserve may find it
	h.nextTry = time.Time{}
}

// takeFreed answers the slots that fell free since the last call.
func (b *slotBook) takeFreed() []store.HostSlots {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.freed) == 0 {
		return nil
	}
	out := make([]store.HostSlots, 0, len(b.freed))
	for h, slots := range b.freed {
		out = append(out, store.HostSlots{Host: h.name, Slots: slots})
	}
	clear(b.freed)
	return out
}

// inUse answers the slots to renew.
func (b *slotBook) inUse() []store.HostSlots {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []store.HostSlots
	for h, used := range b.used {
		s := store.HostSlots{Host: h.name}
		for slot := range used {
			s.Slots = append(s.Slots, slot)
		}
		out = append(out, s)
	}
	return out
}
