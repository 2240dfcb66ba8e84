package queue

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/redisconn"
)

const (
	// defaultSlices is how many slices a worker serves at once unless told.
	defaultSlices = 8
	// defaultShutdown is above the 8 s for which a worker's fetches may go on
	// after a stop: slices end by themselves before asynq takes their rings back.
	defaultShutdown = 10 * time.Second

	// pollInterval is how often an idle server looks; on average a ring waits
	// for half of it, and at 150 ms a worker that idles costs 0.3 % of a core.
	pollInterval = 150 * time.Millisecond
	// delayedInterval is how often rings whose delay is over are looked for;
	// asynq's 5 s would be the larger part of every short delay.
	delayedInterval = time.Second
	// healthInterval is how often the server pings and announces its queue.
	healthInterval = announceEvery

	// firstDelay and maxDelay bound the wait before a failed slice is tried
	// again; a minute, because behind it is a store that must answer soon or not
	// at all, and the job makes no progress meanwhile.
	firstDelay = time.Second
	maxDelay   = time.Minute
)

// ServerOptions are what a worker chooses about its server.
type ServerOptions struct {
	// Slices is how many rings are handled at once; 0 means 8.
	Slices int
	// Logger gets what asynq and the handlers report; nil discards it.
	Logger *slog.Logger
	// ShutdownTimeout is how long [Server.Shutdown] waits for handlers before it
	// gives their rings back; 0 means 10 s.
	ShutdownTimeout time.Duration
	// Health is called every 5 s with the error of a PING, nil when Redis
	// answered. It must return soon. Nil is allowed.
	Health func(error)
	// Queue is the queue to serve; empty means [Name]. Tests that share a Redis
	// keep apart by it.
	Queue string
}

// Server takes rings and has them handled.
type Server struct {
	asynq  *asynq.Server
	client *asynq.Client // for copies, see leave
	rdb    redis.UniversalClient
	o      ServerOptions
	handle func(context.Context, crawl.Ring) error
	newer  newer
	passes passes
}

// NewServer returns a server that calls handle for each ring, from several
// goroutines at once. rdb must be a client of the server's own, of no other
// use: the server adds hooks to it that ignore cancellation (see
// [redisconn.Detach]) and slow failing commands down. It is not closed.
//
// A ring is acknowledged when handle returns nil, not before: a ring whose
// worker is killed meanwhile is delivered again, after more than a minute, and
// one that was handled can be delivered a second time. When handle returns an
// error or panics the ring is delivered again after a random delay of at most
// 1 s, 2 s, 4 s … 1 minute; after the tenth time it is dropped, and the store
// rings again. A ring of a newer version of Trawl is not handled, and one whose
// handler returns [ErrNewer] is as if it had not been: it is given back for another
// worker, however often, and counts no failure. One whose handler returns [ErrServed] is
// passed on to another worker at once, as often as there are workers that may have it.
//
// The context of handle ends with the lease of the ring, that is, about 30 s
// after Redis was last reached, after five minutes, and when Shutdown gives the
// ring back. Another worker may be handling the same ring by then: every write
// must be fenced. It has the span of who rang, where [Traced] put it into the ring.
func NewServer(
	rdb redis.UniversalClient, o ServerOptions, handle func(context.Context, crawl.Ring) error,
) *Server {
	o.Slices = cmp.Or(o.Slices, defaultSlices)
	o.ShutdownTimeout = cmp.Or(o.ShutdownTimeout, defaultShutdown)
	o.Queue = cmp.Or(o.Queue, Name)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{client: asynq.NewClientFromRedisClient(rdb), rdb: rdb, o: o, handle: handle}
	rdb.AddHook(redisconn.Detach())
	rdb.AddHook(pace{outagePause})
	s.asynq = asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency:              o.Slices,
		Queues:                   map[string]int{o.Queue: 1},
		TaskCheckInterval:        pollInterval,
		DelayedTaskCheckInterval: delayedInterval,
		ShutdownTimeout:          o.ShutdownTimeout,
		HealthCheckInterval:      healthInterval,
		HealthCheckFunc:          s.health,
		IsFailure:                isFailure,
		RetryDelayFunc:           func(n int, err error, _ *asynq.Task) time.Duration { return retryDelay(n, err) },
		ErrorHandler:             asynq.ErrorHandlerFunc(s.report),
		Logger:                   asynqLogger{o.Logger},
		LogLevel:                 asynq.InfoLevel, // at debug it formats a line each poll
	})
	return s
}

// Start begins to take rings. It returns at once, with an error when the server
// runs already or was shut down. Redis need not answer yet.
func (s *Server) Start() error {
	if err := s.asynq.Start(asynq.HandlerFunc(s.process)); err != nil {
		return fmt.Errorf("start the queue server: %w", err)
	}
	return nil
}

// StopFetching takes no more rings; those being handled go on. It may be called
// once, twice, or on a server that never started.
func (s *Server) StopFetching() { s.asynq.Stop() }

// Shutdown takes no more rings, waits for handlers up to ShutdownTimeout, gives
// the rings of the others back to the queue (which counts no attempt), and
// returns. The contexts of those handlers end then; Shutdown does not wait for
// them. Calling it twice, or on a server that never started, does nothing.
func (s *Server) Shutdown() { s.asynq.Shutdown() }

// process decodes one task and has it handled.
func (s *Server) process(ctx context.Context, t *asynq.Task) error {
	ring, err := ringOf(t.Type(), t.Payload())
	if errors.Is(err, ErrNewer) {
		return s.leave(ctx, t, err)
	}
	if err != nil {
		// Archived, not retried: it stays visible in the monitor, and no
		// attempt can make it a ring.
		return fmt.Errorf("drop a task that is no ring: %w: %w", err, asynq.SkipRetry)
	}
	s.passes.handling.Add(1)
	defer s.passes.handling.Add(-1)
	err = s.handle(rungBy(ctx, t), ring)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrServed):
		s.pass(ctx, t, ring)
		return nil // a ring that is lost here is harmless: the store rings again
	case errors.Is(err, ErrNewer):
		return s.leave(ctx, t, err)
	}
	tried, _ := asynq.GetRetryCount(ctx)
	if limit, ok := asynq.GetMaxRetry(ctx); ok && tried >= limit {
		return fmt.Errorf("drop a ring that failed %d times: %w: %w", tried+1, err, asynq.RevokeTask)
	}
	return err
}

// decode reads the payload of a task: exactly the fields of a ring, once. The
// error is [ErrNewer] for the payload of a newer version, whatever it holds.
func decode(b []byte) (crawl.Ring, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var p payload
	if err := dec.Decode(&p); err != nil {
		return crawl.Ring{}, cmp.Or(checkVersion(b), fmt.Errorf("decode: %w", err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return crawl.Ring{}, errors.New("decode: something follows the object")
	}
	if p.V > payloadVersion {
		return crawl.Ring{}, checkVersion(b)
	}
	r := crawl.Ring{JobRef: crawl.JobRef{Tenant: p.Tenant, ID: p.Job}, N: p.N}
	if !valid(r) || p.V < 0 {
		return crawl.Ring{}, errors.New("decode: no valid tenant, job, number and version")
	}
	return r, nil
}

// isFailure tells asynq which errors count against maxRetry. A lease that
// expired says that a worker died or lost Redis, nothing about the job, and no
// more does a worker that is too old for it.
func isFailure(err error) bool {
	return err != nil && !errors.Is(err, asynq.ErrLeaseExpired) && !errors.Is(err, ErrNewer)
}

// retryDelay returns how long a ring waits that was tried n times before this
// error: a random part of the doubled delay, so that the rings of an outage do
// not come back together. A worker's death delays nothing.
func retryDelay(n int, err error) time.Duration {
	if errors.Is(err, ErrNewer) {
		return newerWait()
	}
	if errors.Is(err, asynq.ErrLeaseExpired) {
		return 0
	}
	limit := maxDelay
	if n < 6 { // 2^6 s is above maxDelay already; a greater shift would overflow
		limit = firstDelay << max(n, 0)
	}
	return rand.N(limit)
}

// report logs what a handler returned. It changes nothing: asynq calls it also
// for rings that another worker is handling by now.
func (s *Server) report(ctx context.Context, t *asynq.Task, err error) {
	if errors.Is(err, ErrNewer) {
		s.reportNewer(ctx, err)
		return
	}
	attrs := []slog.Attr{slog.String("queue", s.o.Queue), slog.Any("err", err)}
	if id, ok := asynq.GetTaskID(ctx); ok {
		attrs = append(attrs, slog.String("task", id))
	}
	if n, ok := asynq.GetRetryCount(ctx); ok {
		attrs = append(attrs, slog.Int("attempt", n+1))
	}
	if r, err := decode(t.Payload()); err == nil {
		attrs = append(attrs, slog.String("tenant", r.Tenant), slog.String("job_id", r.ID), slog.Int64("ring", r.N))
	}
	level := slog.LevelWarn
	if errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask) {
		level = slog.LevelError
	}
	s.o.Logger.LogAttrs(ctx, level, "ring failed", attrs...)
}

// health runs every healthInterval, in a goroutine of asynq's that ends with
// Shutdown.
func (s *Server) health(err error) {
	if err == nil {
		//nolint:forbidigo // asynq passes no context; the socket timeouts bound the commands
		ctx := context.Background()
		err = errors.Join(s.rdb.SAdd(ctx, queuesKey, s.o.Queue).Err(), s.prune(ctx))
	}
	if s.o.Health != nil {
		s.o.Health(err)
	}
}

// asynqLogger passes on what asynq reports, as text: it has no attributes.
type asynqLogger struct{ l *slog.Logger }

func (a asynqLogger) log(level slog.Level, args []any) {
	//nolint:forbidigo // asynq passes no context
	a.l.LogAttrs(context.Background(), level, "queue server", slog.String("text", fmt.Sprint(args...)))
}

// Debug implements [asynq.Logger].
func (a asynqLogger) Debug(args ...any) { a.log(slog.LevelDebug, args) }

// Info implements [asynq.Logger]; asynq tells of each of its parts that starts
// or stops, which is of no interest to who runs a worker.
func (a asynqLogger) Info(args ...any) { a.log(slog.LevelDebug, args) }

// Warn implements [asynq.Logger].
func (a asynqLogger) Warn(args ...any) { a.log(slog.LevelWarn, args) }

// Error implements [asynq.Logger]. A Redis that is full is no defect of this process, and asynq says it
// every three seconds.
func (a asynqLogger) Error(args ...any) {
	level := slog.LevelError
	if strings.Contains(fmt.Sprint(args...), "OOM command not allowed") {
		level = slog.LevelWarn
	}
	a.log(level, args)
}

// Fatal implements [asynq.Logger]. asynq v0.26.0 never calls it; a version that
// does must not go on after it.
func (a asynqLogger) Fatal(args ...any) {
	a.log(slog.LevelError, args)
	panic("queue: asynq cannot go on: " + fmt.Sprint(args...))
}
