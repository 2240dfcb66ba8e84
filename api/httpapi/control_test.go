package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/trawl/pkg/crawl"
)

// nextRing is that of a job which may start because another one does not go on.
var nextRing = crawl.Ring{JobRef: crawl.JobRef{Tenant: "a", ID: crawl.NewJobID("a", "next")}}

// after returns when d is over, in the time of a bubble.
func after(d time.Duration) { <-time.NewTimer(d).C }

// A pause is answered within 5 s: when nothing is in flight any more, when the job is not paused
// any more, or after 4 s with what is still in flight, however slow the store was.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		from   crawl.State
		active int64
		until  time.Duration // that much is in flight; 0 for ever
		then   crawl.State   // what the job is from then on
		slow   time.Duration // that the store takes for the pause
		want   crawl.State
		left   int64
		took   time.Duration
	}{
		{name: "nothing in flight", from: crawl.Running, want: crawl.Paused},
		{name: "queued", from: crawl.Queued, want: crawl.Paused},
		{name: "paused before", from: crawl.Paused, want: crawl.Paused},
		{
			name: "in flight", from: crawl.Running, active: 3, until: 250 * time.Millisecond, then: crawl.Paused, want: crawl.Paused,
			took: 300 * time.Millisecond,
		},
		{name: "in flight for long", from: crawl.Running, active: 3, want: crawl.Paused, left: 3, took: 4 * time.Second},
		{
			name: "ends meanwhile", from: crawl.Running, active: 1, until: time.Second, then: crawl.Completed, want: crawl.Completed,
			took: time.Second,
		},
		{
			name: "resumed meanwhile", from: crawl.Running, active: 2, until: time.Second, then: crawl.Running, want: crawl.Running, left: 2,
			took: time.Second,
		},
		{
			name: "slow store", from: crawl.Running, active: 3, slow: 3 * time.Second, want: crawl.Paused, left: 3, took: 4 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				ref := b.add("a", tt.from)
				begin := time.Now()
				b.pause = func(_ crawl.JobRef, j *crawl.Job) ([]crawl.Ring, error) {
					if tt.slow > 0 {
						after(tt.slow)
					}
					j.Active = tt.active
					return []crawl.Ring{nextRing}, nil
				}
				b.read = func(_ crawl.JobRef, j *crawl.Job) {
					if tt.until > 0 && time.Since(begin) >= tt.until {
						if j.State = tt.then; j.State != crawl.Running {
							j.Active = 0
						}
					}
				}
				var got status
				b.call("POST", "/v1/jobs/"+ref.ID+"/pause", "").decode(t, 200, &got)
				if got.State != tt.want || got.Active != tt.left {
					t.Errorf("%s with %d in flight, want %s with %d", got.State, got.Active, tt.want, tt.left)
				}
				if took := time.Since(begin).Round(cancelPoll); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				if len(b.rings) != 1 || b.rings[0] != nextRing {
					t.Errorf("rang %v", b.rings)
				}
			})
		})
	}
}

// A client that hangs up changes nothing: neither while the store pauses or resumes the job, after
// which it is rung for what that decided, nor in the wait for what is in flight.
func TestControlOutlivesItsClient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, call string
		slow       time.Duration // that the store takes
		took       time.Duration
		want       crawl.State
	}{
		{"in the wait", "pause", 0, time.Second, crawl.Paused},
		{"in the store", "pause", 2 * time.Second, 2 * time.Second, crawl.Paused},
		{"of a resume", "resume", 2 * time.Second, 2 * time.Second, crawl.Running},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				ref := b.add("a", crawl.Running)
				change := func(_ crawl.JobRef, j *crawl.Job) ([]crawl.Ring, error) {
					if tt.slow > 0 {
						after(tt.slow)
					}
					j.Active = 1
					return []crawl.Ring{nextRing}, nil
				}
				b.pause, b.resume = change, change
				ctx, hangUp := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, hangUp)
				begin := time.Now()
				b.call("POST", "/v1/jobs/"+ref.ID+"/"+tt.call, "", func(r *http.Request) { *r = *r.WithContext(ctx) })
				if took := time.Since(begin); took != tt.took {
					t.Errorf("it went on for %v, want %v", took, tt.took)
				}
				if j := b.jobs[ref]; j.State != tt.want || len(b.rings) != 1 || b.rings[0] != nextRing {
					t.Errorf("the job is %s, rung %v", j.State, b.rings)
				}
				if logs := b.logs.String(); !strings.Contains(logs, `"status":499`) || strings.Contains(logs, `"level":"ERROR"`) {
					t.Errorf("logged: %s", logs)
				}
			})
		})
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := b.add("a", crawl.Paused)
	b.resume = func(_ crawl.JobRef, j *crawl.Job) ([]crawl.Ring, error) {
		j.State, j.Active = crawl.Queued, 5 // which is waited for by nobody
		return []crawl.Ring{{JobRef: ref, N: 3}}, nil
	}
	b.ringErr = errBroken
	var got status
	b.call("POST", "/v1/jobs/"+ref.ID+"/resume", "").decode(t, 200, &got)
	if got.State != crawl.Queued || len(b.rings) != 1 || b.rings[0].N != 3 {
		t.Errorf("%+v, rung %v", got, b.rings)
	}
	if len(b.failed) != 1 || b.failed[0] != ref {
		t.Errorf("the store is not told that the ring failed: %v", b.failed)
	}
}

// What cannot be paused or resumed says so.
func TestControlRefused(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"pause", "resume"} {
		b := newBench(t)
		for _, state := range []crawl.State{crawl.Completed, crawl.Failed, crawl.Cancelling} {
			ref := b.add("a", state)
			p := b.call("POST", "/v1/jobs/"+ref.ID+"/"+call, "").wantProblem(t, 409, crawl.CodeWrongState)
			if !strings.Contains(p.Detail, string(state)) {
				t.Errorf("%s of a job that is %s: %s", call, state, p.Detail)
			}
		}
		ref := b.add("a", crawl.Running)
		for code, status := range map[crawl.Code]int{crawl.CodeExpired: 410, crawl.CodeUnavailable: 503, crawl.CodeInternal: 500} {
			b.err = &crawl.Fault{Code: code, Message: "The store's words."}
			b.call("POST", "/v1/jobs/"+ref.ID+"/"+call, "").wantProblem(t, status, code)
		}
		if len(b.rings) != 0 {
			t.Errorf("rung %v", b.rings)
		}
		// The status that is waited for may fail as any other.
		b.err = nil
		b.pause = func(crawl.JobRef, *crawl.Job) ([]crawl.Ring, error) {
			b.err = &crawl.Fault{Code: crawl.CodeUnavailable, Message: "The store's words."}
			return nil, nil
		}
		b.resume = b.pause
		b.call("POST", "/v1/jobs/"+ref.ID+"/"+call, "").wantProblem(t, 503, crawl.CodeUnavailable)
	}
}
