package watch

import (
	"fmt"
	"time"
)

// A plain line comes when this has passed since the last one: with something new to say,
// and with nothing new.
const (
	changedEvery = 5 * time.Second
	stillEvery   = 30 * time.Second
)

// plainMost bounds a plain line, in columns: an error of the service has no bound of its own.
const plainMost = 300

// plain decides when a line is due where there is no terminal.
type plain struct {
	said said
	at   time.Time // of the last line; zero before the first
}

// said is what a line tells apart from measured times.
type said struct {
	state, wait                               string
	processed, total, accepted, failed, skips int64
}

// saying returns what a line of s tells.
func saying(s snapshot) said {
	return said{s.words.state, s.wait.long, s.processed, s.total, s.accepted, s.failed, s.skipped}
}

// next returns the line that is due at now, or nothing.
func (p *plain) next(s snapshot, now time.Time) string {
	is := saying(s)
	since := now.Sub(p.at)
	still := ""
	switch {
	case p.at.IsZero() || is.state != p.said.state || is.wait != p.said.wait:
	case is != p.said && since >= changedEvery:
	case is == p.said && since >= stillEvery:
		still = "still "
	default:
		return ""
	}
	p.said, p.at = is, now
	return plainStatus(s, still)
}

// last returns the line that ends the view, or nothing where the last one told it.
func (p *plain) last(s snapshot) string {
	if saying(s) == p.said {
		return ""
	}
	return plainStatus(s, "")
}

// plainStatus is the line for programs as well as people: the same words in the same order
// each time, plural or not, zero or not.
func plainStatus(s snapshot, still string) string {
	l := fmt.Sprintf("trawl: %s%s, %d of %d pages, %d accepted, %d failed, %d skipped",
		still, s.words.state, s.processed, s.total, s.accepted, s.failed, s.skipped)
	if s.rated {
		l += ", " + rateText(s.rate) + " pages/s"
	}
	if s.wait.long != "" {
		l += ", " + s.wait.long
	}
	return cut(l, plainMost)
}
