package crawl_test

import (
	"encoding/json"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
)

// A plan of version 1 does not say so: it is word for word what processes wrote before there were
// versions, and those read it. A greater version is said.
func TestPlanVersion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		want int
	}{{`{}`, 1}, {`{"v":0}`, 1}, {`{"v":1}`, 1}, {`{"v":2}`, 2}, {`{"v":2,"region":"eu"}`, 2}} {
		var p crawl.Plan
		if err := json.Unmarshal([]byte(tc.text), &p); err != nil || p.Version() != tc.want {
			t.Errorf("%s is of version %d, %v", tc.text, p.Version(), err)
		}
		b, err := json.Marshal(p)
		if says := strings.HasPrefix(string(b), `{"v":2`); err != nil || says != (tc.want == 2) {
			t.Errorf("%s is stored as %s, %v", tc.text, b, err)
		}
	}
	s := crawl.Spec{URLs: []string{"https://example.com/"}}
	src, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := s.Plan(crawl.Limits{}, src)
	if err != nil || p.Version() > crawl.PlanVersion || p.V == 1 {
		t.Errorf("a plan made today says version %d, %v", p.V, err)
	}
}
