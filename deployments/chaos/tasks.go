package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/queue"
)

// tasks deletes what is in asynq's queue. The names of keys are asynq's own; see its internal/base.
type tasks struct {
	rdb redis.UniversalClient

	mu    sync.Mutex
	ghost []string // ids whose hash alone was deleted, which asynq keeps in a list for ever
}

func taskKey(parts ...string) string {
	return "asynq:{" + queue.Name + "}:" + strings.Join(parts, ":")
}

// remove deletes a task at random and says which, or "" when there is none. One that waits is taken from its list
// as asynq's inspector does it, unless raw; of one that is worked on, or if raw, the hash is deleted alone.
func (t *tasks) remove(ctx context.Context, rng *rand.Rand, raw bool) (string, error) {
	lists := []string{"pending", "active", "retry", "scheduled"}
	rng.Shuffle(len(lists), func(i, j int) { lists[i], lists[j] = lists[j], lists[i] })
	for _, list := range lists {
		id, err := t.draw(ctx, rng, list)
		if err != nil {
			return "", err
		}
		if id == "" {
			continue
		}
		if !raw && list != "active" {
			if err := t.take(ctx, list, id); err != nil {
				return "", err
			}
			return list + " " + id, nil
		}
		if err := t.rdb.Del(ctx, taskKey("t", id)).Err(); err != nil {
			return "", fmt.Errorf("delete a task: %w", err)
		}
		t.mu.Lock()
		t.ghost = append(t.ghost, id)
		t.mu.Unlock()
		return list + " " + id + ", its hash alone", nil
	}
	return "", nil
}

// draw answers the id of a task of a list, or "".
func (t *tasks) draw(ctx context.Context, rng *rand.Rand, list string) (string, error) {
	var ids []string
	var err error
	if list == "pending" || list == "active" {
		ids, err = t.rdb.LRange(ctx, taskKey(list), 0, 99).Result()
	} else {
		ids, err = t.rdb.ZRange(ctx, taskKey(list), 0, 99).Result()
	}
	if err != nil {
		return "", fmt.Errorf("list the tasks: %w", err)
	}
	if len(ids) == 0 {
		return "", nil
	}
	return ids[rng.IntN(len(ids))], nil
}

// take removes a task that waits.
func (t *tasks) take(ctx context.Context, list, id string) error {
	_, err := t.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		if list == "pending" {
			p.LRem(ctx, taskKey(list), 0, id)
		} else {
			p.ZRem(ctx, taskKey(list), id)
		}
		p.Del(ctx, taskKey("t", id))
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete a task: %w", err)
	}
	return nil
}

// bury removes from asynq's lists what is left of tasks whose hash was deleted: no part of asynq ever does, and
// what is counted at the end is to be what Trawl has left. A task that was made again by that name is kept.
func (t *tasks) bury(ctx context.Context) error {
	t.mu.Lock()
	ids := t.ghost
	t.mu.Unlock()
	for _, id := range ids {
		msg, err := t.rdb.HExists(ctx, taskKey("t", id), "msg").Result()
		if err != nil {
			return fmt.Errorf("look for a task: %w", err)
		}
		if msg {
			continue
		}
		if _, err := t.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.LRem(ctx, taskKey("pending"), 0, id)
			p.LRem(ctx, taskKey("active"), 0, id)
			for _, list := range []string{"lease", "retry", "scheduled", "archived", "completed"} {
				p.ZRem(ctx, taskKey(list), id)
			}
			p.Del(ctx, taskKey("t", id))
			return nil
		}); err != nil {
			return fmt.Errorf("bury a task: %w", err)
		}
	}
	return nil
}
