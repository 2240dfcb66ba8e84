package queue

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/trace"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// spanOf returns a context with a span of another process.
func spanOf(t *testing.T) (context.Context, trace.SpanContext) {
	t.Helper()
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5}, TraceFlags: trace.FlagsSampled,
	})
	return trace.ContextWithSpanContext(t.Context(), sc), sc
}

// The span of who rings for a job reaches the handler in the rings of that job, and in no other's:
// who rings for one job often rings for those that it made room for.
func TestRingCarriesTheSpanOfItsJobAlone(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		mine, more, other := h.ring(0), h.ring(0), h.ring(3)
		more.ID, more.N = mine.ID, 7
		ctx, want := spanOf(t)
		if err := h.Ring(Traced(ctx, mine.JobRef), mine, other, more); err != nil {
			t.Fatal(err)
		}
		unmarked := h.ring(1)
		if err := h.Ring(ctx, unmarked); err != nil {
			t.Fatal(err)
		}
		spanless := h.ring(1)
		if err := h.Ring(Traced(t.Context(), spanless.JobRef), spanless); err != nil {
			t.Fatal(err)
		}
		for ring, headers := range map[crawl.Ring]int{mine: 1, more: 1, other: 0, unmarked: 0, spanless: 0} {
			info, err := h.inspector.GetTaskInfo(h.queue, taskID(ring))
			if err != nil {
				t.Fatal(err)
			}
			if len(info.Headers) != headers {
				t.Errorf("the task of ring %d has the headers %v", ring.N, info.Headers)
			}
			if got, err := decode(info.Payload); err != nil || got != ring { // as an older worker reads it
				t.Errorf("payload %s: %v", info.Payload, err)
			}
		}
		type heard struct {
			ring crawl.Ring
			span trace.SpanContext
		}
		came := make(chan heard, 5)
		h.serve(t, ServerOptions{}, func(ctx context.Context, r crawl.Ring) error {
			came <- heard{r, trace.SpanContextFromContext(ctx)}
			return nil
		})
		for range cap(came) {
			got := crawltest.Receive(t, wait, "a ring", came)
			switch {
			case got.ring.JobRef != mine.JobRef:
				if got.span.IsValid() {
					t.Errorf("the ring of another job has the span %v", got.span)
				}
			case got.span.TraceID() != want.TraceID() || got.span.SpanID() != want.SpanID() || !got.span.IsSampled() || !got.span.IsRemote():
				t.Errorf("the ring came with the span %v", got.span)
			}
		}
	})
}

// A ring that is given back is rung again with its header.
func TestSpanOfARingOutlivesARetry(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		h := newHouse(t, r)
		ring := h.ring(0)
		ctx, want := spanOf(t)
		if err := h.Ring(Traced(ctx, ring.JobRef), ring); err != nil {
			t.Fatal(err)
		}
		came := make(chan trace.SpanContext, 2)
		h.serve(t, ServerOptions{}, func(ctx context.Context, _ crawl.Ring) error {
			came <- trace.SpanContextFromContext(ctx)
			if len(came) == 1 {
				return context.DeadlineExceeded
			}
			return nil
		})
		crawltest.Eventually(t, wait, "two tries", func() bool { return len(came) == 2 })
		for range 2 {
			if got := <-came; got.SpanID() != want.SpanID() {
				t.Errorf("came with the span %v", got)
			}
		}
	})
}

// Anybody who reaches Redis can write a header: what is no span is passed over.
func TestHeaderThatIsNoSpan(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		task := asynq.NewTaskWithHeaders(taskType, nil, map[string]string{headerTrace: header})
		if sc := trace.SpanContextFromContext(rungBy(t.Context(), task)); sc.IsValid() {
			t.Errorf("%q is the span %v", header, sc)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if rungBy(ctx, asynq.NewTask(taskType, nil)) != ctx {
		t.Error("a task without header changes the context")
	}
}
