package client

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Webhook asks for events of a job to be posted to a receiver of the caller's own.
type Webhook struct {
	URL    string      `json:"url,omitempty"`
	Events []EventType `json:"events,omitempty"` // none means each end of the job
	// Secret signs what is posted: whsec_ and the base64 of 24 to 64 random bytes. Without one
	// nothing is signed. A status shows "***".
	Secret string `json:"secret,omitempty"`
}

// EventType names what a webhook tells of.
type EventType string

// The events of a job: a worker began it, and the ends that it can have.
const (
	EventRunning             EventType = "job.running"
	EventCompleted           EventType = "job.completed"
	EventCompletedWithErrors EventType = "job.completed_with_errors"
	EventFailed              EventType = "job.failed"
	EventCancelled           EventType = "job.cancelled"
)

// Event is what a webhook posts: a snapshot of a job, which each try of a delivery repeats.
type Event struct {
	Type      EventType `json:"type"`
	Timestamp time.Time `json:"timestamp"` // when it happened
	Data      EventData `json:"data"`

	// ID names the event: drop what you have seen. It comes in a header, not in the body.
	ID string `json:"-"`
}

// EventData is the job at the time of an event, with the fields of a [Job].
type EventData struct {
	JobID      string `json:"job_id"`
	State      State  `json:"state"`
	StopReason string `json:"stop_reason"`
	Error      string `json:"error"`

	Total     int64 `json:"total"`
	Processed int64 `json:"processed"`
	Accepted  int64 `json:"accepted"`
	Failed    int64 `json:"failed"`
	Queued    int64 `json:"queued"`
	Active    int64 `json:"active"`
	Deferred  int64 `json:"deferred"`
	Skipped   int64 `json:"skipped"`
	Cancelled int64 `json:"cancelled"`
	Records   int64 `json:"records"`
	Bytes     int64 `json:"bytes"`

	CreatedAt time.Time `json:"created_at"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	ExpiresAt time.Time `json:"expires_at"`

	Tags []string `json:"tags"`
}

// DeliveryState says what became of an event.
type DeliveryState string

// The states of a delivery. One that failed is not tried again.
const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryFailed    DeliveryState = "failed"
)

// WebhookDelivery is one event of a job and what became of it.
type WebhookDelivery struct {
	EventID     string        `json:"event_id"`
	Type        EventType     `json:"type"`
	State       DeliveryState `json:"state"`
	Attempts    int           `json:"attempts"`     // tries so far, one under way included
	Status      int           `json:"status"`       // of the last answer; 0 without one
	Error       string        `json:"error"`        // why the last try failed, for a person
	CreatedAt   time.Time     `json:"created_at"`   // when it happened
	NextAt      time.Time     `json:"next_at"`      // when it is tried next; zero when that is not planned
	DeliveredAt time.Time     `json:"delivered_at"` // zero until then
}

// Webhooks reads which events of a job were delivered to its webhook, in their order; none
// without a webhook.
func (c *Client) Webhooks(ctx context.Context, id string) ([]WebhookDelivery, error) {
	q, err := ofJob("read webhooks of", http.MethodGet, id, "/webhooks")
	if err != nil {
		return nil, err
	}
	var out struct {
		Items *[]WebhookDelivery `json:"items"`
	}
	err = c.do(ctx, q, func(resp *http.Response) error {
		if err := c.decode(resp, &out); err != nil {
			return err
		}
		if out.Items == nil {
			return c.foreign(resp, nil, "it has no items")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return *out.Items, nil
}

// eventAge is how old, or how far ahead, the time of a delivery may be: what Standard
// Webhooks suggests, so that a delivery that was listened to cannot be sent again later.
const eventAge = 5 * time.Minute

// ErrSignature says that a request to a receiver was not made by who has the secret of the
// webhook, or not now.
var ErrSignature = errors.New("the signature of the webhook does not fit")

// ReadEvent reads what was posted to a receiver: header and whole body of the request, and
// the secret that the job was submitted with. Whoever does not have the secret gets
// [ErrSignature]. It is for receivers in Go; others find a library for their language at
// standardwebhooks.com.
func ReadEvent(header http.Header, body []byte, secret string) (*Event, error) {
	text, ok := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) == 0 {
		return nil, errors.New("read event: the secret is not whsec_ and base64")
	}
	id, at := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if age := time.Since(time.Unix(seconds, 0)); err != nil || age > eventAge || age < -eventAge {
		return nil, fmt.Errorf("read event: its time is missing, or not within %v: %w", eventAge, ErrSignature)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for signature := range strings.SplitSeq(header.Get("Webhook-Signature"), " ") {
		if hmac.Equal([]byte(signature), want) {
			event := Event{ID: id}
			if err := json.Unmarshal(body, &event); err != nil {
				return nil, fmt.Errorf("read event: %w", err)
			}
			return &event, nil
		}
	}
	return nil, fmt.Errorf("read event: %w", ErrSignature)
}
