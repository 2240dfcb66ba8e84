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
	// ended reports whether nothing can be added any more; nil when that is never asked.
	ended func(context.Context) (bool, error)
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
	r := c.readingOf(recordsOf, id, options)
	return bySeq.keep(r.call, 0, walk(ctx, r, func(cursor string, limit int) (*Page[Record], error) {
		return c.RecordPage(ctx, id, cursor, limit)
	}))
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
	r := reading{call: aboutJob(verb, id), look: c.look, ended: func(ctx context.Context) (bool, error) {
		job, err := c.Job(ctx, id)
		return err == nil && job.State.Terminal(), err
	}}
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

	// Cursors that were met before are found by Brent's algorithm: mark is the one that
	// step power was at, and each power is twice the one before. That finds a circle of any
	// length within three rounds, and keeps one cursor of a list of millions.
	mark        string
	step, power int

	empty int  // pages without entries in a row
	idle  int  // those of them that had no more to come at once
	over  bool // the job had ended, some empty pages ago
}

const (
	// report ends what is said of a service that would be walked without end.
	report = "report this to whoever runs the service"

	// maxIdle is after how many looks in vain in a row the job is asked whether more can
	// come at all: with the longest pauses twenty seconds.
	maxIdle = 10
)

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

// advance goes on behind a page of n entries that was read: when there is more at once,
// or nearly so, and in a while when more may come. Without [Follow] what is not there yet
// is not waited for.
func (w *walker) advance(ctx context.Context, next string, more bool, n int) error {
	if next == "" || !more && !w.follow {
		w.done = true
		return nil
	}
	if w.empty++; n > 0 {
		w.empty, w.idle, w.over = 0, 0, false
		w.patience.reset()
	}
	if more || n > 0 || next != w.cursor {
		if err := w.move(next); err != nil {
			return err
		}
	}
	switch {
	case !more:
		if err := w.doubt(ctx); err != nil {
			return err
		}
		return w.patience.pause(ctx, nil)
	case w.empty > 1:
		// A filter may have nothing for long, but a service that never has must not be
		// asked without a break.
		return (&patience{longest: firstLook}).pause(ctx, nil)
	}
	return nil
}

// move goes on to a cursor, which is never one that was behind it.
func (w *walker) move(next string) error {
	if next == w.cursor || next == w.mark {
		return errors.New("the service points at a page that it gave before; " + report)
	}
	if w.cursor = next; w.step == w.power {
		w.mark, w.step, w.power = next, 0, max(1, 2*w.power)
	}
	w.step++
	return nil
}

// doubt asks, after many empty pages, whether more can come. A job that ended between the
// page and the look has the rest of its list on the next pages: only when that many again
// are empty is the end of the list missing.
func (w *walker) doubt(ctx context.Context) error {
	if w.ended == nil || w.empty == 0 {
		return nil
	}
	if w.idle++; w.idle%maxIdle > 0 {
		return nil
	}
	over, err := w.ended(ctx)
	switch {
	case err != nil && (ctx.Err() != nil || !temporary(err)):
		return err
	case over && w.over:
		return errors.New("the job has ended, but the service never says that the list has; " + report)
	}
	w.over = over
	return nil
}
