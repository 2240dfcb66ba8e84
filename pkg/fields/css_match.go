package fields

import (
	"slices"

	"golang.org/x/net/html"
)

// index numbers the elements of a page in their order, so that what is inside of an element is a
// range and sets of elements are slices.
type index struct {
	nodes     []*html.Node
	parent    []int32 // -1 without one
	end       []int32 // behind the last element inside
	previous  []int32 // the element before it in its parent, or -1
	children  []int32 // of any kind
	depth     []int32
	text      []int32 // bytes of text inside
	textTotal int32
	attrBytes int
	places    map[*html.Node]int32 // made when it is asked for
	now, pass []bool               // scratch
}

// maxText is up to where text is counted.
const maxText = 1 << 30

// newIndex walks the page.
func newIndex(doc *html.Node) *index {
	x := &index{}
	const usual = 1024
	x.nodes = make([]*html.Node, 0, usual)
	x.parent = make([]int32, 0, usual)
	x.end = make([]int32, 0, usual)
	x.previous = make([]int32, 0, usual)
	x.children = make([]int32, 0, usual)
	x.depth = make([]int32, 0, usual)
	x.text = make([]int32, 0, usual)
	above, before, depth := int32(-1), int32(-1), int32(0)
	for n := doc; n != nil; {
		self := int32(-1)
		switch n.Type {
		case html.ElementNode:
			self = int32(len(x.nodes))
			x.add(n, above, before, depth)
		case html.TextNode:
			x.textTotal += int32(min(len(n.Data), maxText-int(x.textTotal)))
		case html.ErrorNode, html.DocumentNode, html.CommentNode, html.DoctypeNode, html.RawNode:
		}
		if above >= 0 && n != doc {
			x.children[above]++
		}
		if n.FirstChild != nil {
			if self >= 0 {
				above, before, depth = self, -1, depth+1
			}
			n = n.FirstChild
			continue
		}
		if self >= 0 {
			x.close(self)
			before = self
		}
		for n != doc && n.NextSibling == nil {
			n = n.Parent
			if n.Type == html.ElementNode {
				x.close(above)
				before, above, depth = above, x.parent[above], depth-1
			}
		}
		if n == doc {
			break
		}
		n = n.NextSibling
	}
	return x
}

// close ends element i: its text was the place where it begins, and becomes its length.
func (x *index) close(i int32) {
	x.end[i] = int32(len(x.nodes))
	x.text[i] = x.textTotal - x.text[i]
}

func (x *index) add(n *html.Node, above, before, depth int32) {
	x.nodes = append(x.nodes, n)
	x.parent = append(x.parent, above)
	x.end = append(x.end, 0)
	x.previous = append(x.previous, before)
	x.children = append(x.children, 0)
	x.depth = append(x.depth, depth)
	x.text = append(x.text, x.textTotal)
	for i := range n.Attr {
		x.attrBytes += len(n.Attr[i].Val)
	}
}

// place returns the number of an element, or -1.
func (x *index) place(n *html.Node) int32 {
	if x.places == nil {
		x.places = make(map[*html.Node]int32, len(x.nodes))
		for i, node := range x.nodes {
			x.places[node] = int32(i)
		}
	}
	if i, ok := x.places[n]; ok {
		return i
	}
	return -1
}

// cost is how many steps it may take to look at what h looks at from element i.
func (x *index) cost(h *heavy, i int32) int {
	n := 1
	switch h.looks {
	case looksAtAncestors:
		n += int(x.depth[i])
	case looksAtSiblings:
		if up := x.parent[i]; up >= 0 {
			n += int(x.children[up]) / 4
		}
	case looksAtChildren:
		n += int(x.children[i]) / 4
	case looksInside:
		n += 2 * int(x.end[i]-i)
	case looksAtText:
		n += 2*int(x.end[i]-i) + int(x.text[i])/bytesPerStep
	}
	return n * h.conditions
}

// find returns the numbers of the elements that the chains end at, in the order of the page. from
// and to are the range that counts; scope is the element that :scope means.
func (x *index) find(chains []chain, scope, from, to int32, left *budget) ([]int32, error) {
	var found []int32
	for _, c := range chains {
		var err error
		if found, err = x.follow(c, scope, from, to, found, left); err != nil {
			return nil, err
		}
	}
	if len(chains) > 1 {
		return ordered(found), nil
	}
	return found, nil
}

// ordered sorts what several chains found, and drops what was found twice.
func ordered(found []int32) []int32 {
	slices.Sort(found)
	return slices.Compact(found)
}

// follow appends the elements at the end of a chain. Each compound is one pass: an element is in
// the next set if it meets the compound and stands as the combinator says to one of this set.
func (x *index) follow(c chain, scope, from, to int32, found []int32, left *budget) ([]int32, error) {
	if c[0].scope && len(c) == 1 {
		if scope < 0 {
			return found, nil
		}
		return append(found, scope), nil
	}
	if len(c) == 1 { // as most are: no sets are needed
		return x.single(&c[0], from, to, found, left)
	}
	if x.now == nil {
		x.now, x.pass = make([]bool, len(x.nodes)), make([]bool, len(x.nodes))
	}
	now := x.now[from:to]
	clear(now)
	first, err := x.start(&c[0], scope, from, to, left)
	if err != nil {
		return nil, err
	}
	for _, i := range first {
		now[i-from] = true
	}
	for k := 1; k < len(c); k++ {
		if err := x.pay(&c[k], from, to, left); err != nil {
			return nil, err
		}
		last := k == len(c)-1
		if found, err = x.step(&c[k], from, to, last, found, left); err != nil {
			return nil, err
		}
		x.now, x.pass = x.pass, x.now
	}
	return found, nil
}

func (x *index) start(l *link, scope, from, to int32, left *budget) ([]int32, error) {
	if l.scope {
		if scope < from || scope >= to {
			return nil, nil
		}
		return []int32{scope}, nil
	}
	return x.single(l, from, to, nil, left)
}

// pay takes the steps of one pass for the conditions on elements alone.
func (x *index) pay(l *link, from, to int32, left *budget) error {
	n := int(to-from)*(1+l.conditions/4) + x.attrBytes/(4*bytesPerStep)*l.conditions
	if !left.spend(n) {
		return errSteps
	}
	return nil
}

// single appends the elements that one compound matches.
func (x *index) single(l *link, from, to int32, found []int32, left *budget) ([]int32, error) {
	if err := x.pay(l, from, to, left); err != nil {
		return nil, err
	}
	for i := from; i < to; i++ {
		ok, err := x.meets(l, i, left)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, i)
		}
	}
	return found, nil
}

// step goes over one combinator from the set now to the set pass, of which the last is appended.
func (x *index) step(l *link, from, to int32, last bool, found []int32, left *budget) ([]int32, error) {
	// Behind ' ' and '~', now grows by what is inside of or behind its elements while the pass
	// goes on: what an element asks stands before it.
	now, pass := x.now, x.pass
	for i := from; i < to; i++ {
		near := x.parent[i]
		if l.combinator == '+' || l.combinator == '~' {
			near = x.previous[i]
		}
		ok := near >= from && now[near]
		pass[i] = false
		if ok {
			meets, err := x.meets(l, i, left)
			if err != nil {
				return nil, err
			}
			if meets {
				pass[i] = true
				if last {
					found = append(found, i)
				}
			}
			if l.combinator == ' ' || l.combinator == '~' {
				now[i] = true
			}
		}
	}
	return found, nil
}

// meets reports whether element i meets all conditions of a compound.
func (x *index) meets(l *link, i int32, left *budget) (bool, error) {
	if l.scope || (l.light != nil && !l.light.Match(x.nodes[i])) {
		return false, nil
	}
	for k := range l.heavy {
		h := &l.heavy[k]
		if !left.spend(x.cost(h, i)) {
			return false, errSteps
		}
		if !h.match.Match(x.nodes[i]) {
			return false, nil
		}
	}
	return true, nil
}
