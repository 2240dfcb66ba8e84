package store

import (
	"fmt"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
)

// dayMS is a day in ms.
const dayMS = int64(24 * time.Hour / time.Millisecond)

// The pages of a day are counted where they are settled, each once and whatever became of
// them, and a limit that is set later finds them counted.
func TestDayCountsWhatIsSettled(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 9)
		n.Plan.Concurrency = 9
		f.create(t, n)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 9}).Items
		noindex, alias := accept(t, items[1]), accept(t, items[2])
		noindex.NoIndex = true
		alias.Accepted.Final = accept(t, items[0]).Accepted.Final
		x := Exchange{Commits: []Commit{
			accept(t, items[0]), noindex, alias,
			{Item: items[3], Failed: &crawl.Failure{ErrorType: "http_404"}},
			{Item: items[4], Skipped: crawl.SkipRobots},
			{Item: items[5], Retry: time.Hour},
			{Item: items[6], Redirect: &Redirect{URL: "http://other.test/", Hops: 1}},
		}}
		f.exchange(t, sl, x)
		f.exchange(t, sl, x) // again, as after a lost answer
		if _, err := f.Cancel(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
		f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, items[7])}}) // within the grace
		f.pass(Grace)
		f.heal(t)
		if j := f.read(t, n.Job); j.Processed != 6 || j.Cancelled != 3 {
			t.Fatalf("ended as %+v", j)
		}
		late := f.job(t, "", 1)
		for limit, want := range map[int64]crawl.Code{6: crawl.CodeQuotaExceeded, 5: crawl.CodeQuotaExceeded, 7: ""} {
			f.setQuota(t, crawl.Quota{PagesPerDay: limit})
			if _, err := f.Create(t.Context(), late); want == "" && err != nil || want != "" && crawl.CodeOf(err) != want {
				t.Errorf("with a limit of %d: %v, want %q", limit, err, want)
			}
			if want == "" {
				if _, err := f.Cancel(t.Context(), late.Job); err != nil {
					t.Fatal(err)
				}
				late = f.job(t, "", 1)
			}
		}
	})
}

// A page whose workers were lost is failed, and counts.
func TestDayCountsLostWorkers(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.setQuota(t, crawl.Quota{PagesPerDay: 1})
		n := f.job(t, "", 2)
		n.Plan.Concurrency = 1
		f.create(t, n)
		for range MaxLost {
			sl := f.begin(t, n.Job)
			if out := f.exchange(t, sl, Exchange{Lease: 1}); len(out.Items) != 1 {
				t.Fatalf("leased %+v", out)
			}
			f.pass(LeaseTime)
			f.heal(t)
		}
		if sl, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: n.Job}); sl != nil || err != nil {
			t.Errorf("began %+v, %v", sl, err)
		}
		if j := f.read(t, n.Job); j.Failed != 1 || j.Queued != 1 || j.WaitingFor != crawl.WaitingTenantQuota {
			t.Errorf("the job is %+v", j)
		}
	})
}

// Jobs of one tenant share its day: never more is settled, the rest waits for midnight
// without a slice, and goes on by itself.
func TestPagesPerDay(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		q := crawl.Quota{MaxRunning: 2, PagesPerDay: 10}
		a, _ := f.sends(t, "a", 8, q)
		b, _ := f.sends(t, "b", 8, q)
		sa, sb := f.begin(t, a.Job), f.begin(t, b.Job)
		first := f.exchange(t, sa, Exchange{Lease: 4}).Items
		f.exchange(t, sb, Exchange{Lease: 4})
		// What is leased is reserved: of ten pages two are left.
		f.exchange(t, sa, Exchange{Returns: []Return{{Item: first[3], Delay: time.Hour}}})
		var x Exchange
		for _, it := range first[:3] {
			x.Commits = append(x.Commits, accept(t, it))
		}
		f.exchange(t, sa, x)
		if out := f.exchange(t, sa, Exchange{Lease: 4}); len(out.Items) != 3 {
			t.Fatalf("leased %d, want the 3 that are left", len(out.Items))
		}
		// While those in flight have all that is left, the job rests for a moment only.
		if out := f.exchange(t, sa, Exchange{Lease: 1, Holding: 3}); len(out.Items) != 0 || out.Queued != 0 || out.NextDue >= 0 {
			t.Fatalf("beyond the limit: %+v", out)
		}
		if _, err := f.End(t.Context(), sa, NoRest); err != nil { // gives the three back
			t.Fatal(err)
		}
		if j := f.read(t, a.Job); j.WaitingFor != crawl.WaitingTenantQuota || j.Position != 0 || j.Queued != 4 {
			t.Errorf("between two looks the job is %+v", j)
		}
		f.pass(PeekTime)
		if s := f.heal(t); len(s.Rings) != 1 || s.Rings[0].JobRef != a.Job {
			t.Fatalf("rung %+v", s.Rings)
		}
		sa = f.begin(t, a.Job)
		for _, sl := range []*Slice{sa, sb} {
			f.workOff(t, sl)
		}
		// The first rests for a moment again, since the other had pages in flight.
		f.pass(PeekTime)
		for _, r := range f.heal(t).Rings {
			if sl, _, err := f.Begin(t.Context(), r); sl != nil || err != nil {
				t.Fatalf("with the day used up a slice begins: %+v, %v", sl, err)
			}
		}
		ja, jb := f.read(t, a.Job), f.read(t, b.Job)
		if ja.Processed+jb.Processed != 10 {
			t.Fatalf("%d and %d pages, want ten together", ja.Processed, jb.Processed)
		}
		for _, j := range []crawl.Job{ja, jb} {
			if j.State == crawl.Running && (j.WaitingFor != crawl.WaitingTenantQuota || j.Position != 0) {
				t.Errorf("with the day used up the job is %+v", j)
			}
		}
		f.untilMidnight(t, time.Millisecond)
		if s := f.heal(t); len(s.Rings) != 0 {
			t.Errorf("rung before midnight: %v", s.Rings)
		}
		f.pass(time.Millisecond)
		rung := map[crawl.JobRef]bool{}
		for _, r := range f.heal(t).Rings {
			rung[r.JobRef] = true
		}
		for _, n := range []NewJob{a, b} {
			if left := f.read(t, n.Job).State == crawl.Running; left != rung[n.Job] {
				t.Errorf("job %s is left: %v, rung at midnight: %v", n.IdempotencyKey, left, rung[n.Job])
			} else if left {
				f.finish(t, n.Job)
			}
		}
		if ja, jb := f.read(t, a.Job), f.read(t, b.Job); ja.Processed+jb.Processed != 16 {
			t.Errorf("the day after: %d and %d pages", ja.Processed, jb.Processed)
		}
		counts, err := f.rdb.Keys(t.Context(), rootKey(f.tenant)+":day:*").Result()
		if err != nil || len(counts) != 1 {
			t.Errorf("counted in %v, %v, want one day only", counts, err)
		}
	})
}

// A clock that goes back over midnight, as after a failover, leaves nothing behind and
// takes nothing of what was counted of the later day.
func TestDayOfAClockThatGoesBack(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 4)
		f.create(t, n)
		f.untilMidnight(t, 0)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 4}).Items
		today := f.at().UnixMilli() / dayMS
		for i, step := range []time.Duration{0, -time.Second, time.Second} {
			f.pass(step)
			f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, items[i])}})
		}
		key := func(day int64) string { return fmt.Sprintf("%s:day:%d", rootKey(f.tenant), day) }
		if n := f.rdb.Get(t.Context(), key(today)).Val(); n != "2" {
			t.Errorf("%s pages today, want 2", n)
		}
		if ttl := f.rdb.PTTL(t.Context(), key(today-1)).Val(); ttl <= 0 {
			t.Errorf("yesterday's count lives for %v", ttl)
		}
	})
}

// untilMidnight passes the time up to so much before midnight, as if workers renewed.
func (f *fixture) untilMidnight(t *testing.T, before time.Duration) {
	t.Helper()
	f.pass(time.Duration(dayMS-f.at().UnixMilli()%dayMS)*time.Millisecond - before)
}

// workOff leases and accepts until nothing is given any more, and ends the slice.
func (f *fixture) workOff(t *testing.T, sl *Slice) {
	t.Helper()
	for {
		out := f.exchange(t, sl, Exchange{Lease: 10})
		if len(out.Items) == 0 {
			break
		}
		var x Exchange
		for _, it := range out.Items {
			x.Commits = append(x.Commits, accept(t, it))
		}
		f.exchange(t, sl, x)
	}
	if _, err := f.End(t.Context(), sl, NoRest); err != nil {
		t.Fatal(err)
	}
}

// usedUp is a job of six pages of whose tenant the day has had two, which was all; it
// rests. Its time limit is a week, since it may wait for days.
func (f *fixture) usedUp(t *testing.T) crawl.JobRef {
	t.Helper()
	n := f.job(t, "", 6)
	n.Quota = crawl.Quota{MaxRunning: 2}
	n.Plan.TimeLimit = 100 * time.Hour
	f.setQuota(t, crawl.Quota{PagesPerDay: 2})
	f.create(t, n)
	f.workOff(t, f.begin(t, n.Job))
	if j := f.read(t, n.Job); j.Processed != 2 || j.Queued != 4 || j.WaitingFor != crawl.WaitingTenantQuota || j.Position != 0 {
		t.Fatalf("with the day used up the job is %+v", j)
	}
	return n.Job
}

// A job that rests for the day goes on when its tenant is granted more, is cancelled and
// has its time limit as ever, and holds no slice meanwhile.
func TestRestForTheDay(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(t *testing.T, f *fixture, job crawl.JobRef){
		"no slice": func(t *testing.T, f *fixture, job crawl.JobRef) {
			for range 40 {
				f.pass(time.Minute)
				if s := f.heal(t); len(s.Rings) != 0 {
					t.Fatalf("rung %v", s.Rings)
				}
				if sl, rings, err := f.Begin(t.Context(), crawl.Ring{JobRef: job}); sl != nil || len(rings) > 0 || err != nil {
					t.Fatalf("a late ring begins %+v, %v", sl, err)
				}
			}
			f.untilMidnight(t, 0) // the looks have not made anybody forget it
			if s := f.heal(t); len(s.Rings) != 1 || s.Rings[0].JobRef != job {
				t.Errorf("rung at midnight: %v", s.Rings)
			}
		},
		"raised": func(t *testing.T, f *fixture, job crawl.JobRef) {
			if rings := f.setQuota(t, crawl.Quota{PagesPerDay: 1}); len(rings) != 0 {
				t.Errorf("lowered: %v", rings)
			}
			rings := f.setQuota(t, crawl.Quota{PagesPerDay: 5})
			if len(rings) != 1 || rings[0].JobRef != job {
				t.Fatalf("rung %v", rings)
			}
			if j := f.read(t, job); j.WaitingFor != crawl.WaitingWorker {
				t.Errorf("waits for %q", j.WaitingFor)
			}
			f.workOff(t, f.begin(t, job))
			if j := f.read(t, job); j.Processed != 5 || j.WaitingFor != crawl.WaitingTenantQuota {
				t.Errorf("granted three more: %+v", j)
			}
			if rings := f.setQuota(t, crawl.Quota{}); len(rings) != 1 {
				t.Errorf("without a limit: %v", rings)
			}
			f.finish(t, job)
			if j := f.read(t, job); j.State != crawl.Completed {
				t.Errorf("ended as %+v", j)
			}
		},
		"the ring of a raise is lost": func(t *testing.T, f *fixture, job crawl.JobRef) {
			f.setQuota(t, crawl.Quota{PagesPerDay: 5})
			f.pass(5 * time.Second)
			if s := f.heal(t); len(s.Rings) != 1 || s.Rings[0].JobRef != job {
				t.Errorf("rung %v", s.Rings)
			}
		},
		"cancelled": func(t *testing.T, f *fixture, job crawl.JobRef) {
			r, err := f.Cancel(t.Context(), job)
			if j := f.read(t, job); err != nil || r.State != crawl.Cancelled || j.Cancelled != 4 || j.WaitingFor != "" {
				t.Errorf("cancelled as %+v, %v", j, err)
			}
		},
		"time limit": func(t *testing.T, f *fixture, job crawl.JobRef) {
			f.setQuota(t, crawl.Quota{PagesPerDay: 1})
			f.pass(99 * time.Hour)
			f.heal(t)
			if j := f.read(t, job); j.State != crawl.Running {
				t.Fatalf("before its time limit: %+v", j)
			}
			f.pass(time.Hour)
			f.heal(t)
			if j := f.read(t, job); j.State != crawl.Cancelled || j.StopReason != crawl.StopTimeLimit {
				t.Errorf("ended as %+v", j)
			}
		},
		"the next job is not begun": func(t *testing.T, f *fixture, _ crawl.JobRef) {
			f.setQuota(t, crawl.Quota{PagesPerDay: 3})
			n, _ := f.sends(t, "next", 1, crawl.Quota{MaxRunning: 2})
			f.setQuota(t, crawl.Quota{PagesPerDay: 2})
			if sl, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: n.Job}); sl != nil || err != nil {
				t.Fatalf("began %+v, %v", sl, err)
			}
			if j := f.read(t, n.Job); j.State != crawl.Queued || j.WaitingFor != crawl.WaitingTenantQuota || j.Position != 0 {
				t.Errorf("the next job is %+v", j)
			}
			f.untilMidnight(t, 0)
			if s := f.heal(t); len(s.Rings) != 2 {
				t.Errorf("rung at midnight: %v", s.Rings)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, f *fixture) { after(t, f, f.usedUp(t)) })
		})
	}
}

// A page in flight over midnight counts for the day on which it is settled, and is held
// against what may be leased of it before.
func TestPageOverMidnight(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.setQuota(t, crawl.Quota{PagesPerDay: 3})
		n := f.job(t, "", 9)
		f.create(t, n)
		f.untilMidnight(t, time.Second)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 2}).Items
		f.pass(2 * time.Second)
		if out := f.exchange(t, sl, Exchange{Lease: 4, Holding: 2}); len(out.Items) != 1 {
			t.Fatalf("leased %d, want the one that is left of the new day", len(out.Items))
		}
		f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, items[0]), accept(t, items[1])}})
		if out := f.exchange(t, sl, Exchange{Lease: 4, Holding: 1}); len(out.Items) != 0 {
			t.Errorf("leased %d more", len(out.Items))
		}
	})
}
