package fields

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDates(t *testing.T) {
	t.Parallel()
	const none = ""
	for _, tt := range []struct{ locale, text, want string }{
		{"", "2024-03-03", "2024-03-03"},
		{"", "2024/3/3", "2024-03-03"},
		{"", "2024.03.03", "2024-03-03"},
		{"", "20240303", "2024-03-03"},
		{"", "2024-03-03T10:30:00Z", "2024-03-03T10:30:00Z"},
		{"", "2024-03-03T10:30:00+01:00", "2024-03-03T10:30:00+01:00"},
		{"", "2024-03-03 10:30", "2024-03-03T10:30:00Z"},
		{"", "2024-03-03T10:30:00.1250-0500", "2024-03-03T10:30:00.125-05:00"},
		{"", "2024-03-03T10:30:00+00:00", "2024-03-03T10:30:00Z"},
		{"", "2024-03-03 10:30:00 UTC", "2024-03-03T10:30:00Z"},
		{"", "2024-03-03T10:30:00−03", "2024-03-03T10:30:00-03:00"},
		{"", "Sun, 03 Mar 2024 10:30:00 GMT", "2024-03-03T10:30:00Z"},
		{"", "Sun, 3 Mar 2024 10:30:00 +0100 (CET)", "2024-03-03T10:30:00+01:00"},
		{"", "Sun, 03 Mar 2024 10:30:00 EST", "2024-03-03T10:30:00-05:00"},
		{"", "Sunday, 03-Mar-2024 10:30:00 GMT", "2024-03-03T10:30:00Z"},
		{"", "Sun Mar  3 10:30:00 2024", "2024-03-03T10:30:00Z"},
		{"", "Sunday, 03-Mar-24 10:30:00 GMT", none},
		{"", "3 March 2024", "2024-03-03"},
		{"", "3rd of March, 2024", "2024-03-03"},
		{"", "March 3, 2024", "2024-03-03"},
		{"", "Mar. 3rd, 2024", "2024-03-03"},
		{"", "March 3, 2024 at 3:05 PM", "2024-03-03T15:05:00Z"},
		{"", "March 3, 2024, 12:05 a.m.", "2024-03-03T00:05:00Z"},
		{"", "March 3, 2024 3pm", "2024-03-03T15:00:00Z"},
		{"", "March 3, 2024 10:30 CET", "2024-03-03T10:30:00+01:00"},
		{"", "March 3, 2024 10:30 CST", none},
		{"", "March 3, 2024 10:30 UTC+2", "2024-03-03T10:30:00+02:00"},
		{"", "Published: March 3, 2024", "2024-03-03"},
		{"", "Posted on Sunday, March 3, 2024", "2024-03-03"},
		{"", "Last updated: 2024-03-03", "2024-03-03"},
		{"", "03.03.2024", "2024-03-03"},
		{"de", "3.3.2024", "2024-03-03"},
		{"de", "3. März 2024", "2024-03-03"},
		{"de", "Sonntag, 3. März 2024, 10:30 Uhr", "2024-03-03T10:30:00Z"},
		{"de", "vom 31.12.2024 um 23:59", "2024-12-31T23:59:00Z"},
		{"fr", "1er mars 2024", "2024-03-01"},
		{"fr", "dimanche 3 mars 2024 à 10h30", "2024-03-03T10:30:00Z"},
		{"es", "3 de marzo de 2024", "2024-03-03"},
		{"it", "3 marzo 2024", "2024-03-03"},
		{"ru", "3 марта 2024 г.", none},
		{"ru", "3 марта 2024", "2024-03-03"},
		{"gb", "03/04/2024", "2024-04-03"},
		{"us", "03/04/2024", "2024-03-04"},
		{"en", "03/04/2024", none},
		{"en", "13/04/2024", "2024-04-13"},
		{"en", "04/13/2024", "2024-04-13"},
		{"", "04/04/2024", "2024-04-04"},
		{"us", "13/04/2024", none},
		{"fr", "03-04-2024", "2024-04-03"},
		{"zh", "2024年3月3日", "2024-03-03"},
		{"zh", "２０２４年３月３日 10:30", "2024-03-03T10:30:00Z"},
		{"zh", "2024年3月3日 下午3时05分", "2024-03-03T15:05:00Z"},
		{"ja", "2024年3月3日(日)", "2024-03-03"},
		{"zh", "发布于：2024-03-03", "2024-03-03"},
		{"ko", "2024년 3월 3일 오후 3:05", "2024-03-03T15:05:00Z"},
		{"ar", "٢٠٢٤-٠٣-٠٣", "2024-03-03"},
		{"", "yesterday", none},
		{"", "3 days ago", none},
		{"", "today at 10:30", none},
		{"", "2024", none},
		{"", "March 2024", none},
		{"", "1709424000", none},
		{"", "2024-02-30", none},
		{"", "2023-02-29", none},
		{"", "2024-02-29", "2024-02-29"},
		{"", "2024-13-01", none},
		{"", "32.01.2024", none},
		{"", "03.03.24", none},
		{"", "2024-03-03T25:00", none},
		{"", "2024-03-03T10:60", none},
		{"", "2024-03-03 10:30 Europe/Berlin", none},
		{"", "2024-03-03 and more", none},
		{"", "2024-03-03 13:00 pm", none},
		{"", "2024-03-03T10:30:00+25:00", none},
		{"", "", none},
		{"", "2024-03/03", none},
		{"", "the day after 2024-03-03", none},
		{"", "2024-03-03 10:", none},
	} {
		got, ok := parseDate(tt.text, locales[tt.locale])
		if !ok {
			got = none
		}
		if got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.locale, tt.text, got, tt.want)
		}
	}
}

// Each day comes back from each way to write it.
func TestDateRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		day := time.Unix(rapid.Int64Range(-30_000_000_000, 200_000_000_000).Draw(t, "seconds"), 0).UTC()
		name := rapid.SampledFrom(Locales).Draw(t, "locale")
		in := locales[name]
		layouts := []string{
			"2006-01-02", "2006/1/2", "2.1.2006", "2 January 2006", "January 2, 2006", "Mon, 2 Jan 2006", "2006年1月2日",
			"20060102",
		}
		switch in.order {
		case dayFirst:
			layouts = append(layouts, "02/01/2006", "2-1-2006")
		case monthFirst:
			layouts = append(layouts, "01/02/2006", "1-2-2006")
		case dayUnknown:
		}
		text := day.Format(rapid.SampledFrom(layouts).Draw(t, "layout"))
		if got, ok := parseDate(text, in); !ok || got != day.Format(time.DateOnly) {
			t.Fatalf("%s %q: %q %v", name, text, got, ok)
		}
		zone := rapid.IntRange(-12*60, 14*60).Draw(t, "zone")
		at := day.In(time.FixedZone("", zone*60))
		for _, layout := range []string{
			time.RFC3339, time.RFC1123Z, "2006-01-02 15:04:05 -0700", "January 2, 2006 3:04:05 PM -07:00",
		} {
			got, ok := parseDate(at.Format(layout), in)
			back, err := time.Parse(time.RFC3339Nano, got)
			if !ok || err != nil || !back.Equal(at) {
				t.Fatalf("%q: %q %v %v", at.Format(layout), got, ok, err)
			}
		}
	})
}

func FuzzDate(f *testing.F) {
	for _, s := range []string{
		"2024-03-03T10:30:00+01:00", "3 March 2024", "2024年3月3日 下午3时05分", "03/04/2024", "Sun Mar  3 10:30:00 2024",
	} {
		f.Add(s, "gb")
	}
	f.Fuzz(func(t *testing.T, s, locale string) {
		in := locales[locale]
		if in == nil {
			in = locales[""]
		}
		got, ok := parseDate(s, in)
		if !ok {
			return
		}
		if _, err := time.Parse(time.RFC3339Nano, got); err != nil {
			if _, err := time.Parse(time.DateOnly, got); err != nil {
				t.Errorf("%q gives %q", s, got)
			}
		}
		if again, ok := parseDate(got, in); !ok || again != got {
			t.Errorf("%q gives %q, which gives %q", s, got, again)
		}
	})
}
