package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// refusal submits a job that must be refused with 429, and returns the problem and how many
// seconds it says to wait.
func (d *deployment) refusal(tenant string, spec fields, code crawl.Code, limit string) (fields, int) {
	d.t.Helper()
	res, body := d.post(tenant, spec)
	p := problem(d.t, res, body, http.StatusTooManyRequests, code)
	after, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if err != nil || after < 1 || p["limit"] != limit || p["job_id"] != nil {
		d.t.Errorf("refused with Retry-After %q: %s", res.Header.Get("Retry-After"), body)
	}
	return p, after
}

// jobs counts a tenant's jobs.
func (d *deployment) jobs(tenant string) int {
	d.t.Helper()
	res, body := d.exchange(http.MethodGet, d.url+"/v1/jobs?limit=100", d.as(tenant), "")
	if res.StatusCode != http.StatusOK {
		d.t.Fatalf("list answered %d: %s", res.StatusCode, body)
	}
	return len(decode[struct{ Items []crawl.Job }](d.t, body).Items)
}

// TestQueuedQuota: one job runs and two wait, with their places; what is more is refused and
// leaves nothing, and another tenant is not concerned.
func TestQueuedQuota(t *testing.T) {
	t.Parallel()
	d := deploy(t, 1, "TRAWL_MAX_RUNNING=1", "TRAWL_MAX_QUEUED=2")
	site := slowSite(t, 100*time.Millisecond)
	open := make(chan struct{})
	shut := crawltest.NewHandlerSite(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-open:
		case <-r.Context().Done():
		}
	}))
	first := d.submit(alpha, fields{"urls": numbered(shut, 1)}).ID
	w := d.watch(alpha, first)
	var waiting []string
	for i := range 2 {
		j := d.submit(alpha, fields{"urls": numbered(site, 3)})
		if j.State != crawl.Queued || j.WaitingFor != crawl.WaitingTenantQuota || j.Position != int64(i)+1 {
			t.Errorf("submission %d answers %+v", i, j)
		}
		waiting = append(waiting, j.ID)
	}
	for range 3 {
		d.refusal(alpha, fields{"urls": numbered(site, 3)}, crawl.CodeQuotaExceeded, "max_queued")
	}
	if n := d.jobs(alpha); n != 3 {
		t.Errorf("there are %d jobs, want 3", n)
	}
	if j := d.submit(beta, fields{"urls": numbered(site, 1)}); j.WaitingFor == crawl.WaitingTenantQuota {
		t.Errorf("the other tenant waits as %+v", j)
	}
	if j := d.cancel(alpha, waiting[0]); j.State != crawl.Cancelled {
		t.Errorf("cancelled as %+v", j)
	}
	last := d.submit(alpha, fields{"urls": numbered(site, 3)}) // in the place of that
	if last.Position != 2 {
		t.Errorf("the last is at %d", last.Position)
	}
	close(open)
	for _, id := range []string{waiting[1], last.ID} {
		if j := d.watch(alpha, id).end(long); j.State != crawl.Completed {
			t.Errorf("ended as %+v", j)
		}
	}
	w.end(long)
}

// TestSubmissionRate: replays count, and what is refused may come again when the answer says.
func TestSubmissionRate(t *testing.T) {
	t.Parallel()
	d := deploy(t, 0, "TRAWL_SUBMISSIONS_PER_SECOND=1")
	spec := fields{"urls": []string{"http://127.0.0.1:9/"}}
	key := crawltest.Random()
	// A machine that is busy may need a second for two calls: one of many comes too early.
	accepted, refused := 0, 0
	for refused == 0 {
		res, body := d.post(alpha, spec, "Idempotency-Key", key)
		if res.StatusCode == http.StatusAccepted {
			if accepted++; accepted > 60 {
				t.Fatal("no replay is refused")
			}
			continue
		}
		refused++
		p := problem(t, res, body, http.StatusTooManyRequests, crawl.CodeRateLimited)
		if res.Header.Get("Retry-After") != "1" || p["limit"] != "submissions_per_second" {
			t.Errorf("refused with Retry-After %q: %s", res.Header.Get("Retry-After"), body)
		}
	}
	crawltest.Eventually(t, long, "a replay to be taken again", func() bool {
		res, _ := d.post(alpha, spec, "Idempotency-Key", key)
		return res.StatusCode == http.StatusAccepted && res.Header.Get("Idempotent-Replayed") == "true"
	})
	if n := d.jobs(alpha); n != 1 {
		t.Errorf("there are %d jobs, want 1", n)
	}
}

// awayFromMidnight leaves a test out that a new day would spoil.
func awayFromMidnight(t *testing.T) (left time.Duration) {
	t.Helper()
	now := time.Now().UTC()
	left = now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
	if left < ready+long {
		t.Skipf("%v before midnight UTC, where the day of a quota ends", left)
	}
	return left
}

// TestDayQuota: of what two workers crawl for the jobs of a tenant at once, just as many pages
// are settled as its day has, whatever became of them. The jobs wait, and can be cancelled;
// submissions are refused until midnight; another tenant is not concerned.
func TestDayQuota(t *testing.T) {
	t.Parallel()
	awayFromMidnight(t)
	const limit, jobs, pages = 50, 3, 40
	d := deploy(t, 2, fmt.Sprintf("TRAWL_PAGES_PER_DAY=%d", limit))
	site := crawltest.NewHandlerSite(t, branching(true)) // every other page fails
	var ids []string
	for k := range jobs {
		var urls []string
		for i := range pages {
			urls = append(urls, fmt.Sprintf("%s/%d", site.URL, 1000*(k+1)+i))
		}
		ids = append(ids, d.submit(alpha, fields{"urls": urls, "concurrency": 16}).ID)
		d.watch(alpha, ids[k])
	}
	look := func() (processed int64, rest bool) {
		rest = true
		for _, id := range ids {
			j := d.status(alpha, id)
			processed += j.Processed
			rest = rest && (j.State.Terminal() || j.WaitingFor == crawl.WaitingTenantQuota && j.Position == 0)
		}
		return processed, rest
	}
	crawltest.Eventually(t, long, "the day to be used up", func() bool {
		n, rest := look()
		if n > limit {
			t.Fatalf("%d pages are processed, want %d", n, limit)
		}
		return n == limit && rest
	})
	_, after := d.refusal(alpha, fields{"urls": numbered(site, 1)}, crawl.CodeQuotaExceeded, "pages_per_day")
	if left := awayFromMidnight(t); after < int(left.Seconds())-60 || after > int(left.Seconds())+60 {
		t.Errorf("the refusal says to wait for %d s, midnight is in %v", after, left)
	}
	other := d.submit(beta, fields{"urls": numbered(site, 3)}).ID
	d.watch(beta, other).end(long)
	if n, rest := look(); n != limit || !rest {
		t.Errorf("%d pages after the other tenant's job, want %d; at rest: %v", n, limit, rest)
	}
	for _, id := range ids {
		before := d.status(alpha, id)
		if j := d.cancel(alpha, id); before.State == crawl.Running && (j.State != crawl.Cancelled || j.Processed != before.Processed) {
			t.Errorf("cancelled as %+v", j)
		}
	}
}

// TestByteQuota: the job that reaches its bytes keeps what it has, that page too, and is cut
// short although other pages are in flight.
func TestByteQuota(t *testing.T) {
	t.Parallel()
	const most, size, pages = 100_000, 10_000, 200
	site := crawltest.NewHandlerSite(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintf(w, "%-*s", size, r.URL.Path) // the client may be gone
	}))
	d := deploy(t, 2, fmt.Sprintf("TRAWL_MAX_BYTES=%d", most))
	job := d.submit(alpha, fields{"urls": numbered(site, pages), "concurrency": 8}).ID
	j := d.watch(alpha, job).end(long)
	// What is in flight when the limit is met may still be given: no more than eight pages.
	if j.State != crawl.Cancelled || j.StopReason != crawl.StopByteLimit || j.Bytes < most || j.Bytes > most+8*size ||
		j.Accepted != j.Bytes/size || j.Accepted+j.Cancelled != pages || j.Failed != 0 {
		t.Errorf("ended as %+v", j)
	}
	if n := len(d.records(alpha, job)); int64(n) != j.Accepted {
		t.Errorf("%d records of %d pages", n, j.Accepted)
	}
	small := d.submit(alpha, fields{"urls": numbered(site, most/size)}).ID
	if j := d.watch(alpha, small).end(long); j.State != crawl.Completed || j.Bytes != most {
		t.Errorf("a job that just fits ended as %+v", j)
	}
}

// TestQuotaIsRaised: a job that waits for the pages of a new day goes on at once when the
// admin gives its tenant more of them, in whichever order the tenant got job and quota.
func TestQuotaIsRaised(t *testing.T) {
	t.Parallel()
	awayFromMidnight(t)
	const pages = 20
	d := deploy(t, 1, "TRAWL_ADMIN_KEY="+adminKey)
	d.secrets = append(d.secrets, adminKey)
	admin := http.Header{"Authorization": {"Bearer " + adminKey}, "Content-Type": {"application/json"}}
	grant := func(method, path, body string, want int) {
		t.Helper()
		if res, answer := d.exchange(method, d.url+"/v1/admin/tenants"+path, admin, body); res.StatusCode != want {
			t.Fatalf("%s %s answered %d: %s", method, path, res.StatusCode, answer)
		}
	}
	grant(http.MethodPost, "", `{"name":"alpha","quota":{"pages_per_day":5}}`, http.StatusCreated)
	site := crawltest.NewHandlerSite(t, branching(false))
	job := d.submit(alpha, fields{"urls": numbered(site, pages)}).ID
	w := d.watch(alpha, job)
	crawltest.Eventually(t, long, "the day to be used up", func() bool {
		j := d.status(alpha, job)
		return j.Processed == 5 && j.WaitingFor == crawl.WaitingTenantQuota && j.Position == 0
	})
	grant(http.MethodPatch, "/alpha", `{"quota":{"pages_per_day":1000}}`, http.StatusOK)
	if j := w.end(long); j.State != crawl.Completed || j.Accepted != pages {
		t.Errorf("ended as %+v", j)
	}
}
