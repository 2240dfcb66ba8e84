package allinone_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawltest"
)

// extracted is what POST /v1/extract answers, the part that does not name its job.
type extracted struct {
	Title      string           `json:"title"`
	Fields     map[string]any   `json:"fields"`
	Items      []map[string]any `json:"items"`
	ItemsFound int              `json:"items_found"`
	Missing    []string         `json:"missing"`
	Notes      []any            `json:"notes"`
	Text       *string          `json:"text"`
	HTML       *string          `json:"html"`
	Error      *struct {
		ErrorType string `json:"error_type"`
		Status    *int   `json:"status"`
	} `json:"error"`
}

// A page gives the same whether it is sent or fetched, what it lacks included; one that gives
// nothing says why.
func TestExtract(t *testing.T) {
	t.Parallel()
	const page = `<html><head><title>The shop</title></head><body><h1>Chairs</h1>` +
		`<ul><li><b>Red</b><i>1.234,50</i></li><li><i>3</i></li><li><b>Blue</b><i>soon</i></li></ul></body></html>`
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/robots.txt":
			_, _ = io.WriteString(w, "User-agent: *\nDisallow: /private")
		case "/shop":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, page)
		default:
			http.NotFound(w, r)
		}
	}))
	o, key := options(t)
	p, _ := run(t, o, key)
	web := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(web.CloseIdleConnections)
	extract := func(members map[string]any) (out extracted) {
		t.Helper()
		body, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL()+"/v1/extract", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		res, err := web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || json.Unmarshal(text, &out) != nil {
			t.Fatalf("%d %s: %v", res.StatusCode, text, err)
		}
		return out
	}
	wanted := func(members map[string]any) map[string]any {
		members["fields"] = map[string]any{
			"h": map[string]any{"selector": "h1", "required": true}, "none": map[string]any{"selector": "h6", "required": true},
		}
		members["items"] = map[string]any{"selector": "li", "fields": map[string]any{
			"name": map[string]any{"selector": "b", "required": true}, "price": map[string]any{"selector": "i", "type": "number", "locale": "de"},
		}}
		members["formats"] = []string{"text", "html"}
		return members
	}
	sent, fetched := extract(wanted(map[string]any{"html": page})), extract(wanted(map[string]any{"url": site.URL + "/shop"}))
	if sent.Title != "The shop" || fmt.Sprint(sent.Fields, sent.Items, sent.Missing) !=
		"map[h:Chairs none:<nil>] [map[name:Red price:1234.5] map[name:Blue price:<nil>]] [fields.none]" {
		t.Errorf("sent: %+v", sent)
	}
	same := func(e extracted) string {
		slices.SortFunc(e.Notes, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if a, b := same(sent), same(fetched); a != b {
		t.Errorf("sent:\n%s\nfetched:\n%s", a, b)
	}
	for path, want := range map[string]string{"/none": "http_404", "/private": "robots"} {
		if got := extract(map[string]any{"url": site.URL + path}); got.Error == nil || got.Error.ErrorType != want {
			t.Errorf("%s: %+v", path, got.Error)
		}
	}
}
