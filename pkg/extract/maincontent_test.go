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

// A page that has div where others have p has paragraphs, and no words that are glued (HTM-06).
func TestMainContentKeepsParagraphs(t *testing.T) {
	t.Parallel()
	const words = "some words, that are read, and more of them, so that it is long enough to count"
	d := parse(t, "<title>T</title><div>"+strings.Repeat("<div>"+words+"</div>", 20)+"</div>")
	main := d.mainContent()
	if main == nil {
		t.Fatal("there is none")
	}
	want := strings.TrimSuffix(strings.Repeat(words+"\n\n", 20), "\n\n")
	if got, _ := d.markdown(main); got != want {
		t.Errorf("markdown: %.200q", got)
	}
	if got, _ := textOf(main, MaxTextBytes); got != want {
		t.Errorf("text: %.200q", got)
	}
}
