package crawler

import (
	"crypto/sha256"
	"strconv"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// linkKey makes the key of a made-up link.
func linkKey(n int) crawl.Key {
	sum := sha256.Sum256(strconv.AppendInt(nil, int64(n), 10))
	return crawl.Key(sum[:len(crawl.Key{})])
}

// What a set of links remembers it was told, the last time that it heard of that link: a link that the store never
// saw must never be left out, or nobody crawls it.
func TestLinkSetInventsNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s linkSet
		told := map[crawl.Key]seen{}
		links := rapid.IntRange(1, 3000).Draw(t, "links")
		for i, n := range rapid.SliceOfN(rapid.IntRange(0, links), 1, 3000).Draw(t, "puts") {
			k, verdict := linkKey(n), seenRefused+seen(i*7%3%2)
			s.put(k, verdict)
			told[k] = verdict
			if s.verdict(k) != verdict {
				t.Fatalf("link %d was put as %v and is %v", n, verdict, s.verdict(k))
			}
		}
		used := 0
		for n := range 2 * links {
			switch v := s.verdict(linkKey(n)); v {
			case told[linkKey(n)]:
				used += min(1, int(v))
			case unseen:
			default:
				t.Fatalf("link %d was put as %v and is %v", n, told[linkKey(n)], v)
			}
		}
		if used > s.used {
			t.Fatalf("%d links are remembered, and %d are counted", used, s.used)
		}
		s.clear()
		for k := range told {
			if len(s.places) > 0 && s.verdict(k) != unseen || s.used != 0 {
				t.Fatal("a link was remembered for longer")
			}
		}
	})
}

// A site of half as many pages as a slice remembers is remembered as a whole; whatever the number of links, there is
// a bound, all of it is used, and what every page links to is remembered.
func TestLinkSetIsBounded(t *testing.T) {
	t.Parallel()
	var s linkSet
	remembered := func(n int) (all int) {
		for i := range n {
			all += min(1, int(s.verdict(linkKey(i))))
		}
		return all
	}
	for i := range knownMost / 2 {
		s.put(linkKey(i), seenAdmissible)
	}
	if got := remembered(knownMost / 2); got < knownMost/2*99/100 {
		t.Errorf("%d of %d links are remembered", got, knownMost/2)
	}
	const everywhere = 100
	missed := 0
	for i := range 4 * knownMost {
		s.put(linkKey(i), seenAdmissible)
		if i%16 == 0 { // a page
			k := linkKey(-1 - i/16%everywhere)
			if s.verdict(k) == unseen {
				missed++
				s.put(k, seenAdmissible)
			}
		}
	}
	got := remembered(4 * knownMost)
	if got < knownMost*9/10 || got > knownMost || len(s.places) != knownMost || s.used > knownMost {
		t.Errorf("%d links are remembered in %d places, %d used, want nearly %d", got, len(s.places), s.used, knownMost)
	}
	if most := 4 * knownMost / 16 / 20; missed > most {
		t.Errorf("links that stand on every page were sent %d times, want at most %d", missed, most)
	}
	if size := unsafe.Sizeof(place{}) * knownMost; size > 1<<20 {
		t.Errorf("a slice remembers links in %d bytes", size)
	}
}

// A slice of a small job takes little memory for what it knows, and one that knows nothing none.
func TestLinkSetBeginsSmall(t *testing.T) {
	t.Parallel()
	var s linkSet
	s.clear()
	if len(s.places) != 0 {
		t.Errorf("%d places before the first link", len(s.places))
	}
	for i := range 90 {
		s.put(linkKey(i), seenAdmissible)
	}
	if len(s.places) != knownFirst {
		t.Errorf("%d places for 90 links, want %d", len(s.places), knownFirst)
	}
}

// Links that the store has seen are left out, unless it refused them and they may be had now; in a call that fails
// all come back.
func TestKnownLinksAreLeftOut(t *testing.T) {
	t.Parallel()
	link := func(n int, refused crawl.Reason) crawl.Link { return crawl.Link{Key: linkKey(n), Refused: refused} }
	page := func(links ...crawl.Link) *store.Accepted { return &store.Accepted{Links: links} }
	numbers := func(a *store.Accepted) (out []int) {
		for _, l := range a.Links {
			for n := range 10 {
				if l.Key == linkKey(n) {
					out = append(out, n)
				}
			}
		}
		return out
	}
	m := newKnownLinks(nil)
	first := page(link(0, ""), link(1, crawl.RefusedDepth), link(2, ""))
	m.strip(first)
	m.keep([]store.Commit{{Accepted: first}, {Accepted: page(link(3, ""))}, {}},
		[]store.Committed{{Verdict: store.Done}, {Verdict: store.Stale}, {Verdict: store.Done}})
	next := page(link(0, crawl.RefusedDepth), link(1, ""), link(1, crawl.RefusedDepth), link(2, ""), link(3, ""))
	all := page(link(0, ""), link(2, ""))
	none := page(link(4, ""))
	for _, a := range []*store.Accepted{next, all, none, nil} {
		m.strip(a)
	}
	if got := numbers(next); len(got) != 2 || got[0] != 1 || got[1] != 3 {
		t.Errorf("links %v are sent, want 1, which may be had now, and 3, whose page was not recorded", got)
	}
	if len(all.Links) != 0 || len(none.Links) != 1 {
		t.Errorf("%d and %d links are sent, want none and one", len(all.Links), len(none.Links))
	}
	m.restore()
	if len(next.Links) != 5 || len(all.Links) != 2 || len(none.Links) != 1 {
		t.Errorf("%d, %d and %d links are sent again, want 5, 2 and 1", len(next.Links), len(all.Links), len(none.Links))
	}
	again := page(link(0, ""))
	if m.strip(again); len(again.Links) != 1 {
		t.Error("a call failed, and a link was still believed to be known")
	}
}

func BenchmarkKnownLinks(b *testing.B) {
	const pages, links = 1000, 20
	m := newKnownLinks(nil)
	all := make([][]crawl.Link, pages)
	for i := range all {
		for k := range links {
			all[i] = append(all[i], crawl.Link{Key: linkKey((i*i + k*k*k) % 10_000)})
		}
	}
	b.ReportAllocs()
	sent := 0
	for i := 0; b.Loop(); i++ {
		a := &store.Accepted{Links: all[i%pages]}
		m.strip(a)
		sent += len(a.Links)
		m.keep([]store.Commit{{Accepted: a}}, []store.Committed{{Verdict: store.Done}})
		m.sent()
	}
	b.ReportMetric(float64(sent)/float64(b.N), "sent/op")
}
