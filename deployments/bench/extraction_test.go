package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/fields"
)

// TestArticles: what the bench takes out of an article is there, on a page of the size that the figures name.
func TestArticles(t *testing.T) {
	t.Parallel()
	var plan crawl.Plan
	if err := extraction(&plan); err != nil {
		t.Fatal(err)
	}
	program, faults := fields.Compile(fields.Spec{Fields: plan.Fields})
	if len(faults) > 0 || len(plan.Fields) != 10 {
		t.Fatalf("%d fields, %v", len(plan.Fields), faults)
	}
	const pages = 3
	a := newArticles(pages, 20)
	seen := map[string]bool{}
	for i := range pages {
		w := httptest.NewRecorder()
		path := fmt.Sprintf("/p/%d", i)
		a.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		body := w.Body.Bytes()
		if w.Code != http.StatusOK || len(body) < articleBytes*95/100 || len(body) > articleBytes*105/100 || seen[string(body)] {
			t.Errorf("%s: status %d, %d bytes, seen before: %v", path, w.Code, len(body), seen[string(body)])
		}
		seen[string(body)] = true
		doc, err := html.Parse(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		at, err := crawl.ParseURL("https://mail.example.org" + path)
		if err != nil {
			t.Fatal(err)
		}
		result, err := program.Run(doc, at)
		if err != nil || len(result.Unparsed)+len(result.Cut)+len(result.Stopped) > 0 {
			t.Fatalf("%s: %+v, %v", path, result, err)
		}
		raw, err := json.Marshal(result.Record)
		if err != nil {
			t.Fatal(err)
		}
		var record map[string]any
		if err := json.Unmarshal(raw, &record); err != nil {
			t.Fatal(err)
		}
		for name, value := range record {
			if list, ok := value.([]any); value == nil || value == "" || ok && len(list) < 10 {
				t.Errorf("%s: %s is %v", path, name, value)
			}
		}
	}
	if a.Total() != pages || a.Distinct() != pages {
		t.Errorf("%d pages were served, %d different ones", a.Total(), a.Distinct())
	}
	if a.Reset(); a.Total() != 0 || a.Distinct() != 0 {
		t.Errorf("after a reset: %d, %d", a.Total(), a.Distinct())
	}
}
