package store

import (
	"encoding/json"
	command "flag" // as in golden_files_test.go
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

var updateShape = command.Bool("update-shape", false, "write the shape of what the store keeps today into testdata/golden")

// decide is what a developer has to think of whose change is seen here.
const decide = `What is kept of jobs has changed its shape (-before +now):
%s
Processes of before and of now share one Redis while they are upgraded. Decide:
  1. A process of before may pass over what is new, and a process of now may meet jobs without it:
     go test ./pkg/store -run TestShape -update-shape
  2. Else (it bounds what is fetched or kept, or something means another thing than before): raise
     crawl.PlanVersion and FORMAT in scripts/include/job.lua, have the store read both formats, write
     golden files of the new one, and then the shape as above.
The comment at crawl.PlanVersion has the rule, deployments/UPGRADING.md the steps.`

// The shape of what is kept is what it was: nobody changes it without a decision.
func TestShape(t *testing.T) {
	t.Parallel()
	path := filepath.Join(goldenDir, "shape.json")
	got := shape(t)
	if *updateShape {
		writeJSONFile(t, path, got)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var now map[string]any
	if err := json.Unmarshal(text, &now); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, now); d != "" {
		t.Errorf(decide, d)
	}
}

// The format stands in Lua and in Go.
func TestFormat(t *testing.T) {
	t.Parallel()
	if !strings.Contains(mustRead("include/job.lua"), fmt.Sprintf("local FORMAT = %d\n", crawl.PlanVersion)) {
		t.Errorf("job.lua does not say FORMAT = %d, which crawl.PlanVersion is", crawl.PlanVersion)
	}
}

// shape says what is kept, by the types that encode it and by what the golden scene writes.
func shape(t *testing.T) map[string]any {
	t.Helper()
	types := map[string]any{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[crawl.Plan](), reflect.TypeFor[crawl.Field](), reflect.TypeFor[storedPage](),
		reflect.TypeFor[storedFailure](), reflect.TypeFor[keptContent](), reflect.TypeFor[Visit](),
		reflect.TypeFor[keptItem](), reflect.TypeFor[keptCounts](),
	} {
		types[typ.Name()] = shapeOf(typ, nil)
	}
	_, s := newScene(t, slices.Concat(goldenSteps, laterSteps)...)
	return map[string]any{
		"format": crawl.PlanVersion, "types": types, "written": s.shape(t), "keys": keyTable(t),
		"row":     row(crawl.Item{Kind: crawl.ItemPage, N: 1, Depth: 2, Parent: 3, Attempt: 4, Hops: 5, URL: "url", FetchURL: "fetch_url"}),
		"content": fmt.Sprintf("form, size in %d bytes; %d JSON, %d zstd", packedHead-1, formJSON, formZstd),
	}
}

// shapeOf describes a type as its JSON is.
func shapeOf(t reflect.Type, within []reflect.Type) any {
	if slices.Contains(within, t) || t.Implements(reflect.TypeFor[json.Marshaler]()) || t == reflect.TypeFor[json.RawMessage]() {
		return t.String()
	}
	within = append(within, t)
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOf(t.Elem(), within)
	case reflect.Slice, reflect.Array:
		return []any{shapeOf(t.Elem(), within)}
	case reflect.Map:
		return map[string]any{"*": shapeOf(t.Elem(), within)}
	case reflect.Struct:
		fields := map[string]any{}
		for _, f := range reflect.VisibleFields(t) {
			tag := f.Tag.Get("json")
			if f.Anonymous || tag == "-" || !f.IsExported() {
				continue
			}
			fields[tag] = shapeOf(f.Type, within)
		}
		return fields
	default:
		return t.Kind().String()
	}
}

// keyTable is the table of keys.go: name and type of every key.
func keyTable(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("keys.go")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, m := range regexp.MustCompile(`(?m)^//\t(\S+) +(SET|STR|HASH|ZSET|LIST|BITS) `).FindAllSubmatch(text, -1) {
		keys = append(keys, string(m[1])+" "+string(m[2]))
	}
	slices.Sort(keys)
	if len(keys) < 50 {
		t.Errorf("only %d keys in the table: its form has changed", len(keys))
	}
	return keys
}

// The parts of names that are one job's, one item's, one day's.
var particular = []struct {
	form *regexp.Regexp
	name string
}{
	{regexp.MustCompile(goldenTenant), "T"},
	{regexp.MustCompile(`:j:j[a-z2-7]{26}`), ":j:ID"},
	{regexp.MustCompile(`^\{a\}:(key|gone:T):[0-9a-f]+$`), "{a}:$1:DIGEST"},
	{regexp.MustCompile(`:idem:[0-9a-f]{64}`), ":idem:H"},
	{regexp.MustCompile(`^[0-9a-f]{16}$`), "ID"}, // of a key
	{regexp.MustCompile(`(:|^)\d+`), "${1}N"},
}

func general(name string) string {
	for _, p := range particular {
		name = p.form.ReplaceAllString(name, p.name)
	}
	return name
}

// fieldForm is that of fields that have names; the others are digests, ids and values.
var fieldForm = regexp.MustCompile(`^[a-z]+[a-z_0-9]*([:.][a-z0-9_.]+)?$|^N[.a-z]*$`)

// shape is the type of each kind of key that the scene wrote, and the fields of hashes.
func (s *scene) shape(t *testing.T) map[string]any {
	t.Helper()
	kinds := map[string]map[string]bool{}
	file := s.export(t)
	for i := range file.Keys {
		k := &file.Keys[i]
		name := general(k.Key) + " " + k.Type
		if kinds[name] == nil {
			kinds[name] = map[string]bool{}
		}
		for at := 0; k.Type == "hash" && at < len(k.Value); at += 2 {
			if field := general(string(k.Value[at])); fieldForm.MatchString(field) {
				kinds[name][field] = true
			}
		}
	}
	out := map[string]any{}
	for name, fields := range kinds {
		list := []string{}
		for field := range fields {
			list = append(list, field)
		}
		slices.Sort(list)
		out[name] = list
	}
	return out
}
