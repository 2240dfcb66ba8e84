package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// tracedBench is a bench whose spans are looked at.
type tracedBench struct {
	*bench
	spans *tracetest.SpanRecorder
}

func newTracedBench(t *testing.T, sampler sdktrace.Sampler, change func(*Options)) *tracedBench {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sampler))
	return &tracedBench{spans: spans, bench: newBenchWith(t, func(o *Options) {
		o.Traces = provider
		if change != nil {
			change(o)
		}
	})}
}

// one returns the only span, which has ended.
func (b *tracedBench) one(t *testing.T) sdktrace.ReadOnlySpan {
	t.Helper()
	if len(b.spans.Started()) != 1 || len(b.spans.Ended()) != 1 {
		t.Fatalf("%d spans begun and %d ended, want one", len(b.spans.Started()), len(b.spans.Ended()))
	}
	return b.spans.Ended()[0]
}

func attributes(s sdktrace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// callerParent is what a caller sends.
const callerParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestSpanOfARequest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		method, target, body string
		edit                 []func(*http.Request)
		err                  error // of the store
		span                 string
		want                 map[string]string
		status               codes.Code
	}{
		"submission": {
			method: "POST", target: "/v1/jobs", body: `{"urls":["http://site.test/?token=sekret1"],"headers":{"X-Token":"sekret2"}}`,
			edit: []func(*http.Request){header("Idempotency-Key", "sekret3"), header("X-Request-ID", "req-1")},
			span: "POST /v1/jobs",
			want: map[string]string{
				"http.request.method": "POST", "http.route": "/v1/jobs", "http.response.status_code": "202", "trawl.request.id": "req-1",
				"trawl.tenant": "a", "trawl.job.id": crawl.NewJobID("a", "sekret3"),
			},
		},
		"refused submission": {
			method: "POST", target: "/v1/jobs", body: `{"urls":["http://me:sekret1@site.test:0x/"]}`,
			edit: []func(*http.Request){header("X-Request-ID", "req-1")}, span: "POST /v1/jobs",
			want: map[string]string{
				"http.request.method": "POST", "http.route": "/v1/jobs", "http.response.status_code": "422", "trawl.request.id": "req-1",
				"trawl.tenant": "a", "error.type": "invalid",
			},
		},
		"no key": {
			method: "GET", target: "/v1/jobs?cursor=sekret1",
			edit: []func(*http.Request){header("Authorization", "Bearer sekret2"), header("X-Request-ID", "req-1")}, span: "GET /v1/jobs",
			want: map[string]string{
				"http.request.method": "GET", "http.route": "/v1/jobs", "http.response.status_code": "401", "trawl.request.id": "req-1",
				"error.type": "unauthenticated",
			},
		},
		"defect": {
			method: "GET", target: "/v1/jobs?tag=sekret1", err: fmt.Errorf("get http://me:sekret2@site.test/"),
			edit: []func(*http.Request){header("X-Request-ID", "req-1")}, span: "GET /v1/jobs", status: codes.Error,
			want: map[string]string{
				"http.request.method": "GET", "http.route": "/v1/jobs", "http.response.status_code": "500", "trawl.request.id": "req-1",
				"trawl.tenant": "a", "error.type": "internal",
			},
		},
		"no id": {
			method: "GET", target: "/v1/jobs/sekret1", edit: []func(*http.Request){header("X-Request-ID", "req-1")},
			span: "GET /v1/jobs/:id",
			want: map[string]string{
				"http.request.method": "GET", "http.route": "/v1/jobs/:id", "http.response.status_code": "404", "trawl.request.id": "req-1",
				"trawl.tenant": "a", "error.type": "not_found",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTracedBench(t, sdktrace.AlwaysSample(), nil)
			b.err = tt.err
			b.call(tt.method, tt.target, tt.body, tt.edit...)
			span := b.one(t)
			if span.Name() != tt.span || span.SpanKind() != trace.SpanKindServer || span.Status().Code != tt.status ||
				span.Parent().IsValid() {
				t.Errorf("span %q of kind %v, status %v, parent %v", span.Name(), span.SpanKind(), span.Status(), span.Parent())
			}
			if diff := cmp.Diff(tt.want, attributes(span)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if all := fmt.Sprint(tracetest.SpanStubFromReadOnlySpan(span)); strings.Contains(strings.ReplaceAll(all, "sekret3", ""), "sekret") ||
				strings.Contains(all, keyA) {
				t.Errorf("a secret is in the span: %s", all)
			}
			if want := `"trace_id":"` + span.SpanContext().TraceID().String() + `"`; !strings.Contains(b.logs.String(), want) {
				t.Errorf("the log has no %s: %s", want, b.logs.String())
			}
		})
	}
}

// A panic ends the span as it ends the request.
func TestSpanOfAPanic(t *testing.T) {
	t.Parallel()
	b := newTracedBench(t, sdktrace.AlwaysSample(), nil)
	ref := b.add("a", crawl.Running)
	b.read = func(crawl.JobRef, *crawl.Job) { panic("sekret") }
	b.call("GET", "/v1/jobs/"+ref.ID, "")
	span := b.one(t)
	if span.Status().Code != codes.Error || attributes(span)["error.type"] != "internal" || len(span.Events()) != 0 {
		t.Errorf("span %+v", tracetest.SpanStubFromReadOnlySpan(span))
	}
}

func TestNoSpanOfWhatIsNoCall(t *testing.T) {
	t.Parallel()
	b := newTracedBench(t, sdktrace.AlwaysSample(), nil)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/monitor", "/monitor/x", "/v1", "/v1/other", "/"} {
		b.call("GET", path, "")
	}
	if n := len(b.spans.Started()); n != 0 {
		t.Errorf("%d spans, the first is %q", n, b.spans.Started()[0].Name())
	}
}

// A caller's trace goes on, unless a gateway stands before the service, which then is the one to
// decide what is sampled; others are linked.
func TestTraceOfACaller(t *testing.T) {
	t.Parallel()
	sampled, unsampled := callerParent, strings.TrimSuffix(callerParent, "01")+"00"
	parents := func(values ...string) func(*http.Request) { return header("traceparent", values...) }
	for name, tt := range map[string]struct {
		gateway bool
		edit    []func(*http.Request)
		goesOn  bool
		links   int
		spans   int
	}{
		"none":            {spans: 1},
		"sampled":         {edit: []func(*http.Request){parents(sampled)}, goesOn: true, spans: 1},
		"not sampled":     {edit: []func(*http.Request){parents(unsampled)}},
		"no traceparent":  {edit: []func(*http.Request){parents("nonsense")}, spans: 1},
		"two":             {edit: []func(*http.Request){parents(sampled, sampled)}, spans: 1},
		"zero":            {edit: []func(*http.Request){parents("00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01")}, spans: 1},
		"with tracestate": {edit: []func(*http.Request){parents(sampled), header("tracestate", "a=sekret")}, goesOn: true, spans: 1},
		"of the gateway": {
			gateway: true, edit: []func(*http.Request){parents(sampled), behind(gatewaySecret, "c")}, goesOn: true, spans: 1,
		},
		"not sampled by the gateway": {gateway: true, edit: []func(*http.Request){parents(unsampled), behind(gatewaySecret, "c")}},
		"beside the gateway":         {gateway: true, edit: []func(*http.Request){parents(sampled)}, links: 1, spans: 1},
		"not sampled beside it":      {gateway: true, edit: []func(*http.Request){parents(unsampled)}, links: 1, spans: 1},
		"wrong secret":               {gateway: true, edit: []func(*http.Request){parents(sampled), behind("wrong", "c")}, links: 1, spans: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTracedBench(t, sdktrace.ParentBased(sdktrace.AlwaysSample()), func(o *Options) {
				if tt.gateway {
					o.GatewaySecret = gatewaySecret
				}
			})
			b.call("GET", "/v1/jobs", "", tt.edit...)
			if got := len(b.spans.Ended()); got != tt.spans {
				t.Fatalf("%d spans, want %d", got, tt.spans)
			}
			if tt.spans == 0 {
				return
			}
			span := b.one(t)
			goesOn := span.Parent().IsRemote() && strings.Contains(callerParent, span.Parent().SpanID().String()) &&
				span.SpanContext().TraceID() == span.Parent().TraceID() && strings.Contains(callerParent, span.SpanContext().TraceID().String())
			if goesOn != tt.goesOn || !goesOn && span.Parent().IsValid() {
				t.Errorf("the trace goes on: %v, parent %v", goesOn, span.Parent())
			}
			if len(span.Links()) != tt.links {
				t.Errorf("%d links, want %d", len(span.Links()), tt.links)
			}
			if s := span.SpanContext().TraceState().String(); s != "" {
				t.Errorf("the tracestate of the caller is kept: %q", s)
			}
		})
	}
}

// The plan of a job has the span of its first submission. It is no part of what the job is: a
// replay is one, traced or not, and no client sees it.
func TestPlanHasTheTrace(t *testing.T) {
	t.Parallel()
	const body = `{"urls":["http://site.test/"]}`
	key := header("Idempotency-Key", "k")
	b := newTracedBench(t, sdktrace.AlwaysSample(), nil)
	first := b.call("POST", "/v1/jobs", body, key)
	again := b.call("POST", "/v1/jobs", body, key, header("traceparent", callerParent))
	if first.status != 202 || again.status != 202 || again.header.Get("Idempotent-Replayed") != "true" || len(b.created) != 1 {
		t.Fatalf("answered %d and %d: %s", first.status, again.status, again.body)
	}
	id := b.spans.Ended()[0].SpanContext()
	if want := "00-" + id.TraceID().String() + "-" + id.SpanID().String() + "-01"; b.created[0].Plan.Trace != want {
		t.Errorf("the plan has %q, want %q", b.created[0].Plan.Trace, want)
	}
	for _, a := range []answer{first, again, b.call("GET", first.header.Get("Location"), "")} {
		if shown := fmt.Sprint(a.header) + a.body; strings.Contains(shown, id.TraceID().String()) || strings.Contains(shown, "trace") {
			t.Errorf("the trace is shown: %s", shown)
		}
	}
	for name, other := range map[string]*bench{
		"no provider":   newBench(t),
		"off":           newBenchWith(t, func(o *Options) { o.Traces = noop.NewTracerProvider() }),
		"never sampled": newTracedBench(t, sdktrace.NeverSample(), nil).bench,
	} {
		other.call("POST", "/v1/jobs", body, key, header("traceparent", callerParent))
		if other.created[0].Digest != b.created[0].Digest {
			t.Errorf("%s: the digest depends on the trace", name)
		}
		// A trace that is not sampled goes on as such, or a slice would begin one of its own.
		if got := other.created[0].Plan.Trace; name != "never sampled" && got != "" || name == "never sampled" && !strings.HasSuffix(got, "-00") {
			t.Errorf("%s: the plan has %q", name, got)
		}
		if strings.Contains(other.logs.String(), "trace_id") {
			t.Errorf("%s: the log names a trace", name)
		}
	}
	plan, err := json.Marshal(newBenchPlan(t))
	if err != nil || strings.Contains(string(plan), "trace") {
		t.Errorf("without traces the plan is stored as %s, %v", plan, err)
	}
}

func newBenchPlan(t *testing.T) crawl.Plan {
	t.Helper()
	b := newBench(t)
	b.call("POST", "/v1/jobs", `{"urls":["http://site.test/"]}`)
	return b.created[0].Plan
}

// A plan that takes the definition of its collection over has the trace, too.
func TestAdoptedPlanHasTheTrace(t *testing.T) {
	t.Parallel()
	b := newTracedBench(t, sdktrace.AlwaysSample(), nil)
	tries := 0
	b.define = func(crawl.Collection) error {
		if tries++; tries == 1 {
			return &store.OtherDefinitionError{Existing: crawl.Collection{Name: "c", Key: "source_url", Facets: []string{"city"}}}
		}
		return nil
	}
	a := b.call("POST", "/v1/jobs", `{"urls":["http://site.test/"],"collection":"c","fields":{"city":{"selector":"b"}}}`)
	if a.status != 202 || tries != 2 || b.created[0].Plan.Trace == "" {
		t.Errorf("answered %d after %d tries: %s", a.status, tries, a.body)
	}
}
