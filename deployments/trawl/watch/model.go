package watch

import (
	"net/url"
	"strconv"
	"sync"
	"time"

	"example.com/trawl/pkg/client"
)

// briefWait is how long a wait for a host or a retry is still shown after it was last seen.
// A polite crawl enters and leaves it several times a second, which nobody can read and
// which would fill a log.
const briefWait = 2 * time.Second

// What the service says of a job that no worker has taken, and of one whose sites are to
// say first what may be crawled.
const (
	waitsForWorker = "worker"
	waitsForRobots = "robots"
)

// isInitial reports whether every job waits so for a moment when it begins, which is not worth a word.
func isInitial(wait string) bool { return wait == waitsForWorker || wait == waitsForRobots }

// model is what is known of the job that is shown.
type model struct {
	mu      sync.Mutex
	job     client.Job
	known   bool // a status has come
	name    string
	meter   meter
	started time.Time // by our own clock; zero before the job began
	held    string    // a brief wait that was seen lately
	heldAt  time.Time
	idle    time.Time // since when it waits for what every job waits for a moment; zero while it does not

	silence time.Duration // see Options.Silence
	at      time.Time     // when the last status came
}

// snapshot is all that is drawn, at one moment. Its text is clean and its counts are not negative.
type snapshot struct {
	name  string // of the job, for a person: a host
	state client.State
	words words // of the state
	wait  hint  // why it makes no progress, or what else is to be said about the state

	processed, total                                               int64
	accepted, failed, skipped, queued, active, deferred, cancelled int64

	expected float64 // URLs that the job is likely to admit, at least 1
	grows    bool    // whether more may be admitted
	rate     float64 // pages a second
	rated    bool    // whether rate is known
	begun    bool    // whether elapsed means something
	elapsed  time.Duration
	silent   time.Duration // since the last status; 0 while they come
}

// seen reports whether there is anything to show.
func (m *model) seen() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known
}

// update takes a status that came at now.
func (m *model) update(job *client.Job, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin(job, now)
	if m.name == "" || job.Spec != nil && m.job.Spec == nil {
		m.name = jobName(job)
	}
	if isBrief(job.WaitingFor) {
		m.held, m.heldAt = job.WaitingFor, now
	}
	switch {
	case !isInitial(job.WaitingFor):
		m.idle = time.Time{}
	case m.idle.IsZero() || job.WaitingFor != m.job.WaitingFor:
		m.idle = now
	}
	m.meter.add(now, max(job.Processed, 0))
	m.job, m.known, m.at = *job, true, now
}

// begin notes when the job began by our own clock, which may be hours away from that of the
// service: that one counts only where the beginning was not seen.
func (m *model) begin(job *client.Job, now time.Time) {
	if !m.started.IsZero() || job.StartedAt.IsZero() && job.State != client.Running {
		return
	}
	m.started = now
	m.meter = meter{} // the time in line is no part of the speed
	if !m.known && !job.StartedAt.IsZero() && job.StartedAt.Before(now) {
		m.started = job.StartedAt
	}
}

// snapshot returns what there is to draw at now.
func (m *model) snapshot(now time.Time) snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.job
	s := snapshot{
		name: m.name, state: j.State, words: stateWords(&j),
		processed: max(j.Processed, 0), total: max(j.Total, 0),
		accepted: max(j.Accepted, 0), failed: max(j.Failed, 0), skipped: max(j.Skipped, 0),
		queued: max(j.Queued, 0), active: max(j.Active, 0), deferred: max(j.Deferred, 0),
		cancelled: max(j.Cancelled, 0),
	}
	s.expected, s.grows = expected(&j)
	s.wait = m.hint(now)
	s.begun = !m.started.IsZero()
	if s.begun {
		s.elapsed = max(now.Sub(m.started), 0)
	}
	s.rate, s.rated = m.meter.rate(now)
	switch silent := now.Sub(m.at); {
	case j.State.Terminal():
		s.finish(&j)
	case m.silence > 0 && silent >= m.silence:
		s.silent = silent
	}
	return s
}

// finish replaces what is measured by what the service says of an ended job: its time and
// the pages a second over all of it.
func (s *snapshot) finish(j *client.Job) {
	s.elapsed, s.begun = took(j)
	s.rated = s.begun && s.elapsed >= rateAfter && s.processed > 0
	if s.rated {
		s.rate = float64(s.processed) / s.elapsed.Seconds()
	}
}

// took returns how long a job ran, and false where that is not known.
func took(j *client.Job) (time.Duration, bool) {
	if j.StartedAt.IsZero() || j.EndedAt.IsZero() || j.EndedAt.Before(j.StartedAt) {
		return 0, false
	}
	return j.EndedAt.Sub(j.StartedAt), true
}

// hint returns what is said behind the state of the job. m.mu is held.
func (m *model) hint(now time.Time) hint {
	j := m.job
	if j.State == client.Running && j.WaitingFor == "" && now.Sub(m.heldAt) < briefWait {
		j.WaitingFor = m.held
	}
	if isInitial(j.WaitingFor) && now.Sub(m.idle) < briefWait {
		j.WaitingFor = ""
	}
	return hintOf(&j)
}

// expected guesses how many URLs the job will admit, at least 1, and reports whether more
// may be admitted than there are. While links are found each page that still waits is
// expected to bring one more, up to the page limit: without a guess the bar of a site is
// nearly full after its first pages and goes back with each one that has links. The guess
// ends at the truth, because nothing waits in the end.
func expected(j *client.Job) (float64, bool) {
	total := float64(max(j.Total, 1))
	if j.State.Terminal() || j.State == client.Cancelling || j.Spec != nil && len(j.Spec.URLs) > 0 {
		return total, false
	}
	guess := total + max(total-float64(max(j.Processed, 0)), 0)
	if j.Spec == nil || j.Spec.MaxPages <= 0 {
		return guess, true
	}
	limit := float64(j.Spec.MaxPages)
	if total >= limit {
		return total, false
	}
	return min(guess, limit), true
}

// jobName returns what a person calls the job: the host it is about, and how many more.
func jobName(j *client.Job) string {
	if j.Spec == nil {
		return Clean(j.ID)
	}
	urls := append(append([]string(nil), j.Spec.URLs...), j.Spec.Seeds...)
	if j.Spec.SeedURL != "" {
		urls = append(urls, j.Spec.SeedURL)
	}
	hosts := map[string]bool{}
	first := ""
	for _, u := range urls {
		host := hostOf(u)
		if first == "" {
			first = host
		}
		hosts[host] = true
	}
	switch {
	case first == "":
		return Clean(j.ID)
	case len(hosts) > 1:
		return Clean(first) + " +" + strconv.Itoa(len(hosts)-1)
	default:
		return Clean(first)
	}
}

// hostOf returns the host of a URL with its port, or the URL where it has none.
func hostOf(raw string) string {
	if u, err := url.Parse(raw); err == nil && u.Host != "" {
		return u.Host
	}
	return raw
}

// rateOver is the time that a rate is of, rateAfter the least: what came in a moment says
// nothing about a second.
const (
	rateOver  = 10 * time.Second
	rateAfter = time.Second
	rateStep  = 250 * time.Millisecond // between two samples that are kept
)

// meter measures pages a second over the last [rateOver].
type meter struct {
	kept  []sample // oldest first
	last  sample
	moved bool // whether a page was processed since the first sample
}

// sample is how many pages were processed at a moment.
type sample struct {
	at time.Time
	n  int64
}

// add notes that n pages are processed at now.
func (m *meter) add(now time.Time, n int64) {
	if len(m.kept) > 0 && n < m.last.n {
		*m = meter{} // another job, or nonsense: begin again
	}
	m.moved = m.moved || len(m.kept) > 0 && n > m.last.n
	m.last = sample{now, n}
	if len(m.kept) == 0 || now.Sub(m.kept[len(m.kept)-1].at) >= rateStep {
		m.kept = append(m.kept, m.last)
	}
	// The newest sample that is out of the window stays: it says what there was at its edge.
	for len(m.kept) > 1 && now.Sub(m.kept[1].at) >= rateOver {
		m.kept = m.kept[1:]
	}
}

// rate returns the pages a second as seen at now, and false while too little was seen.
func (m *meter) rate(now time.Time) (float64, bool) {
	if !m.moved {
		return 0, false
	}
	span := now.Sub(m.kept[0].at)
	if span < rateAfter {
		return 0, false
	}
	return float64(m.last.n-m.kept[0].n) / span.Seconds(), true
}
