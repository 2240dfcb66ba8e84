package crawler_test

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// More jobs than a host has slots keep it as busy as one job does: a slot that is kept
// for whoever stands first in line is no use while that one does not ask (promise 8
// shares the host, it does not shut it).
func TestSharedHostIsKeptBusy(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	const page, slots, jobs, pages = 50 * time.Millisecond, 2, 4, 12
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select { // the time that a page takes
		case <-r.Context().Done():
		case <-time.After(page):
		}
	}))
	b.worker(t, nil)
	plan := list(4)
	plan.HostConcurrency = slots
	var refs []crawl.JobRef
	for k := range jobs {
		var urls []string
		for i := range pages {
			urls = append(urls, s.URL+"/"+strconv.Itoa(k)+"/"+strconv.Itoa(i))
		}
		refs = append(refs, b.submit(t, plan, urls...))
	}
	for _, job := range refs {
		b.ended(t, job, 60*time.Second)
	}
	log := s.Requests()
	took, least := log[len(log)-1].At.Sub(log[0].At), jobs*pages*page/slots
	if took > 4*least {
		t.Errorf("%d pages took %v, the host alone needs %v", len(log), took, least)
	}
}

// broken loses the answers of a desk while it says so.
type broken struct {
	*desk
	lost func(store.Exchange) bool
}

func (b broken) Exchange(ctx context.Context, sl *store.Slice, x store.Exchange) (store.Exchanged, error) {
	out, err := b.desk.Exchange(ctx, sl, x)
	if b.lost(x) {
		return store.Exchanged{}, crawl.Faultf(crawl.CodeUnavailable, "The store did not answer.")
	}
	return out, err
}

// The host slots that a lost answer granted are given back, or asked for again under the
// same numbers: else a host of few slots is shut to everybody until their deadline.
func TestSlotsOfALostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leased, granted, healed := false, int64(0), false
		d := &desk{exchange: func(x store.Exchange) store.Exchanged {
			out := grantAll(x)
			if x.Lease > 0 && !leased {
				leased = true
				out.Items = items("http://a.test/")
			}
			for _, f := range x.Free {
				for _, k := range f.Slots {
					healed = healed || k == granted
				}
			}
			for _, r := range x.Reserves {
				healed = healed || r.First == granted
			}
			return out
		}}
		sources, err := crawl.ParseSources("*")
		if err != nil {
			t.Fatal(err)
		}
		d.plan = crawl.Plan{
			IgnoreRobots: true,
			Scope:        "any", MaxPages: 100, Concurrency: 8, HostConcurrency: 8, Sources: []string{"*"},
			Retention: time.Hour,
		}
		c := crawler.New(crawler.Options{
			Store: broken{d, func(x store.Exchange) bool {
				if len(x.Reserves) == 0 || granted != 0 {
					return false
				}
				granted = x.Reserves[0].First
				return true
			}}, Doorbell: d, Fetcher: slow(time.Second), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Sources: sources, Concurrency: 8, HostConcurrency: 8,
		})
		job := crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "")}
		if err := c.Serve(t.Context(), crawl.Ring{JobRef: job}); err != nil {
			t.Error(err)
		}
		if granted == 0 || !healed {
			t.Errorf("slot %d of a lost answer is neither given back nor asked for again", granted)
		}
	})
}
