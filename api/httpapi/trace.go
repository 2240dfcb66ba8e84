package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
)

// traced begins the span of a request of the API and returns the context that has it. Probes,
// metrics and pages for people have none: they would be most of the traces.
//
// The span has no path, query, header or body: in them are keys, addresses and what a caller
// wrote. It begins before the caller is known, so that what is refused is seen as well.
func (s *Server) traced(ctx context.Context, x *exchange, start time.Time) context.Context {
	if s.tracer == nil || !strings.HasPrefix(x.c.FullPath(), "/v1/") {
		return ctx
	}
	r := x.c.Request
	method := semconv.HTTPRequestMethodKey.String(knownMethod(r.Method))
	if method.Value.AsString() == unknownMethod {
		method = semconv.HTTPRequestMethodOther
	}
	options := []trace.SpanStartOption{
		trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(method, semconv.HTTPRoute(x.c.FullPath()), obs.AttrRequestID.String(x.id)),
	}
	if caller := callerSpan(r.Header); caller.IsValid() {
		if s.continues(r.Header) {
			ctx = trace.ContextWithRemoteSpanContext(ctx, caller)
		} else {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: caller}))
		}
	}
	ctx, x.span = s.tracer.Start(ctx, knownMethod(r.Method)+" "+x.c.FullPath(), options...)
	return ctx
}

// continues reports whether the trace of a caller goes on here. Whoever says that it is
// sampled has the whole job traced, thousands of spans. Where a gateway stands before the
// service, only that decides it, since it passes on what it made itself; where none does, the
// callers are the operator's own services.
func (s *Server) continues(h http.Header) bool {
	if !s.gateway.set {
		return true
	}
	sent := h.Values(headerGatewaySecret)
	return len(sent) == 1 && s.gateway.opens(sent[0])
}

// callerSpan returns the span that a request says it is part of. Given twice it is not valid,
// W3C Trace Context section 3.2.
func callerSpan(h http.Header) trace.SpanContext {
	if sent := h.Values(obs.HeaderTraceParent); len(sent) == 1 {
		return obs.ParseTraceParent(sent[0])
	}
	return trace.SpanContext{}
}

// endSpan ends the span of a request, if there is one, with what became of it.
func (x *exchange) endSpan(status int, code crawl.Code, aborted bool) {
	if x.span == nil {
		return
	}
	defer x.span.End()
	if !x.span.IsRecording() {
		return
	}
	x.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	if x.tenant != "" {
		x.span.SetAttributes(obs.AttrTenant.String(x.tenant))
	}
	if x.job != "" {
		x.span.SetAttributes(obs.AttrJobID.String(x.job))
	}
	failed := status >= http.StatusInternalServerError
	switch {
	case code != "":
		x.span.SetAttributes(semconv.ErrorTypeKey.String(string(code)))
	case aborted || status == statusClientGone:
		x.span.SetAttributes(semconv.ErrorTypeKey.String("aborted"))
	}
	if failed || x.defect {
		x.span.SetStatus(codes.Error, string(code)) // the cause is in the log
	}
}

// traceID is the attribute of the log by which a trace finds its events; empty for none.
func (x *exchange) traceID() slog.Attr {
	if x.span == nil || !x.span.IsRecording() {
		return slog.Attr{}
	}
	return slog.String("trace_id", x.span.SpanContext().TraceID().String())
}

// tracedRing returns the context to ring in: only rings of the job that the request is about
// belong to its trace. Others are those of jobs that waited for a place.
func tracedRing(ctx context.Context, x *exchange, job string) context.Context {
	if x.span == nil || job == "" {
		return ctx
	}
	return queue.Traced(ctx, crawl.JobRef{Tenant: x.tenant, ID: job})
}
