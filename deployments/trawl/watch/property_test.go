package watch

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/client"
)

// escapes are what paints a line. Nothing else may be in one that is not text.
var escapes = regexp.MustCompile(`\x1b\[[0-9]*m`)

// hostile are pieces that a site or a service may put into what is shown.
var hostile = []string{
	"\x1b]0;owned\x07", "\x1b[2J", "\x1b[31m", "\u009b2J", "\r", "\n", "\t", "\x00", "\x7f", "\u202e", "\u2066",
	"\u200b", "\ufeff", "\xff\xfe", "\u2028", "e\u0301\u0301\u0301\u0301", "☺\ufe0f", "👩\u200d👩\u200d👧", "🇩🇪",
	"例え", "ｗｉｄｅ", "bücher", "\u00ad", "\U000e0041", "\ue000", "한국", "https://host.example/a/long/path?with=query", "plain", "a b",
}

func drawText() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(hostile), rapid.String()), 0, 6).Draw(t, "parts")
		return strings.Join(parts, "")
	})
}

func drawCount() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, 200), rapid.Int64())
}

func drawTime() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return begin.Add(time.Duration(rapid.Int64().Draw(t, "offset")))
	})
}

func drawCounts() *rapid.Generator[map[string]int64] {
	return rapid.MapOfN(drawText(), drawCount(), 0, 5)
}

func drawState() *rapid.Generator[client.State] {
	return rapid.OneOf(
		rapid.SampledFrom([]client.State{
			client.Queued, client.Running, client.Paused, client.Cancelling,
			client.Completed, client.CompletedWithErrors, client.Failed, client.Cancelled,
		}),
		rapid.Map(drawText(), func(s string) client.State { return client.State(s) }),
	)
}

func drawJob() *rapid.Generator[client.Job] {
	return rapid.Custom(func(t *rapid.T) client.Job {
		n := func(name string) int64 { return drawCount().Draw(t, name) }
		waits := rapid.SampledFrom([]string{"", "tenant_quota", "dispatch", "worker", "host_delay", "retry", "robots"})
		stops := rapid.SampledFrom([]string{"", "page_limit", "time_limit", "seed_failed", "internal"})
		j := client.Job{
			ID: drawText().Draw(t, "id"), State: drawState().Draw(t, "state"), Error: drawText().Draw(t, "error"),
			WaitingFor: rapid.OneOf(waits, drawText()).Draw(t, "wait"),
			StopReason: rapid.OneOf(stops, drawText()).Draw(t, "stop"),
			Position:   n("position"), Total: n("total"), Processed: n("processed"), Accepted: n("accepted"),
			Failed: n("failed"), Queued: n("queued"), Active: n("active"), Deferred: n("deferred"),
			Skipped: n("skipped"), Cancelled: n("cancelled"),
			Bytes: n("bytes"), StartedAt: drawTime().Draw(t, "started"), EndedAt: drawTime().Draw(t, "ended"),
			FailedByType: drawCounts().Draw(t, "types"), RefusedByReason: drawCounts().Draw(t, "reasons"),
		}
		if rapid.Bool().Draw(t, "has spec") {
			j.Spec = &client.Spec{
				URLs: rapid.SliceOfN(drawText(), 0, 3).Draw(t, "urls"), SeedURL: drawText().Draw(t, "seed"),
				MaxPages: n("max pages"), Delay: time.Duration(n("delay")),
			}
		}
		return j
	})
}

// checkLine fails when a painted line is wider than width or holds what is no text.
func checkLine(t *rapid.T, painted string, width int) {
	l := escapes.ReplaceAllString(painted, "")
	if w := runewidth.StringWidth(l); w > width {
		t.Fatalf("%d columns of %d: %q", w, width, l)
	}
	for _, r := range l {
		if r != ' ' && !unicode.IsPrint(r) {
			t.Fatalf("%U in %q", r, l)
		}
	}
}

// No row is wider than the terminal or holds a control character, whatever the job says.
func TestEveryRowFitsAndIsClean(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{silence: time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "silence"))}
		now := begin
		for range rapid.IntRange(1, 4).Draw(t, "updates") {
			j := drawJob().Draw(t, "job")
			now = now.Add(time.Duration(rapid.Int64Range(-1e9, 1e11).Draw(t, "later")))
			m.update(&j, now)
		}
		s := m.snapshot(now.Add(time.Duration(rapid.Int64Range(0, 1e13).Draw(t, "silent"))))
		width := rapid.IntRange(1, 200).Draw(t, "width")
		plain := rows(s, width, false)
		painted := rows(s, width, true)
		for i := range plain {
			checkLine(t, plain[i], width)
			if got := escapes.ReplaceAllString(painted[i], ""); got != plain[i] {
				t.Fatalf("colour changes the text: %q, without it %q", got, plain[i])
			}
		}
		checkLine(t, plainStatus(s, ""), plainMost)
	})
}

// The same of a summary; that of no bound has no control character either.
func TestEverySummaryFitsAndIsClean(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := drawJob().Draw(t, "job")
		failed := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) client.PageError {
			return client.PageError{
				SourceURL: drawText().Draw(t, "url"), ErrorType: drawText().Draw(t, "type"),
				Message: drawText().Draw(t, "message"), DiscoveredOn: drawText().Draw(t, "on"),
			}
		}), 0, 12).Draw(t, "failed")
		width := rapid.IntRange(0, 200).Draw(t, "width")
		var b bytes.Buffer
		Summarize(&b, &j, failed, SummaryOptions{Color: rapid.Bool().Draw(t, "color"), Width: width})
		for l := range strings.Lines(b.String()) {
			bound := width
			if width == 0 {
				bound = 1 << 30
			}
			checkLine(t, strings.TrimSuffix(l, "\n"), bound)
		}
	})
}

// The bar is as wide as it is asked to be, and full only when all is done.
func TestBarIsExactlyAsWideAsAsked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := snapshot{processed: drawCount().Draw(t, "processed"), total: drawCount().Draw(t, "total")}
		s.processed = max(s.processed, 0)
		s.expected = rapid.Float64().Draw(t, "expected")
		width := rapid.IntRange(1, 100).Draw(t, "width")
		g := glyphsOf(func(rune) int { return rapid.IntRange(1, 2).Draw(t, "glyph") })
		l := barOf(s, width, g)
		if l.columns() != width {
			t.Fatalf("%d columns, wanted %d: %q", l.columns(), width, l.paint(false))
		}
		if l.paint(false) == strings.Repeat(g.full, width) && float64(s.processed) < s.expected {
			t.Fatalf("full at %d of %v", s.processed, s.expected)
		}
	})
}

// What is cut is as long as there is room for, but for half of a wide character.
func TestCutUsesTheRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := Clean(drawText().Draw(t, "text"))
		width := rapid.IntRange(1, 60).Draw(t, "width")
		got := cut(s, width)
		switch {
		case columns(s) <= width && got != s:
			t.Fatalf("%q was cut to %q though it fits %d", s, got, width)
		case columns(got) > width:
			t.Fatalf("%q is wider than %d", got, width)
		case columns(s) > width && !strings.HasSuffix(got, ellipsis):
			t.Fatalf("%q does not say that it was cut", got)
		}
	})
}
