package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process that ends with the bench.
type child struct {
	name string
	cmd  *exec.Cmd
	out  *bufio.Reader // what it writes; nil where that goes to a log
	// profile is the file that its CPU profile goes to; empty where none is asked for.
	profile string
}

// startSelf starts this program in a role.
func (r *rig) startSelf(ctx context.Context, o options, role string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find myself: %w", err)
	}
	cmd := exec.CommandContext(ctx, exe, "--role", role, "--start", o.Start,
		"--pages", strconv.Itoa(o.Pages), "--links", strconv.Itoa(o.Links), "--bytes", strconv.Itoa(o.Bytes),
		"--in-flight", strconv.Itoa(o.InFlight), "--latency", o.Latency.String(), "--hosts", strconv.Itoa(max(1, o.Hosts)),
		"--site", o.Site, "--manual", o.Manual, "--tell", o.Tell)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	return &child{name: role, cmd: cmd, out: bufio.NewReader(out)}, nil
}

// startProgram starts a program whose output goes to a log in the directory of the rig.
func (r *rig) startProgram(ctx context.Context, name string, env []string, path string, args ...string) (*child, error) {
	r.started++
	log, err := os.Create(fmt.Sprintf("%s/%s-%d.log", r.dir, name, r.started))
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = env, log, log, r.dir
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &child{name: name, cmd: cmd}, nil
}

// line reads the next line of a child, which has half a minute to write it.
func (c *child) line() (string, error) {
	type answer struct {
		s   string
		err error
	}
	ch := make(chan answer, 1)
	go func() { s, err := c.out.ReadString('\n'); ch <- answer{strings.TrimSpace(s), err} }()
	select {
	case a := <-ch:
		return a.s, a.err
	case <-time.After(30 * time.Second):
		return "", errors.New("no line in time")
	}
}

// rest reads all that a child still writes, and waits for its end. What it used is that of its [exec.Cmd]'s
// ProcessState then.
func (c *child) rest() ([]byte, error) {
	b, err := io.ReadAll(c.out)
	if err = errors.Join(err, c.cmd.Wait()); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return b, nil
}

// stop ends a child at once: it holds nothing that is needed.
func (c *child) stop() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// freeAddress answers an address of the loopback that nobody listens on.
func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// ticksPerSecond is USER_HZ, in which Linux tells of CPU time: 100 on every platform that Go runs on.
const ticksPerSecond = 100

// cpu answers the CPU seconds (user and system) of a running process so far, to 10 ms.
func (c *child) cpu() (float64, error) {
	stat, err := os.ReadFile(c.proc("stat"))
	if err != nil {
		return 0, fmt.Errorf("CPU of %s: %w", c.name, err)
	}
	// The name of the program, in parentheses, may hold anything. utime and stime are the 14th and 15th.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ticks := 0.0
	for _, f := range fields[11:13] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU of %s: %w", c.name, err)
		}
		ticks += n
	}
	return ticks / ticksPerSecond, nil
}

// forgetPeak has the peak of the memory of a process begin anew.
func (c *child) forgetPeak() error { return os.WriteFile(c.proc("clear_refs"), []byte("5"), 0) }

// peak answers the most memory that a running process had resident, in MiB, since it began or [child.forgetPeak].
func (c *child) peak() (float64, error) { return c.status("VmHWM:") }

// resident answers the memory that a running process has resident now, in MiB.
func (c *child) resident() (float64, error) { return c.status("VmRSS:") }

func (c *child) status(line string) (float64, error) {
	status, err := os.ReadFile(c.proc("status"))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", c.name, err)
	}
	_, after, _ := strings.Cut(string(status), line)
	kib := 0.0
	if _, err := fmt.Sscan(after, &kib); err != nil {
		return 0, fmt.Errorf("memory of %s: %w", c.name, err)
	}
	return kib / 1024, nil
}

func (c *child) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", c.cmd.Process.Pid, name) }

// spent is what processes of one kind used between two moments.
type spent struct {
	CPU     float64 // seconds of all of them
	PeakMiB float64 // of the greatest
}

// meter measures processes from its start on.
type meter struct {
	begun time.Time
	of    []*child
	cpu   []float64
}

// newMeter starts to measure.
func newMeter(of ...*child) (*meter, error) {
	m := &meter{of: of, cpu: make([]float64, len(of))}
	for i, c := range of {
		var err error
		if m.cpu[i], err = c.cpu(); err != nil {
			return nil, err
		}
		if err := c.forgetPeak(); err != nil {
			return nil, fmt.Errorf("memory of %s: %w", c.name, err)
		}
	}
	m.begun = time.Now()
	return m, nil
}

// read answers the seconds since the start, and what the processes used since then by their names.
func (m *meter) read() (seconds float64, used map[string]spent, err error) {
	seconds, used = time.Since(m.begun).Seconds(), map[string]spent{}
	for i, c := range m.of {
		now, err := c.cpu()
		if err != nil {
			return 0, nil, err
		}
		peak, err := c.peak()
		if err != nil {
			return 0, nil, err
		}
		s := used[c.name]
		used[c.name] = spent{CPU: s.CPU + now - m.cpu[i], PeakMiB: max(s.PeakMiB, peak)}
	}
	return seconds, used, nil
}

// ownCPU answers the CPU time of this process so far, in µs.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	micros := func(t syscall.Timeval) float64 { return float64(t.Sec)*1e6 + float64(t.Usec) }
	return micros(u.Utime) + micros(u.Stime)
}
