package check

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawl"
)

// An honest service passes, and of each lie something is told.
func TestLies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lie  string
		want string // what is told, or none
	}{
		{"", ""},
		{"a count is off by one", "counts do not add up"},
		{"processed is off by one", "processed does not add up"},
		{"a count falls", "accepted fell"},
		{"the end changes", "an ended job changed"},
		{"an ended job runs again", "an ended job changed"},
		{"it ends with work left", "ended with work left"},
		{"it ends for no reason", "no stop_reason"},
		{"started_at changes", "started_at changed"},
		{"no way between states", "no way between states"},
		{"an accepted job is not found", "an accepted job cannot be read"},
		{"it never ends", "never ends"},
		{"a URL is in two outcomes", "double "},
		{"a page is recorded twice", "double "},
		{"a page ends recorded twice", "double "},
		{"a record is missing", "lists and counts differ"},
		{"a cursor gives another page", "a cursor gives another page"},
		{"an item is missing", "an accepted page is not in its collection"},
		{"an item is there twice", "an item is in a collection twice"},
		{"an item is of no job", "a collection has what no job found"},
		{"one id for all", "one id for two jobs"},
		{"a retry of other pages", "a retry of other pages"},
		{"a page is lost", "lost "},
		{"a new key is a replay", "a new key is replayed"},
		{"a key takes another input", "a key takes another input"},
		{"a key gives another job", "a key names another job"},
		{"a key is refused", "a key that was answered is refused"},
		{"a replay is not told", "a replay is not told"},
		{"Redis has lost a job", "an accepted job is gone from Redis"},
		{"Redis has other counts", "HTTP and Redis differ"},
	} {
		t.Run(tt.lie, func(t *testing.T) {
			t.Parallel()
			l, _, list, site := fakeLoad(t, tt.lie)
			l.submit(t.Context(), list)
			l.submit(t.Context(), site)
			l.reuse(t.Context(), list)
			limit, ends := time.Minute, true
			switch tt.lie {
			case "it never ends", "an accepted job is not found", "an ended job runs again":
				limit, ends = time.Second, false
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			// A retry needs a job that has ended.
			for n := 0; !list.ended() && (ends || n < len(list.inputs)); n++ {
				l.read(t.Context(), list)
			}
			l.walk(t.Context(), list, 2, 0)
			if f := l.retry(rand.New(rand.NewPCG(1, 1))); f != nil && tt.lie != "one id for all" {
				f(t.Context())
			}
			r := l.Finish(ctx)
			told := false
			for _, v := range r.Violations {
				told = told || strings.HasPrefix(v, tt.want)
			}
			switch {
			case tt.want == "" && r.Violated > 0, tt.want != "" && !told:
				t.Errorf("told %q, want %q", r.Violations, tt.want)
			case tt.want == "double " && r.Double == 0, tt.want == "lost " && r.Lost == 0:
				t.Errorf("%d double and %d lost", r.Double, r.Lost)
			case tt.want == "" && (r.Jobs != 3 || r.Pages == 0 || r.Records == 0 || r.Items == 0 || r.StatusReads == 0 ||
				r.Submissions != 3 || r.Replays != 3 || r.JobsByState["completed_with_errors"] != 3):
				t.Errorf("%+v", r)
			}
		})
	}
}

// What a read shows against the one before it.
func TestObserver(t *testing.T) {
	t.Parallel()
	const wayless = "no way between states"
	running := func(f func(*status)) *status {
		s := &status{State: crawl.Running, Total: 10, Queued: 8, Active: 2, CreatedAt: "c", StartedAt: "s"}
		if f != nil {
			f(s)
		}
		return s
	}
	paused := func(active int64) *status {
		return running(func(s *status) { s.State, s.Active, s.Queued = crawl.Paused, active, 10-active })
	}
	for _, tt := range []struct {
		name         string
		first, then  *status
		began, epoch int64
		want         string
	}{
		{"nothing changes", running(nil), running(nil), 0, 0, ""},
		{"paused, and less in flight", paused(2), paused(1), 0, 0, ""},
		{"paused, and more in flight", paused(1), paused(2), 0, 0, "a paused job leases"},
		{"the same, resumed between", paused(1), paused(2), 1, 1, ""},
		{"the same, resumed meanwhile", paused(1), paused(2), 0, 1, ""},
		{"paused and cancelled", paused(0), running(func(s *status) { s.State = crawl.Cancelling }), 0, 0, ""},
		{"cancelling goes on", running(func(s *status) { s.State = crawl.Cancelling }), running(nil), 0, 0, wayless},
		{"no such state", running(nil), running(func(s *status) { s.State = "idle" }), 0, 0, wayless},
		{"total fell", running(nil), running(func(s *status) { s.Total, s.Queued = 9, 7 }), 0, 0, "total fell"},
		{"created_at changed", running(nil), running(func(s *status) { s.CreatedAt = "d" }), 0, 0, "created_at changed"},
		{"retry_of changed", running(nil), running(func(s *status) { s.RetryOf = "d" }), 0, 0, "retry_of changed"},
		{"ended at no time", running(nil), running(func(s *status) {
			s.State, s.StopReason, s.Queued, s.Active, s.Cancelled = crawl.Cancelled, crawl.StopCancelled, 0, 0, 10
		}), 0, 0, "no ended_at"},
		{"completed with errors without any", running(nil), running(func(s *status) {
			s.State, s.StopReason, s.EndedAt = crawl.CompletedWithErrors, crawl.StopFrontierEmpty, "e"
			s.Queued, s.Active, s.Accepted, s.Processed = 0, 0, 10, 10
		}), 0, 0, "wrong end"},
		{"completed with some cancelled", running(nil), running(func(s *status) {
			s.State, s.StopReason, s.EndedAt = crawl.Completed, crawl.StopFrontierEmpty, "e"
			s.Queued, s.Active, s.Accepted, s.Processed, s.Cancelled = 0, 0, 9, 9, 1
		}), 0, 0, "completed and not processed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var o observer
			if found := o.see(tt.first, 0, 0); len(found) > 0 {
				t.Errorf("at once %+v", found)
			}
			found := o.see(tt.then, tt.began, tt.epoch)
			if tt.want == "" && len(found) > 0 || tt.want != "" && (len(found) == 0 || found[len(found)-1].what != tt.want) {
				t.Errorf("%+v, want %q", found, tt.want)
			}
		})
	}
}

// A cancel above its bound is a violation while all is quiet, and is only told under faults.
func TestSlowCancel(t *testing.T) {
	t.Parallel()
	for _, quiet := range []bool{true, false} {
		l, _, list, _ := fakeLoad(t, "")
		l.tookToCancel(list, 3*time.Second, quiet)
		if n := l.fill(Report{}).Violated; n != 0 {
			t.Errorf("quiet %v: %d violations for 3 s", quiet, n)
		}
		l.tookToCancel(list, cancelBound+slack+time.Millisecond, quiet)
		r := l.fill(Report{})
		if (r.Violated == 1) != quiet || quiet && r.LongestCancel < 7 || !quiet && r.LongestCancelFaulty < 7 {
			t.Errorf("quiet %v: %+v", quiet, r)
		}
	}
}

// The cancel of a job is measured until Redis shows its end.
func TestCancelIsMeasured(t *testing.T) {
	t.Parallel()
	l, _, list, _ := fakeLoad(t, "")
	l.submit(t.Context(), list)
	l.cancel(t.Context(), list)
	r := l.Finish(t.Context())
	if r.Cancels != 1 || r.LongestCancel <= 0 || r.Violated != 0 || r.JobsByState["cancelled"] != 1 ||
		r.Effective[KindCancel] != 1 {
		t.Errorf("%+v", r)
	}
}

// A cancel that waits for a quiet moment is measured in it.
func TestCancelQuietly(t *testing.T) {
	t.Parallel()
	l, _, list, _ := fakeLoad(t, "")
	var asked atomic.Int64
	l.o.Quiet = func() bool { return asked.Add(1) > 3 }
	l.submit(t.Context(), list)
	l.cancelQuietly(t.Context(), list)
	if r := l.Finish(t.Context()); r.Cancels != 1 || r.CancelsUnderFaults != 0 || r.Violated != 0 {
		t.Errorf("%+v", r)
	}
}

// A job that is cancelled although nobody asked is told.
func TestCancelledByNobody(t *testing.T) {
	t.Parallel()
	l, _, list, _ := fakeLoad(t, "")
	l.submit(t.Context(), list)
	l.cancel(t.Context(), list)
	list.change(func() { list.cancelled = false })
	if r := l.Finish(t.Context()); len(r.Violations) != 1 || !strings.HasPrefix(r.Violations[0], "cancelled by nobody") {
		t.Errorf("%q", r.Violations)
	}
}

// What Do cannot do now, it does not do.
func TestDoWithoutJobs(t *testing.T) {
	t.Parallel()
	l, _, list, _ := fakeLoad(t, "")
	rng := rand.New(rand.NewPCG(1, 1))
	for _, kind := range append([]string{"nothing"}, Kinds...) {
		if l.Do(kind, rng) {
			t.Errorf("%s was done", kind)
		}
	}
	l.submit(t.Context(), list)
	if l.Do(KindResubmit, rng) {
		t.Error("Do calls although Run is not at work")
	}
}

// What a killed worker left as a try is worker_lost only after enough kills.
func TestWorkerLost(t *testing.T) {
	t.Parallel()
	for kills, want := range map[int64]int{0: 1, 4: 1, 5: 0} {
		l, _, list, _ := fakeLoad(t, "")
		l.o.Kills = func() int64 { return kills }
		l.judgeLostWorker(list, lostPage(5))
		if n := l.fill(Report{}).Violated; n != want {
			t.Errorf("%d kills: %d violations, want %d", kills, n, want)
		}
	}
	l, _, list, _ := fakeLoad(t, "")
	l.o.Kills = nil
	l.judgeLostWorker(list, lostPage(4))
	if n := l.fill(Report{}).Violated; n != 1 {
		t.Errorf("after four tries: %d violations", n)
	}
}

// The time that is waited is the one that was asked for, and ends with the context.
func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begun := time.Now()
		if !wait(ctx, time.Second) || time.Since(begun) != time.Second {
			t.Errorf("waited %v of a second", time.Since(begun))
		}
		if wait(ctx, time.Minute) || time.Since(begun) != 2*time.Second {
			t.Errorf("waited %v of two seconds", time.Since(begun))
		}
	})
}
