package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

const (
	// stallLease is the lease of a slice. Half of the stalls are longer, so that the worker comes back with leases
	// that others have taken over meanwhile.
	stallLease = 12 * time.Second
	// calm is the part of a run that has no faults at its beginning, while the first jobs start.
	calm = 0.03
	// busy is the part of a run at the end of which the last faults begin.
	busy = 0.93
	// A run has rounds of about this length, two at least, in whose first part alone there are faults that keep callers
	// or the store waiting. In the rest the bounds of time are promises: a recovery takes up to 20 s.
	roundLength = 100 * time.Second
	roundPart   = 0.55
	// slow is the first of two halves of a range of delays that a link gets: 20 to 300 ms, or 300 ms to 1.5 s.
	slow = 300 * time.Millisecond
)

// fault is one fault of a plan.
type fault struct {
	N      int           `json:"n"` // from 1, by At
	At     time.Duration `json:"at"`
	For    time.Duration `json:"for"` // until it is over, or until what was killed is started again
	Kind   kind          `json:"kind"`
	Target string        `json:"target,omitempty"`

	Latency   time.Duration `json:"latency,omitempty"`   // of a link
	Direction string        `json:"direction,omitempty"` // of a half-close: upstream or downstream
	Refuse    bool          `json:"refuse,omitempty"`    // of a cut: new connections are refused, not closed at once
	Ahead     bool          `json:"ahead,omitempty"`     // of a clock: five minutes ahead, not behind
	Raw       bool          `json:"raw,omitempty"`       // of a task: its hash alone is deleted, as no inspector would
	Seed      uint64        `json:"seed"`                // for what is drawn when the fault is carried out
}

// String is as the log shows it.
func (f fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s", f.N, f.Kind)
	if f.Target != "" {
		fmt.Fprintf(&b, " %s", f.Target)
	}
	if f.For > 0 {
		fmt.Fprintf(&b, " for %.1fs", f.For.Seconds())
	}
	switch {
	case f.Latency > 0:
		fmt.Fprintf(&b, ", %d ms late", f.Latency.Milliseconds())
	case f.Direction != "":
		fmt.Fprintf(&b, ", %s swallowed", f.Direction)
	case f.Refuse:
		b.WriteString(", refusing")
	case f.Kind == clockJump && f.Ahead:
		b.WriteString(", 5 min ahead")
	case f.Kind == clockJump:
		b.WriteString(", 5 min behind")
	}
	return b.String()
}

// stage is what a plan is made for.
type stage struct {
	span    time.Duration
	kinds   []kind
	workers []string // at least two; one of them is always left alone
	apis    []string
	links   []string
}

const (
	// redisName is the only target of the faults of Redis.
	redisName = "redis"
	// siteLink is what the names of links to the site begin with.
	siteLink = "workers to "
	// callersLink is what the names of links to an API begin with.
	callersLink = "callers to "
)

func (s stage) targets(c class) []string {
	switch c {
	case ofWorker, ofClock:
		return s.workers
	case ofAPI:
		return s.apis
	case ofRedis:
		return []string{redisName}
	case ofLink:
		return s.links
	default:
		return []string{""}
	}
}

// plan answers the faults of a run, by time. The same seed and stage give the same plan. Of each kind it has what
// the length of the run demands and some more, evenly spread with a jitter. No target has two faults of a class
// at a time, so that a stopped worker is not restarted meanwhile and faults of Redis do not overlap, and of the
// workers one at least is neither killed nor stopped at any time.
func plan(seed int64, s stage) ([]fault, error) {
	if len(s.workers) < 2 || len(s.apis) == 0 || len(s.links) == 0 || s.span <= 0 {
		return nil, errors.New("a plan needs two workers, an API, links and time")
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // a plan that reproduces is what is wanted
	var faults []fault
	for _, k := range s.kinds {
		faults = append(faults, drawAll(rng, traitOf(k), s)...)
	}
	slices.SortStableFunc(faults, byTime)
	pushApart(faults, len(s.workers)-1)
	slices.SortStableFunc(faults, byTime)
	for i := range faults {
		faults[i].N = i + 1
	}
	return faults, nil
}

func byTime(a, b fault) int { return cmp.Compare(a.At, b.At) }

// drawAll draws the faults of one kind.
func drawAll(rng *rand.Rand, t trait, s stage) []fault {
	n := scaled(t.planned, s.span)
	targets := s.targets(t.class)
	order, turn := rng.Perm(n), rng.IntN(len(targets))
	faults := make([]fault, n)
	for i := range faults {
		part := (float64(i) + rng.Float64()) / float64(n)
		f := fault{Kind: t.kind, Target: targets[(order[i]+turn)%len(targets)], Seed: rng.Uint64()}
		if f.disquiets() {
			part = inRounds(part, s.span)
		}
		f.At = time.Duration((calm + (busy-calm)*part) * float64(s.span))
		faults[i] = f
		draw(rng, &faults[i], t, order[i])
		// A run of seconds has no room for a stall of 18.
		faults[i].For = min(faults[i].For, s.span/3).Round(time.Millisecond)
	}
	return faults
}

// disquiets reports whether a fault of Redis, of the API or of a link to either keeps callers waiting.
func (f fault) disquiets() bool {
	switch traitOf(f.Kind).class {
	case ofRedis, ofAPI:
		return true
	case ofLink:
		return !strings.HasPrefix(f.Target, siteLink)
	default:
		return false
	}
}

// inRounds moves a moment, of 0 to 1, into the first part of one of the rounds of a run.
func inRounds(part float64, span time.Duration) float64 {
	n := max(2, math.Round(float64(span)/float64(roundLength)))
	round, within := math.Modf(part * n)
	return (round + within*roundPart) / n
}

// draw draws what is particular to a fault; turn is its place in a random order of those of its kind, so that what
// half of them have, half of them have.
func draw(rng *rand.Rand, f *fault, t trait, turn int) {
	half := turn%2 == 0
	f.For = between(rng, t.least, t.most)
	switch f.Kind {
	case workerKill, apiKill:
		if half {
			f.For = 0
		}
	case workerStall:
		if half {
			f.For = between(rng, stallLease+time.Second, t.most)
		} else {
			f.For = between(rng, t.least, stallLease-time.Second)
		}
	case latency:
		if f.Latency = between(rng, 20*time.Millisecond, slow); half {
			f.Latency = between(rng, slow, 5*slow)
		}
		f.Latency = f.Latency.Round(time.Millisecond)
	case cut:
		f.Refuse = half
	case halfClose:
		if f.Direction = downstream; half {
			f.Direction = upstream
		}
	case clockJump:
		f.Ahead = half
	case taskDelete:
		f.Raw = half
	default: // nothing but how long
	}
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

// lane is what faults follow one another on.
type lane struct {
	class  class
	target string
}

// pushApart moves faults, which are ordered by time, to later until no two of a lane overlap and no more than so
// many workers are disturbed at a time.
func pushApart(faults []fault, most int) {
	free := map[lane]time.Duration{}
	var disturbed []time.Duration // when each of the workers last disturbed is well again
	var last time.Duration        // when the last of them is disturbed
	for i := range faults {
		f := &faults[i]
		t := traitOf(f.Kind)
		if t.class == ofTask || t.class == ofCaller {
			continue
		}
		on := lane{t.class, f.Target}
		f.At = max(f.At, free[on])
		if t.class == ofWorker {
			f.At = max(f.At, last) // behind the one that was moved before it: disturbed forgets who is well by then
			disturbed = slices.DeleteFunc(disturbed, func(until time.Duration) bool { return until <= f.At })
			if slices.Sort(disturbed); len(disturbed) >= most {
				f.At = max(f.At, disturbed[len(disturbed)-most])
			}
			disturbed = append(disturbed, f.At+f.For+t.after)
			last = f.At
		}
		free[on] = f.At + f.For + t.after
	}
}

// shortfall answers what a run of the given length lacks, a sentence each.
func shortfall(span time.Duration, of []kind, thrown map[kind]int) []string {
	var lacking []string
	kills, counted := 0, false
	for _, k := range of {
		if n, want := thrown[k], scaled(demanded, span); n < want {
			lacking = append(lacking, fmt.Sprintf("%d faults %s were thrown, %d are demanded", n, k, want))
		}
		if k.kills() {
			kills, counted = kills+thrown[k], true
		}
	}
	if want := scaled(demandedKills, span); counted && kills < want {
		lacking = append(lacking, fmt.Sprintf("%d processes were killed, %d are demanded", kills, want))
	}
	return lacking
}
