package client_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/api/httpapi"
	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
)

// schema is what the client must know of a schema of the OpenAPI document.
type schema struct {
	Ref                  string             `json:"$ref"`
	Type                 any                `json:"type"` // a name, or several with null
	Format               string             `json:"format"`
	Enum                 []any              `json:"enum"`
	Pattern              string             `json:"pattern"`
	Properties           map[string]*schema `json:"properties"`
	Items                *schema            `json:"items"`
	OneOf                []*schema          `json:"oneOf"`
	AdditionalProperties json.RawMessage    `json:"additionalProperties"` // false, or a schema
}

// openAPI is the document of the service.
type openAPI struct {
	Paths map[string]map[string]struct {
		Parameters []struct {
			Name, In string
			Schema   *schema
		}
		Responses map[string]struct {
			Description string
			Content     map[string]any
		}
	}
	Components struct{ Schemas map[string]*schema }
}

// noCollections has another name than its own method Collections.
type noCollections = httpapi.Collections

// readOpenAPI reads the document of a service without an admin key, which has no admin API:
// this package is what tenants import, and leaves that API out on purpose. Whoever holds the
// admin key changes what all tenants may do; it belongs into an operator's tools and not into
// every service that submits jobs.
func readOpenAPI(t *testing.T) openAPI {
	t.Helper()
	server, err := httpapi.New(httpapi.Options{
		// Nothing is called: the document is made of the types of the handlers.
		Jobs: struct{ httpapi.Jobs }{}, Collections: struct{ noCollections }{}, Doorbell: struct{ httpapi.Doorbell }{}, Limits: crawl.DefaultLimits(), Quota: crawl.Quota{MaxRunning: 1},
		Logger: slog.New(slog.DiscardHandler), Registry: obs.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	server.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", http.NoBody))
	var doc openAPI
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || len(doc.Components.Schemas) == 0 {
		t.Fatalf("%v in %.300s", err, w.Body)
	}
	return doc
}

// comparison collects where a Go type and a schema differ.
type comparison struct {
	doc    openAPI
	consts map[string][]string // values of the constants of a type, by its name
	faults []string
}

func (c *comparison) fault(path, format string, args ...any) {
	c.faults = append(c.faults, path+": "+fmt.Sprintf(format, args...))
}

// types compares a Go type with a schema, and what is below both.
func (c *comparison) types(path string, g reflect.Type, s *schema) {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		if s = c.doc.Components.Schemas[name]; s == nil {
			c.fault(path, "no schema %s", name)
			return
		}
	}
	if g.Kind() == reflect.Pointer {
		g = g.Elem()
	}
	if g == reflect.TypeFor[json.RawMessage]() || g.Kind() == reflect.Interface {
		return // passed through, whatever it is
	}
	if len(s.OneOf) > 0 {
		c.oneOf(path, g, s)
		return
	}
	want := kindOf(s)
	if g == reflect.TypeFor[client.Fields]() && want == "map" {
		// An object with an order: its values are what the elements are, but for their names.
		g = reflect.MapOf(reflect.TypeFor[string](), g.Elem())
	}
	if got := c.kind(g); got != want {
		c.fault(path, "%s is %s, the schema is %s", g, got, want)
		return
	}
	switch want {
	case "object":
		c.objects(path, g, s)
	case "array":
		c.types(path+"[]", g.Elem(), s.Items)
	case "map":
		var value schema
		if err := json.Unmarshal(s.AdditionalProperties, &value); err != nil {
			c.fault(path, "%v", err)
			return
		}
		c.types(path+"{}", g.Elem(), &value)
	case "string":
		c.enums(path, g, s)
	}
}

// oneOf compares a Go type with that of several forms that has its kind: those that a decoder
// reads as shorthand for it, and null, are others.
func (c *comparison) oneOf(path string, g reflect.Type, s *schema) {
	for _, one := range s.OneOf {
		form := one
		if name, ok := strings.CutPrefix(one.Ref, "#/components/schemas/"); ok && c.doc.Components.Schemas[name] != nil {
			form = c.doc.Components.Schemas[name]
		}
		if kindOf(form) == c.kind(g) {
			c.types(path, g, one)
			return
		}
	}
	c.fault(path, "%s is %s, and the schema has no such form", g, c.kind(g))
}

// kindOf names the type of a schema, null apart.
func kindOf(s *schema) string {
	name, _ := s.Type.(string)
	if several, ok := s.Type.([]any); ok {
		for _, one := range several {
			if one != "null" {
				name, _ = one.(string)
			}
		}
	}
	switch {
	case name == "object" && s.Properties == nil:
		return "map"
	case name == "string" && s.Format == "date-time":
		return "time"
	case name == "string" && strings.Contains(s.Pattern, "µs"):
		return "duration"
	}
	return name
}

func (c *comparison) kind(g reflect.Type) string {
	switch {
	case g == reflect.TypeFor[time.Time]():
		return "time"
	case g == reflect.TypeFor[time.Duration]():
		return "duration"
	case g == reflect.TypeFor[json.Number]():
		return "number"
	}
	switch g.Kind() {
	case reflect.String, reflect.Map:
		return g.Kind().String()
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "array"
	case reflect.Struct:
		return "object"
	default:
		return g.String()
	}
}

// objects compares the fields of a struct with the properties of a schema.
func (c *comparison) objects(path string, g reflect.Type, s *schema) {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(g) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-", name == "" && f.Anonymous: // the fields of which are there as well
		case name == "":
			c.fault(path, "%s has no name in JSON", f.Name)
		default:
			fields[name] = f.Type
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if s.Properties[name] == nil {
			c.fault(path, "%s is in %s only", name, g)
			continue
		}
		c.types(path+"."+name, fields[name], s.Properties[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if _, ok := fields[name]; !ok {
			c.fault(path, "%s is in the schema only", name)
		}
	}
}

// enums compares the constants of a type of this package with the values of a schema.
func (c *comparison) enums(path string, g reflect.Type, s *schema) {
	if len(s.Enum) == 0 || g == reflect.TypeFor[string]() {
		return
	}
	var want []string
	for _, v := range s.Enum {
		if text, ok := v.(string); ok {
			want = append(want, text)
		}
	}
	got := slices.Clone(c.consts[g.Name()])
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.fault(path, "%s has %q, the schema %q", g, got, want)
	}
}

// source reads the files of this package, but for its tests.
func source(t *testing.T) []*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// Other services import the client, and nothing comes with it.
func TestImports(t *testing.T) {
	t.Parallel()
	n := 0
	for _, f := range source(t) {
		for _, i := range f.Imports {
			// A path of the standard library has no dot in its first part.
			if n++; strings.Contains(strings.Split(i.Path.Value, "/")[0], ".") {
				t.Errorf("%s is not of the standard library", i.Path.Value)
			}
		}
	}
	if n == 0 {
		t.Error("no imports found")
	}
}

// constants reads the values of the typed string constants of this package.
func constants(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, f := range source(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			of, ok := spec.Type.(*ast.Ident)
			if !ok {
				return true
			}
			for _, v := range spec.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					all[of.Name] = append(all[of.Name], text)
				}
			}
			return true
		})
	}
	return all
}

// retriedJob is client.Retried as it is on the wire.
type retriedJob struct {
	client.Job
	NextCursor string `json:"retry_next_cursor"`
}

// left names, for one schema, properties that the client leaves out, and why.
var left = map[string]map[string]string{
	"Problem": {
		"type":    "is always about:blank",
		"title":   "is the name of the status",
		"failing": "is of /readyz alone, which the client does not call",
	},
}

// The types of this package are those of the service, field by field and value by value.
func TestContract(t *testing.T) {
	t.Parallel()
	c := comparison{doc: readOpenAPI(t), consts: constants(t)}
	for name, g := range map[string]reflect.Type{
		"ShownSpec": reflect.TypeFor[client.Spec](), "Status": reflect.TypeFor[client.Job](),
		"Record": reflect.TypeFor[client.Record](), "Failure": reflect.TypeFor[client.PageError](),
		"JobPage": reflect.TypeFor[client.Page[client.Job]](), "RecordPage": reflect.TypeFor[client.Page[client.Record]](),
		"FailurePage": reflect.TypeFor[client.Page[client.PageError]](), "Problem": reflect.TypeFor[client.Error](),
		"KnownURL": reflect.TypeFor[client.URLInfo](), "URLPage": reflect.TypeFor[client.Page[client.URLInfo]](),
		"Judgement": reflect.TypeFor[client.Judgement](), "Event": reflect.TypeFor[client.Event](),
		"Delivery": reflect.TypeFor[client.WebhookDelivery](), "ExtractRequest": reflect.TypeFor[client.Extract](),
		"Extraction": reflect.TypeFor[client.Extraction](), "Collection": reflect.TypeFor[client.CollectionInfo](),
		"CollectionPage": reflect.TypeFor[client.Page[client.CollectionInfo]](), "CollectionItem": reflect.TypeFor[client.CollectionItem](),
		"RetriedJob": reflect.TypeFor[retriedJob](),
		"Analytics":  reflect.TypeFor[client.Analytics](), "ItemPage": reflect.TypeFor[client.ItemPage](),
	} {
		s := *c.doc.Components.Schemas[name]
		s.Properties = maps.Clone(s.Properties)
		for property := range left[name] {
			if s.Properties[property] == nil {
				t.Errorf("%s has no %s any more, which was left out", name, property)
			}
			delete(s.Properties, property)
		}
		c.types(name, g, &s)
	}
	for _, fault := range c.faults {
		t.Error(fault)
	}

	// What is submitted is what is shown, but for what only the service says.
	sub := reflect.VisibleFields(reflect.TypeFor[client.Spec]())
	var got []string
	for _, f := range sub {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "urls_omitted" {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	if d := cmp.Diff(slices.Sorted(maps.Keys(c.doc.Components.Schemas["Submission"].Properties)), got); d != "" {
		t.Errorf("submission -schema +client:\n%s", d)
	}
}

// notSaid are codes of the contract that no operation of the document names, and why.
var notSaid = map[string]string{
	"method_not_allowed": "is of no operation: it says that there is none",
}

// The codes are those of the document, which tells them as descriptions.
func TestCodes(t *testing.T) {
	t.Parallel()
	doc := readOpenAPI(t)
	documented := map[string]bool{}
	for _, operations := range doc.Paths {
		for _, operation := range operations {
			for _, r := range operation.Responses {
				if r.Content["application/problem+json"] != nil {
					for code := range strings.SplitSeq(r.Description, ", ") {
						documented[code] = true
					}
				}
			}
		}
	}
	for code := range notSaid {
		if documented[code] {
			t.Errorf("%s is in the document now", code)
		}
		documented[code] = true
	}
	known := constants(t)["Code"]
	slices.Sort(known)
	if d := cmp.Diff(slices.Sorted(maps.Keys(documented)), known); d != "" {
		t.Errorf("-document +client:\n%s", d)
	}
}

// The lists take the parameters that the client gives, and no other.
func TestParameters(t *testing.T) {
	t.Parallel()
	doc := readOpenAPI(t)
	consts := constants(t)
	enums := map[string]reflect.Type{
		"/v1/jobs?state": reflect.TypeFor[client.State](), "/v1/jobs/{id}/urls?state": reflect.TypeFor[client.URLState](),
		"/v1/jobs/{id}/result?format": reflect.TypeFor[client.Format](),
	}
	for path, want := range map[string][]string{
		"/v1/jobs":               {"created_after", "cursor", "limit", "state", "tag"},
		"/v1/jobs/{id}/records":  {"cursor", "limit"},
		"/v1/jobs/{id}/errors":   {"cursor", "limit"},
		"/v1/jobs/{id}/urls":     {"cursor", "limit", "reason", "state", "url"},
		"/v1/jobs/{id}/result":   {"after", "columns", "cursor", "format"},
		"/v1/jobs/{id}":          nil,
		"/v1/jobs/{id}/webhooks": nil,

		"/v1/collections":                  {"cursor", "limit"},
		"/v1/collections/{name}":           nil,
		"/v1/collections/{name}/items":     {"after", "cursor", "facets", "missing", "page", "size"},
		"/v1/collections/{name}/analytics": {"top_n"},
		"/v1/collections/{name}/export":    {"after", "columns", "cursor", "facets", "format", "missing"},
	} {
		var got []string
		for _, p := range doc.Paths[path]["get"].Parameters {
			if p.In != "query" {
				continue
			}
			got = append(got, p.Name)
			c := comparison{doc: doc, consts: consts}
			if g := enums[path+"?"+p.Name]; g != nil {
				c.types(path+"?"+p.Name, g, p.Schema)
			}
			for _, fault := range c.faults {
				t.Error(fault)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s takes %q, want %q", path, got, want)
		}
	}
}

// The comparison sees what it is for: a field on one side only, another type, another value.
func TestComparison(t *testing.T) {
	t.Parallel()
	type inner struct {
		A string `json:"a"`
	}
	type outer struct {
		N     int              `json:"n"`
		T     time.Time        `json:"t"`
		D     time.Duration    `json:"d"`
		S     *client.Scope    `json:"s"`
		L     []inner          `json:"l"`
		M     map[string]int64 `json:"m"`
		B     bool             `json:"b"`
		Inner inner            `json:"inner"`
		Raw   string           `json:"-"`
	}
	const document = `{"components":{"schemas":{
		"Outer":{"type":"object","properties":{"n":{"type":["integer","null"]},"t":{"type":"string","format":"date-time"},
			"d":{"type":"string","pattern":"ns|µs"},"s":{"type":["string","null"],"enum":["host","any",null]},
			"l":{"type":["array","null"],"items":{"$ref":"#/components/schemas/Inner"}},
			"m":{"type":"object","additionalProperties":{"type":"integer"}},"b":{"type":"boolean"},
			"inner":{"$ref":"#/components/schemas/Inner"}}},
		"Inner":{"type":"object","properties":{"a":{"type":"string"}}}}}}`
	for _, tt := range []struct {
		from, to string   // in the document
		want     []string // faults
	}{
		{"", "", nil},
		{`"b":{"type":"boolean"},`, ``, []string{"Outer: b is in client_test.outer only"}},
		{`"b":{`, `"c":{"type":"string"},"b":{`, []string{"Outer: c is in the schema only"}},
		{`"a":{"type":"string"}`, `"a":{"type":"string"},"z":{"type":"string"}`, []string{
			"Outer.inner: z is in the schema only", "Outer.l[]: z is in the schema only",
		}},
		{`"b":{"type":"boolean"}`, `"b":{"type":"string"}`, []string{"Outer.b: bool is boolean, the schema is string"}},
		{`["integer","null"]`, `"number"`, []string{"Outer.n: int is integer, the schema is number"}},
		{`,"format":"date-time"`, ``, []string{"Outer.t: time.Time is time, the schema is string"}},
		{`ns|µs`, `x`, []string{"Outer.d: time.Duration is duration, the schema is string"}},
		{`"additionalProperties":{"type":"integer"}`, `"additionalProperties":{"type":"boolean"}`, []string{
			"Outer.m{}: int64 is integer, the schema is boolean",
		}},
		{`"any",null`, `"any","site",null`, []string{
			`Outer.s: client.Scope has ["any" "host"], the schema ["any" "host" "site"]`,
		}},
		{`"host","any"`, `"any"`, []string{`Outer.s: client.Scope has ["any" "host"], the schema ["any"]`}},
		{`"Inner":`, `"Other":`, []string{"Outer.inner: no schema Inner", "Outer.l[]: no schema Inner"}},
	} {
		c := comparison{consts: map[string][]string{"Scope": {"host", "any"}}}
		if err := json.Unmarshal([]byte(strings.ReplaceAll(document, tt.from, tt.to)), &c.doc); tt.from != "" && err != nil {
			t.Fatal(err)
		} else if tt.from == "" {
			if err := json.Unmarshal([]byte(document), &c.doc); err != nil {
				t.Fatal(err)
			}
		}
		c.types("Outer", reflect.TypeFor[outer](), c.doc.Components.Schemas["Outer"])
		if d := cmp.Diff(tt.want, c.faults); d != "" {
			t.Errorf("%s: -want +got\n%s", tt.to, d)
		}
	}
	c := comparison{doc: openAPI{}}
	c.types("X", reflect.TypeFor[struct{ A string }](), &schema{
		Type: "object", Properties: map[string]*schema{"A": {Type: "string"}},
	})
	if len(c.faults) == 0 {
		t.Error("a field without a name in JSON is not seen")
	}
}
