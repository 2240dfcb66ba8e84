package queue

import (
	"context"
	"strings"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"example.com/trawl/pkg/crawl"
)

// headerTrace is where a task has the trace of who rang (W3C Trace Context). It is a
// header of the task and no part of its payload, which an older worker would refuse.
const headerTrace = "traceparent"

// tracedKey is the key in a context of the job that its span is about.
type tracedKey struct{}

// Traced returns a context that says: the span in it is about job. [Doorbell.Ring]
// puts that span into the rings of job alone, since who rings for one job often rings
// for others as well, which have no part in its trace; and without Traced into none.
func Traced(ctx context.Context, job crawl.JobRef) context.Context {
	return context.WithValue(ctx, tracedKey{}, job.ID)
}

// task makes the task of the ring with the given id.
func task(ctx context.Context, id string, body []byte) *asynq.Task {
	about, ok := ctx.Value(tracedKey{}).(string)
	if !ok || !trace.SpanContextFromContext(ctx).IsValid() {
		return asynq.NewTask(taskType, body)
	}
	if job, _, _ := strings.Cut(id, "."); job != about {
		return asynq.NewTask(taskType, body)
	}
	all := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, all)
	// Of its tracestate, which can be long, nothing here makes use.
	return asynq.NewTaskWithHeaders(taskType, body, map[string]string{headerTrace: all[headerTrace]})
}

// rungBy returns ctx with the span, in another process, of who rang for t; what is no
// span is passed over.
func rungBy(ctx context.Context, t *asynq.Task) context.Context {
	parent := t.Headers()[headerTrace]
	if parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{headerTrace: parent})
}
