package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
)

// modelMaps is what the model knows of sitemaps.
type modelMaps struct {
	admitted             int64
	waiting              map[int64]waits
	leased               map[int64]held
	settled              map[int64]bool
	seen                 map[string]bool
	named                map[string]naming // pages that a sitemap named first, by URL
	read, failed, unread int64
}

// naming is what a sitemap says of a page that it names.
type naming struct {
	url     string // of the sitemap
	lastMod time.Time
}

func newModelMaps() modelMaps {
	return modelMaps{
		waiting: map[int64]waits{}, leased: map[int64]held{}, settled: map[int64]bool{}, seen: map[string]bool{},
		named: map[string]naming{},
	}
}

func (mm *modelMaps) admit(u string, depth int, parent, now int64) {
	if mm.seen[u] || depth > 3 {
		return
	}
	mm.seen[u] = true
	mm.admitted++
	it := crawl.Item{Kind: crawl.ItemSitemap, N: mm.admitted, Depth: depth, Parent: parent, URL: u}
	mm.waiting[it.N] = waits{it, now}
}

// drop is what becomes of sitemaps when a job is cut short: nothing is told of them.
func (mm *modelMaps) drop() {
	clear(mm.waiting)
	clear(mm.leased)
}

func (mm *modelMaps) left() int { return len(mm.waiting) + len(mm.leased) }

func (mm *modelMaps) due(now int64) int {
	n := 0
	for _, w := range mm.waiting {
		if w.due <= now {
			n++
		}
	}
	return n
}

// of answers how many a slice holds.
func (mm *modelMaps) of(gen int64) int {
	n := 0
	for _, h := range mm.leased {
		if h.gen == gen {
			n++
		}
	}
	return n
}

// back gives back what a slice held.
func (mm *modelMaps) back(gen int64, attempts int, now int64) {
	for n, h := range mm.leased {
		if h.gen != gen {
			continue
		}
		delete(mm.leased, n)
		if h.item.Attempt += attempts; attempts > 0 && h.item.Attempt >= MaxLost {
			mm.failed++
			mm.settled[n] = true
			continue
		}
		mm.waiting[n] = waits{h.item, now}
	}
}

func (m *model) leasedMap(t *rapid.T, s *modelSlice, it crawl.Item, adopts, forgets bool) {
	if adopts {
		if h := m.maps.leased[it.N]; h.gen != s.sl.Gen || h.item != it {
			t.Fatalf("adopted %+v, which the model has as %+v", it, h)
		}
		s.maps[it.N] = it
		return
	}
	w, ok := m.maps.waiting[it.N]
	if !ok || w.item != it || w.due > m.now {
		t.Fatalf("leased %+v, which the model has as %+v (%v)", it, w, ok)
	}
	delete(m.maps.waiting, it.N)
	m.maps.leased[it.N] = held{it, s.sl.Gen}
	if !forgets {
		s.maps[it.N] = it
	}
}

func (m *model) pickMap(t *rapid.T) (*modelSlice, crawl.Item) {
	s := m.pick(t)
	if len(s.maps) == 0 {
		t.Skip("the slice holds no sitemap")
	}
	return s, s.maps[rapid.SampledFrom(slices.Sorted(maps.Keys(s.maps))).Draw(t, "sitemap")]
}

// drawMap makes up an outcome for a sitemap.
func (m *model) drawMap(t *rapid.T, s *modelSlice, it crawl.Item) MapCommit {
	outcomes := []MapOutcome{MapPart, MapPart, MapPart, MapRead, MapRead, MapNone, MapListed, MapFailed, MapRetry}
	c := MapCommit{Item: it, Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome")}
	if c.Outcome == MapRetry {
		c.Retry = time.Duration(rapid.IntRange(1, 8).Draw(t, "delay")) * time.Second
		return c
	}
	s.parts++
	c.Part = s.parts
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 14), 0, 5, rapid.ID[int]).Draw(t, "links") {
		l := MapLink{Link: crawl.Link{URL: url(t, i), Key: url(t, i).Key()}}
		switch {
		case i%5 == 4:
			l.Refused = crawl.RefusedOutOfScope
		case i%3 == 0:
			l.LastMod = time.UnixMilli(1_600_000_000_000 + c.Item.N).UTC()
		}
		c.Links = append(c.Links, l)
	}
	for _, i := range rapid.SliceOfN(rapid.IntRange(0, 5), 0, 2).Draw(t, "nested") {
		u, err := crawl.ParseURL("http://site.test/" + []string{"sitemap", "a", "b", "c", "d", "e"}[i] + ".xml")
		if err != nil {
			t.Fatal(err)
		}
		c.Nested = append(c.Nested, u)
	}
	return c
}

func (m *model) commitMap(ctx context.Context, t *rapid.T) {
	s, it := m.pickMap(t)
	c := m.drawMap(t, s, it)
	if c.Outcome != MapPart {
		delete(s.maps, it.N)
	}
	m.sendMap(ctx, t, s, c, false)
}

// againMap sends a commit a second time, as after a lost answer: it must change nothing.
func (m *model) againMap(ctx context.Context, t *rapid.T) {
	s := m.pick(t)
	if len(s.sentMaps) == 0 {
		t.Skip("nothing sent yet")
	}
	c := rapid.SampledFrom(s.sentMaps).Draw(t, "commit")
	if h := m.maps.leased[c.Item.N]; c.Outcome != MapPart && h.gen == s.sl.Gen && h.item == c.Item {
		t.Skip("leased anew: no worker sends it again then")
	}
	m.sendMap(ctx, t, s, c, true)
}

func (m *model) sendMap(ctx context.Context, t *rapid.T, s *modelSlice, c MapCommit, resent bool) {
	h, ok := m.maps.leased[c.Item.N]
	holds := ok && h.gen == s.sl.Gen && h.item == c.Item
	registered := m.slices[s.sl.Gen] != nil
	x, err := m.st.Exchange(ctx, s.sl, Exchange{Maps: []MapCommit{c}})
	if err != nil {
		t.Fatal(err)
	}
	got := x.Mapped[0].Verdict
	switch {
	case holds && !resent:
		s.sentMaps = append(s.sentMaps, c)
		m.applyMap(c)
		m.endIfIdle()
		if got != Done || c.Outcome != MapRetry && x.Mapped[0].Full != (m.total >= m.plan.MaxPages) {
			t.Fatalf("committed %+v, want it done", x.Mapped[0])
		}
	case holds:
		if got != Done {
			t.Fatalf("verdict %q of a part that was sent twice", got)
		}
	case got == Done && (!resent || !registered):
		t.Fatalf("a commit without a lease is done (resent %v, registered %v)", resent, registered)
	case got == Stale && resent && registered && (m.maps.settled[c.Item.N] || c.Outcome != MapPart):
		t.Fatal("a commit that was sent twice is stale")
	}
}

// applyMap records an outcome that counts.
func (m *model) applyMap(c MapCommit) {
	n := c.Item.N
	if c.Outcome != MapPart {
		delete(m.maps.leased, n)
	}
	if c.Outcome == MapRetry {
		it := c.Item
		it.Attempt++
		m.maps.waiting[n] = waits{it, m.now + c.Retry.Milliseconds()}
		return
	}
	if c.Outcome == MapListed {
		delete(m.maps.seen, c.Item.URL)
	}
	for _, u := range c.Nested {
		m.maps.admit(u.String(), c.Item.Depth+1, mapParent+n, m.now)
	}
	for _, l := range c.Links {
		u := l.URL.String()
		switch {
		case l.Refused != "":
			m.refuse(u)
		case m.seen[u]:
		case m.total < m.plan.MaxPages:
			m.admit(u, 1, mapParent+n)
			m.maps.named[u] = naming{c.Item.URL, l.LastMod}
		default:
			if !m.refused[u] {
				m.pageLimit++
			}
			m.refuse(u)
		}
	}
	if c.Outcome == MapRead {
		m.maps.read++
	}
	if c.Outcome == MapFailed {
		m.maps.failed++
	}
	m.maps.settled[n] = c.Outcome != MapPart
}

func (m *model) releaseMap(ctx context.Context, t *rapid.T) {
	s, it := m.pickMap(t)
	delay := time.Duration(rapid.IntRange(0, 3).Draw(t, "delay")) * time.Second
	if _, err := m.st.Exchange(ctx, s.sl, Exchange{Returns: []Return{{Item: it, Delay: delay}}}); err != nil {
		t.Fatal(err)
	}
	delete(s.maps, it.N)
	if h, ok := m.maps.leased[it.N]; ok && h.gen == s.sl.Gen {
		delete(m.maps.leased, it.N)
		m.maps.waiting[it.N] = waits{it, m.now + delay.Milliseconds()}
	}
}

// nothingLeft: an ended job holds nothing of its sitemaps but what tells where its pages
// come from, and what a commit that is sent twice asks for.
func (m *model) nothingLeft(ctx context.Context, t *rapid.T) {
	if n := m.st.rdb.Exists(ctx, jobKey(m.job)+":maps", jobKey(m.job)+":maps_leased", jobKey(m.job)+":lastmod").Val(); n > 0 {
		t.Fatalf("%d keys of sitemaps are left behind", n)
	}
	if ttl := m.st.rdb.PTTL(ctx, jobKey(m.job)+":maps_done").Val(); ttl == -1 {
		t.Fatal("maps_done is kept for ever")
	}
}
