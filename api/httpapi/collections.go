package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// collection is one collection of a tenant.
type collection struct {
	Name      string   `json:"name"`
	Key       string   `json:"key" doc:"What tells its items apart: source_url or the name of a field."`
	Facets    []string `json:"facets" nullable:"false" doc:"Fields whose values are counted, and by which items are found."`
	Numbers   []string `json:"numbers" nullable:"false" doc:"Fields whose values are summed up."`
	Total     int64    `json:"total" doc:"Items in it."`
	Missing   int64    `json:"missing" doc:"Of them those that a complete re-crawl did not see any more."`
	CreatedAt string   `json:"created_at" format:"date-time"`
	UpdatedAt string   `json:"updated_at" format:"date-time" doc:"When an item was last created, updated or deleted."`
}

func collectionOf(c *store.CollectionInfo) collection {
	return collection{
		Name: c.Name, Key: c.Key, Facets: append([]string{}, c.Facets...), Numbers: append([]string{}, c.Numbers...),
		Total: c.Total, Missing: c.Missing, CreatedAt: timestamp(c.CreatedAt), UpdatedAt: timestamp(c.UpdatedAt),
	}
}

// collectionItem is one item of a collection.
type collectionItem struct {
	N            int64   `json:"n" doc:"Its place in the order of creation; pass it as after."`
	Key          string  `json:"key" doc:"The value that tells it apart."`
	SourceURL    string  `json:"source_url" doc:"The URL as it was linked."`
	URL          string  `json:"url" doc:"Where it ended, after redirects."`
	Title        string  `json:"title" doc:"Of the page."`
	Fields       values  `json:"fields" doc:"The values by the names of the fields; null where the job asked for none."`
	JobID        string  `json:"job_id" doc:"The job that created it or updated it last."`
	CreatedAt    string  `json:"created_at" format:"date-time"`
	UpdatedAt    string  `json:"updated_at" format:"date-time" doc:"When it was last recorded with another content."`
	SeenAt       string  `json:"seen_at" format:"date-time" doc:"When it was last recorded at all."`
	MissingSince *string `json:"missing_since" format:"date-time" doc:"When the complete re-crawl began that did not see it any more; null while there was none."`
}

func collectionItemOf(it *store.CollectionItem) collectionItem {
	return collectionItem{
		N: it.N, Key: it.Key, SourceURL: it.SourceURL, URL: it.URL, Title: it.Title, Fields: values(it.Fields),
		JobID: it.JobID, CreatedAt: timestamp(it.CreatedAt), UpdatedAt: timestamp(it.UpdatedAt), SeenAt: timestamp(it.SeenAt),
		MissingSince: timeUnlessZero(it.MissingSince),
	}
}

func collectionItemsOf(items []store.CollectionItem) []collectionItem {
	out := make([]collectionItem, len(items))
	for i := range items {
		out[i] = collectionItemOf(&items[i])
	}
	return out
}

// decimal is a number as the store has it, to its last digit; empty for none.
type decimal json.Number

// MarshalJSON writes d as it is, null for none.
func (d decimal) MarshalJSON() ([]byte, error) {
	if d == "" {
		return []byte("null"), nil
	}
	return []byte(d), nil
}

// Schema says that it is a number.
func (decimal) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeNumber, Nullable: true}
}

// itemPage is one page of the items of a collection.
type itemPage struct {
	Items      []collectionItem `json:"items" nullable:"false" doc:"In the order of their creation."`
	Page       *int64           `json:"page" doc:"Which page this is; null behind a cursor or an after."`
	Size       int              `json:"size" doc:"How many items a page has at most."`
	Total      *int64           `json:"total" doc:"How many items the query matches on all pages; null where that would take too long to count."`
	NextCursor *string          `json:"next_cursor" doc:"Pass as cursor to go on; null at the end."`
	HasMore    bool             `json:"has_more" doc:"Whether there is more now. A query with filters may answer less than a page, or no items, and yet has_more: go on with next_cursor."`
}

// analytics are what is known of the values in a collection.
type analytics struct {
	Total    int64                   `json:"total" doc:"Items in it."`
	Missing  int64                   `json:"missing" doc:"Of them those that a complete re-crawl did not see any more. They count in the values."`
	Facets   map[string][]facetCount `json:"facets" doc:"The values of each facet, the most frequent first, and by value where the counts are the same."`
	Distinct map[string]int64        `json:"distinct" doc:"How many values each facet has, also those beyond top_n."`
	Numbers  map[string]numberStats  `json:"numbers" doc:"By the name of the field."`
}

// facetCount is one value of a facet.
type facetCount struct {
	Value string `json:"value"`
	Count int64  `json:"count" doc:"Items that have the value."`
}

// numberStats sum up a number field. Those without a value are null.
type numberStats struct {
	Count int64   `json:"count" doc:"Items that have a number there."`
	Avg   decimal `json:"avg" doc:"null without any."`
	Min   decimal `json:"min" doc:"null without any."`
	Max   decimal `json:"max" doc:"null without any."`
}

func analyticsOf(a *store.Analytics) analytics {
	out := analytics{
		Total: a.Total, Missing: a.Missing, Facets: make(map[string][]facetCount, len(a.Facets)), Distinct: orEmpty(a.Distinct),
		Numbers: make(map[string]numberStats, len(a.Numbers)),
	}
	for name, counts := range a.Facets {
		list := make([]facetCount, len(counts))
		for i, c := range counts {
			list[i] = facetCount(c)
		}
		out.Facets[name] = list
	}
	for name, n := range a.Numbers {
		out.Numbers[name] = numberStats{Count: n.Count, Avg: decimal(n.Avg), Min: decimal(n.Min), Max: decimal(n.Max)}
	}
	return out
}

// collectionRoutes adds the routes of collections.
func (s *Server) collectionRoutes() {
	add := func(id, method, path, summary string, success int, codes ...crawl.Code) huma.Operation {
		op := operation(id, method, path, summary, success, codes...)
		op.Tags = []string{"collections"}
		return op
	}
	const one = "/v1/collections/{name}"
	register(s, add("list-collections", http.MethodGet, "/v1/collections", "List the collections, by name", http.StatusOK,
		crawl.CodeMalformed), s.listCollections)
	register(s, add("get-collection", http.MethodGet, one, "Read what defines a collection, and how much is in it",
		http.StatusOK, crawl.CodeNotFound), s.collection)
	register(s, add("delete-collection", http.MethodDelete, one, "Remove a collection and all its items",
		http.StatusNoContent, crawl.CodeNotFound), s.removeCollection)
	items := add("list-items", http.MethodGet, one+"/items", "Read items of a collection, in the order of their creation",
		http.StatusOK, crawl.CodeMalformed, crawl.CodeNotFound)
	items.Parameters = []*huma.Param{facetParameter()}
	register(s, items, s.items)
	register(s, add("delete-item", http.MethodDelete, one+"/items", "Remove one item of a collection",
		http.StatusNoContent, crawl.CodeNotFound), s.removeItem)
	register(s, add("get-analytics", http.MethodGet, one+"/analytics", "Read which values the items of a collection have",
		http.StatusOK, crawl.CodeNotFound), s.analytics)
	export := add("export-collection", http.MethodGet, one+"/export", "Download all items of a collection, or those that match",
		http.StatusOK, crawl.CodeMalformed, crawl.CodeNotFound)
	export.Parameters = []*huma.Param{facetParameter()}
	register(s, export, s.exportCollection)
}

type listCollectionsInput struct {
	Limit  listLimit `query:"limit"`
	Cursor string    `query:"cursor" doc:"The next_cursor of the page before."`
}

type listCollectionsOutput struct {
	Body page[collection]
}

func (s *Server) listCollections(
	ctx context.Context, x *exchange, in *listCollectionsInput,
) (*listCollectionsOutput, error) {
	p := params{faults: x.query}
	limit, after := p.limit(string(in.Limit), listLimitDefault, listLimitMax), p.collectionCursor(in.Cursor)
	if err := p.err(); err != nil {
		return nil, err
	}
	found, err := s.collections.Collections(ctx, x.tenant, after, limit)
	if err != nil {
		return nil, err
	}
	out := &listCollectionsOutput{Body: page[collection]{
		Items: make([]collection, len(found.Collections)), HasMore: found.More,
	}}
	for i := range found.Collections {
		out.Body.Items[i] = collectionOf(&found.Collections[i])
	}
	if n := len(found.Collections); found.More && n > 0 {
		next := encodeCollection(found.Collections[n-1].Name)
		out.Body.NextCursor = &next
	}
	return out, nil
}

type collectionInput struct {
	Name string `path:"name" doc:"Name of the collection."`
}

type collectionOutput struct {
	Body collection
}

// checkCollection checks the name of a path. What cannot be one names nothing, and never
// becomes part of a key.
func checkCollection(name string) error {
	if !crawl.ValidCollection(name) {
		return crawl.Faultf(crawl.CodeNotFound, "no such collection")
	}
	return nil
}

func (s *Server) collection(ctx context.Context, x *exchange, in *collectionInput) (*collectionOutput, error) {
	if err := checkCollection(in.Name); err != nil {
		return nil, err
	}
	found, err := s.collections.Collection(ctx, x.tenant, in.Name)
	if err != nil {
		return nil, err
	}
	return &collectionOutput{Body: collectionOf(&found)}, nil
}

func (s *Server) removeCollection(ctx context.Context, x *exchange, in *collectionInput) (*deleteOutput, error) {
	if err := checkCollection(in.Name); err != nil {
		return nil, err
	}
	if err := s.collections.DeleteCollection(ctx, x.tenant, in.Name); err != nil {
		return nil, err
	}
	return &deleteOutput{}, nil
}

type removeItemInput struct {
	Name string `path:"name" doc:"Name of the collection."`
	Key  string `query:"key" required:"true" minLength:"1" maxLength:"2048" doc:"The key of the item, with % escapes."`
}

func (s *Server) removeItem(ctx context.Context, x *exchange, in *removeItemInput) (*deleteOutput, error) {
	if err := checkCollection(in.Name); err != nil {
		return nil, err
	}
	p := params{faults: x.query}
	switch n := len(in.Key); {
	case n > crawl.MaxKeyBytes:
		p.add("key", ruleMax, "A key has at most %d bytes, not %d.", crawl.MaxKeyBytes, n)
	case n == 0 && len(p.faults) == 0:
		p.add("key", "required", "Give the key of the item. To remove all of them, delete the collection.")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	if err := s.collections.DeleteItem(ctx, x.tenant, in.Name, in.Key); err != nil {
		return nil, err
	}
	return &deleteOutput{}, nil
}

type analyticsInput struct {
	Name string    `path:"name" doc:"Name of the collection."`
	TopN topValues `query:"top_n"`
}

type analyticsOutput struct {
	Body analytics
}

func (s *Server) analytics(ctx context.Context, x *exchange, in *analyticsInput) (*analyticsOutput, error) {
	if err := checkCollection(in.Name); err != nil {
		return nil, err
	}
	p := params{faults: x.query}
	top := p.number("top_n", string(in.TopN), topValuesDefault, 1, topValuesMax)
	if err := p.err(); err != nil {
		return nil, err
	}
	found, err := s.collections.Analytics(ctx, x.tenant, in.Name, int(top))
	if err != nil {
		return nil, err
	}
	return &analyticsOutput{Body: analyticsOf(&found)}, nil
}

type itemsInput struct {
	Name    string     `path:"name" doc:"Name of the collection."`
	Page    pageNumber `query:"page"`
	Size    pageSize   `query:"size"`
	Cursor  string     `query:"cursor" doc:"The next_cursor of the page before, with the same filters. It takes the place of page and reads on at any depth."`
	After   afterItem  `query:"after"`
	Missing truth      `query:"missing"`
}

func (itemsInput) takesFacets() {}

var itemsNames = []string{"page", "size", "cursor", "after", "missing"}

type itemsOutput struct {
	Body itemPage
}

func (s *Server) items(ctx context.Context, x *exchange, in *itemsInput) (*itemsOutput, error) {
	p := params{faults: x.query}
	q, err := s.itemQuery(ctx, x, &p, in.Name, itemsNames)
	if err != nil {
		return nil, err
	}
	size := p.number("size", string(in.Size), pageSizeDefault, 1, pageSizeMax)
	number := p.number("page", string(in.Page), 1, 1, pageNumberMax)
	q.Limit, q.After, q.Missing = int(size), p.behind(in.Cursor, in.After), p.truth("missing", string(in.Missing))
	paged := in.Cursor == "" && in.After == ""
	if in.Page != "" && !paged {
		p.add("page", "exclusive", "Give page, cursor or after, one of them.")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	if paged {
		q.Offset = (number - 1) * size
	}
	found, err := s.collections.Items(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &itemsOutput{Body: itemPage{Items: collectionItemsOf(found.Items), Size: int(size), HasMore: found.More}}
	if paged {
		out.Body.Page = &number
	}
	if found.Total >= 0 {
		out.Body.Total = &found.Total
	}
	if found.More {
		next := encodeCursor(cursorItems, found.Next)
		out.Body.NextCursor = &next
	}
	return out, nil
}

// itemQuery begins a query: it names the collection and reads the parameters of the request
// that are none of known as facets. Only these need the definition to be read.
func (s *Server) itemQuery(
	ctx context.Context, x *exchange, p *params, name string, known []string,
) (store.ItemQuery, error) {
	q := store.ItemQuery{Tenant: x.tenant, Collection: name}
	if err := checkCollection(name); err != nil {
		return q, err
	}
	values := x.c.Request.URL.Query()
	names := otherNames(values, known)
	if len(names) == 0 {
		return q, nil
	}
	defined, err := s.collections.Collection(ctx, x.tenant, name)
	if err != nil {
		return q, err
	}
	q.Filters = p.filters(values, names, &defined.Collection)
	return q, nil
}

type exportCollectionInput struct {
	Name    string    `path:"name" doc:"Name of the collection."`
	Format  string    `query:"format" enum:"json,ndjson,csv" doc:"json (the default): an array of items. ndjson: an item a line. csv: a table, as that of a job's result."`
	Columns string    `query:"columns" example:"key,source_url,fields.price" doc:"The columns of a csv, in this order: names of an item and fields.NAME for any field, joined by commas; a name that an item has not is an empty cell. Default: all but fields, then a column for each field of the first 500 items, in their order. Name the columns to have the same ones each time."`
	Cursor  string    `query:"cursor" doc:"Goes on where a page of items ended: its next_cursor, with the same filters."`
	After   afterItem `query:"after"`
	Missing truth     `query:"missing"`
}

func (exportCollectionInput) takesFacets() {}

var exportNames = []string{"format", "columns", "cursor", "after", "missing"}

// exportCollection streams items. It is no snapshot: of items that are created meanwhile the
// last are in it, since they stand behind all others.
func (s *Server) exportCollection(ctx context.Context, x *exchange, in *exportCollectionInput) (*exportOutput, error) {
	p := params{faults: x.query}
	q, err := s.itemQuery(ctx, x, &p, in.Name, exportNames)
	if err != nil {
		return nil, err
	}
	q.After, q.Missing, q.Limit = p.behind(in.Cursor, in.After), p.truth("missing", string(in.Missing)), exportPage
	format, of := p.exportFormat(in.Format), tableOf[collectionItem]{others: true, values: fieldsOfItem}
	t := newTable(&p, format, in.Columns, of)
	if err := p.err(); err != nil {
		return nil, err
	}
	first, err := s.collections.Items(ctx, q)
	if err != nil {
		return nil, err
	}
	if format == formatCSV && in.Columns == "" {
		of.names = namesOf(first.Items)
		t = newTable(&p, format, "", of)
	}
	items := s.itemsBehind(ctx, q, first)
	return s.export(x, in.Name, format, func(out *sink) error { return writeRows(out, format, t, items) }), nil
}

func fieldsOfItem(it *collectionItem) json.RawMessage { return json.RawMessage(it.Fields) }

// itemsBehind returns the items of a page that was read, and of those behind it.
func (s *Server) itemsBehind(ctx context.Context, q store.ItemQuery, first store.ItemPage) source[collectionItem] {
	found, begun := first, false
	return func() ([]collectionItem, bool, error) {
		if begun {
			var err error
			q.After = found.Next
			if found, err = s.collections.Items(ctx, q); err != nil {
				return nil, false, err
			}
		}
		begun = true
		rows := collectionItemsOf(found.Items)
		found.Items = nil // their texts are the rows' now
		return rows, found.More, nil
	}
}

// namesOf returns the names of the fields that the items have, in the order in which they are
// met, at most [maxColumns].
func namesOf(items []store.CollectionItem) []string {
	var names []string
	seen := map[string]bool{}
	for i := range items {
		d := json.NewDecoder(bytes.NewReader(items[i].Fields))
		if start, err := d.Token(); err != nil || start != json.Delim('{') {
			continue
		}
		for d.More() {
			token, err := d.Token()
			name, ok := token.(string)
			var value json.RawMessage
			if err != nil || !ok || d.Decode(&value) != nil {
				break
			}
			if !seen[name] && len(names) < maxColumns {
				seen[name], names = true, append(names, name)
			}
		}
	}
	return names
}

// describeCollections completes the document with what the types of the handlers do not say.
func describeCollections(api *huma.OpenAPI, schemas huma.Registry) {
	const one = "/v1/collections/{name}"
	item := schemas.Schema(reflect.TypeFor[collectionItem](), true, "")
	api.Paths[one+"/export"].Get.Responses["200"].Content = map[string]*huma.MediaType{
		"application/json":     {Schema: &huma.Schema{Type: huma.TypeArray, Items: item}, Example: []collectionItem{exampleItem}},
		"application/x-ndjson": {Schema: item, Example: exampleItem},
		"text/csv": {
			Schema:  &huma.Schema{Type: huma.TypeString, Description: "The items, below a header row."},
			Example: "key,fields.title,fields.salary\r\nhttps://example.com/jobs/1,Baker,41000.5\r\n",
		},
	}
	for path, example := range map[string]any{
		"/v1/collections": page[collection]{Items: []collection{exampleCollection}},
		one:               exampleCollection,
		one + "/items": itemPage{
			Items: []collectionItem{exampleItem}, Page: unlessZero(int64(1)), Size: pageSizeDefault, Total: unlessZero(int64(1)),
		},
		one + "/analytics": exampleAnalytics,
	} {
		api.Paths[path].Get.Responses["200"].Content["application/json"].Example = example
	}
	api.Paths["/v1/extract"].Post.Responses["200"].Content["application/json"].Example = exampleExtraction
}

// What the document shows of a collection.
var (
	exampleCollection = collection{
		Name: "jobs", Key: "source_url", Facets: []string{"city"}, Numbers: []string{"salary"}, Total: 1,
		CreatedAt: "2026-01-02T03:04:05.000Z", UpdatedAt: "2026-01-02T03:04:06.000Z",
	}
	exampleItem = collectionItem{
		N: 1, Key: "https://example.com/jobs/1", SourceURL: "https://example.com/jobs/1", URL: "https://example.com/jobs/1",
		Title: "Baker", Fields: values(`{"title":"Baker","city":"Berlin","salary":41000.5}`), JobID: "6ba7b810-9dad-41d1-80b4-00c04fd430c8",
		CreatedAt: "2026-01-02T03:04:06.000Z", UpdatedAt: "2026-01-02T03:04:06.000Z", SeenAt: "2026-01-03T03:04:06.000Z",
	}
	exampleAnalytics = analytics{
		Total: 1, Facets: map[string][]facetCount{"city": {{Value: "Berlin", Count: 1}}}, Distinct: map[string]int64{"city": 1},
		Numbers: map[string]numberStats{"salary": {Count: 1, Avg: "41000.5", Min: "41000.5", Max: "41000.5"}},
	}
)

// promptCollections is [promptJobs] for collections.
type promptCollections struct{ of Collections }

func (p promptCollections) Collections(
	ctx context.Context, tenant, after string, limit int,
) (store.CollectionPage, error) {
	return prompt(ctx, func(ctx context.Context) (store.CollectionPage, error) {
		return p.of.Collections(ctx, tenant, after, limit)
	})
}

func (p promptCollections) Collection(ctx context.Context, tenant, name string) (store.CollectionInfo, error) {
	return prompt(ctx, func(ctx context.Context) (store.CollectionInfo, error) { return p.of.Collection(ctx, tenant, name) })
}

func (p promptCollections) Items(ctx context.Context, q store.ItemQuery) (store.ItemPage, error) {
	return prompt(ctx, func(ctx context.Context) (store.ItemPage, error) { return p.of.Items(ctx, q) })
}

func (p promptCollections) Analytics(ctx context.Context, tenant, name string, topN int) (store.Analytics, error) {
	return prompt(ctx, func(ctx context.Context) (store.Analytics, error) { return p.of.Analytics(ctx, tenant, name, topN) })
}

func (p promptCollections) DeleteItem(ctx context.Context, tenant, name, key string) error {
	_, err := prompt(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.of.DeleteItem(ctx, tenant, name, key)
	})
	return err
}

func (p promptCollections) DeleteCollection(ctx context.Context, tenant, name string) error {
	_, err := prompt(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.of.DeleteCollection(ctx, tenant, name)
	})
	return err
}
