package store

import (
	"context"

	"example.com/trawl/pkg/crawl"
)

// Swept is what one sweep did.
type Swept struct {
	Jobs    int64 // looked at
	Dead    int64 // slices found dead
	Back    int64 // URLs given back from them
	Expired int64 // jobs that became tombstones
	Rings   []crawl.Ring
}

// sweepJobs bounds the jobs of one script call: each costs some 20 µs, so that a
// call blocks Redis for about a millisecond.
const sweepJobs = 50

// sweepTenants bounds the scripts in one pipeline.
const sweepTenants = 200

// Sweep heals every tenant's jobs whose time has come. Any number of workers may
// sweep at once. It goes on until nothing is due or ctx ends.
func (s *Store) Sweep(ctx context.Context) (Swept, error) {
	s.trips.Add(1)
	tenants, err := s.rdb.SMembers(ctx, tenantsKey).Result()
	if err != nil {
		return Swept{}, fault(err)
	}
	return s.sweep(ctx, tenants)
}

// sweep heals the jobs of the given tenants.
func (s *Store) sweep(ctx context.Context, tenants []string) (Swept, error) {
	var out Swept
	for len(tenants) > 0 {
		n := min(sweepTenants, len(tenants))
		calls := make([]*call, n)
		for i, t := range tenants[:n] {
			calls[i] = &call{script: sweepScript, keys: []string{rootKey(t)}, args: []any{s.now(), sweepJobs}}
		}
		if err := s.run(ctx, nil, calls...); err != nil {
			return out, err
		}
		var again []string
		for i, c := range calls {
			a := array(c.cmd)
			out.Jobs += num(a[0])
			out.Dead += num(a[1])
			out.Back += num(a[2])
			out.Expired += num(a[3])
			out.Rings = append(out.Rings, rings(tenants[i], a[4:])...)
			if num(a[0]) == sweepJobs {
				again = append(again, tenants[i])
			}
		}
		tenants = append(tenants[n:], again...)
	}
	return out, nil
}
