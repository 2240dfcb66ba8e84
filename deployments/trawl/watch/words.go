package watch

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"example.com/trawl/pkg/client"
)

// words say the state of a job: what it is, and where there is more to say why.
type words struct {
	state string // completed with errors
	style style
}

// hint is what is said behind the state: why there is no progress, or why the job ended so.
type hint struct {
	long, short string // short is at most 20 columns where the words are ours
	brief       bool   // comes and goes all the time
}

// stateWords names the state of a job.
func stateWords(j *client.Job) words {
	switch j.State {
	case client.Completed:
		return words{"completed", green}
	case client.CompletedWithErrors:
		return words{"completed with errors", magenta}
	case client.Failed:
		return words{"failed", red}
	case client.Cancelled:
		return words{stopWords(j.StopReason), magenta}
	case client.Paused, client.Cancelling:
		return words{string(j.State), magenta}
	case client.Queued, client.Running:
		return words{string(j.State), cyan}
	default:
		return words{worded(string(j.State)), unstyled}
	}
}

// stopWords says what cut a job short.
func stopWords(reason string) string {
	switch reason {
	case "time_limit":
		return "stopped at its time limit"
	case "byte_limit":
		return "stopped at its byte limit"
	case "", "cancelled":
		return "cancelled"
	default:
		return "cancelled (" + Clean(reason) + ")"
	}
}

// worded returns a name of the API as a person reads it.
func worded(name string) string { return strings.ReplaceAll(Clean(name), "_", " ") }

// inProgress are the pages that the API calls active: taken by a worker, which fetches them
// or keeps them until their host may be asked.
const inProgress = "in progress"

// Waiting says for a person why a job that has not ended makes no progress; "" when it does.
func Waiting(job *client.Job) string {
	if job.State.Terminal() || job.WaitingFor == "" {
		return ""
	}
	return waitHint(job).long
}

// hintOf says why a job makes no progress, and what to do where something can be done, or
// why it ended as it did.
func hintOf(j *client.Job) hint {
	switch {
	case j.State.Terminal():
		return endHint(j)
	case j.State == client.Paused:
		return hint{long: "nothing new is fetched until it is resumed"}
	case j.State == client.Cancelling:
		return hint{long: "requests in flight are being stopped"}
	default:
		return waitHint(j)
	}
}

// isBrief reports whether a job enters and leaves this wait all the time.
func isBrief(wait string) bool { return wait == "host_delay" || wait == "retry" }

// waitHint words waiting_for.
func waitHint(j *client.Job) hint {
	switch j.WaitingFor {
	case "":
		return hint{}
	case "tenant_quota":
		if j.Position == 0 {
			return hint{
				long:  "pages of the day used up: goes on at midnight UTC",
				short: "pages of the day used up",
			}
		}
		place := "place " + strconv.FormatInt(j.Position, 10) + " in line"
		return hint{long: place + ": begins when a job of yours ends", short: place}
	case "dispatch":
		long := "not handed to a worker yet; the service keeps trying"
		if j.Error != "" {
			long += ": " + Clean(j.Error)
		}
		return hint{long: long, short: "not handed out yet"}
	case waitsForWorker:
		return hint{long: "waits for a worker: none is running or all are busy", short: "no worker is free"}
	case "host_delay":
		long := "waits for its host"
		if j.Spec != nil && j.Spec.Delay > 0 {
			long += " (" + shortDuration(j.Spec.Delay) + " between requests)"
		}
		return hint{long: long, short: "waits for its host", brief: true}
	case waitsForRobots:
		return hint{long: "waits for robots.txt of its site", short: "waits for robots.txt"}
	case "retry":
		return hint{long: "waits to try failed pages again", short: "waits for a retry", brief: true}
	default:
		reason := "waits for " + Clean(j.WaitingFor)
		return hint{long: reason, short: reason}
	}
}

// endHint words what stop_reason adds to the state of an ended job.
func endHint(j *client.Job) hint {
	switch {
	case j.State == client.Failed:
		return failHint(j)
	case j.StopReason == "page_limit":
		limit := ""
		if j.Spec != nil && j.Spec.MaxPages > 0 {
			limit = " of " + strconv.FormatInt(j.Spec.MaxPages, 10)
		}
		return hint{long: "the page limit" + limit + " kept links out", short: "page limit"}
	default:
		return hint{}
	}
}

// failHint says why a job failed.
func failHint(j *client.Job) hint {
	reason := Clean(j.StopReason)
	switch j.StopReason {
	case "":
		return hint{}
	case "seed_failed":
		return hint{long: "no seed could be fetched (seed_failed)", short: reason}
	case "internal":
		return hint{long: "a defect of the service; its log says more (internal)", short: reason}
	default:
		return hint{long: "(" + reason + ")", short: reason}
	}
}

// shortDuration is the Go spelling without zero units at its end: 500ms, 1m, 1h30m.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// longDuration is d for a person, in two units at most: 340 ms, 12.3 s, 2 min 5 s, 3 h 20 min.
func longDuration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 999500*time.Microsecond:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 59950*time.Millisecond:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Hour-500*time.Millisecond:
		return twoUnits(d.Round(time.Second), time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour-30*time.Second:
		return twoUnits(d.Round(time.Minute), time.Hour, "h", time.Minute, "min")
	default:
		return twoUnits(d.Round(time.Hour), 24*time.Hour, "d", time.Hour, "h")
	}
}

// twoUnits writes d in big and small units, without the small where there are none.
func twoUnits(d, big time.Duration, bigName string, small time.Duration, smallName string) string {
	s := fmt.Sprintf("%d %s", d/big, bigName)
	if rest := d % big / small; rest > 0 {
		s += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return s
}

// clock is d as a clock shows it: 0:11, 1:02:03.
func clock(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// byteSize is a number of bytes for a person, in powers of 1000: 999 B, 1.2 kB, 310 kB.
func byteSize(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", max(n, 0))
	}
	v := float64(n)
	for _, unit := range []string{"kB", "MB", "GB", "TB", "PB", "EB"} {
		v /= 1000
		switch {
		case v < 9.95:
			return strconv.FormatFloat(v, 'f', 1, 64) + " " + unit
		case v < 999.5:
			return strconv.FormatFloat(v, 'f', 0, 64) + " " + unit
		}
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + " EB" // not reached: an int64 ends at 9.2 EB
}

// rateText is a number of pages a second: 3.9, 120, 15k.
func rateText(r float64) string {
	switch {
	case math.IsNaN(r) || r <= 0:
		return "0"
	case r < 0.05:
		return "<0.1"
	case r < 9.95:
		return strconv.FormatFloat(r, 'f', 1, 64)
	case r < 9999.5:
		return strconv.FormatFloat(r, 'f', 0, 64)
	default:
		return strconv.FormatFloat(r/1000, 'f', 0, 64) + "k"
	}
}
