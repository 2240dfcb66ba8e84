package watch

import (
	"testing"
	"time"

	"example.com/trawl/pkg/client"
)

func TestRateIsOfTheLastTenSeconds(t *testing.T) {
	t.Parallel()
	type at struct {
		after time.Duration
		n     int64
	}
	const s = time.Second
	for _, c := range []struct {
		name    string
		seen    []at
		now     time.Duration
		want    float64
		unknown bool
	}{
		{name: "nothing", unknown: true},
		{name: "one status", seen: []at{{0, 5000}}, now: 20 * s, unknown: true},
		{name: "a moment", seen: []at{{0, 0}, {time.Millisecond, 64}}, now: time.Millisecond, unknown: true},
		{name: "no page yet", seen: []at{{0, 0}, {5 * s, 0}}, now: 5 * s, unknown: true},
		{name: "two seconds", seen: []at{{0, 100}, {2 * s, 108}}, now: 2 * s, want: 4},
		{name: "a window", seen: []at{{0, 0}, {5 * s, 100}, {10 * s, 110}, {15 * s, 120}}, now: 15 * s, want: 2},
		{name: "stands still", seen: []at{{0, 0}, {s, 10}, {20 * s, 10}, {30 * s, 10}}, now: 30 * s, want: 0},
		{name: "goes back", seen: []at{{0, 100}, {2 * s, 10}}, now: 20 * s, unknown: true},
		{name: "no time", seen: []at{{0, 1}, {0, 2}}, unknown: true},
		{name: "clock goes back", seen: []at{{5 * s, 1}, {0, 2}}, unknown: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var m meter
			for _, x := range c.seen {
				m.add(begin.Add(x.after), x.n)
			}
			got, ok := m.rate(begin.Add(c.now))
			if ok == c.unknown || got != c.want {
				t.Errorf("%v, known %t; wanted %v", got, ok, c.want)
			}
		})
	}
}

// However often it is asked, a meter keeps a bounded number of samples.
func TestMeterIsBounded(t *testing.T) {
	t.Parallel()
	var m meter
	for i := range 100_000 {
		m.add(begin.Add(time.Duration(i)*time.Millisecond), int64(i))
	}
	if most := int(rateOver/rateStep) + 2; len(m.kept) > most {
		t.Errorf("%d samples, wanted at most %d", len(m.kept), most)
	}
	if got, _ := m.rate(begin.Add(99_999 * time.Millisecond)); got < 999 || got > 1001 {
		t.Errorf("%v pages/s, wanted 1000", got)
	}
}

// The time in line is no part of the speed, and the clock begins with the job.
func TestTimeInLineDoesNotCount(t *testing.T) {
	t.Parallel()
	m := &model{}
	m.update(&client.Job{State: client.Queued, Total: 1}, begin)
	j := client.Job{State: client.Running, Total: 50, StartedAt: begin.Add(time.Hour)} // by a clock that is ahead
	m.update(&j, begin.Add(60*time.Second))
	j.Processed = 20
	m.update(&j, begin.Add(64*time.Second))
	s := m.snapshot(begin.Add(64 * time.Second))
	if s.rate != 5 || s.elapsed != 4*time.Second {
		t.Errorf("%v pages/s in %v, wanted 5 in 4s", s.rate, s.elapsed)
	}
}

// A job that ran before it was watched has run since it began.
func TestTimeBeforeTheFirstStatusCounts(t *testing.T) {
	t.Parallel()
	m := &model{}
	m.update(&client.Job{State: client.Running, Total: 50, Processed: 20, StartedAt: begin}, begin.Add(time.Minute))
	s := m.snapshot(begin.Add(61 * time.Second))
	if s.elapsed != 61*time.Second || s.rated {
		t.Errorf("%v, rate known %t; wanted 1m1s without a rate", s.elapsed, s.rated)
	}
}

// A wait that comes and goes is shown until it has been away for a while.
func TestBriefWaitsAreHeld(t *testing.T) {
	t.Parallel()
	m := &model{}
	wait := func(after time.Duration, waiting string) string {
		m.update(&client.Job{State: client.Running, Total: 1, WaitingFor: waiting}, begin.Add(after))
		return m.snapshot(begin.Add(after)).wait.long
	}
	const held = "waits for its host"
	for _, c := range []struct {
		after         time.Duration
		waiting, want string
	}{
		{0, "", ""},
		{time.Second, "host_delay", held},
		{2 * time.Second, "", held},
		{3*time.Second - time.Millisecond, "", held},
		{3 * time.Second, "", ""},
		{4 * time.Second, "host_delay", held},
		{5 * time.Second, "worker", ""}, // as every job at first
		{7*time.Second - time.Millisecond, "worker", ""},
		{7 * time.Second, "worker", "waits for a worker: none is running or all are busy"},
	} {
		if got := wait(c.after, c.waiting); got != c.want {
			t.Errorf("after %v, waiting for %q: %q, wanted %q", c.after, c.waiting, got, c.want)
		}
	}
}

// While a site of 80 pages is discovered from page to page, the bar goes back no further
// than it must, and it ends at the truth.
func TestBarGoesBackLittle(t *testing.T) {
	t.Parallel()
	job := func(processed, total int64) snapshot {
		j := client.Job{
			State: client.Running, Total: total, Processed: processed,
			Spec: &client.Spec{SeedURL: "https://a.example", MaxPages: 100},
		}
		s := snapshot{processed: processed, total: total}
		s.expected, s.grows = expected(&j)
		return s
	}
	back, plainBack, last, plainLast := 0.0, 0.0, 0.0, 0.0
	for processed := range int64(81) {
		total := min(80, 1+3*processed)
		s := job(processed, total)
		back, last = max(back, last-done(s)), done(s)
		plain := float64(processed) / float64(total)
		plainBack, plainLast = max(plainBack, plainLast-plain), plain
	}
	if last != 1 || back > 0.01 {
		t.Errorf("ends at %v, went back by %v (without a guess %v)", last, back, plainBack)
	}
	if s := job(100, 100); s.grows || done(s) != 1 {
		t.Error("the page limit is reached and more is expected")
	}
	if s := job(99, 99); !s.grows || s.expected != 99 {
		t.Errorf("grows %t to %v, wanted 99: nothing waits", s.grows, s.expected)
	}
}
