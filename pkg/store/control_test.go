package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// Where a job can be, as far as pauses care.
const (
	atGate     = "queued, at the gate"
	letIn      = "queued, let in"
	runs       = "running, one page in flight"
	paused     = "paused"
	pausedAir  = "paused, one page in flight"
	resumedAir = "resumed, at the gate, one page in flight"
	cancelling = "cancelling"
	ended      = "completed"
	endedBad   = "completed_with_errors"
	endedSeed  = "failed"
	stopped    = "cancelled"
	removed    = "removed"
	unknown    = "unknown"
)

// placed is a job that a test brought to such a place.
type placed struct {
	*fixture
	ref   crawl.JobRef
	sl    *Slice
	items []crawl.Item
	other crawl.JobRef // has its place at the gate, if it is not past that
}

// crowd has another job take the one place at the gate.
func (p *placed) crowd(t *testing.T) {
	t.Helper()
	n := p.job(t, "", 1)
	n.Quota.MaxRunning = 1
	p.create(t, n)
	p.other = n.Job
}

func (p *placed) pause(t *testing.T) []crawl.Ring {
	t.Helper()
	state, rings, err := p.Pause(t.Context(), p.ref)
	if err != nil || state != crawl.Paused {
		t.Fatalf("paused: %s, %v", state, err)
	}
	return rings
}

func (p *placed) resume(t *testing.T, want crawl.State) []crawl.Ring {
	t.Helper()
	state, rings, err := p.Resume(t.Context(), p.ref)
	if err != nil || state != want {
		t.Fatalf("resumed: %s, %v, want %s", state, err, want)
	}
	return rings
}

// place makes a job of three pages, with a minute and five bytes.
func place(t *testing.T, f *fixture, where string) *placed {
	t.Helper()
	p := &placed{fixture: f}
	n := f.job(t, "", 3)
	n.Quota.MaxRunning, n.Plan.TimeLimit, n.Plan.MaxBytes, n.Plan.Retention = 1, time.Minute, 5, 100*24*time.Hour
	n.Plan.Site = where == endedSeed
	p.ref = n.Job
	if where == unknown {
		return p
	}
	if where == atGate {
		p.crowd(t)
	}
	f.create(t, n)
	switch where {
	case atGate, letIn:
		return p
	case paused:
		p.pause(t)
		return p
	case ended, endedBad, endedSeed:
		p.work(t, where)
		return p
	}
	p.sl = f.begin(t, n.Job)
	p.items = f.exchange(t, p.sl, Exchange{Lease: 1}).Items
	switch where {
	case pausedAir:
		p.pause(t)
	case resumedAir:
		p.pause(t)
		p.crowd(t)
		p.resume(t, crawl.Queued)
	case cancelling, stopped, removed:
		if _, err := f.Cancel(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
		if where == cancelling {
			break
		}
		f.pass(Grace)
		f.heal(t)
	}
	if where == removed {
		if err := f.Delete(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// work works the job off to one of its ends; it reads no bytes.
func (p *placed) work(t *testing.T, end string) {
	t.Helper()
	p.sl = p.begin(t, p.ref)
	for i, it := range p.exchange(t, p.sl, Exchange{Lease: 3}).Items {
		c := accept(t, it)
		c.Accepted.Page.Bytes = 0
		if end == endedSeed || end == endedBad && i == 0 {
			c = Commit{Item: it, Failed: &crawl.Failure{SourceURL: it.URL, ErrorType: "http_404"}, Why: "It is not there."}
		}
		p.exchange(t, p.sl, Exchange{Commits: []Commit{c}})
	}
}

// What each thing that can happen to a job makes of it, wherever it is. An end is where it is once
// whatever was in flight is back.
func TestControl(t *testing.T) {
	t.Parallel()
	type becomes struct {
		state crawl.State
		code  crawl.Code // of the answer
		stop  crawl.StopReason
	}
	is := func(s crawl.State) becomes { return becomes{state: s} }
	no := func(s crawl.State, stop crawl.StopReason) becomes {
		return becomes{s, crawl.CodeWrongState, stop}
	}
	over := func(stop crawl.StopReason) becomes { return becomes{crawl.Cancelled, "", stop} }
	acts := []string{"pause", "resume", "cancel", "its time passes", "its bytes are read"}
	for where, want := range map[string][]becomes{
		atGate: {is(crawl.Paused), is(crawl.Queued), over(crawl.StopCancelled), is(crawl.Queued)},
		letIn:  {is(crawl.Paused), is(crawl.Queued), over(crawl.StopCancelled), is(crawl.Queued)},
		runs: {
			is(crawl.Paused), is(crawl.Running), over(crawl.StopCancelled), over(crawl.StopTimeLimit), over(crawl.StopByteLimit),
		},
		paused: {is(crawl.Paused), is(crawl.Queued), over(crawl.StopCancelled), is(crawl.Paused)},
		pausedAir: {
			is(crawl.Paused), is(crawl.Running), over(crawl.StopCancelled), is(crawl.Paused), over(crawl.StopByteLimit),
		},
		resumedAir: {
			is(crawl.Paused), is(crawl.Queued), over(crawl.StopCancelled), is(crawl.Queued), over(crawl.StopByteLimit),
		},
		cancelling: {
			no(crawl.Cancelled, crawl.StopCancelled), no(crawl.Cancelled, crawl.StopCancelled), over(crawl.StopCancelled),
			over(crawl.StopCancelled), over(crawl.StopCancelled),
		},
		ended: {
			no(crawl.Completed, crawl.StopFrontierEmpty), no(crawl.Completed, crawl.StopFrontierEmpty),
			{crawl.Completed, "", crawl.StopFrontierEmpty},
			{crawl.Completed, "", crawl.StopFrontierEmpty},
		},
		endedBad: {
			no(crawl.CompletedWithErrors, crawl.StopFrontierEmpty), no(crawl.CompletedWithErrors, crawl.StopFrontierEmpty),
			{crawl.CompletedWithErrors, "", crawl.StopFrontierEmpty},
			{crawl.CompletedWithErrors, "", crawl.StopFrontierEmpty},
		},
		endedSeed: {
			no(crawl.Failed, crawl.StopSeedFailed), no(crawl.Failed, crawl.StopSeedFailed),
			{crawl.Failed, "", crawl.StopSeedFailed},
			{crawl.Failed, "", crawl.StopSeedFailed},
		},
		stopped: {
			no(crawl.Cancelled, crawl.StopCancelled), no(crawl.Cancelled, crawl.StopCancelled), over(crawl.StopCancelled),
			over(crawl.StopCancelled),
		},
		removed: {{"", crawl.CodeExpired, ""}, {"", crawl.CodeExpired, ""}, {"", crawl.CodeExpired, ""}},
		unknown: {{"", crawl.CodeNotFound, ""}, {"", crawl.CodeNotFound, ""}, {"", crawl.CodeNotFound, ""}},
	} {
		t.Run(where, func(t *testing.T) {
			onEach(t, func(t *testing.T, f *fixture) {
				for i, want := range want {
					f.tenant = "t" + crawl.NewJobID("", "")
					p := place(t, f, where)
					before, _ := f.Job(t.Context(), p.ref)
					err := p.act(t, acts[i])
					if crawl.CodeOf(err) != want.code {
						t.Errorf("%s answers %v", acts[i], err)
					}
					if want.state == "" {
						continue
					}
					j := f.read(t, p.ref)
					if before.State.Terminal() {
						if d := cmp.Diff(before, j); d != "" {
							t.Errorf("%s changed the record of an ended job:\n%s", acts[i], d)
						}
					}
					f.pass(Grace) // and what was in flight is revoked
					f.heal(t)
					if j = f.read(t, p.ref); j.State != want.state || j.StopReason != want.stop || !j.Consistent() {
						t.Errorf("%s makes it %+v, want %+v", acts[i], j, want)
					}
					if j.State.Terminal() && f.rdb.SIsMember(t.Context(), rootKey(f.tenant)+":paused", p.ref.ID).Val() {
						t.Errorf("%s: it ended, and is still among the paused", acts[i])
					}
				}
			})
		})
	}
}

// act does what may happen to a job.
func (p *placed) act(t *testing.T, what string) error {
	t.Helper()
	var err error
	switch what {
	case "pause":
		_, _, err = p.Pause(t.Context(), p.ref)
	case "resume":
		_, _, err = p.Resume(t.Context(), p.ref)
	case "cancel":
		_, err = p.Cancel(t.Context(), p.ref)
	case "its time passes":
		p.pass(2 * time.Minute)
		p.heal(t)
	default:
		p.exchange(t, p.sl, Exchange{Commits: []Commit{accept(t, p.items[0])}})
	}
	return err
}

// The last page in flight ends a paused job, and one that waits at the gate again, as it would have
// ended a running one; its links are taken in, and then it does not.
func TestLastPageOfAPausedJob(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		for _, again := range []bool{false, true} {
			for _, outcome := range []string{"completed", "completed_with_errors", "failed", "links"} {
				f.tenant = "t" + crawl.NewJobID("", "")
				p := &placed{fixture: f}
				n := f.job(t, "", 1)
				n.Quota.MaxRunning, n.Plan.Site, p.ref = 1, outcome == "failed", n.Job
				f.create(t, n)
				sl := f.begin(t, n.Job)
				c := accept(t, f.exchange(t, sl, Exchange{Lease: 1}).Items[0])
				p.pause(t)
				state := crawl.Paused
				if again {
					p.crowd(t)
					p.resume(t, crawl.Queued)
					state = crawl.Queued
				}
				want := crawl.State(outcome)
				switch outcome {
				case "links":
					want = state
					l, err := crawl.ParseURL("http://site.test/linked")
					if err != nil {
						t.Fatal(err)
					}
					c.Accepted.Links = []crawl.Link{{URL: l, Key: l.Key()}}
				case "completed":
				default:
					c = Commit{Item: c.Item, Failed: &crawl.Failure{SourceURL: c.Item.URL, ErrorType: "http_404"}}
				}
				if got := f.exchange(t, sl, Exchange{Commits: []Commit{c}}).Committed[0]; got.Verdict != Done {
					t.Errorf("%s of a job that is %s: %+v", outcome, state, got)
				}
				if j := f.read(t, n.Job); j.State != want || j.Processed != 1 || (j.Queued == 1) != (outcome == "links") {
					t.Errorf("%s of a job that is %s makes it %+v", outcome, state, j)
				}
			}
		}
	})
}

// A paused job gives its place to the next, waits for one when it is resumed, and then goes on by
// itself: with the slice of before, if that still lives, and as begun when it first was.
func TestPauseAtTheGate(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		p := &placed{fixture: f}
		n, next := f.job(t, "", 9), f.job(t, "", 1)
		n.Quota.MaxRunning, next.Quota.MaxRunning, p.ref = 1, 1, n.Job
		f.create(t, n)
		sl := f.begin(t, n.Job)
		f.exchange(t, sl, Exchange{Lease: 2})
		started := f.read(t, n.Job).StartedAt
		f.create(t, next)
		if rings := p.pause(t); len(rings) != 1 || rings[0].JobRef != next.Job {
			t.Errorf("a pause rings %v", rings)
		}
		if rings := p.pause(t); len(rings) != 0 {
			t.Errorf("a second pause rings %v", rings)
		}
		out := f.exchange(t, sl, Exchange{Lease: 2, Holding: 2})
		if r, err := f.Renew(t.Context(), sl); err != nil || r.State != crawl.Paused || out.State != crawl.Paused || len(out.Items) > 0 {
			t.Errorf("a slice of a paused job: renewed %+v, %v; leased %+v", r, err, out)
		}
		f.pass(3 * time.Second)
		if rings := p.resume(t, crawl.Queued); len(rings) != 0 {
			t.Errorf("rings %v", rings)
		}
		if j := f.read(t, n.Job); j.WaitingFor != crawl.WaitingTenantQuota || j.Position != 1 || j.Active != 2 {
			t.Errorf("resumed: %+v", j)
		}
		if sl, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: n.Job}); sl != nil || err != nil {
			t.Errorf("a late ring passes the gate: %+v, %v", sl, err)
		}
		if err := f.RingFailed(t.Context(), n.Job, "The queue refused it."); err != nil || f.read(t, n.Job).Error != "" {
			t.Errorf("a ring that nobody needs is told to have failed: %v", err)
		}
		stats, err := f.stats(t.Context(), []string{f.tenant}, statsJobs, statsTotal)
		if err != nil || stats.URLs[crawl.PageActive] != 2 || stats.Jobs[crawl.Queued] != 2 || stats.OldestWaiting != 0 {
			t.Errorf("counted %+v, %v", stats, err)
		}
		rings := f.finish(t, next.Job)
		if len(rings) != 1 || rings[0].JobRef != n.Job {
			t.Fatalf("the end of the other rings %v", rings)
		}
		if j := f.read(t, n.Job); j.State != crawl.Running || !j.StartedAt.Equal(started) {
			t.Errorf("let in: %+v", j)
		}
		if out := f.exchange(t, sl, Exchange{Lease: 2, Holding: 2}); out.State != crawl.Running || len(out.Items) != 2 {
			t.Errorf("the slice of before leases %+v", out)
		}
		if _, err := f.End(t.Context(), sl, NoRest); err != nil {
			t.Fatal(err)
		}
		f.finish(t, n.Job)
		if j := f.read(t, n.Job); j.State != crawl.Completed || j.Accepted != 9 {
			t.Errorf("ended as %+v", j)
		}
	})
}

// The clock of the time limit stands still while a job is paused, and while it waits at the gate.
func TestPausedTime(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		p := place(t, f, runs)
		f.pass(50 * time.Second)
		p.pause(t)
		f.pass(24 * time.Hour)
		f.heal(t)
		p.crowd(t)
		p.resume(t, crawl.Queued)
		f.pass(24 * time.Hour)
		f.heal(t)
		if _, err := f.Cancel(t.Context(), p.other); err != nil {
			t.Fatal(err)
		}
		f.begin(t, p.ref)
		f.pass(9 * time.Second)
		f.heal(t)
		if j := f.read(t, p.ref); j.State != crawl.Running {
			t.Fatalf("59 seconds of a minute make it %+v", j)
		}
		f.pass(time.Second)
		f.heal(t)
		f.pass(Grace)
		f.heal(t)
		if j := f.read(t, p.ref); j.State != crawl.Cancelled || j.StopReason != crawl.StopTimeLimit {
			t.Errorf("after its minute it is %+v", j)
		}
	})
}

// No job is paused for ever, nor is one lost that a pause finds in nobody's hands.
func TestMaxPause(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		p := place(t, f, paused)
		f.pass(crawl.MaxPause - time.Millisecond)
		f.heal(t)
		if j := f.read(t, p.ref); j.State != crawl.Paused {
			t.Fatalf("before its time: %+v", j)
		}
		f.pass(time.Millisecond)
		f.heal(t)
		if j := f.read(t, p.ref); j.State != crawl.Cancelled || j.StopReason != crawl.StopTimeLimit || j.Cancelled != 3 {
			t.Errorf("after %v: %+v", crawl.MaxPause, j)
		}
	})
}

// A tenant does not escape its bound of waiting jobs by pausing them.
func TestPausedJobsAreQueued(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		p := &placed{fixture: f}
		q := crawl.Quota{MaxRunning: 1, MaxQueued: 2}
		for range 2 {
			n := f.job(t, "", 1)
			n.Quota, p.ref = q, n.Job
			f.create(t, n)
			p.pause(t)
		}
		n := f.job(t, "", 1)
		n.Quota = q
		_, err := f.Create(t.Context(), n)
		if fault := wantCode(t, err, crawl.CodeQuotaExceeded); fault.Limit != "max_queued" {
			t.Errorf("refused for %s", fault.Limit)
		}
		p.resume(t, crawl.Queued)
		f.create(t, n)
	})
}

// What was in flight when a job was paused, and what a job that waits at the gate again has in
// flight, counts for the pages of the day.
func TestPausedPagesOfTheDay(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		for _, again := range []bool{false, true} {
			f.tenant = "t" + crawl.NewJobID("", "")
			f.setQuota(t, crawl.Quota{PagesPerDay: 3})
			p := &placed{fixture: f}
			n, next := f.job(t, "", 9), f.job(t, "", 9)
			n.Quota.MaxRunning, next.Quota.MaxRunning, p.ref = 1, 1, n.Job
			f.create(t, n)
			f.create(t, next)
			sl := f.begin(t, n.Job)
			items := f.exchange(t, sl, Exchange{Lease: 2}).Items
			p.pause(t)
			if again {
				p.resume(t, crawl.Queued)
			}
			if out := f.exchange(t, f.begin(t, next.Job), Exchange{Lease: 4}); len(out.Items) != 1 {
				t.Errorf("resumed %v: %d pages leased, want the one that is left", again, len(out.Items))
			}
			f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, items[0]), accept(t, items[1])}})
		}
	})
}

// A job that is cancelled while it waits at the gate again, with a page in flight, is let in no more:
// the place is the next one's, and it is counted as what it is.
func TestCancelAtTheGateAgain(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		p := place(t, f, resumedAir)
		next := f.job(t, "", 1)
		next.Quota.MaxRunning = 1
		f.create(t, next)
		if r, err := f.Cancel(t.Context(), p.ref); err != nil || r.State != crawl.Cancelling {
			t.Fatalf("cancelled %+v, %v", r, err)
		}
		if j := f.read(t, next.Job); j.Position != 1 {
			t.Errorf("the next waits as %+v", j)
		}
		stats, err := f.stats(t.Context(), []string{f.tenant}, statsJobs, statsTotal)
		if err != nil || stats.Jobs[crawl.Cancelling] != 1 || stats.Jobs[crawl.Queued] != 2 || stats.URLs[crawl.PageActive] != 1 {
			t.Errorf("counted %+v, %v", stats, err)
		}
		r, err := f.Cancel(t.Context(), p.other)
		if err != nil || len(r.Rings) != 1 || r.Rings[0].JobRef != next.Job {
			t.Errorf("the place goes to %+v, %v", r, err)
		}
		f.exchange(t, p.sl, Exchange{Returns: []Return{{Item: p.items[0]}}})
		if j := f.read(t, p.ref); j.State != crawl.Cancelled || j.Cancelled != 3 {
			t.Errorf("it ends as %+v", j)
		}
	})
}

// A slice that retires while its job is paused leaves its place to another when the job goes on.
func TestRetiredWhilePaused(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		p := place(t, f, pausedAir)
		if out := f.exchange(t, p.sl, Exchange{Retire: true}); len(out.Rings) != 0 {
			t.Errorf("a paused job is rung: %v", out.Rings)
		}
		p.resume(t, crawl.Running)
		f.begin(t, p.ref)
	})
}
