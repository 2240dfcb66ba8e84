package store

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// HostSlots names slots of one host that a slice holds.
type HostSlots struct {
	Host  string
	Slots []int64
}

// HostReserve asks for start times and concurrency slots of one host. All jobs,
// tenants and workers share a host's.
type HostReserve struct {
	Host        string // see crawl.URL.PolitenessHost
	First       int64  // number of the first slot; a slice never uses a number twice
	N           int
	Delay       time.Duration // between two starts
	Concurrency int           // requests at once
}

// HostLeave takes a slice out of the line of a host.
type HostLeave struct {
	Host        string
	Concurrency int // as in the HostReserve that it waits for
}

// HostDelay keeps a host from being asked before Wait has passed, by anybody.
type HostDelay struct {
	Host string
	Wait time.Duration
}

// HostHorizon is the latest start that is granted: a longer wait is not worth
// holding a lease for, the item is deferred instead.
const HostHorizon = 5 * time.Second

// HostAsk is how often a slice that waits for a slot asks, at least: one that is not
// heard of four times as long has left the line.
const HostAsk = 250 * time.Millisecond

// HostGrant is the answer to a [HostReserve]: the slots First, First+1, … with the
// time until each may start. Wait is the time until another call may grant more: zero
// when all were granted, negative when the slots are in use or others stand in line for
// them, which ends at a time that nobody knows. A slice that got nothing stands in line
// itself then, as long as it asks again every [HostAsk]. A host whose shard does not
// answer grants nothing in the same way.
type HostGrant struct {
	Host   string
	First  int64
	Starts []time.Duration
	Wait   time.Duration
}

func slotName(sl *Slice, k int64) string {
	return sliceName(sl) + "/" + strconv.FormatInt(k, 10)
}

// sliceName is the name of a slice on the shards of hosts.
func sliceName(sl *Slice) string { return sl.Job.ID + ":" + strconv.FormatInt(sl.Gen, 10) }

func (s *Store) reserveCall(sl *Slice, r *HostReserve) *call {
	return &call{
		script: hostReserveScript,
		keys: []string{
			hostKey(r.Host, "slots"), hostKey(r.Host, "next"), hostKey(r.Host, "line"), hostKey(r.Host, "asked"),
		},
		args: []any{
			s.now(), sliceName(sl), r.First, r.N, r.Delay.Milliseconds(),
			r.Concurrency, HostHorizon.Milliseconds(), slotTime.Milliseconds(),
		},
	}
}

func grant(r *HostReserve, c *call) HostGrant {
	if c.err() != nil {
		return HostGrant{Host: r.Host, First: r.First, Wait: -1}
	}
	a := array(c.cmd)
	g := HostGrant{Host: r.Host, First: r.First, Wait: time.Duration(num(a[0])) * time.Millisecond}
	for _, ms := range a[1:] {
		g.Starts = append(g.Starts, time.Duration(num(ms))*time.Millisecond)
	}
	return g
}

// freeSlots gives host slots back and leaves lines, in the same pipeline as the commits of the pages
// that used them.
func freeSlots(ctx context.Context, sl *Slice, x *Exchange) func(redis.Pipeliner) {
	if len(x.Free)+len(x.Leave) == 0 {
		return nil
	}
	return func(p redis.Pipeliner) {
		for _, h := range x.Leave {
			// As host_reserve.lua names it.
			me := sliceName(sl) + " " + strconv.Itoa(h.Concurrency)
			p.ZRem(ctx, hostKey(h.Host, "line"), me)
			p.ZRem(ctx, hostKey(h.Host, "asked"), me)
		}
		for _, h := range x.Free {
			names := make([]any, len(h.Slots))
			for i, k := range h.Slots {
				names[i] = slotName(sl, k)
			}
			p.ZRem(ctx, hostKey(h.Host, "slots"), names...)
		}
	}
}
