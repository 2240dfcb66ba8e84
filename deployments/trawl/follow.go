package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/netguard"
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

	columns []client.DownloadOption // of a document
	follows bool                    // whether links are followed
	// stopped is the job after it was cancelled because its pages cannot be written; where
	// that failed notStopped says why.
	stopped    *client.Job
	notStopped error
	unread     error // why the rest of the pages was given up after an interrupt

	seen      atomic.Pointer[client.Job] // the last status that was shown
	cancelled atomic.Pointer[client.Job] // what the server answered to a cancel; nil while it has not
}

// crawl submits spec, follows the job to its end and says what became of it.
func (c *crawlCommand) crawl(ctx context.Context, s *session, srv *server, spec client.Spec, show *display) error {
	at := s.callOf(srv, "")
	for _, url := range c.URLs {
		at.inputs = append(at.inputs, shownURL(url))
	}
	at.fields, at.byFlag = c.Fields, c.taking.Collection == nil
	key := cmp.Or(valueOf(c.Key), rand.Text()) // known here, to come back to a job whose answer is lost
	job, err := submit(ctx, s, srv, spec, key)
	if err != nil {
		return unsubmitted(s, at, "submit again with", key, err)
	}
	at.job = job.ID
	r := &run{s: s, srv: srv, at: at, show: show, out: c.open(s, show.writer), columns: c.columns(), follows: !c.NoFollow}
	if srv.url != "" {
		r.announce(job)
	}
	last, err := r.follow(ctx)
	if err == nil && c.whole() && (last.Records > 0 || !r.out.keeps()) {
		err = r.document(ctx)
	}
	show.close()
	return r.finish(ctx, last, errors.Join(err, r.out.close()))
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

// cancel cancels the job, and remembers what the server says.
func (r *run) cancel(ctx context.Context) error {
	job, err := cancelJob(ctx, r.srv, r.at.job)
	if err == nil {
		r.cancelled.Store(job)
	}
	return err
}

// latest returns the newest status of the job that is known, nil for none.
func (r *run) latest() *client.Job {
	seen, answer := r.seen.Load(), r.cancelled.Load()
	if seen != nil && seen.State.Terminal() {
		return seen
	}
	return cmp.Or(answer, seen)
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
				r.s.expire()
			}
		}
	})
	r.out.until = following.Done()
	var last *client.Job
	g, both := errgroup.WithContext(following)
	g.Go(func() (err error) {
		f := follow(r.show, r.s.silence)
		defer f.stop()
		last, err = r.srv.Wait(both, r.at.job, r.seen.Store, f.seen)
		return r.at.explain(err)
	})
	if !r.out.whole() {
		g.Go(func() error { return r.records(ctx, both) })
	}
	err := g.Wait()
	close(over)
	obeying.Wait()
	cause := context.Cause(following)
	switch {
	case r.unread != nil:
		err = r.unread // which of the two ends first is chance
	case cause != nil && errors.Is(err, context.Canceled):
		err = cause
	}
	return last, err
}

// obey cancels the job because a person asked for it, and bounds the time that the rest takes.
func (r *run) obey(ctx context.Context, over <-chan struct{}) error {
	r.saySoon("Cancelling; press Ctrl-C again to leave at once.")
	if err := r.cancel(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return failuref("The job %s could not be cancelled: %w%s", r.at.job, r.at.explain(err), r.mayGoOn())
	}
	timer := time.NewTimer(r.s.drain)
	defer timer.Stop()
	select {
	case <-over:
		return nil
	case <-timer.C:
		return failuref("The job %s is being cancelled, but does not come to its end in time.", r.at.job)
	}
}

// saySoon shows a sentence, and waits only a moment for that: where standard output and
// standard error are one pipe that nobody reads the job is to be cancelled all the same.
func (r *run) saySoon(text string) {
	shown := make(chan struct{})
	go func() {
		r.show.note(text)
		close(shown)
	}()
	timer := time.NewTimer(leaveWithin)
	defer timer.Stop()
	select {
	case <-shown:
	case <-timer.C:
	}
}

// mayGoOn says, as a further line, what can be done about a job that was not cancelled; the
// one inside this process ends with it.
func (r *run) mayGoOn() string {
	if r.srv.url == "" {
		return ""
	}
	return "\nThe job may go on: `" + r.s.self + " cancel " + r.at.job + "`."
}

// document writes the whole result. An interrupt ends that; after one that cancelled the job
// there is a while for it.
func (r *run) document(ctx context.Context) error {
	bounded, cancel := r.s.rest(ctx, r.s.drain)
	defer cancel()
	r.out.until = bounded.Done()
	err := writeDocument(bounded, r.srv, r.at, r.out, r.columns)
	if _, unwritten := errors.AsType[*outputError](err); err == nil || unwritten || bounded.Err() == nil {
		return err
	}
	r.s.expire()
	text := "Left before the document was whole"
	if r.srv.url != "" {
		text += ": `" + r.s.self + " results --format " + r.out.format + " " + r.at.job + "` reads it again"
	}
	return failuref("%s.", text)
}

// records writes the pages of the job as they come. When they cannot be written the job is
// for nobody, and is cancelled.
func (r *run) records(ctx, both context.Context) error {
	for record, err := range r.srv.Records(both, r.at.job, client.Follow()) {
		if err != nil {
			return r.at.explain(err)
		}
		switch err := r.out.record(&record); {
		case errors.Is(err, errUnread): // after an interrupt, which cancels the job
			r.unread = err
			return err
		case err != nil:
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
		return r.unwritten(ctx, cmp.Or(r.stopped, last, r.cancelled.Load()), fault)
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
	if r.s.interrupted() {
		code = exitError(exitInterrupted)
	}
	switch {
	case last == nil && r.notStopped != nil:
		r.s.complain(r.notStopped.Error() + r.mayGoOn())
	case last == nil:
		r.leave()
	case r.srv.url == "":
		summarise(ctx, r.s, r.srv, last, r.show.color)
	default:
		ended := " had ended with "
		switch {
		case last.State == client.Cancelled:
			ended = " was cancelled after "
		case !last.State.Terminal():
			ended = " is being cancelled after "
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
	job, id := r.latest(), r.at.job
	switch {
	case r.srv.url == "":
	case job != nil && job.State.Terminal():
		r.s.sayf("Left. The job had ended, %s with %s: `%s results %s`.",
			stateText(job), counted(job.Records, "record", "records"), r.s.self, id)
	case r.cancelled.Load() != nil:
		r.s.sayf("Left. The job goes on being cancelled on the server: `%s status %s`.", r.s.self, id)
	default:
		r.s.sayf("Left.%s", strings.Replace(r.mayGoOn(), "\n", " ", 1))
	}
}

// kept says where the pages are that an interrupted job had found.
func (r *run) kept(last *client.Job) string {
	written := r.out.records
	if r.out.whole() {
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
	if n := last.FailedByType["missing_field"]; n > 0 && r.at.fields != "" {
		wayOut := ""
		if r.follows {
			wayOut = "; \"list_pages\" in it are patterns of pages that need none of it"
		}
		r.s.sayf("%s what %s requires: `%s extract --fields %s URL` shows what a page gives%s.",
			counted(n, "page lacks", "pages lack"), r.at.fields, r.s.self, r.at.fields, wayOut)
	}
}

// summarise writes what became of a job that has ended, with the first of its failed pages.
func summarise(ctx context.Context, s *session, srv *server, last *client.Job, color bool) {
	var failed []client.PageError
	if last.Failed > 0 {
		bounded, cancel := s.rest(ctx, lateAnswer)
		defer cancel()
		bounded, stop := context.WithTimeout(bounded, callWithin)
		defer stop()
		page, err := srv.ErrorPage(bounded, last.ID, "", shownFailures)
		if err == nil { // the counts tell the most of it without
			failed = page.Items
		}
	}
	if srv.url == "" {
		last, failed = localWords(last, failed)
	}
	watch.Summary(s.stderr, last, failed, color)
}

// operatorAdvice is what the crawler says of an address that is private: to who runs a server.
var operatorAdvice = regexp.MustCompile(`the operator can add \S+ to ` + netguard.Setting + `\.`)

// localWords returns a job and its failed pages with advice for who crawls without a server.
func localWords(job *client.Job, failed []client.PageError) (*client.Job, []client.PageError) {
	const advice = "name that host on the command line too."
	told := *job
	told.Error = operatorAdvice.ReplaceAllLiteralString(told.Error, advice)
	failed = slices.Clone(failed)
	for i := range failed {
		failed[i].Message = operatorAdvice.ReplaceAllLiteralString(failed[i].Message, advice)
	}
	return &told, failed
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
