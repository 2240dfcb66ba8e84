package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"example.com/trawl/pkg/crawl"
)

// MaxKeys is how many keys a tenant may have at once; those that were revoked or have
// expired do not count. It is far more than a service and its deployments use, and
// few enough that one script reads them all.
const MaxKeys = 100

// maxTenants bounds one page of tenants.
const maxTenants = 200

// NewKey is a key that is to be kept. The key itself never comes here.
type NewKey struct {
	Tenant    string
	Digest    [32]byte // SHA-256 of the key, which has at least 128 random bits: no salt is needed
	Label     string
	ExpiresAt time.Time // to the millisecond; zero for never
}

// id names the key in lists and paths: the first 64 bits of its digest, in hex. They tell
// nobody the key, which has twice as many random bits.
func (k NewKey) id() string { return hex.EncodeToString(k.Digest[:8]) }

// expires is ExpiresAt as the scripts take it: in ms, empty for never.
func (k NewKey) expires() string {
	if k.ExpiresAt.IsZero() {
		return ""
	}
	return strconv.FormatInt(k.ExpiresAt.UnixMilli(), 10)
}

// TenantPage is one page of tenants in the order of their names.
type TenantPage struct {
	Tenants []crawl.Tenant
	Next    string // pass as after to go on
	More    bool
}

// Authenticate answers whose key it is that has this digest, and what is kept of that tenant,
// in one round trip. Faults: unauthenticated for a key that is unknown, revoked or expired,
// or whose tenant is not kept; unavailable.
//
// The key is looked up by its digest and never compared with others. Whatever the time that
// this takes tells is about digests, and who guesses cannot choose those: it brings nobody
// nearer to 128 random bits.
func (s *Store) Authenticate(ctx context.Context, digest [32]byte) (crawl.APIKey, crawl.Tenant, error) {
	a, err := s.one(ctx, tenantAuthenticateScript, []string{apiKeyKey(digest)}, s.now(), hex.EncodeToString(digest[:]))
	if err != nil {
		return crawl.APIKey{}, crawl.Tenant{}, err
	}
	if len(a) < 2 {
		return crawl.APIKey{}, crawl.Tenant{}, crawl.Faultf(crawl.CodeUnauthenticated,
			"This needs an API key that the service knows, and that was not revoked and has not expired.")
	}
	key := decodeKey(a[0])
	tenant, err := decodeTenant(key.Tenant, a[1])
	if err != nil {
		return crawl.APIKey{}, crawl.Tenant{}, err
	}
	return key, tenant, nil
}

// Tenant answers what is kept of a tenant. Faults: not_found, unavailable.
func (s *Store) Tenant(ctx context.Context, name string) (crawl.Tenant, error) {
	s.trips.Add(1)
	h, err := s.rdb.HGetAll(ctx, tenantKey(name)).Result()
	if err != nil {
		return crawl.Tenant{}, fmt.Errorf("tenant: %w", fault(err))
	}
	if len(h) == 0 {
		return crawl.Tenant{}, noTenant(name)
	}
	return tenantOf(name, h)
}

// Tenants lists tenants by name, those after the given one; limit is 1 to 200, and what is
// outside of that becomes the nearer of the two. A record that cannot be read is passed over
// and logged: it must not hide the tenants behind it. Faults: unavailable.
func (s *Store) Tenants(ctx context.Context, after string, limit int) (TenantPage, error) {
	limit = min(max(limit, 1), maxTenants)
	a, err := s.one(ctx, tenantListScript, []string{tenantDirKey}, after, limit)
	if err != nil {
		return TenantPage{}, err
	}
	page := TenantPage{Next: after, More: num(a[0]) == 1}
	for i := 1; i+1 < len(a); i += 2 {
		page.Next = str(a[i])
		t, err := decodeTenant(page.Next, a[i+1])
		if err != nil {
			s.o.Logger.ErrorContext(ctx, "the record of a tenant is lost or broken: remove in Redis what is left of it, and create it anew",
				slog.String("tenant", page.Next), slog.String("key", tenantKey(page.Next)), slog.Any("err", err))
			continue
		}
		page.Tenants = append(page.Tenants, t)
	}
	return page, nil
}

// CreateTenant keeps a new tenant and answers it; its times are those of the store, whatever
// t says. Faults: tenant_exists, unavailable, overloaded. Its quota counts once
// [Store.SetQuota] has put it where the tenant's jobs are.
func (s *Store) CreateTenant(ctx context.Context, t crawl.Tenant) (crawl.Tenant, error) {
	record, err := tenantArgs(t)
	if err != nil {
		return crawl.Tenant{}, err
	}
	args := append([]any{s.now(), t.Name, rand.Text()}, record...)
	a, err := s.one(ctx, tenantCreateScript, []string{tenantDirKey, tenantKey(t.Name)}, args...)
	if err != nil {
		return crawl.Tenant{}, err
	}
	if str(a[0]) == "exists" {
		return crawl.Tenant{}, crawl.Faultf(crawl.CodeTenantExists,
			"There is a tenant %q already. Change that one, or choose another name.", t.Name)
	}
	return decodeTenant(t.Name, a[1])
}

// ChangeTenant replaces what is kept of a tenant, but for when it was created, and answers
// it. t.UpdatedAt is the one that was read with what t was made of: if another change came in
// between, it is refused, so that of two at once none undoes the other; zero expects nothing,
// and the later one holds. The UpdatedAt that is answered is the store's time, and later than
// that of every change before. It works although Redis is full, so that a tenant that filled
// it can be suspended. Faults: not_found, wrong_state (read the tenant and change it again),
// unavailable. Its quota is as with [Store.CreateTenant].
func (s *Store) ChangeTenant(ctx context.Context, t crawl.Tenant) (crawl.Tenant, error) {
	record, err := tenantArgs(t)
	if err != nil {
		return crawl.Tenant{}, err
	}
	read := ""
	if !t.UpdatedAt.IsZero() {
		read = strconv.FormatInt(t.UpdatedAt.UnixMilli(), 10)
	}
	args := append([]any{s.now(), rand.Text(), read}, record...)
	a, err := s.one(ctx, tenantChangeScript, []string{tenantKey(t.Name)}, args...)
	if err != nil {
		return crawl.Tenant{}, err
	}
	switch str(a[0]) {
	case "absent":
		return crawl.Tenant{}, noTenant(t.Name)
	case "stale":
		return crawl.Tenant{}, crawl.Faultf(crawl.CodeWrongState,
			"Tenant %q was changed since it was read. Read it again, and change what it is now.", t.Name)
	}
	return decodeTenant(t.Name, a[1])
}

// Keys lists the keys of a tenant that are neither revoked nor expired, the oldest first.
// Faults: not_found for a tenant that is not kept, unavailable.
func (s *Store) Keys(ctx context.Context, tenant string) ([]crawl.APIKey, error) {
	a, err := s.one(ctx, tenantKeysScript, []string{tenantKey(tenant), tenantKeysKey(tenant)}, s.now())
	if err != nil {
		return nil, err
	}
	if num(a[0]) == 0 {
		return nil, noTenant(tenant)
	}
	keys := make([]crawl.APIKey, 0, len(a)-1)
	for _, k := range a[1:] {
		keys = append(keys, decodeKey(k))
	}
	slices.SortFunc(keys, func(a, b crawl.APIKey) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return keys, nil
}

// AddKey keeps a key of a tenant. The same digest again answers the key that is kept, as it
// was kept. Faults: not_found for a tenant that is not kept, quota_exceeded when it has
// [MaxKeys] keys, invalid for a key that has expired already, unavailable (also when another
// key has its id: make a new one), overloaded.
func (s *Store) AddKey(ctx context.Context, k NewKey) (crawl.APIKey, error) {
	a, err := s.one(ctx, tenantKeyAddScript, k.keys(), s.now(), k.Tenant, k.id(), hex.EncodeToString(k.Digest[:]),
		k.Label, k.expires(), MaxKeys)
	if err != nil {
		return crawl.APIKey{}, err
	}
	return k.kept(a, "Revoke one that is not used any more.")
}

// RotateKey keeps a key that takes the place of another of the same tenant: the old one
// ends after overlap (0 or less: at once), or earlier if it was to. The new one has the label
// of the old, whatever next says. If next does not say when it expires, it has as long a
// life as the old one was given, from now on: a key that was made to end does not become one
// that never does. Faults: not_found for a tenant or key that is not there, and those of
// [Store.AddKey]; while both keys hold, both count.
func (s *Store) RotateKey(
	ctx context.Context, tenant, id string, overlap time.Duration, next NewKey,
) (crawl.APIKey, error) {
	next.Tenant = tenant
	a, err := s.one(ctx, tenantKeyRotateScript, next.keys(), s.now(), tenant, next.id(),
		hex.EncodeToString(next.Digest[:]), id, next.expires(), MaxKeys, overlap.Milliseconds())
	if err != nil {
		return crawl.APIKey{}, err
	}
	if str(a[0]) == "no_key" {
		return crawl.APIKey{}, noKey(tenant, id)
	}
	return next.kept(a, "Revoke one that is not used any more, or rotate without an overlap.")
}

// RevokeKey ends a key at once, also when Redis is full. Faults: not_found, unavailable.
func (s *Store) RevokeKey(ctx context.Context, tenant, id string) error {
	a, err := s.one(ctx, tenantKeyRevokeScript, []string{tenantKeysKey(tenant)}, s.now(), tenant, id, rand.Text())
	if err != nil {
		return err
	}
	if num(a[0]) == 0 {
		return noKey(tenant, id)
	}
	return nil
}

// keys are the names that a script is given which keeps the key.
func (k NewKey) keys() []string {
	return []string{tenantKey(k.Tenant), tenantKeysKey(k.Tenant), apiKeyKey(k.Digest)}
}

// kept reads the answer of a script that keeps the key; room says how to make some.
func (k NewKey) kept(a []any, room string) (crawl.APIKey, error) {
	switch str(a[0]) {
	case "kept":
		return decodeKey(a[1]), nil
	case "no_tenant":
		return crawl.APIKey{}, noTenant(k.Tenant)
	case "full":
		return crawl.APIKey{}, &crawl.Fault{
			Code: crawl.CodeQuotaExceeded, Limit: "keys", LimitMax: MaxKeys,
			Message: fmt.Sprintf("Tenant %q has %d keys, which is as many as it may. %s", k.Tenant, MaxKeys, room),
		}
	case "over":
		return crawl.APIKey{}, crawl.Faultf(crawl.CodeInvalid,
			"The key would have expired before it could be used. Give it a longer life.")
	default: // Two random keys of one tenant share 64 bits: this does not happen, but must do no harm.
		return crawl.APIKey{}, &crawl.Fault{
			Code: crawl.CodeUnavailable, RetryAfter: time.Second,
			Message: "The new key has the id of another one and was not kept. Try again: it will have another id.",
		}
	}
}

func noTenant(name string) error {
	return crawl.Faultf(crawl.CodeNotFound, "There is no tenant %q.", name)
}

func noKey(tenant, id string) error {
	return crawl.Faultf(crawl.CodeNotFound,
		"Tenant %q has no key %q: there never was one, or it was revoked or has expired.", tenant, id)
}

// tenantArgs are sources, quota and suspended as the scripts keep them.
func tenantArgs(t crawl.Tenant) ([]any, error) {
	sources := ""
	if t.Sources != nil {
		b, err := json.Marshal(t.Sources)
		if err != nil {
			return nil, fmt.Errorf("store: sources: %w", err)
		}
		sources = string(b)
	}
	quota, err := json.Marshal(t.Quota)
	if err != nil {
		return nil, fmt.Errorf("store: quota: %w", err)
	}
	suspended := 0
	if t.Suspended {
		suspended = 1
	}
	return []any{sources, quota, suspended}, nil
}

// decodeTenant reads a record as HGETALL gives it within a script: field, value….
func decodeTenant(name string, record any) (crawl.Tenant, error) {
	a, _ := record.([]any)
	h := make(map[string]string, len(a)/2)
	for i := 0; i+1 < len(a); i += 2 {
		h[str(a[i])] = str(a[i+1])
	}
	return tenantOf(name, h)
}

func tenantOf(name string, h map[string]string) (crawl.Tenant, error) {
	t := crawl.Tenant{
		Name: name, Suspended: h["suspended"] == "1", CreatedAt: keptTime(h["created"]), UpdatedAt: keptTime(h["updated"]),
	}
	if err := json.Unmarshal([]byte(h["quota"]), &t.Quota); err != nil {
		return crawl.Tenant{}, fmt.Errorf("store: quota of tenant %s: %w", name, err)
	}
	if sources, ok := h["sources"]; ok {
		// A record that cannot be read must not widen what the tenant may crawl: it fails.
		if err := json.Unmarshal([]byte(sources), &t.Sources); err != nil {
			return crawl.Tenant{}, fmt.Errorf("store: sources of tenant %s: %w", name, err)
		}
	}
	return t, nil
}

// decodeKey reads a key as the scripts answer it: tenant, id, label, created, expires.
func decodeKey(v any) crawl.APIKey {
	a, _ := v.([]any)
	if len(a) < 5 {
		return crawl.APIKey{}
	}
	return crawl.APIKey{
		Tenant: str(a[0]), ID: str(a[1]), Label: str(a[2]), CreatedAt: keptTime(str(a[3])), ExpiresAt: keptTime(str(a[4])),
	}
}

// keptTime reads a time in ms; the empty string is no time.
func keptTime(ms string) time.Time {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
