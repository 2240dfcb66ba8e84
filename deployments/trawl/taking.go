package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"example.com/trawl/deployments/trawl/watch"
	"example.com/trawl/pkg/client"
)

// maxFieldsFile bounds the file of --fields in bytes, so that the path of a device does not
// fill memory: a hundred fields with the longest of everything take less.
const maxFieldsFile = 1 << 20

// contentFlags say what is taken out of each page.
type contentFlags struct {
	Keep        []string `placeholder:"FORMAT,…" help:"What is kept of the content of each page: markdown, text, html, links, metadata. By default nothing."`
	MainContent bool     `name:"main-content" help:"Markdown and text of the main content alone, without navigation and the like."`
	Fields      string   `placeholder:"FILE" help:"A JSON file that says which values are taken out of each page; --help has an example."`

	taking taking // what the file of Fields says
}

// fieldsHelp is what the help of a command says of the file of --fields.
const fieldsHelp = `The file of --fields has a name and what to take for each field:

    {"title": {"selector": "h1", "required": true}, "price": {"selector": ".price", "type": "number"}}

or it has these under "fields", beside any of "items" (several records a page), "list_pages"
(patterns of pages that are there for their links) and "collection" (name, key, facets, numbers).`

// contentFormats are what --keep takes.
var contentFormats = []client.ContentFormat{
	client.ContentMarkdown, client.ContentText, client.ContentHTML, client.ContentLinks, client.ContentMetadata,
}

// taking is what the file of --fields can say.
type taking struct {
	Fields     client.Fields      `json:"fields"`
	Items      *client.Items      `json:"items"`
	ListPages  []string           `json:"list_pages"`
	Collection *client.Collection `json:"collection"`
}

// load reads the file of --fields, and returns what is wrong with it and with the other flags.
func (f *contentFlags) load() error {
	var faults []string
	for _, name := range f.Keep {
		if !slices.Contains(contentFormats, client.ContentFormat(name)) {
			faults = append(faults, fmt.Sprintf("--keep: give one of markdown, text, html, links, metadata, not %q.", name))
		}
	}
	if f.MainContent && !slices.Contains(f.Keep, "markdown") && !slices.Contains(f.Keep, "text") {
		faults = append(faults, "--main-content: only markdown and text are of the main content; add --keep markdown, or text.")
	}
	if faults != nil {
		return badUsage(faults...)
	}
	if f.Fields == "" {
		return nil
	}
	text, err := readFieldsFile(f.Fields)
	if err != nil {
		return err
	}
	if f.taking, faults = parseTaking(text); faults == nil {
		return nil
	}
	for i, fault := range faults {
		faults[i] = f.Fields + ": " + fault
	}
	return badUsage(faults...)
}

// formats returns what --keep names.
func (f *contentFlags) formats() []client.ContentFormat {
	var out []client.ContentFormat
	for _, name := range f.Keep {
		out = append(out, client.ContentFormat(name))
	}
	return out
}

func readFieldsFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, failuref("--fields: the file cannot be read: %w", err)
	}
	defer func() { _ = file.Close() }() // opened for reading: nothing is lost
	text, err := io.ReadAll(io.LimitReader(file, maxFieldsFile+1))
	switch {
	case err != nil:
		return nil, failuref("--fields: the file cannot be read: %w", err)
	case len(text) > maxFieldsFile:
		return nil, failuref("--fields: %s has more than %d bytes: it says more than a job may ask for.", name, maxFieldsFile)
	}
	return bytes.TrimPrefix(text, []byte("\uFEFF")), nil // editors leave one at the beginning
}

// member is one member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of a JSON object in their order, nil and false for what is none.
func members(text []byte) ([]member, bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, false
	}
	out := []member{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, false
		}
		m := member{}
		m.name, _ = token.(string) // of an object: always
		if err := d.Decode(&m.value); err != nil {
			return nil, false
		}
		out = append(out, m)
	}
	return out, true
}

// parseTaking reads what a file of --fields says. faults are what is wrong with its form, each
// with the name of its place; the values are the service's to check.
func parseTaking(text []byte) (out taking, faults []string) {
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return out, []string{placeOf(text, err) + "this is no JSON: " + watch.Clean(err.Error()) + "."}
	}
	all, ok := members(whole)
	if !ok {
		return out, []string{"this is no JSON object; write it like " + `{"title": {"selector": "h1"}}.`}
	}
	if !slices.ContainsFunc(all, isPart) {
		faults = fieldFaults("", whole)
		whole = slices.Concat([]byte(`{"fields":`), whole, []byte("}"))
	} else {
		faults = partFaults(all)
	}
	if faults != nil {
		return out, faults
	}
	if err := json.Unmarshal(whole, &out); err != nil {
		return out, []string{watch.Clean(err.Error()) + "."}
	}
	return out, nil
}

// placeOf says where a text stops being JSON.
func placeOf(text []byte, err error) string {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return ""
	}
	before := text[:min(max(syntax.Offset-1, 0), int64(len(text)))]
	line := bytes.Count(before, []byte("\n")) + 1
	return fmt.Sprintf("line %d, column %d: ", line, len(before)-bytes.LastIndexByte(before, '\n'))
}

// isPart reports whether a member at the top is a part of a job, and no field of that name.
func isPart(m member) bool {
	below, object := members(m.value)
	has := func(names ...string) bool {
		return slices.ContainsFunc(below, func(b member) bool { return slices.Contains(names, b.name) })
	}
	switch m.name {
	case "fields":
		return object && !slices.ContainsFunc(below, func(b member) bool { return b.value[0] != '{' })
	case "items":
		return has("fields")
	case "list_pages":
		return m.value[0] == '['
	case "collection":
		return m.value[0] == '"' || has("name", "key", "facets", "numbers")
	default:
		return false
	}
}

// partFaults finds what is wrong with the form of a file that has parts of a job.
func partFaults(all []member) (faults []string) {
	for _, m := range all {
		switch m.name {
		case "fields":
			faults = append(faults, fieldFaults("fields.", m.value)...)
		case "items":
			faults = append(faults, itemsFaults(m.value)...)
		case "list_pages":
			faults = append(faults, typeFault[[]string]("list_pages", m.value)...)
		case "collection":
			if m.value[0] != '"' {
				faults = append(faults, memberFaults[client.Collection]("collection", m.value, "")...)
			}
		default:
			faults = append(faults, m.name+": this has no place beside fields, items, list_pages and collection; "+
				"a field belongs under fields, and what else a job takes has a flag of its own.")
		}
	}
	return faults
}

func itemsFaults(value json.RawMessage) []string {
	all, ok := members(value)
	if !ok {
		return typeFault[client.Items]("items", value)
	}
	faults := memberFaults[client.Items]("items", value, "fields")
	for _, m := range all {
		if m.name == "fields" {
			faults = append(faults, fieldFaults("items.fields.", m.value)...)
		}
	}
	return faults
}

// fieldFaults finds what is wrong with the form of fields, whose names stand behind before.
func fieldFaults(before string, value json.RawMessage) (faults []string) {
	fields, ok := members(value)
	if !ok {
		return []string{cmp.Or(strings.TrimSuffix(before, "."), "fields") + ": give an object: a name and what to take for each field."}
	}
	for _, field := range fields {
		faults = append(faults, memberFaults[client.Field](before+field.name, field.value, "")...)
	}
	return faults
}

// memberFaults finds what T has not in an object, and what is of another type there. The
// member except is another's to check.
func memberFaults[T any](place string, value json.RawMessage, except string) (faults []string) {
	all, ok := members(value)
	if !ok {
		return []string{place + `: give an object, such as {"selector": "h1"}.`}
	}
	names := jsonNames(reflect.TypeFor[T]())
	for _, m := range all {
		switch {
		case m.name == except:
		case !slices.Contains(names, m.name):
			faults = append(faults, fmt.Sprintf("%s.%s: there is no such setting; there are %s.", place, m.name, strings.Join(names, ", ")))
		default:
			one, err := json.Marshal(map[string]json.RawMessage{m.name: m.value})
			if err == nil {
				faults = append(faults, typeFault[T](place+"."+m.name, one)...)
			}
		}
	}
	return faults
}

// jsonNames returns the names that the fields of a struct have in JSON.
func jsonNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// typeFault says what a value should be that is no T.
func typeFault[T any](place string, value json.RawMessage) []string {
	var v T
	err := json.Unmarshal(value, &v)
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return []string{place + ": " + watch.Clean(err.Error()) + "."}
	}
	want := map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.String: "a text in quotes", reflect.Slice: "a list",
	}[wrong.Type.Kind()]
	return []string{place + ": give " + cmp.Or(want, "an object") + "."}
}

// unasked are members of a record that only a job has which asked for them.
var unasked = []string{"item", "change", "fields", "notes", "markdown", "text", "html", "links", "metadata"}

// withoutUnasked returns the JSON of a record without what was not asked for, or is not there:
// the service names all that a record can have.
func withoutUnasked(raw []byte) []byte {
	all, ok := members(raw)
	if !ok {
		return raw
	}
	return object(slices.DeleteFunc(all, func(m member) bool {
		empty := string(m.value) == "null" || m.name == "notes" && string(m.value) == "[]"
		return empty && slices.Contains(unasked, m.name)
	}))
}

// object is the opposite of [members].
func object(all []member) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(m.name) // a string: always
		b.Write(name)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}
