package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
)

// fakeCollections keeps collections in memory, by the contract of the store's own.
type fakeCollections struct {
	mu        sync.Mutex
	all       map[[2]string]store.CollectionInfo // by tenant and name
	items     map[[2]string][]store.CollectionItem
	analytics store.Analytics
	top       []int // what Analytics was asked for
	queries   []store.ItemQuery
	calls     []string // tenant and name, of every call
	deleted   []string // keys
	untold    bool     // the total of a query takes too long
	err       error
	hangs     bool
	page      func(store.ItemQuery) error // of Items
}

func newFakeCollections() *fakeCollections {
	return &fakeCollections{
		all: map[[2]string]store.CollectionInfo{}, items: map[[2]string][]store.CollectionItem{},
	}
}

// add puts a collection into the fake, with n items.
func (f *fakeCollections) add(tenant string, c crawl.Collection, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := time.Date(2026, 5, 6, 7, 8, 9, 123456789, time.UTC)
	f.all[[2]string{tenant, c.Name}] = store.CollectionInfo{
		Collection: c, Total: int64(n), Missing: int64(n / 3), CreatedAt: at, UpdatedAt: at.Add(time.Hour),
	}
	for i := 1; i <= n; i++ {
		it := store.CollectionItem{
			N: int64(i), Key: fmt.Sprintf("https://%s.test/%d", tenant, i), SourceURL: fmt.Sprintf("https://%s.test/%d", tenant, i),
			URL: fmt.Sprintf("https://%s.test/%d", tenant, i), Title: "of " + tenant, JobID: "j",
			Fields:    fmt.Appendf(nil, `{"title":"T%d","city":"c%d","n":%d.50}`, i, i%2, i),
			CreatedAt: at, UpdatedAt: at, SeenAt: at,
		}
		if i%3 == 0 {
			it.MissingSince = at
		}
		f.items[[2]string{tenant, c.Name}] = append(f.items[[2]string{tenant, c.Name}], it)
	}
}

// enter begins a call; the caller holds the lock after it, in any case.
func (f *fakeCollections) enter(ctx context.Context, tenant, name string) (store.CollectionInfo, error) {
	f.mu.Lock()
	if f.hangs {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
	}
	f.calls = append(f.calls, tenant+" "+name)
	if err := ctx.Err(); err != nil {
		return store.CollectionInfo{}, err
	}
	if f.err != nil {
		return store.CollectionInfo{}, f.err
	}
	c, ok := f.all[[2]string{tenant, name}]
	if !ok && name != "" {
		return c, crawl.Faultf(crawl.CodeNotFound, "the store's own words")
	}
	return c, nil
}

func (f *fakeCollections) Collections(ctx context.Context, tenant, after string, limit int) (store.CollectionPage, error) {
	_, err := f.enter(ctx, tenant, "")
	defer f.mu.Unlock()
	var p store.CollectionPage
	for _, c := range f.all {
		if _, own := f.all[[2]string{tenant, c.Name}]; own && c.Name > after {
			p.Collections = append(p.Collections, f.all[[2]string{tenant, c.Name}])
		}
	}
	slices.SortFunc(p.Collections, func(a, b store.CollectionInfo) int { return strings.Compare(a.Name, b.Name) })
	p.Collections = slices.CompactFunc(p.Collections, func(a, b store.CollectionInfo) bool { return a.Name == b.Name })
	if len(p.Collections) > limit {
		p.Collections, p.More = p.Collections[:limit], true
	}
	return p, err
}

func (f *fakeCollections) Collection(ctx context.Context, tenant, name string) (store.CollectionInfo, error) {
	c, err := f.enter(ctx, tenant, name)
	defer f.mu.Unlock()
	return c, err
}

func (f *fakeCollections) Items(ctx context.Context, q store.ItemQuery) (store.ItemPage, error) {
	_, err := f.enter(ctx, q.Tenant, q.Collection)
	defer f.mu.Unlock()
	f.queries = append(f.queries, q)
	if err == nil && f.page != nil {
		err = f.page(q)
	}
	if err != nil {
		return store.ItemPage{}, err
	}
	var p store.ItemPage
	for _, it := range f.items[[2]string{q.Tenant, q.Collection}] {
		match := q.Missing == nil || *q.Missing == !it.MissingSince.IsZero()
		for _, filter := range q.Filters {
			match = match && bytes.Contains(it.Fields, fmt.Appendf(nil, "%q:%q", filter.Name, filter.Value))
		}
		if !match {
			continue
		}
		if p.Total++; it.N <= q.After || p.Total <= q.Offset {
			continue
		}
		if len(p.Items) == q.Limit {
			p.More = true
			continue
		}
		p.Items, p.Next = append(p.Items, it), it.N
	}
	if f.untold {
		p.Total = -1
	}
	return p, nil
}

func (f *fakeCollections) Analytics(ctx context.Context, tenant, name string, topN int) (store.Analytics, error) {
	_, err := f.enter(ctx, tenant, name)
	defer f.mu.Unlock()
	f.top = append(f.top, topN)
	return f.analytics, err
}

func (f *fakeCollections) DeleteItem(ctx context.Context, tenant, name, key string) error {
	_, err := f.enter(ctx, tenant, name)
	defer f.mu.Unlock()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(f.items[[2]string{tenant, name}], func(it store.CollectionItem) bool { return it.Key == key }) {
		return crawl.Faultf(crawl.CodeNotFound, "no such item")
	}
	f.deleted = append(f.deleted, key)
	return nil
}

func (f *fakeCollections) DeleteCollection(ctx context.Context, tenant, name string) error {
	_, err := f.enter(ctx, tenant, name)
	defer f.mu.Unlock()
	if err == nil {
		delete(f.all, [2]string{tenant, name})
	}
	return err
}

var jobsCollection = crawl.Collection{Name: "jobs", Key: "source_url", Facets: []string{"city", "skills"}, Numbers: []string{"n"}}

func benchOfJobs(t testing.TB, n int) *bench {
	t.Helper()
	b := newBench(t)
	b.collections.add("a", jobsCollection, n)
	return b
}

// Each route answers what the document says, with what the store has.
func TestCollections(t *testing.T) {
	t.Parallel()
	b := benchOfJobs(t, 7)
	b.collections.add("a", crawl.Collection{Name: "b2", Key: "source_url"}, 0)
	b.collections.add("b", crawl.Collection{Name: "others", Key: "source_url"}, 1)
	b.collections.analytics = store.Analytics{
		Total: 7, Missing: 2, Facets: map[string][]store.FacetCount{"city": {{Value: "c1", Count: 4}, {Value: "c0", Count: 3}}, "skills": nil},
		Distinct: map[string]int64{"city": 2, "skills": 0},
		Numbers:  map[string]store.NumberStats{"n": {Count: 7, Avg: "4.500000", Min: "1.5", Max: "700000000000000000001.5"}, "m": {}},
	}
	doc := openAPI(t, b)
	ask := func(method, path, query, at string) string {
		t.Helper()
		a := b.call(method, path+query, "")
		if a.status != 200 || a.header.Get("Cache-Control") != "no-store" || a.header.Get("ETag") != "" {
			t.Fatalf("%s %s%s: %d %v %s", method, path, query, a.status, a.header, a.body)
		}
		if err := doc.check(a.body, "paths", at, "get", "responses", "200", "content", "application/json", "schema"); err != nil {
			t.Errorf("%s%s: %v", path, query, err)
		}
		h := b.call("HEAD", path+query, "")
		if h.status != 200 || h.header.Get("Content-Type") != a.header.Get("Content-Type") {
			t.Errorf("HEAD %s: %d %v", path, h.status, h.header)
		}
		return strings.TrimSpace(a.body)
	}
	const one = `{"name":"jobs","key":"source_url","facets":["city","skills"],"numbers":["n"],"total":7,"missing":2,` +
		`"created_at":"2026-05-06T07:08:09.123Z","updated_at":"2026-05-06T08:08:09.123Z"}`
	if got := ask("GET", "/v1/collections/jobs", "", "/v1/collections/{name}"); got != one {
		t.Errorf("a collection is\n%s", got)
	}
	list := ask("GET", "/v1/collections", "?limit=1", "/v1/collections")
	var p page[collection]
	if err := json.Unmarshal([]byte(list), &p); err != nil || !p.HasMore || p.NextCursor == nil || len(p.Items) != 1 || p.Items[0].Name != "b2" ||
		!strings.Contains(list, `"facets":[],"numbers":[]`) {
		t.Fatalf("%v in %s", err, list)
	}
	if got := ask("GET", "/v1/collections", "?cursor="+*p.NextCursor, "/v1/collections"); got != `{"items":[`+one+`],"next_cursor":null,"has_more":false}` {
		t.Errorf("the second page is %s", got)
	}
	const values = `{"total":7,"missing":2,"facets":{"city":[{"value":"c1","count":4},{"value":"c0","count":3}],"skills":[]},` +
		`"distinct":{"city":2,"skills":0},"numbers":{"m":{"count":0,"avg":null,"min":null,"max":null},` +
		`"n":{"count":7,"avg":4.500000,"min":1.5,"max":700000000000000000001.5}}}`
	if got := ask("GET", "/v1/collections/jobs/analytics", "", "/v1/collections/{name}/analytics"); got != values {
		t.Errorf("analytics are\n%s, want\n%s", got, values)
	}
	ask("GET", "/v1/collections/jobs/analytics", "?top_n=1000", "/v1/collections/{name}/analytics")
	if want := []int{10, 10, 1000, 1000}; !slices.Equal(b.collections.top, want) { // each with its HEAD
		t.Errorf("asked for the top %d, want %d", b.collections.top, want)
	}
	items := ask("GET", "/v1/collections/jobs/items", "?size=2&page=2", "/v1/collections/{name}/items")
	const want = `{"n":3,"key":"https://a.test/3","source_url":"https://a.test/3","url":"https://a.test/3","title":"of a",` +
		`"fields":{"title":"T3","city":"c1","n":3.50},"job_id":"j","created_at":"2026-05-06T07:08:09.123Z",` +
		`"updated_at":"2026-05-06T07:08:09.123Z","seen_at":"2026-05-06T07:08:09.123Z","missing_since":"2026-05-06T07:08:09.123Z"}`
	if !strings.HasPrefix(items, `{"items":[`+want+`,{"n":4`) || !strings.Contains(items, `],"page":2,"size":2,"total":7,"next_cursor":"`) {
		t.Errorf("items are\n%s", items)
	}
	ask("GET", "/v1/collections/jobs/export", "", "/v1/collections/{name}/export")

	for _, tt := range []struct {
		method, target string
		status         int
	}{
		{"DELETE", "/v1/collections/jobs/items?key=https://a.test/3", 204},
		{"DELETE", "/v1/collections/jobs/items?key=https://a.test/8", 404},
		{"DELETE", "/v1/collections/jobs", 204},
		{"DELETE", "/v1/collections/jobs", 404},
		{"GET", "/v1/collections/jobs", 404},
		{"GET", "/v1/collections/others", 404},
	} {
		if a := b.call(tt.method, tt.target, ""); a.status != tt.status || tt.status == 204 && a.body != "" {
			t.Errorf("%s %s: %d %s", tt.method, tt.target, a.status, a.body)
		}
	}
	if !slices.Equal(b.collections.deleted, []string{"https://a.test/3"}) {
		t.Errorf("deleted %q", b.collections.deleted)
	}
	for _, call := range b.collections.calls {
		if !strings.HasPrefix(call, "a ") {
			t.Errorf("the store was asked for %q", call)
		}
	}
}

// What becomes of the parameters of items.
func TestItemsQuery(t *testing.T) {
	t.Parallel()
	b := benchOfJobs(t, 7)
	yes, no := true, false
	long := strings.Repeat("é", 150)
	for query, want := range map[string]store.ItemQuery{
		"":                      {Limit: 20},
		"?size=100&page=3":      {Limit: 100, Offset: 200},
		"?page=1000000&size=1":  {Limit: 1, Offset: 999_999},
		"?after=5&missing=true": {Limit: 20, After: 5, Missing: &yes},
		"?missing=false":        {Limit: 20, Missing: &no},
		"?cursor=" + encodeCursor(cursorItems, 6): {Limit: 20, After: 6},
		"?page=&size=&cursor=&after=&missing=":    {Limit: 20},
		"?city=Berlin":                            {Limit: 20, Filters: []store.Filter{{Name: "city", Value: "Berlin"}}},
		"?city=%20Berlin%00%0a&size=5&skills=":    {Limit: 5, Filters: []store.Filter{{Name: "city", Value: "Berlin"}}},
		"?skills=go&city=B&skills=sql&skills=go": {Limit: 20, Filters: []store.Filter{
			{Name: "city", Value: "B"}, {Name: "skills", Value: "go"}, {Name: "skills", Value: "sql"},
		}},
		"?city=" + long: {Limit: 20, Filters: []store.Filter{{Name: "city", Value: long[:200]}}},
	} {
		b.collections.queries = nil
		if a := b.call("GET", "/v1/collections/jobs/items"+query, ""); a.status != 200 {
			t.Errorf("%s: %d %s", query, a.status, a.body)
			continue
		}
		want.Tenant, want.Collection = "a", "jobs"
		if d := cmp.Diff([]store.ItemQuery{want}, b.collections.queries); d != "" {
			t.Errorf("%s: -want +got\n%s", query, d)
		}
	}
	b.collections.queries = nil
	for query, want := range map[string]string{
		"?size=0&page=0&missing=1&country=DE": "[country:unknown size:range page:range missing:type]",
		"?after=-1":                           "[after:range]", "?after=x": "[after:type]",
		"?size=101&page=1000001":                          "[size:range page:range]",
		"?size=1.5&page=x":                                "[size:type page:type]",
		"?page=99999999999999999999":                      "[page:range]",
		"?page=1&cursor=" + encodeCursor(cursorItems, 1):  "[page:exclusive]",
		"?page=1&after=1":                                 "[page:exclusive]",
		"?after=1&cursor=" + encodeCursor(cursorItems, 1): "[after:exclusive]",
		"?size=1&size=2&limit=1":                          "[size:duplicate limit:unknown]",
		"?title=x":                                        "[title:unknown]",
		"?%zz":                                            "[query:format]",
		"?a&b&c":                                          "[a:unknown b:unknown c:unknown]",
		"?skills=" + strings.Join(strings.Split("abcdefghijk", ""), "&skills="): "[query:max]",
	} {
		p := b.call("GET", "/v1/collections/jobs/items"+query, "").wantProblem(t, 422, crawl.CodeInvalid)
		if got := fmt.Sprint(fieldRules(p)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	p := b.call("GET", "/v1/collections/jobs/items?town=x", "").wantProblem(t, 422, crawl.CodeInvalid)
	if !strings.Contains(p.Errors[0].Message, "city, skills") {
		t.Errorf("it says %+v", p.Errors)
	}
	if n := len(b.call("GET", "/v1/collections/jobs/items?"+manyNames(500), "").problem(t).Errors); n != maxFaults+1 {
		t.Errorf("%d faults", n)
	}
	for _, cursor := range []string{
		"x", encodeCursor(cursorJobs, 1), encodeCursor(cursorRecords, 1), encodeCursor(cursorItems, -1), encodeCollection("jobs"),
	} {
		b.call("GET", "/v1/collections/jobs/items?cursor="+cursor, "").wantProblem(t, 400, crawl.CodeMalformed)
	}
	for _, cursor := range []string{"x", encodeCursor(cursorItems, 1), encodeCollection("Jobs"), encodeCollection(""), encodeCollection("../x")} {
		b.call("GET", "/v1/collections?cursor="+cursor, "").wantProblem(t, 400, crawl.CodeMalformed)
	}
	if len(b.collections.queries) > 0 {
		t.Errorf("the store was asked: %+v", b.collections.queries)
	}
	for target, want := range map[string]string{
		"GET /v1/collections?limit=201&x=1":                                     "[x:unknown limit:range]",
		"GET /v1/collections/jobs?city=x":                                       "[city:unknown]",
		"GET /v1/collections/jobs/analytics?top_n=0":                            "[top_n:range]",
		"GET /v1/collections/jobs/analytics?top_n=1001&city=x":                  "[city:unknown top_n:range]",
		"GET /v1/collections/jobs/export?format=xml&columns=n&page=1&size=5":    "[page:unknown size:unknown format:enum columns:exclusive]",
		"GET /v1/collections/jobs/export?format=csv&columns=n,nope,n&country=x": "[country:unknown columns:unknown columns:duplicate]",
		"DELETE /v1/collections/jobs/items":                                     "[key:required]",
		"DELETE /v1/collections/jobs/items?key=":                                "[key:required]",
		"DELETE /v1/collections/jobs/items?key=a&key=b":                         "[key:duplicate]",
		"DELETE /v1/collections/jobs/items?city=a":                              "[city:unknown]",
		"DELETE /v1/collections/jobs/items?key=" + strings.Repeat("x", 2049):    "[key:max]",
		"DELETE /v1/collections/jobs?force=1":                                   "[force:unknown]",
	} {
		method, path, _ := strings.Cut(target, " ")
		p := b.call(method, path, "").wantProblem(t, 422, crawl.CodeInvalid)
		if got := fmt.Sprint(fieldRules(p)); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	if len(b.collections.deleted) > 0 || len(b.collections.all) != 1 {
		t.Error("something was deleted")
	}
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "f%d=x&", i)
	}
	return strings.TrimSuffix(b.String(), "&")
}

// A reader meets each item once, by pages and by cursors.
func TestItemsAreReadToTheEnd(t *testing.T) {
	t.Parallel()
	b := benchOfJobs(t, 25)
	read := func(next func(p *itemPage, i int) string) (ns []int64) {
		t.Helper()
		for i, query := 0, next(nil, 0); query != ""; {
			var p itemPage
			b.call("GET", "/v1/collections/jobs/items?size=10&city=c1"+query, "").decode(t, 200, &p)
			for _, it := range p.Items {
				ns = append(ns, it.N)
			}
			if i++; !p.HasMore {
				if p.NextCursor != nil {
					t.Error("a cursor at the end")
				}
				break
			}
			query = next(&p, i)
		}
		return ns
	}
	pages := read(func(_ *itemPage, i int) string { return fmt.Sprintf("&page=%d", i+1) })
	cursors := read(func(p *itemPage, _ int) string {
		if p == nil {
			return "&missing="
		}
		return "&cursor=" + *p.NextCursor
	})
	after := read(func(p *itemPage, _ int) string {
		if p == nil {
			return "&after=0"
		}
		if p.Page != nil || p.Total == nil || *p.Total != 13 {
			t.Errorf("page %v of %v", p.Page, p.Total)
		}
		return fmt.Sprintf("&after=%d", p.Items[len(p.Items)-1].N)
	})
	want := []int64{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25}
	for name, got := range map[string][]int64{"pages": pages, "cursors": cursors, "after": after} {
		if !slices.Equal(got, want) {
			t.Errorf("by %s: %d", name, got)
		}
	}
	b.collections.untold = true
	if a := b.call("GET", "/v1/collections/jobs/items", ""); !strings.Contains(a.body, `"total":null`) {
		t.Errorf("a total that nobody counted: %s", a.body)
	}
}

// SEC-10: whatever stands where the name of a collection is expected, and another tenant's
// collection, get the same body, and only names reach the store, under the caller's tenant.
func TestCollectionNamesSEC10(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.collections.add("b", crawl.Collection{Name: "theirs", Key: "source_url", Facets: []string{"city"}}, 3)
	bodies := map[string][]string{}
	for _, name := range []string{
		"theirs", "none", "../../etc/passwd", "..%2f..%2f", "../", "%2e%2e/", "theirs\x00", "*", "b:theirs", "{b}:theirs", "Theirs", " theirs",
		"theirs ", "theirs\n", "-x", "_x", "..", strings.Repeat("a", 64), strings.Repeat("a", 10_000), "th\u0435irs", "\u202etheirs",
	} {
		for _, route := range []string{
			"GET ", "DELETE ", "GET /items", "GET /items?city=x", "GET /items?nope=x", "DELETE /items?key=https://b.test/1", "GET /analytics",
			"GET /export", "GET /export?format=csv&columns=fields.x",
		} {
			method, suffix, _ := strings.Cut(route, " ")
			a := b.call(method, "/v1/collections/"+name+suffix, "")
			if a.status == http.StatusMethodNotAllowed {
				continue // the name was a path to another route, which has not this method
			}
			p := a.wantProblem(t, 404, crawl.CodeNotFound)
			body := strings.ReplaceAll(a.body, p.RequestID, "")
			bodies[body] = append(bodies[body], name)
		}
	}
	if len(bodies) != 1 {
		t.Errorf("different bodies: %q", sorted(bodies))
	}
	asked := map[string]bool{}
	for _, call := range b.collections.calls {
		tenant, name, _ := strings.Cut(call, " ")
		if asked[name] = true; tenant != "a" || !crawl.ValidCollection(name) {
			t.Errorf("the store was asked for %q", call)
		}
	}
	if !asked["theirs"] || len(b.collections.deleted) > 0 || len(b.collections.all) != 1 {
		t.Errorf("asked for %q, deleted %q", sorted(asked), b.collections.deleted)
	}
	for path, status := range map[string]int{
		"/v1/collections": 405, "/v1/collections/theirs": 405, "/v1/collections/none/items": 405, "/v1/collections/A/items": 404,
		"/v1/collections/none/analytics": 405, "/v1/collections/": 404, "/v1/collections/none/": 404,
	} {
		if a := b.call("PUT", path, ""); a.status != status {
			t.Errorf("PUT %s: %d, want %d", path, a.status, status)
		}
	}
}

// The three forms of an export, and what goes on where it broke off.
func TestExportOfACollection(t *testing.T) {
	t.Parallel()
	b := benchOfJobs(t, 1234)
	items := b.collections.items[[2]string{"a", "jobs"}]
	items[1].Fields, items[2].Title = []byte(`{"late":[1,{"x":"=1"}],"title":null,"ü":1,"-f":"y"}`), "=HYPERLINK(1)"
	items[3].Fields = nil
	get := func(query string) answer {
		t.Helper()
		a := b.call("GET", "/v1/collections/jobs/export"+query, "")
		if a.status != 200 {
			t.Fatalf("%s: %d %s", query, a.status, a.body)
		}
		if h := b.call("HEAD", "/v1/collections/jobs/export"+query, ""); h.status != 200 || h.body != "" ||
			h.header.Get("Content-Type") != a.header.Get("Content-Type") || h.header.Get("Content-Disposition") != a.header.Get("Content-Disposition") {
			t.Errorf("HEAD %s: %d %v", query, h.status, h.header)
		}
		return a
	}
	a := get("")
	var all []collectionItem
	a.decode(t, 200, &all)
	if len(all) != 1234 || all[1233].N != 1234 || all[3].Fields != nil && string(all[3].Fields) != "null" {
		t.Errorf("%d items, the last %+v", len(all), all[len(all)-1])
	}
	for query, want := range map[string][2]string{
		"":               {"application/json", `attachment; filename="jobs.json"`},
		"?format=ndjson": {"application/x-ndjson", `attachment; filename="jobs.ndjson"`},
		"?format=csv":    {csvType, `attachment; filename="jobs.csv"`},
	} {
		if h := get(query).header; h.Get("Content-Type") != want[0] || h.Get("Content-Disposition") != want[1] {
			t.Errorf("%s: %v", query, h)
		}
	}
	// Behind the last line that arrived come exactly the others, whatever the filter.
	whole := strings.SplitAfter(get("?format=ndjson&missing=false").body, "\n")
	var half collectionItem
	if err := json.Unmarshal([]byte(whole[599]), &half); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{fmt.Sprintf("&after=%d", half.N), "&cursor=" + encodeCursor(cursorItems, half.N)} {
		if got := get("?format=ndjson&missing=false" + query).body; got != strings.Join(whole[600:], "") {
			t.Errorf("%s: %d bytes, want %d", query, len(got), len(strings.Join(whole[600:], "")))
		}
	}
	rows := strings.SplitAfter(get("?format=csv&after=1").body, "\r\n")
	if rows[0] != "n,key,source_url,url,title,job_id,created_at,updated_at,seen_at,missing_since,fields.late,fields.title,fields.ü,fields.-f,fields.city,fields.n\r\n" {
		t.Errorf("columns %q", rows[0])
	}
	if !strings.HasSuffix(rows[1], `,,"[1,{""x"":""=1""}]",,1,y,,`+"\r\n") || !strings.Contains(rows[2], ",'=HYPERLINK(1),") ||
		!strings.HasSuffix(rows[3], ",,,,,,,\r\n") || !strings.HasSuffix(rows[4], ",,T5,,,c1,5.50\r\n") {
		t.Errorf("rows %q", rows[1:5])
	}
	if got := get("?format=csv&columns=fields.title,n,fields.nowhere,fields&after=1233").body; got !=
		"fields.title,n,fields.nowhere,fields\r\nT1234,1234,,\"{\"\"title\"\":\"\"T1234\"\",\"\"city\"\":\"\"c0\"\",\"\"n\"\":1234.50}\"\r\n" {
		t.Errorf("chosen columns: %q", got)
	}
	for _, q := range b.collections.queries {
		if q.Limit > exportPage || q.Offset != 0 {
			t.Errorf("the store was asked for %+v", q)
		}
	}
	if got := get("?city=nowhere").body; got != "[]\n" {
		t.Errorf("nothing is %q", got)
	}
}

// An export that fails on the way is cut, and never a whole document; before the first byte
// it is a problem.
func TestExportThatFails(t *testing.T) {
	t.Parallel()
	b := benchOfJobs(t, 1200)
	b.collections.page = func(q store.ItemQuery) error {
		if q.After > 0 {
			return errBroken
		}
		return nil
	}
	for _, format := range []string{"json", "ndjson", "csv"} {
		func() {
			defer func() {
				if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
					t.Errorf("%s: %v", format, err)
				}
			}()
			b.call("GET", "/v1/collections/jobs/export?format="+format, "")
		}()
	}
	b.call("GET", "/v1/collections/jobs/export?after=1", "").wantProblem(t, 500, crawl.CodeInternal)
	b.collections.err = crawl.Faultf(crawl.CodeUnavailable, "away")
	for _, path := range []string{"", "/jobs", "/jobs/items", "/jobs/items?city=x", "/jobs/analytics", "/jobs/export"} {
		b.call("GET", "/v1/collections"+path, "").wantProblem(t, 503, crawl.CodeUnavailable)
	}
}

// The routes over the real store, from a job that fills a collection to its end.
func TestCollectionsOnTheStore(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		w := newWorld(t, r)
		who := w.residents[0]
		at := "/v1/collections/" + who.collection
		get := func(target string) string {
			t.Helper()
			a := w.call("GET", at+target, "", who.as)
			if a.status != 200 {
				t.Fatalf("%s: %d %s", target, a.status, a.body)
			}
			return strings.TrimSpace(strings.ReplaceAll(a.body, who.name, "T"))
		}
		numbers := func(target string) (ns []int64) {
			t.Helper()
			var p itemPage
			if err := json.Unmarshal([]byte(get(target)), &p); err != nil {
				t.Fatal(err)
			}
			for _, it := range p.Items {
				ns = append(ns, it.N)
			}
			return ns
		}
		var c collection
		if err := json.Unmarshal([]byte(get("")), &c); err != nil || c.Key != "id" || c.Total != 3 || fmt.Sprint(c.Facets, c.Numbers) != "[city] [n]" {
			t.Errorf("%+v: %v", c, err)
		}
		for target, want := range map[string][]int64{
			"/items": {1, 2, 3}, "/items?city=city-0": {1, 3}, "/items?city=city-0&city=city-1": nil, "/items?city=none": nil,
			"/items?size=2": {1, 2}, "/items?size=2&page=2": {3}, "/items?after=1": {2, 3}, "/items?missing=true": nil,
			"/items?missing=false&city=city-1": {2}, "/items?page=1000000&size=100": nil,
		} {
			if got := numbers(target); !slices.Equal(got, want) {
				t.Errorf("%s: %d, want %d", target, got, want)
			}
		}
		p := w.call("GET", at+"/items?town=x&size=0", "", who.as).wantProblem(t, 422, crawl.CodeInvalid)
		if got := fmt.Sprint(fieldRules(p)); got != "[town:unknown size:range]" {
			t.Error(got)
		}
		if got := get("/analytics?top_n=1"); got != `{"total":3,"missing":0,"facets":{"city":[{"value":"city-0","count":2}]},`+
			`"distinct":{"city":2},"numbers":{"n":{"count":3,"avg":1,"min":0,"max":2}}}` {
			t.Errorf("analytics are %s", got)
		}
		if got := get("/export?format=csv&columns=key,fields.city,fields.n,title"); got !=
			"key,fields.city,fields.n,title\r\nT-0,city-0,0,of T\r\nT-1,city-1,1,of T\r\nT-2,city-0,2,of T" {
			t.Errorf("a table is %q", got)
		}
		for range 2 {
			w.call("DELETE", at+"/items?key="+who.name+"-0", "", who.as)
		}
		w.call("DELETE", at+"/items?key="+who.name+"-0", "", who.as).wantProblem(t, 404, crawl.CodeNotFound)
		if got := numbers("/items"); !slices.Equal(got, []int64{2, 3}) {
			t.Errorf("without the first: %d", got)
		}
		if a := w.call("DELETE", at, "", who.as); a.status != 204 {
			t.Errorf("%d %s", a.status, a.body)
		}
		for _, target := range []string{"", "/items", "/items?city=x", "/analytics", "/export"} {
			w.call("GET", at+target, "", who.as).wantProblem(t, 404, crawl.CodeNotFound)
		}
	})
}

// The examples of the document are answers that it describes.
func TestExamplesOfCollections(t *testing.T) {
	t.Parallel()
	doc := openAPI(t, newBench(t))
	for _, suffix := range []string{"", "/{name}", "/{name}/items", "/{name}/analytics", "/{name}/export"} {
		at := []string{"paths", "/v1/collections" + suffix, "get", "responses", "200", "content", "application/json"}
		text, err := json.Marshal(doc.at(append(at, "example")...))
		if err != nil || string(text) == "null" {
			t.Errorf("%s has no example: %v", suffix, err)
			continue
		}
		if err := doc.check(string(text), append(at, "schema")...); err != nil {
			t.Errorf("%s: %v in %s", suffix, err, text)
		}
	}
	for _, media := range []string{"application/x-ndjson", "text/csv"} {
		if doc.at("paths", "/v1/collections/{name}/export", "get", "responses", "200", "content", media, "example") == nil {
			t.Errorf("an export as %s has no example", media)
		}
	}
}
