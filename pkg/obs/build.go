package obs

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// version is what a build is called. A build that knows sets it:
//
//	go build -ldflags "-X example.com/trawl/pkg/obs.version=v1.2.3"
//
// Empty, it is what the Go tool took from version control.
var version string

// Build is which program runs.
type Build struct {
	Version  string // as the build was told, or the module's; "unknown" when nobody says
	Revision string // commit, with "-dirty" behind it when something was changed; "unknown" likewise
	Go       string // version of the Go tool that built it
}

// BuildInfo returns what is known of the running program.
func BuildInfo() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info, version)
}

func buildOf(info *debug.BuildInfo, version string) Build {
	const unknown = "unknown"
	b := Build{
		Version: cmp.Or(version, info.Main.Version, unknown), Go: cmp.Or(info.GoVersion, runtime.Version()),
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if b.Revision == "" {
		b.Revision = unknown
	} else {
		b.Revision += dirty
	}
	return b
}

// buildMetric is a constant 1: what it says is in its labels, to be joined with other metrics.
func buildMetric(b Build) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "trawl_build_info",
		Help:        "1, with the version, the commit and the Go version of the program that runs.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "go": b.Go},
	})
	g.Set(1)
	return g
}
