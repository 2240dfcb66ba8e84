package store

import (
	"context"
	"math"

	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
)

// modelQuota is what the model of a job knows of its limit of bytes and of the pages that
// its tenant may have in a day.
type modelQuota struct {
	bytes, most  int64 // 0: no limit
	granted, own int64 // pages a day, by the service and by the tenant; 0: no limit
	settled      map[int64]int64
	restsUntil   int64 // 0: it does not
}

func newModelQuota(t *rapid.T) modelQuota {
	q := modelQuota{settled: map[int64]int64{}}
	q.most = rapid.SampledFrom([]int64{0, 0, 0, 12}).Draw(t, "bytes")
	q.granted = rapid.SampledFrom([]int64{0, 0, 5}).Draw(t, "a day")
	return q
}

// dayLimit is the smaller of the two.
func (q *modelQuota) dayLimit() int64 {
	return crawl.Quota{PagesPerDay: q.own}.Within(crawl.Quota{PagesPerDay: q.granted}).PagesPerDay
}

func (m *model) processed() int64 { return m.accepted + m.failed + m.skipped }

// dayLeft answers how many pages may be leased yet.
func (m *model) dayLeft() int {
	if m.dayLimit() == 0 {
		return math.MaxInt
	}
	return int(m.dayLimit() - m.settled[m.now/dayMS] - int64(len(m.leased)))
}

// usedUp reports whether nothing may be leased; the job then rests, until midnight or
// only for a moment when pages in flight have what is left.
func (m *model) usedUp() bool {
	if m.dayLeft() > 0 {
		return false
	}
	m.restsUntil = restUntil(m.now, m.dayLimit()-m.settled[m.now/dayMS])
	return true
}

// waits reports whether a reader is told that the job waits for its tenant's quota.
func (m *model) waits() bool {
	return m.stands || (m.state == crawl.Queued || m.state == crawl.Running) && m.restsUntil > 0 && len(m.leased) == 0
}

// lacks reports whether the job could use another slice.
func (m *model) lacks() bool {
	due := m.dueCount()
	return due > 0 && min(parallelism(m.plan.Concurrency), int(math.Ceil(float64(due)/64))) > m.live()
}

// full reports whether the job has its bytes, and something is left of it.
func (m *model) full() bool {
	return m.most > 0 && m.bytes >= m.most && !m.state.Terminal() && m.state != crawl.Cancelling &&
		len(m.queued)+len(m.leased)+len(m.deferred)+m.maps.left() > 0
}

// midnight has the time pass to shortly before or after it.
func (m *model) midnight(t *rapid.T) {
	m.now = max(m.now, (m.now/dayMS+1)*dayMS+rapid.Int64Range(-2000, 2000).Draw(t, "ms around midnight"))
}

func (m *model) setQuota(ctx context.Context, t *rapid.T) {
	m.own = rapid.Int64Range(0, 12).Draw(t, "own a day")
	rings, err := m.st.SetQuota(ctx, m.job.Tenant, crawl.Quota{PagesPerDay: m.own})
	if err != nil {
		t.Fatal(err)
	}
	want := false
	if m.restsUntil > 0 && m.dayLeft() > 0 && !m.state.Terminal() && m.let {
		m.restsUntil = 0
		want = m.state != crawl.Cancelling && m.lacks()
	}
	if (len(rings) > 0) != want {
		t.Fatalf("rings %v, want some: %v", rings, want)
	}
}
