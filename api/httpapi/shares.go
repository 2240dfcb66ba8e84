package httpapi

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// shares bounds what each tenant has of a room that all have in common, so that one which
// sends large bodies slowly leaves room for the others.
type shares struct {
	most int64 // of one tenant

	mu      sync.Mutex
	tenants map[string]*share // those that have, or wait for, any
}

type share struct {
	room  *semaphore.Weighted
	users int
}

func newShares(most int64) *shares { return &shares{most: most, tenants: map[string]*share{}} }

// acquire waits until the tenant may have n more, at most s.most, and returns what gives
// them back. The error is ctx's.
func (s *shares) acquire(ctx context.Context, tenant string, n int64) (leave func(), err error) {
	s.mu.Lock()
	of := s.tenants[tenant]
	if of == nil {
		of = &share{room: semaphore.NewWeighted(s.most)}
		s.tenants[tenant] = of
	}
	of.users++
	s.mu.Unlock()
	if err = of.room.Acquire(ctx, n); err != nil {
		n = 0
	}
	leave = func() {
		of.room.Release(n)
		s.mu.Lock()
		defer s.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(s.tenants, tenant)
		}
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}
