// Command worker takes slices of jobs from Redis, fetches their pages and records them.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"example.com/trawl/pkg/config"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

func main() { os.Exit(config.Main(run)) }

func run(ctx context.Context) error {
	c, err := config.LoadWorker(os.Args[1:], os.Environ(), os.Stdout)
	reg, level, tls := obs.NewRegistry(), obs.NewLevel(c.LogLevel), redisconn.TLS(c.RedisTLS)
	sources, err1 := crawl.ParseSources(c.AllowedSources)
	policy, err2 := netguard.Parse(c.PrivateHosts)
	denied, err3 := netguard.ParseDenied(c.DeniedNetworks)
	observe := redisconn.NewMetrics(reg).Observe
	rdb, err4 := redisconn.Open(c.RedisURL, redisconn.Options{Name: "trawl-worker", TLS: tls, Observe: observe})
	log, err5 := obs.Install(os.Stderr, c.LogFormat, level)
	if err = errors.Join(err, config.In("TRAWL_ALLOWED_SOURCES", err1), config.In("TRAWL_PRIVATE_HOSTS", err2),
		err3, config.In("TRAWL_REDIS_URL", err4), config.In("TRAWL_LOG_FORMAT", err5)); err != nil {
		return err
	}
	redisconn.SetLogger(log)
	log.LogAttrs(ctx, slog.LevelInfo, "settings", c.Attrs()...)
	traces, err := obs.NewTraces(ctx, "trawl-worker", log)
	if err != nil {
		return errors.Join(err, rdb.Close())
	}
	defer traces.Stop(ctx)
	st, guard := store.New(rdb, store.Options{Logger: log}), netguard.New(policy, denied)
	p, err := crawler.NewProcess(crawler.ProcessOptions{
		Listen: c.Listen, RedisURL: c.RedisURL, RedisTLS: tls, RedisObserve: observe, Deliveries: st,
		Fetch: fetch.Options{Dial: guard.DialContext, UserAgent: c.UserAgent, MaxConnsPerHost: c.Concurrency},
		Level: level, Levels: st.LogLevel, Notify: obs.NewNotifier(log), Health: obs.NewHandler(reg, log,
			obs.Check{Name: "redis", Ready: st.Ready}, obs.Check{Name: "redis_rights", Ready: st.WorkerRights}),
		Options: crawler.Options{
			Store: st, Doorbell: queue.NewDoorbell(rdb), Logger: log, Metrics: crawler.NewMetrics(reg), Sources: sources,
			Concurrency: c.Concurrency, HostDelay: c.HostDelay, HostConcurrency: c.HostConcurrency, Grace: c.ShutdownGrace,
			Traces: traces.Provider(),
		},
	})
	if err == nil {
		err = p.Run(ctx)
	}
	return errors.Join(err, rdb.Close())
}
