package httpapi

import (
	"context"
	"net/http"
	"time"

	"example.com/trawl/pkg/crawl"
)

// pauseWait bounds a pause with its wait for what is in flight, so that it is answered within 5 s:
// a page that takes longer goes on, and is counted when it ends.
const pauseWait = 4 * time.Second

// controlRoutes are those that stop a job for a while, have it go on, and try again what failed.
func (s *Server) controlRoutes() {
	register(s, operation("pause-job", http.MethodPost, "/v1/jobs/{id}/pause",
		"Pause a job; waits up to 4 s for the pages in flight, which go on to their end and are counted. "+
			"After seven days a paused job ends as by its time_limit", http.StatusOK,
		crawl.CodeNotFound, crawl.CodeWrongState, crawl.CodeExpired), s.pause)
	register(s, operation("resume-job", http.MethodPost, "/v1/jobs/{id}/resume",
		"Have a paused job go on where it stood", http.StatusOK,
		crawl.CodeNotFound, crawl.CodeWrongState, crawl.CodeExpired), s.resume)
	register(s, operation("retry-failed", http.MethodPost, "/v1/jobs/{id}/retry-failed",
		"Try the failed URLs of an ended job again, in a new job", http.StatusAccepted, retryCodes...), s.retryFailed)
}

// control is what [Jobs] has to change the state of a job with.
type control func(context.Context, crawl.JobRef) (crawl.State, []crawl.Ring, error)

// apply changes the state of a job and rings for what that decided. Both are done whether or not
// the client is still there: a job that was to start must not wait for a sweep because of it.
func (s *Server) apply(ctx context.Context, x *exchange, ref crawl.JobRef, change control) error {
	_, rings, err := change(context.WithoutCancel(ctx), ref)
	if err == nil {
		s.ring(ctx, x, rings, ref.ID)
	}
	return err
}

// within has a change of state end after d, whatever becomes of the client.
func (c control) within(d time.Duration) control {
	return func(ctx context.Context, ref crawl.JobRef) (crawl.State, []crawl.Ring, error) {
		ctx, stop := context.WithTimeout(ctx, d)
		defer stop()
		return c(ctx, ref)
	}
}

// pause stops a job and waits until nothing of it is in flight. A client that hangs up changes
// nothing; nor does what resumes the job, or ends it, meanwhile: the answer is where it is then.
func (s *Server) pause(ctx context.Context, x *exchange, in *jobInput) (*jobOutput, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return nil, err
	}
	client := ctx
	ctx, stop := context.WithTimeout(client, pauseWait)
	defer stop()
	if err := s.apply(ctx, x, ref, control(s.o.Jobs.Pause).within(pauseWait)); err != nil {
		return nil, unanswered(client, err)
	}
	poll := time.NewTicker(cancelPoll)
	defer poll.Stop()
	var last *jobOutput
	for {
		j, err := s.o.Jobs.Job(ctx, ref)
		switch {
		case err == nil:
			last = &jobOutput{Body: statusOf(&j)}
			if j.Active == 0 || j.State != crawl.Paused {
				return last, nil
			}
		case ctx.Err() == nil:
			return nil, err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			if client.Err() != nil || last == nil {
				return nil, unanswered(client, ctx.Err())
			}
			return last, nil
		}
	}
}

// resume has a job go on, and answers at once.
func (s *Server) resume(ctx context.Context, x *exchange, in *jobInput) (*jobOutput, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return nil, err
	}
	if err := s.apply(ctx, x, ref, control(s.o.Jobs.Resume).within(storeWait)); err != nil {
		return nil, unanswered(ctx, err)
	}
	return s.job(ctx, x, in)
}
