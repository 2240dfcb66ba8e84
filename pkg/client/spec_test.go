package client_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
)

func TestSpecJSON(t *testing.T) {
	t.Parallel()
	escape := strings.NewReplacer("&", `\u0026`, "<", `\u003c`, ">", `\u003e`)
	for _, tt := range []struct {
		spec client.Spec
		want string
	}{
		{client.Spec{}, `{}`},
		{client.Spec{URLs: []string{"https://site.test/?a=1&b=<2>"}}, `{"urls":["https://site.test/?a=1&b=<2>"]}`},
		{client.Spec{SeedURL: "s", MaxDepth: new(int)}, `{"seed_url":"s","max_depth":0}`},
		{
			client.Spec{Delay: 1500 * time.Millisecond, Retention: time.Minute, TimeLimit: 90 * time.Minute},
			`{"time_limit":"1h30m0s","delay":"1.5s","retention":"1m0s"}`,
		},
		{client.Spec{URLs: []string{}, Tags: []string{}}, `{}`},
		{client.Spec{Headers: map[string]string{}, DropParams: []string{}}, `{}`},
		{
			client.Spec{
				RespectRobots: new(false), Sitemap: client.SitemapOnly, Headers: map[string]string{"A": "b"}, UserAgent: "c",
				DropParams: []string{"utm_*"}, SortParams: true,
			},
			`{"respect_robots":false,"sitemap":"only","headers":{"A":"b"},"user_agent":"c","drop_params":["utm_*"],"sort_params":true}`,
		},
		{
			client.Spec{Webhook: &client.Webhook{URL: "u", Events: []client.EventType{client.EventFailed}, Secret: "s"}},
			`{"webhook":{"url":"u","events":["job.failed"],"secret":"s"}}`,
		},
		{
			client.Spec{
				Formats: []client.ContentFormat{client.ContentMarkdown, client.ContentLinks}, MainContent: true,
				Fields: client.Fields{
					{Name: "title", Selector: "h1", Required: true},
					{Name: "a b", Selector: "xpath://p", Attr: "id", Many: true, Trim: new(false), Locale: "de"},
					{Name: "n", Selector: "i", Type: client.FieldInteger, Regex: `(\d+)`, Group: "1", Default: 0},
					{Name: "d", Expr: "n + 1", Group: "year", Default: false},
				},
				Items:      &client.Items{Selector: "li", Fields: client.Fields{{Name: "z", Selector: "b"}, {Name: "a", Selector: "i"}}},
				ListPages:  []string{"/list/**"},
				Collection: &client.Collection{Name: "jobs", Key: "a", Facets: []string{"city"}, Numbers: []string{"n"}},
			},
			`{"formats":["markdown","links"],"main_content":true,"fields":{"title":{"selector":"h1","required":true},` +
				`"a b":{"selector":"xpath://p","attr":"id","many":true,"trim":false,"locale":"de"},` +
				`"n":{"selector":"i","type":"integer","regex":"(\\d+)","group":1,"default":0},` +
				`"d":{"group":"year","default":false,"expr":"n + 1"}},` +
				`"items":{"selector":"li","fields":{"z":{"selector":"b"},"a":{"selector":"i"}}},"list_pages":["/list/**"],` +
				`"collection":{"name":"jobs","key":"a","facets":["city"],"numbers":["n"]}}`,
		},
		{client.Spec{Fields: client.Fields{}, Items: &client.Items{}}, `{"items":{"selector":"","fields":null}}`},
		{client.Spec{TimeLimit: -time.Second}, `{"time_limit":"-1s"}`}, // the service says that it is none
	} {
		got, err := json.Marshal(tt.spec)
		if err != nil || !sameJSON(t, got, []byte(escape.Replace(tt.want))) {
			t.Errorf("%s, %v, want %s", got, err, tt.want)
		}
		inside, err := json.Marshal(struct{ Spec *client.Spec }{&tt.spec})
		if err != nil || string(inside) != `{"Spec":`+string(got)+"}" {
			t.Errorf("%s, %v", inside, err)
		}
	}
	for _, text := range []string{
		`{"delay":1}`, `{"delay":"1"}`, `{"delay":"1h\u001b"}`, `{"max_pages":"1"}`, `[]`,
		`{"fields":[]}`, `{"fields":{"a":1}}`, `{"fields":{"a\u001b":{"selector":1}}}`, `{"fields":{"a":{"group":true}}}`,
		`{"fields":{"a":{"group":1.5}}}`, `{"collection":1}`, `{"items":"x"}`,
	} {
		var s client.Spec
		if err := json.Unmarshal([]byte(text), &s); err == nil {
			t.Errorf("%s: %+v", text, s)
		} else {
			presentable(t, err)
		}
	}
	var s client.Spec
	err := json.Unmarshal([]byte(`{"delay":null,"retention":"1h","new":{}}`), &s)
	if err != nil || s.Retention != time.Hour {
		t.Errorf("%v, %+v", err, s)
	}
}

// What a service shows of fields is read as it is: the order, names that are given twice, a
// default that no float64 holds, and what this version does not know.
func TestFieldsAreRead(t *testing.T) {
	t.Parallel()
	var s client.Spec
	err := json.Unmarshal([]byte(`{"fields":{"z":{"selector":"a","default":12345678901234567890,"new":1},"a":{"group":2},
		"z":{"default":null,"group":"x"}},"items":{"selector":"li","fields":{"k":{"default":["b"]}}},"collection":"jobs"}`), &s)
	want := client.Spec{
		Fields: client.Fields{
			{Name: "z", Selector: "a", Default: json.RawMessage("12345678901234567890")},
			{Name: "a", Group: "2"},
			{Name: "z", Group: "x"},
		},
		Items:      &client.Items{Selector: "li", Fields: client.Fields{{Name: "k", Default: json.RawMessage(`["b"]`)}}},
		Collection: &client.Collection{Name: "jobs"},
	}
	if d := cmp.Diff(want, s); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	s = client.Spec{}
	if err := json.Unmarshal([]byte(`{"fields":null,"items":null,"collection":null,"formats":null}`), &s); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(client.Spec{}, s); d != "" {
		t.Errorf("of nulls:\n%s", d)
	}
}

// genSpec draws any spec whose lists are not empty.
func genSpec(t *rapid.T) client.Spec {
	list := func(name string) []string {
		l := rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, name)
		if len(l) == 0 {
			return nil
		}
		return l
	}
	duration := func(name string) time.Duration { return time.Duration(rapid.Int64().Draw(t, name)) }
	s := client.Spec{
		URLs: list("urls"), SeedURL: rapid.String().Draw(t, "seed_url"), Seeds: list("seeds"),
		MaxPages: rapid.Int64().Draw(t, "max_pages"), TimeLimit: duration("time_limit"),
		Scope:   client.Scope(rapid.String().Draw(t, "scope")),
		Include: list("include"), Exclude: list("exclude"), Formats: formats(list("formats")), Tags: list("tags"),
		Concurrency: rapid.Int().Draw(t, "concurrency"), Delay: duration("delay"), Retention: duration("retention"),
		URLsOmitted: rapid.Int().Draw(t, "urls_omitted"),
		Sitemap:     client.Sitemap(rapid.String().Draw(t, "sitemap")), UserAgent: rapid.String().Draw(t, "user_agent"),
		DropParams: list("drop_params"), SortParams: rapid.Bool().Draw(t, "sort_params"),
	}
	s.MainContent, s.ListPages, s.Fields = rapid.Bool().Draw(t, "main_content"), list("list_pages"), genFields(t, "field")
	if rapid.Bool().Draw(t, "with items") {
		s.Items = &client.Items{Selector: rapid.String().Draw(t, "items"), Fields: genFields(t, "item field")}
	}
	if rapid.Bool().Draw(t, "with collection") {
		s.Collection = &client.Collection{
			Name: rapid.String().Draw(t, "collection"), Key: rapid.String().Draw(t, "key"),
			Facets: list("facets"), Numbers: list("numbers"),
		}
	}
	if h := rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "headers"); len(h) > 0 {
		s.Headers = h
	}
	if rapid.Bool().Draw(t, "webhook") {
		s.Webhook = &client.Webhook{URL: rapid.String().Draw(t, "webhook url"), Secret: rapid.String().Draw(t, "secret")}
		for _, e := range list("events") {
			s.Webhook.Events = append(s.Webhook.Events, client.EventType(e))
		}
	}
	if rapid.Bool().Draw(t, "robots given") {
		s.RespectRobots = new(rapid.Bool().Draw(t, "respect_robots"))
	}
	if rapid.Bool().Draw(t, "deep") {
		s.MaxDepth = new(rapid.Int().Draw(t, "max_depth"))
	}
	return s
}

func formats(names []string) []client.ContentFormat {
	var out []client.ContentFormat
	for _, name := range names {
		out = append(out, client.ContentFormat(name))
	}
	return out
}

// genFields draws fields as they are read, nil for none.
func genFields(t *rapid.T, of string) client.Fields {
	var out client.Fields
	for i := range rapid.IntRange(0, 3).Draw(t, of+"s") {
		text := func(name string) string { return rapid.String().Draw(t, of+" "+name) }
		f := client.Field{
			Name: text("name"), Selector: text("selector"), Attr: text("attr"), Many: i%2 == 0, Required: i == 1,
			Type: client.FieldType(text("type")), Regex: text("regex"), Group: client.Group(text("group")),
			Locale: text("locale"), Expr: text("expr"),
		}
		if i == 2 {
			f.Default, f.Trim, f.Group = json.RawMessage(`{"a":[1]}`), new(false), "7"
		}
		out = append(out, f)
	}
	return out
}

// What is written is read back, and the service reads the same out of it.
func TestSpecRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := genSpec(t)
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got client.Spec
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s\n%s", d, text)
		}
		var theirs crawl.Spec
		if err := json.Unmarshal(text, &theirs); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		theirText, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		got = client.Spec{}
		if err := json.Unmarshal(theirText, &got); err != nil {
			t.Fatal(err)
		}
		want.URLsOmitted = 0 // which is no part of what is submitted
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%s\n%s", d, theirText)
		}
	})
}
