package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

// Plan reads what a job is worked off by, with its webhook: whole, the values of its headers and
// the secret of its webhook included, which are for no one to see. Faults: not_found, expired; wrong_state of a job that a newer version
// of Trawl made.
func (s *Store) Plan(ctx context.Context, j crawl.JobRef) (crawl.Plan, error) {
	p := s.rdb.Pipeline()
	format := p.HGet(ctx, jobKey(j), "format")
	stored := p.Get(ctx, jobKey(j)+":plan")
	hook := p.HMGet(ctx, jobKey(j)+":webhook", "url", "secret", "events")
	s.trips.Add(1)
	_, _ = p.Exec(ctx) // each command has its own error
	switch err := stored.Err(); {
	case errors.Is(err, redis.Nil):
		if _, err := s.Job(ctx, j); err != nil {
			return crawl.Plan{}, err
		}
		return crawl.Plan{}, fmt.Errorf("store: the plan of job %s is lost", j.ID)
	case err != nil:
		return crawl.Plan{}, fault(err)
	case hook.Err() != nil:
		return crawl.Plan{}, fault(hook.Err())
	case format.Err() != nil && !errors.Is(format.Err(), redis.Nil):
		return crawl.Plan{}, fault(format.Err())
	case integer(format.Val()) > crawl.PlanVersion: // the same number, see there
		return crawl.Plan{}, newerFormat(j)
	}
	var plan crawl.Plan
	if err := json.Unmarshal([]byte(stored.Val()), &plan); err != nil {
		return crawl.Plan{}, fmt.Errorf("store: plan of job %s: %w", j.ID, err)
	}
	plan.Webhook = storedWebhook(hook.Val())
	return plan, nil
}

// storedWebhook makes a webhook of its URL, secret and events as create.lua keeps them; nil for
// none.
func storedWebhook(h []any) *crawl.Webhook {
	if str(h[0]) == "" {
		return nil
	}
	w := &crawl.Webhook{URL: str(h[0]), Secret: crawl.Secret(str(h[1]))}
	for event := range strings.FieldsSeq(str(h[2])) {
		w.Events = append(w.Events, crawl.EventType(event))
	}
	return w
}
