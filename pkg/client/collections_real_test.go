package client_test

import (
	"encoding/csv"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/client"
)

// All calls about what comes out of pages, against the whole service.
func TestCollectionsOfTheService(t *testing.T) {
	t.Parallel()
	c, site, stop := start()
	t.Cleanup(stop)
	ctx := t.Context()
	want := client.Spec{
		SeedURL: site + "/", Concurrency: 1, Formats: []client.ContentFormat{client.ContentMarkdown, client.ContentLinks},
		Fields: client.Fields{
			{Name: "name", Selector: "title", Required: true},
			{Name: "first", Selector: "title", Regex: "^(.)(?P<rest>.*)$", Group: "rest", Default: "none"},
			{Name: "size", Expr: "len(name)"},
		},
		ListPages:  []string{"/guide"},
		Collection: &client.Collection{Name: "pages", Key: "source_url", Facets: []string{"first"}, Numbers: []string{"size"}},
	}
	job, err := c.Submit(ctx, want)
	if err != nil {
		t.Fatal(err)
	}
	shown := *job.Spec
	shown.Fields[1].Default = "none" // read as it is in JSON
	if d := cmp.Diff(want, shown); d != "" {
		t.Errorf("-submitted +shown:\n%s", d)
	}
	ended, err := c.Wait(ctx, job.ID)
	if err != nil || ended.Report.Created != 2 || ended.Report.ListPages != 1 || ended.KeptBytes == 0 {
		t.Fatalf("%+v, %v", ended, err)
	}
	var titles []string
	for r, err := range c.StreamRecords(ctx, job.ID, 1) {
		if err != nil || r.Markdown == "" && r.Title != "Terms" && r.Links == nil {
			t.Errorf("%+v, %v", r, err)
		}
		titles = append(titles, r.Title)
	}
	if !slices.Equal(titles, []string{"Guide", "Terms"}) {
		t.Errorf("behind the first: %q", titles)
	}
	checkColumns(t, c, job.ID, site)
	checkCollection(t, c, site)
}

// checkColumns reads some columns of the result behind the first record.
func checkColumns(t *testing.T, c *client.Client, id, site string) {
	t.Helper()
	body, err := c.Result(t.Context(), id, client.CSV, client.Columns("fields.size", "url", "change"), client.After(1))
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	rows, err := csv.NewReader(body).ReadAll()
	want := [][]string{{"fields.size", "url", "change"}, {"", site + "/guide", ""}, {"5", site + "/terms", "created"}}
	if d := cmp.Diff(want, rows); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
}

// checkCollection reads, and removes, what a crawl put into a collection.
func checkCollection(t *testing.T, c *client.Client, site string) {
	t.Helper()
	ctx := t.Context()
	var names []string
	for info, err := range c.Collections(ctx) {
		if err != nil || info.Total != 2 || !slices.Equal(info.Numbers, []string{"size"}) {
			t.Errorf("%+v, %v", info, err)
		}
		names = append(names, info.Name)
	}
	info, err := c.Collection(ctx, "pages")
	if err != nil || info.Key != "source_url" || !slices.Equal(names, []string{"pages"}) {
		t.Errorf("%q, %+v, %v", names, info, err)
	}
	page, err := c.ItemPage(ctx, "pages", 2, client.ItemsQuery{PageSize: 1})
	if err != nil || page.Number != 2 || page.Size != 1 || page.Total == nil || *page.Total != 2 ||
		len(page.Items) != 1 || page.Items[0].Key != site+"/terms" || page.HasMore {
		t.Errorf("%+v, %v", page, err)
	}
	for i, q := range []client.ItemsQuery{
		{PageSize: 1}, {After: 1}, {Where: map[string][]string{"first": {"erms"}}}, {Missing: new(true)}, {Missing: new(false)},
	} {
		var walked, streamed []string
		for item, err := range c.Items(ctx, "pages", q) {
			if walked = append(walked, item.Key); err != nil || item.SeenAt.Before(time.Now().Add(-time.Hour)) {
				t.Errorf("%+v, %v", item, err)
			}
		}
		for item, err := range c.StreamItems(ctx, "pages", q) {
			if streamed = append(streamed, item.Key); err != nil {
				t.Error(err)
			}
		}
		want := [][]string{
			{site + "/", site + "/terms"}, {site + "/terms"}, {site + "/terms"}, nil, {site + "/", site + "/terms"},
		}[i]
		if !slices.Equal(walked, want) || !slices.Equal(streamed, want) {
			t.Errorf("%+v: %q and %q, want %q", q, walked, streamed, want)
		}
	}
	body, err := c.ExportItems(ctx, "pages", client.CSV, client.ItemsQuery{After: 1}, client.Columns("key", "fields.name"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(body)
	body.Close()
	if strings.ReplaceAll(string(text), "\r", "") != "key,fields.name\n"+site+"/terms,Terms\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	sums, err := c.Analytics(ctx, "pages", 1)
	if err != nil || sums.Distinct["first"] != 2 || len(sums.Facets["first"]) != 1 ||
		sums.Numbers["size"] != (client.NumberStats{Count: 2, Avg: "4.5", Min: "4", Max: "5"}) {
		t.Errorf("%s, %v", sums.Raw, err)
	}
	removed := []error{
		c.DeleteItem(ctx, "pages", site+"/terms"), c.DeleteItem(ctx, "pages", site+"/terms"),
		c.DeleteCollection(ctx, "pages"), c.DeleteCollection(ctx, "pages"),
	}
	if removed[0] != nil || !isCode(removed[1], client.CodeNotFound) || removed[2] != nil || !isCode(removed[3], client.CodeNotFound) {
		t.Errorf("%v", removed)
	}
}

// A page is tried as a job would take it, at hand or at its URL.
func TestExtractOfTheService(t *testing.T) {
	t.Parallel()
	c, site, stop := start()
	t.Cleanup(stop)
	what := client.Extract{
		HTML: `<title>T</title><li>a<li>b`, Items: &client.Items{Selector: "li", Fields: client.Fields{{Name: "v", Selector: ":scope"}}},
		Fields: client.Fields{{Name: "gone", Selector: "h1", Required: true}},
	}
	got, err := c.Extract(t.Context(), what)
	if err != nil || got.Title != "T" || got.ItemsFound != 2 || len(got.Items) != 2 || string(got.Items[1]) != `{"v":"b"}` ||
		!slices.Equal(got.Missing, []string{"fields.gone"}) || got.JobID != "" || got.Error != nil {
		t.Errorf("%s, %v", got.Raw, err)
	}
	what.HTML, what.URL, what.Items = "", site+"/guide", nil
	what.Fields = client.Fields{{Name: "to", Selector: "a", Attr: "href", Many: true}}
	got, err = c.Extract(t.Context(), what)
	if err != nil || got.SourceURL != site+"/guide" || got.JobID == "" || got.Error != nil ||
		string(got.Fields) != `{"to":["`+site+`/terms","`+site+`/lost"]}` {
		t.Errorf("%+v, %v", got, err)
	}
	what.URL = site + "/lost"
	got, err = c.Extract(t.Context(), what)
	if err != nil || got.Error == nil || got.Error.ErrorType != "http_404" || got.Error.Status != 404 {
		t.Errorf("%+v, %v", got, err)
	}
	what.Fields = client.Fields{{Name: "a", Selector: "h1["}}
	_, err = c.Extract(t.Context(), what)
	if !isCode(err, client.CodeInvalid) || !strings.Contains(err.Error(), "fields.a.selector") {
		t.Error(err)
	}
}
