package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

// address answers the n-th URL of a made-up site, 60 bytes long.
func address(n int) string {
	return fmt.Sprintf("https://docs.example.org/a/section/of/some/depth/p%08d/x", n)
}

// placeOf is the inverse of [address].
func placeOf(url string) (int, error) {
	const digits, tail = 8, 2
	at := len(url) - digits - tail
	if at < 0 {
		return 0, fmt.Errorf("%q is none of the made-up site", url)
	}
	n, err := strconv.Atoi(url[at : at+digits])
	if err != nil {
		return 0, fmt.Errorf("%q is none of the made-up site: %w", url, err)
	}
	return n, nil
}

// load stores a job and commits pages that lead to new URLs, without fetching: the
// work of the store alone.
type load struct {
	st    *store.Store
	job   crawl.JobRef
	next  atomic.Int64 // of the made-up URLs
	most  int          // of them
	pages []crawl.Link // the made-up URLs, parsed before anything is measured; only for the scripts alone
}

func newLoad(ctx context.Context, rdb redis.UniversalClient, most int) (*load, error) {
	return newWideLoad(ctx, rdb, most, 256)
}

// newWideLoad is newLoad for a job that may have so many pages in flight.
func newWideLoad(ctx context.Context, rdb redis.UniversalClient, most, concurrency int) (*load, error) {
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
			Concurrency: concurrency, HostConcurrency: concurrency, Retention: time.Minute,
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
	sl, err := l.begin(ctx)
	if errors.Is(err, errDeclined) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.turn(ctx, sl, count, n, func(it crawl.Item) (store.Commit, error) {
		u, err := crawl.ParseURL(it.URL)
		if err != nil {
			return store.Commit{}, err
		}
		links, err := l.links(perPage)
		return acceptedPage(it, u.Key(), links), err
	})
}

func acceptedPage(it crawl.Item, key crawl.Key, links []crawl.Link) store.Commit {
	return store.Commit{Item: it, Accepted: &store.Accepted{
		Page: crawl.Page{
			SourceURL: it.URL, URL: it.URL, Status: 200, Title: "A page of the documentation",
			FetchedAt: time.Now().UTC(), DurationMS: 12, Bytes: 6000,
			ContentType: "text/html; charset=utf-8", Charset: "utf-8", Language: "en",
		},
		Final: key, Links: links,
	}}
}

var errDeclined = errors.New("the job took no slice")

// begin begins a slice; the error is errDeclined where the job has enough of them.
func (l *load) begin(ctx context.Context) (*store.Slice, error) {
	sl, _, err := l.st.Begin(ctx, crawl.Ring{JobRef: l.job})
	if err == nil && sl == nil {
		err = errDeclined
	}
	return sl, err
}

// turn is what one slice does: it commits what outcome says of each page, in pipelines of 16, until count reaches n or
// nothing is due. A commit that does not count is an error.
func (l *load) turn(
	ctx context.Context, sl *store.Slice, count *atomic.Int64, n int64, outcome func(crawl.Item) (store.Commit, error),
) error {
	renewed := time.Now()
	x := store.Exchange{Lease: 16}
	for count.Load() < n {
		if time.Since(renewed) > store.RenewEvery {
			if _, err := l.st.Renew(ctx, sl); err != nil {
				return err
			}
			renewed = time.Now()
		}
		out, err := l.st.Exchange(ctx, sl, x)
		if err != nil {
			return err
		}
		if out.Lost {
			return errors.New("the slice was lost")
		}
		for i, c := range out.Committed {
			if c.Verdict != store.Done {
				return fmt.Errorf("the commit of %s is %s", x.Commits[i].Item.URL, c.Verdict)
			}
		}
		count.Add(int64(len(x.Commits)))
		// A commit whose script Redis did not know yet was sent again, behind the lease.
		if len(out.Items) == 0 && len(x.Commits) == 0 {
			break
		}
		x = store.Exchange{Lease: 16}
		for _, it := range out.Items {
			c, err := outcome(it)
			if err != nil {
				return err
			}
			x.Commits = append(x.Commits, c)
		}
	}
	_, err := l.st.End(ctx, sl, 0)
	return err
}

// slicesAlone is how many slices put load on the scripts: with fewer Redis waits for them.
const slicesAlone = 4

const (
	linksAlone = 20
	freshAlone = linksAlone / 2 // of them, in a full commit
)

// commitKind is one outcome whose script is measured alone.
type commitKind struct {
	name  string
	fresh int // links of each page that are new; the pages of the other kinds are in the queue before
	of    func(l *load, it crawl.Item, n int) store.Commit
	wrong func(j crawl.Job, n int64) bool // reports whether the job is not what n such commits make of it
}

var commitKinds = []commitKind{{
	name: "page with 20 links, 10 of them new", fresh: freshAlone,
	of: func(l *load, it crawl.Item, n int) store.Commit {
		first := int(l.next.Add(freshAlone)) - freshAlone
		links := append(make([]crawl.Link, 0, linksAlone), l.pages[first:first+freshAlone]...)
		if n > 2*linksAlone { // the first pages were found with no others
			links = append(links, l.known(n/2, linksAlone-freshAlone)...)
		}
		return acceptedPage(it, l.pages[n].Key, links)
	},
	wrong: func(j crawl.Job, n int64) bool { return j.Accepted != n || j.Total != 1+n*freshAlone },
}, {
	name: "page with 20 links, none of them new",
	of: func(l *load, it crawl.Item, n int) store.Commit {
		return acceptedPage(it, l.pages[n].Key, l.known(n/2, linksAlone))
	},
	wrong: func(j crawl.Job, n int64) bool { return j.Accepted < n },
}, {
	name: "page that failed",
	of: func(_ *load, it crawl.Item, _ int) store.Commit {
		return store.Commit{Item: it, Failed: &crawl.Failure{
			SourceURL: it.URL, URL: it.URL, ErrorType: "http_404", Status: 404, Message: "The server answered 404.", Attempts: 1,
		}}
	},
	wrong: func(j crawl.Job, n int64) bool { return j.Failed != n },
}, {
	name: "page to be tried again in an hour",
	of: func(_ *load, it crawl.Item, _ int) store.Commit {
		return store.Commit{Item: it, Retry: time.Hour}
	},
	wrong: func(j crawl.Job, n int64) bool { return j.Deferred != n },
}}

// known answers n links from the given place on.
func (l *load) known(place, n int) []crawl.Link {
	first := max(0, min(place, len(l.pages)-n))
	return l.pages[first : first+n]
}

// scriptCost is what scripts were in one round: how many a second, and µs of Redis each.
type scriptCost struct{ perSecond, micros float64 }

// measureScripts is measured by the part "scripts". Redis and the slices share the machine: the µs are what
// Redis could do alone.
func measureScripts(ctx context.Context, r *rig) (findings, error) {
	f, err := r.newFleet(ctx, fleetOptions{})
	if err != nil {
		return findings{}, err
	}
	defer f.stop()
	return scriptsAlone(ctx, f, r.o.Commits, r.o.Rounds)
}

// scriptsAlone measures in a Redis that it empties each time.
func scriptsAlone(ctx context.Context, f *fleet, commits, rounds int) (findings, error) {
	pages, err := sitePages(freshAlone*(commits+warmCommits+100*slicesAlone) + linksAlone)
	if err != nil {
		return findings{}, err
	}
	found := make([][]scriptCost, len(commitKinds)+len(leaseSizes))
	for range rounds {
		for i := range found {
			if err := f.fresh(ctx); err != nil {
				return findings{}, err
			}
			var c scriptCost
			if i < len(commitKinds) {
				c, err = commitsAlone(ctx, f.rdb, &commitKinds[i], pages, int64(commits))
			} else {
				c, err = leasesAlone(ctx, f.rdb, leaseSizes[i-len(commitKinds)], commits)
			}
			if err != nil {
				return findings{}, err
			}
			found[i] = append(found[i], c)
		}
	}
	return scriptFindings(found), nil
}

func scriptFindings(found [][]scriptCost) findings {
	commits := table{
		Title: "Commits of one Redis, " + strconv.Itoa(slicesAlone) + " slices, each with its part of a lease of 16",
		Columns: []column{
			{Key: "commits_per_second", Title: "commits/s", Range: true},
			{Key: "redis_us", Title: "µs of Redis' thread each", Digits: 1, Range: true},
		},
		Notes: []string{"With record, counters, the claim of the URL and the pages of the day. " +
			"The slices share the machine with Redis."},
	}
	leases := table{
		Title: "The script that leases, alone",
		Columns: []column{
			{Key: "leases_per_second", Title: "leases/s, one at a time", Range: true},
			{Key: "redis_us", Title: "µs of Redis each", Digits: 1, Range: true},
		},
	}
	for i, rounds := range found {
		t, name := &commits, ""
		if i < len(commitKinds) {
			name = commitKinds[i].name
		} else {
			t, name = &leases, fmt.Sprintf("lease of %d", leaseSizes[i-len(commitKinds)])
		}
		t.Rows = append(t.Rows, row{Name: name, Cells: map[string]cell{
			t.Columns[0].Key: overOf(rounds, func(c scriptCost) float64 { return c.perSecond }),
			t.Columns[1].Key: overOf(rounds, func(c scriptCost) float64 { return c.micros }),
		}})
	}
	return findings{Tables: []table{commits, leases}, Bars: []bar{{
		Figure: "full commits/s of one Redis", Bound: 15_000, Value: commits.Rows[0].Cells["commits_per_second"].Median,
	}}}
}

// sitePages answers the first n pages of the made-up site, parsed.
func sitePages(n int) ([]crawl.Link, error) {
	pages := make([]crawl.Link, n)
	for i := range pages {
		u, err := crawl.ParseURL(address(i))
		if err != nil {
			return nil, err
		}
		pages[i] = crawl.Link{URL: u, Key: u.Key()}
	}
	return pages, nil
}

// warmCommits come before what is measured, so that there is work for all slices.
const warmCommits = 500

// fill has n pages more be admitted, if there are so many.
func (l *load) fill(ctx context.Context, n int) error {
	const perPage = 500
	var count atomic.Int64
	return l.serve(ctx, &count, int64(n/perPage+1), perPage)
}

// commitsAlone measures n commits of a kind at least, by several slices.
func commitsAlone(
	ctx context.Context, rdb redis.UniversalClient, k *commitKind, pages []crawl.Link, n int64,
) (scriptCost, error) {
	l, err := newLoad(ctx, rdb, len(pages))
	if err != nil {
		return scriptCost{}, err
	}
	l.pages = pages
	outcome := func(it crawl.Item) (store.Commit, error) {
		place, err := placeOf(it.URL)
		switch {
		case err != nil:
			return store.Commit{}, err
		case place >= len(pages), k.fresh > 0 && int(l.next.Load()) > len(pages)-k.fresh*slicesAlone:
			return store.Commit{}, errors.New("more commits than pages are made up for")
		}
		return k.of(l, it, place), nil
	}
	var before, count atomic.Int64
	if k.fresh > 0 {
		err = l.together(ctx, 1, &before, warmCommits, outcome)
	} else {
		err = l.fill(ctx, int(n)+64*slicesAlone)
	}
	if err != nil {
		return scriptCost{}, err
	}
	job, err := l.st.Job(ctx, l.job)
	if err != nil {
		return scriptCost{}, err
	}
	if k.fresh > 0 {
		l.next.Store(job.Total) // the last commits to warm up were made and not sent: their links are new still
	}
	micros, err := threadMicros(ctx, rdb)
	if err != nil {
		return scriptCost{}, err
	}
	begun := time.Now()
	if err := l.together(ctx, slicesAlone, &count, n, outcome); err != nil {
		return scriptCost{}, err
	}
	took := time.Since(begun).Seconds()
	after, err := threadMicros(ctx, rdb)
	if err != nil {
		return scriptCost{}, err
	}
	if job, err = l.st.Job(ctx, l.job); err != nil {
		return scriptCost{}, err
	}
	done := count.Load()
	if done < n || k.wrong(job, before.Load()+done) {
		return scriptCost{}, fmt.Errorf("%d commits of %q of %d made a job of %+v", done, k.name, n, job)
	}
	return scriptCost{perSecond: float64(done) / took, micros: (after - micros) / float64(done)}, nil
}

// together begins some slices, and then has them all do their turns.
func (l *load) together(
	ctx context.Context, n int, count *atomic.Int64, commits int64, outcome func(crawl.Item) (store.Commit, error),
) error {
	slices := make([]*store.Slice, n)
	errs := make([]error, n)
	for i := range slices {
		var err error
		if slices[i], err = l.begin(ctx); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	for i, sl := range slices {
		wg.Go(func() { errs[i] = l.turn(ctx, sl, count, commits, outcome) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// threadMicros answers the CPU time of the thread of Redis so far, in µs.
func threadMicros(ctx context.Context, rdb redis.UniversalClient) (float64, error) {
	seconds, err := infoNumber(ctx, rdb, "cpu", "used_cpu_user_main_thread", "used_cpu_sys_main_thread")
	return seconds * 1e6, err
}

// leaseSizes are how many pages a lease asks for.
var leaseSizes = []int{32, 1}

// leasesAlone measures leases of a size, one in a round trip: up to 4,096 pages, or 2,048 leases, and these are given
// back, until n pages were leased. The µs are of the script, since a lease shares the round trip with commits else.
func leasesAlone(ctx context.Context, rdb redis.UniversalClient, size, n int) (scriptCost, error) {
	batch := min(n, 4096/max(2, size)) // leases
	pages := batch * size
	l, err := newWideLoad(ctx, rdb, 2*pages+1000, 2*pages+slicesAlone)
	if err != nil {
		return scriptCost{}, err
	}
	if err := l.fill(ctx, pages+64); err != nil {
		return scriptCost{}, err
	}
	leases, seconds, micros := 0, 0.0, 0.0
	for leases*size < n {
		s, us, err := l.leaseBatch(ctx, rdb, size, batch)
		if err != nil {
			return scriptCost{}, err
		}
		leases, seconds, micros = leases+batch, seconds+s, micros+us
	}
	return scriptCost{perSecond: float64(leases) / seconds, micros: micros / float64(leases)}, nil
}

// leaseBatch measures some leases by one slice, whose end gives them back. It answers their seconds, and the µs of
// their scripts.
func (l *load) leaseBatch(
	ctx context.Context, rdb redis.UniversalClient, size, batch int,
) (seconds, micros float64, err error) {
	sl, err := l.begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := rdb.ConfigResetStat(ctx).Err(); err != nil {
		return 0, 0, fmt.Errorf("reset what Redis counts: %w", err)
	}
	begun := time.Now()
	for i := range batch {
		out, err := l.st.Exchange(ctx, sl, store.Exchange{Lease: size, Holding: i * size})
		if err != nil {
			return 0, 0, err
		}
		if out.Lost || len(out.Items) != size {
			return 0, 0, fmt.Errorf("a lease of %d brought %d, lost: %v", size, len(out.Items), out.Lost)
		}
	}
	seconds = time.Since(begun).Seconds()
	stats, err := rdb.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("info: %w", err)
	}
	var calls float64
	said := stats["Commandstats"]["cmdstat_evalsha"]
	if _, err := fmt.Sscanf(said, "calls=%f,usec=%f,", &calls, &micros); err != nil || int(calls) != batch {
		return 0, 0, fmt.Errorf("%d leases are %q to Redis: %w", batch, said, err)
	}
	_, err = l.st.End(ctx, sl, 0)
	return seconds, micros, err
}
