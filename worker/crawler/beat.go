package crawler

import (
	"log/slog"
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

// beat renews the slice until its context ends. It speaks only when there is
// something to heed, and never waits for the loop: the newest word counts.
func (t *turn) beat(news chan pulse) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	renewed := time.Now()
	queued := 0 // beats in a row that saw rings waiting
	for {
		select {
		case <-t.io.Done():
			return
		case <-tick.C:
		}
		p := pulse{state: crawl.Running}
		if time.Since(t.started) >= shortBudget {
			// A ring that is about to be taken is no reason: two beats in a row must see it.
			if n, err := t.c.o.Doorbell.Waiting(t.io); err == nil && n > 0 {
				queued++
			} else {
				queued = 0
			}
			p.yield = queued > 1
		}
		if time.Since(renewed) >= store.RenewEvery {
			r, err := t.c.o.Store.Renew(t.io, t.sl, t.slots.inUse()...)
			if err != nil {
				if t.io.Err() == nil {
					t.log.WarnContext(t.io, "slice not renewed", slog.Any("err", err))
				}
				continue
			}
			renewed = time.Now()
			p.state, p.lost = r.State, r.Lost
			t.c.ring(t.io, r.Rings)
		}
		if p.lost || p.yield || p.state != crawl.Running {
			select {
			case <-news:
			default:
			}
			news <- p
		}
	}
}
