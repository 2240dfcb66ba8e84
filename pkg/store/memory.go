package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

// How full a Redis may be, as shares of its maxmemory.
const (
	// FullMark is where nothing new is stored, [Store.Ready] says so, and workers begin to lease
	// less. The 5 % above it are for what the running jobs have in flight: their records, and the
	// links that they find.
	FullMark = 0.95
	// StopMark is where workers lease nothing. It is below 1, where Redis itself begins to refuse:
	// what is in flight must find room, and rings must reach the queue, whose scripts are not ours.
	StopMark = 0.98
)

const (
	// backMark is below FullMark by what one job gives or takes, so that a Redis that stands at
	// the mark does not fill the log.
	backMark = FullMark - 0.01
	// memoryAge is how old an answer may be: in a second the fastest commits add some ten MB, and
	// one INFO a second costs a Redis nothing.
	memoryAge = time.Second
	// memoryTrust is how long the last answer holds when Redis gives none.
	memoryTrust = 10 * time.Second
	// memoryPatience is the longest that a call waits for an answer, which takes less than a
	// millisecond; one that never comes costs one call so much, and those after it nothing.
	memoryPatience = 100 * time.Millisecond
	// memoryTimeout bounds one question.
	memoryTimeout = 3 * time.Second
	// fullRetry is when to come again: memory comes back as jobs expire, or as somebody acts.
	fullRetry = 30 * time.Second
)

// Pressure answers how full the Redis is that holds what a tenant has, as the share of its
// maxmemory that is used: above [FullMark] nothing new is stored, above [StopMark] nothing is to be
// leased. It can be above 1. It is 0 where that is not known: Redis has no maxmemory, does not
// answer, or does not tell. The answer is at most a second old, and one above FullMark is new: those
// who want to know then wait for Redis together, and no longer than a tenth of a second.
func (s *Store) Pressure(ctx context.Context, tenant string) float64 {
	node, err := s.nodeOf(ctx, tenant)
	if err != nil {
		return 0
	}
	return s.memory.of(node).share(ctx, node)
}

// node is one master.
type node interface {
	Info(ctx context.Context, sections ...string) *redis.StringCmd
}

// nodeOf returns the master of a tenant's keys.
func (s *Store) nodeOf(ctx context.Context, tenant string) (node, error) {
	c, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return s.rdb, nil
	}
	m, err := c.MasterForKey(ctx, rootKey(tenant))
	if err != nil {
		return nil, fault(err)
	}
	return m, nil
}

// admit refuses what would store something new where Redis is full.
func (s *Store) admit(ctx context.Context, tenant string) error {
	if share := s.Pressure(ctx, tenant); share > FullMark {
		return full(share)
	}
	return nil
}

func full(share float64) *crawl.Fault {
	return &crawl.Fault{
		Code: crawl.CodeOverloaded, RetryAfter: fullRetry,
		Message: fmt.Sprintf("Redis is full: it uses %.1f %% of the memory that it may have, and above %.0f %% no new "+
			"job is taken. Nothing was stored. Send it again later, with the same Idempotency-Key, or delete ended jobs.",
			100*share, 100*FullMark),
	}
}

// replay answers a submission that was refused for lack of memory from the job that its key
// stored before, if there is one: that takes no memory. It costs nothing of the tenant's quota.
// Otherwise the answer is the refusal.
// nonce is that of this submission, which may have been stored all the same before its answer was
// lost and the client sent it again; empty where it was not sent.
func (s *Store) replay(ctx context.Context, n *NewJob, nonce string, refusal error) (Created, error) {
	if n.IdempotencyKey == "" || crawl.CodeOf(refusal) != crawl.CodeOverloaded {
		return Created{}, refusal
	}
	p := s.rdb.Pipeline()
	entry := p.HMGet(ctx, idemKey(n.Job.Tenant, n.IdempotencyKey), "job", "digest")
	own := p.HMGet(ctx, jobKey(n.Job), "digest", "nonce") // where the key itself is forgotten
	s.trips.Add(1)
	if _, err := p.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return Created{}, refusal
	}
	first, digest := n.Job, str(own.Val()[0])
	if id := str(entry.Val()[0]); id != "" {
		first.ID, digest = id, str(entry.Val()[1])
	}
	switch digest {
	case "":
		return Created{}, refusal
	case string(n.Digest[:]):
		if s.o.Replicas > 0 { // as for any other answer that the job is stored
			if err := s.awaitReplicas(ctx, first); err != nil {
				return Created{}, err
			}
		}
		job, err := s.Job(ctx, first)
		mine := nonce != "" && str(own.Val()[1]) == nonce // its ring is lost with the answer, and made by the sweep
		return Created{Job: job, Replayed: err == nil && !mine}, err
	default:
		return Created{}, keyReused(first.ID)
	}
}

// waitsForMemory says of a job that no worker has begun, or goes on with, that none can.
func (s *Store) waitsForMemory(ctx context.Context, tenant string, j *crawl.Job) {
	if j.WaitingFor == crawl.WaitingWorker && s.Pressure(ctx, tenant) > StopMark {
		j.WaitingFor = crawl.WaitingMemory
	}
}

// memoryReady reports whether Redis has memory left, and keeps what it has. It asks anew. A
// Cluster is full when all its masters are: the tenants of one that is full are refused each time
// with the reason, and those of the others are served.
func (s *Store) memoryReady(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	least := -1.0
	ask := func(ctx context.Context, n node) {
		u, err := askMemory(ctx, n)
		s.memory.of(n).keep(ctx, u, err)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case redis.HasErrorPrefix(err, "NOPERM"):
			err = fault(err) // or a full Redis would go unnoticed
		case err != nil:
			return // INFO memory is optional: an embedded server lacks it
		default:
			err = u.evicts()
		}
		if err != nil {
			errs = append(errs, err)
			return
		}
		if share := u.share(); least < 0 || share < least {
			least = share
		}
	}
	if c, ok := s.rdb.(*redis.ClusterClient); ok {
		err := c.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error { ask(ctx, m); return nil })
		if err != nil {
			return fault(err)
		}
	} else {
		ask(ctx, s.rdb)
	}
	if len(errs) > 0 {
		return errs[0]
	}
	if least > FullMark {
		return full(least)
	}
	return nil
}

// memoryUse is what one Redis says of its memory, in bytes.
type memoryUse struct {
	used, limit int64 // limit is 0 for none
	policy      string
}

// share is the used part of the limit, 0 without one.
func (u memoryUse) share() float64 {
	if u.limit <= 0 {
		return 0
	}
	return float64(u.used) / float64(u.limit)
}

// evicts refuses a Redis that would throw jobs away.
func (u memoryUse) evicts() error {
	if policy := cmp.Or(u.policy, "noeviction"); u.limit > 0 && policy != "noeviction" {
		return &crawl.Fault{
			Code: crawl.CodeOverloaded, RetryAfter: fullRetry,
			Message: "Redis may drop jobs when it is full: set its maxmemory-policy to noeviction, not " + policy + ".",
		}
	}
	return nil
}

// askMemory asks a Redis for its memory.
func askMemory(ctx context.Context, n node) (memoryUse, error) {
	text, err := n.Info(ctx, "memory").Result()
	if err != nil {
		return memoryUse{}, err
	}
	return parseMemory(text), nil
}

// parseMemory reads INFO memory. Buffers of replicas and of the append-only file are in the memory
// that is used, but Redis does not hold them against the limit.
func parseMemory(text string) (u memoryUse) {
	var apart int64
	numbers := map[string]*int64{
		"used_memory": &u.used, "maxmemory": &u.limit, "mem_not_counted_for_evict": &apart,
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n := numbers[name]; n != nil {
			*n, _ = strconv.ParseInt(value, 10, 64) // 0, which is unknown, of what is no number
		}
		if name == "maxmemory_policy" {
			u.policy = value
		}
	}
	u.used -= apart
	return u
}

// memory knows how full each master is.
type memory struct {
	log   *slog.Logger
	nodes sync.Map // address: *gauge
}

// of returns the gauge of a master.
func (m *memory) of(n node) *gauge {
	var addr string
	if c, ok := n.(*redis.Client); ok {
		addr = c.Options().Addr
	}
	g, ok := m.nodes.Load(addr)
	if !ok {
		g, _ = m.nodes.LoadOrStore(addr, &gauge{log: m.log, name: addr})
	}
	return g.(*gauge) //nolint:forcetypeassert // nothing else is put in
}

// gauge is how full one Redis was when it was asked last.
type gauge struct {
	log  *slog.Logger
	name string

	last atomic.Pointer[reading]
	mute atomic.Bool // the last question had no answer in time: nobody waits for the next

	mu     sync.Mutex
	asking chan struct{} // closed with the answer; nil while nobody asks
	told   float64       // the mark above which the log has it; 0 for none
}

type reading struct {
	at     time.Time // when it was kept
	known  time.Time // when Redis said so
	shared float64
}

// share answers how full the Redis is; 0 for unknown.
func (g *gauge) share(ctx context.Context, n node) float64 {
	// That it is full is not said by an old answer: it is asked again, and all goes on at once.
	if r := g.last.Load(); r != nil && r.shared <= FullMark && time.Since(r.at) < memoryAge {
		return r.shared
	}
	answered := g.ask(ctx, n)
	if !g.mute.Load() {
		wait := time.NewTimer(memoryPatience)
		defer wait.Stop()
		select {
		case <-answered:
		case <-ctx.Done():
		case <-wait.C:
			g.mute.Store(true)
		}
	}
	if r := g.last.Load(); r != nil && time.Since(r.known) < memoryTrust {
		return r.shared
	}
	return 0
}

// ask has one question on its way, whoever wants to know, and returns what its answer closes. It
// outlives the call that asked: others wait for it.
func (g *gauge) ask(ctx context.Context, n node) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asking != nil {
		return g.asking
	}
	answered := make(chan struct{})
	g.asking = answered
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), memoryTimeout)
	go func() {
		defer cancel()
		u, err := askMemory(ctx, n)
		g.keep(ctx, u, err)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.asking = nil
		close(answered)
	}()
	return answered
}

// keep takes an answer in. Where there is none the last one holds for a while, and nobody asks
// again at once.
func (g *gauge) keep(ctx context.Context, u memoryUse, err error) {
	now := time.Now()
	r := &reading{at: now, known: now, shared: u.share()}
	if err != nil {
		r.shared, r.known = 0, time.Time{}
		if last := g.last.Load(); last != nil && now.Sub(last.known) < memoryTrust {
			r.shared, r.known = last.shared, last.known
		}
	} else {
		g.mute.Store(false)
	}
	g.last.Store(r)
	if err == nil {
		g.tell(ctx, r.shared)
	}
}

// tell says in the log, once, that a Redis became full, or has room again.
func (g *gauge) tell(ctx context.Context, share float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	mark := g.told
	switch {
	case share > StopMark:
		mark = StopMark
	case share > FullMark:
		mark = max(mark, FullMark)
	case share < backMark:
		mark = 0
	}
	if mark == g.told {
		return
	}
	g.told = mark
	log := g.log.With(slog.String("node", g.name), slog.Float64("used", share))
	switch mark {
	case StopMark:
		log.WarnContext(ctx, "Redis is full: workers lease nothing until it has memory again")
	case FullMark:
		log.WarnContext(ctx, "Redis is full: no new job is taken, workers lease less")
	default:
		log.InfoContext(ctx, "Redis has memory again: jobs are taken and go on")
	}
}
