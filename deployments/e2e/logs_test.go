package e2e

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

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
