package httpapi

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A tenant that has its share waits for itself; others have theirs, and nothing is kept of
// one that has none.
func TestShares(t *testing.T) {
	t.Parallel()
	s := newShares(2)
	var leave []func()
	take := func(tenant string, n int64, ok bool) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if !ok { // it would wait
			time.AfterFunc(10*time.Millisecond, cancel)
		}
		l, err := s.acquire(ctx, tenant, n)
		if err == nil {
			leave = append(leave, l)
		}
		return err
	}
	for _, tc := range []struct {
		tenant string
		n      int64
		ok     bool
	}{{"a", 1, true}, {"a", 2, false}, {"a", 1, true}, {"a", 1, false}, {"b", 2, true}, {"b", 1, false}} {
		if err := take(tc.tenant, tc.n, tc.ok); (err == nil) != tc.ok || err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	leave[0]()
	if err := take("a", 1, true); err != nil {
		t.Errorf("what was given back: %v", err)
	}
	for _, l := range leave[1:] {
		l()
	}
	if len(s.tenants) > 0 {
		t.Errorf("kept: %v", s.tenants)
	}
}
