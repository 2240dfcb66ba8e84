package sitemap

import (
	"strings"
	"testing"
	"time"
)

// TestParseTime holds the forms of a time, and what is none.
func TestParseTime(t *testing.T) {
	t.Parallel()
	at := func(month time.Month, day, hour, minute, sec, nano int) time.Time {
		return time.Date(2024, month, day, hour, minute, sec, nano, time.UTC)
	}
	noon := at(5, 6, 12, 30, 15, 0)
	tests := map[string]time.Time{
		// The six forms of W3C-DTF.
		"2024":                          at(1, 1, 0, 0, 0, 0),
		"2024-05":                       at(5, 1, 0, 0, 0, 0),
		"2024-05-06":                    at(5, 6, 0, 0, 0, 0),
		"2024-05-06T12:30Z":             at(5, 6, 12, 30, 0, 0),
		"2024-05-06T12:30+05:30":        at(5, 6, 7, 0, 0, 0),
		"2024-05-06T12:30:15Z":          noon,
		"2024-05-06T14:30:15+02:00":     noon,
		"2024-05-06T12:30:15.5Z":        at(5, 6, 12, 30, 15, 500_000_000),
		"2024-05-06T07:30:15.123-05:00": at(5, 6, 12, 30, 15, 123_000_000),
		// What is written in their stead.
		"2024-05-06t12:30:15z":          noon,
		"2024-05-06 12:30:15":           noon,
		"2024-05-06T12:30:15":           noon,
		"2024-05-06T12:30":              at(5, 6, 12, 30, 0, 0),
		"2024-05-06 12:30:15 +0000":     noon,
		"2024-05-06T14:30:15+0200":      noon,
		"2024-05-06T14:30:15+02":        noon,
		"2024-05-06T14:30+0200":         at(5, 6, 12, 30, 0, 0),
		"2024-05-06 12:30:15 UTC":       noon,
		"2024-05-06 12:30:15 +0000 UTC": noon,
		// RFC 822, 1123, 2822.
		"Mon, 06 May 2024 12:30:15 GMT":        noon,
		"Mon, 06 May 2024 14:30:15 +0200":      noon,
		"Sun, 06 May 2024 12:30:15 GMT":        noon, // the wrong day of the week
		"Mon, 6 May 24 12:30:15 Z":             noon,
		"06 May 2024 12:30:15 UT":              noon,
		"06 May 2024 12:30 +0000":              at(5, 6, 12, 30, 0, 0),
		"Mon, 06 May 2024 08:30:15 EDT":        noon,
		"Mon, 06 May 2024 04:30:15 pst":        noon,
		"Mon, 06 May 2024 12:30:15 CEST":       noon, // not a zone of RFC 822
		"Mon, 06 May 2024 12:30:15 GMT ":       {},   // callers trim
		"":                                     {},
		"yesterday":                            {},
		"20":                                   {},
		"2024-13":                              {},
		"2024-02-30":                           {},
		"2024-05-06T25:00:00Z":                 {},
		"2024-05-06T":                          {},
		"2024-05-06T12:30:15 Europe/Berlin":    {},
		"06.05.2024 12:30":                     {},
		"1714998615":                           {},
		"Mon, ":                                {},
		"2024-05-06" + strings.Repeat(" ", 99): {},
	}
	for s, want := range tests {
		got := parseTime(s)
		if !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

// TestParseTimeAnywhere: the zone of the machine changes nothing. It is not
// parallel: that zone belongs to all.
func TestParseTimeAnywhere(t *testing.T) {
	local := time.Local
	t.Cleanup(func() { time.Local = local })
	time.Local = time.FixedZone("CEST", 2*60*60)
	want := time.Date(2024, 5, 6, 12, 30, 15, 0, time.UTC)
	for _, s := range []string{"Mon, 06 May 2024 12:30:15 CEST", "2024-05-06T12:30:15"} {
		if got := parseTime(s); !got.Equal(want) {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}
