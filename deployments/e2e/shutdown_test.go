package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// lastWords is how long a process may take behind its grace: the deployments are made for
// it, see k8s/README.md.
const lastWords = 13 * time.Second

// attempts reads the tries of every URL of a job by its state.
func (d *deployment) attempts(tenant, id string) map[crawl.PageState][]int {
	d.t.Helper()
	type known struct {
		URL      string          `json:"url"`
		State    crawl.PageState `json:"state"`
		Attempts int             `json:"attempts"`
	}
	by := map[crawl.PageState][]int{}
	for _, u := range list[known](d, tenant, id, "/urls") {
		by[u.State] = append(by[u.State], u.Attempts)
	}
	return by
}

// unburnt checks that no try of any URL was counted that did not end.
func (d *deployment) unburnt(tenant, id string) {
	d.t.Helper()
	for state, tries := range d.attempts(tenant, id) {
		want := 0
		if state == crawl.PageAccepted || state == crawl.PageFailed {
			want = 1
		}
		for _, n := range tries {
			if n != want {
				d.t.Errorf("a URL that is %s has %d attempts, want %d", state, n, want)
			}
		}
	}
}

// slotsFree checks that no host slot is taken now.
func (d *deployment) slotsFree() {
	d.t.Helper()
	for _, key := range d.redis.Keys("{h:*}:slots") {
		now := fmt.Sprintf("(%d", d.redis.Client.Time(d.t.Context()).Val().UnixMilli())
		if n := d.redis.Client.ZCount(d.t.Context(), key, now, "+inf").Val(); n > 0 {
			d.t.Errorf("%s: %d slots are taken although nobody crawls", key, n)
		}
	}
}

// TestWorkerEnds: SIGTERM in the middle of slow and fast pages. What is in flight ends and is
// recorded, the rest is as it was, and the next worker goes on without a page too many.
func TestWorkerEnds(t *testing.T) {
	t.Parallel()
	const pages = 60
	d := deploy(t, 0)
	slow, fast := slowSite(t, 2*time.Second), slowSite(t, 20*time.Millisecond)
	w := d.startWorker()
	var urls []string
	for i := range pages {
		urls = append(urls, fmt.Sprintf("%s/%d", fast.URL, i), fmt.Sprintf("%s/%d", slow.URL, i))
	}
	jobs := map[string]*watch{}
	for _, tenant := range []string{alpha, beta} {
		id := d.submit(tenant, fields{"urls": urls, "concurrency": 12}).ID
		jobs[tenant] = d.watch(tenant, id)
		d.processed(tenant, id, 10)
	}
	crawltest.Eventually(t, long, "pages are in flight", func() bool { return w.metric("trawl_fetches_in_flight") > 0 })
	begun := time.Now()
	if code := w.Terminate(20*time.Second + lastWords); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	t.Logf("ended in %v", time.Since(begun).Round(time.Millisecond))
	d.slotsFree()
	served := func() int {
		return asked(slow, "/") + asked(fast, "/") - asked(slow, "/robots") - asked(fast, "/robots")
	}
	recorded := int64(0)
	for tenant, w := range jobs {
		j := d.status(tenant, w.job)
		if j.Active != 0 || j.State != crawl.Running {
			t.Errorf("the worker has left the job of %s as %+v", tenant, j)
		}
		recorded += j.Accepted
		d.unburnt(tenant, w.job)
	}
	if n := served(); int64(n) != recorded {
		t.Errorf("%d pages were fetched and %d recorded: the grace was long enough for all", n, recorded)
	}
	d.startWorker()
	for tenant, w := range jobs {
		if j := w.end(long); j.State != crawl.Completed || j.Accepted != 2*pages {
			t.Errorf("the job of %s ended as %+v", tenant, j)
		}
		d.recordedOnce(tenant, w.job, urls)
		d.unburnt(tenant, w.job)
	}
	if n := served(); n != 4*pages {
		t.Errorf("%d requests for %d pages", n, 4*pages)
	}
	d.queueEmpties()
}

// TestWorkerDrops: requests hang for longer than the grace. They are given back at its end
// with no attempt burnt, and another worker has them at once.
func TestWorkerDrops(t *testing.T) {
	t.Parallel()
	const pages, hanging = 30, 6
	var (
		hung    atomic.Int64
		mended  atomic.Bool
		aborted atomic.Int64
	)
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/hang") && !mended.Load() {
			hung.Add(1)
			<-r.Context().Done()
			aborted.Add(1)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, "<title>%s</title>", r.URL.Path)
	}))
	const grace = time.Second
	d := deploy(t, 0, "TRAWL_SHUTDOWN_GRACE="+grace.String())
	w := d.startWorker()
	urls := numbered(site, pages)
	for i := range hanging {
		urls = append(urls, fmt.Sprintf("%s/hang/%d", site.URL, i))
	}
	job := d.submit(alpha, fields{"urls": urls, "concurrency": hanging + 2}).ID
	watched := d.watch(alpha, job)
	d.processed(alpha, job, pages)
	crawltest.Eventually(t, long, "all that can hang hangs", func() bool { return hung.Load() == hanging })
	begun := time.Now()
	if code := w.Terminate(grace + lastWords); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	t.Logf("ended in %v", time.Since(begun).Round(time.Millisecond))
	if j := d.status(alpha, job); j.Active != 0 || j.Queued+j.Deferred != hanging || j.Accepted != pages {
		t.Errorf("after the drop the job is %+v", j)
	}
	d.slotsFree()
	d.unburnt(alpha, job)
	crawltest.Eventually(t, long, "the requests are aborted", func() bool { return aborted.Load() == hanging })
	mended.Store(true)
	d.startWorker()
	again := time.Now()
	if j := watched.end(long); j.State != crawl.Completed || j.Accepted != pages+hanging {
		t.Errorf("ended as %+v", j)
	}
	t.Logf("another worker had them within %v", time.Since(again).Round(time.Millisecond))
	d.recordedOnce(alpha, job, urls)
	d.unburnt(alpha, job)
	if n := asked(site, "/") - asked(site, "/robots"); n != pages+2*hanging {
		t.Errorf("%d requests, want one for each of %d pages and two for %d that hung", n, pages, hanging)
	}
}

// TestRollingRestart: all three workers are replaced, one after another, twice, while jobs of
// two tenants run. Nothing is fetched twice, and no job stands still.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const pages, jobs = 1500, 4
	d := deploy(t, 0)
	alive := []*worker{d.startWorker(), d.startWorker(), d.startWorker()}
	replaced := make(chan struct{}) // from then on the site answers at once, so that the test ends soon
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timer := time.NewTimer(250 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-replaced:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, "<title>%s</title>", r.URL.Path) // the client may be gone
	}))
	type run struct {
		*watch
		urls []string
	}
	var runs []run
	for k := range jobs {
		tenant := []string{alpha, beta}[k%2]
		r := run{}
		for i := range pages {
			r.urls = append(r.urls, fmt.Sprintf("%s/%d/%d", site.URL, k, i))
		}
		r.watch = d.watch(tenant, d.submit(tenant, fields{"urls": r.urls, "concurrency": 4}).ID)
		runs = append(runs, r)
	}
	for _, r := range runs {
		d.processed(r.tenant, r.job, 5)
	}
	for round := range 2 {
		for i := range alive {
			begun := time.Now()
			if code := alive[i].Terminate(20*time.Second + lastWords); code != 0 {
				t.Errorf("round %d: a worker ended with %d", round, code)
			}
			took := time.Since(begun)
			alive[i] = d.startWorker()
			t.Logf("round %d: worker %d ended in %v", round, i, took.Round(time.Millisecond))
		}
	}
	for k, r := range runs {
		if s := d.status(r.tenant, r.job).State; s.Terminal() {
			t.Errorf("job %d ended before the workers were replaced: it proves nothing", k)
		}
	}
	close(replaced)
	for k, r := range runs {
		if j := r.end(long); j.State != crawl.Completed || j.Accepted != pages {
			t.Errorf("job %d ended as %+v", k, j)
		}
		d.recordedOnce(r.tenant, r.job, r.urls)
		d.unburnt(r.tenant, r.job)
		t.Logf("job %d stood still for %v at most", k, r.gap.Round(time.Millisecond))
		if r.gap > heal {
			t.Errorf("job %d stood still for %v", k, r.gap)
		}
	}
	if n := asked(site, "/") - asked(site, "/robots"); n != jobs*pages {
		t.Errorf("%d requests for %d pages", n, jobs*pages)
	}
	_, buried := healed(t, d)
	if len(buried) > 0 {
		t.Errorf("%d slices were found dead: their workers left them behind", len(buried))
	}
}

// TestTerminatedTwice: a second SIGTERM is for who does not want to wait.
func TestTerminatedTwice(t *testing.T) {
	t.Parallel()
	d := deploy(t, 0, "TRAWL_SHUTDOWN_GRACE=5m")
	w := d.startWorker()
	var mended atomic.Bool
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/robots") || mended.Load() {
			return
		}
		<-r.Context().Done()
	}))
	job := d.submit(alpha, fields{"urls": numbered(site, 3)}).ID
	watched := d.watch(alpha, job)
	crawltest.Eventually(t, long, "the pages hang", func() bool { return asked(site, "/")-asked(site, "/robots") == 3 })
	w.Signal(syscall.SIGTERM)
	w.WaitFor(long, `"msg":"worker stops"`)
	w.Signal(syscall.SIGTERM)
	begun := time.Now()
	if code := w.Wait(lastWords); code == 0 {
		t.Error("the worker was told twice to end, and says that all is well")
	}
	t.Logf("the second signal ended it in %v", time.Since(begun).Round(time.Millisecond))
	mended.Store(true)
	d.startWorker()
	if j := watched.end(long); j.State != crawl.Completed || j.Accepted != 3 {
		t.Errorf("ended as %+v", j)
	}
}

// TestTerminatedEarly: a process that is told to end while it starts does so, in order.
func TestTerminatedEarly(t *testing.T) {
	t.Parallel()
	d := deploy(t, 0)
	for _, pkg := range []string{"example.com/trawl/worker", "example.com/trawl/api"} {
		p := d.run(pkg)
		p.WaitFor(ready, `"msg":"settings"`) // before it a signal is the system's
		begun := time.Now()
		if code := p.Terminate(lastWords); code != 0 {
			t.Errorf("%s ended with %d", pkg, code)
		}
		t.Logf("%s ended in %v", pkg, time.Since(begun).Round(time.Millisecond))
	}
}

// TestTerminatedWithoutRedis: Redis hangs. A worker cannot give back what it has, and ends
// all the same; what it had is back once Redis answers.
func TestTerminatedWithoutRedis(t *testing.T) {
	t.Parallel()
	const grace, pages = 2 * time.Second, 40
	d := deploy(t, 0, "TRAWL_SHUTDOWN_GRACE="+grace.String())
	w := d.startWorker()
	site := slowSite(t, 300*time.Millisecond)
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "concurrency": 4}).ID
	watched := d.startWatch(&watch{tenant: alpha, job: job, outage: true})
	d.processed(alpha, job, 4)
	d.redis.Freeze()
	begun := time.Now()
	w.Signal(syscall.SIGTERM)
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-w.Done():
	case <-timer.C:
		d.redis.Thaw()
		t.Fatal("the worker has not ended")
	}
	took := time.Since(begun)
	d.redis.Thaw()
	t.Logf("ended in %v, with %d", took.Round(time.Millisecond), w.Wait(0))
	if took > grace+lastWords {
		t.Errorf("with a Redis that hangs the worker ended in %v, want at most %v", took, grace+lastWords)
	}
	d.startWorker()
	if j := watched.end(long); j.State != crawl.Completed || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}
	d.recordedOnce(alpha, job, numbered(site, pages))
}

// heavySite answers pages of a megabyte that cannot be packed.
func heavySite(t *testing.T) *crawltest.Site {
	t.Helper()
	return crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<title>"+r.URL.Path+"</title><p>")
		for range 1 << 16 {
			_, _ = fmt.Fprintf(w, "%016x", rand.Uint64())
		}
	}))
}

// TestAPIEnds: SIGTERM while a submission, a cancel that waits and a large download are under
// way. All three end well; nothing new is taken; the exit code is 0.
func TestAPIEnds(t *testing.T) {
	t.Parallel()
	single(t, "a client of a Cluster learns the addresses of its nodes, and goes around the proxy")
	const heavy, grace = 16, time.Minute // more than both ends of a connection keep; whole also on a busy machine
	d := deploy(t, 1)
	w := newWire(d)
	site := slowSite(t, 0)
	done := d.submit(alpha, fields{"urls": numbered(heavySite(t), heavy), "formats": []string{"html"}}).ID
	if j := d.watch(alpha, done).end(long); j.State != crawl.Completed || j.Accepted != heavy {
		t.Fatalf("ended as %+v", j)
	}
	// A job whose worker is dead: its cancel waits for what was in flight to be revoked.
	hanging := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/robots") {
			<-r.Context().Done()
		}
	}))
	held := d.submit(alpha, fields{"urls": numbered(hanging, 2)}).ID
	crawltest.Eventually(t, long, "the pages hang", func() bool {
		return asked(hanging, "/")-asked(hanging, "/robots") == 2
	})
	d.procs[1].Kill()

	api := d.startAPI(w.setting(d, apiUser), "TRAWL_SHUTDOWN_GRACE="+grace.String())
	// The download: its header and a part of it.
	result := api.url + "/v1/jobs/" + done + "/result?format=json"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, result, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = d.as(alpha)
	res, err := d.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	part := make([]byte, 64<<10)
	if _, err := io.ReadFull(res.Body, part); err != nil {
		t.Fatal(err)
	}
	// The submission, which has reached the store.
	type answer struct {
		status int
		body   []byte
		err    error
	}
	submission, cancel := make(chan answer, 1), make(chan answer, 1)
	call := func(to chan<- answer, method, path, body string) {
		res, got, err := d.try(t.Context(), method, api.url+path, d.as(alpha), body)
		if err != nil {
			to <- answer{err: err}
			return
		}
		to <- answer{res.StatusCode, got, nil}
	}
	h := w.hold(request, creates)
	go call(submission, http.MethodPost, "/v1/jobs", fmt.Sprintf(`{"urls": ["%s/1"]}`, site.URL))
	h.wait(t)
	asks := w.hold(reply, controls(held))
	go call(cancel, http.MethodPost, "/v1/jobs/"+held+"/cancel", "")
	asks.wait(t)
	asks.pass()

	begun := time.Now()
	api.Signal(syscall.SIGTERM)
	u, err := url.Parse(api.url)
	if err != nil {
		t.Fatal(err)
	}
	crawltest.Eventually(t, long, "new connections are refused", func() bool {
		c, err := net.DialTimeout("tcp", u.Host, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	t.Logf("new connections are refused %v after the signal", time.Since(begun).Round(time.Millisecond))
	h.pass()
	a := crawltest.Receive(t, long, "answer to the submission", submission)
	if a.err != nil || a.status != http.StatusAccepted {
		t.Errorf("the submission under way was answered %d %s, %v", a.status, a.body, a.err)
	}
	c := crawltest.Receive(t, long, "answer to the cancel", cancel)
	if c.err != nil || c.status != http.StatusOK || decode[crawl.Job](t, c.body).State != crawl.Cancelled {
		t.Errorf("the cancel under way was answered %d %s, %v", c.status, c.body, c.err)
	}
	select {
	case <-api.Done():
		t.Error("the API has ended before its download")
	default:
	}
	rest, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("the download was cut off after %d bytes: %v", len(part)+len(rest), err)
	}
	var whole struct{ Records []json.RawMessage }
	if err := json.Unmarshal(append(part, rest...), &whole); err != nil || len(whole.Records) != heavy {
		t.Errorf("the download has %d records of %d: %v", len(whole.Records), heavy, err)
	}
	if code := api.Wait(grace + lastWords); code != 0 {
		t.Errorf("the API ended with %d", code)
	}
	t.Logf("the API ended %v after the signal", time.Since(begun).Round(time.Millisecond))
	d.startWorker()
	if a.err == nil && a.status == http.StatusAccepted {
		if j := d.watch(alpha, decode[crawl.Job](t, a.body).ID).end(long); j.State != crawl.Completed {
			t.Errorf("the job of the submission under way ended as %+v", j)
		}
	}
}

// TestAPIGrace: a download that nobody reads holds an API for its grace, and no longer.
func TestAPIGrace(t *testing.T) {
	t.Parallel()
	const grace, heavy = 2 * time.Second, 16
	d := deploy(t, 1)
	done := d.submit(alpha, fields{"urls": numbered(heavySite(t), heavy), "formats": []string{"html"}}).ID
	if j := d.watch(alpha, done).end(long); j.State != crawl.Completed {
		t.Fatalf("ended as %+v", j)
	}
	api := d.startAPI("TRAWL_SHUTDOWN_GRACE=" + grace.String())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api.url+"/v1/jobs/"+done+"/result?format=ndjson", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = d.as(alpha)
	res, err := d.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	begun := time.Now()
	api.Signal(syscall.SIGTERM)
	code := api.Wait(grace + lastWords)
	took := time.Since(begun)
	t.Logf("ended with %d in %v", code, took.Round(time.Millisecond))
	if took < grace {
		t.Errorf("the download had %v of a grace of %v", took, grace)
	}
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("a download that was cut off looks whole")
	}
}
