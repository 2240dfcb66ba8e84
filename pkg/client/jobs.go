package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	jobsPath          = "/v1/jobs"
	maxIdempotencyKey = 255

	// How errors name the calls that several places make.
	listJobs = "list jobs"
	waitFor  = "wait for"
)

// Submission is what became of a submission.
type Submission struct {
	Job
	IdempotencyKey string // the key that it was sent with, made by Submit when none was given
	Replayed       bool   // an earlier submission with this key had created the job
}

// SubmitOption changes one submission, or one call of [Client.RetryFailed].
type SubmitOption func(*submission)

type submission struct {
	key   string
	given bool
}

// IdempotencyKey names a submission: sent again with the same key and the same spec it
// answers the same job, also from another process; with another spec it is refused with
// [CodeIdempotencyKeyReused]. To [Client.RetryFailed] job and cursor are what the spec is here. 1 to 255 visible ASCII characters.
func IdempotencyKey(key string) SubmitOption {
	return func(s *submission) { s.key, s.given = key, true }
}

// Submit submits a job and returns it at once, while it is still to run. It is sent with
// an idempotency key, one of its own when none is given, so that a submission whose answer
// was lost is repeated and still makes one job; [Submission.Replayed] is then true.
// Whether a submission that failed was stored all the same, only one with the same key
// can tell: who must know gives a key.
func (c *Client) Submit(ctx context.Context, spec Spec, options ...SubmitOption) (*Submission, error) {
	key, err := submissionKey("submit", options)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	out := Submission{IdempotencyKey: key}
	q := request{call: "submit", method: http.MethodPost, path: jobsPath, key: key, body: body}
	err = c.do(ctx, &q, func(resp *http.Response) error {
		out.Replayed = replayed(resp)
		return c.decodeJob(resp, &out.Job)
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// submissionKey returns the key of a call that makes a job: a new one unless the options have one.
func submissionKey(call string, options []SubmitOption) (string, error) {
	var s submission
	for _, option := range options {
		option(&s)
	}
	if !s.given {
		return rand.Text(), nil
	}
	if s.key == "" || len(s.key) > maxIdempotencyKey || strings.ContainsFunc(s.key, invisible) {
		return "", fmt.Errorf("%s: an idempotency key has 1 to %d visible ASCII characters, not %q",
			call, maxIdempotencyKey, beginning(s.key))
	}
	return s.key, nil
}

// replayed reports whether an earlier call with the same key had created the job.
func replayed(resp *http.Response) bool { return resp.Header.Get("Idempotent-Replayed") == "true" }

// Job reads the status of a job.
func (c *Client) Job(ctx context.Context, id string) (*Job, error) {
	return c.job(ctx, "read", http.MethodGet, id, "")
}

// Cancel stops a job and returns it as it is then: usually ended, always within some ten
// seconds. Cancelling a job that has ended changes nothing.
func (c *Client) Cancel(ctx context.Context, id string) (*Job, error) {
	return c.job(ctx, "cancel", http.MethodPost, id, "/cancel")
}

// Delete removes an ended job and all it holds. A job that is gone because an earlier try
// of the same call removed it is no error.
func (c *Client) Delete(ctx context.Context, id string) error {
	q, err := ofJob("delete", http.MethodDelete, id, "")
	if err != nil {
		return err
	}
	return c.remove(ctx, q)
}

// Wait reads the status of a job until it has ended, however, and returns the last. Every
// status that it read is handed to each of seen first. It looks after a tenth of a second
// and then less and less often, down to every two seconds (see [WithLongestLook]), and waits over outages: only a
// refusal, such as [CodeNotFound], or the end of ctx ends it before the job has.
func (c *Client) Wait(ctx context.Context, id string, seen ...func(*Job)) (*Job, error) {
	p := patience{longest: c.look}
	for {
		job, err := c.job(ctx, waitFor, http.MethodGet, id, "")
		if err != nil && (ctx.Err() != nil || !temporary(err)) {
			return nil, err
		}
		if err == nil {
			for _, f := range seen {
				f(job)
			}
			if job.State.Terminal() {
				return job, nil
			}
		}
		if ended := p.pause(ctx, err); ended != nil {
			return nil, fmt.Errorf("%s: %w", aboutJob(waitFor, id), ended)
		}
	}
}

// JobsQuery selects jobs. The zero value selects all of the tenant's.
type JobsQuery struct {
	State        State
	Tag          string
	CreatedAfter time.Time // zero for no bound
	PageSize     int       // how many are read at once, 1 to 200; 0 means the service's default
}

// Jobs walks the jobs of the tenant, newest first, without their specs. An error is the
// last that it yields. Each range over it begins anew.
func (c *Client) Jobs(ctx context.Context, q JobsQuery) iter.Seq2[Job, error] {
	return walk(ctx, reading{call: listJobs, size: q.PageSize}, func(cursor string, limit int) (*Page[Job], error) {
		query := paging(cursor, limit)
		if q.State != "" {
			query.Set("state", string(q.State))
		}
		if q.Tag != "" {
			query.Set("tag", q.Tag)
		}
		if !q.CreatedAfter.IsZero() {
			query.Set("created_after", q.CreatedAfter.UTC().Format(time.RFC3339Nano))
		}
		return page[Job](ctx, c, &request{call: listJobs, method: http.MethodGet, path: jobsPath, query: query})
	})
}

// job makes a call that is answered by the status of a job.
func (c *Client) job(ctx context.Context, verb, method, id, below string) (*Job, error) {
	q, err := ofJob(verb, method, id, below)
	if err != nil {
		return nil, err
	}
	var job Job
	if err := c.do(ctx, q, func(resp *http.Response) error { return c.decodeJob(resp, &job) }); err != nil {
		return nil, err
	}
	return &job, nil
}

// aboutJob names a call in errors.
func aboutJob(verb, id string) string { return verb + " job " + printable(id) }

// ofJob is a call about one job.
func ofJob(verb, method, id, below string) (*request, error) {
	call := aboutJob(verb, id)
	if id == "" || id == "." || id == ".." { // which would name another path
		return nil, fmt.Errorf("%s: %q is no id of a job: %w", strings.TrimSpace(call), id, CodeNotFound)
	}
	return &request{call: call, method: method, path: jobsPath + "/" + url.PathEscape(id) + below}, nil
}

func (c *Client) decodeJob(resp *http.Response, job *Job) error {
	if err := c.decode(resp, job); err != nil {
		return err
	}
	if job.ID == "" {
		return c.foreign(resp, job.Raw, "it has no job_id")
	}
	return nil
}

func paging(cursor string, limit int) url.Values {
	query := url.Values{}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return query
}
