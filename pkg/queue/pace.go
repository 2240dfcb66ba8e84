package queue

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// outagePause is what a failed command costs a server: an idle one asks a Redis
// that is out of memory five times a second, where without it it asks as fast as
// it is refused (measured: half a core here, and as much in Redis, instead of
// 0.3 %). It is far below the 30 s lease, which must survive a restart.
const outagePause = 200 * time.Millisecond

// pace is a hook for the client of a server: asynq v0.26.0 asks for the next
// task again at once when the last question failed.
type pace struct{ pause time.Duration }

// DialHook implements [redis.Hook].
func (pace) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (p pace) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		p.after(ctx, err)
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (p pace) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		p.after(ctx, err)
		return err
	}
}

// after waits when err says that a question was not answered. An error that
// Redis answers counts, too: one that is out of memory, or loads its data,
// refuses the next task as fast as one that is down. nil is an answer, and
// NOSCRIPT is followed by the script itself.
func (p pace) after(ctx context.Context, err error) {
	if err == nil || errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "NOSCRIPT") {
		return
	}
	timer := time.NewTimer(p.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
