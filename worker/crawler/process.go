package crawler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/worker/fetch"
	"example.com/trawl/worker/robots"
	"example.com/trawl/worker/webhook"
)

// defaultSlices is how many jobs a process serves at once unless told.
const defaultSlices = 8

// ProcessOptions are what a worker process is made of.
type ProcessOptions struct {
	Options // Fetcher is made from Fetch when it is nil
	Fetch   fetch.Options
	// Deliveries is the store of the events of webhooks, which are sent through Fetch.Dial,
	// the same guard as for pages. Nil: this worker delivers none.
	Deliveries webhook.Store
	// RedisURL is where the queue is. The process opens a client of its own for it,
	// since the queue's server changes the client's ways; see queue.NewServer.
	RedisURL string
	// RedisTLS are the files of a RedisURL that asks for TLS.
	RedisTLS redisconn.TLS
	// RedisDial opens the connections to it; nil dials what RedisURL names.
	RedisDial redisconn.Dialer
	// RedisObserve is told of every call to it; nil: nobody is.
	RedisObserve redisconn.Observer
	// Slices is the number of jobs that this process serves at once; 0 means 8.
	Slices int
	// QueueName is the queue to serve; empty means queue.Name. Tests keep apart by it.
	QueueName string
	// Listen is the address of health and metrics; empty for none.
	Listen string
	// Health is what is served there; the process adds conditions of its own.
	Health *obs.Health
	// Level follows Levels while the process runs; nil: somebody else has it follow, or nobody.
	Level  *obs.Level
	Levels obs.Levels
	// Notify hears of what becomes of the process in Run; nil: nobody does.
	Notify *obs.Notifier
}

// Process is a worker as a value: what main runs, a test starts, and the all-in-one
// is composed of.
type Process struct {
	o       ProcessOptions
	crawler *Crawler
	webhook *webhook.Deliverer // nil: none
	queue   *queue.Server
	log     *slog.Logger

	mu       sync.Mutex
	started  bool
	stops    []func(context.Context) error // run from the last
	listener net.Listener
}

// NewProcess wires a worker. It starts and binds nothing; Stop frees what it opened.
func NewProcess(o ProcessOptions) (*Process, error) {
	p := &Process{o: o, log: o.Logger}
	if o.Listen != "" && o.Health == nil {
		return nil, errors.New("crawler: option Health is missing, which is what Listen serves")
	}
	rdb, err := redisconn.Open(o.RedisURL, redisconn.Options{
		Name: "trawl-queue", TLS: o.RedisTLS, Dial: o.RedisDial, Observe: o.RedisObserve,
	})
	if err != nil {
		return nil, err
	}
	p.stops = append(p.stops, func(context.Context) error { return rdb.Close() })
	if o.Fetcher == nil {
		f, err := fetch.New(o.Fetch)
		if err != nil {
			return nil, errors.Join(err, rdb.Close())
		}
		p.stops = append(p.stops, func(context.Context) error { f.Close(); return nil })
		o.Fetcher = f
	}
	agent := cmp.Or(o.Fetch.UserAgent, fetch.DefaultUserAgent)
	if o.Product == "" {
		o.Product = robots.ProductToken(agent)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Deliveries != nil {
		p.webhook = webhook.New(webhook.Options{
			Store: o.Deliveries, Dial: o.Fetch.Dial, UserAgent: agent, Logger: o.Logger, Metrics: o.Metrics.webhooks, Grace: o.Grace,
		})
		o.Outbox = p.webhook.Due
	}
	p.crawler = New(o.Options)
	p.crawler.places = cmp.Or(o.Slices, defaultSlices)
	p.queue = queue.NewServer(rdb, queue.ServerOptions{
		Slices: p.crawler.places, Logger: o.Logger, Queue: o.QueueName, Health: p.crawler.vitals.queue,
		// Stop has ended the slices before the queue is asked to stop.
		ShutdownTimeout: closing,
	}, p.crawler.Serve)
	if o.Health != nil {
		o.Health.AddReady(p.crawler.vitals.ready()...)
		o.Health.AddLive(obs.Check{Name: "sweep", Ready: p.crawler.vitals.live})
	}
	return p, nil
}

// Start binds the health address, begins to take rings and to sweep. A second call,
// and one after Stop, is an error.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started {
		return errors.New("the worker was started before")
	}
	p.started = true
	if p.o.Listen != "" {
		if err := p.serveHealth(ctx); err != nil {
			return errors.Join(err, p.unwind(ctx))
		}
	}
	p.followLevel(ctx)
	if err := p.queue.Start(); err != nil {
		return errors.Join(fmt.Errorf("queue: %w", err), p.unwind(ctx))
	}
	p.stops = append(p.stops, func(context.Context) error { p.queue.Shutdown(); return nil })
	if p.webhook != nil {
		p.webhook.Start(ctx)
		p.stops = append(p.stops, p.webhook.Stop) // its grace began with Drain, beside that of the slices
	}
	p.stops = append(p.stops, p.crawler.Stop)

	p.crawler.vitals.begin()
	sweeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	swept := make(chan struct{})
	go func() { defer close(swept); p.crawler.Sweep(sweeping) }()
	p.stops = append(p.stops, func(context.Context) error { stop(); <-swept; return nil })
	// First of all nothing new is taken.
	p.stops = append(p.stops, func(context.Context) error {
		p.crawler.vitals.end()
		p.queue.StopFetching()
		p.crawler.Drain()
		if p.webhook != nil {
			p.webhook.Drain()
		}
		return nil
	})
	p.log.InfoContext(ctx, "worker started",
		slog.Int("concurrency", p.o.Concurrency), slog.String("health", p.Addr()))
	return nil
}

// followLevel has the log level follow what is set for all processes, to the end of the stop.
func (p *Process) followLevel(ctx context.Context) {
	if p.o.Level == nil || p.o.Levels == nil {
		return
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() { defer close(done); p.o.Level.Follow(following, p.log, p.o.Levels) }()
	p.stops = append(p.stops, func(context.Context) error { stop(); <-done; return nil })
}

func (p *Process) serveHealth(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", p.o.Listen)
	if err != nil {
		return fmt.Errorf("listen for health and metrics (TRAWL_WORKER_LISTEN): %w", err)
	}
	p.listener = l
	srv := &http.Server{
		Handler: p.o.Health, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			p.log.ErrorContext(ctx, "health server ended", slog.Any("err", err))
		}
	}()
	p.stops = append(p.stops, func(ctx context.Context) error {
		err := srv.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, srv.Close())
		}
		<-done
		return err
	})
	return nil
}

// Addr answers the bound health address; empty when there is none.
func (p *Process) Addr() string {
	if p.listener == nil {
		return ""
	}
	return p.listener.Addr().String()
}

// Stop takes no more rings, gives what is in flight its grace, releases the rest and
// stops the queue, in this order: a slice must be able to ring while it closes. It is
// bounded by ctx; calling it twice is harmless.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
	return p.unwind(ctx)
}

// unwind runs the stops, the last first. Some wait for a Redis that may hang: when ctx
// ends they go on behind the caller's back, still in order, since each needs what those
// before it stopped.
func (p *Process) unwind(ctx context.Context) error {
	stops := p.stops
	p.stops = nil
	done := make(chan error, 1)
	go func() {
		var err error
		for i := len(stops) - 1; i >= 0; i-- {
			err = errors.Join(err, stops[i](ctx))
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the worker is not stopped yet: %w", ctx.Err())
	}
}

// Run starts the worker, waits for ctx to end and stops it. Stopping takes no longer
// than the grace and a few seconds for the last words to the store.
func (p *Process) Run(ctx context.Context) error {
	if err := p.Start(ctx); err != nil {
		return err
	}
	stopping := p.o.Notify.Serving(context.WithoutCancel(ctx), "crawling", p.crawler.vitals.live)
	<-ctx.Done()
	stopping()
	p.log.InfoContext(ctx, "worker stops", slog.String("grace", p.crawler.o.Grace.String()))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.crawler.o.Grace+2*closing)
	defer cancel()
	return p.Stop(ctx)
}
