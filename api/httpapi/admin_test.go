package httpapi

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/config"
	"example.com/trawl/pkg/crawl"
)

func (b *tenantsBench) admin(method, target, body string, edit ...func(*http.Request)) answer {
	return b.call(method, target, body, append([]func(*http.Request){with(adminKey)}, edit...)...)
}

// adminRoutesOf returns method and path of each route of the admin API, from the document.
func adminRoutesOf(t *testing.T, b *bench) [][2]string {
	t.Helper()
	paths, _ := openAPI(t, b).at("paths").(map[string]any)
	var all [][2]string
	for _, path := range sorted(paths) {
		methods, _ := paths[path].(map[string]any)
		for _, method := range sorted(methods) {
			if strings.HasPrefix(path, "/v1/admin/") {
				all = append(all, [2]string{strings.ToUpper(method), path})
			}
		}
	}
	return all
}

// filled puts a tenant and a key where a path has parameters.
func filled(path, tenant, key string) string {
	return strings.NewReplacer("{tenant}", tenant, "{key_id}", key).Replace(path)
}

// The admin key opens the admin API and nothing else, and nothing else opens it.
func TestAdminKey(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	b.keep(crawl.Tenant{Name: "c"})
	key := b.tenants.key("c", time.Time{})
	routes := adminRoutesOf(t, b.bench)
	if len(routes) != 8 {
		t.Errorf("routes %q", routes)
	}
	for _, route := range routes {
		target := filled(route[1], "c", keyID(sha256.Sum256([]byte(key))))
		for name, edit := range map[string]func(*http.Request){
			"none": header("Authorization"), "static key": with(keyA), "tenant's key": with(key), "gateway": with(gatewaySecret),
			"gateway's headers": func(r *http.Request) { header("Authorization")(r); behind(gatewaySecret, "c")(r) },
			"prefix":            with(adminKey[:len(adminKey)-1]), "longer": with(adminKey + "x"), "empty": with(""),
			"two": func(r *http.Request) { with(adminKey)(r); header("X-API-Key", keyA)(r) },
		} {
			a := b.call(route[0], target, "", edit)
			p := a.wantProblem(t, 401, crawl.CodeUnauthenticated)
			if !strings.Contains(p.Detail, "admin key") || a.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: %s", name, a.body)
			}
		}
	}
	if len(b.tenants.calls) > 0 {
		t.Errorf("the store was asked: %v", b.tenants.calls)
	}
	b.list(with(adminKey)).wantProblem(t, 401, crawl.CodeUnauthenticated)
	b.call("GET", pathTenants+"/c", "", header("Authorization"), header("X-API-Key", adminKey)).decode(t, 200, &tenantRecord{})
	// What a gateway adds to a call that passes through it makes no difference.
	if a := b.admin("GET", pathTenants, "", behind("wrong", "c")); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}

	for name, off := range map[string]func(*Options){
		"no admin key": func(o *Options) { o.AdminKey = "" }, "no tenants": func(o *Options) { o.Tenants = nil },
	} {
		b := newTenantsBench(t, off)
		for _, route := range routes {
			for _, edit := range []func(*http.Request){with(adminKey), with(""), with(keyA)} {
				a := b.call(route[0], filled(route[1], "c", "0"), "", edit)
				if p := a.wantProblem(t, 404, crawl.CodeNotFound); !strings.Contains(p.Detail, "nothing at this address") {
					t.Errorf("%s: %s", name, a.body)
				}
			}
		}
		if a := b.call("GET", openAPIPath, ""); strings.Contains(a.body, "/v1/admin") || strings.Contains(a.body, `"admin"`) {
			t.Errorf("%s: the document tells of an admin API", name)
		}
	}
}

// A tenant is created, read, listed, changed and suspended; what is answered fits the document.
func TestTenants(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, func(o *Options) { o.Quota = crawl.Quota{MaxRunning: 10, MaxPages: 500, MaxBytes: 1 << 30} })
	doc := openAPI(t, b.bench)
	fits := func(a answer, path, method string) {
		t.Helper()
		err := doc.check(a.body, "paths", path, method, "responses", strconv.Itoa(a.status), "content", a.header.Get("Content-Type"), "schema")
		if err != nil {
			t.Errorf("%s %s: %v in %s", method, path, err, a.body)
		}
	}
	a := b.admin("POST", pathTenants, `{"name":"c-1","sources":["https://Docs.Site.test/3/","*.site.test","https://docs.site.test/3/"],`+
		`"quota":{"max_queued":5,"max_running":20,"max_pages":7}}`)
	fits(a, pathTenants, "post")
	var got tenantRecord
	a.decode(t, 201, &got)
	want := tenantRecord{
		Name: "c-1", Sources: []string{"https://docs.site.test/3/", "*.site.test"}, Quota: quota{MaxQueued: 5, MaxRunning: 20, MaxPages: 7},
		Effective:        quota{MaxQueued: 5, MaxRunning: 10, MaxPages: 7, MaxBytes: 1 << 30},
		EffectiveSources: []string{"https://docs.site.test/3/", "*.site.test"},
		CreatedAt:        "2023-11-14T22:13:20.000Z", UpdatedAt: "2023-11-14T22:13:20.000Z",
	}
	if d := cmp.Diff(want, got); d != "" || a.header.Get("Location") != pathTenants+"/c-1" {
		t.Errorf("Location %q, -want +got:\n%s", a.header.Get("Location"), d)
	}
	if d := cmp.Diff(crawl.Quota{MaxQueued: 5, MaxRunning: 20, MaxPages: 7}, b.tenants.quotas["c-1"]); d != "" {
		t.Errorf("where the jobs are: -want +got\n%s", d)
	}
	a = b.admin("GET", a.header.Get("Location"), "")
	fits(a, pathTenant, "get")
	if a.decode(t, 200, &got); !cmp.Equal(want, got) {
		t.Errorf("read: %s", a.body)
	}
	a = b.admin("POST", pathTenants, `{"name":"c-1","quota":{"max_running":1}}`)
	fits(a, pathTenants, "post")
	if p := a.wantProblem(t, 409, crawl.CodeTenantExists); !strings.Contains(p.Detail, "PATCH "+pathTenants+"/c-1") {
		t.Errorf("%q does not say what to do", p.Detail)
	}
	if b.tenants.quotas["c-1"].MaxQueued != 5 {
		t.Error("a creation that was refused changed the quota")
	}

	// What opens is rung, and what is left out stays as it is.
	ring := crawl.Ring{JobRef: crawl.JobRef{Tenant: "c-1", ID: crawl.NewJobID("c-1", "")}}
	b.tenants.open["c-1"] = []crawl.Ring{ring}
	a = b.admin("PATCH", pathTenants+"/c-1", `{"sources":[],"suspended":true,"quota":{"max_queued":0}}`)
	fits(a, pathTenant, "patch")
	want.Sources, want.EffectiveSources, want.Suspended, want.UpdatedAt = []string{}, []string{}, true, "2023-11-14T22:13:21.000Z"
	want.Quota.MaxQueued, want.Effective.MaxQueued = 0, 0
	got = tenantRecord{}
	if a.decode(t, 200, &got); !cmp.Equal(want, got) {
		t.Errorf("changed: %s", cmp.Diff(want, got))
	}
	if d := cmp.Diff([]crawl.Ring{ring}, b.rings); d != "" || b.tenants.quotas["c-1"] != (crawl.Quota{MaxRunning: 20, MaxPages: 7}) {
		t.Errorf("rings -want +got:\n%s, quota %+v", d, b.tenants.quotas["c-1"])
	}
	b.keep(crawl.Tenant{Name: "plain"})
	a = b.admin("GET", pathTenants+"/plain", "")
	if a.decode(t, 200, &got); got.Sources != nil || !strings.Contains(a.body, `"sources":null,"effective_sources":["*"]`) {
		t.Errorf("all of the service's sources are shown as %s", a.body)
	}

	for method, body := range map[string]string{"GET": "", "PATCH": "{}", "POST": ""} {
		for _, name := range []string{"nobody", "C-1", "c-1%2f", "..", "c 1", strings.Repeat("c", 64), "c-1\x00"} {
			target := pathTenants + "/" + name
			if method == "POST" {
				target += "/keys"
			}
			b.admin(method, target, body).wantProblem(t, 404, crawl.CodeNotFound)
		}
	}
	if _, made := b.tenants.tenants["nobody"]; made {
		t.Error("a change created a tenant")
	}
}

// The list has every tenant once, in the order of the names, and takes its own cursors only.
func TestListTenants(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	var want []string
	for i := range 7 {
		want = append(want, fmt.Sprintf("t-%d", i))
		b.keep(crawl.Tenant{Name: want[i]})
	}
	doc := openAPI(t, b.bench)
	var names []string
	for cursor := ""; ; {
		a := b.admin("GET", pathTenants+"?limit=3&cursor="+cursor, "")
		var p tenantPage
		a.decode(t, 200, &p)
		if err := doc.check(a.body, "components", "schemas", "TenantPage"); err != nil {
			t.Error(err)
		}
		for _, r := range p.Items {
			names = append(names, r.Name)
		}
		if p.HasMore != (p.NextCursor != nil) {
			t.Errorf("has_more %v with next_cursor %v", p.HasMore, p.NextCursor)
		}
		if !p.HasMore {
			break
		}
		cursor = *p.NextCursor
	}
	if !slices.Equal(names, want) {
		t.Errorf("listed %q", names)
	}
	for _, cursor := range []string{
		"x", encodeCursor(cursorJobs, 5), cursorEncoding.EncodeToString([]byte("t")), cursorEncoding.EncodeToString([]byte("t../x")),
		cursorEncoding.EncodeToString([]byte("jt-1")), cursorEncoding.EncodeToString([]byte("tt-1")) + "%0a", strings.Repeat("A", 10000),
	} {
		b.admin("GET", pathTenants+"?cursor="+cursor, "").wantProblem(t, 400, crawl.CodeMalformed)
	}
	p := b.admin("GET", pathTenants+"?limit=0&state=x", "").wantProblem(t, 422, crawl.CodeInvalid)
	if d := cmp.Diff([]string{"state:unknown", "limit:range"}, fieldRules(p)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// Each fault of a body is named with its field and rule, all at once, and nothing is kept.
func TestTenantFaults(t *testing.T) {
	t.Parallel()
	many := `["` + strings.Repeat(`a.test","`, maxTenantSources) + `b.test"]`
	long := strings.Repeat("x", maxSourceBytes+1)
	for body, want := range map[string][]string{
		`{}`:           {"name:required"},
		`{"name":"A"}`: {"name:format"}, `{"name":"../x"}`: {"name:format"}, `{"name":"a}b"}`: {"name:format"},
		`{"name":"` + strings.Repeat("a", 64) + `"}`: {"name:format"}, `{"name":5}`: {"name:type"}, `{"name":null}`: {"name:required"},
		`{"name":"c","sources":` + many + `}`: {"sources:max"},
		`{"name":"c","sources":["a.test","","a.test,b.test","https://u:p@a.test/"," ","*.127.0.0.1","a.test,","` + long + `"]}`: {
			"sources[1]:source", "sources[2]:source", "sources[3]:source", "sources[4]:source", "sources[5]:source", "sources[6]:source",
			"sources[7]:max",
		},
		`{"name":"c","sources":["a.test",null]}`: {"sources[1]:type"}, `{"name":"c","sources":"a.test"}`: {"sources:type"},
		`{"name":"c","quota":{"max_queued":-1,"max_running":10001,"max_pages":1000001,"pages_per_day":1000000000001,` +
			`"max_bytes":1000000000000001,"submissions_per_second":1000001}}`: {
			"quota.max_queued:range", "quota.max_running:range", "quota.max_pages:range", "quota.pages_per_day:range", "quota.max_bytes:range",
			"quota.submissions_per_second:range",
		},
		`{"name":"c","quota":{"max_running":1.0}}`: {"quota.max_running:type"}, `{"name":"c","quota":{"max_run":1}}`: {"quota.max_run:unknown"},
		`{"name":"c","quota":{"max_pages":1e99}}`: {"quota.max_pages:type"}, `{"name":"c","quota":[]}`: {"quota:type"},
		`{"name":"C","nope":1,"suspended":true,"quota":{"max_running":-1}}`: {"nope:unknown", "name:format", "quota.max_running:range"},
		`{"name":"c","Name":"d"}`: {"Name:duplicate"}, `{"name":"c"}{}`: {"body:trailing_data"}, `{"name":"c","suspended":"yes"}`: {"suspended:type"},
	} {
		b := newTenantsBench(t, nil)
		p := b.admin("POST", pathTenants, body).wantProblem(t, 422, crawl.CodeInvalid)
		if d := cmp.Diff(want, fieldRules(p)); d != "" {
			t.Errorf("%.200s: -want +got\n%s", body, d)
		}
		for _, f := range p.Errors {
			if !strings.HasSuffix(f.Message, ".") {
				t.Errorf("%s: %q is no sentence", f.Field, f.Message)
			}
		}
		if len(b.tenants.calls) > 0 {
			t.Errorf("%.200s: the store was asked: %v", body, b.tenants.calls)
		}
	}
	b := newTenantsBench(t, nil)
	b.keep(crawl.Tenant{Name: "c"})
	p := b.admin("PATCH", pathTenants+"/c", `{"name":"c","quota":{"max_running":-1},"sources":["a b"]}`).wantProblem(t, 422, crawl.CodeInvalid)
	if d := cmp.Diff([]string{"name:unknown", "sources[0]:source", "quota.max_running:range"}, fieldRules(p)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for body, code := range map[string]crawl.Code{`[]`: crawl.CodeMalformed, `{`: crawl.CodeMalformed, "": codeUnsupportedMediaType} {
		a := b.admin("PATCH", pathTenants+"/c", body)
		a.wantProblem(t, statuses[code], code)
	}
	b.admin("POST", pathTenants, `{"name":"c"}`, header("Content-Type", "text/plain")).wantProblem(t, 415, codeUnsupportedMediaType)
	large := `{"name":"` + strings.Repeat("c", MaxBody) + `"}`
	b.admin("POST", pathTenants, large).wantProblem(t, 413, crawl.CodeBodyTooLarge)
	if b.tenants.count("ChangeTenant") > 0 {
		t.Error("something was changed")
	}
}

// The bounds of a tenant's quota are those of the service's settings, but that each may be 0.
func TestQuotaBoundsAreThoseOfTheSettings(t *testing.T) {
	t.Parallel()
	settings := reflect.TypeFor[config.Quota]()
	for f := range fieldsOf(reflect.TypeFor[quota]()) {
		s, ok := settings.FieldByName(f.Name)
		if !ok || f.Tag.Get("minimum") != "0" || f.Tag.Get("maximum") != s.Tag.Get("max") {
			t.Errorf("%s: %q to %q, the setting to %q", f.Name, f.Tag.Get("minimum"), f.Tag.Get("maximum"), s.Tag.Get("max"))
		}
		domain, ok := reflect.TypeFor[crawl.Quota]().FieldByName(f.Name)
		if !ok || domain.Tag.Get("json") != jsonName(f) {
			t.Errorf("%s is %q here and %q in the domain", f.Name, jsonName(f), domain.Tag.Get("json"))
		}
	}
}

func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// A step that fails is answered as what it is, and the same call made again ends well.
func TestTenantStepsThatFail(t *testing.T) {
	t.Parallel()
	down := &crawl.Fault{Code: crawl.CodeUnavailable, Message: "no Redis"}
	for _, step := range []string{"Tenant", "SetQuota", "CreateTenant"} {
		b := newTenantsBench(t, nil)
		body := `{"name":"c","quota":{"max_running":2}}`
		b.tenants.err[step] = down
		b.admin("POST", pathTenants, body).wantProblem(t, 503, crawl.CodeUnavailable)
		if _, kept := b.tenants.tenants["c"]; kept {
			t.Errorf("%s failed, and the tenant is kept", step)
		}
		clear(b.tenants.err)
		b.admin("POST", pathTenants, body).decode(t, 201, &tenantRecord{})
		if b.tenants.quotas["c"].MaxRunning != 2 || b.tenants.tenants["c"].Quota.MaxRunning != 2 {
			t.Errorf("%s: the quota is not in its place", step)
		}
	}
	for _, step := range []string{"ChangeTenant", "SetQuota", "Tenant"} {
		b := newTenantsBench(t, nil)
		b.keep(crawl.Tenant{Name: "c"})
		b.tenants.err[step] = down
		b.admin("PATCH", pathTenants+"/c", `{"quota":{"max_running":2}}`).wantProblem(t, 503, crawl.CodeUnavailable)
		clear(b.tenants.err)
		b.admin("PATCH", pathTenants+"/c", `{"quota":{"max_running":2}}`).decode(t, 200, &tenantRecord{})
		if b.tenants.quotas["c"].MaxRunning != 2 || b.tenants.tenants["c"].Quota.MaxRunning != 2 {
			t.Errorf("%s: the quota is not in its place", step)
		}
	}
}

// Whoever changes a tenant at the same time, the quota that holds is the one that is kept.
func TestConcurrentChangesOfATenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTenantsBench(t, nil)
		// The one whose change is kept first puts its quota in place last.
		held := make(chan struct{})
		var puts atomic.Int32
		b.tenants.meet = func(method, _ string) {
			if method == "SetQuota" && puts.Add(1) == 1 {
				<-held
			}
		}
		b.keep(crawl.Tenant{Name: "c"})
		done := make(chan answer)
		go func() { done <- b.admin("PATCH", pathTenants+"/c", `{"quota":{"max_running":1}}`) }()
		synctest.Wait()
		b.admin("PATCH", pathTenants+"/c", `{"quota":{"max_running":2}}`).decode(t, 200, &tenantRecord{})
		close(held)
		if a := <-done; a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if kept, holds := b.tenants.tenants["c"].Quota, b.tenants.quotas["c"]; kept != holds || kept.MaxRunning != 2 {
			t.Errorf("kept %+v, holds %+v", kept, holds)
		}

		// Two creations: the loser does not leave its own quota behind.
		var looked sync.WaitGroup
		looked.Add(2)
		var calls atomic.Int32
		b.tenants.meet = func(method, _ string) {
			if method == "SetQuota" && calls.Add(1) <= 2 {
				looked.Done()
				looked.Wait()
			}
		}
		answers := make(chan answer, 2)
		for i := range 2 {
			go func() {
				answers <- b.admin("POST", pathTenants, fmt.Sprintf(`{"name":"d","quota":{"max_running":%d}}`, i+3))
			}()
		}
		created := 0
		for range 2 {
			switch a := <-answers; a.status {
			case 201:
				created++
			case 409:
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		if kept, holds := b.tenants.tenants["d"].Quota, b.tenants.quotas["d"]; created != 1 || kept != holds {
			t.Errorf("%d created, kept %+v, holds %+v", created, kept, holds)
		}
	})
}

// A key is made, shown once, listed without itself, rotated with an overlap and revoked.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newTenantsBench(t, nil)
		b.keep(crawl.Tenant{Name: "c"})
		b.keep(crawl.Tenant{Name: "d"})
		doc := openAPI(t, b.bench)
		make1 := func(target, body string) shownKey {
			t.Helper()
			a := b.admin("POST", target, body)
			var k shownKey
			a.decode(t, 201, &k)
			if err := doc.check(a.body, "components", "schemas", "ShownKey"); err != nil {
				t.Error(err)
			}
			if a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("the answer may be kept: %q", a.header.Get("Cache-Control"))
			}
			text, ok := strings.CutPrefix(k.Key, keyPrefix)
			bits, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(text)
			if !ok || err != nil || len(bits) < 16 || strings.Contains(k.Key, k.KeyID) {
				t.Errorf("key %q of id %q", k.Key, k.KeyID)
			}
			return k
		}
		opens := func(key string, want int) {
			t.Helper()
			if a := b.list(with(key)); a.status != want {
				t.Errorf("%d %s, want %d", a.status, a.body, want)
			}
		}
		keys := pathTenants + "/c/keys"
		plain := make1(keys, "")
		labelled := make1(keys, `{"label":"nightly – Österreich","expires_in":"720h"}`)
		if plain.Key == labelled.Key || plain.Label != "" || plain.ExpiresAt != nil || labelled.Label != "nightly – Österreich" ||
			labelled.ExpiresAt == nil || *labelled.ExpiresAt != timestamp(time.Now().Add(720*time.Hour)) {
			t.Errorf("made %+v and %+v", plain, labelled)
		}
		opens(plain.Key, 200)
		opens(labelled.Key, 200)
		a := b.admin("GET", keys, "")
		var p keyPage
		a.decode(t, 200, &p)
		if err := doc.check(a.body, "components", "schemas", "KeyPage"); err != nil {
			t.Error(err)
		}
		if len(p.Items) != 2 || p.HasMore || p.NextCursor != nil || strings.Contains(a.body, plain.Key) || strings.Contains(a.body, labelled.Key) {
			t.Errorf("listed %s", a.body)
		}

		// Rotated: both are good for the overlap, and by default the old one ends at once.
		next := make1(keys+"/"+labelled.KeyID+"/rotate", `{"overlap":"1h"}`)
		if next.Label != labelled.Label || next.KeyID == labelled.KeyID || next.ExpiresAt == nil ||
			*next.ExpiresAt != *labelled.ExpiresAt {
			t.Errorf("rotated to %+v", next)
		}
		opens(labelled.Key, 200)
		opens(next.Key, 200)
		timer := time.NewTimer(time.Hour)
		<-timer.C
		opens(labelled.Key, 401)
		last := make1(keys+"/"+next.KeyID+"/rotate", "")
		opens(next.Key, 401)
		opens(last.Key, 200)

		// Another tenant's key is not there, whatever is asked.
		asked := b.tenants.count("RevokeKey") + b.tenants.count("RotateKey")
		for _, id := range []string{last.KeyID, "0123456789abcdef", "..", "A", strings.Repeat("a", 65), "%00", last.KeyID + "\n"} {
			b.admin("DELETE", pathTenants+"/d/keys/"+id, "").wantProblem(t, 404, crawl.CodeNotFound)
			b.admin("POST", pathTenants+"/d/keys/"+id+"/rotate", "").wantProblem(t, 404, crawl.CodeNotFound)
		}
		if n := b.tenants.count("RevokeKey") + b.tenants.count("RotateKey") - asked; n != 4 {
			t.Errorf("the store was asked %d times, and only two of the ids could be one", n)
		}
		opens(last.Key, 200)
		if a := b.admin("DELETE", keys+"/"+last.KeyID, ""); a.status != 204 || a.body != "" {
			t.Errorf("%d %s", a.status, a.body)
		}
		opens(last.Key, 401)
		b.admin("DELETE", keys+"/"+last.KeyID, "").wantProblem(t, 404, crawl.CodeNotFound)
		b.admin("GET", pathTenants+"/nobody/keys", "").wantProblem(t, 404, crawl.CodeNotFound)
		opens(plain.Key, 200)

		wantChanges(t, b.logs.String(), []string{
			"create-key c " + plain.KeyID, "create-key c " + labelled.KeyID, "rotate-key c " + labelled.KeyID + " " + next.KeyID,
			"rotate-key c " + next.KeyID + " " + last.KeyID, "revoke-key c " + last.KeyID,
		})
		for _, k := range []shownKey{plain, labelled, next, last} {
			digest := sha256.Sum256([]byte(k.Key))
			if logs := b.logs.String(); strings.Contains(logs, k.Key) || strings.Contains(logs, fmt.Sprintf("%x", digest)) {
				t.Error("a key is logged")
			}
		}
	})
}

// wantChanges reads the changes of the admin from a log, each as action, tenant and keys.
func wantChanges(t *testing.T, logs string, want []string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(logs) {
		var e struct {
			Msg, By, Action, Tenant string
			RequestID               string `json:"request_id"`
			KeyID                   string `json:"key_id"`
			NewKeyID                string `json:"new_key_id"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Msg == "admin change" {
			got = append(got, strings.TrimSpace(strings.Join([]string{e.Action, e.Tenant, e.KeyID, e.NewKeyID}, " ")))
			if e.By != "admin" || e.RequestID == "" {
				t.Errorf("entry %s", line)
			}
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("changes -want +got:\n%s", d)
	}
}

// Changes of tenants are logged, refusals are not.
func TestChangesAreLogged(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	b.admin("POST", pathTenants, `{"name":"c"}`)
	b.admin("POST", pathTenants, `{"name":"c"}`)
	b.admin("POST", pathTenants, `{"name":"C"}`)
	b.admin("PATCH", pathTenants+"/c", `{}`)
	b.admin("PATCH", pathTenants+"/c", `{"quota":{"max_pages":7,"max_bytes":0},"sources":["a.test","b.test"],"suspended":false}`)
	b.admin("PATCH", pathTenants+"/c", `{"suspended":true}`)
	b.admin("PATCH", pathTenants+"/d", `{"suspended":true}`)
	b.admin("GET", pathTenants+"/c", "")
	logs := b.logs.String()
	wantChanges(t, logs, []string{"create-tenant c", "change-tenant c", "change-tenant c"})
	for _, changed := range []string{
		`"changed":{"sources":2,"quota":{"max_pages":7,"max_bytes":0},"suspended":false}`, `"changed":{"suspended":true}`,
	} {
		if !strings.Contains(logs, changed) {
			t.Errorf("no entry says %s in\n%s", changed, logs)
		}
	}
}

func TestKeyFaults(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	b.keep(crawl.Tenant{Name: "c"})
	keys := pathTenants + "/c/keys"
	for _, tt := range []struct {
		target, body string
		want         []string
	}{
		{keys, `{"label":"` + strings.Repeat("é", 101) + `","expires_in":"59s"}`, []string{"label:max", "expires_in:range"}},
		{keys, `{"label":"a\nlevel=error"}`, []string{"label:format"}},
		{keys, `{"label":"\u202eevil"}`, []string{"label:format"}},
		{keys, `{"expires_in":"87601h"}`, []string{"expires_in:range"}},
		{keys, `{"expires_in":"-1h"}`, []string{"expires_in:range"}},
		{keys, `{"expires_in":720}`, []string{"expires_in:type"}},
		{keys, `{"expires_in":"a month"}`, []string{"expires_in:format"}},
		{keys, `{"overlap":"1h"}`, []string{"overlap:unknown"}},
		{keys + "/0/rotate", `{"overlap":"721h","expires_in":"1s"}`, []string{"overlap:range", "expires_in:range"}},
		{keys + "/0/rotate", `{"overlap":"-1s"}`, []string{"overlap:range"}},
		{keys + "/0/rotate", `{"label":"x"}`, []string{"label:unknown"}},
	} {
		p := b.admin("POST", tt.target, tt.body).wantProblem(t, 422, crawl.CodeInvalid)
		if d := cmp.Diff(tt.want, fieldRules(p)); d != "" {
			t.Errorf("%s: -want +got\n%s", tt.body, d)
		}
	}
	for body, message := range map[string]string{
		`{"expires_in":"1s"}`:  `Give a duration from 1m to 87600h. There are no days: 30 days are "720h".`,
		`{"expires_in":"30d"}`: `"30d" is no duration. Write a number and a unit, such as "500ms", "90s" or "1h30m". ` + noDays,
		`{"overlap":"721h"}`:   `Give a duration from 0s to 720h. ` + noDays,
	} {
		target := keys
		if strings.Contains(body, "overlap") {
			target += "/0/rotate"
		}
		p := b.admin("POST", target, body).wantProblem(t, 422, crawl.CodeInvalid)
		if len(p.Errors) != 1 || p.Errors[0].Message != message {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	b.admin("POST", keys, `[]`).wantProblem(t, 400, crawl.CodeMalformed)
	b.admin("POST", keys, "x", header("Content-Type", "text/plain")).wantProblem(t, 415, codeUnsupportedMediaType)
	if n := b.tenants.count("AddKey") + b.tenants.count("RotateKey"); n > 0 {
		t.Errorf("%d keys were made", n)
	}
	b.tenants.err["AddKey"] = &crawl.Fault{Code: crawl.CodeQuotaExceeded, Message: "Too many keys. Revoke one.", Limit: "keys", LimitMax: 100}
	if p := b.admin("POST", keys, "").wantProblem(t, 429, crawl.CodeQuotaExceeded); p.Limit != "keys" || p.LimitMax != 100 {
		t.Errorf("%+v", p)
	}
}

// The document names each call of the admin API with its own keys, and its examples are
// accepted as they stand.
func TestAdminInTheDocument(t *testing.T) {
	t.Parallel()
	b := newTenantsBench(t, nil)
	doc := openAPI(t, b.bench)
	schemes, _ := doc.at("components", "securitySchemes").(map[string]any)
	if d := cmp.Diff([]string{"admin", "adminApiKey", "apiKey", "bearer", "gateway", "gatewayTenant"}, sorted(schemes)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	b.keep(crawl.Tenant{Name: "c"})
	var documented, routed []string
	for _, route := range adminRoutesOf(t, b.bench) {
		method, path := strings.ToLower(route[0]), route[1]
		documented = append(documented, route[0]+" "+path)
		want := []any{map[string]any{"admin": []any{}}, map[string]any{"adminApiKey": []any{}}}
		if d := cmp.Diff(want, doc.at("paths", path, method, "security")); d != "" {
			t.Errorf("%s %s: security -want +got\n%s", method, path, d)
		}
		if d := cmp.Diff([]any{"admin"}, doc.at("paths", path, method, "tags")); d != "" {
			t.Errorf("%s %s: tags -want +got\n%s", method, path, d)
		}
		for _, status := range []string{"401", "503"} {
			if doc.at("paths", path, method, "responses", status) == nil {
				t.Errorf("%s %s does not document %s", method, path, status)
			}
		}
		examples, _ := doc.at("paths", path, method, "requestBody", "content", "application/json", "examples").(map[string]any)
		if (method == "post" || method == "patch") != (len(examples) > 0) {
			t.Errorf("%s %s: %d examples", method, path, len(examples))
		}
		for name := range examples {
			text, err := json.Marshal(doc.at("paths", path, method, "requestBody", "content", "application/json", "examples", name, "value"))
			if err != nil {
				t.Fatal(err)
			}
			if err := doc.check(string(text), "paths", path, method, "requestBody", "content", "application/json", "schema"); err != nil {
				t.Errorf("%s %s: example %s: %v", method, path, name, err)
			}
			key := b.tenants.key("c", time.Time{})
			target := filled(path, "c", keyID(sha256.Sum256([]byte(key))))
			if a := b.admin(route[0], target, string(text)); a.status >= 300 {
				t.Errorf("%s %s: example %s: %d %s", method, path, name, a.status, a.body)
			}
		}
	}
	for _, r := range b.server.engine.Routes() {
		if strings.HasPrefix(r.Path, "/v1/admin/") && r.Method != http.MethodHead {
			path := strings.NewReplacer(":tenant", "{tenant}", ":key_id", "{key_id}").Replace(r.Path)
			routed = append(routed, r.Method+" "+path)
		}
	}
	slices.Sort(documented)
	slices.Sort(routed)
	if d := cmp.Diff(routed, documented); d != "" {
		t.Errorf("-routed +documented:\n%s", d)
	}
	for name, body := range map[string]string{"NewTenant": `{"name":"c"}`, "TenantChange": `{}`, "NewAPIKey": `{}`, "Rotation": `{}`} {
		if err := doc.check(body, "components", "schemas", name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := doc.check(`{"name":"c","nope":1}`, "components", "schemas", name); err == nil {
			t.Errorf("%s takes what the decoder does not", name)
		}
		shape := shapes[map[string]reflect.Type{
			"NewTenant": reflect.TypeFor[newTenant](), "TenantChange": reflect.TypeFor[tenantChange](),
			"NewAPIKey": reflect.TypeFor[newAPIKey](), "Rotation": reflect.TypeFor[rotation](),
		}[name]]
		properties, _ := doc.at("components", "schemas", name, "properties").(map[string]any)
		if d := cmp.Diff(sorted(shape.fields), sorted(properties)); d != "" {
			t.Errorf("%s: -decoder +document\n%s", name, d)
		}
		for field, p := range properties {
			if of, _ := p.(map[string]any); of["description"] == nil {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
}
