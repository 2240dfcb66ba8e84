package crawler

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
)

// tracer makes the spans of slices and what is in them. Nil makes none.
//
// A page costs two spans at most, its fetch and its part of a commit, and about 10 µs when it is
// sampled. When it is not, the fetch costs one look into its context, and with a nil tracer
// nothing: neither the store nor the fetcher is wrapped.
type tracer struct{ trace.Tracer }

// newTracer also puts what makes the spans of fetches and commits before the fetcher and the
// store of o.
func newTracer(o *Options) *tracer {
	t := obs.Tracer(o.Traces, "example.com/trawl/worker/crawler")
	if t == nil {
		return nil
	}
	o.Fetcher, o.Store = tracedFetcher{o.Fetcher, t}, tracedStore{o.Store, t}
	return &tracer{t}
}

// sliceSpan is the span of a slice; its zero value is none.
type sliceSpan struct{ trace.Span }

// slice begins the span of a slice: a child of the submission, whoever rang, so that a job is one
// trace also when a sweep rings for it. What rang otherwise, another slice or a cancel, is linked.
// The context and the logger that it returns are those of the slice.
func (t *tracer) slice(
	ctx context.Context, sl *store.Slice, log *slog.Logger, begun time.Time,
) (context.Context, *slog.Logger, sliceSpan) {
	if t == nil {
		return ctx, log, sliceSpan{}
	}
	options := []trace.SpanStartOption{
		trace.WithTimestamp(begun), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			obs.AttrJobID.String(sl.Job.ID), obs.AttrTenant.String(sl.Job.Tenant), attribute.Int64("trawl.slice", sl.Gen)),
	}
	rung, submitted := trace.SpanContextFromContext(ctx), obs.ParseTraceParent(sl.Plan.Trace)
	if submitted.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, submitted)
		if rung.IsValid() && rung.SpanID() != submitted.SpanID() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: rung}))
		}
	}
	ctx, span := t.Start(ctx, "slice", options...)
	if span.IsRecording() {
		log = log.With(slog.String("trace_id", span.SpanContext().TraceID().String()))
	}
	return queue.Traced(ctx, sl.Job), log, sliceSpan{span}
}

// errStopped stands for a panic in a slice.
var errStopped = errors.New("the slice was broken off")

// end ends the span. The turn is nil when there was none.
func (s sliceSpan) end(t *turn, err error) {
	if s.Span == nil {
		return
	}
	if t != nil {
		s.SetAttributes(
			attribute.String("trawl.slice.ended", string(cmp.Or(t.why, endedIdle))), attribute.Int("trawl.pages", t.count.pages),
			attribute.Int("trawl.pages.accepted", t.count.accepted), attribute.Int("trawl.pages.failed", t.count.failed),
			attribute.Int("trawl.pages.skipped", t.count.skipped))
		if err == nil && t.why == endedError { // a panic, which is on its way to the queue
			err = errStopped
		}
	}
	failed(s.Span, err)
	s.End()
}

// ended ends a span. Deferred by itself, End would put the text of a panic into the span.
func ended(span trace.Span) { span.End() }

// failed notes on a span what went wrong, by its code: the text of an error may quote what a site
// or a caller sent.
func failed(span trace.Span, err error) {
	if err == nil {
		return
	}
	code := string(crawl.CodeOf(err))
	span.SetAttributes(semconv.ErrorTypeKey.String(code))
	span.SetStatus(codes.Error, code)
}

// tracedFetcher makes a span of each fetch within a span that is recorded. It sends no header:
// the sites that are crawled learn nothing of it.
type tracedFetcher struct {
	Fetcher

	tracer trace.Tracer
}

// Fetch implements [Fetcher].
func (f tracedFetcher) Fetch(ctx context.Context, req fetch.Request) (fetch.Result, error) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return f.Fetcher.Fetch(ctx, req)
	}
	ctx, span := f.start(ctx, "fetch", req.URL)
	defer ended(span)
	res, err := f.Fetcher.Fetch(ctx, req)
	answered := res.Page.Status
	if !res.Redirect.IsZero() {
		span.SetAttributes(attribute.String("trawl.redirect", shownURL(res.Redirect)))
	}
	if res.Page.Bytes > 0 {
		span.SetAttributes(semconv.HTTPResponseBodySize(int(res.Page.Bytes)))
	}
	fetched(ctx, span, answered, err)
	return res, err
}

// Raw implements [Fetcher].
func (f tracedFetcher) Raw(ctx context.Context, req fetch.RawRequest) (fetch.Raw, error) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return f.Fetcher.Raw(ctx, req)
	}
	ctx, span := f.start(ctx, "fetch file", req.URL)
	defer ended(span)
	raw, err := f.Fetcher.Raw(ctx, req)
	fetched(ctx, span, raw.Status, err)
	return raw, err
}

func (f tracedFetcher) start(ctx context.Context, name string, u crawl.URL) (context.Context, trace.Span) {
	port, _ := strconv.Atoi(u.Port()) // of a parsed URL it is a number
	return f.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.HTTPRequestMethodGet, semconv.URLFull(shownURL(u)), semconv.ServerAddress(u.Hostname()), semconv.ServerPort(port)))
}

// fetched notes what became of a fetch. A redirect that the job or the site does not let through is
// no error, nor is a fetch that the slice broke off: its page goes back.
func fetched(ctx context.Context, span trace.Span, status int, err error) {
	var (
		hop   hopRefusedError
		fault *crawl.Fault
	)
	if errors.As(err, &fault) && status == 0 {
		status = fault.Status
	}
	if status > 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	}
	switch {
	case errors.As(err, &hop):
		span.SetAttributes(attribute.String("trawl.skipped", string(hop.reason)))
	case err != nil && ctx.Err() != nil:
		span.SetAttributes(semconv.ErrorTypeKey.String("aborted"))
	default:
		failed(span, err)
	}
}

// tracedStore makes a span of each round trip that records or leases, within one that is
// recorded. Those that only ask for the slots of hosts are many, and say nothing about a page.
type tracedStore struct {
	Store

	tracer trace.Tracer
}

// Exchange implements [Store].
func (s tracedStore) Exchange(ctx context.Context, sl *store.Slice, x store.Exchange) (store.Exchanged, error) {
	commits := len(x.Commits) + len(x.Maps)
	if commits+x.Lease == 0 || !trace.SpanFromContext(ctx).IsRecording() {
		return s.Store.Exchange(ctx, sl, x)
	}
	name := "commit"
	if commits == 0 {
		name = "lease"
	}
	ctx, span := s.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.DBSystemNameRedis, attribute.Int("trawl.commit.pages", len(x.Commits)),
		attribute.Int("trawl.commit.sitemaps", len(x.Maps)), attribute.Int("trawl.lease.wanted", x.Lease)))
	defer ended(span)
	out, err := s.Store.Exchange(ctx, sl, x)
	stale := 0
	for i := range out.Committed {
		if out.Committed[i].Verdict == store.Stale {
			stale++
		}
	}
	span.SetAttributes(attribute.Int("trawl.commit.stale", stale), attribute.Int("trawl.lease.urls", len(out.Items)))
	failed(span, err)
	return out, err
}

// shownMost bounds a URL in a span, in bytes.
const shownMost = 1024

// shownURL is a URL as it may stand in a span: the values of a query can be keys and sessions, so
// only the names are there (userinfo a [crawl.URL] never has).
func shownURL(u crawl.URL) string {
	var b strings.Builder
	b.WriteString(u.Origin())
	b.WriteString(u.Path())
	sign := byte('?')
	for pair := range strings.SplitSeq(u.Query(), "&") {
		if pair == "" || b.Len() > shownMost {
			continue
		}
		b.WriteByte(sign)
		sign = '&'
		if name, _, ok := strings.Cut(pair, "="); ok {
			b.WriteString(name + "=")
		}
		b.WriteString("REDACTED") // as the semantic conventions write it
	}
	if b.Len() > shownMost {
		return strings.ToValidUTF8(b.String()[:shownMost], "") + "…"
	}
	return b.String()
}
