package allinone_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The process opens no port but that of its API: what any user of the machine reaches, has
// to be made for strangers.
//
//nolint:paralleltest // it counts the ports of the whole process
func TestPorts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the ports of a process are read from /proc")
	}
	before := listening(t)
	o, key := options(t)
	p, c := run(t, o, key)
	if _, err := c.Job(t.Context(), "none"); err == nil { // the store answers
		t.Error("a job that was never submitted")
	}
	if now := listening(t); now != before+1 {
		t.Errorf("%d ports more are open, want that of the API %s alone", now-before, p.URL())
	}
}

// listening is how many sockets of this process take connections.
func listening(t *testing.T) int {
	t.Helper()
	inodes := map[string]bool{}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6", "/proc/self/net/unix"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue // a kernel without it has none of them
		}
		state, inode, listens := 3, 9, "0A"
		if strings.HasSuffix(table, "unix") {
			state, inode, listens = 3, 6, "00010000" // the flags, of which one is that it accepts
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > inode && f[state] == listens {
				inodes[f[inode]] = true
			}
		}
	}
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		target, err := os.Readlink(file)
		if err == nil && inodes[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] {
			n++
		}
	}
	return n
}
