package redisconn

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// SetLogger sends what go-redis writes about its connections to l, at debug
// level, in place of standard error: each of these failures also reaches the
// caller of a command, which knows what it means. It changes a setting of the
// whole process and is called once, by a main, before the first client is opened.
func SetLogger(l *slog.Logger) { redis.SetLogger(slogger{l}) }

type slogger struct{ l *slog.Logger }

func (s slogger) Printf(ctx context.Context, format string, v ...any) {
	if s.l.Enabled(ctx, slog.LevelDebug) {
		s.l.DebugContext(ctx, "redis client", slog.String("text", fmt.Sprintf(format, v...)))
	}
}
