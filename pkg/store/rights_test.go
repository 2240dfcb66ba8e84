package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// A process learns that it has the rights of another one, or not enough of its own.
func TestRights(t *testing.T) {
	t.Parallel()
	r := crawltest.Real(t)
	const (
		api    = "~{t:* ~{a}* ~asynq:{crawl}:* +eval +exists"
		worker = "~{t:* ~{h:* ~asynq:* +eval +exists"
	)
	for _, tt := range []struct {
		name, rights      string
		asAPI, asWorker   bool   // whether it has what it needs
		wants             string // in what is said to the one that lacks something
		apiWord, workWord string
	}{
		{"everything", "~* +@all", true, true, "", "", ""},
		{"of an API", api, true, false, "{h:}", "", "worker"},
		{"of a worker", worker, false, true, "{a}:", "API", ""},
		{"no jobs", "~{a}* ~{h:* ~asynq:* +eval +exists", false, false, "{t:}", "API", "worker"},
		{"no queue", "~{t:* ~{a}* ~{h:* +eval +exists", false, false, "asynq:", "API", "worker"},
		{"no scripts", "~* +exists", false, false, "users.acl", "API", "worker"},
		{"no commands in scripts", "~* +eval", false, false, "users.acl", "API", "worker"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := New(user(t, r, tt.rights), Options{})
			for _, check := range []struct {
				word string
				err  error
				good bool
			}{
				{tt.apiWord, s.APIRights(t.Context()), tt.asAPI}, {tt.workWord, s.WorkerRights(t.Context()), tt.asWorker},
			} {
				if check.good {
					if check.err != nil {
						t.Errorf("%v", check.err)
					}
					continue
				}
				var f *crawl.Fault
				if !errors.As(check.err, &f) || f.Code != crawl.CodeUnavailable || !strings.Contains(f.Message, tt.wants) ||
					!strings.Contains(f.Message, check.word) || !strings.Contains(f.Message, "users.acl") {
					t.Errorf("%v does not say %q and %q", check.err, tt.wants, check.word)
				}
			}
		})
	}

	// What is no matter of rights is told by Ready.
	closed := crawltest.Mini(t)
	if err := closed.Client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := New(closed.Client, Options{}).APIRights(t.Context()); err != nil {
		t.Errorf("a Redis that is away: %v", err)
	}
}

// Each kind of Redis has the commands of the check, and a Cluster takes its keys.
func TestRightsOnEach(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		s := New(r.Client, Options{})
		if err := errors.Join(s.APIRights(t.Context()), s.WorkerRights(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// user returns a client that is a user with the given rights and those that every client needs.
func user(t *testing.T, r *crawltest.Redis, rights string) redis.UniversalClient {
	t.Helper()
	name, password := crawltest.Random(), crawltest.Random()
	args := []any{"ACL", "SETUSER", name, "on", ">" + password, "+ping", "+client|setname"}
	for _, right := range strings.Fields(rights) {
		args = append(args, right)
	}
	if err := r.Client.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Client.Do(context.WithoutCancel(t.Context()), "ACL", "DELUSER", name).Err() })
	c, err := redisconn.Open(strings.Replace(r.URL, "://", "://"+name+":"+password+"@", 1), redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
