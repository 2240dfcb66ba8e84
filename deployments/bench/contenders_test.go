package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawltest/gensite"
)

// crawlers crawl in this process.
var crawlers = map[string]struct {
	tell  string
	crawl func(context.Context, options) (int64, error)
}{
	"colly, tuned":              {tuned, crawlByColly},
	"colly, with its transport": {plain, crawlByColly},
	"floor":                     {"", crawlFloor},
}

// Each crawls the whole site.
func TestCrawlers(t *testing.T) {
	t.Parallel()
	for name, c := range crawlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const pages = 70
			g := gensite.New(pages, 8, 1000, 0)
			srv := httptest.NewServer(g)
			t.Cleanup(srv.Close)
			failed, err := c.crawl(t.Context(), options{Start: srv.URL + "/p/0", Pages: pages, InFlight: 4, Tell: c.tell})
			if failed != 0 || err != nil || g.Distinct() != pages {
				t.Errorf("%d different pages, %d failed, %v", g.Distinct(), failed, err)
			}
		})
	}
}

// What fails is counted, and another host is left alone.
func TestCrawlersCountFailures(t *testing.T) {
	t.Parallel()
	for name, c := range crawlers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/":
					_, _ = fmt.Fprint(w, `<title>x</title><a href="/lost">1</a><a name="n">2</a><a href="/lost">3</a><a href="/fine">4</a>`)
				case "/fine":
				default:
					http.NotFound(w, r)
				}
			}))
			t.Cleanup(srv.Close)
			failed, err := c.crawl(t.Context(), options{Start: srv.URL + "/", Pages: 10, InFlight: 4, Tell: c.tell})
			if failed != 1 || err != nil {
				t.Errorf("%d failed, %v", failed, err)
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := c.crawl(gone, options{Start: srv.URL + "/", Pages: 10, InFlight: 4, Tell: c.tell}); !errors.Is(err, context.Canceled) {
				t.Errorf("a crawl that was given up: %v", err)
			}
		})
	}
}

// The floor crawls one host, and says when it is larger than it was told.
func TestFloorKeepsToItsHost(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another host was asked") }))
	t.Cleanup(other.Close)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `<a href="%s/p">1</a><a href="/a">2</a><a href="/b">3</a><a href="/c">4</a><a href="/d">5</a>`, other.URL)
	}))
	t.Cleanup(srv.Close)
	for pages, wantFailed := range map[int]bool{5: false, 1: true} {
		failed, err := crawlFloor(t.Context(), options{Start: srv.URL + "/", Pages: pages, InFlight: 1})
		if err != nil || (failed > 0) != wantFailed {
			t.Errorf("said to have %d pages: %d failed, %v", pages, failed, err)
		}
	}
}

// What this process measures of itself is what [alone] reads.
func TestMeasureSelf(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := measureSelf(&out, func() (int64, error) { return 0, nil }); err != nil {
		t.Fatal(err)
	}
	var took crawled
	if err := json.Unmarshal(out.Bytes(), &took); err != nil || took.Seconds <= 0 || took.PeakMiB < 1 || took.CPU < 0 {
		t.Errorf("%+v, %v of %s", took, err, out.Bytes())
	}
	broken := errors.New("broken")
	if err := measureSelf(&out, func() (int64, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("a crawl that failed: %v", err)
	}
}

// smallSite is a site in a process of its own, and the rig that it is of.
func smallSite(t *testing.T) (*rig, *site) {
	t.Helper()
	r := &rig{o: options{Pages: 70, Links: 8, Bytes: 1000, InFlight: 4, Rounds: 1, Site: "generated"}, dir: t.TempDir()}
	s, err := r.newSite(t.Context(), r.o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return r, s
}

// Each in its own process crawls the whole site, and is measured.
func TestRivals(t *testing.T) {
	t.Parallel()
	r, s := smallSite(t)
	for _, c := range r.rivals(s) { // in turn, since they share the site
		took, err := c.crawl(t.Context())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if took.pages != 70 || took.fetches < 70 || took.Seconds <= 0 || took.PeakMiB < 1 {
			t.Errorf("%s: %+v", c.name, took)
		}
	}
}

// A crawl that left most of the site out, that says nothing, or that did not end, has no figures.
func TestAloneRefuses(t *testing.T) {
	t.Parallel()
	r, s := smallSite(t)
	role := func(name, start string) func(context.Context) (*child, error) {
		return func(ctx context.Context) (*child, error) {
			o := r.o
			o.Start = start
			return r.startSelf(ctx, o, name)
		}
	}
	for _, tt := range []struct {
		name  string
		start func(context.Context) (*child, error)
		want  string
	}{
		{"nothing was crawled", role("floor", s.url(0)+"/nowhere"), "0 of 70 pages"},
		{"a process that fails", role("colly", "::"), "exit status 1"},
		{"a process that cannot be started", func(context.Context) (*child, error) { return nil, errors.New("no start") }, "no start"},
		{"a process that says nothing", silent(t, "/bin/true"), "says it took"},
	} {
		if _, err := alone(t.Context(), s, 70, tt.start); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	hangs := func(inner context.Context) (*child, error) {
		defer cancel()
		return silent(t, "/bin/sleep", "1000")(inner)
	}
	if _, err := alone(ctx, s, 70, hangs); !errors.Is(err, context.Canceled) {
		t.Errorf("a process that hangs: %v", err)
	}
}
