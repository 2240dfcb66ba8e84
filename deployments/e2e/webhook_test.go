package e2e

import (
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// inbox is a receiver of webhooks of the test's own.
type inbox struct {
	secret string
	seen   chan *client.Event // each request whose signature fits
	hold   chan struct{}      // closed: it answers; until then it only takes

	mu  sync.Mutex
	bad []error
	srv *http.Server
}

func (in *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		var e *client.Event
		if e, err = client.ReadEvent(r.Header, body, in.secret); err == nil {
			in.seen <- e
		}
	}
	if err != nil {
		in.mu.Lock()
		in.bad = append(in.bad, err)
		in.mu.Unlock()
	}
	select {
	case <-in.hold:
	case <-r.Context().Done():
	}
}

// open begins to listen on an address.
func (in *inbox) open(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	in.srv = &http.Server{Handler: in}
	done := make(chan struct{})
	go func() { defer close(done); _ = in.srv.Serve(l) }()
	t.Cleanup(func() { _ = in.srv.Close(); <-done })
}

// TestWebhookOutlivesReceiversAndWorkers: the receiver is down when the job ends; when it is
// up the worker is killed in the middle of the delivery; the next worker delivers the same event.
// Nothing of it is in a log but what may be there.
func TestWebhookOutlivesReceiversAndWorkers(t *testing.T) {
	t.Parallel()
	d := deploy(t, 0)
	key := crawltest.Random() + crawltest.Random()
	in := &inbox{
		secret: "whsec_" + base64.StdEncoding.EncodeToString([]byte(key)),
		seen:   make(chan *client.Event, 100), hold: make(chan struct{}),
	}
	token := crawltest.Random()
	d.secrets = append(d.secrets, in.secret, key, token)
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	addr := crawltest.FreeAddr(t)
	first := d.startWorker()
	job := d.submit(alpha, fields{
		"urls": []string{site.URL + "/"}, "webhook": fields{"url": "http://" + addr + "/hook?token=" + token, "secret": in.secret},
	}).ID
	before := d.watch(alpha, job).end(long)
	deliveries := func() []client.WebhookDelivery {
		_, body := d.get(alpha, job, "/webhooks")
		return decode[struct{ Items []client.WebhookDelivery }](t, body).Items
	}
	crawltest.Eventually(t, long, "a try at a receiver that is down", func() bool {
		e := deliveries()
		return len(e) == 1 && e[0].Error != "" && e[0].State == client.DeliveryPending && !e[0].NextAt.IsZero()
	})
	in.open(t, addr)
	e := crawltest.Receive(t, long, "event", in.seen)
	first.Kill()
	// The claim of the killed worker ends after 20 s, and the schedule has the next try.
	close(in.hold)
	d.startWorker()
	again := crawltest.Receive(t, long, "event after the death of the worker", in.seen)
	if again.ID != e.ID || again.Type != client.EventCompleted || e.Type != again.Type || again.Data.JobID != job || again.Data.Accepted != 1 {
		t.Errorf("told %+v, then %+v", e, again)
	}
	crawltest.Eventually(t, long, "the event listed as delivered", func() bool {
		all := deliveries()
		return len(all) == 1 && all[0].State == client.DeliveryDelivered && all[0].EventID == e.ID && all[0].Attempts >= 3 &&
			all[0].Status == http.StatusOK && all[0].Error == ""
	})
	if after := d.status(alpha, job); after.State != crawl.Completed || !after.EndedAt.Equal(before.EndedAt) {
		t.Errorf("the job is %+v", after)
	}
	select {
	case e := <-in.seen:
		t.Errorf("told once more: %+v", e)
	case <-time.After(2 * time.Second): // two sweeps of the worker and more
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.bad) > 0 {
		t.Errorf("requests that are no events: %v", in.bad)
	}
	if res, _ := d.get(beta, job, "/webhooks"); res.StatusCode != http.StatusNotFound {
		t.Errorf("another tenant reads them: %d", res.StatusCode)
	}
}
