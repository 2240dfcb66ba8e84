package extract

import (
	"strings"
	"testing"
)

func TestDepths(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]int{
		"":                     1 + 2 + 2,           // html, head, body
		"<p>a<p>b":             1 + 2 + 2 + 2*(3+4), // and two paragraphs of a text each
		"<div><i>a</i></div>b": 1 + 2 + 2 + 3 + 4 + 5 + 3,
	} {
		if got := depths(parse(t, page).Root()); got != want {
			t.Errorf("%s: %d, want %d", page, got, want)
		}
	}
}

// A page whose main content would take too long to find has none.
func TestMainContentIsBounded(t *testing.T) {
	t.Parallel()
	const words = "<p>some words, that are read, and more of them, so that it is long enough to count.</p>"
	for name, tt := range map[string]struct {
		page  string
		found bool
	}{
		"an article": {strings.Repeat(words, 20), true},
		"deep":       {strings.Repeat("<div>", 480) + strings.Repeat(words, 12_000), false},
		"large":      {strings.Repeat(words, 20_000), false},
	} {
		if got := parse(t, tt.page).mainContent() != nil; got != tt.found {
			t.Errorf("%s: found %v", name, got)
		}
	}
}
