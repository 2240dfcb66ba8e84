package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// page is an accepted page with a text as its content and so many items.
func page(t *testing.T, it crawl.Item, text string, items int) Commit {
	t.Helper()
	c := accept(t, it)
	if text != "" {
		c.Accepted.Content = pack(t, textOf(text))
	}
	for i := range items {
		c.Accepted.Items = append(c.Accepted.Items, json.RawMessage(fmt.Sprintf(`{"of":"%s","n":%d}`, it.URL, i+1)))
	}
	return c
}

// lease begins a job of n inputs and leases them all.
func (f *fixture) lease(t *testing.T, n NewJob) (*Slice, []crawl.Item) {
	t.Helper()
	n.Plan.Concurrency = max(1, len(n.Inputs))
	f.create(t, n)
	sl := f.begin(t, n.Job)
	items := f.exchange(t, sl, Exchange{Lease: len(n.Inputs)}).Items
	if len(items) != len(n.Inputs) {
		t.Fatalf("leased %d of %d", len(items), len(n.Inputs))
	}
	return sl, items
}

// all reads the records of a job in pages of the limit.
func (f *fixture) all(t *testing.T, job crawl.JobRef, limit int) []crawl.Page {
	t.Helper()
	var out []crawl.Page
	for after := int64(0); ; {
		p, err := f.Records(t.Context(), job, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Records) > limit || p.More && len(p.Records) == 0 || p.Next != after+int64(len(p.Records)) {
			t.Fatalf("%d records behind %d, then %d, more: %v", len(p.Records), after, p.Next, p.More)
		}
		out = append(out, p.Records...)
		if after = p.Next; !p.More {
			return out
		}
	}
}

func contentOf(p *crawl.Page) string {
	if p.Content == nil {
		return "none"
	}
	return *p.Content.Text
}

// Content is kept of pages that were accepted, once for the same bytes, and is read while the
// job runs as when it has ended.
func TestContentIsKept(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 7)
		sl, items := f.lease(t, n)
		long := strings.Repeat("a long text ", 1000)
		commits := []Commit{
			page(t, items[0], "short", 0), page(t, items[1], long, 0), page(t, items[2], "", 0),
			page(t, items[3], "short", 2), page(t, items[4], "noindex", 2), page(t, items[5], "alias", 2),
		}
		commits[0].Accepted.Digest, commits[3].Accepted.Digest = "same", "same"
		commits[0].Accepted.ListPage, commits[4].Accepted.ListPage = true, true
		commits[4].NoIndex = true
		commits[5].Accepted.Final = commits[0].Accepted.Final
		want := []string{"short", long, "none", "none", "none", "none"}
		kept := int64(len(commits[0].Accepted.Content.data) + len(commits[1].Accepted.Content.data))
		check := func() {
			t.Helper()
			var got []string
			for _, p := range f.all(t, n.Job, 4) {
				got = append(got, contentOf(&p))
				if dup := p.Seq > 3; dup != (p.DuplicateOf == items[0].URL) {
					t.Errorf("record %d is a duplicate of %q", p.Seq, p.DuplicateOf)
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("content (-want +got):\n%s", d)
			}
			j := f.read(t, n.Job)
			if j.KeptBytes != kept || j.Records != int64(len(want)) || j.Report.ListPages != 1 {
				t.Errorf("kept %d bytes, want %d; %+v", j.KeptBytes, kept, j)
			}
		}
		f.exchange(t, sl, Exchange{Commits: commits})
		if n := f.rdb.HLen(t.Context(), chunkKey(n.Job, "body", 1)).Val(); n != 2 {
			t.Errorf("the content of %d pages is stored", n)
		}
		check()
		f.exchange(t, sl, Exchange{Commits: []Commit{{Item: items[6], Skipped: crawl.SkipRedirectOutOfScope}}})
		check()
		if j := f.read(t, n.Job); j.State != crawl.Completed || j.Accepted != 4 || j.Skipped != 3 {
			t.Errorf("ended as %+v", j)
		}
	})
}

// A job that keeps nothing has no more keys and no more round trips than before.
func TestNothingIsKept(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 3)
		f.create(t, n)
		f.finish(t, n.Job)
		if f.rdb.Exists(t.Context(), chunkKey(n.Job, "body", 1)).Val() != 0 {
			t.Error("there is a hash for content")
		}
		before := f.Trips()
		p, err := f.Records(t.Context(), n.Job, 0, 10)
		if err != nil || len(p.Records) != 3 || f.Trips() != before+1 {
			t.Errorf("%d records in %d round trips, %v", len(p.Records), f.Trips()-before, err)
		}
		for _, r := range p.Records {
			if r.Content != nil || r.Notes != nil || r.Fields != nil || r.Item != 0 || r.Change != "" {
				t.Errorf("record %+v", r)
			}
		}
	})
}

// The records of items have all that their page has, and fields of their own, whichever of
// them a page of records begins with.
func TestItemsAreRecords(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		n.Plan.Site = true
		sl, items := f.lease(t, n)
		seed := page(t, items[0], "the list", 3)
		u := mapURL(t, 7)
		seed.Accepted.Links = []crawl.Link{{URL: u, Key: u.Key()}}
		seed.Accepted.Page.Fields = json.RawMessage(`{"title":"<b>"}`)
		seed.Accepted.Page.Notes = []crawl.Note{{About: "items", What: crawl.NoteCut}}
		seed.Accepted.Page.Title = "List & more"
		f.exchange(t, sl, Exchange{Commits: []Commit{seed}})
		it := f.exchange(t, sl, Exchange{Lease: 1}).Items[0]
		f.exchange(t, sl, Exchange{Commits: []Commit{page(t, it, "", 2)}})

		first := seed.Accepted.Page
		second := crawl.Page{
			SourceURL: u.String(), URL: u.String(), Status: 200, Bytes: 10, Depth: 1, DiscoveredOn: items[0].URL,
		}
		var want []crawl.Page
		for _, p := range []struct {
			page  crawl.Page
			text  string
			items []json.RawMessage
		}{{first, "the list", seed.Accepted.Items}, {second, "", page(t, it, "", 2).Accepted.Items}} {
			p.page.Seq = int64(len(want)) + 1
			if p.text != "" {
				p.page.Content = textOf(p.text)
			}
			want = append(want, p.page)
			for i, fields := range p.items {
				rec := p.page
				rec.Seq, rec.Item, rec.Fields, rec.Notes, rec.Content = int64(len(want))+1, i+1, fields, nil, nil
				want = append(want, rec)
			}
		}
		for _, limit := range []int{1, 2, 3, 5, 1000} {
			if d := cmp.Diff(want, f.all(t, n.Job, limit)); d != "" {
				t.Errorf("in pages of %d (-want +got):\n%s", limit, d)
			}
		}
		if j := f.read(t, n.Job); j.Records != 7 || j.Accepted != 2 || j.Total != 2 || !j.Consistent() {
			t.Errorf("counted %+v", j)
		}
		// Where a page begins among items, and content is read, and a parent cited.
		before := f.Trips()
		if p, err := f.Records(t.Context(), n.Job, 5, 1); err != nil || f.Trips()-before > 3 || p.Records[0].Item != 1 {
			t.Errorf("%+v in %d round trips, %v", p, f.Trips()-before, err)
		}
	})
}

// What is no record is refused before it is sent.
func TestItemsAreChecked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, crawltest.Mini(t))
	sl, leased := f.lease(t, f.job(t, "", 1))
	for name, items := range map[string][]json.RawMessage{
		"no JSON":   {[]byte(`{"a":1}`), []byte(`{"a":`)},
		"no object": {[]byte(`[1]`)},
		"two":       {[]byte(`{},"change":{}`)},
		"nothing":   {nil},
		"too many":  make([]json.RawMessage, MaxItems+1),
	} {
		c := page(t, leased[0], "", 0)
		c.Accepted.Items = items
		if _, err := f.Exchange(t.Context(), sl, Exchange{Commits: []Commit{c}}); err == nil {
			t.Errorf("%s: committed", name)
		}
	}
	if j := f.read(t, sl.Job); j.Active != 1 || j.Records != 0 {
		t.Errorf("something was recorded: %+v", j)
	}
}

// Records, their content and their pages are found across the borders of the hashes.
func TestRecordsAcrossHashes(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 5)
		sl, items := f.lease(t, n)
		per := []int{998, 0, MaxItems, 999, 1} // pages at 1, 1000, 1001, 2002 and 3002
		for i, it := range items {
			f.exchange(t, sl, Exchange{Commits: []Commit{page(t, it, "text of "+it.URL, per[i])}})
		}
		if j := f.read(t, n.Job); j.Records != 3003 || j.Accepted != 5 {
			t.Fatalf("ended as %+v", j)
		}
		for _, limit := range []int{1000, 333} {
			got := f.all(t, n.Job, limit)
			at := 0
			for i, it := range items {
				for k := range per[i] + 1 {
					p, want := got[at], "none"
					if at++; k == 0 {
						want = "text of " + it.URL
					}
					if p.Seq != int64(at) || p.Item != k || p.SourceURL != it.URL || contentOf(&p) != want ||
						k > 0 && string(p.Fields) != fmt.Sprintf(`{"of":"%s","n":%d}`, it.URL, k) {
						t.Fatalf("record %d of %d in pages of %d: %+v", at, len(got), limit, p)
					}
				}
			}
			if at != len(got) {
				t.Errorf("%d records, want %d", len(got), at)
			}
		}
	})
}

// A page of records has at most 8 MiB of content, and one record at least.
func TestRecordsAreBounded(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 6)
		sl, items := f.lease(t, n)
		mib := []int{3, 3, 3, 9, 0, 9}
		for i, it := range items {
			f.exchange(t, sl, Exchange{Commits: []Commit{page(t, it, strings.Repeat("x", mib[i]<<20), 0)}})
		}
		var got []int
		for after := int64(0); ; {
			p, err := f.Records(t.Context(), n.Job, after, 1000)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, len(p.Records))
			for i := range p.Records {
				text := 0
				if c := p.Records[i].Content; c != nil {
					text = len(*c.Text)
				}
				if text != mib[after+int64(i)]<<20 {
					t.Errorf("record %d has %d bytes of content", p.Records[i].Seq, text)
				}
			}
			if !p.Ended {
				t.Error("the job has ended")
			}
			if after = p.Next; !p.More {
				break
			}
		}
		if d := cmp.Diff([]int{2, 1, 1, 1, 1}, got); d != "" {
			t.Errorf("records of each page (-want +got):\n%s", d)
		}
	})
}

// What would cross the bound is not kept, says so, and winds the job down; what is still in
// flight keeps to the bound as well.
func TestKeptBytesAreBounded(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		size := int64(len(pack(t, textOf("0123456789")).data))
		n := f.job(t, "", 6)
		n.Plan.MaxKeptBytes = 2*size - 1 // one, and one that is a little smaller
		sl, items := f.lease(t, n)
		send := func(i int, text string) crawl.Job {
			t.Helper()
			c := page(t, items[i], text, 1)
			u := mapURL(t, 100+i)
			c.Accepted.Links = []crawl.Link{{URL: u, Key: u.Key()}}
			f.exchange(t, sl, Exchange{Commits: []Commit{c}})
			return f.read(t, n.Job)
		}
		if j := send(0, "0123456789"); j.State != crawl.Running || j.KeptBytes != size {
			t.Fatalf("below the bound: %+v", j)
		}
		if j := send(1, "0123456789"); j.State != crawl.Cancelling || j.KeptBytes != size || j.Cancelled != 2 {
			t.Fatalf("what crosses it: %+v", j)
		}
		if j := send(2, "012345678"); j.State != crawl.Cancelling || j.KeptBytes != n.Plan.MaxKeptBytes {
			t.Fatalf("what just fits: %+v", j)
		}
		if j := send(3, "0"); j.KeptBytes != n.Plan.MaxKeptBytes {
			t.Fatalf("what does not fit any more: %+v", j)
		}
		send(4, "")
		j := send(5, "01")
		if j.State != crawl.Cancelled || j.StopReason != crawl.StopByteLimit || j.Accepted != 6 || j.Records != 12 ||
			!j.Consistent() {
			t.Errorf("ended as %+v", j)
		}
		left := []crawl.Note{{About: "content", What: crawl.NoteByteLimit}}
		want := []string{"0123456789", "none", "012345678", "none", "none", "none"}
		notes := [][]crawl.Note{nil, left, nil, left, nil, left}
		for i, p := range f.all(t, n.Job, 100) {
			if i%2 == 1 {
				if p.Notes != nil || p.Content != nil {
					t.Errorf("record of an item: %+v", p)
				}
				continue
			}
			if d := cmp.Diff(notes[i/2], p.Notes); d != "" || contentOf(&p) != want[i/2] {
				t.Errorf("page %d has content %q, notes (-want +got):\n%s", i/2, contentOf(&p), d)
			}
		}
	})
}

// The last page of a job has nothing to be cut short: it ends as it would have, and says what
// of it was left out.
func TestKeptBytesOfTheLastPage(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		n.Plan.MaxKeptBytes = 3
		sl, items := f.lease(t, n)
		f.exchange(t, sl, Exchange{Commits: []Commit{page(t, items[0], "more", 0)}})
		p := f.all(t, n.Job, 10)
		if j := f.read(t, n.Job); j.State != crawl.Completed || j.KeptBytes != 0 || len(p[0].Notes) != 1 {
			t.Errorf("ended as %+v with %+v", j, p)
		}
	})
}

// A commit that the client sent again keeps nothing twice, and counts nothing twice.
func TestContentIsKeptOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, r *crawltest.Redis) {
		f := newFixture(t, r)
		n := f.job(t, "", 3)
		sl, items := f.lease(t, n)
		x := Exchange{Commits: []Commit{page(t, items[0], "a text", 2), page(t, items[1], "another", 1)}}
		x.Commits[0].Accepted.ListPage = true
		if _, err := f.through(t, r, commitScript).Exchange(t.Context(), sl, x); err != nil {
			t.Fatal(err)
		}
		f.exchange(t, sl, x)
		kept := int64(len(x.Commits[0].Accepted.Content.data) + len(x.Commits[1].Accepted.Content.data))
		j := f.read(t, n.Job)
		if j.KeptBytes != kept || j.Records != 5 || j.Accepted != 2 || j.Report.ListPages != 1 {
			t.Errorf("kept %d bytes, want %d; %+v", j.KeptBytes, kept, j)
		}
		if got := f.all(t, n.Job, 10); len(got) != 5 || contentOf(&got[3]) != "another" {
			t.Errorf("records %+v", got)
		}
	})
}

// A Redis that lost its scripts in the middle keeps content once, and what it has on disk is
// read after it started again.
func TestContentOutlivesRedis(t *testing.T) {
	t.Parallel()
	r := crawltest.Private(t, "--appendonly", "yes", "--appendfsync", "always")
	f := newFixture(t, &crawltest.Redis{Client: r.Client})
	n := f.job(t, "", 3)
	sl, items := f.lease(t, n)
	if err := r.Client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("text ", 1000)
	f.exchange(t, sl, Exchange{Commits: []Commit{page(t, items[0], text, 2), page(t, items[1], "short", 0)}})
	want, job := f.all(t, n.Job, 10), f.read(t, n.Job)
	if contentOf(&want[0]) != text || len(want) != 4 {
		t.Fatalf("records %+v", want)
	}
	r.Stop()
	r.Start()
	crawltest.Eventually(t, 20*time.Second, "the store to be back", func() bool { return f.Ready(t.Context()) == nil })
	if d := cmp.Diff(want, f.all(t, n.Job, 2)); d != "" {
		t.Errorf("after a restart (-want +got):\n%s", d)
	}
	f.exchange(t, sl, Exchange{Commits: []Commit{page(t, items[0], text, 2)}})
	if d := cmp.Diff(job, f.read(t, n.Job)); d != "" {
		t.Errorf("sent again after a restart (-want +got):\n%s", d)
	}
}

// Nothing of content is left behind when a job expires or is deleted, in any hash.
func TestContentIsRemoved(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		for name, remove := range map[string]func(crawl.JobRef){
			"deleted": func(j crawl.JobRef) {
				if err := f.Delete(t.Context(), j); err != nil {
					t.Fatal(err)
				}
			},
			"expired": func(crawl.JobRef) {
				f.pass(time.Hour)
				f.heal(t)
			},
		} {
			n := f.job(t, "", 3)
			sl, items := f.lease(t, n)
			for _, it := range items {
				f.exchange(t, sl, Exchange{Commits: []Commit{page(t, it, "text", MaxItems)}})
			}
			for seq := int64(1); seq < 3000; seq += 1000 {
				if f.rdb.Exists(t.Context(), chunkKey(n.Job, "body", seq)).Val() != 1 {
					t.Errorf("no content of record %d", seq)
				}
			}
			remove(n.Job)
			keys, err := f.rdb.Keys(t.Context(), jobKey(n.Job)+"*").Result()
			if err != nil || len(keys) != 1 || keys[0] != jobKey(n.Job) {
				t.Errorf("%s: left behind %q, %v", name, keys, err)
			}
			_, err = f.Records(t.Context(), n.Job, 0, 10)
			wantCode(t, err, crawl.CodeExpired)
		}
	})
}

// What is lost or damaged is told, never answered as a page that has no content.
func TestLostContent(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 2)
		sl, items := f.lease(t, n)
		f.exchange(t, sl, Exchange{Commits: []Commit{page(t, items[0], "text", 1)}})
		body := chunkKey(n.Job, "body", 1)
		for what, data := range map[string]string{
			"damaged": "\x01\x00\x00\x00\x02{}", "a later version": "\x09\x00\x00\x00\x0f{\"text\":\"text\"}",
		} {
			if err := f.rdb.HSet(t.Context(), body, "1", data).Err(); err != nil {
				t.Fatal(err)
			}
			if p, err := f.Records(t.Context(), n.Job, 0, 10); err == nil {
				t.Errorf("%s: %+v", what, p)
			}
		}
		for _, key := range []string{body, chunkKey(n.Job, "rec", 1)} {
			if err := f.rdb.HDel(t.Context(), key, "1").Err(); err != nil {
				t.Fatal(err)
			}
			for after := int64(0); after < 2 && key != body || after < 1; after++ {
				p, err := f.Records(t.Context(), n.Job, after, 10)
				if err == nil && len(p.Records) > 0 {
					t.Errorf("without %s: %+v", key, p)
				}
			}
		}
	})
}

// A record that found no room in its collection says so; the others say what they did to it.
func TestChangesAreRead(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		sl, items := f.lease(t, n)
		c := page(t, items[0], "", 2)
		c.Accepted.Page.Change, c.Accepted.Page.Item = crawl.Created, 7 // not for the caller to say
		c.Accepted.Page.Notes = []crawl.Note{{About: "items", What: crawl.NoteCut}}
		f.exchange(t, sl, Exchange{Commits: []Commit{c}})
		if p := f.all(t, n.Job, 1); p[0].Change != "" || p[0].Item != 0 {
			t.Errorf("record %+v", p[0])
		}
		rec := chunkKey(n.Job, "rec", 1)
		for seq, change := range map[string]string{"1": "full", "2": "full", "3": "updated"} {
			text := f.rdb.HGet(t.Context(), rec, seq).Val()
			text = strings.TrimSuffix(text, "}") + `,"change":"` + change + `"}`
			if err := f.rdb.HSet(t.Context(), rec, seq, text).Err(); err != nil {
				t.Fatal(err)
			}
		}
		full := crawl.Note{About: "collection", What: crawl.NoteCollection}
		want := [][]crawl.Note{{{About: "items", What: crawl.NoteCut}, full}, {full}, nil}
		for i, p := range f.all(t, n.Job, 1) {
			if d := cmp.Diff(want[i], p.Notes); d != "" || (p.Change == crawl.Updated) != (i == 2) || i < 2 && p.Change != "" {
				t.Errorf("record %d: change %q, notes (-want +got):\n%s", p.Seq, p.Change, d)
			}
		}
	})
}

// The report of a job is what its scripts counted.
func TestReport(t *testing.T) {
	onEach(t, func(t *testing.T, f *fixture) {
		n := f.job(t, "", 1)
		created := f.create(t, n).Job.CreatedAt
		if err := f.rdb.HSet(t.Context(), jobKey(n.Job), "list_pages", 1, "items_created", 2, "items_updated", 3,
			"items_unchanged", 4, "not_collected", 5, "missing", 6, "kept_bytes", 7).Err(); err != nil {
			t.Fatal(err)
		}
		want := crawl.Report{ListPages: 1, Created: 2, Updated: 3, Unchanged: 4, NotCollected: 5, Missing: 6}
		if j := f.read(t, n.Job); j.Report != want || j.KeptBytes != 7 || !j.CreatedAt.Equal(created) {
			t.Errorf("job %+v", j)
		}
	})
}
