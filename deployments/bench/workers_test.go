package main

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawl"
)

// The pace of the middle half leaves out how a crawl begins and ends.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pace{begun: time.Now(), pages: 1000}
		processed := int64(0)
		for processed < 1000 {
			<-time.After(100 * time.Millisecond) // of the bubble: no time passes outside
			step := int64(1)
			if processed >= 200 && processed < 800 {
				step = 10
			}
			processed += step
			p.see(processed)
		}
		if got := p.perSecond(); got < 99.9 || got > 100.1 {
			t.Errorf("the middle has %v pages/s, want 100", got)
		}
	})
}

// A crawl that was over before it was seen twice has no pace, and not an infinite one.
func TestPaceOfTheQuick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &pace{begun: time.Now(), pages: 1000}
		for _, processed := range []int64{10, 1000} {
			<-time.After(100 * time.Millisecond)
			p.see(processed)
		}
		if got := p.perSecond(); got != 0 {
			t.Errorf("%v pages/s, want 0", got)
		}
	})
}

func TestBound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		inFlight, workers int
		want              float64
	}{
		{15, 1, 100}, {15, 2, 200}, {64, 4, 256 / 0.15}, {64, 8, 256 / 0.15}, // of one host no more than 256
	} {
		if got := bound(tt.inFlight, tt.workers, 150*time.Millisecond); got < tt.want*0.999 || got > tt.want*1.001 {
			t.Errorf("%d workers of %d in flight: %v pages/s, want %v", tt.workers, tt.inFlight, got, tt.want)
		}
	}
}

// A page that was fetched twice, or by fewer jobs than recorded it, fails the run.
func TestServedOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		total, distinct float64
		ok              bool
	}{
		{"each once for each of three jobs", 30, 10, true},
		{"one fetched twice", 31, 10, false},
		{"one not fetched", 29, 10, false},
		{"one fetched twice, another never", 30, 9, false},
	} {
		if err := servedOnce(tt.total, tt.distinct, 3, 10); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestAllCompleted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*crawl.Job)
		ok     bool
	}{
		{"all pages", func(*crawl.Job) {}, true},
		{"cancelled", func(j *crawl.Job) { j.State = crawl.Cancelled }, false},
		{"with errors", func(j *crawl.Job) { j.State, j.Failed = crawl.CompletedWithErrors, 1 }, false},
		{"a page too few", func(j *crawl.Job) { j.Accepted, j.Records = 9, 9 }, false},
		{"a page too many", func(j *crawl.Job) { j.Accepted, j.Records = 11, 11 }, false},
		{"a record too few", func(j *crawl.Job) { j.Records = 9 }, false},
	} {
		jobs := make([]crawl.Job, 2)
		for i := range jobs {
			jobs[i].State, jobs[i].Accepted, jobs[i].Records = crawl.Completed, 10, 10
		}
		tt.change(&jobs[1])
		if err := allCompleted(jobs, 10); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// made are the rounds of crawls of 1,000 pages that took so many seconds.
func made(seconds ...float64) (points []point) {
	for _, s := range seconds {
		points = append(points, point{seconds: s, pages: 1000, steady: 2000 / s, used: map[string]spent{
			"worker": {CPU: 0.2, PeakMiB: 40}, "redis": {CPU: 0.1}, "site": {CPU: 0.3}, "api": {CPU: 0.4},
		}})
	}
	return points
}

// Ratios are of medians, to one worker; what was not seen in each round is not shown.
func TestWorkersTable(t *testing.T) {
	t.Parallel()
	points := map[int][]point{1: made(10, 8, 20), 2: made(5, 4, 1), 4: made(2, 4, 2.5)}
	points[4][1].steady = 0
	got := workersTable(options{Pages: 1000, InFlight: 64}, 1, points)
	for i, want := range []map[string]float64{
		{
			"pages_per_second": 100, "ratio": 1, "middle_pages_per_second": 200, "middle_ratio": 1, "site_cores": 0.03,
			"bound_pages_per_second": 1280,
		},
		{
			"pages_per_second": 250, "ratio": 2.5, "middle_pages_per_second": 500, "middle_ratio": 2.5,
			"bound_pages_per_second": 2560,
		},
		{
			"pages_per_second": 400, "ratio": 4, "bound_pages_per_second": 5120, "worker_cpu_us_per_page": 200,
			"redis_cpu_us_per_page": 100,
			"all_cores":             0.4, "worker_peak_mib": 40,
		},
	} {
		for key, v := range want {
			if c := got.Rows[i].Cells[key]; c.Median < v*0.999 || c.Median > v*1.001 {
				t.Errorf("%s: %s is %v, want %v", got.Rows[i].Name, key, c.Median, v)
			}
		}
	}
	if c := got.Rows[0].Cells["pages_per_second"]; c.Min != 50 || c.Max != 125 || c.Rounds != 3 {
		t.Errorf("the range is %+v", c)
	}
	for _, key := range []string{"middle_pages_per_second", "middle_ratio"} {
		if c, ok := got.Rows[2].Cells[key]; ok {
			t.Errorf("%s of a crawl that was not seen: %+v", key, c)
		}
	}
	allShown(t, got)
	if b := workersBar(got); b.Value != 2.5 || b.Bound != 1.9 || b.AtMost || !b.met() {
		t.Errorf("the bar is %+v", b)
	}
}

// allShown holds a table to columns that some row has, and rows to cells that have a column, with numbers that JSON
// knows.
func allShown(t *testing.T, of table) {
	t.Helper()
	if _, err := json.Marshal(of); err != nil {
		t.Errorf("%s: %v", of.Title, err)
	}
	shown := map[string]bool{}
	for _, r := range of.Rows {
		for key := range r.Cells {
			shown[key] = false
		}
	}
	for _, c := range of.Columns {
		if _, ok := shown[c.Key]; !ok {
			t.Errorf("%s: no row has %s", of.Title, c.Key)
		}
		shown[c.Key] = true
	}
	for key, ok := range shown {
		if !ok {
			t.Errorf("%s: %s has no column", of.Title, key)
		}
	}
}

// TestProcesses measures, at small sizes, by real processes: what the parts call a crawl, a small job and a cost is
// one.
func TestProcesses(t *testing.T) {
	t.Parallel()
	small := func(t *testing.T, o options) *rig {
		t.Helper()
		o.Links, o.Bytes, o.InFlight, o.Rounds = 8, 1000, 16, 1
		return rigOf(t, o)
	}
	t.Run("crawls by workers", func(t *testing.T) { t.Parallel(); crawlsByWorkers(t, small(t, options{Pages: 150})) })
	t.Run("small jobs", func(t *testing.T) { t.Parallel(); smallJobsOfTenants(t, small(t, options{Pages: 100})) })
	t.Run("costs", func(t *testing.T) {
		t.Parallel()
		costsOfPages(t, small(t, options{Pages: 40, URLs: 2000, Scale: 4, Manual: handbook(t)}))
	})
	t.Run("curve", func(t *testing.T) { t.Parallel(); pointOfCurve(t, small(t, options{Pages: 40, Scale: 4})) })
}

func crawlsByWorkers(t *testing.T, r *rig) {
	t.Helper()
	o := r.o
	o.Latency, o.Site = 5*time.Millisecond, "generated"
	s, err := r.newSite(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	const jobs = 3
	p, err := r.measurePoint(t.Context(), fleetOptions{apis: 1, workers: 2}, s, jobs, o.Pages)
	if err != nil {
		t.Fatal(err)
	}
	if p.pages != float64(jobs*o.Pages) || p.seconds <= 0 || p.redis.commands < p.pages || p.used["worker"].PeakMiB <= 0 {
		t.Errorf("%+v", p)
	}
	for _, name := range []string{"worker", "api", "redis", "site"} {
		if _, ok := p.used[name]; !ok {
			t.Errorf("nothing is known of the process %s", name)
		}
	}
	// A site that has not as many pages as the figures would say.
	_, err = r.measurePoint(t.Context(), fleetOptions{apis: 1, workers: 1}, s, 1, o.Pages+1)
	for _, want := range []string{"150 of 151 pages", "the site served 150 pages"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a page that is not there: %v, want %q in it", err, want)
		}
	}
}
