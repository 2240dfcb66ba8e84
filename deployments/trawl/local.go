package main

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"example.com/trawl/deployments/allinone"
	"example.com/trawl/deployments/demosite"
	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/config"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/netguard"
)

// The politeness of a crawl without a server: what a site notices no more than a person.
const (
	hostDelay       = 500 * time.Millisecond
	hostConcurrency = 2

	// demoDelay is that towards the built-in site: short, yet a person sees the bar move.
	demoDelay = 50 * time.Millisecond
)

// Bounds of what is around such a crawl.
const (
	lookupWithin = 5 * time.Second // the addresses of all hosts
	stopWithin   = 5 * time.Second // the process

	lookLocal = 200 * time.Millisecond // between two looks at the job
)

// tenant is whose jobs they are when nobody said.
const tenant = "local"

// territory is what a crawl without a server may reach: what the command line names.
type territory struct {
	sources string // as crawl.ParseSources takes it
	private string // as netguard.Parse takes it
	local   bool   // whether all of it is on this machine
}

// territoryOf returns the hosts of urls, with their domains or everything if the scope is
// that wide. A named host whose addresses are all private may be reached, at the port that
// was named: the person asked for it. Nothing else that is private may.
func territoryOf(ctx context.Context, urls []crawl.URL, scope client.Scope) territory {
	ctx, cancel := context.WithTimeout(ctx, lookupWithin)
	defer cancel()
	var sources, private []string
	t := territory{local: true}
	for _, u := range urls {
		sources = append(sources, sourcesOf(u, scope)...)
		addrs := addresses(ctx, u.Hostname())
		if len(addrs) > 0 && !slices.ContainsFunc(addrs, netguard.Public) {
			for _, a := range addrs {
				private = append(private, net.JoinHostPort(a.String(), u.Port()))
			}
		}
		t.local = t.local && len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsLoopback() })
	}
	if scope == client.ScopeAny {
		sources, t.local = []string{"*"}, false
	}
	t.sources, t.private = strings.Join(sources, ","), strings.Join(private, ",")
	return t
}

// sourcesOf returns what may be crawled because u was named.
func sourcesOf(u crawl.URL, scope client.Scope) []string {
	_, port, err := net.SplitHostPort(u.Host())
	if err != nil {
		port = "" // the default of its scheme
	}
	source := func(host string) string {
		if port != "" {
			return host + ":" + port
		}
		return host // by http and https: many sites lead from one to the other
	}
	if port != "" && scope != client.ScopeDomain {
		return []string{u.Origin() + "/"}
	}
	host := strings.TrimSuffix(strings.TrimSuffix(u.Host(), ":"+port), ".")
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if _, errAddr := netip.ParseAddr(u.Hostname()); scope != client.ScopeDomain || err != nil || errAddr == nil {
		return []string{source(host)}
	}
	return []string{source(domain), source("*." + domain)}
}

// addresses returns what host stands for, nothing if that cannot be found out.
func addresses(ctx context.Context, host string) []netip.Addr {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // the crawl meets the same and records it as the reason
	}
	for i := range found {
		found[i] = found[i].WithZone("").Unmap()
	}
	return found
}

// localOptions say how the all-in-one inside `trawl crawl` is made.
type localOptions struct {
	territory
	delay  time.Duration // least time between two requests to one host
	logger *slog.Logger
}

// startLocal starts an all-in-one for one crawl. Nobody else knows its key.
func startLocal(ctx context.Context, s *session, o localOptions) (*server, func(), error) {
	sources, err := crawl.ParseSources(o.sources)
	if err != nil {
		return nil, nil, failuref("The hosts that are named cannot be allowed: %w", err)
	}
	private, err := netguard.Parse(o.private)
	if err != nil {
		return nil, nil, failuref("The private hosts that are named cannot be allowed: %w", err)
	}
	agent, err := userAgent(s)
	if err != nil {
		return nil, nil, err
	}
	key := rand.Text()
	process, err := allinone.New(allinone.Options{
		Keys: map[string][]string{tenant: {key}}, Sources: sources, Private: private,
		HostDelay: o.delay, HostConcurrency: hostConcurrency, UserAgent: agent, Logger: o.logger,
	})
	if err != nil {
		return nil, nil, failuref("The crawler does not start: %w", err)
	}
	if err := process.Start(ctx); err != nil {
		return nil, nil, failuref("The crawler does not start: %w", err)
	}
	stop := func() {
		bounded, cancel := context.WithTimeout(ctx, stopWithin)
		defer cancel()
		if err := process.Stop(bounded); err != nil {
			o.logger.WarnContext(ctx, "stop of the crawler", slog.Any("error", err))
		}
	}
	c, err := client.New(process.URL(), key, client.WithLongestLook(lookLocal))
	if err != nil {
		stop()
		return nil, nil, failuref("The crawler cannot be reached: %w", err)
	}
	return &server{Client: c}, stop, nil
}

// userAgent returns what the crawler calls itself, which TRAWL_USER_AGENT sets here as
// everywhere.
func userAgent(s *session) (string, error) {
	var environ []string
	if agent, ok := s.environ["TRAWL_USER_AGENT"]; ok {
		environ = append(environ, "TRAWL_USER_AGENT="+agent)
	}
	c, err := config.LoadAllInOne("trawl crawl", "", nil, environ, io.Discard)
	return c.UserAgent, err
}

// serveDemo serves the built-in site on a free port of this machine until stop is called.
func serveDemo(ctx context.Context) (addr string, stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, failuref("The built-in site finds no port to be served on: %w", err)
	}
	server := &http.Server{Handler: demosite.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // returns when it is closed
	}()
	return l.Addr().String(), func() {
		_ = server.Close() // a site for a demonstration has nothing to lose
		<-served
	}, nil
}
