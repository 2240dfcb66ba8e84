package queue

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"example.com/trawl/pkg/crawl"
)

// ErrServed is what a handler returns for a ring that asks for one more slice of a job which this
// worker serves already. The ring is another worker's: it goes back into the queue at once and
// counts no failure. It dies out once it was passed on so often that every worker has met it.
var ErrServed = errors.New("this worker serves the job already")

const (
	// passHold is what a ring waits before it is passed on. asynq looks for another task
	// right after it took one, and pauses only when it finds none: a ring that is back before
	// would be taken by the same server again. When it is back a moment later all other
	// servers look before this one does.
	passHold = 10 * time.Millisecond
	// passPause is the longest pause of an idle server between two looks: asynq draws it
	// from a half to one and a half of the interval.
	passPause = pollInterval * 3 / 2
	// passRounds times the number of workers is how often a ring is passed on. It goes to the one
	// that looks next: after two rounds the last idle one of 8 has had it in 97 of 100 cases.
	passRounds = 2
	// headerPasses is where a task has how often it was passed on. It is a header and no part
	// of the payload, which an older worker would refuse.
	headerPasses = "passes"
)

// passes is what a server knows of the rings that it passes on.
type passes struct {
	handling atomic.Int64 // rings in hand, slices included
	mu       sync.Mutex
	held     map[crawl.JobRef][]*asynq.Task // those of one job go on together, see pass
}

// pass gives a ring back for other workers. Rings of one job are collected while the first of
// them is held, so that they take one place of this server and not all: one whose places are all taken
// does not pause, and would have them back at once. Where they are all the same, that first
// keeps its place until others have looked.
func (s *Server) pass(ctx context.Context, t *asynq.Task, ring crawl.Ring) {
	headers := maps.Clone(t.Headers())
	if headers == nil {
		headers = map[string]string{}
	}
	headers[headerPasses] = strconv.Itoa(passed(t) + 1)
	if !s.passes.hold(ring.JobRef, asynq.NewTaskWithHeaders(t.Type(), t.Payload(), headers)) {
		return // with the first
	}
	pause(ctx, passHold)
	rings := s.passes.take(ring.JobRef)
	if ctx.Err() != nil {
		return
	}
	n, err := s.passOn(ctx, rings)
	if err != nil {
		s.o.Logger.DebugContext(ctx, "rings were not passed on, the store rings again",
			slog.String("tenant", ring.Tenant), slog.String("job_id", ring.ID), slog.Any("err", err))
		return
	}
	if n > 0 && s.passes.handling.Load() >= int64(s.o.Slices) {
		pause(ctx, passPause)
	}
}

// passOn puts rings of one job into the queue: no more than there are other workers, and none that
// all have met. It answers how many. Each gets an id of its own, since that which it has is its old task's until that is done.
func (s *Server) passOn(ctx context.Context, rings []*asynq.Task) (n int, err error) {
	workers, err := Workers(ctx, s.rdb)
	if err != nil {
		return 0, err
	}
	for _, t := range rings {
		if n >= int(workers)-1 {
			break
		}
		if passed(t) > passRounds*int(workers) {
			continue
		}
		if _, err := s.client.EnqueueContext(ctx, t, asynq.Queue(s.o.Queue), asynq.MaxRetry(maxRetry),
			asynq.Timeout(taskTimeout)); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// hold keeps a ring of a job; it reports whether it is the first.
func (p *passes) hold(job crawl.JobRef, t *asynq.Task) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = map[crawl.JobRef][]*asynq.Task{}
	}
	p.held[job] = append(p.held[job], t)
	return len(p.held[job]) == 1
}

// take answers the rings of a job that are held, and holds them no more.
func (p *passes) take(job crawl.JobRef) []*asynq.Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	rings := p.held[job]
	delete(p.held, job)
	return rings
}

// passed answers how often a task was passed on; what is no number is none.
func passed(t *asynq.Task) int {
	n, err := strconv.Atoi(t.Headers()[headerPasses])
	if err != nil {
		return 0
	}
	return max(0, n)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
