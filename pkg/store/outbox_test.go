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

// claimed claims what is due.
func (f *fixture) claimed(t *testing.T, c Claim) Claimed {
	t.Helper()
	got, err := f.ClaimDeliveries(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// delivered claims what is due of the tenant, and settles it as delivered.
func (f *fixture) delivered(t *testing.T) []Delivery {
	t.Helper()
	var all []Delivery
	for {
		got := f.claimed(t, Claim{Tenant: f.tenant, Most: 100, PerReceiver: 100}).Deliveries
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
		for expires, remove := range map[bool]func(t *testing.T, j crawl.JobRef){
			false: func(t *testing.T, j crawl.JobRef) {
				if err := f.Delete(t.Context(), j); err != nil {
					t.Fatal(err)
				}
			},
			true: func(t *testing.T, _ crawl.JobRef) { f.pass(time.Hour); f.heal(t) },
		} {
			n := f.job(t, "", 1)
			hook(&n, "http://r.test/")
			f.create(t, n)
			f.finish(t, n.Job)
			waits := f.job(t, "", 1)
			hook(&waits, "http://r.test/")
			f.create(t, waits)
			f.finish(t, waits.Job)
			c := f.claimed(t, Claim{Tenant: f.tenant, Most: 1, PerReceiver: 1})
			if len(c.Deliveries) != 1 {
				t.Fatalf("%+v", c)
			}
			f.claimed(t, Claim{Tenant: f.tenant, Most: 1, PerReceiver: 1, Receivers: map[string]int{"r.test": 1}})
			late := c.Deliveries
			remove(t, n.Job)
			remove(t, waits.Job)
			f.removed(t, expires, n.Job.ID, waits.Job.ID)
			_, err := f.WebhookEvents(t.Context(), n.Job)
			wantCode(t, err, crawl.CodeExpired)
			if s, err := f.SettleDelivery(t.Context(), &late[0], Result{Outcome: OutcomeRetry}); err != nil || !s.Stale {
				t.Errorf("a late try settled %+v, %v", s, err)
			}
			left, err := f.rdb.Exists(t.Context(), rootKey(f.tenant)+":outbox", rootKey(f.tenant)+":outbox:r.test", jobKey(n.Job)+":webhook").Result()
			if err != nil || left != 0 {
				t.Errorf("%d keys are left, %v", left, err)
			}
		}
		_, err := f.WebhookEvents(t.Context(), crawl.JobRef{Tenant: f.tenant, ID: crawl.NewJobID(f.tenant, "")})
		wantCode(t, err, crawl.CodeNotFound)
	})
}

// removed checks what the next claim says of the undelivered events of jobs that were removed:
// all is reported, once, of those whose retention was over, and nothing of a deleted one.
func (f *fixture) removed(t *testing.T, expired bool, ids ...string) {
	t.Helper()
	want := map[string]int{}
	for _, id := range ids {
		if expired {
			want[id] = 2
		}
	}
	got := map[string]int{}
	for range 2 {
		c := f.claimed(t, Claim{Tenant: f.tenant, Most: 9, PerReceiver: 9, Waiting: []string{"r.test"}})
		for _, e := range c.Expired {
			got[e.JobID] += e.Count
		}
		if len(c.Deliveries) != 0 || c.More || len(c.Waiting) != 0 {
			t.Errorf("claimed %+v", c)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("expired -want +got:\n%s", d)
	}
}

// What nobody was told of within the retention is reported before the sweep comes, too, and
// then the list says why.
func TestExpiredBeforeTheSweep(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		hook(&n, "http://r.test/")
		f.create(t, n)
		f.finish(t, n.Job)
		f.pass(time.Hour)
		f.removed(t, true, n.Job.ID)
		e, err := f.WebhookEvents(t.Context(), n.Job)
		if err != nil || len(e) != 2 {
			t.Fatal(e, err)
		}
		for _, e := range e {
			if e.State != EventFailed || !strings.Contains(e.Error, "retention") || !e.NextAt.IsZero() {
				t.Errorf("listed as %+v", e)
			}
		}
		f.heal(t)
		f.removed(t, false, n.Job.ID)
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
		var order []crawl.JobRef
		for i := range 251 {
			n := f.job(t, "", 1)
			n.Quota.MaxRunning = 300
			hook(&n, "http://busy.test/")
			if i == 250 {
				hook(&n, "http://free.test/")
			} else {
				order = append(order, n.Job)
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
			got := f.claimed(t, c)
			more = got.More
			if calls > 5 || !cmp.Equal(got.Waiting, []string{"busy.test"}) {
				t.Fatalf("call %d: events wait for %v", calls, got.Waiting)
			}
			for _, d := range got.Deliveries {
				if d.Receiver() != "free.test" || more {
					t.Errorf("claimed for %s (more: %v)", d.Receiver(), more)
				}
			}
			if len(got.Deliveries) == 1 {
				break
			}
		}
		// Without any time passing, all of them are there for who has room and asks for them.
		for i, want := range order {
			c := Claim{Tenant: f.tenant, Most: 4, PerReceiver: 1, Waiting: []string{"busy.test"}}
			got := f.claimed(t, c)
			if len(got.Deliveries) != 1 || got.Deliveries[0].Job != want || (len(got.Waiting) == 1) != (i < len(order)-1) {
				t.Fatalf("event %d: %d claimed, events wait for %v", i, len(got.Deliveries), got.Waiting)
			}
			if i == 0 {
				// Given back, it goes again.
				if _, err := f.SettleDelivery(t.Context(), &got.Deliveries[0], Result{Outcome: OutcomeRelease}); err != nil {
					t.Fatal(err)
				}
				got = f.claimed(t, Claim{Tenant: f.tenant, Most: 1, PerReceiver: 1})
			}
			if s, err := f.SettleDelivery(t.Context(), &got.Deliveries[0], Result{Outcome: OutcomeDelivered}); err != nil || s.Stale {
				t.Fatal(s, err)
			}
		}
	})
}

// A worker that never names the receiver finds what waits for it all the same, some time later.
func TestWaitingIsFoundUnasked(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		hook(&n, "http://busy.test/")
		f.create(t, n)
		f.finish(t, n.Job)
		c := Claim{Tenant: f.tenant, Most: 1, PerReceiver: 1, Receivers: map[string]int{"busy.test": 1}}
		if got := f.claimed(t, c); len(got.Deliveries) != 0 || len(got.Waiting) != 1 {
			t.Fatalf("%+v", got)
		}
		f.pass(10 * time.Second)
		if s := f.heal(t); len(s.Outbox) != 1 {
			t.Error("the sweep does not find it")
		}
		if got := f.delivered(t); len(got) != 2 {
			t.Errorf("%d delivered", len(got))
		}
		if n := f.rdb.Exists(t.Context(), rootKey(f.tenant)+":outbox:busy.test").Val(); n != 0 {
			t.Error("it still waits")
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
		got := f.claimed(t, Claim{Tenant: f.tenant, Most: 1, PerReceiver: 1}).Deliveries
		if len(got) != 1 {
			t.Fatal(got)
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
