package crawler

import (
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/fields"
	"example.com/trawl/pkg/store"
)

// candidate is a record that may enter the collection of its job.
type candidate struct {
	item        int            // 0 for that of the page, else its place among the items, from 1
	values      *fields.Record // nil: the page has none
	fingerprint [16]byte
}

// upserts makes of the records of a page what enters a collection. path is that of their fields,
// with a dot at its end. Of records with one key the first enters; what does not enter, and what
// of it is not counted, is noted.
func upserts(c *crawl.Collection, path, sourceURL string, records []candidate, notes tally) []store.Upsert {
	about := path + c.Key
	if c.Key == crawl.KeySourceURL && path == pagePath {
		about = crawl.KeySourceURL
	}
	var out []store.Upsert
	taken := make(map[string]bool, len(records))
	for _, r := range records {
		key := sourceURL
		if about != crawl.KeySourceURL {
			key = keyOf(r.values, c.Key)
		}
		switch {
		case key == "" || len(key) > crawl.MaxKeyBytes:
			notes.add(about, crawl.NoteNoKey, 1)
			continue
		case taken[key]:
			notes.add(about, crawl.NoteDuplicateKey, 1)
			continue
		}
		taken[key] = true
		u := store.Upsert{Item: r.item, Key: key, Fingerprint: r.fingerprint}
		for _, name := range c.Facets {
			values, cut := facetValues(value(r.values, name))
			notes.add(path+name, crawl.NoteCut, cut)
			for _, v := range values {
				u.Facets = append(u.Facets, store.Facet{Name: name, Value: v})
			}
		}
		for _, name := range c.Numbers {
			n, ok := value(r.values, name).(json.Number)
			if !ok {
				continue
			}
			if sum, ok := summand(n); ok {
				u.Numbers = append(u.Numbers, store.Number{Name: name, Value: sum})
			} else {
				notes.add(path+name, crawl.NoteCut, 1)
			}
		}
		out = append(out, u)
	}
	return out
}

// value is the value of a field; nil for none.
func value(values *fields.Record, name string) any {
	if values == nil {
		return nil
	}
	v, _ := values.Get(name)
	return v
}

// keyOf is the value of a field as a key, "" for none.
func keyOf(values *fields.Record, name string) string {
	s, _ := scalar(value(values, name))
	return s
}

// scalar is a single value as text: a string as it is, others as JSON writes them.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// facetValues are the values of a field as they are counted, each once, in the order of the page,
// and how many were cut or left out for a bound.
func facetValues(v any) (out []string, cut int) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	seen := make(map[string]bool, min(len(list), crawl.MaxFacetValues))
	for _, v := range list {
		s, ok := scalar(v)
		if !ok {
			continue
		}
		short, isCut := crawl.FacetValue(s)
		if short == "" || seen[short] {
			continue
		}
		if len(out) == crawl.MaxFacetValues {
			cut++
			continue
		}
		if isCut {
			cut++
		}
		seen[short] = true
		out = append(out, short)
	}
	return out, cut
}

// clip cuts s to at most n bytes, at the end of a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// maxNumberBytes bounds a number as it is written. Those of fields have at most 64 digits, but
// a derived one may be written out in full.
const maxNumberBytes = 512

var maxNumber = new(big.Rat).SetInt64(crawl.MaxNumberValue)

// summand is a number as it is summed up: with [crawl.NumberDecimals] decimals at most, the last of
// which is rounded. It reports false for one that is too large.
func summand(n json.Number) (json.Number, bool) {
	s := n.String()
	f, err := strconv.ParseFloat(s, 64)
	if len(s) > maxNumberBytes || err != nil || !(f >= -2*crawl.MaxNumberValue && f <= 2*crawl.MaxNumberValue) {
		return "", false
	}
	const nothing = 1e-9 // far below the last decimal: what has a huge negative exponent is not expanded
	if f > -nothing && f < nothing {
		return "0", true
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok || new(big.Rat).Abs(r).Cmp(maxNumber) > 0 {
		return "", false
	}
	s = r.FloatString(crawl.NumberDecimals)
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		s = "0"
	}
	return json.Number(s), true
}

// tally counts notes by what they are about and what they say.
type tally map[crawl.Note]int

// add counts n more; nothing for none.
func (t tally) add(about, what string, n int) {
	if n > 0 {
		t[crawl.Note{About: about, What: what}] += n
	}
}

// say notes what has no count.
func (t tally) say(about, what string) { t[crawl.Note{About: about, What: what}] += 0 }

// all adds what others noted.
func (t tally) all(notes []crawl.Note) {
	for _, n := range notes {
		t[crawl.Note{About: n.About, What: n.What}] += n.Count
	}
}

// maxNotes bounds the notes of a record.
const maxNotes = 50

// notes returns what was noted, at most [maxNotes]: first what keeps records out of the
// collection, and then what is about the whole page, for these must not be lost among many fields.
func (t tally) notes() []crawl.Note {
	var out []crawl.Note
	for note, n := range t {
		note.Count = n
		out = append(out, note)
	}
	rank := func(n crawl.Note) int {
		switch {
		case n.What == crawl.NoteNoKey, n.What == crawl.NoteDuplicateKey:
			return 0
		case strings.HasPrefix(n.About, pagePath), strings.HasPrefix(n.About, itemPath):
			return 2
		}
		return 1
	}
	slices.SortFunc(out, func(a, b crawl.Note) int {
		if c := rank(a) - rank(b); c != 0 {
			return c
		}
		if c := strings.Compare(a.About, b.About); c != 0 {
			return c
		}
		return strings.Compare(a.What, b.What)
	})
	return out[:min(len(out), maxNotes)]
}

// The paths of fields, as in notes and faults.
const (
	pagePath = "fields."
	itemPath = "items.fields."
)
