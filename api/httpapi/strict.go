package httpapi

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/trawl/pkg/crawl"
)

const (
	// maxDepth bounds the nesting of a body. The deepest document of the contract
	// has 6 levels; what is deeper than 32 is made to hurt a parser.
	maxDepth = 32

	// maxFaults bounds the faults that are told of one body or query. The checker stops
	// at the next one: a body of two megabytes can hold 150,000, and who mends a hundred
	// finds the others the same way.
	maxFaults = 100

	// maxNames bounds the names of one object, all of which are remembered while it is
	// walked: no document of the contract has more than a few dozen.
	maxNames = 1000
	// maxAllNames bounds the names of all objects of a body together, since each object
	// costs its own memory while it is walked.
	maxAllNames = 10_000

	// maxEntries bounds the entries of all lists of a body together. The longest list of the
	// contract has 10,000; two megabytes hold 700,000 empty strings, which take thirty times
	// their size when they are decoded.
	maxEntries = 100_000

	// maxName bounds, in runes, how much of a caller's own field name is echoed.
	maxName = 64
)

// Rules that the decoder names.
const (
	ruleType      = "type"
	ruleFormat    = "format"
	ruleUnknown   = "unknown"
	ruleDuplicate = "duplicate"
	ruleRange     = "range"
	ruleTrailing  = "trailing_data"
	ruleMax       = "max"
)

// decodeStrict decodes one JSON object into target, a pointer to a struct, and
// accepts only what has one meaning (RFC 8259, and RFC 7493 for what that leaves
// open): UTF-8, every name known in its exact spelling and given once, also when
// letter case is ignored, every value of the type of its field. The names matter
// because encoding/json alone takes the last of several and folds letter case:
// whoever checked the first "url" would have checked another than the one used.
//
// A null is a field that is not given. A whole number is written without
// fraction and exponent: 2.0 is refused. A body that is no JSON object is a
// fault of code malformed; otherwise all faults are in one of code invalid. When those
// are names alone that are not known, target holds what the others say.
func decodeStrict(data []byte, target any) error {
	value, err := wellFormed(data)
	if err != nil {
		return err
	}
	c := checker{data: value}
	c.object(nil, shapeOf(reflect.TypeOf(target).Elem()))
	if len(bytes.Trim(data, space)) > len(value) {
		c.add(nil, ruleTrailing, "There is more after the JSON object. Send one object and nothing else.")
	}
	if len(c.faults) > 0 {
		hides := func(f crawl.FieldFault) bool { return f.Rule != ruleUnknown }
		if !c.stopped && !slices.ContainsFunc(c.faults, hides) {
			// Names that are not used hide nothing: the caller may look at the others, too.
			_ = json.Unmarshal(c.used(), target)
		}
		return &crawl.Fault{
			Code:    crawl.CodeInvalid,
			Message: "The body breaks rules of the contract; errors names each field and its rule.",
			Fields:  c.faults,
		}
	}
	if err := json.Unmarshal(c.used(), target); err != nil {
		// Not reached by what the checker knows; a fault of one field all the same.
		var mismatch *json.UnmarshalTypeError
		field := wholeBody
		if errors.As(err, &mismatch) && mismatch.Field != "" {
			field = mismatch.Field
		}
		return &crawl.Fault{
			Code: crawl.CodeInvalid, Message: "The body does not fit the contract.", Err: err,
			Fields: []crawl.FieldFault{
				{Field: field, Rule: ruleType, Message: "This has another type than documented. Look it up."},
			},
		}
	}
	return nil
}

const space = " \t\r\n"

// wellFormed returns the first JSON object of data, without space around it, if
// it is one; whatever follows it is left to the caller.
func wellFormed(data []byte) ([]byte, error) {
	body := bytes.TrimLeft(data, space)
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return nil, malformed("The body begins with a byte order mark; send UTF-8 without one.")
	case !utf8.Valid(data):
		return nil, malformed("The body is not UTF-8.")
	case len(body) == 0:
		return nil, malformed("The body is empty; send a JSON object.")
	case body[0] != '{':
		return nil, malformed("The body is not a JSON object.")
	}
	end, err := objectEnd(body)
	if err != nil {
		return nil, err
	}
	if !json.Valid(body[:end]) {
		offset := int64(0)
		var syntax *json.SyntaxError
		if errors.As(json.Unmarshal(body[:end], &struct{}{}), &syntax) {
			offset = syntax.Offset
		}
		return nil, malformed("The body is not JSON: it goes wrong at byte %d.", int64(len(data)-len(body))+offset)
	}
	return body[:end], nil
}

// objectEnd returns the length of the object that body begins with, looking at
// brackets and strings only.
func objectEnd(body []byte) (int, error) {
	depth := 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			end := stringEnd(body, i)
			if end < 0 {
				return 0, malformed("The body ends inside a string.")
			}
			if loneSurrogate(body[i:end]) {
				return 0, malformed("The body has a \\u escape of half a character near byte %d.", i)
			}
			i = end - 1
		case '{', '[':
			if depth++; depth > maxDepth {
				return 0, malformed("The body is nested deeper than %d levels.", maxDepth)
			}
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		}
	}
	return 0, malformed("The body ends before its object does.")
}

// stringEnd returns the index behind the string that begins at i, -1 if it does not end.
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// loneSurrogate reports whether a string literal escapes half of a surrogate
// pair. The decoder would put U+FFFD in its place, so that two different inputs
// became one.
func loneSurrogate(literal []byte) bool {
	unit := func(i int) rune {
		if i+6 > len(literal) || literal[i] != '\\' || literal[i+1] != 'u' {
			return 0
		}
		n, err := strconv.ParseUint(string(literal[i+2:i+6]), 16, 16)
		if err != nil {
			return 0
		}
		return rune(n)
	}
	for i := bytes.IndexByte(literal, '\\'); i >= 0 && i < len(literal); i++ {
		if literal[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u >= 0xd800 && u < 0xdc00:
			if low := unit(i + 6); low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 11
		case u >= 0xdc00 && u < 0xe000:
			return true
		default:
			i++ // over the escaped character
		}
	}
	return false
}

func malformed(format string, args ...any) *crawl.Fault {
	return crawl.Faultf(crawl.CodeMalformed, format, args...)
}

// shape is what the checker knows of a Go type: nil means "anything".
type shape struct {
	fields map[string]*shape // of an object with known names
	elem   *shape            // of a list
	list   bool
	string bool   // a string will do, too
	values *shape // of an object with free names
	free   bool
	leaf   reflect.Type // of everything else
	itself bool         // the leaf decodes itself
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// shapeOf reads a type as encoding/json does. It is called for few types, at
// the start and in tests; its results are kept by the callers.
func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes[t]; ok {
		return s
	}
	return newShape(t)
}

// shapes holds the types that requests are decoded into.
var shapes = map[reflect.Type]*shape{
	reflect.TypeFor[submission](): newShape(reflect.TypeFor[submission]()),
}

func newShape(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t { // which decode themselves, and leave it to the checker to say what is wrong
	case reflect.TypeFor[crawl.Fields]():
		return &shape{free: true, values: newShape(reflect.TypeFor[crawl.Field]())}
	case reflect.TypeFor[crawl.Collection]():
		type plain crawl.Collection
		s := newShape(reflect.TypeFor[plain]())
		s.string = true
		return s
	}
	if p := reflect.PointerTo(t); p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler) {
		return &shape{leaf: t, itself: true}
	}
	switch t.Kind() {
	case reflect.Struct:
		s := &shape{fields: map[string]*shape{}}
		for _, f := range reflect.VisibleFields(t) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() && !f.Anonymous && name != "-" {
				if name == "" {
					name = f.Name
				}
				s.fields[name] = newShape(f.Type)
			}
		}
		return s
	case reflect.Slice, reflect.Array:
		return &shape{list: true, elem: newShape(t.Elem())}
	case reflect.Map:
		return &shape{free: true, values: newShape(t.Elem())}
	case reflect.Interface:
		return nil
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &shape{leaf: t}
	default:
		panic(fmt.Sprintf("httpapi: a request has a field of type %v, which the decoder does not know", t))
	}
}

// place is where in the document the checker is; its text is made for faults only.
type place struct {
	parent *place
	name   string
	index  int // of a list element, when name is empty
	elem   bool
}

// wholeBody names what is about no field in particular.
const wholeBody = "body"

func (p *place) String() string {
	switch {
	case p == nil:
		return wholeBody
	case p.elem:
		return p.parent.String() + "[" + strconv.Itoa(p.index) + "]"
	}
	name := shownName(p.name)
	if p.parent == nil {
		return name
	}
	return p.parent.String() + "." + name
}

// checker walks a document that is known to be valid JSON.
type checker struct {
	data   []byte
	pos    int
	faults []crawl.FieldFault // at most maxFaults, and one that says that there are more

	names, entries int // seen so far, of all objects and of all lists

	// unused are the parts of data that say nothing, in order: see used.
	unused [][2]int

	// stopped says that the rest of the document is not looked at, and pos means nothing.
	stopped bool
}

func (c *checker) add(p *place, rule, message string) {
	switch {
	case c.stopped:
	case len(c.faults) < maxFaults:
		c.faults = append(c.faults, crawl.FieldFault{Field: p.String(), Rule: rule, Message: message})
	default:
		c.stopped = true
		c.faults = append(c.faults, crawl.FieldFault{
			Field: wholeBody, Rule: crawl.RuleMoreFaults,
			Message: fmt.Sprintf("There are at least %d faults. Mend those listed first.", maxFaults+1),
		})
	}
}

// next returns the next byte that is not space, without consuming it.
func (c *checker) next() byte {
	for {
		switch b := c.data[c.pos]; b {
		case ' ', '\t', '\r', '\n':
			c.pos++
		default:
			return b
		}
	}
}

// more consumes a comma, or the end of a list or object, and reports which.
func (c *checker) more(end byte) bool {
	b := c.next()
	c.pos++
	return b != end
}

func (c *checker) literal() []byte {
	start := c.pos
	c.pos = stringEnd(c.data, start)
	return c.data[start:c.pos]
}

func (c *checker) value(p *place, s *shape) {
	switch b := c.next(); b {
	case '{':
		if s != nil && s.fields == nil && !s.free {
			c.mismatch(p, s)
			return
		}
		c.object(p, s)
	case '[':
		if s != nil && !s.list {
			c.mismatch(p, s)
			return
		}
		c.list(p, s)
	default:
		c.scalar(p, s, b)
	}
}

// mismatch reports a value of the wrong kind and walks over it. A leaf that
// decodes itself may accept any kind: it is asked.
func (c *checker) mismatch(p *place, s *shape) {
	start := c.pos
	if c.data[c.pos] == '{' {
		c.object(p, nil)
	} else {
		c.list(p, nil)
	}
	if !c.stopped {
		c.leaf(p, s, c.data[start:c.pos])
	}
}

func (c *checker) object(p *place, s *shape) {
	c.next()
	begin := c.pos // of a member with the comma before it; of the first with the bracket
	c.pos++        // {
	seen, kept := map[string]string{}, false
	here := &place{parent: p} // one for all members: its text is made where a fault is
	for c.next() == '"' {
		here.name = unquote(c.literal())
		known, member := c.name(here, s, seen)
		c.next()
		c.pos++ // :
		null := c.next() == 'n'
		if null {
			c.pos += len("null")
		} else if !c.stopped {
			c.value(here, member)
		}
		if c.stopped {
			return
		}
		unused := !known || null && s != nil && s.fields != nil
		end := c.pos
		more := c.more('}')
		switch {
		case !unused:
			kept = true
		case kept:
			c.unused = append(c.unused, [2]int{begin, end})
		case more:
			c.unused = append(c.unused, [2]int{begin + 1, c.pos})
		default:
			c.unused = append(c.unused, [2]int{begin + 1, end})
		}
		if !more {
			return
		}
		begin = c.pos - 1
	}
	c.pos++ // } of an empty object
}

// name checks the name of a member of an object, and returns whether it is known, and as what.
// seen has the names before it by how they fold.
func (c *checker) name(here *place, s *shape, seen map[string]string) (known bool, member *shape) {
	known = true
	if s != nil && s.fields != nil {
		member, known = s.fields[here.name]
	} else if s != nil {
		member = s.values
	}
	folded := fold(here.name)
	first, again := seen[folded]
	switch {
	case again && first == here.name:
		c.add(here, ruleDuplicate, "This is given more than once. Give it once.")
	case again:
		c.add(here, ruleDuplicate,
			"This is "+strconv.Quote(clip(first))+" in other letter case. Give it once, in the documented spelling.")
	case !known:
		c.add(here, ruleUnknown, unknownMessage(s, folded))
	case len(seen) == maxNames:
		c.tooMany(here.parent, fmt.Sprintf("An object has at most %d names.", maxNames))
	}
	if c.names++; c.names > maxAllNames {
		c.tooMany(nil, fmt.Sprintf("A body has at most %d names, of all objects together.", maxAllNames))
	}
	seen[folded] = here.name
	return known, member
}

// used returns the document without the members that are not known or null, for those who
// decode themselves: some would stop at the first, others take a null for a value.
func (c *checker) used() []byte {
	if len(c.unused) == 0 {
		return c.data
	}
	out, at := make([]byte, 0, len(c.data)), 0
	for _, part := range c.unused {
		out = append(out, c.data[at:part[0]]...)
		at = part[1]
	}
	return append(out, c.data[at:]...)
}

// tooMany ends the walk: what follows is not worth its cost.
func (c *checker) tooMany(p *place, message string) {
	c.add(p, ruleMax, message+" What follows was not looked at.")
	c.stopped = true
}

func unknownMessage(s *shape, folded string) string {
	for name := range s.fields {
		if fold(name) == folded {
			return "This is not known in this spelling. Use " + name + "."
		}
	}
	return "This is not a known field. Correct or remove it."
}

func (c *checker) list(p *place, s *shape) {
	c.pos++ // [
	if c.next() == ']' {
		c.pos++
		return
	}
	var elem *shape
	if s != nil {
		elem = s.elem
	}
	for here := (&place{parent: p, elem: true}); ; here.index++ {
		if c.entries++; c.entries > maxEntries {
			c.tooMany(p, fmt.Sprintf("A body has at most %d entries in lists, of all lists together.", maxEntries))
			return
		}
		c.value(here, elem)
		if c.stopped || !c.more(']') {
			return
		}
	}
}

func (c *checker) scalar(p *place, s *shape, b byte) {
	start := c.pos
	if b == '"' {
		c.literal()
	} else {
		for c.pos < len(c.data) && !endsScalar(c.data[c.pos]) {
			c.pos++
		}
	}
	if s != nil {
		c.leaf(p, s, c.data[start:c.pos])
	}
}

// leaf checks one value against the type of its field.
func (c *checker) leaf(p *place, s *shape, raw []byte) {
	isString := raw[0] == '"'
	switch {
	case s.string && isString:
		return
	case s.string:
		c.add(p, ruleType, "Give a string or an object.")
		return
	case s.list:
		c.add(p, ruleType, "Give a list.")
		return
	case s.leaf == nil:
		c.add(p, ruleType, "Give an object.")
		return
	case raw[0] == 'n': // only elements of lists come here: null elsewhere is "not given"
		c.add(p, ruleType, "Give a value, not null.")
		return
	}
	if s.itself {
		c.asked(p, s, raw)
		return
	}
	switch s.leaf.Kind() { // newShape lets no other kind through
	case reflect.String:
		if !isString {
			c.add(p, ruleType, "Give a string.")
		}
	case reflect.Bool:
		if raw[0] != 't' && raw[0] != 'f' {
			c.add(p, ruleType, "Give true or false.")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		_, err := strconv.ParseInt(string(raw), 10, s.leaf.Bits())
		switch {
		case errors.Is(err, strconv.ErrRange):
			c.add(p, ruleRange, "The number is out of range. Give one nearer to zero.")
		case err != nil:
			c.add(p, ruleType, "Give a whole number, written without fraction and exponent.")
		}
	case reflect.Float32, reflect.Float64:
		_, err := strconv.ParseFloat(string(raw), s.leaf.Bits())
		switch {
		case isString || raw[0] == 't' || raw[0] == 'f' || raw[0] == '{' || raw[0] == '[':
			c.add(p, ruleType, "Give a number.")
		case err != nil:
			c.add(p, ruleRange, "The number is out of range. Give one nearer to zero.")
		}
	}
}

// asked has a type that decodes itself look at its value.
func (c *checker) asked(p *place, s *shape, raw []byte) {
	isString := raw[0] == '"'
	switch v := reflect.New(s.leaf).Interface().(type) {
	case json.Unmarshaler:
		if err := v.UnmarshalJSON(raw); err != nil {
			c.add(p, formatOrType(isString), messageOf(err))
		}
	case encoding.TextUnmarshaler:
		if !isString {
			c.add(p, ruleType, "Give a string.")
		} else if err := v.UnmarshalText([]byte(unquote(raw))); err != nil {
			c.add(p, ruleFormat, messageOf(err))
		}
	}
}

// endsScalar reports whether b ends a number, true, false or null.
func endsScalar(b byte) bool {
	switch b {
	case ',', ']', '}', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

func formatOrType(isString bool) string {
	if isString {
		return ruleFormat
	}
	return ruleType
}

// messageOf returns what a type of the domain says about its input. These texts
// are written for callers; a Fault's cause is not.
func messageOf(err error) string {
	var f *crawl.Fault
	if errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
}

// unquote returns the value of a string literal that is known to be valid.
func unquote(literal []byte) string {
	if bytes.IndexByte(literal, '\\') < 0 {
		return string(literal[1 : len(literal)-1])
	}
	var s string
	_ = json.Unmarshal(literal, &s) // cannot fail: the document was checked
	return s
}

// shownName returns a caller's own name as a fault names it. The empty one would look as if
// the fault were about nothing.
func shownName(name string) string {
	if name == "" {
		return `""`
	}
	return clip(name)
}

// clip shortens a text of the caller's to maxName runes. The rest is not looked at.
func clip(s string) string {
	runes := 0
	for i := range s {
		if runes == maxName {
			return s[:i] + "…"
		}
		runes++
	}
	return s
}

// fold returns the same string for all that differ in letter case only, by the
// simple folding of Unicode, as encoding/json compares names: there the long s
// (U+017F) equals s and the Kelvin sign equals k.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r < 'A' || r > 'Z') {
			return r // the least of its orbit but for letters, whose lower case stands for them
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		if 'A' <= least && least <= 'Z' {
			least += 'a' - 'A'
		}
		return least
	}, s)
}
