package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.com/trawl/pkg/crawltest"
)

// browser is a Chromium without a window, which notes what goes wrong in it.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	wrong  []string // errors of the console, refused by a policy, exceptions
	asked  []string // URLs that pages asked for
	denied int      // answers of 400 and more
}

// openBrowser starts a browser that reaches this machine only. Without one the test is skipped, or
// fails when TRAWL_REQUIRE_BROWSER=1.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	switch {
	case err != nil && os.Getenv("TRAWL_REQUIRE_BROWSER") == "1":
		t.Fatalf("TRAWL_REQUIRE_BROWSER=1, but chromium is not to be found: %v", err)
	case err != nil:
		t.Skip("needs chromium on PATH; TRAWL_REQUIRE_BROWSER=1 makes this a failure")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		// Whatever it wants from elsewhere has no address.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
	)
	// The cleanup ends it, once its pages are done with.
	ctx, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, quit := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		closing, cancel := context.WithTimeout(ctx, long)
		defer cancel()
		if err := chromedp.Cancel(closing); err != nil {
			t.Logf("the browser ends: %v", err)
		}
		quit()
		stop()
	})
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatalf("chromium does not start: %v", err)
	}
	call(b, log.Enable, cdp.Empty{})
	call(b, network.Enable, network.EnableParams{})
	call(b, runtime.Enable, cdp.Empty{})
	return b
}

// call sends the browser a command.
func call[P, R any](b *browser, command cdp.Command[P, R], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatalf("%s: %v", command.Method, err)
	}
}

// note hears what happens in the page.
func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.wrong = append(b.wrong, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var text []string
			for _, a := range e.Args {
				text = append(text, string(a.Value))
			}
			b.wrong = append(b.wrong, "console: "+strings.Join(text, " "))
		}
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, fmt.Sprintf("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 {
			b.denied++
		}
	}
}

// do does what a person does.
func (b *browser) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, long)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		shown, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("location.href + ' ' + document.body.innerText"))
		b.t.Fatalf("%s: %v, shown is %.1000s; went wrong: %q", what, err, shown, b.said())
	}
}

// said is what went wrong so far.
func (b *browser) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.wrong)
}

// shot keeps what is shown, for a person who looks at it: go test -artifacts keeps the folder.
func (b *browser) shot(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), png, 0o600)
	}
	if err != nil {
		b.t.Fatalf("picture %s: %v", name, err)
	}
}

// eval returns the value of an expression, and of a promise what it comes to.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, long)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// shows waits until the page says something.
func (b *browser) shows(text string) {
	b.t.Helper()
	crawltest.Eventually(b.t, long, "the page says "+text, func() bool {
		return strings.Contains(eval[string](b, "document.body.innerText"), text)
	})
}

// clean checks that nothing went wrong, and that nothing was asked for but of the given servers.
func (b *browser) clean(servers ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.wrong {
		b.t.Errorf("the browser says %s", w)
	}
	for _, asked := range b.asked {
		u, err := url.Parse(asked)
		ours := err == nil && u.Scheme == "data"
		for _, s := range servers {
			ours = ours || strings.HasPrefix(asked, s+"/monitor")
		}
		if !ours {
			b.t.Errorf("the page asks for %s", asked)
		}
	}
	if len(b.asked) == 0 {
		b.t.Error("nothing was asked for")
	}
	b.wrong, b.asked = nil, nil
}

// changing finds what a person can press to change the queue, and the column of what appears there
// under the mouse.
const changing = `[...document.querySelectorAll('button, [role=button], [role=menuitem], input[type=checkbox], th')]
	.map(e => [e.type == 'checkbox' ? 'select' : '', e.innerText, e.title, e.ariaLabel].join(' '))
	.filter(s => /select|actions|delete|archive|pause|resume|cancel/i.test(s))
	.filter(s => !/^\s*(archived\b|select option$)/i.test(s))`

// TestMonitorInBrowser looks at the monitor as a person does.
func TestMonitorInBrowser(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	d := deploy(t, 1, "TRAWL_ADMIN_KEY="+adminKey)
	d.secrets = append(d.secrets, adminKey)
	site := slowSite(t, 200*time.Millisecond)
	job := d.submit(alpha, fields{"urls": numbered(site, 3000), "concurrency": 1}).ID

	// Whoever follows a link is asked for the key, on the smallest screen as well.
	b.do("the link", chromedp.EmulateViewport(360, 640),
		chromedp.Navigate(d.url+"/monitor/queues/crawl?status=active"), chromedp.WaitVisible("#key"))
	if eval[int](b, "document.documentElement.scrollWidth") > 360 {
		t.Error("the login is wider than a small screen")
	}
	b.shot("login-small")
	b.do("a wrong key", chromedp.SendKeys("#key", "not-the-key"+kb.Enter), chromedp.WaitVisible("#fault"))
	said := eval[string](b, "document.querySelector('[role=alert]').innerText")
	if !strings.Contains(said, "not the admin key") {
		t.Errorf("the login says %q", said)
	}
	b.shot("login-fault")
	b.mu.Lock()
	if b.denied != 1 || len(b.wrong) > 1 || len(b.wrong) == 1 && !strings.Contains(b.wrong[0], "401") {
		t.Errorf("%d answers refuse something: %q", b.denied, b.wrong)
	}
	b.wrong = nil // the browser reports the status of the answer
	b.mu.Unlock()
	b.do("the key", chromedp.EmulateViewport(1280, 800), chromedp.SendKeys("#key", adminKey),
		chromedp.Click("//button[text()='Log in']"), chromedp.WaitVisible("//button[text()='Log out']"))
	b.shows("GET /v1/jobs/" + job)
	if got := eval[string](b, "location.pathname+location.search"); got != "/monitor/queues/crawl?status=active" {
		t.Errorf("the login leads to %s", got)
	}
	if got := eval[string](b, "document.cookie"); got != "" {
		t.Error("a script can read the session")
	}
	b.shot("tasks")
	walk(b, d.url, job, nil)
	b.clean(d.url)

	// A replica takes the same session; this one may change the queue.
	second := d.run("example.com/trawl/api", "TRAWL_MONITOR_WRITE=true")
	changes := "http://" + second.WaitFor(ready, `"msg":"listening".*"addr":"([^"]+)"`)[1]
	seen := map[string]bool{}
	walk(b, changes, job, seen)
	for _, want := range []string{"queues", "active"} {
		if !seen[want] {
			t.Errorf("nothing that changes the queue is found at %s, where there is something: the test finds nothing", want)
		}
	}
	// The buttons of a queue are there when the mouse is.
	b.do("queues", chromedp.Navigate(changes+"/monitor/"), chromedp.WaitVisible("td:last-child button"))
	at := eval[[]float64](b, `(r => [r.x + r.width/2, r.y + r.height/2])(
		document.querySelector('td:last-child').getBoundingClientRect())`)
	b.do("pause", chromedp.MouseEvent(chromedp.MouseMoved, at[0], at[1]),
		chromedp.WaitVisible("td:last-child button + button"), chromedp.Click(chromedp.CSS("td:last-child button")))
	b.shows("paused")
	b.shot("paused")
	if n := d.redis.Client.Exists(t.Context(), "asynq:{crawl}:paused").Val(); n != 1 {
		t.Error("the button pauses nothing")
	}
	b.do("log out", chromedp.Click("//button[text()='Log out']"), chromedp.WaitVisible("#key"))
	b.do("back", chromedp.Navigate(changes+"/monitor/"), chromedp.WaitVisible("#key"))
	b.clean(d.url, changes)
	d.cancel(alpha, job)
}

// walk looks at each part of the monitor. What can be pressed to change the queue is noted in
// seen; with nil there must be nothing.
func walk(b *browser, server, job string, seen map[string]bool) {
	b.t.Helper()
	mode, ofRedis := "read", "Memory"
	if onCluster { // of which there is no one memory to show
		ofRedis = "Redis Cluster Info"
	}
	if seen != nil {
		mode = "write"
	}
	for _, part := range []struct{ name, path, shows string }{
		{"queues", "/", "crawl"},
		{"active", "/queues/crawl?status=active", "GET /v1/jobs/" + job},
		{"pending", "/queues/crawl?status=pending", "pending tasks"},
		{"retry", "/queues/crawl?status=retry", "retry tasks"},
		{"archived", "/queues/crawl?status=archived", "archived tasks"},
		{"servers", "/servers", "Active Workers"},
		{"schedulers", "/schedulers", "Scheduler"},
		{"redis", "/redis", ofRedis},
		{"settings", "/settings", "Settings"},
	} {
		b.do(part.path, chromedp.Navigate(server+"/monitor"+part.path), chromedp.WaitVisible("#root"))
		b.shows(part.shows)
		b.shot(mode + "-" + part.name)
		found := eval[[]string](b, changing)
		switch {
		case seen != nil:
			seen[part.name] = len(found) > 0
		case len(found) > 0:
			b.t.Errorf("%s has %q, which changes the queue", part.path, found)
		}
	}
	id := eval[string](b, `fetch("/monitor/api/queues/crawl/active_tasks").then(r => r.json()).then(a => a.tasks[0].id)`)
	b.do("a task", chromedp.Navigate(server+"/monitor/queues/crawl/tasks/"+id), chromedp.WaitVisible("#root"))
	b.shows("of tenant " + alpha + "\nGET /v1/jobs/" + job)
	b.shot(mode + "-task")
}
