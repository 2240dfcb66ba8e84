package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What the HTTP process must not link, and why. A path that is gone altogether
// would be "not linked" for ever, so each must still exist.
var forbidden = map[string]string{
	"github.com/gocolly/colly/v2":      "fetching is the worker's; the API never dials what it is told to crawl",
	"github.com/alicebob/miniredis/v2": "a Redis for tests and the all-in-one only",
	"testing":                          "test code in a product registers flags and hides what is used",
	"example.com/trawl/worker/fetch":   "api and worker meet in pkg only",
	"example.com/trawl/pkg/crawltest":  "for tests",
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list %s: %v", strings.Join(args, " "), err)
	}
	return strings.Fields(string(out))
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	linked := goList(t, "-deps", ".")
	for path, reason := range forbidden {
		if slices.Contains(linked, path) {
			t.Errorf("the API links %s: %s", path, reason)
		}
		if got := goList(t, "-find", path); !slices.Equal(got, []string{path}) {
			t.Errorf("%s is not there any more (%q): correct the list", path, got)
		}
	}
	if !slices.Contains(linked, "github.com/gin-gonic/gin") {
		t.Error("the list of what is linked is not that of the API")
	}
}
