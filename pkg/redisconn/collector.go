package redisconn

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

const (
	// collectTimeout bounds a look at all servers together: a scrape must be answered while
	// Redis is not.
	collectTimeout = 1500 * time.Millisecond
	// mostNodes bounds the servers that are told of, of a Cluster without measure.
	mostNodes = 100
)

// Collector tells of the Redis servers behind a client: whether they answer, how fast, and
// what they say of their memory and files. It is a [prometheus.Collector], for one process of
// a service and not for all, since each scrape asks the servers.
type Collector struct {
	rdb     redis.UniversalClient
	up      *prometheus.Desc
	ping    *prometheus.Desc
	metrics []nodeMetric
}

// nodeMetric is one that is read from INFO.
type nodeMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	// value is what the fields of INFO say; false when the server does not tell.
	value func(info map[string]string) (float64, bool)
}

// NewCollector returns a collector for the server of rdb or, of a Cluster, each of its masters.
// It does no I/O and does not close rdb. The label node is host:port as the client knows it:
// "master" behind Sentinel, where only Sentinel knows which server that is.
//
// A scrape takes a PING and five INFO of each server, 1.5 s at most. Of a server that does not
// answer there is trawl_redis_up 0 and nothing else; what a server does not tell is left out.
func NewCollector(rdb redis.UniversalClient) *Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("trawl_redis_"+name, help, []string{"node"}, nil)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	return &Collector{
		rdb: rdb,
		up:  desc("up", "1 when the Redis server answers PING, 0 when it does not or still loads its data."),
		ping: desc("ping_seconds", "Seconds from PING to its answer; a busy server, a slow network or a new "+
			"connection make it long."),
		metrics: []nodeMetric{
			{desc("memory_used_bytes", "Bytes that the Redis server has allocated."), gauge, number("used_memory")},
			{desc("memory_max_bytes", "The maxmemory of the Redis server in bytes, above which it refuses writes; "+
				"0 when it has no bound."), gauge, number("maxmemory")},
			{desc("evicted_keys_total", "Keys that the Redis server dropped because it was full. Any are lost jobs: "+
				"set its maxmemory-policy to noeviction."), counter, number("evicted_keys")},
			{desc("connected_clients", "Connections to the Redis server."), gauge, number("connected_clients")},
			{desc("aof_enabled", "1 when the Redis server keeps an append-only file, 0 when a restart loses what "+
				"its last snapshot lacks."), gauge, number("aof_enabled")},
			{desc("persistence_ok", "1 when the Redis server's last snapshot and its last write and rewrite of the "+
				"append-only file succeeded, 0 when one failed, as on a full disk."), gauge, persistenceOK},
			{desc("replicas", "Replicas connected to the Redis server."), gauge, number("connected_slaves")},
		},
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.up
	ch <- c.ping
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	//nolint:forbidigo // a collector is given no context
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	for _, n := range looks(ctx, c.rdb) {
		if !n.up {
			ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 0, n.name)
			continue
		}
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 1, n.name)
		ch <- prometheus.MustNewConstMetric(c.ping, prometheus.GaugeValue, n.ping.Seconds(), n.name)
		for _, m := range c.metrics {
			if v, ok := m.value(n.info); ok {
				ch <- prometheus.MustNewConstMetric(m.desc, m.kind, v, n.name)
			}
		}
	}
}

// node is what was seen of a server.
type node struct {
	name string
	up   bool
	ping time.Duration
	info map[string]string
}

// looks looks at every server, in the order of their names.
func looks(ctx context.Context, rdb redis.UniversalClient) []node {
	switch c := rdb.(type) {
	case *redis.Client:
		return []node{look(ctx, c)}
	case *redis.ClusterClient:
		return lookAtMasters(ctx, c)
	}
	return nil
}

func lookAtMasters(ctx context.Context, c *redis.ClusterClient) []node {
	var (
		mu   sync.Mutex
		seen []node
	)
	err := c.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		n := look(ctx, one)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, n)
		return nil
	})
	if err != nil && len(seen) == 0 {
		// Nobody says who the masters are. What the URL names stands for them.
		for _, addr := range c.Options().Addrs {
			seen = append(seen, node{name: addr})
		}
	}
	slices.SortFunc(seen, func(a, b node) int { return cmp.Compare(a.name, b.name) })
	seen = slices.CompactFunc(seen, func(a, b node) bool { return a.name == b.name })
	return seen[:min(len(seen), mostNodes)]
}

// sections are the parts of INFO that are read, each by its own command: servers before
// Redis 7 take one at a time, and what one may not be asked for leaves the others.
var sections = []string{"memory", "clients", "stats", "persistence", "replication"}

func look(ctx context.Context, c *redis.Client) node {
	n := node{name: c.Options().Addr, info: map[string]string{}}
	if n.name == "FailoverClient" { // what go-redis calls a client behind Sentinel
		n.name = "master"
	}
	begun := time.Now()
	// A server whose disk is full answers PING with MISCONF: it is there, and says so in INFO.
	if err := c.Ping(ctx).Err(); err != nil && !redis.HasErrorPrefix(err, "MISCONF") {
		return n
	}
	n.up, n.ping = true, time.Since(begun)
	cmds := make([]*redis.StringCmd, len(sections))
	_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error { // each has its own error
		for i, section := range sections {
			cmds[i] = p.Info(ctx, section)
		}
		return nil
	})
	for _, cmd := range cmds {
		for line := range strings.Lines(cmd.Val()) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				n.info[name] = value
			}
		}
	}
	return n
}

// number reads a field of INFO.
func number(field string) func(map[string]string) (float64, bool) {
	return func(info map[string]string) (float64, bool) {
		v, err := strconv.ParseFloat(info[field], 64)
		return v, err == nil
	}
}

// persistenceOK reports whether all that the server last wrote to its files is there.
func persistenceOK(info map[string]string) (float64, bool) {
	told := false
	for _, field := range []string{"rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"} {
		switch info[field] {
		case "":
		case "ok":
			told = true
		default:
			return 0, true
		}
	}
	return 1, told
}
