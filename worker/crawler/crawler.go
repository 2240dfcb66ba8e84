package crawler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
)

// Store is what the crawler needs of package store.
type Store interface {
	Begin(ctx context.Context, ring crawl.Ring) (*store.Slice, []crawl.Ring, error)
	Renew(ctx context.Context, sl *store.Slice, slots ...store.HostSlots) (store.Renewed, error)
	Exchange(ctx context.Context, sl *store.Slice, x store.Exchange) (store.Exchanged, error)
	End(ctx context.Context, sl *store.Slice, rest time.Duration) ([]crawl.Ring, error)
	EndWaiting(ctx context.Context, sl *store.Slice, rest time.Duration, what string) ([]crawl.Ring, error)
	Pressure(ctx context.Context, tenant string) float64
	Visited(ctx context.Context, sl *store.Slice, u crawl.URL) (*store.Visit, error)
	Sweep(ctx context.Context) (store.Swept, error)
	ClaimRobots(ctx context.Context, u crawl.URL, product string) (store.Robots, error)
	LearnRobots(ctx context.Context, u crawl.URL, product, claim string, f store.RobotsFetch) (store.Robots, error)
}

// Doorbell is what the crawler needs of package queue.
type Doorbell interface {
	Ring(ctx context.Context, rings ...crawl.Ring) error
	// Waiting answers the number of rings that no worker has taken.
	Waiting(ctx context.Context) (int64, error)
}

// Fetcher fetches one URL.
type Fetcher interface {
	Fetch(ctx context.Context, req fetch.Request) (fetch.Result, error)
	// Raw fetches what is no page: a robots.txt or a sitemap.
	Raw(ctx context.Context, req fetch.RawRequest) (fetch.Raw, error)
}

// Options of a [Crawler]. Those without a stated default are required.
type Options struct {
	Store    Store
	Doorbell Doorbell
	Fetcher  Fetcher
	Logger   *slog.Logger
	Metrics  *Metrics // nil counts nothing
	// Traces makes a span of each slice, and in it of each fetch and commit; nil: none are made.
	Traces trace.TracerProvider
	// Sources bound what this worker fetches, beside what each job's tenant may.
	Sources crawl.Sources
	// Concurrency is the number of pages in flight in this process, at least 1.
	Concurrency int
	// HostDelay and HostConcurrency are this worker's own politeness: a job's plan
	// can ask for a longer delay and for less concurrency, not for more.
	HostDelay       time.Duration
	HostConcurrency int
	// Product is the token by which robots rules address this crawler; that of its user
	// agent, when a process leaves it empty.
	Product string
	// Grace is how long requests in flight may go on after Stop; zero aborts them at once.
	Grace time.Duration
	// Outbox is told of tenants that a sweep found events of webhooks of to deliver; it must
	// not block. Nil: this worker delivers none.
	Outbox func(tenants ...string)
}

// The times of a slice.
const (
	// sliceBudget bounds a slice, so that a long job passes its place on.
	sliceBudget = 30 * time.Second
	// shortBudget bounds it while other rings wait for a free handler.
	shortBudget = 2 * time.Second
	// sweepEvery is the mean pause between two sweeps: a cancel's grace of 4 s and
	// one sweep stay below the promised 5 s.
	sweepEvery = 700 * time.Millisecond
	// outage is how long a slice keeps its results while the store does not answer.
	outage = time.Minute
	// closing bounds the last calls of a slice whose own context has ended.
	closing = 5 * time.Second
	// unreadable is how long a job rests whose plan this worker cannot work by, as that of
	// a newer API may be: without a rest it would ring for a worker without end.
	unreadable = 30 * time.Second
)

// Crawler serves slices and sweeps. Make it with [New], hand its [Crawler.Serve] to
// the queue, run [Crawler.Sweep] beside it.
type Crawler struct {
	o       Options
	room    *room
	robots  *robotsBook // what this process knows of robots.txt files
	jars    *jars       // cookies of the jobs
	trouble *trouble    // hosts that fail
	pending *pending    // what was taken out of pages and waits for the store
	tracer  *tracer     // nil: nothing is traced
	vitals  vitals      // whether this worker goes on

	drain     chan struct{} // closed: lease nothing more
	drop      chan struct{} // closed: abort what is in flight
	drainOnce sync.Once
	dropOnce  sync.Once

	places int // rings that the queue hands this process at once; 0: not known

	mu      sync.Mutex
	serving map[crawl.JobRef]int64 // the turn that serves it, by its number
	entered int64
	open    int // turns that have not ended, freed ones included
	turns   sync.WaitGroup
}

// New makes a crawler. It starts nothing.
func New(o Options) *Crawler {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	tracer := newTracer(&o)
	return &Crawler{
		o: o, tracer: tracer, room: newRoom(o.Concurrency), robots: newRobotsBook(&o), jars: newJars(), trouble: newTrouble(),
		pending: newPending(), drain: make(chan struct{}), drop: make(chan struct{}),
		serving: map[crawl.JobRef]int64{},
	}
}

// Serve is a worker's turn at a job: the handler of one ring. It returns when the
// slice is over, and only then is the ring acknowledged; an error has the queue ring
// again. One that is [queue.ErrNewer] is of a job that only a newer worker reads, and
// [queue.ErrServed] is for a ring that another worker may take, since this one serves its job.
func (c *Crawler) Serve(ctx context.Context, ring crawl.Ring) error {
	release, err := c.enter(ring.JobRef)
	if release == nil {
		return err
	}
	defer release()
	begun := time.Now()
	sl, rings, err := c.o.Store.Begin(ctx, ring)
	if errors.Is(err, store.ErrNewer) {
		return fmt.Errorf("job %s: %w: %w", ring.ID, queue.ErrNewer, err) // nothing was begun
	}
	if crawl.CodeOf(err) == crawl.CodeOverloaded {
		// Redis is full: the ring is done, and counts no failure. The sweep rings again within
		// seconds, for as long as it takes, and the queue takes no ring before there is memory.
		c.o.Logger.DebugContext(ctx, "no slice begins in a full Redis", slog.String("job_id", ring.ID),
			slog.String("tenant", ring.Tenant), slog.Any("err", err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("begin a slice of job %s: %w", ring.ID, err)
	}
	if sl == nil {
		return nil
	}
	ctx, log, span := c.tracer.slice(ctx, sl, c.o.Logger.With(
		slog.String("job_id", ring.ID), slog.String("tenant", ring.Tenant), slog.Int64("slice", sl.Gen)), begun)
	last := parting{place: 1} // whoever takes the place of this slice
	t, err := newTurn(c, sl, log)
	defer func() { span.end(t, err) }()
	if err == nil {
		c.ring(ctx, c.needed(ctx, sl.Job, rings, 0))
		err = t.run(ctx)
		if t.moot {
			return err // a round trip less: whoever ended the job has closed all of it
		}
		last.rest = t.rest()
		if t.replaced {
			last.place = 0
		}
		if t.starved {
			last.waits = crawl.WaitingMemory
		}
	} else {
		last.rest = unreadable
		(&turn{log: log, why: endedError, started: time.Now()}).tell(ctx)
	}
	return errors.Join(err, c.leave(ctx, sl, last, release, log))
}

// parting is what a slice leaves behind.
type parting struct {
	rest  time.Duration // see store.Store.End
	waits string        // what the job rests for, empty for what its URLs wait for
	place int           // how many slices may take its place at once
}

// leave closes a slice. The job is given free before it is rung, or this process
// could take the ring while it still thinks that it serves the job.
func (c *Crawler) leave(
	ctx context.Context, sl *store.Slice, last parting, release func(), log *slog.Logger,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	rings, err := c.end(ctx, sl, last)
	release()
	if err != nil {
		log.WarnContext(ctx, "slice not closed, the sweep will", slog.Any("err", err))
		return nil
	}
	c.ring(ctx, c.needed(ctx, sl.Job, rings, last.place))
	return nil
}

func (c *Crawler) end(ctx context.Context, sl *store.Slice, last parting) ([]crawl.Ring, error) {
	if last.waits == "" {
		return c.o.Store.End(ctx, sl, last.rest)
	}
	return c.o.Store.EndWaiting(ctx, sl, last.rest, last.waits)
}

// errStopping has the queue hand a ring to another worker.
var errStopping = errors.New("this worker is stopping")

// enter takes a job for this process, once; release is nil when it cannot. A ring for a
// job that is served here already is for another worker: the job could use one more.
func (c *Crawler) enter(job crawl.JobRef) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.drain:
		return nil, errStopping
	default:
	}
	if c.serving[job] != 0 {
		return nil, queue.ErrServed
	}
	c.entered++
	mine := c.entered
	c.serving[job] = mine
	c.open++
	c.turns.Add(1)
	return sync.OnceFunc(func() {
		c.mu.Lock()
		c.open--
		if c.serving[job] == mine { // else it was given free, and another turn has it
			delete(c.serving, job)
		}
		c.mu.Unlock()
		c.turns.Done()
	}), nil
}

// full reports whether this process can take no ring.
func (c *Crawler) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open >= c.places
}

// free lets another turn of this process serve the job, while one ends what it has.
func (c *Crawler) free(job crawl.JobRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.serving, job)
}

// ring rings what a script asked for. A ring that fails is no error: the store
// remembers what is due, and the sweep rings later.
func (c *Crawler) ring(ctx context.Context, rings []crawl.Ring) {
	if len(rings) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	err := c.o.Doorbell.Ring(ctx, rings...)
	c.o.Metrics.rang(len(rings), err)
	if err != nil {
		c.o.Logger.WarnContext(ctx, "ring refused, the sweep rings later", slog.Int("rings", len(rings)),
			slog.String("job_id", rings[0].ID), slog.String("tenant", rings[0].Tenant), slog.Any("err", err))
	}
}

// Sweep heals until ctx ends: see store.Store.Sweep. Every worker does; the pause is
// jittered so that they do not do it together.
func (c *Crawler) Sweep(ctx context.Context) {
	for {
		pause := time.NewTimer(sweepEvery/2 + rand.N(sweepEvery)) // jitter
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		sweeping, done := context.WithTimeout(ctx, sweepMost)
		swept, err := c.o.Store.Sweep(sweeping)
		done()
		c.vitals.sweep(swept.Tenants, err)
		c.o.Metrics.swept(swept, err)
		switch {
		case err != nil && ctx.Err() == nil:
			c.o.Logger.WarnContext(ctx, "sweep failed", slog.Any("err", err))
		case swept.Dead > 0 || swept.Expired > 0:
			c.o.Logger.InfoContext(ctx, "healed",
				slog.Int64("dead_slices", swept.Dead), slog.Int64("urls_back", swept.Back),
				slog.Int64("expired_jobs", swept.Expired), slog.Int("rings", len(swept.Rings)))
		}
		if c.o.Outbox != nil && len(swept.Outbox) > 0 {
			c.o.Outbox(swept.Outbox...)
		}
		c.ring(ctx, swept.Rings)
	}
}

// Drain has every slice lease nothing more; what is in flight goes on.
func (c *Crawler) Drain() {
	c.mu.Lock() // so that no turn enters behind Stop's back
	defer c.mu.Unlock()
	c.drainOnce.Do(func() { close(c.drain) })
}

// Stop drains, lets what is in flight go on for the grace, then aborts it: leases go
// back with no attempt burnt. It returns when the last slice is closed or ctx ends.
func (c *Crawler) Stop(ctx context.Context) error {
	c.Drain()
	done := make(chan struct{})
	go func() { c.turns.Wait(); close(done) }()
	grace := time.NewTimer(c.o.Grace)
	defer grace.Stop()
	select {
	case <-done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	c.dropOnce.Do(func() { close(c.drop) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		// Nothing is lost: the sweep of another worker takes the leases back.
		return fmt.Errorf("slices still open: %w", ctx.Err())
	}
}
