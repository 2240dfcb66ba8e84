package webhook

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/trawl/pkg/store"
)

// Store is what deliveries need of package store.
type Store interface {
	ClaimDeliveries(ctx context.Context, c store.Claim) (store.Claimed, error)
	SettleDelivery(ctx context.Context, d *store.Delivery, r store.Result) (store.Settled, error)
}

// Options of a [Deliverer]. Those without a stated default are required.
type Options struct {
	Store     Store
	Dial      Dialer // the guard, with the policy that pages are fetched under
	UserAgent string
	Logger    *slog.Logger
	Metrics   *Metrics // nil counts nothing
	// Grace is how long deliveries in flight may go on after Drain; zero aborts them at once.
	Grace     time.Duration
	transport *http.Transport // a test's own in place of that over Dial
}

// How many deliveries one worker has in flight: in all, of one tenant, to one receiver. A
// receiver that answers nothing holds two of the places for as long as [Timeout]; one
// tenant that has many such receivers holds half of those that there are.
const (
	inFlight    = 16
	perTenant   = 8
	perReceiver = 2
)

// schedule is how long after a failed try the next one is made, before jitter: a receiver
// that restarts hears within seconds, one that is down for an afternoon hears all the same.
// As in the example of Standard Webhooks, but in hours, not days: a job is not kept for long.
var schedule = [store.DeliveryTries - 1]time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
}

// Deliverer delivers events of the tenants that it is told of. Make it with [New], run it
// with [Deliverer.Start], end it with [Deliverer.Stop].
type Deliverer struct {
	o         Options
	transport *http.Transport

	wake chan struct{} // there may be something to claim

	mu        sync.Mutex
	due       []string // tenants with events that are due, in the order in which they are served
	tenants   map[string]int
	receivers map[string]int
	lines     lines // of tenants at receivers that have enough
	flying    int
	draining  bool

	drain   chan struct{} // closed: claim nothing more
	abort   context.CancelFunc
	grace   *time.Timer    // calls abort when the grace is over
	running sync.WaitGroup // the loop and what is in flight
}

// New makes a deliverer. It starts nothing.
func New(o Options) *Deliverer {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return &Deliverer{
		o: o, transport: cmp.Or(o.transport, newTransport(o.Dial)), wake: make(chan struct{}, 1),
		tenants: map[string]int{}, receivers: map[string]int{}, lines: lines{}, drain: make(chan struct{}), abort: func() {},
	}
}

// Start begins to deliver. What goes on ends by Stop, not with ctx. It is called once.
func (d *Deliverer) Start(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return
	}
	ctx, d.abort = context.WithCancel(context.WithoutCancel(ctx))
	d.running.Go(func() { d.run(ctx) })
}

// Due says that tenants have events to deliver. It never blocks; a tenant is named as often
// as one likes.
func (d *Deliverer) Due(tenants ...string) {
	d.mu.Lock()
	for _, t := range tenants {
		d.name(t)
	}
	d.mu.Unlock()
	d.look()
}

// name puts a tenant behind those that are due, unless it is one of them.
func (d *Deliverer) name(tenant string) {
	if !d.draining && !slices.Contains(d.due, tenant) {
		d.due = append(d.due, tenant)
	}
}

func (d *Deliverer) look() {
	select {
	case d.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// Drain has it claim nothing more; what is in flight goes on for the grace.
func (d *Deliverer) Drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.draining {
		return
	}
	d.draining = true
	close(d.drain)
	d.grace = time.AfterFunc(d.o.Grace, d.abort)
}

// Stop drains and returns when nothing is in flight any more or ctx ends. What the grace
// did not suffice for is given back, and counts as no try.
func (d *Deliverer) Stop(ctx context.Context) error {
	d.Drain()
	done := make(chan struct{})
	go func() { defer close(done); d.running.Wait() }()
	d.mu.Lock()
	abort, grace := d.abort, d.grace
	d.mu.Unlock()
	defer grace.Stop()
	defer abort()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		// Nothing is lost: the claims end, and another worker takes the events.
		return fmt.Errorf("deliveries of webhooks still open: %w", ctx.Err())
	}
}

// closing bounds the last words to the store of a try that was aborted.
const closing = 2 * time.Second

func (d *Deliverer) run(ctx context.Context) {
	for {
		select {
		case <-d.drain:
			return
		case <-d.wake:
		}
		for d.claim(ctx) {
		}
	}
}

// claim takes events of the first tenant that may have more in flight; false when there
// is no such tenant, or no place.
func (d *Deliverer) claim(ctx context.Context) bool {
	c, ok := d.next()
	if !ok {
		return false
	}
	claimed, err := d.o.Store.ClaimDeliveries(ctx, c)
	if err != nil && ctx.Err() == nil {
		d.o.Logger.WarnContext(ctx, "webhook deliveries could not be claimed, the sweep asks again",
			slog.String("tenant", c.Tenant), slog.Any("err", err))
	}
	for i := range claimed.Deliveries {
		d.begin(ctx, &claimed.Deliveries[i])
	}
	for _, e := range claimed.Expired {
		d.o.Metrics.deliveries.WithLabelValues(outcomeExpired).Add(float64(e.Count))
		d.o.Logger.WarnContext(ctx, "webhook events were not delivered before the retention of their job was over",
			slog.String("tenant", c.Tenant), slog.String("job_id", e.JobID), slog.Int("events", e.Count))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, receiver := range claimed.Waiting {
		d.lines.join(receiver, c.Tenant)
	}
	if claimed.More && err == nil {
		d.name(c.Tenant) // behind the others
	}
	d.call()
	return true
}

// next takes the tenant whose turn it is.
func (d *Deliverer) next() (store.Claim, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.due, d.admits)
	if d.draining || d.flying >= inFlight || i < 0 {
		return store.Claim{}, false
	}
	tenant := d.due[i]
	d.due = slices.Delete(d.due, i, i+1)
	c := store.Claim{
		Tenant: tenant, Most: min(inFlight-d.flying, perTenant-d.tenants[tenant]), PerReceiver: perReceiver,
		Receivers: maps.Clone(d.receivers),
	}
	for receiver := range d.lines {
		if d.receivers[receiver] >= perReceiver {
			continue
		}
		switch first, ok := d.lines.first(receiver, d.admits); {
		case ok && first == tenant && len(c.Waiting) < c.Most:
			// It joins again when more is left. After a claim that failed it does not, or it would
			// ask a store that is away again and again: then the sweep finds it.
			d.lines.leave(receiver, tenant)
			c.Waiting = append(c.Waiting, receiver)
		case ok && first != tenant:
			c.Receivers[receiver] = perReceiver // its places are another's, who came before
		}
	}
	return c, true
}

// admits reports whether a tenant may have more in flight.
func (d *Deliverer) admits(tenant string) bool { return d.tenants[tenant] < perTenant }

// call names, for each receiver that has room, the tenant that waits first in its line: that
// one's turn it is, and nobody else takes the place.
func (d *Deliverer) call() {
	for receiver := range d.lines {
		if d.receivers[receiver] >= perReceiver {
			continue
		}
		if tenant, ok := d.lines.first(receiver, d.admits); ok {
			d.name(tenant)
		}
	}
}

// begin delivers a claimed event in a goroutine of its own.
func (d *Deliverer) begin(ctx context.Context, dl *store.Delivery) {
	receiver := dl.Receiver()
	d.mu.Lock()
	d.flying++
	d.tenants[dl.Job.Tenant]++
	d.receivers[receiver]++
	d.mu.Unlock()
	d.running.Go(func() {
		defer func() {
			// A defect on one event takes no page of the worker with it.
			if v := recover(); v != nil {
				d.o.Logger.ErrorContext(ctx, "a webhook delivery panicked", slog.String("job_id", dl.Job.ID),
					slog.String("tenant", dl.Job.Tenant), slog.String("event_id", dl.EventID),
					slog.String("panic", fmt.Sprintf("%v\n%s", v, debug.Stack())))
			}
			d.mu.Lock()
			d.flying--
			less(d.tenants, dl.Job.Tenant)
			less(d.receivers, receiver)
			d.call()
			d.mu.Unlock()
			d.look()
		}()
		if d.deliver(ctx, dl) {
			d.Due(dl.Job.Tenant)
		}
	})
}

// less takes one off a count and forgets what has none.
func less(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

// deliver makes one try and tells the store; due reports whether the job has another event
// to deliver now.
func (d *Deliverer) deliver(ctx context.Context, dl *store.Delivery) (due bool) {
	start := time.Now()
	a := post(ctx, d.transport, d.o.UserAgent, dl)
	took := time.Since(start)
	r := result(ctx, dl.Try, &a)
	s, err := d.settle(ctx, dl, r, start)
	outcome := outcomeOf(r, s, err)
	d.o.Metrics.deliveries.WithLabelValues(outcome).Inc()

	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("job_id", dl.Job.ID), slog.String("tenant", dl.Job.Tenant), slog.String("event_id", dl.EventID),
		slog.String("type", string(dl.Event.Type)), slog.String("receiver", dl.Receiver()), slog.Int("try", dl.Try),
		slog.String("outcome", outcome), slog.Int("status", r.Status), slog.Int64("duration_ms", took.Milliseconds()),
	}
	if r.Error != "" {
		attrs = append(attrs, slog.String("reason", r.Error))
	}
	if a.err != nil {
		attrs = append(attrs, slog.String("err", clip(a.err.Error())))
	}
	if err != nil || outcome == outcomeFailed || outcome == outcomeStale {
		level = slog.LevelWarn
	}
	if err != nil {
		attrs = append(attrs, slog.Any("store_err", err))
	}
	d.o.Logger.LogAttrs(ctx, level, "webhook delivery", attrs...)
	return err == nil && s.Due && outcome != outcomeReleased
}

// clip shortens the text of an error: some repeat what a receiver sent.
func clip(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// result says what the store is to be told of an answer. A try that this process broke off
// counts as none, whatever the receiver may have got: its id says that it is the same event.
func result(ctx context.Context, try int, a *answer) store.Result {
	r := store.Result{Status: a.status, Error: a.explain()}
	switch {
	case delivered(a.status):
		r.Outcome = store.OutcomeDelivered
	case a.status == 0 && ctx.Err() != nil:
		return store.Result{Outcome: store.OutcomeRelease}
	case a.status == http.StatusGone:
		r.Outcome = store.OutcomeRefused
	default:
		r.Outcome, r.After = store.OutcomeRetry, max(pause(try), a.retryAfter)
	}
	return r
}

// pause answers how long after a failed try the next one is made. The jitter, a fifth at
// most, keeps the events that one outage held up from coming back all at once.
func pause(try int) time.Duration {
	p := schedule[min(try, len(schedule))-1]
	return p + rand.N(p/5)
}

// settle tells the store, again and again for as long as the claim holds, or until shortly
// after this process is to end: what was delivered and is not told is delivered twice.
func (d *Deliverer) settle(
	ctx context.Context, dl *store.Delivery, r store.Result, start time.Time,
) (store.Settled, error) {
	telling, cancel := context.WithDeadline(context.WithoutCancel(ctx), start.Add(store.DeliveryClaim))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(closing, cancel) })()
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		s, err := d.o.Store.SettleDelivery(telling, dl, r)
		if err == nil {
			return s, nil
		}
		again := time.NewTimer(wait)
		select {
		case <-telling.Done():
			again.Stop()
			return s, err
		case <-again.C:
		}
	}
}

func outcomeOf(r store.Result, s store.Settled, err error) string {
	switch {
	case err != nil || s.Stale:
		return outcomeStale
	case r.Outcome == store.OutcomeRelease:
		return outcomeReleased
	case s.State == store.EventDelivered:
		return outcomeDelivered
	case s.State == store.EventFailed:
		return outcomeFailed
	default:
		return outcomeRetry
	}
}
