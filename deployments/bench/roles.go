package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/gocolly/colly/v2"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest/gensite"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

// serveSite serves the generated site until it is ended; /-/reset forgets the hits,
// /-/total answers them. Its address is the one line that it writes to w.
func serveSite(ctx context.Context, o options, w io.Writer) error {
	var site interface {
		http.Handler
		Reset()
		Total() int64
		Distinct() int64
	} = gensite.New(o.Pages, o.Links, o.Bytes, o.Latency)
	switch {
	case o.Manual != "":
		site = &manual{Handler: http.FileServer(http.Dir(o.Manual))}
	case o.Extract:
		site = newArticles(o.Pages, o.Links)
	case o.Most > 0:
		site = &uneven{Site: gensite.New(o.Pages, o.Links, o.Bytes, 0), mean: o.Latency}
	}
	mux := http.NewServeMux()
	mux.Handle("/", site)
	mux.HandleFunc("/-/reset", func(http.ResponseWriter, *http.Request) { site.Reset() })
	mux.HandleFunc("/-/total", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, site.Total(), site.Distinct()) // who hung up is told nothing
	})
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if _, err := fmt.Fprintf(w, "http://%s\n", l.Addr()); err != nil {
		return errors.Join(fmt.Errorf("tell the address: %w", err), l.Close())
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return srv.Serve(l)
}

func ask(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}
	c := &http.Client{Timeout: 10 * time.Second}
	res, err := c.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

// measured runs a crawl of the site and writes its outcome.
func measured(ctx context.Context, o options, crawlSite func() (trips int64, err error)) (err error) {
	if _, err := ask(ctx, o.Start+"/-/reset"); err != nil {
		return err
	}
	if o.Profile != "" && o.Role == "worker" {
		f, err := os.Create(o.Profile)
		if err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }() // a profile that is not whole is none
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	cpu, _ := usage()
	begun := time.Now()
	trips, err := crawlSite()
	if err != nil {
		return err
	}
	r := outcome{Seconds: time.Since(begun).Seconds(), Trips: float64(trips)}
	after, peak := usage()
	r.CPUMicros, r.PeakMiB = after-cpu, peak
	total, err := ask(ctx, o.Start+"/-/total")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(total, &r.Fetches, &r.Pages); err != nil {
		return fmt.Errorf("hits of the site: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// runWorker crawls with one worker through Redis: the bench job of the design. One that
// assists serves what another submits, until it is ended.
func runWorker(ctx context.Context, o options) error {
	rdb, err := redisconn.Open(o.Redis, redisconn.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	policy, err := netguard.Parse("127.0.0.1")
	if err != nil {
		return err
	}
	sources, err := crawl.ParseSources("*")
	if err != nil {
		return err
	}
	most := o.InFlight // of the job and of its host: not below what the workers hold
	switch {
	case o.Most > 0:
		most = o.Most
	case o.Latency > 0:
		most *= 2
	}
	st, bell := store.New(rdb, store.Options{}), queue.NewDoorbell(rdb)
	p, err := crawler.NewProcess(crawler.ProcessOptions{
		Options: crawler.Options{
			Store: st, Doorbell: bell, Logger: slog.New(slog.DiscardHandler), Sources: sources,
			Concurrency: o.InFlight, HostConcurrency: most,
		},
		Fetch:    fetch.Options{Dial: netguard.New(policy).DialContext, MaxConnsPerHost: o.InFlight},
		RedisURL: o.Redis,
	})
	if err != nil {
		return err
	}
	if err := p.Start(ctx); err != nil {
		return err
	}
	defer func() { _ = p.Stop(context.WithoutCancel(ctx)) }()
	if o.Role == "assist" {
		if _, err := fmt.Fprintln(os.Stdout, "ready"); err != nil {
			return fmt.Errorf("say that it is ready: %w", err)
		}
		<-ctx.Done()
		return nil
	}
	job := crawl.JobRef{Tenant: "bench", ID: crawl.NewJobID("bench", "")}
	seed, err := crawl.ParseURL(o.Start + "/p/0")
	if err != nil {
		return err
	}
	plan := crawl.Plan{
		Site: true, Scope: "host", Seeds: []string{seed.String()}, Sources: []string{"*"}, MaxPages: 1_000_000,
		MaxDepth: 100, Concurrency: most, HostConcurrency: most, Retention: time.Minute,
	}
	if o.Extract {
		// The links that articles have beside those to each other lead nowhere.
		plan.Include = []string{"/p/*"}
		if err := extraction(&plan); err != nil {
			return err
		}
	}
	return measured(ctx, o, func() (int64, error) {
		c, err := st.Create(ctx, store.NewJob{
			Job: job, Spec: []byte(`{}`), Quota: crawl.Quota{MaxRunning: 100}, Inputs: []crawl.Input{{URL: seed}}, Plan: plan,
		})
		if err != nil {
			return 0, err
		}
		if err := bell.Ring(ctx, c.Rings...); err != nil {
			return 0, err
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		before, looks := st.Trips(), int64(0)
		for range tick.C {
			j, err := st.Job(ctx, job)
			if err != nil {
				return 0, err
			}
			looks++
			if j.State.Terminal() {
				if j.Accepted != int64(o.Pages) {
					return 0, fmt.Errorf("accepted %d of %d pages: %+v", j.Accepted, o.Pages, j)
				}
				break
			}
		}
		return st.Trips() - before - looks, nil
	})
}

// runColly crawls as colly documents it: asynchronous, a limit rule, links visited
// from OnHTML.
func runColly(ctx context.Context, o options) error {
	return measured(ctx, o, func() (int64, error) {
		var failed atomic.Int64
		c := colly.NewCollector(colly.Async(true), colly.StdlibContext(ctx))
		if err := c.Limit(&colly.LimitRule{DomainGlob: "*", Parallelism: o.InFlight}); err != nil {
			return 0, fmt.Errorf("limit: %w", err)
		}
		c.OnHTML("title", func(*colly.HTMLElement) {})
		c.OnHTML("a[href]", func(e *colly.HTMLElement) {
			_ = e.Request.Visit(e.Attr("href")) // visited before: an error
		})
		c.OnError(func(*colly.Response, error) { failed.Add(1) })
		if err := c.Visit(o.Start + "/p/0"); err != nil {
			return 0, fmt.Errorf("visit: %w", err)
		}
		c.Wait()
		if n := failed.Load(); n > 0 {
			progress("colly: %d requests failed", n)
		}
		return 0, nil
	})
}
