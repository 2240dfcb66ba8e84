package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
	return decodeJob(j, a)
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
		// DuplicateSeq and LastModMS are written by commit.lua, which alone knows them.
		DuplicateSeq int64  `json:"duplicate_seq,omitempty"`
		LastModMS    *int64 `json:"lastmod_ms,omitempty"` // in place of LastMod
	}
	storedFailure struct {
		crawl.Failure
		Parent int64 `json:"parent,omitempty"`
		AtMS   int64 `json:"at_ms,omitempty"` // in place of At in one that a script wrote
	}
)

// Records reads accepted pages behind the given number, in the order they were
// recorded; it works while the job runs. limit is 1 to 1000. Faults: not_found,
// expired.
func (s *Store) Records(ctx context.Context, j crawl.JobRef, after int64, limit int) (RecordPage, error) {
	rows, page, err := s.rows(ctx, j, "rec", "records", after, limit)
	if err != nil {
		return RecordPage{}, err
	}
	out := RecordPage{Next: page.next, More: page.more, Ended: page.ended}
	parents, firsts := make([]int64, len(rows)), make([]int64, len(rows))
	for i, text := range rows {
		var rec storedPage
		if err := json.Unmarshal([]byte(text), &rec); err != nil {
			return RecordPage{}, fmt.Errorf("store: record: %w", err)
		}
		rec.Seq = after + int64(i) + 1
		if rec.LastModMS != nil {
			rec.LastMod = time.UnixMilli(*rec.LastModMS).UTC()
		}
		parents[i], firsts[i] = rec.Parent, rec.DuplicateSeq
		out.Records = append(out.Records, rec.Page)
	}
	known := make(map[int64]cited, len(out.Records))
	for _, p := range out.Records {
		known[p.Seq] = cited{p.SourceURL, p.URL}
	}
	if err := s.cite(ctx, j, slices.Concat(parents, firsts), known); err != nil {
		return RecordPage{}, err
	}
	for i := range out.Records {
		out.Records[i].DiscoveredOn = known[parents[i]].SourceURL
		out.Records[i].DuplicateOf = known[firsts[i]].SourceURL
	}
	return out, nil
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
