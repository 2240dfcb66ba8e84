package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Running)
	at := "/v1/jobs/" + ref.ID + "/urls"
	for i := range 3 {
		b.urls[ref] = append(b.urls[ref], store.URLEntry{URL: fmt.Sprint("u", i), State: store.PageRefused, Reason: "depth"})
	}
	var first, second page[knownURL]
	b.call("GET", at+"?state=refused&reason=depth&limit=2&cursor=", "").decode(t, 200, &first)
	if len(first.Items) != 2 || !first.HasMore || first.NextCursor == nil || first.Items[1].URL != "u1" {
		t.Fatalf("got %+v", first)
	}
	b.call("GET", at+"?cursor="+*first.NextCursor, "").decode(t, 200, &second)
	if len(second.Items) != 1 || second.HasMore || second.NextCursor == nil {
		t.Errorf("while the job runs there is a way to go on: %+v", second)
	}
	want := []store.URLQuery{
		{State: store.PageRefused, Reason: "depth", Limit: 2},
		{From: store.URLPlace{Container: "refused", Offset: 2}, Limit: 100},
	}
	same := cmp.Comparer(func(a, b crawl.URL) bool { return a == b })
	if d := cmp.Diff(want, b.queries, same); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	ended := b.jobs[ref]
	ended.State = crawl.Completed
	b.jobs[ref] = ended
	if a := b.call("GET", at, ""); !strings.Contains(a.body, `"next_cursor":null`) {
		t.Errorf("the end of an ended job: %s", a.body)
	}
	b.urls[ref] = nil
	if a := b.call("GET", at, ""); a.status != 200 || !strings.Contains(a.body, `"items":[]`) {
		t.Errorf("nothing: %d %s", a.status, a.body)
	}
	if a := b.call("HEAD", at, ""); a.status != 200 {
		t.Errorf("HEAD: %d", a.status)
	}
	b.call("GET", at, "", header("Authorization", "Bearer "+keyB)).wantProblem(t, 404, crawl.CodeNotFound)
	b.call("GET", at, "", header("Authorization")).wantProblem(t, 401, crawl.CodeUnauthenticated)
	b.call("GET", "/v1/jobs/x/urls", "").wantProblem(t, 404, crawl.CodeNotFound)
	b.call("POST", at, "").wantProblem(t, 405, codeMethodNotAllowed)
	b.err = &crawl.Fault{Code: crawl.CodeExpired, Message: "It is gone.", At: time.Unix(1_700_000_000, 0)}
	if p := b.call("GET", at, "").wantProblem(t, 410, crawl.CodeExpired); p.ExpiredAt == nil {
		t.Errorf("a tombstone says %+v", p)
	}
}

// One URL is looked for page by page within one request, up to a bound.
func TestURLsOfOneURL(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	at := "/v1/jobs/" + ref.ID + "/urls?url=http://site.test/wanted"
	for i := range urlCalls*pageLimitMax + 1 {
		b.urls[ref] = append(b.urls[ref], store.URLEntry{URL: fmt.Sprint("http://site.test/", i), State: crawl.PageAccepted})
	}
	var got page[knownURL]
	b.call("GET", at, "").decode(t, 200, &got)
	if len(got.Items) != 0 || !got.HasMore || len(b.queries) != urlCalls {
		t.Fatalf("after %d calls: %d items, more %t", len(b.queries), len(got.Items), got.HasMore)
	}
	for _, q := range b.queries {
		if q.URL.String() != "http://site.test/wanted" || q.Limit != pageLimitMax {
			t.Fatalf("asked for %+v", q)
		}
	}
	b.urls[ref] = append(b.urls[ref], store.URLEntry{URL: "http://site.test/wanted", State: crawl.PageSkipped, Reason: "robots"})
	b.call("GET", at+"&cursor="+*got.NextCursor, "").decode(t, 200, &got)
	if len(got.Items) != 1 || *got.Items[0].Reason != "robots" {
		t.Errorf("got %+v", got)
	}
	for _, wrong := range []string{"not%20one", ""} {
		b.call("GET", "/v1/jobs/"+ref.ID+"/urls?url="+wrong, "").wantProblem(t, 422, crawl.CodeInvalid)
	}
}

// All faults of a query at once. A cursor of another list is none, nor is one of this list
// with another filter.
func TestURLsQueryFaults(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	at := "/v1/jobs/" + b.add("a", crawl.Completed).ID + "/urls"
	robots := encodePlace(store.URLPlace{Container: "skip:robots", Offset: 7})
	for _, tt := range []struct {
		query  string
		status int
		want   []string
	}{
		{"state=done&reason=Not+Found&limit=0&url=x", 422, []string{"state:enum", "limit:range", "url:url", "reason:format"}},
		{"state=queued&reason=robots", 422, []string{"reason:exclusive"}},
		{"state=accepted&reason=http_404", 422, []string{"reason:exclusive"}},
		{"state=skipped&reason=robots", 200, nil},
		{"reason=robots&cursor=" + robots, 200, nil},
		{"state=skipped&cursor=" + robots, 200, nil},
		{"cursor=" + robots, 200, nil},
		{"reason=noindex&cursor=" + robots, 400, []string{"cursor:format"}},
		{"state=refused&cursor=" + robots, 400, []string{"cursor:format"}},
		{"cursor=" + encodeCursor(cursorErrors, 1), 400, []string{"cursor:format"}},
		{"cursor=" + encodePlace(store.URLPlace{Container: "seen", Offset: 7}), 400, []string{"cursor:format"}},
		{"cursor=" + encodePlace(store.URLPlace{Container: "skip:a}:b", Offset: 7}), 400, []string{"cursor:format"}},
		{"cursor=" + encodePlace(store.URLPlace{Container: "queued", Offset: -1}), 400, []string{"cursor:format"}},
		{"cursor=" + strings.Repeat("A", 4000), 400, []string{"cursor:format"}},
	} {
		a := b.call("GET", at+"?"+tt.query, "")
		if tt.status == 200 {
			if a.status != 200 {
				t.Errorf("%s: %d %s", tt.query, a.status, a.body)
			}
			continue
		}
		code := crawl.CodeInvalid
		if tt.status == 400 {
			code = crawl.CodeMalformed
		}
		if d := cmp.Diff(tt.want, fieldRules(a.wantProblem(t, tt.status, code))); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.query, d)
		}
	}
}

// A place has one spelling, and every other text is none.
func TestPlaces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := store.URLPlace{
			Container: rapid.StringMatching(`[a-z_:]{0,80}`).Draw(t, "container"), Offset: rapid.Int64Min(0).Draw(t, "offset"),
		}
		text := encodePlace(want)
		if got, ok := decodePlace(text); !ok || got != want {
			t.Fatalf("%+v became %q and that %+v, %v", want, text, got, ok)
		}
		if _, ok := decodeCursor(cursorRecords, text); ok {
			t.Fatalf("%q is a place among records", text)
		}
		for _, other := range []string{text + "\n", text + "=", text + "A", "\n" + text, " " + text, text[1:]} {
			if got, ok := decodePlace(other); ok && encodePlace(got) != other {
				t.Fatalf("%q is taken for %+v", other, got)
			}
		}
	})
}

// What is answered is what the document says, for each state and in all that can be null.
func TestURLsFitTheDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doc := openAPI(t, b)
	ref := b.add("a", crawl.Running)
	for _, state := range store.URLStates {
		b.urls[ref] = append(b.urls[ref], store.URLEntry{URL: "https://site.test/", State: state})
	}
	b.urls[ref] = append(b.urls[ref], store.URLEntry{
		URL: "https://site.test/", State: crawl.PageSkipped, Reason: "robots", Rule: "Disallow: /", Depth: 1, DiscoveredOn: "https://site.test/a",
		Attempts: 1, NextAt: time.Unix(1_700_000_000, 123456789), FetchURL: "https://b.test/", FinalURL: "https://c.test/",
		AliasOf: "https://d.test/", Seq: 3, Status: 404, Message: "Gone.",
	})
	a := b.call("GET", "/v1/jobs/"+ref.ID+"/urls", "")
	answer := []string{"paths", "/v1/jobs/{id}/urls", "get", "responses", "200", "content", "application/json", "schema"}
	if err := doc.check(a.body, answer...); err != nil {
		t.Errorf("%v in %s", err, a.body)
	}
	want := `{"url":"https://site.test/","state":"skipped","reason":"robots","rule":"Disallow: /","depth":1,` +
		`"discovered_on":"https://site.test/a","attempts":1,"next_at":"2023-11-14T22:13:20.123Z","fetch_url":"https://b.test/",` +
		`"final_url":"https://c.test/","alias_of":"https://d.test/","seq":3,"status":404,"message":"Gone."}`
	if !strings.Contains(a.body, want) {
		t.Errorf("got %s\nwant %s", a.body, want)
	}
	if strings.Contains(a.body, `""`) {
		t.Errorf("what is not there is no empty string: %s", a.body)
	}
	// The states are named in three places of the document and in one of the store.
	enum := fmt.Sprint(doc.at("components", "schemas", "KnownURL", "properties", "state", "enum"))
	if want := fmt.Sprint(store.URLStates); enum != want {
		t.Errorf("the document names the states %s, the store %s", enum, want)
	}
	parameters, _ := doc.at("paths", "/v1/jobs/{id}/urls", "get", "parameters").([]any)
	for _, p := range parameters {
		if p, _ := p.(map[string]any); p["name"] == "state" {
			schema, _ := p["schema"].(map[string]any)
			if got := fmt.Sprint(schema["enum"]); got != enum {
				t.Errorf("the filter takes %s, want %s", got, enum)
			}
		}
	}
	bad := b.call("GET", "/v1/jobs/"+ref.ID+"/urls?cursor=x", "")
	answer[4], answer[6] = "400", problemType
	if err := doc.check(bad.body, answer...); err != nil {
		t.Errorf("%v in %s", err, bad.body)
	}
}
