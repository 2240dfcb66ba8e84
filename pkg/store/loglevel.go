package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// logLevelKey is a string, the level that every process logs from, as "debug". It always has a
// time to live: nobody has to remember to take it back.
const logLevelKey = "trawl:log"

// LogLevel answers the level that is set for all processes and for how long it is yet; 0: none
// is set. It is one round trip. What is no level is an error that says how to get rid of it.
func (s *Store) LogLevel(ctx context.Context) (level slog.Level, left time.Duration, err error) {
	s.trips.Add(1)
	p := s.rdb.Pipeline()
	value, life := p.Get(ctx, logLevelKey), p.PTTL(ctx, logLevelKey)
	_, _ = p.Exec(ctx) // each command has its own error
	text, err := value.Result()
	switch {
	case errors.Is(err, redis.Nil):
		return 0, 0, nil
	case err != nil:
		return 0, 0, fault(err)
	case life.Err() != nil:
		return 0, 0, fault(life.Err())
	}
	// Only what SetLogLevel writes: slog would also read "error+99", which silences all.
	switch text {
	case "debug", "info", "warn", "error":
		_ = level.UnmarshalText([]byte(text)) // one of the four
	default:
		return 0, 0, fmt.Errorf("store: the key %s of Redis holds no log level: delete it, and set one over the admin API",
			logLevelKey)
	}
	// It may have ended between the two commands, and whoever wrote it by hand may have given
	// it no end: it does not hold then.
	return level, max(life.Val(), 0), nil
}

// SetLogLevel sets the level of all processes for the given time, at least a millisecond.
// Each of them follows by [Store.LogLevel].
func (s *Store) SetLogLevel(ctx context.Context, level slog.Level, keep time.Duration) error {
	s.trips.Add(1)
	return fault(s.rdb.Set(ctx, logLevelKey, strings.ToLower(level.String()), max(keep, time.Millisecond)).Err())
}

// ClearLogLevel has every process return to the level of its own setting. There need not be one set.
func (s *Store) ClearLogLevel(ctx context.Context) error {
	s.trips.Add(1)
	return fault(s.rdb.Del(ctx, logLevelKey).Err())
}
