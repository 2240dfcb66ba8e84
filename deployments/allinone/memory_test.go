package allinone

import (
	"net/url"
	"testing"
	"time"

	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	m, err := startMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.stop)
	rdb, err := redisconn.Open(m.url(), redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	ctx := t.Context()
	if err := rdb.Set(ctx, "stays", "1", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(ctx, "goes", "1", time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	crawltest.Eventually(t, time.Minute, "the key has expired", func() bool {
		return rdb.Exists(ctx, "goes").Val() == 0
	})
	if rdb.Exists(ctx, "stays").Val() != 1 {
		t.Error("a key expired before its time")
	}

	u, err := url.Parse(m.url())
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []*url.Userinfo{nil, url.UserPassword("", "guess")} {
		u.User = who
		stranger, err := redisconn.Open(u.String(), redisconn.Options{MaxRetries: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stranger.Close() })
		if err := stranger.Get(ctx, "stays").Err(); err == nil {
			t.Errorf("%v reads what is stored", who)
		}
	}
}
