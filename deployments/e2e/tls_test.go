package e2e

import (
	"strings"
	"testing"

	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// TestTLS: one crawl of the real processes with a Redis over TLS that wants certificates
// and passwords, and what they say when they are not let in.
func TestTLS(t *testing.T) {
	t.Parallel()
	single(t, "who signed which certificate is decided for each connection in one place, whatever the form of the URL")
	authority, stranger := crawltest.NewAuthority(t), crawltest.NewAuthority(t)
	serverCert, serverKey := authority.Issue("127.0.0.1")
	files := redisconn.TLS{CA: authority.File}
	files.Cert, files.Key = authority.Issue()
	r := guardOver(t, files, "--tls-cert-file", serverCert, "--tls-key-file", serverKey,
		"--tls-ca-cert-file", authority.File, "--tls-auth-clients", "yes")
	d := deployOn(t, r, 1)
	crawlOnce(t, d)

	// All in one process, which is one user with the rights of both.
	up := crawltest.Run(t, "example.com/trawl/deployments/trawl",
		append(r.settings(operatorUser), "TRAWL_LISTEN=127.0.0.1:0"), "up")
	up.WaitFor(ready, "Trawl is running at ")
	if code := up.Terminate(long); code != 0 {
		t.Errorf("trawl up ended with %d", code)
	}

	// A process that is not let in says in its log what to do, and goes on asking.
	for _, tc := range []struct {
		want     string
		settings []string
	}{
		{"name there the CA that signed it", []string{"TRAWL_REDIS_CA=" + stranger.File}},
		{"Redis asks for a certificate", []string{"TRAWL_REDIS_CERT=", "TRAWL_REDIS_CERT_KEY="}},
		{"Redis refuses the user or the password", []string{"TRAWL_REDIS_URL=" + wrongPassword(r)}},
	} {
		w := d.run("example.com/trawl/worker", tc.settings...)
		w.WaitFor(ready, tc.want)
		w.Kill()
	}
	r.each(t, "ACL", "LOG", "RESET") // the wrong password was on purpose

	// What cannot be used at all is said at once, each by its setting.
	w := d.run("example.com/trawl/worker", "TRAWL_REDIS_CA=/no/such.pem", "TRAWL_REDIS_CERT=")
	if code := w.Wait(ready); code != 1 {
		t.Errorf("it ended with %d", code)
	}
	for _, setting := range []string{"TRAWL_REDIS_CA: It cannot be read", "TRAWL_REDIS_CERT: Name the file"} {
		if !strings.Contains(w.Output(), setting) {
			t.Errorf("%q is not in what it wrote: %s", setting, w.Output())
		}
	}
	d.procs = d.procs[:len(d.procs)-1] // what it wrote is for people, not one JSON object a line
}

// wrongPassword returns the URL of the worker with the password of the API.
func wrongPassword(r *guardedRedis) string {
	return strings.Replace(r.url(apiUser), "//"+apiUser+":", "//"+workerUser+":", 1)
}
