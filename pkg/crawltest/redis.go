package crawltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/redisconn"
)

// startTimeout bounds the start of a redis-server: it takes 50 ms, and several
// seconds when two cores compile and test other packages meanwhile.
const startTimeout = 30 * time.Second

// Redis is one Redis that a test may use.
type Redis struct {
	Name   string // miniredis, redis, cluster or private
	URL    string // as package redisconn takes it
	Client redis.UniversalClient
}

// Open returns a client of r of the test's own, closed at its end.
func (r *Redis) Open(t testing.TB, o redisconn.Options) redis.UniversalClient {
	t.Helper()
	c, err := redisconn.Open(r.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// OnEach runs f as three subtests, on each kind of Redis that Trawl supports:
// "miniredis", one of its own whose TTLs elapse; "redis", a redis-server; and
// "cluster", a redis-server in cluster mode that owns every slot and so refuses
// a script whose keys are of two tags. The last two are shared by the test
// binary: keep apart by [Tenant]. They are skipped without redis-server, unless
// TRAWL_REQUIRE_REDIS=1 demands it.
//
// The subtests run in parallel; f must not call t.Parallel again.
func OnEach(t *testing.T, f func(t *testing.T, r *Redis)) {
	t.Helper()
	for _, kind := range []struct {
		name string
		open func(testing.TB) *Redis
	}{{"miniredis", Mini}, {"redis", Real}, {"cluster", Cluster}} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			f(t, kind.open(t))
		})
	}
}

// Mini returns a miniredis of the test's own whose TTLs elapse by the clock.
func Mini(t testing.TB) *Redis {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	r := &Redis{Name: "miniredis", URL: "redis://" + m.Addr()}
	r.Client = r.Open(t, redisconn.Options{})
	return r
}

// Real returns the redis-server that the test binary shares. Without one the
// test is skipped, or fails when TRAWL_REQUIRE_REDIS=1.
func Real(t testing.TB) *Redis {
	t.Helper()
	return single.get(t)
}

// Cluster returns the redis-server in cluster mode that the test binary shares,
// by the rule of [Real].
func Cluster(t testing.TB) *Redis {
	t.Helper()
	return cluster.get(t)
}

// Any returns a redis-server when there is one and a miniredis otherwise: for
// tests that only need some Redis.
func Any(t testing.TB) *Redis {
	t.Helper()
	if _, err := redisServer(); err != nil && !required() {
		return Mini(t)
	}
	return Real(t)
}

func required() bool { return os.Getenv("TRAWL_REQUIRE_REDIS") == "1" }

var redisServer = sync.OnceValues(func() (string, error) { return exec.LookPath("redis-server") })

// program returns the path of redis-server, or ends the test.
func program(t testing.TB) string {
	t.Helper()
	path, err := redisServer()
	switch {
	case err == nil:
	case required():
		t.Fatalf("TRAWL_REQUIRE_REDIS=1, but redis-server is not to be found: %v", err)
	default:
		t.Skip("needs redis-server on PATH; TRAWL_REQUIRE_REDIS=1 makes this a failure")
	}
	return path
}

// sharedServer is a server that the first test that needs it starts.
type sharedServer struct {
	name  string
	start func(ctx context.Context, path string) (*process, string, error)

	once sync.Once
	r    *Redis
	err  error
}

var (
	single  = &sharedServer{name: "redis", start: startSingle}
	cluster = &sharedServer{name: "cluster", start: startCluster}
)

func (s *sharedServer) get(t testing.TB) *Redis {
	t.Helper()
	path := program(t)
	s.once.Do(func() {
		// Not the test's own context: the server outlives the test that was first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTimeout)
		defer cancel()
		p, url, err := s.start(ctx, path)
		if err != nil {
			s.err = err
			return
		}
		onClose(p.stop)
		c, err := redisconn.Open(url, redisconn.Options{})
		if err != nil {
			s.err = err
			return
		}
		onClose(c.Close)
		s.r = &Redis{Name: s.name, URL: url, Client: c}
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.r
}

func startSingle(ctx context.Context, path string) (*process, string, error) {
	return startOnFreePort(ctx, path, "redis", "--save", "", "--appendonly", "no")
}

func startCluster(ctx context.Context, path string) (*process, string, error) {
	// The bus would take port + 10,000, which may not exist.
	bus, err := freePort()
	if err != nil {
		return nil, "", err
	}
	p, url, err := startOnFreePort(ctx, path, "redis-cluster", "--save", "", "--appendonly", "no",
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus), "--cluster-announce-ip", "127.0.0.1")
	if err != nil {
		return nil, "", err
	}
	if err := takeAllSlots(ctx, p.addr()); err != nil {
		return nil, "", errors.Join(err, p.stop())
	}
	return p, url, nil
}

// takeAllSlots makes a Cluster of one node.
func takeAllSlots(ctx context.Context, addr string) error {
	c, err := redisconn.Open("redis://"+addr, redisconn.Options{})
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // the work is done or its error returned
	if err := c.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
		return fmt.Errorf("give the node every slot: %w", err)
	}
	return poll(ctx, "cluster_state:ok", func() bool {
		info, err := c.ClusterInfo(ctx).Result()
		return err == nil && len(info) >= 16 && info[:16] == "cluster_state:ok"
	})
}

// startOnFreePort starts a server on a port that it finds. A port that another
// process takes in between costs one try of three.
func startOnFreePort(ctx context.Context, path, scheme string, args ...string) (*process, string, error) {
	base, err := sharedDir()
	if err != nil {
		return nil, "", err
	}
	var errs []error
	for range 3 {
		port, err := freePort()
		if err != nil {
			return nil, "", err
		}
		dir, err := os.MkdirTemp(base, "redis-")
		if err != nil {
			return nil, "", fmt.Errorf("make a directory for redis-server: %w", err)
		}
		p := &process{path: path, dir: dir, port: port, args: args}
		if err := p.start(ctx); err != nil {
			errs = append(errs, err)
			continue
		}
		return p, scheme + "://" + p.addr(), nil
	}
	return nil, "", errors.Join(errs...)
}

// process is a redis-server that can be started again on the same port and files.
type process struct {
	path, dir string
	port      int
	args      []string
	access    Access
	child     *child
}

func (p *process) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

func (p *process) start(ctx context.Context) error {
	//nolint:noctx // the server outlives the call that starts it; stop ends it
	cmd := exec.Command(p.path, append([]string{
		"--port", strconv.Itoa(p.port), "--bind", "127.0.0.1", "--dir", p.dir,
		"--daemonize", "no", "--logfile", "",
	}, p.access.arguments(p.port, p.args)...)...)
	c, err := startChild(cmd)
	if err != nil {
		return err
	}
	probe, err := redisconn.Open(p.access.url(p.addr()), redisconn.Options{MaxRetries: -1, TLS: p.access.TLS})
	if err != nil {
		c.kill()
		return err
	}
	defer probe.Close() //nolint:errcheck // nothing was written
	ended := false
	err = poll(ctx, "an answer to PING", func() bool {
		select {
		case <-c.done:
			ended = true
			return true
		default:
			// The process id, too: on a port that another server took first,
			// that one would answer.
			info, err := probe.InfoMap(ctx, "server").Result()
			return err == nil && info["Server"]["process_id"] == strconv.Itoa(cmd.Process.Pid)
		}
	})
	if ended {
		err = fmt.Errorf("it ended: %v", c.cmd.ProcessState)
	}
	if err != nil {
		c.kill()
		return fmt.Errorf("redis-server on %s did not start: %w; it wrote:\n%s", p.addr(), err, c.out.String())
	}
	p.child = c
	return nil
}

// stop ends the server by SIGTERM, on which it writes what is to be kept, and
// by SIGKILL when it has not ended within 10 s.
func (p *process) stop() error {
	if p.child == nil {
		return nil
	}
	p.child.signal(syscall.SIGCONT) // a stopped process takes no SIGTERM
	p.child.signal(syscall.SIGTERM)
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-p.child.done:
	case <-timer.C:
		p.child.kill()
		return fmt.Errorf("redis-server on %s did not end within 10 s; it wrote:\n%s", p.addr(), p.child.out.String())
	}
	p.child = nil
	return nil
}

// poll calls cond every 5 ms until it holds or ctx ends.
func poll(ctx context.Context, what string, cond func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
