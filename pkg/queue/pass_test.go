package queue

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// staff starts servers that handle rings in turn, and waits until each of them is known as one.
func (h *house) staff(t *testing.T, o ServerOptions, handlers ...func(context.Context, crawl.Ring) error) {
	t.Helper()
	for _, handle := range handlers {
		h.serve(t, o, handle)
	}
	crawltest.Eventually(t, wait, "all servers are there", func() bool {
		n, err := Workers(t.Context(), h.r.Client)
		return err == nil && n == int64(len(handlers))
	})
}

// empty waits until the queue has no task in any state, and none was archived or counts a failure.
func (h *house) empty(t *testing.T) {
	t.Helper()
	crawltest.Eventually(t, wait, "the queue is empty", func() bool {
		info, err := h.inspector.GetQueueInfo(h.queue)
		if err != nil {
			t.Fatal(err)
		}
		if info.FailedTotal > 0 || info.Archived > 0 || info.Retry > 0 {
			t.Fatalf("a ring that was passed on has failed: %+v", info)
		}
		return info.Size == 0
	})
}

// A ring that a worker cannot use goes to one that can, whole, with nothing counted as a failure:
// of a worker with places left, and of one all of whose places are taken, which looks again as soon as
// it has one.
func TestRingIsPassedOn(t *testing.T) {
	t.Parallel()
	for _, slices := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(slices), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, crawltest.Mini(t)) // a Redis of its own: the servers are counted
			var met, got sync.Map
			h.staff(t, ServerOptions{Slices: slices}, func(_ context.Context, r crawl.Ring) error {
				met.Store(r, true)
				return ErrServed
			}, func(_ context.Context, r crawl.Ring) error {
				got.Store(r, true)
				return nil
			})
			// Which server looks first is chance; and one in a thousand dies out, or more on a machine that is busy.
			for n := range int64(200) {
				r := h.ring(n)
				h.mustRing(t, r)
				h.empty(t)
				_, first := met.Load(r)
				if _, then := got.Load(r); first && then {
					return
				}
			}
			t.Error("none of 200 rings was passed on")
		})
	}
}

// A ring that no worker can use ends, after each has had it about twice; one of a lone worker at once.
func TestRingsThatNobodyNeedsDieOut(t *testing.T) {
	t.Parallel()
	for servers, each := range map[int]int{1: 1, 3: passRounds*3 + 1} {
		for _, rings := range []int{1, 15} {
			t.Run(fmt.Sprintf("%d servers %d rings", servers, rings), func(t *testing.T) {
				t.Parallel()
				h := newHouse(t, crawltest.Mini(t))
				var met atomic.Int64
				all := make([]func(context.Context, crawl.Ring) error, servers)
				for i := range all {
					all[i] = func(context.Context, crawl.Ring) error {
						met.Add(1)
						return ErrServed
					}
				}
				h.staff(t, ServerOptions{}, all...)
				job := h.ring(0)
				for n := range int64(rings) {
					h.mustRing(t, crawl.Ring{JobRef: job.JobRef, N: n})
				}
				h.empty(t)
				t.Logf("%d rings were met %d times by %d servers", rings, met.Load(), servers)
				if n := int(met.Load()); n < rings || n > rings*each {
					t.Errorf("they were met %d times, want at most %d", n, rings*each)
				}
			})
		}
	}
}

// Of the rings of a job that are held together no more go on than there are other workers, and none
// that all have met.
func TestRingsAreMerged(t *testing.T) {
	t.Parallel()
	h := newHouse(t, crawltest.Mini(t))
	s := NewServer(h.r.Open(t, redisconn.Options{}), ServerOptions{Queue: h.queue}, nil) // it takes none
	there := float64(time.Now().Add(time.Hour).Unix())
	for i, step := range []struct {
		passes []int
		want   int64 // rings that go on
	}{
		{[]int{1, 1, 1}, 0}, // this worker is alone
		{[]int{1, 1, 1}, 1},
		{[]int{7, 1, 6, 6, 1}, 2},
		{[]int{8, 9, 8}, 2}, // eight times are two rounds of four workers
	} {
		if err := h.r.Client.ZAdd(t.Context(), serversKey, redis.Z{Score: there, Member: i}).Err(); err != nil {
			t.Fatal(err)
		}
		for _, n := range step.passes {
			s.passes.hold(h.ring(0).JobRef, asynq.NewTask(taskType, nil)) // of other jobs, which stay
			first := s.passes.hold(crawl.JobRef{ID: "job"}, asynq.NewTaskWithHeaders(taskType, nil,
				map[string]string{headerPasses: strconv.Itoa(n)}))
			if first != (len(s.passes.held[crawl.JobRef{ID: "job"}]) == 1) {
				t.Errorf("step %d: first %v", i, first)
			}
		}
		before, err := h.Waiting(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := s.passOn(t.Context(), s.passes.take(crawl.JobRef{ID: "job"})); err != nil || int64(n) != step.want {
			t.Fatalf("step %d: %d rings went on, want %d, %v", i, n, step.want, err)
		}
		h.wantWaiting(t, before+step.want)
	}
	if n := len(s.passes.held); n != 14 {
		t.Errorf("%d rings of other jobs are held", n)
	}
}

// How often a ring was passed on is told by a header that anybody may have written.
func TestPassed(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]int{"": 0, "3": 3, "-1": 0, "x": 0, "99999999999999999999": 0} {
		if n := passed(asynq.NewTaskWithHeaders(taskType, nil, map[string]string{headerPasses: header})); n != want {
			t.Errorf("%q is %d", header, n)
		}
	}
}
