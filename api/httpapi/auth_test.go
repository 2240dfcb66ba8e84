package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/obs"
)

const (
	adminKey      = "key-of-the-admin-0001"
	gatewaySecret = "secret-of-the-gateway"
)

// tenantsBench is a bench whose server knows tenants, an admin and a gateway.
type tenantsBench struct {
	*bench
	tenants *fakeTenants
}

func newTenantsBench(t testing.TB, change func(*Options)) *tenantsBench {
	t.Helper()
	f := newFakeTenants()
	b := newBenchWith(t, func(o *Options) {
		o.Tenants, o.AdminKey, o.GatewaySecret = f, adminKey, gatewaySecret
		if change != nil {
			change(o)
		}
	})
	return &tenantsBench{b, f}
}

// keep puts a tenant into the store, as if another process had.
func (b *tenantsBench) keep(t crawl.Tenant) {
	b.tenants.edit(func() { b.tenants.tenants[t.Name] = t })
}

func with(key string) func(*http.Request) { return header("Authorization", "Bearer "+key) }

func (b *tenantsBench) list(edit ...func(*http.Request)) answer {
	return b.call("GET", "/v1/jobs", "", edit...)
}

// A key of the admin API opens what is its tenant's; what is no good key is told apart
// from no other.
func TestKeysOfTenants(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	b.keep(crawl.Tenant{Name: "c"})
	b.keep(crawl.Tenant{Name: "halted", Suspended: true})
	good, ended := b.tenants.key("c", time.Time{}), b.tenants.key("c", time.Unix(1, 0))
	lost := b.tenants.key("nobody", time.Time{})
	if a := b.list(with(good)); a.status != 200 || b.listed[0].Tenant != "c" {
		t.Fatalf("%d %s, listed %+v", a.status, a.body, b.listed)
	}
	if a := b.list(header("Authorization"), header("X-API-Key", good)); a.status != 200 || b.listed[1].Tenant != "c" {
		t.Errorf("X-API-Key: %d %s", a.status, a.body)
	}
	bodies := map[string]bool{}
	for name, edit := range map[string]func(*http.Request){
		"none": header("Authorization"), "unknown": with(keyPrefix + "AAAAAAAAAAAAAAAAAAAAAAAAAA"), "other form": with("nonsense"),
		"expired": with(ended), "lost tenant": with(lost), "cut": with(good[:len(good)-1]), "admin": with(adminKey),
		"gateway": with(gatewaySecret), "lower case": with(strings.ToLower(good)), "two": func(r *http.Request) {
			r.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + keyA}
		},
	} {
		a := b.list(edit)
		p := a.wantProblem(t, 401, crawl.CodeUnauthenticated)
		if a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", name)
		}
		bodies[strings.ReplaceAll(a.body, p.RequestID, "")] = true
	}
	if len(bodies) != 1 {
		t.Errorf("different answers: %q", sorted(bodies))
	}
	// Only who has a right key learns that its tenant is suspended.
	p := b.list(with(b.tenants.key("halted", time.Time{}))).wantProblem(t, 401, crawl.CodeUnauthenticated)
	if !strings.Contains(p.Detail, "suspended") {
		t.Errorf("detail %q", p.Detail)
	}
	if len(b.listed) != 2 {
		t.Errorf("%d lists were read", len(b.listed))
	}
	if logs := b.logs.String(); strings.Contains(logs, good) || strings.Contains(logs, adminKey) || strings.Contains(logs, gatewaySecret) {
		t.Error("a key is logged")
	}
}

// A tenant of TRAWL_API_KEYS has a record only if the admin made one; without one, and without
// a store of tenants, it has what the service grants.
func TestStaticTenants(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	if a := b.list(); a.status != 200 {
		t.Errorf("without a record: %d %s", a.status, a.body)
	}
	b.keep(crawl.Tenant{Name: "b", Suspended: true})
	b.list(with(keyB)).wantProblem(t, 401, crawl.CodeUnauthenticated)
	none := newBench(t)
	if a := none.call("GET", "/v1/jobs", ""); a.status != 200 {
		t.Errorf("without tenants: %d %s", a.status, a.body)
	}
	none.call("GET", "/v1/jobs", "", with(keyPrefix+"AAAAAAAAAAAAAAAAAAAAAAAAAA")).wantProblem(t, 401, crawl.CodeUnauthenticated)
	none.call("GET", pathTenants, "", with(adminKey)).wantProblem(t, 404, crawl.CodeNotFound)
}

// The store is asked once in five seconds for each key and tenant; what changed elsewhere
// counts after that, what failed is asked again.
func TestAccountsAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTenantsBench(t, nil)
		b.keep(crawl.Tenant{Name: "c"})
		key, stranger := b.tenants.key("c", time.Time{}), keyPrefix+"AAAAAAAAAAAAAAAAAAAAAAAAAA"
		soon := b.tenants.key("c", time.Now().Add(2*time.Second))
		status := func(edit func(*http.Request), want int) {
			t.Helper()
			if a := b.list(edit); a.status != want {
				t.Errorf("%d %s, want %d", a.status, a.body, want)
			}
		}
		for range 3 {
			status(with(key), 200)
			status(with(stranger), 401)
			status(with(keyA), 200)
			status(with(soon), 200)
		}
		if n, m := b.tenants.count("Authenticate"), b.tenants.count("Tenant"); n != 3 || m != 1 {
			t.Errorf("%d keys and %d tenants were looked up, want 3 and 1", n, m)
		}
		sleep := func(d time.Duration) {
			timer := time.NewTimer(d)
			<-timer.C
		}
		sleep(2 * time.Second)
		status(with(soon), 401) // not remembered beyond its own end
		b.tenants.edit(func() {
			delete(b.tenants.keys, sha256.Sum256([]byte(key)))
			b.tenants.tenants["a"] = crawl.Tenant{Name: "a", Suspended: true}
		})
		sleep(accountMemory - 2*time.Second - 1)
		status(with(key), 200)
		status(with(keyA), 200)
		sleep(1)
		status(with(key), 401)
		status(with(keyA), 401)

		down := &crawl.Fault{Code: crawl.CodeUnavailable, Message: "no Redis", RetryAfter: 3 * time.Second}
		b.tenants.edit(func() { b.tenants.err["Authenticate"], b.tenants.err["Tenant"] = down, down })
		sleep(accountMemory)
		status(with(key), 503)
		status(with(keyB), 503)
		b.tenants.edit(func() { clear(b.tenants.err) })
		status(with(key), 401)
		status(with(keyB), 200)
	})
}

// While the store cannot say who calls, nothing is done and the answer says when to come
// again; a defect stays one.
func TestLookUpFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err    error
		status int
		code   crawl.Code
		retry  string
	}{
		"redis is down": {&crawl.Fault{Code: crawl.CodeUnavailable, Err: errBroken}, 503, crawl.CodeUnavailable, "2"},
		"and says when": {&crawl.Fault{Code: crawl.CodeUnavailable, RetryAfter: 1200 * time.Millisecond}, 503, crawl.CodeUnavailable, "2"},
		"redis is full": {&crawl.Fault{Code: crawl.CodeOverloaded}, 503, crawl.CodeUnavailable, "2"},
		"an odd fault":  {&crawl.Fault{Code: crawl.CodeExpired, JobID: "x"}, 503, crawl.CodeUnavailable, "2"},
		"a defect":      {errBroken, 500, crawl.CodeInternal, ""},
	} {
		b := newTenantsBench(t, nil)
		b.tenants.err["Authenticate"], b.tenants.err["Tenant"] = tt.err, tt.err
		for _, key := range []string{keyA, keyPrefix + "AAAAAAAAAAAAAAAAAAAAAAAAAA"} {
			for _, route := range [][3]string{{"GET", "/v1/jobs", ""}, {"POST", "/v1/jobs", oneURL}, {"POST", "/v1/jobs/preview", oneURL}} {
				a := b.call(route[0], route[1], route[2], with(key))
				a.wantProblem(t, tt.status, tt.code)
				if got := a.header.Get("Retry-After"); got != tt.retry {
					t.Errorf("%s: Retry-After %q, want %q", name, got, tt.retry)
				}
			}
		}
		b.list(with("nonsense")).wantProblem(t, 401, crawl.CodeUnauthenticated) // needs no store
		if len(b.listed)+len(b.created) > 0 {
			t.Errorf("%s: something was done", name)
		}
	}
}

// A store that hangs does not hang its callers, and a client that hangs up does not spoil
// the answer for those who wait for the same one.
func TestConcurrentLookUpsAreOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTenantsBench(t, nil)
		b.keep(crawl.Tenant{Name: "c"})
		key, gate := b.tenants.key("c", time.Time{}), make(chan struct{})
		b.tenants.meet = func(string, string) { <-gate }
		first, hangUp := context.WithCancel(t.Context())
		answers := make(chan answer, 100)
		go func() {
			b.list(with(key), func(r *http.Request) { *r = *r.WithContext(first) })
		}()
		synctest.Wait()
		for range cap(answers) {
			go func() { answers <- b.list(with(key)) }()
		}
		synctest.Wait()
		hangUp()
		close(gate)
		for range cap(answers) {
			if a := <-answers; a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		synctest.Wait()
		if n := b.tenants.count("Authenticate"); n != 1 {
			t.Errorf("%d look-ups", n)
		}
	})
}

// hung is a store of tenants that answers nothing.
type hung struct{ *fakeTenants }

func (hung) Tenant(ctx context.Context, _ string) (crawl.Tenant, error) {
	<-ctx.Done()
	return crawl.Tenant{}, ctx.Err()
}

func TestHungLookUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBenchWith(t, func(o *Options) { o.Tenants = hung{newFakeTenants()} })
		begin := time.Now()
		b.call("GET", "/v1/jobs", "").wantProblem(t, 503, crawl.CodeUnavailable)
		if took := time.Since(begin); took != storeWait {
			t.Errorf("answered after %v", took)
		}
	})
}

// A change by this process counts in it at once, also against a look-up that began before.
func TestChangesCountAtOnce(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	b.keep(crawl.Tenant{Name: "c"})
	key := b.tenants.key("c", time.Time{})
	b.list(with(key))
	id := keyID(sha256.Sum256([]byte(key)))
	if a := b.call("DELETE", pathTenants+"/c/keys/"+id, "", with(adminKey)); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	b.list(with(key)).wantProblem(t, 401, crawl.CodeUnauthenticated)

	// A look-up that is under way when the tenant is suspended answers what it saw, and leaves
	// nothing behind.
	key = b.tenants.key("c", time.Time{})
	looking, seen := make(chan struct{}), make(chan struct{})
	b.tenants.meet = func(method, _ string) {
		if method == "Authenticate" {
			close(looking)
			<-seen
		}
	}
	done := make(chan answer, 1)
	go func() {
		acct, err := b.server.accounts.ofKey(t.Context(), key)
		if err != nil || acct.Name != "c" {
			t.Errorf("%+v, %v", acct, err)
		}
		done <- answer{}
	}()
	<-looking
	b.server.accounts.forget()
	close(seen)
	<-done
	b.tenants.meet = nil
	b.keep(crawl.Tenant{Name: "c", Suspended: true})
	b.list(with(key)).wantProblem(t, 401, crawl.CodeUnauthenticated)
}

// Whoever guesses keys takes a bounded memory, asks the store only for what could be a key,
// and pushes out nothing that is known.
func TestGuessing(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	b.keep(crawl.Tenant{Name: "c"})
	key := b.tenants.key("c", time.Time{})
	b.list(with(key))
	accounts := b.server.accounts
	for i := range 2 * maxAccounts {
		if acct, err := accounts.ofKey(t.Context(), fmt.Sprintf("%s%d", keyPrefix, i)); err != nil || acct != nobody {
			t.Fatalf("%+v, %v", acct, err)
		}
	}
	asked := b.tenants.count("Authenticate")
	for i := range 100 {
		b.list(with(fmt.Sprintf("guess-%d", i)))
	}
	b.list(with(key))
	if n := b.tenants.count("Authenticate"); n != asked {
		t.Errorf("%d more look-ups", n-asked)
	}
	if n := len(accounts.strangers.young) + len(accounts.strangers.old); n > maxAccounts || n < maxAccounts/2 {
		t.Errorf("%d guesses are remembered", n)
	}
}

// A memory never holds more than it may, forgets nothing that is used all the time, and
// answers nothing but what was put last and has not ended.
func TestMemory(t *testing.T) {
	t.Parallel()
	var m memory[[32]byte]
	now := time.Unix(0, 0)
	key := func(i int) (k [32]byte) {
		binary.BigEndian.PutUint64(k[:], uint64(i))
		return k
	}
	held := &account{}
	m.put(key(-1), remembered{held, now.Add(time.Hour)})
	for i := range 3 * maxAccounts {
		m.put(key(i), remembered{nobody, now.Add(time.Hour)})
		if i%1000 == 0 && m.get(key(-1), now) != held {
			t.Fatalf("what is used is gone after %d others", i)
		}
		if n := len(m.young) + len(m.old); n > maxAccounts {
			t.Fatalf("%d entries", n)
		}
	}
	if m.get(key(0), now) != nil {
		t.Error("what nobody used is still there")
	}
	rapid.Check(t, func(t *rapid.T) {
		var m memory[int]
		model := map[int]remembered{}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			k, at := rapid.IntRange(0, 5).Draw(t, "key"), now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "at")))
			if rapid.Bool().Draw(t, "put") {
				model[k] = remembered{&account{}, at}
				m.put(k, model[k])
				continue
			}
			want := model[k].account
			if want != nil && !at.Before(model[k].end) {
				want = nil
			}
			if got := m.get(k, at); got != want {
				t.Fatalf("%p, want %p", got, want)
			}
		}
	})
}

// A tenant's own bounds narrow those of the service in submissions and previews, and never
// widen them; what the store is told of the service stays the service's.
func TestBoundsOfTenants(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tenant    crawl.Tenant
		service   crawl.Quota
		body      string
		want      []string // field:rule of each fault
		sources   []string // of the plan
		most, all int64    // max_pages and max_bytes of the plan
	}{
		"nothing kept": {
			body: `{"seed_url":"https://docs.site.test/","max_pages":1000000}`, sources: []string{"*.site.test", "https://other.test/x"}, most: 1e6,
		},
		"service's own": {
			service: crawl.Quota{MaxPages: 50, MaxBytes: 7}, body: `{"seed_url":"https://docs.site.test/"}`,
			sources: []string{"*.site.test", "https://other.test/x"}, most: 50, all: 7,
		},
		"service's own, more": {
			service: crawl.Quota{MaxPages: 50}, body: `{"seed_url":"https://docs.site.test/","max_pages":51}`, want: []string{"max_pages:max"},
		},
		"tenant's": {
			tenant:  crawl.Tenant{Sources: []string{"https://docs.site.test/3/", "evil.test"}, Quota: crawl.Quota{MaxPages: 2, MaxBytes: 5}},
			service: crawl.Quota{MaxPages: 50, MaxBytes: 7}, body: `{"urls":["https://docs.site.test/3/a","https://docs.site.test/3/b"]}`,
			sources: []string{"https://docs.site.test/3/"}, most: 2, all: 5,
		},
		"too many URLs": {
			tenant: crawl.Tenant{Quota: crawl.Quota{MaxPages: 1}},
			body:   `{"urls":["https://docs.site.test/a","https://docs.site.test/b"]}`, want: []string{"urls:max"},
		},
		"cannot widen": {
			tenant: crawl.Tenant{Sources: []string{"*"}, Quota: crawl.Quota{MaxPages: 1000, MaxBytes: 1000}}, service: crawl.Quota{MaxPages: 50, MaxBytes: 7},
			body: `{"urls":["https://docs.site.test/","https://evil.test/"]}`, want: []string{"urls[1]:source_not_allowed"},
		},
		"outside of its own": {
			tenant: crawl.Tenant{Sources: []string{"docs.site.test"}},
			body:   `{"urls":["https://other.test/x"]}`, want: []string{"urls[0]:source_not_allowed"},
		},
		"nothing allowed": {
			tenant: crawl.Tenant{Sources: []string{}},
			body:   `{"urls":["https://docs.site.test/"]}`, want: []string{"urls[0]:source_not_allowed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTenantsBench(t, func(o *Options) {
				tt.service.MaxRunning = 10
				o.Sources, o.Quota = sourcesOf(t, "*.site.test,https://other.test/x"), tt.service
			})
			tt.tenant.Name = "c"
			b.keep(tt.tenant)
			edit := with(b.tenants.key("c", time.Time{}))
			a := b.call("POST", "/v1/jobs", tt.body, edit)
			preview := b.call("POST", "/v1/jobs/preview", tt.body, edit)
			if tt.want != nil {
				p := a.problem(t)
				if d := cmp.Diff(tt.want, fieldRules(p)); a.status != 422 || d != "" {
					t.Errorf("%d %s: -want +got\n%s", a.status, a.body, d)
				}
				outside := strings.HasSuffix(tt.want[0], ":source_not_allowed")
				switch {
				case outside && (preview.status != 200 || !strings.Contains(preview.body, `"reason":"source"`)):
					t.Errorf("preview: %d %s", preview.status, preview.body)
				case !outside && preview.status != 422:
					t.Errorf("preview: %d %s", preview.status, preview.body)
				}
				if outside && len(tt.tenant.Sources) == 1 && tt.tenant.Sources[0] != "*" && !strings.Contains(p.Errors[0].Message, tt.tenant.Sources[0]) {
					t.Errorf("the refusal names no rule: %q", p.Errors[0].Message)
				}
				return
			}
			if a.status != 202 || preview.status != 200 || strings.Contains(preview.body, `"admitted":false`) {
				t.Fatalf("%d %s, preview %d %s", a.status, a.body, preview.status, preview.body)
			}
			n := b.created[0]
			if d := cmp.Diff(tt.sources, n.Plan.Sources); d != "" || n.Plan.MaxPages > tt.most || n.Plan.MaxBytes != tt.all {
				t.Errorf("plan of %d pages, %d bytes: %s", n.Plan.MaxPages, n.Plan.MaxBytes, d)
			}
			if d := cmp.Diff(tt.service.MaxPages, n.Quota.MaxPages); d != "" || n.Quota.MaxRunning != 10 {
				t.Errorf("the store is told %+v", n.Quota)
			}
		})
	}
}

// What is kept of a tenant and cannot be read opens nothing.
func TestSourcesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	b.keep(crawl.Tenant{Name: "a", Sources: []string{"https://user@host/"}})
	b.call("POST", "/v1/jobs", oneURL).wantProblem(t, 500, crawl.CodeInternal)
	if !strings.Contains(b.logs.String(), "sources kept of tenant a") {
		t.Error("the log does not say why")
	}
}

// 429 says which bound was met, what it is, and when to come again: never at once.
func TestQuotaProblems(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault crawl.Fault
		retry string
	}{
		{crawl.Fault{Code: crawl.CodeQuotaExceeded, Limit: "max_queued", LimitMax: 5, RetryAfter: 5 * time.Second}, "5"},
		{crawl.Fault{Code: crawl.CodeRateLimited, Limit: "submissions_per_second", LimitMax: 3, RetryAfter: time.Millisecond}, "1"},
		{crawl.Fault{Code: crawl.CodeQuotaExceeded, Limit: "pages_per_day", LimitMax: 7, RetryAfter: 90*time.Minute + 1}, "5401"},
		{crawl.Fault{Code: crawl.CodeQuotaExceeded, Limit: "max_queued", LimitMax: 1}, "2"},
		{crawl.Fault{Code: crawl.CodeRateLimited, Limit: "submissions_per_second", LimitMax: 1, RetryAfter: -time.Second}, "2"},
	} {
		b := newBench(t)
		tt.fault.Message = "Too much."
		b.err = &tt.fault
		a := b.call("POST", "/v1/jobs", oneURL)
		p := a.wantProblem(t, 429, tt.fault.Code)
		if p.Limit != tt.fault.Limit || p.LimitMax != tt.fault.LimitMax || a.header.Get("Retry-After") != tt.retry {
			t.Errorf("%+v is answered as %s, Retry-After %q", tt.fault, a.body, a.header.Get("Retry-After"))
		}
		var shown map[string]any
		if err := json.Unmarshal([]byte(a.body), &shown); err != nil || shown["limit"] != tt.fault.Limit || shown["limit_max"] == nil {
			t.Errorf("%v in %s", err, a.body)
		}
	}
}

// What is not there is told in one way, whatever the store says besides.
func TestNotFoundSaysNothingMore(t *testing.T) {
	t.Parallel()
	full := problemOf(&crawl.Fault{
		Code: crawl.CodeNotFound, Message: "x", JobID: "j", Limit: "max_queued", LimitMax: 1, At: time.Unix(1, 0),
		Fields: []crawl.FieldFault{{Field: "x"}}, RetryAfter: time.Second,
	}, "r")
	if d := cmp.Diff(problemOf(errNoTenant, "r"), full, cmp.AllowUnexported(problem{})); d != "" {
		t.Errorf("-bare +full:\n%s", d)
	}
}

// Each secret opens one thing: a service with two that are the same does not start.
func TestSecretsAreDistinct(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ admin, gateway, want string }{
		"all different": {adminKey, gatewaySecret, ""},
		"none":          {"", "", ""},
		"admin":         {keyA, "", `TRAWL_ADMIN_KEY is also a key of tenant "a"`},
		"gateway":       {"", keyB, `TRAWL_GATEWAY_SECRET is also a key of tenant "b"`},
		"both":          {adminKey, adminKey, "TRAWL_ADMIN_KEY and TRAWL_GATEWAY_SECRET are the same"},
	} {
		o := newBench(t).server.o
		o.Keys, o.AdminKey, o.GatewaySecret = map[string][]string{"a": {keyA}, "b": {keyB}}, tt.admin, tt.gateway
		o.Registry = obs.NewRegistry()
		_, err := New(o)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "key-of")):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nothing of a secret is kept but its digest.
func TestSecretsAreNotKept(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	if text := fmt.Sprintf("%#v", b.server.o); strings.Contains(text, keyA) || strings.Contains(text, adminKey) || strings.Contains(text, gatewaySecret) {
		t.Error("a secret is kept")
	}
	if (secret{}).opens("") || newSecret("").opens("") || !newSecret("x").opens("x") || newSecret("x").opens("") {
		t.Error("a secret opens what it should not, or not what it should")
	}
}
