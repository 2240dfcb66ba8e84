package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	// tryTimeout bounds one try of a call, from the dial to the last byte of the answer,
	// so that an answer that stalls is asked for again. It bounds a download until that
	// begins, and all of a refusal of one.
	tryTimeout = time.Minute

	// The pause before the n-th repetition is a random part of firstPause × 2ⁿ⁻¹, at most
	// longestPause: clients that failed together do not come back together.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second

	// longestWait is how long a call waits, at most, for a time that the service named.
	// A longer one is for the caller to decide about: the error has it.
	longestWait = time.Minute
)

// request is one call: what is sent, the same at each try, and how errors name it.
// Every call of this package can be repeated without harm: reads, pauses, cancels, deletions,
// and what makes jobs, which has a key.
type request struct {
	call   string // names it in errors, as "read job j…"
	method string
	path   string // below the base, escaped
	query  url.Values
	key    string // Idempotency-Key, "" for none
	last   string // Last-Event-ID, "" for none
	body   []byte // JSON, nil for none
	stream bool   // the body of an answer of success is read after the call

	// lost is set when a try failed that the service may have done all the same.
	lost bool
}

// do makes a call, with its repetitions, and hands an answer of success to read. The
// error names the call and wraps its cause.
func (c *Client) do(ctx context.Context, q *request, read func(*http.Response) error) error {
	var last error
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", q.call, interrupted(ctx, last))
		}
		err := c.try(ctx, q, read)
		switch {
		case err == nil:
			return nil
		case !temporary(err):
			return fmt.Errorf("%s: %w", q.call, err)
		case ctx.Err() != nil:
			if !errors.Is(err, ctx.Err()) {
				last = err
			}
			continue
		}
		q.lost, last = q.lost || mayBeDone(err), err
		wait := retryAfter(err) + jitter(try)
		if try > c.retries || wait > longestWait || !inTime(ctx, wait) {
			if try > 1 {
				err = fmt.Errorf("given up after %d tries: %w", try, err)
			}
			return fmt.Errorf("%s: %w", q.call, err)
		}
		pause(ctx, wait)
	}
}

// try makes a call once. Who streams closes the body of an answer of success.
func (c *Client) try(ctx context.Context, q *request, read func(*http.Response) error) error {
	bounded, cancel := context.WithCancelCause(ctx)
	bound := time.AfterFunc(tryTimeout, func() { cancel(context.DeadlineExceeded) })
	body := &releasing{ReadCloser: http.NoBody, release: func() { cancel(nil) }}
	err := c.ask(bounded, q, func(resp *http.Response) error {
		body.ReadCloser, resp.Body = resp.Body, body
		if err := c.refusal(resp); err != nil {
			return err
		}
		return read(resp)
	})
	inTime := bound.Stop()
	if q.stream && err == nil {
		if inTime {
			return nil
		}
		err = c.lost("no answer from "+c.base, context.DeadlineExceeded) // the bound met the download as it began
	}
	_ = body.Close() // what was needed of it is read
	if lost := (*transportError)(nil); errors.As(err, &lost) && !inTime && ctx.Err() == nil {
		lost.text += fmt.Sprintf(" within %v", tryTimeout) // or it would look like the caller's deadline
	}
	return err
}

// ask sends a request and hands the answer, whatever it says, to read.
func (c *Client) ask(ctx context.Context, q *request, read func(*http.Response) error) error {
	r, err := c.newRequest(ctx, q)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r) //nolint:bodyclose // try closes it, or who streams
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // it repeats what the call and base say already
		}
		return c.lost("no answer from "+c.base, err)
	}
	return read(resp)
}

// releasing is the body of an answer that frees the context of its request when it is closed.
type releasing struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (r *releasing) Close() error {
	defer r.release()
	return r.ReadCloser.Close()
}

func (c *Client) newRequest(ctx context.Context, q *request) (*http.Request, error) {
	target := c.base + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, q.method, target, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	c.authorize(r)
	r.Header.Set("User-Agent", userAgent())
	r.Header.Set("Accept", "application/json, application/x-ndjson, "+problemType)
	if q.body != nil {
		r.Header.Set("Content-Type", jsonType)
	}
	if q.key != "" {
		r.Header.Set("Idempotency-Key", q.key)
	}
	if q.last != "" {
		r.Header.Set("Last-Event-ID", q.last)
	}
	return r, nil
}

// interrupted is the error of a call whose context ended, with what failed before that.
func interrupted(ctx context.Context, last error) error {
	if last == nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w; what failed before: %w", ctx.Err(), last)
}

// temporary reports whether a call that failed with err may succeed when it is repeated.
func temporary(err error) bool {
	var refused *Error
	var foreign *answerError
	var lost *transportError
	switch {
	case errors.As(err, &refused):
		return passing(refused.Status)
	case errors.As(err, &foreign):
		return foreign.cut || passing(foreign.status)
	case errors.As(err, &lost):
		var untrusted *tls.CertificateVerificationError
		return !errors.As(err, &untrusted) && !errors.Is(err, http.ErrSchemeMismatch)
	}
	return false
}

// passing reports whether a status may be another one soon. 500 is among them: the
// service says it for a defect, which may have met only this one try, and no call of
// this package does harm when it is repeated.
func passing(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// mayBeDone reports whether a call that failed with err may have been done all the same:
// the request was sent, and no refusal came back.
func mayBeDone(err error) bool {
	var refused *Error
	var foreign *answerError
	switch {
	case errors.As(err, &refused):
		return refused.Status >= http.StatusInternalServerError
	case errors.As(err, &foreign):
		return foreign.status >= http.StatusInternalServerError || foreign.cut
	}
	var dial *net.OpError
	return !errors.As(err, &dial) || dial.Op != "dial"
}

// retryAfter is how long the service asked to wait before the next try, 0 for no wish.
func retryAfter(err error) time.Duration {
	var refused *Error
	var foreign *answerError
	switch {
	case errors.As(err, &refused):
		return refused.RetryAfter
	case errors.As(err, &foreign):
		return foreign.retryAfter
	}
	return 0
}

// jitter is the pause before the n-th repetition, from 1.
func jitter(n int) time.Duration {
	return rand.N(min(longestPause, firstPause<<min(n-1, 10)))
}

// inTime reports whether ctx lasts longer than d.
func inTime(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > d
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Bounds of the pauses between two looks at something that is not there yet. The first
// is short, since a small job is over soon; the longest, unless [WithLongestLook] sets
// another, costs a long job nothing.
const (
	firstLook   = 100 * time.Millisecond
	longestLook = 2 * time.Second
)

// patience paces repeated looks: each pause is half as long again as the one before,
// from [firstLook] to longest, or [longestLook] when that is zero.
type patience struct{ next, longest time.Duration }

func (p *patience) reset() { p.next = 0 }

// pause waits for the next look, at least as long as the service asked for with err,
// which is nil when the look before succeeded, but no longer than [longestWait]: what a
// proxy says of its next hour is not known of the service. It returns the error of ctx
// when that ended.
func (p *patience) pause(ctx context.Context, err error) error {
	p.next = min(cmp.Or(p.longest, longestLook), max(firstLook, p.next+p.next/2))
	// Up to a fifth more or less, so that many that wait do not ask in step.
	d := p.next*4/5 + rand.N(p.next*2/5)
	pause(ctx, max(d, min(retryAfter(err), longestWait)))
	if ctx.Err() != nil {
		return interrupted(ctx, err)
	}
	return nil
}
