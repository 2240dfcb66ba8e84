package httpapi

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
)

// A change of a tenant touches what it names and nothing else: suspending a tenant for a while
// does not widen it.
func TestPatchKeepsTheRest(t *testing.T) {
	t.Parallel()
	kept := crawl.Tenant{
		Name: "c", Sources: []string{"docs.site.test"}, Suspended: true, UpdatedAt: time.Unix(1_700_000_000, 0),
		Quota: crawl.Quota{MaxQueued: 1, MaxRunning: 2, MaxPages: 3, PagesPerDay: 4, MaxBytes: 5, SubmissionsPerSecond: 6},
	}
	for body, change := range map[string]func(*crawl.Tenant){
		`{}`:                   nil,
		`{"quota":{}}`:         nil,
		`{"sources":null}`:     nil,
		`{"quota":null}`:       nil,
		`{"suspended":null}`:   nil,
		`{"suspended":true}`:   func(*crawl.Tenant) {},
		`{"suspended":false}`:  func(t *crawl.Tenant) { t.Suspended = false },
		`{"sources":[]}`:       func(t *crawl.Tenant) { t.Sources = []string{} },
		`{"sources":["*"]}`:    func(t *crawl.Tenant) { t.Sources = []string{"*"} },
		`{"sources":["A.x "]}`: func(t *crawl.Tenant) { t.Sources = []string{"a.x"} },
		`{"quota":{"max_queued":9,"max_pages":null}}`: func(t *crawl.Tenant) { t.Quota.MaxQueued = 9 },
		`{"quota":{"max_running":0}}`:                 func(t *crawl.Tenant) { t.Quota.MaxRunning = 0 },
		`{"quota":{"max_pages":9,"max_bytes":8}}`:     func(t *crawl.Tenant) { t.Quota.MaxPages, t.Quota.MaxBytes = 9, 8 },
		`{"quota":{"pages_per_day":0}}`:               func(t *crawl.Tenant) { t.Quota.PagesPerDay = 0 },
		`{"quota":{"submissions_per_second":9}}`:      func(t *crawl.Tenant) { t.Quota.SubmissionsPerSecond = 9 },
	} {
		b := newTenantsBench(t, nil)
		b.keep(kept)
		b.tenants.quotas["c"] = kept.Quota
		var got tenantRecord
		b.admin("PATCH", pathTenants+"/c", body).decode(t, 200, &got)
		want := kept
		if change == nil {
			if b.tenants.count("ChangeTenant") > 0 {
				t.Errorf("%s changed something", body)
			}
		} else {
			change(&want)
			want.UpdatedAt = want.UpdatedAt.Add(time.Second)
		}
		if d := cmp.Diff(want, b.tenants.tenants["c"]); d != "" || b.tenants.quotas["c"] != want.Quota {
			t.Errorf("%s: holds %+v, -want +kept\n%s", body, b.tenants.quotas["c"], d)
		}
		if d := cmp.Diff(want.Sources, got.Sources); d != "" || got.Quota != quota(want.Quota) || got.Suspended != want.Suspended {
			t.Errorf("%s: answered %+v", body, got)
		}
	}
}

// PUT, by which leaving a bound out removed it, is gone.
func TestTenantsAreNotPut(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	b.keep(crawl.Tenant{Name: "c"})
	a := b.admin("PUT", pathTenants+"/c", `{"suspended":true}`)
	a.wantProblem(t, 405, codeMethodNotAllowed)
	if allow := a.header.Get("Allow"); allow != "GET, HEAD, PATCH" {
		t.Errorf("Allow: %s", allow)
	}
}

// The sources that hold are shown beside those that are kept, so that one which the service
// does not allow is seen at once.
func TestEffectiveSources(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, func(o *Options) {
		var err error
		if o.Sources, err = crawl.ParseSources("docs.test,*.site.test"); err != nil {
			t.Fatal(err)
		}
	})
	for sources, want := range map[string][]string{
		`["docs.test"]`:                  {"docs.test"},
		`["other.test","a.site.test"]`:   {"a.site.test"},
		`["https://docs.test/3/","x.y"]`: {"https://docs.test/3/"},
		`["other.test"]`:                 {},
		`[]`:                             {},
		`["*"]`:                          {"docs.test", "*.site.test"},
		`null`:                           {"docs.test", "*.site.test"},
	} {
		b.tenants.edit(func() { delete(b.tenants.tenants, "c") })
		var got tenantRecord
		b.admin("POST", pathTenants, `{"name":"c","sources":`+sources+`}`).decode(t, 201, &got)
		if d := cmp.Diff(want, got.EffectiveSources); d != "" {
			t.Errorf("created with %s: -want +got\n%s", sources, d)
		}
		b.admin("PATCH", pathTenants+"/c", `{"sources":`+sources+`,"suspended":true}`).decode(t, 200, &got)
		if d := cmp.Diff(want, got.EffectiveSources); d != "" {
			t.Errorf("changed to %s: -want +got\n%s", sources, d)
		}
	}
	b.keep(crawl.Tenant{Name: "broken", Sources: []string{"no source"}})
	var got tenantRecord
	if b.admin("GET", pathTenants+"/broken", "").decode(t, 200, &got); len(got.EffectiveSources) > 0 {
		t.Errorf("what cannot be read opens %q", got.EffectiveSources)
	}
}

// A change that always meets another one is given up, says so and keeps nothing; one that
// meets a few is made of what the last of them left.
func TestPatchMeetsOthers(t *testing.T) {
	t.Parallel()
	for others, status := range map[int]int{0: 200, 1: 200, changeTries - 1: 200, changeTries: 409} {
		b := newTenantsBench(t, nil)
		b.keep(crawl.Tenant{Name: "c", UpdatedAt: time.Unix(1_700_000_000, 0)})
		met := 0
		b.tenants.meet = func(method, _ string) {
			if method != "ChangeTenant" || met == others {
				return
			}
			met++
			b.tenants.edit(func() {
				c := b.tenants.tenants["c"]
				c.Quota.MaxPages, c.UpdatedAt = int64(met), c.UpdatedAt.Add(time.Second)
				b.tenants.tenants["c"] = c
			})
		}
		a := b.admin("PATCH", pathTenants+"/c", `{"quota":{"max_running":5}}`)
		want := crawl.Quota{MaxPages: int64(others), MaxRunning: 5}
		if status != 200 {
			a.wantProblem(t, status, crawl.CodeWrongState)
			want.MaxRunning = 0
		}
		if got := b.tenants.tenants["c"].Quota; a.status != status || got != want {
			t.Errorf("%d others: %d, kept %+v", others, a.status, got)
		}
	}
}

// Of changes at the same time none undoes another: each bound is at the end what the one call
// that named it says, and the others are what they were.
func TestPatchesAtOnceAllHold(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		st := store.New(r.Client, store.Options{})
		b := newBenchWith(t, func(o *Options) { o.Jobs, o.Tenants, o.AdminKey = st, st, adminKey })
		rapid.Check(t, func(rt *rapid.T) {
			name := crawltest.Tenant(t)
			was := crawl.Tenant{Name: name, Sources: []string{"docs.test"}, Quota: crawl.Quota{MaxQueued: 1, MaxBytes: 2}}
			if _, err := st.CreateTenant(t.Context(), was); err != nil {
				rt.Fatal(err)
			}
			want := was
			var bodies []string
			for field := range numbers(&quota{}) {
				if !rapid.Bool().Draw(rt, field.Name) {
					continue
				}
				n := rapid.Int64Range(0, 100).Draw(rt, "to")
				reflect.ValueOf(&want.Quota).Elem().FieldByName(field.Name).SetInt(n)
				bodies = append(bodies, fmt.Sprintf(`{"quota":{%q:%d}}`, jsonName(field), n))
			}
			if rapid.Bool().Draw(rt, "suspend") {
				want.Suspended = true
				bodies = append(bodies, `{"suspended":true}`)
			}
			if rapid.Bool().Draw(rt, "sources") {
				want.Sources = []string{"a.test", "b.test"}
				bodies = append(bodies, `{"sources":["a.test","b.test"]}`)
			}
			answers := make(chan answer, len(bodies))
			for _, body := range bodies {
				go func() { answers <- b.call("PATCH", pathTenants+"/"+name, body, with(adminKey)) }()
			}
			for range bodies {
				if a := crawltest.Receive(t, time.Minute, "answer", answers); a.status != 200 {
					rt.Errorf("%d %s", a.status, a.body)
				}
			}
			got, err := st.Tenant(t.Context(), name)
			if d := cmp.Diff(want, got, cmpopts.IgnoreFields(crawl.Tenant{}, "CreatedAt", "UpdatedAt")); d != "" || err != nil {
				rt.Errorf("%v, after %q: -want +got\n%s", err, bodies, d)
			}
		})
	})
}
