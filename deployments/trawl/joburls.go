package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
)

// urlsCommand shows what became of the URLs of a job.
type urlsCommand struct {
	ID     string `arg:"" name:"id" help:"The job."`
	State  string `placeholder:"STATE" help:"Only URLs in this state: ${url_states}."`
	Reason string `placeholder:"REASON" help:"Only URLs that were skipped, were refused or failed for this reason, as the summary and status name it."`
	JSON   bool   `name:"json" help:"Write them as the server sends them, one a line."`

	Server serverFlags `embed:""`
}

// urlStates are those that a URL can be in.
var urlStates = []client.URLState{
	client.URLQueued, client.URLActive, client.URLDeferred, client.URLAccepted,
	client.URLFailed, client.URLSkipped, client.URLCancelled, client.URLRefused,
}

func urlStateNames() string {
	names := make([]string, len(urlStates))
	for i, state := range urlStates {
		names[i] = string(state)
	}
	return strings.Join(names, ", ")
}

// Help returns examples for the help of the command.
func (*urlsCommand) Help() string {
	return `One URL a line: its state, the reason, the URL, and what decided. Of refused links, which
were never admitted, the first 10,000 are remembered. "trawl crawl --help" explains the reasons.

Examples:

    trawl urls JOB --state skipped
    trawl urls JOB --reason robots
    trawl urls JOB | grep /the/missing/page`
}

// Run executes the command.
func (c *urlsCommand) Run(ctx context.Context, s *session) error {
	if c.State != "" && !slices.Contains(urlStates, client.URLState(c.State)) {
		return badUsage(fmt.Sprintf("--state: give one of %s, not %q.", urlStateNames(), c.State))
	}
	srv, err := c.Server.connect(s)
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	none := true
	query := client.URLsQuery{State: client.URLState(c.State), Reason: c.Reason}
	for u, err := range paged(ctx, callWithin, func(ctx context.Context) iter.Seq2[client.URLInfo, error] {
		return srv.URLs(ctx, c.ID, query)
	}) {
		if err != nil {
			return s.callOf(srv, c.ID).explain(err)
		}
		none = false
		if c.JSON {
			err = writeJSON(s, u.Raw)
		} else {
			_, err = fmt.Fprintln(s.stdout, watch.Clean(urlText(&u)))
		}
		if err != nil {
			return err
		}
	}
	if none && !c.JSON {
		s.sayf("The job %s has no such URLs.", c.ID)
	}
	return nil
}

// urlText returns a URL and what became of it in one line, which is not cut: URLs are to be used.
func urlText(u *client.URLInfo) string {
	text := fmt.Sprintf("%-9s  %-14s  %s", u.State, orDash(u.Reason), u.URL)
	for _, part := range []struct{ before, what string }{
		{"by ", u.Rule},
		{"same page as ", u.AliasOf},
		{"leads to ", finalOf(u)},
		{"tried again at ", clock(u.NextAt)},
		{"linked from ", u.DiscoveredOn},
		{"", u.Message},
	} {
		if part.what != "" {
			text += "  " + part.before + part.what
		}
	}
	return text
}

// finalOf returns where a URL led, where that is told by nothing else.
func finalOf(u *client.URLInfo) string {
	if u.FinalURL == u.URL || u.AliasOf != "" {
		return ""
	}
	return u.FinalURL
}
