package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
)

// modelRecords is what the model knows of the records of a job and of their content.
type modelRecords struct {
	recs          []modelRecord // by number
	bodies        map[string]int
	mostItems     int   // of a page
	kept, mayKeep int64 // bytes; 0: no bound
	leftOut       bool  // by the last commit
}

// modelRecord is a record as a reader must find it.
type modelRecord struct {
	Source, DuplicateOf string
	Item                int
	Fields, Text        string
	Notes               []crawl.Note
}

func newModelRecords(t *rapid.T) modelRecords {
	return modelRecords{
		bodies:  map[string]int{},
		mayKeep: rapid.SampledFrom([]int64{0, 0, 1, 60, 150}).Draw(t, "kept bytes"),
	}
}

// drawContent makes up what is kept of a page, and its items.
func (m *model) drawContent(t *rapid.T, a *Accepted) {
	a.Digest = rapid.SampledFrom([]string{"", "", "", "one", "two"}).Draw(t, "digest")
	if rapid.Bool().Draw(t, "content") {
		text := strings.Repeat("t", rapid.IntRange(0, 40).Draw(t, "text"))
		packed, err := Pack(&crawl.Content{Text: &text})
		if err != nil {
			t.Fatal(err)
		}
		a.Content = packed
	}
	if rapid.Bool().Draw(t, "fields") {
		a.Page.Fields = json.RawMessage(`{"page":true}`)
	}
	for i := range rapid.IntRange(0, m.mostItems).Draw(t, "items") {
		a.Items = append(a.Items, json.RawMessage(fmt.Sprintf(`{"n":%d}`, i)))
	}
}

// record adds what an accepted page gives, and answers the number of its own record.
func (m *model) record(c *Commit) int64 {
	a := c.Accepted
	rec := modelRecord{Source: c.Item.URL, Fields: string(a.Page.Fields)}
	seq := len(m.recs) + 1
	first, known := m.bodies[a.Digest]
	size := int64(len(a.Content.data))
	switch {
	case a.Digest != "" && known:
		rec.DuplicateOf = m.recs[first-1].Source
	case size == 0:
	case m.mayKeep > 0 && m.kept+size > m.mayKeep:
		m.leftOut = true
		rec.Notes = []crawl.Note{{About: "content", What: crawl.NoteByteLimit}}
	default:
		content, _ := unpack(a.Content.data, int64(len(a.Content.data)-packedHead))
		rec.Text = "text: " + *content.Text
		m.kept += size
	}
	if a.Digest != "" && !known {
		m.bodies[a.Digest] = seq
	}
	m.recs = append(m.recs, rec)
	for i, item := range a.Items {
		m.recs = append(m.recs, modelRecord{
			Source: rec.Source, DuplicateOf: rec.DuplicateOf, Item: i + 1, Fields: string(item),
		})
	}
	return int64(seq)
}

// overflows reports whether the last commit was of a page whose content the job may not keep,
// and something is left of the job.
func (m *model) overflows() bool {
	out := m.leftOut
	m.leftOut = false
	return out && !m.state.Terminal() && m.state != crawl.Cancelling && len(m.queued)+len(m.leased)+len(m.deferred)+m.maps.left() > 0
}

// records compares the records with what was accepted: each page once, in order, with its
// items behind it and with the page that linked to it, in pages of any size.
func (m *model) records(ctx context.Context, t *rapid.T) {
	limit := rapid.SampledFrom([]int{1, 2, 3, 100}).Draw(t, "limit")
	var got []modelRecord
	for after := int64(0); ; {
		p, err := m.st.Records(ctx, m.job, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range p.Records {
			if r.Seq != after+int64(i)+1 {
				t.Fatalf("record %d behind %d has number %d", i, after, r.Seq)
			}
			m.origin(t, &r)
			rec := modelRecord{
				Source: r.SourceURL, DuplicateOf: r.DuplicateOf, Item: r.Item, Fields: string(r.Fields), Notes: r.Notes,
			}
			if r.Content != nil {
				rec.Text = "text: " + *r.Content.Text
			}
			got = append(got, rec)
		}
		if p.Next != int64(len(got)) {
			t.Fatalf("%d records, the next behind %d", len(got), p.Next)
		}
		if after = p.Next; !p.More {
			break
		}
	}
	if d := cmp.Diff(m.recs, got); d != "" {
		t.Fatalf("records (-want +got):\n%s", d)
	}
}

// origin checks what a record says of how its page was found.
func (m *model) origin(t *rapid.T, r *crawl.Page) {
	if (r.Depth == 0) != (r.DiscoveredOn == "") {
		t.Fatalf("record at depth %d discovered on %q", r.Depth, r.DiscoveredOn)
	}
	from := m.maps.named[r.SourceURL]
	if from.url != "" && (r.DiscoveredOn != from.url || r.Depth != 1) || !r.LastMod.Equal(from.lastMod) {
		t.Fatalf("record %+v of a page that was named by %+v", r, from)
	}
}
