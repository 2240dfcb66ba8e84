package fields

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
)

// Bounds of a [Result].
const (
	MaxItems       = 1000      // records of items that one page gives
	MaxValues      = 1000      // of one field that is many
	MaxValueBytes  = 64 << 10  // of one text
	MaxRecordBytes = 256 << 10 // of the texts of one record
	MaxResultBytes = 4 << 20   // of the texts of all records of a page
)

// Result is what a page gave. Its maps count by the path of the field, such as items.fields.price.
type Result struct {
	// Record holds the fields of the page; nil if the spec has none.
	Record *Record
	// Items are the records of the items, in the order of the page: at most [MaxItems].
	Items []*Record
	// ItemsFound is how many elements are items: more than Items has if some were incomplete, or
	// if there are too many.
	ItemsFound int
	// Incomplete counts the items that were left out, by the required field that they lack.
	Incomplete map[string]int
	// Unparsed counts the values that are not of the type of their field. They are left out.
	Unparsed map[string]int
	// Cut counts the values that are longer than a bound, and those that are left out for one.
	Cut map[string]int
	// Stopped names the fields that took too many steps. They are null where they did.
	Stopped []string
}

// Notes says what of the fields is not whole, or not as it was asked for, by path.
func (r *Result) Notes() []crawl.Note {
	var notes []crawl.Note
	for _, counted := range []struct {
		what string
		by   map[string]int
	}{{crawl.NoteUnparsed, r.Unparsed}, {crawl.NoteCut, r.Cut}, {crawl.NoteIncomplete, r.Incomplete}} {
		for _, path := range slices.Sorted(maps.Keys(counted.by)) {
			notes = append(notes, crawl.Note{About: path, What: counted.what, Count: counted.by[path]})
		}
	}
	for _, path := range r.Stopped {
		notes = append(notes, crawl.Note{About: path, What: crawl.NoteStopped})
	}
	slices.SortStableFunc(notes, func(a, b crawl.Note) int { return cmp.Compare(a.About, b.About) })
	return notes
}

// Run takes the fields out of a parsed page. base is the URL where the page was in the end; what its
// base element says is respected. Without a base only absolute links are URLs.
//
// If a required field of the page is missing, or each of its items lacks one, the error is a
// [*crawl.Fault] of [crawl.CodeMissingField] that names them; the result is there all the same. Run does
// not change doc.
func (p *Program) Run(doc *html.Node, base crawl.URL) (Result, error) {
	if doc == nil {
		doc = &html.Node{Type: html.DocumentNode}
	}
	r := &run{
		program: p, doc: doc, left: budget{left: p.steps}, room: MaxResultBytes,
		found: make([]findings, p.selectors),
	}
	r.index = newIndex(doc)
	r.left.spend(min(len(r.index.nodes), p.steps))
	r.base = baseOf(r.index, base)
	var missing []string
	if p.HasFields() {
		r.out.Record, missing = r.record(p.page, place{node: doc, number: min(0, int32(len(r.index.nodes))-1)})
	}
	if p.HasItems() {
		missing = append(missing, r.items()...)
	}
	if len(missing) > 0 {
		return r.out, missingFault(missing)
	}
	return r.out, nil
}

func missingFault(paths []string) error {
	f := crawl.Faultf(crawl.CodeMissingField, "The page has no value for what is required: %s.", strings.Join(paths, ", "))
	for _, path := range paths {
		f.Fields = append(f.Fields, crawl.FieldFault{
			Field: path, Rule: "required",
			Message: "The page has no value for this field. Mend its selector, or do not require it.",
		})
	}
	return f
}

// run is one page on its way through a program.
type run struct {
	program *Program
	doc     *html.Node
	index   *index
	base    crawl.URL
	left    budget
	room    int // bytes, for all records
	found   []findings
	out     Result
}

// findings is what a selector matches on the whole page.
type findings struct {
	done  bool
	err   error
	nodes []int32
}

// match is a node that a selector matched, or a text that an XPath expression gave.
type match struct {
	node    *html.Node
	text    string
	literal bool
}

// matches are the elements that a CSS selector matched, or what an XPath expression gave.
type matches struct {
	elements []int32
	list     []match
}

func (m matches) len() int { return len(m.elements) + len(m.list) }

func (m matches) at(x *index, i int) match {
	if m.list != nil {
		return m.list[i]
	}
	return match{node: x.nodes[m.elements[i]]}
}

// place is what fields are taken from: an item, or the page.
type place struct {
	node   *html.Node
	number int32 // of the element; -1 on a page without elements
	item   bool
}

// items takes the records of the items, and returns the required fields that all of them lack.
func (r *run) items() (missing []string) {
	r.left.share()
	found, err := r.matches(&r.program.item, place{node: r.doc, number: min(0, int32(len(r.index.nodes))-1)})
	if err != nil {
		r.stopped("items.selector")
		return nil
	}
	for i := range found.len() {
		m := found.at(r.index, i)
		if m.literal || m.node.Type != html.ElementNode {
			continue
		}
		r.out.ItemsFound++
		if len(r.out.Items) == MaxItems || r.room <= 0 {
			count(&r.out.Cut, "items")
			continue
		}
		from := place{node: m.node, item: true}
		if found.list == nil {
			from.number = found.elements[i]
		} else {
			from.number = r.index.place(m.node)
		}
		record, lacks := r.record(r.program.items, from)
		if len(lacks) == 0 {
			r.out.Items = append(r.out.Items, record)
		}
		for _, path := range lacks {
			count(&r.out.Incomplete, path)
		}
	}
	if len(r.out.Items) > 0 {
		return nil
	}
	for i := range r.program.items.fields {
		if path := r.program.items.fields[i].path; r.out.Incomplete[path] > 0 {
			missing = append(missing, path)
		}
	}
	return missing
}

func count(m *map[string]int, path string) {
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[path]++
}

func (r *run) stopped(path string) {
	if !slices.Contains(r.out.Stopped, path) {
		r.out.Stopped = append(r.out.Stopped, path)
	}
}

// record takes the fields of one record, and returns the required ones that are missing.
func (r *run) record(s *set, from place) (*Record, []string) {
	record := &Record{names: s.names, values: make([]any, len(s.fields))}
	room := min(MaxRecordBytes, r.room)
	before := room
	for i := range s.fields {
		if s.fields[i].derived == nil {
			record.values[i] = r.value(&s.fields[i], from, &room)
		}
	}
	for _, i := range s.order {
		record.values[i] = r.derive(s, &s.fields[i], record, &room)
	}
	r.room -= before - room
	var missing []string
	for i := range s.fields {
		if f := &s.fields[i]; f.Required && isEmpty(record.values[i]) {
			missing = append(missing, f.path)
		}
	}
	return record, missing
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	}
	return false
}

// value takes one field. The first match that gives a text counts, or all of them if it is many.
func (r *run) value(f *field, from place, room *int) any {
	r.left.share()
	found, err := r.matches(f, from)
	if err != nil {
		r.stopped(f.path)
		return nothing(f)
	}
	var list []any
	matched := false
	for i := range found.len() {
		text, ok, err := r.text(f, found.at(r.index, i))
		if err != nil {
			r.stopped(f.path)
			break
		}
		if !ok {
			continue
		}
		matched = true
		if len(list) == MaxValues || *room <= 0 {
			count(&r.out.Cut, f.path)
			if f.Many {
				continue
			}
			break
		}
		value, ok := f.parse(text, r.base)
		if !ok {
			count(&r.out.Unparsed, f.path)
			if f.Many {
				continue
			}
			break
		}
		list = append(list, r.fit(f, value, room))
		if !f.Many {
			return list[0]
		}
	}
	if !matched && f.fallback != nil {
		return f.fallback
	}
	if f.Many && list != nil {
		return list
	}
	return nothing(f)
}

// nothing is the value of a field without a match.
func nothing(f *field) any {
	if f.Many {
		return []any{}
	}
	return nil
}

// fit cuts a text that has no room.
func (r *run) fit(f *field, value any, room *int) any {
	const other = 8 // bytes of what is no text, about
	s, ok := value.(string)
	if !ok {
		*room -= other
		return value
	}
	if f.kind == Text || f.kind == HTML {
		var cut bool
		if s, cut = cutTo(s, *room); cut {
			count(&r.out.Cut, f.path)
			value = s
		}
	}
	*room -= other + len(s)
	return value
}

// text is what a match gives a field, behind its regular expression.
func (r *run) text(f *field, m match) (string, bool, error) {
	text, cut, ok, err := f.raw(m, MaxValueBytes, &r.left)
	if err != nil || !ok {
		return "", false, err
	}
	if cut {
		count(&r.out.Cut, f.path)
	}
	if f.regex == nil {
		return text, true, nil
	}
	if !r.left.spend(1 + f.regexSize*len(text)/instructionsPerStep) {
		return "", false, errSteps
	}
	at := f.regex.FindStringSubmatchIndex(text)
	if at == nil || at[2*f.group] < 0 {
		return "", false, nil
	}
	text = text[at[2*f.group]:at[2*f.group+1]]
	if f.trim && f.kind != HTML {
		text = trimBlanks(text)
	}
	return text, true, nil
}

// matches returns what the selector of a field matches.
func (r *run) matches(f *field, from place) (matches, error) {
	if f.xpath != nil {
		most := maxXPathNodes
		if f.single() {
			most = 1
		}
		list, err := f.xpath.find(r.doc, from.node, most, &r.left)
		return matches{list: list}, err
	}
	elements, err := r.elements(f.css, from)
	return matches{elements: elements}, err
}

// single reports whether the first match is the one that counts, whatever it is.
func (f *field) single() bool {
	return f.kind != "" && !f.Many && f.Attr == "" && f.regex == nil && f.kind != URL
}

// elements returns the numbers of the elements that a selector matches. The whole page is looked
// through once; what an item has of it is a range.
func (r *run) elements(s *cssSelector, from place) ([]int32, error) {
	if from.number < 0 {
		return nil, nil
	}
	all := int32(len(r.index.nodes))
	var nodes []int32
	if len(s.free) > 0 {
		known := &r.found[s.id]
		if !known.done {
			known.done = true
			known.nodes, known.err = r.index.find(s.free, -1, 0, all, &r.left)
		}
		if known.err != nil {
			return nil, known.err
		}
		nodes = known.nodes
		if from.item {
			first, _ := slices.BinarySearch(nodes, from.number+1)
			last, _ := slices.BinarySearch(nodes, r.index.end[from.number])
			nodes = nodes[first:last]
		}
	}
	if len(s.scoped) == 0 {
		return nodes, nil
	}
	scoped, err := r.index.find(s.scoped, from.number, from.number, r.index.end[from.number], &r.left)
	if err != nil || len(nodes) == 0 {
		return scoped, err
	}
	return ordered(append(slices.Clone(nodes), scoped...)), nil
}

// derive evaluates an expression. Where it needs what is missing it is missing as well.
func (r *run) derive(s *set, f *field, record *Record, room *int) any {
	r.left.share()
	d := f.derived
	env := make(map[string]any, len(d.uses))
	lacks, size := false, 0
	for _, i := range d.uses {
		v := s.fields[i].operand(record.values[i])
		lacks = lacks || v == nil
		size += sizeOf(v)
		env[s.names[i]] = v
	}
	if !r.left.spend(d.steps*(1+size/(16*bytesPerStep)) + d.regex*size/instructionsPerStep) {
		r.stopped(f.path)
		return nothing(f)
	}
	v, err := d.run(env)
	if err == nil && v != nil {
		if value, ok := f.result(v, r.base); ok {
			return r.fitAll(f, value, room)
		}
	}
	if !lacks {
		count(&r.out.Unparsed, f.path)
	}
	if f.fallback != nil && lacks {
		return f.fallback
	}
	return nothing(f)
}

// sizeOf is about how many bytes an operand has.
func sizeOf(v any) int {
	const other = 8
	switch v := v.(type) {
	case string:
		return len(v)
	case []string:
		n := other * len(v)
		for _, s := range v {
			n += len(s)
		}
		return n
	case []float64:
		return other * len(v)
	case []int:
		return other * len(v)
	}
	return other
}

// fitAll is fit for what may be a list.
func (r *run) fitAll(f *field, value any, room *int) any {
	list, ok := value.([]any)
	if !ok {
		if *room <= 0 {
			count(&r.out.Cut, f.path)
			return nil
		}
		return r.fit(f, value, room)
	}
	for i, v := range list {
		if *room <= 0 {
			count(&r.out.Cut, f.path)
			return list[:i]
		}
		list[i] = r.fit(f, v, room)
	}
	return list
}
