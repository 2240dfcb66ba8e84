package httpapi

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// Parameters of the items of a collection that are numbers or truth values. As [listLimit]
// they are taken as the strings they are, and documented as what they should be.
type (
	pageNumber string
	pageSize   string
	afterItem  string
	topValues  string
	truth      string
)

// Bounds of these parameters.
const (
	pageSizeDefault, pageSizeMax   = 20, 100
	topValuesDefault, topValuesMax = 10, 1000
	// pageNumberMax is far beyond where the store still skips items.
	pageNumberMax = 1_000_000
)

// Schema documents the parameter.
func (pageNumber) Schema(huma.Registry) *huma.Schema {
	s := limitSchema(1, pageNumberMax)
	s.Description = "Which page, from 1. Far into a large collection it is refused: go on with cursor there."
	return s
}

// Schema documents the parameter.
func (pageSize) Schema(huma.Registry) *huma.Schema { return limitSchema(pageSizeDefault, pageSizeMax) }

// Schema documents the parameter.
func (topValues) Schema(huma.Registry) *huma.Schema {
	s := limitSchema(topValuesDefault, topValuesMax)
	s.Description = "How many values of each facet, the most frequent first."
	return s
}

// Schema documents the parameter.
func (afterItem) Schema(huma.Registry) *huma.Schema {
	least := 0.0
	return &huma.Schema{
		Type: huma.TypeInteger, Minimum: &least,
		Description: "Only items behind this n: to go on where an earlier reading ended. Excludes cursor.",
	}
}

// Schema documents the parameter.
func (truth) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeBoolean, Description: "true: only items that are missing; false: only those that are not. Both by default.",
	}
}

// number reads a whole number from least to most.
func (p *params) number(field, s string, def, least, most int64) int64 {
	if s == "" {
		return def
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err != nil && strings.Trim(s, "0123456789") != "":
		p.add(field, ruleType, "Give a whole number.")
	case err != nil || n < least || n > most:
		p.add(field, ruleRange, "Give a number from %d to %d.", least, most)
	}
	return n
}

// truth reads true or false; nil for neither of them.
func (p *params) truth(field, s string) *bool {
	switch s {
	case "":
		return nil
	case "true", "false":
		yes := s == "true"
		return &yes
	}
	p.add(field, ruleType, "Give true or false.")
	return nil
}

// behind reads where a list of items goes on: by a cursor, or by the number of an item.
func (p *params) behind(cursor string, after afterItem) int64 {
	n := p.number("after", string(after), 0, 0, 1<<53)
	if cursor == "" {
		return n
	}
	if after != "" {
		p.add("after", "exclusive", "Give cursor or after, not both.")
	}
	return p.cursor(cursorItems, cursor)
}

// takesFacets is an input whose query has the facets of a collection besides its own
// parameters. Which these are is known only with the collection.
type takesFacets interface{ takesFacets() }

// fixedQueryFaults is [queryFaults] without what it says about names that are not known.
func fixedQueryFaults(raw string, known []string) []crawl.FieldFault {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return queryFaults(raw, known)
	}
	for name := range values {
		if !slices.Contains(known, name) {
			delete(values, name)
		}
	}
	return queryFaults(values.Encode(), known)
}

// facetParameter documents all parameters that are facets.
func facetParameter() *huma.Param {
	explode := true
	return &huma.Param{
		Name: "facets", In: "query", Style: "form", Explode: &explode,
		Description: "A parameter for each facet of the collection, by its name: only items that have this value, " +
			"as city=Berlin. One that is given twice, or two of them, hold together. No other names are taken.",
		Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{
			OneOf: []*huma.Schema{
				{Type: huma.TypeString},
				{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}},
			},
		}},
	}
}

// otherNames returns the names of a query that are not known, in order.
func otherNames(values url.Values, known []string) []string {
	var names []string
	for name := range values {
		if !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// filters reads the parameters of the given names, each of which must be a facet of c.
func (p *params) filters(values url.Values, names []string, c *crawl.Collection) []store.Filter {
	var filters []store.Filter
	for i, name := range names {
		if !slices.Contains(c.Facets, name) {
			if i == maxFaults {
				p.add("query", crawl.RuleMoreFaults, "There are more parameters with faults. Mend these first.")
				return nil
			}
			p.add(shownName(name), ruleUnknown, "This is neither a parameter here nor a facet of the collection. %s", facetsOf(c))
			continue
		}
		for _, value := range values[name] {
			f := store.Filter{Name: name}
			f.Value, _ = crawl.FacetValue(value)
			if f.Value != "" && !slices.Contains(filters, f) {
				filters = append(filters, f)
			}
		}
	}
	if n := len(filters); n > crawl.MaxFacets {
		p.add("query", ruleMax, "Give at most %d values of facets, not %d.", crawl.MaxFacets, n)
	}
	return filters
}

func facetsOf(c *crawl.Collection) string {
	if len(c.Facets) == 0 {
		return "It has none."
	}
	return "Its facets are " + strings.Join(c.Facets, ", ") + "."
}

// Kinds of cursor of collections. That of their list has a name behind it.
const (
	cursorCollections = 'c'
	cursorItems       = 'i'
)

func encodeCollection(name string) string {
	return cursorEncoding.EncodeToString(append([]byte{cursorCollections}, name...))
}

// collectionCursor returns the name that a cursor of the list of collections stands for.
func (p *params) collectionCursor(s string) string {
	if s == "" {
		return ""
	}
	b, err := cursorEncoding.DecodeString(s)
	// The decoder skips line breaks, so that a name could have several cursors: length again.
	if err != nil || len(b) == 0 || b[0] != cursorCollections || len(s) != cursorEncoding.EncodedLen(len(b)) ||
		!crawl.ValidCollection(string(b[1:])) {
		p.badCursor = true
		p.add("cursor", ruleFormat, "This is not a next_cursor of this list. Begin again without one.")
		return ""
	}
	return string(b[1:])
}
