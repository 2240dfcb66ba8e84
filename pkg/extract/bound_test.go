package extract

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
)

// nodesOf is how many nodes a page has as a tree; false where it is no tree.
func nodesOf(page string) (int, bool) {
	root, err := html.ParseWithOptions(strings.NewReader(page), html.ParseOptionEnableScripting(false))
	if err != nil {
		return 0, false
	}
	n := 1
	for range root.Descendants() {
		n++
	}
	return n, true
}

func checkEstimate(t *testing.T, page string) {
	t.Helper()
	real, ok := nodesOf(page)
	if !ok {
		return
	}
	if guess, _ := estimate([]byte(page)); guess < real && guess <= MaxNodes {
		t.Errorf("estimate = %d nodes, the tree has %d: %.300q", guess, real, page)
	}
}

// pieces are what confuses who counts elements without parsing.
var pieces = strings.Fields(`<b> <b/id=1> <b/id=2> <i> <i/x> <a> <a/href=x> <nobr> <font/color=red> </b> </i> </a> </font> </nobr> <p> </p>
	<div> </div> <div> </div> <table> </table> <tr> </tr> <td> </td> <caption> </caption> <ul> </ul> <li> </li> <select> </select> <option>
	<svg> </svg> <svg/> <math> </math> <mi> </mi> <desc> </desc> <title> </title> <foreignObject> </foreignObject> <style> </style> <script>
	</script> <!-- --> <![CDATA[ ]]> <template> </template> <object> </object> <button> </button> <form> </form> <h1> </h1> <textarea>
	</textarea> <noscript> </noscript> <span> </span> <br> </br> <img> <frameset> <body> </body> </html> <head> <g> </g> <path/> x y > &lt;`)

// What is refused for its size is known before there is a tree of it: the estimate is never less
// than what the tree has.
func TestEstimateIsNoLess(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var page strings.Builder
		few := pieces
		if seed%2 == 0 { // a few pieces often
			few = nil
			for range 3 + r.IntN(8) {
				few = append(few, pieces[r.IntN(len(pieces))])
			}
		}
		for range r.IntN(300) {
			page.WriteString(few[r.IntN(len(few))])
		}
		checkEstimate(t, page.String())
	}
}

func FuzzEstimate(f *testing.F) {
	f.Add(strings.Join(pieces, ""))
	f.Fuzz(func(t *testing.T, page string) { checkEstimate(t, page) })
}

func unlike(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	formats := unlike(400, "<b id=%d>")
	many := strings.Repeat("<p>x", 20_000)
	for name, page := range map[string]string{
		"elements":                   strings.Repeat("<p>", 1_000_000),
		"formatting in each block":   formats + many,
		"behind a script":            "<script><!--</script>" + formats + many,
		"behind a title":             "<title><!--</title>" + formats + many,
		"behind a style in svg":      "<svg><style><!--</style></svg>" + formats + many,
		"ended behind a wall":        formats + "<table><td>" + strings.Repeat("</b>", 400) + "</table>" + many,
		"ended in svg":               formats + "<svg><desc>" + strings.Repeat("</b>", 400) + "</desc></svg>" + many,
		"attributes":                 "<p " + unlike(700_000, "a%d ") + ">",
		"one tag of many attributes": "<p " + unlike(2000, "a%d ") + ">" + strings.Repeat("<p x>", 1000),
		"attributes of each copy":    strings.Repeat("<b "+unlike(3000, "a%d ")+">", 3) + strings.Repeat("<p>x", 9000),
		"depth":                      strings.Repeat("<div>", 600),
		"depth within a table cell":  "<table><td>" + strings.Repeat("<div>", 600),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(page), crawl.URL{})
			var f *crawl.Fault
			if !errors.As(err, &f) || f.Code != crawl.CodeTooComplex {
				t.Errorf("err = %v, want too_complex", err)
			}
		})
	}
}

// Large pages of real sites are read: cards in links, icons, scripts, tables, lists without end tags.
func TestParseTakesLargePages(t *testing.T) {
	t.Parallel()
	const filler = " and some words that a reader reads, as many as there are between tags"
	for name, part := range map[string]string{
		"cards": "<li class=card><a href=/p/%d><div><div><div><div><h3>T</h3></div></div></div><p>" + filler + "</p></div></a></li>",
		"icons": `<a class=x href=/%d><svg viewBox="0 0 1 1"><title>icon</title><path d="M0 0"></path><g><use href="#a"/></g></svg><b>x</b></a>` + filler,
		"rows":  "<table class=t%d><tr><td><a href=x>a</a><td><b>n</b>" + filler + "<tr><td>1<td><font color=red>2</font>" + filler + "</table>",
		"script": "<div id=d%d><script>if (a<b && c) { document.write('<b><i>' + \"<!--\") }</script><em>x</em>" +
			filler + "</div>",
		"classes":  "<p id=p%d class='" + strings.Repeat("flex ", 100) + "'>" + filler,
		"unclosed": "<p><font color=red><b>%d" + filler,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page := []byte("<!doctype html><body>" + unlike(1_500_000/len(part), part))
			if _, err := Parse(page, crawl.URL{}); err != nil {
				n, _ := estimate(page)
				real, _ := nodesOf(string(bytes.Clone(page)))
				t.Errorf("%v (estimate %d, tree %d)", err, n, real)
			}
		})
	}
}
