package store

import (
	"context"

	"example.com/trawl/pkg/crawl"
)

// Pause stops a job that has not ended from leasing anything more, and answers its state: paused,
// also when it was before. What is in flight goes on to its end, is counted, and may end the job.
// The place at the run gate is another's meanwhile: the rings are those of jobs that may start.
// Its time limit stands still; after [crawl.MaxPause] a sweep ends it as by that limit. It works on a
// full Redis, as do Resume and Cancel. Faults: wrong_state of a job that is cancelling or has ended,
// or that a newer version of Trawl made, not_found, expired.
func (s *Store) Pause(ctx context.Context, j crawl.JobRef) (crawl.State, []crawl.Ring, error) {
	return s.control(ctx, pauseScript, j)
}

// Resume has a paused job go on where it stood, and answers its state: running or queued where the
// run gate has room for it, queued where it waits there. A job that is not paused, and may go on,
// is left as it is. Faults: as of Pause.
func (s *Store) Resume(ctx context.Context, j crawl.JobRef) (crawl.State, []crawl.Ring, error) {
	return s.control(ctx, resumeScript, j)
}

// control runs a script that answers {verdict, state or when it expired in ms, rings…}.
func (s *Store) control(ctx context.Context, sc *script, j crawl.JobRef) (crawl.State, []crawl.Ring, error) {
	a, err := s.one(ctx, sc, s.keys(j), s.now(), j.ID)
	if err != nil {
		return "", nil, err
	}
	switch str(a[0]) {
	case "done":
		return crawl.State(str(a[1])), rings(j.Tenant, a[2:]), nil
	case "wrong":
		f := crawl.Faultf(crawl.CodeWrongState, "Job %s is %s, and can be neither paused nor resumed. "+
			"One that has ended can be tried again with retry-failed, or submitted anew.", j.ID, str(a[1]))
		f.JobID = j.ID
		return "", nil, f
	case "newer":
		return "", nil, newerFormat(j)
	case "gone":
		return "", nil, expired(j, num(a[1]))
	default:
		return "", nil, notFound(j)
	}
}
