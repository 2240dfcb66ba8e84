package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// heal sweeps the tenant of the test alone: others have clocks of their own.
func (f *fixture) heal(t *testing.T) Swept {
	t.Helper()
	s, err := f.sweep(t.Context(), []string{f.tenant})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A job whose ring was lost, or refused by the queue, is rung again, with growing
// patience while nobody takes the ring (promise 4).
func TestLostRing(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		f.create(t, n)
		if err := f.RingFailed(t.Context(), n.Job, "The queue refused the job; it is tried again."); err != nil {
			t.Fatal(err)
		}
		if j := f.read(t, n.Job); j.WaitingFor != "dispatch" || j.Error == "" {
			t.Errorf("waits for %q: %q", j.WaitingFor, j.Error)
		}
		first, last := map[int64]int{}, 1 // when a number came first; when a ring came last
		for second := 1; second <= 130; second++ {
			f.pass(time.Second)
			s := f.heal(t)
			for _, r := range s.Rings {
				if _, ok := first[r.N]; !ok {
					first[r.N] = second
				}
				if second-last > 5 {
					t.Errorf("no ring from second %d to %d", last, second)
				}
				last = second
			}
		}
		// The same number is made again and again: the queue knows it if it has it.
		if d := cmp.Diff(map[int64]int{1: 1, 2: 16, 3: 46, 4: 106}, first); d != "" {
			t.Errorf("when each number came first (-want +got):\n%s", d)
		}
		f.begin(t, n.Job)
		if j := f.read(t, n.Job); j.WaitingFor != "" || j.Error != "" {
			t.Errorf("running, and waits for %q: %q", j.WaitingFor, j.Error)
		}
	})
}

// A killed worker's URLs are back within its lease and one sweep, and the job is rung
// at once; a page that takes its worker with it each time is given up (promise 5).
func TestKilledWorker(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 2)
		f.create(t, n)
		for life := 1; life <= MaxLost; life++ {
			sl := f.begin(t, n.Job)
			out := f.exchange(t, sl, Exchange{Lease: 2})
			if len(out.Items) != 2 || out.Items[0].Attempt != life-1 {
				t.Fatalf("life %d leased %+v", life, out.Items)
			}
			f.pass(LeaseTime - time.Millisecond)
			if s := f.heal(t); len(s.Rings) != 0 {
				t.Errorf("swept before the lease was over: %+v", s)
			}
			f.pass(time.Millisecond)
			s := f.heal(t)
			if life < MaxLost && len(s.Rings) != 1 {
				t.Errorf("life %d: %d rings after the death of the slice", life, len(s.Rings))
			}
			if want := map[bool]int64{true: 2}[life == MaxLost]; s.Lost != want {
				t.Errorf("life %d: %d pages given up, want %d", life, s.Lost, want)
			}
		}
		j := f.read(t, n.Job)
		if j.State != crawl.CompletedWithErrors || j.FailedByType[crawl.CodeWorkerLost] != 2 {
			t.Errorf("ended as %+v", j)
		}
		p, err := f.Failures(t.Context(), n.Job, 0, 10)
		if err != nil || len(p.Failures) != 2 {
			t.Fatalf("failures %+v, %v", p, err)
		}
		if x := p.Failures[0]; x.SourceURL != "http://site.test/0" || x.Attempts != MaxLost || !x.At.Equal(f.at()) {
			t.Errorf("failure %+v", x)
		}
	})
}

// A cancel that its slices do not answer is carried out by the sweep, without the
// API that took it (promise 6).
func TestUnansweredCancel(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 5)
		f.create(t, n)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 2}).Items
		r, err := f.Cancel(t.Context(), n.Job)
		if err != nil || r.State != crawl.Cancelling || r.GraceLeft != Grace {
			t.Fatalf("cancel answered %+v, %v", r, err)
		}
		if j := f.read(t, n.Job); j.Cancelled != 3 || j.Active != 2 || j.Queued != 0 {
			t.Errorf("cancelling: %+v", j)
		}
		f.pass(Grace - time.Millisecond)
		f.heal(t)
		if j := f.read(t, n.Job); j.State != crawl.Cancelling {
			t.Errorf("%s before the grace was over", j.State)
		}
		f.pass(time.Millisecond)
		f.heal(t)
		j := f.read(t, n.Job)
		if j.State != crawl.Cancelled || j.Cancelled != 5 || j.StopReason != crawl.StopCancelled {
			t.Errorf("after the grace: %+v", j)
		}
		if out := f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, items[0])}, Lease: 1}); out.Lost ||
			out.State != crawl.Cancelled || out.Committed[0].Verdict != Stale {
			t.Errorf("a late slice: %+v", out)
		}
		if d := cmp.Diff(j, f.read(t, n.Job)); d != "" {
			t.Errorf("the record of an ended job changed:\n%s", d)
		}
	})
}

// A time limit winds a job down like a cancel and says so.
func TestTimeLimit(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 3)
		n.Plan.TimeLimit = time.Minute
		f.create(t, n)
		f.pass(time.Hour) // waiting does not count
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 1}).Items
		for range 10 {
			f.pass(6 * time.Second)
			if _, err := f.Renew(t.Context(), sl); err != nil {
				t.Fatal(err)
			}
			f.heal(t)
		}
		if r, err := f.Renew(t.Context(), sl); err != nil || r.State != crawl.Cancelling {
			t.Fatalf("renewed: %+v, %v", r, err)
		}
		f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, items[0])}})
		j := f.read(t, n.Job)
		if j.State != crawl.Cancelled || j.StopReason != crawl.StopTimeLimit || j.Accepted != 1 || j.Cancelled != 2 {
			t.Errorf("ended as %+v", j)
		}
	})
}

// A big job is served by several slices; a small one by one, however often it rings.
func TestSlicesOfAJob(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1000)
		n.Plan.Concurrency = 16 // four slices
		f.create(t, n)
		var slices []*Slice
		first, rings, err := f.Begin(t.Context(), crawl.Ring{JobRef: n.Job})
		if err != nil || first == nil || len(rings) != 2 {
			t.Fatalf("first slice %v rings %v, %v", first, rings, err)
		}
		slices = append(slices, first)
		for range 3 {
			slices = append(slices, f.begin(t, n.Job))
		}
		if sl, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: n.Job}); sl != nil || err != nil {
			t.Errorf("a fifth slice: %v, %v", sl, err)
		}
		for i, sl := range slices {
			if out := f.exchange(t, sl, Exchange{Lease: 16}); len(out.Items) != 4 {
				t.Errorf("slice %d leased %d, its fair part is 4", i, len(out.Items))
			}
		}
		if j := f.read(t, n.Job); j.Active != 16 {
			t.Errorf("%d active", j.Active)
		}
	})
}

// A job that rests is not rung before its time, not by a sweep either, and says why.
func TestRest(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 3)
		f.create(t, n)
		sl := f.begin(t, n.Job)
		f.exchange(t, sl, Exchange{Lease: 1})
		if rings, err := f.End(t.Context(), sl, 20*time.Second); err != nil || len(rings) != 0 {
			t.Errorf("rung at the end: %v, %v", rings, err)
		}
		if j := f.read(t, n.Job); j.WaitingFor != "host_delay" {
			t.Errorf("waits for %q", j.WaitingFor)
		}
		if sl, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: n.Job}); sl != nil || err != nil {
			t.Errorf("a late ring began slice %v, %v", sl, err)
		}
		for range 19 {
			f.pass(time.Second)
			if s := f.heal(t); len(s.Rings) != 0 {
				t.Fatalf("rung too early: %v", s.Rings)
			}
		}
		f.pass(time.Second)
		if s := f.heal(t); len(s.Rings) != 1 {
			t.Errorf("not rung after the rest: %v", s.Rings)
		}
		f.begin(t, n.Job)
		if j := f.read(t, n.Job); j.WaitingFor != "" {
			t.Errorf("running, and waits for %q", j.WaitingFor)
		}
	})
}
