package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/trawl/pkg/queue"
)

// rings are the lists of asynq that hold tasks, by their state, and whether they are ZSETs.
var rings = []struct {
	state string
	zset  bool
}{
	{"pending", false}, {"active", false}, {"scheduled", true}, {"retry", true}, {"archived", true},
}

// judgeLeft looks into Redis for what is left behind when all jobs have ended.
func (l *Load) judgeLeft(ctx context.Context, r *Report) {
	if len(l.live()) > 0 {
		return // that was told, and what is left belongs to them
	}
	for begun := time.Now(); ; {
		slots, err := l.slotsLeft(ctx)
		var left map[string]int64
		if err == nil {
			left, err = l.ringsLeft(ctx)
		}
		waiting := err != nil || len(slots) > 0
		for _, n := range left {
			waiting = waiting || n > 0
		}
		if waiting && time.Since(begun) < settleTime && wait(ctx, 200*time.Millisecond) {
			continue
		}
		if err != nil {
			l.violate(nil, "Redis cannot be looked into", "%v", err)
			return
		}
		r.QueueLeft = left
		l.judgeSettled(slots, left)
		break
	}
	for _, j := range l.all() {
		l.judgeKeysLeft(ctx, j)
	}
}

func (l *Load) judgeSettled(slots []string, left map[string]int64) {
	if len(slots) > 0 {
		l.violate(nil, "host slots are left", "%s", strings.Join(slots, ", "))
	}
	// A ring whose worker was killed, and one that failed, come back by asynq's own clock, within
	// minutes, and die out.
	if left["pending"] > 0 {
		l.violate(nil, "rings are left", "%d that nobody takes", left["pending"])
	}
	if left["archived"] > 0 {
		l.violate(nil, "rings are archived", "%d", left["archived"])
	}
}

// ringsLeft counts the tasks of the queue by state.
func (l *Load) ringsLeft(ctx context.Context) (map[string]int64, error) {
	out := map[string]int64{}
	for _, r := range rings {
		key := fmt.Sprintf("asynq:{%s}:%s", queue.Name, r.state)
		var n int64
		var err error
		if r.zset {
			n, err = l.o.Redis.ZCard(ctx, key).Result()
		} else {
			n, err = l.o.Redis.LLen(ctx, key).Result()
		}
		if err != nil {
			return nil, err
		}
		out[r.state] = n
	}
	return out, nil
}

// slotsLeft answers the slots of the hosts of the site that are not free, in words.
func (l *Load) slotsLeft(ctx context.Context) ([]string, error) {
	var out []string
	for _, host := range *l.site.hosts.Load() {
		slots, err := l.o.Redis.ZRangeWithScores(ctx, "{h:"+host+"}:slots", 0, -1).Result()
		if err != nil {
			return nil, err
		}
		for _, s := range slots {
			out = append(out, fmt.Sprintf("%v of %s until %s", s.Member, host, strconv.FormatFloat(s.Score, 'f', 0, 64)))
		}
	}
	return out, nil
}

// judgeKeysLeft looks for what an ended job must not have any more.
func (l *Load) judgeKeysLeft(ctx context.Context, j *job) {
	root := "{t:" + j.tenant + "}"
	for _, part := range []string{"queued", "leased", "deferred", "maps", "maps_leased", "seen", "claims"} {
		n, err := l.o.Redis.Exists(ctx, root+":j:"+j.name()+":"+part).Result()
		if err == nil && n > 0 {
			l.violate(j, "an ended job holds "+part, "in Redis")
		}
	}
	running, err := l.o.Redis.SIsMember(ctx, root+":running", j.name()).Result()
	if err == nil && running {
		l.violate(j, "an ended job holds a place at the gate", "it is among the running")
	}
	waiting, err := l.o.Redis.ZRange(ctx, root+":waiting", 0, -1).Result()
	if err == nil && slices.Contains(waiting, j.name()) {
		l.violate(j, "an ended job holds a place at the gate", "it is among the waiting")
	}
}
