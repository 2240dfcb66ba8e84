package e2e

import (
	"bytes"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// manual is a site that somebody else wrote: Debian's python3.11-doc.
const manual = "/usr/share/doc/python3.11/html"

// file returns the content of the file that a path of the site names.
func file(urlPath string) ([]byte, bool) {
	name := filepath.Join(manual, filepath.FromSlash(path.Clean("/"+urlPath)))
	if info, err := os.Stat(name); err != nil || info.IsDir() {
		return nil, false
	}
	body, err := os.ReadFile(name)
	return body, err == nil
}

// serveManual answers with the file of just that path. net/http's file server would
// redirect index.html to its directory and list directories, which is no part of the manual.
func serveManual(w http.ResponseWriter, r *http.Request) {
	if body, ok := file(r.URL.Path); !ok {
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
func linked(t *testing.T, seed, prefix string) (files, missing []string, elsewhere int) {
	t.Helper()
	seen, out := map[string]bool{seed: true}, map[string]bool{}
	for next := []string{seed}; len(next) > 0; {
		at, err := url.Parse(next[0])
		if err != nil {
			t.Fatal(err)
		}
		body, ok := file(at.Path)
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

// TestPythonManual: what two workers record of a real site is what is on disk.
func TestPythonManual(t *testing.T) {
	t.Parallel()
	if _, ok := file("/index.html"); !ok {
		if os.Getenv("TRAWL_REQUIRE_REDIS") == "1" {
			t.Fatalf("TRAWL_REQUIRE_REDIS=1, but there is no %s: install python3.11-doc", manual)
		}
		t.Skipf("needs the package python3.11-doc in %s; TRAWL_REQUIRE_REDIS=1 makes this a failure", manual)
	}
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(serveManual))
	d := deploy(t, 2)
	for _, tc := range []struct{ seed, scope, prefix string }{
		{"/tutorial/index.html", crawl.ScopePrefix, "/tutorial/"},
		{"/index.html", crawl.ScopeHost, "/"},
	} {
		before := len(site.Requests())
		job := d.submit(alpha, fields{
			"seed_url": site.URL + tc.seed, "scope": tc.scope, "max_pages": 100_000, "max_depth": 100, "concurrency": 32,
		}).ID
		w := d.watch(alpha, job)
		files, missing, elsewhere := linked(t, site.URL+tc.seed, site.URL+tc.prefix)
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
			if r.URI != "/robots.txt" {
				requested = append(requested, site.URL+r.URI)
			}
		}
		sameURLs(t, tc.seed+": requested", requested, append(files, missing...))
		t.Logf("%s: %d pages, %d other files, missing %q, %d links elsewhere, refused %v, %v",
			tc.seed, pages, len(files)-pages, missing, elsewhere, j.RefusedByReason, j.EndedAt.Sub(j.StartedAt))
	}
}
