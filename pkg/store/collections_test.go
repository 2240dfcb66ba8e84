package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// collecting makes up a job of n inputs that enter the collection jobs.
func (f *fixture) collecting(t *testing.T, n int) NewJob {
	t.Helper()
	j := f.job(t, "", n)
	j.Job.ID = crawl.NewJobID(f.tenant, "")
	j.Quota.MaxRunning = 100
	def := modelCollection
	j.Plan.Collection, j.Plan.Series = &def, "one"
	return j
}

// item commits a page that gives one item of its own, in the version given; 0 is a page that
// was not modified.
func gives(t *testing.T, it crawl.Item, key string, version byte) Commit {
	t.Helper()
	c := accept(t, it)
	if version == 0 {
		c.Accepted.NotModified = true
		return c
	}
	u := Upsert{Key: key, Fingerprint: [16]byte{version}}
	c.Accepted.Page.Fields = fieldsOf(u)
	c.Accepted.Upserts = []Upsert{u}
	c.Accepted.Visit = &Visit{ETag: `"` + key + `"`, Under: "x"}
	return c
}

// crawlAll works a collecting job off: page /N gives item kN in the version that of says.
func (f *fixture) crawlAll(t *testing.T, n NewJob, of func(url string) byte) crawl.Job {
	t.Helper()
	f.create(t, n)
	sl := f.begin(t, n.Job)
	for {
		out := f.exchange(t, sl, Exchange{Lease: 10})
		if len(out.Items) == 0 {
			return f.read(t, n.Job)
		}
		var x Exchange
		for _, it := range out.Items {
			x.Commits = append(x.Commits, gives(t, it, "k"+it.URL[strings.LastIndex(it.URL, "/")+1:], of(it.URL)))
		}
		f.exchange(t, sl, x)
	}
}

func version(v byte) func(string) byte { return func(string) byte { return v } }

// The first job of a collection defines it. Another definition is refused and says what it is;
// the same one in another order is the same, and a refused job leaves nothing.
func TestDefinition(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.create(t, f.collecting(t, 1))
		for _, tc := range []struct {
			name string
			def  crawl.Collection
			same bool
		}{
			{"the same", modelCollection, true},
			{"another order", crawl.Collection{
				Key: "k", Facets: []string{"city", "skills"}, Numbers: []string{"salary"},
			}, true},
			{"another key", crawl.Collection{
				Key: "url", Facets: modelCollection.Facets, Numbers: modelCollection.Numbers,
			}, false},
			{"no facets", crawl.Collection{Key: "k", Numbers: modelCollection.Numbers}, false},
			{"a number as a facet", crawl.Collection{Key: "k", Facets: []string{"city", "skills", "salary"}}, false},
		} {
			n := f.collecting(t, 1)
			n.Quota.SubmissionsPerSecond = 1
			tc.def.Name = "jobs"
			n.Plan.Collection = &tc.def
			_, err := f.Create(t.Context(), n)
			var other *OtherDefinitionError
			switch {
			case tc.same && err != nil:
				t.Errorf("%s: %v", tc.name, err)
			case tc.same:
			case !errors.As(err, &other):
				t.Errorf("%s: %v", tc.name, err)
			default:
				if d := cmp.Diff(modelCollection, other.Existing); d != "" {
					t.Errorf("%s: existing (-want +got):\n%s", tc.name, d)
				}
				if _, err := f.Job(t.Context(), n.Job); crawl.CodeOf(err) != crawl.CodeNotFound {
					t.Errorf("%s: stored all the same: %v", tc.name, err)
				}
				// What was learned costs no token: the same submission comes again at once.
				*n.Plan.Collection = other.Existing
				f.create(t, n)
			}
			f.pass(2 * time.Second)
		}
	})
}

// A replay of a job is one though its collection was deleted and defined anew since.
func TestReplayIntoAnotherDefinition(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.collecting(t, 1)
		n.IdempotencyKey = "key"
		f.create(t, n)
		if err := f.DeleteCollection(t.Context(), f.tenant, "jobs"); err != nil {
			t.Fatal(err)
		}
		other := f.collecting(t, 1)
		other.Plan.Collection = &crawl.Collection{Name: "jobs", Key: "id"}
		f.create(t, other)
		if c := f.create(t, n); !c.Replayed {
			t.Errorf("created %+v", c)
		}
		// What the first job finds does not fit what is there now, and is left out.
		sl := f.begin(t, n.Job)
		it := f.exchange(t, sl, Exchange{Lease: 1}).Items[0]
		f.exchange(t, sl, Exchange{Commits: []Commit{gives(t, it, "k", 1)}})
		j := f.read(t, n.Job)
		if c, err := f.Collection(t.Context(), f.tenant, "jobs"); err != nil || c.Total != 0 || j.Report.NotCollected != 1 {
			t.Errorf("%+v, %v, report %+v", c, err, j.Report)
		}
	})
}

// Collections are listed by name and bounded in number.
func TestCollectionList(t *testing.T) {
	t.Parallel()
	f := newFixture(t, crawltest.Any(t))
	var names []string
	for i := range crawl.MaxCollections {
		n := f.collecting(t, 1)
		n.Quota.MaxRunning = 2000
		n.Plan.Collection.Name = fmt.Sprintf("c%04d", i)
		names = append(names, n.Plan.Collection.Name)
		f.create(t, n)
	}
	n := f.collecting(t, 1)
	_, err := f.Create(t.Context(), n)
	if got := wantCode(t, err, crawl.CodeInvalid); len(got.Fields) != 1 || got.Fields[0].Field != "collection.name" ||
		got.Fields[0].Rule != "max" {
		t.Errorf("%+v", got)
	}
	var got []string
	for after, more := "", true; more; {
		p, err := f.Collections(t.Context(), f.tenant, after, 150)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Collections {
			after, got = c.Name, append(got, c.Name)
		}
		more = p.More
	}
	if !slices.Equal(names, got) {
		t.Errorf("%d of %d names", len(got), len(names))
	}
	if err := f.DeleteCollection(t.Context(), f.tenant, "c0007"); err != nil {
		t.Fatal(err)
	}
	f.create(t, n)
	if p, err := f.Collections(t.Context(), "another", "", 1); err != nil || len(p.Collections) > 0 {
		t.Errorf("another tenant has %+v, %v", p, err)
	}
}

// A re-crawl says what it created, updated, left and lost; a later one finds again what was lost.
func TestRecrawl(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		step := func(what string, of func(string) byte, n int, want crawl.Report, missing int64) {
			t.Helper()
			j := f.crawlAll(t, f.collecting(t, n), of)
			c, err := f.Collection(t.Context(), f.tenant, "jobs")
			if err != nil || j.Report != want || c.Missing != missing {
				t.Errorf("%s: %+v, want %+v; missing %d, want %d; %v", what, j.Report, want, c.Missing, missing, err)
			}
			f.pass(time.Minute)
		}
		step("first", version(1), 4, crawl.Report{Created: 4}, 0)
		step("not modified", version(0), 4, crawl.Report{Unchanged: 4}, 0)
		step("one changed", func(u string) byte { return 1 + byte(strings.Count(u, "/2")) }, 4,
			crawl.Report{Updated: 1, Unchanged: 3}, 0)
		step("one is gone", version(0), 3, crawl.Report{Unchanged: 3, Missing: 1}, 1)
		step("it stays away", version(0), 3, crawl.Report{Unchanged: 3}, 1)
		step("it is back", version(0), 4, crawl.Report{Unchanged: 4}, 0)
	})
}

// What a crawl must have been like to say that something is missing.
func TestComplete(t *testing.T) {
	t.Parallel()
	failed := func(c crawl.Code) func(crawl.Item) Commit {
		return func(it crawl.Item) Commit { return Commit{Item: it, Failed: &crawl.Failure{ErrorType: c}} }
	}
	skipped := func(r crawl.Reason) func(crawl.Item) Commit {
		return func(it crawl.Item) Commit { return Commit{Item: it, Skipped: r} }
	}
	for name, tc := range map[string]struct {
		last    func(crawl.Item) Commit
		missing int64
	}{
		"404":                     {failed("http_404"), 1},
		"410":                     {failed("http_410"), 1},
		"500":                     {failed("http_500"), 0},
		"missing_field":           {failed(crawl.CodeMissingField), 0},
		"robots out of reach":     {skipped("robots_unreachable"), 0},
		"robots":                  {skipped("robots"), 1},
		"304 of an unknown visit": {func(it crawl.Item) Commit { return gives(t, it, "", 0) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, f *fixture) {
				f.crawlAll(t, f.collecting(t, 2), version(1))
				f.pass(time.Minute)
				n := f.collecting(t, 2)
				f.create(t, n)
				sl := f.begin(t, n.Job)
				items := f.exchange(t, sl, Exchange{Lease: 2}).Items
				if strings.HasPrefix(name, "304") {
					// The item of the other page: with it goes the visit of its page.
					if err := f.DeleteItem(t.Context(), f.tenant, "jobs", "k1"); err != nil {
						t.Fatal(err)
					}
				}
				first := gives(t, items[0], "other", 1)
				f.exchange(t, sl, Exchange{Commits: []Commit{first, tc.last(items[1])}})
				want := tc.missing
				if want > 0 {
					want = 2 // k0, which gave way to another, and k1
				}
				if j := f.read(t, n.Job); !j.State.Terminal() || j.Report.Missing != want {
					t.Errorf("%+v, want %d missing", j.Report, want)
				}
			})
		})
	}
}

// What a sitemap alone names is not missing because the sitemap could not be read; that there is
// none at the usual place is no fault of a crawl.
func TestCompleteWithSitemaps(t *testing.T) {
	t.Parallel()
	for outcome, missing := range map[MapOutcome]int64{MapRead: 1, MapNone: 1, MapFailed: 0} {
		t.Run(string(outcome), func(t *testing.T) {
			onEach(t, func(t *testing.T, f *fixture) {
				f.crawlAll(t, f.collecting(t, 2), version(1))
				f.pass(time.Minute)
				n := f.collecting(t, 1)
				n.Plan.Site, n.Plan.Sitemap = true, crawl.SitemapInclude
				f.create(t, n)
				sl := f.begin(t, n.Job)
				var x Exchange
				for _, it := range f.exchange(t, sl, Exchange{Lease: 3}).Items {
					if it.Kind == crawl.ItemSitemap {
						x.Maps = append(x.Maps, MapCommit{Item: it, Outcome: outcome})
					} else {
						x.Commits = append(x.Commits, gives(t, it, "k0", 1))
					}
				}
				f.exchange(t, sl, x)
				if j := f.read(t, n.Job); len(x.Maps) != 1 || !j.State.Terminal() || j.Report.Missing != missing {
					t.Errorf("%d sitemaps, %s, %+v, want %d missing", len(x.Maps), j.State, j.Report, missing)
				}
			})
		})
	}
}

// A collection that is full says so for each record, and takes the page in later, though the
// site would say that it has not changed.
func TestFullCollection(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.collecting(t, 3)
		n.Plan.MaxItems = 2
		if j := f.crawlAll(t, n, version(1)); j.Report != (crawl.Report{Created: 2, NotCollected: 1}) {
			t.Errorf("report %+v", j.Report)
		}
		p, err := f.Records(t.Context(), n.Job, 0, 10)
		if err != nil || p.Records[1].Change != crawl.Created || p.Records[2].Change != "" {
			t.Errorf("records %+v, %v", p.Records, err)
		}
		sl := &Slice{Job: n.Job, Plan: n.Plan}
		for i, want := range []bool{true, true, false} {
			if v, err := f.Visited(t.Context(), sl, n.Inputs[i].URL); err != nil || (v != nil) != want {
				t.Errorf("visit %d: %+v, %v", i, v, err)
			}
		}
		more := f.collecting(t, 3)
		if j := f.crawlAll(t, more, version(1)); j.Report != (crawl.Report{Created: 1, Unchanged: 2}) {
			t.Errorf("with room: %+v", j.Report)
		}
	})
}

// An item that was seen is not missing, also where the clock went back behind the crawl that
// was the last complete one.
func TestClockBack(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		f.crawlAll(t, f.collecting(t, 1), version(1))
		f.pass(time.Hour)
		f.crawlAll(t, f.collecting(t, 1), version(1))
		f.pass(-30 * time.Minute)
		f.crawlAll(t, f.collecting(t, 1), version(2))
		if c, err := f.Collection(t.Context(), f.tenant, "jobs"); err != nil || c.Missing != 0 || c.Total != 1 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// Visits of pages that are never visited again do not stay for ever.
func TestVisitsAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, crawltest.Any(t))
	var last NewJob
	for i := range 5 {
		n := f.collecting(t, 0)
		for k := range 600 {
			u, _ := crawl.ParseURL(fmt.Sprintf("http://site.test/%d?session=%d", k, i))
			n.Inputs = append(n.Inputs, crawl.Input{URL: u})
		}
		f.create(t, n)
		sl := f.begin(t, n.Job)
		for {
			out := f.exchange(t, sl, Exchange{Lease: 50})
			var x Exchange
			for _, it := range out.Items {
				c := gives(t, it, "k", 1)
				c.Accepted.Upserts, c.Accepted.ListPage = nil, true
				x.Commits = append(x.Commits, c)
			}
			if len(x.Commits) == 0 {
				break
			}
			f.exchange(t, sl, x)
		}
		last = n
	}
	var kept int64
	for _, key := range []string{"visits", "visits_old"} {
		kept += f.rdb.HLen(t.Context(), rootKey(f.tenant)+":d:1:"+key).Val()
	}
	if kept < 1000 || kept > 2002 {
		t.Errorf("%d visits are kept of 3000", kept)
	}
	v, err := f.Visited(t.Context(), &Slice{Job: last.Job, Plan: last.Plan}, last.Inputs[599].URL)
	if err != nil || v == nil {
		t.Errorf("the last visit is not kept: %v", err)
	}
}

// Numbers are kept to millionths, exactly.
func TestSplitNumber(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{
		{"0", "0"},
		{"-0", "0"},
		{"1", "1"},
		{"-1.5", "-1.5"},
		{"15e3", "15000"},
		{"0.1", "0.1"},
		{"-0.000001", "-0.000001"},
		{"0.0000005", "0.000001"},
		{"-0.0000005", "-0.000001"},
		{"0.00000049", "0"},
		{"-0.0000001", "0"},
		{"999999999999.999999", "999999999999.999999"},
		{"-999999999999.999999", "-999999999999.999999"},
		{"1e12", "1000000000000"},
		{"-1000000000000", "-1000000000000"},
		{"1000000000000.000001", ""},
		{"1e13", ""},
		{"1e999999999", ""},
		{"1e-999999999", "0"},
		{"NaN", ""},
		{"Inf", ""},
		{"-Infinity", ""},
		{"", ""},
		{"x", ""},
		{"0." + strings.Repeat("3", 5000), "0.333333"},
	} {
		whole, millionths, ok := splitNumber(json.Number(tc.in))
		got := ""
		if ok {
			got = string(joinNumber(whole, millionths))
		}
		if got != tc.want || millionths < 0 || millionths > 999_999 {
			t.Errorf("%.40s: %d + %d millionths, %s, want %s", tc.in, whole, millionths, got, tc.want)
		}
	}
	if got := average("1000000000000000", "1", 3); got != "333333333333333333.333334" {
		t.Errorf("average %s", got)
	}
}

// FuzzUnpackVisit: nothing that Redis could hold makes a worker panic.
func FuzzUnpackVisit(f *testing.F) {
	data, err := packVisit(&Visit{ETag: `"x"`, Links: []VisitedLink{{URL: "http://a.test/" + strings.Repeat("b", 200)}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = unpackVisit(data) })
}

// A visit of a page with a great many links is not kept: its page is read again.
func TestPackVisit(t *testing.T) {
	t.Parallel()
	v := &Visit{ETag: `W/"1"`, LastModified: "x", Under: "u", Title: "<t>"}
	for i := range MaxLinks {
		u := fmt.Sprintf("http://a.test/%x", digest16(fmt.Sprint(i)))
		v.Links = append(v.Links, VisitedLink{URL: u, NoFollow: i%2 == 0})
	}
	if data, err := packVisit(v); err != nil || data != nil {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	v.Links = v.Links[:100]
	data, err := packVisit(v)
	if err != nil || len(data) > maxVisitKept {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	got, err := unpackVisit(data)
	if d := cmp.Diff(v, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// Where many items fit several conditions, nobody counts them: a call looks at a bounded number
// and the reader goes on.
func TestManyItems(t *testing.T) {
	t.Parallel()
	f := newFixture(t, crawltest.Real(t))
	total := f.fill(t, 42_000)
	missing := false
	q := ItemQuery{Tenant: f.tenant, Collection: "jobs", Missing: &missing, Limit: 1000, Filters: []Filter{{"city", "a"}}}
	seen := 0
	for more := true; more; {
		p, err := f.Items(t.Context(), q)
		if err != nil || p.Total != -1 {
			t.Fatalf("total %d, %v", p.Total, err)
		}
		seen += len(p.Items)
		q.After, more = p.Next, p.More
	}
	if seen != total {
		t.Errorf("read %d of %d", seen, total)
	}
	// The fewest of "city" and "rare" are few: those are counted, and pages have numbers.
	q = ItemQuery{
		Tenant: f.tenant, Collection: "jobs", Limit: 10, Offset: 30,
		Filters: []Filter{{"city", "a"}, {"skills", "rare"}},
	}
	if p, err := f.Items(t.Context(), q); err != nil || p.Total != 42 || len(p.Items) != 10 || !p.More {
		t.Errorf("%d of %d, %v", len(p.Items), p.Total, err)
	}
	// None fits: 20,000 are looked at, and there is a way on.
	yes := true
	q = ItemQuery{Tenant: f.tenant, Collection: "jobs", Missing: &yes, Limit: 10}
	before := f.Trips()
	p, err := f.Items(t.Context(), q)
	if err != nil || len(p.Items) != 0 || !p.More || p.Next != walkMost || f.Trips()-before != walkMost/walkLooks {
		t.Errorf("%d items, next %d, more %v, %d trips, %v", len(p.Items), p.Next, p.More, f.Trips()-before, err)
	}
	q.Offset = 1
	_, err = f.Items(t.Context(), q)
	wantCode(t, err, crawl.CodeInvalid)
	q = ItemQuery{Tenant: f.tenant, Collection: "jobs", Limit: 1, Filters: []Filter{{"salary", "1"}, {"city", "a"}}}
	_, err = f.Items(t.Context(), q)
	if got := wantCode(t, err, crawl.CodeInvalid); len(got.Fields) != 1 || got.Fields[0].Field != "salary" ||
		!strings.Contains(got.Fields[0].Message, "skills, city") {
		t.Errorf("%+v", got)
	}
	q.Filters = []Filter{{"city", "a"}}
	q.Offset = 41_999
	if p, err := f.Items(t.Context(), q); err != nil || len(p.Items) != 1 || p.More || p.Total != 42_000 {
		t.Errorf("the last page: %+v, %v", p, err)
	}
	// A delete that is cut short is finished by the sweep.
	a, err := f.one(t.Context(), collectionDeleteScript, []string{rootKey(f.tenant)}, "jobs", 3)
	if err != nil || num(a[1]) != 1 {
		t.Fatalf("%v, %v", a, err)
	}
	if _, err := f.sweep(t.Context(), []string{f.tenant}); err != nil {
		t.Fatal(err)
	}
	if left := f.rdb.Keys(t.Context(), rootKey(f.tenant)+":d*").Val(); slices.ContainsFunc(left, func(k string) bool {
		return !strings.HasSuffix(k, ":due") && !strings.Contains(k, ":day:")
	}) {
		t.Errorf("left: %q", left)
	}
}

// fill enters n items, 1000 a page, and answers how many.
func (f *fixture) fill(t testing.TB, n int) int {
	t.Helper()
	j := newJob(f.tenant, "")
	def := modelCollection
	j.Plan.Collection, j.Plan.Series, j.Plan.Items = &def, "one", &crawl.Items{Selector: "li"}
	for i := range (n + MaxItems - 1) / MaxItems {
		u, err := crawl.ParseURL(fmt.Sprintf("http://site.test/%d", i))
		if err != nil {
			t.Fatal(err)
		}
		j.Inputs = append(j.Inputs, crawl.Input{URL: u})
	}
	if _, err := f.Create(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	sl, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: j.Job})
	if err != nil || sl == nil {
		t.Fatal(sl, err)
	}
	for made := 0; made < n; {
		out, err := f.Exchange(t.Context(), sl, Exchange{Lease: 1})
		if err != nil || len(out.Items) == 0 {
			t.Fatal(out, err)
		}
		u, _ := crawl.ParseURL(out.Items[0].URL)
		c := Commit{Item: out.Items[0], Accepted: &Accepted{
			Page: crawl.Page{SourceURL: u.String(), URL: u.String()}, Final: u.Key(),
		}}
		for i := 1; i <= MaxItems && made < n; i++ {
			made++
			up := Upsert{Item: i, Key: fmt.Sprintf("http://site.test/posting/%d", made), Facets: []Facet{{"city", "a"}}}
			up.Numbers = []Number{{"salary", json.Number(fmt.Sprint(made))}}
			if made%1000 == 1 {
				up.Facets = append(up.Facets, Facet{"skills", "rare"})
			}
			c.Accepted.Upserts = append(c.Accepted.Upserts, up)
			c.Accepted.Items = append(c.Accepted.Items, fieldsOf(up))
		}
		if _, err := f.Exchange(t.Context(), sl, Exchange{Commits: []Commit{c}}); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
