package main

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawltest"
)

// TestTasks: a task is deleted from wherever it is, as an inspector does it or its hash alone, and what nobody else
// would clear away of the latter goes in the end.
func TestTasks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list string
		raw  bool
		left bool // in the list, until it is buried
	}{
		{"pending", false, false},
		{"pending", true, true},
		{"active", false, true},
		{"retry", false, false},
		{"retry", true, true},
		{"scheduled", false, false},
	} {
		rdb := crawltest.Mini(t).Client
		ctx := t.Context()
		put := func(id string) {
			t.Helper()
			err := rdb.HSet(ctx, taskKey("t", id), "msg", "a task").Err()
			if err == nil && (tt.list == "pending" || tt.list == "active") {
				err = rdb.LPush(ctx, taskKey(tt.list), id).Err()
			} else if err == nil {
				err = rdb.ZAdd(ctx, taskKey(tt.list), redis.Z{Member: id}).Err()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		there := func() int64 {
			t.Helper()
			n, err := rdb.Exists(ctx, taskKey(tt.list)).Result()
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		ts := &tasks{rdb: rdb}
		rng := rand.New(rand.NewPCG(1, 2))
		if what, err := ts.remove(ctx, rng, tt.raw); what != "" || err != nil {
			t.Errorf("%s: there is nothing, and %q was removed: %v", tt.list, what, err)
		}
		put("one")
		what, err := ts.remove(ctx, rng, tt.raw)
		if err != nil || !strings.HasPrefix(what, tt.list+" one") {
			t.Errorf("%s: removed %q, %v", tt.list, what, err)
		}
		if n := rdb.Exists(ctx, taskKey("t", "one")).Val(); n != 0 || (there() == 1) != tt.left {
			t.Errorf("%s, raw %v: %d hashes and %d lists are left", tt.list, tt.raw, n, there())
		}
		if err := ts.bury(ctx); err != nil || there() != 0 {
			t.Errorf("%s: not buried: %v", tt.list, err)
		}
		if tt.left {
			put("one")
			if err := ts.bury(ctx); err != nil || there() != 1 {
				t.Errorf("%s: a task that was made again was buried: %v", tt.list, err)
			}
		}
	}
}
