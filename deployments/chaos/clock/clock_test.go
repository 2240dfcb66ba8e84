package clock

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOverlayOfThisGo: the time package of the Go that runs the test can be replaced. It is not built, which takes a
// minute; the line that is looked for, and that the sources are Go, is what can go wrong with a new Go.
func TestOverlayOfThisGo(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("needs the go command: %v", err)
	}
	goroot, dir, main := strings.TrimSpace(string(out)), t.TempDir(), t.TempDir()
	path, err := Overlay(dir, goroot, main)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Replace map[string]string }
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	std := filepath.Join(goroot, "src", "time")
	for _, name := range []string{filepath.Join(std, "time.go"), filepath.Join(std, "jump.go"), filepath.Join(main, "clock_jump.go")} {
		if list.Replace[name] == "" || len(list.Replace) != 3 {
			t.Fatalf("%s is not replaced: %v", name, list.Replace)
		}
	}
	for replaced, by := range list.Replace {
		source, err := os.ReadFile(by)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), by, source, parser.AllErrors); err != nil {
			t.Errorf("%s is no Go: %v", by, err)
		}
		if filepath.Base(replaced) == "time.go" && strings.Count(string(source), now+off) != 1 {
			t.Error("the jump is not in the source")
		}
	}
}

// TestPatch: a source that reads the clock in no place, or in two, is refused, and the message says what to do.
func TestPatch(t *testing.T) {
	t.Parallel()
	for source, ok := range map[string]bool{
		"a\n" + now + "b\n":         true,
		"a\n":                       false,
		"a\n" + now + "b\n" + now:   false,
		strings.TrimSpace(now) + "": false,
	} {
		got, err := patch(source)
		switch {
		case ok && (err != nil || got != "a\n"+now+off+"b\n"):
			t.Errorf("%q became %q, %v", source, got, err)
		case !ok && (err == nil || !strings.Contains(err.Error(), "--no-clock")):
			t.Errorf("%q: %v", source, err)
		}
	}
}
