package main

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"example.com/trawl/deployments/allinone"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/netguard"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

const (
	// command is what crawltest builds and runs: the real program, which gets real signals.
	command = "example.com/trawl/deployments/trawl"

	// within is how long a busy machine may take for what takes a second.
	within = time.Minute

	testKey = "key-of-the-tests-0123456789"
)

// startServer starts a server that crawls the sites given, with no delay between requests,
// and returns its URL.
func startServer(t *testing.T, sites ...string) string {
	t.Helper()
	var private []string
	for _, site := range sites {
		u, err := url.Parse(site)
		if err != nil {
			t.Fatal(err)
		}
		private = append(private, u.Host)
	}
	sources, err := crawl.ParseSources(strings.Join(sites, ","))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := netguard.Parse(strings.Join(private, ","))
	if err != nil {
		t.Fatal(err)
	}
	p, err := allinone.New(allinone.Options{
		Keys: map[string][]string{"tests": {testKey}}, Sources: sources, Private: policy,
		HostConcurrency: 2, UserAgent: "trawl-tests", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return p.URL()
}
