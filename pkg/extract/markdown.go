package extract

import (
	"strings"
	"sync"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/strikethrough"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxMarkdownNodes bounds the trees that are converted, for the converter takes more than linear
// time on some. A larger page is its text, which is Markdown without structure.
const maxMarkdownNodes = 100_000

// maxMarkdownSigns bounds the signs that may mean something in Markdown: for each of them the
// converter looks at what follows. A manual of a megabyte has some ten thousand.
const maxMarkdownSigns = 50_000

// maxMarkdownDepth bounds how deep elements nest in what is converted, for each level of lists and
// quotes copies all that is in it. What is deeper keeps its content, without its structure.
const maxMarkdownDepth = 64

// maxBracketSteps bounds what the converter looks through for the ends of brackets: for each that
// opens all up to one that closes, which is quadratic where none does. A page beyond it is its text.
const maxBracketSteps = 1 << 28

// markdownConverter is built once: it holds no state of a page.
var markdownConverter = sync.OnceValue(func() *converter.Converter {
	return converter.NewConverter(converter.WithPlugins(
		base.NewBasePlugin(),
		commonmark.NewCommonmarkPlugin(
			commonmark.WithListEndComment(false),
			commonmark.WithLinkEmptyHrefBehavior(commonmark.LinkBehaviorSkip),
			commonmark.WithLinkEmptyContentBehavior(commonmark.LinkBehaviorSkip),
		),
		strikethrough.NewStrikethroughPlugin(),
		// Padding would make a table of n rows and one long cell n times as long as that cell.
		table.NewTablePlugin(
			table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal),
			table.WithHeaderPromotion(true),
			table.WithSkipEmptyRows(true),
		),
	))
})

// markdown returns n as Markdown, and whether it was cut.
func (d *Document) markdown(n *html.Node) (text string, cut bool) {
	defer func() {
		// A tree that the converter does not get along with is its text.
		if recover() != nil {
			text, cut = escapedText(n)
		}
	}()
	c := copier{d: d, bytes: 2 * MaxTextBytes, left: maxMarkdownNodes, signs: maxMarkdownSigns}
	tree := c.tree(n)
	if c.left < 0 || c.signs < 0 || c.steps+c.brackets*(2*MaxTextBytes-c.bytes) > maxBracketSteps {
		return escapedText(n)
	}
	out, err := markdownConverter().ConvertNode(tree)
	if err != nil {
		return escapedText(n)
	}
	text, cut = cutText(strings.Trim(strings.ToValidUTF8(string(out), "\uFFFD"), "\n"), MaxTextBytes)
	return text, cut || c.cut
}

// escapedText returns the text of n as Markdown that has no markup: nothing in it is HTML.
func escapedText(n *html.Node) (string, bool) {
	text, cut := textOf(n, MaxTextBytes)
	text, more := cutText(textEscaper.Replace(text), MaxTextBytes)
	return text, cut || more
}

var textEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;")

// copier copies what a reader sees of a tree, for a library that changes what it converts.
type copier struct {
	d     *Document
	left  int // nodes
	bytes int // of texts and addresses, left
	signs int // left
	cut   bool
	// steps and brackets are the distances of brackets in a text, and those that it does not close.
	steps, brackets int
}

func (c *copier) tree(n *html.Node) *html.Node {
	root := &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div}
	c.children(root, n, 0, false)
	return root
}

// children copies what is in n to the end of to. The depth is that of to.
func (c *copier) children(to, n *html.Node, depth int, pre bool) {
	for at := n.FirstChild; at != nil && c.left >= 0; at = at.NextSibling {
		switch {
		case at.Type == html.TextNode:
			c.text(to, at.Data, pre)
		case at.Type != html.ElementNode || isUnseen(at):
		default:
			c.element(to, at, depth, pre)
		}
	}
}

func (c *copier) element(to, n *html.Node, depth int, pre bool) {
	attrs, keep := c.attributes(n)
	if !keep || depth >= maxMarkdownDepth || n.DataAtom == atom.Table && isLayout(n) {
		c.children(to, n, depth, pre)
		return
	}
	if n.DataAtom == atom.Img && len(attrs) == 0 {
		return
	}
	c.left--
	e := &html.Node{Type: html.ElementNode, Data: n.Data, DataAtom: n.DataAtom, Attr: attrs}
	to.AppendChild(e)
	c.children(e, n, depth+1, pre || kept[n.DataAtom])
}

// text copies a text without the signs that are not seen.
func (c *copier) text(to *html.Node, s string, pre bool) {
	if len(s) > c.bytes {
		s = cutLine(s, max(c.bytes, 0))
		c.cut = true
	}
	c.bytes -= len(s)
	s = strings.Map(func(r rune) rune {
		switch {
		case isWidthless(r):
			return -1
		case r == '\u00A0' && !pre:
			return ' '
		case r < ' ' && r != '\n' && r != '\t', r == 0x7F:
			return -1
		}
		return r
	}, s)
	if s == "" {
		return
	}
	for i := range len(s) {
		if strings.IndexByte("*_`[]~<", s[i]) >= 0 {
			c.signs--
		}
	}
	c.left--
	c.countBrackets(s)
	to.AppendChild(&html.Node{Type: html.TextNode, Data: s})
}

// countBrackets counts what the converter looks through for the ends of the brackets of a text.
func (c *copier) countBrackets(s string) {
	end := -1
	for i := strings.LastIndexAny(s, "[]"); i >= 0; i = strings.LastIndexAny(s[:i], "[]") {
		switch {
		case s[i] == ']':
			end = i
		case end < 0:
			c.brackets++
		default:
			c.steps += end - i
		}
	}
}

// attributes returns those of an element that its Markdown says something of, and whether the
// element is more than its content.
func (c *copier) attributes(n *html.Node) ([]html.Attribute, bool) {
	if n.Namespace != "" {
		return nil, false
	}
	switch n.DataAtom {
	case atom.A:
		href := c.address(attrOf(n, "href"))
		if href == "" {
			return nil, false
		}
		return c.titled(n, html.Attribute{Key: "href", Val: href}), true
	case atom.Img:
		src := c.address(imageOf(n))
		if src == "" {
			return nil, true
		}
		alt := oneLine(attrOf(n, "alt"), maxTitleBytes)
		return c.titled(n, html.Attribute{Key: "src", Val: src}, html.Attribute{Key: "alt", Val: alt}), true
	case atom.Code, atom.Pre:
		return some(n, "class", "lang", "data-lang", "data-language"), true
	case atom.Ol:
		return some(n, "start"), true
	case atom.Td, atom.Th:
		return some(n, "align"), true
	case atom.Font, atom.Label, atom.Big, atom.Small, atom.U, atom.Form, 0:
		return nil, n.DataAtom != 0 && blocks[n.DataAtom] != 0
	}
	return nil, true
}

func (c *copier) titled(n *html.Node, attrs ...html.Attribute) []html.Attribute {
	if title := oneLine(attrOf(n, "title"), maxTitleBytes); title != "" {
		attrs = append(attrs, html.Attribute{Key: "title", Val: title})
	}
	return attrs
}

// address returns the URL that an address means, in the form in which it can stand in Markdown.
func (c *copier) address(href string) string {
	if href == "" {
		return ""
	}
	u, ok := c.d.resolve(href)
	if !ok {
		return ""
	}
	s := u.String()
	if len(s) > c.bytes {
		c.cut = true
		return ""
	}
	c.bytes -= len(s)
	return markdownAddress.Replace(s)
}

var markdownAddress = strings.NewReplacer("(", "%28", ")", "%29", "<", "%3C", ">", "%3E", " ", "%20")

// imageOf returns the address of an image, also of one that a script loads late.
func imageOf(n *html.Node) string {
	src := attrOf(n, "src")
	if src != "" && !strings.HasPrefix(src, "data:") {
		return src
	}
	return attrOf(n, "data-src")
}

// some returns these attributes of n, cut where they are long.
func some(n *html.Node, names ...string) []html.Attribute {
	var out []html.Attribute
	for _, name := range names {
		if v := attrOf(n, name); v != "" && len(v) <= maxNameBytes {
			out = append(out, html.Attribute{Key: name, Val: v})
		}
	}
	return out
}

// isLayout reports whether a table lays out a page: it has other tables or headings inside, or
// something else that a cell of a Markdown table cannot hold.
func isLayout(table *html.Node) bool {
	for n := table.FirstChild; n != nil; n = next(n, table) {
		switch n.DataAtom {
		case atom.Table, atom.H1, atom.H2, atom.H3, atom.Article, atom.Main, atom.Pre, atom.Blockquote:
			return true
		}
	}
	return false
}
