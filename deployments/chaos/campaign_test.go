package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPersist(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		if err := persist(t.Context(), func() (bool, error) { tries++; return tries == 5, nil }); err != nil || tries != 5 {
			t.Errorf("%d tries: %v", tries, err)
		}
		begun := time.Now()
		if err := persist(t.Context(), func() (bool, error) { return false, errors.New("away") }); err == nil {
			t.Error("nothing was done, and that is no error")
		}
		if took := time.Since(begun); took != patience {
			t.Errorf("it took %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := persist(ctx, func() (bool, error) { return false, nil }); err == nil {
			t.Error("nothing was done, and that is no error")
		}
	})
}

func aCampaign(t *testing.T, names ...string) *campaign {
	t.Helper()
	d := &deployment{}
	for _, name := range names {
		l, _ := linked(t)
		l.name = name
		d.links = append(d.links, l)
	}
	return &campaign{
		d: d, act: &activity{}, log: t.Logf, begun: time.Now(),
		thrown: map[kind]int{}, split: map[string]int{}, slowest: map[kind]time.Duration{},
	}
}

// TestCarryOut: faults of one link follow one another, those of two go side by side, all are counted, and none is
// thrown once the run is cut short.
func TestCarryOut(t *testing.T) {
	t.Parallel()
	c := aCampaign(t, "a", "b")
	const long = 50 * time.Millisecond
	faults := []fault{
		{Kind: latency, Target: "a", For: long, Latency: 1},
		{Kind: cut, Target: "a", For: long},
		{Kind: cut, Target: "b", For: long, Refuse: true},
	}
	c.carryOut(t.Context(), faults)
	if took := time.Since(c.begun); took < 2*long {
		t.Errorf("two faults of %v on one link took %v", long, took)
	}
	want := map[string]int{"latency a": 1, "cut a": 1, "cut b": 1}
	if d := cmp.Diff(want, c.split); d != "" || c.thrown[cut] != 2 || c.thrown[latency] != 1 {
		t.Errorf("thrown %v\n%s", c.thrown, d)
	}
	if n, kills, _ := c.progress(); n != 3 || kills != 0 {
		t.Errorf("%d faults, %d kills", n, kills)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.carryOut(ctx, faults)
	if n, _, _ := c.progress(); n != 3 || len(c.missed) != 0 {
		t.Errorf("%d faults, missed %q", n, c.missed)
	}
}

// TestPartOf: which links disturb what a caller is promised.
func TestPartOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]part{
		"workers to site-1": partSite, "api-1 to redis": partRedisLink, "callers to api-1": partAPILink, "worker-1 to redis": partRedisLink,
	} {
		if got := partOf(name); got != want {
			t.Errorf("%s is part %d, want %d", name, got, want)
		}
	}
}

// TestViolationIsTold: at once, with what was done before.
func TestViolationIsTold(t *testing.T) {
	t.Parallel()
	c := aCampaign(t)
	var told []string
	c.log = func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
	c.act.mention("a kill")
	c.violate("a count fell")
	if len(told) != 2 || !strings.Contains(told[0], "a count fell") || !strings.Contains(told[1], "a kill") || len(c.broken) != 1 {
		t.Errorf("told %q", told)
	}
}
