package sitemap

import (
	"net/mail"
	"strings"
	"time"
)

// maxTimeBytes is more than any form of a time has.
const maxTimeBytes = 64

// Forms of W3C-DTF (https://www.w3.org/TR/NOTE-datetime) with a time, most frequent
// first, then those that lack the zone or write it as ISO 8601 also allows.
// time.Parse takes fractions of a second wherever there are seconds.
var dateTimes = []string{
	"2006-01-02T15:04:05Z07:00",
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04:05Z0700",
	"2006-01-02T15:04:05",
	"2006-01-02T15:04:05Z07",
	"2006-01-02T15:04Z0700",
	"2006-01-02T15:04",
}

// The zones of RFC 822 section 5. time.Parse would give them the offset that they
// have where this machine stands, or none.
var zones = map[string]string{
	"UT": "+0000", "UTC": "+0000", "GMT": "+0000", "Z": "+0000",
	"EST": "-0500", "EDT": "-0400", "CST": "-0600", "CDT": "-0500",
	"MST": "-0700", "MDT": "-0600", "PST": "-0800", "PDT": "-0700",
}

// parseTime reads a time of a sitemap, an Atom feed (W3C-DTF) or an RSS feed
// (RFC 822 with its successors), in UTC; zero when it is neither.
func parseTime(s string) time.Time {
	if len(s) > maxTimeBytes {
		return time.Time{}
	}
	var t time.Time
	var err error
	switch {
	case len(s) == 4:
		t, err = time.Parse("2006", s)
	case len(s) == 7:
		t, err = time.Parse("2006-01", s)
	case len(s) == 10:
		t, err = time.Parse(time.DateOnly, s)
	case len(s) > 10 && s[4] == '-':
		return parseDateTime(s)
	default:
		t, err = parseMailDate(s)
	}
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// parseDateTime reads a date with a time. What databases print is close to the
// form: a blank for the T, one before the zone, and its name.
func parseDateTime(s string) time.Time {
	s = strings.ToUpper(s)
	clock := strings.ReplaceAll(strings.TrimPrefix(s[10:], "T"), " ", "")
	clock = strings.TrimSuffix(strings.TrimSuffix(clock, "UTC"), "GMT")
	s = s[:10] + "T" + clock
	for _, layout := range dateTimes {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// parseMailDate reads "Mon, 02 Jan 2006 15:04:05 MST" and its variants: without the
// day of the week (which is wrong often enough), without seconds, with two digits
// of the year. A zone that is not known counts as UTC (RFC 5322 section 4.3).
func parseMailDate(s string) (time.Time, error) {
	if _, rest, ok := strings.Cut(s, ","); ok {
		s = strings.TrimLeft(rest, " ")
	}
	if i := strings.LastIndexByte(s, ' '); i >= 0 && i+1 < len(s) {
		if zone := strings.ToUpper(s[i+1:]); 'A' <= zone[0] && zone[0] <= 'Z' {
			offset, ok := zones[zone]
			if !ok {
				offset = "-0000"
			}
			s = s[:i+1] + offset
		}
	}
	return mail.ParseDate(s)
}
