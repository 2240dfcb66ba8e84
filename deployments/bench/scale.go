package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest/gensite"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
)

const (
	// scaleLatency is the mean time that a page takes on the site of the curve.
	scaleLatency = 150 * time.Millisecond
	// scaleSeconds is how long a crawl of the curve would take if nothing but the site took time.
	scaleSeconds = 8
	// mostInFlight bounds the requests of one job, and those to one host: what the service allows at most.
	mostInFlight = 256
)

// scaleWorkers are the points of a curve, and scaleJobs the jobs that are crawled at once: a curve each.
var (
	scaleWorkers = []int{1, 2, 4, 8}
	scaleJobs    = []int{1, 8}
)

// uneven is a generated site whose pages take from two thirds to four thirds of a time, each always
// the same.
type uneven struct {
	*gensite.Site
	mean time.Duration
}

// ServeHTTP implements [http.Handler].
func (u *uneven) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := fnv.New32a()
	_, _ = io.WriteString(h, r.URL.Path) // a hash takes all
	part := time.Duration(h.Sum32() % 1024)
	timer := time.NewTimer(u.mean*2/3 + u.mean*2/3*part/1023)
	defer timer.Stop()
	select {
	case <-timer.C:
		u.Site.ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

// manual is a folder of files as a site. It counts nothing.
type manual struct{ http.Handler }

// Reset does nothing.
func (*manual) Reset() {}

// Total is 0.
func (*manual) Total() int64 { return 0 }

// Distinct is 0.
func (*manual) Distinct() int64 { return 0 }

// point is what the crawl of some jobs by so many workers gave.
type point struct {
	seconds   float64 // from the submission of the jobs to the end of the last
	pages     float64
	steady    float64 // pages/s between a quarter and three quarters of the pages
	workerCPU float64 // seconds of all workers
	redisCPU  float64
	peakMiB   float64 // of the largest worker
}

func (p *point) rate() float64 { return p.pages / p.seconds }

// scale writes what a page costs Redis, and the curve.
func scale(ctx context.Context, o options, out io.Writer) error {
	dir, err := os.MkdirTemp("", "trawl-bench-")
	if err != nil {
		return fmt.Errorf("make a directory for redis-server: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a rest in the temporary directory harms nobody
	r, err := startRedis(ctx, "--dir", dir, "--appendonly", "yes", "--appendfsync", "everysec",
		"--auto-aof-rewrite-percentage", "0") // or it would be shorter than what was written
	if err != nil {
		return err
	}
	defer r.stop()
	rdb, err := redisconn.Open(r.url, redisconn.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	c := &course{o: o, url: r.url, rdb: rdb, st: store.New(rdb, store.Options{}), bell: queue.NewDoorbell(rdb)}
	if err := c.reportCosts(ctx, out); err != nil {
		return err
	}
	for _, jobs := range scaleJobs {
		points := map[int][]point{}
		for i := range o.Rounds {
			for _, n := range scaleWorkers {
				progress("round %d of %d: %d jobs, %d workers of %d in flight", i+1, o.Rounds, jobs, n, o.Scale)
				p, err := c.measurePoint(ctx, jobs, n)
				if err != nil {
					return err
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

// course is where crawls are measured: one Redis, and what submits jobs to it.
type course struct {
	o    options
	url  string
	rdb  redis.UniversalClient
	st   *store.Store
	bell *queue.Doorbell
}

// crew starts a site and workers for it, and answers where the site is.
func (c *course) crew(ctx context.Context, o options, workers int) (string, []*child, error) {
	site, err := startSelf(ctx, o, "site", "", "")
	if err != nil {
		return "", nil, err
	}
	all := []*child{site}
	start, err := site.line()
	for range workers {
		if err != nil {
			break
		}
		var w *child
		if w, err = startSelf(ctx, o, "assist", c.url, start); err == nil {
			all = append(all, w)
			_, err = w.line()
		}
	}
	if err != nil {
		stopAll(all)
		return "", nil, fmt.Errorf("the site or a worker did not start: %w", err)
	}
	return start, all, nil
}

func stopAll(all []*child) {
	for _, c := range all {
		c.stop()
	}
}

// submit stores a job that crawls the site from a path, and rings for it.
func (c *course) submit(ctx context.Context, seed string, extract, markdown bool) (crawl.JobRef, error) {
	job := crawl.JobRef{Tenant: "bench", ID: crawl.NewJobID("bench", "")}
	u, err := crawl.ParseURL(seed)
	if err != nil {
		return job, err
	}
	plan := crawl.Plan{
		Site: true, Scope: "host", Seeds: []string{u.String()}, Sources: []string{"*"}, MaxPages: 1_000_000,
		MaxDepth: 100, Concurrency: mostInFlight, HostConcurrency: mostInFlight, Retention: time.Hour,
	}
	if extract {
		plan.Include = []string{"/p/*"}
	}
	if markdown {
		plan.Formats, plan.MaxKeptBytes = []string{crawl.FormatMarkdown}, 1<<30
	}
	made, err := c.st.Create(ctx, store.NewJob{
		Job: job, Spec: []byte(`{}`), Quota: crawl.Quota{MaxRunning: 100}, Inputs: []crawl.Input{{URL: u}}, Plan: plan,
	})
	if err != nil {
		return job, err
	}
	return job, c.bell.Ring(ctx, made.Rings...)
}

// follow looks at jobs until the last ends, and calls each with how many of their pages are processed.
func (c *course) follow(
	ctx context.Context, jobs []crawl.JobRef, each func(processed int64),
) (ends []crawl.Job, err error) {
	ends = make([]crawl.Job, len(jobs))
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		processed, running := int64(0), false
		for i, ref := range jobs {
			if !ends[i].State.Terminal() {
				if ends[i], err = c.st.Job(ctx, ref); err != nil {
					return nil, err
				}
			}
			processed += ends[i].Processed
			running = running || !ends[i].State.Terminal()
		}
		if each(processed); !running {
			return ends, nil
		}
	}
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

func (p *pace) perSecond() float64 { return float64(p.done-p.from) / (p.at - p.first).Seconds() }

// measurePoint crawls a site with so many workers, by each of the jobs as a whole. There are as many
// pages a worker whatever the number of workers, so that each crawl would take the same time if
// workers did not disturb each other.
func (c *course) measurePoint(ctx context.Context, jobs, workers int) (point, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := c.rdb.FlushAll(ctx).Err(); err != nil {
		return point{}, fmt.Errorf("flush: %w", err)
	}
	o := c.o
	o.Latency, o.InFlight, o.Most, o.Profile, o.Manual = scaleLatency, o.Scale, mostInFlight, "", ""
	o.Pages = int(bound(o.Scale, workers)*scaleSeconds) / jobs
	start, all, err := c.crew(ctx, o, workers)
	if err != nil {
		return point{}, err
	}
	defer stopAll(all)
	before := cpuOf(all[1:])
	redisBefore, err := c.redisCPU(ctx)
	if err != nil {
		return point{}, err
	}
	middle := &pace{begun: time.Now(), pages: int64(o.Pages * jobs)}
	refs := make([]crawl.JobRef, jobs)
	for i := range refs {
		if refs[i], err = c.submit(ctx, start+"/p/0", false, false); err != nil {
			return point{}, err
		}
	}
	ends, err := c.follow(ctx, refs, middle.see)
	if err != nil {
		return point{}, err
	}
	p := point{
		seconds: time.Since(middle.begun).Seconds(), workerCPU: cpuOf(all[1:]) - before, peakMiB: peakOf(all[1:]),
		steady: middle.perSecond(),
	}
	redisAfter, err := c.redisCPU(ctx)
	if err != nil {
		return point{}, err
	}
	p.redisCPU = redisAfter - redisBefore
	for _, end := range ends {
		if end.State != crawl.Completed || end.Accepted != int64(o.Pages) {
			return point{}, fmt.Errorf("accepted %d of %d pages: %+v", end.Accepted, o.Pages, end)
		}
		p.pages += float64(end.Accepted)
	}
	return p, c.fetchedOnce(ctx, start, p.pages)
}

// fetchedOnce holds the site's count of requests for pages to what was recorded.
func (c *course) fetchedOnce(ctx context.Context, start string, pages float64) error {
	hits, err := ask(ctx, start+"/-/total")
	if err != nil {
		return err
	}
	var total float64
	if _, err := fmt.Sscan(hits, &total); err != nil {
		return fmt.Errorf("hits of the site: %w", err)
	}
	if total != pages {
		return fmt.Errorf("the site served %.0f pages for %.0f that were recorded", total, pages)
	}
	return nil
}

// bound is what Little's law allows workers of so many requests in flight each: pages a second.
func bound(inFlight, workers int) float64 {
	return float64(min(inFlight*workers, mostInFlight)) / scaleLatency.Seconds()
}

func (c *course) redisCPU(ctx context.Context) (float64, error) {
	return infoNumber(ctx, c.rdb, "cpu", "used_cpu_user_main_thread", "used_cpu_sys_main_thread")
}

// cost is what a page of a crawl costs, and what is left of it.
type cost struct {
	name                        string
	pages                       float64
	commands, scripts           float64 // of Redis, a page; scripts are among the commands that clients send
	redisMicros                 float64
	workerMicros, workerPeakMiB float64
	received, sent              float64 // bytes of Redis, a page
	aof                         float64 // bytes that its append-only file grew by, a page
	records, contents, kept     float64 // bytes of memory a page, once the job has ended
}

// kind is a crawl whose cost is measured.
type kind struct {
	name, seed        string
	options           options
	extract, markdown bool
}

// kinds are the crawls whose cost is measured.
func (c *course) kinds() []kind {
	o := c.o
	o.Manual, o.Profile = "", ""
	articles := o
	articles.Extract, articles.Pages = true, min(o.Pages, articlePages)
	all := []kind{
		{name: fmt.Sprintf("links and title, pages of %d bytes", o.Bytes), seed: "/p/0", options: o},
		{
			name: fmt.Sprintf("markdown, pages of %d bytes", articleBytes), seed: "/p/0", options: articles,
			extract: true, markdown: true,
		},
	}
	if c.o.Manual != "" {
		o.Manual, o.Most = c.o.Manual, mostInFlight
		all = append(all, kind{name: "markdown, " + c.o.Manual, seed: "/", options: o, markdown: true})
	}
	return all
}

// measureCost crawls with one worker and answers what the median page cost.
func (c *course) measureCost(ctx context.Context, k kind) (cost, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := c.rdb.FlushAll(ctx).Err(); err != nil {
		return cost{}, fmt.Errorf("flush: %w", err)
	}
	start, all, err := c.crew(ctx, k.options, 1)
	if err != nil {
		return cost{}, err
	}
	defer stopAll(all)
	before, err := c.look(ctx)
	if err != nil {
		return cost{}, err
	}
	cpu := cpuOf(all[1:])
	job, err := c.submit(ctx, start+k.seed, k.extract, k.markdown)
	if err != nil {
		return cost{}, err
	}
	ends, err := c.follow(ctx, []crawl.JobRef{job}, func(int64) {})
	if err != nil {
		return cost{}, err
	}
	end := ends[0]
	cpu = cpuOf(all[1:]) - cpu
	after, err := c.look(ctx)
	if err != nil {
		return cost{}, err
	}
	n := float64(end.Accepted)
	if n == 0 {
		return cost{}, fmt.Errorf("the crawl for %q accepted nothing: %+v", k.name, end)
	}
	r := cost{
		name: k.name, pages: n, workerMicros: cpu * 1e6 / n, workerPeakMiB: peakOf(all[1:]),
		commands: (after.commands - before.commands) / n, scripts: (after.scripts - before.scripts) / n,
		redisMicros: (after.cpu - before.cpu) * 1e6 / n, received: (after.received - before.received) / n,
		sent: (after.sent - before.sent) / n, aof: (after.aof - before.aof) / n, kept: (after.memory - before.memory) / n,
	}
	for part, into := range map[string]*float64{"rec": &r.records, "body": &r.contents} {
		bytes, err := c.memoryOf(ctx, "*:"+part+":*")
		if err != nil {
			return r, err
		}
		*into = bytes / n
	}
	return r, nil
}

// gauge is what Redis says of itself at one time.
type gauge struct{ commands, scripts, cpu, received, sent, aof, memory float64 }

func (c *course) look(ctx context.Context) (gauge, error) {
	var g gauge
	var errs []error
	read := func(into *float64, section string, fields ...string) {
		v, err := infoNumber(ctx, c.rdb, section, fields...)
		*into = v
		errs = append(errs, err)
	}
	read(&g.commands, "stats", "total_commands_processed")
	read(&g.received, "stats", "total_net_input_bytes")
	read(&g.sent, "stats", "total_net_output_bytes")
	read(&g.cpu, "cpu", "used_cpu_user_main_thread", "used_cpu_sys_main_thread")
	read(&g.aof, "persistence", "aof_current_size")
	read(&g.memory, "memory", "used_memory_dataset")
	stats, err := c.rdb.InfoMap(ctx, "commandstats").Result()
	errs = append(errs, err)
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		calls, _, _ := strings.Cut(strings.TrimPrefix(stats["Commandstats"][name], "calls="), ",")
		n, _ := strconv.ParseFloat(calls, 64) // none yet: 0
		g.scripts += n
	}
	return g, errors.Join(errs...)
}

// memoryOf answers the bytes of all keys that match.
func (c *course) memoryOf(ctx context.Context, match string) (float64, error) {
	var sum int64
	keys := c.rdb.Scan(ctx, 0, match, 1000).Iterator()
	for keys.Next(ctx) {
		n, err := c.rdb.MemoryUsage(ctx, keys.Val(), 0).Result()
		if err != nil {
			return 0, fmt.Errorf("memory usage: %w", err)
		}
		sum += n
	}
	return float64(sum), keys.Err()
}

// idle answers what a worker with nothing to do costs Redis and its machine: seconds of CPU a second.
func (c *course) idle(ctx context.Context) (redisCPU, workerCPU, commands float64, err error) {
	const workers, span = 4, 5 * time.Second
	_, all, err := c.crew(ctx, c.o, workers)
	if err != nil {
		return 0, 0, 0, err
	}
	defer stopAll(all)
	before, err := c.look(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	cpu := cpuOf(all[1:])
	select {
	case <-ctx.Done():
		return 0, 0, 0, ctx.Err()
	case <-time.After(span):
	}
	after, err := c.look(ctx)
	part := workers * span.Seconds()
	return (after.cpu - before.cpu) / part, (cpuOf(all[1:]) - cpu) / part, (after.commands - before.commands) / part, err
}

// discovery answers what a page that leads to ten new URLs of 60 bytes costs.
func (c *course) discovery(ctx context.Context) (cost, error) {
	if err := c.rdb.FlushAll(ctx).Err(); err != nil {
		return cost{}, fmt.Errorf("flush: %w", err)
	}
	l, err := newLoad(ctx, c.rdb, c.o.URLs)
	if err != nil {
		return cost{}, err
	}
	var warm atomic.Int64
	if err := l.serve(ctx, &warm, 16, 10); err != nil { // so that Redis knows every script
		return cost{}, err
	}
	before, err := c.look(ctx)
	if err != nil {
		return cost{}, err
	}
	var count atomic.Int64
	pages := int64(c.o.URLs / 10)
	if err := l.serve(ctx, &count, pages, 10); err != nil {
		return cost{}, err
	}
	n := float64(count.Load())
	if n < float64(pages) {
		return cost{}, fmt.Errorf("only %.0f of %d pages were committed", n, pages)
	}
	after, err := c.look(ctx)
	if err != nil {
		return cost{}, err
	}
	records, err := c.memoryOf(ctx, "*:rec:*")
	return cost{
		pages: n, redisMicros: (after.cpu - before.cpu) * 1e6 / n, aof: (after.aof - before.aof) / n,
		received: (after.received - before.received) / n, records: records / n,
		kept: (after.memory - before.memory - records) / float64(c.o.URLs),
	}, err
}

func (c *course) reportCosts(ctx context.Context, out io.Writer) error {
	var b strings.Builder
	progress("an idle worker, and URLs that are discovered")
	redisCPU, workerCPU, commands, err := c.idle(ctx)
	if err != nil {
		return err
	}
	found, err := c.discovery(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, `
an idle worker: %.1f commands a second, %.2f %% of the Redis thread, %.2f %% of a core of its own
a page that leads to 10 new URLs of 60 bytes: Redis CPU us %.1f, bytes received %.0f, of append-only file %.0f,
of memory %.0f for each URL (90 %% still queued) and %.0f for the record of the page
`, commands, 100*redisCPU, 100*workerCPU, found.redisMicros, found.received, found.aof, found.kept, found.records)
	for _, k := range c.kinds() {
		progress("what a page costs: %s", k.name)
		r, err := c.measureCost(ctx, k)
		if err != nil {
			return err
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
`, c.o.InFlight, r.name, r.pages, r.commands, r.scripts, r.redisMicros, r.received, r.sent, r.aof, r.kept, r.records,
			r.contents, r.workerMicros, r.workerPeakMiB)
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
	var one float64
	for _, n := range scaleWorkers {
		p := middle(points[n])
		if one == 0 {
			one = p.rate() / float64(n)
		}
		fmt.Fprintf(&b, "  %7d  %7.0f  %5.2f  %9.0f%%  %13.0f  %14.0f  %6.0f  %5.0f  %7.2f  %5.2f  %9.0f\n",
			n, p.rate(), p.rate()/one, 100*p.rate()/one/float64(n), p.steady, bound(o.Scale, n),
			p.workerCPU*1e6/p.pages, p.redisCPU*1e6/p.pages, p.workerCPU/p.seconds, p.redisCPU/p.seconds, p.peakMiB)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// middle is the point of median speed.
func middle(ps []point) point {
	ps = slices.Clone(ps)
	slices.SortFunc(ps, func(a, b point) int {
		if a.rate() < b.rate() {
			return -1
		}
		return 1
	})
	return ps[len(ps)/2]
}

// ticksPerSecond is USER_HZ, in which Linux tells of CPU time: 100 on every platform that Go runs on.
const ticksPerSecond = 100

// cpuOf answers the CPU seconds of running processes so far, to 10 ms each; 0 where there is no /proc.
func cpuOf(all []*child) float64 {
	ticks := 0.0
	for _, c := range all {
		stat, err := os.ReadFile(procFile(c.cmd, "stat"))
		if err != nil {
			return 0
		}
		// The name of the program, in parentheses, may hold anything. utime and stime are the 14th and 15th.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, f := range fields[11:13] {
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return 0
			}
			ticks += n
		}
	}
	return ticks / ticksPerSecond
}

// peakOf answers the most memory that one of the processes had, in MiB; 0 where there is no /proc.
func peakOf(all []*child) float64 {
	most := 0.0
	for _, c := range all {
		status, err := os.ReadFile(procFile(c.cmd, "status"))
		if err != nil {
			return 0
		}
		_, after, _ := strings.Cut(string(status), "VmHWM:")
		kib := 0.0
		if _, err := fmt.Sscan(after, &kib); err != nil {
			return 0
		}
		most = max(most, kib/1024)
	}
	return most
}

func procFile(cmd *exec.Cmd, name string) string {
	return fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, name)
}
