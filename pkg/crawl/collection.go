package crawl

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a [Collection].
const (
	MaxFacets      = 10  // of one collection
	MaxNumbers     = 10  // of one collection
	MaxFacetValues = 50  // of one facet of one item; more are not counted, and a note says so
	MaxFacetBytes  = 200 // of one value of a facet; a longer one is cut
	MaxKeyBytes    = 2048
	MaxCollections = 1000 // of one tenant
	KeySourceURL   = "source_url"
	MaxNumberValue = 1e12 // a number beyond it, or below its negative, is not counted
	NumberDecimals = 6    // that count
)

// Change is what a record did to a collection.
type Change string

// The changes.
const (
	Created   Change = "created"   // its key is new
	Updated   Change = "updated"   // the item of its key had another content
	Unchanged Change = "unchanged" // the item of its key had the same content, or the site says so (304)
)

// Collection says where the records of a job enter that outlive it: one item a key, kept
// across the jobs of a tenant. The first job that names a collection defines it.
type Collection struct {
	// Name is that of the collection within its tenant: 1 to 63 of a-z, 0-9, - and _, the
	// first a letter or digit.
	Name string `json:"name"`
	// Key is what tells items apart: [KeySourceURL] or the name of a field. Default
	// source_url; with Items a field must be named.
	Key string `json:"key,omitempty"`
	// Facets are fields whose values are counted, and by which items are found: at most
	// [MaxFacets].
	Facets []string `json:"facets,omitempty"`
	// Numbers are fields whose values are summed up: at most [MaxNumbers], of type number or
	// integer, or derived.
	Numbers []string `json:"numbers,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler: a string is shorthand for its name.
func (c *Collection) UnmarshalJSON(data []byte) error {
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '"' {
		*c = Collection{}
		return json.Unmarshal(data, &c.Name)
	}
	type plain Collection
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(c))
}

// Adopt fills in what c leaves open from the definition that its collection has. It answers
// the names of what c says otherwise: key, facets, numbers; nil for none.
func (c *Collection) Adopt(existing Collection) (differs []string) {
	if c.Key == "" {
		c.Key = existing.Key
	}
	if c.Facets == nil {
		c.Facets = existing.Facets
	}
	if c.Numbers == nil {
		c.Numbers = existing.Numbers
	}
	if c.Key != existing.Key {
		differs = append(differs, "key")
	}
	if !sameNames(c.Facets, existing.Facets) {
		differs = append(differs, "facets")
	}
	if !sameNames(c.Numbers, existing.Numbers) {
		differs = append(differs, "numbers")
	}
	return differs
}

// sameNames reports whether two lists have the same names, in whatever order.
func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

var collectionForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ValidCollection reports whether s can name a collection. Nothing else may reach a key name.
func ValidCollection(s string) bool { return collectionForm.MatchString(s) }

// FacetValue returns a value of a facet as it is counted, "" for one that is not, and whether
// [MaxFacetBytes] cut it. Whoever filters by a value as the page has it finds the items that
// were counted under it.
func FacetValue(s string) (value string, cut bool) {
	s = strings.TrimSpace(strings.ReplaceAll(s, "\x00", ""))
	if len(s) <= MaxFacetBytes {
		return s, false
	}
	end := MaxFacetBytes
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.TrimSpace(s[:end]), true
}

// Report is what a job found for the collections of its tenant.
type Report struct {
	ListPages    int64 `json:"list_pages"`    // accepted pages that match list_pages, or that gave items
	Created      int64 `json:"created"`       // items whose key was new
	Updated      int64 `json:"updated"`       // items with another content than before
	Unchanged    int64 `json:"unchanged"`     // items seen again as they were
	NotCollected int64 `json:"not_collected"` // records without a key, or for which the collection had no room
	Missing      int64 `json:"missing"`       // items that an earlier crawl of the same inputs saw last and this one did not
}

// reservedFacets are query parameters of the items of a collection.
var reservedFacets = []string{"page", "size", "cursor", "after", "key", "missing", "format", "columns", "top_n"}

func (c *checked) checkCollection(s *Spec) {
	if s.Collection == nil {
		return
	}
	col := *s.Collection
	switch {
	case col.Name == "":
		c.fault("collection.name", "required", "Name the collection that the records enter.")
	case !ValidCollection(col.Name):
		c.fault("collection.name", "pattern",
			"A collection has 1 to 63 of a-z, 0-9, - and _, the first a letter or digit.")
	}
	given := s.Fields
	if s.Items != nil {
		given = s.Items.Fields
	}
	switch f, ok := given.Get(col.Key); {
	case col.Key == "" && s.Items == nil, col.Key == KeySourceURL && s.Items == nil:
	case col.Key == "" || col.Key == KeySourceURL:
		c.fault("collection.key", "required", "A page gives several items. Name the field that tells them apart.")
	case !ok:
		c.fault("collection.key", "unknown", "There is no field %q. Give source_url or one of the fields.", clip(col.Key))
	case f.Many:
		c.fault("collection.key", "type", "The field %s has many values. A key has one.", col.Key)
	}
	c.checkNames("collection.facets", col.Facets, MaxFacets, given, func(name string, f Field) string {
		switch {
		case slices.Contains(reservedFacets, name):
			return "This is the name of a parameter by which items are read. Give the field another name."
		case f.Type == FieldHTML:
			return "A facet is no HTML. Give a field of another type."
		}
		return ""
	})
	c.checkNames("collection.numbers", col.Numbers, MaxNumbers, given, func(_ string, f Field) string {
		if f.Many || f.Type != FieldNumber && f.Type != FieldInteger && (f.Expr == "" || f.Type != "") {
			return "Only one number can be summed up: a field of type number or integer that is not many."
		}
		return ""
	})
	if col.Key == "" && s.Items == nil {
		col.Key = KeySourceURL
	}
	c.plan.Collection, c.plan.MaxItems = &col, c.limits.MaxItems
}

// checkNames checks a list of names of fields.
func (c *checked) checkNames(list string, names []string, most int, given Fields, wrong func(string, Field) string) {
	if len(names) > most {
		c.fault(list, "max", "Give at most %d, not %d.", most, len(names))
		return
	}
	for i, name := range names {
		f, ok := given.Get(name)
		switch {
		case slices.Contains(names[:i], name):
			c.fault(index(list, i), "duplicate", "This is given more than once. Give it once.")
		case !ok:
			c.fault(index(list, i), "unknown", "There is no field %q. Give one of the fields of the records.", clip(name))
		default:
			if message := wrong(name, f); message != "" {
				c.fault(index(list, i), "type", "%s", message)
			}
		}
	}
}

func index(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// series names what a plan crawls: its inputs, whatever their order, and the rules by which
// links of them are followed. With other rules fewer pages may be seen, and what those had is
// not missing.
func series(p *Plan, inputs []Input) string {
	urls := make([]string, 0, len(inputs))
	for _, in := range inputs {
		urls = append(urls, in.URL.String())
	}
	slices.Sort(urls)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %t %q %d %q %q %q %q %t",
		urls, p.Site, p.Scope, p.MaxDepth, p.Include, p.Exclude, p.Sitemap, p.DropParams, p.SortParams))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}
