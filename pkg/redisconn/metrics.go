package redisconn

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// What an [Observer] is told of.
const (
	CallCommand  = "command"  // one command on its own
	CallPipeline = "pipeline" // several commands, sent and answered together
)

// Observer is told of every call to Redis when it is over: what it was, how long it took,
// with the dialling and resending that it needed, and why it failed. Of a pipeline err is the
// first error of its commands that means something; an absent value is none. It is called by
// many goroutines at once and must not block.
type Observer func(call string, took time.Duration, err error)

// observe is the hook that tells an Observer. It costs a call two looks at the clock.
type observe struct{ tell Observer }

// DialHook implements [redis.Hook].
func (observe) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (o observe) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		begun := time.Now()
		err := next(ctx, cmd)
		told := err
		if errors.Is(err, redis.Nil) {
			told = nil
		}
		o.tell(CallCommand, time.Since(begun), told)
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (o observe) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		begun := time.Now()
		err := next(ctx, cmds)
		took := time.Since(begun)
		o.tell(CallPipeline, took, telling(err, cmds))
		return err
	}
}

// telling picks the error of a pipeline that says most: go-redis answers the first, which may
// be an absent value, or a script to be sent again, in front of one that was refused.
func telling(err error, cmds []redis.Cmder) error {
	if err == nil {
		return nil
	}
	first := err
	if errors.Is(err, redis.Nil) {
		first = nil
	} else if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	for _, cmd := range cmds {
		switch own := cmd.Err(); {
		case own == nil, errors.Is(own, redis.Nil):
		case !redis.HasErrorPrefix(own, "NOSCRIPT"):
			return own
		case first == nil:
			first = own
		}
	}
	return first
}

// Kinds of errors of a call to Redis.
const (
	kindTimeout  = "timeout"  // no answer in time, or no connection
	kindRefused  = "refused"  // nobody to connect to
	kindNoScript = "noscript" // a script that Redis forgot: it is sent again, with its text
	kindOOM      = "oom"      // maxmemory is reached
	kindNoPerm   = "noperm"   // the user, the password, or a right that the user lacks
	kindOther    = "other"
)

var kinds = []string{kindTimeout, kindRefused, kindNoScript, kindOOM, kindNoPerm, kindOther}

// kindOf names the kind of an error of a call.
func kindOf(err error) string {
	switch {
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		return kindNoScript
	case redis.IsOOMError(err):
		return kindOOM
	case redis.IsAuthError(err), redis.IsPermissionError(err), redis.HasErrorPrefix(err, "WRONGPASS"),
		redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "The user executing the script"):
		return kindNoPerm
	}
	if nerr, ok := errors.AsType[net.Error](err); ok && nerr.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return kindTimeout
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return kindRefused
	}
	return kindOther
}

// Metrics counts the calls of the clients of one process: how long they take and why they
// fail. Its Observe is for [Options.Observe].
type Metrics struct {
	command, pipeline prometheus.Observer
	errors            map[string]prometheus.Counter
}

// NewMetrics makes the metrics and registers them; a nil registerer registers nothing. Their
// labels are what [Observer] is told and six kinds of errors, each of them there from the start.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "trawl_redis_seconds",
		Help: "Seconds that a call to Redis took which Redis answered: a single command, or a pipeline of several. " +
			"Slow calls of all processes together point at Redis, those of one at its network or processor.",
		// A command takes under 0.1 ms, a batch of commits 1 ms, and 3 s is when a call gives up.
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 3},
	}, []string{"call"})
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trawl_redis_errors_total",
		Help: "Calls to Redis that failed: timeout, refused (nobody to connect to), oom (maxmemory is reached), " +
			"noperm (user, password or a missing right), other; noscript is normal after a restart or failover.",
	}, []string{"kind"})
	m := &Metrics{
		command: seconds.WithLabelValues(CallCommand), pipeline: seconds.WithLabelValues(CallPipeline),
		errors: make(map[string]prometheus.Counter, len(kinds)),
	}
	for _, kind := range kinds {
		m.errors[kind] = failed.WithLabelValues(kind)
	}
	if reg != nil {
		reg.MustRegister(seconds, failed)
	}
	return m
}

// Observe is an [Observer]. A call that its caller gave up is neither slow nor failed.
func (m *Metrics) Observe(call string, took time.Duration, err error) {
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return
		}
		m.errors[kindOf(err)].Inc()
		if _, answered := errors.AsType[redis.Error](err); !answered {
			return
		}
	}
	if call == CallPipeline {
		m.pipeline.Observe(took.Seconds())
	} else {
		m.command.Observe(took.Seconds())
	}
}
