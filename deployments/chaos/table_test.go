package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/trawl/deployments/chaos/check"
)

func aResult() *result {
	r := &result{
		Commit: "abc1234 dirty", Seed: 42, Minutes: 10, Machine: "2 cores", Kills: 110, KillsDue: 100,
		Faults: map[kind]int{}, Demanded: map[kind]int{}, Links: map[string]int{"cut a to b": 14, "cut c to d": 10, "latency a to b": 24},
		Checks: check.Report{
			Jobs: 300, JobsByState: map[string]int{"completed": 290, "cancelled": 10}, Pages: 12345, StatusReads: 50_000,
			LongestCancel: 4.25, Cancels: 12,
		},
		LongestRecovery: 17.26, Recoveries: 90,
	}
	for _, k := range kinds() {
		r.Faults[k], r.Demanded[k] = 24, 20
	}
	return r
}

// TestTable: the table has every figure that is to stand in the README.
func TestTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := aResult().write(&b); err != nil {
		t.Fatal(err)
	}
	table := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"commit abc1234 dirty seed 42 minutes 10 machine 2 cores", "kills by SIGKILL 110 (100 demanded)",
		"faults cut 24 (20 demanded): a to b 14, c to d 10 faults", "jobs 300 (cancelled 10, completed 290)", "pages 12345",
		"pages recorded twice 0", "pages lost 0", "invariant violations 0", "longest recovery 17.3 s of 90", "longest cancel 4.2 s of 12",
		"reads of a status 50000",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	for _, k := range kinds() {
		if !strings.Contains(table, "faults "+string(k)+" 24 (20 demanded)") {
			t.Errorf("%s is not in\n%s", k, b.String())
		}
	}
	if strings.Contains(table, "violation:") || strings.Contains(table, "too few:") {
		t.Errorf("something is wrong in\n%s", b.String())
	}
}

// TestResultFails: each of what must not be fails a run, and is told.
func TestResultFails(t *testing.T) {
	t.Parallel()
	if aResult().failed() {
		t.Error("nothing is wrong, and the run failed")
	}
	for _, tt := range []struct {
		name, told string
		change     func(*result)
	}{
		{"lost", "pages lost 1", func(r *result) { r.Checks.Lost = 1 }},
		{"double", "recorded twice 1", func(r *result) { r.Checks.Double = 1 }},
		{"violation", "violation: a count fell", func(r *result) {
			r.Checks.Violated, r.Checks.Violations = 1, []string{"a count fell"}
		}},
		{"a process ended", "violations 1", func(r *result) { r.Broken = []string{"it ended"} }},
		{"too few", "too few: cuts", func(r *result) { r.Lacking = []string{"cuts"} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := aResult()
			tt.change(r)
			var b strings.Builder
			if err := r.write(&b); err != nil {
				t.Fatal(err)
			}
			if table := strings.Join(strings.Fields(b.String()), " "); !r.failed() || !strings.Contains(table, tt.told) {
				t.Errorf("failed: %v, told\n%s", r.failed(), b.String())
			}
		})
	}
}

// TestFirstViolationsInWords: ten are told, and how many more there are.
func TestFirstViolationsInWords(t *testing.T) {
	t.Parallel()
	r := aResult()
	for range toldViolations + 5 {
		r.Broken = append(r.Broken, "it ended")
	}
	words := r.inWords()
	if strings.Count(words, "violation:") != toldViolations || !strings.Contains(words, "and 5 more") {
		t.Error(words)
	}
}

func TestResultIsSaved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "result.json")
	if err := aResult().save(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Seed   int64          `json:"seed"`
		Faults map[string]int `json:"faults"`
		Checks struct {
			Jobs int `json:"jobs"`
		} `json:"checks"`
	}
	if err := json.Unmarshal(b, &got); err != nil || got.Seed != 42 || got.Faults["worker-kill"] != 24 || got.Checks.Jobs != 300 {
		t.Errorf("%+v, %v", got, err)
	}
}
