package extract

import (
	"strings"
	"testing"
)

// The converter looks for the end of each bracket. A page on which that would take too long is its
// text, with nothing in it that Markdown takes for HTML.
func TestMarkdownOfManyBrackets(t *testing.T) {
	t.Parallel()
	const words = " some words"
	for name, tt := range map[string]struct {
		page      string
		converted bool
	}{
		"none that ends":      {strings.Repeat("[", 30_000) + strings.Repeat(words, 20_000), false},
		"one end for all":     {strings.Repeat("[a ", 30_000) + "]", false},
		"each in a node":      {strings.Repeat("<i>[</i>x", 10_000) + strings.Repeat(words, 20_000), false},
		"notes of an article": {strings.Repeat("<sup>[1]</sup>"+words, 10_000), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := parse(t, "<h1>Title</h1><p>&lt;script&gt; "+tt.page)
			got, cut := d.markdown(d.Root())
			if strings.HasPrefix(got, "# Title") != tt.converted || cut || strings.Contains(got, "<script>") {
				t.Errorf("cut %v: %.100q", cut, got)
			}
		})
	}
}
