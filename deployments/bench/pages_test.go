package main

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
)

// madeUp are three rounds of 100 pages: by Trawl in 1 s, 2 s and 4 s, by one colly in twice that, by another, which is
// slower at the median, in 5 s each time.
func madeUp() *pagesRun {
	p := &pagesRun{pages: 100, names: []string{trawlRow, "colly, a", "colly, b"}, rounds: map[string][]crawled{}}
	for _, seconds := range []float64{1, 2, 4} {
		c := crawled{Seconds: seconds, CPU: seconds / 100, PeakMiB: 40, fetches: 100, pages: 100, siteCPU: 0.01}
		p.fleet = append(p.fleet, fleetCrawl{
			crawled: c, trips: 20, commands: 1000,
			used: map[string]spent{"worker": {c.CPU, 40}, "redis": {0.01, 10}, "api": {0.002, 30}, "site": {0.01, 20}},
		})
		p.rounds[trawlRow] = append(p.rounds[trawlRow], c)
		c.Seconds *= 2
		p.rounds["colly, a"] = append(p.rounds["colly, a"], c)
		c.Seconds, c.fetches = 5, 150
		p.rounds["colly, b"] = append(p.rounds["colly, b"], c)
	}
	return p
}

// The bars are about the fastest of a kind, round by round.
func TestPagesFindings(t *testing.T) {
	t.Parallel()
	p := madeUp()
	f := p.findings(options{Pages: 100, Rounds: 3})
	got := map[string]float64{}
	for _, b := range f.Bars {
		got[b.Figure] = math.Round(b.Value*1000) / 1000
	}
	want := map[string]float64{
		"pages/s of one worker to bare colly, the fastest way of each": 2, "CPU a page in the worker": 200,
		"Redis round trips a page": 0.2, "fetches a page": 1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	// Each way of spider-rs counts, where it is there.
	for i, seconds := range []float64{8, 16} {
		name := []string{"spider-rs, quick", spiderWithTitles}[i]
		p.names = append(p.names, name)
		p.rounds[name] = slices.Repeat([]crawled{{Seconds: seconds, pages: 100, fetches: 100, Told: float64(80 + i)}}, 3)
	}
	f = p.findings(options{Pages: 100, Rounds: 3})
	if len(f.Bars) != 6 || f.Bars[1].Value != 4 || f.Bars[2].Value != 8 {
		t.Errorf("%+v", f.Bars)
	}
	if notes := strings.Join(f.Tables[0].Notes, "\n"); !strings.Contains(notes, "handed 81 to 81 of the 100 pages") {
		t.Errorf("the notes are %q", notes)
	}
	for _, of := range f.Tables {
		allShown(t, of)
	}
	worker := f.Tables[1].Rows[0].Cells
	if worker["cpu_us"].Median != 200 || worker["cpu_us"].Max != 400 || worker["round_trips"].Median != 0.2 {
		t.Errorf("of the worker: %+v", worker)
	}
	if all := f.Tables[1].Rows[4].Cells["cpu_us"].Median; math.Round(all) != 320 {
		t.Errorf("all processes take %v µs", all)
	}
}

// A crawl that is not exact has no figures.
func TestExact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		state          crawl.State
		accepted       int64
		pages, fetches float64
		fine           bool
	}{
		{"exact", crawl.Completed, 10, 10, 10, true},
		{"a page was fetched twice", crawl.Completed, 10, 10, 11, false},
		{"a page was not fetched", crawl.Completed, 10, 9, 10, false},
		{"a page was not accepted", crawl.Completed, 9, 10, 10, false},
		{"a page failed", crawl.CompletedWithErrors, 10, 10, 10, false},
		{"cancelled", crawl.Cancelled, 10, 10, 10, false},
	} {
		c := fleetCrawl{crawled: crawled{pages: tt.pages, fetches: tt.fetches}, job: crawl.Job{State: tt.state, Accepted: tt.accepted, Records: tt.accepted}}
		if err := c.exact(10); (err == nil) != tt.fine {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestMetricOf(t *testing.T) {
	t.Parallel()
	const text = "# HELP a_count of a\na_count{call=\"command\"} 12\na_count{call=\"pipeline\"} 1.5e+06\nbroken x\n"
	for name, want := range map[string]float64{
		`a_count{call="command"}`: 12, `a_count{call="pipeline"}`: 1.5e6, "a_count": -1, "broken": -1,
	} {
		got, err := metricOf(text, name)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
}

// TestPrograms measures, at small sizes, by the processes as they are shipped.
func TestPrograms(t *testing.T) {
	t.Parallel()
	r := rigOf(t, options{Pages: 70, Links: 8, Bytes: 1000, InFlight: 8, Rounds: 2, Site: "generated"})
	f, err := r.comparePages(t.Context(), nil, "No spider here.")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Tables) != 2 || len(f.Tables[0].Rows) != 6 || len(f.Bars) != 5 {
		t.Errorf("%+v", f)
	}
	for _, row := range f.Tables[0].Rows {
		if c := row.Cells["pages"]; c.Min != 70 || c.Rounds != 2 {
			t.Errorf("%s crawled %+v", row.Name, c)
		}
	}
	for _, row := range f.Tables[1].Rows {
		// A page costs a lease and a commit at the least; the looks of the bench itself are ten times that.
		if c, ok := row.Cells["commands"]; ok && (c.Min < 2 || c.Max > 100) {
			t.Errorf("%+v commands a page", c)
		}
		if c, ok := row.Cells["round_trips"]; ok && (c.Min <= 0 || c.Max > 20) {
			t.Errorf("%+v round trips a page", c)
		}
	}
	runs, err := crawlArticles(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != 2 || runs[0].pages != 70 || runs[0].job.KeptBytes < 70*1000 {
		t.Errorf("%+v", runs)
	}
	allShown(t, costTable("articles", runs))
	allShown(t, stageTable([]stage{{"parse", 1, 2, 3}}))
}

// The job of the articles is the one whose stages are measured, with what the API takes at most.
func TestExtracting(t *testing.T) {
	t.Parallel()
	spec := (&rig{o: options{InFlight: 1000}}).wholeSite(&site{port: "1"})
	if err := extracting(&spec); err != nil {
		t.Fatal(err)
	}
	if len(spec.Fields) != 10 || len(spec.Formats) != 2 || spec.Concurrency != 256 || spec.SeedURL != "http://127.0.0.1:1/p/0" {
		t.Errorf("%+v", spec)
	}
}
