package crawler

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

const (
	// batch is the number of results worth a round trip at once: twice that makes
	// no page cheaper, and a crash repeats what was not committed.
	batch = 16
	// linger is how long the first results of a batch wait for more while many
	// requests are in flight.
	linger = 2 * time.Millisecond
	// leaseMost bounds one lease, so that a slice on a slow host does not sit on
	// URLs that another could fetch.
	leaseMost = 64
	// hold is the longest wait for a deferred URL that is worth keeping an idle
	// slice for; beyond it the sweep rings.
	hold = time.Second
	// lookAgain is the pause before another lease while pages are in flight: other
	// slices find links, and what is deferred becomes due.
	lookAgain = 2 * time.Second
	// retryLease is the pause before another lease when URLs are queued but the
	// job's concurrency is used up by other slices.
	retryLease = 200 * time.Millisecond
)

// itemID tells the items of a job apart: each kind has numbers of its own.
type itemID struct {
	kind crawl.ItemKind
	n    int64
}

func idOf(it crawl.Item) itemID { return itemID{it.Kind, it.N} }

// page is one leased URL on its way: a page, or a sitemap, which waits for its host and
// holds its slots in the same way.
type page struct {
	item  crawl.Item
	url   crawl.URL // item.Target; zero when that is no URL
	host  *host
	slot  int64         // of the host; 0 before one is granted
	delay time.Duration // between starts, for which the slot was granted
	start time.Time     // not before; set with slot
	since time.Time     // leased
	// fetched is when its request ended; zero when there was none.
	fetched time.Time
	waits   string // what it waits for, when it is given back to wait
	// deferred is why it is given back to wait, as the metrics have it; empty for what waits says.
	deferred string
	// answers is where the visit of a sitemap hears what became of a part: there is one
	// on its way at a time, so that a large one neither fills memory nor the pipeline.
	answers chan store.MapCommitted
}

// result is what became of a page: a commit, or nothing to count.
type result struct {
	page    *page
	commit  store.Commit
	sitemap *store.MapCommit // in place of commit, of a sitemap
	back    bool             // aborted: the item goes back
	again   bool             // its start was used otherwise, or came too early: it needs another
	wait    time.Duration    // with back: it is due then
	slow    time.Duration    // the host asked for a pause
	weight  int64            // bytes that it holds of the process's pending
}

// part reports whether the visit goes on.
func (r *result) part() bool { return r.sitemap != nil && r.sitemap.Outcome == store.MapPart }

// turn is one slice at work. All fields are the loop's own, run by one goroutine;
// others speak to it through channels.
type turn struct {
	c     *Crawler
	sl    *store.Slice
	log   *slog.Logger
	rules *crawl.Rules
	agent agent
	wants wants
	jar   http.CookieJar

	io      context.Context // of store calls: outlives the handler's, to give back
	fetches context.Context // of requests
	abort   context.CancelFunc

	held     map[itemID]*page
	hosts    map[string]*host
	slots    *slotBook
	ready    []*page // granted, waiting for their start
	inFlight int
	visitors int        // goroutines that visit pages, at least inFlight
	work     chan *page // to them; closed at the end
	results  chan result
	done     []result
	returns  []store.Return
	known    knownLinks

	started   time.Time
	firstDone time.Time       // when the oldest of done came
	nextLease time.Time       // zero: with the next commit only
	roomFreed <-chan struct{} // closed when there may be room again; nil while there is
	barren    int             // pages deferred for hosts that are shut, since one was started
	shuts     int             // how often a host was found shut since then
	restUntil time.Time       // when the first of those hosts opens
	worked    bool            // a page was started
	leaves    []store.HostLeave
	slowUntil time.Time // no lease before, since Redis has little memory
	starved   bool      // it had none, and this slice nothing in flight
	winding   bool      // lease nothing more
	retire    bool      // say so to the store with the next round trip
	replaced  bool      // another was rung for when it retired
	lost      bool      // the slice is not ours any more
	moot      bool      // the job has ended: there is no slice to close
	why       ending    // set once it winds down
	count     outcomes
	parts     atomic.Int64 // parts of sitemaps that were made
	sending   int64        // bytes of pending that the commits of the exchange at hand hold
	recording []*page      // whose outcomes the exchange at hand brings to the store
}

func newTurn(c *Crawler, sl *store.Slice, log *slog.Logger) (*turn, error) {
	rules, err := sl.Plan.Rules()
	if err != nil {
		return nil, fmt.Errorf("rules of job %s: %w", sl.Job.ID, err)
	}
	by := agentOf(&sl.Plan, &c.o)
	wants, err := wantsOf(&sl.Plan, by)
	if err != nil {
		return nil, fmt.Errorf("fields of job %s: %w", sl.Job.ID, err)
	}
	return &turn{
		c: c, sl: sl, log: log, rules: rules, agent: by, wants: wants, jar: c.jars.of(sl.Job),
		held: map[itemID]*page{}, hosts: map[string]*host{}, slots: newSlotBook(),
		work: make(chan *page), results: make(chan result, max(1, sl.Plan.Concurrency)), known: newKnownLinks(c.o.Store),
	}, nil
}

// run serves the slice to its end. What it still holds then is given back by End.
func (t *turn) run(ctx context.Context) error {
	var stop context.CancelFunc
	t.io, stop = context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	t.fetches, t.abort = context.WithCancel(context.WithoutCancel(ctx))
	defer t.abort()
	t.c.room.join()
	defer t.c.room.leave(t)
	t.c.o.Metrics.slices.Inc()
	defer t.c.o.Metrics.slices.Dec()
	t.started = time.Now()
	t.nextLease = t.started
	t.log.DebugContext(ctx, "slice begins")

	news := make(chan pulse, 1)
	beating := make(chan struct{})
	go func() { defer close(beating); t.beat(t.io, news) }()
	defer func() { stop(); <-beating }()
	defer close(t.work)
	defer func() {
		if v := recover(); v != nil {
			t.giveUp() // or the room of this process stays taken
			t.why = endedError
			t.tell(ctx)
			panic(v)
		}
	}()

	drain, drop, ended := t.c.drain, t.c.drop, ctx.Done()
	for {
		t.startReady()
		if x, ok := t.next(); ok {
			if err := t.exchange(x); err != nil {
				t.giveUp()
				t.why = endedError
				t.tell(ctx)
				return err
			}
			continue
		}
		if t.over() {
			break
		}
		wake := t.timer()
		select {
		case r := <-t.results:
			t.collect(r)
		case p := <-news:
			t.heed(p)
		case <-t.roomFreed:
			t.roomFreed = nil
			t.nextLease = time.Now()
		case <-drain:
			drain = nil
			t.endFor(endedDraining)
			first := !t.winding
			t.windDown(true)
			// Another worker takes its place now, and not when the slowest page has ended.
			t.retire = t.retire || first && len(t.held) > 0
		case <-drop:
			drop = nil
			t.windDown(true)
			t.abort()
		case <-ended:
			// The queue takes its task back: as after drop.
			ended = nil
			t.endFor(endedRecalled)
			t.windDown(true)
			t.abort()
		case <-wake.C:
		}
		wake.Stop()
	}
	t.tell(ctx)
	return nil
}

// over reports whether nothing is left to do in this slice.
func (t *turn) over() bool {
	return len(t.held) == 0 && t.inFlight == 0 && (t.winding || (t.nextLease.IsZero() && t.roomFreed == nil))
}

// timer fires when the loop has something to do that no channel tells.
func (t *turn) timer() *time.Timer {
	at := t.started.Add(sliceBudget)
	by := func(when time.Time) {
		if !when.IsZero() && when.Before(at) {
			at = when
		}
	}
	if t.winding {
		at = time.Now().Add(time.Second)
	} else if t.roomFreed == nil {
		by(t.nextLease)
	}
	if len(t.done) > 0 {
		by(t.firstDone.Add(linger))
	}
	for _, p := range t.ready {
		by(p.start)
	}
	for _, h := range t.hosts {
		if len(h.pending) > 0 && !h.blocked() {
			by(h.nextTry)
		}
	}
	return time.NewTimer(time.Until(at))
}

// startReady starts the pages whose time has come.
func (t *turn) startReady() {
	now := time.Now()
	later := t.ready[:0]
	for _, p := range t.ready {
		if p.start.After(now) {
			later = append(later, p)
			continue
		}
		t.inFlight++
		t.barren, t.shuts, t.restUntil, t.worked = 0, 0, time.Time{}, true
		if t.visitors < t.inFlight {
			t.visitors++
			go t.visitor()
		}
		t.work <- p // one more visitor is there than pages are in flight: it takes this one, now or in a moment
	}
	clear(t.ready[len(later):])
	t.ready = later
}

// visitor visits one page after the other to the end of the slice. One that was made for each page would have to grow
// its stack each time, which is a twelfth of what a page costs.
func (t *turn) visitor() {
	for p := range t.work {
		if p.item.Kind == crawl.ItemSitemap {
			t.results <- t.visitMap(p)
		} else {
			t.results <- t.visit(p)
		}
	}
}

func (t *turn) collect(r result) {
	if !r.part() {
		t.inFlight--
	}
	t.take(r)
}

// take keeps a result until it is sent.
func (t *turn) take(r result) {
	if len(t.done) == 0 {
		t.firstDone = time.Now()
	}
	t.done = append(t.done, r)
}

// windDown leases nothing more. What has not started goes back: at once when all is
// to be dropped, else only what has no start granted.
func (t *turn) windDown(all bool) {
	t.winding, t.roomFreed = true, nil
	t.c.room.pass(t)
	if all {
		for _, p := range t.ready {
			t.giveBack(p, 0)
		}
		t.ready = nil
	}
	for _, h := range t.hosts {
		for _, p := range h.pending {
			t.giveBack(p, 0)
		}
		h.pending = nil
		t.leaveLine(h)
	}
}

// giveWay leases nothing more because the slice was served long enough. What is in
// flight may take half a minute yet; meanwhile its place, in the job and in this
// process, is another's.
func (t *turn) giveWay() {
	t.endFor(endedBudget)
	t.windDown(false)
	if len(t.held) > 0 {
		t.retire = true
		t.c.free(t.sl.Job)
	}
}

// giveBack returns an item with no attempt burnt.
func (t *turn) giveBack(p *page, delay time.Duration) {
	if p.slot != 0 {
		t.slots.free(p.host, p.slot)
		p.slot = 0
	}
	delete(t.held, idOf(p.item))
	t.c.room.give(1)
	t.c.o.Metrics.leaves(p)
	if !t.lost {
		t.c.o.Metrics.defers(p, delay)
		t.returns = append(t.returns, store.Return{Item: p.item, Delay: delay, For: p.waits})
	}
}

// heed does what a pulse says.
func (t *turn) heed(p pulse) {
	switch {
	case p.lost:
		t.lose()
	case p.state == crawl.Running:
		if p.yield && !t.winding {
			t.giveWay()
		}
	case p.state == crawl.Paused || p.state == crawl.Queued: // resumed, and it waits at the run gate
		t.endFor(endedPaused)
		first := !t.winding
		t.windDown(true)
		if first && len(t.held) > 0 {
			// As in giveWay: once the job is resumed another takes its place at once.
			t.retire = true
			t.c.free(t.sl.Job)
		}
	case p.state != "":
		t.moot = p.state.Terminal()
		t.endFor(endOf(p.state))
		t.windDown(true)
		t.abort()
	}
}

// lose drops everything: the store gave it to others, or cancelled it.
func (t *turn) lose() {
	t.lost, t.why = true, endedLost
	t.abort()
	t.windDown(true)
	t.returns = nil
}

// next makes up the next round trip; false when there is nothing to send now.
func (t *turn) next() (store.Exchange, bool) {
	for drained := false; !drained; {
		select {
		case r := <-t.results:
			t.collect(r)
		default:
			drained = true
		}
	}
	now := time.Now()
	if !t.winding && now.Sub(t.started) >= sliceBudget {
		t.giveWay()
	}
	var x store.Exchange
	if len(t.done) > 0 && (len(t.done) >= batch || t.inFlight < batch || now.Sub(t.firstDone) >= linger) {
		t.settle(&x)
	}
	x.Returns, t.returns = t.returns, nil
	x.Free = t.slots.takeFreed()
	x.Leave, t.leaves = t.leaves, nil
	x.Retire, t.retire = t.retire, false
	if !t.lost {
		if !t.winding && (len(x.Commits)+len(x.Maps) > 0 || (!t.nextLease.IsZero() && !now.Before(t.nextLease))) {
			x.Lease, x.Holding = t.wanted(), len(t.held)
		}
		x.Reserves = t.reserves(now)
	}
	ok := len(x.Commits)+len(x.Maps)+len(x.Returns)+len(x.Free)+len(x.Leave)+len(x.Reserves)+x.Lease > 0 || x.Retire
	return x, ok
}

// wanted takes room for the next lease.
func (t *turn) wanted() int {
	want := min(leaseMost, t.sl.Plan.Concurrency-len(t.held))
	if want <= 0 || t.fruitless() {
		t.nextLease = time.Time{}
		t.c.room.pass(t)
		return 0
	}
	if want = t.sparing(want); want == 0 {
		return 0
	}
	n, freed := t.c.room.take(t, want, len(t.held))
	t.roomFreed = nil
	if n == 0 {
		t.roomFreed = freed
		t.slowUntil = time.Time{} // nothing was leased: its place in the line for room is not to be passed on
	}
	return n
}

// settle turns results into commits and returns.
func (t *turn) settle(x *store.Exchange) {
	var again []*page
	for _, r := range t.done {
		switch {
		case r.part():
			if !t.lost {
				x.Maps = append(x.Maps, *r.sitemap)
			}
		case r.back || t.lost || r.again && t.winding:
			t.c.pending.free(r.weight)
			t.giveBack(r.page, r.wait)
			if r.slow > 0 {
				x.Slow = append(x.Slow, store.HostDelay{Host: r.page.host.name, Wait: r.slow})
			}
			t.count.released++
			t.c.o.Metrics.sentBack(r.page, t.lost)
		case r.again:
			again = append(again, r.page)
		default:
			t.slots.free(r.page.host, r.page.slot)
			delete(t.held, idOf(r.page.item))
			t.c.room.give(1)
			if r.slow > 0 {
				x.Slow = append(x.Slow, store.HostDelay{Host: r.page.host.name, Wait: r.slow})
			}
			t.recording = append(t.recording, r.page)
			if r.sitemap != nil {
				x.Maps = append(x.Maps, *r.sitemap)
				continue
			}
			t.known.strip(r.commit.Accepted)
			x.Commits = append(x.Commits, r.commit)
			t.sending += r.weight
		}
	}
	clear(t.done)
	t.done = t.done[:0]
	t.startAnew(again)
}

// startAnew has pages ask for another start, before all others of their host. What is
// known by now of their robots.txt, and of those that wait with them, counts at once.
func (t *turn) startAnew(pages []*page) {
	for _, p := range slices.Backward(pages) {
		t.slots.free(p.host, p.slot)
		p.slot = 0
		p.host.pending = slices.Insert(p.host.pending, 0, p)
	}
	asked := map[*host]bool{}
	for _, p := range pages {
		if asked[p.host] {
			continue // a large robots.txt takes its time for each URL
		}
		asked[p.host] = true
		waiting := p.host.pending
		p.host.pending = nil
		for _, w := range waiting {
			if t.permit(w) {
				p.host.pending = append(p.host.pending, w)
			}
		}
	}
}

// exchange makes a round trip and takes in its answer. While the store does not
// answer it tries again, for as long as results are worth keeping.
func (t *turn) exchange(x store.Exchange) error {
	defer func() {
		t.c.pending.free(t.sending)
		t.sending = 0
		clear(t.recording)
		t.recording = t.recording[:0]
	}()
	var out store.Exchanged
	for failing, pause := time.Now(), 100*time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		begun := time.Now()
		var err error
		out, err = t.c.o.Store.Exchange(t.io, t.sl, x)
		if err == nil {
			t.c.o.Metrics.since(t.c.o.Metrics.exchange, begun)
			t.known.spoke(time.Now())
			break
		}
		t.known.restore()
		code := crawl.CodeOf(err)
		// A Redis that is full answers, and the slice is renewed: its results are worth keeping.
		if code != crawl.CodeOverloaded && (code != crawl.CodeUnavailable || time.Since(failing) > outage) {
			t.c.room.give(x.Lease)
			return fmt.Errorf("slice of job %s: %w", t.sl.Job.ID, err)
		}
		if pause == 100*time.Millisecond {
			t.log.WarnContext(t.io, "the store does not answer, results are kept", slog.Any("err", err))
		}
		// What the lost answer granted is unknown here. The next lease learns of the
		// items; the slots go back, and are asked for again under other numbers.
		t.c.room.give(x.Lease)
		for _, r := range x.Reserves {
			free := store.HostSlots{Host: r.Host}
			for k := range int64(r.N) {
				free.Slots = append(free.Slots, r.First+k)
			}
			x.Free = append(x.Free, free)
		}
		if x.Lease > 0 && !t.winding {
			t.nextLease = time.Now()
		}
		x.Lease, x.Reserves = 0, nil
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-t.c.drop:
			wait.Stop()
			return fmt.Errorf("slice of job %s, stopping: %w", t.sl.Job.ID, err)
		}
	}
	t.takeIn(&x, &out)
	return nil
}

// takeIn does what an answer says.
func (t *turn) takeIn(x *store.Exchange, out *store.Exchanged) {
	for i, c := range out.Committed {
		t.c.o.Metrics.page(&x.Commits[i], c.Verdict)
		t.count.settled(&x.Commits[i], c.Verdict)
		if c.Verdict == store.Stale && !t.lost {
			t.known.clear()
		}
	}
	t.known.keep(x.Commits, out.Committed)
	t.heard(x.Maps, out.Mapped)
	// What is rung as this slice retires is for the one that takes its place.
	place := 0
	if x.Retire {
		place = 1
	}
	if t.c.ring(t.io, t.c.needed(t.io, t.sl.Job, out.Rings, place)); x.Retire {
		t.replaced = slices.ContainsFunc(out.Rings, func(r crawl.Ring) bool { return r.JobRef == t.sl.Job })
	}
	now := time.Now()
	for _, p := range t.recording {
		t.c.o.Metrics.settled(p, now)
	}
	if x.Lease > 0 {
		fresh := 0
		for _, it := range out.Items {
			if t.held[idOf(it)] == nil { // else the store told all, because an answer was lost
				t.admit(it, now)
				fresh++
			}
		}
		t.c.room.settle(x.Lease, fresh)
		t.count.leased += fresh
		if fresh > 0 {
			t.c.o.Metrics.leased.Observe(float64(fresh))
		}
		switch {
		case fresh >= x.Lease && out.Queued > 0:
			t.nextLease = now // there is more
		case out.Queued > 0:
			t.nextLease = now.Add(retryLease)
		case len(x.Commits)+len(x.Maps) > 0 && len(t.held) == 0:
			// Before it ends, the slice looks once more by itself: a Redis that had
			// to be told the commit script anew carried out this lease first.
			t.nextLease = now
		case out.NextDue >= 0 && out.NextDue <= hold:
			t.nextLease = now.Add(max(out.NextDue, retryLease))
		case len(t.held) > 0 && out.NextDue >= 0:
			t.nextLease = now.Add(min(out.NextDue, lookAgain))
		case len(t.held) > 0:
			t.nextLease = now.Add(lookAgain)
		default:
			t.nextLease = time.Time{}
		}
		if len(t.held) >= t.sl.Plan.Concurrency {
			t.nextLease = time.Time{} // until something is committed or given back
		}
		t.heed(pulse{state: out.State, lost: out.Lost})
	}
	for i := range out.Grants {
		t.granted(&out.Grants[i], &x.Reserves[i], now)
	}
}

// admit takes a leased item in.
func (t *turn) admit(it crawl.Item, now time.Time) {
	p := &page{item: it, since: now}
	if it.Kind == crawl.ItemSitemap {
		p.answers = make(chan store.MapCommitted, 1)
	}
	t.held[idOf(it)] = p
	u, err := crawl.ParseURL(it.Target())
	if err != nil {
		// Nothing to wait for: visit says what is wrong with it.
		p.host = t.host("")
		p.start = now
		t.ready = append(t.ready, p)
		return
	}
	p.url, p.host = u, t.host(u.PolitenessHost())
	if t.permit(p) {
		p.host.pending = append(p.host.pending, p)
	}
}

// giveUp ends a slice that cannot speak to the store: nothing is committed any more,
// the sweep of any worker takes its leases back.
func (t *turn) giveUp() {
	t.abort()
	for _, r := range t.done {
		t.c.pending.free(r.weight)
	}
	for t.inFlight > 0 {
		r := <-t.results
		t.c.pending.free(r.weight)
		if !r.part() {
			t.inFlight--
		}
	}
	t.c.pending.free(t.sending)
	t.sending = 0
	t.c.room.give(len(t.held))
}
