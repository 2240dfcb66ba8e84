package store

import (
	"fmt"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// The links of a page arrive as they were sent, be they the most that a commit may have, of any size, known, refused
// or of a pattern: their urls are one argument, which links.lua takes apart.
func TestLinksArrive(t *testing.T) {
	t.Parallel()
	parse := func(t *testing.T, s string) crawl.URL {
		t.Helper()
		u, err := crawl.ParseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	long := func(i, size int) string {
		s := fmt.Sprintf("http://h.test/%d-", i)
		return s + strings.Repeat("x", size-len(s))
	}
	for name, urls := range map[string]func(i int) string{
		"short": func(i int) string { return fmt.Sprintf("http://h.test/%d", i) },
		"mixed": func(i int) string { return long(i, []int{40, 255, 256, 257, 511, 512, crawl.MaxURLBytes}[i%7]) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
				f := newFixture(t, r)
				n := f.job(t, "", 1)
				n.Plan.Site, n.Plan.MaxPages, n.Plan.Concurrency = true, 1<<20, 64
				f.create(t, n)
				sl := f.begin(t, n.Job)
				c := accept(t, f.exchange(t, sl, Exchange{Lease: 1}).Items[0])
				want := []string{}
				for i := range MaxLinks {
					u := parse(t, urls(i))
					l := crawl.Link{URL: u, Key: u.Key()}
					switch i % 5 {
					case 0:
						l = crawl.Link{URL: n.Inputs[0].URL, Key: n.Inputs[0].URL.Key()} // known
					case 1:
						l.Refused = "excluded"
					case 2:
						l.Pattern = "p"
						want = append(want, u.String())
					default:
						want = append(want, u.String())
					}
					c.Accepted.Links = append(c.Accepted.Links, l)
				}
				c.Accepted.BadLinks = map[crawl.Reason]int{"scheme": 3}
				f.exchange(t, sl, Exchange{Commits: []Commit{c}})
				got := []string{}
				for {
					out := f.exchange(t, sl, Exchange{Lease: 64})
					x := Exchange{}
					for _, it := range out.Items {
						if it.N != int64(len(got))+2 || it.Depth != 1 || it.Parent != 1 {
							t.Fatalf("link %d is %+v", len(got), it)
						}
						got = append(got, it.URL)
						x.Commits = append(x.Commits, accept(t, it))
					}
					if len(out.Items) == 0 {
						break
					}
					f.exchange(t, sl, x)
				}
				if len(got) != len(want) {
					t.Fatalf("%d links were admitted, not %d", len(got), len(want))
				}
				for i := range want {
					if got[i] != want[i] {
						t.Fatalf("link %d is %q, not %q", i, got[i], want[i])
					}
				}
				j := f.read(t, n.Job)
				if j.RefusedByReason["excluded"] != MaxLinks/5 || j.RefusedByReason["scheme"] != 3 {
					t.Errorf("refused: %v", j.RefusedByReason)
				}
			})
		})
	}
}
