package crawl

import (
	"slices"
	"testing"
)

// TestTransitions writes the table out once more, so that a change of it is a
// change of two places: promise 7, terminal means terminal.
func TestTransitions(t *testing.T) {
	t.Parallel()
	want := map[State][]State{
		Queued:     {Running, Paused, Cancelling, Completed, CompletedWithErrors, Failed, Cancelled},
		Running:    {Paused, Cancelling, Completed, CompletedWithErrors, Failed, Cancelled},
		Paused:     {Queued, Running, Cancelling, Completed, CompletedWithErrors, Failed, Cancelled},
		Cancelling: {Cancelled},
	}
	for _, from := range States {
		for _, to := range States {
			if got := from.CanBecome(to); got != slices.Contains(want[from], to) {
				t.Errorf("%s to %s: %v", from, to, got)
			}
		}
	}
}

func TestTerminalStatesHaveNoWayOut(t *testing.T) {
	t.Parallel()
	terminal := []State{Completed, CompletedWithErrors, Failed, Cancelled}
	for _, s := range States {
		if got, want := s.Terminal(), slices.Contains(terminal, s); got != want {
			t.Errorf("%s is terminal: %v, want %v", s, got, want)
		}
		if out := transitions[s]; s.Terminal() != (len(out) == 0) {
			t.Errorf("%s is terminal: %v, and may become %v", s, s.Terminal(), out)
		}
	}
}

// TestEveryStateIsOnAWay: each state is reached from queued, and each that is no
// end reaches one.
func TestEveryStateIsOnAWay(t *testing.T) {
	t.Parallel()
	reach := func(from State) map[State]bool {
		seen := map[State]bool{from: true}
		for todo := []State{from}; len(todo) > 0; todo = todo[1:] {
			for _, next := range transitions[todo[0]] {
				if !seen[next] {
					seen[next] = true
					todo = append(todo, next)
				}
			}
		}
		return seen
	}
	fromQueued := reach(Queued)
	for _, s := range States {
		if !fromQueued[s] {
			t.Errorf("%s is never reached", s)
		}
		if !slices.ContainsFunc(States, func(end State) bool { return end.Terminal() && reach(s)[end] }) {
			t.Errorf("%s reaches no end", s)
		}
	}
	for s, nexts := range transitions {
		if !s.Valid() || slices.ContainsFunc(nexts, func(n State) bool { return !n.Valid() }) {
			t.Errorf("%s or one of %v is no state", s, nexts)
		}
	}
}

func TestValidState(t *testing.T) {
	t.Parallel()
	for _, s := range []State{"", "done", "Queued", "queued "} {
		if s.Valid() || s.Terminal() || s.CanBecome(Cancelled) {
			t.Errorf("%q is taken for a state", s)
		}
	}
}
