package prometheus_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"example.com/trawl/deployments/allinone"
	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/netguard"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

// long bounds what takes seconds on an idle machine.
const long = 2 * time.Minute

// exported is what is known of one metric.
type exported struct {
	help   string
	values map[string]map[string]bool // by label: the values that were seen
}

// names are all metrics by the name that an expression has for them: three for a histogram.
type names map[string]*exported

// has reports whether the metric has the label.
func (e *exported) has(label string) bool { _, ok := e.values[label]; return ok }

// knows reports whether the label can have the value: it was seen, or the help text names it.
func (e *exported) knows(label, value string) bool {
	words := strings.FieldsFunc(e.help, func(r rune) bool { return !strings.ContainsRune(letters, r) })
	return e.values[label][value] || slices.Contains(words, value)
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// site is one where a page is accepted, one fails in each of two ways, and one is skipped.
const site = `
-- robots.txt --
User-agent: *
Disallow: /private
-- index.html --
<title>Home</title><a href="/ok">1</a> <a href="/gone">2</a> <a href="/forbidden">3</a> <a href="/private">4</a>
-- ok --
<title>OK</title>
-- forbidden --
status: 403

no
-- private --
<title>Private</title>
`

// gather runs a whole service, gives it a job of each kind of page, asks for each kind of
// answer, and returns all metrics that it then exports.
func gather(t *testing.T) names {
	t.Helper()
	var (
		redis    = crawltest.Private(t) // a real one: the one in memory tells little of itself
		pages    = crawltest.NewSite(t, []byte(site))
		receiver = crawltest.NewHandlerSite(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		key      = crawltest.Random() + crawltest.Random()
	)
	sources, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	private, err := netguard.Parse("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	p, err := allinone.New(allinone.Options{
		RedisURL: redis.URL, Keys: map[string][]string{"a": {key}}, Sources: sources, Private: private,
		HostConcurrency: 8, UserAgent: "TrawlTest/1", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), long)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	s := service{url: p.URL(), key: key, http: &http.Client{Transport: transport, Timeout: long}}
	s.use(t, pages.URL+"/", receiver.URL+"/hook")
	return s.scrape(t)
}

// service is one that runs.
type service struct {
	url, key string
	http     *http.Client
}

// use crawls a site, and calls each route that an expression sets apart.
func (s service) use(t *testing.T, site, receiver string) {
	t.Helper()
	c, err := client.New(s.url, s.key, client.WithHTTPClient(s.http))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	job, err := c.Submit(ctx, client.Spec{
		SeedURL: site, MaxPages: 100, Collection: &client.Collection{Name: "c"}, Webhook: &client.Webhook{URL: receiver},
	})
	if err != nil {
		t.Fatal(err)
	}
	end, err := c.Wait(ctx, job.ID)
	if err != nil {
		t.Fatal(err)
	}
	if end.Accepted != 2 || end.Failed != 2 || end.Skipped != 1 {
		t.Fatalf("the job ended as %+v, want 2 accepted, 2 failed and 1 skipped", end)
	}
	for _, call := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/healthz", 200},
		{"GET", "/readyz", 200},
		{"GET", "/metrics", 200},
		{"GET", "/v1/jobs/" + job.ID + "/result", 200},
		{"POST", "/v1/jobs/" + job.ID + "/cancel", 200},
		{"GET", "/v1/collections/c/export", 200},
		{"POST", "/v1/extract", 415}, // without a body
		{"POST", "/v1/jobs", 415},
	} {
		if status, body := s.call(t, call.method, call.path); status != call.want {
			t.Errorf("%s %s: %d, want %d: %s", call.method, call.path, status, call.want, body)
		}
	}
}

func (s service) call(t *testing.T, method, path string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	res, err := s.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// scrape reads what the service exports, as Prometheus does.
func (s service) scrape(t *testing.T) names {
	t.Helper()
	status, text := s.call(t, "GET", "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics: %d: %s", status, text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	out := names{}
	for f := range maps.Values(families) {
		out.add(f)
	}
	return out
}

// add takes one metric with its labels, under each name that its series have.
func (n names) add(f *dto.MetricFamily) {
	e := &exported{help: f.GetHelp(), values: map[string]map[string]bool{}}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if e.values[l.GetName()] == nil {
				e.values[l.GetName()] = map[string]bool{}
			}
			e.values[l.GetName()][l.GetValue()] = true
		}
	}
	with := func(label string) *exported {
		more := &exported{help: e.help, values: maps.Clone(e.values)}
		more.values[label] = map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, q := range m.GetSummary().GetQuantile() {
				more.values[label][model.SampleValue(q.GetQuantile()).String()] = true
			}
		}
		return more
	}
	switch f.GetType() {
	case dto.MetricType_HISTOGRAM:
		n[f.GetName()+"_bucket"] = with("le")
	case dto.MetricType_SUMMARY:
		n[f.GetName()] = with("quantile")
	default:
		n[f.GetName()] = e
		return
	}
	n[f.GetName()+"_sum"], n[f.GetName()+"_count"] = e, e
}
