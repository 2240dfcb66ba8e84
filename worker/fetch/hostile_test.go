package fetch

import (
	"fmt"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
)

// BenchmarkHostile parses pages of the size limit that are made to be slow. None
// may take longer than a few times what the plain one does.
func BenchmarkHostile(b *testing.B) {
	fill := func(head, again string) string {
		return head + strings.Repeat(again, (DefaultMaxBodyBytes-len(head))/len(again))
	}
	attributes := func(n int) string {
		var s strings.Builder
		s.WriteString("<b")
		for i := range n {
			fmt.Fprintf(&s, " %x", i)
		}
		return s.String() + ">"
	}
	pages := map[string]string{
		"plain":             fill("", `<p class="x">some words</p>`),
		"links":             fill("", "<a href=x>"),
		"links_in_svg":      fill(strings.Repeat("<svg><desc>", maxNesting), "<a href=x>"),
		"svg":               fill("", "<svg>"),
		"templates":         fill(strings.Repeat("<svg>", maxNesting), "</template>"),
		"attributes":        attributes(700_000),
		"attributes_before": fill(attributes(100_000), "<b c>"),
		"some_attributes":   fill(attributes(230), "<b c>"),
		"long_tags":         fill("", "<b "+strings.Repeat("c ", longTag/2)+">"),
		"metas":             fill("", "<meta name=robots content=noindex>"),
		"meta_dates":        fill("", "<meta name=robots content=unavailable_after:x,y,z>"),
		"long_meta":         fill("<meta name=robots content='", "unavailable_after:x,") + "'>",
		"refreshes":         fill("", "<meta http-equiv=refresh content=0;url=x>"),
		"bytes":             fill("", "\xe9\xe8 \xff"),
		"open_comment":      fill("<!--", "<!--"),
		"open_title":        fill("<title>", "</titl"),
		"less_than":         fill("", "<"),
		"entities":          fill("<title>", "&notit;"),
	}
	for name, page := range pages {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(page)))
			b.ReportAllocs()
			for b.Loop() {
				p := parser{
					document: must(crawl.ParseURL("http://site.test/")),
					links:    true,
					maxLinks: DefaultMaxLinks,
					product:  "TestBot",
				}
				p.parseHTML(p.decode([]byte(page), ""))
			}
		})
	}
}
