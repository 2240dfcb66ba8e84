// Command bench measures what DESIGN promises about speed, side by side in one run:
// pages a second of one worker against colly's documented asynchronous idiom on the
// same site, full commits a second, bytes of Redis a discovered URL, round trips a
// page, and what it costs to take content out of one. It starts its own redis-server, which must be on PATH, and its own site, in
// processes of their own so that CPU is counted where it is spent.
//
//	go run ./deployments/bench            a table for people
//	go run ./deployments/bench --json     the same for programs
//	go run ./deployments/bench --pages 2000 --rounds 1    quickly
//	go run ./deployments/bench --scale 16                 the curve of pages/s against worker processes
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/alecthomas/kong"
)

type options struct {
	Pages    int    `default:"10000" help:"Pages of the site."`
	Links    int    `default:"20" help:"Links on each page."`
	Bytes    int    `default:"6000" help:"Bytes of each page."`
	Rounds   int    `default:"3" help:"Rounds of each contender, in turn; the median counts."`
	InFlight int    `default:"64" help:"Requests in flight of each contender."`
	URLs     int    `default:"200000" help:"URLs for the memory figure."`
	Commits  int    `default:"30000" help:"Commits for the commit figure."`
	JSON     bool   `help:"Write JSON."`
	Profile  string `help:"Write a CPU profile of the worker to this file."`
	Scale    int    `placeholder:"16" help:"Only what a page costs Redis, and pages/s of 1, 2, 4 and 8 workers, each with so many requests in flight, on a site that takes 100 to 200 ms."`
	Manual   string `placeholder:"DIR" help:"With scale: a folder of HTML whose index.html is crawled for its markdown, as what real pages take in Redis."`

	// Role is set for the processes that bench starts of itself.
	Role  string `hidden:"" enum:",site,worker,assist,colly" default:""`
	Redis string `hidden:""`
	Start string `hidden:""`
	// Latency of each page, for the figure of two workers.
	Latency time.Duration `hidden:""`
	// Extract is set for the site of articles, and for the worker that takes content out of them.
	Extract bool `hidden:""`
	// Most bounds the requests of a job and of its host, where one worker is not all there is.
	Most int `hidden:""`
}

// figures are what one run found. Medians over the rounds.
type figures struct {
	WorkerPagesPerSecond float64 `json:"worker_pages_per_second"`
	WorkerCPUMicros      float64 `json:"worker_cpu_us_per_page"`
	WorkerFetches        float64 `json:"worker_fetches_per_page"`
	WorkerPeakMiB        float64 `json:"worker_peak_mib"`
	RoundTrips           float64 `json:"redis_round_trips_per_page"`
	CollyPagesPerSecond  float64 `json:"colly_distinct_pages_per_second"`
	CollyCPUMicros       float64 `json:"colly_cpu_us_per_page"`
	CollyFetches         float64 `json:"colly_fetches_per_page"`
	CollyPeakMiB         float64 `json:"colly_peak_mib"`
	Ratio                float64 `json:"worker_to_colly"`
	CommitsPerSecond     float64 `json:"full_commits_per_second"`
	CommitMicros         float64 `json:"redis_cpu_us_per_full_commit"`
	BytesPerURL          float64 `json:"redis_bytes_per_url"`
	TwoWorkers           float64 `json:"two_workers_to_one"`

	// Of a job with formats and fields, on pages of 60 KB.
	ExtractPagesPerSecond float64 `json:"extract_pages_per_second"`
	ExtractCPUMicros      float64 `json:"extract_cpu_us_per_page"`
	Extraction            []stage `json:"extraction"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o options
	kong.Parse(&o, kong.Name("bench"), kong.Description("Measures Trawl against the bars of its design."))
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	switch o.Role {
	case "site":
		return serveSite(ctx, o, os.Stdout)
	case "worker", "assist":
		return runWorker(ctx, o)
	case "colly":
		return runColly(ctx, o)
	default:
		if o.Scale > 0 {
			return scale(ctx, o, os.Stdout)
		}
		return compare(ctx, o)
	}
}

// compare runs the contenders in turn.
func compare(ctx context.Context, o options) error {
	rdb, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer rdb.stop()
	site, err := startSelf(ctx, o, "site", "", "")
	if err != nil {
		return err
	}
	defer site.stop()
	address, err := site.line()
	if err != nil {
		return fmt.Errorf("the site did not start: %w", err)
	}
	var worker, colly []outcome
	for i := range o.Rounds {
		progress("round %d of %d: worker", i+1, o.Rounds)
		w, err := contender(ctx, o, "worker", rdb.url, address)
		if err != nil {
			return err
		}
		progress("round %d of %d: colly", i+1, o.Rounds)
		c, err := contender(ctx, o, "colly", "", address)
		if err != nil {
			return err
		}
		worker, colly = append(worker, w), append(colly, c)
	}
	f := figures{
		WorkerPagesPerSecond: median(worker, func(r outcome) float64 { return r.Pages / r.Seconds }),
		WorkerCPUMicros:      median(worker, func(r outcome) float64 { return r.CPUMicros / r.Pages }),
		WorkerFetches:        median(worker, func(r outcome) float64 { return r.Fetches / r.Pages }),
		WorkerPeakMiB:        median(worker, func(r outcome) float64 { return r.PeakMiB }),
		RoundTrips:           median(worker, func(r outcome) float64 { return r.Trips / r.Pages }),
		CollyPagesPerSecond:  median(colly, func(r outcome) float64 { return r.Pages / r.Seconds }),
		CollyCPUMicros:       median(colly, func(r outcome) float64 { return r.CPUMicros / r.Pages }),
		CollyFetches:         median(colly, func(r outcome) float64 { return r.Fetches / r.Pages }),
		CollyPeakMiB:         median(colly, func(r outcome) float64 { return r.PeakMiB }),
	}
	f.Ratio = f.WorkerPagesPerSecond / f.CollyPagesPerSecond
	progress("one worker and two, on pages that take 50 ms")
	if f.TwoWorkers, err = twoWorkers(ctx, o, rdb.url); err != nil {
		return err
	}
	progress("commits")
	if f.CommitsPerSecond, f.CommitMicros, err = commits(ctx, o, rdb.url); err != nil {
		return err
	}
	progress("memory")
	if f.BytesPerURL, err = memory(ctx, o, rdb.url); err != nil {
		return err
	}
	progress("extraction, on pages of %d bytes", articleBytes)
	x, err := extracting(ctx, o, rdb.url)
	if err != nil {
		return err
	}
	f.ExtractPagesPerSecond, f.ExtractCPUMicros = x.Pages/x.Seconds, x.CPUMicros/x.Pages
	if f.Extraction, err = stages(ctx); err != nil {
		return err
	}
	return report(os.Stdout, o, f)
}

// twoWorkers answers how much faster two workers crawl a site of 50 ms latency than one.
func twoWorkers(ctx context.Context, o options, redisURL string) (float64, error) {
	o.Latency = 50 * time.Millisecond
	site, err := startSelf(ctx, o, "site", "", "")
	if err != nil {
		return 0, err
	}
	defer site.stop()
	address, err := site.line()
	if err != nil {
		return 0, fmt.Errorf("the site did not start: %w", err)
	}
	one, err := contender(ctx, o, "worker", redisURL, address)
	if err != nil {
		return 0, err
	}
	second, err := startSelf(ctx, o, "assist", redisURL, address)
	if err != nil {
		return 0, err
	}
	defer second.stop()
	if _, err := second.line(); err != nil {
		return 0, fmt.Errorf("the second worker did not start: %w", err)
	}
	two, err := contender(ctx, o, "worker", redisURL, address)
	if err != nil {
		return 0, err
	}
	return one.Seconds / two.Seconds, nil
}

func median(rs []outcome, of func(outcome) float64) float64 {
	v := make([]float64, len(rs))
	for i, r := range rs {
		v[i] = of(r)
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

func report(w io.Writer, o options, f figures) error {
	if o.JSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(f)
	}
	_, err := fmt.Fprintf(w, `
%d pages of %d bytes with %d links, %d in flight, median of %d

                                   worker      colly's idiom      bar
  distinct pages/s               %8.0f           %8.0f      3 x colly (is %.1f x)
  CPU us a distinct page         %8.0f           %8.0f      220
  fetches a distinct page        %8.2f           %8.2f      1.00
  peak MiB of the process        %8.0f           %8.0f
  Redis round trips a page       %8.2f                  -      0.30
  two workers to one, 50 ms      %8.2f                  -        1.9
  full commits/s                 %8.0f                  -      15000
  Redis CPU us a full commit     %8.1f                  -         67
  Redis bytes a URL, 90%% queued  %8.0f                  -      170
`, o.Pages, o.Bytes, o.Links, o.InFlight, o.Rounds,
		f.WorkerPagesPerSecond, f.CollyPagesPerSecond, f.Ratio, f.WorkerCPUMicros, f.CollyCPUMicros,
		f.WorkerFetches, f.CollyFetches, f.WorkerPeakMiB, f.CollyPeakMiB, f.RoundTrips, f.TwoWorkers, f.CommitsPerSecond,
		f.CommitMicros, f.BytesPerURL)
	return errors.Join(err, reportExtraction(w, f))
}
