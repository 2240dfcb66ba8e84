package e2e

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// siteCase is a site, a job on it, and all that must come of it.
type siteCase struct {
	name string
	// The site: an archive as of [crawltest.NewSite], where {{other}} is the URL of a
	// site that nobody may ask for anything, or a handler.
	archive string
	handler http.Handler
	spec    fields   // but for its seeds or urls:
	seeds   []string // paths
	urls    []string // paths
	tenants []string // alpha; with more, each has such a job
	state   crawl.State
	stop    crawl.StopReason
	records []string // paths of url
	// attempts of those records that did not come at the first one, by path.
	attempts map[string]int
	failed   map[crawl.Code]int64
	skipped  map[crawl.Reason]int64
	refused  map[crawl.Reason]int64
	// requests is how many requests the site gets for one job; 0 is not checked.
	requests int
	check    func(t *testing.T, d *deployment, site *crawltest.Site, job string)
}

// mixed is the site of JOB-16.
func mixed() http.Handler {
	mux := http.NewServeMux()
	page := func(pattern, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte(body)) // the client may be gone
		})
	}
	all := []string{"missing1", "missing2", "missing3", "old1", "old2", "reset", "flaky", "paper.pdf"}
	for i := range 9 {
		all = append(all, fmt.Sprintf("ok%d", i))
		page(fmt.Sprintf("/ok%d", i), fmt.Sprintf("<title>%d</title><a href=/>home</a>", i))
	}
	root := ""
	for _, name := range all {
		root += "<a href=/" + name + ">x</a> "
	}
	page("/{$}", root)
	mux.Handle("/old1", http.RedirectHandler("/ok1", http.StatusMovedPermanently))
	mux.Handle("/old2", http.RedirectHandler("/ok2", http.StatusFound))
	mux.HandleFunc("/paper.pdf", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		_, _ = w.Write([]byte("%PDF-1.4\n")) // the client may be gone
	})
	var mu sync.Mutex
	tries := 0
	mux.HandleFunc("/flaky", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		tries++
		n := tries
		mu.Unlock()
		if n <= 2 {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
	})
	mux.HandleFunc("/reset", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err) // seen as another failure than the one that is expected
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // so that Close resets; it cannot fail on an open socket
		_ = conn.Close()
	})
	return mux
}

// chain redirects without an end, in a circle, to itself, or thirty times.
func chain() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/self", http.RedirectHandler("/self", http.StatusMovedPermanently))
	for from, to := range map[string]string{"/a": "/b", "/b": "/c", "/c": "/b"} {
		mux.Handle(from, http.RedirectHandler(to, http.StatusFound))
	}
	mux.HandleFunc("/{kind}/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil || r.PathValue("kind") == "thirty" && n == 30 {
			return
		}
		http.Redirect(w, r, fmt.Sprintf("/%s/%d", r.PathValue("kind"), n+1), http.StatusFound)
	})
	return mux
}

// branching has fifty links to new pages on every page, after 20 ms; with odd500 every
// page with an odd number answers 500.
func branching(odd500 bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(20 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")) // the root is 0
		if odd500 && n%2 == 1 {
			http.Error(w, "odd", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		for k := range 50 {
			_, _ = fmt.Fprintf(w, "<a href=/%d>x</a>", n*50+k+1) // the client may be gone
		}
	})
}

func upTo(n, step int) []string {
	paths := []string{"/"}
	for i := step; i <= n; i += step {
		paths = append(paths, fmt.Sprintf("/%d", i))
	}
	return paths
}

// TestMixedSite: what becomes of every URL, by type and by reason, on sites where
// things go wrong. Promise 1 is held at every read, see [watch].
func TestMixedSite(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, "TRAWL_MAX_RUNNING=100")
	for _, tc := range []siteCase{
		{
			name: "JOB-16", handler: mixed(), seeds: []string{"/"},
			state: crawl.CompletedWithErrors, stop: crawl.StopFrontierEmpty,
			attempts: map[string]int{"/flaky": 3},
			failed:   map[crawl.Code]int64{"http_404": 3, crawl.CodeConnection: 1},
			skipped:  map[crawl.Reason]int64{crawl.SkipAlias: 2},
			records: []string{
				"/", "/ok0", "/ok1", "/ok2", "/ok3", "/ok4", "/ok5", "/ok6", "/ok7", "/ok8", "/flaky", "/paper.pdf",
			},
			check: func(t *testing.T, d *deployment, _ *crawltest.Site, job string) {
				t.Helper()
				for _, f := range d.failures(alpha, job) {
					if want := map[crawl.Code]int{"http_404": 1, crawl.CodeConnection: 3}[f.ErrorType]; f.Attempts != want {
						t.Errorf("%s failed as %s after %d attempts, want %d", f.URL, f.ErrorType, f.Attempts, want)
					}
				}
			},
		},
		{
			name: "RED-01", handler: chain(), urls: []string{"/self", "/a", "/endless/0", "/thirty/0"},
			state: crawl.CompletedWithErrors, stop: crawl.StopFrontierEmpty,
			failed: map[crawl.Code]int64{crawl.CodeRedirectLoop: 2, crawl.CodeTooManyRedirects: 2},
			// One, three, and ten redirects followed each of the others.
			requests: 1 + 3 + 11 + 11,
			check: func(t *testing.T, d *deployment, _ *crawltest.Site, job string) {
				t.Helper()
				for _, f := range d.failures(alpha, job) {
					if f.Status/100 != 3 || !strings.Contains(f.Message, strconv.Itoa(f.Status)) || f.Attempts != 1 {
						t.Errorf("the loop is told as %+v", f)
					}
				}
			},
		},
		{
			name: "RED-04", seeds: []string{"/"}, archive: `
-- index.html --
<a href="/go">1</a> <a href="/hops">2</a> <a href="/ok">3</a>
-- go --
status: 301
header: Location: {{other}}/x
-- hops --
status: 302
header: Location: /hop
-- hop --
status: 302
header: Location: {{other}}/y
-- ok --
`, state: crawl.Completed, stop: crawl.StopFrontierEmpty, records: []string{"/", "/ok"},
			skipped: map[crawl.Reason]int64{crawl.SkipRedirectOutOfScope: 2}, requests: 5,
		},
		{
			name: "RED-06", seeds: []string{"/"}, archive: `
-- index.html --
status: 301
header: Location: {{other}}/
`, state: crawl.Failed, stop: crawl.StopSeedFailed,
			skipped: map[crawl.Reason]int64{crawl.SkipRedirectOutOfScope: 1}, requests: 1,
		},
		{
			name: "RED-13", seeds: []string{"/"}, spec: fields{"max_pages": 3}, archive: `
-- index.html --
status: 302
header: Location: /home
-- home --
<a href="/a">a</a> <a href="/b">b</a> <a href="/c">c</a> <a href="/d">d</a>
-- a --
-- b --
-- c --
-- d --
`, state: crawl.Completed, stop: crawl.StopPageLimit, records: []string{"/home", "/a", "/b"},
			refused: map[crawl.Reason]int64{crawl.RefusedPageLimit: 2}, requests: 4,
		},
		{
			name: "TRP-05", seeds: []string{"/"}, handler: branching(false),
			spec:  fields{"max_pages": 20, "concurrency": 16},
			state: crawl.Completed, stop: crawl.StopPageLimit, records: upTo(19, 1), requests: 20,
		},
		{
			name: "TRP-05 failures count", seeds: []string{"/"}, handler: branching(true),
			spec:  fields{"max_pages": 20, "concurrency": 16},
			state: crawl.CompletedWithErrors, stop: crawl.StopPageLimit, records: upTo(19, 2),
			failed: map[crawl.Code]int64{"http_500": 10}, requests: 10 + 3*10,
		},
		{
			name: "TRP-05 seed alone", seeds: []string{"/"}, handler: branching(false), spec: fields{"max_pages": 1},
			state: crawl.Completed, stop: crawl.StopPageLimit, records: []string{"/"},
			refused: map[crawl.Reason]int64{crawl.RefusedPageLimit: 50}, requests: 1,
		},
		{
			name: "BASE-01", seeds: []string{"/js/", "/data/"}, archive: `
-- js/index.html --
<base href="javascript:alert(1)"><a href=ok>1</a>
-- js/ok --
-- data/index.html --
<base href="data:text/plain,x"><a href=ok>1</a>
-- data/ok --
`, state: crawl.Completed, stop: crawl.StopFrontierEmpty,
			records: []string{"/js/", "/js/ok", "/data/", "/data/ok"}, requests: 4,
		},
		{
			name: "BASE-02", seeds: []string{"/a/", "/b/", "/c/", "/d/"}, archive: `
-- a/index.html --
<!-- <base href="{{other}}/"> --> <a href=ok>1</a>
-- b/index.html --
<script>var t="<base href='{{other}}/'>"</script><a href=ok>1</a>
-- c/index.html --
<template><base href="/tpl/"></template><a href=ok>1</a>
-- d/index.html --
<svg><base href="/svg/"></base></svg><a href=ok>1</a>
-- a/ok --
-- b/ok --
-- c/ok --
-- d/ok --
`, state: crawl.Completed, stop: crawl.StopFrontierEmpty,
			records: []string{"/a/", "/b/", "/c/", "/d/", "/a/ok", "/b/ok", "/c/ok", "/d/ok"}, requests: 8,
		},
		{
			name: "BASE-04", seeds: []string{"/p"}, archive: `
-- p --
<base href="{{other}}/"><a href="rel">1</a><a href="/abs">2</a>
<a href="{{site}}/full">3</a><a href="#x">4</a><a href="">5</a>
-- full --
`, state: crawl.Completed, stop: crawl.StopFrontierEmpty, records: []string{"/p", "/full"}, requests: 2,
			refused: map[crawl.Reason]int64{crawl.RefusedOutOfScope: 3},
		},
		{
			name: "SEC-12", seeds: []string{"/"}, tenants: []string{alpha, beta, alpha}, archive: `
-- index.html --
header: Set-Cookie: sess=tenantA

<a href="/a">a</a> <a href="/b">b</a>
-- a --
header: Set-Cookie: more=tenantA; Path=/
-- b --
`, state: crawl.Completed, stop: crawl.StopFrontierEmpty, records: []string{"/", "/a", "/b"}, requests: 3,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.hold(t, d.in(t))
		})
	}
}

// in returns d for use by a subtest.
func (d *deployment) in(t *testing.T) *deployment {
	t.Helper()
	sub := *d
	sub.t = t
	return &sub
}

// hold runs the jobs of a case and compares what came of them.
func (tc *siteCase) hold(t *testing.T, d *deployment) {
	t.Helper()
	other := crawltest.NewSite(t, nil)
	var site *crawltest.Site
	if tc.handler != nil {
		site = crawltest.NewHandlerSite(t, tc.handler)
	} else {
		site = crawltest.NewSite(t, []byte(strings.ReplaceAll(tc.archive, "{{other}}", other.URL)))
	}
	at := func(paths []string) []string {
		urls := make([]string, len(paths))
		for i, p := range paths {
			urls[i] = site.URL + p
		}
		return urls
	}
	spec := maps.Clone(tc.spec)
	if spec == nil {
		spec = fields{}
	}
	if tc.urls != nil {
		spec["urls"] = at(tc.urls)
	} else {
		spec["seeds"] = at(tc.seeds)
	}
	if tc.tenants == nil {
		tc.tenants = []string{alpha}
	}
	// The first two at once, the third behind them: neither way may one see the other.
	jobs := make([]*watch, len(tc.tenants))
	for i, tenant := range tc.tenants {
		if i == 2 {
			jobs[0].end(long)
			jobs[1].end(long)
		}
		jobs[i] = d.watch(tenant, d.submit(tenant, spec).ID)
	}
	for i, w := range jobs {
		j := w.end(long)
		if j.State != tc.state || j.StopReason != tc.stop || !maps.Equal(j.FailedByType, tc.failed) ||
			!maps.Equal(j.SkippedByReason, tc.skipped) ||
			tc.refused != nil && !maps.Equal(j.RefusedByReason, tc.refused) ||
			j.Accepted != int64(len(tc.records)) || j.Total != j.Processed {
			t.Errorf("ended as %+v\nwant %s %s, %d accepted, failed %v, skipped %v, refused %v", j, tc.state, tc.stop,
				len(tc.records), tc.failed, tc.skipped, tc.refused)
		}
		for _, p := range d.recordedOnce(tc.tenants[i], j.ID, at(tc.records)) {
			want := max(1, tc.attempts[strings.TrimPrefix(p.URL, site.URL)])
			if p.Attempts != want || p.Status != http.StatusOK {
				t.Errorf("%s was recorded with status %d at attempt %d, want %d", p.URL, p.Status, p.Attempts, want)
			}
		}
		if tc.check != nil {
			tc.check(t, d, site, j.ID)
		}
	}
	// robots.txt is asked for once, for all jobs, and a sitemap by each; both are no pages.
	requests := slices.DeleteFunc(site.Requests(), func(r crawltest.Request) bool {
		return r.URI == "/robots.txt" || r.URI == "/sitemap.xml"
	})
	if n := site.Hits("/robots.txt"); n != 1 {
		t.Errorf("robots.txt was asked for %d times", n)
	}
	if want := tc.requests * len(jobs); want > 0 && len(requests) != want {
		t.Errorf("%d requests, want %d: %v", len(requests), want, uris(requests))
	}
	for _, r := range requests {
		// A job sends what it was given itself; with its first request it has nothing yet.
		if c := r.Header.Get("Cookie"); c != "" && slices.Contains(append(tc.seeds, tc.urls...), r.URI) {
			t.Errorf("SEC-12: %s was asked for with the cookie %q of another job", r.URI, c)
		}
	}
	if stray := other.Requests(); len(stray) > 0 {
		t.Errorf("the other site was asked for %v", uris(stray))
	}
}

func uris(requests []crawltest.Request) []string {
	var out []string
	for _, r := range requests {
		out = append(out, r.URI)
	}
	return out
}
