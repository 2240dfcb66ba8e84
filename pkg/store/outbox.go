package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

// The bounds of deliveries. They stand in scripts/deliver.lua and settle.lua too; a test
// compares.
const (
	// DeliveryClaim is how long a claimed event is nobody else's: the time for an exchange
	// with its receiver and for telling the store.
	DeliveryClaim = 20 * time.Second
	// DeliveryTries is how often an event is tried until it is given up.
	DeliveryTries = 8
)

// Delivery is one try at telling a receiver of one event of a job. Whoever claimed it calls
// [Store.SettleDelivery] before [DeliveryClaim] is over, counted from the claim.
type Delivery struct {
	Job crawl.JobRef
	// EventID is that of the event at each try, and of no other event.
	EventID string
	Event   crawl.Event
	URL     string
	Secret  crawl.Secret // empty: it is not signed
	Try     int          // 1 to [DeliveryTries]
	// Now is when it was claimed, by the clock of the store, whatever that of the worker says.
	Now time.Time

	claim string
}

// EventState says what became of an event.
type EventState string

// The states of an event.
const (
	EventPending   EventState = "pending"
	EventDelivered EventState = "delivered"
	EventFailed    EventState = "failed" // given up
)

// WebhookEvent is an event of a job and what became of it.
type WebhookEvent struct {
	ID       string
	Type     crawl.EventType
	State    EventState
	Attempts int    // tries so far, one in flight included
	Status   int    // HTTP status of the last answer; 0 without one
	Error    string // why the last try failed, for a person; empty of one that was delivered
	At       time.Time
	// NextAt is when it is tried next; zero when it is settled, in flight, or waits for the
	// event before it.
	NextAt      time.Time
	DeliveredAt time.Time // zero until then
}

// webhookArg is what create.lua is told of a webhook: empty for none.
func webhookArg(w *crawl.Webhook) (string, error) {
	if w == nil {
		return "", nil
	}
	u, err := crawl.ParseURL(w.URL)
	if err != nil {
		return "", fmt.Errorf("store: webhook: %w", err)
	}
	b, err := json.Marshal(struct {
		ID     string            `json:"id"`
		URL    string            `json:"url"`
		Host   string            `json:"host"`
		Secret string            `json:"secret"`
		Events []crawl.EventType `json:"events"`
	}{"evt_" + rand.Text(), u.String(), u.PolitenessHost(), string(w.Secret), w.Events})
	if err != nil {
		return "", fmt.Errorf("store: webhook: %w", err)
	}
	return string(b), nil
}

// Claim asks for events to deliver.
type Claim struct {
	Tenant string
	Most   int // how many at most, at least 1
	// PerReceiver is how many may be in flight to one receiver, those in Receivers included.
	PerReceiver int
	// Receivers are the events in flight to each receiver, by [Delivery.Receiver].
	Receivers map[string]int
	// Waiting are receivers of an earlier [Claimed.Waiting] that have room now: what waits for
	// them is claimed first, in the order in which it was due.
	Waiting []string
}

// Claimed is what a claim came to.
type Claimed struct {
	Deliveries []Delivery
	More       bool // others may be due now
	// Waiting are receivers that due events of the tenant were not claimed for, because so many
	// as may be are in flight there. Who asks again when there is room, and names the receiver,
	// gets them at once; unasked they come seconds later.
	Waiting []string
	// Expired are jobs that were to be removed before all of their events were settled. Each is
	// reported once; that report is lost with the answer of its claim.
	Expired []ExpiredEvents
}

// ExpiredEvents are the events of a job that can no longer be delivered.
type ExpiredEvents struct {
	JobID string
	Count int // at least 1; the last try of one of them may have been in flight
}

// Receiver names the host that a delivery goes to, as [crawl.URL.PolitenessHost] does.
func (d *Delivery) Receiver() string {
	u, err := crawl.ParseURL(d.URL)
	if err != nil {
		return d.URL // it was stored canonical
	}
	return u.PolitenessHost()
}

// ClaimDeliveries claims events of a tenant that are due, for the caller alone and for
// [DeliveryClaim]. Those of one job come in their order, one at a time. A claim whose answer
// was lost ends as that of a killed worker.
func (s *Store) ClaimDeliveries(ctx context.Context, c Claim) (Claimed, error) {
	claim := rand.Text()
	a, err := s.one(ctx, deliverScript, []string{rootKey(c.Tenant)}, claimArgs(s.now(), claim, &c)...)
	if err != nil {
		return Claimed{}, err
	}
	out := Claimed{More: num(a[1]) == 1}
	waiting, _ := a[2].([]any)
	for _, host := range waiting {
		out.Waiting = append(out.Waiting, str(host))
	}
	expired, _ := a[3].([]any)
	for ; len(expired) >= 2; expired = expired[2:] {
		out.Expired = append(out.Expired, ExpiredEvents{JobID: str(expired[0]), Count: int(num(expired[1]))})
	}
	now := time.UnixMilli(num(a[0])).UTC()
	for rest := a[4:]; len(rest) >= 9; rest = rest[9:] {
		d := Delivery{
			Job: crawl.JobRef{Tenant: c.Tenant, ID: str(rest[0])}, Try: int(num(rest[5])), Now: now,
			URL: str(rest[6]), Secret: crawl.Secret(str(rest[7])), claim: claim,
		}
		job, err := decodeSnapshot(d.Job, str(rest[8]))
		if err != nil {
			return out, err
		}
		d.EventID = eventID(str(rest[1]), num(rest[2]))
		d.Event = crawl.NewEvent(crawl.EventType(str(rest[3])), time.UnixMilli(num(rest[4])), &job)
		out.Deliveries = append(out.Deliveries, d)
	}
	return out, nil
}

// claimArgs are the arguments of deliver.lua.
func claimArgs(now any, claim string, c *Claim) []any {
	args := []any{now, claim, c.Most, c.PerReceiver}
	for _, host := range c.Waiting {
		args = append(args, host, c.Receivers[host], 1)
	}
	for host, n := range c.Receivers {
		if !slices.Contains(c.Waiting, host) {
			args = append(args, host, n, 0)
		}
	}
	return args
}

// eventID names event n of a webhook. It is made of the webhook's own id and not of the
// job's: a job whose idempotency key was long forgotten can come again with its id. It has
// no full stop, which Standard Webhooks keeps for itself.
func eventID(webhook string, n int64) string { return webhook + "_" + strconv.FormatInt(n, 10) }

// decodeSnapshot reads what outbox.lua kept of a job.
func decodeSnapshot(ref crawl.JobRef, text string) (crawl.Job, error) {
	var v [18]string
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return crawl.Job{}, fmt.Errorf("store: event of job %s: %w", ref.ID, err)
	}
	n := func(i int) int64 { return integer(v[i]) }
	j := crawl.Job{
		ID: ref.ID, State: crawl.State(v[0]), Error: v[2],
		Total: n(3), Accepted: n(4), Failed: n(5), Skipped: n(6), Cancelled: n(7), Records: n(8), Bytes: n(9),
		CreatedAt: moment(v[10]), StartedAt: moment(v[11]), EndedAt: moment(v[12]), ExpiresAt: moment(v[13]),
		Queued: n(15), Active: n(16), Deferred: n(17),
	}
	if j.State.Terminal() {
		j.StopReason = crawl.StopReason(v[1])
	}
	j.Processed = j.Accepted + j.Failed + j.Skipped
	if err := json.Unmarshal([]byte(cmp.Or(v[14], "[]")), &j.Tags); err != nil {
		return crawl.Job{}, fmt.Errorf("store: tags of job %s: %w", ref.ID, err)
	}
	return j, nil
}

func integer(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) // empty: 0
	return n
}

// moment reads a time in ms since the epoch; empty is the zero time.
func moment(s string) time.Time {
	if s == "" {
		return time.Time{}
	}
	return time.UnixMilli(integer(s)).UTC()
}

// Outcome is what became of a try.
type Outcome string

// The outcomes of a try.
const (
	OutcomeDelivered Outcome = "delivered"
	OutcomeRefused   Outcome = "refused" // the receiver never wants it: the event is given up
	OutcomeRetry     Outcome = "retry"
	// OutcomeRelease is of a try that was not made to its end: it does not count.
	OutcomeRelease Outcome = "release"
)

// Result tells what became of a try.
type Result struct {
	Outcome Outcome
	Status  int           // HTTP status of the answer; 0 without one
	Error   string        // why it failed, for a person
	After   time.Duration // with OutcomeRetry: until the next try
}

// Settled is what became of an event by the settling of a try.
type Settled struct {
	// Stale reports that the claim was over and the event may be another worker's:
	// nothing was changed.
	Stale bool
	// State is that of the event: failed also when it was the last try, or the job is
	// forgotten before the next.
	State EventState
	Due   bool // an event of the job is due now
}

// SettleDelivery records what became of a claimed delivery. Settling twice is harmless.
func (s *Store) SettleDelivery(ctx context.Context, d *Delivery, r Result) (Settled, error) {
	a, err := s.one(ctx, settleScript, s.keys(d.Job), s.now(), d.Job.ID, d.claim, string(r.Outcome), r.Status, r.Error,
		r.After.Milliseconds())
	if err != nil {
		return Settled{}, err
	}
	return Settled{Stale: str(a[0]) == "stale", State: EventState(str(a[1])), Due: num(a[2]) == 0}, nil
}

// WebhookEvents reads the events of a job that its webhook asks for, in their order; at most
// one for each of [crawl.EventTypes]. Faults: not_found, expired.
func (s *Store) WebhookEvents(ctx context.Context, j crawl.JobRef) ([]WebhookEvent, error) {
	p := s.rdb.Pipeline()
	state := p.HGet(ctx, jobKey(j), "state")
	hook := p.HGetAll(ctx, jobKey(j)+":webhook")
	s.trips.Add(1)
	_, _ = p.Exec(ctx) // each command has its own error
	if err := cmp.Or(state.Err(), hook.Err()); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fault(err)
	}
	if state.Val() == "" {
		return nil, s.missing(ctx, j)
	}
	h := hook.Val()
	head := integer(h["head"])
	var events []WebhookEvent
	for n := int64(1); n <= integer(h["n"]); n++ {
		of := func(field string) string { return h[strconv.FormatInt(n, 10)+"."+field] }
		e := WebhookEvent{
			ID: eventID(h["id"], n), Type: crawl.EventType(of("type")), State: EventState(of("state")),
			Attempts: int(integer(of("tries"))), Status: int(integer(of("status"))), Error: of("error"),
			At: moment(of("at")), DeliveredAt: moment(of("delivered")),
		}
		if n == head && h["claim"] == "" {
			e.NextAt = moment(of("next"))
		}
		events = append(events, e)
	}
	return events, nil
}
