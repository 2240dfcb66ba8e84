package store

import (
	"testing"
	"time"

	"example.com/trawl/pkg/crawltest"
)

// What a commit sends back under another row, a redirect to another origin, is leased by
// the same round trip when nothing else is queued: the slice is told of it then, and not
// when it asks again, which can be seconds later.
func TestRedirectLeasedInTheSameExchange(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		n := f.job(t, "", 3)
		f.create(t, n)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 3}).Items
		// A Redis that knows the script of a commit carries it out before the lease.
		f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, items[2])}})
		out := f.exchange(t, sl, Exchange{
			Commits: []Commit{{Item: items[1], Redirect: &Redirect{URL: "http://other.test/x", Hops: 1}}},
			Lease:   1, Holding: 1,
		})
		if len(out.Items) != 1 || out.Items[0].FetchURL != "http://other.test/x" {
			j := f.read(t, n.Job)
			t.Errorf("told of %+v, while %d URLs are leased, of which it knew one", out.Items, j.Active)
		}
	})
}

// A slice that wants no slot of a host any more stands in its line no more: a slot that is
// kept for it, or a lower limit that it had, would keep the others from the host.
func TestLineForgetsWhoLeaves(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		host := crawltest.Random() + ".test"
		ask := func(first int64, limit int) Exchange {
			return Exchange{Reserves: []HostReserve{{Host: host, First: first, N: 1, Concurrency: limit}}}
		}
		var slices []*Slice
		for range 3 {
			n := f.job(t, "", 1)
			n.Quota.MaxRunning = 3
			f.create(t, n)
			slices = append(slices, f.begin(t, n.Job))
		}
		holds, leaves, comes := slices[0], slices[1], slices[2]
		if g := f.exchange(t, holds, ask(1, 1)).Grants[0]; len(g.Starts) != 1 {
			t.Fatalf("the first was granted %+v", g)
		}
		if g := f.exchange(t, leaves, ask(1, 1)).Grants[0]; g.Wait >= 0 {
			t.Fatalf("the second was granted %+v", g)
		}
		f.exchange(t, leaves, Exchange{Leave: []HostLeave{{Host: host, Concurrency: 1}}})
		f.exchange(t, holds, Exchange{Free: []HostSlots{{Host: host, Slots: []int64{1}}}})
		f.pass(10 * time.Millisecond)
		if g := f.exchange(t, comes, ask(1, 1)).Grants[0]; len(g.Starts) != 1 {
			t.Errorf("granted %+v: the slot is kept for a slice that left", g)
		}
	})
}

// A slice that found only shut hosts has the job rest. One that worked beside it, and
// ends later with URLs left, has the job go on: its hosts are open.
func TestRestIsOverWhenAnotherSliceWorked(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		n := f.job(t, "", 200)
		n.Plan.Concurrency = 8 // two slices
		f.create(t, n)
		barren, works := f.begin(t, n.Job), f.begin(t, n.Job)
		it := f.exchange(t, works, Exchange{Lease: 1}).Items[0]
		if _, err := f.End(t.Context(), barren, HostHorizon); err != nil {
			t.Fatal(err)
		}
		f.pass(100 * time.Millisecond)
		f.exchange(t, works, Exchange{Commits: []Commit{accept(t, it)}})
		rings, err := f.End(t.Context(), works, NoRest)
		if err != nil || len(rings) == 0 {
			t.Errorf("rings %v, %v: the job rests with 199 URLs queued", rings, err)
		}
	})
}

// A host whose shard does not answer as it should costs a slice that host and no more:
// neither its lease, nor what it commits.
func TestHostThatFails(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 2)
		f.create(t, n)
		sl := f.begin(t, n.Job)
		host := crawltest.Random() + ".test"
		if err := f.rdb.Set(t.Context(), hostKey(host, "slots"), "no such thing", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		out := f.exchange(t, sl, Exchange{Lease: 1, Reserves: []HostReserve{{Host: host, First: 1, N: 1, Concurrency: 1}}})
		if len(out.Items) != 1 || len(out.Grants[0].Starts) != 0 || out.Grants[0].Wait >= 0 {
			t.Errorf("leased %+v, granted %+v", out.Items, out.Grants)
		}
		f.pass(LeaseTime - time.Millisecond)
		if r, err := f.Renew(t.Context(), sl, HostSlots{Host: host, Slots: []int64{1}}); err != nil || r.State != "running" {
			t.Errorf("renewed %+v, %v", r, err)
		}
		f.pass(LeaseTime - time.Millisecond)
		f.heal(t)
		c := f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, out.Items[0])}, Free: []HostSlots{{Host: host, Slots: []int64{1}}}})
		if c.Committed[0].Verdict != Done {
			t.Errorf("committed %+v", c.Committed[0])
		}
	})
}
