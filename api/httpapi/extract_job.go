package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/store"
)

const (
	// extractWait is how long an extraction of a URL waits for the end of its job: a page is
	// tried for longer only when its host does not answer.
	extractWait = 30 * time.Second
	// extractPoll is how often it looks at first, as a cancel does; later it looks less often,
	// up to extractPollMax, since many may wait for slow hosts.
	extractPoll, extractPollMax = cancelPoll, time.Second
	// extractRetention is how long the job is kept: for who was told 202, and then reads it.
	extractRetention = 10 * time.Minute

	extractTag = "extract"
)

// submission returns the job that fetches the page.
//
// Nothing in it is required: a page that lacks a field fails in a crawl, and the caller of an
// extraction wants to see what it has. What is required is looked at when the page is there.
func (e *extractor) submission(limits crawl.Limits) submission {
	retention := crawl.Duration(extractRetention)
	if limits.Retention > 0 {
		retention = min(retention, crawl.Duration(limits.Retention))
	}
	in := e.in
	sub := submission{
		URLs: []string{in.URL}, Formats: in.Formats, MainContent: in.MainContent, Headers: in.Headers, UserAgent: in.UserAgent,
		RespectRobots: in.RespectRobots, Tags: []string{extractTag}, Retention: &retention,
	}
	sub.Fields, e.required = optional("fields.", in.Fields)
	if in.Items != nil {
		items := *in.Items
		items.Fields, e.requiredOfItems = optional("items.fields.", items.Fields)
		sub.Items = &items
	}
	return sub
}

// optional returns fields of which none is required, and the paths of those that are.
func optional(prefix string, of crawl.Fields) (all crawl.Fields, required []string) {
	all = slices.Clone(of)
	for i := range all {
		if all[i].Required {
			all[i].Required = false
			required = append(required, prefix+all[i].Name)
		}
	}
	return all, required
}

// extractURL has the page fetched, and waits for it. A client that hangs up changes nothing:
// the job runs, and is forgotten when its time is over.
func (s *Server) extractURL(ctx context.Context, x *exchange, e *extractor) (*extractOutput, error) {
	// Without an Idempotency-Key: each call looks at the page anew.
	created, err := s.createJob(ctx, x, &e.sub, "", nil)
	if err != nil {
		s.metrics.submitted(outcomeRefused, crawl.CodeOf(err))
		return nil, err
	}
	s.metrics.submitted(outcomeCreated, "")
	s.ring(ctx, x, created.Rings, created.Job.ID)
	ref := crawl.JobRef{Tenant: x.tenant, ID: created.Job.ID}
	j, err := s.awaitEnd(ctx, ref)
	if err != nil {
		return nil, err
	}
	source := e.inputs[0].URL.String()
	out := &extractOutput{Status: http.StatusOK, Body: extraction{
		SourceURL: &source, JobID: &ref.ID, Items: []values{}, Missing: []string{}, Notes: []note{},
	}}
	if !j.State.Terminal() {
		out.Status, out.Location = http.StatusAccepted, "/v1/jobs/"+ref.ID
		return out, nil
	}
	if err := s.readExtract(ctx, ref, e, &out.Body); err != nil {
		return nil, err
	}
	return out, nil
}

// awaitEnd returns a job when it has ended, or as it is after [extractWait].
func (s *Server) awaitEnd(ctx context.Context, ref crawl.JobRef) (crawl.Job, error) {
	end := time.NewTimer(extractWait)
	defer end.Stop()
	pause := extractPoll
	poll := time.NewTimer(pause)
	defer poll.Stop()
	for over := false; ; {
		j, err := s.jobs.Job(ctx, ref)
		if err != nil || over || j.State.Terminal() {
			return j, err
		}
		select {
		case <-poll.C:
			pause = min(pause*5/4, extractPollMax)
			poll.Reset(pause)
		case <-end.C:
			over = true
		case <-ctx.Done():
			return j, ctx.Err()
		}
	}
}

// readExtract reads what the page gave.
func (s *Server) readExtract(ctx context.Context, ref crawl.JobRef, e *extractor, out *extraction) error {
	g := gathering{of: e, out: out, lacking: map[string]int{}}
	for after, more := int64(0), true; more; {
		found, err := s.jobs.Records(ctx, ref, after, exportPage)
		if err != nil {
			return err
		}
		for i := range found.Records {
			g.add(&found.Records[i])
		}
		after, more = found.Next, found.More
	}
	if !g.taken {
		return s.explainExtract(ctx, ref, out)
	}
	g.end()
	return nil
}

// gathering makes an extraction of the records of its job.
type gathering struct {
	of      *extractor
	out     *extraction
	taken   bool // the page was accepted
	notes   []crawl.Note
	lacking map[string]int // how many items lack a field, by its path
}

// add takes one record in: that of the page, or of one of its items.
func (g *gathering) add(p *crawl.Page) {
	out := g.out
	if p.Item == 0 {
		g.taken, g.notes = true, slices.Clone(p.Notes)
		out.Title, out.Fields = p.Title, values(p.Fields)
		out.URL = unlessZero(p.URL)
		out.Missing = append(out.Missing, lacks(p.Fields, g.of.required)...)
		if p.Content != nil {
			out.keep(p.Content)
		}
		return
	}
	out.Found++
	missing := lacks(p.Fields, g.of.requiredOfItems)
	for _, path := range missing {
		g.lacking[path]++
	}
	if len(missing) == 0 {
		out.Items = append(out.Items, values(p.Fields))
	}
}

// end says what is known with the last record.
func (g *gathering) end() {
	for _, n := range g.notes {
		if n.About == "items" && n.What == crawl.NoteCut {
			g.out.Found += n.Count
		}
	}
	for _, path := range g.of.requiredOfItems {
		n := g.lacking[path]
		if n == 0 {
			continue
		}
		g.notes = append(g.notes, crawl.Note{About: path, What: crawl.NoteIncomplete, Count: n})
		if len(g.out.Items) == 0 {
			g.out.Missing = append(g.out.Missing, path)
		}
	}
	g.out.Notes = notesOf(g.notes)
}

// lacks returns the paths of required fields that have no value: null, "" or [].
func lacks(record json.RawMessage, required []string) (missing []string) {
	if len(required) == 0 {
		return nil
	}
	var of map[string]json.RawMessage
	_ = json.Unmarshal(record, &of) // what the store has is an object, or nothing
	for _, path := range required {
		switch string(of[path[strings.LastIndexByte(path, '.')+1:]]) {
		case "", "null", `""`, "[]":
			missing = append(missing, path)
		}
	}
	return missing
}

// explainExtract says why there is no record of the page.
func (s *Server) explainExtract(ctx context.Context, ref crawl.JobRef, out *extraction) error {
	found, err := s.jobs.URLs(ctx, ref, store.URLQuery{Limit: 1})
	for err == nil && len(found.URLs) == 0 && found.More {
		found, err = s.jobs.URLs(ctx, ref, store.URLQuery{From: found.Next, Limit: 1})
	}
	if err != nil {
		return err
	}
	out.Error = &pageError{ErrorType: string(crawl.CodeInternal), Message: "The job ended without the page. Try again."}
	if len(found.URLs) == 0 {
		return nil
	}
	u := &found.URLs[0]
	out.URL = unlessZero(u.FinalURL)
	e := out.Error
	e.ErrorType, e.Status, e.Message = string(cmp.Or(u.Reason, crawl.Reason(u.State))), unlessZero(u.Status), u.Message
	if e.Message == "" {
		e.Message = "The page was not taken: " + string(u.State)
		for _, why := range []string{string(u.Reason), u.Rule} {
			if why != "" {
				e.Message += ", " + why
			}
		}
		e.Message += "."
	}
	return nil
}
