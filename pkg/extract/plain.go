package extract

import (
	"strings"
	"unicode"

	"example.com/trawl/pkg/crawl"
)

// Plain is Content of a page that is text and no HTML, of a media type such as text/plain. The text
// is the page itself, with line breaks as one character each and without control characters. Plain
// text and Markdown are their own markdown; what is of another media type, such as JSON or XML, has
// none.
func Plain(text []byte, media string, w Wants) (*crawl.Content, []crawl.Note) {
	t := &taking{wants: w, content: &crawl.Content{}}
	if !t.wanted(crawl.FormatMarkdown) && !t.wanted(crawl.FormatText) {
		return nil, nil
	}
	clean, cut := cutText(plainText(text), MaxTextBytes)
	if t.wanted(crawl.FormatMarkdown) && isProse(media) {
		t.content.Markdown = t.text(crawl.FormatMarkdown, func() (string, bool) { return clean, cut })
	}
	if t.wanted(crawl.FormatText) {
		t.content.Text = t.text(crawl.FormatText, func() (string, bool) { return clean, cut })
	}
	if t.content.IsZero() {
		return nil, nil
	}
	return t.content, t.notes
}

func isProse(media string) bool {
	media, _, _ = strings.Cut(media, ";")
	switch strings.ToLower(strings.TrimSpace(media)) {
	case "text/plain", "text/markdown", "text/x-markdown":
		return true
	}
	return false
}

func plainText(text []byte) string {
	if len(text) > MaxTextBytes+MaxTextBytes/8 {
		// What is dropped below is little, and what is behind the bound is cut anyway.
		text = text[:MaxTextBytes+MaxTextBytes/8]
	}
	s := strings.ToValidUTF8(string(text), "\uFFFD")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			return '\n'
		case r == '\uFEFF', unicode.IsControl(r) && r != '\n' && r != '\t':
			return -1
		}
		return r
	}, s)
}
