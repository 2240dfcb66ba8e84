package check

import (
	"fmt"

	"example.com/trawl/pkg/crawl"
)

// finding is a promise that a read showed to be broken.
type finding struct{ what, text string }

// observer compares the reads of one job by one way, which come one behind the other.
type observer struct {
	last  *status
	epoch int64 // of the job, before last was read
}

// see judges a read against all before it. The epoch of a job changes before and behind each call
// that may resume it: began is as it was before the read, and now as it is.
func (o *observer) see(s *status, began, now int64) []finding {
	var out []finding
	add := func(what, format string, args ...any) { out = append(out, finding{what, fmt.Sprintf(format, args...)}) }
	sum := s.Queued + s.Active + s.Deferred + s.Accepted + s.Failed + s.Skipped + s.Cancelled
	if s.Total != sum {
		add("counts do not add up", "total is %d, its parts are %d: %s", s.Total, sum, s.counts())
	}
	if done := s.Accepted + s.Failed + s.Skipped; s.Processed != done {
		add("processed does not add up", "processed is %d, its parts are %d", s.Processed, done)
	}
	if !s.State.Valid() {
		add("no state", "state is %q", s.State)
	}
	if s.State.Terminal() {
		out = append(out, endOf(s)...)
	}
	if p := o.last; p != nil {
		out = append(out, between(p, s)...)
		if p.State == crawl.Paused && s.State == crawl.Paused && o.epoch == now && s.Active > p.Active {
			add("a paused job leases", "active went from %d to %d while it was paused", p.Active, s.Active)
		}
	}
	o.last, o.epoch = s, began
	return out
}

// endOf judges a read of an ended job by itself.
func endOf(s *status) []finding {
	var out []finding
	if s.StopReason == "" {
		out = append(out, finding{"no stop_reason", "it ended as " + string(s.State) + " for no reason"})
	}
	if s.EndedAt == "" {
		out = append(out, finding{"no ended_at", "it ended as " + string(s.State) + " at no time"})
	}
	if left := s.Queued + s.Active + s.Deferred; left != 0 {
		out = append(out, finding{"ended with work left", fmt.Sprintf("%s with %s", s.State, s.counts())})
	}
	if s.State == crawl.Completed || s.State == crawl.CompletedWithErrors {
		if s.Processed != s.Total {
			out = append(out, finding{"completed and not processed", s.counts()})
		}
		if failed := s.Failed > 0; failed != (s.State == crawl.CompletedWithErrors) {
			out = append(out, finding{"wrong end", fmt.Sprintf("%s with %d failed", s.State, s.Failed)})
		}
	}
	return out
}

// between judges what changed from one read to a later one.
func between(p, s *status) []finding {
	var out []finding
	if p.State.Terminal() {
		if s.raw != p.raw {
			out = append(out, finding{"an ended job changed", fmt.Sprintf("from %.900s to %.900s", p.raw, s.raw)})
		}
		return out
	}
	if !reachable(p.State, s.State) {
		out = append(out, finding{"no way between states", fmt.Sprintf("%s became %s", p.State, s.State)})
	}
	for _, c := range []struct {
		name     string
		was, now int64
	}{
		{"total", p.Total, s.Total},
		{"processed", p.Processed, s.Processed},
		{"accepted", p.Accepted, s.Accepted},
		{"failed", p.Failed, s.Failed},
		{"skipped", p.Skipped, s.Skipped},
		{"cancelled", p.Cancelled, s.Cancelled},
		{"records", p.Records, s.Records},
	} {
		if c.now < c.was {
			out = append(out, finding{c.name + " fell", fmt.Sprintf("from %d to %d", c.was, c.now)})
		}
	}
	if s.CreatedAt != p.CreatedAt {
		out = append(out, finding{"created_at changed", fmt.Sprintf("from %s to %s", p.CreatedAt, s.CreatedAt)})
	}
	if p.StartedAt != "" && s.StartedAt != p.StartedAt {
		out = append(out, finding{"started_at changed", fmt.Sprintf("from %s to %s", p.StartedAt, s.StartedAt)})
	}
	if s.RetryOf != p.RetryOf {
		out = append(out, finding{"retry_of changed", fmt.Sprintf("from %q to %q", p.RetryOf, s.RetryOf)})
	}
	return out
}

func (s *status) counts() string {
	return fmt.Sprintf("total %d, queued %d, active %d, deferred %d, accepted %d, failed %d, skipped %d, cancelled %d",
		s.Total, s.Queued, s.Active, s.Deferred, s.Accepted, s.Failed, s.Skipped, s.Cancelled)
}

// reachable reports whether a job can get from one state to another in any number of steps.
func reachable(from, to crawl.State) bool {
	seen := map[crawl.State]bool{from: true}
	for todo := []crawl.State{from}; len(todo) > 0; todo = todo[1:] {
		if todo[0] == to {
			return true
		}
		for _, next := range crawl.States {
			if todo[0].CanBecome(next) && !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return false
}
