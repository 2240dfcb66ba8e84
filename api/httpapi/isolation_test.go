package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
)

// resident is a tenant of a world, with jobs in every state that an id can be in.
type resident struct {
	name string
	as   func(*http.Request) // who calls for it
	jobs map[string]string   // id by state
	// collection is the name of the only one that it has, and that nobody else has.
	collection string
}

// world is a server over a real store, with three tenants that get in by three ways.
type world struct {
	*bench
	st        *store.Store
	residents []*resident
	routes    []string // paths with an {id}, from the document
	// collections are paths with a {name}, from the document.
	collections []string
}

var anyMethod = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"}

func newWorld(t *testing.T, r *crawltest.Redis) *world {
	t.Helper()
	w := &world{st: store.New(r.Client, store.Options{})}
	names := []string{crawltest.Tenant(t), crawltest.Tenant(t), crawltest.Tenant(t)}
	w.bench = newBenchWith(t, func(o *Options) {
		o.Jobs, o.Collections, o.Tenants, o.AdminKey, o.GatewaySecret = w.st, w.st, w.st, adminKey, gatewaySecret
		o.Keys = map[string][]string{names[0]: {keyA}}
	})
	if _, err := w.st.CreateTenant(t.Context(), crawl.Tenant{Name: names[2]}); err != nil {
		t.Fatal(err)
	}
	var key shownKey
	w.call("POST", pathTenants+"/"+names[2]+"/keys", "", with(adminKey)).decode(t, 201, &key)
	for i, as := range []func(*http.Request){with(keyA), behind(gatewaySecret, names[1]), with(key.Key)} {
		w.residents = append(w.residents, &resident{
			name: names[i], as: as, jobs: map[string]string{}, collection: fmt.Sprintf("collection-%d", i),
		})
	}
	for _, who := range w.residents {
		w.settle(t, who)
	}
	paths, _ := openAPI(t, w.bench).at("paths").(map[string]any)
	for _, path := range sorted(paths) {
		if strings.Contains(path, "{id}") {
			w.routes = append(w.routes, path)
		}
		if strings.Contains(path, "{name}") {
			w.collections = append(w.collections, path)
		}
	}
	if len(w.routes) < 6 || len(w.collections) < 4 {
		t.Fatalf("the document has the routes %q and %q", w.routes, w.collections)
	}
	return w
}

func (w *world) submit(t *testing.T, who *resident, pages int) crawl.JobRef {
	t.Helper()
	var urls []string
	for i := range pages {
		urls = append(urls, fmt.Sprintf("https://%s.test/%d", who.name, i))
	}
	body, err := json.Marshal(map[string]any{"urls": urls, "tags": []string{who.name}})
	if err != nil {
		t.Fatal(err)
	}
	var j struct {
		ID string `json:"job_id"`
	}
	w.call("POST", "/v1/jobs", string(body), who.as).decode(t, 202, &j)
	return crawl.JobRef{Tenant: who.name, ID: j.ID}
}

// work commits n pages of a job, the first as failed and the others as accepted.
func (w *world) work(t *testing.T, job crawl.JobRef, n int) {
	t.Helper()
	sl, _, err := w.st.Begin(t.Context(), crawl.Ring{JobRef: job})
	if err != nil || sl == nil {
		t.Fatalf("slice %v: %v", sl, err)
	}
	leased, err := w.st.Exchange(t.Context(), sl, store.Exchange{Lease: n})
	if err != nil || len(leased.Items) != n {
		t.Fatalf("leased %+v: %v", leased, err)
	}
	var x store.Exchange
	for i, it := range leased.Items {
		u, err := crawl.ParseURL(it.URL)
		if err != nil {
			t.Fatal(err)
		}
		c := store.Commit{Item: it, Accepted: &store.Accepted{
			Page: crawl.Page{SourceURL: it.URL, URL: it.URL, Status: 200, Bytes: 10, Title: "of " + job.Tenant}, Final: u.Key(),
		}}
		if i == 0 {
			c = store.Commit{Item: it, Failed: &crawl.Failure{SourceURL: it.URL, URL: it.URL, ErrorType: "http_404", Status: 404}}
		}
		x.Commits = append(x.Commits, c)
	}
	if _, err := w.st.Exchange(t.Context(), sl, x); err != nil {
		t.Fatal(err)
	}
	if _, err := w.st.End(t.Context(), sl, store.NoRest); err != nil {
		t.Fatal(err)
	}
}

// settle gives a tenant its jobs.
func (w *world) settle(t *testing.T, who *resident) {
	t.Helper()
	w.collect(t, who)
	who.jobs["queued"] = w.submit(t, who, 3).ID
	running := w.submit(t, who, 4)
	w.work(t, running, 2)
	who.jobs["running"] = running.ID
	for _, state := range []string{"ended", "deleted"} {
		job := w.submit(t, who, 3)
		w.work(t, job, 3)
		who.jobs[state] = job.ID
	}
	if a := w.call("DELETE", "/v1/jobs/"+who.jobs["deleted"], "", who.as); a.status != 204 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	// The API keeps a job for a minute at least: this one is put in by hand.
	u, err := crawl.ParseURL("https://" + who.name + ".test/")
	if err != nil {
		t.Fatal(err)
	}
	job := crawl.JobRef{Tenant: who.name, ID: crawl.NewJobID(who.name, "")}
	if _, err := w.st.Create(t.Context(), store.NewJob{
		Job: job, Spec: []byte(`{"urls":["x"]}`), Quota: crawl.Quota{MaxRunning: 10}, Inputs: []crawl.Input{{URL: u}},
		Plan: crawl.Plan{MaxPages: 1, Concurrency: 1, Retention: time.Millisecond},
	}); err != nil {
		t.Fatal(err)
	}
	w.work(t, job, 1)
	crawltest.Eventually(t, 20*time.Second, "a tombstone", func() bool {
		_, err := w.st.Sweep(t.Context())
		return err == nil && w.call("GET", "/v1/jobs/"+job.ID, "", who.as).status == http.StatusGone
	})
	who.jobs["expired"] = job.ID
}

// collect gives a tenant its collection, of three items.
func (w *world) collect(t *testing.T, who *resident) {
	t.Helper()
	var j status
	w.call("POST", "/v1/jobs", fmt.Sprintf(`{"urls":["https://%[1]s.test/c"],"items":{"selector":"li","fields":{"id":{"selector":"b"},
		"city":{"selector":"i"},"n":{"selector":"u","type":"integer"}}},"collection":{"name":%[2]q,"key":"id","facets":["city"],"numbers":["n"]}}`,
		who.name, who.collection), who.as).decode(t, 202, &j)
	who.jobs["collected"] = j.JobID
	sl, _, err := w.st.Begin(t.Context(), crawl.Ring{JobRef: crawl.JobRef{Tenant: who.name, ID: j.JobID}})
	if err != nil || sl == nil {
		t.Fatalf("slice %v: %v", sl, err)
	}
	leased, err := w.st.Exchange(t.Context(), sl, store.Exchange{Lease: 1})
	if err != nil || len(leased.Items) != 1 {
		t.Fatalf("leased %+v: %v", leased, err)
	}
	it := leased.Items[0]
	u, err := crawl.ParseURL(it.URL)
	if err != nil {
		t.Fatal(err)
	}
	a := &store.Accepted{Page: crawl.Page{SourceURL: it.URL, URL: it.URL, Status: 200, Title: "of " + who.name}, Final: u.Key()}
	for i := range 3 {
		city, n := fmt.Sprintf("city-%d", i%2), strconv.Itoa(i)
		a.Items = append(a.Items, fmt.Appendf(nil, `{"id":"%s-%d","city":%q,"n":%s}`, who.name, i, city, n))
		a.Upserts = append(a.Upserts, store.Upsert{
			Item: i + 1, Key: fmt.Sprintf("%s-%d", who.name, i), Fingerprint: [16]byte{byte(i + 1)},
			Facets: []store.Facet{{Name: "city", Value: city}}, Numbers: []store.Number{{Name: "n", Value: json.Number(n)}},
		})
	}
	if _, err := w.st.Exchange(t.Context(), sl, store.Exchange{Commits: []store.Commit{{Item: it, Accepted: a}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.st.End(t.Context(), sl, store.NoRest); err != nil {
		t.Fatal(err)
	}
}

// look reads all that a tenant can read of its jobs and of its collection.
func (w *world) look(who *resident) map[string]answer {
	all := map[string]answer{}
	for state, id := range who.jobs {
		for _, route := range w.routes {
			a := w.call("GET", strings.ReplaceAll(route, "{id}", id), "", who.as, notForLong(route))
			all[state+" "+route] = a.plain()
		}
	}
	for _, route := range w.collections {
		all[route] = w.call("GET", strings.ReplaceAll(route, "{name}", who.collection), "", who.as).plain()
	}
	all["collections"] = w.call("GET", "/v1/collections", "", who.as).plain()
	return all
}

// notForLong has a client hang up on a stream, which would last as long as the job.
func notForLong(route string) func(*http.Request) {
	return func(r *http.Request) {
		if strings.HasSuffix(route, "/events") {
			ctx, cancel := context.WithTimeout(r.Context(), eventsPoll/2)
			context.AfterFunc(ctx, cancel)
			*r = *r.WithContext(ctx)
		}
	}
}

// plain is an answer without what differs between any two.
func (a answer) plain() answer {
	id := a.header.Get("X-Request-ID")
	a.header = maps.Clone(a.header)
	a.header.Del("X-Request-ID")
	a.header.Del("Date")
	if id != "" {
		a.body = strings.ReplaceAll(a.body, id, "(request)")
	}
	return a
}

// sameAsUnknown holds that a call about another's job or collection is answered as one about an id that
// never was, byte for byte.
func (w *world) sameAsUnknown(t testing.TB, who *resident, method, route, id, query string) {
	t.Helper()
	ask := func(id string) answer {
		return w.call(method, strings.NewReplacer("{id}", id, "{name}", id).Replace(route)+query, "", who.as).plain()
	}
	unknown := crawl.NewJobID(who.name, "")
	if strings.Contains(route, "{name}") {
		unknown = "nobody-has-it"
	}
	got, want := ask(id), ask(unknown)
	if got.status != want.status || got.body != want.body || !cmp.Equal(got.header, want.header) {
		t.Errorf("%s %s%s: %d %v %s\nan unknown id: %d %v %s",
			method, route, query, got.status, got.header, got.body, want.status, want.header, want.body)
	}
	if got.status < 400 && method != http.MethodOptions {
		t.Errorf("%s %s%s: %d %s", method, route, query, got.status, got.body)
	}
}

// Promise 9: another tenant's job does not exist, and nor does its collection. Each route with an id, by each method, with
// the id of each other tenant's job in each state, answers what it answers for an id that
// never was; the job is afterwards what it was before; and each owner has its own.
func TestIsolation(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		w := newWorld(t, r)
		before := map[string]map[string]answer{}
		for _, who := range w.residents {
			before[who.name] = w.look(who)
			for state, status := range map[string]int{"queued": 200, "running": 200, "ended": 200, "deleted": 410, "expired": 410} {
				if a := before[who.name][state+" /v1/jobs/{id}"]; a.status != status {
					t.Fatalf("its own job, %s: %d %s", state, a.status, a.body)
				}
			}
			if a := before[who.name]["running /v1/jobs/{id}/records"]; !strings.Contains(a.body, "of "+who.name) {
				t.Fatalf("its own records: %d %s", a.status, a.body)
			}
			for _, route := range w.collections {
				if a := before[who.name][route]; a.status != 200 || strings.HasSuffix(route, "/items") && !strings.Contains(a.body, who.name) {
					t.Fatalf("its own collection, %s: %d %s", route, a.status, a.body)
				}
			}
			if a := before[who.name]["collections"]; strings.Count(a.body, `"name":`) != 1 || !strings.Contains(a.body, who.collection) {
				t.Errorf("its own collections: %s", a.body)
			}
		}
		for _, who := range w.residents {
			for _, other := range w.residents {
				if other == who {
					continue
				}
				for _, method := range anyMethod {
					for _, route := range w.routes {
						for _, id := range other.jobs {
							w.sameAsUnknown(t, who, method, route, id, "")
						}
					}
					for _, route := range w.collections {
						for _, query := range []string{"", "?city=city-1", "?key=" + other.name + "-1", "?after=1", "?format=csv", "?x=1"} {
							w.sameAsUnknown(t, who, method, route, other.collection, query)
						}
					}
				}
			}
		}
		rapid.Check(t, func(rt *rapid.T) {
			who := rapid.SampledFrom(w.residents).Draw(rt, "who")
			other := rapid.SampledFrom(slices.DeleteFunc(slices.Clone(w.residents), func(o *resident) bool { return o == who })).Draw(rt, "other")
			state := rapid.SampledFrom(sorted(other.jobs)).Draw(rt, "state")
			route := rapid.SampledFrom(w.routes).Draw(rt, "route")
			method := rapid.SampledFrom(anyMethod).Draw(rt, "method")
			query := rapid.SampledFrom([]string{
				"?limit=1", "?limit=0", "?format=json", "?format=ndjson", "?format=csv", "?state=accepted", "?state=refused&limit=5", "?nope=1",
				"?reason=robots", "?url=https://" + other.name + ".test/0", "?cursor=" + encodeCursor(cursorRecords, 1),
				"?cursor=" + encodeCursor(cursorErrors, 0), "?cursor=x", "?limit=1&limit=2", "?%zz",
			}).Draw(rt, "query")
			w.sameAsUnknown(t, who, method, route, other.jobs[state], query)
		})
		for _, who := range w.residents {
			for what, a := range w.look(who) {
				if d := cmp.Diff(before[who.name][what], a, cmp.AllowUnexported(answer{})); d != "" {
					t.Errorf("%s changed: -before +after\n%s", what, d)
				}
			}
		}
	})
}

// Lists show a tenant its own jobs, whatever filter and whoever's cursor is given.
func TestIsolationOfLists(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		w := newWorld(t, r)
		listed := func(who *resident, query string) (ids []string, cursors []string) {
			t.Helper()
			for cursor := ""; ; {
				target := "/v1/jobs?limit=1" + query
				if cursor != "" {
					target += "&cursor=" + cursor
				}
				var p page[status]
				w.call("GET", target, "", who.as).decode(t, 200, &p)
				for i := range p.Items {
					ids = append(ids, p.Items[i].JobID)
				}
				if p.NextCursor == nil {
					return ids, cursors
				}
				cursor = *p.NextCursor
				cursors = append(cursors, cursor)
			}
		}
		own := func(who *resident, ids []string) bool {
			return !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(slices.Collect(maps.Values(who.jobs)), id) })
		}
		for _, who := range w.residents {
			ids, cursors := listed(who, "")
			if len(ids) != 4 || !own(who, ids) { // the tombstones are no jobs any more
				t.Errorf("listed %q of %v", ids, who.jobs)
			}
			for _, other := range w.residents {
				if ids, _ := listed(other, "&tag="+who.name); other != who && len(ids) > 0 {
					t.Errorf("another's tag lists %q", ids)
				}
				for _, cursor := range cursors {
					var p page[status]
					w.call("GET", "/v1/jobs?cursor="+cursor, "", other.as).decode(t, 200, &p)
					for i := range p.Items {
						if !own(other, []string{p.Items[i].JobID}) {
							t.Errorf("another's cursor lists %s", p.Items[i].JobID)
						}
					}
				}
			}
		}
		// The cursors within a job, of one tenant, on the same kind of job of another.
		for _, who := range w.residents {
			for _, list := range []string{"records", "errors", "urls"} {
				var p struct {
					NextCursor *string `json:"next_cursor"`
				}
				w.call("GET", "/v1/jobs/"+who.jobs["running"]+"/"+list+"?limit=1", "", who.as).decode(t, 200, &p)
				if p.NextCursor == nil {
					t.Fatalf("%s has no cursor", list)
				}
				for _, other := range w.residents {
					a := w.call("GET", "/v1/jobs/"+other.jobs["running"]+"/"+list+"?cursor="+*p.NextCursor, "", other.as)
					if other != who && strings.Contains(a.body, who.name) {
						t.Errorf("another's cursor of %s reads %s", list, a.body)
					}
				}
			}
		}
	})
}

// One Idempotency-Key of two tenants names two submissions; the id that it leads to is of
// no use to the other.
func TestIsolationOfIdempotencyKeys(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		w := newWorld(t, r)
		ids := map[string]bool{}
		for i, who := range w.residents {
			body := fmt.Sprintf(`{"urls":["https://site.test/%d"]}`, i)
			for again := range 2 {
				var j status
				a := w.call("POST", "/v1/jobs", body, who.as, header("Idempotency-Key", "nightly"))
				a.decode(t, 202, &j)
				ids[j.JobID] = true
				if replayed := a.header.Get("Idempotent-Replayed") == "true"; replayed != (again == 1) {
					t.Errorf("tenant %d, call %d: replayed is %v", i, again, replayed)
				}
			}
			for _, other := range w.residents {
				if other != who {
					w.sameAsUnknown(t, other, "GET", "/v1/jobs/{id}", crawl.NewJobID(who.name, "nightly"), "")
				}
			}
		}
		if len(ids) != len(w.residents) {
			t.Errorf("%d jobs", len(ids))
		}
	})
}

// One tenant by several ways in is one tenant: a gateway that names it and a key that the
// admin made reach the same jobs.
func TestWaysInAreOneTenant(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		w := newWorld(t, r)
		for _, who := range w.residents {
			want := w.call("GET", "/v1/jobs/"+who.jobs["ended"], "", who.as).plain()
			got := w.call("GET", "/v1/jobs/"+who.jobs["ended"], "", behind(gatewaySecret, who.name)).plain()
			if d := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); d != "" {
				t.Errorf("-its own way +gateway:\n%s", d)
			}
		}
		c := w.residents[2]
		if _, err := w.st.ChangeTenant(t.Context(), crawl.Tenant{Name: c.name, Suspended: true}); err != nil {
			t.Fatal(err)
		}
		w.server.accounts.forget() // or five seconds later, see TestAccountsAreRemembered
		for _, as := range []func(*http.Request){c.as, behind(gatewaySecret, c.name)} {
			w.call("GET", "/v1/jobs", "", as).wantProblem(t, 401, crawl.CodeUnauthenticated)
		}
	})
}

// The admin API over the real store, from the first tenant to a revoked key.
func TestAdminOnTheStore(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		st := store.New(r.Client, store.Options{})
		b := newBenchWith(t, func(o *Options) { o.Jobs, o.Tenants, o.AdminKey = st, st, adminKey })
		admin := func(method, target, body string) answer { return b.call(method, target, body, with(adminKey)) }
		name := crawltest.Tenant(t)
		at := pathTenants + "/" + name
		admin("GET", at, "").wantProblem(t, 404, crawl.CodeNotFound)
		var got tenantRecord
		body := fmt.Sprintf(`{"name":%q,"sources":["docs.test"],"quota":{"max_running":1,"max_pages":2,"submissions_per_second":1000}}`, name)
		admin("POST", pathTenants, body).decode(t, 201, &got)
		admin("POST", pathTenants, body).wantProblem(t, 409, crawl.CodeTenantExists)
		if got.Quota.MaxPages != 2 || got.Effective.MaxRunning != 1 || got.CreatedAt != got.UpdatedAt {
			t.Errorf("created %+v", got)
		}
		var key, next shownKey
		admin("POST", at+"/keys", `{"label":"x","expires_in":"1h"}`).decode(t, 201, &key)

		call := func(key, body string) answer { return b.call("POST", "/v1/jobs", body, with(key)) }
		var first, second status
		call(key.Key, `{"urls":["https://docs.test/1"]}`).decode(t, 202, &first)
		call(key.Key, `{"urls":["https://docs.test/2"]}`).decode(t, 202, &second)
		call(key.Key, `{"urls":["https://other.test/"]}`).wantProblem(t, 422, crawl.CodeSourceNotAllowed)
		call(key.Key, `{"urls":["https://docs.test/1","https://docs.test/2","https://docs.test/3"]}`).wantProblem(t, 422, crawl.CodeInvalid)
		if first.WaitingFor != nil && *first.WaitingFor == "tenant_quota" || second.WaitingFor == nil || *second.WaitingFor != "tenant_quota" ||
			second.Position == nil || *second.Position != 1 {
			t.Errorf("of two jobs where one may run: %+v and %+v", first, second)
		}
		// A wider quota starts what waits.
		rung := len(b.rings)
		admin("PATCH", at, `{"quota":{"max_running":0,"max_pages":0},"sources":["*"]}`).decode(t, 200, &got)
		if len(b.rings) != rung+1 || b.rings[rung].ID != second.JobID {
			t.Errorf("rung %+v, want %s", b.rings[rung:], second.JobID)
		}
		call(key.Key, `{"urls":["https://other.test/"]}`).decode(t, 202, &status{})

		admin("POST", at+"/keys/"+key.KeyID+"/rotate", `{"overlap":"1h"}`).decode(t, 201, &next)
		for _, k := range []string{key.Key, next.Key} {
			if a := b.call("GET", "/v1/jobs", "", with(k)); a.status != 200 {
				t.Errorf("during the overlap: %d %s", a.status, a.body)
			}
		}
		var keys keyPage
		admin("GET", at+"/keys", "").decode(t, 200, &keys)
		if len(keys.Items) != 2 || keys.Items[0].Label != "x" || keys.Items[1].Label != "x" {
			t.Errorf("keys %+v", keys.Items)
		}
		for _, id := range []string{key.KeyID, next.KeyID} {
			if a := admin("DELETE", at+"/keys/"+id, ""); a.status != 204 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		for _, k := range []string{key.Key, next.Key} {
			b.call("GET", "/v1/jobs", "", with(k)).wantProblem(t, 401, crawl.CodeUnauthenticated)
		}
	})
}
