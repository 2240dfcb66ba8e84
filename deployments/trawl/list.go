package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/trawl/pkg/client"
)

// Bounds of a list.
const (
	maxPageSize = 200 // of the service
	listReads   = 8   // jobs read at once for what they crawl
)

// listCommand lists the jobs of the tenant.
type listCommand struct {
	State string `placeholder:"STATE" help:"Only jobs in this state: ${states}."`
	Tag   string `placeholder:"TAG" help:"Only jobs with this tag."`
	Limit int    `default:"20" placeholder:"N" help:"How many at most; by default 20."`
	JSON  bool   `name:"json" help:"Write the jobs as the server sends them, one a line."`

	Server serverFlags `embed:""`
}

// states are those that a job can be in.
var states = []client.State{
	client.Queued, client.Running, client.Paused, client.Cancelling,
	client.Completed, client.CompletedWithErrors, client.Failed, client.Cancelled,
}

func stateNames() string {
	names := make([]string, len(states))
	for i, state := range states {
		names[i] = string(state)
	}
	return strings.Join(names, ", ")
}

// Help returns an example for the help of the command.
func (*listCommand) Help() string { return "Example:\n\n    trawl list --state running" }

// Run executes the command.
func (c *listCommand) Run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	srv, err := c.Server.connect(s)
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	query := client.JobsQuery{State: client.State(c.State), Tag: c.Tag, PageSize: min(c.Limit, maxPageSize)}
	var jobs []client.Job
	for job, err := range paged(ctx, callWithin, func(ctx context.Context) iter.Seq2[client.Job, error] {
		return srv.Jobs(ctx, query)
	}) {
		if err != nil {
			return s.callOf(srv, "").explain(err)
		}
		if c.JSON {
			err = writeJSON(s, job.Raw)
		}
		if jobs = append(jobs, job); err != nil || len(jobs) == c.Limit {
			if err != nil {
				return err
			}
			break
		}
	}
	switch {
	case c.JSON:
		return nil
	case len(jobs) == 0:
		s.sayf("There are no such jobs at %s.", srv.url)
		return nil
	}
	readSpecs(ctx, srv, jobs)
	return s.table(s.stdout, listRows(jobs, time.Now()))
}

func (c *listCommand) check() error {
	var faults []string
	if c.State != "" && !slices.Contains(states, client.State(c.State)) {
		faults = append(faults, fmt.Sprintf("--state: give one of %s, not %q.", stateNames(), c.State))
	}
	if c.Limit < 1 {
		faults = append(faults, "--limit: give at least 1.")
	}
	if faults != nil {
		return badUsage(faults...)
	}
	return nil
}

// readSpecs adds to each job what it crawls, which the list of the service leaves out: by
// its id alone nobody knows a job again. One that cannot be read stays without.
func readSpecs(ctx context.Context, srv *server, jobs []client.Job) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(listReads)
	for i := range jobs {
		g.Go(func() error {
			if job, err := srv.Job(ctx, jobs[i].ID); err == nil {
				jobs[i].Spec = job.Spec
			}
			return nil
		})
	}
	_ = g.Wait() // none returns an error
}

// listRows returns one row a job below a head.
func listRows(jobs []client.Job, now time.Time) [][]string {
	rows := [][]string{{"JOB", "STATE", "PAGES", "FAILED", "AGE", "FROM"}}
	for i := range jobs {
		job := &jobs[i]
		from := inputText(job.Spec)
		if len(job.Tags) > 0 {
			from = strings.TrimSpace(from + " [" + strings.Join(job.Tags, ", ") + "]")
		}
		rows = append(rows, []string{
			job.ID, string(job.State), fmt.Sprintf("%d/%d", job.Processed, job.Total),
			fmt.Sprint(job.Failed), age(now.Sub(job.CreatedAt)), orDash(from),
		})
	}
	return rows
}

// age returns a duration in its greatest unit.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "0s" // clocks differ
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/day)
	}
}
