package allinone_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/trawl/api/httpapi"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/queue"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/crawler"
	"example.com/trawl/worker/fetch"
)

// tracedService is an API and a worker on one Redis, each with a provider of its own as two
// processes have, and what they traced.
type tracedService struct {
	t      *testing.T
	redis  *crawltest.Redis
	store  *store.Store
	url    string
	keys   map[string]string
	client *http.Client
	api    *tracetest.SpanRecorder
	worker *tracetest.SpanRecorder
	traces bool
}

// newTracedService starts the API of a service; of a tenant one job runs at a time.
func newTracedService(t *testing.T, traces bool) *tracedService {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s := &tracedService{
		t: t, redis: crawltest.Mini(t), client: &http.Client{Transport: transport}, keys: map[string]string{},
		api: tracetest.NewSpanRecorder(), worker: tracetest.NewSpanRecorder(), traces: traces,
	}
	s.store = store.New(s.redis.Client, store.Options{})
	keys := map[string][]string{}
	for _, tenant := range []string{"a", "b"} {
		s.keys[tenant] = "sekret" + crawltest.Random() + crawltest.Random()
		keys[tenant] = []string{s.keys[tenant]}
	}
	sources, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	api, err := httpapi.New(httpapi.Options{
		Listen: "127.0.0.1:0", Jobs: s.store, Collections: s.store, Doorbell: queue.NewDoorbell(s.redis.Client), Keys: keys,
		Sources: sources, Limits: crawl.DefaultLimits(), Quota: crawl.Quota{MaxRunning: 1},
		Logger: slog.New(slog.DiscardHandler), Registry: obs.NewRegistry(), Traces: s.provider(s.api),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.serve(api.Start, api.Stop)
	s.url = "http://" + api.Addr()
	return s
}

func (s *tracedService) provider(spans *tracetest.SpanRecorder) trace.TracerProvider {
	if !s.traces {
		return nil
	}
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
}

func (s *tracedService) serve(start, stop func(context.Context) error) {
	s.t.Helper()
	if err := start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		if err := stop(ctx); err != nil {
			s.t.Error(err)
		}
	})
}

// work starts a worker.
func (s *tracedService) work() {
	s.t.Helper()
	private, err := netguard.Parse("127.0.0.1")
	if err != nil {
		s.t.Fatal(err)
	}
	sources, err := crawl.ParseSources("*")
	if err != nil {
		s.t.Fatal(err)
	}
	w, err := crawler.NewProcess(crawler.ProcessOptions{
		RedisURL: s.redis.URL, Fetch: fetch.Options{Dial: netguard.New(private).DialContext, UserAgent: "TrawlTest/1"},
		Options: crawler.Options{
			Store: s.store, Doorbell: queue.NewDoorbell(s.redis.Client), Logger: slog.New(slog.DiscardHandler), Sources: sources,
			Concurrency: 8, HostConcurrency: 8, Traces: s.provider(s.worker),
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.serve(w.Start, w.Stop)
}

// submit submits a job and returns its id.
func (s *tracedService) submit(tenant, spec string, header ...string) string {
	s.t.Helper()
	body := s.call(http.MethodPost, "/v1/jobs", tenant, spec, http.StatusAccepted, header...)
	return body["job_id"].(string) //nolint:forcetypeassert // a test may end so
}

func (s *tracedService) call(method, path, tenant, body string, status int, header ...string) map[string]any {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.keys[tenant])
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil || res.StatusCode != status {
		s.t.Fatalf("%s %s answered %d, %v: %v", method, path, res.StatusCode, err, out)
	}
	return out
}

// ended waits for the end of a job and of its last span.
func (s *tracedService) ended(tenant, job string) {
	s.t.Helper()
	crawltest.Eventually(s.t, long, "the end of the job", func() bool {
		j, err := s.store.Job(s.t.Context(), crawl.JobRef{Tenant: tenant, ID: job})
		if err != nil {
			s.t.Fatal(err)
		}
		return j.State.Terminal()
	})
	crawltest.Eventually(s.t, long, "the end of all spans", func() bool {
		return len(s.worker.Started()) == len(s.worker.Ended())
	})
}

// submission returns the span by which a job was submitted.
func (s *tracedService) submission(job string) trace.SpanContext {
	s.t.Helper()
	for _, span := range s.api.Ended() {
		if span.Name() == "POST /v1/jobs" && valueOf(span, "trawl.job.id") == job {
			return span.SpanContext()
		}
	}
	s.t.Fatalf("job %s has no span of its submission", job)
	return trace.SpanContext{}
}

func valueOf(span sdktrace.ReadOnlySpan, name string) string {
	for _, a := range span.Attributes() {
		if string(a.Key) == name {
			return a.Value.String()
		}
	}
	return ""
}

// wholeTrace checks that the worker's spans of a job are one trace under its submission, and
// returns how many there are of each name.
func (s *tracedService) wholeTrace(tenant, job string) map[string]int {
	s.t.Helper()
	root := s.submission(job)
	ended := s.worker.Ended()
	mine := map[trace.SpanID]bool{} // slices, of which one may still be at work
	for _, span := range s.worker.Started() {
		if span.Name() != "slice" || valueOf(span, "trawl.job.id") != job {
			continue
		}
		mine[span.SpanContext().SpanID()] = true
		if parent := span.Parent(); parent.SpanID() != root.SpanID() || !parent.IsRemote() || valueOf(span, "trawl.tenant") != tenant {
			s.t.Errorf("a slice of %s has the parent %v, want %v", job, parent, root)
		}
		for _, l := range span.Links() {
			if l.SpanContext.TraceID() != root.TraceID() {
				s.t.Errorf("a slice of %s is linked to the trace of another", job)
			}
		}
	}
	names := map[string]int{"slice": len(mine)}
	for _, span := range ended {
		if span.Name() == "slice" {
			continue
		}
		if under, same := mine[span.Parent().SpanID()], span.SpanContext().TraceID() == root.TraceID(); under != same {
			s.t.Errorf("span %q of trace %v has the parent %v", span.Name(), span.SpanContext().TraceID(), span.Parent().SpanID())
		} else if under {
			names[span.Name()]++
		}
	}
	return names
}

// A site that is busy once, so that a job has to rest between two slices.
func busySite(t *testing.T) *crawltest.Site {
	t.Helper()
	var asked atomic.Bool
	return crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/missing" || r.URL.Path == "/robots.txt":
			http.NotFound(w, r)
		case r.URL.Path == "/busy" && asked.CompareAndSwap(false, true):
			w.Header().Set("Retry-After", "8") // longer than a slice waits for a host
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/moved":
			w.Header().Set("Location", "http://me:sekret@"+r.Host+"/b?session=sekret")
			w.WriteHeader(http.StatusFound)
		default:
			w.Header().Set("Content-Type", "text/html")
			_, _ = fmt.Fprintf(w, "<title>%s</title>", r.URL.Path)
		}
	}))
}

// One job is one trace, from its submission through the queue to each slice, fetch and commit:
// over two slices of which a sweep rang for the second, beside another job of the tenant, which its
// end lets start, and one of another tenant. And no span holds a secret, and no site learns of it.
func TestOneJobIsOneTrace(t *testing.T) {
	t.Parallel()
	s := newTracedService(t, true)
	site, another := busySite(t), busySite(t) // a robots.txt is fetched once, in whose slice is first
	s.work()
	first := s.submit("a", fmt.Sprintf(`{"urls":[%q,%q,%q,%q],"headers":{"X-Token":"sekret"}}`,
		site.URL+"/busy", site.URL+"/a?token=sekret", site.URL+"/missing", site.URL+"/moved"),
		"Idempotency-Key", "sekret", "tracestate", "x=sekret", "baggage", "key=sekret")
	second := s.submit("a", fmt.Sprintf(`{"urls":[%q]}`, site.URL+"/c")) // waits for the end of the first
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	others := s.submit("b", fmt.Sprintf(`{"urls":[%q]}`, another.URL+"/d"), "traceparent", parent)
	s.ended("a", first)
	s.ended("a", second)
	s.ended("b", others)

	got := s.wholeTrace("a", first)
	if got["slice"] < 2 || got["fetch"] < 5 || got["fetch file"] < 1 || got["commit"] < 2 || got["lease"] < 1 {
		t.Errorf("the first job has the spans %v", got)
	}
	for job, tenant := range map[string]string{second: "a", others: "b"} {
		if got := s.wholeTrace(tenant, job); got["slice"] < 1 || got["fetch"] != 1 || got["commit"] < 1 {
			t.Errorf("job %s of %s has the spans %v", job, tenant, got)
		}
	}
	ids := []trace.TraceID{s.submission(first).TraceID(), s.submission(second).TraceID(), s.submission(others).TraceID()}
	if ids[0] == ids[1] || ids[1] == ids[2] || ids[0] == ids[2] || !strings.Contains(parent, ids[2].String()) {
		t.Errorf("the traces of three jobs are %v", ids)
	}
	errorTypes := map[string]bool{}
	for _, span := range slices.Concat(s.api.Ended(), s.worker.Ended()) {
		if all := fmt.Sprint(tracetest.SpanStubFromReadOnlySpan(span)); strings.Contains(all, "sekret") {
			t.Errorf("a secret is in a span: %s", all)
		}
		errorTypes[valueOf(span, "error.type")] = true
	}
	if !errorTypes["http_404"] {
		t.Errorf("no fetch has the type of its error: %v", errorTypes)
	}
	for _, r := range slices.Concat(site.Requests(), another.Requests()) {
		for _, name := range []string{"Traceparent", "Tracestate", "Baggage"} {
			if r.Header.Get(name) != "" {
				t.Errorf("the site was sent %s with %s", name, r.URI)
			}
		}
	}
}

// A ring that is lost takes no trace with it: the plan has it.
func TestTraceOutlivesALostRing(t *testing.T) {
	t.Parallel()
	s := newTracedService(t, true)
	site := busySite(t)
	job := s.submit("a", fmt.Sprintf(`{"urls":[%q]}`, site.URL+"/a"))
	inspector := asynq.NewInspectorFromRedisClient(s.redis.Client)
	task, err := inspector.GetTaskInfo(queue.Name, job)
	if err != nil {
		t.Fatal(err)
	}
	root := s.submission(job)
	if h := task.Headers["traceparent"]; !strings.Contains(h, root.TraceID().String()+"-"+root.SpanID().String()) {
		t.Errorf("the task has the headers %v", task.Headers)
	}
	if err := inspector.DeleteTask(queue.Name, job); err != nil {
		t.Fatal(err)
	}
	s.work()
	s.ended("a", job)
	if got := s.wholeTrace("a", job); got["slice"] < 1 || got["fetch"] != 1 || got["commit"] < 1 {
		t.Errorf("the job has the spans %v", got)
	}
}

// Without a provider there is no span, and nothing of a trace in the queue, in the store and on
// the way to the site, whatever the caller sends.
func TestNoTrace(t *testing.T) {
	t.Parallel()
	s := newTracedService(t, false)
	site := busySite(t)
	job := s.submit("a", fmt.Sprintf(`{"urls":[%q]}`, site.URL+"/a"),
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	task, err := asynq.NewInspectorFromRedisClient(s.redis.Client).GetTaskInfo(queue.Name, job)
	if err != nil || len(task.Headers) != 0 {
		t.Errorf("the task has the headers %v, %v", task.Headers, err)
	}
	keys, err := s.redis.Client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if values, err := s.redis.Client.HVals(t.Context(), key).Result(); err == nil && strings.Contains(fmt.Sprint(values), "0af7651916cd") {
			t.Errorf("the trace of the caller is kept in %s", key)
		}
	}
	s.work()
	s.ended("a", job)
	for _, r := range site.Requests() {
		if r.Header.Get("Traceparent") != "" {
			t.Errorf("the site was sent a traceparent with %s", r.URI)
		}
	}
}
