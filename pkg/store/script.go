package store

import (
	"context"
	"crypto/sha1" // what EVALSHA names a script by
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

//go:embed scripts
var scriptFiles embed.FS

// script is one Lua file with its includes put in.
type script struct {
	name   string
	single form // for one server
	sliced form // for a Cluster, see settledSlot
}

// form is a text as it is sent, and what EVALSHA names it by.
type form struct{ text, sha string }

func formOf(text string) form {
	sum := sha1.Sum([]byte(text))
	return form{text: text, sha: hex.EncodeToString(sum[:])}
}

// settledSlot begins every script for a Cluster. While an operator moves a slot of a Cluster to another master, each of
// the two has some of its keys: what is not there may not exist, or be at the other, and Redis ends
// a script that asks for it in its midst, with half of its writes done. Two keys that no one ever
// makes are refused by both masters then, and by none at any other time, see "CLUSTER SETSLOT"
// in Redis' documentation: so the script is refused before it has changed anything, and
// the client sends it again.
const settledSlot = `do
  local asked = redis.pcall('EXISTS', KEYS[1] .. ':-', KEYS[1] .. ':--')
  if type(asked) == 'table' and asked.err then
    if string.find(asked.err, 'non local key', 1, true) then
      return redis.error_reply('TRYAGAIN The keys of this script are being moved to another master')
    end
    return asked
  end
end
`

// loadScript reads scripts/name.lua. A line "--# include file" stands for
// scripts/include/file. A missing file is a defect of the build: it panics.
func loadScript(name string) *script {
	var b strings.Builder
	for line := range strings.Lines(mustRead(name + ".lua")) {
		if file, ok := strings.CutPrefix(line, "--# include "); ok {
			line = mustRead(path.Join("include", strings.TrimSpace(file)))
		}
		b.WriteString(line)
	}
	return &script{name: name, single: formOf(b.String()), sliced: formOf(settledSlot + b.String())}
}

func mustRead(name string) string {
	b, err := scriptFiles.ReadFile(path.Join("scripts", name))
	if err != nil {
		panic("store: " + err.Error())
	}
	return string(b)
}

var (
	createScript      = loadScript("create")
	ringFailedScript  = loadScript("ring_failed")
	beginScript       = loadScript("begin")
	renewScript       = loadScript("renew")
	leaseScript       = loadScript("lease")
	commitScript      = loadScript("commit")
	commitMapScript   = loadScript("commit_map")
	releaseScript     = loadScript("release")
	endScript         = loadScript("end")
	cancelScript      = loadScript("cancel")
	pauseScript       = loadScript("pause")
	resumeScript      = loadScript("resume")
	deleteScript      = loadScript("delete")
	sweepScript       = loadScript("sweep")
	statusScript      = loadScript("status")
	listScript        = loadScript("list")
	hostReserveScript = loadScript("host_reserve")
	hostRenewScript   = loadScript("host_renew")
	hostDelayScript   = loadScript("host_delay")
	retireScript      = loadScript("retire")
	robotsClaimScript = loadScript("robots_claim")
	robotsLearnScript = loadScript("robots_learn")
	urlsScript        = loadScript("urls")
	deliverScript     = loadScript("deliver")
	settleScript      = loadScript("settle")
	quotaScript       = loadScript("quota")
	statsScript       = loadScript("stats")

	collectionListScript       = loadScript("collection_list")
	collectionReadScript       = loadScript("collection_read")
	collectionItemsScript      = loadScript("collection_items")
	collectionWalkScript       = loadScript("collection_walk")
	collectionVisitScript      = loadScript("collection_visit")
	collectionDeleteScript     = loadScript("collection_delete")
	collectionDeleteItemScript = loadScript("collection_delete_item")

	tenantCreateScript       = loadScript("tenant_create")
	tenantChangeScript       = loadScript("tenant_change")
	tenantListScript         = loadScript("tenant_list")
	tenantAuthenticateScript = loadScript("tenant_authenticate")
	tenantKeysScript         = loadScript("tenant_keys")
	tenantKeyAddScript       = loadScript("tenant_key_add")
	tenantKeyRotateScript    = loadScript("tenant_key_rotate")
	tenantKeyRevokeScript    = loadScript("tenant_key_revoke")
)

// call is one script to run, and its answer.
type call struct {
	script *script
	keys   []string
	args   []any
	cmd    *redis.Cmd
}

func (c *call) queue(ctx context.Context, p redis.Pipeliner, sliced, whole bool) {
	f := c.script.single
	if sliced {
		f = c.script.sliced
	}
	if whole {
		c.cmd = p.Eval(ctx, f.text, c.keys, c.args...)
	} else {
		c.cmd = p.EvalSha(ctx, f.sha, c.keys, c.args...)
	}
}

// run sends calls in one pipeline and fails with the first call that failed; those
// before and after it may have taken place, which every script allows for.
func (s *Store) run(ctx context.Context, also func(redis.Pipeliner), calls ...*call) error {
	s.send(ctx, also, calls...)
	for _, c := range calls {
		if err := c.err(); err != nil {
			return err
		}
	}
	return nil
}

// send sends calls in one pipeline, in order on each shard; each then has its own
// answer or error. A Redis that lost its scripts (restart, failover) answers NOSCRIPT
// to each: those calls are sent again with their text, in their order.
func (s *Store) send(ctx context.Context, also func(redis.Pipeliner), calls ...*call) {
	p := s.rdb.Pipeline()
	if also != nil {
		also(p)
	}
	for _, c := range calls {
		c.queue(ctx, p, s.sliced, false)
	}
	s.trips.Add(1)
	_, _ = p.Exec(ctx) // each command has its own error
	var again []*call
	for _, c := range calls {
		if redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			again = append(again, c)
		}
	}
	if len(again) == 0 {
		return
	}
	p = s.rdb.Pipeline()
	for _, c := range again {
		c.queue(ctx, p, s.sliced, true)
	}
	s.trips.Add(1)
	_, _ = p.Exec(ctx) // as above
}

// err answers why the call failed; nil when it did not.
func (c *call) err() error {
	if err := c.cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("%s: %w", c.script.name, fault(err))
	}
	return nil
}

// one runs a single script and answers its array.
func (s *Store) one(ctx context.Context, sc *script, keys []string, args ...any) ([]any, error) {
	c := &call{script: sc, keys: keys, args: args}
	if err := s.run(ctx, nil, c); err != nil {
		return nil, err
	}
	return array(c.cmd), nil
}

func array(cmd *redis.Cmd) []any {
	a, _ := cmd.Val().([]any)
	return a
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

func num(v any) int64 {
	n, _ := v.(int64)
	return n
}

// rings reads the tail of an answer: job id, number of each ring.
func rings(tenant string, tail []any) []crawl.Ring {
	var out []crawl.Ring
	for i := 0; i+1 < len(tail); i += 2 {
		out = append(out, crawl.Ring{JobRef: crawl.JobRef{Tenant: tenant, ID: str(tail[i])}, N: num(tail[i+1])})
	}
	return out
}

// fault translates what Redis or the way to it says. A context that ended keeps
// its own error, because that is the caller's doing.
func fault(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case redis.HasErrorPrefix(err, "OOM"):
		return &crawl.Fault{
			Code: crawl.CodeOverloaded, RetryAfter: 30 * time.Second, Err: err,
			Message: "The store is full and takes nothing new. Try again later, or give Redis more memory.",
		}
	}
	return &crawl.Fault{Code: crawl.CodeUnavailable, RetryAfter: 2 * time.Second, Err: err, Message: unavailable(err)}
}

// unavailable says for a person what an error of Redis, or of the way to it, means. It never says
// that nothing was changed: the client sends a call again when its answer was lost, and err is then
// of the second try only; and a script that lacks a right may have written before it met that.
func unavailable(err error) string {
	const again = "Send it again shortly; a submission with the same Idempotency-Key, in case an earlier try got through."
	var dial *net.OpError
	switch {
	case redis.IsAuthError(err), redis.IsPermissionError(err):
		return "The store refuses this service. Whoever runs it finds the reason in its log."
	case replied(err, "READONLY", "NOREPLICAS", "MISCONF", "MASTERDOWN"):
		return "The store takes no writes now, and refused this. " + again
	case replied(err, "LOADING", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "max number of clients"):
		return "The store is not ready, and refused this. " + again
	case replied(err, ""):
		return "The store answered this with an error, and it may be done in part. " +
			"Whoever runs the service finds the reason in its log."
	case errors.As(err, &dial) && dial.Op == "dial":
		return "The store cannot be reached. " + again
	}
	return "The store did not answer in time, and it is not known whether this was done. " +
		"Look, or send it again; a submission with the same Idempotency-Key."
}

// replied reports whether err is what Redis itself answered, beginning with one of prefixes.
func replied(err error, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return redis.HasErrorPrefix(err, p) })
}
