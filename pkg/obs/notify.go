package obs

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier tells systemd what becomes of the process, as sd_notify(3) has it: for units of
// Type=notify and with WatchdogSec. Where nobody set NOTIFY_SOCKET it does nothing, and so
// does a nil one.
type Notifier struct {
	logger *slog.Logger
}

// NewNotifier returns a notifier that tells logger when systemd cannot be told.
func NewNotifier(logger *slog.Logger) *Notifier { return &Notifier{logger: logger} }

// Serving says READY=1 with the given line as STATUS. Where a watchdog is set, it says
// WATCHDOG=1 twice as often as is asked for while live returns nil; a nil live always does.
// The returned function says STOPPING=1 and ends that; call it once, when the process begins
// to stop.
func (n *Notifier) Serving(
	ctx context.Context, status string, live func(context.Context) error,
) (stopping func()) {
	if n == nil {
		return func() {}
	}
	n.say(ctx, daemon.SdNotifyReady+"\nSTATUS="+Clean(status))
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); n.watchdog(watching, live) }()
	return func() {
		stop()
		<-done
		n.say(ctx, daemon.SdNotifyStopping+"\nSTATUS=stopping")
	}
}

// watchdog feeds the watchdog of systemd until ctx ends.
func (n *Notifier) watchdog(ctx context.Context, live func(context.Context) error) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		n.logger.WarnContext(ctx, "the watchdog of systemd is set in a way that is not understood", slog.Any("err", err))
	}
	if err != nil || every <= 0 {
		return
	}
	tick := time.NewTicker(max(every/2, time.Millisecond)) // a ticker refuses 0
	defer tick.Stop()
	for {
		if n.alive(ctx, live, every/2) {
			n.say(ctx, daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// alive asks live, and tells why systemd is about to restart this process.
func (n *Notifier) alive(ctx context.Context, live func(context.Context) error, within time.Duration) bool {
	if live == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := live(ctx)
	if err != nil {
		n.logger.ErrorContext(ctx, "this process is stuck, the watchdog is not told that it lives", slog.Any("err", err))
	}
	return err == nil
}

func (n *Notifier) say(ctx context.Context, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.logger.WarnContext(ctx, "systemd cannot be told of this process", slog.Any("err", err))
	}
}
