package queue

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// serversKey is asynq's ZSET of the servers that run, by the time in seconds since the epoch at
// which each is taken for gone: 10 s after it was last seen.
const serversKey = "asynq:servers"

// Workers returns how many workers there are. One that was killed counts for up to 10 s more.
// It is one ZCOUNT, whatever their number. The error is a [crawl.Fault] of code unavailable.
func Workers(ctx context.Context, rdb redis.UniversalClient) (int64, error) {
	n, err := rdb.ZCount(ctx, serversKey, strconv.FormatInt(time.Now().Unix(), 10), "+inf").Result()
	if err != nil {
		return 0, unavailable(err)
	}
	return n, nil
}
