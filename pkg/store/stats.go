package store

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"example.com/trawl/pkg/crawl"
)

// Stats is what the service has to do and has done, over all tenants: what an operator
// watches. It is no one moment's picture, since each tenant is counted for itself.
type Stats struct {
	// Tenants that ever submitted a job.
	Tenants int64
	// Jobs that have not ended, by state.
	Jobs map[crawl.State]int64
	// OldestWaiting is for how long the first job in line has waited for its tenant's running
	// limit, of the tenant where that is longest; zero when none waits.
	OldestWaiting time.Duration
	// Ended counts the jobs that ever ended, by their last state. It is exact and never
	// decreases: the script that ends a job counts it, and its removal does not.
	Ended map[crawl.State]int64
	// URLs of jobs that have not ended, in their frontier, by state.
	URLs map[crawl.PageState]int64
	// Due are those of them that a worker could lease now: what waits for its host or a
	// retry is not, nor is anything of a job that waits for its turn or is stopping.
	Due int64
	// WebhookJobs have events that are to be delivered now; those that found their receiver
	// busy are not among them.
	WebhookJobs int64
	// Broken are tenants that could not be counted, since Redis answered that their keys are not what
	// they should be: somebody wrote to them by hand. With any, everything else is a lower bound.
	Broken int64
	// Skipped jobs were not looked into, since the work of one call is bounded. With any,
	// Jobs, URLs and Due are lower bounds.
	Skipped int64
}

const (
	// statsJobs bounds the jobs of one script call, which then takes Redis some 4 ms. A tenant
	// with more that run at once is the exception: TRAWL_MAX_RUNNING is 10 by default.
	statsJobs = 1000
	// statsTotal bounds the jobs of one call of [Store.Stats] over all tenants: a fifth of a
	// second of Redis, had anybody so many that run.
	statsTotal = 50_000
)

// Stats counts over all tenants. It costs Redis some 10 µs a tenant and 4 µs a job that has
// not ended, of which it looks at 1,000 of a tenant and 50,000 in all. The error is a
// [crawl.Fault], or that of ctx; then nothing is known, for a sum that lacks a tenant would
// tell of jobs that ended and began again.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	s.trips.Add(1)
	tenants, err := s.rdb.SMembers(ctx, tenantsKey).Result()
	if err != nil {
		return Stats{}, fault(err)
	}
	return s.stats(ctx, tenants, statsJobs, statsTotal)
}

// stats counts the jobs of the given tenants, and looks into no more than each of a tenant
// and total in all.
func (s *Store) stats(ctx context.Context, tenants []string, each, total int64) (Stats, error) {
	out := Stats{
		Tenants: int64(len(tenants)),
		Jobs:    map[crawl.State]int64{}, Ended: map[crawl.State]int64{}, URLs: map[crawl.PageState]int64{},
	}
	for len(tenants) > 0 {
		most := min(each, total)
		n := min(sweepTenants, len(tenants))
		if most > 0 {
			n = min(n, int(total/most)) // so that all of them together keep within the total
		}
		calls := make([]*call, n)
		for i, t := range tenants[:n] {
			calls[i] = &call{script: statsScript, keys: []string{rootKey(t)}, args: []any{s.now(), most}}
		}
		s.send(ctx, nil, calls...)
		for i, c := range calls {
			switch err := c.err(); {
			case err != nil && strings.Contains(c.cmd.Err().Error(), "WRONGTYPE"):
				s.o.Logger.WarnContext(ctx, "a tenant cannot be counted", slog.String("tenant", tenants[i]), slog.Any("err", err))
				out.Broken++
				continue
			case err != nil:
				return Stats{}, fmt.Errorf("stats of tenant %s: %w", tenants[i], err)
			}
			total -= out.add(array(c.cmd))
		}
		tenants = tenants[n:]
	}
	return out, nil
}

// The states in the order in which stats.lua answers.
var (
	openStates  = []crawl.State{crawl.Queued, crawl.Running, crawl.Paused, crawl.Cancelling}
	endedStates = []crawl.State{crawl.Completed, crawl.CompletedWithErrors, crawl.Failed, crawl.Cancelled}
	openURLs    = []crawl.PageState{crawl.PageQueued, crawl.PageActive, crawl.PageDeferred}
)

// add adds what stats.lua answers of a tenant, and answers how many jobs it looked into.
func (s *Stats) add(a []any) int64 {
	next := func() (n int64) {
		if len(a) > 0 {
			n, a = num(a[0]), a[1:]
		}
		return n
	}
	looked := next()
	s.Skipped += next()
	for _, state := range openStates {
		s.Jobs[state] += next()
	}
	s.OldestWaiting = max(s.OldestWaiting, time.Duration(next())*time.Millisecond)
	for _, state := range openURLs {
		s.URLs[state] += next()
	}
	s.Due += next()
	s.WebhookJobs += next()
	for _, state := range endedStates {
		s.Ended[state] += next()
	}
	return looked
}
