package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/trawl/pkg/crawl"
)

// Upsert is one record on its way into the collection of its job.
type Upsert struct {
	// Item is the record: 0 for that of the page, else the place among Accepted.Items, from 1.
	Item int
	// Key of the item, 1 to [crawl.MaxKeyBytes].
	Key string
	// Fingerprint of the content decides between updated and unchanged.
	Fingerprint [16]byte
	// Facets are the values that are counted, each once: at most [crawl.MaxFacetValues] a
	// facet, each of 1 to [crawl.MaxFacetBytes] bytes without NUL.
	Facets []Facet
	// Numbers are those that are summed up, at most one a name, as JSON writes them. A number
	// beyond [crawl.MaxNumberValue] is left out.
	Numbers []Number
}

// Facet is one value of a facet.
type Facet struct{ Name, Value string }

// Number is the value of a number field.
type Number struct {
	Name  string
	Value json.Number
}

// OtherDefinitionError is the error of a submission to a collection that was made with another
// definition than the plan's. Nothing was stored.
type OtherDefinitionError struct{ Existing crawl.Collection }

func (e *OtherDefinitionError) Error() string {
	return "store: collection " + e.Existing.Name + " has another definition"
}

// CollectionInfo is what is kept of a collection.
type CollectionInfo struct {
	crawl.Collection           // its definition
	Total            int64     // items
	Missing          int64     // of them: see CollectionItem.MissingSince
	CreatedAt        time.Time // when the first job defined it
	UpdatedAt        time.Time // when an item was last created, updated or deleted
}

// Analytics are what is kept of the values of a collection.
type Analytics struct {
	Total, Missing int64
	// Facets has the values of each facet, the most frequent first, and by value where the
	// counts are the same.
	Facets map[string][]FacetCount
	// Distinct is how many values each facet has.
	Distinct map[string]int64
	Numbers  map[string]NumberStats
}

// FacetCount is a value and the number of items that have it.
type FacetCount struct {
	Value string
	Count int64
}

// NumberStats sum up the values of a number field. Avg, Min and Max are empty without any.
type NumberStats struct {
	Count         int64
	Avg, Min, Max json.Number
}

// CollectionPage is one page of the collections of a tenant.
type CollectionPage struct {
	Collections []CollectionInfo
	More        bool
}

// Collections lists the collections of a tenant by name, behind the name after. limit is 1 to
// 200.
func (s *Store) Collections(ctx context.Context, tenant, after string, limit int) (CollectionPage, error) {
	a, err := s.one(ctx, collectionListScript, []string{rootKey(tenant)}, after, limit)
	if err != nil {
		return CollectionPage{}, err
	}
	p := CollectionPage{More: num(a[0]) == 1}
	for _, r := range a[1:] {
		c, err := decodeInfo(r)
		if err != nil {
			return CollectionPage{}, err
		}
		p.Collections = append(p.Collections, c)
	}
	return p, nil
}

// Collection reads what is kept of one. Fault: not_found.
func (s *Store) Collection(ctx context.Context, tenant, name string) (CollectionInfo, error) {
	c, _, err := s.readCollection(ctx, tenant, name, 0)
	return c, err
}

// readCollection reads a collection and what is counted of its items.
func (s *Store) readCollection(ctx context.Context, tenant, name string, topN int) (CollectionInfo, []any, error) {
	a, err := s.one(ctx, collectionReadScript, []string{rootKey(tenant)}, name, topN)
	if err != nil {
		return CollectionInfo{}, nil, err
	}
	if len(a) == 0 {
		return CollectionInfo{}, nil, noCollection(name)
	}
	c, err := decodeInfo(a[0])
	return c, a[1:], err
}

// decodeInfo reads info as shown.lua answers it.
func decodeInfo(v any) (CollectionInfo, error) {
	a, _ := v.([]any)
	if len(a) != 6 {
		return CollectionInfo{}, fmt.Errorf("store: a collection of %d parts", len(a))
	}
	c := CollectionInfo{
		CreatedAt: time.UnixMilli(num(a[2])).UTC(), UpdatedAt: time.UnixMilli(num(a[3])).UTC(),
		Total: num(a[4]), Missing: num(a[5]),
	}
	if err := json.Unmarshal([]byte(str(a[1])), &c.Collection); err != nil {
		return CollectionInfo{}, fmt.Errorf("store: collection %s: %w", str(a[0]), err)
	}
	return c, nil
}

// Analytics reads what is kept of the values of a collection, with at most topN values a
// facet (1 to 1000). Fault: not_found.
func (s *Store) Analytics(ctx context.Context, tenant, name string, topN int) (Analytics, error) {
	c, rest, err := s.readCollection(ctx, tenant, name, topN)
	if err != nil {
		return Analytics{}, err
	}
	out := Analytics{
		Total: c.Total, Missing: c.Missing, Facets: map[string][]FacetCount{}, Distinct: map[string]int64{},
		Numbers: map[string]NumberStats{},
	}
	for len(rest) >= 3 && str(rest[0]) != "" {
		values, _ := rest[2].([]any)
		counts := make([]FacetCount, 0, len(values)/2)
		for i := 0; i+1 < len(values); i += 2 {
			counts = append(counts, FacetCount{Value: str(values[i]), Count: -whole(values[i+1])})
		}
		out.Facets[str(rest[0])], out.Distinct[str(rest[0])] = counts, num(rest[1])
		rest = rest[3:]
	}
	for rest = rest[1:]; len(rest) >= 6; rest = rest[6:] {
		n := NumberStats{Count: num(rest[1])}
		if n.Count > 0 {
			n.Avg = average(str(rest[2]), str(rest[3]), n.Count)
			n.Min, n.Max = bound(rest[4]), bound(rest[5])
		}
		out.Numbers[str(rest[0])] = n
	}
	return out, nil
}

// whole reads the score of a member, which is a whole number.
func whole(v any) int64 {
	f, _ := strconv.ParseFloat(str(v), 64)
	return int64(f)
}

// bound reads a number from its member and score, see count_number of items.lua.
func bound(v any) json.Number {
	a, _ := v.([]any)
	if len(a) != 2 {
		return ""
	}
	millionths, _, _ := strings.Cut(str(a[0]), ":")
	m, _ := strconv.ParseInt(millionths, 10, 64)
	return joinNumber(whole(a[1]), m)
}

// average divides a sum, in its two parts, by a count.
func average(high, low string, count int64) json.Number {
	h, _ := new(big.Int).SetString(high, 10)
	l, _ := new(big.Int).SetString(low, 10)
	if h == nil || l == nil {
		return ""
	}
	sum := h.Mul(h, big.NewInt(1_000_000_000))
	sum.Add(sum, l)
	return decimal(new(big.Rat).SetFrac(sum, new(big.Int).Mul(million, big.NewInt(count))))
}

// dropKeys is how many keys one script frees, which it does in the background.
const dropKeys = 1000

// DeleteCollection removes a collection and all its items: at once for who reads, while its keys
// are freed in several calls. Should these be cut short, [Store.Sweep] goes on. A job that
// still runs and names it makes it anew with what it finds from then on. Fault: not_found.
func (s *Store) DeleteCollection(ctx context.Context, tenant, name string) error {
	for first := true; ; first, name = false, "" {
		a, err := s.one(ctx, collectionDeleteScript, []string{rootKey(tenant)}, name, dropKeys)
		switch {
		case err != nil && first:
			return err
		case first && num(a[0]) < 0:
			return newerCollection(name)
		case first && num(a[0]) == 0:
			return noCollection(name)
		case err != nil || num(a[1]) == 0:
			return nil //nolint:nilerr // it is gone: what is left of it is the sweep's
		}
	}
}

// definedAs spells a definition in one form, so that definitions compare whatever their order.
func definedAs(c *crawl.Collection) (string, error) {
	b, err := json.Marshal([]any{c.Key, slices.Sorted(slices.Values(c.Facets)), slices.Sorted(slices.Values(c.Numbers))})
	return string(b), err
}

// collectionArg encodes where the records of a job enter as create.lua reads it; empty for
// nowhere.
func collectionArg(p *crawl.Plan) ([]byte, error) {
	if p.Collection == nil {
		return []byte{}, nil
	}
	form, err := definedAs(p.Collection)
	if err != nil {
		return nil, fmt.Errorf("store: collection: %w", err)
	}
	def, err := json.Marshal(p.Collection)
	if err != nil {
		return nil, fmt.Errorf("store: collection: %w", err)
	}
	return json.Marshal(map[string]any{
		"name": p.Collection.Name, "form": form, "def": string(def), "series": p.Series, "max_items": max(0, p.MaxItems),
	})
}

// otherDefinition is the error of a submission to a collection that is defined as def says.
func otherDefinition(name, def string) error {
	e := new(OtherDefinitionError)
	if err := json.Unmarshal([]byte(def), &e.Existing); err != nil {
		return fmt.Errorf("store: collection %s: %w", name, err)
	}
	return e
}

// newerCollection is the fault of a call that would have to know what a newer format keeps.
func newerCollection(name string) error {
	return crawl.Faultf(crawl.CodeWrongState, "Collection %q is kept by a newer version of this service than the one "+
		"that answers. Update that, or ask again.", name)
}

func tooManyCollections(most int64) error {
	return &crawl.Fault{
		Code: crawl.CodeInvalid, Message: "The job cannot be accepted. Mend each of the fields named in errors.",
		Fields: []crawl.FieldFault{{
			Field: "collection.name", Rule: "max",
			Message: fmt.Sprintf("There are %d collections already, and no more may be. Use one of them, or delete one.", most),
		}},
	}
}
