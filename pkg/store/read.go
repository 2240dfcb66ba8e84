package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/trawl/pkg/crawl"
)

// Job reads one consistent picture of a job; its cost does not depend on the job's
// size. Faults: not_found, expired.
func (s *Store) Job(ctx context.Context, j crawl.JobRef) (crawl.Job, error) {
	a, err := s.one(ctx, statusScript, []string{rootKey(j.Tenant), jobKey(j)}, j.ID)
	if err != nil {
		return crawl.Job{}, err
	}
	job, err := decodeJob(j, a)
	s.waitsForMemory(ctx, j.Tenant, &job)
	return job, err
}

// List reads a tenant's jobs, newest first.
func (s *Store) List(ctx context.Context, q ListQuery) (JobPage, error) {
	before, tag, after := "", "", int64(0)
	if q.Before > 0 {
		before = strconv.FormatInt(q.Before, 10)
	}
	if q.Tag != "" {
		b, err := json.Marshal(q.Tag)
		if err != nil {
			return JobPage{}, fmt.Errorf("store: tag: %w", err)
		}
		tag = string(b)
	}
	if !q.CreatedAfter.IsZero() {
		after = q.CreatedAfter.UnixMilli()
	}
	a, err := s.one(ctx, listScript, []string{rootKey(q.Tenant)}, before, q.Limit, string(q.State), tag, after)
	if err != nil {
		return JobPage{}, err
	}
	page := JobPage{Next: num(a[0]), More: num(a[1]) == 1}
	for i := 2; i+1 < len(a); i += 2 {
		st, _ := a[i+1].([]any)
		job, err := decodeJob(crawl.JobRef{Tenant: q.Tenant, ID: str(a[i])}, st)
		if err != nil {
			return JobPage{}, err
		}
		s.waitsForMemory(ctx, q.Tenant, &job)
		page.Jobs = append(page.Jobs, job)
	}
	return page, nil
}

// decodeJob reads what status.lua answers, which has no spec in a list.
func decodeJob(j crawl.JobRef, a []any) (crawl.Job, error) {
	fields, _ := a[0].([]any)
	h := make(map[string]string, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		h[str(fields[i])] = str(fields[i+1])
	}
	if gone, ok := h["gone"]; ok {
		at, _ := strconv.ParseInt(gone, 10, 64)
		return crawl.Job{}, expired(j, at)
	}
	if h["state"] == "" {
		return crawl.Job{}, notFound(j)
	}
	n := func(field string) int64 {
		v, _ := strconv.ParseInt(h[field], 10, 64)
		return v
	}
	at := func(field string) time.Time {
		if h[field] == "" {
			return time.Time{}
		}
		return time.UnixMilli(n(field)).UTC()
	}
	job := crawl.Job{
		ID: j.ID, QueueTaskID: j.ID, State: crawl.State(h["state"]), Error: h["error"], RetryOf: h["retry_of"],
		Total: n("total"), Accepted: n("accepted"), Failed: n("failed"), Skipped: n("skipped"),
		Cancelled: n("cancelled"), Queued: num(a[1]), Active: num(a[2]), Deferred: num(a[3]),
		Records: n("records"), Bytes: n("bytes"), Sitemaps: n("maps_read"), SitemapsFailed: n("maps_failed"),
		KeptBytes: n("kept_bytes"),
		Report: crawl.Report{
			ListPages: n("list_pages"), Created: n("items_created"), Updated: n("items_updated"),
			Unchanged: n("items_unchanged"), NotCollected: n("not_collected"), Missing: n("missing"),
		},
		CreatedAt: at("created"), StartedAt: at("started"), EndedAt: at("ended"), ExpiresAt: at("expires"),
		SkippedByReason: map[crawl.Reason]int64{}, FailedByType: map[crawl.Code]int64{},
		RefusedByReason: map[crawl.Reason]int64{},
	}
	if len(a) > 7 {
		job.Spec = json.RawMessage(str(a[7]))
	}
	job.Processed = job.Accepted + job.Failed + job.Skipped
	if job.State.Terminal() {
		job.StopReason = crawl.StopReason(h["stop"])
	} else {
		deferredFor := h["deferred_for"]
		if job.Queued+job.Active+job.Deferred == 0 {
			deferredFor = h["maps_for"] // only sitemaps are left
		}
		job.WaitingFor, job.Position = waiting(&job, num(a[4]), num(a[5]), deferredFor, h)
	}
	if err := json.Unmarshal([]byte(h["tags"]), &job.Tags); err != nil {
		return crawl.Job{}, fmt.Errorf("store: tags of job %s: %w", j.ID, err)
	}
	for field := range h {
		kind, name, _ := strings.Cut(field, ":")
		switch kind {
		case "s":
			job.SkippedByReason[crawl.Reason(name)] = n(field)
		case "f":
			job.FailedByType[crawl.Code(name)] = n(field)
		case "r":
			job.RefusedByReason[crawl.Reason(name)] = n(field)
		}
	}
	return job, nil
}

// waiting says why a job that has not ended makes no progress now.
func waiting(job *crawl.Job, rank, slices int64, deferredFor string, h map[string]string) (string, int64) {
	switch {
	case job.State == crawl.Cancelling || job.State == crawl.Paused:
		return "", 0
	case rank >= 0:
		return crawl.WaitingTenantQuota, rank + 1
	case job.Error != "":
		return crawl.WaitingDispatch, 0
	case h["day_until"] != "" && job.Active == 0:
		return crawl.WaitingTenantQuota, 0
	case h["rest_until"] != "" && job.Active == 0 && h["rest_for"] != "":
		return h["rest_for"], 0
	case h["rest_until"] != "" && job.Active == 0:
		return cmp.Or(deferredFor, crawl.WaitingHostDelay), 0
	case job.Active == 0 && job.Queued == 0 && deferredFor != "":
		return deferredFor, 0
	case slices == 0:
		return crawl.WaitingWorker, 0
	default:
		return "", 0
	}
}

// storedPage and storedFailure are what the hashes hold: the parent by number, since
// its URL stands in its own record.
type (
	storedPage struct {
		crawl.Page
		Parent int64 `json:"parent,omitempty"`
		// What follows is written by commit.lua, which alone knows it.

		DuplicateSeq int64  `json:"duplicate_seq,omitempty"`
		LastModMS    *int64 `json:"lastmod_ms,omitempty"` // in place of LastMod
		// Of is the record of the page that gave an item; 0 for that of a page. The record of an
		// item has nothing else but Item, Fields and Change.
		Of int64 `json:"of,omitempty"`
		// Stored and Size are the bytes of the content, as it is stored and unpacked; 0 for none.
		Stored int64 `json:"stored,omitempty"`
		Size   int64 `json:"size,omitempty"`
		// LeftOut is what kept the content out, as [crawl.Note] says it; empty for nothing.
		LeftOut string `json:"left_out,omitempty"`
	}
	storedFailure struct {
		crawl.Failure
		Parent int64 `json:"parent,omitempty"`
		AtMS   int64 `json:"at_ms,omitempty"` // in place of At in one that a script wrote
	}
)

// changeFull is the change of a record for which its collection had no room.
const changeFull crawl.Change = "full"

// maxRecordBytes bounds a page of records: what they and their content have, unpacked.
const maxRecordBytes = 8 << 20

// Records reads records behind the given number with their content, in the order they were
// recorded: that of a page, then those of its items. It works while the job runs. limit is 1
// to 1000; a page is shorter where more would have above 8 MiB, and has one record at least.
// Faults: not_found, expired.
func (s *Store) Records(ctx context.Context, j crawl.JobRef, after int64, limit int) (RecordPage, error) {
	rows, page, err := s.rows(ctx, j, "rec", "records", after, limit)
	if err != nil {
		return RecordPage{}, err
	}
	out := RecordPage{Next: page.next, More: page.more, Ended: page.ended}
	stored, err := storedPages(rows, after)
	if err != nil {
		return RecordPage{}, err
	}
	if len(stored) < len(rows) {
		out.Next, out.More = after+int64(len(stored)), true
	}
	// The page of the first items can be before all that was asked for.
	pages := make(map[int64]*storedPage, len(stored)+1)
	lead, err := s.fill(ctx, j, stored)
	if err != nil {
		return RecordPage{}, err
	}
	if lead != nil {
		pages[lead.Seq] = lead
	}
	known := make(map[int64]cited, len(stored)+1)
	var cites []int64
	for i := range stored {
		if stored[i].Of == 0 {
			pages[stored[i].Seq] = &stored[i]
		}
	}
	for _, p := range pages {
		known[p.Seq] = cited{p.SourceURL, p.URL}
		cites = append(cites, p.Parent, p.DuplicateSeq)
	}
	if err := s.cite(ctx, j, cites, known); err != nil {
		return RecordPage{}, err
	}
	out.Records = make([]crawl.Page, 0, len(stored))
	for i := range stored {
		rec := &stored[i]
		of := pages[cmp.Or(rec.Of, rec.Seq)]
		if of == nil {
			return RecordPage{}, s.lost(ctx, j, rec.Of)
		}
		p := rec.record(of)
		p.DiscoveredOn, p.DuplicateOf = known[of.Parent].SourceURL, known[of.DuplicateSeq].SourceURL
		out.Records = append(out.Records, p)
	}
	return out, nil
}

// storedPages reads rows behind the given number, as many as one answer may have.
func storedPages(rows []string, after int64) ([]storedPage, error) {
	out := make([]storedPage, 0, len(rows))
	var sum int64
	for i, text := range rows {
		var rec storedPage
		if err := json.Unmarshal([]byte(text), &rec); err != nil {
			return nil, fmt.Errorf("store: record: %w", err)
		}
		if sum += int64(len(text)) + rec.Size; sum > maxRecordBytes && i > 0 {
			break
		}
		rec.Seq = after + int64(i) + 1
		out = append(out, rec)
	}
	return out, nil
}

// record makes the record that readers see; of is that of its page, perhaps itself.
func (rec *storedPage) record(of *storedPage) crawl.Page {
	p := of.Page
	if of.LastModMS != nil {
		p.LastMod = time.UnixMilli(*of.LastModMS).UTC()
	}
	if rec.Of != 0 {
		p.Seq, p.Item, p.Fields, p.Change = rec.Seq, rec.Item, rec.Fields, rec.Change
		p.Content, p.Notes = nil, nil
	}
	if p.Change == changeFull {
		p.Change = ""
		p.Notes = append(p.Notes, crawl.Note{About: "collection", What: crawl.NoteCollection})
	}
	if rec.LeftOut != "" {
		p.Notes = append(p.Notes, crawl.Note{About: "content", What: rec.LeftOut})
	}
	return p
}

// fill reads the content of records, and the record of the page whose items are the first of
// them if it is not among them: in one round trip, or none.
func (s *Store) fill(ctx context.Context, j crawl.JobRef, recs []storedPage) (lead *storedPage, err error) {
	p := s.rdb.Pipeline()
	var first *redis.StringCmd
	if len(recs) > 0 && recs[0].Of != 0 {
		first = p.HGet(ctx, chunkKey(j, "rec", recs[0].Of), strconv.FormatInt(recs[0].Of, 10))
	}
	bodies := make([]*redis.StringCmd, len(recs))
	for i := range recs {
		if recs[i].Stored > 0 {
			bodies[i] = p.HGet(ctx, chunkKey(j, "body", recs[i].Seq), strconv.FormatInt(recs[i].Seq, 10))
		}
	}
	if p.Len() == 0 {
		return nil, nil
	}
	s.trips.Add(1)
	if _, err := p.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fault(err)
	}
	if first != nil {
		text, err := s.value(ctx, j, recs[0].Of, first)
		if err != nil {
			return nil, err
		}
		lead = new(storedPage)
		if err := json.Unmarshal(text, lead); err != nil {
			return nil, fmt.Errorf("store: record: %w", err)
		}
		lead.Seq = recs[0].Of
	}
	for i, body := range bodies {
		if body == nil {
			continue
		}
		data, err := s.value(ctx, j, recs[i].Seq, body)
		if err != nil {
			return nil, err
		}
		if recs[i].Content, err = unpack(data, recs[i].Size); err != nil {
			return nil, fmt.Errorf("store: record %d of job %s: %w", recs[i].Seq, j.ID, err)
		}
	}
	return lead, nil
}

// value answers what was read of a record, which must be there.
func (s *Store) value(ctx context.Context, j crawl.JobRef, seq int64, cmd *redis.StringCmd) ([]byte, error) {
	data, err := cmd.Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, s.lost(ctx, j, seq)
	}
	return data, fault(err)
}

// lost tells why something of a record that must be there is not: the job was removed since
// its records were read, or the store has lost it.
func (s *Store) lost(ctx context.Context, j crawl.JobRef, seq int64) error {
	if _, err := s.Job(ctx, j); err != nil {
		return err
	}
	return fmt.Errorf("store: record %d of job %s, or its content, is lost", seq, j.ID)
}

// Failures reads failed pages behind the given number, in the order they were
// recorded. limit is 1 to 1000. Faults: not_found, expired.
func (s *Store) Failures(ctx context.Context, j crawl.JobRef, after int64, limit int) (FailurePage, error) {
	rows, page, err := s.rows(ctx, j, "err", "errors", after, limit)
	if err != nil {
		return FailurePage{}, err
	}
	out := FailurePage{Next: page.next, More: page.more, Ended: page.ended}
	parents, known := make([]int64, len(rows)), map[int64]cited{}
	for i, text := range rows {
		var rec storedFailure
		if err := json.Unmarshal([]byte(text), &rec); err != nil {
			return FailurePage{}, fmt.Errorf("store: failure: %w", err)
		}
		if rec.AtMS > 0 {
			rec.At = time.UnixMilli(rec.AtMS).UTC()
		}
		parents[i] = rec.Parent
		out.Failures = append(out.Failures, rec.Failure)
	}
	if err := s.cite(ctx, j, parents, known); err != nil {
		return FailurePage{}, err
	}
	for i := range out.Failures {
		out.Failures[i].DiscoveredOn = known[parents[i]].SourceURL
	}
	return out, nil
}

type position struct {
	next  int64
	more  bool
	ended bool
}

// rows reads stored values after..after+limit of an append-only sequence.
func (s *Store) rows(
	ctx context.Context, j crawl.JobRef, kind, counter string, after int64, limit int,
) ([]string, position, error) {
	p := s.rdb.Pipeline()
	head := p.HMGet(ctx, jobKey(j), "state", counter)
	var parts []*redis.SliceCmd
	for from := after + 1; from <= after+int64(limit); {
		to := min(after+int64(limit), (from-1)/perHash*perHash+perHash)
		fields := make([]string, 0, to-from+1)
		for seq := from; seq <= to; seq++ {
			fields = append(fields, strconv.FormatInt(seq, 10))
		}
		parts = append(parts, p.HMGet(ctx, chunkKey(j, kind, from), fields...))
		from = to + 1
	}
	s.trips.Add(1)
	if _, err := p.Exec(ctx); err != nil {
		return nil, position{}, fault(err)
	}
	state, count := str(head.Val()[0]), str(head.Val()[1])
	if state == "" {
		return nil, position{}, s.missing(ctx, j)
	}
	var out []string
	for _, part := range parts {
		for _, v := range part.Val() {
			text, ok := v.(string)
			if !ok {
				break // the sequence is without gaps: this is its end
			}
			out = append(out, text)
		}
	}
	total, _ := strconv.ParseInt(count, 10, 64)
	next := after + int64(len(out))
	return out, position{next: next, more: next < total, ended: crawl.State(state).Terminal()}, nil
}

// cited is what other entries say of a record.
type cited struct {
	SourceURL string `json:"source_url"`
	URL       string `json:"url"`
}

// cite adds what is said of the given records and sitemaps to known.
func (s *Store) cite(ctx context.Context, j crawl.JobRef, seqs []int64, known map[int64]cited) error {
	if err := s.citeMaps(ctx, j, seqs, known); err != nil {
		return err
	}
	byKey := map[string][]string{}
	wanted := map[int64]bool{}
	for _, seq := range seqs {
		if _, ok := known[seq]; ok || seq == 0 || seq > mapParent || wanted[seq] {
			continue
		}
		wanted[seq] = true
		k := chunkKey(j, "rec", seq)
		byKey[k] = append(byKey[k], strconv.FormatInt(seq, 10))
	}
	if len(wanted) == 0 {
		return nil
	}
	p := s.rdb.Pipeline()
	parts := map[string]*redis.SliceCmd{}
	for k, fields := range byKey {
		parts[k] = p.HMGet(ctx, k, fields...)
	}
	s.trips.Add(1)
	if _, err := p.Exec(ctx); err != nil {
		return fault(err)
	}
	for k, cmd := range parts {
		for i, v := range cmd.Val() {
			text, ok := v.(string)
			if !ok {
				continue // removed meanwhile with its job
			}
			var rec cited
			if err := json.Unmarshal([]byte(text), &rec); err != nil {
				return fmt.Errorf("store: record: %w", err)
			}
			seq, _ := strconv.ParseInt(byKey[k][i], 10, 64)
			known[seq] = rec
		}
	}
	return nil
}
