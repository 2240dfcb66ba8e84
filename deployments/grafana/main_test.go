package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The file that Grafana reads is what the table of panels says.
func TestWritten(t *testing.T) {
	t.Parallel()
	want, err := build()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not what the panels say: run go generate in this directory\n%s", written, diff)
	}
}

var label = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)

// Whoever looks at a panel reads what it is, in which unit, and which line is which.
func TestPanels(t *testing.T) {
	t.Parallel()
	titles := map[string]bool{}
	for _, r := range rows() {
		if titles[r.title] {
			t.Errorf("two rows are called %q", r.title)
		}
		titles[r.title] = true
		for _, p := range r.panels {
			name := r.title + "/" + p.title
			if titles[name] || p.title == "" {
				t.Errorf("%s: a panel with that name is there already, or it has none", name)
			}
			titles[name] = true
			if len(strings.Fields(p.about)) < 3 || !strings.HasSuffix(p.about, ".") {
				t.Errorf("%s: %q is not a description in words", name, p.about)
			}
			if p.unit == "" || len(p.queries) == 0 {
				t.Errorf("%s: no unit, or nothing is asked for", name)
			}
			for _, q := range p.queries {
				checkLegend(t, name, p.kind, q)
			}
		}
	}
}

// checkLegend holds a legend to be there, short, and of labels that the series still have.
func checkLegend(t *testing.T, name string, k kind, q query) {
	t.Helper()
	if k == table { // which shows the labels as they are
		return
	}
	if q.legend == "" || len(q.legend) > 25 {
		t.Errorf("%s: legend %q is empty or long", name, q.legend)
	}
	for _, m := range label.FindAllStringSubmatch(q.legend, -1) {
		by := regexp.MustCompile(`by \([^)]*\b` + m[1] + `\b[^)]*\)`)
		if !by.MatchString(q.expr) {
			t.Errorf("%s: the legend shows %s, which %s takes away", name, m[1], q.expr)
		}
	}
}

// No panel lies on another, each is within the grid, and each has an id of its own.
func TestLayout(t *testing.T) {
	t.Parallel()
	var d struct {
		ID            *int
		UID           string
		SchemaVersion int
		Refresh       string
		Panels        []panelJSON
	}
	b, err := build()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if d.ID != nil || d.UID != "trawl" || d.SchemaVersion < 36 || d.Refresh != "10s" {
		t.Errorf("the dashboard is %+v: its id is an instance's own, its uid is fixed", d)
	}
	ids := map[int]bool{}
	shown := d.Panels
	for _, p := range d.Panels {
		ids[p.ID] = true
		shown = append(shown, p.Panels...)
		checkGrid(t, p.Panels)
	}
	checkGrid(t, d.Panels)
	for _, p := range shown[len(d.Panels):] {
		if ids[p.ID] {
			t.Errorf("two panels have id %d", p.ID)
		}
		ids[p.ID] = true
	}
	if len(ids) != len(shown) {
		t.Errorf("%d ids for %d panels", len(ids), len(shown))
	}
	for _, p := range shown {
		if p.Type != "row" && (p.Datasource == nil || p.Datasource.UID != "${datasource}") {
			t.Errorf("%s asks the Prometheus of one instance", p.Title)
		}
	}
	for _, p := range shown {
		for _, q := range p.Targets {
			if line := p.Type == "timeseries"; q.Range != line || q.Instant == line {
				t.Errorf("%s: a line is of a range, all else of now: what is gone has no value", p.Title)
			}
		}
	}
}

// What probes and scrapes do is left out wherever requests are counted over all routes: they are most of them.
func TestNoProbes(t *testing.T) {
	t.Parallel()
	all := regexp.MustCompile(`trawl_http_request(s_total|_duration_seconds\w*)\{?[^\[]*\[`)
	seen := 0
	for _, r := range rows() {
		for _, p := range r.panels {
			for _, q := range p.queries {
				for _, s := range all.FindAllString(q.expr, -1) {
					seen++
					// Errors has a line for each route that fails; the other only says whether an API was scraped.
					if !strings.Contains(s, noProbes) && p.title != "Errors" && !strings.Contains(q.expr, "or 0 * sum(rate("+s) {
						t.Errorf("%s/%s: probes are in %s", r.title, p.title, s)
					}
				}
			}
		}
	}
	if seen < 7 {
		t.Errorf("%d selectors of requests were found", seen)
	}
}

func checkGrid(t *testing.T, panels []panelJSON) {
	t.Helper()
	taken := map[[2]int]string{}
	for _, p := range panels {
		g := p.GridPos
		if g.H < 1 || g.W < 1 || g.X < 0 || g.X+g.W > columns {
			t.Errorf("%s is at %+v, outside the grid", p.Title, g)
			continue
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s lies on %s at %d,%d", p.Title, other, x, y)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
