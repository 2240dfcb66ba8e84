package store

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// The level of all processes is one key, which every process reads; this is the one test of it,
// since those of the package share their servers.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		s := New(r.Client, Options{})
		reads := func(what string, want slog.Level, least, most time.Duration) {
			t.Helper()
			level, left, err := s.LogLevel(t.Context())
			if err != nil || level != want || left < least || left > most {
				t.Errorf("%s: %v for %v, %v", what, level, left, err)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		reads("nothing set", 0, 0, 0)
		must(s.ClearLogLevel(t.Context()))
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			must(s.SetLogLevel(t.Context(), level, time.Hour))
			reads("set", level, 50*time.Minute, time.Hour)
		}
		if got := r.Client.Get(t.Context(), logLevelKey).Val(); got != "error" {
			t.Errorf("a person reads %q", got)
		}
		must(s.SetLogLevel(t.Context(), slog.LevelDebug, time.Minute))
		reads("shortened", slog.LevelDebug, time.Second, time.Minute)
		must(s.ClearLogLevel(t.Context()))
		reads("cleared", 0, 0, 0)
		must(s.SetLogLevel(t.Context(), slog.LevelDebug, 20*time.Millisecond))
		crawltest.Eventually(t, 30*time.Second, "the level has ended by itself", func() bool {
			_, left, err := s.LogLevel(t.Context())
			return err == nil && left == 0
		})

		must(r.Client.Set(t.Context(), logLevelKey, "debug", 0).Err()) // by hand: it would never end
		reads("without an end", slog.LevelDebug, 0, 0)
		must(r.Client.Set(t.Context(), logLevelKey, "loud", time.Hour).Err())
		if _, left, err := s.LogLevel(t.Context()); err == nil || left != 0 || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("no level: %v, %v", left, err)
		}
		must(s.ClearLogLevel(t.Context()))
	})

	away := New(crawltest.Mini(t).Client, Options{})
	if err := away.rdb.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := away.LogLevel(t.Context())
	for what, err := range map[string]error{
		"read": err, "set": away.SetLogLevel(t.Context(), 0, time.Hour), "clear": away.ClearLogLevel(t.Context()),
	} {
		if crawl.CodeOf(err) != crawl.CodeUnavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
}
