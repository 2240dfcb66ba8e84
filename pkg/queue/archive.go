package queue

import (
	"context"
	_ "embed" // scripts
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

// What the archive keeps. Nothing of Trawl needs it: it holds tasks that are no rings, and those
// that a person archived in the monitor, for a person to look at.
const (
	archiveAge = 24 * time.Hour
	// archiveSize is far below the 10,000 at which asynq's inspector drops tasks from the
	// archive without their hashes, which then stay for ever.
	archiveSize = 1000
	// pruneBatch is how many tasks one call deletes: below a millisecond of Redis.
	pruneBatch = 500
	// orphanBatch is how many ids of each state one call looks at for their task: 0.1 ms of Redis.
	orphanBatch = 100
	// archiveRoom is how many tasks the queue may hold for its tasks to be archived: whatever
	// is archived then, the 10,000 are not met.
	archiveRoom = 9000
)

var (
	//go:embed scripts/free.lua
	freeSource string
	//go:embed scripts/prune.lua
	pruneSource string

	freeScript  = redis.NewScript(freeSource)
	pruneScript = redis.NewScript(pruneSource)
)

// Keys of asynq's, beside pendingKey.
func keyPrefix(queue string) string       { return "asynq:{" + queue + "}:" }
func taskPrefix(queue string) string      { return keyPrefix(queue) + "t:" }
func stateKey(queue, state string) string { return keyPrefix(queue) + state }

// free makes the id of a ring usable when its task was archived, by a person in the monitor or by
// asynq; it reports whether it is.
func (d *Doorbell) free(ctx context.Context, id string) (bool, error) {
	n, err := freeScript.Run(ctx, d.rdb, []string{
		taskPrefix(d.queue) + id, stateKey(d.queue, "archived"), stateKey(d.queue, "completed"),
	}, id).Int()
	return n == 1, err
}

// prune holds the archive to its bounds, a batch a call, and drops ids whose task is gone, which
// somebody else's tools leave behind.
func (s *Server) prune(ctx context.Context) error { return s.pruneTo(ctx, archiveSize, pruneBatch) }

// pruneTo is prune with bounds of its own: a test need not archive a thousand tasks.
func (s *Server) pruneTo(ctx context.Context, size, batch int) error {
	keys := make([]string, 0, len(pruned))
	for _, state := range pruned {
		keys = append(keys, stateKey(s.o.Queue, state))
	}
	return pruneScript.Run(ctx, s.rdb, keys,
		time.Now().Add(-archiveAge).Unix(), size, batch, taskPrefix(s.o.Queue), orphanBatch).Err()
}

// pruned are the states whose tasks are in a sorted set, as prune.lua takes them.
var pruned = [...]string{"archived", "completed", "scheduled", "retry"}

// CheckArchivable reports whether tasks of the queue can be archived by asynq's inspector, and so
// by the monitor: above 10,000 archived tasks it (v0.26.0) drops the oldest from the archive and
// keeps their hashes, which nothing deletes and whose ids nobody can use again. The error is a
// [crawl.Fault] of code wrong_state when the queue holds too many, of code unavailable when Redis
// does not answer.
func CheckArchivable(ctx context.Context, rdb redis.UniversalClient, queue string) error {
	pipe := rdb.Pipeline()
	counts := []*redis.IntCmd{
		pipe.LLen(ctx, pendingKey(queue)), pipe.ZCard(ctx, stateKey(queue, "scheduled")),
		pipe.ZCard(ctx, stateKey(queue, "retry")), pipe.ZCard(ctx, stateKey(queue, "archived")),
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return unavailable(err)
	}
	var n int64
	for _, c := range counts {
		n += c.Val()
	}
	if n > archiveRoom {
		return crawl.Faultf(crawl.CodeWrongState, "The queue holds %d tasks, more than the %d with which tasks may be "+
			"archived. Delete them instead: what a job still needs is put into the queue again.", n, archiveRoom)
	}
	return nil
}
