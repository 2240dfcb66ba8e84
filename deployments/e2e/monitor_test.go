package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/trawl/pkg/crawltest"
)

// monitor notes which commands each user of a Redis sends, those of scripts included.
type monitor struct {
	t     *testing.T
	redis *crawltest.Server // one server

	mu    sync.Mutex
	lines []string
	users map[string]string // by the address that a connection comes from
}

// monitors are those of all servers of a Redis.
type monitors []*monitor

// watchCommands begins to note; the Redis must be in the clear.
func watchCommands(t *testing.T, r *guardedRedis) monitors {
	t.Helper()
	var all monitors
	for _, n := range r.Nodes() {
		all = append(all, watchNode(t, n, r.passwords[operatorUser]))
	}
	return all
}

// used returns what a user has sent: "get", and with its first argument "client|setname".
func (all monitors) used(user string) map[string]bool {
	used := map[string]bool{}
	for _, m := range all {
		maps.Copy(used, m.used(user))
	}
	if len(used) == 0 {
		all[0].t.Fatalf("no command of %s was seen", user)
	}
	return used
}

func watchNode(t *testing.T, n *crawltest.Server, password string) *monitor {
	t.Helper()
	m := &monitor{t: t, redis: n, users: map[string]string{}}
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "*3\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n*1\r\n$7\r\nMONITOR\r\n",
		len(operatorUser), operatorUser, len(password), password); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.read(conn) })
	running.Go(func() { m.name(ctx) })
	t.Cleanup(func() { cancel(); _ = conn.Close(); running.Wait() })
	m.sync()
	return m
}

func (m *monitor) read(conn io.Reader) {
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return // the test is over
		}
		m.mu.Lock()
		m.lines = append(m.lines, line)
		m.mu.Unlock()
	}
}

var clientLine = regexp.MustCompile(`\baddr=(\S+) .*\buser=(\S+)`)

// name asks again and again who is connected: a monitored command has only the address.
func (m *monitor) name(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := m.redis.Client.ClientList(ctx).Result()
		if err != nil && ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		for _, c := range clientLine.FindAllStringSubmatch(list, -1) {
			m.users[c[1]] = c[2]
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sync returns when all that was sent before has been noted.
func (m *monitor) sync() {
	m.t.Helper()
	mark := crawltest.Random()
	crawltest.Eventually(m.t, long, "the monitor sees a command", func() bool {
		if err := m.redis.Client.Echo(m.t.Context(), mark).Err(); err != nil {
			m.t.Fatal(err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.lines, func(line string) bool { return strings.Contains(line, mark) })
	})
}

var monitorLine = regexp.MustCompile(`^\+[0-9.]+ \[\d+ (\S+)\] "([^"]*)"(?: "([^"]*)")?`)

// used is that of one server.
func (m *monitor) used(user string) map[string]bool {
	m.t.Helper()
	m.sync()
	m.mu.Lock()
	defer m.mu.Unlock()
	used := map[string]bool{}
	var current string
	for _, line := range m.lines {
		part := monitorLine.FindStringSubmatch(line)
		if part == nil {
			continue // the two answers before the first
		}
		// A script comes before its commands, and nothing comes between them.
		if part[1] != "lua" {
			current = m.users[part[1]]
		}
		if current == user {
			used[strings.ToLower(part[2])] = true
			used[strings.ToLower(part[2]+"|"+part[3])] = true
		}
	}
	return used
}
