// Package deploytest is what the tests of how Trawl is deployed stand on. What a machine lacks for
// them is skipped, unless TRAWL_REQUIRE_DEPLOY=1 asks for every one, as .ci/deployments does.
package deploytest

import (
	"os"
	"os/exec"
	"testing"
)

func required() bool { return os.Getenv("TRAWL_REQUIRE_DEPLOY") == "1" }

// Tool returns the path of a program, or ends the test.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		lack(t, name+" is not on PATH; .ci/deployments builds or names it")
	}
	return path
}

// OnDemand ends the test unless every one is asked for: it takes minutes when nothing is cached.
func OnDemand(t testing.TB) {
	t.Helper()
	if !required() {
		t.Skip("TRAWL_REQUIRE_DEPLOY=1 is not set, and this test builds programs as for an image")
	}
}

// Root ends the test of who is not root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		lack(t, "only root can change to the root and the user of a container")
	}
}

func lack(t testing.TB, what string) {
	t.Helper()
	if required() {
		t.Fatal(what)
	}
	t.Skip(what)
}
