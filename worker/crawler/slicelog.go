package crawler

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// ending is why a slice ended, as the log has it.
type ending string

const (
	endedIdle      ending = "no work"   // nothing more was due for it
	endedBudget    ending = "budget"    // it was served for long enough, as others wait or not
	endedCancelled ending = "cancelled" // the job was
	endedPaused    ending = "paused"    // the job was
	endedLost      ending = "lost"      // its lease was not renewed in time, and went to others
	endedMemory    ending = "memory"    // Redis has none left, and it had nothing in flight
	endedDraining  ending = "draining"  // this worker stops
	endedRecalled  ending = "recalled"  // the queue took its ring back
	endedError     ending = "error"     // by what the queue tells of its ring
)

// outcomes counts what became of the URLs of one slice; a retry and a redirect are pages without
// an outcome yet.
type outcomes struct {
	leased, released                 int
	pages, accepted, failed, skipped int
}

// settled counts a commit.
func (n *outcomes) settled(c *store.Commit, v store.Verdict) {
	if v == store.Stale {
		return
	}
	n.pages++
	switch {
	case v == store.Alias || c.NoIndex || c.Skipped != "":
		n.skipped++
	case c.Accepted != nil:
		n.accepted++
	case c.Failed != nil:
		n.failed++
	}
}

// endFor notes why the slice winds down. The first reason counts: what comes after it finds a
// slice that was ending.
func (t *turn) endFor(why ending) {
	if t.why == "" {
		t.why = why
	}
}

// endOf returns what the state of a job means for the end of its slice.
func endOf(state crawl.State) ending {
	switch state {
	case crawl.Paused, crawl.Queued: // queued: resumed, and it waits at the run gate
		return endedPaused
	case crawl.Cancelling, crawl.Cancelled:
		return endedCancelled
	case crawl.Running, crawl.Completed, crawl.CompletedWithErrors, crawl.Failed:
	}
	return endedIdle
}

// tell is the one event of a slice.
func (t *turn) tell(ctx context.Context) {
	t.endFor(endedIdle)
	level := slog.LevelInfo
	if t.why == endedLost || t.why == endedError {
		level = slog.LevelWarn
	}
	if t.starved && t.count == (outcomes{}) {
		level = slog.LevelDebug // each job has such a slice every few seconds, and the store says why
	}
	n := t.count
	t.log.LogAttrs(ctx, level, "slice", slog.String("ended", string(t.why)),
		slog.Int64("took_ms", time.Since(t.started).Milliseconds()), slog.Int("pages", n.pages),
		slog.Int("accepted", n.accepted), slog.Int("failed", n.failed), slog.Int("skipped", n.skipped),
		slog.Int("released", n.released), slog.Int("leased", n.leased))
}

// address matches a URL in a text, in parts: the scheme, the authority and the rest.
var address = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)([^\s"'<>/?#\\]*)([^\s"'<>]*)`)

// withoutPaths returns a text for the log in which every URL ends behind its host: the path and
// the query of a page's can hold the key to it, and errors of net/http repeat them. Who has the
// job finds its URLs over the API.
func withoutPaths(text string) string {
	return address.ReplaceAllStringFunc(text, func(u string) string {
		part := address.FindStringSubmatch(u)
		return part[1] + part[2][strings.LastIndexByte(part[2], '@')+1:] + "/…"
	})
}
