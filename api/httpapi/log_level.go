package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
)

// pathLogLevel is where the log level of all processes is set.
const pathLogLevel = "/v1/admin/log-level"

const (
	minLevelTime     = time.Second
	maxLevelTime     = 24 * time.Hour // who wants it for longer wants another TRAWL_LOG_LEVEL
	defaultLevelTime = time.Hour
)

// levelNames are the levels that can be set.
var levelNames = []string{"debug", "info", "warn", "error"}

// Levels keeps the log level that is set for all processes. *store.Store is one; its contract
// is there.
type Levels interface {
	LogLevel(ctx context.Context) (level slog.Level, left time.Duration, err error)
	SetLogLevel(ctx context.Context, level slog.Level, keep time.Duration) error
	ClearLogLevel(ctx context.Context) error
}

// levelChange is the body of PUT /v1/admin/log-level.
type levelChange struct {
	Level string    `json:"level" enum:"debug,info,warn,error" doc:"Least level that is logged."`
	For   *duration `json:"for,omitempty" example:"15m" doc:"How long it holds, as 15m: from 1s to 24h, default 1h. It always ends by itself."`
}

// levelRecord is the log level as the admin API shows it.
type levelRecord struct {
	Level   *string      `json:"level" doc:"What is set for all processes, each of which follows within 5 s; null when nothing is."`
	Until   *string      `json:"until" format:"date-time" doc:"When it ends by itself; null when nothing is set."`
	Process processLevel `json:"process" doc:"The process that answers."`
}

// processLevel is the log level of one process.
type processLevel struct {
	Level      string `json:"level" doc:"Least level that it logs now."`
	Configured string `json:"configured" doc:"Its TRAWL_LOG_LEVEL, to which it returns."`
}

var levelExamples = map[string]*huma.Example{
	"debug": {Summary: "All of it, for a while", Value: map[string]any{"level": "debug", "for": "15m"}},
}

func init() {
	t := reflect.TypeFor[levelChange]()
	shapes[t] = newShape(t)
}

// logLevelRoutes adds the log level to the admin API; body holds the codes of what takes one.
func (s *Server) logLevelRoutes(body []crawl.Code) {
	if s.o.Levels == nil || s.o.Level == nil {
		return
	}
	adminRoute(s, adminOperation("get-log-level", http.MethodGet, pathLogLevel,
		"Read the log level that is set for all processes", http.StatusOK), s.logLevel)
	adminRoute(s, adminOperation("set-log-level", http.MethodPut, pathLogLevel,
		"Set the log level of all processes for a while; each follows within 5 s", http.StatusOK, body...), s.setLogLevel)
	adminRoute(s, adminOperation("clear-log-level", http.MethodDelete, pathLogLevel,
		"Have each process return to its own log level", http.StatusOK, crawl.CodeOverloaded), s.clearLogLevel)
	s.takes(pathLogLevel, http.MethodPut, reflect.TypeFor[levelChange](), levelExamples)
}

type logLevelInput struct{}

type logLevelOutput struct {
	Body levelRecord
}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

// levelNow answers what holds: level for as long as left, and nothing when that is 0.
func (s *Server) levelNow(level slog.Level, left time.Duration) *logLevelOutput {
	out := &logLevelOutput{Body: levelRecord{Process: processLevel{
		Level: levelName(s.o.Level.Level()), Configured: levelName(s.o.Level.Base()),
	}}}
	if left > 0 {
		name := levelName(level)
		out.Body.Level, out.Body.Until = &name, timeUnlessZero(time.Now().Add(left))
	}
	return out
}

func (s *Server) logLevel(ctx context.Context, _ *exchange, _ *logLevelInput) (*logLevelOutput, error) {
	var level slog.Level
	left, err := prompt(ctx, func(ctx context.Context) (left time.Duration, err error) {
		level, left, err = s.o.Levels.LogLevel(ctx)
		return left, err
	})
	var f *crawl.Fault
	if err != nil && !errors.As(err, &f) && ctx.Err() == nil {
		// Somebody wrote into Redis by hand. Whoever asks can mend it here.
		return nil, &crawl.Fault{
			Code: crawl.CodeUnavailable, Err: err,
			Message: "What is set for all processes is no log level, so that each keeps the one it has. " +
				"Set one here with PUT, or take it back with DELETE.",
		}
	}
	if err != nil {
		return nil, err
	}
	return s.levelNow(level, left), nil
}

func (s *Server) setLogLevel(ctx context.Context, x *exchange, _ *logLevelInput) (*logLevelOutput, error) {
	var level slog.Level
	keep := defaultLevelTime
	err := decodeBody(ctx, s, x, func(b *levelChange) error {
		var f bodyFaults
		switch {
		case b.Level == "":
			f.add("level", "required", "Name the level: %s.", strings.Join(levelNames, ", "))
		case !slices.Contains(levelNames, b.Level):
			f.add("level", "enum", "This is no level: give one of %s.", strings.Join(levelNames, ", "))
		default:
			_ = level.UnmarshalText([]byte(b.Level)) // one of the four
		}
		if f.within("for", b.For, minLevelTime, maxLevelTime); b.For != nil {
			keep = time.Duration(b.For.Duration)
		}
		return f.err()
	})
	if err != nil {
		return nil, err
	}
	_, err = prompt(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.o.Levels.SetLogLevel(ctx, level, keep)
	})
	if err != nil {
		return nil, err
	}
	s.logLevelChange(ctx, x, "set-log-level", slog.String("level", levelName(level)), slog.String("for", keep.String()))
	s.o.Level.Set(context.WithoutCancel(ctx), s.log, level, keep)
	return s.levelNow(level, keep), nil
}

func (s *Server) clearLogLevel(ctx context.Context, x *exchange, _ *logLevelInput) (*logLevelOutput, error) {
	_, err := prompt(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.o.Levels.ClearLogLevel(ctx)
	})
	if err != nil {
		return nil, err
	}
	s.logLevelChange(ctx, x, "clear-log-level")
	s.o.Level.Reset(context.WithoutCancel(ctx), s.log)
	return s.levelNow(0, 0), nil
}

// auditLevel is info, or what is logged now when that is more: a level that somebody with the
// admin key set must not hide what is done with it.
func (s *Server) auditLevel() slog.Level {
	if s.o.Level == nil {
		return slog.LevelInfo
	}
	return max(slog.LevelInfo, s.o.Level.Level())
}

// logLevelChange tells who audits the service, as [Server.logChange] does of a tenant.
func (s *Server) logLevelChange(ctx context.Context, x *exchange, action string, more ...slog.Attr) {
	s.log.LogAttrs(ctx, s.auditLevel(), "admin change", append([]slog.Attr{
		slog.String("by", "admin"), slog.String("action", action), slog.String("request_id", x.id),
	}, more...)...)
}

// follow has the log level of this process follow what is set for all, until the returned
// function is called.
func (s *Server) follow(ctx context.Context) (stop func()) {
	if s.o.Levels == nil || s.o.Level == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); s.o.Level.Follow(ctx, s.log, s.o.Levels.LogLevel) }()
	return func() { cancel(); <-done }
}
