package obs

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Trouble is told at once, then once a minute, with what was kept back.
func TestRareLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		r := &rareLog{log: slog.New(slog.NewTextHandler(&b, nil))}
		for range 600 { // ten minutes
			r.lose(t.Context(), errors.New("down"), 5)
			<-time.After(time.Second)
		}
		got := b.String()
		if n := strings.Count(got, "\n"); n != 10 {
			t.Errorf("%d lines in ten minutes: %s", n, got)
		}
		if !strings.Contains(got, "spans_lost=300 errors_not_logged=59") {
			t.Errorf("what was kept back is not told: %s", got)
		}
	})
}
