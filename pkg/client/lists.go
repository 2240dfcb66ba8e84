package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"
)

// ReadOption changes how a list of a job is read.
type ReadOption func(*reading)

type reading struct {
	call   string // names it in errors
	follow bool
	cursor string
	size   int
	look   time.Duration // longest pause between two looks at what is followed
}

// Follow goes on until the job has ended and all is read, waiting for what is still to
// come, and over outages, as [Client.Wait] does.
func Follow() ReadOption { return func(r *reading) { r.follow = true } }

// From begins behind a page that was read before: cursor is its NextCursor.
func From(cursor string) ReadOption { return func(r *reading) { r.cursor = cursor } }

// PageSize sets how many entries are read at once, 1 to 1,000; the default is 100.
func PageSize(n int) ReadOption { return func(r *reading) { r.size = n } }

// Records walks the accepted pages of a job in the order they were recorded: those that
// are there now, or with [Follow] all that will be. An error is the last that it yields,
// with a zero Record. Each range over it begins anew.
func (c *Client) Records(ctx context.Context, id string, options ...ReadOption) iter.Seq2[Record, error] {
	return walk(ctx, c.readingOf(recordsOf, id, options), func(cursor string, limit int) (*Page[Record], error) {
		return c.RecordPage(ctx, id, cursor, limit)
	})
}

// Errors walks the pages of a job that failed, as [Client.Records] does.
func (c *Client) Errors(ctx context.Context, id string, options ...ReadOption) iter.Seq2[PageError, error] {
	return walk(ctx, c.readingOf(errorsOf, id, options), func(cursor string, limit int) (*Page[PageError], error) {
		return c.ErrorPage(ctx, id, cursor, limit)
	})
}

// RecordPage reads one page of records: for who keeps the cursor between runs. An empty
// cursor begins at the first record; a limit of 0 means the service's default.
func (c *Client) RecordPage(ctx context.Context, id, cursor string, limit int) (*Page[Record], error) {
	return pageOfJob[Record](ctx, c, recordsOf, id, "/records", cursor, limit)
}

// ErrorPage reads one page of errors as [Client.RecordPage] does.
func (c *Client) ErrorPage(ctx context.Context, id, cursor string, limit int) (*Page[PageError], error) {
	return pageOfJob[PageError](ctx, c, errorsOf, id, "/errors", cursor, limit)
}

// How errors name the reading of a list of a job.
const (
	recordsOf = "read records of"
	errorsOf  = "read errors of"
)

func (c *Client) readingOf(verb, id string, options []ReadOption) reading {
	r := reading{call: aboutJob(verb, id), look: c.look}
	for _, option := range options {
		option(&r)
	}
	return r
}

func pageOfJob[T any](ctx context.Context, c *Client, verb, id, below, cursor string, limit int) (*Page[T], error) {
	q, err := ofJob(verb, http.MethodGet, id, below)
	if err != nil {
		return nil, err
	}
	q.query = paging(cursor, limit)
	return page[T](ctx, c, q)
}

func page[T any](ctx context.Context, c *Client, q *request) (*Page[T], error) {
	var p Page[T]
	if err := c.do(ctx, q, func(resp *http.Response) error { return c.decode(resp, &p) }); err != nil {
		return nil, err
	}
	return &p, nil
}

// walk yields the entries of a list page by page, from r.cursor on.
func walk[T any](
	ctx context.Context, r reading, read func(cursor string, limit int) (*Page[T], error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		w := walker{reading: r, patience: patience{longest: r.look}}
		for !w.done {
			page, err := read(w.cursor, w.size)
			if err != nil {
				if err = w.outage(ctx, err); err != nil {
					yield(zero, err)
					return
				}
				continue
			}
			for _, item := range page.Items {
				if ctx.Err() != nil {
					yield(zero, fmt.Errorf("%s: %w", r.call, ctx.Err()))
					return
				}
				if !yield(item, nil) {
					return
				}
			}
			if err := w.advance(ctx, page.NextCursor, page.HasMore, len(page.Items)); err != nil {
				yield(zero, fmt.Errorf("%s: %w", r.call, err))
				return
			}
		}
	}
}

// walker is a place in a list.
type walker struct {
	reading
	patience patience
	done     bool
}

// outage waits for what may pass, when the list is followed, and returns err otherwise.
func (w *walker) outage(ctx context.Context, err error) error {
	if !w.follow || ctx.Err() != nil || !temporary(err) {
		return err
	}
	if err := w.patience.pause(ctx, err); err != nil {
		return fmt.Errorf("%s: %w", w.call, err)
	}
	return nil
}

// advance goes on behind a page of n entries that was read: at once when there is more, and
// in a while when more may come. Without [Follow] what is not there yet is not waited for.
func (w *walker) advance(ctx context.Context, next string, more bool, n int) error {
	switch {
	case next == "" || !more && !w.follow:
		w.done = true
		return nil
	case more && next == w.cursor:
		return errors.New("the service says that there is more, and points at the page that it gave; " +
			"report this to whoever runs it")
	}
	w.cursor = next
	if n > 0 {
		w.patience.reset()
	}
	if more {
		return nil
	}
	return w.patience.pause(ctx, nil)
}
