package crawler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every turn has its place in time: one that frees a place does not have it back before
// those that have none.
func TestRoomIsGivenInTurn(t *testing.T) {
	t.Parallel()
	const places, turns, rounds = 4, 9, 300
	r := newRoom(places)
	var all []*turn
	for range turns {
		r.join()
		all = append(all, &turn{})
	}
	has, got := map[*turn]int{}, map[*turn]int{}
	var pages []*turn // one for each place in use, the oldest first
	ask := func(t *turn) {
		n, _ := r.take(t, 8, has[t])
		has[t] += n
		got[t] += n
		for range n {
			pages = append(pages, t)
		}
	}
	for _, t := range all {
		ask(t)
	}
	for range rounds {
		// A page ends, and whose it was asks at once; the others are woken by it.
		t0 := pages[0]
		pages = pages[1:]
		has[t0]--
		r.give(1)
		ask(t0)
		for _, t := range all {
			if has[t] == 0 {
				ask(t)
			}
		}
		if len(pages) != places {
			t.Fatalf("%d of %d places are used", len(pages), places)
		}
	}
	for i, turn := range all {
		if got[turn] < rounds/turns/2 {
			t.Errorf("turn %d had %d places of %d", i, got[turn], rounds)
		}
	}
}

// A turn that ends, or wants nothing any more, keeps no place from those behind it.
func TestRoomForgetsWhoLeaves(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*room, *turn){"passes": (*room).pass, "leaves": (*room).leave} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoom(1)
			a, b, c := &turn{}, &turn{}, &turn{}
			for range 3 {
				r.join()
			}
			var got []int
			take := func(t *turn, holds int) <-chan struct{} {
				n, freed := r.take(t, 1, holds)
				got = append(got, n)
				return freed
			}
			take(a, 0)
			take(b, 0)
			freed := take(c, 0)
			r.give(1) // of a, which asks again: the place is b's
			take(a, 0)
			<-freed
			freed = take(c, 0)
			leave(r, b)
			<-freed // it is told that the place is its own now
			take(c, 0)
			if d := cmp.Diff([]int{1, 0, 0, 0, 0, 1}, got); d != "" {
				t.Errorf("places (-want +got):\n%s", d)
			}
		})
	}
}

// While nobody waits, a turn may have all but what is kept for others.
func TestRoomKeepsSome(t *testing.T) {
	t.Parallel()
	r := newRoom(32)
	a, b := &turn{}, &turn{}
	r.join()
	r.join()
	first, _ := r.take(a, 16, 0)
	second, _ := r.take(a, 32, first)
	third, _ := r.take(b, 32, 0)
	if d := cmp.Diff([]int{16, 14, 2}, []int{first, second, third}); d != "" {
		t.Errorf("places (-want +got):\n%s", d)
	}
}
