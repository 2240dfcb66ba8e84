package httpapi

import (
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/fields"
)

// What is said in the OpenAPI document of the types of package crawl that a submission has
// below its own fields. Each is the type of package crawl field by field, so that the
// conversions compile only while they are the same.
var (
	_ = crawl.Field(fieldSpec{})
	_ = crawl.Items(itemsSpec{})
	_ = crawl.Collection(collectionSpec{})
)

// describeSpecs tells a registry of schemas how to describe what a submission is made of.
func describeSpecs(r huma.Registry) {
	r.RegisterTypeAlias(reflect.TypeFor[crawl.Fields](), reflect.TypeFor[fieldsSpec]())
	r.RegisterTypeAlias(reflect.TypeFor[crawl.Field](), reflect.TypeFor[fieldSpec]())
	r.RegisterTypeAlias(reflect.TypeFor[crawl.Group](), reflect.TypeFor[groupSpec]())
	r.RegisterTypeAlias(reflect.TypeFor[crawl.Items](), reflect.TypeFor[itemsSpec]())
	r.RegisterTypeAlias(reflect.TypeFor[crawl.Collection](), reflect.TypeFor[collectionRef]())
}

// fieldSpec is crawl.Field.
type fieldSpec struct {
	Selector string          `json:"selector,omitempty" maxLength:"1024" doc:"A CSS selector, or an XPath 1.0 expression behind xpath:. It is required unless expr is given. In CSS, :scope is the item itself, or the root element for a field of the page. At most 1024 bytes."`
	Attr     string          `json:"attr,omitempty" maxLength:"256" doc:"Takes the attribute of this name in place of the text of the element. An element without it is no match."`
	Many     bool            `json:"many,omitempty" default:"false" doc:"Takes all matches, in the order of the page, as a list; else the first that gives a text. Default false."`
	Required bool            `json:"required,omitempty" default:"false" doc:"Makes a page without a value (null, \"\" or []) fail as missing_field, and leaves an item without one out. Default false."`
	Type     crawl.FieldType `json:"type,omitempty" enum:"text,number,integer,date,url,bool,html" doc:"What the value is. number and integer are JSON numbers with the digits of the page, a date is 2024-03-03 or a time of RFC 3339, a url is absolute, html is what is inside of the element, not made safe. What cannot be read as such is null, and a note of the record counts it. Default text; url for an attribute that holds one, such as href; for expr what the expression gives."`
	Regex    string          `json:"regex,omitempty" maxLength:"512" doc:"An RE2 expression that takes a part of the text. A text that it does not match is no match."`
	Group    crawl.Group     `json:"group,omitempty" doc:"The group of regex that is taken, by number or name; 0 is all that matched. Default: 1 if there is one, else 0."`
	Default  json.RawMessage `json:"default,omitempty" doc:"Stands in where nothing matched: a value of the type of the field, a list of them with many. At most 4096 bytes. Not with required. Default null, or [] with many."`
	Trim     *bool           `json:"trim,omitempty" default:"true" doc:"false keeps the blanks at both ends of a text. Default true."`
	Locale   string          `json:"locale,omitempty" doc:"How numbers and dates are written, for example de: 1.234,5. Without it only what means the same everywhere is read."`
	Expr     string          `json:"expr,omitempty" maxLength:"2048" doc:"Derives the field from the others of the record by an expression (expr-lang.org), in place of selector: salary_min * salary_months. Loops and variables are not offered."`
}

// TransformSchema says what of a field only its decoder knows.
func (fieldSpec) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	scalar := []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeNumber}, {Type: huma.TypeBoolean}}
	list := &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{OneOf: scalar}}
	s.Properties["default"].OneOf = append(scalar[:len(scalar):len(scalar)], list)
	for _, l := range fields.Locales {
		s.Properties["locale"].Enum = append(s.Properties["locale"].Enum, l)
	}
	s.AdditionalProperties = false
	return s
}

// fieldsSpec is crawl.Fields, which JSON has as an object.
type fieldsSpec struct{}

// Schema implements huma.SchemaProvider.
func (fieldsSpec) Schema(r huma.Registry) *huma.Schema {
	most := crawl.MaxFields
	return &huma.Schema{
		Type: huma.TypeObject, MaxProperties: &most,
		AdditionalProperties: r.Schema(reflect.TypeFor[fieldSpec](), true, ""),
		Examples: []any{map[string]any{
			"title": map[string]any{"selector": "h1", "required": true},
			"price": map[string]any{"selector": ".price", "type": "number", "locale": "de"},
		}},
	}
}

// groupSpec is crawl.Group.
type groupSpec struct{}

// Schema implements huma.SchemaProvider.
func (groupSpec) Schema(huma.Registry) *huma.Schema {
	zero := 0.0
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeInteger, Minimum: &zero}, {Type: huma.TypeString}}}
}

// itemsSpec is crawl.Items.
type itemsSpec struct {
	Selector string       `json:"selector" maxLength:"1024" doc:"Matches one element for each record, as the selector of a field. Matches inside of another are records, too. A page gives at most 1000; a note of its record says how many more there were."`
	Fields   crawl.Fields `json:"fields" maxProperties:"100" doc:"Values taken from inside of the element; at least one."`
}

// collectionSpec is crawl.Collection.
type collectionSpec struct {
	Name    string   `json:"name" pattern:"^[a-z0-9][a-z0-9_-]{0,62}$" example:"jobs" doc:"Of the collection within its tenant. The first job that names it defines key, facets and numbers; later ones repeat them or leave them out."`
	Key     string   `json:"key,omitempty" maxLength:"64" doc:"What tells items apart: source_url, or a field with one value. Default source_url; with items a field must be named. A record without a value, or with one above 2048 bytes, does not enter."`
	Facets  []string `json:"facets,omitempty" maxItems:"10" doc:"Fields whose values are counted, and by which items are found. Of one item 50 values of 200 bytes each count. Default none."`
	Numbers []string `json:"numbers,omitempty" maxItems:"10" doc:"Fields whose values are summed up: of type number or integer, or derived. They count to 6 decimals and up to 1e12. Default none."`
}

// collectionRef is crawl.Collection as it is decoded: an object, or its name alone.
type collectionRef struct{}

// Schema implements huma.SchemaProvider.
func (collectionRef) Schema(r huma.Registry) *huma.Schema {
	object := r.Schema(reflect.TypeFor[collectionSpec](), true, "")
	name := r.SchemaFromRef(object.Ref).Properties["name"]
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeString, Pattern: name.Pattern, Examples: []any{"jobs"}}, object,
	}}
}

// values are those of a record, a JSON object passed through as it is.
type values json.RawMessage

// MarshalJSON writes v as it is.
func (v values) MarshalJSON() ([]byte, error) {
	if len(v) == 0 {
		return []byte("null"), nil
	}
	return v, nil
}

// UnmarshalJSON reads what was written, for clients in Go.
func (v *values) UnmarshalJSON(data []byte) error {
	*v = append((*v)[:0], data...)
	return nil
}

// Schema implements huma.SchemaProvider.
func (values) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeObject, Nullable: true, AdditionalProperties: true,
		Examples: []any{map[string]any{"title": "A chair", "price": 1234.5, "colours": []string{"red", "green"}}},
	}
}

// note is crawl.Note.
type note struct {
	About string `json:"about" doc:"The field (fields.price, items.fields.price), the format, items, or content for all formats."`
	What  string `json:"what" example:"unparsed" doc:"cut: longer than a bound, and cut or left out. unparsed: values that are not of the type of the field. stopped: the field took too many steps on this page. incomplete: items that lack this required field, left out. no_main_content: it is of the whole page. no_key, duplicate_key, collection_full: why the record is not in the collection. byte_limit: the job keeps all that it may. too_complex: the page would take too much as a tree."`
	Count int    `json:"count,omitempty" doc:"How often; absent where that says nothing."`
}

// link is crawl.PageLink.
type link struct {
	URL     string `json:"url" doc:"Absolute."`
	Text    string `json:"text" doc:"Of the element, as one line."`
	Rel     string `json:"rel" doc:"Of the element, as written; empty for none."`
	InScope bool   `json:"in_scope" doc:"Whether the rules of the job admit it."`
}

// metadata is crawl.Metadata: what is not there is left out.
type metadata struct {
	Title       string              `json:"title,omitempty"`
	Description string              `json:"description,omitempty"`
	Language    string              `json:"language,omitempty"`
	Canonical   string              `json:"canonical,omitempty" doc:"Absolute, as all URLs here."`
	Author      string              `json:"author,omitempty"`
	SiteName    string              `json:"site_name,omitempty"`
	Image       string              `json:"image,omitempty"`
	Icon        string              `json:"icon,omitempty"`
	Published   string              `json:"published,omitempty" doc:"RFC 3339, as modified; left out when it cannot be read."`
	Modified    string              `json:"modified,omitempty"`
	OpenGraph   map[string][]string `json:"open_graph,omitempty" doc:"The values of each property, without og:."`
	Twitter     map[string][]string `json:"twitter,omitempty" doc:"The values of each property, without twitter:."`
	JSONLD      []json.RawMessage   `json:"json_ld,omitempty" doc:"Each JSON-LD script that is JSON."`
	Alternates  []crawl.Alternate   `json:"alternates,omitempty" doc:"The page in other languages (hreflang)."`
	Feeds       []crawl.Feed        `json:"feeds,omitempty"`
}

func notesOf(all []crawl.Note) []note {
	out := make([]note, len(all))
	for i, n := range all {
		out[i] = note(n)
	}
	return out
}

func linksOf(all []crawl.PageLink) []link {
	if all == nil {
		return nil
	}
	out := make([]link, len(all))
	for i, l := range all {
		out[i] = link(l)
	}
	return out
}
