package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"example.com/trawl/pkg/crawl"
)

const (
	pollers   = 4
	pollEvery = 25 * time.Millisecond // of each poller
	lookEvery = 40 * time.Millisecond // of the look into Redis: one job each time
	walkEvery = 150 * time.Millisecond
	mindEvery = 100 * time.Millisecond
)

// running is what goes on while Run or Finish are at work.
type running struct {
	ctx   context.Context // of the calls that Do starts, which end with Run
	group sync.WaitGroup
}

// Run keeps jobs in flight and watches them until ctx ends, and then waits for what it started. It
// is called once, before Finish.
func (l *Load) Run(ctx context.Context) {
	r := l.watch(ctx)
	for i, tenant := range l.tenants {
		share := max(1, l.o.InFlight/max(1, len(l.tenants)))
		if i == 0 { // one of them always has more than may run, if its quota is that of the others
			share *= 2
		}
		r.group.Go(func() { l.submitter(ctx, tenant, share) })
	}
	l.rest(r)
}

// watch starts all that reads.
func (l *Load) watch(ctx context.Context) *running {
	r := &running{ctx: ctx}
	l.mu.Lock()
	l.run = r
	l.mu.Unlock()
	for i := range pollers {
		r.group.Go(func() { l.poller(ctx, i) })
	}
	r.group.Go(func() { l.looker(ctx) })
	r.group.Go(func() { l.walker(ctx) })
	r.group.Go(func() { l.minder(ctx, r) })
	return r
}

// rest waits for the end of what watch, and Do, started.
func (l *Load) rest(r *running) {
	<-r.ctx.Done()
	l.mu.Lock()
	l.run = nil // so that Do starts nothing more
	l.mu.Unlock()
	r.group.Wait()
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
}

// start runs a call that Do asks for beside it; false when nothing runs.
func (l *Load) start(f func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.run
	if r == nil || r.ctx.Err() != nil {
		return false
	}
	r.group.Go(func() { f(r.ctx) })
	return true
}

// random is a source of the load's seed, its own for each name.
func (l *Load) random(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(uint64(l.o.Seed), h.Sum64()))
}

// submitter keeps so many jobs of a tenant in flight.
func (l *Load) submitter(ctx context.Context, tenant string, share int) {
	r := l.random("jobs of " + tenant)
	for n := 0; ctx.Err() == nil; {
		flying := 0
		for _, j := range l.live() {
			if j.tenant == tenant {
				flying++
			}
		}
		if flying >= share {
			wait(ctx, 50*time.Millisecond)
			continue
		}
		l.submit(ctx, l.draft(tenant, n, r))
		n++
	}
}

// submit submits a job until it is answered; what is not before ctx ends is noted for Finish.
func (l *Load) submit(ctx context.Context, j *job) {
	first := j.sent.Load() == 0
	a, tries, err := l.until(ctx, &call{
		tenant: j.tenant, method: http.MethodPost, path: j.path, key: j.key, body: j.body,
	})
	j.sent.Add(int64(tries))
	l.count(func(f *figures) { f.repeats += int64(tries - 1) })
	if err != nil {
		l.mu.Lock()
		l.unanswered = append(l.unanswered, j)
		l.mu.Unlock()
		return
	}
	if a.status != http.StatusAccepted {
		l.violate(j, "a submission is refused", "%s", a)
		return
	}
	s, err := decodeStatus(a.body)
	if err != nil || !crawl.ValidJobID(s.ID) {
		l.violate(j, "a submission without a job", "%v, %s", err, a)
		return
	}
	if a.replayed && first && tries == 1 && !a.again {
		l.violate(j, "a new key is replayed", "the first submission of key %s is answered as a replay", j.key)
	}
	if j.retryOf != nil && s.RetryOf != j.retryOf.name() {
		l.violate(j, "wrong retry_of", "it is %q, want %s", s.RetryOf, j.retryOf.name())
	}
	j.change(func() { j.id = s.ID })
	if other := l.register(j, s.ID, a.replayed); other != nil {
		l.violate(j, "one id for two jobs", "key %s has it as well", other.key)
	}
}

// register notes a job that was accepted, or answers the one that has its id.
func (l *Load) register(j *job, id string, replayed bool) (other *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.figures.submitted++
	if replayed {
		l.figures.replays++
	}
	if other = l.byID[id]; other == nil {
		l.byID[id] = j
		l.jobs = append(l.jobs, j)
	}
	return other
}

// poller reads the status of live jobs in turn, and of an ended one now and then.
func (l *Load) poller(ctx context.Context, i int) {
	r := l.random("poller " + strconv.Itoa(i))
	for n := i; wait(ctx, pollEvery); n++ {
		from := l.live()
		if n%8 == 0 || len(from) == 0 {
			from = l.all()
		}
		if len(from) == 0 {
			continue
		}
		j := from[r.IntN(len(from))]
		if j.reading.TryLock() {
			l.read(ctx, j)
			j.reading.Unlock()
		}
	}
}

// read reads the status of a job and judges it. The caller holds j.reading.
func (l *Load) read(ctx context.Context, j *job) {
	began := j.epoch.Load()
	a, err := l.do(ctx, &call{tenant: j.tenant, method: http.MethodGet, path: "/v1/jobs/" + j.name()})
	if err != nil || a.later() {
		return
	}
	if a.status != http.StatusOK {
		l.violate(j, "an accepted job cannot be read", "%s", a)
		return
	}
	s, err := decodeStatus(a.body)
	if err != nil {
		l.violate(j, "a status that is none", "%v", err)
		return
	}
	l.count(func(f *figures) { f.reads++ })
	l.tell(j, "", j.byHTTP.see(s, began, l.epochOf(j)))
	if s.ID != j.name() {
		l.violate(j, "another job", "asked for %s, got %s", j.name(), s.ID)
	}
	if j.site && s.Total > j.maxPages {
		l.violate(j, "above max_pages", "total is %d, at most %d", s.Total, j.maxPages)
	}
	j.change(func() { j.known = s })
}

// epochOf answers the epoch of a job behind a read; one that no read before can have where a
// resume may still arrive.
func (l *Load) epochOf(j *job) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fuzzy {
		return -1
	}
	return j.epoch.Load()
}

// tell reports what reads found.
func (l *Load) tell(j *job, by string, found []finding) {
	for _, f := range found {
		l.violate(j, f.what, "%s%s", f.text, by)
	}
}

// looker looks at live jobs in Redis itself.
func (l *Load) looker(ctx context.Context) {
	r := l.random("looker")
	for wait(ctx, lookEvery) {
		if from := l.live(); len(from) > 0 {
			l.look(ctx, from[r.IntN(len(from))])
		}
	}
}

// look looks at a job in Redis and judges it; nil when Redis does not answer.
func (l *Load) look(ctx context.Context, j *job) *status {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	j.looking.Lock()
	defer j.looking.Unlock()
	began := j.epoch.Load()
	got, err := l.stored(ctx, crawl.JobRef{Tenant: j.tenant, ID: j.name()})
	switch code := crawl.CodeOf(err); {
	case code == crawl.CodeNotFound || code == crawl.CodeExpired:
		l.violate(j, "an accepted job is gone from Redis", "%v", err)
		return nil
	case err != nil:
		return nil
	}
	l.count(func(f *figures) { f.looks++ })
	s := statusOf(&got)
	l.tell(j, " (in Redis)", j.byRedis.see(s, began, l.epochOf(j)))
	return s
}

// walker walks the records of one job after another and reads pages of them twice.
func (l *Load) walker(ctx context.Context) {
	r := l.random("walker")
	for wait(ctx, walkEvery) {
		from := l.all()
		if len(from) == 0 {
			continue
		}
		j := from[r.IntN(len(from))]
		l.walk(ctx, j, 1+r.IntN(100), r.IntN(4))
	}
}

// recordPage is a page of records, each as it came.
type recordPage struct {
	items []recordLine
	next  string
	more  bool
}

type recordLine struct {
	Seq       int64  `json:"seq"`
	SourceURL string `json:"source_url"`
	Item      *int   `json:"item"`
	raw       string
}

// decodeRecords reads a page of records.
func decodeRecords(a *answer) (*recordPage, error) {
	var wire struct {
		Items []json.RawMessage `json:"items"`
		Next  string            `json:"next_cursor"`
		More  bool              `json:"has_more"`
	}
	if a.status != http.StatusOK {
		return nil, errors.New(a.String())
	}
	if err := json.Unmarshal(a.body, &wire); err != nil {
		return nil, fmt.Errorf("a page that is none: %w", err)
	}
	p := &recordPage{next: wire.Next, more: wire.More, items: make([]recordLine, len(wire.Items))}
	for i, raw := range wire.Items {
		if err := json.Unmarshal(raw, &p.items[i]); err != nil {
			return nil, fmt.Errorf("a record that is none: %w", err)
		}
		p.items[i].raw = string(raw)
	}
	return p, nil
}

// walk reads the records of a job as they are now, and again the page that is number twice.
func (l *Load) walk(ctx context.Context, j *job, limit, twice int) {
	seen, cursor := map[string]bool{}, ""
	seq := int64(0)
	for n := 0; ; n++ {
		p := l.records(ctx, j, cursor, limit)
		if p == nil {
			return
		}
		for _, line := range p.items {
			if seq++; line.Seq != seq {
				l.violate(j, "records are not in order", "record %d where %d is next", line.Seq, seq)
				return
			}
			if line.Item == nil && seen[line.SourceURL] {
				l.double(j, line.SourceURL)
			}
			seen[line.SourceURL] = true
		}
		if n == twice {
			l.again(ctx, j, cursor, limit, p)
		}
		if cursor = p.next; !p.more || cursor == "" {
			return
		}
	}
}

// again reads a page of records once more: it may have grown at its end, if it was not full.
func (l *Load) again(ctx context.Context, j *job, cursor string, limit int, was *recordPage) {
	is := l.records(ctx, j, cursor, limit)
	if is == nil {
		return
	}
	l.count(func(f *figures) { f.pages++ })
	fault := len(is.items) < len(was.items) || was.more && len(is.items) != len(was.items)
	for i := 0; !fault && i < len(was.items); i++ {
		fault = was.items[i].raw != is.items[i].raw
	}
	if fault {
		l.violate(j, "a cursor gives another page", "%d and then %d records, or others, at %q",
			len(was.items), len(is.items), cursor)
	}
}

// records reads a page of records; nil when it is not answered.
func (l *Load) records(ctx context.Context, j *job, cursor string, limit int) *recordPage {
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	a, err := l.do(ctx, &call{
		tenant: j.tenant, method: http.MethodGet, path: "/v1/jobs/" + j.name() + "/records", query: query,
	})
	if err != nil || a.later() {
		return nil
	}
	p, err := decodeRecords(a)
	if err != nil {
		l.violate(j, "records cannot be read", "%v", err)
		return nil
	}
	return p
}

// minder resumes paused jobs after 1 to 6 s, whoever paused them, so that all end.
func (l *Load) minder(ctx context.Context, r *running) {
	rng := l.random("minder")
	for wait(ctx, mindEvery) {
		for _, j := range l.live() {
			if j.state() != crawl.Paused {
				continue
			}
			now, due := time.Now(), false
			j.change(func() {
				if j.resumeAt.IsZero() {
					j.resumeAt = now.Add(time.Second + time.Duration(rng.IntN(5000))*time.Millisecond)
				}
				due = now.After(j.resumeAt)
			})
			if due && j.busy.CompareAndSwap(false, true) {
				r.group.Go(func() {
					defer j.busy.Store(false)
					l.resume(ctx, j)
				})
			}
		}
	}
}
