package watch

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"example.com/trawl/pkg/client"
)

var update = flag.Bool("update", false, "write what is drawn to testdata; read the difference before you commit it")

// golden compares sections of text with those of a file, or writes it.
func golden(t *testing.T, name string, got []txtar.File) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, txtar.Format(&txtar.Archive{Files: got}), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sections(want.Files), sections(got)); diff != "" {
		t.Errorf("not as in %s, which -update writes anew:\n%s", path, diff)
	}
}

// sections are files as a list that is good to compare.
func sections(files []txtar.File) []string {
	var out []string
	for _, f := range files {
		out = append(out, "== "+f.Name+"\n"+string(f.Data))
	}
	return out
}

// begin is when the jobs of these tests began.
var begin = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// siteSpec is what most of these jobs crawl.
func siteSpec() *client.Spec {
	return &client.Spec{SeedURL: "https://docs.python.org/3/tutorial/", MaxPages: 100, Delay: 500 * time.Millisecond}
}

// running is a job in the middle of its work.
func running(wait string) client.Job {
	return client.Job{
		ID: "jaaaaaaaaaaaaaaaaaaaaaaaaaa", State: client.Running, WaitingFor: wait, StartedAt: begin,
		Total: 100, Processed: 42, Accepted: 40, Failed: 1, Skipped: 1, Queued: 56, Active: 2, Spec: siteSpec(),
	}
}

// ended is a job that had 12.3 seconds.
func ended(state client.State, reason string) client.Job {
	j := running("")
	j.State, j.StopReason, j.EndedAt = state, reason, begin.Add(12300*time.Millisecond)
	j.Queued, j.Active, j.Bytes = 0, 0, 310_000
	j.Total, j.Processed, j.Accepted, j.Failed, j.Skipped = 29, 29, 24, 2, 3
	j.FailedByType = map[string]int64{"timeout": 1, "http_404": 1}
	j.SkippedByReason = map[string]int64{"alias": 3}
	j.RefusedByReason = map[string]int64{"excluded": 2, "out_of_scope": 31, "nothing": 0}
	return j
}

// with changes a job.
func with(j client.Job, change func(*client.Job)) client.Job {
	change(&j)
	return j
}

// shownJobs are the jobs that the golden tables draw.
func shownJobs() []struct {
	name string
	job  client.Job
} {
	queued := client.Job{State: client.Queued, Total: 1, Queued: 1, Spec: siteSpec()}
	cancelled := func(reason string) client.Job {
		return with(ended(client.Cancelled, reason), func(j *client.Job) { j.Total, j.Cancelled = 79, 50 })
	}
	return []struct {
		name string
		job  client.Job
	}{
		{"queued", queued},
		{"queued for a worker", with(queued, func(j *client.Job) { j.WaitingFor = "worker" })},
		{"queued in line", with(queued, func(j *client.Job) { j.WaitingFor, j.Position = "tenant_quota", 3 })},
		{"queued and not dispatched", with(queued, func(j *client.Job) {
			j.WaitingFor, j.Error = "dispatch", "The queue refused the job; it is tried again."
		})},
		{"running", running("")},
		{"running with the day used up", running("tenant_quota")},
		{"running for its host", running("host_delay")},
		{"running for a host without a delay", with(running("host_delay"), func(j *client.Job) {
			j.Spec.Delay = 0
		})},
		{"running for a retry", with(running("retry"), func(j *client.Job) {
			j.Queued, j.Active, j.Deferred = 0, 0, 58
		})},
		{"running for a worker", running("worker")},
		{"running for robots.txt", running("robots")},
		{"running for what is new", running("moon_phase")},
		{"running begun", with(running(""), func(j *client.Job) {
			*j = client.Job{State: client.Running, Total: 1, Active: 1, StartedAt: begin, Spec: siteSpec()}
		})},
		{"running big", with(running("host_delay"), func(j *client.Job) {
			j.Total, j.Processed, j.Accepted, j.Failed, j.Skipped = 1_000_000, 312_345, 300_000, 12_000, 345
			j.Queued, j.Active, j.Deferred, j.Spec.MaxPages = 687_391, 64, 200, 1_000_000
		})},
		{"running urls", with(running(""), func(j *client.Job) {
			j.Spec = &client.Spec{URLs: []string{
				"https://bücher.example/a", "https://例え.example/b", "https://bücher.example/c",
			}}
		})},
		{"running nearly done on a long host", with(running(""), func(j *client.Job) {
			j.Spec.SeedURL = "https://a-name-that-is-far-too-long-for-a-line." + strings.Repeat("label.", 9) + "example/"
			j.Total, j.Processed, j.Accepted, j.Queued, j.Active = 1000, 999, 997, 0, 1
		})},
		{"paused", with(running(""), func(j *client.Job) { j.State = client.Paused })},
		{"cancelling", with(running(""), func(j *client.Job) {
			j.State, j.Queued, j.Cancelled = client.Cancelling, 0, 56
		})},
		{"completed", with(ended(client.Completed, "frontier_empty"), func(j *client.Job) {
			j.Total, j.Processed, j.Accepted, j.Failed, j.Skipped = 1, 1, 1, 0, 0
			j.FailedByType, j.SkippedByReason, j.RefusedByReason = nil, nil, nil
		})},
		{"completed at its page limit", with(ended(client.Completed, "page_limit"), func(j *client.Job) {
			j.Total, j.Processed, j.Accepted, j.Failed = 27, 27, 24, 0
			j.FailedByType = nil
		})},
		{"completed with errors", ended(client.CompletedWithErrors, "frontier_empty")},
		{"failed", with(ended(client.Failed, "seed_failed"), func(j *client.Job) {
			j.Total, j.Processed, j.Accepted, j.Failed, j.Skipped, j.Bytes = 1, 1, 0, 1, 0, 0
			j.FailedByType, j.SkippedByReason, j.RefusedByReason = map[string]int64{"dns": 1}, nil, nil
		})},
		{"failed at its seed", with(ended(client.Failed, "seed_failed"), func(j *client.Job) {
			j.Total, j.Processed, j.Accepted, j.Failed, j.Skipped, j.Bytes = 2, 2, 0, 2, 0, 0
			j.FailedByType, j.SkippedByReason, j.RefusedByReason = map[string]int64{"timeout": 2}, nil, nil
			j.Error = "https://docs.python.org/3/library/a-long-path/to-a-page/that-is-slow.html: No answer within 30 s."
		})},
		{"failed inside", with(ended(client.Failed, "internal"), func(j *client.Job) {
			j.Error = "The job could not be read."
		})},
		{"cancelled", cancelled("cancelled")},
		{"cancelled before it began", client.Job{
			State: client.Cancelled, StopReason: "cancelled", EndedAt: begin, Total: 2, Cancelled: 2, Spec: siteSpec(),
		}},
		{"cancelled by time", cancelled("time_limit")},
		{"cancelled by bytes", cancelled("byte_limit")},
		{"completed with a collection", with(ended(client.Completed, "frontier_empty"), func(j *client.Job) {
			j.Spec.Collection = &client.Collection{Name: "jobs"}
			j.Report = client.Report{Created: 12, Updated: 1, Unchanged: 50, Missing: 2, NotCollected: 3}
		})},
		{"completed with nothing collected", with(ended(client.Completed, "frontier_empty"), func(j *client.Job) {
			j.Spec.Collection = &client.Collection{Name: "jobs"}
		})},
		{"a new state", with(running(""), func(j *client.Job) { j.State = "being_moved" })},
	}
}

// modelOf is a model that saw the job for 11 seconds, at 3.9 pages a second.
func modelOf(j client.Job) (*model, time.Time) {
	m := &model{}
	now := begin.Add(11 * time.Second)
	before := j
	before.Processed = max(j.Processed-39, 0)
	before.State, before.WaitingFor = client.Running, ""
	if !j.StartedAt.IsZero() {
		m.update(&before, now.Add(-10*time.Second))
		m.started = begin
	}
	m.update(&j, now)
	if !m.idle.IsZero() {
		m.idle = now.Add(-briefWait) // long enough to be told
	}
	return m, now
}

func TestRowsLookAsTheyShould(t *testing.T) {
	t.Parallel()
	var got []txtar.File
	for _, c := range shownJobs() {
		for _, width := range []int{120, 80, 60, 40, 25, 20} {
			m, now := modelOf(c.job)
			text := strings.Join(rows(m.snapshot(now), width, false), "\n") + "\n"
			got = append(got, txtar.File{Name: fmt.Sprintf("%s, %d columns", c.name, width), Data: []byte(text)})
		}
	}
	golden(t, "rows.txtar", got)
}

// When no status comes any more the bar does not go on as if all were well.
func TestSilenceIsShown(t *testing.T) {
	t.Parallel()
	m, now := modelOf(running(""))
	m.silence = 10 * time.Second
	if s := m.snapshot(now.Add(9 * time.Second)); s.silent != 0 {
		t.Errorf("silent for %v before it is time", s.silent)
	}
	for width, want := range map[int]string{
		100: "docs.python.org  " + strings.Repeat("━", 16) + strings.Repeat("─", 22) +
			"   42/100  no answer from the server for 14 s",
		80: "docs.python.org  ━━━━━━━╸──────────   42/100  no answer from the server for 14 s",
		60: "━━━━━━━━━━━━━──────────────────   42/100  no answer for 14 s",
		40: "━━━━╸──────   42/100  no answer for 14 s",
		20: "42/100 no answer",
	} {
		got := rows(m.snapshot(now.Add(14*time.Second+100*time.Millisecond)), width, false)[0]
		if got != want {
			t.Errorf("%d columns: %q, wanted %q", width, got, want)
		}
	}
	if got := silenceText(2*time.Minute, 40); got != "no answer for 2 min" {
		t.Errorf("%q", got)
	}
	j := running("")
	m.update(&j, now.Add(20*time.Second))
	if got := rows(m.snapshot(now.Add(20*time.Second)), 80, false)[0]; !strings.Contains(got, "pages/s") {
		t.Errorf("the server answers again, and the bar says %q", got)
	}
	j.State = client.Completed
	m.update(&j, now.Add(21*time.Second))
	if s := m.snapshot(now.Add(time.Hour)); s.silent != 0 {
		t.Error("a job that ended is silent")
	}
}

func TestPlainLinesLookAsTheyShould(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, c := range shownJobs() {
		m, now := modelOf(c.job)
		text.WriteString(plainStatus(m.snapshot(now), "") + "\n")
	}
	golden(t, "plain.txtar", []txtar.File{{Name: "plain", Data: []byte(text.String())}})
}

func TestSummariesLookAsTheyShould(t *testing.T) {
	t.Parallel()
	failed := []client.PageError{
		{
			SourceURL: "https://docs.python.org/3/missing", ErrorType: "http_404", Status: 404,
			DiscoveredOn: "https://docs.python.org/3/",
		},
		{
			SourceURL: "https://docs.python.org/3/library/a-long-path/to-a-page/that-is-slow.html", ErrorType: "timeout",
			Message: "No answer within 30 s.", DiscoveredOn: "https://docs.python.org/3/library/index.html",
		},
		{URL: "https://docs.python.org/3/odd", ErrorType: "new_kind"},
	}
	var got []txtar.File
	for _, c := range shownJobs() {
		if !c.job.State.Terminal() && c.name != "running" {
			continue
		}
		for _, width := range []int{0, 120, 80, 40, 20} {
			var b strings.Builder
			n := min(int64(len(failed)), c.job.Failed)
			if c.name == "completed with errors" {
				n = 3 // more than it knows of: the list was read later
			}
			Summarize(&b, &c.job, failed[:n], SummaryOptions{Width: width})
			got = append(got, txtar.File{Name: fmt.Sprintf("%s, %d columns", c.name, width), Data: []byte(b.String())})
		}
	}
	golden(t, "summary.txtar", got)
}
