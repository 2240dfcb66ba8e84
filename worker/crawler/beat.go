package crawler

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// pulse is what the renewal tells the loop.
type pulse struct {
	state crawl.State // empty: not asked
	lost  bool
	yield bool // other rings wait for a free handler: be brief
}

// tickEvery is how often a slice looks at what concerns it.
const tickEvery = time.Second

// beat renews the slice until its context ends. It speaks only when there is
// something to heed, and never waits for the loop: one word stands for those before it.
func (t *turn) beat(ctx context.Context, news chan pulse) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	renewed := time.Now() // when the last good renewal was begun
	queued := 0           // beats in a row that saw rings waiting
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p := pulse{state: crawl.Running}
		// Half a tick early rather than a whole one late. The renewal comes first: a
		// queue that hangs must not cost the lease.
		if begun := time.Now(); begun.Sub(renewed) >= store.RenewEvery-tickEvery/2 {
			r, err := t.c.o.Store.Renew(ctx, t.sl, t.slots.inUse()...)
			if err != nil {
				if ctx.Err() == nil {
					t.log.WarnContext(ctx, "slice not renewed", slog.Any("err", err))
				}
				continue
			}
			renewed = begun
			p.state, p.lost = r.State, r.Lost
			t.c.ring(ctx, t.c.needed(ctx, t.sl.Job, r.Rings, 0))
		}
		if time.Since(t.started) >= shortBudget {
			// A ring that is about to be taken is no reason: two beats in a row must see it. It will
			// be, within a moment, as long as this process has a place for it.
			if t.c.full() && t.c.others(ctx) {
				queued++
			} else {
				queued = 0
			}
			p.yield = queued > 1
		}
		if p.lost || p.yield || p.state != crawl.Running {
			select {
			case unread := <-news:
				if !p.lost && p.state == crawl.Running {
					p = unread // which says the same or more
				}
			default:
			}
			news <- p
		}
	}
}

// others reports whether rings wait that no worker has taken.
func (c *Crawler) others(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, tickEvery/2)
	defer cancel()
	n, err := c.o.Doorbell.Waiting(ctx)
	return err == nil && n > 0
}

// needed leaves out of rings those for more slices of a job that has some, all but the
// first so many, while rings wait that no worker has taken: then all are busy, and more
// slices make nothing faster. They would but stand in line before the first slice of
// somebody else's job; and as each of them asks for more in its turn, the line would grow
// without end. Those that the job lacks yet are rung for as its slices renew.
func (c *Crawler) needed(ctx context.Context, job crawl.JobRef, rings []crawl.Ring, first int) []crawl.Ring {
	own := func(r crawl.Ring) bool { return r.JobRef == job }
	if !slices.ContainsFunc(rings, own) || !c.others(ctx) {
		return rings
	}
	return slices.DeleteFunc(slices.Clone(rings), func(r crawl.Ring) bool {
		if !own(r) {
			return false
		}
		first--
		return first < 0
	})
}
