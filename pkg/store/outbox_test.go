package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// hook has a job ask for all events.
func hook(n *NewJob, url string) {
	n.Plan.Webhook = &crawl.Webhook{URL: url, Events: crawl.EventTypes}
}

// claimed claims what is due of the tenant, and settles it as delivered.
func (f *fixture) delivered(t *testing.T) []Delivery {
	t.Helper()
	var all []Delivery
	for {
		got, _, err := f.ClaimDeliveries(t.Context(), Claim{Tenant: f.tenant, Most: 100, PerReceiver: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 {
			return all
		}
		for i := range got {
			s, err := f.SettleDelivery(t.Context(), &got[i], Result{Outcome: OutcomeDelivered, Status: 200})
			if err != nil || s.State != EventDelivered {
				t.Fatalf("%+v, %v", s, err)
			}
		}
		all = append(all, got...)
	}
}

// The numbers of deliveries that stand in Lua and in Go are the same.
func TestDeliveryNumbers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"deliver.lua": fmt.Sprintf("local CLAIM = %d ", DeliveryClaim.Milliseconds()),
		"settle.lua":  fmt.Sprintf("local MAX_TRIES = %d ", DeliveryTries),
	} {
		if !strings.Contains(mustRead(name), want) {
			t.Errorf("%s does not say %q", name, want)
		}
	}
	if !strings.Contains(mustRead("deliver.lua"), fmt.Sprintf("local MAX_TRIES = %d ", DeliveryTries)) {
		t.Error("deliver.lua has another number of tries")
	}
}

// Whatever ends a job, its webhook is told once, and what it is told is what a status says.
func TestEndsAreTold(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		fail := func(t *testing.T, it crawl.Item) Commit {
			return Commit{Item: it, Failed: &crawl.Failure{SourceURL: it.URL, URL: it.URL, ErrorType: "http_404"}, Why: "It is gone."}
		}
		for _, tt := range []struct {
			name   string
			site   bool
			commit func(*testing.T, crawl.Item) Commit
			then   func(t *testing.T, n NewJob, sl *Slice)
			want   crawl.EventType
		}{
			{"all accepted", false, accept, nil, crawl.EventCompleted},
			{"some failed", false, fail, nil, crawl.EventCompletedWithErrors},
			{"no seed", true, fail, nil, crawl.EventFailed},
			{"cancelled", false, nil, func(t *testing.T, n NewJob, _ *Slice) {
				if _, err := f.Cancel(t.Context(), n.Job); err != nil {
					t.Fatal(err)
				}
				f.pass(Grace)
				f.heal(t)
			}, crawl.EventCancelled},
			{"out of time", false, nil, func(t *testing.T, n NewJob, sl *Slice) {
				f.pass(time.Minute)
				f.heal(t)
				f.pass(Grace)
				f.heal(t)
			}, crawl.EventCancelled},
		} {
			n := f.job(t, "", 2)
			n.Plan.Site, n.Plan.TimeLimit, n.Tags = tt.site, time.Minute, []string{"nightly"}
			hook(&n, "http://r.test/")
			f.create(t, n)
			sl := f.begin(t, n.Job)
			started := f.at()
			items := f.exchange(t, sl, Exchange{Lease: 2}).Items
			if tt.commit != nil {
				for _, it := range items {
					f.exchange(t, sl, Exchange{Commits: []Commit{tt.commit(t, it)}})
				}
			} else {
				tt.then(t, n, sl)
			}
			j := f.read(t, n.Job)
			got := f.delivered(t)
			if len(got) != 2 {
				t.Fatalf("%s: %d events", tt.name, len(got))
			}
			if e := got[0].Event; e.Type != crawl.EventRunning || e.Data.State != crawl.Running || e.Data.Queued != 2 ||
				e.Timestamp != crawl.Timestamp(started) {
				t.Errorf("%s: began with %+v", tt.name, e)
			}
			if d := cmp.Diff(crawl.NewEvent(tt.want, j.EndedAt, &j), got[1].Event); d != "" {
				t.Errorf("%s: -status +event:\n%s", tt.name, d)
			}
			if got[0].EventID == got[1].EventID || strings.Contains(got[0].EventID, ".") {
				t.Errorf("%s: ids %q and %q", tt.name, got[0].EventID, got[1].EventID)
			}
		}
	})
}

// JOB-11: a cancel of a job with 500 known links is one event, and none about a page.
func TestCancelIsOneEventJOB11(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 500)
		n.Plan.Concurrency = 20
		hook(&n, "http://r.test/")
		f.create(t, n)
		sl := f.begin(t, n.Job)
		for _, it := range f.exchange(t, sl, Exchange{Lease: 20}).Items {
			f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, it)}})
		}
		for range 2 { // a cancel may come twice
			if _, err := f.Cancel(t.Context(), n.Job); err != nil {
				t.Fatal(err)
			}
		}
		f.heal(t)
		j := f.read(t, n.Job)
		tried := j.Accepted
		if tried == 0 || j.Failed != 0 || j.Cancelled != 500-tried || !j.Consistent() {
			t.Errorf("ended as %+v", j)
		}
		if p, err := f.Failures(t.Context(), n.Job, 0, 10); err != nil || len(p.Failures) != 0 {
			t.Errorf("failures of pages never tried: %+v, %v", p, err)
		}
		var got []crawl.EventType
		for _, d := range f.delivered(t) {
			got = append(got, d.Event.Type)
			if x := d.Event.Data; d.Event.Type == crawl.EventCancelled && (x.Cancelled != 500-tried || x.Accepted != tried || x.Total != 500) {
				t.Errorf("told %+v", x)
			}
		}
		if d := cmp.Diff([]crawl.EventType{crawl.EventRunning, crawl.EventCancelled}, got); d != "" {
			t.Errorf("JOB-11: events -want +got:\n%s", d)
		}
	})
}

// Events go with their job, however it goes, delivered or not.
func TestEventsGoWithTheJob(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		for _, remove := range []func(t *testing.T, j crawl.JobRef){
			func(t *testing.T, j crawl.JobRef) {
				if err := f.Delete(t.Context(), j); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, _ crawl.JobRef) { f.pass(time.Hour); f.heal(t) },
		} {
			n := f.job(t, "", 1)
			hook(&n, "http://r.test/")
			f.create(t, n)
			f.finish(t, n.Job)
			late, _, err := f.ClaimDeliveries(t.Context(), Claim{Tenant: f.tenant, Most: 1, PerReceiver: 1})
			if err != nil || len(late) != 1 {
				t.Fatalf("%+v, %v", late, err)
			}
			remove(t, n.Job)
			_, err = f.WebhookEvents(t.Context(), n.Job)
			wantCode(t, err, crawl.CodeExpired)
			if s, err := f.SettleDelivery(t.Context(), &late[0], Result{Outcome: OutcomeRetry}); err != nil || !s.Stale {
				t.Errorf("a late try settled %+v, %v", s, err)
			}
			left, err := f.rdb.Exists(t.Context(), rootKey(f.tenant)+":outbox", jobKey(n.Job)+":webhook").Result()
			if err != nil || left != 0 {
				t.Errorf("%d keys are left, %v", left, err)
			}
		}
		_, err := f.WebhookEvents(t.Context(), crawl.JobRef{Tenant: f.tenant, ID: crawl.NewJobID(f.tenant, "")})
		wantCode(t, err, crawl.CodeNotFound)
	})
}

// A job without a webhook, or without a wish for what happens, leaves nothing to deliver.
func TestNobodyToTell(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		other := f.job(t, "", 1)
		other.Plan.Webhook = &crawl.Webhook{URL: "http://r.test/", Events: []crawl.EventType{crawl.EventCompletedWithErrors}}
		for _, n := range []NewJob{n, other} {
			f.create(t, n)
			f.finish(t, n.Job)
			if e, err := f.WebhookEvents(t.Context(), n.Job); err != nil || len(e) != 0 {
				t.Errorf("events %+v, %v", e, err)
			}
		}
		if s := f.heal(t); len(s.Outbox) != 0 || len(f.delivered(t)) != 0 {
			t.Errorf("there is something to deliver: %+v", s)
		}
	})
}

// Hundreds of events for a receiver that has enough in flight do not hide those for another.
func TestBusyReceiver(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		for i := range 251 {
			n := f.job(t, "", 1)
			n.Quota.MaxRunning = 300
			hook(&n, "http://busy.test/")
			if i == 250 {
				hook(&n, "http://free.test/")
			}
			f.create(t, n)
			if _, err := f.Cancel(t.Context(), n.Job); err != nil {
				t.Fatal(err)
			}
			f.pass(time.Millisecond)
		}
		c := Claim{Tenant: f.tenant, Most: 4, PerReceiver: 2, Receivers: map[string]int{"busy.test": 2}}
		calls := 0
		for more := true; more; calls++ {
			var got []Delivery
			var err error
			if got, more, err = f.ClaimDeliveries(t.Context(), c); err != nil || calls > 5 {
				t.Fatalf("call %d: %v", calls, err)
			}
			for _, d := range got {
				if d.Receiver() != "free.test" || more {
					t.Errorf("claimed for %s (more: %v)", d.Receiver(), more)
				}
			}
			if len(got) == 1 {
				break
			}
		}
		f.pass(3 * time.Second)
		c.Receivers = nil
		if got, more, err := f.ClaimDeliveries(t.Context(), c); err != nil || len(got) != 2 || !more {
			t.Errorf("once the receiver has room: %d, more %v, %v", len(got), more, err)
		}
	})
}

// A tenant that rests between two tries is found again when the next is due.
func TestSweepFindsTheNextTry(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		hook(&n, "http://r.test/")
		f.create(t, n)
		f.finish(t, n.Job)
		if s := f.heal(t); !cmp.Equal(s.Outbox, []string{f.tenant}) {
			t.Errorf("found %v", s.Outbox)
		}
		got, _, err := f.ClaimDeliveries(t.Context(), Claim{Tenant: f.tenant, Most: 1, PerReceiver: 1})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		if s, err := f.SettleDelivery(t.Context(), &got[0], Result{Outcome: OutcomeRetry, After: 10 * time.Second, Status: 302}); err != nil || s.Due {
			t.Errorf("%+v, %v", s, err)
		}
		e, err := f.WebhookEvents(t.Context(), n.Job)
		if err != nil || !e[0].NextAt.Equal(f.at().Add(10*time.Second)) || e[0].Status != 302 || !e[1].NextAt.IsZero() {
			t.Errorf("%+v, %v", e, err)
		}
		f.pass(10*time.Second - time.Millisecond)
		if s := f.heal(t); len(s.Outbox) != 0 {
			t.Errorf("too early: %v", s.Outbox)
		}
		if awake := f.awake([]string{f.tenant}); len(awake) != 1 {
			t.Error("the tenant is taken for idle")
		}
		f.pass(time.Millisecond)
		if s := f.heal(t); len(s.Outbox) != 1 {
			t.Error("not found when it is due")
		}
	})
}
