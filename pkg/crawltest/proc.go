package crawltest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaries are the programs that this test binary built, each once.
var binaries sync.Map // import path → func() (string, error)

// Build builds a main package, once for all tests of the binary, and returns
// the path of the program. It is as it is shipped, without cgo and the race detector: what runs in it
// the tests of its packages run with that detector.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // the program outlives the test that was first
	once, _ := binaries.LoadOrStore(pkg, sync.OnceValues(func() (string, error) { return build(ctx, pkg) }))
	bin, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

func build(ctx context.Context, pkg string) (string, error) {
	dir, err := sharedDir()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, path.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return bin, nil
}

// Proc is a running program. What it writes goes to the log of the test when
// the test fails.
type Proc struct {
	t     testing.TB
	name  string
	child *child
}

// Run builds the main package pkg (see [Build]) and runs it with the given
// environment, "NAME=value" each, until the test ends. Of the test's own
// environment it gets all but TRAWL_…, which would be settings of the program.
func Run(t testing.TB, pkg string, env []string, args ...string) *Proc {
	t.Helper()
	cmd := exec.Command(Build(t, pkg), args...) //nolint:noctx // a test kills it, or the end of the test
	for _, kv := range os.Environ() {
		// A test that runs under systemd must not have its children speak for it.
		if !strings.HasPrefix(kv, "TRAWL_") && !strings.HasPrefix(kv, "OTEL_") &&
			!strings.HasPrefix(kv, "NOTIFY_SOCKET=") && !strings.HasPrefix(kv, "WATCHDOG_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.Dir = t.TempDir()
	c, err := startChild(cmd)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proc{t: t, name: path.Base(pkg), child: c}
	t.Cleanup(func() {
		p.child.kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", p.name, p.Output())
		}
	})
	return p
}

// WaitFor waits until the program has written a line that matches the regular
// expression re, and returns the match and its groups. The test fails when it
// has not within the given time, or ends before.
func (p *Proc) WaitFor(within time.Duration, re string) []string {
	p.t.Helper()
	want := regexp.MustCompile(re)
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		match, more := p.child.out.find(want)
		if match != nil {
			return match
		}
		select {
		case <-more:
		case <-p.child.done:
			if match, _ := p.child.out.find(want); match != nil {
				return match
			}
			p.t.Fatalf("%s ended (%v) and wrote nothing like %q", p.name, p.child.cmd.ProcessState, re)
		case <-timer.C:
			p.t.Fatalf("after %v %s has written nothing like %q", within, p.name, re)
		}
	}
}

// Output returns all that the program has written so far, both streams.
func (p *Proc) Output() string { return p.child.out.String() }

// PID returns the id of the process.
func (p *Proc) PID() int { return p.child.cmd.Process.Pid }

// Kill ends the program by SIGKILL and returns when it has ended.
func (p *Proc) Kill() { p.child.kill() }

// Signal sends sig to the program.
func (p *Proc) Signal(sig os.Signal) { p.child.signal(sig) }

// Terminate sends SIGTERM and returns the exit code. The test fails when the
// program has not ended within the given time.
func (p *Proc) Terminate(within time.Duration) int {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Wait(within)
}

// Wait waits for the program to end by itself and returns its exit code, -1
// when a signal ended it. The test fails when it has not ended within the given time.
func (p *Proc) Wait(within time.Duration) int {
	p.t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.child.done:
	case <-timer.C:
		select {
		case <-p.child.done: // both were ready
		default:
			p.t.Fatalf("after %v %s has not ended", within, p.name)
		}
	}
	return p.child.cmd.ProcessState.ExitCode()
}

// Done is closed when the program has ended.
func (p *Proc) Done() <-chan struct{} { return p.child.done }
