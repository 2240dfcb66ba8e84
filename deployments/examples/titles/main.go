// Command titles serves the four pages of the simplest collector: two with a title, one without, and one that takes
// forever to come. README.md beside it has the jobs, run.sh runs them.
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

//go:embed site
var embedded embed.FS

type options struct {
	Listen string `env:"TITLES_LISTEN" default:"127.0.0.1:8701" help:"Address that the site listens on."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	kong.Parse(&o, kong.Name("titles"), kong.Description("Serves four pages to crawl."))
	if err := serve(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "titles:", err)
		os.Exit(1)
	}
}

// serve serves the pages until ctx ends.
func serve(ctx context.Context, o options) error {
	files, err := fs.Sub(embedded, "site")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(files))
	mux.HandleFunc("/slow.html", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w. Give another address with --listen", o.Listen, err)
	}
	fmt.Printf("The pages are at http://%s/\n", l.Addr())
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })() // nothing that is served is worth waiting for
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
