package store

import (
	"encoding/json"
	"time"

	"example.com/trawl/pkg/crawl"
)

// NewJob is all that a submission stores.
type NewJob struct {
	Job crawl.JobRef
	// IdempotencyKey as the caller sent it, trimmed; empty for none. It is
	// hashed before it becomes part of a key name.
	IdempotencyKey string
	// Digest is that of the decoded spec before defaults: what a replay must equal.
	Digest [32]byte
	Spec   json.RawMessage // as submitted, compact
	Plan   crawl.Plan
	Inputs []crawl.Input // deduplicated, in order; at least one
	Tags   []string
	// RetryOf is the job whose failed URLs these are; empty for none.
	RetryOf string
	// Quota is what the service grants every tenant: MaxRunning of it is at least 1, what is
	// zero has no bound. It is kept, and holds together with the tenant's own, see
	// [Store.SetQuota]. MaxPages and MaxBytes are the plan's business.
	Quota crawl.Quota
}

// Created is the answer to a submission.
type Created struct {
	Job      crawl.Job
	Replayed bool // the job was stored by an earlier submission of the same key
	Rings    []crawl.Ring
}

// ListQuery asks for a tenant's jobs, newest first.
type ListQuery struct {
	Tenant       string
	State        crawl.State // empty for any
	Tag          string      // empty for any
	CreatedAfter time.Time   // zero for any
	Before       int64       // JobPage.Next of the page before; 0 for the newest
	Limit        int         // 1 to 200
}

// JobPage is one page of a list. A page can be short although More is set: the
// work of one call is bounded, not the answer.
type JobPage struct {
	Jobs []crawl.Job // without Spec
	Next int64
	More bool
}

// RecordPage is one page of records in the order they were recorded. It can be shorter than
// was asked for although More is set: see [Store.Records].
type RecordPage struct {
	Records []crawl.Page
	Next    int64 // pass as after to go on
	More    bool  // more is there now
	Ended   bool  // the job ended: nothing will be added behind the last
}

// FailurePage is one page of failed pages in the order they were recorded.
type FailurePage struct {
	Failures []crawl.Failure
	Next     int64
	More     bool
	Ended    bool
}

// CancelResult is the answer to a cancel.
type CancelResult struct {
	State crawl.State
	// GraceLeft is the time until what is in flight is revoked; zero when the
	// job has ended. A call after that time revokes.
	GraceLeft time.Duration
	Rings     []crawl.Ring // of jobs that may start because this one ended
}
