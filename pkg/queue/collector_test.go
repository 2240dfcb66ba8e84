package queue

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// metrics answers what a scrape shows of the queue of the house, without the prefix of its names.
func (h *house) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	return gathered(t, NewCollectorOn(h.r.Client, h.queue))
}

func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "trawl_queue_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// Whatever the queue holds, in each of asynq's states, is told as asynq's inspector tells it.
func TestCollectorAgreesWithAsynq(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		want := map[string]float64{
			"tasks pending": 0, "tasks active": 0, "tasks scheduled": 0, "tasks retry": 0, "tasks archived": 0,
			"tasks completed": 0, "oldest_pending_seconds": 0, "paused": 0, "processed_total": 0, "failed_total": 0,
		}
		check := func() map[string]float64 {
			t.Helper()
			got := h.metrics(t)
			// Workers of other tests of this Redis are counted, too.
			if d := cmp.Diff(want, got, cmpopts.IgnoreMapEntries(func(k string, _ float64) bool {
				return k == "servers" || k == "oldest_pending_seconds"
			})); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			return got
		}
		if got := check(); got["oldest_pending_seconds"] != 0 {
			t.Errorf("an empty queue has a task that waits: %v", got)
		}

		ring, parked, later := h.ring(0), h.ring(1), h.ring(2)
		h.mustRing(t, ring, parked, later)
		if err := h.inspector.ArchiveTask(h.queue, taskID(parked)); err != nil {
			t.Fatal(err)
		}
		if err := h.inspector.PauseQueue(h.queue); err != nil {
			t.Fatal(err)
		}
		_, err := h.client.Enqueue(asynq.NewTask("x", nil), asynq.Queue(h.queue), asynq.ProcessIn(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		// The task that is taken next has waited for a minute.
		key := "asynq:{" + h.queue + "}:t:" + taskID(ring)
		since := strconv.FormatInt(time.Now().Add(-time.Minute).UnixNano(), 10)
		if err := r.Client.HSet(t.Context(), key, "pending_since", since).Err(); err != nil {
			t.Fatal(err)
		}
		want["tasks pending"], want["tasks archived"], want["tasks scheduled"], want["paused"] = 2, 1, 1, 1
		if age := check()["oldest_pending_seconds"]; age < 60 || age > 60+wait.Seconds() {
			t.Errorf("the oldest has waited for %v s, want 60", age)
		}

		if err := h.inspector.UnpauseQueue(h.queue); err != nil {
			t.Fatal(err)
		}
		working, end := make(chan crawl.Ring, 2), make(chan error)
		h.serve(t, ServerOptions{Slices: 2}, func(ctx context.Context, r crawl.Ring) error {
			working <- r
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		for range 2 {
			crawltest.Receive(t, wait, "task that is served", working)
		}
		want["tasks pending"], want["tasks active"], want["paused"] = 0, 2, 0
		if check()["servers"] < 1 {
			crawltest.Eventually(t, wait, "a server that is seen", func() bool { return h.metrics(t)["servers"] >= 1 })
		}
		end <- errors.New("this one fails")
		end <- nil
		crawltest.Eventually(t, wait, "two tasks that ended", func() bool { return h.metrics(t)["processed_total"] == 2 })
		// The one that failed is tried again within a second, and hangs then.
		crawltest.Receive(t, wait, "task that is tried again", working)
		maps.Copy(want, map[string]float64{"tasks active": 1, "processed_total": 2, "failed_total": 1})
		check()
		close(end) // or the server would wait for it
	})
}

// A queue that cannot be asked is not told of, in time for a scrape.
func TestCollectorOfAnOutage(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	c := NewCollector(r.Open(t, redisconn.Options{}))
	if got := gathered(t, c); len(got) != 11 {
		t.Fatalf("%v", got)
	}
	for _, outage := range []struct{ begin, end func() }{{r.Freeze, r.Thaw}, {r.Stop, r.Start}} {
		outage.begin()
		if got := gathered(t, c); len(got) > 0 {
			t.Errorf("told of a queue that does not answer: %v", got)
		}
		outage.end()
		crawltest.Eventually(t, wait, "the queue to be told of again", func() bool { return len(gathered(t, c)) == 11 })
	}
}

// What one key cannot be asked for leaves the others.
func TestCollectorOfABrokenKey(t *testing.T) {
	t.Parallel()
	h := newHouse(t, crawltest.Mini(t))
	if err := h.r.Client.Set(t.Context(), "asynq:{"+h.queue+"}:retry", "no set", 0).Err(); err != nil {
		t.Fatal(err)
	}
	got := h.metrics(t)
	if _, there := got["tasks retry"]; there || len(got) != 10 {
		t.Errorf("%v", got)
	}
}

func TestCollectorLint(t *testing.T) {
	t.Parallel()
	if faults, err := testutil.CollectAndLint(NewCollector(crawltest.Mini(t).Client)); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
}
