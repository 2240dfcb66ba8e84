package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/fields"
	"example.com/trawl/pkg/store"
)

const (
	// failuresPage is how many failed pages are read at once.
	failuresPage = 1000
	// usualURL is the length that a failed URL is taken to have, in bytes, before it is read.
	usualURL = 200
)

type retryInput struct {
	ID     string `path:"id" doc:"Identity of the ended job."`
	Cursor string `query:"cursor" doc:"The retry_next_cursor of the call before, or a next_cursor of /errors: tries what failed behind it. Default: from the first."`
	// Key is read from the request itself: huma shows the first of two.
	Key string `header:"Idempotency-Key" doc:"Names the new job, as that of a submission does: the same key with the same job and cursor answers the same new job, with anything else 409, as long as the old job is kept. 1 to 255 visible ASCII characters after trimming, case-sensitive, given once. Without it each call is a new job." maxLength:"255" pattern:"^[!-~]+$"`
}

type retryOutput struct {
	Location string `header:"Location" doc:"Where the new job is read."`
	Replayed string `header:"Idempotent-Replayed" doc:"true when the job was created by an earlier call with the same key."`
	Body     retried
}

// retried is the status of a new job over failed URLs, and where the next begins.
type retried struct {
	status
	RetryNextCursor *string `json:"retry_next_cursor" doc:"More failed than one job may have, 10,000 URLs or 2 MiB of them: call again with this as cursor for a job over the next. Null when the job has all the rest."`
}

// TransformSchema adds the fields of a status, which huma does not see since their type is not
// exported.
func (retried) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	of := r.SchemaFromRef(r.Schema(reflect.TypeFor[status](), true, "").Ref)
	maps.Copy(s.Properties, of.Properties)
	s.Required = append(s.Required, of.Required...)
	return s
}

// retryFailed makes a new job over the failed URLs of an ended one, which stays as it is.
func (s *Server) retryFailed(ctx context.Context, x *exchange, in *retryInput) (*retryOutput, error) {
	created, next, err := s.createRetry(ctx, x, in)
	out, err := s.submitted(ctx, x, &created, err)
	if err != nil {
		return nil, err
	}
	return &retryOutput{
		Location: out.Location, Replayed: out.Replayed, Body: retried{status: out.Body, RetryNextCursor: next},
	}, nil
}

// createRetry stores the new job, and returns where the next one begins; nil for nowhere.
func (s *Server) createRetry(ctx context.Context, x *exchange, in *retryInput) (store.Created, *string, error) {
	ref, err := x.ref(in.ID)
	if err != nil {
		return store.Created{}, nil, err
	}
	p := params{faults: x.query}
	after := p.cursor(cursorErrors, in.Cursor)
	if err := p.err(); err != nil {
		return store.Created{}, nil, err
	}
	key, err := idempotencyKey(x.c.Request.Header)
	if err != nil {
		return store.Created{}, nil, err
	}
	old, err := s.retryable(ctx, ref, after)
	if err != nil {
		return store.Created{}, nil, err
	}
	leave, err := s.retryRoom(ctx, x, old.Failed-after)
	if err != nil {
		return store.Created{}, nil, err
	}
	defer leave()
	created, err := s.createRetryOf(ctx, x, &old, after, key)
	if err != nil {
		return store.Created{}, nil, err
	}
	// By what the job has and not by what was read now: a replay by other limits than those of the
	// first call would otherwise leave out, or repeat, what is between.
	end := after + created.Job.Total
	if end >= old.Failed {
		return created, nil, nil
	}
	return created, new(encodeCursor(cursorErrors, end)), nil
}

// retryable reads a job of which something failed behind a position in its errors.
func (s *Server) retryable(ctx context.Context, ref crawl.JobRef, after int64) (crawl.Job, error) {
	old, err := s.jobs.Job(ctx, ref)
	var fault *crawl.Fault
	switch {
	case err != nil:
		return old, err
	case !old.State.Terminal():
		fault = crawl.Faultf(crawl.CodeJobNotTerminal,
			"Job %s has not ended, and may still try these pages itself. Cancel it first, or wait.", ref.ID)
	case old.Failed == 0:
		fault = crawl.Faultf(crawl.CodeWrongState, "Nothing failed in job %s: there is nothing to try again.", ref.ID)
	case old.Failed <= after:
		fault = crawl.Faultf(crawl.CodeWrongState,
			"Nothing failed in job %s behind this cursor. Leave it out to try all that failed.", ref.ID)
	default:
		return old, nil
	}
	fault.JobID = ref.ID
	return old, fault
}

// retryRoom takes the room of a submission of n URLs, see [Server.enter]: nothing for a few.
func (s *Server) retryRoom(ctx context.Context, x *exchange, n int64) (leave func(), err error) {
	size := min(n*usualURL, MaxBody)
	if size <= smallBody {
		return func() {}, nil
	}
	return s.room(ctx, x.tenant, size)
}

// createRetryOf stores the job over what failed in old behind a position in its errors.
func (s *Server) createRetryOf(
	ctx context.Context, x *exchange, old *crawl.Job, after int64, key string,
) (store.Created, error) {
	acct, of := x.account(), crawl.JobRef{Tenant: x.tenant, ID: old.ID}
	plan, err := s.jobs.Plan(ctx, of)
	if err != nil {
		return store.Created{}, err
	}
	urls, err := s.failedURLs(ctx, of, after, acct.limits.MaxURLs)
	if err != nil {
		return store.Created{}, err
	}
	derive := func() (crawl.Spec, crawl.Plan, []crawl.Input, error) {
		spec, p, inputs, err := crawl.Retry(&plan, urls, old.Tags, acct.limits, acct.sources)
		if _, faults := fields.Compile(fields.Spec{Fields: plan.Fields, Items: plan.Items}); err == nil && len(faults) > 0 {
			err = &crawl.Fault{
				Code: crawl.CodeInvalid, Fields: bounded(faults),
				Message: "The fields of the job are not taken any more. Submit the URLs as a new job; errors names what to mend.",
			}
		}
		return spec, p, inputs, notRetried(old.ID, err)
	}
	spec, derived, inputs, err := derive()
	if err != nil {
		return store.Created{}, err
	}
	sub := submission(spec)
	stored, err := json.Marshal(shown(sub))
	if err != nil {
		return store.Created{}, err
	}
	x.job = crawl.NewJobID(x.tenant, key)
	n := store.NewJob{
		Job: crawl.JobRef{Tenant: x.tenant, ID: x.job}, IdempotencyKey: key, Digest: retryDigest(old.ID, after),
		Spec: stored, Plan: derived, Inputs: inputs, Tags: old.Tags, RetryOf: old.ID, Quota: s.o.Quota,
	}
	return s.createAdopting(ctx, &sub, n, func(adopted *submission) (crawl.Plan, error) {
		plan.Collection = adopted.Collection
		_, p, _, err := derive()
		return p, err
	})
}

// notRetried words why failed URLs of a job are not tried again where that of a submission would
// speak of what its caller wrote.
func notRetried(id string, err error) error {
	var f *crawl.Fault
	if !errors.As(err, &f) || f.Code != crawl.CodeSourceNotAllowed {
		return err
	}
	told := *f
	told.Message = "Failed URLs of job " + id + " may not be crawled here any more; errors names them. " +
		"Submit the others as a new job, or ask the operator to allow these."
	return &told
}

// retryDigest is what a second call under one idempotency key must equal. No submission has it:
// their digests are of JSON.
func retryDigest(id string, after int64) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "retry of job %s from %d", id, after))
}

// failedURLs reads what failed behind a position: at most that many URLs, and no more of them than
// the body of a submission may have.
func (s *Server) failedURLs(ctx context.Context, ref crawl.JobRef, after, most int64) ([]string, error) {
	var urls []string
	size := 0
	for more := true; more; {
		page, err := s.jobs.Failures(ctx, ref, after, int(min(failuresPage, most-int64(len(urls)))))
		if err != nil {
			return nil, err
		}
		for i := range page.Failures {
			u := page.Failures[i].SourceURL
			if size += len(u); size > MaxBody {
				return urls, nil
			}
			urls = append(urls, u)
		}
		after, more = page.Next, page.More && len(page.Failures) > 0 && int64(len(urls)) < most
	}
	return urls, nil
}
