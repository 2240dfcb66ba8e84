package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// heal is promise 5: the time in which what a killed worker held is back.
const heal = 20 * time.Second

// lookEvery is how often the live slices are read.
const lookEvery = 200 * time.Millisecond

// slice names a slice: a tenant and a job, and its number there.
type slice struct{ job, gen string }

// wound is a worker that was killed or stalled, and the slices that may have been its.
type wound struct {
	what  string
	at    time.Time
	open  map[slice]float64 // deadline at the first look
	fresh bool              // the first look is still to come
}

// recovery measures how long it takes until nothing is held any more by a worker that is gone. Which slices a worker
// has is nowhere to be read, so that of each wound all slices are watched that lived when it was dealt and did not
// renew their leases since.
type recovery struct {
	rdb     redis.UniversalClient
	tenants []string
	act     *activity
	violate func(string)

	mu     sync.Mutex
	wounds []*wound

	longest, longestRedis time.Duration // the second of those with Redis faulted meanwhile
	healed, healedRedis   int
}

// watch begins to watch what a worker left that was killed, or stopped, just now.
func (r *recovery) watch(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wounds = append(r.wounds, &wound{what: what, at: time.Now(), fresh: true})
}

// run looks until ctx ends.
func (r *recovery) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		begun := time.Now()
		if live, err := r.slices(ctx); err == nil { // Redis is down now and then
			r.compare(begun, live)
		}
	}
}

// slices reads the live slices of all jobs and their deadlines.
func (r *recovery) slices(ctx context.Context) (map[slice]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	jobs := make([]*redis.StringSliceCmd, len(r.tenants))
	if _, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, t := range r.tenants {
			jobs[i] = p.SMembers(ctx, "{t:"+t+"}:running")
		}
		return nil
	}); err != nil {
		return nil, err
	}
	found := map[string]*redis.ZSliceCmd{}
	if _, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, t := range r.tenants {
			for _, id := range jobs[i].Val() {
				key := "{t:" + t + "}:j:" + id + ":slices"
				found[key] = p.ZRangeWithScores(ctx, key, 0, -1)
			}
		}
		p.Ping(ctx) // an empty pipeline is an error
		return nil
	}); err != nil {
		return nil, err
	}
	live := map[slice]float64{}
	for job, cmd := range found {
		for _, z := range cmd.Val() {
			gen, _ := z.Member.(string)
			live[slice{job, gen}] = z.Score
		}
	}
	return live, nil
}

// compare strikes off each wound what was given back or renewed, by a look that began at t.
func (r *recovery) compare(t time.Time, live map[slice]float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var left []*wound
	for _, w := range r.wounds {
		if w.fresh {
			if w.at.Before(t) {
				w.open, w.fresh = live, false
			}
			left = append(left, w)
			continue
		}
		open := map[slice]float64{}
		for s, deadline := range w.open {
			if now, ok := live[s]; ok && now <= deadline {
				open[s] = deadline
			}
		}
		if w.open = open; len(open) > 0 {
			left = append(left, w)
			continue
		}
		r.close(w, t)
	}
	r.wounds = left
}

// close records a wound of which nothing is left.
func (r *recovery) close(w *wound, t time.Time) {
	took := t.Sub(w.at)
	if r.act.since(w.at, partRedis) {
		r.longestRedis = max(r.longestRedis, took)
		r.healedRedis++
		return
	}
	r.longest = max(r.longest, took)
	r.healed++
	if took > heal {
		r.violate(fmt.Sprintf("what a lost worker held was back after %.1fs, which is above %v (%s)", took.Seconds(), heal, w.what))
	}
}

// unhealed says of which lost workers something is still held, once all jobs have ended.
func (r *recovery) unhealed() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, w := range r.wounds {
		if time.Since(w.at) > heal {
			out = append(out, fmt.Sprintf("what a lost worker held is not back after %.1fs (%s)", time.Since(w.at).Seconds(), w.what))
		}
	}
	return out
}
