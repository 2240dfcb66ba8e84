package crawler

import (
	"fmt"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

func hostTurn() *turn {
	return &turn{
		c: &Crawler{o: Options{HostConcurrency: 2}}, sl: &store.Slice{Plan: crawl.Plan{HostConcurrency: 2}},
		hosts: map[string]*host{}, slots: newSlotBook(),
	}
}

// What a slice knows of hosts does not grow with those that a job has had: a host is forgotten once its pages are
// done.
func TestHostsAreForgotten(t *testing.T) {
	t.Parallel()
	turn := hostTurn()
	now := time.Now()
	for i := range 1000 {
		h := turn.host(fmt.Sprintf("h%d.example.org", i))
		h.pending = []*page{{host: h}}
		asks := turn.reserves(now)
		if len(asks) != 1 || asks[0].Host != h.name {
			t.Fatalf("%d hosts are asked for, want %s alone", len(asks), h.name)
		}
		turn.granted(&store.HostGrant{Host: h.name, Starts: []time.Duration{0}}, &asks[0], now)
		p := turn.ready[0]
		if turn.ready = turn.ready[:0]; turn.host(h.name) != p.host || len(turn.slots.inUse()) != 1 {
			t.Fatalf("the slot of %s is not held", h.name)
		}
		turn.reserves(now)
		if turn.hosts[h.name] != h {
			t.Fatalf("%s is forgotten while it is asked for a page", h.name)
		}
		turn.slots.free(p.host, p.slot)
		if freed := turn.slots.takeFreed(); len(freed) != 1 || freed[0].Host != h.name {
			t.Fatalf("%v are given back, want the slot of %s", freed, h.name)
		}
	}
	turn.reserves(now)
	if len(turn.hosts) != 0 || len(turn.slots.used) != 0 || len(turn.slots.freed) != 0 {
		t.Errorf("%d hosts are remembered, %d with slots", len(turn.hosts), len(turn.slots.used))
	}
}

// A host that takes no request for a while, or in whose line the slice stands, is remembered until then.
func TestHostsThatWaitAreRemembered(t *testing.T) {
	t.Parallel()
	now := time.Now()
	later := now.Add(time.Minute)
	for name, set := range map[string]func(*host){
		"a pause":                       func(h *host) { h.nextTry = later },
		"shut":                          func(h *host) { h.opens = later },
		"pages that come back to it":    func(h *host) { h.booked = later },
		"a place in its line":           func(h *host) { h.inLine = now },
		"a page that waits for a start": func(h *host) { h.pending, h.nextTry = []*page{{host: h}}, later },
	} {
		turn := hostTurn()
		set(turn.host("example.org"))
		turn.reserves(now)
		if turn.hosts["example.org"] == nil {
			t.Errorf("forgotten with %s", name)
		}
	}
}
