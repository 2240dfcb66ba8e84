package main

import (
	"os"
	"path/filepath"
	"testing"

	"example.com/trawl/pkg/crawltest"
)

// TestMain lets the binary of the tests be what bench starts of itself, see [roles].
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "--role" {
		main()
		return
	}
	crawltest.Main(m)
}

// rigOf answers a rig of its own for a test, with programs that are built once for all. Without redis-server the test
// is skipped.
func rigOf(t *testing.T, o options) *rig {
	t.Helper()
	crawltest.Real(t) // or skips the test
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return &rig{
		o: o, dir: t.TempDir(), root: root, api: crawltest.Build(t, module+"/api"), worker: crawltest.Build(t, module+"/worker"),
	}
}
