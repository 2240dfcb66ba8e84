package fields

import (
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/cascadia"
	"golang.org/x/net/html"
	"pgregory.net/rapid"
)

// Walking forward over compounds finds what cascadia finds by walking back from each element.
func TestSelectorsAgreeWithCascadia(t *testing.T) {
	t.Parallel()
	compound := rapid.SampledFrom([]string{
		"*", "a", "b", "i", ".x", ".y", "#z", "a.x", "b.y.x", "[t]", "[t=v]", "i:first-child", ":last-child",
		":nth-child(2)", "a:not(.x)",
		":not(a b)", ":has(i)", "b:not(:has(a))", ":empty", "a:contains('k')", "a:only-child", ":root",
	})
	combinator := rapid.SampledFrom([]string{" ", ">", "+", "~", " > ", " + "})
	rapid.Check(t, func(t *rapid.T) {
		var selector strings.Builder
		for group := range rapid.IntRange(1, 3).Draw(t, "groups") {
			if group > 0 {
				selector.WriteString(", ")
			}
			selector.WriteString(compound.Draw(t, "first"))
			for range rapid.IntRange(0, 3).Draw(t, "links") {
				selector.WriteString(combinator.Draw(t, "combinator") + compound.Draw(t, "next"))
			}
		}
		doc := &html.Node{Type: html.DocumentNode}
		grow(t, doc, rapid.IntRange(1, 4).Draw(t, "depth"))
		compiled, err := cascadia.ParseGroup(selector.String())
		if err != nil {
			t.Fatal(err)
		}
		css, err := parseCSS(selector.String())
		if err != nil {
			t.Skip() // :not(:has()) and the like
		}
		x := newIndex(doc)
		left := budget{left: MaxSteps}
		got, err := x.find(css.free, -1, 0, int32(len(x.nodes)), &left)
		if err != nil {
			t.Fatal(err)
		}
		want := slices.DeleteFunc(cascadia.QueryAll(doc, compiled), func(n *html.Node) bool {
			return n.Type != html.ElementNode // :contains takes texts, too
		})
		if len(got) != len(want) {
			t.Fatalf("%s on %s: %d elements, want %d", &selector, rendered(doc), len(got), len(want))
		}
		for i, n := range want {
			if x.nodes[got[i]] != n {
				t.Fatalf("%s on %s: element %d differs", &selector, rendered(doc), i)
			}
		}
	})
}

func grow(t *rapid.T, at *html.Node, depth int) {
	for range rapid.IntRange(0, 4).Draw(t, "children") {
		if rapid.IntRange(0, 4).Draw(t, "text") == 0 {
			at.AppendChild(&html.Node{Type: html.TextNode, Data: "k"})
			continue
		}
		n := &html.Node{Type: html.ElementNode, Data: rapid.SampledFrom([]string{"a", "b", "i"}).Draw(t, "name")}
		if class := rapid.SampledFrom([]string{"", "x", "y", "x y"}).Draw(t, "class"); class != "" {
			n.Attr = append(n.Attr, html.Attribute{Key: "class", Val: class})
		}
		if rapid.Bool().Draw(t, "attr") {
			n.Attr = append(n.Attr, html.Attribute{Key: "t", Val: "v"})
		}
		if rapid.IntRange(0, 9).Draw(t, "id") == 0 {
			n.Attr = append(n.Attr, html.Attribute{Key: "id", Val: "z"})
		}
		at.AppendChild(n)
		if depth > 0 {
			grow(t, n, depth-1)
		}
	}
}

// What an index says of an element is so.
func TestIndex(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		doc := &html.Node{Type: html.DocumentNode}
		grow(t, doc, 3)
		x := newIndex(doc)
		for i, n := range x.nodes {
			if up := x.parent[i]; up >= 0 && x.nodes[up] != n.Parent || up < 0 && n.Parent != doc {
				t.Fatal("parent")
			}
			inside, children, text := 0, int32(0), 0
			for at := n.FirstChild; at != nil; at = following(at, n) {
				if at.Type == html.ElementNode {
					inside++
				} else {
					text += len(at.Data)
				}
				if at.Parent == n {
					children++
				}
			}
			if int(x.end[i])-i-1 != inside || x.children[i] != children || int(x.text[i]) != text {
				t.Fatalf("element %d: inside %d want %d, children %d want %d, text %d want %d",
					i, int(x.end[i])-i-1, inside, x.children[i], children, x.text[i], text)
			}
			before := n.PrevSibling
			for before != nil && before.Type != html.ElementNode {
				before = before.PrevSibling
			}
			if p := x.previous[i]; p >= 0 && x.nodes[p] != before || p < 0 && before != nil {
				t.Fatal("previous")
			}
		}
	})
}
