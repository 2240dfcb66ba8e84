package httpapi

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// What asynqmon fails with is Redis' text, which is for the log.
func TestMonitorFaults(t *testing.T) {
	t.Parallel()
	r := crawltest.Mini(t)
	w := newWatched(t, r, writable)
	w.ring(t)
	pause := monitorAPI + "queues/" + w.queue + ":pause"
	w.as("POST", pause, "", admin)
	w.as("POST", pause, "", admin).wantProblem(t, 409, crawl.CodeWrongState)
	w.as("DELETE", monitorAPI+"queues/"+w.queue, "", admin).wantProblem(t, 409, crawl.CodeWrongState)
	w.as("POST", w.tasks("pending")+":batch_delete", "{", admin).wantProblem(t, 400, crawl.CodeMalformed)
	a := w.as("POST", pause, "", admin, thePage)
	if a.status != 409 || !strings.Contains(a.body, "already paused") || strings.Contains(a.body, "{") {
		t.Errorf("the page is told %d %q", a.status, a.body)
	}

	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = away.Close() })
	w.bench = newWatched(t, &crawltest.Redis{Client: away}, nil).bench
	p := w.as("GET", monitorAPI+"queues", "", admin).wantProblem(t, 503, crawl.CodeUnavailable)
	if strings.Contains(p.Detail, "127.0.0.1") || !strings.Contains(w.logs.String(), "127.0.0.1:1") {
		t.Errorf("told is %q, logged %s", p.Detail, w.logs.String())
	}
	w.as("GET", monitorAPI+"metrics", "", admin).wantProblem(t, 404, crawl.CodeNotFound)
	for _, text := range []string{
		"NOPERM this user has no permissions to run the 'info' command",
		"UNKNOWN: redis eval error: ERR ACL failure in script: User a has no permissions to run the 'memory|usage' command",
	} {
		err := monitorFault(500, text)
		if crawl.CodeOf(err) != crawl.CodeUnavailable || !strings.Contains(problemOf(err, "").Detail, "users.acl") {
			t.Errorf("a right that lacks is %v", err)
		}
	}
}

// TestMonitorUnreadable: who is shown nothing, for asynq stumbles over what the queue holds, is told
// so and not that Redis is down.
func TestMonitorUnreadable(t *testing.T) {
	t.Parallel()
	// A Redis of its own, for the page of all queues breaks by one.
	private := crawltest.Private(t)
	r := &crawltest.Redis{Client: private.Client}
	w := newWatched(t, r, writable)
	ring, key := w.ring(t), "asynq:{"+w.queue+"}:archived"
	told := func(method, path, what string) {
		t.Helper()
		p := w.as(method, path, "", admin).wantProblem(t, 503, crawl.CodeUnavailable)
		if !strings.Contains(p.Detail, what) || strings.Contains(p.Detail, "does not answer") ||
			strings.Contains(p.Detail, "user_script") {
			t.Errorf("%s %s: told is %q", method, path, p.Detail)
		}
	}
	if err := r.Client.ZAdd(t.Context(), key, redis.Z{Score: 1, Member: "x"}).Err(); err != nil {
		t.Fatal(err)
	}
	told("GET", monitorAPI+"queues", "an id without its task")
	told("GET", monitorAPI+"queues/"+w.queue, "an id without its task")
	if err := r.Client.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Client.Set(t.Context(), key, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	told("GET", monitorAPI+"queues", "a key of another type")
	told("GET", w.tasks("archived"), "a key of another type")
	told("POST", w.tasks("pending")+"/"+ring.ID+":archive", "A key of the queue")
	if !strings.Contains(w.logs.String(), "WRONGTYPE") || strings.Contains(w.logs.String(), `"ERROR"`) {
		t.Errorf("logged is %s", w.logs)
	}
}
