package robots

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

func utf16File(s string, bigEndian bool) string {
	var b []byte
	for _, u := range utf16.Encode([]rune("\uFEFF" + s)) {
		if bigEndian {
			b = append(b, byte(u>>8), byte(u))
		} else {
			b = append(b, byte(u), byte(u>>8))
		}
	}
	return string(b)
}

// longFile returns a group for everyone of n bytes at most.
func longFile(n int) string {
	return "User-agent: *\n" + strings.Repeat("Disallow: /zz"+strings.Repeat("x", 85)+"\nDisallow: /zz\n", n/113-1)
}

// fill makes s exactly n bytes long by a comment in front; it ends where s ends.
func fill(s string, n int) string {
	return "#" + strings.Repeat("x", n-len(s)-2) + "\n" + s
}

// TestLimit: the bound never makes another rule of one, and what is complete within
// it counts (ROB-12).
func TestLimit(t *testing.T) {
	t.Parallel()
	const file = "User-agent: *\nDisallow: /a\nDisallow: /secret"
	for _, tt := range []struct {
		name    string
		body    string
		blocked bool // "/secret"
	}{
		{name: "fits", body: fill(file, MaxBytes), blocked: true},
		{name: "one byte more, a line end", body: fill(file, MaxBytes) + "\nDisallow: /", blocked: true},
		{name: "one byte more, CR", body: fill(file, MaxBytes) + "\r", blocked: true},
		{name: "one byte more", body: fill(file, MaxBytes) + "s"},
		{name: "cut inside", body: fill(file, MaxBytes+4)},
		{name: "UTF-16", body: utf16File(fill(file, MaxBytes)+"s", false)},
		{name: "UTF-16 fits", body: utf16File(fill(file, MaxBytes), true), blocked: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := Parse([]byte(tt.body), "x")
			if ok, rule := r.Allowed("/a"); ok {
				t.Errorf("/a, which is within the bound, is allowed by %q", rule)
			}
			if ok, rule := r.Allowed("/secret"); ok == tt.blocked {
				t.Errorf("/secret is allowed: %t by %q, want %t", ok, rule, !tt.blocked)
			}
			if ok, rule := r.Allowed("/secr"); !ok {
				t.Errorf("/secr is blocked by the half of a line: %q", rule)
			}
		})
	}
	if ok, rule := Parse([]byte(strings.Repeat("x", 2*MaxBytes)), "x").Allowed("/"); !ok {
		t.Errorf("one endless line blocks by %q", rule)
	}
}

// TestRule: the reason is the line as its owner wrote it.
func TestRule(t *testing.T) {
	t.Parallel()
	long := "Disallow: /" + strings.Repeat("ü", MaxRuleBytes)
	for _, tt := range []struct{ name, line, path, want string }{
		{name: "as written", line: "Disallow: /private/", path: "/private/x", want: "Disallow: /private/"},
		{name: "spelling kept", line: "  disalow :/p%61th  # why", path: "/path", want: "disalow :/p%61th"},
		{name: "no colon", line: "Disallow\t/a", path: "/a", want: "Disallow /a"},
		{name: "Allow", line: "Allow: /a", path: "/a", want: "Allow: /a"},
		{name: "not encoded", line: "Disallow: /ü", path: "/%C3%BC", want: "Disallow: /ü"},
		{name: "Latin-1", line: "Disallow: /\xfc", path: "/%FC", want: "Disallow: /%FC"},
		{
			name: "for a terminal", line: "Disallow: /a\x1b[2J\u202e", path: "/a%1B[2J%E2%80%AE",
			want: "Disallow: /a%1B[2J%E2%80%AE",
		},
		{name: "tabs", line: "Disallow:\t/a\tb", path: "/a%09b", want: "Disallow: /a%09b"},
		{name: "of equals the first by letter", line: "Disallow: /a*c\nDisallow: /*bc", path: "/abc", want: "Disallow: /*bc"},
		{name: "of equals whatever the order", line: "Disallow: /*bc\nDisallow: /a*c", path: "/abc", want: "Disallow: /*bc"},
		{name: "no rule", line: "Disallow: /a", path: "/b", want: ""},
		{name: "empty rule", line: "Disallow:", path: "/b", want: ""},
		{
			name: "long", line: long, path: "/" + strings.Repeat("%C3%BC", MaxRuleBytes),
			want: long[:MaxRuleBytes-3] + "…",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, rule := Parse([]byte("User-agent: *\n"+tt.line), "x").Allowed(tt.path)
			if rule != tt.want {
				t.Errorf("the rule is %q, want %q", rule, tt.want)
			}
			if len(rule) > MaxRuleBytes || !utf8.ValidString(rule) {
				t.Errorf("%d bytes, valid %t", len(rule), utf8.ValidString(rule))
			}
		})
	}
}

func TestCrawlDelay(t *testing.T) {
	t.Parallel()
	const everyone = "User-agent: *\n"
	for _, tt := range []struct {
		name, file string
		want       time.Duration
		none       bool
	}{
		{name: "none", file: everyone + "Disallow: /", none: true},
		{name: "seconds", file: everyone + "Crawl-delay: 10", want: 10 * time.Second},
		{name: "fraction", file: everyone + "crawl-delay:1.5 # s", want: 1500 * time.Millisecond},
		{name: "fraction only", file: everyone + "Crawl-delay: .25", want: 250 * time.Millisecond},
		{name: "zero", file: everyone + "Crawl-delay: 0"},
		{name: "negative", file: everyone + "Crawl-delay: -1", none: true},
		{name: "word", file: everyone + "Crawl-delay: ten", none: true},
		{name: "unit", file: everyone + "Crawl-delay: 10s", none: true},
		{name: "empty", file: everyone + "Crawl-delay:", none: true},
		{name: "dot", file: everyone + "Crawl-delay: .", none: true},
		{name: "two dots", file: everyone + "Crawl-delay: 1.2.3", none: true},
		{name: "exponent", file: everyone + "Crawl-delay: 1e3", none: true},
		{name: "hexadecimal", file: everyone + "Crawl-delay: 0x10", none: true},
		{name: "infinite", file: everyone + "Crawl-delay: inf", none: true},
		{name: "not a number", file: everyone + "Crawl-delay: NaN", none: true},
		{name: "huge", file: everyone + "Crawl-delay: 99999999999999999999", want: MaxCrawlDelay},
		{name: "beyond float64", file: everyone + "Crawl-delay: " + strings.Repeat("9", 400), want: MaxCrawlDelay},
		{
			name: "the longest",
			file: everyone + "Crawl-delay: 2\nCrawl-delay: 3\nCrawl-delay: 1", want: 3 * time.Second,
		},
		{
			name: "junk does not hide another",
			file: everyone + "Crawl-delay: 2\nCrawl-delay: x", want: 2 * time.Second,
		},
		{name: "of no group", file: "Crawl-delay: 2\n" + everyone + "Disallow:", none: true},
		{
			name: "ours",
			file: everyone + "Crawl-delay: 2\nDisallow:\nUser-agent: us\nCrawl-delay: 1", want: time.Second,
		},
		{
			name: "not inherited",
			file: everyone + "Crawl-delay: 2\nDisallow:\nUser-agent: us\nDisallow: /", none: true,
		},
		{
			name: "of another group",
			file: "User-agent: them\nCrawl-delay: 9\nDisallow:\n" + everyone + "Disallow:", none: true,
		},
		{
			name: "merged groups",
			file: "User-agent: us\nCrawl-delay: 2\nDisallow: /\nUser-agent: Us\nCrawl-delay: 5",
			want: 5 * time.Second,
		},
		{name: "behind the rules", file: everyone + "Disallow: /\nCrawl-delay: 4", want: 4 * time.Second},
		{
			name: "ROB-10 of the agents above it",
			file: "User-agent: them\nCrawl-delay: 9\nUser-agent: us\nDisallow: /", none: true,
		},
		{
			name: "ROB-10 variant 4",
			file: everyone + "Crawl-delay: 1\nUser-agent: badbot\nDisallow: /\n", want: time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := Parse([]byte(tt.file), "us").CrawlDelay()
			if got != tt.want || ok == tt.none {
				t.Errorf("delay %v, there is one: %t; want %v, %t", got, ok, tt.want, !tt.none)
			}
		})
	}
}

func TestSitemaps(t *testing.T) {
	t.Parallel()
	file := "Sitemap: http://site.test/1.xml # first\nUser-agent: them\nDisallow: /\nsitemap:/2.xml\n" +
		"SITEMAP : http://site.test/a b\nUser-agent: *\nSitemap: http://site.test/1.xml\nSite-map: //cdn.test/ü.xml\n" +
		"Sitemap:\nSitemap http://site.test/4.xml\n"
	r := Parse([]byte(file), "us")
	want := []string{"http://site.test/1.xml", "/2.xml", "http://site.test/a b", "//cdn.test/ü.xml"}
	if got := r.Sitemaps(); !slices.Equal(got, want) {
		t.Errorf("sitemaps %q, want %q", got, want)
	}
	r.Sitemaps()[0] = "changed"
	if got := r.Sitemaps()[0]; got != want[0] {
		t.Errorf("a caller changed the rules to %q", got)
	}

	var many strings.Builder
	for i := range MaxSitemaps + 10 {
		many.WriteString("Sitemap: /" + strconv.Itoa(i) + "\nSitemap: /\n")
	}
	if got := len(Parse([]byte(many.String()), "us").Sitemaps()); got != MaxSitemaps {
		t.Errorf("%d sitemaps are kept, want %d", got, MaxSitemaps)
	}
}

// TestStored pins the stored form: entries of one version are read by the next.
func TestStored(t *testing.T) {
	t.Parallel()
	file := "User-agent: them\nDisallow: /them\n\nUser-agent: us\nDisalow :\t/caf\xe9 # why\nAllow:\n" +
		"Crawl-delay: 1\nCrawl-delay: 2.5\nUnknown: x\nUser-agent: *\nDisallow: /\nSitemap: http://site.test/s.xml\n"
	const want = "User-agent: *\nDisalow : /caf%E9\nCrawl-delay: 2.5\nSitemap: http://site.test/s.xml\n"
	r := Parse([]byte(file), "us")
	text, err := r.MarshalText()
	if err != nil || string(text) != want {
		t.Fatalf("stored %q, %v, want %q", text, err, want)
	}
	requireSame(t, stored(t, r), r)

	var inJSON struct{ Rules *Rules }
	raw, err := json.Marshal(map[string]any{"Rules": r})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &inJSON); err != nil {
		t.Fatal(err)
	}
	requireSame(t, inJSON.Rules, r)
}

func TestStoredZero(t *testing.T) {
	t.Parallel()
	var zero Rules
	if ok, rule := zero.Allowed("/a"); !ok || rule != "" {
		t.Errorf("the zero rules block /a by %q", rule)
	}
	requireSame(t, stored(t, &zero), Parse(nil, "us"))
	for _, text := range []string{"", "User-agent: *", "Disallow: /", "\x00", "user-agent: *\nDisallow: /"} {
		r := Parse([]byte("User-agent: *\nDisallow: /"), "us")
		if err := r.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken for stored rules", text)
		}
		if ok, _ := r.Allowed("/"); ok {
			t.Errorf("%q changed the rules", text)
		}
	}
}
