package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUsers: the ACL file of a deployment gets a password for its users and one user more, who may look everywhere,
// and is the same otherwise.
func TestUsers(t *testing.T) {
	t.Parallel()
	const file = "../redis/users.acl"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &redisServer{password: "secret", acl: true}
	to := filepath.Join(t.TempDir(), "users.acl")
	if err := r.writeUsers(file, to); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	const hash = "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b" // SHA-256 of secret
	zeros := "#" + strings.Repeat("0", 64)
	if strings.Contains(string(after), zeros) || strings.Count(string(after), hash) != strings.Count(string(before), zeros)+1 {
		t.Errorf("wrote\n%s", after)
	}
	rest, found := strings.CutSuffix(string(after), "user operator on "+hash+" ~* &* +@all\n")
	if !found || strings.ReplaceAll(rest, hash, zeros) != string(before) {
		t.Errorf("wrote\n%s", after)
	}
	if got := r.url("127.0.0.1:1", userWorker); got != "redis://trawl-worker:secret@127.0.0.1:1" {
		t.Error(got)
	}
	r.acl = false
	if got := r.url("127.0.0.1:1", userWorker); got != "redis://127.0.0.1:1" {
		t.Error(got)
	}
}
