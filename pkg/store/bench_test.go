package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// BenchmarkCommit leases and commits pages as a worker does, 16 a round trip, each with 20
// links of which two are new. An operation is a page.
func BenchmarkCommit(b *testing.B) {
	r := crawltest.Private(b)
	st := New(r.Client, Options{})
	tenant := crawltest.Tenant(b)
	n := NewJob{
		Job: crawl.JobRef{Tenant: tenant, ID: crawl.NewJobID(tenant, "")}, Spec: []byte(`{}`), Quota: crawl.Quota{MaxRunning: 1},
		Plan: crawl.Plan{Site: true, MaxPages: 1 << 40, Concurrency: 64, Retention: time.Hour},
	}
	page := func(i int) crawl.URL {
		u, err := crawl.ParseURL(fmt.Sprintf("http://site.test/section/page-%d.html", i))
		if err != nil {
			b.Fatal(err)
		}
		return u
	}
	made := 64
	for i := range made {
		n.Inputs = append(n.Inputs, crawl.Input{URL: page(i)})
	}
	if _, err := st.Create(b.Context(), n); err != nil {
		b.Fatal(err)
	}
	sl, _, err := st.Begin(b.Context(), crawl.Ring{JobRef: n.Job})
	if err != nil || sl == nil {
		b.Fatal(sl, err)
	}
	var held []crawl.Item
	if err := r.Client.ConfigResetStat(b.Context()).Err(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for done := 0; done < b.N; {
		x := Exchange{Lease: 16}
		for _, it := range held {
			u, _ := crawl.ParseURL(it.URL)
			a := &Accepted{Page: crawl.Page{SourceURL: it.URL, URL: it.URL, Status: 200, Bytes: 6000, Title: "A page"}, Final: u.Key()}
			for k := range 20 {
				at := max(0, made-k)
				if k < 2 {
					made++
					at = made
				}
				l := page(at)
				a.Links = append(a.Links, crawl.Link{URL: l, Key: l.Key()})
			}
			x.Commits = append(x.Commits, Commit{Item: it, Accepted: a})
		}
		out, err := st.Exchange(b.Context(), sl, x)
		if err != nil || out.Lost {
			b.Fatal(out, err)
		}
		done += len(held)
		held = out.Items
	}
	// What Redis itself was busy for is less a matter of the machine than the time.
	for line := range strings.Lines(r.Client.Info(b.Context(), "commandstats").Val()) {
		var calls, us float64
		if n, _ := fmt.Sscanf(line, "cmdstat_evalsha:calls=%f,usec=%f,", &calls, &us); n == 2 {
			b.ReportMetric(us*1000/float64(b.N), "redis-ns/op")
		}
	}
}
