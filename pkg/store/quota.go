package store

import (
	"context"
	"fmt"
	"time"

	"example.com/trawl/pkg/crawl"
)

// SetQuota puts a tenant's own quota where its jobs are: from now on it holds together with
// what the service grants ([NewJob.Quota]), of each bound the smaller, for every process at
// once. The answer are the rings of jobs that may start, or go on, since it was raised; where
// it was lowered, what runs goes on, and no other begins. Its MaxPages and MaxBytes are for
// plans, and not kept here. Faults: unavailable, overloaded; calling it again is harmless.
func (s *Store) SetQuota(ctx context.Context, tenant string, q crawl.Quota) ([]crawl.Ring, error) {
	a, err := s.one(ctx, quotaScript, []string{rootKey(tenant)}, append([]any{s.now()}, quotaArgs(q)...)...)
	if err != nil {
		return nil, err
	}
	return rings(tenant, a), nil
}

// quotaArgs are the bounds that scripts decide by, in the order of QUOTAS in gate.lua.
func quotaArgs(q crawl.Quota) []any {
	return []any{max(0, q.MaxQueued), max(0, q.MaxRunning), max(0, q.PagesPerDay), max(0, q.SubmissionsPerSecond)}
}

// refused is the fault of a submission that a bound refuses, by the bound's name in a quota.
func refused(limit string, most int64, wait time.Duration) error {
	f := &crawl.Fault{Code: crawl.CodeQuotaExceeded, Limit: limit, LimitMax: most, RetryAfter: wait}
	switch limit {
	case "submissions_per_second":
		f.Code = crawl.CodeRateLimited
		f.Message = fmt.Sprintf("No more than %d jobs may be submitted in a second, replays included. "+
			"Nothing was stored; send it again a little later.", most)
	case "pages_per_day":
		f.Message = fmt.Sprintf("The %d pages that may be crawled in a day are used up. "+
			"Nothing was stored; send it again after midnight UTC.", most)
	default:
		f.Message = fmt.Sprintf("%d jobs wait for their turn or are paused, and no more may. "+
			"Nothing was stored; send it again when one of them has begun or ended.", most)
	}
	return f
}
