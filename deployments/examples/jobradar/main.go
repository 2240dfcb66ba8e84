// Command jobradar serves a small job board to crawl: four list pages and 64 postings, Chinese and English, of companies
// that do not exist. README.md beside it has the crawl, spec.json is its job and run.sh runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

type options struct {
	Listen  string `env:"JOBRADAR_LISTEN" default:"127.0.0.1:8700" help:"Address that the site listens on."`
	Edition int    `default:"1" help:"What is served: 1, or 2 where one posting has changed, or 3 where another is gone as well. PUT /-/edition/N changes it while the site runs."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	kong.Parse(&o, kong.Name("jobradar"), kong.Description("Serves a small job board to crawl."))
	if err := serve(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "jobradar:", err)
		os.Exit(1)
	}
}

// serve serves the site until ctx ends.
func serve(ctx context.Context, o options) error {
	s, err := newSite()
	if err != nil {
		return err
	}
	if !s.publish(o.Edition) {
		return fmt.Errorf("there is no edition %d: give one of 1 to %d", o.Edition, editions)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w. Give another address with --listen", o.Listen, err)
	}
	fmt.Printf("JobRadar is at http://%s/\n", l.Addr())
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })() // nothing that is served is worth waiting for
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
