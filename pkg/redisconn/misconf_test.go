package redisconn_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// A server that cannot write its snapshot answers PING with MISCONF. It is not down.
func TestCollectorOfAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := crawltest.Private(t, "--save", "3600 1", "--dir", dir, "--appendonly", "no")
	if err := os.MkdirAll(filepath.Join(dir, "dump.rdb", "x"), 0o700); err != nil { // what cannot be replaced
		t.Fatal(err)
	}
	defer r.Client.ConfigSet(t.Context(), "save", "") // or it would refuse to stop
	_ = r.Client.BgSave(t.Context()).Err()
	crawltest.Eventually(t, 5*time.Second, "the snapshot to fail", func() bool {
		return r.Client.Set(t.Context(), "a", "b", 0).Err() != nil
	})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(redisconn.NewCollector(r.Client))
	got := values(t, reg)
	if ok, told := got["trawl_redis_persistence_ok "+r.Addr]; !told || ok != 0 || got["trawl_redis_up "+r.Addr] != 1 {
		t.Errorf("%v", got)
	}
}
