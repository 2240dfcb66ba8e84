package e2e

import (
	"fmt"
	"testing"
	"time"

	"example.com/trawl/pkg/crawl"
)

// TestRunGate: at most five jobs of a tenant are in the queue, the others wait in order,
// and another tenant waits for none of them.
func TestRunGate(t *testing.T) {
	t.Parallel()
	const jobs, most = 50, 5
	site := slowSite(t, 500*time.Millisecond)
	d := deploy(t, 1, "TRAWL_MAX_RUNNING=5")
	ids := make([]string, jobs)
	for i := range ids {
		j := d.submit(alpha, fields{"urls": []string{fmt.Sprintf("%s/%d", site.URL, i)}})
		ids[i] = j.ID
		waits := j.State == crawl.Queued && j.WaitingFor == "tenant_quota"
		if waits != (j.Position > 0) || i < most && waits {
			t.Errorf("submission %d answers %s, waiting for %q at position %d", i, j.State, j.WaitingFor, j.Position)
		}
	}
	last := d.submit(beta, fields{"urls": []string{site.URL + "/beta"}})
	if last.WaitingFor == "tenant_quota" || last.Position != 0 {
		t.Errorf("the other tenant's job waits for %q at %d", last.WaitingFor, last.Position)
	}
	wb := d.watch(beta, last.ID)

	// Each look goes from the last to the first, so that what it finds holds although
	// the jobs go on meanwhile: the gate has let in the first so many and no other, the
	// positions of the rest fall, and all that it finds let in and not ended were so
	// together.
	waited := 0
	for open := jobs; open > 0; {
		open = 0
		position, inside := int64(jobs), 0
		for i := jobs - 1; i >= 0; i-- {
			j := d.status(alpha, ids[i])
			switch {
			case j.State.Terminal():
				continue
			case j.WaitingFor != "tenant_quota":
				inside++
			case inside > 0:
				t.Fatalf("job %d waits although one behind it was let in", i)
			case j.State != crawl.Queued || j.Position < 1 || j.Position >= position:
				t.Fatalf("job %d waits as %s at position %d, the one behind it at %d", i, j.State, j.Position, position)
			default:
				waited++
				position = j.Position
			}
			open++
		}
		if inside > most {
			t.Fatalf("%d jobs were let in at once, want at most %d", inside, most)
		}
	}
	if waited == 0 {
		t.Error("no job was seen waiting")
	}
	b := wb.end(long)
	ended := make([]crawl.Job, jobs)
	for i, id := range ids {
		j := d.status(alpha, id)
		if ended[i] = j; j.State != crawl.Completed || j.Accepted != 1 {
			t.Errorf("job %d ends as %+v", i, j)
		}
		// Jobs that were let in together may be begun in any order, within the moment
		// that their rings are under way; the next but one after them may not.
		if i >= 2*most && j.StartedAt.Before(ended[i-2*most].StartedAt) {
			t.Errorf("job %d was started %v before job %d", i, ended[i-2*most].StartedAt.Sub(j.StartedAt), i-2*most)
		}
	}
	for i, j := range ended {
		together := 0
		for _, other := range ended {
			if !other.StartedAt.After(j.StartedAt) && other.EndedAt.After(j.StartedAt) {
				together++
			}
		}
		if together > most {
			t.Errorf("job %d ran with %d others, want at most %d", i, together-1, most-1)
		}
	}
	if half := ended[jobs/2]; !b.StartedAt.Before(half.StartedAt) {
		t.Errorf("the other tenant's job, submitted at %v, began at %v, job %d of the first at %v",
			b.CreatedAt, b.StartedAt, jobs/2, half.StartedAt)
	}
}
