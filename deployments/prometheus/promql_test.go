package prometheus_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// selector is one metric of an expression with its matchers.
type selector struct {
	metric   string
	matchers []matcher
}

// matcher is one label that an expression asks for.
type matcher struct{ label, op, value string }

// regex reports whether the value is a regular expression.
func (m matcher) regex() bool { return strings.Contains(m.op, "~") }

// expression is what a PromQL expression names. What it means is promtool's to check.
type expression struct {
	selectors []selector
	grouped   []string // labels of by, on, ignoring, without
}

var (
	token = regexp.MustCompile(`^(?:\s+|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[0-9][0-9a-zA-Z.]*|` +
		`[a-zA-Z_:][a-zA-Z0-9_:]*|=~|!~|!=|>=|<=|==|.)`)
	name       = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	operators  = []string{"and", "or", "unless", "bool", "offset"}
	labelLists = []string{"by", "on", "ignoring", "without", "group_left", "group_right"}
)

// tokens splits an expression; white space is left out.
func tokens(expr string) []string {
	var out []string
	for expr != "" {
		t := token.FindString(expr)
		if t == "" { // a line end, which the dot leaves
			t = expr[:1]
		}
		expr = expr[len(t):]
		if strings.TrimSpace(t) != "" {
			out = append(out, t)
		}
	}
	return out
}

// parse finds the names in an expression.
func parse(expr string) (expression, error) {
	var (
		e  expression
		ts = tokens(expr)
	)
	at := func(i int) string {
		if i < len(ts) {
			return ts[i]
		}
		return ""
	}
	for i := 0; i < len(ts); i++ {
		switch t := ts[i]; {
		case slices.Contains(labelLists, t) && at(i+1) == "(":
			for i += 2; i < len(ts) && ts[i] != ")"; i++ {
				if ts[i] != "," {
					e.grouped = append(e.grouped, ts[i])
				}
			}
		case !name.MatchString(t), slices.Contains(operators, t), at(i+1) == "(", slices.Contains(labelLists, at(i+1)):
			// a number, an operator, a function, or an aggregation
		default:
			s := selector{metric: t}
			if at(i+1) == "{" {
				for i += 2; at(i) != "}"; i++ {
					if at(i) == "," {
						continue
					}
					if i+2 >= len(ts) {
						return e, fmt.Errorf("%s: braces are not closed", expr)
					}
					s.matchers = append(s.matchers, matcher{ts[i], ts[i+1], strings.Trim(ts[i+2], `"'`)})
					i += 2
				}
			}
			e.selectors = append(e.selectors, s)
		}
	}
	return e, nil
}

func TestParse(t *testing.T) {
	t.Parallel()
	e, err := parse(`sum by (le, route) (rate(a_bucket{x=~"b}|c", y!="d"}[5m])) / on (job)
		(time() - e:f > 4 * 3600) or vector(0) unless g offset 5m and max(h)`)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(e)
	const want = "{[{a_bucket [{x =~ b}|c} {y != d}]} {e:f []} {g []} {h []}] [le route job]}"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
