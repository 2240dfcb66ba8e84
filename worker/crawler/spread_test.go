package crawler_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// A ring for a job that is served here already is for another worker. It is this one's as soon as
// its slice has ended, or only ends what it has in flight.
func TestRingOfAJobThatIsServed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		takes  time.Duration // a page
		after  time.Duration // the other ring comes
		served bool
	}{
		"at work":  {5 * time.Second, time.Second, true},
		"ended":    {5 * time.Second, 6 * time.Second, false},
		"retiring": {40 * time.Second, 35 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				leased := false
				d := &desk{
					plan: crawl.Plan{
						IgnoreRobots: true, Scope: "any", MaxPages: 100, Concurrency: 8, HostConcurrency: 8, Sources: []string{"*"},
						Retention: time.Hour,
					},
					exchange: func(x store.Exchange) store.Exchanged {
						out := grantAll(x)
						if x.Lease > 0 && !leased {
							leased = true
							out.Items = items("http://a.test/")
						}
						return out
					},
				}
				sources, err := crawl.ParseSources("*")
				if err != nil {
					t.Fatal(err)
				}
				c := crawler.New(crawler.Options{
					Store: d, Doorbell: d, Fetcher: slow(tc.takes), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
					Sources: sources, Concurrency: 8, HostConcurrency: 8,
				})
				ring := crawl.Ring{JobRef: crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "")}}
				first := make(chan error, 1)
				go func() { first <- c.Serve(context.WithoutCancel(t.Context()), ring) }()
				timer := time.NewTimer(tc.after)
				<-timer.C
				if err := c.Serve(t.Context(), ring); errors.Is(err, queue.ErrServed) != tc.served || err != nil && !tc.served {
					t.Errorf("the other ring is answered %v", err)
				}
				if err := <-first; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
