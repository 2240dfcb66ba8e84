package store

import (
	"fmt"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// BenchmarkUpsert commits pages of a collection that give one item each, with two facets, of
// five values and of one, and three numbers. An operation is a page; beside what BenchmarkCommit
// shows a page costs, it is what the collection adds.
func BenchmarkUpsert(b *testing.B) {
	for _, tc := range []struct {
		name string
		make func(c *Commit, i int)
	}{
		{"none", func(c *Commit, _ int) { c.Accepted.Upserts = nil }},
		{"created", func(c *Commit, i int) { c.Accepted.Upserts[0].Key = fmt.Sprintf("new %d", i) }},
		{"unchanged", func(*Commit, int) {}},
		{"updated", func(c *Commit, i int) {
			u := &c.Accepted.Upserts[0]
			u.Fingerprint = [16]byte{2, byte(i), byte(i >> 8)}
			for k := range u.Facets {
				u.Facets[k].Value += " changed"
			}
			for k := range u.Numbers {
				u.Numbers[k].Value += "5"
			}
		}},
		{"not modified", func(c *Commit, _ int) { c.Accepted.Upserts, c.Accepted.NotModified = nil, true }},
	} {
		b.Run(tc.name, func(b *testing.B) { benchUpsert(b, tc.make) })
	}
}

func benchUpsert(b *testing.B, prepare func(*Commit, int)) {
	b.Helper()
	r := crawltest.Private(b)
	f := &fixture{Store: New(r.Client, Options{}), tenant: crawltest.Tenant(b)}
	commits := func(prepare func(*Commit, int)) {
		n := newJob(f.tenant, "")
		n.Plan.Collection = &crawl.Collection{
			Name: "jobs", Key: "k", Facets: []string{"skills", "city"}, Numbers: []string{"a", "b", "c"},
		}
		n.Plan.Series = "one"
		for i := range b.N {
			u, err := crawl.ParseURL(fmt.Sprintf("http://site.test/posting/%d.html", i))
			if err != nil {
				b.Fatal(err)
			}
			n.Inputs = append(n.Inputs, crawl.Input{URL: u})
		}
		if _, err := f.Create(b.Context(), n); err != nil {
			b.Fatal(err)
		}
		sl, _, err := f.Begin(b.Context(), crawl.Ring{JobRef: n.Job})
		if err != nil || sl == nil {
			b.Fatal(sl, err)
		}
		if err := r.Client.ConfigResetStat(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
		for done := 0; done < b.N; {
			out, err := f.Exchange(b.Context(), sl, Exchange{Lease: 16})
			if err != nil {
				b.Fatal(err)
			}
			var x Exchange
			for _, it := range out.Items {
				c := benchItem(it)
				prepare(&c, done)
				x.Commits = append(x.Commits, c)
				done++
			}
			if _, err := f.Exchange(b.Context(), sl, x); err != nil {
				b.Fatal(err)
			}
		}
	}
	commits(func(*Commit, int) {})
	b.ResetTimer()
	commits(prepare)
	for line := range strings.Lines(r.Client.Info(b.Context(), "commandstats").Val()) {
		var calls, us float64
		if n, _ := fmt.Sscanf(line, "cmdstat_evalsha:calls=%f,usec=%f,", &calls, &us); n == 2 {
			b.ReportMetric(us*1000/float64(b.N), "redis-ns/op")
		}
	}
	var bytes int64
	for _, key := range r.Client.Keys(b.Context(), rootKey(f.tenant)+":d:*").Val() {
		bytes += r.Client.Do(b.Context(), "MEMORY", "USAGE", key, "SAMPLES", 0).Val().(int64)
	}
	c, err := f.Collection(b.Context(), f.tenant, "jobs")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(bytes)/float64(c.Total), "B/item")
}

func benchItem(it crawl.Item) Commit {
	u, _ := crawl.ParseURL(it.URL)
	up := Upsert{Key: it.URL, Fingerprint: [16]byte{1}}
	for k := range 5 {
		up.Facets = append(up.Facets, Facet{"skills", fmt.Sprintf("skill %d", (it.N+int64(k))%100)})
	}
	up.Facets = append(up.Facets, Facet{"city", fmt.Sprintf("city %d", it.N%50)})
	up.Numbers = []Number{{"a", "15000"}, {"b", "25000.25"}, {"c", "13"}}
	return Commit{Item: it, Accepted: &Accepted{
		Page: crawl.Page{
			SourceURL: it.URL, URL: it.URL, Status: 200, Bytes: 6000, Title: "A page",
			Fields: []byte(`{"title":"A posting","company":"A company","skills":["one","two"],"a":15000,"b":25000.25,"c":13}`),
		},
		Final: u.Key(), Upserts: []Upsert{up},
		Visit: &Visit{ETag: `"0123456789abcdef"`, Under: "0123456789abcdef0123456789abcdef"},
	}}
}
