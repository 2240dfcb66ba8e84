// Package demosite is a small web site that is built into the program: Merrowby, a harbour town with a fishing
// museum, which is on no map. A first crawl can be made of it without any network.
//
// It shows what a crawl meets and has no page that fails: a redirect to a page that is linked directly too (/boats),
// one page in several spellings (/~ada/, /%7Eada/), links to other hosts and other schemes, a page in Latin-1 and one
// in German, plain text, a page five links deep, and a page that names another as the canonical one.
//
// What is in the folder site is what is served, by the same names; index.html answers for its folder. A page is a
// header (title, and if need be lang, charset and canonical), a blank line, and the content of its main element;
// layout.html has the rest.
package demosite

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"net/textproto"
	"path"
	"strings"
	"time"
)

// Pages is the number of pages that a crawl of the whole site from / accepts. One more URL, /boats, is skipped as
// an alias of /boats/.
const Pages = 24

//go:embed layout.html site
var embedded embed.FS

// edition is the Last-Modified date of all files, for embedded files have none of their own. Whoever edits the site
// sets it to the day of the edit, so that a client that has only this date to go by sees the change.
var edition = time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)

const (
	htmlType   = "text/html; charset=utf-8"
	latin1Type = "text/html; charset=iso-8859-1"
)

// Handler returns a handler that serves the site from its root, the same bytes each time. It answers GET and HEAD,
// conditional requests and ranges; every path that is not the site's is 404. It knows neither its host nor its port,
// so that it can be served at any.
func Handler() http.Handler { return handler(embedded) }

func handler(fsys fs.FS) http.Handler {
	s, err := load(fsys)
	if err != nil {
		// No caller could do more about a broken build than to show this, and the tests rule it out.
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "The built-in site is broken: "+err.Error(), http.StatusInternalServerError)
		})
	}
	return s
}

// site is what can be served, ready to be sent.
type site struct {
	files map[string]file   // by URL path
	moved map[string]string // URL paths of folders without their slash, and with it
}

type file struct {
	contentType, etag string
	body              []byte
}

// ServeHTTP implements [http.Handler]. Paths are looked up and never opened, so none can lead out of the site.
func (s site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "This site can only be read.", http.StatusMethodNotAllowed)
		return
	}
	if to, ok := s.moved[urlPath(r)]; ok {
		http.Redirect(w, r, to, http.StatusMovedPermanently)
		return
	}
	f, ok := s.files[urlPath(r)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", f.contentType)
	w.Header().Set("ETag", f.etag)
	http.ServeContent(w, r, "", edition, bytes.NewReader(f.body))
}

// urlPath returns the decoded path, or "" when it has an encoded slash: that one is part of a name (RFC 3986 s2.2),
// and no name here has one.
func urlPath(r *http.Request) string {
	if strings.Contains(strings.ToUpper(r.URL.EscapedPath()), "%2F") {
		return ""
	}
	return r.URL.Path
}

// load reads and renders all files below site.
func load(fsys fs.FS) (site, error) {
	s := site{files: map[string]file{}, moved: map[string]string{}}
	layout, err := template.ParseFS(fsys, "layout.html")
	if err != nil {
		return site{}, err
	}
	err = fs.WalkDir(fsys, "site", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		f, err := newFile(layout, path.Ext(name), raw)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.add(strings.TrimPrefix(name, "site"), f)
		return nil
	})
	return s, err
}

func (s site) add(name string, f file) {
	folder, isIndex := strings.CutSuffix(name, "/index.html")
	if !isIndex {
		s.files[name] = f
		return
	}
	s.files[folder+"/"] = f
	if folder != "" {
		s.moved[folder] = folder + "/"
	}
}

func newFile(layout *template.Template, ext string, raw []byte) (f file, err error) {
	switch ext {
	case ".html":
		f.contentType, f.body, err = render(layout, raw)
	case ".css":
		f.contentType, f.body = "text/css; charset=utf-8", raw
	case ".txt":
		f.contentType, f.body = "text/plain; charset=utf-8", raw
	default:
		err = fmt.Errorf("the extension %q has no content type; add one to newFile", ext)
	}
	sum := sha256.Sum256(f.body)
	f.etag = `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	return f, err
}

// page is what layout.html is filled with.
type page struct {
	Title, Lang, Canonical string
	Latin1                 bool // the header alone declares it: a meta element may only say UTF-8
	Body                   template.HTML
}

// render returns the content type and the document of a page's file.
func render(layout *template.Template, raw []byte) (contentType string, document []byte, err error) {
	p, err := parsePage(raw)
	if err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	if err = layout.Execute(&b, p); err != nil || !p.Latin1 {
		return htmlType, b.Bytes(), err
	}
	document, err = latin1(b.String())
	return latin1Type, document, err
}

func parsePage(raw []byte) (page, error) {
	r := bufio.NewReader(bytes.NewReader(raw))
	header, err := textproto.NewReader(r).ReadMIMEHeader()
	if err != nil {
		return page{}, fmt.Errorf("a page begins with a header and a blank line: %w", err)
	}
	p := page{Lang: "en"}
	for key, values := range header {
		switch value := values[0]; {
		case len(values) > 1:
			return page{}, fmt.Errorf("header %q is there twice", key)
		case key == "Title":
			p.Title = value
		case key == "Lang":
			p.Lang = value
		case key == "Canonical":
			p.Canonical = value
		case key == "Charset" && value == "iso-8859-1":
			p.Latin1 = true
		default:
			return page{}, fmt.Errorf("header %q with value %q is not known; see the package comment", key, value)
		}
	}
	if p.Title == "" {
		return page{}, errors.New("the header has no title")
	}
	body, err := io.ReadAll(r)
	p.Body = template.HTML(body) // our own files, as trusted as this code
	return p, err
}

// latin1 encodes s in ISO 8859-1, whose bytes are the first 256 code points.
func latin1(s string) ([]byte, error) {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xFF {
			return nil, fmt.Errorf("%q is not in Latin-1; write it otherwise, on this page and in layout.html", r)
		}
		b = append(b, byte(r))
	}
	return b, nil
}
