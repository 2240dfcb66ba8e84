package crawler_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/worker/crawler"
)

// back has a Redis be as it was at an earlier time.
type back struct {
	server *crawltest.Server
	dir    string // of its files
	saved  map[string]string
	copied string
}

// ways are those in which a Redis can go back: see [back].
var ways = map[string]struct{ save, restore func(*testing.T, *back) }{
	// As a replica that takes over: the connections end, and the next ones lead to one that knows
	// less. No call need fail of it.
	"failover": {
		save: func(t *testing.T, b *back) {
			b.saved = map[string]string{}
			for _, key := range b.server.Keys("*") {
				value, err := b.server.Client.Dump(t.Context(), key).Result()
				if err != nil {
					t.Fatal(err)
				}
				b.saved[key] = value
			}
		},
		restore: func(t *testing.T, b *back) {
			_, err := b.server.Client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.FlushAll(t.Context())
				for key, value := range b.saved {
					p.Restore(t.Context(), key, 0, value)
				}
				p.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		},
	},
	// As a Redis that is started with older files: calls fail meanwhile.
	"restart": {
		save: func(t *testing.T, b *back) {
			b.copied = t.TempDir()
			if err := os.CopyFS(b.copied, os.DirFS(b.dir)); err != nil {
				t.Fatal(err)
			}
		},
		restore: func(t *testing.T, b *back) {
			b.server.Stop()
			if err := os.RemoveAll(filepath.Join(b.dir, "appendonlydir")); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(b.dir, os.DirFS(b.copied)); err != nil {
				t.Fatal(err)
			}
			b.server.Start()
		},
	},
}

// gates hold the answers to paths until they are opened, and note who has come.
type gates map[string]*gate

type gate struct {
	came chan struct{}
	open chan struct{}
}

func newGates(paths ...string) gates {
	g := gates{}
	for _, p := range paths {
		g[p] = &gate{came: make(chan struct{}, 100), open: make(chan struct{})}
	}
	return g
}

func (g gates) pass(r *http.Request) {
	if one := g[r.URL.Path]; one != nil {
		one.came <- struct{}{}
		select {
		case <-one.open:
		case <-r.Context().Done():
		}
	}
}

// TestStoreGoesBack: Redis loses the last moments in the middle of a job, among them the outcome of a
// page. Another page of the same slice has the same links: they must be sent again, or nobody
// ever crawls them.
func TestStoreGoesBack(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		for _, sitemap := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/sitemap=%v", name, sitemap), func(t *testing.T) {
				t.Parallel()
				b := &back{dir: t.TempDir()}
				b.server = crawltest.Private(t, "--dir", b.dir)
				if sitemap {
					goesBackInASitemap(t, b, way.save, way.restore)
				} else {
					goesBack(t, b, way.save, way.restore)
				}
			})
		}
	}
}

func goesBack(t *testing.T, b *back, save, restore func(*testing.T, *back)) {
	const shared = `<a href="/x">x</a> <a href="/y">y</a>`
	g := newGates("/a", "/b", "/x")
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.pass(r)
		w.Header().Set("Content-Type", "text/html")
		body := r.URL.Path
		switch r.URL.Path {
		case "/":
			body = `<a href="/a">a</a> <a href="/b">b</a>`
		case "/a", "/b":
			body = r.URL.Path + shared
		}
		_, _ = io.WriteString(w, body)
	}))
	bench := newBench(t, &b.server.Redis)
	bench.worker(t, nil)
	job := bench.submit(t, site(100, 10, 8), s.URL+"/")
	crawltest.Receive(t, 20*time.Second, "request for /a", g["/a"].came)
	crawltest.Receive(t, 20*time.Second, "request for /b", g["/b"].came)
	save(t, b)

	close(g["/a"].open)
	crawltest.Receive(t, 20*time.Second, "request for /x", g["/x"].came) // it is known by then
	restore(t, b)
	close(g["/b"].open)
	close(g["/x"].open)
	wholeSite(t, bench, job, s.URL, "/", "/a", "/b", "/x", "/y")
}

// goesBackInASitemap: the first parts of a sitemap are lost while its rest is read.
func goesBackInASitemap(t *testing.T, b *back, save, restore func(*testing.T, *back)) {
	const pages = 1200 // three parts
	g := newGates("/sitemap.xml", "/p/0")
	half := make(chan struct{})
	var reads atomic.Int64
	want := []string{"/"}
	for i := range pages {
		want = append(want, fmt.Sprintf("/p/%d", i))
	}
	var s *crawltest.Site
	s = crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.pass(r)
		if r.URL.Path != "/sitemap.xml" {
			_, _ = io.WriteString(w, r.URL.Path)
			return
		}
		first := reads.Add(1) == 1
		w.Header().Set("Content-Type", "application/xml")
		_, _ = io.WriteString(w, `<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">`)
		for i := range pages {
			if i == pages-100 && first {
				_ = http.NewResponseController(w).Flush()
				select {
				case <-half:
				case <-r.Context().Done():
				}
			}
			_, _ = fmt.Fprintf(w, "<url><loc>%s/p/%d</loc></url>\n", s.URL, i)
		}
		_, _ = io.WriteString(w, "</urlset>")
	}))
	bench := newBench(t, &b.server.Redis)
	bench.worker(t, func(o *crawler.ProcessOptions) { o.Slices = 1 })
	plan := site(5000, 10, 8)
	plan.Sitemap = crawl.SitemapInclude
	job := bench.submit(t, plan, s.URL+"/")
	crawltest.Receive(t, 20*time.Second, "request for the sitemap", g["/sitemap.xml"].came)
	save(t, b)
	close(g["/sitemap.xml"].open)
	crawltest.Receive(t, 20*time.Second, "request for a page of the first part", g["/p/0"].came)
	restore(t, b)
	close(half)
	close(g["/p/0"].open)
	wholeSite(t, bench, job, s.URL, want...)
}

// wholeSite waits for the end of the job, and that it has each page once.
func wholeSite(t *testing.T, b *bench, job crawl.JobRef, base string, want ...string) {
	t.Helper()
	var j crawl.Job
	crawltest.Eventually(t, time.Minute, "the end of the job", func() bool {
		var err error
		j, err = b.store.Job(t.Context(), job)
		return err == nil && j.State.Terminal()
	})
	if !j.Consistent() || j.State != crawl.Completed || j.Accepted != int64(len(want)) {
		t.Errorf("ended as %+v", j)
	}
	var got []string
	for _, p := range b.records(t, job) {
		got = append(got, p.URL)
	}
	for i := range want {
		want[i] = base + want[i]
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d pages were recorded, want %d: among them the first of each: %q, %q",
			len(got), len(want), got[:min(3, len(got))], want[:3])
	}
}
