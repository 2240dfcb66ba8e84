package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// streamed is one event as its reader has it; comments have a name of their own.
type streamed struct{ id, name, data string }

// parseEvents reads a stream by the rules of the HTML standard, as far as they are used here.
func parseEvents(t *testing.T, body string) []streamed {
	t.Helper()
	rest, ok := strings.CutPrefix(body, "retry: 2000\n\n")
	if !ok {
		t.Fatalf("the stream begins with %q", body[:min(len(body), 50)])
	}
	var all []streamed
	for block := range strings.SplitSeq(strings.TrimSuffix(rest, "\n\n"), "\n\n") {
		var e streamed
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch name {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.data = value
			case "":
				e.name = "comment"
			default:
				t.Errorf("line %q", line)
			}
		}
		all = append(all, e)
	}
	return all
}

// told is what a stream says, without data.
func told(events []streamed) []string {
	var all []string
	for _, e := range events {
		all = append(all, strings.TrimSpace(e.name+" "+e.id))
	}
	return all
}

func eventJob(b *bench, state crawl.State, records, failures int) crawl.JobRef {
	ref := b.add("a", state)
	for i := range records {
		b.records[ref] = append(b.records[ref], crawl.Page{Seq: int64(i + 1), URL: fmt.Sprintf("https://a.test/%d<&>\n", i)})
	}
	for i := range failures {
		b.failures[ref] = append(b.failures[ref], crawl.Failure{URL: fmt.Sprintf("https://a.test/f%d", i), ErrorType: "http_500"})
	}
	return ref
}

// Wherever a client went away, it goes on there: nothing twice, nothing left out.
func TestEventsReplay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := eventJob(b, crawl.CompletedWithErrors, 2*exportPage+3, exportPage+1)
	target := "/v1/jobs/" + ref.ID + "/events"
	first := b.call("GET", target, "")
	if got := first.header.Get("Content-Type"); first.status != 200 || got != "text/event-stream" {
		t.Fatalf("%d %s %s", first.status, got, first.body)
	}
	all := parseEvents(t, first.body)
	if want := 2*exportPage + 3 + exportPage + 1 + 1; len(all) != want {
		t.Fatalf("%d events, want %d", len(all), want)
	}
	last := all[len(all)-1]
	if want := fmt.Sprintf("%d-%d-end", 2*exportPage+3, exportPage+1); last.name != "end" || last.id != want ||
		!strings.Contains(last.data, `"state":"completed_with_errors"`) {
		t.Errorf("the last is %+v, want end %s", last, want)
	}
	for _, i := range []int{0, 1, exportPage - 1, exportPage, 2*exportPage + 2, 2*exportPage + 3, len(all) - 2} {
		rest := parseEvents(t, b.call("GET", target, "", header("Last-Event-ID", all[i].id)).body)
		if d := cmp.Diff(all[i+1:], rest, cmp.AllowUnexported(streamed{})); d != "" {
			t.Errorf("behind %s: -want +got:\n%s", all[i].id, d[:min(len(d), 500)])
		}
	}
	if a := b.call("GET", target, "", header("Last-Event-ID", last.id)); a.status != 204 || a.body != "" {
		t.Errorf("behind the end: %d %q, want 204", a.status, a.body)
	}
	if a := b.call("HEAD", target, ""); a.status != 200 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
	if got := told(parseEvents(t, b.call("GET", target+"?only=status", "").body)); len(got) != 1 || got[0] != "end 0-0-end" {
		t.Errorf("only the status: %v", got)
	}
}

// A stream tells each change once, lives through a store that is away, and ends with its job.
func TestEventsFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ref := eventJob(b, crawl.Queued, 0, 0)
		begin := time.Now()
		b.read = func(ref crawl.JobRef, j *crawl.Job) {
			switch int(time.Since(begin).Seconds()) {
			case 2:
				j.State, j.Accepted = crawl.Running, 1
				b.records[ref] = []crawl.Page{{Seq: 1, URL: "https://a.test/"}}
			case 40:
				j.State, j.Failed = crawl.CompletedWithErrors, 1
				b.failures[ref] = []crawl.Failure{{URL: "https://a.test/x"}}
			}
		}
		away := func(err error) func() {
			return func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.err = err
			}
		}
		time.AfterFunc(5500*time.Millisecond, away(crawl.Faultf(crawl.CodeUnavailable, "away")))
		time.AfterFunc(8500*time.Millisecond, away(nil))
		got := told(parseEvents(t, b.call("GET", "/v1/jobs/"+ref.ID+"/events", "").body))
		want := []string{"status 0-0", "record 1-0", "status 1-0", "comment", "comment", "error 1-1", "end 1-1-end"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		if took := time.Since(begin); took != 40*time.Second {
			t.Errorf("it ended after %v, want 40s", took)
		}
	})
}

func TestEventsEnd(t *testing.T) {
	t.Parallel()
	t.Run("removed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			ref := eventJob(b, crawl.Running, 0, 0)
			time.AfterFunc(1500*time.Millisecond, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				delete(b.jobs, ref)
			})
			events := parseEvents(t, b.call("GET", "/v1/jobs/"+ref.ID+"/events", "").body)
			if got := told(events); len(got) != 2 || got[1] != "gone 0-0" || !strings.Contains(events[1].data, `"code":"not_found"`) {
				t.Errorf("%v", events)
			}
		})
	})
	t.Run("long", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			begin := time.Now()
			ref := eventJob(b, crawl.Running, 0, 0)
			b.call("GET", "/v1/jobs/"+ref.ID+"/events", "")
			if took := time.Since(begin); took != eventsMost {
				t.Errorf("a stream lasted %v, want %v", took, eventsMost)
			}
		})
	})
	t.Run("key revoked", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			tenants, begin := newFakeTenants(), time.Now()
			tenants.tenants["a"] = crawl.Tenant{Name: "a"}
			key := tenants.key("a", begin.Add(90*time.Second))
			b := newBenchWith(t, func(o *Options) { o.Tenants = tenants })
			ref := eventJob(b, crawl.Running, 0, 0)
			b.call("GET", "/v1/jobs/"+ref.ID+"/events", "", header("Authorization", "Bearer "+key))
			if took := time.Since(begin); took < 90*time.Second || took > 100*time.Second {
				t.Errorf("a stream whose key ended after 90 s lasted %v", took)
			}
		})
	})
	t.Run("quiet", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			ref := eventJob(b, crawl.Running, 3, 0)
			asked := 0
			b.page = func(int64) error { asked++; return nil }
			b.call("GET", "/v1/jobs/"+ref.ID+"/events", "")
			if asked != 1 {
				t.Errorf("records were asked for %d times in %v without a new one", asked, eventsMost)
			}
		})
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		ref := eventJob(b, crawl.Running, 0, 0)
		target := "/v1/jobs/" + ref.ID + "/events"
		for _, id := range []string{"x", "1", "1-", "-1-2", "1-2-3", "01-2", "1-2-end-end", "9999999999999999999-1", "1-2\x00"} {
			b.call("GET", target, "", header("Last-Event-ID", id)).wantProblem(t, 400, crawl.CodeMalformed)
		}
		b.call("GET", target+"?only=status,all", "").wantProblem(t, 422, crawl.CodeInvalid)
		b.call("GET", target+"?since=1", "").wantProblem(t, 422, crawl.CodeInvalid)
		b.call("GET", "/v1/jobs/"+crawl.NewJobID("a", "")+"/events", "").wantProblem(t, 404, crawl.CodeNotFound)
		b.call("GET", target, "", header("Authorization", "Bearer "+keyB)).wantProblem(t, 404, crawl.CodeNotFound)
	})
}

// Streams are bounded for each tenant, leave their place when their client does, and end with the
// server, which does not wait for them.
func TestEventStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := eventJob(b, crawl.Running, 0, 0)
	if err := b.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		return b.server.Stop(ctx)
	}
	t.Cleanup(func() { _ = stop() })
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	open := func(ctx context.Context) *http.Response {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.server.Addr()+"/v1/jobs/"+ref.ID+"/events", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+keyA)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	first := open(ctx)
	var streams []*http.Response
	for range tenantStreams - 1 {
		streams = append(streams, open(t.Context()))
	}
	if resp := open(t.Context()); resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one stream too many: %d", resp.StatusCode)
	}
	leave() // its place is another's
	_ = first.Body.Close()
	crawltest.Eventually(t, 10*time.Second, "another stream", func() bool {
		resp := open(t.Context())
		if resp.StatusCode == 200 {
			streams = append(streams, resp)
		}
		return resp.StatusCode == 200
	})
	if err := stop(); err != nil {
		t.Errorf("the server waited for its streams: %v", err)
	}
	for _, resp := range streams {
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() { // it ends
		}
		if err := lines.Err(); err != nil {
			t.Errorf("a stream broke as the server stopped: %v", err)
		}
	}
}
