package queue

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// A server that runs is a worker; one that is gone is none, whether it said so or was killed.
func TestWorkers(t *testing.T) {
	t.Parallel()
	r := crawltest.Mini(t) // nobody else's servers are there
	workers := func(want int64) {
		t.Helper()
		crawltest.Eventually(t, time.Minute, "as many workers as run", func() bool {
			n, err := Workers(t.Context(), r.Client)
			if err != nil {
				t.Fatal(err)
			}
			return n == want
		})
	}
	workers(0)
	killed := redis.Z{Score: float64(time.Now().Add(-time.Second).Unix()), Member: "asynq:servers:{killed:1:a}"}
	if err := r.Client.ZAdd(t.Context(), serversKey, killed).Err(); err != nil {
		t.Fatal(err)
	}
	h := newHouse(t, r)
	h.serve(t, ServerOptions{}, nil)
	workers(1)
	second := h.serve(t, ServerOptions{}, nil)
	workers(2)
	second.Shutdown()
	workers(1)
	if err := r.Client.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Workers(t.Context(), r.Client); crawl.CodeOf(err) != crawl.CodeUnavailable {
		t.Errorf("%v", err)
	}
}
