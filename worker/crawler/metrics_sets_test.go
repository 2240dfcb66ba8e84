package crawler

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// constants answers the string constants of a file whose names begin with prefix.
func constants(t *testing.T, file, prefix string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 && strings.HasPrefix(v.Names[0].Name, prefix) {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				out[v.Names[0].Name], _ = strconv.Unquote(lit.Value)
			}
		}
		return true
	})
	if len(out) < 5 {
		t.Fatalf("only %v found in %s", out, file)
	}
	return out
}

// A reason or an error type that package crawl learns has its counter here, or a reason not to.
func TestLabelsAreComplete(t *testing.T) {
	t.Parallel()
	for name, reason := range constants(t, "../../pkg/crawl/state.go", "Skip") {
		if !slices.Contains(skipReasons(), reason) {
			t.Errorf("trawl_page_skips_total has no counter of crawl.%s", name)
		}
	}
	notOfPages := []string{ // they are answers of the API
		"malformed", "unauthenticated", "not_found", "idempotency_key_reused", "job_not_terminal", "wrong_state",
		"expired", "invalid", "rate_limited", "quota_exceeded", "unavailable", "overloaded", "tenant_exists",
	}
	for name, code := range constants(t, "../../pkg/crawl/fault.go", "Code") {
		if slices.Contains(errorTypes(), code) == slices.Contains(notOfPages, code) {
			t.Errorf("trawl_page_failures_total has no counter of crawl.%s, or needs none", name)
		}
	}
}

// Whatever a site or a newer part of this service comes up with, no label grows.
func TestUnknownLabels(t *testing.T) {
	t.Parallel()
	m := NewMetrics(nil)
	before := testutil.CollectAndCount(m.failures.vec) + testutil.CollectAndCount(m.skips.vec) +
		testutil.CollectAndCount(m.pages.vec) + testutil.CollectAndCount(m.deferrals.vec) + testutil.CollectAndCount(m.sitemaps.vec)
	for _, code := range []crawl.Code{crawl.HTTPCode(599), crawl.HTTPCode(420), "made up"} {
		m.page(&store.Commit{Failed: &crawl.Failure{ErrorType: code}}, store.Done)
	}
	m.page(&store.Commit{Skipped: "made up"}, store.Done)
	m.page(&store.Commit{}, "made up")
	m.sitemap(&store.MapCommit{Outcome: "made up"}, store.Done)
	m.defers(&page{waits: "made up"}, time.Second)
	m.defers(&page{waits: "made up"}, 0) // does not wait
	after := testutil.CollectAndCount(m.failures.vec) + testutil.CollectAndCount(m.skips.vec) +
		testutil.CollectAndCount(m.pages.vec) + testutil.CollectAndCount(m.deferrals.vec) + testutil.CollectAndCount(m.sitemaps.vec)
	if before != after {
		t.Errorf("%d series became %d", before, after)
	}
	for name, want := range map[*counters]float64{&m.failures: 3, &m.skips: 1, &m.pages: 1, &m.sitemaps: 1, &m.deferrals: 1} {
		if got := testutil.ToFloat64(name.of[other]); got != want {
			t.Errorf("%v are counted as other, want %v", got, want)
		}
	}
}

// A commit that came too late changed nothing, whatever it says.
func TestStaleIsNoOutcome(t *testing.T) {
	t.Parallel()
	m := NewMetrics(nil)
	m.page(&store.Commit{Failed: &crawl.Failure{ErrorType: crawl.CodeTimeout}}, store.Stale)
	m.page(&store.Commit{Skipped: crawl.SkipRobots}, store.Stale)
	m.page(&store.Commit{Retry: time.Second}, store.Stale)
	m.sitemap(&store.MapCommit{Outcome: store.MapRetry}, store.Stale)
	for what, c := range map[string]struct {
		counters
		value string
		want  float64
	}{
		"stale": {m.pages, string(store.Stale), 3}, "failed": {m.pages, "failed", 0}, "failures": {m.failures, "timeout", 0},
		"skips": {m.skips, "robots", 0}, "deferrals": {m.deferrals, forRetry, 0},
	} {
		if got := testutil.ToFloat64(c.of[c.value]); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// What was started and has no outcome says why, and only what goes back to wait is deferred.
func TestSentBack(t *testing.T) {
	t.Parallel()
	const sitemap = crawl.ItemSitemap
	asked := page{waits: crawl.WaitingRetry, deferred: forAsked}
	for _, tt := range []struct {
		name     string
		page     page
		kind     crawl.ItemKind
		result   result
		lost     bool
		outcome  string
		deferral string // none: does not wait
	}{
		{name: "aborted", result: result{back: true}, outcome: outcomeReleased},
		{name: "winding", result: result{again: true}, outcome: outcomeReleased},
		{name: "asked", page: asked, result: result{back: true, wait: time.Second}, outcome: outcomeAsked, deferral: forAsked},
		{name: "no Redis", page: page{deferred: other}, result: result{back: true, wait: 1}, outcome: outcomeReleased, deferral: other},
		{name: "lost", result: result{commit: store.Commit{Skipped: "x"}}, lost: true, outcome: string(store.Stale)},
		{name: "lost and aborted", result: result{back: true}, lost: true, outcome: string(store.Stale)},
		{name: "lost and asked", page: asked, result: result{back: true, wait: time.Second}, lost: true, outcome: string(store.Stale)},
		{name: "sitemap aborted", kind: sitemap, result: result{back: true}, outcome: outcomeReleased},
		{name: "sitemap lost", kind: sitemap, result: result{back: true}, lost: true, outcome: string(store.Stale)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reg := prometheus.NewPedanticRegistry()
			m := NewMetrics(reg)
			tr := &turn{
				c: New(Options{Concurrency: 10, Metrics: m}), sl: &store.Slice{}, held: map[itemID]*page{}, slots: newSlotBook(),
				lost: tt.lost, winding: true,
			}
			p := tt.page
			p.item, p.host = crawl.Item{Kind: tt.kind, N: 1}, &host{}
			tt.result.page = &p
			tr.done = []result{tt.result}
			tr.settle(&store.Exchange{})
			want := map[string]float64{"pages " + tt.outcome: 1}
			if tt.kind == sitemap {
				want = map[string]float64{"sitemaps " + tt.outcome: 1}
			}
			if tt.deferral != "" {
				want["deferrals "+tt.deferral] = 1
			}
			got := map[string]float64{}
			for name, c := range map[string]counters{"pages": m.pages, "sitemaps": m.sitemaps, "deferrals": m.deferrals} {
				for value, counter := range c.of {
					if v := testutil.ToFloat64(counter); v != 0 {
						got[name+" "+value] = v
					}
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if back := len(tr.returns) > 0; back == tt.lost {
				t.Errorf("goes back: %v", back)
			}
		})
	}
}

// A page of 2 s is told from one of 3 s, and the slowest has a bucket.
func TestFetchBuckets(t *testing.T) {
	t.Parallel()
	b := fetchBuckets()
	for i := range b[1:] {
		if step := b[i+1] / b[i]; step < 1.5 || step > 1.65 {
			t.Errorf("%v follows %v", b[i+1], b[i])
		}
	}
	if b[0] > .001 || b[len(b)-1] < 60 {
		t.Errorf("from %v to %v", b[0], b[len(b)-1])
	}
}

// BenchmarkMetrics counts one page with all its times.
func BenchmarkMetrics(b *testing.B) {
	m, now := NewMetrics(nil), time.Now()
	p := &page{since: now, fetched: now, start: now}
	c := &store.Commit{Accepted: &store.Accepted{}}
	b.ReportAllocs()
	for b.Loop() {
		m.starts(p)
		m.bytes.Add(1)
		m.page(c, store.Done)
		m.settled(p, now)
	}
}
