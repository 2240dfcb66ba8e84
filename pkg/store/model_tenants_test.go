package store

import (
	"context"
	"encoding/hex"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// tenantModel says what must be kept of tenants and keys after any order of calls. It is
// written from the contract: two maps and a clock.
type tenantModel struct {
	st, lossy *Store // lossy sends every change twice
	now       int64
	names     []string
	tenants   map[string]crawl.Tenant
	keys      []*tenantModelKey // every key that there ever was
}

type tenantModelKey struct {
	crawl.APIKey
	digest  [32]byte
	life    time.Duration // 0 for ever
	revoked bool
}

func (m *tenantModel) at() time.Time { return time.UnixMilli(m.now).UTC() }

func (m *tenantModel) holds(k *tenantModelKey) bool {
	return !k.revoked && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(m.at()))
}

// store draws the one that is called: any change may lose its answer.
func (m *tenantModel) store(t *rapid.T) *Store {
	if rapid.IntRange(0, 3).Draw(t, "answer lost") == 0 {
		return m.lossy
	}
	return m.st
}

func (m *tenantModel) name(t *rapid.T) string { return rapid.SampledFrom(m.names).Draw(t, "tenant") }

// hours draws a time in hours from now; 0 and less are drawn too. All times are whole hours, so that a key
// is often looked at in the very millisecond at which it ends, and Redis, whose
// own clock stands still meanwhile, removes none of them.
func (m *tenantModel) hours(t *rapid.T, label string, from, to int) time.Duration {
	return time.Duration(rapid.IntRange(from, to).Draw(t, label)) * time.Hour
}

// expires draws when a new key is to: never, in some hours, or, seldom, by now.
func (m *tenantModel) expires(t *rapid.T) time.Time {
	if rapid.Bool().Draw(t, "never") {
		return time.Time{}
	}
	return m.at().Add(m.hours(t, "life", 0, 6))
}

// key draws the id of any key there ever was, of whatever tenant, or of none.
func (m *tenantModel) key(t *rapid.T) (string, *tenantModelKey) {
	if len(m.keys) == 0 || rapid.IntRange(0, 9).Draw(t, "unknown") == 0 {
		return "0123456789abcdef", nil
	}
	k := rapid.SampledFrom(m.keys).Draw(t, "key")
	return k.ID, k
}

// own answers the key if it holds and is the tenant's, otherwise nil.
func (m *tenantModel) own(name string, k *tenantModelKey) *tenantModelKey {
	if _, ok := m.tenants[name]; !ok || k == nil || k.Tenant != name || !m.holds(k) {
		return nil
	}
	return k
}

func (m *tenantModel) keep(n NewKey, label string, life time.Duration) *tenantModelKey {
	k := &tenantModelKey{digest: n.Digest, life: life, APIKey: crawl.APIKey{
		ID: hex.EncodeToString(n.Digest[:])[:16], Tenant: n.Tenant, Label: label, CreatedAt: m.at(),
	}}
	if life > 0 {
		k.ExpiresAt = m.at().Add(life)
	}
	m.keys = append(m.keys, k)
	return k
}

func (m *tenantModel) draw(t *rapid.T) crawl.Tenant {
	c := crawl.Tenant{Name: m.name(t), Suspended: rapid.Bool().Draw(t, "suspended")}
	c.Quota.MaxPages = int64(rapid.IntRange(0, 3).Draw(t, "max pages"))
	if rapid.Bool().Draw(t, "sources") {
		c.Sources = rapid.SliceOfN(rapid.SampledFrom([]string{"a.test", "*.b.test"}), 0, 2).Draw(t, "sources")
	}
	return c
}

func wantOutcome(t *rapid.T, err error, want crawl.Code) bool {
	t.Helper()
	if got := crawl.CodeOf(err); got != want {
		t.Fatalf("answered %q (%v), want %q", got, err, want)
	}
	return err == nil
}

func (m *tenantModel) create(ctx context.Context, t *rapid.T) {
	c, want := m.draw(t), crawl.Code("")
	if _, ok := m.tenants[c.Name]; ok {
		want = crawl.CodeTenantExists
	}
	got, err := m.store(t).CreateTenant(ctx, c)
	if wantOutcome(t, err, want) {
		c.CreatedAt, c.UpdatedAt = m.at(), m.at()
		m.keepTenant(t, c, got)
	}
}

func (m *tenantModel) change(ctx context.Context, t *rapid.T) {
	c, want := m.draw(t), crawl.CodeNotFound
	was, ok := m.tenants[c.Name]
	// What was read: nothing, what is kept, or what is not kept any more or not yet.
	switch rapid.IntRange(0, 3).Draw(t, "read") {
	case 0:
	case 1:
		off := rapid.SampledFrom([]time.Duration{-time.Hour, -time.Millisecond, time.Millisecond}).Draw(t, "off")
		c.UpdatedAt = was.UpdatedAt.Add(off)
	default:
		c.UpdatedAt = was.UpdatedAt
	}
	if ok {
		want = ""
		if !c.UpdatedAt.IsZero() && !c.UpdatedAt.Equal(was.UpdatedAt) {
			want = crawl.CodeWrongState
		}
	}
	got, err := m.store(t).ChangeTenant(ctx, c)
	if wantOutcome(t, err, want) {
		c.CreatedAt, c.UpdatedAt = was.CreatedAt, m.at()
		if next := was.UpdatedAt.Add(time.Millisecond); next.After(c.UpdatedAt) {
			c.UpdatedAt = next
		}
		m.keepTenant(t, c, got)
	}
}

func (m *tenantModel) keepTenant(t *rapid.T, want, got crawl.Tenant) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("tenant (-want +got):\n%s", d)
	}
	m.tenants[want.Name] = want
}

func (m *tenantModel) add(ctx context.Context, t *rapid.T) {
	n := NewKey{Tenant: m.name(t), Digest: digest(), Label: rapid.SampledFrom([]string{"", "a b"}).Draw(t, "label")}
	n.ExpiresAt = m.expires(t)
	want := crawl.Code("")
	if _, ok := m.tenants[n.Tenant]; !ok {
		want = crawl.CodeNotFound
	} else if n.ExpiresAt.Equal(m.at()) {
		want = crawl.CodeInvalid
	}
	got, err := m.store(t).AddKey(ctx, n)
	if !wantOutcome(t, err, want) {
		return
	}
	life := time.Duration(0)
	if !n.ExpiresAt.IsZero() {
		life = n.ExpiresAt.Sub(m.at())
	}
	if d := cmp.Diff(m.keep(n, n.Label, life).APIKey, got); d != "" {
		t.Fatalf("added (-want +got):\n%s", d)
	}
}

func (m *tenantModel) rotate(ctx context.Context, t *rapid.T) {
	id, k := m.key(t)
	n := NewKey{Tenant: m.name(t), Digest: digest()}
	n.ExpiresAt = m.expires(t)
	overlap := m.hours(t, "overlap", -1, 4)
	old, want := m.own(n.Tenant, k), crawl.Code("")
	if old == nil {
		want = crawl.CodeNotFound
	} else if n.ExpiresAt.Equal(m.at()) {
		want = crawl.CodeInvalid
	}
	got, err := m.store(t).RotateKey(ctx, n.Tenant, id, overlap, n)
	if !wantOutcome(t, err, want) {
		return
	}
	life := old.life
	if !n.ExpiresAt.IsZero() {
		life = n.ExpiresAt.Sub(m.at())
	}
	if d := cmp.Diff(m.keep(n, old.Label, life).APIKey, got); d != "" {
		t.Fatalf("rotated (-want +got):\n%s", d)
	}
	ends := m.at().Add(max(overlap, 0))
	if old.ExpiresAt.IsZero() || ends.Before(old.ExpiresAt) {
		old.ExpiresAt = ends
	}
}

func (m *tenantModel) revoke(ctx context.Context, t *rapid.T) {
	id, k := m.key(t)
	name := m.name(t)
	own, want := m.own(name, k), crawl.Code("")
	if own == nil {
		want = crawl.CodeNotFound
	}
	if wantOutcome(t, m.store(t).RevokeKey(ctx, name, id), want) {
		own.revoked = true
	}
}

func (m *tenantModel) authenticate(ctx context.Context, t *rapid.T) {
	_, k := m.key(t)
	d, want := digest(), crawl.CodeUnauthenticated
	if k != nil {
		d = k.digest
		if m.holds(k) {
			want = ""
		}
	}
	got, tenant, err := m.st.Authenticate(ctx, d)
	if wantOutcome(t, err, want) {
		if d := cmp.Diff(k.APIKey, got) + cmp.Diff(m.tenants[k.Tenant], tenant); d != "" {
			t.Fatalf("authenticated (-want +got):\n%s", d)
		}
	}
}

// check compares what is read of one of the tenants: after every step of any, at the
// end of every.
func (m *tenantModel) check(ctx context.Context, t *rapid.T) { m.compare(ctx, t, m.name(t)) }

// compare compares what is read of tenants, and that no id outlives its key.
func (m *tenantModel) compare(ctx context.Context, t *rapid.T, names ...string) {
	for _, name := range names {
		want, ok := m.tenants[name]
		code := crawl.CodeNotFound
		if ok {
			code = ""
		}
		got, err := m.st.Tenant(ctx, name)
		if wantOutcome(t, err, code) {
			m.keepTenant(t, want, got)
		}
		listed, err := m.st.Keys(ctx, name)
		wantOutcome(t, err, code)
		var keys []crawl.APIKey
		ids := map[string]string{}
		for _, k := range m.keys {
			if k.Tenant == name && m.holds(k) {
				keys = append(keys, k.APIKey)
				ids[k.ID] = hex.EncodeToString(k.digest[:])
			}
		}
		if d := cmp.Diff(sorted(keys), sorted(listed)); d != "" {
			t.Fatalf("keys (-want +got):\n%s", d)
		}
		if !slices.IsSortedFunc(listed, func(a, b crawl.APIKey) int { return a.CreatedAt.Compare(b.CreatedAt) }) {
			t.Fatalf("not the oldest first: %+v", listed)
		}
		if kept := m.st.rdb.HGetAll(ctx, tenantKeysKey(name)).Val(); !maps.Equal(ids, kept) {
			t.Fatalf("ids that are kept: %v, want %v", kept, ids)
		}
	}
}

func sorted(keys []crawl.APIKey) []crawl.APIKey {
	return slices.SortedFunc(slices.Values(keys), func(a, b crawl.APIKey) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
}

// TestTenantInterleavings drives random calls for two tenants against the model and
// compares all that is kept after every one.
func TestTenantInterleavings(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		twiceSent := lossy(t, r)
		rapid.Check(t, func(rt *rapid.T) {
			ctx := t.Context()
			m := &tenantModel{
				now: 1_700_000_000_000, tenants: map[string]crawl.Tenant{},
				names: []string{crawltest.Tenant(t), crawltest.Tenant(t)},
			}
			now := func() int64 { return m.now }
			m.st, m.lossy = New(r.Client, Options{Now: now}), New(twiceSent, Options{Now: now})
			step := func(f func(context.Context, *rapid.T)) func(*rapid.T) {
				return func(rt *rapid.T) { f(ctx, rt) }
			}
			rt.Repeat(map[string]func(*rapid.T){
				"":             step(m.check),
				"create":       step(m.create),
				"change":       step(m.change),
				"add":          step(m.add),
				"add2":         step(m.add),
				"rotate":       step(m.rotate),
				"rotate2":      step(m.rotate),
				"revoke":       step(m.revoke),
				"authenticate": step(m.authenticate),
				"time":         func(rt *rapid.T) { m.now += m.hours(rt, "passed", 0, 4).Milliseconds() },
			})
			m.compare(ctx, rt, m.names...)
		})
	})
}
