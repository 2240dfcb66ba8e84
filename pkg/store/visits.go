package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"example.com/trawl/pkg/crawl"
)

// Visit is what is kept of a page of a collection, to ask later whether it has changed.
type Visit struct {
	// ETag and LastModified as the site sent them (RFC 9110 sections 8.8.2 and 8.8.3); one of
	// them at least.
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"last_modified,omitempty"`
	// Under is a digest of all that decides what is taken out of a page and what is sent for
	// it: a visit under other rules says nothing about what these would give.
	Under string `json:"under"`
	Title string `json:"title,omitempty"`
	// Links are those of the page, so that a crawl goes on where a page has not changed.
	Links []VisitedLink `json:"links,omitempty"`
}

// VisitedLink is one link of a visited page.
type VisitedLink struct {
	URL      string `json:"u"`
	NoFollow bool   `json:"n,omitempty"`
}

// A visit that takes more is not kept: its page is read again, which is never wrong.
const (
	maxVisit     = 1 << 20 // bytes as JSON
	maxVisitKept = 8 << 10 // bytes as stored
)

// Visited answers what is kept of the last visit to a page of the job's collection; nil for
// nothing. u is the URL of the item of the frontier. Faults: unavailable.
func (s *Store) Visited(ctx context.Context, sl *Slice, u crawl.URL) (*Visit, error) {
	if sl.Plan.Collection == nil {
		return nil, nil
	}
	a, err := s.one(ctx, collectionVisitScript, []string{rootKey(sl.Job.Tenant)}, sl.Plan.Collection.Name,
		digest16(u.String()))
	if err != nil || len(a) == 0 {
		return nil, err
	}
	return unpackVisit([]byte(str(a[0])))
}

// visitArg encodes what is kept of the visit of a page as collection.lua reads it; empty for a
// job without a collection.
func visitArg(plan *crawl.Plan, c *Commit) []byte {
	if plan.Collection == nil {
		return []byte{}
	}
	out := digest16(c.Item.URL)
	out = fmt.Appendf(out, "%d ", withoutKey(plan, c.Accepted))
	if c.Accepted.Visit == nil || c.Accepted.NotModified {
		return out
	}
	kept, err := packVisit(c.Accepted.Visit)
	if err != nil {
		return out // as one that is too large
	}
	return append(out, kept...)
}

// withoutKey answers how many records of a page should enter the collection and do not.
func withoutKey(plan *crawl.Plan, a *Accepted) int {
	switch {
	case a.NotModified:
		return 0
	case plan.Items != nil:
		return max(0, len(a.Items)-len(a.Upserts))
	case a.ListPage:
		return 0
	default:
		return max(0, 1-len(a.Upserts))
	}
}

// packVisit encodes a visit in the form of [Packed]; nothing for one that is too large.
func packVisit(v *Visit) ([]byte, error) {
	p, err := takePacker()
	if err != nil {
		return nil, err
	}
	defer p.giveBack()
	if err := writeJSON(&p.text, v); err != nil {
		return nil, err
	}
	text := p.text.Bytes()
	if len(text) > maxVisit {
		return nil, nil
	}
	data := p.encoder.EncodeAll(text, packHead(formZstd, len(text), len(text)/2))
	if len(data) >= packedHead+len(text) {
		data = append(packHead(formJSON, len(text), len(text)), text...)
	}
	if len(data) > maxVisitKept {
		return nil, nil
	}
	return data, nil
}

// unpackVisit is the inverse of packVisit. A form of a later version is no visit.
func unpackVisit(data []byte) (*Visit, error) {
	if len(data) < packedHead {
		return nil, nil
	}
	size := int64(binary.BigEndian.Uint32(data[1:packedHead]))
	text := data[packedHead:]
	switch {
	case size > maxVisit:
		return nil, nil
	case data[0] == formZstd:
		var err error
		if text, err = inflate(text, size); err != nil {
			return nil, fmt.Errorf("store: visit: %w", err)
		}
	case data[0] != formJSON:
		return nil, nil
	}
	v := new(Visit)
	if err := json.Unmarshal(text, v); err != nil {
		return nil, fmt.Errorf("store: visit: %w", err)
	}
	return v, nil
}
