package main

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// editions is how many states of the site there are, one behind the other.
const editions = 3

// perList is how many postings a list page has.
const perList = 16

// What the later editions change.
const (
	changedID     = 17
	changedSalary = "18k-28k·13薪" // 15k-25k·13薪 before
	removedID     = 64
)

// editionPath is where PUT puts the number of the edition that is served from then on.
const editionPath = "/-/edition/"

var (
	//go:embed postings.json
	postingsJSON []byte
	//go:embed list.html
	listHTML string
	//go:embed posting.html
	postingHTML string
)

// posting is one of postings.json, the newest first. An empty Salary is not shown at all.
type posting struct {
	ID          int      `json:"id"`
	Lang        string   `json:"lang"`
	Title       string   `json:"title"`
	Company     string   `json:"company"`
	City        string   `json:"city"`
	Skills      []string `json:"skills"`
	Salary      string   `json:"salary"`
	Published   string   `json:"published"` // as the page writes it
	Description string   `json:"description"`

	List int `json:"-"` // the number of the list page that links here
}

// list is one list page.
type list struct {
	Number   int
	Pages    []int // of all list pages
	Postings []posting
}

// site serves one edition of itself at a time.
type site struct {
	editions [editions]map[string]file // by URL path
	now      atomic.Int32              // index of the edition that is served
}

type file struct {
	etag     string
	modified time.Time
	body     []byte
}

// newSite renders all editions. A page that an edition does not change keeps its date and its ETag.
func newSite() (*site, error) {
	s := &site{}
	for i := range s.editions {
		postings, err := postingsOf(i + 1)
		if err != nil {
			return nil, err
		}
		pages, err := render(postings)
		if err != nil {
			return nil, err
		}
		s.editions[i] = map[string]file{}
		for path, body := range pages {
			f := newFile(body, time.Date(2026, time.March, i+1, 9, 0, 0, 0, time.UTC))
			if i > 0 && s.editions[i-1][path].etag == f.etag {
				f = s.editions[i-1][path]
			}
			s.editions[i][path] = f
		}
	}
	return s, nil
}

func newFile(body []byte, modified time.Time) file {
	sum := sha256.Sum256(body)
	return file{etag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, modified: modified, body: body}
}

// postingsOf returns the postings of an edition.
func postingsOf(edition int) ([]posting, error) {
	var all []posting
	if err := json.Unmarshal(postingsJSON, &all); err != nil {
		return nil, fmt.Errorf("postings.json: %w", err)
	}
	for i := range all {
		all[i].List = 1 + i/perList
		if edition >= 2 && all[i].ID == changedID {
			all[i].Salary = changedSalary
		}
	}
	if edition >= 3 {
		all = slices.DeleteFunc(all, func(p posting) bool { return p.ID == removedID })
	}
	return all, nil
}

// render makes the pages of an edition, by URL path.
func render(postings []posting) (map[string][]byte, error) {
	onList, err := template.New("list").Parse(listHTML)
	if err != nil {
		return nil, err
	}
	onPosting, err := template.New("posting").Parse(postingHTML)
	if err != nil {
		return nil, err
	}
	lists := slices.Collect(slices.Chunk(postings, perList))
	numbers := make([]int, 0, len(lists))
	for i := range lists {
		numbers = append(numbers, i+1)
	}
	pages := map[string][]byte{}
	add := func(path string, t *template.Template, data any) error {
		var b bytes.Buffer
		err := t.Execute(&b, data)
		pages[path] = b.Bytes()
		return err
	}
	for i, of := range lists {
		l := list{Number: i + 1, Pages: numbers, Postings: of}
		if err := add(fmt.Sprintf("/list/%d.html", l.Number), onList, l); err != nil {
			return nil, err
		}
		for _, p := range of {
			if err := add(fmt.Sprintf("/jobs/%d.html", p.ID), onPosting, p); err != nil {
				return nil, err
			}
		}
	}
	return pages, nil
}

// publish serves an edition from now on. It reports whether there is such a one.
func (s *site) publish(edition int) bool {
	if edition < 1 || edition > editions {
		return false
	}
	s.now.Store(int32(edition - 1))
	return true
}

// ServeHTTP implements [http.Handler]. It answers conditional requests, by ETag and by date.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if number, ok := strings.CutPrefix(r.URL.Path, editionPath); ok {
		s.putEdition(w, r, number)
		return
	}
	switch f, ok := s.editions[s.now.Load()][r.URL.Path]; {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "This site can only be read.", http.StatusMethodNotAllowed)
	case ok:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("ETag", f.etag)
		http.ServeContent(w, r, "", f.modified, bytes.NewReader(f.body))
	case r.URL.Path == "/":
		http.Redirect(w, r, "/list/1.html", http.StatusFound)
	default:
		http.NotFound(w, r) // robots.txt too, which then allows everything
	}
}

func (s *site) putEdition(w http.ResponseWriter, r *http.Request, number string) {
	if r.Method != http.MethodPut { // no form and no link of another page can send a PUT
		w.Header().Set("Allow", "PUT")
		http.Error(w, "Use PUT.", http.StatusMethodNotAllowed)
		return
	}
	if n, err := strconv.Atoi(number); err != nil || !s.publish(n) {
		http.Error(w, fmt.Sprintf("There is no such edition. Give one of 1 to %d.", editions), http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
