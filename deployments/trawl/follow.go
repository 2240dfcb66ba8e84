package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
)

// Bounds of what a person waits for.
const (
	// callWithin is how long one answer is waited for, with the tries of the client: one that
	// may come in half a minute is better told than waited for.
	callWithin = 20 * time.Second
	// cancelWithin is longer than the ten seconds that the service takes at most to end a job.
	cancelWithin = 12 * time.Second
	// drainWithin is how long the rest of what was found may take to be read after a cancel.
	drainWithin = 15 * time.Second
	// lateAnswer is how long the answer to a submission is waited for after an interrupt: the
	// job that it names is to be cancelled.
	lateAnswer = 3 * time.Second
)

// shownFailures is how many failed pages a summary shows.
const shownFailures = 5

// run is one job that `trawl crawl` follows.
type run struct {
	s    *session
	srv  *server
	at   call
	show *display
	out  *output

	follows bool // whether links are followed
	// stopped is the job after it was cancelled because its pages cannot be written; where
	// that failed notStopped says why.
	stopped    *client.Job
	notStopped error
}

// crawl submits spec, follows the job to its end and says what became of it.
func (c *crawlCommand) crawl(ctx context.Context, s *session, srv *server, spec client.Spec, show *display) error {
	at := s.callOf(srv, "")
	for _, url := range c.URLs {
		at.inputs = append(at.inputs, shownURL(url))
	}
	job, err := c.submit(ctx, s, srv, spec)
	if err != nil {
		if s.interrupted() && srv.url != "" {
			s.sayf("Left before the server answered. The job may be there all the same: see `%s list`.", s.self)
		}
		return at.explain(err)
	}
	at.job = job.ID
	r := &run{s: s, srv: srv, at: at, show: show, out: c.open(s, show.writer), follows: !c.NoFollow}
	if srv.url != "" {
		r.announce(job)
	}
	last, err := r.follow(ctx)
	if err == nil && c.Format == formatJSON && (last.Records > 0 || !r.out.keeps()) {
		err = writeDocument(ctx, r.srv, r.at, r.out)
	}
	show.close()
	return r.finish(ctx, last, errors.Join(err, r.out.close()))
}

// submit submits spec. An interrupt leaves it the time for an answer that is on its way.
func (c *crawlCommand) submit(
	ctx context.Context, s *session, srv *server, spec client.Spec,
) (*client.Submission, error) {
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
	var options []client.SubmitOption
	if c.Key != "" {
		options = append(options, client.IdempotencyKey(c.Key))
	}
	return srv.Submit(ctx, spec, options...)
}

// announce says which job it is: a person may leave and come back.
func (r *run) announce(job *client.Submission) {
	switch {
	case job.Replayed && job.State.Terminal():
		r.show.note("This --idempotency-key has a job already, " + job.ID + ". This job ended at " +
			clock(job.EndedAt) + "; this is its result.")
	case job.Replayed:
		r.show.note("This --idempotency-key has a job already, " + job.ID + ": following that one.")
	default:
		r.show.note("Job " + job.ID + " is on " + r.at.url + "; `" + r.s.self + " status " + job.ID + "` comes back to it.")
	}
}

// abandon cancels a job whose pages cannot be written.
func (r *run) abandon(ctx context.Context) {
	job, err := cancelJob(ctx, r.srv, r.at.job)
	if err != nil {
		r.notStopped = failuref("The job %s could not be cancelled either: %w", r.at.job, r.at.explain(err))
		return
	}
	r.stopped = job
}

// cancel cancels the job.
func (r *run) cancel(ctx context.Context) error {
	_, err := cancelJob(ctx, r.srv, r.at.job)
	return err
}

// follow shows the job and writes its pages until both are at their end, and returns its
// last status. An interrupt cancels the job, which then ends the same way.
func (r *run) follow(ctx context.Context) (*client.Job, error) {
	following, drop := context.WithCancelCause(ctx)
	defer drop(nil)
	over := make(chan struct{})
	var obeying sync.WaitGroup
	obeying.Go(func() {
		select {
		case <-over:
		case <-r.s.asked:
			if err := r.obey(ctx, over); err != nil {
				drop(err)
			}
		}
	})
	var last *client.Job
	g, both := errgroup.WithContext(following)
	g.Go(func() (err error) {
		f := follow(r.show, r.s.silence)
		defer f.stop()
		last, err = r.srv.Wait(both, r.at.job, f.seen)
		return r.at.explain(err)
	})
	if r.out.format != formatJSON {
		g.Go(func() error { return r.records(ctx, both) })
	}
	err := g.Wait()
	close(over)
	obeying.Wait()
	if cause := context.Cause(following); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	return last, err
}

// obey cancels the job because a person asked for it, and bounds the time that the rest takes.
func (r *run) obey(ctx context.Context, over <-chan struct{}) error {
	r.show.note("Cancelling; press Ctrl-C again to leave at once.")
	if err := r.cancel(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return failuref("The job %s could not be cancelled, and may go on: %w", r.at.job, r.at.explain(err))
	}
	timer := time.NewTimer(drainWithin)
	defer timer.Stop()
	select {
	case <-over:
		return nil
	case <-timer.C:
		return failuref("The job %s is being cancelled, but does not come to its end in time.", r.at.job)
	}
}

// records writes the pages of the job as they come. When they cannot be written the job is
// for nobody, and is cancelled.
func (r *run) records(ctx, both context.Context) error {
	for record, err := range r.srv.Records(both, r.at.job, client.Follow()) {
		if err != nil {
			return r.at.explain(err)
		}
		if err := r.out.record(&record); err != nil {
			r.abandon(ctx)
			return err
		}
	}
	return nil
}

// finish says what became of the job, and returns the exit code that belongs to it.
func (r *run) finish(ctx context.Context, last *client.Job, err error) error {
	if ctx.Err() != nil {
		r.leave()
		return exitError(exitInterrupted)
	}
	if fault, ok := errors.AsType[*outputError](err); ok {
		return r.unwritten(ctx, cmp.Or(r.stopped, last), fault)
	}
	if r.srv.url != "" && errors.Is(err, client.CodeNotFound) {
		err = r.forgotten()
	}
	switch {
	case err != nil && r.s.interrupted():
		r.s.complain(err.Error())
		return exitError(exitInterrupted)
	case err != nil:
		return err
	}
	summarise(ctx, r.s, r.srv, last, r.show.color)
	r.advise(last)
	if text := r.out.untouched(); text != "" {
		r.s.sayf("%s", text)
	} else if r.s.interrupted() {
		r.s.sayf("%s", r.kept(last))
	}
	if r.s.interrupted() {
		return exitError(exitInterrupted)
	}
	return codeOf(last)
}

// unwritten says what became of a job whose pages could not be written. Last is its last
// status, nil where it could not be cancelled.
func (r *run) unwritten(ctx context.Context, last *client.Job, fault *outputError) error {
	code, job := exitError(exitIncomplete), "The reader left: the job "
	if !isBrokenPipe(fault) {
		r.s.complain(fault.Error())
		code, job = exitError(exitFailed), "The job "
	}
	switch {
	case last == nil:
		r.s.complain(r.notStopped.Error())
	case r.srv.url == "":
		summarise(ctx, r.s, r.srv, last, r.show.color)
	default:
		ended := " had ended with "
		if last.State == client.Cancelled {
			ended = " was cancelled after "
		}
		r.s.sayf("%s%s%s%s; `%s results %[2]s` has them.", job, last.ID, ended, counted(last.Records, "record", "records"), r.s.self)
	}
	return code
}

// forgotten is the error for a job that its server has known and knows no more.
func (r *run) forgotten() error {
	written := counted(r.out.records, "record was", "records were") + " written"
	switch {
	case r.out.records == 0:
		written = "Nothing was written"
	case r.out.name != "":
		written = counted(r.out.records, "record is", "records are") + " in " + r.out.name
	}
	return failuref("The server does not know job %s any more: was it restarted with its store in memory? %s.",
		r.at.job, written)
}

// leave says what happens to a job whose person leaves at once.
func (r *run) leave() {
	if r.srv.url != "" {
		r.s.sayf("Left. The job goes on being cancelled on the server: `%s status %s`.", r.s.self, r.at.job)
	}
}

// kept says where the pages are that an interrupted job had found.
func (r *run) kept(last *client.Job) string {
	written := r.out.records
	if r.out.format == formatJSON {
		written = last.Records
	}
	text := counted(written, "record", "records")
	switch {
	case r.out.name != "":
		text += " kept in " + r.out.name
	default:
		text += " written"
	}
	if r.srv.url != "" {
		text += fmt.Sprintf(", %d on the server: `%s results %s`", last.Records, r.s.self, r.at.job)
	}
	return text + "."
}

// advise names the usual way out of what a person meets who crawls without a server.
func (r *run) advise(last *client.Job) {
	if n := last.SkippedByReason["redirect_not_allowed"]; n > 0 && r.srv.url == "" {
		wayOut := "name it too."
		if r.follows {
			wayOut = "name it too, or take --scope domain."
		}
		r.s.sayf("%s to a host that was not named: %s", counted(n, "page leads", "pages lead"), wayOut)
	}
}

// summarise writes what became of a job that has ended, with the first of its failed pages.
func summarise(ctx context.Context, s *session, srv *server, last *client.Job, color bool) {
	var failed []client.PageError
	if last.Failed > 0 {
		ctx, cancel := context.WithTimeout(ctx, callWithin)
		defer cancel()
		page, err := srv.ErrorPage(ctx, last.ID, "", shownFailures)
		if err == nil { // the counts tell the most of it without
			failed = page.Items
		}
	}
	watch.Summary(s.stderr, last, failed, color)
}

// codeOf returns the exit code of a crawl by the state that its job ended in.
func codeOf(last *client.Job) error {
	switch last.State {
	case client.Completed:
		return nil
	case client.CompletedWithErrors, client.Cancelled:
		return exitError(exitIncomplete)
	default:
		return exitError(exitFailed)
	}
}

// counted returns "1 record", "2 records".
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
