package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// newStats is that of tenants who have nothing.
func newStats(tenants int64) Stats {
	s := Stats{
		Tenants: tenants,
		Jobs:    map[crawl.State]int64{}, Ended: map[crawl.State]int64{}, URLs: map[crawl.PageState]int64{},
	}
	for _, state := range openStates {
		s.Jobs[state] = 0
	}
	for _, state := range endedStates {
		s.Ended[state] = 0
	}
	for _, state := range openURLs {
		s.URLs[state] = 0
	}
	return s
}

// sameStats compares all that is counted of a tenant but the times.
func sameStats(ctx context.Context, t *rapid.T, st *Store, tenant string, want Stats) {
	got, err := st.stats(ctx, []string{tenant}, statsJobs, statsTotal)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Stats{}, "OldestWaiting")); d != "" {
		t.Fatalf("the counts are not what they must be (-want +got):\n%s", d)
	}
}

// count compares what an operator sees of the model's job.
func (m *model) count(ctx context.Context, t *rapid.T) {
	want := newStats(1)
	if m.state.Terminal() {
		want.Ended[m.state]++
	} else {
		want.Jobs[m.state]++
		want.URLs[crawl.PageQueued], want.URLs[crawl.PageActive] = int64(len(m.queued)), int64(len(m.leased))
		want.URLs[crawl.PageDeferred] = int64(len(m.deferred))
		if m.state != crawl.Cancelling && m.let && m.restsUntil <= m.now {
			want.Due = int64(m.dueCount() - m.maps.due(m.now))
		}
	}
	want.Ended[crawl.Cancelled] += m.others
	if m.other != nil { // it has one page, and nobody begins it
		want.Jobs[crawl.Queued]++
		want.URLs[crawl.PageQueued]++
		want.Due++
	}
	sameStats(ctx, t, m.st, m.job.Tenant, want)
}

// What waits at the gate is counted with its URLs, none of which is due, and its age is known.
func TestStatsOfTheGate(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		for i, inputs := range []int{3, 4, 5, 6} { // two of them may run
			f.create(t, f.job(t, fmt.Sprint(i), inputs))
			f.pass(time.Second)
		}
		want := newStats(1)
		want.Jobs[crawl.Queued], want.URLs[crawl.PageQueued], want.Due = 4, 18, 7
		want.OldestWaiting = 2 * time.Second
		f.wantStats(t, want, statsJobs)

		// A hand that is not let look into all of them says so, and counts those at the gate.
		want.URLs[crawl.PageQueued], want.Skipped = 12, 1
		f.wantStats(t, want, 3)
		want = newStats(1)
		want.Jobs[crawl.Queued], want.Skipped, want.OldestWaiting = 2, 4, 2*time.Second
		f.wantStats(t, want, 0)
	})
}

func (f *fixture) wantStats(t *testing.T, want Stats, each int64) {
	t.Helper()
	got, err := f.stats(t.Context(), []string{f.tenant}, each, statsTotal)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// The count of what ended outlives the jobs, whoever removes them.
func TestStatsOutliveTheirJobs(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		removed, expires, stopped := f.job(t, "a", 1), f.job(t, "b", 2), f.job(t, "c", 3)
		removed.Plan.Webhook = &crawl.Webhook{URL: "http://hooks.test/", Events: []crawl.EventType{crawl.EventCompleted}}
		for _, n := range []NewJob{removed, expires, stopped} {
			f.create(t, n)
			if n.IdempotencyKey != "c" {
				f.finish(t, n.Job)
			}
		}
		want := newStats(1)
		want.Jobs[crawl.Queued], want.URLs[crawl.PageQueued], want.Due = 1, 3, 3
		want.Ended[crawl.Completed], want.WebhookJobs = 2, 1
		f.wantStats(t, want, statsJobs)

		if _, err := f.Cancel(t.Context(), stopped.Job); err != nil {
			t.Fatal(err)
		}
		if err := f.Delete(t.Context(), removed.Job); err != nil {
			t.Fatal(err)
		}
		f.pass(2 * time.Hour)
		if _, err := f.sweep(t.Context(), []string{f.tenant}); err != nil {
			t.Fatal(err)
		}
		want = newStats(1)
		want.Ended[crawl.Completed], want.Ended[crawl.Cancelled] = 2, 1
		f.wantStats(t, want, statsJobs)
	})
}

// Whatever the number of tenants and jobs, no more jobs are looked into than the total, and
// every tenant is counted.
func TestStatsAreBounded(t *testing.T) {
	t.Parallel()
	r := crawltest.Mini(t)
	f := newFixture(t, r)
	const tenants, jobs = 7, 3
	for i := range tenants {
		f.tenant = fmt.Sprintf("tenant%d", i)
		for k := range jobs {
			n := f.job(t, fmt.Sprint(k), 1)
			n.Quota.MaxRunning = jobs
			f.create(t, n)
		}
	}
	all, err := f.Stats(t.Context())
	if err != nil || all.Tenants != tenants || all.Jobs[crawl.Queued] != tenants*jobs || all.Skipped != 0 {
		t.Fatalf("%+v, %v", all, err)
	}
	names := r.Client.SMembers(t.Context(), tenantsKey).Val()
	for _, bound := range []struct{ each, total int64 }{{1, 100}, {2, 5}, {3, 10}, {100, 4}, {100, 1}, {3, 0}} {
		got, err := f.stats(t.Context(), names, bound.each, bound.total)
		if err != nil {
			t.Fatal(err)
		}
		looked := got.Jobs[crawl.Queued]
		if looked > bound.total || looked > bound.each*tenants || looked+got.Skipped != tenants*jobs || got.Tenants != tenants {
			t.Errorf("bounds %+v: %+v", bound, got)
		}
		if enough := min(bound.total, tenants*min(bound.each, jobs)); looked != enough {
			t.Errorf("bounds %+v: looked into %d jobs, want %d", bound, looked, enough)
		}
	}
}

// A tenant whose keys somebody broke by hand blinds nobody to the others.
func TestStatsOfABrokenTenant(t *testing.T) { onEach(t, testStatsOfABrokenTenant) }

func testStatsOfABrokenTenant(t *testing.T, f *fixture) {
	f.create(t, f.job(t, "", 1))
	broken := "broken" + f.tenant
	if err := f.rdb.Set(t.Context(), rootKey(broken), "no hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	got, err := f.stats(t.Context(), []string{f.tenant, broken}, statsJobs, statsTotal)
	if err != nil || got.Broken != 1 || got.Tenants != 2 || got.Jobs[crawl.Queued] != 1 || got.Due != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A count that lacks a tenant since Redis did not answer would fall and rise again: there is none then.
func TestStatsAreWhole(t *testing.T) {
	t.Parallel()
	f := newFixture(t, crawltest.Mini(t))
	f.create(t, f.job(t, "", 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := f.Stats(ctx); !errors.Is(err, context.Canceled) || got.Tenants != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// BenchmarkStats counts a tenant of a thousand running jobs. An operation is a job.
func BenchmarkStats(b *testing.B) {
	r := crawltest.Private(b)
	st := New(r.Client, Options{})
	tenant := crawltest.Tenant(b)
	for i := range statsJobs {
		n := newJob(tenant, fmt.Sprint(i))
		n.Inputs, n.Quota.MaxRunning = []crawl.Input{{}}, statsJobs
		if _, err := st.Create(b.Context(), n); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for i := 0; i < b.N; i += statsJobs {
		if s, err := st.Stats(b.Context()); err != nil || s.Jobs[crawl.Queued] != statsJobs {
			b.Fatal(s, err)
		}
	}
}
