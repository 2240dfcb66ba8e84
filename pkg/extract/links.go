package extract

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"example.com/trawl/pkg/crawl"
)

// Bounds of the links of a page, besides [MaxLinks] and [MaxLinkText].
const (
	maxLinkBytes = 1 << 20 // URLs and texts together
	maxRelBytes  = 100
	// maxLinkTries bounds the links that are read, also those that are no http URL or were there
	// before.
	maxLinkTries = 20 * MaxLinks
)

// linkKey is what tells links apart.
type linkKey struct{ url, text string }

// links returns the links of the page in their order, and how many were left out.
func (d *Document) links(inScope func(crawl.URL) bool) (links []crawl.PageLink, left int) {
	links = []crawl.PageLink{}
	seen := map[linkKey]bool{}
	size, tries := 0, 0
	d.visit(func(n *html.Node) {
		if n.Namespace != "" || n.DataAtom != atom.A && n.DataAtom != atom.Area || !hasAttr(n, "href") {
			return
		}
		if tries++; len(links) >= MaxLinks || size >= maxLinkBytes || tries > maxLinkTries {
			left++
			return
		}
		u, ok := d.resolve(attrOf(n, "href"))
		if !ok {
			return
		}
		l := crawl.PageLink{URL: u.String(), Text: linkText(n), Rel: relOf(n)}
		if seen[linkKey{l.URL, l.Text}] {
			return
		}
		seen[linkKey{l.URL, l.Text}] = true
		l.InScope = inScope != nil && inScope(u)
		size += len(l.URL) + len(l.Text)
		links = append(links, l)
	})
	return links, left
}

// linkText returns the text of a link: what it shows, or what stands in for it where it shows an
// image or nothing.
func linkText(n *html.Node) string {
	if text, _ := lineOf(n, MaxLinkText); text != "" {
		return text
	}
	for at, i := n.FirstChild, 0; at != nil && i < 100; i++ {
		if at.DataAtom == atom.Img && attrOf(at, "alt") != "" {
			return oneLine(attrOf(at, "alt"), MaxLinkText)
		}
		at = next(at, n)
	}
	for _, name := range []string{"aria-label", "alt", "title"} {
		if text := oneLine(attrOf(n, name), MaxLinkText); text != "" {
			return text
		}
	}
	return ""
}

func relOf(n *html.Node) string {
	rel := cutLine(attrOf(n, "rel"), 4*maxRelBytes)
	rel = cutLine(strings.ToLower(strings.Join(strings.Fields(rel), " ")), maxRelBytes)
	return rel
}

// oneLine returns a text that stands in an attribute as one line, by the rules of the text of an
// element.
func oneLine(s string, most int) string {
	w := textWriter{most: most, flat: true}
	w.text(s)
	line, _ := w.done()
	return line
}

// visit calls f for each element of the page, in order, without those in templates.
func (d *Document) visit(f func(*html.Node)) {
	for n := d.root.FirstChild; n != nil; {
		if n.Type == html.ElementNode {
			f(n)
			if n.DataAtom == atom.Template && n.Namespace == "" {
				n = after(n, d.root)
				continue
			}
		}
		n = next(n, d.root)
	}
}

// next returns the node behind n in the order of the page, within root; nil behind the last.
func next(n, root *html.Node) *html.Node {
	if n.FirstChild != nil {
		return n.FirstChild
	}
	return after(n, root)
}

// after is next without what is in n.
func after(n, root *html.Node) *html.Node {
	for n != root && n.NextSibling == nil {
		n = n.Parent
	}
	if n == root {
		return nil
	}
	return n.NextSibling
}
