package webhook

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/store"
)

const whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// sign computes a signature by the text of the standard, without its library.
func sign(secret, id, timestamp, body string) string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, id+"."+timestamp+"."+body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// An event is delivered once, in the form of the standard and signed so that its receiver can
// tell; a job's events come in their order.
func TestDelivery(t *testing.T) {
	t.Parallel()
	// The example of the standard's own libraries, so that what follows is compared with it.
	if s := sign(whsec, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`); s != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Fatalf("the test itself is wrong: %s", s)
	}
	b := newBench(t)
	r := receive(t, says(status(204)))
	reg := prometheus.NewRegistry()
	d := b.deliverer(t, func(o *Options) { o.Metrics = NewMetrics(reg) })
	job := b.job(t, crawl.Webhook{URL: r.url, Secret: whsec}, true)
	at := b.at()
	b.pass(90 * time.Second)
	d.Due(b.tenant)
	crawltest.Eventually(t, long, "both events delivered", func() bool {
		e := b.events(t, job)
		return e[0].State == store.EventDelivered && e[1].State == store.EventDelivered
	})
	got := r.requests()
	if len(got) != 2 {
		t.Fatalf("%d requests", len(got))
	}
	for i, e := range b.events(t, job) {
		q := got[i]
		if e.Attempts != 1 || e.Status != 204 || e.Error != "" || !e.DeliveredAt.Equal(b.at()) {
			t.Errorf("event %+v", e)
		}
		h := q.header
		timestamp := strconv.FormatInt(b.at().Unix(), 10) // of the try, by the clock of the store
		if q.line != "POST /hook?token=hush" || h.Get("webhook-id") != e.ID || h.Get("webhook-timestamp") != timestamp ||
			h.Get("webhook-signature") != sign(whsec, e.ID, timestamp, q.body) {
			t.Errorf("%s %v", q.line, h)
		}
		for name, want := range map[string]string{"Content-Type": "application/json", "User-Agent": "TestBot/1.0", "Accept-Encoding": ""} {
			if h.Get(name) != want {
				t.Errorf("%s: %q", name, h.Get(name))
			}
		}
		var event crawl.Event
		if err := json.Unmarshal([]byte(q.body), &event); err != nil || event.Type != e.Type || event.Timestamp != crawl.Timestamp(at) ||
			event.Data.JobID != job.ID {
			t.Errorf("%v: %s", err, q.body)
		}
	}
	if !strings.Contains(got[0].body, `"type":"job.running"`) || !strings.Contains(got[1].body, `"type":"job.cancelled"`) ||
		!strings.Contains(got[1].body, `"state":"cancelled","stop_reason":"cancelled"`) {
		t.Errorf("%s\n%s", got[0].body, got[1].body)
	}
	// A delivery is told of when the store has it.
	crawltest.Eventually(t, long, "both are counted and logged", func() bool {
		return counted(t, reg, "delivered") == 2 && strings.Count(b.logs.String(), `"msg":"webhook delivery"`) == 2
	})
	if l := b.logs.String(); strings.Contains(l, "hush") || strings.Contains(l, whsec[6:]) || strings.Count(l, `"msg":"webhook delivery"`) != 2 ||
		!strings.Contains(l, `"event_id":"`+got[0].header.Get("webhook-id")+`"`) {
		t.Errorf("logged: %s", l)
	}
}

// Without a secret nothing is signed; nothing claims to be, either.
func TestUnsigned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := receive(t, says(status(200)))
	b.tried(t, b.deliverer(t, nil), b.job(t, crawl.Webhook{URL: r.url}, false), 1)
	if h := r.requests()[0].header; h["Webhook-Signature"] != nil || h.Get("webhook-id") == "" {
		t.Errorf("%v", h)
	}
}

// JOB-20: whatever a redirect says, it is a failed try. No GET is sent, nothing goes to
// another host or port, each try is the same POST, and the event ends as failed with the
// status that was answered.
func TestRedirectsJOB20(t *testing.T) {
	t.Parallel()
	port := canary(t)
	for _, tt := range []struct {
		status   int
		location string
	}{
		{301, "/login"},
		{302, "/login"},
		{303, "/login"},
		{307, "http://" + port + "/"},
		{308, "http://" + port + "/"},
		{302, "http://" + port + "/"},
		{302, "//" + port + "/"},
		{303, "http://localhost:" + port[strings.LastIndexByte(port, ':')+1:] + "/"},
		{304, "/login"},
		{300, "/login"},
		{302, ""},
	} {
		t.Run(fmt.Sprint(tt.status, " ", tt.location[:min(8, len(tt.location))]), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r := receive(t, says(status(tt.status, "Location: "+tt.location, "Refresh: 0; url=http://"+port+"/")))
			job := b.job(t, crawl.Webhook{URL: r.url, Secret: whsec}, false)
			e := b.tryAll(t, b.deliverer(t, nil), job)
			if e.State != store.EventFailed || e.Attempts != store.DeliveryTries || e.Status != tt.status || !e.DeliveredAt.IsZero() ||
				!strings.Contains(e.Error, strconv.Itoa(tt.status)) {
				t.Errorf("JOB-20: listed as %+v", e)
			}
			got := r.requests()
			if len(got) != store.DeliveryTries {
				t.Errorf("JOB-20: %d requests", len(got))
			}
			for _, q := range got {
				if q.line != "POST /hook?token=hush" || q.body != got[0].body || q.body == "" || q.header.Get("webhook-id") != e.ID ||
					q.header.Get("webhook-signature") != sign(whsec, e.ID, q.header.Get("webhook-timestamp"), q.body) {
					t.Errorf("JOB-20: %+v", q)
				}
			}
		})
	}
}

// What a receiver can answer, and what it does to the event.
func TestAnswers(t *testing.T) {
	t.Parallel()
	reset := func(_ int, c net.Conn) { _ = c.(answering).Conn.(*net.TCPConn).SetLinger(0) }
	endless := func(_ int, c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		for {
			if _, err := c.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}
	stalls := func(_ int, c net.Conn) { // in the body: the status has come
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx")
		_, _ = c.Read(make([]byte, 1))
	}
	headers := func(_ int, c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for range 100_000 {
			if _, err := io.WriteString(c, "X: yyyyyyyyyyyyyyyy\r\n"); err != nil {
				return
			}
		}
		_, _ = io.WriteString(c, "\r\n")
	}
	for _, tt := range []struct {
		name   string
		answer func(int, net.Conn)
		state  store.EventState
		status int
		after  time.Duration // least time until the next try
		says   string
	}{
		{"200", says(status(200)), store.EventDelivered, 200, 0, ""},
		{"201", says(status(201)), store.EventDelivered, 201, 0, ""},
		{"202", says(status(202)), store.EventDelivered, 202, 0, ""},
		{"299", says(status(299)), store.EventDelivered, 299, 0, ""},
		{"early hints first", says("HTTP/1.1 103 Early\r\n\r\n" + status(200)), store.EventDelivered, 200, 0, ""},
		{"an endless body", endless, store.EventDelivered, 200, 0, ""},
		{"a body that stalls", stalls, store.EventDelivered, 200, 0, ""},
		{"gzip", says("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope"), store.EventDelivered, 200, 0, ""},
		{"410", says(status(410)), store.EventFailed, 410, 0, "410 Gone"},
		{"400", says(status(400)), store.EventPending, 400, 5 * time.Second, "400 Bad Request; only 2xx"},
		{"401 asks for a password", says(status(401, "WWW-Authenticate: Basic")), store.EventPending, 401, 5 * time.Second, "401"},
		{"500", says(status(500)), store.EventPending, 500, 5 * time.Second, "500"},
		{"429", says(status(429, "Retry-After: 120")), store.EventPending, 429, 2 * time.Minute, "429"},
		{"503 for a century", says(status(503, "Retry-After: 3153600000")), store.EventPending, 503, 2 * time.Hour, "503"},
		{"503 with garbage", says(status(503, "Retry-After: -5")), store.EventPending, 503, 5 * time.Second, "503"},
		{"101", says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), store.EventPending, 101, 5 * time.Second, "101"},
		{"999", says(status(999)), store.EventPending, 999, 5 * time.Second, "999"},
		{"no answer", says(""), store.EventPending, 0, 5 * time.Second, "broke the connection off"},
		{"reset", reset, store.EventPending, 0, 5 * time.Second, "broke the connection off"},
		{"not HTTP", says("SSH-2.0-OpenSSH_9.2\r\n"), store.EventPending, 0, 5 * time.Second, "not HTTP"},
		{"headers without end", headers, store.EventPending, 0, 5 * time.Second, "not HTTP"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r := receive(t, tt.answer)
			d := b.deliverer(t, nil)
			e := b.tried(t, d, b.job(t, crawl.Webhook{URL: r.url}, false), 1)
			if e.State != tt.state || e.Status != tt.status || !strings.Contains(e.Error, tt.says) || (e.Error == "") != (tt.says == "") {
				t.Errorf("listed as %+v", e)
			}
			if strings.Contains(e.Error, "127.0.0.1") || strings.Contains(e.Error, "hush") {
				t.Errorf("it tells too much: %q", e.Error)
			}
			if wait := e.NextAt.Sub(b.at()); tt.state == store.EventPending && (wait < tt.after || wait > tt.after*6/5) {
				t.Errorf("tried again after %v", wait)
			}
			if n := len(r.requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// The reasons for which no request is made at all.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a receiver whose certificate nobody knows got a request")
	}))
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := receive(t, says(status(200)))
	port := canary(t)
	for _, tt := range []struct {
		name, url string
		private   string // what the guard lets pass
		says      string
	}{
		{"unknown certificate", secure.URL, "127.0.0.1", "No secure connection"},
		{"no TLS there", strings.Replace(plain.url, "http:", "https:", 1), "127.0.0.1", "broke the connection off"},
		{"nobody listens", "http://" + crawltest.FreeAddr(t) + "/", "127.0.0.1", "could not be reached"},
		{"private address", "http://" + port + "/", "", "not public and was not contacted"},
		{"disguised private address", "http://2130706433:" + port[strings.LastIndexByte(port, ':')+1:] + "/", "", "not public"},
		{"private name", "http://localhost:" + port[strings.LastIndexByte(port, ':')+1:] + "/", "", "not public"},
		{"metadata service", "http://169.254.169.254/latest/meta-data/", "127.0.0.1", "not public"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			p, err := netguard.Parse(tt.private)
			if err != nil {
				t.Fatal(err)
			}
			d := b.deliverer(t, func(o *Options) { o.Dial = netguard.New(p).DialContext })
			u, err := crawl.ParseURL(tt.url)
			if err != nil {
				t.Fatal(err)
			}
			e := b.tried(t, d, b.job(t, crawl.Webhook{URL: u.String()}, false), 1)
			if e.State != store.EventPending || e.Status != 0 || !strings.Contains(e.Error, tt.says) {
				t.Errorf("listed as %+v", e)
			}
		})
	}
	if n := len(plain.requests()); n != 0 {
		t.Errorf("%d requests without TLS", n)
	}
}

// TLS works where the certificate is known, from version 1.2 on.
func TestTLS(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint16]store.EventState{
		tls.VersionTLS11: store.EventPending, tls.VersionTLS12: store.EventDelivered, tls.VersionTLS13: store.EventDelivered,
	} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) }))
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: version} //nolint:gosec // the old one is what is tested
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		t.Cleanup(s.Close)
		b := newBench(t)
		d := b.deliverer(t, func(o *Options) {
			o.transport = newTransport(loopback(t))
			o.transport.TLSClientConfig.RootCAs = s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		})
		if e := b.tried(t, d, b.job(t, crawl.Webhook{URL: s.URL + "/"}, false), 1); e.State != want {
			t.Errorf("TLS %x: %+v", version, e)
		}
	}
}

// piped dials a receiver that is no socket, so that a bubble's clock goes on while it is
// waited for. It answers once it has the request.
func piped(wg *sync.WaitGroup, answer func(net.Conn)) Dialer {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		wg.Go(func() {
			defer theirs.Close()
			in := bufio.NewReader(theirs)
			if req, err := http.ReadRequest(in); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				answer(theirs)
			}
			_, _ = io.Copy(io.Discard, in) // until the other side ends
		})
		return ours, nil
	}
}

// A receiver that takes the request and says nothing, or a byte now and then, costs one
// timeout.
func TestSilentReceiver(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(net.Conn){
		"silent": func(net.Conn) {},
		"slow": func(c net.Conn) {
			for range 1000 {
				if _, err := c.Write([]byte("H")); err != nil {
					return
				}
				<-time.After(time.Second) // of the bubble's clock
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var wg sync.WaitGroup
				defer wg.Wait()
				dial := piped(&wg, answer)
				start := time.Now()
				a := post(t.Context(), newTransport(dial), "TestBot/1.0", &store.Delivery{URL: "http://r.test/", EventID: "e", Now: start})
				if took := time.Since(start); took != Timeout || a.status != 0 || !strings.Contains(a.explain(), "within 15s") {
					t.Errorf("after %v: %+v %q", took, a, a.explain())
				}
			})
		})
	}
}

// A body that does not come costs a second: the status has said that the event is there.
func TestBodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var wg sync.WaitGroup
		defer wg.Wait()
		dial := piped(&wg, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n") })
		start := time.Now()
		a := post(t.Context(), newTransport(dial), "TestBot/1.0", &store.Delivery{URL: "http://r.test/", EventID: "e", Now: start})
		if took := time.Since(start); took != answerTime || a.status != 200 || a.err != nil {
			t.Errorf("after %v: %+v", took, a)
		}
	})
}

// A receiver that hangs has two deliveries at most, and holds up nobody: not another
// receiver of the same tenant, nor another tenant.
func TestSlowReceiverHoldsUpNobody(t *testing.T) {
	t.Parallel()
	r := crawltest.Any(t)
	a, b := benchOn(t, r), benchOn(t, r)
	release := make(chan struct{})
	slow := receive(t, func(_ int, c net.Conn) { <-release; _, _ = io.WriteString(c, status(200)) })
	quick := receive(t, says(status(200)))
	d := a.deliverer(t, nil)
	b.Store = a.Store // one worker serves both
	var stuck []crawl.JobRef
	for range 40 {
		stuck = append(stuck, a.job(t, crawl.Webhook{URL: slow.url}, false))
	}
	d.Due(a.tenant)
	for range perReceiver {
		crawltest.Receive(t, long, "request at the slow receiver", slow.seen)
	}
	mine, other := a.job(t, crawl.Webhook{URL: quick.url}, false), b.job(t, crawl.Webhook{URL: quick.url}, false)
	d.Due(a.tenant, b.tenant)
	for _, of := range []struct {
		b   *bench
		job crawl.JobRef
	}{{a, mine}, {b, other}} {
		crawltest.Eventually(t, long, "delivered beside the slow receiver", func() bool {
			return of.b.events(t, of.job)[0].State == store.EventDelivered
		})
	}
	close(release)
	crawltest.Eventually(t, long, "the slow receiver to have all", func() bool {
		for _, j := range stuck {
			if a.events(t, j)[0].State != store.EventDelivered {
				return false
			}
		}
		return true
	})
	slow.mu.Lock()
	defer slow.mu.Unlock()
	if slow.most > perReceiver {
		t.Errorf("%d requests at once", slow.most)
	}
}

// Two workers deliver each event once, and those of a job in their order.
func TestTwoWorkers(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		b := benchOn(t, r)
		to := receive(t, says(status(200)))
		d1, d2 := b.deliverer(t, nil), b.deliverer(t, nil)
		var jobs []crawl.JobRef
		for range 20 {
			jobs = append(jobs, b.job(t, crawl.Webhook{URL: to.url}, true))
		}
		crawltest.Eventually(t, long, "all delivered", func() bool {
			d1.Due(b.tenant)
			d2.Due(b.tenant)
			for _, j := range jobs {
				for _, e := range b.events(t, j) {
					if e.State != store.EventDelivered {
						return false
					}
				}
			}
			return true
		})
		order := map[string][]crawl.EventType{}
		for _, q := range to.requests() {
			var e crawl.Event
			if err := json.Unmarshal([]byte(q.body), &e); err != nil {
				t.Fatal(err)
			}
			order[e.Data.JobID] = append(order[e.Data.JobID], e.Type)
		}
		for _, j := range jobs {
			if d := cmp.Diff([]crawl.EventType{crawl.EventRunning, crawl.EventCancelled}, order[j.ID]); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		}
	})
}

// A worker that stops gives back what its grace does not suffice for: no try is counted,
// and another worker delivers under the same id.
func TestStopGivesBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	hang := make(chan struct{})
	defer close(hang)
	r := receive(t, func(n int, c net.Conn) {
		if n == 1 {
			<-hang
		}
		_, _ = io.WriteString(c, status(200))
	})
	job := b.job(t, crawl.Webhook{URL: r.url}, false)
	first := b.deliverer(t, func(o *Options) { o.Grace = 0 })
	first.Due(b.tenant)
	crawltest.Receive(t, long, "request", r.seen)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	if err := first.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if e := b.events(t, job)[0]; e.State != store.EventPending || e.Attempts != 0 || e.NextAt.After(b.at()) || e.Error != "" {
		t.Errorf("given back as %+v", e)
	}
	first.Due(b.tenant) // says nothing to one that has stopped
	b.tried(t, b.deliverer(t, nil), job, 1)
	got := r.requests()
	if len(got) != 2 || got[0].header.Get("webhook-id") != got[1].header.Get("webhook-id") || got[0].body != got[1].body {
		t.Errorf("%+v", got)
	}
}

// A worker that stops lets what is in flight end within the grace.
func TestStopWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	release := make(chan struct{})
	r := receive(t, func(_ int, c net.Conn) { <-release; _, _ = io.WriteString(c, status(200)) })
	job := b.job(t, crawl.Webhook{URL: r.url}, false)
	d := b.deliverer(t, func(o *Options) { o.Grace = long })
	d.Due(b.tenant)
	crawltest.Receive(t, long, "request", r.seen)
	stopped := make(chan error, 1)
	d.Drain()
	go func() { stopped <- d.Stop(t.Context()) }()
	close(release)
	if err := crawltest.Receive(t, long, "end", stopped); err != nil {
		t.Error(err)
	}
	if e := b.events(t, job)[0]; e.State != store.EventDelivered || e.Attempts != 1 {
		t.Errorf("%+v", e)
	}
}

// flaky is a store that loses answers.
type flaky struct {
	Store
	mu    sync.Mutex
	lose  int  // so many settlings more
	after bool // once they have taken place
}

func (f *flaky) SettleDelivery(ctx context.Context, d *store.Delivery, r store.Result) (store.Settled, error) {
	f.mu.Lock()
	lost := f.lose > 0
	f.lose--
	f.mu.Unlock()
	if lost && !f.after {
		return store.Settled{}, errLost
	}
	s, err := f.Store.SettleDelivery(ctx, d, r)
	if lost {
		return store.Settled{}, errLost
	}
	return s, err
}

// What was delivered is told to the store again until it answers: it is not delivered twice.
func TestStoreIsAwayForAMoment(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		b := newBench(t)
		r := receive(t, says(status(200)))
		d := b.deliverer(t, func(o *Options) { o.Store = &flaky{Store: b.Store, lose: 3, after: after} })
		job := b.job(t, crawl.Webhook{URL: r.url}, true)
		d.Due(b.tenant)
		crawltest.Eventually(t, long, "both events delivered", func() bool {
			e := b.events(t, job)
			return e[0].State == store.EventDelivered && e[1].State == store.EventDelivered
		})
		if n := len(r.requests()); n != 2 {
			t.Errorf("%d requests", n)
		}
	}
}

// A killed worker's claim ends, and the event is tried again under its id.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := receive(t, says(status(200)))
	job := b.job(t, crawl.Webhook{URL: r.url}, false)
	c, err := b.ClaimDeliveries(t.Context(), store.Claim{Tenant: b.tenant, Most: 1, PerReceiver: 1})
	got := c.Deliveries
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	b.pass(store.DeliveryClaim)
	if e := b.tried(t, b.deliverer(t, nil), job, 2); e.State != store.EventDelivered || e.ID != got[0].EventID {
		t.Errorf("%+v after the claim %+v", e, got[0])
	}
}

// The tries are spread over hours, and two events that fail together do not come back together.
func TestSchedule(t *testing.T) {
	t.Parallel()
	var least, most time.Duration
	for try := 1; try < store.DeliveryTries; try++ {
		base := schedule[try-1]
		spread := map[time.Duration]bool{}
		for range 100 {
			p := pause(try)
			if p < base || p > base*6/5 {
				t.Fatalf("try %d: %v", try, p)
			}
			spread[p] = true
		}
		if len(spread) < 50 {
			t.Errorf("try %d: only %d different pauses", try, len(spread))
		}
		least += base
		most += base * 6 / 5
	}
	if least < 3*time.Hour || most > 5*time.Hour {
		t.Errorf("all tries within %v to %v", least, most)
	}
	if pause(store.DeliveryTries) < schedule[len(schedule)-1] {
		t.Error("a pause after the last try, which the store does not use, is out of range")
	}
	if Timeout+4*time.Second > store.DeliveryClaim {
		t.Error("a claim ends before a slow receiver's answer can be told")
	}
}
