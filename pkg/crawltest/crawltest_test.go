package crawltest

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/redisconn"
)

func TestMain(m *testing.M) { Main(m) }

func TestOnEach(t *testing.T) {
	t.Parallel()
	OnEach(t, func(t *testing.T, r *Redis) {
		key := "{" + Tenant(t) + "}:k"
		if err := r.Client.Set(t.Context(), key, "v", 20*time.Millisecond).Err(); err != nil {
			t.Fatal(err)
		}
		Eventually(t, 10*time.Second, "the key expires", func() bool {
			n, err := r.Client.Exists(t.Context(), key).Result()
			return err == nil && n == 0
		})
		if _, is := r.Client.(*redis.ClusterClient); is != (r.Name == "cluster") {
			t.Errorf("%s is reached by a %T", r.Name, r.Client)
		}
	})
}

// TestCluster: what the cluster is for is that it refuses what a Cluster of
// several shards would.
func TestCluster(t *testing.T) {
	t.Parallel()
	r := Cluster(t)
	err := redis.NewScript("return 1").Run(t.Context(), r.Client, []string{"{a}", "{b}"}).Err()
	if err == nil || !strings.Contains(err.Error(), "CROSSSLOT") && !strings.Contains(err.Error(), "slot") {
		t.Errorf("a script with keys of two slots: %v, want it refused", err)
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	a, b := Real(t), Real(t)
	if a != b {
		t.Error("two tests do not share the server")
	}
	if Any(t).Name != "redis" {
		t.Error("Any is not the server although there is one")
	}
}

func TestPrivate(t *testing.T) {
	t.Parallel()
	s := Private(t, "--maxmemory", "64mb")
	ctx := t.Context()
	if err := s.Client.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := s.Client.ConfigGet(ctx, "maxmemory").Val()["maxmemory"]; got != "67108864" {
		t.Errorf("maxmemory is %q: the arguments were not passed", got)
	}

	for _, end := range []struct {
		name string
		f    func()
	}{{"stopped", s.Stop}, {"killed", s.Kill}} {
		end.f()
		end.f()
		if err := s.Client.Ping(ctx).Err(); err == nil {
			t.Errorf("%s, but it answers", end.name)
		}
		s.Start()
		if got, err := s.Client.Get(ctx, "k").Result(); err != nil || got != "v" {
			t.Errorf("%s and started again: %q, %v", end.name, got, err)
		}
	}

	s.Freeze()
	c := s.Open(t, redisconn.Options{MaxRetries: -1})
	if err := c.Ping(ctx).Err(); err == nil {
		t.Error("frozen, but it answers")
	}
	s.Thaw()
	if err := c.Ping(ctx).Err(); err != nil {
		t.Errorf("after the thaw: %v", err)
	}

	s.Stop()
	s.Wipe()
	s.Start()
	if n := s.Client.DBSize(ctx).Val(); n != 0 {
		t.Errorf("wiped, but it has %d keys", n)
	}
}

func TestTenant(t *testing.T) {
	t.Parallel()
	a, b := Tenant(t), Tenant(t)
	if a == b || !crawl.ValidTenant(a) {
		t.Errorf("tenants %q and %q", a, b)
	}
}

// recorder is a test that can fail without failing this one.
type recorder struct {
	testing.TB
	failed string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, _ ...any) {
	r.failed = format
	panic(r)
}

func failure(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	func() {
		defer func() {
			if v := recover(); v != nil && v != any(r) {
				panic(v)
			}
		}()
		f(r)
	}()
	return r.failed
}

func TestWaitsFail(t *testing.T) {
	t.Parallel()
	closed, full := make(chan int), make(chan int, 1)
	close(closed)
	full <- 1
	for _, tc := range []struct {
		name string
		f    func(testing.TB)
		want string
	}{
		{"never", func(t testing.TB) { t.Helper(); Eventually(t, time.Millisecond, "x", func() bool { return false }) }, "still not"},
		{"at once", func(t testing.TB) { t.Helper(); Eventually(t, 0, "x", func() bool { return true }) }, ""},
		{"nothing", func(t testing.TB) { t.Helper(); Receive(t, time.Millisecond, "x", make(chan int)) }, "no %s"},
		{"closed", func(t testing.TB) { t.Helper(); Receive(t, time.Minute, "x", closed) }, "closed"},
		{"value", func(t testing.TB) { t.Helper(); Receive(t, time.Minute, "x", full) }, ""},
	} {
		if got := failure(t, tc.f); !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("%s: failed with %q, want %q", tc.name, got, tc.want)
		}
	}
}

const archive = `
-- index.html --
<a href="{{site}}/a">
-- /a --
status: 301
header: Location: {{site}}/b?x=1
header: X-A: 1
header: X-A: 2

-- b --
any query
-- b?x=2 --
only this one
-- untyped --
header: Content-Type:

x
-- s.xml --
status is not a directive without its colon
`

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestSite(t *testing.T) {
	t.Parallel()
	s := NewSite(t, []byte(archive))
	for _, tc := range []struct {
		uri    string
		status int
		typ    string
		body   string
	}{
		{"/", 200, "text/html; charset=utf-8", `<a href="` + s.URL + `/a">` + "\n"},
		{"/index.html", 200, "text/html; charset=utf-8", `<a href="` + s.URL + `/a">` + "\n"},
		{"/a", 301, "text/html; charset=utf-8", ""},
		{"/b", 200, "text/html; charset=utf-8", "any query\n"},
		{"/b?x=1", 200, "text/html; charset=utf-8", "any query\n"},
		{"/b?x=2", 200, "text/html; charset=utf-8", "only this one\n"},
		{"/untyped", 200, "", "x\n"},
		{"/s.xml", 200, "application/xml", "status is not a directive without its colon\n"},
		{"/none", 404, "text/plain; charset=utf-8", "404 page not found\n"},
	} {
		res, body := get(t, s.URL+tc.uri)
		if res.StatusCode != tc.status || body != tc.body || res.Header.Get("Content-Type") != tc.typ {
			t.Errorf("%s: %d %q %q", tc.uri, res.StatusCode, res.Header.Get("Content-Type"), body)
		}
		if tc.uri == "/a" && (res.Header.Get("Location") != s.URL+"/b?x=1" || len(res.Header["X-A"]) != 2) {
			t.Errorf("headers of /a: %v", res.Header)
		}
	}
	if s.Hits("/b") != 3 || s.Hits("/b?x=2") != 1 || s.Hits("/c") != 0 {
		t.Errorf("hits: %d %d %d", s.Hits("/b"), s.Hits("/b?x=2"), s.Hits("/c"))
	}
	if r := s.Requests(); len(r) != 9 || r[2].URI != "/a" || r[2].Method != "GET" || "http://"+r[2].Host != s.URL {
		t.Errorf("requests: %+v", r)
	}

	s.Put("a", []byte("status: 204\n"))
	if res, _ := get(t, s.URL+"/a"); res.StatusCode != 204 {
		t.Errorf("/a after Put: %d", res.StatusCode)
	}
}

func TestSiteRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	s := NewSite(t, nil)
	for _, f := range []string{"status: ok\n\n", "delay: 1\n\n", "header: no\n\n", "status: 200\nbody\n"} {
		if _, err := s.parse("x", []byte(f)); err == nil {
			t.Errorf("%q was taken", f)
		}
	}
}

// TestHandlerSite also holds that a handler which waits for its client does not
// hold the end of the test.
func TestHandlerSite(t *testing.T) {
	t.Parallel()
	s := NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	for range 2 {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/slow", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			if res, err := http.DefaultTransport.RoundTrip(req); err == nil {
				_ = res.Body.Close()
				t.Error("an answer from a handler that gives none")
			}
		})
	}
	s.Await(10*time.Second, "/slow", 2)
}

func TestRun(t *testing.T) {
	t.Parallel()
	p := Run(t, "./testdata/echo", []string{"GREETING=hello"}, "world")
	if got := p.WaitFor(10*time.Second, `listening on (\S+)`); got[1] != "hello-world" {
		t.Errorf("it wrote %q", got)
	}
	if code := p.Terminate(10 * time.Second); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	if !strings.HasSuffix(p.Output(), "terminated\n") {
		t.Errorf("output %q", p.Output())
	}

	q := Run(t, "./testdata/echo", nil)
	q.WaitFor(10*time.Second, "listening")
	q.Kill()
	if code := q.Wait(0); code != -1 {
		t.Errorf("exit code after SIGKILL %d, want -1", code)
	}
	<-q.Done()
}
