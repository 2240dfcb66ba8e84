package obs

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestBuildOf(t *testing.T) {
	t.Parallel()
	vcs := func(revision, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{
			GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.0.1-2026"},
			Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: modified}, {Key: "vcs.revision", Value: revision}},
		}
	}
	for _, tc := range []struct {
		name string
		info *debug.BuildInfo
		set  string
		want Build
	}{
		{"from version control", vcs("abc", "false"), "", Build{"v0.0.1-2026", "abc", "go1.26.0"}},
		{"changed since", vcs("abc", "true"), "", Build{"v0.0.1-2026", "abc-dirty", "go1.26.0"}},
		{"told", vcs("abc", "false"), "v1.2.3", Build{"v1.2.3", "abc", "go1.26.0"}},
		{"nobody knows", &debug.BuildInfo{GoVersion: "go1"}, "", Build{"unknown", "unknown", "go1"}},
		{"changed, but what", vcs("", "true"), "", Build{"v0.0.1-2026", "unknown", "go1.26.0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tc.want, buildOf(tc.info, tc.set)); d != "" {
				t.Error(d)
			}
		})
	}
}

// Every process says what it is, once.
func TestBuildMetric(t *testing.T) {
	t.Parallel()
	if n, err := testutil.GatherAndCount(NewRegistry(), "trawl_build_info"); n != 1 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
	m := buildMetric(Build{Version: `v1"`, Revision: "abc", Go: "go1.26"})
	want := `
		# HELP trawl_build_info 1, with the version, the commit and the Go version of the program that runs.
		# TYPE trawl_build_info gauge
		trawl_build_info{go="go1.26",revision="abc",version="v1\""} 1
	`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if faults, err := testutil.CollectAndLint(m); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
}
