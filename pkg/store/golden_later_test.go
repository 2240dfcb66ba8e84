package store

import (
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
)

// laterSteps are what the store does since the golden files v1 were written.
var laterSteps = []func(t *testing.T, s *scene){goldenPaused, goldenRetry}

// goldenPaused is a job that was paused, with pages in flight.
func goldenPaused(t *testing.T, s *scene) {
	j := s.job(t, "", 4)
	j.Plan.TimeLimit = time.Hour
	s.running = 5 // those of the steps before have all the places
	j = s.submit(t, "paused", j)
	sl := s.begin(t, j.Job)
	s.exchange(t, sl, Exchange{Lease: 2})
	if _, _, err := s.Pause(t.Context(), j.Job); err != nil {
		t.Fatal(err)
	}
	s.running = 4
}

// goldenRetry tries the failed pages of another job again.
func goldenRetry(t *testing.T, s *scene) {
	j := s.job(t, "", 1)
	j.RetryOf = s.jobs["ended"].Job.ID
	s.running = 5
	s.finish(t, s.submit(t, "retry", j).Job)
	s.running = 4
}

// resumePaused resumes what was paused, and answers whom to ring.
func (g *golden) resumePaused(t *testing.T) (rings []crawl.Ring) {
	t.Helper()
	for name, ref := range g.jobs {
		if name == "gone" || g.read(t, ref).State != crawl.Paused {
			continue
		}
		_, more, err := g.Resume(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		rings = append(rings, more...)
	}
	return rings
}
