package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"example.com/trawl/pkg/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	keyA = "aaaaaaaaaaaaaaaa"
	keyB = "bbbbbbbbbbbbbbbb"
)

func file(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// granted is what a tenant may have by default.
var granted = config.Quota{MaxQueued: 10_000, MaxRunning: 10, MaxPages: 1_000_000, MaxBytes: 10 << 30, MaxKeptBytes: 1 << 30, MaxItems: 1_000_000}

func TestLoadAPI(t *testing.T) {
	t.Parallel()
	defaults := config.API{
		Shared: config.Shared{
			RedisURL: "redis://127.0.0.1:6379/0", HostDelay: 500 * time.Millisecond, HostConcurrency: 2,
			ShutdownGrace: 20 * time.Second, LogLevel: slog.LevelInfo, LogFormat: "json",
		},
		Serving: config.Serving{Listen: "127.0.0.1:8008", Keys: config.Keys{"a": {keyA}}, Quota: granted},
	}
	keys := "TRAWL_API_KEYS=a:" + keyA
	for _, tt := range []struct {
		name      string
		args, env []string
		want      func(*config.API)
	}{
		{"defaults", nil, []string{keys, "PATH=/bin", "OTHER_X=1"}, func(*config.API) {}},
		{"environment", nil, []string{
			keys, "TRAWL_REDIS_URL=unix:///run/redis.sock", "TRAWL_LISTEN=:0", "TRAWL_ALLOWED_SOURCES=*", "TRAWL_MAX_RUNNING=3",
			"TRAWL_REDIS_WAIT=1", "TRAWL_HOST_DELAY=0s", "TRAWL_HOST_CONCURRENCY=256", "TRAWL_LOG_LEVEL=DEBUG", "TRAWL_LOG_FORMAT=text",
		}, func(c *config.API) {
			c.RedisURL, c.Listen, c.AllowedSources, c.MaxRunning, c.RedisWait = "unix:///run/redis.sock", ":0", "*", 3, 1
			c.HostDelay, c.HostConcurrency, c.LogLevel, c.LogFormat = 0, 256, slog.LevelDebug, "text"
		}},
		{
			"flags win",
			[]string{"--listen=:1", "--max-running", "4"},
			[]string{keys, "TRAWL_LISTEN=:2", "TRAWL_MAX_RUNNING=5"},
			func(c *config.API) { c.Listen, c.MaxRunning = ":1", 4 },
		},
		{"secret file", nil, []string{"TRAWL_API_KEYS_FILE=" + file(t, "a:"+keyA+"\n")}, func(*config.API) {}},
		{
			"secret file by flag",
			[]string{"--api-keys-file", file(t, "a:"+keyA), "--listen", ":1"},
			nil,
			func(c *config.API) { c.Listen = ":1" },
		},
		{
			"several keys", nil,
			[]string{"TRAWL_API_KEYS= a:" + keyA + ", a:" + keyB + ",\nb-2:" + keyA + keyB + ","},
			func(c *config.API) { c.Keys = config.Keys{"a": {keyA, keyB}, "b-2": {keyA + keyB}} },
		},
		{"key with colons", nil, []string{"TRAWL_API_KEYS=a:x:y:" + keyA}, func(c *config.API) { c.Keys = config.Keys{"a": {"x:y:" + keyA}} }},
		{"an admin key is a way in", nil, []string{"TRAWL_ADMIN_KEY=" + keyB}, func(c *config.API) { c.Keys, c.AdminKey = nil, keyB }},
		{"a gateway is a way in", nil, []string{"TRAWL_GATEWAY_SECRET=" + keyB}, func(c *config.API) { c.Keys, c.GatewaySecret = nil, keyB }},
		{
			"all ways in, from files", nil,
			[]string{keys, "TRAWL_ADMIN_KEY_FILE=" + file(t, keyB+"\n"), "TRAWL_GATEWAY_SECRET_FILE=" + file(t, keyA+keyB)},
			func(c *config.API) { c.AdminKey, c.GatewaySecret = keyB, keyA+keyB },
		},
		{
			"no ways in but keys", nil, []string{keys, "TRAWL_ADMIN_KEY=", "TRAWL_GATEWAY_SECRET="}, func(*config.API) {},
		},
		{
			"what a tenant is granted", nil,
			[]string{
				keys, "TRAWL_MAX_QUEUED=1", "TRAWL_MAX_RUNNING=10000", "TRAWL_MAX_PAGES=2", "TRAWL_PAGES_PER_DAY=1000000000000",
				"TRAWL_MAX_BYTES=1000000000000000", "TRAWL_MAX_KEPT_BYTES=4", "TRAWL_MAX_ITEMS=5", "TRAWL_SUBMISSIONS_PER_SECOND=3",
			},
			func(c *config.API) {
				c.Quota = config.Quota{
					MaxQueued: 1, MaxRunning: 10_000, MaxPages: 2, PagesPerDay: 1e12, MaxBytes: 1e15, MaxKeptBytes: 4, MaxItems: 5, SubmissionsPerSecond: 3,
				}
			},
		},
		{
			"no bounds",
			[]string{"--pages-per-day=0", "--max-bytes=0", "--max-kept-bytes=0", "--max-items=0", "--submissions-per-second=0"},
			[]string{keys},
			func(c *config.API) { c.MaxBytes, c.MaxKeptBytes, c.MaxItems = 0, 0, 0 },
		},
		{
			"the worker's names", nil,
			[]string{keys, "TRAWL_CONCURRENCY=9", "TRAWL_PRIVATE_HOSTS=127.0.0.1", "TRAWL_WORKER_LISTEN="},
			func(*config.API) {},
		},
		{"what Kubernetes adds", nil, []string{
			keys, "TRAWL_SERVICE_HOST=10.0.0.1", "TRAWL_SERVICE_PORT=80", "TRAWL_SERVICE_PORT_HTTP=80", "TRAWL_PORT=tcp://10.0.0.1:80",
			"TRAWL_PORT_80_TCP=tcp://10.0.0.1:80", "TRAWL_PORT_80_TCP_ADDR=10.0.0.1", "TRAWL_API_PORT_80_TCP_PROTO=tcp",
		}, func(*config.API) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.LoadAPI(tt.args, tt.env, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			want := defaults
			tt.want(&want)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestLoadWorker(t *testing.T) {
	t.Parallel()
	got, err := config.LoadWorker([]string{"--concurrency=1024"}, []string{"TRAWL_WORKER_LISTEN=", "TRAWL_API_KEYS=whatever"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Worker{
		Shared: config.Shared{
			RedisURL: "redis://127.0.0.1:6379/0", HostDelay: 500 * time.Millisecond, HostConcurrency: 2,
			ShutdownGrace: 20 * time.Second, LogFormat: "json",
		},
		Crawling: config.Crawling{Concurrency: 1024, UserAgent: "TrawlBot/0.1 (+https://example.com/trawl)"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// One process for all needs no settings, takes those of both, and has its own defaults.
func TestLoadAllInOne(t *testing.T) {
	t.Parallel()
	defaults := config.AllInOne{
		Shared: config.Shared{
			AllowedSources: "*", HostDelay: 500 * time.Millisecond, HostConcurrency: 2,
			ShutdownGrace: 20 * time.Second, LogFormat: "text",
		},
		Serving:  config.Serving{Listen: "127.0.0.1:8008", Quota: granted},
		Crawling: config.Crawling{Concurrency: 64, UserAgent: "TrawlBot/0.1 (+https://example.com/trawl)"},
	}
	for _, tt := range []struct {
		name      string
		args, env []string
		want      func(*config.AllInOne)
	}{
		{"nothing given", nil, nil, func(*config.AllInOne) {}},
		{"what a caller of a server sets", nil, []string{"TRAWL_URL=x", "TRAWL_KEY=y", "TRAWL_KEY_FILE=z"}, func(*config.AllInOne) {}},
		{
			"both",
			[]string{"--redis-url=redis://h:1", "--concurrency", "3"},
			[]string{"TRAWL_API_KEYS=a:" + keyA, "TRAWL_ALLOWED_SOURCES=", "TRAWL_PRIVATE_HOSTS=10.0.0.1", "TRAWL_LOG_FORMAT=json"},
			func(c *config.AllInOne) {
				c.RedisURL, c.Concurrency, c.Keys, c.AllowedSources = "redis://h:1", 3, config.Keys{"a": {keyA}}, ""
				c.PrivateHosts, c.LogFormat = "10.0.0.1", "json"
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.LoadAllInOne("up", "Runs.", tt.args, tt.env, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			want := defaults
			tt.want(&want)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
	_, err := config.LoadAllInOne("up", "Runs.", []string{"--max-running=0"}, []string{"TRAWL_URLS=x", "TRAWL_WORKER_LISTEN=:1"}, io.Discard)
	if want := "TRAWL_URLS: there is no such setting; correct or remove it (--help lists them)\n" +
		"TRAWL_MAX_RUNNING: 0 is outside 1 to 10000"; err == nil || err.Error() != want {
		t.Errorf("faults are %v, want %s", err, want)
	}
}

// Every fault is there at once, and none holds a secret.
func TestFaults(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2hunter2"
	for _, tt := range []struct {
		name      string
		args, env []string
		want      []string // one for every fault
	}{
		{"nothing given", nil, nil, []string{"TRAWL_API_KEYS: nobody could call the API"}},
		{"empty keys", nil, []string{"TRAWL_API_KEYS= , "}, []string{"TRAWL_API_KEYS: nobody could call the API"}},
		{"all at once", []string{"--nope", "value", "--also", "--more=1"}, []string{
			"TRAWL_REDIS_URL=", "TRAWL_LISTEN=8008", "TRAWL_MAX_RUNNING=0", "TRAWL_REDIS_WAIT=one", "TRAWL_HOST_DELAY=61s",
			"TRAWL_HOST_CONCURRENCY=257", "TRAWL_LOG_LEVEL=loud", "TRAWL_LOG_FORMAT=xml", "TRAWL_SHUTDOWN_GRACE=20", "TRAWL_LISTENN=x",
			"TRAWL_=",
		}, []string{
			"--nope: there is no such setting", "--also: there", "--more: there", "TRAWL_LISTENN: there is no such setting", "TRAWL_: there is no such setting",
			"TRAWL_REDIS_URL: it may not be empty", "TRAWL_LISTEN: \"8008\" is not host:port",
			"TRAWL_MAX_RUNNING: 0 is outside 1 to 10000", "TRAWL_REDIS_WAIT: \"one\" is not a whole number",
			"TRAWL_HOST_DELAY: 1m1s is outside 0s to 1m0s", "TRAWL_HOST_CONCURRENCY: 257 is outside 1 to 256",
			"TRAWL_LOG_LEVEL: \"loud\" is not one of", "TRAWL_LOG_FORMAT: \"xml\" is not one of",
			"TRAWL_SHUTDOWN_GRACE: \"20\" is not a duration", "TRAWL_API_KEYS: nobody could call the API",
		}},
		{
			"several unknown flags",
			[]string{"--one=1", "--two=2"},
			[]string{"TRAWL_API_KEYS=a:" + keyA},
			[]string{"--one: there is no such setting", "--two: there is no such setting"},
		},
		{"secrets that are none", nil, []string{"TRAWL_ADMIN_KEY=hunter2", "TRAWL_GATEWAY_SECRET=hunter2 hunter2hunter2"}, []string{
			"TRAWL_ADMIN_KEY: a key has 16 to 256 characters", "TRAWL_GATEWAY_SECRET: a key has visible ASCII characters only",
		}},
		{
			"an empty admin key is no way in", nil,
			[]string{"TRAWL_ADMIN_KEY=", "TRAWL_GATEWAY_SECRET="},
			[]string{"TRAWL_API_KEYS: nobody could call the API: give at least one tenant:key, or TRAWL_ADMIN_KEY"},
		},
		{"quota", nil, []string{
			"TRAWL_API_KEYS=a:" + secret, "TRAWL_MAX_QUEUED=0", "TRAWL_MAX_PAGES=1000001", "TRAWL_PAGES_PER_DAY=-1",
			"TRAWL_MAX_BYTES=1000000000000001", "TRAWL_SUBMISSIONS_PER_SECOND=9223372036854775808",
		}, []string{
			"TRAWL_MAX_QUEUED: 0 is outside 1 to 1000000", "TRAWL_MAX_PAGES: 1000001 is outside 1 to 1000000",
			"TRAWL_PAGES_PER_DAY: -1 is outside 0 to 1000000000000", "TRAWL_MAX_BYTES: 1000000000000001 is outside 0 to 1000000000000000",
			"TRAWL_SUBMISSIONS_PER_SECOND: \"9223372036854775808\" is not a whole number",
		}},
		{"stray argument", []string{"stray"}, []string{"TRAWL_API_KEYS=a:" + keyA}, []string{"command line: "}},
		{"flag without its value", []string{"--listen"}, []string{"TRAWL_API_KEYS=a:" + keyA}, []string{"command line: "}},
		{"keys", nil, []string{"TRAWL_API_KEYS=" + strings.Join([]string{
			secret, "A:" + secret, "a:short", "a:" + strings.Repeat("x", 257), "a:hunter2 hunter2hunter2", "a:" + secret, "b:" + secret,
		}, ",")}, []string{
			"TRAWL_API_KEYS: entry 1 is not tenant:key", "TRAWL_API_KEYS: entry 2: a tenant's name", "TRAWL_API_KEYS: entry 3 (tenant a): a key has 16",
			"TRAWL_API_KEYS: entry 4 (tenant a): a key has 16", "TRAWL_API_KEYS: entry 5 (tenant a): a key has visible",
			"TRAWL_API_KEYS: entry 7 (tenant b): the same key",
		}},
		{
			"both ways",
			[]string{"--api-keys=a:" + secret},
			[]string{"TRAWL_API_KEYS_FILE=" + file(t, "a:"+secret)},
			[]string{"TRAWL_API_KEYS: give it or TRAWL_API_KEYS_FILE, not both"},
		},
		{"file that is not there", nil, []string{"TRAWL_API_KEYS_FILE=/does/not/exist"}, []string{"TRAWL_API_KEYS_FILE: open /does/not/exist"}},
		{
			"file too large", nil,
			[]string{"TRAWL_API_KEYS_FILE=" + file(t, strings.Repeat("x", 1<<20+1))},
			[]string{"is larger than 1048576 bytes"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := config.LoadAPI(tt.args, tt.env, io.Discard)
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("missing %q in:\n%v", want, err)
				}
			}
			if len(lines) != len(tt.want) {
				t.Errorf("%d faults, want %d:\n%v", len(lines), len(tt.want), err)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret is in the faults:\n%v", err)
			}
		})
	}
}

func TestWorkerFaults(t *testing.T) {
	t.Parallel()
	_, err := config.LoadWorker(nil, []string{
		"TRAWL_CONCURRENCY=0", "TRAWL_USER_AGENT=Bot\r\nX-Evil: 1", "TRAWL_WORKER_LISTEN=nowhere",
	}, io.Discard)
	for _, want := range []string{"TRAWL_CONCURRENCY: ", "TRAWL_USER_AGENT: ", "TRAWL_WORKER_LISTEN: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in: %v", want, err)
		}
	}
}

// What the domain finds in a value is reported with the rest.
func TestIn(t *testing.T) {
	t.Parallel()
	if config.In("TRAWL_X", nil) != nil {
		t.Error("no error became one")
	}
	cause := errors.New("bad source")
	err := errors.Join(nil, config.In("TRAWL_ALLOWED_SOURCES", cause))
	if !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "TRAWL_ALLOWED_SOURCES: ") {
		t.Errorf("got %v", err)
	}
}

func TestPrintableFormHoldsNoSecret(t *testing.T) {
	t.Parallel()
	c, err := config.LoadAPI(nil, []string{
		"TRAWL_API_KEYS=a:" + keyA + ",b:" + keyB, "TRAWL_REDIS_URL=redis-sentinel://u:s3cr@t/x@h:1,h:2/main",
		"TRAWL_ADMIN_KEY=the-adm1n-key-itself", "TRAWL_GATEWAY_SECRET=the-g4teway-secret",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	slog.New(slog.NewTextHandler(&buf, nil)).LogAttrs(t.Context(), slog.LevelInfo, "settings", c.Attrs()...)
	all := buf.String() + fmt.Sprintf("%v %+v %#v", c.Keys, c.Keys, c.Keys)
	for _, secret := range []string{keyA, keyB, "s3cr", "t/x@", "adm1n", "g4teway"} {
		if strings.Contains(all, secret) {
			t.Errorf("%q is in %s", secret, all)
		}
	}
	for _, want := range []string{"TRAWL_API_KEYS=\"2 keys of 2 tenants\"", "redis-sentinel://***@h:1,h:2/main", "TRAWL_MAX_RUNNING=10", "TRAWL_ADMIN_KEY", "TRAWL_GATEWAY_SECRET"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in %s", want, all)
		}
	}
}

// Of the URL of a Redis a log shows nothing that may be a password, however it is written.
func TestRedisURLIsRedacted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ url, want string }{
		{"redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"},
		{"redis://:s3cret@h:1/0", "redis://***@h:1/0"},
		{"rediss://u:s3@cr/et@h", "rediss://***@h"},
		{"unix://u:s3cret@/run/redis.sock?db=1", "unix://***@/run/redis.sock?…"},
		{"redis-sentinel://:x@h/m?sentinel_password=s3cret", "redis-sentinel://***@h/m?…"},
		{"redis-sentinel://h/m?sentinel_user=s3&sentinel_password=cret", "redis-sentinel://h/m?…"},
		{"redis-sentinel://:x@h/m?sentinel_password=s3@cret", "redis-sentinel://***"},
		{"redis-cluster://:s3?cret@h,i", "redis-cluster://***"},
		{"redis://:s3#cret@h", "redis://***"},
		{"redis://h#s3cret", "redis://h#…"},
		{":s3cret@host", "***"},
		{"redis:s3cret", "***"},
		{"s3cret", "***"},
		{"s3://cret@h", "***"},
	} {
		c, err := config.LoadWorker(nil, []string{"TRAWL_REDIS_URL=" + tt.url}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]string{}
		for _, a := range c.Attrs() {
			shown[a.Key] = a.Value.String()
		}
		if got := shown["TRAWL_REDIS_URL"]; got != tt.want {
			t.Errorf("%s is shown as %q, want %q", tt.url, got, tt.want)
		}
	}
}

func TestKeysAreCounted(t *testing.T) {
	t.Parallel()
	for want, keys := range map[string]config.Keys{
		"0 keys of 0 tenants": nil, "1 key of 1 tenant": {"a": {keyA}}, "2 keys of 1 tenant": {"a": {keyA, keyB}},
		"2 keys of 2 tenants": {"a": {keyA}, "b": {keyB}},
	} {
		if got := keys.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestHelpNamesEverySetting(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	if _, err := config.LoadAPI([]string{"--listen=x", "--help"}, []string{"TRAWL_NOPE=1"}, &buf); !errors.Is(err, config.ErrHelp) {
		t.Fatalf("error %v, want ErrHelp", err)
	}
	help := strings.Join(strings.Fields(buf.String()), " ")
	for _, want := range []string{"--api-keys=tenant:key,... ", "redis-cluster://host:port,... (TRAWL_REDIS_URL"} {
		if !strings.Contains(help, want) {
			t.Errorf("help does not say %q:\n%s", want, buf.String())
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config.API]()) {
		if f.Anonymous {
			continue
		}
		flag := f.Tag.Get("name")
		env := "TRAWL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		if !strings.Contains(help, "--"+flag) || !strings.Contains(help, env) {
			t.Errorf("help does not name --%s and %s:\n%s", flag, env, buf.String())
		}
	}
}

func FuzzLoadAPI(f *testing.F) {
	f.Add("a:"+keyA, "1", "--listen=:0")
	f.Add("a:b:c,,\n", "1h", "--api-keys-file")
	f.Fuzz(func(t *testing.T, keys, number, arg string) {
		c, err := config.LoadAPI([]string{arg}, []string{"TRAWL_API_KEYS=" + keys, "TRAWL_MAX_RUNNING=" + number}, io.Discard)
		if err != nil {
			return
		}
		if len(c.Keys) == 0 || c.MaxRunning < 1 || c.MaxRunning > 10000 {
			t.Errorf("accepted %q, %q, %q as %v, %d", keys, number, arg, c.Keys, c.MaxRunning)
		}
	})
}
