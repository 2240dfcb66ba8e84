package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawltest/gensite"
)

// A page of the uneven site takes from two thirds to four thirds of the mean, always the same, and the
// mean of many is the mean: else Little's bound would not be one.
func TestUneven(t *testing.T) {
	t.Parallel()
	const pages = 500
	synctest.Test(t, func(t *testing.T) {
		site := &uneven{Site: gensite.New(pages, 4, 100, 0), mean: scaleLatency}
		took := func(i int) time.Duration {
			begun := time.Now()
			res := httptest.NewRecorder()
			path := fmt.Sprintf("/p/%d", i)
			site.ServeHTTP(res, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			if res.Code != http.StatusOK {
				t.Fatalf("page %d: %d", i, res.Code)
			}
			return time.Since(begun)
		}
		sum := time.Duration(0)
		for i := range pages {
			d := took(i)
			if sum += d; d < scaleLatency*2/3 || d > scaleLatency*4/3 || took(i) != d {
				t.Errorf("page %d takes %v, then %v", i, d, took(i))
			}
		}
		if mean := sum / pages; mean < scaleLatency*19/20 || mean > scaleLatency*21/20 {
			t.Errorf("the mean is %v, want %v", mean, scaleLatency)
		}
		if site.Total() != 2*pages || site.Distinct() != pages {
			t.Errorf("%d pages were served, %d of them distinct", site.Total(), site.Distinct())
		}
	})
}

// There are as many pages a worker whatever the number of workers, up to what one host may be asked at once.
func TestScalePages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ inFlight, jobs, workers, want int }{
		{15, 1, 1, 800}, {15, 1, 4, 3200}, {15, 8, 4, 400}, {64, 1, 8, 13653}, {1, 100, 1, 1},
	} {
		if got := scalePages(tt.inFlight, tt.jobs, tt.workers); got != tt.want {
			t.Errorf("%d in flight, %d jobs, %d workers: %d pages, want %d", tt.inFlight, tt.jobs, tt.workers, got, tt.want)
		}
	}
}

func TestMiddle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		seconds []float64
		want    float64
	}{
		{[]float64{3}, 3}, {[]float64{9, 1, 4}, 4}, {[]float64{5, 5, 1, 9, 2}, 5},
	} {
		if got := middle(made(tt.seconds...)).seconds; got != tt.want {
			t.Errorf("of %v: %v s, want %v", tt.seconds, got, tt.want)
		}
	}
}

func TestReportCurve(t *testing.T) {
	t.Parallel()
	points := map[int][]point{1: made(10), 2: made(8, 5, 1), 4: made(5), 8: made(5)}
	points[2][1].redis.cpu = 0.05
	var b strings.Builder
	if err := reportCurve(&b, options{Scale: 16, Rounds: 3}, 8, points); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"jobs at once: 8,", "1 100 1.00 100% 200 107 200 0 0.02 0.00 40", "2 200 2.00 100% 400 213 200 50 0.04 0.01 40",
		"8 200 2.00 25% 400 853",
	} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// handbook is a folder of three pages and a link that is dead.
func handbook(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, body := range map[string]string{
		"index.html": `<title>Contents</title><a href="a.html">A</a> <a href="b.html">B</a> <a href="c.html">C</a>`,
		"a.html":     `<title>A</title><h1>A</h1><p>Of nets.</p>`,
		"b.html":     `<title>B</title><h1>B</h1><p>Of boats.</p>`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("<!doctype html>"+body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// costsOfPages: each kind of page is crawled as a whole, and has a cost.
func costsOfPages(t *testing.T, r *rig) {
	t.Helper()
	var b strings.Builder
	if err := r.reportCosts(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"an idle worker: ", "leads to 10 new URLs", "pages of 1000 bytes (40 pages)", "pages of 60000 bytes (40 pages)",
		r.o.Manual + " (3 pages)",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Error(b.String())
	}
	// The contents of the pages are kept where they are asked for, and nowhere else.
	for _, k := range kinds(r.o)[:2] {
		c, err := r.measureCost(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		kept := strings.Contains(k.name, "markdown")
		if c.redis.commands < 1 || c.redis.aof < 100 || c.records < 100 || (c.contents > 0) != kept {
			t.Errorf("%s: %+v", k.name, c)
		}
	}
	nothing := kinds(r.o)[2]
	nothing.options.Manual = t.TempDir()
	rules, refusal := filepath.Join(nothing.options.Manual, "robots.txt"), "User-agent: *\nDisallow: /\n"
	if err := os.WriteFile(rules, []byte(refusal), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.measureCost(t.Context(), nothing); err == nil || !strings.Contains(err.Error(), "accepted nothing") {
		t.Errorf("a crawl that accepted nothing: %v", err)
	}
}

func pointOfCurve(t *testing.T, r *rig) {
	t.Helper()
	p, err := r.scalePoint(t.Context(), 8, 2)
	if err != nil {
		t.Fatal(err)
	}
	if want := float64(8 * scalePages(4, 8, 2)); p.pages != want || p.redis.aof < 100*want {
		t.Errorf("%v pages, want %v; %v bytes of append-only file", p.pages, want, p.redis.aof)
	}
}
