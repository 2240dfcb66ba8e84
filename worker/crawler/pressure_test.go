package crawler_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// A slice of a Redis that is full leases nothing, ends at once, and its job rests for memory.
func TestNoLeaseFromAFullRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rest time.Duration
		var waits string
		d := &desk{
			exchange: func(x store.Exchange) store.Exchanged {
				t.Errorf("it asks for %+v", x)
				return grantAll(x)
			},
			pressure: func() float64 { return 0.99 },
			rests:    func(r time.Duration, what string) { rest, waits = r, what },
		}
		begun := time.Now()
		d.serve(t, slow(time.Second))
		if took := time.Since(begun); took != 0 || waits != crawl.WaitingMemory || rest <= time.Second || rest > 5*time.Second {
			t.Errorf("it ended after %v and rests %v for %q", took, rest, waits)
		}
	})
}

// What is in flight when Redis becomes full is committed, however long it takes; nothing is leased
// meanwhile, and the slice ends when it holds nothing.
func TestFullRedisLetsPagesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var leased, committed int
		var waits string
		d := &desk{
			exchange: func(x store.Exchange) store.Exchanged {
				out := grantAll(x)
				if committed += len(x.Commits); x.Lease > 0 {
					leased++
					out.Items, out.Queued = items("http://a.test/1", "http://a.test/2"), 100
				}
				return out
			},
			rests: func(_ time.Duration, what string) { waits = what },
		}
		d.pressure = func() float64 {
			if leased == 0 {
				return 0.5
			}
			return 0.99
		}
		d.serve(t, slow(20*time.Second))
		if leased != 1 || committed != 2 || waits != crawl.WaitingMemory {
			t.Errorf("%d leases, %d commits, and it waits for %q", leased, committed, waits)
		}
	})
}

// Between the marks a slice leases little and seldom; with memory again it goes on in full at once.
func TestNearlyFullRedisSlowsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		var asked []int
		full, next := 0.975, 0
		begun := time.Now()
		d := &desk{pressure: func() float64 { return full }}
		d.exchange = func(x store.Exchange) store.Exchanged {
			out := grantAll(x)
			if x.Lease == 0 {
				return out
			}
			at, asked = append(at, time.Since(begun)), append(asked, x.Lease)
			if len(at) == 4 {
				full = 0.5
			}
			if len(at) < 8 {
				out.Queued = 100
				for range x.Lease {
					next++
					out.Items = append(out.Items, crawl.Item{Kind: crawl.ItemPage, N: int64(next), URL: "http://a.test/" + strconv.Itoa(next)})
				}
			}
			return out
		}
		d.serve(t, slow(10*time.Millisecond))
		if len(at) < 6 {
			t.Fatalf("leases at %v", at)
		}
		for i := 1; i < 4; i++ {
			if gap := at[i] - at[i-1]; gap < 500*time.Millisecond || gap > time.Second {
				t.Errorf("lease %d after %v", i, gap)
			}
		}
		if !slices.Equal(asked[:4], []int{1, 1, 1, 1}) || slices.Max(asked[4:]) != 8 || at[len(at)-1]-at[4] > 500*time.Millisecond {
			t.Errorf("leases of %v at %v", asked, at)
		}
	})
}

// Results that a full Redis refuses are kept for as long as it takes; the slice is not given up.
func TestFullRedisKeepsResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const long = 10 * time.Minute
		var since time.Time
		var recorded, renewed int
		d := &desk{renew: func() { renewed++ }}
		d.fails = func(x store.Exchange) error {
			if len(x.Commits) == 0 {
				return nil
			}
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) < long {
				return crawl.Faultf(crawl.CodeOverloaded, "Redis is full.")
			}
			recorded += len(x.Commits)
			return nil
		}
		leased := false
		d.exchange = func(x store.Exchange) store.Exchanged {
			out := grantAll(x)
			if x.Lease > 0 && !leased {
				leased = true
				out.Items = items("http://a.test/1", "http://a.test/2", "http://a.test/3")
			}
			return out
		}
		d.serve(t, slow(time.Second)) // which fails the test when the slice fails
		if recorded != 3 || renewed < int(long/store.RenewEvery)-5 {
			t.Errorf("%d results recorded, %d renewals", recorded, renewed)
		}
	})
}

// refusing lets no slice begin.
type refusing struct{ *desk }

func (refusing) Begin(context.Context, crawl.Ring) (*store.Slice, []crawl.Ring, error) {
	return nil, nil, crawl.Faultf(crawl.CodeOverloaded, "Redis is full.")
}

// A ring that finds a full Redis is no failure: the queue would count it, and drop it in the end.
func TestRingOfAFullRedisIsDone(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	d := refusing{&desk{}}
	c := crawler.New(crawler.Options{
		Store: d, Doorbell: d, Logger: slog.New(slog.NewTextHandler(&log, nil)), Concurrency: 1, HostConcurrency: 1,
	})
	job := crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "")}
	for range 20 {
		if err := c.Serve(t.Context(), crawl.Ring{JobRef: job}); err != nil {
			t.Fatal(err)
		}
	}
	if log.Len() > 0 {
		t.Errorf("it says %s", &log)
	}
}

// A job on a Redis that is full, and then refuses all, rests and says why, ends nothing, burns no
// attempt, and goes on by itself (JOB-17).
func TestJobOutlastsAFullRedis(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	b := newBench(t, &r.Redis)
	var served atomic.Int64
	open := make(chan struct{})
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if served.Add(1) <= 4 {
			select {
			case <-open:
			case <-req.Context().Done():
			}
		}
	}))
	b.worker(t, nil)
	b.worker(t, nil)
	var urls []string
	for i := range 40 {
		urls = append(urls, s.URL+"/"+strconv.Itoa(i))
	}
	job := b.submit(t, list(4), urls...)
	crawltest.Eventually(t, 30*time.Second, "four pages in flight", func() bool { return served.Load() == 4 })
	limit := func(bytes string) {
		t.Helper()
		if err := r.Client.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
		_ = b.store.Ready(t.Context()) // asks anew
	}
	limit("1mb")
	close(open)
	look := func() crawl.Job {
		t.Helper()
		j, err := b.store.Job(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if !j.Consistent() || j.Failed > 0 || j.State.Terminal() {
			t.Fatalf("with a full Redis: %+v", j)
		}
		return j
	}
	crawltest.Eventually(t, 30*time.Second, "what was in flight to be recorded", func() bool { return look().Accepted == 4 })
	crawltest.Eventually(t, 30*time.Second, "the job to wait for memory", func() bool {
		j := look()
		return j.Active == 0 && j.WaitingFor == crawl.WaitingMemory
	})
	// Longer than a lease lives, and than a ring waits for its answer.
	for full := time.Now(); time.Since(full) < 15*time.Second; {
		next := time.NewTimer(500 * time.Millisecond)
		<-next.C
		if j := look(); j.Accepted != 4 || j.WaitingFor != crawl.WaitingMemory {
			t.Fatalf("with a full Redis: %+v", j)
		}
	}
	limit("0")
	if j := b.ended(t, job, 60*time.Second); j.State != crawl.Completed || j.Accepted != 40 {
		t.Errorf("ended as %+v", j)
	}
	for _, p := range b.records(t, job) {
		if p.Attempts != 1 {
			t.Errorf("%s took %d attempts", p.URL, p.Attempts)
		}
	}
	if n := served.Load(); n != 40 {
		t.Errorf("%d requests", n)
	}
}
