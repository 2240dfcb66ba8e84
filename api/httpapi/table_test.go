package httpapi

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
)

// SEC-08: what stands in a field, in the content of a page or in a list of its links is guarded as
// a title is, also where it has several lines; a number stays one.
func TestValuesAreNoFormulasSEC08(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	for i, text := range hostileTexts {
		several := text + "\n=1+1\r\n\"@x\",-2"
		value, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		b.records[ref] = append(b.records[ref], crawl.Page{
			Seq: int64(i + 1), Content: &crawl.Content{Markdown: &several, Links: []crawl.PageLink{{URL: "u", Text: text}}},
			Fields: fmt.Appendf(nil, `{"text":%s,"low":-1.50,"list":[ %[1]s ],"yes":true,"none":null}`, value),
		})
	}
	job := b.jobs[ref]
	job.Spec = []byte(`{"fields":{"text":{},"low":{},"list":{},"yes":{},"none":{}}}`)
	b.jobs[ref] = job
	const columns = "markdown,fields.text,fields.low,fields.list,fields.yes,fields.none,links,html"
	rows := readTable(t, b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=csv&columns="+columns, "").body)
	if len(rows) != len(hostileTexts) {
		t.Fatalf("%d rows, want %d", len(rows), len(hostileTexts))
	}
	for i, text := range hostileTexts {
		quoted, err := json.Marshal([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		if err := json.Unmarshal([]byte(rows[i][3]), &list); err != nil || list[0] != text || rows[i][3] != string(quoted) {
			t.Errorf("the list of %q is %q, %v", text, rows[i][3], err)
		}
		want := []string{"'" + text + "\n=1+1\n\"@x\",-2", "'" + text, "-1.50", rows[i][3], "true", "", rows[i][6], ""}
		want[0], want[1] = strings.ReplaceAll(want[0], "\r\n", "\n"), strings.ReplaceAll(want[1], "\r\n", "\n") // as its reader does
		if d := cmp.Diff(want, rows[i]); d != "" {
			t.Errorf("%q: -want +got:\n%s", text, d)
		}
		if !strings.HasPrefix(rows[i][6], `[{"url":"u","text":"`) {
			t.Errorf("links %q", rows[i][6])
		}
	}
}

// Behind the columns of every record there is one for each field of the job, of the page and of
// its items, once, in the order of the spec; content is there for who asks.
func TestColumnsOfAJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	job := b.jobs[ref]
	job.Spec = []byte(`{"fields":{"z":{},"a":{}},"items":{"selector":"x","fields":{"m":{},"a":{}}}}`)
	b.jobs[ref] = job
	text := "t"
	b.records[ref] = []crawl.Page{
		{Seq: 1, Fields: []byte(`{"z":"Z","a":null}`), Content: &crawl.Content{Text: &text}},
		{Seq: 2, Item: 1, Change: crawl.Updated, Fields: []byte(`{"m":2,"a":"A"}`), Notes: []crawl.Note{{About: "x", What: "cut"}}},
		{Seq: 3},
	}
	body := b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=csv", "").body
	rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var tails [][]string
	for _, row := range rows {
		tails = append(tails, row[len(row)-5:])
	}
	want := [][]string{
		{"item", "change", "fields.z", "fields.a", "fields.m"}, {"", "", "Z", "", ""}, {"1", "updated", "", "A", "2"}, {"", "", "", "", ""},
	}
	if d := cmp.Diff(want, tails); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	got := b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=csv&columns=text,fields,notes,seq", "").body
	const all = "text,fields,notes,seq\r\nt,\"{\"\"z\"\":\"\"Z\"\",\"\"a\"\":null}\",[],1\r\n" +
		",\"{\"\"m\"\":2,\"\"a\"\":\"\"A\"\"}\",\"[{\"\"about\"\":\"\"x\"\",\"\"what\"\":\"\"cut\"\"}]\",2\r\n,,[],3\r\n"
	if d := cmp.Diff(all, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	p := b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=csv&columns=fields.m,fields.q,,"+strings.Repeat("x", 1000), "").wantProblem(t, 422, crawl.CodeInvalid)
	for _, f := range p.Errors {
		if f.Rule != ruleUnknown || len(f.Message) > 2000 {
			t.Errorf("%+v", f)
		}
	}
	b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=csv&columns="+strings.Repeat("seq,", maxColumns)+"seq", "").
		wantProblem(t, 422, crawl.CodeInvalid)
}

// A record has all of its names, null where there is nothing, and says of its content, values and
// notes what was kept, as the document describes.
func TestRecordOfContent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doc := openAPI(t, b)
	ref := b.add("a", crawl.Completed)
	text := "<t>"
	b.records[ref] = []crawl.Page{{Seq: 1}, {
		Seq: 2, Item: 3, Change: crawl.Created, Fields: []byte(`{"z":"<a>","b":1.50}`), Notes: []crawl.Note{{About: "fields.z", What: crawl.NoteCut, Count: 2}},
		Content: &crawl.Content{
			Markdown: &text, Text: &text, HTML: &text, Links: []crawl.PageLink{{URL: "u", InScope: true}},
			Metadata: &crawl.Metadata{Title: "t", JSONLD: []json.RawMessage{json.RawMessage(`{"@type":"x"}`)}, OpenGraph: map[string][]string{"a": {"b"}}},
		},
	}}
	lines := strings.Split(b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=ndjson", "").body, "\n")
	for i, want := range []string{
		`"item":null,"change":null,"fields":null,"notes":[],"markdown":null,"text":null,"html":null,"links":null,"metadata":null}`,
		`"item":3,"change":"created","fields":{"z":"<a>","b":1.50},"notes":[{"about":"fields.z","what":"cut","count":2}],` +
			`"markdown":"<t>","text":"<t>","html":"<t>","links":[{"url":"u","text":"","rel":"","in_scope":true}],` +
			`"metadata":{"title":"t","open_graph":{"a":["b"]},"json_ld":[{"@type":"x"}]}}`,
	} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d is %s, want %s", i, lines[i], want)
		}
		if err := doc.check(lines[i], "components", "schemas", "Record"); err != nil {
			t.Error(err)
		}
	}
}

// A client that stops reading an export does not hold it for ever: the server gives the
// connection up, and reads no more of the job.
func TestClientStopsReadingAnExport(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	long := strings.Repeat("x", 64<<10)
	b.records[ref] = make([]crawl.Page, 4*exportPage) // 128 MiB, more than buffers on the way take
	for i := range b.records[ref] {
		b.records[ref][i] = crawl.Page{Seq: int64(i + 1), Title: long}
	}
	begun := make(chan struct{})
	var once sync.Once
	var last int64
	b.page = func(after int64) error { once.Do(func() { close(begun) }); last = after; return nil }
	b.server.writeTimeout = 200 * time.Millisecond
	start(t, b)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET /v1/jobs/%s/result?format=csv HTTP/1.1\r\nHost: api.test\r\nX-API-Key: %s\r\n\r\n", ref.ID, keyA); err != nil {
		t.Fatal(err)
	}
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a server that waits for ever
	defer cancel()
	if err := b.server.Stop(ctx); err != nil { // which waits for the request
		t.Errorf("the export goes on: %v", err)
	}
	if last >= 3*exportPage {
		t.Errorf("it was read behind record %d for nobody", last)
	}
	if logs := b.logs.String(); !strings.Contains(logs, `"aborted":true`) {
		t.Errorf("logged: %s", logs)
	}
}
