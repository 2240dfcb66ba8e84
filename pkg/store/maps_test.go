package store

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// mapped makes up a site crawl of n seeds that reads sitemaps, and begins a slice of it.
func (f *fixture) mapped(t *testing.T, n int) (NewJob, *Slice) {
	t.Helper()
	j := f.job(t, "", n)
	j.Plan.Site, j.Plan.Sitemap = true, crawl.SitemapInclude
	f.create(t, j)
	return j, f.begin(t, j.Job)
}

// leaseMap leases one item, which must be a sitemap.
func (f *fixture) leaseMap(t *testing.T, sl *Slice) crawl.Item {
	t.Helper()
	items := f.exchange(t, sl, Exchange{Lease: 1}).Items
	if len(items) != 1 || items[0].Kind != crawl.ItemSitemap {
		t.Fatalf("leased %+v, want a sitemap", items)
	}
	return items[0]
}

func mapURL(t *testing.T, i int) crawl.URL {
	t.Helper()
	u, err := crawl.ParseURL(fmt.Sprintf("http://site.test/map%d.xml", i))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (f *fixture) mapCommit(t *testing.T, sl *Slice, c MapCommit) MapCommitted {
	t.Helper()
	return f.exchange(t, sl, Exchange{Maps: []MapCommit{c}}).Mapped[0]
}

// A site crawl begins with the usual place of each origin of its seeds, once, and only
// where it is asked to.
func TestRootMaps(t *testing.T) {
	t.Parallel()
	var inputs []crawl.Input
	for _, s := range []string{"http://a.test/x", "http://a.test/y?z", "https://a.test/", "http://a.test:81/", "http://b.test/x"} {
		u, err := crawl.ParseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, crawl.Input{URL: u})
	}
	all := []string{
		"http://a.test/sitemap.xml", "https://a.test/sitemap.xml", "http://a.test:81/sitemap.xml", "http://b.test/sitemap.xml",
	}
	for _, c := range []struct {
		site bool
		how  string
		want []string
	}{
		{true, crawl.SitemapInclude, all},
		{true, crawl.SitemapOnly, all},
		{true, crawl.SitemapSkip, nil},
		{true, "", nil},
		{false, crawl.SitemapInclude, nil},
	} {
		urls, err := rootMaps(&NewJob{Plan: crawl.Plan{Site: c.site, Sitemap: c.how}, Inputs: inputs})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range urls {
			got = append(got, u.String())
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("site %v, sitemap %q (-want +got):\n%s", c.site, c.how, d)
		}
	}
}

// A job reads 1,000 sitemaps and no deeper than three levels; the others are counted.
func TestMapLimits(t *testing.T) {
	t.Parallel()
	t.Run("number", testMapNumber)
	t.Run("depth", testMapDepth)
}

func testMapNumber(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n, sl := f.mapped(t, 1)
		next := 0
		names := func(k int) (urls []crawl.URL) {
			for range k {
				next++
				urls = append(urls, mapURL(t, next))
			}
			return urls
		}
		it := f.leaseMap(t, sl)
		f.mapCommit(t, sl, MapCommit{Item: it, Outcome: MapRead, Nested: append(names(600), mapURL(t, 1))})
		it = f.leaseMap(t, sl)
		if it.Depth != 1 || it.Parent != mapParent+1 {
			t.Errorf("nested %+v", it)
		}
		f.mapCommit(t, sl, MapCommit{Item: it, Outcome: MapRead, Nested: append(names(500), mapURL(t, 1))})
		if got := f.read(t, n.Job).RefusedByReason[crawl.RefusedSitemapLimit]; got != 101 {
			t.Errorf("%d refused of 1,101", got)
		}
	})
}

func testMapDepth(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n, sl := f.mapped(t, 1)
		for depth := range 4 {
			it := f.leaseMap(t, sl)
			if it.Depth != depth {
				t.Errorf("leased %+v, want depth %d", it, depth)
			}
			f.mapCommit(t, sl, MapCommit{Item: it, Outcome: MapRead, Nested: []crawl.URL{mapURL(t, depth)}})
		}
		j := f.read(t, n.Job)
		if got := j.RefusedByReason[crawl.RefusedSitemapLimit]; got != 1 || j.Sitemaps != 4 {
			t.Errorf("%d refused, %d read", got, j.Sitemaps)
		}
	})
}

// No more than a quarter of a job's concurrency reads sitemaps, so that its pages go on.
func TestMapsLeaveRoom(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 20)
		n.Plan.Site, n.Plan.Sitemap, n.Plan.Concurrency = true, crawl.SitemapInclude, 8
		f.create(t, n)
		sl := f.begin(t, n.Job)
		f.mapCommit(t, sl, MapCommit{
			Item: f.leaseMap(t, sl), Outcome: MapRead, Nested: []crawl.URL{mapURL(t, 1), mapURL(t, 2), mapURL(t, 3)},
		})
		maps, pages := 0, 0
		for holding := 0; holding < 8; holding++ {
			for _, it := range f.exchange(t, sl, Exchange{Lease: 1, Holding: holding}).Items {
				if it.Kind == crawl.ItemSitemap {
					maps++
				} else {
					pages++
				}
			}
		}
		if out := f.exchange(t, sl, Exchange{Lease: 1, Holding: 8}); maps != 2 || pages != 6 || len(out.Items) != 0 {
			t.Errorf("leased %d sitemaps, %d pages and then %+v, want 2, 6 and none", maps, pages, out.Items)
		}
		if j := f.read(t, n.Job); j.Active != 6 || j.Total != 20 {
			t.Errorf("sitemaps are counted: %+v", j)
		}
	})
}

// A job that has all its pages reads no sitemap any more, and ends when that is all that
// is left: for the limit, since there was more.
func TestMapsOfAFullJob(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		n.Plan.Site, n.Plan.Sitemap, n.Plan.MaxPages = true, crawl.SitemapInclude, 2
		f.create(t, n)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 2}).Items
		u := mapURL(t, 1) // a page, for all that anybody knows
		seed := accept(t, items[1])
		seed.Accepted.Links = []crawl.Link{{URL: u, Key: u.Key()}}
		f.exchange(t, sl, Exchange{Commits: []Commit{seed}}) // not with the lease: a new Redis swaps them
		page := f.exchange(t, sl, Exchange{Lease: 1, Holding: 1}).Items
		if got := f.mapCommit(t, sl, MapCommit{Item: items[0], Outcome: MapPart}); !got.Full {
			t.Error("nobody is told that the job is full")
		}
		f.exchange(t, sl, Exchange{
			Commits: []Commit{accept(t, page[0])}, Maps: []MapCommit{{Item: items[0], Outcome: MapRetry, Retry: time.Second}},
		})
		if out := f.exchange(t, sl, Exchange{Lease: 1}); out.State != crawl.Completed || len(out.Items) != 0 {
			t.Errorf("leased %+v", out)
		}
		if j := f.read(t, n.Job); j.State != crawl.Completed || j.StopReason != crawl.StopPageLimit || j.Accepted != 2 {
			t.Errorf("ended as %+v", j)
		}
	})
}

// A slice that gave a sitemap back says nothing about it any more, although the row is
// the same that another holds now.
func TestMapOfAnotherSlice(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 70)
		n.Plan.Site, n.Plan.Sitemap, n.Plan.Concurrency = true, crawl.SitemapInclude, 8
		f.create(t, n)
		first, second := f.begin(t, n.Job), f.begin(t, n.Job)
		it := f.leaseMap(t, first)
		f.exchange(t, first, Exchange{Returns: []Return{{Item: it}}})
		if again := f.leaseMap(t, second); again != it {
			t.Fatalf("leased %+v, want %+v", again, it)
		}
		for _, o := range []MapOutcome{MapPart, MapRead, MapRetry} {
			if got := f.mapCommit(t, first, MapCommit{Item: it, Outcome: o, Part: 1}); got.Verdict != Stale {
				t.Errorf("%s: %+v", o, got)
			}
		}
		f.exchange(t, first, Exchange{Returns: []Return{{Item: it}}})
		if got := f.mapCommit(t, second, MapCommit{Item: it, Outcome: MapRead}); got.Verdict != Done {
			t.Errorf("the holder: %+v", got)
		}
	})
}

// A sitemap that takes its worker with it each time is given up, and its job ends.
func TestKilledByMap(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n, sl := f.mapped(t, 1)
		for life := 1; ; life++ {
			it := f.leaseMap(t, sl)
			if it.Attempt != life-1 {
				t.Errorf("life %d leased %+v", life, it)
			}
			f.pass(LeaseTime)
			f.heal(t)
			if life == MaxLost {
				break
			}
			if got := f.mapCommit(t, sl, MapCommit{Item: it, Outcome: MapRead}); got.Verdict != Stale {
				t.Errorf("the lost worker's commit: %+v", got)
			}
			sl = f.begin(t, n.Job)
		}
		f.finish(t, n.Job)
		if j := f.read(t, n.Job); j.State != crawl.Completed || j.SitemapsFailed != 1 || j.Accepted != 1 {
			t.Errorf("ended as %+v", j)
		}
	})
}

// A job that waits for nothing but a sitemap says what that waits for, and is rung when it
// is due.
func TestMapWaits(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n, sl := f.mapped(t, 1)
		it := f.leaseMap(t, sl)
		items := f.exchange(t, sl, Exchange{Lease: 1, Holding: 1}).Items
		f.exchange(t, sl, Exchange{
			Commits: []Commit{accept(t, items[0])}, Maps: []MapCommit{{Item: it, Outcome: MapRetry, Retry: 40 * time.Second}},
		})
		if _, err := f.End(t.Context(), sl, 0); err != nil {
			t.Fatal(err)
		}
		if j := f.read(t, n.Job); j.State != crawl.Running || j.WaitingFor != "retry" {
			t.Errorf("%s, waits for %q", j.State, j.WaitingFor)
		}
		f.pass(39 * time.Second)
		if s := f.heal(t); len(s.Rings) != 0 {
			t.Errorf("rung before it is due: %+v", s)
		}
		f.pass(time.Second)
		if s := f.heal(t); len(s.Rings) != 1 {
			t.Errorf("not rung when it is due: %+v", s)
		}
		sl = f.begin(t, n.Job)
		if it = f.leaseMap(t, sl); it.Attempt != 1 {
			t.Errorf("leased %+v", it)
		}
		f.exchange(t, sl, Exchange{Returns: []Return{{Item: it, Delay: time.Minute, For: "robots"}}})
		if _, err := f.End(t.Context(), sl, 0); err != nil {
			t.Fatal(err)
		}
		if j := f.read(t, n.Job); j.WaitingFor != "robots" {
			t.Errorf("waits for %q", j.WaitingFor)
		}
		f.pass(time.Minute)
		sl = f.begin(t, n.Job)
		f.mapCommit(t, sl, MapCommit{Item: f.leaseMap(t, sl), Outcome: MapFailed})
		if j := f.read(t, n.Job); j.State != crawl.Completed || j.SitemapsFailed != 1 {
			t.Errorf("ended as %+v", j)
		}
	})
}

// A commit of a sitemap whose answer is lost is sent again by the client itself, and counts
// once: links, what is refused, and the sitemap. A lease that is lost is told anew.
func TestMapsResent(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		n, sl := f.mapped(t, 1)
		out, err := f.through(t, r, leaseScript).Exchange(t.Context(), sl, Exchange{Lease: 1})
		if err != nil || len(out.Items) != 1 {
			t.Fatalf("leased %+v, %v", out.Items, err)
		}
		twice := f.through(t, r, commitMapScript)
		u := mapURL(t, 1)
		for part, c := range []MapCommit{
			{Outcome: MapPart, Links: []MapLink{{Link: crawl.Link{URL: u, Key: u.Key()}}}},
			{Outcome: MapRead, BadLinks: map[crawl.Reason]int{crawl.RefusedInvalid: 2}},
		} {
			c.Item, c.Part = out.Items[0], part+1
			if c.Outcome == MapPart {
				c.BadLinks = map[crawl.Reason]int{crawl.RefusedInvalid: 3}
			}
			x, err := twice.Exchange(t.Context(), sl, Exchange{Maps: []MapCommit{c}})
			if err != nil || x.Mapped[0].Verdict != Done {
				t.Fatalf("%s: %+v, %v", c.Outcome, x.Mapped, err)
			}
		}
		j := f.read(t, n.Job)
		if j.Total != 2 || j.Sitemaps != 1 || j.RefusedByReason[crawl.RefusedInvalid] != 5 {
			t.Errorf("counted %+v", j)
		}
	})
}

// Pages, failed pages and their records say which sitemap named them, after the end of the
// job too; its expiry frees all that was kept for that.
func TestMapRecords(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n, sl := f.mapped(t, 1)
		it := f.leaseMap(t, sl)
		changed := time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC)
		u, v := mapURL(t, 1), mapURL(t, 2)
		f.mapCommit(t, sl, MapCommit{Item: it, Outcome: MapRead, Links: []MapLink{
			{Link: crawl.Link{URL: v, Key: v.Key()}}, {Link: crawl.Link{URL: u, Key: u.Key()}, LastMod: changed},
		}})
		x := Exchange{}
		for _, it := range f.exchange(t, sl, Exchange{Lease: 3}).Items {
			c := accept(t, it)
			if it.URL == v.String() {
				c = Commit{Item: it, Failed: &crawl.Failure{SourceURL: it.URL, URL: it.URL, ErrorType: "http_404", Status: 404}}
			}
			x.Commits = append(x.Commits, c)
		}
		f.exchange(t, sl, x)
		if j := f.read(t, n.Job); j.State != crawl.CompletedWithErrors || j.Total != 3 {
			t.Fatalf("ended as %+v", j)
		}
		recs, err := f.Records(t.Context(), n.Job, 0, 10)
		if err != nil || len(recs.Records) != 2 {
			t.Fatalf("%+v, %v", recs, err)
		}
		if p := recs.Records[1]; p.DiscoveredOn != it.URL || !p.LastMod.Equal(changed) || p.Depth != 1 {
			t.Errorf("record %+v", p)
		}
		if p := recs.Records[0]; p.DiscoveredOn != "" || !p.LastMod.IsZero() {
			t.Errorf("record of a seed %+v", p)
		}
		fails, err := f.Failures(t.Context(), n.Job, 0, 10)
		if err != nil || len(fails.Failures) != 1 || fails.Failures[0].DiscoveredOn != it.URL {
			t.Errorf("%+v, %v", fails, err)
		}
		f.pass(n.Plan.Retention)
		f.heal(t)
		keys, err := f.rdb.Keys(t.Context(), jobKey(n.Job)+":*").Result()
		if err != nil || len(keys) != 0 {
			t.Errorf("left behind: %q, %v", keys, err)
		}
	})
}

// What the URLs of a job cost in Redis is bounded for sitemaps too: their parents are
// written as numbers that a record of a job cannot have.
func TestMapParentInRow(t *testing.T) {
	t.Parallel()
	text := row(crawl.Item{Kind: crawl.ItemPage, N: 7, Depth: 1, Parent: mapParent + 1000, URL: "http://site.test/"})
	if !strings.HasPrefix(text, "p 7 1 "+strconv.Itoa(mapParent+1000)+" ") {
		t.Errorf("row %q", text)
	}
	if !strings.Contains(mustRead("commit.lua"), "'^p %d+ 1 "+strings.Repeat("%d", len(strconv.Itoa(mapParent)))+" '") {
		t.Error("commit.lua does not know a parent that is a sitemap by its digits")
	}
}
