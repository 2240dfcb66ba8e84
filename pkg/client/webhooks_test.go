package client_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"example.com/trawl/pkg/client"
)

func TestWebhooks(t *testing.T) {
	t.Parallel()
	s, c := newService(t, ok(`{"items":[{"event_id":"evt_1","type":"job.failed","state":"pending","attempts":2,"status":302,
		"error":"It answered 302.","created_at":"2026-05-06T07:08:09.123Z","next_at":"2026-05-06T07:09:09.123Z","delivered_at":null}]}`))
	at := time.Date(2026, 5, 6, 7, 8, 9, 123e6, time.UTC)
	want := []client.WebhookDelivery{{
		EventID: "evt_1", Type: client.EventFailed, State: client.DeliveryPending, Attempts: 2, Status: 302, Error: "It answered 302.",
		CreatedAt: at, NextAt: at.Add(time.Minute),
	}}
	got, err := c.Webhooks(t.Context(), "j1")
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v, -want +got:\n%s", err, d)
	}
	if r := s.got()[0]; r.method != "GET" || r.uri != "/v1/jobs/j1/webhooks" {
		t.Errorf("asked %s %s", r.method, r.uri)
	}
	for _, answer := range []string{`{}`, `{"items":null}`} {
		_, c := newService(t, ok(answer))
		if got, err := c.Webhooks(t.Context(), "j1"); err == nil {
			t.Errorf("%s: %+v", answer, got)
		}
	}
	_, c = newService(t, refusal(404, client.CodeNotFound))
	if _, err := c.Webhooks(t.Context(), "j1"); !isCode(err, client.CodeNotFound) || !strings.HasPrefix(err.Error(), "read webhooks of job j1: ") {
		t.Error(err)
	}
	if _, err := c.Webhooks(t.Context(), ""); !errors.Is(err, client.CodeNotFound) {
		t.Error(err)
	}
}

// What the library of the standard signs is read, and nothing else is.
func TestReadEvent(t *testing.T) {
	t.Parallel()
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	other := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("l", 32)))
	const body = `{"type":"job.failed","timestamp":"2026-05-06T07:08:09.123Z","data":{"job_id":"j1","total":3,"stop_reason":null}}`
	sign := func(secret, id string, at time.Time, body string) string {
		key, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		s, err := key.Sign(id, at, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	now := time.Now()
	good := sign(secret, "evt_1", now, body)
	for _, tt := range []struct {
		name, id, signature, body, secret string
		at                                time.Time
		want                              error // nil: it is read
	}{
		{"good", "evt_1", good, body, secret, now, nil},
		{"one of several", "evt_1", "v1a,x v1, " + sign(other, "evt_1", now, body) + " " + good, body, secret, now, nil},
		{"none", "evt_1", "", body, secret, now, client.ErrSignature},
		{"another secret", "evt_1", good, body, other, now, client.ErrSignature},
		{"another body", "evt_1", good, body + " ", secret, now, client.ErrSignature},
		{"another id", "evt_2", good, body, secret, now, client.ErrSignature},
		{"another version", "evt_1", strings.Replace(good, "v1", "v2", 1), body, secret, now, client.ErrSignature},
		{"old", "evt_1", sign(secret, "evt_1", now.Add(-time.Hour), body), body, secret, now.Add(-time.Hour), client.ErrSignature},
		{"from the future", "evt_1", sign(secret, "evt_1", now.Add(time.Hour), body), body, secret, now.Add(time.Hour), client.ErrSignature},
	} {
		h := http.Header{}
		h.Set("webhook-id", tt.id)
		h.Set("webhook-timestamp", strconv.FormatInt(tt.at.Unix(), 10))
		h.Set("webhook-signature", tt.signature)
		e, err := client.ReadEvent(h, []byte(tt.body), tt.secret)
		if !errors.Is(err, tt.want) || (e == nil) != (tt.want != nil) {
			t.Errorf("%s: %+v, %v", tt.name, e, err)
		}
		if e != nil && (e.ID != "evt_1" || e.Type != client.EventFailed || e.Data.JobID != "j1" || e.Data.Total != 3 || e.Timestamp.Year() != 2026) {
			t.Errorf("%s: %+v", tt.name, e)
		}
	}
	for _, bad := range []string{"", "whsec_", "whsec_!", secret[6:]} {
		h := http.Header{"Webhook-Signature": {good}, "Webhook-Id": {"evt_1"}, "Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)}}
		if e, err := client.ReadEvent(h, []byte(body), bad); err == nil || errors.Is(err, client.ErrSignature) {
			t.Errorf("secret %q: %+v, %v", bad, e, err)
		}
	}
}
