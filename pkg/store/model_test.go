package store

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// The model says what a job must be after any interleaving of slices, commits sent
// twice, lost workers, cancels and sweeps. It is written from the contract, not
// from the scripts: sets and counters, no containers.
type model struct {
	st   *Store
	job  crawl.JobRef
	now  int64
	plan crawl.Plan

	state, before                crawl.State
	stop                         crawl.StopReason
	queued                       map[int64]crawl.Item
	leased                       map[int64]held
	deferred                     map[int64]waits
	slices                       map[int64]*modelSlice
	retiring                     map[int64]bool
	total                        int64
	accepted, failed, skipped    int64
	cancelled                    int64
	seen                         map[string]bool
	refused                      map[string]bool
	claims                       map[string]int64
	seedsOK, pageLimit, refusals int64
	cancelAt, deadline           int64
	modelPause
	maps modelMaps
	modelQuota
	modelRecords
}

type held struct {
	item crawl.Item
	gen  int64
}

type waits struct {
	item crawl.Item
	due  int64
}

type modelSlice struct {
	sl       *Slice
	deadline int64
	// what the worker believes it holds, and every commit it ever sent
	items map[int64]crawl.Item
	sent  []Commit
	// the same of sitemaps, without what was sent too late
	maps     map[int64]crawl.Item
	sentMaps []MapCommit
	parts    int
}

const (
	modelLease = int64(12_000)
	modelGrace = int64(4_000)
)

func url(t rapid.TB, i int) crawl.URL {
	t.Helper()
	u, err := crawl.ParseURL(fmt.Sprintf("http://site.test/%d", i))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func newModel(ctx context.Context, t *rapid.T, r *crawltest.Redis, tenant string) *model {
	m := &model{
		now: 1_700_000_000_000, state: crawl.Queued, before: crawl.Queued,
		queued: map[int64]crawl.Item{}, leased: map[int64]held{}, deferred: map[int64]waits{},
		slices: map[int64]*modelSlice{}, retiring: map[int64]bool{}, seen: map[string]bool{}, refused: map[string]bool{},
		claims: map[string]int64{},
		maps:   newModelMaps(), modelQuota: newModelQuota(t), modelRecords: newModelRecords(t),
	}
	m.now += dayMS - m.now%dayMS - rapid.Int64Range(1, 60_000).Draw(t, "before midnight")
	m.st = New(r.Client, Options{Now: func() int64 { return m.now }})
	m.job = crawl.JobRef{Tenant: tenant, ID: crawl.NewJobID(tenant, "")}
	m.plan = crawl.Plan{
		Site: rapid.Bool().Draw(t, "site"), MaxPages: int64(rapid.IntRange(3, 12).Draw(t, "max pages")),
		Concurrency: rapid.IntRange(1, 6).Draw(t, "concurrency"), Retention: 10_000 * time.Hour,
	}
	if rapid.Bool().Draw(t, "time limit") {
		m.plan.TimeLimit = 40 * time.Second
	}
	m.plan.Sitemap = rapid.SampledFrom([]string{"", crawl.SitemapInclude}).Draw(t, "sitemap")
	m.plan.MaxBytes, m.plan.MaxKeptBytes = m.most, m.mayKeep
	n := NewJob{Job: m.job, Spec: []byte(`{}`), Plan: m.plan, Quota: m.service()}
	for i := range rapid.IntRange(1, 3).Draw(t, "inputs") {
		n.Inputs = append(n.Inputs, crawl.Input{URL: url(t, i)})
		m.admit(url(t, i).String(), 0, 0)
	}
	if m.plan.Site && m.plan.Sitemap == crawl.SitemapInclude {
		m.maps.admit("http://site.test/sitemap.xml", 0, 0, m.now)
	}
	c, err := m.st.Create(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	m.let = true
	if want := []crawl.Ring{{JobRef: m.job}}; !cmp.Equal(c.Rings, want) {
		t.Fatalf("rings of a new job: %v, want %v", c.Rings, want)
	}
	return m
}

func (m *model) admit(u string, depth int, parent int64) {
	m.total++
	m.seen[u] = true
	m.queued[m.total] = crawl.Item{Kind: crawl.ItemPage, N: m.total, Depth: depth, Parent: parent, URL: u}
}

func (m *model) finish(state crawl.State, stop crawl.StopReason) {
	m.stands = false
	m.state, m.stop = state, stop
	clear(m.slices)
	clear(m.retiring)
	m.maps.drop()
}

func (m *model) endIfIdle() {
	if len(m.leased) > 0 {
		return
	}
	if m.state == crawl.Cancelling {
		m.finish(crawl.Cancelled, m.stop)
		return
	}
	if m.state.Terminal() || len(m.queued)+len(m.deferred)+m.maps.left() > 0 {
		return
	}
	switch {
	case m.plan.Site && m.seedsOK == 0:
		m.finish(crawl.Failed, crawl.StopSeedFailed)
	case m.failed > 0:
		m.finish(crawl.CompletedWithErrors, m.emptyOrLimit())
	default:
		m.finish(crawl.Completed, m.emptyOrLimit())
	}
}

func (m *model) emptyOrLimit() crawl.StopReason {
	if m.pageLimit > 0 || m.maps.unread > 0 {
		return crawl.StopPageLimit
	}
	return crawl.StopFrontierEmpty
}

func (m *model) windDown(stop crawl.StopReason) {
	m.cancelled += int64(len(m.queued) + len(m.deferred))
	clear(m.queued)
	clear(m.deferred)
	m.maps.drop()
	m.state, m.stop, m.cancelAt = crawl.Cancelling, stop, m.now+modelGrace
	m.stands = false
	m.endIfIdle()
}

func (m *model) revoke() {
	m.cancelled += int64(len(m.leased))
	clear(m.leased)
	m.endIfIdle()
}

func (m *model) dueCount() int {
	n := len(m.queued)
	for _, w := range m.deferred {
		if w.due <= m.now {
			n++
		}
	}
	return n + m.maps.due(m.now)
}

func (m *model) live() int {
	n := 0
	for _, s := range m.slices {
		if s.deadline > m.now {
			n++
		}
	}
	return max(0, n-len(m.retiring))
}

// back puts an item of a slice where it must go.
func (m *model) back(it crawl.Item) {
	if m.state == crawl.Cancelling {
		m.cancelled++
		return
	}
	m.queued[it.N] = it
}

// check compares the whole of what a reader sees with the model: promise 1 after
// every step.
func (m *model) check(ctx context.Context, t *rapid.T) {
	j, err := m.st.Job(ctx, m.job)
	if err != nil {
		t.Fatal(err)
	}
	if !j.Consistent() {
		t.Fatalf("counts do not add up: %+v", j)
	}
	if j.State != m.before && !m.before.CanBecome(j.State) {
		t.Fatalf("%s became %s, which the table does not allow", m.before, j.State)
	}
	m.before = j.State
	got := map[string]any{
		"state": j.State, "stop": j.StopReason, "total": j.Total, "queued": j.Queued, "active": j.Active,
		"deferred": j.Deferred, "accepted": j.Accepted, "failed": j.Failed, "skipped": j.Skipped,
		"cancelled": j.Cancelled, "records": j.Records, "kept": j.KeptBytes,
		"sitemaps": j.Sitemaps, "sitemaps failed": j.SitemapsFailed,
		"bytes": j.Bytes, "waits for its tenant": j.WaitingFor == crawl.WaitingTenantQuota,
	}
	stop := m.stop
	if !m.state.Terminal() {
		stop = ""
	}
	want := map[string]any{
		"state": m.state, "stop": stop, "total": m.total, "queued": int64(len(m.queued)),
		"active": int64(len(m.leased)), "deferred": int64(len(m.deferred)), "accepted": m.accepted,
		"failed": m.failed, "skipped": m.skipped, "cancelled": m.cancelled, "records": int64(len(m.recs)), "kept": m.kept,
		"sitemaps": m.maps.read, "sitemaps failed": m.maps.failed,
		"bytes": m.bytes, "waits for its tenant": m.waits(),
	}
	if m.state.Terminal() {
		m.nothingLeft(ctx, t)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("the job is not what it must be (-want +got):\n%s", d)
	}
	m.count(ctx, t)
}

func (m *model) pick(t *rapid.T) *modelSlice {
	if len(m.slices) == 0 {
		t.Skip("no slice")
	}
	gens := slices.Sorted(maps.Keys(m.slices))
	return m.slices[rapid.SampledFrom(gens).Draw(t, "slice")]
}

func (m *model) pickItem(t *rapid.T, s *modelSlice) crawl.Item {
	if len(s.items) == 0 {
		t.Skip("the slice holds nothing")
	}
	return s.items[rapid.SampledFrom(slices.Sorted(maps.Keys(s.items))).Draw(t, "item")]
}

func (m *model) begin(ctx context.Context, t *rapid.T) {
	sl, _, err := m.st.Begin(ctx, crawl.Ring{JobRef: m.job})
	if err != nil {
		t.Fatal(err)
	}
	due := m.dueCount()
	want := (m.state == crawl.Queued || m.state == crawl.Running) && m.let && m.lacks() && m.restsUntil <= m.now && !m.usedUp()
	if (sl != nil) != want {
		t.Fatalf("a slice began: %v, want %v (state %s, due %d, live %d)", sl != nil, want, m.state, due, m.live())
	}
	if sl == nil {
		return
	}
	m.restsUntil = 0
	m.token(t, sl.Gen)
	if m.state == crawl.Queued {
		m.state, m.begun = crawl.Running, true
		if m.plan.TimeLimit > 0 {
			m.deadline = m.now + m.plan.TimeLimit.Milliseconds()
		}
	}
	m.slices[sl.Gen] = &modelSlice{
		sl: sl, deadline: m.now + modelLease, items: map[int64]crawl.Item{}, maps: map[int64]crawl.Item{},
	}
}

func (m *model) lease(ctx context.Context, t *rapid.T) {
	s := m.pick(t)
	n := rapid.IntRange(1, 8).Draw(t, "wanted")
	holding := len(s.items) + len(s.maps)
	x, err := m.st.Exchange(ctx, s.sl, Exchange{Lease: n, Holding: holding})
	if err != nil {
		t.Fatal(err)
	}
	if m.state == crawl.Running && m.total >= m.plan.MaxPages && len(m.maps.waiting) > 0 {
		m.maps.unread += int64(len(m.maps.waiting))
		clear(m.maps.waiting)
		m.endIfIdle()
	}
	mine := m.maps.of(s.sl.Gen)
	for _, h := range m.leased {
		if h.gen == s.sl.Gen {
			mine++
		}
	}
	want, maps, adopts := 0, 0, m.state == crawl.Running && mine > holding
	switch {
	case adopts:
		want = mine // an answer was lost: all that the slice holds
	case m.state == crawl.Running:
		fair := int(math.Ceil(float64(m.plan.Concurrency) / float64(max(1, m.live()))))
		want = max(0, min(n, m.plan.Concurrency-len(m.leased)-len(m.maps.leased), fair-mine))
		if want == 0 || m.usedUp() {
			want = 0
			break
		}
		if m.maps.due(m.now) > 0 && len(m.maps.leased) < (m.plan.Concurrency+3)/4 {
			maps = 1
		}
		want = maps + min(want-maps, m.dueCount()-m.maps.due(m.now), m.dayLeft())
	}
	if x.Lost || x.State != m.state || len(x.Items) != want {
		t.Fatalf("leased %d of %d (state %s, lost %v), want %d (state %s)", len(x.Items), n, x.State, x.Lost, want, m.state)
	}
	forgets := rapid.IntRange(0, 4).Draw(t, "the answer is lost") == 0
	for _, it := range x.Items {
		if it.Kind == crawl.ItemSitemap {
			maps--
			m.leasedMap(t, s, it, adopts, forgets)
			continue
		}
		if adopts {
			if h := m.leased[it.N]; h.gen != s.sl.Gen || h.item != it {
				t.Fatalf("adopted %+v, which the model has as %+v", it, h)
			}
			s.items[it.N] = it
			continue
		}
		was, ok := m.queued[it.N]
		if w, late := m.deferred[it.N]; late && w.due <= m.now {
			was, ok = w.item, true
		}
		if !ok || was != it {
			t.Fatalf("leased %+v, which the model has as %+v (%v)", it, was, ok)
		}
		delete(m.queued, it.N)
		delete(m.deferred, it.N)
		m.leased[it.N] = held{it, s.sl.Gen}
		if !forgets {
			s.items[it.N] = it
		}
	}
	if maps > 0 {
		t.Fatal("a sitemap is due and was not leased")
	}
}

// draw makes up an outcome for an item.
func (m *model) draw(t *rapid.T, it crawl.Item) Commit {
	c := Commit{Item: it}
	switch rapid.SampledFrom([]string{"ok", "ok", "ok", "fail", "skip", "retry", "redirect"}).Draw(t, "outcome") {
	case "ok":
		final := url(t, rapid.IntRange(0, 14).Draw(t, "final"))
		if rapid.Bool().Draw(t, "no redirect") {
			final, _ = crawl.ParseURL(it.URL)
		}
		c.Accepted = &Accepted{
			Page:  crawl.Page{SourceURL: it.URL, URL: final.String(), Status: 200, Bytes: rapid.Int64Range(0, 9).Draw(t, "bytes")},
			Final: final.Key(),
		}
		used := map[int]bool{}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, 14), 0, 5).Draw(t, "links") {
			if used[i] {
				continue
			}
			used[i] = true
			l := crawl.Link{URL: url(t, i), Key: url(t, i).Key()}
			if i%5 == 4 {
				l.Refused = crawl.RefusedOutOfScope
			}
			c.Accepted.Links = append(c.Accepted.Links, l)
		}
		m.drawContent(t, c.Accepted)
	case "fail":
		c.Failed = &crawl.Failure{SourceURL: it.URL, URL: it.URL, ErrorType: "http_404", Status: 404}
	case "skip":
		c.Skipped = crawl.SkipRedirectOutOfScope
	case "redirect":
		c.Redirect = &Redirect{URL: "http://other.test/" + fmt.Sprint(it.Hops), Hops: it.Hops + 1}
	default:
		c.Retry = time.Duration(rapid.IntRange(1, 8).Draw(t, "delay")) * time.Second
	}
	return c
}

func (m *model) commit(ctx context.Context, t *rapid.T) {
	s := m.pick(t)
	m.settle(ctx, t, s, m.pickItem(t, s))
}

func (m *model) settle(ctx context.Context, t *rapid.T, s *modelSlice, it crawl.Item) {
	c := m.draw(t, it)
	delete(s.items, it.N)
	s.sent = append(s.sent, c)
	m.send(ctx, t, s, c, false)
}

// again sends a commit a second time, as after a lost answer: it must change nothing.
func (m *model) again(ctx context.Context, t *rapid.T) {
	s := m.pick(t)
	if len(s.sent) == 0 {
		t.Skip("nothing sent yet")
	}
	m.send(ctx, t, s, rapid.SampledFrom(s.sent).Draw(t, "commit"), true)
}

func (m *model) send(ctx context.Context, t *rapid.T, s *modelSlice, c Commit, resent bool) {
	h, ok := m.leased[c.Item.N]
	holds := ok && h.gen == s.sl.Gen && h.item == c.Item && !m.state.Terminal()
	registered := m.slices[s.sl.Gen] != nil
	x, err := m.st.Exchange(ctx, s.sl, Exchange{Commits: []Commit{c}})
	if err != nil {
		t.Fatal(err)
	}
	got := x.Committed[0]
	if !holds {
		want := Stale
		if resent && registered {
			want = Done
		}
		if got.Verdict != want {
			t.Fatalf("verdict %q of a commit without a lease, want %q (resent %v)", got.Verdict, want, resent)
		}
		return
	}
	delete(m.leased, c.Item.N)
	was := m.processed()
	want := m.apply(c)
	m.settled[m.now/dayMS] += m.processed() - was
	if m.full() || m.overflows() {
		m.windDown(crawl.StopByteLimit)
	}
	if got != want {
		t.Fatalf("committed %+v, want %+v", got, want)
	}
	m.endIfIdle()
}

// apply records an outcome that counts.
func (m *model) apply(c Commit) Committed {
	switch {
	case c.Accepted != nil:
		m.bytes += c.Accepted.Page.Bytes // read, whatever becomes of it
		if first, ok := m.claims[c.Accepted.Page.URL]; ok {
			m.skipped++
			return Committed{Alias, first}
		}
		m.accepted++
		seq := m.record(&c)
		m.claims[c.Accepted.Page.URL] = seq
		if c.Item.Depth == 0 {
			m.seedsOK++
		}
		for _, l := range c.Accepted.Links {
			u := l.URL.String()
			switch {
			case l.Refused != "":
				m.refuse(u)
			case m.seen[u] || m.state == crawl.Cancelling:
			case m.total < m.plan.MaxPages:
				m.admit(u, c.Item.Depth+1, seq)
			default:
				if !m.refused[u] {
					m.pageLimit++
				}
				m.refuse(u)
			}
		}
		return Committed{Done, seq}
	case c.Failed != nil:
		m.failed++
	case c.Skipped != "":
		m.skipped++
	case c.Redirect != nil:
		it := c.Item
		it.FetchURL, it.Hops = c.Redirect.URL, c.Redirect.Hops
		m.back(it)
	default:
		it := c.Item
		it.Attempt++
		if m.state == crawl.Cancelling {
			m.cancelled++
		} else {
			m.deferred[it.N] = waits{it, m.now + c.Retry.Milliseconds()}
		}
	}
	return Committed{Verdict: Done}
}

func (m *model) refuse(u string) {
	if !m.refused[u] {
		m.refused[u] = true
		m.refusals++
	}
}

func (m *model) release(ctx context.Context, t *rapid.T) {
	s := m.pick(t)
	it := m.pickItem(t, s)
	delay := time.Duration(rapid.IntRange(0, 3).Draw(t, "delay")) * time.Second
	if _, err := m.st.Exchange(ctx, s.sl, Exchange{Returns: []Return{{Item: it, Delay: delay}}}); err != nil {
		t.Fatal(err)
	}
	delete(s.items, it.N)
	if h, ok := m.leased[it.N]; !ok || h.gen != s.sl.Gen || m.state.Terminal() {
		return
	}
	delete(m.leased, it.N)
	if delay > 0 && m.state != crawl.Cancelling {
		m.deferred[it.N] = waits{it, m.now + delay.Milliseconds()}
	} else {
		m.back(it)
	}
	m.endIfIdle()
}

func (m *model) end(ctx context.Context, t *rapid.T) {
	s := m.pick(t)
	if _, err := m.st.End(ctx, s.sl, 0); err != nil {
		t.Fatal(err)
	}
	m.drop(s.sl.Gen, 0)
	m.endIfIdle()
}

// drop takes a slice and gives back what it held.
func (m *model) drop(gen int64, attempts int) {
	delete(m.slices, gen)
	delete(m.retiring, gen)
	for n, h := range m.leased {
		if h.gen != gen {
			continue
		}
		delete(m.leased, n)
		h.item.Attempt += attempts
		if attempts > 0 && h.item.Attempt >= MaxLost {
			m.failed++
			m.settled[m.now/dayMS]++
			continue
		}
		m.back(h.item)
	}
	m.maps.back(gen, attempts, m.now)
}

func (m *model) retire(ctx context.Context, t *rapid.T) {
	s := m.pick(t)
	if _, err := m.st.Exchange(ctx, s.sl, Exchange{Retire: true}); err != nil {
		t.Fatal(err)
	}
	if !m.state.Terminal() {
		m.retiring[s.sl.Gen] = true
	}
}

func (m *model) renew(ctx context.Context, t *rapid.T) {
	s := m.pick(t)
	x, err := m.st.Renew(ctx, s.sl)
	if err != nil {
		t.Fatal(err)
	}
	if x.Lost || x.State != m.state {
		t.Fatalf("renewed: %+v, want state %s", x, m.state)
	}
	s.deadline = m.now + modelLease
}

func (m *model) sweep(ctx context.Context, t *rapid.T) {
	if _, err := m.st.sweep(ctx, []string{m.job.Tenant}); err != nil {
		t.Fatal(err)
	}
	if m.state.Terminal() {
		return
	}
	if m.state != crawl.Cancelling && m.restsUntil <= m.now {
		m.restsUntil = 0
	}
	over := m.deadline > 0 && m.now >= m.deadline || m.pausedUntil > 0 && m.now >= m.pausedUntil
	if m.state != crawl.Cancelling && over {
		m.windDown(crawl.StopTimeLimit)
	}
	if m.state == crawl.Cancelling {
		if m.now >= m.cancelAt {
			m.revoke()
		}
		return
	}
	for gen, s := range m.slices {
		if s.deadline <= m.now {
			m.drop(gen, 1)
		}
	}
	m.endIfIdle()
}

func (m *model) cancel(ctx context.Context, t *rapid.T) {
	r, err := m.st.Cancel(ctx, m.job)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case m.state.Terminal():
	case m.state == crawl.Cancelling:
		if m.now >= m.cancelAt {
			m.revoke()
		}
	default:
		m.windDown(crawl.StopCancelled)
	}
	if r.State != m.state {
		t.Fatalf("cancel answered %s, want %s", r.State, m.state)
	}
	if r.State == crawl.Cancelling && (r.GraceLeft <= 0 || r.GraceLeft > Grace) {
		t.Fatalf("grace left %v", r.GraceLeft)
	}
}

// TestInterleavings drives random interleavings of several slices against the model
// and compares all that a reader sees after every step (promises 1, 2, 5, 6, 7).
func TestInterleavings(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx := t.Context()
			m := newModel(ctx, rt, r, crawltest.Tenant(t))
			m.mostItems = 3
			step := func(f func(context.Context, *rapid.T)) func(*rapid.T) {
				return func(rt *rapid.T) { f(ctx, rt) }
			}
			rt.Repeat(map[string]func(*rapid.T){
				"":        step(m.check),
				"begin":   step(m.begin),
				"lease":   step(m.lease),
				"lease2":  step(m.lease),
				"commit":  step(m.commit),
				"commit2": step(m.commit),
				"commit3": step(m.commit),
				"again":   step(m.again),
				"release": step(m.release),
				"map":     step(m.commitMap),
				"map2":    step(m.commitMap),
				"remap":   step(m.againMap),
				"unmap":   step(m.releaseMap),
				"end":     step(m.end),
				"renew":   step(m.renew),
				"retire":  step(m.retire),
				"sweep":   step(m.sweep),
				"time":    func(rt *rapid.T) { m.now += int64(rapid.IntRange(1, 9000).Draw(rt, "ms")) },
				"midnight": func(rt *rapid.T) {
					if rapid.IntRange(0, 5).Draw(rt, "seldom") == 0 {
						m.midnight(rt)
					}
				},
				"quota": step(m.setQuota),
				"cancel": func(rt *rapid.T) {
					if rapid.IntRange(0, 5).Draw(rt, "seldom") == 0 {
						m.cancel(ctx, rt)
					}
				},
				"records": step(m.records),
				"pause":   step(m.pause),
				"resume":  step(m.resume),
				"resume2": step(m.resume),
				"crowd":   step(m.crowd),
				"older":   step(m.older),
				"pause for long": func(rt *rapid.T) {
					if m.state == crawl.Paused && rapid.IntRange(0, 5).Draw(rt, "seldom") == 0 {
						m.now += crawl.MaxPause.Milliseconds() - 1000
					}
				},
			})
		})
	})
}
