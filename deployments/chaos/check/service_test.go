package check

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.com/trawl/deployments/allinone"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/netguard"
)

// The service as it is, without faults, breaks no promise, and every kind of call is made.
func TestService(t *testing.T) {
	t.Parallel()
	redis := crawltest.Any(t)
	site := NewSite(7)
	var hosts []string
	for range 2 {
		srv := httptest.NewServer(site)
		t.Cleanup(srv.Close)
		hosts = append(hosts, strings.TrimPrefix(srv.URL, "http://"))
	}
	private, err := netguard.Parse("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	keys, all := map[string]string{}, map[string][]string{}
	for range 3 {
		tenant := crawltest.Tenant(t)
		keys[tenant] = crawltest.Random() + crawltest.Random()
		all[tenant] = []string{keys[tenant]}
	}
	p, err := allinone.New(allinone.Options{
		RedisURL: redis.URL, Keys: all, Sources: sources, Private: private, HostConcurrency: 64, Concurrency: 32,
		Quota: crawl.Quota{MaxRunning: 3}, UserAgent: "Chaos/1.0 (+https://example.org/)", Grace: time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	l := New(Options{
		Seed: 7, API: p.URL, Key: keys, Site: hosts[0], Sites: hosts[1:], Redis: redis.Client,
		Log: t.Logf, Violate: func(text string) { t.Error(text) }, InFlight: 6, Server: site,
		Kills: func() int64 { return 0 },
		// Nothing is promised of seconds on a machine that is busy with other tests.
		Quiet: func() bool { return false },
	})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	ran := make(chan struct{}, 1)
	go func() {
		l.Run(ctx)
		ran <- struct{}{}
	}()
	rng := rand.New(rand.NewPCG(7, 7))
	for _, kind := range Kinds {
		crawltest.Eventually(t, time.Minute, kind, func() bool { return l.Do(kind, rng) })
	}
	crawltest.Eventually(t, time.Minute, "some jobs", func() bool { return len(l.all()) > 12 })
	stop()
	crawltest.Receive(t, time.Minute, "the end of the load", ran)
	ctx, stop = context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	r := l.Finish(ctx)
	if r.Jobs <= 12 || r.Pages == 0 || r.Records == 0 || r.StatusReads == 0 || r.RedisLooks == 0 || r.SiteRequests == 0 {
		t.Errorf("%+v", r)
	}
	for _, kind := range Kinds {
		if r.Controls[kind] == 0 {
			t.Errorf("%s was not done", kind)
		}
	}
	t.Logf("%+v", r)
}
