package crawler

import (
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

const (
	// knownMost bounds what a slice remembers of links that the store has seen.
	knownMost = 100_000
	// silence is how long a slice may hear nothing of the store and still believe what it
	// remembers. A replica takes longer than that to become the master; a slice that speaks so
	// seldom gains nothing by sending fewer links.
	silence = 500 * time.Millisecond
)

// knownLinks is which links the store has seen, as far as one slice sent them: on a site most
// links of a page lead where others led before, and need not be sent again.
//
// The store can go back: a replica that lacked the last second became the master, or Redis came
// back with older files. Then the pages whose outcomes it lost are crawled again, by whomever,
// and their links must be sent, or nobody ever crawls them. So a slice forgets whenever
// the store may have gone back since it last spoke with it: a call failed, a commit came back
// stale, a connection was made (one of an earlier state does not survive into the other), or
// there was a silence. Whoever leases such a page did so in a call in which it forgot, or
// later: its links are sent.
type knownLinks struct {
	known map[crawl.Key]bool // true: admissible and seen by the store; false: refused before
	// whole are the links of the pages that are on their way, before those known were left out.
	whole []wholeLinks
	// dials counts the connections made to the store; nil where the store does not tell.
	dials  func() uint64
	dialed uint64    // as of the last call
	heard  time.Time // when the last call that succeeded was over
}

type wholeLinks struct {
	page  *store.Accepted
	links []crawl.Link
}

func newKnownLinks(s Store) knownLinks {
	m := knownLinks{known: map[crawl.Key]bool{}}
	if d, ok := s.(interface{ Dials() uint64 }); ok {
		m.dials = d.Dials
	}
	return m
}

// strip leaves out the links of a page that the store is known to have seen.
func (m *knownLinks) strip(a *store.Accepted) {
	if a == nil || len(m.known) == 0 {
		return
	}
	var kept []crawl.Link
	for _, l := range a.Links {
		if admissible, ok := m.known[l.Key]; ok && (admissible || l.Refused != "") {
			continue
		}
		kept = append(kept, l)
	}
	if len(kept) < len(a.Links) {
		m.whole = append(m.whole, wholeLinks{a, a.Links})
		a.Links = kept
	}
}

// restore gives the pages that are on their way all their links again: the call failed, and
// whom it reaches when it is sent again may be behind what is known.
func (m *knownLinks) restore() {
	for _, w := range m.whole {
		w.page.Links = w.links
	}
	m.whole = nil
	m.clear()
}

// clear forgets all links.
func (m *knownLinks) clear() { clear(m.known) }

// spoke notes a call that has succeeded by now, and forgets when the store may have gone back before it.
func (m *knownLinks) spoke(now time.Time) {
	dialed := m.dialed
	if m.dials != nil {
		dialed = m.dials()
	}
	if dialed != m.dialed || now.Sub(m.heard) > silence {
		m.clear()
	}
	m.dialed, m.heard = dialed, now
	m.whole = nil
}

// keep notes the links of the pages that were recorded.
func (m *knownLinks) keep(sent []store.Commit, got []store.Committed) {
	for i, c := range got {
		if a := sent[i].Accepted; a != nil && c.Verdict == store.Done {
			for _, l := range a.Links {
				m.know(&l)
			}
		}
	}
}

func (m *knownLinks) know(l *crawl.Link) {
	if len(m.known) > knownMost {
		clear(m.known)
	}
	m.known[l.Key] = l.Refused == ""
}
