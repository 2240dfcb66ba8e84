package fields

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.com/trawl/pkg/crawl"
)

// Program is a compiled [Spec]. Any number of pages can be run through it at the same time.
type Program struct {
	page, items *set
	item        field // what matches an item; nothing but its selector counts
	selectors   int
	steps       int // MaxSteps, and less in tests
}

// set are the fields of one record.
type set struct {
	names  []string
	fields []field
	order  []int // the derived ones, each behind those that it uses
}

// field is a compiled field.
type field struct {
	Field
	path      string // fields.title
	kind      Type   // "" if it is not known, which is a fault
	css       *cssSelector
	xpath     *xpathSelector
	regex     *regexp.Regexp
	regexSize int
	group     int
	locale    *locale
	trim      bool
	fallback  any
	derived   *derived
}

// HasFields reports whether a page gives a record of its own.
func (p *Program) HasFields() bool { return len(p.page.fields) > 0 }

// HasItems reports whether a page gives records of its items.
func (p *Program) HasItems() bool { return p.items != nil }

var nameForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// Compile checks a spec and makes a program of it. It returns all faults at once, in the order of
// the spec, and no program if there is one. A fault names its path, such as
// items.fields.price.regex. Its rule is one of required, name, duplicate, max, enum, exclusive,
// selector, xpath, regex, group, attr, type, default, expr, unknown and cycle.
func Compile(spec Spec) (*Program, []crawl.FieldFault) {
	c := &compiler{css: map[string]*cssSelector{}}
	p := &Program{steps: MaxSteps}
	n := len(spec.Fields)
	if spec.Items != nil {
		n += len(spec.Items.Fields)
	}
	if n > MaxFields {
		c.fault("fields", "max", "Give at most %d fields, those of items counted as well, not %d.", MaxFields, n)
		return nil, c.faults
	}
	p.page = c.set("fields", spec.Fields, false)
	if spec.Items != nil {
		p.item = field{Field: Field{Selector: spec.Items.Selector}, path: "items"}
		c.selector(&p.item, false)
		if len(spec.Items.Fields) == 0 {
			c.fault("items.fields", "required", "Say which fields to take from each item.")
		}
		p.items = c.set("items.fields", spec.Items.Fields, true)
	}
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	p.selectors = len(c.css)
	return p, nil
}

// compiler gathers faults, and selectors that are there more than once.
type compiler struct {
	faults []crawl.FieldFault
	css    map[string]*cssSelector
}

func (c *compiler) fault(path, rule, format string, args ...any) {
	c.faults = append(c.faults, crawl.FieldFault{Field: path, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

func (c *compiler) set(path string, fields Fields, inItem bool) *set {
	s := &set{}
	for _, named := range fields {
		f := field{Field: named.Field, path: path + "." + named.Name}
		switch {
		case !nameForm.MatchString(named.Name):
			f.path = path + "." + clip(named.Name)
			c.fault(f.path, "name",
				"A name has 1 to 64 letters, digits and _, and does not begin with a digit. Rename the field.")
		case slices.Contains(s.names, named.Name):
			c.fault(f.path, "duplicate", "There are two fields of this name. Rename one.")
		}
		if f.Expr == "" {
			c.field(&f, inItem)
		} else {
			c.derivedField(&f)
		}
		s.names = append(s.names, named.Name)
		s.fields = append(s.fields, f)
	}
	c.derive(s)
	return s
}

// clip shortens what is repeated in a path.
func clip(s string) string {
	const most = 64
	if t, cut := cutTo(strings.ToValidUTF8(s, "\uFFFD"), most); cut {
		return t + "…"
	}
	return s
}

func (c *compiler) field(f *field, inItem bool) {
	f.trim = f.Trim == nil || *f.Trim
	c.selector(f, inItem)
	c.attr(f)
	c.kind(f)
	c.regex(f)
	c.locale(f)
	c.fallback(f)
}

func (c *compiler) selector(f *field, inItem bool) {
	path := f.path + ".selector"
	source, isXPath := strings.CutPrefix(f.Selector, XPathPrefix)
	switch {
	case strings.TrimSpace(f.Selector) == "":
		c.fault(path, "required", "Give a CSS selector, or an XPath expression behind xpath:.")
		return
	case len(f.Selector) > MaxSelectorBytes:
		c.fault(path, "max", "A selector has at most %d bytes, not %d. Select an element nearer by.",
			MaxSelectorBytes, len(f.Selector))
		return
	}
	if isXPath {
		var err error
		if f.xpath, err = parseXPath(source, inItem); err != nil {
			c.fault(path, "xpath", "%s", sentence(withoutPlace(err)))
		}
		return
	}
	if known := c.css[source]; known != nil {
		f.css = known
		return
	}
	css, err := parseCSS(source)
	if err != nil {
		c.fault(path, "selector", "%s", err)
		return
	}
	css.id = len(c.css)
	c.css[source] = css
	f.css = css
}

// sentence begins s with a capital letter.
func sentence(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func (c *compiler) attr(f *field) {
	if f.Attr == "" {
		return
	}
	f.Attr = strings.ToLower(f.Attr) // as the parser writes them
	switch {
	case len(f.Attr) > MaxAttrBytes || strings.ContainsAny(f.Attr, " \t\r\n\f\"'<>/=@"):
		c.fault(f.path+".attr", "attr", "This is no name of an attribute. Write it alone, for example href or content.")
	case f.xpath != nil && !f.xpath.nodes:
		c.fault(f.path+".attr", "exclusive", "The XPath expression gives a text, which has no attributes. Leave out attr.")
	}
}

// types are the values of [Field.Type].
var types = []Type{Text, Number, Integer, Date, URL, Bool, HTML}

func (c *compiler) kind(f *field) {
	switch {
	case f.Type == "" && urlAttrs[f.Attr]:
		f.kind = URL
	case f.Type == "":
		f.kind = Text
	case !slices.Contains(types, f.Type):
		c.fault(f.path+".type", "enum", "A type is one of text, number, integer, date, url, bool and html.")
		return
	default:
		f.kind = f.Type
	}
	if f.kind == HTML && (f.Attr != "" || (f.xpath != nil && !f.xpath.nodes)) {
		c.fault(f.path+".type", "type", "Only an element has HTML inside. Use text.")
	}
}

func (c *compiler) regex(f *field) {
	if f.Regex == "" {
		if f.Group != "" {
			c.fault(f.path+".group", "group", "A group is one of a regular expression. Give regex, too, or leave out group.")
		}
		return
	}
	size, message := regexSize(f.Regex)
	if message != "" {
		c.fault(f.path+".regex", "regex", "%s", message)
		return
	}
	f.regex, f.regexSize = regexp.MustCompile(f.Regex), size // regexSize has compiled it
	groups := f.regex.NumSubexp()
	switch n, err := strconv.Atoi(string(f.Group)); {
	case f.Group == "":
		f.group = min(groups, 1)
	case err == nil && 0 <= n && n <= groups:
		f.group = n
	case err != nil && f.regex.SubexpIndex(string(f.Group)) >= 0:
		f.group = f.regex.SubexpIndex(string(f.Group))
	default:
		c.fault(f.path+".group", "group",
			"The expression has no such group. It has %d; a name is given as (?P<name>…).", groups)
	}
}

func (c *compiler) locale(f *field) {
	known := locales[f.Locale]
	f.locale = known
	switch {
	case known == nil:
		f.locale = locales[""]
		c.fault(f.path+".locale", "enum", "A locale is one of %s.", strings.Join(Locales, ", "))
	case f.Locale != "" && f.kind != "" && f.kind != Number && f.kind != Integer && f.kind != Date:
		c.fault(f.path+".locale", "exclusive",
			"Only a number, an integer and a date have a locale. Give such a type, or leave it out.")
	}
}
