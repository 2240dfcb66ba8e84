package crawler_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// aged is a store whose jobs are of a newer format than its process reads.
type aged struct{ *desk }

func (aged) Begin(context.Context, crawl.Ring) (*store.Slice, []crawl.Ring, error) {
	return nil, nil, store.ErrNewer
}

// The ring of a job of a newer format goes back to the queue as one that was not served, and the
// job is this process's again when a ring of it comes.
func TestNewerJobIsLeftAlone(t *testing.T) {
	t.Parallel()
	d := &desk{}
	c := crawler.New(crawler.Options{
		Store: aged{d}, Doorbell: d, Fetcher: slow(0), Logger: slog.New(slog.DiscardHandler), Concurrency: 1, HostConcurrency: 1,
	})
	ring := crawl.Ring{JobRef: crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "")}}
	for range 3 {
		if err := c.Serve(t.Context(), ring); !errors.Is(err, queue.ErrNewer) || !errors.Is(err, store.ErrNewer) {
			t.Errorf("served with %v", err)
		}
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// offered is a store that tells when a worker of its version begins a job.
type offered struct {
	*store.Store
	before func(context.Context)
	begun  chan<- error
}

func (o offered) Begin(ctx context.Context, r crawl.Ring) (*store.Slice, []crawl.Ring, error) {
	if o.before != nil {
		o.before(ctx)
	}
	sl, rings, err := o.Store.Begin(ctx, r)
	select {
	case o.begun <- err:
	default: // the test has heard enough
	}
	return sl, rings, err
}

// The ring of a job of a newer format comes back, again and again, until a worker of that version is
// there, and then the job runs to its end. Other jobs run meanwhile.
func TestNewerJobWaitsForItsWorker(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		s := crawltest.NewSite(t, []byte("-- a --\n-- b --\n"))
		b := newBench(t, r)
		newer := b.submit(t, site(10, 0, 2), s.URL+"/a", s.URL+"/b")
		key := "{t:" + newer.Tenant + "}:j:" + newer.ID
		if err := r.Client.HSet(t.Context(), key, "format", crawl.PlanVersion+1).Err(); err != nil {
			t.Fatal(err)
		}
		old := make(chan error, 100)
		b.worker(t, func(o *crawler.ProcessOptions) { o.Store = offered{b.store, nil, old} })
		for range 3 {
			if err := crawltest.Receive(t, time.Minute, "an older worker's try", old); !errors.Is(err, store.ErrNewer) {
				t.Errorf("an older worker began it: %v", err)
			}
		}
		other := b.submit(t, site(10, 0, 2), s.URL+"/a")
		if j := b.ended(t, other, time.Minute); j.State != crawl.Completed {
			t.Errorf("another job ended as %+v", j)
		}
		j, err := b.store.Job(t.Context(), newer)
		if err != nil || j.State != crawl.Queued || j.Queued != 2 || j.Total != 2 {
			t.Errorf("meanwhile it is %+v, %v", j, err)
		}
		// A worker of that version is one to which the format is none to mind.
		b.worker(t, func(o *crawler.ProcessOptions) {
			o.Store = offered{b.store, func(ctx context.Context) { r.Client.HDel(ctx, key, "format") }, nil}
		})
		if j := b.ended(t, newer, time.Minute); j.State != crawl.Completed || j.Accepted != 2 {
			t.Errorf("it ended as %+v", j)
		}
	})
}
