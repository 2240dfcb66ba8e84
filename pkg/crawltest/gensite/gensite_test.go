package gensite

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func body(t testing.TB, s *Site, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

func TestEveryPageIsReachable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := New(rapid.IntRange(1, 3000).Draw(t, "pages"), rapid.IntRange(1, 30).Draw(t, "links"), 0, 0)
		seen, todo := map[int]bool{0: true}, []int{0}
		for len(todo) > 0 {
			i := todo[0]
			todo = todo[1:]
			links := s.Links(i)
			if len(links) != s.links {
				t.Fatalf("page %d has %d links, want %d", i, len(links), s.links)
			}
			for _, l := range links {
				if l < 0 || l >= s.pages {
					t.Fatalf("page %d links to %d of %d", i, l, s.pages)
				}
				if !seen[l] {
					seen[l] = true
					todo = append(todo, l)
				}
			}
		}
		if len(seen) != s.pages {
			t.Fatalf("%d of %d pages can be reached", len(seen), s.pages)
		}
	})
}

func TestPage(t *testing.T) {
	t.Parallel()
	s := New(10_000, 20, 6000, 0)
	code, got := body(t, s, "/p/123")
	if code != 200 || len(got) != 6000 {
		t.Errorf("status %d, %d bytes, want 200 and 6000", code, len(got))
	}
	var want []string
	for _, l := range s.Links(123) {
		want = append(want, strconv.Itoa(l))
	}
	var links []string
	for _, m := range regexp.MustCompile(`href="/p/(\d+)"`).FindAllStringSubmatch(got, -1) {
		links = append(links, m[1])
	}
	if fmt.Sprint(links) != fmt.Sprint(want) || !strings.Contains(got, "<title>Page 123</title>") {
		t.Errorf("links %v, want %v", links, want)
	}
	if _, again := body(t, New(10_000, 20, 6000, 0), "/p/123"); again != got {
		t.Error("another site of the same numbers has other bytes")
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	s := New(10, 2, 100, 0)
	for path, want := range map[string]int{
		"/": 301, "/robots.txt": 200, "/p/10": 404, "/p/-1": 404, "/p/07": 404, "/p/": 404, "/x": 404,
	} {
		if code, _ := body(t, s, path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	if s.Total() != 0 {
		t.Errorf("total %d before a page was served", s.Total())
	}
	for _, p := range []string{"/p/7", "/p/7", "/p/8"} {
		body(t, s, p)
	}
	if s.Total() != 3 || s.Distinct() != 2 || s.Hits(7) != 2 || s.Hits(99) != 0 || s.Pages() != 10 {
		t.Errorf("total %d, distinct %d, hits %d", s.Total(), s.Distinct(), s.Hits(7))
	}
	s.Reset()
	if s.Total() != 0 || s.Distinct() != 0 || s.Hits(7) != 0 {
		t.Error("counts left after Reset")
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		body(t, New(1, 1, 1, 50*time.Millisecond), "/p/0")
		if d := time.Since(begin); d != 50*time.Millisecond {
			t.Errorf("answered after %v", d)
		}
	})
}

func BenchmarkPage(b *testing.B) {
	s := New(10_000, 20, 6000, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		body(b, s, "/p/"+strconv.Itoa(i%10_000))
	}
}
