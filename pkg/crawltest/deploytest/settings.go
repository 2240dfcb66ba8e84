package deploytest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/config"
	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/netguard"
	"example.com/trawl/pkg/redisconn"
)

// Process is one of the two programs of Trawl that are deployed apart.
type Process string

// The programs.
const (
	API    Process = "api"
	Worker Process = "worker"
)

// Settings is what a process makes of its environment.
type Settings struct {
	Listen        string        // host:port
	ShutdownGrace time.Duration // how long work in flight may go on after the signal to stop
}

// example is a value of each setting that is given as a file.
var example = map[string]string{
	"TRAWL_API_KEYS":       "acme:0123456789abcdef0123456789abcdef",
	"TRAWL_ADMIN_KEY":      "admin-0123456789abcdef0123456789",
	"TRAWL_GATEWAY_SECRET": "gateway-0123456789abcdef01234567",
	"TRAWL_REDIS_URL":      "redis://trawl:password@redis.internal:6379/0",
}

// Load reads an environment as the process p does at its start, so that a setting whose name or value
// is wrong is found before it is deployed. mounted says whether a file that a …_FILE names will be
// there; in its place an example is read. What holds of files that are there is checked when they are.
func Load(t testing.TB, p Process, env map[string]string, mounted func(path string) bool) (Settings, error) {
	t.Helper()
	var environ []string
	var faults []error
	for name, value := range env {
		if setting, ok := strings.CutSuffix(name, "_FILE"); ok && strings.HasPrefix(name, "TRAWL_") {
			if !mounted(value) {
				faults = append(faults, fmt.Errorf("%s: nothing puts a file at %s", name, value))
			}
			value = filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(value, []byte(example[setting]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		environ = append(environ, name+"="+value)
	}
	var s Settings
	var err error
	switch p {
	case API:
		var c config.API
		c, err = config.LoadAPI(nil, environ, io.Discard)
		s = Settings{c.Listen, c.ShutdownGrace}
		faults = append(faults, shared(c.Shared))
	case Worker:
		var c config.Worker
		c, err = config.LoadWorker(nil, environ, io.Discard)
		s = Settings{c.Listen, c.ShutdownGrace}
		_, errPrivate := netguard.Parse(c.PrivateHosts)
		_, errDenied := netguard.ParseDenied(c.DeniedNetworks)
		faults = append(faults, shared(c.Shared), errPrivate, errDenied)
	}
	return s, errors.Join(append(faults, err)...)
}

// shared checks what the mains check themselves.
func shared(c config.Shared) error {
	_, err := crawl.ParseSources(c.AllowedSources)
	if c.AllowedSources == "" {
		err = errors.New("TRAWL_ALLOWED_SOURCES is empty: nothing could be crawled")
	}
	rdb, errRedis := redisconn.Open(c.RedisURL, redisconn.Options{}) // which connects to nothing yet
	if errRedis == nil {
		errRedis = rdb.Close()
	}
	return errors.Join(err, errRedis)
}
