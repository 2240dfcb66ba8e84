package allinone_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/trawl/deployments/allinone"
	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
	"example.com/trawl/pkg/netguard"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

const long = time.Minute

// options are those of a process that may crawl this machine, as fast as it can.
func options(t *testing.T) (o allinone.Options, key string) {
	t.Helper()
	sources, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	private, err := netguard.Parse("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	key = crawltest.Random() + crawltest.Random()
	return allinone.Options{
		Keys: map[string][]string{"a": {key}}, Sources: sources, Private: private, HostConcurrency: 32,
		UserAgent: "TrawlTest/1", Logger: slog.New(slog.DiscardHandler),
	}, key
}

// run starts a process that ends with the test.
func run(t *testing.T, o allinone.Options, key string) (*allinone.Process, *client.Client) {
	t.Helper()
	p, err := allinone.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop(t, p)
	})
	c, err := client.New(p.URL(), key, client.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	return p, c
}

// stop stops p, which never takes as long as this.
func stop(t *testing.T, p *allinone.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// A job is submitted, crawled, and read, all in this process.
func TestCrawl(t *testing.T) {
	t.Parallel()
	const pages = 300
	pool := gensite.New(pages, 10, 2000, 0)
	site := crawltest.NewHandlerSite(t, pool)
	o, key := options(t)
	_, c := run(t, o, key)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	job, err := c.Submit(ctx, client.Spec{SeedURL: site.URL + "/p/0", MaxPages: 10_000, MaxDepth: new(100), Concurrency: 32})
	if err != nil {
		t.Fatal(err)
	}
	end, err := c.Wait(ctx, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	if end.State != client.Completed || end.Total != pages || end.Accepted != pages || pool.Total() != pages {
		t.Errorf("ended as %+v after %d requests, want %d pages, each once", end, pool.Total(), pages)
	}
	seen := map[string]bool{}
	for r, err := range c.Records(ctx, job.ID) {
		if err != nil {
			t.Fatal(err)
		}
		seen[r.URL] = true
	}
	if len(seen) != pages {
		t.Errorf("%d different records, want %d", len(seen), pages)
	}
}

// What a process leaves in a Redis of its own, the next one goes on with.
func TestRestart(t *testing.T) {
	t.Parallel()
	const pages = 60
	redis := crawltest.Private(t)
	pool := gensite.New(pages, 4, 500, 20*time.Millisecond)
	site := crawltest.NewHandlerSite(t, pool)
	o, key := options(t)
	o.RedisURL, o.HostConcurrency, o.Grace = redis.URL, 2, 5*time.Second
	first, c := run(t, o, key)
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	job, err := c.Submit(ctx, client.Spec{SeedURL: site.URL + "/p/0", MaxDepth: new(100)})
	if err != nil {
		t.Fatal(err)
	}
	crawltest.Eventually(t, long, "some pages fetched", func() bool { return pool.Total() > 5 })
	stop(t, first)
	if n := pool.Total(); n >= pages {
		t.Fatalf("all %d pages were fetched before the restart", n)
	}
	_, c = run(t, o, key)
	end, err := c.Wait(ctx, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	if end.State != client.Completed || end.Accepted != pages || pool.Total() != pages {
		t.Errorf("ended as %+v after %d requests, want %d pages, each once", end, pool.Total(), pages)
	}
}

// Whatever cannot start leaves nothing behind: crawltest.Main looks for it.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	for name, change := range map[string]func(*allinone.Options){
		"TRAWL_LISTEN": func(o *allinone.Options) { o.Listen = taken.Addr().String() },
		"redis":        func(o *allinone.Options) { o.RedisURL = "http://127.0.0.1" },
		"tenant":       func(o *allinone.Options) { o.Keys = map[string][]string{"not one": {"k"}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _ := options(t)
			change(&o)
			p, err := allinone.New(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(t.Context()); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(name)) {
				t.Errorf("the start ended with %v, want a word about %s", err, name)
			}
			if p.URL() != "" {
				t.Errorf("a process that does not run is at %s", p.URL())
			}
			stop(t, p)
		})
	}
	_, err = allinone.New(allinone.Options{})
	for _, name := range []string{"Keys", "HostConcurrency", "UserAgent", "Logger"} {
		if err == nil || !strings.Contains(err.Error(), "option "+name+" is missing") {
			t.Errorf("without any option New answers %v, want a word about %s", err, name)
		}
	}
}

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	o, _ := options(t)
	p, err := allinone.New(o)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, p) // before the start
	if err := p.Start(t.Context()); err == nil {
		t.Error("a stopped process was started")
	}
	o, key := options(t)
	p, _ = run(t, o, key)
	if err := p.Start(t.Context()); err == nil {
		t.Error("a process was started twice")
	}
	stop(t, p)
	stop(t, p)
}

// Run ends well when it is told to, with a job under way.
func TestRun(t *testing.T) {
	t.Parallel()
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done() // an answer never comes
	}))
	o, key := options(t)
	o.Listen = crawltest.FreeAddr(t)
	p, err := allinone.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.New("http://"+o.Listen, key, client.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	// The client comes again some times only, and a busy machine starts slowly.
	crawltest.Eventually(t, long, "the process listens", func() bool { return p.URL() != "" })
	job, err := c.Submit(ctx, client.Spec{URLs: []string{site.URL + "/never"}, RespectRobots: new(false)})
	if err != nil {
		t.Fatal(err)
	}
	site.Await(long, "/never", 1)
	if job, err := c.Job(ctx, job.ID); err != nil || job.State != client.Running {
		t.Errorf("the job is %+v, %v", job, err)
	}
	cancel()
	if err := crawltest.Receive(t, long, "end of Run", ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
