package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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

func TestBound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		inFlight, workers int
		want              float64
	}{
		{15, 1, 100}, {15, 2, 200}, {64, 4, 256 / 0.15}, {64, 8, 256 / 0.15}, // of one host no more than 256
	} {
		if got := bound(tt.inFlight, tt.workers); got < tt.want*0.999 || got > tt.want*1.001 {
			t.Errorf("%d workers of %d in flight: %v pages/s, want %v", tt.workers, tt.inFlight, got, tt.want)
		}
	}
}
