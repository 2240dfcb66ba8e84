// Package allinone runs all of Trawl in one process: the API and a worker, the same parts
// that the two binaries are made of, and unless a Redis is named a store in memory beside
// them. It is what `trawl up` and `trawl crawl` start, and what examples and tests of the
// API stand on.
//
// The store in memory is a miniredis: complete, but for one process, some thousand pages a
// second, and forgotten when it stops. Nothing outside of the process can reach it.
package allinone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/trawl/api/httpapi"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

// Options are what the process is made of. Those without a stated default are required.
type Options struct {
	Listen string // host:port of the API; empty means a free port of 127.0.0.1
	// RedisURL is where everything is kept, as redisconn.Open takes it. Empty means in the
	// memory of this process.
	RedisURL  string
	RedisTLS  redisconn.TLS // the files of a RedisURL that asks for TLS
	RedisWait int           // replicas that must have a submission before it is answered

	Keys            map[string][]string // the API keys of each tenant
	AdminKey        string              // opens the admin API and the monitor; empty for neither
	MonitorWrite    bool                // the monitor may change the queue
	GatewaySecret   string              // of a gateway that names the tenant; empty for none
	Sources         crawl.Sources       // what may be crawled
	Private         netguard.Policy     // which private addresses may be reached
	Denied          netguard.Option     // which public ones may not; nil: all may
	HostDelay       time.Duration       // least time between two requests to one host
	HostConcurrency int                 // requests in flight to one host, at least 1
	Concurrency     int                 // pages in flight; 0 means 64
	Quota           crawl.Quota         // what each tenant is granted; its MaxRunning 0 means 10
	UserAgent       string              // what the crawler calls itself
	// Grace is how long requests and pages in flight may go on after Stop; 0 aborts pages at once.
	Grace  time.Duration
	Logger *slog.Logger
	// Level is that of Logger, which the admin API can then change while the process runs; nil: it cannot.
	Level *obs.Level
	// Traces makes the spans of requests, slices, fetches and commits; nil: none are made.
	Traces trace.TracerProvider
	// Notify hears of what becomes of the process in Run; nil: nobody does.
	Notify *obs.Notifier
}

// What Options leave open.
const (
	defaultListen      = "127.0.0.1:0"
	defaultConcurrency = 64
	defaultMaxRunning  = 10

	// apiGrace is added to the grace for the API's own last requests: a cancel waits ten
	// seconds for the end of its job.
	apiGrace = 12 * time.Second
)

// Process is all of Trawl as a value: [New], then [Process.Start] and [Process.Stop], or
// [Process.Run] for both.
type Process struct {
	o   Options
	log *slog.Logger

	mu      sync.Mutex
	started bool
	api     *httpapi.Server
	stops   []step // run from the last
}

// step is one part that is to be stopped.
type step struct {
	name string
	stop func(context.Context) error
}

// New takes the options. It opens and starts nothing; the error names every option
// that is missing.
func New(o Options) (*Process, error) {
	var faults []error
	for _, option := range []struct {
		name    string
		missing bool
	}{
		{"Keys", len(o.Keys) == 0},
		{"HostConcurrency", o.HostConcurrency < 1},
		{"UserAgent", o.UserAgent == ""},
		{"Logger", o.Logger == nil},
	} {
		if option.missing {
			faults = append(faults, fmt.Errorf("allinone: option %s is missing", option.name))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if o.Listen == "" {
		o.Listen = defaultListen
	}
	if o.Concurrency == 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.Quota.MaxRunning == 0 {
		o.Quota.MaxRunning = defaultMaxRunning
	}
	return &Process{o: o, log: o.Logger}, nil
}

// Start brings the store up, then the worker, then the API: whoever reaches the API finds
// everything behind it. What was started is stopped again when a later part fails. A
// second call, and one after Stop, is an error.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started {
		return errors.New("allinone: the process was started or stopped before")
	}
	p.started = true
	if err := p.start(ctx); err != nil {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.o.Grace+apiGrace)
		defer cancel()
		return errors.Join(err, p.unwind(grace))
	}
	return nil
}

func (p *Process) start(ctx context.Context) error {
	var (
		url  = p.o.RedisURL
		dial redisconn.Dialer
	)
	if url == "" {
		m := startMemory()
		p.push("store in memory", func(context.Context) error { m.stop(); return nil })
		url, dial = memoryURL, m.dial
	}
	reg := obs.NewRegistry()
	observe := redisconn.NewMetrics(reg).Observe
	rdb, err := redisconn.Open(url, redisconn.Options{Name: "trawl-all", TLS: p.o.RedisTLS, Dial: dial, Observe: observe})
	if err != nil {
		return err
	}
	p.push("redis client", func(context.Context) error { return rdb.Close() })

	var (
		st   = store.New(rdb, store.Options{Replicas: p.o.RedisWait, Logger: p.log})
		bell = queue.NewDoorbell(rdb)
	)
	w, err := crawler.NewProcess(crawler.ProcessOptions{
		Deliveries: st, RedisURL: url, RedisTLS: p.o.RedisTLS, RedisDial: dial, RedisObserve: observe,
		Fetch: fetch.Options{
			Dial:      netguard.New(p.o.Private, p.o.Denied).DialContext,
			UserAgent: p.o.UserAgent, MaxConnsPerHost: p.o.Concurrency,
		},
		Options: crawler.Options{
			Store: st, Doorbell: bell, Logger: p.log, Metrics: crawler.NewMetrics(reg), Sources: p.o.Sources,
			Concurrency: p.o.Concurrency, HostDelay: p.o.HostDelay, HostConcurrency: p.o.HostConcurrency,
			Grace: p.o.Grace, Traces: p.o.Traces,
		},
	})
	if err != nil {
		return err
	}
	p.push("worker", w.Stop)
	if err := w.Start(ctx); err != nil {
		return err
	}

	reg.MustRegister(httpapi.NewStatsCollector(st, p.log), queue.NewCollector(rdb), redisconn.NewCollector(rdb))
	limits := crawl.DefaultLimits()
	limits.HostDelay, limits.HostConcurrency = p.o.HostDelay, p.o.HostConcurrency
	api, err := httpapi.New(httpapi.Options{
		Listen: p.o.Listen, Jobs: st, Collections: st, Doorbell: bell, Keys: p.o.Keys, AdminKey: p.o.AdminKey,
		GatewaySecret: p.o.GatewaySecret, Tenants: st, Sources: p.o.Sources, Limits: limits, Quota: p.o.Quota,
		Queue: rdb, MonitorWrite: p.o.MonitorWrite, Logger: p.log, Level: p.o.Level, Levels: st, Registry: reg, Traces: p.o.Traces,
	})
	if err != nil {
		return err
	}
	p.push("api", api.Stop)
	if err := api.Start(ctx); err != nil {
		return err
	}
	p.api = api
	return nil
}

func (p *Process) push(name string, stop func(context.Context) error) {
	p.stops = append(p.stops, step{name, stop})
}

// Stop stops the parts in reverse order: the API takes no more, the worker gives what is
// in flight its grace and the rest back, the store goes last. It is bounded by ctx;
// calling it twice, or before Start, is harmless.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
	return p.unwind(ctx)
}

func (p *Process) unwind(ctx context.Context) error {
	var faults []error
	for i := len(p.stops) - 1; i >= 0; i-- {
		if err := p.stops[i].stop(ctx); err != nil {
			faults = append(faults, fmt.Errorf("stop the %s: %w", p.stops[i].name, err))
		}
	}
	p.stops = nil
	return errors.Join(faults...)
}

// Run starts the process, and stops it when ctx ends or the API can serve no more. It
// returns nil for an orderly stop.
func (p *Process) Run(ctx context.Context) error {
	if err := p.Start(ctx); err != nil {
		return err
	}
	stopping := p.o.Notify.Serving(context.WithoutCancel(ctx), "listening on "+p.api.Addr(), nil)
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-p.api.Failed():
	}
	stopping()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.o.Grace+apiGrace)
	defer cancel()
	return errors.Join(failed, p.Stop(grace))
}

// URL returns where the API is to be called, "" before Start. An API that listens on
// every address is called on the loopback one.
func (p *Process) URL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.api == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(p.api.Addr())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // a wildcard listens there too, [::] as well
	}
	return "http://" + net.JoinHostPort(host, port)
}
