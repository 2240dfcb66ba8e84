package crawler

import (
	"sync"
	"time"

	"example.com/trawl/pkg/crawl"
)

const (
	// troubleFrom is how many failures in a row of one host slow it down: two may be two
	// pages.
	troubleFrom = 3
	// troubleFirst is the first pause; each further failure doubles it, up to troubleMost.
	troubleFirst = time.Second
	troubleMost  = time.Minute
	// troubleHosts bounds the hosts that are remembered.
	troubleHosts = 10_000
)

// trouble counts, for each host, the failures in a row that say the host itself can take
// no more: nothing came in time, or nothing at all. A site that is going under is not
// helped by being asked at the pace of one that is well, and may be too busy to say so
// in a Retry-After.
type trouble struct {
	mu    sync.Mutex
	inRow map[string]row
	asked map[string]time.Time // by page: when its host first asked to be left alone
}

// row is a row of failures.
type row struct {
	n    int
	last time.Time // when the last of them was counted
}

func newTrouble() *trouble { return &trouble{inRow: map[string]row{}, asked: map[string]time.Time{}} }

// failed answers for how long the host is to be left alone after the failure of a request that was
// begun at a time. Once there is a pause, only a request that was begun after the failure before it
// makes it longer: all that are in flight when a connection is cut tell of one event, and not of a
// host that fails again and again.
func (t *trouble) failed(host string, code crawl.Code, begun time.Time) time.Duration {
	switch code {
	case crawl.CodeTimeout, crawl.CodeConnection, crawl.HTTPCode(503), crawl.HTTPCode(429):
	default:
		t.worked(host) // it answers
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.inRow) >= troubleHosts {
		clear(t.inRow)
	}
	r := t.inRow[host]
	if r.n < troubleFrom || !begun.Before(r.last) {
		r.n, r.last = r.n+1, time.Now()
		t.inRow[host] = r
	}
	over := r.n - troubleFrom
	if over < 0 {
		return 0
	}
	return min(troubleFirst<<min(over, 10), troubleMost)
}

// asks answers for how long requests of one page have been answered by the wish to be left
// alone. It is the page's own time: its host may well answer others.
func (t *trouble) asks(page string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.asked) >= troubleHosts {
		clear(t.asked)
	}
	first, ok := t.asked[page]
	if !ok {
		first = time.Now()
		t.asked[page] = first
	}
	return time.Since(first)
}

// worked says that the host answered.
func (t *trouble) worked(host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.inRow, host)
}
