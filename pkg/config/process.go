package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a process until it has done its work, or SIGINT or SIGTERM ends the context of run,
// and returns the code to exit with: 0, or 1 with the error of run on the standard error, as the
// last event of the log where run has installed one. A second signal ends the process at once.
// That help was asked for is no error. Meanwhile the garbage collector leaves a small heap more room than Go's
// own rule does, unless GOGC is set.
func Main(run func(context.Context) error) int {
	//nolint:forbidigo // it is the first context of the process
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	defer tuneGC(os.Getenv)()
	before := slog.Default()
	err := run(ctx)
	switch {
	case err == nil || errors.Is(err, ErrHelp):
		return 0
	case slog.Default() != before:
		// The log is installed, and a program reads it: its last line has the form of the others.
		//nolint:sloglint // it is the one that run has installed
		slog.LogAttrs(context.WithoutCancel(ctx), slog.LevelError, "ended", slog.Any("err", err))
	default: // the settings are at fault, and a person reads it
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}
