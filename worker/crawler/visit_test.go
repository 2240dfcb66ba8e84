package crawler

import (
	"context"
	"fmt"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
	"example.com/trawl/worker/fetch"
)

// A page whose requests are over judges no more links, and says that it is not whole.
func TestLinksAreBrokenOff(t *testing.T) {
	t.Parallel()
	sources, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	sl := &store.Slice{Plan: crawl.Plan{Site: true, Scope: crawl.ScopeAny, Sources: []string{"*"}, MaxDepth: 5}}
	rules, err := sl.Plan.Rules()
	if err != nil {
		t.Fatal(err)
	}
	tr := &turn{c: &Crawler{o: Options{Sources: sources}}, sl: sl, rules: rules}
	tr.fetches, tr.abort = context.WithCancel(t.Context())
	res := &fetch.Result{}
	for i := range 3 {
		u, err := crawl.ParseURL(fmt.Sprintf("http://site.test/%d", i))
		if err != nil {
			t.Fatal(err)
		}
		res.Final, res.Links = u, append(res.Links, fetch.Link{URL: u, Key: u.Key()})
	}
	for _, want := range []bool{true, false} {
		var c store.Commit
		if whole := tr.accepted(&page{}, res, &c); whole != want || whole != (len(c.Accepted.Links) == len(res.Links)) {
			t.Errorf("whole: %v, with %d links; want %v", whole, len(c.Accepted.Links), want)
		}
		tr.abort()
	}
}
