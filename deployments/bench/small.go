package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
)

const (
	// smallHosts is over how many hosts the pages of small jobs are spread.
	smallHosts = 16
	// smallCallers submit at once, each over a connection of its own.
	smallCallers = 16
	// pacedEvery is when the next job is submitted where the service is not at its limit: 50 jobs/s.
	pacedEvery = 20 * time.Millisecond
)

// smallCase is one kind of many small jobs.
type smallCase struct {
	pages   int // of each job
	workers int
	tenants int
}

// smallCases are what is measured, each with a fleet of its own.
var smallCases = []smallCase{
	{pages: 1, workers: 1, tenants: 1},
	{pages: 1, workers: 2, tenants: 1},
	{pages: 5, workers: 1, tenants: 1},
	{pages: 5, workers: 2, tenants: 1},
	{pages: 1, workers: 2, tenants: 8},
}

func (c smallCase) name() string {
	return counted(c.pages, "page") + ", " + counted(c.workers, "worker") + ", " + counted(c.tenants, "tenant")
}

// batch is what some jobs gave.
type batch struct {
	jobs     float64
	seconds  float64         // from the first submission to the end of the last job
	took     []time.Duration // from when each job was due to its end, in order of length
	commands float64         // of Redis, those in scripts with them, without the bench's own
	reads    float64         // of Redis from its connections, likewise: a round trip each, unless it is very long
	used     map[string]spent
	callers  float64 // CPU seconds of the bench itself, which are those of the callers
}

func (b *batch) perSecond() float64 { return b.jobs / b.seconds }

// micros answers the CPU time of the processes of a name for each job, in µs.
func (b *batch) micros(name string) float64 { return b.used[name].CPU * 1e6 / b.jobs }

// cores answers how many cores all processes kept busy, with those that are not measured.
func (b *batch) cores() float64 {
	sum := b.callers
	for _, u := range b.used {
		sum += u.CPU
	}
	return sum / b.seconds
}

// millis answers the time within which the given part of the jobs ended, in ms.
func (b *batch) millis(part float64) float64 { return rank(b.took, part) / 1e3 }

// smallJobs answers how many jobs are submitted at once, and how many at a pace, for the pages that the run is asked
// for.
func smallJobs(o options) (flood, paced int) { return max(40, o.Pages/5), max(20, o.Pages/40) }

// measureSmall is measured by the part "small".
func measureSmall(ctx context.Context, r *rig) (findings, error) {
	o := r.o
	o.Pages, o.Latency, o.Site, o.Hosts = max(10, o.Pages), 0, "generated", smallHosts
	s, err := r.newSite(ctx, o)
	if err != nil {
		return findings{}, err
	}
	defer s.stop()
	flooded, paced := make([][]batch, len(smallCases)), make([][]batch, len(smallCases))
	for i := range o.Rounds {
		for n, c := range smallCases {
			progress("round %d of %d: %s", i+1, o.Rounds, c.name())
			slow, fast, err := r.measureSmallCase(ctx, s, c)
			if err != nil {
				return findings{}, fmt.Errorf("%s: %w", c.name(), err)
			}
			paced[n], flooded[n] = append(paced[n], slow), append(flooded[n], fast)
		}
	}
	return findings{Tables: []table{floodTable(o, flooded), pacedTable(o, paced)}}, nil
}

// measureSmallCase has jobs of one kind come at a pace first, then as fast as they are taken.
func (r *rig) measureSmallCase(ctx context.Context, s *site, kind smallCase) (paced, flood batch, err error) {
	ctx, cancel := context.WithTimeout(ctx, crawlTime)
	defer cancel()
	c, err := r.newCrowd(ctx, s, kind)
	if err != nil {
		return batch{}, batch{}, err
	}
	defer c.stop()
	many, few := smallJobs(r.o)
	// The first jobs of a fleet pay for scripts, robots.txt and connections.
	if _, err := c.run(ctx, 2*smallHosts, 0); err != nil {
		return batch{}, batch{}, err
	}
	if paced, err = c.run(ctx, few, pacedEvery); err != nil {
		return batch{}, batch{}, fmt.Errorf("at a pace: %w", err)
	}
	flood, err = c.run(ctx, many, 0)
	return paced, flood, err
}

// crowd is a fleet and those who submit small jobs to it.
type crowd struct {
	*fleet
	site    *site
	kind    smallCase
	tenants []string
	clients []*client.Client // of each tenant
}

func (r *rig) newCrowd(ctx context.Context, s *site, kind smallCase) (*crowd, error) {
	f, err := r.newFleet(ctx, fleetOptions{workers: kind.workers})
	if err != nil {
		return nil, err
	}
	c := &crowd{fleet: f, site: s, kind: kind}
	if err := c.open(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// open starts the API with a key for each tenant.
func (c *crowd) open(ctx context.Context) error {
	var keys, pairs []string
	for i := range c.kind.tenants {
		c.tenants, keys = append(c.tenants, fmt.Sprintf("%s-%d", tenant, i)), append(keys, rand.Text())
		pairs = append(pairs, c.tenants[i]+":"+keys[i])
	}
	if err := c.addAPI(ctx, "TRAWL_API_KEYS="+strings.Join(pairs, ",")); err != nil {
		return err
	}
	for _, key := range keys {
		// A submission that fails fails the run: it is not repeated.
		cl, err := client.New(c.base[0], key, client.WithRetries(0))
		if err != nil {
			return err
		}
		c.clients = append(c.clients, cl)
	}
	return nil
}

func (c *crowd) stop() {
	for _, cl := range c.clients {
		cl.CloseIdleConnections()
	}
	c.fleet.stop()
}

// spec is the i-th job: the first pages of one host, one after the other.
func (c *crowd) spec(i int) client.Spec {
	var urls []string
	for p := range c.kind.pages {
		urls = append(urls, fmt.Sprintf("%s/p/%d", c.site.url(i%smallHosts), p))
	}
	return client.Spec{URLs: urls}
}

// errand is a job that was submitted.
type errand struct {
	ref crawl.JobRef
	due time.Time // when it was to be submitted
}

// submitAll submits so many jobs, one every so often or, where that is 0, as fast as the callers can.
func (c *crowd) submitAll(ctx context.Context, jobs int, every time.Duration) ([]errand, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	all := make([]errand, jobs)
	begun := time.Now()
	var next atomic.Int64
	var callers sync.WaitGroup
	for range smallCallers {
		callers.Go(func() {
			for i := int(next.Add(1)) - 1; i < jobs && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				var err error
				if all[i], err = c.submitOne(ctx, i, begun, every); err != nil {
					cancel(fmt.Errorf("submission %d: %w", i, err))
				}
			}
		})
	}
	callers.Wait()
	return all, context.Cause(ctx)
}

// submitOne submits the i-th job when it is due. A caller that is late, as all others wait for an answer, does not move
// that time: the wait is part of what a job takes.
func (c *crowd) submitOne(ctx context.Context, i int, begun time.Time, every time.Duration) (errand, error) {
	due := time.Now()
	if every > 0 {
		due = begun.Add(time.Duration(i) * every)
		timer := time.NewTimer(time.Until(due))
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return errand{}, ctx.Err()
		case <-timer.C:
		}
	}
	n := i % len(c.clients)
	s, err := c.clients[n].Submit(ctx, c.spec(i))
	if err != nil {
		return errand{}, err
	}
	return errand{ref: crawl.JobRef{Tenant: c.tenants[n], ID: s.ID}, due: due}, nil
}

// settled waits until no job runs, and answers how often it asked: one command and one round trip each.
func (c *crowd) settled(ctx context.Context) (asked float64, err error) {
	tick := time.NewTicker(followEvery / 2)
	defer tick.Stop()
	for {
		running := int64(0)
		for _, t := range c.tenants {
			n, err := c.rdb.SCard(ctx, "{t:"+t+"}:running").Result()
			if err != nil {
				return 0, fmt.Errorf("ask who runs: %w", err)
			}
			running += n
			asked++
		}
		if running == 0 {
			return asked, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
}

// traffic is what Redis carried out and read so far.
func (c *crowd) traffic(ctx context.Context) (commands, reads float64, err error) {
	g, err := look(ctx, c.rdb)
	if err != nil {
		return 0, 0, err
	}
	reads, err = infoNumber(ctx, c.rdb, "stats", "total_reads_processed")
	return g.commands, reads, err
}

// run submits jobs, waits for their end and answers what they took. It fails unless each completed with all its pages,
// and each page was fetched exactly once for each job.
func (c *crowd) run(ctx context.Context, jobs int, every time.Duration) (batch, error) {
	if err := c.site.reset(ctx); err != nil {
		return batch{}, err
	}
	commands, reads, err := c.traffic(ctx)
	if err != nil {
		return batch{}, err
	}
	m, err := newMeter(append(c.all(), c.site.child)...)
	if err != nil {
		return batch{}, err
	}
	own := ownCPU()
	errands, err := c.submitAll(ctx, jobs, every)
	if err != nil {
		return batch{}, err
	}
	asked, err := c.settled(ctx)
	if err != nil {
		return batch{}, err
	}
	b := batch{jobs: float64(jobs), callers: (ownCPU() - own) / 1e6}
	if _, b.used, err = m.read(); err != nil {
		return batch{}, err
	}
	if b.commands, b.reads, err = c.traffic(ctx); err != nil {
		return batch{}, err
	}
	b.commands, b.reads = b.commands-commands-asked, b.reads-reads-asked
	ends, err := c.ends(ctx, errands)
	if err != nil {
		return batch{}, err
	}
	b.time(m.begun, errands, ends)
	return b, errors.Join(allCompleted(ends, c.kind.pages), c.site.servedOnce(ctx, jobs, c.kind.pages))
}

// ends reads how each job ended.
func (c *crowd) ends(ctx context.Context, errands []errand) ([]crawl.Job, error) {
	out := make([]crawl.Job, len(errands))
	for i, e := range errands {
		var err error
		if out[i], err = c.st.Job(ctx, e.ref); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// time says how long all of the jobs took, and each. The service says when a job ended, to the millisecond.
func (b *batch) time(begun time.Time, errands []errand, ends []crawl.Job) {
	b.seconds, b.took = lastEnd(ends).Sub(begun).Seconds(), make([]time.Duration, len(errands))
	for i, e := range errands {
		b.took[i] = ends[i].EndedAt.Sub(e.due)
	}
	slices.Sort(b.took)
}

// costColumns are those of both tables.
var costColumns = []column{
	{Key: "redis_commands_per_job", Title: "Redis commands a job", Digits: 1},
	{Key: "redis_reads_per_job", Title: "round trips", Digits: 1},
	{Key: "api_cpu_us_per_job", Title: "API µs a job"},
	{Key: "worker_cpu_us_per_job", Title: "workers µs"},
	{Key: "redis_cpu_us_per_job", Title: "Redis µs"},
	{Key: "load_cpu_us_per_job", Title: "callers, site µs"},
}

func floodTable(o options, batches [][]batch) table {
	jobs, _ := smallJobs(o)
	return table{
		Title: fmt.Sprintf("%s small jobs, as fast as %d callers get rid of them", number(float64(jobs), 0), smallCallers),
		Columns: slices.Concat([]column{{Key: "jobs_per_second", Title: "jobs/s", Range: true}}, costColumns,
			[]column{{Key: "all_cores", Title: "cores of all", Digits: 2}}),
		Rows: smallRows(batches, func(rounds []batch, cells map[string]cell) {
			cells["jobs_per_second"] = overOf(rounds, func(b batch) float64 { return b.perSecond() })
			cells["all_cores"] = overOf(rounds, func(b batch) float64 { return b.cores() })
		}),
		Notes: []string{fmt.Sprintf("Jobs/s is from the first submission to the end of the last job. "+
			"Each job names its URLs, of one of %d hosts that take no time, and is submitted by pkg/client "+
			"through one API over HTTP, with an idempotency key of its own. "+
			"A round trip is a read of Redis from a connection; what idle workers and the API ask is among both. "+
			"Callers and site share the machine with what is measured.", smallHosts)},
	}
}

func pacedTable(o options, batches [][]batch) table {
	_, jobs := smallJobs(o)
	return table{
		Title: fmt.Sprintf("%d small jobs, one every %d ms", jobs, pacedEvery.Milliseconds()),
		Columns: slices.Concat([]column{
			{Key: "p50_ms", Title: "p50 ms to completed", Digits: 1, Range: true},
			{Key: "p99_ms", Title: "p99 ms", Digits: 1, Range: true},
		}, costColumns),
		Rows: smallRows(batches, func(rounds []batch, cells map[string]cell) {
			cells["p50_ms"] = overOf(rounds, func(b batch) float64 { return b.millis(0.5) })
			cells["p99_ms"] = overOf(rounds, func(b batch) float64 { return b.millis(0.99) })
		}),
		Notes: []string{"From when a job was due to be submitted, whether a caller was free then or not, " +
			"to when the service says that it completed."},
	}
}

// smallRows makes a row of each case: what all tables show, and what more puts there.
func smallRows(batches [][]batch, more func([]batch, map[string]cell)) (rows []row) {
	for i, c := range smallCases {
		load := func(b batch) float64 { return b.callers*1e6/b.jobs + b.micros("site") }
		cells := map[string]cell{
			"redis_commands_per_job": overOf(batches[i], func(b batch) float64 { return b.commands / b.jobs }),
			"redis_reads_per_job":    overOf(batches[i], func(b batch) float64 { return b.reads / b.jobs }),
			"load_cpu_us_per_job":    overOf(batches[i], load),
		}
		for _, name := range []string{"api", "worker", "redis"} {
			cells[name+"_cpu_us_per_job"] = overOf(batches[i], func(b batch) float64 { return b.micros(name) })
		}
		more(batches[i], cells)
		rows = append(rows, row{Name: c.name(), Cells: cells})
	}
	return rows
}
