package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawltest"
)

// oneJob is a server of one job, j1, that runs until it is cancelled, or that ended long ago.
// What is in hangs is never answered to its end.
type oneJob struct {
	mu    sync.Mutex
	state client.State
	hangs string // how the path ends
}

// ServeHTTP implements http.Handler.
func (j *oneJob) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	j.mu.Lock()
	if strings.HasSuffix(r.URL.Path, "/cancel") && !j.state.Terminal() {
		j.state = client.Cancelled
	}
	state := j.state
	j.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost && r.URL.Path == "/v1/jobs" {
		w.WriteHeader(http.StatusAccepted)
	}
	text := fmt.Sprintf(
		`{"job_id": "j1", "state": %q, "total": 2, "accepted": 1, "failed": 1, "processed": 2, "records": 1}`, state,
	)
	if strings.HasSuffix(r.URL.Path, "/records") {
		text = `{"items": [{"seq": 1, "url": "http://a.example/"}], "next_cursor": "", "has_more": false}`
	}
	if j.hangs != "" && strings.HasSuffix(r.URL.Path, j.hangs) {
		_, _ = io.WriteString(w, text[:10])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	_, _ = io.WriteString(w, text)
}

// stuck takes what is written until a record comes, and then nothing more until it is released.
type stuck struct {
	mu      sync.Mutex // held by the write that hangs
	text    bytes.Buffer
	begun   chan struct{}
	release chan struct{}
}

func newStuck(t *testing.T) *stuck {
	t.Helper()
	s := &stuck{begun: make(chan struct{}), release: make(chan struct{})}
	t.Cleanup(func() { close(s.release) })
	return s
}

// Write implements io.Writer.
func (s *stuck) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Contains(b, []byte(`"seq"`)) {
		close(s.begun)
		<-s.release
	}
	return s.text.Write(b)
}

// await fails the test when c is not closed in time.
func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Fatalf("no %s in time", what)
	}
}

// start runs p and returns a function that waits for its exit code.
func start(t *testing.T, p *program) (wait func() int) {
	t.Helper()
	over, code := make(chan struct{}), 0
	go func() {
		defer close(over)
		code = p.run(t.Context())
	}()
	return func() int {
		t.Helper()
		await(t, over, "end of the program")
		return code
	}
}

// One Ctrl-C ends a crawl whose pages nobody reads, and says what became of the job.
func TestCtrlCUnread(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		onOne bool // whether standard output and standard error are the same pipe
	}{{"apart", false}, {"on one pipe", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := crawltest.NewHandlerSite(t, &oneJob{state: client.Running})
			out, signals := newStuck(t), make(chan os.Signal, 1)
			var said strings.Builder
			p := program{
				args: []string{"crawl", "http://a.example/"}, environ: []string{"TRAWL_URL=" + server.URL, "TRAWL_KEY=" + testKey},
				stdout: out, stderr: &said, signals: signals, drain: 10 * time.Millisecond,
			}
			if tt.onOne {
				p.stderr, p.tidy = out, 10*time.Millisecond
			}
			wait := start(t, &p)
			await(t, out.begun, "record")
			signals <- os.Interrupt
			if code := wait(); code != exitInterrupted {
				t.Errorf("exit code %d, want 130", code)
			}
			if server.Hits("/v1/jobs/j1/cancel") == 0 {
				t.Error("the job was not cancelled")
			}
			want := "trawl: The output cannot be written to standard output: nobody reads it\n" +
				"The job j1 was cancelled after 1 record; `trawl results j1` has them.\n"
			if !tt.onOne && !strings.HasSuffix(said.String(), want) {
				t.Errorf("it says %q, want %q", said.String(), want)
			}
		})
	}
}

// What is still read of a job that has ended, an interrupt ends.
func TestCtrlCAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, hangs, format, want string }{
		{
			"document", "/result", "json",
			"trawl: Left before the document was whole: `trawl results --format json j1` reads it again.\n$",
		},
		{"summary", "/errors", "ndjson", `(?m)^completed with errors.*\n(.*\n)*1 record written`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := crawltest.NewHandlerSite(t, &oneJob{state: client.CompletedWithErrors, hangs: tt.hangs})
			signals := make(chan os.Signal, 1)
			var said strings.Builder
			p := program{
				args:    []string{"crawl", "http://a.example/", "--format", tt.format},
				environ: []string{"TRAWL_URL=" + server.URL, "TRAWL_KEY=" + testKey},
				stdout:  io.Discard, stderr: &said, signals: signals,
			}
			wait := start(t, &p)
			crawltest.Eventually(t, within, "the call that hangs", func() bool {
				for _, r := range server.Requests() {
					if strings.Contains(r.URI, tt.hangs) {
						return true
					}
				}
				return false
			})
			begin := time.Now()
			signals <- os.Interrupt
			if code := wait(); code != exitInterrupted {
				t.Errorf("exit code %d, want 130", code)
			}
			if took := time.Since(begin); took > drainWithin-5*time.Second {
				t.Errorf("it left after %v", took)
			}
			if !regexp.MustCompile(tt.want).MatchString(said.String()) {
				t.Errorf("it says %q, not %s", said.String(), tt.want)
			}
		})
	}
}

// Who leaves at once hears what is known of the job, and no more.
func TestLeave(t *testing.T) {
	t.Parallel()
	running := &client.Job{State: client.Running}
	ended := &client.Job{State: client.Completed, Records: 3}
	for _, tt := range []struct {
		name         string
		url          string
		seen, answer *client.Job
		want         string
	}{
		{"unanswered", "http://s", running, nil, "Left. The job may go on: `trawl cancel j1`.\n"},
		{"nothing known", "http://s", nil, nil, "Left. The job may go on: `trawl cancel j1`.\n"},
		{
			"answered", "http://s", running, &client.Job{State: client.Cancelling},
			"Left. The job goes on being cancelled on the server: `trawl status j1`.\n",
		},
		{"ended", "http://s", ended, running, "Left. The job had ended, completed with 3 records: `trawl results j1`.\n"},
		{
			"cancelled", "http://s", running, &client.Job{State: client.Cancelled, Records: 1},
			"Left. The job had ended, cancelled with 1 record: `trawl results j1`.\n",
		},
		{"here", "", running, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var said strings.Builder
			r := run{s: &session{self: "trawl", stderr: &said}, srv: &server{url: tt.url}, at: call{job: "j1"}}
			r.seen.Store(tt.seen)
			r.cancelled.Store(tt.answer)
			if r.leave(); said.String() != tt.want {
				t.Errorf("%q, want %q", said.String(), tt.want)
			}
		})
	}
}

// A submission whose answer is lost may have made a job: whoever made it hears how to find it.
func TestLostSubmission(t *testing.T) {
	t.Parallel()
	keys := make(chan string, 16)
	server := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key")
		panic(http.ErrAbortHandler)
	}))
	env := []string{"TRAWL_URL=" + server.URL, "TRAWL_KEY=" + testKey}
	code, _, stderr := runHere(t, env, "crawl", "http://a.example/")
	want := "       The job may be there: `trawl list`, or submit again with --idempotency-key " + <-keys + ".\n"
	if code != exitFailed || !strings.HasSuffix(stderr, want) {
		t.Errorf("exit code %d, it says %q, want %q", code, stderr, want)
	}
}
