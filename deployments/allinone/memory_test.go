package allinone

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/redisconn"
)

// open starts a store and a client of it, both of which end with the test.
func open(t *testing.T) (*memory, redis.UniversalClient) {
	t.Helper()
	m := startMemory()
	rdb, err := redisconn.Open(memoryURL, redisconn.Options{Dial: m.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
		m.stop()
	})
	return m, rdb
}

func TestMemory(t *testing.T) {
	t.Parallel()
	m, rdb := open(t)
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
	if addr := m.server.Addr(); addr != "" {
		t.Errorf("the store listens on %s, where five bytes end the process", addr)
	}
}

// A store that was stopped stays so, and stopping it breaks its connections.
func TestMemoryStops(t *testing.T) {
	t.Parallel()
	m := startMemory()
	conn, err := m.dial(t.Context(), "tcp", "memory:6379")
	if err != nil {
		t.Fatal(err)
	}
	m.stop()
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of a store that was stopped", n)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.dial(t.Context(), "tcp", "memory:6379"); err == nil {
		t.Error("a store that was stopped began again")
	}
}

// A pipeline that is longer than every buffer, in both directions, comes through.
func TestLongPipeline(t *testing.T) {
	t.Parallel()
	_, rdb := open(t)
	ctx := t.Context()
	value := strings.Repeat("v", 4000)
	const n = 500
	if _, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range n {
			p.Append(ctx, "k", value)
			p.Get(ctx, "other")
			p.Set(ctx, "other", value, 0)
		}
		return nil
	}); err != nil && err != redis.Nil { //nolint:errorlint // the first GET finds nothing
		t.Fatal(err)
	}
	if got := rdb.StrLen(ctx, "k").Val(); got != n*int64(len(value)) {
		t.Errorf("%d bytes, want %d", got, n*len(value))
	}
	all, err := rdb.Get(ctx, "k").Result()
	if err != nil || all != strings.Repeat(value, n) {
		t.Errorf("%d bytes come back, %v", len(all), err)
	}
}

// What is published arrives on another connection.
func TestPublish(t *testing.T) {
	t.Parallel()
	_, rdb := open(t)
	sub := rdb.Subscribe(t.Context(), "c")
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Publish(t.Context(), "c", "word").Err(); err != nil {
		t.Fatal(err)
	}
	if got := crawltest.Receive(t, time.Minute, "what was published", sub.Channel()); got.Payload != "word" {
		t.Errorf("got %v", got)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}
