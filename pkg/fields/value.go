package fields

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"example.com/trawl/pkg/crawl"
)

// urlAttrs are the attributes that hold a URL, by the HTML standard.
var urlAttrs = map[string]bool{
	"href": true, "src": true, "action": true, "formaction": true, "cite": true, "poster": true, "data": true,
	"longdesc": true, "background": true,
}

// urlAttrOf is the attribute that a URL is taken from when none is named.
var urlAttrOf = map[atom.Atom]string{
	atom.A: "href", atom.Area: "href", atom.Link: "href", atom.Base: "href", atom.Img: "src", atom.Script: "src",
	atom.Iframe: "src", atom.Source: "src", atom.Video: "src", atom.Audio: "src", atom.Embed: "src", atom.Track: "src",
	atom.Form: "action", atom.Object: "data",
}

// truth are the words for true and false.
var truth = map[string]bool{
	"true": true, "yes": true, "y": true, "on": true, "1": true, "ja": true, "oui": true, "sí": true, "si": true,
	"sim": true,
	"да":  true, "是": true, "有": true, "はい": true, "✓": true, "✔": true,
	"false": false, "no": false, "n": false, "off": false, "0": false, "nein": false, "non": false, "não": false,
	"нет": false, "否": false, "无": false, "いいえ": false, "✗": false, "✘": false,
}

// parseBool reads a word for true or false. An attribute that is there without a value, or with
// its own name as value, is true: checked, disabled="" and open="open".
func parseBool(s, attr string) (bool, bool) {
	if attr != "" && (s == "" || strings.EqualFold(s, attr)) {
		return true, true
	}
	v, ok := truth[strings.ToLower(s)]
	return v, ok
}

// parseURL resolves a link of the page. A URL with another scheme than http and https is none.
func parseURL(s string, base crawl.URL) (string, bool) {
	u, err := base.Resolve(s)
	if err != nil || u.IsZero() {
		return "", false
	}
	return u.String(), true
}

// parse reads a text as what the field is. Text and HTML are always what they are.
func (f *field) parse(s string, base crawl.URL) (any, bool) {
	switch f.kind {
	case Number:
		n, ok := parseNumber(s, f.locale)
		return json.Number(n), ok
	case Integer:
		n, ok := parseNumber(s, f.locale)
		return json.Number(n), ok && !strings.Contains(n, ".")
	case Date:
		return second(parseDate(s, f.locale))
	case URL:
		return second(parseURL(s, base))
	case Bool:
		v, ok := parseBool(s, f.Attr)
		return v, ok
	case Text, HTML:
	}
	return s, true
}

func second(s string, ok bool) (any, bool) { return s, ok }

// baseOf returns what the links of a page are relative to: its first base element that has an
// href, if that can be fetched, or its URL.
func baseOf(x *index, page crawl.URL) crawl.URL {
	for _, n := range x.nodes {
		if n.DataAtom != atom.Base || n.Namespace != "" {
			continue
		}
		if href, ok := attrOf(n, "href"); ok {
			if u, err := page.Resolve(href); err == nil && !u.IsZero() {
				return u
			}
			return page
		}
	}
	return page
}

// raw returns the text that a match gives before it is parsed. ok is false where there is none.
func (f *field) raw(m match, most int, left *budget) (text string, cut, ok bool, err error) {
	if m.literal || f.Attr != "" {
		text = m.text
		if !m.literal {
			if text, ok = attrOf(m.node, f.Attr); !ok {
				return "", false, false, nil
			}
		}
		return f.literal(text, most, left)
	}
	switch {
	case f.kind == HTML:
		text, cut, err = htmlOf(m.node, most, left)
		return text, cut, err == nil, err
	case f.kind == URL && f.regex == nil && m.node.Type == html.ElementNode:
		if attr := urlAttrOf[m.node.DataAtom]; attr != "" {
			if text, ok = attrOf(m.node, attr); ok {
				return f.literal(text, most, left)
			}
			return "", false, false, nil
		}
	case f.kind == Date && f.regex == nil && m.node.DataAtom == atom.Time:
		if text, ok = attrOf(m.node, "datetime"); ok {
			if _, parsed := parseDate(text, f.locale); parsed {
				return text, false, true, nil
			}
		}
	}
	if m.node.Type == html.CommentNode {
		return f.literal(m.node.Data, most, left)
	}
	text, cut, err = textOf(m.node, f.trim, most, left)
	return text, cut, err == nil, err
}

// literal is the text of an attribute, or of what an XPath function gives.
func (f *field) literal(text string, most int, left *budget) (string, bool, bool, error) {
	if !left.spend(1 + min(len(text), MaxValueBytes)/bytesPerStep) {
		return "", false, false, errSteps
	}
	if f.trim {
		text = trimBlanks(text)
	}
	text, cut := cutTo(text, most)
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	return text, cut, true, nil
}

// Record is one record: values by name, in the order of the fields. A value is nil, a string, a
// bool, a [json.Number], or a slice ([]any) of these. It is not changed once it is made.
type Record struct {
	names  []string
	values []any
}

// Names returns the names of the fields in their order. Do not change it.
func (r *Record) Names() []string { return r.names }

// Get returns the value of a field, nil where the page has none.
func (r *Record) Get(name string) (value any, ok bool) {
	for i, n := range r.names {
		if n == name {
			return r.values[i], true
		}
	}
	return nil, false
}

// MarshalJSON implements json.Marshaler: an object in the order of the fields.
func (r *Record) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, name := range r.names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + name + `":`) // a name has no character that is escaped
		if err := e.Encode(r.values[i]); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1) // the line break of Encode
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
