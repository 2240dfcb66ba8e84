package robots

import (
	"strings"
	"testing"
	"time"
)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Unix(0, 0) // equal to nothing that a test wants
	}
	return t.UTC()
}

func TestParseMeta(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, content string
		want          Directives
	}{
		{"robots", "noindex", Directives{NoIndex: true}},
		{"robots", "nofollow", Directives{NoFollow: true}},
		{"robots", "noindex, nofollow", Directives{NoIndex: true, NoFollow: true}},
		{"ROBOTS", " NoIndex ,NOFOLLOW,", Directives{NoIndex: true, NoFollow: true}},
		{"robots", "none", Directives{NoIndex: true, NoFollow: true}},
		{"robots", "all", Directives{}},
		{"robots", "index,follow", Directives{}},
		{"robots", "", Directives{}},
		{"robots", ",,;", Directives{}},
		{"robots", "noindex, index, all", Directives{NoIndex: true}},
		{"robots", "noindex nofollow", Directives{NoIndex: true, NoFollow: true}},
		{"robots", "noindex;noarchive", Directives{NoIndex: true, NoArchive: true}},
		{"robots", "nocache", Directives{NoArchive: true}},
		{"robots", "nosnippet, max-snippet:0, max-image-preview: large, noai", Directives{}},
		{"robots", "notnoindex, noindexing, no index", Directives{}},
		{"TrawlBot", "noindex", Directives{NoIndex: true}},
		{" trawlbot ", "nofollow", Directives{NoFollow: true}},
		{"trawl", "noindex", Directives{}},
		{"trawlbots", "noindex", Directives{}},
		{"googlebot", "noindex", Directives{}},
		{"description", "noindex", Directives{}},
		{"", "noindex", Directives{}},
		{"robots", "unavailable_after: 2031-06-25", Directives{UnavailableAfter: at("2031-06-25T00:00:00Z")}},
		{
			"robots", "unavailable_after: Wednesday, 25-Jun-2031 15:00:00 PST, noindex",
			Directives{NoIndex: true, UnavailableAfter: at("2031-06-25T15:00:00-08:00")},
		},
	} {
		t.Run(tt.name+" "+tt.content, func(t *testing.T) {
			t.Parallel()
			if got := ParseMeta(tt.name, tt.content, "TrawlBot"); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestParseHeader(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values string // separated by "|"
		want   Directives
	}{
		{"noindex", Directives{NoIndex: true}},
		{"noindex, nofollow", Directives{NoIndex: true, NoFollow: true}},
		{"noindex|nofollow", Directives{NoIndex: true, NoFollow: true}},
		{"NONE", Directives{NoIndex: true, NoFollow: true}},
		{"all|noindex|index", Directives{NoIndex: true}},
		{"trawlbot: noindex", Directives{NoIndex: true}},
		{"TRAWLBOT : noindex, nofollow", Directives{NoIndex: true, NoFollow: true}},
		{"TrawlBot/1.0: noindex", Directives{NoIndex: true}},
		{"googlebot: noindex, nofollow", Directives{}},
		{"trawl: none|trawlbot-news: none", Directives{}},
		{"googlebot: noindex|trawlbot: nofollow", Directives{NoFollow: true}},
		{"googlebot: noindex|nofollow", Directives{NoFollow: true}},
		{"googlebot: noindex, nofollow, trawlbot: noarchive", Directives{NoArchive: true}},
		{"trawlbot: noarchive, googlebot: noindex, nofollow", Directives{NoArchive: true}},
		{"nofollow, googlebot: noindex", Directives{NoFollow: true}},
		{"*: noindex", Directives{NoIndex: true}},
		{"robots: nofollow", Directives{NoFollow: true}},
		{"max-snippet: 20, noindex", Directives{NoIndex: true}},
		{"max-snippet:-1,max-image-preview:large", Directives{}},
		{"googlebot: max-snippet: 20, noindex", Directives{}},
		{": noindex", Directives{NoIndex: true}},
		{"trawlbot:", Directives{}},
		{"", Directives{}},
		{
			"unavailable_after: 25 Jun 2031 15:00:00 PST",
			Directives{UnavailableAfter: at("2031-06-25T15:00:00-08:00")},
		},
		{
			"Unavailable_After: Wed, 25 Jun 2031 15:00:00 GMT, noindex",
			Directives{NoIndex: true, UnavailableAfter: at("2031-06-25T15:00:00Z")},
		},
		{
			"nofollow, unavailable_after: Wednesday, June 25, 2031, noarchive",
			Directives{NoFollow: true, NoArchive: true, UnavailableAfter: at("2031-06-25T00:00:00Z")},
		},
		{
			"trawlbot: unavailable_after: Wed, 25 Jun 2031 15:00:00 +0200, googlebot: none",
			Directives{UnavailableAfter: at("2031-06-25T15:00:00+02:00")},
		},
		{"googlebot: unavailable_after: Wed, 25 Jun 2031 15:00:00 PST, noindex", Directives{}},
		{"unavailable_after: soon, noindex", Directives{NoIndex: true}},
		{"unavailable_after: 99 Foo 2031 15:00:00 PST, noindex", Directives{NoIndex: true}},
		{"unavailable_after:", Directives{}},
		{"unavailable_after", Directives{}},
		{
			"unavailable_after: 2032-01-01|unavailable_after: 2031-01-01|unavailable_after: 2033-01-01",
			Directives{UnavailableAfter: at("2031-01-01T00:00:00Z")},
		},
	} {
		t.Run(tt.values, func(t *testing.T) {
			t.Parallel()
			if got := ParseHeader(strings.Split(tt.values, "|"), "TrawlBot"); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	if got := ParseHeader([]string{"trawlbot: none", "noarchive"}, ""); got != (Directives{NoArchive: true}) {
		t.Errorf("without a product: %+v", got)
	}
}

func TestDates(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"2031-06-25T15:00:00-08:00", "2031-06-25T15:00:00-08:00"},
		{"2031-06-25T15:00:00Z", "2031-06-25T15:00:00Z"},
		{"2031-06-25T15:00:00.5+02:00", "2031-06-25T15:00:00.5+02:00"},
		{"2031-06-25T15:00:00+0200", "2031-06-25T15:00:00+02:00"},
		{"2031-06-25T15:00", "2031-06-25T15:00:00Z"},
		{"2031-06-25 15:00:00", "2031-06-25T15:00:00Z"},
		{"2031-06-25 15:00:00 EST", "2031-06-25T15:00:00-05:00"},
		{"2031-06-25", "2031-06-25T00:00:00Z"},
		{"Wed, 25 Jun 2031 15:00:00 GMT", "2031-06-25T15:00:00Z"},
		{"wed, 25 jun 2031 15:00:00 gmt", "2031-06-25T15:00:00Z"},
		{"Wed, 25 Jun 2031 15:00:00 +0200", "2031-06-25T15:00:00+02:00"},
		{"Wednesday, 25-Jun-31 15:00:00 UTC", "2031-06-25T15:00:00Z"},
		{"25 Jun 31 15:00 PDT", "2031-06-25T15:00:00-07:00"},
		{"25-Aug-2031 15:00:00 EST", "2031-08-25T15:00:00-05:00"},
		{"Wed Jun 25 15:00:00 2031", "2031-06-25T15:00:00Z"},
		{"25 June 2031", "2031-06-25T00:00:00Z"},
		{"June 25, 2031", "2031-06-25T00:00:00Z"},
		{"Wednesday, June 25, 2031", "2031-06-25T00:00:00Z"},
	} {
		t.Run(tt.text, func(t *testing.T) {
			t.Parallel()
			got := ParseMeta("robots", "unavailable_after: "+tt.text, "")
			if want := (Directives{UnavailableAfter: at(tt.want)}); got != want {
				t.Errorf("got %v, want %v", got.UnavailableAfter, want.UnavailableAfter)
			}
		})
	}
}

func TestIndexableAt(t *testing.T) {
	t.Parallel()
	end := at("2031-06-25T00:00:00Z")
	for _, tt := range []struct {
		name string
		d    Directives
		now  time.Time
		want bool
	}{
		{"nothing asked", Directives{}, end, true},
		{"links only", Directives{NoFollow: true, NoArchive: true}, end, true},
		{"noindex", Directives{NoIndex: true}, end, false},
		{"before", Directives{UnavailableAfter: end}, end.Add(-time.Second), true},
		{"at", Directives{UnavailableAfter: end}, end, false},
		{"after", Directives{UnavailableAfter: end}, end.Add(time.Second), false},
		{"noindex before", Directives{NoIndex: true, UnavailableAfter: end}, end.Add(-time.Second), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.d.IndexableAt(tt.now); got != tt.want {
				t.Errorf("indexable: %t, want %t", got, tt.want)
			}
		})
	}
}

func TestProductToken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ header, want string }{
		{"TrawlBot/0.1 (+https://site.test/bot)", "TrawlBot"},
		{"TrawlBot", "TrawlBot"},
		{"  TrawlBot ", "TrawlBot"},
		{"my_bot-x/1", "my_bot-x"},
		{"Bot2/1.0", "Bot"},
		{"Mozilla/5.0 (compatible; FarmBot/1.0)", "FarmBot"},
		{"Mozilla/5.0 (compatible; ExampleBot/0.1; https://www.example.com/bot.html)", "ExampleBot"},
		{"mozilla/5.0 (Compatible;FarmBot)", "FarmBot"},
		{
			"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm) " +
				"Chrome/W.X.Y.Z Safari/537.36", "bingbot",
		},
		{"Mozilla/5.0 (X11) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1 Safari/537.36 TrawlBot/1.0", "TrawlBot"},
		{"Mozilla/5.0 (X11; Linux (x)) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/1 Safari/537.36", "Mozilla"},
		{"Mozilla/5.0 (compatible; +https://site.test)", "Mozilla"},
		{"Mozilla/5.0 (compatible", "Mozilla"},
		{"Mozilla/5.0 \u212a (compatible; FarmBot)", "Mozilla"},
		{"(TrawlBot)", ""},
		{"+https://site.test", ""},
		{"", ""},
	} {
		t.Run(tt.header, func(t *testing.T) {
			t.Parallel()
			if got := ProductToken(tt.header); got != tt.want {
				t.Errorf("token %q, want %q", got, tt.want)
			}
		})
	}
}
