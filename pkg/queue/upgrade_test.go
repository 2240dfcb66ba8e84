package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// newerTask is a task as a version to come may write it.
type newerTask struct{ kind, payload string }

// newerTasks are tasks that this version must leave alone.
func newerTasks(r crawl.Ring) map[string]newerTask {
	return map[string]newerTask{
		"field":   {taskType, fmt.Sprintf(`{"tenant":%q,"job":%q,"n":%d,"v":2,"region":"eu"}`, r.Tenant, r.ID, r.N)},
		"meaning": {taskType, fmt.Sprintf(`{"tenant":%q,"job":%q,"n":%d,"v":2}`, r.Tenant, r.ID, r.N)},
		"shape":   {taskType, `{"jobs":[1,2],"v":3}`},
		"type":    {typePrefix + "part", `binary`},
	}
}

func (h *house) enqueue(t *testing.T, task newerTask) string {
	t.Helper()
	info, err := h.client.EnqueueContext(t.Context(), asynq.NewTask(task.kind, []byte(task.payload)),
		asynq.Queue(h.queue), asynq.MaxRetry(maxRetry))
	if err != nil {
		t.Fatal(err)
	}
	return info.ID
}

// state is that of a task as asynq's inspector knows it; nil once the task is gone.
func (h *house) state(t *testing.T, id string) *asynq.TaskInfo {
	t.Helper()
	info, err := h.inspector.GetTaskInfo(h.queue, id)
	if err != nil && !errors.Is(err, asynq.ErrTaskNotFound) {
		t.Fatal(err)
	}
	return info
}

// hurry has tasks run at once each time that they are given back, so many times, and holds that a
// server that is too old loses nothing and counts nothing.
func (h *house) hurry(t *testing.T, times int, ids ...string) {
	t.Helper()
	for i := range times {
		for _, id := range ids {
			h.givenBack(t, id, i+1)
		}
		for _, id := range ids {
			// It may be its turn by itself just now, and is no retry then.
			if err := h.inspector.RunTask(h.queue, id); err != nil && h.state(t, id).State == asynq.TaskStateRetry {
				t.Fatal(err)
			}
		}
	}
}

// givenBack waits until a server has given a task back.
func (h *house) givenBack(t *testing.T, id string, try int) {
	t.Helper()
	var info *asynq.TaskInfo
	crawltest.Eventually(t, wait, fmt.Sprintf("try %d of task %s is given back", try, id), func() bool {
		info = h.state(t, id)
		if info == nil || info.State == asynq.TaskStateArchived {
			t.Fatalf("try %d: the task is lost: %+v", try, info)
		}
		return info.State == asynq.TaskStateRetry
	})
	if info.Retried != 0 {
		t.Fatalf("try %d counts %d failures", try, info.Retried)
	}
	if wait := time.Until(info.NextProcessAt); wait > newerDelay+newerJitter {
		t.Fatalf("it comes again after %v", wait)
	}
}

// An older worker leaves newer tasks alone: it neither archives nor drops nor handles them, and
// counts no failure, however often it meets them.
func TestNewerTasksAreLeftAlone(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		var ids []string
		for _, task := range newerTasks(h.ring(1)) {
			ids = append(ids, h.enqueue(t, task))
		}
		var log lockedBuffer
		h.serve(t, ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(_ context.Context, r crawl.Ring) error {
			t.Errorf("%v was handled", r)
			return nil
		})
		h.hurry(t, maxRetry+5, ids...)
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "level=WARN") ||
			!strings.Contains(log.String(), "update this worker") {
			t.Errorf("the log has %d lines, not one that says what to do:\n%s", n, log.String())
		}
	})
}

// With an old and a new worker on one queue, the new one gets what the old one leaves alone, and
// both get the rest.
func TestNewerWorkerGetsNewerTasks(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		plain, newer := h.ring(0), h.ring(4)
		old := make(chan crawl.Ring, 9)
		h.serve(t, ServerOptions{Slices: 1}, func(_ context.Context, r crawl.Ring) error {
			if r == newer { // its job has a newer format, as the store says
				old <- r
				return fmt.Errorf("begin: %w", ErrNewer)
			}
			return nil
		})
		h.mustRing(t, newer)
		if got := crawltest.Receive(t, wait, "the old worker's try", old); got != newer {
			t.Errorf("the old worker got %v", got)
		}
		id := h.enqueue(t, newerTasks(plain)["field"])
		h.hurry(t, 1, id)

		// The new worker is one that reads all versions of payloads.
		jobs, tasks := make(chan crawl.Ring, 9), make(chan string, 9)
		fresh := newHouseWorker(t, h, jobs, tasks)
		t.Cleanup(fresh.Shutdown)
		if got := crawltest.Receive(t, wait, "the new worker's ring", jobs); got != newer {
			t.Errorf("the new worker got %v", got)
		}
		if got := crawltest.Receive(t, wait, "the new worker's task", tasks); !strings.Contains(got, "region") {
			t.Errorf("the new worker got %s", got)
		}
		h.gone(t, newer)
		crawltest.Eventually(t, wait, "the task is done", func() bool { return h.state(t, id) == nil })
	})
}

// newHouseWorker starts a worker of a version to come: it takes rings of this version as they are,
// and any other payload as text.
func newHouseWorker(t *testing.T, h *house, rings chan<- crawl.Ring, others chan<- string) *asynq.Server {
	t.Helper()
	s := asynq.NewServerFromRedisClient(h.r.Client, asynq.Config{
		Concurrency: 2, Queues: map[string]int{h.queue: 1}, TaskCheckInterval: pollInterval,
		DelayedTaskCheckInterval: delayedInterval, LogLevel: asynq.FatalLevel,
	})
	err := s.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if r, err := decode(task.Payload()); err == nil {
			rings <- r
		} else {
			others <- string(task.Payload())
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asynq archives a task that failed as often as it may without asking whether it failed now: a
// copy takes its place, with all that it had.
func TestNewerTaskThatMayNotFailAnyMore(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		ring := h.ring(3)
		task := newerTasks(ring)["field"]
		_, err := h.client.EnqueueContext(t.Context(), asynq.NewTaskWithHeaders(task.kind, []byte(task.payload),
			map[string]string{"x": "y"}), asynq.Queue(h.queue), asynq.TaskID(taskID(ring)), asynq.MaxRetry(0))
		if err != nil {
			t.Fatal(err)
		}
		s := h.serve(t, ServerOptions{}, nil)
		h.gone(t, ring)
		var id string
		crawltest.Eventually(t, wait, "the copy waits", func() bool {
			for _, list := range []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
				h.inspector.ListScheduledTasks, h.inspector.ListRetryTasks,
			} {
				tasks, err := list(h.queue)
				if err != nil {
					t.Fatal(err)
				}
				for _, info := range tasks {
					id = info.ID
					if string(info.Payload) != task.payload || info.Type != task.kind || info.MaxRetry != maxRetry ||
						info.Headers["x"] != "y" || info.Retried != 0 {
						t.Errorf("the copy is %+v", info)
					}
				}
			}
			return id != ""
		})
		h.hurry(t, 3, id)
		s.Shutdown()
		if n := h.r.Client.ZCard(t.Context(), stateKey(h.queue, "archived")).Val(); n != 0 {
			t.Errorf("%d tasks are archived", n)
		}
	})
}

func TestRingOf(t *testing.T) {
	t.Parallel()
	r := crawl.Ring{JobRef: crawl.JobRef{Tenant: "t", ID: crawl.NewJobID("t", "k")}, N: 5}
	newer := func(err error) bool { return errors.Is(err, ErrNewer) }
	for name, task := range newerTasks(r) {
		if _, err := ringOf(task.kind, []byte(task.payload)); !newer(err) {
			t.Errorf("%s: %v", name, err)
		}
		if got := Describe(task.kind, []byte(task.payload)); !strings.HasPrefix(got, "a task of a newer version") {
			t.Errorf("%s is described as %q", name, got)
		}
	}
	plain := fmt.Sprintf(`{"tenant":"t","job":%q,"n":5}`, r.ID)
	if got, err := ringOf(taskType, []byte(plain)); err != nil || got != r {
		t.Errorf("%v, %v", got, err)
	}
	for _, task := range []newerTask{
		{"mail", plain},
		{"mail", `{"v":2}`},
		{taskType, `{"v":1,"region":"eu"}`},
		{taskType, `{"v":"2"}`},
		{taskType, `{"v":2}{}`},
		{taskType, plain + `{"v":2}`},
		{taskType, `[2]`},
		{taskType, `{"v":99999999999999999999}`},
	} {
		if _, err := ringOf(task.kind, []byte(task.payload)); err == nil || newer(err) {
			t.Errorf("%v: %v", task, err)
		}
	}
}

func TestNewerDelay(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("x: %w", ErrNewer)
	if isFailure(err) {
		t.Error("it counts as a failure")
	}
	for n := range 100 {
		if d := retryDelay(n, err); d < time.Second || d > 5*time.Second {
			t.Fatalf("after %d failures the delay is %v", n, d)
		}
	}
}
