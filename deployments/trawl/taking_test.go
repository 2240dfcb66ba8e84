package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"example.com/trawl/pkg/client"
)

// A file of --fields is fields alone or parts of a job; a field may have the name of a part.
func TestParseTaking(t *testing.T) {
	t.Parallel()
	title := client.Fields{{Name: "title", Selector: "h1"}}
	for text, want := range map[string]taking{
		`{}`:                            {},
		`{"title": {"selector": "h1"}}`: {Fields: title},
		`{"fields": {"title": {"selector": "h1"}}}`: {Fields: title},
		`{"fields": {"selector": "h1"}}`:            {Fields: client.Fields{{Name: "fields", Selector: "h1"}}},
		`{"items": {"selector": "h1"}}`:             {Fields: client.Fields{{Name: "items", Selector: "h1"}}},
		`{"collection": {"selector": "h1"}}`:        {Fields: client.Fields{{Name: "collection", Selector: "h1"}}},
		`{"list_pages": {"selector": "h1"}}`:        {Fields: client.Fields{{Name: "list_pages", Selector: "h1"}}},
		`{"fields": {}, "collection": "jobs"}`:      {Collection: &client.Collection{Name: "jobs"}},
		`{"collection": {"facets": ["a"]}}`:         {Collection: &client.Collection{Facets: []string{"a"}}},
		`{"list_pages": ["/list/**"]}`:              {ListPages: []string{"/list/**"}},
		`{"items": {"selector": "li", "fields": {"z": {"attr": "id", "group": 2}, "a": {"default": 1}}}}`: {
			Items: &client.Items{Selector: "li", Fields: client.Fields{
				{Name: "z", Attr: "id", Group: "2"}, {Name: "a", Default: json.RawMessage("1")},
			}},
		},
	} {
		got, faults := parseTaking([]byte(text))
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" || faults != nil {
			t.Errorf("%s: %q\n%s", text, faults, d)
		}
	}
}

// Every fault of a file is named by its place, all at once, in words for who wrote the file.
func TestTakingFaults(t *testing.T) {
	t.Parallel()
	const place = ": this has no place beside fields, items, list_pages and collection; "
	for text, want := range map[string][]string{
		"":                                     {"line 1, column 1: this is no JSON: "},
		"{\n\"a\": {},,\n}":                    {"line 2, column 9: this is no JSON: "},
		`{"a": 1} x`:                           {"line 1, column 10: this is no JSON: "},
		"\"\x1b[2J\"":                          {"line 1, column 2: this is no JSON: "},
		`null`:                                 {"this is no JSON object; "},
		`"h1"`:                                 {"this is no JSON object; "},
		`{"a": "h1", "b": null}`:               {"a: give an object, such as ", "b: give an object, such as "},
		`{"a": {"sel": 1, "attr": 2}}`:         {"a.sel: there is no such setting; there are selector, ", "a.attr: give a text in quotes."},
		`{"a": {"many": "x", "group": 1.5}}`:   {"a.many: give true or false.", "a.group: "},
		`{"fields": {"a": {"name": "x"}}}`:     {"fields.a.name: there is no such setting"},
		`{"fields": [], "list_pages": ["/x"]}`: {"fields: give an object: "},
		`{"list_pages": [1]}`:                  {"list_pages: give a text in quotes."},
		`{"list_pages": ["x"], "items": "li"}`: {"items: give an object."},
		`{"list_pages": ["x"], "title": {}}`:   {"title" + place},
		`{"items": {"fields": {"a": 1}, "selektor": "li"}}`: {
			"items.selektor: there is no such setting; there are selector, fields.", "items.fields.a: give an object, such as ",
		},
		`{"collection": {"name": 1, "facet": []}}`: {
			"collection.name: give a text in quotes.", "collection.facet: there is no such setting; there are name, key, facets, numbers.",
		},
		`{"list_pages": [], "collection": 1}`: {"collection: give an object, such as "},
	} {
		_, got := parseTaking([]byte(text))
		if !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		for _, fault := range got {
			if hostile.MatchString(fault) || inside.MatchString(fault) || !strings.HasSuffix(fault, ".") {
				t.Errorf("%s: %q", text, fault)
			}
		}
	}
}

// The line of a record keeps what programs know, in its order, and leaves out what nobody asked for.
func TestWithoutUnasked(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"seq":1,"lastmod":null,"item":null,"change":null,"fields":null,"notes":[],"markdown":null,"text":null,"html":null,` +
			`"links":null,"metadata":null}`: `{"seq":1,"lastmod":null}`,
		`{"seq":1,"item":2,"fields":{"b":null,"a":1.50},"notes":[{"about":"a"}],"links":[],"text":"","new":null}`: `{"seq":1,` +
			`"item":2,"fields":{"b":null,"a":1.50},"notes":[{"about":"a"}],"links":[],"text":"","new":null}`,
		`no JSON`: `no JSON`,
	} {
		if got := string(withoutUnasked([]byte(raw))); got != want {
			t.Errorf("%s\nbecomes %s\nwant    %s", raw, got, want)
		}
	}
}

// A table on a terminal has no character that the terminal would obey (SEC-08 is the service's).
func TestCleanTable(t *testing.T) {
	t.Parallel()
	got := cleanTable("a,b\r\n\"x\x1b[2J\",\"over\rwritten\nnext\"\r\nlast")
	if hostile.MatchString(got) || strings.Contains(got, "\r") || strings.Count(got, "\n") != 3 || !strings.HasSuffix(got, "\nlast") {
		t.Errorf("%q", got)
	}
}

// Analytics are laid out in one order, whatever that of the maps.
func TestAnalyticsRows(t *testing.T) {
	t.Parallel()
	a := &client.Analytics{
		Total: 1, Missing: 1,
		Facets:   map[string][]client.FacetCount{"b": {{Value: "x", Count: 12}, {Value: "y", Count: 3}}, "a": {}},
		Distinct: map[string]int64{"b": 5},
		Numbers:  map[string]client.NumberStats{"n": {Count: 2, Avg: "1.5", Min: "1", Max: "2"}, "m": {}},
	}
	var got []string
	for _, row := range analyticsRows("jobs", a) {
		got = append(got, strings.Join(row, "|"))
	}
	want := []string{
		"jobs: 1 item, 1 missing", "", "a (0 values)", "", "b (5 values, 2 shown)", "       12  x", "        3  y",
		"", "m: none", "n: average 1.5 of 2 items, from 1 to 2",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
