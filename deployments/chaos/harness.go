package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"example.com/trawl/deployments/chaos/check"
)

const (
	// hostRest is how long Trawl leaves a host alone that failed several times in a row, as one whose link is cut.
	hostRest = 60 * time.Second
	// drain is how long after the last fault the last job may end: a minute, once its host is asked again.
	drain = hostRest + 60*time.Second
	// siteHosts is under how many addresses the site is, each a host with a link of its own: Trawl leaves a host alone
	// whose link is cut, and the others' jobs must go on.
	siteHosts = 8
	// tellEvery is how often progress is told.
	tellEvery = 5 * time.Second
)

// harness is one run.
type harness struct {
	o    options
	dir  string // of everything that the run writes
	span time.Duration
	site *http.Server
	d    *deployment
	c    *campaign

	mu       sync.Mutex // of progress
	progress io.Writer
}

func newHarness(o options, progress io.Writer) (*harness, error) {
	span := time.Duration(o.Minutes * float64(time.Minute))
	if span < 5*time.Second || o.Minutes > 24*60 || math.IsNaN(o.Minutes) {
		return nil, fmt.Errorf("--minutes: %g is outside 0.1 to 1440", o.Minutes)
	}
	if o.Workers < 2 || o.APIs < 1 || o.Workers > 32 || o.APIs > 8 {
		return nil, errors.New("there must be 2 to 32 --workers and 1 to 8 --apis")
	}
	dir, err := os.MkdirTemp("", "trawl-chaos-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the run: %w", err)
	}
	return &harness{o: o, dir: dir, span: span, progress: progress}, nil
}

// log tells progress, a line at a time.
func (h *harness) log(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = fmt.Fprintf(h.progress, "chaos: "+format+"\n", args...) // who does not want to know, does not
}

// keep tells where the logs are.
func (h *harness) keep() { h.log("the logs of all processes are in %s", h.dir) }

// close ends all that the run started.
func (h *harness) close() error {
	var err error
	if h.d != nil {
		err = h.d.stop()
	}
	if h.site != nil {
		err = errors.Join(err, h.site.Close())
	}
	return err
}

// run builds and starts everything, throws the faults, and answers what was found.
func (h *harness) run(ctx context.Context) (*result, error) {
	of := kinds()
	if !h.o.Clock {
		of = kinds(clockJump)
	}
	h.log("seed %d, %g minutes: building the API and the worker", h.o.Seed, h.o.Minutes)
	b, err := h.build(ctx)
	if err != nil {
		return nil, err
	}
	site := check.NewSite(h.o.Seed)
	address := ""
	if h.site, address, err = host(ctx, site); err != nil {
		return nil, err
	}
	h.d, err = deploy(ctx, h.dir, b, size{workers: h.o.Workers, apis: h.o.APIs, sites: siteHosts}, h.o.ACL, address)
	if err != nil {
		return nil, err
	}
	faults, err := plan(h.o.Seed, h.d.stage(h.span, of))
	if err != nil {
		return nil, err
	}
	h.assemble(ctx, site)
	h.log("%d workers, %d APIs and Redis are up; %d faults are planned", h.o.Workers, h.o.APIs, len(faults))
	report, drained, err := h.throw(ctx, faults)
	if err != nil {
		return nil, err
	}
	return h.result(ctx, b, of, report, drained), nil
}

func (h *harness) build(ctx context.Context) (programs, error) {
	return build(ctx, h.dir, h.o.Clock)
}

// assemble makes the campaign.
func (h *harness) assemble(ctx context.Context, site *check.Site) {
	act := &activity{}
	c := &campaign{
		d: h.d, act: act, log: h.log, tasks: &tasks{rdb: h.d.redis.look}, standing: make(chan struct{}, h.o.Workers-1),
		thrown: map[kind]int{}, split: map[string]int{}, slowest: map[kind]time.Duration{}, begun: time.Now(),
	}
	c.rec = &recovery{rdb: h.d.redis.look, tenants: tenants, act: act, violate: c.violate}
	c.load = check.New(check.Options{
		Seed: h.o.Seed, API: h.d.api, Key: h.d.keys, Site: h.d.sites[0], Sites: h.d.sites[1:], Redis: h.d.redis.look,
		Log: h.log, Violate: c.tell, Quiet: act.quiet, Kills: c.wounds, Server: site,
	})
	lost := c.lost(ctx)
	for _, p := range append(h.d.trawl(), h.d.redis.process) {
		p.lost = lost
	}
	h.c = c
}

// throw runs the load, the faults and the end.
func (h *harness) throw(ctx context.Context, faults []fault) (*check.Report, time.Duration, error) {
	var wg sync.WaitGroup
	defer wg.Wait()
	background, stop := context.WithCancel(ctx)
	defer stop()
	loading, unload := context.WithCancel(background)
	defer unload()
	wg.Go(func() { h.c.rec.run(background) })
	wg.Go(func() { h.tell(background) })
	loaded := make(chan struct{})
	go func() { defer close(loaded); h.c.load.Run(loading) }()

	h.c.begun = time.Now()
	h.c.carryOut(ctx, faults)
	over := time.Now()
	h.log("the faults are over; waiting for the jobs")
	unload()
	<-loaded
	if ctx.Err() != nil {
		return nil, 0, ctx.Err()
	}
	if err := h.d.mend(ctx); err != nil {
		return nil, 0, fmt.Errorf("bring everything up again: %w", err)
	}
	if err := h.c.tasks.bury(ctx); err != nil {
		return nil, 0, err
	}
	report, err := h.finish(ctx)
	return report, time.Since(over), err
}

// finish has the load judge every job. Who interrupts the run does not wait for it.
func (h *harness) finish(ctx context.Context) (*check.Report, error) {
	limit, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	judged := make(chan check.Report, 1)
	go func() { judged <- h.c.load.Finish(limit) }()
	select {
	case report := <-judged:
		return &report, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// tell tells how far it is, now and then.
func (h *harness) tell(ctx context.Context) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n, kills, broken := h.c.progress()
			h.log("%3.0f s of %.0f: %d faults, %d of them kills, %d processes misbehaved; last %s",
				time.Since(h.c.begun).Seconds(), h.span.Seconds(), n, kills, broken, h.c.act.latest())
		}
	}
}

// result puts together what was found.
func (h *harness) result(ctx context.Context, b programs, of []kind, report *check.Report, drained time.Duration) *result {
	c := h.c
	open := c.rec.unhealed()
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &result{
		Commit: commit(ctx, b.root), Seed: h.o.Seed, Minutes: h.o.Minutes, Machine: machine(),
		Faults: c.thrown, Demanded: map[kind]int{}, Links: c.split, KillsDue: scaled(demandedKills, h.span), Missed: c.missed,
		Checks: *report, Broken: append(c.broken, open...), Lacking: shortfall(h.span, of, c.thrown),
		Recoveries: c.rec.healed, LongestRecovery: c.rec.longest.Seconds(),
		RecoveriesRedis: c.rec.healedRedis, LongestRecoveryRedis: c.rec.longestRedis.Seconds(),
		SlowestWorkerTerm: c.slowest[workerTerm].Seconds(), SlowestAPITerm: c.slowest[apiTerm].Seconds(), Drained: drained.Seconds(),
	}
	for _, k := range of {
		r.Demanded[k] = scaled(demanded, h.span)
		if k.kills() {
			r.Kills += c.thrown[k]
		}
	}
	return r
}

// machine says what the run ran on.
func machine() string {
	return fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
