package store

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// fixture is a store with a clock of its own and a tenant of its own.
type fixture struct {
	*Store
	tenant string
	mu     sync.Mutex
	now    int64
}

func newFixture(t *testing.T, r *crawltest.Redis) *fixture {
	t.Helper()
	f := &fixture{tenant: crawltest.Tenant(t), now: 1_700_000_000_000}
	f.Store = New(r.Client, Options{Now: func() int64 {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.now
	}})
	return f
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += d.Milliseconds()
}

func (f *fixture) at() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.UnixMilli(f.now).UTC()
}

// job makes up a submission of n inputs.
func (f *fixture) job(t *testing.T, key string, n int) NewJob {
	t.Helper()
	j := newJob(f.tenant, key)
	for i := range n {
		u, err := crawl.ParseURL(fmt.Sprintf("http://site.test/%d", i))
		if err != nil {
			t.Fatal(err)
		}
		j.Inputs = append(j.Inputs, crawl.Input{URL: u})
	}
	return j
}

// newJob is a submission without inputs.
func newJob(tenant, key string) NewJob {
	return NewJob{
		Job:            crawl.JobRef{Tenant: tenant, ID: crawl.NewJobID(tenant, key)},
		IdempotencyKey: key, Digest: [32]byte{1}, Spec: []byte(`{"urls":["x"]}`), Quota: crawl.Quota{MaxRunning: 2},
		Plan: crawl.Plan{MaxPages: 100, Concurrency: 4, Retention: time.Hour},
	}
}

func (f *fixture) create(t *testing.T, n NewJob) Created {
	t.Helper()
	c, err := f.Create(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fixture) begin(t *testing.T, job crawl.JobRef) *Slice {
	t.Helper()
	sl, _, err := f.Begin(t.Context(), crawl.Ring{JobRef: job})
	if err != nil || sl == nil {
		t.Fatalf("slice %v, error %v", sl, err)
	}
	return sl
}

func (f *fixture) exchange(t *testing.T, sl *Slice, x Exchange) Exchanged {
	t.Helper()
	out, err := f.Exchange(t.Context(), sl, x)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func accept(t *testing.T, it crawl.Item) Commit {
	t.Helper()
	u, err := crawl.ParseURL(it.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Commit{Item: it, Accepted: &Accepted{
		Page: crawl.Page{SourceURL: it.URL, URL: it.URL, Status: 200, Bytes: 10}, Final: u.Key(),
	}}
}

// finish works a job off to its end.
func (f *fixture) finish(t *testing.T, job crawl.JobRef) []crawl.Ring {
	t.Helper()
	var rings []crawl.Ring
	sl := f.begin(t, job)
	for {
		out := f.exchange(t, sl, Exchange{Lease: 10})
		if len(out.Items) == 0 {
			break
		}
		var x Exchange
		for _, it := range out.Items {
			x.Commits = append(x.Commits, accept(t, it))
		}
		rings = append(rings, f.exchange(t, sl, x).Rings...)
	}
	if _, err := f.End(t.Context(), sl, 0); err != nil {
		t.Fatal(err)
	}
	return rings
}

func (f *fixture) read(t *testing.T, job crawl.JobRef) crawl.Job {
	t.Helper()
	j, err := f.Job(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func wantCode(t *testing.T, err error, code crawl.Code) *crawl.Fault {
	t.Helper()
	f := faultOf(err)
	if f == nil || f.Code != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	return f
}

// faultOf answers the fault in an error; nil when there is none.
func faultOf(err error) *crawl.Fault {
	var f *crawl.Fault
	if !errors.As(err, &f) {
		return nil
	}
	return f
}

// onEach runs a test on every kind of Redis.
func onEach(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) { f(t, newFixture(t, r)) })
}

// A submission happens once (promise 3).
func TestIdempotency(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "key", 3)
		first := f.create(t, n)
		if first.Replayed || first.Job.Total != 3 || first.Job.State != crawl.Queued {
			t.Fatalf("created %+v", first)
		}
		again := f.create(t, n)
		if !again.Replayed || again.Job.ID != first.Job.ID || len(again.Rings) != 0 {
			t.Fatalf("the same input again: %+v", again)
		}
		other := n
		other.Digest = [32]byte{2}
		_, err := f.Create(t.Context(), other)
		if got := wantCode(t, err, crawl.CodeKeyReused); got.JobID != first.Job.ID {
			t.Errorf("the conflict names job %q", got.JobID)
		}
		f.finish(t, n.Job)
		if again = f.create(t, n); !again.Replayed || again.Job.State != crawl.Completed {
			t.Errorf("replay of an ended job: %+v", again)
		}
	})
}

// A thousand submissions of one key at once are one job.
func TestThousandSubmissions(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "key", 3)
		var wg sync.WaitGroup
		results := make(chan Created, 1000)
		for range 50 {
			wg.Go(func() {
				for range 20 {
					c, err := f.Create(t.Context(), n)
					if err != nil {
						t.Error(err)
						return
					}
					results <- c
				}
			})
		}
		wg.Wait()
		close(results)
		fresh, rings := 0, 0
		for c := range results {
			rings += len(c.Rings)
			if !c.Replayed {
				fresh++
			}
		}
		if j := f.read(t, n.Job); fresh != 1 || rings != 1 || j.Total != 3 {
			t.Errorf("%d new jobs, %d rings, %d pages", fresh, rings, j.Total)
		}
	})
}

// The id of an expired or deleted job stays known: 410, also to a replay.
func TestTombstone(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		kept, gone := f.job(t, "kept", 2), f.job(t, "gone", 2)
		f.create(t, kept)
		f.create(t, gone)
		wantCode(t, f.Delete(t.Context(), gone.Job), crawl.CodeJobNotTerminal)
		f.finish(t, kept.Job)
		f.finish(t, gone.Job)
		if err := f.Delete(t.Context(), gone.Job); err != nil {
			t.Fatal(err)
		}
		ended := f.at()
		f.pass(time.Hour - time.Millisecond)
		f.heal(t)
		if j := f.read(t, kept.Job); !j.ExpiresAt.Equal(ended.Add(time.Hour)) {
			t.Errorf("expires at %v, want %v", j.ExpiresAt, ended.Add(time.Hour))
		}
		f.pass(time.Millisecond)
		if s := f.heal(t); s.Expired != 1 {
			t.Fatalf("swept %+v", s)
		}
		for _, n := range []NewJob{kept, gone} {
			_, err := f.Job(t.Context(), n.Job)
			if fault := wantCode(t, err, crawl.CodeExpired); fault.At.IsZero() {
				t.Error("no time of expiry")
			}
			_, err = f.Records(t.Context(), n.Job, 0, 10)
			wantCode(t, err, crawl.CodeExpired)
			_, err = f.Create(t.Context(), n)
			wantCode(t, err, crawl.CodeExpired)
			wantCode(t, f.Delete(t.Context(), n.Job), crawl.CodeExpired)
			_, err = f.Cancel(t.Context(), n.Job)
			wantCode(t, err, crawl.CodeExpired)
			other := n
			other.Digest = [32]byte{9}
			_, err = f.Create(t.Context(), other)
			wantCode(t, err, crawl.CodeKeyReused)
		}
		// Two tombstones, two remembered keys, the tenant's own hash and the pages of its day
		// are left.
		keys, err := f.rdb.Keys(t.Context(), rootKey(f.tenant)+"*").Result()
		if err != nil || len(keys) != 6 {
			t.Errorf("left behind: %q, %v", keys, err)
		}
		for _, k := range keys {
			if k == rootKey(f.tenant) || strings.Contains(k, ":day:") {
				continue
			}
			if ttl := f.rdb.PTTL(t.Context(), k).Val(); ttl <= 29*24*time.Hour || ttl > 30*24*time.Hour+time.Hour {
				t.Errorf("%s lives for %v", k, ttl)
			}
		}
	})
}

// Another tenant's job does not exist.
func TestForeignJob(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		f.create(t, n)
		foreign := crawl.JobRef{Tenant: f.tenant + "x", ID: n.Job.ID}
		for name, call := range map[string]func() error{
			"job":      func() error { _, err := f.Job(t.Context(), foreign); return err },
			"records":  func() error { _, err := f.Records(t.Context(), foreign, 0, 10); return err },
			"failures": func() error { _, err := f.Failures(t.Context(), foreign, 0, 10); return err },
			"cancel":   func() error { _, err := f.Cancel(t.Context(), foreign); return err },
			"delete":   func() error { return f.Delete(t.Context(), foreign) },
		} {
			if got := crawl.CodeOf(call()); got != crawl.CodeNotFound {
				t.Errorf("%s of another tenant's job: %q", name, got)
			}
		}
	})
}

// At most max_running jobs of a tenant run; the others wait in order, each with its
// place, and the end of one starts the next.
func TestRunGate(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		var jobs []crawl.JobRef
		var rings []crawl.Ring
		for i := range 6 {
			n := f.job(t, fmt.Sprint(i), 1)
			rings = append(rings, f.create(t, n).Rings...)
			jobs = append(jobs, n.Job)
		}
		var order []crawl.JobRef
		for len(rings) > 0 {
			order = append(order, rings[0].JobRef)
			for i, job := range jobs[min(len(order)+1, len(jobs)):] {
				if j := f.read(t, job); j.WaitingFor != "tenant_quota" || j.Position != int64(i)+1 {
					t.Errorf("job %d waits for %q at %d", i, j.WaitingFor, j.Position)
				}
			}
			rings = append(rings[1:], f.finish(t, rings[0].JobRef)...)
		}
		if d := cmp.Diff(jobs, order); d != "" {
			t.Errorf("order of the jobs (-want +got):\n%s", d)
		}
	})
}

// A waiting job is cancelled in place and frees no slot of the gate twice.
func TestCancelAtTheGate(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		var jobs []crawl.JobRef
		for i := range 4 {
			n := f.job(t, fmt.Sprint(i), 2)
			n.Quota.MaxRunning = 1
			f.create(t, n)
			jobs = append(jobs, n.Job)
		}
		r, err := f.Cancel(t.Context(), jobs[1])
		if err != nil || r.State != crawl.Cancelled || len(r.Rings) != 0 {
			t.Fatalf("cancelled %+v, %v", r, err)
		}
		if j := f.read(t, jobs[1]); j.Cancelled != 2 || j.StopReason != crawl.StopCancelled || !j.StartedAt.IsZero() {
			t.Errorf("cancelled while it waited: %+v", j)
		}
		// The end of the first starts the third, and no other.
		if r, err = f.Cancel(t.Context(), jobs[0]); err != nil || len(r.Rings) != 1 || r.Rings[0].JobRef != jobs[2] {
			t.Fatalf("cancelled %+v, %v", r, err)
		}
		if j := f.read(t, jobs[3]); j.Position != 1 {
			t.Errorf("the last waits at place %d", j.Position)
		}
	})
}

// calls answers the number of commands that a server carried out, those of scripts
// included.
func calls(t *testing.T, r *crawltest.Server) int64 {
	t.Helper()
	info, err := r.Client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(line, ":calls=")
		if name == "cmdstat_info" || name == "cmdstat_hello" || name == "cmdstat_client|setinfo" {
			continue // the looking itself, and connections
		}
		n, _, _ := strings.Cut(rest, ",")
		v, _ := strconv.ParseInt(n, 10, 64)
		sum += v
	}
	return sum
}

// Whatever its size, a job is cancelled by a bounded number of commands.
func TestCancelIsConstant(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	st := New(r.Client, Options{})
	commands := func(inputs int) int64 {
		n := (&fixture{Store: st, tenant: crawltest.Tenant(t)}).job(t, "", inputs)
		if _, err := st.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		if n := len(n.Inputs); n != inputs {
			t.Fatalf("%d inputs", n)
		}
		before := calls(t, r)
		if _, err := st.Cancel(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
		return calls(t, r) - before
	}
	commands(1) // tells the server the scripts
	if few, many := commands(10), commands(10_000); few != many {
		t.Errorf("cancelling 10 URLs takes %d commands, 10,000 take %d", few, many)
	}
}

// Jobs are listed newest first; pages of the list neither repeat nor leave out.
func TestList(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		var want []string
		for i := range 12 {
			n := f.job(t, fmt.Sprint(i), 1)
			n.Tags = []string{"all", []string{"even", "odd"}[i%2]}
			f.create(t, n)
			if i == 3 {
				f.pass(time.Second)
			}
			want = append([]string{n.Job.ID}, want...)
		}
		read := func(q ListQuery) []string {
			var out []string
			q.Tenant = f.tenant
			for {
				p, err := f.List(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range p.Jobs {
					out = append(out, j.ID)
				}
				if !p.More {
					return out
				}
				q.Before = p.Next
			}
		}
		every := func(from []string, step int) []string {
			var out []string
			for i := 0; i < len(from); i += step {
				out = append(out, from[i])
			}
			return out
		}
		for name, c := range map[string]struct {
			q    ListQuery
			want []string
		}{
			"all":     {ListQuery{Limit: 5}, want},
			"at once": {ListQuery{Limit: 200}, want},
			"tag":     {ListQuery{Limit: 2, Tag: "odd"}, every(want, 2)},
			"no tag":  {ListQuery{Limit: 2, Tag: "od"}, nil},
			"state":   {ListQuery{Limit: 3, State: crawl.Running}, nil},
			"queued":  {ListQuery{Limit: 3, State: crawl.Queued}, want},
			"after":   {ListQuery{Limit: 3, CreatedAfter: time.UnixMilli(1_700_000_000_000)}, want[:8]},
		} {
			if d := cmp.Diff(c.want, read(c.q)); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
	})
}

// Records and failures are read in order, by a cursor that stays, across hashes.
func TestReading(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		n.Plan.Site, n.Plan.MaxPages = true, 3000
		f.create(t, n)
		sl := f.begin(t, n.Job)
		seed := f.exchange(t, sl, Exchange{Lease: 1}).Items[0]
		c := accept(t, seed)
		for i := range 1500 {
			u, err := crawl.ParseURL(fmt.Sprintf("http://site.test/page/%d", i))
			if err != nil {
				t.Fatal(err)
			}
			c.Accepted.Links = append(c.Accepted.Links, crawl.Link{URL: u, Key: u.Key()})
		}
		f.exchange(t, sl, Exchange{Commits: []Commit{c}})
		for {
			out := f.exchange(t, sl, Exchange{Lease: 64})
			if len(out.Items) == 0 {
				break
			}
			var x Exchange
			for _, it := range out.Items {
				if it.N%3 == 0 {
					x.Commits = append(x.Commits, Commit{Item: it, Failed: &crawl.Failure{
						SourceURL: it.URL, URL: it.URL, ErrorType: crawl.HTTPCode(404), Status: 404, Attempts: 1, Depth: it.Depth,
					}})
					continue
				}
				x.Commits = append(x.Commits, accept(t, it))
			}
			f.exchange(t, sl, x)
		}
		j := f.read(t, n.Job)
		if j.State != crawl.CompletedWithErrors || j.Records != 1001 || j.FailedByType["http_404"] != 500 {
			t.Fatalf("ended as %+v", j)
		}
		var got []crawl.Page
		for after := int64(0); ; {
			p, err := f.Records(t.Context(), n.Job, after, 300)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p.Records...)
			if after = p.Next; !p.More {
				break
			}
		}
		if len(got) != 1001 || got[0].DiscoveredOn != "" || got[1000].DiscoveredOn != "http://site.test/0" {
			t.Errorf("%d records, the last %+v", len(got), got[len(got)-1])
		}
		if i := slices.IndexFunc(got, func(p crawl.Page) bool { return p.Seq == 0 }); i >= 0 {
			t.Errorf("record %d has no number", i)
		}
		failures, err := f.Failures(t.Context(), n.Job, 490, 100)
		if err != nil || len(failures.Failures) != 10 || failures.More || !failures.Ended {
			t.Fatalf("failures %+v, %v", failures, err)
		}
		if first := failures.Failures[0]; first.DiscoveredOn != "http://site.test/0" || first.Status != 404 {
			t.Errorf("failure %+v", first)
		}
	})
}

// Hosts are shared: never more slots than the concurrency, never two starts closer
// than the delay, and a dead slice's slots fall free by themselves.
func TestHostSlots(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		host := crawltest.Random() + ".test"
		a := &Slice{Job: crawl.JobRef{Tenant: "a", ID: "ja"}, Gen: 1}
		b := &Slice{Job: crawl.JobRef{Tenant: "b", ID: "jb"}, Gen: 7}
		reserve := func(sl *Slice, first int64, n int) HostGrant {
			return f.exchange(t, sl, Exchange{Reserves: []HostReserve{{
				Host: host, First: first, N: n, Delay: 200 * time.Millisecond, Concurrency: 3,
			}}}).Grants[0]
		}
		ms := func(n ...int) []time.Duration {
			var out []time.Duration
			for _, v := range n {
				out = append(out, time.Duration(v)*time.Millisecond)
			}
			return out
		}
		if g := reserve(a, 1, 2); g.Wait != 0 || !slices.Equal(g.Starts, ms(0, 200)) {
			t.Errorf("first two: %+v", g)
		}
		if g := reserve(b, 1, 2); g.Wait >= 0 || !slices.Equal(g.Starts, ms(400)) {
			t.Errorf("one more by another tenant: %+v", g)
		}
		f.exchange(t, a, Exchange{Free: []HostSlots{{Host: host, Slots: []int64{1, 2}}}})
		f.pass(500 * time.Millisecond)
		if g := reserve(b, 2, 2); g.Wait != 0 || !slices.Equal(g.Starts, ms(100, 300)) {
			t.Errorf("after the release: %+v", g)
		}
		if _, err := f.Renew(t.Context(), b, HostSlots{Host: host, Slots: []int64{1, 2, 3}}); err != nil {
			t.Fatal(err)
		}
		f.pass(slotTime - time.Millisecond)
		if g := reserve(a, 3, 1); len(g.Starts) != 0 || g.Wait >= 0 {
			t.Errorf("while the slots live: %+v", g)
		}
		f.pass(2 * time.Millisecond)
		if g := reserve(a, 4, 3); !slices.Equal(g.Starts, ms(0, 200, 400)) {
			t.Errorf("after the slots died: %+v", g)
		}
	})
}

// Who frees a slot does not take it again while others stand in line, who come at
// their turn; who stops asking loses the place.
func TestHostLine(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		host := crawltest.Random() + ".test"
		var last int64
		names := map[string]*Slice{}
		for i, name := range []string{"a", "b", "c"} {
			names[name] = &Slice{Job: crawl.JobRef{Tenant: name, ID: "j" + name}, Gen: int64(i)}
		}
		held := map[string][]int64{}
		ask := func(name string, n int) int {
			f.pass(50 * time.Millisecond)
			first := last + 1
			last += int64(n)
			g := f.exchange(t, names[name], Exchange{Reserves: []HostReserve{{
				Host: host, First: first, N: n, Concurrency: 2,
			}}}).Grants[0]
			for i := range g.Starts {
				held[name] = append(held[name], first+int64(i))
			}
			return len(g.Starts)
		}
		free := func(name string) {
			f.exchange(t, names[name], Exchange{Free: []HostSlots{{Host: host, Slots: held[name][:1]}}})
			held[name] = held[name][1:]
		}
		step := func(what string, got, want int) {
			t.Helper()
			if got != want {
				t.Errorf("%s got %d slots, want %d", what, got, want)
			}
		}
		step("a, alone,", ask("a", 8), 2)
		step("b, later,", ask("b", 8), 0)
		step("c, last,", ask("c", 8), 0)
		free("a")
		step("a, which freed a slot and holds another,", ask("a", 8), 0)
		step("c, before its turn,", ask("c", 8), 0)
		step("b, at its turn,", ask("b", 8), 1)
		free("a")
		step("a, which holds none but came last,", ask("a", 8), 0)
		step("c, at its turn,", ask("c", 8), 1)
		free("b")
		step("a, at its turn,", ask("a", 8), 1)
		step("b, once more in line,", ask("b", 8), 0)
		f.pass(time.Second)
		free("a")
		step("a, after b went away,", ask("a", 8), 1)
	})
}

// A start beyond the horizon is not granted; the answer says how long to wait.
func TestHostHorizon(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		sl := &Slice{Job: crawl.JobRef{Tenant: "a", ID: "ja"}, Gen: 1}
		r := HostReserve{Host: crawltest.Random(), First: 1, N: 5, Delay: 3 * time.Second, Concurrency: 10}
		g := f.exchange(t, sl, Exchange{Reserves: []HostReserve{r}}).Grants[0]
		if !slices.Equal(g.Starts, []time.Duration{0, 3 * time.Second}) || g.Wait != time.Second {
			t.Errorf("granted %+v", g)
		}
		r.First = 10
		if g = f.exchange(t, sl, Exchange{Reserves: []HostReserve{r}}).Grants[0]; len(g.Starts) != 0 || g.Wait != 6*time.Second {
			t.Errorf("granted %+v", g)
		}
	})
}
