package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
)

// collectionsCommand lists the collections of the tenant.
type collectionsCommand struct {
	JSON bool `name:"json" help:"Write them as the server sends them, one a line."`

	Server serverFlags `embed:""`
}

// Help returns an example for the help of the command.
func (*collectionsCommand) Help() string {
	return `A crawl with --collection NAME puts what it finds into a collection, and tells what is new
there, what has changed, and what a complete crawl of the same pages no longer finds (missing).

Example:

    trawl collections`
}

// Run executes the command.
func (c *collectionsCommand) Run(ctx context.Context, s *session) error {
	srv, err := c.Server.connect(s)
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	rows := [][]string{{"COLLECTION", "ITEMS", "MISSING", "UPDATED", "KEY", "FACETS"}}
	for info, err := range paged(ctx, callWithin, srv.Collections) {
		if err != nil {
			return s.callOf(srv, "").explain(err)
		}
		rows = append(rows, []string{
			info.Name, fmt.Sprint(info.Total), fmt.Sprint(info.Missing), age(time.Since(info.UpdatedAt)), info.Key,
			orDash(strings.Join(info.Facets, ", ")),
		})
		if c.JSON {
			if err := writeJSON(s, info.Raw); err != nil {
				return err
			}
		}
	}
	switch {
	case c.JSON:
		return nil
	case len(rows) == 1:
		s.sayf("There are no collections at %s.", srv.url)
		return nil
	}
	return s.table(s.stdout, rows)
}

// itemsCommand writes the items of a collection.
type itemsCommand struct {
	Name    string   `arg:"" name:"collection" help:"The collection."`
	Where   []string `sep:"none" placeholder:"FACET=VALUE" help:"Only items that have this value of a facet, as city=Berlin. May be repeated; all of them hold."`
	Missing bool     `help:"Only items that are missing: the last complete crawl of their pages did not find them."`
	Present bool     `help:"Only items that are not missing."`

	outputFlags
	Server serverFlags `embed:""`
}

// Help returns examples for the help of the command.
func (*itemsCommand) Help() string {
	return `Items come in the order in which they were found first.

Examples:

    trawl items jobs --where city=Berlin --where skills=Go --format text
    trawl items jobs --present --format csv --columns key,title,fields.salary -o jobs.csv`
}

// query returns what is asked for, and what is wrong with the flags.
func (c *itemsCommand) query() (client.ItemsQuery, error) {
	q := client.ItemsQuery{Where: map[string][]string{}}
	var faults []string
	for _, arg := range c.Where {
		facet, value, ok := strings.Cut(arg, "=")
		if !ok || facet == "" || value == "" {
			faults = append(faults, fmt.Sprintf("--where: write it like city=Berlin, not %q.", arg))
			continue
		}
		q.Where[facet] = append(q.Where[facet], value)
	}
	switch {
	case c.Missing && c.Present:
		faults = append(faults, "--missing and --present: an item is one of them; leave one out.")
	case c.Missing || c.Present:
		q.Missing = &c.Missing
	}
	if faults != nil {
		return q, badUsage(faults...)
	}
	return q, nil
}

// Run executes the command.
func (c *itemsCommand) Run(ctx context.Context, s *session) error {
	query, err := c.query()
	if err := errors.Join(err, c.check()); err != nil {
		return err
	}
	srv, err := c.Server.connect(s)
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	out := c.open(s, func(w io.Writer) io.Writer { return w })
	out.until = ctx.Done()
	if err := errors.Join(c.write(ctx, s, srv, query, out), out.close()); err != nil {
		return err
	}
	switch text := out.untouched(); {
	case text != "":
		s.sayf("%s", text)
	case out.records == 0 && !c.whole():
		s.sayf("The collection %s has no such items.", c.Name)
	}
	return nil
}

func (c *itemsCommand) write(ctx context.Context, s *session, srv *server, query client.ItemsQuery, out *output) error {
	at := s.callOf(srv, "")
	at.collection = c.Name
	if c.whole() {
		return copyDocument(at, out, func() (io.ReadCloser, error) {
			return srv.ExportItems(ctx, c.Name, client.Format(out.format), query, c.columns()...)
		})
	}
	for item, err := range paged(ctx, callWithin, func(ctx context.Context) iter.Seq2[client.CollectionItem, error] {
		return srv.StreamItems(ctx, c.Name, query)
	}) {
		if err != nil {
			return at.explain(err)
		}
		line := out.shown(item.Raw)
		if out.format == formatText {
			line = []byte(itemText(&item))
		}
		if err := out.line(line); err != nil {
			return err
		}
	}
	return nil
}

// itemText returns an item in one line, which is not cut: keys are to be used.
func itemText(item *client.CollectionItem) string {
	text := watch.Clean(item.Key) + "  " + orDash(watch.Clean(item.Title)) + fieldsText(item.Fields)
	if !item.MissingSince.IsZero() {
		text += "  missing since " + clock(item.MissingSince)
	}
	return text
}

// analyticsCommand shows the values that the items of a collection have.
type analyticsCommand struct {
	Name string `arg:"" name:"collection" help:"The collection."`
	Top  int    `default:"10" placeholder:"N" help:"How many values of each facet are shown, the most frequent first; by default 10."`
	JSON bool   `name:"json" help:"Write them as the server sends them."`

	Server serverFlags `embed:""`
}

// Help returns an example for the help of the command.
func (*analyticsCommand) Help() string { return "Example:\n\n    trawl analytics jobs --top 5" }

// Run executes the command.
func (c *analyticsCommand) Run(ctx context.Context, s *session) error {
	if c.Top < 1 {
		return badUsage("--top: " + wanted["--top"] + ".")
	}
	srv, err := c.Server.connect(s)
	if err != nil {
		return err
	}
	defer srv.CloseIdleConnections()
	ctx, cancel := s.interruptible(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, callWithin)
	defer stop()
	found, err := srv.Analytics(ctx, c.Name, c.Top)
	if err != nil {
		at := s.callOf(srv, "")
		at.collection = c.Name
		return at.explain(err)
	}
	if c.JSON {
		return writeJSON(s, found.Raw)
	}
	return s.table(s.stdout, analyticsRows(c.Name, found))
}

// analyticsRows lays analytics out: facets with their values below them, then numbers.
func analyticsRows(name string, a *client.Analytics) [][]string {
	rows := [][]string{{fmt.Sprintf("%s: %s, %d missing", name, counted(a.Total, "item", "items"), a.Missing)}}
	if a.Total == 0 && len(a.Facets) == 0 && len(a.Numbers) == 0 {
		return rows
	}
	for _, facet := range slices.Sorted(maps.Keys(a.Facets)) {
		values := counted(a.Distinct[facet], "value", "values")
		if shown := int64(len(a.Facets[facet])); shown < a.Distinct[facet] {
			values += fmt.Sprintf(", %d shown", shown)
		}
		rows = append(rows, []string{""}, []string{facet + " (" + values + ")"})
		for _, v := range a.Facets[facet] {
			rows = append(rows, []string{fmt.Sprintf("%9d  %s", v.Count, v.Value)})
		}
	}
	for i, number := range slices.Sorted(maps.Keys(a.Numbers)) {
		if i == 0 {
			rows = append(rows, []string{""})
		}
		n := a.Numbers[number]
		text := number + ": none"
		if n.Count > 0 {
			text = fmt.Sprintf("%s: average %s of %s, from %s to %s",
				number, n.Avg, counted(n.Count, "item", "items"), n.Min, n.Max)
		}
		rows = append(rows, []string{text})
	}
	return rows
}
