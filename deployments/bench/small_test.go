package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
)

// What a job took is from when it was due; what all took from the first submission to the last end.
func TestBatchTime(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	var b batch
	b.time(begun, []errand{{due: at(0)}, {due: at(20)}, {due: at(40)}},
		[]crawl.Job{{EndedAt: at(500)}, {EndedAt: at(2000)}, {EndedAt: at(70)}})
	if b.seconds != 2 || !slices.Equal(b.took, []time.Duration{30e6, 500e6, 1980e6}) {
		t.Errorf("%v s, of each %v", b.seconds, b.took)
	}
	if p50, p99 := b.millis(0.5), b.millis(0.99); p50 != 500 || p99 != 1980 {
		t.Errorf("p50 %v ms and p99 %v ms, want 500 and 1980", p50, p99)
	}
	b.jobs, b.used = 3, map[string]spent{"api": {CPU: 0.003}}
	if b.perSecond() != 1.5 || b.micros("api") != 1000 || b.micros("worker") != 0 {
		t.Errorf("%v jobs/s, %v µs of the API", b.perSecond(), b.micros("api"))
	}
}

func TestSmallTables(t *testing.T) {
	t.Parallel()
	rounds := make([][]batch, len(smallCases))
	names := map[string]bool{}
	for i, c := range smallCases {
		names[c.name()] = true
		rounds[i] = []batch{{
			jobs: 10, seconds: 2, took: []time.Duration{1e6, 2e6, 3e6}, commands: 500, reads: 50,
			used:    map[string]spent{"api": {CPU: 0.1}, "worker": {CPU: 0.2}, "redis": {CPU: 0.3}, "site": {CPU: 0.15}},
			callers: 0.25,
		}}
	}
	if len(names) != len(smallCases) {
		t.Errorf("two cases have one name: %v", names)
	}
	flood, paced := floodTable(options{Pages: 10_000}, rounds), pacedTable(options{Pages: 10_000}, rounds)
	allShown(t, flood)
	allShown(t, paced)
	for key, want := range map[string]float64{
		"jobs_per_second": 5, "redis_commands_per_job": 50, "redis_reads_per_job": 5, "api_cpu_us_per_job": 10_000,
		"worker_cpu_us_per_job": 20_000, "redis_cpu_us_per_job": 30_000, "load_cpu_us_per_job": 40_000, "all_cores": 0.5,
	} {
		if got := flood.Rows[0].Cells[key].Median; got < want*0.999 || got > want*1.001 {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if p50, p99 := paced.Rows[0].Cells["p50_ms"].Median, paced.Rows[0].Cells["p99_ms"].Median; p50 != 2 || p99 != 3 {
		t.Errorf("p50 %v ms and p99 %v ms, want 2 and 3", p50, p99)
	}
	const flooded, slow = "2,000 small jobs", "250 small jobs, one every 20 ms"
	if !strings.Contains(flood.Title, flooded) || !strings.Contains(paced.Title, slow) {
		t.Errorf("titles %q and %q", flood.Title, paced.Title)
	}
}

// Jobs of two tenants, at a pace and as fast as they go, all of whose pages are recorded.
func smallJobsOfTenants(t *testing.T, r *rig) {
	t.Helper()
	o := r.o
	o.Site, o.Hosts = "generated", smallHosts
	s, err := r.newSite(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	kind := smallCase{pages: 5, workers: 2, tenants: 2}
	paced, flood, err := r.measureSmallCase(t.Context(), s, kind)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]batch{"paced": paced, "flood": flood} {
		if float64(len(b.took)) != b.jobs || b.took[0] <= 0 || b.seconds <= 0 || b.commands < 10*b.jobs || b.reads < b.jobs ||
			b.reads > b.commands {
			t.Errorf("%s: %+v", name, b)
		}
	}
	// The last of the jobs that come at a pace is not due before all others are.
	if least := 19 * pacedEvery; paced.jobs != 20 || paced.seconds < least.Seconds() || flood.jobs != 40 {
		t.Errorf("%v jobs at a pace in %v s, %v as fast as they go", paced.jobs, paced.seconds, flood.jobs)
	}
	// Pages that the site does not have.
	kind.pages = o.Pages + 1
	c, err := r.newCrowd(t.Context(), s, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	if _, err := c.run(t.Context(), 1, 0); err == nil || !strings.Contains(err.Error(), "100 of 101 pages") {
		t.Errorf("a page that is not there: %v", err)
	}
	// A submission that is refused ends all callers.
	if c.clients[0], err = client.New(c.base[0], strings.Repeat("x", 32), client.WithRetries(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.run(t.Context(), 1000, 0); err == nil || !strings.Contains(err.Error(), "submission ") {
		t.Errorf("a key that is unknown: %v", err)
	}
}
