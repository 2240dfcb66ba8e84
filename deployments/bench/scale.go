package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"example.com/trawl/pkg/client"
)

const (
	// scaleLatency is the mean time that a page takes on the site of the curve.
	scaleLatency = 150 * time.Millisecond
	// scaleSeconds is how long a crawl of the curve would take if nothing but the site took time.
	scaleSeconds = 8
	// idleWorkers do nothing for idleTime.
	idleWorkers = 4
	idleTime    = 5 * time.Second
)

// scaleWorkers are the points of a curve, and scaleJobs the jobs that are crawled at once: a curve each.
var (
	scaleWorkers = []int{1, 2, 4, 8}
	scaleJobs    = []int{1, 8}
)

// durable has Redis write its append-only file as a service does. It is not rewritten: it would be shorter than what
// was written.
var durable = []string{"--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"}

// scale writes what a page costs Redis, and the curve.
func scale(ctx context.Context, o options, out io.Writer) error {
	r, err := newRig(ctx, o)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.reportCosts(ctx, out); err != nil {
		return err
	}
	for _, jobs := range scaleJobs {
		points := map[int][]point{}
		for i := range o.Rounds {
			for _, n := range scaleWorkers {
				progress("round %d of %d: %s, %s of %d in flight", i+1, o.Rounds, counted(jobs, "job"), counted(n, "worker"),
					o.Scale)
				p, err := r.scalePoint(ctx, jobs, n)
				if err != nil {
					return fmt.Errorf("%d jobs, %d workers: %w", jobs, n, err)
				}
				points[n] = append(points[n], p)
			}
		}
		if err := reportCurve(out, o, jobs, points); err != nil {
			return err
		}
	}
	return nil
}

// scalePoint crawls a site with so many workers, by each of the jobs as a whole. There are as many pages a worker
// whatever the number of workers, so that each crawl would take the same time if workers did not disturb each other.
func (r *rig) scalePoint(ctx context.Context, jobs, workers int) (point, error) {
	o := r.o
	o.Latency, o.Site, o.Hosts = scaleLatency, "uneven", 1
	o.Pages = scalePages(o.Scale, jobs, workers)
	s, err := r.newSite(ctx, o)
	if err != nil {
		return point{}, err
	}
	defer s.stop()
	return r.measurePoint(ctx, fleetOptions{
		apis: 1, workers: workers, redis: durable, env: []string{fmt.Sprintf("TRAWL_CONCURRENCY=%d", o.Scale)},
	}, s, jobs, o.Pages)
}

// scalePages answers how many pages each of some jobs has.
func scalePages(inFlight, jobs, workers int) int {
	return max(1, int(bound(inFlight, workers, scaleLatency)*scaleSeconds)/jobs)
}

// cost is what a page of a crawl costs, and what is left of it.
type cost struct {
	pages                       float64
	redis                       gauge // a page; the memory once the job has ended
	workerMicros, workerPeakMiB float64
	records, contents           float64 // bytes of memory a page
}

// kind is a crawl whose cost is measured.
type kind struct {
	name    string
	options options
	spec    func(s *site) client.Spec
}

// kinds are the crawls whose cost is measured.
func kinds(o options) []kind {
	o.Hosts, o.Latency, o.Site = 1, 0, "generated"
	articles, handbook := o, o
	articles.Site, articles.Pages = "articles", min(o.Pages, articlePages)
	handbook.Site = "manual"
	markdown := func(s *site, path string) client.Spec {
		spec := siteSpec(s.url(0) + path)
		spec.Formats = []client.ContentFormat{client.ContentMarkdown}
		return spec
	}
	all := []kind{
		{
			name: fmt.Sprintf("links and title, pages of %d bytes", o.Bytes), options: o,
			spec: func(s *site) client.Spec { return siteSpec(s.url(0) + "/p/0") },
		},
		{
			name: fmt.Sprintf("markdown, pages of %d bytes", articleBytes), options: articles,
			spec: func(s *site) client.Spec {
				spec := markdown(s, "/p/0")
				spec.Include = []string{"/p/*"} // the other links of articles lead nowhere
				return spec
			},
		},
	}
	if o.Manual != "" {
		all = append(all, kind{
			name: "markdown, " + o.Manual, options: handbook, spec: func(s *site) client.Spec { return markdown(s, "/") },
		})
	}
	return all
}

// measureCost crawls with one worker and answers what a page cost.
func (r *rig) measureCost(ctx context.Context, k kind) (cost, error) {
	ctx, cancel := context.WithTimeout(ctx, crawlTime)
	defer cancel()
	s, err := r.newSite(ctx, k.options)
	if err != nil {
		return cost{}, err
	}
	defer s.stop()
	f, err := r.newFleet(ctx, fleetOptions{apis: 1, workers: 1, redis: durable})
	if err != nil {
		return cost{}, err
	}
	defer f.stop()
	before, err := look(ctx, f.rdb)
	if err != nil {
		return cost{}, err
	}
	m, err := newMeter(f.workers...)
	if err != nil {
		return cost{}, err
	}
	job, err := f.submit(ctx, k.spec(s))
	if err != nil {
		return cost{}, err
	}
	ends, err := f.follow(ctx, followEvery, nil, job)
	if err != nil {
		return cost{}, err
	}
	_, used, err := m.read()
	if err != nil {
		return cost{}, err
	}
	after, err := look(ctx, f.rdb)
	if err != nil {
		return cost{}, err
	}
	if k.options.Site == "manual" { // whose links are as they are: some may be dead
		if ends[0].Accepted == 0 {
			return cost{}, fmt.Errorf("the crawl for %q accepted nothing: %+v", k.name, ends[0])
		}
	} else if err := errors.Join(allCompleted(ends, k.options.Pages), s.servedOnce(ctx, 1, k.options.Pages)); err != nil {
		return cost{}, err
	}
	n := float64(ends[0].Accepted)
	c := cost{
		pages: n, redis: after.less(before).per(n),
		workerMicros: used["worker"].CPU * 1e6 / n, workerPeakMiB: used["worker"].PeakMiB,
	}
	c.records, c.contents, err = f.left(ctx, n)
	return c, err
}

// per answers g for each of n.
func (g gauge) per(n float64) gauge {
	return gauge{g.commands / n, g.scripts / n, g.cpu / n, g.received / n, g.sent / n, g.aof / n, g.memory / n}
}

// left answers what the records and the contents of n pages take in Redis, in bytes a page.
func (f *fleet) left(ctx context.Context, n float64) (records, contents float64, err error) {
	records, err = memoryOf(ctx, f.rdb, "*:rec:*")
	if err != nil {
		return 0, 0, err
	}
	contents, err = memoryOf(ctx, f.rdb, "*:body:*")
	return records / n, contents / n, err
}

// idle answers what a worker with nothing to do costs Redis and its machine: seconds of CPU a second.
func (r *rig) idle(ctx context.Context) (redisCPU, workerCPU, commands float64, err error) {
	f, err := r.newFleet(ctx, fleetOptions{workers: idleWorkers, redis: durable})
	if err != nil {
		return 0, 0, 0, err
	}
	defer f.stop()
	before, err := look(ctx, f.rdb)
	if err != nil {
		return 0, 0, 0, err
	}
	m, err := newMeter(f.workers...)
	if err != nil {
		return 0, 0, 0, err
	}
	select {
	case <-ctx.Done():
		return 0, 0, 0, ctx.Err()
	case <-time.After(idleTime):
	}
	seconds, used, err := m.read()
	if err != nil {
		return 0, 0, 0, err
	}
	after, err := look(ctx, f.rdb)
	g := after.less(before).per(idleWorkers * seconds)
	return g.cpu, used["worker"].CPU / (idleWorkers * seconds), g.commands, err
}

// discovery answers what a page that leads to ten new URLs of 60 bytes costs. Its memory is that of one URL, without
// the records.
func (r *rig) discovery(ctx context.Context) (cost, error) {
	f, err := r.newFleet(ctx, fleetOptions{redis: durable})
	if err != nil {
		return cost{}, err
	}
	defer f.stop()
	l, err := newLoad(ctx, f.rdb, r.o.URLs)
	if err != nil {
		return cost{}, err
	}
	var warm, count atomic.Int64
	if err := l.serve(ctx, &warm, 16, 10); err != nil { // so that Redis knows every script
		return cost{}, err
	}
	before, err := look(ctx, f.rdb)
	if err != nil {
		return cost{}, err
	}
	pages := int64(r.o.URLs / 10)
	if err := l.serve(ctx, &count, pages, 10); err != nil {
		return cost{}, err
	}
	n := float64(count.Load())
	if n < float64(pages) {
		return cost{}, fmt.Errorf("only %.0f of %d pages were committed", n, pages)
	}
	after, err := look(ctx, f.rdb)
	if err != nil {
		return cost{}, err
	}
	c := cost{pages: n, redis: after.less(before).per(n)}
	if c.records, _, err = f.left(ctx, n); err != nil {
		return cost{}, err
	}
	c.redis.memory = (after.memory - before.memory - c.records*n) / float64(r.o.URLs)
	return c, nil
}

func (r *rig) reportCosts(ctx context.Context, out io.Writer) error {
	var b strings.Builder
	progress("an idle worker, and URLs that are discovered")
	redisCPU, workerCPU, commands, err := r.idle(ctx)
	if err != nil {
		return fmt.Errorf("idle workers: %w", err)
	}
	found, err := r.discovery(ctx)
	if err != nil {
		return fmt.Errorf("discovery: %w", err)
	}
	fmt.Fprintf(&b, `
an idle worker: %.1f commands a second, %.2f %% of the Redis thread, %.2f %% of a core of its own
a page that leads to 10 new URLs of 60 bytes: Redis CPU us %.1f, bytes received %.0f, of append-only file %.0f,
of memory %.0f for each URL (90 %% still queued) and %.0f for the record of the page
`, commands, 100*redisCPU, 100*workerCPU, found.redis.cpu*1e6, found.redis.received, found.redis.aof,
		found.redis.memory, found.records)
	for _, k := range kinds(r.o) {
		progress("what a page costs: %s", k.name)
		c, err := r.measureCost(ctx, k)
		if err != nil {
			return fmt.Errorf("cost of a page: %w", err)
		}
		fmt.Fprintf(&b, `
a page of a crawl by one worker with %d in flight: %s (%.0f pages)
  Redis: commands, those in scripts with them %10.1f
         of them sent by clients as scripts   %10.2f
         CPU us                               %10.1f
         bytes received, sent                 %10.0f %8.0f
         bytes of append-only file            %10.0f
         bytes of memory once the job ended   %10.0f   (records %.0f, contents %.0f)
  worker: CPU us                              %10.0f   (peak %.0f MiB)
`, r.o.InFlight, k.name, c.pages, c.redis.commands, c.redis.scripts, c.redis.cpu*1e6, c.redis.received, c.redis.sent,
			c.redis.aof, c.redis.memory, c.records, c.contents, c.workerMicros, c.workerPeakMiB)
	}
	_, err = io.WriteString(out, b.String())
	return err
}

func reportCurve(out io.Writer, o options, jobs int, points map[int][]point) error {
	var b strings.Builder
	fmt.Fprintf(&b, `
jobs at once: %d, pages of 100 to 200 ms, %d in flight a worker, one host, %d bytes and %d links a page, median of %d

  workers  pages/s  ratio  efficiency  in the middle  Little's bound  CPU us a page     cores used    peak MiB
                                                                      worker  Redis  workers  Redis   a worker
`, jobs, o.Scale, o.Bytes, o.Links, o.Rounds)
	one := 0.0
	for _, n := range scaleWorkers {
		p := middle(points[n])
		if one == 0 {
			one = p.rate() / float64(n)
		}
		fmt.Fprintf(&b, "  %7d  %7.0f  %5.2f  %9.0f%%  %13.0f  %14.0f  %6.0f  %5.0f  %7.2f  %5.2f  %9.0f\n",
			n, p.rate(), p.rate()/one, 100*p.rate()/one/float64(n), p.steady, bound(o.Scale, n, scaleLatency),
			p.micros("worker"), p.redis.cpu*1e6/p.pages, p.cores("worker"), p.redis.cpu/p.seconds, p.used["worker"].PeakMiB)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// middle is the point of median speed.
func middle(ps []point) *point {
	ps = slices.SortedFunc(slices.Values(ps), func(a, b point) int {
		if a.rate() < b.rate() {
			return -1
		}
		return 1
	})
	return &ps[len(ps)/2]
}
