package robots

import (
	"slices"
	"strings"
	"time"
)

// Directives are what a page asks of those who found it, in <meta name="robots">
// or X-Robots-Tag. The zero value asks for nothing. No standard defines them;
// https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag
// describes what sites write. Unknown ones are ignored.
type Directives struct {
	NoIndex   bool // "noindex", "none": do not keep the page
	NoFollow  bool // "nofollow", "none": do not follow its links
	NoArchive bool // "noarchive", "nocache": do not show a copy of it
	// UnavailableAfter is when the page stops to be for keeping; zero for never.
	UnavailableAfter time.Time
}

// Merge returns what d and o ask together: a permission ("index", "all") never
// lifts a prohibition, and the earlier end counts.
func (d Directives) Merge(o Directives) Directives {
	d.NoIndex = d.NoIndex || o.NoIndex
	d.NoFollow = d.NoFollow || o.NoFollow
	d.NoArchive = d.NoArchive || o.NoArchive
	if d.UnavailableAfter.IsZero() || !o.UnavailableAfter.IsZero() && o.UnavailableAfter.Before(d.UnavailableAfter) {
		d.UnavailableAfter = o.UnavailableAfter
	}
	return d
}

// IndexableAt reports whether a page with these directives may be kept at now.
func (d Directives) IndexableAt(now time.Time) bool {
	return !d.NoIndex && (d.UnavailableAfter.IsZero() || now.Before(d.UnavailableAfter))
}

// ParseMeta returns what a <meta> element asks of the crawler with the given
// product token: something only if its name is "robots" or the token, in any
// case. Name and content are the values of the attributes, with their character
// references decoded.
func ParseMeta(name, content, product string) Directives {
	if !addresses(strings.TrimSpace(name), product) {
		return Directives{}
	}
	var d Directives
	for rest := content; rest != ""; {
		var piece string
		piece, rest, _ = strings.Cut(rest, ",")
		rest = d.add(piece, rest)
	}
	return d
}

// ParseHeader returns what the X-Robots-Tag headers of a response ask of the
// crawler with the given product token. Values are one a header line. Within one,
// "name:" addresses what follows to that crawler only, up to the next name;
// without a name it is for everyone.
func ParseHeader(values []string, product string) Directives {
	var d Directives
	for _, value := range values {
		forUs := true
		for rest := value; rest != ""; {
			var piece string
			piece, rest, _ = strings.Cut(rest, ",")
			if name, directive, ok := cutName(piece); ok {
				forUs, piece = addresses(name, product), directive
			}
			if forUs {
				rest = d.add(piece, rest)
			}
		}
	}
	return d
}

// addresses reports whether directives for name are for product.
func addresses(name, product string) bool {
	if strings.EqualFold(name, "robots") || name == "*" {
		return true
	}
	token := leadingToken(strings.TrimSpace(product))
	return token != "" && strings.EqualFold(leadingToken(name), token)
}

// valuedDirectives are followed by a colon and are no names of crawlers.
var valuedDirectives = []string{"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"}

// cutName cuts the name of a crawler before a directive. The colon in a time of
// day is behind no name.
func cutName(piece string) (name, directive string, ok bool) {
	name, directive, ok = strings.Cut(piece, ":")
	name = strings.TrimSpace(name)
	token := leadingToken(name)
	switch {
	case !ok || slices.Contains(valuedDirectives, strings.ToLower(name)):
		return "", "", false
	case name == "*", token != "" && (token == name || name[len(token)] == '/'):
		return name, directive, true
	}
	return "", "", false
}

// add takes one piece of a comma separated list. It returns what is left of the
// rest: a date has commas of its own.
func (d *Directives) add(piece, rest string) string {
	name, value, valued := strings.Cut(piece, ":")
	if valued && strings.EqualFold(strings.TrimSpace(name), valuedDirectives[0]) {
		t, left, ok := cutDate(value, rest)
		if ok {
			*d = d.Merge(Directives{UnavailableAfter: t})
		}
		return left
	}
	// Some write spaces or semicolons for commas.
	for word := range strings.FieldsFuncSeq(piece, func(r rune) bool { return r == ' ' || r == '\t' || r == ';' }) {
		d.addWord(word)
	}
	return rest
}

func (d *Directives) addWord(word string) {
	switch strings.ToLower(word) {
	case "noindex":
		d.NoIndex = true
	case "nofollow":
		d.NoFollow = true
	case "none":
		d.NoIndex, d.NoFollow = true, true
	case "noarchive", "nocache":
		d.NoArchive = true
	}
}

// maxDateCommas is how many commas a date has: "Friday, June 25, 2010".
const maxDateCommas = 2

// cutDate reads a date that begins with value and may go on in rest. The longest
// that is one counts, so that "noindex" behind it is not lost.
func cutDate(value, rest string) (t time.Time, left string, ok bool) {
	left = rest
	text, behind := value, rest
	for i := 0; ; i++ {
		if parsed, is := parseDate(text); is {
			t, left, ok = parsed, behind, true
		}
		if i == maxDateCommas || behind == "" {
			return t, left, ok
		}
		var next string
		next, behind, _ = strings.Cut(behind, ",")
		text += " " + next
	}
}

// dateLayouts are RFC 3339, RFC 822 with its successors, RFC 850, asctime and
// what people write, without commas and without the day of the week.
var dateLayouts = []string{
	time.RFC3339,
	"2006-01-02T15:04Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05", "2006-01-02T15:04",
	"2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02",
	"2 Jan 2006 15:04:05 -0700", "2 Jan 2006 15:04 -0700", "2 Jan 2006 15:04:05", "2 Jan 2006 15:04", "2 Jan 2006",
	"2 January 2006 15:04:05 -0700", "2 January 2006 15:04:05", "2 January 2006",
	"2-Jan-2006 15:04:05 -0700", "2-Jan-2006 15:04:05", "2-Jan-2006", "2-Jan-06 15:04:05 -0700",
	"2 Jan 06 15:04:05 -0700", "2 Jan 06 15:04 -0700", "Jan 2 15:04:05 2006", "Jan 2 2006 15:04:05 -0700",
	"Jan 2 2006", "January 2 2006",
}

// zones are the names of RFC 822 s5.1; package time knows only those of its own
// location and takes others for UTC.
var zones = map[string]string{
	"UT": "+0000", "UTC": "+0000", "GMT": "+0000", "Z": "+0000",
	"EST": "-0500", "EDT": "-0400", "CST": "-0600", "CDT": "-0500",
	"MST": "-0700", "MDT": "-0600", "PST": "-0800", "PDT": "-0700",
}

// maxDateBytes bounds what is tried as a date.
const maxDateBytes = 64

// parseDate reads a date without commas. Without a zone it is in UTC.
func parseDate(s string) (time.Time, bool) {
	if len(s) > maxDateBytes {
		return time.Time{}, false
	}
	words := strings.Fields(s)
	if len(words) > 1 && isWeekday(words[0]) {
		words = words[1:]
	}
	if len(words) == 0 {
		return time.Time{}, false
	}
	last := len(words) - 1
	if offset, ok := zones[strings.ToUpper(words[last])]; ok {
		words[last] = offset
	}
	text := strings.Join(words, " ")
	for _, layout := range dateLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

func isWeekday(s string) bool {
	for day := time.Sunday; day <= time.Saturday; day++ {
		if name := day.String(); strings.EqualFold(s, name) || strings.EqualFold(s, name[:3]) {
			return true
		}
	}
	return false
}
