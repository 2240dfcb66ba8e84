package queue

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// collectTimeout bounds one look at the queue: a scrape must be answered while Redis is not.
const collectTimeout = 1500 * time.Millisecond

// Collector tells how many rings the queue holds and how old the oldest is. It is a
// [prometheus.Collector], for one process of a service and not for all.
//
// A scrape is two round trips of O(1) commands. asynq's own inspector is not asked: its queue
// info samples the memory of tasks, a MEMORY USAGE of each.
type Collector struct {
	rdb       redis.UniversalClient
	queue     string
	tasks     *prometheus.Desc
	oldest    *prometheus.Desc
	paused    *prometheus.Desc
	processed *prometheus.Desc
	failed    *prometheus.Desc
	servers   *prometheus.Desc
}

// NewCollector returns a collector for the queue [Name]. It does no I/O and does not close rdb.
func NewCollector(rdb redis.UniversalClient) *Collector { return NewCollectorOn(rdb, Name) }

// NewCollectorOn returns the collector of another queue: tests that share a Redis keep apart
// by it.
func NewCollectorOn(rdb redis.UniversalClient, queue string) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("trawl_queue_"+name, help, labels, nil)
	}
	return &Collector{
		rdb: rdb, queue: queue,
		tasks: desc("tasks", "Tasks of the queue by state; a task is a worker's turn at a job. pending: no worker has "+
			"taken it; active: served now; retry: it failed and waits; archived: by a person, for good.", "state"),
		oldest: desc("oldest_pending_seconds", "Seconds for which the task has waited that is taken next; 0 when none "+
			"waits. It grows while there are too few workers."),
		paused: desc("paused", "1 when somebody paused the queue, so that no worker takes a task; 0 when not."),
		processed: desc("processed_total", "Turns at jobs that ended, failed ones included, since Redis was empty: "+
			"what asynq counts."),
		failed:  desc("failed_total", "Turns at jobs that failed and were tried again, since Redis was empty."),
		servers: desc("servers", "Workers that take tasks; one that was killed counts for up to 10 s more."),
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.tasks, c.oldest, c.paused, c.processed, c.failed, c.servers} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector]. What Redis does not answer is left out.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	//nolint:forbidigo // a collector is given no context
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	q := c.look(ctx)
	for _, s := range taskStates {
		if n, err := q.tasks[s.name].Result(); err == nil {
			gauge(c.tasks, float64(n), s.name)
		}
	}
	if age, ok := c.age(ctx, q.next); ok {
		gauge(c.oldest, age.Seconds())
	}
	if n, err := q.paused.Result(); err == nil {
		gauge(c.paused, float64(n))
	}
	if n, err := q.servers.Result(); err == nil {
		gauge(c.servers, float64(n))
	}
	for d, cmd := range map[*prometheus.Desc]*redis.StringCmd{c.processed: q.processed, c.failed: q.failed} {
		if n, ok := counted(cmd); ok {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n)
		}
	}
}

// taskStates are asynq's states of a task, and what counts the container of each. A task that
// is aggregated has none here: no ring belongs to a group.
var taskStates = []struct {
	name string
	list bool
}{
	{"pending", true},
	{"active", true},
	{"scheduled", false},
	{"retry", false},
	{"archived", false},
	{"completed", false},
}

// seen is what one round trip asks; each command has its own error.
type seen struct {
	tasks             map[string]*redis.IntCmd
	next              *redis.StringCmd // id of the task that is taken next
	paused, servers   *redis.IntCmd
	processed, failed *redis.StringCmd
}

func (c *Collector) look(ctx context.Context) seen {
	q := seen{tasks: make(map[string]*redis.IntCmd, len(taskStates))}
	prefix := "asynq:{" + c.queue + "}:"
	_, _ = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for _, s := range taskStates {
			if s.list {
				q.tasks[s.name] = p.LLen(ctx, prefix+s.name)
			} else {
				q.tasks[s.name] = p.ZCard(ctx, prefix+s.name)
			}
		}
		q.next = p.LIndex(ctx, pendingKey(c.queue), -1)
		q.paused = p.Exists(ctx, prefix+"paused")
		q.processed, q.failed = p.Get(ctx, prefix+"processed"), p.Get(ctx, prefix+"failed")
		q.servers = p.ZCount(ctx, serversKey, strconv.FormatInt(time.Now().Unix(), 10), "+inf")
		return nil
	})
	return q
}

// age answers for how long a task has waited, 0 where there is none; false when it is not known.
func (c *Collector) age(ctx context.Context, next *redis.StringCmd) (time.Duration, bool) {
	id, err := next.Result()
	if err != nil {
		return 0, errors.Is(err, redis.Nil)
	}
	since, err := c.rdb.HGet(ctx, "asynq:{"+c.queue+"}:t:"+id, "pending_since").Int64()
	if err != nil {
		return 0, errors.Is(err, redis.Nil) // a worker took it meanwhile
	}
	return max(0, time.Since(time.Unix(0, since))), true
}

// counted reads a counter of asynq's, which is absent until it counts.
func counted(cmd *redis.StringCmd) (float64, bool) {
	n, err := cmd.Float64()
	if errors.Is(err, redis.Nil) {
		return 0, true
	}
	return n, err == nil
}
