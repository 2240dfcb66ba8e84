package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

func TestKeptOf(t *testing.T) {
	t.Parallel()
	at := func(all, records float64, total, queued, accepted int64) weighed {
		return weighed{remembered{all, records}, crawl.Job{Total: total, Queued: queued, Accepted: accepted}}
	}
	start := at(5000, 300, 11, 10, 1)
	for _, tt := range []struct {
		name  string
		after weighed
		want  kept // zero: an error
	}{
		{"all that came, less the records, by the URLs", at(5000+1000*150+100*400, 300+100*400, 1011, 910, 101), kept{150, 400}},
		{"all were crawled", at(9000, 600, 1011, 0, 1011), kept{}},
		{"too few were crawled", at(9000, 600, 1011, 1000, 11), kept{}},
		{"nothing happened", at(5000, 300, 11, 10, 1), kept{}},
	} {
		got, err := keptOf(start, tt.after)
		if got != tt.want || (err == nil) != (tt.want != kept{}) {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

// The memory of a URL is that of Redis itself, and more than its 60 bytes.
func TestMeasureKept(t *testing.T) {
	t.Parallel()
	crawltest.Real(t) // or skips the test
	r := &rig{dir: t.TempDir(), o: options{URLs: 5000}}
	k, err := r.measureKept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if k.perURL < 60 || k.perURL > 500 || k.perRecord < 100 || k.perRecord > 1000 {
		t.Errorf("%.0f bytes a URL and %.0f a record", k.perURL, k.perRecord)
	}
}

// TestMemoryOfProcesses measures small jobs by real processes.
func TestMemoryOfProcesses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T, *rig){
		"jobs of two sizes": jobsOfTwoSizes, "pages that are missing": missingPages,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, rigOf(t, options{Links: 8, Bytes: 1000, InFlight: 8}))
		})
	}
}

// The jobs of one worker process are crawled one after the other, each as a whole, and the result of the last is
// read as a whole, with all figures of the tables.
func jobsOfTwoSizes(t *testing.T, r *rig) {
	t.Helper()
	small, err := r.measureJobs(t.Context(), sized{pages: 50, least: 2})
	if err != nil {
		t.Fatal(err)
	}
	big, err := r.measureJobs(t.Context(), sized{pages: 1200, least: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(small.crawls) != 2 || len(big.crawls) != 1 {
		t.Errorf("%d and %d crawls, want 2 and 1", len(small.crawls), len(big.crawls))
	}
	if len(small.milestones) != 0 || len(big.milestones) != 1 || big.milestones[0].pages != 1000 {
		t.Errorf("milestones %v and %v, want none and one at 1000", small.milestones, big.milestones)
	}
	for _, m := range big.milestones {
		if m.peakMiB <= 0 || m.peakMiB > big.workerMiB {
			t.Errorf("a peak of %v MiB on the way to one of %v", m.peakMiB, big.workerMiB)
		}
	}
	for _, table := range []table{
		keptTable(r.o, kept{1, 1}, small, big), askedTable(r.o, small), peakTable(r.o, small, big),
	} {
		for _, row := range table.Rows {
			if len(row.Cells) == 0 {
				t.Errorf("%s: the row %q has no figure", table.Title, row.Name)
			}
			for key, c := range row.Cells {
				// Processor time is counted in steps of 10 ms, and the connections of Redis outweigh a small job.
				if c.Median <= 0 && key != "worker_cpu_micros" && key != "bytes" {
					t.Errorf("%s: %s, %s is %v", table.Title, row.Name, key, c.Median)
				}
			}
		}
	}
}

// A worker that leaves pages out, or fetches them twice, gives no figure.
func missingPages(t *testing.T, r *rig) {
	t.Helper()
	f, err := r.newFleet(t.Context(), fleetOptions{apis: 1, workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.stop)
	o := r.o
	o.Pages = 40
	s, err := r.newSite(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	_, err = f.crawlOnce(t.Context(), s, &sizeRun{pages: 41})
	if err == nil || !strings.Contains(err.Error(), "40 of 41") {
		t.Errorf("a job of 40 pages passes for one of 41: %v", err)
	}
}

func TestStreamCountsRecords(t *testing.T) {
	t.Parallel()
	long := `{"text":"` + strings.Repeat("x", 100_000) + `"}` + "\n"
	for _, tt := range []struct {
		name, body string
		cut        bool
		want       int
	}{
		{"none", "", false, 0},
		{"some, and a line longer than a buffer", "{}\n" + long + "{}\n", false, 3},
		{"a connection that breaks", "{}\n{}\n", true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/x-ndjson")
				if tt.cut {
					w.Header().Set("Content-Length", strconv.Itoa(len(tt.body)+10))
				}
				_, _ = io.WriteString(w, tt.body) // who hung up needs none
			}))
			t.Cleanup(api.Close)
			c, err := client.New(api.URL, "0123456789abcdef0123456789abcdef")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.CloseIdleConnections)
			f := &fleet{client: c}
			got, err := f.stream(t.Context(), crawl.JobRef{Tenant: tenant, ID: "01arz3ndektsv4rrffq69g5fav"})
			if tt.cut && !errors.Is(err, io.ErrUnexpectedEOF) || !tt.cut && (err != nil || got != tt.want) {
				t.Errorf("%d records, %v, want %d", got, err, tt.want)
			}
		})
	}
}

// The first crawl, in which all is made for the first time, counts for no figure of a page where there are others.
func TestPageOfJobs(t *testing.T) {
	t.Parallel()
	seconds := func(c jobCost) float64 { return c.seconds }
	j := &sizeRun{pages: 10, crawls: []jobCost{{seconds: 100}, {seconds: 20}, {seconds: 40}, {seconds: 30}}}
	if got, want := j.page(seconds), (cell{Median: 3, Min: 2, Max: 4, Rounds: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	j.crawls = j.crawls[:1]
	if got, want := j.page(seconds), (cell{Median: 10, Min: 10, Max: 10, Rounds: 1}); got != want {
		t.Errorf("a single crawl: %+v, want %+v", got, want)
	}
}
