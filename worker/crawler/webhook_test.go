package crawler_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// A worker tells a job's webhook that it began and how it ended, by itself.
func TestWebhookOfAJob(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		b := newBench(t, r)
		told := make(chan crawl.Event, 10)
		site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.Method != http.MethodPost {
				return
			}
			var e crawl.Event
			if err := json.NewDecoder(q.Body).Decode(&e); err != nil {
				t.Error(err)
			}
			told <- e
		}))
		b.unknown(t, site)
		b.worker(t, func(o *crawler.ProcessOptions) { o.Deliveries = b.store })
		job := b.submit(t, crawl.Plan{
			MaxPages: 1, Concurrency: 1, Scope: crawl.ScopeAny, Webhook: &crawl.Webhook{URL: site.URL + "/hook", Events: crawl.EventTypes},
		}, site.URL+"/")
		var got []crawl.EventType
		for range 2 {
			e := crawltest.Receive(t, time.Minute, "event", told)
			got = append(got, e.Type)
			if e.Data.JobID != job.ID || e.Data.Total != 1 {
				t.Errorf("told %+v", e)
			}
		}
		if d := cmp.Diff([]crawl.EventType{crawl.EventRunning, crawl.EventCompleted}, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		crawltest.Eventually(t, time.Minute, "both listed as delivered", func() bool {
			e, err := b.store.WebhookEvents(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			return len(e) == 2 && e[0].State == store.EventDelivered && e[1].State == store.EventDelivered
		})
	})
}
