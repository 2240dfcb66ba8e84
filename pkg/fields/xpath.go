package fields

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/antchfx/xpath"
	"golang.org/x/net/html"
)

// XPathPrefix stands before an XPath expression, to tell it from CSS.
const XPathPrefix = "xpath:"

// xpathSelector is a compiled XPath expression. The library keeps the state of an evaluation that
// gives no nodes in the expression itself, which is therefore compiled for each of them.
type xpathSelector struct {
	source string
	nodes  bool // it gives nodes; else a string, a number or a truth value
	expr   *xpath.Expr
}

// Functions that are not offered: the library compiles the expressions of these from what stands
// on the page, and keeps them.
var (
	xpathRefused = []string{"matches", "replace"}
	xpathCall    = regexp.MustCompile(`([a-zA-Z-]+)\s*\(`)
)

// maxXPathNodes is how many nodes are asked for: more than [MaxValues], to count the others.
const maxXPathNodes = 100_000

func parseXPath(source string, inItem bool) (*xpathSelector, error) {
	if strings.TrimSpace(source) == "" {
		return nil, &syntaxError{message: "an expression is expected behind xpath:, for example xpath://h1."}
	}
	if inItem && strings.HasPrefix(strings.TrimLeft(source, " \t\r\n("), "/") {
		return nil, &syntaxError{
			message: "an expression that begins with / is about the whole page, not about the item. Begin it with .//.",
		}
	}
	for _, call := range xpathCall.FindAllStringSubmatch(withoutLiterals(source), -1) {
		if slices.Contains(xpathRefused, call[1]) {
			return nil, &syntaxError{message: call[1] + "() is not offered. Select without it and give the expression as regex."}
		}
	}
	s := &xpathSelector{source: source}
	var err error
	if s.expr, err = compileXPath(source); err != nil {
		return nil, err
	}
	// What an expression gives does not depend on the page. It is tried on an empty one.
	empty := &html.Node{Type: html.DocumentNode}
	empty.AppendChild(&html.Node{Type: html.ElementNode, Data: "html"})
	left := budget{left: 1 << 16}
	s.nodes, err = s.givesNodes(empty, &left)
	return s, err
}

func withoutLiterals(source string) string {
	var b strings.Builder
	quote := byte(0)
	for i := range len(source) {
		c := source[i]
		switch {
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote:
			quote = 0
		case quote == 0:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// compileXPath turns panics of the library into errors: it has them for some wrong expressions.
func compileXPath(source string) (e *xpath.Expr, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, err = nil, xpathError(r)
		}
	}()
	e, err = xpath.Compile(source)
	if err != nil {
		return nil, xpathError(err)
	}
	return e, nil
}

func xpathError(cause any) error {
	return &syntaxError{
		message: fmt.Sprintf("this is no XPath expression that can be used: %v. Mend it, or use CSS.", cause),
	}
}

// givesNodes reports whether the expression gives nodes. Some errors of types show only here.
func (s *xpathSelector) givesNodes(doc *html.Node, left *budget) (nodes bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = xpathError(r)
		}
	}()
	_, nodes = s.expr.Evaluate(&navigator{root: doc, at: doc, attr: -1, left: left}).(*xpath.NodeIterator)
	return nodes, nil
}

// find evaluates the expression at an element. It stops when it has so many nodes.
func (s *xpathSelector) find(doc, at *html.Node, most int, left *budget) (found []match, err error) {
	// The navigator stops an evaluation by a panic, since the library knows no other end; and the
	// library has panics of its own for types that only show on a page, which are no match.
	defer func() {
		if r := recover(); r != nil {
			found, err = nil, nil
			if r == errSteps { //nolint:errorlint // it is the value that was thrown, never wrapped
				err = errSteps
			}
		}
	}()
	nav := &navigator{root: doc, at: at, attr: -1, left: left}
	if !s.nodes {
		return s.scalar(nav)
	}
	for it := s.expr.Select(nav); len(found) < most && it.MoveNext(); {
		n, ok := it.Current().(*navigator)
		if !ok {
			continue
		}
		m := match{node: n.at}
		if n.attr >= 0 {
			m = match{text: n.at.Attr[n.attr].Val, literal: true}
		}
		found = append(found, m)
	}
	return found, nil
}

func (s *xpathSelector) scalar(nav *navigator) ([]match, error) {
	nav.take(8 * len(s.source)) // to compile it
	expr, err := compileXPath(s.source)
	if err != nil {
		return nil, err
	}
	switch v := expr.Evaluate(nav).(type) {
	case string:
		if v == "" { // string(//none) is "", and means that there is none
			return nil, nil
		}
		return []match{{text: v, literal: true}}, nil
	case float64:
		return []match{{text: strconv.FormatFloat(v, 'f', -1, 64), literal: true}}, nil
	case bool:
		return []match{{text: strconv.FormatBool(v), literal: true}}, nil
	}
	return nil, nil
}

// navigator walks a page for an expression and counts its steps: the work of //*//*//* grows with
// the third power of the page, and only the walk itself knows how much there is.
type navigator struct {
	root, at *html.Node
	attr     int // -1 for the node itself
	left     *budget
}

func (n *navigator) take(steps int) {
	if !n.left.spend(steps) {
		panic(errSteps)
	}
}

// NodeType implements xpath.NodeNavigator.
func (n *navigator) NodeType() xpath.NodeType {
	switch n.at.Type {
	case html.CommentNode:
		return xpath.CommentNode
	case html.TextNode, html.RawNode:
		return xpath.TextNode
	case html.ElementNode:
		if n.attr >= 0 {
			return xpath.AttributeNode
		}
		return xpath.ElementNode
	case html.DocumentNode, html.DoctypeNode, html.ErrorNode:
	}
	return xpath.RootNode
}

// LocalName implements xpath.NodeNavigator.
func (n *navigator) LocalName() string {
	if n.attr >= 0 {
		return n.at.Attr[n.attr].Key
	}
	return n.at.Data
}

// Prefix implements xpath.NodeNavigator: HTML has none.
func (n *navigator) Prefix() string { return "" }

// Value implements xpath.NodeNavigator: the string-value, at most [MaxValueBytes] of it.
func (n *navigator) Value() string {
	switch {
	case n.attr >= 0:
		return n.cut(n.at.Attr[n.attr].Val)
	case n.at.Type == html.TextNode || n.at.Type == html.CommentNode || n.at.Type == html.RawNode:
		return n.cut(n.at.Data)
	}
	var b strings.Builder
	for at := n.at.FirstChild; at != nil && b.Len() < MaxValueBytes; at = following(at, n.at) {
		n.take(1)
		if at.Type == html.TextNode {
			b.WriteString(n.cut(at.Data))
		}
	}
	return b.String()
}

func (n *navigator) cut(s string) string {
	s = s[:min(len(s), MaxValueBytes)]
	n.take(1 + len(s)/bytesPerStep)
	return s
}

// following returns the node after at in the order of the page, inside of top; nil at its end.
func following(at, top *html.Node) *html.Node {
	if at.FirstChild != nil {
		return at.FirstChild
	}
	return behind(at, top)
}

// behind is following without what is inside of at.
func behind(at, top *html.Node) *html.Node {
	for at != nil && at != top {
		if at.NextSibling != nil {
			return at.NextSibling
		}
		at = at.Parent
	}
	return nil
}

// Copy implements xpath.NodeNavigator.
func (n *navigator) Copy() xpath.NodeNavigator {
	n.take(2)
	c := *n
	return &c
}

// MoveToRoot implements xpath.NodeNavigator.
func (n *navigator) MoveToRoot() { n.at, n.attr = n.root, -1 }

// MoveToParent implements xpath.NodeNavigator.
func (n *navigator) MoveToParent() bool {
	n.take(1)
	if n.attr >= 0 {
		n.attr = -1
		return true
	}
	if n.at == n.root {
		return false
	}
	return n.move(n.at.Parent)
}

// MoveToNextAttribute implements xpath.NodeNavigator.
func (n *navigator) MoveToNextAttribute() bool {
	n.take(1)
	if n.at.Type != html.ElementNode || n.attr >= len(n.at.Attr)-1 {
		return false
	}
	n.attr++
	return true
}

// MoveToChild implements xpath.NodeNavigator.
func (n *navigator) MoveToChild() bool { return n.move(n.at.FirstChild) }

// MoveToFirst implements xpath.NodeNavigator.
func (n *navigator) MoveToFirst() bool {
	if !n.MoveToPrevious() {
		return false
	}
	for n.MoveToPrevious() {
	}
	return true
}

// MoveToNext implements xpath.NodeNavigator.
func (n *navigator) MoveToNext() bool { return n.move(n.at.NextSibling) }

// MoveToPrevious implements xpath.NodeNavigator.
func (n *navigator) MoveToPrevious() bool { return n.move(n.at.PrevSibling) }

func (n *navigator) move(to *html.Node) bool {
	n.take(1)
	if n.attr >= 0 || to == nil {
		return false
	}
	n.at = to
	return true
}

// MoveTo implements xpath.NodeNavigator.
func (n *navigator) MoveTo(other xpath.NodeNavigator) bool {
	o, ok := other.(*navigator)
	if !ok || o.root != n.root {
		return false
	}
	n.at, n.attr = o.at, o.attr
	return true
}
