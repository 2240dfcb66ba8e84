package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	collectionsPath = "/v1/collections"
	listCollections = "list collections"
)

// CollectionInfo is a collection as it is: its definition, and what it holds.
type CollectionInfo struct {
	Name      string    `json:"name"`
	Key       string    `json:"key"` // source_url, or the field that tells items apart
	Facets    []string  `json:"facets"`
	Numbers   []string  `json:"numbers"`
	Total     int64     `json:"total"`   // items
	Missing   int64     `json:"missing"` // of them: see [CollectionItem.MissingSince]
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"` // when an item was last created, updated or deleted

	// Raw is the whole as the service sent it, with what this version does not know.
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the whole in Raw.
func (i *CollectionInfo) UnmarshalJSON(data []byte) error {
	type plain CollectionInfo
	p, err := decodeFresh[plain](data)
	*i = CollectionInfo(p)
	i.Raw = bytes.Clone(data)
	return err
}

// CollectionItem is one item of a collection.
type CollectionItem struct {
	N         int64           `json:"n"`   // place in the order of creation; never used again
	Key       string          `json:"key"` // source_url of the record, or the value of the key field
	SourceURL string          `json:"source_url"`
	URL       string          `json:"url"`
	Title     string          `json:"title"`
	Fields    json.RawMessage `json:"fields"` // an object, see [CollectionItem.Decode]; nil for none
	JobID     string          `json:"job_id"` // of the job that created it or updated it last
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"` // when it was recorded last with another content
	SeenAt    time.Time       `json:"seen_at"`    // when a job met it last
	// MissingSince is when the complete re-crawl began that did not see the item any more; zero
	// while there was none.
	MissingSince time.Time `json:"missing_since"`

	// Raw is the whole as the service sent it, with what this version does not know.
	Raw json.RawMessage `json:"-"`
}

// Decode decodes the fields of the item into v, as [json.Unmarshal] does. An item that has
// none is an error.
func (i *CollectionItem) Decode(v any) error {
	return decodeFields("item "+printable(i.Key), i.Fields, v)
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the whole in Raw.
func (i *CollectionItem) UnmarshalJSON(data []byte) error {
	type plain CollectionItem
	p, err := decodeFresh[plain](data)
	*i = CollectionItem(p)
	i.Raw = bytes.Clone(data)
	i.Fields = orNil(i.Fields)
	return err
}

// ItemsQuery selects items of a collection. The zero value selects all.
type ItemsQuery struct {
	// Where are values that facets have, by the name of the facet. All of them hold: two values
	// of one facet find items that have both.
	Where   map[string][]string
	Missing *bool // only items that are missing, or only those that are not; nil for both
	After   int64 // only items behind the one with this [CollectionItem.N]
	// PageSize is how many are read at once, 1 to 100; 0 means the service's default of 20.
	PageSize int
}

// values returns q as it stands in a URL.
func (q *ItemsQuery) values() url.Values {
	query := url.Values{}
	for name, values := range q.Where {
		query[name] = slices.Clone(values)
	}
	if q.Missing != nil {
		query.Set("missing", strconv.FormatBool(*q.Missing))
	}
	if q.After != 0 {
		query.Set("after", strconv.FormatInt(q.After, 10))
	}
	return query
}

// check says what would be asked in another sense than it was meant.
func (q *ItemsQuery) check() error {
	for _, name := range []string{"page", "size", "cursor", "after", "missing", "format", "columns"} {
		if _, ok := q.Where[name]; ok {
			return fmt.Errorf("%q is a parameter of the call, and no facet", name)
		}
	}
	return nil
}

// Collections walks the collections of the tenant by name. An error is the last that it
// yields. Each range over it begins anew.
func (c *Client) Collections(ctx context.Context) iter.Seq2[CollectionInfo, error] {
	return walk(ctx, reading{call: listCollections}, func(cursor string, limit int) (*Page[CollectionInfo], error) {
		return page[CollectionInfo](ctx, c, &request{
			call: listCollections, method: http.MethodGet, path: collectionsPath, query: paging(cursor, limit),
		})
	})
}

// Collection reads what is kept of one collection.
func (c *Client) Collection(ctx context.Context, name string) (*CollectionInfo, error) {
	q, err := ofCollection("read", http.MethodGet, name, "")
	if err != nil {
		return nil, err
	}
	var info CollectionInfo
	err = c.do(ctx, q, func(resp *http.Response) error {
		if err := c.decode(resp, &info); err != nil {
			return err
		}
		if info.Name == "" {
			return c.foreign(resp, info.Raw, "it has no name")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &info, nil
}

// Items walks items of a collection page by page in the order of their creation, as they are
// when each page is read: an item that is created meanwhile comes at the end. An error is the
// last that it yields. Each range over it begins anew. For all of a large collection
// [Client.StreamItems] is faster.
func (c *Client) Items(ctx context.Context, name string, q ItemsQuery) iter.Seq2[CollectionItem, error] {
	r := reading{call: aboutCollection(itemsOf, name), size: q.PageSize}
	return byN.keep(r.call, q.After, walk(ctx, r, func(cursor string, size int) (*Page[CollectionItem], error) {
		p, err := c.itemPage(ctx, name, q, func(query url.Values) {
			if cursor != "" {
				query.Set("cursor", cursor)
				query.Del("after") // it is in the cursor
			}
			if size != 0 {
				query.Set("size", strconv.Itoa(size))
			}
		})
		if err != nil {
			return nil, err
		}
		return &p.Page, nil
	}))
}

// ItemPage is one page of items.
type ItemPage struct {
	Page[CollectionItem]

	Number int    `json:"page"`  // of the page, from 1; 0 where it was reached by a cursor
	Size   int    `json:"size"`  // items that a page has at most
	Total  *int64 `json:"total"` // items that match; nil where it would take too long to count
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *ItemPage) UnmarshalJSON(data []byte) error {
	var w struct {
		Number int    `json:"page"`
		Size   int    `json:"size"`
		Total  *int64 `json:"total"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	p.Number, p.Size, p.Total = w.Number, w.Size, w.Total
	return json.Unmarshal(data, &p.Page)
}

// ItemPage reads one page of items by its number, from 1: for who shows pages to a person.
// Pages of a high number take long, and the service may refuse them; [Client.Items] has no
// such bound. [ItemsQuery.After] goes with no number.
func (c *Client) ItemPage(ctx context.Context, name string, number int, q ItemsQuery) (*ItemPage, error) {
	return c.itemPage(ctx, name, q, func(query url.Values) {
		query.Set("page", strconv.Itoa(number))
		if q.PageSize != 0 {
			query.Set("size", strconv.Itoa(q.PageSize))
		}
	})
}

func (c *Client) itemPage(ctx context.Context, name string, q ItemsQuery, also func(url.Values)) (*ItemPage, error) {
	r, err := ofItems(itemsOf, name, "/items", &q)
	if err != nil {
		return nil, err
	}
	also(r.query)
	var p ItemPage
	if err := c.do(ctx, r, func(resp *http.Response) error { return c.decode(resp, &p) }); err != nil {
		return nil, err
	}
	return &p, nil
}

// ExportItems downloads items of a collection as one document: an array, a line for each, or a
// table. It is as [Client.Result] otherwise; [ItemsQuery.PageSize] does not matter.
func (c *Client) ExportItems(
	ctx context.Context, name string, format Format, q ItemsQuery, options ...DownloadOption,
) (io.ReadCloser, error) {
	r, err := ofItems("export", name, "/export", &q)
	if err != nil {
		return nil, err
	}
	return c.download(ctx, r, format, options)
}

// StreamItems reads items of a collection as one stream, in the order of their creation: what
// reads a million of them holds one at a time. A stream that breaks is taken up behind the
// last item that came, as often as calls are repeated, see [WithRetries]. An error is the last
// that it yields. Each range over it begins anew.
func (c *Client) StreamItems(ctx context.Context, name string, q ItemsQuery) iter.Seq2[CollectionItem, error] {
	call := aboutCollection("export", name)
	return stream(ctx, c, call, byN, q.After, func(ctx context.Context, after int64) (io.ReadCloser, error) {
		q.After = after
		return c.ExportItems(ctx, name, NDJSON, q)
	})
}

// Analytics are what is kept of the values of a collection.
type Analytics struct {
	Total   int64 `json:"total"` // items
	Missing int64 `json:"missing"`
	// Facets has the most frequent values of each facet, and Distinct how many values it has.
	Facets   map[string][]FacetCount `json:"facets"`
	Distinct map[string]int64        `json:"distinct"`
	Numbers  map[string]NumberStats  `json:"numbers"`

	// Raw is the whole as the service sent it, with what this version does not know.
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the whole in Raw.
func (a *Analytics) UnmarshalJSON(data []byte) error {
	type plain Analytics
	p, err := decodeFresh[plain](data)
	*a = Analytics(p)
	a.Raw = bytes.Clone(data)
	return err
}

// FacetCount is a value and the number of items that have it.
type FacetCount struct {
	Value string `json:"value"`
	Count int64  `json:"count"`
}

// NumberStats sum up the values of a number field, exactly as JSON has them. Avg, Min and Max
// are empty when Count is 0.
type NumberStats struct {
	Count int64       `json:"count"` // items that have the number
	Avg   json.Number `json:"avg"`
	Min   json.Number `json:"min"`
	Max   json.Number `json:"max"`
}

// Analytics reads what is kept of the values of a collection: of each facet the most frequent
// values, at most topN, 1 to 1,000; 0 means the service's default of 10.
func (c *Client) Analytics(ctx context.Context, name string, topN int) (*Analytics, error) {
	q, err := ofCollection("read analytics of", http.MethodGet, name, "/analytics")
	if err != nil {
		return nil, err
	}
	if topN != 0 {
		q.query = url.Values{"top_n": {strconv.Itoa(topN)}}
	}
	var a Analytics
	err = c.do(ctx, q, func(resp *http.Response) error {
		if err := c.decode(resp, &a); err != nil {
			return err
		}
		if a.Facets == nil || a.Numbers == nil {
			return c.foreign(resp, a.Raw, "it has no facets or numbers")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &a, nil
}

// DeleteCollection removes a collection and all its items. One that is gone because an earlier
// try of the same call removed it is no error.
func (c *Client) DeleteCollection(ctx context.Context, name string) error {
	q, err := ofCollection("delete", http.MethodDelete, name, "")
	if err != nil {
		return err
	}
	return c.remove(ctx, q)
}

// DeleteItem removes the item with a key, as [Client.DeleteCollection] does. A job that meets
// it later creates it anew.
func (c *Client) DeleteItem(ctx context.Context, name, key string) error {
	q, err := ofCollection("delete an item of", http.MethodDelete, name, "/items")
	if err != nil {
		return err
	}
	q.query = url.Values{"key": {key}}
	return c.remove(ctx, q)
}

// itemsOf names the call in errors.
const itemsOf = "read items of"

// aboutCollection names a call in errors.
func aboutCollection(verb, name string) string { return verb + " collection " + printable(name) }

// ofCollection is a call about one collection.
func ofCollection(verb, method, name, below string) (*request, error) {
	call := aboutCollection(verb, name)
	if name == "" || name == "." || name == ".." { // which would name another path
		return nil, fmt.Errorf("%s: %q is no name of a collection: %w", strings.TrimSpace(call), name, CodeNotFound)
	}
	return &request{call: call, method: method, path: collectionsPath + "/" + url.PathEscape(name) + below}, nil
}

// ofItems is a call about items of a collection.
func ofItems(verb, name, below string, q *ItemsQuery) (*request, error) {
	r, err := ofCollection(verb, http.MethodGet, name, below)
	if err != nil {
		return nil, err
	}
	if err := q.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", r.call, err)
	}
	r.query = q.values()
	return r, nil
}

// remove makes a call that is answered by nothing.
func (c *Client) remove(ctx context.Context, q *request) error {
	err := c.do(ctx, q, func(resp *http.Response) error {
		if resp.StatusCode == http.StatusNoContent {
			return nil
		}
		data, err := c.body(resp, maxProblem)
		if err != nil {
			return err
		}
		return c.foreign(resp, data, "it should have no content")
	})
	if q.lost && (errors.Is(err, CodeNotFound) || errors.Is(err, CodeExpired)) {
		return nil
	}
	return err
}
