package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// Pause stops a job from beginning any more pages and returns it as it is then, within some five
// seconds. Pages in flight go on to their end and are counted, see Active of the job; they may end
// it. Its time limit stands still, and so does the job, until [Client.Resume]. Pausing a paused job
// changes nothing; one that is being cancelled or has ended is refused with [CodeWrongState].
func (c *Client) Pause(ctx context.Context, id string) (*Job, error) {
	return c.job(ctx, "pause", http.MethodPost, id, "/pause")
}

// Resume has a paused job go on where it stood, and returns it as it is then: it may wait for its
// turn again. Resuming a job that is not paused changes nothing; one that is being cancelled or
// has ended is refused with [CodeWrongState].
func (c *Client) Resume(ctx context.Context, id string) (*Job, error) {
	return c.job(ctx, "resume", http.MethodPost, id, "/resume")
}

// Retried is a new job over what failed in another one, its RetryOf.
type Retried struct {
	Submission
	// NextCursor is for a further call of [Client.RetryFailed]: more failed than one job may have.
	// Empty when the job has all the rest.
	NextCursor string
}

// RetryFailed tries the failed URLs of an ended job again, in a new job with what the old one asked
// for, and returns that at once, while it is still to run. The old job stays as it ended. A cursor
// is the NextCursor of the call before, or that of [Client.ErrorPage]; an empty one begins at the
// first. A job that has not ended is refused with [CodeJobNotTerminal], one of which nothing failed
// with [CodeWrongState].
//
// As [Client.Submit] it is sent with an idempotency key, one of its own when none is given, so that
// a call whose answer was lost is repeated and still makes one job.
func (c *Client) RetryFailed(ctx context.Context, id, cursor string, options ...SubmitOption) (*Retried, error) {
	q, err := ofJob("retry failed URLs of", http.MethodPost, id, "/retry-failed")
	if err != nil {
		return nil, err
	}
	if q.key, err = submissionKey(q.call, options); err != nil {
		return nil, err
	}
	q.query = paging(cursor, 0)
	out := Retried{Submission: Submission{IdempotencyKey: q.key}}
	err = c.do(ctx, q, func(resp *http.Response) error {
		out.Replayed = replayed(resp)
		if err := c.decodeJob(resp, &out.Job); err != nil {
			return err
		}
		var next struct {
			Cursor string `json:"retry_next_cursor"`
		}
		if err := json.Unmarshal(out.Raw, &next); err != nil {
			return c.foreign(resp, out.Raw, "its retry_next_cursor is no text")
		}
		out.NextCursor = next.Cursor
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}
