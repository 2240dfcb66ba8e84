package webhook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/store"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

// long bounds what takes moments on an idle machine.
const long = time.Minute

// posted is a request as a receiver got it.
type posted struct {
	line   string
	header http.Header
	body   string
}

// receiver is a server that answers byte for byte what a test says.
type receiver struct {
	ln  net.Listener
	url string

	mu    sync.Mutex
	got   []posted
	conns []net.Conn
	open  int
	most  int           // requests without an answer at once
	seen  chan struct{} // gets one for each request
}

// receive starts a receiver. answer is given the number of the request, from 1, and its
// connection, which is closed when it returns.
func receive(t testing.TB, answer func(n int, c net.Conn)) *receiver {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{ln: ln, url: "http://" + ln.Addr().String() + "/hook?token=hush", seen: make(chan struct{}, 10_000)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns = append(r.conns, c)
			r.open++
			r.most = max(r.most, r.open)
			r.mu.Unlock()
			wg.Go(func() {
				over := sync.OnceFunc(func() {
					r.mu.Lock()
					r.open--
					r.mu.Unlock()
				})
				defer func() { _ = c.Close(); over() }()
				if n := r.read(c); n > 0 {
					answer(n, answering{c, over})
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		wg.Wait()
	})
	return r
}

// answering is a connection whose request is over when its answer begins: who has the answer may
// send the next before the connection is closed here.
type answering struct {
	net.Conn

	over func()
}

func (a answering) Write(b []byte) (int, error) {
	a.over()
	return a.Conn.Write(b)
}

// read reads one request and answers its number, 0 when there was none.
func (r *receiver) read(c net.Conn) int {
	in := bufio.NewReader(c)
	req, err := http.ReadRequest(in)
	if err != nil {
		return 0
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, posted{req.Method + " " + req.RequestURI, req.Header, string(body)})
	r.seen <- struct{}{}
	return len(r.got)
}

func (r *receiver) requests() []posted {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]posted(nil), r.got...)
}

// says answers every request with the same bytes.
func says(text string) func(int, net.Conn) {
	return func(_ int, c net.Conn) { _, _ = io.WriteString(c, text) }
}

func status(code int, headers ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 0\r\n%s\r\n", code, strings.Join(append(headers, ""), "\r\n"))
}

// canary is a port that nobody may connect to.
func canary(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if c, err := ln.Accept(); err == nil {
			t.Errorf("the canary was contacted from %v", c.RemoteAddr())
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return ln.Addr().String()
}

// bench is a store with a clock of the test's own, and deliverers on it.
type bench struct {
	*store.Store
	tenant string
	logs   *logs

	mu  sync.Mutex
	now time.Time
}

// logs keeps what is logged.
type logs struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return benchOn(t, crawltest.Any(t))
}

func benchOn(t testing.TB, r *crawltest.Redis) *bench {
	t.Helper()
	b := &bench{tenant: crawltest.Tenant(t), now: time.Now().Truncate(time.Millisecond), logs: &logs{}}
	b.Store = store.New(r.Client, store.Options{Now: func() int64 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.now.UnixMilli()
	}})
	return b
}

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bench) at() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// loopback is the dialer of a guard that lets tests reach this machine, and nothing private
// beside it.
func loopback(t testing.TB) Dialer {
	t.Helper()
	p, err := netguard.Parse("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	return netguard.New(p).DialContext
}

// deliverer starts a deliverer over the store of the bench, or over the one that change puts
// in its place.
func (b *bench) deliverer(t testing.TB, change func(*Options)) *Deliverer {
	t.Helper()
	log, err := obs.NewLogger(b.logs, obs.FormatJSON, slog.LevelDebug)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Store: b.Store, Dial: loopback(t), UserAgent: "TestBot/1.0", Logger: log, Grace: 5 * time.Second}
	if change != nil {
		change(&o)
	}
	d := New(o)
	d.Start(t.Context())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		if err := d.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return d
}

// job submits a job with a webhook, begins it when begun, and cancels it: so there are one
// or two events.
func (b *bench) job(t testing.TB, w crawl.Webhook, begun bool) crawl.JobRef {
	t.Helper()
	u, err := crawl.ParseURL("http://site.test/")
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Events) == 0 {
		w.Events = crawl.EventTypes
	}
	n := store.NewJob{
		Job: crawl.JobRef{Tenant: b.tenant, ID: crawl.NewJobID(b.tenant, "")}, Spec: []byte(`{}`), Quota: crawl.Quota{MaxRunning: 1000},
		Inputs: []crawl.Input{{URL: u}}, Plan: crawl.Plan{MaxPages: 1, Concurrency: 1, Retention: 24 * time.Hour, Webhook: &w},
	}
	if _, err := b.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if begun {
		if sl, _, err := b.Begin(t.Context(), crawl.Ring{JobRef: n.Job}); err != nil || sl == nil {
			t.Fatal(sl, err)
		}
	}
	if _, err := b.Cancel(t.Context(), n.Job); err != nil {
		t.Fatal(err)
	}
	return n.Job
}

func (b *bench) events(t testing.TB, job crawl.JobRef) []store.WebhookEvent {
	t.Helper()
	e, err := b.WebhookEvents(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// tried waits until the n-th try of the job's first event has been settled.
func (b *bench) tried(t testing.TB, d *Deliverer, job crawl.JobRef, n int) store.WebhookEvent {
	t.Helper()
	var e store.WebhookEvent
	d.Due(b.tenant)
	crawltest.Eventually(t, long, fmt.Sprintf("try %d settled", n), func() bool {
		e = b.events(t, job)[0]
		return e.Attempts == n && (e.State != store.EventPending || !e.NextAt.IsZero())
	})
	return e
}

// tryAll has every try of the job's first event made, and answers what became of it.
func (b *bench) tryAll(t testing.TB, d *Deliverer, job crawl.JobRef) store.WebhookEvent {
	t.Helper()
	for n := 1; ; n++ {
		e := b.tried(t, d, job, n)
		if e.State != store.EventPending {
			return e
		}
		b.pass(e.NextAt.Sub(b.at()))
	}
}

// counted reads a counter.
func counted(t testing.TB, reg *prometheus.Registry, outcome string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "trawl_webhook_deliveries_total" && m.GetLabel()[0].GetValue() == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("nothing counts %s", outcome)
	return 0
}

var errLost = errors.New("the answer was lost")
