package crawler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
)

// answers is a fetcher and a store that answer one thing.
type answers struct {
	Fetcher
	Store

	result fetch.Result
	raw    fetch.Raw
	out    store.Exchanged
	err    error
	panics bool
}

func (a *answers) Fetch(context.Context, fetch.Request) (fetch.Result, error) {
	if a.panics {
		panic("sekret")
	}
	return a.result, a.err
}

func (a *answers) Raw(context.Context, fetch.RawRequest) (fetch.Raw, error) { return a.raw, a.err }

func (a *answers) Exchange(context.Context, *store.Slice, store.Exchange) (store.Exchanged, error) {
	return a.out, a.err
}

// traced are a fetcher and a store with spans, and a context with one that is recorded.
func traced(t testing.TB, a *answers, sampler sdktrace.Sampler) (Options, context.Context, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sampler))
	o := Options{Fetcher: a, Store: a, Traces: provider}
	if newTracer(&o) == nil {
		t.Fatal("there is no tracer")
	}
	ctx, _ := provider.Tracer("test").Start(t.Context(), "slice")
	return o, ctx, spans
}

func mustURL(t testing.TB, s string) crawl.URL {
	t.Helper()
	u, err := crawl.ParseURL(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func attributesOf(s sdktrace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// What a URL of a page has in a span tells which page it is, and no value of its query.
func TestShownURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://me:sekret@site.test/a":        "http://site.test/a",
		"http://site.test":                    "http://site.test/",
		"https://site.test:8443/a/b?":         "https://site.test:8443/a/b",
		"http://site.test/?token=sekret":      "http://site.test/?token=REDACTED",
		"http://site.test/?a=1&&b=sekret=x&c": "http://site.test/?a=REDACTED&b=REDACTED&REDACTED",
		"http://site.test/?sekret":            "http://site.test/?REDACTED",
		"http://site.test/?=sekret#sekret":    "http://site.test/?=REDACTED",
	} {
		if got := shownURL(mustURL(t, in)); got != want {
			t.Errorf("%s is shown as %s, want %s", in, got, want)
		}
	}
	for _, long := range []string{"/" + strings.Repeat("é", 1000), "/?" + strings.Repeat("a=1&", 1500), "/?" + strings.Repeat("a", 2000) + "=1"} {
		if got := shownURL(mustURL(t, "http://site.test"+long)); len(got) > shownMost+len("…") || !strings.HasSuffix(got, "…") {
			t.Errorf("%.30s… is shown with %d bytes", long, len(got))
		}
	}
}

func TestSpanOfAFetch(t *testing.T) {
	t.Parallel()
	elsewhere := mustURL(t, "https://other.test/login?next=sekret")
	for name, tt := range map[string]struct {
		a      answers
		status codes.Code
		want   map[string]string
	}{
		"page": {
			answers{result: fetch.Result{Page: crawl.Page{Status: 200, Bytes: 12}}},
			codes.Unset,
			map[string]string{"http.response.status_code": "200", "http.response.body.size": "12"},
		},
		"redirect": {
			answers{result: fetch.Result{Page: crawl.Page{Status: 302}, Redirect: elsewhere}},
			codes.Unset,
			map[string]string{"http.response.status_code": "302", "trawl.redirect": "https://other.test/login?next=REDACTED"},
		},
		"fault of the site": {
			answers{err: &crawl.Fault{Code: "http_404", Status: http.StatusNotFound, Message: "sekret"}},
			codes.Error,
			map[string]string{"http.response.status_code": "404", "error.type": "http_404"},
		},
		"no answer": {answers{err: crawl.Faultf("timeout", "sekret")}, codes.Error, map[string]string{"error.type": "timeout"}},
		"defect":    {answers{err: errors.New("sekret")}, codes.Error, map[string]string{"error.type": "internal"}},
		"redirect that is not followed": {
			answers{err: fmt.Errorf("get: %w", hopRefusedError{reason: crawl.SkipRobots, to: elsewhere, rule: "sekret"})},
			codes.Unset,
			map[string]string{"trawl.skipped": "robots"},
		},
		"panic": {answers{panics: true}, codes.Unset, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, ctx, spans := traced(t, &tt.a, sdktrace.AlwaysSample())
			func() {
				defer func() { _ = recover() }()
				_, _ = o.Fetcher.Fetch(ctx, fetch.Request{URL: mustURL(t, "http://me:sekret@site.test:81/a?key=sekret")})
			}()
			span := spans.Ended()[0]
			tt.want["http.request.method"], tt.want["server.address"], tt.want["server.port"] = "GET", "site.test", "81"
			tt.want["url.full"] = "http://site.test:81/a?key=REDACTED"
			if diff := cmp.Diff(tt.want, attributesOf(span)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if span.Name() != "fetch" || span.SpanKind() != trace.SpanKindClient || span.Status().Code != tt.status ||
				span.Parent().SpanID() != trace.SpanContextFromContext(ctx).SpanID() {
				t.Errorf("span %q of kind %v: %v", span.Name(), span.SpanKind(), span.Status())
			}
			if all := fmt.Sprint(tracetest.SpanStubFromReadOnlySpan(span)); strings.Contains(all, "sekret") {
				t.Errorf("a secret is in the span: %s", all)
			}
		})
	}
}

// A fetch that the slice broke off is no error of the page.
func TestSpanOfAFetchThatIsBrokenOff(t *testing.T) {
	t.Parallel()
	o, ctx, spans := traced(t, &answers{err: context.Canceled}, sdktrace.AlwaysSample())
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_, _ = o.Fetcher.Fetch(ctx, fetch.Request{URL: mustURL(t, "http://site.test/")})
	if s := spans.Ended()[0]; s.Status().Code != codes.Unset || attributesOf(s)["error.type"] != "aborted" {
		t.Errorf("status %v, attributes %v", s.Status(), attributesOf(s))
	}
}

func TestSpanOfAFile(t *testing.T) {
	t.Parallel()
	o, ctx, spans := traced(t, &answers{raw: fetch.Raw{Status: 404}}, sdktrace.AlwaysSample())
	_, _ = o.Fetcher.Raw(ctx, fetch.RawRequest{URL: mustURL(t, "http://site.test/robots.txt")})
	s := spans.Ended()[0]
	if s.Name() != "fetch file" || attributesOf(s)["url.full"] != "http://site.test/robots.txt" ||
		attributesOf(s)["http.response.status_code"] != "404" || s.Status().Code != codes.Unset {
		t.Errorf("span %q, attributes %v", s.Name(), attributesOf(s))
	}
}

func TestSpanOfARoundTrip(t *testing.T) {
	t.Parallel()
	lost := store.Exchanged{Committed: []store.Committed{{Verdict: store.Done}, {Verdict: store.Stale}}, Items: make([]crawl.Item, 3)}
	for name, tt := range map[string]struct {
		x    store.Exchange
		a    answers
		span string // empty: none
		want string
	}{
		"commit": {store.Exchange{Commits: make([]store.Commit, 2), Lease: 5}, answers{out: lost}, "commit", "2 0 1 5 3 "},
		"parts of a sitemap": {
			store.Exchange{Maps: make([]store.MapCommit, 1)}, answers{}, "commit", "0 1 0 0 0 ",
		},
		"lease": {store.Exchange{Lease: 5}, answers{}, "lease", "0 0 0 5 0 "},
		"slots": {store.Exchange{Reserves: make([]store.HostReserve, 1), Free: make([]store.HostSlots, 1)}, answers{}, "", ""},
		"no answer": {
			store.Exchange{Lease: 1}, answers{err: crawl.Faultf(crawl.CodeUnavailable, "sekret")}, "lease", "0 0 0 1 0 unavailable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, ctx, spans := traced(t, &tt.a, sdktrace.AlwaysSample())
			if _, err := o.Store.Exchange(ctx, &store.Slice{}, tt.x); !errors.Is(err, tt.a.err) {
				t.Errorf("answered %v", err)
			}
			if tt.span == "" {
				if len(spans.Ended()) > 0 {
					t.Errorf("span %q", spans.Ended()[0].Name())
				}
				return
			}
			s := spans.Ended()[0]
			got := attributesOf(s)
			all := strings.Join([]string{
				got["trawl.commit.pages"], got["trawl.commit.sitemaps"], got["trawl.commit.stale"], got["trawl.lease.wanted"],
				got["trawl.lease.urls"], got["error.type"],
			}, " ")
			if s.Name() != tt.span || all != tt.want || (s.Status().Code == codes.Error) != (tt.a.err != nil) {
				t.Errorf("span %q: %s, status %v", s.Name(), all, s.Status())
			}
		})
	}
}

// A slice is a child of the submission, whoever rang for it; another who rang is linked.
func TestSpanOfASlice(t *testing.T) {
	t.Parallel()
	const submitted = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, tt := range map[string]struct {
		plan, rung string
		parent     string // a span's id; empty: a trace of its own
		links      int
		none       bool
	}{
		"rung by the submission": {submitted, submitted, "b7ad6b7169203331", 0, false},
		"rung by a sweep":        {submitted, "", "b7ad6b7169203331", 0, false},
		"rung by another":        {submitted, submitted[:36] + "1111111111111111-01", "b7ad6b7169203331", 1, false},
		"not traced when submitted": {
			"", submitted[:36] + "1111111111111111-01", "1111111111111111", 0, false,
		},
		"never traced":   {"", "", "", 0, false},
		"broken plan":    {"nonsense", "", "", 0, false},
		"not sampled":    {submitted[:53] + "00", submitted[:53] + "00", "", 0, true},
		"sampled by one": {submitted[:53] + "00", submitted[:36] + "1111111111111111-01", "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans, log := tracetest.NewSpanRecorder(), &strings.Builder{}
			o := Options{Traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}
			sl := &store.Slice{Job: crawl.JobRef{Tenant: "t", ID: "j"}, Gen: 7, Plan: crawl.Plan{Trace: tt.plan}}
			ctx := trace.ContextWithRemoteSpanContext(t.Context(), obs.ParseTraceParent(tt.rung))
			begun := time.Unix(1_700_000_000, 0)
			ctx, sliceLog, span := newTracer(&o).slice(ctx, sl, slog.New(slog.NewTextHandler(log, nil)), begun)
			sliceLog.InfoContext(ctx, "line")
			span.end(&turn{count: outcomes{pages: 3, failed: 1}}, nil)
			if tt.none {
				if len(spans.Ended()) > 0 || strings.Contains(log.String(), "trace_id") {
					t.Errorf("what is not sampled is recorded, or logged: %s", log)
				}
				return
			}
			s := spans.Ended()[0]
			if parent := s.Parent(); tt.parent != "" && parent.SpanID().String() != tt.parent || tt.parent == "" && parent.IsValid() {
				t.Errorf("the parent is %v, want %q", parent, tt.parent)
			}
			if len(s.Links()) != tt.links || !s.StartTime().Equal(begun) || s.SpanKind() != trace.SpanKindConsumer {
				t.Errorf("%d links, begun %v, kind %v", len(s.Links()), s.StartTime(), s.SpanKind())
			}
			if !strings.Contains(log.String(), "trace_id="+s.SpanContext().TraceID().String()) {
				t.Errorf("the log does not name the trace: %s", log)
			}
			want := map[string]string{
				"trawl.job.id": "j", "trawl.tenant": "t", "trawl.slice": "7", "trawl.pages": "3", "trawl.pages.accepted": "0",
				"trawl.pages.failed": "1", "trawl.pages.skipped": "0", "trawl.slice.ended": "no work",
			}
			if diff := cmp.Diff(want, attributesOf(s)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

// A slice that fails, and one that panics, say so by a code.
func TestSpanOfASliceThatFails(t *testing.T) {
	t.Parallel()
	for want, tt := range map[string]struct {
		t   *turn
		err error
	}{
		"unavailable": {&turn{}, fmt.Errorf("slice: %w", crawl.Faultf(crawl.CodeUnavailable, "sekret"))},
		"internal":    {&turn{why: endedError}, nil},
	} {
		spans := tracetest.NewSpanRecorder()
		o := Options{Traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}
		_, _, span := newTracer(&o).slice(t.Context(), &store.Slice{}, slog.New(slog.DiscardHandler), time.Now())
		span.end(tt.t, tt.err)
		s := spans.Ended()[0]
		if s.Status().Code != codes.Error || s.Status().Description != want || attributesOf(s)["error.type"] != want {
			t.Errorf("status %v, attributes %v, want %s", s.Status(), attributesOf(s), want)
		}
	}
}

// Where nothing is traced nothing stands between the crawler and its store, and where a slice is
// not sampled a fetch costs no memory.
func TestTracesThatAreOffCostNothing(t *testing.T) {
	a := &answers{}
	for _, provider := range []trace.TracerProvider{nil, noop.NewTracerProvider()} {
		o := Options{Fetcher: a, Store: a, Traces: provider}
		if newTracer(&o) != nil || o.Fetcher != Fetcher(a) || o.Store != Store(a) {
			t.Errorf("%T: there is a tracer", provider)
		}
	}
	var none *tracer
	sl := &store.Slice{}
	sl.Plan.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx, _, span := none.slice(t.Context(), sl, nil, time.Time{})
	if span.end(nil, nil); ctx != t.Context() {
		t.Error("the context is another without a tracer")
	}
	o, ctx, spans := traced(t, a, sdktrace.NeverSample())
	u := mustURL(t, "http://site.test/")
	if n := testing.AllocsPerRun(100, func() {
		_, _ = o.Fetcher.Fetch(ctx, fetch.Request{URL: u})
		_, _ = o.Store.Exchange(ctx, sl, store.Exchange{Lease: 1})
	}); n != 0 {
		t.Errorf("%v allocations for what is not sampled", n)
	}
	if len(spans.Started()) != 0 {
		t.Errorf("%d spans that are not sampled are recorded", len(spans.Started()))
	}
}

// nowhere takes spans and drops them.
type nowhere struct{ sdktrace.SpanProcessor }

func (nowhere) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (nowhere) OnEnd(sdktrace.ReadOnlySpan)                     {}

// BenchmarkTracedFetch is what the span of a page costs, sampled and not.
func BenchmarkTracedFetch(b *testing.B) {
	u := mustURL(b, "http://site.test/a/page?of=it")
	for name, sampler := range map[string]sdktrace.Sampler{"sampled": sdktrace.AlwaysSample(), "not": sdktrace.NeverSample()} {
		b.Run(name, func(b *testing.B) {
			provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(nowhere{}))
			o := Options{Fetcher: &answers{}, Store: &answers{}, Traces: provider}
			newTracer(&o)
			ctx, _ := provider.Tracer("bench").Start(b.Context(), "slice")
			b.ReportAllocs()
			for b.Loop() {
				_, _ = o.Fetcher.Fetch(ctx, fetch.Request{URL: u})
			}
		})
	}
}
