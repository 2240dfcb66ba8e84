package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// age gives a job, as it is kept, a format that no process of today knows.
func (f *fixture) age(t *testing.T, job crawl.JobRef, format int) {
	t.Helper()
	if err := f.rdb.HSet(t.Context(), jobKey(job), "format", format).Err(); err != nil {
		t.Fatal(err)
	}
}

// dump reads everything that is kept of a job, and when it is due.
func (f *fixture) dump(t *testing.T, job crawl.JobRef) map[string]string {
	t.Helper()
	out := map[string]string{"due": fmt.Sprint(f.rdb.ZScore(t.Context(), rootKey(f.tenant)+":due", job.ID).Val())}
	for _, key := range f.rdb.Keys(t.Context(), jobKey(job)+"*").Val() {
		var content any
		switch kind := f.rdb.Type(t.Context(), key).Val(); kind {
		case "hash":
			content = f.rdb.HGetAll(t.Context(), key).Val()
		case "zset":
			content = f.rdb.ZRangeWithScores(t.Context(), key, 0, -1).Val()
		case "list":
			content = f.rdb.LRange(t.Context(), key, 0, -1).Val()
		case "set":
			content = f.rdb.SCard(t.Context(), key).Val()
		default:
			content = f.rdb.Get(t.Context(), key).Val()
		}
		out[key] = fmt.Sprint(content)
	}
	return out
}

// A job says of what format it is, and one that says nothing is of the first.
func TestFormatIsKept(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		f.create(t, n)
		if got := f.rdb.HGet(t.Context(), jobKey(n.Job), "format").Val(); got != "1" {
			t.Errorf("a new job is of format %q", got)
		}
		if err := f.rdb.HDel(t.Context(), jobKey(n.Job), "format").Err(); err != nil {
			t.Fatal(err)
		}
		f.finish(t, n.Job)
		if j := f.read(t, n.Job); j.State != crawl.Completed {
			t.Errorf("a job without a format is %+v", j)
		}
	})
}

// A job of a newer format is left as it is by a process that does not know it, whatever is due of
// it; a cancel is left to those that do, and carried out by the first of them that sweeps.
func TestNewerJobIsLeftAlone(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n, gone := f.job(t, "", 2), f.job(t, "", 1)
		n.Plan.TimeLimit, gone.Plan.Retention = time.Minute, time.Minute
		f.create(t, n)
		f.create(t, gone)
		f.exchange(t, f.begin(t, n.Job), Exchange{Lease: 1})
		f.finish(t, gone.Job)
		for _, job := range []crawl.JobRef{n.Job, gone.Job} {
			f.age(t, job, 2)
		}
		before, over := f.dump(t, n.Job), f.dump(t, gone.Job)
		f.pass(time.Hour) // its slice is dead, its time limit over, the other's retention too
		if s := f.heal(t); s.Jobs != 0 || s.Dead != 0 || s.Expired != 0 {
			t.Errorf("swept %+v", s)
		}
		sl, rings, err := f.Begin(t.Context(), crawl.Ring{JobRef: n.Job})
		if sl != nil || rings != nil || !errors.Is(err, ErrNewer) {
			t.Errorf("began %v, %v, %v", sl, rings, err)
		}
		if sl, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: gone.Job}); sl != nil || err != nil {
			t.Errorf("a ring of a job that has ended: %v, %v", sl, err) // it is for nobody, and dies out
		}
		_, _, err = f.Pause(t.Context(), n.Job)
		wantCode(t, err, crawl.CodeWrongState)
		wantCode(t, f.Delete(t.Context(), gone.Job), crawl.CodeWrongState)
		if d := cmp.Diff(before, f.dump(t, n.Job)) + cmp.Diff(over, f.dump(t, gone.Job)); d != "" {
			t.Errorf("a newer job was changed:\n%s", d)
		}
		if j := f.read(t, n.Job); j.State != crawl.Running || !j.Consistent() {
			t.Errorf("it reads as %+v", j)
		}
		r, err := f.Cancel(t.Context(), n.Job)
		if err != nil || r.State != crawl.Running {
			t.Errorf("cancelled: %+v, %v", r, err)
		}
		f.heal(t)
		if j := f.read(t, n.Job); j.State != crawl.Running {
			t.Errorf("an older sweep made it %+v", j)
		}
		f.age(t, n.Job, 1) // as a newer process reads it
		f.heal(t)
		f.pass(Grace)
		f.heal(t)
		if j := f.read(t, n.Job); j.State != crawl.Cancelled || j.StopReason != crawl.StopCancelled || !j.Consistent() {
			t.Errorf("a newer sweep made it %+v", j)
		}
	})
}

// A paused job of a newer format is not resumed by an older process.
func TestNewerJobIsNotResumed(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		p := place(t, f, paused)
		f.age(t, p.ref, 2)
		_, _, err := f.Resume(t.Context(), p.ref)
		wantCode(t, err, crawl.CodeWrongState)
		if j := f.read(t, p.ref); j.State != crawl.Paused {
			t.Errorf("it is %s", j.State)
		}
	})
}

// However many jobs of a newer format are due, those behind them are healed, in calls of bounded
// work, and a sweep comes to its end.
func TestNewerJobsHoldNobodyUp(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		const newer, older = 2*sweepJobs + 7, sweepJobs + 3
		for i := range newer + older {
			n := f.job(t, "", 1)
			n.Quota.MaxRunning = newer + older
			f.create(t, n)
			if i < newer {
				f.age(t, n.Job, 2)
			}
			f.pass(time.Millisecond)
		}
		f.pass(time.Minute)
		before := f.Trips()
		s := f.heal(t)
		if s.Jobs != older || len(s.Rings) != older {
			t.Errorf("healed %d jobs of %d, %d rings", s.Jobs, older, len(s.Rings))
		}
		// Twice: a Redis that does not know the script yet is told it in a second trip.
		if trips := f.Trips() - before; trips > 2+(newer+older)/sweepJobs+1 {
			t.Errorf("in %d round trips", trips)
		}
		if s := f.heal(t); s.Jobs != 0 {
			t.Errorf("again: %+v", s)
		}
		if n := f.rdb.ZCard(t.Context(), rootKey(f.tenant)+":due").Val(); n != newer+older {
			t.Errorf("%d jobs are due at some time, want %d", n, newer+older)
		}
	})
}

// A collection of a newer format takes nothing from an older process, and is not removed by it.
func TestNewerCollection(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		n.Plan.Collection = &crawl.Collection{Name: "pages", Key: crawl.KeySourceURL}
		n.Plan.Series = "s"
		f.create(t, n)
		key := rootKey(f.tenant) + ":c:pages"
		if got := f.rdb.HGet(t.Context(), key, "format").Val(); got != "1" {
			t.Errorf("a new collection is of format %q", got)
		}
		if err := f.rdb.HSet(t.Context(), key, "format", 2).Err(); err != nil {
			t.Fatal(err)
		}
		before := f.rdb.HGetAll(t.Context(), key).Val()
		sl := f.begin(t, n.Job)
		c := accept(t, f.exchange(t, sl, Exchange{Lease: 1}).Items[0])
		c.Accepted.Upserts = []Upsert{{Key: c.Item.URL, Fingerprint: [16]byte{1}}}
		f.exchange(t, sl, Exchange{Commits: []Commit{c}})
		if j := f.read(t, n.Job); j.State != crawl.Completed || j.Report.NotCollected != 1 || j.Report.Created != 0 {
			t.Errorf("the job is %+v", j)
		}
		again := f.job(t, "", 1)
		again.Plan.Collection, again.Plan.Series = n.Plan.Collection, n.Plan.Series
		_, err := f.Create(t.Context(), again)
		wantCode(t, err, crawl.CodeWrongState)
		wantCode(t, f.DeleteCollection(t.Context(), f.tenant, "pages"), crawl.CodeWrongState)
		wantCode(t, f.DeleteItem(t.Context(), f.tenant, "pages", c.Item.URL), crawl.CodeWrongState)
		if d := cmp.Diff(before, f.rdb.HGetAll(t.Context(), key).Val()); d != "" {
			t.Errorf("it was changed:\n%s", d)
		}
	})
}

// A counter that went back, as after a failover that lost the last second or out of a backup, gives
// no slice the token of another: the pages of the first are not the second's to settle.
func TestTokensAfterAFailover(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 4)
		n.Plan.Concurrency = 1
		f.create(t, n)
		kept := f.dump(t, n.Job)[jobKey(n.Job)] // what a replica has
		old := f.begin(t, n.Job)
		item := f.exchange(t, old, Exchange{Lease: 1}).Items[0]
		// The replica has neither the slice nor its lease.
		for _, undo := range []error{
			f.rdb.Del(t.Context(), jobKey(n.Job)+":slices", jobKey(n.Job)+":leased").Err(),
			f.rdb.HSet(t.Context(), jobKey(n.Job), "gen", 0, "state", "queued").Err(),
			f.rdb.HDel(t.Context(), jobKey(n.Job), "begun", "started").Err(),
			f.rdb.LPush(t.Context(), jobKey(n.Job)+":queued", row(item)).Err(),
		} {
			if undo != nil {
				t.Fatal(undo)
			}
		}
		if !strings.Contains(kept, "gen:0") {
			t.Fatalf("a job that no slice has begun is %s", kept)
		}
		f.pass(time.Second) // the failover
		sl := f.begin(t, n.Job)
		if sl.Gen <= old.Gen || sl.Gen < f.at().UnixMilli() {
			t.Fatalf("token %d after %d", sl.Gen, old.Gen)
		}
		if again := f.exchange(t, sl, Exchange{Lease: 1}).Items; len(again) != 1 || again[0] != item {
			t.Fatalf("leased %+v", again)
		}
		if got := f.exchange(t, old, Exchange{Commits: []Commit{accept(t, item)}}).Committed[0]; got.Verdict != Stale {
			t.Errorf("a slice that the store has forgotten settles a page of another: %+v", got)
		}
		if got := f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, item)}}).Committed[0]; got.Verdict != Done {
			t.Errorf("its own: %+v", got)
		}
	})
}

// Two slices of one millisecond have two tokens, and a clock that goes back gives none again.
func TestTokensAreUnique(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1000)
		n.Plan.Concurrency = 16
		f.create(t, n)
		seen := map[int64]bool{}
		for range 4 {
			sl := f.begin(t, n.Job)
			if seen[sl.Gen] || sl.Gen > 1<<53 {
				t.Errorf("token %d, after %v", sl.Gen, seen)
			}
			seen[sl.Gen] = true
			f.pass(-time.Millisecond / 2)
		}
	})
}

// A full Redis pauses, resumes and cancels, and what is in flight is given back.
func TestFullIsStopped(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	p, stops := place(t, f, runs), f.job(t, "stops", 2)
	stops.Quota.MaxRunning = 1
	f.create(t, stops)
	if err := r.Client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Client.Set(t.Context(), "k", "v", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "OOM") {
		t.Fatalf("it is not full: %v", err)
	}
	if _, err := f.Exchange(t.Context(), p.sl, Exchange{Retire: true}); err != nil {
		t.Errorf("not retired: %v", err)
	}
	if rings := p.pause(t); len(rings) != 1 {
		t.Errorf("rings %v", rings)
	}
	if err := f.RingFailed(t.Context(), stops.Job, "The queue is full."); err != nil || f.read(t, stops.Job).Error == "" {
		t.Errorf("not told: %v", err)
	}
	if _, err := f.Exchange(t.Context(), p.sl, Exchange{Returns: []Return{{Item: p.items[0], Delay: time.Second}}}); err != nil {
		t.Errorf("not given back: %v", err)
	}
	p.resume(t, crawl.Queued)
	if res, err := f.Cancel(t.Context(), stops.Job); err != nil || res.State != crawl.Cancelled || len(res.Rings) != 1 {
		t.Errorf("cancelled %+v, %v", res, err)
	}
	if j := f.read(t, p.ref); j.State != crawl.Running || j.Deferred != 1 || j.Queued != 2 || !j.Consistent() {
		t.Errorf("it goes on as %+v", j)
	}
	// A slice begins when there is room for what it brings: the one of before retires, and lives.
	before := f.dump(t, p.ref)
	f.pass(time.Second)
	sl, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: p.ref})
	wantCode(t, err, crawl.CodeOverloaded)
	if d := cmp.Diff(before, f.dump(t, p.ref)); sl != nil || d != "" {
		t.Errorf("a begin that was refused changed:\n%s", d)
	}
}
