package crawler

import (
	"encoding/binary"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

const (
	// knownMost bounds what a slice remembers of links that the store has seen, and so its memory: 13 bytes each,
	// 0.8 MiB however large the job. It is a power of two. Nearly all links of a site of half as many pages are
	// remembered; of a larger one those that matter, since a link that stands on every page is learnt again on the
	// next when it was forgotten.
	knownMost = 1 << 16
	// knownFirst is what a slice has room for at first: most jobs have a few pages.
	knownFirst = 1 << 8
	// knownWays is how many places a link may have: one that finds them all taken displaces another.
	knownWays = 8
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
	known linkSet
	drop  []bool // links of the page at hand that are left out; kept for its room
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
	var m knownLinks
	if d, ok := s.(interface{ Dials() uint64 }); ok {
		m.dials = d.Dials
	}
	return m
}

// strip leaves out the links of a page that the store is known to have seen.
func (m *knownLinks) strip(a *store.Accepted) {
	if a == nil || m.known.used == 0 {
		return
	}
	m.drop = m.drop[:0]
	left := 0
	for i := range a.Links {
		l := &a.Links[i]
		verdict := m.known.verdict(l.Key)
		drop := verdict == seenAdmissible || verdict == seenRefused && l.Refused != ""
		m.drop = append(m.drop, drop)
		if !drop {
			left++
		}
	}
	if left == len(a.Links) {
		return
	}
	m.whole = append(m.whole, wholeLinks{a, a.Links})
	var kept []crawl.Link
	if left > 0 {
		kept = make([]crawl.Link, 0, left) // most are dropped on most pages
	}
	for i, drop := range m.drop {
		if !drop {
			kept = append(kept, a.Links[i])
		}
	}
	a.Links = kept
}

// restore gives the pages that are on their way all their links again: the call failed, and
// whom it reaches when it is sent again may be behind what is known.
func (m *knownLinks) restore() {
	for _, w := range m.whole {
		w.page.Links = w.links
	}
	m.sent()
	m.clear()
}

// sent forgets the pages that were on their way, and keeps the room for the next.
func (m *knownLinks) sent() {
	clear(m.whole) // or their links stay in memory
	m.whole = m.whole[:0]
}

// clear forgets all links.
func (m *knownLinks) clear() { m.known.clear() }

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
	m.sent()
}

// keep notes the links of the pages that were recorded.
func (m *knownLinks) keep(sent []store.Commit, got []store.Committed) {
	for i, c := range got {
		if a := sent[i].Accepted; a != nil && c.Verdict == store.Done {
			for k := range a.Links {
				m.know(&a.Links[k])
			}
		}
	}
}

func (m *knownLinks) know(l *crawl.Link) {
	verdict := seenAdmissible
	if l.Refused != "" {
		verdict = seenRefused
	}
	m.known.put(l.Key, verdict)
}

// seen is how the store saw a link.
type seen uint8

const (
	unseen         seen = iota // or forgotten
	seenRefused                // with a reason why no page of the job may be had by it
	seenAdmissible             // as a page of the job
)

// linkSet remembers links, and forgets some of them when it is full: a table of sets of knownWays places each,
// filled from their first, where the key of a link says its set. A map with a bound has to forget all at once, and
// took 2 MB for 100,000 links, which with the room that the collector of garbage adds was all by which a worker grew
// with the size of a job.
type linkSet struct {
	places []place // a power of two of them; nil at first
	used   int
	next   uint // the place of a full set that is given to another, in turn over all sets
}

type place struct {
	key     crawl.Key
	verdict seen // unseen: free
}

// set answers the places that a link may have. Keys are digests, so that any bits of them spread.
func (s *linkSet) set(k crawl.Key) []place {
	first := int(binary.LittleEndian.Uint32(k[:])) * knownWays & (len(s.places) - 1)
	return s.places[first : first+knownWays]
}

// verdict answers how a link was seen, if that is remembered. There must be some that are.
func (s *linkSet) verdict(k crawl.Key) seen {
	set := s.set(k)
	for i := range set {
		if p := &set[i]; p.verdict == unseen || p.key == k {
			return p.verdict
		}
	}
	return unseen
}

// put remembers how a link was seen.
func (s *linkSet) put(k crawl.Key, verdict seen) {
	// Below three eighths of the room, one link of 600 finds its set full.
	if 8*s.used >= 3*len(s.places) && len(s.places) < knownMost {
		s.grow()
	}
	set := s.set(k)
	for i := range set {
		switch p := &set[i]; {
		case p.verdict == unseen:
			s.used++
			fallthrough
		case p.key == k:
			*p = place{k, verdict}
			return
		}
	}
	s.next++
	set[s.next%knownWays] = place{k, verdict}
}

func (s *linkSet) grow() {
	old := s.places
	*s = linkSet{places: make([]place, max(knownFirst, 2*len(old)))}
	for i := range old {
		if p := &old[i]; p.verdict != unseen {
			s.put(p.key, p.verdict)
		}
	}
}

// clear forgets all, and keeps the room.
func (s *linkSet) clear() {
	if s.used > 0 {
		clear(s.places)
		s.used = 0
	}
}
