package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawltest"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

const (
	testKey  = "key-of-the-tests-0001"
	base     = "http://trawl.test"
	aJob     = `{"job_id":"j1","state":"running","total":2,"queued":2}`
	anEnd    = `{"job_id":"j1","state":"completed","total":2,"accepted":2,"processed":2}`
	noPages  = `{"items":[],"next_cursor":null,"has_more":false}`
	jsonType = "application/json"

	ndjsonType  = "application/x-ndjson"
	problemType = "application/problem+json"
	noAnalytics = `{"total":0,"missing":0,"facets":{},"distinct":{},"numbers":{}}`
)

// service answers without a network, so that in a bubble of synctest the time of its
// callers passes at once.
type service struct {
	answer func(n int, r *http.Request) (*http.Response, error) // n counts the requests, from 1

	mu       sync.Mutex
	requests []sent
}

// sent is one request that the service got.
type sent struct {
	method, uri string
	header      http.Header
	body        string
	at          time.Time
}

// RoundTrip implements http.RoundTripper.
func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	s.requests = append(s.requests, sent{r.Method, r.URL.RequestURI(), r.Header.Clone(), string(body), time.Now()})
	n := len(s.requests)
	s.mu.Unlock()
	resp, err := s.answer(n, r)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

func (s *service) got() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sent(nil), s.requests...)
}

// newService makes a service of the given answers, the last of which is repeated, and a
// client of it.
func newService(t testing.TB, answers ...*answer) (*service, *client.Client) {
	t.Helper()
	return newServiceFunc(t, func(n int, _ *http.Request) (*http.Response, error) {
		return answers[min(n, len(answers))-1].response()
	})
}

func newServiceFunc(
	t testing.TB, f func(n int, r *http.Request) (*http.Response, error), options ...client.Option,
) (*service, *client.Client) {
	t.Helper()
	s := &service{answer: f}
	options = append(options, client.WithHTTPClient(&http.Client{Transport: s}))
	c, err := client.New(base, testKey, options...)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// answer is what the service says to one request.
type answer struct {
	status int
	media  string
	body   string
	header []string // pairs
	cut    error    // in place of the end of the body
	err    error    // in place of all
}

func ok(body string) *answer { return text(200, jsonType, body) }

func text(status int, media, body string) *answer {
	return &answer{status: status, media: media, body: body}
}

func refusal(status int, code client.Code, header ...string) *answer {
	body := fmt.Sprintf(`{"type":"about:blank","status":%d,"code":%q,"detail":"Do this.","request_id":"r1"}`, status, code)
	return &answer{status: status, media: problemType, body: body, header: header}
}

func (a *answer) with(header ...string) *answer {
	b := *a
	b.header = append(b.header[:len(b.header):len(b.header)], header...)
	return &b
}

// cutBy is a that ends in an error.
func (a *answer) cutBy(err error) *answer {
	b := *a
	b.cut = err
	return &b
}

// always is a service that knows no other answer.
func (a *answer) always(int, *http.Request) (*http.Response, error) { return a.response() }

func (a *answer) response() (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	h := http.Header{}
	if a.media != "" {
		h.Set("Content-Type", a.media)
	}
	for i := 0; i < len(a.header); i += 2 {
		h.Set(a.header[i], a.header[i+1])
	}
	r := &http.Response{
		StatusCode: a.status, Header: h, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(a.body)),
		Body: io.NopCloser(strings.NewReader(a.body)),
	}
	if a.cut != nil {
		r.ContentLength++
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(a.body), failing{a.cut}))
	}
	return r, nil
}

// failing is a reader that only fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// call is one method of a client, as the tables of the tests make it.
type call struct {
	name string // which its errors begin with
	ok   *answer
	make func(context.Context, *client.Client) error
}

// drain is the error that a walk ended with.
func drain[T any](seq func(func(T, error) bool)) error {
	var last error
	for _, err := range seq {
		last = err
	}
	return last
}

// calls are all that send requests, but for Wait, which has its own rules.
var calls = []call{
	{"submit: ", &answer{status: 202, media: jsonType, body: aJob}, func(ctx context.Context, c *client.Client) error {
		_, err := c.Submit(ctx, client.Spec{SeedURL: "https://site.test/"})
		return err
	}},
	{"read job j1: ", ok(aJob), func(ctx context.Context, c *client.Client) error {
		_, err := c.Job(ctx, "j1")
		return err
	}},
	{"cancel job j1: ", ok(anEnd), func(ctx context.Context, c *client.Client) error {
		_, err := c.Cancel(ctx, "j1")
		return err
	}},
	{"delete job j1: ", &answer{status: 204}, func(ctx context.Context, c *client.Client) error {
		return c.Delete(ctx, "j1")
	}},
	{"list jobs: ", ok(noPages), func(ctx context.Context, c *client.Client) error {
		return drain(c.Jobs(ctx, client.JobsQuery{}))
	}},
	{"read records of job j1: ", ok(noPages), func(ctx context.Context, c *client.Client) error {
		return drain(c.Records(ctx, "j1"))
	}},
	{"read records of job j1: ", ok(noPages), func(ctx context.Context, c *client.Client) error {
		_, err := c.RecordPage(ctx, "j1", "", 0)
		return err
	}},
	{"read errors of job j1: ", ok(noPages), func(ctx context.Context, c *client.Client) error {
		return drain(c.Errors(ctx, "j1"))
	}},
	{"read errors of job j1: ", ok(noPages), func(ctx context.Context, c *client.Client) error {
		_, err := c.ErrorPage(ctx, "j1", "", 0)
		return err
	}},
	{"read result of job j1: ", ok("{}"), func(ctx context.Context, c *client.Client) error {
		r, err := c.Result(ctx, "j1", client.JSON)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(io.Discard, r)
		return err
	}},
	{"read result of job j1: ", text(200, ndjsonType, ""), func(ctx context.Context, c *client.Client) error {
		return drain(c.StreamRecords(ctx, "j1", 0))
	}},
	{"list collections: ", ok(noPages), func(ctx context.Context, c *client.Client) error {
		return drain(c.Collections(ctx))
	}},
	{"read collection jobs: ", ok(`{"name":"jobs"}`), func(ctx context.Context, c *client.Client) error {
		_, err := c.Collection(ctx, "jobs")
		return err
	}},
	{"read items of collection jobs: ", ok(noPages), func(ctx context.Context, c *client.Client) error {
		return drain(c.Items(ctx, "jobs", client.ItemsQuery{}))
	}},
	{"read items of collection jobs: ", ok(noPages), func(ctx context.Context, c *client.Client) error {
		_, err := c.ItemPage(ctx, "jobs", 1, client.ItemsQuery{})
		return err
	}},
	{"read analytics of collection jobs: ", ok(noAnalytics), func(ctx context.Context, c *client.Client) error {
		_, err := c.Analytics(ctx, "jobs", 0)
		return err
	}},
	{"export collection jobs: ", text(200, "text/csv; charset=utf-8", ""), func(ctx context.Context, c *client.Client) error {
		r, err := c.ExportItems(ctx, "jobs", client.CSV, client.ItemsQuery{})
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(io.Discard, r)
		return err
	}},
	{"export collection jobs: ", text(200, ndjsonType, ""), func(ctx context.Context, c *client.Client) error {
		return drain(c.StreamItems(ctx, "jobs", client.ItemsQuery{}))
	}},
	{"delete an item of collection jobs: ", &answer{status: 204}, func(ctx context.Context, c *client.Client) error {
		return c.DeleteItem(ctx, "jobs", "k")
	}},
	{"delete collection jobs: ", &answer{status: 204}, func(ctx context.Context, c *client.Client) error {
		return c.DeleteCollection(ctx, "jobs")
	}},
	{"pause job j1: ", ok(aJob), func(ctx context.Context, c *client.Client) error {
		_, err := c.Pause(ctx, "j1")
		return err
	}},
	{"resume job j1: ", ok(aJob), func(ctx context.Context, c *client.Client) error {
		_, err := c.Resume(ctx, "j1")
		return err
	}},
	{"retry failed URLs of job j1: ", &answer{status: 202, media: jsonType, body: aJob}, func(ctx context.Context, c *client.Client) error {
		_, err := c.RetryFailed(ctx, "j1", "")
		return err
	}},
	{"extract: ", ok(`{"source_url":null}`), func(ctx context.Context, c *client.Client) error {
		_, err := c.Extract(ctx, client.Extract{HTML: "<p>"})
		return err
	}},
}

// patient are the calls that outlast outages.
var patient = []call{
	{"wait for job j1: ", nil, func(ctx context.Context, c *client.Client) error {
		_, err := c.Wait(ctx, "j1")
		return err
	}},
	{"read records of job j1: ", nil, func(ctx context.Context, c *client.Client) error {
		return drain(c.Records(ctx, "j1", client.Follow()))
	}},
}

// presentable fails when the text of an error is not fit for a person's terminal.
func presentable(t testing.TB, err error) {
	t.Helper()
	text := err.Error()
	if strings.Contains(text, testKey) {
		t.Errorf("the key is in %q", text)
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("a control character at %d of %q", i, text)
	}
}

// sameJSON reports whether two texts are the same bytes but for white space.
func sameJSON(t testing.TB, a, b []byte) bool {
	t.Helper()
	var x, y bytes.Buffer
	if err := errors.Join(json.Compact(&x, a), json.Compact(&y, b)); err != nil {
		t.Error(err)
	}
	return bytes.Equal(x.Bytes(), y.Bytes())
}
