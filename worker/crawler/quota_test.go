package crawler_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// counted counts what workers ask of a store.
type counted struct {
	*store.Store
	begins, sweeps, exchanges atomic.Int64
}

func (c *counted) Begin(ctx context.Context, ring crawl.Ring) (*store.Slice, []crawl.Ring, error) {
	c.begins.Add(1)
	return c.Store.Begin(ctx, ring)
}

func (c *counted) Exchange(ctx context.Context, sl *store.Slice, x store.Exchange) (store.Exchanged, error) {
	c.exchanges.Add(1)
	return c.Store.Exchange(ctx, sl, x)
}

func (c *counted) Sweep(ctx context.Context) (store.Swept, error) {
	defer c.sweeps.Add(1)
	return c.Store.Sweep(ctx)
}

// The jobs of a tenant have no more pages of two workers than its day has. They wait
// without a slice for the next, and for nothing that anybody does.
func TestPagesPerDay(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		const limit, jobs, pages = 15, 2, 14
		s := crawltest.NewHandlerSite(t, gensite.New(1000, 0, 500, time.Millisecond))
		b := newBench(t, r)
		// The days of this test are what it says; the hours of each are as they are.
		var days atomic.Int64
		noon := (time.Now().UnixMilli()/dayMS+1)*dayMS + dayMS/2 - time.Now().UnixMilli()
		b.store = store.New(r.Client, store.Options{Sweeps: b.own, Now: func() int64 {
			return time.Now().UnixMilli() + noon + days.Load()*dayMS
		}})
		if _, err := b.store.SetQuota(t.Context(), b.tenant, crawl.Quota{PagesPerDay: limit}); err != nil {
			t.Fatal(err)
		}
		seen := &counted{Store: b.store}
		for range 2 {
			b.worker(t, func(o *crawler.ProcessOptions) { o.Store = seen })
		}
		var refs []crawl.JobRef
		for k := range jobs {
			var urls []string
			for i := range pages {
				urls = append(urls, s.URL+"/p/"+strconv.Itoa(k*pages+i))
			}
			plan := list(16)
			plan.Retention = 100 * time.Hour
			refs = append(refs, b.submit(t, plan, urls...))
		}
		look := func() (processed int64, rest bool) {
			rest = true
			for _, ref := range refs {
				j, err := b.store.Job(t.Context(), ref)
				if err != nil {
					t.Fatal(err)
				}
				processed += j.Processed
				rest = rest && (j.State.Terminal() || j.WaitingFor == crawl.WaitingTenantQuota && j.Position == 0)
			}
			return processed, rest
		}
		crawltest.Eventually(t, time.Minute, "the day to be used up", func() bool {
			n, rest := look()
			if n > limit {
				t.Fatalf("%d pages in a day, want %d", n, limit)
			}
			return n == limit && rest
		})
		// A job that found the other's pages in flight looks again, and then no more.
		asked, swept := int64(-1), int64(0)
		crawltest.Eventually(t, time.Minute, "ten sweeps in which no worker begins or asks for anything", func() bool {
			if n := seen.begins.Load() + seen.exchanges.Load(); n != asked {
				asked, swept = n, seen.sweeps.Load()
			}
			return seen.sweeps.Load() >= swept+10
		})
		if n, rest := look(); n != limit || !rest || len(s.Requests()) != limit {
			t.Errorf("%d pages, %d requests, want %d; at rest: %v", n, len(s.Requests()), limit, rest)
		}
		days.Add(1)
		for _, ref := range refs {
			if j := b.ended(t, ref, time.Minute); j.State != crawl.Completed || j.Accepted != pages {
				t.Errorf("after midnight: %+v", j)
			}
		}
	})
}

// dayMS is a day in ms.
const dayMS = int64(24 * time.Hour / time.Millisecond)
