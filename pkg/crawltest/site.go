package crawltest

import (
	"bufio"
	"bytes"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// Request is one request that a site got.
type Request struct {
	Method string
	Host   string
	URI    string // path and query as sent
	Header http.Header
	At     time.Time // when it came
}

// Site is a web site on 127.0.0.1 that remembers what it was asked.
type Site struct {
	URL string // http://127.0.0.1:port, without a slash at the end

	t      testing.TB
	mu     sync.Mutex
	pages  map[string]answer
	log    []Request
	logged chan struct{} // closed and replaced on each request
}

// answer is one scripted page.
type answer struct {
	status int
	header http.Header
	delay  time.Duration
	body   []byte
}

// NewSite starts a site whose pages are the files of a txtar archive. A file's
// name is the path, with a query where that matters; a path without one
// answers every query. "x/index.html" answers "x/" too. Other paths are 404.
//
// A file may begin with lines of these forms, ended by a blank line:
//
//	status: 301
//	header: Location: /elsewhere
//	delay: 200ms
//
// The rest is the body. {{site}} in a header or a body becomes the URL of the
// site. The content type is that of the name's extension, text/html in UTF-8
// without one; "header: Content-Type:" sends none.
func NewSite(t testing.TB, archive []byte) *Site {
	t.Helper()
	s := &Site{pages: map[string]answer{}}
	s.start(t, http.HandlerFunc(s.serve))
	for _, f := range txtar.Parse(archive).Files {
		s.Put(f.Name, f.Data)
	}
	return s
}

// NewHandlerSite starts a site that h answers for.
func NewHandlerSite(t testing.TB, h http.Handler) *Site {
	t.Helper()
	s := &Site{}
	s.start(t, h)
	return s
}

func (s *Site) start(t testing.TB, h http.Handler) {
	t.Helper()
	s.t, s.logged = t, make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.record(r)
		h.ServeHTTP(w, r)
	}))
	s.URL = srv.URL
	t.Cleanup(func() {
		// First the connections: a handler that waits for its client would
		// hold the end of the test.
		srv.CloseClientConnections()
		srv.Close()
	})
}

func (s *Site) record(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, Request{
		Method: r.Method, Host: r.Host, URI: r.RequestURI, Header: r.Header.Clone(), At: time.Now(),
	})
	close(s.logged)
	s.logged = make(chan struct{})
}

// Put adds a page to a site made by [NewSite] or replaces it, in the form of a
// file there.
func (s *Site) Put(name string, file []byte) {
	s.t.Helper()
	a, err := s.parse(name, file)
	if err != nil {
		s.t.Fatalf("page %s: %v", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name = "/" + strings.TrimPrefix(name, "/")
	s.pages[name] = a
	if dir, ok := strings.CutSuffix(name, "/index.html"); ok {
		s.pages[dir+"/"] = a
	}
}

// parse reads one file of the archive.
func (s *Site) parse(name string, file []byte) (answer, error) {
	a := answer{status: http.StatusOK, header: http.Header{}}
	file = bytes.ReplaceAll(file, []byte("{{site}}"), []byte(s.URL))
	a.header.Set("Content-Type", contentType(name))
	a.body = file
	rest := bufio.NewReader(bytes.NewReader(file))
	for consumed, first := 0, true; ; first = false {
		line, err := rest.ReadString('\n')
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		known := ok && (key == "status" || key == "header" || key == "delay")
		switch {
		case first && !known:
			return a, nil
		case !first && strings.TrimSpace(line) == "":
			a.body = file[consumed+len(line):]
			return a, nil
		case !known:
			return a, fmt.Errorf(
				"line %q is neither status, header nor delay, nor the blank line before the body", line)
		}
		if err := a.set(key, value); err != nil {
			return a, err
		}
		consumed += len(line)
		if err != nil { // the end of the file: no body
			a.body = nil
			return a, nil
		}
	}
}

func (a *answer) set(key, value string) error {
	var err error
	switch key {
	case "status":
		a.status, err = strconv.Atoi(value)
	case "delay":
		a.delay, err = time.ParseDuration(value)
	case "header":
		name, v, ok := strings.Cut(value, ":")
		name, v = http.CanonicalHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(v)
		switch {
		case !ok:
			err = fmt.Errorf("header %q has no colon", value)
		case name != "Content-Type":
			a.header.Add(name, v)
		case v == "":
			a.header[name] = nil // net/http then sniffs none
		default:
			a.header.Set(name, v)
		}
	}
	return err
}

func contentType(name string) string {
	name, _, _ = strings.Cut(name, "?")
	// Not by the machine's mime.types, which differ.
	switch ext := path.Ext(name); ext {
	case ".xml":
		return "application/xml"
	case ".txt":
		return "text/plain; charset=utf-8"
	case ".gz":
		return "application/gzip"
	case ".pdf", ".png", ".jpg", ".gif", ".css", ".js", ".json", ".svg":
		return mime.TypeByExtension(ext)
	}
	return "text/html; charset=utf-8"
}

func (s *Site) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	a, ok := s.pages[r.RequestURI]
	if !ok {
		p, _, _ := strings.Cut(r.RequestURI, "?")
		a, ok = s.pages[p]
	}
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	if a.delay > 0 {
		timer := time.NewTimer(a.delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	for k, v := range a.header {
		w.Header()[k] = v
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may be gone; a body is not allowed with 204 and 304
}

// Hits returns how often the path was asked for, with any query; a path with a
// query counts only that very one.
func (s *Site) Hits(uri string) int {
	n := 0
	for _, r := range s.Requests() {
		p, _, _ := strings.Cut(r.URI, "?")
		if r.URI == uri || p == uri {
			n++
		}
	}
	return n
}

// Requests returns what the site was asked so far, in the order it came.
func (s *Site) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.log...)
}

// Await waits until the path was asked for n times, counted as [Site.Hits]
// does, and fails the test when that does not come within the given time.
func (s *Site) Await(within time.Duration, uri string, n int) {
	s.t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		s.mu.Lock()
		more := s.logged
		s.mu.Unlock()
		if s.Hits(uri) >= n {
			return
		}
		select {
		case <-more:
		case <-timer.C:
			s.t.Fatalf("after %v %s was asked for %d times, want %d", within, uri, s.Hits(uri), n)
		}
	}
}
