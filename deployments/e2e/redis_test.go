package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// usersFile is what the users of a Redis in earnest may do; every test here runs under it.
const usersFile = "../redis/users.acl"

// The users of that file, and the one of the tests, who may do everything.
const (
	apiUser      = "trawl-api"
	workerUser   = "trawl-worker"
	operatorUser = "operator"
)

// placeholder is the digest that stands in the file for that of a password: nobody knows
// one that has it, so that a file that was not filled in lets nobody in.
const placeholder = "#0000000000000000000000000000000000000000000000000000000000000000"

// onCluster has every test run on a Redis Cluster of three masters: TRAWL_E2E_REDIS=cluster.
// Its default, single, is one server.
var onCluster = os.Getenv("TRAWL_E2E_REDIS") == "cluster"

// masters is how many servers the Cluster has.
const masters = 3

// single skips a test under TRAWL_E2E_REDIS=cluster that is about something that a Cluster has
// not, and says what.
func single(t *testing.T, reason string) {
	t.Helper()
	if len(strings.Fields(reason)) < 5 {
		t.Fatalf("say why this test cannot run on a Redis Cluster, not %q", reason)
	}
	if onCluster {
		t.Skip("not on a Redis Cluster: " + reason)
	}
}

// A test that does not run on a Cluster is one whose promise nobody has seen there: there are few.
func TestFewAreSingle(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		calls += len(regexp.MustCompile(`(?m)^\t+single\(t, `).FindAll(text, -1))
	}
	if calls == 0 || calls > 9 {
		t.Errorf("%d tests are skipped on a Cluster, want fewer than ten", calls)
	}
	if form := os.Getenv("TRAWL_E2E_REDIS"); form != "" && form != "single" && form != "cluster" {
		t.Errorf("TRAWL_E2E_REDIS is %q: it is single, the default, or cluster", form)
	}
}

// guardedRedis is a Redis whose users are those of usersFile.
type guardedRedis struct {
	*crawltest.Server
	passwords map[string]string
	files     redisconn.TLS       // of its clients
	sentinels *crawltest.Failover // who say which server it is; nil without any
}

// guard starts a Redis in the clear: one server, or a Cluster, see [onCluster].
func guard(t *testing.T, args ...string) *guardedRedis {
	t.Helper()
	if onCluster {
		return guardMasters(t, args...)
	}
	return guardOver(t, redisconn.TLS{}, args...)
}

// guardOver starts a Redis, one server, whose clients have the given files.
func guardOver(t *testing.T, files redisconn.TLS, args ...string) *guardedRedis {
	t.Helper()
	return guarded(t, files, func(access crawltest.Access, users string) *crawltest.Server {
		return crawltest.PrivateFor(t, access, append([]string{"--aclfile", users}, args...)...)
	})
}

// guardMasters starts a Redis Cluster of three masters.
func guardMasters(t *testing.T, args ...string) *guardedRedis {
	t.Helper()
	return guarded(t, redisconn.TLS{}, func(access crawltest.Access, users string) *crawltest.Server {
		return crawltest.Masters(t, masters, access, append([]string{"--aclfile", users}, args...)...)
	})
}

// guarded starts a Redis with the users of usersFile.
func guarded(
	t *testing.T, files redisconn.TLS, start func(access crawltest.Access, users string) *crawltest.Server,
) *guardedRedis {
	t.Helper()
	r := &guardedRedis{passwords: map[string]string{}, files: files}
	users := filepath.Join(t.TempDir(), "users.acl") // not beside its data, which tests remove
	if err := os.WriteFile(users, []byte(r.users(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Server = start(r.access(), users)
	t.Cleanup(func() { r.checkDenied(t) }) // runs when the processes have ended: they are started later
	return r
}

// access is who the test is to this Redis.
func (r *guardedRedis) access() crawltest.Access {
	return crawltest.Access{User: operatorUser, Password: r.passwords[operatorUser], TLS: r.files}
}

// each sends a command that is about a server, and not about a key, to every server.
func (r *guardedRedis) each(t *testing.T, args ...any) {
	t.Helper()
	for _, n := range r.Nodes() {
		if err := n.Client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
}

// users returns the content of usersFile with passwords of this test, and its own user.
func (r *guardedRedis) users(t *testing.T) string {
	t.Helper()
	shipped, err := os.ReadFile(usersFile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(shipped)
	for _, user := range []string{apiUser, workerUser} {
		line := "user " + user + " on "
		if !strings.Contains(text, line+placeholder) {
			t.Fatalf("%s has no user %s with a placeholder for the password", usersFile, user)
		}
		text = strings.Replace(text, line+placeholder, line+r.newPassword(user), 1)
	}
	return text + "user " + operatorUser + " on " + r.newPassword(operatorUser) + " ~* &* +@all\n"
}

// newPassword makes a password for the user and returns its digest, as the file has it.
func (r *guardedRedis) newPassword(user string) string {
	r.passwords[user] = crawltest.Random() + "/+@:%" // what a URL must escape
	sum := sha256.Sum256([]byte(r.passwords[user]))
	return "#" + hex.EncodeToString(sum[:])
}

// secrets are the passwords, as they are and as a URL has them.
func (r *guardedRedis) secrets() []string {
	var all []string
	for _, p := range r.passwords {
		all = append(all, p, url.QueryEscape(p), url.PathEscape(p), p[:len(p)-5])
	}
	return all
}

// url returns the URL for a user.
func (r *guardedRedis) url(user string) string { return r.urlWith(user, r.passwords[user]) }

// urlWith is url with another password.
func (r *guardedRedis) urlWith(user, password string) string {
	if r.sentinels != nil {
		return r.sentinels.URL(user, password)
	}
	scheme, rest, _ := strings.Cut(r.URL, "://") // net/url reads no list of hosts
	u := url.URL{Scheme: scheme, Host: rest[strings.LastIndexByte(rest, '@')+1:], User: url.UserPassword(user, password)}
	return u.String()
}

// settings are those of a process that is the given user.
func (r *guardedRedis) settings(user string) []string {
	return []string{
		"TRAWL_REDIS_URL=" + r.url(user), "TRAWL_REDIS_CA=" + r.files.CA,
		"TRAWL_REDIS_CERT=" + r.files.Cert, "TRAWL_REDIS_CERT_KEY=" + r.files.Key,
	}
}

// as returns a client that is the given user.
func (r *guardedRedis) as(t *testing.T, user string) redis.UniversalClient {
	t.Helper()
	c, err := redisconn.Open(r.url(user), redisconn.Options{TLS: r.files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// checkDenied fails the test when Redis refused anything to anybody, whether or not the
// process that asked has noticed.
func (r *guardedRedis) checkDenied(t *testing.T) {
	t.Helper()
	for _, n := range r.Nodes() {
		r.deniedAt(t, n)
	}
}

func (r *guardedRedis) deniedAt(t *testing.T, n *crawltest.Server) {
	t.Helper()
	log, err := n.Client.ACLLog(context.WithoutCancel(t.Context()), 100).Result() // the test is over
	if err != nil {
		return // a test may leave it stopped
	}
	for _, e := range log {
		t.Errorf("Redis refused %s to %s (%s, %s), %d times", e.Object, e.Username, e.Reason, e.Context, e.Count)
	}
}
