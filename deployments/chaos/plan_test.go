package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func aStage(span time.Duration) stage {
	s := stage{span: span, kinds: kinds(), apis: []string{"api-1", "api-2"}}
	for i := range 4 {
		s.workers = append(s.workers, "worker-"+strconv.Itoa(i+1))
	}
	for _, l := range append(slices.Clone(s.workers), s.apis...) {
		s.links = append(s.links, l+" to redis")
	}
	s.links = append(s.links, callersLink+"api-1", siteLink+"site-1", siteLink+"site-2")
	return s
}

func mustPlan(t testing.TB, seed int64, s stage) []fault {
	t.Helper()
	faults, err := plan(seed, s)
	if err != nil {
		t.Fatal(err)
	}
	return faults
}

// TestPlanReproduces: a seed that failed gives the same faults again, and another gives others.
func TestPlanReproduces(t *testing.T) {
	t.Parallel()
	s := aStage(2 * time.Minute)
	first, again, other := mustPlan(t, 7, s), mustPlan(t, 7, s), mustPlan(t, 8, s)
	if d := cmp.Diff(first, again); d != "" {
		t.Errorf("seed 7 gave another plan:\n%s", d)
	}
	if cmp.Equal(first, other) {
		t.Error("seeds 7 and 8 gave the same plan")
	}
}

// TestPlanHolds: whatever the seed, a plan has what is demanded, spreads it, and leaves what is disturbed alone.
func TestPlanHolds(t *testing.T) {
	t.Parallel()
	for _, span := range []time.Duration{20 * time.Second, 2 * time.Minute, 10 * time.Minute} {
		t.Run(span.String(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(r *rapid.T) {
				s := aStage(span)
				faults, err := plan(rapid.Int64().Draw(r, "seed"), s)
				if err != nil {
					r.Fatal(err)
				}
				wellOrdered(r, faults, span)
				enough(r, faults, s)
				apart(r, faults, len(s.workers)-1)
			})
		})
	}
}

func wellOrdered(t *rapid.T, faults []fault, span time.Duration) {
	for i, f := range faults {
		// Faults that had to make room for one another may end a little later than the time that was asked for.
		if f.N != i+1 || f.At < 0 || f.At+f.For > span+20*time.Second || i > 0 && f.At < faults[i-1].At {
			t.Fatalf("fault %d: %+v", i+1, f)
		}
	}
}

func enough(t *rapid.T, faults []fault, s stage) {
	thrown := map[kind]int{}
	halves := map[kind][2]int{}
	for _, f := range faults {
		thrown[f.Kind]++
		h := halves[f.Kind]
		if f.At < s.span/2 {
			h[0]++
		} else {
			h[1]++
		}
		halves[f.Kind] = h
	}
	if lacking := shortfall(s.span, s.kinds, thrown); len(lacking) > 0 {
		t.Fatalf("the plan lacks %q", lacking)
	}
	for k, h := range halves {
		if n := h[0] + h[1]; n >= 4 && (h[0] < n/4 || h[1] < n/4) {
			t.Fatalf("of %d faults %s, %d are in the first half", n, k, h[0])
		}
	}
}

// apart checks that no target has two faults at a time and that so many workers at most are disturbed.
func apart(t *rapid.T, faults []fault, most int) {
	over := map[lane]time.Duration{}
	var disturbed []time.Duration
	for _, f := range faults {
		c := traitOf(f.Kind).class
		if c == ofTask || c == ofCaller {
			continue
		}
		on := lane{c, f.Target}
		if f.At < over[on] {
			t.Fatalf("%v at %v: what was done to it before ends at %v", f, f.At, over[on])
		}
		over[on] = f.At + f.For
		if c != ofWorker {
			continue
		}
		disturbed = slices.DeleteFunc(disturbed, func(until time.Duration) bool { return until <= f.At })
		if disturbed = append(disturbed, f.At+f.For); len(disturbed) > most {
			t.Fatalf("%v at %v is the disturbance of worker %d at a time", f, f.At, len(disturbed))
		}
	}
}

// TestPlanHalves: half of the stalls outlast a lease, and half of what has two ways goes each way.
func TestPlanHalves(t *testing.T) {
	t.Parallel()
	of := map[string][2]int{}
	for _, f := range mustPlan(t, 3, aStage(measure)) {
		name, is := string(f.Kind), false
		switch f.Kind {
		case workerStall:
			is = f.For > stallLease
		case workerKill, apiKill:
			is = f.For == 0
		case cut:
			is = f.Refuse
		case halfClose:
			is = f.Direction == upstream
		case clockJump:
			is = f.Ahead
		case latency:
			is = f.Latency >= slow
		default:
			continue
		}
		h := of[name]
		if is {
			h[0]++
		} else {
			h[1]++
		}
		of[name] = h
	}
	for name, h := range of {
		if d := h[0] - h[1]; d < -1 || d > 1 {
			t.Errorf("%s: %d and %d", name, h[0], h[1])
		}
	}
	if len(of) != 7 {
		t.Errorf("looked at %d kinds", len(of))
	}
}

// TestPlanHasQuiet: in each round there is time without a fault that keeps callers waiting, and time without one of
// Redis in which a worker that is killed can recover: only then is it seen whether bounds of time are kept.
func TestPlanHasQuiet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		span := rapid.SampledFrom([]time.Duration{2 * time.Minute, measure}).Draw(r, "span")
		faults, err := plan(rapid.Int64().Draw(r, "seed"), aStage(span))
		if err != nil {
			r.Fatal(err)
		}
		var over, overRedis, quiet time.Duration
		var kills []time.Duration
		recovered := 0
		for _, f := range faults {
			if f.Kind == workerKill {
				kills = append(kills, f.At)
			}
			if f.disquiets() {
				quiet += max(0, f.At-over)
				over = max(over, f.At+f.For)
			}
			if traitOf(f.Kind).class == ofRedis {
				for _, k := range kills {
					if k > overRedis+settle && f.At-k > 15*time.Second {
						recovered++
					}
				}
				overRedis = f.At + f.For
			}
		}
		if quiet < span/6 || span == measure && recovered < 6 {
			r.Fatalf("of %v, %v are quiet, and %d workers can recover in them", span, quiet, recovered)
		}
	})
}

// TestPlanNeedsRoom: with one worker there is nothing left when it is stopped.
func TestPlanNeedsRoom(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*stage){
		"one worker": func(s *stage) { s.workers = s.workers[:1] },
		"no API":     func(s *stage) { s.apis = nil },
		"no links":   func(s *stage) { s.links = nil },
		"no time":    func(s *stage) { s.span = 0 },
	} {
		s := aStage(time.Minute)
		change(&s)
		if _, err := plan(1, s); err == nil {
			t.Errorf("%s: there is a plan", name)
		}
	}
}

// TestShortfall: what ten minutes, and two, must have, and that kills count together.
func TestShortfall(t *testing.T) {
	t.Parallel()
	all := func(n int) map[kind]int {
		thrown := map[kind]int{}
		for _, k := range kinds() {
			thrown[k] = n
		}
		return thrown
	}
	with := func(thrown map[kind]int, k kind, n int) map[kind]int { thrown[k] = n; return thrown }
	for _, tt := range []struct {
		name   string
		span   time.Duration
		of     []kind
		thrown map[kind]int
		want   []string
	}{
		{"all of it", measure, kinds(), with(all(20), workerKill, 60), nil},
		{"too few kills", measure, kinds(), with(all(20), workerKill, 59), []string{"99 processes were killed, 100 are demanded"}},
		{"one kind", measure, kinds(), with(with(all(20), workerKill, 60), pauseJob, 19), []string{"19 faults pause"}},
		{"two minutes", 2 * time.Minute, kinds(), with(all(4), workerKill, 12), nil},
		{"two minutes, too few", 2 * time.Minute, kinds(), with(with(all(4), workerKill, 12), cut, 3), []string{"3 faults cut were thrown, 4"}},
		{"no clock", measure, kinds(clockJump), with(with(all(20), workerKill, 60), clockJump, 0), nil},
		{"nothing", 30 * time.Second, []kind{cut}, nil, []string{"0 faults cut were thrown, 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := shortfall(tt.span, tt.of, tt.thrown)
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("lacking %q, want %q", got, tt.want)
			}
		})
	}
}
