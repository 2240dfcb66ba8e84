package store

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

// rightsScript touches its key and changes nothing: it needs the right to run scripts and
// that to the family of the key.
const rightsScript = "return redis.call('EXISTS', KEYS[1])"

// One key of each family that a process works with. Those of jobs belong to no tenant: names of
// tenants are not empty.
var (
	apiFamilies    = []string{rootKey(""), tenantDirKey, "asynq:{crawl}:pending"}
	workerFamilies = []string{rootKey(""), hostKey("", "slots"), "asynq:{crawl}:pending"}
)

// APIRights returns an unavailable fault when the user of the client lacks a right in Redis that
// an API needs, as that of a worker does. It says nothing of a Redis that does not answer:
// that is [Store.Ready]'s to tell.
func (s *Store) APIRights(ctx context.Context) error { return s.rights(ctx, "API", apiFamilies) }

// WorkerRights is [Store.APIRights] for a worker.
func (s *Store) WorkerRights(ctx context.Context) error {
	return s.rights(ctx, "worker", workerFamilies)
}

func (s *Store) rights(ctx context.Context, of string, families []string) error {
	s.trips.Add(1)
	p := s.rdb.Pipeline()
	for _, key := range families {
		p.Eval(ctx, rightsScript, []string{key})
	}
	cmds, err := p.Exec(ctx)
	for i, cmd := range cmds {
		if forbidden(cmd.Err()) {
			return &crawl.Fault{
				Code: crawl.CodeUnavailable, Err: cmd.Err(),
				Message: "The user of TRAWL_REDIS_URL lacks rights that this " + of + " needs, those to " + families[i] +
					" among them. Give it those of deployments/redis/users.acl; is it the user of another process?",
			}
		}
	}
	if forbidden(err) {
		return fault(err)
	}
	return nil
}

// forbidden reports whether Redis answered that the user may not do it.
func forbidden(err error) bool {
	return err != nil && (redis.IsPermissionError(err) || strings.Contains(err.Error(), "The user executing the script"))
}
