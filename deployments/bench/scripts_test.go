package main

import (
	"slices"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
)

// TestScriptsAlone: every kind of commit and of lease is what it says, in each round, or there is no figure.
func TestScriptsAlone(t *testing.T) {
	t.Parallel()
	f := &fleet{rdb: crawltest.Private(t).Client}
	const commits, rounds = 150, 2
	found, err := scriptsAlone(t.Context(), f, commits, rounds)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{len(commitKinds), len(leaseSizes)} {
		if got := found.Tables[i].Rows; len(got) != want {
			t.Errorf("table %d has %d rows: %v", i, len(got), got)
		}
		for _, r := range found.Tables[i].Rows {
			for _, c := range found.Tables[i].Columns {
				if v := r.Cells[c.Key]; v.Rounds != rounds || v.Min <= 0 || v.Median < v.Min || v.Max < v.Median {
					t.Errorf("%s: %s is %+v", r.Name, c.Key, v)
				}
			}
		}
	}
	full := found.Tables[0].Rows[0].Cells["commits_per_second"].Median
	if len(found.Bars) != 1 || found.Bars[0].Value != full || found.Bars[0].Bound != 15_000 {
		t.Errorf("the bar is of %v, and the figure %v", found.Bars, full)
	}
}

// Commits that are not what their row says are an error, and no figure.
func TestCommitsThatAreOther(t *testing.T) {
	t.Parallel()
	pages, err := sitePages(7000)
	if err != nil {
		t.Fatal(err)
	}
	refused := commitKinds[0]
	refused.of = func(l *load, it crawl.Item, n int) store.Commit {
		c := commitKinds[0].of(l, it, n)
		c.Accepted.Links[0].Refused = "excluded"
		return c
	}
	other := commitKind{name: "other", of: commitKinds[2].of, wrong: commitKinds[3].wrong}
	never := commitKind{of: commitKinds[1].of, wrong: func(crawl.Job, int64) bool { return true }}
	for name, tc := range map[string]struct {
		kind commitKind
		n    int64
		want string
	}{
		"links that are refused":  {refused, 20, "made a job of"},
		"more than pages made up": {commitKinds[0], 1000, "made up"},
		"another outcome":         {other, 20, "made a job of"},
		"a job of another kind":   {never, 20, "made a job of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := crawltest.Private(t)
			_, err := commitsAlone(t.Context(), r.Client, &tc.kind, pages, tc.n)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v, not %q", err, tc.want)
			}
		})
	}
}

// The links that are not new are there for any page.
func TestKnownLinks(t *testing.T) {
	t.Parallel()
	pages, err := sitePages(50)
	if err != nil {
		t.Fatal(err)
	}
	l := &load{pages: pages}
	for _, tc := range []struct{ place, first int }{{0, 0}, {7, 7}, {49, 40}, {1000, 40}} {
		got := l.known(tc.place, 10)
		if len(got) != 10 || !slices.Equal(got, pages[tc.first:tc.first+10]) {
			t.Errorf("known(%d) begins with %s", tc.place, got[0].URL)
		}
	}
	if n, err := placeOf(address(123_456)); n != 123_456 || err != nil {
		t.Errorf("placeOf: %d, %v", n, err)
	}
	for _, url := range []string{"", "https://docs.example.org/"} {
		if n, err := placeOf(url); err == nil {
			t.Errorf("placeOf(%q) is %d", url, n)
		}
	}
}
