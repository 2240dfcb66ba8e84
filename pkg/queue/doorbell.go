package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

// Name is the asynq queue of the rings. One queue, not one a tenant: what is
// fair between tenants the store's run gate decides before it rings.
const Name = "crawl"

const (
	taskType = "crawl:slice"

	// maxRetry counts a slice's own errors, which are those of the store or of
	// a panic. With full jitter up to a minute, ten of them outlast a failover.
	maxRetry = 10
	// taskTimeout is ten times the 30 s that a slice works at most: it never
	// ends a slice that is alive, since asynq would run the ring again beside
	// it, and it frees the place of one that hangs before a person looks.
	taskTimeout = 5 * time.Minute

	// announceEvery bounds how long the queue stays unnamed in an emptied
	// Redis. Once a ring would be a round trip more for each submission.
	announceEvery = 5 * time.Second
)

// ErrPaused is within the fault of a ring for a queue that is paused. The fault's message is for the
// tenant; this, which is logged, for who runs the service.
var ErrPaused = errors.New("the queue is paused")

// born is what announcements are counted from.
var born = time.Now()

// queuesKey is asynq's set of queue names, from which its inspector and the
// monitor start.
const queuesKey = "asynq:queues"

// pendingKey is asynq's list of the tasks that nobody has taken.
func pendingKey(queue string) string { return "asynq:{" + queue + "}:pending" }

// payload is what a task carries. A worker reads exactly these fields and leaves
// what is of a newer version alone; see payloadVersion before you change any.
type payload struct {
	Tenant string `json:"tenant"`
	Job    string `json:"job"`
	N      int64  `json:"n"`
	// V is the version; 0, which is not written, is 1. Workers from before there
	// were versions archive a task that has the field.
	V int64 `json:"v,omitempty"`
}

// taskID names the task of a ring. Job ids contain no full stop.
func taskID(r crawl.Ring) string {
	if r.N == 0 {
		return r.ID
	}
	return r.ID + "." + strconv.FormatInt(r.N, 10)
}

// valid holds what may become part of a key name.
func valid(r crawl.Ring) bool {
	return crawl.ValidTenant(r.Tenant) && crawl.ValidJobID(r.ID) && r.N >= 0
}

// Doorbell rings. It is safe for concurrent use.
type Doorbell struct {
	rdb       redis.UniversalClient
	client    *asynq.Client
	queue     string
	announced atomic.Int64 // when, in nanoseconds since born; 0 for never
	paused    atomic.Bool  // as it was then
}

// NewDoorbell returns the doorbell of the queue [Name]. It shares rdb and does
// not close it.
func NewDoorbell(rdb redis.UniversalClient) *Doorbell { return NewDoorbellOn(rdb, Name) }

// NewDoorbellOn returns the doorbell of another queue: tests that share a Redis
// keep apart by it.
func NewDoorbellOn(rdb redis.UniversalClient, queue string) *Doorbell {
	return &Doorbell{rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), queue: queue}
}

// Ring asks for a slice for each of rings, in order; without any it does
// nothing. A ring that is in the queue already is a success: it was sent
// before, by an earlier call or by the client's own resend after a lost reply.
// One that was archived, which a person can do in the monitor, is made anew.
//
// It stops at the first that fails, since all go to the same place, with a
// [crawl.Fault] of code unavailable. The rings before it are in the queue, and
// whether it is itself is not known; the store rings again what was not taken.
// While the queue is paused, which a person can do in the monitor, only the first ring of a job
// is put into it, and the answer is such a fault that is [ErrPaused], so that the job says what it
// waits for: the store rings again and again meanwhile, and each ring would stay behind. A pause,
// and its end, are noticed within 5 s.
//
// No ring is kept for after its slice ended: the store is the authority on what
// happened already, and its numbers are never reused.
func (d *Doorbell) Ring(ctx context.Context, rings ...crawl.Ring) error {
	if len(rings) == 0 {
		return nil
	}
	for _, r := range rings {
		if !valid(r) {
			return crawl.Faultf(crawl.CodeInternal, "A job id or tenant has not the form of one; nothing was queued.")
		}
	}
	if err := d.announce(ctx); err != nil {
		return unavailable(err)
	}
	paused := d.paused.Load()
	for _, r := range rings {
		if paused && r.N > 0 {
			continue
		}
		body, err := json.Marshal(payload{Tenant: r.Tenant, Job: r.ID, N: r.N})
		if err != nil {
			return &crawl.Fault{Code: crawl.CodeInternal, Message: "A ring could not be encoded.", Err: err}
		}
		err = d.enqueue(ctx, taskID(r), body)
		if errors.Is(err, asynq.ErrTaskIDConflict) {
			err = d.again(ctx, taskID(r), body)
		}
		if err != nil {
			return unavailable(err)
		}
	}
	if paused {
		return &crawl.Fault{
			Code: crawl.CodeUnavailable, RetryAfter: announceEvery,
			Message: "The service's queue is paused; the job starts when it is resumed.",
			Err: fmt.Errorf("%w: resume it in the monitor, where TRAWL_MONITOR_WRITE is true, or in Redis: DEL %s",
				ErrPaused, stateKey(d.queue, "paused")),
		}
	}
	return nil
}

func (d *Doorbell) enqueue(ctx context.Context, id string, body []byte) error {
	_, err := d.client.EnqueueContext(
		ctx, task(ctx, id, body), asynq.TaskID(id), asynq.Queue(d.queue),
		asynq.MaxRetry(maxRetry), asynq.Timeout(taskTimeout),
	)
	if wrongType(err) {
		// asynq's script has written the task before the list refused it, and nobody would ever find it
		// there: the sweep rings under other names meanwhile. That it is removed is as well as can be.
		d.rdb.Del(ctx, taskPrefix(d.queue)+id)
	}
	return err
}

// wrongType reports whether a key of the queue holds something else. asynq keeps of what Redis
// answered to a script the text alone.
func wrongType(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }

// again rings where there is a task of that id. One that is on its way is the ring; one that was
// archived never comes, and makes room.
func (d *Doorbell) again(ctx context.Context, id string, body []byte) error {
	free, err := d.free(ctx, id)
	if err != nil || !free {
		return err
	}
	if err = d.enqueue(ctx, id, body); errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil // somebody else rang meanwhile
	}
	return err
}

// announce writes the name of the queue where the monitor looks for it, and looks whether the
// queue is paused. asynq's client does the first once in its life, which an emptied Redis does not
// remember.
func (d *Doorbell) announce(ctx context.Context) error {
	last, now := d.announced.Load(), int64(time.Since(born))+1 // monotonic: the clock may be set back
	if last != 0 && time.Duration(now-last) < announceEvery {
		return nil
	}
	pipe := d.rdb.Pipeline()
	pipe.SAdd(ctx, queuesKey, d.queue)
	paused := pipe.Exists(ctx, stateKey(d.queue, "paused"))
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	d.paused.Store(paused.Val() > 0)
	d.announced.Store(now)
	return nil
}

// Waiting returns how many rings nobody has taken yet: a slice that sees some
// gives its place away sooner. It is one LLEN. The error is a [crawl.Fault] of
// code unavailable.
func (d *Doorbell) Waiting(ctx context.Context) (int64, error) {
	n, err := d.rdb.LLen(ctx, pendingKey(d.queue)).Result()
	if err != nil {
		return 0, unavailable(err)
	}
	return n, nil
}

// unavailable says for a person what a queue that does not answer means for the job.
func unavailable(err error) error {
	f := &crawl.Fault{
		Code: crawl.CodeUnavailable,
		Message: "The queue does not answer. Check that Redis runs and has memory left; " +
			"the job is kept and started then.",
		RetryAfter: announceEvery,
		Err:        err,
	}
	if wrongType(err) {
		f.Message = "A key of the queue, asynq:*, holds something that is not asynq's. Delete that key; " +
			"the job is kept and started then."
	}
	return f
}
