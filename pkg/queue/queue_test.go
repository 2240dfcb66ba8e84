package queue

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

// wait is how long a test waits for what takes a second at most on an idle machine.
const wait = 30 * time.Second

// house is a queue of the test's own.
type house struct {
	*Doorbell
	r         *crawltest.Redis
	inspector *asynq.Inspector
	tenant    string
}

func newHouse(t *testing.T, r *crawltest.Redis) *house {
	t.Helper()
	return &house{
		Doorbell:  NewDoorbellOn(r.Client, "q"+crawltest.Random()),
		r:         r,
		inspector: asynq.NewInspectorFromRedisClient(r.Client),
		tenant:    crawltest.Tenant(t),
	}
}

// ring returns ring n of a job of its own.
func (h *house) ring(n int64) crawl.Ring {
	return crawl.Ring{JobRef: crawl.JobRef{Tenant: h.tenant, ID: crawl.NewJobID(h.tenant, "")}, N: n}
}

// serve starts a server and returns it; it is shut down with the test.
func (h *house) serve(
	t *testing.T, o ServerOptions, handle func(context.Context, crawl.Ring) error,
) *Server {
	t.Helper()
	o.Queue = h.queue
	// Its own client, closed after the server: cleanups run in reverse.
	s := NewServer(h.r.Open(t, redisconn.Options{}), o, handle)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func (h *house) mustRing(t *testing.T, rings ...crawl.Ring) {
	t.Helper()
	if err := h.Ring(t.Context(), rings...); err != nil {
		t.Fatal(err)
	}
}

func (h *house) wantWaiting(t *testing.T, want int64) {
	t.Helper()
	if got, err := h.Waiting(t.Context()); err != nil || got != want {
		t.Errorf("waiting: %d, %v, want %d", got, err, want)
	}
}

// gone waits until the queue no longer knows the ring, in any state.
func (h *house) gone(t *testing.T, r crawl.Ring) {
	t.Helper()
	crawltest.Eventually(t, wait, "the task of ring "+taskID(r)+" is gone", func() bool {
		_, err := h.inspector.GetTaskInfo(h.queue, taskID(r))
		return errors.Is(err, asynq.ErrTaskNotFound)
	})
}

func TestRing(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		first := h.ring(0)
		second := crawl.Ring{JobRef: first.JobRef, N: 1}
		h.wantWaiting(t, 0)
		h.mustRing(t)
		h.wantWaiting(t, 0)
		h.mustRing(t, first, second)
		h.mustRing(t, second, first)
		h.mustRing(t, second, h.ring(7))
		h.wantWaiting(t, 3)

		for id, ring := range map[string]crawl.Ring{first.ID: first, first.ID + ".1": second} {
			info, err := h.inspector.GetTaskInfo(h.queue, id)
			if err != nil {
				t.Fatal(err)
			}
			n := strconv.FormatInt(ring.N, 10)
			want := `{"tenant":"` + h.tenant + `","job":"` + first.ID + `","n":` + n + `}`
			if string(info.Payload) != want || info.MaxRetry != 10 || info.Timeout != 5*time.Minute ||
				info.Retention != 0 || info.State != asynq.TaskStatePending {
				t.Errorf("task %s: %+v, payload %s", id, info, info.Payload)
			}
		}
	})
}

func TestRingAtOnce(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		ring := h.ring(0)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := h.Ring(t.Context(), ring); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		h.wantWaiting(t, 1)
	})
}

func TestRingRefuses(t *testing.T) {
	t.Parallel()
	h := newHouse(t, crawltest.Mini(t))
	good := h.ring(0)
	for name, bad := range map[string]crawl.Ring{
		"no job":     {JobRef: crawl.JobRef{Tenant: good.Tenant}},
		"no tenant":  {JobRef: crawl.JobRef{ID: good.ID}},
		"other keys": {JobRef: crawl.JobRef{Tenant: "a:b{c}", ID: good.ID}},
		"path":       {JobRef: crawl.JobRef{Tenant: good.Tenant, ID: "../" + good.ID}},
		"negative":   {JobRef: good.JobRef, N: -1},
	} {
		if err := h.Ring(t.Context(), good, bad); crawl.CodeOf(err) != crawl.CodeInternal {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.wantWaiting(t, 0)
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	h := newHouse(t, crawltest.Mini(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"ring":    h.Ring(ctx, h.ring(0)),
		"waiting": func() error { _, err := h.Waiting(ctx); return err }(),
	} {
		var f *crawl.Fault
		if !errors.As(err, &f) || f.Code != crawl.CodeUnavailable || f.RetryAfter <= 0 || f.Message == "" {
			t.Errorf("%s: %v", name, err)
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the cause is lost: %v", name, err)
		}
	}
}

func TestServerHandlesInOrder(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		var want []crawl.Ring
		for n := range int64(5) {
			want = append(want, h.ring(n))
		}
		h.mustRing(t, want...)
		got := make(chan crawl.Ring, len(want))
		h.serve(t, ServerOptions{Slices: 1}, func(_ context.Context, r crawl.Ring) error {
			got <- r
			return nil
		})
		for _, w := range want {
			if g := crawltest.Receive(t, wait, "ring", got); g != w {
				t.Errorf("handled %v, want %v", g, w)
			}
		}
		h.gone(t, want[4])
		// The id is free again, so that nothing but the store decides.
		h.mustRing(t, want[0])
		if g := crawltest.Receive(t, wait, "ring", got); g != want[0] {
			t.Errorf("handled %v, want %v", g, want[0])
		}
	})
}

// TestLateAcknowledgement: a ring is in Redis, under lease, as long as its
// handler runs, so that whoever dies meanwhile loses nothing.
func TestLateAcknowledgement(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		ring := h.ring(0)
		h.mustRing(t, ring)
		begun, finish := make(chan bool), make(chan bool)
		h.serve(t, ServerOptions{}, func(ctx context.Context, _ crawl.Ring) error {
			_, limited := ctx.Deadline()
			begun <- limited
			<-finish
			return nil
		})
		if !crawltest.Receive(t, wait, "handler", begun) {
			t.Error("the handler's context has no deadline")
		}
		h.wantWaiting(t, 0)
		info, err := h.inspector.GetTaskInfo(h.queue, ring.ID)
		if err != nil || info.State != asynq.TaskStateActive {
			t.Errorf("while it is handled: %+v, %v", info, err)
		}
		if n := r.Client.ZCard(t.Context(), "asynq:{"+h.queue+"}:lease").Val(); n != 1 {
			t.Errorf("%d leases, want 1", n)
		}
		h.mustRing(t, ring) // a conflict with the active one is a success, too
		h.wantWaiting(t, 0)
		close(finish)
		h.gone(t, ring)
	})
}

// TestShutdownGivesBack is JOB-15's part of the queue: a deploy uses up no
// attempt, and the ring is the next to be taken.
func TestShutdownGivesBack(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		ring, other := h.ring(0), h.ring(0)
		h.mustRing(t, ring, other)
		begun, ended := make(chan crawl.Ring, 1), make(chan error, 1)
		s := h.serve(t, ServerOptions{Slices: 1, ShutdownTimeout: 50 * time.Millisecond},
			func(ctx context.Context, r crawl.Ring) error {
				begun <- r
				<-ctx.Done()
				ended <- ctx.Err()
				return ctx.Err()
			})
		crawltest.Receive(t, wait, "handler", begun)
		s.StopFetching()
		s.StopFetching()
		select {
		case err := <-ended:
			t.Errorf("StopFetching ended the handler: %v", err)
		default:
		}
		s.Shutdown()
		s.Shutdown()
		crawltest.Receive(t, wait, "end of the handler", ended)
		h.wantWaiting(t, 2)
		info, err := h.inspector.GetTaskInfo(h.queue, ring.ID)
		if err != nil || info.State != asynq.TaskStatePending || info.Retried != 0 {
			t.Errorf("after the shutdown: %+v, %v", info, err)
		}
		if err := s.Start(); err == nil {
			t.Error("a server that was shut down started again")
		}

		handled := make(chan crawl.Ring, 2)
		h.serve(t, ServerOptions{Slices: 1}, func(_ context.Context, r crawl.Ring) error {
			handled <- r
			return nil
		})
		if got := crawltest.Receive(t, wait, "ring", handled); got != ring {
			t.Errorf("the next server begins with %v, want %v", got, ring)
		}
		crawltest.Receive(t, wait, "ring", handled)
	})
}

// TestNeverStarted: a worker whose start failed half-way stops all the same.
func TestNeverStarted(t *testing.T) {
	t.Parallel()
	s := NewServer(crawltest.Mini(t).Client, ServerOptions{}, nil)
	s.StopFetching()
	s.Shutdown()
}

// TestEndWhileRedisIsAway: asynq alone would run the ring a second time a minute
// later, see redisconn.Detach.
func TestEndWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	p := crawltest.Private(t)
	h := newHouse(t, &p.Redis)
	ring := h.ring(0)
	h.mustRing(t, ring)
	begun, finish := make(chan bool, 2), make(chan bool)
	var log lockedBuffer
	s := h.serve(t, ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		func(context.Context, crawl.Ring) error {
			begun <- true
			<-finish
			return nil
		})
	crawltest.Receive(t, wait, "handler", begun)
	p.Stop()
	close(finish)
	crawltest.Eventually(t, wait, "the acknowledgement fails", func() bool {
		return strings.Contains(log.String(), "Will retry syncing")
	})
	p.Start()
	h.gone(t, ring) // within the 30 s lease: later it would be run again
	s.Shutdown()
	if len(begun) != 0 {
		t.Error("the ring was handled twice")
	}
}

// TestJOB18 empties Redis below a doorbell and a server that stay up.
func TestJOB18(t *testing.T) {
	t.Parallel()
	h := newHouse(t, crawltest.Mini(t))
	handled := make(chan crawl.Ring, 1)
	h.serve(t, ServerOptions{}, func(_ context.Context, r crawl.Ring) error {
		handled <- r
		return nil
	})
	h.mustRing(t, h.ring(0))
	crawltest.Receive(t, wait, "ring", handled)
	if err := h.r.Client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ring := h.ring(0)
	h.mustRing(t, ring)
	if got := crawltest.Receive(t, wait, "ring", handled); got != ring {
		t.Errorf("handled %v, want %v", got, ring)
	}
	crawltest.Eventually(t, wait, "the inspector knows the queue", func() bool {
		_, err := h.inspector.GetQueueInfo(h.queue)
		return err == nil
	})
}

// TestJOB17 lets Redis run out of memory: a ring is refused with a word about
// it, and when memory is back the server goes on as if nothing had been.
func TestJOB17(t *testing.T) {
	t.Parallel()
	h := newHouse(t, &crawltest.Private(t).Redis)
	handled := make(chan crawl.Ring, 1)
	h.serve(t, ServerOptions{}, func(_ context.Context, r crawl.Ring) error {
		handled <- r
		return nil
	})
	memory := func(limit string) {
		if err := h.r.Client.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ring := h.ring(0)
	memory("1")
	if err := h.Ring(t.Context(), ring); crawl.CodeOf(err) != crawl.CodeUnavailable {
		t.Errorf("ring without memory: %v", err)
	}
	memory("0")
	h.mustRing(t, ring)
	if got := crawltest.Receive(t, wait, "ring", handled); got != ring {
		t.Errorf("handled %v, want %v", got, ring)
	}
}

// TestDoorbellAnnounces: the same without a worker.
func TestDoorbellAnnounces(t *testing.T) {
	t.Parallel()
	h := newHouse(t, crawltest.Mini(t))
	h.mustRing(t, h.ring(0))
	if err := h.r.Client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	h.announced.Add(-int64(announceEvery))
	ring := h.ring(0)
	h.mustRing(t, ring)
	if _, err := h.inspector.GetTaskInfo(h.queue, ring.ID); err != nil {
		t.Error(err)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	p := crawltest.Private(t)
	h := newHouse(t, &p.Redis)
	health := make(chan error, 100)
	h.serve(t, ServerOptions{Health: func(err error) { health <- err }}, nil)
	if err := crawltest.Receive(t, wait, "word of the health", health); err != nil {
		t.Errorf("healthy: %v", err)
	}
	p.Stop()
	crawltest.Eventually(t, wait, "the outage is reported", func() bool { return <-health != nil })
	p.Start()
	crawltest.Eventually(t, wait, "the recovery is reported", func() bool { return <-health == nil })
}

func TestFailureIsRetried(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("the store is away") },
		"panic": func() error { panic("a defect") }, // JOB-24: the process lives
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
				h := newHouse(t, r)
				ring := h.ring(3)
				h.mustRing(t, ring)
				tries := make(chan int, 9)
				var log lockedBuffer
				h.serve(t, ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))},
					func(ctx context.Context, _ crawl.Ring) error {
						n, _ := asynq.GetRetryCount(ctx)
						tries <- n
						if n == 0 {
							return fail()
						}
						return nil
					})
				for want := range 2 {
					if got := crawltest.Receive(t, wait, "try", tries); got != want {
						t.Errorf("try %d, want %d", got, want)
					}
				}
				h.gone(t, ring)
				for _, want := range []string{`msg="ring failed"`, "job_id=" + ring.ID, "ring=3", "tenant=" + h.tenant} {
					if !strings.Contains(log.String(), want) {
						t.Errorf("the log lacks %s:\n%s", want, log.String())
					}
				}
			})
		})
	}
}

// TestDropped: what can never succeed, or did not ten times, is not tried again.
func TestDropped(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		handled := make(chan crawl.Ring, 9)
		h.serve(t, ServerOptions{}, func(_ context.Context, r crawl.Ring) error {
			handled <- r
			return errors.New("no")
		})
		for _, p := range []string{"", "{}", "x"} {
			info, err := h.client.EnqueueContext(t.Context(), asynq.NewTask(taskType, []byte(p)), asynq.Queue(h.queue))
			if err != nil {
				t.Fatal(err)
			}
			crawltest.Eventually(t, wait, "the task is archived", func() bool {
				got, err := h.inspector.GetTaskInfo(h.queue, info.ID)
				return err == nil && got.State == asynq.TaskStateArchived && got.Retried == 0
			})
		}
		if len(handled) != 0 {
			t.Errorf("handled %v", <-handled)
		}

		ring := h.ring(0)
		body := `{"tenant":"` + ring.Tenant + `","job":"` + ring.ID + `","n":0}`
		_, err := h.client.EnqueueContext(t.Context(), asynq.NewTask(taskType, []byte(body)),
			asynq.Queue(h.queue), asynq.TaskID(ring.ID), asynq.MaxRetry(0))
		if err != nil {
			t.Fatal(err)
		}
		if got := crawltest.Receive(t, wait, "ring", handled); got != ring {
			t.Errorf("handled %v, want %v", got, ring)
		}
		h.gone(t, ring) // and not archived, where its id would stay for 90 days
	})
}

func TestRetryDelay(t *testing.T) {
	t.Parallel()
	if d := retryDelay(3, &crawl.Fault{Err: asynq.ErrLeaseExpired}); d != 0 {
		t.Errorf("after a worker's death: %v", d)
	}
	if isFailure(asynq.ErrLeaseExpired) || isFailure(nil) || !isFailure(errors.New("x")) {
		t.Error("isFailure")
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(-1, 1000).Draw(t, "n")
		limit := time.Minute
		if n < 6 {
			limit = time.Second << max(n, 0)
		}
		if d := retryDelay(n, errors.New("x")); d < 0 || d >= limit {
			t.Fatalf("delay %d is %v, want below %v", n, d, limit)
		}
	})
}

func TestDecode(t *testing.T) {
	t.Parallel()
	id := crawl.NewJobID("t", "k")
	for _, tc := range []struct {
		in   string
		want int64 // -1: refused
	}{
		{`{"tenant":"t","job":"` + id + `","n":0}`, 0},
		{`{"tenant":"t","job":"` + id + `","n":12}`, 12},
		{`{"tenant":"t","job":"` + id + `","n":3,"v":1}`, 3},
		{`{"tenant":"t","job":"` + id + `","n":3,"v":-1}`, -1},
		{`{"tenant":"t","job":"` + id + `","n":-1}`, -1},
		{`{"tenant":"t","job":"` + id + `","n":"1"}`, -1},
		{`{"tenant":"t","job":"` + id + `","n":1} {}`, -1},
		{`{"tenant":"t","job":"` + id + `","m":1}`, -1},
		{`{"tenant":"T","job":"` + id + `","n":1}`, -1},
		{`{"tenant":"t","job":"x","n":1}`, -1},
		{`null`, -1},
		{``, -1},
	} {
		r, err := decode([]byte(tc.in))
		if (err != nil) != (tc.want < 0) {
			t.Errorf("%s: %v", tc.in, err)
		}
		if err == nil && r != (crawl.Ring{JobRef: crawl.JobRef{Tenant: "t", ID: id}, N: tc.want}) {
			t.Errorf("%s: %v", tc.in, r)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"tenant":"t","job":"` + crawl.NewJobID("t", "k") + `","n":1}`))
	f.Add([]byte(`{"tenant":"t"}[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decode(b); err == nil && !valid(r) {
			t.Errorf("%q became %v", b, r)
		}
	})
}

// TestPace holds what a command costs when Redis gives no answer.
func TestPace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
	}{
		"answer":        {nil, 0},
		"nil":           {redis.Nil, 0},
		"unknown":       {serverError("NOSCRIPT no matching script"), 0},
		"out of memory": {serverError("OOM command not allowed"), outagePause},
		"refused":       {errors.New("connection refused"), outagePause},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := pace{outagePause}
				begin := time.Now()
				err := p.ProcessHook(func(context.Context, redis.Cmder) error { return tc.err })(t.Context(), nil)
				if d := time.Since(begin); d != tc.want || !errors.Is(err, tc.err) {
					t.Errorf("took %v and returned %v, want %v", d, err, tc.want)
				}
				begin = time.Now()
				err = p.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return tc.err })(t.Context(), nil)
				if d := time.Since(begin); d != tc.want || !errors.Is(err, tc.err) {
					t.Errorf("a pipeline took %v and returned %v, want %v", d, err, tc.want)
				}
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				begin = time.Now()
				p.after(ended, tc.err)
				if d := time.Since(begin); d != 0 {
					t.Errorf("a cancelled caller waited for %v", d)
				}
			})
		})
	}
}

// serverError is an error that Redis answered.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

func TestAsynqLogger(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := asynqLogger{slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.MessageKey {
				return slog.Attr{}
			}
			return a
		},
	}))}
	l.Debug("a")
	l.Info("b", 1)
	l.Warn("c")
	l.Error("d")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Fatal returned")
			}
		}()
		l.Fatal("e")
	}()
	want := "level=DEBUG text=a\nlevel=DEBUG text=b1\nlevel=WARN text=c\nlevel=ERROR text=d\nlevel=ERROR text=e\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
