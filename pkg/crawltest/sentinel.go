package crawltest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/trawl/pkg/redisconn"
)

// masterName is what the sentinels call the master.
const masterName = "trawl"

// Failover is a master with replicas, and sentinels that make one of them the master when
// it does not answer.
type Failover struct {
	t         testing.TB
	o         FailoverOptions
	nodes     []*Server // the master of the beginning first
	sentinels []*process
}

// FailoverOptions are what a test chooses about a [Failover].
type FailoverOptions struct {
	Access Access // of the test to the servers
	// Replica and Sentinel are the users that replicas and sentinels are to a server; their
	// passwords must be in what Args name, as --aclfile.
	Replica, Sentinel Access
	Args              []string // of each server
	Replicas          int
}

// StartFailover starts a master, its replicas and three sentinels for this test alone, and
// ends them with the test. The replicas have all that the master has. The sentinels give up a master
// that has not answered for a second. Without redis-server the test ends by the rule of [Real].
func StartFailover(t testing.TB, o FailoverOptions) *Failover {
	t.Helper()
	path := program(t)
	f := &Failover{t: t, o: o}
	args := slices.Concat([]string{
		"--masteruser", o.Replica.User, "--masterauth", o.Replica.Password, "--repl-diskless-sync-delay", "0",
	}, o.Args)
	f.nodes = append(f.nodes, PrivateFor(t, o.Access, args...))
	host, port, _ := net.SplitHostPort(f.nodes[0].Addr)
	for range o.Replicas {
		f.nodes = append(f.nodes, PrivateFor(t, o.Access, append([]string{"--replicaof", host + " " + port}, args...)...))
	}
	f.InSync()
	for range 3 {
		f.sentinels = append(f.sentinels, f.startSentinel(path, host, port))
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for _, s := range f.sentinels {
		if err := f.knowsAll(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// InSync waits until every server but the master is a replica of it that has what it has.
func (f *Failover) InSync() {
	f.t.Helper()
	Eventually(f.t, startTimeout, "one master, and the others its replicas", func() bool {
		masters := 0
		for _, n := range f.nodes {
			info, err := n.Client.InfoMap(f.t.Context(), "replication").Result()
			if err != nil {
				return false
			}
			r := info["Replication"]
			switch {
			case r["role"] == "master" && strings.Count(fmt.Sprint(r), "state=online") == len(f.nodes)-1:
				masters++
			case r["role"] == "slave" && r["master_link_status"] == "up":
			default:
				return false
			}
		}
		return masters == 1
	})
}

// Master returns the server that is the master by the first sentinel.
func (f *Failover) Master() *Server {
	f.t.Helper()
	addr, err := f.masterAddr(f.t.Context(), f.sentinels[0])
	if err != nil {
		f.t.Fatal(err)
	}
	i := slices.IndexFunc(f.nodes, func(n *Server) bool { return n.Addr == addr })
	if i < 0 {
		f.t.Fatalf("the sentinels name %s as the master, which is none of the servers", addr)
	}
	return f.nodes[i]
}

// Nodes returns all servers, the master of the beginning first.
func (f *Failover) Nodes() []*Server { return f.nodes }

// URL returns the URL for a user of the servers, as package redisconn takes it.
func (f *Failover) URL(user, password string) string {
	var addrs []string
	for _, s := range f.sentinels {
		addrs = append(addrs, s.addr())
	}
	u := Access{User: user, Password: password}.urlOf("redis-sentinel", addrs...)
	return u + "/" + masterName + "?sentinel_user=" + sentinelClient + "&sentinel_password=" +
		url.QueryEscape(f.sentinels[0].access.Password)
}

// sentinelClient is who clients are to a sentinel, by sentinelRights.
const sentinelClient = "trawl"

// sentinelRights are what a client needs of a sentinel: who is the master, which other
// sentinels there are, and news of both.
const sentinelRights = "resetchannels &+switch-master &+replica-reconf-done -@all +auth +client|setname +ping +subscribe " +
	"+unsubscribe +sentinel|get-master-addr-by-name +sentinel|sentinels"

// startSentinel starts a sentinel of its own user, and of one for clients.
func (f *Failover) startSentinel(path, host, port string) *process {
	f.t.Helper()
	password := Random()
	if len(f.sentinels) > 0 {
		password = f.sentinels[0].access.Password
	}
	var errs []error
	for range 3 { // as in startOnFreePort
		p := &process{path: path, dir: f.t.TempDir(), port: FreePort(f.t), access: Access{User: sentinelClient, Password: password}}
		config := filepath.Join(p.dir, "sentinel.conf") // which it writes to
		text := strings.Join([]string{
			"port " + strconv.Itoa(p.port), "bind 127.0.0.1", "dir " + p.dir,
			"user " + sentinelClient + " on >" + password + " " + sentinelRights,
			"sentinel monitor " + masterName + " " + host + " " + port + " 2",
			"sentinel auth-user " + masterName + " " + f.o.Sentinel.User,
			"sentinel auth-pass " + masterName + " " + f.o.Sentinel.Password,
			"sentinel down-after-milliseconds " + masterName + " 1000",
			"sentinel failover-timeout " + masterName + " 5000",
			"sentinel parallel-syncs " + masterName + " 2", "",
		}, "\n")
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			f.t.Fatal(err)
		}
		child, err := startChild(exec.Command(path, config, "--sentinel")) //nolint:noctx // the end of the test ends it
		if err != nil {
			f.t.Fatal(err)
		}
		p.child = child
		ctx, cancel := context.WithTimeout(f.t.Context(), startTimeout)
		_, err = f.masterWithin(ctx, p)
		cancel()
		if err == nil {
			f.t.Cleanup(func() {
				if err := p.stop(); err != nil {
					f.t.Error(err)
				}
			})
			return p
		}
		child.kill()
		errs = append(errs, fmt.Errorf("a sentinel on %s did not start: %w; it wrote:\n%s", p.addr(), err, child.out.String()))
	}
	f.t.Fatal(errors.Join(errs...))
	return nil
}

// masterWithin asks a sentinel until it answers, or has ended.
func (f *Failover) masterWithin(ctx context.Context, p *process) (addr string, err error) {
	waited := poll(ctx, "an answer of a sentinel", func() bool {
		addr, err = f.masterAddr(ctx, p)
		select {
		case <-p.child.done:
			err = errors.New("it ended")
			return true
		default:
			return err == nil
		}
	})
	return addr, errors.Join(waited, err)
}

func (f *Failover) masterAddr(ctx context.Context, p *process) (string, error) {
	answer, err := f.askSentinel(ctx, p, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
	if err != nil {
		return "", err
	}
	pair, _ := answer.([]any)
	if len(pair) != 2 {
		return "", fmt.Errorf("a sentinel answers %v", answer)
	}
	return net.JoinHostPort(fmt.Sprint(pair[0]), fmt.Sprint(pair[1])), nil
}

// knowsAll waits until a sentinel knows the two others: before, there is no majority. It may
// not ask for the replicas, which every sentinel hears of from the master itself.
func (f *Failover) knowsAll(ctx context.Context, p *process) error {
	return poll(ctx, "a sentinel to know the others", func() bool {
		answer, err := f.askSentinel(ctx, p, "SENTINEL", "SENTINELS", masterName)
		others, _ := answer.([]any)
		return err == nil && len(others) == 2
	})
}

func (f *Failover) askSentinel(ctx context.Context, p *process, args ...any) (any, error) {
	c, err := redisconn.Open(p.access.url(p.addr()), redisconn.Options{MaxRetries: -1})
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // nothing was written
	return c.Do(ctx, args...).Result()
}
