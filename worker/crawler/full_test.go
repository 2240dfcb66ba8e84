package crawler

import (
	"errors"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/queue"
)

// A process is full when the queue can hand it no more rings: a turn whose job was given free
// for another keeps its place until it ends, and a ring for a job that is served takes none.
func TestFull(t *testing.T) {
	t.Parallel()
	c := New(Options{Concurrency: 1})
	if !c.full() {
		t.Error("where places are not known, rings that wait may wait for this process")
	}
	c.places = 2
	a, b := crawl.JobRef{Tenant: "t", ID: "a"}, crawl.JobRef{Tenant: "t", ID: "b"}
	enter := func(j crawl.JobRef) func() {
		t.Helper()
		release, err := c.enter(j)
		if err != nil {
			t.Fatal(err)
		}
		return release
	}
	first := enter(a)
	if _, err := c.enter(a); !errors.Is(err, queue.ErrServed) {
		t.Errorf("a job is served twice: %v", err)
	}
	if c.full() {
		t.Error("one of two places is taken, and it is full")
	}
	c.free(a)
	second := enter(a)
	if !c.full() {
		t.Error("two of two places are taken, and it is not full")
	}
	first()
	first()
	if c.full() {
		t.Error("it is full although a turn has ended")
	}
	third := enter(b)
	if !c.full() {
		t.Error("it is not full with two jobs")
	}
	second()
	third()
	if c.open != 0 || len(c.serving) != 0 {
		t.Errorf("%d turns are open, %v served", c.open, c.serving)
	}
}
