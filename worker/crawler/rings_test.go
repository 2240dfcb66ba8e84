package crawler_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// belfry is a desk whose every answer asks for rings, and which notes those that were made.
type belfry struct {
	*desk
	job, other crawl.JobRef
	n          int64
	rung       map[crawl.JobRef]int
}

// asks answers so many rings of the job itself and one of another, which the gate let in.
func (b *belfry) asks(own int) (rings []crawl.Ring) {
	for range own {
		b.n++
		rings = append(rings, crawl.Ring{JobRef: b.job, N: b.n})
	}
	return append(rings, crawl.Ring{JobRef: b.other})
}

func (b *belfry) Begin(ctx context.Context, r crawl.Ring) (*store.Slice, []crawl.Ring, error) {
	sl, _, err := b.desk.Begin(ctx, r)
	return sl, b.asks(3), err
}

func (b *belfry) Exchange(ctx context.Context, sl *store.Slice, x store.Exchange) (store.Exchanged, error) {
	out, err := b.desk.Exchange(ctx, sl, x)
	if x.Retire {
		out.Rings = b.asks(3)
	}
	return out, err
}

func (b *belfry) End(context.Context, *store.Slice, time.Duration) ([]crawl.Ring, error) {
	return b.asks(3), nil
}

func (b *belfry) Ring(_ context.Context, rings ...crawl.Ring) error {
	for _, r := range rings {
		b.rung[r.JobRef]++
	}
	return nil
}

// While rings wait that no worker takes, a slice is rung for once, by whoever takes its
// place; rings for more of the same job would only stand before the first of another's.
func TestNoRingsForMoreOfAJobWhileOthersWait(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		waiting int64
		takes   time.Duration // a page
		own     int
		answers int // each of which let another job in
	}{
		"nobody waits":                  {0, time.Second, 6, 2},
		"others wait":                   {1, time.Second, 1, 2},
		"others wait for a slow slice":  {1, 20 * time.Second, 1, 3}, // which retires first
		"nobody waits for a slow slice": {0, 20 * time.Second, 6, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				leased := false
				b := &belfry{rung: map[crawl.JobRef]int{}}
				b.job = crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "")}
				b.other = crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "")}
				b.desk = &desk{
					exchange: func(x store.Exchange) store.Exchanged {
						out := grantAll(x)
						if x.Lease > 0 && !leased {
							leased = true
							out.Items = items("http://a.test/")
						}
						return out
					},
					waiting: func(context.Context) (int64, error) { return tc.waiting, nil },
				}
				b.plan = crawl.Plan{
					IgnoreRobots: true, Scope: "any", MaxPages: 100, Concurrency: 8, HostConcurrency: 8, Sources: []string{"*"},
					Retention: time.Hour,
				}
				sources, err := crawl.ParseSources("*")
				if err != nil {
					t.Fatal(err)
				}
				c := crawler.New(crawler.Options{
					Store: b, Doorbell: b, Fetcher: slow(tc.takes), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
					Sources: sources, Concurrency: 8, HostConcurrency: 8,
				})
				if err := c.Serve(t.Context(), crawl.Ring{JobRef: b.job}); err != nil {
					t.Error(err)
				}
				if d := cmp.Diff(map[crawl.JobRef]int{b.job: tc.own, b.other: tc.answers}, b.rung); d != "" {
					t.Errorf("rung (-want +got):\n%s", d)
				}
			})
		})
	}
}

// restless notes how long a slice that ends has its job rest.
type restless struct {
	*desk
	rest time.Duration
}

func (r *restless) End(_ context.Context, _ *store.Slice, rest time.Duration) ([]crawl.Ring, error) {
	r.rest = rest
	return nil, nil
}

// A plan that no worker can read makes its job rest: it would be rung for again and again.
func TestUnreadablePlanRests(t *testing.T) {
	t.Parallel()
	r := &restless{desk: &desk{plan: crawl.Plan{Site: true, Scope: "of another version", MaxPages: 1, Concurrency: 1}}}
	c := crawler.New(crawler.Options{
		Store: r, Doorbell: r, Fetcher: slow(0), Logger: slog.New(slog.DiscardHandler), Concurrency: 1, HostConcurrency: 1,
	})
	ref := crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "")}
	if err := c.Serve(t.Context(), crawl.Ring{JobRef: ref}); err == nil || r.rest < 10*time.Second {
		t.Errorf("%v, and the job rests for %v", err, r.rest)
	}
}
