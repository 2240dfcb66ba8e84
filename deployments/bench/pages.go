package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
)

// Names of rows.
const (
	trawlRow  = "Trawl: API, Redis and one worker"
	wideRow   = "Trawl, twice as many in flight"
	trawlName = "Trawl" // what the names of both of Trawl begin with
	// collyAsMany is colly with as many requests in flight as a worker has unless told.
	collyAsMany = "colly, 64 parallel, tuned transport"

	collyRow  = "colly"     // what the names of all of colly begin with
	spiderRow = "spider-rs" // and those of spider-rs
)

// wholeSite is the job that crawls a whole site, with as many requests in flight as a worker has.
func (r *rig) wholeSite(s *site) client.Spec {
	spec := siteSpec(s.url(0) + "/p/0")
	spec.Concurrency = min(r.o.InFlight, mostInFlight)
	return spec
}

// fleetCrawl is what one crawl of a whole site by a fleet took. What is not said by process is that of the worker.
type fleetCrawl struct {
	crawled
	used     map[string]spent // by the kind of process
	trips    float64          // of the first worker to Redis: commands and pipelines
	commands float64          // that Redis carried out, those in scripts with them
	job      crawl.Job
}

// crawlWhole crawls a site of so many pages by one job, from its submission to its end, beginning with an empty Redis.
// It fails unless each page was fetched and accepted exactly once.
func (f *fleet) crawlWhole(ctx context.Context, s *site, spec client.Spec, pages int) (c fleetCrawl, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestCrawl(pages))
	defer cancel()
	if err := f.fresh(ctx); err != nil {
		return c, err
	}
	if err := s.reset(ctx); err != nil {
		return c, err
	}
	before, err := f.calls(ctx)
	if err != nil {
		return c, err
	}
	m, err := newMeter(append(f.all(), s.child)...)
	if err != nil {
		return c, err
	}
	begun := time.Now()
	ref, err := f.submit(ctx, spec)
	if err != nil {
		return c, err
	}
	looks := 0.0
	ends, err := f.follow(ctx, 20*time.Millisecond, func(int64) { looks++ }, ref)
	if err != nil {
		return c, err
	}
	if _, c.used, err = m.read(); err != nil {
		return c, err
	}
	c.Seconds = ends[0].EndedAt.Sub(begun).Seconds() // by the store, whose clock is that of this machine
	after, err := f.calls(ctx)
	if err != nil {
		return c, err
	}
	own, each, err := f.costOfLooks(ctx, ref)
	if err != nil {
		return c, err
	}
	c.trips, c.commands = after.trips-before.trips, after.commands-before.commands-own-looks*each
	c.CPU, c.PeakMiB, c.siteCPU, c.job = c.used["worker"].CPU, c.used["worker"].PeakMiB, c.used["site"].CPU, ends[0]
	if c.fetches, c.pages, err = s.hits(ctx); err != nil {
		return c, err
	}
	return c, c.exact(pages)
}

// exact is an error unless a job crawled each of so many pages exactly once.
func (c *fleetCrawl) exact(pages int) error {
	return errors.Join(allCompleted([]crawl.Job{c.job}, pages), servedOnce(c.fetches, c.pages, 1, pages))
}

// calls are what was sent to Redis so far.
type calls struct {
	trips    float64 // of the first worker
	commands float64 // of everybody
}

func (f *fleet) calls(ctx context.Context) (c calls, err error) {
	text, err := ask(ctx, f.metrics[0])
	if err != nil {
		return c, err
	}
	for _, call := range []string{"command", "pipeline"} {
		n, err := metricOf(text, `trawl_redis_seconds_count{call="`+call+`"}`)
		if err != nil {
			return c, err
		}
		c.trips += n
	}
	g, err := look(ctx, f.rdb)
	c.commands = g.commands
	return c, err
}

// metricOf answers the value of a series of a text of metrics.
func metricOf(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return 0, fmt.Errorf("metrics: %s: %w", name, err)
			}
			return v, nil
		}
	}
	return 0, fmt.Errorf("the metrics lack %s", name)
}

// costOfLooks answers how many commands it takes Redis to say what it carried out, and to be asked for a job once.
func (f *fleet) costOfLooks(ctx context.Context, ref crawl.JobRef) (own, each float64, err error) {
	const looks = 50
	var g [3]gauge
	for i := range g {
		if i == 2 {
			for range looks {
				if _, err := f.st.Job(ctx, ref); err != nil {
					return 0, 0, err
				}
			}
		}
		if g[i], err = look(ctx, f.rdb); err != nil {
			return 0, 0, err
		}
	}
	own = g[1].commands - g[0].commands
	return own, (g[2].commands - g[1].commands - own) / looks, nil
}

// measurePages is measured by the part "pages".
func measurePages(ctx context.Context, r *rig) (findings, error) {
	rs, why := findSpider(ctx, spiderCache(), exec.LookPath)
	return r.comparePages(ctx, rs, why)
}

// comparePages has all contenders crawl one site in turn; without spider-rs it says why that is not there.
func (r *rig) comparePages(ctx context.Context, rs *spider, why string) (findings, error) {
	s, err := r.newSite(ctx, r.o)
	if err != nil {
		return findings{}, err
	}
	defer s.stop()
	f, err := r.newFleet(ctx, fleetOptions{apis: 1, workers: 1})
	if err != nil {
		return findings{}, err
	}
	defer f.stop()
	// Colly has the number in flight that it is fastest with, and so has Trawl.
	wide, err := r.newFleet(ctx, fleetOptions{apis: 1, workers: 1, env: []string{"TRAWL_CONCURRENCY=" + strconv.Itoa(2*r.o.InFlight)}})
	if err != nil {
		return findings{}, err
	}
	defer wide.stop()
	wider := r.wholeSite(s)
	wider.Concurrency = min(2*r.o.InFlight, mostInFlight)
	p := pagesRun{pages: r.o.Pages, rounds: map[string][]crawled{}}
	contenders := append([]contender{{trawlRow, func(ctx context.Context) (crawled, error) {
		c, err := f.crawlWhole(ctx, s, r.wholeSite(s), r.o.Pages)
		p.fleet = append(p.fleet, c)
		return c.crawled, err
	}}, {wideRow, func(ctx context.Context) (crawled, error) {
		c, err := wide.crawlWhole(ctx, s, wider, r.o.Pages)
		return c.crawled, err
	}}}, r.rivals(s)...)
	if rs != nil {
		contenders = append(contenders, rs.contenders(s, r.o.Pages)...)
	} else {
		p.notes = append(p.notes, why)
	}
	progress("warming up")
	for _, f := range []*fleet{f, wide} {
		if _, err := f.crawlWhole(ctx, s, r.wholeSite(s), r.o.Pages); err != nil {
			return findings{}, fmt.Errorf("warm-up: %w", err)
		}
	}
	for _, c := range contenders {
		p.names = append(p.names, c.name)
	}
	for round := range r.o.Rounds {
		// Each begins a round in turn, so that nobody always follows the same one.
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			progress("round %d of %d: %s", round+1, r.o.Rounds, c.name)
			took, err := c.crawl(ctx)
			if err != nil {
				return findings{}, fmt.Errorf("%s: %w", c.name, err)
			}
			p.rounds[c.name] = append(p.rounds[c.name], took)
		}
	}
	return p.findings(r.o), nil
}

// pagesRun is what the rounds of the part "pages" took.
type pagesRun struct {
	pages  int // of the site
	names  []string
	rounds map[string][]crawled // by name
	fleet  []fleetCrawl         // the rounds of Trawl
	notes  []string
}

// fastest answers the name of the contender with the highest rate among those whose names begin so, or "".
func (p *pagesRun) fastest(kind string) (name string) {
	best := 0.0
	for _, n := range p.names {
		if !strings.HasPrefix(n, kind) {
			continue
		}
		if rate := overOf(p.rounds[n], crawled.rate).Median; rate > best {
			name, best = n, rate
		}
	}
	return name
}

// ratio is that of the rates of two contenders, round by round: a machine that is slower for a while is so for both.
func (p *pagesRun) ratio(of, to string) cell {
	ratios := make([]float64, len(p.rounds[of]))
	for i, c := range p.rounds[of] {
		ratios[i] = c.rate() / p.rounds[to][i].rate()
	}
	return over(ratios...)
}

func (p *pagesRun) findings(o options) findings {
	fastColly := p.fastest(collyRow)
	side := table{
		Title: fmt.Sprintf("%s pages of %s bytes with %d links on one host, median of %d rounds (least–most)",
			number(float64(o.Pages), 0), number(float64(o.Bytes), 0), o.Links, o.Rounds),
		Columns: []column{
			{"pages_per_second", "pages/s", 0, true},
			{"ratio", "× fastest colly", 2, true},
			{"pages", "different pages", 0, false},
			{"fetches", "fetches a page", 2, false},
			{"cpu_us", "CPU µs a page", 0, true},
			{"site_cpu_us", "of the site", 0, false},
			{"peak_mib", "peak MiB", 0, false},
		},
	}
	for _, name := range p.names {
		c := p.rounds[name]
		side.Rows = append(side.Rows, row{name, map[string]cell{
			"pages_per_second": overOf(c, crawled.rate), "ratio": p.ratio(name, fastColly),
			"pages":       overOf(c, func(c crawled) float64 { return c.pages }),
			"fetches":     overOf(c, func(c crawled) float64 { return c.fetches / c.pages }),
			"cpu_us":      overOf(c, func(c crawled) float64 { return c.CPU * 1e6 / c.pages }),
			"site_cpu_us": overOf(c, func(c crawled) float64 { return c.siteCPU * 1e6 / c.pages }),
			"peak_mib":    overOf(c, func(c crawled) float64 { return c.PeakMiB }),
		}})
	}
	side.Notes = append([]string{
		"Pages/s are of different pages, from the submission to the API, or from the first request of a process that runs, " +
			"to the end. " +
			"CPU and memory of Trawl are here those of its worker; of the others they are all there is, and nothing outlives the process. " +
			"Trawl heeds robots.txt, and keeps URL, title and state of each page; the others were not told to. " +
			"Its processes ran before, as those of a service do, and Redis was emptied; they idle while the others crawl.",
	}, p.notes...)
	if told := p.rounds[spiderWithTitles]; len(told) > 0 {
		c := overOf(told, func(c crawled) float64 { return c.Told })
		side.Notes = append(side.Notes, fmt.Sprintf("spider-rs %s handed %s to %s of the %s pages to its page event: it does not wait "+
			"for one that is slow, and what it drops is lost.", spiderVersion, number(c.Min, 0), number(c.Max, 0), number(float64(p.pages), 0)))
	}
	return findings{Tables: []table{side, costTable("What a page costs Trawl", p.fleet)}, Bars: p.bars(fastColly)}
}

func (p *pagesRun) bars(fastColly string) []bar {
	best := p.fastest(trawlName)
	bars := []bar{{
		Figure: "pages/s of one worker to bare colly, the fastest way of each", Bound: 3, Value: p.ratio(best, fastColly).Median,
		Unit: "×", Digits: 2,
	}}
	if slices.Contains(p.names, collyAsMany) {
		bars = append(bars, bar{
			Figure: "the same, with as many in flight each", Bound: 3, Value: p.ratio(trawlRow, collyAsMany).Median, Unit: "×", Digits: 2,
		})
	}
	for _, name := range p.names {
		if strings.HasPrefix(name, spiderRow) {
			bars = append(bars, bar{
				Figure: "pages/s of one worker to " + name, Bound: 1, Value: p.ratio(best, name).Median, Unit: "×", Digits: 2,
			})
		}
	}
	median := func(of func(fleetCrawl) float64) float64 { return overOf(p.fleet, of).Median }
	return append(bars,
		bar{Figure: "CPU a page in the worker", AtMost: true, Bound: 220, Value: median(fleetCrawl.workerMicros), Unit: "µs"},
		bar{Figure: "Redis round trips a page", AtMost: true, Bound: 0.3, Value: median(fleetCrawl.tripsEach), Digits: 2},
		bar{
			Figure: "fetches a page", AtMost: true, Bound: 1, Digits: 2,
			Value: overOf(p.fleet, func(c fleetCrawl) float64 { return c.fetches / c.pages }).Max,
		})
}

func (c fleetCrawl) workerMicros() float64 { return c.CPU * 1e6 / c.pages }
func (c fleetCrawl) tripsEach() float64    { return c.trips / c.pages }

// costTable says what a page cost each kind of process in some crawls of a fleet, of which there is one at least.
func costTable(title string, runs []fleetCrawl) table {
	t := table{
		Title: title,
		Columns: []column{
			{"cpu_us", "CPU µs a page", 0, true},
			{"peak_mib", "peak MiB", 0, false},
			{"round_trips", "round trips to Redis a page", 2, false},
			{"commands", "commands a page", 1, false},
		},
		Notes: []string{"Commands are those that Redis carried out, those in scripts with them."},
	}
	micros := func(kinds ...string) cell {
		return overOf(runs, func(c fleetCrawl) float64 {
			sum := 0.0
			for _, kind := range kinds {
				sum += c.used[kind].CPU
			}
			return sum * 1e6 / c.pages
		})
	}
	ours := []string{"worker", "redis", "api"}
	for _, kind := range append(slices.Clone(ours), "site") {
		cells := map[string]cell{
			"cpu_us": micros(kind), "peak_mib": overOf(runs, func(c fleetCrawl) float64 { return c.used[kind].PeakMiB }),
		}
		switch kind {
		case "worker":
			cells["round_trips"] = overOf(runs, fleetCrawl.tripsEach)
		case "redis":
			cells["commands"] = overOf(runs, func(c fleetCrawl) float64 { return c.commands / c.pages })
		default:
		}
		t.Rows = append(t.Rows, row{kind, cells})
	}
	t.Rows = append(t.Rows, row{"worker, redis and api", map[string]cell{"cpu_us": micros(ours...)}})
	return t
}
