package httpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/obs"
	"example.com/trawl/pkg/store"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

// fakeJobs is a store in memory for what the HTTP edge itself decides. It knows
// idempotency, since replays are a matter of answers too; a test sets the rest.
type fakeJobs struct {
	mu       sync.Mutex
	jobs     map[crawl.JobRef]crawl.Job
	digests  map[crawl.JobRef][32]byte
	created  []store.NewJob
	failed   []crawl.JobRef // RingFailed
	asked    []crawl.JobRef // every ref that any call carried
	listed   []store.ListQuery
	records  map[crawl.JobRef][]crawl.Page
	failures map[crawl.JobRef][]crawl.Failure
	urls     map[crawl.JobRef][]store.URLEntry
	queries  []store.URLQuery
	events   map[crawl.JobRef][]store.WebhookEvent
	plans    map[crawl.JobRef]crawl.Plan

	err     error                                                     // of every call, when set
	cancel  func(ref crawl.JobRef, n int) (store.CancelResult, error) // n counts from 1
	cancels int
	// pause and resume change a job; nil: to paused and to running. The fault of one that has ended is theirs.
	pause, resume func(ref crawl.JobRef, j *crawl.Job) ([]crawl.Ring, error)
	read          func(ref crawl.JobRef, j *crawl.Job) // sees, and may change, what Job answers
	rings         []crawl.Ring
	ringErr       error
	page          func(after int64) error      // of Records
	define        func(crawl.Collection) error // of Create, when set
	hangs         bool                         // a store that answers nothing
}

// hang waits, in a store that answers nothing, for the caller to give up.
func (f *fakeJobs) hang(ctx context.Context) error {
	if !f.hangs {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func newFake() *fakeJobs {
	return &fakeJobs{
		jobs: map[crawl.JobRef]crawl.Job{}, digests: map[crawl.JobRef][32]byte{},
		records: map[crawl.JobRef][]crawl.Page{}, failures: map[crawl.JobRef][]crawl.Failure{},
		urls: map[crawl.JobRef][]store.URLEntry{}, events: map[crawl.JobRef][]store.WebhookEvent{},
		plans: map[crawl.JobRef]crawl.Plan{},
	}
}

func (f *fakeJobs) Create(ctx context.Context, n store.NewJob) (store.Created, error) {
	if err := f.hang(ctx); err != nil {
		return store.Created{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return store.Created{}, f.err
	}
	if j, ok := f.jobs[n.Job]; ok {
		if f.digests[n.Job] != n.Digest {
			return store.Created{}, &crawl.Fault{Code: crawl.CodeKeyReused, Message: "used for other input", JobID: n.Job.ID}
		}
		return store.Created{Job: j, Replayed: true}, nil
	}
	if c := n.Plan.Collection; c != nil && f.define != nil {
		if err := f.define(*c); err != nil {
			return store.Created{}, err
		}
	}
	j := crawl.Job{
		ID: n.Job.ID, QueueTaskID: n.Job.ID, State: crawl.Queued, Total: int64(len(n.Inputs)), Queued: int64(len(n.Inputs)),
		CreatedAt: time.Unix(1_700_000_000, 0), Spec: n.Spec, Tags: n.Tags,
		RetryOf: n.RetryOf,
	}
	f.created, f.jobs[n.Job], f.digests[n.Job] = append(f.created, n), j, n.Digest
	return store.Created{Job: j, Rings: []crawl.Ring{{JobRef: n.Job}}}, nil
}

func (f *fakeJobs) RingFailed(_ context.Context, job crawl.JobRef, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, job)
	return nil
}

func (f *fakeJobs) Job(ctx context.Context, ref crawl.JobRef) (crawl.Job, error) {
	if err := f.hang(ctx); err != nil {
		return crawl.Job{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, ref)
	j, ok := f.jobs[ref]
	switch {
	case ctx.Err() != nil:
		return j, ctx.Err()
	case f.err != nil:
		return j, f.err
	case !ok:
		return j, crawl.Faultf(crawl.CodeNotFound, "the store's own words")
	}
	if f.read != nil {
		f.read(ref, &j)
		f.jobs[ref] = j
	}
	j.Records = max(j.Records, int64(len(f.records[ref])))
	j.Failed = max(j.Failed, int64(len(f.failures[ref])))
	return j, nil
}

func (f *fakeJobs) List(ctx context.Context, q store.ListQuery) (store.JobPage, error) {
	if err := f.hang(ctx); err != nil {
		return store.JobPage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = append(f.listed, q)
	var page store.JobPage
	for i := int64(1); i <= int64(q.Limit); i++ {
		page.Jobs = append(page.Jobs, crawl.Job{ID: fmt.Sprint(q.Before + i), State: crawl.Running})
	}
	page.Next, page.More = q.Before+int64(q.Limit), q.Before == 0
	return page, f.err
}

func (f *fakeJobs) Records(ctx context.Context, ref crawl.JobRef, after int64, limit int) (store.RecordPage, error) {
	if err := f.hang(ctx); err != nil {
		return store.RecordPage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, ref)
	if f.page != nil {
		if err := f.page(after); err != nil {
			return store.RecordPage{}, err
		}
	}
	if err := ctx.Err(); err != nil {
		return store.RecordPage{}, err
	}
	if _, ok := f.jobs[ref]; !ok {
		return store.RecordPage{}, crawl.Faultf(crawl.CodeNotFound, "no such job")
	}
	all := f.records[ref]
	after = min(after, int64(len(all)))
	end := min(after+int64(limit), int64(len(all)))
	return store.RecordPage{
		Records: all[after:end], Next: end, More: end < int64(len(all)), Ended: f.jobs[ref].State.Terminal(),
	}, f.err
}

func (f *fakeJobs) Failures(ctx context.Context, ref crawl.JobRef, after int64, limit int) (store.FailurePage, error) {
	if err := f.hang(ctx); err != nil {
		return store.FailurePage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, ref)
	if _, ok := f.jobs[ref]; !ok {
		return store.FailurePage{}, crawl.Faultf(crawl.CodeNotFound, "no such job")
	}
	all := f.failures[ref]
	end := min(after+int64(limit), int64(len(all)))
	return store.FailurePage{
		Failures: all[after:end], Next: end, More: end < int64(len(all)), Ended: f.jobs[ref].State.Terminal(),
	}, f.err
}

// URLs answers the entries of a job whatever is asked for, as if all were refused.
func (f *fakeJobs) URLs(ctx context.Context, ref crawl.JobRef, q store.URLQuery) (store.URLPage, error) {
	if err := f.hang(ctx); err != nil {
		return store.URLPage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.queries = append(f.asked, ref), append(f.queries, q)
	if _, ok := f.jobs[ref]; !ok {
		return store.URLPage{}, crawl.Faultf(crawl.CodeNotFound, "no such job")
	}
	all := f.urls[ref]
	begin := min(q.From.Offset, int64(len(all)))
	end := min(begin+int64(q.Limit), int64(len(all)))
	var found []store.URLEntry
	for _, u := range all[begin:end] {
		if q.URL.IsZero() || u.URL == q.URL.String() {
			found = append(found, u)
		}
	}
	return store.URLPage{
		URLs: found, Next: store.URLPlace{Container: "refused", Offset: end}, More: end < int64(len(all)),
		Ended: f.jobs[ref].State.Terminal(),
	}, f.err
}

func (f *fakeJobs) WebhookEvents(ctx context.Context, ref crawl.JobRef) ([]store.WebhookEvent, error) {
	if err := f.hang(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, ref)
	if _, ok := f.jobs[ref]; !ok {
		return nil, crawl.Faultf(crawl.CodeNotFound, "no such job")
	}
	return f.events[ref], f.err
}

func (f *fakeJobs) Cancel(ctx context.Context, ref crawl.JobRef) (store.CancelResult, error) {
	if err := f.hang(ctx); err != nil {
		return store.CancelResult{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancels++
	f.asked = append(f.asked, ref)
	if f.cancel != nil {
		return f.cancel(ref, f.cancels)
	}
	j, ok := f.jobs[ref]
	if !ok {
		return store.CancelResult{}, crawl.Faultf(crawl.CodeNotFound, "no such job")
	}
	return store.CancelResult{State: j.State}, f.err
}

func (f *fakeJobs) Delete(ctx context.Context, ref crawl.JobRef) error {
	if err := f.hang(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, ref)
	switch j, ok := f.jobs[ref]; {
	case !ok:
		return crawl.Faultf(crawl.CodeNotFound, "no such job")
	case !j.State.Terminal():
		return &crawl.Fault{Code: crawl.CodeJobNotTerminal, Message: "the job has not ended", JobID: ref.ID}
	}
	delete(f.jobs, ref)
	return nil
}

func (f *fakeJobs) Ready(context.Context) error { return f.err }

func (f *fakeJobs) Ring(ctx context.Context, rings ...crawl.Ring) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.rings = append(f.rings, rings...)
	return f.ringErr
}

// add puts a job in the given state into the fake and returns its id.
func (f *fakeJobs) add(tenant string, state crawl.State) crawl.JobRef {
	f.mu.Lock()
	defer f.mu.Unlock()
	ref := crawl.JobRef{Tenant: tenant, ID: crawl.NewJobID(tenant, "")}
	f.jobs[ref] = crawl.Job{ID: ref.ID, QueueTaskID: ref.ID, State: state, CreatedAt: time.Unix(1_700_000_000, 0)}
	return ref
}

// fakeTenants keeps tenants and keys in memory, by the contract of the store's own.
type fakeTenants struct {
	mu      sync.Mutex
	tenants map[string]crawl.Tenant
	keys    map[[32]byte]crawl.APIKey
	quotas  map[string]crawl.Quota // where the jobs are
	calls   map[string]int         // by the name of the method

	err  map[string]error        // of a method, when set
	meet func(method, of string) // called before a method looks, without the lock
	open map[string][]crawl.Ring // what SetQuota answers
}

func newFakeTenants() *fakeTenants {
	return &fakeTenants{
		tenants: map[string]crawl.Tenant{}, keys: map[[32]byte]crawl.APIKey{}, quotas: map[string]crawl.Quota{},
		calls: map[string]int{}, err: map[string]error{}, open: map[string][]crawl.Ring{},
	}
}

func keyID(digest [32]byte) string { return hex.EncodeToString(digest[:8]) }

// enter begins a call; the caller holds the lock after it, in any case.
func (f *fakeTenants) enter(ctx context.Context, method, of string) error {
	if f.meet != nil {
		f.meet(method, of)
	}
	f.mu.Lock()
	f.calls[method]++
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.err[method]
}

func (f *fakeTenants) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// edit changes what the fake holds while the server may be looking.
func (f *fakeTenants) edit(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// key puts a key of a tenant into the fake and returns it.
func (f *fakeTenants) key(tenant string, expires time.Time) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := keyPrefix + rand.Text()
	d := sha256.Sum256([]byte(key))
	f.keys[d] = crawl.APIKey{ID: keyID(d), Tenant: tenant, ExpiresAt: expires}
	return key
}

func (f *fakeTenants) Authenticate(ctx context.Context, digest [32]byte) (crawl.APIKey, crawl.Tenant, error) {
	err := f.enter(ctx, "Authenticate", "")
	defer f.mu.Unlock()
	if err != nil {
		return crawl.APIKey{}, crawl.Tenant{}, err
	}
	k, ok := f.keys[digest]
	t, kept := f.tenants[k.Tenant]
	if !ok || !kept || !k.ExpiresAt.IsZero() && !time.Now().Before(k.ExpiresAt) {
		return crawl.APIKey{}, crawl.Tenant{}, crawl.Faultf(crawl.CodeUnauthenticated, "the store's own words")
	}
	return k, t, nil
}

var errNoTenant = crawl.Faultf(crawl.CodeNotFound, "the store's own words")

func (f *fakeTenants) Tenant(ctx context.Context, name string) (crawl.Tenant, error) {
	err := f.enter(ctx, "Tenant", name)
	defer f.mu.Unlock()
	if err != nil {
		return crawl.Tenant{}, err
	}
	t, ok := f.tenants[name]
	if !ok {
		return t, errNoTenant
	}
	return t, nil
}

func (f *fakeTenants) Tenants(ctx context.Context, after string, limit int) (store.TenantPage, error) {
	err := f.enter(ctx, "Tenants", after)
	defer f.mu.Unlock()
	var p store.TenantPage
	for _, name := range sorted(f.tenants) {
		switch {
		case name <= after:
		case len(p.Tenants) == limit:
			p.More = true
		default:
			p.Tenants, p.Next = append(p.Tenants, f.tenants[name]), name
		}
	}
	return p, err
}

func (f *fakeTenants) CreateTenant(ctx context.Context, t crawl.Tenant) (crawl.Tenant, error) {
	err := f.enter(ctx, "CreateTenant", t.Name)
	defer f.mu.Unlock()
	if err != nil {
		return t, err
	}
	if _, ok := f.tenants[t.Name]; ok {
		return t, crawl.Faultf(crawl.CodeTenantExists, "It is there.")
	}
	t.CreatedAt = time.Unix(1_700_000_000, 0)
	t.UpdatedAt = t.CreatedAt
	f.tenants[t.Name] = t
	return t, nil
}

func (f *fakeTenants) ChangeTenant(ctx context.Context, t crawl.Tenant) (crawl.Tenant, error) {
	err := f.enter(ctx, "ChangeTenant", t.Name)
	defer f.mu.Unlock()
	if err != nil {
		return t, err
	}
	old, ok := f.tenants[t.Name]
	if !ok {
		return t, errNoTenant
	}
	if !t.UpdatedAt.IsZero() && !t.UpdatedAt.Equal(old.UpdatedAt) {
		return t, crawl.Faultf(crawl.CodeWrongState, "the store's own words")
	}
	t.CreatedAt, t.UpdatedAt = old.CreatedAt, old.UpdatedAt.Add(time.Second)
	f.tenants[t.Name] = t
	return t, nil
}

func (f *fakeTenants) SetQuota(ctx context.Context, tenant string, q crawl.Quota) ([]crawl.Ring, error) {
	err := f.enter(ctx, "SetQuota", tenant)
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	f.quotas[tenant] = q
	return f.open[tenant], nil
}

func (f *fakeTenants) Keys(ctx context.Context, tenant string) ([]crawl.APIKey, error) {
	err := f.enter(ctx, "Keys", tenant)
	defer f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if _, ok := f.tenants[tenant]; !ok {
		return nil, errNoTenant
	}
	var all []crawl.APIKey
	for _, k := range f.keys {
		if k.Tenant == tenant {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b crawl.APIKey) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

func (f *fakeTenants) AddKey(ctx context.Context, n store.NewKey) (crawl.APIKey, error) {
	err := f.enter(ctx, "AddKey", n.Tenant)
	defer f.mu.Unlock()
	if err != nil {
		return crawl.APIKey{}, err
	}
	if _, ok := f.tenants[n.Tenant]; !ok {
		return crawl.APIKey{}, errNoTenant
	}
	k := crawl.APIKey{
		ID: keyID(n.Digest), Tenant: n.Tenant, Label: n.Label, CreatedAt: time.Now(), ExpiresAt: n.ExpiresAt,
	}
	f.keys[n.Digest] = k
	return k, nil
}

// find returns the digest of a key of a tenant; the caller holds the lock.
func (f *fakeTenants) find(tenant, id string) ([32]byte, bool) {
	for d, k := range f.keys {
		if k.Tenant == tenant && k.ID == id {
			return d, true
		}
	}
	return [32]byte{}, false
}

func (f *fakeTenants) RotateKey(
	ctx context.Context, tenant, id string, overlap time.Duration, next store.NewKey,
) (crawl.APIKey, error) {
	err := f.enter(ctx, "RotateKey", tenant)
	defer f.mu.Unlock()
	if err != nil {
		return crawl.APIKey{}, err
	}
	d, ok := f.find(tenant, id)
	if !ok {
		return crawl.APIKey{}, errNoTenant
	}
	old := f.keys[d]
	life := old.ExpiresAt
	if end := time.Now().Add(overlap); life.IsZero() || end.Before(life) {
		old.ExpiresAt = end
	}
	f.keys[d] = old
	k := crawl.APIKey{ID: keyID(next.Digest), Tenant: tenant, Label: old.Label, CreatedAt: time.Now()}
	k.ExpiresAt = next.ExpiresAt
	if k.ExpiresAt.IsZero() && !life.IsZero() {
		k.ExpiresAt = k.CreatedAt.Add(life.Sub(old.CreatedAt))
	}
	f.keys[next.Digest] = k
	return k, nil
}

func (f *fakeTenants) RevokeKey(ctx context.Context, tenant, id string) error {
	err := f.enter(ctx, "RevokeKey", tenant)
	defer f.mu.Unlock()
	if err != nil {
		return err
	}
	d, ok := f.find(tenant, id)
	if !ok {
		return errNoTenant
	}
	delete(f.keys, d)
	return nil
}

const (
	keyA = "key-of-tenant-a-0001"
	keyB = "key-of-tenant-b-0001"
)

// bench is a server over a fake, with its log.
type bench struct {
	*fakeJobs
	collections *fakeCollections
	server      *Server
	logs        *syncBuffer
	reg         *prometheus.Registry
}

// syncBuffer is a log that a test reads while the server writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchWith(t, nil)
}

// newBenchWith is newBench with some options changed.
func newBenchWith(t testing.TB, change func(*Options)) *bench {
	t.Helper()
	sources, err := crawl.ParseSources("*")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{fakeJobs: newFake(), collections: newFakeCollections(), logs: &syncBuffer{}, reg: obs.NewRegistry()}
	log, err := obs.NewLogger(b.logs, obs.FormatJSON, slog.LevelDebug)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Listen: "127.0.0.1:0", Jobs: b.fakeJobs, Collections: b.collections, Doorbell: b.fakeJobs,
		Keys:    map[string][]string{"a": {keyA}, "b": {keyB}},
		Sources: sources, Limits: crawl.DefaultLimits(), Quota: crawl.Quota{MaxRunning: 10}, Logger: log, Registry: b.reg,
	}
	if change != nil {
		change(&o)
	}
	if b.server, err = New(o); err != nil {
		t.Fatal(err)
	}
	return b
}

// answer is a response with its body read.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) problem(t *testing.T) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("the body is no problem: %v in %q", err, a.body)
	}
	if got := a.header.Get("Content-Type"); got != problemType {
		t.Errorf("Content-Type %q, want %q", got, problemType)
	}
	if p.Status != a.status || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-ID") || p.Title == "" || p.Detail == "" {
		t.Errorf("incomplete problem %+v of status %d", p, a.status)
	}
	return p
}

// wantProblem checks status and code, and returns the problem.
func (a answer) wantProblem(t *testing.T, status int, code crawl.Code) problem {
	t.Helper()
	p := a.problem(t)
	if a.status != status || p.Code != code {
		t.Errorf("%d %s (%s %v), want %d %s", a.status, p.Code, p.Detail, p.Errors, status, code)
	}
	return p
}

func (a answer) decode(t *testing.T, status int, into any) {
	t.Helper()
	if a.status != status {
		t.Fatalf("%d %s, want %d", a.status, a.body, status)
	}
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%v in %q", err, a.body)
	}
}

// request makes one with the key of tenant a; edit may change it.
func request(method, target, body string, edit ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(method, "http://api.test/", strings.NewReader(body))
	// Set by hand, since some tests ask for what net/url would not take.
	path, query, _ := strings.Cut(target, "?")
	r.URL.Path, r.URL.RawQuery = path, query
	r.Header.Set("Authorization", "Bearer "+keyA)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, e := range edit {
		e(r)
	}
	return r
}

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

func (b *bench) do(r *http.Request) answer {
	w := httptest.NewRecorder()
	b.server.Handler().ServeHTTP(w, r)
	res := w.Result()
	body, _ := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body)}
}

func (b *bench) call(method, target, body string, edit ...func(*http.Request)) answer {
	return b.do(request(method, target, body, edit...))
}

// counts reports whether /metrics has the line.
func (b *bench) counts(line string) bool {
	return slices.Contains(strings.Split(b.call("GET", "/metrics", "").body, "\n"), line)
}

func fieldRules(p problem) []string {
	var all []string
	for _, f := range p.Errors {
		all = append(all, f.Field+":"+f.Rule)
	}
	return all
}

func sorted[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

var errBroken = errors.New("dial tcp 10.1.2.3:6379: secret detail")

var (
	nopLogger        = slog.New(slog.DiscardHandler)
	typeOfSubmission = reflect.TypeFor[submission]()
)

func ginContext(r *http.Request) *gin.Context {
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = r
	return c
}

// UnmarshalJSON lets tests read what they were answered.
func (s *spec) UnmarshalJSON(data []byte) error { *s = slices.Clone(data); return nil }
