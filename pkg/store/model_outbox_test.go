package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// outboxModel says which events there must be, and who may deliver which of them, after any
// interleaving of jobs that begin and end, claims, lost answers, killed workers, late
// settlings, sweeps and time. It is written from the contract.
type outboxModel struct {
	st     *Store
	tenant string
	now    int64
	jobs   []*modelJob
	held   []*modelClaim // that some worker still knows of
}

type modelJob struct {
	ref       crawl.JobRef
	receiver  string
	wants     map[crawl.EventType]bool
	retention int64
	state     crawl.State
	expires   int64
	gone      bool
	events    []*modelEvent
	head      int         // of events
	claim     *modelClaim // that holds, or lapsed and was not taken over
	due       int64       // place in the outbox
	waits     int64       // place in the line of its receiver; 0 when it is in none
	untold    int         // events that are to be reported as expired
	ids       map[string]crawl.EventType
}

type modelEvent struct {
	of     crawl.EventType
	state  EventState
	tries  int
	status int
}

type modelClaim struct {
	d       Delivery
	job     *modelJob
	event   int
	settled EventState // what settling it answered; empty before
}

func (m *outboxModel) create(ctx context.Context, t *rapid.T) {
	if len(m.jobs) == 4 {
		t.Skip("enough jobs")
	}
	j := &modelJob{
		ref:      crawl.JobRef{Tenant: m.tenant, ID: crawl.NewJobID(m.tenant, "")},
		receiver: rapid.SampledFrom([]string{"a.test", "b.test:8080"}).Draw(t, "receiver"),
		wants:    map[crawl.EventType]bool{}, state: crawl.Queued, ids: map[string]crawl.EventType{},
		retention: rapid.SampledFrom([]int64{60_000, 3_600_000, 72 * 3_600_000}).Draw(t, "retention"),
	}
	events := rapid.SampledFrom([][]crawl.EventType{
		crawl.EventTypes, crawl.EndEvents, {crawl.EventRunning}, {crawl.EventCompleted, crawl.EventCompletedWithErrors},
	}).Draw(t, "events")
	for _, e := range events {
		j.wants[e] = true
	}
	n := NewJob{
		Job: j.ref, Spec: []byte(`{}`), Quota: crawl.Quota{MaxRunning: 10}, Tags: []string{"x"},
		Inputs: []crawl.Input{{URL: url(t, 1)}, {URL: url(t, 2)}},
		Plan: crawl.Plan{
			MaxPages: 2, Concurrency: 2, Retention: time.Duration(j.retention) * time.Millisecond,
			Webhook: &crawl.Webhook{URL: "http://" + j.receiver + "/hook?x=1", Events: events, Secret: "whsec_x"},
		},
	}
	if _, err := m.st.Create(ctx, n); err != nil {
		t.Fatal(err)
	}
	m.jobs = append(m.jobs, j)
}

func (m *outboxModel) pick(t *rapid.T, states ...crawl.State) *modelJob {
	var some []*modelJob
	for _, j := range m.jobs {
		if slices.Contains(states, j.state) {
			some = append(some, j)
		}
	}
	if len(some) == 0 {
		t.Skip("no such job")
	}
	return rapid.SampledFrom(some).Draw(t, "job")
}

func (m *outboxModel) begin(ctx context.Context, t *rapid.T) {
	j := m.pick(t, crawl.Queued)
	if sl, _, err := m.st.Begin(ctx, crawl.Ring{JobRef: j.ref}); err != nil || sl == nil {
		t.Fatalf("slice %v, %v", sl, err)
	}
	j.state = crawl.Running
	m.event(j, crawl.EventRunning)
}

func (m *outboxModel) cancel(ctx context.Context, t *rapid.T) {
	j := m.pick(t, crawl.Queued, crawl.Running)
	if r, err := m.st.Cancel(ctx, j.ref); err != nil || r.State != crawl.Cancelled {
		t.Fatalf("%+v, %v", r, err)
	}
	j.state, j.expires = crawl.Cancelled, m.now+j.retention
	m.event(j, crawl.EventCancelled)
}

func (m *outboxModel) event(j *modelJob, of crawl.EventType) {
	if !j.wants[of] {
		return
	}
	j.events = append(j.events, &modelEvent{of: of, state: EventPending})
	if j.claim == nil {
		j.due = m.now // the head is tried now, whatever it waited for
	}
}

// pending are the jobs of the outbox in the order in which they are due.
func (m *outboxModel) pending() []*modelJob {
	var some []*modelJob
	for _, j := range m.jobs {
		if j.head < len(j.events) || j.untold > 0 {
			some = append(some, j)
		}
	}
	slices.SortFunc(some, func(a, b *modelJob) int {
		return cmp.Or(cmp.Compare(a.due, b.due), strings.Compare(a.ref.ID, b.ref.ID))
	})
	return some
}

// claim is what a worker does that knows of no other; one that is killed, or never sees the
// answer, is one that does not settle.
func (m *outboxModel) claim(ctx context.Context, t *rapid.T) {
	c := Claim{
		Tenant: m.tenant, Most: rapid.IntRange(1, 4).Draw(t, "most"), PerReceiver: rapid.IntRange(1, 2).Draw(t, "per receiver"),
		Receivers: map[string]int{},
	}
	if rapid.Bool().Draw(t, "one in flight") {
		c.Receivers["a.test"] = 1
	}
	for _, host := range []string{"a.test", "b.test:8080"} {
		if rapid.Bool().Draw(t, "asks for "+host) {
			c.Waiting = append(c.Waiting, host)
		}
	}
	want, wanted := m.expect(&c)
	got, err := m.st.ClaimDeliveries(ctx, c)
	if err != nil || len(got.Deliveries) != len(want) || got.More != wanted.More ||
		!slices.Equal(slices.Sorted(slices.Values(got.Waiting)), slices.Sorted(slices.Values(wanted.Waiting))) ||
		!slices.Equal(got.Expired, wanted.Expired) {
		t.Fatalf("claimed %+v, %v; want %d and %+v", got, err, len(want), wanted)
	}
	lost := rapid.IntRange(0, 4).Draw(t, "the answer is lost") == 0
	for i, j := range want {
		e := j.events[j.head]
		e.tries++
		d := got.Deliveries[i]
		if d.Job != j.ref || d.Event.Type != e.of || d.Try != e.tries || d.Now.UnixMilli() != m.now || d.Receiver() != j.receiver ||
			d.Secret != "whsec_x" || d.URL != "http://"+j.receiver+"/hook?x=1" {
			t.Fatalf("claimed %+v, want try %d of %s of %+v", d, e.tries, e.of, j)
		}
		m.snapshot(t, j, &d)
		j.claim, j.due = &modelClaim{d: d, job: j, event: j.head}, m.now+DeliveryClaim.Milliseconds()
		if !lost {
			m.held = append(m.held, j.claim)
		}
	}
}

// expect says what a claim is to answer: the jobs that it is to take, and the rest.
func (m *outboxModel) expect(c *Claim) (want []*modelJob, all Claimed) {
	busy := maps.Clone(c.Receivers)
	wait := func(host string) {
		if !slices.Contains(all.Waiting, host) {
			all.Waiting = append(all.Waiting, host)
		}
	}
	look := func(j *modelJob) {
		if n := m.lapse(j); n > 0 {
			all.Expired = append(all.Expired, ExpiredEvents{JobID: j.ref.ID, Count: n})
			return
		}
		if e := j.events[j.head]; j.claim != nil && e.tries == DeliveryTries {
			e.state, e.status, j.claim = EventFailed, 0, nil
			if j.head++; j.head == len(j.events) {
				j.waits = 0
				return
			}
		}
		if busy[j.receiver] >= c.PerReceiver {
			if j.waits == 0 {
				j.waits = j.due
			}
			j.due = m.now + 10_000
			wait(j.receiver)
			return
		}
		busy[j.receiver]++
		j.waits, j.due = 0, m.now+DeliveryClaim.Milliseconds()
		want = append(want, j)
	}
	for _, host := range c.Waiting {
		line := m.line(host)
		places := max(0, min(c.Most-len(want), c.PerReceiver-busy[host]))
		for _, j := range line[:min(places, len(line))] {
			look(j)
		}
		if len(m.line(host)) > 0 {
			wait(host)
		}
	}
	for _, j := range m.pending() {
		if j.due > m.now {
			break
		}
		if len(want) == c.Most {
			all.More = true
			break
		}
		look(j)
	}
	return want, all
}

// line are the jobs that wait for a receiver, in the order in which they go.
func (m *outboxModel) line(host string) []*modelJob {
	var some []*modelJob
	for _, j := range m.jobs {
		if j.receiver == host && j.waits > 0 {
			some = append(some, j)
		}
	}
	slices.SortFunc(some, func(a, b *modelJob) int {
		return cmp.Or(cmp.Compare(a.waits, b.waits), strings.Compare(a.ref.ID, b.ref.ID))
	})
	return some
}

// lapse answers how many events a claim is to report as expired, and gives them up.
func (m *outboxModel) lapse(j *modelJob) int {
	n := j.untold
	if !j.gone && j.expires > 0 && m.now >= j.expires {
		n = len(j.events) - j.head
		for _, e := range j.events[j.head:] {
			e.state = EventFailed
		}
		j.head, j.claim, j.waits = len(j.events), nil, 0
	}
	j.untold = 0
	return n
}

// snapshot checks that an event says what was true when it happened, under one id for ever.
func (m *outboxModel) snapshot(t *rapid.T, j *modelJob, d *Delivery) {
	if of, ok := j.ids[d.EventID]; ok && of != d.Event.Type {
		t.Fatalf("%s is the id of %s and of %s", d.EventID, of, d.Event.Type)
	}
	j.ids[d.EventID] = d.Event.Type
	if len(j.ids) > len(j.events) {
		t.Fatalf("%d events have %d ids", len(j.events), len(j.ids))
	}
	x := d.Event.Data
	want := crawl.EventData{JobID: j.ref.ID, State: crawl.Running, Total: 2, Queued: 2, CreatedAt: x.CreatedAt, StartedAt: x.StartedAt, Tags: []string{"x"}}
	if d.Event.Type == crawl.EventCancelled {
		stop := crawl.StopCancelled
		want.State, want.StopReason, want.Queued, want.Cancelled = crawl.Cancelled, &stop, 0, 2
		want.EndedAt, want.ExpiresAt = &d.Event.Timestamp, x.ExpiresAt
		if x.ExpiresAt == nil {
			t.Fatal("an ended job that never expires")
		}
	}
	if diff := gocmp.Diff(want, x); diff != "" {
		t.Fatalf("snapshot -want +got:\n%s", diff)
	}
}

func (m *outboxModel) settle(ctx context.Context, t *rapid.T) {
	if len(m.held) == 0 {
		t.Skip("nothing claimed")
	}
	c := rapid.SampledFrom(m.held).Draw(t, "claim")
	r := Result{
		Outcome: rapid.SampledFrom([]Outcome{OutcomeDelivered, OutcomeRefused, OutcomeRetry, OutcomeRetry, OutcomeRetry, OutcomeRelease}).
			Draw(t, "outcome"),
		Status: 500, Error: "It answered 500.",
		After: time.Duration(rapid.SampledFrom([]int{1, 60, 3600}).Draw(t, "after")) * time.Second,
	}
	if r.Outcome == OutcomeDelivered {
		r.Status, r.Error = 200, ""
	}
	s, err := m.st.SettleDelivery(ctx, &c.d, r)
	if err != nil {
		t.Fatal(err)
	}
	j := c.job
	if j.claim != c || j.gone {
		// Another took the event over, or it was settled before: then it is told the same
		// for as long as no other claim was settled since.
		if !s.Stale && (c.settled == "" || s.State != j.events[c.event].state) {
			t.Fatalf("a claim that does not hold settled %+v", s)
		}
		return
	}
	e := j.events[c.event]
	j.claim, j.waits = nil, 0
	state, wait := EventPending, r.After.Milliseconds()
	switch r.Outcome {
	case OutcomeDelivered:
		state = EventDelivered
	case OutcomeRefused:
		state = EventFailed
	case OutcomeRelease:
		e.tries--
		wait = 0
	case OutcomeRetry:
		if e.tries == DeliveryTries || j.expires > 0 && m.now+wait >= j.expires {
			state = EventFailed
		}
	}
	if r.Outcome != OutcomeRelease {
		e.status = r.Status
	}
	e.state, c.settled = state, state
	if state != EventPending {
		j.head++
		wait = 0
	}
	j.due = m.now + wait
	if s.Stale || s.State != state || s.Due != (j.head < len(j.events) && wait == 0) {
		t.Fatalf("settled %+v, want %s (wait %d)", s, state, wait)
	}
}

// sweep finds tenants with due events, and takes expired jobs and all of theirs away.
func (m *outboxModel) sweep(ctx context.Context, t *rapid.T) {
	for _, j := range m.jobs {
		if !j.gone && j.expires > 0 && m.now >= j.expires {
			j.gone, j.untold, j.waits = true, len(j.events)-j.head, 0
			j.head, j.due = len(j.events), m.now
		}
	}
	s, err := m.st.sweep(ctx, []string{m.tenant})
	if err != nil {
		t.Fatal(err)
	}
	p := m.pending()
	if due := len(p) > 0 && p[0].due <= m.now; (len(s.Outbox) == 1 && s.Outbox[0] == m.tenant) != due {
		t.Fatalf("the sweep found %v, events are due: %v", s.Outbox, due)
	}
}

func (m *outboxModel) check(ctx context.Context, t *rapid.T) {
	for _, j := range m.jobs {
		got, err := m.st.WebhookEvents(ctx, j.ref)
		if j.gone {
			if crawl.CodeOf(err) != crawl.CodeExpired {
				t.Fatalf("events of a job that is gone: %v, %v", got, err)
			}
			continue
		}
		if err != nil || len(got) != len(j.events) {
			t.Fatalf("%d events, %v; want %d", len(got), err, len(j.events))
		}
		for i, e := range j.events {
			g := got[i]
			if g.Type != e.of || g.State != e.state || g.Attempts != e.tries || g.Status != e.status ||
				g.DeliveredAt.IsZero() == (e.state == EventDelivered) || (g.Error == "") != (e.state == EventDelivered || g.Status == 0 && e.state == EventPending) ||
				g.NextAt.IsZero() != (e.state != EventPending || i != j.head || j.claim != nil) {
				t.Fatalf("event %d is %+v, want %+v", i, g, e)
			}
			if e.tries > DeliveryTries || e.state != EventPending && i >= j.head || e.state == EventPending && i < j.head {
				t.Fatalf("the model itself is wrong: %+v", e)
			}
		}
	}
}

// drain delivers what is left to receivers that take all: nothing may be stuck or lost.
func (m *outboxModel) drain(ctx context.Context, t *rapid.T) {
	for range 100 {
		p := m.pending()
		if len(p) == 0 {
			return
		}
		m.now = max(m.now, p[0].due)
		m.sweep(ctx, t)
		got, err := m.st.ClaimDeliveries(ctx, Claim{Tenant: m.tenant, Most: 10, PerReceiver: 10})
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Deliveries {
			if s, err := m.st.SettleDelivery(ctx, &got.Deliveries[i], Result{Outcome: OutcomeDelivered, Status: 200}); err != nil || s.State != EventDelivered {
				t.Fatalf("%+v, %v", s, err)
			}
		}
		for _, j := range m.jobs {
			m.reread(ctx, t, j)
		}
	}
	t.Fatal("events are left")
}

// reread takes over what the store says of a job, once its events are settled in their order.
func (m *outboxModel) reread(ctx context.Context, t *rapid.T, j *modelJob) {
	if j.gone {
		j.untold = 0 // the claim has told
		return
	}
	got, err := m.st.WebhookEvents(ctx, j.ref)
	if err != nil {
		t.Fatal(err)
	}
	before := j.head
	for j.head < len(got) && got[j.head].State != EventPending {
		j.head++
	}
	if j.head > before { // else it is where it was, held by another or waiting
		j.claim, j.due = nil, m.now
	}
}

func TestOutboxModel(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx := t.Context()
			m := &outboxModel{tenant: crawltest.Tenant(t), now: 1_700_000_000_000}
			m.st = New(r.Client, Options{Now: func() int64 { return m.now }})
			act := func(f func(context.Context, *rapid.T)) func(*rapid.T) { return func(t *rapid.T) { f(ctx, t) } }
			rt.Repeat(map[string]func(*rapid.T){
				"create": act(m.create), "begin": act(m.begin), "cancel": act(m.cancel), "sweep": act(m.sweep),
				"claim": act(m.claim), "claim again": act(m.claim), "settle": act(m.settle), "settle another": act(m.settle),
				"a second passes":       func(*rapid.T) { m.now += 1000 },
				"a claim's time passes": func(*rapid.T) { m.now += DeliveryClaim.Milliseconds() },
				"time passes": func(t *rapid.T) {
					m.now += int64(rapid.SampledFrom([]int{2, 30, 600, 3600}).Draw(t, "seconds")) * 1000
				},
				"": act(m.check),
			})
			m.drain(ctx, rt)
		})
	})
}
