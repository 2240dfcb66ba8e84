package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRecovery: a wound is healed when every slice that lived then is gone or was renewed, and one that takes longer
// than promised is told, unless Redis was faulted meanwhile.
func TestRecovery(t *testing.T) {
	t.Parallel()
	mine, other := slice{"j", "1"}, slice{"j", "2"}
	for _, tt := range []struct {
		name     string
		took     time.Duration
		redis    bool
		violated bool
	}{
		{"in time", 15 * time.Second, false, false},
		{"too late", 21 * time.Second, false, true},
		{"too late, without Redis", 30 * time.Second, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var told []string
				r := &recovery{act: &activity{}, violate: func(s string) { told = append(told, s) }}
				<-time.After(time.Hour)
				r.watch("a kill")
				<-time.After(time.Millisecond)
				if tt.redis {
					r.act.begin(partRedis, "a fault")()
				}
				r.compare(time.Now(), map[slice]float64{mine: 12, other: 12})
				<-time.After(5 * time.Second)
				// The other renews, a third begins, mine is as it was.
				r.compare(time.Now(), map[slice]float64{mine: 12, other: 15, {"j", "3"}: 20})
				if len(r.wounds) != 1 {
					t.Fatal("it is healed while a slice is held")
				}
				<-time.After(tt.took - 5*time.Second)
				r.compare(time.Now(), map[slice]float64{other: 30, {"j", "3"}: 30})
				longest, n := r.longest, r.healed
				if tt.redis {
					longest, n = r.longestRedis, r.healedRedis
				}
				if len(r.wounds) != 0 || n != 1 || longest.Round(time.Second) != tt.took {
					t.Errorf("%d wounds, %d healed, longest %v", len(r.wounds), n, longest)
				}
				if (len(told) == 1 && strings.Contains(told[0], "a kill")) != tt.violated {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}

// TestRecoveryNever: what never heals is told at the end, once the promised time is over.
func TestRecoveryNever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recovery{act: &activity{}, violate: func(s string) { t.Error(s) }}
		r.watch("a kill")
		<-time.After(time.Second)
		r.compare(time.Now(), map[slice]float64{{"j", "1"}: 12})
		if got := r.unhealed(); len(got) != 0 {
			t.Errorf("told %q at once", got)
		}
		<-time.After(heal)
		if got := r.unhealed(); len(got) != 1 {
			t.Errorf("told %q", got)
		}
	})
}
