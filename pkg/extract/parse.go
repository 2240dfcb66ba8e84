package extract

import (
	"bytes"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/text/encoding"

	"example.com/trawl/pkg/crawl"
)

// Parse parses a page, valid UTF-8 without a byte order mark, that was found at the URL in the
// end. What is for readers without scripts is markup like any other. The error is a
// [*crawl.Fault] of [crawl.CodeTooComplex] for one whose tree would be too large or too deep.
func Parse(page []byte, at crawl.URL) (*Document, error) {
	if tooMuch(page) {
		return nil, crawl.Faultf(crawl.CodeTooComplex, "The page has more elements than the %d that fields and content "+
			"are taken from, or more than %d attributes in one tag.", MaxNodes, maxAttrs)
	}
	root, err := html.ParseWithOptions(bytes.NewReader(page), html.ParseOptionEnableScripting(false))
	if err != nil {
		f := crawl.Faultf(crawl.CodeTooComplex, "The page nests elements more than 512 deep, "+
			"which is too deep to take fields or content from it.")
		f.Err = err
		return nil, f
	}
	d := &Document{root: root, at: at}
	for range root.Descendants() {
		d.nodes++
	}
	d.base = baseOf(root, at, nil)
	return d, nil
}

// baseOf returns what the links of a page are relative to: the first base element that has an
// address counts, and where that is no http URL, none does. Source: HTML section 4.2.3.
func baseOf(root *html.Node, at crawl.URL, enc encoding.Encoding) crawl.URL {
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || n.DataAtom != atom.Base || n.Namespace != "" || !hasAttr(n, "href") || inTemplate(n) {
			continue
		}
		if u, err := at.ResolveEncoded(attrOf(n, "href"), enc); err == nil {
			return u
		}
		break
	}
	return at
}

// inTemplate reports whether n is in a template, whose content is no part of the page.
func inTemplate(n *html.Node) bool {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.DataAtom == atom.Template && p.Namespace == "" {
			return true
		}
	}
	return false
}
