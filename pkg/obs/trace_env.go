package obs

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// The variables by which tracing is turned on.
const (
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
)

// The numbers of the batch processor are bounded. Of the size of the queue a negative or huge one
// would be a panic, and a huge delay becomes none: a core would be busy with it.
const (
	mostSpans = 1_000_000      // 16 bytes each while none waits
	mostDelay = 24 * time.Hour // given in milliseconds
)

var batchNumbers = map[string]int{
	"OTEL_BSP_SCHEDULE_DELAY": int(mostDelay.Milliseconds()), "OTEL_BSP_EXPORT_TIMEOUT": int(mostDelay.Milliseconds()),
	"OTEL_BSP_MAX_QUEUE_SIZE": mostSpans, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": mostSpans,
}

var samplers = []string{
	"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
}

// tracingOn reports whether the environment asks for traces, and what is wrong
// with how: the SDK would go on with something else than was asked for, which
// nobody notices until the traces are missed.
func tracingOn() (bool, error) {
	exporter := os.Getenv(envExporter)
	asked := exporter != "" || os.Getenv(envEndpoint) != "" || os.Getenv(envTracesEndpoint) != ""
	disabled := strings.EqualFold(strings.TrimSpace(os.Getenv("OTEL_SDK_DISABLED")), "true")
	if !asked || disabled || exporter == "none" {
		return false, nil
	}
	var faults []error
	if !slices.Contains([]string{"", "otlp", "console"}, exporter) {
		faults = append(faults, fmt.Errorf("%s: there is no exporter %q; use otlp, console or none", envExporter, exporter))
	}
	for _, name := range []string{envEndpoint, envTracesEndpoint} {
		faults = append(faults, checkEndpoint(name))
	}
	for _, name := range slices.Sorted(maps.Keys(batchNumbers)) {
		most := batchNumbers[name]
		if s := os.Getenv(name); s != "" {
			if n, err := strconv.Atoi(strings.TrimSpace(s)); err != nil || n < 1 || n > most {
				faults = append(faults, fmt.Errorf("%s: %q is no whole number from 1 to %d", name, s, most))
			}
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		faults = append(faults, checkHeaders(name))
	}
	faults = append(faults, checkSampler())
	err := errors.Join(faults...)
	return err == nil, err
}

// checkEndpoint says what is wrong with the address of a collector. It does not
// quote it: it may hold a password.
func checkEndpoint(name string) error {
	s := strings.TrimSpace(os.Getenv(name))
	if s == "" {
		return nil
	}
	if u, err := url.Parse(s); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%s is no address of a collector; give one as http://127.0.0.1:4318", name)
	}
	return nil
}

// checkHeaders says that headers are not written as they must be. The SDK would leave one out and
// log its value, which most often is a key.
func checkHeaders(name string) error {
	s := os.Getenv(name)
	if s == "" {
		return nil
	}
	for i, pair := range strings.Split(s, ",") {
		key, value, ok := strings.Cut(pair, "=")
		_, err := url.PathUnescape(value)
		if !ok || err != nil || !httpguts.ValidHeaderFieldName(strings.TrimSpace(key)) {
			return fmt.Errorf("%s: header %d is not name=value with the value percent-encoded", name, i+1)
		}
	}
	return nil
}

// checkSampler says what is wrong with the sampler.
func checkSampler() error {
	name := strings.ToLower(strings.TrimSpace(os.Getenv("OTEL_TRACES_SAMPLER")))
	if name != "" && !slices.Contains(samplers, name) {
		return fmt.Errorf("OTEL_TRACES_SAMPLER: there is no sampler %q; use one of %s", name, strings.Join(samplers, ", "))
	}
	arg := strings.TrimSpace(os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if arg == "" || !strings.HasSuffix(name, "traceidratio") {
		return nil
	}
	if v, err := strconv.ParseFloat(arg, 64); err != nil || !(v >= 0 && v <= 1) { // which NaN is not
		return fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: %q is no share of the traces; give a number from 0 to 1", arg)
	}
	return nil
}
