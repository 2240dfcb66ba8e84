package fields

import "example.com/trawl/pkg/crawl"

// What a caller writes is part of a job's spec, and therefore of package crawl; here it has
// short names.
type (
	// Type is what the value of a field is.
	Type = crawl.FieldType
	// Field says what to take from a page, and how to read it.
	Field = crawl.Field
	// NamedField is a field and its name in the record.
	NamedField = crawl.NamedField
	// Fields are the fields of a record.
	Fields = crawl.Fields
	// Items says that a page holds several records.
	Items = crawl.Items
	// Group is a group of a regular expression: a number or a name.
	Group = crawl.Group
)

// The types of a field.
const (
	Text    = crawl.FieldText
	Number  = crawl.FieldNumber
	Integer = crawl.FieldInteger
	Date    = crawl.FieldDate
	URL     = crawl.FieldURL
	Bool    = crawl.FieldBool
	HTML    = crawl.FieldHTML
)

// Bounds of a [Spec].
const (
	MaxFields        = crawl.MaxFields
	MaxSelectorBytes = crawl.MaxSelectorBytes
	MaxRegexBytes    = crawl.MaxRegexBytes
	MaxExprBytes     = crawl.MaxExprBytes
	MaxAttrBytes     = crawl.MaxAttrBytes
	MaxDefaultBytes  = crawl.MaxDefaultBytes
)

// Spec is what a job takes out of its pages: one record of fields, the items, or both.
type Spec struct {
	Fields Fields `json:"fields,omitempty"`
	Items  *Items `json:"items,omitempty"`
}
