package client_test

import (
	"syscall"
	"testing"

	"example.com/trawl/pkg/client"
)

// A retry says what became of it, and has a key of its own when none is given.
func TestRetryFailed(t *testing.T) {
	t.Parallel()
	const body = `{"job_id":"j2","state":"queued","retry_of":"j1","retry_next_cursor":"c+/"}`
	s, c := newService(t, text(202, jsonType, body).with("Idempotent-Replayed", "true"))
	got, err := c.RetryFailed(t.Context(), "j1", "", client.IdempotencyKey("k"))
	if err != nil || got.ID != "j2" || got.RetryOf != "j1" || got.NextCursor != "c+/" || !got.Replayed || got.IdempotencyKey != "k" {
		t.Errorf("%+v, %v", got, err)
	}
	keys := map[string]bool{}
	for range 2 {
		own, err := c.RetryFailed(t.Context(), "j1", "c")
		if err != nil || own.IdempotencyKey == "" || keys[own.IdempotencyKey] {
			t.Errorf("%+v, %v", own, err)
			continue
		}
		keys[own.IdempotencyKey] = true
	}
	if sent := s.got(); len(sent) != 3 || sent[0].header.Get("Idempotency-Key") != "k" || !keys[sent[1].header.Get("Idempotency-Key")] {
		t.Errorf("sent %+v", sent)
	}
	for _, key := range []string{"", "a b"} {
		if _, err := c.RetryFailed(t.Context(), "j1", "", client.IdempotencyKey(key)); err == nil {
			t.Errorf("the key %q is sent", key)
		} else {
			presentable(t, err)
		}
	}
	if _, err := c.RetryFailed(t.Context(), "..", ""); !isCode(err, client.CodeNotFound) {
		t.Errorf("%v", err)
	}
}

// What is sent again because its answer was lost is the same call, with the same key.
func TestLostRetryFailed(t *testing.T) {
	t.Parallel()
	s, c := newService(t, &answer{err: syscall.ECONNRESET}, text(202, jsonType, `{"job_id":"j2"}`))
	got, err := c.RetryFailed(t.Context(), "j1", "c")
	sent := s.got()
	if err != nil || got.NextCursor != "" || len(sent) != 2 || sent[0].uri != sent[1].uri ||
		sent[0].header.Get("Idempotency-Key") != sent[1].header.Get("Idempotency-Key") || sent[0].header.Get("Idempotency-Key") == "" {
		t.Errorf("%+v, %v; sent %+v", got, err, sent)
	}
}

// The whole service pauses a job with what is in flight, has it go on, and tries again what failed.
func TestControlOfTheService(t *testing.T) {
	t.Parallel()
	c, site, stop := start()
	t.Cleanup(stop)
	ctx := t.Context()
	job, err := c.Submit(ctx, client.Spec{URLs: []string{site + "/slow", site + "/slower", site + "/lost"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Pause(ctx, job.ID); err != nil || got.State != client.Paused {
		t.Errorf("paused: %+v, %v", got, err)
	}
	if _, err := c.RetryFailed(ctx, job.ID, ""); !isCode(err, client.CodeJobNotTerminal) {
		t.Errorf("a retry of what runs: %v", err)
	}
	for range 2 {
		if got, err := c.Resume(ctx, job.ID); err != nil || got.State != client.Running && got.State != client.Queued {
			t.Errorf("resumed: %+v, %v", got, err)
		}
	}
	if got, err := c.Cancel(ctx, job.ID); err != nil || !got.State.Terminal() {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	for _, call := range []func() error{
		func() error { _, err := c.Pause(ctx, job.ID); return err },
		func() error { _, err := c.Resume(ctx, job.ID); return err },
	} {
		if err := call(); !isCode(err, client.CodeWrongState) {
			t.Errorf("of an ended job: %v", err)
		}
	}
}
