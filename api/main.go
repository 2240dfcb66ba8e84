// Command api takes crawl jobs over HTTP and answers for them: settings, signals
// and wiring. Any number of these processes share one Redis.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"example.com/trawl/api/httpapi"
	"example.com/trawl/pkg/config"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx); err != nil && !errors.Is(err, config.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	cfg, err := config.LoadAPI(os.Args[1:], os.Environ(), os.Stdout)
	sources, err1 := crawl.ParseSources(cfg.AllowedSources)
	rdb, err2 := redisconn.Open(cfg.RedisURL, redisconn.Options{Name: "trawl-api", TLS: redisconn.TLS(cfg.RedisTLS)})
	if err = errors.Join(err, config.In("TRAWL_ALLOWED_SOURCES", err1), config.In("TRAWL_REDIS_URL", err2)); err != nil {
		return err
	}
	log, err := obs.Install(os.Stderr, cfg.LogFormat, cfg.LogLevel)
	if err != nil {
		return err
	}
	redisconn.SetLogger(log)
	log.LogAttrs(ctx, slog.LevelInfo, "settings", cfg.Attrs()...)
	limits := crawl.DefaultLimits()
	limits.HostDelay, limits.HostConcurrency = cfg.HostDelay, cfg.HostConcurrency
	st := store.New(rdb, store.Options{Replicas: cfg.RedisWait, Logger: log})
	server, err := httpapi.New(httpapi.Options{
		Listen: cfg.Listen, Jobs: st, Collections: st, Doorbell: queue.NewDoorbell(rdb),
		Keys: cfg.Keys, AdminKey: cfg.AdminKey, GatewaySecret: cfg.GatewaySecret,
		Tenants: st, Sources: sources, Limits: limits, Quota: crawl.Quota(cfg.Quota),
		StopGrace: cfg.ShutdownGrace, Logger: log, Registry: obs.NewRegistry(),
	})
	if err != nil {
		return errors.Join(err, rdb.Close())
	}
	return errors.Join(server.Run(ctx), rdb.Close())
}
