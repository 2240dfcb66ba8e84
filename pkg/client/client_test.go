package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/trawl/pkg/client"
)

func TestNew(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-hunter2-hunter2"
	for _, tt := range []struct {
		base, key string
		want      string // in the error, "" for none
	}{
		{"http://127.0.0.1:8008", secret, ""},
		{"https://trawl.example.org/", secret, ""},
		{"HTTP://[::1]:8008", secret, ""},
		{"https://gateway.example.org/crawl/api/", secret, ""},
		{"", secret, "write it like http://127.0.0.1:8008"},
		{"127.0.0.1:8008", secret, `did you mean "http://127.0.0.1:8008"?`},
		{"localhost:8008", secret, `did you mean "http://localhost:8008"?`},
		{"trawl.example.org/api", secret, `did you mean "http://trawl.example.org/api"?`},
		{":8008", secret, "has no scheme"},
		{"ftp://site.test", secret, "http or https"},
		{"http://", secret, "has no host"},
		{"http://:8008", secret, "has no host"},
		{"http:///v1", secret, "has no host"},
		{"http://site.test/v1", secret, `leave /v1 out: "http://site.test"`},
		{"http://site.test/v1/", secret, `leave /v1 out: "http://site.test"`},
		{"http://site.test/api/v1/jobs", secret, `leave /v1 out: "http://site.test/api"`},
		{"http://site.test/v1x", secret, ""},
		{"http://site.test:port", secret, "is no URL"},
		{"http://site.test/\x7f", secret, "is no URL"},
		{"http://site.test/?", secret, "query or a fragment"},
		{"http://site.test/?a=b", secret, "query or a fragment"},
		{"http://site.test/#a", secret, "query or a fragment"},
		{"http://me:" + secret + "@site.test", secret, "user name or password"},
		{"http://me:" + secret + "@site.test:port", secret, "user name or password"},
		{"me:" + secret + "@site.test", secret, "user name or password"},
		{"http://site.test", "", "API key is empty"},
		{"http://site.test", secret + "\n", "position 24 that is not visible ASCII"},
		{"http://site.test", "Bearer " + secret, "position 7"},
		{"http://site.test", secret + "é", "not visible ASCII"},
		{secret, "http://site.test", "swapped"},
		{"", "", "API key is empty"}, // as well as the address
		{"", "", "address of the service is empty"},
	} {
		c, err := client.New(tt.base, tt.key)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%q: %v", tt.base, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%q, %q: %v, want %s", tt.base, tt.key, err, tt.want)
		}
		if err != nil && (strings.Contains(err.Error(), secret) || c != nil) {
			t.Errorf("%q, %q: %v, %v", tt.base, tt.key, c, err)
		}
	}
}

// No way of printing a client shows its key.
func TestKeyIsNotPrinted(t *testing.T) {
	t.Parallel()
	c, err := client.New("http://127.0.0.1:8008/x/", testKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		for _, v := range []any{c, *c, []any{c}, struct{ C client.Client }{*c}} {
			if text := fmt.Sprintf(format, v); strings.Contains(text, testKey) ||
				strings.Contains(text, fmt.Sprintf("%x", testKey)) {
				t.Errorf("%s of a %T: %s", format, v, text)
			}
		}
	}
	if got := c.String(); got != "trawl client of http://127.0.0.1:8008/x" {
		t.Errorf("String: %q", got)
	}
}

// Each call asks what the contract says, with what every request carries.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want string
		ok   *answer
		make func(context.Context, *client.Client) error
	}{
		{"POST /v1/jobs", &answer{status: 202, media: jsonType, body: aJob}, calls[0].make},
		{"GET /v1/jobs/j1", ok(aJob), calls[1].make},
		{"POST /v1/jobs/j1/cancel", ok(aJob), calls[2].make},
		{"DELETE /v1/jobs/j1", &answer{status: 204}, calls[3].make},
		{"GET /v1/jobs", ok(noPages), calls[4].make},
		{"GET /v1/jobs/j1/records", ok(noPages), calls[5].make},
		{"GET /v1/jobs/j1/errors", ok(noPages), calls[7].make},
		{"GET /v1/jobs/j1/result?format=json", ok("{}"), calls[9].make},
		{"GET /v1/jobs/j1/result", ok("{}"), func(ctx context.Context, c *client.Client) error {
			_, err := c.Result(ctx, "j1", "")
			return err
		}},
		{"POST /v1/jobs/j1/pause", ok(aJob), func(ctx context.Context, c *client.Client) error {
			_, err := c.Pause(ctx, "j1")
			return err
		}},
		{"POST /v1/jobs/j1/resume", ok(aJob), func(ctx context.Context, c *client.Client) error {
			_, err := c.Resume(ctx, "j1")
			return err
		}},
		{"POST /v1/jobs/j1/retry-failed", ok(aJob), func(ctx context.Context, c *client.Client) error {
			_, err := c.RetryFailed(ctx, "j1", "")
			return err
		}},
		{"POST /v1/jobs/j1/retry-failed?cursor=a%2B%2F", ok(aJob), func(ctx context.Context, c *client.Client) error {
			_, err := c.RetryFailed(ctx, "j1", "a+/", client.IdempotencyKey("k"))
			return err
		}},
		{"GET /v1/jobs/a%2Fb%3F%20c", ok(aJob), func(ctx context.Context, c *client.Client) error {
			_, err := c.Job(ctx, "a/b? c")
			return err
		}},
		{"GET /v1/jobs/j1/records?cursor=a%2B%2F&limit=7", ok(noPages), func(ctx context.Context, c *client.Client) error {
			return drain(c.Records(ctx, "j1", client.From("a+/"), client.PageSize(7)))
		}},
		{"GET /v1/jobs/j1/errors?limit=-1", ok(noPages), func(ctx context.Context, c *client.Client) error {
			_, err := c.ErrorPage(ctx, "j1", "", -1) // the service says what is wrong with it
			return err
		}},
		{
			"GET /v1/jobs?created_after=2026-05-06T06%3A08%3A09.5Z&limit=3&state=running&tag=a+%26b", ok(noPages),
			func(ctx context.Context, c *client.Client) error {
				return drain(c.Jobs(ctx, client.JobsQuery{
					State: client.Running, Tag: "a &b", PageSize: 3,
					CreatedAfter: time.Date(2026, 5, 6, 7, 8, 9, 5e8, time.FixedZone("", 3600)),
				}))
			},
		},
	} {
		s, c := newService(t, tt.ok)
		if err := tt.make(t.Context(), c); err != nil {
			t.Errorf("%s: %v", tt.want, err)
			continue
		}
		r := s.got()[0]
		if got := r.method + " " + r.uri; got != tt.want {
			t.Errorf("asked %s, want %s", got, tt.want)
		}
		if got := r.header.Get("Authorization"); got != "Bearer "+testKey {
			t.Errorf("%s: Authorization %q", tt.want, got)
		}
		if got := r.header.Get("User-Agent"); !strings.HasPrefix(got, "trawl-client/") || len(got) < 15 {
			t.Errorf("%s: User-Agent %q", tt.want, got)
		}
		if got := r.header.Get("Content-Type"); (got == jsonType) != (r.body != "") {
			t.Errorf("%s: Content-Type %q", tt.want, got)
		}
	}
}

// A path in the address stays in front of every call.
func TestBehindAGateway(t *testing.T) {
	t.Parallel()
	for _, below := range []string{"/crawl/api", "/crawl/api/", "/a%2Fb"} {
		s := &service{answer: func(int, *http.Request) (*http.Response, error) { return ok(aJob).response() }}
		c, err := client.New(base+below, testKey, client.WithHTTPClient(&http.Client{Transport: s}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Job(t.Context(), "j1"); err != nil {
			t.Fatal(err)
		}
		if got, want := s.got()[0].uri, strings.TrimSuffix(below, "/")+"/v1/jobs/j1"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
	}
}

// What is no id is nobody's job, and never becomes another path.
func TestNoID(t *testing.T) {
	t.Parallel()
	s, c := newService(t, ok(aJob))
	for _, id := range []string{"", ".", ".."} {
		_, err := c.Job(t.Context(), id)
		if !isCode(err, client.CodeNotFound) {
			t.Errorf("job %q: %v", id, err)
		}
		if err := c.Delete(t.Context(), id); !isCode(err, client.CodeNotFound) {
			t.Errorf("delete %q: %v", id, err)
		}
		if err := drain(c.Records(t.Context(), id)); !isCode(err, client.CodeNotFound) {
			t.Errorf("records %q: %v", id, err)
		}
	}
	if n := len(s.got()); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// Redirects are not followed, not even to the same host: the key stays where it was sent.
func TestRedirect(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path]++
		http.Redirect(w, r, "/login", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(srv.Close)
	for name, options := range map[string][]client.Option{
		"its own":     nil,
		"a given one": {client.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})},
	} {
		c, err := client.New(srv.URL, testKey, options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdleConnections)
		for _, tt := range calls {
			err := tt.make(t.Context(), c)
			if err == nil || !strings.HasPrefix(err.Error(), tt.name) ||
				!strings.Contains(err.Error(), `"`+srv.URL+`/login"`) {
				t.Errorf("%s, %s%v", name, tt.name, err)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if asked["/login"] > 0 || asked["/v1/jobs/j1"] != 4 { // twice read, twice deleted
		t.Errorf("asked: %v", asked)
	}
}

// A given HTTP client is used as it is: its own rule for redirects holds, and it is not changed.
func TestGivenHTTPClient(t *testing.T) {
	t.Parallel()
	s := &service{answer: func(_ int, r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/elsewhere" {
			return ok(aJob).response()
		}
		return (&answer{status: 302, header: []string{"Location", "/elsewhere"}}).response()
	}}
	h := &http.Client{Transport: s, CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	c, err := client.New(base, testKey, client.WithHTTPClient(h))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Job(t.Context(), "j1"); err != nil {
		t.Error(err)
	}
	plain := &http.Client{Transport: s}
	if _, err := client.New(base, testKey, client.WithHTTPClient(plain)); err != nil || plain.CheckRedirect != nil {
		t.Errorf("the given client was changed (%v)", err)
	}
	if _, err := client.New(base, testKey, client.WithHTTPClient(nil)); err != nil {
		t.Error(err)
	}
}

// One client serves many at once.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		if id := strings.TrimPrefix(r.URL.Path, "/v1/jobs/"); !strings.Contains(id, "/") {
			fmt.Fprintf(w, `{"job_id":%q,"state":"completed"}`, id)
			return
		}
		fmt.Fprint(w, noPages)
	}))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, testKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			id := fmt.Sprint("j", i)
			for range 10 {
				if job, err := c.Wait(t.Context(), id); err != nil || job.ID != id {
					t.Errorf("%s: %v, %v", id, job, err)
				}
				if err := drain(c.Records(t.Context(), id, client.Follow())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
