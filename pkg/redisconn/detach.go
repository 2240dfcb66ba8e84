package redisconn

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Detach returns a hook that sends commands even when their context was
// cancelled. It is for the client of an asynq server and for nothing else:
// asynq v0.26.0 hands a context that it has just cancelled to its own
// resender, so that the acknowledgement of a task which ended while Redis was
// away is never delivered, and a finished task runs again a minute later.
//
// A deadline that has passed still ends the command: asynq gives up at the end
// of the task's lease, and must. The socket timeouts of [Open] bound the rest.
func Detach() redis.Hook { return detach{} }

type detach struct{}

func (detach) DialHook(next redis.DialHook) redis.DialHook { return next }

func (detach) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return next(alive(ctx), cmd) }
}

func (detach) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return next(alive(ctx), cmds) }
}

func alive(ctx context.Context) context.Context {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.WithoutCancel(ctx)
	}
	return ctx
}
