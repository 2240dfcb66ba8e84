package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
)

const (
	// memoryLinks is how many new URLs a page leads to where the memory of a URL is measured: a tenth of them is
	// fetched when all are discovered.
	memoryLinks = 10
	// smallSpan is for how long the small job is crawled over and over, and smallLeast how often at least: the peak
	// of a process whose garbage is collected creeps up with time, whatever it does, and a single crawl of 10,000
	// pages is over in two seconds.
	smallSpan  = 30 * time.Second
	smallLeast = 5
	// showEvery is the pause between two lines about a job.
	showEvery = 10 * time.Second
	// jobsTime bounds the crawls of one size: at that, 1,000,000 pages are below 600 a second.
	jobsTime = 30 * time.Minute
)

// measureMemory measures what Redis keeps of a URL and of a record, what Redis is asked for a page, and how much
// memory a worker and an API take for a small job and for a big one.
func measureMemory(ctx context.Context, r *rig) (findings, error) {
	var found findings
	progress("memory of Redis for %d URLs", r.o.URLs)
	kept, err := r.measureKept(ctx)
	if err != nil {
		return found, err
	}
	small, err := r.measureJobs(ctx, sized{pages: r.o.Pages, span: smallSpan, least: smallLeast})
	if err != nil {
		return found, err
	}
	big, err := r.measureJobs(ctx, sized{pages: r.o.Big, least: 1})
	if err != nil {
		return found, err
	}
	found.Tables = []table{keptTable(r.o, kept, small, big), askedTable(r.o, small), peakTable(r.o, small, big)}
	found.Bars = []bar{
		{Figure: "memory of Redis for a URL", AtMost: true, Bound: 170, Value: kept.perURL, Unit: "B"},
		{
			Figure: "memory of a worker, " + sizes(small, big), AtMost: true, Bound: 1.2, Digits: 2,
			Value: big.workerMiB / small.workerMiB,
		},
	}
	return found, nil
}

func sizes(small, big *sizeRun) string {
	return number(big.pages, 0) + " URLs to " + number(small.pages, 0)
}

// kept is what Redis keeps, in bytes.
type kept struct {
	perURL    float64 // discovered, a tenth of them fetched, without the records
	perRecord float64
}

// measureKept commits pages that lead to new URLs, without a fetch, until so many are discovered as o.URLs says.
func (r *rig) measureKept(ctx context.Context) (kept, error) {
	f, err := r.newFleet(ctx, fleetOptions{})
	if err != nil {
		return kept{}, err
	}
	defer f.stop()
	return f.measureKept(ctx, r.o.URLs)
}

func (f *fleet) measureKept(ctx context.Context, urls int) (kept, error) {
	l, err := newLoad(ctx, f.rdb, urls)
	if err != nil {
		return kept{}, err
	}
	// Redis knows every script before the first look: the scripts stay, and are no URL's.
	var pages atomic.Int64
	if err := l.serve(ctx, &pages, 1, memoryLinks); err != nil {
		return kept{}, err
	}
	before, err := f.weigh(ctx, l)
	if err != nil {
		return kept{}, err
	}
	if err := l.serve(ctx, &pages, int64(urls)/memoryLinks, memoryLinks); err != nil {
		return kept{}, err
	}
	after, err := f.weigh(ctx, l)
	if err != nil {
		return kept{}, err
	}
	return keptOf(before, after)
}

// weighed is what Redis holds, and the job whose doing that is.
type weighed struct {
	remembered
	job crawl.Job
}

func (f *fleet) weigh(ctx context.Context, l *load) (w weighed, err error) {
	if w.remembered, err = f.remembered(ctx); err != nil {
		return w, err
	}
	w.job, err = f.st.Job(ctx, l.job)
	return w, err
}

// keptOf answers what came between two moments. It fails when nine of ten URLs are not queued then: what was
// weighed is something else.
func keptOf(before, after weighed) (kept, error) {
	records := after.records - before.records
	urls, pages := after.job.Total-before.job.Total, after.job.Accepted-before.job.Accepted
	if wait := float64(after.job.Queued) / float64(after.job.Total); urls <= 0 || pages <= 0 || wait < 0.89 || wait > 0.91 {
		return kept{}, fmt.Errorf("of %d URLs %d are queued and %d accepted, want 90 %% queued",
			after.job.Total, after.job.Queued, after.job.Accepted)
	}
	return kept{perURL: (after.all - before.all - records) / float64(urls), perRecord: records / float64(pages)}, nil
}

// remembered is what Redis holds, in bytes.
type remembered struct{ all, records float64 }

func (f *fleet) remembered(ctx context.Context) (m remembered, err error) {
	if m.all, err = infoNumber(ctx, f.rdb, "memory", "used_memory"); err != nil {
		return m, err
	}
	m.records, err = memoryOf(ctx, f.rdb, "*:rec:*")
	return m, err
}

// freed answers an error while Redis frees keys that are gone already, as it does with large ones aside.
func (f *fleet) freed(ctx context.Context) error {
	n, err := infoNumber(ctx, f.rdb, "memory", "lazyfree_pending_objects")
	if err == nil && n > 0 {
		err = fmt.Errorf("%.0f keys are not freed yet", n)
	}
	return err
}

// sized says which jobs are crawled: each a site of so many pages as a whole, one after the other, until the span is
// over, and so many at least.
type sized struct {
	pages, least int
	span         time.Duration
}

// sizeRun is the crawls of one worker process, one after the other.
type sizeRun struct {
	pages      float64 // of each
	crawls     []jobCost
	milestones []waypoint // peaks on the way through the first job
	workerMiB  float64    // peak over all crawls
	idleMiB    float64    // of the API before it streams
	streamMiB  float64    // peak of the API while it streams the result of the last job, as often as there were jobs
}

// jobCost is what one crawl took.
type jobCost struct {
	seconds float64
	asked   gauge      // of Redis
	kept    remembered // by Redis, once the job has ended
	worker  float64    // seconds of CPU
}

// waypoint is the peak of the worker when so many pages of the first job were crawled.
type waypoint struct{ pages, peakMiB float64 }

// measureJobs crawls with a Redis, an API and a worker that did nothing before.
func (r *rig) measureJobs(ctx context.Context, s sized) (*sizeRun, error) {
	ctx, cancel := context.WithTimeout(ctx, jobsTime)
	defer cancel()
	o := r.o
	o.Pages, o.Site, o.Latency, o.Hosts = s.pages, "generated", 0, 1
	site, err := r.newSite(ctx, o)
	if err != nil {
		return nil, err
	}
	defer site.stop()
	f, err := r.newFleet(ctx, fleetOptions{apis: 1, workers: 1})
	if err != nil {
		return nil, err
	}
	defer f.stop()
	all := &sizeRun{pages: float64(s.pages)}
	var last crawl.JobRef
	for begun := time.Now(); len(all.crawls) < s.least || time.Since(begun) < s.span; {
		if last, err = f.crawlOnce(ctx, site, all); err != nil {
			return nil, err
		}
	}
	if _, err = f.peakOfWorker(all); err != nil {
		return nil, err
	}
	return all, f.streamAll(ctx, last, all)
}

// crawlOnce crawls the site as a whole and adds what that took.
func (f *fleet) crawlOnce(ctx context.Context, s *site, all *sizeRun) (crawl.JobRef, error) {
	if err := s.reset(ctx); err != nil {
		return crawl.JobRef{}, err
	}
	held, err := f.settled(ctx)
	if err != nil {
		return crawl.JobRef{}, err
	}
	before, err := f.effort(ctx)
	if err != nil {
		return crawl.JobRef{}, err
	}
	begun := time.Now()
	job, err := f.submit(ctx, siteSpec(s.url(0)+"/p/0"))
	if err != nil {
		return job, err
	}
	end, err := f.watch(ctx, job, all)
	if err != nil {
		return job, err
	}
	seconds := time.Since(begun).Seconds()
	after, err := f.effort(ctx)
	if err != nil {
		return job, err
	}
	now, err := f.settled(ctx)
	if err != nil {
		return job, err
	}
	all.crawls = append(all.crawls, jobCost{
		seconds: seconds, asked: after.redis.less(before.redis), worker: after.worker - before.worker,
		kept: remembered{now.all - held.all, now.records - held.records},
	})
	return job, errors.Join(allCompleted([]crawl.Job{end}, int(all.pages)), s.servedOnce(ctx, 1, int(all.pages)))
}

// effort is what was done so far.
type effort struct {
	redis  gauge
	worker float64 // seconds of CPU
}

func (f *fleet) effort(ctx context.Context) (e effort, err error) {
	if e.redis, err = look(ctx, f.rdb); err != nil {
		return e, err
	}
	e.worker, err = f.workers[0].cpu()
	return e, err
}

// settled answers what Redis holds once it has freed what no job needs any more.
func (f *fleet) settled(ctx context.Context) (remembered, error) {
	if err := await(ctx, "Redis, which frees what a job needs no more,", f.freed); err != nil {
		return remembered{}, err
	}
	return f.remembered(ctx)
}

// watch follows a job to its end, shows how it goes, and notes the peak of the worker at the powers of ten in the
// first job.
func (f *fleet) watch(ctx context.Context, job crawl.JobRef, all *sizeRun) (crawl.Job, error) {
	var wrong error
	first, next, shown, had := len(all.crawls) == 0, 1000.0, time.Now(), int64(0)
	note := func(processed int64) {
		for first && float64(processed) >= next && next < all.pages {
			peak, err := f.peakOfWorker(all)
			wrong = errors.Join(wrong, err)
			all.milestones = append(all.milestones, waypoint{next, peak})
			next *= 10
		}
		if since := time.Since(shown); since >= showEvery {
			progress("%s of %s pages, %s a second", number(float64(processed), 0), number(all.pages, 0),
				number(float64(processed-had)/since.Seconds(), 0))
			shown, had = time.Now(), processed
		}
	}
	ends, err := f.follow(ctx, followEvery, note, job)
	if err = errors.Join(err, wrong); err != nil {
		return crawl.Job{}, err
	}
	return ends[0], nil
}

// peakOfWorker answers the peak so far. Linux counts pages of memory for each processor by itself for a while, so
// that what it says of a peak can fall by some: the greatest that was seen counts.
func (f *fleet) peakOfWorker(all *sizeRun) (float64, error) {
	peak, err := f.workers[0].peak()
	all.workerMiB = max(all.workerMiB, peak)
	return all.workerMiB, err
}

// streamAll reads the whole result of a job as often as there were jobs, and notes what the API takes for it.
func (f *fleet) streamAll(ctx context.Context, job crawl.JobRef, all *sizeRun) error {
	progress("%d results of %s records", len(all.crawls), number(all.pages, 0))
	api := f.apis[0]
	if err := api.forgetPeak(); err != nil {
		return fmt.Errorf("memory of the API: %w", err)
	}
	var err error
	if all.idleMiB, err = api.resident(); err != nil {
		return err
	}
	for range all.crawls {
		records, err := f.stream(ctx, job)
		if err != nil {
			return err
		}
		if float64(records) != all.pages {
			return fmt.Errorf("the result of job %s has %d records for %.0f pages", job.ID, records, all.pages)
		}
	}
	all.streamMiB, err = api.peak()
	return err
}

// stream reads the result of a job as NDJSON and answers how many lines it has.
func (f *fleet) stream(ctx context.Context, job crawl.JobRef) (records int, err error) {
	body, err := f.client.Result(ctx, job.ID, client.NDJSON)
	if err != nil {
		return 0, err
	}
	defer func() { _ = body.Close() }() // it was read
	lines := bufio.NewReader(body)
	for {
		switch _, err := lines.ReadSlice('\n'); {
		case err == nil:
			records++
		case errors.Is(err, io.EOF):
			return records, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return records, fmt.Errorf("result of job %s: %w", job.ID, err)
		}
	}
}

// one is a row whose cells were measured once.
func one(name string, cells map[string]float64) row {
	r := row{Name: name, Cells: map[string]cell{}}
	for key, v := range cells {
		r.Cells[key] = over(v)
	}
	return r
}

func keptTable(o options, k kept, of ...*sizeRun) table {
	t := table{
		Title:   "Memory of Redis",
		Columns: []column{{Key: "bytes", Title: "bytes"}, {Key: "record_bytes", Title: "of them records"}},
		Rows: []row{
			one("a discovered URL of 60 bytes, 90 % still queued, without records", map[string]float64{"bytes": k.perURL}),
			one("the record of such a page", map[string]float64{"bytes": k.perRecord, "record_bytes": k.perRecord}),
		},
		Notes: []string{"The URLs are " + number(float64(o.URLs), 0) + " that pages lead to; " +
			"all figures are the growth of `used_memory` by their number, and those of records what `MEMORY USAGE` says of " +
			"their keys."},
	}
	for _, j := range of {
		t.Rows = append(t.Rows, row{Name: "a page of an ended bench job of " + number(j.pages, 0), Cells: map[string]cell{
			"bytes":        j.page(func(c jobCost) float64 { return c.kept.all }),
			"record_bytes": j.page(func(c jobCost) float64 { return c.kept.records }),
		}})
	}
	return t
}

// page answers a figure for one page of the jobs but the first, in which connections, scripts and buffers were made.
func (j *sizeRun) page(of func(jobCost) float64) cell {
	warm := j.crawls[min(1, len(j.crawls)-1):]
	return overOf(warm, func(c jobCost) float64 { return of(c) / j.pages })
}

func askedTable(o options, j *sizeRun) table {
	return table{
		Title: "What a page of the bench job asks of Redis",
		Columns: []column{
			{Key: "scripts", Title: "scripts", Digits: 2, Range: true},
			{Key: "commands", Title: "commands, those in scripts too", Digits: 1, Range: true},
			{Key: "received_bytes", Title: "bytes received", Range: true},
			{Key: "sent_bytes", Title: "bytes sent", Range: true},
		},
		Rows: []row{{Name: fmt.Sprintf("one worker, %d in flight", o.InFlight), Cells: map[string]cell{
			"scripts":        j.page(func(c jobCost) float64 { return c.asked.scripts }),
			"commands":       j.page(func(c jobCost) float64 { return c.asked.commands }),
			"received_bytes": j.page(func(c jobCost) float64 { return c.asked.received }),
			"sent_bytes":     j.page(func(c jobCost) float64 { return c.asked.sent }),
		}}},
		Notes: []string{fmt.Sprintf("Pages of %s bytes with %d links, %s a job; with all that the queue, the sweeps and the looks "+
			"of the bench ask for.", number(float64(o.Bytes), 0), o.Links, number(j.pages, 0))},
	}
}

func peakTable(o options, small, big *sizeRun) table {
	t := table{
		Title: "Memory of a worker and of an API by the size of the job, MiB",
		Columns: []column{
			{Key: "jobs", Title: "jobs"},
			{Key: "worker_peak_mib", Title: "worker, peak", Digits: 1},
			{Key: "api_idle_mib", Title: "API before", Digits: 1},
			{Key: "api_stream_peak_mib", Title: "API, peak while it streams the result", Digits: 1},
			{Key: "pages_per_second", Title: "pages/s"},
			{Key: "worker_cpu_micros", Title: "CPU µs a page in the worker"},
		},
		Notes: []string{fmt.Sprintf("Peaks are VmHWM of Linux, of processes that did nothing before; pages of %s bytes with %d links "+
			"in both. The peak of a process whose garbage is collected creeps up with time, so the job of %s was crawled for %d "+
			"seconds, one after the other, and its result streamed as often.",
			number(float64(o.Bytes), 0), o.Links, number(small.pages, 0), int(smallSpan.Seconds()))},
	}
	for _, m := range big.milestones {
		t.Rows = append(t.Rows, one(fmt.Sprintf("the first %s of %s URLs", number(m.pages, 0), number(big.pages, 0)),
			map[string]float64{"worker_peak_mib": m.peakMiB}))
	}
	for _, j := range []*sizeRun{small, big} {
		r := one(number(j.pages, 0)+" URLs", map[string]float64{
			"jobs": float64(len(j.crawls)), "worker_peak_mib": j.workerMiB,
			"api_idle_mib": j.idleMiB, "api_stream_peak_mib": j.streamMiB,
		})
		r.Cells["pages_per_second"] = overOf(j.crawls, func(c jobCost) float64 { return j.pages / c.seconds })
		r.Cells["worker_cpu_micros"] = overOf(j.crawls, func(c jobCost) float64 { return c.worker * 1e6 / j.pages })
		t.Rows = append(t.Rows, r)
	}
	return t
}
