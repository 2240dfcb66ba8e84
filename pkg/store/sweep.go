package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.com/trawl/pkg/crawl"
)

// Swept is what one sweep did.
type Swept struct {
	Tenants int64 // healed; a tenant whose sweep failed is none
	Jobs    int64 // looked at; those of a newer format are left to newer processes, and not counted
	Dead    int64 // slices found dead
	Back    int64 // URLs given back from them
	Expired int64 // jobs that became tombstones
	Lost    int64 // pages failed as worker_lost
	Rings   []crawl.Ring
	// Outbox are the tenants with events of webhooks to deliver: see [Store.ClaimDeliveries].
	Outbox []string
}

// sweepJobs bounds the jobs of one script call: each costs some 20 µs, so that a
// call blocks Redis for about a millisecond.
const sweepJobs = 50

// sweepTenants bounds the scripts in one pipeline.
const sweepTenants = 200

const (
	// idleAfter is how far away the next need of an idle tenant is at least.
	idleAfter = time.Minute
	// idleLook is how often an idle tenant is looked at all the same: it may have
	// submitted a job meanwhile whose ring was lost.
	idleLook = 5 * time.Second
)

// Sweep heals every tenant's jobs whose time has come. Any number of workers may
// sweep at once. It goes on until nothing is due or ctx ends; a tenant that cannot be
// healed keeps no other from it, and the error names what failed.
func (s *Store) Sweep(ctx context.Context) (Swept, error) {
	s.trips.Add(1)
	tenants, err := s.rdb.SMembers(ctx, tenantsKey).Result()
	if err != nil {
		return Swept{}, fault(err)
	}
	if s.o.Sweeps != nil {
		tenants = slices.DeleteFunc(tenants, func(t string) bool { return !s.o.Sweeps(t) })
	}
	return s.sweep(ctx, s.awake(tenants))
}

// awake leaves out the tenants that were found idle a moment ago: ten thousand of them
// would cost each sweep a tenth of a second.
func (s *Store) awake(tenants []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return slices.DeleteFunc(tenants, func(t string) bool { return now.Before(s.idle[t]) })
}

func (s *Store) noteIdle(tenant string, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if again < 0 || again >= idleAfter {
		s.idle[tenant] = time.Now().Add(idleLook)
	} else {
		delete(s.idle, tenant)
	}
}

// unswept is a tenant to sweep. Newer are the jobs of a newer format that were seen to be the
// first of those that are due: each round passes over more of them, or heals some, so that it ends.
type unswept struct {
	tenant string
	newer  int64
}

// sweep heals the jobs of the given tenants.
func (s *Store) sweep(ctx context.Context, names []string) (Swept, error) {
	var (
		out    Swept
		failed error
	)
	tenants := make([]unswept, len(names))
	for i, name := range names {
		tenants[i].tenant = name
	}
	for len(tenants) > 0 {
		n := min(sweepTenants, len(tenants))
		calls := make([]*call, n)
		for i, t := range tenants[:n] {
			calls[i] = &call{script: sweepScript, keys: []string{rootKey(t.tenant)}, args: []any{s.now(), sweepJobs, t.newer}}
		}
		s.send(ctx, nil, calls...)
		var again []unswept
		for i, c := range calls {
			tenant := tenants[i].tenant
			if err := c.err(); err != nil {
				if failed == nil {
					failed = fmt.Errorf("sweep tenant %s: %w", tenant, err)
				}
				continue
			}
			a := array(c.cmd)
			out.Tenants++
			out.Jobs += num(a[0])
			out.Dead += num(a[1])
			out.Back += num(a[2])
			out.Expired += num(a[3])
			out.Lost += num(a[4])
			out.Rings = append(out.Rings, rings(tenant, a[9:])...)
			if num(a[8]) == 1 {
				again = append(again, unswept{tenant, num(a[7])})
			} else if num(a[6]) == 1 { // else it is asked anew, and this would name it twice
				out.Outbox = append(out.Outbox, tenant)
			}
			s.noteIdle(tenant, time.Duration(num(a[5]))*time.Millisecond)
		}
		tenants = append(tenants[n:], again...)
		if ctx.Err() != nil {
			break
		}
	}
	return out, failed
}
