package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/fields"
)

func site1(t *testing.T) *site {
	t.Helper()
	s, err := newSite()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ask(t *testing.T, s *site, method, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	for name := range header {
		r.Header.Set(name, header.Get(name))
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// program compiles the fields of spec.json, and checks the rest of it as a submission is checked.
func program(t *testing.T) *fields.Program {
	t.Helper()
	raw, err := os.ReadFile("spec.json")
	if err != nil {
		t.Fatal(err)
	}
	var spec crawl.Spec
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&spec); err != nil {
		t.Fatal(err)
	}
	if faults := spec.Validate(crawl.DefaultLimits()); len(faults) > 0 {
		t.Errorf("spec.json has faults: %+v", faults)
	}
	p, faults := fields.Compile(fields.Spec{Fields: spec.Fields, Items: spec.Items})
	if len(faults) > 0 {
		t.Fatalf("the fields of spec.json have faults: %+v", faults)
	}
	return p
}

// recordOf runs the fields of spec.json on a page of the site.
func recordOf(t *testing.T, p *fields.Program, s *site, path string) map[string]any {
	t.Helper()
	w := ask(t, s, http.MethodGet, path, nil)
	if w.Code != http.StatusOK {
		t.Fatalf("%s is answered with %d", path, w.Code)
	}
	doc, err := html.Parse(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	at, err := crawl.ParseURL("http://127.0.0.1:8700" + path)
	if err != nil {
		t.Fatal(err)
	}
	result, err := p.Run(doc, at)
	if err != nil || len(result.Unparsed)+len(result.Cut)+len(result.Stopped) > 0 {
		t.Fatalf("%s: %+v, %v", path, result, err)
	}
	raw, err := json.Marshal(result.Record)
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(raw, &record); err != nil {
		t.Fatal(err)
	}
	return record
}

// TestFields reads postings in each way in which a salary and a date are written. The values are worked out by hand.
func TestFields(t *testing.T) {
	t.Parallel()
	s, p := site1(t), program(t)
	for id, want := range map[int]map[string]any{
		1: { // no months said: 12
			"title": "算法工程师", "company": "青禾科技", "city": "上海", "skills": []any{"Python", "机器学习"},
			"salary": "10k-20k", "salary_min": 10_000.0, "salary_max": 20_000.0, "salary_months": 12.0,
			"salary_annual": 180_000.0, "published": "2026-02-28",
		},
		2: {
			"salary_min": 20_000.0, "salary_max": 40_000.0, "salary_months": 14.0, "salary_annual": 420_000.0,
			"published": "2026-02-28", "skills": []any{"Go", "Redis", "SQL"},
		},
		3: { // to be agreed
			"salary": "面议", "salary_min": nil, "salary_max": nil, "salary_months": 12.0, "salary_annual": nil,
			"published": "2026-02-27",
		},
		4:  {"salary_annual": 640_000.0, "salary_months": 16.0, "published": "2026-02-26"},
		5:  {"salary": "Negotiable", "salary_annual": nil, "published": "2026-02-26", "city": "Singapore"},
		8:  {"salary_min": 10_000.0, "salary_max": 20_000.0, "salary_annual": 180_000.0, "published": "2026-02-24"},
		9:  {"salary": nil, "salary_min": nil, "salary_months": 12.0, "salary_annual": nil, "published": "2026-02-23"},
		10: {"salary_months": 14.0, "salary_annual": 420_000.0, "published": "2026-02-22T09:30:00+01:00"},
		18: {"published": "2026-02-17T08:00:00Z", "company": "Copperleaf Systems"},
		19: {"salary_min": 20_000.0, "salary_max": 30_000.0, "salary_annual": 300_000.0, "published": "2026-02-16"},
		21: { // half a thousand
			"salary_min": 12_500.0, "salary_max": 17_500.0, "salary_months": 12.0, "salary_annual": 180_000.0,
			"published": "2026-02-15",
		},
		27: {"salary_months": 13.0, "salary_annual": 260_000.0, "published": "2026-02-11"},
		64: {"company": "Alder & Finch", "salary_annual": 300_000.0, "published": "2026-01-17T09:30:00+01:00"},
	} {
		got := recordOf(t, p, s, fmt.Sprintf("/jobs/%d.html", id))
		for name, value := range want {
			if d := cmp.Diff(value, got[name]); d != "" {
				t.Errorf("posting %d, %s:\n%s", id, name, d)
			}
		}
	}
}

// TestEveryPosting has what each posting must have, whatever its forms.
func TestEveryPosting(t *testing.T) {
	t.Parallel()
	s, p := site1(t), program(t)
	salaries := 0
	for id := 1; id <= 64; id++ {
		got := recordOf(t, p, s, fmt.Sprintf("/jobs/%d.html", id))
		for _, name := range []string{"title", "company", "city", "description", "published"} {
			if v, ok := got[name].(string); !ok || v == "" {
				t.Errorf("posting %d has %s %v", id, name, got[name])
			}
		}
		if skills, ok := got["skills"].([]any); !ok || len(skills) < 2 {
			t.Errorf("posting %d has the skills %v", id, got["skills"])
		}
		if got["salary_annual"] != nil {
			salaries++
		}
		if some := got["salary_min"] != nil; some != (got["salary_max"] != nil) || some != (got["salary_annual"] != nil) {
			t.Errorf("posting %d has half a salary: %v", id, got)
		}
	}
	if salaries != 50 {
		t.Errorf("%d postings have a salary, want 50", salaries)
	}
}

// TestEditions: between two editions only what is said to change does, and what has not changed is 304.
func TestEditions(t *testing.T) {
	t.Parallel()
	s := site1(t)
	before := s.editions[0]
	if len(before) != 68 {
		t.Errorf("the site has %d pages, want 4 and 64", len(before))
	}
	for i, want := range [][]string{{"/jobs/17.html", "/list/2.html"}, {"/jobs/64.html", "/list/4.html"}} {
		changed := map[string]bool{}
		for path, f := range before {
			changed[path] = s.editions[i+1][path].etag != f.etag
			// A page that is gone has no date.
			if now := s.editions[i+1][path].modified; !now.IsZero() && now.After(f.modified) != changed[path] {
				t.Errorf("edition %d: %s is of %v, before of %v", i+2, path, now, f.modified)
			}
		}
		for path, did := range changed {
			if did != (path == want[0] || path == want[1]) {
				t.Errorf("edition %d: %s changed: %v", i+2, path, did)
			}
		}
		before = s.editions[i+1]
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	s := site1(t)
	first := ask(t, s, http.MethodGet, "/jobs/17.html", nil)
	tag := http.Header{"If-None-Match": {first.Header().Get("ETag")}}
	date := http.Header{"If-Modified-Since": {first.Header().Get("Last-Modified")}}
	for _, c := range []struct {
		method, path string
		header       http.Header
		want         int
	}{
		{http.MethodGet, "/jobs/17.html", tag, http.StatusNotModified},
		{http.MethodGet, "/jobs/17.html", date, http.StatusNotModified},
		{http.MethodGet, "/jobs/64.html", nil, http.StatusOK},
		{http.MethodGet, "/", nil, http.StatusFound},
		{http.MethodGet, "/jobs/65.html", nil, http.StatusNotFound},
		{http.MethodGet, "/robots.txt", nil, http.StatusNotFound},
		{http.MethodPost, "/jobs/17.html", nil, http.StatusMethodNotAllowed},
		{http.MethodGet, "/-/edition/2", nil, http.StatusMethodNotAllowed},
		{http.MethodPut, "/-/edition/4", nil, http.StatusNotFound},
		{http.MethodPut, "/-/edition/x", nil, http.StatusNotFound},
		{http.MethodPut, "/-/edition/2", nil, http.StatusNoContent},
		{http.MethodGet, "/jobs/17.html", tag, http.StatusOK},
		{http.MethodGet, "/jobs/17.html", date, http.StatusOK},
		{http.MethodPut, "/-/edition/3", nil, http.StatusNoContent},
		{http.MethodGet, "/jobs/64.html", nil, http.StatusNotFound},
		{http.MethodPut, "/-/edition/1", nil, http.StatusNoContent},
		{http.MethodGet, "/jobs/17.html", tag, http.StatusNotModified},
	} {
		if got := ask(t, s, c.method, c.path, c.header).Code; got != c.want {
			t.Errorf("%s %s is answered with %d, want %d", c.method, c.path, got, c.want)
		}
	}
}

// TestListPages: each posting is linked from one list page, and each list page from the first.
func TestListPages(t *testing.T) {
	t.Parallel()
	s := site1(t)
	linked := map[string]int{}
	for n := 1; n <= 4; n++ {
		page := ask(t, s, http.MethodGet, fmt.Sprintf("/list/%d.html", n), nil).Body.Bytes()
		for path := range s.editions[0] {
			linked[path] += bytes.Count(page, []byte(`"`+path+`"`))
		}
	}
	for path, n := range linked {
		want := 1
		if path[:6] == "/list/" {
			want = 3
		}
		if n != want {
			t.Errorf("%s is linked %d times from the list pages, want %d", path, n, want)
		}
	}
}
