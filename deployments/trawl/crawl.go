package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/redisconn"
)

// crawlCommand crawls, inside this process or on a server.
type crawlCommand struct {
	URLs []string `arg:"" optional:"" name:"url" help:"Where to begin. Without one the small site that is built in is crawled."`

	MaxPages    *int64         `name:"max-pages" placeholder:"N" help:"How many URLs are taken at most; by default 100."`
	MaxDepth    *int           `name:"max-depth" placeholder:"N" help:"How many links away from the beginning; by default 5, 0 is the beginning alone."`
	Scope       string         `enum:"prefix,host,domain,any" default:"host" help:"Which links are followed: below the directory of a URL (prefix), on its host, on its whole domain, or any."`
	Include     []string       `sep:"none" placeholder:"PATTERN" help:"Follow only links that match: a glob such as /docs/**, or re: and an expression. May be repeated."`
	Exclude     []string       `sep:"none" placeholder:"PATTERN" help:"Follow no link that matches. May be repeated."`
	NoFollow    bool           `name:"no-follow" help:"Just these pages: follow no link."`
	Concurrency *int           `placeholder:"N" help:"How many pages are fetched at once; by default 8, of one host 2."`
	Delay       *time.Duration `placeholder:"TIME" help:"Time between two requests to one host, as 2s; not less than 500ms, on this machine 0s too."`
	TimeLimit   *time.Duration `name:"time-limit" placeholder:"TIME" help:"How long it may take, as 10m; by default 1h."`
	Tags        []string       `name:"tag" sep:"none" placeholder:"TAG" help:"A label to find the job by. May be repeated."`
	Key         string         `name:"idempotency-key" placeholder:"ID" help:"Names the submission on a server: the same ID with the same input is the same job."`

	outputFlags
	progressFlags
	Verbose bool `short:"v" help:"Show the log of the crawler, when it runs here."`

	Server serverFlags `embed:""`
}

// Help returns examples for the help of the command.
func (*crawlCommand) Help() string {
	return `Pages are written to standard output as they are found; what goes on is shown on
standard error. Ctrl-C stops the job and keeps what was found.

Examples:

    trawl crawl https://docs.python.org/3/tutorial/ --scope prefix --max-pages 20 -o pages.ndjson
    trawl crawl --no-follow --format text https://example.org/ https://example.com/
    TRAWL_URL=https://trawl.example.org trawl crawl https://docs.example.org/

The exit code is 0 when all went well, 1 when some pages failed or the job was cut short,
2 when it failed or was refused, and 130 after Ctrl-C.`
}

// Run executes the command.
func (c *crawlCommand) Run(ctx context.Context, s *session) error {
	urls, err := parseURLs(c.URLs)
	if err != nil {
		return err
	}
	onServer := c.Server.named(s) != ""
	if err := errors.Join(c.check(onServer), c.outputFlags.check()); err != nil {
		return err
	}
	show := newDisplay(s, &c.progressFlags)
	defer show.close()
	var srv *server
	spec := c.spec()
	if onServer {
		srv, err = c.Server.connect(s)
	} else {
		var stop func()
		srv, stop, err = c.local(ctx, s, urls, &spec, show)
		if err == nil {
			defer stop()
		}
	}
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	return c.crawl(ctx, s, srv, spec, show)
}

// check finds what is wrong with the flags that the service would not say, or in other words.
func (c *crawlCommand) check(onServer bool) error {
	var faults []string
	if onServer && len(c.URLs) == 0 {
		faults = append(faults, "Give a URL to crawl: the built-in site is not on the server "+
			"(without --url and TRAWL_URL it is crawled here).")
	}
	if !onServer && c.Key != "" {
		faults = append(faults, "--idempotency-key: it is for a server, which --url or TRAWL_URL names.")
	}
	// Zero stands for the default further on, and would be taken for it in silence.
	if c.MaxPages != nil && *c.MaxPages < 1 {
		faults = append(faults, "--max-pages: give at least 1.")
	}
	if c.Concurrency != nil && *c.Concurrency < 1 {
		faults = append(faults, "--concurrency: give at least 1.")
	}
	if c.TimeLimit != nil && *c.TimeLimit <= 0 {
		faults = append(faults, "--time-limit: give at least 1s.")
	}
	if c.Delay != nil && (*c.Delay < 0 || *c.Delay == 0 && onServer) {
		faults = append(faults, "--delay: give more than 0s, or leave it out for the shortest that is allowed.")
	}
	if faults != nil {
		return badUsage(faults...)
	}
	return nil
}

// spec returns what is submitted. Scope is left out where it is the default: given, it
// would be refused for a list of pages.
func (c *crawlCommand) spec() client.Spec {
	spec := client.Spec{MaxDepth: c.MaxDepth, Include: c.Include, Exclude: c.Exclude, Tags: c.Tags}
	c.inputs(&spec, c.URLs)
	if c.Scope != string(client.ScopeHost) {
		spec.Scope = client.Scope(c.Scope)
	}
	spec.MaxPages = valueOf(c.MaxPages)
	spec.Concurrency = valueOf(c.Concurrency)
	spec.Delay = valueOf(c.Delay)
	spec.TimeLimit = valueOf(c.TimeLimit)
	return spec
}

func valueOf[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// inputs puts URLs where they belong.
func (c *crawlCommand) inputs(spec *client.Spec, urls []string) {
	switch {
	case c.NoFollow:
		spec.URLs = urls
	case len(urls) == 1:
		spec.SeedURL = urls[0]
	default:
		spec.Seeds = urls
	}
}

// local starts what is needed to crawl inside this process.
func (c *crawlCommand) local(
	ctx context.Context, s *session, urls []crawl.URL, spec *client.Spec, show *display,
) (*server, func(), error) {
	var (
		o     localOptions
		usual = hostDelay
		stops []func()
	)
	stop := func() {
		for i := len(stops) - 1; i >= 0; i-- {
			stops[i]()
		}
	}
	if len(urls) == 0 {
		show.note("No URL given: crawling the small site that is built in.")
		addr, stopSite, err := serveDemo(ctx)
		if err != nil {
			return nil, nil, err
		}
		stops = append(stops, stopSite)
		site := "http://" + addr + "/"
		o.territory, usual = territory{sources: site, private: addr, local: true}, demoDelay
		c.inputs(spec, []string{site})
	} else {
		lookup, cancel := s.interruptible(ctx)
		o.territory = territoryOf(lookup, urls, client.Scope(c.Scope))
		cancel()
		if s.interrupted() {
			return nil, nil, exitError(exitInterrupted)
		}
	}
	o.delay = c.hostDelay(o.local, usual, spec)
	logger, err := c.logger(s, show)
	if err == nil {
		var stopAll func()
		o.logger = logger
		var srv *server
		if srv, stopAll, err = startLocal(ctx, s, o); err == nil {
			stops = append(stops, stopAll)
			return srv, stop, nil
		}
	}
	stop()
	return nil, nil, err
}

// hostDelay returns the delay that the crawler keeps to every host. Less than usual is for
// this machine only: towards others politeness is not up for choice, and the service
// refuses a spec that asks for less.
func (c *crawlCommand) hostDelay(local bool, usual time.Duration, spec *client.Spec) time.Duration {
	if c.Delay != nil && *c.Delay < usual && local {
		spec.Delay = 0
		return *c.Delay
	}
	if c.Delay != nil && *c.Delay == 0 {
		spec.Delay = time.Nanosecond // so that it is refused by its bound and not taken for the default
	}
	return usual
}

// logger returns where the crawler logs to, and sets that of the Redis client too.
func (c *crawlCommand) logger(s *session, show *display) (*slog.Logger, error) {
	w := io.Discard
	if c.Verbose {
		w = show.writer(s.stderr)
	}
	log, err := obs.Install(w, obs.FormatText, slog.LevelInfo)
	if err == nil {
		redisconn.SetLogger(log)
	}
	return log, err
}
