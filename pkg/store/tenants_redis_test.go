package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// tenantScripts are all that change what is kept of tenants and keys.
var tenantScripts = []*script{
	tenantCreateScript, tenantChangeScript, tenantKeyAddScript, tenantKeyRotateScript, tenantKeyRevokeScript,
}

// lossy is a client that sends every change of tenants and keys twice, see twice.
func lossy(t *testing.T, r *crawltest.Redis) redis.UniversalClient {
	t.Helper()
	var hooks []redis.Hook
	for _, sc := range tenantScripts {
		hooks = append(hooks, twice{sc})
	}
	return r.Open(t, redisconn.Options{Hooks: hooks})
}

// A call whose answer was lost is sent again by the client itself, and answers as the first
// time. What came between the two is not undone.
func TestTenantResent(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		lossy := New(lossy(t, r), f.o)
		created, err := lossy.CreateTenant(t.Context(), crawl.Tenant{Name: f.tenant, Suspended: true})
		if err != nil || !created.Suspended {
			t.Fatalf("created %+v, %v", created, err)
		}
		for range 2 {
			created.Suspended = false
			changed, err := lossy.ChangeTenant(t.Context(), created)
			if err != nil || changed.Suspended || !changed.UpdatedAt.Equal(created.UpdatedAt.Add(time.Millisecond)) {
				t.Fatalf("changed %+v, %v: once and not refused", changed, err)
			}
			created = changed
		}
		n := NewKey{Tenant: f.tenant, Digest: digest(), Label: "x", ExpiresAt: f.at().Add(time.Hour)}
		k, err := lossy.AddKey(t.Context(), n)
		if err != nil || k.Label != "x" || !k.ExpiresAt.Equal(n.ExpiresAt) {
			t.Fatalf("added %+v, %v", k, err)
		}
		f.wantKeys(t, f.tenant, k)
		for _, overlap := range []time.Duration{time.Minute, 0} {
			next := NewKey{Digest: digest()}
			if k, err = lossy.RotateKey(t.Context(), f.tenant, k.ID, overlap, next); err != nil || k.ID != next.id() {
				t.Fatalf("rotated to %+v, %v", k, err)
			}
		}
		if err := lossy.RevokeKey(t.Context(), f.tenant, k.ID); err != nil {
			t.Errorf("revoked: %v", err)
		}
		wantCode(t, lossy.RevokeKey(t.Context(), f.tenant, k.ID), crawl.CodeNotFound)
		_, err = lossy.CreateTenant(t.Context(), crawl.Tenant{Name: f.tenant})
		wantCode(t, err, crawl.CodeTenantExists)
	})
}

// A call that is sent again after its key was ended by hand does not bring the key back.
func TestResentAfterTheEnd(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		tenant := f.newTenant(t)
		revoked, k := f.add(t, tenant, "", 0)
		if err := f.RevokeKey(t.Context(), tenant, k.ID); err != nil {
			t.Fatal(err)
		}
		rotated, k := f.add(t, tenant, "", 0)
		k, err := f.RotateKey(t.Context(), tenant, k.ID, 0, NewKey{Digest: digest()})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []NewKey{revoked, rotated} {
			_, err := f.AddKey(t.Context(), n)
			wantCode(t, err, crawl.CodeUnavailable)
			_, err = f.RotateKey(t.Context(), tenant, k.ID, 0, n)
			wantCode(t, err, crawl.CodeUnavailable)
			f.wantAuthenticated(t, n.Digest, "")
			ttl, err := f.rdb.PTTL(t.Context(), "{a}:gone:"+tenant+":"+n.id()).Result()
			if err != nil || ttl <= 0 || ttl > time.Minute {
				t.Errorf("the id is remembered for %v, %v", ttl, err)
			}
		}
		f.wantKeys(t, tenant, k)
	})
}

// The key of a tenant of which nothing is kept, which only lost data leaves, opens nothing.
func TestKeyWithoutTenant(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		tenant := f.newTenant(t)
		n, _ := f.add(t, tenant, "", 0)
		if err := f.rdb.Unlink(t.Context(), tenantKey(tenant)).Err(); err != nil {
			t.Fatal(err)
		}
		f.wantAuthenticated(t, n.Digest, "")
	})
}

// A record that something else broke fails, and never widens what the tenant may do.
func TestBrokenRecord(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		for _, field := range []string{"sources", "quota"} {
			tenant := f.newTenant(t)
			n, _ := f.add(t, tenant, "", 0)
			if err := f.rdb.HSet(t.Context(), tenantKey(tenant), field, `["a.test"`).Err(); err != nil {
				t.Fatal(err)
			}
			_, err := f.Tenant(t.Context(), tenant)
			_, _, err2 := f.Authenticate(t.Context(), n.Digest)
			if crawl.CodeOf(err) != crawl.CodeInternal || crawl.CodeOf(err2) != crawl.CodeInternal {
				t.Errorf("broken %s: %v, %v", field, err, err2)
			}
		}
	})
}

// Each call is one round trip once Redis knows its script.
func TestTenantTrips(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		calls := func() (out []func() error) {
			tenant := f.newTenant(t)
			n, k := f.add(t, tenant, "", 0)
			next := NewKey{Digest: digest()}
			return []func() error{
				func() error { _, _, err := f.Authenticate(t.Context(), n.Digest); return err },
				func() error { _, err := f.Tenant(t.Context(), tenant); return err },
				func() error { _, err := f.Tenants(t.Context(), "", 200); return err },
				func() error { _, err := f.ChangeTenant(t.Context(), crawl.Tenant{Name: tenant}); return err },
				func() error { _, err := f.Keys(t.Context(), tenant); return err },
				func() error { _, err := f.RotateKey(t.Context(), tenant, k.ID, 0, next); return err },
				func() error { return f.RevokeKey(t.Context(), tenant, next.id()) },
			}
		}
		for _, c := range calls() {
			if err := c(); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range calls() {
			before := f.Trips()
			if err := c(); err != nil || f.Trips() != before+1 {
				t.Errorf("call %d: %d round trips, %v", i, f.Trips()-before, err)
			}
		}
	})
}

// Redis never holds a key, in no form: only its digest.
func TestNoPlainKey(t *testing.T) {
	t.Parallel()
	for _, r := range []*crawltest.Redis{crawltest.Mini(t), privateIfAny(t)} {
		f := newFixture(t, r)
		tenant := f.newTenant(t)
		var secrets []string
		secret := func() [32]byte {
			s := rand.Text()
			secrets = append(secrets, s)
			return sha256.Sum256([]byte(s))
		}
		add := func() crawl.APIKey {
			k, err := f.AddKey(t.Context(), NewKey{Tenant: tenant, Digest: secret(), Label: "label"})
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		add()
		if err := f.RevokeKey(t.Context(), tenant, add().ID); err != nil {
			t.Fatal(err)
		}
		for _, overlap := range []time.Duration{0, time.Hour} {
			if _, err := f.RotateKey(t.Context(), tenant, add().ID, overlap, NewKey{Digest: secret()}); err != nil {
				t.Fatal(err)
			}
		}
		all := dump(t, r.Client)
		if !strings.Contains(all, "label") || !strings.Contains(all, tenant) {
			t.Fatalf("%s: not all was looked at: %q", r.Name, all)
		}
		for _, s := range secrets {
			b := []byte(s)
			for _, form := range []string{s, s[:16], hex.EncodeToString(b), base64.StdEncoding.EncodeToString(b)} {
				if strings.Contains(strings.ToLower(all), strings.ToLower(form)) {
					t.Errorf("%s holds a key as %s", r.Name, form)
				}
			}
		}
		for _, k := range r.Client.Keys(t.Context(), "*").Val() {
			if !strings.HasPrefix(k, "{a}:") {
				t.Errorf("%s: %s is not under the tag of accounts", r.Name, k)
			}
		}
	}
}

// dump is every key and value of a Redis.
func dump(t *testing.T, c redis.UniversalClient) string {
	t.Helper()
	ctx, b := t.Context(), strings.Builder{}
	for _, k := range c.Keys(ctx, "*").Val() {
		var v any
		var err error
		switch kind := c.Type(ctx, k).Val(); kind {
		case "string":
			v, err = c.Get(ctx, k).Result()
		case "hash":
			v, err = c.HGetAll(ctx, k).Result()
		case "zset":
			v, err = c.ZRange(ctx, k, 0, -1).Result()
		default:
			t.Errorf("%s is a %s, of which this test knows nothing", k, kind)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, k, v)
	}
	return b.String()
}

// What scripts name under {a} is listed in keys.go, and what a worker runs names nothing there:
// an ACL can keep it away.
func TestTenantKeyNames(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("keys.go")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for name, text := range luaFiles(t) {
		for _, m := range regexp.MustCompile(`\{a\}:[a-z]+`).FindAllString(text, -1) {
			used[m] = true
			if !regexp.MustCompile(`//\t` + regexp.QuoteMeta(m) + `\b`).Match(b) {
				t.Errorf("%s uses %s, which keys.go does not list", name, m)
			}
			if !strings.Contains(name, "tenant") {
				t.Errorf("%s, which workers may run, uses %s", name, m)
			}
		}
	}
	for _, k := range []string{tenantDirKey, tenantKey("n"), tenantKeysKey("n"), apiKeyKey([32]byte{}), "{a}:gone:n:i"} {
		m := regexp.MustCompile(`^\{a\}:[a-z]+`).FindString(k)
		if !regexp.MustCompile(`//\t` + regexp.QuoteMeta(m) + `\b`).Match(b) {
			t.Errorf("%s is not listed in keys.go", k)
		}
		delete(used, m)
	}
	if len(used) > 0 {
		t.Errorf("names that only Lua knows: %q", slices.Collect(maps.Keys(used)))
	}
}

// A Redis that is full takes no tenant and no key, and says so; but what is to end ends: a key can
// be revoked and a tenant suspended.
func TestTenantsOfAFullRedis(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	tenant := f.newTenant(t)
	n, k := f.add(t, tenant, "", 0)
	kept, k2 := f.add(t, tenant, "", 0)
	if err := r.Client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := f.CreateTenant(t.Context(), crawl.Tenant{Name: f.tenant})
	wantCode(t, err, crawl.CodeOverloaded)
	_, err = f.AddKey(t.Context(), NewKey{Tenant: tenant, Digest: digest()})
	wantCode(t, err, crawl.CodeOverloaded)
	_, err = f.RotateKey(t.Context(), tenant, k2.ID, 0, NewKey{Digest: digest()})
	wantCode(t, err, crawl.CodeOverloaded)
	f.wantAuthenticated(t, kept.Digest, tenant)
	if err := f.RevokeKey(t.Context(), tenant, k.ID); err != nil {
		t.Errorf("revoked: %v", err)
	}
	f.wantAuthenticated(t, n.Digest, "")
	read, err := f.Tenant(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	read.Sources, read.Suspended = []string{}, true
	got, err := f.ChangeTenant(t.Context(), read)
	if err != nil || !got.Suspended || got.Sources == nil {
		t.Errorf("suspended %+v, %v", got, err)
	}
	if _, err := f.Tenant(t.Context(), f.tenant); crawl.CodeOf(err) != crawl.CodeNotFound {
		t.Errorf("half created: %v", err)
	}
	f.wantKeys(t, tenant, k2)
}

// A store that is down says so of every call. One that was started again, and so lost its
// scripts, still knows every key.
func TestTenantsAfterAnOutage(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	tenant := f.newTenant(t)
	n, k := f.add(t, tenant, "", time.Hour)
	r.Stop()
	next := NewKey{Tenant: tenant, Digest: digest()}
	for name, call := range map[string]func() error{
		"authenticate": func() error { _, _, err := f.Authenticate(t.Context(), n.Digest); return err },
		"tenant":       func() error { _, err := f.Tenant(t.Context(), tenant); return err },
		"tenants":      func() error { _, err := f.Tenants(t.Context(), "", 1); return err },
		"create":       func() error { _, err := f.CreateTenant(t.Context(), crawl.Tenant{Name: f.tenant}); return err },
		"change":       func() error { _, err := f.ChangeTenant(t.Context(), crawl.Tenant{Name: tenant}); return err },
		"keys":         func() error { _, err := f.Keys(t.Context(), tenant); return err },
		"add":          func() error { _, err := f.AddKey(t.Context(), next); return err },
		"rotate":       func() error { _, err := f.RotateKey(t.Context(), tenant, k.ID, 0, next); return err },
		"revoke":       func() error { return f.RevokeKey(t.Context(), tenant, k.ID) },
	} {
		if fault := wantCode(t, call(), crawl.CodeUnavailable); fault.RetryAfter <= 0 {
			t.Errorf("%s: no time to wait", name)
		}
	}
	r.Start()
	crawltest.Eventually(t, 10*time.Second, "the store to be ready again", func() bool {
		return f.Ready(t.Context()) == nil
	})
	f.wantAuthenticated(t, n.Digest, tenant)
	f.wantKeys(t, tenant, k)
}
