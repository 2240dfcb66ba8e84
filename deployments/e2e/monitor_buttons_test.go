package e2e

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// console is the monitor of a deployment, called as its page calls it.
type console struct {
	d    *deployment
	http *http.Client
	head http.Header
}

// openConsole logs in.
func openConsole(t *testing.T, d *deployment) *console {
	t.Helper()
	d.secrets = append(d.secrets, adminKey)
	c := &console{d: d, http: &http.Client{
		Transport: d.http.Transport, Timeout: d.http.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.head = http.Header{"Origin": {d.url}, "Accept": {"application/json, text/plain, */*"}}
	form := url.Values{"key": {adminKey}}.Encode()
	res, body := c.send(t, http.MethodPost, "/login", form, "application/x-www-form-urlencoded")
	cookies := res.Cookies()
	if res.StatusCode != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("the login answered %d with %v: %s", res.StatusCode, cookies, body)
	}
	d.secrets = append(d.secrets, cookies[0].Value)
	c.head.Set("Cookie", cookies[0].Name+"="+cookies[0].Value)
	return c
}

func (c *console) send(t *testing.T, method, path, body, kind string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.d.url+"/monitor"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = c.head.Clone()
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	res, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, got
}

// ask calls the API of the page and returns what is answered.
func (c *console) ask(t *testing.T, method, path string, body any) (int, fields) {
	t.Helper()
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	res, got := c.send(t, method, "/api/queues"+path, string(text), "application/json")
	answer := fields{}
	if res.Header.Get("Content-Type") == "application/json" {
		answer = decode[fields](t, got)
	} else if len(got) > 0 {
		answer["text"] = string(got)
	}
	return res.StatusCode, answer
}

// press is a button, which must do what it says.
func (c *console) press(t *testing.T, method, path string, body any) fields {
	t.Helper()
	status, answer := c.ask(t, method, path, body)
	if status != http.StatusOK && status != http.StatusNoContent {
		t.Fatalf("%s %s answered %d %v", method, path, status, answer)
	}
	return answer
}

const crawlQueue = "/crawl"

func (c *console) post(t *testing.T, path string) fields {
	t.Helper()
	return c.press(t, http.MethodPost, crawlQueue+path, nil)
}

// tasks returns the ids of the tasks in a state.
func (c *console) tasks(t *testing.T, state string) []string {
	t.Helper()
	answer := c.press(t, http.MethodGet, crawlQueue+"/"+state+"_tasks?page=1&size=100", nil)
	var ids []string
	listed, _ := answer["tasks"].([]any) // null when there is none
	for _, task := range listed {
		ids = append(ids, task.(map[string]any)["id"].(string))
	}
	return ids
}

// task waits for a task in a state and returns its id.
func (c *console) task(t *testing.T, state string) string {
	t.Helper()
	var ids []string
	crawltest.Eventually(t, long, "a task is "+state, func() bool {
		ids = c.tasks(t, state)
		return len(ids) > 0
	})
	return ids[0]
}

// done is a number that a button answered: of tasks.
func done(answer fields, what string) int {
	n, _ := answer[what].(float64)
	return int(n)
}

// retried cancels what is active, presses a button for all that is retried then, and returns when
// that has met a task. A task is retried for a second at most, and the queue is paused meanwhile.
func (c *console) retried(t *testing.T, method, button, answers string) {
	t.Helper()
	crawltest.Eventually(t, long, "a task is retried", func() bool {
		c.task(t, "active")
		c.post(t, ":pause")
		defer c.post(t, ":resume")
		c.post(t, "/active_tasks:cancel_all")
		met := 0
		crawltest.Eventually(t, long, "a task is retried, or waits again", func() bool {
			met = done(c.press(t, method, crawlQueue+"/retry_tasks"+button, nil), answers)
			return met > 0 || len(c.tasks(t, "pending")) > 0
		})
		return met > 0
	})
}

// TestMonitorButtons presses each button of the monitor while a job needs what it takes away. The
// queue is a doorbell: no page is lost or counted twice, every read of the job adds up, and it goes
// on by itself within the time in which a lost worker is healed.
//
//nolint:tparallel // the buttons share the queue
func TestMonitorButtons(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, "TRAWL_ADMIN_KEY="+adminKey, "TRAWL_MONITOR_WRITE=true")
	c := openConsole(t, d)
	site := slowSite(t, 20*time.Millisecond)

	// With the queue paused the ring of a new job waits; press is called then, and then the queue
	// is resumed.
	waits := func(press func(t *testing.T, id string)) func(*testing.T, func() string) string {
		return func(t *testing.T, submit func() string) string {
			t.Helper()
			c.post(t, ":pause")
			job := submit()
			press(t, c.task(t, "pending"))
			c.post(t, ":resume")
			return job
		}
	}
	// While the job is worked on, press is called.
	works := func(press func(t *testing.T, id string)) func(*testing.T, func() string) string {
		return func(t *testing.T, submit func() string) string {
			t.Helper()
			job := submit()
			press(t, c.task(t, "active"))
			return job
		}
	}
	one := func(t *testing.T, id string) []string { t.Helper(); return []string{id} }
	for _, button := range []struct {
		name string
		try  func(t *testing.T, submit func() string) string
	}{
		{"pause and resume", waits(func(*testing.T, string) {})},
		{"delete", waits(func(t *testing.T, id string) {
			c.press(t, http.MethodDelete, crawlQueue+"/pending_tasks/"+id, nil)
		})},
		{"delete all", waits(func(t *testing.T, _ string) {
			c.press(t, http.MethodDelete, crawlQueue+"/pending_tasks:delete_all", nil)
		})},
		{"delete some", waits(func(t *testing.T, id string) {
			c.press(t, http.MethodPost, crawlQueue+"/pending_tasks:batch_delete", fields{"task_ids": one(t, id)})
		})},
		{"archive", waits(func(t *testing.T, id string) { c.post(t, "/pending_tasks/"+id+":archive") })},
		{"archive some", waits(func(t *testing.T, id string) {
			c.press(t, http.MethodPost, crawlQueue+"/pending_tasks:batch_archive", fields{"task_ids": one(t, id)})
		})},
		{"archive all", waits(func(t *testing.T, _ string) { c.post(t, "/pending_tasks:archive_all") })},
		{"archive and run", waits(func(t *testing.T, id string) {
			c.post(t, "/pending_tasks/"+id+":archive")
			c.post(t, "/archived_tasks/"+id+":run")
		})},
		{"archive and run all", waits(func(t *testing.T, _ string) {
			c.post(t, "/pending_tasks:archive_all")
			c.post(t, "/archived_tasks:run_all")
		})},
		{"archive and delete", waits(func(t *testing.T, id string) {
			c.post(t, "/pending_tasks/"+id+":archive")
			c.press(t, http.MethodDelete, crawlQueue+"/archived_tasks/"+id, nil)
		})},
		{"archive and delete all", waits(func(t *testing.T, _ string) {
			c.post(t, "/pending_tasks:archive_all")
			c.press(t, http.MethodDelete, crawlQueue+"/archived_tasks:delete_all", nil)
		})},
		{"delete the queue", waits(func(t *testing.T, _ string) {
			// It can be deleted only while it is empty, and the sweep fills it again.
			crawltest.Eventually(t, long, "the queue is deleted", func() bool {
				c.press(t, http.MethodDelete, crawlQueue+"/pending_tasks:delete_all", nil)
				c.press(t, http.MethodDelete, crawlQueue+"/archived_tasks:delete_all", nil)
				status, _ := c.ask(t, http.MethodDelete, crawlQueue, nil)
				return status == http.StatusNoContent
			})
			crawltest.Eventually(t, heal, "the queue is announced again", func() bool {
				status, _ := c.ask(t, http.MethodGet, crawlQueue, nil)
				return status == http.StatusOK
			})
		})},
		{"cancel", works(func(t *testing.T, id string) { c.post(t, "/active_tasks/"+id+":cancel") })},
		{"cancel some", works(func(t *testing.T, id string) {
			c.press(t, http.MethodPost, crawlQueue+"/active_tasks:batch_cancel", fields{"task_ids": one(t, id)})
		})},
		{"cancel all", works(func(t *testing.T, _ string) { c.post(t, "/active_tasks:cancel_all") })},
		{"cancel and archive all", works(func(t *testing.T, _ string) {
			c.retried(t, http.MethodPost, ":archive_all", "archived")
		})},
		{"cancel and delete all", works(func(t *testing.T, _ string) {
			c.retried(t, http.MethodDelete, ":delete_all", "deleted")
		})},
		{"cancel and run all", works(func(t *testing.T, _ string) {
			c.retried(t, http.MethodPost, ":run_all", "scheduled")
		})},
	} {
		t.Run(button.name, func(t *testing.T) {
			urls := numbered(site, 300)
			var w *watch
			job := button.try(t, func() string {
				job := d.submit(alpha, fields{"urls": urls, "concurrency": 4}).ID
				w = d.watch(alpha, job)
				return job
			})
			pressed, before := time.Now(), d.status(alpha, job).Processed
			crawltest.Eventually(t, heal, "the job goes on", func() bool {
				j := d.status(alpha, job)
				return j.Processed > before || j.State.Terminal()
			})
			went := time.Since(pressed)
			j := w.end(long)
			if j.State != crawl.Completed || j.StopReason != crawl.StopFrontierEmpty || j.Accepted != int64(len(urls)) {
				t.Errorf("the job ended as %+v", j)
			}
			d.recordedOnce(alpha, job, urls)
			t.Logf("went on after %v, %d reads", went, w.reads)
			c.quiet(t)
		})
	}
}

// quiet waits until nothing of an ended job is on its way: rings that are late die out.
func (c *console) quiet(t *testing.T) {
	t.Helper()
	crawltest.Eventually(t, long, "the queue is empty", func() bool {
		stats := c.press(t, http.MethodGet, crawlQueue, nil)["current"].(map[string]any)
		return done(stats, "pending")+done(stats, "active")+done(stats, "retry")+done(stats, "scheduled") == 0
	})
}

// TestMonitorPause: a job of a queue that is paused says what it waits for, and however long that
// takes, no rings pile up.
func TestMonitorPause(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, "TRAWL_ADMIN_KEY="+adminKey, "TRAWL_MONITOR_WRITE=true")
	c := openConsole(t, d)
	c.post(t, ":pause")
	urls := numbered(slowSite(t, time.Millisecond), 20)
	job := d.submit(alpha, fields{"urls": urls}).ID
	w := d.watch(alpha, job)
	if j := d.status(alpha, job); j.State != crawl.Queued || j.WaitingFor != "dispatch" || j.Error == "" {
		t.Errorf("the job is %+v", j)
	}
	crawltest.Eventually(t, long, "the sweep has rung three times", func() bool {
		return len(logged(t, d.procs[1], "ring refused, the sweep rings later")) >= 3
	})
	if ids := c.tasks(t, "pending"); len(ids) != 1 {
		t.Errorf("in the queue are %q", ids)
	}
	c.post(t, ":resume")
	if j := w.end(heal); j.State != crawl.Completed || j.Error != "" || j.WaitingFor != "" {
		t.Errorf("the job ended as %+v", j)
	}
	d.recordedOnce(alpha, job, urls)
	c.quiet(t)
}

// TestMonitorAllButtons presses them as they come, while jobs of two tenants are worked on by
// workers of which one is killed: nothing is lost then either.
func TestMonitorAllButtons(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, "TRAWL_ADMIN_KEY="+adminKey, "TRAWL_MONITOR_WRITE=true")
	c := openConsole(t, d)
	site := slowSite(t, 50*time.Millisecond)
	urls := numbered(site, 600)
	var watches []*watch
	for i := range 4 {
		tenant := []string{alpha, beta}[i%2]
		job := d.submit(tenant, fields{"urls": urls, "concurrency": 4}).ID
		watches = append(watches, d.watch(tenant, job))
	}
	pcg := rand.NewPCG(7, 7)
	random := rand.New(pcg)
	var buttons [][2]string
	for _, state := range []string{"pending", "retry", "archived"} {
		buttons = append(buttons, [2]string{http.MethodDelete, "/" + state + "_tasks:delete_all"})
		if state != "archived" {
			buttons = append(buttons, [2]string{http.MethodPost, "/" + state + "_tasks:archive_all"})
		}
		if state != "pending" {
			buttons = append(buttons, [2]string{http.MethodPost, "/" + state + "_tasks:run_all"})
		}
	}
	buttons = append(buttons, [2]string{http.MethodPost, "/active_tasks:cancel_all"}, [2]string{http.MethodPost, ":pause"},
		[2]string{http.MethodPost, ":resume"}, [2]string{http.MethodDelete, ""})
	for n := range 100 {
		b := buttons[random.IntN(len(buttons))]
		// A second pause is refused, and so is a queue that is not empty; nothing fails.
		if status, answer := c.ask(t, b[0], crawlQueue+b[1], nil); status >= http.StatusInternalServerError {
			t.Errorf("%v answered %d %v", b, status, answer)
		}
		if n == 50 {
			d.procs[1].Kill()
			d.startWorker()
		}
		before := watches[0].d.status(alpha, watches[0].job)
		if n%10 == 9 && !before.State.Terminal() { // some work in between
			c.ask(t, http.MethodPost, crawlQueue+":resume", nil)
			d.processed(alpha, watches[0].job, min(before.Processed+1, before.Total))
		}
	}
	c.ask(t, http.MethodPost, crawlQueue+":resume", nil)
	for _, w := range watches {
		if j := w.end(long); j.State != crawl.Completed || j.Accepted != int64(len(urls)) {
			t.Errorf("a job ended as %+v", j)
		}
		d.recordedOnce(w.tenant, w.job, urls)
	}
	c.quiet(t)
}

// TestMonitorShows: by default the monitor changes nothing, and nobody sees it without the key.
func TestMonitorShows(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, "TRAWL_ADMIN_KEY="+adminKey)
	c := openConsole(t, d)
	job := d.submit(alpha, fields{"urls": numbered(slowSite(t, 100*time.Millisecond), 200), "concurrency": 2})
	w := d.watch(alpha, job.ID)
	active := c.task(t, "active")
	res, body := c.send(t, http.MethodGet, "/api/queues/crawl/tasks/"+active, "", "")
	want := `ring 0 of tenant alpha\nGET /v1/jobs/` + job.ID + `"`
	if res.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
		t.Errorf("the task is shown as %d %s", res.StatusCode, body)
	}
	for _, path := range []string{"/api/servers", "/api/redis_info", "/api/queue_stats", "/api/scheduler_entries"} {
		if res, body := c.send(t, http.MethodGet, path, "", ""); res.StatusCode != http.StatusOK || !json.Valid(body) {
			t.Errorf("%s answered %d %s", path, res.StatusCode, body)
		}
	}
	for _, b := range [][2]string{
		{http.MethodPost, ":pause"},
		{http.MethodPost, "/active_tasks:cancel_all"},
		{http.MethodDelete, "/pending_tasks:delete_all"},
	} {
		if status, answer := c.ask(t, b[0], crawlQueue+b[1], nil); status != http.StatusMethodNotAllowed {
			t.Errorf("%v answered %d %v", b, status, answer)
		}
	}
	c.head.Del("Cookie")
	if status, answer := c.ask(t, http.MethodGet, crawlQueue, nil); status != http.StatusUnauthorized {
		t.Errorf("without the session answered is %d %v", status, answer)
	}
	res, body = d.exchange(http.MethodGet, d.url+"/monitor/api/queues", d.as(alpha), "")
	problem(t, res, body, http.StatusUnauthorized, crawl.CodeUnauthenticated)
	d.cancel(alpha, job.ID)
	w.end(long)
}

// TestMonitorRights: what usersFile grants the API on the queue is what the monitor needs, beside
// a ring. Each command is asked for here once at least.
func TestMonitorRights(t *testing.T) {
	t.Parallel()
	redis := guard(t)
	commands := watchCommands(t, redis)
	d := deployOn(t, redis, 1, "TRAWL_ADMIN_KEY="+adminKey, "TRAWL_MONITOR_WRITE=true")
	c := openConsole(t, d)
	// Somebody else's task, which is shown and not read.
	later, err := asynq.NewClientFromRedisClient(redis.Client).EnqueueContext(t.Context(),
		asynq.NewTask("mail", []byte("a secret")), asynq.Queue("crawl"), asynq.ProcessIn(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	shown := c.press(t, http.MethodGet, crawlQueue+"/tasks/"+later.ID, nil)
	if shown["payload"] != "8 bytes that are no ring" || shown["state"] != "scheduled" {
		t.Errorf("another's task is shown as %v", shown)
	}
	c.press(t, http.MethodDelete, crawlQueue+"/scheduled_tasks/"+later.ID, nil)
	job := d.submit(alpha, fields{"urls": numbered(slowSite(t, 50*time.Millisecond), 2000), "concurrency": 2})
	w := d.watch(alpha, job.ID)
	for _, path := range []string{
		"/api/servers", "/api/redis_info", "/api/queue_stats", "/api/scheduler_entries", "/api/queues/crawl/groups",
		"/api/scheduler_entries/none/enqueue_events?page=1&size=10",
	} {
		if res, body := c.send(t, http.MethodGet, path, "", ""); res.StatusCode != http.StatusOK {
			t.Errorf("%s answered %d %s", path, res.StatusCode, body)
		}
	}
	for _, state := range []string{"active", "pending", "scheduled", "retry", "archived", "completed"} {
		c.tasks(t, state)
	}
	c.press(t, http.MethodGet, crawlQueue+"/tasks/"+c.task(t, "active"), nil)
	for _, b := range [][2]string{{":archive_all", "archived"}, {":run_all", "scheduled"}} {
		c.retried(t, http.MethodPost, b[0], b[1])
	}
	c.post(t, ":pause")
	c.post(t, "/active_tasks:cancel_all")
	id := c.task(t, "pending")
	c.post(t, "/pending_tasks/"+id+":archive")
	c.post(t, "/archived_tasks/"+id+":run")
	c.press(t, http.MethodDelete, crawlQueue+"/pending_tasks/"+id, nil)
	crawltest.Eventually(t, long, "the queue is deleted", func() bool {
		for _, state := range []string{"pending", "archived", "retry"} {
			c.press(t, http.MethodDelete, crawlQueue+"/"+state+"_tasks:delete_all", nil)
		}
		status, _ := c.ask(t, http.MethodDelete, crawlQueue, nil)
		return status == http.StatusNoContent
	})
	c.post(t, ":resume")
	d.cancel(alpha, job.ID)
	w.end(long)
	used := commands.used(apiUser)
	for _, command := range monitorCommands {
		if !used[command] {
			t.Errorf("the monitor never does %s", command)
		}
		if !slices.Contains(grants(t, apiUser), command) {
			t.Errorf("%s grants the API no %s, which the monitor does", usersFile, command)
		}
	}
}

// TestMonitorWithoutRights: a Redis whose users are those of a version that had no monitor says
// what to do.
func TestMonitorWithoutRights(t *testing.T) {
	t.Parallel()
	d := deploy(t, 0, "TRAWL_ADMIN_KEY="+adminKey)
	c := openConsole(t, d)
	d.redis.each(t, "ACL", "SETUSER", apiUser, "clearselectors", "-info")
	for _, path := range []string{"/api/queues", "/api/servers", "/api/redis_info"} {
		res, body := c.send(t, http.MethodGet, path, "", "")
		if res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "deployments/redis/users.acl") {
			t.Errorf("%s answered %d %s", path, res.StatusCode, body)
		}
	}
	d.redis.each(t, "ACL", "LOAD") // it was on purpose
	d.redis.each(t, "ACL", "LOG", "RESET")
}

// monitorCommands are what the monitor sends beside what a ring needs.
var monitorCommands = []string{
	"del", "get", "hget", "hmget", "hset", "hvals", "info", "llen", "lpush", "lrange", "lrem", "memory|usage", "publish",
	"set", "sismember", "smembers", "srem", "zadd", "zcard", "zrange", "zrangebyscore", "zrem", "zremrangebyrank",
	"zremrangebyscore", "zrevrange", "zscore",
}
