package httpapi

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
)

// mill is a server over a real store, and a worker of its jobs that tests lead by hand.
type mill struct {
	*bench
	st     *store.Store
	tenant string
	now    atomic.Int64 // of the store, in ms
}

func newMill(t *testing.T, r *crawltest.Redis) *mill {
	t.Helper()
	m := &mill{tenant: crawltest.Tenant(t)}
	m.now.Store(1_700_000_000_000)
	m.st = store.New(r.Client, store.Options{Now: m.now.Load})
	m.bench = newBenchWith(t, func(o *Options) {
		o.Jobs, o.Collections = m.st, m.st
		o.Keys = map[string][]string{m.tenant: {keyA}}
	})
	return m
}

// submit submits a job and lets a second pass.
func (m *mill) submit(t *testing.T, body string) crawl.JobRef {
	t.Helper()
	var s status
	m.call("POST", "/v1/jobs", body).decode(t, 202, &s)
	m.now.Add(1000)
	return crawl.JobRef{Tenant: m.tenant, ID: s.JobID}
}

// begin leases up to n pages of a job.
func (m *mill) begin(t *testing.T, job crawl.JobRef, n int) (*store.Slice, []crawl.Item) {
	t.Helper()
	sl, _, err := m.st.Begin(t.Context(), crawl.Ring{JobRef: job})
	if err != nil || sl == nil {
		t.Fatalf("slice %v: %v", sl, err)
	}
	leased, err := m.st.Exchange(t.Context(), sl, store.Exchange{Lease: n})
	if err != nil {
		t.Fatal(err)
	}
	return sl, leased.Items
}

// settle commits pages, each as outcome says, and ends the slice.
func (m *mill) settle(t *testing.T, sl *store.Slice, items []crawl.Item, outcome func(crawl.Item) store.Commit) {
	t.Helper()
	var x store.Exchange
	for _, it := range items {
		c := outcome(it)
		c.Item = it
		x.Commits = append(x.Commits, c)
	}
	if _, err := m.st.Exchange(t.Context(), sl, x); err != nil {
		t.Error(err)
	}
	if _, err := m.st.End(t.Context(), sl, store.NoRest); err != nil {
		t.Error(err)
	}
}

// work works a job off to its end, within a second.
func (m *mill) work(t *testing.T, job crawl.JobRef, outcome func(crawl.Item) store.Commit) {
	t.Helper()
	sl, items := m.begin(t, job, 100)
	m.settle(t, sl, items, outcome)
	m.now.Add(1000)
}

// fails is a page that was answered 500.
func fails(it crawl.Item) store.Commit {
	return store.Commit{Failed: &crawl.Failure{SourceURL: it.URL, URL: it.URL, ErrorType: "http_500", Status: 500}}
}

// gives is a page with the item of its URL.
func gives(it crawl.Item) store.Commit {
	c := bare(it)
	c.Accepted.Items = []json.RawMessage{fmt.Appendf(nil, `{"id":%q}`, it.URL)}
	c.Accepted.Upserts = []store.Upsert{{Item: 1, Key: it.URL, Fingerprint: [16]byte{1}}}
	return c
}

// bare is a page without an item.
func bare(it crawl.Item) store.Commit {
	u, err := crawl.ParseURL(it.URL)
	if err != nil {
		return store.Commit{}
	}
	return store.Commit{Accepted: &store.Accepted{
		Page: crawl.Page{SourceURL: it.URL, URL: it.URL, Status: 200, Bytes: 10}, Final: u.Key(),
	}}
}

func (m *mill) status(t *testing.T, job crawl.JobRef) status {
	t.Helper()
	var s status
	m.call("GET", "/v1/jobs/"+job.ID, "").decode(t, 200, &s)
	return s
}

// retry tries the failed URLs of a job again, and lets a second pass.
func (m *mill) retry(t *testing.T, job crawl.JobRef) crawl.JobRef {
	t.Helper()
	var s retried
	m.call("POST", "/v1/jobs/"+job.ID+"/retry-failed", "").decode(t, 202, &s)
	m.now.Add(1000)
	return crawl.JobRef{Tenant: m.tenant, ID: s.JobID}
}

func TestRetryOnTheStore(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		m := newMill(t, r)
		old := m.submit(t, `{"urls":["https://site.test/0","https://site.test/1","https://site.test/2"],"tags":["x"],
			"headers":{"Authorization":"Bearer hush"},"webhook":{"url":"https://hook.test/x","secret":"`+whsec+`"}}`)
		target := "/v1/jobs/" + old.ID + "/retry-failed"
		m.call("POST", target, "").wantProblem(t, 409, crawl.CodeJobNotTerminal)
		m.work(t, old, func(it crawl.Item) store.Commit {
			if it.URL == "https://site.test/0" {
				return bare(it)
			}
			return fails(it)
		})
		before := m.status(t, old)
		if before.RetryOf != nil || before.Failed != 2 {
			t.Fatalf("%+v", before)
		}
		// At once, with one key: one job.
		var made sync.Map
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				var s retried
				a := m.call("POST", target, "", header("Idempotency-Key", "again"))
				if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.status != 202 {
					t.Errorf("%d %s", a.status, a.body)
				}
				made.Store(s.JobID, a.body)
			})
		}
		all.Wait()
		var ids []string
		made.Range(func(id, _ any) bool { ids = append(ids, id.(string)); return true }) //nolint:forcetypeassert // as stored
		if len(ids) != 1 {
			t.Fatalf("%d jobs: %q", len(ids), ids)
		}
		again := crawl.JobRef{Tenant: m.tenant, ID: ids[0]}
		m.call("POST", target+"?cursor="+encodeCursor(cursorErrors, 1), "", header("Idempotency-Key", "again")).
			wantProblem(t, 409, crawl.CodeKeyReused)
		plan, err := m.st.Plan(t.Context(), again)
		if err != nil || plan.Headers["Authorization"] != "Bearer hush" || plan.Webhook == nil || plan.Webhook.Secret != whsec || plan.Site {
			t.Errorf("%+v, %v", plan, err)
		}
		m.now.Add(1000)
		m.work(t, again, bare)
		s := m.status(t, again)
		if s.State != crawl.Completed || s.RetryOf == nil || *s.RetryOf != old.ID || s.Total != 2 || s.Accepted != 2 || len(s.Tags) != 1 {
			t.Errorf("%+v", s)
		}
		if d := cmp.Diff(before, m.status(t, old)); d != "" {
			t.Errorf("the old job changed: -before +after\n%s", d)
		}
		m.call("POST", "/v1/jobs/"+again.ID+"/retry-failed", "").wantProblem(t, 409, crawl.CodeWrongState)
		if a := m.call("DELETE", "/v1/jobs/"+old.ID, ""); a.status != 204 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		m.call("POST", target, "").wantProblem(t, 410, crawl.CodeExpired)
	})
}

// Another try of some URLs is no crawl of all: what it does not see is not missing, however often
// it is made, and what is gone is still found by the next whole crawl.
func TestRetryMakesNothingMissing(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		m := newMill(t, r)
		const nightly = `{"urls":["https://site.test/0","https://site.test/1","https://site.test/2"],
			"items":{"selector":"li","fields":{"id":{"selector":"b"}}},"collection":{"name":"jobs","key":"id"}}`
		missing := func(what string, job crawl.JobRef, want int64) {
			t.Helper()
			var c struct {
				Missing, Total int64
			}
			m.call("GET", "/v1/collections/jobs", "").decode(t, 200, &c)
			if s := m.status(t, job); s.Report.Missing != want || c.Missing != want {
				t.Errorf("%s: %d missing by the job, %d in the collection, want %d", what, s.Report.Missing, c.Missing, want)
			}
		}
		first := m.submit(t, nightly)
		m.work(t, first, gives)
		missing("the first crawl", first, 0)
		second := m.submit(t, nightly)
		m.work(t, second, func(it crawl.Item) store.Commit {
			if it.URL == "https://site.test/2" {
				return fails(it)
			}
			return gives(it)
		})
		missing("one that failed", second, 0)
		for _, outcome := range []func(crawl.Item) store.Commit{gives, bare, bare} {
			again := m.retry(t, second)
			m.work(t, again, outcome)
			if s := m.status(t, again); s.State != crawl.Completed {
				t.Fatalf("%+v", s)
			}
			missing("another try", again, 0)
		}
		third := m.submit(t, nightly)
		m.work(t, third, gives)
		missing("a whole crawl", third, 0)
		fourth := m.submit(t, nightly)
		m.work(t, fourth, func(it crawl.Item) store.Commit {
			if it.URL == "https://site.test/1" {
				return bare(it)
			}
			return gives(it)
		})
		missing("a whole crawl without an item", fourth, 1)
	})
}

// A job is paused with what is in flight, which is counted, waits for nothing, and goes on.
func TestPauseOnTheStore(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		m := newMill(t, r)
		job := m.submit(t, `{"urls":["https://site.test/0","https://site.test/1","https://site.test/2"]}`)
		path := "/v1/jobs/" + job.ID
		sl, items := m.begin(t, job, 1)
		if len(items) != 1 {
			t.Fatalf("leased %+v", items)
		}
		answered := make(chan answer, 1)
		go func() { answered <- m.call("POST", path+"/pause", "") }()
		crawltest.Eventually(t, 20*time.Second, "a paused job", func() bool {
			j, err := m.st.Job(t.Context(), job)
			return err == nil && j.State == crawl.Paused
		})
		m.settle(t, sl, items, bare)
		var s status
		(<-answered).decode(t, 200, &s)
		// On a machine that is busy the answer may be that of the end of the wait.
		if s.State != crawl.Paused || s.Active+s.Accepted != 1 || s.Queued != 2 || s.WaitingFor != nil || s.Position != nil {
			t.Errorf("paused: %+v", s)
		}
		var listed page[status]
		m.call("GET", "/v1/jobs?state=paused", "").decode(t, 200, &listed)
		if len(listed.Items) != 1 || listed.Items[0].JobID != job.ID || listed.Items[0].WaitingFor != nil {
			t.Errorf("listed %+v", listed)
		}
		for range 2 { // it can be repeated
			m.call("POST", path+"/pause", "").decode(t, 200, &s)
			if s.State != crawl.Paused || s.Accepted != 1 || s.Active != 0 {
				t.Errorf("paused again: %+v", s)
			}
		}
		rung := len(m.rings)
		for range 2 {
			m.call("POST", path+"/resume", "").decode(t, 200, &s)
			if s.State != crawl.Running {
				t.Errorf("resumed: %+v", s)
			}
		}
		if len(m.rings) == rung || m.rings[rung].ID != job.ID {
			t.Errorf("rung %+v", m.rings[rung:])
		}
		m.work(t, job, bare)
		if s = m.status(t, job); s.State != crawl.Completed || s.Accepted != 3 {
			t.Errorf("%+v", s)
		}
		for _, call := range []string{"/pause", "/resume"} {
			m.call("POST", path+call, "").wantProblem(t, 409, crawl.CodeWrongState)
		}
	})
}
