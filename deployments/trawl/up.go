package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/trawl/deployments/allinone"
	"example.com/trawl/pkg/config"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
)

// upCommand runs all of Trawl. Its flags are the settings of both binaries, which package
// config reads.
type upCommand struct {
	Settings []string `arg:"" optional:"" help:"The settings of API and worker; see trawl up --help."`
}

const aboutUp = `Runs all of Trawl in one process: API, worker and, unless a Redis is named, the store.
What it needs to be tried out it brings along: a key, and a small site to crawl.`

const (
	redisWithin = 5 * time.Second // how long a Redis may take to answer at the start

	// lookStarting is how often it is looked whether everything listens.
	lookStarting = 10 * time.Millisecond
)

// Run executes the command: it serves until it is asked to stop.
func (c *upCommand) Run(ctx context.Context, s *session) error {
	cfg, err := config.LoadAllInOne("trawl up", aboutUp, c.Settings, environOf(s), s.stdout)
	if errors.Is(err, config.ErrHelp) {
		return nil
	}
	site, stopSite, errSite := serveDemo(ctx)
	if errSite != nil {
		return errSite
	}
	defer stopSite()
	o, errOptions := upOptions(&cfg, site)
	if err = errors.Join(err, errOptions); err != nil {
		return err
	}
	o.Level = obs.NewLevel(cfg.LogLevel)
	if o.Logger, err = obs.Install(s.stderr, cfg.LogFormat, o.Level); err != nil {
		return config.In("TRAWL_LOG_FORMAT", err)
	}
	traces, err := obs.NewTraces(ctx, "trawl", o.Logger)
	if err != nil {
		return err
	}
	defer traces.Stop(ctx)
	o.Traces, o.Notify = traces.Provider(), obs.NewNotifier(o.Logger)
	redisconn.SetLogger(o.Logger)
	o.Logger.LogAttrs(ctx, slog.LevelInfo, "settings", cfg.Attrs()...)
	b := banner{self: s.self, cfg: &cfg, site: "http://" + site + "/"}
	if len(cfg.Keys) == 0 {
		b.key = rand.Text()
		o.Keys = map[string][]string{tenant: {b.key}}
	}
	return serve(ctx, s, o, &b)
}

// environOf returns the environment as os.Environ does.
func environOf(s *session) []string {
	environ := make([]string, 0, len(s.environ))
	for name, value := range s.environ {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// upOptions turns the settings into the options of the process. The built-in site, at the
// address site, may be crawled whatever they say. The error joins one for every fault.
func upOptions(cfg *config.AllInOne, site string) (allinone.Options, error) {
	_, errSources := crawl.ParseSources(cfg.AllowedSources) // without the site, to name the right entry
	sources, errBoth := crawl.ParseSources(cfg.AllowedSources + ",http://" + site + "/")
	if errSources == nil {
		errSources = errBoth
	}
	private, errPrivate := netguard.Parse(cfg.PrivateHosts + "," + site)
	denied, errDenied := netguard.ParseDenied(cfg.DeniedNetworks)
	o := allinone.Options{
		Listen: cfg.Listen, RedisURL: cfg.RedisURL, RedisWait: cfg.RedisWait, Keys: cfg.Keys,
		RedisTLS: redisconn.TLS(cfg.RedisTLS),
		AdminKey: cfg.AdminKey, MonitorWrite: cfg.MonitorWrite, GatewaySecret: cfg.GatewaySecret, Quota: crawl.Quota(cfg.Quota),
		Sources: sources, Private: private, Denied: denied, HostDelay: cfg.HostDelay, HostConcurrency: cfg.HostConcurrency,
		Concurrency: cfg.Concurrency, UserAgent: cfg.UserAgent, Grace: cfg.ShutdownGrace,
	}
	return o, errors.Join(
		config.In("TRAWL_ALLOWED_SOURCES", errSources), config.In("TRAWL_PRIVATE_HOSTS", errPrivate), config.In("TRAWL_DENIED_NETWORKS", errDenied),
	)
}

// serve runs the process until it is asked to stop, or fails.
func serve(ctx context.Context, s *session, o allinone.Options, b *banner) error {
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	if err := checkRedis(ctx, o.RedisURL, o.RedisTLS); err != nil {
		return err
	}
	process, err := allinone.New(o)
	if err != nil {
		return failuref("Trawl does not start: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Run(ctx) }()
	url, err := awaitURL(process, ended)
	if err != nil {
		return startFault(o.Listen, err)
	}
	if url != "" {
		b.url = url
		if _, err := io.WriteString(s.stdout, b.text()); err != nil {
			cancel()
			return errors.Join(err, <-ended)
		}
		select {
		case err := <-ended:
			if err != nil {
				return failuref("Trawl ended by itself: %w", err)
			}
			ended <- nil
		case <-s.asked:
			s.sayf("Stopping; press Ctrl-C again to leave at once.")
		}
	}
	if err := <-ended; err != nil {
		return failuref("Trawl did not stop in order: %w", err)
	}
	s.sayf("Stopped.")
	return nil
}

// awaitURL returns where the process is to be called once everything listens, "" when it
// was stopped before, and the error when it does not start.
func awaitURL(process *allinone.Process, ended chan error) (string, error) {
	ticker := time.NewTicker(lookStarting)
	defer ticker.Stop()
	for {
		if url := process.URL(); url != "" {
			return url, nil
		}
		select {
		case err := <-ended:
			ended <- nil // for who waits for the end
			return "", err
		case <-ticker.C:
		}
	}
}

// startFault names the setting that keeps the process from starting.
func startFault(listen string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return config.In("TRAWL_LISTEN", failuref(
			"%s is taken: another program listens there, perhaps Trawl itself. "+
				"Stop it, or choose another as in trawl up --listen 127.0.0.1:8018",
			listen))
	case errors.Is(err, syscall.EACCES):
		return config.In("TRAWL_LISTEN", failuref(
			"%s is not allowed: ports below 1024 are for root. Choose one above.", listen))
	default:
		return failuref("Trawl does not start: %w", err)
	}
}

// checkRedis asks the Redis that is named whether it is ready: to run on half of what is
// needed, and to say so in the log only, helps nobody who just started it.
func checkRedis(ctx context.Context, address string, files redisconn.TLS) error {
	if address == "" && files == (redisconn.TLS{}) {
		return nil
	}
	rdb, err := redisconn.Open(address, redisconn.Options{Name: "trawl-up", TLS: files})
	if err != nil {
		return config.In("TRAWL_REDIS_URL", err)
	}
	bounded, cancel := context.WithTimeout(ctx, redisWithin)
	defer cancel()
	err = store.New(rdb, store.Options{Logger: slog.New(slog.DiscardHandler)}).Ready(bounded)
	_ = rdb.Close() // it was asked one question
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if fault, ok := errors.AsType[*crawl.Fault](err); ok && fault.Err != nil {
		err = fault.Err // its own words are for callers of the API
	}
	return config.In("TRAWL_REDIS_URL", failuref(
		"the Redis that it names is not ready: %w\n"+
			"Start it, correct the address, or leave the setting out: then the store is in memory.",
		err))
}

// banner says what a person needs who has just started Trawl.
type banner struct {
	self string // how hints name the program
	cfg  *config.AllInOne
	key  string // that was made for this run; empty when the settings have keys
	url  string // of the API
	site string // URL of the built-in site
}

// shownSources is how many allowed sources are named.
const shownSources = 5

func (b *banner) text() string {
	var t strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&t, format+"\n", args...) } // to memory
	key, header, export := b.key, "'Authorization: Bearer "+b.key+"'", b.key
	if b.key == "" {
		key, header, export = b.cfg.Keys.String(), `"Authorization: Bearer $TRAWL_KEY"`, "…"
	} else {
		key += "  (made for this run; TRAWL_API_KEYS sets your own)"
	}
	line("Trawl is running at %s", b.url)
	line("  key        %s", key)
	line("  docs       %s/docs", b.url)
	line("  store      %s", b.storeText())
	line("  may crawl  %s", b.sourcesText())
	if b.cfg.AdminKey != "" {
		line("  monitor    %s/monitor (TRAWL_ADMIN_KEY opens it)", b.url)
	}
	if b.key == "" {
		line("Submit a job, with TRAWL_KEY set to a key of yours:")
	} else {
		line("Submit a job:")
	}
	line("  curl -sS %s/v1/jobs -H %s -H 'Content-Type: application/json' -d '{\"seed_url\": \"%s\"}'",
		b.url, header, b.site)
	line("Watch it from another terminal:")
	line("  export TRAWL_URL=%s TRAWL_KEY=%s", b.url, export)
	line("  %s list", b.self)
	line("Ctrl-C stops it.")
	return t.String()
}

func (b *banner) storeText() string {
	if b.cfg.RedisURL == "" {
		return "in the memory of this process: it forgets everything when it stops (TRAWL_REDIS_URL keeps it)"
	}
	if u, err := url.Parse(b.cfg.RedisURL); err == nil && u.Host != "" {
		return "the Redis at " + u.Host
	}
	return "the Redis that TRAWL_REDIS_URL names"
}

func (b *banner) sourcesText() string {
	demo := b.site + ", a small site to try it on"
	sources, err := crawl.ParseSources(b.cfg.AllowedSources)
	if err != nil {
		return demo // unreachable: it was parsed before
	}
	all := sources.Strings()
	if slices.Contains(all, "*") {
		return "every public host, and " + demo
	}
	if more := len(all) - shownSources; more > 0 {
		all = append(all[:shownSources], fmt.Sprintf("%d more", more))
	}
	return strings.Join(append(all, "and "+demo), ", ")
}
