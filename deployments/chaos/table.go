package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"example.com/trawl/deployments/chaos/check"
)

// result is what a run found. Durations are in seconds.
type result struct {
	Commit  string  `json:"commit"`
	Seed    int64   `json:"seed"`
	Minutes float64 `json:"minutes"`
	Machine string  `json:"machine"`

	Faults   map[kind]int   `json:"faults"`
	Demanded map[kind]int   `json:"faults_demanded"`
	Links    map[string]int `json:"faults_of_links"` // by kind and link
	Kills    int            `json:"kills"`           // of processes, by SIGKILL
	KillsDue int            `json:"kills_demanded"`
	Missed   []string       `json:"faults_missed"` // they found nothing to be done to

	Checks check.Report `json:"checks"`
	// Broken are the promises that the harness itself saw broken, Lacking what was not done that must be.
	Broken  []string `json:"broken"`
	Lacking []string `json:"lacking"`

	Recoveries           int     `json:"recoveries"`
	LongestRecovery      float64 `json:"longest_recovery_s"`
	RecoveriesRedis      int     `json:"recoveries_with_redis_faulted"`
	LongestRecoveryRedis float64 `json:"longest_recovery_with_redis_faulted_s"`
	SlowestWorkerTerm    float64 `json:"slowest_worker_term_s"`
	SlowestAPITerm       float64 `json:"slowest_api_term_s"`
	Drained              float64 `json:"drained_s"` // from the last fault until all was read and judged
}

// violations counts the promises broken.
func (r *result) violations() int { return r.Checks.Violated + len(r.Broken) }

// failed reports whether the run shows less than it must.
func (r *result) failed() bool {
	return r.violations() > 0 || r.Checks.Lost > 0 || r.Checks.Double > 0 || len(r.Lacking) > 0
}

// toldViolations is how many violations the table has in words.
const toldViolations = 10

// write writes the table.
func (r *result) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { _, _ = fmt.Fprintf(t, name+"\t"+format+"\n", args...) } // Flush tells
	row("commit", "%s", r.Commit)
	row("seed", "%d", r.Seed)
	row("minutes", "%g", r.Minutes)
	row("machine", "%s", r.Machine)
	row("", "")
	for _, k := range slices.SortedFunc(maps.Keys(r.Demanded), byTable) {
		row("faults "+string(k), "%d (%d demanded)%s", r.Faults[k], r.Demanded[k], r.splitOf(k))
	}
	row("kills by SIGKILL", "%d (%d demanded)", r.Kills, r.KillsDue)
	row("", "")
	row("jobs", "%d (%s)", r.Checks.Jobs, counts(r.Checks.JobsByState))
	row("pages", "%d (%s)", r.Checks.Pages, counts(r.Checks.PagesByState))
	row("pages failed", "%s", cmp.Or(counts(r.Checks.FailedByType), "0"))
	row("submissions", "%d (%d sent again, %d replayed)", r.Checks.Submissions, r.Checks.Repeats, r.Checks.Replays)
	row("reads of a status", "%d by HTTP, %d in Redis", r.Checks.StatusReads, r.Checks.RedisLooks)
	row("", "")
	row("pages recorded twice", "%d", r.Checks.Double)
	row("pages lost", "%d", r.Checks.Lost)
	row("invariant violations", "%d", r.violations())
	row("longest recovery", "%.1f s of %d; %.1f s of %d with Redis faulted meanwhile",
		r.LongestRecovery, r.Recoveries, r.LongestRecoveryRedis, r.RecoveriesRedis)
	row("longest cancel", "%.1f s of %d; %.1f s of %d under faults of Redis, API or links",
		r.Checks.LongestCancel, r.Checks.Cancels, r.Checks.LongestCancelFaulty, r.Checks.CancelsUnderFaults)
	row("longest pause", "%.1f s; %.1f s under faults", r.Checks.LongestPause, r.Checks.LongestPauseFaulty)
	row("slowest end by SIGTERM", "worker %.1f s, API %.1f s", r.SlowestWorkerTerm, r.SlowestAPITerm)
	row("drained and judged", "%.1f s after the last fault", r.Drained)
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	_, err := io.WriteString(w, r.inWords())
	return err
}

// inWords says what is wrong.
func (r *result) inWords() string {
	var b strings.Builder
	told := append(slices.Clone(r.Broken), r.Checks.Violations...)
	for i, v := range told {
		if i == toldViolations {
			_, _ = fmt.Fprintf(&b, "… and %d more\n", len(told)-i)
			break
		}
		_, _ = fmt.Fprintf(&b, "violation: %s\n", v)
	}
	for _, l := range r.Lacking {
		_, _ = fmt.Fprintf(&b, "too few: %s\n", l)
	}
	if b.Len() > 0 {
		return "\n" + b.String()
	}
	return ""
}

// splitOf says on which links the faults of a kind were.
func (r *result) splitOf(k kind) string {
	if traitOf(k).class != ofLink {
		return ""
	}
	of := map[string]int{}
	for name, n := range r.Links {
		if link, ok := strings.CutPrefix(name, string(k)+" "); ok {
			of[link] = n
		}
	}
	return ": " + counts(of)
}

// byTable orders kinds as [traits] do.
func byTable(a, b kind) int {
	place := func(k kind) int { return slices.IndexFunc(traits, func(t trait) bool { return t.kind == k }) }
	return cmp.Compare(place(a), place(b))
}

// counts writes numbers by name, ordered by name.
func counts[N int | int64](of map[string]N) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, of[name]))
	}
	return strings.Join(parts, ", ")
}

// save writes the result as JSON to a file.
func (r *result) save(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
