package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
)

// resultsCommand writes what a job has found.
type resultsCommand struct {
	ID     string `arg:"" name:"id" help:"The job."`
	Follow bool   `short:"f" help:"Go on until the job has ended."`

	outputFlags
	Server serverFlags `embed:""`
}

// Help returns an example for the help of the command.
func (*resultsCommand) Help() string {
	return "Pages come in the order in which they were recorded, also while the job runs.\n\nExample:\n\n" +
		"    trawl results JOB --follow -o pages.ndjson\n" +
		"    trawl results JOB --format csv --columns source_url,title,fields.price -o prices.csv"
}

// Run executes the command.
func (c *resultsCommand) Run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	srv, err := c.Server.connect(s)
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	at := s.callOf(srv, c.ID)
	job, err := c.await(ctx, srv)
	if err != nil {
		return at.explain(err)
	}
	out := c.open(s, func(w io.Writer) io.Writer { return w })
	out.until = ctx.Done()
	if err := errors.Join(c.write(ctx, srv, at, job, out), out.close()); err != nil {
		return err
	}
	if text := out.untouched(); text != "" {
		s.sayf("%s", text)
	}
	return nil
}

// write writes what the job has.
func (c *resultsCommand) write(ctx context.Context, srv *server, at call, job *client.Job, out *output) error {
	if c.whole() {
		if job.Records == 0 && out.keeps() {
			return nil
		}
		return writeDocument(ctx, srv, at, out, c.columns())
	}
	for record, err := range paged(ctx, pageBound(c.Follow), func(ctx context.Context) iter.Seq2[client.Record, error] {
		return srv.Records(ctx, c.ID, following(c.Follow)...)
	}) {
		if err != nil {
			return at.explain(err)
		}
		if err := out.record(&record); err != nil {
			return err
		}
	}
	return nil
}

// await returns the job when its results can be read: at once, or for the document, which
// an ended job alone has, with --follow at the end of the job.
func (c *resultsCommand) await(ctx context.Context, srv *server) (*client.Job, error) {
	if c.whole() && c.Follow {
		return srv.Wait(ctx, c.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	job, err := srv.Job(ctx, c.ID)
	if err == nil && c.whole() && !job.State.Terminal() {
		return nil, &client.Error{Code: client.CodeJobNotTerminal}
	}
	return job, err
}

func following(follow bool) []client.ReadOption {
	if follow {
		return []client.ReadOption{client.Follow()}
	}
	return nil
}

// pageBound is how long one page of a list may take, 0 for who waits for what is to come.
func pageBound(follow bool) time.Duration {
	if follow {
		return 0
	}
	return callWithin
}

// writeDocument writes the whole result of a job that has ended.
func writeDocument(ctx context.Context, srv *server, at call, out *output, columns []client.DownloadOption) error {
	return copyDocument(at, out, func() (io.ReadCloser, error) {
		return srv.Result(ctx, at.job, client.Format(out.format), columns...)
	})
}

// copyDocument writes the document that open opens.
func copyDocument(at call, out *output, open func() (io.ReadCloser, error)) error {
	body, err := open()
	if err != nil {
		return at.explain(err)
	}
	defer body.Close()
	err = out.document(body)
	if _, ok := errors.AsType[*outputError](err); ok {
		return err
	}
	return at.explain(err)
}

// errorsCommand shows the pages of a job that failed.
type errorsCommand struct {
	ID     string `arg:"" name:"id" help:"The job."`
	Follow bool   `short:"f" help:"Go on until the job has ended."`
	JSON   bool   `name:"json" help:"Write them as the server sends them, one a line."`

	Server serverFlags `embed:""`
}

// Help returns an example for the help of the command.
func (*errorsCommand) Help() string { return "Example:\n\n    trawl errors JOB" }

// Run executes the command.
func (c *errorsCommand) Run(ctx context.Context, s *session) error {
	srv, err := c.Server.connect(s)
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	at := s.callOf(srv, c.ID)
	for page, err := range paged(ctx, pageBound(c.Follow), func(ctx context.Context) iter.Seq2[client.PageError, error] {
		return srv.Errors(ctx, c.ID, following(c.Follow)...)
	}) {
		if err != nil {
			return at.explain(err)
		}
		if c.JSON {
			err = writeJSON(s, page.Raw)
		} else {
			_, err = fmt.Fprintln(s.stdout, watch.Clean(failureText(&page)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// failureText returns a failed page in one line. It is not cut: the URLs are to be used.
func failureText(e *client.PageError) string {
	text := fmt.Sprintf("%-12s  %s", e.ErrorType, e.URL)
	if e.URL != e.SourceURL && e.SourceURL != "" {
		text += "  redirected from " + e.SourceURL
	}
	if e.DiscoveredOn != "" {
		text += "  linked from " + e.DiscoveredOn
	}
	if e.Message != "" {
		text += "  " + e.Message
	}
	return text
}
