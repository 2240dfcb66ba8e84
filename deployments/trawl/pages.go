package main

import (
	"context"
	"errors"
	"iter"
	"time"
)

// paged walks a list as walk does, and gives up when what comes next takes longer than
// within: one page of it. The time that the caller takes does not count. A within of 0 is no bound.
func paged[T any](
	ctx context.Context, within time.Duration, walk func(context.Context) iter.Seq2[T, error],
) iter.Seq2[T, error] {
	if within == 0 {
		return walk(ctx)
	}
	return func(yield func(T, error) bool) {
		ctx, giveUp := context.WithCancelCause(ctx)
		defer giveUp(nil)
		timer := time.AfterFunc(within, func() { giveUp(context.DeadlineExceeded) })
		defer timer.Stop()
		for item, err := range walk(ctx) {
			timer.Stop()
			if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				err = context.DeadlineExceeded // and nobody's wish, as a context that was cancelled is
			}
			if !yield(item, err) {
				return
			}
			timer.Reset(within)
		}
	}
}
