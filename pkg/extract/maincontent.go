package extract

import (
	"net/url"

	"codeberg.org/readeck/go-readability/v2"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxMainNodes bounds the pages whose main content is looked for.
const maxMainNodes = 30_000

// maxMainDepths bounds the depths of all nodes of such a page together: the way up from each is
// walked several times.
const maxMainDepths = 2_000_000

// minMainText is what a main content has at least, in bytes of text.
const minMainText = 140

// mainContent returns the part of the page that readers come for, a tree of its own; nil where
// none stands out, or the page is too large to look for one.
func (d *Document) mainContent() (main *html.Node) {
	if d.nodes > maxMainNodes || depths(d.root) > maxMainDepths {
		return nil
	}
	at, err := url.Parse(d.base.String())
	if err != nil {
		return nil
	}
	defer func() {
		// A page that the library does not get along with has no main content that it can find.
		if recover() != nil {
			main = nil
		}
	}()
	p := readability.NewParser()
	p.DisableJSONLD = true
	p.KeepClasses = true // one of them says the language of a block of code
	article, err := p.ParseDocument(d.root, at)
	if err != nil || article.Node == nil {
		return nil
	}
	nameAnew(article.Node)
	if text, _ := lineOf(article.Node, minMainText); len(text) < minMainText/2 {
		return nil
	}
	return article.Node
}

// depths returns the sum of the depths of all nodes below root.
func depths(root *html.Node) int {
	sum, depth := 0, 1
	for n := root.FirstChild; n != nil; n = n.NextSibling {
		sum += depth
		for n.FirstChild != nil {
			n = n.FirstChild
			depth++
			sum += depth
		}
		for n.NextSibling == nil {
			if n = n.Parent; n == root {
				return sum
			}
			depth--
		}
	}
	return sum
}

// nameAnew gives the elements of a tree the atoms of their names: the library makes paragraphs of
// other elements by their names alone, and by the atoms they would be no blocks.
func nameAnew(root *html.Node) {
	for n := root; n != nil; n = next(n, root) {
		if n.Type == html.ElementNode {
			n.DataAtom = atom.Lookup([]byte(n.Data))
		}
	}
}
