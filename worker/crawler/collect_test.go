package crawler

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/fields"
	"example.com/trawl/pkg/store"
)

// recordsOf takes the items li of a page: key, tag (many) and n (number).
func recordsOf(t *testing.T, page string) (out []candidate) {
	t.Helper()
	program, faults := fields.Compile(fields.Spec{Items: &fields.Items{Selector: "li", Fields: fields.Fields{
		{Name: "key", Field: fields.Field{Selector: "b"}},
		{Name: "tag", Field: fields.Field{Selector: "i", Many: true}},
		{Name: "n", Field: fields.Field{Selector: "u", Type: fields.Number}},
		{Name: "ok", Field: fields.Field{Selector: "s", Type: fields.Bool}},
	}}})
	if faults != nil {
		t.Fatal(faults)
	}
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	result, err := program.Run(doc, crawl.URL{})
	if err != nil {
		t.Fatal(err)
	}
	for i, values := range result.Items {
		out = append(out, candidate{item: i + 1, values: values, fingerprint: [16]byte{byte(i)}})
	}
	return out
}

func TestUpserts(t *testing.T) {
	t.Parallel()
	const url = "http://site.test/page"
	type facets = []store.Facet
	type numbers = []store.Number
	at := func(i int) [16]byte { return [16]byte{byte(i - 1)} }
	long := strings.Repeat("k", crawl.MaxKeyBytes)
	for name, tt := range map[string]struct {
		page  string
		key   string
		want  []store.Upsert
		notes []crawl.Note
	}{
		"by a field": {"<li><b>x</b></li><li><b>y</b></li>", "key", []store.Upsert{
			{Item: 1, Key: "x", Fingerprint: at(1)}, {Item: 2, Key: "y", Fingerprint: at(2)},
		}, nil},
		"by a number": {"<li><u>1.50</u></li>", "n", []store.Upsert{
			{Item: 1, Key: "1.5", Fingerprint: at(1), Numbers: numbers{{Name: "n", Value: "1.5"}}},
		}, nil},
		"by a bool": {"<li><s>yes</s></li>", "ok", []store.Upsert{{Item: 1, Key: "true", Fingerprint: at(1)}}, nil},
		"no key": {"<li></li><li><b></b></li><li><b>x</b></li>", "key", []store.Upsert{
			{Item: 3, Key: "x", Fingerprint: at(3)},
		}, []crawl.Note{{About: "items.fields.key", What: crawl.NoteNoKey, Count: 2}}},
		"the longest key": {"<li><b>" + long + "</b></li>", "key", []store.Upsert{{Item: 1, Key: long, Fingerprint: at(1)}}, nil},
		"a key too long": {
			"<li><b>" + long + "k</b></li>", "key", nil,
			[]crawl.Note{{About: "items.fields.key", What: crawl.NoteNoKey, Count: 1}},
		},
		"the first of a key": {"<li><b>x</b></li><li><b>x</b><i>a</i></li><li><b>x</b></li>", "key", []store.Upsert{
			{Item: 1, Key: "x", Fingerprint: at(1)},
		}, []crawl.Note{{About: "items.fields.key", What: "duplicate_key", Count: 2}}},
		"facets": {"<li><b>x</b><i> a </i><i>b</i><i>a</i><i></i></li>", "key", []store.Upsert{
			{Item: 1, Key: "x", Fingerprint: at(1), Facets: facets{{Name: "tag", Value: "a"}, {Name: "tag", Value: "b"}}},
		}, nil},
		"a number too large": {
			"<li><b>x</b><u>1000000000000.1</u></li>", "key",
			[]store.Upsert{{Item: 1, Key: "x", Fingerprint: at(1)}},
			[]crawl.Note{{About: "items.fields.n", What: crawl.NoteCut, Count: 1}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &crawl.Collection{Key: tt.key, Facets: []string{"tag"}, Numbers: []string{"n"}}
			notes := tally{}
			got := upserts(c, itemPath, url, recordsOf(t, tt.page), notes)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.notes, notes.notes()); d != "" {
				t.Errorf("notes (-want +got):\n%s", d)
			}
		})
	}
}

// A page enters by its source URL unless a field is named, with fields or without.
func TestUpsertOfAPage(t *testing.T) {
	t.Parallel()
	const url = "http://site.test/page"
	notes := tally{}
	page := []candidate{{fingerprint: [16]byte{7}}}
	got := upserts(&crawl.Collection{Key: crawl.KeySourceURL}, pagePath, url, page, notes)
	if d := cmp.Diff([]store.Upsert{{Key: url, Fingerprint: [16]byte{7}}}, got); d != "" || len(notes) > 0 {
		t.Errorf("notes %v (-want +got):\n%s", notes, d)
	}
	if got := upserts(&crawl.Collection{Key: "id"}, pagePath, url, page, notes); got != nil {
		t.Errorf("a page without its key enters as %+v", got)
	}
	long := "http://site.test/" + strings.Repeat("x", crawl.MaxKeyBytes)
	if got := upserts(&crawl.Collection{Key: crawl.KeySourceURL}, pagePath, long, page, notes); got != nil {
		t.Errorf("a page of a long URL enters as %+v", got)
	}
	want := []crawl.Note{{About: "fields.id", What: crawl.NoteNoKey, Count: 1}, {About: "source_url", What: crawl.NoteNoKey, Count: 1}}
	if d := cmp.Diff(want, notes.notes()); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

func TestFacetValues(t *testing.T) {
	t.Parallel()
	var many []any
	var first []string
	for i := range 60 {
		many = append(many, fmt.Sprint(i), fmt.Sprint(i)) // each is one value
		if i < crawl.MaxFacetValues {
			first = append(first, fmt.Sprint(i))
		}
	}
	wide := strings.Repeat("é", 101)
	for name, tt := range map[string]struct {
		value any
		want  []string
		cut   int
	}{
		"none":                      {nil, nil, 0},
		"text":                      {" Berlin\n", []string{"Berlin"}, 0},
		"empty":                     {" ", nil, 0},
		"number":                    {json.Number("1.50"), []string{"1.50"}, 0},
		"bool":                      {false, []string{"false"}, 0},
		"list":                      {[]any{"b", "a", "b ", nil, "", json.Number("1"), true}, []string{"b", "a", "1", "true"}, 0},
		"NUL":                       {"\x00a\x00 ", []string{"a"}, 0},
		"only NUL":                  {"\x00", nil, 0},
		"200 bytes":                 {wide[:200], []string{wide[:200]}, 0},
		"more than 200":             {wide, []string{wide[:200]}, 1},
		"a character at the border": {"x" + wide, []string{"x" + wide[:198]}, 1},
		"more than 50":              {many, first, 20},
		"a blank at the border":     {strings.Repeat("x", 199) + " yy", []string{strings.Repeat("x", 199)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, cut := facetValues(tt.value)
			if d := cmp.Diff(tt.want, got); d != "" || cut != tt.cut {
				t.Errorf("%d cut, want %d (-want +got):\n%s", cut, tt.cut, d)
			}
		})
	}
}

// Whatever a page has in a facet, what enters keeps to the bounds of [store.Upsert].
func TestFacetValuesHoldBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var list []any
		for _, s := range rapid.SliceOfN(rapid.OneOf(rapid.String(), rapid.StringN(150, 300, -1), rapid.SampledFrom([]string{"a", " a", "\x00"})), 0, 80).Draw(t, "values") {
			list = append(list, strings.ToValidUTF8(s, "?"))
		}
		got, _ := facetValues(list)
		seen := map[string]bool{}
		for _, s := range got {
			if s == "" || len(s) > crawl.MaxFacetBytes || !utf8.ValidString(s) || strings.Contains(s, "\x00") ||
				strings.TrimSpace(s) != s || seen[s] {
				t.Fatalf("value %q", s)
			}
			seen[s] = true
		}
		if len(got) > crawl.MaxFacetValues {
			t.Fatalf("%d values", len(got))
		}
	})
}

func TestSummand(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0": "0", "-0": "0", "1": "1", "1.50": "1.5", "-1.25": "-1.25", "100": "100", "1.1234564": "1.123456",
		"1.1234565": "1.123457", "-1.1234565": "-1.123457", "0.0000004": "0", "-0.0000004": "0", "0.0000005": "0.000001",
		"1e3": "1000", "1.5e-3": "0.0015", "1E+2": "100", "1000000000000": "1000000000000", "-1000000000000": "-1000000000000",
		"1000000000000.0000001": "", "1000000000001": "", "-1e13": "", "1e999999999": "", "1e-999999999": "0",
		"123456789012.123456": "123456789012.123456", "": "", "nan": "", "inf": "", "0." + strings.Repeat("0", 600) + "1": "",
		"1" + strings.Repeat("0", 64): "", "0.1": "0.1", "999999999999.9999999": "1000000000000",
	} {
		got, ok := summand(json.Number(in))
		if string(got) != want || ok != (want != "") {
			t.Errorf("%.40s is summed up as %q (%t), want %q", in, got, ok, want)
		}
	}
}

// What is summed up is within half of the last decimal of what the page has, and no more digits.
func TestSummandIsExact(t *testing.T) {
	t.Parallel()
	half := big.NewRat(1, 2_000_000)
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Int64Range(-2*crawl.MaxNumberValue, 2*crawl.MaxNumberValue).Draw(t, "whole")
		s := fmt.Sprint(whole)
		if d := rapid.StringMatching(`[0-9]{0,12}`).Draw(t, "decimals"); d != "" {
			s += "." + d
		}
		in, ok := new(big.Rat).SetString(s)
		if !ok {
			t.Fatal(s)
		}
		within := new(big.Rat).Abs(in).Cmp(big.NewRat(crawl.MaxNumberValue, 1)) <= 0
		got, ok := summand(json.Number(s))
		if ok != within {
			t.Fatalf("%s: %t", s, ok)
		}
		if !ok {
			return
		}
		out, _ := new(big.Rat).SetString(string(got))
		_, decimals, _ := strings.Cut(string(got), ".")
		if off := new(big.Rat).Sub(in, out); off.Abs(off).Cmp(half) > 0 || len(decimals) > crawl.NumberDecimals || !json.Valid([]byte(got)) {
			t.Fatalf("%s is summed up as %s", s, got)
		}
	})
}

// Notes are in one order, merged, and bounded; what keeps records out of the collection stays.
func TestNotes(t *testing.T) {
	t.Parallel()
	n := tally{}
	result := fields.Result{
		Unparsed: map[string]int{"fields.b": 2}, Cut: map[string]int{"fields.b": 1, "items": 3},
		Incomplete: map[string]int{"items.fields.a": 4}, Stopped: []string{"fields.c"},
	}
	n.all(result.Notes())
	n.add("fields.b", crawl.NoteCut, 1)
	n.add("fields.z", crawl.NoteNoKey, 1)
	n.add("fields.b", crawl.NoteUnparsed, 0)
	n.say("content", crawl.NoteTooComplex)
	want := []crawl.Note{
		{About: "fields.z", What: crawl.NoteNoKey, Count: 1},
		{About: "content", What: crawl.NoteTooComplex},
		{About: "items", What: crawl.NoteCut, Count: 3},
		{About: "fields.b", What: crawl.NoteCut, Count: 2},
		{About: "fields.b", What: crawl.NoteUnparsed, Count: 2},
		{About: "fields.c", What: crawl.NoteStopped},
		{About: "items.fields.a", What: crawl.NoteIncomplete, Count: 4},
	}
	if d := cmp.Diff(want, n.notes()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i := range 100 {
		n.add(fmt.Sprintf("fields.a%02d", i), crawl.NoteUnparsed, 1)
	}
	got := n.notes()
	if d := cmp.Diff(want[:3], got[:3]); len(got) != maxNotes || d != "" {
		t.Errorf("%d notes (-want +got):\n%s", len(got), d)
	}
	if got := (tally{}).notes(); got != nil {
		t.Errorf("notes of nothing: %v", got)
	}
}

// The digest of what is taken has everything in it that decides, and nothing else.
func TestUnder(t *testing.T) {
	t.Parallel()
	base := func() crawl.Plan {
		return crawl.Plan{
			Fields:     crawl.Fields{{Name: "a", Field: crawl.Field{Selector: "p"}}},
			Collection: &crawl.Collection{Name: "c", Key: "source_url"}, Headers: crawl.Headers{"X-A": "1", "X-B": "2"},
		}
	}
	p := base()
	want := underOf(&p, agent{product: "Bot"})
	if want == "" || want != underOf(&p, agent{product: "Bot"}) {
		t.Fatalf("digest %q", want)
	}
	for name, change := range map[string]func(*crawl.Plan){
		"fields":       func(p *crawl.Plan) { p.Fields[0].Selector = "b" },
		"items":        func(p *crawl.Plan) { p.Items = &crawl.Items{Selector: "li"} },
		"formats":      func(p *crawl.Plan) { p.Formats = []string{"text"} },
		"main content": func(p *crawl.Plan) { p.MainContent = true },
		"list pages":   func(p *crawl.Plan) { p.ListPages = []string{"/"} },
		"key":          func(p *crawl.Plan) { p.Collection.Key = "a" },
		"facets":       func(p *crawl.Plan) { p.Collection.Facets = []string{"a"} },
		"numbers":      func(p *crawl.Plan) { p.Collection.Numbers = []string{"a"} },
		"headers":      func(p *crawl.Plan) { p.Headers["X-A"] = "2" },
		"robots":       func(p *crawl.Plan) { p.IgnoreRobots = true },
		"agent":        nil,
	} {
		p, by := base(), agent{product: "Bot"}
		if change != nil {
			change(&p)
		} else {
			by.name = "Other"
		}
		if underOf(&p, by) == want {
			t.Errorf("another %s has the same digest", name)
		}
	}
	p = base()
	p.MaxPages, p.Concurrency, p.Include = 5, 9, []string{"/x"}
	if underOf(&p, agent{product: "Bot"}) != want {
		t.Error("what takes nothing out of a page changes the digest")
	}
}
