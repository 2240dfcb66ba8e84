package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/redisconn"
)

// The users of Redis. The operator is the harness itself.
const (
	userAPI      = "trawl-api"
	userWorker   = "trawl-worker"
	userOperator = "operator"
)

// redisServer is a redis-server that keeps what it has when it is killed: without an fsync to wait for it hands each
// change to the system before it answers, and a killed process loses nothing of that.
type redisServer struct {
	*process
	address  string
	password string // of every user
	acl      bool
	// look is the operator's client, on no link that has faults.
	look redis.UniversalClient
}

// newRedis prepares a server in a directory of its own; aclFile is empty for one that lets everybody do everything.
func newRedis(dir, aclFile string, ports *ports) (*redisServer, error) {
	exe, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("chaos needs redis-server on PATH (Debian: apt-get install redis-server): %w", err)
	}
	data := filepath.Join(dir, "redis")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("make a directory for redis-server: %w", err)
	}
	r := &redisServer{password: secret(), acl: aclFile != ""}
	if r.address, err = ports.free(); err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(r.address, ":")
	args := []string{
		"--port", port, "--bind", "127.0.0.1", "--dir", data, "--daemonize", "no", "--logfile", "", "--save", "",
		"--appendonly", "yes", "--appendfsync", "no", "--aof-timestamp-enabled", "yes",
		"--auto-aof-rewrite-percentage", "0", "--maxmemory-policy", "noeviction",
	}
	if r.acl {
		users := filepath.Join(data, "users.acl")
		if err := r.writeUsers(aclFile, users); err != nil {
			return nil, err
		}
		args = append(args, "--aclfile", users)
	}
	r.process = &process{
		name: redisName, path: exe, args: args, env: environment(), log: filepath.Join(dir, "redis.log"), healthy: r.answers,
	}
	r.look, err = redisconn.Open(r.url(r.address, userOperator), redisconn.Options{Name: "chaos", MaxRetries: -1})
	return r, err
}

// secret answers what nobody guesses.
func secret() string { return rand.Text() }

var nobody = regexp.MustCompile(`#0{64}`)

// writeUsers makes the ACL file of a deployment usable: with a password for its users, and with an operator.
func (r *redisServer) writeUsers(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read the rights in Redis: %w", err)
	}
	sum := sha256.Sum256([]byte(r.password))
	hash := "#" + hex.EncodeToString(sum[:])
	out := nobody.ReplaceAllString(string(text), hash) + "user " + userOperator + " on " + hash + " ~* &* +@all\n"
	if err := os.WriteFile(to, []byte(out), 0o600); err != nil {
		return fmt.Errorf("write the rights in Redis: %w", err)
	}
	return nil
}

// url is that of a user who connects to an address.
func (r *redisServer) url(address, user string) string {
	u := url.URL{Scheme: "redis", Host: address}
	if r.acl {
		u.User = url.UserPassword(user, r.password)
	}
	return u.String()
}

// answers returns nil when the server that was started last answers, and has read its file.
func (r *redisServer) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return r.look.Ping(ctx).Err()
}

// fill leaves Redis no memory: less may be used than is.
func (r *redisServer) fill(ctx context.Context) error {
	info, err := r.look.InfoMap(ctx, "memory").Result()
	if err != nil {
		return fmt.Errorf("how much memory Redis uses: %w", err)
	}
	used, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		return fmt.Errorf("how much memory Redis uses: %w", err)
	}
	return r.limit(ctx, used*9/10)
}

// limit sets how much memory Redis may use; 0 is no limit.
func (r *redisServer) limit(ctx context.Context, bytes int64) error {
	if err := r.look.ConfigSet(ctx, "maxmemory", strconv.FormatInt(bytes, 10)).Err(); err != nil {
		return fmt.Errorf("set maxmemory: %w", err)
	}
	return nil
}
