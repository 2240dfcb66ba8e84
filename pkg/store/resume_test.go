package store

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// A slice that heard of a pause, and ends a slow page, gives its place away: once the job is
// resumed another begins at once.
func TestResumedWhileASliceEnds(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 5)
		f.create(t, n)
		slow := f.begin(t, n.Job)
		f.exchange(t, slow, Exchange{Lease: 1})
		if _, _, err := f.Pause(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
		f.exchange(t, slow, Exchange{Retire: true})
		_, rings, err := f.Resume(t.Context(), n.Job)
		if err != nil || len(rings) != 1 {
			t.Fatalf("resumed with the rings %v, %v", rings, err)
		}
		next, _, err := f.Begin(t.Context(), rings[0])
		if err != nil || next == nil {
			t.Fatalf("the ring of the resume begins %v, %v", next, err)
		}
		if items := f.exchange(t, next, Exchange{Lease: 8}).Items; len(items) != 3 {
			t.Errorf("it has %d URLs, want the 3 that the job's concurrency leaves", len(items))
		}
	})
}

// A job that goes on by a slice of before is not said to wait for the queue that refused its ring,
// and does not end with that as its error.
func TestRingFailedOfAJobThatWorks(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 2)
		f.create(t, n)
		sl := f.begin(t, n.Job)
		items := f.exchange(t, sl, Exchange{Lease: 2}).Items
		if _, _, err := f.Pause(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.Resume(t.Context(), n.Job); err != nil {
			t.Fatal(err)
		}
		if err := f.RingFailed(t.Context(), n.Job, "The queue did not take the job."); err != nil {
			t.Fatal(err)
		}
		if j := f.read(t, n.Job); j.WaitingFor != "" || j.Error != "" || j.Active != 2 {
			t.Errorf("%d in flight, and it waits for %q: %q", j.Active, j.WaitingFor, j.Error)
		}
		for _, it := range items {
			f.exchange(t, sl, Exchange{Commits: []Commit{accept(t, it)}})
		}
		if j := f.read(t, n.Job); j.State != crawl.Completed || j.Error != "" {
			t.Errorf("it ended %s, %q", j.State, j.Error)
		}
	})
}

// A rest that is over is not what a job waits for: not after a pause, and not when nobody came to
// begin it meanwhile.
func TestRestThatIsOver(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		for _, paused := range []bool{true, false} {
			n := f.job(t, "", 2)
			f.create(t, n)
			if _, err := f.End(t.Context(), f.begin(t, n.Job), time.Second); err != nil {
				t.Fatal(err)
			}
			if j := f.read(t, n.Job); j.WaitingFor != crawl.WaitingHostDelay {
				t.Fatalf("it rests for %q", j.WaitingFor)
			}
			if paused {
				if _, _, err := f.Pause(t.Context(), n.Job); err != nil {
					t.Fatal(err)
				}
			}
			f.pass(time.Hour)
			if paused {
				if _, _, err := f.Resume(t.Context(), n.Job); err != nil {
					t.Fatal(err)
				}
			} else {
				f.heal(t)
			}
			if j := f.read(t, n.Job); j.WaitingFor != crawl.WaitingWorker {
				t.Errorf("paused %v: an hour later it waits for %q", paused, j.WaitingFor)
			}
		}
	})
}

// A job that collects for a collection which is of a newer format meanwhile, and so has seen none
// of it, makes nothing of it missing.
func TestNewerCollectionMissesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		crawl1 := func(format int) crawl.Job {
			n := f.job(t, "", 1)
			n.Plan.Collection = &crawl.Collection{Name: "pages", Key: crawl.KeySourceURL}
			n.Plan.Series = "s"
			f.create(t, n)
			if format > 0 {
				if err := f.rdb.HSet(t.Context(), rootKey(f.tenant)+":c:pages", "format", format).Err(); err != nil {
					t.Fatal(err)
				}
			}
			sl := f.begin(t, n.Job)
			c := accept(t, f.exchange(t, sl, Exchange{Lease: 1}).Items[0])
			c.Accepted.Upserts = []Upsert{{Key: c.Item.URL, Fingerprint: [16]byte{1}}}
			c.Accepted.Visit = &Visit{}
			f.exchange(t, sl, Exchange{Commits: []Commit{c}})
			return f.read(t, n.Job)
		}
		if j := crawl1(0); j.Report.Created != 1 {
			t.Fatalf("%+v", j.Report)
		}
		f.pass(time.Second)
		j := crawl1(2)
		missing := f.rdb.HGet(t.Context(), rootKey(f.tenant)+":c:pages", "missing").Val()
		if j.State != crawl.Completed || j.Report.NotCollected != 1 || j.Report.Missing != 0 || missing != "0" {
			t.Errorf("%s: %+v, and %s are missing", j.State, j.Report, missing)
		}
	})
}

// What must be on a replica is so also when Redis is full, where a key that is known is answered
// without a write: whoever was told that no replica has the job is told so again.
func TestReplicaOfAFullRedis(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t)
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	o := f.o
	o.Replicas = 1
	st := New(r.Client, o)
	n := f.job(t, "kept", 2)
	says := func(when string) {
		t.Helper()
		_, err := st.Create(t.Context(), n)
		if fault := wantCode(t, err, crawl.CodeUnavailable); !strings.Contains(fault.Message, "fewer than 1 replicas") {
			t.Errorf("%s: %s", when, fault.Message)
		}
	}
	says("at first")
	f.fillTo(t, r, 1.5)
	_ = st.Ready(t.Context()) // which asks anew
	says("on a full Redis")
	if _, err := st.one(t.Context(), deleteScript, st.keys(n.Job), st.now(), n.Job.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.Client.Del(t.Context(), jobKey(n.Job)).Err(); err != nil {
		t.Fatal(err)
	}
	err := st.awaitReplicas(t.Context(), n.Job)
	if fault := wantCode(t, err, crawl.CodeUnavailable); !strings.Contains(fault.Message, "lost the job") {
		t.Errorf("a job that another master never heard of: %s", fault.Message)
	}
}

// The format of collections stands in two includes, of which a script may have one alone.
func TestCollectionFormatStandsOnce(t *testing.T) {
	t.Parallel()
	format := regexp.MustCompile(`(?m)^local COLLECTION_FORMAT = (\d+)`)
	var all []string
	for _, name := range []string{"include/define.lua", "include/job.lua"} {
		m := format.FindStringSubmatch(mustRead(name))
		if m == nil {
			t.Fatalf("%s has none", name)
		}
		all = append(all, m[1])
	}
	if all[0] != all[1] {
		t.Errorf("it is %v", all)
	}
}

// A submission that was stored, whose answer was lost, and that a full Redis then refuses, is not
// a replay of another: it is the first.
func TestOwnSubmissionIsNoReplay(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "kept", 2)
		f.create(t, n)
		nonce := f.rdb.HGet(t.Context(), jobKey(n.Job), "nonce").Val()
		for sent, want := range map[string]bool{nonce: false, "another": true, "": true} {
			c, err := f.replay(t.Context(), &n, sent, full(1))
			if err != nil || c.Job.ID != n.Job.ID || c.Replayed != want {
				t.Errorf("sent as %q: %v, replayed %v, want %v", sent, err, c.Replayed, want)
			}
		}
	})
}
