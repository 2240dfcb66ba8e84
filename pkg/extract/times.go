package extract

import (
	"strings"
	"time"

	"golang.org/x/net/html"
)

// time takes <time pubdate>, and the first time element of class published, updated and the like,
// as blogs have it (microformats h-entry).
func (r *metaReader) time(n *html.Node) {
	value := attrOf(n, "datetime")
	if value == "" {
		value, _ = lineOf(n, maxNameBytes)
	}
	if len(value) > maxNameBytes || readTime(value) == "" {
		return
	}
	class := " " + strings.ToLower(oneLine(attrOf(n, "class"), maxNameBytes)) + " "
	has := func(names ...string) bool {
		for _, name := range names {
			if strings.Contains(class, " "+name+" ") {
				return true
			}
		}
		return false
	}
	if r.timePubdate == "" && (hasAttr(n, "pubdate") || has("published", "dt-published", "entry-date")) {
		r.timePubdate = value
	}
	if has("updated", "dt-updated", "modified") && r.named["dt-updated"] == "" {
		r.named["dt-updated"] = value
	}
}

func (r *metaReader) finishTimes() {
	published := append(r.all(publishedNames[:3]), r.ld.published)
	published = append(published, r.all(publishedNames[3:])...)
	r.m.Published = firstTime(append(published, r.timePubdate))
	modified := append(r.all(modifiedNames[:3]), r.ld.modified)
	modified = append(modified, r.all(modifiedNames[3:])...)
	r.m.Modified = firstTime(append(modified, r.named["dt-updated"]))
}

func (r *metaReader) all(names []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, r.named[name])
	}
	return out
}

func firstTime(values []string) string {
	for _, v := range values {
		if t := readTime(v); t != "" {
			return t
		}
	}
	return ""
}

// timeForms are the forms in which pages write times that machines are to read: ISO 8601, what
// RFC 5322 and HTTP write, and the beginnings of these that databases print. What is ambiguous, as
// 03/04/2024, is none of them.
var timeForms = []struct {
	layout  string
	written string // in the result
}{
	{time.RFC3339Nano, time.RFC3339},
	{"2006-01-02T15:04:05.999999999Z0700", time.RFC3339},
	{"2006-01-02T15:04Z07:00", time.RFC3339},
	{"2006-01-02T15:04Z0700", time.RFC3339},
	{"2006-01-02 15:04:05.999999999Z07:00", time.RFC3339},
	{"2006-01-02 15:04:05.999999999 Z07:00", time.RFC3339},
	{"2006-01-02 15:04:05.999999999 Z0700", time.RFC3339},
	{"2006-01-02T15:04:05.999999999", time.RFC3339},
	{"2006-01-02T15:04", time.RFC3339},
	{"2006-01-02 15:04:05.999999999", time.RFC3339},
	{"2006-01-02 15:04", time.RFC3339},
	{time.RFC1123Z, time.RFC3339},
	{time.RFC1123, time.RFC3339},
	{time.RFC850, time.RFC3339},
	{time.DateOnly, time.DateOnly},
	{"2006/01/02", time.DateOnly},
	{"2006/1/2", time.DateOnly},
	{"20060102", time.DateOnly},
	{"2006.01.02", time.DateOnly},
	{"January 2, 2006", time.DateOnly},
	{"2 January 2006", time.DateOnly},
	{"Jan 2, 2006", time.DateOnly},
	{"2 Jan 2006", time.DateOnly},
	{"2006年1月2日", time.DateOnly},
}

// readTime returns a time by RFC 3339, or a date alone; "" where it is none. A time without a zone
// is taken as UTC.
func readTime(s string) string {
	s = strings.TrimSpace(s)
	if len(s) < 8 || len(s) > 64 {
		return ""
	}
	for _, f := range timeForms {
		if t, err := time.Parse(f.layout, s); err == nil && t.Year() >= 1000 {
			return t.Format(f.written)
		}
	}
	return ""
}
