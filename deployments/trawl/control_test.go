package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawltest"
)

// Each job is changed and told about, for a person and for a program.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	states := map[string]string{"pause": "paused", "resume": "running"}
	server := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.URL.Path, "/")
		state, known := states[parts[len(parts)-1]]
		if !known || r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"job_id": %q, "state": %q, "total": 9, "accepted": 2, "processed": 2, "active": 3, "queued": 4}`,
			parts[len(parts)-2], state)
	}))
	env := []string{"TRAWL_URL=" + server.URL, "TRAWL_KEY=" + testKey}
	for call, state := range states {
		want := fmt.Sprintf("j1: %s, 2 of 9 processed: 2 accepted, 4 queued, 3 in progress\n", state)
		want += strings.Replace(want, "j1", "j2", 1)
		if code, stdout, stderr := runHere(t, env, call, "j1", "j2"); code != exitOK || stdout != want || stderr != "" {
			t.Errorf("%s: exit code %d, %q, %q", call, code, stdout, stderr)
		}
		code, stdout, _ := runHere(t, env, call, "--json", "j1", "j2")
		if code != exitOK || strings.Count(stdout, "\n") != 2 || !strings.HasPrefix(stdout, `{"job_id":"j1","state":"`+state) {
			t.Errorf("%s: exit code %d, %q", call, code, stdout)
		}
	}
}

// A person is told where to go on when one job could not have all that failed; and what may have
// become of a job when no answer came.
func TestRetryGoesOn(t *testing.T) {
	t.Parallel()
	server := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		next := `"c1"`
		if r.URL.Query().Get("cursor") == "c1" {
			next = "null"
		}
		_, _ = io.WriteString(w, `{"job_id": "j2", "state": "queued", "total": 10000, "retry_next_cursor": `+next+`}`)
	}))
	env := []string{"TRAWL_URL=" + server.URL, "TRAWL_KEY=" + testKey}
	const line = "j2: queued, tries 10000 pages of j1 again\n"
	code, stdout, stderr := runHere(t, env, "retry", "j1")
	if code != exitOK || stdout != line || stderr != "More failed than one job may have: `trawl retry j1 --cursor c1` tries the next.\n" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if code, stdout, stderr = runHere(t, env, "retry", "j1", "--cursor", "c1"); code != exitOK || stdout != line || stderr != "" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	code, _, stderr = runHere(t, []string{"TRAWL_URL=http://127.0.0.1:1", "TRAWL_KEY=" + testKey}, "retry", "j1", "--idempotency-key", "k")
	if code != exitFailed || !strings.Contains(stderr, "The job may be there: `trawl list`, or call again: trawl retry ") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
