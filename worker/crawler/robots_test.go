package crawler_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
)

// obedient is a plan that heeds robots.txt.
func obedient(p crawl.Plan) crawl.Plan {
	p.IgnoreRobots = false
	return p
}

// asTestBot has a worker call itself so.
func asTestBot(o *crawler.ProcessOptions) {
	o.Fetch.UserAgent = "TestBot/1.0 (+https://example.test/bot)"
}

// asked returns what was requested of a site, sorted, with how often.
func asked(s *crawltest.Site) map[string]int {
	n := map[string]int{}
	for _, r := range s.Requests() {
		n[r.URI]++
	}
	return n
}

// What robots.txt forbids is never requested, and skipped with the rule; the file is
// fetched once for two workers and two jobs. A redirect into what is forbidden is not
// followed.
func TestRobotsForbids(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		b := newBench(t, r)
		s := crawltest.NewSite(t, []byte(`
-- robots.txt --
User-agent: *
Disallow: /

User-agent: TestBot
Disallow: /private/
Allow: /private/press
-- a --
<a href="/private/x">x</a> <a href="/private/press">press</a> <a href="/hop">hop</a> <a href="/b">b</a>
-- b --
b
-- hop --
status: 302
header: Location: /private/y

-- private/press --
press
-- private/x --
secret
-- private/y --
secret
`))
		b.unknown(t, s)
		b.worker(t, asTestBot)
		b.worker(t, asTestBot)
		for range 2 {
			job := b.submit(t, obedient(site(100, 5, 4)), s.URL+"/a")
			j := b.ended(t, job, 30*time.Second)
			if j.State != crawl.Completed || j.Accepted != 3 || j.Total != 5 {
				t.Errorf("ended as %+v", j)
			}
			if d := cmp.Diff(map[crawl.Reason]int64{crawl.SkipRobots: 2}, j.SkippedByReason); d != "" {
				t.Errorf("skipped (-want +got):\n%s", d)
			}
		}
		want := map[string]int{"/robots.txt": 1, "/a": 2, "/b": 2, "/hop": 2, "/private/press": 2}
		if d := cmp.Diff(want, asked(s)); d != "" {
			t.Errorf("requested (-want +got):\n%s", d)
		}
		// A job whose only seed is forbidden says so.
		job := b.submit(t, obedient(site(100, 5, 4)), s.URL+"/private/x")
		j := b.ended(t, job, 30*time.Second)
		if j.State != crawl.Failed || j.StopReason != crawl.StopSeedFailed || !strings.Contains(j.Error, "Disallow: /private/") {
			t.Errorf("ended as %+v", j)
		}
	})
}

// A site that does not serve its robots.txt for a while is left alone for that while: its
// pages wait with no attempt burnt, and no other request reaches it.
func TestRobotsFailForAWhile(t *testing.T) {
	t.Parallel()
	// ROB-01, and ROB-11: a 304 that nobody asked for is no file.
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusNotModified} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			failForAWhile(t, status)
		})
	}
}

func failForAWhile(t *testing.T, status int) {
	t.Helper()
	b := newBench(t, crawltest.Any(t))
	var mended atomic.Bool
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/robots.txt":
		case mended.Load():
			w.WriteHeader(http.StatusNotFound)
		default:
			w.WriteHeader(status)
		}
	}))
	b.unknown(t, s)
	b.worker(t, nil)
	job := b.submit(t, obedient(list(4)), s.URL+"/a", s.URL+"/b", s.URL+"/c")
	crawltest.Eventually(t, 20*time.Second, "the job waits for robots", func() bool {
		j, err := b.store.Job(t.Context(), job)
		return err == nil && j.WaitingFor == "robots" && j.Deferred == 3
	})
	if d := cmp.Diff([]string{"/robots.txt"}, slices.Sorted(maps.Keys(asked(s)))); d != "" {
		t.Errorf("requested (-want +got):\n%s", d)
	}
	mended.Store(true)
	if j := b.ended(t, job, time.Minute); j.State != crawl.Completed || j.Accepted != 3 {
		t.Errorf("ended as %+v", j)
	}
	for _, p := range b.records(t, job) {
		if p.Attempts != 1 {
			t.Errorf("%s took %d attempts", p.URL, p.Attempts)
		}
	}
}

// A site that was given up is not asked at all, and the job ends with the reason: that
// of the network where nothing answers, the robots.txt where only that fails.
func TestRobotsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewSite(t, []byte("-- a --\n-- b --\n"))
	given := func(why string) {
		t.Helper()
		u, err := crawl.ParseURL(s.URL + "/")
		if err != nil {
			t.Fatal(err)
		}
		clock := time.Now()
		ahead := store.New(b.redis.Client, store.Options{Now: func() int64 { return clock.UnixMilli() }})
		for {
			r, err := ahead.ClaimRobots(t.Context(), u, "Trawl")
			if err != nil {
				t.Fatal(err)
			}
			if r.Standing == store.RobotsToFetch {
				if r, err = ahead.LearnRobots(t.Context(), u, "Trawl", r.Claim, store.RobotsFetch{Why: why}); err != nil {
					t.Fatal(err)
				}
			}
			if r.Standing == store.RobotsGivenUp {
				return
			}
			clock = clock.Add(r.Wait)
		}
	}
	b.unknown(t, s)
	given(`{"code":"http_503","status":503,"message":"The server answered 503."}`)
	b.worker(t, nil)
	j := b.ended(t, b.submit(t, obedient(list(4)), s.URL+"/a", s.URL+"/b"), 20*time.Second)
	if d := cmp.Diff(map[crawl.Reason]int64{crawl.SkipRobotsUnreachable: 2}, j.SkippedByReason); d != "" || j.State != crawl.Completed {
		t.Errorf("ended as %+v, skipped (-want +got):\n%s", j, d)
	}
	if n := asked(s); len(n) > 0 {
		t.Errorf("requested: %v", n)
	}

	s = crawltest.NewSite(t, []byte("-- a --\n"))
	b.unknown(t, s)
	given(`{"code":"connection","message":"The connection was refused."}`)
	job := b.submit(t, obedient(site(10, 1, 1)), s.URL+"/a")
	j = b.ended(t, job, 20*time.Second)
	if d := cmp.Diff(map[crawl.Code]int64{crawl.CodeConnection: 1}, j.FailedByType); d != "" || j.State != crawl.Failed ||
		!strings.Contains(j.Error, "robots.txt") {
		t.Errorf("ended as %+v, failed (-want +got):\n%s", j, d)
	}
	if n := asked(s); len(n) > 0 {
		t.Errorf("requested: %v", n)
	}
}

// Crawl-delay holds between any two requests to the site, of robots.txt too, whoever
// makes them.
func TestRobotsCrawlDelay(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	var (
		mu sync.Mutex
		at []time.Time
	)
	const delay = 300 * time.Millisecond
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		at = append(at, time.Now())
		mu.Unlock()
		if r.URL.Path == "/robots.txt" {
			_, _ = w.Write([]byte("User-agent: *\nCrawl-delay: 0.3\n"))
		}
	}))
	b.unknown(t, s)
	b.worker(t, nil)
	b.worker(t, nil)
	jobs := []crawl.JobRef{
		b.submit(t, obedient(list(8)), s.URL+"/a", s.URL+"/b", s.URL+"/c", s.URL+"/d"),
		b.submit(t, obedient(list(8)), s.URL+"/e", s.URL+"/f", s.URL+"/g"),
	}
	for _, job := range jobs {
		if j := b.ended(t, job, time.Minute); j.State != crawl.Completed {
			t.Errorf("ended as %+v", j)
		}
	}
	if len(at) != 8 {
		t.Errorf("%d requests, want 7 pages and robots.txt", len(at))
	}
	for i := 2; i < len(at); i++ { // the first page may be as near to robots.txt as the first delay allowed
		if gap := at[i].Sub(at[i-1]); gap < delay-50*time.Millisecond {
			t.Errorf("request %d came %v after the one before", i, gap)
		}
	}
}

// A robots.txt may stand elsewhere: what is found there holds for the site, though its
// host is no part of the crawl. One that leads nowhere forbids nothing; one that leads to a
// private address is not looked at, and forbids all (ROB-03).
func TestRobotsRedirects(t *testing.T) {
	t.Parallel()
	rules := crawltest.NewSite(t, []byte("-- robots.txt --\nUser-agent: *\nDisallow: /private\n-- r.txt --\n"))
	for name, tt := range map[string]struct {
		to      string
		want    map[string]int
		waiting bool
	}{
		"elsewhere":    {rules.URL + "/robots.txt", map[string]int{"/robots.txt": 1, "/a": 1}, false},
		"in a circle":  {"/robots.txt", map[string]int{"/robots.txt": 1, "/a": 1, "/private": 1}, false},
		"not a URL":    {"http://", map[string]int{"/robots.txt": 1, "/a": 1, "/private": 1}, false},
		"to a private": {"http://127.0.0.2:1/robots.txt", map[string]int{"/robots.txt": 1}, true},
		// It is asked for all tenants: one that may not fetch this could have it fetched.
		"to what is none": {rules.URL + "/r.txt", map[string]int{"/robots.txt": 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, crawltest.Any(t))
			s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/robots.txt" {
					w.Header().Set("Location", tt.to)
					w.WriteHeader(http.StatusFound)
				}
			}))
			b.unknown(t, s)
			b.worker(t, nil)
			job := b.submit(t, obedient(list(1)), s.URL+"/a", s.URL+"/private")
			if tt.waiting {
				crawltest.Eventually(t, 20*time.Second, "the job waits for robots", func() bool {
					j, err := b.store.Job(t.Context(), job)
					return err == nil && j.WaitingFor == crawl.WaitingRobots
				})
			} else {
				b.ended(t, job, 30*time.Second)
			}
			if d := cmp.Diff(tt.want, asked(s)); d != "" {
				t.Errorf("requested (-want +got):\n%s", d)
			}
			if n := rules.Hits("/r.txt"); n > 0 {
				t.Errorf("/r.txt elsewhere was requested %d times", n)
			}
		})
	}
}

// Of an origin of which only a part may be fetched, a robots.txt leads to no other part.
func TestRobotsRedirectStaysInSources(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.Redirect(w, r, "/secret/delete", http.StatusFound)
		}
	}))
	b.unknown(t, s)
	sources, err := crawl.ParseSources(s.URL + "/open/")
	if err != nil {
		t.Fatal(err)
	}
	b.worker(t, func(o *crawler.ProcessOptions) { o.Sources = sources })
	job := b.submit(t, obedient(list(1)), s.URL+"/open/a")
	crawltest.Eventually(t, 20*time.Second, "the job waits for robots", func() bool {
		j, err := b.store.Job(t.Context(), job)
		return err == nil && j.WaitingFor == crawl.WaitingRobots
	})
	if d := cmp.Diff(map[string]int{"/robots.txt": 1}, asked(s)); d != "" {
		t.Errorf("requested (-want +got):\n%s", d)
	}
}

// What a server says may depend on the whole User-Agent, which a caller chooses: it counts
// for that caller's jobs, and not for others that have the product token in common.
func TestRobotsOfOneAgentAreNotAnothers(t *testing.T) {
	t.Parallel()
	b := newBench(t, crawltest.Any(t))
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			if strings.Contains(r.UserAgent(), "evil") {
				w.WriteHeader(http.StatusForbidden) // which forbids nothing
				return
			}
			_, _ = w.Write([]byte("User-agent: *\nDisallow: /private\n"))
		}
	}))
	b.unknown(t, s)
	b.worker(t, nil)
	for _, tt := range []struct {
		agent   string
		skipped int64
	}{{"Trawl/9 evil", 0}, {"Trawl/9 (+https://example.org)", 1}, {"", 1}} {
		plan := obedient(list(1))
		plan.UserAgent = tt.agent
		j := b.ended(t, b.submit(t, plan, s.URL+"/private"), 30*time.Second)
		if j.State != crawl.Completed || j.SkippedByReason[crawl.SkipRobots] != tt.skipped {
			t.Errorf("as %q: ended as %+v", tt.agent, j)
		}
	}
}
