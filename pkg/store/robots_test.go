package store

import (
	"cmp"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// origin is one that no other test has.
func origin(t *testing.T, scheme string) crawl.URL {
	t.Helper()
	u, err := crawl.ParseURL(scheme + "://r" + crawltest.Random() + ".test/some/page")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// What is known of a robots.txt, from the first claim to its age, through an outage.
func TestRobots(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		clock := time.UnixMilli(1_700_000_000_000)
		s := New(r.Client, Options{Now: func() int64 { return clock.UnixMilli() }})
		u, ctx := origin(t, "http"), t.Context()
		claim := func(want Standing, wait time.Duration, tries int) Robots {
			t.Helper()
			got, err := s.ClaimRobots(ctx, u, "Bot")
			if err != nil {
				t.Fatal(err)
			}
			if got.Standing != want || got.Wait != wait || got.Tries != tries {
				t.Fatalf("after %v the claim answers %+v, want %s for %v after %d tries",
					clock.Sub(time.UnixMilli(1_700_000_000_000)), got, want, wait, tries)
			}
			return got
		}
		learn := func(c Robots, rules string, wish time.Duration, want Robots) {
			f := RobotsFetch{Rules: rules, Wish: wish}
			if rules == "" {
				f.Why, want.Why = "down", cmp.Or(want.Why, "down")
			}
			if want.Standing == RobotsKnown {
				want.Why = ""
			}
			t.Helper()
			got, err := s.LearnRobots(ctx, u, "Bot", c.Claim, f)
			if err != nil {
				t.Fatal(err)
			}
			if d := gocmp.Diff(want, got); d != "" {
				t.Fatalf("-want +got:\n%s", d)
			}
		}
		// Never reached: it is tried five times, with growing patience, then given up.
		wait := RobotsWait
		for tries := range RobotsTries - 1 {
			c := claim(RobotsToFetch, 0, tries)
			claim(RobotsBusy, RobotsClaim, tries)
			learn(c, "", 0, Robots{Standing: RobotsUnreachable, Wait: wait, Tries: tries + 1})
			claim(RobotsUnreachable, wait, tries+1)
			clock = clock.Add(wait)
			wait *= 3
		}
		c := claim(RobotsToFetch, 0, RobotsTries-1)
		learn(c, "", 0, Robots{Standing: RobotsGivenUp, Wait: RobotsAnew, Tries: RobotsTries})
		claim(RobotsGivenUp, RobotsAnew, RobotsTries)
		// Then all begins anew. The site's own wish is waited for if it is longer.
		clock = clock.Add(RobotsAnew)
		c = claim(RobotsToFetch, 0, RobotsTries)
		learn(c, "", time.Minute, Robots{Standing: RobotsUnreachable, Wait: time.Minute, Tries: 1})
		clock = clock.Add(time.Minute)
		// A worker that was lost with its claim is not waited for longer than that.
		claim(RobotsToFetch, 0, 1)
		clock = clock.Add(RobotsClaim)
		c = claim(RobotsToFetch, 0, 1)
		learn(c, "rules", 0, Robots{Standing: RobotsKnown, Rules: "rules", Wait: RobotsAge})
		if got := claim(RobotsKnown, RobotsAge, 0); got.Rules != "rules" {
			t.Errorf("the rules are %q", got.Rules)
		}
		// Aged rules stand in while the origin fails, for a day.
		clock = clock.Add(RobotsAge)
		c = claim(RobotsToFetch, 0, 0)
		learn(c, "", 0, Robots{Standing: RobotsKnown, Rules: "rules", Wait: 5 * time.Minute})
		clock = clock.Add(24 * time.Hour)
		c = claim(RobotsToFetch, 0, 0)
		learn(c, "", 0, Robots{Standing: RobotsUnreachable, Wait: RobotsWait, Tries: 1})
		// A failure that is told twice, or too late, counts once.
		learn(c, "", 0, Robots{Standing: RobotsUnreachable, Wait: RobotsWait, Tries: 1})
	})
}

// Whoever asks at the same time, one fetches; http and https have a file each.
func TestRobotsOneFetches(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		s := New(r.Client, Options{})
		u := origin(t, "http")
		var (
			fetching sync.Map
			all      sync.WaitGroup
		)
		for range 20 {
			all.Go(func() {
				got, err := s.ClaimRobots(t.Context(), u, "bot")
				if err != nil {
					t.Error(err)
				}
				if got.Standing == RobotsToFetch {
					fetching.Store(got.Claim, true)
				} else if got.Standing != RobotsBusy {
					t.Errorf("the answer is %+v", got)
				}
			})
		}
		all.Wait()
		n := 0
		fetching.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d are to fetch it, want 1", n)
		}
		other, err := crawl.ParseURL("https://" + u.Host() + "/")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.ClaimRobots(t.Context(), other, "Bot"); err != nil || got.Standing != RobotsToFetch {
			t.Errorf("of https the answer is %+v, %v", got, err)
		}
		if got, err := s.ClaimRobots(t.Context(), u, "Other"); err != nil || got.Standing != RobotsToFetch {
			t.Errorf("to another crawler the answer is %+v, %v", got, err)
		}
	})
}
