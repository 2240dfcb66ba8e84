package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

const (
	// smallPages are the pages of the job that the big one is compared with.
	smallPages = 10
	// readConnections are how many callers read at once.
	readConnections = 16
	// readSeconds is the time of one round of one read.
	readSeconds = 1.5
	// readWarm are the requests before the first round, of which nothing counts.
	readWarm = 500
	// bout is how long a slice commits pages before the next takes its place: well below the time that it lives.
	bout = 2 * time.Second
	// keepers are how many slices commit the pages of a job at once.
	keepers = 4
)

// filler makes a job that has as many accepted pages as are wanted, by the store alone: nothing is fetched.
type filler struct {
	st    *store.Store
	job   crawl.JobRef
	pages int64
	found atomic.Int64 // URLs of the made-up site so far
	done  atomic.Int64 // pages committed
}

// fill stores a job of the tenant of the bench, which has all its pages before it and the seed alone queued.
func (f *fleet) fill(ctx context.Context, name string, pages int) (*filler, error) {
	l := &filler{st: f.st, job: crawl.JobRef{Tenant: tenant, ID: crawl.NewJobID(tenant, name)}, pages: int64(pages)}
	seed, err := crawl.ParseURL(address(0))
	if err != nil {
		return nil, err
	}
	l.found.Store(1)
	_, err = l.st.Create(ctx, store.NewJob{
		Job: l.job, Spec: json.RawMessage(`{"seed_url":"` + address(0) + `","max_pages":1000000}`), Tags: []string{"nightly"},
		Quota: crawl.Quota{MaxRunning: 100}, Inputs: []crawl.Input{{URL: seed}},
		Plan: crawl.Plan{
			Site: true, Scope: "any", Sources: []string{"*"}, MaxPages: 10_000_000, MaxDepth: 1 << 20,
			Concurrency: 256, HostConcurrency: 256, Retention: 24 * time.Hour,
		},
	})
	return l, err
}

// links answers three links of a page: to new URLs while there are any.
func (l *filler) links() ([]crawl.Link, error) {
	const n = 3
	out := make([]crawl.Link, 0, n)
	first := l.found.Add(n) - n
	for i := first; i < first+n; i++ {
		u, err := crawl.ParseURL(address(int(i % l.pages)))
		if err != nil {
			return nil, err
		}
		out = append(out, crawl.Link{URL: u, Key: u.Key()})
	}
	return out, nil
}

// commit commits pages until so many are, in all. One slice begins, since one URL is all there is to begin with.
func (l *filler) commit(ctx context.Context, until int64) error {
	told := time.Now()
	for n := 1; l.done.Load() < until; n = keepers {
		before := l.done.Load()
		var all errgroup.Group
		for range n {
			all.Go(func() error { return l.serve(ctx, until) })
		}
		if err := all.Wait(); err != nil {
			return err
		}
		if l.done.Load() == before {
			return fmt.Errorf("no page of the job is due, and %d of %d are committed", before, until)
		}
		if time.Since(told) > 10*time.Second {
			progress("  %s of %s pages are committed", number(float64(l.done.Load()), 0), number(float64(l.pages), 0))
			told = time.Now()
		}
	}
	return nil
}

// serve commits pages in pipelines of 16, as one slice and for the time of a bout, unless so many are committed before.
func (l *filler) serve(ctx context.Context, until int64) error {
	sl, _, err := l.st.Begin(ctx, crawl.Ring{JobRef: l.job})
	if err != nil || sl == nil {
		return err
	}
	var x store.Exchange
	for begun := time.Now(); time.Since(begun) < bout; {
		left := until - l.done.Load() - int64(len(x.Commits))
		x.Lease = int(max(0, min(16, left)))
		if x.Lease == 0 && len(x.Commits) == 0 {
			break
		}
		out, err := l.st.Exchange(ctx, sl, x)
		if err != nil {
			return err
		}
		l.done.Add(int64(len(x.Commits)))
		if x, err = l.fetched(out.Items); err != nil {
			return err
		}
		if len(x.Commits) == 0 {
			break
		}
	}
	if len(x.Commits) > 0 { // the bout was over
		if _, err := l.st.Exchange(ctx, sl, x); err != nil {
			return err
		}
		l.done.Add(int64(len(x.Commits)))
	}
	_, err = l.st.End(ctx, sl, 0)
	return err
}

// fetched are the commits of pages as if they had been fetched.
func (l *filler) fetched(items []crawl.Item) (x store.Exchange, err error) {
	for _, it := range items {
		u, err := crawl.ParseURL(it.URL)
		if err != nil {
			return x, err
		}
		links, err := l.links()
		if err != nil {
			return x, err
		}
		x.Commits = append(x.Commits, store.Commit{Item: it, Accepted: &store.Accepted{
			Page: crawl.Page{
				SourceURL: it.URL, URL: it.URL, Status: http.StatusOK, Title: "A page of the documentation",
				FetchedAt: time.Now().UTC(), DurationMS: 12, Bytes: 6000,
				ContentType: "text/html; charset=utf-8", Charset: "utf-8", Language: "en",
			},
			Final: u.Key(), Links: links,
		}})
	}
	return x, nil
}

// verify holds that the job has the given state and all its pages, as far as they are committed.
func (l *filler) verify(ctx context.Context, state crawl.State) error {
	j, err := l.st.Job(ctx, l.job)
	if err != nil {
		return err
	}
	done := l.done.Load()
	if j.State != state || j.Accepted != done || j.Processed != done || state.Terminal() && done != l.pages {
		return fmt.Errorf("the job of %d pages is %s with %d of %d accepted, %d were committed",
			l.pages, j.State, j.Accepted, j.Total, done)
	}
	return nil
}

// read is one thing that is read again and again, and its rounds.
type read struct {
	name   string
	load   calling
	rounds []measured
}

// reading makes a read of a path below that of a job.
func (f *fleet) reading(name string, job crawl.JobRef, path string, seconds float64, holds ...string) *read {
	address := strings.TrimPrefix(f.base[0], "http://")
	return &read{name: name, load: calling{
		Address: address, Connections: readConnections, Seconds: seconds, Status: http.StatusOK, Holds: holds,
		Request: fmt.Sprintf("GET /v1/jobs/%s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\n"+
			"Authorization: Bearer %s\r\nAccept: application/json\r\n\r\n", job.ID, path, address, f.key),
	}}
}

// status reads the status of a job, of which so many pages are accepted.
func (f *fleet) status(l *filler, state crawl.State, seconds float64) *read {
	return f.reading(fmt.Sprintf("status, %s, %s pages", state, number(float64(l.pages), 0)), l.job, "", seconds,
		`"state":"`+string(state)+`"`, `"accepted":`+strconv.FormatInt(l.done.Load(), 10)+",")
}

// records reads n records of an ended job: the first ones, or those at the end.
func (f *fleet) records(ctx context.Context, l *filler, n int64, end bool, seconds float64) (*read, error) {
	path, where, last := "/records?limit="+strconv.FormatInt(n, 10), "the first", n
	if end {
		cursor, err := f.cursor(ctx, l.job, n, l.pages-n)
		if err != nil {
			return nil, err
		}
		path, where, last = path+"&cursor="+cursor, "the last", l.pages
	}
	return f.reading(fmt.Sprintf("%s %d records of %s", where, n, number(float64(l.pages), 0)), l.job, path, seconds,
		`{"seq":`+strconv.FormatInt(last-n+1, 10)+",", `{"seq":`+strconv.FormatInt(last, 10)+",",
		`"has_more":`+strconv.FormatBool(last < l.pages)), nil
}

// cursor makes the cursor of the records behind a position, after the model of the one that the API gives behind the
// first n: a caller comes there by all the pages before, 10,000 of them where a job has a million records.
func (f *fleet) cursor(ctx context.Context, job crawl.JobRef, n, position int64) (string, error) {
	url := fmt.Sprintf("%s/v1/jobs/%s/records?limit=%d", f.base[0], job.ID, n)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("read records: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+f.key)
	text, err := answer(req)
	if err != nil {
		return "", err
	}
	var first struct {
		Next string `json:"next_cursor"`
	}
	if err := json.Unmarshal([]byte(text), &first); err != nil {
		return "", fmt.Errorf("read records: %w", err)
	}
	return cursorBehind(first.Next, n, position)
}

// cursorBehind makes the cursor of a position after the model of one whose position is n: a letter, and the position as
// eight bytes.
func cursorBehind(model string, n, position int64) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(model)
	if err != nil || len(b) != 9 || binary.BigEndian.Uint64(b[1:]) != uint64(n) {
		return "", fmt.Errorf("the cursor %q is not a letter and the position %d, so that the bench cannot make another", model, n)
	}
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(b[:1], uint64(position))), nil
}

// read measures rounds of some reads, in turn.
func (f *fleet) read(ctx context.Context, reads ...*read) error {
	for round := range f.r.o.Rounds {
		progress("  reads, round %d", round+1)
		for _, one := range reads {
			if round == 0 {
				warm := one.load
				warm.Most = readWarm
				if _, err := f.r.call(ctx, warm); err != nil {
					return fmt.Errorf("%s: %w", one.name, err)
				}
			}
			m, err := f.r.measureCall(ctx, one.load, f.rdb, f.redis, f.apis[0])
			if err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
			one.rounds = append(one.rounds, m)
		}
	}
	return nil
}

// measureReads is measured by the part "reads".
func measureReads(ctx context.Context, r *rig) (findings, error) { return r.reads(ctx, readSeconds) }

// reads measures reads, each for so many seconds.
func (r *rig) reads(ctx context.Context, seconds float64) (findings, error) {
	f, err := r.newFleet(ctx, fleetOptions{apis: 1})
	if err != nil {
		return findings{}, err
	}
	defer f.stop()
	jobs := make([]*filler, 2)
	for i, pages := range []int{smallPages, r.o.Big} {
		if jobs[i], err = f.fill(ctx, strconv.Itoa(pages), pages); err != nil {
			return findings{}, err
		}
	}
	running, err := f.statusOf(ctx, jobs, crawl.Running, seconds)
	if err != nil {
		return findings{}, err
	}
	ended, err := f.statusOf(ctx, jobs, crawl.Completed, seconds)
	if err != nil {
		return findings{}, err
	}
	var records []*read
	for _, what := range []struct {
		job *filler
		n   int64
		end bool
	}{
		{jobs[0], smallPages, false},
		{jobs[1], smallPages, false},
		{jobs[1], smallPages, true},
		{jobs[1], 100, false},
		{jobs[1], 100, true},
	} {
		one, err := f.records(ctx, what.job, what.n, what.end, seconds)
		if err != nil {
			return findings{}, err
		}
		records = append(records, one)
	}
	if err := f.read(ctx, records...); err != nil {
		return findings{}, err
	}
	return readFindings(running, ended, records, r.o.Big), nil
}

// statusOf brings jobs into a state, running with half of their pages or completed with all, and reads their status.
func (f *fleet) statusOf(ctx context.Context, jobs []*filler, state crawl.State, seconds float64) (reads []*read, err error) {
	for _, l := range jobs {
		until := l.pages
		if !state.Terminal() {
			until /= 2
		}
		if err := l.commit(ctx, until); err != nil {
			return nil, err
		}
		if err := l.verify(ctx, state); err != nil {
			return nil, err
		}
		reads = append(reads, f.status(l, state, seconds))
	}
	return reads, f.read(ctx, reads...)
}

// readFindings are the table and the bars. running and ended are the status of the small and of the big job.
func readFindings(running, ended, records []*read, big int) findings {
	t := table{Title: fmt.Sprintf("Reads, %d connections", readConnections), Columns: []column{
		{Key: "per_second", Title: "reads/s", Range: true},
		{Key: "p50_us", Title: "p50 µs"},
		{Key: "p99_us", Title: "p99 µs"},
		{Key: "api_cpu_us", Title: "CPU µs of the API"},
		{Key: "redis_cpu_us", Title: "of Redis"},
		{Key: "callers_cpu_us", Title: "of the callers"},
		{Key: "redis_commands", Title: "Redis commands"},
		{Key: "bytes", Title: "bytes"},
	}}
	for _, reads := range [][]*read{running, ended, records} {
		for _, one := range reads {
			t.Rows = append(t.Rows, one.row())
		}
	}
	t.Notes = []string{"A running job has half of its pages. CPU, commands and bytes are those of one read. The jobs were " +
		"made by the store alone, and their records are small and of one size."}
	size := number(float64(big), 0)
	return findings{Tables: []table{t}, Bars: []bar{
		{
			Figure: fmt.Sprintf("status read at %s pages to 10 pages, p50, the worse of running and ended", size),
			AtMost: true, Bound: 1.25, Digits: 2,
			Value: max(slower(running), slower(ended)),
		},
		{
			Figure: fmt.Sprintf("Redis commands of a status read: %s pages to 10", size), AtMost: true, Bound: 1, Digits: 2,
			Value: max(running[1].commands()/running[0].commands(), ended[1].commands()/ended[0].commands()),
		},
	}}
}

// slower answers the p50 of the second read to that of the first: the median of the rounds, which alternate.
func slower(reads []*read) float64 {
	ratios := make([]float64, len(reads[0].rounds))
	for i := range ratios {
		ratios[i] = reads[1].rounds[i].P50 / reads[0].rounds[i].P50
	}
	return over(ratios...).Median
}

// commands answers the Redis commands of one read, which are a whole number. What the API and the bench send besides can
// but add to them, and is less than half of one for each read.
func (r *read) commands() float64 { return math.Round(overOf(r.rounds, measured.commands).Min) }

func (r *read) row() row {
	per := func(of func(measured) float64) cell { return overOf(r.rounds, of) }
	return row{Name: r.name, Cells: map[string]cell{
		"per_second":     per(measured.perSecond),
		"p50_us":         per(func(m measured) float64 { return m.P50 }),
		"p99_us":         per(func(m measured) float64 { return m.P99 }),
		"api_cpu_us":     per(func(m measured) float64 { return m.micros("api") }),
		"redis_cpu_us":   per(func(m measured) float64 { return m.micros("redis") }),
		"callers_cpu_us": per(func(m measured) float64 { return m.CPU / float64(m.Count) }),
		"redis_commands": over(r.commands()),
		"bytes":          per(func(m measured) float64 { return m.Bytes / float64(m.Count) }),
	}}
}
