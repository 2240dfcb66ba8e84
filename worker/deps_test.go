package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDependencies holds what the worker's binary does not link, and why.
func TestDependencies(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "example.com/trawl/worker/crawler") {
		t.Fatalf("the list is not that of the worker: %d packages", len(deps))
	}
	for _, banned := range []struct{ path, why string }{
		{"example.com/trawl/api", "the worker serves no HTTP API"},
		{"example.com/trawl/pkg/crawltest", "it is for tests"},
		{"github.com/gin-gonic/gin", "its home is api/httpapi"},
		{"github.com/danielgtaylor/huma", "its home is api/httpapi"},
		{"github.com/alicebob/miniredis", "a worker shares a Redis with others"},
		{"testing", "it adds flags to the program and says that test code is linked"},
	} {
		for _, d := range deps {
			if d == banned.path || strings.HasPrefix(d, banned.path+"/") {
				t.Errorf("the worker links %s, but %s", d, banned.why)
			}
		}
	}
}
