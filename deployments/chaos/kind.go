package main

import (
	"math"
	"slices"
	"time"
)

// kind is a kind of fault.
type kind string

// The kinds of faults. Those of the callers are carried out by the load, see package check.
const (
	workerKill  kind = "worker-kill"  // SIGKILL, restarted at once or after up to 3 s
	workerTerm  kind = "worker-term"  // SIGTERM, restarted when it has ended
	workerStall kind = "worker-stall" // SIGSTOP, and SIGCONT 2 to 18 s later
	apiKill     kind = "api-kill"
	apiTerm     kind = "api-term"
	redisKill   kind = "redis-kill" // SIGKILL, restarted from its append-only file 0.2 to 3 s later
	redisFull   kind = "redis-full" // maxmemory below what is used, for 1 to 5 s
	redisStop   kind = "redis-stop" // SIGSTOP, and SIGCONT 0.5 to 6 s later
	latency     kind = "latency"    // each byte of a link is late
	cut         kind = "cut"        // the connections of a link are closed
	halfClose   kind = "half-close" // one direction of a link is swallowed, the other lives
	clockJump   kind = "clock-jump" // a worker's wall clock is 5 min off, and right again later
	taskDelete  kind = "task-delete"
	cancelJob   kind = "cancel"
	pauseJob    kind = "pause"
	resumeJob   kind = "resume"
	retryFailed kind = "retry-failed"
	resubmit    kind = "resubmit"
)

const (
	// demanded is how many faults of each kind ten minutes must have, and demandedKills how many kills of processes.
	demanded      = 20
	demandedKills = 100
	// measure is the time that these numbers are for.
	measure = 10 * time.Minute
)

// class says what a fault is done to. Faults of one class and target follow one another.
type class int

const (
	ofWorker class = iota
	ofAPI
	ofRedis
	ofLink
	ofClock
	ofTask
	ofCaller
)

// trait is what the plan knows of a kind.
type trait struct {
	kind  kind
	class class
	// planned is how many ten minutes have: more than demanded, because a fault can find nothing to be done to.
	planned int
	// least and most bound how long it lasts.
	least, most time.Duration
	// after is how long the target is left alone when it is over.
	after time.Duration
}

// traits are those of every kind, in the order of the table.
var traits = []trait{
	{workerKill, ofWorker, 66, 0, 3 * time.Second, time.Second},
	{workerTerm, ofWorker, 24, 2 * time.Second, 4 * time.Second, time.Second},
	{workerStall, ofWorker, 24, 2 * time.Second, 18 * time.Second, time.Second},
	{apiKill, ofAPI, 26, 0, 2 * time.Second, time.Second},
	{apiTerm, ofAPI, 24, time.Second, 3 * time.Second, time.Second},
	{redisKill, ofRedis, 26, 200 * time.Millisecond, 3 * time.Second, time.Second},
	{redisFull, ofRedis, 24, time.Second, 5 * time.Second, 500 * time.Millisecond},
	{redisStop, ofRedis, 24, 500 * time.Millisecond, 6 * time.Second, 500 * time.Millisecond},
	{latency, ofLink, 26, time.Second, 6 * time.Second, 500 * time.Millisecond},
	{cut, ofLink, 26, 200 * time.Millisecond, 3 * time.Second, 500 * time.Millisecond},
	{halfClose, ofLink, 26, time.Second, 6 * time.Second, 500 * time.Millisecond},
	{clockJump, ofClock, 26, 3 * time.Second, 15 * time.Second, time.Second},
	{taskDelete, ofTask, 30, 0, 0, 0},
	{cancelJob, ofCaller, 30, 0, 0, 0},
	{pauseJob, ofCaller, 30, 0, 0, 0},
	{resumeJob, ofCaller, 30, 0, 0, 0},
	{retryFailed, ofCaller, 30, 0, 0, 0},
	{resubmit, ofCaller, 30, 0, 0, 0},
}

func traitOf(k kind) trait {
	return traits[slices.IndexFunc(traits, func(t trait) bool { return t.kind == k })]
}

// kinds answers every kind, in the order of the table, without those left out.
func kinds(without ...kind) []kind {
	var out []kind
	for _, t := range traits {
		if !slices.Contains(without, t.kind) {
			out = append(out, t.kind)
		}
	}
	return out
}

// kills says whether a fault of this kind ends a process by SIGKILL.
func (k kind) kills() bool { return k == workerKill || k == apiKill || k == redisKill }

// scaled is what ten minutes have n of, for a run of the given length: rounded up, so that a short run has one
// of every kind.
func scaled(n int, span time.Duration) int {
	return int(math.Ceil(float64(n) * span.Seconds() / measure.Seconds()))
}
