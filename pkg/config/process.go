package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a process until it has done its work, or SIGINT or SIGTERM ends the context of run,
// and returns the code to exit with: 0, or 1 with the error of run on the standard error. A
// second signal ends the process at once. That help was asked for is no error.
func Main(run func(context.Context) error) int {
	//nolint:forbidigo // it is the first context of the process
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := run(ctx); err != nil && !errors.Is(err, ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
