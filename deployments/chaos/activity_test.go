package main

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestActivitySettles: what is disturbed is so until a moment after the fault, and workers and the site disturb no
// bound of time.
func TestActivitySettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &activity{}
		<-time.After(time.Hour)
		if !a.quiet() {
			t.Error("it is not quiet before the first fault")
		}
		over := a.begin(partRedis, "one")
		second := a.begin(partRedis, "two")
		over()
		<-time.After(time.Hour)
		if a.quiet() || !a.since(time.Now(), partRedis) || a.since(time.Now(), partAPI) {
			t.Error("a fault is on, and another part is well")
		}
		second()
		<-time.After(settle - time.Millisecond)
		if a.quiet() {
			t.Error("a fault is forgotten at once")
		}
		<-time.After(2 * time.Millisecond)
		if !a.quiet() || !a.since(time.Now().Add(-time.Second), partRedis) {
			t.Error("a fault that is over lasts, or was never there")
		}
		for _, p := range []part{partWorker, partSite} {
			a.begin(p, "three")
		}
		if !a.quiet() {
			t.Error("a worker or the site disturbs")
		}
	})
}

func TestActivityKeepsTheLast(t *testing.T) {
	t.Parallel()
	a := &activity{}
	if a.latest() != "none" {
		t.Error(a.latest())
	}
	for i := range 3 * lastKept {
		a.mention(strconv.Itoa(i))
	}
	got := a.recent()
	if len(got) != lastKept || got[0] != strconv.Itoa(2*lastKept) || a.latest() != strconv.Itoa(3*lastKept-1) {
		t.Errorf("kept %q", got)
	}
}
