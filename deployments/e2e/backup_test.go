package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
)

// backups takes both backups of the runbook while a job runs, loses the machine with all that runs
// on it, and restores each on another Redis.
func backups(t *testing.T, b *runbook) {
	single(t, "each master has files of its own, saved and restored as here, one by one")
	const pages = 4000
	gen := gensite.New(pages, 12, 2000, 40*time.Millisecond)
	site := crawltest.NewHandlerSite(t, gen)
	small := crawltest.NewSite(t, []byte(everything))
	d := deploy(t, 2, "TRAWL_ADMIN_KEY="+adminKey)
	o := b.operator(d, nil)
	lost := &lostDeployment{ended: fields{"seed_url": small.URL + "/", "formats": []string{"markdown", "links"}}}
	res, body := d.post(alpha, lost.ended, "Idempotency-Key", "ended")
	if res.StatusCode != http.StatusAccepted {
		t.Fatalf("not accepted: %d %s", res.StatusCode, body)
	}
	lost.endedID = decode[crawl.Job](t, body).ID
	d.watch(alpha, lost.endedID).end(long)
	lost.result = result(t, d, lost.endedID)
	lost.runningID = d.submit(alpha, fields{
		"seed_url": site.URL + "/p/0", "max_pages": pages, "max_depth": 100, "concurrency": 8,
	}).ID
	lost.limitedID = d.submit(beta, fields{
		"urls": numbered(slowSite(t, time.Second), 500), "concurrency": 1, "time_limit": "1s",
	}).ID
	for i := range pages {
		lost.urls = append(lost.urls, fmt.Sprintf("%s/p/%d", site.URL, i))
	}

	watched := d.watch(alpha, lost.runningID)
	d.processed(alpha, lost.runningID, pages/8)
	snapshot, appended := t.TempDir(), t.TempDir()
	o.says(o.do("backup-and-restore", 1, "BACKUP="+snapshot), "RDB looks OK!")
	if out := o.do("backup-and-restore", 2, "BACKUP="+appended); strings.Contains(out, "NOT COPIED") {
		t.Errorf("the append-only file is not copied: %s", out)
	}
	lost.laterID = d.submit(alpha, fields{"urls": numbered(small, 1)}).ID
	if j := d.status(alpha, lost.runningID); j.State.Terminal() {
		t.Fatalf("the job has ended before the machine was lost: %+v", j)
	}
	watched.stop() // what it reads ends here
	<-watched.ended
	for _, p := range d.procs {
		p.Kill()
	}
	d.redis.Kill()

	// What the runbook warns of: with appendonly yes Redis does not look at the snapshot.
	trap := t.TempDir()
	o.do("backup-and-restore", 3, "BACKUP="+snapshot, "NEW_DIR="+trap)
	if n := guard(t, "--dir", trap).Client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("with appendonly yes Redis reads %d keys of a snapshot: the runbook says that it starts empty", n)
	}
	data := t.TempDir()
	o.do("backup-and-restore", 3, "BACKUP="+snapshot, "NEW_DIR="+data)
	fromSnapshot := guard(t, "--dir", data, "--appendonly", "no")
	o.says(o.do("backup-and-restore", 4, redisEnv(fromSnapshot, fromSnapshot.Server)...), "aof_last_bgrewrite_status:ok")
	lost.restored(t, fromSnapshot)
	// It is on disk again: what a start with appendonly yes would load.
	if files, _ := filepath.Glob(filepath.Join(data, "appendonlydir", "*.manifest")); len(files) != 1 {
		t.Errorf("the restored Redis writes no append-only file: %v", files)
	}

	data = t.TempDir()
	o.do("backup-and-restore", 5, "BACKUP="+appended, "NEW_DIR="+data)
	lost.restored(t, guard(t, "--dir", data))
}

// lostDeployment is what a deployment had when its machine was lost.
type lostDeployment struct {
	ended                                  fields
	endedID, runningID, limitedID, laterID string
	result                                 []byte
	urls                                   []string // of the job that ran
}

// result downloads the whole result of a job.
func result(t *testing.T, d *deployment, job string) []byte {
	t.Helper()
	res, body := d.get(alpha, job, "/result?format=ndjson")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("result answered %d: %s", res.StatusCode, body)
	}
	return body
}

// restored starts a deployment on a Redis that was restored, and holds it to what the runbook says of it.
func (l *lostDeployment) restored(t *testing.T, r *guardedRedis) {
	t.Helper()
	d := deployOn(t, r, 0)
	crawltest.Eventually(t, long, "Redis to have read its file", func() bool {
		res, _ := d.exchange(http.MethodGet, d.url+"/readyz", nil, "")
		return res.StatusCode == http.StatusOK
	})
	before := d.status(alpha, l.runningID)
	if before.State != crawl.Running || before.Processed == 0 || before.Active == 0 {
		t.Errorf("the job that ran comes back as %+v", before)
	}
	if got := result(t, d, l.endedID); !bytes.Equal(got, l.result) {
		t.Errorf("the ended job reads as %d other bytes than the %d before", len(got), len(l.result))
	}
	res, body := d.post(alpha, l.ended, "Idempotency-Key", "ended")
	if j := decode[crawl.Job](t, body); res.Header.Get("Idempotent-Replayed") != "true" || j.ID != l.endedID {
		t.Errorf("the idempotency key is forgotten: %d %s", res.StatusCode, body)
	}
	res, body = d.get(alpha, l.laterID, "")
	problem(t, res, body, http.StatusNotFound, crawl.CodeNotFound)

	watched, limited := d.watch(alpha, l.runningID), d.watch(beta, l.limitedID)
	begun := time.Now()
	d.startWorker()
	d.processed(alpha, l.runningID, before.Processed+1)
	t.Logf("the restored job goes on %v after the worker was started, with %d of %d pages",
		time.Since(begun), before.Processed, len(l.urls))
	j := watched.end(long)
	if j.State != crawl.Completed || j.Accepted != int64(len(l.urls)) {
		t.Errorf("the job that ran ends as %+v", j)
	}
	attempts := int64(0)
	for _, p := range d.recordedOnce(alpha, l.runningID, l.urls) {
		attempts += int64(p.Attempts) - 1
	}
	if attempts > before.Active {
		t.Errorf("%d leases are counted as lost, %d were held", attempts, before.Active)
	}
	if j := limited.end(long); j.State != crawl.Cancelled || j.StopReason != crawl.StopTimeLimit {
		t.Errorf("the job whose time was over ends as %+v", j)
	}
	// What asynq was told of the lost workers ends by itself, and disturbs nothing.
	crawltest.Eventually(t, ready, "no task of the lost workers to be left", func() bool {
		left := d.redis.Client.LLen(t.Context(), "asynq:{crawl}:active").Val() +
			d.redis.Client.ZCard(t.Context(), "asynq:{crawl}:lease").Val() +
			d.redis.Client.LLen(t.Context(), "asynq:{crawl}:pending").Val() +
			d.redis.Client.ZCard(t.Context(), "asynq:{crawl}:retry").Val()
		return left == 0
	})
	if after := d.status(alpha, l.runningID); !after.EndedAt.Equal(j.EndedAt) || after.Accepted != j.Accepted {
		t.Errorf("the job has changed after its end: %+v", after)
	}
}
