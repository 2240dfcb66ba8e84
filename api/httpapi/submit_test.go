package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/queue"
)

const oneURL = `{"urls":["https://site.test/"]}`

func TestSubmit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.call("POST", "/v1/jobs", `{"urls":["https://site.test/a","https://site.test/b"],"tags":["x"],"max_pages":null}`)
	var got map[string]any
	a.decode(t, 202, &got)
	id, _ := got["job_id"].(string)
	if !crawl.ValidJobID(id) || a.header.Get("Location") != "/v1/jobs/"+id || a.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("job_id %q, headers %v", id, a.header)
	}
	want := map[string]any{
		"job_id": id, "queue_task_id": id, "state": "queued", "stop_reason": nil, "waiting_for": nil, "position": nil, "error": nil,
		"retry_of": nil, "total": 2., "processed": 0., "accepted": 0., "failed": 0., "queued": 2., "active": 0., "deferred": 0.,
		"skipped": 0., "cancelled": 0., "records": 0., "skipped_by_reason": map[string]any{}, "failed_by_type": map[string]any{},
		"refused_by_reason": map[string]any{}, "report": map[string]any{
			"list_pages": 0., "discovered": 2., "created": 0., "updated": 0., "unchanged": 0., "not_collected": 0., "missing": 0.,
			"sitemaps": 0., "sitemaps_failed": 0.,
		}, "bytes": 0., "kept_bytes": 0.,
		"created_at": "2023-11-14T22:13:20.000Z", "started_at": nil, "ended_at": nil, "expires_at": nil, "tags": []any{"x"},
		"spec": map[string]any{"urls": []any{"https://site.test/a", "https://site.test/b"}, "tags": []any{"x"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	n := b.created[0]
	if n.Job != (crawl.JobRef{Tenant: "a", ID: id}) || n.Quota.MaxRunning != 10 || len(n.Inputs) != 2 || n.IdempotencyKey != "" {
		t.Errorf("stored %+v", n)
	}
	if d := cmp.Diff([]crawl.Ring{{JobRef: n.Job}}, b.rings); d != "" {
		t.Errorf("rings -want +got:\n%s", d)
	}
	if second := b.call("POST", "/v1/jobs", oneURL); second.header.Get("Location") == a.header.Get("Location") {
		t.Error("without a key, two submissions are one job")
	}
}

// JOB-03: inputs are compared as what they mean, not as bytes; another meaning
// under the same key is refused and names the first job. The documented rule for
// defaults: given explicitly they are another input. For numbers: 2.0 is refused.
func TestIdempotencyJOB03(t *testing.T) {
	t.Parallel()
	const first = `{"seed_url":"http://site.test/","max_depth":2,"include":["/a","/b"]}`
	for _, tt := range []struct {
		name, body string
		status     int
	}{
		{"the same bytes", first, 202},
		{"order of names", `{"include":["/a","/b"],"max_depth":2,"seed_url":"http://site.test/"}`, 202},
		{"space", "{ \"seed_url\" : \"http://site.test/\" ,\n\t\"max_depth\" : 2, \"include\":[\"/a\" , \"/b\"] }\n", 202},
		{"escaped name", `{"\u0073eed_url":"http://site.test/","max_depth":2,"include":["/a","/b"]}`, 202},
		{"escaped slashes", `{"seed_url":"http:\/\/site.test\/","max_depth":2,"include":["\/a","/b"]}`, 202},
		{"null is absent", `{"seed_url":"http://site.test/","max_depth":2,"include":["/a","/b"],"max_pages":null}`, 202},
		{"explicit default", `{"seed_url":"http://site.test/","max_depth":2,"include":["/a","/b"],"max_pages":100}`, 409},
		{"order of a list", `{"seed_url":"http://site.test/","max_depth":2,"include":["/b","/a"]}`, 409},
		{"other value", `{"seed_url":"http://site.test/","max_depth":3,"include":["/a","/b"]}`, 409},
		{"2.0", `{"seed_url":"http://site.test/","max_depth":2.0,"include":["/a","/b"]}`, 422},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, key := newBench(t), header("Idempotency-Key", "k-3")
			location := b.call("POST", "/v1/jobs", first, key).header.Get("Location")
			id := strings.TrimPrefix(location, "/v1/jobs/")
			if id != crawl.NewJobID("a", "k-3") {
				t.Fatalf("the id %q is not that of the key", id)
			}
			b.jobs[crawl.JobRef{Tenant: "a", ID: id}] = crawl.Job{ID: id, State: crawl.Running, Total: 7}

			a := b.call("POST", "/v1/jobs", tt.body, key)
			switch tt.status {
			case 202:
				var got status
				a.decode(t, 202, &got)
				if a.header.Get("Idempotent-Replayed") != "true" || a.header.Get("Location") != location ||
					got.State != crawl.Running || got.Total != 7 {
					t.Errorf("no replay of the current state: %v %s", a.header, a.body)
				}
			case 409:
				if p := a.wantProblem(t, 409, crawl.CodeKeyReused); p.JobID != id {
					t.Errorf("the problem names job %q, want %q", p.JobID, id)
				}
			default:
				a.wantProblem(t, tt.status, crawl.CodeInvalid)
			}
			if len(b.created) != 1 || len(b.rings) != 1 {
				t.Errorf("%d jobs stored, %d rings; want one of each", len(b.created), len(b.rings))
			}
			if other := b.call("POST", "/v1/jobs", tt.body, key, header("Authorization", "Bearer "+keyB)); other.status == 409 ||
				other.header.Get("Location") == location {
				t.Errorf("another tenant's key is the same key: %d %v", other.status, other.header)
			}
		})
	}
}

// JOB-04: what the first check sees and what is executed are the same, since a
// body of which there could be two readings is refused.
func TestAmbiguousBodiesJOB04(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, tt := range []struct {
		body string
		want []string
	}{
		{`{"seed_url":"http://site.test/","SEED_URL":"http://127.0.0.1:1/"}`, []string{"SEED_URL:duplicate"}},
		{`{"seed_url":"a","seed_url":"b"}`, []string{"seed_url:duplicate"}},
		{`{"sEED_url":"http://site.test/"}`, []string{"sEED_url:unknown"}},
		{`{"seed_url":"http://site.test/","max_pages":1,"Max_Pages":100000}`, []string{"Max_Pages:duplicate"}},
		{`{"seed_url":"http://site.test/","webhook":{"url":"x","URL":"y"}}`, []string{"webhook.URL:duplicate"}},
		{`{"seed_url":"http://site.test/","max_page":1}`, []string{"max_page:unknown"}},
		{
			`{"seed_url":"http://site.test/","max_page":1,"max_depth":"2","tags":[1]}`,
			[]string{"max_page:unknown", "max_depth:type", "tags[0]:type"},
		},
	} {
		p := b.call("POST", "/v1/jobs", tt.body).wantProblem(t, 422, crawl.CodeInvalid)
		if d := cmp.Diff(tt.want, fieldRules(p)); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.body, d)
		}
	}
	if len(b.created) != 0 {
		t.Errorf("%d jobs were stored", len(b.created))
	}
}

// JOB-05: a key is 1 to 255 visible ASCII characters after trimming, compared by
// letter case, given once. Everything else is a 400, and nothing is cut.
func TestIdempotencyKeyJOB05(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("r", 254)
	for _, tt := range []struct {
		name   string
		values []string
		want   string // the key as stored, when it is accepted
	}{
		{"empty", []string{""}, ""},
		{"blank", []string{"   "}, ""},
		{"blanks around", []string{"  k "}, "k"},
		{"upper case", []string{"K"}, "K"},
		{"quoted", []string{`"k"`}, `"k"`},
		{"Cyrillic", []string{strings.Repeat("ж", 200)}, ""},
		{"Latin-1 byte", []string{"caf\xe9"}, ""},
		{"tab inside", []string{"a\tb"}, ""},
		{"SEC-07 forged log", []string{"k\tlevel=error"}, ""},
		{"space inside", []string{"a b"}, ""},
		{"DEL", []string{"a\x7f"}, ""},
		{"255", []string{long + "a"}, long + "a"},
		{"255, other end", []string{long + "b"}, long + "b"},
		{"256", []string{long + "ab"}, ""},
		{"3000", []string{strings.Repeat("k", 3000)}, ""},
		{"70000", []string{strings.Repeat("k", 70000)}, ""},
		{"twice", []string{"one", "two"}, ""},
		{"twice the same", []string{"one", "one"}, ""},
		{"path", []string{"../x"}, "../x"},
		{"braces", []string{"a:b{c}"}, "a:b{c}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			a := b.call("POST", "/v1/jobs", oneURL, header("Idempotency-Key", tt.values...))
			if tt.want == "" {
				a.wantProblem(t, 400, crawl.CodeMalformed)
				if len(b.created) != 0 {
					t.Error("a job was stored")
				}
				return
			}
			if a.status != 202 || b.created[0].IdempotencyKey != tt.want || b.created[0].Job.ID != crawl.NewJobID("a", tt.want) {
				t.Errorf("%d %s, stored %+v", a.status, a.body, b.created)
			}
			if logs := b.logs.String(); strings.Contains(logs, tt.want) && len(tt.want) > 3 {
				t.Errorf("the key is logged: %s", logs)
			}
		})
	}
}

// endless is a body that never ends.
type endless struct{ b byte }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.b
	}
	return len(p), nil
}

// SEC-09: bodies made to hurt are refused with a problem, without being read to
// their end.
func TestBodiesSEC09(t *testing.T) {
	t.Parallel()
	body := func(r io.Reader, length int64) func(*http.Request) {
		return func(req *http.Request) { req.Body, req.ContentLength = io.NopCloser(r), length }
	}
	for _, tt := range []struct {
		name   string
		body   string
		edit   func(*http.Request)
		status int
		code   crawl.Code
	}{
		{"nested 20,000", strings.Repeat(`{"a":`, 20000), nil, 400, crawl.CodeMalformed},
		{"nested 9,999 lists", `{"urls":` + strings.Repeat("[", 9999), nil, 400, crawl.CodeMalformed},
		{"endless space, chunked", "x", body(endless{' '}, -1), 413, crawl.CodeBodyTooLarge},
		{"200 MB announced", "x", body(endless{' '}, 200<<20), 413, crawl.CodeBodyTooLarge},
		{"endless string", "x", body(io.MultiReader(strings.NewReader(`{"seed_url":"`), endless{'a'}), -1), 413, crawl.CodeBodyTooLarge},
		{"gzip", "x", header("Content-Encoding", "gzip"), 415, codeUnsupportedMediaType},
		{"two objects", `{"urls":["http://site.test/"]}{"urls":["http://127.0.0.1/"]}`, nil, 422, crawl.CodeInvalid},
		{"trailing", oneURL + " trailing", nil, 422, crawl.CodeInvalid},
		{"byte order mark", "\ufeff" + oneURL, nil, 400, crawl.CodeMalformed},
		{"1e400", `{"seed_url":"http://site.test/","max_pages":1e400}`, nil, 422, crawl.CodeInvalid},
		{"cut short", "x", body(io.MultiReader(strings.NewReader(`{"a`), cutReader{}), 100), 400, crawl.CodeMalformed},
		{"too slow", "x", body(slowReader{}, 100), 400, crawl.CodeMalformed},
		{"form", oneURL, header("Content-Type", "application/x-www-form-urlencoded"), 415, codeUnsupportedMediaType},
		{"text", oneURL, header("Content-Type", "text/plain"), 415, codeUnsupportedMediaType},
		{"no type", oneURL, header("Content-Type"), 415, codeUnsupportedMediaType},
		{"broken type", oneURL, header("Content-Type", "application/json; ="), 415, codeUnsupportedMediaType},
		{"other charset", oneURL, header("Content-Type", "application/json; charset=latin1"), 415, codeUnsupportedMediaType},
		{"nothing", "", header("Content-Type", "application/json"), 400, crawl.CodeMalformed},
		{
			"100,000 selectors", `{"seed_url":"http://site.test/","fields":{` + strings.Repeat(`"f":{},`, 100000) + `"g":1}}`, nil,
			422, crawl.CodeInvalid,
		},
		{"largest", `{"urls":["` + strings.Repeat("x", MaxBody-13) + `"]}`, nil, 422, crawl.CodeInvalid},
		{"one byte more", `{"urls":["` + strings.Repeat("x", MaxBody-12) + `"]}`, nil, 413, crawl.CodeBodyTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			edit := tt.edit
			if edit == nil {
				edit = func(*http.Request) {}
			}
			a := b.call("POST", "/v1/jobs", tt.body, edit)
			a.wantProblem(t, tt.status, tt.code)
			if len(b.created) != 0 || len(a.body) > 1<<20 {
				t.Errorf("%d jobs stored, answer of %d bytes", len(b.created), len(a.body))
			}
		})
	}
	if a := newBench(t).call("POST", "/v1/jobs", oneURL, header("Content-Type", "Application/JSON; charset=UTF-8")); a.status != 202 {
		t.Errorf("a charset of UTF-8 is refused: %s", a.body)
	}
}

type cutReader struct{}

func (cutReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

type slowReader struct{}

func (slowReader) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// A submission is accepted once it is stored, whatever becomes of its ring and
// of its client.
func TestRingFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ringErr = errBroken
	var got status
	a := b.call("POST", "/v1/jobs", oneURL)
	a.decode(t, 202, &got)
	if got.WaitingFor == nil || *got.WaitingFor != "dispatch" || got.Error == nil || strings.Contains(a.body, "secret") {
		t.Errorf("got %s", a.body)
	}
	if len(b.failed) != 1 || b.failed[0].ID != got.JobID {
		t.Errorf("the store was told of %v", b.failed)
	}
	if !b.counts("trawl_api_rings_failed_total 1") {
		t.Error("the failed ring is not counted")
	}

	// A pause is told as one, and what the log says of it is not.
	b = newBench(t)
	b.ringErr = &crawl.Fault{
		Code: crawl.CodeUnavailable, Message: "The queue is paused.", Err: fmt.Errorf("%w: secret", queue.ErrPaused),
	}
	a = b.call("POST", "/v1/jobs", oneURL)
	a.decode(t, 202, &got)
	if got.Error == nil || *got.Error != "The queue is paused." || strings.Contains(a.body, "secret") {
		t.Errorf("got %s", a.body)
	}

	b = newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the fake's Create does not look, as a script that was already sent
	b.call("POST", "/v1/jobs", oneURL, func(r *http.Request) { *r = *r.WithContext(ctx) })
	if len(b.rings) != 1 {
		t.Error("a client that hung up left its job unrung")
	}
}

// A body that comes too slowly is cut by the server's own limit, and its sender is
// told so, although the time for an answer is over when the time for the body is.
func TestSlowBodyIsCutSEC09(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.server.http.ReadTimeout, b.server.writeTimeout = time.Second, 500*time.Millisecond
	start(t, b)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", b.server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", keyA)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) || !bytes.Contains(answer, []byte(`"code":"malformed"`)) {
		t.Errorf("%q, %v", answer, err)
	}
	if len(b.created) != 0 {
		t.Error("a job was stored")
	}
}

func BenchmarkSubmit(b *testing.B) {
	bench := newBench(b)
	bench.server.log = nopLogger
	body := `{"seed_url":"https://docs.example.org/","max_pages":100,"max_depth":5,"include":["/3/**"],"tags":["nightly"],"delay":"500ms"}`
	b.Run("http", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w := httptest.NewRecorder()
			bench.server.Handler().ServeHTTP(w, request("POST", "/v1/jobs", body))
			if w.Code != 202 {
				b.Fatal(w.Body)
			}
		}
	})
	b.Run("handler", func(b *testing.B) { // the same without gin and huma around it
		b.ReportAllocs()
		for b.Loop() {
			c := ginContext(request("POST", "/v1/jobs", body))
			x := &exchange{c: c, id: "r"}
			if err := bench.server.authenticate(x); err != nil {
				b.Fatal(err)
			}
			out, err := bench.server.submit(c.Request.Context(), x, nil)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := json.Marshal(out.Body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var in submission
			if err := decodeStrict([]byte(body), &in); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode 10,000 URLs", func(b *testing.B) {
		many := `{"urls":["` + strings.Repeat(`https://docs.example.org/a/b/c/d/e?f=g","`, 9999) + `https://docs.example.org/"]}`
		b.SetBytes(int64(len(many)))
		b.ReportAllocs()
		for b.Loop() {
			var in submission
			if err := decodeStrict([]byte(many), &in); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A name that is not known does not hide what is wrong with those that are.
func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.call("POST", "/v1/jobs", `{"url":"x","max_pages":0,"seed_url":"ftp://site.test/"}`).wantProblem(t, 422, crawl.CodeInvalid)
	got := map[string]bool{}
	for _, f := range p.Errors {
		got[f.Field] = true
	}
	if d := cmp.Diff(map[string]bool{"url": true, "max_pages": true, "seed_url": true}, got); d != "" {
		t.Errorf("fields (-want +got):\n%s", d)
	}
	if len(b.created) != 0 {
		t.Error("a faulty submission was stored")
	}
}

// The same when what is wrong with them is their sources.
func TestAllFaultsAtOnceWithSources(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var err error
	if b.server.o.Sources, err = crawl.ParseSources("site.test"); err != nil {
		t.Fatal(err)
	}
	p := b.call("POST", "/v1/jobs", `{"urls":["http://evil.test/","ftp://x"],"bogus":1}`).wantProblem(t, 422, crawl.CodeInvalid)
	want := []string{"bogus:unknown", "urls[1]:scheme", "urls[0]:source_not_allowed"}
	if d := cmp.Diff(want, fieldRules(p)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Faults that are too many to tell are told to be more once, and not counted wrong.
func TestManyUnknownFields(t *testing.T) {
	t.Parallel()
	var body strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&body, `"x%d":1,`, i)
	}
	p := newBench(t).call("POST", "/v1/jobs", "{"+body.String()+oneURL[1:]).wantProblem(t, 422, crawl.CodeInvalid)
	if len(p.Errors) != maxFaults+1 {
		t.Fatalf("%d faults", len(p.Errors))
	}
	for i, f := range p.Errors {
		if more := f.Rule == crawl.RuleMoreFaults; more != (i == maxFaults) {
			t.Errorf("fault %d is %+v", i, f)
		}
	}
}

// Every message is a sentence that a person can act on, and is about something.
func TestMessagesAreSentences(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var all []crawl.FieldFault
	for _, body := range []string{
		`{"urls":[1,null,"ftp://x","http://"],"seed_url":"x","seeds":{},"max_pages":1.5,"max_depth":1e99,"time_limit":1,"delay":"x"} x`,
		`{"max_pages":99999999999999999999,"Urls":[],"url":1,"url":2,"tags":"x","webhook":{},"URL":1}`,
		`{"seed_url":"http://site.test/","seeds":["x"],"max_pages":0,"max_depth":101,"scope":"x","include":["re:(","x","re:.{999}.{999}.{999}.{999}.{999}.{999}"],` +
			`"exclude":["/a#b","http://x",""],"formats":["x"],"concurrency":0,"delay":"1ns","tags":[""," x"],"retention":"9999h"}`,
		`{"urls":["http://site.test/"],"scope":"host","include":["/"],"time_limit":"1ns"}`, `{}`,
		`{"seed_url":"http://site.test/","headers":{"Host":"x","A B":"x","A":"x\n","TE":"","Range":"x"},"user_agent":"(x)","sitemap":"x",` +
			`"drop_params":["","a=b"],"respect_robots":"x","sort_params":1}`,
		`{"urls":["http://site.test/"],"headers":{"User-Agent":"x","a":"x","Accept-Encoding":"x"},"user_agent":" x","sitemap":"skip"}`,
		`{"urls":["http://site.test/"],"webhook":{"url":"ftp://x","events":["x","job.failed","job.failed"],"secret":"x"}}`,
		`{"urls":["http://site.test/"],"webhook":{"url":"http://u:p@x/#","secret":"***"}}`, `{"urls":["http://site.test/"],"webhook":{}}`,
		`{"urls":["http://site.test/"],"webhook":{"url":"http://x/#f"}}`, `{"urls":["http://site.test/"],"webhook":{"url":"http://x/%"}}`,
	} {
		p := b.call("POST", "/v1/jobs", body).wantProblem(t, 422, crawl.CodeInvalid)
		all = append(all, append(p.Errors, crawl.FieldFault{Field: "detail", Message: p.Detail})...)
	}
	for _, query := range []string{"limit=x", "limit=0", "a=1", "limit=1&limit=1", "state=x", "created_after=x", "cursor=x", "a=%zz"} {
		p := b.call("GET", "/v1/jobs?"+query, "").problem(t)
		all = append(all, append(p.Errors, crawl.FieldFault{Field: "detail", Message: p.Detail})...)
	}
	for _, f := range all {
		first, _ := utf8.DecodeRuneInString(f.Message)
		if f.Field == "" || !strings.HasSuffix(f.Message, ".") || unicode.IsLower(first) {
			t.Errorf("%+v", f)
		}
	}
	if len(all) < 50 {
		t.Errorf("only %d messages", len(all))
	}
}

// SEC-09: large bodies share a room, which is taken before they are read and given
// back when they are done with. Small ones do not need it.
func TestLargeBodiesShareRoomSEC09(t *testing.T) {
	t.Parallel()
	large := `{"urls":["https://site.test/"],"tags":["x"]` + strings.Repeat(" ", 2*smallBody) + "}"
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	for _, tt := range []struct {
		name   string
		body   string
		edit   func(*http.Request)
		free   int64         // of the room
		leaves time.Duration // when what took the rest gives it back; 0 for never
		status int
		took   time.Duration
	}{
		{"small, none free", oneURL, nil, 0, 0, 202, 0},
		{"large, none free", large, nil, 0, 0, 503, bodyWait},
		{"large, enough free", large, nil, int64(len(large)), 0, 202, 0},
		{"large, a byte short", large, nil, int64(len(large)) - 1, 0, 503, bodyWait},
		{"large, free in time", large, nil, 0, 500 * time.Millisecond, 202, 500 * time.Millisecond},
		{"unknown length is the largest", oneURL, chunked, MaxBody - 1, 0, 503, bodyWait},
		{"unknown length, enough free", oneURL, chunked, MaxBody, 0, 202, 0},
		{"refused body gives its room back", large + "x", nil, bodyRoom, 0, 422, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				taken := bodyRoom - tt.free
				if !b.server.bodies.TryAcquire(taken) {
					t.Fatal("the room is not free at first")
				}
				if tt.leaves > 0 {
					time.AfterFunc(tt.leaves, func() { b.server.bodies.Release(taken) })
				}
				edit := tt.edit
				if edit == nil {
					edit = func(*http.Request) {}
				}
				begin := time.Now()
				a := b.call("POST", "/v1/jobs", tt.body, edit)
				if took := time.Since(begin); a.status != tt.status || took != tt.took {
					t.Errorf("%d after %v, want %d after %v: %s", a.status, took, tt.status, tt.took, a.body)
				}
				if tt.status == 503 {
					if a.wantProblem(t, 503, crawl.CodeOverloaded); a.header.Get("Retry-After") == "" || len(b.created) > 0 {
						t.Errorf("Retry-After %q, %d stored", a.header.Get("Retry-After"), len(b.created))
					}
				}
				if tt.leaves > 0 {
					taken = 0
				}
				if !b.server.bodies.TryAcquire(bodyRoom - taken) {
					t.Error("the room was not given back")
				}
			})
		})
	}
}

// A status does not carry ten thousand URLs each time it is read, and says what it left out.
func TestLongListIsCut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	urls := make([]string, 250)
	for i := range urls {
		urls[i] = fmt.Sprintf("https://site.test/%d", i)
	}
	body, err := json.Marshal(map[string]any{"urls": urls})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Spec struct {
			URLs    []string `json:"urls"`
			Omitted int      `json:"urls_omitted"`
		} `json:"spec"`
	}
	b.call("POST", "/v1/jobs", string(body)).decode(t, 202, &got)
	if len(got.Spec.URLs) != 100 || got.Spec.Omitted != 150 || len(b.created[0].Inputs) != 250 {
		t.Errorf("%d URLs shown, %d omitted, %d stored", len(got.Spec.URLs), got.Spec.Omitted, len(b.created[0].Inputs))
	}
}
