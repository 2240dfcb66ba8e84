package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/queue"
)

// TestPartsOfTheAPI runs two parts in small.
func TestPartsOfTheAPI(t *testing.T) {
	t.Parallel()
	t.Run("submissions", func(t *testing.T) {
		t.Parallel()
		checkSubmissions(t, rigOf(t, options{Rounds: 1}))
	})
	t.Run("reads", func(t *testing.T) {
		t.Parallel()
		checkReads(t, rigOf(t, options{Rounds: 1, Big: 1500}))
	})
}

// Each contender has its rows, and the bar has a value.
func checkSubmissions(t *testing.T, r *rig) {
	t.Helper()
	found, err := r.submissions(t.Context(), 300)
	if err != nil {
		t.Fatal(err)
	}
	_, without := findFastAPI(t.Context())
	rows := 2 * len(submissionConnections)
	if without == nil {
		rows *= 2
	}
	table := found.Tables[0]
	if len(table.Rows) != rows || len(found.Bars) != 1 || found.Bars[0].Value <= 0 {
		t.Fatalf("%d rows, want %d: %+v", len(table.Rows), rows, found)
	}
	for _, row := range table.Rows {
		for _, key := range []string{"per_second", "p50_us", "p99_us", "max_us", "callers_cpu_us"} {
			if row.Cells[key].Median <= 0 {
				t.Errorf("%s: %s is %v", row.Name, key, row.Cells[key])
			}
		}
		_, redis := row.Cells["redis_commands"]
		_, kept := row.Cells["redis_bytes"]
		trawl, replays := strings.HasPrefix(row.Name, "Trawl"), strings.Contains(row.Name, "replays")
		if redis != trawl || kept != (trawl && !replays) {
			t.Errorf("%s: commands of Redis %v, bytes %v", row.Name, redis, kept)
		}
	}
}

// What is answered but not stored, or stored but not queued, is no figure.
func TestVerifyStored(t *testing.T) {
	t.Parallel()
	crawltest.Real(t) // or skips the test
	f, err := (&rig{dir: t.TempDir()}).newFleet(t.Context(), fleetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.stop()
	for _, tt := range []struct {
		name, command string
		args          []any
		fails         bool
	}{
		{"nothing is stored", "PING", nil, true},
		{"nothing is queued", "ZADD", []any{"{t:" + tenant + "}:jobs", 1, "a", 2, "b"}, true},
		{"one is queued", "LPUSH", []any{"asynq:{" + queue.Name + "}:pending", "a"}, true},
		{"both", "LPUSH", []any{"asynq:{" + queue.Name + "}:pending", "b"}, false},
		{"one is stored too many", "ZADD", []any{"{t:" + tenant + "}:jobs", 3, "c"}, true},
	} {
		if err := f.rdb.Do(t.Context(), append([]any{tt.command}, tt.args...)...).Err(); err != nil {
			t.Fatal(err)
		}
		if err := f.verifyStored(t.Context(), 2, 2); (err != nil) != tt.fails {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := f.rdb.ZRem(t.Context(), "{t:"+tenant+"}:jobs", "c").Err(); err != nil {
		t.Fatal(err)
	}
	if f.verifyStored(t.Context(), 2, 2) != nil || f.verifyStored(t.Context(), 2, 1) == nil {
		t.Error("two are stored: two answers are right, one is not")
	}
}

// rate is a round of so many requests a second.
func rate(perSecond ...int64) (rounds []measured) {
	for _, n := range perSecond {
		rounds = append(rounds, measured{
			called: called{Count: n * 2, Seconds: 2, P50: 100, P99: 200, Max: 300, CPU: float64(n) * 2 * 25},
			used:   map[string]spent{"api": {CPU: float64(n) * 2 * 150e-6}, "redis": {CPU: float64(n) * 2 * 100e-6}},
			redis:  gauge{commands: float64(n)*2*25 + 12, memory: float64(n) * 2 * 4000},
		})
	}
	return rounds
}

func TestSubmissionFindings(t *testing.T) {
	t.Parallel()
	all := []*submissions{
		{16, rate(5000, 9000, 6000), rate(9000), rate(2000, 3000, 2500), rate(4000)},
		{256, rate(5000), rate(9000), rate(2500), rate(5000)},
	}
	found := submissionFindings(all, 9000, fastAPI{versions: "FastAPI 1"}, nil)
	bar, rows := found.Bars[0], found.Tables[0].Rows
	if len(rows) != 8 || bar.Value != 2 || !bar.met() {
		t.Errorf("%d rows, %+v; want the worse of 6,000/2,500 and 5,000/2,500", len(rows), bar)
	}
	notes := strings.Join(found.Tables[0].Notes, "\n")
	if !strings.Contains(notes, "are 1.00,") || !strings.Contains(notes, "FastAPI 1.") {
		t.Errorf("the notes lack the ratio to FastAPI without a response model: %s", notes)
	}
	for key, want := range map[string]float64{
		"per_second": 6000, "service_cpu_us": 150, "redis_cpu_us": 100, "callers_cpu_us": 25, "redis_commands": 25, "redis_bytes": 4000,
	} {
		if got := rows[0].Cells[key].Median; got < want*0.999 || got > want*1.001 {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	found = submissionFindings(all, 9000, fastAPI{}, errors.New("no Python"))
	bar, rows = found.Bars[0], found.Tables[0].Rows
	if len(rows) != 4 || bar.Value != 5000 || bar.Bound != 5400 || bar.met() || !strings.Contains(bar.Figure, "no FastAPI here") ||
		!slices.ContainsFunc(found.Tables[0].Notes, func(s string) bool { return strings.Contains(s, "no Python") }) {
		t.Errorf("without FastAPI: %d rows, %+v, %v", len(rows), bar, found.Tables[0].Notes)
	}
}

// The service that Trawl is measured against does what it is compared in: it knows the key and the fields, and
// remembers.
func TestFastAPI(t *testing.T) {
	t.Parallel()
	python, err := findFastAPI(t.Context())
	if err != nil {
		t.Skip(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	c, base, err := python.start(t.Context(), &rig{dir: t.TempDir(), root: root}, "the-right-key")
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	const body = `{"seed_url":"https://docs.example.org/","max_pages":50,"scope":"host","tags":["nightly"]}`
	first := map[string]string{}
	for _, tt := range []struct {
		name, path, key, idempotency, body string
		status                             int
		replayed, same                     bool
	}{
		{"new", "/v1/jobs", "the-right-key", "a", body, 202, false, false},
		{"again", "/v1/jobs", "the-right-key", "a", body, 202, true, true},
		{"other input", "/v1/jobs", "the-right-key", "a", strings.Replace(body, "50", "51", 1), 409, false, false},
		{"other key", "/v1/jobs", "the-right-key", "b", body, 202, false, false},
		{"plain", "/plain/v1/jobs", "the-right-key", "c", body, 202, false, false},
		{"plain again", "/plain/v1/jobs", "the-right-key", "c", body, 202, true, true},
		{"wrong key", "/v1/jobs", "the-wrong-key", "d", body, 401, false, false},
		{"unknown field", "/v1/jobs", "the-right-key", "d", strings.Replace(body, "tags", "tagz", 1), 422, false, false},
		{"no URL", "/plain/v1/jobs", "the-right-key", "d", strings.Replace(body, "https:", "docs:", 1), 422, false, false},
		{"beyond a bound", "/v1/jobs", "the-right-key", "d", strings.Replace(body, "50", "0", 1), 422, false, false},
		{"another scope", "/v1/jobs", "the-right-key", "d", strings.Replace(body, `"host"`, `"all"`, 1), 422, false, false},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tt.key)
		req.Header.Set("Idempotency-Key", tt.idempotency)
		req.Header.Set("Content-Type", "application/json")
		req.Close = true
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != tt.status || (res.Header.Get("Idempotent-Replayed") == "true") != tt.replayed {
			t.Errorf("%s: %s %v %s (%v)", tt.name, res.Status, res.Header, text, err)
			continue
		}
		if tt.status != http.StatusAccepted {
			continue
		}
		var job struct {
			ID    string          `json:"job_id"`
			State string          `json:"state"`
			Spec  json.RawMessage `json:"spec"`
		}
		if err := json.Unmarshal(text, &job); err != nil || job.State != "queued" || string(job.Spec) != body ||
			res.Header.Get("Location") != "/v1/jobs/"+job.ID {
			t.Errorf("%s: %v %s (%v)", tt.name, res.Header, text, err)
		}
		if known := first[tt.idempotency]; (known == job.ID) != tt.same {
			t.Errorf("%s: job %s, the first of this key was %s", tt.name, job.ID, known)
		}
		first[tt.idempotency] = job.ID
	}
	if kept, err := ask(t.Context(), base+"/readyz"); err != nil || kept != `{"queued":3,"jobs":3}` {
		t.Errorf("kept: %s, %v", kept, err)
	}
}
