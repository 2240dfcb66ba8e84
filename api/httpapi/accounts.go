package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"example.com/trawl/pkg/crawl"
)

const (
	// accountMemory is how long what was learned of a key or a tenant is believed. A key that
	// was revoked through another process opens this one for as long: long enough that a
	// busy tenant costs one look-up in thousands of calls, short enough that nobody who just
	// revoked a key has to wait for it.
	accountMemory = 5 * time.Second

	// maxAccounts bounds each of the memories below, in entries. An entry is some hundred
	// bytes, or with the longest list of sources some dozen kilobytes.
	maxAccounts = 10_000

	// keyPrefix is how every key of the admin API begins. It tells scanners for leaked
	// secrets what they found, and what begins otherwise needs no look-up.
	keyPrefix = "trawl_"
)

// account is what holds for the calls of one tenant: what is kept of it, read and combined
// with what the service grants.
type account struct {
	crawl.Tenant
	sources crawl.Sources // what it may submit
	limits  crawl.Limits  // what its submissions may ask for
}

// nobody is the account of a key that opens nothing.
var nobody = &account{}

// account returns that of the caller, which [Server.authenticate] found.
func (x *exchange) account() *account { return x.acct }

// accounts looks up whose a key is and what is kept of a tenant, and remembers the answers
// for a moment, so that the store is not asked at each call.
type accounts struct {
	service *Options // what everybody is granted; its Tenants may be nil
	flights singleflight.Group

	mu sync.Mutex
	// epoch counts the changes by this process: an answer from before one is not kept.
	epoch uint64
	keys  memory[[sha256.Size]byte]
	// strangers are keys of nobody. They have a memory of their own, for whoever guesses
	// keys must not push out those that are known.
	strangers memory[[sha256.Size]byte]
	names     memory[string]
}

// named returns the account of a tenant whose name is known to be right, as that of a
// static key is. One that nothing is kept of has what the service grants.
func (a *accounts) named(ctx context.Context, name string) (*account, error) {
	if a.service.Tenants == nil {
		return a.of(&crawl.Tenant{Name: name})
	}
	return lookUp(ctx, a, name, "n"+name, []*memory[string]{&a.names}, func(ctx context.Context) (found[string], error) {
		t, err := a.service.Tenants.Tenant(ctx, name)
		if crawl.CodeOf(err) == crawl.CodeNotFound {
			t, err = crawl.Tenant{Name: name}, nil
		}
		if err != nil {
			return found[string]{}, err
		}
		acct, err := a.of(&t)
		return found[string]{account: acct, into: &a.names}, err
	})
}

// ofKey returns the account that a key of the admin API opens, [nobody] for none. The key is
// looked up by its digest: what the time of a look-up may tell is about a hash that the
// caller cannot steer, and nothing of the 128 random bits that it is made of.
func (a *accounts) ofKey(ctx context.Context, key string) (*account, error) {
	if a.service.Tenants == nil || !strings.HasPrefix(key, keyPrefix) {
		return nobody, nil
	}
	type digested = [sha256.Size]byte
	digest := sha256.Sum256([]byte(key))
	memories := []*memory[digested]{&a.keys, &a.strangers}
	return lookUp(ctx, a, digest, "k"+string(digest[:]), memories, func(ctx context.Context) (found[digested], error) {
		k, t, err := a.service.Tenants.Authenticate(ctx, digest)
		if crawl.CodeOf(err) == crawl.CodeUnauthenticated {
			return found[digested]{account: nobody, into: &a.strangers}, nil
		}
		if err != nil {
			return found[digested]{}, err
		}
		acct, err := a.of(&t)
		return found[digested]{account: acct, into: &a.keys, end: k.ExpiresAt}, err
	})
}

// found is the answer to a look-up.
type found[K comparable] struct {
	account *account
	into    *memory[K] // where it is remembered
	end     time.Time  // not after this; zero for no such end
}

// lookUp answers from one of the memories, or else by find: once for all who ask for the
// same at the same time. What fails is not remembered. flight names what is asked for.
func lookUp[K comparable](
	ctx context.Context, a *accounts, key K, flight string, memories []*memory[K],
	find func(context.Context) (found[K], error),
) (*account, error) {
	a.mu.Lock()
	epoch := a.epoch
	for _, m := range memories {
		if acct := m.get(key, time.Now()); acct != nil {
			a.mu.Unlock()
			return acct, nil
		}
	}
	a.mu.Unlock()
	// The epoch is part of the name: who asks after a change must not be told what was
	// asked before it.
	v, err, _ := a.flights.Do(strconv.FormatUint(epoch, 10)+flight, func() (any, error) {
		// Others wait for the same answer, so a client that hangs up does not end the call.
		got, err := prompt(context.WithoutCancel(ctx), find)
		if err != nil {
			return nil, notLookedUp(err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.epoch == epoch {
			end := time.Now().Add(accountMemory)
			if !got.end.IsZero() && got.end.Before(end) {
				end = got.end
			}
			got.into.put(key, remembered{got.account, end})
		}
		return got.account, nil
	})
	acct, _ := v.(*account)
	return acct, err
}

// notLookedUp says that nobody knows who calls. A defect stays one.
func notLookedUp(err error) error {
	var f *crawl.Fault
	if errors.As(err, &f) {
		return &crawl.Fault{
			Code: crawl.CodeUnavailable, RetryAfter: f.RetryAfter, Err: err,
			Message: "The service cannot look up now who calls. Nothing was done; try again shortly.",
		}
	}
	return err
}

// forget empties the memories: a change by this process counts in it at once.
func (a *accounts) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.epoch++
	a.keys, a.strangers, a.names = memory[[sha256.Size]byte]{}, memory[[sha256.Size]byte]{}, memory[string]{}
}

// of combines what is kept of a tenant with what the service grants. A tenant's own can
// narrow that, never widen it.
func (a *accounts) of(t *crawl.Tenant) (*account, error) {
	granted, otherwise := a.service, crawl.DefaultLimits()
	acct := &account{Tenant: *t, sources: granted.Sources, limits: granted.Limits}
	if t.Sources != nil {
		own, err := crawl.ParseSources(strings.Join(t.Sources, ","))
		if err != nil {
			// Not the service's own list in its place: what cannot be read must not open anything.
			return nil, fmt.Errorf("httpapi: sources kept of tenant %s: %s", t.Name, messageOf(err))
		}
		acct.sources = own.Within(granted.Sources)
	}
	own := t.Quota.Within(granted.Quota)
	l := &acct.limits
	most := crawl.Quota{
		MaxPages: cmp.Or(l.MaxPages, otherwise.MaxPages), MaxBytes: l.MaxBytes, MaxKeptBytes: l.MaxKeptBytes, MaxItems: l.MaxItems,
	}.Within(own)
	l.MaxPages, l.MaxBytes, l.MaxKeptBytes, l.MaxItems = most.MaxPages, most.MaxBytes, most.MaxKeptBytes, most.MaxItems
	// A list of URLs is a job of as many pages.
	l.MaxURLs = min(cmp.Or(l.MaxURLs, otherwise.MaxURLs), most.MaxPages)
	return acct, nil
}

// remembered is one entry of a memory.
type remembered struct {
	account *account
	end     time.Time
}

// memory holds the entries that were used last, at most [maxAccounts]. It has two
// generations: what is used moves into the young one, and when that is full it becomes the
// old one, whose entries nobody used meanwhile are dropped together. The zero value is empty.
type memory[K comparable] struct{ young, old map[K]remembered }

// get returns nil for what is not remembered any more.
func (m *memory[K]) get(key K, now time.Time) *account {
	r, ok := m.young[key]
	if !ok {
		if r, ok = m.old[key]; ok {
			delete(m.old, key)
			m.put(key, r)
		}
	}
	if !ok || !now.Before(r.end) {
		return nil
	}
	return r.account
}

func (m *memory[K]) put(key K, r remembered) {
	if m.young == nil {
		m.young = map[K]remembered{}
	}
	if len(m.young) >= maxAccounts/2 {
		m.young, m.old = make(map[K]remembered), m.young
	}
	m.young[key] = r
}
