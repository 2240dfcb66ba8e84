package store

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	"example.com/trawl/pkg/crawl"
)

// The times of what is known of a robots.txt.
const (
	// RobotsAge is how long rules hold before they are fetched again. RFC 9309 section
	// 2.4 allows a day; an owner who shuts crawlers out should not wait for that long.
	RobotsAge = time.Hour
	// RobotsClaim is how long one worker may take to fetch a robots.txt until another
	// may try.
	RobotsClaim = 20 * time.Second
	// RobotsTries is how often a robots.txt that cannot be reached is tried; the waits
	// between are RobotsWait and three times the one before, 80 s in all: a site that is
	// being replaced is back by then.
	RobotsTries = 5
	// RobotsTriesNobody is the same where nobody answers at all, or the name leads
	// nowhere: 8 s in all, for that is mostly a mistake of who named it.
	RobotsTriesNobody = 3
	RobotsWait        = 2 * time.Second
	// RobotsAnew is how long an origin that was given up stays so. It is short: the next
	// job comes when somebody has mended the site.
	RobotsAnew = time.Minute
)

// Standing is how an origin stands with its robots.txt.
type Standing string

// The standings.
const (
	RobotsKnown       Standing = "known"
	RobotsToFetch     Standing = "fetch"       // the caller fetches it and tells [Store.LearnRobots]
	RobotsBusy        Standing = "busy"        // another worker fetches it
	RobotsUnreachable Standing = "unreachable" // nothing may be fetched until it is reached
	RobotsGivenUp     Standing = "given_up"    // the same, and it was tried often enough
)

// Robots is what the cluster knows of the robots.txt of one origin.
type Robots struct {
	Standing Standing
	Rules    string // with RobotsKnown, as they were told
	Why      string // without rules: why the last fetch failed, as it was told
	// Wait is how long the standing lasts: how long rules hold, how long a claim is
	// another's at most, when an unreachable one is tried again.
	Wait  time.Duration
	Tries int // failed fetches in a row
	Claim string
}

// ClaimRobots answers what is known of the robots.txt of the origin of u, as it speaks to
// the crawler of the given product token. Of all that ask at once one is told to fetch it.
func (s *Store) ClaimRobots(ctx context.Context, u crawl.URL, product string) (Robots, error) {
	claim := rand.Text()
	a, err := s.one(ctx, robotsClaimScript, robotsKeys(u, product), s.now(), claim, RobotsClaim.Milliseconds())
	if err != nil {
		return Robots{}, err
	}
	r := robotsOf(a)
	r.Claim = claim
	return r, nil
}

// RobotsFetch is what became of a fetch of a robots.txt: rules, or that it could not be
// reached.
type RobotsFetch struct {
	Rules string
	Why   string // without rules
	// Nobody says that no connection came about, without rules.
	Nobody bool
	Wish   time.Duration // what the server then said to wait; 0 if it did not
}

// LearnRobots keeps what became of a fetch that [Store.ClaimRobots] asked for, and
// answers what holds now.
func (s *Store) LearnRobots(
	ctx context.Context, u crawl.URL, product, claim string, f RobotsFetch,
) (Robots, error) {
	holds := RobotsAge
	if f.Rules == "" {
		holds = RobotsWait
	}
	tries := RobotsTries
	if f.Nobody {
		tries = RobotsTriesNobody
	}
	a, err := s.one(ctx, robotsLearnScript, robotsKeys(u, product), s.now(), claim, f.Rules, holds.Milliseconds(), tries,
		RobotsAnew.Milliseconds(), min(f.Wish, RobotsAnew).Milliseconds(), f.Why)
	if err != nil {
		return Robots{}, err
	}
	return robotsOf(a), nil
}

// robotsKeys names the key of an origin. It lies with the host that the origin shares its
// politeness with; http and https of a host have a robots.txt each.
func robotsKeys(u crawl.URL, product string) []string {
	return []string{hostKey(u.PolitenessHost(), "robots:"+u.Scheme()+":"+strings.ToLower(product))}
}

func robotsOf(a []any) Robots {
	r := Robots{
		Standing: Standing(str(a[0])), Wait: time.Duration(num(a[2])) * time.Millisecond, Tries: int(num(a[3])),
	}
	if r.Standing == RobotsKnown {
		r.Rules = str(a[1])
	} else {
		r.Why = str(a[1])
	}
	return r
}
