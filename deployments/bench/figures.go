package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/redisconn"
	"example.com/trawl/pkg/store"
)

// address answers the n-th URL of a made-up site, 60 bytes long.
func address(n int) string {
	return fmt.Sprintf("https://docs.example.org/a/section/of/some/depth/p%09d/x", n)
}

// load stores a job and commits pages that lead to new URLs, without fetching: the
// work of the store alone.
type load struct {
	st   *store.Store
	job  crawl.JobRef
	next atomic.Int64 // of the made-up URLs
	most int          // of them
}

func newLoad(ctx context.Context, rdb redis.UniversalClient, most int) (*load, error) {
	l := &load{st: store.New(rdb, store.Options{}), most: most}
	l.job = crawl.JobRef{Tenant: "load", ID: crawl.NewJobID("load", "")}
	seed, err := crawl.ParseURL(address(0))
	if err != nil {
		return nil, err
	}
	l.next.Store(1)
	_, err = l.st.Create(ctx, store.NewJob{
		Job: l.job, Spec: []byte(`{}`), Quota: crawl.Quota{MaxRunning: 100}, Inputs: []crawl.Input{{URL: seed}},
		Plan: crawl.Plan{
			Site: true, Scope: "any", Sources: []string{"*"}, MaxPages: 10_000_000, MaxDepth: 1 << 20,
			Concurrency: 256, HostConcurrency: 256, Retention: time.Minute,
		},
	})
	return l, err
}

// links answers n links of a page: fresh ones while there are any, else old ones.
func (l *load) links(n int) ([]crawl.Link, error) {
	out := make([]crawl.Link, 0, n)
	first := int(l.next.Add(int64(n))) - n
	for i := first; i < first+n; i++ {
		u, err := crawl.ParseURL(address(i % l.most))
		if err != nil {
			return nil, err
		}
		out = append(out, crawl.Link{URL: u, Key: u.Key()})
	}
	return out, nil
}

// serve commits pages in pipelines of 16 until count reaches n or nothing is due.
func (l *load) serve(ctx context.Context, count *atomic.Int64, n int64, perPage int) error {
	sl, _, err := l.st.Begin(ctx, crawl.Ring{JobRef: l.job})
	if err != nil || sl == nil {
		return err
	}
	x := store.Exchange{Lease: 16}
	for count.Load() < n {
		out, err := l.st.Exchange(ctx, sl, x)
		if err != nil {
			return err
		}
		count.Add(int64(len(x.Commits)))
		x = store.Exchange{Lease: 16}
		if len(out.Items) == 0 {
			break
		}
		for _, it := range out.Items {
			u, err := crawl.ParseURL(it.URL)
			if err != nil {
				return err
			}
			links, err := l.links(perPage)
			if err != nil {
				return err
			}
			x.Commits = append(x.Commits, store.Commit{Item: it, Accepted: &store.Accepted{
				Page: crawl.Page{
					SourceURL: it.URL, URL: it.URL, Status: 200, Title: "A page of the documentation",
					FetchedAt: time.Now().UTC(), DurationMS: 12, Bytes: 6000,
					ContentType: "text/html; charset=utf-8", Charset: "utf-8", Language: "en",
				},
				Final: u.Key(), Links: links,
			}})
		}
	}
	_, err = l.st.End(ctx, sl, 0)
	return err
}

// commits measures full commits a second of one Redis, with record, 20 links of which
// half are new, counters, claim, lease and release of the row; and what they cost the
// Redis thread, since the clients share the machine with it.
func commits(ctx context.Context, o options, redisURL string) (perSecond, redisMicros float64, err error) {
	rdb, err := redisconn.Open(redisURL, redisconn.Options{})
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = rdb.Close() }()
	l, err := newLoad(ctx, rdb, o.Commits*10)
	if err != nil {
		return 0, 0, err
	}
	var warm, count atomic.Int64
	if err := l.serve(ctx, &warm, 500, 20); err != nil {
		return 0, 0, err
	}
	before, err := infoNumber(ctx, rdb, "cpu", "used_cpu_user_main_thread", "used_cpu_sys_main_thread")
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for range 4 {
		wg.Go(func() { errs <- l.serve(ctx, &count, int64(o.Commits), 20) })
	}
	wg.Wait()
	took := time.Since(begun)
	for range 4 {
		if err := <-errs; err != nil {
			return 0, 0, err
		}
	}
	after, err := infoNumber(ctx, rdb, "cpu", "used_cpu_user_main_thread", "used_cpu_sys_main_thread")
	if err != nil {
		return 0, 0, err
	}
	n := float64(count.Load())
	return n / took.Seconds(), (after - before) * 1e6 / n, nil
}

// memory measures bytes of Redis for each discovered URL of 60 bytes, a tenth of
// them fetched, less what the records themselves take.
func memory(ctx context.Context, o options, redisURL string) (float64, error) {
	rdb, err := redisconn.Open(redisURL, redisconn.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = rdb.Close() }()
	if err := rdb.FlushAll(ctx).Err(); err != nil {
		return 0, fmt.Errorf("flush: %w", err)
	}
	before, err := used(ctx, rdb)
	if err != nil {
		return 0, err
	}
	l, err := newLoad(ctx, rdb, o.URLs)
	if err != nil {
		return 0, err
	}
	var count atomic.Int64
	// Ten new links a page: a tenth is fetched when all are discovered.
	if err := l.serve(ctx, &count, int64(o.URLs/10), 10); err != nil {
		return 0, err
	}
	after, err := used(ctx, rdb)
	if err != nil {
		return 0, err
	}
	var records int64
	iter := rdb.Scan(ctx, 0, "*:rec:*", 1000).Iterator()
	for iter.Next(ctx) {
		n, err := rdb.MemoryUsage(ctx, iter.Val(), 0).Result()
		if err != nil {
			return 0, fmt.Errorf("memory usage: %w", err)
		}
		records += n
	}
	if err := iter.Err(); err != nil {
		return 0, fmt.Errorf("scan: %w", err)
	}
	return float64(after-before-records) / float64(l.next.Load()), nil
}

func used(ctx context.Context, rdb redis.UniversalClient) (int64, error) {
	n, err := infoNumber(ctx, rdb, "memory", "used_memory")
	return int64(n), err
}

// infoNumber answers the sum of the given fields of a section of INFO.
func infoNumber(ctx context.Context, rdb redis.UniversalClient, section string, fields ...string) (float64, error) {
	info, err := rdb.Info(ctx, section).Result()
	if err != nil {
		return 0, fmt.Errorf("info: %w", err)
	}
	sum, found := 0.0, 0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !slices.Contains(fields, name) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("info: %s: %w", name, err)
		}
		sum += v
		found++
	}
	if found != len(fields) {
		return 0, fmt.Errorf("INFO %s lacks one of %v", section, fields)
	}
	return sum, nil
}
