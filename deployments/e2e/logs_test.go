package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// TestLogs: SEC-07. Every deployment's log is checked when its test ends, see
// [deployment.checkLogs]; this test gives the log a reason to break, in each place
// where words of strangers come in, while Redis fails and its password is in use.
func TestLogs(t *testing.T) {
	t.Parallel()
	site := crawltest.NewSite(t, []byte(`
-- index.html --
<title>a
level=error msg=forged</title>
<a href="/x%0d%0aSet-Cookie:a=b">1</a> <a href="/`+"\x1b"+`[31m">2</a> <a href="/go">3</a>
<a href="http://user:hunter2hunter2@127.0.0.1:1/">4</a> <a href="/u">5</a>
-- go --
status: 302
header: Location: http://user:hunter2hunter2@127.0.0.1:1/`+"\u2028"+`{"msg":"forged"}
`))
	d := deploy(t, 1, "TRAWL_LOG_LEVEL=debug")
	const cookie, signing = "session=hunter3hunter3", "whsec_aHVudGVyNGh1bnRlcjRodW50ZXI0aHVudGVyNA=="
	d.secrets = append(d.secrets, "hunter2hunter2", cookie, signing)
	job := d.submit(alpha, fields{
		"seed_url": site.URL + "/", "scope": "any", "tags": []string{`{"msg":"forged"}`},
		"headers": fields{"Cookie": cookie},
		"webhook": fields{"url": "http://127.0.0.1:9/hook?hunter2hunter2", "secret": signing, "events": []string{"job.running"}},
	}).ID
	// net/http itself tells of answers that nobody asked for, and quotes them.
	pushy := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\n"+
			"ok{\"level\":\"ERROR\",\"msg\":\"forged\"}\n")
		go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
	}))
	var pushed []string
	for i := range 20 {
		pushed = append(pushed, pushy.URL+"/"+strconv.Itoa(i))
	}
	d.watch(beta, d.submit(beta, fields{"urls": pushed}).ID).end(long)

	w := d.startWatch(&watch{tenant: alpha, job: job, outage: true})
	site.Await(long, "/go", 1)

	for _, tc := range []struct {
		header http.Header
		body   string
		status int
	}{
		{d.as(alpha, "Idempotency-Key", "k\tlevel=error"), `{"seed_url": "` + site.URL + `/"}`, 400},
		{d.as(alpha), `{"seed_url": "http://user:hunter2hunter2@site.test/\r\nHost: other.test"}`, 422},
		{d.as(alpha), `{"urls": ["` + site.URL + `/"], "tags": ["a` + "\u2028" + `b"]}`, 422},
		{d.as(alpha), `{"urls": ["` + site.URL + `/"], "user_agent": "Bot\r\nX-Evil: 1"}`, 422},
		{http.Header{"X-Api-Key": {d.keys[alpha][:20] + "\"\\"}, "Content-Type": {"application/json"}}, "{}", 401},
		{d.as(alpha, "X-Request-Id", "a\" level=error {\"msg\":\"forged\"}"), "{", 400},
	} {
		res, body := d.exchange(http.MethodPost, d.url+"/v1/jobs", tc.header, tc.body)
		if res.StatusCode != tc.status {
			t.Errorf("%s: %d %s, want %d", tc.body, res.StatusCode, body, tc.status)
		}
		if strings.Contains(string(body), "hunter2hunter2") {
			t.Errorf("the answer repeats a password: %s", body)
		}
	}
	d.exchange(http.MethodGet, d.url+"/v1/jobs/%0d%0a%1b%5b31m?"+d.keys[alpha], d.as(alpha), "")

	// Faults of the store name it, and it is named with a password.
	d.redis.Stop()
	res, body := d.post(alpha, fields{"urls": []string{site.URL + "/"}})
	problem(t, res, body, http.StatusServiceUnavailable, crawl.CodeUnavailable)
	for _, p := range d.procs {
		p.WaitFor(long, `"level":"(WARN|ERROR)"`)
	}
	d.redis.Start()
	w.end(long)
	for _, p := range d.procs {
		if code := p.Terminate(long); code != 0 {
			t.Errorf("a process ended with %d", code)
		}
	}
}

// TestLogEvents: what the log has of a request, of a slice and of a job, in both formats; and
// that no key, password or token is in it, wherever a caller or a site puts one (URL-08).
func TestLogEvents(t *testing.T) {
	t.Parallel()
	for format, parse := range map[string]func(*testing.T, string) map[string]string{
		"json": parseJSON, "text": parseText,
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, 0)
			l := newLogWorld(t, d, format)
			l.live()
			l.stop()
			var events []map[string]string
			for _, p := range []*crawltest.Proc{l.api, l.worker} {
				for line := range strings.Lines(p.Output()) {
					if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), breaksLines) {
						t.Errorf("SEC-07: a control character is in the log: %q", line)
					}
					events = append(events, parse(t, line))
				}
				for _, secret := range slices.Concat(d.secrets, l.secrets) {
					if strings.Contains(p.Output(), secret) {
						t.Errorf("a secret is in the log: %q", secret)
					}
				}
			}
			l.checkRequests(events)
			l.checkSlices(events)
			l.checkJobs(events)
		})
	}
}

// logWorld is an API and a worker that log in a format, from debug.
type logWorld struct {
	*deployment
	api, worker *crawltest.Proc
	secrets     []string
	requests    map[string]int // status by request id
	jobs        map[string]string
	long        string // the job that is under way when the worker stops
}

func newLogWorld(t *testing.T, d *deployment, format string) *logWorld {
	t.Helper()
	l := &logWorld{deployment: d, requests: map[string]int{}, jobs: map[string]string{}}
	// Not of the deployment's own processes, whose logs are held to be JSON.
	run := func(pkg, user string) *crawltest.Proc {
		env := slices.Concat(d.redis.settings(user), d.env, []string{
			"TRAWL_LOG_FORMAT=" + format, "TRAWL_LOG_LEVEL=debug", "TRAWL_ADMIN_KEY=" + adminKey,
			"TRAWL_GATEWAY_SECRET=" + l.secret(), "TRAWL_SHUTDOWN_GRACE=100ms", "NOTIFY_SOCKET=",
		})
		return crawltest.Run(t, pkg, env)
	}
	l.secrets = append(l.secrets, adminKey)
	l.api, l.worker = run("example.com/trawl/api", apiUser), run("example.com/trawl/worker", workerUser)
	d.url = "http://" + l.api.WaitFor(ready, `msg"?[:=]"?listening"?.*addr"?[:=]"?([0-9.:]+)`)[1]
	l.worker.WaitFor(ready, `msg"?[:=]"worker started"`)
	return l
}

// secret makes one more word that no log may have.
func (l *logWorld) secret() string {
	s := "hunter" + crawltest.Random()
	l.secrets = append(l.secrets, s)
	return s
}

// call makes a request with an id of its own.
func (l *logWorld) call(method, path, body string, header http.Header) []byte {
	l.t.Helper()
	id := "r" + crawltest.Random()
	header.Set("X-Request-Id", id)
	res, got := l.exchange(method, l.url+path, header, body)
	l.requests[id] = res.StatusCode
	return got
}

func (l *logWorld) submit(tenant string, spec fields, more ...string) string {
	l.t.Helper()
	body, err := json.Marshal(spec)
	if err != nil {
		l.t.Fatal(err)
	}
	answer := l.call(http.MethodPost, "/v1/jobs", string(body), l.as(tenant, more...))
	id := decode[crawl.Job](l.t, answer).ID
	if id == "" {
		l.t.Fatalf("a job was not accepted: %s", answer)
	}
	l.jobs[id] = tenant
	return id
}

// ended waits for the end of a job.
func (l *logWorld) ended(tenant, id string) {
	l.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond) // each read is an event
	defer tick.Stop()
	crawltest.Eventually(l.t, long, "the end of the job", func() bool {
		<-tick.C
		return decode[crawl.Job](l.t, l.call(http.MethodGet, "/v1/jobs/"+id, "", l.as(tenant))).State.Terminal()
	})
}

// live does what makes processes write, with a secret in each place that takes one.
func (l *logWorld) live() {
	l.t.Helper()
	user, token, path := l.secret(), l.secret(), l.secret()
	site := crawltest.NewSite(l.t, []byte(`
-- robots.txt --
User-agent: *
Disallow: /private
Sitemap: {{site}}/map.xml?token=`+token+`
-- map.xml --
status: 500
-- index.html --
<a href="http://user:`+user+`@127.0.0.1:1/">1</a> <a href="/missing?token=`+token+`">2</a> <a href="/private?`+token+`">3</a>
<a href="/go?token=`+token+`">4</a> <a href="/`+path+`">5</a> <a href="/map.xml?token=`+token+`">6</a>
-- go --
status: 302
header: Location: http://user:`+user+`@127.0.0.1:1/?token=`+token+`
`))
	signing := base64.StdEncoding.EncodeToString([]byte(l.secret() + l.secret()))
	l.secrets = append(l.secrets, signing)
	job := l.submit(alpha, fields{
		"seed_url": site.URL + "/?token=" + token, "scope": "any", "max_depth": 3,
		"headers": fields{"Authorization": "Bearer " + l.secret(), "Cookie": "s=" + l.secret()},
		"webhook": fields{"url": "http://127.0.0.1:1/" + l.secret() + "?" + l.secret(), "secret": "whsec_" + signing},
	}, "Idempotency-Key", l.secret())
	l.ended(alpha, job)
	l.worker.WaitFor(long, `msg"?[:=]"webhook delivery"`)
	l.ended(beta, l.submit(beta, fields{"urls": []string{site.URL + "/", "http://127.0.0.1:1/?token=" + token}}))
	for _, bad := range []string{
		`{"seed_url": "http://user:` + user + `@site.test:x/?` + token + `"}`, `{"secret": "` + token + `"}`, `"` + token,
	} {
		l.call(http.MethodPost, "/v1/jobs", bad, l.as(alpha))
	}
	l.call(http.MethodGet, "/v1/jobs/"+token+"?key="+l.keys[alpha], "", l.as(alpha))
	l.call(http.MethodGet, "/v1/jobs", "", http.Header{"Authorization": {"Bearer " + l.secret()}})
	l.call(http.MethodGet, "/v1/jobs", "", http.Header{"X-Gateway-Secret": {l.secret()}, "X-Tenant-Id": {"gamma"}})
	admin := http.Header{"Authorization": {"Bearer " + adminKey}, "Content-Type": {"application/json"}}
	l.call(http.MethodPost, "/v1/admin/tenants", `{"name":"gamma"}`, admin)
	made := decode[fields](l.t, l.call(http.MethodPost, "/v1/admin/tenants/gamma/keys", `{}`, admin))
	l.keys["gamma"] = made["key"].(string)
	l.secrets = append(l.secrets, l.keys["gamma"])
	l.submit("gamma", fields{"urls": []string{site.URL + "/"}})
	cancelled := l.submit(alpha, fields{"urls": numbered(slowSite(l.t, time.Second), 50), "concurrency": 2})
	l.call(http.MethodPost, "/v1/jobs/"+cancelled+"/cancel", "", l.as(alpha))
}

// stop stops both while a job is under way.
func (l *logWorld) stop() {
	l.t.Helper()
	slow := slowSite(l.t, time.Hour)
	l.long = l.submit(beta, fields{"urls": numbered(slow, 20), "concurrency": 2, "respect_robots": false})
	slow.Await(long, "/1", 1)
	for _, p := range []*crawltest.Proc{l.worker, l.api} {
		if code := p.Terminate(long); code != 0 {
			l.t.Errorf("a process ended with %d", code)
		}
	}
}

// checkRequests: one event a request, and none besides.
func (l *logWorld) checkRequests(events []map[string]string) {
	l.t.Helper()
	seen := map[string]int{}
	for _, e := range events {
		if e["msg"] != "request" {
			continue
		}
		id := e["request_id"]
		if seen[id]++; e["status"] != strconv.Itoa(l.requests[id]) || e["route"] == "" || e["method"] == "" || e["duration_ms"] == "" {
			l.t.Errorf("a request that answered %d is logged as %v", l.requests[id], e)
		}
	}
	for id := range l.requests {
		if seen[id] != 1 {
			l.t.Errorf("a request has %d events", seen[id])
		}
	}
	if len(seen) != len(l.requests) {
		l.t.Errorf("%d requests were made and %d are logged", len(l.requests), len(seen))
	}
}

// checkSlices: one event a slice, at its end, with its counts; at info there is no other.
func (l *logWorld) checkSlices(events []map[string]string) {
	l.t.Helper()
	ended, begun := map[string]map[string]string{}, map[string][]string{} // why, by slice and job; slices by job
	for _, e := range events {
		if e["msg"] == "slice begins" {
			begun[e["job_id"]] = append(begun[e["job_id"]], e["slice"])
		}
		if e["slice"] == "" || e["level"] != "INFO" {
			continue
		}
		if e["msg"] != "slice" {
			l.t.Errorf("at info a slice has %v, too", e)
			continue
		}
		job := e["job_id"]
		if ended[job] == nil {
			ended[job] = map[string]string{}
		}
		if ended[job][e["slice"]] != "" {
			l.t.Errorf("slice %s of a job has two events", e["slice"])
		}
		ended[job][e["slice"]] = e["ended"]
		for _, name := range []string{"ended", "took_ms", "pages", "accepted", "failed", "skipped", "released", "leased"} {
			if e[name] == "" {
				l.t.Errorf("the event of a slice has no %s: %v", name, e)
			}
		}
	}
	if len(begun) == 0 {
		l.t.Error("no slice is logged at debug as it begins")
	}
	for job, all := range begun {
		for _, slice := range all {
			if ended[job][slice] == "" {
				l.t.Errorf("of the slices of a job %v are logged", ended[job])
			}
		}
	}
	if !slices.Contains(slices.Collect(maps.Values(ended[l.long])), "draining") {
		l.t.Errorf("the slice that was under way at the stop ended for %v", ended[l.long])
	}
}

// checkJobs: what is about a job names it and its tenant, and by these names.
func (l *logWorld) checkJobs(events []map[string]string) {
	l.t.Helper()
	about := map[string]int{}
	for _, e := range events {
		mentions := ""
		for id := range l.jobs {
			for _, value := range e {
				if strings.Contains(value, id) {
					mentions = id
				}
			}
		}
		if mentions == "" && e["slice"] == "" && e["event_id"] == "" {
			continue
		}
		if about[e["msg"]]++; e["job_id"] != mentions || e["tenant"] != l.jobs[mentions] {
			l.t.Errorf("an event about a job of %s does not name both: %v", l.jobs[mentions], e)
		}
	}
	for _, msg := range []string{"request", "slice", "webhook delivery", "sitemap not read"} {
		if about[msg] == 0 {
			l.t.Errorf("of %v none is %q", about, msg)
		}
	}
}

// parseJSON reads a line that is one JSON object.
func parseJSON(t *testing.T, line string) map[string]string {
	t.Helper()
	var e map[string]any
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatalf("a line is no JSON object (%v): %.500q", err, line)
	}
	out := map[string]string{}
	for name, value := range e {
		out[name] = fmt.Sprint(value)
	}
	return out
}

// parseText reads a line of name=value pairs.
func parseText(t *testing.T, line string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimPrefix(rest, " ") {
		name, value, ok := strings.Cut(rest, "=")
		if !ok || strings.ContainsAny(name, " \"") {
			t.Fatalf("this is no name=value: %.200q in %.500q", rest, line)
		}
		if quoted, err := strconv.QuotedPrefix(value); err == nil {
			out[name], _ = strconv.Unquote(quoted)
			rest = value[len(quoted):]
			continue
		}
		out[name], rest, _ = strings.Cut(value, " ")
	}
	if out["msg"] == "" || out["level"] == "" || out["time"] == "" {
		t.Fatalf("a line has no time, level and msg: %.500q", line)
	}
	return out
}
