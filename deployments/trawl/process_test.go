//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
)

// What `trawl up` prints is what a person does next: it works as printed, with no network.
func TestUpAsPrinted(t *testing.T) {
	t.Parallel()
	p := crawltest.Run(t, command, nil, "up", "--listen", "127.0.0.1:0", "--host-delay", "0s")
	curl := p.WaitFor(within, `(?m)^  (curl .*)$`)[1]
	p.WaitFor(within, `(?m)^Ctrl-C stops it\.$`)
	key := p.WaitFor(within, `(?m)^  key +([A-Z2-7]{26})  \(made for this run`)[1]
	url := p.WaitFor(within, `(?m)^Trawl is running at (http://127\.0\.0\.1:\d+)$`)[1]
	p.WaitFor(within, `(?m)^  export TRAWL_URL=`+regexp.QuoteMeta(url)+` TRAWL_KEY=`+key+`$`)
	if !strings.Contains(curl, key) || !strings.Contains(curl, url+"/v1/jobs") {
		t.Fatalf("the printed line is another's: %s", curl)
	}

	job := submitAsPrinted(t, curl, url, key)
	c, err := client.New(url, key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	last, err := c.Wait(t.Context(), job)
	if err != nil || last.State != client.Completed {
		t.Fatalf("the job printed ended as %+v, %v", last, err)
	}

	if code := p.Terminate(within); code != exitOK {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	p.WaitFor(within, `(?m)^Stopped\.$`)
}

// submitAsPrinted runs the printed line, or does by hand what it says where there is no curl.
func submitAsPrinted(t *testing.T, curl, url, key string) (job string) {
	t.Helper()
	var answer []byte
	if _, err := exec.LookPath("curl"); err == nil {
		if answer, err = exec.CommandContext(t.Context(), "sh", "-c", curl).Output(); err != nil {
			t.Fatalf("%s: %v", curl, err)
		}
	} else {
		body := regexp.MustCompile(`-d '(.*)'`).FindStringSubmatch(curl)[1]
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/jobs", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if answer, err = io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
	}
	var status struct {
		JobID string `json:"job_id"`
	}
	if err := json.Unmarshal(answer, &status); err != nil || status.JobID == "" {
		t.Fatalf("the answer is %s", answer)
	}
	return status.JobID
}

// Keys that were given are not printed, and the line to try uses a variable instead.
func TestUpKeepsKeys(t *testing.T) {
	t.Parallel()
	p := crawltest.Run(t, command, []string{"TRAWL_API_KEYS=acme:" + testKey, "TRAWL_URL=http://elsewhere.example"},
		"up", "--listen", "127.0.0.1:0", "--allowed-sources", "https://docs.example.org/3/")
	p.WaitFor(within, `(?m)^Ctrl-C stops it\.$`)
	p.WaitFor(within, `(?m)^  key +1 key of 1 tenant$`)
	p.WaitFor(within, `"Authorization: Bearer \$TRAWL_KEY"`)
	p.WaitFor(within, `(?m)^  may crawl  https://docs\.example\.org/3/, and http://127\.0\.0\.1:\d+/, a small site`)
	p.Signal(syscall.SIGINT)
	if code := p.Wait(within); code != exitOK {
		t.Errorf("exit code %d after Ctrl-C, want 0", code)
	}
	if strings.Contains(p.Output(), testKey) {
		t.Error("the key was printed")
	}
}

func TestUpPortTaken(t *testing.T) {
	t.Parallel()
	taken := crawltest.NewHandlerSite(t, http.NotFoundHandler())
	addr := strings.TrimPrefix(taken.URL, "http://")
	p := crawltest.Run(t, command, nil, "up", "--listen", addr)
	p.WaitFor(within, `trawl: TRAWL_LISTEN: `+regexp.QuoteMeta(addr)+` is taken: .* --listen `)
	if code := p.Wait(within); code != exitFailed {
		t.Errorf("exit code %d, want 2", code)
	}
	if strings.Contains(p.Output(), "Trawl is running") {
		t.Error("it says that it runs")
	}
}

// interrupted starts a crawl of a large site and returns it when it has written pages to out.
func interrupted(t *testing.T, env []string, args ...string) (p *crawltest.Proc, out string) {
	t.Helper()
	site := crawltest.NewHandlerSite(t, gensite.New(10_000, 20, 1000, 20*time.Millisecond))
	if env != nil {
		env = append(env, "TRAWL_URL="+startServer(t, site.URL+"/"), "TRAWL_KEY="+testKey)
	}
	out = filepath.Join(t.TempDir(), "out.ndjson")
	args = append([]string{"crawl", site.URL + "/p/0", "--max-pages", "10000", "-o", out}, args...)
	p = crawltest.Run(t, command, env, args...)
	crawltest.Eventually(t, within, "pages are written", func() bool { return len(lines(out)) >= 3 })
	return p, out
}

// lines returns the lines of a file, none if it is not there.
func lines(path string) [][]byte {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return bytes.SplitAfter(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
}

// wholeRecords checks that a file holds records and no part of one, and returns how many.
func wholeRecords(t *testing.T, path string) int64 {
	t.Helper()
	all := lines(path)
	for i, line := range all {
		var r client.Record
		if err := json.Unmarshal(line, &r); err != nil || r.URL == "" || r.Seq != int64(i+1) {
			t.Fatalf("line %d is no whole record: %s (%v)", i+1, line, err)
		}
	}
	return int64(len(all))
}

func TestCtrlCHere(t *testing.T) {
	t.Parallel()
	p, out := interrupted(t, nil, "--delay", "0s")
	p.Signal(syscall.SIGINT)
	if code := p.Wait(within); code != exitInterrupted {
		t.Errorf("exit code %d, want 130", code)
	}
	p.WaitFor(within, `Cancelling; press Ctrl-C again to leave at once\.`)
	p.WaitFor(within, `(?m)^cancelled`)
	kept := p.WaitFor(within, `(?m)^(\d+) records kept in (.*)\.$`)
	if n := wholeRecords(t, out); kept[1] != jsonNumber(n) || kept[2] != out {
		t.Errorf("it says %q, the file has %d", kept[0], n)
	}
}

func jsonNumber(n int64) string {
	text, _ := json.Marshal(n) // a number does not fail
	return string(text)
}

// On a server the job is cancelled there, and all that it found is kept in both places.
func TestCtrlCOnServer(t *testing.T) {
	t.Parallel()
	p, out := interrupted(t, []string{}, "--progress", "plain")
	job := p.WaitFor(within, `Job (\w+) is on `)[1]
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(within); code != exitInterrupted {
		t.Errorf("exit code %d, want 130", code)
	}
	c := clientOf(t, p)
	last, err := c.Job(t.Context(), job)
	if err != nil || last.State != client.Cancelled {
		t.Fatalf("the job on the server is %+v, %v", last, err)
	}
	if n := wholeRecords(t, out); n != last.Records {
		t.Errorf("%d records kept here, %d there", n, last.Records)
	}
}

// clientOf returns a client of the server that a crawl said it is on.
func clientOf(t *testing.T, p *crawltest.Proc) *client.Client {
	t.Helper()
	c, err := client.New(p.WaitFor(within, `Job \w+ is on (http://[^;]+);`)[1], testKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// What cannot be written is not crawled for: the job is cancelled on the server, too, and
// who comes back to the terminal is told so.
func TestOutputFails(t *testing.T) {
	t.Parallel()
	site := crawltest.NewHandlerSite(t, gensite.New(10_000, 20, 1000, 20*time.Millisecond))
	url := startServer(t, site.URL+"/")
	c, err := client.New(url, testKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	for _, tt := range []struct {
		name   string
		code   int
		stderr string
		open   func(*testing.T) *os.File
	}{
		{"reader left", exitIncomplete, `^The reader left: the job `, func(t *testing.T) *os.File {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
			return w
		}},
		{"disk full", exitFailed, `^trawl: The output cannot be written to standard output: .*\nThe job `, func(t *testing.T) *os.File {
			f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Skipf("this machine has no device that is always full: %v", err)
			}
			return f
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tag := crawltest.Random()
			var stderr strings.Builder
			cmd := exec.CommandContext(t.Context(), crawltest.Build(t, command),
				"crawl", site.URL+"/p/0", "--max-pages", "10000", "--tag", tag, "--progress", "none")
			cmd.Env = []string{"TRAWL_URL=" + url, "TRAWL_KEY=" + testKey}
			out := tt.open(t)
			defer out.Close()
			cmd.Stdout, cmd.Stderr = out, &stderr
			_ = cmd.Run() // what matters is the exit code
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			_, said, _ := strings.Cut(stderr.String(), "comes back to it.\n")
			jobs := 0
			for job, err := range c.Jobs(t.Context(), client.JobsQuery{Tag: tag}) {
				if jobs++; err != nil || job.State != client.Cancelled {
					t.Errorf("the job is %v, %v", job.State, err)
				}
				want := tt.stderr + job.ID + ` was cancelled after ` + counted(job.Records, "record", "records") +
					"; `trawl results " + job.ID + "` has them\\.\n$"
				if !regexp.MustCompile(want).MatchString(said) {
					t.Errorf("it says %q, not %s", said, want)
				}
			}
			if jobs != 1 {
				t.Errorf("there are %d jobs", jobs)
			}
		})
	}
}

// A server that was restarted and has forgotten the job is told from one that never had it.
func TestServerForgets(t *testing.T) {
	t.Parallel()
	var known atomic.Int64
	s := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"job_id": "j1", "state": "running", "total": 5, "queued": 5}`)
		case strings.HasSuffix(r.URL.Path, "/records") && known.Add(1) == 1:
			_, _ = io.WriteString(w, `{"items": [{"seq": 1, "url": "http://a.example/"}], "next_cursor": "c", "has_more": false}`)
		case !strings.HasSuffix(r.URL.Path, "/records") && known.Load() == 0:
			_, _ = io.WriteString(w, `{"job_id": "j1", "state": "running", "total": 5, "queued": 5}`)
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code": "not_found", "detail": "There is no such job."}`)
		}
	}))
	code, _, stderr := runHere(t, []string{"TRAWL_URL=" + s.URL, "TRAWL_KEY=" + testKey}, "crawl", "http://a.example/")
	const want = "trawl: The server does not know job j1 any more: was it restarted with its store in memory?"
	if code != exitFailed || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, it says %q", code, stderr)
	}
	for n, want := range map[int64]string{0: "Nothing was written", 1: "1 record is in f", 2: "2 records are in f"} {
		r := run{out: &output{name: "f", records: n}, at: call{job: "j1"}}
		if got := r.forgotten().Error(); !strings.HasSuffix(got, "memory? "+want+".") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The second Ctrl-C waits for nothing: here the server hangs in the cancel.
func TestSecondCtrlC(t *testing.T) {
	t.Parallel()
	hung := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/cancel"):
			<-r.Context().Done()
		case strings.HasSuffix(r.URL.Path, "/records"):
			_, _ = io.WriteString(w, `{"items": [], "next_cursor": "c", "has_more": false}`)
		default:
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusAccepted)
			}
			_, _ = io.WriteString(w, `{"job_id": "j1", "state": "running", "total": 5, "queued": 5}`)
		}
	}))
	p := crawltest.Run(t, command, []string{"TRAWL_URL=" + hung.URL, "TRAWL_KEY=" + testKey}, "crawl", "http://a.example/")
	p.WaitFor(within, `Job j1 is on `)
	hung.Await(within, "/v1/jobs/j1/records", 1)
	p.Signal(syscall.SIGINT)
	hung.Await(within, "/v1/jobs/j1/cancel", 1)
	begin := time.Now()
	p.Signal(syscall.SIGINT)
	if code := p.Wait(within); code != exitInterrupted {
		t.Errorf("exit code %d, want 130", code)
	}
	// The cancel alone would be waited for twelve seconds.
	if took := time.Since(begin); took > cancelWithin-2*time.Second {
		t.Errorf("it left after %v", took)
	}
	p.WaitFor(within, `Left\. The job may go on: .trawl cancel j1.\.`)
}

// Ctrl-C ends what only looks, and leaves the job alone.
func TestCtrlCWhileWaiting(t *testing.T) {
	t.Parallel()
	site := crawltest.NewHandlerSite(t, gensite.New(10_000, 20, 1000, 50*time.Millisecond))
	url := startServer(t, site.URL+"/")
	c, err := client.New(url, testKey)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	job, err := c.Submit(t.Context(), client.Spec{SeedURL: site.URL + "/p/0", MaxPages: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	p := crawltest.Run(t, command, []string{"TRAWL_URL=" + url, "TRAWL_KEY=" + testKey}, "status", "--wait", job.ID)
	p.WaitFor(within, `(?m)^trawl: running`)
	p.Signal(syscall.SIGINT)
	if code := p.Wait(within); code != exitInterrupted {
		t.Errorf("exit code %d, want 130", code)
	}
	p.WaitFor(within, `The job is as it was`)
	now, err := c.Job(t.Context(), job.ID)
	if err != nil || now.State.Terminal() || now.State == client.Cancelling {
		t.Errorf("the job is %v, %v", now, err)
	}
	if _, err := c.Cancel(t.Context(), job.ID); err != nil {
		t.Error(err)
	}
}
