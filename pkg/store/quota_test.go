package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// setQuota gives the tenant of the fixture a quota of its own.
func (f *fixture) setQuota(t *testing.T, q crawl.Quota) []crawl.Ring {
	t.Helper()
	rings, err := f.SetQuota(t.Context(), f.tenant, q)
	if err != nil {
		t.Fatal(err)
	}
	return rings
}

// sends makes and stores a job of n inputs under a quota of the service.
func (f *fixture) sends(t *testing.T, key string, n int, q crawl.Quota) (NewJob, Created) {
	t.Helper()
	j := f.job(t, key, n)
	j.Quota = q
	return j, f.create(t, j)
}

// stored answers all that is kept of the tenant, as text by key. What a submission may
// change without being stored is left out: the bucket of submissions.
func (f *fixture) stored(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	keys, err := f.rdb.Keys(t.Context(), rootKey(f.tenant)+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		name := strings.TrimPrefix(k, rootKey(f.tenant))
		if name == ":counted" {
			continue
		}
		switch f.rdb.Type(t.Context(), k).Val() {
		case "hash":
			h := f.rdb.HGetAll(t.Context(), k).Val()
			delete(h, "tokens")
			delete(h, "tokens_at")
			out[name] = fmt.Sprint(h)
		case "zset":
			out[name] = fmt.Sprint(f.rdb.ZRangeWithScores(t.Context(), k, 0, -1).Val())
		case "list":
			out[name] = fmt.Sprint(f.rdb.LRange(t.Context(), k, 0, -1).Val())
		case "set":
			members := f.rdb.SMembers(t.Context(), k).Val()
			slices.Sort(members)
			out[name] = fmt.Sprint(members)
		default:
			out[name] = f.rdb.Get(t.Context(), k).Val()
		}
	}
	return out
}

// A submission that a bound refuses says which, and when to try again, and leaves nothing.
func TestRefusedSubmission(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before  func(t *testing.T, f *fixture, q crawl.Quota)
		service crawl.Quota
		own     crawl.Quota
		code    crawl.Code
		limit   string
		most    int64
		after   func(f *fixture) time.Duration
	}{
		"queued, by the service": {
			service: crawl.Quota{MaxRunning: 1, MaxQueued: 2},
			code:    crawl.CodeQuotaExceeded, limit: "max_queued", most: 2,
			before: func(t *testing.T, f *fixture, q crawl.Quota) {
				for range 3 { // one runs, two wait
					f.sends(t, "", 1, q)
				}
			},
			after: func(*fixture) time.Duration { return 5 * time.Second },
		},
		"queued, by the tenant": {
			service: crawl.Quota{MaxRunning: 2, MaxQueued: 100}, own: crawl.Quota{MaxQueued: 1},
			code: crawl.CodeQuotaExceeded, limit: "max_queued", most: 1,
			before: func(t *testing.T, f *fixture, q crawl.Quota) {
				for range 3 {
					f.sends(t, "", 1, q)
				}
			},
			after: func(*fixture) time.Duration { return 5 * time.Second },
		},
		"rate": {
			service: crawl.Quota{MaxRunning: 9, SubmissionsPerSecond: 3},
			code:    crawl.CodeRateLimited, limit: "submissions_per_second", most: 3,
			before: func(t *testing.T, f *fixture, q crawl.Quota) {
				for range 3 {
					f.sends(t, "", 1, q)
				}
				f.pass(100 * time.Millisecond)
			},
			// A third of a second brings one, and 100 ms of it are over: 233.3 ms are left.
			after: func(*fixture) time.Duration { return 234 * time.Millisecond },
		},
		"day": {
			service: crawl.Quota{MaxRunning: 9}, own: crawl.Quota{PagesPerDay: 2},
			code: crawl.CodeQuotaExceeded, limit: "pages_per_day", most: 2,
			before: func(t *testing.T, f *fixture, q crawl.Quota) {
				n, _ := f.sends(t, "", 2, q)
				f.finish(t, n.Job)
				f.pass(time.Hour)
			},
			after: func(f *fixture) time.Duration {
				return time.Duration(dayMS-f.at().UnixMilli()%dayMS) * time.Millisecond
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, f *fixture) {
				f.setQuota(t, tc.own)
				tc.before(t, f, tc.service)
				n := f.job(t, "late", 2)
				n.Quota = tc.service
				before := f.stored(t)
				_, err := f.Create(t.Context(), n)
				fault := wantCode(t, err, tc.code)
				if fault.Limit != tc.limit || fault.LimitMax != tc.most || fault.RetryAfter != tc.after(f) || fault.Message == "" {
					t.Errorf("refused as %+v, want %s %d after %v", fault, tc.limit, tc.most, tc.after(f))
				}
				if d := cmp.Diff(before, f.stored(t)); d != "" {
					t.Errorf("the refused submission has left something (-without +with):\n%s", d)
				}
				if _, err := f.Job(t.Context(), n.Job); crawl.CodeOf(err) != crawl.CodeNotFound {
					t.Errorf("the refused job is there: %v", err)
				}
				f.pass(fault.RetryAfter - time.Millisecond)
				if tc.limit != "max_queued" { // of which the time says nothing
					_, err = f.Create(t.Context(), n)
					wantCode(t, err, tc.code)
					f.pass(time.Millisecond)
				} else {
					f.setQuota(t, crawl.Quota{})
					n.Quota.MaxQueued = 3
				}
				if c := f.create(t, n); c.Replayed {
					t.Error("the refused submission left its key behind")
				}
			})
		})
	}
}

// A replay is refused for nothing but its own number in a second.
func TestReplayIsRefusedForItsRateOnly(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		q := crawl.Quota{MaxRunning: 1, MaxQueued: 1, PagesPerDay: 1}
		n, _ := f.sends(t, "key", 1, q)
		f.finish(t, n.Job)
		if c := f.create(t, n); !c.Replayed || c.Job.State != crawl.Completed {
			t.Errorf("with the day used up a replay answers %+v", c)
		}
		q.PagesPerDay = 100
		f.sends(t, "runs", 1, q)
		waits, _ := f.sends(t, "waits", 1, q)
		if c := f.create(t, waits); !c.Replayed || c.Job.Position != 1 {
			t.Errorf("with the line full a replay answers %+v", c)
		}
		waits.Quota.SubmissionsPerSecond = 2
		other := waits
		other.Digest = [32]byte{9}
		f.create(t, waits)
		_, err := f.Create(t.Context(), other) // a conflict costs as much
		wantCode(t, err, crawl.CodeKeyReused)
		for _, n := range []NewJob{waits, other} {
			_, err := f.Create(t.Context(), n)
			if fault := wantCode(t, err, crawl.CodeRateLimited); fault.RetryAfter != 500*time.Millisecond {
				t.Errorf("refused until %v from now", fault.RetryAfter)
			}
		}
	})
}

// What another bound refuses costs its token too, or a caller that is refused could ask
// without end.
func TestRefusalsCostTokens(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		q := crawl.Quota{MaxRunning: 1, MaxQueued: 1, SubmissionsPerSecond: 4}
		var codes []crawl.Code
		for range 5 {
			n := f.job(t, "", 1)
			n.Quota = q
			_, err := f.Create(t.Context(), n)
			codes = append(codes, crawl.CodeOf(err))
		}
		want := []crawl.Code{"", "", crawl.CodeQuotaExceeded, crawl.CodeQuotaExceeded, crawl.CodeRateLimited}
		if d := cmp.Diff(want, codes); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// A submission that the client itself sent again, because its answer was lost, counts once:
// a new job, a replay and a refusal.
func TestResentSubmissionCountsOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		again := f.through(t, r, createScript)
		q := crawl.Quota{MaxRunning: 1, MaxQueued: 1, SubmissionsPerSecond: 4}
		send := func(key string) crawl.Code {
			n := f.job(t, key, 1)
			n.Quota = q
			_, err := again.Create(t.Context(), n)
			return crawl.CodeOf(err)
		}
		got := []crawl.Code{send("a"), send("a"), send("b"), send("c"), send("d")}
		want := []crawl.Code{"", "", "", crawl.CodeQuotaExceeded, crawl.CodeRateLimited}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		ttl := f.rdb.PTTL(t.Context(), rootKey(f.tenant)+":counted").Val()
		if ttl <= 0 || ttl > time.Minute {
			t.Errorf("what is known of submissions lives for %v", ttl)
		}
	})
}

// Of each bound the smaller holds, and a change by the admin counts at once: no API that
// knows another can undo it.
func TestQuotaIsTheSmaller(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		service := crawl.Quota{MaxRunning: 2}
		running := func() (n int64) {
			return f.rdb.SCard(t.Context(), rootKey(f.tenant)+":running").Val()
		}
		var jobs []crawl.JobRef
		send := func() []crawl.Ring {
			n, c := f.sends(t, "", 1, service)
			jobs = append(jobs, n.Job)
			return c.Rings
		}
		for range 6 {
			send()
		}
		if n := running(); n != 2 {
			t.Fatalf("%d run, want 2", n)
		}
		if rings := f.setQuota(t, crawl.Quota{MaxRunning: 5}); len(rings) != 0 || running() != 2 {
			t.Errorf("the tenant's own quota has widened what the service grants: %d run, %v", running(), rings)
		}
		service.MaxRunning = 4 // as a new API says: two that waited begin, and what is submitted waits
		rings := send()
		if d := cmp.Diff([]crawl.Ring{{JobRef: jobs[2]}, {JobRef: jobs[3]}}, rings); d != "" || running() != 4 {
			t.Errorf("%d run; rings (-want +got):\n%s", running(), d)
		}
		// Lowered below what runs: those go on, and no other begins before there is room.
		if rings := f.setQuota(t, crawl.Quota{MaxRunning: 2}); len(rings) != 0 || running() != 4 {
			t.Errorf("lowered: %d run, %v", running(), rings)
		}
		send()
		for i, want := range []int64{3, 2, 2, 2} {
			rings := f.finish(t, jobs[i])
			if (i > 1) != (len(rings) == 1) || running() != want {
				t.Errorf("after the end of %d jobs %d run, want %d; rings %v", i+1, running(), want, rings)
			}
		}
		if rings := f.setQuota(t, crawl.Quota{MaxRunning: 3}); len(rings) != 1 || running() != 3 {
			t.Errorf("raised: %d run, %v", running(), rings)
		}
		if rings := f.setQuota(t, crawl.Quota{}); len(rings) != 1 || running() != 4 {
			t.Errorf("taken away: %d run, %v", running(), rings)
		}
	})
}

// The page that brings a job's bytes to their limit is kept; what is left is cut off as by
// a time limit, while others hold leases too.
func TestMaxBytes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		inputs, commits int
		most            int64
		hold            bool // another slice holds a page
		state           crawl.State
		stop            crawl.StopReason
		cancelled       int64
	}{
		"below":              {3, 3, 31, false, crawl.Completed, crawl.StopFrontierEmpty, 0},
		"with the last page": {3, 3, 30, false, crawl.Completed, crawl.StopFrontierEmpty, 0},
		"before the last":    {3, 2, 20, false, crawl.Cancelled, crawl.StopByteLimit, 1},
		"over":               {4, 2, 11, false, crawl.Cancelled, crawl.StopByteLimit, 2},
		"none":               {3, 3, 0, false, crawl.Completed, crawl.StopFrontierEmpty, 0},
		"others hold":        {4, 2, 20, true, crawl.Cancelled, crawl.StopByteLimit, 1},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, f *fixture) {
				n := f.job(t, "", tc.inputs)
				n.Plan.MaxBytes, n.Plan.Concurrency = tc.most, 8
				n.Quota.MaxRunning = 1
				f.create(t, n)
				next, _ := f.sends(t, "next", 1, crawl.Quota{MaxRunning: 1})
				sl := f.begin(t, n.Job)
				var held []crawl.Item
				if tc.hold {
					held = f.exchange(t, sl, Exchange{Lease: 1}).Items
				}
				var rings []crawl.Ring
				for range tc.commits {
					it := f.exchange(t, sl, Exchange{Lease: 1, Holding: len(held)}).Items[0]
					rings = append(rings, f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, it)}}).Rings...)
				}
				if tc.hold {
					if j := f.read(t, n.Job); j.State != crawl.Cancelling || j.Active != 1 || len(rings) != 0 {
						t.Fatalf("while a page is in flight: %+v, %v", j, rings)
					}
					if out := f.exchange(t, sl, Exchange{Lease: 1, Holding: 1}); out.State != crawl.Cancelling || len(out.Items) != 0 {
						t.Errorf("the slice is told %+v", out)
					}
					rings = f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, held[0])}}).Rings
				}
				j := f.read(t, n.Job)
				if j.State != tc.state || j.StopReason != tc.stop || j.Cancelled != tc.cancelled || !j.Consistent() ||
					j.Accepted != int64(tc.commits+len(held)) || j.Bytes != 10*j.Accepted {
					t.Errorf("ended as %+v", j)
				}
				if len(rings) != 1 || rings[0].JobRef != next.Job {
					t.Errorf("the next job is not rung: %v", rings)
				}
			})
		})
	}
}

// A sitemap that was not read could admit pages: a job at its limit of bytes that has one
// left is cut short.
func TestMaxBytesWithSitemaps(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		n.Plan.Site, n.Plan.Sitemap, n.Plan.MaxBytes = true, crawl.SitemapInclude, 10
		f.create(t, n)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 2}).Items
		i := slices.IndexFunc(items, func(it crawl.Item) bool { return it.Kind == crawl.ItemPage })
		f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, items[i])}})
		if j := f.read(t, n.Job); j.State != crawl.Cancelled || j.StopReason != crawl.StopByteLimit || j.Accepted != 1 {
			t.Errorf("ended as %+v", j)
		}
	})
}

// Every way in which a job ends has the next one begin.
func TestEveryEndStartsTheNext(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, f *fixture, n NewJob) []crawl.Ring{
		"commit": func(t *testing.T, f *fixture, n NewJob) []crawl.Ring { return f.finish(t, n.Job) },
		"cancel": func(t *testing.T, f *fixture, n NewJob) []crawl.Ring {
			r, err := f.Cancel(t.Context(), n.Job)
			if err != nil {
				t.Fatal(err)
			}
			return r.Rings
		},
		"cancel after the grace": func(t *testing.T, f *fixture, n NewJob) []crawl.Ring {
			f.cancelling(t, n)
			f.pass(Grace)
			r, err := f.Cancel(t.Context(), n.Job)
			if err != nil {
				t.Fatal(err)
			}
			return r.Rings
		},
		"given back": func(t *testing.T, f *fixture, n NewJob) []crawl.Ring {
			sl, it := f.cancelling(t, n)
			return f.exchange(t, sl, Exchange{Returns: []Return{{Item: it}}}).Rings
		},
		"committed while it is cancelled": func(t *testing.T, f *fixture, n NewJob) []crawl.Ring {
			sl, it := f.cancelling(t, n)
			return f.exchange(t, sl, Exchange{Commits: []Commit{{Item: it, Retry: time.Second}}}).Rings
		},
		"end of the slice": func(t *testing.T, f *fixture, n NewJob) []crawl.Ring {
			sl, _ := f.cancelling(t, n)
			rings, err := f.End(t.Context(), sl, 0)
			if err != nil {
				t.Fatal(err)
			}
			return rings
		},
		"revoked by a sweep": func(t *testing.T, f *fixture, n NewJob) []crawl.Ring {
			f.cancelling(t, n)
			f.pass(Grace)
			return f.heal(t).Rings
		},
		"time limit": func(t *testing.T, f *fixture, n NewJob) []crawl.Ring {
			f.begin(t, n.Job)
			f.pass(time.Minute)
			return f.heal(t).Rings
		},
		"lost workers": func(t *testing.T, f *fixture, n NewJob) (rings []crawl.Ring) {
			for range MaxLost {
				sl := f.begin(t, n.Job)
				f.exchange(t, sl, Exchange{Lease: 2})
				f.pass(LeaseTime)
				rings = f.heal(t).Rings
			}
			return rings
		},
		"last sitemap": func(t *testing.T, f *fixture, n NewJob) []crawl.Ring {
			sl := f.begin(t, n.Job)
			items := f.exchange(t, sl, Exchange{Lease: 4}).Items
			f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, items[1])}})
			return f.exchange(t, sl, Exchange{Maps: []MapCommit{{Item: items[0], Outcome: MapNone, Part: 1}}}).Rings
		},
		"sitemaps that nobody needs": func(t *testing.T, f *fixture, n NewJob) []crawl.Ring {
			sl := f.begin(t, n.Job)
			items := f.exchange(t, sl, Exchange{Lease: 4}).Items
			page := accept(t, items[1])
			page.Accepted.Links = []crawl.Link{{URL: url(t, 7), Key: url(t, 7).Key()}} // the last that there is room for
			f.exchange(t, sl, Exchange{Commits: []Commit{page}})
			last := f.exchange(t, sl, Exchange{Lease: 1, Holding: 1}).Items[0]
			f.exchange(t, sl, Exchange{
				Commits: []Commit{accept(t, last)}, Maps: []MapCommit{{Item: items[0], Outcome: MapRetry, Retry: time.Second}},
			})
			return f.exchange(t, sl, Exchange{Lease: 1}).Rings
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, f *fixture) {
				n := f.job(t, "first", 1)
				n.Quota.MaxRunning = 1
				switch name {
				case "time limit":
					n.Plan.TimeLimit = time.Minute
				case "last sitemap":
					n.Plan.Site, n.Plan.Sitemap = true, crawl.SitemapInclude
				case "sitemaps that nobody needs":
					n.Plan.Site, n.Plan.Sitemap, n.Plan.MaxPages = true, crawl.SitemapInclude, 2
				}
				f.create(t, n)
				next, _ := f.sends(t, "next", 1, crawl.Quota{MaxRunning: 1})
				rings := end(t, f, n)
				if !f.read(t, n.Job).State.Terminal() {
					t.Fatalf("the job has not ended: %+v", f.read(t, n.Job))
				}
				if !slices.ContainsFunc(rings, func(r crawl.Ring) bool { return r.JobRef == next.Job }) {
					t.Errorf("rings %v, want the next job's", rings)
				}
			})
		})
	}
}

// cancelling has a page of the job in flight while it is cancelled.
func (f *fixture) cancelling(t *testing.T, n NewJob) (*Slice, crawl.Item) {
	t.Helper()
	sl := f.begin(t, n.Job)
	it := f.exchange(t, sl, Exchange{Lease: 1}).Items[0]
	if r, err := f.Cancel(t.Context(), n.Job); err != nil || r.State != crawl.Cancelling {
		t.Fatalf("cancelled %+v, %v", r, err)
	}
	return sl, it
}

// A quota takes no key of its own, and goes when it is taken away.
func TestQuotaLeavesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		all := crawl.Quota{MaxQueued: 1, MaxRunning: 2, MaxPages: 3, PagesPerDay: 4, MaxBytes: 5, SubmissionsPerSecond: 6}
		f.setQuota(t, all)
		want := map[string]string{
			"own:max_queued": "1", "own:max_running": "2", "own:pages_per_day": "4", "own:submissions_per_second": "6",
		}
		if d := cmp.Diff(want, f.rdb.HGetAll(t.Context(), rootKey(f.tenant)).Val()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		f.setQuota(t, crawl.Quota{})
		if keys := f.rdb.Keys(context.WithoutCancel(t.Context()), rootKey(f.tenant)+"*").Val(); len(keys) != 0 {
			t.Errorf("left: %v", keys)
		}
	})
}
