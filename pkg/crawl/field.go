package crawl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of [Fields].
const (
	MaxFields        = 100  // of the page and of the items together
	MaxSelectorBytes = 1024 // with xpath:
	MaxRegexBytes    = 512
	MaxExprBytes     = 2048
	MaxAttrBytes     = 256
	MaxDefaultBytes  = 4096
)

// FieldType is what the value of a field is.
type FieldType string

// The types of a field.
const (
	// FieldText is the default. It gives a string.
	FieldText FieldType = "text"
	// FieldNumber gives a JSON number with the decimals that the page has.
	FieldNumber FieldType = "number"
	// FieldInteger gives a JSON number without decimals, exact at any size up to 64 digits.
	FieldInteger FieldType = "integer"
	// FieldDate gives a date (2024-03-03) or a date with time and zone, both of RFC 3339. A time
	// without a zone is taken as UTC.
	FieldDate FieldType = "date"
	// FieldURL gives an absolute http or https URL, without its fragment. It is the default of a
	// field whose attr holds a URL, such as href and src.
	FieldURL FieldType = "url"
	// FieldBool gives true or false.
	FieldBool FieldType = "bool"
	// FieldHTML gives what is inside the element, as received but for what the parser mended. It is
	// not made safe: a page can put a script there.
	FieldHTML FieldType = "html"
)

// Field says what to take from a page, and how to read it.
type Field struct {
	// Selector is a CSS selector, or an XPath 1.0 expression behind "xpath:". In CSS, :scope is
	// the item itself, or the root element for a field of the page. At most [MaxSelectorBytes].
	Selector string `json:"selector,omitempty"`
	// Attr takes the attribute of this name in place of the text. An element without it is no
	// match; one where it is empty is.
	Attr string `json:"attr,omitempty"`
	// Many takes all matches, in the order of the page, as a list; else the first one counts that
	// gives a text: one without the attribute, or that Regex does not match, is passed over.
	Many bool `json:"many,omitempty"`
	// Required makes a page without a value (null, "" or []) fail.
	Required bool `json:"required,omitempty"`
	// Type is [FieldText] by default; for a derived field it is what the expression gives.
	Type FieldType `json:"type,omitempty"`
	// Regex, in the syntax of RE2, takes a part of the text: what the group matches. A text that
	// it does not match is no match. At most [MaxRegexBytes].
	Regex string `json:"regex,omitempty"`
	// Group is the group of Regex that is taken, by number or name. By default it is 1 if there
	// is one, and else the whole match.
	Group Group `json:"group,omitempty"`
	// Default stands in where nothing matched. It is of the type of the field.
	Default json.RawMessage `json:"default,omitempty"`
	// Trim false keeps the blanks at both ends.
	Trim *bool `json:"trim,omitempty"`
	// Locale says how numbers and dates are written: one of [Locales]. Without it only what
	// means the same everywhere is read.
	Locale string `json:"locale,omitempty"`
	// Expr derives the field from the others by an expression (https://expr-lang.org). It takes
	// the place of Selector. Loops and variables are not offered. At most [MaxExprBytes].
	Expr string `json:"expr,omitempty"`
}

// NamedField is a field and its name in the record.
type NamedField struct {
	Name string
	Field
}

// Fields are the fields of a record. In JSON they are an object, whose order is kept.
type Fields []NamedField

// Items says that a page holds several records.
type Items struct {
	// Selector matches one element for each record. Matches inside of another are records, too.
	Selector string `json:"selector"`
	// Fields are taken from inside of the element.
	Fields Fields `json:"fields"`
}

// Group is a group of a regular expression: a number or a name. In JSON both a number and a
// string are taken.
type Group string

// MarshalJSON implements json.Marshaler.
func (g Group) MarshalJSON() ([]byte, error) {
	if n, err := strconv.Atoi(string(g)); err == nil && strconv.Itoa(n) == string(g) {
		return []byte(g), nil
	}
	return json.Marshal(string(g))
}

var errGroup = Faultf(CodeInvalid, "Give the number or the name of a group of the expression.")

// UnmarshalJSON implements json.Unmarshaler. The error is a [*Fault] with [CodeInvalid].
func (g *Group) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil // by convention
	}
	var n int
	if err := json.Unmarshal(data, &n); err == nil {
		*g = Group(strconv.Itoa(n))
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return errGroup
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
		value, err := json.Marshal(field.Field)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the order of the object, and refuses what a
// [Field] does not have. Names that are given twice are kept, for whoever compiles them to name.
func (f *Fields) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	start, err := d.Token()
	if err != nil {
		return err
	}
	if start == nil {
		*f = nil
		return nil
	}
	if start != json.Delim('{') {
		return errors.New("fields is an object: a name and what to take for each field")
	}
	out := Fields{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // of an object: always
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		named := NamedField{Name: name}
		strict := json.NewDecoder(bytes.NewReader(raw))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&named.Field); err != nil {
			return fmt.Errorf("field %q: %w", name, err)
		}
		out = append(out, named)
	}
	*f = out
	return nil
}

// sorted returns f in the order of the names, which makes no difference to what is taken.
func (f Fields) sorted() Fields {
	out := slices.Clone(f)
	slices.SortStableFunc(out, func(a, b NamedField) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Get returns the field of a name.
func (f Fields) Get(name string) (Field, bool) {
	for _, named := range f {
		if named.Name == name {
			return named.Field, true
		}
	}
	return Field{}, false
}
