package httpapi

import (
	"context"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// csvType is the media type of a table, RFC 4180 section 3.
const csvType = "text/csv; charset=utf-8; header=present"

// csvColumns are the fields of a record that fit a cell, in their order in a record:
// what is neither a list nor an object.
var csvColumns = func() (columns []csvColumn) {
	t := reflect.TypeFor[record]()
	for i := range t.NumField() {
		f := t.Field(i)
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		switch of.Kind() {
		case reflect.String, reflect.Bool, reflect.Int, reflect.Int64:
			columns = append(columns, csvColumn{name: jsonName(f), field: i})
		}
	}
	return columns
}()

type csvColumn struct {
	name  string
	field int // index in a record
}

// table writes the records as CSV: RFC 4180, with a header row, and a null as an empty
// cell.
//
// encoding/csv is not used: with the line ends of RFC 4180 it changes those within cells,
// too.
func (d *download) table(ctx context.Context, flush func() error) error {
	row := make([]byte, 0, 1<<10)
	for i, c := range csvColumns {
		row = appendCell(separate(row, i), guardFormula(c.name))
	}
	_, _ = d.w.Write(append(row, "\r\n"...)) // its error comes back at the next flush
	return d.writeRecords(ctx, func(r *record) error {
		row = appendRow(row[:0], r)
		_, err := d.w.Write(row)
		return err
	}, flush)
}

// appendRow appends the row of a record. Numbers that are our own are left as they are:
// with an apostrophe a negative one would be text.
func appendRow(row []byte, r *record) []byte {
	of := reflect.ValueOf(r).Elem()
	for i, c := range csvColumns {
		row = separate(row, i)
		v := of.Field(c.field)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				continue
			}
			v = v.Elem()
		}
		switch v.Kind() {
		case reflect.String:
			row = appendCell(row, guardFormula(strings.ToValidUTF8(v.String(), "\uFFFD"))) // as JSON has it
		case reflect.Bool:
			row = strconv.AppendBool(row, v.Bool())
		default:
			row = strconv.AppendInt(row, v.Int(), 10)
		}
	}
	return append(row, "\r\n"...)
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
