// Package clock builds a program whose wall clock can be set while it runs, as NTP or an operator sets that of a
// machine: the monotonic clock, by which timers run, goes on. It is done by compiling another package time into the
// program (go build -overlay); neither the program nor the Go installation is touched.
package clock

import (
	_ "embed" // for the sources that are put into the program
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The signals that set the clock of a program that is built with an [Overlay]: five minutes ahead, five minutes back.
// A program that has not begun to run its main function may be killed by them.
const (
	Ahead = syscall.SIGUSR1
	Back  = syscall.SIGUSR2
)

var (
	//go:embed jump.go.txt
	jump []byte
	//go:embed worker.go.txt
	handler []byte
)

const (
	// now is the line of time.Now that reads the clocks, in Go 1.26.
	now = "\tsec, nsec, mono := runtimeNow()\n"
	// off is added to it.
	off = "\tsec += Jump.Load()\n"
)

// Overlay writes to dir what "go build -overlay" needs to build the package main in the folder mainDir, whose
// clock then follows [Ahead] and [Back], and answers the path of the file to name. It fails when the time package
// below goroot does not read the clock as it is known to.
func Overlay(dir, goroot, mainDir string) (string, error) {
	std := filepath.Join(goroot, "src", "time", "time.go")
	source, err := os.ReadFile(std)
	if err != nil {
		return "", fmt.Errorf("read the time package of Go: %w", err)
	}
	patched, err := patch(string(source))
	if err != nil {
		return "", fmt.Errorf("%s: %w", std, err)
	}
	replace := map[string]string{}
	for _, f := range []struct {
		name, replaces string
		source         []byte
	}{
		{"time.go", std, []byte(patched)},
		{"jump.go", filepath.Join(goroot, "src", "time", "jump.go"), jump},
		{"handler.go", filepath.Join(mainDir, "clock_jump.go"), handler},
	} {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, f.source, 0o600); err != nil {
			return "", fmt.Errorf("write the overlay: %w", err)
		}
		replace[f.replaces] = path
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, list, 0o600); err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return path, nil
}

// patch puts the jump into the source of package time. There are other readers of the clock in it, as Since, which
// use the monotonic clock alone.
func patch(source string) (string, error) {
	if n := strings.Count(source, now); n != 1 {
		return "", fmt.Errorf("the line %q is there %d times, want once: this Go reads its clock in another way; "+
			"run without clock jumps (--no-clock) or teach package clock this version", strings.TrimSpace(now), n)
	}
	return strings.Replace(source, now, now+off, 1), nil
}
