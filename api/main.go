// Command api takes crawl jobs over HTTP and answers for them: settings, signals
// and wiring. Any number of these processes share one Redis.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"example.com/trawl/api/httpapi"
	"example.com/trawl/pkg/config"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
)

func main() { os.Exit(config.Main(run)) }

func run(ctx context.Context) error {
	cfg, err := config.LoadAPI(os.Args[1:], os.Environ(), os.Stdout)
	reg, level := obs.NewRegistry(), obs.NewLevel(cfg.LogLevel)
	sources, err1 := crawl.ParseSources(cfg.AllowedSources)
	rdb, err2 := redisconn.Open(cfg.RedisURL, redisconn.Options{
		Name: "trawl-api", TLS: redisconn.TLS(cfg.RedisTLS), Observe: redisconn.NewMetrics(reg).Observe,
	})
	log, err3 := obs.Install(os.Stderr, cfg.LogFormat, level)
	if err = errors.Join(err, config.In("TRAWL_ALLOWED_SOURCES", err1), config.In("TRAWL_REDIS_URL", err2), err3); err != nil {
		return err
	}
	redisconn.SetLogger(log)
	log.LogAttrs(ctx, slog.LevelInfo, "settings", cfg.Attrs()...)
	traces, err := obs.NewTraces(ctx, "trawl-api", log)
	if err != nil {
		return errors.Join(err, rdb.Close())
	}
	defer traces.Stop(ctx)
	limits := crawl.DefaultLimits()
	limits.HostDelay, limits.HostConcurrency = cfg.HostDelay, cfg.HostConcurrency
	st := store.New(rdb, store.Options{Replicas: cfg.RedisWait, Logger: log})
	reg.MustRegister(httpapi.NewStatsCollector(st, log), queue.NewCollector(rdb), redisconn.NewCollector(rdb))
	server, err := httpapi.New(httpapi.Options{
		Listen: cfg.Listen, Jobs: st, Collections: st, Doorbell: queue.NewDoorbell(rdb), Queue: rdb, MonitorWrite: cfg.MonitorWrite,
		Keys: cfg.Keys, AdminKey: cfg.AdminKey, GatewaySecret: cfg.GatewaySecret,
		Tenants: st, Sources: sources, Limits: limits, Quota: crawl.Quota(cfg.Quota), StopGrace: cfg.ShutdownGrace,
		Logger: log, Level: level, Levels: st, Registry: reg, Traces: traces.Provider(), Notify: obs.NewNotifier(log),
		Checks: []obs.Check{{Name: "redis_rights", Ready: st.APIRights}},
	})
	if err == nil {
		err = server.Run(ctx)
	}
	return errors.Join(err, rdb.Close())
}
