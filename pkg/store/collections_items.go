package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"example.com/trawl/pkg/crawl"
)

// CollectionItem is one item of a collection.
type CollectionItem struct {
	N         int64  // its place in the order of creation; never used again
	Key       string // source_url of the record, or the value of the key field
	SourceURL string
	URL       string
	Title     string
	Fields    json.RawMessage // a JSON object; nil for none
	JobID     string          // of the job that created it or updated it last
	// CreatedAt, UpdatedAt and SeenAt are when the item was recorded first, with another
	// content last, and last at all.
	CreatedAt, UpdatedAt, SeenAt time.Time
	// MissingSince is when the complete re-crawl began that did not see the item any more;
	// zero while there was none.
	MissingSince time.Time
}

// Filter chooses items: those that have a value of a facet.
type Filter = Facet

// ItemQuery asks for items of a collection in the order of their creation.
type ItemQuery struct {
	Tenant, Collection string
	Filters            []Filter // all of them hold; at most [crawl.MaxFacets]
	Missing            *bool    // only items that are missing, or only those that are not; nil for both
	// Offset skips items; with After it is 0.
	Offset int64
	After  int64 // CollectionItem.N of the last item before; 0 for the first
	Limit  int   // 1 to 1000
}

// ItemPage is one page of items. A page can be short although More is set: the work of one call
// is bounded, not the answer.
type ItemPage struct {
	Items []CollectionItem
	// Total is how many items the query matches; -1 where that would take too long to count:
	// with several conditions of which each holds for more than 20,000 items, and with
	// several conditions and After.
	Total int64
	Next  int64 // pass as After to go on
	More  bool
}

const (
	walkLooks = 2000   // items that one script looks at: some 2 ms of Redis
	walkMost  = 20_000 // that one call does
)

// Items reads items of a collection. Faults: not_found; invalid for a filter by what is no
// facet of the collection, and for an Offset where it would take too long to count.
func (s *Store) Items(ctx context.Context, q ItemQuery) (ItemPage, error) {
	if q.Missing != nil || len(q.Filters) > 1 {
		return s.walk(ctx, &q)
	}
	args := []any{q.Collection, q.After, q.Offset, q.Limit}
	for _, f := range q.Filters {
		args = append(args, f.Name, f.Value)
	}
	a, err := s.itemsOf(ctx, collectionItemsScript, &q, args)
	if err != nil {
		return ItemPage{}, err
	}
	p := ItemPage{Total: num(a[2]), More: num(a[3]) == 1, Next: q.After}
	return p, p.add(a[4:])
}

// itemsOf runs a script that reads items, and answers its array or what is wrong with the query.
func (s *Store) itemsOf(ctx context.Context, sc *script, q *ItemQuery, args []any) ([]any, error) {
	a, err := s.one(ctx, sc, []string{rootKey(q.Tenant)}, args...)
	if err != nil {
		return nil, err
	}
	switch str(a[0]) {
	case "none":
		return nil, noCollection(q.Collection)
	case "unknown":
		var def crawl.Collection
		if err := json.Unmarshal([]byte(str(a[1])), &def); err != nil {
			return nil, fmt.Errorf("store: collection %s: %w", q.Collection, err)
		}
		return nil, noFacets(def, q.Filters)
	}
	return a, nil
}

// walk reads items that several conditions hold for, in several short scripts. Where the fewest
// items that one of them holds for can all be looked at, it counts what fits.
func (s *Store) walk(ctx context.Context, q *ItemQuery) (ItemPage, error) {
	p := ItemPage{Total: -1, Next: q.After, More: true}
	count, pass := q.After == 0, q.Offset
	var fit int64
	at := q.After
	for looked := 0; looked < walkMost; looked += walkLooks {
		args := []any{q.Collection, at, walkLooks, pass, q.Limit - len(p.Items), flag(count), missingArg(q.Missing)}
		for _, f := range q.Filters {
			args = append(args, f.Name, f.Value)
		}
		a, err := s.itemsOf(ctx, collectionWalkScript, q, args)
		if err != nil {
			return ItemPage{}, err
		}
		if num(a[2]) > walkMost && q.Offset > 0 {
			return ItemPage{}, tooFar()
		}
		fit += num(a[5])
		pass = max(0, pass-num(a[5]))
		if err := p.add(a[6:]); err != nil {
			return ItemPage{}, err
		}
		at = num(a[3])
		if num(a[4]) == 0 {
			return p.walked(q, count, fit, at), nil
		}
		// What cannot be counted to its end is not counted at all.
		count = count && num(a[2]) <= walkMost
		if !count && len(p.Items) == q.Limit {
			return p, nil
		}
	}
	if q.Offset > 0 {
		return ItemPage{}, tooFar() // others entered meanwhile
	}
	if !count || len(p.Items) < q.Limit {
		p.Next = at
	}
	return p, nil
}

// walked ends a page behind which nothing is left to look at.
func (p ItemPage) walked(q *ItemQuery, count bool, fit, last int64) ItemPage {
	p.More = false
	if !count {
		return p
	}
	p.Total = fit
	p.More = fit > q.Offset+int64(len(p.Items)) && len(p.Items) > 0
	if len(p.Items) == 0 {
		p.Next = last
	}
	return p
}

func missingArg(missing *bool) string {
	if missing == nil {
		return ""
	}
	return strconv.Itoa(flag(*missing))
}

func tooFar() error {
	return &crawl.Fault{
		Code: crawl.CodeInvalid, Message: "To count so many items would take too long.",
		Fields: []crawl.FieldFault{{
			Field: "page", Rule: "max", Message: "With these conditions only the first page has a number. " +
				"Read on with cursor: next_cursor of the page before.",
		}},
	}
}

func noCollection(name string) error {
	return crawl.Faultf(crawl.CodeNotFound, "There is no collection %s.", name)
}

// noFacets names the filters by what is no facet of a collection.
func noFacets(def crawl.Collection, filters []Filter) error {
	f := &crawl.Fault{Code: crawl.CodeInvalid, Message: "The items cannot be chosen by that."}
	has := make(map[string]bool, len(def.Facets))
	for _, name := range def.Facets {
		has[name] = true
	}
	what := "It has no facets."
	if len(def.Facets) > 0 {
		what = "Its facets are " + strings.Join(def.Facets, ", ") + "."
	}
	for _, by := range filters {
		if !has[by.Name] {
			f.Fields = append(f.Fields, crawl.FieldFault{
				Field: by.Name, Rule: "unknown", Message: "The collection " + def.Name + " has no such facet. " + what,
			})
		}
	}
	return f
}

// add decodes items as shown.lua answers them.
func (p *ItemPage) add(rows []any) error {
	for _, r := range rows {
		row, _ := r.([]any)
		if len(row) != 4 {
			return fmt.Errorf("store: an item of %d parts", len(row))
		}
		it, err := decodeItem(num(row[0]), str(row[1]))
		if err != nil {
			return err
		}
		it.SeenAt = time.UnixMilli(num(row[2])).UTC()
		if at := num(row[3]); at > 0 {
			it.MissingSince = time.UnixMilli(at).UTC()
		}
		p.Items, p.Next = append(p.Items, it), it.N
	}
	return nil
}

// decodeItem reads what is kept of an item: created, updated, job, and the rest as JSON.
func decodeItem(n int64, kept string) (CollectionItem, error) {
	head := strings.SplitN(kept, " ", 4)
	if len(head) != 4 {
		return CollectionItem{}, fmt.Errorf("store: item %d is not as it was stored", n)
	}
	var k keptItem
	if err := json.Unmarshal([]byte(head[3]), &k); err != nil {
		return CollectionItem{}, fmt.Errorf("store: item %d: %w", n, err)
	}
	created, _ := strconv.ParseInt(head[0], 10, 64)
	updated, _ := strconv.ParseInt(head[1], 10, 64)
	it := CollectionItem{
		N: n, Key: k.Key, SourceURL: k.SourceURL, URL: k.URL, Title: k.Title, Fields: k.Fields, JobID: head[2],
		CreatedAt: time.UnixMilli(created).UTC(), UpdatedAt: time.UnixMilli(updated).UTC(),
	}
	if it.Key == "" {
		it.Key = k.SourceURL
	}
	if it.URL == "" {
		it.URL = k.SourceURL
	}
	return it, nil
}

// DeleteItem removes one item of a collection. The page that gave it is read in full when it is
// crawled again, and the item comes back if it is still there. Fault: not_found.
func (s *Store) DeleteItem(ctx context.Context, tenant, name, key string) error {
	a, err := s.one(ctx, collectionDeleteItemScript, []string{rootKey(tenant)}, s.now(), name, digest16(key))
	if err != nil {
		return err
	}
	switch num(a[0]) {
	case 1:
		return nil
	case 0:
		return crawl.Faultf(crawl.CodeNotFound, "There is no item with this key in the collection %s.", name)
	case -2:
		return newerCollection(name)
	default:
		return noCollection(name)
	}
}
