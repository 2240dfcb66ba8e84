package crawl

import (
	"strings"
	"testing"
)

func TestNewJobID(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, in := range [][2]string{{"a", "k"}, {"a", "K"}, {"b", "k"}, {"ab", "k"}, {"a", "bk"}, {"a", strings.Repeat("x", 255)}} {
		id := NewJobID(in[0], in[1])
		if id != NewJobID(in[0], in[1]) {
			t.Errorf("%q: the id of a key changes", in)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%q and %q share an id", in, other)
		}
		seen[id] = in[0] + "/" + in[1]
		if !ValidJobID(id) {
			t.Errorf("%q is no valid id", id)
		}
	}
	for range 100 {
		id := NewJobID("a", "")
		if _, ok := seen[id]; ok || !ValidJobID(id) {
			t.Fatalf("without a key: %q is not new or not valid", id)
		}
		seen[id] = "random"
	}
}

func TestValidNames(t *testing.T) {
	t.Parallel()
	good := "j" + strings.Repeat("a", 26)
	for _, tt := range []struct {
		name       string
		id, tenant bool
	}{
		{good, true, true},
		{"j" + strings.Repeat("7", 26), true, true},
		{"j" + strings.Repeat("1", 26), false, true}, // 0, 1, 8 and 9 are not in base32
		{good + "a", false, true},
		{good[:26], false, true},
		{"J" + good[1:], false, false},
		{good + "\n", false, false},
		{"k" + good[1:], false, true},
		{"a", false, true},
		{"0_-", false, true},
		{"_a", false, false},
		{"-a", false, false},
		{strings.Repeat("a", 63), false, true},
		{strings.Repeat("a", 64), false, false},
		{"", false, false},
		{"A", false, false},
		{"a:b", false, false},
		{"a}b", false, false},
		{"../x", false, false},
		{"é", false, false},
	} {
		if got := ValidJobID(tt.name); got != tt.id {
			t.Errorf("ValidJobID(%q) = %v", tt.name, got)
		}
		if got := ValidTenant(tt.name); got != tt.tenant {
			t.Errorf("ValidTenant(%q) = %v", tt.name, got)
		}
	}
}

// Promise 1 is a rule about every count: each one that is off is noticed.
func TestConsistent(t *testing.T) {
	t.Parallel()
	good := Job{
		Total: 28, Queued: 1, Active: 2, Deferred: 3, Accepted: 4, Failed: 5, Skipped: 6, Cancelled: 7, Processed: 15,
	}
	if !good.Consistent() || !(&Job{}).Consistent() {
		t.Error("counts that add up are taken for inconsistent")
	}
	for name, change := range map[string]func(*Job){
		"total": func(j *Job) { j.Total++ }, "queued": func(j *Job) { j.Queued++ }, "active": func(j *Job) { j.Active++ },
		"deferred": func(j *Job) { j.Deferred++ }, "accepted": func(j *Job) { j.Accepted++ },
		"failed": func(j *Job) { j.Failed++ }, "skipped": func(j *Job) { j.Skipped++ },
		"cancelled": func(j *Job) { j.Cancelled++ }, "processed": func(j *Job) { j.Processed++ },
	} {
		j := good
		change(&j)
		if j.Consistent() {
			t.Errorf("one more %s goes unnoticed", name)
		}
	}
}

func TestItemTarget(t *testing.T) {
	t.Parallel()
	it := Item{URL: "http://a.test/"}
	if got := it.Target(); got != it.URL {
		t.Errorf("got %q", got)
	}
	it.FetchURL = "http://b.test/"
	if got := it.Target(); got != it.FetchURL {
		t.Errorf("after a redirect: got %q", got)
	}
}
