package client_test

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/client"
)

// All calls, against the whole service: what the fakes of the other tests stand for.
func TestService(t *testing.T) {
	t.Parallel()
	c, site, stop := start()
	t.Cleanup(stop)
	ctx := t.Context()
	want := client.Spec{
		SeedURL: site + "/", MaxPages: 10, MaxDepth: new(3), TimeLimit: time.Minute, Scope: client.ScopePrefix,
		Include: []string{"/**"}, Exclude: []string{"/never"}, Concurrency: 2, Delay: time.Millisecond,
		Tags: []string{"a b"}, Retention: time.Hour,
	}
	begin := time.Now().Add(-time.Hour)
	job, err := c.Submit(ctx, want)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&want, job.Spec); d != "" {
		t.Errorf("-submitted +shown:\n%s", d)
	}
	failed := 0
	for e, err := range c.Errors(ctx, job.ID, client.Follow(), client.PageSize(1)) {
		if failed++; err != nil || e.Status != 404 || e.URL != site+"/lost" || e.Depth != 2 || e.At.Before(begin) {
			t.Errorf("%+v, %v", e, err)
		}
	}
	if failed != 1 {
		t.Errorf("%d errors", failed)
	}
	ended, err := c.Wait(ctx, job.ID)
	if err != nil || ended.State != client.CompletedWithErrors || ended.Accepted != 3 ||
		ended.EndedAt.Before(ended.StartedAt) {
		t.Fatalf("%+v, %v", ended, err)
	}
	first, err := c.RecordPage(ctx, job.ID, "", 2)
	if err != nil || len(first.Items) != 2 || !first.HasMore {
		t.Fatalf("%+v, %v", first, err)
	}
	rest := 0
	for r, err := range c.Records(ctx, job.ID, client.From(first.NextCursor)) {
		if rest++; err != nil || r.Seq != 3 || r.Title != "Terms" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if rest != 1 {
		t.Errorf("%d records behind two", rest)
	}
	checkResults(t, c, job.ID)

	listed := 0
	for j, err := range c.Jobs(ctx, client.JobsQuery{State: ended.State, Tag: "a b", CreatedAfter: begin, PageSize: 1}) {
		if listed++; err != nil || j.ID != job.ID || j.Spec != nil {
			t.Errorf("%+v, %v", j, err)
		}
	}
	if listed != 1 {
		t.Errorf("%d jobs", listed)
	}
	for range c.Jobs(ctx, client.JobsQuery{CreatedAfter: time.Now().Add(time.Hour)}) {
		t.Error("a job of the future")
	}
	if got, err := c.Cancel(ctx, job.ID); err != nil || got.State != ended.State {
		t.Errorf("cancelled after its end: %+v, %v", got, err)
	}
	if err := c.Delete(ctx, job.ID); err != nil {
		t.Error(err)
	}
	if _, err := c.Job(ctx, job.ID); !isCode(err, client.CodeNotFound) && !isCode(err, client.CodeExpired) {
		t.Errorf("deleted: %v", err)
	}
}

// checkResults downloads a result of three records and one error in each format.
func checkResults(t *testing.T, c *client.Client, id string) {
	t.Helper()
	for _, format := range []client.Format{client.JSON, client.NDJSON, client.CSV} {
		r, err := c.Result(t.Context(), id, format)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			t.Errorf("%s: %v", format, err)
		}
		if format == client.JSON {
			var whole struct {
				State   client.State
				Records []client.Record
				Errors  []client.PageError
			}
			if err := json.Unmarshal(data, &whole); err != nil || len(whole.Records) != 3 || len(whole.Errors) != 1 {
				t.Errorf("%v: %s", err, data)
			}
			continue
		}
		if format == client.CSV {
			rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
			if err != nil || len(rows) != 4 || rows[0][0] != "seq" || rows[3][0] != "3" {
				t.Errorf("%v: %s", err, data)
			}
			continue
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		n := 0
		for lines.Scan() {
			var r client.Record
			if n++; json.Unmarshal(lines.Bytes(), &r) != nil || r.Seq != int64(n) {
				t.Errorf("line %d: %s", n, lines.Text())
			}
		}
		if n != 3 {
			t.Errorf("%d lines", n)
		}
	}
}

// Through a proxy that drops every first answer, after the service has given it, all is
// as without: one job, cancelled once, deleted once.
func TestLostAnswersOfTheService(t *testing.T) {
	t.Parallel()
	direct, address, site, stop := startService()
	t.Cleanup(stop)
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport,
		ModifyResponse: func(r *http.Response) error {
			if n.Add(1)%2 == 1 {
				_, _ = io.Copy(io.Discard, r.Body)
				panic(http.ErrAbortHandler)
			}
			return nil
		},
	})
	t.Cleanup(proxy.Close)
	c, err := client.New(proxy.URL, exampleKey, client.WithHTTPClient(&http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, // or net/http repeats some of it by itself
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	job, err := c.Submit(ctx, client.Spec{URLs: []string{site + "/slow"}})
	if err != nil || !job.Replayed {
		t.Fatalf("%+v, %v", job, err)
	}
	if ended, err := c.Cancel(ctx, job.ID); err != nil || ended.State != client.Cancelled {
		t.Errorf("%+v, %v", ended, err)
	}
	jobs := 0
	for _, err := range direct.Jobs(ctx, client.JobsQuery{}) {
		if jobs++; err != nil {
			t.Error(err)
		}
	}
	if jobs != 1 {
		t.Errorf("%d jobs", jobs)
	}
	if err := c.Delete(ctx, job.ID); err != nil {
		t.Error(err)
	}
}
