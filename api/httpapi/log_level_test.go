package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/store"
)

// newLevelBench is a server with a log level that can be set.
func newLevelBench(t *testing.T, st Levels) (*bench, *obs.Level) {
	t.Helper()
	level := obs.NewLevel(slog.LevelInfo)
	b := newBenchWith(t, func(o *Options) {
		o.Tenants, o.AdminKey, o.Levels, o.Level = newFakeTenants(), adminKey, st, level
	})
	log, err := obs.NewLogger(b.logs, obs.FormatJSON, level)
	if err != nil {
		t.Fatal(err)
	}
	b.server.log = log
	return b, level
}

func (a answer) wantLevel(t *testing.T, doc document, method, level, process string, keep time.Duration) {
	t.Helper()
	var got levelRecord
	a.decode(t, 200, &got)
	err := doc.check(a.body, "paths", pathLogLevel, method, "responses", "200", "content", "application/json", "schema")
	if err != nil {
		t.Errorf("%s: %v in %s", method, err, a.body)
	}
	if got.Process.Level != process || got.Process.Configured != "info" {
		t.Errorf("%s: the process has %+v, want %s", method, got.Process, process)
	}
	if level == "" {
		if got.Level != nil || got.Until != nil {
			t.Errorf("%s: %s", method, a.body)
		}
		return
	}
	if got.Level == nil || *got.Level != level || got.Until == nil {
		t.Fatalf("%s: %s, want %s", method, a.body, level)
	}
	until, err := time.Parse(time.RFC3339, *got.Until)
	if left := time.Until(until); err != nil || left > keep+time.Second || left < keep-time.Minute {
		t.Errorf("%s: until %s, %v from now, want %v", method, *got.Until, left, keep)
	}
}

// The level is read, set, shortened and cleared over the real store, and this process has it at
// once; each change is in its log.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	r := crawltest.Mini(t)
	b, level := newLevelBench(t, store.New(r.Client, store.Options{}))
	doc := openAPI(t, b)
	admin := func(method, body string) answer { return b.call(method, pathLogLevel, body, with(adminKey)) }
	admin("GET", "").wantLevel(t, doc, "get", "", "info", 0)
	admin("PUT", `{"level":"debug","for":"15m"}`).wantLevel(t, doc, "put", "debug", "debug", 15*time.Minute)
	if level.Level() != slog.LevelDebug {
		t.Errorf("the process has %v", level.Level())
	}
	admin("GET", "").wantLevel(t, doc, "get", "debug", "debug", 15*time.Minute)
	if a := admin("HEAD", ""); a.status != 200 {
		t.Errorf("HEAD: %d", a.status)
	}
	admin("PUT", `{"level":"error"}`).wantLevel(t, doc, "put", "error", "error", defaultLevelTime)
	admin("PUT", `{"level":"warn","for":"24h"}`).wantLevel(t, doc, "put", "warn", "warn", maxLevelTime)
	admin("PUT", `{"level":"warn","for":"1s"}`).wantLevel(t, doc, "put", "warn", "warn", minLevelTime)
	admin("PUT", `{"level":"debug","for":null}`).wantLevel(t, doc, "put", "debug", "debug", defaultLevelTime)
	for range 2 {
		admin("DELETE", "").wantLevel(t, doc, "delete", "", "info", 0)
	}
	admin("GET", "").wantLevel(t, doc, "get", "", "info", 0)

	var changes, actions []string
	for line := range strings.Lines(b.logs.String()) {
		var e struct {
			Msg, From, To, Action, By string
			RequestID                 string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		switch e.Msg {
		case "log level changed":
			changes = append(changes, e.From+" "+e.To)
		case "admin change":
			if actions = append(actions, e.Action); e.By != "admin" || e.RequestID == "" {
				t.Errorf("%s", line)
			}
		}
	}
	want := []string{"INFO DEBUG", "DEBUG ERROR", "ERROR WARN", "WARN DEBUG", "DEBUG INFO"}
	if !slices.Equal(changes, want) {
		t.Errorf("the log has the changes %q, want %q", changes, want)
	}
	if !slices.Contains(actions, "set-log-level") || !slices.Contains(actions, "clear-log-level") {
		t.Errorf("the log has the actions %q", actions)
	}
}

// What somebody wrote into Redis by hand is told in words, and mended where it is told.
func TestLogLevelGarbage(t *testing.T) {
	t.Parallel()
	r := crawltest.Mini(t)
	b, level := newLevelBench(t, store.New(r.Client, store.Options{}))
	doc := openAPI(t, b)
	for _, c := range []struct{ method, body, set string }{{"PUT", `{"level":"warn"}`, "warn"}, {"DELETE", "", ""}} {
		if err := r.Client.Set(t.Context(), "trawl:log", "loud", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		p := b.call("GET", pathLogLevel, "", with(adminKey)).wantProblem(t, 503, crawl.CodeUnavailable)
		if !strings.Contains(p.Detail, "no log level") || !strings.Contains(p.Detail, c.method) {
			t.Errorf("told is %q", p.Detail)
		}
		b.call(c.method, pathLogLevel, c.body, with(adminKey))
		b.call("GET", pathLogLevel, "", with(adminKey)).wantLevel(t, doc, "get", c.set, levelName(level.Level()), defaultLevelTime)
	}
	if !strings.Contains(b.logs.String(), "trawl:log") {
		t.Error("the log does not name the key")
	}
}

// What the document gives as an example is taken.
func TestLogLevelExamples(t *testing.T) {
	t.Parallel()
	b, _ := newLevelBench(t, store.New(crawltest.Mini(t).Client, store.Options{}))
	examples, _ := openAPI(t, b).at("components", "schemas", "LevelChange", "properties", "for", "examples").([]any)
	if len(examples) == 0 {
		t.Fatal("there is no example of for")
	}
	for _, e := range examples {
		body := fmt.Sprintf(`{"level":"debug","for":%q}`, e)
		if a := b.call("PUT", pathLogLevel, body, with(adminKey)); a.status != 200 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}

// All faults of a body are told at once, and nothing is set then.
func TestLogLevelFaults(t *testing.T) {
	t.Parallel()
	st := store.New(crawltest.Mini(t).Client, store.Options{})
	b, level := newLevelBench(t, st)
	for body, want := range map[string][]string{
		`{}`:                               {"level:required"},
		`{"for":"15m"}`:                    {"level:required"},
		`{"level":"loud"}`:                 {"level:enum"},
		`{"level":"DEBUG"}`:                {"level:enum"},
		`{"level":"debug-4"}`:              {"level:enum"},
		`{"level":"loud","for":"48h"}`:     {"level:enum", "for:range"},
		`{"level":"debug","for":"0s"}`:     {"for:range"},
		`{"level":"debug","for":"-1h"}`:    {"for:range"},
		`{"level":"debug","for":"24h1ms"}`: {"for:range"},
		`{"level":"debug","until":"x"}`:    {"until:unknown"},
		`{"level":"debug","level":"info"}`: {"level:duplicate"},
		`{"level":1}`:                      {"level:type"},
	} {
		p := b.call("PUT", pathLogLevel, body, with(adminKey)).wantProblem(t, 422, crawl.CodeInvalid)
		got := fieldRules(p)
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	b.call("PUT", pathLogLevel, `{"level":"debug","for":"30d"}`, with(adminKey)).wantProblem(t, 422, crawl.CodeInvalid)
	b.call("PUT", pathLogLevel, `{`, with(adminKey)).wantProblem(t, 400, crawl.CodeMalformed)
	b.call("PUT", pathLogLevel, "", with(adminKey)).wantProblem(t, 415, codeUnsupportedMediaType)
	b.call("GET", pathLogLevel, "", with(adminKey), func(r *http.Request) { r.URL.RawQuery = "x=1" }).
		wantProblem(t, 422, crawl.CodeInvalid)
	b.call("POST", pathLogLevel, "{}", with(adminKey)).wantProblem(t, 405, codeMethodNotAllowed)
	if _, left, err := st.LogLevel(t.Context()); left != 0 || err != nil || level.Level() != slog.LevelInfo {
		t.Errorf("something is set: %v %v %v", left, err, level.Level())
	}
}

// Only the admin key sets it, and where it cannot be set nobody is told of it.
func TestLogLevelIsTheAdmins(t *testing.T) {
	t.Parallel()
	st := &brokenLevels{}
	b, _ := newLevelBench(t, st)
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
		for _, edit := range []func(*http.Request){with(keyA), header("Authorization"), behind(gatewaySecret, "c"), with("")} {
			a := b.call(method, pathLogLevel, `{"level":"debug"}`, edit)
			if method == "HEAD" {
				if a.status != 401 {
					t.Errorf("HEAD: %d", a.status)
				}
				continue
			}
			a.wantProblem(t, 401, crawl.CodeUnauthenticated)
		}
	}
	if st.asked > 0 {
		t.Errorf("the store was asked %d times", st.asked)
	}
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		b.call(method, pathLogLevel, `{"level":"debug"}`, with(adminKey)).wantProblem(t, 503, crawl.CodeUnavailable)
	}
	none := newBenchWith(t, func(o *Options) { o.Tenants, o.AdminKey = newFakeTenants(), adminKey })
	none.call("GET", pathLogLevel, "", with(adminKey)).wantProblem(t, 404, crawl.CodeNotFound)
	if a := none.call("GET", openAPIPath, ""); strings.Contains(a.body, pathLogLevel) {
		t.Error("the document tells of a log level")
	}
}

// brokenLevels is a store that does not answer.
type brokenLevels struct{ asked int }

func (l *brokenLevels) fault() error {
	l.asked++
	return &crawl.Fault{Code: crawl.CodeUnavailable, Message: "The store does not answer."}
}

func (l *brokenLevels) LogLevel(context.Context) (slog.Level, time.Duration, error) {
	return 0, 0, l.fault()
}

func (l *brokenLevels) SetLogLevel(context.Context, slog.Level, time.Duration) error {
	return l.fault()
}
func (l *brokenLevels) ClearLogLevel(context.Context) error { return l.fault() }

// While a server runs it follows what another process has set, and it stops with the server.
func TestServerFollowsLogLevel(t *testing.T) {
	t.Parallel()
	st := store.New(crawltest.Mini(t).Client, store.Options{})
	b, level := newLevelBench(t, st)
	if err := st.SetLogLevel(t.Context(), slog.LevelDebug, time.Hour); err != nil {
		t.Fatal(err)
	}
	start(t, b)
	crawltest.Eventually(t, 30*time.Second, "the level of all processes", func() bool {
		return level.Level() == slog.LevelDebug
	})
}
