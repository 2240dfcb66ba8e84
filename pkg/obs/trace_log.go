package obs

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// toldEvery is the pause between two lines about traces that do not arrive: a
// collector that is down fails a batch every few seconds, and nothing else is wrong.
const toldEvery = time.Minute

// mostTold bounds the bytes of an error in the log.
const mostTold = 1000

// rareLog logs the trouble that OpenTelemetry has, at once and then once a minute
// with the number of what it kept to itself.
type rareLog struct {
	log *slog.Logger

	mu    sync.Mutex
	again time.Time // not before
	kept  int       // errors since the last line
	lost  int       // spans since the last line
}

// Handle implements [otel.ErrorHandler].
func (r *rareLog) Handle(err error) {
	r.lose(context.Background(), err, 0) //nolint:forbidigo // an error handler has no context to pass on
}

// lose tells of an error by which so many spans were lost.
func (r *rareLog) lose(ctx context.Context, err error, spans int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost += spans
	now := time.Now()
	if now.Before(r.again) {
		r.kept++
		return
	}
	text := err.Error()
	if len(text) > mostTold { // it quotes what the collector answered, of any length
		text = strings.ToValidUTF8(text[:mostTold], "") + "…"
	}
	r.log.WarnContext(ctx, "traces do not arrive; look at the collector and the OTEL_ settings",
		slog.String("err", text), slog.Int("spans_lost", r.lost), slog.Int("errors_not_logged", r.kept))
	r.again, r.kept, r.lost = now.Add(toldEvery), 0, 0
}
