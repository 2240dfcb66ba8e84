package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"os"
	"path/filepath"
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

// guardedRedis is a Redis whose users are those of usersFile.
type guardedRedis struct {
	*crawltest.Server
	passwords map[string]string
	files     redisconn.TLS // of its clients
	scheme    string        // of its URL
}

// guard starts a Redis in the clear.
func guard(t *testing.T, args ...string) *guardedRedis {
	t.Helper()
	return guardOver(t, redisconn.TLS{}, args...)
}

// guardOver starts a Redis whose clients have the given files.
func guardOver(t *testing.T, files redisconn.TLS, args ...string) *guardedRedis {
	t.Helper()
	r := &guardedRedis{passwords: map[string]string{}, files: files, scheme: "redis"}
	if files.CA != "" {
		r.scheme = "rediss"
	}
	users := filepath.Join(t.TempDir(), "users.acl") // not beside its data, which tests remove
	if err := os.WriteFile(users, []byte(r.users(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	access := crawltest.Access{User: operatorUser, Password: r.passwords[operatorUser], TLS: files}
	r.Server = crawltest.PrivateFor(t, access, append([]string{"--aclfile", users}, args...)...)
	t.Cleanup(func() { r.checkDenied(t) }) // runs when the processes have ended: they are started later
	return r
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
func (r *guardedRedis) url(user string) string {
	u := url.URL{Scheme: r.scheme, Host: r.Addr, User: url.UserPassword(user, r.passwords[user])}
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
	ctx := context.WithoutCancel(t.Context()) // the test is over
	log, err := r.Client.ACLLog(ctx, 100).Result()
	if err != nil {
		return // a test may leave it stopped
	}
	for _, e := range log {
		t.Errorf("Redis refused %s to %s (%s, %s), %d times", e.Object, e.Username, e.Reason, e.Context, e.Count)
	}
}
