package obs

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// flushMost bounds what a stop waits for the last spans: a collector that hangs
// must not use up the time that an orchestrator gives to stop.
const flushMost = 3 * time.Second

// Traces makes the spans of one service, and sends them where the standard
// variables of OpenTelemetry say.
type Traces struct {
	provider trace.TracerProvider
	sdk      *sdktrace.TracerProvider // nil: off
	counted  *countedSpans
	abort    context.CancelFunc // of what is being sent
	trouble  *rareLog
}

// NewTraces reads the OTEL_ variables of the process (OpenTelemetry specification,
// "Environment variables": exporter, endpoint, protocol, headers, sampler, batch
// processor, resource). Tracing is off, and costs nothing, unless
// OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set; OTEL_SDK_DISABLED=true or the
// exporter none turn it off again.
//
// service is the service.name, unless OTEL_SERVICE_NAME or
// OTEL_RESOURCE_ATTRIBUTES give another. An error names the variable that is
// wrong. A collector that does not answer is no error: spans wait in a bounded
// queue and are dropped when it is full, and log gets a line a minute.
//
// No provider becomes the global one, so that two services can live in one
// process. Where OpenTelemetry reports its own trouble is global: it goes to the
// log of the last call.
func NewTraces(ctx context.Context, service string, log *slog.Logger) (*Traces, error) {
	if on, err := tracingOn(); err != nil || !on {
		return &Traces{provider: noop.NewTracerProvider()}, err
	}
	trouble := &rareLog{log: log}
	otel.SetErrorHandler(trouble)
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	about, err := describe(ctx, service)
	if err != nil {
		return nil, err
	}
	sender, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_PROTOCOL: the exporter of traces cannot be made: %w", err)
	}
	t := &Traces{trouble: trouble}
	var sending context.Context
	sending, t.abort = context.WithCancel(context.WithoutCancel(ctx))
	counted := &countedSpans{}
	counted.SpanProcessor = sdktrace.NewBatchSpanProcessor(
		&watchedExporter{SpanExporter: sender, until: sending, counted: counted, trouble: trouble})
	// The provider reads the sampler from the environment by itself.
	t.sdk = sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithSpanProcessor(counted))
	t.provider, t.counted = t.sdk, counted
	log.InfoContext(ctx, "traces are on", slog.String("service", service))
	return t, nil
}

// Provider returns what makes tracers; never nil, and a no-op when tracing is off.
func (t *Traces) Provider() trace.TracerProvider { return t.provider }

// Stop sends what is left, for at most three seconds whether ctx has ended or not,
// since the end of a context is why a process stops. What could not be sent is
// lost, which the log says and which is no failure of the process. A second call
// does nothing.
func (t *Traces) Stop(ctx context.Context) {
	if t.sdk == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushMost)
	defer cancel()
	defer context.AfterFunc(ctx, t.abort)() // or a hanging request would outlive the wait
	if err := t.sdk.Shutdown(ctx); err != nil {
		t.trouble.lose(ctx, err, 0)
	}
	t.abort()
	t.sdk = nil
	if n := t.counted.ended.Load() - t.counted.handed.Load(); n > 0 {
		t.trouble.log.WarnContext(ctx, "spans were dropped: more ended than could be sent; trace fewer "+
			"(OTEL_TRACES_SAMPLER) or keep more (OTEL_BSP_MAX_QUEUE_SIZE)", slog.Int64("spans", n))
	}
}

// describe says who makes the spans.
func describe(ctx context.Context, service string) (*resource.Resource, error) {
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(
			semconv.ServiceName(service), semconv.ServiceVersion(BuildInfo().Version),
			// Two processes of a host differ in it; a number of the process would be 1 in every container.
			semconv.ServiceInstanceID(rand.Text()),
		),
		resource.WithFromEnv(), // last, so that it wins
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES must be name=value,name=value: %w", err)
	}
	return about, nil
}

// countedSpans counts the spans that ended and those that were handed to the
// exporter; the queue between drops without a word.
type countedSpans struct {
	sdktrace.SpanProcessor

	ended, handed atomic.Int64
}

// OnEnd implements [sdktrace.SpanProcessor].
func (c *countedSpans) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.ended.Add(1)
	}
	c.SpanProcessor.OnEnd(s)
}

// watchedExporter keeps the trouble of an exporter out of the way: it is told
// rarely, and ends with the process.
type watchedExporter struct {
	sdktrace.SpanExporter

	until   context.Context
	counted *countedSpans
	trouble *rareLog
}

// ExportSpans implements [sdktrace.SpanExporter].
func (w *watchedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.until, cancel)() //nolint:contextcheck // it ends with the process as well as with its caller
	w.counted.handed.Add(int64(len(spans)))
	if err := w.SpanExporter.ExportSpans(ctx, spans); err != nil {
		w.trouble.lose(ctx, err, len(spans))
	}
	return nil
}

// Tracer returns the tracer of a package, and nil when p is nil or makes no spans:
// who has none need not even ask.
func Tracer(p trace.TracerProvider, name string) trace.Tracer {
	if p == nil {
		return nil
	}
	if _, off := p.(noop.TracerProvider); off {
		return nil
	}
	return p.Tracer(name)
}

// The names of what Trawl adds to the semantic conventions of OpenTelemetry.
const (
	AttrTenant    = attribute.Key("trawl.tenant")
	AttrJobID     = attribute.Key("trawl.job.id")
	AttrRequestID = attribute.Key("trawl.request.id")
)
