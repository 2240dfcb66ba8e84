package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"example.com/trawl/pkg/crawl"
)

const (
	// connections are the clients, each with connections of its own: what one read is answered by
	// one process the next may be answered by another.
	connections = 6
	// callTime bounds one call: cancel answers within ten seconds, and a link that swallows all must
	// not hold the load up.
	callTime = 15 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 64 << 20
)

func newHTTPClient() *http.Client {
	return &http.Client{Timeout: callTime, Transport: &http.Transport{
		DialContext:     (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
		IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 4,
	}}
}

// call is one request to the API.
type call struct {
	tenant, method, path string
	query                url.Values
	key                  string // Idempotency-Key, or none
	body                 []byte
}

// answer is what came back, whole.
type answer struct {
	again      bool // net/http sent the request more than once
	status     int
	replayed   bool
	retryAfter time.Duration
	body       []byte
	code       string // of a problem
}

func (a *answer) String() string {
	return fmt.Sprintf("%d %.300s", a.status, a.body)
}

// later reports whether the answer asks to come again: it is an outage and says so.
func (a *answer) later() bool {
	return a.status == http.StatusServiceUnavailable || a.status == http.StatusTooManyRequests
}

// do makes a call once, by the next of the clients. The error is that no whole answer came.
func (l *Load) do(ctx context.Context, c *call) (*answer, error) {
	u := l.o.API() + c.path
	if len(c.query) > 0 {
		u += "?" + c.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, c.method, u, bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	// net/http sends what has an Idempotency-Key again by itself when its connection breaks.
	var sent atomic.Int32
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }}))
	req.Header.Set("Authorization", "Bearer "+l.o.Key[c.tenant])
	if c.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	res, err := l.clients[int(l.next.Add(1))%len(l.clients)].Do(req)
	if err != nil {
		l.outage(ctx)
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		l.outage(ctx)
		return nil, err
	}
	a := &answer{status: res.StatusCode, body: body, replayed: res.Header.Get("Idempotent-Replayed") == "true", again: sent.Load() > 1}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		a.retryAfter = time.Duration(s) * time.Second
	}
	if a.status >= 400 {
		var problem struct {
			Code string `json:"code"`
		}
		_ = json.Unmarshal(body, &problem) // what has no code has none
		a.code = problem.Code
	}
	if a.later() {
		l.outage(ctx)
	}
	return a, nil
}

func (l *Load) outage(ctx context.Context) {
	if ctx.Err() == nil {
		l.count(func(f *figures) { f.outages++ })
	}
}

// until repeats a call until it is answered by something else than an outage, and answers how
// often it was made; the error is that ctx ended before.
func (l *Load) until(ctx context.Context, c *call) (a *answer, tries int, err error) {
	pause := 50 * time.Millisecond
	for {
		a, err = l.do(ctx, c)
		tries++
		if err == nil && !a.later() {
			return a, tries, nil
		}
		next := pause
		if err == nil {
			next = max(pause, min(a.retryAfter, 2*time.Second)) // less than asked: impatient callers exist
		}
		if pause = min(2*pause, time.Second); !wait(ctx, next) {
			return nil, tries, errUnanswered
		}
	}
}

// status is a status as it came, with what is compared of it.
type status struct {
	ID         string           `json:"job_id"`
	State      crawl.State      `json:"state"`
	StopReason crawl.StopReason `json:"stop_reason"`
	RetryOf    string           `json:"retry_of"`

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

	SkippedByReason map[string]int64 `json:"skipped_by_reason"`
	FailedByType    map[string]int64 `json:"failed_by_type"`
	Report          struct {
		Sitemaps       int64 `json:"sitemaps"`
		SitemapsFailed int64 `json:"sitemaps_failed"`
	} `json:"report"`

	CreatedAt string `json:"created_at"`
	StartedAt string `json:"started_at"`
	EndedAt   string `json:"ended_at"`

	raw string // the whole answer
}

func decodeStatus(body []byte) (*status, error) {
	s := &status{raw: string(bytes.TrimSpace(body))}
	if err := json.Unmarshal(body, s); err != nil {
		return nil, fmt.Errorf("a status that is none: %w", err)
	}
	return s, nil
}

// statusOf makes the same of what the store has.
func statusOf(j *crawl.Job) *status {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.Format(time.RFC3339Nano)
	}
	s := &status{
		ID: j.ID, State: j.State, StopReason: j.StopReason, RetryOf: j.RetryOf, Total: j.Total, Processed: j.Processed,
		Accepted: j.Accepted, Failed: j.Failed, Queued: j.Queued, Active: j.Active, Deferred: j.Deferred,
		Skipped: j.Skipped, Cancelled: j.Cancelled, Records: j.Records,
		CreatedAt: at(j.CreatedAt), StartedAt: at(j.StartedAt), EndedAt: at(j.EndedAt),
	}
	s.raw = fmt.Sprintf("%+v", *s)
	return s
}
