package store

import (
	"context"
	"errors"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
)

// modelPause is what the model of a job knows of pauses and of the run gate, at which a job of the
// same tenant may stand before it.
type modelPause struct {
	let, stands, begun bool
	pausedUntil        int64
	timeLeft           int64
	other              *crawl.JobRef
	others             int64 // that were ever submitted, and have ended
	greatest           int64 // token of a slice
}

// service is what the service grants the tenant.
func (m *model) service() crawl.Quota { return crawl.Quota{MaxRunning: 1, PagesPerDay: m.granted} }

// token checks that no two slices ever have the same, and that of a new one is not below the time,
// so that it is above all that were given before a counter went back.
func (m *model) token(t *rapid.T, gen int64) {
	if gen <= m.greatest || gen < m.now {
		t.Fatalf("token %d at %d, after %d", gen, m.now, m.greatest)
	}
	m.greatest = gen
}

func (m *model) pause(ctx context.Context, t *rapid.T) {
	if rapid.Bool().Draw(t, "seldom") {
		return
	}
	state, _, err := m.st.Pause(ctx, m.job)
	if m.refuses(t, err) {
		return
	}
	if m.state != crawl.Paused {
		m.state, m.pausedUntil = crawl.Paused, m.now+crawl.MaxPause.Milliseconds()
		if m.deadline > 0 {
			m.timeLeft, m.deadline = max(0, m.deadline-m.now), 0
		}
		m.let, m.stands, m.restsUntil = false, false, 0 // of the day, which may have pages by then
	}
	if err != nil || state != crawl.Paused {
		t.Fatalf("paused: %s, %v", state, err)
	}
	m.lands(ctx, t)
}

// lands has a page come in that was in flight when the job was paused.
func (m *model) lands(ctx context.Context, t *rapid.T) {
	for _, gen := range slices.Sorted(maps.Keys(m.slices)) {
		s := m.slices[gen]
		for _, n := range slices.Sorted(maps.Keys(s.items)) {
			m.settle(ctx, t, s, s.items[n])
			return
		}
	}
}

// refuses checks the answer to a pause or resume of a job that is cancelling or has ended.
func (m *model) refuses(t *rapid.T, err error) bool {
	wrong := m.state == crawl.Cancelling || m.state.Terminal()
	if wrong != (crawl.CodeOf(err) == crawl.CodeWrongState) {
		t.Fatalf("a job that is %s answers %v", m.state, err)
	}
	return wrong
}

func (m *model) resume(ctx context.Context, t *rapid.T) {
	state, rings, err := m.st.Resume(ctx, m.job)
	if m.refuses(t, err) {
		return
	}
	if m.state == crawl.Paused {
		m.state, m.pausedUntil, m.stands = crawl.Queued, 0, true
		m.gate()
		if (len(rings) == 1 && rings[0].JobRef == m.job) != m.let {
			t.Fatalf("rings %v of a job that was let in: %v", rings, m.let)
		}
	} else if len(rings) > 0 {
		t.Fatalf("rings %v", rings)
	}
	if err != nil || state != m.state {
		t.Fatalf("resumed: %s, %v, want %s", state, err, m.state)
	}
}

// gate lets the job in if no other has its place.
func (m *model) gate() {
	if !m.stands || m.other != nil {
		return
	}
	m.stands, m.let = false, true
	if m.begun {
		m.state = crawl.Running
		if m.timeLeft > 0 || m.plan.TimeLimit > 0 {
			m.deadline, m.timeLeft = m.now+m.timeLeft, 0
		}
	}
}

// crowd has another job of the tenant take the place at the gate while this one is paused, or
// removes it again, upon which this one goes on.
func (m *model) crowd(ctx context.Context, t *rapid.T) {
	if m.other != nil {
		if _, err := m.st.Cancel(ctx, *m.other); err != nil {
			t.Fatal(err)
		}
		m.other, m.others = nil, m.others+1
		m.gate()
		return
	}
	if m.state != crawl.Paused {
		t.Skip("the place is taken")
	}
	n := newJob(m.job.Tenant, "")
	n.Plan.Retention, n.Quota = m.plan.Retention, m.service()
	n.Inputs = []crawl.Input{{URL: url(t, 0)}}
	_, err := m.st.Create(ctx, n)
	switch {
	case m.dayLimit() > 0 && m.dayLimit() <= m.settled[m.now/dayMS]:
		if crawl.CodeOf(err) != crawl.CodeQuotaExceeded {
			t.Fatalf("with the day used up: %v", err)
		}
	case err != nil:
		t.Fatal(err)
	default:
		m.other = &n.Job
	}
}

func (m *gateModel) pause(ctx context.Context, t *rapid.T) {
	j := m.pick(t, func(j *gateJob) bool { return !j.state.Terminal() })
	state, rings, err := m.st.Pause(ctx, j.ref)
	if j.state == crawl.Cancelling {
		if crawl.CodeOf(err) != crawl.CodeWrongState {
			t.Fatalf("a job that is cancelling is paused: %v", err)
		}
		return
	}
	if err != nil || state != crawl.Paused {
		t.Fatalf("paused: %s, %v", state, err)
	}
	if j.state == crawl.Paused {
		m.rung(t, "a second pause", rings)
		return
	}
	j.state, j.let, j.aside, j.rests = crawl.Paused, false, true, 0
	j.pausedUntil = m.now + crawl.MaxPause.Milliseconds()
	m.rung(t, "a pause", rings, m.gate()...)
}

func (m *gateModel) goOn(ctx context.Context, t *rapid.T) {
	j := m.pick(t, func(j *gateJob) bool { return j.state == crawl.Paused })
	state, rings, err := m.st.Resume(ctx, j.ref)
	j.state, j.aside = crawl.Queued, false
	must := m.gate()
	if err != nil || state != j.state {
		t.Fatalf("resumed: %s, %v, want %s", state, err, j.state)
	}
	m.rung(t, "a resume", rings, must...)
}

// older has a process look at the job that does not know its format: nothing of it changes, and no
// slice begins.
func (m *model) older(ctx context.Context, t *rapid.T) {
	format := func(n int) {
		if err := m.st.rdb.HSet(ctx, jobKey(m.job), "format", n).Err(); err != nil {
			t.Fatal(err)
		}
	}
	format(2)
	sl, rings, err := m.st.Begin(ctx, crawl.Ring{JobRef: m.job})
	wants := m.let && (m.state == crawl.Queued || m.state == crawl.Running)
	if sl != nil || len(rings) > 0 || errors.Is(err, ErrNewer) != wants {
		t.Fatalf("began %v, %v, %v of a newer job that is %s", sl, rings, err, m.state)
	}
	if s, err := m.st.sweep(ctx, []string{m.job.Tenant}); err != nil || s.Dead+s.Back+s.Expired+s.Lost > 0 {
		t.Fatalf("swept %+v, %v", s, err)
	}
	format(1)
}
