package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The command is made of both processes, and of no test code.
func TestDependencies(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	for _, path := range []string{"testing", "example.com/trawl/pkg/crawltest"} {
		if slices.Contains(linked, path) {
			t.Errorf("the command links %s, which is for tests", path)
		}
	}
	if !slices.Contains(linked, "example.com/trawl/deployments/allinone") {
		t.Error("the list of what is linked is not that of the command")
	}
}
