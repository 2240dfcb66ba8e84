package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// csvType is the media type of a table, RFC 4180 section 3.
const csvType = "text/csv; charset=utf-8; header=present"

// fieldsPrefix begins the columns of the values taken out of a page: fields.title.
const fieldsPrefix = "fields."

// maxColumns bounds the columns that a table can be asked for.
const maxColumns = 200

// table writes rows of type R as CSV: RFC 4180, with a header row, and a null as an empty
// cell. Its columns are fields of R by their names in JSON, and fields.NAME for values taken
// out of a page.
//
// encoding/csv is not used: with the line ends of RFC 4180 it changes those within cells,
// too.
type table[R any] struct {
	columns []tableColumn
	values  func(*R) json.RawMessage
	taken   map[string]json.RawMessage // the values of the row, by name
	row     []byte
}

// tableColumn is one of a table.
type tableColumn struct {
	name  string
	index int    // of a field of the row, if there is no value
	value string // the name of a value
	asked bool   // only when it is asked for
}

// tableOf says what columns a table over rows of type R may have.
type tableOf[R any] struct {
	// names are those of the values, a column for each of which stands behind those of R by default.
	names []string
	// others lets a caller name other values, too.
	others bool
	// values answers the values of a row: a JSON object, or nothing or null for none.
	values func(*R) json.RawMessage
}

// columnsOf returns the columns of a type of rows, in their order in JSON. Those that are lists
// or objects, or tagged csv:"asked", are there when they are asked for.
func columnsOf(t reflect.Type) []tableColumn {
	all := make([]tableColumn, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		c := tableColumn{name: jsonName(f), index: i, asked: true}
		switch of.Kind() {
		case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
			c.asked = f.Tag.Get("csv") == "asked"
		}
		all = append(all, c)
	}
	return all
}

// newTable makes the table that is asked for: chosen is the parameter columns, names joined by
// commas, "" for those that stand in by default. Other formats than csv have no columns.
func newTable[R any](p *params, format, chosen string, of tableOf[R]) *table[R] {
	t := &table[R]{values: of.values, taken: map[string]json.RawMessage{}}
	known := columnsOf(reflect.TypeFor[R]())
	values := make([]tableColumn, 0, len(of.names))
	for _, name := range of.names {
		values = append(values, tableColumn{name: fieldsPrefix + name, value: name})
	}
	if chosen == "" {
		for _, c := range known {
			if !c.asked {
				t.columns = append(t.columns, c)
			}
		}
		t.columns = append(t.columns, values...)
		return t
	}
	if format != formatCSV {
		p.add("columns", "exclusive", "Only a table has columns. Ask for format=csv, too, or leave columns out.")
		return t
	}
	known = append(known, values...)
	names := strings.Split(chosen, ",")
	if len(names) > maxColumns {
		p.add("columns", ruleMax, "Give at most %d columns, not %d.", maxColumns, len(names))
		return t
	}
	for i, name := range names {
		at := slices.IndexFunc(known, func(c tableColumn) bool { return c.name == name })
		value, isValue := strings.CutPrefix(name, fieldsPrefix)
		switch {
		case slices.Contains(names[:i], name):
			p.add("columns", ruleDuplicate, "%q is given more than once. Give it once.", clip(name))
		case at >= 0:
			t.columns = append(t.columns, known[at])
		case of.others && isValue && valueName.MatchString(value):
			t.columns = append(t.columns, tableColumn{name: name, value: value})
		default:
			p.add("columns", ruleUnknown, "There is no column %q. The columns are %s.", clip(name), shownColumns(known))
		}
	}
	return t
}

// valueName is the form of the names of fields, see package fields.
var valueName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// shownColumns lists the columns that there are. Behind the first of many nobody reads on.
func shownColumns(known []tableColumn) string {
	const most = 40
	names := make([]string, 0, most+1)
	for _, c := range known[:min(len(known), most)] {
		names = append(names, c.name)
	}
	if more := len(known) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// write writes the header row and a row for each of next.
func (t *table[R]) write(out *sink, next source[R]) error {
	t.row = t.row[:0]
	for i, c := range t.columns {
		t.row = appendCell(separate(t.row, i), guardFormula(c.name))
	}
	_, _ = out.w.Write(append(t.row, "\r\n"...)) // its error comes back at the next flush
	return writeEach(out, next, func(r *R) error {
		if err := t.appendRow(r); err != nil {
			return err
		}
		_, err := out.w.Write(t.row)
		return err
	})
}

// appendRow makes the row of r.
func (t *table[R]) appendRow(r *R) error {
	if cap(t.row) > 1<<20 {
		t.row = nil // one long text must not keep its memory to the end of the export
	}
	t.row = t.row[:0]
	clear(t.taken)
	if raw := t.values(r); len(raw) > 0 && slices.ContainsFunc(t.columns, func(c tableColumn) bool { return c.value != "" }) {
		if err := json.Unmarshal(raw, &t.taken); err != nil {
			return fmt.Errorf("values of a record: %w", err)
		}
		if t.taken == nil { // of null
			t.taken = map[string]json.RawMessage{}
		}
	}
	of := reflect.ValueOf(r).Elem()
	for i, c := range t.columns {
		t.row = separate(t.row, i)
		var err error
		if c.value != "" {
			t.row, err = appendJSON(t.row, t.taken[c.value])
		} else {
			t.row, err = appendValue(t.row, of.Field(c.index))
		}
		if err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
	}
	t.row = append(t.row, "\r\n"...)
	return nil
}

// appendValue appends the cell of a field of a row. Numbers are left as they are: with an
// apostrophe a negative one would be text.
func appendValue(row []byte, v reflect.Value) ([]byte, error) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return row, nil
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		return appendText(row, v.String()), nil
	case reflect.Bool:
		return strconv.AppendBool(row, v.Bool()), nil
	case reflect.Int, reflect.Int64:
		return strconv.AppendInt(row, v.Int(), 10), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v.Interface()); err != nil {
		return row, err
	}
	return appendJSON(row, bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// appendJSON appends the cell of a JSON value: a text as itself, null as nothing, a list or an
// object as compact JSON. A number stays one, see [appendValue].
func appendJSON(row []byte, raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 {
		return row, nil
	}
	switch raw[0] {
	case 'n':
		return row, nil
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return row, err
		}
		return appendText(row, s), nil
	case '[', '{':
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			return row, err
		}
		return appendText(row, b.String()), nil
	}
	return append(row, raw...), nil
}

// appendText appends the cell of a text, as JSON has it: what is no UTF-8 is U+FFFD.
func appendText(row []byte, s string) []byte {
	return appendCell(row, guardFormula(strings.ToValidUTF8(s, "\uFFFD")))
}

func separate(row []byte, column int) []byte {
	if column == 0 {
		return row
	}
	return append(row, ',')
}

// appendCell appends a text, quoted where it must be, and where a blank at an end would
// otherwise be lost to those who trim.
func appendCell(row []byte, s string) []byte {
	if !strings.ContainsAny(s, ",\"\r\n") && strings.TrimSpace(s) == s {
		return append(row, s...)
	}
	row = append(row, '"')
	row = append(row, strings.ReplaceAll(s, `"`, `""`)...)
	return append(row, '"')
}

// guardFormula returns s with an apostrophe before it if a spreadsheet might run it as a
// formula (CWE-1236): what a page calls itself is written by whoever wrote the page. See
// [looksLikeFormula] for which texts these are.
//
// What was guarded can be told: it begins with an apostrophe, and what follows looks like
// a formula. That is why the apostrophes of the text itself are looked through.
func guardFormula(s string) string {
	if looksLikeFormula(s) {
		return "'" + s
	}
	return s
}

// looksLikeFormula reports whether s begins, behind apostrophes, with a tab or a line break,
// which an import may take for the end of a cell, or with = + - @ behind whatever an import
// may leave out: blanks, control characters, invisible ones and apostrophes.
func looksLikeFormula(s string) bool {
	s = strings.TrimLeft(s, "'")
	if s == "" {
		return false
	}
	if c := s[0]; c == '\t' || c == '\r' || c == '\n' {
		return true
	}
	s = strings.TrimLeftFunc(s, func(r rune) bool {
		return r == '\'' || unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
	})
	r, size := utf8.DecodeRuneInString(s)
	return size > 0 && strings.ContainsRune(formulaStarts, r)
}

// formulaStarts begin a formula. The forms in full width and in small are read as the plain
// ones by spreadsheets of East Asia, and the minus sign (U+2212) by others.
const formulaStarts = "=+-@" + "＝＋－＠" + "﹦﹢﹣﹫" + "−"
