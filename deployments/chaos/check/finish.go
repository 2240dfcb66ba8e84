package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/trawl/pkg/client"
	"example.com/trawl/pkg/crawl"
)

const (
	// finalTime bounds all that is read when the jobs have ended.
	finalTime = 3 * time.Minute
	// finalJobs are read at a time.
	finalJobs = 4
	// settleTime bounds the wait for what is left behind: slots and slices live 12 s without renewal.
	settleTime = 20 * time.Second
)

// Finish is called when Run has returned and no fault is on any more. It goes on to watch until
// every job that was accepted has ended; one that has not when ctx ends is a violation. Then it
// reads each of them whole and judges it.
func (l *Load) Finish(ctx context.Context) Report {
	watching, stop := context.WithCancel(ctx)
	r := l.watch(watching)
	l.drain(ctx)
	stop()
	l.rest(r)
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalTime)
	defer cancel()
	report := l.judgeAll(final)
	l.judgeKeys(final)
	l.judgeLeft(final, &report)
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
	return l.fill(report)
}

// drain waits until every job has ended, and every submission is answered.
func (l *Load) drain(ctx context.Context) {
	l.mu.Lock()
	pending := l.unanswered
	l.unanswered = nil
	l.mu.Unlock()
	var group sync.WaitGroup
	for _, j := range pending {
		group.Go(func() { l.submit(ctx, j) })
	}
	group.Wait()
	told := time.Now()
	for {
		live := l.live()
		if len(live) == 0 {
			break
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			l.log("%d jobs are still to end", len(live))
		}
		if !wait(ctx, 100*time.Millisecond) {
			break
		}
	}
	for _, j := range l.live() {
		l.violate(j, "never ends", "its last status is %s", lastOf(j))
	}
	l.mu.Lock()
	pending = l.unanswered
	l.mu.Unlock()
	for _, j := range pending {
		l.violate(j, "never answered", "the submission was sent %d times", j.sent.Load())
	}
}

func lastOf(j *job) string {
	s := j.status()
	if s == nil {
		return "not read"
	}
	return fmt.Sprintf("%s, %s", s.State, s.counts())
}

// tally is what is summed up over jobs.
type tally struct {
	mu        sync.Mutex
	report    Report
	collected map[string]map[string]bool // source_url of accepted pages by tenant and collection
	clients   map[string]*client.Client
}

// judgeAll judges every job that ended, and the collections.
func (l *Load) judgeAll(ctx context.Context) Report {
	t := &tally{
		report: Report{
			JobsByState: map[string]int{}, PagesByState: map[string]int64{}, FailedByType: map[string]int64{},
			QueueLeft: map[string]int64{},
		},
		collected: map[string]map[string]bool{}, clients: map[string]*client.Client{},
	}
	for _, tenant := range l.tenants {
		c, err := client.New(l.o.API(), l.o.Key[tenant], client.WithHTTPClient(l.clients[0]))
		if err != nil {
			l.violate(nil, "no client", "%v", err)
			return t.report
		}
		t.clients[tenant] = c
	}
	var group sync.WaitGroup
	turns := make(chan struct{}, finalJobs)
	for _, j := range l.all() {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			l.judgeJob(ctx, j, t)
		})
	}
	group.Wait()
	for name, want := range t.collected {
		tenant, collection, _ := strings.Cut(name, " ")
		l.judgeCollection(ctx, t, tenant, collection, want)
	}
	return t.report
}

// whole is all that is read of one ended job.
type whole struct {
	status  *status
	records []client.Record
	errors  []client.PageError
	urls    []client.URLInfo // without those that were refused
}

// judgeJob reads a job whole and judges it.
func (l *Load) judgeJob(ctx context.Context, j *job, t *tally) {
	j.reading.Lock()
	defer j.reading.Unlock()
	l.read(ctx, j) // an ended job is as it was
	s := j.status()
	t.mu.Lock()
	t.report.Jobs++
	t.report.JobsByState[string(j.state())]++
	t.mu.Unlock()
	if s == nil || !s.State.Terminal() {
		return // that was told
	}
	w, err := readWhole(ctx, t.clients[j.tenant], j.name())
	if err != nil {
		l.violate(j, "an ended job cannot be read", "%v", err)
		return
	}
	w.status = s
	l.judgeCounts(j, w)
	l.judgeModel(j, w)
	if look := l.look(ctx, j); look == nil || look.counts() != s.counts() || look.State != s.State {
		l.violate(j, "HTTP and Redis differ", "%s by HTTP, %+v in Redis", s.counts(), look)
	}
	if j.retryOf != nil {
		l.judgeRetry(ctx, j, w, t)
	}
	t.add(j, w)
}

// add sums a job up.
func (t *tally) add(j *job, w *whole) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.report
	r.Pages += w.status.Total
	r.Records += int64(len(w.records))
	for i := range w.urls {
		r.PagesByState[string(w.urls[i].State)]++
	}
	for i := range w.errors {
		r.FailedByType[w.errors[i].ErrorType]++
		if w.errors[i].ErrorType == string(crawl.CodeWorkerLost) {
			r.WorkerLost++
		}
	}
	if j.collection == "" {
		return
	}
	name := j.tenant + " " + j.collection
	if t.collected[name] == nil {
		t.collected[name] = map[string]bool{}
	}
	for i := range w.records {
		t.collected[name][w.records[i].SourceURL] = true
	}
}

func readWhole(ctx context.Context, c *client.Client, id string) (*whole, error) {
	w := &whole{}
	for rec, err := range c.Records(ctx, id, client.PageSize(500)) {
		if err != nil {
			return nil, err
		}
		w.records = append(w.records, rec)
	}
	for e, err := range c.Errors(ctx, id, client.PageSize(500)) {
		if err != nil {
			return nil, err
		}
		w.errors = append(w.errors, e)
	}
	for u, err := range c.URLs(ctx, id, client.URLsQuery{PageSize: 500}) {
		if err != nil {
			return nil, err
		}
		if u.State != client.URLRefused {
			w.urls = append(w.urls, u)
		}
	}
	return w, nil
}

// judgeCounts compares the lists of a job with its status and with each other.
func (l *Load) judgeCounts(j *job, w *whole) {
	s, states := w.status, map[client.URLState]int64{}
	outcomes := map[string]string{} // by URL
	for i := range w.urls {
		u := &w.urls[i]
		states[u.State]++
		if first, ok := outcomes[u.URL]; ok {
			l.double(j, fmt.Sprintf("%s (%s and %s)", u.URL, first, u.State))
		}
		outcomes[u.URL] = string(u.State)
	}
	for _, c := range []struct {
		name       string
		status, is int64
	}{
		{"accepted", s.Accepted, states[client.URLAccepted]},
		{"failed", s.Failed, states[client.URLFailed]},
		{"skipped", s.Skipped, states[client.URLSkipped]},
		{"cancelled", s.Cancelled, states[client.URLCancelled]},
		{"total", s.Total, int64(len(w.urls))},
		{"records", s.Records, int64(len(w.records))},
		{"accepted records", s.Accepted, int64(len(w.records))}, // no job here asks for items
		{"errors", s.Failed, int64(len(w.errors))},
	} {
		if c.status != c.is {
			l.violate(j, "lists and counts differ", "%s is %d in the status and %d are listed", c.name, c.status, c.is)
		}
	}
	l.judgeEach(j, w, outcomes)
}

// judgeEach finds what is recorded twice, and what one list has otherwise than another.
func (l *Load) judgeEach(j *job, w *whole, outcomes map[string]string) {
	seen, finals := map[string]bool{}, map[string]bool{}
	for i := range w.records {
		r := &w.records[i]
		if seen[r.SourceURL] {
			l.double(j, r.SourceURL)
		} else if finals[r.URL] {
			l.double(j, r.URL+" (where it ended)")
		}
		seen[r.SourceURL], finals[r.URL] = true, true
		if outcomes[r.SourceURL] != string(client.URLAccepted) {
			l.violate(j, "a record of a page that is not accepted", "%s is %q", r.SourceURL, outcomes[r.SourceURL])
		}
		if r.Seq != int64(i+1) {
			l.violate(j, "records are not in order", "record %d stands in place %d", r.Seq, i+1)
		}
	}
	for i := range w.errors {
		e := &w.errors[i]
		if seen[e.SourceURL] {
			l.double(j, e.SourceURL+" (an error)")
		}
		seen[e.SourceURL] = true
		if outcomes[e.SourceURL] != string(client.URLFailed) {
			l.violate(j, "an error of a page that has not failed", "%s is %q", e.SourceURL, outcomes[e.SourceURL])
		}
		l.judgeLostWorker(j, e)
	}
}

// lostWorkers is after how many lost workers a page is given up.
const lostWorkers = 5

func (l *Load) judgeLostWorker(j *job, e *client.PageError) {
	if e.ErrorType != string(crawl.CodeWorkerLost) {
		return
	}
	if e.Attempts < lostWorkers {
		l.violate(j, "worker_lost too early", "%s after %d tries", e.SourceURL, e.Attempts)
	}
	if l.o.Kills != nil && l.o.Kills() < lostWorkers {
		l.violate(j, "worker_lost without kills", "%s, and %d workers were killed or stalled", e.SourceURL, l.o.Kills())
	}
}

// judgeModel compares a job with the model of the site.
func (l *Load) judgeModel(j *job, w *whole) {
	s := w.status
	c := crawlOf{
		site: j.site, inputs: j.inputs, maxDepth: j.maxDepth, urls: w.urls,
		complete: s.State != crawl.Cancelled, full: s.StopReason == crawl.StopPageLimit,
		sitemap: j.sitemap && s.Report.Sitemaps > 0 && s.Report.SitemapsFailed == 0,
	}
	if j.retryOf != nil {
		c.inputs = urlsOf(w.urls) // judgeRetry knows which they are
	}
	lost, double, faults := l.site.judge(&c)
	for _, u := range lost {
		l.lost(j, u)
	}
	for _, u := range double {
		l.double(j, u)
	}
	if len(faults) > 0 {
		l.violate(j, "the model of the site", "%d faults: %s", len(faults), strings.Join(faults[:min(3, len(faults))], "; "))
	}
	switch {
	case c.full && s.Total != j.maxPages:
		l.violate(j, "page_limit with room", "total is %d of %d", s.Total, j.maxPages)
	case !j.site && s.State != crawl.Cancelled && s.StopReason != crawl.StopFrontierEmpty:
		l.violate(j, "wrong stop_reason", "%s of a list that ended as %s", s.StopReason, s.State)
	case s.State == crawl.Cancelled && s.StopReason == crawl.StopCancelled && !j.asked():
		l.violate(j, "cancelled by nobody", "%s", s.counts())
	case s.StopReason == crawl.StopTimeLimit && j.kind != "hurried" && !j.hurriedBefore():
		l.violate(j, "wrong stop_reason", "time_limit of a job that has an hour")
	case s.StopReason == crawl.StopInternal:
		l.violate(j, "internal", "%s", s.raw)
	}
}

// asked reports whether somebody cancelled the job.
func (j *job) asked() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cancelled
}

// hurriedBefore reports whether the job has its time limit from one that it retries.
func (j *job) hurriedBefore() bool {
	for j.retryOf != nil {
		j = j.retryOf
	}
	return j.kind == "hurried"
}

// urlsOf answers the URLs of a job, sorted.
func urlsOf(urls []client.URLInfo) []string {
	out := make([]string, len(urls))
	for i := range urls {
		out[i] = urls[i].URL
	}
	slices.Sort(out)
	return out
}

// judgeRetry compares the inputs of a retry with the failed URLs of the job that it retries.
func (l *Load) judgeRetry(ctx context.Context, j *job, w *whole, t *tally) {
	if w.status.RetryOf != j.retryOf.name() {
		l.violate(j, "wrong retry_of", "it is %q, want %s", w.status.RetryOf, j.retryOf.name())
	}
	var want []string
	for e, err := range t.clients[j.tenant].Errors(ctx, j.retryOf.name(), client.PageSize(500)) {
		if err != nil {
			l.violate(j, "an ended job cannot be read", "%v", err)
			return
		}
		want = append(want, e.SourceURL)
	}
	slices.Sort(want)
	if got := urlsOf(w.urls); !slices.Equal(got, want) {
		l.violate(j, "a retry of other pages", "of %d URLs, where %d failed", len(got), len(want))
	}
}

// judgeCollection compares the items of a collection with the accepted pages of its jobs.
func (l *Load) judgeCollection(ctx context.Context, t *tally, tenant, name string, want map[string]bool) {
	got := map[string]bool{}
	for item, err := range t.clients[tenant].Items(ctx, name, client.ItemsQuery{PageSize: 100}) {
		if err != nil {
			if len(want) > 0 {
				l.violate(nil, "a collection cannot be read", "%s of %s: %v", name, tenant, err)
			}
			return
		}
		if got[item.SourceURL] {
			if l.violate(nil, "an item is in a collection twice", "%s in %s of %s", item.SourceURL, name, tenant) {
				l.count(func(f *figures) { f.double++ })
			}
		}
		got[item.SourceURL] = true
	}
	t.report.Items += int64(len(got))
	for _, u := range slices.Sorted(maps.Keys(want)) {
		if !got[u] {
			if l.violate(nil, "an accepted page is not in its collection", "%s in %s of %s", u, name, tenant) {
				l.count(func(f *figures) { f.lost++ })
			}
		}
	}
	for _, u := range slices.Sorted(maps.Keys(got)) {
		if !want[u] {
			l.violate(nil, "a collection has what no job found", "%s in %s of %s", u, name, tenant)
		}
	}
}

// judgeKeys sends every submission once more: each answers its job, as a replay.
func (l *Load) judgeKeys(ctx context.Context) {
	var group sync.WaitGroup
	turns := make(chan struct{}, finalJobs)
	for _, j := range l.all() {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			l.replay(ctx, j)
			if ctx.Err() != nil {
				l.violate(j, "a key is not answered", "within %v", finalTime)
			}
		})
	}
	group.Wait()
}

// fill adds the figures to a report.
func (l *Load) fill(r Report) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.figures
	r.Lost, r.Double, r.Violated, r.Violations = f.lost, f.double, f.violations, slices.Clone(l.violations)
	r.Submissions, r.Repeats, r.Replays = f.submitted, f.repeats, f.replays
	r.StatusReads, r.RedisLooks, r.RecordPages, r.Outages = f.reads, f.looks, f.pages, f.outages
	r.Controls, r.Effective = maps.Clone(f.controls), maps.Clone(f.effective)
	r.Cancels, r.LongestCancel = f.cancels, f.longestCancel.Seconds()
	r.CancelsUnderFaults, r.LongestCancelFaulty = f.faultyCancels, f.longestFaulty.Seconds()
	r.LongestPause, r.LongestPauseFaulty = f.longestPause.Seconds(), f.longestPauseBad.Seconds()
	if l.o.Server != nil {
		var least time.Duration
		r.SiteRequests, r.SiteMostAtOnce, least = l.o.Server.Traffic()
		r.SiteLeastStart = least.Seconds()
	}
	return r
}
