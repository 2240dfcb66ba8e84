package demosite

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/deployments/allinone"
	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/netguard"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

// start runs all of Trawl for one test, which may crawl this machine as fast as it can.
func start(t *testing.T) *client.Client {
	t.Helper()
	policy, err := netguard.Parse("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	key := crawltest.Random()
	p, err := allinone.New(allinone.Options{
		Keys: map[string][]string{"a": {key}}, Sources: sources, Private: policy, HostConcurrency: 8,
		UserAgent: "TrawlTest/1", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Errorf("the process did not stop: %v", err)
		}
	})
	c, err := client.New(p.URL(), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// TestCrawl crawls the site with the real parts: they record what the walk found, and
// nothing fails.
func TestCrawl(t *testing.T) {
	t.Parallel()
	c, web := start(t), crawltest.NewHandlerSite(t, Handler())
	job, err := c.Submit(t.Context(), client.Spec{SeedURL: web.URL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	j, err := c.Wait(t.Context(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	if j.State != client.Completed || j.StopReason != "frontier_empty" || j.Accepted != Pages || j.Total != Pages+1 {
		t.Errorf("ended as %+v", j)
	}
	if d := cmp.Diff(map[string]int64{"alias": 1}, j.SkippedByReason); d != "" {
		t.Errorf("skipped:\n%s", d)
	}
	if d := cmp.Diff(map[string]int64{"out_of_scope": 3, "scheme": 2}, j.RefusedByReason); d != "" {
		t.Errorf("refused:\n%s", d)
	}
	recorded(t, c, job.ID, web.URL)
}

// recorded checks the records of a crawl of the site at root.
func recorded(t *testing.T, c *client.Client, job, root string) {
	t.Helper()
	got := map[string]client.Record{}
	for r, err := range c.Records(t.Context(), job) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != http.StatusOK || r.DecodingErrors || r.Attempts != 1 {
			t.Errorf("a record is %+v", r)
		}
		got[r.URL[len(root):]] = r
	}
	want := slices.Sorted(maps.Keys(walk(t).pages))
	if d := cmp.Diff(want, slices.Sorted(maps.Keys(got))); d != "" {
		t.Errorf("linked (-) and recorded (+):\n%s", d)
	}
	for what, pair := range map[string][2]string{
		"title":     {got["/cafe.html"].Title, "Café Sjöbris: crêpes, rødgrød and piñón · Merrowby"},
		"charset":   {got["/cafe.html"].Charset, "windows-1252"}, // what the label means, by WHATWG Encoding
		"language":  {got["/willkommen.html"].Language, "de"},
		"canonical": {got["/recipes/chowder-print.html"].Canonical, root + "/recipes/chowder.html"},
		"type":      {got["/tides/table.txt"].ContentType, "text/plain"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("the %s recorded is %q, want %q", what, pair[0], pair[1])
		}
	}
	if r := got["/museum/last-entry.html"]; r.Depth != 5 {
		t.Errorf("the deepest page has depth %d, want 5", r.Depth)
	}
}
