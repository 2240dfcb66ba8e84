package client_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/client"
)

func TestPreview(t *testing.T) {
	t.Parallel()
	const answer = `{"items":[{"url":"u","canonical":"c","key":"k","admitted":true,"reason":null,"rule":"r","message":"m"},
		{"url":"v","canonical":null,"key":null,"admitted":false,"reason":"scheme","rule":null,"message":"n"}]}`
	spec := client.Spec{SeedURL: "https://site.test/", TimeLimit: time.Minute, MaxDepth: new(0)}
	for _, tt := range []struct {
		check []string
		body  string
	}{
		{nil, `{"seed_url":"https://site.test/","max_depth":0,"time_limit":"1m0s"}`},
		{[]string{"u", "v"}, `{"seed_url":"https://site.test/","max_depth":0,"time_limit":"1m0s","check":["u","v"]}`},
	} {
		s, c := newService(t, refusal(503, client.CodeUnavailable), ok(answer))
		got, err := c.Preview(t.Context(), spec, tt.check...)
		if err != nil {
			t.Fatal(err)
		}
		want := []client.Judgement{
			{URL: "u", Canonical: "c", Key: "k", Admitted: true, Rule: "r", Message: "m"}, {URL: "v", Reason: "scheme", Message: "n"},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		for _, r := range s.got() {
			var sent, body any
			if err := json.Unmarshal([]byte(r.body), &sent); err != nil {
				t.Fatalf("%v in %s", err, r.body)
			}
			if err := json.Unmarshal([]byte(tt.body), &body); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(body, sent); d != "" || r.method+" "+r.uri != "POST /v1/jobs/preview" || r.header.Get("Content-Type") != jsonType {
				t.Errorf("%s %s: -want +sent:\n%s", r.method, r.uri, d)
			}
		}
		if len(s.got()) != 2 {
			t.Errorf("%d requests", len(s.got()))
		}
	}
}

// What is refused, and what is no preview, is an error that says which call failed.
func TestPreviewFails(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		answer *answer
		want   string
	}{
		{refusal(422, client.CodeSourceNotAllowed), "source_not_allowed"},
		{ok(`{}`), "it has no items"},
		{ok(`[]`), "array"},
	} {
		_, c := newService(t, tt.answer)
		if got, err := c.Preview(t.Context(), client.Spec{}); err == nil || got != nil ||
			!strings.HasPrefix(err.Error(), "preview: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v, %v, want %s", got, err, tt.want)
		}
	}
}
