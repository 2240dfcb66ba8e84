package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// A plan comes back as it was stored, secrets and all, while the job runs and when it has ended.
func TestPlan(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		def := modelCollection
		n.Plan = crawl.Plan{
			MaxPages: 1, Scope: crawl.ScopeAny, Sources: []string{"*"}, Concurrency: 3, Delay: time.Second, TimeLimit: time.Hour,
			Retention: time.Hour, HostConcurrency: 2, Headers: crawl.Headers{"Authorization": "Bearer hush"},
			HeaderOrigins: []string{"http://site.test"}, Formats: []string{crawl.FormatText}, Collection: &def, Series: "one",
			Fields: crawl.Fields{{Name: "title", Field: crawl.Field{Selector: "h1"}}},
			Webhook: &crawl.Webhook{
				URL: "https://hook.test/x", Secret: "whsec_aHVzaA==", Events: []crawl.EventType{crawl.EventRunning, crawl.EventFailed},
			},
		}
		f.create(t, n)
		for _, state := range []string{"queued", "ended"} {
			got, err := f.Plan(t.Context(), n.Job)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(n.Plan, got); d != "" {
				t.Errorf("%s: -stored +read:\n%s", state, d)
			}
			if state == "queued" {
				f.finish(t, n.Job)
			}
		}

		bare := f.job(t, "bare", 1)
		f.create(t, bare)
		if p, err := f.Plan(t.Context(), bare.Job); err != nil || p.Webhook != nil {
			t.Errorf("without a webhook: %+v, %v", p.Webhook, err)
		}
	})
}

func TestPlanFaults(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		if _, err := f.Plan(t.Context(), n.Job); crawl.CodeOf(err) != crawl.CodeNotFound {
			t.Errorf("of no job: %v", err)
		}
		f.create(t, n)
		if err := f.rdb.HSet(t.Context(), jobKey(n.Job), "format", crawl.PlanVersion+1).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Plan(t.Context(), n.Job); crawl.CodeOf(err) != crawl.CodeWrongState {
			t.Errorf("of a newer job: %v", err)
		}
		if err := f.rdb.HDel(t.Context(), jobKey(n.Job), "format").Err(); err != nil { // as an older one
			t.Fatal(err)
		}
		if _, err := f.Plan(t.Context(), n.Job); err != nil {
			t.Errorf("of an older job: %v", err)
		}
		f.finish(t, n.Job)
		if err := f.Delete(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Plan(t.Context(), n.Job); crawl.CodeOf(err) != crawl.CodeExpired {
			t.Errorf("of a tombstone: %v", err)
		}
		lost := f.job(t, "lost", 1)
		f.create(t, lost)
		if err := f.rdb.Del(t.Context(), jobKey(lost.Job)+":plan").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Plan(t.Context(), lost.Job); crawl.CodeOf(err) != crawl.CodeInternal {
			t.Errorf("that is lost: %v", err)
		}
	})
}
