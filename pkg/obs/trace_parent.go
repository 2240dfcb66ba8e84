package obs

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// HeaderTraceParent is the header of W3C Trace Context by which a trace goes on in
// another process. Its companion tracestate is not passed on: it is text of the
// caller's, of up to 512 bytes for each task and job, that nothing here reads.
const HeaderTraceParent = "traceparent"

// TraceParent returns the span of ctx in the form of a traceparent, "" for none.
func TraceParent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[HeaderTraceParent]
}

// ParseTraceParent reads a traceparent; what is none gives a context that is not valid.
func ParseTraceParent(s string) trace.SpanContext {
	if s == "" {
		return trace.SpanContext{}
	}
	//nolint:forbidigo // it only carries the value out of the propagator
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{HeaderTraceParent: s})
	return trace.SpanContextFromContext(ctx)
}
