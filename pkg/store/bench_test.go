package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	b.ReportMetric(scriptMicros(b, r.Client)*1000/float64(b.N), "redis-ns/op")
}

// scriptMicros answers what scripts took of Redis since its counts were reset. That is less a matter of the
// machine than the time.
func scriptMicros(b *testing.B, rdb redis.UniversalClient) float64 {
	b.Helper()
	for line := range strings.Lines(rdb.Info(b.Context(), "commandstats").Val()) {
		var calls, us float64
		if n, _ := fmt.Sscanf(line, "cmdstat_evalsha:calls=%f,usec=%f,", &calls, &us); n == 2 {
			return us
		}
	}
	b.Fatal("Redis did not count scripts")
	return 0
}

// BenchmarkLease leases pages without more, a lease in a round trip; the slice that has them ends now and then,
// unmeasured, and gives them back. An operation is a lease.
func BenchmarkLease(b *testing.B) {
	for _, size := range []int{1, 32} {
		b.Run(fmt.Sprintf("pages=%d", size), func(b *testing.B) { benchmarkLease(b, size) })
	}
}

func benchmarkLease(b *testing.B, size int) {
	b.Helper()
	const most = 4096 // pages leased before they are given back
	r := crawltest.Private(b)
	st := New(r.Client, Options{})
	tenant := crawltest.Tenant(b)
	n := NewJob{
		Job:  crawl.JobRef{Tenant: tenant, ID: crawl.NewJobID(tenant, "")},
		Spec: []byte(`{}`), Quota: crawl.Quota{MaxRunning: 1},
		Plan: crawl.Plan{Site: true, MaxPages: 1 << 40, Concurrency: most, Retention: time.Hour},
	}
	for i := range 2 * most {
		u, err := crawl.ParseURL(fmt.Sprintf("http://site.test/section/page-%d.html", i))
		if err != nil {
			b.Fatal(err)
		}
		n.Inputs = append(n.Inputs, crawl.Input{URL: u})
	}
	if _, err := st.Create(b.Context(), n); err != nil {
		b.Fatal(err)
	}
	micros := 0.0
	b.ResetTimer()
	for done := 0; done < b.N; {
		b.StopTimer()
		sl, _, err := st.Begin(b.Context(), crawl.Ring{JobRef: n.Job})
		if err != nil || sl == nil {
			b.Fatal(sl, err)
		}
		if err := r.Client.ConfigResetStat(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		for held := 0; done < b.N && held < most; held += size {
			out, err := st.Exchange(b.Context(), sl, Exchange{Lease: size, Holding: held})
			if err != nil || len(out.Items) != size {
				b.Fatal(len(out.Items), err)
			}
			done++
		}
		b.StopTimer()
		micros += scriptMicros(b, r.Client)
		if _, err := st.End(b.Context(), sl, NoRest); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(micros*1000/float64(b.N), "redis-ns/op")
}
