package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/queue"
)

const monitorKey = "the-admin-key-of-the-monitor"

// watched is a bench with a monitor, on a queue of its own.
type watched struct {
	*bench
	redis *crawltest.Redis
	queue string
}

func newWatched(t *testing.T, r *crawltest.Redis, change func(*Options)) *watched {
	t.Helper()
	w := &watched{redis: r, queue: "q" + crawltest.Random()}
	w.bench = newBenchWith(t, func(o *Options) {
		o.AdminKey, o.Queue = monitorKey, r.Client
		if change != nil {
			change(o)
		}
	})
	return w
}

func writable(o *Options) { o.MonitorWrite = true }

// as makes a request without the tenant's key that request sends.
func (w *watched) as(method, target, body string, edit ...func(*http.Request)) answer {
	return w.call(method, target, body, append([]func(*http.Request){header("Authorization")}, edit...)...)
}

func admin(r *http.Request) { r.Header.Set("Authorization", "Bearer "+monitorKey) }

func browser(r *http.Request) { r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8") }

// thePage is how asynqmon's page calls.
func thePage(r *http.Request) { r.Header.Set("Accept", "application/json, text/plain, */*") }

// form is a login as a browser sends it.
func form(values url.Values, edit ...func(*http.Request)) []func(*http.Request) {
	return append([]func(*http.Request){
		header("Authorization"), header("Content-Type", "application/x-www-form-urlencoded"),
	}, edit...)
}

func (w *watched) login(key, next string, edit ...func(*http.Request)) answer {
	values := url.Values{"key": {key}, "next": {next}, "username": {"admin"}}
	return w.call("POST", monitorLogin, values.Encode(), form(values, edit...)...)
}

// session logs in and returns what sends the cookie.
func (w *watched) session(t *testing.T) func(*http.Request) {
	t.Helper()
	a := w.login(monitorKey, "", browser)
	cookies := (&http.Response{Header: a.header}).Cookies()
	if a.status != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("the login answered %d with %d cookies: %s", a.status, len(cookies), a.body)
	}
	return func(r *http.Request) { r.AddCookie(cookies[0]) }
}

// ring puts a ring into the queue of the test.
func (w *watched) ring(t *testing.T) crawl.Ring {
	t.Helper()
	r := crawl.Ring{JobRef: crawl.JobRef{Tenant: "a", ID: crawl.NewJobID("a", "")}, N: 0}
	if err := queue.NewDoorbellOn(w.redis.Client, w.queue).Ring(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *watched) tasks(state string) string {
	return monitorAPI + "queues/" + w.queue + "/" + state + "_tasks"
}

// Without a key to it, or a queue to show, there is no monitor.
func TestMonitorAbsent(t *testing.T) {
	t.Parallel()
	r := crawltest.Mini(t)
	for name, change := range map[string]func(*Options){
		"no admin key": func(o *Options) { o.AdminKey = "" },
		"no queue":     func(o *Options) { o.Queue = nil },
	} {
		w := newWatched(t, r, change)
		for _, path := range []string{monitorPath, monitorHome, monitorLogin, monitorAPI + "queues"} {
			w.as("GET", path, "", admin, browser).wantProblem(t, 404, crawl.CodeNotFound)
			if t.Failed() {
				t.Fatalf("%s: %s", name, path)
			}
		}
	}
}

func TestMonitorWhoMay(t *testing.T) {
	t.Parallel()
	r := crawltest.Mini(t)
	w := newWatched(t, r, nil)
	session := w.session(t)
	other := newWatched(t, r, func(o *Options) { o.AdminKey = "another-admin-key-0001" })
	stale := w.server.monitor.sessions.begin(time.Now().Add(-sessionLife))
	cookie := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: sessionCookie, Value: value}) }
	}
	nothing := func(*http.Request) {}
	for name, c := range map[string]struct {
		edit func(*http.Request)
		may  bool
	}{
		"nobody":                   {nothing, false},
		"a tenant":                 {header("Authorization", "Bearer "+keyA), false},
		"a bearer":                 {admin, true},
		"a key in its own header":  {header("X-API-Key", monitorKey), true},
		"another key":              {header("X-API-Key", monitorKey+"x"), false},
		"the key as a cookie":      {cookie(monitorKey), false},
		"a session":                {session, true},
		"an empty session":         {cookie(""), false},
		"a session that is over":   {cookie(stale), false},
		"a session of another key": {cookie(other.server.monitor.sessions.begin(time.Now())), false},
		"a session and a proxy's own credential": {func(r *http.Request) {
			session(r)
			r.Header.Set("Authorization", "Basic eDp5")
		}, true},
		"a session and a session that is over": {func(r *http.Request) { cookie(stale)(r); session(r) }, true},
	} {
		for _, path := range []string{
			monitorPath, monitorHome, monitorAPI + "queues", monitorStatic + "js/runtime-main.9fea6c1a.js",
		} {
			for _, method := range []string{"GET", "HEAD"} {
				a := w.as(method, path, "", c.edit)
				if want := map[bool]int{true: 200, false: 401}[c.may]; a.status != want {
					t.Errorf("%s: %s %s answered %d, want %d", name, method, path, a.status, want)
				}
				if !c.may {
					a.wantProblem(t, 401, crawl.CodeUnauthenticated)
				}
			}
		}
		if a := w.as("GET", monitorHome, "", c.edit, browser); (a.status == 200) != c.may || !c.may && a.status != 303 {
			t.Errorf("%s: a browser is answered %d", name, a.status)
		}
	}
	// The page of a session that is over says so in words, which it shows as they are.
	a := w.as("GET", monitorAPI+"queues", "", thePage)
	if a.status != 401 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") ||
		!strings.Contains(a.body, "log in") {
		t.Errorf("the page is answered %d %q", a.status, a.body)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	s, err := newSessions(monitorKey)
	if err != nil {
		t.Fatal(err)
	}
	replica, _ := newSessions(monitorKey)
	now := time.Now()
	token := s.begin(now)
	if !replica.holds(token, now) || !replica.holds(token, now.Add(sessionLife-time.Second)) {
		t.Error("a session does not hold at another process of the same key")
	}
	if replica.holds(token, now.Add(sessionLife)) {
		t.Error("a session outlives its time")
	}
	if s.begin(now) == token {
		t.Error("two sessions are the same")
	}
	for i := range token {
		changed := []byte(token)
		if changed[i] = 'A' + (changed[i]+1)%26; s.holds(string(changed), now) {
			t.Errorf("a session holds with its character %d changed", i)
		}
	}
	for _, bad := range []string{
		"", "a", token + "A", token[1:], token + "=", token + "\n", strings.Repeat("A", len(token)),
	} {
		if s.holds(bad, now) {
			t.Errorf("a session holds as %q", bad)
		}
	}
}

func TestMonitorLogin(t *testing.T) {
	t.Parallel()
	w := newWatched(t, crawltest.Mini(t), nil)

	// A browser without a session is asked to log in, and comes to where it wanted to.
	target := monitorPath + "/queues/crawl?status=active"
	a := w.as("GET", target, "", browser)
	to, err := url.Parse(a.header.Get("Location"))
	if err != nil || a.status != 303 || to.Path != monitorLogin || to.Query().Get("next") != target {
		t.Fatalf("answered %d to %q, %v", a.status, a.header.Get("Location"), err)
	}
	a = w.as("GET", to.Path+"?"+to.RawQuery, "", browser)
	for _, part := range []string{
		`<label for="key">Admin key</label>`, `autocomplete="current-password"`, `name="viewport"`, `lang="en"`,
		`value="/monitor/queues/crawl?status=active"`,
	} {
		if !strings.Contains(a.body, part) {
			t.Errorf("the page of the login has no %s", part)
		}
	}
	if regexp.MustCompile(`(?i)https?:|//|@import|url\(`).MatchString(a.body) {
		t.Error("the page of the login fetches something")
	}
	if csp := a.header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
		strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("policy of the login %q", csp)
	}

	a = w.login(monitorKey, target, browser)
	if a.status != 303 || a.header.Get("Location") != target {
		t.Errorf("the login answered %d to %q", a.status, a.header.Get("Location"))
	}
	if a := w.as("GET", monitorLogin+"?next="+url.QueryEscape(target), "", browser, w.session(t)); a.status != 303 ||
		a.header.Get("Location") != target {
		t.Errorf("who is logged in is asked again: %d %q", a.status, a.header.Get("Location"))
	}

	a = w.login("wrong-"+monitorKey, target, browser)
	if a.status != 401 || !strings.Contains(a.body, "not the admin key") ||
		!strings.Contains(a.body, `value="/monitor/queues`) || a.header.Get("Set-Cookie") != "" ||
		strings.Contains(a.body, monitorKey) {
		t.Errorf("a wrong key is answered %d %s", a.status, a.body)
	}
	w.login("wrong-"+monitorKey, target).wantProblem(t, 401, crawl.CodeUnauthenticated)
	// A key in the address, where logs have it, opens nothing.
	a = w.call("POST", monitorLogin+"?key="+monitorKey, "next=", form(nil)...)
	a.wantProblem(t, 401, crawl.CodeUnauthenticated)
	w.as("POST", monitorLogin, `{"key":"`+monitorKey+`"}`).wantProblem(t, 415, codeUnsupportedMediaType)
	w.call("POST", monitorLogin, "key="+strings.Repeat("x", maxLoginBody), form(nil)...).
		wantProblem(t, 413, crawl.CodeBodyTooLarge)
	w.call("POST", monitorLogin, "key=%zz", form(nil)...).wantProblem(t, 400, crawl.CodeMalformed)
	w.as("DELETE", monitorLogin, "").wantProblem(t, 405, codeMethodNotAllowed)
	w.as("GET", monitorLogout, "", browser).wantProblem(t, 405, codeMethodNotAllowed)

	a = w.as("POST", monitorLogout, "", browser, w.session(t))
	for _, c := range (&http.Response{Header: a.header}).Cookies() {
		if c.MaxAge >= 0 || c.Value != "" || c.Path != monitorPath {
			t.Errorf("after the logout there is still %v", c)
		}
	}
	if a.status != 303 || a.header.Get("Location") != monitorLogin || len(a.header.Values("Set-Cookie")) != 2 {
		t.Errorf("the logout answered %d to %q", a.status, a.header.Get("Location"))
	}
	for _, secret := range []string{monitorKey, "status=active", "wrong-"} {
		if strings.Contains(w.logs.String(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
	if !w.counts(`trawl_http_requests_total{method="POST",route="/monitor/*path",status="401"} 3`) {
		t.Error("failed logins are not counted under one route")
	}
}

func TestMonitorCookie(t *testing.T) {
	t.Parallel()
	w := newWatched(t, crawltest.Mini(t), nil)
	for name, c := range map[string]struct {
		edit   func(*http.Request)
		cookie string
	}{
		"in the clear":        {func(*http.Request) {}, sessionCookie},
		"behind a proxy":      {header("X-Forwarded-Proto", "https"), secureSessionCookie},
		"behind two proxies":  {header("X-Forwarded-Proto", "HTTPS, http"), secureSessionCookie},
		"a proxy without TLS": {header("X-Forwarded-Proto", "http"), sessionCookie},
	} {
		a := w.login(monitorKey, "", c.edit)
		cookies := (&http.Response{Header: a.header}).Cookies()
		if len(cookies) != 1 {
			t.Fatalf("%s: cookies %v", name, cookies)
		}
		got := cookies[0]
		if got.Name != c.cookie || got.Secure != (c.cookie == secureSessionCookie) || !got.HttpOnly ||
			got.SameSite != http.SameSiteStrictMode || got.Path != monitorPath || got.Domain != "" || got.MaxAge != 8*3600 {
			t.Errorf("%s: %v", name, got)
		}
		if a := w.as("GET", monitorHome, "", func(r *http.Request) { r.AddCookie(got) }); a.status != 200 {
			t.Errorf("%s: the cookie opens nothing: %d", name, a.status)
		}
	}
}

func TestMonitorTarget(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"/monitor/":                            "/monitor/",
		"/monitor/queues/crawl?status=pending": "/monitor/queues/crawl?status=pending",
		"/monitor/queues/crawl/tasks/a.3":      "/monitor/queues/crawl/tasks/a.3",
		"":                                     monitorHome, "/": monitorHome, "/monitor": monitorHome, "/docs": monitorHome,
		"//evil.test/monitor/": monitorHome, "https://evil.test/monitor/": monitorHome, `\\evil.test/monitor/`: monitorHome,
		`/\evil.test`: monitorHome, "/monitor//evil.test": monitorHome, "/monitor/../v1/jobs": monitorHome,
		"/monitor/%2e%2e/docs": monitorHome, "/monitor/..%2f..": monitorHome, "javascript:alert(1)": monitorHome,
		"/monitor/x\r\nSet-Cookie: a=b": monitorHome, "/monitorx": monitorHome, "/monitor@evil.test/": monitorHome,
		"/monitor/login": monitorHome, "/monitor/logout": monitorHome, "/monitor/api/queues": monitorHome,
		"/monitor/login/x": monitorHome, "%": monitorHome, "monitor/": monitorHome, "http:/monitor/": monitorHome,
	} {
		if got := monitorTarget(next); got != want {
			t.Errorf("%q leads to %q, want %q", next, got, want)
		}
	}
}

// TestMonitorCrossOrigin: another site's page changes nothing here, with the session of a
// browser or without one.
func TestMonitorCrossOrigin(t *testing.T) {
	t.Parallel()
	w := newWatched(t, crawltest.Mini(t), writable)
	w.ring(t)
	session := w.session(t)
	pause := monitorAPI + "queues/" + w.queue + ":pause"
	foreign := map[string]func(*http.Request){
		"another site":       header("Sec-Fetch-Site", "cross-site"),
		"a sibling":          header("Sec-Fetch-Site", "same-site"),
		"an old browser":     header("Origin", "https://evil.test"),
		"the same host, TLS": header("Origin", "https://api.test:8443"),
		"a sandbox":          header("Origin", "null"),
	}
	for name, edit := range foreign {
		for _, path := range []string{pause, monitorLogout, monitorLogin} {
			a := w.call("POST", path, "key="+monitorKey, form(nil, session, edit)...)
			if a.wantProblem(t, 403, codeCrossOrigin); a.header.Get("Set-Cookie") != "" {
				t.Errorf("%s has set a cookie by %s", name, path)
			}
		}
	}
	for name, edit := range map[string]func(*http.Request){
		"a browser":      header("Sec-Fetch-Site", "same-origin"),
		"an old browser": header("Origin", "http://api.test"),
		"a program":      func(*http.Request) {},
	} {
		verb := ":pause"
		for range 2 {
			a := w.as("POST", monitorAPI+"queues/"+w.queue+verb, "", session, edit)
			if a.status != http.StatusNoContent {
				t.Errorf("%s: %s answered %d %s", name, verb, a.status, a.body)
			}
			verb = ":resume"
		}
	}
}

func TestMonitorReadOnly(t *testing.T) {
	t.Parallel()
	w := newWatched(t, crawltest.Mini(t), nil)
	ring := w.ring(t)
	for method, path := range map[string]string{
		"POST":   monitorAPI + "queues/" + w.queue + ":pause",
		"DELETE": w.tasks("pending") + "/" + ring.ID,
	} {
		a := w.as(method, path, "", admin)
		if a.wantProblem(t, 405, codeMethodNotAllowed); a.header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s may be answered to %q", method, a.header.Get("Allow"))
		}
	}
	if a := w.as("PUT", monitorHome, "", admin); a.status != 405 {
		t.Errorf("PUT: %d", a.status)
	}
	if !strings.Contains(w.as("GET", monitorHome, "", admin).body, `FLAG_READ_ONLY="true"`) {
		t.Error("the page does not know that it only shows")
	}
	// With the right to, all of the same is done.
	w.bench = newWatched(t, w.redis, writable).bench
	if !strings.Contains(w.as("GET", monitorHome, "", admin).body, `FLAG_READ_ONLY="false"`) {
		t.Error("the page does not know that it may change")
	}
	w.as("POST", monitorHome, "", admin).wantProblem(t, 405, codeMethodNotAllowed)
	w.as("POST", w.tasks("pending"), "", admin).wantProblem(t, 404, crawl.CodeNotFound)
	if a := w.as("DELETE", w.tasks("pending")+"/"+ring.ID, "", admin); a.status != http.StatusNoContent {
		t.Errorf("delete answered %d %s", a.status, a.body)
	}
	w.as("DELETE", w.tasks("pending")+"/"+ring.ID, "", admin).wantProblem(t, 404, crawl.CodeNotFound)
}

// The page fetches nothing from elsewhere, runs nothing but its own scripts, and is in no frame.
func TestMonitorPage(t *testing.T) {
	t.Parallel()
	w := newWatched(t, crawltest.Mini(t), nil)
	nonces := map[string]bool{}
	for _, path := range []string{
		monitorPath, monitorHome, monitorPath + "/queues/crawl", monitorPath + "/queues/crawl/tasks/a.json",
	} {
		a := w.as("GET", path, "", admin)
		if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") ||
			a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
		for _, bad := range []string{"googleapis", "manifest", noncePlace, "https://"} {
			if strings.Contains(a.body, bad) {
				t.Errorf("%s has %s", path, bad)
			}
		}
		csp := a.header.Get("Content-Security-Policy")
		for _, want := range []string{
			"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'",
		} {
			if !strings.Contains(csp, want) {
				t.Errorf("the policy %q has no %s", csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") || a.header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("policy %q", csp)
		}
		digests := inlineDigests([]byte(a.body))
		if strings.Count(digests, "sha256-") != 2 || !strings.Contains(csp, digests) {
			t.Errorf("the policy %q does not name the scripts%s", csp, digests)
		}
		nonce := regexp.MustCompile(`style-src 'nonce-([A-Z2-7]+)'`).FindStringSubmatch(csp)
		if nonce == nil || !strings.Contains(a.body, `<meta property="csp-nonce" content="`+nonce[1]+`">`) {
			t.Fatalf("the nonce of the page is not that of the policy %q", csp)
		}
		nonces[nonce[1]] = true
	}
	if len(nonces) != 4 {
		t.Error("a nonce is used twice")
	}
	var manifest struct{ Files map[string]string }
	a := w.as("GET", monitorPath+"/asset-manifest.json", "", admin)
	if err := json.Unmarshal([]byte(a.body), &manifest); err != nil || len(manifest.Files) < 5 {
		t.Fatalf("%v: %s", err, a.body)
	}
	for _, file := range manifest.Files {
		_, name, _ := strings.Cut(file, "]]")
		if name == "" || strings.HasSuffix(name, ".html") || strings.HasSuffix(name, ".css.map") {
			continue
		}
		a := w.as("GET", monitorPath+name, "", admin)
		script := strings.HasPrefix(a.header.Get("Content-Type"), "application/javascript")
		if a.status != 200 || a.body == "" || strings.HasSuffix(name, ".js") && !script {
			t.Errorf("%s: %d %v", name, a.status, a.header)
		}
		if got := a.header.Get("Cache-Control"); strings.HasPrefix(name, "/static/") != strings.Contains(got, "immutable") ||
			!strings.HasPrefix(got, "private") {
			t.Errorf("%s may be cached as %q", name, got)
		}
	}
	for _, gone := range []string{
		"/static/js/none.js", "/static/", "/none.png", "/api/none", "/api/", "//evil.test",
	} {
		w.as("GET", monitorPath+gone, "", admin).wantProblem(t, 404, crawl.CodeNotFound)
	}
}

func TestMonitorIndexRefuses(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]string{
		"a script from elsewhere": `<head></head><body><script src="https://cdn.test/x.js"></script></body>`,
		"an image without scheme": `<head></head><body><img src=//cdn.test/x.png></body>`,
		"no head":                 `<body></body>`,
		"no body":                 `<head></head>`,
	} {
		if _, _, err := monitorIndex([]byte(page)); err == nil {
			t.Errorf("%s is served", name)
		}
	}
}

// What tasks carry is shown when it is a ring, and is not when it is anything else.
func TestMonitorTasks(t *testing.T) {
	t.Parallel()
	crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) {
		w := newWatched(t, r, nil)
		ring := w.ring(t)
		client := asynq.NewClientFromRedisClient(r.Client)
		foreign, err := client.EnqueueContext(t.Context(), asynq.NewTask("mail", []byte(`{"password":"hunter2"}`)),
			asynq.Queue(w.queue))
		if err != nil {
			t.Fatal(err)
		}
		var listed struct {
			Tasks []struct{ ID, Payload string }
			Stats struct{ Pending int }
		}
		a := w.as("GET", w.tasks("pending")+"?page=1&size=20", "", admin, thePage)
		if got := a.header.Get("Content-Type"); got != "application/json" || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("answered as %q, %q", got, a.header.Get("Cache-Control"))
		}
		a.decode(t, 200, &listed)
		shown := map[string]string{}
		for _, task := range listed.Tasks {
			shown[task.ID] = task.Payload
		}
		want := "ring 0 of tenant a\nGET /v1/jobs/" + ring.ID
		if shown[ring.ID] != want || shown[foreign.ID] != "22 bytes that are no ring" || listed.Stats.Pending != 2 {
			t.Errorf("shown are %v", listed)
		}
		for _, path := range []string{
			"queues", "queues/" + w.queue, "queue_stats", "servers", "scheduler_entries",
			"queues/" + w.queue + "/tasks/" + ring.ID, "queues/" + w.queue + "/groups",
		} {
			if a := w.as("GET", monitorAPI+path, "", admin); a.status != 200 || strings.Contains(a.body, "hunter2") {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
		if a := w.as("HEAD", monitorAPI+"queues", "", admin); a.status != 200 {
			t.Errorf("HEAD: %d", a.status)
		}
		w.as("GET", monitorAPI+"queues/none"+w.queue, "", admin).wantProblem(t, 404, crawl.CodeNotFound)
		if a := w.as("GET", w.tasks("pending")+"?size=100", "", admin); a.status != 200 {
			t.Errorf("what the page asks for at most: %d", a.status)
		}
		w.as("GET", w.tasks("pending")+"?size=101", "", admin).wantProblem(t, 422, crawl.CodeInvalid)
		w.as("GET", w.tasks("pending")+"?page=0", "", admin).wantProblem(t, 422, crawl.CodeInvalid)
		w.as("GET", w.tasks("pending")+"?page=9999999999999999999", "", admin).wantProblem(t, 422, crawl.CodeInvalid)
		for _, secret := range []string{"hunter2", "size=", ring.ID} {
			if strings.Contains(w.logs.String(), secret) {
				t.Errorf("the log has %q", secret)
			}
		}
	})
}

// TestMonitorFailedTask: what a task failed with may quote a URL with a password in it.
func TestMonitorFailedTask(t *testing.T) {
	t.Parallel()
	w := newWatched(t, crawltest.Mini(t), nil)
	failed := make(chan struct{}, 1)
	server := asynq.NewServerFromRedisClient(w.redis.Client, asynq.Config{
		Queues: map[string]int{w.queue: 1}, LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond,
		ErrorHandler: asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { failed <- struct{}{} }),
	})
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		return fmt.Errorf("get http://user:s3cret@host.test/: broken\u202e: %w", asynq.SkipRetry)
	})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	w.ring(t)
	crawltest.Receive(t, 30*time.Second, "failure", failed)
	var body string
	crawltest.Eventually(t, 30*time.Second, "the task is archived", func() bool {
		body = w.as("GET", w.tasks("archived"), "", admin).body
		return strings.Contains(body, "broken")
	})
	if strings.Contains(body, "s3cret") || !strings.Contains(body, "http://***@host.test/") ||
		strings.Contains(body, "\u202e") {
		t.Errorf("shown is %s", body)
	}
}

// TestMonitorLoginRate: guesses are slow, and slow down nobody who has the key or a session.
func TestMonitorLoginRate(t *testing.T) {
	t.Parallel()
	w := newWatched(t, crawltest.Mini(t), nil)
	session := w.session(t)
	for n := 1; ; n++ {
		a := w.login("a-guess", "")
		if a.status == 429 {
			p := a.wantProblem(t, 429, crawl.CodeRateLimited)
			if s, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || s < 1 || s > 6 {
				t.Errorf("Retry-After %q: %s", a.header.Get("Retry-After"), p.Detail)
			}
			break
		}
		if a.wantProblem(t, 401, crawl.CodeUnauthenticated); n > 100 {
			t.Fatal("nothing bounds the guesses")
		}
	}
	a := w.login("a-guess", "", browser)
	for range 100 { // a slow machine may have earned an attempt meanwhile
		if a.status == 429 {
			break
		}
		a = w.login("a-guess", "", browser)
	}
	if a.status != 429 || !strings.Contains(a.body, "too many attempts") || a.header.Get("Retry-After") == "" ||
		a.header.Get("Set-Cookie") != "" {
		t.Errorf("a person's guess that comes too early is answered %d %s", a.status, a.body)
	}
	for range 3 * loginBurst { // more than the limit would let through
		w.session(t)
	}
	for name, edit := range map[string]func(*http.Request){"session": session, "key": admin} {
		if a := w.as("GET", monitorHome, "", edit); a.status != 200 {
			t.Errorf("%s: %d", name, a.status)
		}
	}
}

// TestMonitorArchiveRoom: asynq drops what is archived above 10,000 and keeps its hashes.
func TestMonitorArchiveRoom(t *testing.T) {
	t.Parallel()
	w := newWatched(t, crawltest.Mini(t), writable)
	ring := w.ring(t)
	ids := make([]any, 9000)
	for i := range ids {
		ids[i] = strconv.Itoa(i)
	}
	if err := w.redis.Client.RPush(t.Context(), "asynq:{"+w.queue+"}:pending", ids...).Err(); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{":archive_all", ":batch_archive", "/" + ring.ID + ":archive"} {
		a := w.as("POST", w.tasks("pending")+verb, `{"task_ids":["`+ring.ID+`"]}`, admin)
		a.wantProblem(t, 409, crawl.CodeWrongState)
	}
	if err := w.redis.Client.Del(t.Context(), "asynq:{"+w.queue+"}:pending").Err(); err != nil {
		t.Fatal(err)
	}
	ring = w.ring(t)
	if a := w.as("POST", w.tasks("pending")+"/"+ring.ID+":archive", "", admin); a.status != http.StatusNoContent {
		t.Errorf("archive: %d %s", a.status, a.body)
	}
}

// The monitor is served by a whole server as well, whose client's path net/http has parsed.
func TestMonitorOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWatched(t, crawltest.Mini(t), nil)
	site := httptest.NewServer(w.server.Handler())
	t.Cleanup(site.Close)
	for path, want := range map[string]int{
		"/monitor/": 200, "/monitor/api/queues": 200, "/monitor/%2e%2e/v1/jobs": 404, "/monitor/api%2fqueues": 404,
		"/monitor//api/queues": 404, "/monitor/x/../api/queues": 404,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		admin(r)
		res, err := site.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = res.Body.Close(); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
}
