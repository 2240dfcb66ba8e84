package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// walk reads a list of URLs to its end, in pages of the given size.
func walk(ctx context.Context, t rapid.TB, st *Store, j crawl.JobRef, q URLQuery, limit int) []URLEntry {
	t.Helper()
	q.From, q.Limit = URLPlace{}, limit
	var all []URLEntry
	for pages := 0; ; pages++ {
		p, err := st.URLs(ctx, j, q)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.URLs) > limit || pages > 1000 {
			t.Fatalf("page %d of %d entries, limit %d", pages, len(p.URLs), limit)
		}
		all = append(all, p.URLs...)
		if !p.More {
			return all
		}
		if p.Next == q.From {
			t.Fatalf("more at %+v, and no way to it", p.Next)
		}
		if q.From = p.Next; !q.Covers(q.From) {
			t.Fatalf("%+v is not of the list that gave it out", q.From)
		}
	}
}

func urlsOf(entries []URLEntry) []string {
	out := []string{}
	for _, u := range entries {
		out = append(out, u.URL)
	}
	slices.Sort(out)
	return out
}

// urls compares what is listed with the model: each admitted URL once, in its state.
func (m *model) urls(ctx context.Context, t *rapid.T) {
	j, err := m.st.Job(ctx, m.job)
	if err != nil {
		t.Fatal(err)
	}
	all := walk(ctx, t, m.st, m.job, URLQuery{}, 1000)
	limit := rapid.IntRange(1, 7).Draw(t, "limit")
	if d := cmp.Diff(all, walk(ctx, t, m.st, m.job, URLQuery{}, limit)); d != "" {
		t.Fatalf("-one page +pages of %d:\n%s", limit, d)
	}
	byState := map[crawl.PageState][]URLEntry{}
	var admitted []URLEntry
	for _, u := range all {
		byState[u.State] = append(byState[u.State], u)
		if u.State != PageRefused {
			admitted = append(admitted, u)
		}
		// The depth of a failure is what its commit says, and those of the model say nothing.
		if (u.Depth == 0) != (u.DiscoveredOn == "") && u.State != crawl.PageFailed ||
			u.NextAt.IsZero() != (u.State != crawl.PageDeferred) {
			t.Fatalf("entry %+v", u)
		}
	}
	for _, state := range URLStates {
		if d := cmp.Diff(byState[state], walk(ctx, t, m.st, m.job, URLQuery{State: state}, limit)); d != "" {
			t.Fatalf("-%s of all +asked for:\n%s", state, d)
		}
	}
	got := map[crawl.PageState]int64{}
	for state, entries := range byState {
		got[state] = int64(len(entries))
	}
	want := map[crawl.PageState]int64{
		crawl.PageQueued: j.Queued, crawl.PageActive: j.Active, crawl.PageDeferred: j.Deferred,
		crawl.PageAccepted: j.Accepted, crawl.PageFailed: j.Failed, crawl.PageSkipped: j.Skipped,
		crawl.PageCancelled: j.Cancelled, PageRefused: m.refusals,
	}
	maps.DeleteFunc(want, func(_ crawl.PageState, n int64) bool { return n == 0 })
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("-counted +listed:\n%s", d)
	}
	if d := cmp.Diff(slices.Sorted(maps.Keys(m.seen)), urlsOf(admitted)); d != "" {
		t.Fatalf("-admitted +listed:\n%s", d)
	}
	m.reasons(ctx, t, j, byState, limit)
	m.waiting(t, byState)
}

// reasons compares the lists by reason with those by state and with what is counted.
func (m *model) reasons(ctx context.Context, t *rapid.T, j crawl.Job, byState map[crawl.PageState][]URLEntry, limit int) {
	want := map[crawl.Reason]int64{}
	maps.Copy(want, j.SkippedByReason)
	for code, n := range j.FailedByType {
		want[crawl.Reason(code)] += n
	}
	for reason, n := range j.RefusedByReason {
		want[reason] += n
	}
	for reason, n := range want {
		var of []URLEntry
		for _, state := range []crawl.PageState{crawl.PageFailed, crawl.PageSkipped, PageRefused} {
			for _, u := range byState[state] {
				if u.Reason == reason {
					of = append(of, u)
				}
			}
		}
		if int64(len(of)) != n {
			t.Fatalf("%d URLs of %s, counted %d", len(of), reason, n)
		}
		if d := cmp.Diff(of, walk(ctx, t, m.st, m.job, URLQuery{Reason: reason}, limit)); d != "" {
			t.Fatalf("-%s of all +asked for:\n%s", reason, d)
		}
	}
}

// waiting compares what has not ended with the items of the model.
func (m *model) waiting(t *rapid.T, byState map[crawl.PageState][]URLEntry) {
	entry := func(it crawl.Item, state crawl.PageState, due int64) string {
		return fmt.Sprintln(state, it.URL, it.Depth, it.Attempt, it.FetchURL, due)
	}
	var want, got []string
	for _, it := range m.queued {
		want = append(want, entry(it, crawl.PageQueued, 0))
	}
	for _, h := range m.leased {
		want = append(want, entry(h.item, crawl.PageActive, 0))
	}
	for _, w := range m.deferred {
		want = append(want, entry(w.item, crawl.PageDeferred, w.due))
	}
	for _, state := range []crawl.PageState{crawl.PageQueued, crawl.PageActive, crawl.PageDeferred} {
		for _, u := range byState[state] {
			due := int64(0)
			if !u.NextAt.IsZero() {
				due = u.NextAt.UnixMilli()
			}
			got = append(got, fmt.Sprintln(state, u.URL, u.Depth, u.Attempts, u.FetchURL, due))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("what waits (-want +got):\n%s", d)
	}
}

// At every moment, the end included, each admitted URL is listed once, in the state in
// which it is counted, whatever the size of the pages.
func TestURLsAreThoseCounted(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx := t.Context()
			m := newModel(ctx, rt, r, crawltest.Tenant(t))
			m.mostItems = 3
			step := func(f func(context.Context, *rapid.T)) func(*rapid.T) {
				return func(rt *rapid.T) { f(ctx, rt) }
			}
			rt.Repeat(map[string]func(*rapid.T){
				"begin":   step(m.begin),
				"lease":   step(m.lease),
				"commit":  step(m.commit),
				"commit2": step(m.commit),
				"release": step(m.release),
				"end":     step(m.end),
				"sweep":   step(m.sweep),
				"time":    func(rt *rapid.T) { m.now += int64(rapid.IntRange(1, 9000).Draw(rt, "ms")) },
				"cancel": func(rt *rapid.T) {
					if rapid.IntRange(0, 5).Draw(rt, "seldom") == 0 {
						m.cancel(ctx, rt)
					}
				},
				"urls": step(m.urls),
			})
			m.urls(ctx, rt)
		})
	})
}

// linked makes up links with verdicts: "reason url" or "url".
func linked(t *testing.T, links map[string]crawl.Reason) []crawl.Link {
	t.Helper()
	var out []crawl.Link
	for _, text := range slices.Sorted(maps.Keys(links)) {
		u, err := crawl.ParseURL(text)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, crawl.Link{URL: u, Key: u.Key(), Refused: links[text]})
	}
	return out
}

// What became of each URL is told with what there is to tell: for an alias the record
// that has the page, for a redirect that is not followed where it led (RED-04), for what
// a rule refused the rule.
func TestURLsSayWhy(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		n.Plan = crawl.Plan{
			Site: true, Seeds: []string{"http://site.test/0"}, Scope: crawl.ScopeHost, Sources: []string{"site.test", "other.test"},
			Exclude: []string{"/private/**"}, MaxPages: 6, MaxDepth: 1, Concurrency: 8, Retention: time.Hour,
		}
		f.create(t, n)
		sl := f.begin(t, n.Job)
		seed := accept(t, f.exchange(t, sl, Exchange{Lease: 1}).Items[0])
		seed.Accepted.Page.Attempts = 1
		seed.Accepted.Links = linked(t, map[string]crawl.Reason{
			"http://site.test/a": "", "http://site.test/b": "", "http://site.test/c": "", "http://site.test/d": "",
			"http://site.test/e": "", "http://site.test/f": "",
			"http://other.test/x": crawl.RefusedOutOfScope, "http://site.test/private/x": crawl.RefusedExcluded,
			"http://alien.test/": crawl.RefusedSource, "http://site.test/trap": "trap",
		})
		f.exchange(t, sl, Exchange{Commits: []Commit{seed}})
		items := f.exchange(t, sl, Exchange{Lease: 8}).Items
		alias := accept(t, items[0])
		alias.Accepted.Final = seed.Accepted.Final
		f.exchange(t, sl, Exchange{Commits: []Commit{
			{Item: items[2], Skipped: "robots", SkippedTo: "Disallow: /c"},
			{Item: items[1], Skipped: crawl.SkipRedirectOutOfScope, SkippedTo: "http://other.test/y"},
			alias,
			{Item: items[3], Failed: &crawl.Failure{
				SourceURL: items[3].URL, URL: "http://site.test/dd", ErrorType: "http_404", Status: 404, Message: "Gone.", Attempts: 2, Depth: 1,
			}},
			{Item: items[4], Redirect: &Redirect{URL: "http://other.test/z", Hops: 1}},
		}})
		const on = "http://site.test/0"
		want := []URLEntry{
			{URL: "http://site.test/e", State: crawl.PageQueued, Depth: 1, DiscoveredOn: on, FetchURL: "http://other.test/z"},
			{URL: on, State: crawl.PageAccepted, Attempts: 1, FinalURL: on, Seq: 1, Status: 200},
			{
				URL: "http://site.test/d", State: crawl.PageFailed, Reason: "http_404", Depth: 1, DiscoveredOn: on, Attempts: 2,
				FinalURL: "http://site.test/dd", Status: 404, Message: "Gone.",
			},
			{URL: "http://site.test/a", State: crawl.PageSkipped, Reason: crawl.SkipAlias, Depth: 1, DiscoveredOn: on, FinalURL: on, AliasOf: on, Seq: 1},
			{
				URL: "http://site.test/b", State: crawl.PageSkipped, Reason: crawl.SkipRedirectOutOfScope, Depth: 1, DiscoveredOn: on,
				FinalURL: "http://other.test/y",
			},
			{URL: "http://site.test/c", State: crawl.PageSkipped, Reason: "robots", Rule: "Disallow: /c", Depth: 1, DiscoveredOn: on},
			{URL: "http://site.test/f", State: PageRefused, Reason: crawl.RefusedPageLimit, Rule: "max_pages 6", Depth: 1, DiscoveredOn: on},
			{
				URL: "http://alien.test/", State: PageRefused, Reason: crawl.RefusedSource, Rule: "allowed sources: site.test, other.test",
				Depth: 1, DiscoveredOn: on,
			},
			{URL: "http://other.test/x", State: PageRefused, Reason: crawl.RefusedOutOfScope, Rule: "scope", Depth: 1, DiscoveredOn: on},
			{URL: "http://site.test/private/x", State: PageRefused, Reason: crawl.RefusedExcluded, Rule: "/private/**", Depth: 1, DiscoveredOn: on},
			{URL: "http://site.test/trap", State: PageRefused, Reason: "trap", Depth: 1, DiscoveredOn: on},
		}
		if d := cmp.Diff(want, walk(t.Context(), t, f.Store, n.Job, URLQuery{}, 3)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		for _, u := range want {
			if got := walk(t.Context(), t, f.Store, n.Job, URLQuery{Reason: u.Reason}, 3); u.Reason != "" && !cmp.Equal(got, []URLEntry{u}) {
				t.Errorf("of reason %s: %+v", u.Reason, got)
			}
		}
	})
}

// Items that are no pages are in the containers too, and are no URLs of the job; a page of
// them alone is empty and leads on.
func TestURLsArePages(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		f.create(t, n)
		for i := range 1500 {
			f.rdb.LPush(t.Context(), jobKey(n.Job)+":queued", row(crawl.Item{Kind: 's', N: int64(i), URL: "http://site.test/map"}))
		}
		p, err := f.URLs(t.Context(), n.Job, URLQuery{Limit: 1})
		if err != nil || len(p.URLs) != 0 || !p.More {
			t.Errorf("%+v, %v", p, err)
		}
		for _, limit := range []int{1, 7, 1000} {
			if got := walk(t.Context(), t, f.Store, n.Job, URLQuery{}, limit); len(got) != 1 || got[0].URL != "http://site.test/0" {
				t.Errorf("limit %d: %+v", limit, got)
			}
		}
	})
}

// A reason that few have is found behind thousands that have another; each call looks at a
// bounded number of them.
func TestURLsOfARareReason(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		f.create(t, n)
		sl := f.begin(t, n.Job)
		it := f.exchange(t, sl, Exchange{Lease: 1}).Items[0]
		c := accept(t, it)
		for i := range MaxLinks {
			u := url(t, 100+i)
			l := crawl.Link{URL: u, Key: u.Key(), Refused: crawl.RefusedOutOfScope}
			if i == 1234 {
				l.Refused = crawl.RefusedDepth
			}
			c.Accepted.Links = append(c.Accepted.Links, l)
		}
		f.exchange(t, sl, Exchange{Commits: []Commit{c}})
		q := URLQuery{State: PageRefused, Reason: crawl.RefusedDepth, Limit: 10}
		p, err := f.URLs(t.Context(), n.Job, q)
		if want := (URLPlace{"refused", 1000}); err != nil || len(p.URLs) != 0 || !p.More || p.Next != want || !p.Ended {
			t.Errorf("%+v, %v", p, err)
		}
		q.From = p.Next
		p, err = f.URLs(t.Context(), n.Job, q)
		if err != nil || len(p.URLs) != 1 || p.More || p.URLs[0].URL != "http://site.test/1334" || p.URLs[0].DiscoveredOn != it.URL {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// More records than one hash holds, and pages that end in the middle of one.
func TestURLsOfManyRecords(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		const pages = 2*perHash + 45 // half of them fail: more than a hash of each
		n := f.job(t, "", pages)
		n.Plan.Concurrency = 1000
		f.create(t, n)
		sl := f.begin(t, n.Job)
		for {
			items := f.exchange(t, sl, Exchange{Lease: 500}).Items
			if len(items) == 0 {
				break
			}
			var x Exchange
			for _, it := range items {
				if it.N%2 == 0 {
					x.Commits = append(x.Commits, accept(t, it))
					continue
				}
				x.Commits = append(x.Commits, Commit{Item: it, Failed: &crawl.Failure{
					SourceURL: it.URL, URL: it.URL, ErrorType: "timeout", Message: `quotes "error_type":"http_404"`,
				}})
			}
			f.exchange(t, sl, x)
		}
		all := walk(t.Context(), t, f.Store, n.Job, URLQuery{}, 777)
		if got := slices.Compact(urlsOf(all)); len(all) != pages || len(got) != pages {
			t.Errorf("%d entries, %d URLs, want %d", len(all), len(got), pages)
		}
		for i, u := range walk(t.Context(), t, f.Store, n.Job, URLQuery{State: crawl.PageAccepted}, 999) {
			if u.Seq != int64(i)+1 {
				t.Fatalf("entry %d is of record %d", i, u.Seq)
			}
		}
		// One of them, spelled in another way.
		u, err := crawl.ParseURL(strings.Replace(all[1500].URL, "http://site", "HTTP://SITE", 1) + "#there")
		if err != nil {
			t.Fatal(err)
		}
		if got := walk(t.Context(), t, f.Store, n.Job, URLQuery{URL: u}, 333); !cmp.Equal(got, all[1500:1501]) {
			t.Errorf("asked for one URL: %+v, want %+v", got, all[1500])
		}
		for reason, want := range map[crawl.Reason]int{"timeout": pages/2 + 1, "http_404": 0, "time": 0} {
			if got := walk(t.Context(), t, f.Store, n.Job, URLQuery{Reason: reason}, 100); len(got) != want {
				t.Errorf("%d URLs of %s, want %d", len(got), reason, want)
			}
		}
	})
}

// The list of a job that is not there, or not any more, is refused as its status is.
func TestURLsOfNoJob(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		_, err := f.URLs(t.Context(), n.Job, URLQuery{Limit: 1})
		wantCode(t, err, crawl.CodeNotFound)
		f.create(t, n)
		stranger := crawl.JobRef{Tenant: f.tenant + "x", ID: n.Job.ID}
		_, err = f.URLs(t.Context(), stranger, URLQuery{Limit: 1})
		wantCode(t, err, crawl.CodeNotFound)
		_, err = f.URLs(t.Context(), n.Job, URLQuery{Limit: 1, From: URLPlace{Container: "spec", Offset: 1}})
		wantCode(t, err, crawl.CodeMalformed)
		f.finish(t, n.Job)
		if err := f.Delete(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
		_, err = f.URLs(t.Context(), n.Job, URLQuery{Limit: 1})
		wantCode(t, err, crawl.CodeExpired)
	})
}

// While a job runs the end of a list is a place to go on from.
func TestURLsGoOn(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 3)
		f.create(t, n)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 3}).Items
		q := URLQuery{State: crawl.PageSkipped, Limit: 10}
		var got []string
		for i, reason := range []crawl.Reason{"", "a", "b", "b"} { // by name, since one that sorts earlier is missed
			if reason != "" {
				f.exchange(t, sl, Exchange{Commits: []Commit{{Item: items[i-1], Skipped: reason}}})
			}
			p, err := f.URLs(t.Context(), n.Job, q)
			if err != nil || p.More || p.Ended != (i == 3) {
				t.Fatalf("%+v, %v", p, err)
			}
			got, q.From = append(got, urlsOf(p.URLs)...), p.Next
		}
		if want := []string{items[0].URL, items[1].URL, items[2].URL}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A place behind the end of a list that has become shorter is its end.
func TestURLsOfAShrunkList(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 4)
		f.create(t, n)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 4}).Items
		q := URLQuery{State: crawl.PageQueued, From: URLPlace{"queued", 4}, Limit: 10}
		p, err := f.URLs(t.Context(), n.Job, q)
		if want := (URLPlace{"queued", 0}); err != nil || len(p.URLs) != 0 || p.More || p.Next != want {
			t.Fatalf("%+v, %v", p, err)
		}
		f.exchange(t, sl, Exchange{Returns: []Return{{Item: items[0]}}})
		q.From = p.Next
		if p, err = f.URLs(t.Context(), n.Job, q); err != nil || len(p.URLs) != 1 {
			t.Errorf("what came back: %+v, %v", p, err)
		}
	})
}

// A place is taken only by the list that gives it out.
func TestURLPlaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		query URLQuery
		place URLPlace
		want  bool
	}{
		{URLQuery{}, URLPlace{}, true},
		{URLQuery{}, URLPlace{"refused", 3}, true},
		{URLQuery{}, URLPlace{"skip:robots", 3}, true},
		{URLQuery{Reason: "robots"}, URLPlace{"skip:robots", 3}, true},
		{URLQuery{State: crawl.PageCancelled}, URLPlace{"cancelled_leased", 0}, true},
		{URLQuery{}, URLPlace{"", 3}, false},
		{URLQuery{}, URLPlace{"refused", -1}, false},
		{URLQuery{}, URLPlace{"skip", 0}, false},
		{URLQuery{}, URLPlace{"skip:", 0}, false},
		{URLQuery{}, URLPlace{"skip:a:b", 0}, false},
		{URLQuery{}, URLPlace{"seen", 0}, false},
		{URLQuery{Reason: "noindex"}, URLPlace{"skip:robots", 3}, false},
		{URLQuery{Reason: "robots"}, URLPlace{"queued", 3}, false},
		{URLQuery{State: crawl.PageFailed}, URLPlace{"rec", 3}, false},
		{URLQuery{State: crawl.PageFailed}, URLPlace{"skip:robots", 3}, false},
	} {
		if got := tt.query.Covers(tt.place); got != tt.want {
			t.Errorf("%+v covers %+v: %v", tt.query, tt.place, got)
		}
	}
	for _, state := range URLStates {
		if len(containers[state]) == 0 {
			t.Errorf("%s is nowhere", state)
		}
	}
}

// A rule is told whole if it is a pattern, and never cut inside of a character.
func TestClip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		n := rapid.IntRange(3, 40).Draw(t, "bytes")
		got := clip(s, n)
		if len(got) > n || len(s) <= n && got != s || !utf8.ValidString(got) {
			t.Fatalf("%q of %d bytes became %q", s, n, got)
		}
	})
}
