package httpapi

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
)

// readTable parses a table and returns it without its header row.
func readTable(t testing.TB, body string) [][]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(body)).ReadAll() // of which each has the same number of cells
	if err != nil || len(rows) == 0 {
		t.Fatalf("%v in %q", err, body)
	}
	return rows[1:]
}

// column returns one column of a table.
func column(t testing.TB, name string, rows [][]string) []string {
	t.Helper()
	i := slices.IndexFunc(columnsByDefault(), func(c tableColumn) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("there is no column %s", name)
	}
	cells := make([]string, len(rows))
	for n, row := range rows {
		cells[n] = row[i]
	}
	return cells
}

// columnsByDefault are those of records without fields.
func columnsByDefault() []tableColumn {
	return newTable(&params{}, formatCSV, "", tableOf[record]{}).columns
}

// unguarded is what the documentation says that a reader does.
func unguarded(cell string) string {
	if text, ok := strings.CutPrefix(cell, "'"); ok && looksLikeFormula(text) {
		return text
	}
	return cell
}

// hostileTexts begin with what a spreadsheet may run, and what hides it.
var hostileTexts = []string{
	`=HYPERLINK("http://other.test","x")`, "+1+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", "＋1", "－1", "＠SUM(A1)", "\tx", "\r\nx", "\nx",
	" =1", "\u00a0=1", "\u3000＝1", "\x00=1", "\x1b=1", "\u200b=1", "\ufeff=1", "\u202e=1", "\u00ad=1", " \t\v\f\u2028=1", "'=1", "''=1", "' =1",
	"﹦1", "﹢1", "﹣1", "﹫A", "−1", "=", "-", "=cmd|' /C calc'!A0",
}

// SEC-08: no text of a page begins a cell as a formula does, whatever hides it; JSON and
// what is no formula stay as they are.
func TestFormulasSEC08(t *testing.T) {
	t.Parallel()
	harmless := []string{
		"", " ", "'", "a=1", "1-1", "a@b.test", "plain", " plain ", `with "quotes", and commas`, "line\nbreak", "http://site.test/?=1", "'quoted'",
		"– dash", "é", "a\tb", "\x00a", "#1", "\u200bx",
	}
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	texts := slices.Concat(hostileTexts, harmless)
	for i, text := range texts {
		b.records[ref] = append(b.records[ref], crawl.Page{
			Seq: int64(i + 1), SourceURL: text, URL: text, DiscoveredOn: text, Title: text, ContentType: text, Charset: text,
			CharsetFrom: text, Language: text, Canonical: text, DuplicateOf: text,
		})
	}
	at := "/v1/jobs/" + ref.ID + "/result?format="
	a := b.call("GET", at+"csv", "")
	rows := readTable(t, a.body)
	if len(rows) != len(texts) {
		t.Fatalf("%d rows, want %d", len(rows), len(texts))
	}
	for _, name := range []string{
		"source_url", "url", "discovered_on", "title", "content_type", "charset", "charset_from", "language", "canonical", "duplicate_of",
	} {
		for i, cell := range column(t, name, rows) {
			// As encoding/csv documents, its reader makes a line feed of each CRLF.
			want := strings.ReplaceAll(texts[i], "\r\n", "\n")
			if i < len(hostileTexts) {
				want = "'" + want
			}
			if cell != want {
				t.Errorf("%s: %q is written as %q, want %q", name, texts[i], cell, want)
			}
		}
	}
	lines := strings.Split(strings.TrimSuffix(b.call("GET", at+"ndjson", "").body, "\n"), "\n")
	for i, line := range lines {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Title != texts[i] {
			t.Errorf("JSON of %q is %q, %v", texts[i], r.Title, err)
		}
	}
}

// A table has the scalar fields of a record, all of them, in the order of JSON, and says
// in them what JSON says.
func TestTable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.CompletedWithErrors)
	at := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	full := crawl.Page{
		Seq: 1, SourceURL: "http://s.test/a,b", URL: "http://s.test/", Status: 200, Depth: 2, DiscoveredOn: "http://s.test/d", Title: "a \"b\"\nc",
		FetchedAt: at, DurationMS: -5, Bytes: 6, ContentType: "text/html", Charset: "utf-8", CharsetFrom: "bom", Language: "de",
		Canonical: "http://s.test/c", LinkCount: 7, Attempts: 1, LastMod: at, DuplicateOf: "http://s.test/x", DecodingErrors: true,
	}
	b.records[ref] = append(b.records[ref], full, crawl.Page{Seq: 2, FetchedAt: at, Title: "not UTF-8 \xff"})
	a := b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=csv", "")
	if got := a.header.Get("Content-Type"); a.status != 200 || got != "text/csv; charset=utf-8; header=present" {
		t.Errorf("%d, Content-Type %q", a.status, got)
	}
	if got := a.header.Get("Content-Disposition"); got != `attachment; filename="`+ref.ID+`.csv"` {
		t.Errorf("Content-Disposition %s", got)
	}
	const head = "seq,source_url,url,status,depth,discovered_on,title,fetched_at,duration_ms,bytes,content_type,charset,charset_from," +
		"language,canonical,link_count,attempts,lastmod,duplicate_of,decoding_errors,item,change\r\n"
	want := head + "1,\"http://s.test/a,b\",http://s.test/,200,2,http://s.test/d,\"a \"\"b\"\"\nc\",2024-05-06T07:08:09.000Z,-5,6," +
		"text/html,utf-8,bom,de,http://s.test/c,7,1,2024-05-06T07:08:09.000Z,http://s.test/x,true,,\r\n" +
		"2,,,0,0,,not UTF-8 \uFFFD,2024-05-06T07:08:09.000Z,0,0,,,,,,0,0,,,false,,\r\n"
	if d := cmp.Diff(want, a.body); d != "" || !utf8.ValidString(a.body) {
		t.Errorf("-want +got:\n%s", d)
	}

	// The order and the names are those of JSON; nothing that fits a cell is left out.
	written, err := json.Marshal(recordOf(&full))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(written)))
	d.UseNumber()
	row, columns := readTable(t, a.body)[0], columnsByDefault()
	_, _ = d.Token() // {
	for column := 0; d.More(); {
		name, _ := d.Token()
		var value any
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		if kind := reflect.ValueOf(value).Kind(); kind == reflect.Map || kind == reflect.Slice ||
			slices.Contains([]json.Token{"fields", "markdown", "text", "html", "links", "metadata"}, name) {
			continue
		}
		if value == nil {
			value = ""
		}
		if column == len(columns) || columns[column].name != name || row[column] != fmt.Sprint(value) {
			t.Fatalf("%v is %v in JSON; column %d of %+v is %q", name, value, column, columns, row)
		}
		column++
	}

	empty := b.add("a", crawl.Cancelled)
	if a := b.call("GET", "/v1/jobs/"+empty.ID+"/result?format=csv", ""); a.body != head {
		t.Errorf("without records: %q", a.body)
	}
	running := b.add("a", crawl.Running)
	b.call("GET", "/v1/jobs/"+running.ID+"/result?format=csv", "").wantProblem(t, 409, crawl.CodeJobNotTerminal)
	others := b.add("b", crawl.Completed)
	b.call("GET", "/v1/jobs/"+others.ID+"/result?format=csv", "").wantProblem(t, 404, crawl.CodeNotFound)
}

// A table of any length is read and sent page by page, and breaks off as JSON does.
func TestLongTable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	for i := range int64(2*exportPage + 1) {
		b.records[ref] = append(b.records[ref], crawl.Page{Seq: i + 1})
	}
	var reads []int64
	b.page = func(after int64) error { reads = append(reads, after); return nil }
	seqs := column(t, "seq", readTable(t, b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=csv", "").body))
	if len(seqs) != 2*exportPage+1 || seqs[2*exportPage] != fmt.Sprint(2*exportPage+1) {
		t.Errorf("%d rows, the last %s", len(seqs), seqs[len(seqs)-1])
	}
	if d := cmp.Diff([]int64{0, exportPage, 2 * exportPage}, reads); d != "" {
		t.Errorf("reads: -want +got:\n%s", d)
	}

	b.page = func(after int64) error {
		if after > 0 {
			return errBroken
		}
		return nil
	}
	defer func() {
		if r := recover(); r != http.ErrAbortHandler { //nolint:errorlint // what net/http looks for
			t.Errorf("a table that is cut ends as a whole one: %v", r)
		}
	}()
	b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=csv", "")
}

// checkCell holds a cell to its text: it can be told again, and runs nothing.
func checkCell(t interface {
	Helper()
	Fatalf(string, ...any)
}, text string,
) {
	t.Helper()
	text = strings.ToValidUTF8(text, "\uFFFD")
	guarded := guardFormula(text)
	if unguarded(guarded) != text {
		t.Fatalf("%q is guarded as %q and read as %q", text, guarded, unguarded(guarded))
	}
	if guarded != text && guarded != "'"+text {
		t.Fatalf("%q became %q", text, guarded)
	}
	if trimmed := strings.TrimSpace(guarded); trimmed != "" {
		if r, _ := utf8.DecodeRuneInString(trimmed); strings.ContainsRune("=+-@＝＋－＠", r) {
			t.Fatalf("%q is written as %q", text, guarded)
		}
	}
	line := append(appendCell(separate(appendCell(nil, "x"), 1), guarded), "\r\n"...)
	rows, err := csv.NewReader(strings.NewReader(string(line))).ReadAll()
	if err != nil || len(rows) != 1 || len(rows[0]) != 2 || rows[0][1] != strings.ReplaceAll(guarded, "\r\n", "\n") {
		t.Fatalf("%q is written as %q and read as %q, %v", text, line, rows, err)
	}
}

func TestCellProperties(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom(append([]string{"", "a", "1", `"`, ",", "\n", "\r", "\r\n", "'", " ", "\t", ";", "\xff"}, hostileTexts...))
	rapid.Check(t, func(t *rapid.T) {
		checkCell(t, strings.Join(rapid.SliceOfN(piece, 0, 5).Draw(t, "pieces"), "")+rapid.String().Draw(t, "rest"))
	})
}
