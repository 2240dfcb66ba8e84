package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/crawltest/gensite"
)

const (
	replicaUser  = "replica"
	sentinelUser = "sentinel"
	// replicaRights and sentinelRights are what the two need on a server, as Redis' documentation
	// has it: https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/
	replicaRights  = "resetchannels -@all +psync +replconf +ping"
	sentinelRights = "allchannels -@all +multi +slaveof +ping +exec +subscribe +config|rewrite +role +publish +info " +
		"+client|setname +client|kill +script|kill"
)

// failover is a Redis behind Sentinel with the users of usersFile.
type failover struct {
	*crawltest.Failover
	r *guardedRedis // the master of the beginning; its URL is the sentinels'
}

// guardFailover starts a master with two replicas and three sentinels. As RUNBOOK.md asks, a
// master that fewer than one replica follows takes no writes after a second or two.
func guardFailover(t *testing.T) *failover {
	t.Helper()
	r := &guardedRedis{passwords: map[string]string{}}
	text := r.users(t)
	for user, rights := range map[string]string{replicaUser: replicaRights, sentinelUser: sentinelRights} {
		text += "user " + user + " on " + r.newPassword(user) + " " + rights + "\n"
	}
	users := filepath.Join(t.TempDir(), "users.acl")
	if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	as := func(user string) crawltest.Access {
		return crawltest.Access{User: user, Password: r.passwords[user]}
	}
	f := &failover{r: r, Failover: crawltest.StartFailover(t, crawltest.FailoverOptions{
		Access: r.access(), Replica: as(replicaUser), Sentinel: as(sentinelUser), Replicas: 2,
		Args: []string{
			"--aclfile", users, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2", "--repl-ping-replica-period", "1",
		},
	})}
	r.Server = f.Nodes()[0]
	r.sentinels = f.Failover
	t.Cleanup(func() {
		for _, n := range f.Nodes() {
			r.deniedAt(t, n)
		}
	})
	return f
}

// failoverJobs are jobs of two tenants, each on a site of its own.
func failoverJobs(d *deployment, pages int) []*clusterJob {
	d.t.Helper()
	var jobs []*clusterJob
	for i := range 4 {
		j := &clusterJob{tenant: []string{alpha, beta}[i%2]}
		site := crawltest.NewHandlerSite(d.t, gensite.New(pages, 12, 2000, 40*time.Millisecond))
		for p := range pages {
			j.urls = append(j.urls, fmt.Sprintf("%s/p/%d", site.URL, p))
		}
		j.id = d.submit(j.tenant, fields{
			"seed_url": j.urls[0], "max_pages": pages, "max_depth": 100, "concurrency": 4, "sitemap": "skip",
		}).ID
		jobs = append(jobs, j)
	}
	return jobs
}

// poll reads jobs again and again until its end, and holds each read to promise 1; but that counts
// grow, since a failover may lose the last second.
type poll struct {
	stop  context.CancelFunc
	done  sync.WaitGroup
	mu    sync.Mutex
	reads int
	gap   time.Duration
}

func (d *deployment) poll(jobs []*clusterJob) *poll {
	p := &poll{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	p.stop = cancel
	for _, j := range jobs {
		p.done.Go(func() {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			answered := time.Now()
			for ctx.Err() == nil {
				res, body, err := d.try(ctx, http.MethodGet, d.url+"/v1/jobs/"+j.id, d.as(j.tenant), "")
				var got crawl.Job
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					d.t.Errorf("a read failed: %v", err)
				case res.StatusCode == http.StatusServiceUnavailable:
				case res.StatusCode != http.StatusOK:
					d.t.Errorf("a read is answered %d: %s", res.StatusCode, body)
				default:
					if err := json.Unmarshal(body, &got); err != nil {
						d.t.Error(err)
					} else if err := follows(&crawl.Job{}, &got); err != nil {
						d.t.Error(err)
					}
					p.mu.Lock()
					p.reads++
					p.gap = max(p.gap, time.Since(answered))
					p.mu.Unlock()
					answered = time.Now()
				}
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	d.t.Cleanup(func() { cancel(); p.done.Wait() })
	return p
}

// end returns how many reads were answered, and how long none was.
func (p *poll) end() (reads int, gap time.Duration) {
	p.stop()
	p.done.Wait()
	return p.reads, p.gap
}

// submitter submits jobs all the time, and keeps those that were answered 202.
type submitter struct {
	stop     context.CancelFunc
	done     sync.WaitGroup
	accepted []string
}

func (d *deployment) keepSubmitting(url string) *submitter {
	s := &submitter{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	s.stop = cancel
	s.done.Go(func() {
		tick := time.NewTicker(60 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			res, body, err := d.try(ctx, http.MethodPost, d.url+"/v1/jobs", d.as(beta), `{"urls":["`+url+`"]}`)
			var j crawl.Job
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				d.t.Errorf("a submission failed: %v", err)
			case res.StatusCode == http.StatusAccepted:
				if err := json.Unmarshal(body, &j); err != nil {
					d.t.Error(err)
				}
				s.accepted = append(s.accepted, j.ID)
			case res.StatusCode != http.StatusServiceUnavailable:
				d.t.Errorf("a submission is answered %d: %s", res.StatusCode, body)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	d.t.Cleanup(func() { cancel(); s.done.Wait() })
	return s
}

func (s *submitter) end() []string {
	s.stop()
	s.done.Wait()
	return s.accepted
}

// TestSentinelFailover: the master is lost in the middle of jobs of two tenants, by SIGKILL, and in
// another life by a partition: it hangs, and comes back in the belief that it is the master.
// Within seconds a replica is it. Every job ends with every page, once; what was answered 202 is
// there (TRAWL_REDIS_WAIT=1); nothing comes back with the old master.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	single(t, "a Redis Cluster has replicas and failovers of its own, without Sentinel")
	for name, lose := range map[string]func(*crawltest.Server){
		"killed": (*crawltest.Server).Kill, "hangs": (*crawltest.Server).Freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loseMaster(t, name == "hangs", lose)
		})
	}
}

func loseMaster(t *testing.T, hangs bool, lose func(*crawltest.Server)) {
	const pages = 300
	f := guardFailover(t)
	d := deployOn(t, f.r, 2, "TRAWL_REDIS_WAIT=1", "TRAWL_MAX_RUNNING=1000", "TRAWL_MAX_QUEUED=10000")
	small := slowSite(t, 0)
	jobs := failoverJobs(d, pages)
	polled := d.poll(jobs)
	for _, j := range jobs {
		d.processed(j.tenant, j.id, pages/10)
	}
	submitted := d.keepSubmitting(small.URL + "/")
	d.moves(jobs[0], 10)

	old := f.Master()
	lose(old)
	begun := time.Now()
	unready := false
	crawltest.Eventually(t, long, "another master", func() bool {
		unready = unready || d.ready(d.url).status == http.StatusServiceUnavailable
		return f.Master() != old
	})
	switched := time.Since(begun)
	crawltest.Eventually(t, long, "the API to be ready", func() bool { return d.ready(d.url).status == http.StatusOK })
	crawltest.Eventually(t, long, "a submission", func() bool {
		res, _, err := d.try(t.Context(), http.MethodPost, d.url+"/v1/jobs", d.as(alpha), `{"urls":["`+small.URL+`/again"]}`)
		return err == nil && res.StatusCode == http.StatusAccepted
	})
	took := time.Since(begun)
	if !unready {
		t.Error("/readyz was 200 all the time")
	}
	if hangs {
		old.Thaw()
	} else {
		old.Start()
	}
	f.InSync()
	if f.Master() == old {
		t.Error("the old master is it again")
	}
	accepted := submitted.end()
	for _, j := range jobs {
		j.watch = d.startWatch(&watch{tenant: j.tenant, job: j.id, outage: true})
		d.whole(j)
	}
	reads, gap := polled.end()
	for _, id := range accepted {
		var j crawl.Job
		crawltest.Eventually(t, long, "the end of a job that was answered 202", func() bool {
			j = d.status(beta, id) // 404, if it were lost, ends the test
			return j.State.Terminal()
		})
		if j.State != crawl.Completed || j.Accepted != 1 {
			t.Errorf("a job that was answered 202 ends as %+v", j)
		}
	}
	if len(accepted) == 0 || reads == 0 {
		t.Errorf("%d submissions, %d reads: the test has seen nothing", len(accepted), reads)
	}
	// The old master follows: it has the new one's keys, and no other. Some of an ended job expire after a while, and
	// perhaps between the two looks.
	crawltest.Eventually(t, long, "the old master to have the keys of the new one", func() bool {
		was, is := old.Keys("{t:*"), f.Master().Keys("{t:*")
		slices.Sort(was)
		slices.Sort(is)
		return slices.Equal(was, is)
	})
	t.Logf("another master after %v, submissions after %v, longest gap of reads %v; %d jobs accepted, %d reads",
		switched, took, gap, len(accepted), reads)
}
