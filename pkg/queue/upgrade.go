package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"example.com/trawl/pkg/crawl"
)

// ErrNewer says that a ring, or the job that it is for, is of a newer version of Trawl than this
// worker. A handler that returns an error that is ErrNewer leaves the ring alone: it comes again
// after 1 to 5 s, for any worker, as often as it takes, and no failure is counted.
var ErrNewer = errors.New("only a newer version of Trawl can serve this")

const (
	// payloadVersion is the version of [payload]. Raise it when an older worker would get a ring
	// wrong, not when a field comes in that it may do without; and since a worker takes what it
	// does not know for no ring, a new field always comes with a new version.
	payloadVersion = 1

	// typePrefix begins the type of every task of Trawl's. One that is no [taskType] is of a
	// version to come.
	typePrefix = "crawl:"

	// newerDelay and newerJitter are what a ring waits that was left alone, 1 to 5 s: short, since
	// a newer worker may be free now, and spread, so that an older one does not take all of them
	// again at the same time.
	newerDelay  = time.Second
	newerJitter = 4 * time.Second

	// newerEvery is how often a log says that rings are left alone, however many they are.
	newerEvery = time.Minute
)

// newer counts the rings that a server left alone, for its log.
type newer struct {
	times atomic.Int64 // since the log said so last
	said  atomic.Int64 // when, in nanoseconds since born; 0 for never
}

// ringOf reads the ring of a task. The error is [ErrNewer] for a task of a newer version, and any
// other for what is no task of Trawl's.
func ringOf(kind string, body []byte) (crawl.Ring, error) {
	switch {
	case kind == taskType:
		return decode(body)
	case strings.HasPrefix(kind, typePrefix):
		return crawl.Ring{}, fmt.Errorf("a task of type %q: %w", kind, ErrNewer)
	default:
		return crawl.Ring{}, errors.New("a task of another type")
	}
}

// checkVersion answers an error that is [ErrNewer] for the payload of a newer version, which may
// have any fields beside its version. It answers nil for what has none or one that is known, and
// for what is no payload at all.
func checkVersion(body []byte) error {
	var p struct {
		V int64 `json:"v"`
	}
	if err := json.Unmarshal(body, &p); err != nil || p.V <= payloadVersion {
		return nil //nolint:nilerr // what cannot be read is no payload of any version
	}
	return fmt.Errorf("a ring of version %d: %w", p.V, ErrNewer)
}

// leave gives back a ring that only a newer worker can serve. asynq counts no failure of it (see
// isFailure) and so gives it back any number of times; but one that has failed as often as it may
// it archives without asking. A copy with an id of its own takes the place of that: should the store
// ring beside it meanwhile, one of the two dies out.
func (s *Server) leave(ctx context.Context, t *asynq.Task, err error) error {
	tried, _ := asynq.GetRetryCount(ctx)
	if limit, ok := asynq.GetMaxRetry(ctx); !ok || tried < limit {
		return err
	}
	fresh := asynq.NewTaskWithHeaders(t.Type(), t.Payload(), t.Headers())
	_, failed := s.client.EnqueueContext(ctx, fresh, asynq.Queue(s.o.Queue), asynq.MaxRetry(maxRetry),
		asynq.Timeout(taskTimeout), asynq.ProcessIn(newerWait()))
	if failed != nil {
		// Archived: it stays visible, and the next ring of its id makes it anew.
		return fmt.Errorf("put a copy of a ring for a newer version back: %w", failed)
	}
	return fmt.Errorf("%w: a copy takes its place: %w", err, asynq.RevokeTask)
}

func newerWait() time.Duration { return newerDelay + rand.N(newerJitter) }

// reportNewer logs that rings are left alone, once a minute: it is the same for all of them.
func (s *Server) reportNewer(ctx context.Context, err error) {
	s.newer.times.Add(1)
	last, now := s.newer.said.Load(), int64(time.Since(born))+1 // monotonic, as in announce
	if last != 0 && time.Duration(now-last) < newerEvery || !s.newer.said.CompareAndSwap(last, now) {
		return
	}
	s.o.Logger.WarnContext(ctx, "rings are left to workers of a newer version: update this worker",
		slog.String("queue", s.o.Queue), slog.Int64("times", s.newer.times.Swap(0)), slog.Any("err", err))
}
