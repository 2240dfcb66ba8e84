package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.com/trawl/deployments/chaos/check"
	"example.com/trawl/deployments/chaos/clock"
)

// patience is how long a fault waits for something that it can be done to.
const patience = 20 * time.Second

// campaign carries out a plan.
type campaign struct {
	d     *deployment
	load  *check.Load
	act   *activity
	rec   *recovery
	tasks *tasks
	log   func(format string, args ...any)
	begun time.Time
	// standing has a place for each worker that may be disturbed at a time.
	standing chan struct{}

	mu      sync.Mutex
	thrown  map[kind]int
	split   map[string]int // of the faults of links, by kind and link
	missed  []string       // faults that found nothing to be done to
	broken  []string       // promises, in words; those that the load finds are not among them
	slowest map[kind]time.Duration
	stalls  int64
}

// carryOut throws the faults of a plan, each at its time, and returns when the last is over.
func (c *campaign) carryOut(ctx context.Context, faults []fault) {
	lanes := map[lane][]fault{}
	for _, f := range faults {
		on := lane{traitOf(f.Kind).class, f.Target}
		if on.target == "" {
			on.target = string(f.Kind)
		}
		lanes[on] = append(lanes[on], f)
	}
	var wg sync.WaitGroup
	for _, of := range lanes {
		wg.Go(func() {
			for _, f := range of {
				if rest(ctx, time.Until(c.begun.Add(f.At))); ctx.Err() != nil {
					return
				}
				c.throw(ctx, f)
			}
		})
	}
	wg.Wait()
}

// throw carries out one fault and counts it, when it was thrown.
func (c *campaign) throw(ctx context.Context, f fault) {
	err := c.strike(ctx, f)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			c.missed = append(c.missed, fmt.Sprintf("%s: %v", f, err))
			c.log("not thrown: %s: %v", f, err)
		}
		return
	}
	c.thrown[f.Kind]++
	if traitOf(f.Kind).class == ofLink {
		c.split[string(f.Kind)+" "+f.Target]++
	}
}

func (c *campaign) strike(ctx context.Context, f fault) error {
	switch traitOf(f.Kind).class {
	case ofWorker:
		select {
		case c.standing <- struct{}{}:
			defer func() { <-c.standing }()
		case <-ctx.Done():
			return ctx.Err()
		}
		return c.strikeProcess(ctx, f, partWorker)
	case ofAPI:
		return c.strikeProcess(ctx, f, partAPI)
	case ofRedis:
		return c.strikeRedis(ctx, f)
	case ofLink:
		over := c.act.begin(partOf(f.Target), c.told(f))
		defer over()
		return c.d.link(f.Target).suffer(ctx, f)
	case ofClock:
		return c.jump(ctx, f)
	case ofTask:
		return c.deleteTask(ctx, f)
	default:
		return c.call(ctx, f)
	}
}

// partOf says what a fault of a link disturbs.
func partOf(link string) part {
	switch {
	case strings.HasPrefix(link, siteLink):
		return partSite
	case strings.HasPrefix(link, callersLink):
		return partAPILink
	default:
		return partRedisLink
	}
}

// told is a fault with the time at which it is thrown.
func (c *campaign) told(f fault) string {
	return fmt.Sprintf("%.1fs %s", time.Since(c.begun).Seconds(), f)
}

// violate keeps a promise that was broken, and tells it at once.
func (c *campaign) violate(text string) {
	c.mu.Lock()
	c.broken = append(c.broken, text)
	c.mu.Unlock()
	c.tell(text)
}

// tell tells a violation, and what was done before.
func (c *campaign) tell(text string) {
	c.log("VIOLATION at %.1fs: %s", time.Since(c.begun).Seconds(), text)
	for _, f := range c.act.recent() {
		c.log("  before: %s", f)
	}
}

// lost is told that a process ended by itself. It is started again, as a supervisor would.
func (c *campaign) lost(ctx context.Context) func(*process, *os.ProcessState) {
	return func(p *process, s *os.ProcessState) {
		if ctx.Err() != nil {
			return
		}
		c.violate(fmt.Sprintf("%s ended by itself (%v); see %s", p.name, s, p.log))
		p.turn.Lock()
		defer p.turn.Unlock()
		if err := p.revive(ctx); err != nil && ctx.Err() == nil {
			c.violate(err.Error())
		}
	}
}

// strikeProcess kills, ends or stops a process of Trawl.
func (c *campaign) strikeProcess(ctx context.Context, f fault, of part) error {
	p := c.d.named(f.Target)
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := p.revive(ctx); err != nil {
		return err
	}
	over := c.act.begin(of, c.told(f))
	defer over()
	switch f.Kind {
	case workerKill, apiKill:
		if err := p.kill(); err != nil {
			return err
		}
		c.wounded(f)
		rest(ctx, f.For)
	case workerTerm, apiTerm:
		c.terminate(ctx, p, f.Kind)
	case workerStall:
		l, err := p.signal(syscall.SIGSTOP)
		if err != nil {
			return err
		}
		c.wounded(f)
		rest(ctx, f.For)
		return l.signal(syscall.SIGCONT)
	default:
		return fmt.Errorf("a process has no fault %s", f.Kind)
	}
	return p.revive(ctx)
}

// wounded has it watched what a worker left that was killed or stopped.
func (c *campaign) wounded(f fault) {
	if traitOf(f.Kind).class != ofWorker {
		return
	}
	c.mu.Lock()
	c.stalls++
	c.mu.Unlock()
	c.rec.watch(c.told(f))
}

// progress is how many faults were thrown, how many of them killed, and how many promises the harness saw broken.
func (c *campaign) progress() (faults, kills, broken int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, n := range c.thrown {
		if faults += n; k.kills() {
			kills += n
		}
	}
	return faults, kills, len(c.broken)
}

// wounds is how often a worker was killed or stopped.
func (c *campaign) wounds() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stalls
}

// terminate asks a process to end, and holds it to its word: it ends by itself, in time, and without an error. While
// Redis is away it has more time, and cannot say its last words.
func (c *campaign) terminate(ctx context.Context, p *process, k kind) {
	begun := time.Now()
	limit, cancel := context.WithTimeout(ctx, grace+2*closing+3*time.Second)
	defer cancel()
	state, err := p.end(limit, syscall.SIGTERM)
	if ctx.Err() != nil {
		return
	}
	took := time.Since(begun)
	faulted := c.act.since(begun, partRedis, partRedisLink)
	c.mu.Lock()
	c.slowest[k] = max(c.slowest[k], took)
	c.mu.Unlock()
	switch {
	case err != nil:
		c.violate(fmt.Sprintf("%s was asked to end, and has not after %.1fs; see %s", p.name, took.Seconds(), p.log))
		if err := p.kill(); err != nil {
			c.violate(err.Error())
		}
	case faulted:
	case !state.Success():
		c.violate(fmt.Sprintf("%s was asked to end, and did with an error (%v); see %s", p.name, state, p.log))
	case took > grace+closing:
		c.violate(fmt.Sprintf("%s took %.1fs to end, with a grace of %v; see %s", p.name, took.Seconds(), grace, p.log))
	}
}

// strikeRedis kills, fills or stops Redis.
func (c *campaign) strikeRedis(ctx context.Context, f fault) error {
	r := c.d.redis
	r.turn.Lock()
	defer r.turn.Unlock()
	over := c.act.begin(partRedis, c.told(f))
	defer over()
	switch f.Kind {
	case redisKill:
		if err := r.kill(); err != nil {
			return err
		}
		rest(ctx, f.For)
		return r.revive(ctx)
	case redisFull:
		if err := r.fill(ctx); err != nil {
			return err
		}
		rest(ctx, f.For)
		return r.limit(context.WithoutCancel(ctx), 0) // also when the run is cut short
	case redisStop:
		l, err := r.signal(syscall.SIGSTOP)
		if err != nil {
			return err
		}
		rest(ctx, f.For)
		return l.signal(syscall.SIGCONT)
	default:
		return fmt.Errorf("redis has no fault %s", f.Kind)
	}
}

// jump sets a worker's wall clock, and right again if it still lives when the time is over.
func (c *campaign) jump(ctx context.Context, f fault) error {
	there, back := clock.Ahead, clock.Back
	if !f.Ahead {
		there, back = back, there
	}
	var l *life
	if err := persist(ctx, func() (bool, error) {
		var err error
		l, err = c.d.named(f.Target).signal(there)
		return err == nil, nil // it is being restarted
	}); err != nil {
		return err
	}
	over := c.act.begin(partWorker, c.told(f))
	defer over()
	rest(ctx, f.For)
	return l.signal(back)
}

// deleteTask deletes a task of the queue.
func (c *campaign) deleteTask(ctx context.Context, f fault) error {
	rng := f.rand()
	return persist(ctx, func() (bool, error) {
		what, err := c.tasks.remove(ctx, rng, f.Raw)
		if err != nil || what == "" { // Redis is away, or nothing is in the queue
			return false, err
		}
		c.act.mention(c.told(f) + " " + what)
		return true, nil
	})
}

// call has the load do what callers do.
func (c *campaign) call(ctx context.Context, f fault) error {
	rng := f.rand()
	return persist(ctx, func() (bool, error) {
		if !c.load.Do(string(f.Kind), rng) {
			return false, nil
		}
		c.act.mention(c.told(f))
		return true, nil
	})
}

func (f fault) rand() *rand.Rand {
	return rand.New(rand.NewPCG(f.Seed, 1)) //nolint:gosec // a plan that reproduces is what is wanted
}

// persist tries f until it is done, for as long as there is patience.
func persist(ctx context.Context, f func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		done, err := f()
		if done {
			return nil
		}
		if rest(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return cmp.Or(err, fmt.Errorf("nothing to do it to in %v", patience))
		}
	}
}
