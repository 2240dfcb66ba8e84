package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/client"
)

// pages answers the pages of a list by their cursors; the first has none.
type pages map[string][]string

// serve gives the n-th answer of a cursor, and the last one from then on.
func (p pages) serve(t testing.TB) (*service, *client.Client) {
	t.Helper()
	asked := map[string]int{}
	return newServiceFunc(t, func(_ int, r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/j1") {
			return ok(aJob).response()
		}
		cursor := r.URL.Query().Get("cursor")
		all := p[cursor]
		if len(all) == 0 {
			return refusal(400, client.CodeMalformed).response()
		}
		asked[cursor]++
		return ok(all[min(asked[cursor], len(all))-1]).response()
	})
}

// seqs is a page of records.
func seqs(next string, more bool, numbers ...int) string {
	items := make([]string, len(numbers))
	for i, n := range numbers {
		items[i] = fmt.Sprintf(`{"seq":%d,"url":"u%d"}`, n, n)
	}
	if next = fmt.Sprintf("%q", next); next == `""` {
		next = "null"
	}
	return fmt.Sprintf(`{"items":[%s],"next_cursor":%s,"has_more":%v}`, strings.Join(items, ","), next, more)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		pages    pages
		options  []client.ReadOption
		want     []int64
		requests int
	}{
		{"none", pages{"": {seqs("", false)}}, nil, nil, 1},
		{"an ended job", pages{"": {seqs("a", true, 1, 2)}, "a": {seqs("", false, 3)}}, nil, []int64{1, 2, 3}, 2},
		{"a running job", pages{"": {seqs("a", true, 1)}, "a": {seqs("b", false, 2)}}, nil, []int64{1, 2}, 2},
		{"an empty page between", pages{"": {seqs("a", true)}, "a": {seqs("", false, 1)}}, nil, []int64{1}, 2},
		{"from a cursor", pages{"b": {seqs("", false, 7)}}, []client.ReadOption{client.From("b")}, []int64{7}, 1},
		{
			"followed",
			pages{
				"":  {seqs("a", true, 1)},
				"a": {seqs("a", false), seqs("a", false), seqs("b", false, 2, 3)},
				"b": {seqs("b", false), seqs("c", true, 4)},
				"c": {seqs("", false, 5)},
			},
			[]client.ReadOption{client.Follow()},
			[]int64{1, 2, 3, 4, 5},
			7,
		},
		{"followed to an empty end", pages{"": {seqs("", false)}}, []client.ReadOption{client.Follow()}, nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, c := tt.pages.serve(t)
				records := c.Records(t.Context(), "j1", tt.options...)
				for round := range 2 { // the second begins anew
					var got []int64
					for r, err := range records {
						if err != nil {
							t.Fatal(err)
						}
						if got = append(got, r.Seq); string(r.Raw) != fmt.Sprintf(`{"seq":%d,"url":"u%d"}`, r.Seq, r.Seq) {
							t.Errorf("raw %s", r.Raw)
						}
					}
					if !slices.Equal(got, tt.want) {
						t.Errorf("round %d: %v, want %v", round, got, tt.want)
					}
					if n := len(s.got()); round == 0 && n != tt.requests {
						t.Errorf("%d requests, want %d", n, tt.requests)
					}
				}
			})
		})
	}
}

// While nothing comes, what follows asks less and less often; what came makes it quick again.
func TestFollowPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := pages{
			"":  {seqs("0", false)},
			"0": append(slices.Repeat([]string{seqs("0", false)}, 12), seqs("1", false, 1)),
			"1": {seqs("1", false), seqs("", false)},
		}.serve(t)
		if err := drain(c.Records(t.Context(), "j1", client.Follow())); err != nil {
			t.Fatal(err)
		}
		all := slices.DeleteFunc(gaps(s), func(d time.Duration) bool { return d == 0 }) // before looks at the job
		if all[0] > 130*time.Millisecond || all[11] < 1500*time.Millisecond || all[11] > 2500*time.Millisecond {
			t.Errorf("pauses %v", all)
		}
		if last := all[13]; last > 130*time.Millisecond {
			t.Errorf("a pause of %v after something came", last)
		}
	})
}

func TestJobs(t *testing.T) {
	t.Parallel()
	s, c := newService(t,
		ok(`{"items":[],"next_cursor":"a","has_more":true}`),
		ok(`{"items":[{"job_id":"j1","new":1},{"job_id":"j2"}],"next_cursor":"b","has_more":true}`),
		ok(`{"items":[],"next_cursor":"c","has_more":true}`),
		ok(`{"items":[{"job_id":"j3","state":"running"}],"next_cursor":null,"has_more":false}`),
	)
	var got []string
	for job, err := range c.Jobs(t.Context(), client.JobsQuery{State: client.Running}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, job.ID)
	}
	if !slices.Equal(got, []string{"j1", "j2", "j3"}) || len(s.got()) != 4 {
		t.Errorf("%v in %d requests", got, len(s.got()))
	}
	for i, want := range []string{"", "cursor=a&", "cursor=b&", "cursor=c&"} {
		if uri := s.got()[i].uri; uri != "/v1/jobs?"+want+"state=running" {
			t.Errorf("asked %s", uri)
		}
	}
}

// An error is yielded once, with nothing else, and is the last; a walk that is broken off
// asks for nothing more.
func TestWalkEnds(t *testing.T) {
	t.Parallel()
	s, c := pages{"": {seqs("a", true, 1, 2)}}.serve(t)
	var got []string
	for r, err := range c.Records(t.Context(), "j1") {
		got = append(got, fmt.Sprint(r.Seq, isCode(err, client.CodeMalformed)))
	}
	if want := []string{"1 false", "2 false", "0 true"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	before := len(s.got())
	for range c.Records(t.Context(), "j1", client.Follow()) {
		break
	}
	if n := len(s.got()) - before; n != 1 {
		t.Errorf("%d requests for a loop that stopped at once", n)
	}

	// A context that ends in the loop ends it before the next entry.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, c = pages{"": {seqs("", false, 1, 2, 3)}}.serve(t)
	got = nil
	for r, err := range c.Records(ctx, "j1") {
		got = append(got, fmt.Sprint(r.Seq, errors.Is(err, context.Canceled)))
		cancel()
	}
	if want := []string{"1 false", "0 true"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// No service, however broken, is walked without end or without a break.
func TestEndlessWalks(t *testing.T) {
	t.Parallel()
	const circle, order = "points at a page that it gave before", "comes behind record"
	follow := []client.ReadOption{client.Follow()}
	for name, tt := range map[string]struct {
		pages   pages
		options []client.ReadOption
		says    string
		within  time.Duration
	}{
		"the same page":            {pages{"": {seqs("a", true, 1)}, "a": {seqs("a", true)}}, nil, circle, 0},
		"a circle":                 {pages{"": {seqs("a", true)}, "a": {seqs("b", true)}, "b": {seqs("a", true)}}, nil, circle, time.Second},
		"a circle while it runs":   {pages{"": {seqs("a", false)}, "a": {seqs("b", false)}, "b": {seqs("a", false)}}, follow, circle, 3 * time.Second},
		"the same record":          {pages{"": {seqs("a", true, 1)}, "a": {seqs("b", true, 1)}}, nil, order, 0},
		"an earlier record":        {pages{"": {seqs("a", true, 3, 2)}}, nil, order, 0},
		"a record without number":  {pages{"": {seqs("", false, 0)}}, nil, order, 0},
		"entries, and no way on":   {pages{"a": {seqs("a", false, 1)}}, append(follow, client.From("a")), circle, 0},
		"entries again, and no on": {pages{"": {seqs("a", false, 1)}, "a": {seqs("a", false, 2)}}, follow, circle, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, c := tt.pages.serve(t)
				begin := time.Now()
				err := drain(c.Records(t.Context(), "j1", tt.options...))
				if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "report this") ||
					!strings.HasPrefix(err.Error(), "read records of job j1: ") || time.Since(begin) > tt.within {
					t.Errorf("%v after %v", err, time.Since(begin))
				}
			})
		})
	}
}

// Cursors that are met again are found in circles of any length, behind a way of any length.
func TestLongCircles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for way := range 20 {
			for circle := 1; circle < 20; circle++ {
				s, c := newServiceFunc(t, func(n int, _ *http.Request) (*http.Response, error) {
					if n > way {
						n = way + (n-way)%circle
					}
					return ok(fmt.Sprintf(`{"items":[{"url":"u"}],"next_cursor":"c%d","has_more":true}`, n)).response()
				})
				err := drain(c.Errors(t.Context(), "j1"))
				if err == nil || !strings.Contains(err.Error(), "gave before") || len(s.got()) > 3*(way+circle)+1 {
					t.Fatalf("%v after %d requests for a circle of %d behind %d", err, len(s.got()), circle, way)
				}
			}
		}
	})
}

// Pages that are empty though there is more are asked for with breaks, but for the first.
func TestEmptyPagesArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := newServiceFunc(t, func(n int, _ *http.Request) (*http.Response, error) {
			if n > 100 {
				return ok(noPages).response()
			}
			return ok(seqs(fmt.Sprint("c", n), true)).response()
		})
		if err := drain(c.Jobs(t.Context(), client.JobsQuery{})); err != nil {
			t.Fatal(err)
		}
		all := gaps(s)
		if all[0] != 0 {
			t.Errorf("a break of %v after the first", all[0])
		}
		for i, gap := range all[1:] {
			if gap < 80*time.Millisecond || gap > 120*time.Millisecond {
				t.Errorf("break %d is %v", i+2, gap)
			}
		}
	})
}

// A list that goes on after its job has ended is given up; one whose end only comes late is not.
func TestFollowAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		last  int // the page that ends the list, 0 for none
		job   []*answer
		says  string // of the error
		looks int    // at the job
	}{
		"no end":                {0, []*answer{ok(anEnd)}, "never says that the list has", 2},
		"no end, ended later":   {0, []*answer{ok(aJob), ok(aJob), ok(anEnd)}, "never says that the list has", 4},
		"no end, and an outage": {0, []*answer{text(502, "text/html", "").with("Retry-After", "61"), ok(anEnd)}, "never says that the list has", 3},
		"no end, and no job":    {0, []*answer{refusal(404, client.CodeNotFound)}, "not_found", 1},
		"a late end":            {15, []*answer{ok(anEnd)}, "", 1},
		"a late end of a run":   {45, []*answer{ok(aJob)}, "", 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pages, looks := 0, 0
				_, c := newServiceFunc(t, func(_ int, r *http.Request) (*http.Response, error) {
					if !strings.HasSuffix(r.URL.Path, "/errors") {
						looks++
						return tt.job[min(looks, len(tt.job))-1].response()
					}
					if pages++; pages == tt.last {
						return ok(noPages).response()
					}
					return ok(seqs("a", false)).response()
				})
				err := drain(c.Errors(t.Context(), "j1", client.Follow()))
				if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) || looks != tt.looks {
					t.Errorf("%v after %d pages and %d looks at the job, want %d", err, pages, looks, tt.looks)
				}
			})
		})
	}
}

// A pause of what follows ends with its context.
func TestFollowIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, c := pages{"": {seqs("a", false)}, "a": {seqs("a", false)}}.serve(t)
		time.AfterFunc(time.Minute, cancel)
		begin := time.Now()
		err := drain(c.Records(ctx, "j1", client.Follow()))
		if !errors.Is(err, context.Canceled) || time.Since(begin) != time.Minute ||
			err.Error() != "read records of job j1: context canceled" {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// A download that was cut never looks whole, in whatever way it was framed and cut.
func TestResult(t *testing.T) {
	t.Parallel()
	const line = `{"seq":1}` + "\n"
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	for _, tt := range []struct {
		name   string
		format client.Format
		serve  func(w http.ResponseWriter)
		want   string // what is read; "" for a refusal of the whole
		is     error
		says   string
	}{
		{"whole", client.NDJSON, func(w http.ResponseWriter) {
			for range 3 {
				fmt.Fprint(w, line)
				flush(w)
			}
		}, line + line + line, nil, ""},
		{"empty", client.NDJSON, func(http.ResponseWriter) {}, "", nil, ""},
		{"a whole document", client.JSON, func(w http.ResponseWriter) { fmt.Fprint(w, "{}") }, "{}", nil, ""},
		{"cut between lines", client.NDJSON, func(w http.ResponseWriter) {
			fmt.Fprint(w, line)
			flush(w)
			panic(http.ErrAbortHandler)
		}, line, io.ErrUnexpectedEOF, "read result of job j1: cut after 10 bytes"},
		{"cut before its length", client.JSON, func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, line)
			flush(w)
			panic(http.ErrAbortHandler)
		}, line, io.ErrUnexpectedEOF, "cut after 10 bytes"},
		{"without a length", client.NDJSON, func(w http.ResponseWriter) {
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			fmt.Fprint(buf, "HTTP/1.0 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"+line)
			buf.Flush()
			conn.Close()
		}, "", nil, "does not say where it ends"},
		{"a page of a proxy", client.NDJSON, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>")
		}, "", nil, `it should be application/x-ndjson; the answer is 200 OK, text/html and begins with "<html>"`},
		{"another format", client.JSON, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-ndjson")
		}, "", nil, "it should be application/json"},
		{"a table", client.CSV, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
			fmt.Fprint(w, "a,b\r\n")
		}, "a,b\r\n", nil, ""},
		{"a page of a proxy for a table", client.CSV, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/html")
		}, "", nil, "it should be text/csv"},
		{"a format to come", "parquet", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/vnd.apache.parquet")
			fmt.Fprint(w, "PAR1")
		}, "PAR1", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", map[string]string{
					"json": jsonType, "ndjson": "application/x-ndjson",
				}[r.URL.Query().Get("format")])
				tt.serve(w)
			}))
			t.Cleanup(srv.Close)
			c, err := client.New(srv.URL, testKey)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.CloseIdleConnections)
			got := ""
			r, err := c.Result(t.Context(), "j1", tt.format)
			if err == nil {
				var b []byte
				b, err = io.ReadAll(r)
				got = string(b)
				_, again := r.Read(make([]byte, 1))
				if err != nil && !errors.Is(again, err) || err == nil && again != io.EOF {
					t.Errorf("after %v came %v", err, again)
				}
				r.Close()
			}
			if (err == nil) != (tt.says == "") || got != tt.want || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%q, %v; want %q, %v", got, err, tt.want, tt.is)
			}
			if err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %s", err, tt.says)
			}
		})
	}
}

// A download that breaks in any other way is cut as well, but for the caller's own end of it.
func TestResultBreaks(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset by peer")
	for _, tt := range []struct {
		err error
		cut bool
	}{{broken, true}, {io.ErrUnexpectedEOF, true}, {context.Canceled, false}, {context.DeadlineExceeded, false}} {
		s, c := newService(t, &answer{status: 200, media: jsonType, body: "{", cut: tt.err})
		r, err := c.Result(t.Context(), "j1", client.JSON)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, r)
		if !errors.Is(err, tt.err) || errors.Is(err, io.ErrUnexpectedEOF) != tt.cut || len(s.got()) != 1 {
			t.Errorf("%v for %v, %d requests", err, tt.err, len(s.got()))
		}
	}
	_, c := newService(t, refusal(409, client.CodeJobNotTerminal))
	if _, err := c.Result(t.Context(), "j1", client.JSON); !isCode(err, client.CodeJobNotTerminal) {
		t.Error(err)
	}
}

// Closing a download before its end waits for nothing.
func TestResultIsLeft(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		fmt.Fprint(w, "{")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, testKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	r, err := c.Result(t.Context(), "j1", client.JSON)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	<-gone
}
