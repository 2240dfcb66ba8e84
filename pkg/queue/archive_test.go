package queue

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// TestRingArchived: who archives a ring in the monitor does not keep its job from being rung for.
func TestRingArchived(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		one, trimmed, waits := h.ring(0), h.ring(3), h.ring(0)
		h.mustRing(t, one, trimmed, waits)
		for _, ring := range []crawl.Ring{one, trimmed} {
			if err := h.inspector.ArchiveTask(h.queue, taskID(ring)); err != nil {
				t.Fatal(err)
			}
		}
		// What an archive that is full leaves behind of a task: its hash.
		if err := r.Client.ZRem(t.Context(), stateKey(h.queue, "archived"), taskID(trimmed)).Err(); err != nil {
			t.Fatal(err)
		}
		h.wantWaiting(t, 1)
		h.mustRing(t, one, trimmed, waits)
		h.mustRing(t, one)
		h.wantWaiting(t, 3)
		if n := r.Client.ZCard(t.Context(), stateKey(h.queue, "archived")).Val(); n != 0 {
			t.Errorf("%d tasks are archived still", n)
		}
		got := make(chan crawl.Ring, 3)
		h.serve(t, ServerOptions{Slices: 1}, func(_ context.Context, r crawl.Ring) error {
			got <- r
			return nil
		})
		for range 3 {
			crawltest.Receive(t, wait, "ring", got)
		}
		for _, ring := range []crawl.Ring{one, trimmed, waits} {
			h.gone(t, ring)
		}
	})
}

// TestRingCompleted: an id that a finished task keeps is free, too.
func TestRingCompleted(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		ring := h.ring(0)
		_, err := h.client.EnqueueContext(t.Context(), asynq.NewTask(taskType, []byte(`{"tenant":"`+ring.Tenant+`","job":"`+
			ring.ID+`","n":0}`)), asynq.TaskID(ring.ID), asynq.Queue(h.queue), asynq.Retention(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan crawl.Ring, 2)
		h.serve(t, ServerOptions{}, func(_ context.Context, r crawl.Ring) error {
			got <- r
			return nil
		})
		crawltest.Receive(t, wait, "first ring", got)
		crawltest.Eventually(t, wait, "the task is completed", func() bool {
			info, err := h.inspector.GetTaskInfo(h.queue, ring.ID)
			return err == nil && info.State == asynq.TaskStateCompleted
		})
		h.mustRing(t, ring)
		crawltest.Receive(t, wait, "second ring", got)
		h.gone(t, ring)
	})
}

// TestCancelledTask: asynq retries what is cancelled in the monitor, and archives it when that was
// done too often; the ring comes again in both cases.
func TestCancelledTask(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		ring := h.ring(0)
		body := []byte(`{"tenant":"` + ring.Tenant + `","job":"` + ring.ID + `","n":0}`)
		if _, err := h.client.EnqueueContext(t.Context(), asynq.NewTask(taskType, body), asynq.TaskID(ring.ID),
			asynq.Queue(h.queue), asynq.MaxRetry(1)); err != nil {
			t.Fatal(err)
		}
		begun := make(chan context.Context, 4)
		h.serve(t, ServerOptions{}, func(ctx context.Context, _ crawl.Ring) error {
			begun <- ctx
			<-ctx.Done()
			return ctx.Err()
		})
		for range 2 {
			ctx := crawltest.Receive(t, wait, "handler", begun)
			crawltest.Eventually(t, wait, "the cancellation arrives", func() bool {
				// It is lost when the server has not subscribed yet.
				if err := h.inspector.CancelProcessing(ring.ID); err != nil {
					t.Fatal(err)
				}
				return ctx.Err() != nil
			})
		}
		crawltest.Eventually(t, wait, "the task is archived", func() bool {
			info, err := h.inspector.GetTaskInfo(h.queue, ring.ID)
			return err == nil && info.State == asynq.TaskStateArchived
		})
		h.mustRing(t, ring)
		crawltest.Receive(t, wait, "handler", begun)
	})
}

// TestArchiveIsBounded: a server deletes what is old or too much, whole.
func TestArchiveIsBounded(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		const size, batch = 100, 50
		h := newHouse(t, r)
		s := &Server{rdb: r.Client, o: ServerOptions{Queue: h.queue}} // NewServer would slow the shared client down
		archive := func(id string, age time.Duration) {
			pipe := r.Client.Pipeline()
			pipe.HSet(t.Context(), taskPrefix(h.queue)+id, "state", "archived", "msg", "x")
			pipe.ZAdd(t.Context(), stateKey(h.queue, "archived"), redis.Z{
				Score: float64(time.Now().Add(-age).Unix()), Member: id,
			})
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		archive("old", archiveAge+time.Second)
		for i := range size + batch + 1 {
			archive("n"+strconv.Itoa(i), time.Duration(size+batch-i)*time.Second)
		}
		for _, want := range []int64{size + batch + 1, size + 1, size, size} {
			if err := s.pruneTo(t.Context(), size, batch); err != nil {
				t.Fatal(err)
			}
			if n := r.Client.ZCard(t.Context(), stateKey(h.queue, "archived")).Val(); n != want {
				t.Fatalf("%d tasks are archived, want %d", n, want)
			}
		}
		for id, want := range map[string]int64{"old": 0, "n0": 0, "n50": 0, "n51": 1, "n150": 1} {
			if n := r.Client.Exists(t.Context(), taskPrefix(h.queue)+id).Val(); n != want {
				t.Errorf("%d tasks %s, want %d", n, id, want)
			}
		}
	})
}

// TestOrphansArePruned: an id whose task is gone, on which asynq's inspector breaks, does not stay,
// and a key of another type keeps neither it nor what is too old.
func TestOrphansArePruned(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		for _, spoilt := range append([]string{""}, pruned[:]...) {
			h := newHouse(t, r)
			s := &Server{rdb: r.Client, o: ServerOptions{Queue: h.queue}} // NewServer would slow the shared client down
			ring := h.ring(0)
			h.mustRing(t, ring)
			if err := h.inspector.ArchiveTask(h.queue, ring.ID); err != nil {
				t.Fatal(err)
			}
			for _, state := range pruned {
				key, err := stateKey(h.queue, state), error(nil)
				if state == spoilt {
					err = errors.Join(r.Client.Del(t.Context(), key).Err(), r.Client.Set(t.Context(), key, "x", time.Minute).Err())
				} else {
					err = r.Client.ZAdd(t.Context(), key, redis.Z{Score: float64(time.Now().Unix()), Member: "gone"}).Err()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := h.inspector.GetQueueInfo(h.queue); err == nil {
				t.Error("asynq's inspector does not mind: prune need not care")
			}
			if err := s.prune(t.Context()); err != nil {
				t.Errorf("with %q spoilt: %v", spoilt, err)
			}
			for _, state := range pruned {
				n, want := r.Client.ZCard(t.Context(), stateKey(h.queue, state)).Val(), int64(0)
				if state == "archived" && spoilt != "archived" {
					want = 1
				}
				if n != want {
					t.Errorf("with %q spoilt, %d tasks are %s, want %d", spoilt, n, state, want)
				}
			}
			if _, err := h.inspector.GetQueueInfo(h.queue); (err == nil) != (spoilt == "") {
				t.Errorf("with %q spoilt, asynq's inspector says %v", spoilt, err)
			}
		}
	})
}

// TestArchiveIsPruned: servers do so by themselves.
func TestArchiveIsPruned(t *testing.T) {
	t.Parallel()
	h := newHouse(t, crawltest.Mini(t))
	ring := h.ring(0)
	h.mustRing(t, ring)
	if err := h.inspector.ArchiveTask(h.queue, ring.ID); err != nil {
		t.Fatal(err)
	}
	long := redis.Z{Score: float64(time.Now().Add(-2 * archiveAge).Unix()), Member: ring.ID}
	if err := h.r.Client.ZAdd(t.Context(), stateKey(h.queue, "archived"), long).Err(); err != nil {
		t.Fatal(err)
	}
	h.serve(t, ServerOptions{}, nil)
	h.gone(t, ring)
}

// TestCheckArchivable counts everything that could be archived at once.
func TestCheckArchivable(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		pending := make([]any, archiveRoom-3)
		for i := range pending {
			pending[i] = strconv.Itoa(i)
		}
		r.Client.RPush(t.Context(), pendingKey(h.queue), pending...)
		for _, state := range []string{"scheduled", "retry", "archived"} {
			r.Client.ZAdd(t.Context(), stateKey(h.queue, state), redis.Z{Member: state})
		}
		if err := CheckArchivable(t.Context(), r.Client, h.queue); err != nil {
			t.Errorf("a queue that is just not too full: %v", err)
		}
		r.Client.RPush(t.Context(), pendingKey(h.queue), "more")
		if err := CheckArchivable(t.Context(), r.Client, h.queue); crawl.CodeOf(err) != crawl.CodeWrongState {
			t.Errorf("a queue that is too full: %v", err)
		}
		away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
		t.Cleanup(func() { _ = away.Close() })
		if err := CheckArchivable(t.Context(), away, h.queue); crawl.CodeOf(err) != crawl.CodeUnavailable {
			t.Errorf("no Redis: %v", err)
		}
	})
}

// TestRingPaused: a paused queue takes no more than one ring of a job, and says that it is paused.
func TestRingPaused(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		first := h.ring(0)
		later := crawl.Ring{JobRef: first.JobRef, N: 4}
		if err := h.inspector.PauseQueue(h.queue); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			err := h.Ring(t.Context(), later, first)
			if crawl.CodeOf(err) != crawl.CodeUnavailable || !errors.Is(err, ErrPaused) {
				t.Fatalf("a paused queue answers %v", err)
			}
			// A tenant can do neither of what whoever reads the log can.
			var f *crawl.Fault
			if errors.As(err, &f); strings.Contains(f.Message, "monitor") || !strings.Contains(f.Message, "paused") {
				t.Errorf("the tenant is told %q", f.Message)
			}
			for _, way := range []string{"TRAWL_MONITOR_WRITE", "DEL asynq:{" + h.queue + "}:paused"} {
				if !strings.Contains(err.Error(), way) {
					t.Errorf("logged is %v, without %s", err, way)
				}
			}
		}
		h.wantWaiting(t, 1)
		if err := h.inspector.UnpauseQueue(h.queue); err != nil {
			t.Fatal(err)
		}
		h.announced.Add(-int64(announceEvery))
		h.mustRing(t, later, first)
		h.wantWaiting(t, 2)
	})
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	id := crawl.NewJobID("acme", "")
	ring := `{"tenant":"acme","job":"` + id + `","n":7}`
	want := "ring 7 of tenant acme\nGET /v1/jobs/" + id
	if got := Describe(taskType, []byte(ring)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, c := range []struct{ kind, payload string }{
		{"mail", ring},
		{taskType, `{"password":"hunter2"}`},
		{taskType, `{"tenant":"acme","job":"` + id + `","n":7,"password":"hunter2"}`},
		{taskType, `{"tenant":"acme","job":"../x","n":7}`},
		{taskType, "\x00\x1b[31mhunter2"},
		{taskType, ""},
	} {
		got := Describe(c.kind, []byte(c.payload))
		if got != strconv.Itoa(len(c.payload))+" bytes that are no ring" || strings.Contains(got, "hunter2") {
			t.Errorf("%s %q is described as %q", c.kind, c.payload, got)
		}
	}
}
