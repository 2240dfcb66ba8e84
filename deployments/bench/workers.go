package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
)

const (
	// workersLatency is what each page takes on the site of the part "workers".
	workersLatency = 50 * time.Millisecond
	// mostInFlight bounds the requests of one job, and those to one host: what the service allows at most.
	mostInFlight = 256
	// crawlTime bounds one crawl, so that a run whose job does not end fails.
	crawlTime = 5 * time.Minute
	// followEvery is how often the bench looks at jobs that run. When they ended is what the service says, to the
	// millisecond.
	followEvery = 100 * time.Millisecond
)

// workerCounts are how many workers there are, and workerJobs how many jobs share the pages: a table each.
var (
	workerCounts = []int{1, 2, 4}
	workerJobs   = []int{1, 8}
)

// measureWorkers is measured by the part "workers": the same number of pages by one, two and four workers.
func measureWorkers(ctx context.Context, r *rig) (findings, error) {
	var f findings
	for _, jobs := range workerJobs {
		points, err := r.measureCounts(ctx, jobs)
		if err != nil {
			return findings{}, err
		}
		t := workersTable(r.o, jobs, points)
		f.Tables = append(f.Tables, t)
		if jobs == 1 {
			f.Bars = append(f.Bars, workersBar(t))
		}
	}
	return f, nil
}

// measureCounts crawls with each number of workers, in turn, round by round.
func (r *rig) measureCounts(ctx context.Context, jobs int) (map[int][]point, error) {
	o := r.o
	o.Pages, o.Latency, o.Site, o.Hosts = max(1, o.Pages/jobs), workersLatency, "generated", 1
	s, err := r.newSite(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	points := map[int][]point{}
	for i := range o.Rounds {
		for k := range workerCounts {
			n := workerCounts[(k+i)%len(workerCounts)] // each begins a round in turn
			progress("round %d of %d: %s, %s", i+1, o.Rounds, counted(jobs, "job"), counted(n, "worker"))
			p, err := r.measurePoint(ctx, fleetOptions{apis: 1, workers: n}, s, jobs, o.Pages)
			if err != nil {
				return nil, fmt.Errorf("%d jobs, %d workers: %w", jobs, n, err)
			}
			points[n] = append(points[n], p)
		}
	}
	return points, nil
}

// measurePoint crawls with a fleet of its own: none has workers that hold anything of the crawl before.
func (r *rig) measurePoint(ctx context.Context, o fleetOptions, s *site, jobs, pages int) (point, error) {
	f, err := r.newFleet(ctx, o)
	if err != nil {
		return point{}, err
	}
	defer f.stop()
	if err := f.warm(ctx, s, pages); err != nil {
		return point{}, fmt.Errorf("warm-up: %w", err)
	}
	return f.crawlSite(ctx, s, jobs, pages)
}

// warm crawls a tenth of a site, so that a crawl is measured of workers that have connections and know the scripts, as
// those of a service do.
func (f *fleet) warm(ctx context.Context, s *site, pages int) error {
	spec := siteSpec(s.url(0) + "/p/0")
	spec.MaxPages = int64(max(1, pages/10))
	ref, err := f.submit(ctx, spec)
	if err != nil {
		return err
	}
	ends, err := f.follow(ctx, followEvery, nil, ref)
	if err == nil && ends[0].Accepted != spec.MaxPages {
		err = fmt.Errorf("accepted %d of %d pages: %+v", ends[0].Accepted, spec.MaxPages, ends[0])
	}
	return err
}

// point is what the crawl of a site by some jobs gave.
type point struct {
	seconds float64 // from the submission of the first job to the end of the last
	pages   float64 // of all jobs
	steady  float64 // pages/s between a quarter and three quarters of the pages; 0 where it went too fast to be seen
	redis   gauge   // what it took of Redis
	used    map[string]spent
}

func (p *point) rate() float64 { return p.pages / p.seconds }

// micros answers the CPU time of the processes of a name for each page, in µs.
func (p *point) micros(name string) float64 { return p.used[name].CPU * 1e6 / p.pages }

// cores answers how many cores the processes of a name kept busy.
func (p *point) cores(name string) float64 { return p.used[name].CPU / p.seconds }

// allCores answers how many cores all processes kept busy.
func (p *point) allCores() float64 {
	sum := 0.0
	for _, u := range p.used {
		sum += u.CPU
	}
	return sum / p.seconds
}

// siteSpec is the job that crawls a whole site as fast as the service allows.
func siteSpec(seed string) client.Spec {
	return client.Spec{
		SeedURL: seed, Scope: client.ScopeHost, MaxPages: 1_000_000, MaxDepth: new(100), Concurrency: mostInFlight,
		Sitemap: client.SitemapSkip,
	}
}

// crawlSite has jobs crawl a generated site of so many pages at once, each the whole of it. It fails unless each
// job completed with every page, and each page was fetched exactly once for each job.
func (f *fleet) crawlSite(ctx context.Context, s *site, jobs, pages int) (point, error) {
	ctx, cancel := context.WithTimeout(ctx, crawlTime)
	defer cancel()
	if err := s.reset(ctx); err != nil {
		return point{}, err
	}
	before, err := look(ctx, f.rdb)
	if err != nil {
		return point{}, err
	}
	m, err := newMeter(append(f.all(), s.child)...)
	if err != nil {
		return point{}, err
	}
	middle := &pace{begun: m.begun, pages: int64(pages * jobs)}
	refs := make([]crawl.JobRef, jobs)
	for i := range refs {
		if refs[i], err = f.submit(ctx, siteSpec(s.url(0)+"/p/0")); err != nil {
			return point{}, err
		}
	}
	ends, err := f.follow(ctx, followEvery, middle.see, refs...)
	if err != nil {
		return point{}, err
	}
	p := point{seconds: lastEnd(ends).Sub(m.begun).Seconds(), pages: float64(pages * jobs), steady: middle.perSecond()}
	if _, p.used, err = m.read(); err != nil {
		return point{}, err
	}
	after, err := look(ctx, f.rdb)
	if err != nil {
		return point{}, err
	}
	p.redis = after.less(before)
	return p, errors.Join(allCompleted(ends, pages), s.servedOnce(ctx, jobs, pages))
}

// lastEnd answers when the last of some jobs ended.
func lastEnd(jobs []crawl.Job) (last time.Time) {
	for i := range jobs {
		if jobs[i].EndedAt.After(last) {
			last = jobs[i].EndedAt
		}
	}
	return last
}

// allCompleted holds jobs to what they should have done: each took so many pages and nothing else.
func allCompleted(jobs []crawl.Job, pages int) error {
	for i := range jobs {
		j := &jobs[i]
		if j.State != crawl.Completed || j.Accepted != int64(pages) || j.Records != int64(pages) {
			return fmt.Errorf("job %s is %s (%s %s) with %d of %d pages and %d records, %d failed %v, %d skipped %v",
				j.ID, j.State, j.StopReason, j.Error, j.Accepted, pages, j.Records, j.Failed, j.FailedByType, j.Skipped,
				j.SkippedByReason)
		}
	}
	return nil
}

// servedOnce holds the site's count of requests to the pages that each of some jobs recorded.
func (s *site) servedOnce(ctx context.Context, jobs, pages int) error {
	total, distinct, err := s.hits(ctx)
	if err != nil {
		return err
	}
	return servedOnce(total, distinct, jobs, pages)
}

func servedOnce(total, distinct float64, jobs, pages int) error {
	if total != float64(jobs*pages) || distinct != float64(pages) {
		return fmt.Errorf("the site served %.0f pages, %.0f different ones, to %d jobs that recorded %d pages each",
			total, distinct, jobs, pages)
	}
	return nil
}

// pace is how fast the middle half of so many pages came.
type pace struct {
	begun      time.Time
	pages      int64
	first, at  time.Duration
	from, done int64
}

func (p *pace) see(processed int64) {
	switch at := time.Since(p.begun); {
	case processed < p.pages/4:
	case p.first == 0:
		p.first, p.from = at, processed
	case processed <= p.pages*3/4 || p.done == 0:
		p.at, p.done = at, processed
	}
}

// perSecond answers 0 where the middle was over before it was seen twice.
func (p *pace) perSecond() float64 {
	if p.at <= p.first {
		return 0
	}
	return float64(p.done-p.from) / (p.at - p.first).Seconds()
}

// bound is what Little's law allows workers of so many requests in flight each on one host: pages a second.
func bound(inFlight, workers int, latency time.Duration) float64 {
	return float64(min(inFlight*workers, mostInFlight)) / latency.Seconds()
}

// counted writes how many there are of something.
func counted(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

func workersTable(o options, jobs int, points map[int][]point) table {
	title := "One job"
	if jobs > 1 {
		title = fmt.Sprintf("%d jobs at once", jobs)
	}
	pages := max(1, o.Pages/jobs)
	t := table{
		Title: fmt.Sprintf("%s, %s pages in all, on one host that takes %d ms a page, by one, two and four workers", title,
			number(float64(pages*jobs), 0), workersLatency.Milliseconds()),
		Columns: []column{
			{Key: "pages_per_second", Title: "pages/s", Range: true},
			{Key: "ratio", Title: "to one", Digits: 2},
			{Key: "middle_pages_per_second", Title: "in the middle half", Range: true},
			{Key: "middle_ratio", Title: "to one", Digits: 2},
			{Key: "bound_pages_per_second", Title: "Little's bound"},
			{Key: "worker_cpu_us_per_page", Title: "worker µs a page"},
			{Key: "redis_cpu_us_per_page", Title: "Redis µs a page"},
			{Key: "site_cores", Title: "cores of the site", Digits: 2},
			{Key: "all_cores", Title: "of all", Digits: 2},
			{Key: "worker_peak_mib", Title: "peak MiB a worker"},
		},
		Notes: []string{fmt.Sprintf("%d pages of %d bytes with %d links a job, %d in flight a worker, "+
			"256 in flight a job and a host. "+
			"Pages/s is from submission to end; the middle half leaves out where there are too few URLs to share. "+
			"Ratios are of medians. The workers crawled a tenth of the site before. This machine has %d cores for all that runs, the site with it, which is one process. "+
			"A sixteenth of a worker's places stays free for jobs to come.",
			pages, o.Bytes, o.Links, o.InFlight, runtime.NumCPU())},
	}
	for _, n := range workerCounts {
		t.Rows = append(t.Rows, workersRow(o, n, points[n]))
	}
	first := t.Rows[0].Cells
	for _, r := range t.Rows {
		ratio(r.Cells, first, "ratio", "pages_per_second")
		ratio(r.Cells, first, "middle_ratio", "middle_pages_per_second")
	}
	return t
}

// workersBar is that of DESIGN §8, by the table of one job, whose second row is that of two workers.
func workersBar(t table) bar {
	return bar{
		Figure: "two workers to one, one job on a site that takes 50 ms", Bound: 1.9, Value: t.Rows[1].Cells["ratio"].Median,
		Digits: 3,
	}
}

// ratio puts into cells how the median of one of them is to that of the first row, where both were measured.
func ratio(cells, first map[string]cell, key, of string) {
	if r := cells[of].Median / first[of].Median; r > 0 && !math.IsInf(r, 0) {
		cells[key] = over(r)
	}
}

func workersRow(o options, n int, points []point) row {
	r := row{Name: counted(n, "worker"), Cells: map[string]cell{
		"pages_per_second":       overOf(points, func(p point) float64 { return p.rate() }),
		"bound_pages_per_second": over(bound(o.InFlight, n, workersLatency)),
		"worker_cpu_us_per_page": overOf(points, func(p point) float64 { return p.micros("worker") }),
		"redis_cpu_us_per_page":  overOf(points, func(p point) float64 { return p.micros("redis") }),
		"site_cores":             overOf(points, func(p point) float64 { return p.cores("site") }),
		"all_cores":              overOf(points, func(p point) float64 { return p.allCores() }),
		"worker_peak_mib":        overOf(points, func(p point) float64 { return p.used["worker"].PeakMiB }),
	}}
	// A pace that was not seen in one round is not one of the others either.
	if steady := overOf(points, func(p point) float64 { return p.steady }); steady.Min > 0 {
		r.Cells["middle_pages_per_second"] = steady
	}
	return r
}
