package obs_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"example.com/trawl/pkg/obs"
)

// setenv leaves a test with these of the OTEL_ variables alone. It cannot be parallel.
func setenv(t *testing.T, env map[string]string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, value, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, value) // restores it
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
}

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) logger(t *testing.T) *slog.Logger {
	t.Helper()
	log, err := obs.NewLogger(l, obs.FormatJSON, slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestTracesOff(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing set":       {},
		"other settings":    {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
		"empty":             {"OTEL_TRACES_EXPORTER": "", "OTEL_EXPORTER_OTLP_ENDPOINT": ""},
		"exporter none":     {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"disabled":          {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		"disabled, shouted": {"OTEL_SDK_DISABLED": "TRUE", "OTEL_TRACES_EXPORTER": "otlp"},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, env)
			var log lines
			traces, err := obs.NewTraces(t.Context(), "trawl-test", log.logger(t))
			if err != nil {
				t.Fatal(err)
			}
			defer traces.Stop(t.Context())
			if _, off := traces.Provider().(noop.TracerProvider); !off {
				t.Errorf("the provider is a %T", traces.Provider())
			}
			if obs.Tracer(traces.Provider(), "x") != nil || obs.Tracer(nil, "x") != nil {
				t.Error("there is a tracer where nothing is traced")
			}
			if log.String() != "" {
				t.Errorf("logged %s", log.String())
			}
		})
	}
}

// A setting that is wrong is named, and one that may hold a password is not quoted.
func TestTracesRefuseWhatIsWrong(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"OTEL_TRACES_EXPORTER":               {"OTEL_TRACES_EXPORTER": "zipkin"},
		"OTEL_EXPORTER_OTLP_PROTOCOL":        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
		"OTEL_EXPORTER_OTLP_ENDPOINT":        {"OTEL_EXPORTER_OTLP_ENDPOINT": "user:sekret@collector:4318"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "ftp://user:sekret@collector"},
		"OTEL_TRACES_SAMPLER":                {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "sometimes"},
		"OTEL_TRACES_SAMPLER_ARG": {
			"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "10",
		},
		"OTEL_EXPORTER_OTLP_HEADERS": {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_HEADERS": "a=b,api-key=sekret%"},
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS": {
			"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "sekret",
		},
		"OTEL_BSP_MAX_QUEUE_SIZE": {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
		"OTEL_BSP_SCHEDULE_DELAY": {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_SCHEDULE_DELAY": "5s"},
		// Each of these was found to end the process, or to keep a core busy.
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "99999999999"},
		"OTEL_BSP_EXPORT_TIMEOUT":        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_EXPORT_TIMEOUT": "9223372036854775807"},
		"OTEL_RESOURCE_ATTRIBUTES":       {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_RESOURCE_ATTRIBUTES": "no value"},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, env)
			var log lines
			_, err := obs.NewTraces(t.Context(), "trawl-test", log.logger(t))
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Fatalf("the error is %v, want one that names %s", err, name)
			}
			if strings.Contains(err.Error()+log.String(), "sekret") {
				t.Errorf("a password is told: %v %s", err, log.String())
			}
		})
	}
}

// collector takes what is sent to it, and answers when it may.
type collector struct {
	*httptest.Server
	answer chan struct{} // closed: answers
	came   chan []byte
	gone   chan struct{} // each request that was given up
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{answer: make(chan struct{}), came: make(chan []byte, 100), gone: make(chan struct{}, 100)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.came <- append([]byte(r.URL.Path+" "), body...)
		select {
		case <-c.answer:
			w.Header().Set("Content-Type", "application/x-protobuf")
		case <-r.Context().Done():
			c.gone <- struct{}{}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func receive[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
	}
	return v
}

func TestTracesAreSentBeforeTheEnd(t *testing.T) {
	c := newCollector(t)
	close(c.answer)
	for name, tc := range map[string]struct {
		env  map[string]string
		want []string
		not  string
	}{
		"endpoint": {
			map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL},
			[]string{"/v1/traces ", "service.name", "trawl-test", "service.version", "service.instance.id", "a span"},
			"other",
		},
		"endpoint of traces": {
			map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": c.URL + "/mine"}, []string{"/mine ", "trawl-test"}, "other",
		},
		"another name": {
			map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_SERVICE_NAME": "other", "OTEL_RESOURCE_ATTRIBUTES": "team=crawl%20ers",
			},
			[]string{"other", "team", "crawl ers"},
			"trawl-test",
		},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, tc.env)
			var log lines
			traces, err := obs.NewTraces(t.Context(), "trawl-test", log.logger(t))
			if err != nil {
				t.Fatal(err)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_, span := obs.Tracer(traces.Provider(), "x").Start(ended, "a span")
			span.End()
			traces.Stop(ended) // as a process that was told to stop
			body := receive(t, c.came)
			for _, want := range tc.want {
				if !bytes.Contains(body, []byte(want)) {
					t.Errorf("%q is not in what was sent: %q", want, body)
				}
			}
			if bytes.Contains(body, []byte(tc.not)) {
				t.Errorf("%q is in what was sent: %q", tc.not, body)
			}
			if strings.Contains(log.String(), "WARN") {
				t.Errorf("logged %s", log.String())
			}
			traces.Stop(t.Context()) // again
		})
	}
}

func TestTracesHeedTheSampler(t *testing.T) {
	for sampler, want := range map[string]bool{"": true, "always_off": false, "parentbased_always_off": false, "always_on": true} {
		setenv(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": sampler})
		traces, err := obs.NewTraces(t.Context(), "trawl-test", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		_, span := traces.Provider().Tracer("x").Start(t.Context(), "never ended")
		if got := span.IsRecording(); got != want {
			t.Errorf("%q: recording is %v", sampler, got)
		}
		traces.Stop(t.Context())
	}
}

// A collector that hangs: nobody waits for it, what does not fit is dropped and told, and the
// stop takes its three seconds and leaves nothing behind (goleak looks).
func TestTracesToACollectorThatHangs(t *testing.T) {
	c := newCollector(t)
	setenv(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_BSP_MAX_QUEUE_SIZE": "2", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
	})
	var log lines
	traces, err := obs.NewTraces(t.Context(), "trawl-test", log.logger(t))
	if err != nil {
		t.Fatal(err)
	}
	tracer := traces.Provider().Tracer("x")
	for range 100 {
		_, span := tracer.Start(t.Context(), "span")
		span.End()
	}
	receive(t, c.came)
	traces.Stop(t.Context())
	receive(t, c.gone)
	if got := log.String(); strings.Count(got, "spans were dropped") != 1 || strings.Count(got, "traces do not arrive") > 1 {
		t.Errorf("logged %s", got)
	}
}

// A collector that is down costs one line, not one a batch.
func TestTracesToACollectorThatIsDown(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	setenv(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:sekret@" + addr, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
	})
	var log lines
	traces, err := obs.NewTraces(t.Context(), "trawl-test", log.logger(t))
	if err != nil {
		t.Fatal(err)
	}
	tracer := traces.Provider().Tracer("x")
	for range 50 {
		_, span := tracer.Start(t.Context(), "span")
		span.End()
	}
	traces.Stop(t.Context())
	if got := log.String(); strings.Count(got, "traces do not arrive") != 1 || strings.Contains(got, "sekret") ||
		strings.Contains(got, "spans were dropped") {
		t.Errorf("logged %s", got)
	}
}

func TestTraceParent(t *testing.T) {
	t.Parallel()
	const valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for s, want := range map[string]bool{
		valid: true, valid[:53] + "00": true, "01" + valid[2:] + "-more": true,
		"": false, "nonsense": false, valid + "-more": false, "ff" + valid[2:]: false, strings.ToUpper(valid): false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		strings.Repeat(valid, 1000):                               false,
	} {
		sc := obs.ParseTraceParent(s)
		if sc.IsValid() != want {
			t.Errorf("%.80q is valid: %v", s, sc.IsValid())
		}
		back := obs.TraceParent(trace.ContextWithSpanContext(t.Context(), sc))
		if want && back[3:] != s[3:55] || !want && back != "" {
			t.Errorf("%.80q comes back as %q", s, back)
		}
	}
}
