package store

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// What a submission answers of its job is what a read of it answers, although it does not read it.
func TestCreatedIsAsRead(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(t *testing.T, f *fixture, n *NewJob){
		"list": func(*testing.T, *fixture, *NewJob) {},
		"without key": func(_ *testing.T, f *fixture, n *NewJob) {
			n.IdempotencyKey, n.Job.ID = "", crawl.NewJobID(f.tenant, "")
		},
		"tags":   func(_ *testing.T, _ *fixture, n *NewJob) { n.Tags = []string{"a", "b c"} },
		"retry":  func(_ *testing.T, _ *fixture, n *NewJob) { n.RetryOf = crawl.NewJobID("other", "first") },
		"bounds": func(_ *testing.T, _ *fixture, n *NewJob) { n.Plan.MaxBytes, n.Plan.MaxKeptBytes = 1<<40, 1<<41 },
		"webhook": func(_ *testing.T, _ *fixture, n *NewJob) {
			n.Plan.Webhook = &crawl.Webhook{URL: "https://hook.test/", Secret: "x", Events: []crawl.EventType{"job.queued"}}
		},
		"waits": func(t *testing.T, f *fixture, n *NewJob) {
			t.Helper()
			n.Quota.MaxRunning = 1
			for range 2 {
				before := f.job(t, "", 1)
				before.Quota = n.Quota
				f.create(t, before)
			}
		},
		"seeds": func(t *testing.T, _ *fixture, n *NewJob) {
			t.Helper()
			n.Plan.Site, n.Plan.Sitemap = true, crawl.SitemapInclude
			for i := range crawl.MaxSeeds {
				u, err := crawl.ParseURL(fmt.Sprintf("http://s%d.test/", i))
				if err != nil {
					t.Fatal(err)
				}
				n.Inputs = append(n.Inputs, crawl.Input{URL: u})
			}
		},
		"long list with doubles": func(t *testing.T, f *fixture, n *NewJob) {
			t.Helper()
			n.Inputs = append(f.job(t, "", 2500).Inputs, n.Inputs...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, f *fixture) {
				n := f.job(t, "key", 3)
				edit(t, f, &n)
				c := f.create(t, n)
				if d := cmp.Diff(f.read(t, n.Job), c.Job); d != "" {
					t.Errorf("(-read +answered):\n%s", d)
				}
				distinct := map[crawl.Key]bool{}
				for _, in := range n.Inputs {
					distinct[in.URL.Key()] = true
				}
				if c.Job.Total != int64(len(distinct)) || c.Job.Queued != c.Job.Total {
					t.Errorf("%d of %d URLs are queued, want %d", c.Job.Queued, c.Job.Total, len(distinct))
				}
				if waits := c.Job.Position > 0; waits == (len(c.Rings) == 1) || waits != (name == "waits") {
					t.Errorf("at position %d with rings %v", c.Job.Position, c.Rings)
				}
			})
		})
	}
}

// A job that passes the gate at once is there as one that the gate let in later.
func TestPassesAsByTheGate(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		q := crawl.Quota{MaxRunning: 1}
		first, _ := f.sends(t, "first", 2, q)
		second, _ := f.sends(t, "second", 2, q)
		rung := func(n NewJob) []string {
			var out []string
			for _, v := range f.rdb.HMGet(t.Context(), jobKey(n.Job), "rings", "ring_at", "rung", "state").Val() {
				out = append(out, str(v))
			}
			due := f.rdb.ZScore(t.Context(), rootKey(f.tenant)+":due", n.Job.ID).Val()
			in := f.rdb.SIsMember(t.Context(), rootKey(f.tenant)+":running", n.Job.ID).Val()
			return append(out, strconv.FormatInt(int64(due), 10), strconv.FormatBool(in))
		}
		atOnce := rung(first)
		if d := cmp.Diff([]string{"0", "", "", "queued", "0", "false"}, rung(second)); d != "" {
			t.Errorf("who waits (-want +got):\n%s", d)
		}
		if _, err := f.Cancel(t.Context(), first.Job); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(atOnce, rung(second)); d != "" {
			t.Errorf("by the gate (-at once +later):\n%s", d)
		}
	})
}

// A submission that the client sent again is answered as if its first answer had come.
func TestResentSubmissionIsAsTheFirst(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		again := f.through(t, r, createScript)
		for i, key := range []string{"runs", "", "waits"} { // two may run
			n := f.job(t, key, 2)
			c, err := again.Create(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			var want []crawl.Ring
			if i < 2 {
				want = []crawl.Ring{{JobRef: n.Job}}
			}
			if d := cmp.Diff(Created{Job: f.read(t, n.Job), Rings: want}, c); d != "" {
				t.Errorf("%q (-want +got):\n%s", key, d)
			}
		}
	})
}

// One round trip stores a job, and one answers what was stored before, whatever became of it.
func TestSubmissionIsOneTrip(t *testing.T) {
	t.Parallel()
	f := newFixture(t, crawltest.Mini(t)) // where no other test has the scripts forgotten
	f.create(t, f.job(t, "warm", 1))
	trips := func(what string, n NewJob, replayed bool) Created {
		t.Helper()
		before := f.Trips()
		c := f.create(t, n)
		if got := f.Trips() - before; got != 1 || c.Replayed != replayed {
			t.Errorf("%s: %d round trips, replayed %v", what, got, c.Replayed)
		}
		return c
	}
	n := f.job(t, "key", 2)
	trips("a new job", n, false)
	trips("a replay", n, true)
	f.finish(t, n.Job)
	f.pass(time.Minute)
	c := trips("a replay of an ended job", n, true)
	if d := cmp.Diff(f.read(t, n.Job), c.Job); d != "" || c.Job.State != crawl.Completed {
		t.Errorf("%s (-read +answered):\n%s", c.Job.State, d)
	}
}
