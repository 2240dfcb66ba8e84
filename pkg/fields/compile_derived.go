package fields

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"example.com/trawl/pkg/crawl"
)

// fallback reads the default of a field, which has the type of the field.
func (c *compiler) fallback(f *field) {
	if len(f.Default) == 0 || string(f.Default) == "null" {
		return
	}
	path := f.path + ".default"
	if f.Required {
		c.fault(path, "exclusive", "A required field has no default. Leave out one of them.")
		return
	}
	if len(f.Default) > MaxDefaultBytes {
		c.fault(path, "max", "A default has at most %d bytes.", MaxDefaultBytes)
		return
	}
	if f.kind == "" {
		return
	}
	var given any
	d := json.NewDecoder(bytes.NewReader(f.Default))
	d.UseNumber()
	err := d.Decode(&given)
	value, ok := f.typed(given)
	if err != nil || !ok {
		what := "a value of the type " + string(f.kind)
		if f.Many {
			what = "a list of values of the type " + string(f.kind)
		}
		c.fault(path, "default", "The default of this field is %s.", what)
		return
	}
	f.fallback = value
}

// typed checks a default. A number is taken as it is written in JSON.
func (f *field) typed(given any) (any, bool) {
	if !f.Many {
		return f.typedOne(given)
	}
	list, ok := given.([]any)
	if !ok || len(list) > MaxValues {
		return nil, false
	}
	out := make([]any, 0, len(list))
	for _, v := range list {
		t, ok := f.typedOne(v)
		if !ok {
			return nil, false
		}
		out = append(out, t)
	}
	return out, true
}

func (f *field) typedOne(given any) (any, bool) {
	switch v := given.(type) {
	case bool:
		return v, f.kind == Bool
	case json.Number:
		if f.kind != Number && f.kind != Integer {
			return nil, false
		}
		n, ok := parseNumber(v.String(), locales["en"])
		return json.Number(n), ok && (f.kind == Number || !strings.Contains(n, "."))
	case string:
		if f.kind == Bool || f.kind == Number || f.kind == Integer {
			return nil, false
		}
		plain := field{Field: Field{}, kind: f.kind, locale: locales[""]}
		return plain.parse(v, crawl.URL{})
	}
	return nil, false
}

// derivedField checks what stands beside an expression.
func (c *compiler) derivedField(f *field) {
	f.locale, f.trim = locales[""], true
	for _, other := range []struct {
		name  string
		given bool
	}{
		{"selector", f.Selector != ""},
		{"attr", f.Attr != ""},
		{"regex", f.Regex != ""},
		{"group", f.Group != ""},
		{"trim", f.Trim != nil},
		{"locale", f.Locale != ""},
	} {
		if other.given {
			c.fault(f.path+"."+other.name, "exclusive",
				"A field with expr is taken from other fields. Leave out %s.", other.name)
		}
	}
	if f.Type != "" && (f.Type == HTML || !slices.Contains(types, f.Type)) {
		c.fault(f.path+".type", "enum", "The type of a derived field is one of text, number, integer, date, url and bool.")
		f.Type = ""
	}
}

// dependency is a derived field that is not compiled yet.
type dependency struct {
	place int
	names []string
	expr  *derived
}

// derive compiles the derived fields of a record, each behind those that it uses.
func (c *compiler) derive(s *set) {
	var open []dependency
	for i := range s.fields {
		f := &s.fields[i]
		if f.Expr == "" {
			continue
		}
		if parsed, names := c.names(s, f); parsed != nil {
			open = append(open, dependency{place: i, names: names, expr: parsed})
		}
	}
	for len(open) > 0 {
		waiting := func(d dependency) bool {
			return slices.ContainsFunc(open, func(o dependency) bool { return slices.Contains(d.names, s.names[o.place]) })
		}
		next := slices.IndexFunc(open, func(d dependency) bool { return !waiting(d) })
		if next < 0 {
			c.cycle(s, open)
			return
		}
		d := open[next]
		open = slices.Delete(open, next, next+1)
		c.compileDerived(s, d)
	}
}

// names reads an expression and returns the fields that it uses; no expression if it has a fault.
func (c *compiler) names(s *set, f *field) (parsed *derived, names []string) {
	path := f.path + ".expr"
	if len(f.Expr) > MaxExprBytes {
		c.fault(path, "max", "An expression has at most %d bytes, not %d. Make fields of its parts.",
			MaxExprBytes, len(f.Expr))
		return nil, nil
	}
	parsed, names, err := parseExpr(f.Expr)
	if err != nil {
		c.fault(path, "expr", "%s.", sentence(err.Error()))
		return nil, nil
	}
	for _, name := range names {
		if !slices.Contains(s.names, name) {
			parsed = nil
			c.fault(path, "unknown", "There is no field %s here. The expression can use: %s.", clip(name), s.others(f))
		}
	}
	return parsed, names
}

// others names the fields that an expression can use.
func (s *set) others(f *field) string {
	const shown = 10
	var names []string
	for i, name := range s.names {
		if s.fields[i].path != f.path {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return "nothing yet, since there is no other field"
	case len(names) > shown:
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return strings.Join(names, ", ")
}

func (c *compiler) cycle(s *set, open []dependency) {
	for _, d := range open {
		c.fault(s.fields[d.place].path+".expr", "cycle",
			"The field is derived from itself, by way of %s. Take one of these from the page.", strings.Join(d.names, ", "))
	}
}

func (c *compiler) compileDerived(s *set, d dependency) {
	f := &s.fields[d.place]
	env := map[string]any{}
	var uses []int
	for i, name := range s.names {
		if !slices.Contains(d.names, name) {
			continue
		}
		if s.fields[i].kind == "" {
			return // its own fault is told
		}
		env[name] = s.fields[i].sample()
		uses = append(uses, i)
	}
	if err := d.expr.compile(f.Expr, env); err != nil {
		c.fault(f.path+".expr", "expr", "%s.", sentence(err.Error()))
		return
	}
	d.expr.uses = uses
	f.derived = d.expr
	if c.derivedKind(f) {
		c.fallback(f)
		s.order = append(s.order, d.place)
	}
}

// derivedKind compares what an expression gives with what is asked for.
func (c *compiler) derivedKind(f *field) bool {
	kind, many, known := kindOf(f.derived.program.Node().Type())
	switch {
	case !known && f.Type == "":
		c.fault(f.path+".type", "required", "What the expression gives is not known before it runs. Say the type.")
		return false
	case !known:
		f.kind = f.Type
		return true
	case f.Many && !many:
		c.fault(f.path+".many", "type", "The expression gives one value, and no list. Leave out many.")
		return false
	case f.Type != "" && !fits(kind, f.Type):
		c.fault(f.path+".type", "type",
			"The expression gives a value of the type %s. Leave out type, or change the expression.", kind)
		return false
	}
	f.Many, f.kind = many, kind
	if f.Type != "" {
		f.kind = f.Type
	}
	return true
}

// fits reports whether what an expression gives can be of a type.
func fits(gives, asked Type) bool {
	switch asked {
	case Number, Integer:
		return gives == Number || gives == Integer
	case Text, Date, URL:
		return gives == Text
	case Bool:
		return gives == Bool
	case HTML:
	}
	return false
}
