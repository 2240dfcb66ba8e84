// Command bench measures what DESIGN promises about speed: in one run, in turn, beside what people use instead, with the
// CPU time and the memory of each process as the operating system counts them. It starts Redis, which must be on PATH,
// the API, the workers and the sites that they crawl, all on loopback and each in a process of its own.
//
//	go run ./deployments/bench                    all parts, as tables for people
//	go run ./deployments/bench --only pages       one part
//	go run ./deployments/bench --json             the same for programs
//	go run ./deployments/bench --readme deployments/bench/README.md    puts the tables where they are published
//	go run ./deployments/bench --scale 16         the curve of pages/s against worker processes
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"example.com/trawl/pkg/redisconn"
)

type options struct {
	Only     []string `placeholder:"PART,..." help:"Only these parts: ${parts}."`
	Rounds   int      `default:"5" help:"Rounds of each contender, in turn; the median counts."`
	Pages    int      `default:"10000" help:"Pages of the site."`
	Links    int      `default:"20" help:"Links on each page."`
	Bytes    int      `default:"6000" help:"Bytes of each page."`
	InFlight int      `default:"64" help:"Requests in flight of each worker."`
	URLs     int      `name:"urls" default:"200000" help:"URLs for the memory of one URL."`
	Big      int      `default:"1000000" help:"Pages of the job that is called big."`
	Commits  int      `default:"30000" help:"Commits for the figures of the scripts alone."`
	JSON     bool     `help:"Write JSON."`
	Readme   string   `placeholder:"FILE" help:"Put the tables into this file as well, between its marks."`
	Profile  string   `placeholder:"DIR" help:"Write a CPU profile of each API and worker into this directory."`
	Scale    int      `placeholder:"16" help:"Only what a page costs Redis, and pages/s of 1, 2, 4 and 8 workers, each with so many requests in flight, on a site that takes 100 to 200 ms."`
	Manual   string   `placeholder:"DIR" help:"With scale: a folder of HTML whose index.html is crawled for its markdown, as what real pages take in Redis."`

	// Role is set for the processes that bench starts of itself.
	Role  string `hidden:"" enum:",${roles}" default:""`
	Start string `hidden:""` // URL of a site, or of an API
	// Latency of each page.
	Latency time.Duration `hidden:""`
	// Hosts is on how many addresses of 127.0.0.0/8 a site is served, all on one port.
	Hosts int `hidden:"" default:"1"`
	// Site is what kind of site is served.
	Site string `hidden:"" enum:",generated,uneven,articles,manual" default:"generated"`
	// Tell is what else a role is told, as it understands it.
	Tell string `hidden:""`
}

// part is one measurement of the run.
type part struct {
	name string // for --only, and in JSON
	does string // what is going on, while it is
	run  func(context.Context, *rig) (findings, error)
}

// parts are what is measured, in their order.
var parts = []part{
	{"pages", "pages/s and CPU a page, beside other crawlers", measurePages},
	{"workers", "one, two and four workers on a site that takes 50 ms a page", measureWorkers},
	{"small", "many small jobs", measureSmall},
	{"submissions", "submissions", measureSubmissions},
	{"reads", "reads of a small and of a big job", measureReads},
	{"memory", "memory of Redis and of a worker", measureMemory},
	{"scripts", "the scripts of the store alone", measureScripts},
	{"extraction", "content and fields of pages of 60 KB", measureExtraction},
}

// roles are what bench is when it is started by itself.
var roles = map[string]func(context.Context, options) error{
	"site":    runSite,
	"colly":   runColly,
	"floor":   runFloor,
	"callers": runCallers,
}

func names() (all []string) {
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

func roleNames() (all []string) {
	for name := range roles {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o options
	kong.Parse(&o, kong.Name("bench"), kong.Description("Measures Trawl against the bars of its design."),
		kong.Vars{"parts": strings.Join(names(), ", "), "roles": strings.Join(roleNames(), ",")})
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if role, ok := roles[o.Role]; ok {
		return role(ctx, o)
	}
	redisconn.SetLogger(slog.New(slog.DiscardHandler)) // that a Redis does not answer while it starts is no news
	if o.Scale > 0 {
		return scale(ctx, o, os.Stdout)
	}
	if err := o.check(); err != nil {
		return err
	}
	r, err := newRig(ctx, o)
	if err != nil {
		return err
	}
	defer r.close()
	out := report{Machine: describeMachine(ctx, r), Begun: time.Now().UTC()}
	for _, p := range parts {
		if len(o.Only) > 0 && !slices.Contains(o.Only, p.name) {
			continue
		}
		r.begin(p)
		found, err := p.run(ctx, r)
		if err != nil {
			fmt.Fprint(os.Stderr, out.text()) // what was measured until then took minutes
			return fmt.Errorf("%s: %w", p.name, err)
		}
		out.add(p, found)
	}
	out.Seconds = time.Since(out.Begun).Seconds()
	return out.write(os.Stdout, o)
}

// check says what is wrong with the options, before anything is measured.
func (o *options) check() error {
	for _, name := range o.Only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("there is no part %q; the parts are %s", name, strings.Join(names(), ", "))
		}
	}
	if o.Rounds < 1 {
		return errors.New("--rounds is 1 at least")
	}
	if o.Readme == "" {
		return nil
	}
	if len(o.Only) > 0 {
		return errors.New("--readme publishes whole runs: leave --only out")
	}
	_, _, err := around(o.Readme)
	return err
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
