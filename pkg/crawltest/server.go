package crawltest

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"example.com/trawl/pkg/redisconn"
)

// Server is a redis-server of one test, to be stopped and started, or a Cluster of
// several, of which what is done to the server is done to each. It keeps every
// acknowledged write in an append-only file.
type Server struct {
	Redis
	Addr  string // 127.0.0.1:port; the same after each start; of a Cluster, of its first master
	t     testing.TB
	procs []*process
	nodes []*Server // the masters of a Cluster; none of a single server
}

// Private starts a redis-server for this test alone and ends it with the test;
// args are added to its command line, for example "--maxmemory", "2mb". Without
// redis-server the test ends by the rule of [Real].
func Private(t testing.TB, args ...string) *Server {
	t.Helper()
	return PrivateFor(t, Access{}, args...)
}

// Access is who a test is to a server that does not let everybody do everything.
// The zero value is the default user, in the clear.
type Access struct {
	User, Password string
	// TLS are the client's files; with a CA in it the server listens for TLS alone.
	TLS redisconn.TLS
}

func (a Access) url(addr string) string {
	scheme := "redis"
	if a.TLS.CA != "" {
		scheme = "rediss"
	}
	return a.urlOf(scheme, addr)
}

func (a Access) urlOf(scheme string, addrs ...string) string {
	u := url.URL{Scheme: scheme, Host: strings.Join(addrs, ",")}
	if a.Password != "" {
		u.User = url.UserPassword(a.User, a.Password)
	}
	return u.String()
}

func (a Access) arguments(port int, args []string) []string {
	if a.TLS.CA == "" {
		return args
	}
	return append([]string{"--port", "0", "--tls-port", strconv.Itoa(port)}, args...)
}

// durable has every write on disk before it is acknowledged: a test that kills the server
// must find again what was acknowledged, not all but a second of it.
var durable = []string{"--save", "", "--appendonly", "yes", "--appendfsync", "always"}

// PrivateFor is [Private] for a server that args close to the default user, or open to
// TLS alone: the server's client, and what asks whether it has started, use access. A
// redis-server that was built without TLS ends the test by the rule of [Real].
func PrivateFor(t testing.TB, access Access, args ...string) *Server {
	t.Helper()
	path := program(t)
	dir := t.TempDir()
	args = append(durable[:len(durable):len(durable)], args...)
	var errs []error
	for range 3 { // as in startOnFreePort
		p := &process{path: path, dir: dir, port: FreePort(t), args: args, access: access}
		s := &Server{t: t, procs: []*process{p}, Addr: p.addr()}
		if err := s.start(); err != nil {
			if access.TLS.CA != "" && strings.Contains(err.Error(), "FATAL CONFIG FILE ERROR") && !required() {
				t.Skipf("needs a redis-server that was built with TLS; TRAWL_REQUIRE_REDIS=1 makes this a failure: %v", err)
			}
			errs = append(errs, err)
			continue
		}
		s.stopAtEnd()
		s.Redis = Redis{Name: "private", URL: access.url(s.Addr)}
		s.Client = s.Open(t, redisconn.Options{TLS: access.TLS})
		return s
	}
	t.Fatal(errors.Join(errs...))
	return nil
}

func (s *Server) stopAtEnd() {
	s.t.Cleanup(func() {
		for _, p := range s.procs {
			if err := p.stop(); err != nil {
				s.t.Error(err)
			}
		}
	})
}

// Nodes returns the masters, each with a client of its own that asks it alone: of a single
// server, the server.
func (s *Server) Nodes() []*Server {
	if len(s.nodes) == 0 {
		return []*Server{s}
	}
	return s.nodes
}

// Keys returns the keys of all masters that match a pattern as of KEYS.
func (s *Server) Keys(pattern string) []string {
	s.t.Helper()
	var all []string
	for _, n := range s.Nodes() {
		keys, err := n.Client.Keys(s.t.Context(), pattern).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, keys...)
	}
	return all
}

// start starts the processes of the server that do not run, and waits until they can work.
func (s *Server) start() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), startTimeout)
	defer cancel()
	errs := make(chan error, len(s.procs))
	for _, p := range s.procs {
		go func() { errs <- p.start(ctx) }()
	}
	var failed error
	for range s.procs {
		failed = errors.Join(failed, <-errs)
	}
	if failed != nil || len(s.nodes) == 0 {
		return failed
	}
	return s.whole(ctx)
}

// Start starts a stopped server on the same port with what it had stored, and
// returns when it answers: a Cluster, when all its masters see each other.
func (s *Server) Start() {
	s.t.Helper()
	for _, p := range s.procs {
		if p.child != nil {
			s.t.Fatal("the server is running already")
		}
	}
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// Stop shuts the server down in order and returns when it has ended. Stopping
// it twice is harmless.
func (s *Server) Stop() {
	s.t.Helper()
	for _, p := range s.procs {
		if err := p.stop(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Kill ends the server by SIGKILL.
func (s *Server) Kill() {
	s.t.Helper()
	for _, p := range s.procs {
		if p.child != nil {
			p.child.kill()
			p.child = nil
		}
	}
}

// Freeze makes the server hang: connections stay open and nothing is answered,
// until [Server.Thaw].
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw ends [Server.Freeze].
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	for _, p := range s.procs {
		if p.child == nil {
			s.t.Fatal("the server is not running")
		}
		p.child.signal(sig)
	}
}

// Wipe removes all that a stopped server has stored: the next start is empty. A master
// keeps its place in its Cluster.
func (s *Server) Wipe() {
	s.t.Helper()
	for _, p := range s.procs {
		if p.child != nil {
			s.t.Fatal("stop the server before its data is removed")
		}
		entries, err := filepath.Glob(filepath.Join(p.dir, "*"))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, e := range entries {
			if filepath.Base(e) == nodesFile {
				continue
			}
			if err := os.RemoveAll(e); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}
