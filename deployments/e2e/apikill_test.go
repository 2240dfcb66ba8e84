package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// TestAPIKilled: promises 3 and 4 where the API dies at each step of a submission. Whoever
// had no answer sends the same again, and has the one job; without a key there may be a job
// that nobody knows of, which runs and ends like any other.
func TestAPIKilled(t *testing.T) {
	t.Parallel()
	single(t, "a client of a Cluster learns the addresses of its nodes, and goes around the proxy")
	d := deploy(t, 1)
	site := slowSite(t, 0)
	// The scripts are known from here on: the first call of one would be sent twice.
	first := d.submit(alpha, fields{"urls": numbered(site, 1)}).ID
	d.watch(alpha, first).end(long)

	for i, tc := range []struct {
		name   string
		at     half
		match  func([]string) bool
		stored bool
		rung   bool
	}{
		{"before the store", request, creates, false, false},
		{"stored and not known to be", reply, creates, true, false},
		{"between store and ring", request, enqueues, true, false},
		{"between ring and answer", reply, enqueues, true, true},
	} {
		for _, keyed := range []bool{true, false} {
			name := fmt.Sprintf("%s, key %v", tc.name, keyed)
			tag := fmt.Sprintf("t%d-%v", i, keyed)
			spec := fmt.Sprintf(`{"urls": ["%s/%s/1", "%s/%s/2"], "tags": ["%s"]}`, site.URL, tag, site.URL, tag, tag)
			header := d.as(alpha)
			if keyed {
				header.Set("Idempotency-Key", tag)
			}
			killed := d.killedAt(tc.at, tc.match, header, spec)

			// What the dead API left is what it should have.
			found := d.tagged(alpha, tag)
			want := 0
			if tc.stored {
				want = 1
			}
			if len(found) != want {
				t.Fatalf("%s: the killed API has left %d jobs, want %d", name, len(found), want)
			}

			// The client sends the same again, to another API.
			again := d.startAPI()
			d.url = again.url
			res, body := d.exchange(http.MethodPost, d.url+"/v1/jobs", header, spec)
			if res.StatusCode != http.StatusAccepted {
				t.Fatalf("%s: sent again it answers %d: %s", name, res.StatusCode, body)
			}
			j := decode[crawl.Job](t, body)
			replayed := res.Header.Get("Idempotent-Replayed") == "true"
			if replayed != (keyed && tc.stored) {
				t.Errorf("%s: sent again it is replayed: %v", name, replayed)
			}
			if keyed && j.ID != crawl.NewJobID(alpha, tag) {
				t.Errorf("%s: the job is %s", name, j.ID)
			}
			jobs := d.tagged(alpha, tag)
			if wanted := want + 1; keyed && len(jobs) != 1 || !keyed && len(jobs) != wanted {
				t.Errorf("%s: there are %d jobs", name, len(jobs))
			}
			if !slices.ContainsFunc(jobs, func(x crawl.Job) bool { return x.ID == j.ID }) {
				t.Errorf("%s: the list has not the job that was answered", name)
			}
			for _, x := range jobs {
				if e := d.watch(alpha, x.ID).end(long); e.State != crawl.Completed || e.Accepted != 2 {
					t.Errorf("%s: ended as %+v", name, e)
				} else if tc.stored {
					t.Logf("%s: job %s ended %v after the kill", name, x.ID, e.EndedAt.Sub(killed).Round(time.Millisecond))
					if late := e.EndedAt.Sub(killed); late > heal {
						t.Errorf("%s: it was rung so late that it ended %v after the kill", name, late)
					}
				}
				d.recordedOnce(alpha, x.ID, []string{site.URL + "/" + tag + "/1", site.URL + "/" + tag + "/2"})
			}
			if n := asked(site, "/"+tag+"/"); n != 2*len(jobs) {
				t.Errorf("%s: %d requests for two pages of %d jobs", name, n, len(jobs))
			}
			if code := again.Terminate(long); code != 0 {
				t.Errorf("the API ended with %d", code)
			}
			d.url = d.firstURL()
		}
	}
	d.queueEmpties()
}

// firstURL is where the API listens that deploy started.
func (d *deployment) firstURL() string {
	return "http://" + d.api.WaitFor(ready, `"msg":"listening".*"addr":"([^"]+)"`)[1]
}

// killedAt starts an API, has it take a submission, and kills it while the command that
// matches is held. It returns when that was.
func (d *deployment) killedAt(at half, match func([]string) bool, header http.Header, spec string) time.Time {
	d.t.Helper()
	w := newWire(d)
	victim := d.startAPI(w.setting(d, apiUser))
	h := w.hold(at, match)
	answered := make(chan error, 1)
	go func() {
		res, body, err := d.try(d.t.Context(), http.MethodPost, victim.url+"/v1/jobs", header, spec)
		if err == nil {
			err = fmt.Errorf("the submission was answered %d: %s", res.StatusCode, body)
			answered <- err
			return
		}
		answered <- nil
	}()
	h.wait(d.t)
	killed := time.Now()
	victim.Kill()
	h.drop()
	if err := crawltest.Receive(d.t, long, "end of the submission", answered); err != nil {
		d.t.Fatal(err)
	}
	return killed
}

// asked counts the requests for what begins with a path.
func asked(site *crawltest.Site, prefix string) int {
	n := 0
	for _, r := range site.Requests() {
		if strings.HasPrefix(r.URI, prefix) {
			n++
		}
	}
	return n
}
