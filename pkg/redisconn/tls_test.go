package redisconn_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

func TestMain(m *testing.M) { crawltest.Main(m) }

// ours is a CA, and what it signed for a server and for a client.
type ours struct {
	server, client redisconn.TLS
}

func issue(t *testing.T, hosts ...string) ours {
	t.Helper()
	a := crawltest.NewAuthority(t)
	var o ours
	o.server.CA, o.client.CA = a.File, a.File
	o.server.Cert, o.server.Key = a.Issue(hosts...)
	o.client.Cert, o.client.Key = a.Issue()
	return o
}

// startTLS starts a redis-server that speaks TLS alone, wants a certificate and a password.
func startTLS(t *testing.T, o ours, password string, args ...string) *crawltest.Server {
	t.Helper()
	access := crawltest.Access{User: "default", Password: password, TLS: o.client}
	return crawltest.PrivateFor(t, access, append([]string{
		"--tls-cert-file", o.server.Cert, "--tls-key-file", o.server.Key, "--tls-ca-cert-file", o.server.CA,
		"--tls-auth-clients", "yes", "--requirepass", password,
	}, args...)...)
}

func without(files redisconn.TLS, change func(*redisconn.TLS)) redisconn.TLS {
	change(&files)
	return files
}

func TestTLS(t *testing.T) {
	t.Parallel()
	secret := crawltest.Random()
	we, others := issue(t, "127.0.0.1"), issue(t)
	server := startTLS(t, we, secret)
	_, port, err := net.SplitHostPort(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	right := "rediss://:" + secret + "@" + server.Addr
	for name, tc := range map[string]struct {
		url   string
		files redisconn.TLS
		want  string // what is advised; empty when it works
		dials bool   // it is plain that nothing was sent
	}{
		"right": {url: right, files: we.client},
		"wrong CA": {
			url: right, files: without(we.client, func(f *redisconn.TLS) { f.CA = others.client.CA }),
			want: "name there the CA that signed it", dials: true,
		},
		"the system's CAs": {
			url: right, files: without(we.client, func(f *redisconn.TLS) { f.CA = "" }),
			want: "name there the CA that signed it", dials: true,
		},
		"no client certificate": {
			url: right, files: redisconn.TLS{CA: we.client.CA},
			want: "name one in TRAWL_REDIS_CERT and TRAWL_REDIS_CERT_KEY",
		},
		"wrong host name": {
			url: "rediss://:" + secret + "@localhost:" + port, files: we.client,
			want: "for another host: write the name that it has in TRAWL_REDIS_URL", dials: true,
		},
		"wrong password": {
			url: strings.Replace(right, secret, secret+"x", 1), files: we.client,
			want: "Redis refuses the user or the password: correct them in TRAWL_REDIS_URL",
		},
		"no password": {
			url: "rediss://" + server.Addr, files: we.client,
			want: "Redis refuses the user or the password: correct them in TRAWL_REDIS_URL",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := redisconn.Open(tc.url, redisconn.Options{TLS: tc.files})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			for range 2 { // the second from a pool that knows of the failure
				err := c.Ping(t.Context()).Err()
				checkAdvice(t, err, tc.want, secret)
				if op, ok := errors.AsType[*net.OpError](err); tc.dials && (!ok || op.Op != "dial") {
					t.Errorf("%v does not say that nothing was sent", err)
				}
				p := c.Pipeline()
				got := p.Get(t.Context(), "k")
				if _, err := p.Exec(t.Context()); tc.want != "" {
					checkAdvice(t, err, tc.want, secret)
					checkAdvice(t, got.Err(), tc.want, secret)
				} else if !errors.Is(err, redis.Nil) {
					t.Errorf("a pipeline: %v", err)
				}
			}
		})
	}
}

func checkAdvice(t *testing.T, err error, want, secret string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("it does not work: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("it says %v, want %q", err, want)
	case err != nil && strings.Contains(err.Error(), secret):
		t.Errorf("the password is in the error: %v", err)
	case err != nil && strings.Count(err.Error(), want) != 1:
		t.Errorf("the advice is given twice: %v", err)
	}
}

// What speaks no TLS is not waited for longer than for a connection, and not taken for one
// that is away.
func TestNoTLS(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{"answers": "-ERR unknown command\r\n", "waits": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() {
				defer close(served)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, answer) // the client may be gone
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
			t.Cleanup(func() { _ = l.Close(); <-served })
			const secret = "hunter2hunter2"
			c, err := redisconn.Open("rediss://:"+secret+"@"+l.Addr().String(), redisconn.Options{MaxRetries: -1})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			checkAdvice(t, c.Ping(t.Context()).Err(), "seems to speak no TLS: correct the port", secret)
		})
	}
}

// A certificate that is shown and that the server's CA did not sign.
func TestForeignClientCertificate(t *testing.T) {
	t.Parallel()
	we, others := issue(t, "127.0.0.1"), issue(t)
	server := startTLS(t, we, crawltest.Random())
	c := server.Open(t, redisconn.Options{TLS: redisconn.TLS{
		CA: we.client.CA, Cert: others.client.Cert, Key: others.client.Key,
	}})
	// Its alert may be lost with the connection, so that only the refusal is certain.
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("a certificate of another CA opens Redis")
	}
}

// An older TLS than 1.2 is not spoken, whatever the server offers.
func TestOldTLS(t *testing.T) {
	t.Parallel()
	we := issue(t, "127.0.0.1")
	pair, err := tls.LoadX509KeyPair(we.server.Cert, we.server.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, version := range map[string]uint16{"1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
				Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10, MaxVersion: version,
			})
			if err != nil {
				t.Fatal(err)
			}
			spoken := make(chan error, 1)
			go func() {
				conn, err := l.Accept()
				if err == nil {
					err = conn.(*tls.Conn).HandshakeContext(t.Context())
					_ = conn.Close()
				}
				spoken <- err
			}()
			c, err := redisconn.Open("rediss://"+l.Addr().String(), redisconn.Options{TLS: we.client, MaxRetries: -1})
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Ping(t.Context()).Err() // nobody answers it in either version
			if err := <-spoken; (err == nil) != (version == tls.VersionTLS12) {
				t.Errorf("the handshake: %v", err)
			}
			_, _ = c.Close(), l.Close()
		})
	}
}

// Every file that cannot be used is named by its setting, together with what is wrong with
// the URL, and before anything is dialled.
func TestTLSFaults(t *testing.T) {
	t.Parallel()
	we, others := issue(t, "redis"), issue(t)
	dir := t.TempDir()
	missing, words, broken := filepath.Join(dir, "missing.pem"), filepath.Join(dir, "words"), filepath.Join(dir, "broken")
	const secret = "hunter2hunter2"
	for path, content := range map[string]string{
		words: secret, broken: "-----BEGIN CERTIFICATE-----\naHVudGVyMmh1bnRlcjI=\n-----END CERTIFICATE-----\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		url   string
		files redisconn.TLS
		want  []string // field/rule
	}{
		"good":           {"rediss://h", we.client, nil},
		"good, Sentinel": {"redis-sentinel://h/m?tls=true", we.client, nil},
		"missing": {
			"rediss://h",
			redisconn.TLS{CA: missing, Cert: missing, Key: missing},
			[]string{"TRAWL_REDIS_CA/file", "TRAWL_REDIS_CERT/file", "TRAWL_REDIS_CERT_KEY/file"},
		},
		"a folder": {"rediss://h", redisconn.TLS{CA: dir}, []string{"TRAWL_REDIS_CA/file"}},
		"a device": {"rediss://h", redisconn.TLS{CA: "/dev/zero"}, []string{"TRAWL_REDIS_CA/max"}},
		"not PEM": {
			"rediss://h",
			redisconn.TLS{CA: words, Cert: words, Key: words},
			[]string{"TRAWL_REDIS_CA/pem", "TRAWL_REDIS_CERT/pem"},
		},
		"a key for a CA":      {"rediss://h", redisconn.TLS{CA: we.client.Key}, []string{"TRAWL_REDIS_CA/pem"}},
		"broken":              {"rediss://h", redisconn.TLS{CA: broken}, []string{"TRAWL_REDIS_CA/pem"}},
		"certificate, no key": {"rediss://h", redisconn.TLS{Cert: we.client.Cert}, []string{"TRAWL_REDIS_CERT_KEY/required"}},
		"key, no certificate": {"rediss://h", redisconn.TLS{Key: we.client.Key}, []string{"TRAWL_REDIS_CERT/required"}},
		"another's key": {
			"rediss://h", redisconn.TLS{Cert: we.client.Cert, Key: others.client.Key}, []string{"TRAWL_REDIS_CERT/pem"},
		},
		"in the clear": {
			"redis://h", we.client,
			[]string{"TRAWL_REDIS_CA/unknown", "TRAWL_REDIS_CERT/unknown", "TRAWL_REDIS_CERT_KEY/unknown"},
		},
		"a socket": {"unix:///s", redisconn.TLS{CA: we.client.CA}, []string{"TRAWL_REDIS_CA/unknown"}},
		"with the URL's": {"redis-cluster://h/1?tls=perhaps", redisconn.TLS{CA: missing}, []string{
			"path/unknown", "query.tls/format", "TRAWL_REDIS_CA/file",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := redisconn.Open(tc.url, redisconn.Options{TLS: tc.files})
			if err == nil {
				_ = c.Close()
			}
			var got []string
			if f, ok := errors.AsType[*crawl.Fault](err); ok && f.Code == crawl.CodeInvalid {
				for _, ff := range f.Fields {
					got = append(got, ff.Field+"/"+ff.Rule)
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" || (err == nil) != (tc.want == nil) {
				t.Errorf("%v: %s", err, d)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the content of a file is in the error: %v", err)
			}
		})
	}
}

// A user that lacks a right is told so, in a script as well.
func TestLackOfRights(t *testing.T) {
	t.Parallel()
	secret := crawltest.Random()
	server := crawltest.Private(t, "--user", "few", "on", ">"+secret, "~few:*", "+get", "+eval")
	u := url.URL{Scheme: "redis", Host: server.Addr, User: url.UserPassword("few", secret)}
	c, err := redisconn.Open(u.String(), redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	const want = "lacks a right in Redis: give it those of deployments/redis/users.acl"
	checkAdvice(t, c.Set(t.Context(), "few:1", 1, 0).Err(), want, secret)
	checkAdvice(t, c.Get(t.Context(), "many:1").Err(), want, secret)
	for _, script := range []string{"return redis.call('SET', KEYS[1], 1)", "return redis.call('GET', 'many:1')"} {
		checkAdvice(t, c.Eval(t.Context(), script, []string{"few:1"}).Err(), want, secret)
	}
}
