package extract

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
)

// taking is one call of [Document.Content].
type taking struct {
	document *Document
	wants    Wants
	content  *crawl.Content
	notes    []crawl.Note
}

func (t *taking) wanted(format string) bool { return slices.Contains(t.wants.Formats, format) }

func (t *taking) note(about, what string, count int) {
	t.notes = append(t.notes, crawl.Note{About: about, What: what, Count: count})
}

func (t *taking) take() {
	if t.wanted(crawl.FormatMarkdown) || t.wanted(crawl.FormatText) {
		t.takeTexts()
	}
	if t.wanted(crawl.FormatLinks) {
		links, cut := t.document.links(t.wants.InScope)
		t.content.Links = links
		if cut > 0 {
			t.note(crawl.FormatLinks, crawl.NoteCut, cut)
		}
	}
	if t.wanted(crawl.FormatMetadata) {
		m, cut := t.document.metadata()
		t.content.Metadata = m
		if cut > 0 {
			t.note(crawl.FormatMetadata, crawl.NoteCut, cut)
		}
	}
}

func (t *taking) takeTexts() {
	root := t.document.root
	if t.wants.MainContent {
		main := t.document.mainContent()
		if main != nil {
			root = main
		}
		for _, f := range []string{crawl.FormatMarkdown, crawl.FormatText} {
			if main == nil && t.wanted(f) {
				t.note(f, crawl.NoteNoMainContent, 0)
			}
		}
	}
	if t.wanted(crawl.FormatMarkdown) {
		t.content.Markdown = t.text(crawl.FormatMarkdown, func() (string, bool) { return t.document.markdown(root) })
	}
	if t.wanted(crawl.FormatText) {
		t.content.Text = t.text(crawl.FormatText, func() (string, bool) { return textOf(root, MaxTextBytes) })
	}
}

func (t *taking) text(format string, of func() (string, bool)) *string {
	s, cut := of()
	if cut {
		t.note(format, crawl.NoteCut, 0)
	}
	return &s
}

// cutText returns at most so many bytes of s, whole lines where the last one begins not too far
// from there, whole characters otherwise.
func cutText(s string, most int) (string, bool) {
	if len(s) <= most {
		return s, false
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	s = s[:most]
	if i := strings.LastIndexByte(s, '\n'); i > most-most/8 {
		s = s[:i]
	}
	return strings.TrimRight(s, "\n "), true
}

// cutLine returns at most so many bytes of s, of whole characters.
func cutLine(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// attrOf returns an attribute of n, "" where it has none.
func attrOf(n *html.Node, name string) string {
	for i := range n.Attr {
		if n.Attr[i].Key == name && n.Attr[i].Namespace == "" {
			return n.Attr[i].Val
		}
	}
	return ""
}

// hasAttr reports whether n has the attribute.
func hasAttr(n *html.Node, name string) bool {
	for i := range n.Attr {
		if n.Attr[i].Key == name && n.Attr[i].Namespace == "" {
			return true
		}
	}
	return false
}
