package crawler

import (
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
)

func TestTrouble(t *testing.T) {
	t.Parallel()
	tr := newTrouble()
	const host, other = "site.test", "other.test"
	steps := []struct {
		host string
		code crawl.Code // empty: it worked
		want time.Duration
	}{
		{host, crawl.CodeTimeout, 0},
		{host, crawl.CodeConnection, 0},
		{other, crawl.CodeTimeout, 0}, // a host of its own
		{host, crawl.CodeTimeout, time.Second},
		{host, crawl.HTTPCode(503), 2 * time.Second},
		{host, crawl.HTTPCode(429), 4 * time.Second},
		{host, crawl.HTTPCode(404), 0}, // an answer like any other ends the row
		{host, crawl.CodeTimeout, 0},
		{host, crawl.CodeTimeout, 0},
		{host, "", 0},
		{host, crawl.CodeTimeout, 0},
	}
	for i, s := range steps {
		if s.code == "" {
			tr.worked(s.host)
			continue
		}
		if got := tr.failed(s.host, s.code, time.Now()); got != s.want {
			t.Errorf("step %d: %s of %s pauses %v, want %v", i, s.code, s.host, got, s.want)
		}
	}
	for range 100 {
		tr.failed(other, crawl.CodeTimeout, time.Now())
	}
	if got := tr.failed(other, crawl.CodeTimeout, time.Now()); got != troubleMost {
		t.Errorf("the longest pause is %v, want %v", got, troubleMost)
	}
	for i := range 2 * troubleHosts {
		tr.failed(string(rune('a'+i%26))+time.Duration(i).String(), crawl.CodeTimeout, time.Now())
	}
	if n := len(tr.inRow); n > troubleHosts {
		t.Errorf("%d hosts are remembered", n)
	}
}

// What was in flight together when a host broke down is one event: sixty requests that are cut do
// not keep every job of the host waiting for a minute.
func TestTroubleOfOneMoment(t *testing.T) {
	t.Parallel()
	const host = "site.test"
	tr, begun := newTrouble(), time.Now()
	for i := range 60 {
		want := time.Duration(0)
		if i >= troubleFrom-1 {
			want = troubleFirst
		}
		if got := tr.failed(host, crawl.CodeConnection, begun); got != want {
			t.Fatalf("failure %d of one moment pauses %v, want %v", i+1, got, want)
		}
	}
	if got := tr.failed(host, crawl.CodeConnection, time.Now()); got != 2*troubleFirst {
		t.Errorf("the next one pauses %v, want %v", got, 2*troubleFirst)
	}
}
