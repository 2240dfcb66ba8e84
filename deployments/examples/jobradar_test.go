package examples

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type (
	facets  map[string][]facet
	numbers map[string]number
)

type facet struct {
	Value string `json:"value"`
	Count int64  `json:"count"`
}

type number struct {
	Count int64   `json:"count"`
	Avg   float64 `json:"avg"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
}

type analytics struct {
	Total   int64   `json:"total"`
	Facets  facets  `json:"facets"`
	Numbers numbers `json:"numbers"`
}

// What the first edition of the site holds, by hand:
//
//	salary          postings  min      max     months  a year   together
//	10k-20k          8        10,000   20,000  (12)    180,000   1,440,000
//	12.5k-17.5k·12   4        12,500   17,500   12     180,000     720,000
//	15k-25k·13      12        15,000   25,000   13     260,000   3,120,000
//	20k-30k         10        20,000   30,000  (12)    300,000   3,000,000
//	20k-40k·14      10        20,000   40,000   14     420,000   4,200,000
//	30k-50k·16       6        30,000   50,000   16     640,000   3,840,000
//	面议, none      14                          (12)
//
// 50 have a salary: 16,320,000 / 50 = 326,400 a year, from 890,000 / 50 = 17,800 to 1,530,000 / 50 = 30,600 a month.
// All 64 have months: 96 + 48 + 156 + 120 + 140 + 96 + 168 = 824, and 824 / 64 = 12.875.
var firstEdition = analytics{
	Total: 64,
	Facets: facets{
		"city": {
			{"上海", 14},
			{"北京", 12},
			{"深圳", 10},
			{"杭州", 9},
			{"Singapore", 7},
			{"Berlin", 6},
			{"London", 4},
			{"Remote", 2},
		},
		"skills": {
			{"Go", 25},
			{"Python", 20},
			{"SQL", 18},
			{"Redis", 14},
			{"Kubernetes", 11},
			{"Java", 9},
			{"机器学习", 8},
			{"Linux", 7},
			{"Kafka", 6},
			{"TypeScript", 5},
		},
	},
	Numbers: numbers{
		"salary_min":    {Count: 50, Avg: 17_800, Min: 10_000, Max: 30_000},
		"salary_max":    {Count: 50, Avg: 30_600, Min: 17_500, Max: 50_000},
		"salary_months": {Count: 64, Avg: 12.875, Min: 12, Max: 16},
		"salary_annual": {Count: 50, Avg: 326_400, Min: 180_000, Max: 640_000},
	},
}

// The second edition has 18k-28k·13 in place of one 15k-25k·13: 3,000 more a month, and 39,000 more a year, among 50.
var secondEdition = analytics{
	Total: 64, Facets: firstEdition.Facets,
	Numbers: numbers{
		"salary_min":    {Count: 50, Avg: 17_860, Min: 10_000, Max: 30_000},
		"salary_max":    {Count: 50, Avg: 30_660, Min: 17_500, Max: 50_000},
		"salary_months": {Count: 64, Avg: 12.875, Min: 12, Max: 16},
		"salary_annual": {Count: 50, Avg: 327_180, Min: 180_000, Max: 640_000},
	},
}

// TestJobRadar crawls the job board in each of its editions, and in the first one again.
func TestJobRadar(t *testing.T) {
	t.Parallel()
	s := start(t, "jobradar")
	raw, err := os.ReadFile("jobradar/spec.json")
	if err != nil {
		t.Fatal(err)
	}
	spec := strings.ReplaceAll(string(raw), "http://127.0.0.1:8700", s.site)
	for i, c := range []struct {
		edition   int
		report    report
		unread    int // pages that were answered with 304
		analytics analytics
	}{
		{1, report{ListPages: 4, Discovered: 68, Created: 64}, 0, firstEdition},
		{1, report{ListPages: 4, Discovered: 68, Unchanged: 64}, 68, firstEdition},
		// The list page that shows the salary has changed, too, and so it is later.
		{2, report{ListPages: 4, Discovered: 68, Updated: 1, Unchanged: 63}, 66, secondEdition},
		{3, report{ListPages: 4, Discovered: 67, Unchanged: 63, Missing: 1}, 66, secondEdition},
		{1, report{ListPages: 4, Discovered: 68, Updated: 1, Unchanged: 63}, 65, firstEdition},
	} {
		s.call(http.MethodPut, fmt.Sprintf("%s/-/edition/%d", s.site, c.edition), "", http.StatusNoContent)
		j := s.run(spec)
		if j.State != "completed" || j.Accepted != c.report.Discovered {
			t.Errorf("crawl %d ended as %+v", i+1, j)
		}
		if d := cmp.Diff(c.report, j.report); d != "" {
			t.Errorf("crawl %d, report:\n%s", i+1, d)
		}
		s.records(i+1, j, c.report, c.unread)
		var a analytics
		s.get("/v1/collections/jobs/analytics?top_n=10", &a)
		if d := cmp.Diff(c.analytics, a); d != "" {
			t.Errorf("crawl %d, analytics:\n%s", i+1, d)
		}
		s.items(i+1, c.report.Missing)
	}
}

// records compares the records of a crawl with its report.
func (s *service) records(n int, j job, r report, unread int) {
	s.t.Helper()
	changes, statuses := map[string]int64{}, map[int]int{}
	for path, rec := range s.result(j.ID) {
		statuses[rec.Status]++
		change := ""
		if rec.Change != nil {
			change = *rec.Change
		}
		changes[change]++
		if change == "updated" && path != "/jobs/17.html" {
			s.t.Errorf("crawl %d: %s was updated", n, path)
		}
		if path == "/jobs/17.html" && rec.Status == http.StatusOK && rec.Fields["title"] != "数据分析师" {
			s.t.Errorf("crawl %d: %s has %v", n, path, rec.Fields)
		}
	}
	want := map[string]int64{"": r.ListPages, "created": r.Created, "updated": r.Updated, "unchanged": r.Unchanged}
	for change, count := range want {
		if changes[change] != count {
			s.t.Errorf("crawl %d: %d records are %q, want %d", n, changes[change], change, count)
		}
	}
	if statuses[http.StatusNotModified] != unread {
		s.t.Errorf("crawl %d: the statuses of the records are %v, want %d of 304", n, statuses, unread)
	}
}

type items struct {
	Items []struct {
		N         int64          `json:"n"`
		SourceURL string         `json:"source_url"`
		Fields    map[string]any `json:"fields"`
		Missing   *string        `json:"missing_since"`
	} `json:"items"`
	Page, Size int
	Total      *int64
	HasMore    bool `json:"has_more"`
}

// items reads the collection in pages, and finds postings in it.
func (s *service) items(n int, missing int64) {
	s.t.Helper()
	seen := map[string]bool{}
	for page, want := range []int{20, 20, 20, 4} {
		var got items
		s.get(fmt.Sprintf("/v1/collections/jobs/items?page=%d&size=20", page+1), &got)
		if len(got.Items) != want || got.Page != page+1 || got.Size != 20 || got.Total == nil || *got.Total != 64 ||
			got.HasMore != (page < 3) {
			s.t.Errorf("crawl %d, page %d of the items: %d items, %+v", n, page+1, len(got.Items), got)
		}
		for _, item := range got.Items {
			seen[item.SourceURL] = true
			if (item.Missing != nil) != (missing == 1 && item.SourceURL == s.site+"/jobs/64.html") {
				s.t.Errorf("crawl %d: %s is missing since %v", n, item.SourceURL, item.Missing)
			}
		}
	}
	if len(seen) != 64 {
		s.t.Errorf("crawl %d: the pages hold %d different items, want 64", n, len(seen))
	}
	for _, tt := range []struct {
		query string
		want  int
	}{
		{"city=Berlin", 6},
		{"city=Berlin&skills=Java", 3}, // 8, 18 and 64
		{"skills=%E6%9C%BA%E5%99%A8%E5%AD%A6%E4%B9%A0", 8},
		{"skills=Go&skills=SQL&size=100", 8},
		{"city=nowhere", 0},
		{"missing=true", int(missing)},
		{"city=Berlin&missing=true&size=20", int(missing)},
	} {
		query, want := tt.query, tt.want
		var got items
		s.get("/v1/collections/jobs/items?"+query, &got)
		if len(got.Items) != want {
			s.t.Errorf("crawl %d: %d items are found by %s, want %d", n, len(got.Items), query, want)
		}
	}
}
