package check

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"example.com/trawl/pkg/crawl"
)

// The kinds that [Load.Do] knows.
const (
	KindCancel      = "cancel"
	KindPause       = "pause"
	KindResume      = "resume"
	KindRetryFailed = "retry-failed"
	KindResubmit    = "resubmit"
)

// Kinds are all of them.
var Kinds = []string{KindCancel, KindPause, KindResume, KindRetryFailed, KindResubmit}

// quietTime bounds the wait for a moment without faults.
const quietTime = 10 * time.Second

// Do makes one call of a kind of [Kinds] on a job that it suits, drawn by rng, and repeats it until
// it is answered, beside its caller. It answers false when no job suits now, or Run is not at work.
func (l *Load) Do(kind string, rng *rand.Rand) (done bool) {
	var f func(ctx context.Context)
	switch kind {
	case KindCancel:
		do := l.cancel
		if rng.IntN(2) == 0 {
			do = l.cancelQuietly
		}
		f = l.control(rng, do, crawl.Queued, crawl.Running, crawl.Paused)
	case KindPause:
		f = l.control(rng, l.pause, crawl.Queued, crawl.Running)
	case KindResume:
		if f = l.control(rng, l.resume, crawl.Paused); f == nil {
			f = l.control(rng, l.pauseAndResume, crawl.Queued, crawl.Running)
		}
	case KindRetryFailed:
		f = l.retry(rng)
	case KindResubmit:
		f = l.resubmit(rng)
	}
	if f == nil || !l.start(f) {
		return false
	}
	l.count(func(n *figures) { n.controls[kind]++ })
	return true
}

// control is a call on a job in one of the given states, on which no other is on its way; nil for none.
func (l *Load) control(
	rng *rand.Rand, do func(context.Context, *job), states ...crawl.State,
) func(ctx context.Context) {
	suits := slices.DeleteFunc(l.live(), func(j *job) bool {
		return !slices.Contains(states, j.state()) || j.busy.Load()
	})
	if len(suits) == 0 {
		return nil
	}
	j := suits[rng.IntN(len(suits))]
	return func(ctx context.Context) {
		if j.busy.CompareAndSwap(false, true) {
			defer j.busy.Store(false)
			do(ctx, j)
		}
	}
}

// at is a call on a job.
func (j *job) at(verb string) *call {
	return &call{tenant: j.tenant, method: http.MethodPost, path: "/v1/jobs/" + j.name() + "/" + verb}
}

// answered judges the answer of a call that changes the state: it is the status, or wrong_state.
func (l *Load) answered(j *job, kind string, a *answer, states ...crawl.State) {
	if a.status == http.StatusConflict && a.code == string(crawl.CodeWrongState) {
		return
	}
	s, err := decodeStatus(a.body)
	if a.status != http.StatusOK || err != nil {
		l.violate(j, kind+" fails", "%s", a)
		return
	}
	if slices.Contains(states, s.State) {
		l.count(func(f *figures) { f.effective[kind]++ })
	} else if !s.State.Terminal() {
		l.violate(j, kind+" leaves another state", "%s", s.State)
	}
	var alone observer
	l.tell(j, " (answer of "+kind+")", alone.see(s, 0, 0))
}

// cancelQuietly waits a while for a moment without faults, in which the bound of a cancel is a
// promise, and then cancels the job all the same, if it has not ended.
func (l *Load) cancelQuietly(ctx context.Context, j *job) {
	for begun := time.Now(); !l.o.Quiet() && !j.ended() && time.Since(begun) < quietTime; {
		if !wait(ctx, 20*time.Millisecond) {
			return
		}
	}
	l.cancel(ctx, j)
}

// cancel cancels a job and measures until a look into Redis shows that it has ended.
func (l *Load) cancel(ctx context.Context, j *job) {
	j.change(func() { j.cancelled = true })
	begun := time.Now()
	over := make(chan struct{})
	quiet := l.o.Quiet()
	go func() {
		defer close(over)
		if a, _, err := l.until(ctx, j.at(KindCancel)); err == nil {
			l.answered(j, KindCancel, a, crawl.Cancelled, crawl.Cancelling)
		}
	}()
	defer func() { <-over }()
	for wait(ctx, 50*time.Millisecond) {
		s := l.look(ctx, j)
		// Redis that does not answer is a fault, whoever says that all is quiet.
		quiet = quiet && s != nil && l.o.Quiet()
		if s != nil && s.State.Terminal() {
			l.tookToCancel(j, time.Since(begun), quiet)
			return
		}
	}
}

func (l *Load) tookToCancel(j *job, took time.Duration, quiet bool) {
	l.count(func(f *figures) {
		if quiet {
			f.cancels++
			f.longestCancel = max(f.longestCancel, took)
		} else {
			f.faultyCancels++
			f.longestFaulty = max(f.longestFaulty, took)
		}
	})
	if quiet && took > cancelBound+slack {
		l.violate(j, "cancel takes too long", "%v, at most %v and %v of the look", took, cancelBound, slack)
	}
}

// pause pauses a job; the minder resumes it.
func (l *Load) pause(ctx context.Context, j *job) {
	j.change(func() { j.resumeAt = time.Time{} })
	begun, quiet := time.Now(), l.o.Quiet()
	a, _, err := l.until(ctx, j.at(KindPause))
	if err != nil {
		return
	}
	took := time.Since(begun)
	quiet = quiet && l.o.Quiet()
	l.count(func(f *figures) {
		if quiet {
			f.longestPause = max(f.longestPause, took)
		} else {
			f.longestPauseBad = max(f.longestPauseBad, took)
		}
	})
	if quiet && took > pauseBound+slack {
		l.violate(j, "pause takes too long", "%v, at most %v and %v of the call", took, pauseBound, slack)
	}
	l.answered(j, KindPause, a, crawl.Paused)
}

// pauseAndResume is a resume where no job is paused just now.
func (l *Load) pauseAndResume(ctx context.Context, j *job) {
	l.pause(ctx, j)
	l.resume(ctx, j)
}

func (l *Load) resume(ctx context.Context, j *job) {
	j.epoch.Add(1)
	defer j.epoch.Add(1)
	a, tries, err := l.until(ctx, j.at(KindResume))
	j.change(func() {
		j.resumeAt = time.Time{}
		j.fuzzy = j.fuzzy || tries > 1 || err != nil
	})
	if err == nil {
		l.answered(j, KindResume, a, crawl.Running, crawl.Queued, crawl.Cancelling)
	}
}

// retry submits the failed pages of an ended job anew; nil when no job has any.
func (l *Load) retry(rng *rand.Rand) func(ctx context.Context) {
	l.mu.Lock()
	retried := map[*job]bool{}
	for _, j := range slices.Concat(l.jobs, l.unanswered) {
		if j.retryOf != nil {
			retried[j.retryOf] = true
		}
	}
	l.mu.Unlock()
	suits := slices.DeleteFunc(l.all(), func(j *job) bool {
		s := j.status()
		return s == nil || !s.State.Terminal() || s.Failed == 0 || retried[j] && rng.IntN(4) > 0
	})
	if len(suits) == 0 {
		return nil
	}
	old := suits[rng.IntN(len(suits))]
	j := &job{
		tenant: old.tenant, key: fmt.Sprintf("retry-%s-%d", old.name(), rng.Uint32()), kind: KindRetryFailed,
		path: old.at(KindRetryFailed).path, retryOf: old, collection: old.collection,
	}
	return func(ctx context.Context) {
		l.submit(ctx, j)
		if j.name() != "of key "+j.key {
			l.count(func(f *figures) { f.effective[KindRetryFailed]++ })
		}
	}
}

// resubmit sends the submission of a job once more, which must answer that job, or now and then
// another with its key, which must be refused.
func (l *Load) resubmit(rng *rand.Rand) func(ctx context.Context) {
	jobs := l.all()
	if len(jobs) == 0 {
		return nil
	}
	j := jobs[rng.IntN(len(jobs))]
	other := j.retryOf == nil && rng.IntN(4) == 0
	return func(ctx context.Context) {
		if other {
			l.reuse(ctx, j)
		} else {
			l.replay(ctx, j)
		}
		l.count(func(f *figures) { f.effective[KindResubmit]++ })
	}
}

// replay sends a submission again that was answered before.
func (l *Load) replay(ctx context.Context, j *job) {
	a, _, err := l.until(ctx, &call{tenant: j.tenant, method: http.MethodPost, path: j.path, key: j.key, body: j.body})
	if err != nil {
		return
	}
	s, err := decodeStatus(a.body)
	if a.status != http.StatusAccepted || err != nil {
		l.violate(j, "a key that was answered is refused", "%s", a)
		return
	}
	if s.ID != j.name() {
		l.violate(j, "a key names another job", "%s, was %s", s.ID, j.name())
	}
	if !a.replayed {
		l.violate(j, "a replay is not told", "key %s is answered as a new one", j.key)
	}
	l.count(func(f *figures) { f.replays++ })
}

// reuse sends another input with the key of a job.
func (l *Load) reuse(ctx context.Context, j *job) {
	body := bytes.Replace(j.body, []byte("{"), []byte(`{"tags":["another"],`), 1)
	a, _, err := l.until(ctx, &call{tenant: j.tenant, method: http.MethodPost, path: j.path, key: j.key, body: body})
	if err != nil {
		return
	}
	refused := a.status == http.StatusConflict && a.code == string(crawl.CodeKeyReused)
	if !refused || !bytes.Contains(a.body, []byte(j.name())) {
		l.violate(j, "a key takes another input", "%s", a)
	}
}
