package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// digest is that of a new random key.
func digest() [32]byte { return sha256.Sum256([]byte(rand.Text())) }

// newTenant keeps a tenant of nobody else, about which nothing is particular.
func (f *fixture) newTenant(t *testing.T) string {
	t.Helper()
	name := crawltest.Tenant(t)
	if _, err := f.CreateTenant(t.Context(), crawl.Tenant{Name: name}); err != nil {
		t.Fatal(err)
	}
	return name
}

// add keeps a key that ends after life; 0 is never.
func (f *fixture) add(t *testing.T, tenant, label string, life time.Duration) (NewKey, crawl.APIKey) {
	t.Helper()
	n := NewKey{Tenant: tenant, Digest: digest(), Label: label}
	if life > 0 {
		n.ExpiresAt = f.at().Add(life)
	}
	k, err := f.AddKey(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return n, k
}

// wantKeys compares the keys that are listed, by their ids.
func (f *fixture) wantKeys(t *testing.T, tenant string, want ...crawl.APIKey) {
	t.Helper()
	got, err := f.Keys(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	byID := func(a, b crawl.APIKey) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(got, byID)
	want = append([]crawl.APIKey{}, want...)
	slices.SortFunc(want, byID)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}
}

// wantAuthenticated checks whose key it is; "" for nobody's.
func (f *fixture) wantAuthenticated(t *testing.T, digest [32]byte, tenant string) {
	t.Helper()
	k, of, err := f.Authenticate(t.Context(), digest)
	if tenant == "" {
		wantCode(t, err, crawl.CodeUnauthenticated)
		return
	}
	if err != nil || k.Tenant != tenant || of.Name != tenant || of.CreatedAt.IsZero() {
		t.Errorf("authenticated %+v of %+v, %v, want %s", k, of, err, tenant)
	}
}

// second is the error of a call that answers something, too.
func second[T any](_ T, err error) error { return err }

// What is kept of a tenant is read back as it was given, the difference between no sources and
// none of its own included; a change replaces all but when it was created.
func TestTenantRecord(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		for i, tenant := range []crawl.Tenant{
			{},
			{Sources: []string{}},
			{Sources: []string{"https://a.test/x", `*.b.test:8443/"é`}, Suspended: true},
			{Quota: crawl.Quota{MaxQueued: 1, MaxRunning: 2, MaxPages: 3, PagesPerDay: 4, MaxBytes: 1 << 53}},
			{Quota: crawl.Quota{SubmissionsPerSecond: 6}},
		} {
			tenant.Name = fmt.Sprint(f.tenant, i)
			want := tenant
			want.CreatedAt, want.UpdatedAt = f.at(), f.at()
			tenant.CreatedAt = time.UnixMilli(1) // the store's own times count
			got, err := f.CreateTenant(t.Context(), tenant)
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Fatalf("created: %v (-want +got):\n%s", err, d)
			}
			n, _ := f.add(t, tenant.Name, "", 0)
			for range 2 {
				got, err = f.Tenant(t.Context(), tenant.Name)
				_, of, err2 := f.Authenticate(t.Context(), n.Digest)
				if d := cmp.Diff([]crawl.Tenant{want, want}, []crawl.Tenant{got, of}); d != "" || err != nil || err2 != nil {
					t.Fatalf("read: %v, %v (-want +got):\n%s", err, err2, d)
				}
				f.pass(time.Second)
				want = crawl.Tenant{
					Name: tenant.Name, Quota: crawl.Quota{MaxPages: int64(i)}, Suspended: !want.Suspended,
					CreatedAt: want.CreatedAt, UpdatedAt: f.at(),
				}
				if want.Suspended {
					want.Sources = []string{"c.test"}
				}
				change := want
				change.CreatedAt, change.UpdatedAt = time.UnixMilli(1), got.UpdatedAt // that which was read
				got, err = f.ChangeTenant(t.Context(), change)
				if d := cmp.Diff(want, got); d != "" || err != nil {
					t.Fatalf("changed: %v (-want +got):\n%s", err, d)
				}
			}
		}
	})
}

// Each call that cannot be done says so by its code, and changes nothing. An id that is no id
// but was made to reach other keys of Redis is one that nobody has (SEC-10).
func TestTenantFaults(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		a, b, nobody := f.newTenant(t), f.newTenant(t), f.tenant
		of, key := f.add(t, a, "a's", 0)
		twin := NewKey{Tenant: a, Digest: digest()}
		copy(twin.Digest[:8], of.Digest[:8])
		before, err := f.Tenant(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		type faultCase struct {
			call func() error
			want crawl.Code
		}
		ctx, past := t.Context(), f.at()
		old := time.UnixMilli(-1)
		add := func(k NewKey) func() error {
			return func() error { return second(f.AddKey(ctx, k)) }
		}
		rotate := func(tenant, id string, next NewKey) func() error {
			return func() error { return second(f.RotateKey(ctx, tenant, id, 0, next)) }
		}
		revoke := func(tenant, id string) func() error {
			return func() error { return f.RevokeKey(ctx, tenant, id) }
		}
		authenticate := func() error {
			_, _, err := f.Authenticate(ctx, digest())
			return err
		}
		create := func() error { return second(f.CreateTenant(ctx, crawl.Tenant{Name: a, Suspended: true})) }
		change := func(name string, read time.Time) func() error {
			return func() error {
				return second(f.ChangeTenant(ctx, crawl.Tenant{Name: name, Suspended: true, UpdatedAt: read}))
			}
		}
		cases := map[string]faultCase{
			"unknown key":           {authenticate, crawl.CodeUnauthenticated},
			"no tenant":             {func() error { return second(f.Tenant(ctx, nobody)) }, crawl.CodeNotFound},
			"empty name":            {func() error { return second(f.Tenant(ctx, "")) }, crawl.CodeNotFound},
			"create twice":          {create, crawl.CodeTenantExists},
			"change nobody":         {change(nobody, time.Time{}), crawl.CodeNotFound},
			"change what nobody is": {change(nobody, past), crawl.CodeNotFound},
			"change an older one":   {change(a, before.UpdatedAt.Add(-time.Millisecond)), crawl.CodeWrongState},
			"change a later one":    {change(a, before.UpdatedAt.Add(time.Millisecond)), crawl.CodeWrongState},
			"keys of nobody":        {func() error { return second(f.Keys(ctx, nobody)) }, crawl.CodeNotFound},
			"add to nobody":         {add(NewKey{Tenant: nobody, Digest: digest()}), crawl.CodeNotFound},
			"add an expired one":    {add(NewKey{Tenant: a, Digest: digest(), ExpiresAt: past}), crawl.CodeInvalid},
			"add one of 1969":       {add(NewKey{Tenant: a, Digest: digest(), ExpiresAt: old}), crawl.CodeInvalid},
			"add the same id":       {add(twin), crawl.CodeUnavailable},
			"add the same digest":   {add(NewKey{Tenant: b, Digest: of.Digest}), crawl.CodeUnavailable},
			"rotate of nobody":      {rotate(nobody, key.ID, NewKey{Digest: digest()}), crawl.CodeNotFound},
			"rotate no key":         {rotate(a, "0123456789abcdef", NewKey{Digest: digest()}), crawl.CodeNotFound},
			"rotate another's":      {rotate(b, key.ID, NewKey{Digest: digest()}), crawl.CodeNotFound},
			"rotate to itself":      {rotate(a, key.ID, NewKey{Digest: of.Digest}), crawl.CodeUnavailable},
			"rotate to the same id": {rotate(a, key.ID, twin), crawl.CodeUnavailable},
			"rotate to an expired":  {rotate(a, key.ID, NewKey{Digest: digest(), ExpiresAt: past}), crawl.CodeInvalid},
			"revoke of nobody":      {revoke(nobody, key.ID), crawl.CodeNotFound},
			"revoke no key":         {revoke(a, "0123456789abcdef"), crawl.CodeNotFound},
			"revoke another's":      {revoke(b, key.ID), crawl.CodeNotFound},
		}
		for _, id := range []string{
			"", "*", "..", "../" + key.ID, key.ID + "\x00", strings.ToUpper(key.ID) + "A", a + ":" + key.ID, "{a}:keys:" + a,
			hex.EncodeToString(of.Digest[:]), strings.Repeat("a", 70_000),
		} {
			cases[fmt.Sprintf("revoke %.40q", id)] = faultCase{revoke(b, id), crawl.CodeNotFound}
			cases[fmt.Sprintf("rotate %.40q", id)] = faultCase{rotate(b, id, NewKey{Digest: digest()}), crawl.CodeNotFound}
		}
		for name, c := range cases {
			fault, _ := errors.AsType[*crawl.Fault](c.call())
			if fault == nil || fault.Code != c.want || fault.Message == "" {
				t.Errorf("%s: fault %+v, want %s and what to do", name, fault, c.want)
			}
			if after, err := f.Tenant(t.Context(), a); err != nil || !cmp.Equal(before, after) {
				t.Errorf("%s changed the tenant to %+v, %v", name, after, err)
			}
			f.wantKeys(t, a, key)
			f.wantKeys(t, b)
			f.wantAuthenticated(t, of.Digest, a)
		}
		if _, err := f.Tenant(t.Context(), nobody); crawl.CodeOf(err) != crawl.CodeNotFound {
			t.Errorf("refused calls made a tenant: %v", err)
		}
	})
}

// Tenants are listed by name; pages neither repeat nor leave out. A bound out of range is
// brought into it. A record that is lost or broken is passed over, and hides no other.
func TestTenantPages(t *testing.T) {
	t.Parallel()
	for _, r := range []*crawltest.Redis{crawltest.Mini(t), privateIfAny(t)} {
		f := newFixture(t, r)
		if p, err := f.Tenants(t.Context(), "x", 10); err != nil || len(p.Tenants) != 0 || p.More || p.Next != "x" {
			t.Errorf("%s: a page of none: %+v, %v", r.Name, p, err)
		}
		var want []string
		for _, name := range []string{"b", "a-b", "a", "a_b", "0", "ab", "a-", "lost", "broken", "z", "ba"} {
			if _, err := f.CreateTenant(t.Context(), crawl.Tenant{Name: name, Sources: []string{name + ".test"}}); err != nil {
				t.Fatal(err)
			}
			want = append(want, name)
		}
		slices.Sort(want)
		if err := r.Client.Unlink(t.Context(), tenantKey("lost")).Err(); err != nil {
			t.Fatal(err)
		}
		if err := r.Client.HSet(t.Context(), tenantKey("broken"), "quota", "{").Err(); err != nil {
			t.Fatal(err)
		}
		want = slices.DeleteFunc(want, func(s string) bool { return s == "lost" || s == "broken" })
		for _, limit := range []int{-1, 0, 1, 2, 3, 9, 10, 200, 10_000} {
			var got []string
			for p, pages := (TenantPage{More: true}), 0; p.More; pages++ {
				var err error
				p, err = f.Tenants(t.Context(), p.Next, limit)
				if err != nil || len(p.Tenants) > max(limit, 1) || pages > len(want)+2 {
					t.Fatalf("%s: a page of %d: %+v, %v", r.Name, limit, p, err)
				}
				for _, tenant := range p.Tenants {
					got = append(got, tenant.Name)
					if !cmp.Equal(tenant.Sources, []string{tenant.Name + ".test"}) {
						t.Errorf("%s: listed %+v", r.Name, tenant)
					}
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: in pages of %d (-want +got):\n%s", r.Name, limit, d)
			}
		}
	}
}

// No page has more than 200 tenants, whatever was asked for.
func TestTenantPageIsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, privateIfAny(t))
	for i := range maxTenants + 1 {
		if _, err := f.CreateTenant(t.Context(), crawl.Tenant{Name: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := f.Tenants(t.Context(), "", 10*maxTenants)
	if err != nil || len(p.Tenants) != maxTenants || !p.More {
		t.Errorf("%d tenants on one page, more: %v, %v", len(p.Tenants), p.More, err)
	}
}

// privateIfAny is a redis-server of the test's own, or else a miniredis.
func privateIfAny(t *testing.T) *crawltest.Redis {
	t.Helper()
	if r := crawltest.Any(t); r.Name == "miniredis" {
		return r
	}
	return &crawltest.Private(t).Redis
}

// A key holds from when it is added to the millisecond at which it expires, and nothing of it
// is left once somebody looked.
func TestKeyExpires(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		tenant := f.newTenant(t)
		short, k := f.add(t, tenant, "for a day", 24*time.Hour)
		want := crawl.APIKey{
			ID: hex.EncodeToString(short.Digest[:])[:16], Tenant: tenant, Label: "for a day",
			CreatedAt: f.at(), ExpiresAt: f.at().Add(24 * time.Hour),
		}
		if d := cmp.Diff(want, k); d != "" {
			t.Errorf("added (-want +got):\n%s", d)
		}
		forever, k2 := f.add(t, tenant, "", 0)
		if !k2.ExpiresAt.IsZero() {
			t.Errorf("a key for ever expires at %v", k2.ExpiresAt)
		}
		f.pass(24*time.Hour - time.Millisecond)
		f.wantAuthenticated(t, short.Digest, tenant)
		f.wantKeys(t, tenant, k, k2)
		ttl, err := f.rdb.PTTL(t.Context(), apiKeyKey(short.Digest)).Result()
		if err != nil || ttl <= 23*time.Hour || ttl > 24*time.Hour {
			t.Errorf("Redis removes the key by itself in %v, %v", ttl, err)
		}
		f.pass(time.Millisecond)
		f.wantAuthenticated(t, short.Digest, "")
		wantCode(t, f.RevokeKey(t.Context(), tenant, k.ID), crawl.CodeNotFound)
		f.wantKeys(t, tenant, k2)
		if n := f.rdb.Exists(t.Context(), apiKeyKey(short.Digest)).Val(); n != 0 {
			t.Error("the expired key is still there")
		}
		if ids := f.rdb.HKeys(t.Context(), tenantKeysKey(tenant)).Val(); !cmp.Equal(ids, []string{k2.ID}) {
			t.Errorf("ids that are kept: %q", ids)
		}
		f.wantAuthenticated(t, forever.Digest, tenant)
	})
}

// Without a clock of the test's own Redis removes an expired key by itself: it is gone
// whoever asks, and its id with the next list.
func TestRedisExpiresKeys(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := &fixture{Store: New(r.Client, Options{})}
		tenant := f.newTenant(t)
		n := NewKey{Tenant: tenant, Digest: digest(), ExpiresAt: time.Now().Add(time.Hour)}
		k, err := f.AddKey(t.Context(), n)
		if err != nil || time.Since(k.CreatedAt) > time.Minute || k.ExpiresAt.UnixMilli() != n.ExpiresAt.UnixMilli() {
			t.Fatalf("added %+v, %v", k, err)
		}
		f.wantAuthenticated(t, n.Digest, tenant)
		if err := r.Client.PExpire(t.Context(), apiKeyKey(n.Digest), time.Millisecond).Err(); err != nil {
			t.Fatal(err)
		}
		crawltest.Eventually(t, 10*time.Second, "the key to be removed", func() bool {
			return r.Client.Exists(t.Context(), apiKeyKey(n.Digest)).Val() == 0
		})
		f.wantAuthenticated(t, n.Digest, "")
		f.wantKeys(t, tenant)
		if n := r.Client.Exists(t.Context(), tenantKeysKey(tenant)).Val(); n != 0 {
			t.Error("the id is still there")
		}
	})
}

// A rotation gives the new key and the end of the old one in one step.
func TestRotateKey(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		life, overlap, next time.Duration // 0: never, none, not said
		ends, expires       time.Duration // of the old key and the new one; 0: at once, never
	}{
		"at once":                {0, 0, 0, 0, 0},
		"negative":               {0, -time.Hour, 0, 0, 0},
		"overlap":                {0, time.Hour, 0, time.Hour, 0},
		"the old one ends first": {day, 2 * day, 5 * day, day, 5 * day},
		"as long a life":         {day, time.Hour, 0, time.Hour, day},
		"another life":           {0, time.Hour, 3 * day, time.Hour, 3 * day},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, f *fixture) {
				tenant := f.newTenant(t)
				begun := f.at()
				old, was := f.add(t, tenant, "deploy", c.life)
				next := NewKey{Tenant: "ignored", Label: "ignored", Digest: digest()}
				if c.next > 0 {
					next.ExpiresAt = begun.Add(c.next)
				}
				k, err := f.RotateKey(t.Context(), tenant, was.ID, c.overlap, next)
				want := crawl.APIKey{ID: next.id(), Tenant: tenant, Label: "deploy", CreatedAt: begun}
				if c.expires > 0 {
					want.ExpiresAt = begun.Add(c.expires)
				}
				if d := cmp.Diff(want, k); d != "" || err != nil {
					t.Fatalf("rotated: %v (-want +got):\n%s", err, d)
				}
				f.wantAuthenticated(t, next.Digest, tenant)
				if c.ends > 0 {
					was.ExpiresAt = begun.Add(c.ends)
					f.wantKeys(t, tenant, was, k)
					f.pass(c.ends - time.Millisecond)
					f.wantAuthenticated(t, old.Digest, tenant)
					f.pass(time.Millisecond)
				}
				f.wantAuthenticated(t, old.Digest, "")
				f.wantAuthenticated(t, next.Digest, tenant)
				f.wantKeys(t, tenant, k)
			})
		})
	}
}

// A key that was made for a while is still one after any number of rotations, even those of
// a key whose end a rotation has brought near.
func TestRotatedKeyKeepsItsLife(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		tenant := f.newTenant(t)
		_, k := f.add(t, tenant, "", 10*time.Hour)
		for range 3 {
			var next crawl.APIKey
			for range 2 { // the second time the old one is in its overlap
				f.pass(time.Hour)
				var err error
				next, err = f.RotateKey(t.Context(), tenant, k.ID, 3*time.Hour, NewKey{Digest: digest()})
				if err != nil || !next.ExpiresAt.Equal(f.at().Add(10*time.Hour)) {
					t.Fatalf("rotated to %+v, %v at %v", next, err, f.at())
				}
			}
			k = next
		}
	})
}

// A tenant has at most MaxKeys keys at once. What has ended makes room, and a rotation needs
// room only while both keys hold.
func TestMaxKeys(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		tenant, other := f.newTenant(t), f.newTenant(t)
		_, first := f.add(t, tenant, "", time.Hour)
		_, second := f.add(t, tenant, "", 0)
		for range MaxKeys - 3 {
			f.add(t, tenant, "", 0)
		}
		// The last place is had by one of many at once.
		won := make(chan bool, 8)
		for range cap(won) {
			go func() {
				_, err := f.AddKey(t.Context(), NewKey{Tenant: tenant, Digest: digest()})
				won <- err == nil
			}()
		}
		places := 0
		for range cap(won) {
			if crawltest.Receive(t, time.Minute, "answer", won) {
				places++
			}
		}
		if places != 1 {
			t.Errorf("%d calls had the last place", places)
		}
		full := func(err error) {
			t.Helper()
			if fault := wantCode(t, err, crawl.CodeQuotaExceeded); fault.Limit != "keys" || fault.LimitMax != MaxKeys {
				t.Errorf("fault %+v", fault)
			}
		}
		count := func(want int) {
			t.Helper()
			if keys, err := f.Keys(t.Context(), tenant); err != nil || len(keys) != want {
				t.Errorf("%d keys, %v, want %d", len(keys), err, want)
			}
		}
		_, err := f.AddKey(t.Context(), NewKey{Tenant: tenant, Digest: digest()})
		full(err)
		_, err = f.RotateKey(t.Context(), tenant, second.ID, time.Hour, NewKey{Digest: digest()})
		full(err)
		count(MaxKeys)
		second, err = f.RotateKey(t.Context(), tenant, second.ID, 0, NewKey{Digest: digest()})
		if err != nil {
			t.Errorf("rotated without an overlap: %v", err)
		}
		f.add(t, other, "", 0)
		f.pass(time.Hour) // the first expires
		f.add(t, tenant, "", 0)
		_, err = f.AddKey(t.Context(), NewKey{Tenant: tenant, Digest: digest()})
		full(err)
		wantCode(t, f.RevokeKey(t.Context(), tenant, first.ID), crawl.CodeNotFound)
		if err := f.RevokeKey(t.Context(), tenant, second.ID); err != nil {
			t.Fatal(err)
		}
		count(MaxKeys - 1)
	})
}

// Of many at once that create a tenant one does, and its is what is kept.
func TestCreateTenantOnce(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		type answer struct {
			tenant crawl.Tenant
			err    error
		}
		answers := make(chan answer, 20)
		for i := range cap(answers) {
			go func() {
				tenant, err := f.CreateTenant(t.Context(), crawl.Tenant{Name: f.tenant, Quota: crawl.Quota{MaxPages: int64(i + 1)}})
				answers <- answer{tenant, err}
			}()
		}
		var created []crawl.Tenant
		for range cap(answers) {
			a := crawltest.Receive(t, time.Minute, "answer", answers)
			if a.err == nil {
				created = append(created, a.tenant)
				continue
			}
			if fault := wantCode(t, a.err, crawl.CodeTenantExists); !strings.Contains(fault.Message, f.tenant) {
				t.Errorf("the message does not name the tenant: %s", fault.Message)
			}
		}
		kept, err := f.Tenant(t.Context(), f.tenant)
		if d := cmp.Diff([]crawl.Tenant{kept}, created); d != "" || err != nil {
			t.Errorf("%v (-kept +created):\n%s", err, d)
		}
	})
}

// Of many at once that change what they read one does. Every change is later than all before
// it, also within a millisecond and by a clock that goes back.
func TestChangeTenantOnce(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		tenant := f.newTenant(t)
		for range 3 {
			read, err := f.Tenant(t.Context(), tenant)
			if err != nil {
				t.Fatal(err)
			}
			type answer struct {
				tenant crawl.Tenant
				err    error
			}
			answers := make(chan answer, 8)
			for i := range cap(answers) {
				change := read
				change.Quota.MaxPages = read.Quota.MaxPages + int64(i) + 1
				go func() {
					changed, err := f.ChangeTenant(t.Context(), change)
					answers <- answer{changed, err}
				}()
			}
			var changed []crawl.Tenant
			for range cap(answers) {
				if a := crawltest.Receive(t, time.Minute, "answer", answers); a.err == nil {
					changed = append(changed, a.tenant)
				} else {
					wantCode(t, a.err, crawl.CodeWrongState)
				}
			}
			kept, err := f.Tenant(t.Context(), tenant)
			if d := cmp.Diff([]crawl.Tenant{kept}, changed); d != "" || err != nil || !kept.UpdatedAt.After(read.UpdatedAt) {
				t.Errorf("%v, %v after %v (-kept +changed):\n%s", err, kept.UpdatedAt, read.UpdatedAt, d)
			}
			f.pass(-time.Hour)
		}
	})
}
