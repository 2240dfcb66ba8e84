package crawler_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// What a page asks of crawlers is done: one that is not to be kept is skipped and its
// links followed, links that are not to be followed are refused. A job that heeds none of
// it keeps and follows all.
func TestDirectives(t *testing.T) {
	t.Parallel()
	archive := []byte(`
-- index.html --
<a href="/hidden">h</a> <a href="/paid" rel="sponsored nofollow">p</a> <a href="/closed">c</a>
-- hidden --
<meta name="robots" content="noindex"><a href="/behind">b</a>
-- behind --
behind
-- closed --
header: X-Robots-Tag: otherbot: noindex
header: X-Robots-Tag: nofollow

<a href="/never">n</a>
-- paid --
paid
-- never --
never
`)
	for _, tt := range []struct {
		name    string
		plan    crawl.Plan
		pages   []string
		skipped map[crawl.Reason]int64
		refused map[crawl.Reason]int64
	}{
		{
			"heeded", obedient(site(100, 5, 1)),
			[]string{"/", "/closed", "/behind"},
			map[crawl.Reason]int64{crawl.SkipNoIndex: 1},
			map[crawl.Reason]int64{crawl.RefusedNoFollow: 2},
		},
		{
			"not heeded", site(100, 5, 1),
			[]string{"/", "/hidden", "/paid", "/closed", "/behind", "/never"},
			map[crawl.Reason]int64{},
			map[crawl.Reason]int64{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, s := newBench(t, crawltest.Any(t)), crawltest.NewSite(t, archive)
			b.unknown(t, s)
			b.worker(t, nil)
			job := b.submit(t, tt.plan, s.URL+"/")
			j := b.ended(t, job, 30*time.Second)
			if j.State != crawl.Completed {
				t.Errorf("ended as %+v", j)
			}
			var pages []string
			for _, p := range b.records(t, job) {
				pages = append(pages, strings.TrimPrefix(p.URL, s.URL))
			}
			if d := cmp.Diff(tt.pages, pages); d != "" {
				t.Errorf("recorded (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.skipped, j.SkippedByReason); d != "" {
				t.Errorf("skipped (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.refused, j.RefusedByReason); d != "" {
				t.Errorf("refused (-want +got):\n%s", d)
			}
		})
	}
}

// A seed that is not to be kept but leads to pages that are does not make its job fail.
func TestNoIndexSeed(t *testing.T) {
	t.Parallel()
	b, s := newBench(t, crawltest.Any(t)), crawltest.NewSite(t, []byte(`
-- index.html --
<meta name="robots" content="noindex, follow"><a href="/a">a</a>
-- a --
a
`))
	b.unknown(t, s)
	b.worker(t, nil)
	j := b.ended(t, b.submit(t, obedient(site(10, 5, 1)), s.URL+"/"), 30*time.Second)
	if j.State != crawl.Completed || j.Accepted != 1 || j.Skipped != 1 {
		t.Errorf("ended as %+v", j)
	}
}

// Pages of the same bytes are records of their own that name the first.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		b, s := newBench(t, r), crawltest.NewSite(t, []byte(`
-- index.html --
<a href="/a">1</a> <a href="/b">2</a> <a href="/c">3</a> <a href="/empty1">4</a> <a href="/empty2">5</a>
-- a --
<title>Same</title>
-- b --
<title>Same</title>
-- c --
<title>Other</title>
-- empty1 --
-- empty2 --
`))
		b.worker(t, nil)
		job := b.submit(t, site(100, 5, 1), s.URL+"/")
		if j := b.ended(t, job, 30*time.Second); j.Accepted != 6 {
			t.Errorf("ended as %+v", j)
		}
		for _, p := range b.records(t, job) {
			want := ""
			if p.URL == s.URL+"/b" {
				want = s.URL + "/a"
			}
			if p.DuplicateOf != want {
				t.Errorf("%s is a duplicate of %q, want %q", p.URL, p.DuplicateOf, want)
			}
		}
	})
}

// A calendar has an end: a job takes only its part of the URLs of one pattern, and what is
// beyond is refused with a reason.
func TestCalendar(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var year, month int
		if n, _ := fmt.Sscanf(r.URL.Path, "/cal/%d/%d", &year, &month); n == 2 {
			month++
		} else {
			year, month = 2000, 1
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, `<a href="/cal/%d/%d">next</a> <a href="/about">about</a>`, year+(month-1)/12, (month-1)%12+1)
	}))
	b.worker(t, nil)
	plan := site(100, 100, 4)
	job := b.submit(t, plan, s.URL+"/")
	j := b.ended(t, job, 30*time.Second)
	want := plan.PatternBudget() + 2
	if j.State != crawl.Completed || j.Accepted != want || j.RefusedByReason[crawl.RefusedTrap] != 1 {
		t.Errorf("ended as %+v, want %d pages", j, want)
	}
}

// mine is how a job presents itself.
const mine = "Mine/2.0 (+https://example.test)"

// Headers of a job go to the origins that it names and to no other; its cookies are its
// own.
func TestHeadersAndCookies(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	other := crawltest.NewSite(t, []byte("-- landing --\nlanded"))
	// By another name, since cookies are of a host, whatever its port (RFC 6265 section 8.5).
	elsewhere := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	s := crawltest.NewSite(t, []byte(strings.ReplaceAll(`
-- index.html --
header: Set-Cookie: sid=1; Path=/

<a href="/a">a</a> <a href="/out">o</a> <a href="OTHER/landing">l</a>
-- a --
a
-- out --
status: 302
header: Location: OTHER/landing

`, "OTHER", elsewhere)))
	b.worker(t, nil)
	for range 2 {
		plan := site(100, 5, 1)
		plan.Scope, plan.Headers, plan.HeaderOrigins = "any", crawl.Headers{"X-Api": "secret"}, []string{s.URL}
		plan.UserAgent = mine
		if j := b.ended(t, b.submit(t, plan, s.URL+"/"), 30*time.Second); j.State != crawl.Completed || j.Accepted != 3 {
			t.Errorf("ended as %+v", j)
		}
	}
	for _, r := range s.Requests() {
		cookie := "sid=1"
		if r.URI == "/" {
			cookie = "" // the second job does not know what the first was given
		}
		if r.Header.Get("X-Api") != "secret" || r.Header.Get("Cookie") != cookie || r.Header.Get("User-Agent") != mine {
			t.Errorf("%s was asked for with %v", r.URI, r.Header)
		}
	}
	for _, r := range other.Requests() {
		if r.Header.Get("X-Api") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("the other origin was asked for %s with %v", r.URI, r.Header)
		}
	}
	if n := len(other.Requests()); n == 0 {
		t.Error("the other origin was not asked at all")
	}
}
