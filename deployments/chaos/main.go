// Command chaos shows what Trawl's promises are worth when things fail: it starts a real Redis, API processes and
// workers on this machine, has callers of several tenants submit jobs, and throws faults at all of it from a seed.
// It looks at the promises all the while, and at the end at each page of each job.
//
//	go run ./deployments/chaos --minutes 10            a table, and exit code 1 if anything is wrong
//	go run ./deployments/chaos --minutes 10 --seed 7   the same faults again
//
// README.md beside this file says what the rows mean.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"example.com/trawl/pkg/redisconn"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	var o options
	kong.Parse(&o, kong.Name("chaos"), kong.Description("Throws faults at Trawl and checks its promises."))
	if o.Seed == 0 {
		o.Seed = 1 + rand.Int64N(1_000_000)
	}
	// What the client of Redis writes about each connection that a fault has closed would bury the rest.
	redisconn.SetLogger(slog.New(slog.DiscardHandler))
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

type options struct {
	Minutes float64 `default:"2" help:"How long faults are thrown; ten minutes have at least 20 of each kind and 100 kills, another time in proportion."`
	Seed    int64   `help:"Decides the faults, the site and the jobs; 0 draws one. It is printed."`
	JSON    string  `name:"json" placeholder:"FILE" help:"Write the result to this file, too."`
	Keep    bool    `help:"Keep the logs of all processes also when nothing is wrong."`
	Clock   bool    `default:"true" negatable:"" help:"Jumps of a worker's clock. For them the worker is built with a time package of its own, which takes a minute the first time."`
	ACL     bool    `name:"acl" default:"true" negatable:"" help:"Have Redis grant the rights of deployments/redis/users.acl and no others."`
	Workers int     `default:"4" help:"Worker processes, at least 2."`
	APIs    int     `name:"apis" default:"2" help:"API processes."`
}

// errFailed is that of a run that shows less than it must.
var errFailed = errors.New("the run failed: see above")

// run runs the harness. The table goes to out, progress to progress.
func run(ctx context.Context, o options, out, progress io.Writer) error {
	h, err := newHarness(o, progress)
	if err != nil {
		return err
	}
	r, err := h.run(ctx)
	if err = errors.Join(err, h.close()); err != nil {
		h.keep()
		return err
	}
	err = r.write(out)
	if o.JSON != "" {
		err = errors.Join(err, r.save(o.JSON))
	}
	switch {
	case err != nil:
		return err
	case r.failed():
		h.keep()
		return errFailed
	case o.Keep:
		h.keep()
		return nil
	default:
		return os.RemoveAll(h.dir)
	}
}
