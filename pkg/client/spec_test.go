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
	for _, text := range []string{`{"delay":1}`, `{"delay":"1"}`, `{"delay":"1h\u001b"}`, `{"max_pages":"1"}`, `[]`} {
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
		Include: list("include"), Exclude: list("exclude"), Formats: list("formats"), Tags: list("tags"),
		Concurrency: rapid.Int().Draw(t, "concurrency"), Delay: duration("delay"), Retention: duration("retention"),
		URLsOmitted: rapid.Int().Draw(t, "urls_omitted"),
		Sitemap:     client.Sitemap(rapid.String().Draw(t, "sitemap")), UserAgent: rapid.String().Draw(t, "user_agent"),
		DropParams: list("drop_params"), SortParams: rapid.Bool().Draw(t, "sort_params"),
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
