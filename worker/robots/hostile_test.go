package robots

import (
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// hostileFiles are files made to be slow. The path that they are asked about is as
// long as a URL may be.
func hostileFiles() map[string]string {
	const everyone = "User-agent: *\n"
	lines := func(line func(i int) string) string {
		var b strings.Builder
		b.WriteString(everyone)
		for i := 0; b.Len() < MaxBytes; i++ {
			b.WriteString(line(i) + "\n")
		}
		return b.String()
	}
	return map[string]string{
		"one pattern of stars":     everyone + "Disallow: /" + strings.Repeat("*", MaxBytes-40) + "z\n",
		"one pattern of star a":    everyone + "Disallow: /" + strings.Repeat("*a", (MaxBytes-40)/2) + "z\n",
		"one pattern of many":      everyone + "Disallow: /" + strings.Repeat("*a", 4000) + "*z\n",
		"one long literal":         everyone + "Disallow: *" + strings.Repeat("a", 4000) + "b\n",
		"many patterns of star a":  lines(func(int) string { return "Disallow: " + strings.Repeat("*a", 40) + "*z" }),
		"many short patterns":      lines(func(int) string { return "Allow:*aaab" }),
		"many long literals":       lines(func(int) string { return "Disallow: *" + strings.Repeat("a", 70) + "baaa" }),
		"many prefixes":            lines(func(i int) string { return "Disallow: /" + strings.Repeat("a", i%80) + "b" }),
		"many groups":              lines(func(int) string { return "User-agent: b\nDisallow: /" }),
		"many agents":              lines(func(i int) string { return "User-agent: b" + strconv.Itoa(i) }),
		"many sitemaps":            lines(func(i int) string { return "Sitemap: /" + strconv.Itoa(i) }),
		"many colons":              lines(func(int) string { return strings.Repeat(":", 1000) }),
		"spaces":                   everyone + "Disallow:" + strings.Repeat(" \t", MaxBytes/2-40) + "/z",
		"percent":                  everyone + "Disallow: /" + strings.Repeat("%", MaxBytes-40),
		"encoded query":            everyone + "Disallow: /?" + strings.Repeat("%2F*", MaxBytes/4-40) + "z",
		"lines without an end":     strings.Repeat("User-agent", MaxBytes/10),
		"one line end after other": everyone + strings.Repeat("\r", MaxBytes),
	}
}

// TestHostileTime: a file made to be slow costs a bounded time. The bound is far
// above what is measured (0.2 s for the worst), and far below what backtracking
// takes.
func TestHostileTime(t *testing.T) {
	t.Parallel()
	paths := []string{
		"/" + strings.Repeat("a", 8191), "/?" + strings.Repeat("a/", 4095), "/" + strings.Repeat("%", 8191),
		"/?" + strings.Repeat("%2F", 2730),
	}
	for name, file := range hostileFiles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			r := Parse([]byte(file), "us")
			for _, path := range paths {
				r.Allowed(path)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("%d bytes and %d paths took %v", len(file), len(paths), took)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("User-agent: *\nDisallow: /a*b$\nAllow: /%2a\nCrawl-delay: 1.5\nSitemap: /s.xml"), "/a?b=%2F")
	f.Add([]byte("\xff\xfeU\x00s\x00"), "")
	f.Add([]byte("user agent us\rdisalow *\xc3\xbc#\r\n"), "*")
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		// No URL is longer, and time grows with rules times path.
		path = path[:min(len(path), 8192)]
		r := Parse(body, "us")
		ok, rule := r.Allowed(path)
		if !ok && rule == "" {
			t.Error("blocked without a reason")
		}
		if len(rule) > MaxRuleBytes || !utf8.ValidString(rule) || strings.ContainsAny(rule, "\r\n\x00\x1b") {
			t.Errorf("the rule is not fit to be shown: %q", rule)
		}
		if d, _ := r.CrawlDelay(); d < 0 || d > MaxCrawlDelay {
			t.Errorf("a delay of %v", d)
		}
		requireSame(t, stored(t, r), r)
		if n := normalPath(path); normalPath(strings.NewReplacer("%2A", "*", "%24", "$").Replace(n)) != n {
			t.Errorf("%q is not the normal form of itself", n)
		}
	})
}

func FuzzDirectives(f *testing.F) {
	f.Add("robots", "noindex, nofollow")
	f.Add("us", "unavailable_after: Wed, 25 Jun 2031 15:00:00 PST, us: none")
	f.Add("", "otherbot: none, us : noarchive; noindex")
	f.Fuzz(func(t *testing.T, name, value string) {
		meta := ParseMeta(name, value, "us")
		header := ParseHeader([]string{value, name}, "us")
		if m := meta.Merge(header); m != header.Merge(meta) || m.Merge(header) != m {
			t.Errorf("merging %+v and %+v depends on the order", meta, header)
		}
		if swapped := ParseHeader([]string{name, value}, "us"); swapped != header {
			t.Errorf("the order of headers matters: %+v, %+v", header, swapped)
		}
		if ParseMeta("them", value, "us") != (Directives{}) {
			t.Error("took what is for others")
		}
	})
}
