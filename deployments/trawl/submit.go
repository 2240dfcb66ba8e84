package main

import (
	"context"
	"errors"
	"time"

	"example.com/trawl/pkg/client"
)

// submit submits spec under an idempotency key, see awaited.
func submit(
	ctx context.Context, s *session, srv *server, spec client.Spec, key string,
) (*client.Submission, error) {
	return awaited(ctx, s, func(ctx context.Context) (*client.Submission, error) {
		return srv.Submit(ctx, spec, client.IdempotencyKey(key))
	})
}

// awaited makes a call that makes a job. An interrupt leaves it the time for an answer that is on its way.
func awaited[T any](ctx context.Context, s *session, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-over:
			return
		case <-s.asked:
		}
		timer := time.NewTimer(lateAnswer)
		defer timer.Stop()
		select {
		case <-over:
		case <-timer.C:
			cancel()
		}
	}()
	return call(ctx)
}

// unsubmitted words why a submission failed. Where that was no refusal the server may have
// taken it, and only its answer was lost: who is not told leaves a job behind. again is how the same
// is submitted once more, to which the key belongs.
func unsubmitted(s *session, at call, again, key string, err error) error {
	said := at.explain(err)
	if _, refused := errors.AsType[*client.Error](err); refused || at.url == "" {
		return said
	}
	hint := "The job may be there: `" + s.self + " list`, or " + again + " --idempotency-key " + key + "."
	if s.interrupted() {
		s.sayf("Left before the server answered. %s", hint)
		return said
	}
	return &explained{said.Error() + "\n" + hint, said}
}
