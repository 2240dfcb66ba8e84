package httpapi

import (
	"context"
	"errors"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// storeWait bounds one call of the store. A call takes milliseconds; a store that has
// not answered within one failover and a retry does not answer this client any more,
// and who waits longer than its own timeout never learns why.
const storeWait = 4 * time.Second

// promptJobs is a store of which every call that a client waits for ends in time. What
// it does not name, a cancel, a pause, a resume and the readiness, has its own deadline.
type promptJobs struct{ Jobs }

func prompt[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	bounded, stop := context.WithTimeout(ctx, storeWait)
	defer stop()
	v, err := call(bounded)
	return v, unanswered(ctx, err)
}

// unanswered returns err, of a call that had a deadline within that of client, as what
// it says to the client when that deadline ended it. When the client hung up, err stays
// what it is: nobody reads an answer.
func unanswered(client context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) || client.Err() != nil {
		return err
	}
	return &crawl.Fault{
		Code: crawl.CodeUnavailable, Err: err,
		Message: "The store did not answer in time. Try again shortly; a submission with its Idempotency-Key, " +
			"since it may have been stored.",
	}
}

func (p promptJobs) Create(ctx context.Context, n store.NewJob) (store.Created, error) {
	return prompt(ctx, func(ctx context.Context) (store.Created, error) { return p.Jobs.Create(ctx, n) })
}

func (p promptJobs) Job(ctx context.Context, job crawl.JobRef) (crawl.Job, error) {
	return prompt(ctx, func(ctx context.Context) (crawl.Job, error) { return p.Jobs.Job(ctx, job) })
}

// Plan bounds the call of the store.
func (p promptJobs) Plan(ctx context.Context, job crawl.JobRef) (crawl.Plan, error) {
	return prompt(ctx, func(ctx context.Context) (crawl.Plan, error) { return p.Jobs.Plan(ctx, job) })
}

func (p promptJobs) List(ctx context.Context, q store.ListQuery) (store.JobPage, error) {
	return prompt(ctx, func(ctx context.Context) (store.JobPage, error) { return p.Jobs.List(ctx, q) })
}

func (p promptJobs) Records(
	ctx context.Context, job crawl.JobRef, after int64, limit int,
) (store.RecordPage, error) {
	return prompt(ctx, func(ctx context.Context) (store.RecordPage, error) {
		return p.Jobs.Records(ctx, job, after, limit)
	})
}

func (p promptJobs) Failures(
	ctx context.Context, job crawl.JobRef, after int64, limit int,
) (store.FailurePage, error) {
	return prompt(ctx, func(ctx context.Context) (store.FailurePage, error) {
		return p.Jobs.Failures(ctx, job, after, limit)
	})
}

func (p promptJobs) Delete(ctx context.Context, job crawl.JobRef) error {
	_, err := prompt(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.Jobs.Delete(ctx, job) })
	return err
}
