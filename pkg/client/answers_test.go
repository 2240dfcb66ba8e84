package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/client"
)

func isCode(err error, code client.Code) bool { return errors.Is(err, code) }

// Each call meets each answer that is none: it says which call, what was wrong, and what
// came, and it repeats what may pass, and nothing else.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const once, thrice = 1, 3
	reset := errors.New("connection reset by peer")
	html := "<html>\n\t<h1>Sign in \x1b[31m" + testKey + "</h1>" + strings.Repeat("x", 500)
	number := "1" + strings.Repeat("0", 5000)
	noDocument := []string{"read result", "export", "delete"} // calls that read none, or not at once
	for _, tt := range []struct {
		name   string
		answer *answer
		tries  int
		want   []string
		is     error
		not    []string // calls that this is no fault of, or another one
	}{
		{
			name: "refused", answer: refusal(404, client.CodeNotFound), tries: once, is: client.CodeNotFound,
			want: []string{"not_found: Do this."},
		},
		{name: "malformed", answer: refusal(400, client.CodeMalformed), tries: once, is: client.CodeMalformed},
		{name: "key", answer: refusal(401, client.CodeUnauthenticated), tries: once, is: client.CodeUnauthenticated},
		{name: "conflict", answer: refusal(409, client.CodeWrongState), tries: once, is: client.CodeWrongState},
		{name: "gone", answer: refusal(410, client.CodeExpired), tries: once, is: client.CodeExpired},
		{name: "too large", answer: refusal(413, client.CodeBodyTooLarge), tries: once, is: client.CodeBodyTooLarge},
		{name: "invalid", answer: refusal(422, client.CodeInvalid), tries: once, is: client.CodeInvalid},
		{name: "new code", answer: refusal(418, "teapot"), tries: once, is: client.Code("teapot")},
		{name: "rate", answer: refusal(429, client.CodeRateLimited), tries: thrice, is: client.CodeRateLimited},
		{name: "quota", answer: refusal(429, client.CodeQuotaExceeded), tries: thrice, is: client.CodeQuotaExceeded},
		{
			name: "defect", answer: refusal(500, client.CodeInternal), tries: thrice, is: client.CodeInternal,
			want: []string{"(request_id r1)"},
		},
		{name: "unavailable", answer: refusal(503, client.CodeUnavailable), tries: thrice, is: client.CodeUnavailable},
		{name: "overloaded", answer: refusal(503, client.CodeOverloaded), tries: thrice, is: client.CodeOverloaded},
		{
			name: "another protocol", answer: &answer{err: errors.New("malformed: \x1b[2J" + testKey)}, tries: thrice,
			want: []string{"malformed: [2J[key]"},
		},
		{
			name: "connection", answer: &answer{err: reset}, tries: thrice, is: reset,
			want: []string{"no answer from " + base},
		},
		{
			name: "cut", answer: ok(`{"job_id":`).cutBy(io.ErrUnexpectedEOF), tries: thrice, is: io.ErrUnexpectedEOF,
			want: []string{"cut short"}, not: []string{"read result", "export"},
		},
		{
			name: "refusal cut", answer: text(404, problemType, `{"co`).cutBy(reset), tries: thrice, is: reset,
			want: []string{"cut short"},
		},
		{
			name: "truncated", answer: ok(`{"job_id":"j1","items":[{"url":"htt`), tries: thrice,
			want: []string{"ends in the middle", `{\"job_id\":\"j1\"`}, not: noDocument,
		},
		{
			name: "page of a proxy", answer: text(200, "text/html; charset=utf-8", html), tries: once,
			want: []string{"not Trawl", "200 OK", "text/html", `"<html> <h1>Sign in [31m[key]</h1>xxx`},
		},
		{
			name: "proxy forbids", answer: text(403, "text/html", html), tries: once,
			want: []string{"not Trawl", "403 Forbidden", "text/html"},
		},
		{name: "bad gateway", answer: text(502, "text/html", html), tries: thrice, want: []string{"502 Bad Gateway"}},
		{name: "slow gateway", answer: text(504, "", ""), tries: thrice, want: []string{"504", "no Content-Type"}},
		{name: "other text", answer: text(200, "text/plain", "hello"), tries: once, want: []string{`"hello"`}},
		{name: "no media type", answer: text(200, "", aJob), tries: once, want: []string{"no Content-Type"}},
		{name: "empty", answer: ok(""), tries: once, want: []string{"empty"}, not: noDocument},
		{name: "blank", answer: ok(" \n"), tries: once, want: []string{"empty"}, not: noDocument},
		{name: "other JSON", answer: ok(`{"status":"ok"}`), tries: once, want: []string{"not Trawl"}, not: noDocument},
		{name: "array", answer: ok(`[1]`), tries: once, want: []string{"not Trawl"}, not: noDocument},
		{name: "string", answer: ok(`"x"`), tries: once, want: []string{"not Trawl"}, not: noDocument},
		{name: "null", answer: ok(`null`), tries: once, want: []string{"not Trawl"}, not: noDocument},
		{
			name: "other types", answer: ok(`{"job_id":7,"items":{}}`), tries: once, want: []string{"not Trawl"},
			not: noDocument,
		},
		{
			name: "long number", answer: ok(`{"total":` + number + `,"has_more":` + number + `}`),
			tries: once, want: []string{"not Trawl", "…"}, not: noDocument,
		},
		{name: "two documents", answer: ok(aJob + aJob), tries: once, want: []string{"not Trawl"}, not: noDocument},
		{
			name: "content", answer: ok(aJob), tries: once, want: []string{"no content"},
			not: []string{"submit", "read", "cancel", "pause", "resume", "retry", "list", "export", "extract"},
		},
		{
			name: "problem without a code", answer: text(409, problemType, `{"title":"x"}`), tries: once,
			want: []string{"409", "code"},
		},
		{name: "no problem", answer: text(409, problemType, `{"code":`), tries: once, want: []string{"409"}},
		{name: "another type", answer: text(404, jsonType, `{"code":"not_found"}`), tries: once, want: []string{"404"}},
		{
			name: "redirect", answer: text(308, "", "").with("Location", "https://u:p@x.test/%1b"), tries: once,
			want: []string{"308", `redirects`, `"https://u:xxxxx@x.test/%1b"`},
		},
		{name: "redirect to nowhere", answer: text(304, "", ""), tries: once, want: []string{"304"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, of := range calls {
					if slices.ContainsFunc(tt.not, func(name string) bool { return strings.HasPrefix(of.name, name) }) {
						continue
					}
					s, c := newServiceFunc(t, tt.answer.always, client.WithRetries(2))
					err := of.make(t.Context(), c)
					if err == nil || !strings.HasPrefix(err.Error(), of.name) || strings.Count(err.Error(), of.name) > 1 {
						t.Errorf("%s%v", of.name, err)
						continue
					}
					presentable(t, err)
					for _, want := range tt.want {
						if !strings.Contains(err.Error(), want) {
							t.Errorf("%v\nwant %s", err, want)
						}
					}
					if tt.is != nil && !errors.Is(fmt.Errorf("wrapped: %w", err), tt.is) {
						t.Errorf("%v is not %v", err, tt.is)
					}
					if n := len(s.got()); n != tt.tries {
						t.Errorf("%s%d requests, want %d", of.name, n, tt.tries)
					}
				}
			})
		})
	}
}

func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads 128 MiB")
	}
	endless := func(status int, media string) func(int, *http.Request) (*http.Response, error) {
		return func(int, *http.Request) (*http.Response, error) {
			resp, err := (&answer{status: status, media: media}).response()
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"items":["`), forever{}))
			return resp, err
		}
	}
	for _, tt := range []struct {
		status int
		media  string
		want   string
	}{
		{200, jsonType, "larger than 128 MiB"},
		{404, problemType, "larger than 1 MiB"},
	} {
		s, c := newServiceFunc(t, endless(tt.status, tt.media))
		_, err := c.RecordPage(t.Context(), "j1", "", 0)
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(s.got()) != 1 || len(err.Error()) > 1000 {
			t.Errorf("%d: %v after %d tries", tt.status, err, len(s.got()))
		}
	}
}

// forever is a text without an end.
type forever struct{}

func (forever) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// A refusal says all that the service told, to programs and to people.
func TestRefusal(t *testing.T) {
	t.Parallel()
	_, c := newService(t, &answer{
		status: 422, media: problemType + "; charset=utf-8", header: []string{"Retry-After", "7"},
		body: `{"type":"about:blank","title":"x","status":400,"code":"invalid","detail":"Mend\u001b[2J these.",
			"request_id":"r1","errors":[{"field":"urls","rule":"required","message":"Say what."},
			{"field":"delay","rule":"range","message":"Less."}],
			"job_id":"j9","expired_at":"2026-05-06T07:08:09.123Z","new":[{}]}`,
	})
	_, err := c.Submit(t.Context(), client.Spec{})
	var e *client.Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	want := &client.Error{
		Code: client.CodeInvalid, Status: 422, Detail: "Mend [2J these.", RequestID: "r1", JobID: "j9",
		Fields: []client.FieldError{
			{Field: "urls", Rule: "required", Message: "Say what."}, {Field: "delay", Rule: "range", Message: "Less."},
		},
		ExpiredAt: time.Date(2026, 5, 6, 7, 8, 9, 123e6, time.UTC), RetryAfter: 7 * time.Second,
	}
	if d := cmp.Diff(want, e); d != "" {
		t.Error(d)
	}
	const text = "submit: invalid: Mend [2J these.\n  urls (required): Say what.\n  delay (range): Less."
	if err.Error() != text {
		t.Errorf("%q, want %q", err, text)
	}
	if errors.Is(err, client.CodeNotFound) || !errors.Is(err, client.CodeInvalid) {
		t.Errorf("%v is what it is not", err)
	}
	for _, tt := range []struct {
		e    client.Error
		want string
	}{
		{client.Error{Code: "x"}, "x"},
		{client.Error{Code: "x", Detail: "Do.", RequestID: "r"}, "x: Do."},
		{client.Error{Code: "x", Detail: "Do.", RequestID: "r", Status: 500}, "x: Do. (request_id r)"},
		{client.Error{Code: "x", Detail: "Do.", Fields: []client.FieldError{{"f", "r", "m."}}}, "x: Do. f (r): m."},
	} {
		if got := tt.e.Error(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		for _, tt := range []struct {
			header, date string
			want         time.Duration
		}{
			{"", "", 0},
			{"0", "", 0},
			{"3", "", 3 * time.Second},
			{" 3 ", "", 3 * time.Second},
			{"86400", "", time.Hour},
			{"99999999999999999999999", "", time.Hour},
			{"-3", "", 0},
			{"1.5", "", 0},
			{"soon", "", 0},
			{at(90 * time.Second), "", 90 * time.Second},
			{at(-time.Minute), "", 0},
			{at(1000 * time.Hour), "", time.Hour},
			// The service's clock may be another than this one's.
			{at(50 * time.Hour), at(50*time.Hour - 5*time.Second), 5 * time.Second},
		} {
			_, c := newServiceFunc(t, func(int, *http.Request) (*http.Response, error) {
				return refusal(429, client.CodeRateLimited, "Retry-After", tt.header, "Date", tt.date).response()
			}, client.WithRetries(0))
			_, err := c.Job(t.Context(), "j1")
			var e *client.Error
			if !errors.As(err, &e) || e.RetryAfter != tt.want {
				t.Errorf("%q at %q: %v, want %v", tt.header, tt.date, e.RetryAfter, tt.want)
			}
		}
	})
}

// What is decoded is all that was sent; null is nothing, and what is new is in Raw.
func TestDecode(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 6, 7, 8, 9, 123e6, time.UTC)
	const (
		full = `{"job_id":"j1","queue_task_id":"q","state":"dreaming","stop_reason":"page_limit",
			"waiting_for":"worker","position":3,"error":"e","retry_of":"j0","total":1,"processed":2,"accepted":3,
			"failed":4,"queued":5,"active":6,"deferred":7,"skipped":8,"cancelled":9,"records":10,
			"skipped_by_reason":{"alias":1},"failed_by_type":{"http_404":2},"refused_by_reason":{"depth":3},
			"report":{"discovered":11,"new":1},"bytes":12,"created_at":"2026-05-06T07:08:09.123Z",
			"started_at":"2026-05-06T07:08:09.123Z","ended_at":"2026-05-06T07:08:09.123Z",
			"expires_at":"2026-05-06T07:08:09.123Z",
			"spec":{"seed_url":"https://site.test/","max_depth":0,"time_limit":"1h0m0s","new":true},"tags":["a"],
			"new": {"x":1} }`
		empty = `{"job_id":"j1","state":"queued","stop_reason":null,"waiting_for":null,"position":null,"error":null,
			"retry_of":null,"skipped_by_reason":null,"report":null,"started_at":null,"ended_at":null,
			"expires_at":null,"spec":null,"tags":null,"total":null}`
		record = `{"seq":1,"source_url":"s","url":"u","status":200,"depth":2,"discovered_on":"d","title":"t",
			"fetched_at":"2026-05-06T07:08:09.123Z","duration_ms":3,"bytes":4,"content_type":"c","charset":"ch","language":"l",
			"canonical":"ca","link_count":5,"attempts":6,"decoding_errors":true,  "new":"# new <&",
			"item":7,"change":"updated","fields":{"b":1.50, "a":null},"notes":[{"about":"fields.b","what":"cut","count":2}],
			"markdown":"# <&","text":"t","html":"<p>","links":[{"url":"l","text":"x","rel":"r","in_scope":true}],
			"metadata":{"title":"m","open_graph":{"type":["a","b"]},"json_ld":[{"a": 1}],"feeds":[{"url":"f","type":"y"}],
			"alternates":[{"language":"de","url":"d"}],"new":1}}`
		plain = `{"seq":2,"item":null,"change":null,"fields":null,"notes":null,"markdown":null,"text":null,"html":null,
			"links":null,"metadata":null,"title":null}`
		failure = `{"source_url":"s","url":"u","error_type":"http_404","status":404,"message":"m","attempts":1,
			"discovered_on":"d","depth":2,"at":"2026-05-06T07:08:09.123Z","new":null}`
	)
	get := func(body string) *client.Client {
		_, c := newService(t, ok(body+"\n"))
		return c
	}
	job, err := get(full).Job(t.Context(), "j1")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&client.Job{
		ID: "j1", QueueTaskID: "q", State: "dreaming", StopReason: "page_limit", WaitingFor: "worker", Position: 3,
		Error: "e", RetryOf: "j0", Total: 1, Processed: 2, Accepted: 3, Failed: 4, Queued: 5, Active: 6, Deferred: 7,
		Skipped: 8, Cancelled: 9, Records: 10, SkippedByReason: map[string]int64{"alias": 1},
		FailedByType:    map[string]int64{"http_404": 2},
		RefusedByReason: map[string]int64{"depth": 3}, Report: client.Report{Discovered: 11}, Bytes: 12,
		CreatedAt: at, StartedAt: at, EndedAt: at, ExpiresAt: at, Tags: []string{"a"}, Raw: json.RawMessage(full),
		Spec: &client.Spec{SeedURL: "https://site.test/", MaxDepth: new(int), TimeLimit: time.Hour},
	}, job); d != "" {
		t.Error(d)
	}
	job, err = get(empty).Job(t.Context(), "j1")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&client.Job{ID: "j1", State: "queued", Raw: json.RawMessage(empty)}, job); d != "" {
		t.Error(d)
	}
	c := get(`{"items":[` + record + `, ` + plain + `],"next_cursor":"c","has_more":true,"new":1}`)
	records, err := c.RecordPage(t.Context(), "j1", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	one := client.Record{
		Seq: 1, SourceURL: "s", URL: "u", Status: 200, Depth: 2, DiscoveredOn: "d", Title: "t", FetchedAt: at,
		DurationMS: 3, Bytes: 4, ContentType: "c", Charset: "ch", Language: "l", Canonical: "ca", LinkCount: 5,
		Attempts: 6, DecodingErrors: true, Raw: json.RawMessage(record),
	}
	one.Item, one.Change, one.Fields = 7, client.Updated, json.RawMessage(`{"b":1.50, "a":null}`)
	one.Notes, one.Markdown, one.Text, one.HTML = []client.Note{{About: "fields.b", What: "cut", Count: 2}}, "# <&", "t", "<p>"
	one.Links = []client.PageLink{{URL: "l", Text: "x", Rel: "r", InScope: true}}
	one.Metadata = &client.Metadata{
		Title: "m", OpenGraph: map[string][]string{"type": {"a", "b"}}, JSONLD: []json.RawMessage{json.RawMessage(`{"a": 1}`)},
		Alternates: []client.Alternate{{Language: "de", URL: "d"}}, Feeds: []client.Feed{{URL: "f", Type: "y"}},
	}
	bare := client.Record{Seq: 2, Raw: json.RawMessage(plain)}
	two := &client.Page[client.Record]{Items: []client.Record{one, bare}, NextCursor: "c", HasMore: true}
	if d := cmp.Diff(two, records); d != "" {
		t.Error(d)
	}
	c = get(`{"items":[` + failure + `],"next_cursor":null,"has_more":false}`)
	failures, err := c.ErrorPage(t.Context(), "j1", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&client.Page[client.PageError]{Items: []client.PageError{{
		SourceURL: "s", URL: "u", ErrorType: "http_404", Status: 404, Message: "m", Attempts: 1, DiscoveredOn: "d",
		Depth: 2, At: at, Raw: json.RawMessage(failure),
	}}}, failures); d != "" {
		t.Error(d)
	}
	if _, err := get(`{"next_cursor":null}`).RecordPage(t.Context(), "j1", "", 0); err == nil ||
		!strings.Contains(err.Error(), "it has no items") {
		t.Error(err)
	}
	if p, err := get(`{"items":null}`).RecordPage(t.Context(), "j1", "", 0); err != nil || p.Items != nil {
		t.Errorf("no items: %v, %v", p, err)
	}
}

// Raw is the service's own text also where a value is decoded anew.
func TestDecodeAnew(t *testing.T) {
	t.Parallel()
	var r client.Record
	for _, text := range []string{`{"url":"u","title":"t"}`, `{"url":"v","title":null}`} {
		if err := json.Unmarshal([]byte(text), &r); err != nil || string(r.Raw) != text {
			t.Errorf("%s: %v, %s", text, err, r.Raw)
		}
	}
	if r.URL != "v" || r.Title != "" {
		t.Errorf("left over: %+v", r)
	}
}

// The answers of anybody are decoded, or refused in words that are fit to be shown.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []struct {
		status      uint16
		media, body string
	}{
		{200, jsonType, aJob},
		{200, jsonType, noPages},
		{200, jsonType, `{"items":[{"seq":1,"fetched_at":"2026-05-06T07:08:09.123Z","x":[1]},null],"next_cursor":"c"}`},
		{200, jsonType, `{"items":[{"status":null,"at":"2026"}]}`},
		{200, jsonType, `{"items":`},
		{422, problemType, `{"code":"invalid","detail":"\u001b[2J","errors":[{"field":"a\nb","rule":"c","message":"d"}]}`},
		{503, problemType, `{"code":"unavailable","status":200}`},
		{410, problemType, `{"code":"expired","expired_at":null}`},
		{502, "text/html", "<html>\x00\xff"},
		{301, "x/y;\x7f", ""},
		{204, "", ""},
	} {
		f.Add(seed.status, seed.media, []byte(seed.body))
	}
	f.Fuzz(func(t *testing.T, status uint16, media string, body []byte) {
		a := &answer{status: 200 + int(status)%400, media: media, body: string(body)}
		_, c := newServiceFunc(t, a.always, client.WithRetries(0))
		fit := func(err error) {
			if presentable(t, err); len(err.Error()) > 2000+40*len(body) || !strings.Contains(err.Error(), "job j1: ") {
				t.Errorf("%d bytes: %v", len(err.Error()), err)
			}
		}
		if p, err := c.RecordPage(t.Context(), "j1", "", 0); err != nil {
			fit(err)
		} else {
			for _, r := range p.Items {
				if !json.Valid(r.Raw) || !bytes.Contains(body, r.Raw) {
					t.Errorf("raw is %s", r.Raw)
				}
			}
		}
		if job, err := c.Job(t.Context(), "j1"); err != nil {
			fit(err)
		} else if !sameJSON(t, job.Raw, body) || job.ID == "" {
			t.Errorf("raw is %s", job.Raw)
		}
		if err := c.Delete(t.Context(), "j1"); err != nil {
			fit(err)
		}
		if _, err := c.Result(t.Context(), "j1", client.NDJSON); err != nil {
			fit(err)
		}
	})
}

// A context that ended ends every call, before anything is sent.
func TestCancelledContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, of := range slices.Concat(calls, patient) {
		s, c := newService(t, &answer{status: 500})
		err := of.make(ctx, c)
		if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), of.name) || len(s.got()) > 0 {
			t.Errorf("%s%v, %d requests", of.name, err, len(s.got()))
		}
	}
}
