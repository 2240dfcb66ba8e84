package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// atOnce is how many tests run at a time, where nobody says otherwise: on two cores the default
// would be two, and most of a test here is waiting for leases, graces and delays to pass.
const atOnce = 8

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue && runtime.GOMAXPROCS(0) < atOnce {
		if err := f.Value.Set(strconv.Itoa(atOnce)); err != nil {
			panic(err)
		}
	}
	crawltest.Main(m)
}

const (
	// ready bounds the start of a program, which may have to be built first while other
	// packages use both cores.
	ready = 4 * time.Minute
	// long bounds what takes seconds on an idle machine.
	long = 2 * time.Minute
	// heal is the time in which a killed worker's leases are back: promise 5.
	heal = 20 * time.Second
)

// The tenants of a deployment. Two, so that one can be kept apart from the other.
const (
	alpha = "alpha"
	beta  = "beta"
)

// deployment is one Trawl: a Redis of its own, the API and any number of workers.
type deployment struct {
	t       *testing.T
	redis   *guardedRedis
	env     []string // of every process
	secrets []string // that no process may write
	keys    map[string]string
	procs   []*crawltest.Proc
	api     *crawltest.Proc
	url     string
	http    *http.Client
}

// worker is a worker process.
type worker struct {
	*crawltest.Proc
	d      *deployment
	health string
}

// deploy starts Redis, the API and workers, which may reach this machine and wait
// for no host; settings of the form NAME=value come on top and win. When the test ends,
// what every process wrote is checked: see [deployment.checkLogs].
func deploy(t *testing.T, workers int, settings ...string) *deployment {
	t.Helper()
	return deployOn(t, guard(t), workers, settings...)
}

// deployOn is deploy on a Redis that is there.
func deployOn(t *testing.T, redis *guardedRedis, workers int, settings ...string) *deployment {
	t.Helper()
	d := &deployment{t: t, keys: map[string]string{}, secrets: redis.secrets(), redis: redis}
	t.Cleanup(d.checkLogs) // runs when the processes have ended: they are started later
	var keys []string
	for _, tenant := range []string{alpha, beta} {
		key := crawltest.Random() + crawltest.Random()
		d.keys[tenant] = key
		d.secrets = append(d.secrets, key)
		keys = append(keys, tenant+":"+key)
	}
	d.env = append([]string{
		"TRAWL_API_KEYS=" + strings.Join(keys, ","),
		"TRAWL_LISTEN=127.0.0.1:0", "TRAWL_WORKER_LISTEN=127.0.0.1:0",
		"TRAWL_ALLOWED_SOURCES=*", "TRAWL_PRIVATE_HOSTS=127.0.0.1",
		"TRAWL_HOST_DELAY=0s", "TRAWL_HOST_CONCURRENCY=64",
	}, settings...)

	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	d.http = &http.Client{Transport: transport, Timeout: 30 * time.Second}
	d.api = d.run("example.com/trawl/api")
	d.url = "http://" + d.api.WaitFor(ready, `"msg":"listening".*"addr":"([^"]+)"`)[1]
	for range workers {
		d.startWorker()
	}
	return d
}

// run starts a program, which is in Redis the user that is made for it.
func (d *deployment) run(pkg string, settings ...string) *crawltest.Proc {
	d.t.Helper()
	env := append(d.redis.settings("trawl-"+path.Base(pkg)), d.env...)
	p := crawltest.Run(d.t, pkg, append(env, settings...))
	d.procs = append(d.procs, p)
	return p
}

// startWorker starts one more worker, with settings of its own on top.
func (d *deployment) startWorker(settings ...string) *worker {
	d.t.Helper()
	w := &worker{Proc: d.run("example.com/trawl/worker", settings...), d: d}
	w.health = w.WaitFor(ready, `"msg":"worker started".*"health":"([^"]+)"`)[1]
	return w
}

// metric reads one metric of a worker that has no labels.
func (w *worker) metric(name string) float64 {
	w.d.t.Helper()
	res, body := w.d.exchange(http.MethodGet, "http://"+w.health+"/metrics", nil, "")
	if res.StatusCode != http.StatusOK {
		w.d.t.Fatalf("metrics: %d", res.StatusCode)
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				w.d.t.Fatalf("metric %s: %v", name, err)
			}
			return f
		}
	}
	w.d.t.Fatalf("there is no metric %s", name)
	return 0
}

// checkLogs holds every line that a process wrote to what the log promises: one JSON
// object, with no control character and no secret in it (SEC-07).
func (d *deployment) checkLogs() {
	for _, p := range d.procs {
		out := p.Output()
		if i := strings.LastIndexByte(out, '\n'); i < 0 {
			d.t.Errorf("process %d wrote no line", p.PID())
		} else {
			out = out[:i+1] // the rest is what a killed process had no time to finish
		}
		lines := bufio.NewScanner(strings.NewReader(out))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var entry map[string]any
			if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
				d.t.Errorf("SEC-07: a line of the log is no JSON object (%v): %.500q", err, lines.Text())
				return // what follows is most likely the rest of a panic
			}
			if strings.ContainsFunc(lines.Text(), breaksLines) {
				d.t.Errorf("SEC-07: a control character is in the log: %q", lines.Text())
			}
		}
		if err := lines.Err(); err != nil {
			d.t.Error(err)
		}
		for _, secret := range d.secrets {
			if strings.Contains(out, secret) {
				d.t.Errorf("a secret of this test is in the log of process %d", p.PID())
			}
		}
	}
}

// breaksLines reports whether a terminal or a reader of lines takes r for more than a
// character: the C0 and C1 controls, DEL, and the separators of lines and paragraphs.
func breaksLines(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }

// logged returns every entry with the given message that the process has written.
func logged(t *testing.T, p *crawltest.Proc, msg string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(p.Output()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == msg { // checkLogs names what is no JSON
			found = append(found, entry)
		}
	}
	return found
}

// exchange makes a request and reads its answer. It ends the test when there is none, so
// only the test's own goroutine may call it; others have [deployment.try].
func (d *deployment) exchange(method, url string, header http.Header, body string) (*http.Response, []byte) {
	d.t.Helper()
	res, got, err := d.try(d.t.Context(), method, url, header, body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res, got
}

func (d *deployment) try(
	ctx context.Context, method, url string, header http.Header, body string,
) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := d.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return res, got, err
}

// as returns the header of a tenant's request, with more names and values.
func (d *deployment) as(tenant string, more ...string) http.Header {
	h := http.Header{"Authorization": {"Bearer " + d.keys[tenant]}, "Content-Type": {"application/json"}}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

// fields is a submission, or a problem.
type fields = map[string]any

// post submits a job and returns whatever is answered.
func (d *deployment) post(tenant string, spec fields, more ...string) (*http.Response, []byte) {
	d.t.Helper()
	body, err := json.Marshal(spec)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.exchange(http.MethodPost, d.url+"/v1/jobs", d.as(tenant, more...), string(body))
}

// submit submits a job that must be accepted.
func (d *deployment) submit(tenant string, spec fields) crawl.Job {
	d.t.Helper()
	res, body := d.post(tenant, spec)
	if res.StatusCode != http.StatusAccepted {
		d.t.Fatalf("submission answered %d: %s", res.StatusCode, body)
	}
	j := decode[crawl.Job](d.t, body)
	if res.Header.Get("Location") != "/v1/jobs/"+j.ID {
		d.t.Errorf("Location is %q, the job %q", res.Header.Get("Location"), j.ID)
	}
	return j
}

func decode[T any](t *testing.T, body []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v: %.500s", err, body)
	}
	return v
}

// problem decodes a problem document and checks its status and code.
func problem(t *testing.T, res *http.Response, body []byte, status int, code crawl.Code) fields {
	t.Helper()
	p := fields{}
	if err := json.Unmarshal(body, &p); err != nil || res.StatusCode != status || p["code"] != string(code) ||
		res.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("answered %d %s: %.500s, want the problem %d %s",
			res.StatusCode, res.Header.Get("Content-Type"), body, status, code)
	}
	return p
}

// get reads something of a job.
func (d *deployment) get(tenant, id, what string) (*http.Response, []byte) {
	d.t.Helper()
	return d.exchange(http.MethodGet, d.url+"/v1/jobs/"+id+what, d.as(tenant), "")
}

func (d *deployment) status(tenant, id string) crawl.Job {
	d.t.Helper()
	res, body := d.get(tenant, id, "")
	if res.StatusCode != http.StatusOK {
		d.t.Fatalf("status answered %d: %s", res.StatusCode, body)
	}
	return decode[crawl.Job](d.t, body)
}

// cancel cancels a job and returns the state that the call answered.
func (d *deployment) cancel(tenant, id string) crawl.Job {
	d.t.Helper()
	res, body := d.exchange(http.MethodPost, d.url+"/v1/jobs/"+id+"/cancel", d.as(tenant), "")
	if res.StatusCode != http.StatusOK {
		d.t.Fatalf("cancel answered %d: %s", res.StatusCode, body)
	}
	return decode[crawl.Job](d.t, body)
}

// list reads a list of an ended job to its end.
func list[T any](d *deployment, tenant, id, what string) []T {
	d.t.Helper()
	var all []T
	for cursor := ""; ; {
		res, body := d.get(tenant, id, what+"?limit=1000&cursor="+cursor)
		if res.StatusCode != http.StatusOK {
			d.t.Fatalf("%s answered %d: %s", what, res.StatusCode, body)
		}
		page := decode[struct {
			Items []T     `json:"items"`
			Next  *string `json:"next_cursor"`
			More  bool    `json:"has_more"`
		}](d.t, body)
		all = append(all, page.Items...)
		if !page.More {
			return all
		}
		cursor = *page.Next
	}
}

func (d *deployment) records(tenant, id string) []crawl.Page {
	d.t.Helper()
	return list[crawl.Page](d, tenant, id, "/records")
}

func (d *deployment) failures(tenant, id string) []crawl.Failure {
	d.t.Helper()
	return list[crawl.Failure](d, tenant, id, "/errors")
}

// recordedOnce checks that the job recorded each of the URLs once, and no other.
func (d *deployment) recordedOnce(tenant, id string, want []string) []crawl.Page {
	d.t.Helper()
	records := d.records(tenant, id)
	var got []string
	for i, p := range records {
		if p.Seq != int64(i)+1 {
			d.t.Fatalf("record %d has the number %d", i+1, p.Seq)
		}
		got = append(got, p.URL)
	}
	sameURLs(d.t, "recorded", got, want)
	return records
}

// sameURLs compares two sets of URLs; one that got holds twice is a difference.
func sameURLs(t *testing.T, what string, got, want []string) {
	t.Helper()
	count := map[string]int{}
	for _, u := range got {
		count[u]++
	}
	for _, u := range want {
		count[u]--
	}
	var odd []string
	for u, n := range count {
		if n != 0 {
			odd = append(odd, fmt.Sprintf("%+d %s", n, u))
		}
	}
	if slices.Sort(odd); len(odd) > 0 {
		t.Errorf("%s: %d URLs, want %d; too many (+) or missing (-): %d: %s", what, len(got), len(want), len(odd),
			strings.Join(odd[:min(len(odd), 20)], ", "))
	}
}

// watch reads a job's status every 50 ms from its submission to its end, and three
// times more, and holds every read to promises 1 and 7.
type watch struct {
	d      *deployment
	tenant string
	job    string
	outage bool // 503 is an answer, too

	stop  context.CancelFunc
	ended chan struct{} // closed when the watch is over: the job has ended, or what is wrong is reported
	last  crawl.Job     // what was read last; only when ended is closed
	reads int
	gap   time.Duration // the longest time without a page processed
}

// watch begins to watch a job. The test fails when a read breaks a promise.
func (d *deployment) watch(tenant, job string) *watch {
	return d.startWatch(&watch{tenant: tenant, job: job})
}

func (d *deployment) startWatch(w *watch) *watch {
	d.t.Helper()
	w.d, w.ended = d, make(chan struct{})
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.WithoutCancel(d.t.Context()))
	go func() {
		defer close(w.ended)
		if err := w.run(ctx); err != nil && ctx.Err() == nil {
			d.t.Errorf("job %s, read %d: %v", w.job, w.reads, err)
		}
	}()
	d.t.Cleanup(func() { w.stop(); <-w.ended })
	return w
}

func (w *watch) run(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var final []byte
	grew := time.Now()
	for more := 3; more > 0; {
		res, body, err := w.d.try(ctx, http.MethodGet, w.d.url+"/v1/jobs/"+w.job, w.d.as(w.tenant), "")
		if err != nil {
			return err
		}
		w.reads++
		if res.StatusCode != http.StatusServiceUnavailable || !w.outage {
			if res.StatusCode != http.StatusOK {
				return fmt.Errorf("status answered %d: %s", res.StatusCode, body)
			}
			var j crawl.Job
			if err := json.Unmarshal(body, &j); err != nil {
				return err
			}
			if err := follows(&w.last, &j); err != nil {
				return err
			}
			if final != nil && !bytes.Equal(final, body) {
				return fmt.Errorf("the record of an ended job has changed:\n%s\n%s", final, body)
			}
			if j.Processed > w.last.Processed || j.State.Terminal() {
				w.gap, grew = max(w.gap, time.Since(grew)), time.Now()
			}
			if w.last = j; j.State.Terminal() {
				final = body
				more--
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// follows checks one read of a job and that it can follow the one before.
func follows(before, j *crawl.Job) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if j.Total != j.Queued+j.Active+j.Deferred+j.Accepted+j.Failed+j.Skipped+j.Cancelled ||
		j.Processed != j.Accepted+j.Failed+j.Skipped {
		wrong("the counts do not add up: %+v", *j)
	}
	if j.Accepted < before.Accepted || j.Failed < before.Failed || j.Skipped < before.Skipped ||
		j.Cancelled < before.Cancelled || j.Total < before.Total || j.Records < before.Records {
		wrong("a count has decreased: %+v after %+v", *j, *before)
	}
	var skipped, failed int64
	for _, n := range j.SkippedByReason {
		skipped += n
	}
	for _, n := range j.FailedByType {
		failed += n
	}
	if skipped != j.Skipped || failed != j.Failed || j.Records != j.Accepted {
		wrong("the parts do not make the whole: %+v", *j)
	}
	if j.State.Terminal() {
		if j.StopReason == "" || j.Queued+j.Active+j.Deferred > 0 || j.EndedAt.IsZero() ||
			j.EndedAt.Before(j.CreatedAt) {
			wrong("the job has ended, but not wholly: %+v", *j)
		}
		if j.Cancelled == 0 && j.Processed != j.Total {
			wrong("the job has ended with pages that it never tried: %+v", *j)
		}
		if !j.StartedAt.IsZero() && (j.StartedAt.Before(j.CreatedAt) || j.EndedAt.Before(j.StartedAt)) {
			wrong("JOB-23: created %v, started %v, ended %v", j.CreatedAt, j.StartedAt, j.EndedAt)
		}
	}
	return errors.Join(errs...)
}

// end waits for the end of the job and returns its record.
func (w *watch) end(within time.Duration) crawl.Job {
	w.d.t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-w.ended:
	case <-timer.C:
		w.stop()
		<-w.ended
		w.d.t.Fatalf("after %v job %s has not ended: %+v", within, w.job, w.last)
	}
	if !w.last.State.Terminal() {
		w.d.t.FailNow() // run has said why
	}
	return w.last
}

// processed waits until so many pages of the job are processed.
func (d *deployment) processed(tenant, job string, n int64) crawl.Job {
	d.t.Helper()
	var j crawl.Job
	crawltest.Eventually(d.t, long, fmt.Sprintf("%d pages processed", n), func() bool {
		j = d.status(tenant, job)
		if j.State.Terminal() && j.Processed < n {
			d.t.Fatalf("the job has ended too early: %+v", j)
		}
		return j.Processed >= n
	})
	return j
}
