package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// onGolden runs a test on what each writer of golden files left, on every kind of Redis. alone
// as in loadGolden.
func onGolden(t *testing.T, alone bool, f func(t *testing.T, g *golden)) {
	t.Helper()
	t.Parallel()
	dirs, err := filepath.Glob(filepath.Join(goldenDir, "v*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			crawltest.OnEach(t, func(t *testing.T, r *crawltest.Redis) { f(t, loadGolden(t, r, dir, alone)) })
		})
	}
}

// A store of today reads what an older one wrote as that one did: each read answers all that it
// answered then. It may answer more.
func TestGoldenReads(t *testing.T) {
	onGolden(t, false, func(t *testing.T, g *golden) {
		var want map[string]any
		g.readJSON(t, "answers.json", &want)
		got := plain(t, g.answers(t, g.ids(), g.key))
		for name := range maps.Keys(want) {
			if d := cmp.Diff(want[name], within(want[name], got[name])); d != "" {
				t.Errorf("%s reads otherwise than when it was written (-then +now):\n%s", name, d)
			}
		}
		if len(want) < 60 {
			t.Errorf("only %d answers", len(want))
		}
	})
}

func (g *golden) ids() map[string]string {
	out := map[string]string{}
	for name, ref := range g.jobs {
		out[name] = ref.ID
	}
	return out
}

// plain is v as a reader of its JSON sees it.
func plain(t *testing.T, v any) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out map[string]any
	if err := d.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// within leaves of got the fields that want has, too: fields of objects may join.
func within(want, got any) any {
	switch want := want.(type) {
	case map[string]any:
		has, ok := got.(map[string]any)
		if !ok {
			return got
		}
		out := map[string]any{}
		for field, value := range want {
			if v, ok := has[field]; ok {
				out[field] = within(value, v)
			}
		}
		return out
	case []any:
		has, ok := got.([]any)
		if !ok {
			return got
		}
		out := make([]any, len(has))
		for i := range has {
			out[i] = has[i]
			if i < len(want) {
				out[i] = within(want[i], has[i])
			}
		}
		return out
	default:
		return got
	}
}

// A worker of today takes over from one of then, which is gone: every job ends as it would have,
// no page is lost or counted twice, and what was recorded stays as it is.
func TestGoldenTakeover(t *testing.T) {
	onGolden(t, true, func(t *testing.T, g *golden) {
		before := map[string]crawl.Job{}
		records := map[string][]crawl.Page{}
		for name, ref := range g.jobs {
			if name == "gone" {
				continue
			}
			before[name], records[name] = g.read(t, ref), g.all(t, ref, 100)
		}
		g.workOff(t, before)
		for name, was := range before {
			now := g.read(t, g.jobs[name])
			g.checkEnd(t, name, was, now)
			after := g.all(t, g.jobs[name], 100)
			if len(after) < len(records[name]) {
				t.Fatalf("%s had %d records, and has %d", name, len(records[name]), len(after))
			}
			if d := cmp.Diff(records[name], after[:len(records[name])], cmpopts.EquateEmpty()); d != "" {
				t.Errorf("records of %s changed (-then +now):\n%s", name, d)
			}
		}
		g.checkMiddle(t)
		g.checkReplays(t)
		g.checkExpiry(t)
	})
}

// workOff has workers serve all jobs until each has ended.
func (g *golden) workOff(t *testing.T, jobs map[string]crawl.Job) {
	t.Helper()
	open := func() (names []string) {
		for name := range jobs {
			j := g.read(t, g.jobs[name])
			if !j.Consistent() {
				t.Fatalf("%s does not add up: %+v", name, j)
			}
			if !j.State.Terminal() {
				names = append(names, fmt.Sprintf("%s %s, waiting for %q", name, j.State, j.WaitingFor))
			}
		}
		return names
	}
	rings := g.resumePaused(t)
	for range 60 {
		if len(open()) == 0 {
			return
		}
		g.pass(time.Minute)
		swept := g.heal(t)
		rings = append(rings, swept.Rings...)
		for len(rings) > 0 {
			rings = append(rings[1:], g.serve(t, rings[0])...)
		}
	}
	t.Fatalf("not ended within an hour: %q", open())
}

// serve is one slice: it takes all that is due, and answers whom to ring.
func (g *golden) serve(t *testing.T, ring crawl.Ring) []crawl.Ring {
	t.Helper()
	sl, rings, err := g.Begin(t.Context(), ring)
	if err != nil {
		t.Fatal(err)
	}
	if sl == nil {
		return rings
	}
	for {
		out := g.exchange(t, sl, Exchange{Lease: 10})
		rings = append(rings, out.Rings...)
		if len(out.Items) == 0 {
			break
		}
		var x Exchange
		for _, it := range out.Items {
			if it.Kind == crawl.ItemSitemap {
				x.Maps = append(x.Maps, MapCommit{Item: it, Outcome: MapRead})
				continue
			}
			c := accept(t, it)
			c.Accepted.Final = goldenURL(t, it.Target()).Key()
			x.Commits = append(x.Commits, c)
		}
		done := g.exchange(t, sl, x)
		rings = append(rings, done.Rings...)
		for i, c := range done.Committed {
			if c.Verdict != Done {
				t.Fatalf("commit of %+v: %+v", x.Commits[i].Item, c)
			}
		}
	}
	more, err := g.End(t.Context(), sl, NoRest)
	if err != nil {
		t.Fatal(err)
	}
	return append(rings, more...)
}

// checkEnd compares a job with what it was: all that it had to do was accepted.
func (g *golden) checkEnd(t *testing.T, name string, was, now crawl.Job) {
	t.Helper()
	want := was
	left := was.Queued + was.Active + was.Deferred
	want.Queued, want.Active, want.Deferred = 0, 0, 0
	switch {
	case was.State.Terminal():
		want = was
	case was.State == crawl.Cancelling:
		want.State, want.Cancelled = crawl.Cancelled, was.Cancelled+left
	case was.Failed > 0:
		want.State, want.Accepted = crawl.CompletedWithErrors, was.Accepted+left
	default:
		want.State, want.Accepted = crawl.Completed, was.Accepted+left
	}
	counts := func(j *crawl.Job) []any {
		return []any{
			j.State, j.Total, j.Queued, j.Active, j.Deferred, j.Accepted, j.Failed, j.Skipped, j.Cancelled,
			j.SkippedByReason, j.FailedByType, j.RefusedByReason,
		}
	}
	if d := cmp.Diff(counts(&want), counts(&now)); d != "" {
		t.Errorf("%s ended otherwise (-want +got):\n%s", name, d)
	}
	if was.State.Terminal() {
		if d := cmp.Diff(was, now); d != "" {
			t.Errorf("%s, which had ended, changed (-then +now):\n%s", name, d)
		}
	}
}

// checkMiddle has the events of the job in the midst delivered, in their order, and looks at what
// its sitemaps came to.
func (g *golden) checkMiddle(t *testing.T) {
	t.Helper()
	if j := g.read(t, g.jobs["middle"]); j.Total != 16 || j.Accepted != 11 || j.Sitemaps != 4 {
		t.Errorf("the job in the midst ended as %+v", j)
	}
	var told []crawl.EventType
	for range 10 {
		g.pass(time.Hour)
		c, err := g.ClaimDeliveries(t.Context(), Claim{Tenant: g.tenant, Most: 10, PerReceiver: 10})
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Deliveries {
			d := &c.Deliveries[i]
			told = append(told, d.Event.Type)
			if _, err := g.SettleDelivery(t.Context(), d, Result{Outcome: OutcomeDelivered, Status: 200}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d := cmp.Diff([]crawl.EventType{crawl.EventRunning, crawl.EventCompletedWithErrors}, told); d != "" {
		t.Errorf("told (-want +got):\n%s", d)
	}
}

// checkReplays submits everything again, with the keys of then.
func (g *golden) checkReplays(t *testing.T) {
	t.Helper()
	for name, ref := range g.jobs {
		n := newJob(g.tenant, "golden "+name)
		n.Inputs = []crawl.Input{{URL: goldenURL(t, "http://site.test/")}}
		n.Quota = crawl.Quota{MaxRunning: 4}
		c, err := g.Create(t.Context(), n)
		switch {
		case name == "gone":
			wantCode(t, err, crawl.CodeExpired)
		case err != nil || !c.Replayed || c.Job.ID != ref.ID:
			t.Errorf("%s again: job %s, %v", name, c.Job.ID, err)
		}
		n.Digest = [32]byte{7}
		_, err = g.Create(t.Context(), n)
		if f := wantCode(t, err, crawl.CodeKeyReused); f.JobID != ref.ID {
			t.Errorf("another input under the key of %s: %v", name, f)
		}
	}
}

// checkExpiry has all jobs expire: nothing is left of them but tombstones, which end.
func (g *golden) checkExpiry(t *testing.T) {
	t.Helper()
	g.pass(31 * 24 * time.Hour)
	if swept := g.heal(t); swept.Expired != int64(len(g.jobs)-1) { // one was removed before
		t.Errorf("swept %+v", swept)
	}
	for name, ref := range g.jobs {
		_, err := g.Job(t.Context(), ref)
		wantCode(t, err, crawl.CodeExpired)
		keys := g.jobKeys(t, ref)
		if len(keys) != 1 || g.rdb.PTTL(t.Context(), keys[0]).Val() <= 0 {
			t.Errorf("left of %s: %q", name, keys)
		}
	}
}

// jobKeys are all keys of a job.
func (f *fixture) jobKeys(t *testing.T, ref crawl.JobRef) []string {
	t.Helper()
	var keys []string
	it := f.rdb.Scan(t.Context(), 0, jobKey(ref)+"*", 1000).Iterator()
	for it.Next(t.Context()) {
		keys = append(keys, it.Val())
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// A worker of today leaves a job of a format to come alone: it begins no slice of it, no sweep changes
// it or takes it out of the list of what is due, and the others are healed all the same. Reads of it
// answer what can be told. Once it is of a format that the worker knows, it goes on where it stood.
func TestNewerFormat(t *testing.T) {
	onGolden(t, true, func(t *testing.T, g *golden) {
		newer := g.jobs["middle"]
		g.setFormat(t, newer, "2")
		before := g.dump(t, newer)
		was := g.read(t, newer)
		others := map[string]crawl.Job{}
		for _, name := range []string{"deferred", "cancelling", "dispatch", "waiting"} {
			others[name] = g.read(t, g.jobs[name])
		}
		g.workOffBeside(t, newer, others)
		if d := cmp.Diff(before, g.dump(t, newer)); d != "" {
			t.Errorf("a job of a newer format was changed (-before +after):\n%s", d)
		}
		if _, err := g.rdb.ZScore(t.Context(), rootKey(g.tenant)+":due", newer.ID).Result(); err != nil {
			t.Errorf("no sweep will look at it: %v", err)
		}
		if now := g.read(t, newer); now.State != was.State || now.Total != was.Total || !now.Consistent() {
			t.Errorf("its status is %+v", now)
		}
		if _, err := g.Records(t.Context(), newer, 0, 10); err != nil {
			t.Errorf("its records: %v", err)
		}
		g.setFormat(t, newer, "")
		g.workOff(t, map[string]crawl.Job{"middle": was})
		g.checkEnd(t, "middle", was, g.read(t, newer))
	})
}

// setFormat makes a job one of another format; empty: of the first.
func (g *golden) setFormat(t *testing.T, ref crawl.JobRef, format string) {
	t.Helper()
	err := g.rdb.HSet(t.Context(), jobKey(ref), "format", format).Err()
	if format == "" {
		err = g.rdb.HDel(t.Context(), jobKey(ref), "format").Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// dump is all that is kept of a job, without lifetimes.
func (g *golden) dump(t *testing.T, ref crawl.JobRef) map[string][]blob {
	t.Helper()
	out := map[string][]blob{}
	for _, key := range g.jobKeys(t, ref) {
		k, err := readKey(t.Context(), g.rdb, key)
		if err != nil {
			t.Fatal(err)
		}
		out[key] = k.Value
	}
	return out
}

// workOffBeside works off the given jobs for 20 minutes, and offers the worker a ring of the newer
// job each time.
func (g *golden) workOffBeside(t *testing.T, newer crawl.JobRef, others map[string]crawl.Job) {
	t.Helper()
	for n := range int64(20) {
		g.pass(time.Minute)
		swept := g.heal(t)
		for rings := swept.Rings; len(rings) > 0; {
			ring := rings[0]
			if rings = rings[1:]; ring.JobRef == newer {
				t.Fatal("the sweep rings for a job of a newer format")
			}
			rings = append(rings, g.serve(t, ring)...)
		}
		if sl, rings, err := g.Begin(t.Context(), crawl.Ring{JobRef: newer, N: n}); !errors.Is(err, ErrNewer) || sl != nil || rings != nil {
			t.Fatalf("begun: %+v, %v, %v", sl, rings, err)
		}
	}
	for name, was := range others {
		g.checkEnd(t, name, was, g.read(t, g.jobs[name]))
	}
}

// No golden file is lost or changed by hand without notice: the first is what processes wrote that
// knew of no format.
func TestGoldenIsOfBefore(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(goldenDir, "v1", "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), `"format"`) || !strings.Contains(string(text), `:cancelled_leased"`) {
		t.Error("v1 is not what it was: restore it, and write golden files of today into a folder of their own")
	}
}
