package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/client"
)

// submissions is a service that creates jobs, one a key, and whose answers are lost as
// often as a test says.
type submissions struct {
	mu     sync.Mutex
	bodies map[string]string // by key
	sent   []string          // key and body of each request
	lose   int               // answers still to be lost
	half   bool              // they are lost in the middle
}

func (s *submissions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if err != nil || key == "" {
		http.Error(w, "no key", http.StatusBadRequest)
		return
	}
	s.sent = append(s.sent, key+" "+string(body))
	if _, known := s.bodies[key]; known {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	s.bodies[key] = string(body)
	w.Header().Set("Content-Type", jsonType)
	if s.lose > 0 {
		s.lose--
		if s.half {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, aJob[:20])
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(http.StatusAccepted)
	fmt.Fprint(w, aJob)
}

// A submission whose answer is lost is sent again as it was, and is one job.
func TestLostSubmission(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		half bool
		lose int
		key  []client.SubmitOption
	}{
		{"no answer", false, 2, nil},
		{"half an answer", true, 2, nil},
		{"with a key", true, 1, []client.SubmitOption{client.IdempotencyKey("nightly")}},
		{"no loss", false, 0, nil},
	} {
		s := &submissions{bodies: map[string]string{}, lose: tt.lose, half: tt.half}
		srv := httptest.NewServer(s)
		t.Cleanup(srv.Close)
		c, err := client.New(srv.URL, testKey)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdleConnections)
		got, err := c.Submit(t.Context(), client.Spec{SeedURL: "https://site.test/", TimeLimit: time.Minute}, tt.key...)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		s.mu.Lock()
		// net/http itself repeats what has a key, on a connection that was used before.
		if len(s.bodies) != 1 || len(s.sent) < tt.lose+1 || got.Replayed != (tt.lose > 0) || got.ID != "j1" {
			t.Errorf("%s: jobs %v, requests %q, %+v", tt.name, s.bodies, s.sent, got)
		}
		for _, sent := range s.sent {
			if want := got.IdempotencyKey + ` {"seed_url":"https://site.test/","time_limit":"1m0s"}`; sent != want {
				t.Errorf("%s: sent %s, want %s", tt.name, sent, want)
			}
		}
		if tt.key != nil && got.IdempotencyKey != "nightly" {
			t.Errorf("%s: key %q", tt.name, got.IdempotencyKey)
		}
		s.mu.Unlock()
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s, c := newService(t, &answer{status: 202, media: jsonType, body: aJob})
	for _, key := range []string{"", " ", "a b", "a\n", "é", strings.Repeat("x", 256), "\x00"} {
		_, err := c.Submit(t.Context(), client.Spec{}, client.IdempotencyKey(key))
		if err == nil || !strings.Contains(err.Error(), "submit: an idempotency key has 1 to 255 visible ASCII") {
			t.Errorf("%q: %v", key, err)
		}
		presentable(t, err)
	}
	if n := len(s.got()); n > 0 {
		t.Errorf("%d requests with such keys", n)
	}
	keys := map[string]bool{}
	for _, options := range [][]client.SubmitOption{
		nil, nil, {client.IdempotencyKey("!~")}, {client.IdempotencyKey(strings.Repeat("x", 255))},
	} {
		got, err := c.Submit(t.Context(), client.Spec{}, options...)
		if err != nil {
			t.Fatal(err)
		}
		keys[got.IdempotencyKey] = true
	}
	if len(keys) != 4 {
		t.Errorf("keys %v", keys)
	}
	for _, r := range s.got() {
		if !keys[r.header.Get("Idempotency-Key")] {
			t.Errorf("sent key %q, told %v", r.header.Get("Idempotency-Key"), keys)
		}
	}
}

// gaps are the times between the requests that a service got.
func gaps(s *service) []time.Duration {
	var all []time.Duration
	requests := s.got()
	for i := 1; i < len(requests); i++ {
		all = append(all, requests[i].at.Sub(requests[i-1].at))
	}
	return all
}

// The pauses grow, differ, and have a bound.
func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		longest := make([]time.Duration, 11)
		for range 200 {
			s, c := newServiceFunc(t, refusal(503, client.CodeUnavailable).always, client.WithRetries(11))
			_, err := c.Job(t.Context(), "j1")
			if !isCode(err, client.CodeUnavailable) || !strings.Contains(err.Error(), "12 tries") {
				t.Fatal(err)
			}
			for i, gap := range gaps(s) {
				seen[gap], longest[i] = true, max(longest[i], gap)
			}
		}
		for i, got := range longest {
			bound := min(5*time.Second, 100*time.Millisecond<<i)
			if got > bound || got < bound/2 { // that 200 random parts are all below a half, never happens
				t.Errorf("before repetition %d: up to %v, want up to %v", i+1, got, bound)
			}
		}
		if len(seen) < 1000 {
			t.Errorf("%d different pauses of 2200", len(seen))
		}
	})
}

// By default a call is tried five times, and is over soon.
func TestDefaultTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s, c := newService(t, &answer{err: syscall.ECONNREFUSED})
		_, err := c.Job(t.Context(), "j1")
		if !errors.Is(err, syscall.ECONNREFUSED) || len(s.got()) != 5 || time.Since(begin) > 2*time.Second {
			t.Errorf("%v after %d tries in %v", err, len(s.got()), time.Since(begin))
		}
	})
}

// What fails first and then succeeds is a success.
func TestRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, of := range calls {
			s, c := newService(t, refusal(503, client.CodeOverloaded), &answer{err: io.EOF}, text(502, "text/html", ""), of.ok)
			if err := of.make(t.Context(), c); err != nil || len(s.got()) != 4 {
				t.Errorf("%s%v after %d tries", of.name, err, len(s.got()))
			}
			first := s.got()[0]
			for _, r := range s.got() {
				first.at = r.at
				if d := cmp.Diff(first, r, cmp.AllowUnexported(sent{})); d != "" {
					t.Errorf("%snot the same again:\n%s", of.name, d)
				}
			}
		}
	})
}

// Nobody comes before the time that the service named, and nobody waits for it in vain.
func TestRetryAfterIsKept(t *testing.T) {
	t.Parallel()
	busy := func(after string) *answer { return refusal(429, client.CodeRateLimited, "Retry-After", after) }
	for _, tt := range []struct {
		name       string
		answer     *answer
		deadline   time.Duration
		tries      int
		least, max time.Duration // that it takes
	}{
		{"kept", busy("3"), 0, 5, 12 * time.Second, 14 * time.Second},
		{"of a proxy", text(503, "text/html", "").with("Retry-After", "3"), 0, 5, 12 * time.Second, 14 * time.Second},
		{"too long", busy("61"), 0, 1, 0, 0},
		{"beyond the deadline", busy("3"), 2 * time.Second, 1, 0, 0},
		{"beyond it at the second", busy("3"), 5 * time.Second, 2, 3 * time.Second, 3100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.deadline)
					defer cancel()
				}
				s, c := newService(t, tt.answer)
				begin := time.Now()
				_, err := c.Job(ctx, "j1")
				took := time.Since(begin)
				if err == nil || errors.Is(err, context.DeadlineExceeded) || len(s.got()) != tt.tries ||
					took < tt.least || took > tt.max {
					t.Errorf("%v after %d tries in %v", err, len(s.got()), took)
				}
				for _, gap := range gaps(s) {
					if gap < 3*time.Second {
						t.Errorf("came again after %v", gap)
					}
				}
			})
		})
	}
}

// What a proxy says of the next hour keeps nobody who waits for longer than a minute.
func TestRetryAfterIsCapped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, of := range patient {
			end := ok(strings.Replace(anEnd, "{", `{"items":[],`, 1)) // of the job and of its list
			for _, after := range []string{"3600", "Fri, 01 Jan 2100 00:00:00 GMT"} {
				_, c := newService(t, text(503, "text/html", "").with("Retry-After", after), end)
				begin := time.Now()
				if err := of.make(t.Context(), c); err != nil || time.Since(begin) != time.Minute {
					t.Errorf("%s%v after %v", of.name, err, time.Since(begin))
				}
			}
		}
	})
}

// The end of the context ends a pause at once, and says what failed before.
func TestCancelInAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, of := range calls {
			ctx, cancel := context.WithCancel(t.Context())
			_, c := newService(t, refusal(503, client.CodeUnavailable, "Retry-After", "20"))
			time.AfterFunc(time.Second, cancel)
			begin := time.Now()
			err := of.make(ctx, c)
			if !errors.Is(err, context.Canceled) || !isCode(err, client.CodeUnavailable) || time.Since(begin) != time.Second {
				t.Errorf("%s%v after %v", of.name, err, time.Since(begin))
			}
		}
	})
}

// The end of the context ends a request in flight, and the error is its own, said once.
func TestCancelInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, of := range slices.Concat(calls, patient) {
			for failures, want := range map[int]string{
				0: "context deadline exceeded",
				1: "context deadline exceeded; what failed before: unavailable: Do this. (request_id r1)",
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				_, c := newServiceFunc(t, func(n int, r *http.Request) (*http.Response, error) {
					if n <= failures {
						return refusal(503, client.CodeUnavailable).response()
					}
					<-r.Context().Done()
					return nil, r.Context().Err()
				})
				begin := time.Now()
				err := of.make(ctx, c)
				if !errors.Is(err, context.DeadlineExceeded) || err.Error() != of.name+want ||
					time.Since(begin) != 10*time.Second {
					t.Errorf("%v after %v", err, time.Since(begin))
				}
				cancel()
			}
		}
	})
}

// An answer that stalls is asked for again, without the caller's deadline.
func TestStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, of := range calls {
			s, c := newServiceFunc(t, func(n int, r *http.Request) (*http.Response, error) {
				if n == 1 {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return of.ok.response()
			})
			begin := time.Now()
			if err := of.make(t.Context(), c); err != nil || len(s.got()) != 2 || time.Since(begin) < time.Minute {
				t.Errorf("%s%v, %d tries in %v", of.name, err, len(s.got()), time.Since(begin))
			}
		}
		_, c := newServiceFunc(t, func(_ int, r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, client.WithRetries(-1))
		if _, err := c.Job(t.Context(), "j1"); err == nil || !strings.Contains(err.Error(), "within 1m0s") {
			t.Error(err)
		}
	})
}

// A deletion that was done although its answer was lost is done.
func TestLostDeletion(t *testing.T) {
	t.Parallel()
	var (
		gone     = refusal(404, client.CodeNotFound)
		expired  = refusal(410, client.CodeExpired)
		dead     = &answer{err: io.EOF}
		refused  = &answer{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
		busy     = refusal(429, client.CodeRateLimited)
		unknown  = refusal(503, client.CodeUnavailable)
		gateway  = &answer{status: 504, media: "text/html"}
		conflict = refusal(409, client.CodeJobNotTerminal)
	)
	for _, tt := range []struct {
		name    string
		answers []*answer
		want    client.Code // "" for success
	}{
		{"gone", []*answer{gone}, client.CodeNotFound},
		{"lost, gone", []*answer{dead, gone}, ""},
		{"lost, a tombstone", []*answer{dead, expired}, ""},
		{"unknown, gone", []*answer{unknown, gone}, ""},
		{"gateway, gone", []*answer{gateway, gone}, ""},
		{"lost, refused, gone", []*answer{dead, refused, gone}, ""},
		{"never sent, gone", []*answer{refused, gone}, client.CodeNotFound},
		{"refused, gone", []*answer{busy, gone}, client.CodeNotFound},
		{"lost, conflict", []*answer{dead, conflict}, client.CodeJobNotTerminal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, c := newService(t, tt.answers...)
				err := c.Delete(t.Context(), "j1")
				if (tt.want == "" && err != nil) || (tt.want != "" && !isCode(err, tt.want)) {
					t.Errorf("%v, want %q", err, tt.want)
				}
				// Only of a deletion: what is read and is gone is gone.
				_, c = newService(t, tt.answers...)
				if _, err := c.Cancel(t.Context(), "j1"); err == nil {
					t.Error("cancelled")
				}
			})
		})
	}
}

// What time does not mend is not repeated.
func TestHopeless(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, http.ErrSchemeMismatch,
	} {
		s, c := newService(t, &answer{err: cause})
		if _, err := c.Wait(t.Context(), "j1"); !errors.Is(err, cause) || len(s.got()) != 1 {
			t.Errorf("%v after %d tries", err, len(s.got()))
		}
	}
}

// waiting is a job that ends at the n-th look.
func waiting(n int, between ...*answer) []*answer {
	all := slices.Repeat([]*answer{ok(aJob)}, n-1)
	return append(append(all, between...), ok(anEnd))
}

func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := newService(t, waiting(20)...)
		var states, again []client.State
		job, err := c.Wait(t.Context(), "j1",
			func(j *client.Job) { states = append(states, j.State) }, func(j *client.Job) { again = append(again, j.State) })
		if err != nil || job.State != client.Completed {
			t.Fatalf("%v, %v", job, err)
		}
		want := append(slices.Repeat([]client.State{client.Running}, 19), client.Completed)
		if !slices.Equal(states, want) || !slices.Equal(again, want) {
			t.Errorf("seen %v and %v", states, again)
		}
		middle := 100 * time.Millisecond
		for i, gap := range gaps(s) {
			if gap < middle*79/100 || gap > middle*121/100 {
				t.Errorf("pause %d is %v, want about %v", i, gap, middle)
			}
			middle = min(2*time.Second, middle*3/2)
		}
	})
}

// Who shows a person how it goes on looks more often.
func TestLongestLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := newService(t, waiting(20)...)
		client.WithLongestLook(200 * time.Millisecond)(c)
		if _, err := c.Wait(t.Context(), "j1"); err != nil {
			t.Fatal(err)
		}
		for i, gap := range gaps(s) {
			if gap > 241*time.Millisecond {
				t.Errorf("pause %d is %v, want about 200ms at most", i, gap)
			}
		}
	})
}

// A job that ended is an answer, however it ended; a state that is not known is not an end.
func TestWaitForEachState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, state := range []client.State{
			client.Completed, client.CompletedWithErrors, client.Failed, client.Cancelled,
		} {
			s, c := newService(t, ok(`{"job_id":"j1","state":"dreaming"}`), ok(`{"job_id":"j1","state":"paused"}`),
				ok(fmt.Sprintf(`{"job_id":"j1","state":%q}`, state)))
			if job, err := c.Wait(t.Context(), "j1"); err != nil || job.State != state || len(s.got()) != 3 {
				t.Errorf("%v, %v", job, err)
			}
		}
	})
}

// Outages of an hour end neither a wait nor what follows; refusals end both.
func TestOutages(t *testing.T) {
	t.Parallel()
	var outage []*answer
	for _, a := range []*answer{
		{err: io.EOF},
		refusal(503, client.CodeUnavailable), text(502, "text/html", ""),
		refusal(429, client.CodeRateLimited, "Retry-After", "30"),
	} {
		outage = append(outage, slices.Repeat([]*answer{a}, 100)...)
	}
	page := func(item, next string) *answer {
		return ok(fmt.Sprintf(`{"items":[%s],"next_cursor":%s,"has_more":false}`, item, next))
	}
	synctest.Test(t, func(t *testing.T) {
		s, c := newService(t, waiting(3, outage...)...)
		if job, err := c.Wait(t.Context(), "j1"); err != nil || job.State != client.Completed {
			t.Errorf("%v, %v", job, err)
		}
		for i, gap := range gaps(s)[310:] { // of those that name a time
			if i < 90 && gap < 30*time.Second {
				t.Errorf("came again after %v", gap)
			}
		}
		one, two := page(`{"seq":1}`, `"c"`), page(`{"seq":2}`, "null")
		_, c = newService(t, slices.Concat([]*answer{one}, outage, []*answer{two})...)
		n := 0
		for _, err := range c.Records(t.Context(), "j1", client.Follow()) {
			if n++; err != nil {
				t.Error(err)
			}
		}
		if n != 2 {
			t.Errorf("%d records", n)
		}

		for _, a := range []*answer{
			refusal(404, client.CodeNotFound), refusal(410, client.CodeExpired), refusal(401, client.CodeUnauthenticated),
			{status: 200, media: "text/html", body: "<html>"},
		} {
			s, c := newService(t, ok(aJob), a)
			_, err := c.Wait(t.Context(), "j1")
			if err == nil || len(s.got()) != 2 || !strings.HasPrefix(err.Error(), "wait for job j1: ") {
				t.Errorf("%v after %d", err, len(s.got()))
			}
			s, c = newService(t, page("", `"c"`), a)
			if err := drain(c.Errors(t.Context(), "j1", client.Follow())); err == nil || len(s.got()) != 2 {
				t.Errorf("%v after %d", err, len(s.got()))
			}
		}

		// The end of the context does, and tells what kept it so long.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, c = newService(t, ok(aJob), refusal(503, client.CodeUnavailable))
		begin := time.Now()
		_, err := c.Wait(ctx, "j1")
		if !errors.Is(err, context.DeadlineExceeded) || !isCode(err, client.CodeUnavailable) ||
			time.Since(begin) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, c = newService(t, ok(aJob)) // which never ends
		begin = time.Now()
		if _, err = c.Wait(ctx, "j1"); err == nil || err.Error() != "wait for job j1: context deadline exceeded" ||
			time.Since(begin) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}
