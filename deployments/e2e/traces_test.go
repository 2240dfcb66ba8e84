package e2e

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"example.com/trawl/pkg/crawltest"
)

// otlp is a collector that keeps what it is sent (OTLP over HTTP, protobuf).
type otlp struct {
	*httptest.Server

	mu     sync.Mutex
	bodies [][]byte
}

func newOTLP(t *testing.T) *otlp {
	t.Helper()
	o := &otlp{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.bodies = append(o.bodies, body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(o.Close)
	return o
}

// sent is a span with the service that made it.
type sent struct {
	*tracepb.Span
	service string
}

func (s sent) value(name string) string { return valueOf(s.Attributes, name) }

func valueOf(attributes []*common.KeyValue, name string) string {
	for _, a := range attributes {
		if a.GetKey() == name {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// spans decodes everything that came.
func (o *otlp) spans(t *testing.T) (all []sent) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, body := range o.bodies {
		var r collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &r); err != nil {
			t.Fatal(err)
		}
		for _, of := range r.GetResourceSpans() {
			for _, scope := range of.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					all = append(all, sent{span, valueOf(of.GetResource().GetAttributes(), "service.name")})
				}
			}
		}
	}
	return all
}

// TestOneTraceAcrossProcesses: a job is one trace from the API through the queue to the worker,
// and what a process still has when it is told to stop is sent before it ends.
func TestOneTraceAcrossProcesses(t *testing.T) {
	t.Parallel()
	o := newOTLP(t)
	site := crawltest.NewSite(t, []byte("-- a --\na\n-- b --\nb\n"))
	// Nothing is sent before the end.
	d := deploy(t, 1, "OTEL_EXPORTER_OTLP_ENDPOINT="+o.URL, "OTEL_BSP_SCHEDULE_DELAY=3600000")
	job := d.submit(alpha, fields{"urls": []string{site.URL + "/a?token=hunter2hunter2", site.URL + "/b", site.URL + "/none"}}).ID
	d.watch(alpha, job).end(long)
	for _, p := range d.procs {
		if code := p.Terminate(long); code != 0 {
			t.Errorf("process %d ended with %d", p.PID(), code)
		}
	}

	var submission *tracepb.Span
	slices, names := map[string]bool{}, map[string]int{}
	all := o.spans(t)
	for _, s := range all {
		switch s.Name {
		case "POST /v1/jobs":
			submission = s.Span
			if s.service != "trawl-api" || s.value("trawl.job.id") != job || s.value("trawl.tenant") != alpha {
				t.Errorf("the submission is %v of %s", s.Span, s.service)
			}
		case "slice":
			slices[string(s.SpanId)] = true
		}
	}
	if submission == nil {
		t.Fatalf("the submission is not among %d spans", len(all))
	}
	for _, s := range all {
		switch s.Name {
		case "slice":
			if !bytes.Equal(s.ParentSpanId, submission.SpanId) || s.value("trawl.job.id") != job {
				t.Errorf("a slice has the parent %x: %v", s.ParentSpanId, s.Span)
			}
		case "fetch", "fetch file", "commit", "lease":
			if !slices[string(s.ParentSpanId)] {
				t.Errorf("%s has the parent %x", s.Name, s.ParentSpanId)
			}
		default:
			continue // a request of the API
		}
		names[s.Name]++
		if s.service != "trawl-worker" || !bytes.Equal(s.TraceId, submission.TraceId) {
			t.Errorf("%s is of %s and of trace %x", s.Name, s.service, s.TraceId)
		}
	}
	if names["slice"] < 1 || names["fetch"] != 3 || names["fetch file"] != 1 || names["commit"] < 1 {
		t.Errorf("the spans of the worker are %v", names)
	}
	for _, secret := range append(d.secrets, "hunter2hunter2") {
		for _, body := range o.bodies {
			if bytes.Contains(body, []byte(secret)) {
				t.Error("a secret of this test is in the traces")
			}
		}
	}
	// The log leads to the trace.
	id := `"trace_id":"` + hex.EncodeToString(submission.TraceId) + `"`
	for _, p := range d.procs {
		if !strings.Contains(p.Output(), id) {
			t.Errorf("the log of process %d does not name the trace", p.PID())
		}
	}
	for _, r := range site.Requests() {
		if r.Header.Get("Traceparent") != "" {
			t.Errorf("the site was sent a traceparent with %s", r.URI)
		}
	}
}

// TestCollectorThatIsDown: nothing waits for it, it fills no log, and no process stays for it.
func TestCollectorThatIsDown(t *testing.T) {
	t.Parallel()
	var pages []string
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
	}))
	for i := range 100 {
		pages = append(pages, site.URL+"/"+strconv.Itoa(i))
	}
	d := deploy(t, 1, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+crawltest.FreeAddr(t),
		"OTEL_BSP_SCHEDULE_DELAY=10", "OTEL_BSP_MAX_QUEUE_SIZE=8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=1")
	job := d.submit(alpha, fields{"urls": pages}).ID
	d.watch(alpha, job).end(long)
	d.recordedOnce(alpha, job, pages)
	for _, p := range d.procs {
		if code := p.Terminate(long); code != 0 {
			t.Errorf("process %d ended with %d", p.PID(), code)
		}
		// A line at once, one a minute, and one at the end of the spans that were dropped.
		if n := strings.Count(p.Output(), "OTEL_"); n < 1 || n > 6 {
			t.Errorf("process %d has %d lines about the traces: %s", p.PID(), n, p.Output())
		}
	}
}
