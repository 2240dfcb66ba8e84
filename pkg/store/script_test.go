package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// luaFiles answers the text of every script and include.
func luaFiles(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(scriptFiles, ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			b, err := scriptFiles.ReadFile(p)
			out[p] = string(b)
			return err
		}
		return err
	})
	if err != nil || len(out) < 15 {
		t.Fatalf("%d scripts, %v", len(out), err)
	}
	return out
}

// Every script begins with its contract.
func TestContracts(t *testing.T) {
	t.Parallel()
	for name, text := range luaFiles(t) {
		base := strings.TrimSuffix(path.Base(name), ".lua")
		if strings.HasPrefix(name, "scripts/include/") {
			if !strings.HasPrefix(text, "-- ") {
				t.Errorf("%s does not begin with a comment", name)
			}
			continue
		}
		head, _, _ := strings.Cut(text, "\n--#")
		if !strings.HasPrefix(head, "-- "+base+" ") {
			t.Errorf("%s does not begin with what %s does", name, base)
		}
		for _, word := range []string{"-- KEYS  1 ", "-- ARGV  1 "} {
			if !strings.Contains(head, word) {
				t.Errorf("%s does not say %q", name, word)
			}
		}
		if !strings.Contains(head, "-- Answers ") && base != "ring_failed" && base != "host_renew" {
			t.Errorf("%s does not say what it answers", name)
		}
	}
}

// The names that scripts append are those of keys.go.
func TestKeyNames(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("keys.go")
	if err != nil {
		t.Fatal(err)
	}
	used := 0
	for name, text := range luaFiles(t) {
		for _, m := range regexp.MustCompile(`\.\. ':([a-z_]+)`).FindAllStringSubmatch(text, -1) {
			used++
			if !regexp.MustCompile(`(\{t:T\}|j:ID|d:N|, ):`+m[1]+`\b`).Match(b) && m[1] != "cancelled_" {
				t.Errorf("%s uses :%s, which keys.go does not list", name, m[1])
			}
		}
	}
	if used < 50 {
		t.Errorf("only %d uses of key names found: the pattern no longer fits", used)
	}
}

// widest is the WIDEST of day.lua.
const widest = 1024

// The numbers that stand in Lua and in Go are the same.
func TestSharedNumbers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		file, name string
		want       int64
	}{
		{"job", "LEASE", LeaseTime.Milliseconds()},
		{"job", "GRACE", Grace.Milliseconds()},
		{"job", "MAX_LOST", MaxLost},
		{"job", "MAP_PARENT", mapParent},
		{"job", "MAX_PAUSE", crawl.MaxPause.Milliseconds()},
		{"define", "MAX_COLLECTIONS", crawl.MaxCollections},
		{"day", "PEEK", PeekTime.Milliseconds()},
		{"day", "WIDEST", widest},
	} {
		if !strings.Contains(mustRead("include/"+tc.file+".lua"), fmt.Sprintf("local %s = %d ", tc.name, tc.want)) {
			t.Errorf("%s.lua does not say %s = %d", tc.file, tc.name, tc.want)
		}
	}
	if most := crawl.DefaultLimits().Concurrency; most > widest {
		t.Errorf("a job may have %d pages in flight: day.lua would look too late", most)
	}
}

// A Redis that forgot its scripts is told them again, in the middle of a pipeline too.
func TestForgottenScripts(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	n := f.job(t, "", 3)
	f.create(t, n)
	sl := f.begin(t, n.Job)
	items := f.exchange(t, sl, Exchange{Lease: 3}).Items
	if err := r.Client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var x Exchange
	for _, it := range items {
		x.Commits = append(x.Commits, accept(t, it))
	}
	x.Lease = 1
	out := f.exchange(t, sl, x)
	for i, c := range out.Committed {
		if c.Verdict != Done || c.Seq != int64(i)+1 {
			t.Errorf("commit %d: %+v", i, c)
		}
	}
	if j := f.read(t, n.Job); j.State != crawl.Completed {
		t.Errorf("the job is %s", j.State)
	}
}

// A store that is down answers with a fault and a time to wait; once it is back the
// same client works.
func TestOutage(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	n := f.job(t, "key", 2)
	r.Stop()
	_, err := f.Create(t.Context(), n)
	if fault := wantCode(t, err, crawl.CodeUnavailable); fault.RetryAfter <= 0 {
		t.Error("no time to wait")
	}
	if crawl.CodeOf(f.Ready(t.Context())) != crawl.CodeUnavailable {
		t.Error("ready without Redis")
	}
	r.Start()
	crawltest.Eventually(t, 10*time.Second, "the store to be ready again", func() bool { return f.Ready(t.Context()) == nil })
	if _, err := f.Job(t.Context(), n.Job); crawl.CodeOf(err) != crawl.CodeNotFound {
		t.Errorf("half stored: %v", err)
	}
	if c := f.create(t, n); c.Replayed || c.Job.Total != 2 {
		t.Errorf("created %+v", c)
	}
}

// repliedError is an error that Redis answers.
type repliedError string

func (e repliedError) Error() string { return string(e) }
func (repliedError) RedisError()     {}

// What went wrong is told as what it is, without the words of Redis, and nothing that may have been
// done is told as not done: the error of a second try says nothing of the first.
func TestFaultWords(t *testing.T) {
	t.Parallel()
	const unknown = "did not answer in time, and it is not known whether this was done"
	for _, tc := range []struct {
		err  error
		says string
	}{
		{repliedError("READONLY secret"), "takes no writes"},
		{repliedError("NOREPLICAS secret"), "takes no writes"},
		{repliedError("MISCONF secret"), "takes no writes"},
		{repliedError("MASTERDOWN secret"), "takes no writes"},
		{fmt.Errorf("wrapped: %w", repliedError("READONLY secret")), "takes no writes"},
		{repliedError("LOADING secret"), "is not ready"},
		{repliedError("CLUSTERDOWN secret"), "is not ready"},
		{repliedError("ERR max number of clients reached, secret"), "is not ready"},
		{repliedError("WRONGTYPE secret"), "answered this with an error"},
		{repliedError("ERR user_script:15: secret"), "answered this with an error"},
		{repliedError("NOPERM secret"), "refuses this service"},
		{repliedError("WRONGPASS secret"), "refuses this service"},
		{&net.OpError{Op: "dial", Err: errors.New("secret")}, "cannot be reached"},
		{&net.OpError{Op: "read", Err: errors.New("secret")}, unknown},
		{io.EOF, unknown},
	} {
		f := wantCode(t, fault(tc.err), crawl.CodeUnavailable)
		answered := tc.says != unknown
		if !strings.Contains(f.Message, tc.says) || answered && strings.Contains(f.Message, unknown) || f.RetryAfter != 2*time.Second {
			t.Errorf("%v is told as %q, after %v", tc.err, f.Message, f.RetryAfter)
		}
		for _, bad := range []string{"secret", "othing was changed", "user_script"} {
			if strings.Contains(f.Message, bad) {
				t.Errorf("%v is told as %q", tc.err, f.Message)
			}
		}
		if !errors.Is(f, tc.err) {
			t.Errorf("the cause of %v is lost", tc.err)
		}
	}
}

// The words of Redis are those that it has for scripts, too.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	says := func(err error, what string) {
		t.Helper()
		if f := wantCode(t, err, crawl.CodeUnavailable); !strings.Contains(f.Message, what) {
			t.Errorf("told is %q of %v", f.Message, f.Err)
		}
	}
	n := f.job(t, "key", 1)
	f.create(t, n)
	if err := r.Client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := f.Create(t.Context(), f.job(t, "", 1))
	says(err, "takes no writes")
	if err := r.Client.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Client.Set(t.Context(), jobKey(n.Job), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = f.Job(t.Context(), n.Job)
	says(err, "answered this with an error")
	if err := r.Client.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, err = f.Create(t.Context(), f.job(t, "", 1))
	says(err, "takes no writes")
}

// A store that is full refuses submissions whole, and says so (JOB-17).
func TestFull(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	kept := f.job(t, "kept", 2)
	f.create(t, kept)
	sl := f.begin(t, kept.Job)
	items := f.exchange(t, sl, Exchange{Lease: 2}).Items
	if err := r.Client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	n := f.job(t, "late", 2)
	_, err := f.Create(t.Context(), n)
	if fault := wantCode(t, err, crawl.CodeOverloaded); fault.RetryAfter <= 0 {
		t.Error("no time to wait")
	}
	if crawl.CodeOf(f.Ready(t.Context())) != crawl.CodeOverloaded {
		t.Error("ready although full")
	}
	before := f.read(t, kept.Job)
	x := Exchange{Commits: []Commit{accept(t, items[0])}}
	if _, err := f.Exchange(t.Context(), sl, x); err != nil && crawl.CodeOf(err) != crawl.CodeOverloaded {
		t.Errorf("commit into a full store: %v", err)
	}
	if j := f.read(t, kept.Job); !j.Consistent() || j.Total != before.Total {
		t.Errorf("half done: %+v", j)
	}
	if err := r.Client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	f.exchange(t, sl, x)
	f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, items[1])}})
	if j := f.read(t, kept.Job); j.State != crawl.Completed || j.Accepted != 2 {
		t.Errorf("after the store had room again: %+v", j)
	}
	if c := f.create(t, n); c.Replayed {
		t.Error("the refused submission left its key behind")
	}
}

// A full Redis frees what is over by itself: the sweep's first write for a job that needs to
// be rung would be refused, and with it the end of those behind it.
func TestFullIsFreed(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	waiting, over := f.job(t, "waiting", 2), f.job(t, "over", 1)
	over.Plan.Retention = 2 * time.Minute
	f.create(t, waiting) // and nobody answers its ring
	f.create(t, over)
	f.finish(t, over.Job)
	f.pass(3 * time.Minute)
	if err := r.Client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Sweep(t.Context()); err != nil || s.Expired != 1 || len(s.Rings) == 0 {
		t.Errorf("swept %+v, %v", s, err)
	}
}

// With Options.Replicas a submission is answered only when so many have it, and a
// second try with the same key is, too.
func TestReplicas(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t, "--shutdown-timeout", "0", "--repl-diskless-sync-delay", "0")
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	f.o.Replicas = 1
	n := f.job(t, "key", 1)
	_, err := f.Create(t.Context(), n)
	if fault := wantCode(t, err, crawl.CodeUnavailable); fault.RetryAfter <= 0 {
		t.Error("no time to wait")
	}
	host, port, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(r.URL, "redis://"), "/0"), ":")
	crawltest.Private(t, "--replicaof", host, port, "--appendonly", "no") // one that writes its first AOF refuses to end
	crawltest.Eventually(t, 20*time.Second, "the replica to follow", func() bool {
		return strings.Contains(r.Client.Info(t.Context(), "replication").Val(), "state=online")
	})
	if c := f.create(t, n); !c.Replayed || c.Job.Total != 1 {
		t.Errorf("the same key once a replica follows: %+v", c)
	}
	if c := f.create(t, f.job(t, "other", 1)); c.Replayed {
		t.Errorf("a new job: %+v", c)
	}
}

// JOB-17: a Redis that drops what it likes when it is full drops jobs, without a word.
func TestEvictionIsNotReady(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction")
	s := New(r.Client, Options{})
	for _, tc := range []struct {
		setting, value string
		ready          bool
	}{
		{"maxmemory-policy", "noeviction", true},
		{"maxmemory-policy", "allkeys-lru", false},
		{"maxmemory-policy", "volatile-ttl", false},
		{"maxmemory", "0", true}, // nothing is dropped where there is no bound
	} {
		if err := r.Client.ConfigSet(t.Context(), tc.setting, tc.value).Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.Ready(t.Context()); (err == nil) != tc.ready || err != nil && !strings.Contains(err.Error(), tc.value) {
			t.Errorf("with %s %s: %v", tc.setting, tc.value, err)
		}
	}
}

// JOB-23: what a clock is ahead by is only what the way to Redis and back cannot hide.
func TestAhead(t *testing.T) {
	t.Parallel()
	asked := time.Now()
	for _, tc := range []struct {
		theirs, took, want time.Duration
	}{
		{0, 0, 0},
		{10 * time.Millisecond, 20 * time.Millisecond, 0},
		{15 * time.Millisecond, 20 * time.Millisecond, 0},
		{90 * time.Second, 0, 90 * time.Second},
		{-90 * time.Second, 2 * time.Millisecond, -90*time.Second - time.Millisecond},
		{90 * time.Second, 100 * time.Second, 0},
	} {
		if got := ahead(asked.Add(tc.theirs), asked, asked.Add(tc.took)); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}
