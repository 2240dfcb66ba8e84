package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/client"
)

// streams are the calls that read NDJSON, as walks of the numbers of what they yield.
var streams = []struct {
	name   string
	number string // in JSON
	path   string
	walk   func(ctx context.Context, c *client.Client, after int64, yield func(int64) bool) error
}{
	{
		"export collection jobs: ", "n", "/v1/collections/jobs/export?",
		func(ctx context.Context, c *client.Client, after int64, yield func(int64) bool) error {
			for item, err := range c.StreamItems(ctx, "jobs", client.ItemsQuery{After: after}) {
				if err != nil || !yield(item.N) {
					return err
				}
			}
			return nil
		},
	},
	{
		"read result of job j1: ", "seq", "/v1/jobs/j1/result?",
		func(ctx context.Context, c *client.Client, after int64, yield func(int64) bool) error {
			for record, err := range c.StreamRecords(ctx, "j1", after) {
				if err != nil || !yield(record.Seq) {
					return err
				}
			}
			return nil
		},
	},
}

// lines are entries from one number to another.
func lines(member string, from, to int) string {
	var b strings.Builder
	for n := from; n <= to; n++ {
		fmt.Fprintf(&b, "{%q:%d,\"url\":\"https://site.test/%d\"}\n", member, n, n)
	}
	return b.String()
}

// A stream that breaks, wherever, is taken up behind what came: every entry comes once.
func TestStreamsResume(t *testing.T) {
	t.Parallel()
	const all = 12
	for name, tt := range map[string]struct {
		broken []string // what the first answers are, after the entries behind the last one
		want   string   // of the error
		from   int64
		status int
	}{
		"whole":            {nil, "", 0, 0},
		"from the middle":  {nil, "", 7, 0},
		"at a line":        {[]string{"3", "0", "5"}, "", 0, 0},
		"in a line":        {[]string{"3+", "1+", "0+", "2+"}, "", 2, 0},
		"ends in a line":   {[]string{"3|", "1|"}, "", 0, 0},
		"without progress": {[]string{"3", "0", "0", "0", "0"}, "cut after 0 bytes: unexpected EOF", 0, 0},
		"stalls":           {[]string{"3~", "0~", "2~"}, "", 0, 0},
		"always stalls":    {[]string{"3~", "0~", "0~", "0~", "0~"}, "nothing came for 1m0s", 0, 0},
		"refused":          {[]string{"3", "503", "503", "1"}, "", 0, 0},
		"gone":             {[]string{"3", "404"}, "not_found", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, of := range streams {
				synctest.Test(t, func(t *testing.T) {
					s, c := newServiceFunc(t, func(n int, r *http.Request) (*http.Response, error) {
						after, _ := strconv.Atoi(r.URL.Query().Get("after"))
						if n > len(tt.broken) {
							return text(200, ndjsonType, lines(of.number, after+1, all)).response()
						}
						return broken(r, tt.broken[n-1], of.number, after)
					}, client.WithRetries(3))
					var got []int64
					err := of.walk(t.Context(), c, tt.from, func(n int64) bool {
						got = append(got, n)
						return true
					})
					if tt.want == "" {
						want := []int64{}
						for n := tt.from + 1; n <= all; n++ {
							want = append(want, n)
						}
						if err != nil || !slices.Equal(got, want) {
							t.Errorf("%s%v, %v", of.name, got, err)
						}
					} else if err == nil || !strings.Contains(err.Error(), tt.want) || len(got) != 3 ||
						!strings.HasPrefix(err.Error(), of.name) || strings.Count(err.Error(), of.name) != 1 {
						t.Errorf("%s%v, %v, want %s", of.name, got, err, tt.want)
					} else {
						presentable(t, err)
					}
					if uri := s.got()[0].uri; !strings.HasPrefix(uri, of.path) || !strings.Contains(uri, "format=ndjson") {
						t.Errorf("asked %s", uri)
					}
				})
			}
		})
	}
}

// broken is an answer that how describes: a status, or a number of entries and then a cut, one
// in a line (+), an end in a line (|), or silence (~).
func broken(r *http.Request, how, number string, after int) (*http.Response, error) {
	if status, err := strconv.Atoi(how); err == nil && status >= 400 {
		return refusal(status, map[int]client.Code{404: client.CodeNotFound, 503: client.CodeUnavailable}[status]).response()
	}
	n, err := strconv.Atoi(strings.TrimRight(how, "+|~"))
	if err != nil {
		return nil, err
	}
	part := lines(number, after+1, after+n)
	if strings.ContainsAny(how, "+|") {
		part += fmt.Sprintf("{%q:%d}", number, after+n+1) // which only lacks the end of its line
	}
	switch {
	case strings.HasSuffix(how, "|"):
		return text(200, ndjsonType, part).response()
	case strings.HasSuffix(how, "~"):
		closed := 0
		resp, err := text(200, ndjsonType, part).response()
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(part), &stalling{r.Context(), 0, &closed}), io.NopCloser(nil)}
		return resp, err
	default:
		return text(200, ndjsonType, part).cutBy(io.ErrUnexpectedEOF).response()
	}
}

// What is no stream of entries ends it, with the number of what came before.
func TestStreamsOfNonsense(t *testing.T) {
	t.Parallel()
	const endless = "[" // a line that begins so has no end
	for _, of := range streams {
		one := lines(of.number, 1, 2)
		for body, want := range map[string]string{
			one + "<html>\x1b[2J\n":      `a line is no entry: `,
			one + "[1]\n":                "a line is no entry: ",
			one + one:                    "1 comes behind",
			one + "{}\n":                 "0 comes behind",
			one + lines(of.number, 2, 2): "2 comes behind",
			one + "\n" + endless:         "a line has more than 128 MiB",
		} {
			if testing.Short() && strings.HasSuffix(body, endless) {
				continue // it reads 128 MiB
			}
			s, c := newServiceFunc(t, func(int, *http.Request) (*http.Response, error) {
				resp, err := text(200, ndjsonType, body).response()
				if strings.HasSuffix(body, endless) {
					resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), forever{}))
				}
				return resp, err
			})
			n := 0
			err := of.walk(t.Context(), c, 0, func(int64) bool { n++; return true })
			if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), of.name) {
				t.Errorf("%s%v, want %s", of.name, err, want)
				continue
			}
			presentable(t, err)
			if n != 2 || len(s.got()) != 1 {
				t.Errorf("%s: %d entries in %d requests", want, n, len(s.got()))
			}
		}
	}
}

// Who has enough ends the request, and is asked nothing more. Who takes long is waited for.
func TestStreamIsLeft(t *testing.T) {
	t.Parallel()
	for _, of := range streams {
		synctest.Test(t, func(t *testing.T) {
			closed := 0
			var asked context.Context
			_, c := newServiceFunc(t, func(_ int, r *http.Request) (*http.Response, error) {
				asked = r.Context()
				resp, err := text(200, ndjsonType, "").response()
				resp.Body = struct {
					io.Reader
					io.Closer
				}{strings.NewReader(lines(of.number, 1, 9)), &stalling{nil, 0, &closed}}
				return resp, err
			})
			n := 0
			err := of.walk(t.Context(), c, 0, func(int64) bool {
				<-time.After(time.Hour) // of the bubble
				n++
				return n < 3
			})
			if err != nil || n != 3 || closed != 1 || asked.Err() == nil {
				t.Errorf("%s%v after %d; closed %d times, %v", of.name, err, n, closed, asked.Err())
			}
			ctx, cancel := context.WithCancel(t.Context())
			err = of.walk(ctx, c, 0, func(int64) bool { cancel(); return true })
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s%v", of.name, err)
			}
		})
	}
}

// As many entries as there may be are read in the memory of a few.
func TestStreamsAreFlat(t *testing.T) { //nolint:paralleltest // it looks at the heap of the process
	if testing.Short() {
		t.Skip("reads 100 MB")
	}
	const entries, cut, most = 200_000, 70_000, 24 << 20
	fill := strings.Repeat("x", 150)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", ndjsonType)
		after, _ := strconv.Atoi(r.URL.Query().Get("after"))
		number := map[bool]string{true: "seq", false: "n"}[strings.Contains(r.URL.Path, "/jobs/j1")]
		out := bufio.NewWriter(w)
		for n := after + 1; n <= entries; n++ {
			fmt.Fprintf(out, `{%q:%d,"url":"https://site.test/%d","fields":{"title":"a title","text":"%s"}}`+"\n", number, n, n, fill)
			if n-after == cut { // the connection breaks, now and then
				_ = out.Flush()
				panic(http.ErrAbortHandler)
			}
		}
		_ = out.Flush()
	}))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, testKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, of := range streams {
		begin, n, high := heap(), int64(0), uint64(0)
		err := of.walk(t.Context(), c, 0, func(number int64) bool {
			if n++; number != n {
				t.Fatalf("entry %d comes as number %d", number, n)
			}
			if n%25_000 == 0 {
				high = max(high, heap())
			}
			return true
		})
		if err != nil || n != entries {
			t.Errorf("%s%d entries, %v", of.name, n, err)
		}
		if high > begin+most {
			t.Errorf("%s%d MiB on the heap, %d before", of.name, high>>20, begin>>20)
		}
	}
}
