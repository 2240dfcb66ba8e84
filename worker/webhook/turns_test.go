package webhook

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
)

// Many events for one receiver that answers at once are delivered one after the other: the
// tenant is named once, and the store's clock stands, so that nothing falls due by waiting.
func TestManyEventsToOneReceiver(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		b := benchOn(t, r)
		to := receive(t, says(status(204)))
		reg := prometheus.NewRegistry()
		d := b.deliverer(t, func(o *Options) { o.Metrics = NewMetrics(reg) })
		const jobs = 150 // more than are looked at in one call
		for range jobs {
			b.job(t, crawl.Webhook{URL: to.url}, true)
		}
		d.Due(b.tenant)
		crawltest.Eventually(t, long, "all delivered", func() bool { return counted(t, reg, outcomeDelivered) == 2*jobs })
		to.mu.Lock()
		defer to.mu.Unlock()
		if to.most > perReceiver || len(to.got) != 2*jobs {
			t.Errorf("%d requests, %d at once", len(to.got), to.most)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if len(d.lines) != 0 {
			t.Errorf("someone still waits: %v", d.lines)
		}
	})
}

// Two tenants have events for one slow receiver: its places go to each in turn, though one
// has many more and came first.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	r := crawltest.Any(t)
	a, b := benchOn(t, r), benchOn(t, r)
	b.Store = a.Store
	release := make(chan struct{})
	defer close(release)
	slow := receive(t, func(_ int, c net.Conn) { <-release; _, _ = io.WriteString(c, status(200)) })
	quick := receive(t, says(status(200)))
	d := a.deliverer(t, nil)
	for range 30 {
		a.job(t, crawl.Webhook{URL: slow.url}, false)
	}
	d.Due(a.tenant)
	for range perReceiver {
		crawltest.Receive(t, long, "request at the slow receiver", slow.seen)
	}
	theirs := map[string]bool{}
	for range 5 {
		theirs[b.job(t, crawl.Webhook{URL: slow.url}, false).ID] = true
	}
	// Events for another receiver have it served often; that costs it no turn here.
	other := b.job(t, crawl.Webhook{URL: quick.url}, false)
	d.Due(b.tenant)
	crawltest.Eventually(t, long, "the other tenant in the line", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, line := range d.lines {
			if slices.Contains(line, a.tenant) && slices.Contains(line, b.tenant) {
				return true
			}
		}
		return false
	})
	crawltest.Eventually(t, long, "the quick receiver to have its own", func() bool {
		return b.events(t, other)[0].State == store.EventDelivered
	})
	const after = 12
	for range after { // one place at a time
		d.Due(a.tenant, b.tenant) // as the sweep does
		release <- struct{}{}
		crawltest.Receive(t, long, "the next request", slow.seen)
	}
	got := 0
	for _, q := range slow.requests()[perReceiver:][:after] {
		for id := range theirs {
			if strings.Contains(q.body, id) {
				got++
			}
		}
	}
	if got != len(theirs) {
		t.Errorf("of %d places %d went to the tenant with few events, want %d", after, got, len(theirs))
	}
}

// A receiver's place is kept for the tenant that waits first in its line, whoever asks; but for
// none that may have nothing more in flight.
func TestPlaceIsKept(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flying map[string]int // by tenant
		asks   string
		waits  bool // is given what waits at the receiver
		kept   bool // is told that the receiver has enough
	}{
		"the first asks":                  {nil, "first", true, false},
		"another asks":                    {nil, "second", false, true},
		"one that does not wait asks":     {nil, "third", false, true},
		"the first has enough":            {map[string]int{"first": perTenant}, "second", true, false},
		"all that wait have enough":       {map[string]int{"first": perTenant, "second": perTenant}, "third", false, false},
		"the first has one place to fill": {map[string]int{"first": perTenant - 1}, "first", true, false},
	} {
		d := New(Options{})
		d.tenants, d.due = tc.flying, []string{tc.asks}
		d.lines.join("r.test", "first")
		d.lines.join("r.test", "second")
		c, ok := d.next()
		if !ok || c.Tenant != tc.asks || slices.Contains(c.Waiting, "r.test") != tc.waits ||
			(c.Receivers["r.test"] == perReceiver) != tc.kept || slices.Contains(d.lines["r.test"], tc.asks) && tc.waits {
			t.Errorf("%s: %+v, %v; lines %v", name, c, ok, d.lines)
		}
	}
}

// Events that nobody was told of when the retention of their job is over are counted and logged.
func TestExpiredIsCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	reg := prometheus.NewRegistry()
	d := b.deliverer(t, func(o *Options) { o.Metrics = NewMetrics(reg) })
	job := b.job(t, crawl.Webhook{URL: "http://127.0.0.1/"}, true)
	b.pass(24 * time.Hour)
	d.Due(b.tenant)
	crawltest.Eventually(t, long, "two counted", func() bool { return counted(t, reg, outcomeExpired) == 2 })
	crawltest.Eventually(t, long, "the log", func() bool {
		l := b.logs.String()
		return strings.Contains(l, "retention") && strings.Contains(l, `"job_id":"`+job.ID+`"`)
	})
}

// broken is a store that panics at its first settling.
type broken struct {
	Store
	panicked atomic.Bool
}

func (s *broken) SettleDelivery(ctx context.Context, d *store.Delivery, r store.Result) (store.Settled, error) {
	if s.panicked.CompareAndSwap(false, true) {
		panic("a defect of the store")
	}
	return s.Store.SettleDelivery(ctx, d, r)
}

// JOB-24: a panic while one event is settled ends that try alone. The places are free again,
// the others are delivered, and the event is when its claim is over; the try counts.
func TestSettlePanicsJOB24(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	to := receive(t, says(status(200)))
	d := b.deliverer(t, func(o *Options) { o.Store = &broken{Store: b.Store} })
	first := b.job(t, crawl.Webhook{URL: to.url}, false)
	d.Due(b.tenant)
	crawltest.Eventually(t, long, "the panic logged", func() bool {
		return strings.Contains(b.logs.String(), "a webhook delivery panicked")
	})
	for range perReceiver + 1 {
		b.tried(t, d, b.job(t, crawl.Webhook{URL: to.url}, false), 1)
	}
	if e := b.events(t, first)[0]; e.State != store.EventPending || e.Attempts != 1 {
		t.Errorf("JOB-24: %+v", e)
	}
	b.pass(store.DeliveryClaim)
	if e := b.tried(t, d, first, 2); e.State != store.EventDelivered {
		t.Errorf("JOB-24: %+v", e)
	}
	crawltest.Eventually(t, long, "no place taken", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.flying == 0 && len(d.tenants) == 0 && len(d.receivers) == 0
	})
}

// panicking is a transport that panics in the middle of each request to a host.
func panicking(dial Dialer, host string) *http.Transport {
	t := newTransport(dial)
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		if r.URL.Host == host {
			panic("a defect of the transport")
		}
		return nil, nil //nolint:nilnil // no proxy, as http.Transport has it
	}
	return t
}

// JOB-24: a request that panics, in the transport or in its dialer, is a failed try like
// another, until the event is given up; what the panic said is not for the job's owner.
func TestPostPanicsJOB24(t *testing.T) {
	t.Parallel()
	dial := loopback(t)
	for name, transport := range map[string]*http.Transport{
		"transport": panicking(dial, "bad.test"),
		"dialer": newTransport(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == "bad.test:80" {
				panic("a defect of the dialer")
			}
			return dial(ctx, network, addr)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			to := receive(t, says(status(200)))
			reg := prometheus.NewRegistry()
			d := b.deliverer(t, func(o *Options) { o.Metrics, o.transport = NewMetrics(reg), transport })
			e := b.tryAll(t, d, b.job(t, crawl.Webhook{URL: "http://bad.test/"}, false))
			if e.State != store.EventFailed || e.Attempts != store.DeliveryTries || strings.Contains(e.Error, "defect") {
				t.Errorf("JOB-24: %+v", e)
			}
			if e := b.tried(t, d, b.job(t, crawl.Webhook{URL: to.url}, false), 1); e.State != store.EventDelivered {
				t.Errorf("JOB-24: %+v", e)
			}
			crawltest.Eventually(t, long, "the panic logged and counted", func() bool {
				return counted(t, reg, outcomeFailed) == 1 && strings.Contains(b.logs.String(), "a defect of the "+name)
			})
		})
	}
}
