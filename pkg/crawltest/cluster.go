package crawltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/redisconn"
)

const (
	// nodesFile is where a server in cluster mode keeps its place in the Cluster.
	nodesFile = "nodes.conf"
	// allSlots is the number of slots of a Cluster.
	allSlots = 16384
	// nodeTimeout is after how long a master that does not answer is given up. A busy test
	// machine must not have the others give up one that merely waits for its turn.
	nodeTimeout = 3 * time.Second
)

// Masters starts a Cluster of n masters for this test alone, without replicas, and ends it
// with the test: see [PrivateFor]. Each has an equal part of the slots. A master that is away
// keeps no other from its work, as a deployment should have it
// (cluster-require-full-coverage no).
//
// What is done to the server is done to each master: [Server.Nodes] and [Server.Of] are
// for those who mean one.
func Masters(t testing.TB, n int, access Access, args ...string) *Server {
	t.Helper()
	path := program(t)
	var errs []error
	for range 3 { // as in startOnFreePort
		s := &Server{t: t}
		for range n {
			p := &process{path: path, dir: t.TempDir(), port: FreePort(t), access: access}
			p.args = slices.Concat(durable, []string{
				"--cluster-enabled", "yes", "--cluster-config-file", nodesFile,
				"--cluster-port", strconv.Itoa(FreePort(t)), "--cluster-announce-ip", "127.0.0.1",
				"--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
				"--cluster-require-full-coverage", "no",
			}, args)
			s.procs = append(s.procs, p)
		}
		err := s.start()
		if err == nil {
			err = s.join(access)
		}
		if err != nil {
			errs = append(errs, err)
			s.Kill()
			continue
		}
		s.stopAtEnd()
		return s
	}
	t.Fatal(errors.Join(errs...))
	return nil
}

// join makes the servers one Cluster.
func (s *Server) join(access Access) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), startTimeout)
	defer cancel()
	var addrs []string
	for _, p := range s.procs {
		node := &Server{t: s.t, procs: []*process{p}, Addr: p.addr()}
		node.Redis = Redis{Name: "master", URL: access.url(p.addr())}
		node.Client = node.Open(s.t, redisconn.Options{})
		s.nodes = append(s.nodes, node)
		addrs = append(addrs, p.addr())
	}
	s.Addr = addrs[0]
	s.Redis = Redis{Name: "cluster", URL: access.urlOf("redis-cluster", addrs...)}
	s.Client = s.Open(s.t, redisconn.Options{})
	for i, node := range s.nodes {
		first, last := i*allSlots/len(s.nodes), (i+1)*allSlots/len(s.nodes)-1
		// An epoch of its own, or they would have to agree on who keeps the common one.
		err := errors.Join(
			node.Client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(),
			node.Client.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", first, last).Err())
		if err != nil {
			return fmt.Errorf("give master %d its slots: %w", i, err)
		}
	}
	for _, p := range s.procs[1:] {
		bus := p.args[slices.Index(p.args, "--cluster-port")+1]
		if err := s.nodes[0].Client.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", p.port, bus).Err(); err != nil {
			return fmt.Errorf("have the masters meet: %w", err)
		}
	}
	return s.whole(ctx)
}

// whole waits until every master that runs sees every other and all the slots.
func (s *Server) whole(ctx context.Context) error {
	want := []string{
		"cluster_state:ok", "cluster_slots_ok:" + strconv.Itoa(allSlots), "cluster_size:" + strconv.Itoa(len(s.nodes)),
	}
	for _, node := range s.nodes {
		err := poll(ctx, fmt.Sprintf("%q at %s", want, node.Addr), func() bool {
			info, err := node.Client.ClusterInfo(ctx).Result()
			return err == nil && !slices.ContainsFunc(want, func(line string) bool {
				return !strings.Contains(info, line+"\r\n")
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Of returns the master that has a key, see [Server.Nodes]: of a single server, the server.
func (s *Server) Of(key string) *Server {
	s.t.Helper()
	c, ok := s.Client.(*redis.ClusterClient)
	if !ok {
		return s
	}
	one, err := c.MasterForKey(s.t.Context(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.at(one.Options().Addr)
}

// Slot returns the slot of a key.
func (s *Server) Slot(key string) int {
	s.t.Helper()
	slot, err := s.Nodes()[0].Client.ClusterKeySlot(s.t.Context(), key).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return int(slot)
}

func (s *Server) at(addr string) *Server {
	s.t.Helper()
	for _, n := range s.nodes {
		if n.Addr == addr {
			return n
		}
	}
	s.t.Fatalf("%s is no master of this Cluster", addr)
	return nil
}

// Move gives the slot of a key to another master, key by key, as an operator who reshards
// does. It calls before when the two masters know of it and no key has gone yet, and half
// when half of the keys have. It returns the new master.
func (s *Server) Move(access Access, key string, before, half func()) *Server {
	s.t.Helper()
	ctx, slot, from := s.t.Context(), s.Slot(key), s.Of(key)
	to := s.nodes[(slices.Index(s.nodes, from)+1)%len(s.nodes)]
	id := func(n *Server) string {
		s.t.Helper()
		v, err := n.Client.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			s.t.Fatal(err)
		}
		return v
	}
	do := func(n *Server, args ...any) {
		s.t.Helper()
		if err := n.Client.Do(ctx, args...).Err(); err != nil {
			s.t.Fatalf("%v: %v", args[:2], err)
		}
	}
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from))
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
	before()
	for first := true; ; first = false {
		left, err := from.Client.ClusterCountKeysInSlot(ctx, slot).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		if left == 0 {
			break
		}
		keys, err := from.Client.ClusterGetKeysInSlot(ctx, slot, int(left+1)/2).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, k := range keys {
			do(from, "MIGRATE", "127.0.0.1", to.procs[0].port, k, 0, 10_000, "AUTH2", access.User, access.Password)
		}
		if first {
			half()
		}
	}
	// The new master first, so that nobody is sent back; then all, so that nobody has to ask.
	for _, n := range slices.Concat([]*Server{to, from}, s.nodes) {
		do(n, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
	}
	return to
}
