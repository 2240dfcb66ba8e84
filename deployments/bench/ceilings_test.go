package main

import (
	"fmt"
	"testing"
)

// ceiling is the most that a figure may be.
type ceiling struct {
	figure string
	// found is what it was when somebody last looked, the least of the crawls.
	found float64
	// margin is how far it may lie above, as a part of found: more than it moved in twenty runs on two cores with a load
	// of 15 to 33, and no less than 5 %.
	margin float64
	// why is what the figure stands for.
	why string
}

// most is the most that a figure may be.
func (c *ceiling) most() float64 { return c.found * (1 + c.margin) }

// far is how far below found, as a part of it, a figure is worth a hint.
const far = 0.15

// judge says what is wrong with a value, and what may be done when it is far better than it was.
func (c *ceiling) judge(value float64) (fault, hint string) {
	switch {
	case value > c.most():
		return fmt.Sprintf("%s: %.5g, which is %.1f %% above its ceiling of %.5g (%s). Make it cheaper, or raise the "+
			"ceiling in deployments/bench/ceilings_test.go in a commit that says what the price is paid for.",
			c.figure, value, 100*(value/c.most()-1), c.most(), c.why), ""
	case value < c.found*(1-far):
		return "", fmt.Sprintf("(%.0f %% less than the %.5g that its ceiling is from: lower it, so that it stays so)",
			100*(1-value/c.found), c.found)
	}
	return "", ""
}

// ceilings are what the gate lets pass. To look at all figures as they are now:
//
//	go test -run '^TestGate$' -count=1 -v ./deployments/bench
var ceilings = []ceiling{
	{"allocations a page", 273, 0.05, "each costs CPU twice: as it is made and as it is collected"},
	{"allocated bytes a page", 18000, 0.07, "how often the worker collects garbage"},
	{"round trips a page", 0.075, 0.25, "DESIGN section 8 asks for 0.3; a busy machine makes batches smaller"},
	{"commands a page", 13.7, 0.07, "CPU of Redis, which all workers share; those in scripts are counted"},
	{"bytes to and from Redis a page", 920, 0.1, "what the network of a cluster carries"},
	{"allocations a submission", 201, 0.05, "CPU of the API"},
	{"allocated bytes a submission", 18700, 0.05, "how often the API collects garbage"},
	{"round trips a submission", 2, 0.05, "what a caller waits for: one to store the job, one to ring"},
	{"commands a submission", 20, 0.05, "CPU of Redis for each job"},
	{"bytes to and from Redis a submission", 1220, 0.05, "what the network of a cluster carries for each job"},
	{"allocations a job of one page", 777, 0.05, "what a small job costs API and worker together"},
	{"allocated bytes a job of one page", 59500, 0.1, "what a small job costs API and worker together"},
	{"round trips a job of one page", 8.1, 0.05, "how long a small job takes, from its submission to its end"},
	{"commands a job of one page", 112.2, 0.05, "how many small jobs one Redis bears"},
	{"bytes to and from Redis a job of one page", 4015, 0.05, "what the network of a cluster carries for each job"},
	{"bytes in Redis a URL", 140.3, 0.05, "how large a job may be; DESIGN section 8 asks for 170"},
	{"bytes in Redis a record", 424.5, 0.05, "how many pages are kept for their retention"},
}

// TestCeilings: what is above a ceiling is told with its distance, what is far below with a hint, and every ceiling
// has a reason and a margin that means something.
func TestCeilings(t *testing.T) {
	t.Parallel()
	c := ceiling{figure: "round trips a page", found: 100, margin: 0.05, why: "they are slow"}
	for value, want := range map[float64][2]bool{84: {false, true}, 86: {}, 100: {}, 105: {}, 106: {true, false}} {
		fault, hint := c.judge(value)
		if (fault != "") != want[0] || (hint != "") != want[1] {
			t.Errorf("%.0f: fault %q, hint %q", value, fault, hint)
		}
	}
	const told = "round trips a page: 126, which is 20.0 % above its ceiling of 105 (they are slow). "
	if fault, _ := c.judge(126); len(fault) < len(told) || fault[:len(told)] != told {
		t.Errorf("got %q", fault)
	}
	seen := map[string]bool{}
	for _, c := range ceilings {
		if c.why == "" || c.found <= 0 || c.margin < 0.05 || c.margin > 0.25 || seen[c.figure] {
			t.Errorf("%s: %+v", c.figure, c)
		}
		seen[c.figure] = true
	}
}
