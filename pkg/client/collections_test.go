package client_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/client"
)

// Each call about a collection, or about a part of a result, asks what the contract says.
func TestCollectionRequests(t *testing.T) {
	t.Parallel()
	filtered := client.ItemsQuery{
		Where: map[string][]string{"city": {"Köln"}, "skills": {"go", "c & c++"}}, Missing: new(false), After: 7, PageSize: 5,
	}
	csv := text(200, "text/csv", "")
	for _, tt := range []struct {
		want string
		ok   *answer
		make func(context.Context, *client.Client) error
	}{
		{"GET /v1/collections", ok(noPages), func(ctx context.Context, c *client.Client) error {
			return drain(c.Collections(ctx))
		}},
		{"GET /v1/collections/a%2Fb%3F", ok(`{"name":"x"}`), func(ctx context.Context, c *client.Client) error {
			_, err := c.Collection(ctx, "a/b?")
			return err
		}},
		{"GET /v1/collections/jobs/items", ok(noPages), func(ctx context.Context, c *client.Client) error {
			return drain(c.Items(ctx, "jobs", client.ItemsQuery{}))
		}},
		{
			"GET /v1/collections/jobs/items?after=7&city=K%C3%B6ln&missing=false&size=5&skills=go&skills=c+%26+c%2B%2B", ok(noPages),
			func(ctx context.Context, c *client.Client) error { return drain(c.Items(ctx, "jobs", filtered)) },
		},
		{"GET /v1/collections/jobs/items?page=3&size=5", ok(noPages), func(ctx context.Context, c *client.Client) error {
			_, err := c.ItemPage(ctx, "jobs", 3, client.ItemsQuery{PageSize: 5})
			return err
		}},
		{"GET /v1/collections/jobs/items?missing=true&page=0", ok(noPages), func(ctx context.Context, c *client.Client) error {
			_, err := c.ItemPage(ctx, "jobs", 0, client.ItemsQuery{Missing: new(true)}) // the service says what is wrong with 0
			return err
		}},
		{"GET /v1/collections/jobs/analytics?top_n=3", ok(noAnalytics), func(ctx context.Context, c *client.Client) error {
			_, err := c.Analytics(ctx, "jobs", 3)
			return err
		}},
		{
			"GET /v1/collections/jobs/export?after=7&city=K%C3%B6ln&columns=key%2Cfields.city&format=csv&missing=false" +
				"&skills=go&skills=c+%26+c%2B%2B", csv,
			func(ctx context.Context, c *client.Client) error {
				r, err := c.ExportItems(ctx, "jobs", client.CSV, filtered, client.Columns("key", "fields.city"))
				if err == nil {
					err = r.Close()
				}
				return err
			},
		},
		{"GET /v1/jobs/j1/result?after=9&columns=url&format=csv", csv, func(ctx context.Context, c *client.Client) error {
			r, err := c.Result(ctx, "j1", client.CSV, client.Columns("url"), client.After(9))
			if err == nil {
				err = r.Close()
			}
			return err
		}},
		{"DELETE /v1/collections/jobs/items?key=https%3A%2F%2Fsite.test%2F%3Fa%3Db%26c", &answer{status: 204}, func(ctx context.Context, c *client.Client) error {
			return c.DeleteItem(ctx, "jobs", "https://site.test/?a=b&c")
		}},
		{"DELETE /v1/collections/jobs", &answer{status: 204}, func(ctx context.Context, c *client.Client) error {
			return c.DeleteCollection(ctx, "jobs")
		}},
	} {
		s, c := newService(t, tt.ok)
		if err := tt.make(t.Context(), c); err != nil {
			t.Errorf("%s: %v", tt.want, err)
			continue
		}
		if got := s.got()[0].method + " " + s.got()[0].uri; got != tt.want {
			t.Errorf("asked %s\nwant  %s", got, tt.want)
		}
	}
}

// Items are walked by cursor, which has in it where the walk began, and in their order.
func TestItemsAreWalked(t *testing.T) {
	t.Parallel()
	s, c := newService(t,
		ok(`{"items":[{"n":4},{"n":6}],"page":1,"size":20,"total":3,"next_cursor":"a","has_more":true}`),
		ok(`{"items":[],"page":null,"next_cursor":"b","has_more":true}`), // a filter finds nothing for long
		ok(`{"items":[{"n":7}],"page":null,"next_cursor":null,"has_more":false}`),
	)
	var got []int64
	for item, err := range c.Items(t.Context(), "jobs", client.ItemsQuery{After: 3, PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, item.N)
	}
	if !slices.Equal(got, []int64{4, 6, 7}) {
		t.Errorf("%v", got)
	}
	for i, want := range []string{"after=3&size=2", "cursor=a&size=2", "cursor=b&size=2"} {
		if uri := s.got()[i].uri; uri != "/v1/collections/jobs/items?"+want {
			t.Errorf("asked %s", uri)
		}
	}
	_, c = newService(t, ok(`{"items":[{"n":4},{"n":4}],"next_cursor":null,"has_more":false}`))
	if err := drain(c.Items(t.Context(), "jobs", client.ItemsQuery{})); err == nil ||
		!strings.Contains(err.Error(), "item 4 comes behind item 4") {
		t.Error(err)
	}
}

// What cannot be the name of a collection never becomes another path, and what is no facet
// never another parameter.
func TestNoCollection(t *testing.T) {
	t.Parallel()
	s, c := newService(t, ok(noPages))
	ctx := t.Context()
	for _, name := range []string{"", ".", ".."} {
		_, read := c.Collection(ctx, name)
		_, counted := c.Analytics(ctx, name, 1)
		_, paged := c.ItemPage(ctx, name, 1, client.ItemsQuery{})
		_, exported := c.ExportItems(ctx, name, client.CSV, client.ItemsQuery{})
		for _, err := range []error{
			read, counted, paged, exported, c.DeleteCollection(ctx, name), c.DeleteItem(ctx, name, "k"),
			drain(c.Items(ctx, name, client.ItemsQuery{})), drain(c.StreamItems(ctx, name, client.ItemsQuery{})),
		} {
			if !isCode(err, client.CodeNotFound) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	for _, name := range []string{"page", "size", "cursor", "after", "missing", "format", "columns"} {
		q := client.ItemsQuery{Where: map[string][]string{name: {"1"}}}
		if err := drain(c.Items(ctx, "jobs", q)); err == nil || !strings.Contains(err.Error(), "no facet") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(s.got()); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// What the service says of collections is read to its last digit.
func TestCollectionsAreRead(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	const (
		info = `{"name":"jobs","key":"source_url","facets":["city"],"numbers":[],"total":3,"missing":1,
			"created_at":"2026-05-06T07:08:09Z","updated_at":"2026-05-06T07:08:09Z","new":1}`
		item = `{"n":5,"key":"k","source_url":"s","url":"u","title":"t","fields":{"b": 1.50,"a":"x"},"job_id":"j1",
			"created_at":"2026-05-06T07:08:09Z","updated_at":"2026-05-06T07:08:09Z","seen_at":"2026-05-06T07:08:09Z",
			"missing_since":null,"new":1}`
		gone = `{"n":6,"fields":null,"missing_since":"2026-05-06T07:08:09Z"}`
		sums = `{"total":3,"missing":1,"facets":{"city":[{"value":"Köln","count":2}]},"distinct":{"city":9},
			"numbers":{"pay":{"count":2,"avg":123456789012.654321,"min":-0.5,"max":1},"none":{"count":0,"avg":null,"min":null,"max":null}}}`
	)
	get := func(body string) *client.Client {
		_, c := newService(t, ok(body))
		return c
	}
	gotInfo, err := get(info).Collection(t.Context(), "jobs")
	if d := cmp.Diff(&client.CollectionInfo{
		Name: "jobs", Key: "source_url", Facets: []string{"city"}, Numbers: []string{}, Total: 3, Missing: 1,
		CreatedAt: at, UpdatedAt: at, Raw: json.RawMessage(info),
	}, gotInfo); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	first := client.CollectionItem{
		N: 5, Key: "k", SourceURL: "s", URL: "u", Title: "t", Fields: json.RawMessage(`{"b": 1.50,"a":"x"}`), JobID: "j1",
		CreatedAt: at, UpdatedAt: at, SeenAt: at, Raw: json.RawMessage(item),
	}
	page, err := get(`{"items":[`+item+`,`+gone+`],"page":2,"size":20,"total":22,"next_cursor":null,"has_more":false}`).
		ItemPage(t.Context(), "jobs", 2, client.ItemsQuery{})
	if d := cmp.Diff(&client.ItemPage{
		Page: client.Page[client.CollectionItem]{Items: []client.CollectionItem{
			first, {N: 6, MissingSince: at, Raw: json.RawMessage(gone)},
		}},
		Number: 2, Size: 20, Total: new(int64(22)),
	}, page); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	page, err = get(`{"items":[],"page":null,"size":20,"total":null,"next_cursor":"c","has_more":true}`).
		ItemPage(t.Context(), "jobs", 2, client.ItemsQuery{})
	if err != nil || page.Total != nil || page.Number != 0 || page.NextCursor != "c" {
		t.Errorf("%+v, %v", page, err)
	}
	gotSums, err := get(sums).Analytics(t.Context(), "jobs", 0)
	if d := cmp.Diff(&client.Analytics{
		Total: 3, Missing: 1, Facets: map[string][]client.FacetCount{"city": {{Value: "Köln", Count: 2}}},
		Distinct: map[string]int64{"city": 9},
		Numbers: map[string]client.NumberStats{
			"pay": {Count: 2, Avg: "123456789012.654321", Min: "-0.5", Max: "1"}, "none": {},
		},
		Raw: json.RawMessage(sums),
	}, gotSums); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
}

// Fields are decoded into a caller's own type, and their absence is no zero value.
func TestDecodeFields(t *testing.T) {
	t.Parallel()
	type posting struct {
		Title string
		Pay   *float64
	}
	fields := json.RawMessage(`{"title":"Welder","pay":null}`)
	for name, tt := range map[string]struct {
		full, empty, wrong interface{ Decode(any) error }
	}{
		"record 3 (u)": {
			&client.Record{Seq: 3, URL: "u", Fields: fields}, &client.Record{Seq: 3, URL: "u"},
			&client.Record{Seq: 3, URL: "u", Fields: json.RawMessage(`{"title":1}`)},
		},
		"item k": {
			&client.CollectionItem{Key: "k", Fields: fields}, &client.CollectionItem{Key: "k"},
			&client.CollectionItem{Key: "k", Fields: json.RawMessage(`{"title":1}`)},
		},
		"the page": {
			&client.Extraction{Fields: fields}, &client.Extraction{}, &client.Extraction{Fields: json.RawMessage(`{"title":1}`)},
		},
	} {
		var got posting
		if err := tt.full.Decode(&got); err != nil || got.Title != "Welder" || got.Pay != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if err := tt.empty.Decode(&got); err == nil || err.Error() != name+" has no fields" {
			t.Errorf("%s: %v", name, err)
		}
		if err := tt.wrong.Decode(&got); err == nil || !strings.HasPrefix(err.Error(), "fields of "+name+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A page is tried as it is written, and what came of it is read; one that is not there yet is
// told from one that gives nothing.
func TestExtract(t *testing.T) {
	t.Parallel()
	const answer = `{"source_url":null,"url":"u","title":"t","fields":{"a": 1},"items":[{"b":1},{"b":2}],"items_found":3,
		"missing":["fields.c"],"notes":[{"about":"items","what":"cut","count":1}],"markdown":"# a","text":null,"html":null,
		"links":[{"url":"l"}],"metadata":{"title":"m"},"job_id":null,"error":null}`
	s, c := newService(t, ok(answer))
	got, err := c.Extract(t.Context(), client.Extract{
		HTML: "<p>a & b", BaseURL: "https://site.test/", Fields: client.Fields{{Name: "a", Selector: "p"}},
		Items: &client.Items{Selector: "li"}, Formats: []client.ContentFormat{client.ContentMarkdown}, MainContent: true,
	})
	if d := cmp.Diff(&client.Extraction{
		URL: "u", Title: "t", Fields: json.RawMessage(`{"a": 1}`), ItemsFound: 3, Missing: []string{"fields.c"},
		Items: []json.RawMessage{json.RawMessage(`{"b":1}`), json.RawMessage(`{"b":2}`)},
		Notes: []client.Note{{About: "items", What: "cut", Count: 1}}, Markdown: "# a",
		Links: []client.PageLink{{URL: "l"}}, Metadata: &client.Metadata{Title: "m"}, Raw: json.RawMessage(answer),
	}, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	const want = `{"html":"<p>a & b","base_url":"https://site.test/","fields":{"a":{"selector":"p"}},` +
		`"items":{"selector":"li","fields":null},"formats":["markdown"],"main_content":true}`
	if body := strings.TrimSpace(s.got()[0].body); body != want || s.got()[0].method+s.got()[0].uri != "POST/v1/extract" {
		t.Errorf("sent %s", body)
	}
	_, c = newService(t, &answer202)
	if got, err = c.Extract(t.Context(), client.Extract{URL: "https://site.test/"}); err != nil || !got.Pending || got.JobID != "j1" {
		t.Errorf("%+v, %v", got, err)
	}
	_, c = newService(t, ok(`{"source_url":"s","url":"u","job_id":"j1","error":{"error_type":"http_404","status":404,"message":"m"}}`))
	got, err = c.Extract(t.Context(), client.Extract{URL: "https://site.test/"})
	if err != nil || got.Pending || got.Error == nil || *got.Error != (client.ExtractError{ErrorType: "http_404", Status: 404, Message: "m"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

var answer202 = answer{status: 202, media: jsonType, body: `{"job_id":"j1"}`, header: []string{"Location", "/v1/jobs/j1"}}
