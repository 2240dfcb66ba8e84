package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/goccy/go-yaml"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// runbookFile is what an operator reads when something is wrong.
const runbookFile = "../RUNBOOK.md"

// alertsFile has the alerts that lead to it.
const alertsFile = "../prometheus/rules/trawl.yml"

// anchors are the parts of the runbook. Alerts, dashboards and other documents lead to them.
var anchors = []string{
	"stuck-job", "full-redis", "redis-down", "redis-slow", "redis-cluster", "sentinel", "a-host-that-bans-us", "poison-page", "lost-worker",
	"no-workers", "key-rotation", "backup-and-restore", "upgrade", "queue-paused", "queue-backlog", "api-errors",
	"webhooks-failing", "down", "log-level",
}

// runbook is the shell of the runbook, by anchor.
type runbook struct {
	blocks map[string][]string
	text   map[string]string // all that a part says

	mu  sync.Mutex
	ran map[string]bool // "anchor n"
}

// readRunbook reads the file and checks its headings.
func readRunbook(t *testing.T) *runbook {
	t.Helper()
	text, err := os.ReadFile(runbookFile)
	if err != nil {
		t.Fatal(err)
	}
	b := &runbook{blocks: map[string][]string{}, text: map[string]string{}, ran: map[string]bool{}}
	var found []string
	at, inside := "", false
	for line := range strings.Lines(string(text)) {
		b.text[at] += line
		line = strings.TrimSuffix(line, "\n")
		heading, isHeading := strings.CutPrefix(line, "## ")
		switch {
		case inside && line == "```":
			inside = false
		case inside:
			last := len(b.blocks[at]) - 1
			b.blocks[at][last] += line + "\n"
		case line == "```sh":
			inside = true
			b.blocks[at] = append(b.blocks[at], "")
		case isHeading:
			at = anchor(heading)
			found = append(found, at)
		}
	}
	if !slices.Equal(found, anchors) {
		t.Fatalf("the runbook has the parts %q, want %q", found, anchors)
	}
	return b
}

// anchor is what a heading's link is on GitHub.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// operator does with a deployment what the runbook says.
type operator struct {
	t    *testing.T
	d    *deployment
	book *runbook
	env  []string
}

// operator stands at the shell of a deployment whose API has [adminKey]; w may be nil.
func (b *runbook) operator(d *deployment, w *worker) *operator {
	d.t.Helper()
	d.secrets = append(d.secrets, adminKey)
	o := &operator{t: d.t, d: d, book: b, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + d.t.TempDir(),
		"API=" + d.url, "TENANT=" + alpha, "JSON=Content-Type: application/json",
		"ADMIN=Authorization: Bearer " + adminKey, "KEY=Authorization: Bearer " + d.keys[alpha],
	}}
	o.env = append(o.env, redisEnv(d.redis, d.redis.Server)...)
	if w != nil {
		o.env = append(o.env, "WORKER=http://"+w.health)
	}
	return o
}

// redisEnv is how the runbook calls redis-cli, for all of a Redis or for one server of it.
func redisEnv(r *guardedRedis, server *crawltest.Server) []string {
	host, port, _ := net.SplitHostPort(server.Addr)
	follow := ""
	if len(server.Nodes()) > 1 {
		follow = " -c" // to the master that has the key
	}
	return []string{
		"REDIS=redis-cli -e -h " + host + " -p " + port + follow + " --user " + operatorUser,
		"REDISCLI_AUTH=" + r.passwords[operatorUser],
	}
}

// do runs a block of the runbook, the first of its part being 1, with more variables, and returns
// what it wrote.
func (o *operator) do(part string, n int, env ...string) string {
	o.t.Helper()
	return o.doThen(part, n, "", env...)
}

// onEach is do for a block that is about the server and not about a key: a Cluster has several.
func (o *operator) onEach(part string, n int, env ...string) string {
	o.t.Helper()
	var out strings.Builder
	for _, server := range o.d.redis.Nodes() {
		out.WriteString(o.do(part, n, append(redisEnv(o.d.redis, server), env...)...))
	}
	return out.String()
}

// doThen is do with more shell behind the block.
func (o *operator) doThen(part string, n int, then string, env ...string) string {
	o.t.Helper()
	if n > len(o.book.blocks[part]) {
		o.t.Fatalf("%s has %d blocks of shell, want a block %d", part, len(o.book.blocks[part]), n)
	}
	ctx, cancel := context.WithTimeout(o.t.Context(), long)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "--norc", "-euo", "pipefail", "-c", o.book.blocks[part][n-1]+then)
	cmd.Env = append(slices.Clone(o.env), env...)
	cmd.Dir = o.t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.t.Fatalf("block %d of %s: %v\n%s", n, part, err, out)
	}
	o.book.mu.Lock()
	defer o.book.mu.Unlock()
	o.book.ran[part+" "+strconv.Itoa(n)] = true
	return string(out)
}

// says fails the test unless what a block wrote has all of the words.
func (o *operator) says(out string, words ...string) {
	o.t.Helper()
	for _, w := range words {
		if !strings.Contains(out, w) {
			o.t.Errorf("a block of the runbook lacks %q: %s", w, out)
		}
	}
}

// Who is woken by an alert finds its name in the part that it leads to; and no part names an alert
// that is none.
func TestRunbookNamesAlerts(t *testing.T) {
	t.Parallel()
	b := readRunbook(t)
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	alerts := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			alerts[r.Alert] = true
			_, part, _ := strings.Cut(r.Annotations["runbook"], "#")
			if !strings.Contains(b.text[part], "`"+r.Alert+"`") {
				t.Errorf("%s leads to the part %q, which does not name it", r.Alert, part)
			}
		}
	}
	if len(alerts) < 20 {
		t.Errorf("%s has the alerts %v", alertsFile, alerts)
	}
	for part, text := range b.text {
		for _, name := range regexp.MustCompile("`(Trawl[A-Z][A-Za-z]*)`").FindAllStringSubmatch(text, -1) {
			if !alerts[name[1]] {
				t.Errorf("%s names %s, which is no alert", part, name[1])
			}
		}
	}
}

// TestRunbook: what deployments/RUNBOOK.md says, done: each block of its shell runs in one of these,
// and what it is for comes about. What else its parts promise, others test: a killed worker
// [TestKilledWorkers], a rolling restart [TestDeploys], a Redis that is away [TestRedisOutage] or comes back
// empty [TestRedisEmptied], a receiver that is down [TestWebhookOutlivesReceiversAndWorkers].
func TestRunbook(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"redis-cli", "redis-check-rdb", "curl", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("TRAWL_REQUIRE_REDIS") == "1" {
				t.Fatalf("TRAWL_REQUIRE_REDIS=1, but the runbook needs %s: %v", program, err)
			}
			t.Skipf("the runbook needs %s; TRAWL_REQUIRE_REDIS=1 makes this a failure", program)
		}
	}
	b := readRunbook(t)
	all := map[string]func(*testing.T, *runbook){
		"looking": looking, "ban": ban, "stuck": stuckJob, "full": fullRedis, "poison": poisonPage, "keys": rotatedKeys,
		"disk": fullDisk, "passwords": rotatedPasswords, "gateway": rotatedGateway, "webhooks": rotatedWebhooks, "backup": backups,
	}
	var begun atomic.Int64
	t.Cleanup(func() { // runs when all of them have ended
		if t.Failed() || onCluster || int(begun.Load()) < len(all) {
			return // not all have run: some are single
		}
		for part, blocks := range b.blocks {
			for n := range blocks {
				if !b.ran[part+" "+strconv.Itoa(n+1)] {
					t.Errorf("no test runs block %d of %s", n+1, part)
				}
			}
		}
	})
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun.Add(1)
			test(t, b)
		})
	}
}

// looking runs what only looks, and what ends a pause and a line at the gate.
func looking(t *testing.T, b *runbook) {
	d := deploy(t, 0, "TRAWL_ADMIN_KEY="+adminKey)
	w := d.startWorker()
	o := b.operator(d, w)
	site := slowSite(t, 100*time.Millisecond)
	job := d.submit(alpha, fields{"urls": numbered(site, 3)}).ID
	d.watch(alpha, job).end(long)
	o.says(o.onEach("redis-down", 1), "PONG", "aof_last_write_status:ok", `"ready"`)
	o.says(o.onEach("redis-slow", 1), "evalsha", "main_thread", "name=trawl")
	o.says(o.do("lost-worker", 1), "trawl_dead_slices_total 0", "trawl_sweeps_total", `"ready"`)
	crawltest.Eventually(t, long, "the worker counted", func() bool {
		return strings.HasPrefix(o.do("no-workers", 1), "1\n")
	})
	o.says(o.do("no-workers", 1), `"workers":1`)
	o.says(o.do("api-errors", 1), `trawl_submissions_total{`, `"ready"`)
	o.says(o.do("webhooks-failing", 1, "JOB="+job), `"items":[]`)
	o.says(o.do("down", 1), `"ok"`, `"ready"`)
	o.says(o.do("upgrade", 1), "trawl_build_info{")
	o.says(o.do("log-level", 1), "debug")
	o.says(o.do("log-level", 2), "info")

	// As the monitor and asynq's tools pause it.
	if err := d.redis.Client.SetNX(t.Context(), "asynq:{crawl}:paused", time.Now().Unix(), 0).Err(); err != nil {
		t.Fatal(err)
	}
	paused := d.submit(alpha, fields{"urls": numbered(site, 3)}).ID
	if j := d.status(alpha, paused); j.State != crawl.Queued {
		t.Errorf("with the queue paused the job is %+v", j)
	}
	o.says(o.do("queue-paused", 1), "1\n1\n")
	if j := d.watch(alpha, paused).end(long); j.State != crawl.Completed {
		t.Errorf("after the pause the job ends as %+v", j)
	}

	admin := http.Header{"Authorization": {"Bearer " + adminKey}, "Content-Type": {"application/json"}}
	// A tenant of TRAWL_API_KEYS has no record until the block makes one.
	for range 2 { // made, and then there
		o.says(o.do("queue-backlog", 2, "TENANT="+beta), `"name":"beta"`, `"max_running":20`, `"effective":`, `"max_running":10`)
	}
	d.cancel(beta, d.submit(beta, fields{"urls": numbered(site, 3)}).ID) // its key is still one
	narrow := `{"name":"alpha","quota":{"max_running":1}}`
	res, body := d.exchange(http.MethodPost, d.url+"/v1/admin/tenants", admin, narrow)
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("the tenant is not made: %d %s", res.StatusCode, body)
	}
	spec := fields{"urls": numbered(site, 300), "concurrency": 1}
	first, second := d.submit(alpha, spec).ID, d.submit(alpha, spec).ID
	if j := d.status(alpha, second); j.WaitingFor != crawl.WaitingTenantQuota || j.Position != 1 {
		t.Errorf("the second job is %+v", j)
	}
	o.says(o.do("queue-backlog", 1), "alpha: 1 running, 1 waiting")
	o.do("queue-backlog", 2)
	d.processed(alpha, second, 1) // beside the first, which takes half a minute
	for _, id := range []string{first, second} {
		if j := d.cancel(alpha, id); j.State != crawl.Cancelled {
			t.Errorf("ended as %+v", j)
		}
	}
}

// ban meets a host that refuses us, has it left alone, and ends the job.
func ban(t *testing.T, b *runbook) {
	const pages = 40
	d := deploy(t, 1, "TRAWL_ADMIN_KEY="+adminKey)
	o := b.operator(d, nil)
	shut := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/robots.txt" {
			http.Error(w, "go away", http.StatusForbidden)
		}
	}))
	job := d.submit(alpha, fields{"urls": numbered(shut, pages)}).ID
	d.watch(alpha, job).end(long)
	o.says(o.do("a-host-that-bans-us", 1, "JOB="+job), `"http_403":40`, `40 "url":"`+shut.URL)

	site, other := slowSite(t, 50*time.Millisecond), slowSite(t, 0)
	urls := append(numbered(site, 500), numbered(other, 20)...)
	job = d.submit(alpha, fields{"urls": urls, "concurrency": 4}).ID
	w := d.watch(alpha, job)
	d.processed(alpha, job, 10)
	host := strings.TrimPrefix(site.URL, "http://")
	o.do("a-host-that-bans-us", 2, "HOST="+host)
	crawltest.Eventually(t, long, "the job to leave its host alone", func() bool {
		j := d.status(alpha, job)
		return j.WaitingFor == crawl.WaitingHostDelay && j.Active == 0 && j.Queued == 0
	})
	asked := len(site.Requests())
	if n := other.Hits("/20"); n != 1 {
		t.Errorf("the other host's last page was asked for %d times, want once", n)
	}
	next := d.submit(alpha, fields{"urls": []string{site.URL + "/another"}}).ID
	crawltest.Eventually(t, long, "another job to leave the host alone", func() bool {
		return d.status(alpha, next).WaitingFor == crawl.WaitingHostDelay
	})
	if n := len(site.Requests()); n != asked {
		t.Errorf("the host was asked %d times while it was to be left alone", n-asked)
	}
	o.do("a-host-that-bans-us", 3, "JOB="+job, "HOST="+host)
	d.processed(alpha, job, d.status(alpha, job).Processed+10)
	o.do("a-host-that-bans-us", 2, "HOST="+host)
	o.says(o.do("a-host-that-bans-us", 4, "JOB="+job), `"cancelled"`)
	if j := w.end(long); j.State != crawl.Cancelled || j.Accepted < 30 {
		t.Errorf("ended as %+v", j)
	}
}

// stuckJob takes a job's task out of the queue before any worker has seen it.
func stuckJob(t *testing.T, b *runbook) {
	d := deploy(t, 0, "TRAWL_ADMIN_KEY="+adminKey)
	o := b.operator(d, nil)
	site := slowSite(t, 50*time.Millisecond)
	job := d.submit(alpha, fields{"urls": numbered(site, 5)}).ID
	if n := d.redis.Client.LRem(t.Context(), "asynq:{crawl}:pending", 0, job).Val(); n != 1 {
		t.Fatalf("%d tasks of the job were in the queue, want 1", n)
	}
	if n := d.redis.Client.Del(t.Context(), "asynq:{crawl}:t:"+job).Val(); n != 1 {
		t.Fatal("the job's task is not to be found")
	}
	o.says(o.do("stuck-job", 1, "JOB="+job), `"waiting_for":"worker"`)
	w := d.watch(alpha, job)
	one := d.startWorker()
	begun := time.Now()
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != 5 {
		t.Errorf("without its task the job ends as %+v", j)
	}
	if took := time.Since(begun); took > heal+time.Second {
		t.Errorf("the job was rung again after %v, want %v at most", took, heal)
	}
	// What hurries a sweep hurts no job that runs.
	job = d.submit(alpha, fields{"urls": numbered(site, 100), "concurrency": 4}).ID
	w = d.watch(alpha, job)
	for _, at := range []int64{1, 20, 50} {
		d.processed(alpha, job, at)
		o.do("stuck-job", 1, "JOB="+job)
		o.do("stuck-job", 2, "JOB="+job)
	}
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != 100 {
		t.Errorf("a job that was looked at ends as %+v", j)
	}
	for _, p := range d.recordedOnce(alpha, job, numbered(site, 100)) {
		if p.Attempts != 1 {
			t.Errorf("%s has %d attempts", p.URL, p.Attempts)
		}
	}
	changedByHand(o, one)
}

// changedByHand has a tenant, the only one, whose keys somebody changed, and mends them.
func changedByHand(o *operator, w *worker) {
	o.t.Helper()
	o.says(o.do("stuck-job", 3), "jobs: zset", "due: zset", "running: none")
	if err := o.d.redis.Client.Set(o.t.Context(), "{t:"+alpha+"}:due", "x", 0).Err(); err != nil {
		o.t.Fatal(err)
	}
	o.says(o.do("stuck-job", 3), "jobs: zset", "due: string")
	readyz := func(status int, word string) func() bool {
		return func() bool {
			res, body := o.d.exchange(http.MethodGet, "http://"+w.health+"/readyz", nil, "")
			return res.StatusCode == status && strings.Contains(string(body), word)
		}
	}
	crawltest.Eventually(o.t, long, "the worker to say that no sweep goes through", readyz(http.StatusServiceUnavailable, "sweep"))
	found := logged(o.t, w.Proc, "sweep failed")
	if len(found) == 0 || !strings.Contains(fmt.Sprint(found[0]), "WRONGTYPE") ||
		!strings.Contains(fmt.Sprint(found[0]), "tenant "+alpha) {
		o.t.Errorf("the log says %v", found)
	}
	if w.metric(`trawl_sweeps_total{result="error"}`) == 0 {
		o.t.Error("a sweep that failed is not counted")
	}
	o.do("stuck-job", 4)
	crawltest.Eventually(o.t, long, "the worker to be ready", readyz(http.StatusOK, "ready"))
	next := o.d.submit(alpha, fields{"urls": []string{"http://127.0.0.1:1/"}}).ID
	if j := o.d.watch(alpha, next).end(long); j.Processed != 1 {
		o.t.Errorf("after it a job ends as %+v", j)
	}
}

// fullDisk has a Redis that cannot write its snapshot, until there is room for it.
func fullDisk(t *testing.T, b *runbook) {
	single(t, "a master that cannot write its files is, to its tenants, what one server is to all")
	dir := t.TempDir()
	r := guard(t, "--dir", dir, "--appendonly", "yes")
	d := deployOn(t, r, 0, "TRAWL_ADMIN_KEY="+adminKey)
	o := b.operator(d, nil)
	inTheWay := filepath.Join(dir, "dump.rdb", "x") // what no snapshot can replace
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.Client.ConfigSet(t.Context(), "save", "3600 1").Err(); err != nil {
		t.Fatal(err)
	}
	defer r.Client.ConfigSet(context.WithoutCancel(t.Context()), "save", "") // or it would refuse to stop
	_ = r.Client.BgSave(t.Context()).Err()
	spec := fields{"urls": []string{"http://127.0.0.1:1/"}}
	crawltest.Eventually(t, long, "a submission that is refused", func() bool {
		res, body := d.post(alpha, spec)
		if res.StatusCode == http.StatusAccepted {
			return false
		}
		problem(t, res, body, http.StatusServiceUnavailable, crawl.CodeUnavailable)
		return true
	})
	_, metrics := d.exchange(http.MethodGet, d.url+"/metrics", nil, "")
	if !strings.Contains(string(metrics), "\ntrawl_redis_persistence_ok{") ||
		strings.Contains(string(metrics), `trawl_redis_persistence_ok{node="`+r.Addr+`"} 1`) {
		t.Error("the metrics do not say that Redis cannot write")
	}
	if err := os.RemoveAll(filepath.Dir(inTheWay)); err != nil {
		t.Fatal(err)
	}
	o.says(o.do("redis-down", 2), "rdb_last_bgsave_status:ok", "aof_last_bgrewrite_status:ok", "aof_last_write_status:ok")
	if res, body := d.post(alpha, spec); res.StatusCode != http.StatusAccepted {
		t.Errorf("a submission is answered %d %s", res.StatusCode, body)
	}
}

// noise is a page that hardly compresses, and is the same each time.
func noise(w http.ResponseWriter, r *http.Request) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.URL.Path)) // a hash takes all
	random := rand.New(rand.NewPCG(h.Sum64(), 1))
	raw := make([]byte, 12<<10)
	for i := range raw {
		raw[i] = byte(random.Uint32())
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, "<title>x</title><p>%s", base64.StdEncoding.EncodeToString(raw)) // the client may be gone
}

// fullRedis fills a Redis while a job runs, and gives it room in both ways.
func fullRedis(t *testing.T, b *runbook) {
	const kept = 500
	d := deploy(t, 1, "TRAWL_ADMIN_KEY="+adminKey, "TRAWL_MAX_RUNNING=1")
	o := b.operator(d, nil)
	loud := crawltest.NewHandlerSite(t, http.HandlerFunc(noise))
	d.watch(alpha, d.submit(alpha, fields{"urls": numbered(loud, kept), "formats": []string{"text"}}).ID).end(long)
	site := slowSite(t, 100*time.Millisecond)
	running := d.submit(alpha, fields{"urls": numbered(site, 800), "concurrency": 4}).ID
	w := d.watch(alpha, running)
	d.processed(alpha, running, 1)

	fill := func() {
		t.Helper()
		has := d.redis.Of("{t:" + alpha + "}") // of a Cluster: the master that has the tenant
		used := memoryUsed(t, has)
		limit := strconv.FormatInt(used+used/50, 10)
		if err := has.Client.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
		spec := fields{"urls": numbered(site, 3000)}
		crawltest.Eventually(t, long, "a submission that finds no room", func() bool {
			res, body := d.post(alpha, spec)
			if res.StatusCode == http.StatusAccepted {
				return false
			}
			problem(t, res, body, http.StatusServiceUnavailable, crawl.CodeOverloaded)
			if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || s < 1 {
				t.Errorf("Retry-After is %q", res.Header.Get("Retry-After"))
			}
			return true
		})
		res, body := d.exchange(http.MethodGet, d.url+"/readyz", nil, "")
		if onCluster {
			return // two masters have room yet, and their tenants are served
		}
		if res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "memory") {
			t.Errorf("with a full Redis the API says %d %s", res.StatusCode, body)
		}
	}
	again := func(how string) {
		t.Helper()
		crawltest.Eventually(t, long, how+": the API to be ready", func() bool {
			res, _ := d.exchange(http.MethodGet, d.url+"/readyz", nil, "")
			return res.StatusCode == http.StatusOK
		})
		if j := d.status(alpha, running); j.State.Terminal() {
			t.Errorf("%s: the job has ended already: %+v", how, j)
		} else {
			d.processed(alpha, running, j.Processed+5)
		}
	}
	for range 101 { // more than a page of the list, and another state
		d.cancel(alpha, d.submit(alpha, fields{"urls": numbered(site, 1)}).ID)
	}
	fill()
	// The job that runs slows down, or stands still, and goes on again below.
	o.says(o.do("full-redis", 1), "alpha: ", " 1 of them running")
	o.says(o.onEach("full-redis", 1), "maxmemory_policy:noeviction")
	o.do("full-redis", 2)
	for _, state := range []crawl.State{crawl.Completed, crawl.Cancelled} {
		if left := ended(t, d, state); left != 0 {
			t.Errorf("%d jobs that are %s are left", left, state)
		}
	}
	again("ended jobs were deleted")
	fill()
	o.says(o.onEach("full-redis", 3, "MORE=1gb"), "OK")
	again("Redis was given more")
	if res, body := d.post(alpha, fields{"urls": numbered(site, 1)}); res.StatusCode != http.StatusAccepted {
		t.Errorf("a submission is answered %d %s", res.StatusCode, body)
	}
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != 800 {
		t.Errorf("the job that ran meanwhile ends as %+v", j)
	}
	d.recordedOnce(alpha, running, numbered(site, 800))
}

// ended counts the jobs of a state that the first page of the list has.
func ended(t *testing.T, d *deployment, state crawl.State) int {
	t.Helper()
	res, body := d.exchange(http.MethodGet, d.url+"/v1/jobs?limit=100&state="+string(state), d.as(alpha), "")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("the list is answered %d %s", res.StatusCode, body)
	}
	return len(decode[struct{ Items []crawl.Job }](t, body).Items)
}

// memoryUsed is what Redis says it uses, in bytes.
func memoryUsed(t *testing.T, r *crawltest.Server) int64 {
	t.Helper()
	info, err := r.Client.InfoMap(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	used, err := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return used
}

// poisonPage has a page that kills its worker each time: the job ends without it, as soon as it
// is to blame, and the pages beside it are not.
func poisonPage(t *testing.T, b *runbook) {
	const pages = 12
	var deadly atomic.Bool
	deadly.Store(true)
	swallowed := make(chan struct{}, 100)
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/6" && deadly.Load() {
			swallowed <- struct{}{}
			<-r.Context().Done()
		}
	}))
	d := deploy(t, 0, "TRAWL_ADMIN_KEY="+adminKey)
	o := b.operator(d, nil)
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "concurrency": 2}).ID
	w := d.watch(alpha, job)
	deaths := 0
	for {
		victim := d.startWorker()
		select {
		case <-swallowed:
			// What was in flight beside it is as unlucky: one other page.
			crawltest.Eventually(t, long, "the page to be all that is left in flight", func() bool {
				j := d.status(alpha, job)
				return j.Processed == pages-1 && j.Active == 1
			})
			victim.Kill()
			deaths++
			continue
		case <-w.ended:
		case <-time.After(long):
			t.Fatalf("after %d deaths the job is %+v", deaths, d.status(alpha, job))
		}
		break
	}
	j := w.end(long)
	if j.State != crawl.CompletedWithErrors || j.Accepted != pages-1 || j.Failed != 1 ||
		j.FailedByType[crawl.CodeWorkerLost] != 1 {
		t.Errorf("ended as %+v", j)
	}
	if deaths != 5 {
		t.Errorf("the page killed %d workers, want 5", deaths)
	}
	o.says(o.do("poison-page", 1, "JOB="+job), `"url":"`+site.URL+`/6"`)
	deadly.Store(false)
	next := d.submit(alpha, fields{"urls": []string{site.URL + "/6"}}).ID
	if j := d.watch(alpha, next).end(long); j.State != crawl.Completed {
		t.Errorf("the harmless page ends as %+v", j)
	}
}
