package crawl

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func siteRules(t testing.TB) *Rules {
	t.Helper()
	return mustRules(t, Plan{Site: true, Seeds: []string{"http://site.test/"}, Scope: ScopeHost, MaxDepth: 100, MaxPages: 100})
}

// distinct returns n different segments.
func distinct(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "/s%d", i)
	}
	return b.String()
}

func TestTraps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, link, rule string }{
		{"TRP-01 segment", "/next/next/next/next/", `path segment "next" repeats`},
		{"TRP-01 group", "/infra/www/infra/www/infra/www/", `path segment "infra/www" repeats`},
		{"TRP-01 group inside", "/x/infra/www/infra/www/infra/www/next/", `path segment "infra/www" repeats`},
		{"TRP-01 group of three", "/a/b/c/a/b/c/a/b/c", `path segment "a/b/c" repeats`},
		{"TRP-01 mixed", "/n/i/w/n/n/i/w/i/w/n/", "7 repeated path segments, at most 5"},
		{"TRP-01 spellings", "/a%62/%61b/ab/ab/x", `path segment "ab" repeats`},
		{"slashes", "/a/////b", `path segment "" repeats`},
		{"path info", "/index.php/index.php/index.php/index.php", `path segment "index.php" repeats`},
		{"number in a group", "/p/1/p/1/p/1", `path segment "p/1" repeats`},
		{"segments", distinct(33), "33 path segments, at most 32"},
		{"segments of numbers", strings.Repeat("/0", 33), "33 path segments, at most 32"},
		{"path", "/" + strings.Repeat("a", MaxPathBytes), "path of 2049 bytes, at most 2048"},
		{"query", "/?" + strings.Repeat("a", MaxQueryBytes+1), "query of 2049 bytes, at most 2048"},
		{"parameters", "/?" + strings.Repeat("a&", 32), "33 query parameters, at most 32"},

		{"twice in a row", "/a/a/a", ""},
		{"a group twice", "/a/b/a/b", ""},
		{"a group of three twice", "/a/b/c/a/b/c/", ""},
		{"a group of three, nearly three times", "/x/a/b/c/a/b/c/a/b", ""},
		{"most repeats", "/n/i/w/n/x/i/w/n/y/w", ""},
		{"most segments", distinct(32) + "/", ""},
		{"longest path", "/" + strings.Repeat("a", MaxPathBytes-1), ""},
		{"longest query", "/?" + strings.Repeat("a", MaxQueryBytes), ""},
		{"most parameters", "/?" + strings.Repeat("a&", 31), ""},
		{"numbers", "/search/0/0/0/0/0/0/0/0/1", ""},
		{"root", "/", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := mustParse(t, "http://site.test"+tt.link)
			want := RefusedTrap
			if tt.rule == "" {
				want = ""
			}
			reason, rule := siteRules(t).Explain(u, 1)
			if reason != want || rule != tt.rule || siteRules(t).Check(u, 1) != reason {
				t.Errorf("%q by %q, want %q by %q", reason, rule, want, tt.rule)
			}
			// A list has no links, and a redirect may lead wherever it wants.
			list := mustRules(t, Plan{Scope: ScopeAny})
			if got := list.Check(u, 0); got != "" || list.Pattern(u) != "" {
				t.Errorf("of a list: %q, pattern %q", got, list.Pattern(u))
			}
		})
	}
}

// TRP-01: every page of the site links to infra/www/ and next/ below itself. The
// paths that are let through end, far under max_pages.
func TestRelativeLinksEndTRP01(t *testing.T) {
	t.Parallel()
	r := siteRules(t)
	seen := map[URL]bool{}
	refused := 0
	for todo := []URL{mustParse(t, "http://site.test/")}; len(todo) > 0; todo = todo[1:] {
		for _, href := range []string{"infra/www/", "next/", "/real1", "/real2"} {
			u, err := todo[0].Resolve(href)
			if err != nil {
				t.Fatal(err)
			}
			if r.Check(u, 1) != "" {
				refused++
			} else if !seen[u] {
				seen[u] = true
				todo = append(todo, u)
			}
		}
	}
	if len(seen) > 80 || refused == 0 || !seen[mustParse(t, "http://site.test/real2")] {
		t.Errorf("%d pages, %d links refused", len(seen), refused)
	}
	t.Logf("%d pages", len(seen))
}

// realURLs are of sites as they are: none of them is a trap.
var realURLs = []string{
	"https://docs.python.org/3/library/asyncio-task.html?highlight=task",
	"https://www.postgresql.org/docs/15/sql-select.html",
	"https://repo1.maven.org/maven2/org/springframework/boot/spring-boot-starter-data-jpa/3.2.0/",
	"https://repo1.maven.org/maven2/com/google/guava/guava/33.0.0-jre/guava-33.0.0-jre.pom",
	"https://repo1.maven.org/maven2/junit/junit/4.13/junit-4.13.jar",
	"https://github.com/a/b/blob/main/src/main/java/com/example/web/src/main/resources/app/web/index.html",
	"https://unpkg.com/browse/x/node_modules/a/node_modules/b/node_modules/c/lib/index.js",
	"https://pkg.go.dev/github.com/a/b/vendor/github.com/c/d/vendor/github.com/e/f",
	"https://web.archive.org/web/20200101000000/http://site.test//a//b",
	"https://zh.wikipedia.org/wiki/%E4%B8%AD%E5%8D%8E%E4%BA%BA%E6%B0%91%E5%85%B1%E5%92%8C%E5%9B%BD",
	"https://blog.site.test/2011/11/11/eleven",
	"https://blog.site.test/2024/05/17/2024-05-17-a-title/",
	"https://tiles.site.test/0/0/0/0/0.png",
	"https://forum.site.test/viewtopic.php?f=12&t=34567&start=25",
	"https://forum.site.test/index.php?topic=1234.15",
	"https://www.site.test/index.php?option=com_content&view=article&id=5&Itemid=7&lang=en",
	"https://wiki.site.test/index.php?title=Main_Page&action=edit",
	"https://lists.site.test/archives/list/2024-May/thread.html",
	"https://shop.site.test/c/shoes?page=3", "https://shop.site.test/p/17", "https://shop.site.test/?id=17",
	"https://shop.site.test/c/shoes?cat=4&page=3", "https://site.test/v2.0/1.2/changelog.2024.html",
	"https://site.test/2024/", "https://site.test/topic/4821/2", "https://site.test/report/2024/q1", "https://site.test/rfc/rfc2024/5",
	"https://site.test/article.php?date=2024-05-17&id=99", "https://site.test/?sort=new", "https://site.test/?year=2024", "https://site.test/?m=5",
	"https://site.test/202405", "https://site.test/20240517.html",
}

func TestRealURLsAreNoTraps(t *testing.T) {
	t.Parallel()
	r := mustRules(t, Plan{Site: true, Scope: ScopeAny, MaxDepth: 1})
	for _, s := range realURLs {
		u := mustParse(t, s)
		if reason, rule := r.Explain(u, 1); reason != "" || r.Pattern(u) != "" || r.Canonical(u) != u {
			t.Errorf("%s: %s by %q, pattern %q, canonical %s", s, reason, rule, r.Pattern(u), r.Canonical(u))
		}
	}
}

func TestPatternOfURL(t *testing.T) {
	t.Parallel()
	const host = "site.test:8080"
	long := strings.Repeat("long/", 20)
	for link, want := range map[string]string{
		// TRP-02, also without bounds, and what calendars write.
		"/cal?y=2024&m=1": "calendar:/cal", "/cal?y=-17&m=12": "calendar:/cal", "/cal?m=1&y=31337&view=x": "calendar:/cal",
		"/cal?year=2024&week=5": "calendar:/cal", "/c/?YEAR=2024&month=may&day=3": "calendar:/c/",
		"/c?cal_year=2024&cal_month=5": "calendar:/c", "/room/17/cal?y=2024&m=1": "calendar:/room/N/cal",
		"/e?date=2024-05-17": "calendar:/e", "/e?from=2024-05": "calendar:/e", "/e?x=17.05.2024": "calendar:/e",
		"/e?d=2024%2F5%2F17": "calendar:/e", "/e?d=2024-05-17T10:00&view=week": "calendar:/e", "/e?w=2024-W05": "calendar:/e",
		"/?m=202405": "calendar:/", "/?day=20240517": "calendar:/",
		"/events/2024/05/": "calendar:/events/", "/events/2024/5/17": "calendar:/events/", "/2024/May": "calendar:/",
		"/2024/september/30.html": "calendar:/", "/e/2024-05": "calendar:/e/", "/e/2024-05-17.html": "calendar:/e/",
		"/2024/w05": "calendar:/", "/e/2024/05/?view=list": "calendar:/e/", "/e/2024/05?date=2024-05-17": "calendar:/e/",
		"/u/7/%65/2024/05": "calendar:/u/N/e/", "//2024/05/": "calendar://", "/" + long + "2024/05": "calendar:/" + long[:63],

		"/shop?color=red&sort=price": "facets:", "/c/shoes?orderby=price&orderway=asc": "facets:", "/shop?f[]=1&f[]=2": "facets:",
		"/shop?a=1&b=2&c=3&d=4": "facets:", "/shop?id=1&sort=price": "facets:", "/shop?y=2024&m=5&sort=x": "facets:",
		"/list?dir=desc&id=1": "facets:",

		"/": "", "/cal": "", "/cal?": "", "/cal?y=2024": "", "/cal?m=1": "", "/cal?y=a&m=b": "", "/p/17": "", "/p?id=17": "", "/p?page=17": "",
		"/p?a=1&b=2&c=3": "", "/p?a=1&b=2&c=3&id=4": "", "/p?a=1&b=2&c=3&ITEM_ID=4": "", "/shop?sort=price": "", "/2024/05/17/title": "",
		"/2024/13": "", "/2024/05/32": "", "/1024/05": "", "/2024/0": "", "/e/2024-05-32": "", "/e/2024-13": "", "/e/v2024-05": "",
		"/cal?y=2024&m=1&id=7": "", "/e?date=2024": "", "/e?q=10-11-12": "", "/?m=202413": "", "/?x=202405": "", "/?&&&&": "", "//2024": "",
	} {
		u := mustParse(t, "http://"+host+link)
		if kind, path, ok := strings.Cut(want, ":"); ok {
			want = kind + ":" + host + path
		}
		if got := mustRules(t, Plan{Site: true, Scope: ScopeAny}).Pattern(u); got != want {
			t.Errorf("%s: %q, want %q", link, got, want)
		}
	}
	if got := siteRules(t).Pattern(URL{}); got != "" {
		t.Errorf("the zero URL: %q", got)
	}
}

func TestPatternBudget(t *testing.T) {
	t.Parallel()
	for pages, want := range map[int64]int64{1: 1, 20: 20, 79: 20, 80: 20, 100: 25, 1000: 250, 40_000: 10_000, 1_000_000: 10_000, 0: 0} {
		if got := (&Plan{MaxPages: pages}).PatternBudget(); got != want {
			t.Errorf("%d pages: %d, want %d", pages, got, want)
		}
	}
	p := Plan{MaxPages: 100}
	for pattern, want := range map[string]string{
		"calendar:site.test:80/c": "at most 25 calendar URLs of site.test:80/c", "facets:site.test": "at most 25 faceted URLs of site.test",
	} {
		if got := p.PatternRule(pattern); got != want {
			t.Errorf("%s: %q", pattern, got)
		}
	}
}

// TRP-02: a calendar without bounds. Whoever counts by pattern, as the store does, lets
// a share of it in and everything else.
func TestCalendarLeavesRoomTRP02(t *testing.T) {
	t.Parallel()
	p := Plan{Site: true, Seeds: []string{"http://site.test/cal?y=2024&m=1"}, Scope: ScopeHost, MaxDepth: 100, MaxPages: 100}
	r := mustRules(t, p)
	type page struct{ year, month int }
	counts := map[string]int64{}
	seen := map[page]bool{}
	for todo := []page{{2024, 1}}; len(todo) > 0; todo = todo[1:] {
		for _, step := range []int{-1, 1} {
			at := todo[0].year*12 + todo[0].month - 1 + step
			next := page{at / 12, at%12 + 1}
			u := mustParse(t, fmt.Sprintf("http://site.test/cal?y=%d&m=%d", next.year, next.month))
			pattern := r.Pattern(u)
			if pattern == "" || r.Check(u, 1) != "" {
				t.Fatalf("%s: pattern %q, %s", u, pattern, r.Check(u, 1))
			}
			if !seen[next] && counts[pattern] < p.PatternBudget() {
				counts[pattern]++
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	if len(seen) != 25 || len(counts) != 1 {
		t.Errorf("%d pages of the calendar, patterns %v", len(seen), counts)
	}
	if about := mustParse(t, "http://site.test/about"); r.Pattern(about) != "" || r.Check(about, 1) != "" {
		t.Error("/about is taken for a part of the calendar")
	}
}

// checkTrap holds what is true of the verdict on any URL.
func checkTrap(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, r *Rules, u URL,
) {
	t.Helper()
	reason, rule := r.Explain(u, 0)
	if r.Check(u, 0) != reason || (reason == RefusedTrap) == (rule == "") {
		t.Fatalf("%s: %q by %q, then %q", u, reason, rule, r.Check(u, 0))
	}
	n := u.normal()
	if n.Key() == u.Key() && (r.Check(n, 0) != reason || r.Pattern(n) != r.Pattern(u)) {
		t.Fatalf("%s is %q of %q, its normal form %q of %q", u, reason, r.Pattern(u), r.Check(n, 0), r.Pattern(n))
	}
	if p := r.Pattern(u); p != "" && (p != r.Pattern(u) || !strings.Contains(p, ":"+u.PolitenessHost()) ||
		strings.Contains(p, " ") || len(p) > len("calendar:")+len(u.Host())+64) {
		t.Fatalf("%s: pattern %q", u, p)
	}
	segments := strings.Split(strings.TrimSuffix(n.Path()[1:], "/"), "/")
	unique := slices.Compact(slices.Sorted(slices.Values(segments)))
	ordinary := len(unique) == len(segments) && len(segments) <= MaxPathSegments && len(n.Path()) <= MaxPathBytes &&
		len(n.Query()) <= MaxQueryBytes && strings.Count(n.Query(), "&") < MaxParams
	if ordinary && reason == RefusedTrap {
		t.Fatalf("%s is refused by %q", u, rule)
	}
	numbers := 0
	for _, s := range unique {
		if numeric([]string{s}) {
			numbers++
		}
	}
	// And one that is made of few segments is refused at some length.
	if len(segments) > MaxPathSegments || (numbers == 0 && len(segments)-len(unique) > MaxRepeats) {
		if reason != RefusedTrap {
			t.Fatalf("%s has %d segments of %d, and is let in", u, len(segments), len(unique))
		}
	}
}

func TestTrapProperties(t *testing.T) {
	t.Parallel()
	r := mustRules(t, Plan{Site: true, Scope: ScopeAny})
	rapid.Check(t, func(t *rapid.T) { checkTrap(t, r, drawURL(t)) })
}

func FuzzTrap(f *testing.F) {
	for _, s := range append([]string{
		"http://h/a/b/a/b/a/b", "http://h/2024/05", "http://h/?y=1&m=2&sort=3&sort=4", "http://h/?d=2024%2F05%2F17T", "http://h/?=&=&=&=",
	}, realURLs...) {
		f.Add(s)
	}
	r := mustRules(f, Plan{Site: true, Scope: ScopeAny})
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := ParseURL(s); err == nil {
			checkTrap(t, r, u)
		}
	})
}

func BenchmarkPattern(b *testing.B) {
	r := mustRules(b, Plan{Site: true, Scope: ScopeAny})
	for name, link := range map[string]string{
		"Plain": "https://docs.site.test/en/guide/install.html", "Query": "https://site.test/view?f=1&t=2&page=3",
		"Calendar": "https://site.test/cal?y=2024&m=1",
	} {
		b.Run(name, func(b *testing.B) {
			u := mustParse(b, link)
			b.ReportAllocs()
			for b.Loop() {
				_ = r.Pattern(u)
			}
		})
	}
}

func BenchmarkCanonical(b *testing.B) {
	r := mustRules(b, Plan{Scope: ScopeAny})
	tracking := mustRules(b, Plan{Scope: ScopeAny, DropParams: []string{TrackingWord}, SortParams: true})
	for _, bm := range []struct {
		name, link string
		rules      *Rules
	}{
		{"Plain", "https://docs.site.test/en/guide/install.html", r},
		{"Query", "https://site.test/view?f=1&t=2&page=3", r},
		{"Tracking", "https://site.test/view?f=1&t=2&utm_source=3", tracking},
	} {
		b.Run(bm.name, func(b *testing.B) {
			u := mustParse(b, bm.link)
			b.ReportAllocs()
			for b.Loop() {
				_ = bm.rules.Canonical(u)
			}
		})
	}
}
