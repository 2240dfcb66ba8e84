package obs

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// levelEvery and levelJitter are the pause between two looks at the level that is set for
	// all processes: from 2.5 to 4 s, so that with levelTimeout each follows within 5 s, and a
	// hundred of them do not ask in the same moment.
	levelEvery  = 2500 * time.Millisecond
	levelJitter = 1500 * time.Millisecond
	// levelTimeout bounds one look.
	levelTimeout = time.Second
)

// Levels answers which level is set for all processes, and for how long yet; 0: none is.
type Levels func(context.Context) (level slog.Level, left time.Duration, err error)

// Level is the least level that a process logs: the one it was configured with, until an
// operator sets another one for a while. It is a [slog.Leveler] for [Install] and safe for
// concurrent use. Make it with [NewLevel].
type Level struct {
	base slog.Level
	now  slog.LevelVar

	mu      sync.Mutex
	until   time.Time // the end of what is set; zero: nothing is
	changes int       // calls of Set and Reset
}

// NewLevel returns a level that is base as long as no other is set.
func NewLevel(base slog.Level) *Level {
	l := &Level{base: base}
	l.now.Set(base)
	return l
}

// Level implements [slog.Leveler].
func (l *Level) Level() slog.Level { return l.now.Level() }

// Base returns the level that the process was configured with.
func (l *Level) Base() slog.Level { return l.base }

// Set changes the level until left is over; whoever set it calls [Level.Follow] too, which ends
// it. A change is told to logger.
func (l *Level) Set(ctx context.Context, logger *slog.Logger, level slog.Level, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	l.set(ctx, logger, level, left)
}

// Reset returns to the level that the process was configured with. A change is told to logger.
func (l *Level) Reset(ctx context.Context, logger *slog.Logger) { l.Set(ctx, logger, l.base, 0) }

// set does it; the caller holds the lock.
func (l *Level) set(ctx context.Context, logger *slog.Logger, level slog.Level, left time.Duration) {
	if left <= 0 {
		level, l.until = l.base, time.Time{}
	} else {
		l.until = time.Now().Add(left)
	}
	before := l.now.Level()
	if level == before {
		return
	}
	attrs := []slog.Attr{slog.String("from", before.String()), slog.String("to", level.String())}
	if left > 0 {
		attrs = append(attrs, slog.Time("until", l.until.UTC().Round(time.Second)))
	}
	// Whoever reads the log learns why it became silent or loud, whichever of the two levels is
	// the one that lets info through; where neither does, at the lower of them.
	lower := min(before, level)
	l.now.Set(lower)
	logger.LogAttrs(ctx, max(slog.LevelInfo, lower), "log level changed", attrs...)
	l.now.Set(level)
}

// Follow keeps the level what levels says, within 5 s, until ctx ends. While levels fails, what
// is set holds until its end, and then the base again.
func (l *Level) Follow(ctx context.Context, logger *slog.Logger, levels Levels) {
	for ctx.Err() == nil {
		l.look(ctx, logger, levels)
		pause := time.NewTimer(l.pause())
		select {
		case <-ctx.Done():
			pause.Stop()
		case <-pause.C:
		}
	}
}

func (l *Level) look(ctx context.Context, logger *slog.Logger, levels Levels) {
	l.mu.Lock()
	changes := l.changes
	l.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, levelTimeout)
	level, left, err := levels(asking)
	cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case changes != l.changes:
		// The answer is from before a change that was made in this process.
	case err == nil:
		l.set(ctx, logger, level, left)
	case !l.until.IsZero() && !time.Now().Before(l.until):
		l.set(ctx, logger, l.base, 0)
	}
	if err != nil && ctx.Err() == nil {
		logger.DebugContext(ctx, "the log level of all processes cannot be read", slog.Any("err", err))
	}
}

// pause is how long to wait for the next look: to the end of what is set, if that comes first.
func (l *Level) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	pause := levelEvery + rand.N(levelJitter)
	if left := time.Until(l.until); !l.until.IsZero() && left < pause {
		pause = max(left, 0) + levelTimeout/100 // the store's clock may be a little behind
	}
	return pause
}
