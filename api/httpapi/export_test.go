package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// manyRecords is a store with a job of so many records that none keeps them all.
type manyRecords struct {
	*fakeJobs
	n int64
}

func (e *manyRecords) Records(_ context.Context, _ crawl.JobRef, after int64, limit int) (store.RecordPage, error) {
	end := min(after+int64(limit), e.n)
	page := store.RecordPage{Next: end, More: end < e.n, Ended: true}
	for seq := after + 1; seq <= end; seq++ {
		page.Records = append(page.Records, crawl.Page{
			Seq: seq, SourceURL: fmt.Sprintf("https://site.test/%d", seq), Title: strings.Repeat("t", 60),
			Fields: json.RawMessage(fmt.Sprintf(`{"n":%d,"text":%q}`, seq, strings.Repeat("x", 200))),
		})
	}
	return page, nil
}

// A result of any size is sent in the memory of a few of its records, and whole.
func TestExportsAreFlat(t *testing.T) { //nolint:paralleltest // it looks at the heap of the process
	const records, most = 200_000, 24 << 20
	for _, format := range []string{formatJSON, formatNDJSON, formatCSV} {
		many := &manyRecords{n: records}
		b := newBenchWith(t, func(o *Options) {
			many.fakeJobs, _ = o.Jobs.(*fakeJobs)
			o.Jobs = many
		})
		ref := b.add("a", crawl.Completed)
		srv := httptest.NewServer(b.server.Handler())
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/jobs/"+ref.ID+"/result?format="+format, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+keyA)
		before := heap()
		res, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		lines, high := 0, uint64(0)
		last := ""
		for in := bufio.NewScanner(res.Body); in.Scan(); last = in.Text() {
			if lines++; lines%50_000 == 0 {
				high = max(high, heap())
			}
		}
		_ = res.Body.Close()
		srv.Close()
		// A header row, or what stands around the records on the lines of the first and the last.
		if want := map[string]int{formatJSON: records + 1, formatNDJSON: records, formatCSV: records + 1}[format]; lines != want {
			t.Errorf("%s: %d lines, want %d; the last is %.100s", format, lines, want, last)
		}
		if high > before+most {
			t.Errorf("%s: %d MiB on the heap, %d before", format, high>>20, before>>20)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A reader chooses what stands in a table, and goes on behind what it has.
func TestResultColumns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Completed)
	job := b.jobs[ref]
	job.Spec = []byte(`{"fields":{"name":{"selector":"a"},"n":{"selector":"b"},"list":{"selector":"c"},"none":{"selector":"d"}}}`)
	b.jobs[ref] = job
	for i := range int64(3) {
		b.records[ref] = append(b.records[ref], crawl.Page{
			Seq: i + 1, URL: "=1", Fields: json.RawMessage(fmt.Sprintf(`{"name":"=SUM(A%d)","n":-%d,"list":["@a",1]}`, i, i+1)),
		})
	}
	all := "url,fields.name,fields.n,fields.list,fields.none\r\n" +
		"'=1,'=SUM(A0),-1,\"[\"\"@a\"\",1]\",\r\n" + "'=1,'=SUM(A1),-2,\"[\"\"@a\"\",1]\",\r\n" + "'=1,'=SUM(A2),-3,\"[\"\"@a\"\",1]\",\r\n"
	rest := all[:strings.Index(all, "\n")+1] + all[strings.Index(all, "'=1,'=SUM(A2)"):]
	const chosen = "?format=csv&columns=url,fields.name,fields.n,fields.list,fields.none"
	for query, want := range map[string]string{chosen: all, chosen + "&after=2": rest} {
		if d := cmp.Diff(want, b.call("GET", "/v1/jobs/"+ref.ID+"/result"+query, "").body); d != "" {
			t.Errorf("%s: -want +got:\n%s", query, d)
		}
	}
	var first struct {
		Next string `json:"next_cursor"`
	}
	b.call("GET", "/v1/jobs/"+ref.ID+"/records?limit=2", "").decode(t, 200, &first)
	for _, query := range []string{"&after=2", "&cursor=" + first.Next} {
		lines := strings.Split(strings.TrimSpace(b.call("GET", "/v1/jobs/"+ref.ID+"/result?format=ndjson"+query, "").body), "\n")
		if len(lines) != 1 || !strings.Contains(lines[0], `"seq":3`) {
			t.Errorf("%s: %q", query, lines)
		}
	}
	for query, want := range map[string]string{
		"format=csv&columns=nope,url,url": "[columns:unknown columns:duplicate]",
		"columns=url":                     "[columns:exclusive]",
		"after=-1&format=csv":             "[after:range]",
		"after=1&cursor=" + first.Next:    "[cursor:exclusive]",
	} {
		p := b.call("GET", "/v1/jobs/"+ref.ID+"/result?"+query, "").wantProblem(t, 422, crawl.CodeInvalid)
		if got := fmt.Sprint(fieldRules(p)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}
