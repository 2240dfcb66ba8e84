package e2e

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// manual is a site that somebody else wrote, from a package of Debian.
type manual struct {
	pkg, dir string
	trips    []trip
	// unlinked are the pages on disk that no page of the whole manual links to.
	unlinked []string
}

// trip is one crawl of a manual.
type trip struct{ seed, scope, prefix string }

// file returns the content of the file that a path of the site names.
func (m *manual) file(urlPath string) ([]byte, bool) {
	name := filepath.Join(m.dir, filepath.FromSlash(path.Clean("/"+urlPath)))
	if info, err := os.Stat(name); err != nil || info.IsDir() {
		return nil, false
	}
	body, err := os.ReadFile(name)
	return body, err == nil
}

// ServeHTTP answers with the file of just that path. net/http's file server would
// redirect index.html to its directory and list directories, which is no part of the manual.
func (m *manual) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if body, ok := m.file(r.URL.Path); !ok {
		http.NotFound(w, r)
	} else {
		switch path.Ext(r.URL.Path) { // not by the machine's mime.types, which differ
		case ".html":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
		case ".txt", ".py":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		case ".png":
			w.Header().Set("Content-Type", "image/png")
		default:
			w.Header().Set("Content-Type", "application/octet-stream")
		}
		_, _ = w.Write(body) // the client may be gone
	}
}

// linked walks the files on disk from seed along their links, breadth first, with
// parsers that Trawl does not use for it, and returns all that are below prefix: the
// files, the URLs behind which there is none, and how many distinct links lead elsewhere.
func (m *manual) linked(t *testing.T, seed, prefix string) (files, missing []string, elsewhere int) {
	t.Helper()
	seen, out := map[string]bool{seed: true}, map[string]bool{}
	for next := []string{seed}; len(next) > 0; {
		at, err := url.Parse(next[0])
		if err != nil {
			t.Fatal(err)
		}
		body, ok := m.file(at.Path)
		if next = next[1:]; !ok {
			missing = append(missing, at.String())
			continue
		}
		files = append(files, at.String())
		if path.Ext(at.Path) != ".html" {
			continue
		}
		for _, href := range links(t, body) {
			href, _, _ = strings.Cut(href, "#") // some fragments there are more than net/url can read
			u, err := at.Parse(strings.TrimSpace(href))
			if err != nil {
				t.Fatalf("%s links to %q: %v", at, href, err)
			}
			if u.Scheme != "http" && u.Scheme != "https" {
				continue
			}
			if u.Path == "" {
				u.Path = "/"
			}
			switch s := u.String(); {
			case !strings.HasPrefix(s, prefix):
				out[s] = true
			case !seen[s]:
				seen[s] = true
				next = append(next, s)
			}
		}
	}
	return files, missing, len(out)
}

// links returns the targets of a document's links as they are written.
func links(t *testing.T, body []byte) []string {
	t.Helper()
	doc, err := html.Parse(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode || n.Data != "a" && n.Data != "area" && n.Data != "base" {
			continue
		}
		if n.Data == "base" {
			t.Fatal("the manual has a base element now: this walk must heed it")
		}
		for _, a := range n.Attr {
			if a.Key == "href" {
				found = append(found, a.Val)
			}
		}
	}
	return found
}

// unreached are the pages on disk that are not among the files of a crawl from root.
func (m *manual) unreached(t *testing.T, root string, files []string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(m.dir, func(name string, _ fs.DirEntry, err error) error {
		if rel, errRel := filepath.Rel(m.dir, name); err == nil && errRel == nil && path.Ext(name) == ".html" &&
			!slices.Contains(files, root+"/"+filepath.ToSlash(rel)) {
			out = append(out, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestManuals: what two workers record of real sites is what is on disk.
func TestManuals(t *testing.T) {
	t.Parallel()
	for _, m := range []*manual{
		{
			pkg: "python3.11-doc", dir: "/usr/share/doc/python3.11/html",
			trips: []trip{
				{"/tutorial/index.html", crawl.ScopePrefix, "/tutorial/"},
				{"/index.html", crawl.ScopeHost, "/"},
			},
			// Parts that other pages have in them, built as pages, too.
			unlinked: []string{
				"distutils/_setuptools_disclaimer.html", "distutils/packageindex.html", "distutils/uploading.html",
				"includes/wasm-notavail.html",
			},
		},
		{
			pkg: "postgresql-doc-15", dir: "/usr/share/doc/postgresql-doc-15/html",
			trips: []trip{{"/index.html", crawl.ScopeHost, "/"}},
		},
	} {
		t.Run(m.pkg, func(t *testing.T) {
			t.Parallel()
			m.crawl(t)
		})
	}
}

func (m *manual) crawl(t *testing.T) {
	t.Helper()
	if _, ok := m.file("/index.html"); !ok {
		if os.Getenv("TRAWL_REQUIRE_REDIS") == "1" {
			t.Fatalf("TRAWL_REQUIRE_REDIS=1, but there is no %s: install %s", m.dir, m.pkg)
		}
		t.Skipf("needs the package %s in %s; TRAWL_REQUIRE_REDIS=1 makes this a failure", m.pkg, m.dir)
	}
	site := crawltest.NewHandlerSite(t, m)
	d := deploy(t, 2)
	for _, tc := range m.trips {
		before := len(site.Requests())
		job := d.submit(alpha, fields{
			"seed_url": site.URL + tc.seed, "scope": tc.scope, "max_pages": 100_000, "max_depth": 100, "concurrency": 32,
		}).ID
		w := d.watch(alpha, job)
		files, missing, elsewhere := m.linked(t, site.URL+tc.seed, site.URL+tc.prefix)
		j := w.end(long)
		state := crawl.Completed
		if len(missing) > 0 {
			state = crawl.CompletedWithErrors
		}
		if j.State != state || j.StopReason != crawl.StopFrontierEmpty || j.Total != int64(len(files)+len(missing)) ||
			j.Accepted != int64(len(files)) || j.Failed != int64(len(missing)) {
			t.Errorf("%s: ended as %+v, want %d files and %d missing", tc.seed, j, len(files), len(missing))
		}
		if got := j.RefusedByReason[crawl.RefusedOutOfScope]; got != int64(elsewhere) {
			t.Errorf("%s: %d links lead elsewhere, want %d", tc.seed, got, elsewhere)
		}
		pages := 0
		for _, p := range d.recordedOnce(alpha, job, files) {
			isPage := strings.HasSuffix(p.URL, ".html")
			if isPage {
				pages++
			}
			if p.Status != http.StatusOK || p.Attempts != 1 || p.SourceURL != p.URL || isPage != (p.Title != "") ||
				isPage != (p.ContentType == "text/html") || p.Bytes == 0 {
				t.Errorf("%s: a record is %+v", tc.seed, p)
			}
		}
		var failed []string
		for _, f := range d.failures(alpha, job) {
			failed = append(failed, f.URL)
			if f.ErrorType != crawl.HTTPCode(404) || f.DiscoveredOn == "" {
				t.Errorf("%s: a failure is %+v", tc.seed, f)
			}
		}
		sameURLs(t, tc.seed+": failed", failed, missing)
		var requested []string
		for _, r := range site.Requests()[before:] {
			if r.URI != "/robots.txt" && r.URI != "/sitemap.xml" {
				requested = append(requested, site.URL+r.URI)
			}
		}
		sameURLs(t, tc.seed+": requested", requested, append(files, missing...))
		if tc.scope == crawl.ScopeHost {
			sameURLs(t, tc.seed+": not linked", m.unreached(t, site.URL, files), m.unlinked)
		}
		t.Logf("%s: %d pages, %d other files, missing %q, %d links elsewhere, refused %v, %v",
			tc.seed, pages, len(files)-pages, missing, elsewhere, j.RefusedByReason, j.EndedAt.Sub(j.StartedAt))
	}
}
