package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Fields are the values to take out of a page, in the order in which records have them. In
// JSON they are an object, whose order is kept.
//
//	client.Fields{
//		{Name: "title", Selector: "h1", Required: true},
//		{Name: "tags", Selector: ".tag", Many: true},
//		{Name: "price", Selector: ".price", Type: client.FieldNumber, Locale: "de"},
//	}
type Fields []Field

// Field says what to take from a page, and how to read it. /docs on the service says all of it.
type Field struct {
	Name string `json:"-"` // in the record
	// Selector is a CSS selector, or an XPath 1.0 expression behind "xpath:".
	Selector string    `json:"selector,omitempty"`
	Attr     string    `json:"attr,omitempty"`     // this attribute in place of the text
	Many     bool      `json:"many,omitempty"`     // all matches as a list, and not the first alone
	Required bool      `json:"required,omitempty"` // a page without a value fails with missing_field
	Type     FieldType `json:"type,omitempty"`     // text by default
	Regex    string    `json:"regex,omitempty"`    // RE2; takes the part of the text that the group matches
	Group    Group     `json:"group,omitempty"`    // of Regex, by number or name; by default 1, or the whole match
	// Default stands in where nothing matched: what encoding/json makes a value of the type of
	// the field of. Of a spec that was read it is a [json.RawMessage], which is exact.
	Default any    `json:"default,omitempty"`
	Trim    *bool  `json:"trim,omitempty"`   // new(false) keeps the blanks at both ends
	Locale  string `json:"locale,omitempty"` // how numbers and dates are written, as de or en
	// Expr derives the field from others by an expression (https://expr-lang.org), in place of
	// Selector.
	Expr string `json:"expr,omitempty"`
}

// FieldType is what the value of a field is.
type FieldType string

// The types of a field, and the JSON that they give.
const (
	FieldText    FieldType = "text"    // a string
	FieldNumber  FieldType = "number"  // a number with the decimals that the page has
	FieldInteger FieldType = "integer" // a number without decimals
	FieldDate    FieldType = "date"    // a string: a date, or a time of RFC 3339
	FieldURL     FieldType = "url"     // a string: an absolute URL
	FieldBool    FieldType = "bool"    // true or false
	FieldHTML    FieldType = "html"    // a string: what is inside the element, not made safe
)

// Group is a group of a regular expression: its number, as "2", or its name.
type Group string

// Items says that a page holds several records.
type Items struct {
	Selector string `json:"selector"` // matches one element for each record
	Fields   Fields `json:"fields"`   // are taken from inside of the element
}

// Collection says where the records enter that outlive the job: one item a key. The first
// job that names a collection defines it; later ones may leave all but Name out.
type Collection struct {
	Name    string   `json:"name"`              // 1 to 63 of a-z, 0-9, - and _
	Key     string   `json:"key,omitempty"`     // source_url, the default, or the field that tells items apart
	Facets  []string `json:"facets,omitempty"`  // fields whose values are counted, and by which items are found
	Numbers []string `json:"numbers,omitempty"` // fields whose values are summed up
}

// UnmarshalJSON implements json.Unmarshaler: a string is shorthand for the name.
func (c *Collection) UnmarshalJSON(data []byte) error {
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '"' {
		*c = Collection{}
		return json.Unmarshal(data, &c.Name)
	}
	type plain Collection
	p, err := decodeFresh[plain](data)
	*c = Collection(p)
	return err
}

// MarshalJSON implements json.Marshaler: a number where the group is one.
func (g Group) MarshalJSON() ([]byte, error) {
	if n, err := strconv.Atoi(string(g)); err == nil && strconv.Itoa(n) == string(g) {
		return []byte(g), nil
	}
	return json.Marshal(string(g))
}

// UnmarshalJSON implements json.Unmarshaler.
func (g *Group) UnmarshalJSON(data []byte) error {
	var n int
	if err := json.Unmarshal(data, &n); err == nil && string(data) != "null" {
		*g = Group(strconv.Itoa(n))
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return errors.New("the group of a regex is a number or a name")
	}
	*g = Group(s)
	return nil
}

// MarshalJSON implements json.Marshaler: an object in the order of f.
func (f Fields) MarshalJSON() ([]byte, error) {
	if f == nil {
		return []byte("null"), nil
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, field := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(field.Name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(field)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", field.Name, err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the order of the object, and names that
// are given twice, which the service refuses by name. What this version does not know is ignored.
func (f *Fields) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	start, err := d.Token()
	switch {
	case err != nil:
		return err
	case start == nil:
		*f = nil
		return nil
	case start != json.Delim('{'):
		return errors.New("fields are an object: a name and what to take for each")
	}
	out := Fields{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		var field Field
		if err := d.Decode(&field); err != nil {
			return fmt.Errorf("field %q: %w", token, err)
		}
		field.Name, _ = token.(string) // of an object: always
		out = append(out, field)
	}
	*f = out
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. It keeps a default as it is written.
func (f *Field) UnmarshalJSON(data []byte) error {
	type plain Field
	w := struct {
		*plain

		Default json.RawMessage `json:"default"`
	}{plain: (*plain)(f)}
	*f = Field{}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	if w.Default = orNil(w.Default); w.Default != nil {
		f.Default = w.Default
	}
	return nil
}

// orNil returns a JSON text, and nil for null.
func orNil(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}
