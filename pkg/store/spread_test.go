package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// spreading is a job that could use sixteen slices, and those that it has.
type spreading struct {
	*fixture
	job    crawl.JobRef
	slices []*Slice
}

func spread(t *testing.T, f *fixture, urls int) *spreading {
	t.Helper()
	n := f.job(t, "", urls)
	n.Plan.Concurrency = 64
	n.Quota.MaxRunning = 10
	f.create(t, n)
	return &spreading{fixture: f, job: n.Job}
}

// joins has an idle worker take a ring, and answers how many that rings for.
func (s *spreading) joins(t *testing.T) int {
	t.Helper()
	sl, rings, err := s.Begin(t.Context(), crawl.Ring{JobRef: s.job})
	if err != nil || sl == nil {
		t.Fatalf("began %v, %v", sl, err)
	}
	s.slices = append(s.slices, sl)
	return len(rings)
}

// goesOn has each slice ask for more URLs, which it does at every turn, ten times a second for so
// long, and renew; it answers after how long each ring was made, in tenths of a second.
func (s *spreading) goesOn(t *testing.T, d time.Duration) (rung []int) {
	t.Helper()
	for tenth := 1; tenth <= int(d/(100*time.Millisecond)); tenth++ {
		s.pass(100 * time.Millisecond)
		for _, sl := range s.slices {
			rings := s.exchange(t, sl, Exchange{Lease: 1}).Rings
			if tenth%20 == 0 {
				r, err := s.Renew(t.Context(), sl)
				if err != nil {
					t.Fatal(err)
				}
				rings = append(rings, r.Rings...)
			}
			for range rings {
				rung = append(rung, tenth)
			}
		}
	}
	return rung
}

// ends closes the last slice and answers how often the job is rung for its place.
func (s *spreading) ends(t *testing.T) int {
	t.Helper()
	sl := s.slices[len(s.slices)-1]
	s.slices = s.slices[:len(s.slices)-1]
	rings, err := s.End(t.Context(), sl, NoRest)
	if err != nil {
		t.Fatal(err)
	}
	return len(rings)
}

// As long as workers answer, each that joins calls two others; a job that nobody answers rings less
// and less, down to once in ten seconds, and is impatient again with the first answer.
func TestRingsForMore(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		s := spread(t, f, 2000)
		for i := range 4 {
			if n := s.joins(t); n != 2 {
				t.Errorf("slice %d rings for %d others", i, n)
			}
		}
		alone := []int{1, 3, 7, 15, 31, 63, 127, 227, 327}
		if d := cmp.Diff(alone, s.goesOn(t, 35*time.Second)); d != "" {
			t.Errorf("tenths of a second when it rang (-want +got):\n%s", d)
		}
		// A worker has started: it takes the next ring.
		if n := s.joins(t); n != 2 {
			t.Errorf("a fifth slice rings for %d others", n)
		}
		if d := cmp.Diff(alone[:4], s.goesOn(t, 2*time.Second)); d != "" {
			t.Errorf("tenths of a second when it rang then (-want +got):\n%s", d)
		}
	})
}

// A slice that takes the place of one that ended finds no more idle workers than there were: it rings
// for nobody, and the job is as patient as before.
func TestPlaceIsRungForOnce(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		s := spread(t, f, 2000)
		for range 4 {
			s.joins(t)
		}
		s.goesOn(t, 15*time.Second)
		for i := range 3 {
			if n := s.ends(t); n != 1 {
				t.Errorf("the end of a slice rings %d times", n)
			}
			if n := s.joins(t); n != 0 {
				t.Errorf("replacement %d rings for %d others", i, n)
			}
		}
		retiring := s.slices[3]
		if n := len(s.exchange(t, retiring, Exchange{Retire: true}).Rings); n != 1 {
			t.Errorf("a slice that retires rings %d times", n)
		}
		s.slices = s.slices[:3]
		if n := s.joins(t); n != 0 {
			t.Errorf("it rings for %d others", n)
		}
		if rung := s.goesOn(t, 5*time.Second); len(rung) > 1 {
			t.Errorf("it has become impatient: %v", rung)
		}
		// Two are lost, as with a machine: the next ring says how many there are now.
		s.ends(t)
		s.ends(t)
		s.goesOn(t, 11*time.Second)
		for range 2 {
			if n := s.joins(t); n != 2 {
				t.Errorf("a slice more rings for %d others", n)
			}
		}
	})
}

// A job that nobody answered for long, and that could use one slice only when its next began, is as impatient as a
// new one when its frontier grows again.
func TestPatienceEndsWithTheLastSlice(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		s := spread(t, f, 300)
		s.joins(t)
		s.goesOn(t, 25*time.Second)
		for queued := int64(300); queued > 40; {
			out := s.exchange(t, s.slices[0], Exchange{Lease: 32})
			queued = out.Queued
			var x Exchange
			for _, it := range out.Items {
				x.Commits = append(x.Commits, accept(t, it))
			}
			if len(x.Commits) > 0 {
				s.exchange(t, s.slices[0], x)
			}
		}
		s.ends(t)
		if n := s.joins(t); n != 0 {
			t.Errorf("a job with few URLs rings for %d others", n)
		}
		s.rdb.HSet(t.Context(), jobKey(s.job), "max_pages", 100_000)
		c := accept(t, s.exchange(t, s.slices[0], Exchange{Lease: 1}).Items[0])
		for i := range 2000 {
			u, err := crawl.ParseURL(fmt.Sprintf("http://h.test/more/%d", i))
			if err != nil {
				t.Fatal(err)
			}
			c.Accepted.Links = append(c.Accepted.Links, crawl.Link{URL: u, Key: u.Key()})
		}
		s.exchange(t, s.slices[0], Exchange{Commits: []Commit{c}})
		if d := cmp.Diff([]int{1, 3, 7, 15}, s.goesOn(t, 2*time.Second)); d != "" {
			t.Errorf("tenths of a second when it rings (-want +got):\n%s", d)
		}
	})
}

// The first slice of a job that has none rings for others whatever was before; a small job for
// nobody at all.
func TestFirstSliceRings(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		s := spread(t, f, 2000)
		for range 3 {
			s.joins(t)
		}
		s.goesOn(t, 3*time.Second)
		for range 3 {
			s.ends(t)
		}
		if n := s.joins(t); n != 2 {
			t.Errorf("rings for %d others", n)
		}
		two := spread(t, f, 100)
		if n := two.joins(t); n != 1 {
			t.Errorf("a job that can use two slices rings for %d others", n)
		}
		small := spread(t, f, 64)
		if n := small.joins(t); n != 0 {
			t.Errorf("a small job rings for %d others", n)
		}
		if rung := small.goesOn(t, 3*time.Second); len(rung) > 0 {
			t.Errorf("a small job rings at %v", rung)
		}
	})
}
