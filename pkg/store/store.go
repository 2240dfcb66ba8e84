package store

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

// Options of a [Store]. The zero value is usable.
type Options struct {
	// Replicas that must have a submission before it is answered; 0 for none. A
	// failover of an asynchronous replica can otherwise lose the last second.
	Replicas int
	// Now replaces Redis time in tests, as ms since the epoch; nil in production.
	Now func() int64
	// Sweeps says which tenants [Store.Sweep] visits, for tests that share a Redis: a sweep by
	// another test's clock would end their jobs, and its rings go to that test's queue. Nil
	// in production: all of them.
	Sweeps func(tenant string) bool
	// Logger is where defects are told that no caller can act on; nil discards.
	Logger *slog.Logger
}

// Store is the one door to what the service remembers. It is safe for use by any
// number of goroutines and does not own its client.
type Store struct {
	rdb    redis.UniversalClient
	o      Options
	trips  atomic.Int64
	memory memory
	sliced bool // over a Cluster

	mu   sync.Mutex
	idle map[string]time.Time // tenants that need no sweep before then
}

// New makes a store over a client that the caller opened and closes. It does no I/O.
func New(rdb redis.UniversalClient, o Options) *Store {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	_, sliced := rdb.(*redis.ClusterClient)
	s := &Store{rdb: rdb, o: o, sliced: sliced, idle: map[string]time.Time{}}
	s.memory.log = o.Logger
	return s
}

// Trips answers the number of round trips made so far: what bench divides by pages.
func (s *Store) Trips() int64 { return s.trips.Load() }

// now is the first argument of every script: empty for Redis time.
func (s *Store) now() string {
	if s.o.Now == nil {
		return ""
	}
	return strconv.FormatInt(s.o.Now(), 10)
}

// replicaWait bounds the wait for Options.Replicas.
const replicaWait = time.Second

// parallelism is the number of slices that may serve a job at once: one for each
// four pages of its concurrency, so that a slice's part stays worth a pipeline, and
// no more than 16, since more add round trips and no speed.
func parallelism(concurrency int) int { return min(16, max(1, (concurrency+3)/4)) }

// Create stores a submission, or finds the job that its idempotency key named
// before. Faults: idempotency_key_reused with the first job's id when that key
// named another input, expired when the job of that key is gone, rate_limited and
// quota_exceeded with the bound that was met and when to try again, invalid for a collection
// above [crawl.MaxCollections], wrong_state for one that a newer version of Trawl keeps, unavailable and overloaded when nothing was stored; and an
// [*OtherDefinitionError]. A replay costs as much of the tenant's submissions a
// second as a new job, and nothing else of its quota. Where Redis is full, see [FullMark], it is
// answered all the same, and costs nothing.
func (s *Store) Create(ctx context.Context, n NewJob) (Created, error) {
	if err := s.admit(ctx, n.Job.Tenant); err != nil {
		return s.replay(ctx, &n, "", err)
	}
	var nonce [12]byte
	_, _ = rand.Read(nonce[:]) // never fails
	args, err := s.createArgs(&n, nonce[:])
	if err != nil {
		return Created{}, err
	}
	root, idem := rootKey(n.Job.Tenant), rootKey(n.Job.Tenant)
	if n.IdempotencyKey != "" {
		idem = idemKey(n.Job.Tenant, n.IdempotencyKey)
	}
	c := &call{script: createScript, keys: []string{root, jobKey(n.Job), idem}, args: args}
	if err := s.createFor(ctx, n.Job.Tenant, c); err != nil {
		return s.replay(ctx, &n, string(nonce[:]), err)
	}
	return s.created(ctx, &n, array(c.cmd))
}

// created reads what create.lua answers. The status comes with it: a read that failed behind a
// submission that did not would have to be told as a failure.
func (s *Store) created(ctx context.Context, n *NewJob, a []any) (Created, error) {
	verdict, first := str(a[0]), crawl.JobRef{Tenant: n.Job.Tenant, ID: str(a[1])}
	switch verdict {
	case "newer":
		return Created{}, newerCollection(n.Plan.Collection.Name)
	case "other":
		return Created{}, otherDefinition(n.Plan.Collection.Name, str(a[2]))
	case "refused":
		if str(a[2]) == "collections" {
			return Created{}, tooManyCollections(num(a[3]))
		}
		return Created{}, refused(str(a[2]), num(a[3]), time.Duration(num(a[4]))*time.Millisecond)
	case "reused":
		return Created{}, keyReused(first.ID)
	}
	if s.o.Replicas > 0 {
		if err := s.awaitReplicas(ctx, first); err != nil {
			return Created{}, err
		}
	}
	out := Created{Replayed: verdict == "replay", Rings: rings(n.Job.Tenant, a[3:])}
	status, _ := a[2].([]any)
	if verdict == "created" {
		out.Job = storedJob(n, status)
		return out, nil
	}
	var err error
	if out.Job, err = decodeJob(first, status); err != nil {
		return Created{}, err
	}
	s.waitsForMemory(ctx, first.Tenant, &out.Job)
	return out, nil
}

// storedJob is what a read of a job answers that was stored just now, of which create.lua says when,
// with how many URLs, and its rank among those that wait.
func storedJob(n *NewJob, a []any) crawl.Job {
	job := crawl.Job{
		ID: n.Job.ID, QueueTaskID: n.Job.ID, State: crawl.Queued, RetryOf: n.RetryOf,
		CreatedAt: time.UnixMilli(num(a[0])).UTC(), Total: num(a[1]), Queued: num(a[1]),
		SkippedByReason: map[crawl.Reason]int64{}, FailedByType: map[crawl.Code]int64{},
		RefusedByReason: map[crawl.Reason]int64{}, Spec: n.Spec, Tags: append([]string{}, n.Tags...),
	}
	job.WaitingFor, job.Position = waiting(&job, num(a[2]), 0, "", nil)
	return job
}

// createArgs encodes a submission as create.lua reads it.
func (s *Store) createArgs(n *NewJob, nonce []byte) ([]any, error) {
	plan, err := json.Marshal(&n.Plan)
	if err != nil {
		return nil, fmt.Errorf("store: plan: %w", err)
	}
	tags := n.Tags
	if tags == nil {
		tags = []string{}
	}
	tagList, err := json.Marshal(tags)
	if err != nil {
		return nil, fmt.Errorf("store: tags: %w", err)
	}
	maps, err := rootMaps(n)
	if err != nil {
		return nil, err
	}
	hook, err := webhookArg(n.Plan.Webhook)
	if err != nil {
		return nil, err
	}
	into, err := collectionArg(&n.Plan)
	if err != nil {
		return nil, err
	}
	site := 0
	if n.Plan.Site {
		site = 1
	}
	args := make([]any, 0, 23+2*len(maps)+2*len(n.Inputs))
	args = append(args, s.now(), n.Job.ID, n.Digest[:], nonce, []byte(n.Spec), plan, tagList)
	args = append(args, quotaArgs(n.Quota)...)
	args = append(args, n.Plan.Concurrency, n.Plan.MaxPages, max(0, n.Plan.MaxBytes), parallelism(n.Plan.Concurrency),
		n.Plan.Retention.Milliseconds(), n.Plan.TimeLimit.Milliseconds(), site, max(0, n.Plan.MaxKeptBytes), len(maps))
	for _, u := range maps {
		args = appendURL(args, u)
	}
	for _, in := range n.Inputs {
		args = appendURL(args, in.URL)
	}
	return append(args, n.RetryOf, into, hook), nil
}

// appendURL appends the dedupe key of a URL and the URL.
func appendURL(args []any, u crawl.URL) []any {
	k := u.Key()
	return append(args, k[:], u.String())
}

// createFor makes the tenant known to the sweeps and then stores its job: a job that no
// sweep visits could be lost with its ring. On one server the order of a pipeline does.
func (s *Store) createFor(ctx context.Context, tenant string, c *call) error {
	if _, ok := s.rdb.(*redis.ClusterClient); ok {
		s.trips.Add(1)
		if err := s.rdb.SAdd(ctx, tenantsKey, tenant).Err(); err != nil {
			return fault(err)
		}
		return s.run(ctx, nil, c)
	}
	var known *redis.IntCmd
	err := s.run(ctx, func(p redis.Pipeliner) { known = p.SAdd(ctx, tenantsKey, tenant) }, c)
	if err != nil {
		return err
	}
	return fault(known.Err())
}

// RingFailed notes that the queue refused a ring: the job stays, says so, and is
// rung by the next sweep.
func (s *Store) RingFailed(ctx context.Context, j crawl.JobRef, message string) error {
	_, err := s.one(ctx, ringFailedScript, []string{rootKey(j.Tenant), jobKey(j)}, s.now(), j.ID, message)
	return err
}

// Cancel stops a job in O(1) and answers its state. A job that ended first keeps
// its end; a second call is harmless, and after the grace it revokes what is still
// in flight. A job that a newer version of Trawl made is marked, and stopped by the next sweep
// of a worker of that version; its state is then as it was.
func (s *Store) Cancel(ctx context.Context, j crawl.JobRef) (CancelResult, error) {
	a, err := s.one(ctx, cancelScript, []string{rootKey(j.Tenant), jobKey(j)}, s.now(), j.ID)
	if err != nil {
		return CancelResult{}, err
	}
	if len(a) == 0 || str(a[0]) == "" {
		return CancelResult{}, s.missing(ctx, j)
	}
	return CancelResult{
		State: crawl.State(str(a[0])), GraceLeft: time.Duration(num(a[1])) * time.Millisecond,
		Rings: rings(j.Tenant, a[2:]),
	}, nil
}

// Delete removes an ended job and all it holds. Faults: job_not_terminal,
// not_found, expired; wrong_state of a job that a newer version of Trawl made.
func (s *Store) Delete(ctx context.Context, j crawl.JobRef) error {
	a, err := s.one(ctx, deleteScript, []string{rootKey(j.Tenant), jobKey(j)}, s.now(), j.ID)
	if err != nil {
		return err
	}
	switch str(a[0]) {
	case "deleted":
		return nil
	case "running":
		return crawl.Faultf(crawl.CodeJobNotTerminal, "Job %s has not ended. Cancel it first, or wait.", j.ID)
	case "newer":
		return newerFormat(j)
	case "gone":
		return expired(j, num(a[1]))
	default:
		return notFound(j)
	}
}

// newerFormat is the fault of a call that would have to know what a job of a newer format holds.
func newerFormat(j crawl.JobRef) error {
	return crawl.Faultf(crawl.CodeWrongState,
		"Job %s was made by a newer version of this service than the one that answers. Update that, or ask again.", j.ID)
}

func keyReused(first string) error {
	return &crawl.Fault{
		Code: crawl.CodeKeyReused, JobID: first,
		Message: "This Idempotency-Key was used before with another input, for job " + first +
			". Send the same input to get that job, or another key for a new one.",
	}
}

func notFound(j crawl.JobRef) error {
	return crawl.Faultf(crawl.CodeNotFound, "There is no job %s.", j.ID)
}

func expired(j crawl.JobRef, at int64) error {
	return &crawl.Fault{
		Code: crawl.CodeExpired, JobID: j.ID, At: time.UnixMilli(at).UTC(),
		Message: "Job " + j.ID + " is over and its results were removed. " +
			"Submit with another Idempotency-Key for a new job.",
	}
}

// missing tells a job that expired from one that never was.
func (s *Store) missing(ctx context.Context, j crawl.JobRef) error {
	_, err := s.Job(ctx, j)
	if err == nil {
		return notFound(j)
	}
	return err
}

// writableScript changes nothing and does not say so: Redis refuses it where it refuses writes.
// Memory is told apart.
const writableScript = "#!lua flags=allow-oom\nreturn redis.call('EXISTS', KEYS[1])"

// Ready reports whether the store can take work: it answers, takes writes, and has memory left,
// by [FullMark], the same mark above which it refuses submissions. A worker is not ready either
// then: nobody sends it requests, so that all it does is that a rollout waits. Nobody restarts it
// for that, which would make nothing better: what is asked for that is whether it is alive.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.rdb.Ping(ctx).Err(); err != nil {
		return fault(err)
	}
	err := s.rdb.Eval(ctx, writableScript, []string{rootKey("")}).Err()
	for _, prefix := range []string{"READONLY", "NOREPLICAS"} {
		if redis.HasErrorPrefix(err, prefix) {
			return &crawl.Fault{
				Code: crawl.CodeUnavailable, RetryAfter: 2 * time.Second, Err: err,
				Message: "Redis takes no writes: it is a replica, or lacks replicas that it must have.",
			}
		}
	}
	return s.memoryReady(ctx)
}

// replicasScript is a write that says nothing, and that a full Redis takes: see when_full.lua.
const replicasScript = "redis.call('UNLINK', KEYS[1] .. ':none')\nredis.call('HSET', KEYS[1], 'replicas', ARGV[1])\nreturn 1"

// awaitReplicas waits until Options.Replicas have what was written on the shard of
// the tenant. WAIT speaks of the writes of its own connection, hence the write before
// it in the same pipeline; it is one that says nothing, since a replayed job may have
// ended, and the record of such a job does not change.
func (s *Store) awaitReplicas(ctx context.Context, j crawl.JobRef) error {
	var node interface{ Pipeline() redis.Pipeliner } = s.rdb
	if c, ok := s.rdb.(*redis.ClusterClient); ok {
		m, err := c.MasterForKey(ctx, rootKey(j.Tenant))
		if err != nil {
			return fault(err)
		}
		node = m
	}
	p := node.Pipeline()
	p.Eval(ctx, replicasScript, []string{rootKey(j.Tenant)}, s.o.Replicas)
	stored := p.Exists(ctx, jobKey(j))
	wait := p.Do(ctx, "WAIT", s.o.Replicas, replicaWait.Milliseconds())
	if _, err := p.Exec(ctx); err != nil {
		return fault(err)
	}
	if stored.Val() == 0 {
		// Between the submission and this another master took over, which had not heard of it.
		return &crawl.Fault{
			Code: crawl.CodeUnavailable, RetryAfter: 2 * time.Second,
			Message: "The store lost the job before a replica had it. Send it again, with the same Idempotency-Key if it has one.",
		}
	}
	if n, err := wait.Int(); err != nil || n < s.o.Replicas {
		return &crawl.Fault{
			Code: crawl.CodeUnavailable, RetryAfter: 2 * time.Second, Err: err,
			Message: fmt.Sprintf("The job is stored, but fewer than %d replicas have it yet. "+
				"Send the same Idempotency-Key again.", s.o.Replicas),
		}
	}
	return nil
}
