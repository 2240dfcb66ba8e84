package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
)

// statusCommand shows a job.
type statusCommand struct {
	ID   string `arg:"" name:"id" help:"The job."`
	Wait bool   `help:"Wait until the job has ended; the exit code is then that of a crawl."`
	JSON bool   `name:"json" help:"Write the status as the server sends it."`

	progressFlags
	Server serverFlags `embed:""`
}

// Help returns an example for the help of the command.
func (*statusCommand) Help() string {
	return "Example:\n\n    trawl status --wait JOB && trawl results JOB -o pages.ndjson"
}

// Run executes the command.
func (c *statusCommand) Run(ctx context.Context, s *session) error {
	srv, err := c.Server.connect(s)
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	at := s.callOf(srv, c.ID)
	job, err := c.read(ctx, s, srv)
	if err != nil {
		if c.Wait && s.interrupted() {
			s.sayf("The job is as it was; `%s status --wait %s` comes back to it.", s.self, c.ID)
		}
		return at.explain(err)
	}
	if c.JSON {
		err = writeJSON(s, job.Raw)
	} else {
		err = s.facts(s.stdout, statusRows(job))
	}
	if err == nil && c.Wait {
		return codeOf(job)
	}
	return err
}

// read reads the status, or with --wait the last one.
func (c *statusCommand) read(ctx context.Context, s *session, srv *server) (*client.Job, error) {
	if !c.Wait {
		bounded, cancel := context.WithTimeout(ctx, callWithin)
		defer cancel()
		return srv.Job(bounded, c.ID)
	}
	show := newDisplay(s, &c.progressFlags, false)
	defer show.close()
	f := follow(show, s.silence)
	defer f.stop()
	return srv.Wait(ctx, c.ID, f.seen)
}

// writeJSON writes one JSON text as a line of its own.
func writeJSON(s *session, raw []byte) error {
	out := output{w: s.stdout, terminal: s.isTerminal(s.stdout)}
	return out.write(out.shown(raw))
}

// statusRows returns what a person wants to know of a job, one row a fact.
func statusRows(job *client.Job) [][]string {
	rows := [][]string{{"job", job.ID}, {"state", stateText(job)}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("error", job.Error)
	add("now", watch.Waiting(job))
	add("pages", pagesText(job))
	add("failed", countsText(job.FailedByType))
	add("skipped", countsText(job.SkippedByReason))
	add("refused", countsText(job.RefusedByReason))
	add("items", watch.Collected(job))
	add("bytes", fmt.Sprint(job.Bytes))
	if job.KeptBytes > 0 {
		add("kept", fmt.Sprintf("%d bytes of content", job.KeptBytes))
	}
	add("from", inputText(job.Spec))
	add("tags", strings.Join(job.Tags, ", "))
	add("retry of", job.RetryOf)
	add("created", clock(job.CreatedAt))
	add("started", clock(job.StartedAt))
	add("ended", clock(job.EndedAt))
	add("kept until", clock(job.ExpiresAt))
	return rows
}

// stateText returns the state, with the reason for its end.
func stateText(job *client.Job) string {
	state := strings.ReplaceAll(string(job.State), "_", " ")
	if job.StopReason != "" && job.StopReason != string(job.State) {
		state += " (" + job.StopReason + ")"
	}
	return state
}

// pagesText returns the counts that are not zero.
func pagesText(job *client.Job) string {
	text := fmt.Sprintf("%d of %d processed", job.Processed, job.Total)
	separator := ": "
	for _, part := range []struct {
		n    int64
		name string
	}{
		{job.Accepted, "accepted"},
		{job.Failed, "failed"},
		{job.Skipped, "skipped"},
		{job.Cancelled, "cancelled"},
		{job.Queued, "queued"},
		{job.Active, "in progress"},
		{job.Deferred, "deferred"},
	} {
		if part.n != 0 {
			text += fmt.Sprintf("%s%d %s", separator, part.n, part.name)
			separator = ", "
		}
	}
	return text
}

// countsText lists counts, the greatest first.
func countsText(counts map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, counts[name])
	}
	return strings.Join(names, ", ")
}

// inputText names what was to be crawled: the first URL, and how many more.
func inputText(spec *client.Spec) string {
	if spec == nil {
		return ""
	}
	urls := slices.Concat(spec.URLs, spec.Seeds)
	if spec.SeedURL != "" {
		urls = append(urls, spec.SeedURL)
	}
	if len(urls) == 0 {
		return ""
	}
	if more := len(urls) - 1 + spec.URLsOmitted; more > 0 {
		return fmt.Sprintf("%s and %d more", urls[0], more)
	}
	return urls[0]
}

// clock returns a moment as a person reads it, "" for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}
