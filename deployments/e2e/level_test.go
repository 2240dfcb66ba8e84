package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"example.com/trawl/pkg/crawltest"
)

// TestLogLevel: the log level is changed while everything runs, in each process and for a while.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	d := deploy(t, 2, "TRAWL_ADMIN_KEY="+adminKey)
	d.secrets = append(d.secrets, adminKey)
	admin := http.Header{"Authorization": {"Bearer " + adminKey}, "Content-Type": {"application/json"}}
	ask := func(method, body string) fields {
		t.Helper()
		res, got := d.exchange(method, d.url+"/v1/admin/log-level", admin, body)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s answered %d: %s", method, res.StatusCode, got)
		}
		return decode[fields](t, got)
	}
	follow := func(changes int, to string) {
		t.Helper()
		for _, p := range d.procs {
			crawltest.Eventually(t, long, fmt.Sprintf("change %d of process %d, to %s", changes, p.PID(), to), func() bool {
				all := logged(t, p, "log level changed")
				return len(all) == changes && all[changes-1]["to"] == to
			})
		}
	}
	if got := ask(http.MethodGet, ""); got["level"] != nil || got["until"] != nil {
		t.Errorf("nothing is set: %v", got)
	}
	if got := ask(http.MethodPut, `{"level":"debug","for":"15m"}`); got["level"] != "debug" || got["until"] == nil {
		t.Errorf("set: %v", got)
	}
	follow(1, "DEBUG")
	site := slowSite(t, 0)
	d.watch(alpha, d.submit(alpha, fields{"urls": numbered(site, 3)}).ID).end(long)
	crawltest.Eventually(t, long, "a worker logs from debug", func() bool {
		return len(logged(t, d.procs[1], "slice begins"))+len(logged(t, d.procs[2], "slice begins")) > 0
	})
	if got := ask(http.MethodDelete, ""); got["level"] != nil {
		t.Errorf("cleared: %v", got)
	}
	follow(2, "INFO")

	// It ends although Redis is away by then: each process knows when.
	ask(http.MethodPut, `{"level":"debug","for":"15s"}`)
	follow(3, "DEBUG")
	d.redis.Stop()
	follow(4, "INFO")
	d.redis.Start()
}
