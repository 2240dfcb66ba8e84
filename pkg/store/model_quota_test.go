package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// modelDay is what the model knows of the pages of a day: how many were settled, by the day.
type modelDay map[int64]int64

func (d modelDay) settle(now int64) { d[now/dayMS]++ }

// open answers how many may be settled yet today, and whether that has a limit.
func (d modelDay) open(now, limit int64) (int64, bool) { return limit - d[now/dayMS], limit > 0 }

// restUntil is when a job goes on that found nothing left: at midnight, or soon when
// pages in flight have what is open.
func restUntil(now, open int64) int64 {
	tomorrow := (now/dayMS + 1) * dayMS
	if open <= 0 {
		return tomorrow
	}
	return min(now+PeekTime.Milliseconds(), tomorrow)
}

// gateModel says what must become of a tenant's jobs under quotas that change: who waits,
// who runs, who rests, and which submission is refused. It knows little of pages, which are
// the other model's.
type gateModel struct {
	st     *Store
	tenant string
	now    int64

	service, granted, own crawl.Quota // as the API says; as it said last; the tenant's own
	jobs                  []*gateJob  // as they were created
	days                  modelDay
	tokens, tokensAt      int64 // thousandths, negative before the first submission that took one
}

type gateJob struct {
	ref         crawl.JobRef
	key         string
	digest      byte
	let         bool // passed the gate
	state       crawl.State
	stop        crawl.StopReason
	queued      int64
	items       []crawl.Item // leased
	processed   int64
	cancelled   int64
	bytes, most int64
	rests       int64 // until then; 0 for not
	cancelAt    int64
	sl          *Slice
	failed      int64
	begun       bool
	aside       bool  // paused, or cancelling since it gave its place at the gate free
	pausedUntil int64 // 0: it is not
}

// stands is for a job in the line at the gate.
func (j *gateJob) stands() bool { return !j.let && !j.aside && !j.state.Terminal() }

func (j *gateJob) runs() bool { return j.let && !j.state.Terminal() }

// left is for tests of pages that are queued or in flight.
func (j *gateJob) left() int64 { return j.queued + int64(len(j.items)) }

func (m *gateModel) bounds() crawl.Quota { return m.own.Within(m.granted) }

// dayLeft answers how many pages may be leased and how many settled.
func (m *gateModel) dayLeft() (left, open int64, limited bool) {
	open, limited = m.days.open(m.now, m.bounds().PagesPerDay)
	left = open
	for _, j := range m.jobs {
		left -= int64(len(j.items))
	}
	return left, open, limited
}

func (m *gateModel) line() (running, waiting []*gateJob) {
	for _, j := range m.jobs {
		switch {
		case j.runs():
			running = append(running, j)
		case j.stands():
			waiting = append(waiting, j)
		}
	}
	return running, waiting
}

// gate lets jobs in and answers which.
func (m *gateModel) gate() []*gateJob {
	running, waiting := m.line()
	n := max(0, min(len(waiting), int(m.bounds().MaxRunning)-len(running)))
	for _, j := range waiting[:n] {
		if j.let = true; j.begun {
			j.state = crawl.Running
		}
	}
	return waiting[:n]
}

// resume has those go on that rest for the day, if anything is left of it.
func (m *gateModel) resume() []*gateJob {
	if left, _, limited := m.dayLeft(); limited && left <= 0 {
		return nil
	}
	var out []*gateJob
	for _, j := range m.jobs {
		if j.runs() && j.rests > 0 {
			j.rests = 0
			if j.state != crawl.Cancelling && j.queued > 0 && j.sl == nil {
				out = append(out, j)
			}
		}
	}
	return out
}

// rung checks that the jobs were rung, and no other that has no use for it.
func (m *gateModel) rung(t *rapid.T, what string, rings []crawl.Ring, must ...*gateJob) {
	for _, j := range must {
		if !slices.ContainsFunc(rings, func(r crawl.Ring) bool { return r.JobRef == j.ref }) {
			t.Fatalf("%s has to ring %+v, and rings %v", what, j, rings)
		}
	}
	for _, r := range rings {
		i := slices.IndexFunc(m.jobs, func(j *gateJob) bool { return j.ref == r.JobRef })
		if i < 0 || !m.jobs[i].runs() || m.jobs[i].rests > m.now {
			t.Fatalf("%s rings %v, of jobs %+v", what, r, m.jobs)
		}
	}
}

func drawQuota(t *rapid.T, what string, least int64) crawl.Quota {
	draw := func(name string, least, most int64) int64 { return rapid.Int64Range(least, most).Draw(t, what+name) }
	return crawl.Quota{
		MaxRunning: draw(" running", least, 3), MaxQueued: draw(" queued", 0, 3), PagesPerDay: draw(" a day", 0, 9),
		SubmissionsPerSecond: draw(" a second", 0, 7),
	}
}

// submit sends a job, perhaps one that was sent before.
func (m *gateModel) submit(ctx context.Context, t *rapid.T) {
	key := rapid.SampledFrom([]string{"", "", "a", "b", "c", "d"}).Draw(t, "key")
	n := newJob(m.tenant, key)
	n.Plan.Retention = 10_000 * time.Hour
	n.Digest[0] = rapid.SampledFrom([]byte{1, 1, 1, 2}).Draw(t, "input")
	n.Quota, n.Plan.MaxBytes = m.service, rapid.SampledFrom([]int64{0, 0, 20}).Draw(t, "bytes")
	for i := range rapid.IntRange(1, 5).Draw(t, "pages") {
		n.Inputs = append(n.Inputs, crawl.Input{URL: url(t, i)})
	}
	changed := m.granted != m.service
	m.granted = m.service
	want := m.verdict(&n)
	c, err := m.st.Create(ctx, n)
	if want != nil {
		var got crawl.Fault
		if f := faultOf(err); f != nil {
			got = crawl.Fault{Code: f.Code, Limit: f.Limit, LimitMax: f.LimitMax, RetryAfter: f.RetryAfter, JobID: f.JobID}
		}
		if d := cmp.Diff(*want, got); d != "" {
			t.Fatalf("refused: %v (-want +got):\n%s", err, d)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if first := m.byKey(key); first != nil {
		if !c.Replayed || c.Job.ID != first.ref.ID || len(c.Rings) > 0 {
			t.Fatalf("a replay answers %+v", c)
		}
		return
	}
	m.jobs = append(m.jobs, &gateJob{
		ref: n.Job, key: key, digest: n.Digest[0], state: crawl.Queued, queued: int64(len(n.Inputs)), most: n.Plan.MaxBytes,
	})
	must := m.gate()
	if changed {
		must = append(must, m.resume()...)
	}
	m.rung(t, "a submission", c.Rings, must...)
}

func (m *gateModel) byKey(key string) *gateJob {
	for _, j := range m.jobs {
		if key != "" && j.key == key {
			return j
		}
	}
	return nil
}

// verdict takes the token of a submission and answers why it is refused; nil for not.
func (m *gateModel) verdict(n *NewJob) *crawl.Fault {
	q := m.bounds()
	if rate := q.SubmissionsPerSecond; rate > 0 {
		have := 1000 * rate
		if m.tokens >= 0 {
			have = min(have, m.tokens+rate*(m.now-m.tokensAt))
		}
		if have < 1000 {
			wait := time.Duration((1000-have+rate-1)/rate) * time.Millisecond
			return &crawl.Fault{Code: crawl.CodeRateLimited, Limit: "submissions_per_second", LimitMax: rate, RetryAfter: wait}
		}
		m.tokens, m.tokensAt = have-1000, m.now
	}
	if first := m.byKey(n.IdempotencyKey); first != nil {
		if first.digest == n.Digest[0] {
			return nil
		}
		return &crawl.Fault{Code: crawl.CodeKeyReused, JobID: first.ref.ID}
	}
	if open, limited := m.days.open(m.now, q.PagesPerDay); limited && open <= 0 {
		return &crawl.Fault{
			Code: crawl.CodeQuotaExceeded, Limit: "pages_per_day", LimitMax: q.PagesPerDay,
			RetryAfter: time.Duration(dayMS-m.now%dayMS) * time.Millisecond,
		}
	}
	running, waiting := m.line()
	still := max(0, len(waiting)-max(0, int(q.MaxRunning)-len(running)))
	for _, j := range m.jobs {
		if j.aside && !j.state.Terminal() {
			still++
		}
	}
	if q.MaxQueued > 0 && int64(still) >= q.MaxQueued {
		return &crawl.Fault{
			Code: crawl.CodeQuotaExceeded, Limit: "max_queued", LimitMax: q.MaxQueued, RetryAfter: 5 * time.Second,
		}
	}
	return nil
}

func (m *gateModel) setQuota(ctx context.Context, t *rapid.T) {
	m.own = drawQuota(t, "own", 0)
	rings, err := m.st.SetQuota(ctx, m.tenant, m.own)
	if err != nil {
		t.Fatal(err)
	}
	must := m.gate()
	m.rung(t, "a change of the quota", rings, append(must, m.resume()...)...)
}

// pick draws a job of which the condition holds.
func (m *gateModel) pick(t *rapid.T, ok func(*gateJob) bool) *gateJob {
	var fit []*gateJob
	for _, j := range m.jobs {
		if ok(j) {
			fit = append(fit, j)
		}
	}
	if len(fit) == 0 {
		t.Skip("no such job")
	}
	return fit[rapid.IntRange(0, len(fit)-1).Draw(t, "job")]
}

func (m *gateModel) begin(ctx context.Context, t *rapid.T) {
	j := m.pick(t, func(j *gateJob) bool { return !j.state.Terminal() && j.sl == nil })
	sl, _, err := m.st.Begin(ctx, crawl.Ring{JobRef: j.ref})
	if err != nil {
		t.Fatal(err)
	}
	want := j.let && j.state != crawl.Cancelling && j.queued > 0 && j.rests <= m.now
	if left, open, limited := m.dayLeft(); want && limited && left <= 0 {
		want, j.rests = false, restUntil(m.now, open)
	}
	if (sl != nil) != want {
		t.Fatalf("a slice of %+v began: %v, want %v", j, sl != nil, want)
	}
	if sl != nil {
		j.sl, j.state, j.rests, j.begun = sl, crawl.Running, 0, true
	}
}

func (m *gateModel) lease(ctx context.Context, t *rapid.T) {
	j := m.pick(t, func(j *gateJob) bool { return j.sl != nil && j.state != crawl.Cancelling })
	n := rapid.Int64Range(1, 3).Draw(t, "wanted")
	out, err := m.st.Exchange(ctx, j.sl, Exchange{Lease: int(n), Holding: len(j.items)})
	if err != nil {
		t.Fatal(err)
	}
	want := max(0, min(n, 4-int64(len(j.items))))
	left, open, limited := m.dayLeft()
	switch {
	case j.state != crawl.Running:
		want = 0
	case want > 0 && limited && left <= 0:
		want, j.rests = 0, restUntil(m.now, open)
	case limited:
		want = min(want, max(0, left))
	}
	if want = min(want, j.queued); int64(len(out.Items)) != want {
		t.Fatalf("leased %d, want %d: %+v", len(out.Items), want, j)
	}
	j.queued -= want
	j.items = append(j.items, out.Items...)
}

func (m *gateModel) settle(ctx context.Context, t *rapid.T) {
	j := m.pick(t, func(j *gateJob) bool { return len(j.items) > 0 })
	it := j.items[0]
	u, err := crawl.ParseURL(it.URL)
	if err != nil {
		t.Fatal(err)
	}
	var x Exchange
	outcome := rapid.SampledFrom([]string{"accepted", "accepted", "failed", "back"}).Draw(t, "outcome")
	switch outcome {
	case "accepted":
		page := crawl.Page{SourceURL: it.URL, URL: it.URL, Bytes: 10}
		x.Commits = []Commit{{Item: it, Accepted: &Accepted{Page: page, Final: u.Key()}}}
	case "failed":
		x.Commits = []Commit{{Item: it, Failed: &crawl.Failure{SourceURL: it.URL, ErrorType: "http_404"}}}
	default:
		x.Returns = []Return{{Item: it}}
	}
	out, err := m.st.Exchange(ctx, j.sl, x)
	if err != nil {
		t.Fatal(err)
	}
	j.items = slices.Delete(j.items, 0, 1)
	switch {
	case outcome != "back":
		j.processed++
		m.days.settle(m.now)
	case j.state == crawl.Cancelling:
		j.cancelled++
	default:
		j.queued++
	}
	if outcome == "failed" {
		j.failed++
	}
	if outcome == "accepted" {
		if j.bytes += 10; j.most > 0 && j.bytes >= j.most && j.left() > 0 && j.state != crawl.Cancelling {
			m.windDown(j, crawl.StopByteLimit)
		}
	}
	m.rung(t, "a commit", out.Rings, m.ended(j)...)
}

func (m *gateModel) windDown(j *gateJob, stop crawl.StopReason) {
	j.cancelled, j.queued, j.aside = j.cancelled+j.queued, 0, !j.let
	j.state, j.stop, j.cancelAt = crawl.Cancelling, stop, m.now+modelGrace
}

// ended ends a job that has nothing left, and answers those that begin for it.
func (m *gateModel) ended(j *gateJob) []*gateJob {
	switch {
	case j.state.Terminal() || j.left() > 0:
		return nil
	case j.state == crawl.Cancelling:
		j.state = crawl.Cancelled
	case j.failed > 0:
		j.state, j.stop = crawl.CompletedWithErrors, crawl.StopFrontierEmpty
	default:
		j.state, j.stop = crawl.Completed, crawl.StopFrontierEmpty
	}
	j.sl = nil
	return m.gate()
}

func (m *gateModel) end(ctx context.Context, t *rapid.T) {
	j := m.pick(t, func(j *gateJob) bool { return j.sl != nil })
	rings, err := m.st.End(ctx, j.sl, rapid.SampledFrom([]time.Duration{0, NoRest}).Draw(t, "rest"))
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(len(j.items)); j.state == crawl.Cancelling {
		j.cancelled += n
	} else {
		j.queued += n
	}
	j.items, j.sl = nil, nil
	must := m.ended(j)
	if j.state == crawl.Running && j.rests <= m.now {
		must = append(must, j)
	}
	m.rung(t, "the end of a slice", rings, must...)
}

func (m *gateModel) cancel(ctx context.Context, t *rapid.T) {
	j := m.pick(t, func(j *gateJob) bool { return !j.state.Terminal() && j.state != crawl.Cancelling })
	r, err := m.st.Cancel(ctx, j.ref)
	if err != nil {
		t.Fatal(err)
	}
	m.windDown(j, crawl.StopCancelled)
	must := m.ended(j)
	m.rung(t, "a cancel", r.Rings, must...)
}

func (m *gateModel) sweep(ctx context.Context, t *rapid.T) {
	s, err := m.st.sweep(ctx, []string{m.tenant})
	if err != nil {
		t.Fatal(err)
	}
	var must []*gateJob
	for _, j := range slices.Clone(m.jobs) {
		if j.state == crawl.Paused && m.now >= j.pausedUntil {
			m.windDown(j, crawl.StopTimeLimit)
			must = append(must, m.ended(j)...)
		}
		if j.state == crawl.Cancelling && m.now >= j.cancelAt {
			j.cancelled += int64(len(j.items))
			j.items = nil
			must = append(must, m.ended(j)...)
		}
		if j.runs() && j.rests > 0 && j.rests <= m.now && j.state != crawl.Cancelling {
			// It goes on by itself.
			if j.rests = 0; j.sl == nil && j.queued > 0 {
				must = append(must, j)
			}
		}
	}
	must = append(must, m.gate()...)
	m.rung(t, "a sweep", s.Rings, must...)
}

// pass has time go by, while the workers renew their slices.
func (m *gateModel) pass(ctx context.Context, t *rapid.T) {
	switch rapid.SampledFrom([]string{"a moment", "a moment", "seconds", "to midnight", "over midnight"}).Draw(t, "time") {
	case "a moment":
		m.now += rapid.Int64Range(1, 400).Draw(t, "ms")
	case "seconds":
		m.now += rapid.Int64Range(400, 9000).Draw(t, "ms")
	case "to midnight":
		m.now = max(m.now, (m.now/dayMS+1)*dayMS-rapid.Int64Range(1, 1500).Draw(t, "before"))
	default:
		m.now = (m.now/dayMS+1)*dayMS + rapid.Int64Range(0, 5).Draw(t, "after")
	}
	for _, j := range m.jobs {
		if j.sl == nil {
			continue
		}
		if _, err := m.st.Renew(ctx, j.sl); err != nil {
			t.Fatal(err)
		}
	}
}

// check compares all jobs with what a reader sees.
func (m *gateModel) check(ctx context.Context, t *rapid.T) {
	page, err := m.st.List(ctx, ListQuery{Tenant: m.tenant, Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	type seen struct {
		ID                                   string
		State                                crawl.State
		Stop                                 crawl.StopReason
		Queued, Active, Processed, Cancelled int64
		Bytes, Position                      int64
		Quota                                bool // waits for it
	}
	got, want := []seen{}, []seen{}
	for _, j := range page.Jobs {
		got = append(got, seen{
			j.ID, j.State, j.StopReason, j.Queued, j.Active, j.Processed, j.Cancelled, j.Bytes, j.Position,
			j.WaitingFor == crawl.WaitingTenantQuota,
		})
	}
	position := int64(0)
	for _, j := range m.jobs {
		s := seen{
			ID: j.ref.ID, State: j.state, Queued: j.queued, Active: int64(len(j.items)), Processed: j.processed,
			Cancelled: j.cancelled, Bytes: j.bytes,
		}
		switch {
		case j.state.Terminal():
			s.Stop = j.stop
		case j.aside || j.state == crawl.Cancelling:
		case !j.let:
			position++
			s.Position, s.Quota = position, true
		case j.rests > 0 && len(j.items) == 0:
			s.Quota = true
		}
		want = append([]seen{s}, want...)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("the jobs are not what they must be (-want +got):\n%s", d)
	}
	m.count(ctx, t)
	if n := m.days[m.now/dayMS]; n > 0 {
		kept := m.st.rdb.Get(ctx, fmt.Sprintf("%s:day:%d", rootKey(m.tenant), m.now/dayMS)).Val()
		if kept != fmt.Sprint(n) {
			t.Fatalf("%s pages are counted today, want %d", kept, n)
		}
	}
}

// count compares what an operator sees with the model.
func (m *gateModel) count(ctx context.Context, t *rapid.T) {
	want := newStats(1)
	for _, j := range m.jobs {
		if j.state.Terminal() {
			want.Ended[j.state]++
			continue
		}
		want.Jobs[j.state]++
		want.URLs[crawl.PageQueued] += j.queued
		want.URLs[crawl.PageActive] += int64(len(j.items))
		if j.let && j.state != crawl.Cancelling && j.rests <= m.now {
			want.Due += j.queued
		}
	}
	sameStats(ctx, t, m.st, m.tenant, want)
}

// forget removes all that is kept of the tenant.
func (m *gateModel) forget(t *testing.T) {
	keys, err := m.st.rdb.Keys(t.Context(), rootKey(m.tenant)+"*").Result()
	if err == nil && len(keys) > 0 {
		err = m.st.rdb.Unlink(t.Context(), keys...).Err()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestQuotas drives random submissions, slices and changes of both quotas against the
// model, over midnights, and compares all that a reader sees after every step.
func TestQuotas(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		rapid.Check(t, func(rt *rapid.T) {
			ctx := t.Context()
			m := &gateModel{
				tenant: crawltest.Tenant(t), now: 1_700_000_000_000, tokens: -1, days: modelDay{}, service: drawQuota(rt, "service", 1),
			}
			m.st = New(r.Client, Options{Now: func() int64 { return m.now }})
			// A miniredis looks at every key that it has with each command of a script.
			defer m.forget(t)
			step := func(f func(context.Context, *rapid.T)) func(*rapid.T) {
				return func(rt *rapid.T) { f(ctx, rt) }
			}
			rt.Repeat(map[string]func(*rapid.T){
				"":        step(m.check),
				"submit":  step(m.submit),
				"submit2": step(m.submit),
				"begin":   step(m.begin),
				"begin2":  step(m.begin),
				"lease":   step(m.lease),
				"lease2":  step(m.lease),
				"settle":  step(m.settle),
				"settle2": step(m.settle),
				"end":     step(m.end),
				"cancel": func(rt *rapid.T) {
					if rapid.IntRange(0, 2).Draw(rt, "seldom") == 0 {
						m.cancel(ctx, rt)
					}
				},
				"sweep":   step(m.sweep),
				"pause":   step(m.pause),
				"resume":  step(m.goOn),
				"resume2": step(m.goOn),
				"time":    step(m.pass),
				"own":     step(m.setQuota),
				"service": func(rt *rapid.T) { m.service = drawQuota(rt, "service", 1) },
			})
		})
	})
}
