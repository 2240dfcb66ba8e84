package extract

import (
	"iter"
	"strings"
	"sync"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/marker"
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
	c := converter.NewConverter(converter.WithPlugins(
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
	c.Register.RendererFor("a", converter.TagTypeInline, renderLink, converter.PriorityEarly)
	c.Register.RendererFor("img", converter.TagTypeInline, renderImage, converter.PriorityEarly)
	return c
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
	// cells are the cells around of tables that stay tables.
	cells int
	// codes are the elements of inline code around, whose text is as it is.
	codes int
	// textNode is the last text, whose data is in buffer until it ends: the converter would join
	// neighbours one by one, each time with a copy of all before.
	textNode *html.Node
	buffer   []byte
}

func (c *copier) tree(n *html.Node) *html.Node {
	root := &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div}
	c.children(root, n, 0, false)
	c.endText()
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
	if c.cells > 0 && (n.DataAtom == atom.Br || blocks[n.DataAtom] != 0) {
		// The cell of a Markdown table is one line.
		c.add(to, " ")
		c.children(to, n, depth, pre)
		c.add(to, " ")
		return
	}
	attrs, keep := c.attributes(n)
	if !keep || depth >= maxMarkdownDepth || n.DataAtom == atom.Img && len(attrs) == 0 {
		c.children(to, n, depth, pre)
		return
	}
	switch n.DataAtom {
	case atom.Table:
		c.table(to, n, depth, pre)
		return
	case atom.Tr, atom.Td, atom.Th, atom.Caption, atom.Tbody, atom.Thead, atom.Tfoot:
		// What is in no table here lays out a page.
		c.children(c.child(to, &html.Node{Data: "div", DataAtom: atom.Div}), n, depth+1, pre)
		return
	}
	e := c.child(to, &html.Node{Data: n.Data, DataAtom: n.DataAtom, Attr: attrs})
	if codes[n.DataAtom] {
		c.codes++
		defer func() { c.codes-- }()
	}
	c.children(e, n, depth+1, pre || kept[n.DataAtom])
}

// codes are the elements whose text is code, in which no sign is escaped.
var codes = map[atom.Atom]bool{
	atom.Code: true, atom.Kbd: true, atom.Samp: true, atom.Tt: true, atom.Var: true, atom.Pre: true,
}

// child adds an element to the end of to.
func (c *copier) child(to, e *html.Node) *html.Node {
	c.left--
	e.Type = html.ElementNode
	to.AppendChild(e)
	return e
}

// table copies a table: as rows of cells, or as what is in them where it lays out a page.
func (c *copier) table(to, n *html.Node, depth int, pre bool) {
	if c.cells > 0 || isLayout(n) {
		c.children(to, n, depth, pre)
		return
	}
	t := c.child(to, &html.Node{Data: "table", DataAtom: atom.Table})
	for at := range rows(n) {
		row := c.child(t, &html.Node{Data: "tr", DataAtom: atom.Tr})
		for cell := at.FirstChild; cell != nil; cell = cell.NextSibling {
			if cell.DataAtom == atom.Td || cell.DataAtom == atom.Th {
				e := c.child(row, &html.Node{Data: cell.Data, DataAtom: cell.DataAtom, Attr: some(cell, "align")})
				c.cells++
				c.children(e, cell, depth+3, false)
				c.cells--
			}
		}
	}
	for at := n.FirstChild; at != nil; at = at.NextSibling {
		if at.DataAtom == atom.Caption {
			c.children(c.child(to, &html.Node{Data: "p", DataAtom: atom.P}), at, depth+1, false)
		}
	}
}

// rows are the rows of a table, without those of tables in it.
func rows(table *html.Node) iter.Seq[*html.Node] {
	return func(yield func(*html.Node) bool) {
		for part := table.FirstChild; part != nil; part = part.NextSibling {
			if part.DataAtom != atom.Tbody && part.DataAtom != atom.Thead && part.DataAtom != atom.Tfoot {
				continue
			}
			for row := part.FirstChild; row != nil; row = row.NextSibling {
				if row.DataAtom == atom.Tr && !yield(row) {
					return
				}
			}
		}
	}
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
		case isWidthless(r), r == marker.MarkerCodeBlockNewline:
			return -1
		case r == '\u00A0' && !pre:
			return ' '
		case r < ' ' && r != '\n' && r != '\t', r == 0x7F:
			return -1
		}
		return r
	}, s)
	switch {
	case c.codes == 0:
		c.countSigns(s)
		c.countBrackets(s)
		s = escapeEntities(s)
	case c.cells > 0:
		s = strings.ReplaceAll(s, "|", `\|`) // a bar ends a cell in code, too
	}
	c.add(to, s)
}

// add adds to the text at the end of to.
func (c *copier) add(to *html.Node, s string) {
	if s == "" {
		return
	}
	if c.textNode == nil || to.LastChild != c.textNode {
		c.endText()
		c.left--
		c.textNode = &html.Node{Type: html.TextNode}
		to.AppendChild(c.textNode)
	}
	c.buffer = append(c.buffer, s...)
}

// endText gives the last text its data.
func (c *copier) endText() {
	if c.textNode != nil {
		c.textNode.Data = string(c.buffer)
	}
	c.textNode, c.buffer = nil, c.buffer[:0]
}

// escapeEntities keeps what a reader sees as a character reference from being one.
func escapeEntities(s string) string {
	if !strings.Contains(s, "&") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		b.WriteByte(s[i])
		if s[i] == '&' && isEntity(s[i+1:]) {
			b.WriteString("amp;")
		}
	}
	return b.String()
}

// maxEntity is longer than the longest name of a character.
const maxEntity = 40

func isEntity(s string) bool {
	for i := range min(len(s), maxEntity) {
		switch c := s[i]; {
		case c == ';':
			return i > 0
		case c == '#' && i == 0, '0' <= c && c <= '9', 'a' <= c|0x20 && c|0x20 <= 'z':
		default:
			return false
		}
	}
	return false
}

func (c *copier) countSigns(s string) {
	for i := range len(s) {
		if strings.IndexByte("*_`[]~<", s[i]) >= 0 {
			c.signs--
		}
	}
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
		return c.titled(n, html.Attribute{Key: "src", Val: src}, html.Attribute{Key: "alt", Val: c.label(n, "alt")}), true
	case atom.Code, atom.Pre:
		if lang := codeLanguage(n); lang != "" {
			return []html.Attribute{{Key: "class", Val: "language-" + lang}}, true
		}
		return nil, true
	case atom.Ol:
		return some(n, "start"), true
	case atom.Font, atom.Label, atom.Big, atom.Small, atom.U, atom.Form, 0:
		return nil, n.DataAtom != 0 && blocks[n.DataAtom] != 0
	}
	return nil, true
}

func (c *copier) titled(n *html.Node, attrs ...html.Attribute) []html.Attribute {
	if title := c.label(n, "title"); title != "" {
		attrs = append(attrs, html.Attribute{Key: "title", Val: title})
	}
	return attrs
}

// label returns an attribute that is a text.
func (c *copier) label(n *html.Node, name string) string {
	s := oneLine(attrOf(n, name), maxTitleBytes)
	if len(s) > c.bytes {
		c.cut = true
		return ""
	}
	c.bytes -= len(s)
	c.countSigns(s)
	return strings.ReplaceAll(s, string(marker.MarkerCodeBlockNewline), "")
}

// codeLanguage returns the language of a block of code, as highlighters write it: class
// language-go or lang-go (HTML section 4.5.15), or an attribute. What can be no name of one is none,
// for it stands on the line of the fence.
func codeLanguage(n *html.Node) string {
	class := cutLine(attrOf(n, "class"), 4*maxNameBytes)
	names := []string{attrOf(n, "data-lang"), attrOf(n, "data-language")}
	for token := range strings.FieldsSeq(class) {
		for _, prefix := range []string{"language-", "lang-", "highlight-source-"} {
			if name, ok := strings.CutPrefix(token, prefix); ok {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		if name != "" && len(name) <= maxLanguageBytes && strings.IndexFunc(name, notInLanguage) < 0 {
			return name
		}
	}
	return ""
}

func notInLanguage(r rune) bool {
	return (r < '0' || r > '9') && (r|0x20 < 'a' || r|0x20 > 'z') && !strings.ContainsRune("+#-._", r)
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

var markdownAddress = strings.NewReplacer("(", "%28", ")", "%29", "<", "%3C", ">", "%3E", " ", "%20", "|", "%7C")

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

// maxGrid bounds the cells of a Markdown table for each cell that the page has: short rows are
// filled up to the longest, and one long row among many short ones would be quadratic.
const maxGrid = 8

// isLayout reports whether a table lays out a page: it has other tables or headings inside, or
// something else that a cell of a Markdown table cannot hold. So it is with one whose rows are too
// unlike each other.
func isLayout(table *html.Node) bool {
	for n := table.FirstChild; n != nil; n = next(n, table) {
		switch n.DataAtom {
		case atom.Table, atom.H1, atom.H2, atom.H3, atom.Article, atom.Main, atom.Pre, atom.Blockquote:
			return true
		}
	}
	height, width, all := 0, 0, 0
	for row := range rows(table) {
		cells := 0
		for cell := row.FirstChild; cell != nil; cell = cell.NextSibling {
			if cell.DataAtom == atom.Td || cell.DataAtom == atom.Th {
				cells++
			}
		}
		height, width, all = height+1, max(width, cells), all+cells
	}
	return all == 0 || height*width > maxGrid*all
}
