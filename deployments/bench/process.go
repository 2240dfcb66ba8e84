package main

import (
	"bufio"
	"context"
	"encoding/json"
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

	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
)

// outcome is what a contender measured of its own crawl.
type outcome struct {
	Pages     float64 `json:"pages"` // distinct
	Fetches   float64 `json:"fetches"`
	Seconds   float64 `json:"seconds"`
	CPUMicros float64 `json:"cpu_us"`
	PeakMiB   float64 `json:"peak_mib"`
	Trips     float64 `json:"trips"`
}

// child is a process that ends with the bench.
type child struct {
	cmd *exec.Cmd
	out *bufio.Reader
	url string
}

// startSelf starts this program in a role.
func startSelf(ctx context.Context, o options, role, redisURL, start string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find myself: %w", err)
	}
	cmd := exec.CommandContext(ctx, exe, "--role", role, "--redis", redisURL, "--start", start,
		"--pages", strconv.Itoa(o.Pages), "--links", strconv.Itoa(o.Links), "--bytes", strconv.Itoa(o.Bytes),
		"--in-flight", strconv.Itoa(o.InFlight), "--profile", o.Profile, "--latency", o.Latency.String(),
		"--extract="+strconv.FormatBool(o.Extract), "--most", strconv.Itoa(o.Most), "--manual", o.Manual)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	return &child{cmd: cmd, out: bufio.NewReader(out)}, nil
}

// line reads the next line of a child, which has ten seconds to write it.
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
	case <-time.After(10 * time.Second):
		return "", errors.New("no line in time")
	}
}

func (c *child) stop() {
	_ = c.cmd.Process.Kill() // it holds nothing
	_ = c.cmd.Wait()
}

// contender runs a role to its end and reads its outcome.
func contender(ctx context.Context, o options, role, redisURL, start string) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	c, err := startSelf(ctx, o, role, redisURL, start)
	if err != nil {
		return outcome{}, err
	}
	b, err := io.ReadAll(c.out)
	if err = errors.Join(err, c.cmd.Wait()); err != nil {
		return outcome{}, fmt.Errorf("%s: %w", role, err)
	}
	var r outcome
	if err := json.Unmarshal(b, &r); err != nil {
		return outcome{}, fmt.Errorf("%s said %q: %w", role, b, err)
	}
	return r, nil
}

// startRedis starts a redis-server on a free port, without persistence unless args say otherwise.
func startRedis(ctx context.Context, args ...string) (*child, error) {
	exe, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("bench needs redis-server on PATH (Debian: apt-get install redis-server): %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	cmd := exec.CommandContext(ctx, exe, append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no",
	}, args...)...)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	c := &child{cmd: cmd, url: fmt.Sprintf("redis://127.0.0.1:%d/0", port)}
	rdb, err := redisconn.Open(c.url, redisconn.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = rdb.Close() }()
	st := store.New(rdb, store.Options{})
	for range 100 {
		if err = st.Ready(ctx); err == nil {
			return c, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	c.stop()
	return nil, fmt.Errorf("redis-server did not answer: %w", err)
}

// usage answers the CPU time of this process in µs and its peak memory.
func usage() (cpuMicros, peakMiB float64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	micros := func(t syscall.Timeval) float64 { return float64(t.Sec)*1e6 + float64(t.Usec) }
	return micros(u.Utime) + micros(u.Stime), float64(u.Maxrss) / 1024
}
