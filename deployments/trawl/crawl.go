package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/redisconn"
)

// crawlCommand crawls, inside this process or on a server.
type crawlCommand struct {
	URLs []string `arg:"" optional:"" name:"url" help:"Where to begin. Without one the small site that is built in is crawled."`

	MaxPages     *int64         `name:"max-pages" placeholder:"N" help:"How many URLs are taken at most; by default 100."`
	MaxDepth     *int           `name:"max-depth" placeholder:"N" help:"How many links away from the beginning; by default 5, 0 is the beginning alone."`
	Scope        string         `enum:"prefix,host,domain,any" default:"host" help:"Which links are followed: below the directory of a URL (prefix), on its host, on its whole domain, or any."`
	Include      []string       `sep:"none" placeholder:"PATTERN" help:"Follow only links that match: a glob such as /docs/**, or re: and an expression. May be repeated."`
	Exclude      []string       `sep:"none" placeholder:"PATTERN" help:"Follow no link that matches. May be repeated."`
	NoFollow     bool           `name:"no-follow" help:"Just these pages: follow no link."`
	Sitemap      string         `enum:"include,only,skip" default:"include" help:"What the sitemaps of the hosts list is crawled as well (include), or nothing else is (only), or they are not read (skip)."`
	Concurrency  *int           `placeholder:"N" help:"How many pages are fetched at once; by default 8, of one host 2."`
	Delay        *time.Duration `placeholder:"TIME" help:"Time between two requests to one host, as 2s; not less than 500ms, on this machine 0s too."`
	TimeLimit    *time.Duration `name:"time-limit" placeholder:"TIME" help:"How long it may take, as 10m; by default 1h."`
	IgnoreRobots bool           `name:"ignore-robots" help:"For your own sites: crawl what robots.txt, noindex and nofollow ask not to."`
	Headers      []string       `name:"header" sep:"none" placeholder:"'NAME: VALUE'" help:"Sent with every request to the hosts that you name, and to no other. May be repeated."`
	UserAgent    string         `name:"user-agent" placeholder:"TEXT" help:"What the crawler calls itself, as ExampleBot/1.0 (+https://example.org/bot)."`

	contentFlags
	Collection string `placeholder:"NAME" help:"Where the records enter that outlive the job, on a server: it tells what is new, changed or gone."`

	Tags []string `name:"tag" sep:"none" placeholder:"TAG" help:"A label to find the job by. May be repeated."`
	Key  *string  `name:"idempotency-key" placeholder:"ID" help:"Names the submission on a server: the same ID with the same input is the same job."`

	outputFlags
	progressFlags
	Verbose bool `short:"v" help:"Show the log of the crawler, when it runs here."`

	Server serverFlags `embed:""`
}

// Help returns examples for the help of the command.
func (*crawlCommand) Help() string {
	return `Pages are written to standard output as they are found (json and csv: at the end); what goes on is shown on
standard error. Ctrl-C stops the job and keeps what was found.

Examples:

    trawl crawl https://docs.python.org/3/tutorial/ --scope prefix --max-pages 20 -o pages.ndjson
    trawl crawl --no-follow --format text https://example.org/ https://example.com/
    TRAWL_URL=https://trawl.example.org trawl crawl https://docs.example.org/
    trawl crawl --keep markdown,metadata --main-content -o pages.ndjson https://docs.example.org/
    trawl crawl --fields fields.json --format csv -o prices.csv https://shop.example.org/

` + fieldsHelp + `

"trawl extract" tries it on one page.

Why a page is missing is counted in the summary under skipped and refused, and said of
each URL by "trawl urls JOB". The common reasons:

    alias         it redirects to a page that was recorded
    robots        its robots.txt does not allow it
    noindex       it asks not to be kept; its links were followed
    source        a host that was not named, or that the server does not allow
    out_of_scope  outside of --scope
    scheme        mailto: and the like
    page_limit    beyond --max-pages
    depth         beyond --max-depth

The exit code is 0 when all went well, 1 when some pages failed or the job was cut short,
2 when it failed or was refused, and 130 after Ctrl-C.`
}

// Run executes the command.
func (c *crawlCommand) Run(ctx context.Context, s *session) error {
	urls, err := parseURLs(c.URLs)
	if err != nil {
		return err
	}
	if err := c.load(); err != nil {
		return err
	}
	onServer := c.Server.named(s) != ""
	if err := errors.Join(c.check(onServer), c.outputFlags.check()); err != nil {
		return err
	}
	show := newDisplay(s, &c.progressFlags, true)
	defer show.close()
	for _, text := range c.prefixNotes(urls) {
		show.note(text)
	}
	var srv *server
	spec := c.spec()
	if c.Format == formatCSV && len(c.Keep) > 0 && len(c.Columns) == 0 {
		show.note("--keep: a table has content only where --columns names it, as url," + c.Keep[0] + ".")
	}
	if spec.Collection != nil && !onServer {
		show.note("The collection ends with this crawl, since no server keeps it; --url or TRAWL_URL names one.")
	}
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
	switch {
	case !onServer && c.Key != nil:
		faults = append(faults, "--idempotency-key: it is for a server, which --url or TRAWL_URL names.")
	case c.Key != nil && !idempotencyKey.MatchString(*c.Key):
		faults = append(faults, badIdempotencyKey)
	}
	// Zero stands for the default further on, and would be taken for it in silence.
	if c.MaxPages != nil && *c.MaxPages < 1 {
		faults = append(faults, "--max-pages: "+wanted["--max-pages"]+".")
	}
	if c.Concurrency != nil && *c.Concurrency < 1 {
		faults = append(faults, "--concurrency: "+wanted["--concurrency"]+".")
	}
	if c.TimeLimit != nil && *c.TimeLimit <= 0 {
		faults = append(faults, "--time-limit: give at least 1s.")
	}
	if c.Delay != nil && (*c.Delay < 0 || *c.Delay == 0 && onServer) {
		faults = append(faults, "--delay: give more than 0s, or leave it out for the shortest that is allowed.")
	}
	faults = append(faults, c.followFaults()...)
	if in := c.taking.Collection; c.Collection != "" && in != nil && in.Name != "" && in.Name != c.Collection {
		faults = append(faults, "--collection: "+c.Fields+" names another one, "+in.Name+"; leave one of them out.")
	}
	_, headerFaults := parseHeaders(c.Headers)
	faults = append(faults, headerFaults...)
	if faults != nil {
		return badUsage(faults...)
	}
	return nil
}

// followFaults finds what says which links are followed although none is.
func (c *crawlCommand) followFaults() []string {
	if !c.NoFollow {
		return nil
	}
	var faults []string
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"--max-pages", c.MaxPages != nil},
		{"--max-depth", c.MaxDepth != nil},
		{"--scope", c.Scope != string(client.ScopeHost)},
		{"--include", len(c.Include) > 0},
		{"--exclude", len(c.Exclude) > 0},
		{"--sitemap", c.Sitemap != string(client.SitemapInclude)},
	} {
		if f.given {
			faults = append(faults, f.name+": is for following links; leave it or --no-follow out.")
		}
	}
	return faults
}

// collection returns what flag and file say of the collection, nil for none.
func (c *crawlCommand) collection() *client.Collection {
	if c.Collection == "" {
		return c.taking.Collection
	}
	out := client.Collection{Name: c.Collection}
	if in := c.taking.Collection; in != nil {
		out.Key, out.Facets, out.Numbers = in.Key, in.Facets, in.Numbers
	}
	return &out
}

// idempotencyKey matches what names a submission, as the client takes it.
var idempotencyKey = regexp.MustCompile(`^[!-~]{1,255}$`)

const badIdempotencyKey = "--idempotency-key: give 1 to 255 visible ASCII characters."

// spec returns what is submitted. Scope and sitemap are left out where they are the default:
// given, they would be refused for a list of pages.
func (c *crawlCommand) spec() client.Spec {
	headers, _ := parseHeaders(c.Headers)
	spec := client.Spec{MaxDepth: c.MaxDepth, Include: c.Include, Exclude: c.Exclude, Tags: c.Tags}
	spec.Headers, spec.UserAgent = headers, c.UserAgent
	spec.Formats, spec.MainContent = c.formats(), c.MainContent
	spec.Fields, spec.Items, spec.ListPages = c.taking.Fields, c.taking.Items, c.taking.ListPages
	spec.Collection = c.collection()
	c.inputs(&spec, c.URLs)
	if c.Scope != string(client.ScopeHost) {
		spec.Scope = client.Scope(c.Scope)
	}
	if c.Sitemap != string(client.SitemapInclude) {
		spec.Sitemap = client.Sitemap(c.Sitemap)
	}
	if c.IgnoreRobots {
		spec.RespectRobots = new(false)
	}
	spec.MaxPages = valueOf(c.MaxPages)
	spec.Concurrency = valueOf(c.Concurrency)
	spec.Delay = valueOf(c.Delay)
	spec.TimeLimit = valueOf(c.TimeLimit)
	return spec
}

// parseHeaders reads the values of --header. No fault repeats one: it may hold what nobody
// is to see.
func parseHeaders(args []string) (headers map[string]string, faults []string) {
	headers, seen := map[string]string{}, map[string]bool{}
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, ":")
		name = strings.TrimSpace(name)
		lower := strings.ToLower(name)
		switch {
		case !ok || name == "":
			faults = append(faults, "--header: write it like 'Accept-Language: de'.")
		case seen[lower]:
			faults = append(faults, "--header: "+name+" is given twice; give it once.")
		default:
			headers[name], seen[lower] = strings.TrimSpace(value), true
		}
	}
	return headers, faults
}

// prefixNotes says what a scope of prefix stands for where a URL has no slash at its end:
// the directory of the URL, which is more than a person may think.
func (c *crawlCommand) prefixNotes(urls []crawl.URL) []string {
	if c.Scope != string(client.ScopePrefix) {
		return nil
	}
	var notes []string
	for _, u := range urls {
		whole, _, _ := strings.Cut(u.String(), "?")
		slash := strings.LastIndexByte(whole, '/') + 1
		if last := whole[slash:]; last != "" && !strings.Contains(last, ".") {
			notes = append(notes, "--scope prefix: links below "+whole[:slash]+" are followed; write "+
				whole+"/ for what is below "+last+".")
		}
	}
	return notes
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
