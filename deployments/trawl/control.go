package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"example.com/trawl/pkg/client"
)

// jobsToChange are the jobs whose state a command changes.
type jobsToChange struct {
	IDs  []string `arg:"" name:"id" help:"The jobs."`
	JSON bool     `name:"json" help:"Write the status of each job as the server sends it, one a line."`

	Server serverFlags `embed:""`
}

// change changes the state of one job, and answers it as it is then.
type change func(ctx context.Context, srv *server, id string) (*client.Job, error)

// apply tries every job, whatever became of the one before, and writes a line about each.
func (c *jobsToChange) apply(ctx context.Context, s *session, do change, text func(*client.Job) string) error {
	srv, err := c.Server.connect(s)
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	ctx, stop := s.interruptible(ctx)
	defer stop()
	var faults []error
	for _, id := range c.IDs {
		job, err := do(ctx, srv, id)
		if err != nil {
			faults = append(faults, s.callOf(srv, id).explain(err))
			continue
		}
		if c.JSON {
			err = writeJSON(s, job.Raw)
		} else {
			err = s.table(s.stdout, [][]string{{job.ID + ": " + text(job)}})
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(faults...)
}

// cancelCommand stops jobs.
type cancelCommand struct{ jobsToChange }

// Help returns an example for the help of the command.
func (*cancelCommand) Help() string {
	return "A job that has ended already stays as it is.\n\nExample:\n\n    trawl cancel JOB"
}

// Run executes the command.
func (c *cancelCommand) Run(ctx context.Context, s *session) error {
	return c.apply(ctx, s, cancelJob, func(job *client.Job) string {
		return fmt.Sprintf("%s, %s kept", stateText(job), counted(job.Records, "record", "records"))
	})
}

func cancelJob(ctx context.Context, srv *server, id string) (*client.Job, error) {
	ctx, stop := context.WithTimeout(ctx, cancelWithin)
	defer stop()
	return srv.Cancel(ctx, id)
}

// pauseCommand stops jobs for a while.
type pauseCommand struct{ jobsToChange }

// Help returns an example for the help of the command.
func (*pauseCommand) Help() string {
	return "No more pages are begun; those in progress are fetched to their end and counted. \"trawl resume\" goes on. " +
		"A job that is paused for seven days ends, as by its time limit.\n\n" +
		"Example:\n\n    trawl pause JOB"
}

// Run executes the command.
func (c *pauseCommand) Run(ctx context.Context, s *session) error {
	return c.apply(ctx, s, bounded((*client.Client).Pause), whereItIs)
}

// resumeCommand has paused jobs go on.
type resumeCommand struct{ jobsToChange }

// Help returns an example for the help of the command.
func (*resumeCommand) Help() string {
	return "A job that is not paused goes on as it does.\n\nExample:\n\n    trawl resume JOB && trawl status --wait JOB"
}

// Run executes the command.
func (c *resumeCommand) Run(ctx context.Context, s *session) error {
	return c.apply(ctx, s, bounded((*client.Client).Resume), whereItIs)
}

// bounded bounds what a call of the client takes.
func bounded(call func(*client.Client, context.Context, string) (*client.Job, error)) change {
	return func(ctx context.Context, srv *server, id string) (*client.Job, error) {
		ctx, stop := context.WithTimeout(ctx, callWithin)
		defer stop()
		return call(srv.Client, ctx, id)
	}
}

// whereItIs returns the state of a job and how far it has come.
func whereItIs(job *client.Job) string { return stateText(job) + ", " + pagesText(job) }

// retryCommand tries again what failed.
type retryCommand struct {
	ID     string  `arg:"" name:"id" help:"The job, which has ended."`
	Wait   bool    `help:"Wait until the new job has ended; the exit code is then that of a crawl."`
	JSON   bool    `name:"json" help:"Write the status of the new job as the server sends it."`
	Cursor string  `placeholder:"CURSOR" help:"Where to go on when more failed than one job may have; the command says it then."`
	Key    *string `name:"idempotency-key" placeholder:"ID" help:"Names the new job: the same ID for the same job is the same new job."`

	progressFlags
	Server serverFlags `embed:""`
}

// Help returns an example for the help of the command.
func (*retryCommand) Help() string {
	return "The pages of a job that failed are tried again, in a new job with what the old one asked for. " +
		"The old one stays as it ended.\n\nExample:\n\n    trawl retry --wait JOB"
}

// Run executes the command.
func (c *retryCommand) Run(ctx context.Context, s *session) error {
	if c.Key != nil && !idempotencyKey.MatchString(*c.Key) {
		return badUsage(badIdempotencyKey)
	}
	srv, err := c.Server.connect(s)
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	key := cmp.Or(valueOf(c.Key), rand.Text()) // known here, to come back to a job whose answer is lost
	job, err := awaited(ctx, s, func(ctx context.Context) (*client.Retried, error) {
		return srv.RetryFailed(ctx, c.ID, c.Cursor, client.IdempotencyKey(key))
	})
	if err != nil {
		again := "call again: " + s.self + " retry " + c.ID
		if c.Cursor != "" {
			again += " --cursor " + c.Cursor
		}
		return unsubmitted(s, s.callOf(srv, c.ID), again, key, err)
	}
	if job.Replayed {
		s.sayf("This --idempotency-key has a job already, %s.", job.ID)
	}
	if job.NextCursor != "" {
		s.sayf("More failed than one job may have: `%s retry %s --cursor %s` tries the next.", s.self, c.ID, job.NextCursor)
	}
	switch {
	case c.Wait:
		s.sayf("Job %s tries %s again; `%s status --wait %[1]s` comes back to it.", job.ID, counted(job.Total, "page", "pages"), s.self)
		wait := statusCommand{ID: job.ID, Wait: true, JSON: c.JSON, progressFlags: c.progressFlags, Server: c.Server}
		return wait.Run(ctx, s)
	case c.JSON:
		return writeJSON(s, job.Raw)
	}
	text := fmt.Sprintf("%s: %s, tries %s of %s again", job.ID, stateText(&job.Job), counted(job.Total, "page", "pages"), c.ID)
	return s.table(s.stdout, [][]string{{text}})
}
